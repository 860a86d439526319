//! The keys that use the most time and network, counted by HOTKEYS as in Redis 8.6. The frequency
//! of keys, as Valkey 9.2 counts it, is in `windows.rs`.
//!
//! In a session, each I/O thread counts the keys with the highest totals of each metric
//! ([`HeavyHitters`]). The metrics are a command's time, and the bytes of its request and reply.
//! The keys of a command get equal shares of them. With a sample ratio of `r`, each command is
//! counted with a probability of `1 / r`. The sums over all commands are exact for every ratio.
//!
//! Without a session, a command costs one predictable branch on a flag that the thread reads once
//! per turn. During a session, each command is timed separately. Each counted command takes a lock
//! that only its own thread and HOTKEYS GET take. The lock is held for a look-up, and no other lock
//! is taken under it.

use std::sync::Mutex;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use commands::keys::for_each_key;
use commands::table::Flags;
use smallvec::SmallVec;
use stdx::heavy_hitters::{HeavyHitters, Hitter};
use structures::lock::Lock;

use crate::stats::Ran;
use crate::table::Registered;

mod windows;

pub use windows::{Rate, Sampling, Windows};

/// The number of counters that a thread has per metric (time, bytes) for each key that HOTKEYS GET
/// shows. More counters reduce the error.
const COUNTERS_PER_SHOWN: usize = 32;

/// The options of HOTKEYS START.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// True if the time that commands take is counted per key.
    pub cpu: bool,
    /// True if the bytes of requests and replies are counted per key.
    pub net: bool,
    /// The number of keys that HOTKEYS GET shows.
    pub count: usize,
    /// The milliseconds after which the session of HOTKEYS ends by itself; `None` for no limit.
    pub duration_ms: Option<i64>,
    /// The sample ratio: on average, one of this number of commands is counted.
    pub sample: u32,
}

/// The data of a HOTKEYS session that does not depend on threads.
#[derive(Clone, Debug)]
struct Session {
    options: SessionOptions,
    started_ms: i64,
    /// The processor time and network bytes of the process when the session started.
    began: Totals,
    /// The time at which the session stopped, in Unix milliseconds, and the processor time and
    /// network bytes of the process then; `None` before.
    stopped: Option<(i64, Totals)>,
}

/// The processor time and network bytes of the process since its start, which the host measures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// The processor time of the process in user space.
    pub user: Duration,
    /// The processor time of the process in the kernel.
    pub system: Duration,
    /// The bytes that the process has received and sent.
    pub net_bytes: u64,
}

impl Totals {
    fn since(self, began: Self) -> Self {
        Self {
            user: self.user.saturating_sub(began.user),
            system: self.system.saturating_sub(began.system),
            net_bytes: self.net_bytes.saturating_sub(began.net_bytes),
        }
    }
}

/// The counters of one thread for the current or last session.
struct Part {
    options: SessionOptions,
    cpu_nanos: HeavyHitters,
    net_bytes: HeavyHitters,
    all_nanos: u64,
    all_bytes: u64,
}

/// The current or last session of HOTKEYS, and the counters of `hotkeys-top-k`.
pub struct HotKeys {
    /// The end of the HOTKEYS session, in Unix milliseconds; a time in the past if none is active.
    until_ms: AtomicI64,
    /// The current or last session; `None` before the first one and after a reset. The lock is a
    /// leaf, except that the locks of `parts` are taken under it.
    session: Mutex<Option<Session>>,
    parts: Box<[Lock<Option<Part>>]>,
    /// The counters of `hotkeys-top-k`, which need no session.
    pub windows: Windows,
}

/// The content of the reply of HOTKEYS GET.
#[derive(Debug)]
pub struct Report {
    /// The options of the HOTKEYS session.
    pub options: SessionOptions,
    /// True while the HOTKEYS session is active.
    pub active: bool,
    /// The time at which the HOTKEYS session started, in Unix milliseconds.
    pub started_ms: i64,
    /// The time for which the session has counted commands, in milliseconds.
    pub duration_ms: i64,
    /// The running time of all commands with keys in the session, sampled or not.
    pub all_time: Duration,
    /// The bytes of requests and replies of all commands with keys in the session, sampled or not.
    pub all_bytes: u64,
    /// The processor time of the process during the session, in user space and in the kernel.
    pub process_time: [Duration; 2],
    /// The bytes that the process received and sent during the session.
    pub net_bytes: u64,
    /// The keys whose commands took the most time, in nanoseconds.
    pub by_nanos: Vec<Hitter>,
    /// The keys with the most bytes in requests and replies.
    pub by_bytes: Vec<Hitter>,
}

/// The error of a request to start or reset HOTKEYS while a session is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgress;

impl HotKeys {
    /// Creates the state of HOTKEYS without a session, for this number of threads.
    pub fn new(threads: usize, now: Instant) -> Self {
        let parts = (0..threads).map(|_| Lock::new(None)).collect();
        Self {
            until_ms: i64::MIN.into(),
            session: Mutex::default(),
            parts,
            windows: Windows::new(threads, now),
        }
    }

    /// Returns true if a HOTKEYS session is active at `now_ms`, in Unix milliseconds.
    #[inline]
    pub fn is_active(&self, now_ms: i64) -> bool {
        self.until_ms.load(Relaxed) > now_ms
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Option<Session>> {
        self.session.lock().expect("nothing panics while the session is locked")
    }

    /// Starts a HOTKEYS session and removes the counts of the last one. `totals` are the present
    /// processor time and network bytes of the process.
    ///
    /// # Errors
    /// A session is active.
    pub fn start(&self, totals: Totals, options: SessionOptions, now_ms: i64) -> Result<(), InProgress> {
        let mut session = self.session();
        if self.is_active(now_ms) {
            return Err(InProgress);
        }
        *session = Some(Session { options, started_ms: now_ms, began: totals, stopped: None });
        for part in &self.parts {
            let counters = || HeavyHitters::new(options.count * COUNTERS_PER_SHOWN);
            let new =
                Part { options, cpu_nanos: counters(), net_bytes: counters(), all_nanos: 0, all_bytes: 0 };
            *part.lock() = Some(new);
        }
        self.until_ms.store(options.duration_ms.map_or(i64::MAX, |ms| now_ms + ms), Relaxed);
        Ok(())
    }

    /// Stops the HOTKEYS session and keeps its counts. Returns true if it was active.
    pub fn stop(&self, totals: Totals, now_ms: i64) -> bool {
        let mut session = self.session();
        let active = self.is_active(now_ms);
        if let Some(session) = session.as_mut().filter(|_| active) {
            session.stopped = Some((now_ms, totals));
            self.until_ms.store(i64::MIN, Relaxed);
        }
        active
    }

    /// Removes the counts of the last HOTKEYS session.
    ///
    /// # Errors
    /// A session is active.
    pub fn reset(&self, now_ms: i64) -> Result<(), InProgress> {
        let mut session = self.session();
        if self.is_active(now_ms) {
            return Err(InProgress);
        }
        *session = None;
        self.parts.iter().for_each(|part| *part.lock() = None);
        Ok(())
    }

    /// Returns the counts of the HOTKEYS session so far; `None` without a session. O(counters log
    /// counters).
    pub fn report(&self, totals: Totals, now_ms: i64) -> Option<Report> {
        let mut guard = self.session();
        let session = guard.as_mut()?;
        let active = self.is_active(now_ms);
        if !active && session.stopped.is_none() {
            // The session's time has ended; this is the first access since.
            let end_ms = session.started_ms + session.options.duration_ms.unwrap_or(0);
            session.stopped = Some((end_ms, totals));
        }
        let (end_ms, totals) = session.stopped.unwrap_or((now_ms, totals));
        let totals = totals.since(session.began);
        let locked: Vec<_> = self.parts.iter().map(Lock::lock).collect();
        let parts = || locked.iter().filter_map(|part| part.as_ref());
        let count = session.options.count;
        Some(Report {
            options: session.options,
            active,
            started_ms: session.started_ms,
            duration_ms: end_ms - session.started_ms,
            all_time: Duration::from_nanos(parts().map(|part| part.all_nanos).sum()),
            all_bytes: parts().map(|part| part.all_bytes).sum(),
            process_time: [totals.user, totals.system],
            net_bytes: totals.net_bytes,
            by_nanos: HeavyHitters::top(parts().map(|part| &part.cpu_nanos), count),
            by_bytes: HeavyHitters::top(parts().map(|part| &part.net_bytes), count),
        })
    }

    /// Counts the keys of a sampled command for `hotkeys-top-k`, in the current time window of the
    /// thread, if the command uses keys. `percent` is the percentage of commands that are sampled.
    #[cold]
    pub fn note_sample(
        &self,
        thread: usize,
        percent: u32,
        db: usize,
        registered: &Registered,
        args: &commands::Args<'_>,
    ) {
        if registered.command.flags.contains(Flags::INSPECTS_KEYS) {
            return;
        }
        let mut keys: SmallVec<[usize; 8]> = SmallVec::new();
        for_each_key(registered.command.keys, args, |at, _| keys.push(at));
        if !keys.is_empty() {
            self.windows.note(thread, percent, db, keys.iter().map(|&at| args.get(at)));
        }
    }

    /// Counts a command of a thread in the HOTKEYS session, if it has keys. `took` is the time of
    /// the command. `draw` returns a random number below its argument.
    #[cold]
    pub fn note(&self, thread: usize, ran: &Ran<'_>, took: Duration, draw: impl FnOnce(u32) -> u32) {
        let mut keys: SmallVec<[usize; 8]> = SmallVec::new();
        for_each_key(ran.registered.command.keys, ran.args, |at, _| keys.push(at));
        if keys.is_empty() {
            return;
        }
        let mut locked = self.parts[thread].lock();
        let Some(part) = locked.as_mut() else { return };
        let (nanos, bytes) = (took.as_nanos() as u64, ran.bytes.iter().sum::<usize>() as u64);
        part.all_nanos += nanos;
        part.all_bytes += bytes;
        if part.options.sample > 1 && draw(part.options.sample) != 0 {
            return;
        }
        let shares = keys.len() as u64;
        for at in keys {
            let key = ran.args.get(at);
            if part.options.cpu {
                part.cpu_nanos.add(key, nanos / shares);
            }
            if part.options.net {
                part.net_bytes.add(key, bytes / shares);
            }
        }
    }
}

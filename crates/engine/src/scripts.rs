//! The running scripts and functions, and the treatment of those that run for too long.
//!
//! The executor registers each script that it runs, and calls [`Script::exceeds`] at intervals. A
//! script that has run for longer than `busy-reply-threshold` is **busy**. Its thread then marks as
//! busy the locks that it holds, or the gate: the keyspace's shared lock
//! ([`Locked::mark_busy`](keyspace::Locked::mark_busy),
//! [`SharedPass::mark_busy`](keyspace::SharedPass::mark_busy)). A thread that waits for one of
//! these stops waiting. It has locked nothing and run no part of the request. It replies with
//! [`RunningScripts::error`] and continues with its other clients. Below the threshold all threads
//! wait, as in Redis. Threads that wait for long commands other than scripts continue to wait.
//!
//! ```text
//!   begin ─► [ exceeds? ─► mark locks and gate busy ]* ─► drop        the script's thread
//!                               └─► lock, gate: give up ─► -BUSY      the others
//! ```
//! No other lock is taken under the list's lock. A script is marked as busy in the list before it
//! marks any lock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use commands::CommandError;

/// The kind of a running script: a text, or a function of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// The script is a text (EVAL); SCRIPT KILL ends it.
    Script,
    /// The script is a function of a library (FCALL); FUNCTION KILL ends it.
    Function,
}

/// The identity of a running script: its kind, name, command and thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptName {
    /// The kind of the running code: a script or a function.
    pub kind: ScriptKind,
    /// The digest of a script, or the name of a function.
    pub name: Box<[u8]>,
    /// The words of the client's command that started the script.
    pub command: Vec<Box<[u8]>>,
    /// The index of the I/O thread that runs the script; [`usize::MAX`] for a debugged script.
    pub thread: usize,
}

/// An entry in the list of running scripts: the script, its start, and its state.
struct Entry {
    script: ScriptName,
    since: Instant,
    is_busy: AtomicBool,
    is_killed: AtomicBool,
    has_written: AtomicBool,
}

/// The running scripts that are registered: at most one for each I/O thread, and the debugged ones.
#[derive(Default)]
pub struct RunningScripts {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// The number of registered scripts that are busy. Each thread reads it once a turn (a pass of
    /// its event loop).
    busy: AtomicUsize,
    /// True if scripts may also run commands with the flag NOSCRIPT, for tests.
    allows_all: AtomicBool,
}

/// The outcome of SCRIPT KILL or FUNCTION KILL, which request the end of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// The end of at least one busy script of this kind was requested; it will end soon.
    Requested,
    /// All busy scripts of this kind have written, so none is stopped in the middle.
    HasWritten,
    /// No script of this kind is busy, but one of the other kind is.
    OtherKind,
    /// No script or function is busy, so none is killed.
    NoneRuns,
}

/// The registration of a running script in the list; dropping it removes the entry from the list.
pub struct Script<'a> {
    all: &'a RunningScripts,
    entry: Arc<Entry>,
}

impl RunningScripts {
    fn entries(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().expect("nothing panics while the scripts are locked")
    }

    /// Registers a script that starts at `now` of the engine's clock.
    pub fn begin(&self, script: ScriptName, now: Instant) -> Script<'_> {
        let entry = Arc::new(Entry {
            script,
            since: now,
            is_busy: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
        });
        self.entries().push(Arc::clone(&entry));
        Script { all: self, entry }
    }

    /// Returns true if a script is busy. Only a hint: it may change at any time, because no lock is
    /// held.
    #[inline]
    pub fn is_any_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// Permits all commands in scripts, including those with the flag NOSCRIPT. For tests.
    pub fn allow_all(&self) {
        self.allows_all.store(true, Relaxed);
    }

    /// Permits only commands without the flag NOSCRIPT in scripts.
    pub fn allow_usual(&self) {
        self.allows_all.store(false, Relaxed);
    }

    /// Returns true if scripts may run commands with the flag NOSCRIPT.
    pub fn allows_all(&self) -> bool {
        self.allows_all.load(Relaxed)
    }

    /// Lists the I/O threads that run busy scripts; [`usize::MAX`] for each busy script that is
    /// debugged.
    pub fn busy_threads(&self) -> Vec<usize> {
        if !self.is_any_busy() {
            return Vec::new();
        }
        let entries = self.entries();
        let busy = entries.iter().filter(|entry| entry.is_busy.load(Relaxed));
        busy.map(|entry| entry.script.thread).collect()
    }

    /// Returns the registered function that has run longest, and its start time; `None` if no
    /// function runs.
    pub fn oldest_function(&self) -> Option<(ScriptName, Instant)> {
        let entries = self.entries();
        let functions = entries.iter().filter(|entry| entry.script.kind == ScriptKind::Function);
        functions.min_by_key(|entry| entry.since).map(|entry| (entry.script.clone(), entry.since))
    }

    /// Returns the kind of the busy script that has run longest; `None` if no script is busy.
    pub fn busy_kind(&self) -> Option<ScriptKind> {
        let entries = self.entries();
        let busy = entries.iter().filter(|entry| entry.is_busy.load(Relaxed));
        busy.min_by_key(|entry| entry.since).map(|entry| entry.script.kind)
    }

    /// Returns the error for a request that a busy script prevents. If several scripts are busy,
    /// the oldest determines the error.
    #[cold]
    pub fn error(&self) -> CommandError {
        match self.busy_kind() {
            // If the busy script has just ended, it was most likely a script.
            Some(ScriptKind::Script) | None => CommandError::Busy,
            Some(ScriptKind::Function) => CommandError::Line(
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
            ),
        }
    }

    /// Requests the end of all busy scripts of this kind. Scripts that are not busy are not
    /// affected.
    pub fn kill(&self, kind: ScriptKind) -> Kill {
        let entries = self.entries();
        let mut found = Kill::NoneRuns;
        for entry in entries.iter().filter(|entry| entry.is_busy.load(Relaxed)) {
            if entry.script.kind == kind {
                if entry.has_written.load(Relaxed) {
                    found = if found == Kill::Requested { found } else { Kill::HasWritten };
                    continue;
                }
                entry.is_killed.store(true, Relaxed);
                found = Kill::Requested;
            } else if found == Kill::NoneRuns {
                found = Kill::OtherKind;
            }
        }
        found
    }
}

impl Script<'_> {
    /// Marks the script as busy if, at `now`, it has run for longer than `threshold`
    /// (`busy-reply-threshold`); never if `threshold` is `None`. Returns true if this call has
    /// marked it. The caller must then mark all locks that the script holds, or the gate (the
    /// keyspace's shared lock).
    pub fn exceeds(&self, threshold: Option<Duration>, now: Instant) -> bool {
        let too_long = threshold.is_some_and(|threshold| now - self.entry.since > threshold);
        let exceeds = too_long && !self.entry.is_busy.swap(true, Relaxed);
        if exceeds {
            self.all.busy.fetch_add(1, Relaxed);
        }
        exceeds
    }

    /// Logs a warning that the script has run for too long by `now`, as Redis does.
    #[cold]
    pub fn log(&self, now: Instant) {
        let ScriptName { kind, name, .. } = &self.entry.script;
        let kill = if *kind == ScriptKind::Script { "SCRIPT KILL" } else { "FUNCTION KILL" };
        tracing::warn!(
            "Slow script detected: still in execution after {} milliseconds. You can try killing the script \
             using the {kill} command. Script name is: {}.",
            (now - self.entry.since).as_millis(),
            String::from_utf8_lossy(name)
        );
    }

    /// Records that the script is about to run a command that writes, so it can no longer be
    /// killed. Returns false if the end of the script was already requested. The script must then
    /// end without writing.
    pub fn begin_writing(&self) -> bool {
        // Under the lock that `kill` takes, so that one of the two sees the other.
        let _entries = self.all.entries();
        let may_write = !self.is_killed();
        if may_write {
            self.entry.has_written.store(true, Relaxed);
        }
        may_write
    }

    /// Returns true if SCRIPT KILL or FUNCTION KILL has requested the end of the script.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.entry.is_killed.load(Relaxed)
    }
}

impl Drop for Script<'_> {
    fn drop(&mut self) {
        self.all.entries().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        if self.entry.is_busy.load(Relaxed) {
            self.all.busy.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: ScriptKind, thread: usize) -> ScriptName {
        ScriptName { kind, name: Box::from(&b"f"[..]), command: Vec::new(), thread }
    }

    #[test]
    fn a_script_is_busy_once_its_threshold_has_passed() {
        let (scripts, now) = (RunningScripts::default(), Instant::now());
        let threshold = Some(Duration::from_millis(5));
        let at = |ms| now + Duration::from_millis(ms);
        let script = scripts.begin(named(ScriptKind::Script, 0), now);
        assert!(!script.exceeds(threshold, at(5)) && !script.exceeds(None, at(1_000)));
        assert!(!scripts.is_any_busy());
        assert!(script.exceeds(threshold, at(6)) && scripts.is_any_busy());
        assert!(!script.exceeds(threshold, at(7)), "once is enough");
        drop(script);
        assert!(!scripts.is_any_busy() && scripts.busy_kind().is_none());
    }

    #[test]
    fn the_error_names_the_command_that_ends_the_oldest_busy_script() {
        let (scripts, now) = (RunningScripts::default(), Instant::now());
        let line = |scripts: &RunningScripts| String::from_utf8_lossy(&scripts.error().line()).into_owned();
        let function = scripts.begin(named(ScriptKind::Function, 0), now);
        let script = scripts.begin(named(ScriptKind::Script, 1), now + Duration::from_millis(1));
        let later = now + Duration::from_secs(1);
        assert!(script.exceeds(Some(Duration::ZERO), later) && line(&scripts).contains("SCRIPT KILL"));
        assert!(function.exceeds(Some(Duration::ZERO), later) && line(&scripts).contains("FUNCTION KILL"));
        assert_eq!(scripts.oldest_function().map(|(script, _)| script.thread), Some(0));
    }

    #[test]
    fn a_script_writes_or_is_ended_and_never_both() {
        let (scripts, now) = (RunningScripts::default(), Instant::now());
        let later = now + Duration::from_millis(1);
        let writer = scripts.begin(named(ScriptKind::Script, 0), now);
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::NoneRuns, "it is not busy");
        assert!(writer.exceeds(Some(Duration::ZERO), later) && writer.begin_writing());
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::HasWritten);
        assert!(!writer.is_killed() && writer.begin_writing());
        let reader = scripts.begin(named(ScriptKind::Script, 1), now);
        assert!(reader.exceeds(Some(Duration::ZERO), later));
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::Requested);
        assert!(reader.is_killed() && !reader.begin_writing());
        assert!(!writer.is_killed());
    }

    #[test]
    fn a_kill_reaches_scripts_of_its_kind_only() {
        let (scripts, now) = (RunningScripts::default(), Instant::now());
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::NoneRuns);
        let function = scripts.begin(named(ScriptKind::Function, 0), now);
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::NoneRuns);
        function.exceeds(Some(Duration::ZERO), now + Duration::from_millis(1));
        assert_eq!(scripts.kill(ScriptKind::Script), Kill::OtherKind);
        assert!(!function.is_killed());
        assert_eq!(scripts.kill(ScriptKind::Function), Kill::Requested);
        assert!(function.is_killed());
    }
}

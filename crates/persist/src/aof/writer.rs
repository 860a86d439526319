//! The writer of the change log to the end of an append-only file. It determines when the log is
//! written and synced, and which replies may be sent.
//!
//! ```text
//!   a merged part of the log ─► written at once ────────────────────► replies leave (everysec, no)
//!                          └► kept, while a sync is under way ─ written behind it ─►
//!                            └► kept ─ written and synced by one thread ─► replies leave (always)
//! ```
//! **`everysec`, `no`**: the merging thread writes; another thread syncs each second. Parts that
//! are merged during a sync are kept and written after it, because a write may wait in the kernel
//! for the sync. With `everysec` their replies are sent nevertheless, within [`LAG_MAX_MS`] and
//! [`LAG_BYTES_MAX`], as in Redis: a kill of the process may lose these changes. Beyond these
//! limits the replies wait, and so do further writes. With `no` the replies wait: only a new file
//! causes a sync.
//!
//! **`always`**: one thread writes and syncs all parts that were merged during its previous sync.
//!
//! **A new file** ([`Writer::turn_to`]) gets no bytes before the old one is complete and synced.
//! Only the last file can therefore be torn.
//!
//! A base file may hold all changes up to the start of a file of the log. Once it is in place, the
//! earlier files are not needed any more, even if some parts could not be written to them
//! ([`Writer::base_is_in`]).
//!
//! **Errors.** Parts that could not be written are kept and tried again each [`RETRY_MS`].
//! Meanwhile their replies wait and the server rejects writes. After a failed sync the content of
//! the disk is unknown. Under `always` all bytes since the last sync are cut off the file and
//! written again. Otherwise the file counts as damaged until the base is rewritten
//! ([`Writer::needs_rewrite`]).
//!
//! This module uses no thread and no clock: the work to do outside the lock is a [`Job`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use engine::log::merger::LogBatch;

use crate::commands::append_time_annotation;
use crate::folder::{LogFile, Trouble, Unwritten};

/// The time for which replies are sent although a sync keeps the changes that they show from being
/// written.
pub const LAG_MAX_MS: u64 = 2000;
/// The most bytes that may lag so.
pub const LAG_BYTES_MAX: usize = 16 << 20;
/// Between two syncs with `everysec`.
pub const SYNC_INTERVAL_MS: u64 = 1000;
/// Between two tries of what has failed.
pub const RETRY_MS: u64 = 1000;
/// Memory that an emptied buffer keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The times of syncs (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before a reply leaves.
    Always,
    /// Each second.
    EverySecond,
    /// At the system's choice.
    Never,
}

/// The choice to sync at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// As the policy says.
    Done,
    /// They wait for the end of a snapshot.
    Resting,
}

/// The choice to write times between the changes (`aof-timestamp-enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// They are.
    Written,
    /// They are not.
    Left,
}

/// A moment, as the driver's clock shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds of a clock that is never set.
    pub clock_ms: u64,
    /// Seconds of Unix time.
    pub unix_s: i64,
}

/// A file with what is to be appended to it.
struct Target {
    file: Arc<dyn LogFile>,
    /// Bytes that are in the file, those being written not counted.
    len_bytes: u64,
    /// Bytes of it that are synced.
    synced_bytes: u64,
    /// True if the file may hold more than `len_bytes`. The rest is cut off before anything is
    /// written.
    is_dirty: bool,
    /// The bytes that are kept for it.
    pending: Vec<u8>,
    /// The position behind what is kept.
    pending_position: u64,
}

struct State {
    policy: SyncPolicy,
    syncs: Syncs,
    times: Times,
    stamped_s: i64,
    /// The files; all but the last one get nothing new. Never empty.
    targets: VecDeque<Target>,
    /// The position behind the last job's bytes.
    job_position: u64,
    /// The job that is under way.
    working: Option<Working>,
    /// The position up to which all is written.
    written: u64,
    /// The position up to which all is synced.
    synced: u64,
    /// The position up to which replies may leave.
    confirmed: u64,
    /// The start of the last sync.
    sync_began_ms: u64,
    /// Since when what is merged is kept because of a sync.
    lags_since_ms: Option<u64>,
    /// True if replies wait because that is too long ago.
    is_delayed: bool,
    trouble: Option<Trouble>,
    retry_at_ms: u64,
    needs_rewrite: bool,
    figures: Figures,
}

/// The state of a job in progress.
#[derive(Clone, Copy)]
struct Working {
    len_bytes: usize,
    syncs: bool,
    began_ms: u64,
    /// True if its bytes are cut off again and written anew if it fails, since replies wait for
    /// the sync.
    undoes: bool,
    /// True if its file does not matter any more.
    is_obsolete: bool,
}

/// The figures of a writer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the present file, with those that are kept for it.
    pub len_bytes: u64,
    /// Bytes that are kept.
    pub kept_bytes: usize,
    /// The position up to which all is synced.
    pub synced_position: u64,
    /// The safe position as WAITAOF counts it: without syncs, written changes are safe.
    pub safe_position: u64,
    /// The number of times that replies had to wait because a sync took too long.
    pub delayed: u64,
    /// True while a sync is in progress.
    pub is_syncing: bool,
    /// Why nothing can be written at present.
    pub trouble: Option<Trouble>,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The position up to which replies may leave.
    pub confirmed: u64,
    /// True if there is a job now: [`Writer::next`] returns it.
    pub has_job: bool,
    /// Bytes that are kept.
    pub kept_bytes: usize,
    /// Units of the log whose replies wait for a job that is not under way.
    pub waiting_units: u64,
}

/// The work to do outside the lock, by one thread.
pub struct Job {
    file: Arc<dyn LogFile>,
    /// Cut the file to this length first.
    cut: Option<u64>,
    bytes: Vec<u8>,
    /// The position behind the bytes, or of what was written before.
    position: u64,
    syncs: bool,
    /// Units whose replies wait for it.
    units: u64,
}

/// The result of a [`Job`].
pub struct Done {
    job: Job,
    written: Result<(), Unwritten>,
    /// `None` where it did not come to that.
    synced: Option<Result<(), Trouble>>,
}

/// The next step of the thread that does the jobs.
pub enum Next {
    /// This.
    Job(Job),
    /// Nothing before this time.
    At(u64),
    /// Nothing until something is appended.
    Nothing,
}

impl Job {
    /// Units of the log whose replies wait for it.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Writes and syncs.
    pub fn run(self) -> Done {
        let cut = self.cut.map_or(Ok(()), |len_bytes| self.file.cut(len_bytes));
        let written = match cut {
            Err(trouble) => Err(Unwritten { written_bytes: 0, trouble }),
            Ok(()) if self.bytes.is_empty() => Ok(()),
            Ok(()) => self.file.append(&self.bytes),
        };
        let synced = (self.syncs && written.is_ok()).then(|| self.file.sync());
        Done { job: self, written, synced }
    }
}

/// See the module. Its lock is a leaf; a short write happens under it.
pub struct Writer {
    state: Mutex<State>,
    /// A job came to its end.
    idle: Condvar,
}

impl Writer {
    /// Creates a writer to a file of this length, all of it synced, which holds all changes up to
    /// `position`.
    pub fn new(file: Arc<dyn LogFile>, len_bytes: u64, policy: SyncPolicy, position: u64) -> Self {
        let target = Target::new(file, len_bytes, position);
        let state = State {
            policy,
            syncs: Syncs::Done,
            times: Times::Left,
            stamped_s: 0,
            targets: VecDeque::from([target]),
            job_position: position,
            working: None,
            written: position,
            synced: position,
            confirmed: position,
            sync_began_ms: 0,
            lags_since_ms: None,
            is_delayed: false,
            trouble: None,
            retry_at_ms: 0,
            needs_rewrite: false,
            figures: Figures::default(),
        };
        Self { state: Mutex::new(state), idle: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Takes the next part of the log. O(bytes).
    pub fn append(&self, batch: &LogBatch<'_>, now: Moment) -> Appended {
        self.state().append(batch, now)
    }

    /// Sets when the file is synced and whether times are written between the changes.
    pub fn set_up(&self, policy: SyncPolicy, times: Times) {
        let mut state = self.state();
        (state.policy, state.times) = (policy, times);
    }

    /// Sets whether syncs wait: while a snapshot is written, with `no-appendfsync-on-rewrite`.
    pub fn set_syncs(&self, syncs: Syncs) {
        self.state().syncs = syncs;
    }

    /// Appends to `file`, which is empty, from now on, once all before it is safe. Returns the
    /// length of the file before.
    pub fn turn_to(&self, file: Arc<dyn LogFile>) -> u64 {
        let mut state = self.state();
        let last = state.last();
        let position = last.pending_position;
        let len_bytes = state.last_len_bytes();
        state.targets.push_back(Target::new(file, 0, position));
        state.stamped_s = 0;
        len_bytes
    }

    /// Notes that a base is in place that holds all changes up to the start of `file`, and is
    /// synced. Bytes to be written to the files before it are dropped, and so are their errors.
    pub fn base_is_in(&self, file: &Arc<dyn LogFile>) {
        self.state().base_is_in(file);
    }

    /// Returns its present progress.
    pub fn appended(&self, now: Moment) -> Appended {
        self.state().appended(now)
    }

    /// Returns the next step, for the thread that takes it; [`Writer::done`] follows each job.
    pub fn next(&self, now: Moment) -> Next {
        self.state().next(now)
    }

    /// Notes what came of a job. Gives the position up to which replies may leave.
    pub fn done(&self, done: Done, now: Moment) -> Appended {
        let appended = self.state().done(done, now);
        self.idle.notify_all();
        appended
    }

    /// Writes all that is kept and syncs it, on this thread, after the job that is under way: at
    /// the end.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub fn finish(&self) -> Result<(), Trouble> {
        let state = self.idle.wait_while(self.state(), |state| state.working.is_some());
        let mut state = state.expect("nothing panics while it is locked");
        let result = state.finish();
        if let Err(trouble) = &result {
            // Who goes on all the same tries it again.
            state.trouble = Some(trouble.clone());
            state.retry_at_ms = 0;
        }
        result
    }

    /// Returns its figures. O(1).
    pub fn figures(&self) -> Figures {
        let state = self.state();
        Figures {
            len_bytes: state.last_len_bytes(),
            kept_bytes: state.kept_bytes(),
            synced_position: state.synced,
            safe_position: if state.policy == SyncPolicy::Never { state.written } else { state.synced },
            is_syncing: state.working.is_some_and(|working| working.syncs),
            trouble: state.trouble.clone(),
            ..state.figures.clone()
        }
    }

    /// Returns true once if written changes may be lost because a sync has failed.
    pub fn needs_rewrite(&self) -> bool {
        std::mem::take(&mut self.state().needs_rewrite)
    }
}

impl Target {
    fn new(file: Arc<dyn LogFile>, len_bytes: u64, position: u64) -> Self {
        Self {
            file,
            len_bytes,
            synced_bytes: len_bytes,
            is_dirty: false,
            pending: Vec::new(),
            pending_position: position,
        }
    }
}

impl State {
    fn kept_bytes(&self) -> usize {
        self.targets.iter().map(|target| target.pending.len()).sum()
    }

    /// Returns the length of the last file with all bytes on their way to it.
    fn last_len_bytes(&self) -> u64 {
        let last = self.targets.back().expect("there is a file");
        let working = self.working.filter(|working| self.targets.len() == 1 && !working.is_obsolete);
        last.len_bytes + (last.pending.len() + working.map_or(0, |working| working.len_bytes)) as u64
    }

    fn last(&mut self) -> &mut Target {
        self.targets.back_mut().expect("there is a file")
    }

    fn append(&mut self, batch: &LogBatch<'_>, now: Moment) -> Appended {
        let stamp = self.stamp(now);
        let is_free = self.working.is_none()
            && self.trouble.is_none()
            && self.policy != SyncPolicy::Always
            && self.targets.len() == 1
            && self.targets[0].pending.len() <= KEPT_BYTES_MAX;
        let last = self.last();
        last.pending_position = batch.position;
        if !is_free {
            last.pending.extend_from_slice(&stamp);
            batch.text.pieces().for_each(|piece| last.pending.extend_from_slice(piece));
            self.confirm_lagging(batch.position, now);
        } else {
            // What was merged while a sync was under way.
            let kept = std::mem::take(&mut last.pending);
            let mut pieces = [&kept[..], &stamp[..]].into_iter().chain(batch.text.pieces());
            let failed = pieces.find_map(|piece| last.write(piece).err().map(|it| (it, piece)));
            match failed {
                None => {
                    self.written = batch.position;
                    self.confirmed = self.confirmed.max(batch.position);
                    self.lag_ends();
                }
                Some((Unwritten { written_bytes, trouble }, piece)) => {
                    last.pending.extend_from_slice(&piece[written_bytes..]);
                    pieces.for_each(|piece| last.pending.extend_from_slice(piece));
                    self.fail(trouble, now);
                }
            }
        }
        self.appended(now)
    }

    /// Finishes as [`Writer::finish`] describes.
    fn finish(&mut self) -> Result<(), Trouble> {
        loop {
            let is_last = self.targets.len() == 1;
            let front = self.targets.front_mut().expect("there is a file");
            if front.is_dirty {
                front.file.cut(front.len_bytes)?;
                front.is_dirty = false;
            }
            if !front.pending.is_empty() {
                let pending = std::mem::take(&mut front.pending);
                if let Err(Unwritten { written_bytes, trouble }) = front.file.append(&pending) {
                    front.len_bytes += written_bytes as u64;
                    front.pending = pending[written_bytes..].to_vec();
                    return Err(trouble);
                }
                front.len_bytes += pending.len() as u64;
            }
            let position = front.pending_position;
            self.written = position;
            if let Err(trouble) = front.file.sync() {
                self.needs_rewrite = true;
                return Err(trouble);
            }
            front.synced_bytes = front.len_bytes;
            self.synced = position;
            self.confirmed = self.confirmed.max(position);
            if is_last {
                return Ok(());
            }
            self.targets.pop_front();
        }
    }

    /// Notes a base as [`Writer::base_is_in`] describes.
    fn base_is_in(&mut self, file: &Arc<dyn LogFile>) {
        let is_it = |target: &Target| std::ptr::addr_eq(Arc::as_ptr(&target.file), Arc::as_ptr(file));
        let Some(at @ 1..) = self.targets.iter().position(is_it) else { return };
        let position = self.targets[at - 1].pending_position;
        self.targets.drain(..at);
        self.written = self.written.max(position);
        self.synced = self.synced.max(position);
        self.confirmed = self.confirmed.max(position);
        if let Some(working) = &mut self.working {
            working.is_obsolete = true;
        }
        // Nothing else was written to so far.
        self.trouble = None;
        self.needs_rewrite = false;
        if self.kept_bytes() == 0 {
            self.lag_ends();
        }
    }

    /// Returns the annotation with the time, if the second is a new one.
    fn stamp(&mut self, now: Moment) -> Vec<u8> {
        if self.times == Times::Left || self.stamped_s == now.unix_s {
            return Vec::new();
        }
        self.stamped_s = now.unix_s;
        let mut line = Vec::new();
        append_time_annotation(now.unix_s, &mut line);
        line
    }

    /// Lets replies leave ahead of what they show, if only a sync of `everysec` is in the way.
    fn confirm_lagging(&mut self, position: u64, now: Moment) {
        let awaits_sync = self.targets.len() > 1 || self.working.is_some_and(|working| working.syncs);
        if self.policy != SyncPolicy::EverySecond || self.trouble.is_some() || !awaits_sync {
            return;
        }
        let since_ms = *self.lags_since_ms.get_or_insert(now.clock_ms);
        let lags_long = now.clock_ms.saturating_sub(since_ms) >= LAG_MAX_MS;
        if !lags_long && self.kept_bytes() <= LAG_BYTES_MAX {
            self.confirmed = self.confirmed.max(position);
        } else if !std::mem::replace(&mut self.is_delayed, true) {
            self.figures.delayed += 1;
        }
    }

    /// Notes that nothing is kept any more.
    fn lag_ends(&mut self) {
        self.lags_since_ms = None;
        self.is_delayed = false;
    }

    fn appended(&mut self, now: Moment) -> Appended {
        let kept_bytes = self.kept_bytes();
        let may_try = self.trouble.is_none() || self.retry_at_ms <= now.clock_ms;
        let has_job = self.working.is_none() && may_try && (kept_bytes > 0 || self.targets.len() > 1);
        let appended = self.last().pending_position;
        let waiting_units = appended.saturating_sub(self.confirmed.max(self.job_position));
        Appended { confirmed: self.confirmed, has_job, kept_bytes, waiting_units }
    }

    fn fail(&mut self, trouble: Trouble, now: Moment) {
        self.trouble = Some(trouble);
        self.retry_at_ms = now.clock_ms + RETRY_MS;
    }

    fn next(&mut self, now: Moment) -> Next {
        if self.working.is_some() {
            return Next::Nothing;
        }
        if self.trouble.is_some() && now.clock_ms < self.retry_at_ms {
            return Next::At(self.retry_at_ms);
        }
        let is_over = self.targets.len() > 1;
        let front = self.targets.front_mut().expect("there is a file");
        let has_pending = !front.pending.is_empty();
        let is_behind = has_pending || front.synced_bytes < front.len_bytes;
        let syncs_rest = self.syncs == Syncs::Resting && !is_over;
        let syncs = match self.policy {
            _ if is_over || self.trouble.is_some() => true,
            _ if syncs_rest => false,
            SyncPolicy::Always => is_behind,
            SyncPolicy::EverySecond => is_behind && now.clock_ms >= self.sync_began_ms + SYNC_INTERVAL_MS,
            SyncPolicy::Never => false,
        };
        // Replies were to wait for a sync, and the options have changed: an empty job lets them go.
        let is_strict = self.policy == SyncPolicy::Always && self.syncs == Syncs::Done;
        let holds_written = self.confirmed < front.pending_position && !is_strict;
        if !has_pending && !syncs && !holds_written {
            return match self.policy {
                SyncPolicy::EverySecond if is_behind && !syncs_rest => {
                    Next::At(self.sync_began_ms + SYNC_INTERVAL_MS)
                }
                _ => Next::Nothing,
            };
        }
        let (bytes, position) = match has_pending {
            true => (std::mem::take(&mut front.pending), front.pending_position),
            // All that was kept is written, if only with an error at its very end.
            false => (Vec::new(), front.pending_position),
        };
        let cut = front.is_dirty.then_some(front.len_bytes);
        if syncs {
            self.sync_began_ms = now.clock_ms;
        }
        let undoes = syncs && self.policy == SyncPolicy::Always;
        self.working = Some(Working {
            len_bytes: bytes.len(),
            syncs,
            began_ms: now.clock_ms,
            undoes,
            is_obsolete: false,
        });
        self.job_position = position;
        let units = position.saturating_sub(self.confirmed);
        Next::Job(Job { file: Arc::clone(&front.file), cut, bytes, position, syncs, units })
    }

    fn done(&mut self, done: Done, now: Moment) -> Appended {
        let Done { job, written, synced } = done;
        let Working { undoes, began_ms, is_obsolete, .. } = self.working.take().expect("a job was under way");
        if is_obsolete {
            return self.appended(now);
        }
        let Self { targets, .. } = self;
        let front = targets.front_mut().expect("there is a file");
        let was_synced = front.synced_bytes == front.len_bytes;
        let failed = match (written, synced) {
            (Err(Unwritten { trouble, .. }), _) if undoes => {
                front.put_back(&job.bytes);
                front.is_dirty = true;
                Some(trouble)
            }
            (Err(Unwritten { written_bytes, trouble }), _) => {
                front.len_bytes += written_bytes as u64;
                front.put_back(&job.bytes[written_bytes..]);
                Some(trouble)
            }
            (Ok(()), Some(Err(trouble))) if undoes && was_synced => {
                front.put_back(&job.bytes);
                front.is_dirty = true;
                Some(trouble)
            }
            (Ok(()), Some(Err(trouble))) => {
                front.len_bytes += job.bytes.len() as u64;
                front.is_dirty = false;
                self.written = self.written.max(job.position);
                self.needs_rewrite = true;
                Some(trouble)
            }
            (Ok(()), synced) => {
                front.len_bytes += job.bytes.len() as u64;
                front.is_dirty = false;
                self.written = self.written.max(job.position);
                if synced.is_some() {
                    front.synced_bytes = front.len_bytes;
                    self.synced = self.synced.max(job.position);
                }
                if front.pending.is_empty() && job.bytes.capacity() <= KEPT_BYTES_MAX {
                    front.pending = job.bytes;
                    front.pending.clear();
                }
                if targets.len() > 1 && targets[0].pending.is_empty() && synced.is_some() {
                    targets.pop_front();
                }
                None
            }
        };
        match failed {
            Some(trouble) => self.fail(trouble, now),
            None => {
                self.trouble = None;
                let safe = if self.policy == SyncPolicy::Always && self.syncs == Syncs::Done {
                    self.synced
                } else {
                    self.written
                };
                self.confirmed = self.confirmed.max(safe);
                if self.kept_bytes() == 0 {
                    self.lag_ends();
                } else if let Some(since_ms) = &mut self.lags_since_ms {
                    // What is kept now was merged during the job.
                    *since_ms = began_ms.max(*since_ms);
                }
            }
        }
        self.appended(now)
    }
}

impl Target {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Unwritten> {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.file.append(bytes);
        self.len_bytes += match &written {
            Ok(()) => bytes.len(),
            Err(unwritten) => unwritten.written_bytes,
        } as u64;
        written
    }

    /// Puts bytes ahead of those that are kept.
    fn put_back(&mut self, bytes: &[u8]) {
        self.pending.splice(0..0, bytes.iter().copied());
    }
}

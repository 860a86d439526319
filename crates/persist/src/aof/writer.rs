//! The writer that appends the change log to an append-only file. It decides when the log is
//! written and synced, and which replies may be sent.
//!
//! ```text
//!   a merged part of the log ─► written at once ─────────────────► replies are sent (everysec, no)
//!                          └► pending during a sync ─ written after it ─►
//!                            └► pending ─ written, synced by one thread ─► replies sent (`always`)
//! ```
//! **`everysec`, `no`**: the thread that merges the log writes; another thread syncs each second.
//! Parts that are merged during a sync are pending until it ends, and then written, because a write
//! may wait in the kernel for the sync. With `everysec` the replies to these changes are sent
//! nevertheless, within [`LAG_MAX_MS`] and [`LAG_BYTES_MAX`], as in Redis: a kill of the process
//! may lose the changes. Beyond these limits the replies wait, and further writes wait, too. With
//! `no` the replies wait: a sync happens only when a new file begins.
//!
//! **`always`**: one thread writes and syncs the parts. Parts that are merged during its sync are
//! written together after it.
//!
//! **A new file** ([`Writer::turn_to`]) gets no bytes before the old one is complete and synced. So
//! only the last file can be torn.
//!
//! A base file may hold all changes up to the start of one of the log's files. Once the base is in
//! place, the files before that one are not needed any more, even if some parts could not be
//! written to them ([`Writer::base_is_in`]).
//!
//! **Errors.** Parts that could not be written stay pending, and the write is tried again every
//! [`RETRY_MS`]. Meanwhile their replies wait and the server rejects writes. After a failed sync
//! the content of the disk is unknown. Under `always` the bytes of the job are cut off the file and
//! written again, if everything before them is synced. Otherwise the file counts as damaged until
//! the base is rewritten ([`Writer::needs_rewrite`]).
//!
//! A later sync of a damaged file may succeed although bytes are missing, because the kernel may
//! have dropped them at the failed sync. So nothing more counts as synced until the new base is in
//! place. Under `always`, replies then wait for this base, and the server rejects writes.
//!
//! This module uses no thread and no clock: the work to do outside the lock is a [`Job`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use engine::log::level::Released;
use engine::log::merger::LogBatch;
use engine::log::target::LogTarget;

use crate::commands::append_time_annotation;
use crate::folder::{FileError, LogFile, Unwritten};

/// The maximum time, in milliseconds, for which replies are sent while a sync delays the write of
/// their changes.
pub const LAG_MAX_MS: u64 = 2000;
/// The maximum number of pending bytes for which replies are sent while a sync delays the write.
pub const LAG_BYTES_MAX: usize = 16 << 20;
/// The time between two syncs with `everysec`, in milliseconds.
pub const SYNC_INTERVAL_MS: u64 = 1000;
/// The time between two attempts to write the append-only file after an error, in milliseconds.
pub const RETRY_MS: u64 = 1000;
/// The minimum length, in bytes, of a part of the change log that is written to the file directly.
/// Shorter parts are copied into the buffer first.
const OWN_WRITE_BYTES_MIN: usize = 16 << 10;
/// The maximum capacity, in bytes, of an empty buffer of pending bytes that is kept for reuse.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The policy for syncs of the append-only file to the disk (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// The append-only file is synced before the replies to its changes are sent.
    Always,
    /// The append-only file is synced once a second.
    EverySecond,
    /// The operating system decides when the append-only file is synced.
    Never,
}

/// The setting whether syncs of the append-only file take place or are suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Syncs of the append-only file take place according to the policy.
    Done,
    /// Syncs of the append-only file are suspended while a snapshot is written
    /// (`no-appendfsync-on-rewrite`).
    Resting,
}

/// The setting `aof-timestamp-enabled`: whether time annotations are written between the changes in
/// the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Time annotations are written to the append-only file.
    Written,
    /// Time annotations are not written to the append-only file.
    Left,
}

/// A moment, given by both the caller's monotonic clock and the Unix clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time of the caller's monotonic clock, in milliseconds.
    pub clock_ms: u64,
    /// The time of the Unix clock, in seconds.
    pub unix_s: i64,
}

/// One incremental file of the append-only file, and the bytes still to be appended to it.
struct Target {
    file: Arc<dyn LogFile>,
    /// The length of the file in bytes, without the bytes that a [`Job`] is writing at present.
    len_bytes: u64,
    /// The log position at the start of the file.
    start_position: u64,
    /// The number of bytes of the file that are synced.
    synced_bytes: u64,
    /// True if the file may be longer than `len_bytes` because a write failed. The bytes after
    /// `len_bytes` are cut off before the next write.
    is_dirty: bool,
    /// The pending bytes: merged from the change log and not yet written to the file.
    pending: Vec<u8>,
    /// The log position after the last change in the pending bytes.
    pending_position: u64,
}

struct State {
    policy: SyncPolicy,
    syncs: Syncs,
    times: Times,
    stamped_s: i64,
    /// The incremental files that are not complete, oldest first; only the last one gets new bytes.
    /// Never empty.
    targets: VecDeque<Target>,
    /// The log position after the last byte of the [`Job`] in progress or of the last job.
    job_position: u64,
    /// The [`Job`] that a thread performs at present; `None` if there is none.
    working: Option<Working>,
    /// The log position up to which all changes are written to the file.
    written: u64,
    /// The log position up to which all changes are synced. After a failed sync, [`Damage::synced`]
    /// counts.
    synced: u64,
    /// The written changes that failed syncs may have lost; `None` if there are none.
    damage: Option<Damage>,
    /// The log position up to which replies may be sent.
    confirmed: u64,
    /// The start of the last sync, in milliseconds of the monotonic clock.
    sync_began_ms: u64,
    /// The time since which merged bytes have been pending because of a sync, in milliseconds of
    /// the monotonic clock. `None` if none are.
    lags_since_ms: Option<u64>,
    /// True if replies wait because bytes have been pending for [`LAG_MAX_MS`] or are more than
    /// [`LAG_BYTES_MAX`].
    is_delayed: bool,
    trouble: Option<FileError>,
    retry_at_ms: u64,
    needs_rewrite: bool,
    figures: Figures,
}

/// The effect of failed syncs: the changes that were written to the file and may be lost.
struct Damage {
    /// The log position after the last change that may be lost.
    end: u64,
    /// The log position up to which all changes are synced in spite of the failed sync.
    synced: u64,
    trouble: FileError,
}

/// The state of a [`Job`] in progress, which a thread performs outside the lock.
#[derive(Clone, Copy)]
struct Working {
    len_bytes: usize,
    syncs: bool,
    began_ms: u64,
    /// True if replies to the job's changes wait for the job's sync. If the sync fails, the job's
    /// bytes are cut off the file and written again.
    undoes: bool,
    /// True if a new base file of the append-only file has made the job's file unnecessary.
    is_obsolete: bool,
}

/// The statistics of the writer of the append-only file, as INFO shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The length of the current incremental file in bytes, including pending bytes.
    pub len_bytes: u64,
    /// The number of bytes that are merged from the change log and not yet written to the file,
    /// including those of a [`Job`] in progress.
    pub kept_bytes: usize,
    /// The log position up to which all changes are synced.
    pub synced_position: u64,
    /// The log position that WAITAOF reports as synced. With the policy [`SyncPolicy::Never`],
    /// written changes count as synced.
    pub safe_position: u64,
    /// The number of times that replies had to wait because a sync took longer than [`LAG_MAX_MS`]
    /// or too many bytes were pending.
    pub delayed: u64,
    /// True while a sync of the file to the disk is in progress.
    pub is_syncing: bool,
    /// The current error; `None` if writing works. With the policy [`SyncPolicy::Always`], the
    /// error of a failed sync stays until a new base file has the changes that may be lost.
    pub trouble: Option<FileError>,
    /// True if written changes may be lost because a sync has failed. Only a new base file ends
    /// this.
    pub is_damaged: bool,
}

/// The state of the writer after a call: the log positions that replies may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The log position up to which replies may be sent if their client does not itself require a
    /// sync.
    pub confirmed: u64,
    /// The log position up to which all changes are synced. With the policy [`SyncPolicy::Never`],
    /// written changes count as synced. So the position may go back after a change of the policy.
    /// The change log keeps the highest position ever confirmed.
    pub safe: u64,
    /// True if [`Writer::next`] would return a job now.
    pub has_job: bool,
    /// The number of pending bytes: merged from the change log, not yet written to the file.
    pub kept_bytes: usize,
    /// The number of commands and transactions whose replies wait for a [`Job`] that has not begun.
    pub waiting_units: u64,
}

impl Appended {
    /// Returns the log positions up to which replies may be sent, one for each level of safety
    /// (written, synced).
    pub fn released(&self) -> Released {
        Released::new(self.confirmed, self.safe)
    }
}

/// A task for one thread, outside the lock: to cut, write or sync the append-only file.
pub struct Job {
    file: Arc<dyn LogFile>,
    /// The length in bytes to which the file is cut before the write; `None` if it is not cut.
    cut: Option<u64>,
    bytes: Vec<u8>,
    /// The log position after the bytes that the job writes.
    position: u64,
    syncs: bool,
    /// The number of commands and transactions whose replies wait for the job.
    units: u64,
}

/// The result of a [`Job`]: which of its writes and syncs succeeded.
pub struct Done {
    job: Job,
    written: Result<(), Unwritten>,
    /// The result of the sync; `None` if none took place.
    synced: Option<Result<(), FileError>>,
}

/// The next task of the thread that writes and syncs the append-only file outside the lock.
pub enum Next {
    /// The thread must perform this job (a write or sync of the append-only file).
    Job(Job),
    /// The thread sleeps until this time of the monotonic clock, in milliseconds.
    At(u64),
    /// The thread has nothing to write or sync and sleeps until changes are appended.
    Nothing,
}

impl Job {
    /// Returns the number of commands and transactions whose replies wait for the job.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Cuts, writes and syncs the append-only file, as the job requires; performs no step after one
    /// that failed.
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

/// The writer of one append-only file; see the module. No other lock is taken under its lock, but a
/// short write to the file may take place under it.
pub struct Writer {
    state: Mutex<State>,
    /// The condition that is signaled when a [`Job`] has ended.
    idle: Condvar,
}

impl Writer {
    /// Creates a writer that appends to a file of `len_bytes` bytes that are all synced. The file
    /// has all changes up to the log position `position`.
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
            damage: None,
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

    /// Appends the next records of the change log: writes them to the append-only file, or keeps
    /// them pending for a [`Job`]. Called by the thread that merges the threads' change logs.
    /// O(bytes).
    pub fn append(&self, batch: &LogBatch<'_>, now: Moment) -> Appended {
        self.state().append(batch, now)
    }

    /// Sets the sync policy and whether time annotations are written.
    pub fn set_up(&self, policy: SyncPolicy, times: Times) {
        let mut state = self.state();
        (state.policy, state.times) = (policy, times);
    }

    /// Sets whether syncs are suspended. The caller suspends them while a snapshot is written, if
    /// `no-appendfsync-on-rewrite` is `yes`.
    pub fn set_syncs(&self, syncs: Syncs) {
        self.state().syncs = syncs;
    }

    /// Makes the empty `file` the last incremental file, to which later changes are appended. It
    /// gets no bytes before the earlier files are complete and synced. Returns the final length of
    /// the previous file, in bytes.
    pub fn turn_to(&self, file: Arc<dyn LogFile>) -> u64 {
        let mut state = self.state();
        let last = state.last();
        let position = last.pending_position;
        let len_bytes = state.last_len_bytes();
        state.targets.push_back(Target::new(file, 0, position));
        state.stamped_s = 0;
        len_bytes
    }

    /// Records that a synced base file with all changes up to the start of `file` is in place.
    /// Bytes still to be written to earlier files are dropped, and their errors and damage are
    /// cleared.
    pub fn base_is_in(&self, file: &Arc<dyn LogFile>) {
        self.state().base_is_in(file);
    }

    /// Returns the log positions and sizes that [`append`](Self::append) returns, without appending
    /// any changes.
    pub fn appended(&self, now: Moment) -> Appended {
        self.state().appended(now)
    }

    /// Returns the next step for the thread that performs the jobs (writes and syncs). That thread
    /// must call [`Writer::done`] after each job.
    pub fn next(&self, now: Moment) -> Next {
        self.state().next(now)
    }

    /// Records the result of a [`Job`] and returns the log positions up to which replies may be
    /// sent now.
    pub fn done(&self, done: Done, now: Moment) -> Appended {
        let appended = self.state().done(done, now);
        self.idle.notify_all();
        appended
    }

    /// Waits for the [`Job`] in progress, then writes and syncs all pending bytes on the calling
    /// thread. Called when the server stops.
    ///
    /// # Errors
    /// If a write or sync fails, or an earlier one has failed and changes may be lost.
    pub fn finish(&self) -> Result<(), FileError> {
        let state = self.idle.wait_while(self.state(), |state| state.working.is_some());
        let mut state = state.expect("nothing panics while it is locked");
        let result = state.finish();
        if let Err(trouble) = &result {
            // If the server continues nevertheless, the writer tries again.
            state.trouble = Some(trouble.clone());
            state.retry_at_ms = 0;
        }
        // A sync that succeeds after a failed one proves nothing about the bytes before.
        let damage = state.damage.as_ref().map_or(Ok(()), |damage| Err(damage.trouble.clone()));
        result.and(damage)
    }

    /// Appends a last line to the append-only file and syncs it. Called after
    /// [`finish`](Self::finish) has succeeded. If the write fails, the file stays unchanged.
    ///
    /// # Errors
    /// The line could not be written, or changes still wait to be written before it.
    pub fn append_last_line(&self, line: &[u8]) -> Result<(), FileError> {
        let mut state = self.state();
        if state.kept_bytes() > 0 || state.working.is_some() || state.damage.is_some() {
            return Err(FileError("changes still have to be written before it".to_owned()));
        }
        let last = state.last();
        let written = last.file.append(line).map_err(|unwritten| unwritten.trouble);
        if let Err(trouble) = written.and_then(|()| last.file.sync()) {
            last.is_dirty = last.file.cut(last.len_bytes).is_err();
            return Err(trouble);
        }
        last.len_bytes += line.len() as u64;
        last.synced_bytes = last.len_bytes;
        Ok(())
    }

    /// Returns the statistics of the writer of the append-only file. O(1).
    pub fn figures(&self) -> Figures {
        let state = self.state();
        Figures {
            len_bytes: state.last_len_bytes(),
            kept_bytes: state.kept_bytes() + state.working.map_or(0, |working| working.len_bytes),
            synced_position: state.synced(),
            safe_position: state.safe(),
            is_syncing: state.working.is_some_and(|working| working.syncs),
            trouble: state.trouble().cloned(),
            is_damaged: state.damage.is_some(),
            ..state.figures.clone()
        }
    }

    /// Returns true if a sync has failed and written changes may be lost. Returns true only once
    /// for a failed sync; [`Figures::is_damaged`] stays true until a new base file is in place.
    pub fn needs_rewrite(&self) -> bool {
        std::mem::take(&mut self.state().needs_rewrite)
    }
}

impl Target {
    fn new(file: Arc<dyn LogFile>, len_bytes: u64, position: u64) -> Self {
        Self {
            file,
            len_bytes,
            start_position: position,
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

    /// Returns the length, in bytes, that the last incremental file will have when all pending
    /// bytes are written.
    fn last_len_bytes(&self) -> u64 {
        let last = self.targets.back().expect("there is a file");
        let working = self.working.filter(|working| self.targets.len() == 1 && !working.is_obsolete);
        last.len_bytes + (last.pending.len() + working.map_or(0, |working| working.len_bytes)) as u64
    }

    fn last(&mut self) -> &mut Target {
        self.targets.back_mut().expect("there is a file")
    }

    /// Returns the log position up to which all changes are synced to the disk.
    fn synced(&self) -> u64 {
        self.damage.as_ref().map_or(self.synced, |damage| damage.synced)
    }

    /// Returns the log position up to which changes count as synced: with the policy
    /// [`SyncPolicy::Never`], written ones do.
    fn safe(&self) -> u64 {
        if self.policy == SyncPolicy::Never { self.written } else { self.synced() }
    }

    /// Returns true if replies must wait for a sync: policy [`SyncPolicy::Always`], syncs not
    /// suspended.
    fn is_strict(&self) -> bool {
        self.policy == SyncPolicy::Always && self.syncs == Syncs::Done
    }

    /// Returns the error of a write or sync because of which replies wait; `None` if there is none.
    fn trouble(&self) -> Option<&FileError> {
        let damage = self.damage.as_ref().filter(|_| self.is_strict());
        self.trouble.as_ref().or(damage.map(|damage| &damage.trouble))
    }

    /// Records that a sync of written changes up to the log position `end` has failed.
    fn damage(&mut self, end: u64, trouble: &FileError) {
        let synced = self.synced();
        self.damage = Some(Damage { end, synced, trouble: trouble.clone() });
        self.needs_rewrite = true;
    }

    fn append(&mut self, batch: &LogBatch<'_>, now: Moment) -> Appended {
        if !batch.has_bytes_for(LogTarget::File) {
            // All records of the batch are for replicas.
            self.last().pending_position = batch.position;
            self.pass_over_others();
            self.confirm_lagging(batch.position, now);
            return self.appended(now);
        }
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
            batch.for_each_part(LogTarget::File, |part| last.pending.extend_from_slice(part));
            self.confirm_lagging(batch.position, now);
        } else {
            let mut gather = Gather::new(last);
            gather.add(&stamp);
            batch.for_each_part(LogTarget::File, |part| gather.add(part));
            match gather.end() {
                None => {
                    self.written = batch.position;
                    self.confirmed = self.confirmed.max(batch.position);
                    self.lag_ends();
                }
                Some(trouble) => self.fail(trouble, now),
            }
        }
        self.appended(now)
    }

    /// Advances the log positions of written and synced changes past records that are only for
    /// replicas and not in the file. Does so only if nothing before them is pending.
    fn pass_over_others(&mut self) {
        let is_idle = self.working.is_none() && self.trouble.is_none() && self.targets.len() == 1;
        let last = self.last();
        let (position, is_synced) = (last.pending_position, last.synced_bytes == last.len_bytes);
        if !is_idle || !last.pending.is_empty() {
            return;
        }
        self.written = position;
        if is_synced {
            self.synced = position;
        }
        self.confirm_safe();
    }

    /// Advances the position up to which replies may be sent to all changes that are written, or
    /// synced if the policy requires a sync.
    fn confirm_safe(&mut self) {
        let safe = if self.is_strict() { self.synced() } else { self.written };
        self.confirmed = self.confirmed.max(safe);
    }

    /// Implements [`Writer::finish`], with the lock held.
    fn finish(&mut self) -> Result<(), FileError> {
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
                self.damage(position, &trouble);
                return Err(trouble);
            }
            front.synced_bytes = front.len_bytes;
            self.synced = position;
            self.confirm_safe();
            if is_last {
                return Ok(());
            }
            self.targets.pop_front();
        }
    }

    /// Implements [`Writer::base_is_in`], with the lock held.
    fn base_is_in(&mut self, file: &Arc<dyn LogFile>) {
        let is_it = |target: &Target| std::ptr::addr_eq(Arc::as_ptr(&target.file), Arc::as_ptr(file));
        let Some(at) = self.targets.iter().position(is_it) else { return };
        let position = self.targets[at].start_position;
        self.written = self.written.max(position);
        self.synced = self.synced.max(position);
        self.confirmed = self.confirmed.max(position);
        self.damage.take_if(|damage| damage.end <= position);
        if let Some(damage) = &mut self.damage {
            damage.synced = damage.synced.max(position);
        }
        self.needs_rewrite &= self.damage.is_some();
        if at > 0 {
            self.targets.drain(..at);
            if let Some(working) = &mut self.working {
                working.is_obsolete = true;
            }
            // All writes so far were to the earlier files.
            self.trouble = None;
        }
        self.confirm_safe();
        self.old_files_end();
    }

    /// Updates the log positions of written and synced changes. Called after the incremental files
    /// before the current one were completed or dropped.
    fn old_files_end(&mut self) {
        self.pass_over_others();
        if self.kept_bytes() == 0 {
            self.lag_ends();
        }
    }

    /// Returns a time annotation for `now`. Returns no bytes if annotations are off or the last one
    /// has the same second.
    fn stamp(&mut self, now: Moment) -> Vec<u8> {
        if self.times == Times::Left || self.stamped_s == now.unix_s {
            return Vec::new();
        }
        self.stamped_s = now.unix_s;
        let mut line = Vec::new();
        append_time_annotation(now.unix_s, &mut line);
        line
    }

    /// Advances the position up to which replies may be sent past changes that are not written yet,
    /// if only a sync of `everysec` delays their write.
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

    /// Records that no pending bytes wait any more for the end of a sync.
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
        Appended { confirmed: self.confirmed, safe: self.safe(), has_job, kept_bytes, waiting_units }
    }

    fn fail(&mut self, trouble: FileError, now: Moment) {
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
        let (is_over, is_strict) = (self.targets.len() > 1, self.is_strict());
        let front = self.targets.front_mut().expect("there is a file");
        let has_pending = !front.pending.is_empty();
        let is_behind = has_pending || front.synced_bytes < front.len_bytes;
        let syncs_rest = self.syncs == Syncs::Resting && !is_over;
        let syncs = match self.policy {
            _ if is_over => true,
            _ if syncs_rest => false,
            _ if self.trouble.is_some() => true,
            SyncPolicy::Always => is_behind,
            SyncPolicy::EverySecond => is_behind && now.clock_ms >= self.sync_began_ms + SYNC_INTERVAL_MS,
            SyncPolicy::Never => false,
        };
        // If the options have changed, replies may still wait for a sync that is not required any
        // more. An empty job releases them. After an error, an empty job shows that writing works.
        let holds_written = self.confirmed < front.pending_position && !is_strict;
        if !has_pending && !syncs && !holds_written && self.trouble.is_none() {
            return match self.policy {
                SyncPolicy::EverySecond if is_behind && !syncs_rest => {
                    Next::At(self.sync_began_ms + SYNC_INTERVAL_MS)
                }
                _ => Next::Nothing,
            };
        }
        let (bytes, position) = match has_pending {
            true => (std::mem::take(&mut front.pending), front.pending_position),
            // All pending bytes are written, perhaps with an error reported after the last one.
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
            self.old_files_end();
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
                self.damage(job.position, &trouble);
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
                self.confirm_safe();
                self.pass_over_others();
                if self.kept_bytes() == 0 {
                    self.lag_ends();
                } else if let Some(since_ms) = &mut self.lags_since_ms {
                    // The bytes pending now were merged during the job.
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

    /// Appends `bytes` to the file if no earlier write has failed (`trouble` is `None`). Bytes that
    /// are not written become pending.
    #[inline]
    fn write_unless(&mut self, trouble: &mut Option<FileError>, bytes: &[u8]) {
        let mut written_bytes = 0;
        if trouble.is_none() {
            match self.write(bytes) {
                Ok(()) => return,
                Err(unwritten) => {
                    written_bytes = unwritten.written_bytes;
                    *trouble = Some(unwritten.trouble);
                }
            }
        }
        self.pending.extend_from_slice(&bytes[written_bytes..]);
    }

    /// Inserts bytes that could not be written before the pending ones.
    fn put_back(&mut self, bytes: &[u8]) {
        self.pending.splice(0..0, bytes.iter().copied());
    }
}

/// The parts of one batch of the change log that are written to the append-only file next. Records
/// that concern only replicas divide a batch into short parts, so these are collected and written
/// together. A single part is not copied.
struct Gather<'t, 'p> {
    target: &'t mut Target,
    /// The bytes that were already pending for the file, followed by copied parts of the batch.
    gathered: Vec<u8>,
    /// A single part of the batch that is not copied; empty if there are gathered bytes.
    single: &'p [u8],
    trouble: Option<FileError>,
}

impl<'t, 'p> Gather<'t, 'p> {
    /// Begins to collect the parts of a batch, with the bytes that were pending before the batch.
    fn new(target: &'t mut Target) -> Self {
        let gathered = std::mem::take(&mut target.pending);
        Self { target, gathered, single: &[], trouble: None }
    }

    #[inline]
    fn add(&mut self, part: &'p [u8]) {
        if self.gathered.is_empty() && self.single.is_empty() {
            self.single = part;
        } else {
            self.add_behind(part);
        }
    }

    /// Adds another part of the change log's batch after the parts added earlier.
    #[inline(never)]
    fn add_behind(&mut self, part: &'p [u8]) {
        if part.len().max(self.single.len()) >= OWN_WRITE_BYTES_MIN {
            self.write();
            self.single = part;
        } else {
            self.gathered.extend_from_slice(std::mem::take(&mut self.single));
            self.gathered.extend_from_slice(part);
        }
    }

    fn write(&mut self) {
        self.target.write_unless(&mut self.trouble, &self.gathered);
        self.gathered.clear();
        self.target.write_unless(&mut self.trouble, std::mem::take(&mut self.single));
    }

    /// Writes all collected bytes to the append-only file. Returns the error of a write, if there
    /// was one; bytes that are not written become pending.
    fn end(mut self) -> Option<FileError> {
        self.write();
        if self.trouble.is_none() && self.gathered.capacity() <= KEPT_BYTES_MAX {
            self.target.pending = self.gathered;
        }
        self.trouble
    }
}

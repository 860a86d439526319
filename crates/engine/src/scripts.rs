//! Scripts and functions that run at the moment, and what others are told of one that runs for too
//! long.
//!
//! Whoever runs a script registers it, and calls [`Script::exceeds`] from time to time. Once a
//! script has run for longer than `busy-reply-threshold` it is **busy**: its thread marks the locks
//! that it holds, or the gate ([`Locked::mark_busy`](keyspace::Locked::mark_busy),
//! [`SharedPass::mark_busy`](keyspace::SharedPass::mark_busy)). A thread that waits for one of
//! these gives up then. It has locked nothing and done nothing of the request, replies with
//! [`RunningScripts::error`], and goes on with its other clients. Below the threshold everybody
//! waits, as in Redis; so does who waits for something else that takes long.
//!
//! ```text
//!   begin ─► [ exceeds? ─► mark locks and gate busy ]* ─► drop        the script's thread
//!                               └─► lock, gate: give up ─► -BUSY      the others
//! ```
//! The list's lock is a leaf. A busy script is in the list as such before it marks anything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use commands::CommandError;

/// The kind of a running script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script: SCRIPT KILL ends it.
    Script,
    /// A function: FUNCTION KILL ends it.
    Function,
}

/// The identity of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptName {
    /// Script or function.
    pub kind: ScriptKind,
    /// Its name: a digest, or a function's name.
    pub name: Box<[u8]>,
    /// The words of the command that runs it.
    pub command: Vec<Box<[u8]>>,
    /// The I/O thread that runs it.
    pub thread: usize,
}

/// A script in the list.
struct Entry {
    script: ScriptName,
    since: Instant,
    is_busy: AtomicBool,
    is_killed: AtomicBool,
    has_written: AtomicBool,
}

/// All that run now: one for each I/O thread at most.
#[derive(Default)]
pub struct RunningScripts {
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Of these the busy ones: looked at once a turn.
    busy: AtomicUsize,
    /// Scripts may run all commands, for tests.
    allows_all: AtomicBool,
}

/// The outcome of a request to end scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// They will end.
    Requested,
    /// They have written, and are not ended half-way.
    HasWritten,
    /// None of this kind runs, but a busy one of the other kind does.
    OtherKind,
    /// None runs.
    NoneRuns,
}

/// A script that runs; it has ended when this is dropped.
pub struct Script<'a> {
    all: &'a RunningScripts,
    entry: Arc<Entry>,
}

impl RunningScripts {
    fn entries(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.entries.lock().expect("nothing panics while the scripts are locked")
    }

    /// Begins a script at `now` of the engine's clock.
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

    /// Returns true if a script has run for too long. A hint: it may have ended, or have become
    /// busy.
    #[inline]
    pub fn is_any_busy(&self) -> bool {
        self.busy.load(Relaxed) > 0
    }

    /// Has scripts run all commands: for tests.
    pub fn allow_all(&self) {
        self.allows_all.store(true, Relaxed);
    }

    /// Has scripts run the commands that they may.
    pub fn allow_usual(&self) {
        self.allows_all.store(false, Relaxed);
    }

    /// Returns true if scripts may run all commands.
    pub fn allows_all(&self) -> bool {
        self.allows_all.load(Relaxed)
    }

    /// Lists the threads that busy scripts run on.
    pub fn busy_threads(&self) -> Vec<usize> {
        if !self.is_any_busy() {
            return Vec::new();
        }
        let entries = self.entries();
        let busy = entries.iter().filter(|entry| entry.is_busy.load(Relaxed));
        busy.map(|entry| entry.script.thread).collect()
    }

    /// Returns the function that has run longest, and its start.
    pub fn oldest_function(&self) -> Option<(ScriptName, Instant)> {
        let entries = self.entries();
        let functions = entries.iter().filter(|entry| entry.script.kind == ScriptKind::Function);
        functions.min_by_key(|entry| entry.since).map(|entry| (entry.script.clone(), entry.since))
    }

    /// Returns the kind of the busy script that has run longest.
    pub fn busy_kind(&self) -> Option<ScriptKind> {
        let entries = self.entries();
        let busy = entries.iter().filter(|entry| entry.is_busy.load(Relaxed));
        busy.min_by_key(|entry| entry.since).map(|entry| entry.script.kind)
    }

    /// Returns the reply to a request that a busy script keeps from running. If several are busy,
    /// the oldest is named.
    #[cold]
    pub fn error(&self) -> CommandError {
        match self.busy_kind() {
            // One that has ended at this moment was most likely a script.
            Some(ScriptKind::Script) | None => CommandError::Busy,
            Some(ScriptKind::Function) => CommandError::Line(
                "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
            ),
        }
    }

    /// Asks all busy scripts of this kind to end. For whoever asks, others have ended or not begun.
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
    /// Returns true once when it becomes busy: when it has run for longer than `threshold`; never
    /// without one. The caller marks all that the script holds.
    pub fn exceeds(&self, threshold: Option<Duration>, now: Instant) -> bool {
        let too_long = threshold.is_some_and(|threshold| now - self.entry.since > threshold);
        let exceeds = too_long && !self.entry.is_busy.swap(true, Relaxed);
        if exceeds {
            self.all.busy.fetch_add(1, Relaxed);
        }
        exceeds
    }

    /// Logs that it has run for too long by `now`, as Redis does.
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

    /// Notes that it is about to run a command that writes: it cannot be killed any more. Returns
    /// false if its end was requested already: it must end without writing.
    pub fn begin_writing(&self) -> bool {
        // Under the lock of whoever asks for its end: one of both sees the other.
        let _entries = self.all.entries();
        let may_write = !self.is_killed();
        if may_write {
            self.entry.has_written.store(true, Relaxed);
        }
        may_write
    }

    /// Returns true if its end was requested.
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

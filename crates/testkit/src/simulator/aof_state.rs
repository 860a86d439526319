//! The state of the append-only file during one life, a run of the server process: its options,
//! files and promises. See [`aof`](super::aof).

use std::sync::{Arc, Mutex, MutexGuard};

use engine::log::ChangeLog;
use engine::log::level::Level;
use engine::log::merger::ReaderId;
use persist::aof::files::Files;
use persist::aof::writer::{SyncPolicy, Syncs, Times, Writer};

use super::disk::Disk;
use super::scenario::AppendOnly;
use crate::Rng;
use crate::disk::{Fault, Plan, SimulatedFolder};

/// A promise: the minimum number of bytes of the tape, the record of all changes, that must survive
/// a crash. It holds for crashes from one operation of the disk on, until the next promise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    /// The number of operations of the disk before the promise was made.
    pub operations: u64,
    /// The number of bytes of the tape (the record of all changes) that must survive a kill of the
    /// process.
    pub killed: usize,
    /// The number of bytes of the tape (the record of all changes) that must survive a power
    /// failure.
    pub powerless: usize,
    /// True if a sync of the append-only file has failed and no new base was written since. The
    /// content of the disk is unknown until then.
    pub is_damaged: bool,
}

/// The writer of the append-only file, and the id of the reader through which it receives the
/// change log.
#[derive(Clone)]
pub(super) struct Active {
    pub writer: Arc<Writer>,
    pub reader: ReaderId,
}

/// The state of the append-only file that the lock of an [`Aof`] protects.
pub(super) struct State {
    pub files: Option<Files>,
    pub active: Option<Active>,
    /// True while the option `appendonly` of the simulated server is `yes`.
    pub is_wanted: bool,
    /// True if the thread that saves must rewrite the append-only file as soon as possible.
    pub is_scheduled: bool,
    /// True while the thread of the append-only file runs a job of the writer: a write or a sync.
    pub is_working: bool,
    /// True if a sync has failed since the moment whose data the last base of the append-only file
    /// holds. It may have been a sync of the file that receives the changes after this base.
    pub is_damaged_since_point: bool,
    pub policy: SyncPolicy,
    pub syncs: Syncs,
    pub times: Times,
    /// The log position at the last change of `appendfsync`. Replies to changes up to this position
    /// may have been sent under the earlier policy.
    pub policy_since: u64,
    pub promises: Vec<Promise>,
}

/// The append-only file of one life (a run of the server process). No other lock is taken under its
/// lock, and the lock is not a yield point.
pub(super) struct Aof {
    pub folder: SimulatedFolder,
    pub options: AppendOnly,
    state: Mutex<State>,
}

impl Aof {
    /// Creates an append-only file with `appendonly yes`, in the folder that a crash left. `first`
    /// states the bytes that the files in the folder hold.
    pub fn new(options: AppendOnly, folder: SimulatedFolder, first: Promise) -> Self {
        let state = State {
            files: None,
            active: None,
            is_wanted: true,
            is_scheduled: false,
            is_working: false,
            is_damaged_since_point: false,
            policy: options.policy,
            syncs: Syncs::Done,
            times: options.times,
            policy_since: 0,
            promises: vec![first],
        };
        Self { folder, options, state: Mutex::new(state) }
    }

    /// Locks the state of the append-only file, to read or change it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Returns all promises of bytes that must survive a crash ([`Promise`]), oldest first.
    pub fn promises(&self) -> Vec<Promise> {
        self.state().promises.clone()
    }

    /// Records a new promise of bytes that must survive a crash, from the next disk operation on: a
    /// copy of the last promise, modified by `change`.
    pub fn promise(&self, change: impl FnOnce(&mut Promise)) {
        let (operations, mut state) = (self.folder.operations(), self.state());
        let mut promise = *state.promises.last().expect("there is one");
        promise.operations = operations;
        change(&mut promise);
        state.promises.push(promise);
    }

    /// Returns true if a kill of the process at this moment must not lose the effect of any reply
    /// that was sent.
    pub fn survives_kill(&self) -> bool {
        let state = self.state();
        let Some(Active { writer, .. }) = &state.active else { return false };
        // `everysec` sends replies while their changes still wait for a sync.
        let is_idle = writer.figures().kept_bytes == 0 && !state.is_working;
        self.options.is_steady && (is_idle || state.policy != SyncPolicy::EverySecond)
    }

    /// Returns true if a power failure at this moment must not lose the effect of any reply that
    /// was sent.
    pub fn survives_power_failure(&self) -> bool {
        let state = self.state();
        let is_damaged = state.promises.last().is_some_and(|promise| promise.is_damaged);
        let is_strict = self.options.is_steady && state.policy == SyncPolicy::Always;
        state.active.is_some() && is_strict && !is_damaged
    }

    /// Records that the changes up to log position `position`, which a sent reply shows, must
    /// survive a crash. The policy decides if they must survive a kill or also a power failure.
    pub fn note_sent(&self, recorded_stream: &Disk, position: u64) {
        if position == 0 {
            return;
        }
        let (is_written, is_synced) = {
            let state = self.state();
            let Some(Active { writer, .. }) = &state.active else { return };
            let is_idle = writer.figures().kept_bytes == 0 && !state.is_working;
            let is_strict = state.policy == SyncPolicy::Always && state.syncs == Syncs::Done;
            // `everysec` sends replies while their changes still wait for a sync.
            let is_lax = self.options.policy == SyncPolicy::EverySecond || !self.options.is_steady;
            (is_idle || !is_lax, is_strict && position > state.policy_since)
        };
        let end = recorded_stream.end_of(position);
        self.promise(|promise| {
            if is_written {
                promise.killed = promise.killed.max(end);
            }
            if is_synced {
                promise.powerless = promise.powerless.max(end);
            }
        });
    }

    /// Returns true if the append-only file lacks changes or a rewrite is due. Both need more time
    /// or a disk that works.
    pub fn is_behind(&self, log: &ChangeLog) -> bool {
        if log.released(Level::Written) < log.drawn() {
            return true;
        }
        let state = self.state();
        let is_behind = |active: &Active| {
            let figures = active.writer.figures();
            figures.trouble.is_some() || figures.kept_bytes > 0
        };
        state.is_scheduled
            || (state.is_wanted && state.active.is_none())
            || state.active.as_ref().is_some_and(is_behind)
    }

    /// Describes the state of the append-only file, for the failure message of a file that does not
    /// recover.
    pub fn described(&self, log: &ChangeLog) -> String {
        let positions = [log.progress().position, log.released(Level::Written), log.drawn()];
        let state = self.state();
        let figures = state.active.as_ref().map(|active| active.writer.figures());
        let State { is_wanted, is_scheduled, is_working, policy, syncs, .. } = &*state;
        format!(
            "{figures:?}, wanted {is_wanted}, scheduled {is_scheduled}, working {is_working}, {policy:?}, {syncs:?}, \
             merged, released and drawn {positions:?}"
        )
    }

    /// Plans random failures of the append-only file's disk, or ends the planned ones. Called by
    /// the network, which drives all events outside the engine.
    pub fn plan_faults(&self, rng: &mut Rng) {
        let at = self.folder.operations() + rng.below(8) as u64;
        let fault = *rng.pick(&[Fault::NoSpace, Fault::Io]);
        let chance = Plan::Chance(1 + rng.below(200));
        let plans = [Plan::Once(at, fault), Plan::From(at, fault), chance, Plan::Never];
        self.folder.plan(*rng.pick(&plans));
    }

    /// Sets the options of a new writer of the append-only file, such as `appendfsync`, to their
    /// present values.
    pub fn set_up(&self, writer: &Writer) {
        let state = self.state();
        writer.set_up(state.policy, state.times);
        writer.set_syncs(state.syncs);
    }
}

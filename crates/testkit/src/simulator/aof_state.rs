//! The state of the append-only file of a life: its options, its files, its promises. See
//! [`aof`](super::aof).

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

/// A promise: the bytes of the tape that a crash at or after an operation of the disk must leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    /// The number of operations of the disk before the promise.
    pub operations: u64,
    /// The length of the tape after a kill of the process, in bytes.
    pub killed: usize,
    /// The length of the tape after a power failure, in bytes.
    pub powerless: usize,
    /// True if a sync has failed and there was no new base since: then the content of the disk is
    /// unknown.
    pub is_damaged: bool,
}

/// The writer of the append-only file, and the id of the reader through which it receives the
/// change log.
#[derive(Clone)]
pub(super) struct Active {
    pub writer: Arc<Writer>,
    pub reader: ReaderId,
}

/// The state of an [`Aof`].
pub(super) struct State {
    pub files: Option<Files>,
    pub active: Option<Active>,
    /// True while the option `appendonly` is `yes`.
    pub is_wanted: bool,
    /// True if a rewrite begins as soon as possible.
    pub is_scheduled: bool,
    /// True while the thread of the append-only file runs a job of the writer: a write or a sync.
    pub is_working: bool,
    /// True if a sync has failed since the point of the last base. The failed sync may be that of
    /// the file that follows this base.
    pub is_damaged_since_point: bool,
    pub policy: SyncPolicy,
    pub syncs: Syncs,
    pub times: Times,
    /// The log position up to which replies may have been sent under another policy.
    pub policy_since: u64,
    pub promises: Vec<Promise>,
}

/// The append-only file of a life. Its lock is a leaf and not a yield point.
pub(super) struct Aof {
    pub folder: SimulatedFolder,
    pub options: AppendOnly,
    state: Mutex<State>,
}

impl Aof {
    /// Creates an append-only file that is on, in a folder as a crash left it. `first` is the
    /// promise that the folder fulfills.
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

    /// Locks the state, to read or change it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Returns all promises, in order.
    pub fn promises(&self) -> Vec<Promise> {
        self.state().promises.clone()
    }

    /// Records a promise: the last one, modified by `change`.
    pub fn promise(&self, change: impl FnOnce(&mut Promise)) {
        let (operations, mut state) = (self.folder.operations(), self.state());
        let mut promise = *state.promises.last().expect("there is one");
        promise.operations = operations;
        change(&mut promise);
        state.promises.push(promise);
    }

    /// Returns true if a kill of the process now must preserve the effects of all replies that were
    /// sent.
    pub fn survives_kill(&self) -> bool {
        let state = self.state();
        let Some(Active { writer, .. }) = &state.active else { return false };
        // `everysec` sends replies while their changes still wait for a sync.
        let is_idle = writer.figures().kept_bytes == 0 && !state.is_working;
        self.options.is_steady && (is_idle || state.policy != SyncPolicy::EverySecond)
    }

    /// Returns true if a power failure now must preserve the effects of all replies that were sent.
    pub fn survives_power_failure(&self) -> bool {
        let state = self.state();
        let is_damaged = state.promises.last().is_some_and(|promise| promise.is_damaged);
        let is_strict = self.options.is_steady && state.policy == SyncPolicy::Always;
        state.active.is_some() && is_strict && !is_damaged
    }

    /// Records that a reply was sent that shows changes up to `position`.
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

    /// Returns true if work is pending that needs time or a working disk to complete.
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

    /// Describes the state of an append-only file that does not recover.
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

    /// Plans failures of the disk, or ends them. Called by the network.
    pub fn plan_faults(&self, rng: &mut Rng) {
        let at = self.folder.operations() + rng.below(8) as u64;
        let fault = *rng.pick(&[Fault::NoSpace, Fault::Io]);
        let chance = Plan::Chance(1 + rng.below(200));
        let plans = [Plan::Once(at, fault), Plan::From(at, fault), chance, Plan::Never];
        self.folder.plan(*rng.pick(&plans));
    }

    /// Sets a writer's policies to the options.
    pub fn set_up(&self, writer: &Writer) {
        let state = self.state();
        writer.set_up(state.policy, state.times);
        writer.set_syncs(state.syncs);
    }
}

//! What is known of the append-only file of a life: its options, its files, what was promised. See
//! [`aof`](super::aof).

use std::sync::{Arc, Mutex, MutexGuard};

use engine::log::ChangeLog;
use engine::log::merger::ReaderId;
use persist::aof::files::Files;
use persist::aof::writer::{SyncPolicy, Syncs, Times, Writer};

use super::disk::Disk;
use super::scenario::AppendOnly;
use crate::Rng;
use crate::disk::{Fault, Plan, SimulatedFolder};

/// What must be there after a crash from an operation on: so many bytes of the tape.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promise {
    /// Operations of the disk before it.
    pub operations: u64,
    /// Where the process is killed.
    pub killed: usize,
    /// Where the power fails.
    pub powerless: usize,
    /// A sync has failed, and there was no new base since: what the disk holds is unknown.
    pub is_damaged: bool,
}

/// What changes are written with.
#[derive(Clone)]
pub(super) struct Active {
    pub writer: Arc<Writer>,
    pub reader: ReaderId,
}

/// See [`Aof`].
pub(super) struct State {
    pub files: Option<Files>,
    pub active: Option<Active>,
    /// Whether the option is on.
    pub is_wanted: bool,
    /// A rewrite begins as soon as it can.
    pub is_scheduled: bool,
    /// A job is under way.
    pub is_working: bool,
    /// A sync has failed since the point of the last base: maybe that of a file that follows it.
    pub is_damaged_since_point: bool,
    pub policy: SyncPolicy,
    pub syncs: Syncs,
    pub times: Times,
    /// Replies that show nothing behind this position may have left under another policy.
    pub policy_since: u64,
    pub promises: Vec<Promise>,
}

/// The append-only file of a life. Its lock is no yield point and a leaf.
pub(super) struct Aof {
    pub folder: SimulatedFolder,
    pub options: AppendOnly,
    state: Mutex<State>,
}

impl Aof {
    /// One that is on, in a folder as a crash left it. `first` is what that must hold.
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

    /// What is known, to read or change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// What was promised, in order.
    pub fn promises(&self) -> Vec<Promise> {
        self.state().promises.clone()
    }

    /// Notes a promise that differs from the last as `change` says.
    pub fn promise(&self, change: impl FnOnce(&mut Promise)) {
        let (operations, mut state) = (self.folder.operations(), self.state());
        let mut promise = *state.promises.last().expect("there is one");
        promise.operations = operations;
        change(&mut promise);
        state.promises.push(promise);
    }

    /// Whether a kill of the process now must leave all that clients were told.
    pub fn survives_kill(&self) -> bool {
        let state = self.state();
        let Some(Active { writer, .. }) = &state.active else { return false };
        // `everysec` lets replies leave while what they show waits for a sync.
        let is_idle = writer.figures().kept_bytes == 0 && !state.is_working;
        self.options.is_steady && (is_idle || state.policy != SyncPolicy::EverySecond)
    }

    /// The same of a failure of the power.
    pub fn survives_power_failure(&self) -> bool {
        let state = self.state();
        let is_damaged = state.promises.last().is_some_and(|promise| promise.is_damaged);
        let is_strict = self.options.is_steady && state.policy == SyncPolicy::Always;
        state.active.is_some() && is_strict && !is_damaged
    }

    /// A reply has left that shows changes up to `position`.
    pub fn note_sent(&self, tape: &Disk, position: u64) {
        if position == 0 {
            return;
        }
        let (is_written, is_synced) = {
            let state = self.state();
            let Some(Active { writer, .. }) = &state.active else { return };
            let is_idle = writer.figures().kept_bytes == 0 && !state.is_working;
            let is_strict = state.policy == SyncPolicy::Always && state.syncs == Syncs::Done;
            // `everysec` lets replies leave while what they show waits for a sync.
            let is_lax = self.options.policy == SyncPolicy::EverySecond || !self.options.is_steady;
            (is_idle || !is_lax, is_strict && position > state.policy_since)
        };
        let end = tape.end_of(position);
        self.promise(|promise| {
            if is_written {
                promise.killed = promise.killed.max(end);
            }
            if is_synced {
                promise.powerless = promise.powerless.max(end);
            }
        });
    }

    /// Whether something waits that only time, or a disk that works, brings to its end.
    pub fn is_behind(&self, log: &ChangeLog) -> bool {
        if log.released() < log.drawn() {
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

    /// What there is to say of one that does not recover.
    pub fn described(&self, log: &ChangeLog) -> String {
        let positions = [log.progress().position, log.released(), log.drawn()];
        let state = self.state();
        let figures = state.active.as_ref().map(|active| active.writer.figures());
        let State { is_wanted, is_scheduled, is_working, policy, syncs, .. } = &*state;
        format!(
            "{figures:?}, wanted {is_wanted}, scheduled {is_scheduled}, working {is_working}, {policy:?}, {syncs:?}, \
             merged, released and drawn {positions:?}"
        )
    }

    /// Network: plans that the disk fails, or that it works again.
    pub fn plan_faults(&self, rng: &mut Rng) {
        let at = self.folder.operations() + rng.below(8) as u64;
        let fault = *rng.pick(&[Fault::NoSpace, Fault::Io]);
        let chance = Plan::Chance(1 + rng.below(200));
        let plans = [Plan::Once(at, fault), Plan::From(at, fault), chance, Plan::Never];
        self.folder.plan(*rng.pick(&plans));
    }

    /// Has a writer do as the options say.
    pub fn set_up(&self, writer: &Writer) {
        let state = self.state();
        writer.set_up(state.policy, state.times);
        writer.set_syncs(state.syncs);
    }
}

//! The state of the saves of a run: see [`saver`](super::saver).

use std::sync::{Arc, Mutex, MutexGuard};

use persist::folder::KnownFiles;
use persist::save::Save;

use crate::contents::Contents;
use crate::disk::{Plan, SimulatedFolder};

/// The probability that an operation of the disk fails, in thousandths, in a run with failures.
const FAILING: usize = 30;

/// The required content of a save.
pub(super) struct Point {
    /// The keyspace at the save's point, the moment at which its snapshot begins.
    pub contents: Contents,
    /// The length of the change log's stream up to the save's point in bytes, if there is a log.
    pub log_len_bytes: Option<usize>,
    /// The number of operations of the disk when the save was reported as successful; `None`
    /// before.
    pub reported_at: Option<u64>,
}

/// The state of [`Saves`].
pub(super) struct State {
    /// The folder of the snapshots.
    pub folder: SimulatedFolder,
    /// The points of the saves by number.
    pub points: Vec<Point>,
    /// The save in progress.
    pub current: Option<Arc<Save>>,
}

/// The saves of a run. The lock is a leaf and not a yield point.
pub(super) struct Saves {
    state: Mutex<State>,
    /// The files that saves may replace.
    pub known: KnownFiles,
}

impl Saves {
    /// Creates the state without saves; `seed` determines the disk.
    pub fn new(seed: u64) -> Self {
        let mut folder = SimulatedFolder::new(seed);
        folder.plan(if seed.is_multiple_of(3) { Plan::Chance(FAILING) } else { Plan::Never });
        folder.note_moments();
        let state = Mutex::new(State { folder, points: Vec::new(), current: None });
        Self { state, known: KnownFiles::default() }
    }

    /// Locks the state, to read or change it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Cancels the save in progress. Called by the network.
    pub fn cancel(&self, engine: &engine::Shared) {
        let current = self.state().current.clone();
        if let Some(save) = current {
            save.abandon(engine);
        }
    }
}

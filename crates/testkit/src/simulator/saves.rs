//! The state of a run's snapshots and the required content of each: see [`saver`](super::saver).

use std::sync::{Arc, Mutex, MutexGuard};

use persist::folder::KnownFiles;
use persist::save::Save;

use crate::contents::Contents;
use crate::disk::{Plan, SimulatedFolder};

/// The number of disk operations per 1,000 that fail, in a run whose disk fails.
const FAILING: usize = 30;

/// The required content of the file that a save writes.
pub(super) struct Point {
    /// The keyspace at the moment at which the snapshot of the save begins.
    pub contents: Contents,
    /// The length of the change log's stream at the moment of the snapshot, in bytes; `None`
    /// without a log.
    pub log_len_bytes: Option<usize>,
    /// The number of disk operations when the save was reported as successful; `None` until then.
    pub reported_at: Option<u64>,
}

/// The state of a run's snapshots that the lock of [`Saves`] protects.
pub(super) struct State {
    /// The simulated folder to which snapshots are saved.
    pub folder: SimulatedFolder,
    /// The required content of each save, by the number of the save.
    pub points: Vec<Point>,
    /// The save in progress.
    pub current: Option<Arc<Save>>,
}

/// The snapshots of a run. The lock is a leaf: no other lock is taken under it. A thread of the
/// simulator does not yield at it.
pub(super) struct Saves {
    state: Mutex<State>,
    /// The existing files of the folder that a save is permitted to replace.
    pub known: KnownFiles,
}

impl Saves {
    /// Creates the state without saves. `seed` determines the behaviour of the disk.
    pub fn new(seed: u64) -> Self {
        let mut folder = SimulatedFolder::new(seed);
        folder.plan(if seed.is_multiple_of(3) { Plan::Chance(FAILING) } else { Plan::Never });
        folder.note_moments();
        let state = Mutex::new(State { folder, points: Vec::new(), current: None });
        Self { state, known: KnownFiles::default() }
    }

    /// Locks the state of the run's snapshots, to read or change it.
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

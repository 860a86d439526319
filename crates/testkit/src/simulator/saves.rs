//! What is known of the saves of a run: see [`saver`](super::saver).

use std::sync::{Arc, Mutex, MutexGuard};

use persist::folder::KnownFiles;
use persist::save::Save;

use crate::contents::Contents;
use crate::disk::{Plan, SimulatedFolder};

/// Operations of the disk that fail in a run in which some do, of a thousand.
const FAILING: usize = 30;

/// What a save must hold.
pub(super) struct Point {
    /// The keyspace then.
    pub contents: Contents,
    /// Bytes of the change log's stream up to the point, where there is one.
    pub log_len_bytes: Option<usize>,
    /// Operations of the disk until it was reported that the save had succeeded.
    pub reported_at: Option<u64>,
}

/// See [`Saves`].
pub(super) struct State {
    /// Where they go.
    pub folder: SimulatedFolder,
    /// By number.
    pub points: Vec<Point>,
    /// The one under way.
    pub current: Option<Arc<Save>>,
}

/// What is known of the saves of a run. Its lock is no yield point and a leaf.
pub(super) struct Saves {
    state: Mutex<State>,
    /// The files that saves may replace.
    pub known: KnownFiles,
}

impl Saves {
    /// None so far; the disk by this seed.
    pub fn new(seed: u64) -> Self {
        let mut folder = SimulatedFolder::new(seed);
        folder.plan(if seed.is_multiple_of(3) { Plan::Chance(FAILING) } else { Plan::Never });
        folder.note_moments();
        let state = Mutex::new(State { folder, points: Vec::new(), current: None });
        Self { state, known: KnownFiles::default() }
    }

    /// What is known, to read or change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Network: nobody wants the save under way any more.
    pub fn cancel(&self, engine: &engine::Shared) {
        let current = self.state().current.clone();
        if let Some(save) = current {
            save.abandon(engine);
        }
    }
}

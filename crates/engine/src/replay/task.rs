//! The tasks of lanes.

use std::sync::Arc;

use keyspace::key::KeyHash;
use resp::parse::Span;
use stdx::futex::FutexWord;
use stdx::sync::AtomicU32;
use stdx::sync::Ordering::{AcqRel, Acquire, Release};

use crate::table::Registered;

/// Requests as they were read, in their order.
pub trait Requests {
    /// Returns their number.
    fn count(&self) -> usize;

    /// Returns the bytes of request `index`, from its first one on, and its words.
    fn request(&self, index: usize) -> (&[u8], &[Span]);

    /// Returns the start of request `index` in the file, in bytes.
    fn offset(&self, index: usize) -> u64;
}

/// A request of a file that ended with an error.
pub struct Failed<'a> {
    /// Its start, in bytes.
    pub offset: u64,
    /// The full name of its command.
    pub command: &'static str,
    /// The error's line, without its `-`.
    pub error: &'a [u8],
}

/// A request that a lane runs.
#[derive(Clone, Copy)]
pub struct Job {
    /// Its command, or its subcommand where the request names one.
    pub registered: &'static Registered,
    /// The hash of its key; of nothing, where it has not exactly one.
    pub(super) hash: KeyHash,
    /// Its place in the batch.
    pub request: u32,
    /// The selected database.
    pub db: u32,
}

/// Requests of one batch to run one after the other.
pub struct Slice<R> {
    pub(super) batch: Arc<R>,
    pub(super) jobs: Vec<Job>,
}

impl<R> Slice<R> {
    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the batch, if nothing else needs it any more.
    pub fn into_batch(self) -> Option<R> {
        Arc::into_inner(self.batch)
    }
}

/// The next task of a lane.
pub enum Task<R> {
    /// It runs these requests.
    Run(Slice<R>),
    /// It meets others, one of which runs what the meeting is for.
    Meet(Arc<Meeting<R>>),
}

/// Not over.
const UNDER_WAY: u32 = 0;
/// Its requests have run.
const OVER: u32 = 1;

/// Requests that wait for all lanes whose keys they have, see the module.
pub struct Meeting<R> {
    slice: Slice<R>,
    /// Lanes that have not come yet.
    missing: AtomicU32,
    state: FutexWord,
}

impl<R> Meeting<R> {
    pub(super) fn new(slice: Slice<R>, lanes: u32) -> Self {
        Self { slice, missing: AtomicU32::new(lanes), state: FutexWord::new(UNDER_WAY) }
    }

    /// Returns the requests to run.
    pub fn slice(&self) -> &Slice<R> {
        &self.slice
    }

    /// Notes that a lane has come to it. Returns true for the last one, which runs the requests
    /// and then calls [`end`](Self::end).
    pub fn arrive(&self) -> bool {
        // What all lanes did before is seen by the last.
        self.missing.fetch_sub(1, AcqRel) == 1
    }

    /// Notes that the requests have run.
    pub fn end(&self) {
        // Release: pairs with the Acquire in `is_over`.
        self.state.store(OVER, Release);
        self.state.wake_all();
    }

    /// Returns true if the requests have run.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.state.load(Acquire) == OVER
    }

    /// Waits for the end of it, outside the gate.
    pub fn wait(&self) {
        let mut spins_left = stdx::sync::spins_max();
        while !self.is_over() {
            if spins_left == 0 {
                self.state.wait(UNDER_WAY);
            } else {
                spins_left -= 1;
                std::hint::spin_loop();
            }
        }
    }
}

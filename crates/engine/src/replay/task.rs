//! The tasks of a replay's lanes (threads): requests to run, and meetings to wait for.

use std::sync::Arc;

use keyspace::key::KeyHash;
use resp::parse::Span;
use stdx::futex::FutexWord;
use stdx::sync::AtomicU32;
use stdx::sync::Ordering::{AcqRel, Acquire, Release};

use crate::table::Registered;

/// A batch of parsed requests of a replayed file, in the file's order.
pub trait Requests {
    /// Returns the number of requests in the batch of the replayed file.
    fn count(&self) -> usize;

    /// Returns the bytes of request `index`, and the spans of the request's words in these bytes.
    fn request(&self, index: usize) -> (&[u8], &[Span]);

    /// Returns the offset of request `index` in the file, in bytes.
    fn offset(&self, index: usize) -> u64;
}

/// A request of the replayed file that failed.
pub struct Failed<'a> {
    /// The offset of the failed request in the file, in bytes.
    pub offset: u64,
    /// The full name of the command whose request failed.
    pub command: &'static str,
    /// The error line of the failed request, without its leading `-`.
    pub error: &'a [u8],
}

/// A request of a replayed file, assigned to a lane (thread).
#[derive(Clone, Copy)]
pub struct Job {
    /// The command or, if the request names one, its subcommand.
    pub registered: &'static Registered,
    /// The hash of the request's key; meaningless if it does not have exactly one key.
    pub(super) hash: KeyHash,
    /// The index of the request in its batch of the replayed file.
    pub request: u32,
    /// The number of the database that the file has selected for the request.
    pub db: u32,
}

/// The requests of one batch of a replayed file that a lane (thread) runs in sequence.
pub struct Slice<R> {
    pub(super) batch: Arc<R>,
    pub(super) jobs: Vec<Job>,
}

impl<R> Slice<R> {
    /// Returns the number of requests that the lane (thread) runs.
    pub fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the batch of the replayed file, to be reused, if this is the last reference to it.
    pub fn into_batch(self) -> Option<R> {
        Arc::into_inner(self.batch)
    }
}

/// A task of a replay's lane (thread): requests to run, or a meeting to wait for.
pub enum Task<R> {
    /// The lane (thread) runs these requests of the replayed file.
    Run(Slice<R>),
    /// The lane (thread) waits in a meeting: for the other lanes that own a key of these requests.
    /// The last lane to arrive runs the requests.
    Meet(Arc<Meeting<R>>),
}

/// The state of a meeting of a replay's lanes (threads) whose requests have not run yet.
const UNDER_WAY: u32 = 0;
/// The state of a meeting of a replay's lanes (threads) whose requests have run.
const OVER: u32 = 1;

/// A meeting of a replay's lanes (threads): requests that run once all lanes that own one of their
/// keys have arrived.
pub struct Meeting<R> {
    slice: Slice<R>,
    /// The number of lanes (threads) that have not arrived at the meeting yet.
    missing: AtomicU32,
    state: FutexWord,
}

impl<R> Meeting<R> {
    pub(super) fn new(slice: Slice<R>, lanes: u32) -> Self {
        Self { slice, missing: AtomicU32::new(lanes), state: FutexWord::new(UNDER_WAY) }
    }

    /// Returns the requests that the last lane (thread) to arrive at the meeting runs.
    pub fn slice(&self) -> &Slice<R> {
        &self.slice
    }

    /// Records that a lane (thread) has arrived at the meeting. Returns true for the last lane,
    /// which runs the requests and then calls [`end`](Self::end).
    pub fn arrive(&self) -> bool {
        // AcqRel: the last lane sees the work of all others before they arrived.
        self.missing.fetch_sub(1, AcqRel) == 1
    }

    /// Records that the requests of this meeting have run. Wakes the lanes (threads) that wait at
    /// the meeting.
    pub fn end(&self) {
        // Release: pairs with the Acquire in `is_over`.
        self.state.store(OVER, Release);
        self.state.wake_all();
    }

    /// Returns true if the requests of the meeting, which several lanes (threads) wait for, have
    /// run.
    pub fn is_over(&self) -> bool {
        // Acquire: pairs with the Release in `end`.
        self.state.load(Acquire) == OVER
    }

    /// Waits, outside the gate (the keyspace's shared lock), until another lane (thread) has run
    /// the requests of the meeting.
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

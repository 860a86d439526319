//! The long searches of a thread, which run in slices between its turns.
//!
//! ```text
//!   request ─► first slice ─► ended? its reply
//!                  └─ else ─► client blocked ─► active ─► a slice per turn ─► reply, client resumed
//!                                      waiting ─┘
//! ```
//! A search holds no lock and is outside the gate, so other threads do not notice it. All new
//! searches of a turn share one slice: those that begin when it is used up run after the turn. The
//! searches that run after a turn share one slice, too. So a turn has two slices at most, however
//! many clients search.
//!
//! Up to [`ACTIVE_MAX`] searches take turns; others wait in the order of their requests and return
//! the memory of their first slice, so the memory of searches is limited. Each keeps its version of
//! the value.
//!
//! A search ends with the wait of its client ([`Searches::cancel`]). The version of a value that was
//! removed or changed meanwhile is lazy freed ([`FreeQueue::free_rest`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::Search;
use resp::Reply;
use stdx::ByteQueue;

use crate::clock::Clock;
use crate::freeing::FreeQueue;
use crate::shared::Shared;
use crate::wait::BlockedClient;

/// The time that the new searches of a turn share, and also that of the searches after a turn. A
/// request of another client waits for two slices at most: for a millisecond.
const SLICE: Duration = Duration::from_micros(500);
/// The time for which a search runs, in several slices, before the next one does. A change between
/// searches costs time, because each has its own memory in the caches of the processor.
const QUANTUM: Duration = Duration::from_millis(2);
/// The largest number of searches of a thread that keep what they have found.
const ACTIVE_MAX: usize = 16;

/// A search whose client is blocked.
struct Blocked {
    waiter: Arc<BlockedClient>,
    search: Box<dyn Search>,
    /// The time for which the search has run.
    took: Duration,
    /// The time for which it has run since another search did.
    in_row: Duration,
}

/// The permission to pause a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayPause {
    /// The search pauses when the time is used up. Its client is then blocked.
    Yes,
    /// The search runs to its end.
    No,
}

/// Returns true if a client waits for the reply of a search.
pub fn is_search(waiter: &BlockedClient) -> bool {
    waiter.registered.full_name == "vsim"
}

/// The reply of a search whose client was blocked.
pub struct FoundReply {
    /// The wait of the client, which has ended.
    pub waiter: Arc<BlockedClient>,
    /// The encoded reply.
    pub reply: ByteQueue,
    /// The time for which the search has run.
    pub took: Duration,
}

/// The searches of one thread that have not ended. Used by that thread only.
#[derive(Default)]
pub struct Searches {
    /// The searches that take turns, the next one first; at most [`ACTIVE_MAX`].
    active: VecDeque<Blocked>,
    /// The searches that have not begun, by the number of their client's wait, so the oldest first.
    waiting: BTreeMap<u64, Blocked>,
    /// True if the thread has slices. Otherwise every search runs to its end at once.
    is_on: bool,
    /// The rest of the slice that the new searches of this turn share.
    left: Duration,
}

impl Searches {
    /// Lets searches pause. From now on, the caller must run a slice after each turn
    /// ([`Searches::begin_slice`]), and must not sleep unless [`Searches::is_empty`].
    pub fn turn_on(&mut self) {
        self.is_on = true;
        self.end_turn();
    }

    /// Returns true if searches may pause.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Ends a turn. The new searches of the next turn share another slice.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        self.left = SLICE;
    }

    /// Runs the first slice of a search: for the time that the new searches of this turn have left,
    /// if it `may_pause`. Returns the time for which it ran, and true if it has ended.
    pub(crate) fn run_first(
        &mut self,
        search: &mut dyn Search,
        clock: &impl Clock,
        may_pause: MayPause,
    ) -> (Duration, bool) {
        if may_pause == MayPause::Yes && self.left.is_zero() {
            return (Duration::ZERO, false);
        }
        let since = clock.now();
        let has_ended = search.run(&mut || may_pause == MayPause::Yes && clock.now() - since >= self.left);
        let took = clock.now() - since;
        self.left = self.left.saturating_sub(took);
        (took, has_ended)
    }

    /// Returns true if no search is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Adds a search that has run for `took`, and whose client was blocked.
    pub(crate) fn add(&mut self, waiter: Arc<BlockedClient>, mut search: Box<dyn Search>, took: Duration) {
        if self.active.len() < ACTIVE_MAX {
            self.active.push_back(Blocked { waiter, search, took, in_row: Duration::ZERO });
        } else {
            search.restart();
            let ticket = waiter.ticket;
            self.waiting.insert(ticket, Blocked { waiter, search, took, in_row: Duration::ZERO });
        }
    }

    /// Ends the search of the client whose wait has the number `ticket`, and frees its version of the
    /// value. Does nothing if there is no such search. O(log n).
    #[cold]
    pub fn cancel(&mut self, ticket: u64, freeing: &FreeQueue) {
        let at = self.active.iter().position(|blocked| blocked.waiter.ticket == ticket);
        let taken = at.and_then(|at| self.active.remove(at));
        if let Some(blocked) = taken.or_else(|| self.waiting.remove(&ticket)) {
            freeing.free_rest(blocked.search.cancel());
            self.activate();
        }
    }

    /// Lets the oldest waiting searches take turns while there is room for them.
    fn activate(&mut self) {
        while self.active.len() < ACTIVE_MAX
            && let Some((_, next)) = self.waiting.pop_first()
        {
            self.active.push_back(next);
        }
    }

    /// Begins the slice after a turn. Returns its end.
    pub fn begin_slice(clock: &impl Clock) -> Instant {
        clock.now() + SLICE
    }

    /// Runs the first searches, one step at least. Returns the reply of the first search that ends
    /// and whose client still waits; `None` if nothing is left to run before the time `end`. The
    /// caller holds no lock.
    #[cold]
    pub fn run_until(&mut self, end: Instant, clock: &impl Clock, shared: &Shared) -> Option<FoundReply> {
        let mut found = None;
        while found.is_none()
            && let Some(blocked) = self.active.pop_front()
        {
            found = self.run_one(blocked, end, (clock, shared));
            self.activate();
            if clock.now() >= end {
                break;
            }
        }
        found
    }

    /// Runs a search until the time `end`. If it has not ended then, it remains the first one until
    /// it has run for its quantum, and then becomes the last one.
    fn run_one(
        &mut self,
        mut blocked: Blocked,
        end: Instant,
        (clock, shared): (&impl Clock, &Shared),
    ) -> Option<FoundReply> {
        if blocked.waiter.over.is_over() {
            shared.freeing.free_rest(blocked.search.cancel());
            return None;
        }
        let since = clock.now();
        let has_ended = blocked.search.run(&mut || clock.now() >= end);
        let ran = clock.now() - since;
        blocked.took += ran;
        blocked.in_row += ran;
        if has_ended {
            return reply(blocked, shared);
        }
        if blocked.in_row < QUANTUM {
            self.active.push_front(blocked);
        } else {
            blocked.in_row = Duration::ZERO;
            self.active.push_back(blocked);
        }
        None
    }
}

/// Writes the reply of a search that has ended, unless its client no longer waits.
fn reply(Blocked { waiter, search, took, .. }: Blocked, shared: &Shared) -> Option<FoundReply> {
    if !shared.blocked.end(&waiter) {
        shared.freeing.free_rest(search.cancel());
        return None;
    }
    let mut reply = ByteQueue::new();
    shared.freeing.free_rest(search.write(&mut Reply::new(&mut reply, waiter.protocol)));
    Some(FoundReply { waiter, reply, took })
}

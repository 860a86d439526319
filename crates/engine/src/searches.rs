//! The long searches of a thread, which run in slices between its turns.
//!
//! ```text
//!   request ─► first slice ─► ended? its reply
//!                  └─ else ─► client blocked ─► active ─► a slice per turn ─► reply, resumed
//!                                   └─► waiting ─┘ key looked up again
//! ```
//! A search holds no lock and is outside the gate, so other threads do not notice it. All new
//! searches of a turn share one slice: those that begin when it is used up run after the turn. The
//! searches that run after a turn share one slice, too. So a turn has two slices at most, however
//! many clients search.
//!
//! Up to [`ACTIVE_MAX`] searches take turns; others wait in the order of their requests. A search
//! that waits has neither a version of the value nor what it found in its first slice, so the
//! memory of searches is limited. When there is room for it, a turn looks its key up again
//! ([`Engine::begin_searches`](crate::turn::Engine::begin_searches)). Its reply then shows the
//! value at that time, which is between its request and its reply.
//!
//! A search ends with the wait of its client ([`Searches::cancel`]). The version of a value that
//! was removed or changed meanwhile is lazy freed ([`FreeQueue::free_rest`]).

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
/// The largest number of searches of a thread that have begun: they keep a version of their value,
/// and what they have found.
const ACTIVE_MAX: usize = 16;

/// A search that has begun, and whose client is blocked.
struct Active {
    waiter: Arc<BlockedClient>,
    search: Box<dyn Search>,
    /// The part of the reply that is written.
    reply: ByteQueue,
    /// The time for which the search has run.
    took: Duration,
    /// The time for which it has run since another search did.
    in_row: Duration,
    /// The log position up to which the reply shows changes, if the session does not know it; or 0.
    position: u64,
}

/// A search that has not begun. Its client is blocked.
pub(crate) struct WaitingSearch {
    pub(crate) waiter: Arc<BlockedClient>,
    /// The time for which the search has run in vain.
    pub(crate) took: Duration,
}

/// A slice divided by this number is the time that may be lost in each turn on searches that have
/// to wait.
const LOST_PART: u32 = 8;

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
    /// The log position up to which the reply shows changes; 0 if the session knows it.
    pub position: u64,
}

/// The searches of one thread that have not ended. Used by that thread only.
#[derive(Default)]
pub struct Searches {
    /// The searches that take turns, the next one first; at most [`ACTIVE_MAX`].
    active: VecDeque<Active>,
    /// The searches that have not begun, by the number of their client's wait, so the oldest first.
    waiting: BTreeMap<u64, WaitingSearch>,
    /// True if the thread has slices. Otherwise every search runs to its end at once.
    is_on: bool,
    /// The rest of the slice that the new searches of this turn share.
    left: Duration,
}

impl Searches {
    /// Lets searches pause. From now on, the caller must run a slice after each turn
    /// ([`Searches::begin_slice`]), and must not sleep unless no search is active. If some wait,
    /// each turn inside the gate must begin them.
    pub fn turn_on(&mut self) {
        self.is_on = true;
        self.end_turn();
    }

    /// Returns true if searches may pause.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Ends a turn. The new searches of the next turn share another slice. While no further search
    /// can become active, they share only a small part of it, because the work of one that does not
    /// end in that time is lost.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        self.left = if self.active.len() < ACTIVE_MAX { SLICE } else { SLICE / LOST_PART };
    }

    /// Runs the first slice of a search: for the time that the new searches of this turn have left,
    /// if it `may_pause`. Returns the time for which it ran, and true if the reply is complete.
    pub(crate) fn run_first(
        &mut self,
        (search, reply): (&mut dyn Search, &mut Reply<'_>),
        clock: &impl Clock,
        may_pause: MayPause,
    ) -> (Duration, bool) {
        if may_pause == MayPause::Yes && self.left.is_zero() {
            return (Duration::ZERO, false);
        }
        let since = clock.now();
        let pauses = &mut || may_pause == MayPause::Yes && clock.now() - since >= self.left;
        let has_ended = search.run(reply, pauses);
        let took = clock.now() - since;
        self.left = self.left.saturating_sub(took);
        (took, has_ended)
    }

    /// Returns true if a search has begun and has not ended.
    #[inline]
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Returns true if a search waits to begin.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds a search that has run for a while and has written a part of its reply, and whose client
    /// was blocked. If too many searches are active, it waits, and its work is returned to be
    /// ended.
    pub(crate) fn add(
        &mut self,
        waiting: WaitingSearch,
        search: Box<dyn Search>,
        reply: ByteQueue,
    ) -> Option<Box<dyn Search>> {
        if self.active.len() < ACTIVE_MAX {
            let WaitingSearch { waiter, took } = waiting;
            let in_row = Duration::ZERO;
            self.active.push_back(Active { waiter, search, reply, took, in_row, position: 0 });
            return None;
        }
        self.waiting.insert(waiting.waiter.ticket, waiting);
        Some(search)
    }

    /// Takes the oldest waiting search if there is room for it among the active ones.
    pub(crate) fn take_waiting(&mut self) -> Option<WaitingSearch> {
        let has_room = self.active.len() < ACTIVE_MAX;
        has_room.then(|| self.waiting.pop_first()).flatten().map(|(_, waiting)| waiting)
    }

    /// Adds `search` to the active ones. `position` is that of [`FoundReply`].
    pub(crate) fn begin(&mut self, waiting: WaitingSearch, search: Box<dyn Search>, position: u64) {
        let WaitingSearch { waiter, took } = waiting;
        let (reply, in_row) = (ByteQueue::new(), Duration::ZERO);
        self.active.push_back(Active { waiter, search, reply, took, in_row, position });
    }

    /// Ends the search of the client whose wait has the number `ticket`, and frees its version of
    /// the value. Does nothing if there is no such search. O(log n).
    #[cold]
    pub fn cancel(&mut self, ticket: u64, freeing: &FreeQueue) {
        if self.waiting.remove(&ticket).is_none()
            && let Some(at) = self.active.iter().position(|active| active.waiter.ticket == ticket)
            && let Some(active) = self.active.remove(at)
        {
            freeing.free_rest(active.search.end());
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
            && let Some(active) = self.active.pop_front()
        {
            found = self.run_one(active, end, (clock, shared));
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
        mut active: Active,
        end: Instant,
        (clock, shared): (&impl Clock, &Shared),
    ) -> Option<FoundReply> {
        if active.waiter.over.is_over() {
            shared.freeing.free_rest(active.search.end());
            return None;
        }
        let since = clock.now();
        let has_ended = {
            let reply = &mut Reply::new(&mut active.reply, active.waiter.protocol);
            active.search.run(reply, &mut || clock.now() >= end)
        };
        let ran = clock.now() - since;
        active.took += ran;
        active.in_row += ran;
        if has_ended {
            return found(active, shared);
        }
        if active.in_row < QUANTUM {
            self.active.push_front(active);
        } else {
            active.in_row = Duration::ZERO;
            self.active.push_back(active);
        }
        None
    }
}

/// Returns the complete reply of a search, unless its client no longer waits. Frees its version of
/// the value.
fn found(
    Active { waiter, search, reply, took, position, .. }: Active,
    shared: &Shared,
) -> Option<FoundReply> {
    shared.freeing.free_rest(search.end());
    shared.blocked.end(&waiter).then_some(FoundReply { waiter, reply, took, position })
}

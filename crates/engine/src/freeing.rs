//! The queue of lazy freed values, which are too big to free at once on an I/O thread.
//!
//! ```text
//!   I/O threads ──push──▶ tasks, oldest first ──free_some──▶ housekeeper, a step at a time
//!                                             └────────────▶ an I/O thread that is short of memory
//! ```
//! A task frees its value in small pieces (a member, or a node of a list or tree), so any thread
//! can continue it at any time. The memory of a task is estimated when the task is added. Each step
//! subtracts the memory that the allocator reports as freed. `maxmemory` can therefore count the
//! memory of waiting tasks as free.
//!
//! The threads that add tasks limit the queue. If more than `PENDING_BYTES_MAX` bytes wait, a
//! thread that adds a task must itself free the same number of bytes: it *owes* them. After each
//! turn, and between the commands of a transaction, it frees values for as long as the turn or the
//! command took. It stops when it owes nothing or less than the limit waits ([`FreeQueue::help`]).
//! Filling memory takes longer than freeing it. So a client cannot produce lazy freed values faster
//! than its thread frees them. A client that removes a lot of data at once (FLUSHALL) is slowed to
//! no less than half its speed for a while.
//!
//! A thread that adds a task while `PENDING_TASKS_MAX` wait frees some at once. A thread also frees
//! some when it runs a command while memory is over its limit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use commands::LazyFreed;
use keyspace::Leftover;
use keyspace::freeing::{self, FreeingSteps};
use structures::alloc;

use crate::clock::Clock;

/// The number of waiting bytes above which a thread that adds more must free the same number
/// itself. While fewer bytes wait, a value of any size is added without this obligation.
const PENDING_BYTES_MAX: u64 = 64 << 20;
/// The number of pieces, such as members, that a thread frees before it computes again how many
/// bytes it still owes.
const HELP_STEPS: usize = 256;
/// The number of waiting lazy freed values above which a thread that adds one must free some.
const PENDING_TASKS_MAX: usize = 10_000;
/// The number of pieces, such as members, that a thread frees for each task that it adds while too
/// many tasks wait. An average value has fewer pieces, so the queue gets shorter.
const STEPS_PER_TASK: usize = 256;
/// The number of pieces of an old version of a value that are freed at once. A change of a value
/// beside a search leaves fewer.
const REST_STEPS: usize = 512;

/// A lazy freed value in the queue, which is freed in pieces.
struct Task {
    number: u64,
    pieces: FreeingSteps,
    /// The estimated memory, in bytes, of those parts of the lazy freed value that are not freed
    /// yet.
    bytes: u64,
    objects: u64,
}

#[derive(Default)]
struct Tasks {
    /// The waiting lazy freed values, ordered by number.
    waiting: VecDeque<Task>,
    /// The numbers of the lazy freed values that threads are freeing now.
    taken: Vec<u64>,
    next_number: u64,
}

/// A point in the queue of lazy freed values: it stands for all tasks that were added before it.
/// See [`FreeQueue::ticket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The queue of lazy freed values, shared by all threads. Its lock is held only to add or take a
/// task; no other lock is taken under it.
pub struct FreeQueue {
    tasks: Mutex<Tasks>,
    arrived: Condvar,
    pending_bytes: AtomicU64,
    pending_objects: AtomicU64,
    freed_objects: AtomicU64,
    /// The earliest ticket that a client waits for; [`NO_TICKET`] if no client waits.
    awaited: AtomicU64,
}

/// The value of `awaited` while no client waits for freed values.
const NO_TICKET: u64 = u64::MAX;

impl Default for FreeQueue {
    fn default() -> Self {
        Self {
            tasks: Mutex::default(),
            arrived: Condvar::new(),
            pending_bytes: AtomicU64::new(0),
            pending_objects: AtomicU64::new(0),
            freed_objects: AtomicU64::new(0),
            awaited: AtomicU64::new(NO_TICKET),
        }
    }
}

impl FreeQueue {
    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().expect("nothing panics while the tasks are locked")
    }

    /// Adds values that commands have removed to the queue of lazy freed values. Returns the number
    /// of bytes that the caller must itself help to free ([`FreeQueue::help`]). O(values); if too
    /// many tasks wait, the caller also frees some pieces for each value.
    pub fn push(&self, lazy_freed: Vec<LazyFreed>) -> u64 {
        let is_full = self.pending_bytes() > PENDING_BYTES_MAX;
        let mut pushed_bytes = 0;
        for one in lazy_freed {
            let (pieces, bytes, objects) = match one {
                LazyFreed::Entry(entry) => {
                    let bytes = freeing::memory_of(&entry);
                    (freeing::freeing_steps_of_entry(entry), bytes, 1)
                }
                LazyFreed::Object(object) => {
                    let bytes = object.memory_usage();
                    (freeing::freeing_steps_of(object), bytes, 1)
                }
                LazyFreed::Keys(table) => {
                    let (bytes, objects) = (freeing::memory_of_keys(&table), table.len());
                    (freeing::freeing_steps_of_keys(table), bytes, objects)
                }
            };
            pushed_bytes += bytes as u64;
            self.add(pieces, bytes as u64, objects as u64);
        }
        self.arrived.notify_one();
        if is_full { pushed_bytes } else { 0 }
    }

    /// Adds a task. If too many wait, also frees some pieces.
    fn add(&self, pieces: FreeingSteps, bytes: u64, objects: u64) {
        // Relaxed: statistics, and an estimate.
        self.pending_bytes.fetch_add(bytes, Relaxed);
        self.pending_objects.fetch_add(objects, Relaxed);
        let mut tasks = self.lock();
        let number = tasks.next_number;
        tasks.next_number += 1;
        tasks.waiting.push_back(Task { number, pieces, bytes, objects });
        let crowded = tasks.waiting.len() > PENDING_TASKS_MAX;
        drop(tasks);
        if crowded {
            self.free_some(STEPS_PER_TASK);
        }
    }

    /// Frees the parts of an old version of a value that only a search still had: a small rest at
    /// once, the others of a big one as a lazy freed value.
    pub fn free_rest(&self, rest: Option<Leftover>) {
        let Some(mut rest) = rest else { return };
        if rest.pieces.by_ref().take(REST_STEPS).count() == REST_STEPS {
            let bytes = rest.pinned_len_bytes();
            // Counted in both figures for a moment, so that no key is evicted for it.
            self.add(rest.pieces, bytes, 0);
            self.arrived.notify_one();
        }
    }

    /// Frees values for a thread that owes `unfreed_bytes`, for at most `time` by `clock`. Returns
    /// the bytes that the thread still owes. Returns 0 if few enough bytes wait to be freed, or if
    /// other threads are freeing all values that are left.
    #[cold]
    pub fn help(&self, clock: &impl Clock, mut unfreed_bytes: u64, time: Duration) -> u64 {
        let since = clock.now();
        while unfreed_bytes > 0 && self.pending_bytes() > PENDING_BYTES_MAX {
            // No waiting task: other threads are working on all of them.
            let Some(freed_bytes) = self.free_one(HELP_STEPS) else { break };
            unfreed_bytes = unfreed_bytes.saturating_sub(freed_bytes);
            if clock.now() - since >= time {
                return unfreed_bytes;
            }
        }
        0
    }

    /// Frees up to `pieces` pieces of the oldest lazy freed value that no thread is working on.
    /// Returns false if there is no such value.
    pub fn free_some(&self, pieces: usize) -> bool {
        self.free_one(pieces).is_some()
    }

    /// Frees pieces as [`free_some`](Self::free_some) does. Returns the number of estimated bytes
    /// that this step freed; `None` if no lazy freed value waits.
    fn free_one(&self, pieces: usize) -> Option<u64> {
        let mut tasks = self.lock();
        let mut task = tasks.waiting.pop_front()?;
        tasks.taken.push(task.number);
        drop(tasks);
        let before = alloc::thread_memory_bytes();
        let done = task.pieces.by_ref().take(pieces).count() < pieces;
        let freed = u64::try_from(before - alloc::thread_memory_bytes()).unwrap_or(0);
        let counted = if done { task.bytes } else { freed.min(task.bytes) };
        task.bytes -= counted;
        self.pending_bytes.fetch_sub(counted, Relaxed);
        if done {
            self.pending_objects.fetch_sub(task.objects, Relaxed);
            self.freed_objects.fetch_add(task.objects, Relaxed);
        }
        let mut tasks = self.lock();
        tasks.taken.retain(|&number| number != task.number);
        if done && self.awaited.load(Relaxed) != NO_TICKET {
            // Another thread may have freed the rest of the value while the housekeeper sleeps.
            self.arrived.notify_one();
        }
        if !done {
            let at = tasks.waiting.partition_point(|other| other.number < task.number);
            tasks.waiting.insert(at, task);
        }
        Some(counted)
    }

    /// Waits until a lazy freed value is added or [`FreeQueue::wake`] is called, for at most
    /// `timeout`. Returns at once if a value is waiting.
    pub fn wait(&self, timeout: Duration) {
        let tasks = self.lock();
        if tasks.waiting.is_empty() {
            let waited = self.arrived.wait_timeout(tasks, timeout);
            drop(waited.expect("nothing panics while the tasks are locked"));
        }
    }

    /// Wakes all threads that wait in [`FreeQueue::wait`].
    pub fn wake(&self) {
        self.arrived.notify_all();
    }

    /// Returns a ticket that stands for all lazy freed values that were added so far.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.lock().next_number)
    }

    /// Returns true if all lazy freed values that the ticket stands for are freed.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        let tasks = self.lock();
        let waiting = tasks.waiting.front().map(|task| task.number);
        waiting.into_iter().chain(tasks.taken.iter().copied()).all(|number| number >= ticket.0)
    }

    /// Records that a client waits until the values of this ticket are freed. They may have been
    /// freed just before this call, and then nobody wakes the client. So the caller must check
    /// [`FreeQueue::is_done`] afterwards.
    pub fn await_ticket(&self, ticket: Ticket) {
        // Relaxed: the lock of the tasks, which `is_done` takes, orders this store against the
        // freeing.
        self.awaited.fetch_min(ticket.0, Relaxed);
    }

    /// Returns true if a client waits for this ticket and the housekeeper has not yet reported it
    /// as done. Takes no lock.
    pub fn is_awaited(&self, ticket: Ticket) -> bool {
        self.awaited.load(Relaxed) <= ticket.0
    }

    /// Returns true if clients wait for freed values and the earliest of their tickets is done, and
    /// removes all records of waiting. Clients with later tickets must then record them again.
    /// Called by the housekeeper. O(1) while no client waits.
    pub fn take_awaited(&self) -> bool {
        let awaited = self.awaited.load(Relaxed);
        // A smaller ticket that was recorded in the meantime is kept.
        awaited != NO_TICKET
            && self.is_done(Ticket(awaited))
            && self.awaited.compare_exchange(awaited, NO_TICKET, Relaxed, Relaxed).is_ok()
    }

    /// Returns the estimated number of bytes of lazy freed values that wait to be freed.
    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Relaxed)
    }

    /// Returns the number of lazy freed values that wait to be freed; for a flush, the number of
    /// keys.
    pub fn pending_objects(&self) -> u64 {
        self.pending_objects.load(Relaxed)
    }

    /// Returns the number of lazy freed values that were freed so far; a flush counts its keys.
    pub fn freed_objects(&self) -> u64 {
        self.freed_objects.load(Relaxed)
    }

    /// Resets the number of lazy freed values that were freed, for CONFIG RESETSTAT.
    pub fn reset_stats(&self) {
        self.freed_objects.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use keyspace::Object;
    use keyspace::key::{Hasher, position_of};
    use std::sync::Arc;
    use std::time::Instant;
    use structures::entry::{Entry, NewValue};
    use structures::table::Table;

    fn keys(count: usize) -> LazyFreed {
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let position = |key: &[u8]| position_of(hasher.hash_key(key));
        let mut table = Table::new();
        for n in 0..count {
            let key = format!("key-{n}");
            let entry = Entry::new(key.as_bytes(), NewValue::Bytes(b"v"), None, 0);
            table.insert(position(key.as_bytes()), entry, &position);
        }
        LazyFreed::Keys(table)
    }

    #[test]
    fn who_adds_to_much_that_waits_frees_as_much() {
        let clock = ManualClock::new(Instant::now(), Duration::ZERO);
        let queue = FreeQueue::default();
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let position = |key: &[u8]| position_of(hasher.hash_key(key));
        let mut most_bytes = 0;
        for round in 0..60 {
            let mut table = Table::new();
            for n in 0..64 {
                let key = format!("key-{n}");
                let value = NewValue::Object(Object::Blob(vec![b'v'; 64 << 10].into()));
                let entry = Entry::new(key.as_bytes(), value, None, 0);
                table.insert(position(key.as_bytes()), entry, &position);
            }
            let unfreed_bytes = queue.push(vec![LazyFreed::Keys(table)]);
            assert_eq!(unfreed_bytes > 0, round >= 16, "four MiB each");
            assert_eq!(queue.help(&clock, unfreed_bytes, Duration::MAX), 0);
            most_bytes = most_bytes.max(queue.pending_bytes());
        }
        assert!(most_bytes < PENDING_BYTES_MAX + (9 << 20), "{most_bytes}");
        assert!(queue.pending_objects() < 20 * 64 && queue.freed_objects() > 40 * 64);
        let waits_bytes = queue.pending_bytes();
        let rest_bytes = queue.help(&clock, waits_bytes, Duration::ZERO);
        assert!(rest_bytes > 0 && rest_bytes == queue.pending_bytes(), "some, as there is no time for more");
    }

    #[test]
    fn what_waits_is_counted_until_it_is_freed() {
        let queue = FreeQueue::default();
        queue.push(vec![keys(1000)]);
        let ticket = queue.ticket();
        queue.push(vec![keys(10)]);
        assert_eq!(queue.pending_objects(), 1010);
        assert!(queue.pending_bytes() > 1010 * 16);
        while !queue.is_done(ticket) {
            assert!(queue.free_some(100));
        }
        assert_eq!((queue.pending_objects(), queue.freed_objects()), (10, 1000));
        assert!(!queue.take_awaited());
        queue.await_ticket(queue.ticket());
        queue.await_ticket(ticket);
        assert!(queue.take_awaited() && !queue.take_awaited());
        assert!(queue.free_some(100));
        assert!(!queue.free_some(100));
        assert_eq!((queue.pending_bytes(), queue.pending_objects(), queue.freed_objects()), (0, 0, 1010));
    }

    #[test]
    fn a_small_rest_is_freed_at_once_and_a_big_one_by_the_queue() {
        let queue = FreeQueue::default();
        for (pieces, at_once) in [(REST_STEPS - 1, REST_STEPS - 1), (3 * REST_STEPS, REST_STEPS)] {
            let freed = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&freed);
            let steps = (0..pieces).map(move |_| _ = counter.fetch_add(1, Relaxed));
            queue.free_rest(Some(Leftover::new(Box::new(steps))));
            assert_eq!(freed.load(Relaxed), at_once as u64);
            while queue.free_some(100) {}
            assert_eq!(freed.load(Relaxed), pieces as u64);
        }
        assert_eq!((queue.pending_bytes(), queue.pending_objects(), queue.freed_objects()), (0, 0, 0));
    }
}

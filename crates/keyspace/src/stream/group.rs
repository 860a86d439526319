//! Consumer groups: the progress of their reading, and the entries that were delivered but not
//! acknowledged.
//!
//! ```text
//!   group     last delivered ID, entries read
//!             pending     ID → delivery time, count, consumer        one record per entry
//!             consumers   [consumer][consumer][free] …               by index
//!             by name     indexes in the order of the names
//!   consumer  name, time seen, time active, pending: only its IDs
//! ```
//! A pending entry has one record, in the group's list ([`IdMap`]). The consumer that owns it
//! stores only the ID. Both are found and changed in O(log n). A record names a consumer by its
//! index, which is the same for the life of the consumer.
//!
//! Entries that consumers released (XNACK) are pending for no consumer. They belong to a *holder*:
//! a consumer with the empty name, last seen at the time 0. It exists while it has entries. Files
//! and replicas without XNACK get an ordinary consumer, from which the entries are claimed.
//!
//! Invariants: an ID is in the group's list iff it is in the list of exactly the consumer that its
//! record names. `by_name` has each consumer once, in the order of the names' bytes.
//!
//! Complexity: finding a consumer is O(log consumers), and adding one also moves indexes. A pending
//! entry costs O(log n). Memory: a pending entry takes 40 bytes in the group and 16 in the
//! consumer.

use structures::size_class::size_class;

use super::StreamId;
use super::id_map::IdMap;

/// The index of a consumer in its group, valid until the consumer is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerIndex(u32);

/// The data of a pending entry: delivered to a consumer and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The time of the entry's last delivery, in Unix milliseconds.
    pub delivered_ms: i64,
    /// The number of times that the entry was delivered to a consumer.
    pub deliveries: u64,
    /// The consumer that owns the entry.
    pub consumer: ConsumerIndex,
}

impl Pending {
    /// Returns the milliseconds from the pending entry's last delivery to `now_ms`; wraps on
    /// overflow, like Redis' arithmetic.
    pub fn idle_ms(&self, now_ms: i64) -> i64 {
        now_ms.wrapping_sub(self.delivered_ms)
    }
}

/// A consumer of a consumer group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    seen_ms: i64,
    active_ms: Option<i64>,
    pending: IdMap<()>,
}

impl Consumer {
    /// Returns the consumer's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the time at which a command last named the consumer, in Unix milliseconds.
    pub fn seen_ms(&self) -> i64 {
        self.seen_ms
    }

    /// Returns the time at which the consumer last got an entry, in Unix milliseconds; `None` if it
    /// never got an entry.
    pub fn active_ms(&self) -> Option<i64> {
        self.active_ms
    }

    /// Returns true if this stands for no consumer: it holds the entries that consumers released.
    /// O(1).
    pub fn is_holder(&self) -> bool {
        self.name.is_empty() && self.seen_ms == 0
    }

    /// Returns the number of pending entries that the consumer owns. O(1).
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the IDs of the consumer's pending entries at or above `start`, ascending. O(log n)
    /// to begin, then O(1) for each ID.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = StreamId> + Clone {
        self.pending.from(start).map(|(id, ())| id)
    }

    fn memory_usage(&self) -> usize {
        size_class(size_of::<Self>()) + size_class(self.name.len().max(1)) + self.pending.memory_usage()
    }
}

/// A consumer group. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Group {
    name: Box<[u8]>,
    last_delivered: StreamId,
    entries_read: Option<i64>,
    pending: IdMap<Pending>,
    consumers: Vec<Option<Box<Consumer>>>,
    by_name: Vec<ConsumerIndex>,
}

impl Group {
    /// Creates a consumer group without consumers.
    pub(super) fn new(name: &[u8], last_delivered: StreamId, entries_read: Option<i64>) -> Self {
        Self {
            name: name.into(),
            last_delivered,
            entries_read,
            pending: IdMap::default(),
            consumers: Vec::new(),
            by_name: Vec::new(),
        }
    }

    /// Returns the name of the consumer group.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the ID of the last entry that was delivered as new to a consumer of the group.
    pub fn last_delivered(&self) -> StreamId {
        self.last_delivered
    }

    /// Returns the number of entries ever appended that the group has read or skipped; `None` if it
    /// is unknown.
    pub fn entries_read(&self) -> Option<i64> {
        self.entries_read
    }

    /// Sets the group's last delivered ID; keeps the number of entries read.
    pub fn set_last_delivered(&mut self, last_delivered: StreamId) {
        self.last_delivered = last_delivered;
    }

    /// Sets the group's last delivered ID and number of entries read. The caller ensures that its
    /// stream permits `entries_read`.
    pub(super) fn set_progress(&mut self, last_delivered: StreamId, entries_read: Option<i64>) {
        self.last_delivered = last_delivered;
        self.entries_read = entries_read;
    }

    /// Lowers the group's number of entries read to at most `entries_added`, the number of entries
    /// ever added to the stream.
    pub(super) fn cap_entries_read(&mut self, entries_added: i64) {
        self.entries_read = self.entries_read.map(|count| count.min(entries_added));
    }

    /// Returns the bytes that the group owns outside this struct. O(runs of pending entries +
    /// consumers).
    pub fn memory_usage(&self) -> usize {
        let block = |bytes: usize| if bytes == 0 { 0 } else { size_class(bytes) };
        size_class(self.name.len().max(1))
            + self.pending.memory_usage()
            + block(self.consumers.capacity() * size_of::<Option<Box<Consumer>>>())
            + block(self.by_name.capacity() * size_of::<ConsumerIndex>())
            + self.consumers().map(Consumer::memory_usage).sum::<usize>()
    }

    /// Converts the group to an iterator that frees one run of pending entries in each step: first
    /// the group's runs, then those of its consumers. O(1).
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        let consumers = self.consumers.into_iter().flatten();
        self.pending.into_freed().chain(consumers.flat_map(|consumer| consumer.pending.into_freed()))
    }

    // Consumers.

    /// Returns the number of the group's consumers, including the holder of released entries. O(1).
    pub fn consumer_count(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the group's consumers, sorted by name, including the holder of released entries.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> + Clone {
        self.by_name.iter().map(|&index| self.consumer(index))
    }

    /// Returns the group's consumers without the holder of released entries, sorted by name.
    pub fn known_consumers(&self) -> impl Iterator<Item = &Consumer> + Clone {
        self.consumers().filter(|consumer| !consumer.is_holder())
    }

    /// Returns the number of the group's consumers without the holder of released entries. O(1).
    pub fn known_consumer_count(&self) -> usize {
        self.consumer_count() - usize::from(self.consumers().next().is_some_and(Consumer::is_holder))
    }

    /// Finds the group's consumer with this name; `None` if there is none. O(log consumers).
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerIndex> {
        self.place_of(name).ok().map(|at| self.by_name[at])
    }

    /// Borrows the group's consumer with this index. O(1).
    ///
    /// # Panics
    /// If the consumer was removed, or belongs to another group.
    pub fn consumer(&self, index: ConsumerIndex) -> &Consumer {
        self.consumers[index.0 as usize].as_deref().expect("a consumer in use has an index")
    }

    /// Adds a consumer to the group, last seen at `seen_ms` (Unix milliseconds). Returns `None` if
    /// there is already one with this name. O(consumers).
    pub fn create_consumer(&mut self, name: &[u8], seen_ms: i64) -> Option<ConsumerIndex> {
        let place = self.place_of(name).err()?;
        let consumer = Consumer { name: name.into(), seen_ms, active_ms: None, pending: IdMap::default() };
        let consumer = Some(Box::new(consumer));
        let index = if self.by_name.len() < self.consumers.len() {
            let free = self.consumers.iter().position(Option::is_none);
            let free = free.expect("more places than names: one is free");
            self.consumers[free] = consumer;
            free
        } else {
            self.consumers.push(consumer);
            self.consumers.len() - 1
        };
        let index = ConsumerIndex(u32::try_from(index).expect("memory ends before 2^32 consumers"));
        self.by_name.insert(place, index);
        Some(index)
    }

    /// Adds a consumer to the group as [`Group::create_consumer`] does. If the name is that of the
    /// holder of released entries, the holder becomes the consumer and keeps them. O(consumers).
    pub fn create_known_consumer(&mut self, name: &[u8], seen_ms: i64) -> Option<ConsumerIndex> {
        match self.find_consumer(name).filter(|&index| self.consumer(index).is_holder()) {
            Some(holder) => {
                self.see(holder, seen_ms);
                Some(holder)
            }
            None => self.create_consumer(name, seen_ms),
        }
    }

    /// Removes a consumer and its pending entries from the group. Returns the number of these
    /// entries; `None` if there is no consumer with this name. O(pending log n + consumers).
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let place = self.place_of(name).ok()?;
        if self.consumer(self.by_name[place]).is_holder() {
            return None;
        }
        let index = self.by_name.remove(place);
        let consumer = self.consumers[index.0 as usize].take().expect("a named consumer is there");
        for (id, ()) in consumer.pending.from(StreamId::MIN) {
            self.pending.remove(id);
        }
        if self.by_name.is_empty() {
            self.consumers.clear();
        }
        Some(consumer.pending.len())
    }

    /// Sets the time at which a command last named the consumer, in Unix milliseconds.
    pub fn see(&mut self, consumer: ConsumerIndex, now_ms: i64) {
        self.consumer_mut(consumer).seen_ms = now_ms;
    }

    /// Sets the time at which the consumer last got an entry, in Unix milliseconds; `None` for
    /// never.
    pub fn set_active(&mut self, consumer: ConsumerIndex, active_ms: Option<i64>) {
        self.consumer_mut(consumer).active_ms = active_ms;
    }

    fn consumer_mut(&mut self, index: ConsumerIndex) -> &mut Consumer {
        self.consumers[index.0 as usize].as_deref_mut().expect("a consumer in use has an index")
    }

    /// Returns the index in `by_name` of the consumer with this name, or as an error the index at
    /// which to insert it.
    fn place_of(&self, name: &[u8]) -> Result<usize, usize> {
        self.by_name.binary_search_by(|&index| self.consumer(index).name().cmp(name))
    }

    // Pending entries.

    /// Returns the number of the group's pending entries. O(1).
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the lowest and the highest ID of the group's pending entries; `None` if there are
    /// none. O(1).
    pub fn pending_bounds(&self) -> Option<(StreamId, StreamId)> {
        Some((self.pending.first()?, self.pending.last()?))
    }

    /// Returns the data (time, deliveries, owner) of a pending entry; `None` if the entry is not
    /// pending. O(log n).
    pub fn pending(&self, id: StreamId) -> Option<&Pending> {
        self.pending.get(id)
    }

    /// Returns true if the entry is pending in this group. O(log n).
    pub fn is_pending(&self, id: StreamId) -> bool {
        self.pending.contains(id)
    }

    /// Returns the group's pending entries with IDs at or above `start` and their data (time,
    /// deliveries, owner), in ascending order. O(log n) to begin, then O(1) for each entry.
    pub fn pending_from(&self, start: StreamId) -> impl Iterator<Item = (StreamId, &Pending)> + Clone {
        self.pending.from(start)
    }

    /// Makes an entry pending for a consumer, or changes its data (time, deliveries, owner) if it
    /// is pending. O(log n).
    pub fn assign(&mut self, id: StreamId, pending: Pending) {
        match self.pending.insert(id, pending) {
            Some(before) if before.consumer == pending.consumer => return,
            Some(before) => self.remove_from_owner(id, before.consumer),
            None => {}
        }
        self.consumer_mut(pending.consumer).pending.insert(id, ());
    }

    /// Makes an entry pending for no consumer, as if it had been delivered at the time 0, with this
    /// number of deliveries. O(log n).
    pub fn release(&mut self, id: StreamId, deliveries: u64) {
        let holder = self.find_consumer(b"").or_else(|| self.create_consumer(b"", 0));
        let consumer = holder.expect("it was found or created");
        self.assign(id, Pending { delivered_ms: 0, deliveries, consumer });
    }

    /// Returns true if the pending entry with this data is pending for no consumer. O(1).
    pub fn is_released(&self, pending: &Pending) -> bool {
        pending.delivered_ms == 0 && self.consumer(pending.consumer).name().is_empty()
    }

    /// Removes an entry from the pending entries of the consumer that owns it. Removes the holder
    /// of released entries with its last entry.
    fn remove_from_owner(&mut self, id: StreamId, owner: ConsumerIndex) {
        let consumer = self.consumer_mut(owner);
        consumer.pending.remove(id);
        if consumer.is_holder() && consumer.pending_len() == 0 {
            self.by_name.remove(0);
            self.consumers[owner.0 as usize] = None;
            if self.by_name.is_empty() {
                self.consumers.clear();
            }
        }
    }

    /// Removes an entry from the pending entries of the group and of its consumer. Returns true if
    /// it was pending. O(log n).
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(id) else { return false };
        self.remove_from_owner(id, pending.consumer);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    fn group() -> Group {
        Group::new(b"g", StreamId::MIN, None)
    }

    #[test]
    fn released_entries_are_pending_for_no_consumer() {
        let id = |ms| StreamId { ms, seq: 0 };
        let mut group = Group::new(b"g", StreamId::MIN, None);
        let c = group.create_consumer(b"c", 9).expect("a new name");
        for ms in [1, 2] {
            group.assign(id(ms), Pending { delivered_ms: 5, deliveries: 1, consumer: c });
        }
        group.release(id(1), 1);
        group.release(id(3), 7);
        let released = group.pending(id(3)).copied().expect("it is pending");
        assert!(group.is_released(&released) && released.deliveries == 7);
        assert_eq!((group.consumer(c).pending_len(), group.pending_len()), (1, 3));
        assert_eq!((group.consumer_count(), group.known_consumer_count()), (2, 1));
        assert_eq!(group.known_consumers().map(Consumer::name).collect::<Vec<_>>(), [b"c"]);
        assert_eq!(group.remove_consumer(b""), None);
        group.assign(id(1), Pending { delivered_ms: 5, deliveries: 2, consumer: c });
        assert!(group.acknowledge(id(3)));
        assert_eq!((group.consumer_count(), group.known_consumer_count()), (1, 1), "the holder is removed");
        assert!(group.acknowledge(id(1)) && group.acknowledge(id(2)));
        group.release(id(4), 0);
        assert!(group.acknowledge(id(4)));
        assert_eq!(group.consumer(c).name(), b"c");
    }

    #[test]
    fn the_holder_of_released_entries_becomes_a_consumer() {
        let mut group = group();
        group.release(id(1), 1);
        let holder = group.find_consumer(b"").expect("it holds an entry");
        assert_eq!(group.create_consumer(b"", 9), None);
        assert_eq!((group.create_known_consumer(b"", 9), group.known_consumer_count()), (Some(holder), 1));
        assert_eq!(group.create_known_consumer(b"", 9), None);
        assert!(group.acknowledge(id(1)));
        assert_eq!((group.consumer_count(), group.remove_consumer(b"")), (1, Some(0)));
    }

    #[test]
    fn consumers_are_told_in_the_order_of_their_names() {
        let mut group = group();
        for name in ["b", "c", "a"] {
            assert!(group.create_consumer(name.as_bytes(), 1).is_some());
        }
        assert!(group.create_consumer(b"c", 1).is_none());
        let names = |group: &Group| group.consumers().map(|c| c.name().to_vec()).collect::<Vec<_>>();
        assert_eq!(names(&group), [b"a", b"b", b"c"]);
        assert_eq!(group.remove_consumer(b"b"), Some(0));
        assert_eq!(group.remove_consumer(b"b"), None);
        assert!(group.create_consumer(b"aa", 1).is_some());
        assert_eq!(names(&group), [b"a".to_vec(), b"aa".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn a_pending_entry_costs_less_than_sixty_bytes() {
        let mut group = group();
        let consumer = group.create_consumer(b"c", 1).expect("a new name");
        for ms in 0..10_000 {
            group.assign(id(ms), Pending { delivered_ms: 1, deliveries: 1, consumer });
        }
        assert!(group.memory_usage() < 10_000 * 60, "{}", group.memory_usage());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Create(u8),
        Remove(u8),
        Assign(u64, u8),
        Acknowledge(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            1 => (0_u8..6).prop_map(Op::Create),
            1 => (0_u8..6).prop_map(Op::Remove),
            8 => (0_u64..400, 0_u8..6).prop_map(|(ms, name)| Op::Assign(ms, name)),
            4 => (0_u64..400).prop_map(Op::Acknowledge),
        ]
    }

    /// The naive model of a consumer group, for comparison: consumers by name, and pending entries
    /// with the owner's name.
    #[derive(Default)]
    struct Twin {
        consumers: Vec<u8>,
        pending: BTreeMap<StreamId, (u8, u64)>,
    }

    fn apply(op: Op, number: u64, group: &mut Group, twin: &mut Twin) {
        match op {
            Op::Create(name) => {
                let is_new = !twin.consumers.contains(&name);
                assert_eq!(group.create_consumer(&[name], 0).is_some(), is_new);
                if is_new {
                    twin.consumers.push(name);
                    twin.consumers.sort_unstable();
                }
            }
            Op::Remove(name) => {
                let is_known = twin.consumers.contains(&name);
                let owned = twin.pending.values().filter(|owner| owner.0 == name).count();
                assert_eq!(group.remove_consumer(&[name]), is_known.then_some(owned));
                twin.consumers.retain(|&known| known != name);
                twin.pending.retain(|_, owner| owner.0 != name);
            }
            Op::Assign(ms, name) => {
                let Some(consumer) = group.find_consumer(&[name]) else { return };
                group.assign(id(ms), Pending { delivered_ms: 0, deliveries: number, consumer });
                twin.pending.insert(id(ms), (name, number));
            }
            Op::Acknowledge(ms) => {
                assert_eq!(group.acknowledge(id(ms)), twin.pending.remove(&id(ms)).is_some());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn group_and_consumers_agree_on_what_is_pending(
            ops in proptest::collection::vec(op(), 0..600),
        ) {
            let (mut group, mut twin) = (group(), Twin::default());
            for (number, op) in ops.into_iter().enumerate() {
                apply(op, number as u64, &mut group, &mut twin);
            }
            prop_assert_eq!(group.consumers().map(|c| c.name()[0]).collect::<Vec<_>>(), twin.consumers);
            let pending = group.pending_from(StreamId::MIN);
            let pending: BTreeMap<_, _> =
                pending.map(|(id, p)| (id, (group.consumer(p.consumer).name()[0], p.deliveries))).collect();
            prop_assert_eq!(&pending, &twin.pending);
            prop_assert_eq!(group.pending_len(), twin.pending.len());
            for consumer in group.consumers() {
                let own: Vec<_> = consumer.pending_from(StreamId::MIN).collect();
                let name = consumer.name()[0];
                let expected = twin.pending.iter().filter(|(_, owner)| owner.0 == name).map(|(&id, _)| id);
                prop_assert_eq!(own, expected.collect::<Vec<_>>());
            }
        }
    }
}

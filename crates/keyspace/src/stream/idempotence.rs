//! The idempotent IDs of a stream: the messages that producers have added. A message that is sent
//! again is not added again (XADD with IDMP).
//!
//! ```text
//!   by age      (entry's ID, producer, idempotent ID) …       all producers, oldest first
//!   producers   name → by iid   idempotent ID → entry's ID
//!                      by age   (entry's ID, idempotent ID) …  oldest first
//! ```
//! An idempotent ID expires `duration_s` after the time in its entry's ID. Each producer has at
//! most `size_max` of them; a further one replaces the oldest. Its entry may have been deleted.
//!
//! Invariant: the three orders contain the same triples, and no producer is empty.
//!
//! Costs: O(log n) for each operation, and at most [`EXPIRED_AT_ONCE_MAX`] removals of expired IDs.
//! Memory of expired IDs is released by later additions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StreamId;

/// The number of seconds for which an idempotent ID is kept, if no command has set another.
const DURATION_S_DEFAULT: u32 = 100;
/// The maximum number of idempotent IDs of a producer, if no command has set another.
const SIZE_MAX_DEFAULT: u32 = 100;
/// The maximum number of expired idempotent IDs that one addition removes.
const EXPIRED_AT_ONCE_MAX: usize = 64;

/// A name of a producer or an idempotent ID, shared by the orders that contain it.
type Name = Arc<[u8]>;

/// The messages of one producer that the stream remembers.
#[derive(Clone, Debug, Default)]
struct Producer {
    by_iid: BTreeMap<Name, StreamId>,
    by_age: BTreeSet<(StreamId, Name)>,
}

/// The idempotent IDs of a stream. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Idempotence {
    duration_s: u32,
    size_max: u32,
    by_age: BTreeSet<(StreamId, Name, Name)>,
    producers: BTreeMap<Name, Producer>,
    added: u64,
    duplicates: u64,
    /// The bytes of all producers' names and idempotent IDs.
    text_bytes: usize,
}

impl Default for Idempotence {
    fn default() -> Self {
        Self {
            duration_s: DURATION_S_DEFAULT,
            size_max: SIZE_MAX_DEFAULT,
            by_age: BTreeSet::new(),
            producers: BTreeMap::new(),
            added: 0,
            duplicates: 0,
            text_bytes: 0,
        }
    }
}

/// A message that a producer adds to a stream, identified by an idempotent ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'m> {
    /// The name of the message's producer.
    pub producer: &'m [u8],
    /// The idempotent ID of the message, by which the stream recognizes it when it is sent again.
    pub iid: &'m [u8],
}

impl Idempotence {
    /// Returns the number of seconds for which an idempotent ID is kept.
    pub fn duration_s(&self) -> u32 {
        self.duration_s
    }

    /// Returns the maximum number of idempotent IDs of a producer.
    pub fn size_max(&self) -> u32 {
        self.size_max
    }

    /// Returns the number of producers with idempotent IDs. O(1).
    pub fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// Returns the number of idempotent IDs of all producers. O(1).
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Returns true if the stream has no idempotent IDs. O(1).
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Returns the number of messages with idempotent IDs that were ever added to the stream.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Returns the number of messages that were sent again and not added.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Sets the number of messages ever added, and of those that were sent again.
    pub fn set_counts(&mut self, added: u64, duplicates: u64) {
        (self.added, self.duplicates) = (added, duplicates);
    }

    /// Returns true if the limits of the idempotent IDs (time, number) are the default ones.
    pub fn has_default_limits(&self) -> bool {
        (self.duration_s, self.size_max) == (DURATION_S_DEFAULT, SIZE_MAX_DEFAULT)
    }

    /// Returns the approximate memory of the idempotent IDs, in bytes. O(1).
    pub fn memory_usage(&self) -> usize {
        // Each ID is in three nodes and has a counted header; a producer has two trees.
        size_of::<Self>() + self.text_bytes + self.len() * 160 + self.producers.len() * 128
    }

    /// Converts the idempotent IDs to an iterator that frees one producer, then one entry of the
    /// order by age, in each step. O(1).
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        self.producers.into_iter().map(drop).chain(self.by_age.into_iter().map(drop))
    }

    /// Sets the time and the number for which idempotent IDs are kept. If one of them changes, all
    /// idempotent IDs are removed. O(n).
    pub fn configure(&mut self, duration_s: u32, size_max: u32) {
        if (duration_s, size_max) != (self.duration_s, self.size_max) {
            let (added, duplicates) = (self.added, self.duplicates);
            *self = Self { duration_s, size_max, added, duplicates, ..Self::default() };
        }
    }

    /// Returns the ID of the entry with this message, and counts the message as a duplicate, if it
    /// was added and is not expired at `now_ms`. O(log n).
    pub fn find_duplicate(&mut self, message: Message<'_>, now_ms: u64) -> Option<StreamId> {
        let id = self.get(message, now_ms)?;
        self.duplicates = self.duplicates.saturating_add(1);
        Some(id)
    }

    /// Returns the ID of the entry with this message, if it was added and is not expired at
    /// `now_ms`. O(log n).
    pub fn get(&self, message: Message<'_>, now_ms: u64) -> Option<StreamId> {
        self.get_even_if_expired(message).filter(|&id| !self.is_expired(id, now_ms))
    }

    /// Returns the ID of the entry with this message, if it was added and is not removed yet.
    /// O(log n).
    pub fn get_even_if_expired(&self, message: Message<'_>) -> Option<StreamId> {
        self.producers.get(message.producer)?.by_iid.get(message.iid).copied()
    }

    fn is_expired(&self, id: StreamId, now_ms: u64) -> bool {
        now_ms.saturating_sub(id.ms) >= u64::from(self.duration_s) * 1000
    }

    /// Records that the entry `id` has this message. Removes the producer's oldest message if there
    /// are too many, and expired messages. O(log n).
    pub fn add(&mut self, message: Message<'_>, id: StreamId, now_ms: u64) {
        self.remove(message);
        let name = match self.producers.get_key_value(message.producer) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(message.producer),
        };
        let iid: Name = Arc::from(message.iid);
        self.text_bytes += name.len() + iid.len();
        let producer = self.producers.entry(Arc::clone(&name)).or_default();
        producer.by_iid.insert(Arc::clone(&iid), id);
        producer.by_age.insert((id, Arc::clone(&iid)));
        self.by_age.insert((id, Arc::clone(&name), iid));
        self.added = self.added.saturating_add(1);
        let has_too_many = producer.by_age.len() > self.size_max as usize;
        let oldest = producer.by_age.first().filter(|_| has_too_many).map(|(_, iid)| Arc::clone(iid));
        if let Some(iid) = oldest {
            self.remove(Message { producer: &name, iid: &iid });
        }
        for _ in 0..EXPIRED_AT_ONCE_MAX {
            let oldest = self.by_age.first().filter(|(oldest, ..)| self.is_expired(*oldest, now_ms));
            // The new message stays, even if the clock is far ahead of its ID.
            let Some((_, name, iid)) = oldest.filter(|(oldest, ..)| *oldest != id).cloned() else { break };
            self.remove(Message { producer: &name, iid: &iid });
        }
    }

    /// Removes the idempotent ID of a message, if there is one. O(log n).
    fn remove(&mut self, message: Message<'_>) {
        let Some(producer) = self.producers.get_mut(message.producer) else { return };
        let Some((iid, id)) = producer.by_iid.remove_entry(message.iid) else { return };
        producer.by_age.remove(&(id, Arc::clone(&iid)));
        let is_empty = producer.by_iid.is_empty();
        let (name, _) = self.producers.get_key_value(message.producer).expect("it was found above");
        self.text_bytes -= name.len() + iid.len();
        let name = Arc::clone(name);
        if is_empty {
            self.producers.remove(&name);
        }
        self.by_age.remove(&(id, name, iid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<'m>(producer: &'m str, iid: &'m str) -> Message<'m> {
        Message { producer: producer.as_bytes(), iid: iid.as_bytes() }
    }

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    #[test]
    fn messages_are_found_until_they_expire() {
        let mut all = Idempotence::default();
        assert_eq!(all.find_duplicate(message("p", "a"), 1000), None);
        all.add(message("p", "a"), id(1000), 1000);
        all.add(message("q", "a"), id(2000), 2000);
        assert_eq!(all.find_duplicate(message("p", "a"), 100_999), Some(id(1000)));
        assert_eq!(all.find_duplicate(message("p", "a"), 101_000), None);
        assert_eq!(all.find_duplicate(message("q", "a"), 101_000), Some(id(2000)));
        assert_eq!((all.len(), all.producer_count(), all.added(), all.duplicates()), (2, 2, 2, 2));
        all.add(message("q", "b"), id(101_000), 101_000);
        assert_eq!((all.len(), all.producer_count()), (2, 1), "an addition removes expired ones");
    }

    #[test]
    fn counts_stay_at_their_maximum() {
        let mut all = Idempotence::default();
        all.set_counts(u64::MAX, u64::MAX);
        all.add(message("p", "a"), id(1), 1);
        assert_eq!(all.find_duplicate(message("p", "a"), 1), Some(id(1)));
        assert_eq!((all.added(), all.duplicates()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn the_oldest_message_of_a_producer_is_replaced() {
        let mut all = Idempotence::default();
        all.configure(60, 2);
        for (ms, iid) in [(1, "a"), (2, "b"), (3, "c")] {
            all.add(message("p", iid), id(ms), ms);
        }
        all.add(message("q", "a"), id(4), 4);
        assert_eq!(all.get(message("p", "a"), 4), None);
        assert_eq!(all.get(message("p", "b"), 4), Some(id(2)));
        assert_eq!((all.len(), all.added()), (3, 4));
        all.configure(60, 2);
        assert_eq!(all.len(), 3, "the same limits change nothing");
        all.configure(61, 2);
        assert!(all.is_empty() && all.added() == 4);
        assert_eq!((all.duration_s(), all.size_max(), all.text_bytes), (61, 2, 0));
    }

    #[test]
    fn producers_are_freed_one_by_one() {
        let mut all = Idempotence::default();
        for (ms, producer) in [(1, "p"), (2, "q"), (3, "q")] {
            all.add(message(producer, &ms.to_string()), id(ms), ms);
        }
        let name = Arc::downgrade(all.producers.keys().next_back().expect("there are two"));
        let mut steps = all.into_freed();
        assert_eq!(steps.by_ref().take(2 + 2).count(), 4);
        assert!(name.upgrade().is_some(), "the order by age still has the name");
        assert_eq!((steps.count(), name.upgrade()), (1, None));
    }

    #[test]
    fn a_message_can_get_another_entry() {
        let mut all = Idempotence::default();
        all.add(message("p", "a"), id(1), 1);
        all.add(message("p", "a"), id(200_000), 200_000);
        assert_eq!((all.get(message("p", "a"), 200_000), all.len()), (Some(id(200_000)), 1));
        assert!(all.memory_usage() > size_of::<Idempotence>());
    }
}

//! The operations of consumer groups on a stream: reading new entries, reading pending ones again,
//! claiming, and the groups' lag.
//!
//! A group stores its last delivered ID and `entries_read`, the number of entries ever appended up
//! to that ID, if it is known. From the stream alone, such a number can be computed only at the
//! ends. Up to the last ID it is the number of entries ever added. Below the first ID it is that
//! number less the present entries. Between the ends a group counts the entries that it reads. The
//! result is right if no entry ahead of the group was deleted.
//!
//! XDEL leaves a *tombstone*, but only the highest deleted ID is stored. If that ID is ahead of a
//! group, the group's count becomes unknown until the group reaches an end of the stream. The lag
//! is the number of entries added less the number read. It is unknown while the count is unknown.
//! Source: XINFO GROUPS of Redis 8.0.2.
//!
//! Invariant: a group has read at most `entries_added`, even if commands set one of the two
//! numbers. A lag is therefore never negative. Source: XGROUP and XSETID of later versions of
//! Redis.

use super::group::{ConsumerIndex, Group, Pending};
use super::{References, Stream, StreamEntry, StreamId, range_of};

/// The parameters of a delivery of new entries to a consumer: see [`Stream::deliver`].
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The consumer to which the entries are delivered.
    pub consumer: ConsumerIndex,
    /// The most entries to deliver to the consumer.
    pub count_max: usize,
    /// The present time in Unix milliseconds, which becomes the delivery time.
    pub now_ms: i64,
    /// The acknowledgement that the entries need: awaited or not needed.
    pub acknowledgement: Acknowledgement,
}

/// The acknowledgement that delivered entries need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// The entries become pending until the consumer acknowledges them.
    Awaited,
    /// The entries do not become pending when they are delivered (NOACK).
    NotNeeded,
}

/// The parameters of making a consumer the owner of pending entries: see [`Stream::claim`].
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The consumer that becomes the owner of the pending entries.
    pub consumer: ConsumerIndex,
    /// The present time in Unix milliseconds.
    pub now_ms: i64,
    /// The minimum time in milliseconds since an entry's last delivery. Entries that were delivered
    /// later keep their owner.
    pub min_idle_ms: i64,
    /// The time to store as the entry's last delivery, in Unix milliseconds.
    pub delivered_ms: i64,
    /// The effect of the claim on the entry's number of deliveries.
    pub deliveries: Deliveries,
    /// True if an entry that is not pending becomes pending by the claim (FORCE).
    pub force: bool,
}

/// The effect of a claim on an entry's number of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliveries {
    /// The entry's number of deliveries increases by one.
    Increment,
    /// The entry's number of deliveries stays unchanged.
    Keep,
    /// The entry's number of deliveries becomes the given number.
    Set(u64),
}

/// The parameters of making entries pending for no consumer: see [`Stream::release`].
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The effect of the release on the entry's number of deliveries.
    pub deliveries: ReleasedDeliveries,
    /// True if an entry that is not pending becomes pending by the release (FORCE).
    pub force: bool,
}

/// The effect of a release on an entry's number of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleasedDeliveries {
    /// The entry's number of deliveries decreases by one.
    Decrement,
    /// The entry's number of deliveries stays unchanged.
    Keep,
    /// The entry's number of deliveries becomes the given number.
    Set(u64),
}

impl ReleasedDeliveries {
    /// Returns the number of deliveries after the release. `before` is `None` for an entry that was
    /// not pending.
    fn after(self, before: Option<u64>) -> u64 {
        match self {
            Self::Decrement => before.unwrap_or(0).saturating_sub(1),
            Self::Keep => before.unwrap_or(0),
            Self::Set(count) => count,
        }
    }
}

/// The outcome of [`Stream::claim`] or [`Stream::release`] for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The entry now belongs to the consumer (claim), or to no consumer (release).
    Yes,
    /// The entry was not claimed or released, and nothing changed.
    No,
    /// The entry was deleted from the stream. It is no longer pending.
    Gone,
}

/// The result of [`Stream::autoclaim`]: the claimed and the deleted entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoclaimed {
    /// The ID at which the next call starts; `0-0` after the last pending entry.
    pub cursor: StreamId,
    /// The IDs of the pending entries that now belong to the claiming consumer.
    pub claimed: Vec<StreamId>,
    /// The IDs of pending entries that were deleted from the stream. They are no longer pending.
    pub gone: Vec<StreamId>,
}

/// The outcome of [`Stream::remove_with`] for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The entry was removed from the stream.
    Removed,
    /// The stream has no entry with this ID.
    Missing,
    /// The entry stays in the stream, because a consumer group has not read it or not acknowledged
    /// it.
    Referenced,
}

/// The number of pending entries that XAUTOCLAIM checks for each one that it may claim.
const ATTEMPTS_PER_CLAIM: usize = 10;

/// Returns an entry's number of deliveries after one more delivery. The greatest number that XNACK
/// sets and clients can read stays.
fn next_count(deliveries: u64) -> u64 {
    if deliveries == i64::MAX as u64 { deliveries } else { deliveries.wrapping_add(1) }
}

/// The numbers of a stream from which the lags of its consumer groups are computed.
#[derive(Clone, Copy)]
struct Counters {
    entries_added: u64,
    len: u64,
    first_id: StreamId,
    last_id: StreamId,
    max_deleted_id: StreamId,
}

impl Counters {
    fn of(stream: &Stream) -> Self {
        Self {
            entries_added: stream.entries_added,
            len: stream.len as u64,
            first_id: stream.first_entry_id(),
            last_id: stream.last_id,
            max_deleted_id: stream.max_deleted_id,
        }
    }

    /// Returns true if an entry at or above `start` may have been deleted: the highest deleted ID
    /// is not below `start`. Returns false for an empty stream.
    fn has_tombstone_from(&self, start: StreamId) -> bool {
        self.len > 0 && self.max_deleted_id != StreamId::MIN && start <= self.max_deleted_id
    }

    /// Returns true if no entry after `at` was deleted and `at` is not below the first entry. A
    /// consumer group that has read up to `at` can then count each entry that it reads.
    fn is_counted_from(&self, at: StreamId) -> bool {
        at >= self.first_id && !self.has_tombstone_from(at)
    }

    /// Returns the number of entries with IDs up to `id` that were ever added to the stream.
    /// Returns `None` if the first and the last ID do not determine it.
    fn added_up_to(&self, id: StreamId) -> Option<i64> {
        let added = self.entries_added as i64;
        if added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(added);
        }
        if id != StreamId::MIN && id < self.max_deleted_id {
            return None;
        }
        if id >= self.last_id {
            return (id == self.last_id).then_some(added);
        }
        if self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= self.first_id {
            return None;
        }
        match id.cmp(&self.first_id) {
            std::cmp::Ordering::Less => Some(added.wrapping_sub(self.len as i64)),
            std::cmp::Ordering::Equal => Some(added.wrapping_sub(self.len as i64).wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Returns the number of entries that a consumer group will have read after it gets its next
    /// entry, `id`; `None` if that is unknown.
    fn read_with(&self, group: &Group, id: StreamId) -> Option<i64> {
        match group.entries_read() {
            Some(read) if self.is_counted_from(group.last_delivered()) => {
                Some(read.saturating_add(1).min(self.entries_added as i64))
            }
            before if self.entries_added == 0 => before,
            _ => self.added_up_to(id),
        }
    }

    fn lag(&self, group: &Group) -> Option<i64> {
        let at = group.last_delivered();
        if self.entries_added == 0 || self.len == 0 {
            return Some(0);
        }
        if at < self.first_id && self.max_deleted_id < self.first_id {
            return Some(self.len as i64);
        }
        let read = group.entries_read().filter(|_| !self.has_tombstone_from(at));
        let read = read.or_else(|| self.added_up_to(at))?;
        // Commands and files set both counts, so a group may have read more than was added. The lag
        // is then 0.
        Some((self.entries_added as i64).saturating_sub(read).max(0))
    }
}

impl Stream {
    // Groups.

    /// Returns the consumer groups of the stream, sorted by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Group> + Clone {
        self.groups.iter()
    }

    /// Borrows the stream's consumer group with this name; `None` if there is none. O(log groups).
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.place_of_group(name).ok().map(|at| &self.groups[at])
    }

    /// Borrows the stream's consumer group with this name mutably; `None` if there is none. O(log
    /// groups).
    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.place_of_group(name).ok().map(|at| &mut self.groups[at])
    }

    /// Adds a consumer group to the stream and returns it; `None` if there is already one with this
    /// name. O(groups).
    pub fn create_group(
        &mut self,
        name: &[u8],
        last_delivered: StreamId,
        entries_read: Option<i64>,
    ) -> Option<&mut Group> {
        let at = self.place_of_group(name).err()?;
        let entries_read = entries_read.map(|count| self.possible_count(count));
        self.groups.insert(at, Group::new(name, last_delivered, entries_read));
        Some(&mut self.groups[at])
    }

    /// Sets the last delivered ID and the number of entries read of a consumer group (XGROUP
    /// SETID). The number is limited to the number of entries ever added. Returns false if there is
    /// no group with this name. O(log groups).
    pub fn set_group_progress(
        &mut self,
        name: &[u8],
        last_delivered: StreamId,
        entries_read: Option<i64>,
    ) -> bool {
        let entries_read = entries_read.map(|count| self.possible_count(count));
        let Some(group) = self.group_mut(name) else { return false };
        group.set_progress(last_delivered, entries_read);
        true
    }

    /// Limits `count` to the possible numbers of entries read by a consumer group: from 0 to the
    /// number of entries ever added.
    fn possible_count(&self, count: i64) -> i64 {
        count.clamp(0, self.entries_added as i64)
    }

    /// Removes a consumer group. Returns a stream that contains only this group, for freeing in the
    /// background; `None` if there is no group with this name. O(groups).
    pub fn remove_group(&mut self, name: &[u8]) -> Option<Box<Stream>> {
        let at = self.place_of_group(name).ok()?;
        let group = self.groups.remove(at);
        Some(Box::new(Stream { groups: vec![group], ..Stream::default() }))
    }

    /// Returns the lag of a consumer group: the number of entries that it has not read yet. Returns
    /// `None` if it is unknown. O(entries of one node).
    pub fn lag(&self, group: &Group) -> Option<i64> {
        Counters::of(self).lag(group)
    }

    /// Returns the number of entries with IDs up to `id` that were ever added to the stream.
    /// Returns `None` if the first and the last ID do not determine it. O(entries of one node).
    pub fn entries_up_to(&self, id: StreamId) -> Option<i64> {
        Counters::of(self).added_up_to(id)
    }

    fn place_of_group(&self, name: &[u8]) -> Result<usize, usize> {
        self.groups.binary_search_by(|group| group.name().cmp(name))
    }

    // Reading.

    /// Returns true if the stream has an entry above `id`, so that a client that is blocked waiting
    /// for one can be served. O(entries of one node).
    pub fn has_entries_after(&self, id: StreamId) -> bool {
        self.last_entry_id() > id
    }

    /// Returns the stream's entry with this ID; `None` if there is none. O(log nodes + entries of
    /// one node).
    pub fn entry(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        self.range(id, id).next()
    }

    /// Delivers entries that the consumer group has not read yet to a consumer, in order, and calls
    /// `each` with each of them. Returns the number of entries delivered; 0 if there is no such
    /// group. O(log n) an entry.
    pub fn deliver(
        &mut self,
        group: &[u8],
        delivery: &Delivery,
        mut each: impl FnMut(StreamEntry<'_>),
    ) -> usize {
        let counters = Counters::of(self);
        let Ok(at) = self.place_of_group(group) else { return 0 };
        let group = &mut self.groups[at];
        let Some(start) = group.last_delivered().next() else { return 0 };
        let mut count = 0;
        for entry in range_of(&self.nodes, start, StreamId::MAX).take(delivery.count_max) {
            let Delivery { consumer, now_ms, .. } = *delivery;
            group.set_progress(entry.id, counters.read_with(group, entry.id));
            if delivery.acknowledgement == Acknowledgement::Awaited {
                group.assign(entry.id, Pending { delivered_ms: now_ms, deliveries: 1, consumer });
                group.set_active(consumer, Some(now_ms));
            }
            each(entry);
            count += 1;
        }
        count
    }

    /// Delivers those of a consumer's pending entries again whose IDs are above `after`. Calls
    /// `each` with each ID and its entry, or `None` if the entry was deleted. Increments the number
    /// of deliveries of the existing entries. Returns the number of IDs. O(log n) an entry.
    pub fn deliver_again(
        &mut self,
        group: &[u8],
        after: StreamId,
        delivery: &Delivery,
        mut each: impl FnMut(StreamId, Option<StreamEntry<'_>>),
    ) -> usize {
        let Ok(at) = self.place_of_group(group) else { return 0 };
        let Some(start) = after.next() else { return 0 };
        let own = self.groups[at].consumer(delivery.consumer).pending_from(start);
        let ids: Vec<StreamId> = own.take(delivery.count_max).collect();
        for &id in &ids {
            let entry = range_of(&self.nodes, id, id).next();
            if entry.is_some() {
                let group = &mut self.groups[at];
                let before = *group.pending(id).expect("what a consumer has pending, its group has");
                let deliveries = next_count(before.deliveries);
                group.assign(id, Pending { delivered_ms: delivery.now_ms, deliveries, ..before });
            }
            each(id, entry);
        }
        ids.len()
    }

    // Claiming.

    /// Makes a consumer the owner of the pending entry `id`, if `claim` permits. If the entry was
    /// deleted from the stream, removes it from the consumer group's pending entries. O(log n +
    /// entries of one node).
    pub fn claim(&mut self, group: &[u8], id: StreamId, claim: &Claim) -> Claimed {
        let exists = self.entry(id).is_some();
        let Some(group) = self.group_mut(group) else { return Claimed::No };
        if !exists {
            return if group.acknowledge(id) { Claimed::Gone } else { Claimed::No };
        }
        let deliveries = match group.pending(id) {
            Some(pending) if claim.min_idle_ms > 0 && pending.idle_ms(claim.now_ms) < claim.min_idle_ms => {
                return Claimed::No;
            }
            Some(pending) => pending.deliveries,
            None if claim.force => 1,
            None => return Claimed::No,
        };
        let deliveries = match claim.deliveries {
            Deliveries::Increment => next_count(deliveries),
            Deliveries::Keep => deliveries,
            Deliveries::Set(count) => count,
        };
        let Claim { consumer, delivered_ms, .. } = *claim;
        group.assign(id, Pending { delivered_ms, deliveries, consumer });
        group.set_active(consumer, Some(claim.now_ms));
        Claimed::Yes
    }

    /// Makes an entry pending for no consumer (XNACK). An entry that is not pending becomes so only
    /// with `force`. If the entry was deleted from the stream, removes it from the group's pending
    /// entries. O(log n + entries of one node).
    pub fn release(&mut self, group: &[u8], id: StreamId, release: &Release) -> Claimed {
        let exists = self.entry(id).is_some();
        let Some(group) = self.group_mut(group) else { return Claimed::No };
        if !exists {
            return if group.acknowledge(id) { Claimed::Gone } else { Claimed::No };
        }
        let before = match group.pending(id) {
            Some(pending) => Some(pending.deliveries),
            None if release.force => None,
            None => return Claimed::No,
        };
        group.release(id, release.deliveries.after(before));
        Claimed::Yes
    }

    /// Claims pending entries in the order of their IDs, beginning at `start`, like
    /// [`Stream::claim`]. Checks at most ten times `count_max` entries, and ends after `count_max`
    /// claimed or deleted ones. O(log n + entries of one node) for each checked entry.
    pub fn autoclaim(
        &mut self,
        group: &[u8],
        start: StreamId,
        count_max: usize,
        claim: &Claim,
    ) -> Autoclaimed {
        let mut result = Autoclaimed::default();
        let mut attempts = count_max.saturating_mul(ATTEMPTS_PER_CLAIM);
        let mut next = Some(start);
        while let Some(from) = next {
            let pending = self.group(group).and_then(|group| group.pending_from(from).next());
            let Some((id, _)) = pending else { break };
            if attempts == 0 || result.claimed.len() + result.gone.len() == count_max {
                result.cursor = id;
                break;
            }
            attempts -= 1;
            match self.claim(group, id, claim) {
                Claimed::Yes => result.claimed.push(id),
                Claimed::Gone => result.gone.push(id),
                Claimed::No => {}
            }
            next = id.next();
        }
        result
    }

    // The entries that groups still need.

    /// Returns the lowest of the consumer groups' last delivered IDs: every group has read the
    /// entries up to it. Without groups, returns the greatest ID. O(groups).
    pub(super) fn read_by_all(&self) -> StreamId {
        self.groups().map(Group::last_delivered).min().unwrap_or(StreamId::MAX)
    }

    /// Returns true if a consumer group has not read the entry, or not acknowledged it. O(groups
    /// log n).
    pub fn is_referenced(&self, id: StreamId) -> bool {
        self.groups().any(|group| id > group.last_delivered() || group.is_pending(id))
    }

    /// Removes the entry `id` from the stream, unless `references` forbids that, and updates the
    /// consumer groups as `references` says. O(groups log n + entries of one node).
    pub fn remove_with(&mut self, id: StreamId, references: References) -> Removal {
        match references {
            References::Keep => {}
            References::Acknowledged if self.is_referenced(id) => return Removal::Referenced,
            References::Acknowledged => {}
            References::Delete => {
                for group in &mut self.groups {
                    group.acknowledge(id);
                }
            }
        }
        if self.remove(id) { Removal::Removed } else { Removal::Missing }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::StreamLimits;
    use super::*;

    const LIMITS: StreamLimits = StreamLimits { node_bytes_max: 4096, node_entries_max: 5 };

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Append,
        Remove(u64),
        Deliver { consumer: usize, count: usize, acknowledgement: Acknowledgement },
        DeliverAgain { consumer: usize, after: u64, count: usize },
        Acknowledge(u64),
        Claim { consumer: usize, id: u64, min_idle_ms: i64, deliveries: Deliveries, force: bool },
        Autoclaim { consumer: usize, start: u64, count: usize, min_idle_ms: i64 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let acknowledgement = prop_oneof![Just(Acknowledgement::Awaited), Just(Acknowledgement::NotNeeded)];
        let deliveries = prop_oneof![
            Just(Deliveries::Increment),
            Just(Deliveries::Keep),
            (0_u64..9).prop_map(Deliveries::Set)
        ];
        let (ms, idle) = (|| 0_u64..40, || 0_i64..30);
        prop_oneof![
            4 => Just(Op::Append),
            2 => ms().prop_map(Op::Remove),
            3 => (0..3_usize, 0..5_usize, acknowledgement)
                .prop_map(|(consumer, count, acknowledgement)| Op::Deliver { consumer, count, acknowledgement }),
            2 => (0..3_usize, ms(), 0..5_usize)
                .prop_map(|(consumer, after, count)| Op::DeliverAgain { consumer, after, count }),
            2 => ms().prop_map(Op::Acknowledge),
            2 => (0..3_usize, ms(), idle(), deliveries, any::<bool>()).prop_map(
                |(consumer, id, min_idle_ms, deliveries, force)| {
                    Op::Claim { consumer, id, min_idle_ms, deliveries, force }
                }
            ),
            2 => (0..3_usize, ms(), 1..4_usize, idle()).prop_map(|(consumer, start, count, min_idle_ms)| {
                Op::Autoclaim { consumer, start, count, min_idle_ms }
            }),
        ]
    }

    /// The naive model, for comparison, of a stream with one consumer group of three consumers,
    /// which are numbers.
    #[derive(Default)]
    struct Twin {
        entries: Vec<u64>,
        delivered_to: u64,
        /// The consumer, the delivery time and the number of deliveries of each pending entry, by
        /// ID.
        pending: BTreeMap<u64, (usize, i64, u64)>,
    }

    impl Twin {
        fn claim(&mut self, now_ms: i64, op: &Op) -> Claimed {
            let Op::Claim { consumer, id, min_idle_ms, deliveries, force } = *op else { return Claimed::No };
            let before = self.pending.get(&id).copied();
            if !self.entries.contains(&id) {
                return if self.pending.remove(&id).is_some() { Claimed::Gone } else { Claimed::No };
            }
            if before.is_none() && !force || before.is_some_and(|(_, at, _)| now_ms - at < min_idle_ms) {
                return Claimed::No;
            }
            let count = before.map_or(1, |(_, _, count)| count);
            let count = match deliveries {
                Deliveries::Increment => count + 1,
                Deliveries::Keep => count,
                Deliveries::Set(count) => count,
            };
            self.pending.insert(id, (consumer, now_ms, count));
            Claimed::Yes
        }
    }

    fn claim_of(consumer: ConsumerIndex, now_ms: i64, min_idle_ms: i64) -> Claim {
        let deliveries = Deliveries::Increment;
        Claim { consumer, now_ms, min_idle_ms, delivered_ms: now_ms, deliveries, force: false }
    }

    fn apply(op: &Op, now_ms: i64, who: &[ConsumerIndex; 3], stream: &mut Stream, twin: &mut Twin) {
        let acknowledgement = Acknowledgement::Awaited;
        match *op {
            Op::Append => {
                let new = stream.last_id().ms + 1;
                stream.append(id(new), [b"f".as_slice(), b"v"].into_iter(), LIMITS).expect("ascending");
                twin.entries.push(new);
            }
            Op::Remove(ms) => {
                assert_eq!(stream.remove(id(ms)), twin.entries.contains(&ms));
                twin.entries.retain(|&entry| entry != ms);
            }
            Op::Deliver { consumer, count, acknowledgement } => {
                let new: Vec<u64> =
                    twin.entries.iter().copied().filter(|&ms| ms > twin.delivered_to).take(count).collect();
                let mut got = Vec::new();
                let delivery =
                    Delivery { consumer: who[consumer], count_max: count, now_ms, acknowledgement };
                assert_eq!(stream.deliver(b"g", &delivery, |entry| got.push(entry.id.ms)), new.len());
                assert_eq!(got, new);
                for ms in new {
                    twin.delivered_to = ms;
                    if acknowledgement == Acknowledgement::Awaited {
                        twin.pending.insert(ms, (consumer, now_ms, 1));
                    }
                }
            }
            Op::DeliverAgain { consumer, after, count } => {
                let delivery =
                    Delivery { consumer: who[consumer], count_max: count, now_ms, acknowledgement };
                let mut got = Vec::new();
                stream.deliver_again(b"g", id(after), &delivery, |id, entry| {
                    got.push((id.ms, entry.is_some()))
                });
                let own = twin.pending.iter_mut().filter(|(ms, own)| **ms > after && own.0 == consumer);
                let own = own.take(count).map(|(&ms, record)| {
                    let exists = twin.entries.contains(&ms);
                    if exists {
                        *record = (consumer, now_ms, record.2 + 1);
                    }
                    (ms, exists)
                });
                assert_eq!(got, own.collect::<Vec<_>>());
            }
            Op::Acknowledge(ms) => {
                let group = stream.group_mut(b"g").expect("it is never removed");
                assert_eq!(group.acknowledge(id(ms)), twin.pending.remove(&ms).is_some());
            }
            Op::Claim { consumer, id: ms, min_idle_ms, deliveries, force } => {
                let claim = Claim { deliveries, force, ..claim_of(who[consumer], now_ms, min_idle_ms) };
                assert_eq!(stream.claim(b"g", id(ms), &claim), twin.claim(now_ms, op));
            }
            Op::Autoclaim { consumer, start, count, min_idle_ms } => {
                let claim = claim_of(who[consumer], now_ms, min_idle_ms);
                let got = stream.autoclaim(b"g", id(start), count, &claim);
                let (mut expected, mut seen) = (Autoclaimed::default(), 0);
                let all: Vec<u64> = twin.pending.range(start..).map(|(&ms, _)| ms).collect();
                for ms in all {
                    if expected.claimed.len() + expected.gone.len() == count || seen == 10 * count {
                        expected.cursor = id(ms);
                        break;
                    }
                    seen += 1;
                    let (deliveries, force) = (Deliveries::Increment, false);
                    let op = Op::Claim { consumer, id: ms, min_idle_ms, deliveries, force };
                    match twin.claim(now_ms, &op) {
                        Claimed::Yes => expected.claimed.push(id(ms)),
                        Claimed::Gone => expected.gone.push(id(ms)),
                        Claimed::No => {}
                    }
                }
                assert_eq!(got, expected);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_group_does_what_a_naive_one_does(ops in proptest::collection::vec((0_i64..10, op()), 0..120)) {
            let (mut stream, mut twin) = (Stream::new(), Twin::default());
            let group = stream.create_group(b"g", StreamId::MIN, Some(0)).expect("a new name");
            let who = [b"a", b"b", b"c"].map(|name| group.create_consumer(name, 0).expect("a new name"));
            let (mut now_ms, mut is_counted) = (1000, true);
            for (passed_ms, op) in ops {
                now_ms += passed_ms;
                is_counted &= !matches!(op, Op::Remove(_));
                apply(&op, now_ms, &who, &mut stream, &mut twin);
                let group = stream.group(b"g").expect("it is never removed");
                let pending = group.pending_from(StreamId::MIN).map(|(id, p)| {
                    let consumer = who.iter().position(|&index| index == p.consumer).expect("one of three");
                    (id.ms, (consumer, p.delivered_ms, p.deliveries))
                });
                prop_assert_eq!(pending.collect::<BTreeMap<_, _>>(), twin.pending.clone());
                prop_assert_eq!(group.last_delivered().ms, twin.delivered_to);
                let lag = twin.entries.iter().filter(|&&ms| ms > twin.delivered_to).count() as i64;
                // A known lag is exact, and it is known unless entries were deleted.
                let told = stream.lag(group);
                prop_assert!(told.is_none() && !is_counted || told == Some(lag), "{:?} {}", told, lag);
            }
        }
    }
}

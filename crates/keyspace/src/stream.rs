//! The stream type: an append-only log of entries, each an ID and fields with values.
//!
//! ```text
//!   nodes   [entries 1-0 … 5-3][entries 5-4 … 9-0][entries 9-1 …]     ascending, in a ring
//! ```
//! Entries are in nodes (`node`), each limited in bytes and entries. IDs only ascend, so a new
//! entry goes to the last node, and trimming removes nodes from the front. An ID is found by binary
//! search over the nodes and a linear search within one node.
//!
//! The limits count as in Redis. An entry starts a new node when the last node has `entries_max`
//! entries, deleted ones included, or would exceed `bytes_max` with the entry's strings. A node has
//! fewer bytes than in Redis' own format, so nodes of large entries may hold more of them.
//!
//! Invariants: every node has a live entry; `len` is the number of live entries; `last_id` is not
//! below any entry's ID. A stream without entries still exists: it has its last ID.
//!
//! Complexity: append O(bytes), amortised; seek O(log nodes + entries of one node). Memory: an
//! entry with the same fields as the first one of its node costs its values and about five bytes.
//! Rejected: a radix tree over the nodes, because new IDs only arrive at the end.
//!
//! Consumer groups ([`Group`]) are stored beside the nodes, sorted by name. They store the IDs of
//! the entries that they have read and not yet acknowledged, even if an entry was deleted
//! (`delivery`).

mod delivery;
mod group;
mod id;
mod id_map;
mod idempotence;
mod node;

use std::collections::{VecDeque, vec_deque};

use structures::size_class::size_class;
use structures::walk_state::WalkState;
use structures::walked_row::WalkedRow;

use crate::freeing::FreeingSteps;

pub use delivery::{
    Acknowledgement, Autoclaimed, Claim, Claimed, Deliveries, Delivery, Release, ReleasedDeliveries, Removal,
};
pub use group::{Consumer, ConsumerIndex, Group, Pending};
pub use id::{IdText, StreamId};
pub use idempotence::{Idempotence, Message};
use node::Node;
pub use node::Pairs;

/// The limits of one node of a stream; 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// The most bytes of a stream's node: the option `stream-node-max-bytes`.
    pub node_bytes_max: usize,
    /// The most entries of a node: the option `stream-node-max-entries`.
    pub node_entries_max: usize,
}

/// The greatest length in bytes of an entry's strings together, and of a node.
const STRINGS_LEN_BYTES_MAX: usize = 1 << 30;

/// The reason why an entry cannot be appended to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// The new entry's ID is not above the stream's last one.
    NotAscending,
    /// The new entry's strings together are longer than the limit of a node.
    TooLarge,
}

/// The source of the ID of an entry that XADD appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the present millisecond with sequence number 0 if that is above the last ID, else the
    /// ID right after the last one.
    Auto,
    /// `ms-*`: this millisecond, with the next sequence number of the stream.
    AutoSeq(u64),
    /// The complete ID that the user gave to XADD.
    Given(StreamId),
}

/// The entries of a stream that a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The last entries of the stream are kept, up to this number.
    Last(u64),
    /// The entries with this ID or a higher one are kept.
    From(StreamId),
}

/// The exactness with which a trim of a stream removes entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimEffort {
    /// Every entry that the trim should not keep is removed.
    Exact,
    /// Only whole nodes of the stream are removed.
    WholeNodes {
        /// The most entries removed at once (`LIMIT`); 0 means no limit.
        entries_max: usize,
    },
}

/// The effect of removing an entry on the consumer groups that refer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// The entry stays in the consumer groups' lists of pending entries.
    #[default]
    Keep,
    /// The entry is removed from the consumer groups' lists of pending entries, too.
    Delete,
    /// The entry is removed only if every consumer group has read and acknowledged it.
    Acknowledged,
}

/// The result of [`Stream::trim`]: the removed entries.
#[derive(Debug, Default)]
pub struct StreamTrimmed {
    /// The number of entries that the trim removed.
    pub removed: usize,
    /// Most of the removed entries, if they are so many that the caller should free them in the
    /// background. Else `None`.
    pub leftovers: Option<Box<Stream>>,
    /// The entries that the trim removed and that were pending, because of [`References::Delete`].
    /// Each has the index of its consumer group. In the order of their IDs.
    pub acknowledged: Vec<(usize, StreamId)>,
    /// The IDs of the removed entries that come after an entry that [`References::Acknowledged`]
    /// kept, in order. The other removed entries were at the front of the stream.
    pub removed_behind_kept: Vec<StreamId>,
}

/// The upper limit of the number of entries ever added: clients read it as a signed number.
const ENTRIES_ADDED_MAX: u64 = i64::MAX as u64;

/// The most nodes that a trim frees itself, which takes some microseconds.
const FREED_NODES_MAX: usize = 16;

/// A stream: a log of entries with ascending IDs. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    nodes: WalkedRow<Node, StreamRest>,
    /// The sum of the bytes of the stream's nodes.
    nodes_len_bytes: usize,
    len: usize,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    /// The consumer groups of the stream, sorted by name.
    groups: Vec<Group>,
    /// The idempotent IDs, by which repeated messages are recognized; `None` if the stream never
    /// had any.
    idempotence: Option<Box<Idempotence>>,
}

/// The state that a stream had, besides its entries, at the start of a snapshot's walk of the
/// stream.
#[derive(Debug)]
pub struct StreamRest {
    /// The number of entries at the start of the snapshot's walk.
    pub len: usize,
    /// The ID of the first entry at the start of the snapshot's walk; 0-0 if there was none.
    pub first_entry_id: StreamId,
    /// A stream without entries that has the rest of the state: last ID, highest deleted ID, number
    /// of entries ever added, and groups.
    pub rest: Stream,
}

/// One entry of a stream, borrowed from the stream.
#[derive(Clone, Debug)]
pub struct StreamEntry<'a> {
    /// The ID of the entry.
    pub id: StreamId,
    /// The fields and values, in the order in which they were given.
    pub pairs: Pairs<'a>,
}

impl Stream {
    /// Creates a stream without entries; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of entries in the stream. O(1).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the stream has no entries. It may still exist as a key. O(1).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the contents of the stream's nodes, without the data of consumer
    /// groups. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.nodes_len_bytes
    }

    /// Returns the name of a stream's encoding for OBJECT ENCODING.
    pub fn encoding_name(&self) -> &'static str {
        "stream"
    }

    /// Returns the number of the stream's nodes. O(1).
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the highest ID that an entry ever had, or the last ID that XSETID set. O(1).
    #[inline]
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Returns the highest ID of an entry that was deleted by its ID (XDEL, not trimming). O(1).
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// Returns the number of entries ever appended to the stream. O(1).
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// Returns the ID of the first entry; `0-0` if there is none. O(entries of one node).
    pub fn first_entry_id(&self) -> StreamId {
        self.range(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// Returns the ID of the last entry; `0-0` if there is none. O(entries of one node).
    pub fn last_entry_id(&self) -> StreamId {
        self.range_rev(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// Returns the idempotent IDs, by which repeated messages are recognized; `None` if the stream
    /// never had any.
    pub fn idempotence(&self) -> Option<&Idempotence> {
        self.idempotence.as_deref()
    }

    /// Borrows the idempotent IDs, by which repeated messages are recognized, to change them.
    /// Creates them if there are none.
    pub fn idempotence_mut(&mut self) -> &mut Idempotence {
        self.idempotence.get_or_insert_default()
    }

    /// Sets the last ID of the stream. Panics if an entry has a higher ID.
    pub fn set_last_id(&mut self, id: StreamId) {
        assert!(self.last_entry_id() <= id, "an entry has a higher ID");
        self.last_id = id;
    }

    /// Sets the highest ID of an entry that was deleted from the stream by its ID.
    pub fn set_max_deleted_id(&mut self, id: StreamId) {
        self.max_deleted_id = id;
    }

    /// Sets the number of entries ever appended. The number is clamped to at least the number of
    /// present entries and at most 2^63 - 1. Limits the counts of entries read by groups to it.
    /// O(groups).
    pub fn set_entries_added(&mut self, count: u64) {
        self.entries_added = count.clamp(self.len as u64, ENTRIES_ADDED_MAX);
        let added = self.entries_added as i64;
        self.groups.iter_mut().for_each(|group| group.cap_entries_read(added));
    }

    /// Converts the stream to an iterator that frees one node, one run of pending entries, or the
    /// idempotent IDs of one producer, in each step. O(groups).
    pub fn into_freed(self) -> FreeingSteps {
        let groups = self.groups.into_iter().flat_map(Group::into_freed);
        let idempotence = self.idempotence.into_iter().flat_map(|all| all.into_freed());
        Box::new(self.nodes.into_nodes().into_iter().map(drop).chain(groups).chain(idempotence))
    }

    /// Returns the number of entries, pending entries, consumers and idempotent IDs: an estimate
    /// of the cost of freeing the stream. O(groups).
    pub fn element_count(&self) -> usize {
        let of_groups = self.groups().map(|group| group.pending_len() + group.consumer_count());
        self.len + of_groups.sum::<usize>() + self.idempotence().map_or(0, Idempotence::len)
    }

    /// Returns the bytes that the stream owns outside its key's block. O(nodes + runs of pending
    /// entries + consumers).
    pub fn memory_usage(&self) -> usize {
        let block = |bytes: usize| if bytes == 0 { 0 } else { size_class(bytes) };
        size_class(size_of::<Self>())
            + block(self.nodes.capacity() * size_of::<Node>())
            + self.nodes.iter().map(Node::memory_usage).sum::<usize>()
            + block(self.groups.capacity() * size_of::<Group>())
            + self.groups().map(Group::memory_usage).sum::<usize>()
            + self.idempotence.as_ref().map_or(0, |all| all.memory_usage())
    }

    // Changing.

    /// Returns the ID that a new entry of the stream gets if it is added at `now_ms` (Unix
    /// milliseconds). Returns `None` if that ID would not be above the stream's last one. O(1).
    #[inline]
    pub fn new_id(&self, wanted: NewId, now_ms: u64) -> Option<StreamId> {
        let last = self.last_id;
        let id = match wanted {
            NewId::Auto if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
            NewId::Auto => last.next()?,
            NewId::AutoSeq(ms) if ms == last.ms => StreamId { ms, seq: last.seq.checked_add(1)? },
            NewId::AutoSeq(ms) => StreamId { ms, seq: 0 },
            NewId::Given(id) => id,
        };
        (id > last).then_some(id)
    }

    /// Appends an entry; `words` are alternating fields and values. O(bytes) amortised.
    ///
    /// # Errors
    /// If the ID is not above the last one, or the strings together are longer than 1 GiB; then
    /// nothing has changed.
    #[inline]
    pub fn append<'v>(
        &mut self,
        id: StreamId,
        words: impl Iterator<Item = &'v [u8]> + Clone,
        limits: StreamLimits,
    ) -> Result<(), AppendError> {
        if id <= self.last_id {
            return Err(AppendError::NotAscending);
        }
        let len_bytes: usize = words.clone().map(<[u8]>::len).sum();
        if len_bytes > STRINGS_LEN_BYTES_MAX {
            return Err(AppendError::TooLarge);
        }
        match self.nodes.back_mut() {
            Some(last) if limits.take_into(last, len_bytes) => {
                let had = last.len_bytes();
                last.append(id, words);
                self.nodes_len_bytes += last.len_bytes() - had;
            }
            _ => {
                let mut node = Node::new(id, words.clone().step_by(2));
                node.append(id, words);
                self.nodes_len_bytes += node.len_bytes();
                if let Some(last) = self.nodes.len().checked_sub(1) {
                    self.nodes.reshape_mut(last).settle();
                }
                self.nodes.push_back(node);
            }
        }
        self.len += 1;
        self.entries_added = (self.entries_added + 1).min(ENTRIES_ADDED_MAX);
        self.last_id = id;
        Ok(())
    }

    /// Removes the entry with this ID from the stream. Returns true if there was one. O(log nodes +
    /// entries of one node), plus moving the nodes' handles if it was the last entry of its node.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let Some(index) = node_of(&self.nodes, id) else { return false };
        let at = self.nodes[index].seek(id);
        if !self.nodes[index].at(at).is_some_and(|entry| entry.id == id && !entry.deleted) {
            return false;
        }
        let node = self.nodes.node_mut(index);
        node.delete(at);
        if node.live() == 0 {
            self.nodes_len_bytes -= node.len_bytes();
            self.nodes.remove(index);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes entries from the front of the stream, down to those that `keep` names. O(nodes
    /// removed + entries of one node).
    ///
    /// If the stream has groups and `references` is not [`References::Keep`], the entries are
    /// checked and removed one by one, for either effort. This costs O(checked entries × groups log
    /// n). An entry that is removed after a kept one counts as deleted by its ID: it may raise the
    /// highest deleted ID.
    pub fn trim(&mut self, keep: Keep, effort: TrimEffort, references: References) -> StreamTrimmed {
        let limit = match effort {
            TrimEffort::Exact | TrimEffort::WholeNodes { entries_max: 0 } => usize::MAX,
            TrimEffort::WholeNodes { entries_max } => entries_max,
        };
        if references != References::Keep && !self.groups.is_empty() {
            return self.trim_entries(keep, limit, references);
        }
        let before = self.len;
        let mut nodes = 0;
        for node in &self.nodes {
            let goes = match keep {
                Keep::Last(count) => (self.len - node.live()) as u64 >= count,
                Keep::From(id) => node.last_id() < id,
            };
            if !goes || before - self.len + node.live() > limit {
                break;
            }
            self.len -= node.live();
            nodes += 1;
        }
        let leftovers = self.take_nodes(nodes);
        if effort == TrimEffort::Exact {
            self.trim_first_node(keep);
        }
        StreamTrimmed { removed: before - self.len, leftovers, ..StreamTrimmed::default() }
    }

    /// Removes `count` nodes from the front of the stream. Frees up to `FREED_NODES_MAX` nodes
    /// itself. Returns more nodes as a stream, for freeing in the background; else `None`.
    fn take_nodes(&mut self, count: usize) -> Option<Box<Self>> {
        if count <= FREED_NODES_MAX {
            for _ in 0..count {
                self.nodes_len_bytes -= self.nodes.pop_front().map_or(0, |node| node.len_bytes());
            }
            return None;
        }
        self.nodes_len_bytes -= self.nodes.range(..count).map(Node::len_bytes).sum::<usize>();
        // Does not contain the nodes that were moved to a walk in progress.
        let nodes = self.nodes.take_front(count);
        let len = nodes.iter().map(Node::live).sum();
        let nodes_len_bytes = nodes.iter().map(Node::len_bytes).sum();
        Some(Box::new(Self { nodes: nodes.into(), nodes_len_bytes, len, ..Self::default() }))
    }

    /// Removes those entries of the first node that `keep` does not keep.
    fn trim_first_node(&mut self, keep: Keep) {
        let Some(node) = self.nodes.front_mut() else { return };
        let mut at = node.start();
        while let Some(entry) = node.at(at) {
            let goes = match keep {
                Keep::Last(count) => self.len as u64 > count,
                Keep::From(id) => entry.id < id,
            };
            if !goes {
                break;
            }
            let (deleted, end) = (entry.deleted, entry.end);
            if !deleted {
                node.delete(at);
                self.len -= 1;
            }
            at = end;
        }
        // The remaining entries may have been deleted already.
        if node.live() == 0 {
            self.nodes_len_bytes -= node.len_bytes();
            self.nodes.pop_front();
        }
    }

    /// Removes entries from the front of the stream one by one, at most `limit`. `references`
    /// determines the entries that are kept because a consumer group needs them. Stops before a
    /// node that has more entries than may still be removed.
    fn trim_entries(&mut self, keep: Keep, limit: usize, references: References) -> StreamTrimmed {
        let read_up_to = match references {
            References::Acknowledged => self.read_by_all(),
            References::Keep | References::Delete => StreamId::MAX,
        };
        let mut trimmed = StreamTrimmed::default();
        let (mut index, mut done, mut has_kept) = (0, false, false);
        while let Some(node) = self.nodes.get(index)
            && !done
            && trimmed.removed + node.live() <= limit
        {
            let mut at = node.start();
            while let Some(entry) = self.nodes[index].at(at) {
                let (id, deleted, start) = (entry.id, entry.deleted, at);
                at = entry.end;
                let goes = match keep {
                    Keep::Last(count) => self.len as u64 > count,
                    Keep::From(first) => id < first,
                };
                if !goes || id > read_up_to {
                    done = true;
                    break;
                }
                if deleted {
                    continue;
                }
                if references == References::Acknowledged && is_pending(&self.groups, id) {
                    has_kept = true;
                    continue;
                }
                if references == References::Delete {
                    for (number, group) in self.groups.iter_mut().enumerate() {
                        if group.acknowledge(id) {
                            trimmed.acknowledged.push((number, id));
                        }
                    }
                }
                if has_kept {
                    trimmed.removed_behind_kept.push(id);
                    self.max_deleted_id = self.max_deleted_id.max(id);
                }
                self.nodes.node_mut(index).delete(start);
                self.len -= 1;
                trimmed.removed += 1;
            }
            if self.nodes[index].live() == 0 {
                self.nodes_len_bytes -= self.nodes.remove(index).len_bytes();
            } else {
                index += 1;
            }
        }
        trimmed
    }

    // Walks, for snapshots.

    /// Starts a snapshot's walk of the stream's present state, which [`Stream::walk_next`] visits.
    /// Returns the number of nodes. O(1), plus a copy of the groups' data.
    pub fn begin_walk(&mut self, walk_state: &WalkState) -> usize {
        let rest = Self {
            last_id: self.last_id,
            max_deleted_id: self.max_deleted_id,
            entries_added: self.entries_added,
            groups: self.groups.clone(),
            ..Self::default()
        };
        let rest = StreamRest { len: self.len, first_entry_id: self.first_entry_id(), rest };
        self.nodes.begin(walk_state, rest);
        self.nodes.len()
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the
    /// stream; `None` if there is none. O(1).
    pub fn ticket(&self) -> Option<u32> {
        self.nodes.ticket()
    }

    /// Calls `visit` with the entries of each of the next nodes of the snapshot's walk, in order,
    /// until these are at least `entries_min` entries. Returns `None`, or at the end of the walk
    /// the rest of the stream's state. O(bytes of the visited entries).
    pub fn walk_next(
        &mut self,
        entries_min: usize,
        mut visit: impl FnMut(&[StreamEntry<'_>]),
    ) -> Option<StreamRest> {
        let mut shown = 0;
        while shown < entries_min {
            let more = self.nodes.walk_next(|node| {
                shown += node.total();
                visit(&entries_of(node));
            });
            if !more {
                return self.nodes.end();
            }
        }
        None
    }

    // Reading.

    /// Returns an iterator over the stream's entries from `start` to `end`, both included, in
    /// ascending order. O(log nodes + entries of one node) to begin, then O(1) for each entry.
    pub fn range(&self, start: StreamId, end: StreamId) -> Range<'_> {
        range_of(&self.nodes, start, end)
    }

    /// Returns an iterator over the stream's entries from `end` down to `start`, both included.
    /// Costs as for [`Stream::range`].
    pub fn range_rev(&self, start: StreamId, end: StreamId) -> RangeRev<'_> {
        let behind = node_of(&self.nodes, end).map_or(0, |last| last + 1);
        let mut nodes = self.nodes.range(..behind);
        let node = nodes.next_back();
        let behind = |node: &Node| end.next().map_or(node.end(), |next| node.seek(next));
        RangeRev { node, at: node.map_or(0, behind), nodes, start }
    }
}

/// Returns the entries of a stream's node, in order.
fn entries_of(node: &Node) -> Vec<StreamEntry<'_>> {
    let mut at = node.start();
    let mut entries = Vec::with_capacity(node.live());
    while let Some(entry) = node.at(at) {
        at = entry.end;
        if !entry.deleted {
            entries.push(StreamEntry { id: entry.id, pairs: entry.pairs });
        }
    }
    entries
}

/// Returns the index of the only node that can have the entry `id`: the last node whose first ID is
/// not above `id`. Returns `None` if there is no such node.
fn node_of(nodes: &VecDeque<Node>, id: StreamId) -> Option<usize> {
    // New entries and their readers are at the end.
    if nodes.back().is_some_and(|last| last.base() <= id) {
        return Some(nodes.len() - 1);
    }
    nodes.partition_point(|node| node.base() <= id).checked_sub(1)
}

/// Returns an iterator over the entries in `nodes` from `start` to `end`, both included.
fn range_of(nodes: &VecDeque<Node>, start: StreamId, end: StreamId) -> Range<'_> {
    let first = node_of(nodes, start).unwrap_or(0);
    let mut nodes = nodes.range(first..);
    let node = nodes.next();
    Range { node, at: node.map_or(0, |node| node.seek(start)), nodes, end }
}

/// Returns true if the entry is pending in any consumer group: delivered and not acknowledged.
fn is_pending(groups: &[Group], id: StreamId) -> bool {
    groups.iter().any(|group| group.is_pending(id))
}

impl StreamLimits {
    /// Returns true if a new entry with strings of `len_bytes` bytes is appended to this node and
    /// not to a new one.
    #[inline]
    fn take_into(self, node: &Node, len_bytes: usize) -> bool {
        let bytes_max = match self.node_bytes_max {
            0 => STRINGS_LEN_BYTES_MAX,
            max => max.min(STRINGS_LEN_BYTES_MAX),
        };
        node.len_bytes() + len_bytes < bytes_max
            && (self.node_entries_max == 0 || node.total() < self.node_entries_max)
    }
}

/// An iterator over a range of a stream's entries in ascending order. See [`Stream::range`].
#[derive(Clone, Debug)]
pub struct Range<'a> {
    node: Option<&'a Node>,
    /// The byte offset of the next entry in `node`.
    at: usize,
    nodes: vec_deque::Iter<'a, Node>,
    end: StreamId,
}

impl<'a> Iterator for Range<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            let Some(entry) = self.node?.at(self.at) else {
                self.node = self.nodes.next();
                self.at = self.node.map_or(0, Node::start);
                continue;
            };
            if entry.id > self.end {
                self.node = None;
                return None;
            }
            self.at = entry.end;
            if !entry.deleted {
                return Some(StreamEntry { id: entry.id, pairs: entry.pairs });
            }
        }
    }
}

/// An iterator over a range of a stream's entries in descending order. See [`Stream::range_rev`].
#[derive(Clone, Debug)]
pub struct RangeRev<'a> {
    node: Option<&'a Node>,
    /// The byte offset in `node` at which the next entry ends.
    at: usize,
    nodes: vec_deque::Iter<'a, Node>,
    start: StreamId,
}

impl<'a> Iterator for RangeRev<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            let node = self.node?;
            let Some(at) = node.before(self.at) else {
                self.node = self.nodes.next_back();
                self.at = self.node.map_or(0, Node::end);
                continue;
            };
            let entry = node.at(at).expect("a place found from behind is an entry's");
            if entry.id < self.start {
                self.node = None;
                return None;
            }
            self.at = at;
            if !entry.deleted {
                return Some(StreamEntry { id: entry.id, pairs: entry.pairs });
            }
        }
    }
}

impl std::iter::FusedIterator for Range<'_> {}
impl std::iter::FusedIterator for RangeRev<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: StreamLimits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };

    type Twin = Vec<(StreamId, Vec<Vec<u8>>)>;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn add(stream: &mut Stream, id: StreamId, words: &[&str]) {
        stream.append(id, words.iter().map(|word| word.as_bytes()), DEFAULT).expect("ascending and small");
    }

    fn ids<'a>(entries: impl Iterator<Item = StreamEntry<'a>>) -> Vec<StreamId> {
        entries.map(|entry| entry.id).collect()
    }

    /// Creates a stream with the entries 1-0 to `count`-0.
    fn of(count: u64) -> Stream {
        let mut stream = Stream::new();
        (1..=count).for_each(|ms| add(&mut stream, id(ms, 0), &["f", "v"]));
        stream
    }

    #[test]
    fn ids_must_ascend() {
        let mut stream = of(5);
        let mut append = |id| stream.append(id, [b"f".as_slice(), b"v"].into_iter(), DEFAULT);
        assert_eq!(append(id(5, 0)), Err(AppendError::NotAscending));
        assert_eq!(append(id(4, 9)), Err(AppendError::NotAscending));
        assert_eq!(append(id(5, 1)), Ok(()));
        assert_eq!((stream.len(), stream.entries_added(), stream.last_id()), (6, 6, id(5, 1)));
    }

    #[test]
    fn new_ids_follow_the_clock_unless_it_is_behind() {
        let stream = of(5);
        let check = |wanted, now_ms, expected| assert_eq!(stream.new_id(wanted, now_ms), expected);
        check(NewId::Auto, 9, Some(id(9, 0)));
        check(NewId::Auto, 5, Some(id(5, 1)));
        check(NewId::AutoSeq(5), 0, Some(id(5, 1)));
        check(NewId::AutoSeq(7), 0, Some(id(7, 0)));
        check(NewId::AutoSeq(4), 0, None);
        check(NewId::Given(id(5, 0)), 0, None);
        check(NewId::Given(id(5, 2)), 0, Some(id(5, 2)));
        assert_eq!(Stream::new().new_id(NewId::AutoSeq(0), 0), Some(id(0, 1)));
        let mut full = Stream::new();
        full.set_last_id(StreamId::MAX);
        assert_eq!(full.new_id(NewId::Auto, 1), None);
        assert_eq!(full.new_id(NewId::AutoSeq(u64::MAX), 1), None);
    }

    #[test]
    fn nodes_are_bounded_by_entries_and_by_bytes() {
        assert_eq!(of(100).node_count(), 1);
        assert_eq!(of(101).node_count(), 2);
        let mut stream = Stream::new();
        (1..=8).for_each(|ms| add(&mut stream, id(ms, 0), &["f", &"x".repeat(1000)]));
        assert_eq!(stream.node_count(), 2);
        add(&mut stream, id(9, 0), &["f", &"x".repeat(100_000)]);
        assert_eq!((stream.node_count(), stream.len()), (3, 9));
    }

    #[test]
    fn a_thousand_entries_of_one_shape_take_little_more_than_their_values() {
        let stream = of(1000);
        assert!(stream.memory_usage() < 1000 * 9, "{}", stream.memory_usage());
    }

    #[test]
    fn an_approximate_trim_removes_whole_nodes_within_its_limit() {
        let whole = |entries_max| TrimEffort::WholeNodes { entries_max };
        assert_eq!(of(250).trim(Keep::Last(120), whole(0), References::Keep).removed, 100);
        assert_eq!(of(250).trim(Keep::Last(0), whole(0), References::Keep).removed, 250);
        assert_eq!(of(250).trim(Keep::Last(0), whole(199), References::Keep).removed, 100);
        assert_eq!(of(250).trim(Keep::Last(0), whole(99), References::Keep).removed, 0);
        assert_eq!(of(250).trim(Keep::From(id(200, 0)), whole(0), References::Keep).removed, 100);
        assert_eq!(of(250).trim(Keep::From(id(201, 0)), whole(0), References::Keep).removed, 200);
    }

    #[test]
    fn many_trimmed_nodes_are_handed_back() {
        let mut stream = of(5000);
        let trimmed = stream.trim(Keep::Last(10), TrimEffort::Exact, References::Keep);
        assert_eq!((trimmed.removed, stream.len()), (4990, 10));
        assert_eq!(trimmed.leftovers.map(|left| left.len()), Some(4900));
        assert_eq!(stream.first_entry_id(), id(4991, 0));
    }

    #[test]
    fn deleting_the_last_entries_leaves_an_empty_stream_that_knows_its_past() {
        let mut stream = of(2);
        assert!(stream.remove(id(2, 0)));
        assert!(!stream.remove(id(2, 0)));
        assert!(!stream.remove(id(0, 1)));
        assert!(stream.remove(id(1, 0)));
        assert_eq!((stream.node_count(), stream.len(), stream.first_entry_id()), (0, 0, id(0, 0)));
        assert_eq!(
            (stream.last_id(), stream.max_deleted_id(), stream.entries_added()),
            (id(2, 0), id(2, 0), 2)
        );
        assert_eq!(ids(stream.range(StreamId::MIN, StreamId::MAX)), []);
        assert_eq!(ids(stream.range_rev(StreamId::MIN, StreamId::MAX)), []);
    }

    /// Creates a stream with the entries 1-0 to 10-0, of which a consumer group has read six and
    /// acknowledged 1-0 and 3-0.
    fn read_by_a_group() -> Stream {
        let mut stream = of(10);
        let group = stream.create_group(b"g", StreamId::MIN, None).expect("a new name");
        let consumer = group.create_consumer(b"c", 0).expect("a new name");
        let acknowledgement = Acknowledgement::Awaited;
        let delivery = Delivery { consumer, count_max: 6, now_ms: 1, acknowledgement };
        assert_eq!(stream.deliver(b"g", &delivery, |_| {}), 6);
        let group = stream.group_mut(b"g").expect("just made");
        assert!(group.acknowledge(id(1, 0)) && group.acknowledge(id(3, 0)) && !group.acknowledge(id(3, 0)));
        stream
    }

    fn pending(stream: &Stream) -> Vec<u64> {
        let group = stream.group(b"g").expect("it is there");
        group.pending_from(StreamId::MIN).map(|(id, _)| id.ms).collect()
    }

    #[test]
    fn trimming_keeps_drops_or_heeds_what_is_pending() {
        for (references, left, still_pending) in [
            (References::Keep, vec![8, 9, 10], vec![2, 4, 5, 6]),
            (References::Delete, vec![8, 9, 10], vec![]),
            (References::Acknowledged, vec![2, 4, 5, 6, 7, 8, 9, 10], vec![2, 4, 5, 6]),
        ] {
            for keep in [Keep::Last(3), Keep::From(id(8, 0))] {
                let mut stream = read_by_a_group();
                let trimmed = stream.trim(keep, TrimEffort::Exact, references);
                assert_eq!(trimmed.removed, 10 - left.len());
                let entries = ids(stream.range(StreamId::MIN, StreamId::MAX));
                assert_eq!(entries.iter().map(|id| id.ms).collect::<Vec<_>>(), left, "{references:?}");
                assert_eq!(pending(&stream), still_pending, "{references:?}");
            }
        }
    }

    #[test]
    fn a_trim_returns_the_references_and_the_gaps_that_it_made() {
        let mut stream = read_by_a_group();
        let trimmed = stream.trim(Keep::Last(3), TrimEffort::Exact, References::Delete);
        assert_eq!(trimmed.acknowledged, [2, 4, 5, 6].map(|ms| (0, id(ms, 0))));
        assert_eq!((trimmed.removed_behind_kept, stream.max_deleted_id()), (vec![], StreamId::MIN));
        let mut stream = read_by_a_group();
        let trimmed = stream.trim(Keep::Last(3), TrimEffort::Exact, References::Acknowledged);
        assert_eq!((trimmed.removed, trimmed.acknowledged), (2, vec![]));
        // 2-0 is pending, so the removal of 3-0 left a gap.
        assert_eq!((trimmed.removed_behind_kept, stream.max_deleted_id()), (vec![id(3, 0)], id(3, 0)));
    }

    #[test]
    fn entries_nobody_refers_to_go_as_ever() {
        let trimmed = of(10).trim(Keep::Last(3), TrimEffort::Exact, References::Acknowledged);
        assert_eq!(trimmed.removed, 7);
    }

    #[test]
    fn a_removal_looks_at_the_groups_first() {
        let mut stream = read_by_a_group();
        let mut remove = |ms, references| stream.remove_with(id(ms, 0), references);
        assert_eq!(remove(1, References::Acknowledged), Removal::Removed);
        assert_eq!(remove(1, References::Acknowledged), Removal::Missing);
        assert_eq!(remove(2, References::Acknowledged), Removal::Referenced);
        assert_eq!(remove(7, References::Acknowledged), Removal::Referenced);
        assert_eq!(remove(2, References::Keep), Removal::Removed);
        assert_eq!(remove(2, References::Delete), Removal::Missing);
        assert_eq!(remove(4, References::Delete), Removal::Removed);
        assert_eq!(pending(&stream), [5, 6]);
    }

    #[test]
    fn a_copy_has_groups_of_its_own() {
        let stream = read_by_a_group();
        let mut copy = stream.clone();
        assert_eq!(copy.group_mut(b"g").expect("copied").remove_consumer(b"c"), Some(4));
        assert_eq!((pending(&copy).len(), pending(&stream).len()), (0, 4));
        assert!(stream.memory_usage() > of(10).memory_usage() + 4 * 56);
    }

    #[derive(Clone, Debug)]
    enum Op {
        /// An XADD with the increments of milliseconds and sequence number since the last ID, and
        /// the fields and values.
        Append(u64, u64, Vec<Vec<u8>>),
        Remove(usize),
        RemoveAny(u64, u64),
        TrimLast(u64),
        TrimFrom(u64),
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => prop::sample::select(vec!["a", "b", "temperature"]).prop_map(|word| word.as_bytes().to_vec()),
            2 => any::<i64>().prop_map(|int| int.to_string().into_bytes()),
            1 => (0_usize..200).prop_map(|len| vec![b'x'; len]),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        let words = || {
            prop_oneof![
                Just([b"f".as_slice(), b"v"].map(<[u8]>::to_vec).to_vec()),
                proptest::collection::vec((word(), word()), 1..4)
                    .prop_map(|pairs| pairs.into_iter().flat_map(|(f, v)| [f, v]).collect()),
            ]
        };
        prop_oneof![
            12 => (0_u64..300, 0_u64..300, words()).prop_map(|(ms, seq, words)| Op::Append(ms, seq, words)),
            3 => any::<usize>().prop_map(Op::Remove),
            1 => (0_u64..2000, 0_u64..3).prop_map(|(ms, seq)| Op::RemoveAny(ms, seq)),
            1 => (0_u64..30).prop_map(Op::TrimLast),
            1 => (0_u64..5000).prop_map(Op::TrimFrom),
        ]
    }

    fn apply(op: Op, stream: &mut Stream, twin: &mut Twin, limits: StreamLimits) {
        match op {
            Op::Append(ms, seq, words) => {
                let last = stream.last_id();
                let id = if ms == 0 { id(last.ms, last.seq + seq + 1) } else { id(last.ms + ms, seq) };
                stream.append(id, words.iter().map(Vec::as_slice), limits).expect("ascending and small");
                twin.push((id, words));
            }
            Op::Remove(at) => {
                if !twin.is_empty() {
                    let (id, _) = twin.remove(at % twin.len());
                    assert!(stream.remove(id));
                }
            }
            Op::RemoveAny(ms, seq) => {
                let at = twin.iter().position(|entry| entry.0 == id(ms, seq));
                assert_eq!(stream.remove(id(ms, seq)), at.is_some());
                at.into_iter().for_each(|at| drop(twin.remove(at)));
            }
            Op::TrimLast(count) => {
                let removed = twin.len().saturating_sub(count as usize);
                assert_eq!(
                    stream.trim(Keep::Last(count), TrimEffort::Exact, References::Keep).removed,
                    removed
                );
                twin.drain(..removed);
            }
            Op::TrimFrom(ms) => {
                let removed = twin.iter().take_while(|entry| entry.0 < id(ms, 1)).count();
                assert_eq!(
                    stream.trim(Keep::From(id(ms, 1)), TrimEffort::Exact, References::Keep).removed,
                    removed
                );
                twin.drain(..removed);
            }
        }
    }

    fn contents<'a>(entries: impl Iterator<Item = StreamEntry<'a>>) -> Twin {
        entries
            .map(|entry| {
                let words = entry.pairs.flat_map(|(field, value)| {
                    let mut text = Vec::new();
                    value.append_to(&mut text);
                    [field.to_vec(), text]
                });
                (entry.id, words.collect())
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn does_what_a_sorted_vector_does(
            node_entries_max in prop::sample::select(vec![0_usize, 1, 3, 100]),
            node_bytes_max in prop::sample::select(vec![0_usize, 50, 4096]),
            ops in proptest::collection::vec(op(), 0..60),
            bounds in (0_u64..6000, 0_u64..6000),
        ) {
            let limits = StreamLimits { node_bytes_max, node_entries_max };
            let (mut stream, mut twin) = (Stream::new(), Twin::new());
            for op in ops {
                apply(op, &mut stream, &mut twin, limits);
                prop_assert_eq!(stream.len(), twin.len());
                prop_assert_eq!(&contents(stream.range(StreamId::MIN, StreamId::MAX)), &twin);
                prop_assert_eq!(stream.first_entry_id(), twin.first().map_or(StreamId::MIN, |entry| entry.0));
                prop_assert_eq!(stream.last_entry_id(), twin.last().map_or(StreamId::MIN, |entry| entry.0));
                // Bounds that are equal to IDs of entries, and others.
                let exact = |at: u64| twin.get(at as usize % (twin.len() + 1)).map_or(id(at, 0), |entry| entry.0);
                for (start, end) in [
                    (id(bounds.0, 1), id(bounds.1, 1)),
                    (exact(bounds.0), exact(bounds.1)),
                    (StreamId::MIN, exact(bounds.1)),
                    (exact(bounds.0), StreamId::MAX),
                ] {
                    let mut expected: Twin =
                        twin.iter().filter(|entry| (start..=end).contains(&entry.0)).cloned().collect();
                    prop_assert_eq!(&contents(stream.range(start, end)), &expected);
                    expected.reverse();
                    prop_assert_eq!(&contents(stream.range_rev(start, end)), &expected);
                }
            }
        }
    }
}

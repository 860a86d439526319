//! One node of a quicklist: a run of listpack elements somewhere inside a buffer.
//!
//! ```text
//!   buffer  | slack | element element … element | slack |
//!                   ^ start                     ^ end
//! ```
//! With slack at both sides, pushing and popping at either end moves no other element. A listpack's
//! header and terminator are made only when the node is written out as a listpack.
//!
//! If a side runs out of slack, the run moves within the buffer, provided that at least a fifth of
//! the buffer is free. Otherwise it moves into a buffer twice as big, but at most a quarter longer
//! than a full node. A pushed byte therefore costs at most eight moved bytes.
//!
//! A *plain* node holds one big string and nothing else: its buffer is exactly that string. The
//! buffer of a *compressed* node is the LZF of its run or of its string. In a compressed packed
//! node, `start` is 0 and `end` the length of the run. In a compressed plain node, both are the
//! length of the string. The length and the number of elements are therefore known for every node.
//! Code that reads or changes elements first calls [`view`](Node::view) or
//! [`decompress`](Node::decompress).
//!
//! Invariant: `start <= end <= buffer.len()`, and the run consists of `count` valid elements. An
//! empty node has `count` 0; no empty node stays in a quicklist.

use super::{ENTRY_OVERHEAD_LEN_BYTES, NodeLimit, NodeView, REPLACED_LEN_BYTES_MAX};
use crate::listpack::OVERHEAD_LEN_BYTES;
use crate::listpack::element::{self, Element, Encoded, Needle};
use crate::lzf::{self, Compressor};
use crate::size_class::size_class;
use crate::walk_state::MemorySize;
use std::ops::Range;

/// An end (front or back) of a node's elements or of a whole quicklist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

/// The ends of a node's buffer that get unused bytes for more elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slack {
    /// Only the end of the node that is also an end of the list.
    OneSide,
    /// Both ends of the node, which is the list's only one.
    BothSides,
}

/// The side of an element at which another element is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

impl Side {
    /// Returns the end of the neighbouring node on this side of an element of a list: the back of
    /// the node before the element, the front of the node after it.
    pub(super) fn facing(self) -> End {
        match self {
            Side::Before => End::Back,
            Side::After => End::Front,
        }
    }
}

/// A node of a quicklist, 32 bytes long. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    buffer: Box<[u8]>,
    start: u32,
    end: u32,
    count: u32,
    plain: bool,
    compressed: bool,
    /// True if the last attempt to compress the node saved too few bytes, and the node has not
    /// changed since.
    incompressible: bool,
}

const _: () = assert!(size_of::<Node>() == 32);

/// The length in bytes below which nodes are not compressed, as in Redis.
const COMPRESS_LEN_BYTES_MIN: usize = 48;
/// The least number of bytes that compressing a node must save, as in Redis.
const COMPRESS_SAVED_BYTES_MIN: usize = 9;

/// Converts an offset within a packed node to the 32 bits in which it is stored. Buffers of packed
/// nodes come from pushes limited to 64 KiB, or from a listpack, whose format ends at 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("packed nodes are shorter than 4 GiB")
}

impl MemorySize for Node {
    fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.memory_usage()
    }
}

impl Node {
    /// Creates a node of a quicklist with one element in a buffer of `capacity` bytes, or of the
    /// element's length if that is more. The slack is at `end`.
    pub(super) fn packed(encoded: &Encoded<'_>, end: End, capacity: usize) -> Self {
        let len = encoded.len_bytes();
        let mut node = Self { buffer: vec![0; capacity.max(len)].into(), ..Self::default() };
        if end == End::Front {
            node.start = offset(node.buffer.len());
            node.end = node.start;
        }
        node.write_at_end(end, encoded, len);
        node
    }

    /// Creates a node of a quicklist with one element, in a buffer without unused bytes.
    pub(super) fn single(encoded: &Encoded<'_>) -> Self {
        Self::packed(encoded, End::Back, size_class(encoded.len_bytes()))
    }

    /// Creates a plain node that holds the string `bytes`.
    pub(super) fn plain(bytes: Box<[u8]>) -> Self {
        Self { buffer: bytes, count: 1, plain: true, ..Self::default() }
    }

    /// Creates a node of the `count` elements in the range `run` of `buffer`. The caller guarantees
    /// that they are valid listpack elements.
    pub(super) fn from_run(buffer: Box<[u8]>, run: Range<usize>, count: usize) -> Self {
        Self {
            start: offset(run.start),
            end: offset(run.end),
            buffer,
            count: offset(count),
            ..Self::default()
        }
    }

    /// Borrows the encoded elements of the node; empty for a plain node. Must not be called for a
    /// compressed node.
    #[inline]
    pub(super) fn run(&self) -> &[u8] {
        debug_assert!(!self.compressed);
        &self.buffer[self.start as usize..self.end as usize]
    }

    fn run_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start as usize..self.end as usize]
    }

    /// Borrows the string of a plain node, or its LZF if the node is compressed. Returns `None` for
    /// a packed node.
    #[inline]
    pub(super) fn as_plain(&self) -> Option<&[u8]> {
        self.plain.then_some(&*self.buffer)
    }

    /// Returns the number of elements in the node. O(1).
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the length of the elements in bytes, without compression; 0 for a plain node.
    #[inline]
    pub(super) fn run_len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns the length of the node's buffer in bytes. O(1).
    #[inline]
    pub(super) fn buffer_len_bytes(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn memory_usage(&self) -> usize {
        if self.buffer.is_empty() { 0 } else { size_class(self.buffer.len()) }
    }

    /// Returns true if the node is compressed. O(1).
    #[inline]
    pub(super) fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Returns the length in bytes of the node's listpack or string without compression. O(1).
    pub(super) fn uncompressed_len_bytes(&self) -> usize {
        match (self.plain, self.compressed) {
            (false, _) => self.run_len() + OVERHEAD_LEN_BYTES,
            (true, false) => self.buffer.len(),
            (true, true) => self.end as usize,
        }
    }

    /// Compresses the node if that saves at least [`COMPRESS_SAVED_BYTES_MIN`] bytes. O(bytes).
    pub(super) fn compress(&mut self, compressor: &mut Compressor) {
        let small = self.uncompressed_len_bytes() < COMPRESS_LEN_BYTES_MIN;
        if self.compressed || self.incompressible || small {
            return;
        }
        let raw = if self.plain { &self.buffer } else { self.run() };
        let shorter = compressor.compress(raw).filter(|it| it.len() + COMPRESS_SAVED_BYTES_MIN <= raw.len());
        let Some((shorter, len)) = shorter.zip(u32::try_from(raw.len()).ok()) else {
            self.incompressible = true;
            return;
        };
        self.start = if self.plain { len } else { 0 };
        self.end = len;
        self.buffer = shorter.into();
        self.compressed = true;
    }

    /// Decompresses the node if it is compressed. Must be called before every edit of a node that
    /// may be compressed. O(bytes).
    #[inline]
    pub(super) fn decompress(&mut self) {
        self.incompressible = false;
        if self.compressed {
            self.decompress_buffer();
        }
    }

    #[cold]
    fn decompress_buffer(&mut self) {
        let len = self.end as usize;
        let mut raw = Vec::with_capacity(if self.plain { len } else { size_class(len) });
        self.decompress_into(&mut raw);
        if self.plain {
            (self.start, self.end) = (0, 0);
        } else {
            raw.resize(raw.capacity(), 0);
        }
        self.buffer = raw.into();
        self.compressed = false;
    }

    /// Decompresses the bytes of a compressed node into `out`, whose content is replaced.
    fn decompress_into(&self, out: &mut Vec<u8>) {
        let intact = lzf::decompress_into(&self.buffer, self.end as usize, out);
        assert!(intact, "a node's LZF is what was made of it");
    }

    /// Borrows the node's content. A compressed node is decompressed into `scratch`. O(1), or
    /// O(bytes) for a compressed node.
    #[inline]
    pub(super) fn view<'a>(&'a self, scratch: &'a mut Vec<u8>) -> NodeView<'a> {
        if self.compressed {
            self.decompress_into(scratch);
            return match self.plain {
                true => NodeView::Plain(scratch),
                false => NodeView::Packed { run: scratch, count: self.count() },
            };
        }
        match self.as_plain() {
            Some(bytes) => NodeView::Plain(bytes),
            None => NodeView::Packed { run: self.run(), count: self.count() },
        }
    }

    /// Returns the byte offset of element `index` among the node's elements. O(distance from the
    /// nearer end).
    pub(super) fn seek(&self, index: usize) -> usize {
        if self.plain { 0 } else { element::seek(self.run(), self.count(), index) }
    }

    #[inline]
    fn slack(&self, end: End) -> usize {
        match end {
            End::Front => self.start as usize,
            End::Back => self.buffer.len() - self.end as usize,
        }
    }

    /// Returns true if the node may hold one more element, with a text of `text_len` bytes, within
    /// the limit.
    #[inline]
    pub(super) fn allows(&self, text_len: usize, limit: NodeLimit) -> bool {
        let estimate = self.run_len() + OVERHEAD_LEN_BYTES + text_len + ENTRY_OVERHEAD_LEN_BYTES;
        !self.plain && self.count < limit.count_max && estimate <= limit.listpack_len_max as usize
    }

    /// Adds an element at the end `end` of the node. The caller has checked [`Node::allows`]. O(its
    /// bytes), amortised.
    #[inline]
    pub(super) fn push(&mut self, end: End, encoded: &Encoded<'_>, slack: Slack, limit: NodeLimit) {
        let len = encoded.len_bytes();
        if self.slack(end) < len {
            self.make_room(end, len, slack, limit);
        }
        self.write_at_end(end, encoded, len);
    }

    /// Writes an element of `len` bytes into the unused part of the node's buffer at the end `end`.
    #[inline]
    fn write_at_end(&mut self, end: End, encoded: &Encoded<'_>, len: usize) {
        let at = match end {
            End::Front => {
                self.start -= offset(len);
                self.start
            }
            End::Back => {
                let at = self.end;
                self.end += offset(len);
                at
            }
        } as usize;
        encoded.write(&mut self.buffer[at..at + len]);
        self.count += 1;
    }

    /// Moves the node's elements so that the buffer has `len` unused bytes at the end `end`.
    #[cold]
    fn make_room(&mut self, end: End, len: usize, slack: Slack, limit: NodeLimit) {
        let old = self.buffer.len();
        let need = self.run_len() + len;
        let full = size_class(limit.run_len_max as usize);
        let capacity = if need <= old && old - self.run_len() >= old / 5 {
            old
        } else if old < full {
            size_class((2 * old).min(full).max(need))
        } else {
            // A queue stays in its nearly full node. With a fifth of the buffer free, the run moves
            // rarely enough.
            size_class(full + full / 4).max(old)
        };
        let free = capacity - self.run_len();
        let start = match (slack, end) {
            (Slack::BothSides, End::Front) => len.max(free / 2),
            (Slack::BothSides, End::Back) => (free - len).min(free / 2),
            (Slack::OneSide, End::Front) => free,
            (Slack::OneSide, End::Back) => 0,
        };
        self.move_run(capacity, start);
    }

    /// Moves the node's elements to offset `start` of the buffer, and makes the buffer `capacity`
    /// bytes long. Allocates a new buffer only if the present one has another length.
    fn move_run(&mut self, capacity: usize, start: usize) {
        let end = start + self.run_len();
        if capacity == self.buffer.len() {
            self.buffer.copy_within(self.start as usize..self.end as usize, start);
        } else {
            let mut buffer = vec![0; capacity].into_boxed_slice();
            buffer[start..end].copy_from_slice(self.run());
            self.buffer = buffer;
        }
        self.start = offset(start);
        self.end = offset(end);
    }

    /// Moves the node's elements to a buffer without unused bytes, if that is of a smaller size
    /// class.
    pub(super) fn seal(&mut self) {
        let capacity = size_class(self.run_len().max(1));
        if !self.plain && !self.compressed && capacity < self.buffer.len() {
            self.move_run(capacity, 0);
        }
    }

    /// Calls [`Node::seal`] if most of the buffer is unused.
    fn seal_if_sparse(&mut self) {
        if self.run_len() <= self.buffer.len() / 4 {
            self.seal();
        }
    }

    /// Calls `with` with the element at the end `end` of the node, then removes it. O(1). The node
    /// must not be empty.
    #[inline]
    pub(super) fn pop<R>(&mut self, end: End, with: impl FnOnce(Element<'_>) -> R) -> R {
        const NOT_EMPTY: &str = "no node of a list is empty";
        self.count -= 1;
        if self.plain {
            return with(Element::Bytes(&self.buffer));
        }
        match end {
            End::Front => {
                let (element, len) = element::decode(self.run()).expect(NOT_EMPTY);
                let result = with(element);
                self.start += offset(len);
                result
            }
            End::Back => {
                let (element, at) = element::decode_last(self.run()).expect(NOT_EMPTY);
                let result = with(element);
                self.end = self.start + offset(at);
                result
            }
        }
    }

    /// Inserts an element at byte offset `at` of the node's elements; moves the shorter side if
    /// possible. O(bytes).
    pub(super) fn insert(&mut self, at: usize, encoded: &Encoded<'_>, limit: NodeLimit) {
        let len = encoded.len_bytes();
        let (start, end) = (self.start as usize, self.end as usize);
        let front_is_shorter = at < self.run_len() / 2;
        let (front_fits, back_fits) = (self.slack(End::Front) >= len, self.slack(End::Back) >= len);
        if front_fits && (front_is_shorter || !back_fits) {
            self.buffer.copy_within(start..start + at, start - len);
            self.start -= offset(len);
        } else if back_fits {
            self.buffer.copy_within(start + at..end, start + at + len);
            self.end += offset(len);
        } else {
            let need = self.run_len() + len;
            // An eighth of slack, so that the next insertions find room; no slack beyond a full
            // node.
            let roomy = (need + need / 8).min(limit.run_len_max as usize);
            let mut buffer = vec![0; size_class(roomy.max(need))].into_boxed_slice();
            let (front, back) = self.run().split_at(at);
            buffer[..at].copy_from_slice(front);
            buffer[at + len..need].copy_from_slice(back);
            self.buffer = buffer;
            self.start = 0;
            self.end = offset(need);
        }
        let at = self.start as usize + at;
        encoded.write(&mut self.buffer[at..at + len]);
        self.count += 1;
    }

    /// Inserts an element into the node like [`Node::insert`], before or after all its elements.
    pub(super) fn insert_at_end(&mut self, end: End, encoded: &Encoded<'_>, limit: NodeLimit) {
        let at = match end {
            End::Front => 0,
            End::Back => self.run_len(),
        };
        self.insert(at, encoded, limit);
    }

    /// Removes the node's elements `index..index + n`, which must exist. O(distance + bytes of the
    /// shorter side).
    pub(super) fn remove(&mut self, index: usize, n: usize) {
        self.count -= offset(n);
        if self.plain || self.count == 0 {
            return;
        }
        let run = self.run();
        let count = self.count() + n;
        let (from, to) = if index + n == count {
            (element::seek(run, count, index), run.len())
        } else {
            let from = element::seek(run, count, index);
            (from, element::skip(run, from, n))
        };
        self.remove_bytes(from, to);
        self.seal_if_sparse();
    }

    /// Removes the bytes between the offsets `from` and `to` of the node's elements. Moves the
    /// bytes before or after them, whichever are fewer.
    fn remove_bytes(&mut self, from: usize, to: usize) {
        let run_len = self.run_len();
        let run = self.run_mut();
        if from < run_len - to {
            run.copy_within(..from, to - from);
            self.start += offset(to - from);
        } else {
            run.copy_within(to.., from);
            self.end -= offset(to - from);
        }
    }

    /// Replaces element `index` of a packed node. Returns false if the node would become too long.
    /// O(bytes).
    pub(super) fn replace(&mut self, index: usize, encoded: &Encoded<'_>, limit: NodeLimit) -> bool {
        let from = self.seek(index);
        let to = element::skip(self.run(), from, 1);
        let (old_len, new_len) = (to - from, encoded.len_bytes());
        let longest = REPLACED_LEN_BYTES_MAX.max(limit.run_len_max as usize);
        if new_len > old_len && self.run_len() - old_len + new_len > longest {
            return false;
        }
        if new_len == old_len {
            encoded.write(&mut self.run_mut()[from..to]);
        } else {
            self.remove_bytes(from, to);
            self.count -= 1;
            self.insert(from, encoded, limit);
            self.seal_if_sparse();
        }
        true
    }

    /// Removes elements equal to `needle` from the node: keeps the first `passed` of them, and
    /// removes at most `max` of the others. Returns the number removed. O(bytes).
    pub(super) fn remove_matches(&mut self, needle: Needle<'_>, passed: usize, max: usize) -> usize {
        if self.plain {
            let gone = passed == 0 && max > 0 && needle.matches(Element::Bytes(&self.buffer));
            self.count -= u32::from(gone);
            return usize::from(gone);
        }
        let (kept_len, removed) = element::remove_matches(self.run_mut(), needle, passed, max);
        if removed > 0 {
            self.end = self.start + offset(kept_len);
            self.count -= offset(removed);
            self.incompressible = false;
            self.seal_if_sparse();
        }
        removed
    }

    /// Counts the node's elements equal to `needle`. O(bytes).
    pub(super) fn count_matches(&self, needle: Needle<'_>) -> usize {
        let mut matches = 0;
        self.view(&mut Vec::new()).visit(|element| matches += usize::from(needle.matches(element)));
        matches
    }

    /// Returns true if an element of the node equals `needle`. A compressed node is decompressed
    /// into `scratch`. O(bytes).
    pub(super) fn holds(&self, needle: Needle<'_>, scratch: &mut Vec<u8>) -> bool {
        let mut holds = false;
        self.view(scratch).visit(|element| holds |= needle.matches(element));
        holds
    }

    /// Moves the elements from `index` on to a new node, which is returned. Neither node may become
    /// empty. O(bytes).
    pub(super) fn split_off(&mut self, index: usize) -> Self {
        let at = self.seek(index);
        let tail = &self.run()[at..];
        let mut buffer = vec![0; size_class(tail.len())].into_boxed_slice();
        buffer[..tail.len()].copy_from_slice(tail);
        let node = Self::from_run(buffer, 0..tail.len(), self.count() - index);
        self.end = self.start + offset(at);
        self.count = offset(index);
        self.seal_if_sparse();
        node
    }

    /// Returns true if this node and the next one are within the limit of one node together.
    pub(super) fn may_join(&self, next: &Self, limit: NodeLimit) -> bool {
        let len_bytes = self.run_len() + next.run_len() + OVERHEAD_LEN_BYTES;
        !self.plain && !next.plain && limit.allows_listpack(len_bytes, self.count() + next.count())
    }

    /// Appends the elements of `next` to this node. O(bytes).
    pub(super) fn join(&mut self, next: Self) {
        let added = next.run_len();
        if self.slack(End::Back) < added {
            self.move_run(size_class(self.run_len() + added), 0);
        }
        let end = self.end as usize;
        self.buffer[end..end + added].copy_from_slice(next.run());
        self.end += offset(added);
        self.count += next.count;
    }
}

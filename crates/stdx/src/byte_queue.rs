//! The unsent bytes of a connection, in order: a tail to which bytes are appended, and ahead of it
//! the chunks that were queued before, some of them by reference.
//!
//! ```text
//!   chunks (front … back)              tail
//!   [owned bytes][shared, counted][…]  [bytes being appended]
//!    ^ sent                            (the front itself while no chunk is queued)
//! ```
//! A typical reply is small and is stored in the tail alone: one `Vec`, no queue. A big value is
//! pushed as a counted reference and sent without being copied. `sent` counts the bytes of the
//! front that were sent: of the first chunk, or of the tail if there is no chunk. Invariant: no
//! queued chunk is empty; `sent` is less than the length of the front, or zero.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// Reference-counted bytes with several owners, such as a stored value that is also being sent.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A chunk of unsent bytes in the queue, which is sent before the tail.
enum Chunk {
    Owned(Vec<u8>),
    Shared(SharedBytes),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Owned(bytes) => bytes,
            Chunk::Shared(bytes) => (**bytes).as_ref(),
        }
    }
}

/// A queue of bytes to send. Appending is O(bytes); sharing is O(1); advancing is O(1) per chunk.
#[derive(Default)]
pub struct ByteQueue {
    chunks: VecDeque<Chunk>,
    chunks_len_bytes: usize,
    tail: Vec<u8>,
    sent: usize,
}

impl ByteQueue {
    /// Creates an empty queue; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty queue whose tail reuses the memory of `buffer` (its content is dropped).
    pub fn with_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { tail: buffer, ..Self::default() }
    }

    /// Creates a queue whose unsent bytes are `bytes`.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { tail: bytes, ..Self::default() }
    }

    /// Borrows the tail's buffer. The caller may only append: some of its bytes may already have
    /// been sent.
    #[inline]
    pub fn tail_mut(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Queues `bytes` by reference, after everything appended so far. O(1).
    pub fn push_shared(&mut self, bytes: SharedBytes) {
        if (*bytes).as_ref().is_empty() {
            return;
        }
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.chunks_len_bytes += tail.len();
            self.chunks.push_back(Chunk::Owned(tail));
        }
        self.chunks_len_bytes += (*bytes).as_ref().len();
        self.chunks.push_back(Chunk::Shared(bytes));
    }

    /// Queues the unsent bytes of `other` after everything appended so far. O(chunks of `other`);
    /// if `other` has no chunks, its tail is copied.
    ///
    /// # Panics
    /// If `other` has chunks and some of its bytes were already sent.
    pub fn append(&mut self, mut other: ByteQueue) {
        if other.chunks.is_empty() {
            self.tail.extend_from_slice(&other.tail[other.sent..]);
            return;
        }
        // Sent bytes of `other`'s first chunk would lie in the middle of this queue, where `sent`
        // cannot count them.
        assert_eq!(other.sent, 0, "only a queue of which nothing was sent is appended");
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.chunks_len_bytes += tail.len();
            self.chunks.push_back(Chunk::Owned(tail));
        }
        self.chunks_len_bytes += other.chunks_len_bytes;
        self.chunks.append(&mut other.chunks);
        self.tail = other.tail;
    }

    /// Moves the bytes of `other` after everything appended so far, and leaves `other` empty. No
    /// byte of `other` may have been sent. O(1) if this queue is empty; otherwise it costs as much
    /// as [`append`](Self::append).
    pub fn take_from(&mut self, other: &mut ByteQueue) {
        if self.is_empty() && self.sent == 0 {
            std::mem::swap(self, other);
            return;
        }
        let buffer = if other.chunks.is_empty() {
            self.tail.extend_from_slice(&other.tail[other.sent..]);
            std::mem::take(&mut other.tail)
        } else {
            self.append(std::mem::take(other));
            Vec::new()
        };
        *other = ByteQueue::with_buffer(buffer);
    }

    /// Returns the number of unsent bytes in the queue. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.chunks_len_bytes + self.tail.len() - self.sent
    }

    /// Returns true if the queue has no unsent bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Returns the number of chunks ahead of the tail, which CLIENT LIST reports as `oll`.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the capacity of the tail's buffer in bytes; the chunks do not count.
    pub fn capacity_bytes(&self) -> usize {
        self.tail.capacity()
    }

    /// Returns the unsent bytes if they are all in the tail (the common case), else `None`.
    #[inline]
    pub fn as_single(&self) -> Option<&[u8]> {
        self.chunks.is_empty().then(|| &self.tail[self.sent..])
    }

    /// Returns the unsent bytes of the first chunk, or of the tail if there is no chunk. Empty if
    /// everything was sent. O(1).
    #[inline]
    pub fn front(&self) -> &[u8] {
        match self.chunks.front() {
            Some(chunk) => &chunk.bytes()[self.sent..],
            None => &self.tail[self.sent..],
        }
    }

    /// Returns the unsent bytes in order, as at most `slices_max` slices for one write of several
    /// pieces of memory (`writev`).
    pub fn io_slices(&self, slices_max: usize) -> Vec<IoSlice<'_>> {
        let pieces = self.chunks.iter().map(Chunk::bytes).chain(std::iter::once(self.tail.as_slice()));
        let mut skip = self.sent;
        let mut slices = Vec::new();
        for piece in pieces.take(slices_max) {
            let unsent = &piece[std::mem::take(&mut skip)..];
            if !unsent.is_empty() {
                slices.push(IoSlice::new(unsent));
            }
        }
        slices
    }

    /// Marks the next `n` bytes as sent and frees each chunk that was sent whole.
    ///
    /// # Panics
    /// If `n` is more than `len_bytes()`.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len_bytes(), "more bytes sent than were queued");
        self.sent += n;
        while let Some(front) = self.chunks.front() {
            let len = front.bytes().len();
            if self.sent < len {
                return;
            }
            self.sent -= len;
            self.chunks_len_bytes -= len;
            self.chunks.pop_front();
        }
        if self.sent == self.tail.len() {
            self.tail.clear();
            self.sent = 0;
        }
    }

    /// Drops unsent bytes from the back until `len_bytes` are left. O(chunks dropped).
    ///
    /// # Panics
    /// If the cut is inside shared bytes, or `len_bytes` is more than `len_bytes()`.
    pub fn truncate(&mut self, len_bytes: usize) {
        assert!(len_bytes <= self.len_bytes(), "cannot keep more bytes than are queued");
        let keep = len_bytes + self.sent;
        while keep < self.chunks_len_bytes {
            let chunk = self.chunks.pop_back().expect("the chunks' length is not zero");
            self.chunks_len_bytes -= chunk.bytes().len();
            match chunk {
                Chunk::Owned(bytes) => self.tail = bytes,
                Chunk::Shared(_) => {
                    assert!(keep <= self.chunks_len_bytes, "a cut inside shared bytes");
                    self.tail.clear();
                }
            }
        }
        self.tail.truncate(keep - self.chunks_len_bytes);
    }

    /// Removes all but the first `len_bytes` unsent bytes and returns the removed ones as a new
    /// queue. O(chunks removed). Copies a part of at most one chunk or of the tail.
    ///
    /// # Panics
    /// If the cut is inside shared bytes, or `len_bytes` is more than `len_bytes()`.
    pub fn split_off(&mut self, len_bytes: usize) -> ByteQueue {
        assert!(len_bytes <= self.len_bytes(), "cannot keep more bytes than are queued");
        let keep = len_bytes + self.sent;
        let mut taken = ByteQueue::new();
        if keep >= self.chunks_len_bytes {
            taken.tail = self.tail.split_off(keep - self.chunks_len_bytes);
            return taken;
        }
        taken.tail = std::mem::take(&mut self.tail);
        while keep < self.chunks_len_bytes {
            let mut chunk = self.chunks.pop_back().expect("the chunks' length is not zero");
            self.chunks_len_bytes -= chunk.bytes().len();
            if let Chunk::Owned(bytes) = &mut chunk
                && keep > self.chunks_len_bytes
            {
                let behind = bytes.split_off(keep - self.chunks_len_bytes);
                self.tail = std::mem::replace(bytes, behind);
            }
            taken.chunks_len_bytes += chunk.bytes().len();
            taken.chunks.push_front(chunk);
        }
        assert_eq!(keep, self.chunks_len_bytes + self.tail.len(), "a cut inside shared bytes");
        taken
    }

    /// Inserts `bytes` after the first `at` unsent bytes. O(bytes after that place in the same
    /// chunk or in the tail).
    ///
    /// # Panics
    /// If `at` is inside shared bytes or after the end. It may be at the edge of shared bytes.
    pub fn insert(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len_bytes(), "cannot insert behind the end");
        let at = at + self.sent;
        if at >= self.chunks_len_bytes {
            insert_bytes(&mut self.tail, at - self.chunks_len_bytes, bytes);
            return;
        }
        let mut start = 0;
        for i in 0..self.chunks.len() {
            let len = self.chunks[i].bytes().len();
            match &mut self.chunks[i] {
                Chunk::Owned(owned) if at - start <= len => {
                    insert_bytes(owned, at - start, bytes);
                    break;
                }
                // `at` is directly before shared bytes, and no owned chunk ends there to which the
                // bytes could be appended.
                Chunk::Shared(_) if at == start => {
                    self.chunks.insert(i, Chunk::Owned(bytes.to_vec()));
                    break;
                }
                _ => start += len,
            }
            assert!(at >= start, "an insertion inside shared bytes");
        }
        self.chunks_len_bytes += bytes.len();
    }

    /// Takes the tail's buffer out of the queue, which must be empty, so that its memory can be
    /// reused.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty(), "the buffer still holds unsent bytes");
        self.sent = 0;
        std::mem::take(&mut self.tail)
    }
}

/// Inserts `bytes` into `target` at index `at`. The bytes after that index are moved once.
fn insert_bytes(target: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let len = target.len();
    target.extend_from_slice(bytes);
    target.copy_within(at..len, at + bytes.len());
    target[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut ByteQueue, step: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while !queue.is_empty() {
            let piece: Vec<u8> = queue.io_slices(8).iter().flat_map(|s| s.to_vec()).collect();
            let n = step.min(piece.len());
            got.extend_from_slice(&piece[..n]);
            queue.advance(n);
        }
        got
    }

    #[test]
    fn keeps_order_over_owned_and_shared_pieces_at_every_step() {
        for step in 1..20 {
            let mut queue = ByteQueue::new();
            queue.tail_mut().extend_from_slice(b"abc");
            queue.push_shared(Arc::new(b"SHARED".to_vec()));
            queue.push_shared(Arc::new(Vec::new()));
            queue.tail_mut().extend_from_slice(b"def");
            queue.push_shared(Arc::new(b"X".to_vec()));
            assert_eq!(queue.len_bytes(), 13);
            assert_eq!(drain(&mut queue, step), b"abcSHAREDdefX");
            assert_eq!(queue.chunk_count(), 0);
        }
    }

    #[test]
    fn takes_over_what_another_queue_holds() {
        for is_appended_to in [false, true] {
            for has_shared in [false, true] {
                let (mut queue, mut other) =
                    (ByteQueue::with_buffer(Vec::with_capacity(64)), ByteQueue::new());
                if is_appended_to {
                    queue.tail_mut().extend_from_slice(b"abc");
                }
                if has_shared {
                    other.push_shared(Arc::new(b"SS".to_vec()));
                }
                other.tail_mut().extend_from_slice(b"def");
                queue.take_from(&mut other);
                assert!(other.is_empty() && other.chunk_count() == 0);
                let expected = [
                    if is_appended_to { b"abc".as_slice() } else { b"" },
                    if has_shared { b"SS" } else { b"" },
                    b"def",
                ];
                assert_eq!(drain(&mut queue, 2), expected.concat());
            }
        }
    }

    #[test]
    fn inserts_and_truncates_at_every_edge_of_a_piece() {
        let build = || {
            let mut queue = ByteQueue::new();
            queue.tail_mut().extend_from_slice(b"zab");
            queue.push_shared(Arc::new(b"SS".to_vec()));
            queue.push_shared(Arc::new(b"TT".to_vec()));
            queue.tail_mut().extend_from_slice(b"cd");
            queue.advance(1);
            queue
        };
        for at in [0, 1, 2, 4, 6, 7, 8] {
            let mut expected = b"abSSTTcd".to_vec();
            let mut queue = build();
            queue.truncate(at);
            queue.tail_mut().push(b'!');
            assert_eq!(drain(&mut queue, 3), [&expected[..at], b"!"].concat());
            let mut queue = build();
            let behind = queue.split_off(at);
            queue.tail_mut().push(b'!');
            queue.append(behind);
            assert_eq!(queue.len_bytes(), 9);
            assert_eq!(drain(&mut queue, 3), [&expected[..at], b"!", &expected[at..]].concat());
            let mut queue = build();
            queue.insert(at, b"++");
            expected.splice(at..at, *b"++");
            assert_eq!(queue.len_bytes(), 10);
            assert_eq!(drain(&mut queue, 3), expected);
        }
    }

    #[test]
    fn a_tail_alone_is_one_piece_and_its_memory_comes_back() {
        let mut queue = ByteQueue::with_buffer(Vec::with_capacity(64));
        queue.tail_mut().extend_from_slice(b"hello");
        queue.advance(2);
        assert_eq!(queue.as_single(), Some(&b"llo"[..]));
        queue.advance(3);
        assert!(queue.take_buffer().capacity() >= 64);
    }
}

//! The backlog of a primary: the last bytes of the replication stream, in memory blocks from which
//! all replicas read.
//!
//! ```text
//!   start                                                              end
//!     ├── block ──┼── block ──┼── block ──┼── tail, being filled ──┤
//!           ▲ needed_from: the lowest offset that a connected replica still needs
//! ```
//! The backlog keeps at least the last [`Backlog::limit_bytes`] bytes, for replicas that reconnect.
//! It keeps more only while a connected replica needs them; the caller limits this by disconnecting
//! replicas ([`crate::primary::OutputLimit`]). Only whole blocks are freed. A block has about a
//! sixteenth of the limit, so the backlog is at most that much longer than the limit.
//!
//! **Positions.** The change log numbers changes by position; replicas acknowledge offsets of the
//! stream. The backlog stores a pair of position and offset for the end of each batch of the log.
//! So it can return the last position whose bytes end at or before an offset. Some old pairs are
//! dropped; a position returned for an old offset may then be lower than necessary, never higher.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The maximum length of a memory block of the backlog, in bytes.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// The minimum length of a memory block of the backlog, in bytes.
const BLOCK_BYTES_MIN: usize = 1 << 10;
/// The maximum number of stored pairs of a change log position and a stream offset in the backlog.
/// Beyond it, every second pair of the older half is dropped.
const PAIRS_MAX: usize = 1 << 14;
/// The memory of a full block besides its bytes: the counters of the `Arc` and the vector in it,
/// rounded up to the allocator's next size class.
const BLOCK_OVERHEAD_BYTES: usize = (2 * size_of::<usize>() + size_of::<Vec<u8>>()).next_multiple_of(16);
/// The capacity up to which a queue of the backlog is never shrunk, in elements.
const QUEUE_CAPACITY_MIN: usize = 64;
/// The minimum length in bytes of a part of a full block that [`Backlog::read`] returns by
/// reference. Shorter parts are copied.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// A piece of the replication stream that is to be sent to a replica.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A copy of bytes of the replication stream.
    Copied(Vec<u8>),
    /// A part of a block of the backlog, by reference.
    Shared(BlockPart),
}

/// A part of a block of the backlog: bytes of the replication stream. It keeps the block in memory
/// while it exists.
#[derive(Clone, Debug)]
pub struct BlockPart {
    block: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl AsRef<[u8]> for BlockPart {
    fn as_ref(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match self {
            Piece::Copied(bytes) => bytes,
            Piece::Shared(part) => part.as_ref(),
        }
    }
}

/// The backlog: the last bytes of the replication stream, in blocks of memory.
#[derive(Debug)]
pub struct Backlog {
    limit_bytes: u64,
    /// The offset in the replication stream of the backlog's first byte.
    start: u64,
    /// The full blocks of the backlog, oldest first.
    blocks: VecDeque<Arc<Vec<u8>>>,
    /// The offset in the replication stream of the first byte of `tail`, the block that is being
    /// filled.
    tail_start: u64,
    tail: Vec<u8>,
    needed_from: u64,
    /// Pairs of a position of the change log and the replication stream's offset at which the bytes
    /// of its change end, in ascending order.
    pairs: VecDeque<(u64, u64)>,
}

impl Backlog {
    /// Creates an empty backlog whose first byte will have the offset `start`.
    pub fn new(limit_bytes: u64, start: u64) -> Self {
        Self {
            limit_bytes,
            start,
            blocks: VecDeque::new(),
            tail_start: start,
            tail: Vec::new(),
            needed_from: u64::MAX,
            pairs: VecDeque::new(),
        }
    }

    /// Returns the minimum number of bytes that are kept for replicas that reconnect.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the offset in the replication stream of the backlog's first byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the offset after the last byte of the replication stream, in bytes.
    pub fn end(&self) -> u64 {
        self.tail_start + self.tail.len() as u64
    }

    /// Returns the memory of the backlog's blocks and position pairs, in bytes. O(1).
    pub fn memory_bytes(&self) -> u64 {
        // Blocks are full, except for the tail.
        let room = self.tail.capacity() - self.tail.len();
        let pairs = self.pairs.capacity() * size_of::<(u64, u64)>();
        let queue = self.blocks.capacity() * size_of::<Arc<Vec<u8>>>();
        let blocks = self.blocks.len() * BLOCK_OVERHEAD_BYTES + queue;
        self.end() - self.start + (room + pairs + blocks) as u64
    }

    /// Changes the minimum number of bytes that are kept for replicas that reconnect.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
        self.trim();
    }

    /// Sets the lowest offset that a connected replica still needs; `u64::MAX` if none needs any.
    pub fn set_needed_from(&mut self, offset: u64) {
        if self.needed_from != offset {
            self.needed_from = offset;
            self.trim();
        }
    }

    /// Returns the number of bytes of the replication stream that were not sent to the slowest
    /// replica yet; 0 without replicas.
    pub fn behind_bytes(&self) -> u64 {
        self.end().saturating_sub(self.needed_from)
    }

    fn block_bytes(&self) -> usize {
        usize::try_from(self.limit_bytes / 16).unwrap_or(usize::MAX).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
    }

    /// Appends bytes to the backlog as the new end of the replication stream. O(bytes).
    pub fn append(&mut self, mut bytes: &[u8]) {
        let block_bytes = self.block_bytes();
        while !bytes.is_empty() {
            if self.tail.capacity() == 0 {
                self.tail.reserve_exact(block_bytes);
            }
            let room = self.tail.capacity() - self.tail.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.tail.extend_from_slice(now);
            bytes = later;
            if self.tail.len() == self.tail.capacity() {
                let full = std::mem::take(&mut self.tail);
                self.tail_start += full.len() as u64;
                self.blocks.push_back(Arc::new(full));
                self.trim();
            }
        }
    }

    /// Frees the oldest blocks that are beyond the limit and that no connected replica needs.
    fn trim(&mut self) {
        let kept_from = self.end().saturating_sub(self.limit_bytes).min(self.needed_from);
        while let Some(first) = self.blocks.front() {
            let end = self.start + first.len() as u64;
            if end > kept_from {
                break;
            }
            self.start = end;
            self.blocks.pop_front();
        }
        let start = self.start;
        while self.pairs.len() > 1 && self.pairs[1].1 <= start {
            self.pairs.pop_front();
        }
        shrink(&mut self.blocks);
        shrink(&mut self.pairs);
    }

    /// Records that the present end of the replication stream is the end of the bytes of all
    /// changes up to `position` of the change log.
    pub fn note_position(&mut self, position: u64) {
        let end = self.end();
        if self.pairs.len() == PAIRS_MAX {
            // The newer half stays: acknowledgements of it are under way.
            let mut number = 0;
            self.pairs.retain(|_| {
                number += 1;
                number > PAIRS_MAX / 2 || number % 2 == 0
            });
        }
        match self.pairs.back_mut() {
            Some(last) if last.1 == end => last.0 = position,
            _ => self.pairs.push_back((position, end)),
        }
    }

    /// Returns the last recorded position of the change log whose changes end at or before `offset`
    /// in the replication stream. `None` if `offset` is before all recorded ones. O(log n).
    pub fn position_at(&self, offset: u64) -> Option<u64> {
        let after = self.pairs.partition_point(|&(_, end)| end <= offset);
        after.checked_sub(1).map(|last| self.pairs[last].0)
    }

    /// Returns the largest recorded offset up to which the replication stream has no change beyond
    /// the change log's `position`. `None` if all recorded positions are beyond it. O(log n).
    pub fn offset_at(&self, position: u64) -> Option<u64> {
        let after = self.pairs.partition_point(|&(noted, _)| noted <= position);
        after.checked_sub(1).map(|last| self.pairs[last].1)
    }

    /// Returns true if the backlog has all bytes of the replication stream from `offset` on, so
    /// that a replica can continue there.
    pub fn has(&self, offset: u64) -> bool {
        (self.start..=self.end()).contains(&offset)
    }

    /// Returns up to `max_bytes` bytes of the replication stream from `offset` on, as pieces in
    /// order. Empty if `offset` is the end. Large parts of full blocks are returned by reference;
    /// all other bytes are copied.
    ///
    /// # Panics
    /// If the backlog does not have `offset`.
    pub fn read(&self, offset: u64, max_bytes: usize) -> Vec<Piece> {
        assert!(self.has(offset), "offset {offset} is not in the backlog");
        let (mut pieces, mut left) = (Vec::new(), max_bytes);
        let mut block_start = self.start;
        for block in &self.blocks {
            let block_end = block_start + block.len() as u64;
            if offset < block_end && left > 0 {
                let from = offset.saturating_sub(block_start) as usize;
                let to = block.len().min(from.saturating_add(left));
                left -= to - from;
                pieces.push(if to - from >= SHARED_BYTES_MIN {
                    Piece::Shared(BlockPart { block: Arc::clone(block), range: from..to })
                } else {
                    Piece::Copied(block[from..to].to_vec())
                });
            }
            block_start = block_end;
        }
        let from = offset.saturating_sub(self.tail_start) as usize;
        let to = self.tail.len().min(from.saturating_add(left));
        if from < to {
            pieces.push(Piece::Copied(self.tail[from..to].to_vec()));
        }
        pieces
    }
}

/// Frees memory of a queue of the backlog if less than a quarter of its capacity is used, and keeps
/// spare capacity. Amortised O(1) for each element that was removed.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > QUEUE_CAPACITY_MIN.max(4 * queue.len()) {
        queue.shrink_to(QUEUE_CAPACITY_MIN.max(2 * queue.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(backlog: &Backlog, offset: u64, max_bytes: usize) -> Vec<u8> {
        backlog.read(offset, max_bytes).iter().flat_map(|piece| piece.as_ref().to_vec()).collect()
    }

    #[test]
    fn random_appends_and_reads_return_the_bytes_of_the_stream() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let base = rng.u64(..1000);
            let (mut backlog, mut all) = (Backlog::new(rng.u64(1..100_000), base), Vec::new());
            let mut needed = u64::MAX;
            for _ in 0..300 {
                let bytes: Vec<u8> = (0..rng.usize(..5000)).map(|_| rng.u8(..)).collect();
                backlog.append(&bytes);
                all.extend_from_slice(&bytes);
                assert_eq!(backlog.end(), base + all.len() as u64);
                if rng.u8(..10) == 0 {
                    needed = if rng.bool() { u64::MAX } else { rng.u64(backlog.start()..=backlog.end()) };
                    backlog.set_needed_from(needed);
                }
                if rng.u8(..50) == 0 {
                    backlog.set_limit(rng.u64(1..=backlog.limit_bytes()));
                }
                let offset = rng.u64(backlog.start()..=backlog.end());
                let from = (offset - base) as usize;
                let max_bytes = rng.usize(..70_000);
                let to = all.len().min(from + max_bytes);
                assert_eq!(read_all(&backlog, offset, max_bytes), all[from..to], "seed {seed}");
                let kept = backlog.end().saturating_sub(backlog.limit_bytes()).max(base);
                assert!(backlog.start() <= kept && backlog.start() <= needed.max(base), "seed {seed}");
            }
        }
    }

    #[test]
    fn the_excess_over_the_limit_is_a_few_blocks() {
        let mut backlog = Backlog::new(1 << 20, 0);
        for _ in 0..100_000 {
            backlog.append(&[7; 100]);
            assert!(backlog.memory_bytes() <= (1 << 20) * 9 / 8, "{}", backlog.memory_bytes());
        }
        assert!(backlog.end() - backlog.start() >= 1 << 20);
        // A stopped replica keeps everything, until it is disconnected.
        backlog.set_needed_from(backlog.end());
        backlog.append(&vec![7; 8 << 20]);
        assert!(backlog.memory_bytes() > 8 << 20);
        backlog.set_needed_from(u64::MAX);
        assert!(backlog.memory_bytes() <= (1 << 20) * 9 / 8);
    }

    #[test]
    fn what_a_slow_replica_took_is_given_back() {
        let mut backlog = Backlog::new(16 << 10, 0);
        backlog.set_needed_from(0);
        for position in 1..=PAIRS_MAX as u64 {
            backlog.append(&[7; 64]);
            backlog.note_position(position);
        }
        let full = backlog.memory_bytes();
        let blocks = backlog.blocks.len() * (BLOCK_BYTES_MIN + BLOCK_OVERHEAD_BYTES);
        assert!(full > (blocks + PAIRS_MAX * size_of::<(u64, u64)>()) as u64, "{full}");
        backlog.set_needed_from(u64::MAX);
        // Besides the bytes there are the pairs of 256 changes, and a tail.
        assert!(backlog.memory_bytes() < 32 << 10, "{}", backlog.memory_bytes());
    }

    #[test]
    fn positions_are_never_ahead_of_their_bytes() {
        let mut backlog = Backlog::new(1 << 30, 10);
        assert_eq!(backlog.position_at(u64::MAX), None);
        for position in 1..=100_000 {
            backlog.append(b"ab");
            backlog.note_position(position);
        }
        let last = backlog.position_at(backlog.end());
        assert_eq!(last, Some(100_000));
        for offset in (10..backlog.end()).step_by(777) {
            let position = backlog.position_at(offset).unwrap_or_default();
            assert!(10 + 2 * position <= offset, "{position} ends after {offset}");
        }
        // A ping moves the end without a position, a batch for files only a position without bytes.
        backlog.append(b"ping");
        assert_eq!(backlog.position_at(backlog.end()), last);
        backlog.note_position(100_005);
        assert_eq!(backlog.position_at(backlog.end()), Some(100_005));
        assert_eq!(backlog.position_at(backlog.end() - 1), last);
    }
}

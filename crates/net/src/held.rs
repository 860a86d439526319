//! Output of one connection that may not leave yet, in parts that are released first to last.
//!
//! ```text
//!   queue: [released, not sent yet][appended since] ◄─ parts: [first] … [last]
//! ```
//! What is appended while parts are held belongs behind them: it joins the last part when the
//! output is flushed, unless it becomes a part of its own before. Invariant: there is a part.

use std::collections::VecDeque;

use stdx::ByteQueue;

/// See the module.
#[derive(Default)]
pub(crate) struct Held {
    parts: VecDeque<ByteQueue>,
    /// Bytes at the front of the connection's queue that were released.
    released_len_bytes: usize,
    /// Sums over the parts.
    pub(crate) len_bytes: usize,
    pub(crate) capacity_bytes: usize,
    pub(crate) piece_count: usize,
}

impl Held {
    /// Creates a list without parts, behind a queue of this length that may be sent.
    pub(crate) fn behind(queue_len_bytes: usize) -> Self {
        Self { released_len_bytes: queue_len_bytes, ..Self::default() }
    }

    /// Adds a part that is behind all others.
    pub(crate) fn push(&mut self, part: ByteQueue) {
        self.count(&part);
        self.parts.push_back(part);
    }

    /// Moves what was appended to `queue` behind the last part. O(1) when nothing was.
    pub(crate) fn settle(&mut self, queue: &mut ByteQueue) {
        if queue.len_bytes() > self.released_len_bytes
            && let Some(mut last) = self.parts.pop_back()
        {
            self.discount(&last);
            last.append(split_off(queue, self.released_len_bytes));
            self.push(last);
        }
    }

    /// Moves the first part behind what was released before. Whether it was the last one: what was
    /// appended to `queue` may leave behind it then.
    pub(crate) fn release(&mut self, queue: &mut ByteQueue) -> bool {
        self.settle(queue);
        if let Some(part) = self.parts.pop_front() {
            self.discount(&part);
            self.released_len_bytes += part.len_bytes();
            if queue.is_empty() {
                *queue = part;
            } else {
                queue.append(part);
            }
        }
        self.parts.is_empty()
    }

    /// Takes note that the queue was taken away to be sent.
    pub(crate) fn queue_was_taken(&mut self) {
        self.released_len_bytes = 0;
    }

    fn count(&mut self, part: &ByteQueue) {
        self.len_bytes += part.len_bytes();
        self.capacity_bytes += part.capacity_bytes();
        self.piece_count += 1 + part.chunk_count();
    }

    fn discount(&mut self, part: &ByteQueue) {
        self.len_bytes -= part.len_bytes();
        self.capacity_bytes -= part.capacity_bytes();
        self.piece_count -= 1 + part.chunk_count();
    }
}

/// Splits the bytes behind the first `len_bytes` off `queue`. All of the queue keeps its own
/// buffers.
pub(crate) fn split_off(queue: &mut ByteQueue, len_bytes: usize) -> ByteQueue {
    if len_bytes == 0 { std::mem::take(queue) } else { queue.split_off(len_bytes) }
}

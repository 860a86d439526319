//! Output of one connection that is held back, in parts that are released in order, first to last.
//!
//! ```text
//!   queue: [released, not sent yet][appended since] ◄─ parts: [first] … [last]
//! ```
//! Bytes that are appended while parts are held must be sent after them. At the flush they join the
//! last part, unless they become a part of their own before. Invariant: there is at least one part.

use std::collections::VecDeque;

use stdx::ByteQueue;

/// The output parts of one connection that are held back, in the order in which they will be sent.
#[derive(Default)]
pub(crate) struct Held {
    parts: VecDeque<ByteQueue>,
    /// The number of bytes at the front of the connection's output queue that may be sent now,
    /// before all held parts.
    released_len_bytes: usize,
    /// The number of bytes in all held parts of the connection's output.
    pub(crate) len_bytes: usize,
    /// The capacity of the buffers of all held parts, in bytes.
    pub(crate) capacity_bytes: usize,
    /// The number of chunks of all held parts. In each part, the buffer to which bytes are appended
    /// counts as one chunk.
    pub(crate) piece_count: usize,
}

impl Held {
    /// Creates an empty list of held parts for a connection whose queue has `queue_len_bytes`
    /// bytes. All bytes in the queue may be sent.
    pub(crate) fn behind(queue_len_bytes: usize) -> Self {
        Self { released_len_bytes: queue_len_bytes, ..Self::default() }
    }

    /// Adds `part` of the connection's output as the last part that is held back.
    pub(crate) fn push(&mut self, part: ByteQueue) {
        self.count(&part);
        self.parts.push_back(part);
    }

    /// Moves the bytes that were appended to `queue` since the last part was made to the end of
    /// that part. O(1) if there are none.
    pub(crate) fn settle(&mut self, queue: &mut ByteQueue) {
        if queue.len_bytes() > self.released_len_bytes
            && let Some(mut last) = self.parts.pop_back()
        {
            self.discount(&last);
            last.append(split_off(queue, self.released_len_bytes));
            self.push(last);
        }
    }

    /// Moves the first held part to the end of the bytes in `queue` that may be sent now. Returns
    /// true if no part is left; then bytes appended to `queue` may be sent too.
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

    /// Records that the connection's queue was moved to a send, so that its new queue is empty.
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

/// Removes the bytes after the first `len_bytes` from `queue` and returns them. If `len_bytes` is
/// 0, nothing is copied.
pub(crate) fn split_off(queue: &mut ByteQueue, len_bytes: usize) -> ByteQueue {
    if len_bytes == 0 { std::mem::take(queue) } else { queue.split_off(len_bytes) }
}

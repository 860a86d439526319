//! The unsent output of every connection of a loop.
//!
//! ```text
//!   slot ── unsent: ByteQueue  bytes that an earlier flush could not send (nothing is appended)
//!      ├─── sealing: ByteQueue only of encrypted connections: sealed part by part into `unsent`
//!      ├─── queue:  ByteQueue  bytes appended since (moved to `unsent`, or `sealing`, when
//!      │                       that is empty)
//!      └─── held:   parts      held back until the caller releases them, after the queue
//! ```
//! There are two queues so that sent bytes are freed. With a single queue, bytes would be appended
//! while its front is being sent. If the peer always reads a little too slowly, the queue would
//! never become empty and its memory never be freed. Buffers come from a pool of the thread and
//! return to it once sent: an idle connection owns none.

use stdx::ByteQueue;

use crate::ConnId;
use crate::carried::CarriedOutput;
use crate::held::{Held, split_off};

/// The maximum number of output buffers in the pool of a loop. Together they have at most 8 MiB,
/// and usually the few kilobytes of the last turns.
const POOLED_COUNT_MAX: usize = 512;
/// The maximum capacity of an output buffer that returns to the pool, in bytes.
const POOLED_CAPACITY_BYTES_MAX: usize = 16 * 1024;
/// The capacity of a new output buffer, in bytes: enough for a few small replies.
const BUFFER_CAPACITY_BYTES: usize = 512;

/// The output queues of all connections of a loop.
#[derive(Default)]
pub struct Outputs {
    slots: Vec<OutputSlot>,
    /// The connections whose output queue was borrowed since the last flush.
    dirty: Vec<ConnId>,
    pool: Vec<Vec<u8>>,
    /// The connections whose output could not be sent completely, each of them once.
    /// [`take_behind`](Self::take_behind) empties the list.
    behind: Vec<ConnId>,
    /// The queue that takes bytes written for closed connections; every flush empties it without
    /// sending.
    nowhere: ByteQueue,
}

#[derive(Default)]
struct OutputSlot {
    generation: u32,
    /// True if the connection is in `Outputs::dirty`, or if its flushes are stopped.
    dirty: bool,
    /// True if the connection is in `Outputs::behind`, because its output could not be sent
    /// completely.
    noted_behind: bool,
    queue: ByteQueue,
    unsent: ByteQueue,
    /// The number of bytes that a send of the kernel has taken. They are not in `unsent` until the
    /// send completes.
    in_flight_len_bytes: usize,
    /// The parts of the output that are held back; `None` if there are none.
    held: Option<Box<Held>>,
    /// The plaintext that is being encrypted, which is sent before the plaintext in `queue`. `Some`
    /// for encrypted connections only; their `unsent` has encrypted bytes, and only those are sent.
    sealing: Option<Box<ByteQueue>>,
}

impl OutputSlot {
    /// Moves the bytes that were appended to the queue while parts are held to the end of the last
    /// part, so that they are sent after it.
    #[inline]
    fn settle_held(&mut self) {
        if let Some(held) = &mut self.held {
            held.settle(&mut self.queue);
        }
    }

    /// Takes the queue to send it, and leaves an empty one. Records in `held` that no byte of the
    /// new queue may be sent before the held parts.
    #[inline]
    fn take_queue(&mut self) -> ByteQueue {
        if let Some(held) = &mut self.held {
            held.queue_was_taken();
        }
        std::mem::take(&mut self.queue)
    }
}

impl Outputs {
    /// Borrows the queue of `conn`, to append output to it. For a closed connection it is a queue
    /// that is never sent. O(1).
    #[inline]
    pub fn queue(&mut self, conn: ConnId) -> &mut ByteQueue {
        let slot = self.slots.get_mut(conn.index());
        let Some(slot) = slot.filter(|slot| slot.generation == conn.generation()) else {
            return &mut self.nowhere;
        };
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(conn);
            if slot.queue.capacity_bytes() == 0 && slot.queue.is_empty() {
                let buffer = self.pool.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_CAPACITY_BYTES));
                slot.queue = ByteQueue::with_buffer(buffer);
            }
        }
        &mut slot.queue
    }

    /// Returns the number of unsent bytes of `conn`. O(1).
    #[inline]
    pub fn len_bytes(&self, conn: ConnId) -> usize {
        self.slot(conn).map_or(0, |slot| {
            let held = slot.held.as_ref().map_or(0, |held| held.len_bytes);
            let sealing = slot.sealing.as_ref().map_or(0, |sealing| sealing.len_bytes());
            slot.queue.len_bytes() + slot.unsent.len_bytes() + slot.in_flight_len_bytes + held + sealing
        })
    }

    /// Returns the number of unsent bytes of `conn` that are held back. O(1).
    #[inline]
    pub fn held_len_bytes(&self, conn: ConnId) -> usize {
        self.slot(conn).and_then(|slot| slot.held.as_ref()).map_or(0, |held| held.len_bytes)
    }

    /// Holds back the last `len_bytes` of the bytes appended to the queue of `conn` since the last
    /// flush. These bytes become one part, the last of the held parts. Bytes appended later are
    /// sent after this part. Returns false for a stale id or zero bytes. O(1) if all of the queue
    /// is held, else O(`len_bytes`).
    ///
    /// The part must not begin inside bytes that were queued by reference, nor before the parts
    /// that were made since the last flush.
    pub fn hold(&mut self, conn: ConnId, len_bytes: usize) -> bool {
        let Some(slot) = self.slot_mut(conn).filter(|_| len_bytes > 0) else { return false };
        let before = slot.queue.len_bytes().checked_sub(len_bytes);
        let part = split_off(&mut slot.queue, before.expect("no more is held than was appended"));
        slot.settle_held();
        let held = slot.held.get_or_insert_with(|| Box::new(Held::behind(slot.queue.len_bytes())));
        held.push(part);
        true
    }

    /// Releases the first held part of `conn`: the next flush sends it, and also the bytes appended
    /// between that part and the next. Does nothing for a stale id. O(1) if the queue is empty,
    /// else up to O(bytes).
    pub fn release(&mut self, conn: ConnId) {
        let Some(slot) = self.slots.get_mut(conn.index()) else { return };
        if slot.generation != conn.generation() {
            return;
        }
        let Some(held) = &mut slot.held else { return };
        if slot.queue.is_empty() {
            keep(&mut self.pool, &mut slot.queue);
        }
        if held.release(&mut slot.queue) {
            slot.held = None;
        }
        if !std::mem::replace(&mut slot.dirty, true) {
            self.dirty.push(conn);
        }
    }

    /// Returns true if a part of the output of `conn` is held back.
    #[inline]
    pub(crate) fn holds(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.held.is_some())
    }

    /// Returns the capacity of the output buffers of `conn` into which bytes are copied, in bytes.
    /// Buffers with unsent bytes are included. 0 if it has no buffer. O(1).
    pub fn capacity_bytes(&self, conn: ConnId) -> usize {
        self.slot(conn).map_or(0, |slot| {
            let held = slot.held.as_ref().map_or(0, |held| held.capacity_bytes);
            let sealing = slot.sealing.as_ref().map_or(0, |sealing| sealing.capacity_bytes());
            slot.queue.capacity_bytes() + slot.unsent.capacity_bytes() + held + sealing
        })
    }

    /// Returns the number of chunks of unsent output of `conn`, without the buffer to which bytes
    /// are appended. The bytes that the kernel is sending count as one chunk. O(1).
    pub fn piece_count(&self, conn: ConnId) -> usize {
        self.slot(conn).map_or(0, |slot| {
            let unsent = slot.unsent.chunk_count() + usize::from(!slot.unsent.is_empty());
            let held = slot.held.as_ref().map_or(0, |held| held.piece_count);
            let sealing = slot.sealing.as_ref();
            let sealing = sealing.map_or(0, |queue| queue.chunk_count() + usize::from(!queue.is_empty()));
            slot.queue.chunk_count() + unsent + usize::from(slot.in_flight_len_bytes > 0) + held + sealing
        })
    }

    #[inline]
    fn slot(&self, conn: ConnId) -> Option<&OutputSlot> {
        self.slots.get(conn.index()).filter(|slot| slot.generation == conn.generation())
    }

    #[inline]
    fn slot_mut(&mut self, conn: ConnId) -> Option<&mut OutputSlot> {
        self.slots.get_mut(conn.index()).filter(|slot| slot.generation == conn.generation())
    }

    pub(crate) fn open(&mut self, conn: ConnId) {
        if self.slots.len() <= conn.index() {
            self.slots.resize_with(conn.index() + 1, OutputSlot::default);
        }
        self.slots[conn.index()] = OutputSlot { generation: conn.generation(), ..OutputSlot::default() };
    }

    /// Marks `conn` as encrypted: its output queue is encrypted before it is sent.
    pub(crate) fn seal(&mut self, conn: ConnId) {
        if let Some(slot) = self.slot_mut(conn) {
            slot.sealing = Some(Box::default());
        }
    }

    /// Returns true if the queue of `conn` is encrypted before it is sent.
    pub(crate) fn is_sealed(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.sealing.is_some())
    }

    /// Adds `conn` to the connections whose output the next flush sends.
    pub(crate) fn mark_dirty(&mut self, conn: ConnId) {
        if let Some(slot) = self.slot_mut(conn)
            && !std::mem::replace(&mut slot.dirty, true)
        {
            self.dirty.push(conn);
        }
    }

    /// Returns the plaintext of `conn` to encrypt next, which may be empty, and a buffer for the
    /// TLS records. `None` while encrypted bytes are unsent. The caller passes the buffer to
    /// [`put_sealed`](Self::put_sealed).
    pub(crate) fn next_to_seal(&mut self, conn: ConnId) -> Option<(&mut ByteQueue, Vec<u8>)> {
        let slot = self.slots.get_mut(conn.index())?;
        if slot.generation != conn.generation() || slot.in_flight_len_bytes > 0 || !slot.unsent.is_empty() {
            return None;
        }
        slot.sealing.as_ref()?;
        let mut buffer = slot.unsent.take_buffer();
        if buffer.capacity() == 0 {
            buffer = self.pool.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_CAPACITY_BYTES));
        }
        if slot.sealing.as_ref().is_some_and(|sealing| sealing.is_empty()) {
            slot.settle_held();
            let queue = slot.take_queue();
            let sealing = slot.sealing.as_mut()?;
            keep(&mut self.pool, sealing);
            **sealing = queue;
        }
        buffer.clear();
        Some((self.slots[conn.index()].sealing.as_mut()?, buffer))
    }

    /// Stores the TLS records in `buffer`, which [`next_to_seal`](Self::next_to_seal) returned, as
    /// the unsent bytes of `conn`.
    pub(crate) fn put_sealed(&mut self, conn: ConnId, buffer: Vec<u8>) {
        let Some(slot) = self.slots.get_mut(conn.index()) else { return };
        if slot.generation == conn.generation() {
            slot.unsent = ByteQueue::of_bytes(buffer);
            if slot.unsent.is_empty() {
                keep(&mut self.pool, &mut slot.unsent);
            }
            if let Some(sealing) = slot.sealing.as_mut().filter(|sealing| sealing.is_empty()) {
                keep(&mut self.pool, sealing);
            }
        }
    }

    /// Takes the encrypted bytes of `conn`, so that the kernel can send them. [`sent`](Self::sent)
    /// takes back the bytes that were not sent.
    pub(crate) fn take_sealed(&mut self, conn: ConnId) -> Option<ByteQueue> {
        let slot = self.slot_mut(conn)?;
        slot.in_flight_len_bytes = slot.unsent.len_bytes();
        Some(std::mem::take(&mut slot.unsent))
    }

    /// Stops the flushes of `conn`: bytes appended later stay in its queue. O(connections with
    /// output in this turn).
    pub(crate) fn stop(&mut self, conn: ConnId) {
        if let Some(slot) = self.slot_mut(conn)
            && std::mem::replace(&mut slot.dirty, true)
        {
            self.dirty.retain(|&other| other != conn);
        }
    }

    /// Resumes the flushes of a stopped connection: the next flush sends its queue.
    pub(crate) fn resume(&mut self, conn: ConnId) {
        if self.slot(conn).is_some() {
            self.dirty.push(conn);
        }
    }

    /// Returns all unsent output of `conn` and frees its slot. The kernel must not be sending bytes
    /// of `conn`.
    pub(crate) fn take(&mut self, conn: ConnId) -> CarriedOutput {
        let Some(slot) = self.slot_mut(conn) else { return CarriedOutput::default() };
        debug_assert_eq!(slot.in_flight_len_bytes, 0, "the kernel still has bytes");
        let OutputSlot { unsent, sealing, queue, held, .. } = std::mem::take(slot);
        CarriedOutput { unsent, sealing, queue, held }
    }

    /// Stores `output`, which a connection brings from another loop, as the output of `conn`, which
    /// was opened just now. The next flush sends it. Returns true if a flush of the other loop has
    /// left bytes unsent.
    pub(crate) fn put(&mut self, conn: ConnId, output: CarriedOutput) -> bool {
        let Some(slot) = self.slot_mut(conn) else { return false };
        let CarriedOutput { unsent, sealing, queue, held } = output;
        (slot.unsent, slot.sealing, slot.queue, slot.held) = (unsent, sealing, queue, held);
        self.mark_dirty(conn);
        self.is_behind(conn)
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        if let Some(slot) = self.slot_mut(conn) {
            *slot = OutputSlot::default();
        }
    }

    /// Returns the list of connections to flush, and leaves an empty one. The caller passes the
    /// list to [`end_flush`](Self::end_flush).
    pub(crate) fn begin_flush(&mut self) -> Vec<ConnId> {
        if !self.nowhere.is_empty() {
            self.nowhere = ByteQueue::new();
        }
        std::mem::take(&mut self.dirty)
    }

    /// Takes back the list of [`begin_flush`](Self::begin_flush) to reuse its memory.
    pub(crate) fn end_flush(&mut self, mut flushed: Vec<ConnId>) {
        flushed.clear();
        // Nothing is appended during a flush, so the list that replaced it is empty.
        self.dirty = flushed;
    }

    /// Returns the queue of `conn`, to be sent directly. `None` if it is empty, if bytes of an
    /// earlier flush are unsent, and for encrypted connections. Returns the buffer of an empty
    /// queue to the pool.
    pub(crate) fn flushable(&mut self, conn: ConnId) -> Option<&mut ByteQueue> {
        let slot = self.slots.get_mut(conn.index())?;
        if slot.generation != conn.generation() {
            return None;
        }
        slot.dirty = false;
        if slot.sealing.is_some() {
            return None;
        }
        slot.settle_held();
        if slot.queue.is_empty() {
            keep(&mut self.pool, &mut slot.queue);
            return None;
        }
        if !slot.unsent.is_empty() || slot.in_flight_len_bytes > 0 {
            self.note_behind(conn);
            return None;
        }
        Some(&mut self.slots[conn.index()].queue)
    }

    /// Returns the connections whose output could not be sent completely since the last call of
    /// this function, and empties the list.
    pub fn take_behind(&mut self) -> Vec<ConnId> {
        for conn in &self.behind {
            if let Some(slot) = self.slots.get_mut(conn.index()) {
                slot.noted_behind = false;
            }
        }
        std::mem::take(&mut self.behind)
    }

    #[cold]
    pub(crate) fn note_behind(&mut self, conn: ConnId) {
        let Some(slot) = self.slot_mut(conn) else { return };
        if !std::mem::replace(&mut slot.noted_behind, true) {
            self.behind.push(conn);
        }
    }

    /// Returns true if a flush has left bytes of `conn` unsent.
    pub(crate) fn is_behind(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| !slot.unsent.is_empty() || slot.in_flight_len_bytes > 0)
    }

    /// Returns true while the kernel is sending bytes of `conn`.
    pub(crate) fn in_flight(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.in_flight_len_bytes > 0)
    }

    /// Handles the end of a send of the queue of `conn`: an empty queue returns its buffer to the
    /// pool; otherwise the rest becomes `unsent`.
    #[inline]
    pub(crate) fn after_send(&mut self, conn: ConnId) {
        let Some(slot) = self.slots.get_mut(conn.index()) else { return };
        let mut queue = slot.take_queue();
        if queue.is_empty() {
            keep(&mut self.pool, &mut queue);
        } else {
            slot.unsent = queue;
            self.note_behind(conn);
        }
    }

    /// Takes the output queue of `conn`, so that the kernel can send it. `None` unless the queue is
    /// one contiguous piece. [`sent`](Self::sent) takes back the bytes that were not sent.
    pub(crate) fn take_single(&mut self, conn: ConnId) -> Option<ByteQueue> {
        let slot = self.slot_mut(conn)?;
        if slot.queue.chunk_count() > 0 {
            return None;
        }
        slot.in_flight_len_bytes = slot.queue.len_bytes();
        Some(slot.take_queue())
    }

    /// Takes back a queue from `take_single` or `take_sealed` after the send; the bytes that were
    /// not sent become `unsent`. The buffer of an empty queue returns to the pool, even if the
    /// connection is closed.
    pub(crate) fn sent(&mut self, conn: ConnId, mut queue: ByteQueue) {
        if let Some(slot) =
            self.slots.get_mut(conn.index()).filter(|slot| slot.generation == conn.generation())
        {
            slot.in_flight_len_bytes = 0;
            if !queue.is_empty() {
                slot.unsent = queue;
                self.note_behind(conn);
                return;
            }
        }
        if queue.is_empty() {
            keep(&mut self.pool, &mut queue);
        }
    }

    /// Borrows the queue with the unsent bytes of `conn`. If that queue is empty, borrows the bytes
    /// queued since, as the new unsent queue. `None` if both are empty.
    pub(crate) fn unsent_mut(&mut self, conn: ConnId) -> Option<&mut ByteQueue> {
        let slot = self.slots.get_mut(conn.index())?;
        if slot.generation != conn.generation() {
            return None;
        }
        if slot.unsent.is_empty() {
            keep(&mut self.pool, &mut slot.unsent);
            if slot.sealing.is_none() {
                slot.settle_held();
                slot.unsent = slot.take_queue();
            }
        }
        (!slot.unsent.is_empty()).then_some(&mut slot.unsent)
    }
}

/// Returns the buffer of a sent queue to the pool, unless the buffer is large or the pool is full.
#[inline]
fn keep(pool: &mut Vec<Vec<u8>>, queue: &mut ByteQueue) {
    let buffer = queue.take_buffer();
    if (1..=POOLED_CAPACITY_BYTES_MAX).contains(&buffer.capacity()) && pool.len() < POOLED_COUNT_MAX {
        pool.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs() -> (Outputs, ConnId) {
        let (mut outputs, conn) = (Outputs::default(), ConnId::new(0, 1));
        outputs.open(conn);
        (outputs, conn)
    }

    /// Flushes to a socket that accepts `takes` bytes; returns the accepted bytes.
    fn flush(outputs: &mut Outputs, conn: ConnId, takes: usize) -> Vec<u8> {
        let dirty = outputs.begin_flush();
        let mut taken = Vec::new();
        if let Some(queue) = outputs.flushable(conn) {
            taken = queue.as_single().expect("one piece")[..takes.min(queue.len_bytes())].to_vec();
            queue.advance(taken.len());
            outputs.after_send(conn);
        }
        outputs.end_flush(dirty);
        taken
    }

    #[test]
    fn a_sent_queue_gives_its_buffer_to_the_next_connection() {
        let (mut outputs, conn) = outputs();
        outputs.queue(conn).tail_mut().extend_from_slice(b"reply");
        let buffer = outputs.queue(conn).tail_mut().as_ptr();
        assert_eq!(flush(&mut outputs, conn, 99), b"reply");
        assert_eq!(outputs.len_bytes(conn), 0);
        let other = ConnId::new(1, 1);
        outputs.open(other);
        assert_eq!(outputs.queue(other).tail_mut().as_ptr(), buffer);
    }

    #[test]
    fn what_is_appended_behind_unsent_bytes_is_sent_behind_them() {
        let (mut outputs, conn) = outputs();
        outputs.queue(conn).tail_mut().extend_from_slice(b"first");
        assert!(outputs.take_behind().is_empty());
        assert_eq!(flush(&mut outputs, conn, 2), b"fi");
        assert_eq!(outputs.take_behind(), [conn]);
        outputs.queue(conn).tail_mut().extend_from_slice(b"second");
        assert_eq!(flush(&mut outputs, conn, 99), b"", "the first is still unsent");
        assert_eq!(outputs.take_behind(), [conn]);
        assert_eq!(outputs.len_bytes(conn), 9);
        let mut sent = Vec::new();
        while let Some(queue) = outputs.unsent_mut(conn) {
            sent.push(queue.as_single().expect("one piece")[0]);
            queue.advance(1);
        }
        assert_eq!(sent, b"rstsecond");
        assert!(!outputs.is_behind(conn));
    }

    #[test]
    fn bytes_in_the_kernels_hands_are_counted_until_they_come_back() {
        let (mut outputs, conn) = outputs();
        outputs.queue(conn).tail_mut().extend_from_slice(b"reply");
        let dirty = outputs.begin_flush();
        assert!(outputs.flushable(conn).is_some());
        let mut queue = outputs.take_single(conn).expect("one piece");
        outputs.end_flush(dirty);
        assert_eq!((outputs.len_bytes(conn), outputs.piece_count(conn)), (5, 1));
        queue.advance(3);
        outputs.sent(conn, queue);
        assert_eq!(outputs.unsent_mut(conn).map(|queue| queue.len_bytes()), Some(2));
        outputs.close(conn);
        assert_eq!(outputs.len_bytes(conn), 0);
        outputs.sent(conn, ByteQueue::new());
    }

    fn append(outputs: &mut Outputs, conn: ConnId, bytes: &[u8]) {
        outputs.queue(conn).tail_mut().extend_from_slice(bytes);
    }

    #[test]
    fn held_parts_leave_when_released_and_nothing_overtakes_them() {
        let (mut outputs, conn) = outputs();
        append(&mut outputs, conn, b"free first ");
        outputs.hold(conn, 6);
        assert_eq!((outputs.len_bytes(conn), outputs.held_len_bytes(conn)), (11, 6));
        append(&mut outputs, conn, b"second ");
        outputs.hold(conn, 7);
        append(&mut outputs, conn, b"behind ");
        assert_eq!(flush(&mut outputs, conn, 99), b"free ");
        assert!(outputs.holds(conn) && !outputs.is_behind(conn) && outputs.take_behind().is_empty());
        assert_eq!((outputs.len_bytes(conn), outputs.piece_count(conn)), (20, 2));
        append(&mut outputs, conn, b"plain third");
        outputs.hold(conn, 5);
        assert_eq!(flush(&mut outputs, conn, 99), b"");
        outputs.release(conn);
        append(&mut outputs, conn, b" last");
        assert_eq!(flush(&mut outputs, conn, 99), b"first ");
        outputs.release(conn);
        outputs.release(conn);
        assert!(!outputs.holds(conn));
        assert_eq!(flush(&mut outputs, conn, 99), b"second behind plain third last");
        assert_eq!((outputs.len_bytes(conn), outputs.capacity_bytes(conn)), (0, 0));
    }

    #[test]
    fn released_parts_wait_behind_unsent_bytes_and_ahead_of_what_is_appended() {
        let (mut outputs, conn) = outputs();
        append(&mut outputs, conn, b"first");
        assert_eq!(flush(&mut outputs, conn, 1), b"f");
        for part in [&b"1"[..], b"2", b"3"] {
            append(&mut outputs, conn, part);
            outputs.hold(conn, 1);
        }
        outputs.release(conn);
        append(&mut outputs, conn, b"-");
        outputs.release(conn);
        append(&mut outputs, conn, b"+");
        assert_eq!(flush(&mut outputs, conn, 9), b"", "the first is still unsent");
        let mut sent = Vec::new();
        while let Some(queue) = outputs.unsent_mut(conn) {
            sent.extend_from_slice(queue.as_single().expect("one piece"));
            queue.advance(queue.len_bytes());
        }
        assert_eq!(sent, b"irst12");
        append(&mut outputs, conn, b"!");
        outputs.release(conn);
        assert_eq!(flush(&mut outputs, conn, 9), b"3-+!");
    }

    #[test]
    fn a_held_queue_keeps_its_buffer_and_shared_bytes_their_place() {
        let (mut outputs, conn) = outputs();
        append(&mut outputs, conn, b"held");
        let buffer = outputs.queue(conn).tail_mut().as_ptr();
        outputs.hold(conn, 4);
        assert_eq!(flush(&mut outputs, conn, 99), b"");
        outputs.release(conn);
        assert_eq!(outputs.queue(conn).tail_mut().as_ptr(), buffer);
        outputs.queue(conn).push_shared(std::sync::Arc::new(*b"shared"));
        append(&mut outputs, conn, b"tail");
        outputs.hold(conn, 10);
        assert_eq!((outputs.len_bytes(conn), outputs.piece_count(conn)), (14, 3));
        outputs.close(conn);
        assert_eq!((outputs.len_bytes(conn), outputs.held_len_bytes(conn)), (0, 0));
        outputs.hold(conn, 3);
        outputs.release(conn);
        assert!(flush(&mut outputs, conn, 99).is_empty());
    }

    #[test]
    fn stale_ids_write_nowhere() {
        let (mut outputs, conn) = outputs();
        outputs.close(conn);
        outputs.queue(conn).tail_mut().extend_from_slice(b"lost");
        assert!(flush(&mut outputs, conn, 99).is_empty());
        assert!(outputs.queue(conn).is_empty());
    }
}

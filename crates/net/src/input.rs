//! The received bytes of every connection that the caller has not consumed, each as one slice.
//!
//! ```text
//!   slot ── turn: Span ──► turn memory (this turn's bytes, used in place)
//!      └─── pending: Vec   (unconsumed bytes of earlier turns; then this turn's are appended)
//! ```
//! Invariant: a slot has a turn span or pending bytes, never both, so its bytes are one slice.
//! Usually requests arrive whole and are used in turn memory; an idle connection owns no buffer.
//! Cost: bytes that are consumed in their turn are not copied, others once.

use std::time::Instant;

use crate::carried::CarriedInput;
use crate::sys::span::Span;
use crate::sys::turn_memory::TurnMemory;
use crate::{ConnId, Event};

/// The maximum buffer size, in bytes, that an announced request length alone justifies. Beyond it,
/// the buffer grows to at most four times the bytes that have arrived, because the client chooses
/// the announced length.
const RESERVE_LEN_BYTES_MIN: usize = 256 * 1024;

/// The length from which a buffer for a request of unknown length grows by a quarter instead of
/// doubling: its unused part counts towards `maxmemory`.
const LARGE_LEN_BYTES_MIN: usize = 4 << 20;

/// The minimum size of an empty buffer that is kept for reuse. A smaller one is cheap to allocate.
const SPARE_LEN_BYTES_MIN: usize = 8 * 1024;
/// The maximum size of an empty buffer that is kept for reuse.
const SPARE_LEN_BYTES_MAX: usize = 256 * 1024;
/// The maximum number of empty input buffers that are kept for reuse.
const SPARES_MAX: usize = 4;

/// Empty input buffers for reuse. New memory of that size comes from the system page by page, which
/// costs as much as all other work for a large request.
#[derive(Default)]
struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// Removes the smallest spare input buffer with capacity for `len` bytes and returns it; `None`
    /// if there is none. O(spares).
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if len < SPARE_LEN_BYTES_MIN {
            return None;
        }
        let fitting = self.0.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        let (at, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        Some(self.0.swap_remove(at))
    }

    /// Stores an input buffer for reuse if its size is within the limits. Frees the smallest spare
    /// buffer if there are too many. O(spares).
    fn put(&mut self, mut buffer: Vec<u8>) {
        if !(SPARE_LEN_BYTES_MIN..=SPARE_LEN_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        self.0.push(buffer);
        if self.0.len() > SPARES_MAX {
            let smallest = self.0.iter().enumerate().min_by_key(|(_, buffer)| buffer.capacity());
            let (at, _) = smallest.expect("one was added just now");
            self.0.swap_remove(at);
        }
    }
}

/// The received and unconsumed bytes of all connections of a loop.
pub struct Inputs {
    slots: Vec<InputSlot>,
    spares: Spares,
    memory: TurnMemory,
    /// The connections for which `Data` was reported in this turn. Some of them have bytes in the
    /// memory of the turn.
    reported: Vec<ConnId>,
    /// The connections to report in the next poll even if no new bytes arrive.
    marked: Vec<ConnId>,
    activity: Activity,
}

/// The number of busy connections and the rate of requests, measured over the last few turns.
struct Activity {
    /// The number of the current epoch, from 1. An epoch is a sequence of `TURNS_PER_EPOCH` turns.
    epoch: u32,
    epoch_began: Instant,
    turns: u32,
    /// The number of connections with a `Data` event in the current epoch so far, each counted
    /// once.
    count: usize,
    /// The number of connections with a `Data` event in the whole previous epoch of
    /// [`TURNS_PER_EPOCH`] turns, each counted once.
    count_before: usize,
    /// The number of `Data` events in the current epoch so far.
    reports: u32,
    /// The mean time between two `Data` events in the previous epoch of [`TURNS_PER_EPOCH`] turns,
    /// in nanoseconds.
    report_interval_ns: u64,
}

/// The length of an epoch in turns. The connections with an [`Event::Data`](crate::Event::Data) are
/// counted in each epoch. An epoch is long enough for each busy connection to have one such event,
/// and short enough to notice a change of the load within milliseconds.
const TURNS_PER_EPOCH: u32 = 32;

struct InputSlot {
    generation: u32,
    /// The last epoch of [`TURNS_PER_EPOCH`] turns in which `Data` was reported for the connection.
    active_epoch: u32,
    /// True if the event `Data` of this connection was reported in this turn.
    reported: bool,
    /// True if the connection is in `Inputs::marked`, so that the next poll reports it.
    marked: bool,
    turn: Span,
    pending: Vec<u8>,
    /// The number of bytes at the front of `pending` that the caller has consumed.
    consumed: usize,
    /// The number of bytes consumed since the connection was opened, in all its loops.
    position: u64,
    /// The exact length of the current request, as `reserve_input` announced it, in bytes. 0
    /// without an announcement, and again once all pending bytes are consumed.
    announced_len_bytes: usize,
    /// The minimum length of the request that the unconsumed bytes begin, as `expect_input`
    /// announced it, in bytes; 0 if it is unknown.
    expected_len_bytes: usize,
}

impl Activity {
    fn new() -> Self {
        Self {
            epoch: 1,
            epoch_began: Instant::now(),
            turns: 0,
            count: 0,
            count_before: 0,
            reports: 0,
            report_interval_ns: u64::MAX,
        }
    }

    fn end_turn(&mut self, reported: usize) {
        self.reports += reported as u32;
        self.turns += 1;
        if self.turns == TURNS_PER_EPOCH {
            let now = Instant::now();
            let took_ns = now.duration_since(self.epoch_began).as_nanos() as u64;
            self.report_interval_ns = took_ns.checked_div(u64::from(self.reports)).unwrap_or(u64::MAX);
            self.epoch_began = now;
            (self.turns, self.reports) = (0, 0);
            self.epoch = self.epoch.wrapping_add(1);
            self.count_before = std::mem::take(&mut self.count);
        }
    }
}

impl InputSlot {
    const VACANT: InputSlot = InputSlot {
        generation: 0,
        active_epoch: 0,
        reported: false,
        marked: false,
        turn: Span::EMPTY,
        pending: Vec::new(),
        consumed: 0,
        position: 0,
        announced_len_bytes: 0,
        expected_len_bytes: 0,
    };

    fn has_pending(&self) -> bool {
        self.pending.len() > self.consumed
    }

    /// Reserves space in the pending buffer for `len` more bytes, or for the rest of the request if
    /// its length is known.
    fn make_room(&mut self, len: usize, spares: &mut Spares) {
        let kept = self.pending.len() - self.consumed;
        // Moving fewer bytes than were consumed keeps this O(1) per byte received.
        if self.consumed > 0 && (kept <= self.consumed || self.pending.capacity() < self.pending.len() + len)
        {
            self.pending.drain(..self.consumed);
            self.consumed = 0;
        }
        if self.pending.capacity() - self.pending.len() < len {
            // If the length of the request is known, the buffer grows to hold the rest of it and
            // one more receive. A buffer of twice its length would count towards `maxmemory`.
            let known = self.announced_len_bytes.max(self.expected_len_bytes);
            let is_known = kept < known;
            let believed = if is_known { (known + len).min(RESERVE_LEN_BYTES_MIN.max(4 * kept)) } else { 0 };
            let wanted = (kept + len).max(believed);
            if let Some(mut spare) = spares.take(wanted) {
                spare.extend_from_slice(&self.pending[self.consumed..]);
                self.consumed = 0;
                spares.put(std::mem::replace(&mut self.pending, spare));
                return;
            }
            let grown = if kept < LARGE_LEN_BYTES_MIN { kept } else { kept / 4 };
            let more = if is_known { wanted - kept } else { (wanted - kept).max(grown) };
            self.pending.reserve_exact(more);
        }
    }
}

impl Inputs {
    pub(crate) fn new(memory: TurnMemory) -> Self {
        let activity = Activity::new();
        let spares = Spares::default();
        Self { slots: Vec::new(), spares, memory, reported: Vec::new(), marked: Vec::new(), activity }
    }

    /// Borrows all unconsumed bytes of `conn` as one slice; empty for a stale id. Valid until bytes
    /// are consumed or the next poll. O(1).
    #[inline]
    pub fn bytes(&self, conn: ConnId) -> &[u8] {
        let Some(slot) = self.slot(conn) else { return &[] };
        if slot.has_pending() { &slot.pending[slot.consumed..] } else { self.memory.bytes(slot.turn) }
    }

    /// Returns the number of unconsumed bytes of `conn`. O(1).
    #[inline]
    pub fn len_bytes(&self, conn: ConnId) -> usize {
        self.slot(conn).map_or(0, |slot| slot.pending.len() - slot.consumed + slot.turn.len())
    }

    /// Returns the position of the first unconsumed byte of `conn` in its stream: the number of
    /// bytes consumed since it was opened, in all its loops. O(1).
    #[inline]
    pub fn position(&self, conn: ConnId) -> u64 {
        self.slot(conn).map_or(0, |slot| slot.position)
    }

    /// Returns the capacity of the pending buffer of `conn`, in bytes. O(1).
    pub fn capacity_bytes(&self, conn: ConnId) -> usize {
        self.slot(conn).map_or(0, |slot| slot.pending.capacity())
    }

    #[inline]
    fn slot(&self, conn: ConnId) -> Option<&InputSlot> {
        self.slots.get(conn.index()).filter(|slot| slot.generation == conn.generation())
    }

    #[inline]
    fn slot_mut(&mut self, conn: ConnId) -> Option<&mut InputSlot> {
        self.slots.get_mut(conn.index()).filter(|slot| slot.generation == conn.generation())
    }

    pub(crate) fn open(&mut self, conn: ConnId) {
        if self.slots.len() <= conn.index() {
            self.slots.resize_with(conn.index() + 1, || InputSlot::VACANT);
        }
        self.slots[conn.index()] = InputSlot { generation: conn.generation(), ..InputSlot::VACANT };
    }

    /// Stops the reports of `conn`, which moves to another loop, and moves its bytes out of the
    /// memory of the turn. Bytes that arrive later are in that memory until [`keep`](Self::keep)
    /// moves them. O(connections reported in this turn).
    pub(crate) fn stop_reports(&mut self, conn: ConnId) {
        self.keep(conn);
        self.reported.retain(|&other| other != conn);
        if let Some(slot) = self.slot_mut(conn) {
            // It is not in the list of reported ones, so the end of a turn does not reset this.
            (slot.reported, slot.marked) = (true, false);
        }
    }

    /// Moves the bytes of `conn` out of the memory of the turn into the buffer of `conn`.
    pub(crate) fn keep(&mut self, conn: ConnId) {
        self.spill(conn);
        if let Some(slot) = self.slot_mut(conn) {
            slot.turn = Span::EMPTY;
        }
    }

    /// Returns the unconsumed bytes of `conn` and frees its slot.
    pub(crate) fn take(&mut self, conn: ConnId) -> CarriedInput {
        self.keep(conn);
        let Some(slot) = self.slot_mut(conn) else { return CarriedInput::default() };
        let slot = std::mem::replace(slot, InputSlot::VACANT);
        CarriedInput { bytes: slot.pending, consumed: slot.consumed, position: slot.position }
    }

    /// Stores the unconsumed bytes that a connection brings from another loop as the input of
    /// `conn`, which was opened just now. The next poll reports them.
    pub(crate) fn put(&mut self, conn: ConnId, input: CarriedInput) {
        let Some(slot) = self.slot_mut(conn) else { return };
        let any = !input.unread().is_empty();
        (slot.pending, slot.consumed, slot.position) = (input.bytes, input.consumed, input.position);
        if any {
            self.mark(conn);
        }
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        if let Some(slot) = self.slot_mut(conn) {
            *slot = InputSlot::VACANT;
        }
    }

    /// Borrows the memory of the turn, into which the back end receives.
    pub(crate) fn memory_mut(&mut self) -> &mut TurnMemory {
        &mut self.memory
    }

    /// Consumes the first `n` unconsumed bytes of `conn`. Panics if `conn` has fewer.
    #[inline]
    pub(crate) fn consume(&mut self, conn: ConnId, n: usize) {
        let Self { slots, spares, .. } = self;
        let slot = slots.get_mut(conn.index()).filter(|slot| slot.generation == conn.generation());
        let Some(slot) = slot else { return };
        slot.position += n as u64;
        if !slot.has_pending() {
            slot.turn.advance(n);
            return;
        }
        slot.consumed += n;
        slot.expected_len_bytes = 0;
        assert!(slot.consumed <= slot.pending.len(), "more consumed than was received");
        if slot.consumed == slot.pending.len() {
            spares.put(std::mem::take(&mut slot.pending));
            slot.consumed = 0;
            slot.announced_len_bytes = 0;
        }
    }

    /// Drops the unconsumed bytes of `conn` and its request for a report ([`mark`](Self::mark)).
    pub(crate) fn discard(&mut self, conn: ConnId) {
        let len = self.len_bytes(conn);
        self.consume(conn, len);
        if let Some(slot) = self.slot_mut(conn) {
            slot.marked = false;
        }
    }

    /// Records the exact length in bytes of the request that the unconsumed bytes of `conn` begin.
    pub(crate) fn announce(&mut self, conn: ConnId, len_bytes: usize) {
        if let Some(slot) = self.slot_mut(conn) {
            slot.announced_len_bytes = len_bytes;
        }
    }

    /// Records the minimum length in bytes of the request that the unconsumed bytes of `conn`
    /// begin.
    pub(crate) fn expect(&mut self, conn: ConnId, len_bytes: usize) {
        if let Some(slot) = self.slot_mut(conn) {
            slot.expected_len_bytes = len_bytes;
        }
    }

    /// Returns the number of bytes of the announced request of `conn` that have not arrived yet.
    pub(crate) fn announced_rest(&self, conn: ConnId) -> usize {
        self.slot(conn)
            .map_or(0, |slot| slot.announced_len_bytes.saturating_sub(slot.pending.len() - slot.consumed))
    }

    /// Borrows the buffer of pending bytes of `conn`, with capacity for at least `room` more bytes.
    /// The caller receives directly into it. `None` for a stale id.
    pub(crate) fn pending_mut(&mut self, conn: ConnId, room: usize) -> Option<&mut Vec<u8>> {
        self.spill(conn);
        let Self { slots, spares, .. } = self;
        let slot = slots.get_mut(conn.index()).filter(|slot| slot.generation == conn.generation())?;
        slot.make_room(room, spares);
        Some(&mut slot.pending)
    }

    /// Adds received bytes, which are at `span` in the memory of the turn, to the unconsumed bytes
    /// of `conn`.
    pub(crate) fn receive(&mut self, conn: ConnId, span: Span) {
        let Some(slot) = self.slots.get_mut(conn.index()) else { return };
        if slot.generation != conn.generation() {
            return;
        }
        if !slot.has_pending() {
            if slot.turn.len() == 0 {
                slot.turn = span;
                return;
            }
            if slot.turn.join(span) {
                return;
            }
            let turn = std::mem::replace(&mut slot.turn, Span::EMPTY);
            slot.make_room(turn.len() + span.len(), &mut self.spares);
            slot.pending.extend_from_slice(self.memory.bytes(turn));
        }
        slot.make_room(span.len(), &mut self.spares);
        slot.pending.extend_from_slice(self.memory.bytes(span));
    }

    /// Adds a copy of `bytes` to the unconsumed bytes of `conn`, which must be open.
    pub(crate) fn receive_copy(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(pending) = self.pending_mut(conn, bytes.len()) {
            pending.extend_from_slice(bytes);
        }
    }

    /// Reports `Data(conn)` unless it was already reported in this turn.
    pub(crate) fn report(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let epoch = self.activity.epoch;
        let Some(slot) = self.slot_mut(conn) else { return };
        if !slot.reported {
            slot.reported = true;
            let first_in_epoch = std::mem::replace(&mut slot.active_epoch, epoch) != epoch;
            self.activity.count += usize::from(first_in_epoch);
            self.reported.push(conn);
            events.push(Event::Data(conn));
        }
    }

    /// Returns the mean time between two `Data` events over the last few turns, in nanoseconds.
    pub(crate) fn report_interval_ns(&self) -> u64 {
        self.activity.report_interval_ns
    }

    /// Returns the approximate number of connections with a `Data` event in the last few turns,
    /// each counted once.
    pub(crate) fn active_count(&self) -> usize {
        self.activity.count.max(self.activity.count_before)
    }

    /// Returns true if `Data(conn)` was reported in this turn.
    pub(crate) fn is_reported(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.reported)
    }

    /// Requests a report `Data(conn)` in the next poll, even if no new bytes arrive.
    pub(crate) fn mark(&mut self, conn: ConnId) {
        let Some(slot) = self.slot_mut(conn) else { return };
        if !slot.marked {
            slot.marked = true;
            self.marked.push(conn);
        }
    }

    /// Returns true if `conn` is marked: it will be reported even without new bytes.
    pub(crate) fn is_marked(&self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.marked)
    }

    /// Returns true if any connection is marked: the next poll must not block.
    pub(crate) fn any_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Reports the event `Data` for every marked connection.
    pub(crate) fn report_marked(&mut self, events: &mut Vec<Event>) {
        let mut marked = std::mem::take(&mut self.marked);
        for conn in marked.drain(..) {
            let marked = self.slot_mut(conn).map(|slot| std::mem::take(&mut slot.marked));
            if marked == Some(true) {
                self.report(conn, events);
            }
        }
        self.marked = marked;
    }

    /// Ends the turn: copies the unconsumed bytes into buffers of their connections, and frees the
    /// memory of the turn.
    pub(crate) fn end_turn(&mut self) {
        let mut reported = std::mem::take(&mut self.reported);
        self.activity.end_turn(reported.len());
        for conn in reported.drain(..) {
            if let Some(slot) = self.slot_mut(conn) {
                slot.reported = false;
                if slot.turn.len() > 0 {
                    self.spill(conn);
                }
                // A span of a past turn, even an empty one, must not be joined or read.
                self.slots[conn.index()].turn = Span::EMPTY;
            }
        }
        self.reported = reported;
        self.memory.end_turn();
    }

    /// Moves the received bytes of `conn` from the memory of the turn to the end of its pending
    /// buffer.
    fn spill(&mut self, conn: ConnId) {
        let Some(slot) = self.slots.get_mut(conn.index()) else { return };
        if slot.generation == conn.generation() && slot.turn.len() > 0 {
            let turn = std::mem::replace(&mut slot.turn, Span::EMPTY);
            slot.make_room(turn.len(), &mut self.spares);
            slot.pending.extend_from_slice(self.memory.bytes(turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::turn_memory::Arena;

    fn inputs() -> Inputs {
        Inputs::new(TurnMemory::Arena(Arena::new(64 * 1024)))
    }

    fn arrive(inputs: &mut Inputs, conn: ConnId, bytes: &[u8], events: &mut Vec<Event>) {
        let arena = inputs.memory_mut().arena_mut();
        arena.free_mut(bytes.len()).copy_from_slice(bytes);
        let span = arena.take(bytes.len());
        inputs.receive(conn, span);
        inputs.report(conn, events);
    }

    /// Compares the input after random receives and consumptions over many turns with plain
    /// vectors.
    #[test]
    fn bytes_are_what_arrived_and_was_not_consumed() {
        let mut random = 7_u64;
        let mut next = move |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        let mut inputs = inputs();
        let conns: Vec<ConnId> = (0..5).map(|index| ConnId::new(index, 1)).collect();
        let mut expected: Vec<Vec<u8>> = vec![Vec::new(); conns.len()];
        conns.iter().for_each(|&conn| inputs.open(conn));
        for turn in 0..3_000_u32 {
            let mut events = Vec::new();
            for _ in 0..next(8) {
                let at = next(conns.len());
                let bytes: Vec<u8> = (0..1 + next(400)).map(|i| (turn as usize + i) as u8).collect();
                arrive(&mut inputs, conns[at], &bytes, &mut events);
                expected[at].extend(bytes);
                if next(3) == 0 {
                    let n = next(expected[at].len() + 1);
                    inputs.consume(conns[at], n);
                    expected[at].drain(..n);
                }
            }
            for (&conn, bytes) in conns.iter().zip(&mut expected) {
                assert_eq!(inputs.bytes(conn), bytes.as_slice());
                assert_eq!(inputs.len_bytes(conn), bytes.len());
                if next(4) == 0 {
                    let n = bytes.len() - next(bytes.len() + 1).min(20);
                    inputs.consume(conn, n);
                    bytes.drain(..n);
                }
            }
            inputs.end_turn();
            for (&conn, bytes) in conns.iter().zip(&expected) {
                assert_eq!(inputs.bytes(conn), bytes.as_slice());
                assert!(inputs.capacity_bytes(conn) > 0 || bytes.is_empty());
            }
        }
    }

    #[test]
    fn a_connection_is_reported_once_a_turn_and_counted_once_an_epoch() {
        let mut inputs = inputs();
        let conns: Vec<ConnId> = (0..10).map(|index| ConnId::new(index, 1)).collect();
        conns.iter().for_each(|&conn| inputs.open(conn));
        for turn in 0..3 * TURNS_PER_EPOCH as usize {
            let mut events = Vec::new();
            for _ in 0..2 {
                arrive(&mut inputs, conns[turn % 10], b"x", &mut events);
                arrive(&mut inputs, conns[(turn + 1) % 10], b"x", &mut events);
            }
            assert_eq!(events.len(), 2);
            inputs.end_turn();
        }
        assert_eq!(inputs.active_count(), 10);
        assert!(inputs.report_interval_ns() < 1_000_000, "two reports a turn, and turns of no work");
        (0..2 * TURNS_PER_EPOCH).for_each(|_| inputs.end_turn());
        assert_eq!(inputs.active_count(), 0);
        assert_eq!(inputs.report_interval_ns(), u64::MAX);
    }

    #[test]
    fn emptied_buffers_serve_the_next_large_request_and_are_few() {
        let mut inputs = inputs();
        let conns: Vec<ConnId> = (0..10).map(|index| ConnId::new(index, 1)).collect();
        conns.iter().for_each(|&conn| inputs.open(conn));
        for round in 0..3 {
            for &conn in &conns {
                for piece in 0..4 {
                    arrive(&mut inputs, conn, &[round * 4 + piece; 10_000], &mut Vec::new());
                    inputs.end_turn();
                }
                let expected: Vec<u8> = (0..4).flat_map(|piece| [round * 4 + piece; 10_000]).collect();
                assert_eq!(inputs.bytes(conn), expected);
            }
            conns.iter().for_each(|&conn| inputs.consume(conn, 30_000));
            assert!(conns.iter().all(|&conn| inputs.bytes(conn) == [round * 4 + 3; 10_000]));
            conns.iter().for_each(|&conn| inputs.consume(conn, 10_000));
            assert!(conns.iter().all(|&conn| inputs.capacity_bytes(conn) == 0));
            assert_eq!(inputs.spares.0.len(), SPARES_MAX);
            assert!(inputs.spares.0.iter().all(|spare| spare.capacity() >= 40_000));
        }
    }

    #[test]
    fn memory_follows_what_arrives_not_what_is_announced() {
        let mut inputs = inputs();
        let conn = ConnId::new(0, 1);
        inputs.open(conn);
        inputs.announce(conn, 1 << 30);
        arrive(&mut inputs, conn, b"$1073741824\r\n", &mut Vec::new());
        inputs.end_turn();
        let mut grown = 0;
        let mut capacity = inputs.capacity_bytes(conn);
        while inputs.len_bytes(conn) < 8 << 20 {
            assert!(inputs.announced_rest(conn) > 0);
            arrive(&mut inputs, conn, &[1; 16 * 1024], &mut Vec::new());
            inputs.end_turn();
            grown += u32::from(std::mem::replace(&mut capacity, inputs.capacity_bytes(conn)) != capacity);
            assert!(capacity <= RESERVE_LEN_BYTES_MIN + 5 * inputs.len_bytes(conn));
        }
        assert!(grown < 20, "{grown} reallocations");
    }

    /// Checks that the buffer of a large request is less than twice as long as the request. Buffers
    /// count towards `maxmemory`.
    #[test]
    fn issue_33_a_buffer_grows_to_the_length_of_its_request() {
        const CHUNK: usize = 16 * 1024;
        for whole in [100_000, 1 << 20, 5_000_000, (8 << 20) + 1] {
            let mut inputs = inputs();
            let conn = ConnId::new(0, 1);
            inputs.open(conn);
            while inputs.len_bytes(conn) < whole {
                let left = whole - inputs.len_bytes(conn);
                arrive(&mut inputs, conn, &vec![1; left.min(CHUNK)], &mut Vec::new());
                inputs.expect(conn, whole);
                inputs.end_turn();
            }
            let capacity = inputs.capacity_bytes(conn);
            assert!(capacity <= whole.max(RESERVE_LEN_BYTES_MIN) + CHUNK, "{capacity} for {whole}");
            inputs.consume(conn, whole);
            assert_eq!(inputs.capacity_bytes(conn), 0);
        }
    }
}

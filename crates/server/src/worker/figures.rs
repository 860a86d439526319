//! The statistics of a client that other threads read: its activity and the size of its buffers.
//! Only the client's own thread writes them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use engine::client::ClientInfo;
use engine::session::Session;

use super::Engine;

/// Adds the activity of one visit (the run of a connection's requests in a batch) to a client's
/// statistics: requests run, bytes of input and bytes of output. Only the client's own thread
/// writes the statistics, so plain loads and stores suffice.
#[inline]
pub(super) fn note_activity(
    engine: &Engine<'_>,
    session: &Session,
    ran: u64,
    input_bytes: usize,
    output_bytes: usize,
) {
    let info = &session.info;
    let add = |counter: &AtomicU64, n: u64| counter.store(counter.load(Relaxed) + n, Relaxed);
    info.traffic.last_active_ms.store(engine.executor.now.uptime_ms, Relaxed);
    add(&info.traffic.commands, ran);
    add(&info.traffic.input_bytes, input_bytes as u64);
    let stats = engine.executor.stats();
    stats.processed.add(ran);
    stats.input_bytes.add(input_bytes as u64);
    note_output(engine, info, output_bytes);
}

/// Adds the length of new output to a client's statistics, in bytes. Published messages are counted
/// when they are delivered.
#[inline]
pub(super) fn note_output(engine: &Engine<'_>, info: &ClientInfo, len_bytes: usize) {
    info.count_output(len_bytes as u64);
    engine.executor.stats().output_bytes.add(len_bytes as u64);
}

/// Stores the length and the spare capacity of a client's unconsumed input, in bytes, in its
/// statistics.
#[inline]
pub(super) fn note_unread(session: &Session, inputs: &net::Inputs) {
    let (unread, capacity) = (inputs.len_bytes(session.conn), inputs.capacity_bytes(session.conn));
    session.info.held.pending_input_bytes.store(unread as u64, Relaxed);
    session.info.held.input_room_bytes.store(capacity.saturating_sub(unread) as u64, Relaxed);
}

/// Stores the length and the memory of a client's unsent output, in bytes, in its statistics.
#[cold]
pub(super) fn note_unsent(session: &Session, outputs: &net::Outputs) {
    let (info, conn) = (&session.info, session.conn);
    let unsent = outputs.len_bytes(conn) as u64;
    let (pieces, capacity) =
        if unsent == 0 { (0, 0) } else { (outputs.piece_count(conn), outputs.capacity_bytes(conn)) };
    info.held.pending_output_bytes.store(unsent, Relaxed);
    info.held.pending_output_chunks.store(pieces as u64, Relaxed);
    info.held.output_buffer_bytes.store(capacity as u64, Relaxed);
    info.held.output_peak_bytes.fetch_max(unsent, Relaxed);
}

//! The reader of the change log that appends the stream of replicas to the backlog.

use std::sync::{Arc, MutexGuard};

use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader, ReaderId, RetainedBytes};
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Exclusive;
use replicate::primary::Primary;

use crate::random::random_repl_id;
use crate::replication::Replication;
use crate::replication::messages::Point;
use crate::shared::Shared;

/// The reader of the change log that appends the changes of this server to the backlog.
struct StreamReader {
    replication: Arc<Replication>,
    /// The number of unsent bytes of the slowest replica above the number at which writes wait
    /// ([`engine::log::ChangeLog::replica_excess`]).
    excess: RetainedBytes,
}

impl LogReader for StreamReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut primary = self.replication.primary();
        batch.for_each_part(LogTarget::Replicas, |part| primary.append(part));
        primary.note_position(batch.position);
        self.excess.set(primary.excess_bytes() as usize);
        drop(primary);
        self.replication.notify();
        Released::ALL
    }
}

/// Begins a new part of the stream for a snapshot: its first command is a SELECT, so it can be read
/// without the earlier stream. Begins to record the stream if it is not recorded yet. Returns the
/// state of replication, locked, so that nothing is appended before the caller has read the offset.
/// On a replica, begins no new part, because the stream is that of the primary. Returns `None` if
/// the change log has no room for a reader, and on a replica without a history. The caller owns the
/// keyspace.
pub fn begin_part<'s>(
    shared: &'s Shared,
    alone: &Exclusive,
    limit_bytes: u64,
    outbox: &Outbox,
) -> Option<MutexGuard<'s, Primary>> {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let mut reader = replication.reader();
    if replication.upstream.is_replica() {
        // The stream is that of the primary, and the snapshot tells the selected database.
        let primary = replication.primary();
        return primary.backlog().is_some().then_some(primary);
    }
    if reader.is_some() {
        log.begin_part(alone, LogTarget::Replicas, outbox);
        return Some(replication.primary());
    }
    replication.primary().open_backlog(limit_bytes, random_repl_id());
    *reader = attach(shared, alone, outbox);
    let mut primary = replication.primary();
    if reader.is_none() {
        primary.close_backlog(random_repl_id());
        return None;
    }
    // The snapshot has all changes up to here.
    primary.note_position(log.drawn());
    Some(primary)
}

/// Stops recording the changes of this server in the stream, because the server becomes a replica.
/// Earlier changes are in the backlog. The caller owns the keyspace.
pub fn detach(shared: &Shared, alone: &Exclusive, outbox: &Outbox) {
    if let Some(id) = shared.replication.reader().take() {
        shared.engine.log.detach(alone, id, outbox);
    }
}

/// Records the changes of this server in the stream again, because the server has become a primary.
/// Does nothing without a backlog. The caller owns the keyspace.
pub fn attach_again(shared: &Shared, alone: &Exclusive, outbox: &Outbox) {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let mut reader = replication.reader();
    if reader.is_some() || replication.primary().backlog().is_none() {
        return;
    }
    *reader = attach(shared, alone, outbox);
    let mut primary = replication.primary();
    match *reader {
        Some(_) => primary.note_position(log.drawn()),
        // Changes are not counted, so nobody may continue this history.
        None => primary.close_backlog(random_repl_id()),
    }
}

/// Attaches the reader to the change log. Returns `None` if the log has no room for a reader.
fn attach(shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Option<ReaderId> {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let stream = StreamReader { replication: Arc::clone(replication), excess: log.replica_excess().clone() };
    log.attach(alone, (Box::new(stream), LogTarget::Replicas), outbox)
}

/// Returns the present point of the stream for a snapshot; `None` if the stream is not recorded. On
/// a primary, begins a new part of the stream, so that database 0 counts as the selected one. The
/// caller owns the keyspace and is at the end of a unit.
pub fn point(shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Option<Point> {
    let replication = &shared.replication;
    if replication.upstream.is_replica() {
        let primary = replication.primary();
        primary.backlog()?;
        let stream_db = primary.stream_db().unwrap_or(0);
        return Some(Point { id: primary.history().id, offset: primary.end(), stream_db });
    }
    let reader = replication.reader();
    reader.as_ref()?;
    shared.engine.log.begin_part(alone, LogTarget::Replicas, outbox);
    let primary = replication.primary();
    Some(Point { id: primary.history().id, offset: primary.end(), stream_db: 0 })
}

/// Begins to record the stream from `point` on. This is the point of a former history whose data
/// the server is about to load. Replicas that have exactly this data can continue. If this server
/// is a replica, it takes over the former history as its own, and will ask its primary to continue
/// it. Returns false if the stream is recorded already, if the change log has no room for a reader,
/// or if a replica lacks the selected database. The caller owns the keyspace.
pub fn continue_from(
    shared: &Shared,
    alone: &Exclusive,
    (point, limit_bytes): (Point, u64),
    outbox: &Outbox,
) -> bool {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let mut reader = replication.reader();
    if replication.upstream.is_replica() {
        // The file is that of a server with more databases.
        if point.stream_db as usize >= shared.engine.keyspace.db_count() {
            return false;
        }
        let mut primary = replication.primary();
        primary.adopt(point.id, point.offset, limit_bytes);
        primary.set_stream_db(Some(point.stream_db));
        return true;
    }
    if reader.is_some() {
        return false;
    }
    *reader = attach(shared, alone, outbox);
    if reader.is_some() {
        let mut primary = replication.primary();
        let Point { id, offset, stream_db } = point;
        primary.continue_from((id, offset), random_repl_id(), (limit_bytes, shared.uptime_ms()));
        if (stream_db as usize) < shared.engine.keyspace.db_count() {
            primary.allow_return(stream_db);
        }
        primary.note_position(log.drawn());
    }
    reader.is_some()
}

/// States if a load has restored exactly the data of a point of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The loaded data is exactly that of the point.
    Exactly,
    /// A part of the file was not loaded.
    Partly,
}

/// Ends a load after [`continue_from`]. If the loaded data is not exactly that of the point
/// ([`Loaded::Partly`]), stops recording the stream, and no replica can continue. The caller owns
/// the keyspace.
pub fn end_load(shared: &Shared, alone: &Exclusive, loaded: Loaded, outbox: &Outbox) {
    if shared.replication.upstream.is_replica() {
        if loaded == Loaded::Partly {
            shared.replication.primary().close_backlog(random_repl_id());
        }
        return;
    }
    if loaded == Loaded::Exactly {
        // Deletions during the load have selected their databases without the change log.
        shared.engine.log.begin_part(alone, LogTarget::Replicas, outbox);
        return;
    }
    if let Some(id) = shared.replication.reader().take() {
        shared.replication.primary().renew_id(random_repl_id());
        shared.engine.log.detach(alone, id, outbox);
        shared.replication.primary().close_backlog(random_repl_id());
    }
}

/// Stops recording the stream if there has been no replica for `ttl_ms`. Replicas that reconnect
/// later need a full synchronisation. The caller owns the keyspace.
pub fn end_if_due(shared: &Shared, alone: &Exclusive, ttl_ms: u64, outbox: &Outbox) {
    let replication = &shared.replication;
    let mut reader = replication.reader();
    if reader.is_some()
        && replication.primary().begin_close(ttl_ms, shared.uptime_ms(), random_repl_id())
        && let Some(id) = reader.take()
    {
        // The reader takes what was appended so far; nothing is counted afterwards.
        shared.engine.log.detach(alone, id, outbox);
        replication.primary().close_backlog(random_repl_id());
        tracing::info!(
            "Replication backlog freed after {} seconds without connected replicas.",
            ttl_ms / 1000
        );
    }
}

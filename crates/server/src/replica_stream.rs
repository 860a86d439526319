//! The replication stream on a primary: the reader of the change log that appends changes to the
//! backlog, and the points at which the stream begins and ends.

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
    /// The number of unsent bytes of the slowest replica beyond `repl-writes-wait-above`. While it
    /// is above 0, writes wait ([`engine::log::ChangeLog::replica_excess`]).
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

/// Makes the replication stream readable from its present end, for a snapshot: the next change gets
/// a SELECT before it. Begins to record the stream if it is not recorded yet. Returns the state of
/// replication, locked, so that nothing is appended before the caller has read the offset. On a
/// replica, adds no SELECT, because the stream is that of the primary. Returns `None` if the change
/// log has its maximum number of readers, and on a replica without a replication history. The
/// caller is the exclusive owner of the keyspace.
pub fn begin_part<'s>(
    shared: &'s Shared,
    alone: &Exclusive,
    limit_bytes: u64,
    outbox: &Outbox,
) -> Option<MutexGuard<'s, Primary>> {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let mut reader = replication.reader();
    if replication.upstream.is_replica() {
        // The stream is that of the primary, and the snapshot states the selected database.
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

/// Stops recording this server's changes in the replication stream, because it becomes a replica.
/// The backlog keeps earlier changes. The caller is the exclusive owner of the keyspace.
pub fn detach(shared: &Shared, alone: &Exclusive, outbox: &Outbox) {
    if let Some(id) = shared.replication.reader().take() {
        shared.engine.log.detach(alone, id, outbox);
    }
}

/// Records this server's changes in the replication stream again, because it has become a primary.
/// Does nothing without a backlog. The caller is the exclusive owner of the keyspace.
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
        // Changes do not advance the offset, so no replica may continue this history.
        None => primary.close_backlog(random_repl_id()),
    }
}

/// Attaches to the change log the reader that appends changes to the backlog. Returns the reader's
/// id; `None` if the change log has its maximum number of readers.
fn attach(shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Option<ReaderId> {
    let (replication, log) = (&shared.replication, &shared.engine.log);
    let stream = StreamReader { replication: Arc::clone(replication), excess: log.replica_excess().clone() };
    log.attach(alone, (Box::new(stream), LogTarget::Replicas), outbox)
}

/// Returns the present point of the replication stream (replication ID and offset) for a
/// snapshot; `None` if the stream is not recorded. On a primary, the next change gets a SELECT
/// before it, so the point has database 0 selected. The caller is the exclusive owner of the
/// keyspace and is not within a transaction.
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

/// Begins to record the replication stream from `point` on, a point of a former replication history
/// whose data the server is about to load. Replicas that have exactly this data can continue. A
/// replica continues the former history as its own, and will ask its primary to continue it.
/// Returns false if the stream is recorded already or the change log has its maximum number of
/// readers. Also returns false on a replica that lacks the selected database. The caller is the
/// exclusive owner of the keyspace.
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

/// The result of a load after [`continue_from`]: whether the data is exactly that of the point from
/// which the replication stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The loaded data is exactly that of the point from which the replication stream continues.
    Exactly,
    /// Something in the loaded file was left out, such as an empty key.
    Partly,
}

/// Ends a load after [`continue_from`]. If the loaded data is not exactly that of the point
/// ([`Loaded::Partly`]), stops recording the replication stream, and no replica can continue. The
/// caller is the exclusive owner of the keyspace.
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

/// Stops recording the replication stream if there has been no replica for `ttl_ms`. Replicas that
/// reconnect later need a full synchronisation. The caller is the exclusive owner of the keyspace.
pub fn end_if_due(shared: &Shared, alone: &Exclusive, ttl_ms: u64, outbox: &Outbox) {
    let replication = &shared.replication;
    let mut reader = replication.reader();
    if reader.is_some()
        && replication.primary().begin_close(ttl_ms, shared.uptime_ms(), random_repl_id())
        && let Some(id) = reader.take()
    {
        // The reader receives all changes appended so far. Later changes do not advance the offset.
        shared.engine.log.detach(alone, id, outbox);
        replication.primary().close_backlog(random_repl_id());
        tracing::info!(
            "Replication backlog freed after {} seconds without connected replicas.",
            ttl_ms / 1000
        );
    }
}

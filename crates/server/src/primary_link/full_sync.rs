//! The full synchronisation: all data is replaced by a snapshot of the primary.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use keyspace::Exclusive;
use persist::load::ByteSource;
use replicate::history::ReplId;

use super::connection::{Connection, LinkEnd};
use super::engine_role::update_engine;
use super::transfer::Transfer;
use crate::config::choices::DisklessLoad;
use crate::config::table::replication as options;
use crate::persistence::load_beside::{OldData, replace_data_when_loaded};
use crate::persistence::primary_snapshot::{
    Incoming, NotReplaced, ReceivedSnapshot, Takeover, replace_data as replace, replace_data_by_file,
};
use crate::random::random_repl_id;
use crate::replication::memory::backlog_limit_bytes;
use crate::shared::Shared;

/// The replication history of the primary, which this replica adopts together with the data.
struct History<'s> {
    shared: &'s Arc<Shared>,
    /// The epoch of the link: the number of times that the server had changed its primary when the
    /// link began.
    epoch: u64,
    id: ReplId,
    offset: u64,
}

impl History<'_> {
    /// Gives this server a new replication ID before its data is removed, so that no replica can
    /// continue with the old one. Fails if another link to a primary has replaced this one.
    fn end_own(&self, _alone: &Exclusive) -> Result<(), String> {
        let replication = &self.shared.replication;
        if replication.upstream.epoch() != self.epoch {
            return Err(LinkEnd::Superseded.to_string());
        }
        replication.primary().close_backlog(random_repl_id());
        replication.notify();
        Ok(())
    }

    /// Adopts the replication ID and the offset of the primary. `stream_db` is the database that is
    /// selected in the primary's replication stream.
    fn adopt(&self, _alone: &Exclusive, stream_db: Option<u32>) {
        let replication = &self.shared.replication;
        self.shared.engine.server_state.role.local_deadlines.clear();
        if replication.upstream.epoch() != self.epoch {
            // The data is that of a former primary, but of no history that anyone continues.
            return;
        }
        let limit_bytes = backlog_limit_bytes(&self.shared.config());
        let mut primary = replication.primary();
        primary.adopt(self.id, self.offset, limit_bytes);
        primary.set_stream_db(stream_db);
        drop(primary);
        // Replicas of this server have the old data, and must be disconnected.
        replication.notify();
    }
}

/// The steps of the link to the primary while a snapshot from a source of type `S` replaces all
/// data.
struct TakeHistory<'s, S> {
    history: History<'s>,
    /// The function that reads and drops the bytes of the snapshot which the loader has not read.
    skip_rest: fn(&mut S) -> Result<(), String>,
}

impl<S: ByteSource> Takeover<S> for TakeHistory<'_, S> {
    fn before_emptying(&mut self, alone: &Exclusive) -> Result<(), String> {
        self.history.end_own(alone)
    }

    fn check_end(&mut self, _behind: &mut Vec<u8>, source: &mut S) -> Result<(), String> {
        (self.skip_rest)(source)
    }

    fn before_serving(&mut self, alone: &Exclusive, stream_db: Option<u32>) {
        self.history.adopt(alone, stream_db);
    }
}

/// Receives a snapshot and replaces all data by it. Adopts the replication history of the primary:
/// its replication ID is `id`, and the replication stream continues at `offset`.
///
/// # Errors
/// The reason for which the link must end.
pub(super) fn replace_data(
    connection: &mut Connection<'_>,
    epoch: u64,
    (id, offset): (ReplId, u64),
) -> Result<(), LinkEnd> {
    let shared = Arc::clone(connection.shared);
    let history = History { shared: &shared, epoch, id, offset };
    let transfer = Transfer::begin(connection)?;
    let replaced = match way_to_load(&shared, id) {
        LoadWay::Direct => {
            tracing::info!("MASTER <-> REPLICA sync: Loading DB in memory");
            replace(&shared, incoming(transfer), &mut while_it_arrives(history)).map(|_| ())
        }
        LoadWay::Beside(old_data) => {
            tracing::info!("MASTER <-> REPLICA sync: Loading DB in memory");
            let _announced = (old_data == OldData::Served).then(|| AsyncLoading::begin(&shared));
            let mut takeover = while_it_arrives(history);
            replace_data_when_loaded(&shared, incoming(transfer), &mut takeover, old_data).map(|_| ())
        }
        LoadWay::ByFile => {
            let received = receive(transfer)?;
            tracing::info!("MASTER <-> REPLICA sync: Loading DB in memory");
            let keep_alive = || {
                connection.restart_timeout();
                // If the link has ended, it is opened again after the load.
                let _ = connection.keep_alive();
            };
            // The file was received completely.
            let mut takeover = TakeHistory { history, skip_rest: |_| Ok(()) };
            replace_data_by_file(&shared, received, &mut takeover, keep_alive).map(|_| ())
        }
    };
    match replaced {
        Ok(()) => {
            tracing::info!("MASTER <-> REPLICA sync: Finished with success");
            Ok(())
        }
        Err(NotReplaced::Kept(reason)) => Err(LinkEnd::Failed(format!(
            "Failed trying to load the MASTER synchronization DB: {reason}. Skipping flush, no new data was \
             loaded."
        ))),
        Err(NotReplaced::Emptied(reason)) => {
            Err(LinkEnd::Failed(format!("Failed trying to load the MASTER synchronization DB: {reason}")))
        }
    }
}

/// Creates the steps for a snapshot of the primary that is loaded while it is received.
fn while_it_arrives<'s, 'c, 't>(history: History<'s>) -> TakeHistory<'s, Transfer<'c, 't>> {
    TakeHistory { history, skip_rest: |source| source.skip_rest().map_err(|end| end.to_string()) }
}

/// A way to receive and load a snapshot of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadWay {
    /// The snapshot is received into a file, and loaded when it is complete.
    ByFile,
    /// All data is removed, and the snapshot is loaded while it is received.
    Direct,
    /// The snapshot is loaded beside the old data while it is received. Clients can read the old
    /// data, or get `-LOADING`.
    Beside(OldData),
}

/// Returns the way to load a snapshot of the replication history `id`, as the option
/// `repl-diskless-load` requires.
fn way_to_load(shared: &Shared, id: ReplId) -> LoadWay {
    let is_empty = || {
        let keyspace = &shared.engine.keyspace;
        (0..keyspace.db_count()).all(|db| keyspace.reachable_db_size(db).keys == 0)
    };
    // The options are unlocked before the wait for the keyspace: its users may need them.
    let load = options::REPL_DISKLESS_LOAD.of(&shared.config());
    match load {
        DisklessLoad::FlushBeforeLoad => LoadWay::Direct,
        DisklessLoad::OnEmptyDb if shared.engine.gate.exclusive(|_alone| is_empty()) => LoadWay::Direct,
        DisklessLoad::Disabled | DisklessLoad::OnEmptyDb => LoadWay::ByFile,
        // As in Redis: the old data is served if it is an older state of the same history.
        DisklessLoad::SwapDb if shared.replication.primary().history().id == id => {
            LoadWay::Beside(OldData::Served)
        }
        DisklessLoad::SwapDb => LoadWay::Beside(OldData::Withheld),
    }
}

fn incoming<'c, 't>(transfer: Transfer<'c, 't>) -> Incoming<Transfer<'c, 't>> {
    let len_bytes = transfer.total_bytes();
    Incoming { source: transfer, len_bytes }
}

/// A guard: while this value exists, INFO reports that a snapshot is loaded beside the present data
/// (`async_loading`).
struct AsyncLoading<'s>(&'s Shared);

impl<'s> AsyncLoading<'s> {
    fn begin(shared: &'s Shared) -> Self {
        shared.replication.upstream.is_async_loading.store(true, Relaxed);
        update_engine(shared);
        Self(shared)
    }
}

impl Drop for AsyncLoading<'_> {
    fn drop(&mut self) {
        self.0.replication.upstream.is_async_loading.store(false, Relaxed);
        update_engine(self.0);
    }
}

/// Receives the snapshot of the primary into a temporary file, and returns the file.
fn receive(mut transfer: Transfer<'_, '_>) -> Result<ReceivedSnapshot, LinkEnd> {
    let shared = Arc::clone(transfer.shared());
    match transfer.total_bytes() {
        Some(len_bytes) => {
            tracing::info!("MASTER <-> REPLICA sync: receiving {len_bytes} bytes from master to disk");
        }
        None => {
            tracing::info!("MASTER <-> REPLICA sync: receiving streamed RDB from master with EOF to disk")
        }
    }
    let mut received = ReceivedSnapshot::create(&shared).map_err(LinkEnd::Failed)?;
    while let Some(part) = transfer.next_part()? {
        received.append(part).map_err(LinkEnd::Failed)?;
    }
    received.finish().map_err(LinkEnd::Failed)?;
    Ok(received)
}

//! The beginning of the snapshot for a cohort, the replicas that share it: its point in the
//! replication stream, its RDB version, its spool.

use std::sync::Arc;

use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::rdb::FileVersion;
use persist::save::Contents;
use replicate::cohort::{Cohort, SnapshotReader};
use replicate::handshake::SnapshotContents;
use replicate::history::ReplId;
use replicate::replica::Phase;

use crate::config::choices::RdbVersion;
use crate::config::table::persistence;
use crate::persistence::full_sync::{self, SnapshotRequest};
use crate::persistence::stream_point::PointFacts;
use crate::replica_stream as stream;
use crate::replication::memory::backlog_limit_bytes;
use crate::replication::messages::{Begun, NotBegun, Point};
use crate::replication::spool::{Spool, SpoolResources};
use crate::shared::Shared;
use crate::snapshots::folder_path;

/// Begins the snapshot of a cohort, the replicas that share it. The calling thread becomes the
/// exclusive owner of the keyspace for a short time.
///
/// # Errors
/// The reason why the snapshot cannot begin now, or never for the replicas of the cohort.
pub(super) fn begin(shared: &Arc<Shared>, cohort: &Cohort) -> Result<Begun, NotBegun> {
    let (folder, limit_bytes, version) = {
        let store = shared.config();
        let version = match persistence::RDB_VERSION.of(&store) {
            RdbVersion::Fixed(version) => Some(version),
            RdbVersion::Auto => match cohort.reader {
                SnapshotReader::Unknown => None,
                SnapshotReader::ValkeyBefore9 => Some(FileVersion::Redis7Dot2),
                SnapshotReader::Valkey9 => Some(FileVersion::Valkey9),
            },
        };
        (folder_path(&store), backlog_limit_bytes(&store), version)
    };
    let notified = Arc::clone(&shared.replication);
    let resources = SpoolResources {
        folder,
        data_bytes: structures::alloc::used_memory_bytes(),
        memory: Arc::clone(&shared.engine.server_state.snapshot_buffer_bytes),
    };
    let (spool, readers) = Spool::new(resources, cohort.replicas.len(), Box::new(move || notified.notify()));
    let request = SnapshotRequest { version, contents: contents(cohort.contents), spool };
    let (outbox, mut point) = (Outbox::default(), None);
    let begun = full_sync::begin(shared, request, &mut |alone| {
        point = begin_point(shared, cohort, (alone, limit_bytes), &outbox);
        PointFacts::from(point.unwrap_or(Point { id: ReplId::NONE, offset: 0, stream_db: 0 }))
    });
    shared.wake(&outbox);
    let replicas = || cohort.replicas.iter().map(|&(client, _)| client).collect();
    match (begun, point) {
        (full_sync::BeginResult::Busy, _) => Err(NotBegun::Busy),
        (full_sync::BeginResult::Started, Some(point)) => {
            let readers = cohort.replicas.iter().zip(readers);
            let readers = readers.map(|(&(client, framing), reader)| (client, framing, reader)).collect();
            Ok(Begun { point, readers })
        }
        (full_sync::BeginResult::Started, None) => {
            let reason = "the change log has too many readers".to_owned();
            Err(NotBegun::Failed { replicas: replicas(), reason })
        }
        (full_sync::BeginResult::Unfit(unfit), _) => {
            Err(NotBegun::Failed { replicas: replicas(), reason: unfit.to_string() })
        }
    }
}

/// Fixes the point of a snapshot in the replication stream. From this point on, the backlog keeps
/// the stream for the replicas of the cohort. Returns `None` if the stream cannot be recorded. The
/// caller is the exclusive owner of the keyspace.
fn begin_point(
    shared: &Shared,
    cohort: &Cohort,
    (alone, limit_bytes): (&Exclusive, u64),
    outbox: &Outbox,
) -> Option<Point> {
    let mut primary = stream::begin_part(shared, alone, limit_bytes, outbox)?;
    let offset = primary.end();
    for &(client, _) in &cohort.replicas {
        primary.set_phase(client, Phase::ReceivesSnapshot, offset);
    }
    let stream_db = primary.stream_db().unwrap_or(0);
    Some(Point { id: primary.history().id, offset, stream_db })
}

fn contents(wanted: SnapshotContents) -> Contents {
    let mut contents = Contents::empty();
    contents.set(Contents::DATA, wanted.contains(SnapshotContents::DATA));
    contents.set(Contents::FUNCTIONS, wanted.contains(SnapshotContents::FUNCTIONS));
    contents
}

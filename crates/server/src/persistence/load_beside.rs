//! The load of a primary's snapshot beside the data of a replica (`repl-diskless-load swapdb`).
//!
//! ```text
//!   header read ─► loaded on all cores into hidden data ─► end mark checked
//!        │                      │                                │ saves and rewrites ended
//!        │                      │                                ▼
//!        │                      │      alone: append-only file off, data exchanged, ID adopted
//!        └──────────┬───────────┘                                │
//!                   ▼                                            ├─► old data freed
//!      on an error: the hidden data is freed,                    └─► a new base of the
//!      everything else stays as it was                               append-only file
//! ```
//!
//! Until the exchange, the server has its old data, its files and its history. Saves, rewrites and
//! partial resynchronisations continue with them. If the server crashes before the new base is
//! complete, the append-only files still contain the data of before the exchange.
//!
//! Memory must suffice for the old and the hidden data, and `used_memory` counts both.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::load::{Behind, ByteSource, Splitter};
use persist::save::Way;

use super::aof;
use super::hidden_data::HiddenData;
use super::loading::{Duplicates, Expired, LoadMode, load_options, load_snapshot};
use super::primary_snapshot::{
    Incoming, Metered, NotReplaced, REPLACED, Replaced, Takeover, alone_without_walks, check_idle,
    note_stream_db,
};
use crate::append_only::Active;
use crate::context::unix_ms;
use crate::shared::Shared;

/// The way in which clients are served while a primary's snapshot is loaded beside the old data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldData {
    /// Clients can read the old data during the load.
    Served,
    /// Clients get the error `-LOADING` during the load.
    Withheld,
}

/// Loads a primary's snapshot into hidden data. Once the snapshot is complete, exchanges the hidden
/// data for all data of the server. The caller is outside the gate that guards the keyspace.
///
/// # Errors
/// The reason for which the data was not replaced; the old data stays.
pub fn replace_data_when_loaded<S: ByteSource>(
    shared: &Arc<Shared>,
    incoming: Incoming<S>,
    takeover: &mut impl Takeover<S>,
    old_data: OldData,
) -> Result<Replaced<S>, NotReplaced> {
    let Incoming { source, len_bytes } = incoming;
    let metered = Metered::new(shared, source);
    let splitter = Splitter::open(metered, load_options(shared), shared.engine.keyspace.db_count())
        .map_err(|error| NotReplaced::Kept(error.to_string()))?;
    begin(shared, len_bytes, old_data)?;
    let hidden = HiddenData::new(shared);
    let replaced = load(shared, splitter, &hidden, takeover).and_then(|replaced| {
        let active = alone_without_walks(shared, |alone, outbox| {
            takeover.before_emptying(alone).map_err(NotReplaced::Kept)?;
            let active = exchange(shared, alone, outbox, &hidden);
            takeover.before_serving(alone, replaced.stream_db);
            Ok(active)
        })?;
        if let Some(active) = active {
            aof::finish_detached(shared, &active);
        }
        Ok(replaced)
    });
    if old_data == OldData::Withheld {
        shared.engine.gate.exclusive(|_alone| shared.persistence.end_loading(&shared.engine));
    }
    match &replaced {
        Ok(_) => tracing::info!("MASTER <-> REPLICA sync: Discarding old DB in background"),
        Err(_) => tracing::info!("MASTER <-> REPLICA sync: Discarding temporary DB in background"),
    }
    hidden.free(shared);
    if replaced.is_ok() || old_data == OldData::Withheld {
        // The append-only file gets a new base, and the options may have changed.
        aof::settle(shared);
    }
    replaced
}

/// Begins the load of a primary's snapshot: checks that no other load is in progress and resets the
/// progress figures.
fn begin(shared: &Shared, len_bytes: Option<u64>, old_data: OldData) -> Result<(), NotReplaced> {
    shared.engine.gate.exclusive(|_alone| {
        check_idle(shared)?;
        shared.persistence.loading.begin(unix_ms() / 1000, len_bytes.unwrap_or(0));
        if old_data == OldData::Withheld {
            shared.engine.server_state.is_loading.store(true, Relaxed);
        }
        Ok(())
    })
}

/// Loads a primary's snapshot into `hidden`, and checks the bytes after the snapshot's end.
fn load<S: ByteSource>(
    shared: &Shared,
    splitter: Splitter<Metered<'_, S>>,
    hidden: &HiddenData,
    takeover: &mut impl Takeover<S>,
) -> Result<Replaced<S>, NotReplaced> {
    let how = LoadMode {
        way: Way::Gate,
        duplicates: Duplicates::Refused,
        expired: Expired::Kept,
        stream: None,
        hidden: Some(hidden),
    };
    let mut stream_db = None;
    let mut on_fact = |name: &[u8], value: &[u8]| note_stream_db(&mut stream_db, name, value);
    let loaded = load_snapshot(shared, splitter, how, &mut on_fact);
    let checked = loaded.map_err(|error| error.to_string()).and_then(|loaded| {
        let Behind { source: Metered { mut source, .. }, ahead: mut behind, .. } = loaded;
        takeover.check_end(&mut behind, &mut source)?;
        Ok(Replaced { behind, source, stream_db })
    });
    checked.map_err(NotReplaced::Kept)
}

/// Exchanges the data of the server for the hidden data, without a record in the change log. Marks
/// all watched keys as changed, and invalidates the keys of tracking clients. Returns the writer of
/// the append-only file, which gets no more changes. The caller is the exclusive owner of the
/// keyspace.
fn exchange(shared: &Shared, alone: &Exclusive, outbox: &Outbox, hidden: &HiddenData) -> Option<Active> {
    tracing::info!("MASTER <-> REPLICA sync: Swapping active DB with loaded DB");
    let engine = &shared.engine;
    let active = aof::suspend(shared, alone, outbox);
    shared.persistence.backup.fail(REPLACED);
    engine.mark_all_watchers(alone);
    engine.invalidate_all_caches(alone, outbox);
    hidden.exchange(shared, alone);
    // Also of keys that exist in the new data only.
    engine.mark_all_watchers(alone);
    (0..engine.keyspace.db_count()).for_each(|db| engine.hot_keys.windows.forget(db));
    // An earlier load may have failed.
    shared.persistence.is_incomplete.store(false, Relaxed);
    active
}

#[cfg(test)]
mod tests;

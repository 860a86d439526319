//! DEBUG RELOAD and LOADAOF: remove all data and load it again from the files, as a restart does.

use std::sync::atomic::Ordering::Relaxed;

use ::commands::ctx::LazyFreed;
use ::commands::{Args, CommandError};
use keyspace::Exclusive;
use keyspace::gate::SharedPass;
use persist::aof::files::Files;
use persist::folder::FileError;
use persist::save::Way;

use crate::append_only::{files_name, files_path};
use crate::context::ServerCtx;
use crate::persistence::loading::{Duplicates, Expired, LoadMode, load_file};
use crate::persistence::{SavePlace, aof, save_here, startup, wait_for_end};
use crate::shared::Shared;
use crate::snapshots::{DataFolder, data_file};

const OPTIONS: &str = "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.";

const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// The reason why a backup in progress fails: its changes do not contain those of the load.
const RELOADED: &str = "the data was loaded again by DEBUG";

/// Removes all keys and function libraries. The caller then loads data from a file.
fn empty(shared: &Shared) {
    let (keyspace, mut freed) = (&shared.engine.keyspace, Vec::new());
    keyspace.empty_dbs(0..keyspace.db_count(), |keys| freed.push(LazyFreed::Keys(keys)));
    shared.engine.freeing.push(freed);
    // The save that follows a FLUSHALL is not needed here.
    keyspace.snapshot().take_flushed_all();
    shared.persistence.functions().clear();
}

/// Runs `work` as the exclusive owner of the keyspace, while no save, rewrite or full sync is in
/// progress. Cancels those in progress and waits for their end: a full sync in progress would keep
/// the removed data in memory, beside the loaded data.
fn alone_without_walk<R>(
    shared: &Shared,
    pass: &mut SharedPass<'_>,
    mut work: impl FnMut(&Exclusive) -> R,
) -> R {
    loop {
        shared.persistence.cancel(&shared.engine);
        shared.persistence.cancel_walk(&shared.engine);
        pass.outside(|| {
            aof::cancel_rewrite(shared);
            wait_for_end(shared);
        });
        // Another one may have begun after the wait.
        let done = pass.exclusive(|alone| {
            let is_free = shared.persistence.state().current.is_none();
            is_free.then(|| {
                // The stream does not contain the changes of the load.
                shared.replication.primary().forbid_return();
                work(alone)
            })
        });
        if let Some(done) = done {
            return done;
        }
    }
}

/// Handles DEBUG LOADAOF: loads the data of the append-only files. All other clients wait.
pub(super) fn load_append_only(ctx: &mut ServerCtx<'_, '_, '_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    let ServerCtx { pass, data, .. } = ctx;
    let loaded = alone_without_walk(shared, pass, |_alone| {
        // The load of a primary's snapshot may have begun while this thread waited.
        if shared.engine.server_state.is_loading.load(Relaxed) {
            return Err(FileError("another load is in progress".to_owned()));
        }
        aof::finish_all(shared)?;
        let (folder, name) = {
            let store = shared.config();
            (DataFolder::new(&files_path(&store)), files_name(&store))
        };
        let files = Files::open(&folder, &name).map_err(|error| FileError(error.to_string()))?;
        data.note_replacement();
        shared.persistence.backup.fail(RELOADED);
        empty(shared);
        startup::load_files(shared, &files, Way::Owner).map(|_| ())
    });
    loaded.map_err(|trouble| {
        tracing::error!("DEBUG LOADAOF: {trouble}");
        CommandError::Line("ERR Error trying to load the AOF files, check server logs.")
    })?;
    tracing::warn!("Append Only File loaded by DEBUG LOADAOF");
    ctx.reply.ok();
    Ok(())
}

/// Handles DEBUG RELOAD [NOSAVE] [MERGE] [NOFLUSH]. All other clients wait, as in Redis. Expired
/// keys are removed, as by a restart.
pub(super) fn reload(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut saves, mut flushes, mut duplicates) = (true, true, Duplicates::Refused);
    for option in args.from(2) {
        match option.to_ascii_uppercase().as_slice() {
            b"NOSAVE" => saves = false,
            b"NOFLUSH" => flushes = false,
            b"MERGE" => duplicates = Duplicates::Replaced,
            _ => return Err(CommandError::Line(OPTIONS)),
        }
    }
    let shared = ctx.shared;
    // The data is incomplete, and a save would replace the complete file.
    if shared.engine.server_state.is_loading.load(Relaxed) {
        return Err(CommandError::Line(LOADING));
    }
    let path = data_file(&shared.config());
    let ServerCtx { pass, data, .. } = ctx;
    alone_without_walk(shared, pass, |alone| {
        // The load of a primary's snapshot may have begun while this thread waited.
        if shared.engine.server_state.is_loading.load(Relaxed) {
            return Err(CommandError::Line(LOADING));
        }
        if saves && save_here(shared, (Way::Owner, SavePlace::WithinUnit), |fix| fix(alone)).is_err() {
            return Err(CommandError::Line("ERR"));
        }
        shared.persistence.backup.fail(RELOADED);
        if flushes {
            data.note_replacement();
            empty(shared);
        }
        let how =
            LoadMode { way: Way::Owner, duplicates, expired: Expired::LeftOut, stream: None, hidden: None };
        match load_file(shared, &path, how) {
            Ok(_) => {
                tracing::warn!("DB reloaded by DEBUG RELOAD");
                Ok(())
            }
            Err(error) => {
                tracing::error!("DEBUG RELOAD: {error}");
                Err(CommandError::Line("ERR Error trying to load the RDB dump, check server logs."))
            }
        }
    })?;
    ctx.reply.ok();
    Ok(())
}

//! Loading at the start of a server: the choice of the files to load, and the preparation of files
//! to write to.
//!
//! ```text
//!   appendonly yes   the append-only files, or the single file of Redis 6; else the snapshot
//!   appendonly no    the snapshot
//!   not set (no)     the newer one of the snapshot and the append-only files
//! ```
//! With `--restore-until`, the append-only files are loaded up to a time (`restore`). With
//! `appendonly yes`, an append-only file and its base exist before clients may write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use persist::aof::files::{Files, is_part_name};
use persist::aof::manifest::{ToLoad, manifest_name};
use persist::aof::stream_note::StreamNote;
use persist::folder::{FileError, Folder as _};
use persist::save::Way;

use super::file_times::{changed_at, files_changed_at};
use super::loading::{Duplicates, Expired, LoadMode, load_file};
use super::replay::{ReplayEnd, ReplayResult, begins_with_snapshot, replay_part};
use super::restore;
use super::stream_point::{StartThread, StreamDuringLoad};
use crate::append_only::{files_name, files_path};
use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::context::unix_ms;
use crate::shared::Shared;
use crate::snapshots::{DataFolder, data_file, folder_path, stamp_of};

/// The file or files from which a starting server loads its data.
enum Source {
    /// The server loads the snapshot file at this path.
    Snapshot(PathBuf),
    /// The server loads the append-only files that this manifest lists.
    AppendOnly(Box<Files>),
}

/// Starts a thread that loads the data and opens the append-only file. Returns `None` if there is
/// no data and no append-only file. While the thread runs, clients get `-LOADING`. If loading
/// fails, the server stops. `start_thread` starts the thread `repl`. That is necessary if the
/// snapshot continues a replication stream, because this thread later frees the backlog.
///
/// # Errors
/// The thread could not be created.
pub fn load_at_start(
    shared: &Arc<Shared>,
    start_thread: StartThread,
) -> io::Result<Option<std::thread::JoinHandle<()>>> {
    for_each_data_folder(&shared.config(), DataFolder::remove_received);
    super::backup::report_leftovers(shared);
    let source = source(&shared.config());
    let source = source.and_then(|source| match shared.persistence.restore_until_s {
        Some(until_s) => {
            let is_there = matches!(source, Some(Source::AppendOnly(_)));
            let found = if is_there { restore::Found::Files } else { restore::Found::Nothing };
            restore::check_options(&shared.config(), until_s, found).map(|()| source)
        }
        None => Ok(source),
    });
    if matches!(source, Ok(None)) && !options::APPENDONLY.of(&shared.config()) {
        for_each_data_folder(&shared.config(), DataFolder::report_leftovers);
        return Ok(None);
    }
    shared.engine.server_state.is_loading.store(true, Relaxed);
    let shared = Arc::clone(shared);
    let load = move || {
        let loaded = source.and_then(|source| load(&shared, source, start_thread));
        if let Err(trouble) = &loaded {
            tracing::error!("{trouble}");
            shared.persistence.load_failed.store(true, Relaxed);
            // A request in the last turn of a thread must not run on data that was not loaded.
            shared.engine.server_state.is_stopping.store(true, Relaxed);
            shared.stop();
        }
        shared.persistence.end_loading(&shared.engine);
        if loaded.is_ok() {
            super::aof::settle(&shared);
        }
    };
    std::thread::Builder::new().name("loading".to_owned()).spawn(load).map(Some)
}

/// Calls `act` with each folder that may contain unfinished files of ended processes, and with the
/// name of the data file or append-only file in it.
fn for_each_data_folder(store: &ConfigStore, act: impl Fn(&DataFolder, &str)) {
    let name = String::from_utf8_lossy(options::DBFILENAME.of(store));
    act(&DataFolder::new(&folder_path(store)), &name);
    act(&DataFolder::new(&files_path(store)), &files_name(store));
}

/// Returns true if a snapshot file exists at `path`.
///
/// # Errors
/// The file cannot be examined, or is a symbolic link whose target is missing.
fn has_snapshot(path: &Path) -> Result<bool, FileError> {
    let is_there = path.try_exists().map_err(|error| {
        FileError(format!("Cannot find out whether the snapshot {} exists: {error}", path.display()))
    })?;
    if !is_there && path.is_symlink() {
        return Err(missing_target(path));
    }
    Ok(is_there)
}

/// Creates the error for a symbolic link whose target is missing. The data may be on a volume that
/// is not mounted.
fn missing_target(path: &Path) -> FileError {
    FileError(format!(
        "{} is a link to a missing file: put the file back, or remove the link to start without its data.",
        path.display()
    ))
}

/// Returns the data to load, as the options and the existing files determine; `None` if there is
/// none.
fn source(store: &ConfigStore) -> Result<Option<Source>, FileError> {
    let snapshot = data_file(store);
    let is_there = has_snapshot(&snapshot);
    let found = open_files(store);
    let is_on = options::APPENDONLY.of(store);
    if !is_on && store.is_named(&options::APPENDONLY.opt) {
        return Ok(is_there?.then_some(Source::Snapshot(snapshot)));
    }
    let files = match found {
        // If there is an append-only file to load, an error of the snapshot does not matter.
        Ok(files) if is_on && !files.manifest().is_empty() => files,
        found => match choose(store, found, is_there?.then_some(&*snapshot))? {
            Some(files) => files,
            None => return Ok(has_snapshot(&snapshot)?.then_some(Source::Snapshot(snapshot))),
        },
    };
    let folder = DataFolder::new(&files_path(store));
    check_unnamed(store, &folder, &files)?;
    end_adoption(store, &folder, &files)?;
    Ok(Some(Source::AppendOnly(Box::new(files))))
}

/// Opens the append-only files that the options name.
///
/// # Errors
/// A manifest or a folder cannot be used.
fn open_files(store: &ConfigStore) -> Result<Files, FileError> {
    let (path, name) = (files_path(store), files_name(store));
    for link in [path.clone(), path.join(manifest_name(&name))] {
        if link.is_symlink() && !link.exists() {
            return Err(missing_target(&link));
        }
    }
    Files::open(&DataFolder::new(&path), &name).map_err(|error| {
        FileError(format!(
            "The manifest of the append-only file in {} cannot be used: {error}. Put back a valid manifest, \
             or move the folder away to start without the data of its files.",
            path.display()
        ))
    })
}

/// Chooses between the append-only files and the snapshot. Returns the append-only files if they
/// must be loaded; returns `None` to load the snapshot, if it exists. Without `appendonly yes`, the
/// newer one is loaded.
fn choose(
    store: &ConfigStore,
    found: Result<Files, FileError>,
    snapshot: Option<&Path>,
) -> Result<Option<Files>, FileError> {
    let (folder, is_on) = (DataFolder::new(&files_path(store)), options::APPENDONLY.of(store));
    let files = match found {
        Ok(files) if !files.manifest().is_empty() => Some(files),
        Ok(files) => {
            check_unnamed(store, &folder, &files)?;
            migrate_single_file(store, files, snapshot)?
        }
        Err(trouble) if is_on => return Err(trouble),
        Err(trouble) => {
            tracing::warn!("{trouble} The server does not load this append-only file.");
            None
        }
    };
    let Some(files) = files else {
        if let (true, Some(path)) = (is_on, snapshot) {
            tracing::info!(
                "There is no append-only file. The server loads {}, which becomes the base of a new one.",
                path.display()
            );
        }
        return Ok(None);
    };
    if is_on {
        return Ok(Some(files));
    }
    if let Some(path) = snapshot
        && files_changed_at(&folder, &files) <= changed_at(path)
    {
        tracing::info!(
            "Loading {}. Ignoring the append-only file in {}: it is not newer than the snapshot.",
            path.display(),
            folder.path().display()
        );
        return Ok(None);
    }
    tracing::warn!(
        "Loading the append-only file in {}: it is newer than the snapshot. New changes are not written to \
         it. Set 'appendonly yes' to write them, or 'appendonly no' to ignore the file.",
        folder.path().display()
    );
    Ok(Some(files))
}

/// Compares the modification times of the data files that were not loaded with those of the loaded
/// ones. If they are older, records that the server may replace them. Otherwise logs a warning.
fn note_older(shared: &Shared, source: &Source) {
    let store = shared.config();
    let (snapshot, folder) = (data_file(&store), DataFolder::new(&files_path(&store)));
    match source {
        Source::AppendOnly(files) => {
            let Some(stamp) = stamp_of(&snapshot) else { return };
            let problem = match begins_with_snapshot(&snapshot) {
                Ok(true) => None,
                Ok(false) => Some("is not a snapshot".to_owned()),
                Err(error) => Some(format!("cannot be read: {error}")),
            };
            if let Some(problem) = problem {
                tracing::warn!(
                    "{} {problem}. The server does not overwrite it: the next snapshot renames it.",
                    snapshot.display()
                );
                return;
            }
            let is_restored = shared.persistence.restore_until_s.is_some();
            if !is_restored && changed_at(&snapshot) < files_changed_at(&folder, files) {
                shared.persistence.known.add(stamp);
                return;
            }
            tracing::warn!(
                "Ignoring {}, although it is not older than the loaded append-only file. The server does \
                 not overwrite it: the next snapshot renames it.",
                snapshot.display()
            );
        }
        Source::Snapshot(path) => {
            let Ok(files) = Files::open(&folder, &files_name(&store)) else { return };
            if files.manifest().is_empty() {
                return;
            }
            if files_changed_at(&folder, &files) < changed_at(path) {
                let mut state = shared.append_only.state();
                (state.files, state.files_path) = (Some(files), Some(folder.path().to_owned()));
                return;
            }
            tracing::warn!(
                "Ignoring the append-only file in {}, although it is not older than the loaded snapshot. \
                 The server does not overwrite it, also when appendonly is turned on.",
                folder.path().display()
            );
        }
    }
}

/// Searches the folder for other manifests, and for files that have names of append-only files but
/// are not in the manifest. Logs a warning about them; the server never reads or overwrites them.
///
/// # Errors
/// `appendonly` is `yes`, and there are append-only files without a manifest. They may contain the
/// data of the server.
fn check_unnamed(store: &ConfigStore, folder: &DataFolder, files: &Files) -> Result<(), FileError> {
    let is_on = options::APPENDONLY.of(store);
    let (name, path, names) = (files_name(store), files_path(store), folder.names()?);
    let is_foreign = |file: &&String| {
        **file != manifest_name(&name) && file.ends_with(".manifest") && !file.starts_with("temp-")
    };
    for foreign in names.iter().filter(is_foreign) {
        tracing::warn!(
            "{} holds {foreign}, the manifest of another append-only file. The server neither loads nor \
             changes its files, because 'appendfilename' is {name}.",
            path.display()
        );
    }
    let is_unnamed = |file: &String| is_part_name(&name, file) && !files.manifest().names(file);
    let unnamed: Vec<String> = names.into_iter().filter(is_unnamed).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    let list = unnamed.join(", ");
    if is_on && files.manifest().is_empty() {
        return Err(FileError(format!(
            "{} holds {list}, but their manifest {} is missing. Put the manifest back, or move these files \
             to another folder to start without their data.",
            path.display(),
            manifest_name(&name)
        )));
    }
    tracing::warn!(
        "{} holds {list}, which the manifest does not list. The server neither reads nor changes them. \
         Remove them if you do not need them.",
        path.display()
    );
    Ok(())
}

/// Moves the append-only file of Redis 6 or earlier to the folder that later versions use, and
/// creates a manifest for it. Does so only if the file is to be loaded: if `appendonly` is `yes`,
/// or the file is newer than the snapshot. Otherwise returns `None`.
fn migrate_single_file(
    store: &ConfigStore,
    mut files: Files,
    snapshot: Option<&Path>,
) -> Result<Option<Files>, FileError> {
    let (old, is_on) = (folder_path(store).join(files_name(store)), options::APPENDONLY.of(store));
    let is_newer = || snapshot.is_none_or(|path| changed_at(path) < changed_at(&old));
    if !old.is_file() || !(is_on || is_newer()) {
        return Ok(None);
    }
    let folder = super::aof::make_folder(store)?;
    move_single(store, &old, &folder)?;
    files.migrate_single_file(&folder)?;
    Ok(Some(files))
}

/// Completes an interrupted move of the append-only file of Redis 6. The manifest lists the file,
/// but the server that wrote the manifest ended before it moved the file.
fn end_adoption(store: &ConfigStore, folder: &DataFolder, files: &Files) -> Result<(), FileError> {
    let (name, manifest) = (files_name(store), files.manifest());
    let old = folder_path(store).join(&name);
    let mut parts = manifest.parts();
    let is_amid = manifest.base.as_ref().is_some_and(|base| base.name == name) && parts.by_ref().count() == 1;
    if !is_amid || folder.has(&name) || !old.is_file() {
        return Ok(());
    }
    move_single(store, &old, folder)
}

/// Moves the append-only file of Redis 6 to the folder that later versions use.
fn move_single(store: &ConfigStore, old: &Path, folder: &DataFolder) -> Result<(), FileError> {
    let new = folder.file(&files_name(store));
    if folder.has(&files_name(store)) {
        return Err(FileError(format!(
            "{} is the append-only file of an earlier version. The server cannot move it to {}, because \
             that file exists. Move one of them to another folder.",
            old.display(),
            new.display()
        )));
    }
    tracing::info!(
        "Successfully migrated an old-style AOF configuration: {} is now {}.",
        old.display(),
        new.display()
    );
    fs::rename(old, &new)
        .map_err(|error| FileError(format!("{} cannot be moved: {error}", old.display())))?;
    DataFolder::new(&folder_path(store)).sync()
}

/// Loads the snapshot at `path` at the start of the server.
fn load_snapshot(shared: &Arc<Shared>, path: &Path, start_thread: StartThread) -> Result<(), FileError> {
    let stream = StreamDuringLoad::new(shared, start_thread);
    // On a replica, the primary removes expired keys.
    let is_replica = shared.replication.upstream.is_replica();
    let how = LoadMode {
        way: Way::Gate,
        duplicates: Duplicates::Refused,
        expired: if is_replica { Expired::Kept } else { Expired::LeftOut },
        stream: Some(&stream),
        hidden: None,
    };
    load_file(shared, path, how).map_err(|error| {
        tracing::error!("{} cannot be loaded: {error}", path.display());
        tracing::error!("Terminating server after rdb file reading failure.");
        FileError("Fatal error loading the DB, check server logs. Exiting.".to_owned())
    })?;
    stream.end();
    Ok(())
}

/// Loads the data from `source`, and opens the append-only file if `appendonly` is `yes`.
fn load(shared: &Arc<Shared>, source: Option<Source>, start_thread: StartThread) -> Result<(), FileError> {
    let is_on = options::APPENDONLY.of(&shared.config());
    match &source {
        Some(source) => note_older(shared, source),
        None => for_each_data_folder(&shared.config(), DataFolder::report_leftovers),
    }
    // If the append-only files are empty, an unfinished save may have more data. So it must not be
    // removed.
    let mut holds_data = matches!(source, Some(Source::Snapshot(_)));
    let mut loaded = LoadedFiles::default();
    let files = match source {
        Some(Source::AppendOnly(files)) => {
            if !restore::restore_if_asked(shared, &files)? {
                loaded = load_files(shared, &files, Way::Gate)?;
                holds_data = loaded.len_bytes > 0;
                if let Some(note) = loaded.note {
                    StreamDuringLoad::new(shared, start_thread).continue_after(note);
                }
            }
            Some(*files)
        }
        Some(Source::Snapshot(path)) => {
            load_snapshot(shared, &path, start_thread)?;
            None
        }
        None => None,
    };
    if holds_data {
        for_each_data_folder(&shared.config(), DataFolder::remove_leftovers);
    }
    if !is_on {
        if let Some(files) = files {
            // New append-only files may replace these files, because they were loaded.
            let path = files_path(&shared.config());
            let mut state = shared.append_only.state();
            (state.files, state.files_path) = (Some(files), Some(path));
        }
        return Ok(());
    }
    let files = match files {
        Some(files) => files,
        None => {
            let folder = super::aof::make_folder(&shared.config())?;
            let name = files_name(&shared.config());
            Files::open(&folder, &name).map_err(|error| FileError(error.to_string()))?
        }
    };
    let is_restored = shared.append_only.state().restored_until_s.is_some();
    super::aof::open(shared, files, loaded.last_len_bytes, loaded.len_bytes).map_err(|trouble| {
        match is_restored {
            true => {
                FileError(format!("--restore-until: the new base cannot be added to the manifest: {trouble}"))
            }
            false => trouble,
        }
    })?;
    restore::note_end(shared);
    Ok(())
}

/// The result of loading the append-only files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedFiles {
    /// The length of the last incremental append-only file, in bytes.
    pub last_len_bytes: u64,
    /// The length of all loaded append-only files together, in bytes.
    pub len_bytes: u64,
    /// The point in the replication stream that the files state at their end; `None` if they state
    /// none, or if a command has failed.
    pub note: Option<StreamNote>,
}

/// Loads the data of all append-only files that the manifest lists.
///
/// # Errors
/// The reason why the files cannot be loaded, as a text for the log.
pub fn load_files(shared: &Shared, files: &Files, way: Way) -> Result<LoadedFiles, FileError> {
    let (path, name, cuts) = {
        let store = shared.config();
        (files_path(&store), files_name(&store), options::AOF_LOAD_TRUNCATED.of(&store))
    };
    let (folder, manifest) = (DataFolder::new(&path), files.manifest());
    let mut lens_bytes = Vec::new();
    for part in manifest.parts() {
        let Ok(found) = fs::metadata(folder.file(&part.name)) else {
            return Err(FileError(format!(
                "The AOF file {} of {name}.manifest cannot be read: No such file or directory. Put it back, \
                 or remove its line from the manifest and lose its data.",
                part.name
            )));
        };
        lens_bytes.push(found.len());
    }
    shared.persistence.loading.begin(unix_ms() / 1000, lens_bytes.iter().sum());
    let began = Instant::now();
    let (mut loaded, mut errors) = (LoadedFiles::default(), 0);
    for ToLoad { part, is_base, may_be_torn } in manifest.to_load(&lens_bytes) {
        let part_began = Instant::now();
        let (good_len_bytes, replayed) =
            load_part(shared, &folder.file(&part.name), (may_be_torn, cuts), way)?;
        let kind = if is_base { "base" } else { "incr" };
        tracing::info!(
            "DB loaded from {kind} file {}: {:.3} seconds",
            part.name,
            part_began.elapsed().as_secs_f64()
        );
        loaded.len_bytes += good_len_bytes;
        loaded.last_len_bytes = if is_base { 0 } else { good_len_bytes };
        errors += replayed.errors;
        loaded.note = replayed.note.filter(|_| errors == 0);
    }
    tracing::info!("DB loaded from append only file: {:.3} seconds", began.elapsed().as_secs_f64());
    Ok(loaded)
}

/// Loads one of the append-only files. If it is the last one and ends with an incomplete request,
/// cuts this request off if `cuts` is true. Returns the length of the file in bytes, and the result
/// of the replay.
fn load_part(
    shared: &Shared,
    path: &Path,
    (is_last, cuts): (bool, bool),
    way: Way,
) -> Result<(u64, ReplayResult), FileError> {
    let name = path.display();
    let replayed = replay_part(shared, path, way, None)?;
    let torn = match replayed.end {
        ReplayEnd::Whole => {
            let found = fs::metadata(path).map_err(|error| FileError(error.to_string()))?;
            return Ok((found.len(), replayed));
        }
        ReplayEnd::Stopped(len_bytes) => return Ok((len_bytes, replayed)),
        ReplayEnd::Abandoned => return Err(FileError("the server is shutting down".to_owned())),
        ReplayEnd::Torn(torn) => torn,
    };
    if !is_last {
        return Err(FileError(format!(
            "{name} ends within a request but is not the last file: {torn}. Run saker-check aof for details."
        )));
    }
    if let Some(offset) = torn.request_within {
        return Err(FileError(format!(
            "Bad file format reading the append only file {name}: the request at byte {} does not end, but \
             another request seems to begin at byte {offset}. A length is probably damaged, and the data \
             after it may be good. Make a backup of your AOF file, then use saker-check aof --fix \
             <filename.manifest>, which cuts that data off.",
            torn.good_len_bytes
        )));
    }
    if !cuts {
        return Err(FileError(format!(
            "Unexpected end of file reading the append only file {name}: {torn}. You can: 1) Make a backup of your AOF \
             file, then use saker-check aof --fix <filename.manifest>. 2) Alternatively you can set the \
             'aof-load-truncated' configuration option to yes and restart the server."
        )));
    }
    tracing::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
    tracing::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled: {torn}");
    let cut = fs::File::options().write(true).open(path).and_then(|file| {
        file.set_len(torn.good_len_bytes)?;
        file.sync_all()
    });
    cut.map_err(|error| FileError(format!("cannot cut off the incomplete end of {name}: {error}")))?;
    Ok((torn.good_len_bytes, replayed))
}

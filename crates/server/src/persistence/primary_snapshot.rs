//! The load of a primary's snapshot, which replaces all data of a replica.
//!
//! ```text
//!   header read ─► saves and rewrites ended ─► alone: append-only file off, all emptied, -LOADING
//!        │                                              │
//!        └─ not understood: the old data stays          ▼
//!                                       loaded on all cores, the old data is freed meanwhile
//!                                          │                             │
//!        alone: clients may use the data ◄─┘                             └─► on an error: emptied
//!                     └─► a new base of the append-only file, in the background
//! ```
//!
//! From the moment at which all data is removed until the new data is complete, no file on disk is
//! replaced: neither a save nor a rewrite begins (`Persistence::is_incomplete`). After a crash, the
//! server loads the old data again, as it was when it was removed. After a load, the old
//! append-only files stay valid until the new base is complete. Changes after the load are in this
//! base or in the file that follows it.
//!
//! Only one load is in progress at a time. It cannot run during DEBUG RELOAD or the load at the
//! start of the server.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::commands::ctx::LazyFreed;
use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::folder::{FileError, Folder as _, Place, rename_into_place, temporary_received_name};
use persist::load::{Behind, ByteSource, Splitter};
use persist::save::Way;

use super::loading::{Duplicates, Expired, LoadMode, load_options, load_snapshot};
use super::{aof, wait_for_end, warn_set_aside};
use crate::append_only::Active;
use crate::config::table::{persistence as options, replication};
use crate::context::unix_ms;
use crate::shared::Shared;
use crate::snapshots::{DataFolder, folder_path, save_rules};

/// Number of allocations of the old data that the freeing thread frees between two checks whether
/// the server stops.
const FREED_PIECES: usize = 256;
/// Number of received bytes after which the file of a received snapshot is synced, as in Redis.
const SYNC_STEP_BYTES: usize = 8 << 20;
/// The reason why a backup in progress fails: its changes do not contain the new data.
pub(super) const REPLACED: &str = "a snapshot of the primary replaced the data";

/// The snapshot of a primary, before it is loaded.
pub struct Incoming<S> {
    /// The source of the snapshot's bytes, at the first byte. A source that reads from a connection
    /// must implement [`ByteSource::is_dry`].
    pub source: S,
    /// The length of the snapshot in bytes; `None` if the primary did not send it.
    pub len_bytes: Option<u64>,
}

/// The steps of the link to the primary during the replacement of all data. The functions of this
/// file call them.
pub trait Takeover<S> {
    /// Prepares the replacement of all data, before any data is removed. The caller is the
    /// exclusive owner of the keyspace.
    ///
    /// # Errors
    /// The reason why the data must stay, such as another primary.
    fn before_emptying(&mut self, alone: &Exclusive) -> Result<(), String>;

    /// Checks the bytes that must follow the snapshot, such as an end mark. `behind` has the bytes
    /// after the snapshot that were already read; further ones come from `source`. The caller is
    /// outside the gate that guards the keyspace.
    ///
    /// # Errors
    /// The reason why the snapshot is not complete.
    fn check_end(&mut self, behind: &mut Vec<u8>, source: &mut S) -> Result<(), String>;

    /// Adopts the replication ID and the offset of the primary, before any client sees the new
    /// data. `stream_db` is the database that is selected in the primary's replication stream. The
    /// caller is the exclusive owner of the keyspace.
    fn before_serving(&mut self, alone: &Exclusive, stream_db: Option<u32>);
}

/// The result of a replacement of all data by a snapshot of the primary.
#[derive(Debug)]
pub struct Replaced<S> {
    /// The bytes after the end of the snapshot that were already read. They belong to the
    /// replication stream.
    pub behind: Vec<u8>,
    /// The source of the replication stream's bytes that follow those in `behind`.
    pub source: S,
    /// The database that is selected in the primary's replication stream, from the AUX field
    /// `repl-stream-db`; `None` if the snapshot does not contain this field.
    pub stream_db: Option<u32>,
}

/// The reason for which the data of the server was not replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReplaced {
    /// The replacement failed before data was removed, for this reason. The server still has its
    /// old data.
    Kept(String),
    /// The replacement failed after the data was removed, for this reason. The server is empty. The
    /// files on disk still have the old data: none is replaced before the next load, or before
    /// [`accept_empty`].
    Emptied(String),
}

/// A source of a snapshot's bytes that adds their number to the progress figures of the load, and
/// fails when the server stops.
pub(super) struct Metered<'s, S> {
    pub source: S,
    read_bytes: u64,
    shared: &'s Shared,
}

impl<'s, S> Metered<'s, S> {
    /// Wraps `source`, whose bytes are counted in the progress figures of `shared`.
    pub fn new(shared: &'s Shared, source: S) -> Self {
        Self { source, read_bytes: 0, shared }
    }
}

impl<S: ByteSource> ByteSource for Metered<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.shared.stopping.load(Relaxed) {
            return Err(FileError("the server is shutting down".to_owned()));
        }
        let len = self.source.read(buffer)?;
        self.read_bytes += len as u64;
        // The figures may have been reset after the first read.
        self.shared.persistence.loading.loaded_bytes.store(self.read_bytes, Relaxed);
        Ok(len)
    }

    fn is_dry(&mut self) -> bool {
        self.source.is_dry()
    }
}

/// Replaces all data by a primary's snapshot: the function libraries, and the keys of all
/// databases. Clients get `-LOADING` during the load. The caller is outside the gate that guards
/// the keyspace.
///
/// # Errors
/// The reason for the failure; its variant states if the old data was removed.
pub fn replace_data<S: ByteSource>(
    shared: &Arc<Shared>,
    incoming: Incoming<S>,
    takeover: &mut impl Takeover<S>,
) -> Result<Replaced<S>, NotReplaced> {
    let Incoming { source, len_bytes } = incoming;
    let splitter =
        Splitter::open(Metered::new(shared, source), load_options(shared), shared.engine.keyspace.db_count())
            .map_err(|error| NotReplaced::Kept(error.to_string()))?;
    let Emptied { active, freed } = empty_and_begin(shared, len_bytes, takeover)?;
    tracing::info!("Flushing old data");
    shared.engine.freeing.push(freed);
    if let Some(active) = active {
        aof::finish_detached(shared, &active);
    }
    let mut stream_db = None;
    let mut on_fact = |name: &[u8], value: &[u8]| note_stream_db(&mut stream_db, name, value);
    let how = LoadMode {
        way: Way::Gate,
        duplicates: Duplicates::Refused,
        expired: Expired::Kept,
        stream: None,
        hidden: None,
    };
    let is_lazy = replication::REPLICA_LAZY_FLUSH.of(&shared.config());
    let loaded = std::thread::scope(|scope| {
        if !is_lazy {
            free_beside(shared, scope);
        }
        load_snapshot(shared, splitter, how, &mut on_fact)
    });
    let replaced = loaded.map_err(|error| error.to_string()).and_then(|loaded| {
        let Behind { source: Metered { mut source, .. }, ahead: mut behind, .. } = loaded;
        takeover.check_end(&mut behind, &mut source)?;
        Ok(Replaced { behind, source, stream_db })
    });
    match replaced {
        Ok(replaced) => {
            serve(shared, |alone| takeover.before_serving(alone, stream_db));
            Ok(replaced)
        }
        Err(reason) => {
            tracing::warn!("The snapshot of the primary cannot be loaded: {reason}");
            give_up(shared);
            Err(NotReplaced::Emptied(reason))
        }
    }
}

/// Stores the selected database in `stream_db` if the AUX field with this name and value is
/// `repl-stream-db`.
pub(super) fn note_stream_db(stream_db: &mut Option<u32>, name: &[u8], value: &[u8]) {
    if name.eq_ignore_ascii_case(b"repl-stream-db") {
        *stream_db = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
    }
}

/// The removed old data, to be freed, and the detached writer of the append-only file.
struct Emptied {
    active: Option<Active>,
    freed: Vec<LazyFreed>,
}

/// Removes all data and begins the load, as soon as no save or rewrite is in progress.
fn empty_and_begin<S>(
    shared: &Shared,
    len_bytes: Option<u64>,
    takeover: &mut impl Takeover<S>,
) -> Result<Emptied, NotReplaced> {
    alone_without_walks(shared, |alone, outbox| {
        check_idle(shared)?;
        takeover.before_emptying(alone).map_err(NotReplaced::Kept)?;
        let active = aof::suspend(shared, alone, outbox);
        shared.persistence.backup.fail(REPLACED);
        shared.persistence.loading.begin(unix_ms() / 1000, len_bytes.unwrap_or(0));
        shared.persistence.is_incomplete.store(true, Relaxed);
        shared.engine.server_state.is_loading.store(true, Relaxed);
        let freed = empty(shared, alone, outbox);
        Ok(Emptied { active, freed })
    })
}

/// Checks that no load is in progress. The caller is the exclusive owner of the keyspace.
pub(super) fn check_idle(shared: &Shared) -> Result<(), NotReplaced> {
    match shared.engine.server_state.is_loading.load(Relaxed) {
        true => Err(NotReplaced::Kept("another load is in progress".to_owned())),
        false => Ok(()),
    }
}

/// Calls `act` as the exclusive owner of the keyspace, as soon as no save or rewrite is in
/// progress. Cancels background saves, rewrites and full syncs of this server's replicas, and waits
/// for the end of a SAVE. The caller is outside the gate that guards the keyspace.
///
/// # Errors
/// The error of `act`, or that the server is about to end.
pub(super) fn alone_without_walks<R>(
    shared: &Shared,
    mut act: impl FnMut(&Exclusive, &Outbox) -> Result<R, NotReplaced>,
) -> Result<R, NotReplaced> {
    loop {
        end_walks(shared);
        let outbox = Outbox::default();
        let done = shared.engine.gate.exclusive(|alone| {
            if shared.engine.server_state.is_stopping.load(Relaxed) || shared.stopping.load(Relaxed) {
                return Err(NotReplaced::Kept("the server is shutting down".to_owned()));
            }
            // Another save or rewrite may have begun in between.
            if shared.append_only.is_rewriting() || shared.persistence.state().current.is_some() {
                return Ok(None);
            }
            act(alone, &outbox).map(Some)
        });
        shared.wake(&outbox);
        if let Some(done) = done? {
            return Ok(done);
        }
    }
}

/// Cancels the rewrite and the background save, full sync or snapshot of a backup in progress, and
/// waits until no thread reads the keyspace for them. A scheduled save stays scheduled. The caller
/// is outside the gate that guards the keyspace.
fn end_walks(shared: &Shared) {
    aof::cancel_rewrite(shared);
    shared.persistence.cancel_walk(&shared.engine);
    wait_for_end(shared);
}

/// Removes all keys and function libraries, without a record in the change log. Marks all watched
/// keys as changed, and invalidates the keys of tracking clients. Returns the removed values, which
/// the caller frees outside the gate that guards the keyspace. The caller is the exclusive owner of
/// the keyspace.
fn empty(shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Vec<LazyFreed> {
    let engine = &shared.engine;
    let (keyspace, mut freed) = (&engine.keyspace, Vec::new());
    engine.mark_all_watchers(alone);
    engine.invalidate_all_caches(alone, outbox);
    keyspace.empty_dbs(0..keyspace.db_count(), |keys| freed.push(LazyFreed::Keys(keys)));
    (0..keyspace.db_count()).for_each(|db| engine.hot_keys.windows.forget(db));
    // This is no FLUSHALL, so no save follows.
    keyspace.snapshot().take_flushed_all();
    shared.persistence.functions().clear();
    freed
}

/// Starts a thread that frees the old data during the load, because `replica-lazy-flush` is `no`.
/// The load waits for the end of this thread. Freeing is faster than loading, so the old and the
/// new data together need little more memory than the larger one.
fn free_beside<'s>(shared: &'s Shared, scope: &'s std::thread::Scope<'s, '_>) {
    let freeing = &shared.engine.freeing;
    let ticket = freeing.ticket();
    let free = move || {
        let mut has_more = true;
        while has_more && !shared.stopping.load(Relaxed) {
            has_more = !freeing.is_done(ticket) && freeing.free_some(FREED_PIECES);
        }
    };
    if std::thread::Builder::new().name("repl-free".to_owned()).spawn_scoped(scope, free).is_err() {
        tracing::warn!("There is no thread to free the old data; the housekeeper frees it.");
    }
}

/// Ends a successful load: clients may use the new data. Begins a new base of the append-only file.
/// The caller is outside the gate that guards the keyspace.
fn serve(shared: &Arc<Shared>, before_serving: impl FnOnce(&Exclusive)) {
    shared.engine.gate.exclusive(|alone| {
        // A key may have been watched before it was loaded.
        shared.engine.mark_all_watchers(alone);
        before_serving(alone);
        shared.persistence.is_incomplete.store(false, Relaxed);
        shared.persistence.end_loading(&shared.engine);
    });
    aof::settle(shared);
}

/// Ends a failed load: removes all keys and functions loaded so far. The caller is outside the gate
/// that guards the keyspace.
fn give_up(shared: &Arc<Shared>) {
    let outbox = Outbox::default();
    let freed = shared.engine.gate.exclusive(|alone| {
        let freed = empty(shared, alone, &outbox);
        shared.persistence.end_loading(&shared.engine);
        freed
    });
    shared.wake(&outbox);
    shared.engine.freeing.push(freed);
    // The options may have changed.
    aof::settle(shared);
}

/// Declares the data in memory complete after [`NotReplaced::Emptied`], because the server does not
/// follow a primary any more. From now on, saves may replace the files on disk, and the append-only
/// file gets a new base. Does nothing if there was no such failure. The caller is outside the gate
/// that guards the keyspace.
pub fn accept_empty(shared: &Arc<Shared>) {
    let accepted = shared.engine.gate.exclusive(|_alone| {
        let is_loading = shared.engine.server_state.is_loading.load(Relaxed);
        !is_loading && shared.persistence.is_incomplete.swap(false, Relaxed)
    });
    if accepted {
        aof::settle(shared);
    }
}

/// A snapshot of a primary that is received into a temporary file in the folder of the option
/// `dir`. The file is removed when this value is dropped, unless it became the data file.
pub struct ReceivedSnapshot {
    folder: DataFolder,
    name: String,
    file: File,
    len_bytes: u64,
    unsynced_bytes: usize,
    is_adopted: bool,
}

/// The open file of a received snapshot, from which it is loaded.
pub struct ReceivedFile<'r> {
    file: File,
    /// The function that is called before each read of the file.
    on_read: Box<dyn FnMut() + 'r>,
}

impl ByteSource for ReceivedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        (self.on_read)();
        loop {
            match io::Read::read(&mut self.file, buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| FileError(error.to_string())),
            }
        }
    }
}

impl ReceivedSnapshot {
    /// Creates an empty temporary file for a snapshot that will be received.
    ///
    /// # Errors
    /// The reason why the file cannot be created, with its path.
    pub fn create(shared: &Shared) -> Result<Self, String> {
        let folder = DataFolder::new(&folder_path(&shared.config()));
        let name = temporary_received_name(unix_ms() / 1000, std::process::id());
        let path = folder.file(&name);
        // A file of this name is that of an earlier attempt of this process, in the same second.
        let _ = std::fs::remove_file(&path);
        let created = File::options().read(true).write(true).create_new(true).open(&path);
        let file = created.map_err(|error| {
            format!("the file for the snapshot of the primary cannot be created: {}: {error}", path.display())
        })?;
        Ok(Self { folder, name, file, len_bytes: 0, unsynced_bytes: 0, is_adopted: false })
    }

    /// Returns the path of the temporary file of the received snapshot.
    pub fn path(&self) -> PathBuf {
        self.folder.file(&self.name)
    }

    /// Returns the number of bytes of the snapshot received so far.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Appends received bytes of the snapshot to its temporary file. Syncs the file after each
    /// [`SYNC_STEP_BYTES`] bytes, so that the system never has more than about this number to write
    /// at once.
    ///
    /// # Errors
    /// The reason why the file cannot be written, with its path.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.file.write_all(bytes).map_err(|error| self.unwritten(&error))?;
        self.len_bytes += bytes.len() as u64;
        self.unsynced_bytes += bytes.len();
        if self.unsynced_bytes >= SYNC_STEP_BYTES {
            self.unsynced_bytes = 0;
            self.file.sync_data().map_err(|error| self.unwritten(&error))?;
        }
        Ok(())
    }

    /// Removes the last `len_bytes` bytes from the file of the received snapshot: the end mark of a
    /// snapshot whose length the primary did not send.
    ///
    /// # Errors
    /// The reason why the file cannot be shortened, with its path.
    pub fn cut(&mut self, len_bytes: u64) -> Result<(), String> {
        self.len_bytes = self.len_bytes.saturating_sub(len_bytes);
        self.file.set_len(self.len_bytes).map_err(|error| self.unwritten(&error))
    }

    /// Syncs the file of the received snapshot to the disk, so that it survives a crash.
    ///
    /// # Errors
    /// The reason why the file cannot be synced, with its path.
    pub fn finish(&mut self) -> Result<(), String> {
        self.file.sync_all().map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &io::Error) -> String {
        format!("the snapshot of the primary cannot be written to {}: {error}", self.path().display())
    }

    /// Opens the received file for reading, at its beginning. `on_read` is called before each read.
    fn open<'r>(&self, on_read: impl FnMut() + 'r) -> Result<ReceivedFile<'r>, String> {
        let path = self.path();
        File::open(&path)
            .map(|file| ReceivedFile { file, on_read: Box::new(on_read) })
            .map_err(|error| format!("cannot open {}: {error}", path.display()))
    }

    /// Renames the file of the received snapshot, after it was loaded, to the data file of the
    /// server (`dbfilename`), as in Redis. Removes it instead if `rdb-del-sync-files` is on and
    /// neither snapshots nor an append-only file are configured. On an error, removes the file and
    /// keeps the former data file.
    fn adopt(mut self, shared: &Shared) {
        let (locked, is_elsewhere, removes, name) = {
            let store = shared.config();
            let is_saved = !save_rules(&store).is_empty() || options::APPENDONLY.of(&store);
            let removes = options::RDB_DEL_SYNC_FILES.of(&store) && !is_saved;
            let name = String::from_utf8_lossy(options::DBFILENAME.of(&store)).into_owned();
            let is_elsewhere = folder_path(&store) != self.folder.path();
            (shared.persistence.lock_folder(&store), is_elsewhere, removes, name)
        };
        if removes {
            return tracing::info!(
                "The snapshot of the primary is not kept as {name}: 'rdb-del-sync-files' is on, and neither \
                 snapshots nor an append-only file are configured."
            );
        }
        let moved = if is_elsewhere {
            Err(FileError("'dir' was changed during the transfer".to_owned()))
        } else {
            locked.and_then(|()| self.rename(shared, &name))
        };
        if let Err(trouble) = moved {
            tracing::warn!("The snapshot of the primary is not kept as {name}: {trouble}");
        }
    }

    fn rename(&mut self, shared: &Shared, name: &str) -> Result<(), FileError> {
        let set_aside = |aside: &str| warn_set_aside(self.folder.path(), name, aside);
        let place = Place::Over { known: &shared.persistence.known, set_aside: &set_aside };
        rename_into_place(&self.folder, (&self.name, name), place)?;
        self.is_adopted = true;
        self.folder.sync()
    }
}

impl Drop for ReceivedSnapshot {
    fn drop(&mut self) {
        // The error is ignored: a file that stays is removed at a later start.
        if !self.is_adopted {
            let _ = std::fs::remove_file(self.path());
        }
    }
}

/// The steps of the link to the primary while a snapshot in a received file replaces all data. When
/// the end of the snapshot is checked, the file becomes the data file, before a save can write
/// another one.
struct FileTakeover<'t, T> {
    shared: &'t Shared,
    takeover: &'t mut T,
    received: Option<ReceivedSnapshot>,
}

impl<'r, T: Takeover<ReceivedFile<'r>>> Takeover<ReceivedFile<'r>> for FileTakeover<'_, T> {
    fn before_emptying(&mut self, alone: &Exclusive) -> Result<(), String> {
        self.takeover.before_emptying(alone)
    }

    fn check_end(&mut self, behind: &mut Vec<u8>, source: &mut ReceivedFile<'r>) -> Result<(), String> {
        self.takeover.check_end(behind, source)?;
        if let Some(received) = self.received.take() {
            received.adopt(self.shared);
        }
        Ok(())
    }

    fn before_serving(&mut self, alone: &Exclusive, stream_db: Option<u32>) {
        self.takeover.before_serving(alone, stream_db);
    }
}

/// Replaces all data by a snapshot that was completely received into a file. Calls `on_read` before
/// each read of the file. If the file can be loaded, it becomes the data file; otherwise it is
/// removed.
///
/// # Errors
/// The reason for the failure; its variant states if the old data was removed.
pub fn replace_data_by_file<'r>(
    shared: &Arc<Shared>,
    received: ReceivedSnapshot,
    takeover: &mut impl Takeover<ReceivedFile<'r>>,
    on_read: impl FnMut() + 'r,
) -> Result<Replaced<ReceivedFile<'r>>, NotReplaced> {
    let source = received.open(on_read).map_err(NotReplaced::Kept)?;
    let incoming = Incoming { source, len_bytes: Some(received.len_bytes()) };
    replace_data(shared, incoming, &mut FileTakeover { shared, takeover, received: Some(received) })
}

#[cfg(test)]
pub(super) mod tests;

//! The table of options for snapshots and the append-only file.

use std::path::Path;

use persist::aof::writer::SyncPolicy;
use persist::load::Unsupported;

use crate::config::choices::{RdbVersion, VersionCheck};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{BYTES, FollowUp, INT, OnChange, Opt, Prepare};
use crate::config::value::{Kind, Value};
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
pub static OPTIONS: &[&Opt] = &[
    &SAVE.opt,
    &DIR.opt,
    &DBFILENAME.opt,
    &RDBCOMPRESSION.opt,
    &RDBCHECKSUM.opt,
    &RDB_VERSION.opt,
    &RDB_UNSUPPORTED_VALUES.opt,
    &RDB_VERSION_CHECK.opt,
    &Opt::choice(
        "sanitize-dump-payload",
        "no",
        &["no", "yes", "clients"],
        "Check the values of snapshots and of RESTORE completely.",
    )
    .accepted("values are always checked completely"),
    &STOP_WRITES_ON_BGSAVE_ERROR.opt,
    &RDB_SAVE_INCREMENTAL_FSYNC.opt,
    &RDB_KEY_SAVE_DELAY.opt,
    &KEY_LOAD_DELAY.opt,
    &RDB_DEL_SYNC_FILES.opt,
    &APPENDONLY.opt,
    &APPENDFILENAME.opt,
    &APPENDDIRNAME.opt,
    &APPENDFSYNC.opt,
    &NO_APPENDFSYNC_ON_REWRITE.opt,
    &AUTO_AOF_REWRITE_PERCENTAGE.opt,
    &AUTO_AOF_REWRITE_MIN_SIZE.opt,
    &AOF_LOAD_TRUNCATED.opt,
    &AOF_USE_RDB_PREAMBLE.opt,
    &AOF_TIMESTAMP_ENABLED.opt,
    &AOF_REWRITE_INCREMENTAL_FSYNC.opt,
    &AOF_DISABLE_AUTO_GC.opt,
    &AOF_HISTORY_TTL.opt,
    &BACKUPDIRNAME.opt,
    &BACKUP_SEALED_TTL.opt,
];

/// The working folder, which contains the snapshot and the append-only files.
pub static DIR: Handle<Path> = Opt::new(
    "dir",
    Kind::Checked(words::folder),
    ".",
    "The working directory, which contains the data files.",
)
.of_folder()
.computed("the folder that the server is started in", present_folder)
.protected()
.on_change(OnChange::Prepare(Prepare::WorkingFolder))
.typed();

/// `appendonly`: true if every change is written to the append-only file.
pub static APPENDONLY: Handle<bool> = Opt::flag(
    "appendonly",
    "no",
    "Write every change to the append-only file (AOF). With `no`, changes since the last snapshot \
         are lost if the server ends unexpectedly.",
)
.on_change(OnChange::Both(Prepare::AppendOnly, FollowUp::AppendOnly))
.typed();

/// The rule that states when the append-only file is synced to disk.
pub static APPENDFSYNC: Handle<SyncPolicy> = Opt::choice(
    "appendfsync",
    "everysec",
    SyncPolicy::WORDS,
    "The sync policy of the append-only file. `always`: a sync before replies are sent. \
         `everysec`: a sync each second. `no`: the system decides.",
)
.on_change(OnChange::FollowUp(FollowUp::AppendOnly))
.typed();

/// `no-appendfsync-on-rewrite`: true if syncs wait while a save or a rewrite is in progress.
pub static NO_APPENDFSYNC_ON_REWRITE: Handle<bool> = Opt::flag(
    "no-appendfsync-on-rewrite",
    "no",
    "Do not sync the append-only file while a snapshot or a rewrite is in progress. Writes are \
         then faster, but a crash of the machine may lose more changes.",
)
.typed();

/// The growth since the last rewrite at which the append-only file is rewritten, in percent; 0 for
/// never.
pub static AUTO_AOF_REWRITE_PERCENTAGE: Handle<i64> = Opt::integer(
    "auto-aof-rewrite-percentage",
    "100",
    INT,
    "The growth of the append-only file since the last rewrite, in percent, at which it is \
         rewritten; 0 for never.",
)
.typed();

/// The size above which the append-only file may be rewritten automatically, in bytes.
pub static AUTO_AOF_REWRITE_MIN_SIZE: Handle<u64> = Opt::memory(
    "auto-aof-rewrite-min-size",
    "67108864",
    BYTES,
    "The minimum size of the append-only file, in bytes, at which it is rewritten automatically.",
)
.typed();

/// `aof-load-truncated`: true if a file with a truncated end is loaded up to the damage.
pub static AOF_LOAD_TRUNCATED: Handle<bool> = Opt::flag(
    "aof-load-truncated",
    "yes",
    "Load an append-only file whose end is truncated, up to the last complete command. With `no`, \
         the server does not start.",
)
.typed();

/// `aof-use-rdb-preamble`: true if base files are written as snapshots; false if as commands.
pub static AOF_USE_RDB_PREAMBLE: Handle<bool> = Opt::flag(
    "aof-use-rdb-preamble",
    "yes",
    "Write the base file of a rewrite as a snapshot (RDB). With `no`, it consists of commands.",
)
.typed();

/// `aof-timestamp-enabled`: true if times are written into the append-only file.
pub static AOF_TIMESTAMP_ENABLED: Handle<bool> = Opt::flag(
    "aof-timestamp-enabled",
    "no",
    "Write timestamps into the append-only file, for a restore to a point in time \
         (`--restore-until`).",
)
.on_change(OnChange::FollowUp(FollowUp::AppendOnly))
.typed();

/// `aof-disable-auto-gc`: true if the server does not remove files that a rewrite has replaced.
pub static AOF_DISABLE_AUTO_GC: Handle<bool> = Opt::flag(
    "aof-disable-auto-gc",
    "no",
    "Keep all append-only files that a rewrite has replaced, until this option is `no` again. \
         `--restore-until` and `saker-check aof --until` can use them.",
)
.typed();

/// The time for which files that a rewrite has replaced are kept, in seconds; 0 removes them at
/// once.
pub static AOF_HISTORY_TTL: Handle<i64> = Opt::integer(
    "aof-history-ttl",
    "0",
    INT,
    "The time, in seconds, for which append-only files that a rewrite has replaced are kept; 0 \
         removes them at once. `--restore-until` can use them. Saker only.",
)
.typed();

/// The name of the folder of an online backup, within `dir`.
pub static BACKUPDIRNAME: Handle<[u8]> = Opt::new(
    "backupdirname",
    Kind::Checked(words::plain_backupdirname),
    "backupdir",
    "The directory of BACKUP's files, inside `dir`.",
)
.at_start()
.typed();

/// The time for which a sealed backup is kept, in seconds; 0 keeps it until BACKUP CLEANUP.
pub static BACKUP_SEALED_TTL: Handle<i64> = Opt::integer(
    "backup-sealed-ttl",
    "0",
    INT,
    "The time, in seconds, after which a sealed backup is removed; 0 keeps it until BACKUP \
         CLEANUP.",
)
.typed();

/// `aof-rewrite-incremental-fsync`: true if a new base file is synced while it is written.
pub static AOF_REWRITE_INCREMENTAL_FSYNC: Handle<bool> = Opt::flag(
    "aof-rewrite-incremental-fsync",
    "yes",
    "Sync a new base file step by step while it is written, instead of once at its end.",
)
.typed();

/// The first part of the names of all append-only files.
pub static APPENDFILENAME: Handle<[u8]> = Opt::new(
    "appendfilename",
    Kind::Checked(words::plain_appendfilename),
    "appendonly.aof",
    "The base name of the append-only files.",
)
.at_start()
.typed();

/// The name of the folder of the append-only files, within `dir`.
pub static APPENDDIRNAME: Handle<[u8]> = Opt::new(
    "appenddirname",
    Kind::Checked(words::plain_appenddirname),
    "appendonlydir",
    "The directory of the append-only files, inside `dir`.",
)
.at_start()
.typed();

/// The rules for saving snapshots: pairs of a number of seconds and a number of changes.
pub static SAVE: Handle<[Vec<u8>]> = Opt::new(
    "save",
    Kind::Words(&words::SAVE_POINTS),
    "3600 1 300 100 60 10000",
    "The rules for automatic snapshots, as pairs of seconds and changes. A snapshot is saved \
         after that many seconds if there were at least that many changes. An empty value disables \
         automatic snapshots.",
)
.typed();

/// The name of the snapshot file.
pub static DBFILENAME: Handle<[u8]> = Opt::new(
    "dbfilename",
    Kind::Checked(words::plain_dbfilename),
    "dump.rdb",
    "The name of the snapshot file, inside `dir`.",
)
.protected()
.typed();

/// `rdb-del-sync-files`: true if files of full syncs are removed after use when neither snapshots
/// nor an append-only file are configured.
pub static RDB_DEL_SYNC_FILES: Handle<bool> =
    Opt::flag("rdb-del-sync-files", "no", "Delete snapshots that were made for replicas.").typed();

/// `rdbcompression`: true if strings in snapshots and DUMP payloads are compressed.
pub static RDBCOMPRESSION: Handle<bool> = Opt::flag(
    "rdbcompression",
    "yes",
    "Compress strings in snapshots and in payloads of DUMP. With `no`, saving costs less CPU but \
         the files are larger.",
)
.typed();

/// `rdbchecksum`: true if snapshots end with a checksum.
pub static RDBCHECKSUM: Handle<bool> = Opt::flag(
    "rdbchecksum",
    "yes",
    "Write a checksum at the end of snapshots, and check it when they are loaded.",
)
.at_start()
.typed();

/// `stop-writes-on-bgsave-error`: true if writes are refused after a failed save.
pub static STOP_WRITES_ON_BGSAVE_ERROR: Handle<bool> = Opt::flag(
    "stop-writes-on-bgsave-error",
    "yes",
    "Refuse writes after a snapshot could not be saved, until a save succeeds.",
)
.typed();

/// `rdb-save-incremental-fsync`: true if a snapshot is synced while it is written.
pub static RDB_SAVE_INCREMENTAL_FSYNC: Handle<bool> = Opt::flag(
    "rdb-save-incremental-fsync",
    "yes",
    "Sync a snapshot step by step while it is written, instead of once at its end.",
)
.typed();

/// The pause after each key or command that is loaded from a file, in microseconds.
pub static KEY_LOAD_DELAY: Handle<i64> = Opt::integer(
    "key-load-delay",
    "0",
    (i32::MIN as i64, i32::MAX as i64),
    "The pause after each loaded key, in microseconds, for tests.",
)
.hidden()
.typed();

/// The pause after each key that a save has written, in microseconds.
pub static RDB_KEY_SAVE_DELAY: Handle<i64> = Opt::integer(
    "rdb-key-save-delay",
    "0",
    (i32::MIN as i64, i32::MAX as i64),
    "The pause after each key of a snapshot, in microseconds, for tests.",
)
.hidden()
.typed();

/// The format version in which snapshots are written.
pub static RDB_VERSION: Handle<RdbVersion> = Opt::choice(
    "rdb-version",
    "auto",
    RdbVersion::WORDS,
    "The format version of snapshots. Choose a version that the loading server supports: 9 for \
         Redis 5.0 to 6.2, 10 for 7.0, 11 for 7.2 and Valkey 7.2 to 8.1, 12 for Redis 7.4 and later, \
         80 for Valkey 9. `auto` uses 12 if fields of hashes have an expiry or there are vector sets \
         or arrays, else 11. In 9 to 11, a snapshot with such fields fails. One with vector sets or \
         arrays fails in all versions but 12. Saker only.",
)
.typed();

/// The treatment of values of unsupported types when a snapshot is loaded.
pub static RDB_UNSUPPORTED_VALUES: Handle<Unsupported> = Opt::choice(
    "rdb-unsupported-values",
    "refuse",
    Unsupported::WORDS,
    "The treatment of values of modules and of unsupported types when a snapshot is loaded. \
         `refuse` refuses the snapshot. `skip` loads it without these values and logs their number. \
         Saker only.",
)
.typed();

/// The check of the format version of snapshots and RESTORE payloads.
pub static RDB_VERSION_CHECK: Handle<VersionCheck> = Opt::choice(
    "rdb-version-check",
    "strict",
    VersionCheck::WORDS,
    "The treatment of snapshots and RESTORE payloads with an unknown format version. `strict` \
         refuses them, `relaxed` tries to read them.",
)
.typed();

/// Returns the working folder of the process; `None` if the system does not provide it.
fn present_folder() -> Option<Value> {
    std::env::current_dir().ok().map(|folder| Value::Text(folder.into_os_string().into_encoded_bytes()))
}

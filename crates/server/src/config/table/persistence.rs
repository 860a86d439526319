//! Options of snapshots and of the append-only file.

use std::path::Path;

use persist::aof::writer::SyncPolicy;
use persist::load::Unsupported;

use crate::config::choices::{RdbVersion, VersionCheck};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{BYTES, FollowUp, INT, OnChange, Opt, Prepare};
use crate::config::value::{Kind, Value};
use crate::config::words;

/// The options of this theme.
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
        "Check values of snapshots and RESTORE in depth.",
    )
    .accepted("values are always checked in depth"),
    &STOP_WRITES_ON_BGSAVE_ERROR.opt,
    &RDB_SAVE_INCREMENTAL_FSYNC.opt,
    &RDB_KEY_SAVE_DELAY.opt,
    &KEY_LOAD_DELAY.opt,
    &Opt::flag("rdb-del-sync-files", "no", "Delete snapshots made for replicas.")
        .accepted(super::NO_REPLICATION),
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
];

/// The working folder.
pub static DIR: Handle<Path> =
    Opt::new("dir", Kind::Checked(words::folder), ".", "The working folder; data files go there.")
        .of_folder()
        .computed("the folder that the server is started in", present_folder)
        .protected()
        .on_change(OnChange::Prepare(Prepare::WorkingFolder))
        .typed();

/// `appendonly`: true if every change is written to the append-only file.
pub static APPENDONLY: Handle<bool> = Opt::flag("appendonly", "no", "Write every change to a file.")
    .on_change(OnChange::Both(Prepare::AppendOnly, FollowUp::AppendOnly))
    .typed();

/// The sync policy of the append-only file.
pub static APPENDFSYNC: Handle<SyncPolicy> =
    Opt::choice("appendfsync", "everysec", SyncPolicy::WORDS, "When the append-only file is synced.")
        .on_change(OnChange::FollowUp(FollowUp::AppendOnly))
        .typed();

/// `no-appendfsync-on-rewrite`: true if syncs wait until a save or rewrite ends.
pub static NO_APPENDFSYNC_ON_REWRITE: Handle<bool> =
    Opt::flag("no-appendfsync-on-rewrite", "no", "Do not sync while the file is rewritten.").typed();

/// The growth since the last rewrite at which the append-only file is rewritten, in percent.
pub static AUTO_AOF_REWRITE_PERCENTAGE: Handle<i64> = Opt::integer(
    "auto-aof-rewrite-percentage",
    "100",
    INT,
    "Growth in percent at which the file is rewritten.",
)
.typed();

/// The size above which the append-only file may be rewritten automatically, in bytes.
pub static AUTO_AOF_REWRITE_MIN_SIZE: Handle<u64> = Opt::memory(
    "auto-aof-rewrite-min-size",
    "67108864",
    BYTES,
    "Minimum size at which the file is rewritten.",
)
.typed();

/// `aof-load-truncated`: true if a file with a truncated end is loaded up to the damage.
pub static AOF_LOAD_TRUNCATED: Handle<bool> =
    Opt::flag("aof-load-truncated", "yes", "Load a file whose end is missing.").typed();

/// `aof-use-rdb-preamble`: true if base files are snapshots.
pub static AOF_USE_RDB_PREAMBLE: Handle<bool> =
    Opt::flag("aof-use-rdb-preamble", "yes", "Begin a rewritten file with a snapshot.").typed();

/// `aof-timestamp-enabled`: true if annotations with the time are written into the append-only
/// file.
pub static AOF_TIMESTAMP_ENABLED: Handle<bool> =
    Opt::flag("aof-timestamp-enabled", "no", "Write times into the file.")
        .on_change(OnChange::FollowUp(FollowUp::AppendOnly))
        .typed();

/// `aof-disable-auto-gc`: true if the server does not remove files that a rewrite has replaced.
pub static AOF_DISABLE_AUTO_GC: Handle<bool> = Opt::flag(
    "aof-disable-auto-gc",
    "no",
    "Keep append-only files that a rewrite has replaced: `--restore-until` and `saker-check aof --until` go back to \
     them. Nothing removes them until it is off again.",
)
.typed();

/// The time for which files that a rewrite has replaced are kept, in seconds; 0 removes them at
/// once.
pub static AOF_HISTORY_TTL: Handle<i64> = Opt::integer(
    "aof-history-ttl",
    "0",
    INT,
    "For how many seconds append-only files are kept that a rewrite has replaced: `--restore-until` goes back to \
     them. 0 removes them at once. Saker only.",
)
.typed();

/// `aof-rewrite-incremental-fsync`: true if a new base file is synced while it is written.
pub static AOF_REWRITE_INCREMENTAL_FSYNC: Handle<bool> =
    Opt::flag("aof-rewrite-incremental-fsync", "yes", "Sync a rewritten file while it is written.").typed();

/// The base name of the append-only files.
pub static APPENDFILENAME: Handle<[u8]> = Opt::new(
    "appendfilename",
    Kind::Checked(words::plain_appendfilename),
    "appendonly.aof",
    "The base name of the append-only files.",
)
.at_start()
.typed();

/// The folder of the append-only files.
pub static APPENDDIRNAME: Handle<[u8]> = Opt::new(
    "appenddirname",
    Kind::Checked(words::plain_appenddirname),
    "appendonlydir",
    "The folder of the append-only files.",
)
.at_start()
.typed();

/// The rules for saving snapshots: pairs of seconds and changes.
pub static SAVE: Handle<[Vec<u8>]> = Opt::new(
    "save",
    Kind::Words(&words::SAVE_POINTS),
    "3600 1 300 100 60 10000",
    "When to save a snapshot: pairs of seconds and changes, an empty value for never.",
)
.typed();

/// The name of the snapshot file.
pub static DBFILENAME: Handle<[u8]> = Opt::new(
    "dbfilename",
    Kind::Checked(words::plain_dbfilename),
    "dump.rdb",
    "The name of the snapshot file.",
)
.protected()
.typed();

/// `rdbcompression`: true if strings in snapshots and DUMP payloads are compressed.
pub static RDBCOMPRESSION: Handle<bool> =
    Opt::flag("rdbcompression", "yes", "Compress strings in snapshots and in what DUMP writes.").typed();

/// `rdbchecksum`: true if snapshots end with a checksum.
pub static RDBCHECKSUM: Handle<bool> =
    Opt::flag("rdbchecksum", "yes", "End snapshots with a checksum.").at_start().typed();

/// `stop-writes-on-bgsave-error`: true if writes are refused after a failed save.
pub static STOP_WRITES_ON_BGSAVE_ERROR: Handle<bool> =
    Opt::flag("stop-writes-on-bgsave-error", "yes", "Refuse writes after a snapshot could not be saved.")
        .typed();

/// `rdb-save-incremental-fsync`: true if a snapshot is synced while it is written.
pub static RDB_SAVE_INCREMENTAL_FSYNC: Handle<bool> =
    Opt::flag("rdb-save-incremental-fsync", "yes", "Sync snapshots while they are written.").typed();

/// The pause after each loaded key, in microseconds.
pub static KEY_LOAD_DELAY: Handle<i64> = Opt::integer(
    "key-load-delay",
    "0",
    (i32::MIN as i64, i32::MAX as i64),
    "Microseconds to rest after each loaded key, for tests.",
)
.hidden()
.typed();

/// The pause after each key of a save, in microseconds.
pub static RDB_KEY_SAVE_DELAY: Handle<i64> = Opt::integer(
    "rdb-key-save-delay",
    "0",
    (i32::MIN as i64, i32::MAX as i64),
    "Microseconds to rest after each key of a snapshot, for tests.",
)
.hidden()
.typed();

/// The format version in which snapshots are written.
pub static RDB_VERSION: Handle<RdbVersion> = Opt::choice(
    "rdb-version",
    "auto",
    RdbVersion::WORDS,
    "The version of the format of snapshots, for the server that is to load them: 9 for Redis 5.0 to 6.2, 10 \
         for 7.0, 11 for 7.2 and Valkey 7.2 to 8.1, 12 for Redis 7.4 and later, 80 for Valkey 9. `auto` is 11, \
         and 12 where fields of hashes expire. In 9 to 11 a snapshot of such fields fails. Saker only.",
)
.typed();

/// The treatment of values of unsupported types when a snapshot is loaded.
pub static RDB_UNSUPPORTED_VALUES: Handle<Unsupported> = Opt::choice(
    "rdb-unsupported-values",
    "refuse",
    Unsupported::WORDS,
    "Whether a snapshot with values of modules or of types that Saker lacks is refused, or loaded without them; \
         the log counts what was left out. Saker only.",
)
.typed();

/// The check of the format version of snapshots and RESTORE payloads.
pub static RDB_VERSION_CHECK: Handle<VersionCheck> = Opt::choice(
        "rdb-version-check",
        "strict",
        VersionCheck::WORDS,
        "Whether snapshots and RESTORE payloads in versions of the format that are not known are refused; relaxed tries to read them.",
    ).typed();

/// Returns the working folder of the process, if the system provides it.
fn present_folder() -> Option<Value> {
    std::env::current_dir().ok().map(|folder| Value::Text(folder.into_os_string().into_encoded_bytes()))
}

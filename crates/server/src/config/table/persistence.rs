//! Options about files of data.

use std::path::Path;

use crate::config::choices::VersionCheck;
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{BYTES, INT, OnChange, Opt, Prepare};
use crate::config::value::{Kind, Value};
use crate::config::words;

/// This theme's options.
pub static OPTIONS: &[&Opt] = &[
&Opt::new(
        "save",
        Kind::Words(&words::SAVE_POINTS),
        "",
        "When to write a snapshot: pairs of seconds and changes. Redis' own default is 3600 1 300 100 60 10000.",
    )
    .awaits_persistence(),
&DIR.opt,
&Opt::new(
        "dbfilename",
        Kind::Checked(words::plain_dbfilename),
        "dump.rdb",
        "The name of the snapshot file.",
    )
    .protected()
    .awaits_persistence(),
&RDBCOMPRESSION.opt,
&Opt::flag("rdbchecksum", "yes", "End snapshots with a checksum.").at_start().awaits_persistence(),
&RDB_VERSION_CHECK.opt,
&Opt::choice(
        "sanitize-dump-payload",
        "no",
        &["no", "yes", "clients"],
        "Check values of snapshots and RESTORE in depth.",
    )
    .accepted("values are always checked in depth"),
&Opt::flag("stop-writes-on-bgsave-error", "yes", "Refuse writes after a snapshot failed.")
        .awaits_persistence(),
&Opt::flag("rdb-save-incremental-fsync", "yes", "Sync snapshots while they are written.")
        .awaits_persistence(),
&Opt::flag("rdb-del-sync-files", "no", "Delete snapshots made for replicas.").awaits_persistence(),
&Opt::flag("appendonly", "no", "Write every change to a file.").awaits_persistence(),
&Opt::new(
        "appendfilename",
        Kind::Checked(words::plain_appendfilename),
        "appendonly.aof",
        "The base name of the append-only files.",
    )
    .at_start()
    .awaits_persistence(),
&Opt::new(
        "appenddirname",
        Kind::Checked(words::plain_appenddirname),
        "appendonlydir",
        "The folder of the append-only files.",
    )
    .at_start()
    .awaits_persistence(),
&Opt::choice(
        "appendfsync",
        "everysec",
        &["everysec", "always", "no"],
        "When the append-only file is synced.",
    )
    .awaits_persistence(),
&Opt::flag("no-appendfsync-on-rewrite", "no", "Do not sync while the file is rewritten.")
        .awaits_persistence(),
&Opt::integer("auto-aof-rewrite-percentage", "100", INT, "Growth in percent at which the file is rewritten.")
        .awaits_persistence(),
&Opt::memory("auto-aof-rewrite-min-size", "67108864", BYTES, "Minimum size at which the file is rewritten.")
        .awaits_persistence(),
&Opt::flag("aof-load-truncated", "yes", "Load a file whose end is missing.").awaits_persistence(),
&Opt::flag("aof-use-rdb-preamble", "yes", "Begin a rewritten file with a snapshot.").awaits_persistence(),
&Opt::flag("aof-timestamp-enabled", "no", "Write times into the file.").awaits_persistence(),
&Opt::flag("aof-rewrite-incremental-fsync", "yes", "Sync a rewritten file while it is written.")
        .awaits_persistence(),
];

/// The working folder.
pub static DIR: Handle<Path> =
    Opt::new("dir", Kind::Checked(words::folder), ".", "The working folder; data files go there.")
        .of_folder()
        .computed("the folder that the server is started in", present_folder)
        .protected()
        .on_change(OnChange::Prepare(Prepare::WorkingFolder))
        .typed();

/// Whether DUMP compresses strings.
pub static RDBCOMPRESSION: Handle<bool> =
    Opt::flag("rdbcompression", "yes", "Compress strings in what DUMP writes.").typed();

/// Which versions of the format RESTORE reads.
pub static RDB_VERSION_CHECK: Handle<VersionCheck> = Opt::choice(
        "rdb-version-check",
        "strict",
        VersionCheck::WORDS,
        "Whether RESTORE refuses values of versions of the format that are not known; relaxed tries to read them.",
    ).typed();

/// The folder that the process is in.
fn present_folder() -> Option<Value> {
    std::env::current_dir().ok().map(|folder| Value::Text(folder.into_os_string().into_encoded_bytes()))
}

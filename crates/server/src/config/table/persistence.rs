//! Options about files of data.

use super::NO_PERSISTENCE;
use crate::config::option::{BYTES, INT, Opt};
use crate::config::value::Kind;
use crate::config::words;

/// This theme's options.
pub static OPTIONS: &[Opt] = &[
    Opt::new(
        "save",
        Kind::Words(&words::SAVE_POINTS),
        "",
        "When to write a snapshot: pairs of seconds and changes. Redis' own default is 3600 1 300 100 60 10000.",
    )
    .accepted(NO_PERSISTENCE),
    Opt::new("dir", Kind::Checked(words::folder), ".", "The working folder; data files go there.").protected(),
    Opt::new(
        "dbfilename",
        Kind::Checked(words::plain_dbfilename),
        "dump.rdb",
        "The name of the snapshot file.",
    )
    .protected()
    .accepted(NO_PERSISTENCE),
    Opt::flag("rdbcompression", "yes", "Compress strings in what DUMP writes."),
    Opt::flag("rdbchecksum", "yes", "End snapshots with a checksum.").at_start().accepted(NO_PERSISTENCE),
    Opt::choice(
        "rdb-version-check",
        "strict",
        &["strict", "relaxed"],
        "Whether RESTORE refuses values of versions of the format that are not known; relaxed tries to read them.",
    ),
    Opt::choice(
        "sanitize-dump-payload",
        "no",
        &["no", "yes", "clients"],
        "Check values of snapshots and RESTORE in depth.",
    )
    .accepted("values are always checked in depth"),
    Opt::flag("stop-writes-on-bgsave-error", "yes", "Refuse writes after a snapshot failed.")
        .accepted(NO_PERSISTENCE),
    Opt::flag("rdb-save-incremental-fsync", "yes", "Sync snapshots while they are written.")
        .accepted(NO_PERSISTENCE),
    Opt::flag("rdb-del-sync-files", "no", "Delete snapshots made for replicas.").accepted(NO_PERSISTENCE),
    Opt::flag("appendonly", "no", "Write every change to a file.").accepted(NO_PERSISTENCE),
    Opt::new(
        "appendfilename",
        Kind::Checked(words::plain_appendfilename),
        "appendonly.aof",
        "The base name of the append-only files.",
    )
    .at_start()
    .accepted(NO_PERSISTENCE),
    Opt::new(
        "appenddirname",
        Kind::Checked(words::plain_appenddirname),
        "appendonlydir",
        "The folder of the append-only files.",
    )
    .at_start()
    .accepted(NO_PERSISTENCE),
    Opt::choice(
        "appendfsync",
        "everysec",
        &["everysec", "always", "no"],
        "When the append-only file is synced.",
    )
    .accepted(NO_PERSISTENCE),
    Opt::flag("no-appendfsync-on-rewrite", "no", "Do not sync while the file is rewritten.")
        .accepted(NO_PERSISTENCE),
    Opt::integer("auto-aof-rewrite-percentage", "100", INT, "Growth from which on the file is rewritten.")
        .accepted(NO_PERSISTENCE),
    Opt::memory("auto-aof-rewrite-min-size", "67108864", BYTES, "Size from which on the file is rewritten.")
        .accepted(NO_PERSISTENCE),
    Opt::flag("aof-load-truncated", "yes", "Load a file whose end is missing.").accepted(NO_PERSISTENCE),
    Opt::flag("aof-use-rdb-preamble", "yes", "Begin a rewritten file with a snapshot.").accepted(NO_PERSISTENCE),
    Opt::flag("aof-timestamp-enabled", "no", "Write times into the file.").accepted(NO_PERSISTENCE),
    Opt::flag("aof-rewrite-incremental-fsync", "yes", "Sync a rewritten file while it is written.")
        .accepted(NO_PERSISTENCE),
];

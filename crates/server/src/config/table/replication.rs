//! Options of primaries and replicas.

use super::NO_REPLICATION;
use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, INT, Opt, PORT, POSITIVE_INT};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &Opt::new("replicaof", Kind::Words(&words::PRIMARY), "no one", "The primary: host and port.")
        .also(&["slaveof"])
        .at_start()
        .accepted(NO_REPLICATION),
    &Opt::text("primaryauth", "", "The password for the primary.")
        .also(&["masterauth"])
        .accepted(NO_REPLICATION),
    &Opt::text("primaryuser", "", "The user for the primary.").also(&["masteruser"]).accepted(NO_REPLICATION),
    &Opt::flag("replica-read-only", "yes", "Refuse writes of clients on a replica.")
        .also(&["slave-read-only"])
        .accepted(NO_REPLICATION),
    &Opt::flag("replica-serve-stale-data", "yes", "Answer while the primary is out of reach.")
        .also(&["slave-serve-stale-data"])
        .accepted(NO_REPLICATION),
    &Opt::integer("replica-priority", "100", INT, "Which replica Sentinel promotes first; 0 for never.")
        .also(&["slave-priority"])
        .accepted(NO_REPLICATION),
    &Opt::text("replica-announce-ip", "", "The address a replica gives itself.")
        .also(&["slave-announce-ip"])
        .accepted(NO_REPLICATION),
    &Opt::integer("replica-announce-port", "0", PORT, "The port a replica gives itself.")
        .also(&["slave-announce-port"])
        .accepted(NO_REPLICATION),
    &Opt::flag("replica-announced", "yes", "Let Sentinel show this replica.").accepted(NO_REPLICATION),
    &Opt::flag("replica-ignore-maxmemory", "yes", "Leave eviction to the primary.")
        .also(&["slave-ignore-maxmemory"])
        .accepted(NO_REPLICATION),
    &Opt::flag("replica-lazy-flush", "no", "Free the old data in the background before a full sync.")
        .also(&["slave-lazy-flush"])
        .accepted(NO_REPLICATION),
    &Opt::flag("replica-ignore-disk-write-errors", "no", "Go on when the replica's disk fails.")
        .accepted(NO_REPLICATION),
    &Opt::memory("replica-full-sync-buffer-limit", "0", BYTES, "Stream a replica keeps during a full sync.")
        .accepted(NO_REPLICATION),
    &Opt::integer("min-replicas-to-write", "0", INT, "Replicas without which writes are refused.")
        .also(&["min-slaves-to-write"])
        .accepted(NO_REPLICATION),
    &Opt::integer(
        "min-replicas-max-lag",
        "10",
        INT,
        "Seconds of silence after which a replica does not count.",
    )
    .also(&["min-slaves-max-lag"])
    .accepted(NO_REPLICATION),
    &Opt::memory("repl-backlog-size", "1048576", (1, i64::MAX as u64), "Bytes of stream kept for replicas.")
        .accepted(NO_REPLICATION),
    &Opt::integer("repl-backlog-ttl", "3600", ANY, "Seconds that they are kept without a replica.")
        .accepted(NO_REPLICATION),
    &Opt::flag("repl-mptcp", "no", "Connect to the primary with Multipath TCP.")
        .at_start()
        .accepted(NO_REPLICATION),
    &Opt::flag("repl-disable-tcp-nodelay", "no", "Send to replicas in larger, later packets.")
        .accepted(NO_REPLICATION),
    &Opt::choice(
        "repl-diskless-load",
        "disabled",
        &["disabled", "on-empty-db", "swapdb"],
        "Whether a replica loads straight from the connection.",
    )
    .accepted(NO_REPLICATION),
    &Opt::flag("repl-diskless-sync", "yes", "Send a snapshot without writing it to disk.")
        .accepted(NO_REPLICATION),
    &Opt::integer("repl-diskless-sync-delay", "5", INT, "Seconds to wait for more replicas first.")
        .accepted(NO_REPLICATION),
    &Opt::integer("repl-diskless-sync-max-replicas", "0", INT, "Replicas for which not to wait longer.")
        .accepted(NO_REPLICATION),
    &Opt::integer("repl-ping-replica-period", "10", POSITIVE_INT, "Seconds between pings of the primary.")
        .also(&["repl-ping-slave-period"])
        .accepted(NO_REPLICATION),
    &Opt::integer("repl-timeout", "60", POSITIVE_INT, "Seconds of silence after which a link is dead.")
        .accepted(NO_REPLICATION),
    &Opt::flag("dual-channel-replication-enabled", "no", "Send snapshot and stream on two connections.")
        .accepted(NO_REPLICATION),
    &IMPORT_MODE.opt,
    &Opt::choice(
        "propagation-error-behavior",
        "ignore",
        &["ignore", "panic", "panic-on-replicas"],
        "What to do when a replicated command fails.",
    )
    .accepted(NO_REPLICATION),
];

/// `import-mode`: true if keys neither expire nor are evicted.
pub static IMPORT_MODE: Handle<bool> = Opt::flag(
        "import-mode",
        "no",
        "Neither expire nor evict keys while data is imported: CLIENT IMPORT-SOURCE marks the connection that imports \
         and sees expired keys, for others they count as absent.",
    ).typed();

//! The table of options for primaries and replicas.

use persist::load::Unsupported;

use super::OTHER_DESIGN;
use super::network::NO_MPTCP;
use crate::config::choices::{DisklessLoad, OnFailedCommand};
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{ANY, BYTES, FollowUp, INT, OnChange, Opt, PORT, POSITIVE_INT};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
pub static OPTIONS: &[&Opt] = &[
    &REPLICAOF.opt,
    &PRIMARYAUTH.opt,
    &PRIMARYUSER.opt,
    &REPLICA_READ_ONLY.opt,
    &REPLICA_SERVE_STALE_DATA.opt,
    &REPLICA_PRIORITY.opt,
    &REPLICA_ANNOUNCE_IP.opt,
    &REPLICA_ANNOUNCE_PORT.opt,
    &REPLICA_ANNOUNCED.opt,
    &REPLICA_IGNORE_MAXMEMORY.opt,
    &REPLICA_LAZY_FLUSH.opt,
    &REPLICA_IGNORE_DISK_WRITE_ERRORS.opt,
    &Opt::memory(
        "replica-full-sync-buffer-limit",
        "0",
        BYTES,
        "The maximum size of the replication stream, in bytes, that a replica buffers during a full \
         sync.",
    )
    .accepted(OTHER_DESIGN),
    &MIN_REPLICAS_TO_WRITE.opt,
    &MIN_REPLICAS_MAX_LAG.opt,
    &REPL_BACKLOG_SIZE.opt,
    &REPL_BACKLOG_TTL.opt,
    &Opt::flag("repl-mptcp", "no", "Connect to the primary with Multipath TCP.")
        .at_start()
        .accepted(NO_MPTCP),
    &REPL_DISABLE_TCP_NODELAY.opt,
    &REPL_DISKLESS_LOAD.opt,
    &REPL_DISKLESS_SYNC.opt,
    &REPL_DISKLESS_SYNC_DELAY.opt,
    &REPL_DISKLESS_SYNC_MAX_REPLICAS.opt,
    &REPL_PING_REPLICA_PERIOD.opt,
    &REPL_TIMEOUT.opt,
    &REPL_WRITES_WAIT_ABOVE.opt,
    &Opt::flag(
        "dual-channel-replication-enabled",
        "no",
        "Send the snapshot and the replication stream on separate connections.",
    )
    .accepted(OTHER_DESIGN),
    &IMPORT_MODE.opt,
    &PROPAGATION_ERROR_BEHAVIOR.opt,
    &REPL_UNSUPPORTED_COMMANDS.opt,
];

/// `replicaof`: the host and the port of the primary; empty on a primary. REPLICAOF changes the
/// value, so it always states the present role.
pub static REPLICAOF: Handle<[Vec<u8>]> = Opt::new(
    "replicaof",
    Kind::Words(&words::PRIMARY),
    "no one",
    "The host and port of the primary that this server follows. REPLICAOF changes it while the server \
         runs.",
)
.also(&["slaveof"])
.at_start()
.typed();

/// `primaryauth`: the password with which a replica logs in to its primary; empty for no login.
pub static PRIMARYAUTH: Handle<[u8]> =
    Opt::text("primaryauth", "", "The password for the primary.").also(&["masterauth"]).typed();

/// `primaryuser`: the user name with which a replica logs in to its primary; empty for `default`.
pub static PRIMARYUSER: Handle<[u8]> =
    Opt::text("primaryuser", "", "The user name for the primary.").also(&["masteruser"]).typed();

/// `replica-read-only`: true if a replica refuses writes of clients.
pub static REPLICA_READ_ONLY: Handle<bool> =
    Opt::flag("replica-read-only", "yes", "Refuse writes of clients on a replica.")
        .also(&["slave-read-only"])
        .on_change(OnChange::FollowUp(FollowUp::ReplicaOptions))
        .typed();

/// `replica-serve-stale-data`: true if a replica serves requests while it has no link to its
/// primary or the link is not synchronized.
pub static REPLICA_SERVE_STALE_DATA: Handle<bool> = Opt::flag(
    "replica-serve-stale-data",
    "yes",
    "Serve requests while the connection to the primary is lost.",
)
.also(&["slave-serve-stale-data"])
.on_change(OnChange::FollowUp(FollowUp::ReplicaOptions))
.typed();

/// `replica-priority`: the priority for Sentinel, which INFO shows.
pub static REPLICA_PRIORITY: Handle<u64> = Opt::integer(
    "replica-priority",
    "100",
    INT,
    "The priority of the replica for Sentinel: the lowest number is promoted first; 0 for never.",
)
.also(&["slave-priority"])
.typed();

/// `replica-announce-ip`: the address that a replica reports to its primary in the handshake; empty
/// to report none.
pub static REPLICA_ANNOUNCE_IP: Handle<[u8]> =
    Opt::text("replica-announce-ip", "", "The address that the replica announces.")
        .also(&["slave-announce-ip"])
        .typed();

/// `replica-announce-port`: the port that a replica reports to its primary in the handshake; 0 to
/// report the port of its listener.
pub static REPLICA_ANNOUNCE_PORT: Handle<u16> =
    Opt::integer("replica-announce-port", "0", PORT, "The port that the replica announces.")
        .also(&["slave-announce-port"])
        .typed();

/// `replica-announced`: true if Sentinel shows this replica to clients. INFO shows it.
pub static REPLICA_ANNOUNCED: Handle<bool> =
    Opt::flag("replica-announced", "yes", "Announce this replica to clients of Sentinel.").typed();

/// `replica-ignore-maxmemory`: true if a replica evicts no keys.
pub static REPLICA_IGNORE_MAXMEMORY: Handle<bool> =
    Opt::flag("replica-ignore-maxmemory", "yes", "Do not evict keys on a replica; only the primary evicts.")
        .also(&["slave-ignore-maxmemory"])
        .on_change(OnChange::FollowUp(FollowUp::ReplicaOptions))
        .typed();

/// `replica-ignore-disk-write-errors`: true if a replica applies writes of its primary although it
/// cannot write to its disk. Otherwise the server ends.
pub static REPLICA_IGNORE_DISK_WRITE_ERRORS: Handle<bool> = Opt::flag(
    "replica-ignore-disk-write-errors",
    "no",
    "Continue replication if the replica cannot write to its disk. `no`: the replica ends.",
)
.typed();

/// `replica-lazy-flush`: true if the old data is freed in the background before a full sync.
pub static REPLICA_LAZY_FLUSH: Handle<bool> =
    Opt::flag("replica-lazy-flush", "no", "Free the old data in the background before a full sync.")
        .also(&["slave-lazy-flush"])
        .typed();

/// `repl-diskless-load`: the treatment of a snapshot from the primary.
pub static REPL_DISKLESS_LOAD: Handle<DisklessLoad> = Opt::choice(
    "repl-diskless-load",
    "disabled",
    DisklessLoad::WORDS,
    "The condition for loading a snapshot directly from the connection to the primary. With \
         `swapdb` it is loaded beside the old data, which stays until the new data is complete.",
)
.typed();

/// `propagation-error-behavior`: the reaction to a command of the primary that fails.
pub static PROPAGATION_ERROR_BEHAVIOR: Handle<OnFailedCommand> = Opt::choice(
    "propagation-error-behavior",
    "ignore",
    OnFailedCommand::WORDS,
    "The reaction of a replica to a command of its primary that fails: `ignore` counts and logs it, the \
         other words also close the link.",
)
.typed();

/// `repl-unsupported-commands`: the reaction to a command of the primary that this server lacks.
pub static REPL_UNSUPPORTED_COMMANDS: Handle<Unsupported> = Opt::choice(
    "repl-unsupported-commands",
    "refuse",
    Unsupported::WORDS,
    "The reaction of a replica to a command of its primary that Saker does not have. `refuse` closes the \
         link. `skip` counts and logs the command, and goes on. Saker only.",
)
.typed();

/// `import-mode`: true if keys neither expire nor are evicted.
pub static IMPORT_MODE: Handle<bool> = Opt::flag(
    "import-mode",
    "no",
    "Do not expire or evict keys while data is imported. A client with CLIENT IMPORT-SOURCE can \
         access expired keys; for other clients they count as missing.",
)
.typed();

/// `min-replicas-to-write`: the number of good replicas below which a primary refuses writes; 0 for
/// no limit. A replica is good if it has acknowledged within `min-replicas-max-lag`.
pub static MIN_REPLICAS_TO_WRITE: Handle<usize> = Opt::integer(
    "min-replicas-to-write",
    "0",
    INT,
    "The number of connected replicas below which writes are refused.",
)
.also(&["min-slaves-to-write"])
.on_change(OnChange::FollowUp(FollowUp::GoodReplicas))
.typed();

/// `min-replicas-max-lag`: the seconds without an acknowledgement after which a replica is no
/// longer good; 0 turns `min-replicas-to-write` off.
pub static MIN_REPLICAS_MAX_LAG: Handle<u64> = Opt::integer(
    "min-replicas-max-lag",
    "10",
    INT,
    "The time, in seconds, after which a replica that sends nothing does not count for \
         `min-replicas-to-write`.",
)
.also(&["min-slaves-max-lag"])
.on_change(OnChange::FollowUp(FollowUp::GoodReplicas))
.typed();

/// `repl-backlog-size`: the bytes of the replication stream that a primary keeps for replicas that
/// reconnect.
pub static REPL_BACKLOG_SIZE: Handle<u64> = Opt::memory(
    "repl-backlog-size",
    "1048576",
    (1, i64::MAX as u64),
    "The size of the replication backlog, in bytes.",
)
.typed();

/// `repl-backlog-ttl`: the seconds after which a primary without replicas frees its backlog; 0 for
/// never.
pub static REPL_BACKLOG_TTL: Handle<u64> = Opt::integer(
    "repl-backlog-ttl",
    "3600",
    ANY,
    "The time, in seconds, for which the replication backlog is kept without a replica.",
)
.typed();

/// `repl-disable-tcp-nodelay`: true if the kernel may delay small packets to replicas.
pub static REPL_DISABLE_TCP_NODELAY: Handle<bool> = Opt::flag(
    "repl-disable-tcp-nodelay",
    "no",
    "Send to replicas in fewer, larger packets (no TCP_NODELAY).",
)
.typed();

/// `repl-diskless-sync`: true if snapshots for replicas are not written to a named file.
pub static REPL_DISKLESS_SYNC: Handle<bool> =
    Opt::flag("repl-diskless-sync", "yes", "Send a snapshot to replicas without writing it to disk.").typed();

/// `repl-diskless-sync-delay`: the seconds for which a primary waits for more replicas before it
/// starts a full sync.
pub static REPL_DISKLESS_SYNC_DELAY: Handle<u64> = Opt::integer(
    "repl-diskless-sync-delay",
    "5",
    INT,
    "The time, in seconds, to wait for more replicas before a diskless sync starts.",
)
.typed();

/// `repl-diskless-sync-max-replicas`: the number of waiting replicas at which a full sync starts
/// without a further delay; 0: the number of waiting replicas does not matter.
pub static REPL_DISKLESS_SYNC_MAX_REPLICAS: Handle<usize> = Opt::integer(
    "repl-diskless-sync-max-replicas",
    "0",
    INT,
    "The number of waiting replicas at which a diskless sync starts without delay.",
)
.typed();

/// `repl-ping-replica-period`: the seconds between pings to replicas.
pub static REPL_PING_REPLICA_PERIOD: Handle<u64> = Opt::integer(
    "repl-ping-replica-period",
    "10",
    POSITIVE_INT,
    "The interval, in seconds, of pings from the primary to its replicas.",
)
.also(&["repl-ping-slave-period"])
.typed();

/// `repl-timeout`: the seconds without traffic after which a link counts as failed.
pub static REPL_TIMEOUT: Handle<u64> = Opt::integer(
    "repl-timeout",
    "60",
    POSITIVE_INT,
    "The time without traffic, in seconds, after which a replication link counts as failed.",
)
.typed();

/// `repl-writes-wait-above`: the bytes of the replication stream that a replica may not have
/// received yet before clients' writes wait; 0: writes never wait for replicas.
pub static REPL_WRITES_WAIT_ABOVE: Handle<u64> = Opt::memory(
    "repl-writes-wait-above",
    "0",
    BYTES,
    "Writes wait while a replica has still to read more than this many bytes of the stream; 0: writes \
     never wait for a replica.",
)
.typed();

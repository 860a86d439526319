//! The table of options for cluster mode.

use super::NO_CLUSTER;
use crate::config::option::{ANY, BYTES, INT, Opt, PORT, POSITIVE_INT};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
pub static OPTIONS: &[&Opt] = &[
    &Opt::flag("cluster-enabled", "no", "Run as a node of a cluster.").at_start().accepted(NO_CLUSTER),
    &Opt::file(
        "cluster-config-file",
        "nodes.conf",
        "The file in which a node stores the state of the cluster.",
    )
    .at_start()
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-port",
        "0",
        PORT,
        "The port of the cluster bus; 0 for the client port plus 10,000.",
    )
    .at_start()
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-node-timeout",
        "15000",
        ANY,
        "The time without traffic, in milliseconds, after which a node counts as failed.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-replica-validity-factor",
        "10",
        INT,
        "The factor that limits the age of a replica's data for a failover.",
    )
    .also(&["cluster-slave-validity-factor"])
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-migration-barrier",
        "1",
        INT,
        "The minimum number of replicas that a primary keeps when one migrates to another primary.",
    )
    .accepted(NO_CLUSTER),
    &Opt::flag(
        "cluster-allow-replica-migration",
        "yes",
        "Let replicas migrate to primaries without a replica.",
    )
    .accepted(NO_CLUSTER),
    &Opt::flag("cluster-require-full-coverage", "yes", "Refuse requests while a hash slot has no node.")
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-replica-no-failover", "no", "Never start a failover automatically.")
        .also(&["cluster-slave-no-failover"])
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-allow-reads-when-down", "no", "Serve reads while the cluster is down.")
        .accepted(NO_CLUSTER),
    &Opt::flag(
        "cluster-allow-pubsubshard-when-down",
        "yes",
        "Serve shard channels while the cluster is down.",
    )
    .accepted(NO_CLUSTER),
    &Opt::memory(
        "cluster-link-sendbuf-limit",
        "0",
        (0, u64::MAX),
        "The maximum size of unsent data, in bytes, after which a cluster link is closed.",
    )
    .accepted(NO_CLUSTER),
    &Opt::text("cluster-announce-ip", "", "The address that the node announces.").accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-port", "0", PORT, "The port that the node announces.")
        .accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-tls-port", "0", PORT, "The TLS port that the node announces.")
        .accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-client-port", "0", PORT, "The port that the node announces to clients.")
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-announce-client-tls-port",
        "0",
        PORT,
        "The TLS port that the node announces to clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::choice(
        "cluster-config-save-behavior",
        "sync",
        &["sync", "best-effort"],
        "The reaction if a node cannot write `cluster-config-file`: exit (`sync`) or continue \
         (`best-effort`).",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer("cluster-databases", "1", POSITIVE_INT, "The number of databases of a cluster node.")
        .at_start()
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-slot-migration-log-max-len",
        "1000",
        ANY,
        "The maximum number of finished slot migrations that are remembered.",
    )
    .accepted(NO_CLUSTER),
    &Opt::memory(
        "slot-migration-max-failover-repl-bytes",
        "0",
        BYTES,
        "The maximum size of unsent changes, in bytes, at which a slot may be handed over.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-bus-port", "0", PORT, "The bus port that the node announces.")
        .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-hostname",
        Kind::Checked(words::host_name),
        "",
        "The host name that the node announces.",
    )
    .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-human-nodename",
        Kind::Checked(words::node_name),
        "",
        "The name of the node in logs.",
    )
    .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-client-ipv4",
        Kind::Checked(words::ipv4_address),
        "",
        "The IPv4 address announced to clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-client-ipv6",
        Kind::Checked(words::ipv6_address),
        "",
        "The IPv6 address announced to clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::choice(
        "cluster-preferred-endpoint-type",
        "ip",
        &["ip", "hostname", "unknown-endpoint"],
        "The form in which nodes are announced to clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-blacklist-ttl",
        "60",
        (i64::MIN, i64::MAX),
        "The time, in seconds, for which a forgotten node cannot join again.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-manual-failover-timeout",
        "5000",
        POSITIVE_INT,
        "The maximum time of a manual failover, in milliseconds.",
    )
    .accepted(NO_CLUSTER),
    &Opt::flag("cluster-slot-stats-enabled", "no", "Collect statistics for each hash slot.")
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-compatibility-sample-ratio",
        "0",
        (0, 100),
        "The percentage of commands that are checked for compatibility with cluster mode.",
    )
    .accepted(NO_CLUSTER),
];

//! Options of cluster mode.

use super::NO_CLUSTER;
use crate::config::option::{ANY, BYTES, INT, Opt, PORT, POSITIVE_INT};
use crate::config::value::Kind;
use crate::config::words;

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &Opt::flag("cluster-enabled", "no", "Be a node of a cluster.").at_start().accepted(NO_CLUSTER),
    &Opt::file("cluster-config-file", "nodes.conf", "Where a node keeps what it knows of the cluster.")
        .at_start()
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-port",
        "0",
        PORT,
        "The port of the bus; 0 for 10,000 more than the clients' port.",
    )
    .at_start()
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-node-timeout",
        "15000",
        ANY,
        "Milliseconds of silence after which a node has failed.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-replica-validity-factor",
        "10",
        INT,
        "How old a replica's data may be for a failover.",
    )
    .also(&["cluster-slave-validity-factor"])
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-migration-barrier",
        "1",
        INT,
        "Replicas that a primary keeps when it gives one away.",
    )
    .accepted(NO_CLUSTER),
    &Opt::flag("cluster-allow-replica-migration", "yes", "Give replicas to primaries without any.")
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-require-full-coverage", "yes", "Refuse requests while a slot has no node.")
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-replica-no-failover", "no", "Never become a primary by itself.")
        .also(&["cluster-slave-no-failover"])
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-allow-reads-when-down", "no", "Answer reads while the cluster is down.")
        .accepted(NO_CLUSTER),
    &Opt::flag("cluster-allow-pubsubshard-when-down", "yes", "Publish on shards while the cluster is down.")
        .accepted(NO_CLUSTER),
    &Opt::memory(
        "cluster-link-sendbuf-limit",
        "0",
        (0, u64::MAX),
        "Unsent bytes after which a link is closed.",
    )
    .accepted(NO_CLUSTER),
    &Opt::text("cluster-announce-ip", "", "The address a node gives itself.").accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-port", "0", PORT, "The port a node gives itself.").accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-tls-port", "0", PORT, "The TLS port a node gives itself.")
        .accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-client-port", "0", PORT, "The port a node gives itself for clients.")
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-announce-client-tls-port",
        "0",
        PORT,
        "The TLS port a node gives itself for clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::choice(
        "cluster-config-save-behavior",
        "sync",
        &["sync", "best-effort"],
        "Whether a node continues if it cannot write the cluster's configuration.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer("cluster-databases", "1", POSITIVE_INT, "Number of databases of a node.")
        .at_start()
        .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-slot-migration-log-max-len",
        "1000",
        ANY,
        "Ended migrations of slots that are kept.",
    )
    .accepted(NO_CLUSTER),
    &Opt::memory(
        "slot-migration-max-failover-repl-bytes",
        "0",
        BYTES,
        "Maximum bytes of unsent changes at which a slot may be handed over.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer("cluster-announce-bus-port", "0", PORT, "The bus port a node gives itself.")
        .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-hostname",
        Kind::Checked(words::host_name),
        "",
        "The host name a node gives itself.",
    )
    .accepted(NO_CLUSTER),
    &Opt::new(
        "cluster-announce-human-nodename",
        Kind::Checked(words::node_name),
        "",
        "A node's name for people.",
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
        "How nodes are named to clients.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-blacklist-ttl",
        "60",
        (i64::MIN, i64::MAX),
        "Seconds that a forgotten node stays so.",
    )
    .accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-manual-failover-timeout",
        "5000",
        POSITIVE_INT,
        "Milliseconds a manual failover may take.",
    )
    .accepted(NO_CLUSTER),
    &Opt::flag("cluster-slot-stats-enabled", "no", "Count per slot.").accepted(NO_CLUSTER),
    &Opt::integer(
        "cluster-compatibility-sample-ratio",
        "0",
        (0, 100),
        "Percentage of commands that are checked \
         for whether they would work in a cluster.",
    )
    .accepted(NO_CLUSTER),
];

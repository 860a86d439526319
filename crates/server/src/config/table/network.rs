//! Options about listening.

use super::OTHER_DESIGN;
use crate::config::option::{INT, Opt, PORT, POSITIVE_INT};
use crate::config::value::Kind;
use crate::config::words;

/// This theme's options.
pub static OPTIONS: &[Opt] = &[
    Opt::integer("port", "6379", PORT, "The TCP port; 0 for no TCP."),
    Opt::new(
        "bind",
        Kind::Words(&words::ADDRESSES),
        "127.0.0.1 -::1",
        "The addresses to listen on, at most 16; `*` and `::*` mean all, and one that begins with `-` may be \
         missing on this machine.",
    ),
    Opt::integer("metrics-port", "0", PORT, "The port of the metrics endpoint; 0 for none. Saker only.")
        .at_start(),
    Opt::new(
        "metrics-bind",
        Kind::Words(&words::ADDRESSES),
        "127.0.0.1 -::1",
        "The addresses of the metrics endpoint, as in `bind`; it asks for no password. Saker only.",
    )
    .at_start(),
    Opt::choice(
        "metrics-per-command",
        "counters",
        &["no", "counters", "percentiles", "histograms"],
        "Metrics of each command that was run: none; calls, errors and time; these and the percentiles of \
         `latency-tracking-info-percentiles`; these and a histogram of times. Saker only.",
    ),
    Opt::text("unixsocket", "", "The path of a Unix socket to listen on.").at_start(),
    Opt::new("unixsocketperm", Kind::Octal, "0", "Permission bits of the Unix socket; 0 leaves the umask's.")
        .at_start(),
    Opt::text("unixsocketgroup", "", "The group that owns the Unix socket.")
        .at_start()
        .accepted("the socket keeps the group of the process"),
    Opt::integer(
        "tcp-backlog",
        "511",
        INT,
        "Connections that may wait to be accepted; the system may cut it.",
    )
    .at_start(),
    Opt::integer(
        "tcp-keepalive",
        "300",
        INT,
        "Seconds of silence after which a peer is probed; 0 leaves the system's default. Holds for connections \
         made after a change.",
    ),
    Opt::choice(
        "io-backend",
        "auto",
        &["auto", "io_uring", "epoll"],
        "The way to the kernel; `auto` takes io_uring where it is permitted. Saker only.",
    )
    .at_start(),
    Opt::integer(
        "io-threads",
        "1",
        (1, 128),
        "Threads that serve clients, each running commands. When nothing is said: the cores that the process \
         may use.",
    )
    .at_start(),
    Opt::integer(
        "turn-budget-us",
        "500",
        (50, 1_000_000),
        "Microseconds for which a thread runs requests before it sends the replies and looks for what arrived \
         meanwhile. Longer turns take less CPU under long pipelines and keep other clients waiting longer. \
         Saker only.",
    ),
    Opt::integer("prefetch-batch-max-size", "16", (0, 128), "Keys fetched into the cache ahead of use.")
        .accepted("batches have a size of their own"),
    Opt::integer(
        "max-new-connections-per-cycle",
        "10",
        (1, 1000),
        "Connections accepted in a turn of the event loop.",
    )
    .accepted("as many are accepted as wait"),
    Opt::text("bind-source-addr", "", "The address that outgoing connections come from.")
        .accepted("there are no outgoing connections so far"),
    Opt::integer(
        "socket-mark-id",
        "0",
        (0, u32::MAX as i64),
        "The mark put on the packets of listening sockets.",
    )
    .at_start()
    .accepted("packets are not marked"),
    Opt::text("rdma-bind", "", "The addresses to listen on with RDMA.").at_start().accepted(NO_RDMA),
    Opt::integer("rdma-port", "0", PORT, "The RDMA port.").accepted(NO_RDMA),
    Opt::integer(
        "rdma-rx-size",
        "1048576",
        (65536, 16 << 20),
        "Receive buffer of an RDMA connection, in bytes.",
    )
    .at_start()
    .accepted(NO_RDMA),
    Opt::integer("rdma-completion-vector", "-1", (-1, 1024), "The completion vector of RDMA connections.")
        .at_start()
        .accepted(NO_RDMA),
    Opt::flag("mptcp", "no", "Listen for Multipath TCP.").at_start().accepted(NO_MPTCP),
    Opt::text(
        "availability-zone",
        "",
        "Where the server runs: HELLO and INFO show it to clients that look for the nearest one.",
    ),
    Opt::integer("databases", "16", POSITIVE_INT, "Number of databases.").at_start(),
    Opt::text("hash-seed", "", "What the hash of keys begins with.")
        .at_start()
        .accepted("each start draws its own"),
    Opt::flag("always-show-logo", "no", "Print a logo at the start.").at_start().accepted(OTHER_DESIGN),
];

const NO_MPTCP: &str = "connections use plain TCP";
const NO_RDMA: &str = "there is no RDMA";

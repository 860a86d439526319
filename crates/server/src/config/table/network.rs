//! Options of the network and I/O threads.

use std::path::Path;

use net::BackendChoice;

use super::OTHER_DESIGN;
use crate::config::choices::PerCommand;
use crate::config::handle::{Choice as _, Handle, Permissions};
use crate::config::option::{self, INT, OnChange, Opt, POSITIVE_INT, Prepare};
use crate::config::value::{Kind, Value};
use crate::config::words;

/// The options of this theme.
pub static OPTIONS: &[&Opt] = &[
    &PORT.opt,
    &BIND.opt,
    &METRICS_PORT.opt,
    &METRICS_BIND.opt,
    &METRICS_PER_COMMAND.opt,
    &UNIXSOCKET.opt,
    &UNIXSOCKETPERM.opt,
    &Opt::text("unixsocketgroup", "", "The group that owns the Unix socket.")
        .at_start()
        .accepted("the socket keeps the group of the process"),
    &TCP_BACKLOG.opt,
    &TCP_KEEPALIVE.opt,
    &IO_BACKEND.opt,
    &IO_THREADS.opt,
    &TURN_BUDGET_US.opt,
    &Opt::integer("prefetch-batch-max-size", "16", (0, 128), "Keys fetched into the cache ahead of use.")
        .accepted("batches have a size of their own"),
    &Opt::integer(
        "max-new-connections-per-cycle",
        "10",
        (1, 1000),
        "Connections accepted in a turn of the event loop.",
    )
    .accepted("as many are accepted as wait"),
    &BIND_SOURCE_ADDR.opt,
    &Opt::integer(
        "socket-mark-id",
        "0",
        (0, u32::MAX as i64),
        "The mark put on the packets of listening sockets.",
    )
    .at_start()
    .accepted("packets are not marked"),
    &Opt::text("rdma-bind", "", "The addresses to listen on with RDMA.").at_start().accepted(NO_RDMA),
    &Opt::integer("rdma-port", "0", option::PORT, "The RDMA port.").accepted(NO_RDMA),
    &Opt::integer(
        "rdma-rx-size",
        "1048576",
        (65536, 16 << 20),
        "Receive buffer of an RDMA connection, in bytes.",
    )
    .at_start()
    .accepted(NO_RDMA),
    &Opt::integer("rdma-completion-vector", "-1", (-1, 1024), "The completion vector of RDMA connections.")
        .at_start()
        .accepted(NO_RDMA),
    &Opt::flag("mptcp", "no", "Listen for Multipath TCP.").at_start().accepted(NO_MPTCP),
    &AVAILABILITY_ZONE.opt,
    &DATABASES.opt,
    &Opt::text("hash-seed", "", "What the hash of keys begins with.")
        .at_start()
        .accepted("each start draws its own"),
    &Opt::flag("always-show-logo", "no", "Print a logo at the start.").at_start().accepted(OTHER_DESIGN),
];

/// The TCP port; 0 for no TCP.
pub static PORT: Handle<u16> = Opt::integer("port", "6379", option::PORT, "The TCP port; 0 for no TCP.")
    .on_change(OnChange::Prepare(Prepare::ListenOnPort))
    .typed();

/// The addresses to listen on.
pub static BIND: Handle<[Vec<u8>]> = Opt::new(
    "bind",
    Kind::Words(&words::ADDRESSES),
    "127.0.0.1 -::1",
    "The addresses to listen on, at most 16; `*` and `::*` mean all, and one that begins with `-` may be \
         missing on this machine.",
)
.on_change(OnChange::Prepare(Prepare::ListenOnAddresses))
.typed();

/// The port of the metrics endpoint; 0 for no endpoint.
pub static METRICS_PORT: Handle<u16> = Opt::integer(
    "metrics-port",
    "0",
    option::PORT,
    "The port of the metrics endpoint; 0 for none. Saker only.",
)
.at_start()
.typed();

/// The addresses of the metrics endpoint.
pub static METRICS_BIND: Handle<[Vec<u8>]> = Opt::new(
    "metrics-bind",
    Kind::Words(&words::ADDRESSES),
    "127.0.0.1 -::1",
    "The addresses of the metrics endpoint, as in `bind`; it asks for no password. Saker only.",
)
.at_start()
.typed();

/// The metrics that the metrics endpoint shows for each command.
pub static METRICS_PER_COMMAND: Handle<PerCommand> = Opt::choice(
    "metrics-per-command",
    "counters",
    PerCommand::WORDS,
    "Metrics of each command that was run: none; calls, errors and time; these and the percentiles of \
         `latency-tracking-info-percentiles`; these and a histogram of times. Saker only.",
)
.typed();

/// The path of the Unix socket; empty for none.
pub static UNIXSOCKET: Handle<Path> = Opt::file("unixsocket", "", "The path of a Unix socket to listen on.")
    .example("/run/saker/saker-server.sock")
    .at_start()
    .typed();

/// The permission bits of the Unix socket; 0 for the bits that the umask gives.
pub static UNIXSOCKETPERM: Handle<Permissions> =
    Opt::new("unixsocketperm", Kind::Octal, "0", "Permission bits of the Unix socket; 0 leaves the umask's.")
        .example("770")
        .at_start()
        .typed();

/// The maximum number of connections that wait to be accepted.
pub static TCP_BACKLOG: Handle<u32> = Opt::integer(
    "tcp-backlog",
    "511",
    INT,
    "Connections that may wait to be accepted; the system may cut it.",
)
.at_start()
.typed();

/// The idle time of a connection after which the kernel probes the peer, in seconds; 0 for the
/// system's default.
pub static TCP_KEEPALIVE: Handle<u64> = Opt::integer(
    "tcp-keepalive",
    "300",
    INT,
    "Seconds of silence after which a peer is probed; 0 leaves the system's default. Holds for connections \
         made after a change.",
)
.typed();

/// The interface to the kernel: io_uring or epoll.
pub static IO_BACKEND: Handle<BackendChoice> = Opt::choice(
    "io-backend",
    "auto",
    BackendChoice::WORDS,
    "The way to the kernel; `auto` takes io_uring where it is permitted. Saker only.",
)
.at_start()
.typed();

/// The number of I/O threads.
pub static IO_THREADS: Handle<usize> = Opt::integer(
    "io-threads",
    "1",
    (1, IO_THREADS_MAX),
    "Threads that serve clients, each running commands.",
)
.computed("one for each core that the process may use", usable_cores)
.example("4")
.at_start()
.typed();

/// The time in a turn for which a thread runs requests, in microseconds. It then sends the replies.
pub static TURN_BUDGET_US: Handle<u64> = Opt::integer(
    "turn-budget-us",
    "500",
    (50, 1_000_000),
    "Microseconds for which a thread runs requests before it sends the replies and looks for what arrived \
         meanwhile. Longer turns take less CPU under long pipelines and keep other clients waiting longer. \
         Saker only.",
)
.typed();

/// The source address of MIGRATE's connections; empty for any.
pub static BIND_SOURCE_ADDR: Handle<[u8]> = Opt::text(
    "bind-source-addr",
    "",
    "The address that connections to other servers come from, which MIGRATE makes. Where the machine does not have \
     it or it is of another family, the system chooses one.",
)
.typed();

/// The availability zone that HELLO and INFO show.
pub static AVAILABILITY_ZONE: Handle<[u8]> = Opt::text(
    "availability-zone",
    "",
    "Where the server runs: HELLO and INFO show it to clients that look for the nearest one.",
)
.typed();

/// The number of databases.
pub static DATABASES: Handle<usize> =
    Opt::integer("databases", "16", POSITIVE_INT, "Number of databases.").at_start().typed();

/// The maximum number of I/O threads on any machine.
const IO_THREADS_MAX: i64 = 128;

/// Returns the number of cores that the process may use, at most `IO_THREADS_MAX`.
fn usable_cores() -> Option<Value> {
    let cores = std::thread::available_parallelism().ok()?.get();
    Some(Value::Integer(i64::try_from(cores).unwrap_or(IO_THREADS_MAX).min(IO_THREADS_MAX)))
}

const NO_MPTCP: &str = "connections use plain TCP";
const NO_RDMA: &str = "there is no RDMA";

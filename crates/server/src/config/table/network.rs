//! The table of options for the network and the I/O threads.

use std::path::Path;

use net::BackendChoice;

use super::OTHER_DESIGN;
use crate::config::choices::PerCommand;
use crate::config::handle::{Choice as _, Handle, Permissions};
use crate::config::option::{self, INT, OnChange, Opt, POSITIVE_INT, Prepare};
use crate::config::value::{Kind, Value};
use crate::config::words;

/// The options of this file, in the order of docs/options.md.
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
        .accepted("the socket has the group of the process"),
    &TCP_BACKLOG.opt,
    &TCP_KEEPALIVE.opt,
    &IO_BACKEND.opt,
    &IO_THREADS.opt,
    &TURN_BUDGET_US.opt,
    &Opt::integer(
        "prefetch-batch-max-size",
        "16",
        (0, 128),
        "The maximum number of keys to prefetch into the CPU cache together.",
    )
    .accepted("the server chooses the size itself"),
    &Opt::integer(
        "max-new-connections-per-cycle",
        "10",
        (1, 1000),
        "The maximum number of connections to accept in one turn of the event loop.",
    )
    .accepted("the server accepts all waiting connections"),
    &BIND_SOURCE_ADDR.opt,
    &Opt::integer(
        "socket-mark-id",
        "0",
        (0, u32::MAX as i64),
        "The mark on the packets of listening sockets.",
    )
    .at_start()
    .accepted("packets are not marked"),
    &Opt::text("rdma-bind", "", "The addresses to listen on with RDMA.").at_start().accepted(NO_RDMA),
    &Opt::integer("rdma-port", "0", option::PORT, "The RDMA port.").accepted(NO_RDMA),
    &Opt::integer(
        "rdma-rx-size",
        "1048576",
        (65536, 16 << 20),
        "The size of the receive buffer of an RDMA connection, in bytes.",
    )
    .at_start()
    .accepted(NO_RDMA),
    &Opt::integer("rdma-completion-vector", "-1", (-1, 1024), "The completion vector of RDMA connections.")
        .at_start()
        .accepted(NO_RDMA),
    &Opt::flag("mptcp", "no", "Accept connections with Multipath TCP.").at_start().accepted(NO_MPTCP),
    &AVAILABILITY_ZONE.opt,
    &DATABASES.opt,
    &Opt::text("hash-seed", "", "The seed of the hash function for keys.")
        .at_start()
        .accepted("the server chooses a random seed at each start"),
    &Opt::flag("always-show-logo", "no", "Print a logo at the start.").at_start().accepted(OTHER_DESIGN),
];

/// The port of the TCP listener; 0 turns the listener off.
pub static PORT: Handle<u16> =
    Opt::integer("port", "6379", option::PORT, "The TCP port for clients; 0 disables plain TCP.")
        .on_change(OnChange::Prepare(Prepare::ListenOnPort))
        .typed();

/// The addresses on which the server accepts TCP and TLS connections of clients.
pub static BIND: Handle<[Vec<u8>]> = Opt::new(
    "bind",
    Kind::Words(&words::ADDRESSES),
    "127.0.0.1 -::1",
    "The addresses to listen on, at most 16. `*` means all IPv4 addresses, `::*` all IPv6 \
         addresses. The server also starts if an address that begins with `-` does not exist on this \
         machine.",
)
.on_change(OnChange::Prepare(Prepare::ListenOnAddresses))
.typed();

/// The port of the metrics endpoint; 0 turns the endpoint off.
pub static METRICS_PORT: Handle<u16> = Opt::integer(
    "metrics-port",
    "0",
    option::PORT,
    "The TCP port of the metrics endpoint; 0 disables the endpoint. Saker only.",
)
.at_start()
.typed();

/// The addresses of the metrics endpoint.
pub static METRICS_BIND: Handle<[Vec<u8>]> = Opt::new(
    "metrics-bind",
    Kind::Words(&words::ADDRESSES),
    "127.0.0.1 -::1",
    "The addresses of the metrics endpoint, in the syntax of `bind`. The endpoint asks for no \
         password: whoever can connect can read the metrics. Saker only.",
)
.at_start()
.typed();

/// The metrics that the metrics endpoint shows for each command.
pub static METRICS_PER_COMMAND: Handle<PerCommand> = Opt::choice(
    "metrics-per-command",
    "counters",
    PerCommand::WORDS,
    "The metrics of each command that was called. `no`: none. `counters`: calls, errors and time. \
         `percentiles`: the counters and the percentiles of `latency-tracking-info-percentiles`. \
         `histograms`: the counters and a histogram of times. Saker only.",
)
.typed();

/// The path of the Unix socket; empty for no Unix socket.
pub static UNIXSOCKET: Handle<Path> =
    Opt::file("unixsocket", "", "The path of the Unix socket to listen on; empty for none.")
        .example("/run/saker/saker-server.sock")
        .at_start()
        .typed();

/// The permission bits of the Unix socket; 0 for the bits that the umask gives.
pub static UNIXSOCKETPERM: Handle<Permissions> = Opt::new(
    "unixsocketperm",
    Kind::Octal,
    "0",
    "The permission bits of the Unix socket; 0 keeps the bits that the umask gives.",
)
.example("770")
.at_start()
.typed();

/// The maximum number of connections of a listener that the kernel queues until the server accepts
/// them.
pub static TCP_BACKLOG: Handle<u32> = Opt::integer(
    "tcp-backlog",
    "511",
    INT,
    "The maximum number of connections that wait to be accepted. The kernel may use a smaller \
         number.",
)
.at_start()
.typed();

/// The idle time of a connection after which the kernel probes the peer, in seconds; 0 for the
/// system's default.
pub static TCP_KEEPALIVE: Handle<u64> = Opt::integer(
    "tcp-keepalive",
    "300",
    INT,
    "The time without traffic, in seconds, after which the kernel probes the peer (TCP \
         keepalive); 0 keeps the system's default. A change applies to new connections.",
)
.typed();

/// The interface to the kernel that the event loops use: io_uring or epoll.
pub static IO_BACKEND: Handle<BackendChoice> = Opt::choice(
    "io-backend",
    "auto",
    BackendChoice::WORDS,
    "The kernel interface for network I/O. `auto` uses io_uring if the system permits it, else \
         epoll. Saker only.",
)
.at_start()
.typed();

/// The number of I/O threads.
pub static IO_THREADS: Handle<usize> = Opt::integer(
    "io-threads",
    "1",
    (1, IO_THREADS_MAX),
    "The number of threads that serve clients. Each of them runs commands.",
)
.computed("one for each core that the process may use", usable_cores)
.example("4")
.at_start()
.typed();

/// The time for which an I/O thread runs requests in one turn of its loop before it sends the
/// replies, in microseconds.
pub static TURN_BUDGET_US: Handle<u64> = Opt::integer(
    "turn-budget-us",
    "500",
    (50, 1_000_000),
    "The maximum time, in microseconds, for which a thread runs requests before it sends replies \
         and looks for new input. A longer time costs less CPU with long pipelines, but other clients \
         wait longer. Saker only.",
)
.typed();

/// The source address of MIGRATE's connections; empty for any.
pub static BIND_SOURCE_ADDR: Handle<[u8]> = Opt::text(
    "bind-source-addr",
    "",
    "The source address of connections to other servers, which MIGRATE opens. If the machine \
         lacks the address, or the target has another address family, the system chooses one.",
)
.typed();

/// The availability zone that HELLO and INFO show.
pub static AVAILABILITY_ZONE: Handle<[u8]> = Opt::text(
    "availability-zone",
    "",
    "The availability zone of the server. HELLO and INFO show it, so that clients can choose the \
         nearest server.",
)
.typed();

/// The number of databases.
pub static DATABASES: Handle<usize> =
    Opt::integer("databases", "16", POSITIVE_INT, "The number of databases.").at_start().typed();

/// The maximum number of I/O threads on any machine.
const IO_THREADS_MAX: i64 = 128;

/// Returns the number of cores that the process may use, at most `IO_THREADS_MAX`.
fn usable_cores() -> Option<Value> {
    let cores = std::thread::available_parallelism().ok()?.get();
    Some(Value::Integer(i64::try_from(cores).unwrap_or(IO_THREADS_MAX).min(IO_THREADS_MAX)))
}

pub(super) const NO_MPTCP: &str = "Saker does not support Multipath TCP";
const NO_RDMA: &str = "Saker does not support RDMA";

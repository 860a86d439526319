//! The options of an event loop: its back end, and the limits of a turn.

use std::time::Duration;

/// The expected delay between a request and its reply, which determines how long polls gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Replies are usually sent at the end of the turn.
    Prompt,
    /// Most output is held back until a slower operation ends, such as a write to a disk. With a
    /// hundred busy connections or more, a poll then gathers even if requests arrive slowly, and
    /// for up to twice [`LoopOptions::gather_us_max`]. The release of held output may be delayed
    /// until gathering ends.
    Held,
}

/// The kind of back end that the caller wants for an event loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring, the faster one by our measurements, if the kernel permits it; else epoll.
    #[default]
    Auto,
    /// io_uring, or an error if it is forbidden or missing.
    IoUring,
    /// epoll, or kqueue on a Mac.
    Epoll,
}

/// The kind of back end that an event loop uses to wait for the kernel's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring: requests and their results are passed through rings that the kernel shares.
    IoUring,
    /// epoll, or kqueue on a Mac: the kernel reports that sockets are ready, then ordinary system
    /// calls transfer the bytes.
    Epoll,
}

impl Backend {
    /// Returns the name of the back end: `io_uring` or `epoll`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::IoUring => "io_uring",
            Backend::Epoll => "epoll",
        }
    }
}

/// The options of one event loop. The defaults suit a server with thousands of connections.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// The kind of back end that the event loop uses: epoll, io_uring, or the best available.
    pub backend: BackendChoice,
    /// The length of a chunk, the unit of receiving, in bytes. With epoll, one receive takes at
    /// most one chunk, unless a large request was announced with `reserve_input`. With io_uring,
    /// this limit applies only to connections with much unparsed input.
    pub read_chunk_len_bytes: usize,
    /// The maximum number of bytes received in one turn from all connections together. When it is
    /// reached, the other connections wait for the next turn.
    pub turn_input_len_bytes_max: usize,
    /// The maximum number of bytes sent to one connection before others get their turn.
    pub write_len_bytes_max: usize,
    /// The maximum number of connections accepted from one listener in one turn, with epoll. With
    /// io_uring, all waiting connections are accepted: at most the listener's backlog.
    pub accepts_per_turn_max: usize,
    /// The longest time for which a poll gathers requests when many connections are busy, in
    /// microseconds. With 0 a poll always returns with the first request.
    ///
    /// To gather is to wait for more than one request before the poll returns. A thread that is
    /// faster than its clients would otherwise sleep and be woken for every one or two requests,
    /// and a wake-up costs more than a request. A poll gathers for the mean time in which a 24th of
    /// the busy connections, at least two, send a request. It does not gather when requests arrive
    /// slowly. Linux only; with io_uring of Linux 6.12 or later it ends as soon as half of the busy
    /// connections have sent a request.
    pub gather_us_max: u32,
    /// True if a connection stays open for output after its peer has finished sending, which
    /// `PeerFinished` reports. For callers that forward connections. If false, the connection is
    /// closed after all of its input was reported.
    pub keeps_half_closed: bool,
    /// The maximum number of TLS handshakes that a turn continues; the others wait for the next
    /// turns. One step may cost as much as hundreds of requests.
    pub handshakes_per_turn_max: usize,
    /// The time limit of a TLS handshake; a connection that exceeds it is closed.
    pub handshake_time_max: Duration,
    /// The TCP keepalive: the silence after which a peer is probed. `None` leaves the system's
    /// default.
    pub keepalive: Option<Duration>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            read_chunk_len_bytes: 16 * 1024,
            turn_input_len_bytes_max: 1024 * 1024,
            write_len_bytes_max: 1024 * 1024,
            accepts_per_turn_max: 256,
            gather_us_max: 100,
            keeps_half_closed: false,
            handshakes_per_turn_max: 4,
            handshake_time_max: Duration::from_secs(10),
            keepalive: None,
        }
    }
}

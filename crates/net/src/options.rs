//! The options of an event loop.

use std::time::Duration;

/// The delay at which the peers of most connections expect replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as possible.
    Prompt,
    /// Output of connections is held back until something slower than a poll is done. Where a
    /// hundred are busy, a poll gathers then although requests arrive slowly, and for twice as long
    /// as [`LoopOptions::gather_us_max`]; what releases the output may wait for the end of that.
    Held,
}

/// The wanted way to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The faster one by our measurements, io_uring, if the kernel permits it; else epoll.
    #[default]
    Auto,
    /// io_uring, or an error where it is forbidden or missing.
    IoUring,
    /// epoll (kqueue on a Mac).
    Epoll,
}

/// The way to the kernel in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring: submissions and completions in shared rings.
    IoUring,
    /// epoll, or kqueue on a Mac: readiness, then ordinary system calls.
    Epoll,
}

impl Backend {
    /// Returns `io_uring` or `epoll`.
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
    /// The back end to use.
    pub backend: BackendChoice,
    /// The most that is received from one connection in one turn, unless a large request was
    /// announced with `reserve_input`.
    pub read_chunk_len_bytes: usize,
    /// Memory for what is received in one turn, over all connections. When it is full, the other
    /// connections wait for the next turn.
    pub turn_input_len_bytes_max: usize,
    /// The most that is sent to one connection before the others get their turn.
    pub write_len_bytes_max: usize,
    /// The most connections accepted from a listener in one turn of epoll; io_uring takes all that
    /// wait, which are at most the listener's backlog.
    pub accepts_per_turn_max: usize,
    /// The longest time for which a poll gathers requests when many connections are busy, in
    /// microseconds. With 0 a poll always returns with the first request.
    ///
    /// A thread that is faster than its clients would otherwise fall asleep and be woken for every
    /// one or two requests, which costs more than they do. It gathers for the time in which a 24th
    /// of the busy connections send, at least two. It does not gather when requests arrive slowly.
    /// Replies never wait for it. Linux only; with io_uring from 6.12 on it ends as soon as half
    /// of the busy connections have sent.
    pub gather_us_max: u32,
    /// A peer that has finished sending is reported by `PeerFinished`, and the connection stays
    /// for output, which is for those who pass connections on. Else it is closed when what the
    /// peer sent was reported.
    pub keeps_half_closed: bool,
    /// The most TLS handshakes that a turn goes on with; the others wait for the next turns. One
    /// may cost as much as hundreds of requests.
    pub handshakes_per_turn_max: usize,
    /// The longest time of a TLS handshake; the connection is closed then.
    pub handshake_time_max: Duration,
    /// TCP keepalive: silence after which a peer is probed. `None` leaves the system's default.
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

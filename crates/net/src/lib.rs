//! Event loops over io_uring and epoll (kqueue on a Mac) behind one interface: bytes in, bytes out.
//!
//! ```text
//!   EventLoop (one per thread)
//!     poll   ── wait, receive ──►  events   Accepted Connected Data Drained Released Closed Woken
//!     split  ──►  Inputs: unconsumed bytes of a connection, one slice
//!            └►   Outputs: the queue of replies of a connection
//!     flush  ── send every queue that is not empty
//! ```
//! One turn is `poll`, then for each event `Inputs::bytes` / `consume` / `Outputs::queue`, then
//! `flush`. The bytes received in a turn are in memory of the thread and are used in place. Only
//! unconsumed bytes are copied, at the start of the next turn. An idle connection has no buffer in
//! either direction.
//!
//! The caller uses connections of a TLS listener in the same way: records are decrypted ("opened")
//! on receipt, and queued bytes are encrypted ("sealed") when they are sent (`tls/`).
//!
//! The life of a connection:
//!
//! ```text
//!   Accepted { socket } ─► adopt ─┐                            ┌─► Closed
//!   connect ─────────► Connected ─┼─► Data, Drained, Data … ───┤
//!   Released(_, socket) ─► adopt ─┘                            └─ release ─► Released(_, socket)
//! ```
//! A connection may move to the loop of another thread at any time. [`EventLoop::release`] takes it
//! out of its loop, together with the unconsumed input, the unsent output and the TLS session.
//! [`EventLoop::adopt`] continues it elsewhere: no byte is lost or doubled in either direction.
//! With io_uring a release waits for the end of cancelled requests, while the loop serves its other
//! connections; so its result is an event. Outgoing connections ([`EventLoop::connect`]) are opened
//! without blocking, within a deadline.
//!
//! [`EventLoop`] is the interface. `epoll.rs` and `uring.rs` are its two back ends, and `core.rs`
//! is the state that both share: connections, input, output, TLS, moves. All unsafe code is in
//! `sys/`.
#![deny(unsafe_code)]

mod accept_pauses;
mod carried;
mod core;
mod ending;
mod epoll;
mod event;
mod event_loop;
mod held;
mod id;
mod input;
mod listener;
mod options;
mod output;
mod send;
mod slab;
mod socket;
mod socket_file;
#[allow(unsafe_code)]
mod sys;
pub mod tls;
#[cfg(target_os = "linux")]
mod uring;
mod waker;

pub use ending::{CloseReason, ConnectError};
pub use event::Event;
pub use event_loop::EventLoop;
pub use id::ListenerId;
pub use input::Inputs;
pub use listener::{Listener, UNIX_PATH_LEN_MAX};
pub use options::{Backend, BackendChoice, LoopOptions, Pace};
pub use output::Outputs;
pub use socket::Socket;
pub use socket_file::SocketFile;
pub use stdx::{Address, ConnId};
pub use tls::{Agreed, TlsClient, TlsFailure, TlsServer, cipher_suites};
pub use waker::Waker;

//! Event loops over io_uring and epoll (kqueue on a Mac) behind one interface: bytes in, bytes out.
//!
//! ```text
//!   EventLoop (one per thread)
//!     poll   ── wait, receive ──►  events   Accepted Data Drained Closed Woken
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
//! [`EventLoop`] is the interface. `epoll.rs` and `uring.rs` are its two back ends, and `core.rs`
//! is the state that both share: connections, input, output, TLS. All unsafe code is in `sys/`.
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

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
//! `flush`. What was received in a turn lies in memory of the thread and is used in place; only
//! what the caller did not consume is copied, when the next turn begins. An idle connection holds
//! no buffer, in either direction.
//!
//! Connections of a TLS listener are the same to the caller: their bytes are opened where they were
//! received, and what is queued for them is sealed when it is sent (`tls/`).
//!
//! [`EventLoop`] is the door; `epoll.rs` and `uring.rs` are the two rooms behind it, over the state
//! that they share (`core.rs`: connections, bytes in and out, TLS). `sys/` holds all unsafe code.
#![deny(unsafe_code)]

mod accept_pauses;
mod core;
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

pub use event::{CloseReason, Event};
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

//! The server: threads, sockets, options, INFO, metrics. As a library, it starts an embedded
//! server in the caller's process.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let server = server::Server::builder().port(0).io_threads(1).start()?;
//! let mut client = std::net::TcpStream::connect(("127.0.0.1", server.port()))?;
//! client.write_all(b"PING\r\n")?;
//! let mut reply = [0; 7];
//! client.read_exact(&mut reply)?;
//! assert_eq!(&reply, b"+PONG\r\n");
//! server.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod acl_fuzz;
pub mod append_only;
pub mod audit;
pub mod builder;
pub mod client_line;
pub mod commands;
pub mod config;
pub mod connection_pool;
pub mod context;
pub mod housekeeper;
pub mod info;
pub mod limits;
mod listen;
mod log_file;
pub mod logging;
pub mod login_delays;
pub mod metrics;
pub mod oidc;
pub mod persistence;
pub mod primary_link;
pub mod process;
mod random;
pub mod replica_stream;
pub mod replicas;
pub mod replication;
pub mod rules;
pub mod run_queue;
pub mod scripting;
pub mod session_fuzz;
pub mod shared;
pub mod shutdown;
pub mod snapshots;
pub mod start_error;
pub mod supervisor;
pub mod tls;
pub mod users;
pub mod worker;

pub use builder::{Builder, Server};
pub use start_error::StartError;

/// The Redis version that is reported to clients, which choose features by it.
pub const REDIS_VERSION: &str = "8.0.2";

/// The global allocator: mimalloc with a byte count per thread.
#[global_allocator]
static ALLOCATOR: structures::alloc::CountingAllocator = structures::alloc::CountingAllocator;

//! Test tools: a blocking client, servers as processes, `.resp` scripts, the differential runner.
//!
//! Nothing in this crate depends on the server crate, so that the server's own tests can use it.
//! The tools reach a server only by its port or socket path. With the feature `saves` or in the
//! simulator, the crate has two more modules: a folder on a simulated disk (`disk`), and an engine
//! that replays commands (`replay`). With the feature `soak`, it has the soak test. `SAKER_PEER`
//! names the real Redis from which expected replies are recorded.
#![forbid(unsafe_code)]

pub mod change_stream;
pub mod client;
#[cfg(any(shuttle, feature = "saves"))]
pub mod contents;
pub mod differential;
#[cfg(any(shuttle, feature = "saves"))]
pub mod disk;
pub mod documented;
pub mod history;
pub mod linearizability;
pub mod matching;
pub mod notation;
pub mod process;
pub mod programs;
pub mod queue;
#[cfg(any(shuttle, feature = "saves"))]
pub mod replay;
#[cfg(any(shuttle, feature = "saves"))]
pub mod replication;
pub mod rng;
pub mod script;
pub mod sequential;
#[cfg(shuttle)]
pub mod simulator;
#[cfg(feature = "soak")]
pub mod soak;
pub mod waits;

pub use client::{Address, Client, ClientError};
pub use process::{ServerProcess, peer, saker};
pub use resp::{Protocol, Value};
pub use rng::Rng;

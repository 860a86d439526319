//! saker-bench: a load generator for servers that speak the Redis protocol, and a tool that
//! compares servers.
//!
//! ```text
//!   cli ─► RunSpec ─► run ─┬─ worker thread: event loop, connections, histogram
//!                          ├─ worker thread …
//!                          └─ the calling thread: progress, samples, Ctrl-C
//!                     ─► RunResult ─► text, CSV, JSON │ compare: rounds, reports
//! ```
//! [`run`] is the main entry point. A [`RunSpec`](spec::RunSpec) names the server, the requests and
//! the load; a [`RunResult`](results::RunResult) holds the results. A result always shows if the
//! client was the bottleneck, if replies were errors and if the run ended early.
#![forbid(unsafe_code)]

pub mod cli;
pub mod compare;
pub mod output;
pub mod program;
pub mod results;
pub mod spec;
pub mod sweep;
pub mod workload;

mod engine;
mod error;
mod interrupt;
mod usage;

pub use engine::{fuzz, idle, run, set_up};
pub use error::BenchError;
pub use usage::ProcessUse;

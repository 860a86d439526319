//! saker-bench: a load generator for servers that speak the Redis protocol,
//! and comparisons of them.
//!
//! ```text
//!   cli ─► RunSpec ─► run ─┬─ worker thread: event loop, connections, histogram
//!                          ├─ worker thread …
//!                          └─ the calling thread: progress, samples, Ctrl-C
//!                     ─► RunResult ─► text, CSV, JSON │ compare: rounds, reports
//! ```
//! [`run`] is the one way in: a [`RunSpec`](spec::RunSpec) says what to send to whom and how, a
//! [`RunResult`](results::RunResult) what came of it. A result never hides that the client was the
//! limit, that replies were errors or that the run ended early.
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

pub use engine::{fuzz, idle, run};
pub use error::BenchError;
pub use usage::ProcessUse;

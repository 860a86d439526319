//! Lua as scripts of Redis see it: the sandbox, `redis.*`, the libraries cjson, cmsgpack, struct
//! and bit, and conversions between Lua's values and replies. What a script asks of the server goes
//! through [`Commands`]; engine, keyspace, threads and sockets are not known here.
//!
//! Each thread has its own [`Vm`]. Scripts and libraries are text shared by whoever owns the
//! registry: a `Vm` compiles them when they run for the first time and may forget them at any time.
//!
//! Rooms, in the order of their arrows: `sha`, `flags`, `options`, `commands` (what goes in and
//! out), `pattern` (Lua's patterns), `debug_state` (what the debugger keeps), `lua` (the C
//! interface, and all that is unsafe), `shell` (read-only tables), `errors`, `math` and `base`
//! (what differs in Lua's own libraries), `reply` (conversions), `api` (`redis.*`), `library`
//! (FUNCTION LOAD), `sandbox` (what scripts find), `debug` (the debugger), `vm`.

#![deny(unsafe_code)]

mod api;
mod base;
pub mod commands;
mod debug;
mod debug_state;
mod errors;
pub mod flags;
mod json_settings;
mod libraries;
mod library;
#[allow(unsafe_code)]
mod lua;
mod math;
mod numbers;
pub mod options;
mod pattern;
mod reply;
mod sandbox;
pub mod sha;
mod shell;
pub mod vm;

pub use commands::{Commands, LogLevel, NoSuchCall, Repl, Stop};
pub use debug_state::{DebugClient, Received};
pub use flags::{FunctionInfo, ScriptFlags, parse_flag};
pub use options::VmOptions;
pub use sha::{Sha, ShaMap};
pub use vm::{Call, CompileError, ErrorReply, FunctionName, Library, LibraryError, RunError, Vm};

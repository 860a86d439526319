//! Lua as scripts of Redis see it: the sandbox, `redis.*`, the libraries cjson, cmsgpack, struct
//! and bit, and conversions between Lua's values and replies. What a script asks of the server goes
//! through [`Commands`]; engine, keyspace, threads and sockets are not known here.
//!
//! Each thread has its own [`Vm`]. Scripts and libraries are text shared by whoever owns the
//! registry: a `Vm` compiles them when they run for the first time and may forget them at any time.
//!
//! Rooms, in the order of their arrows: `sha`, `flags`, `commands` (what goes in and out), `raised`
//! (errors as Lua values), `bridge` (the way from a Lua function to `Commands`), the libraries
//! (`pattern`, `strings`, `cjson`, `cmsgpack`, `structs`, `bits`, `math`), `reply` (conversions),
//! `api` (`redis.*`), `sandbox`, `library`, `vm`.
#![forbid(unsafe_code)]

pub mod commands;
pub mod flags;
pub mod sha;
pub mod vm;

pub use commands::{Commands, LogLevel, Repl, Stop};
pub use flags::{ScriptFlags, parse_flag};
pub use sha::Sha;
pub use vm::{
    Call, CompileError, ErrorReply, FunctionInfo, FunctionName, Library, LibraryError, RunError, Vm,
    VmOptions,
};

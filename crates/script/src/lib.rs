//! The Lua environment of Redis scripts: the sandbox, `redis.*`, the libraries cjson, cmsgpack,
//! struct and bit, and the conversions between Lua values and replies. A script uses the server
//! only through [`Commands`]. This crate does not know the engine, the keyspace, threads or
//! sockets.
//!
//! Each thread has its own [`Vm`]. The owner of the registry shares the texts of scripts and
//! libraries between threads. A `Vm` compiles a text when it runs for the first time, and may evict
//! it at any time.
//!
//! Modules, each of which uses only modules before it:
//! - `sha`, `flags`, `options`, and `commands` (the interface to the server);
//! - `numbers`, `json_settings`, `pattern` (Lua's patterns), `debug_state` (the debugger's state);
//! - `lua` (the C interface, with all unsafe code), `shell` (read-only tables), and `errors`;
//! - `math` and `base` (replacements for functions of Lua's own libraries);
//! - `libraries` (`string`, cjson and the others);
//! - `reply` (conversions), `api` (`redis.*`), `library` (FUNCTION LOAD);
//! - `sandbox` (the global variables of scripts), `debug` (the debugger), and `vm`.

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

/// Checks with one fuzz input that our pattern functions give the same results as Lua's own. The
/// first byte of `data` is the length of the pattern; the pattern and the subject follow.
///
/// # Panics
/// If a result differs.
#[cfg(fuzzing)]
pub fn fuzz_patterns(data: &[u8]) {
    use libraries::compare::{Case, Comparison};
    thread_local! {
        static COMPARISON: std::cell::RefCell<Comparison> = std::cell::RefCell::new(Comparison::new());
    }
    // Lua's own matcher takes too long for longer patterns and subjects.
    let Some((&len, rest)) = data.split_first() else { return };
    let (pattern, rest) = rest.split_at(rest.len().min(usize::from(len) % 12));
    let subject = &rest[..rest.len().min(24)];
    let init = f64::from(len >> 4) - 4.0;
    let case =
        Case { subject, pattern, replacement: &pattern[pattern.len() / 2..], init, count_max: init + 4.0 };
    COMPARISON.with_borrow_mut(|comparison| comparison.check(&case));
}

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

/// Patterns match as those of Lua, whatever the bytes: a length, as long a pattern, and a subject.
#[cfg(fuzzing)]
pub fn fuzz_patterns(data: &[u8]) {
    use libraries::compare::{Case, Comparison};
    thread_local! {
        static COMPARISON: std::cell::RefCell<Comparison> = std::cell::RefCell::new(Comparison::new());
    }
    // Longer ones take Lua's own matcher too long.
    let Some((&len, rest)) = data.split_first() else { return };
    let (pattern, rest) = rest.split_at(rest.len().min(usize::from(len) % 12));
    let subject = &rest[..rest.len().min(24)];
    let init = f64::from(len >> 4) - 4.0;
    let case =
        Case { subject, pattern, replacement: &pattern[pattern.len() / 2..], init, count_max: init + 4.0 };
    COMPARISON.with_borrow_mut(|comparison| comparison.check(&case));
}

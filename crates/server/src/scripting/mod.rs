//! Scripts: the cache for all threads ([`cache`]), and the libraries of functions ([`functions`]).
//! Each I/O thread has its own Lua state (`worker::scripts`), and a second one that only checks
//! that scripts and libraries compile ([`compiler`]). Clients may debug their scripts
//! ([`debugging`]).

pub mod cache;
pub mod compiler;
pub mod debugging;
pub mod functions;

use script::VmOptions;

/// The version of Redis that is reported to scripts.
const REDIS_VERSION: (u32, u32, u32) = (8, 0, 2);

/// Returns the options with which each Lua state is created.
pub fn vm_options() -> VmOptions {
    let (major, minor, patch) = REDIS_VERSION;
    VmOptions {
        redis_version: format!("{major}.{minor}.{patch}"),
        redis_version_number: major << 16 | minor << 8 | patch,
        server_name: "saker".to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        memory_limit_bytes: None,
    }
}

//! Builds PUC Lua 5.1 from its C sources, with our way to write numbers ([`number.h`]).
//!
//! `lua-src` compiles with the flags of the environment and takes no others, so this program runs
//! itself once more with one flag added there.
//!
//! [`number.h`]: src/lua/number.h

use std::path::Path;
use std::process::Command;

/// Set in the second run.
const IS_INNER: &str = "SCRIPT_BUILDS_LUA";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/lua/number.h");
    println!("cargo:rerun-if-env-changed=CFLAGS");
    if std::env::var_os(IS_INNER).is_some() {
        lua_src::Build::new().build(lua_src::Lua51).print_cargo_metadata();
        return;
    }
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let header = Path::new(&folder).join("src/lua/number.h");
    let flags = std::env::var("CFLAGS").unwrap_or_default();
    let done = Command::new(std::env::current_exe().expect("a running program has a path"))
        .env(IS_INNER, "1")
        .env("CFLAGS", format!("{flags} -include {}", header.display()))
        .status()
        .expect("it has just been started");
    assert!(done.success(), "Lua does not compile");
}

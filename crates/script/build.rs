//! Builds PUC Lua 5.1 from its C sources, as one unit, with our text of numbers ([`number.h`]).
//!
//! `lua-src` has the sources and compiles them one by one. As one unit ([`unit.c`]) the compiler
//! sees through the calls between them: `table.sort` takes two thirds of the time. `lua-src` takes
//! neither files nor flags from us, so this program runs itself once more, and is the compiler that
//! `lua-src` finds there: it hands over to the real one, with another file.
//!
//! ```text
//!   main ─► lua-src, in a second run ─► compile, once a source ─► the real compiler
//! ```
//! [`number.h`]: src/lua/number.h
//! [`unit.c`]: src/lua/unit.c

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Set in the second run and below: the real compiler.
const COMPILER: &str = "SCRIPT_BUILDS_LUA_BY";
/// The folder of `unit.c` and `number.h`.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lua");
/// The source of Lua in whose place the unit is compiled.
const STAND_IN: &str = "lapi.c";
/// For the unit. Nothing replaces Lua's functions when the server starts, so calls of those that
/// are called from outside, too, may be inlined. Where a function begins within 64 bytes made loops
/// of scripts a fifth faster or slower from one build to the next, by what stood before it.
const UNIT_FLAGS: [&str; 3] = ["-fvisibility=hidden", "-fomit-frame-pointer", "-falign-functions=64"];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match std::env::var_os(COMPILER) {
        Some(compiler) if !arguments.is_empty() => compile(&compiler, arguments),
        Some(_) => {
            lua_src::Build::new().build(lua_src::Lua51).print_cargo_metadata();
            ExitCode::SUCCESS
        }
        None => start(),
    }
}

/// The run that cargo starts.
fn start() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["cheap.h", "number.h", "unit.c"] {
        println!("cargo:rerun-if-changed=src/lua/{name}");
    }
    println!("cargo:rerun-if-env-changed=CFLAGS");
    println!("cargo:rerun-if-env-changed=CC");
    let target = std::env::var("TARGET").expect("cargo sets it");
    let ourselves = std::env::current_exe().expect("a running program has a path");
    let done = Command::new(&ourselves)
        .env(COMPILER, cc::Build::new().cargo_metadata(false).get_compiler().path())
        .env(format!("CC_{target}"), &ourselves)
        .status()
        .expect("it has just been started");
    assert!(done.success(), "Lua does not compile");
    ExitCode::SUCCESS
}

/// One call of the compiler. Sources that stand in the unit become empty.
fn compile(compiler: &OsString, mut arguments: Vec<OsString>) -> ExitCode {
    let mut command = Command::new(compiler);
    let source = arguments.iter().position(|it| it.to_string_lossy().ends_with(".c"));
    if let Some(at) = source.filter(|_| arguments.iter().any(|it| it == "-c")) {
        let is_stand_in = Path::new(&arguments[at]).ends_with(STAND_IN);
        arguments[at] = if is_stand_in { format!("{SOURCES}/unit.c").into() } else { "/dev/null".into() };
        arguments.extend(UNIT_FLAGS.map(OsString::from));
        command.args(["-x", "c"]);
    }
    let status = command.args(arguments).status().expect("the compiler has been found before");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! Builds PUC Lua 5.1 from its C sources as one compilation unit, with our conversions between
//! numbers and text ([`number.h`]) and the patches of `src/lua/patches`.
//!
//! The crate `lua-src` has the sources and compiles each one by itself. If all are in one unit
//! ([`unit.c`]), the compiler can optimize the calls between them: `table.sort` then takes two
//! thirds of the time. `lua-src` accepts no other files or flags. So this program starts itself a
//! second time and names itself as the compiler. `lua-src` then calls this program for each source,
//! and this program calls the real compiler with the unit.
//!
//! ```text
//!   main ─► lua-src, in a second run ─► compile, once a source ─► the real compiler
//!                                          └─► patched: a copy of the sources, checked and patched
//! ```
//! Lua 5.1.5 is from 2012, and flaws have been found in it since. Each file of `src/lua/patches`
//! fixes one flaw, and names the flaw and its test. A patch applies only to the source that it was
//! made for. If the checksum of a source differs, the build stops.
//!
//! Under AddressSanitizer (`-Zsanitizer=address` in the flags of rustc) the C code is instrumented
//! too, and traps on undefined behaviour.
//!
//! [`number.h`]: src/lua/number.h [`unit.c`]: src/lua/unit.c

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use sha2::{Digest, Sha256};

/// The environment variable that holds the path of the real compiler. It is set in the second run
/// and in its child processes.
const COMPILER: &str = "SCRIPT_BUILDS_LUA_BY";
/// The folder of `unit.c`, `number.h` and `cheap.h`.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lua");
/// The source of Lua for which the unit is compiled. For every other source, an empty file is
/// compiled.
const STAND_IN: &str = "lapi.c";
/// Flags of the unit. Lua's functions are hidden from other libraries, which therefore cannot
/// replace them. So calls of functions that are also called from outside the unit may be inlined.
///
/// Functions begin at multiples of 64 bytes. Without that, loops of scripts were a fifth faster or
/// slower from one build to the next, depending on the code before the function. Lua relies on
/// arithmetic that wraps, which C leaves undefined without a flag.
const UNIT_FLAGS: [&str; 6] = [
    "-fvisibility=hidden",
    "-fomit-frame-pointer",
    "-falign-functions=64",
    "-fwrapv",
    "-fno-delete-null-pointer-checks",
    "-fstack-protector-strong",
];
/// Flags of the unit under AddressSanitizer. Conversions of numbers that do not fit are not
/// checked: Lua deliberately uses the processor's result.
const SANITIZER_FLAGS: [&str; 4] = [
    "-fsanitize=address",
    "-fsanitize=undefined",
    "-fno-sanitize=float-cast-overflow,alignment",
    "-fsanitize-undefined-trap-on-error",
];

/// The changes of one source of Lua.
struct Patch {
    /// The file name of the source. `sha256` is the SHA-256 of its text in lua-src.
    source: &'static str,
    sha256: &'static str,
    /// The unified diffs, in the order in which they apply.
    diffs: &'static [&'static str],
}

const PATCHES: [Patch; 7] = [
    Patch {
        source: "lbaselib.c",
        sha256: "b14c49fae6fa4690662185bf842cb05d87756585d2f5bdd8495251fde83ef331",
        diffs: &[include_str!("src/lua/patches/01-unpack-count.patch")],
    },
    Patch {
        source: "lparser.c",
        sha256: "3590f24bab5763af673182e40d33194a7de6f5eabe5432c02a548d44225d2b63",
        diffs: &[include_str!("src/lua/patches/02-chunk-name-anchor.patch")],
    },
    Patch {
        source: "llex.c",
        sha256: "f1ade23f957e69f164ff28e133b201dff5d81726c390b060110b60907831e79b",
        diffs: &[
            include_str!("src/lua/patches/03-long-bracket-level.patch"),
            include_str!("src/lua/patches/04-first-token.patch"),
        ],
    },
    Patch {
        source: "ldo.c",
        sha256: "999a17e96f8b2468d26e4d369316a4018e062d97a4ced0a26cc1a1ebd07b353b",
        diffs: &[include_str!("src/lua/patches/05-no-bytecode.patch")],
    },
    Patch {
        source: "lstring.c",
        sha256: "aa7e934c435d870b9d937ac2fb03dbfa15d367012d46e7e995a2ad8d440f2f6d",
        diffs: &[include_str!("src/lua/patches/06-hash-all-bytes.patch")],
    },
    Patch {
        source: "ltable.c",
        sha256: "3a853ce89bf5e834ec53f2a0dd2386eb8b84accbe5fdc18dabd7515b819f0f7c",
        diffs: &[include_str!("src/lua/patches/07-array-index.patch")],
    },
    Patch {
        source: "lcode.c",
        sha256: "027030bbef34115588bd4a64cf4c8c18236a56936835475a154277478767bac5",
        diffs: &[include_str!("src/lua/patches/08-jump-lists.patch")],
    },
];

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

/// Handles the run that cargo starts: starts the second run, with this program as its compiler.
fn start() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["cheap.h", "number.h", "unit.c"] {
        println!("cargo:rerun-if-changed=src/lua/{name}");
    }
    println!("cargo:rerun-if-changed=src/lua/patches");
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

/// Handles one call of the compiler: compiles the unit in the place of one source, and an empty
/// file in the place of each other source.
fn compile(compiler: &OsString, mut arguments: Vec<OsString>) -> ExitCode {
    let mut command = Command::new(compiler);
    let source = arguments.iter().position(|it| it.to_string_lossy().ends_with(".c"));
    if let Some(at) = source.filter(|_| arguments.iter().any(|it| it == "-c")) {
        let source = PathBuf::from(&arguments[at]);
        if source.ends_with(STAND_IN) {
            // The arguments also name the folder of lua-src; the first folder has precedence.
            command.arg("-I").arg(patched(source.parent().expect("a source lies in a folder")));
            arguments[at] = format!("{SOURCES}/unit.c").into();
        } else {
            arguments[at] = "/dev/null".into();
        }
        arguments.extend(UNIT_FLAGS.map(OsString::from));
        if is_sanitized() {
            arguments.extend(SANITIZER_FLAGS.map(OsString::from));
        }
        command.args(["-x", "c"]);
    }
    let status = command.args(arguments).status().expect("the compiler has been found before");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns true if rustc's code is built for AddressSanitizer and not for a fuzzer, which has its
/// own run-time library.
fn is_sanitized() -> bool {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let mut flags = flags.split('\x1f');
    flags.clone().any(|flag| flag.ends_with("sanitizer=address")) && !flags.any(|flag| flag == "fuzzing")
}

/// Copies the sources of Lua in `folder`, applies all patches and returns the folder of the copy.
fn patched(folder: &Path) -> PathBuf {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let copy = Path::new(&out).join("patched-lua");
    fs::create_dir_all(&copy).expect("the output folder can be written");
    for entry in fs::read_dir(folder).expect("the folder of a source that cc names") {
        let path = entry.expect("its entries").path();
        let name = path.file_name().expect("an entry has a name");
        if path.extension().is_some_and(|extension| extension == "c" || extension == "h") {
            fs::copy(&path, copy.join(name)).expect("the output folder can be written");
        }
    }
    for Patch { source, sha256, diffs } in PATCHES {
        let mut text = fs::read_to_string(folder.join(source)).expect("lua-src has this source");
        let found: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            found, sha256,
            "lua-src has another {source}: make the patches of src/lua/patches anew for it, and enter its SHA-256 here"
        );
        for diff in diffs {
            let patch = diffy::Patch::from_str(diff).expect("a unified diff");
            text = diffy::apply(&text, &patch).expect("it was made for this text");
        }
        fs::write(copy.join(source), text).expect("the output folder can be written");
    }
    copy
}

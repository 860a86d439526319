//! The executable `saker-check`: calls the library's `program::main` and exits with its status.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    check::program::main()
}

//! The command line of saker-check.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    check::program::main()
}

//! The command line of saker-copy.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    copy::program::main()
}

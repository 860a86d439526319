//! The executable `saker-copy`: calls the library's `program::main` and exits with its status.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    copy::program::main()
}

//! Runs `.resp` scripts against a server that already runs: `cargo run -p testkit --bin resp-run --
//! --port 6379 tests/cmd/set.resp`. It deletes all keys of that server.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use testkit::{Address, Client, script};

/// Runs scripts against a running server, which is emptied for each.
#[derive(Parser)]
struct Arguments {
    /// The port of the running server on the loopback.
    #[arg(long)]
    port: u16,
    /// The `.resp` scripts to run.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let address = Address::port(arguments.port);
    let mut failed = 0;
    for path in &arguments.files {
        let report = script::run(path, &|protocol| Client::speaking(&address, protocol));
        // If there are many scripts, only those that fail are printed.
        if !report.failures.is_empty() || arguments.files.len() == 1 {
            println!("{}: {report}", path.display());
        }
        failed += usize::from(!report.failures.is_empty());
    }
    println!("{} scripts, {failed} failed", arguments.files.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

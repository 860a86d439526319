//! The command line of saker-bench.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::compare::{self, CompareArguments};
use clap::{Parser, Subcommand};

/// Measures servers that speak the Redis protocol.
#[derive(Parser)]
#[command(name = "saker-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares servers in interleaved rounds and writes reports.
    Compare(CompareArguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Compare(arguments) => compare::main(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("saker-bench: {error}");
            ExitCode::from(2)
        }
    }
}

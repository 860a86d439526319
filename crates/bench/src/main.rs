//! The command line of saker-bench.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::cli::{self, RunArguments};
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
    /// Sends load to one server and measures it.
    Run(Box<RunArguments>),
    /// Compares servers in interleaved rounds and writes reports.
    Compare(CompareArguments),
}

fn main() -> ExitCode {
    cli::exit_code(match Cli::parse().command {
        Command::Run(arguments) => cli::main(&arguments),
        Command::Compare(arguments) => compare::main(&arguments).map(|()| ExitCode::SUCCESS),
    })
}

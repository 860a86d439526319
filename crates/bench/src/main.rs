//! The command line of saker-bench.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::cli::{self, RunArguments};
use bench::compare::{self, CompareArguments};
use clap::{Parser, Subcommand};

/// Measures servers that speak the Redis protocol.
#[derive(Parser)]
#[command(name = "saker-bench", version, propagate_version = true)]
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
    let arguments = match Cli::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::refuse(&error),
    };
    cli::exit_code(match arguments.command {
        Command::Run(arguments) => cli::main(&arguments),
        Command::Compare(arguments) => compare::main(&arguments).map(|()| ExitCode::SUCCESS),
    })
}

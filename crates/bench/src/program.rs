//! The program `saker-bench`: its subcommands and its entry point.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::{self, RunArguments};
use crate::compare::{self, CompareArguments};

/// Generates load on servers that speak the Redis protocol, and measures them.
#[derive(Debug, Parser)]
#[command(name = "saker-bench", version, propagate_version = true)]
pub struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sends load to one server and measures it.
    Run(Box<RunArguments>),
    /// Compares servers in interleaved rounds and writes reports.
    Compare(CompareArguments),
}

/// Runs the subcommand that the arguments of the process name, and returns the exit status.
pub fn main() -> ExitCode {
    let arguments = match Program::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::refuse(&error),
    };
    cli::exit_code(match arguments.command {
        Command::Run(arguments) => cli::main(&arguments),
        Command::Compare(arguments) => compare::main(&arguments).map(|()| ExitCode::SUCCESS),
    })
}

//! The program `saker-check`: its command line as a whole.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::rdb;

/// The exit status of a broken file.
const BROKEN: u8 = 1;
/// The exit status where nothing was checked: arguments that make no sense, a file that cannot be
/// read.
const FAILED: u8 = 2;

/// Says what is in a data file of Saker, Redis or Valkey, and what is wrong with it.
///
/// The exit status is 0 when a server would load the file, 1 when something is wrong with it, and 2
/// when it could not be checked.
#[derive(Debug, Parser)]
#[command(name = "saker-check", version, propagate_version = true)]
pub struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks a snapshot: an RDB file such as dump.rdb.
    Rdb(RdbArguments),
}

/// What `saker-check rdb` takes.
#[derive(Args, Debug)]
struct RdbArguments {
    /// The file; it is only read.
    file: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// How many of the biggest keys to list.
    #[arg(long, value_name = "KEYS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=1000))]
    top: u16,
    /// How many of the things that are wrong to list; all are counted.
    #[arg(long, value_name = "PROBLEMS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    problems: u16,
}

/// Does what the process' arguments ask for.
pub fn main() -> ExitCode {
    let arguments = match Program::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nothing is left to do where the text cannot be printed.
            let _ = error.print();
            return if is_asked_for { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
        }
    };
    let Command::Rdb(arguments) = arguments.command;
    match rdb_main(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(BROKEN),
        Err(error) => {
            eprintln!("saker-check: {}: {error}", arguments.file.display());
            ExitCode::from(FAILED)
        }
    }
}

/// `saker-check rdb`: whether the file is good.
fn rdb_main(arguments: &RdbArguments) -> std::io::Result<bool> {
    let options =
        rdb::Options { big_keys_max: arguments.top.into(), findings_max: arguments.problems.into() };
    let report = rdb::check(&arguments.file, &options)?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n"
    } else {
        report.text()
    };
    match stdout().write_all(text.as_bytes()) {
        // `saker-check … | head` is no failure: the status still says what the file is.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    Ok(report.is_good)
}

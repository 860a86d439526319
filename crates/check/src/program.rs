//! The program `saker-check`: its command line and its exit status.

use std::io::{self, Write, stderr, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use stdx::utc::utc;

use crate::aof::{self, Until, UntilError};
use crate::{rdb, text};

/// The exit status for a broken file, and if a file does not allow the requested cut or copy.
const BROKEN: u8 = 1;
/// The exit status if nothing was checked: the arguments are invalid, or a file cannot be read or
/// written.
const FAILED: u8 = 2;

/// Reports the contents of a data file of Saker, Redis or Valkey, and its problems.
///
/// The exit status is 0 if a server would load the file. It is 1 if the file has a problem, and 2
/// if it could not be checked.
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
    /// Checks an append-only file, repairs its end, or writes its state of an earlier time.
    ///
    /// Without options it only reads. No server may use the files while --fix or
    /// --truncate-to-timestamp changes them.
    Aof(AofArguments),
}

/// The arguments of `saker-check rdb`.
#[derive(Args, Debug)]
struct RdbArguments {
    /// The file; it is only read.
    file: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// The number of biggest keys to list.
    #[arg(long, value_name = "KEYS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=1000))]
    top: u16,
    /// The number of problems to list; all are counted.
    #[arg(long, value_name = "PROBLEMS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    problems: u16,
}

/// The arguments of `saker-check aof`.
#[derive(Args, Debug)]
struct AofArguments {
    /// The folder (appendonlydir or its parent), the manifest, or a single file.
    path: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
    /// The number of commands and keys to list.
    #[arg(long, value_name = "ROWS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=1000))]
    top: u16,
    /// Cut the last file off where it is torn or broken, after a confirmation.
    #[arg(long, conflicts_with = "json")]
    fix: bool,
    /// Do not ask for a confirmation.
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Cut the last file off where its time annotations become later than this time, in seconds
    /// since 1970. Does not ask for a confirmation.
    #[arg(long, value_name = "TS", conflicts_with_all = ["fix", "json", "until"])]
    truncate_to_timestamp: Option<i64>,
    /// Write the state at a time or a place into one new file. A time is '2026-11-23 14:05:00' in
    /// UTC, or seconds since 1970; a place is FILE:BYTE, or :BYTE for the last file.
    #[arg(long, value_name = "TIME|FILE:BYTE", value_parser = Until::parse, requires = "out",
          conflicts_with_all = ["fix", "json"])]
    until: Option<Until>,
    /// The file that --until writes; it must not exist yet.
    #[arg(long, value_name = "FILE", requires = "until")]
    out: Option<PathBuf>,
}

/// Runs saker-check with the arguments of the process, and returns its exit status.
pub fn main() -> ExitCode {
    let arguments = match Program::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let is_asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // If printing fails, the error cannot be reported anywhere.
            let _ = error.print();
            return if is_asked_for { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
        }
    };
    let (path, result) = match &arguments.command {
        Command::Rdb(arguments) => (&arguments.file, rdb_main(arguments)),
        Command::Aof(arguments) => (&arguments.path, aof_main(arguments)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(BROKEN),
        Err(error) => {
            eprintln!("saker-check: {}: {error}", path.display());
            ExitCode::from(FAILED)
        }
    }
}

/// Handles `saker-check rdb`: prints the report, and returns true if the file is good.
fn rdb_main(arguments: &RdbArguments) -> io::Result<bool> {
    let options =
        rdb::Options { big_keys_max: arguments.top.into(), findings_max: arguments.problems.into() };
    let report = rdb::check(&arguments.file, &options)?;
    print(&if arguments.json { json(&report)? } else { report.text() })?;
    Ok(report.is_good)
}

fn json(report: &impl serde::Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(report).map_err(io::Error::from)? + "\n")
}

fn print(text: &str) -> io::Result<()> {
    match stdout().write_all(text.as_bytes()) {
        // In `saker-check … | head`, the broken pipe is not a failure: the exit status still shows
        // the state of the file.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Handles `saker-check aof`: returns true if the files are good, or if the requested cut or copy
/// was made.
fn aof_main(arguments: &AofArguments) -> io::Result<bool> {
    let path = &arguments.path;
    if let Some(time_s) = arguments.truncate_to_timestamp {
        return of_files(aof::truncate_to_time(path, time_s).map(|done| done + "\n"));
    }
    if let (Some(until), Some(out)) = (&arguments.until, &arguments.out) {
        return of_files(aof::write_until(path, until, out).map(|written| written_words(&written, out)));
    }
    let listed_max = usize::from(arguments.top);
    let report = aof::check(path, &aof::Options { listed_max })?;
    print(&if arguments.json { json(&report)? } else { report.text(listed_max) })?;
    let Some(fix) = report.fix.as_ref().filter(|_| arguments.fix) else {
        if arguments.fix && !report.is_good {
            eprintln!("saker-check: --fix cannot repair this.");
        }
        return Ok(report.is_good);
    };
    if !arguments.yes && !is_confirmed(&fix.question())? {
        print("Aborting...\n")?;
        return Ok(false);
    }
    aof::apply(fix, path)?;
    print(&format!("Successfully truncated AOF {}\n", fix.name))?;
    Ok(true)
}

/// Prints the description of a cut or copy of append-only files that was made, and returns true. If
/// the files do not allow it, prints the reason and returns false.
fn of_files(result: Result<String, UntilError>) -> io::Result<bool> {
    match result {
        Ok(done) => print(&done).map(|()| true),
        Err(UntilError::Files(what)) => {
            eprintln!("saker-check: {what}");
            Ok(false)
        }
        Err(UntilError::Io(error)) => Err(error),
    }
}

fn is_confirmed(question: &str) -> io::Result<bool> {
    print(question)?;
    stdout().flush()?;
    stderr().flush()?;
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(line.starts_with(['y', 'Y']))
}

fn written_words(written: &aof::Written, out: &std::path::Path) -> String {
    let base = written.base.as_deref().map_or(String::new(), |base| format!("{base} and "));
    let commands = text::counted(written.commands, "command");
    let size = text::size(written.len_bytes);
    let mut words = format!("{}: {base}{commands} ({size})", out.display());
    if let Some(time_s) = written.last_time_s {
        words += &format!(", the last one from {} or later", utc(time_s));
    }
    words += &match &written.cut {
        Some((file, offset)) => format!("\nEverything after byte {offset} of {file} was skipped.\n"),
        None => "\nNothing was skipped.\n".to_owned(),
    };
    words
}

//! `saker-bench compare`: measures several servers in interleaved rounds and writes reports.
//!
//! ```text
//!   STUDY.toml ─► study ─► rounds ─┬─ engine: start, check, end      ─► outcome ─► report
//!                                  └─ run: the load generator
//! ```
//! Only [`rounds`] starts engines and loads them. [`outcome`] is plain data, and the reports are
//! made from it alone.

mod check;
pub mod command_line;
mod control;
mod engine;
mod mistake;
mod network;
pub mod outcome;
mod relay;
pub mod report;
pub mod rounds;
pub mod stats;
pub mod study;

use std::path::{Path, PathBuf};

use clap::Args;

use crate::BenchError;
use crate::interrupt::Interrupt;
use outcome::Outcome;
use rounds::Runner;
use study::{Changes, Length, Study};

/// The arguments of `saker-bench compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// The study: engines, workloads, rounds. Or the results.json of an earlier study, to write its
    /// reports again.
    pub study: PathBuf,
    /// The folder for the reports.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// A short demonstration with fewer rounds and requests, from [quick] in the study.
    #[arg(long)]
    quick: bool,
    /// Number of rounds, in place of the study's.
    #[arg(long)]
    rounds: Option<u32>,
    /// Duration of a run in seconds, in place of the study's requests or seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Seed of random choices, in place of the study's or a fresh one.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these engines of the study.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    engines: Vec<String>,
    /// Another program for an engine of the study, with the same arguments.
    #[arg(long = "program", value_name = "NAME=PROGRAM")]
    programs: Vec<String>,
    /// The root directory of an engine that is started in a chroot or a container.
    #[arg(long = "root", value_name = "NAME=FOLDER")]
    roots: Vec<String>,
}

/// Runs the study and writes its reports. Given a results.json, only writes the reports again. The
/// error is one line. Reports of the measured part are written even after an error.
pub fn main(arguments: &CompareArguments) -> Result<(), BenchError> {
    if arguments.study.extension().is_some_and(|extension| extension == "json") {
        return again(arguments);
    }
    let length = if arguments.quick { Length::Quick } else { Length::Whole };
    let mut study = Study::read(&arguments.study, length)?;
    study.adapt(&Changes {
        engines: &arguments.engines,
        programs: &arguments.programs,
        roots: &arguments.roots,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
        seed: arguments.seed,
    })?;
    let stem = arguments.study.file_stem().unwrap_or_default();
    let folder = arguments.out.clone().unwrap_or_else(|| Path::new("bench-results").join(stem));
    std::fs::create_dir_all(&folder).map_err(|error| cannot_write(&folder, &error))?;
    let interrupt = Interrupt::by_signals()?;
    // Results are saved during the study, so that they survive a power failure or a kill. A write
    // error, such as a full disk, is reported by the last write.
    let save = |outcome: &Outcome| _ = report::json::write(outcome, &folder);
    let (outcome, problems) = Runner::new(&study, length, interrupt.clone(), &save).run();
    if outcome.cells.iter().any(|cell| !cell.rounds.is_empty()) {
        report::write(&outcome, &folder).map_err(|error| cannot_write(&folder, &error))?;
        println!("{}", folder.join("report.html").display());
    }
    if interrupt.is_set() {
        return Err(BenchError::Interrupted);
    }
    let more = problems.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more, above)") } else { String::new() };
    match problems.into_iter().next() {
        Some(first) => Err(BenchError::Usage(first + &more)),
        None => Ok(()),
    }
}

/// Reads the results.json of an earlier study and writes its reports again.
fn again(arguments: &CompareArguments) -> Result<(), BenchError> {
    let path = &arguments.study;
    let outcome = report::json::read(path)
        .map_err(|error| BenchError::Usage(format!("cannot read {}: {error}", path.display())))?;
    let beside = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let folder = arguments.out.clone().unwrap_or(beside);
    report::write(&outcome, &folder).map_err(|error| cannot_write(&folder, &error))?;
    println!("{}", folder.join("report.html").display());
    Ok(())
}

fn cannot_write(folder: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Usage(format!("cannot write to {}: {error}", folder.display()))
}

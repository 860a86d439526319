//! `saker-bench compare`: several servers beside each other, in interleaved rounds.

use clap::Args;

use crate::BenchError;

/// What to compare.
#[derive(Args, Debug)]
pub struct CompareArguments {
    /// The study: engines, workloads, rounds.
    pub study: std::path::PathBuf,
}

/// Runs the study and writes its reports.
pub fn main(arguments: &CompareArguments) -> Result<(), BenchError> {
    Err(BenchError::Usage(format!("{}: studies cannot be run yet", arguments.study.display())))
}

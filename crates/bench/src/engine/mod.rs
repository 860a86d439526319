//! The run itself: worker threads, and the calling thread that watches them.

use crate::BenchError;
use crate::results::RunResult;
use crate::spec::RunSpec;

/// Runs `spec` to its end, or until the process is interrupted.
pub fn run(spec: &RunSpec) -> Result<RunResult, BenchError> {
    Err(BenchError::Usage(format!("{}: nothing is sent yet", spec.workload.name)))
}

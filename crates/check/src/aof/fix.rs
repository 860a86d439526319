//! The repair of an append-only file: cuts off its damaged end, or all changes after a time.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use super::files::{self, Found};
use super::report::Fix;
use super::until::{AofFileReader, UntilError};

/// Makes the change `fix` that a check has proposed. `path` is the path that was checked.
///
/// # Errors
///
/// If the system reports an error, or the files changed since the check.
pub fn apply(fix: &Fix, path: &Path) -> io::Result<()> {
    let Found { files, .. } = files::find(path)?;
    let last = files.iter().rfind(|file| file.name == fix.name && file.role.is_loaded());
    let last = last
        .ok_or_else(|| io::Error::other("the manifest has changed since the check: check the files again"))?;
    shrink(&last.path, fix.len_bytes, fix.good_len_bytes)
}

/// Cuts the file at `path` from `len_bytes` to `good_len_bytes` bytes. Returns an error if the file
/// has another length than `len_bytes`.
fn shrink(path: &Path, len_bytes: u64, good_len_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() != len_bytes {
        let what = "the file has changed since the check: stop the server that uses it, and check the file \
            again";
        return Err(io::Error::other(what));
    }
    file.set_len(good_len_bytes)?;
    file.sync_all()
}

/// Handles `--truncate-to-timestamp`. Cuts the last file before the first annotation that is later
/// than `time_s`, in seconds since 1970. Returns a description of the result.
///
/// Returns an error if a file before the last one has changes later than `time_s`. Also returns an
/// error if the file to cut has no earlier changes, or if a file is broken before the cut.
pub fn truncate_to_time(path: &Path, time_s: i64) -> Result<String, UntilError> {
    let Found { files, problem, .. } = files::find(path)?;
    if let Some(problem) = problem {
        return Err(UntilError::Files(format!("{}: {}", problem.file, problem.what)));
    }
    let loaded: Vec<_> = files.iter().filter(|file| file.role.is_loaded()).collect();
    for (number, file) in loaded.iter().enumerate() {
        let name = &file.name;
        let mut cutter = AofFileReader::open(&file.path)?;
        let Some(cut) = cutter.first_behind_time(time_s)? else { continue };
        if cut == 0 {
            let what = format!("AOF {name} has nothing before timestamp {time_s}");
            return Err(UntilError::Files(what));
        }
        if number + 1 < loaded.len() {
            return Err(UntilError::Files(format!(
                "Failed to truncate AOF {name} to timestamp {time_s} to offset {cut} because it is not the \
                 last file: --until {time_s} --out FILE writes the earlier changes into a new file"
            )));
        }
        shrink(&file.path, std::fs::metadata(&file.path)?.len(), cut)?;
        return Ok(format!("Successfully truncated AOF {name} to timestamp {time_s}, at byte {cut}"));
    }
    Ok(format!("Nothing to truncate: nothing is later than timestamp {time_s}"))
}

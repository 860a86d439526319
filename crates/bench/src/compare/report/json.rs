//! results.json: the whole outcome of a study, with the results of each engine in every round.

use std::fs;
use std::io;
use std::path::Path;

use crate::compare::outcome::Outcome;

/// Returns the outcome of a study as JSON.
pub fn text(outcome: &Outcome) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(outcome)? + "\n")
}

/// Writes results.json into `folder`. The new file replaces the old one only when it is complete.
pub fn write(outcome: &Outcome, folder: &Path) -> io::Result<()> {
    let unfinished = folder.join("results.json.part");
    fs::write(&unfinished, text(outcome)?)?;
    fs::rename(unfinished, folder.join("results.json"))
}

/// Reads the outcome of a study from the results.json at `path`.
pub fn read(path: &Path) -> io::Result<Outcome> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

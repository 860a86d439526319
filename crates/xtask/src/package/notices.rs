//! The licenses of the libraries that are linked into the binaries. Most licenses require their
//! notices in every copy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::progress::Session;
use crate::shell;

/// The first letters of the names of files with licenses and notices, in capitals.
const NAMES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Library>,
}

#[derive(Deserialize)]
struct Library {
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

/// Handles `cargo xtask notices`: prints the licenses and notices of the libraries that are linked
/// into the crates `programs`. Returns true.
pub fn print(session: &Session, programs: &[String]) -> Result<bool> {
    print!("{}", text(session, &programs.iter().map(String::as_str).collect::<Vec<_>>())?);
    Ok(true)
}

/// Formats a list of all libraries that are linked into the crates `programs`, with their licenses.
/// After the list, each license text follows once, with the libraries that use it.
pub fn text(session: &Session, programs: &[&str]) -> Result<String> {
    let linked = linked(session, programs)?;
    let metadata =
        shell::output(shell::cargo(session).args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Metadata = serde_json::from_str(&metadata).context("what cargo metadata printed")?;
    let names: Vec<String> = programs.iter().map(|program| format!("saker-{program}")).collect();
    let mut list = format!("Libraries that are linked into {}\n\n", names.join(" and "));
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for library in metadata.packages.iter().filter(|library| library.source.is_some()) {
        let name = format!("{} v{}", library.name, library.version);
        if !linked.contains(&name) {
            continue;
        }
        let license = library.license.as_deref().unwrap_or("see its text");
        let repository = library.repository.as_deref().unwrap_or_default();
        let _ = writeln!(list, "{name}: {license}  {repository}");
        for file in license_files(library.manifest_path.parent().context("a manifest's folder")?) {
            let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
            texts.entry(text.trim().to_owned()).or_default().insert(name.clone());
        }
    }
    for (text, libraries) in texts {
        let libraries: Vec<String> = libraries.into_iter().collect();
        let _ = write!(list, "\n{:=<78}\n{}\n{:-<78}\n{text}\n", "", libraries.join(", "), "");
    }
    Ok(list)
}

/// Returns the libraries that are linked into the crates `programs`, as `name vVERSION`. Macros and
/// build scripts are left out, because none of their code is in the binaries.
fn linked(session: &Session, programs: &[&str]) -> Result<BTreeSet<String>> {
    let mut tree = shell::cargo(session);
    tree.args(["tree", "--locked", "-e", "normal,no-proc-macro"]);
    tree.args(programs.iter().flat_map(|program| ["-p", program]));
    let tree = shell::output(tree.args(["--prefix", "none", "--format", "{p}"]))?;
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(tree.lines().map(words).collect())
}

/// Returns the license and notice files in `folder` and its subfolders, which may contain C
/// libraries.
fn license_files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().to_uppercase();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder {
                folders.push(entry.path());
            } else if NAMES.iter().any(|known| name.starts_with(known)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

//! Writes docs/commands from the command records and the examples of tests/cmd, docs/options.md
//! from the options table and docs/metrics.md from the catalog of metrics: `cargo run -p server
//! --example write_docs -- FOLDER [--check]`. With `--check` nothing is written, and the exit
//! status is 0 if the files are up to date.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use crate::examples::Examples;

mod command_pages;
mod examples;
mod metrics;
mod options;
mod session;
mod shape;

/// The texts of the pages, by path below the output folder.
type Pages = BTreeMap<PathBuf, String>;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (folder, check) = match args.as_slice() {
        [folder] => (folder, false),
        [folder, flag] if flag == "--check" => (folder, true),
        _ => {
            eprintln!("usage: write_docs FOLDER [--check]");
            return ExitCode::FAILURE;
        }
    };
    match run(Path::new(folder), check) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            wrong.iter().for_each(|what| eprintln!("{what}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the pages into `folder` or, with `check`, compares them with the files there. Returns the
/// problems found.
fn run(folder: &Path, check: bool) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let table = server::commands::table().0;
    let scripts = examples::scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cmd"))?;
    let examples = Examples::gather(&table, &scripts)?;
    let mut pages = command_pages::pages(&table, &examples);
    pages.insert(PathBuf::from("options.md"), options::page());
    pages.insert(PathBuf::from("metrics.md"), metrics::page());
    let mut wrong = examples.missing(&table);
    if check {
        let differences = compare(folder, &pages)?;
        let say = |path| format!("docs/{path} is out of date: run `cargo xtask docs`");
        wrong.extend(differences.into_iter().map(say));
    } else {
        write(folder, &pages)?;
    }
    Ok(wrong)
}

/// Returns the paths of pages that differ on disk, and files in docs/commands that belong to no
/// page.
fn compare(folder: &Path, pages: &Pages) -> io::Result<Vec<String>> {
    let mut differences = Vec::new();
    for (path, text) in pages {
        let on_disk = fs::read_to_string(folder.join(path)).unwrap_or_default();
        if on_disk != *text {
            differences.push(path.display().to_string());
        }
    }
    for path in leftovers(folder, pages)? {
        differences.push(path.display().to_string());
    }
    Ok(differences)
}

/// Writes every page and removes the files in docs/commands that belong to no page.
fn write(folder: &Path, pages: &Pages) -> io::Result<()> {
    fs::create_dir_all(folder.join("commands"))?;
    for (path, text) in pages {
        fs::write(folder.join(path), text)?;
    }
    for path in leftovers(folder, pages)? {
        fs::remove_file(folder.join(path))?;
    }
    Ok(())
}

/// Returns the files in docs/commands that belong to no page.
fn leftovers(folder: &Path, pages: &Pages) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder.join("commands")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let path = Path::new("commands").join(entry?.file_name());
        if !pages.contains_key(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

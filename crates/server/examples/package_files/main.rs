//! Writes the files of a package that come from the options table:
//!
//! ```text
//! cargo run -p server --example package_files -- conf FILE [--check]   packaging/saker.conf
//! cargo run -p server --example package_files -- pages FOLDER          saker.conf.5, completions
//! ```
//! With `--check` nothing is written, and the exit status is 0 if the file is up to date.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

mod completions;
mod conf;
mod described;
mod manual;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["conf", file] => fs::write(file, conf::text()),
        ["conf", file, "--check"] => check(file),
        ["pages", folder] => pages(Path::new(folder)),
        _ => Err(io::Error::other("usage: package_files conf FILE [--check] | pages FOLDER")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(file: &str) -> io::Result<()> {
    if fs::read_to_string(file)? == conf::text() {
        return Ok(());
    }
    Err(io::Error::other(format!("{file} differs from the options table: run `cargo xtask docs`")))
}

/// Writes the manual page of the configuration file and the completions of the server into
/// `folder`.
fn pages(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("saker.conf.5"), manual::page())?;
    completions::write(folder)
}

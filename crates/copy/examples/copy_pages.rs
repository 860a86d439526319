//! Writes the manual pages of saker-copy and its completions for bash, zsh and fish:
//! `cargo run -p copy --example copy_pages -- FOLDER`.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use copy::program::Program;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1) else {
        eprintln!("usage: copy_pages FOLDER");
        return ExitCode::FAILURE;
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Program::command(), folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Program::command(), "saker-copy", folder)?;
    }
    Ok(())
}

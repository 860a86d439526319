//! Completions of saker-server's command line for bash, zsh and fish.
//!
//! The server reads its options from the table and not with clap. A clap command built from the
//! table provides clap's completions.

use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::{Shell, generate_to};
use server::config::option::{Names, Opt};
use server::config::table;
use server::config::value::Kind;

use super::described;

const PROGRAM: &str = "saker-server";

/// Writes the three completion files into `folder`.
pub fn write(folder: &Path) -> io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command(), PROGRAM, folder)?;
    }
    Ok(())
}

fn command() -> Command {
    let file = Arg::new("configuration file").value_hint(ValueHint::FilePath);
    let flag = |name: &'static str, about: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(about)
    };
    let shown = table::all().map(|(_, option)| option).filter(|option| !option.hidden);
    Command::new(PROGRAM)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .arg(file)
        .arg(flag("help", "Print how it is used").short('h'))
        .arg(flag("version", "Print the version").short('v'))
        .arg(flag("healthcheck", "Ask the running server whether it answers"))
        .arg(
            Arg::new("restore-until")
                .long("restore-until")
                .help("Take the data back to a time in UTC")
                .value_hint(ValueHint::Other),
        )
        .args(shown.map(argument))
}

fn argument(option: &'static Opt) -> Arg {
    let argument = Arg::new(option.name).long(option.name).help(first_sentence(&described::summary(option)));
    match option.kind {
        Kind::Flag => argument.value_parser(["yes", "no"]),
        Kind::Choice(words) => argument.value_parser(words.to_vec()),
        _ => argument.value_hint(match option.names {
            Names::Nothing => ValueHint::Other,
            Names::File => ValueHint::FilePath,
            Names::Folder => ValueHint::DirPath,
        }),
    }
}

/// Returns `text` up to its first period, semicolon or colon, as the short explanation of an
/// option.
fn first_sentence(text: &str) -> String {
    let end = text.find(['.', ';', ':']).unwrap_or(text.len());
    text[..end].to_owned()
}

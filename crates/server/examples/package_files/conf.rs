//! The annotated configuration file: each option with its description, and its default as a
//! comment. Options that a package sets are not comments.

use server::config::option::{DefaultValue, Opt};
use server::config::rewrite;
use server::config::table::{self, THEMES};

use super::described;

/// The options that the packaged configuration file sets, with their values.
const PACKAGED: &[(&str, &str)] = &[
    ("dir", "/var/lib/saker"),
    ("logfile", "/var/log/saker/saker-server.log"),
    ("pidfile", "/run/saker/saker-server.pid"),
];

/// Maximum length of a line, in characters.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Configuration of saker-server, read with `saker-server /etc/saker/saker.conf`.
#
# A line consists of the name of an option and its value. Lines that begin with a number sign are
# comments. In a description, a space follows the sign. A default has no space; remove its sign to set
# the option. Put values with blanks in double quotes. Sizes can have the units k, kb, m, mb, g and gb
# (1k is 1000 bytes, 1kb is 1024 bytes). `include FILE` reads another file at this place. If an option
# is set several times, the last line counts. Options on the command line (`--port 7000`) override this
# file. CONFIG SET changes options at run time, and CONFIG REWRITE writes them to this file.
# `rename-command NAME NEW-NAME` renames a command; an empty new name disables the command.
#
# Saker accepts all options of Redis and Valkey, so that their configuration files load. Options
# without effect are at the end of each section, with the reason. See saker.conf(5).
#
# `cargo xtask docs` writes this file from the options table.
";

/// Returns the text of the annotated configuration file.
pub fn text() -> String {
    let mut text = HEAD.to_owned();
    for theme in THEMES {
        let title = format!(" {} ", theme.title.to_uppercase());
        text.push_str(&format!("\n{title:#^WIDTH$}\n"));
        for group in described::groups(theme.options) {
            if let Some(why) = group.idle {
                text.push_str(&format!("\n# ==> Without effect: {why}.\n"));
            }
            group.options.iter().for_each(|option| text.push_str(&entry(option)));
        }
    }
    text
}

/// Formats an option: its description, then the line that sets it. The line is a comment unless a
/// package sets the option.
fn entry(option: &Opt) -> String {
    let packaged = PACKAGED.iter().find(|(name, _)| *name == option.name).map(|(_, value)| *value);
    let mut facts = described::summary(option);
    let values = described::values(option);
    if !values.is_empty() {
        facts.push_str(&format!(" Values: {values}."));
    }
    if packaged.or(option.example).is_some() {
        let default = match option.default {
            DefaultValue::Fixed("") => "none",
            DefaultValue::Fixed(text) => text,
            DefaultValue::Computed { shown, .. } => shown,
        };
        facts.push_str(&format!(" Default: {default}."));
    }
    facts.push(' ');
    facts.push_str(described::change(option));
    let mut entry = format!("\n{}", comment(&facts));
    match packaged.or(option.example) {
        Some(value) => {
            let sign = if packaged.is_some() { "" } else { "#" };
            entry.push_str(&format!("{sign}{} {value}\n", option.name));
        }
        None => default_lines(option).iter().for_each(|line| entry.push_str(&format!("#{line}\n"))),
    }
    entry
}

/// Returns the lines that set the default, as CONFIG REWRITE would write them.
fn default_lines(option: &Opt) -> Vec<String> {
    let lines = rewrite::lines(option.name, table::id_of(option), &option.default_value());
    lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Formats `text` as comment lines (`# …`) of at most [`WIDTH`] characters.
fn comment(text: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(format!("# {word}"));
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

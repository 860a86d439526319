//! docs/options.md, from the options table.

use std::fmt::Write;

use server::config::option::{Change, DefaultValue, Opt};
use server::config::table::{OptionGroup, THEMES};
use server::config::value::Kind;

/// Builds docs/options.md: in each theme, options in effect come before options without effect.
pub fn page() -> String {
    let mut page = String::from(
        "# Options\n\n\
         An option is set in a configuration file (`name value`), on the command line (`--name value`) or with\n\
         CONFIG SET. Saker accepts all options of Redis 8.0 and Valkey 8.1, so that their configuration files load.\n\
         An option without effect is checked, stored and shown; it is listed below the others of its theme, with the\n\
         reason. `cargo xtask docs` writes this page from the options table.\n",
    );
    for theme in THEMES {
        theme_section(&mut page, theme);
    }
    page
}

fn theme_section(page: &mut String, theme: &OptionGroup) {
    let _ = writeln!(page, "\n## {}", theme.title);
    let shown = || theme.options.iter().copied().filter(|option| !option.hidden);
    let acting: Vec<&Opt> = shown().filter(|option| option.idle_reason().is_none()).collect();
    if !acting.is_empty() {
        page.push_str("\n| option | default | values | meaning |\n|---|---|---|---|\n");
    }
    for option in acting {
        let changes = match option.change {
            Change::Live => "",
            Change::AtStart => " Can be set only at the start.",
            Change::Protected => " Can be changed at run time only if `enable-protected-configs` permits it.",
        };
        let _ = writeln!(
            page,
            "| {} | {} {}{changes} |",
            names(option),
            default_and_values(option),
            cell(option.summary)
        );
    }
    let accepted = shown().filter_map(|option| option.idle_reason().map(|why| (option, why)));
    let accepted: Vec<(&Opt, &str)> = accepted.collect();
    if !accepted.is_empty() {
        page.push_str("\nOptions without effect:\n\n");
        page.push_str(
            "| option | default | values | meaning | reason why it has no effect |\n|---|---|---|---|---|\n",
        );
    }
    for (option, why) in accepted {
        let summary = cell(option.summary);
        let _ = writeln!(page, "| {} | {} {summary} | {why} |", names(option), default_and_values(option));
    }
}

/// Formats the option's name and its aliases.
fn names(option: &Opt) -> String {
    let mut text = format!("`{}`", option.name);
    for alias in option.aliases {
        let _ = write!(text, "<br>also `{alias}`");
    }
    text
}

/// Formats two table cells: the default and the valid values.
fn default_and_values(option: &Opt) -> String {
    let default = match option.default {
        DefaultValue::Fixed("") => String::new(),
        DefaultValue::Fixed(text) => format!("`{}`", cell(text)),
        DefaultValue::Computed { shown, .. } => cell(shown),
    };
    let values = match option.kind {
        Kind::Flag => "`yes`, `no`".to_owned(),
        Kind::Integer { min, max } | Kind::Clamped { min, max } => range(min, max),
        Kind::Octal => "octal".to_owned(),
        Kind::Memory { .. } => "memory".to_owned(),
        Kind::MemoryOrPercent => "memory or percent".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Text | Kind::Checked(_) | Kind::EventLetters => "text".to_owned(),
        Kind::Words(_) => "words".to_owned(),
    };
    format!("{default} | {values} |")
}

/// Describes a range of integers in words. A maximum of at least `i32::MAX` counts as no maximum.
fn range(min: i64, max: i64) -> String {
    const WIDE: i64 = i32::MAX as i64;
    match (min, max) {
        (min, max) if min <= -WIDE && max >= WIDE => "integer".to_owned(),
        (min, max) if max >= WIDE => format!("{min} or more"),
        (min, max) => format!("{min} to {max}"),
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

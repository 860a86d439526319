//! Writes docs/commands from the command records, docs/options.md from the options table and docs/metrics.md from
//! the catalog of metrics:
//! `cargo run -p server --example write_docs -- FOLDER [--check]`. With `--check` nothing is written, and the
//! exit status tells whether the files are as they would be written.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use commands::table::{Arg, ArgKind, Arity, Command, category_names, flag_names};
use server::command_table::{CommandTable, Registered, Runner};
use server::config::option::{Acts, Change, Opt};
use server::config::table::{THEMES, Theme};
use server::config::value::Kind;
use server::metrics::catalog;

/// Pages by their path below the folder.
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
    let mut pages = command_pages();
    pages.insert(PathBuf::from("options.md"), options_page());
    pages.insert(PathBuf::from("metrics.md"), metrics_page());
    let done = if check { compare(Path::new(folder), &pages) } else { write(Path::new(folder), &pages) };
    match done {
        Ok(differences) if differences.is_empty() => ExitCode::SUCCESS,
        Ok(differences) => {
            differences.iter().for_each(|path| eprintln!("{path} is not what the records say"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The pages that differ from what is on disk, and files in docs/commands that no page belongs to.
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

/// Writes every page and removes what no page belongs to. Nothing differs afterwards.
fn write(folder: &Path, pages: &Pages) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder.join("commands"))?;
    for (path, text) in pages {
        fs::write(folder.join(path), text)?;
    }
    for path in leftovers(folder, pages)? {
        fs::remove_file(folder.join(path))?;
    }
    Ok(Vec::new())
}

/// Files in docs/commands that are no page (any more).
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

/// One page per group, and the index.
fn command_pages() -> Pages {
    let table = CommandTable::new();
    let mut groups: BTreeMap<&str, Vec<&Registered>> = BTreeMap::new();
    for registered in table.iter() {
        groups.entry(registered.command.group.name()).or_default().push(registered);
    }
    let mut pages = Pages::new();
    let mut index = String::from(
        "# Commands\n\nEvery command there is, by group. Written by `cargo xtask docs` from the records.\n",
    );
    for (group, members) in &mut groups {
        members.sort_by_key(|member| member.full_name);
        let _ = write!(index, "\n## [{group}]({group}.md)\n\n| command | what it does |\n|---|---|\n");
        let mut page = format!("# {group} commands\n\nWritten by `cargo xtask docs` from the records.\n");
        for member in members {
            let name = member.command.name;
            let link = format!("{group}.md#{}", name.to_ascii_lowercase());
            let _ = writeln!(index, "| [{name}]({link}) | {} |", member.command.summary);
            section(&mut page, member, "##", "");
        }
        pages.insert(PathBuf::from(format!("commands/{group}.md")), page);
    }
    pages.insert(PathBuf::from("commands/README.md"), index);
    pages
}

/// A command's section, and those of its subcommands below it.
fn section(page: &mut String, registered: &Registered, heading: &str, container: &str) {
    let command = &registered.command;
    let name = format!("{container}{}", command.name);
    let _ = write!(
        page,
        "\n{heading} {name}\n\n```text\n{name}{}\n```\n\n{}\n\n",
        syntax(command.args),
        command.summary
    );
    let _ = writeln!(page, "- Since Redis {}; {}", command.history.since, command.complexity);
    for (version, change) in command.history.changes {
        let _ = writeln!(page, "- Since {version} it {change}");
    }
    let _ = writeln!(page, "- Arguments, the name included: {}", arity(command));
    if let Some(deprecated) = &command.history.deprecated {
        let _ = writeln!(page, "- Deprecated since {}: use {}", deprecated.since, deprecated.replaced_by);
    }
    let _ = writeln!(page, "- Flags: {}", listed(flag_names(command.flags)));
    let _ = writeln!(page, "- Categories: {}", listed(category_names(command.categories())));
    for subcommand in &registered.subcommands {
        section(page, subcommand, "###", &format!("{name} "));
    }
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn arity(command: &Command<Runner>) -> String {
    match command.arity {
        Arity::Exactly(count) => count.to_string(),
        Arity::AtLeast(count) => format!("{count} or more"),
    }
}

/// Arguments as a syntax line writes them, each with a blank before it.
fn syntax(args: &[Arg]) -> String {
    args.iter().fold(String::new(), |line, arg| line + " " + &term(arg))
}

/// One argument: `key`, `[EX seconds]`, `<NX | XX>`, `member [member ...]`.
fn term(arg: &Arg) -> String {
    let parts = |separator: &str| arg.args.iter().map(term).collect::<Vec<_>>().join(separator);
    let value = match arg.kind {
        ArgKind::PureToken => String::new(),
        ArgKind::OneOf if arg.optional && !arg.multiple && arg.token.is_none() => parts(" | "),
        ArgKind::OneOf => format!("<{}>", parts(" | ")),
        ArgKind::Block => parts(" "),
        _ => arg.shown_as.unwrap_or(arg.name).to_owned(),
    };
    let with_token = |value: &str| match arg.token {
        Some(token) if value.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {value}"),
        None => value.to_owned(),
    };
    let text = match (arg.multiple, arg.multiple_token) {
        (false, _) => with_token(&value),
        (true, false) => with_token(&format!("{value} [{value} ...]")),
        (true, true) => format!("{0} [{0} ...]", with_token(&value)),
    };
    if arg.optional { format!("[{text}]") } else { text }
}

/// docs/metrics.md: every metric by name, and the numbers of INFO without one.
fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Every metric of the metrics endpoint; [operations.md](operations.md#metrics) says how to scrape it, and has\n\
         a dashboard and alerts. A counter grows until CONFIG RESETSTAT or a restart. A histogram has the series\n\
         `_bucket`, `_count` and `_sum`. Written by `cargo xtask docs` from the catalog.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    let mut metrics: Vec<&catalog::Metric> = catalog::all().collect();
    metrics.sort_by_key(|metric| metric.query_name());
    for metric in metrics {
        let extra = match metric.kind {
            catalog::Kind::Histogram => Some("le"),
            catalog::Kind::Summary => Some("quantile"),
            _ => None,
        };
        let labels: Vec<String> =
            metric.labels.iter().copied().chain(extra).map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.query_name(), metric.kind.name());
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(", "), metric.help);
    }
    page += "\n## Numbers of INFO without a metric\n\n| why | fields |\n|---|---|\n";
    for (reason, fields) in catalog::LEFT_OUT {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let _ = writeln!(page, "| {reason} | {} |", fields.join(", "));
    }
    page
}

/// docs/options.md: by theme, what acts before what is only accepted.
fn options_page() -> String {
    let mut page = String::from(
        "# Options\n\n\
         Set in a configuration file (`name value`), on the command line (`--name value`) or with CONFIG SET.\n\
         All options of Redis 8.0 and Valkey 8.1 are known, so that their configuration files load. Those that\n\
         have no effect yet are checked, stored and shown, and stand below the others of their theme with the\n\
         reason. Written by `cargo xtask docs` from the options table.\n",
    );
    for theme in THEMES {
        theme_section(&mut page, theme);
    }
    page
}

fn theme_section(page: &mut String, theme: &Theme) {
    let _ = writeln!(page, "\n## {}", theme.title);
    let shown = || theme.options.iter().filter(|option| !option.hidden);
    let acting: Vec<&Opt> = shown().filter(|option| option.acts == Acts::Now).collect();
    if !acting.is_empty() {
        page.push_str("\n| option | default | values | what it does |\n|---|---|---|---|\n");
    }
    for option in acting {
        let changes = match option.change {
            Change::Live => "",
            Change::AtStart => " Set at the start only.",
            Change::Protected => " Changed at run time only where `enable-protected-configs` permits it.",
        };
        let _ = writeln!(
            page,
            "| {} | {} {}{changes} |",
            names(option),
            default_and_values(option),
            cell(option.summary)
        );
    }
    let accepted = shown().filter_map(|option| match option.acts {
        Acts::Accepted(why) => Some((option, why)),
        Acts::Now => None,
    });
    let accepted: Vec<(&Opt, &str)> = accepted.collect();
    if !accepted.is_empty() {
        page.push_str("\nWithout effect so far:\n\n");
        page.push_str(
            "| option | default | values | what it is for | why it does nothing |\n|---|---|---|---|---|\n",
        );
    }
    for (option, why) in accepted {
        let summary = cell(option.summary);
        let _ = writeln!(page, "| {} | {} {summary} | {why} |", names(option), default_and_values(option));
    }
}

/// The option's name, and its older ones.
fn names(option: &Opt) -> String {
    let mut text = format!("`{}`", option.name);
    for alias in option.aliases {
        let _ = write!(text, "<br>also `{alias}`");
    }
    text
}

/// Two cells: the default, and what values there are.
fn default_and_values(option: &Opt) -> String {
    let default =
        if option.default.is_empty() { String::new() } else { format!("`{}`", cell(option.default)) };
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

/// A range of whole numbers; an end as wide as the type is no end to a reader.
fn range(min: i64, max: i64) -> String {
    const WIDE: i64 = i32::MAX as i64;
    match (min, max) {
        (min, max) if min <= -WIDE && max >= WIDE => "integer".to_owned(),
        (min, max) if max >= WIDE => format!("{min} or more"),
        (min, max) => format!("{min} to {max}"),
    }
}

/// Text that may stand in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

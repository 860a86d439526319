//! docs/commands: the index and one page per group, from the command records and the examples.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use commands::table::{Arg, ArgKind, Arity, Command, Group, Origin, category_names, flag_names};
use engine::table::{CommandTable, Registered, Runner};

use crate::Pages;
use crate::examples::Examples;
use crate::{session, shape};

/// The explanation of the examples, at the top of each page.
const HOW_TO_READ: &str = "\
The examples are sessions of redis-cli, each on an empty server. CI runs all of them. If the replies of RESP2 and
RESP3 differ, both are shown side by side. `w>` is a request of another connection `w`, and `w<` is data that this
connection receives while it waits.";

/// The note that the server refuses all cluster commands.
const NO_CLUSTER: &str = "\
Saker has no cluster mode yet. The server refuses all commands of this group, with the error of a Redis without
cluster support.";

/// Builds one page per group, and the index.
pub fn pages(table: &CommandTable, examples: &Examples<'_>) -> Pages {
    let mut groups: BTreeMap<&str, Vec<&Registered>> = BTreeMap::new();
    for registered in table.iter() {
        groups.entry(registered.command.group.name()).or_default().push(registered);
    }
    let mut pages = Pages::new();
    let mut index = String::from(
        "# Commands\n\nAll commands by group, with their replies and examples. `cargo xtask docs` writes these pages from the records\n\
         of the commands and from the scripts of tests/cmd.\n",
    );
    for (group, members) in &mut groups {
        members.sort_by_key(|member| member.full_name);
        let _ = write!(index, "\n## [{group}]({group}.md)\n");
        let mut page = format!(
            "# {group} commands\n\nWritten by `cargo xtask docs` from the records and the scripts of tests/cmd.\n\n{}\n\n{HOW_TO_READ}\n",
            members.iter().map(|member| link(member, "")).collect::<Vec<_>>().join(" · ")
        );
        if *group == Group::Cluster.name() {
            let _ = write!(index, "\n{NO_CLUSTER}\n");
            let _ = write!(page, "\n{NO_CLUSTER}\n");
        }
        index.push_str("\n| command | effect |\n|---|---|\n");
        for member in members {
            index_rows(&mut index, member, group);
            section(&mut page, member, &Shown { table, examples }, "##");
        }
        pages.insert(PathBuf::from(format!("commands/{group}.md")), page);
    }
    pages.insert(PathBuf::from("commands/README.md"), index);
    pages
}

/// The command table and the examples, from which the sections of all commands are written.
struct Shown<'a> {
    table: &'a CommandTable,
    examples: &'a Examples<'a>,
}

/// Returns the command's name as a user types it: `CLIENT LIST`.
fn name(registered: &Registered) -> String {
    registered.full_name.replace('|', " ").to_ascii_uppercase()
}

/// Returns a link to the command's section on `page`.
fn link(registered: &Registered, page: &str) -> String {
    let name = name(registered);
    format!("[{name}]({page}#{})", name.to_ascii_lowercase().replace(' ', "-"))
}

/// Writes the rows of the index for a command and its subcommands.
fn index_rows(index: &mut String, registered: &Registered, group: &str) {
    let _ =
        writeln!(index, "| {} | {} |", link(registered, &format!("{group}.md")), registered.command.summary);
    registered.subcommands.iter().for_each(|subcommand| index_rows(index, subcommand, group));
}

/// Writes the section of a command, followed by those of its subcommands.
fn section(page: &mut String, registered: &Registered, shown: &Shown<'_>, heading: &str) {
    let command = &registered.command;
    let name = name(registered);
    let _ = write!(
        page,
        "\n{heading} {name}\n\n```text\n{}```\n\n{}\n\n",
        syntax(&name, command.args),
        command.summary
    );
    let cost = if command.complexity.is_empty() { "" } else { "; " };
    let _ = match command.history.origin {
        Origin::Saker => writeln!(page, "- Only in Saker{cost}{}", command.complexity),
        origin => {
            let since = command.history.since;
            writeln!(page, "- Since {} {since}{cost}{}", origin.name(), command.complexity)
        }
    };
    for (origin, (version, change)) in command.history.all_changes() {
        let _ = writeln!(page, "- Since {} {version} it {change}", origin.name());
    }
    if let Some(deprecated) = &command.history.deprecated {
        let _ = writeln!(page, "- Deprecated since {}: use {}", deprecated.since, deprecated.replaced_by);
    }
    let _ = writeln!(
        page,
        "- Arguments, the name included: {}; flags: {}; categories: {}",
        arity(command),
        listed(flag_names(command.flags)),
        listed(category_names(command.categories()))
    );
    replies_and_examples(page, registered, shown);
    for subcommand in &registered.subcommands {
        section(page, subcommand, shown, "###");
    }
}

/// Appends the replies and the examples of a command to `page`.
fn replies_and_examples(page: &mut String, registered: &Registered, shown: &Shown<'_>) {
    let mut replies: Vec<String> = Vec::new();
    for meaning in shown.examples.meanings(shown.table, registered) {
        let colon = if meaning.text.is_empty() { "" } else { ": " };
        let reply = format!("- {}{colon}{}", shape::of_both(meaning.resp2, meaning.resp3), meaning.text);
        if !replies.contains(&reply) {
            replies.push(reply);
        }
    }
    replies.extend(Examples::stated_reply(registered).map(|reply| format!("- {reply}")));
    if !replies.is_empty() {
        let _ = write!(page, "\n**Replies**\n\n{}\n", replies.join("\n"));
    }
    for (at, example) in shown.examples.of(registered).enumerate() {
        if at == 0 {
            page.push_str("\n**Examples**\n");
        }
        let protocol = if example.resp3_only { " (RESP3)" } else { "" };
        let colon = if example.title.ends_with(['?', '!']) { "" } else { ":" };
        let _ =
            write!(page, "\n{}{protocol}{colon}\n\n```text\n{}```\n", example.title, session::text(example));
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

/// Maximum length, in bytes, of repeated alternatives that a syntax line contains. Longer ones are
/// listed below the line, which contains only their name.
const REPEATED_LEN_MAX: usize = 60;

/// Formats a command's syntax line. Below the line, lists the alternatives of each argument that
/// the line shows only by name.
fn syntax(name: &str, args: &[Arg]) -> String {
    let mut forms = Forms::default();
    let terms: Vec<String> = args.iter().map(|arg| forms.term(arg, arg.name)).collect();
    let mut text = name.to_owned();
    terms.iter().for_each(|term| text.extend([" ", term]));
    text.push('\n');
    for (name, forms) in &forms.0 {
        let _ = writeln!(text, "\n{name}:");
        forms.iter().for_each(|form| text.extend(["  ", form, "\n"]));
    }
    text
}

/// The arguments that a syntax line shows only by name, each with its alternatives.
#[derive(Default)]
struct Forms(Vec<(String, Vec<String>)>);

impl Forms {
    /// Formats one argument: `key`, `[EX seconds]`, `<NX | XX>`, `member [member ...]`. For a long
    /// list of alternatives that may be repeated, returns `name` and records the alternatives.
    fn term(&mut self, arg: &Arg, name: &str) -> String {
        let text = self.required(arg, name);
        if arg.optional { format!("[{text}]") } else { text }
    }

    /// Formats an argument like [`Forms::term`], without the brackets of an optional argument.
    fn required(&mut self, arg: &Arg, name: &str) -> String {
        let value = match arg.kind {
            ArgKind::PureToken => String::new(),
            ArgKind::OneOf => {
                // One of the members is always used, so none is optional by itself.
                let members: Vec<String> =
                    arg.args.iter().map(|member| self.required(member, arg.name)).collect();
                let text = members.join(" | ");
                if arg.multiple && text.len() > REPEATED_LEN_MAX {
                    self.0.push((name.to_owned(), members));
                    name.to_owned()
                } else if arg.optional && !arg.multiple && arg.token.is_none() {
                    text
                } else {
                    format!("<{text}>")
                }
            }
            ArgKind::Block => {
                let terms: Vec<String> = arg.args.iter().map(|part| self.term(part, part.name)).collect();
                terms.join(" ")
            }
            _ => arg.shown_as.unwrap_or(arg.name).to_owned(),
        };
        let with_token = |value: &str| match arg.token {
            Some("") => "\"\"".to_owned(),
            Some(token) if value.is_empty() => token.to_owned(),
            Some(token) => format!("{token} {value}"),
            None => value.to_owned(),
        };
        match (arg.multiple, arg.multiple_token) {
            (false, _) => with_token(&value),
            (true, false) => with_token(&format!("{value} [{value} ...]")),
            (true, true) => format!("{0} [{0} ...]", with_token(&value)),
        }
    }
}

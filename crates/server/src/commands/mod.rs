//! Commands about the server and its connections.

use ::commands::table::Command;

use crate::command_table::Runner;
use crate::context::ServerCtx;

pub mod client;
pub mod connection;
pub mod memory;
pub mod server;

/// All server commands.
pub fn all() -> impl Iterator<Item = &'static Command<Runner>> {
    [client::COMMANDS, connection::COMMANDS, memory::COMMANDS, server::COMMANDS]
        .into_iter()
        .flatten()
        .copied()
}

/// Answers a container's HELP: for each subcommand its syntax, then its lines, indented.
pub fn help(ctx: &mut ServerCtx<'_, '_>, container: &str, subcommands: &[(&str, &[&str])]) {
    let mut lines = vec![format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (syntax, explained) in subcommands {
        lines.push((*syntax).to_owned());
        lines.extend(explained.iter().map(|line| format!("    {line}")));
    }
    lines.extend(["HELP".to_owned(), "    Print this help.".to_owned()]);
    ctx.reply.array(lines.len());
    for line in &lines {
        ctx.reply.simple(line);
    }
}

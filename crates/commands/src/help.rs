//! The answer of a container's HELP.

use resp::Reply;

/// Replies with the container's form, for each subcommand its syntax and its
/// lines indented, and HELP.
pub fn reply_help(reply: &mut Reply<'_>, container: &str, subcommands: &[(&str, &[&str])]) {
    let explained: usize = subcommands.iter().map(|(_, lines)| 1 + lines.len()).sum();
    reply.array(explained + 3);
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (syntax, lines) in subcommands {
        reply.simple(syntax);
        for line in *lines {
            reply.simple(&format!("    {line}"));
        }
    }
    reply.simple("HELP");
    reply.simple("    Print this help.");
}

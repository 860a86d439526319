//! The reply to the HELP subcommand of container commands.

use resp::Reply;

/// Replies with the syntax of `container`, then with each subcommand's syntax and indented help
/// lines, then with HELP itself.
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

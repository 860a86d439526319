//! Commands about the connection.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group};
use ::commands::{Args, CommandError};

use crate::command_table::Runner;
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&ECHO, &PING];

static ECHO: Command<Runner> = Command {
    name: "ECHO",
    summary: "Returns the given string.",
    since: "1.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[Arg::string("message")],
    subcommands: &[],
    run: Runner::Server(echo),
};
/// ECHO message.
fn echo(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.bulk(args.get(1));
    Ok(())
}

static PING: Command<Runner> = Command {
    name: "PING",
    summary: "Says that the server is there.",
    since: "1.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::AtLeast(1),
    flags: Flags::FAST,
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::string("message").optional()],
    subcommands: &[],
    run: Runner::Server(ping),
};
/// PING [message].
fn ping(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        1 => ctx.reply.simple("PONG"),
        2 => ctx.reply.bulk(args.get(1)),
        _ => return Err(CommandError::WrongArity("ping")),
    }
    Ok(())
}

//! SLOWLOG and COMMANDLOG: logs of slow commands, large requests and large replies. SLOWLOG shows
//! only the slow commands.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::stats::command_log::Kind;

use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&COMMANDLOG, &SLOWLOG];

/// The command flags of the SLOWLOG and COMMANDLOG subcommands.
const FLAGS: Flags = Flags::ADMIN.union(Flags::LOADING).union(Flags::STALE);
/// The ACL categories of the SLOWLOG and COMMANDLOG subcommands.
const ACL: Acl = Acl::ADMIN.union(Acl::DANGEROUS);
/// Default number of entries in the reply of SLOWLOG GET.
const SHOWN: usize = 10;

/// The description of the argument `type`, which selects one of the three logs.
const TYPE: Arg =
    Arg::one_of("type", &[Arg::string("slow"), Arg::string("large-request"), Arg::string("large-reply")]);

static COMMANDLOG: Command<Runner> = Command {
    name: "COMMANDLOG",
    summary: "A container for commands that show the logs of slow commands, large requests and large \
         replies.",
    history: History::since_valkey("8.1.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&COMMANDLOG_GET, &COMMANDLOG_HELP, &COMMANDLOG_LEN, &COMMANDLOG_RESET],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

/// Parses argument `at` as the name of a log: `slow`, `large-request` or `large-reply`.
fn kind(args: &Args<'_>, at: usize) -> Result<Kind, CommandError> {
    match args.get(at).to_ascii_lowercase().as_slice() {
        b"slow" => Ok(Kind::Slow),
        b"large-request" => Ok(Kind::LargeRequest),
        b"large-reply" => Ok(Kind::LargeReply),
        _ => Err(CommandError::Line(
            "ERR type should be one of the following: slow, large-request, large-reply",
        )),
    }
}

/// Parses argument `at` as a number of entries; -1 means all entries and becomes `usize::MAX`.
fn count(args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
    match args.integer(at) {
        Ok(-1) => Ok(usize::MAX),
        Ok(count @ 0..) => Ok(count as usize),
        _ => Err(CommandError::Line("ERR count should be greater than or equal to -1")),
    }
}

/// Replies with the `count` newest entries of the log `kind`: slow commands, large requests or
/// large replies.
fn show(ctx: &mut ServerCtx<'_, '_, '_>, kind: Kind, count: usize) {
    let entries = ctx.shared.engine.command_logs.newest(kind, count);
    ctx.reply.array(entries.len());
    for entry in entries {
        ctx.reply.array(6);
        ctx.reply.integer(entry.id as i64);
        ctx.reply.integer(entry.unix_s);
        ctx.reply.integer(entry.value as i64);
        ctx.reply.array(entry.args.len());
        for arg in &entry.args {
            ctx.reply.bulk(arg);
        }
        ctx.reply.bulk(entry.peer.as_bytes());
        ctx.reply.bulk(&entry.name);
    }
}

static COMMANDLOG_GET: Command<Runner> = Command {
    name: "GET",
    summary: "Returns the newest entries of a log.",
    history: History::since_valkey("8.1.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    args: &[Arg::integer("count"), TYPE],
    run: Runner::Server(commandlog_get),
    ..Command::DEFAULT
};
/// Handles COMMANDLOG GET count type: replies with the newest entries of a log.
fn commandlog_get(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let count = count(args, 2)?;
    show(ctx, kind(args, 3)?, count);
    Ok(())
}

static COMMANDLOG_HELP: Command<Runner> = Command {
    history: History::since_valkey("8.1.0"),
    group: Group::Server,
    run: Runner::Server(commandlog_help),
    ..Command::HELP
};
/// Handles COMMANDLOG HELP: lists the subcommands with their syntax.
fn commandlog_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "COMMANDLOG",
        &[
            (
                "GET <count> <type>",
                &[
                    "The newest <count> entries of a log, -1 for all: id, Unix time, value, arguments,",
                    "client address, client name. The value of type slow is in microseconds, that of",
                    "large-request and large-reply in bytes.",
                ],
            ),
            ("LEN <type>", &["The number of entries of a log."]),
            ("RESET <type>", &["Removes the entries of a log."]),
        ],
    );
    Ok(())
}

static COMMANDLOG_LEN: Command<Runner> = Command {
    name: "LEN",
    summary: "Returns the number of entries of a log.",
    history: History::since_valkey("8.1.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    args: &[TYPE],
    run: Runner::Server(commandlog_len),
    ..Command::DEFAULT
};
/// Handles COMMANDLOG LEN type: replies with the number of entries of a log.
fn commandlog_len(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let len = ctx.shared.engine.command_logs.len(kind(args, 2)?);
    ctx.reply.integer(len as i64);
    Ok(())
}

static COMMANDLOG_RESET: Command<Runner> = Command {
    name: "RESET",
    summary: "Removes the entries of a log.",
    history: History::since_valkey("8.1.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::Exactly(3),
    flags: FLAGS,
    acl: ACL,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[TYPE],
    run: Runner::Server(commandlog_reset),
    ..Command::DEFAULT
};
/// Handles COMMANDLOG RESET type: removes all entries of a log.
fn commandlog_reset(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.engine.command_logs.reset(kind(args, 2)?);
    ctx.reply.ok();
    Ok(())
}

static SLOWLOG: Command<Runner> = Command {
    name: "SLOWLOG",
    summary: "A container for commands that show the log of slow commands.",
    history: History::since("2.2.12"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&SLOWLOG_GET, &SLOWLOG_HELP, &SLOWLOG_LEN, &SLOWLOG_RESET],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static SLOWLOG_GET: Command<Runner> = Command {
    summary: "Returns the newest entries of the slow log.",
    history: History::since("2.2.12").changed(&[("4.0.0", "returns address and name of the client")]),
    arity: Arity::AtLeast(2),
    args: &[Arg::integer("count").optional()],
    run: Runner::Server(slowlog_get),
    ..COMMANDLOG_GET
};
/// Handles SLOWLOG GET [count]: replies with the newest entries of the log of slow commands.
fn slowlog_get(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        let line = "ERR unknown subcommand or wrong number of arguments for '{}'. Try SLOWLOG HELP.";
        let name = String::from_utf8_lossy(args.get(1));
        return Err(CommandError::Text(line.replace("{}", &name)));
    }
    let count = if args.len() == 3 { count(args, 2)? } else { SHOWN };
    show(ctx, Kind::Slow, count);
    Ok(())
}

static SLOWLOG_HELP: Command<Runner> =
    Command { history: History::since("6.2.0"), run: Runner::Server(slowlog_help), ..COMMANDLOG_HELP };
/// Handles SLOWLOG HELP: lists the subcommands with their syntax.
fn slowlog_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "SLOWLOG",
        &[
            (
                "GET [<count>]",
                &[
                    "The newest <count> entries (default: 10, -1 for all): id, Unix time,",
                    "microseconds, arguments, client address, client name.",
                ],
            ),
            ("LEN", &["The number of entries in the slow log."]),
            ("RESET", &["Removes the entries of the slow log."]),
        ],
    );
    Ok(())
}

static SLOWLOG_LEN: Command<Runner> = Command {
    summary: "Returns the number of entries in the slow log.",
    history: History::since("2.2.12"),
    arity: Arity::Exactly(2),
    args: &[],
    run: Runner::Server(slowlog_len),
    ..COMMANDLOG_LEN
};
/// Handles SLOWLOG LEN: replies with the number of entries of the log of slow commands.
fn slowlog_len(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.shared.engine.command_logs.len(Kind::Slow) as i64);
    Ok(())
}

static SLOWLOG_RESET: Command<Runner> = Command {
    summary: "Removes the entries of the slow log.",
    history: History::since("2.2.12"),
    arity: Arity::Exactly(2),
    args: &[],
    run: Runner::Server(slowlog_reset),
    ..COMMANDLOG_RESET
};
/// Handles SLOWLOG RESET: removes all entries of the log of slow commands.
fn slowlog_reset(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.engine.command_logs.reset(Kind::Slow);
    ctx.reply.ok();
    Ok(())
}

//! SCRIPT: the answers of a server that has run no script.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use engine::scripts::{Kill, ScriptKind};

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&SCRIPT];

static SCRIPT: Command<Runner> = Command {
    name: "SCRIPT",
    summary: "Commands about cached scripts: there are none.",
    history: History::since("2.6.0"),
    group: Group::Scripting,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&SCRIPT_EXISTS, &SCRIPT_FLUSH, &SCRIPT_HELP, &SCRIPT_KILL],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static SCRIPT_EXISTS: Command<Runner> = Command {
    name: "EXISTS",
    summary: "Says which scripts are cached: none.",
    history: History::since("2.6.0"),
    group: Group::Scripting,
    complexity: "O(N) where N is the number of scripts asked for",
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT,
    acl: Acl::SCRIPTING,
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    args: &[Arg::string("sha1").multiple()],
    run: Runner::Server(script_exists),
    ..Command::DEFAULT
};
/// SCRIPT EXISTS sha1 [sha1 ...]: 0 for each.
fn script_exists(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(args.len() - 2);
    args.from(2).for_each(|_| ctx.reply.integer(0));
    Ok(())
}

static SCRIPT_FLUSH: Command<Runner> = Command {
    name: "FLUSH",
    summary: "Forgets all cached scripts.",
    history: History::since("2.6.0").changed(&[("6.2.0", "takes ASYNC and SYNC")]),
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of("flush-type", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")])
        .since("6.2.0")
        .optional()],
    run: Runner::Server(script_flush),
    ..SCRIPT_EXISTS
};
/// SCRIPT FLUSH [ASYNC | SYNC].
fn script_flush(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 || args.len() == 3 && !args.is(2, "SYNC") && !args.is(2, "ASYNC") {
        return Err(CommandError::Line("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    ctx.reply.ok();
    Ok(())
}

static SCRIPT_KILL: Command<Runner> = Command {
    name: "KILL",
    summary: "Ends the script that runs.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    args: &[],
    run: Runner::Server(script_kill),
    ..SCRIPT_EXISTS
};
/// SCRIPT KILL: ends scripts, not functions. So far only the stand-in of DEBUG runs as one.
fn script_kill(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let scripts = &ctx.shared.engine.scripts;
    match scripts.kill(ScriptKind::Script) {
        Kill::Requested => {
            ctx.reply.ok();
            Ok(())
        }
        Kill::OtherKind => Err(scripts.error()),
        Kill::NoneRuns => Err(CommandError::Line("NOTBUSY No scripts in execution right now.")),
    }
}

static SCRIPT_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Explains the subcommands.",
    history: History::since("5.0.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    tips: &[],
    args: &[],
    run: Runner::Server(script_help),
    ..SCRIPT_EXISTS
};
/// SCRIPT HELP.
fn script_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "SCRIPT",
        &[
            ("EXISTS <sha1> [<sha1> ...]", &["Say which scripts are cached: none, scripts cannot be run."]),
            ("FLUSH [ASYNC|SYNC]", &["Forget all cached scripts."]),
            ("KILL", &["End the script that runs."]),
        ],
    );
    Ok(())
}

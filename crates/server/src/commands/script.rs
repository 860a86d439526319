//! SCRIPT: the script cache, the debug mode of a connection, and the end of a running script.

use std::thread;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};

use engine::scripting::Debugging;
use engine::scripts::{Kill, ScriptKind};
use script::Sha;

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::scripting::compiler::compile;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&SCRIPT];

static SCRIPT: Command<Runner> = Command {
    name: "SCRIPT",
    summary: "A container for commands that manage cached scripts.",
    history: History::since("2.6.0"),
    group: Group::Scripting,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &SCRIPT_DEBUG,
        &SCRIPT_EXISTS,
        &SCRIPT_FLUSH,
        &SCRIPT_HELP,
        &SCRIPT_KILL,
        &SCRIPT_LOAD,
        &SCRIPT_SHOW,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static SCRIPT_EXISTS: Command<Runner> = Command {
    name: "EXISTS",
    summary: "Returns for each script 1 if it is cached, else 0.",
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
/// Handles SCRIPT EXISTS sha1 [sha1 ...]: replies 1 for each script in the cache, and 0 for each
/// other digest.
fn script_exists(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(args.len() - 2);
    for digest in args.from(2) {
        let is_cached = Sha::parse(digest).is_some_and(|sha| ctx.shared.script_cache.contains(&sha));
        ctx.reply.integer(i64::from(is_cached));
    }
    Ok(())
}

static SCRIPT_FLUSH: Command<Runner> = Command {
    name: "FLUSH",
    summary: "Removes all scripts from the cache.",
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
/// Handles SCRIPT FLUSH [ASYNC | SYNC]: removes all scripts from the cache.
fn script_flush(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 || args.len() == 3 && !args.is(2, "SYNC") && !args.is(2, "ASYNC") {
        return Err(CommandError::Line("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    let old = ctx.shared.script_cache.flush();
    // Freeing many scripts takes long, so another thread does it and the client does not wait.
    let freed = thread::Builder::new().name("script-flush".to_owned()).spawn(move || drop(old));
    if let Err(error) = freed {
        tracing::debug!(%error, "cannot start a thread to free the flushed scripts: the client's thread \
            freed them");
    }
    ctx.reply.ok();
    Ok(())
}

static SCRIPT_LOAD: Command<Runner> = Command {
    name: "LOAD",
    summary: "Loads a script into the cache, from which it is never evicted.",
    history: History::since("2.6.0"),
    complexity: "O(N) with N being the length in bytes of the script body.",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::string("script")],
    run: Runner::Server(script_load),
    ..SCRIPT_EXISTS
};
/// Handles SCRIPT LOAD script: compiles the script, adds it to the cache and replies with its
/// digest.
fn script_load(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let body = args.get(2);
    let sha = Sha::of(body);
    let flags = compile(&sha, body).map_err(|error| CommandError::Bytes(error.0))?;
    ctx.shared.script_cache.add_loaded(sha, body, flags);
    ctx.reply.bulk(sha.as_bytes());
    Ok(())
}

static SCRIPT_SHOW: Command<Runner> = Command {
    name: "SHOW",
    summary: "Returns the text of a cached script.",
    history: History::since("8.0.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT,
    tips: &[],
    args: &[Arg::string("sha1")],
    run: Runner::Server(script_show),
    ..SCRIPT_EXISTS
};
/// Handles SCRIPT SHOW sha1: replies with the text of the script with this digest.
fn script_show(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let script = Sha::parse(args.get(2)).and_then(|sha| ctx.shared.script_cache.find(&sha));
    let script = script.ok_or(CommandError::Line("NOSCRIPT No matching script. Please use EVAL."))?;
    ctx.reply.bulk(&script.body);
    Ok(())
}

static SCRIPT_DEBUG: Command<Runner> = Command {
    name: "DEBUG",
    summary: "Turns the debugger for scripts of this connection on or off.",
    history: History::since("3.2.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT,
    tips: &[],
    args: &[Arg::one_of(
        "mode",
        &[Arg::word("yes", "YES"), Arg::word("sync", "SYNC"), Arg::word("no", "NO")],
    )],
    run: Runner::Server(script_debug),
    ..SCRIPT_EXISTS
};
/// Handles SCRIPT DEBUG YES|SYNC|NO: turns the debugging of this connection's scripts on or off.
fn script_debug(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.reply.len_bytes_ahead() > 0 {
        return Err(CommandError::Line("ERR SCRIPT DEBUG must be called outside a pipeline"));
    }
    ctx.session.debugging = if args.is(2, "NO") {
        Debugging::Off
    } else if args.is(2, "YES") {
        Debugging::Discarding
    } else if args.is(2, "SYNC") {
        Debugging::Sync
    } else {
        return Err(CommandError::Line("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    };
    ctx.reply.ok();
    Ok(())
}

static SCRIPT_KILL: Command<Runner> = Command {
    name: "KILL",
    summary: "Stops the script that is running.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    args: &[],
    run: Runner::Server(script_kill),
    ..SCRIPT_EXISTS
};
/// Handles SCRIPT KILL: requests the end of the running script. Functions are not ended.
fn script_kill(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    kill(ctx, ScriptKind::Script)
}

/// Handles SCRIPT KILL and FUNCTION KILL: requests the end of all busy scripts of a kind (scripts
/// of EVAL or functions), except those that have written. Replies with an error if there is no such
/// script.
pub(super) fn kill(ctx: &mut ServerCtx<'_, '_, '_>, kind: ScriptKind) -> Result<(), CommandError> {
    let scripts = &ctx.shared.engine.scripts;
    match scripts.kill(kind) {
        Kill::Requested => {
            ctx.reply.ok();
            Ok(())
        }
        Kill::HasWritten => Err(CommandError::Line(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
             wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        )),
        Kill::OtherKind => Err(scripts.error()),
        Kill::NoneRuns => Err(CommandError::Line("NOTBUSY No scripts in execution right now.")),
    }
}

static SCRIPT_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    history: History::since("5.0.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    tips: &[],
    args: &[],
    run: Runner::Server(script_help),
    ..SCRIPT_EXISTS
};
/// Handles SCRIPT HELP: lists the subcommands with their syntax.
fn script_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "SCRIPT",
        &[
            ("DEBUG (YES|SYNC|NO)", &["Set the debug mode for subsequent scripts executed."]),
            (
                "EXISTS <sha1> [<sha1> ...]",
                &["Return information about the existence of the scripts in the script cache."],
            ),
            ("FLUSH [ASYNC|SYNC]", &["Flush the Lua scripts cache."]),
            ("KILL", &["Kill the currently executing Lua script."]),
            ("LOAD <script>", &["Load a script into the scripts cache without executing it."]),
            ("SHOW <sha1>", &["Show the text of a script in the scripts cache."]),
        ],
    );
    Ok(())
}

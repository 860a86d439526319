//! FUNCTION: libraries of functions. Libraries are data: they are saved in snapshots and the
//! append-only file, and their changes are recorded in the change log.

use ::commands::record::forms::{KnownSince, RecordedForm};
use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::commit::Unit;
use engine::owned_args::OwnedArgs;
use engine::scripts::ScriptKind;
use persist::dump;
use persist::rdb::{Compression, FileVersion};
use script::flags::FLAG_NAMES;
use stdx::glob;

use crate::commands::help;
use crate::context::{Runner, ServerCtx};
use crate::scripting::functions::{Existing, LoadedLibrary, Policy};

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&FUNCTION];

/// The fields that the command table's records of all FUNCTION subcommands share.
const FUNCTION_SUB: Command<Runner> = Command {
    history: History::since("7.0.0"),
    group: Group::Scripting,
    arity: Arity::AtLeast(2),
    flags: Flags::NOSCRIPT,
    acl: Acl::SCRIPTING,
    ..Command::DEFAULT
};
/// The ACL categories of FUNCTION subcommands that change libraries.
const CHANGING: Acl = Acl::SCRIPTING.union(Acl::WRITE);
/// The versions of servers that know the subcommands which change libraries: servers before Redis 7
/// have no functions.
const RECORDED_SINCE: &[RecordedForm] = &[RecordedForm::known_since(KnownSince::REDIS_7)];
/// The command flags of FUNCTION subcommands that change libraries.
const CHANGES: Flags = Flags::NOSCRIPT.union(Flags::WRITE);

static FUNCTION: Command<Runner> = Command {
    name: "FUNCTION",
    summary: "A container for commands that manage libraries of functions.",
    complexity: "Depends on subcommand.",
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &FUNCTION_DELETE,
        &FUNCTION_DUMP,
        &FUNCTION_FLUSH,
        &FUNCTION_HELP,
        &FUNCTION_KILL,
        &FUNCTION_LIST,
        &FUNCTION_LOAD,
        &FUNCTION_RESTORE,
        &FUNCTION_STATS,
    ],
    run: Runner::Server(super::container),
    ..FUNCTION_SUB
};

/// Returns the error of a FUNCTION subcommand with too many arguments.
fn too_many(args: &Args<'_>) -> CommandError {
    let end = "'. Try FUNCTION HELP.";
    CommandError::quoting("ERR unknown subcommand or wrong number of arguments for '", args.get(1), end)
}

/// Counts a change of the libraries, and records the command that made it in the change log.
/// Outside a transaction the command is recorded alone, else as a part of the transaction.
fn record(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) {
    let commit = &mut *ctx.data.commit;
    let is_recorded = commit.begin_record();
    commit.effects.changes += 1;
    if !is_recorded {
        return;
    }
    commit.record(0, args, None);
    match ctx.data.unit {
        Unit::Own => commit.log_unit_alone(),
        Unit::Transaction => commit.note_change_alone(None),
    }
}

static FUNCTION_LOAD: Command<Runner> = Command {
    name: "LOAD",
    summary: "Creates a library.",
    complexity: "O(1) (considering compilation time is redundant)",
    arity: Arity::AtLeast(3),
    flags: CHANGES.union(Flags::DENYOOM),
    acl: CHANGING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::word("replace", "REPLACE").optional(), Arg::string("function-code")],
    recorded_forms: RECORDED_SINCE,
    run: Runner::Server(function_load),
    ..FUNCTION_SUB
};
/// Handles FUNCTION LOAD [REPLACE] code: replies with the library's name.
fn function_load(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let mut existing = Existing::Kept;
    for at in 2..args.len() - 1 {
        if !args.is(at, "REPLACE") {
            return Err(CommandError::quoting("ERR Unknown option given: ", args.get(at), ""));
        }
        existing = Existing::Replaced;
    }
    let shared = ctx.shared;
    let code = args.get(args.len() - 1);
    let name = shared.functions.load(&shared.persistence, code, existing, || record(ctx, args))?;
    ctx.reply.bulk(&name);
    Ok(())
}

static FUNCTION_DELETE: Command<Runner> = Command {
    name: "DELETE",
    summary: "Deletes a library and its functions.",
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: CHANGES,
    acl: CHANGING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::string("library-name")],
    recorded_forms: RECORDED_SINCE,
    run: Runner::Server(function_delete),
    ..FUNCTION_SUB
};
/// Handles FUNCTION DELETE name: removes a library.
fn function_delete(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    if !shared.functions.delete(&shared.persistence, args.get(2), || record(ctx, args)) {
        return Err(CommandError::Line("ERR Library not found"));
    }
    ctx.reply.ok();
    Ok(())
}

static FUNCTION_FLUSH: Command<Runner> = Command {
    name: "FLUSH",
    summary: "Deletes all libraries and functions.",
    complexity: "O(N) where N is the number of functions deleted",
    flags: CHANGES,
    acl: CHANGING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of("flush-type", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")]).optional()],
    recorded_forms: RECORDED_SINCE,
    run: Runner::Server(function_flush),
    ..FUNCTION_SUB
};
/// Handles FUNCTION FLUSH [ASYNC | SYNC]: removes all libraries.
fn function_flush(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(too_many(args));
    }
    if args.len() == 3 && !args.is(2, "SYNC") && !args.is(2, "ASYNC") {
        return Err(CommandError::Line("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    let shared = ctx.shared;
    shared.functions.flush(&shared.persistence, || record(ctx, args));
    ctx.reply.ok();
    Ok(())
}

static FUNCTION_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns information about all libraries.",
    complexity: "O(N) where N is the number of functions",
    tips: &["nondeterministic_output_order"],
    args: &[
        Arg::string("library-name-pattern").token("LIBRARYNAME").optional(),
        Arg::word("withcode", "WITHCODE").optional(),
    ],
    run: Runner::Server(function_list),
    ..FUNCTION_SUB
};
/// Handles FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]: replies with a description of each
/// matching library.
fn function_list(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut with_code, mut pattern, mut at) = (false, None, 2);
    while at < args.len() {
        if !with_code && args.is(at, "WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.is(at, "LIBRARYNAME") {
            at += 1;
            let missing = CommandError::Line("ERR library name argument was not given");
            pattern = Some(args.try_get(at).ok_or(missing)?);
        } else {
            return Err(CommandError::quoting("ERR Unknown argument ", args.get(at), ""));
        }
        at += 1;
    }
    let loaded = ctx.shared.functions.read(&ctx.shared.persistence);
    let is_wanted = |library: &&std::sync::Arc<LoadedLibrary>| {
        pattern.is_none_or(|pattern| glob::glob_match_any_case(pattern, &library.library.name))
    };
    let libraries: Vec<_> = loaded.libraries.values().filter(is_wanted).collect();
    let reply = &mut ctx.reply;
    reply.array(libraries.len());
    for library in libraries {
        let library = &library.library;
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            match &function.description {
                Some(description) => reply.bulk(description),
                None => reply.null(),
            }
            reply.bulk(b"flags");
            let flags = FLAG_NAMES.iter().filter(|(_, flag)| function.flags.contains(*flag));
            reply.set(flags.clone().count());
            flags.for_each(|(name, _)| reply.simple(name));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

static FUNCTION_DUMP: Command<Runner> = Command {
    name: "DUMP",
    summary: "Dumps all libraries into a serialized binary payload.",
    complexity: "O(N) where N is the number of functions",
    arity: Arity::Exactly(2),
    run: Runner::Server(function_dump),
    ..FUNCTION_SUB
};
/// Handles FUNCTION DUMP: replies with a payload of all libraries.
fn function_dump(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let loaded = ctx.shared.functions.read(&ctx.shared.persistence);
    let sources = loaded.libraries.values().map(|library| library.library.code.as_slice());
    ctx.reply.bulk(&dump::dump_functions(sources, Compression::Lzf));
    Ok(())
}

static FUNCTION_RESTORE: Command<Runner> = Command {
    name: "RESTORE",
    summary: "Restores all libraries from a payload.",
    complexity: "O(N) where N is the number of functions on the payload",
    arity: Arity::AtLeast(3),
    flags: CHANGES.union(Flags::DENYOOM),
    acl: CHANGING,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[
        Arg::string("serialized-value"),
        Arg::one_of(
            "policy",
            &[Arg::word("flush", "FLUSH"), Arg::word("append", "APPEND"), Arg::word("replace", "REPLACE")],
        )
        .optional(),
    ],
    recorded_forms: RECORDED_SINCE,
    run: Runner::Server(function_restore),
    ..FUNCTION_SUB
};
/// Handles FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]: creates the libraries of a payload.
fn function_restore(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(too_many(args));
    }
    let policy = match args.len() {
        3 => Policy::Append,
        _ if args.is(3, "APPEND") => Policy::Append,
        _ if args.is(3, "REPLACE") => Policy::Replace,
        _ if args.is(3, "FLUSH") => Policy::Flush,
        _ => {
            return Err(CommandError::Line(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let shared = ctx.shared;
    let rules = crate::rules::rules(&ctx.settings.limits, args.hasher());
    let sources = dump::restore_functions(args.get(2), &rules).map_err(|error| match error {
        dump::PayloadError::Footer => CommandError::Line("ERR DUMP payload version or checksum are wrong"),
        dump::PayloadError::Format(_) => CommandError::Line("ERR given type is not a function"),
    })?;
    let record = || record_restore(ctx, args, &sources);
    shared.functions.restore(&shared.persistence, &sources, policy, record)?;
    ctx.reply.ok();
    Ok(())
}

/// Records FUNCTION RESTORE in the change log. A payload in a newer format version than that of
/// Redis 7.0 is replaced by one in that version, which all servers with functions read.
fn record_restore(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>, sources: &[Vec<u8>]) {
    let is_old = dump::version(args.get(2)).is_some_and(|version| version <= FileVersion::Redis7.number());
    if is_old && !ctx.settings.limits.skips_checksums {
        return record(ctx, args);
    }
    let payload = dump::dump_functions(sources.iter().map(Vec::as_slice), Compression::Lzf);
    let words = args.from(0).take(2).chain([&payload[..]]).chain(args.from(3));
    let words: Vec<&[u8]> = words.collect();
    record(ctx, &OwnedArgs::new(words.into_iter()).args(args.hasher()));
}

static FUNCTION_STATS: Command<Runner> = Command {
    name: "STATS",
    summary: "Describes the function that is running, and the script engines.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Runner::Server(function_stats),
    ..FUNCTION_SUB
};
/// Handles FUNCTION STATS: replies with the running script and the number of libraries and
/// functions.
fn function_stats(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    let scripts = &shared.engine.scripts;
    if scripts.busy_kind() == Some(ScriptKind::Script) {
        return Err(scripts.error());
    }
    let running = scripts.oldest_function();
    let reply = &mut ctx.reply;
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        Some((script, since)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&script.name);
            reply.bulk(b"command");
            reply.array(script.command.len());
            script.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(since.elapsed().as_millis() as i64);
        }
        None => reply.null(),
    }
    let loaded = shared.functions.read(&shared.persistence);
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(loaded.libraries.len() as i64);
    reply.bulk(b"functions_count");
    reply.integer(loaded.function_count() as i64);
    Ok(())
}

static FUNCTION_KILL: Command<Runner> = Command {
    name: "KILL",
    summary: "Stops the function that is running.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::ALLOW_BUSY),
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    run: Runner::Server(function_kill),
    ..FUNCTION_SUB
};
/// Handles FUNCTION KILL: requests the end of the running function. Scripts of EVAL are not ended.
fn function_kill(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::script::kill(ctx, ScriptKind::Function)
}

static FUNCTION_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    run: Runner::Server(function_help),
    ..FUNCTION_SUB
};
/// Handles FUNCTION HELP: lists the subcommands with their syntax.
fn function_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "FUNCTION",
        &[
            (
                "LOAD [REPLACE] <FUNCTION CODE>",
                &["Create a new library with the given library name and code."],
            ),
            ("DELETE <LIBRARY NAME>", &["Delete the given library."]),
            (
                "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
                &["Return general information on all the libraries, optionally with their code."],
            ),
            ("STATS", &["Return information about the current function running, and the engines."]),
            ("KILL", &["Kill the current running function."]),
            ("FLUSH [ASYNC|SYNC]", &["Delete all the libraries."]),
            ("DUMP", &["Return a serialized payload representing the current libraries."]),
            (
                "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
                &["Restore the libraries represented by the given payload."],
            ),
        ],
    );
    Ok(())
}

//! COMMAND: the description of all commands, from their records in the command table.

use ::commands::table::{
    Acl, Arg, ArgKind, Arity, Begin, Command, Find, Flags, Group, History, KeyFlags, KeySpec, category_names,
    flag_names,
};
use ::commands::{Args, CommandError};
use engine::table::{CommandTable, Registered};
use resp::Reply;
use stdx::glob::glob_match_any_case;

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;

mod request_keys;

use request_keys::keys_of;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&COMMAND];

/// The command flags of COMMAND and its subcommands.
const FLAGS: Flags = Flags::LOADING.union(Flags::STALE);

static COMMAND: Command<Runner> = Command {
    name: "COMMAND",
    summary: "Describes all commands.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(1),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        &COMMAND_COUNT,
        &COMMAND_DOCS,
        &COMMAND_GETKEYS,
        &COMMAND_GETKEYSANDFLAGS,
        &COMMAND_HELP,
        &COMMAND_INFO,
        &COMMAND_LIST,
    ],
    run: Runner::Server(command),
    ..Command::DEFAULT
};
/// Handles COMMAND: replies like COMMAND INFO without a name.
fn command(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    write_all_infos(ctx);
    Ok(())
}

static COMMAND_COUNT: Command<Runner> = Command {
    name: "COUNT",
    summary: "Returns the number of commands.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    run: Runner::Server(command_count),
    ..Command::DEFAULT
};
/// Handles COMMAND COUNT: replies with the number of commands. Subcommands do not count.
fn command_count(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.shared.engine.table.iter().count() as i64);
    Ok(())
}

static COMMAND_INFO: Command<Runner> = Command {
    name: "INFO",
    summary: "Describes commands for client libraries: arity, flags, keys.",
    history: History::since("2.8.13").changed(&[("7.0.0", "returns all commands if no name is given")]),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    tips: &["nondeterministic_output_order"],
    args: &[Arg::string("command-name").optional().multiple()],
    run: Runner::Server(command_info),
    ..Command::DEFAULT
};
/// Handles COMMAND INFO [name ...]: replies with a description of each command, and null for an
/// unknown one. Without names, replies with all commands.
fn command_info(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 {
        write_all_infos(ctx);
        return Ok(());
    }
    ctx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match ctx.shared.engine.table.find_full(name) {
            Some(found) => write_info(&mut ctx.reply, found),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// Returns all commands of the command table, sorted by name.
fn sorted(table: &CommandTable) -> Vec<&'static Registered> {
    let mut all: Vec<&'static Registered> = table.iter().collect();
    all.sort_unstable_by_key(|registered| registered.full_name);
    all
}

fn write_all_infos(ctx: &mut ServerCtx<'_, '_, '_>) {
    let all = sorted(&ctx.shared.engine.table);
    ctx.reply.array(all.len());
    all.iter().for_each(|registered| write_info(&mut ctx.reply, registered));
}

fn write_info(reply: &mut Reply<'_>, registered: &Registered) {
    let command = &registered.command;
    let (first, last, step) = command.legacy_key_range();
    reply.array(10);
    reply.bulk(registered.full_name.as_bytes());
    reply.integer(command.arity.as_number());
    let movable = command.has_movable_keys().then(|| "movablekeys".to_owned());
    write_words(reply, flag_names(command.flags).chain(movable));
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    write_words(reply, category_names(command.categories()));
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| write_key_spec(reply, spec));
    if registered.subcommands.is_empty() {
        reply.set(0);
    } else {
        reply.array(registered.subcommands.len());
        registered.subcommands.iter().for_each(|sub| write_info(reply, sub));
    }
}

/// Writes `words` as a RESP set of simple strings (an array with RESP2).
fn write_words(reply: &mut Reply<'_>, words: impl Iterator<Item = String>) {
    let words: Vec<String> = words.collect();
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

/// Returns the names of key flags as COMMAND INFO shows them. Access flags (`RW`, `RO`, `OW`, `RM`)
/// are in capitals, all others in lower case.
fn key_flag_names(flags: KeyFlags) -> impl Iterator<Item = String> {
    flags.iter_names().map(|(name, _)| match name {
        "RW" | "RO" | "OW" | "RM" => name.to_owned(),
        name => name.to_ascii_lowercase(),
    })
}

fn write_key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(if spec.notes.is_empty() { 3 } else { 4 });
    if !spec.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_words(reply, key_flag_names(spec.flags));
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(at) => write_search(reply, "index", &[("index", at.into())]),
        Begin::Keyword { keyword, start } => {
            write_search_head(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(keyword.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(start.into());
        }
        Begin::Unknown => write_search(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let numbers = [("lastkey", last.into()), ("keystep", step.into()), ("limit", limit.into())];
            write_search(reply, "range", &numbers);
        }
        Find::KeyNum { keynum, first, step } => {
            let numbers =
                [("keynumidx", keynum.into()), ("firstkey", first.into()), ("keystep", step.into())];
            write_search(reply, "keynum", &numbers);
        }
        Find::Unknown => write_search(reply, "unknown", &[]),
    }
}

fn write_search(reply: &mut Reply<'_>, kind: &str, numbers: &[(&str, i64)]) {
    write_search_head(reply, kind, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number);
    }
}

fn write_search_head(reply: &mut Reply<'_>, kind: &str, pairs: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(pairs);
}

static COMMAND_DOCS: Command<Runner> = Command {
    name: "DOCS",
    summary: "Describes commands for users: syntax, complexity, history.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    tips: &["nondeterministic_output_order"],
    args: &[Arg::string("command-name").optional().multiple()],
    run: Runner::Server(command_docs),
    ..Command::DEFAULT
};
/// Handles COMMAND DOCS [name ...]: replies with a map from the names of commands to their
/// documentation. Unknown commands are left out.
fn command_docs(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let found: Vec<&'static Registered> = if args.len() == 2 {
        sorted(&ctx.shared.engine.table)
    } else {
        args.from(2).filter_map(|name| ctx.shared.engine.table.find_full(name)).collect()
    };
    write_docs(&mut ctx.reply, &found);
    Ok(())
}

fn write_docs(reply: &mut Reply<'_>, all: &[&'static Registered]) {
    reply.map(all.len());
    for registered in all {
        reply.bulk(registered.full_name.as_bytes());
        write_doc(reply, registered);
    }
}

fn write_doc(reply: &mut Reply<'_>, registered: &Registered) {
    let command = &registered.command;
    let history = &command.history;
    let begun = reply.begin_map();
    let mut pairs = write_texts(
        reply,
        &[
            ("summary", Some(command.summary)),
            ("since", Some(history.since)),
            ("group", Some(command.group.name())),
            ("complexity", Some(command.complexity).filter(|text| !text.is_empty())),
        ],
    );
    let marks =
        [("deprecated", history.deprecated.is_some()), ("syscmd", command.flags.contains(Flags::INTERNAL))];
    pairs += write_marks(reply, "doc_flags", &marks);
    if let Some(deprecated) = history.deprecated {
        let texts =
            [("deprecated_since", Some(deprecated.since)), ("replaced_by", Some(deprecated.replaced_by))];
        pairs += write_texts(reply, &texts);
    }
    let changes = history.changes.len() + history.valkey_changes.len();
    if changes > 0 {
        pairs += 1;
        reply.bulk(b"history");
        reply.set(changes);
        for (_, (version, change)) in history.all_changes() {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !command.args.is_empty() {
        pairs += 1;
        reply.bulk(b"arguments");
        write_args(reply, command.args);
    }
    if !registered.subcommands.is_empty() {
        pairs += 1;
        reply.bulk(b"subcommands");
        write_docs(reply, &registered.subcommands);
    }
    reply.end_map(begun, pairs);
}

/// Writes, into a reply of COMMAND DOCS, a pair of name and text for each text that is `Some`.
/// Returns the number of written pairs.
fn write_texts(reply: &mut Reply<'_>, texts: &[(&str, Option<&str>)]) -> usize {
    let mut pairs = 0;
    for (name, text) in texts.iter().filter_map(|(name, text)| text.map(|text| (name, text))) {
        pairs += 1;
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    pairs
}

/// Writes, into a reply of COMMAND DOCS, `name` and the set of the names in `marks` that have the
/// value true. Writes nothing if there is none. Returns the number of written pairs: 0 or 1.
fn write_marks(reply: &mut Reply<'_>, name: &str, marks: &[(&str, bool)]) -> usize {
    let set: Vec<&str> = marks.iter().filter(|(_, set)| *set).map(|(mark, _)| *mark).collect();
    if set.is_empty() {
        return 0;
    }
    reply.bulk(name.as_bytes());
    write_words(reply, set.iter().map(ToString::to_string));
    1
}

fn write_args(reply: &mut Reply<'_>, args: &[Arg]) {
    reply.array(args.len());
    args.iter().for_each(|arg| write_arg(reply, arg));
}

fn write_arg(reply: &mut Reply<'_>, arg: &Arg) {
    let is_group = matches!(arg.kind, ArgKind::OneOf | ArgKind::Block);
    let shown_as = (!is_group).then(|| arg.shown_as.unwrap_or(arg.name));
    let begun = reply.begin_map();
    let texts = [("name", Some(arg.name)), ("type", Some(arg.kind.name())), ("display_text", shown_as)];
    let mut pairs = write_texts(reply, &texts);
    if let Some(index) = arg.key_spec {
        pairs += 1;
        reply.bulk(b"key_spec_index");
        reply.integer(index.into());
    }
    let texts = [("token", arg.token), ("since", arg.since), ("deprecated_since", arg.deprecated_since)];
    pairs += write_texts(reply, &texts);
    let marks =
        [("optional", arg.optional), ("multiple", arg.multiple), ("multiple_token", arg.multiple_token)];
    pairs += write_marks(reply, "flags", &marks);
    if !arg.args.is_empty() {
        pairs += 1;
        reply.bulk(b"arguments");
        write_args(reply, arg.args);
    }
    reply.end_map(begun, pairs);
}

static COMMAND_GETKEYS: Command<Runner> = Command {
    name: "GETKEYS",
    summary: "Returns the keys of a request.",
    history: History::since("2.8.13"),
    group: Group::Server,
    complexity: "O(N) where N is the number of arguments",
    arity: Arity::AtLeast(3),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    args: &[Arg::string("command"), Arg::string("arg").optional().multiple()],
    run: Runner::Server(command_getkeys),
    ..Command::DEFAULT
};
/// Handles COMMAND GETKEYS command [arg ...]: replies with the keys of that request.
fn command_getkeys(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = args.tail(2);
    let keys = keys_of(&ctx.shared.engine.table, &request)?;
    ctx.reply.array(keys.len());
    keys.iter().for_each(|(at, _)| ctx.reply.bulk(request.get(*at)));
    Ok(())
}

static COMMAND_GETKEYSANDFLAGS: Command<Runner> = Command {
    name: "GETKEYSANDFLAGS",
    summary: "Returns the keys of a request, each with flags for its use.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of arguments",
    arity: Arity::AtLeast(3),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    args: &[Arg::string("command"), Arg::string("arg").optional().multiple()],
    run: Runner::Server(command_getkeysandflags),
    ..Command::DEFAULT
};
/// Handles COMMAND GETKEYSANDFLAGS command [arg ...]: replies with the keys of that request, each
/// with its flags.
fn command_getkeysandflags(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = args.tail(2);
    let keys = keys_of(&ctx.shared.engine.table, &request)?;
    ctx.reply.array(keys.len());
    for (at, flags) in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(request.get(at));
        write_words(&mut ctx.reply, key_flag_names(flags));
    }
    Ok(())
}

static COMMAND_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns the names of commands.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    tips: &["nondeterministic_output_order"],
    args: &[Arg::one_of(
        "filterby",
        &[
            Arg::string("module-name").token("MODULE"),
            Arg::string("category").token("ACLCAT"),
            Arg::pattern("pattern").token("PATTERN"),
        ],
    )
    .token("FILTERBY")
    .optional()],
    run: Runner::Server(command_list),
    ..Command::DEFAULT
};
/// Handles COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]: replies with
/// the names of the commands and subcommands that match.
fn command_list(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let table = &ctx.shared.engine.table;
    let wanted: Box<dyn Fn(&Registered) -> bool> = if args.len() == 2 {
        Box::new(|_| true)
    } else if args.len() == 5 && args.is(2, "FILTERBY") {
        let by = args.get(4).to_vec();
        match args.get(3).to_ascii_uppercase().as_slice() {
            // There are no modules.
            b"MODULE" => Box::new(|_| false),
            b"ACLCAT" => {
                let name = String::from_utf8_lossy(&by).to_ascii_uppercase();
                let category = Acl::from_name(&name).unwrap_or(Acl::empty());
                Box::new(move |registered| registered.command.categories().intersects(category))
            }
            b"PATTERN" => {
                Box::new(move |registered| glob_match_any_case(&by, registered.full_name.as_bytes()))
            }
            _ => return Err(CommandError::Syntax),
        }
    } else {
        return Err(CommandError::Syntax);
    };
    let with_subcommands = sorted(table)
        .into_iter()
        .flat_map(|command| [command].into_iter().chain(command.subcommands.iter().copied()));
    let found: Vec<&'static Registered> = with_subcommands.filter(|registered| wanted(registered)).collect();
    ctx.reply.array(found.len());
    found.iter().for_each(|registered| ctx.reply.bulk(registered.full_name.as_bytes()));
    Ok(())
}

static COMMAND_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    history: History::since("5.0.0"),
    group: Group::Server,
    flags: FLAGS,
    acl: Acl::CONNECTION,
    run: Runner::Server(command_help),
    ..Command::HELP
};
/// Handles COMMAND HELP: lists the subcommands with their syntax.
fn command_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "COMMAND",
        &[
            ("(no subcommand)", &["Describe all commands, as INFO does."]),
            ("COUNT", &["Count the commands."]),
            ("DOCS [<command> ...]", &["Describe commands for users: syntax, complexity, history."]),
            ("GETKEYS <command> [<arg> ...]", &["Return the keys of a request."]),
            (
                "GETKEYSANDFLAGS <command> [<arg> ...]",
                &["Return the keys of a request, each with flags for its use."],
            ),
            ("INFO [<command> ...]", &["Describe commands for clients: arity, flags, keys."]),
            ("LIST [FILTERBY MODULE|ACLCAT|PATTERN <filter>]", &["List the names of commands."]),
        ],
    );
    Ok(())
}

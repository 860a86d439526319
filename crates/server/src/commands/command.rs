//! COMMAND: what commands there are, told from their records.

use ::commands::keys::for_each_key;
use ::commands::table::{
    Acl, Arg, ArgKind, Arity, Begin, Command, Find, Flags, Group, History, KeyFlags, KeySpec, category_names,
    flag_names,
};
use ::commands::{Args, CommandError};
use resp::Reply;
use stdx::glob::glob_match;

use crate::command_table::{CommandTable, Registered, Runner};
use crate::commands::help;
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&COMMAND];

/// How all of them behave.
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
    keys: &[],
    tips: &["nondeterministic_output_order"],
    args: &[],
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
};
/// COMMAND: COMMAND INFO of all commands.
fn command(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
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
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(command_count),
};
/// COMMAND COUNT: subcommands do not count.
fn command_count(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.shared.table.iter().len() as i64);
    Ok(())
}

static COMMAND_INFO: Command<Runner> = Command {
    name: "INFO",
    summary: "Describes commands as clients need it: arity, flags, keys.",
    history: History::since("2.8.13").changed(&[("7.0.0", "takes no name for all commands")]),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::string("command-name").optional().multiple()],
    subcommands: &[],
    run: Runner::Server(command_info),
};
/// COMMAND INFO [name ...]: null for a command that is not there.
fn command_info(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() == 2 {
        write_all_infos(ctx);
        return Ok(());
    }
    ctx.reply.array(args.len() - 2);
    for name in args.from(2) {
        match ctx.shared.table.find_full(name) {
            Some(found) => write_info(&mut ctx.reply, found),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// All commands, by name.
fn sorted(table: &CommandTable) -> Vec<&'static Registered> {
    let mut all: Vec<&'static Registered> = table.iter().collect();
    all.sort_unstable_by_key(|registered| registered.full_name);
    all
}

fn write_all_infos(ctx: &mut ServerCtx<'_, '_>) {
    let all = sorted(&ctx.shared.table);
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

/// A set of simple strings.
fn write_words(reply: &mut Reply<'_>, words: impl Iterator<Item = String>) {
    let words: Vec<String> = words.collect();
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(word));
}

/// The names of key flags: what happens to a key is in capitals, what happens to its data is not.
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
        Begin::Untold { .. } | Begin::Unknown => write_search(reply, "unknown", &[]),
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
    summary: "Describes commands as people need it: syntax, cost, history.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::string("command-name").optional().multiple()],
    subcommands: &[],
    run: Runner::Server(command_docs),
};
/// COMMAND DOCS [name ...]: a map that leaves out what is not there.
fn command_docs(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let found: Vec<&'static Registered> = if args.len() == 2 {
        sorted(&ctx.shared.table)
    } else {
        args.from(2).filter_map(|name| ctx.shared.table.find_full(name)).collect()
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
    let texts = [
        ("summary", command.summary),
        ("since", command.history.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
    ];
    let begun = reply.begin_map();
    let mut pairs = 0;
    for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
        pairs += 1;
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if let Some(deprecated) = command.history.deprecated {
        pairs += 3;
        reply.bulk(b"doc_flags");
        reply.set(1);
        reply.simple("deprecated");
        reply.bulk(b"deprecated_since");
        reply.bulk(deprecated.since.as_bytes());
        reply.bulk(b"replaced_by");
        reply.bulk(deprecated.replaced_by.as_bytes());
    }
    if !command.history.changes.is_empty() {
        pairs += 1;
        reply.bulk(b"history");
        reply.set(command.history.changes.len());
        for (version, change) in command.history.changes {
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

fn write_args(reply: &mut Reply<'_>, args: &[Arg]) {
    reply.array(args.len());
    args.iter().for_each(|arg| write_arg(reply, arg));
}

fn write_arg(reply: &mut Reply<'_>, arg: &Arg) {
    let is_group = matches!(arg.kind, ArgKind::OneOf | ArgKind::Block);
    let begun = reply.begin_map();
    let mut pairs = 0;
    let mut text = |reply: &mut Reply<'_>, name: &str, text: &str| {
        pairs += 1;
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    };
    text(reply, "name", arg.name);
    text(reply, "type", arg.kind.name());
    if !is_group {
        text(reply, "display_text", arg.shown_as.unwrap_or(arg.name));
    }
    if let Some(token) = arg.token {
        text(reply, "token", token);
    }
    if let Some(since) = arg.since {
        text(reply, "since", since);
    }
    if let Some(index) = arg.key_spec {
        pairs += 1;
        reply.bulk(b"key_spec_index");
        reply.integer(index.into());
    }
    let flags =
        [("optional", arg.optional), ("multiple", arg.multiple), ("multiple_token", arg.multiple_token)];
    let flags: Vec<&str> = flags.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    if !flags.is_empty() {
        pairs += 1;
        reply.bulk(b"flags");
        write_words(reply, flags.iter().map(ToString::to_string));
    }
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
    keys: &[],
    tips: &[],
    args: &[Arg::string("command"), Arg::string("arg").optional().multiple()],
    subcommands: &[],
    run: Runner::Server(command_getkeys),
};
/// COMMAND GETKEYS command [arg ...].
fn command_getkeys(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = args.tail(2);
    let keys = keys_of(&ctx.shared.table, &request)?;
    ctx.reply.array(keys.len());
    keys.iter().for_each(|(at, _)| ctx.reply.bulk(request.get(*at)));
    Ok(())
}

static COMMAND_GETKEYSANDFLAGS: Command<Runner> = Command {
    name: "GETKEYSANDFLAGS",
    summary: "Returns the keys of a request, and what it does with each.",
    history: History::since("7.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of arguments",
    arity: Arity::AtLeast(3),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[Arg::string("command"), Arg::string("arg").optional().multiple()],
    subcommands: &[],
    run: Runner::Server(command_getkeysandflags),
};
/// COMMAND GETKEYSANDFLAGS command [arg ...].
fn command_getkeysandflags(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = args.tail(2);
    let keys = keys_of(&ctx.shared.table, &request)?;
    ctx.reply.array(keys.len());
    for (at, flags) in keys {
        ctx.reply.array(2);
        ctx.reply.bulk(request.get(at));
        write_words(&mut ctx.reply, key_flag_names(flags));
    }
    Ok(())
}

/// The places of a request's keys, and what happens to them.
fn keys_of(table: &CommandTable, request: &Args<'_>) -> Result<Vec<(usize, KeyFlags)>, CommandError> {
    let unknown = CommandError::Line("ERR Invalid command specified");
    let mut registered = table.find(request.get(0)).ok_or(unknown.clone())?;
    if let (Some(name), false) = (request.try_get(1), registered.subcommands.is_empty()) {
        registered = registered.subcommand(name).ok_or(unknown)?;
    }
    let command = &registered.command;
    let specs: Vec<KeySpec> =
        command.keys.iter().filter(|spec| !spec.flags.contains(KeyFlags::NOT_KEY)).copied().collect();
    if specs.is_empty() {
        return Err(CommandError::Line("ERR The command has no key arguments"));
    }
    if !command.accepts(request.len()) {
        return Err(CommandError::Line("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    for spec in specs {
        let before = keys.len();
        for_each_key(&[spec], request, |at, spec| keys.push((at, actual_flags(registered, spec, request))));
        // Of a word that stands several times the command uses the last, though all of them are locked.
        if matches!(spec.begin, Begin::Untold { .. }) && keys.len() > before {
            keys.drain(before..keys.len() - 1);
        }
        // MIGRATE's first key is the empty string where the keys follow a keyword.
        if is_of_other_keys(spec) && before == 1 && keys.len() > before && request.get(keys[0].0).is_empty() {
            keys.remove(0);
        }
        // A keyword may be left out; what is at a fixed place must be there, unless no key is needed.
        let required =
            matches!(spec.begin, Begin::Index(_)) && !command.flags.contains(Flags::NO_MANDATORY_KEYS);
        if required && keys.len() == before {
            return Err(CommandError::Line("ERR Invalid arguments specified for command"));
        }
    }
    Ok(keys)
}

/// Whether a keyword's keys are there instead of those before, not beside them.
fn is_of_other_keys(spec: KeySpec) -> bool {
    matches!(spec.begin, Begin::Keyword { .. }) && spec.flags.contains(KeyFlags::INCOMPLETE)
}

/// The flags of a key in this very request, where the record's depend on the arguments.
fn actual_flags(registered: &Registered, spec: &KeySpec, request: &Args<'_>) -> KeyFlags {
    if !spec.flags.contains(KeyFlags::VARIABLE_FLAGS) {
        return spec.flags;
    }
    let has = |word: &str| (2..request.len()).any(|at| request.is(at, word));
    match registered.full_name {
        // SET with GET reads what it replaces. The value itself may be the word.
        "set" if (3..request.len()).any(|at| request.is(at, "GET")) => {
            KeyFlags::RW | KeyFlags::ACCESS | KeyFlags::UPDATE
        }
        "set" => KeyFlags::OW | KeyFlags::UPDATE,
        "bitfield" if !has("SET") && !has("INCRBY") => KeyFlags::RO | KeyFlags::ACCESS,
        _ => spec.flags - KeyFlags::VARIABLE_FLAGS,
    }
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
    keys: &[],
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
    subcommands: &[],
    run: Runner::Server(command_list),
};
/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]: subcommands too.
fn command_list(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let table = &ctx.shared.table;
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
            b"PATTERN" => Box::new(move |registered| glob_match(&by, registered.full_name.as_bytes(), true)),
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
    summary: "Explains the subcommands.",
    history: History::since("5.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(command_help),
};
/// COMMAND HELP.
fn command_help(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "COMMAND",
        &[
            ("(no subcommand)", &["Describe all commands, as INFO does."]),
            ("COUNT", &["Count the commands."]),
            ("DOCS [<command> ...]", &["Describe commands for people: syntax, cost, history."]),
            ("GETKEYS <command> [<arg> ...]", &["Find the keys of a request."]),
            ("GETKEYSANDFLAGS <command> [<arg> ...]", &["Find them, and what happens to each."]),
            ("INFO [<command> ...]", &["Describe commands for clients: arity, flags, keys."]),
            ("LIST [FILTERBY MODULE|ACLCAT|PATTERN <filter>]", &["List the names of commands."]),
        ],
    );
    Ok(())
}

//! ACL: shows, changes, loads and saves users, and shows denied requests. `engine::acl` defines
//! users, `crate::users` loads them.

use std::fmt::Write;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, category_names};
use ::commands::{Args, CommandError};
use engine::acl::{AclRequest, DEFAULT_USER, LogEntry, Selector, SetError, User, check_name};
use engine::table::Registered;
use resp::Reply;

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;
use crate::users;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&ACL];

/// Default number of bits of a password from ACL GENPASS. The maximum is [`PASSWORD_BITS_MAX`].
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// The command flags of ACL subcommands that show or change users.
const FLAGS: Flags = ANYBODYS.union(Flags::ADMIN);
/// The command flags of ACL subcommands that every user may run: they reveal nothing about other
/// users.
const ANYBODYS: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);
/// The ACL categories of ACL subcommands that show or change users.
const CATEGORIES: Acl = Acl::ADMIN.union(Acl::DANGEROUS);
/// The command tips of ACL subcommands that a cluster client sends to all nodes.
const TO_ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

static ACL: Command<Runner> = Command {
    name: "ACL",
    summary: "A container for commands that manage users and their permissions.",
    history: History::since("6.0.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &ACL_CAT,
        &ACL_DELUSER,
        &ACL_DRYRUN,
        &ACL_GENPASS,
        &ACL_GETUSER,
        &ACL_HELP,
        &ACL_LIST,
        &ACL_LOAD,
        &ACL_LOG,
        &ACL_SAVE,
        &ACL_SETUSER,
        &ACL_USERS,
        &ACL_WHOAMI,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

/// Returns the error for too many arguments of an ACL subcommand with optional arguments.
fn too_many(args: &Args<'_>) -> CommandError {
    let after = "'. Try ACL HELP.";
    CommandError::quoting("ERR unknown subcommand or wrong number of arguments for '", args.get(1), after)
}

static ACL_CAT: Command<Runner> = Command {
    name: "CAT",
    summary: "Returns the categories of commands, or the commands of one.",
    complexity: "O(N) where N is the number of commands",
    arity: Arity::AtLeast(2),
    flags: ANYBODYS,
    acl: Acl::empty(),
    args: &[Arg::string("category").optional()],
    run: Runner::Server(acl_cat),
    ..ACL_USERS
};
/// Handles ACL CAT [category]: replies with the categories, or with the commands of one category.
/// Names of commands are in lower case, with a bar before a subcommand.
fn acl_cat(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(too_many(args));
    }
    let Some(name) = args.try_get(2) else {
        let names: Vec<String> = category_names(Acl::all()).collect();
        ctx.reply.array(names.len());
        names.iter().for_each(|name| ctx.reply.bulk(name.trim_start_matches('@').as_bytes()));
        return Ok(());
    };
    let category = std::str::from_utf8(name).ok().and_then(|name| Acl::from_name(&name.to_ascii_uppercase()));
    let category = category.ok_or_else(|| CommandError::quoting("ERR Unknown category '", name, "'"))?;
    let table = &ctx.shared.engine.table;
    let all = (0..table.id_count()).map(|id| table.by_id(id));
    let found: Vec<&Registered> = all.filter(|it| it.command.categories().intersects(category)).collect();
    ctx.reply.array(found.len());
    found.iter().for_each(|registered| ctx.reply.bulk(registered.full_name.as_bytes()));
    Ok(())
}

static ACL_DELUSER: Command<Runner> = Command {
    name: "DELUSER",
    summary: "Removes users and closes their connections.",
    arity: Arity::AtLeast(3),
    tips: TO_ALL_NODES,
    complexity: "O(N) where N is the number of names",
    args: &[Arg::string("username").multiple()],
    run: Runner::Server(acl_deluser),
    ..ACL_USERS
};
/// Handles ACL DELUSER username [username ...]: replies with the number of removed users.
fn acl_deluser(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.from(2).any(|name| name == DEFAULT_USER) {
        return Err(CommandError::Line("ERR The 'default' user cannot be removed"));
    }
    let removed = ctx.shared.engine.acl.users.remove(args.from(2));
    ctx.reply.integer(removed as i64);
    if removed > 0 {
        end_sessions(ctx);
    }
    Ok(())
}

/// Closes the connections whose users were removed or may no longer access a subscribed channel. If
/// this command's own connection is one of them, it is closed after the reply.
fn end_sessions(ctx: &mut ServerCtx<'_, '_, '_>) {
    ctx.session.refresh_rights(&ctx.shared.engine.acl.users);
    users::close_sessions(ctx.shared);
}

static ACL_DRYRUN: Command<Runner> = Command {
    name: "DRYRUN",
    summary: "Checks if a user may run a command, without running it.",
    history: History::since("7.0.0"),
    complexity: "O(1)",
    arity: Arity::AtLeast(4),
    args: &[Arg::string("username"), Arg::string("command"), Arg::string("arg").optional().multiple()],
    run: Runner::Server(acl_dryrun),
    ..ACL_USERS
};
/// Handles ACL DRYRUN username command [arg ...]: replies OK, or the reason for a denial as a
/// string.
fn acl_dryrun(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let engine = &ctx.shared.engine;
    let Some(user) = engine.acl.users.get(args.get(2)) else {
        return Err(CommandError::quoting("ERR User '", args.get(2), "' not found"));
    };
    let request = args.tail(3);
    let not_found = || CommandError::quoting("ERR Command '", args.get(3), "' not found");
    let command = engine.table.find(request.get(0)).ok_or_else(not_found)?;
    let registered = command.called_by(&request);
    if request.len() > 1 && !command.subcommands.is_empty() && registered.id == command.id {
        return Err(not_found());
    }
    if !registered.command.accepts(request.len()) {
        return Err(CommandError::WrongArity(registered.full_name));
    }
    match user.check(AclRequest { registered, args: &request, db: ctx.session.db() }) {
        Ok(()) => ctx.reply.ok(),
        Err(denial) => ctx.reply.bulk(&denial.description(user.name(), registered, &request)),
    }
    Ok(())
}

static ACL_GENPASS: Command<Runner> = Command {
    name: "GENPASS",
    summary: "Returns a random password from a secure generator.",
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: ANYBODYS,
    acl: Acl::empty(),
    args: &[Arg::integer("bits").optional()],
    run: Runner::Server(acl_genpass),
    ..ACL_USERS
};
/// Handles ACL GENPASS [bits]: replies with random hexadecimal digits. Each digit holds four random
/// bits from the kernel.
fn acl_genpass(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let bits = match args.len() {
        2 => PASSWORD_BITS,
        3 => args.integer(2)?,
        _ => return Err(too_many(args)),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(CommandError::Line(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let random = random_bytes(digits.div_ceil(2))
        .map_err(|error| CommandError::Text(format!("ERR The system gives no random numbers: {error}")))?;
    ctx.reply.bulk(&hexadecimal(&random).as_bytes()[..digits]);
    Ok(())
}

/// Returns random bytes from the kernel. They are secure enough for passwords.
fn random_bytes(len: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

static ACL_GETUSER: Command<Runner> = Command {
    name: "GETUSER",
    summary: "Describes a user: flags, passwords and permissions.",
    history: History::since("6.0.0")
        .changed(&[("6.2.0", "returns channels"), ("7.0.0", "returns selectors, and patterns as rules")])
        .changed_by_valkey(&[("9.1.0", "returns databases")]),
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    args: &[Arg::string("username")],
    run: Runner::Server(acl_getuser),
    ..ACL_USERS
};
/// Handles ACL GETUSER username: replies with a map, or null if the user does not exist.
fn acl_getuser(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let reply = &mut ctx.reply;
    let Some(user) = ctx.shared.engine.acl.users.get(args.get(2)) else {
        reply.null();
        return Ok(());
    };
    reply.map(3 + selector_fields(user.root()));
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().for_each(|digest| reply.bulk(digest));
    write_selector(reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.selectors().len());
    for selector in user.selectors() {
        reply.map(selector_fields(selector));
        write_selector(reply, selector);
    }
    Ok(())
}

/// Returns the number of pairs that ACL GETUSER shows for a selector. The pair `databases` is left
/// out if all databases are permitted.
fn selector_fields(selector: &Selector) -> usize {
    3 + selector.database_text().iter().len()
}

fn write_selector(reply: &mut Reply<'_>, selector: &Selector) {
    let databases = selector.database_text();
    let fields = [
        ("commands", Some(selector.command_text())),
        ("keys", Some(selector.key_text())),
        ("channels", Some(selector.channel_text())),
        ("databases", databases),
    ];
    for (name, text) in fields {
        let Some(text) = text else { continue };
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

static ACL_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns all users as lines of an ACL file.",
    run: Runner::Server(acl_list),
    ..ACL_USERS
};
/// Handles ACL LIST: replies with one line of rules for each user.
fn acl_list(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let users = ctx.shared.engine.acl.users.all();
    ctx.reply.array(users.len());
    users.iter().for_each(|user| ctx.reply.bulk(&user.line()));
    Ok(())
}

static ACL_LOAD: Command<Runner> = Command {
    name: "LOAD",
    summary: "Replaces all users with those of the ACL file.",
    run: Runner::Server(acl_load),
    ..ACL_USERS
};
/// Handles ACL LOAD: replaces all users by those of the ACL file, or changes nothing after an
/// error.
fn acl_load(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let path = users::file(&ctx.shared.config()).ok_or(NO_FILE)?;
    let new = users::new_users(&ctx.shared.engine, ctx.settings);
    let loaded = ctx.pass.outside(|| users::read_file(&path, &new));
    let loaded = loaded.map_err(|errors| CommandError::Bytes([b"ERR ", errors.as_bytes()].concat()))?;
    ctx.shared.engine.acl.users.replace_all(loaded);
    ctx.reply.ok();
    end_sessions(ctx);
    Ok(())
}

/// The error of ACL LOAD and ACL SAVE if the server has no ACL file.
const NO_FILE: CommandError = CommandError::Line(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL \
     SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order \
     to store users in the Redis configuration.",
);

static ACL_SAVE: Command<Runner> = Command {
    name: "SAVE",
    summary: "Writes the users to the ACL file.",
    tips: TO_ALL_NODES,
    run: Runner::Server(acl_save),
    ..ACL_USERS
};
/// Handles ACL SAVE: replaces the ACL file atomically. The new file is synced to disk before the
/// reply.
fn acl_save(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let path = users::file(&ctx.shared.config()).ok_or(NO_FILE)?;
    let all = ctx.shared.engine.acl.users.all();
    ctx.pass.outside(|| users::write_file(&path, &all)).map_err(|error| {
        tracing::warn!(%error, file = %path.display(), "ACL SAVE failed");
        CommandError::Line(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })?;
    ctx.reply.ok();
    Ok(())
}

static ACL_LOG: Command<Runner> = Command {
    name: "LOG",
    summary: "Returns the latest refused requests and failed logins.",
    history: History::since("6.0.0").changed(&[("7.2.0", "returns the ID and times of an entry")]),
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    args: &[Arg::one_of("operation", &[Arg::integer("count"), Arg::word("reset", "RESET")]).optional()],
    run: Runner::Server(acl_log),
    ..ACL_USERS
};
/// Handles ACL LOG [count | RESET]: replies with the newest entries (10 by default), or removes all
/// entries.
fn acl_log(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    const COUNT: i64 = 10;
    let log = &ctx.shared.engine.acl.log;
    let count = match args.len() {
        2 => COUNT,
        3 if args.is(2, "RESET") => {
            log.reset();
            ctx.reply.ok();
            return Ok(());
        }
        3 => args.integer(2)?,
        _ => return Err(too_many(args)),
    };
    let entries = log.newest(usize::try_from(count).unwrap_or(0));
    ctx.reply.array(entries.len());
    entries.iter().for_each(|entry| write_log_entry(&mut ctx.reply, entry, ctx.now_ms));
    Ok(())
}

fn write_log_entry(reply: &mut Reply<'_>, entry: &LogEntry, now_ms: i64) {
    let last = &entry.last;
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(entry.count as i64);
    let texts: [(&str, &[u8]); 4] = [
        ("reason", last.reason.name().as_bytes()),
        ("context", last.context.name().as_bytes()),
        ("object", &last.object),
        ("username", &last.username),
    ];
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text);
    }
    reply.bulk(b"age-seconds");
    reply.double((now_ms - last.unix_ms) as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(&last.client);
    let numbers = [
        ("entry-id", entry.id as i64),
        ("timestamp-created", entry.created_ms),
        ("timestamp-last-updated", last.unix_ms),
    ];
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number);
    }
}

static ACL_SETUSER: Command<Runner> = Command {
    name: "SETUSER",
    summary: "Creates or changes a user.",
    history: History::since("6.0.0")
        .changed(&[("6.2.0", "takes patterns of channels"), ("7.0.0", "takes selectors and key permissions")])
        .changed_by_valkey(&[("9.1.0", "takes databases")]),
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    tips: TO_ALL_NODES,
    args: &[Arg::string("username"), Arg::string("rule").optional().multiple()],
    run: Runner::Server(acl_setuser),
    ..ACL_USERS
};
/// Handles ACL SETUSER username [rule ...]: applies all rules to the user, or none if one is
/// invalid. Creates a missing user.
fn acl_setuser(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let name = args.get(2);
    if !check_name(name) {
        return Err(CommandError::Line("ERR Usernames can't contain spaces or null characters"));
    }
    let new = users::new_users(&ctx.shared.engine, ctx.settings);
    let loses_channels = ctx.shared.engine.acl.users.set(name, |old| {
        let mut user = old.map_or_else(|| new.user(name), User::clone);
        new.apply_all(&mut user, args.from(3)).map(|()| user).map_err(set_error)
    })?;
    ctx.reply.ok();
    if loses_channels {
        end_sessions(ctx);
    }
    Ok(())
}

fn set_error(error: SetError) -> CommandError {
    match error {
        SetError::Unmatched(word) => {
            CommandError::quoting("ERR Unmatched parenthesis in acl selector starting at '", &word, "'.")
        }
        SetError::Rule(rule, error) => {
            let after = format!("': {}", error.text());
            CommandError::quoting("ERR Error in ACL SETUSER modifier '", &rule, &after)
        }
    }
}

static ACL_USERS: Command<Runner> = Command {
    name: "USERS",
    summary: "Returns the names of all users.",
    history: History::since("6.0.0"),
    group: Group::Server,
    complexity: "O(N) where N is the number of users",
    arity: Arity::Exactly(2),
    flags: FLAGS,
    acl: CATEGORIES,
    run: Runner::Server(acl_users),
    ..Command::DEFAULT
};
/// Handles ACL USERS: replies with the names of all users.
fn acl_users(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let users = ctx.shared.engine.acl.users.all();
    ctx.reply.array(users.len());
    users.iter().for_each(|user| ctx.reply.bulk(user.name()));
    Ok(())
}

static ACL_WHOAMI: Command<Runner> = Command {
    name: "WHOAMI",
    summary: "Returns the name of the connection's user.",
    complexity: "O(1)",
    flags: ANYBODYS,
    acl: Acl::empty(),
    run: Runner::Server(acl_whoami),
    ..ACL_USERS
};
/// Handles ACL WHOAMI: replies with the name of this connection's user.
fn acl_whoami(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.bulk(ctx.session.identity.name());
    Ok(())
}

static ACL_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    complexity: "O(1)",
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    run: Runner::Server(acl_help),
    ..ACL_USERS
};
/// Handles ACL HELP: lists the subcommands with their syntax.
fn acl_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "ACL",
        &[
            ("CAT [<category>]", &["List the categories of commands, or the commands of one."]),
            ("DELUSER <username> [<username> ...]", &["Remove users and close their connections."]),
            (
                "DRYRUN <username> <command> [<arg> ...]",
                &["Check if a user may run a command, without running it."],
            ),
            ("GENPASS [<bits>]", &["Make a password of 256 random bits, or of <bits>."]),
            ("GETUSER <username>", &["Describe a user."]),
            ("LIST", &["Show users as lines of an ACL file."]),
            ("LOAD", &["Replace all users with those of the ACL file."]),
            ("LOG [<count> | RESET]", &["Show or empty the log of refused requests and failed logins."]),
            ("SAVE", &["Write the users to the ACL file."]),
            ("SETUSER <username> <rule> [<rule> ...]", &["Create or change a user."]),
            ("USERS", &["List the names of users."]),
            ("WHOAMI", &["Show the user of this connection."]),
        ],
    );
    Ok(())
}

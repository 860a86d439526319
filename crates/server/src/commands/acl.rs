//! ACL: the answers of a server whose only user is `default`, who may do everything. With
//! `requirepass` it has that password.
//!
//! What would need more users is refused in plain words (SETUSER), or answered as Redis does where
//! there are none: DELUSER finds nobody, the log of refused commands is empty.

use std::fmt::Write;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, category_names};
use ::commands::{Args, CommandError};
use engine::settings::Settings;
use engine::table::Registered;
use sha2::{Digest, Sha256};

use crate::commands::help;
use crate::context::Runner;
use crate::context::ServerCtx;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&ACL];

/// The only user.
const DEFAULT_USER: &[u8] = b"default";
/// Bits of a password that ACL GENPASS makes, if it is not told how many, and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// How subcommands about users behave.
const FLAGS: Flags = ANYBODYS.union(Flags::ADMIN);
/// How subcommands behave that tell nothing of users.
const ANYBODYS: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);
/// What access control calls subcommands about users.
const CATEGORIES: Acl = Acl::ADMIN.union(Acl::DANGEROUS);
/// What reaches all nodes of a cluster.
const TO_ALL_NODES: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

static ACL: Command<Runner> = Command {
    name: "ACL",
    summary: "Commands about users. There is one, default, who may do everything.",
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

/// What ACL answers where a subcommand with optional arguments has too many.
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
/// ACL CAT [category]: names of commands are in lower case, subcommands behind a bar.
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
    summary: "Removes users: there are none that could be removed.",
    arity: Arity::AtLeast(3),
    tips: TO_ALL_NODES,
    complexity: "O(N) where N is the number of names",
    args: &[Arg::string("username").multiple()],
    run: Runner::Server(acl_deluser),
    ..ACL_USERS
};
/// ACL DELUSER username [username ...]: how many were removed.
fn acl_deluser(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.from(2).any(|name| name == DEFAULT_USER) {
        return Err(CommandError::Line("ERR The 'default' user cannot be removed"));
    }
    ctx.reply.integer(0);
    Ok(())
}

static ACL_DRYRUN: Command<Runner> = Command {
    name: "DRYRUN",
    summary: "Says whether a user may run a command.",
    history: History::since("7.0.0"),
    complexity: "O(1)",
    arity: Arity::AtLeast(4),
    args: &[Arg::string("username"), Arg::string("command"), Arg::string("arg").optional().multiple()],
    run: Runner::Server(acl_dryrun),
    ..ACL_USERS
};
/// ACL DRYRUN username command [arg ...]: OK for every command that there is.
fn acl_dryrun(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.get(2) != DEFAULT_USER {
        return Err(CommandError::quoting("ERR User '", args.get(2), "' not found"));
    }
    let request = args.tail(3);
    let not_found = || CommandError::quoting("ERR Command '", args.get(3), "' not found");
    let command = ctx.shared.engine.table.find(request.get(0)).ok_or_else(not_found)?;
    let called = command.called_by(&request);
    if request.len() > 1 && !command.subcommands.is_empty() && called.id == command.id {
        return Err(not_found());
    }
    if !called.command.accepts(request.len()) {
        return Err(CommandError::WrongArity(called.full_name));
    }
    ctx.reply.ok();
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
/// ACL GENPASS [bits]: hexadecimal digits of random numbers from the kernel, four bits each.
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

/// Random bytes fit for secrets.
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

/// The SHA-256 of the default user's password; none without `requirepass`.
fn password_digest(settings: &Settings) -> Option<String> {
    let password = &settings.requirepass;
    (!password.is_empty()).then(|| hexadecimal(&Sha256::digest(password)))
}

static ACL_GETUSER: Command<Runner> = Command {
    name: "GETUSER",
    summary: "Describes a user: flags, passwords, and what it may do.",
    history: History::since("6.0.0")
        .changed(&[("6.2.0", "returns channels"), ("7.0.0", "returns selectors, and patterns as rules")]),
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    args: &[Arg::string("username")],
    run: Runner::Server(acl_getuser),
    ..ACL_USERS
};
/// ACL GETUSER username: a map, null for a user that is not there.
fn acl_getuser(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let reply = &mut ctx.reply;
    if args.get(2) != DEFAULT_USER {
        reply.null();
        return Ok(());
    }
    let digest = password_digest(ctx.settings);
    let flags: &[&str] =
        if digest.is_some() { &["on", "sanitize-payload"] } else { &["on", "nopass", "sanitize-payload"] };
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(digest.iter().len());
    digest.iter().for_each(|digest| reply.bulk(digest.as_bytes()));
    for (name, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(name.as_bytes());
        reply.bulk(rule.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.empty_array();
    Ok(())
}

static ACL_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns all users as lines of an ACL file.",
    run: Runner::Server(acl_list),
    ..ACL_USERS
};
/// ACL LIST: the user `default`.
fn acl_list(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let line = match password_digest(ctx.settings) {
        None => "user default on nopass sanitize-payload ~* &* +@all".to_owned(),
        Some(digest) => format!("user default on sanitize-payload #{digest} ~* &* +@all"),
    };
    ctx.reply.array(1);
    ctx.reply.bulk(line.as_bytes());
    Ok(())
}

static ACL_LOAD: Command<Runner> = Command {
    name: "LOAD",
    summary: "Reads users from the ACL file: there is none.",
    run: Runner::Server(no_file),
    ..ACL_USERS
};

static ACL_SAVE: Command<Runner> = Command {
    name: "SAVE",
    summary: "Writes users to the ACL file: there is none.",
    tips: TO_ALL_NODES,
    run: Runner::Server(no_file),
    ..ACL_USERS
};
/// ACL LOAD, ACL SAVE.
fn no_file(_ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Line(
        "ERR There is no ACL file: only the user 'default' exists, its password is 'requirepass'",
    ))
}

static ACL_LOG: Command<Runner> = Command {
    name: "LOG",
    summary: "Returns what access control refused: nothing so far.",
    history: History::since("6.0.0").changed(&[("7.2.0", "returns the ID and times of an entry")]),
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    args: &[Arg::one_of("operation", &[Arg::integer("count"), Arg::word("reset", "RESET")]).optional()],
    run: Runner::Server(acl_log),
    ..ACL_USERS
};
/// ACL LOG [count | RESET].
fn acl_log(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    match args.len() {
        2 => ctx.reply.empty_array(),
        3 if args.is(2, "RESET") => ctx.reply.ok(),
        3 => {
            args.integer(2)?;
            ctx.reply.empty_array();
        }
        _ => return Err(too_many(args)),
    }
    Ok(())
}

static ACL_SETUSER: Command<Runner> = Command {
    name: "SETUSER",
    summary: "Creates or changes a user: refused, the password of the only user is the option requirepass.",
    history: History::since("6.0.0").changed(&[
        ("6.2.0", "takes patterns of channels"),
        ("7.0.0", "takes selectors and permissions by key"),
    ]),
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    tips: TO_ALL_NODES,
    args: &[Arg::string("username"), Arg::string("rule").optional().multiple()],
    run: Runner::Server(acl_setuser),
    ..ACL_USERS
};
/// ACL SETUSER username [rule ...].
fn acl_setuser(_ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::Line(
        "ERR Users cannot be created or changed: only the user 'default' exists, CONFIG SET requirepass sets its \
         password",
    ))
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
/// ACL USERS.
fn acl_users(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(1);
    ctx.reply.bulk(DEFAULT_USER);
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
/// ACL WHOAMI.
fn acl_whoami(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.bulk(DEFAULT_USER);
    Ok(())
}

static ACL_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Explains the subcommands.",
    complexity: "O(1)",
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::empty(),
    run: Runner::Server(acl_help),
    ..ACL_USERS
};
/// ACL HELP.
fn acl_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    help(
        ctx,
        "ACL",
        &[
            ("CAT [<category>]", &["List the categories of commands, or the commands of one."]),
            ("DELUSER <username> [<username> ...]", &["Remove users: only 'default' exists, and stays."]),
            ("DRYRUN <username> <command> [<arg> ...]", &["Say whether a user may run a command."]),
            ("GENPASS [<bits>]", &["Make a password of 256 random bits, or of <bits>."]),
            ("GETUSER <username>", &["Describe a user."]),
            ("LIST", &["Show users as lines of an ACL file."]),
            ("LOAD", &["Read users from the ACL file: refused, there is none."]),
            ("LOG [<count> | RESET]", &["Show or empty the log of refused commands."]),
            ("SAVE", &["Write users to the ACL file: refused, there is none."]),
            ("SETUSER <username> <rule> [<rule> ...]", &["Create or change a user: refused."]),
            ("USERS", &["List the names of users."]),
            ("WHOAMI", &["Show the user of this connection."]),
        ],
    );
    Ok(())
}

//! The command CLIENT: shows the connections of clients and changes their state.

mod filter;
mod list;
mod pause;
mod tracking;

use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::session::ReplyMode;

use self::list::{CLIENT_KILL, CLIENT_LIST};
use self::pause::{CLIENT_PAUSE, CLIENT_UNBLOCK, CLIENT_UNPAUSE};
use self::tracking::{CLIENT_CACHING, CLIENT_GETREDIR, CLIENT_TRACKING, CLIENT_TRACKINGINFO};
use crate::client_line::client_line;
use crate::config::table::replication;
use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&CLIENT];

static CLIENT: Command<Runner> = Command {
    name: "CLIENT",
    summary: "A container for commands that manage client connections.",
    history: History::since("2.4.0"),
    group: Group::Connection,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::KEEPS_CACHING,
    acl: Acl::empty(),
    subcommands: &[
        &CLIENT_CACHING,
        &CLIENT_CAPA,
        &CLIENT_GETNAME,
        &CLIENT_GETREDIR,
        &CLIENT_HELP,
        &CLIENT_ID,
        &CLIENT_IMPORT_SOURCE,
        &CLIENT_INFO,
        &CLIENT_KILL,
        &CLIENT_LIST,
        &CLIENT_NO_EVICT,
        &CLIENT_NO_TOUCH,
        &CLIENT_PAUSE,
        &CLIENT_REPLY,
        &CLIENT_SETINFO,
        &CLIENT_SETNAME,
        &CLIENT_TRACKING,
        &CLIENT_TRACKINGINFO,
        &CLIENT_UNBLOCK,
        &CLIENT_UNPAUSE,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static CLIENT_CAPA: Command<Runner> = Command {
    name: "CAPA",
    summary: "Declares the capabilities of the client.",
    history: History::since_valkey("8.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    args: &[Arg::string("capability").multiple()],
    run: Runner::Server(client_capa),
    ..Command::DEFAULT
};
/// Handles CLIENT CAPA capability [...]: records that the client has the capability `redirect`. All
/// others are ignored.
fn client_capa(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.from(2).any(|capability| capability.eq_ignore_ascii_case(b"redirect")) {
        ctx.session.info.choices.handles_redirects.store(true, Relaxed);
    }
    ctx.reply.ok();
    Ok(())
}

static CLIENT_IMPORT_SOURCE: Command<Runner> = Command {
    name: "IMPORT-SOURCE",
    summary: "Marks the connection as one that imports data.",
    history: History::since_valkey("8.1.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    args: &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
    run: Runner::Server(client_import_source),
    ..Command::DEFAULT
};
/// Handles CLIENT IMPORT-SOURCE ON|OFF: marks this client as the source of imported data. ON is an
/// error while `import-mode` is off.
fn client_import_source(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !args.is(2, "OFF") && !replication::IMPORT_MODE.of(&ctx.shared.config()) {
        return Err(CommandError::Line("ERR Server is not in import mode"));
    }
    ctx.session.info.choices.import_source.store(switch(args)?, Relaxed);
    ctx.reply.ok();
    Ok(())
}

static CLIENT_GETNAME: Command<Runner> = Command {
    name: "GETNAME",
    summary: "Returns the name of the connection.",
    history: History::since("2.6.9"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    run: Runner::Server(client_getname),
    ..Command::DEFAULT
};
/// Handles CLIENT GETNAME: replies with null while the connection has no name.
fn client_getname(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let names = ctx.session.info.names();
    if names.name.is_empty() {
        ctx.reply.null()
    } else {
        ctx.reply.bulk(&names.name)
    }
    Ok(())
}

static CLIENT_HELP: Command<Runner> = Command {
    group: Group::Connection,
    acl: Acl::CONNECTION,
    run: Runner::Server(client_help),
    ..Command::HELP
};
/// Handles CLIENT HELP: lists the subcommands with their syntax.
fn client_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "CLIENT",
        &[
            ("CACHING (YES|NO)", &["Turns tracking of the next command's keys on (OPTIN) or off (OPTOUT)."]),
            (
                "CAPA <option> [options...]",
                &["Declares a capability of this client: REDIRECT (it follows a failover)."],
            ),
            ("GETNAME", &["The name of this connection."]),
            ("GETREDIR", &["The ID of the client that receives the invalidations for this connection."]),
            ("ID", &["The ID of this connection."]),
            ("IMPORT-SOURCE (ON|OFF)", &["Marks this connection as one that imports data."]),
            ("INFO", &["The line of this connection in CLIENT LIST."]),
            ("KILL <ip:port>", &["Closes the connection from this address."]),
            (
                "KILL <option> <value> [<option> <value> [...]]",
                &["Closes the connections that match all options, except this one. Options as for LIST."],
            ),
            (
                "LIST [options ...]",
                &[
                    "Describes the connections that match all options. All but the last three can have the prefix \
         NOT-:",
                    "* ADDR (<ip:port>|<unixsocket>:0), LADDR, IP: address of the client, of the server, IP of \
         the client",
                    "* ID <client-id> [<client-id>...], USER <username>, NAME <name>, DB <index>",
                    "* LIB-NAME <name>, LIB-VER <version>, FLAGS <letters>, CAPA <letters>",
                    "* TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
                    "* MAXAGE <seconds>, IDLE <seconds>: minimum time since the connection, since the last request",
                    "* SKIPME (YES|NO): YES leaves out this connection",
                ],
            ),
            ("NO-EVICT (ON|OFF)", &["Exempts this connection from client eviction, or ends the exemption."]),
            ("NO-TOUCH (ON|OFF)", &["Turns updates of keys' access times by this connection off or on."]),
            (
                "PAUSE <timeout> [WRITE|ALL]",
                &["Delays all commands, or only writes, of all clients for <timeout> milliseconds."],
            ),
            ("REPLY (ON|OFF|SKIP)", &["Turns replies to this connection on or off."]),
            (
                "SETINFO <option> <value>",
                &["Sets the name (LIB-NAME) or version (LIB-VER) of the client's library."],
            ),
            ("SETNAME <name>", &["Names this connection."]),
            (
                "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
                &[
                    "         [OPTIN] [OPTOUT] [NOLOOP]",
                    "Sends invalidations to this connection when keys that it has read change.",
                ],
            ),
            ("TRACKINGINFO", &["Describes the tracking of this connection."]),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", &["Unblocks a client that is blocked by a command."]),
            ("UNPAUSE", &["Ends CLIENT PAUSE."]),
        ],
    );
    Ok(())
}

static CLIENT_ID: Command<Runner> = Command {
    name: "ID",
    summary: "Returns the id of the connection.",
    history: History::since("5.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    run: Runner::Server(client_id),
    ..Command::DEFAULT
};
/// Handles CLIENT ID: replies with the id of this connection.
fn client_id(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.session.id as i64);
    Ok(())
}

static CLIENT_INFO: Command<Runner> = Command {
    name: "INFO",
    summary: "Describes the connection.",
    history: History::since("6.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    tips: &["nondeterministic_output"],
    run: Runner::Server(client_info),
    ..Command::DEFAULT
};
/// Handles CLIENT INFO: replies with this connection's line of CLIENT LIST.
fn client_info(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let own: Vec<&[u8]> = args.from(0).collect();
    let line = client_line(ctx.shared, &ctx.session.info, &own);
    ctx.reply.verbatim(*b"txt", line.as_bytes());
    Ok(())
}

static CLIENT_NO_EVICT: Command<Runner> = Command {
    name: "NO-EVICT",
    summary: "Exempts the connection from client eviction, or ends the exemption.",
    history: History::since("7.0.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    args: &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
    run: Runner::Server(client_no_evict),
    ..Command::DEFAULT
};
/// Handles CLIENT NO-EVICT ON|OFF: protects this connection from being closed for
/// `maxmemory-clients`, or ends the protection.
fn client_no_evict(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let clients = &ctx.shared.engine.clients;
    match switch(args)? {
        true => clients.protect(&ctx.session.info),
        false => clients.unprotect(&ctx.session.info),
    }
    ctx.reply.ok();
    Ok(())
}

/// Parses argument 2 of a CLIENT subcommand and returns true for ON, false for OFF. Any other word
/// is an error.
fn switch(args: &Args<'_>) -> Result<bool, CommandError> {
    match (args.is(2, "ON"), args.is(2, "OFF")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

static CLIENT_NO_TOUCH: Command<Runner> = Command {
    name: "NO-TOUCH",
    summary: "Turns updates of keys' access times by this connection off or on.",
    history: History::since("7.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    args: &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
    run: Runner::Server(client_no_touch),
    ..Command::DEFAULT
};
/// Handles CLIENT NO-TOUCH ON|OFF: with ON, commands of this connection do not change the access
/// clocks of keys.
fn client_no_touch(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.session.info.choices.no_touch.store(switch(args)?, Relaxed);
    ctx.reply.ok();
    Ok(())
}

static CLIENT_REPLY: Command<Runner> = Command {
    name: "REPLY",
    summary: "Turns replies off or on.",
    history: History::since("3.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    // Valkey 9 rejects it in a transaction too, because EXEC's array would have too few elements.
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::NO_MULTI),
    acl: Acl::CONNECTION,
    args: &[Arg::one_of(
        "action",
        &[Arg::word("on", "ON"), Arg::word("off", "OFF"), Arg::word("skip", "SKIP")],
    )],
    run: Runner::Server(client_reply),
    ..Command::DEFAULT
};
/// Handles CLIENT REPLY ON|OFF|SKIP: turns replies on or off, or suppresses the next reply. Only ON
/// itself has a reply.
fn client_reply(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    match args.get(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            ctx.session.reply_mode = ReplyMode::On;
            ctx.reply.ok();
        }
        b"off" => ctx.session.reply_mode = ReplyMode::Off,
        b"skip" if ctx.session.reply_mode == ReplyMode::Off => {}
        b"skip" => ctx.session.reply_mode = ReplyMode::SkipNext,
        _ => return Err(CommandError::Syntax),
    }
    Ok(())
}

static CLIENT_SETINFO: Command<Runner> = Command {
    name: "SETINFO",
    summary: "Sets the name or the version of the library that the client uses.",
    history: History::since("7.2.0"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "attr",
        &[Arg::string("libname").token("LIB-NAME"), Arg::string("libver").token("LIB-VER")],
    )],
    run: Runner::Server(client_setinfo),
    ..Command::DEFAULT
};
/// Handles CLIENT SETINFO LIB-NAME|LIB-VER value: sets the name or the version of the client's
/// library.
fn client_setinfo(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (option, value) = (args.get(2), args.get(3));
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        return Err(CommandError::quoting("ERR Unrecognized option '", option, "'"));
    }
    if !is_printable(value) {
        let reason = " cannot contain spaces, newlines or special characters.";
        return Err(CommandError::quoting("ERR ", option, reason));
    }
    let mut names = ctx.session.info.names();
    if is_name {
        names.lib_name = value.to_vec();
    } else {
        names.lib_version = value.to_vec();
    }
    drop(names);
    ctx.reply.ok();
    Ok(())
}

static CLIENT_SETNAME: Command<Runner> = Command {
    name: "SETNAME",
    summary: "Names the connection.",
    history: History::since("2.6.9"),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::string("connection-name")],
    run: Runner::Server(client_setname),
    ..Command::DEFAULT
};
/// Handles CLIENT SETNAME name. An empty name removes the name.
fn client_setname(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.session.info.names().name = valid_name(args.get(2))?;
    ctx.reply.ok();
    Ok(())
}

/// Checks that `name` is valid as a connection's name, and returns a copy. A valid name has only
/// printable ASCII characters and no spaces, so that CLIENT LIST stays readable.
pub fn valid_name(name: &[u8]) -> Result<Vec<u8>, CommandError> {
    if !is_printable(name) {
        return Err(CommandError::Line(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(name.to_vec())
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

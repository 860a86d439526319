//! CLIENT: what connections are there, and what becomes of them.

mod tracking;

use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group};
use ::commands::{Args, CommandError};
use net::Address;
use resp::Reply;
use stdx::ByteQueue;

use self::tracking::{CLIENT_CACHING, CLIENT_GETREDIR, CLIENT_TRACKING, CLIENT_TRACKINGINFO};
use crate::command_table::Runner;
use crate::context::ServerCtx;
use crate::session::{ClientInfo, Flow, ReplyMode};
use crate::shared::{Delivery, Message, Shared};
use crate::tracking::Mode;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&CLIENT];

static CLIENT: Command<Runner> = Command {
    name: "CLIENT",
    summary: "Commands about connections.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[
        &CLIENT_CACHING,
        &CLIENT_GETNAME,
        &CLIENT_GETREDIR,
        &CLIENT_HELP,
        &CLIENT_ID,
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
    run: Runner::Server(client),
};
/// CLIENT without a known subcommand: dispatch has answered.
fn client(_ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::WrongArity("client"))
}

static CLIENT_GETNAME: Command<Runner> = Command {
    name: "GETNAME",
    summary: "Returns the name of the connection.",
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_getname),
};
/// CLIENT GETNAME: null while the connection has no name.
fn client_getname(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let names = ctx.session.info.names();
    if names.name.is_empty() {
        ctx.reply.null()
    } else {
        ctx.reply.bulk(&names.name)
    }
    Ok(())
}

static CLIENT_HELP: Command<Runner> = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_help),
};
/// CLIENT HELP.
fn client_help(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "CLIENT",
        &[
            ("CACHING (YES|NO)", &["Whether the keys of the next command are tracked (OPTIN, OPTOUT)."]),
            ("GETNAME", &["The name of this connection."]),
            ("GETREDIR", &["The id of the client that hears of changes for this one."]),
            ("ID", &["The id of this connection."]),
            ("INFO", &["The line CLIENT LIST has of this connection."]),
            ("KILL <ip:port>", &["Closes the connection from this address."]),
            (
                "KILL <option> <value> [<option> <value> [...]]",
                &[
                    "Closes the connections that all options fit. Options:",
                    "* ADDR (<ip:port>|<unixsocket>:0), LADDR: the address of the client, of the server",
                    "* ID <client-id>, USER <username>, MAXAGE <seconds>",
                    "* TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
                    "* SKIPME (YES|NO): whether to spare this connection (default: yes)",
                ],
            ),
            ("LIST [TYPE <type>] [ID <id> [...]]", &["Describes connections."]),
            ("NO-EVICT (ON|OFF)", &["Spares this connection when clients are closed to free memory."]),
            ("NO-TOUCH (ON|OFF)", &["Leaves the access times of keys alone."]),
            ("PAUSE <timeout> [WRITE|ALL]", &["Holds commands back for <timeout> milliseconds."]),
            ("REPLY (ON|OFF|SKIP)", &["Turns replies to this connection on or off."]),
            ("SETINFO <option> <value>", &["Notes LIB-NAME or LIB-VER of the client's library."]),
            ("SETNAME <name>", &["Names this connection."]),
            (
                "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
                &[
                    "         [OPTIN] [OPTOUT] [NOLOOP]",
                    "Tells this connection which keys it read were changed.",
                ],
            ),
            ("TRACKINGINFO", &["How this connection tracks keys."]),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", &["Ends the wait of a client that waits for a key."]),
            ("UNPAUSE", &["Ends a pause."]),
        ],
    );
    Ok(())
}

static CLIENT_ID: Command<Runner> = Command {
    name: "ID",
    summary: "Returns the id of the connection.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_id),
};
/// CLIENT ID.
fn client_id(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.session.id as i64);
    Ok(())
}

static CLIENT_INFO: Command<Runner> = Command {
    name: "INFO",
    summary: "Describes the connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["nondeterministic_output"],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_info),
};
/// CLIENT INFO: the line CLIENT LIST has of this connection.
fn client_info(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let line = describe(ctx.shared, &ctx.session.info);
    ctx.reply.verbatim(*b"txt", line.as_bytes());
    Ok(())
}

/// One client as CLIENT LIST shows it, the line's end included.
fn describe(shared: &Shared, client: &ClientInfo) -> String {
    let now = shared.uptime_ms();
    let names = client.names().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = match client.last_command.load(Relaxed) {
        0 => "NULL",
        id => shared.table.by_id(id as usize - 1).full_name,
    };
    let tracking = client.tracking.mode();
    let mut flags = String::new();
    for (set, letter) in [
        (client.monitoring.load(Relaxed), 'O'),
        (client.queued.load(Relaxed) > 0, 'x'),
        (client.postponed.load(Relaxed) || client.waiter().is_some(), 'b'),
        (tracking.contains(Mode::ON), 't'),
        (tracking.contains(Mode::BROKEN), 'R'),
        (tracking.contains(Mode::BCAST), 'B'),
        (client.kill_requested.load(Relaxed), 'A'),
        (client.peer.is_unix(), 'U'),
        (client.no_evict.load(Relaxed), 'e'),
        (client.no_touch.load(Relaxed), 'T'),
    ] {
        if set {
            flags.push(letter);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let (pending_in, pending_out) =
        (client.pending_input_bytes.load(Relaxed), client.pending_output_bytes.load(Relaxed));
    let age_s = now.saturating_sub(client.connected_ms) / 1000;
    let idle_s = now.saturating_sub(client.last_active_ms.load(Relaxed)) / 1000;
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age_s} idle={idle_s} flags={flags} db={db} sub=0 \
         psub=0 ssub=0 multi={queued} watch={watched} qbuf={pending_in} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 \
         obl={pending_out} oll=0 omem={pending_out} tot-mem={total} events=r cmd={command} user={user} redir={redir} \
         resp={resp} lib-name={lib_name} lib-ver={lib_ver} io-thread={thread} tot-net-in={tot_in} \
         tot-net-out={tot_out} tot-cmds={tot_cmds}\n",
        id = client.id,
        addr = address_text(&client.peer),
        laddr = address_text(&client.local),
        fd = client.fd,
        name = text(&names.name),
        db = client.db.load(Relaxed),
        queued = client.queued.load(Relaxed) as i64 - 1,
        watched = client.watched.load(Relaxed),
        total = client.memory_bytes(),
        user = text(&names.user),
        redir = if tracking.contains(Mode::ON) { client.tracking.redirect() as i64 } else { -1 },
        resp = client.resp.load(Relaxed),
        lib_name = text(&names.lib_name),
        lib_ver = text(&names.lib_version),
        thread = client.thread,
        tot_in = client.input_bytes.load(Relaxed),
        tot_out = client.output_bytes.load(Relaxed),
        tot_cmds = client.commands.load(Relaxed),
    )
}

/// An address as Redis writes it: `ip:port`, `[ip6]:port`, `/path:0`.
fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}

static CLIENT_KILL: Command<Runner> = Command {
    name: "KILL",
    summary: "Closes connections.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N)",
    deprecated: None,
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &[],
    args: &[Arg::one_of(
        "filter",
        &[
            Arg::string("old-format").shown_as("ip:port"),
            Arg::one_of(
                "new-format",
                &[
                    Arg::integer("client-id").token("ID").since("2.8.12").optional(),
                    Arg::one_of(
                        "client-type",
                        &[
                            Arg::word("normal", "NORMAL"),
                            Arg::word("master", "MASTER").since("3.2.0"),
                            Arg::word("slave", "SLAVE"),
                            Arg::word("replica", "REPLICA").since("5.0.0"),
                            Arg::word("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("TYPE")
                    .since("2.8.12")
                    .optional(),
                    Arg::string("username").token("USER").optional(),
                    Arg::string("addr").shown_as("ip:port").token("ADDR").optional(),
                    Arg::string("laddr").shown_as("ip:port").token("LADDR").since("6.2.0").optional(),
                    Arg::one_of("skipme", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])
                        .token("SKIPME")
                        .optional(),
                    Arg::integer("maxage").token("MAXAGE").since("7.4.0").optional(),
                ],
            )
            .multiple(),
        ],
    )],
    subcommands: &[],
    run: Runner::Server(client_kill),
};
/// CLIENT KILL addr, or CLIENT KILL with filters, all of which must fit.
fn client_kill(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let old_form = args.len() == 3;
    let filter = if old_form {
        KillFilter { peer: Some(args.get(2)), skip_me: false, ..KillFilter::default() }
    } else {
        KillFilter::parse(args)?
    };
    let mut killed = 0;
    for client in ctx.shared.clients.all() {
        if filter.fits(ctx, &client) {
            kill(ctx, &client);
            killed += 1;
        }
    }
    match (old_form, killed) {
        (true, 0) => return Err(CommandError::Line("ERR No such client")),
        (true, _) => ctx.reply.ok(),
        (false, _) => ctx.reply.integer(killed),
    }
    Ok(())
}

/// Closes a client: the own connection after its reply, another by a message to its thread.
fn kill(ctx: &mut ServerCtx<'_, '_>, client: &ClientInfo) {
    if client.id == ctx.session.id {
        ctx.session.flow = Flow::Closing;
        return;
    }
    client.kill_requested.store(true, Relaxed);
    let mailbox = &ctx.shared.threads[client.thread].mailbox;
    if mailbox.send(Message::Kill { conn: client.conn, id: client.id }).is_err() {
        tracing::warn!(client = client.id, "its thread's mailbox is full; kill it again");
    }
}

static CLIENT_UNBLOCK: Command<Runner> = Command {
    name: "UNBLOCK",
    summary: "Ends the wait of a client that waits for a key.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(log N) where N is the number of client connections",
    deprecated: None,
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &[],
    args: &[
        Arg::integer("client-id"),
        Arg::one_of("unblock-type", &[Arg::word("timeout", "TIMEOUT"), Arg::word("error", "ERROR")])
            .optional(),
    ],
    subcommands: &[],
    run: Runner::Server(client_unblock),
};
/// CLIENT UNBLOCK client-id [TIMEOUT|ERROR]: 1 if the client waited and waits no more.
fn client_unblock(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let with_error = match args.len() {
        3 => false,
        4 if args.is(3, "TIMEOUT") => false,
        4 if args.is(3, "ERROR") => true,
        4 => {
            return Err(CommandError::Line("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(CommandError::WrongSubcommandArity("client", "unblock")),
    };
    let id = u64::try_from(args.integer(2)?).unwrap_or(0);
    let waiter = ctx.shared.clients.get(id).and_then(|client| client.waiter().clone());
    let ended = waiter.is_some_and(|waiter| {
        let first = !std::mem::replace(&mut *waiter.over.lock(), true);
        if first {
            let mut reply = ByteQueue::new();
            if with_error {
                let line = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
                Reply::new(&mut reply, waiter.protocol).error(line);
            } else {
                waiter.write_empty(waiter.protocol, &mut reply);
            }
            let (conn, client, ticket) = (waiter.conn, waiter.client, waiter.ticket);
            ctx.shared.threads[waiter.thread].deliver(Delivery { conn, client, ticket, reply });
        }
        first
    });
    ctx.reply.integer(ended.into());
    Ok(())
}

/// What CLIENT KILL's filters ask for.
struct KillFilter<'a> {
    id: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    kind: Option<ClientType>,
    age_s_min: Option<u64>,
    skip_me: bool,
}

impl Default for KillFilter<'_> {
    fn default() -> Self {
        Self { id: None, peer: None, local: None, kind: None, age_s_min: None, skip_me: true }
    }
}

impl<'a> KillFilter<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let mut filter = Self::default();
        let mut at = 2;
        while at < args.len() {
            let value = args.try_get(at + 1).ok_or(CommandError::Syntax)?;
            let positive = |line| {
                let number = stdx::number::parse_i64(value).and_then(|number| u64::try_from(number).ok());
                number.filter(|&number| number > 0).ok_or(CommandError::Line(line))
            };
            match args.get(at).to_ascii_lowercase().as_slice() {
                b"id" => filter.id = Some(positive("ERR client-id should be greater than 0")?),
                b"maxage" if stdx::number::parse_i64(value).is_none() => {
                    return Err(CommandError::Line("ERR maxage is not an integer or out of range"));
                }
                b"maxage" => filter.age_s_min = Some(positive("ERR maxage should be greater than 0")?),
                b"type" => filter.kind = Some(client_type(value)?),
                b"addr" => filter.peer = Some(value),
                b"laddr" => filter.local = Some(value),
                b"user" if value == b"default" => {}
                b"user" => return Err(CommandError::quoting("ERR No such user '", value, "'")),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.skip_me = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.skip_me = false,
                _ => return Err(CommandError::Syntax),
            }
            at += 2;
        }
        Ok(filter)
    }

    fn fits(&self, ctx: &ServerCtx<'_, '_>, client: &ClientInfo) -> bool {
        let same = |wanted: &[u8], address: &Address| address_text(address).as_bytes() == wanted;
        let age_s = ctx.shared.uptime_ms().saturating_sub(client.connected_ms) / 1000;
        self.id.is_none_or(|id| id == client.id)
            && self.peer.is_none_or(|peer| same(peer, &client.peer))
            && self.local.is_none_or(|local| same(local, &client.local))
            && self.kind.is_none_or(|kind| kind == ClientType::Normal)
            && self.age_s_min.is_none_or(|age_s_min| age_s >= age_s_min)
            && !(self.skip_me && client.id == ctx.session.id)
    }
}

static CLIENT_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Describes all connections, or those asked for.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N)",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::one_of(
            "client-type",
            &[
                Arg::word("normal", "NORMAL"),
                Arg::word("master", "MASTER"),
                Arg::word("replica", "REPLICA"),
                Arg::word("pubsub", "PUBSUB"),
            ],
        )
        .token("TYPE")
        .since("5.0.0")
        .optional(),
        Arg::integer("client-id").token("ID").since("6.2.0").optional().multiple(),
    ],
    subcommands: &[],
    run: Runner::Server(client_list),
};
/// CLIENT LIST [TYPE type] [ID id ...].
fn client_list(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let mut clients = ctx.shared.clients.all();
    if args.is(2, "TYPE") && args.len() == 4 {
        if client_type(args.get(3))? != ClientType::Normal {
            clients.clear();
        }
    } else if args.is(2, "ID") && args.len() > 3 {
        let ids: Result<Vec<u64>, CommandError> = args.from(3).map(client_id_argument).collect();
        let ids = ids?;
        clients.retain(|client| ids.contains(&client.id));
    } else if args.len() > 2 {
        return Err(CommandError::Syntax);
    }
    let lines: String = clients.iter().map(|client| describe(ctx.shared, client)).collect();
    ctx.reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
}

fn client_id_argument(text: &[u8]) -> Result<u64, CommandError> {
    // No client has a number below 1, but asking for one is no error.
    let id = stdx::number::parse_i64(text).map(|id| u64::try_from(id).unwrap_or(0));
    id.ok_or(CommandError::Line("ERR Invalid client ID"))
}

/// What kind of client a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    Other,
}

/// The kind called `name`. So far all connections are normal ones.
fn client_type(name: &[u8]) -> Result<ClientType, CommandError> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(ClientType::Normal),
        b"master" | b"primary" | b"slave" | b"replica" | b"pubsub" => Ok(ClientType::Other),
        _ => Err(CommandError::quoting("ERR Unknown client type '", name, "'")),
    }
}

static CLIENT_NO_EVICT: Command<Runner> = Command {
    name: "NO-EVICT",
    summary: "Keeps the connection when clients are closed to free memory.",
    since: "7.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &[],
    args: &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
    subcommands: &[],
    run: Runner::Server(client_no_evict),
};
/// CLIENT NO-EVICT ON|OFF.
fn client_no_evict(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.session.info.no_evict.store(switch(args)?, Relaxed);
    ctx.reply.ok();
    Ok(())
}

/// The ON or OFF at argument 2.
fn switch(args: &Args<'_>) -> Result<bool, CommandError> {
    match (args.is(2, "ON"), args.is(2, "OFF")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

static CLIENT_NO_TOUCH: Command<Runner> = Command {
    name: "NO-TOUCH",
    summary: "Makes reads leave the access times of keys alone.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])],
    subcommands: &[],
    run: Runner::Server(client_no_touch),
};
/// CLIENT NO-TOUCH ON|OFF.
fn client_no_touch(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.session.no_touch = switch(args)?;
    ctx.session.info.no_touch.store(ctx.session.no_touch, Relaxed);
    ctx.reply.ok();
    Ok(())
}

static CLIENT_PAUSE: Command<Runner> = Command {
    name: "PAUSE",
    summary: "Holds commands back for a time.",
    since: "3.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &[],
    args: &[
        Arg::integer("timeout"),
        Arg::one_of("mode", &[Arg::word("write", "WRITE"), Arg::word("all", "ALL")])
            .since("6.2.0")
            .optional(),
    ],
    subcommands: &[],
    run: Runner::Server(client_pause),
};
/// CLIENT PAUSE timeout [WRITE|ALL]: a longer or stricter pause already in force stays.
fn client_pause(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let all = match args.try_get(3) {
        None => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"all") => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"write") => false,
        Some(_) => return Err(CommandError::Line("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = stdx::number::parse_i64(args.get(2));
    let timeout_ms = timeout_ms.ok_or(CommandError::Line("ERR timeout is not an integer or out of range"))?;
    if timeout_ms < 0 {
        return Err(CommandError::Line("ERR timeout is negative"));
    }
    let until_ms = ctx.now_ms.checked_add(timeout_ms);
    let until_ms = until_ms.ok_or(CommandError::Line("ERR timeout is out of range"))?;
    let pause = &ctx.shared.pause;
    let in_force = pause.until_ms.load(Relaxed) > ctx.now_ms;
    pause.all.store(all || (in_force && pause.all.load(Relaxed)), Relaxed);
    // Relaxed: a thread notices a turn earlier or later; the exclusive step below is what orders it.
    pause.until_ms.fetch_max(until_ms, Relaxed);
    // Once this returns no turn that began before the pause is still running: no write is in flight.
    ctx.pass.exclusive(|_alone| ());
    ctx.reply.ok();
    Ok(())
}

static CLIENT_REPLY: Command<Runner> = Command {
    name: "REPLY",
    summary: "Turns replies off or on.",
    since: "3.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &[],
    args: &[Arg::one_of(
        "action",
        &[Arg::word("on", "ON"), Arg::word("off", "OFF"), Arg::word("skip", "SKIP")],
    )],
    subcommands: &[],
    run: Runner::Server(client_reply),
};
/// CLIENT REPLY ON|OFF|SKIP: only ON answers.
fn client_reply(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
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
    summary: "Notes which library the client uses.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(4),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "attr",
        &[Arg::string("libname").token("LIB-NAME"), Arg::string("libver").token("LIB-VER")],
    )],
    subcommands: &[],
    run: Runner::Server(client_setinfo),
};
/// CLIENT SETINFO LIB-NAME|LIB-VER value.
fn client_setinfo(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (option, value) = (args.get(2), args.get(3));
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        return Err(CommandError::quoting("ERR Unrecognized option '", option, "'"));
    }
    if !is_printable(value) {
        let option = String::from_utf8_lossy(option).to_lowercase();
        let line = format!("ERR {option} cannot contain spaces, newlines or special characters.");
        return Err(CommandError::Text(line));
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
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(3),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::CONNECTION,
    keys: &[],
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    args: &[Arg::string("connection-name")],
    subcommands: &[],
    run: Runner::Server(client_setname),
};
/// CLIENT SETNAME name: an empty one takes the name away.
fn client_setname(ctx: &mut ServerCtx<'_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.session.info.names().name = valid_name(args.get(2))?;
    ctx.reply.ok();
    Ok(())
}

/// A connection's name, if it is one: printable ASCII without spaces, so that CLIENT LIST stays
/// readable.
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

static CLIENT_UNPAUSE: Command<Runner> = Command {
    name: "UNPAUSE",
    summary: "Lets commands that were held back run.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(N)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: Runner::Server(client_unpause),
};
/// CLIENT UNPAUSE.
fn client_unpause(ctx: &mut ServerCtx<'_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.pause.until_ms.store(0, Relaxed);
    ctx.shared.broadcast(|| Message::Resume);
    ctx.reply.ok();
    Ok(())
}

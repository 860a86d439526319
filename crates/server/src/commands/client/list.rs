//! CLIENT LIST and KILL: connections described, chosen by filters, closed.

use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::client::ClientInfo;
use engine::client::Mode;
use engine::session::Flow;
use net::Address;

use super::filter::Filter;
use crate::context::Runner;
use crate::context::ServerCtx;

pub(super) static CLIENT_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Describes all connections, or those asked for.",
    history: History::since("2.4.0")
        .changed(&[
            ("2.8.12", "returns id"),
            ("5.0.0", "takes TYPE"),
            ("6.0.0", "returns user"),
            ("6.2.0", "takes ID; returns laddr, redir, argv-mem and tot-mem"),
            ("7.0.0", "returns resp, multi-mem, rbs and rbp"),
            ("7.0.3", "returns ssub"),
            ("7.2.0", "returns lib-name and lib-ver"),
            ("7.4.0", "returns watch"),
            ("8.0.0", "returns io-thread"),
        ])
        .changed_by_valkey(&[
            ("8.1.0", "takes USER, ADDR, LADDR, SKIPME and MAXAGE"),
            (
                "9.0.0",
                "takes NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA and IP, and NOT- before a filter",
            ),
        ]),
    group: Group::Connection,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
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
        Arg::string("username").token("USER").since("8.1.0").optional(),
        Arg::string("addr").shown_as("ip:port").token("ADDR").since("8.1.0").optional(),
        Arg::string("laddr").shown_as("ip:port").token("LADDR").since("8.1.0").optional(),
        Arg::one_of("skipme", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])
            .token("SKIPME")
            .since("8.1.0")
            .optional(),
        Arg::integer("maxage").token("MAXAGE").since("8.1.0").optional(),
        Arg::integer("idle").token("IDLE").since("9.0.0").optional(),
        Arg::string("flags").token("FLAGS").since("9.0.0").optional(),
        Arg::string("name").token("NAME").since("9.0.0").optional(),
        Arg::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
        Arg::string("lib-version").token("LIB-VER").since("9.0.0").optional(),
        Arg::integer("db").token("DB").since("9.0.0").optional(),
        Arg::string("capa").token("CAPA").since("9.0.0").optional(),
        Arg::string("ip").token("IP").since("9.0.0").optional(),
    ],
    run: Runner::Server(client_list),
    ..Command::DEFAULT
};
/// CLIENT LIST [filter ...]: those that all filters fit.
fn client_list(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let filter = Filter::of_list(ctx, args)?;
    let mut lines = String::new();
    for client in ctx.shared.engine.clients.all() {
        if filter.fits(ctx, &client) {
            lines += &describe(ctx, &client, args);
        }
    }
    ctx.reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
}

/// One client as CLIENT LIST shows it, the line's end included. `args` are those of the command that asks.
pub(super) fn describe(ctx: &ServerCtx<'_, '_, '_>, client: &ClientInfo, args: &Args<'_>) -> String {
    let shared = ctx.shared;
    let now = shared.uptime_ms();
    let names = client.names().clone();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = match client.traffic.last_command.load(Relaxed) {
        0 => "NULL",
        id => shared.engine.table.by_id(id as usize - 1).full_name,
    };
    let mut flags = flags(client);
    if flags.is_empty() {
        flags.push('N');
    }
    // The client that asks still has its request in the buffer; what others sent has run, or waits there.
    let own: Vec<&[u8]> = if client.id == ctx.session.id { args.from(0).collect() } else { Vec::new() };
    let argument_bytes = own.iter().map(|word| word.len()).sum::<usize>()
        + client.held.blocked_text_bytes.load(Relaxed) as usize;
    let mut request = Vec::new();
    if !own.is_empty() {
        resp::encode_request(&own, &mut request);
    }
    // What is noted of its input may include this request, or what of it came first.
    let noted = client.held.pending_input_bytes.load(Relaxed);
    let unread = noted.max(request.len() as u64);
    let (unsent, chunks) =
        (client.held.pending_output_bytes.load(Relaxed), client.held.pending_output_chunks.load(Relaxed));
    let (in_buffer, in_list) = if chunks > 0 { (0, unsent) } else { (unsent, 0) };
    let tracks = client.tracking.mode().contains(Mode::ON);
    let capabilities = if client.choices.handles_redirects.load(Relaxed) { "r" } else { "" };
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age_s} idle={idle_s} flags={flags} db={db} sub={sub} \
         psub={psub} ssub={ssub} multi={queued} watch={watched} qbuf={unread} qbuf-free={room} \
         argv-mem={argument_bytes} multi-mem={queued_bytes} rbs={buffer} rbp={peak} obl={in_buffer} oll={chunks} \
         omem={in_list} tot-mem={total} events={events} cmd={command} user={user} redir={redir} resp={resp} \
         lib-name={lib_name} lib-ver={lib_ver} io-thread={thread} tot-net-in={tot_in} tot-net-out={tot_out} \
         tot-cmds={tot_cmds} capa={capabilities}\n",
        sub = client.subscriptions[0].load(Relaxed),
        psub = client.subscriptions[1].load(Relaxed),
        ssub = client.subscriptions[2].load(Relaxed),
        id = client.id,
        addr = address_text(&client.peer),
        laddr = address_text(&client.local),
        fd = client.fd,
        name = text(&names.name),
        age_s = now.saturating_sub(client.connected_ms) / 1000,
        idle_s = now.saturating_sub(client.traffic.last_active_ms.load(Relaxed)) / 1000,
        db = client.db.load(Relaxed),
        queued = client.queued.load(Relaxed) as i64 - 1,
        watched = client.watched.load(Relaxed),
        room = client.held.input_room_bytes.load(Relaxed),
        queued_bytes = client.held.queued_bytes.load(Relaxed),
        buffer = client.held.output_buffer_bytes.load(Relaxed),
        peak = client.held.output_peak_bytes.load(Relaxed),
        // Its own thread may have consumed what was noted by now.
        total = client.memory_bytes() + (unread - noted),
        events = if unsent > 0 { "rw" } else { "r" },
        user = text(&names.user),
        redir = if tracks { client.tracking.redirect() as i64 } else { -1 },
        resp = client.resp.load(Relaxed),
        lib_name = text(&names.lib_name),
        lib_ver = text(&names.lib_version),
        thread = client.thread,
        tot_in = client.traffic.input_bytes.load(Relaxed) + request.len() as u64,
        tot_out = client.traffic.output_bytes.load(Relaxed),
        tot_cmds = client.traffic.commands.load(Relaxed),
    )
}

/// The letters for what a client is and does; none where Redis shows `N`.
pub(super) fn flags(client: &ClientInfo) -> String {
    let tracking = client.tracking.mode();
    let letters = [
        (client.state.monitoring.load(Relaxed), 'O'),
        (client.is_subscriber(), 'P'),
        (client.queued.load(Relaxed) > 0, 'x'),
        (client.state.postponed.load(Relaxed) || client.held.blocked_bytes.load(Relaxed) > 0, 'b'),
        (tracking.contains(Mode::ON), 't'),
        (tracking.contains(Mode::BROKEN), 'R'),
        (tracking.contains(Mode::BCAST), 'B'),
        (client.watch_dirty.load(Relaxed), 'd'),
        (client.state.closing.load(Relaxed), 'c'),
        (client.state.kill_requested.load(Relaxed), 'A'),
        (client.peer.is_unix(), 'U'),
        (client.choices.no_evict.load(Relaxed), 'e'),
        (client.choices.no_touch.load(Relaxed), 'T'),
        (client.choices.import_source.load(Relaxed), 'I'),
    ];
    letters.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect()
}

/// An address as Redis writes it: `ip:port`, `[ip6]:port`, `/path:0`.
pub(super) fn address_text(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("{}:0", path.display()),
    }
}

pub(super) static CLIENT_KILL: Command<Runner> = Command {
    name: "KILL",
    summary: "Closes connections.",
    history: History::since("2.4.0")
        .changed(&[
            ("2.8.12", "takes filters instead of an address"),
            ("2.8.12", "takes ID"),
            ("3.2.0", "takes master as TYPE"),
            ("5.0.0", "takes replica as TYPE; slave means the same"),
            ("6.2.0", "takes LADDR"),
            ("7.4.0", "takes MAXAGE"),
        ])
        .changed_by_valkey(&[(
            "9.0.0",
            "takes NAME, IDLE, FLAGS, LIB-NAME, LIB-VER, DB, CAPA and IP, and NOT- before a filter",
        )]),
    group: Group::Connection,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    args: &[Arg::one_of(
        "filter",
        &[
            Arg::string("old-format").shown_as("ip:port").deprecated_since("2.8.12"),
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
                    Arg::integer("idle").token("IDLE").since("9.0.0").optional(),
                    Arg::string("flags").token("FLAGS").since("9.0.0").optional(),
                    Arg::string("name").token("NAME").since("9.0.0").optional(),
                    Arg::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
                    Arg::string("lib-version").token("LIB-VER").since("9.0.0").optional(),
                    Arg::integer("db").token("DB").since("9.0.0").optional(),
                    Arg::string("capa").token("CAPA").since("9.0.0").optional(),
                    Arg::string("ip").token("IP").since("9.0.0").optional(),
                ],
            )
            .multiple(),
        ],
    )],
    run: Runner::Server(client_kill),
    ..Command::DEFAULT
};
/// CLIENT KILL addr, or CLIENT KILL with filters, all of which must fit.
fn client_kill(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let old_form = args.len() == 3;
    let filter = if old_form { Filter::of_address(args.get(2)) } else { Filter::of_kill(ctx, args)? };
    let mut killed = 0_i64;
    for client in ctx.shared.engine.clients.all() {
        if filter.fits(ctx, &client) {
            killed += i64::from(kill(ctx, &client));
        }
    }
    match (old_form, killed) {
        (true, 0) => return Err(CommandError::Line("ERR No such client")),
        (true, _) => ctx.reply.ok(),
        (false, _) => ctx.reply.integer(killed),
    }
    Ok(())
}

/// Closes a client: the own connection after its reply, another by its thread; that one is off the lists at once.
/// Whether it was not about to go already: in Redis it would not be there any more.
fn kill(ctx: &mut ServerCtx<'_, '_, '_>, client: &ClientInfo) -> bool {
    if client.id == ctx.session.id {
        ctx.session.flow = Flow::Closing;
        return true;
    }
    let engine::Shared { threads, clients, blocked, .. } = &ctx.shared.engine;
    let first = threads.kill(clients, client, &ctx.data.commit.outbox);
    blocked.end_of(client);
    first
}

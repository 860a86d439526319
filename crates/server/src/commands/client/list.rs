//! CLIENT LIST and CLIENT KILL: describe or close the connections that match filters.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::client::ClientInfo;
use engine::session::Flow;

use super::filter::Filter;
use crate::client_line::client_line;
use crate::context::Runner;
use crate::context::ServerCtx;

pub(super) static CLIENT_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Describes all client connections, or a selection.",
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
/// Handles CLIENT LIST [filter ...]: replies with the clients that match all filters.
fn client_list(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let filter = Filter::of_list(ctx, args)?;
    let mut lines = String::new();
    for client in ctx.shared.engine.clients.all() {
        if filter.fits(ctx, &client) {
            let own: Vec<&[u8]> =
                if client.id == ctx.session.id { args.from(0).collect() } else { Vec::new() };
            lines += &client_line(ctx.shared, &client, &own);
        }
    }
    ctx.reply.verbatim(*b"txt", lines.as_bytes());
    Ok(())
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
/// Handles CLIENT KILL addr, or CLIENT KILL with filters that must all match. The old form with an
/// address replies OK or an error, the form with filters the number of killed clients.
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

/// Closes the connection of `client`. If it runs this command, its connection is closed after the
/// reply. Any other client is removed from the list of clients at once; its I/O thread closes the
/// connection. Returns false if another CLIENT KILL was first, so that the client is not counted
/// twice.
fn kill(ctx: &mut ServerCtx<'_, '_, '_>, client: &ClientInfo) -> bool {
    if client.id == ctx.session.id {
        ctx.session.flow = Flow::Closing;
        return true;
    }
    let engine::Shared { threads, clients, blocked, .. } = &ctx.shared.engine;
    let first = threads.kill(clients, client, &ctx.data.commit.outbox);
    if first && client.is_replica() {
        ctx.shared.replication.kill(client.id);
    }
    if first && client.is_primary() {
        ctx.shared.replication.upstream.kill();
    }
    blocked.end_of(client);
    first
}

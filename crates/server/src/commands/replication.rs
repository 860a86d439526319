//! Commands of replicas: the handshake, the requests for synchronisation, and the choice of the
//! primary.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::session::Flow;
use replicate::replica::Dialect;

use crate::client_line::client_line;
use crate::context::{Runner, ServerCtx};
use crate::primary_link::change;
use crate::random::random_repl_id;
use crate::replication::upstream::PrimaryAddress;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&PSYNC, &REPLCONF, &REPLICAOF, &SLAVEOF, &SYNC];

static PSYNC: Command<Runner> = Command {
    name: "PSYNC",
    summary: "Asks for the replication stream from an offset, or for a snapshot and the stream after it. For \
         replicas.",
    history: History::since("2.8.0"),
    group: Group::Server,
    complexity: "",
    arity: Arity::AtLeast(3),
    flags: Flags::NO_ASYNC_LOADING.union(Flags::ADMIN).union(Flags::NO_MULTI).union(Flags::NOSCRIPT),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    args: &[Arg::string("replicationid"), Arg::integer("offset")],
    run: Runner::Server(psync),
    ..Command::DEFAULT
};
/// Handles PSYNC replicationid offset [FAILOVER]. The thread of replication replies.
fn psync(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 && args.is(3, "FAILOVER") {
        return Err(CommandError::Line(match ctx.shared.replication.upstream.is_replica() {
            false => "ERR PSYNC FAILOVER can't be sent to a master.",
            true => "ERR PSYNC FAILOVER replid must match my replid.",
        }));
    }
    require_primary(ctx)?;
    let next = args.integer(2)?;
    leave(ctx, Dialect::Psync, (args.get(1).to_vec(), next));
    Ok(())
}

static SYNC: Command<Runner> = Command {
    name: "SYNC",
    summary: "Asks for a snapshot and the replication stream after it. For old replicas and tools.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "",
    arity: Arity::Exactly(1),
    flags: Flags::NO_ASYNC_LOADING.union(Flags::ADMIN).union(Flags::NO_MULTI).union(Flags::NOSCRIPT),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(sync),
    ..Command::DEFAULT
};
/// Handles SYNC. The thread of replication replies.
fn sync(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    require_primary(ctx)?;
    leave(ctx, Dialect::Sync, (b"?".to_vec(), -1));
    Ok(())
}

/// Returns an error on a replica that does not follow its primary: it has no stream to pass on.
fn require_primary(ctx: &ServerCtx<'_, '_, '_>) -> Result<(), CommandError> {
    match ctx.shared.replication.upstream.is_up() {
        true => Ok(()),
        false => Err(CommandError::Line("NOMASTERLINK Can't SYNC while not connected with my master")),
    }
}

/// Lets the connection move to the thread of replication, which answers the request.
fn leave(ctx: &mut ServerCtx<'_, '_, '_>, dialect: Dialect, history: (Vec<u8>, i64)) {
    ctx.shared.replication.arrivals.ask(ctx.session.id, dialect, history);
    ctx.session.flow = Flow::Leaving;
}

static REPLCONF: Command<Runner> = Command {
    name: "REPLCONF",
    summary: "Announces the properties of a replica to its primary.",
    history: History::since("3.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::ADMIN
        .union(Flags::NOSCRIPT)
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::ALLOW_BUSY)
        .union(Flags::INTERNAL),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(replconf),
    ..Command::DEFAULT
};
/// Handles REPLCONF option value [...]. A connection that does not follow the stream gets no reply
/// to ACK and GETACK, as in Redis.
fn replconf(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    for at in (1..args.len()).step_by(2) {
        if args.is(at, "ACK") || args.is(at, "GETACK") {
            if ctx.session.in_exec {
                // The array of EXEC needs an element.
                ctx.reply.ok();
            }
            return Ok(());
        }
        let set = ctx
            .shared
            .replication
            .arrivals
            .with_handshake(ctx.session.id, |handshake| handshake.set(args.get(at), args.get(at + 1)));
        set.map_err(|error| CommandError::quoting("", &error.reply(), ""))?;
    }
    ctx.reply.ok();
    Ok(())
}

static REPLICAOF: Command<Runner> = Command {
    name: "REPLICAOF",
    summary: "Makes the server a replica of another one, or a primary.",
    history: History::since("5.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::NO_ASYNC_LOADING),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    args: &[Arg::one_of(
        "args",
        &[
            Arg::block("host-port", &[Arg::string("host"), Arg::integer("port")]),
            Arg::block("no-one", &[Arg::word("no", "NO"), Arg::word("one", "ONE")]),
        ],
    )],
    run: Runner::Server(replicaof),
    ..Command::DEFAULT
};

static SLAVEOF: Command<Runner> = Command {
    name: "SLAVEOF",
    history: History::since("1.0.0").deprecated("5.0.0", "`REPLICAOF`"),
    ..REPLICAOF
};
/// Handles REPLICAOF host port, and REPLICAOF NO ONE. The link is opened after the reply.
fn replicaof(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.is(1, "NO") && args.is(2, "ONE") {
        if change_role(ctx, None) == RoleChange::Made {
            log_request(ctx, args, "MASTER MODE enabled");
        }
        ctx.reply.ok();
        return Ok(());
    }
    let port = stdx::number::parse_i64(args.get(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(CommandError::Line("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(args.get(1)).into_owned();
    let request = format!("REPLICAOF {host}:{port} enabled");
    match change_role(ctx, Some(PrimaryAddress { host, port })) {
        RoleChange::Made => {
            log_request(ctx, args, &request);
            ctx.reply.ok();
        }
        RoleChange::None => {
            tracing::info!(
                "REPLICAOF would result into synchronization with the master we are already connected \
                 with. No operation performed."
            );
            ctx.reply.simple("OK Already connected to specified master");
        }
    }
    Ok(())
}

/// The result of a request to change the role.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoleChange {
    /// The role or the primary has changed.
    Made,
    /// The server had the requested role and primary already.
    None,
}

/// Makes this server a replica of `primary`, or a primary for `None`. Waits for the exclusive
/// ownership of the keyspace.
fn change_role(ctx: &mut ServerCtx<'_, '_, '_>, primary: Option<PrimaryAddress>) -> RoleChange {
    let shared = ctx.shared;
    if primary.is_none() && !ctx.session.in_exec {
        // What was received completely is applied first.
        ctx.pass.outside(|| shared.replication.upstream.drain());
    }
    let outbox = &ctx.data.commit.outbox;
    let is_unit_open = ctx.data.commit.has_record();
    ctx.pass.exclusive(|alone| {
        let present = shared.replication.upstream.link().as_ref().map(|link| link.primary.clone());
        match (present, primary) {
            (None, None) => return RoleChange::None,
            (Some(present), Some(primary)) if present.is_same(&primary) => return RoleChange::None,
            (_, Some(primary)) => {
                change::follow(shared, alone, primary, outbox);
                if is_unit_open {
                    // The transaction has changed data, and is not in the stream.
                    shared.replication.primary().close_backlog(random_repl_id());
                }
            }
            (Some(_), None) => change::promote(shared, alone, outbox),
        }
        RoleChange::Made
    })
}

/// Logs a change of the role with the client that requested it.
fn log_request(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'_>, change: &str) {
    let own: Vec<&[u8]> = args.from(0).collect();
    let client = client_line(ctx.shared, &ctx.session.info, &own);
    tracing::info!("{change} (user request from '{}')", client.trim_end());
}

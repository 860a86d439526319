//! Commands of replicas: their handshake, their requests for a sync, and the choice of the primary,
//! by REPLICAOF or by a failover.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::session::Flow;
use replicate::failover::{ABORTED, Request as FailoverRequest};
use replicate::history::ReplId;
use replicate::replica::Dialect;

use crate::client_line::client_line;
use crate::context::{Runner, ServerCtx};
use crate::primary_link::{change, failover};
use crate::random::random_repl_id;
use crate::replication::upstream::PrimaryAddress;
use crate::shared::Shared;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&FAILOVER, &PSYNC, &REPLCONF, &REPLICAOF, &SLAVEOF, &SYNC];

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
/// Handles PSYNC replicationid offset [FAILOVER]. The connection moves to the thread `repl`, which
/// replies.
fn psync(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 && args.is(3, "FAILOVER") {
        take_over(ctx, args)?;
    }
    require_primary(ctx)?;
    let next = args.integer(2)?;
    leave(ctx, Dialect::Psync, (args.get(1).to_vec(), next));
    Ok(())
}

/// Makes this replica a primary, because its own primary requests that by PSYNC FAILOVER. The bytes
/// that have arrived from the primary are applied first.
///
/// # Errors
/// If this server is a primary, if its replication ID is not the requested one, or if it is itself
/// in a failover.
fn take_over(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    let replication = &shared.replication;
    tracing::info!("Failover request received for replid {}.", String::from_utf8_lossy(args.get(1)));
    let id = ReplId::parse(args.get(1));
    let has_id = || id == Some(replication.primary().history().id);
    if replication.upstream.is_replica() && has_id() {
        ctx.pass.outside(|| replication.upstream.drain());
    }
    let outbox = &ctx.data.commit.outbox;
    ctx.pass.exclusive(|alone| match (replication.upstream.is_replica(), has_id()) {
        (false, _) => Err(CommandError::Line("ERR PSYNC FAILOVER can't be sent to a master.")),
        (true, false) => Err(CommandError::Line("ERR PSYNC FAILOVER replid must match my replid.")),
        (true, true) => {
            // Otherwise that failover, and its pause of writes, would not end.
            require_no_failover_for_sync(shared)?;
            change::promote(shared, alone, outbox);
            Ok(())
        }
    })?;
    serve_blocked(ctx);
    log_role(ctx, args, "MASTER MODE enabled (failover request from");
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
/// Handles SYNC. The connection moves to the thread `repl`, which replies.
fn sync(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    require_primary(ctx)?;
    leave(ctx, Dialect::Sync, (b"?".to_vec(), -1));
    Ok(())
}

/// Returns an error during a failover, and on a replica whose link to its primary is not
/// synchronized: such a replica has no replication stream to send to its own replicas.
fn require_primary(ctx: &ServerCtx<'_, '_, '_>) -> Result<(), CommandError> {
    require_no_failover_for_sync(ctx.shared)?;
    match ctx.shared.replication.upstream.is_up() {
        true => Ok(()),
        false => Err(CommandError::Line("NOMASTERLINK Can't SYNC while not connected with my master")),
    }
}

/// Returns an error if a failover is in progress: after it, another server writes the replication
/// stream.
fn require_no_failover_for_sync(shared: &Shared) -> Result<(), CommandError> {
    match shared.replication.failover.is_on() {
        true => Err(CommandError::Line("NOMASTERLINK Can't SYNC while failing over")),
        false => Ok(()),
    }
}

/// Moves the connection to the thread `repl`, which answers the replica's request for a sync.
/// `history` is the replication id and offset that the replica names.
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
/// Handles REPLCONF option value [...]: records the properties that a replica announces in its
/// handshake. ACK and GETACK have no reply outside a transaction, as in Redis.
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
/// Handles REPLICAOF host port, and REPLICAOF NO ONE. The server connects to the new primary after
/// the reply.
fn replicaof(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    require_no_failover(ctx.shared)?;
    if args.is(1, "NO") && args.is(2, "ONE") {
        if change_role(ctx, None)? == RoleChange::Made {
            log_request(ctx, args, "MASTER MODE enabled");
        }
        ctx.reply.ok();
        return Ok(());
    }
    let port = stdx::number::parse_i64(args.get(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or(CommandError::Line("ERR Invalid master port"))?;
    let host = String::from_utf8_lossy(args.get(1)).into_owned();
    let request = format!("REPLICAOF {host}:{port} enabled");
    match change_role(ctx, Some(PrimaryAddress { host, port }))? {
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

/// Returns the error of REPLICAOF if a failover is in progress.
fn require_no_failover(shared: &Shared) -> Result<(), CommandError> {
    match shared.replication.failover.is_on() {
        true => Err(CommandError::Line("ERR REPLICAOF not allowed while failing over.")),
        false => Ok(()),
    }
}

/// The result of a request to change the role or the primary of this server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoleChange {
    /// The role or the primary of this server was changed.
    Made,
    /// Nothing was changed: the server already had the requested role and primary.
    None,
}

/// Makes this server a replica of `primary`, or a primary if `primary` is `None`. Waits for the
/// exclusive ownership of the keyspace.
///
/// # Errors
/// If a failover is in progress.
fn change_role(
    ctx: &mut ServerCtx<'_, '_, '_>,
    primary: Option<PrimaryAddress>,
) -> Result<RoleChange, CommandError> {
    let shared = ctx.shared;
    if primary.is_none() && !ctx.session.in_exec {
        // What was received completely is applied first.
        ctx.pass.outside(|| shared.replication.upstream.drain());
    }
    let outbox = &ctx.data.commit.outbox;
    let is_unit_open = ctx.data.commit.has_record();
    let is_promotion = primary.is_none();
    let change = ctx.pass.exclusive(|alone| -> Result<RoleChange, CommandError> {
        require_no_failover(shared)?;
        let present = shared.replication.upstream.link().as_ref().map(|link| link.primary.clone());
        match (present, primary) {
            (None, None) => return Ok(RoleChange::None),
            (Some(present), Some(primary)) if present.is_same(&primary) => return Ok(RoleChange::None),
            (_, Some(primary)) => {
                if is_unit_open {
                    // The transaction has changed data, and is not in the stream. The new link may
                    // ask at once to continue, so the history ends before.
                    shared.replication.primary().close_backlog(random_repl_id());
                }
                change::follow(shared, alone, primary, outbox);
            }
            (Some(_), None) => change::promote(shared, alone, outbox),
        }
        Ok(RoleChange::Made)
    })?;
    if is_promotion && change == RoleChange::Made {
        serve_blocked(ctx);
    }
    Ok(change)
}

/// Serves blocked clients whose keys have arrived with a snapshot, at the end of this command.
/// Usually the applied commands of the primary serve them, but the link to the primary has ended.
fn serve_blocked(ctx: &mut ServerCtx<'_, '_, '_>) {
    ctx.data.commit.ready_all();
}

/// Logs a change of the role with the client that requested it.
fn log_request(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'_>, change: &str) {
    log_role(ctx, args, &format!("{change} (user request from"));
}

/// Logs a change of the role. The line is `begin`, which opens a parenthesis, a description of the
/// client that requested the change, and the closing parenthesis.
fn log_role(ctx: &ServerCtx<'_, '_, '_>, args: &Args<'_>, begin: &str) {
    let own: Vec<&[u8]> = args.from(0).collect();
    let client = client_line(ctx.shared, &ctx.session.info, &own);
    tracing::info!("{begin} '{}')", client.trim_end());
}

static FAILOVER: Command<Runner> = Command {
    name: "FAILOVER",
    summary: "Makes a replica the primary, and this server its replica, without loss of writes.",
    history: History::since("6.2.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    args: &[
        Arg::block(
            "target",
            &[Arg::string("host"), Arg::integer("port"), Arg::word("force", "FORCE").optional()],
        )
        .token("TO")
        .optional(),
        Arg::word("abort", "ABORT").optional(),
        Arg::integer("milliseconds").token("TIMEOUT").optional(),
    ],
    run: Runner::Server(failover),
    ..Command::DEFAULT
};
/// Handles FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]. Replies as soon as
/// writes are paused; a thread of its own continues the failover.
fn failover(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    if args.len() == 2 && args.is(1, "ABORT") {
        let outbox = &ctx.data.commit.outbox;
        let was_on = ctx.pass.exclusive(|alone| failover::abort(shared, alone, ABORTED, outbox));
        return match was_on {
            true => {
                ctx.reply.ok();
                Ok(())
            }
            false => Err(CommandError::Line("ERR No failover in progress.")),
        };
    }
    let request = failover_request(args)?;
    let target = request.target.as_ref().map(|(host, port)| format!("{host}:{port}"));
    let number = failover::begin(shared, request).map_err(|refusal| CommandError::Line(refusal.reply()))?;
    tracing::info!("FAILOVER requested to {}.", target.as_deref().unwrap_or("any replica"));
    // After this step, no turn is running that began before the pause, so no write is in progress.
    ctx.pass.exclusive(|_alone| ());
    if let Err(error) = failover::start(shared, number) {
        let outbox = &ctx.data.commit.outbox;
        let reason = error.to_string();
        ctx.pass.exclusive(|alone| failover::abort_number(shared, alone, (number, &reason), outbox));
        return Err(CommandError::quoting("ERR Cannot start a thread: ", error.to_string().as_bytes(), ""));
    }
    ctx.reply.ok();
    Ok(())
}

/// Parses the arguments of FAILOVER, which may be in any order, as in Redis.
fn failover_request(args: &Args<'_>) -> Result<FailoverRequest, CommandError> {
    let mut request = FailoverRequest::default();
    let mut at = 1;
    while at < args.len() {
        if args.is(at, "TIMEOUT") && at + 1 < args.len() && request.timeout_ms.is_none() {
            let timeout_ms = u64::try_from(args.integer(at + 1)?).unwrap_or(0);
            if timeout_ms == 0 {
                return Err(CommandError::Line("ERR FAILOVER timeout must be greater than 0"));
            }
            request.timeout_ms = Some(timeout_ms);
            at += 2;
        } else if args.is(at, "TO") && at + 2 < args.len() && request.target.is_none() {
            let host = String::from_utf8_lossy(args.get(at + 1)).into_owned();
            request.target = Some((host, args.integer(at + 2)?));
            at += 3;
        } else if args.is(at, "FORCE") && !request.is_forced {
            request.is_forced = true;
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(request)
}

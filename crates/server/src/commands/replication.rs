//! Commands of replicas: the handshake, and the requests for synchronisation.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::session::Flow;
use replicate::replica::Dialect;

use crate::context::{Runner, ServerCtx};

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&PSYNC, &REPLCONF, &SYNC];

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
    let next = args.integer(2)?;
    if args.len() > 3 && args.is(3, "FAILOVER") {
        return Err(CommandError::Line("ERR PSYNC FAILOVER can't be sent to a master."));
    }
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
    leave(ctx, Dialect::Sync, (b"?".to_vec(), -1));
    Ok(())
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

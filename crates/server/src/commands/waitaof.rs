//! WAITAOF: waits until a client's writes are safe on disk, here and on replicas.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::wait::{EmptyReply, timeout_ms};
use ::commands::{Args, CommandError};
use engine::wait::{KeylessWait, deadline_ms};

use crate::config::table::persistence;
use crate::context::{Runner, ServerCtx};

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&WAITAOF];

/// The record of WAITAOF (see the module).
pub static WAITAOF: Command<Runner> = Command {
    name: "WAITAOF",
    summary: "Waits until the client's writes are synced to the append-only files of this server and of a \
         number of replicas. Returns their numbers.",
    history: History::since("7.2.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::BLOCKING,
    acl: Acl::BLOCKING.union(Acl::CONNECTION),
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[Arg::integer("numlocal"), Arg::integer("numreplicas"), Arg::integer("timeout")],
    run: Runner::Server(waitaof),
    ..Command::DEFAULT
};
/// Handles WAITAOF numlocal numreplicas timeout. The reply has two numbers: 1 if this server has
/// synced the client's writes, else 0; and the number of replicas that have synced them, always 0.
/// All changes that the client has seen count as its writes.
fn waitaof(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let local = args.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::Line("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = stdx::number::parse_i64(args.get(2)).filter(|&replicas| replicas >= 0);
    let replicas = replicas.ok_or(CommandError::Line("ERR value is out of range, must be positive"))?;
    let timeout_ms = timeout_ms(args, 3)?;
    let shared = ctx.shared;
    if local > 0 && !persistence::APPENDONLY.of(&shared.config()) {
        return Err(CommandError::Line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    let is_synced = shared.append_only.has_synced(&shared.engine.log, ctx.session.observed_position());
    let is_enough = replicas == 0 && (local == 0 || is_synced);
    if is_enough || ctx.session.in_exec {
        ctx.reply.array(2);
        ctx.reply.integer(i64::from(is_synced));
        ctx.reply.integer(0);
        return Ok(());
    }
    let deadline_ms =
        timeout_ms.map(|timeout_ms| deadline_ms(shared.engine.uptime(Instant::now()), timeout_ms));
    shared.append_only.waiters.fetch_add(1, Relaxed);
    let wait = KeylessWait { registered: ctx.registered, empty: EmptyReply::TwoZeros, deadline_ms };
    shared.engine.blocked.block_without_keys(ctx.session, args, wait);
    Ok(())
}

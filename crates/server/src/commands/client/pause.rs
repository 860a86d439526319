//! CLIENT PAUSE and UNPAUSE postpone commands of clients; CLIENT UNBLOCK ends the wait of a blocked
//! client.

use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use engine::searches::is_search;
use resp::Reply;
use stdx::ByteQueue;

use crate::commands::wait::Wanted;
use crate::context::Runner;
use crate::context::{ServerCtx, unix_ms};
use crate::shared::Message;

/// Returns the error for too many arguments of a CLIENT subcommand.
fn too_many_words(args: &Args<'_>) -> CommandError {
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    CommandError::quoting(before, args.get(1), "'. Try CLIENT HELP.")
}

pub(super) static CLIENT_PAUSE: Command<Runner> = Command {
    name: "PAUSE",
    summary: "Delays commands of all clients for a time.",
    history: History::since("3.0.0").changed(&[("6.2.0", "takes the mode, WRITE or ALL")]),
    group: Group::Connection,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    args: &[
        Arg::integer("timeout"),
        Arg::one_of("mode", &[Arg::word("write", "WRITE"), Arg::word("all", "ALL")])
            .since("6.2.0")
            .optional(),
    ],
    run: Runner::Server(client_pause),
    ..Command::DEFAULT
};
/// Handles CLIENT PAUSE timeout [WRITE|ALL]: postpones the commands of all clients, or only their
/// writes, for `timeout` milliseconds. An earlier pause is not shortened, and not changed from ALL
/// to WRITE.
fn client_pause(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(too_many_words(args));
    }
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
    // The time is read now, not at the turn's start, and rounded up: a pause never ends early.
    let now_ms = unix_ms();
    let until_ms = now_ms.checked_add(timeout_ms).and_then(|until_ms| until_ms.checked_add(1));
    let until_ms = until_ms.ok_or(CommandError::Line("ERR timeout is out of range"))?;
    let pause = &ctx.shared.engine.pause;
    let in_force = pause.until_ms.load(Relaxed) > now_ms;
    pause.all.store(all || (in_force && pause.all.load(Relaxed)), Relaxed);
    // Relaxed: a thread may notice the pause a turn earlier or later. The exclusive step below
    // orders it.
    pause.until_ms.fetch_max(until_ms, Relaxed);
    // After this step, no turn is running that began before the pause, so no write is in progress.
    // A request that waited to own the keyspace meanwhile checks the pause when it does.
    ctx.pass.exclusive(|_alone| ());
    ctx.reply.ok();
    Ok(())
}

pub(super) static CLIENT_UNPAUSE: Command<Runner> = Command {
    name: "UNPAUSE",
    summary: "Ends CLIENT PAUSE and runs the delayed commands.",
    history: History::since("6.2.0"),
    group: Group::Connection,
    complexity: "O(N)",
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    run: Runner::Server(client_unpause),
    ..Command::DEFAULT
};
/// Handles CLIENT UNPAUSE: ends the pause that CLIENT PAUSE has begun.
fn client_unpause(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.shared.engine.pause.until_ms.store(0, Relaxed);
    ctx.shared.broadcast(|| Message::Resume);
    ctx.reply.ok();
    Ok(())
}

pub(super) static CLIENT_UNBLOCK: Command<Runner> = Command {
    name: "UNBLOCK",
    summary: "Unblocks a client that is blocked by a command.",
    history: History::since("5.0.0"),
    group: Group::Connection,
    complexity: "O(log N) where N is the number of client connections",
    arity: Arity::AtLeast(3),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    acl: Acl::ADMIN.union(Acl::DANGEROUS).union(Acl::CONNECTION),
    args: &[
        Arg::integer("client-id"),
        Arg::one_of("unblock-type", &[Arg::word("timeout", "TIMEOUT"), Arg::word("error", "ERROR")])
            .optional(),
    ],
    run: Runner::Server(client_unblock),
    ..Command::DEFAULT
};
/// Handles CLIENT UNBLOCK client-id [TIMEOUT|ERROR]: replies 1 if this command unblocked the
/// client, and 0 if no such client was blocked.
fn client_unblock(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let with_error = match args.len() {
        3 => false,
        4 if args.is(3, "TIMEOUT") => false,
        4 if args.is(3, "ERROR") => true,
        4 => {
            return Err(CommandError::Line("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(too_many_words(args)),
    };
    let id = u64::try_from(args.integer(2)?).unwrap_or(0);
    let engine::Shared { clients, blocked, threads, .. } = &ctx.shared.engine;
    let waiter = clients.get(id).and_then(|client| blocked.of(&client));
    // The wait of a shutdown ends by SHUTDOWN ABORT only, that of a BACKUP request by its end. A
    // search has no timeout, as in Redis.
    let may_end = |name: &str| name != "shutdown" && !name.starts_with("backup|");
    let waiter = waiter.filter(|waiter| may_end(waiter.registered.full_name) && !is_search(waiter));
    let ended = waiter.is_some_and(|waiter| {
        let first = blocked.end(&waiter);
        if first {
            let mut reply = ByteQueue::new();
            if with_error {
                let line = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
                ctx.shared.engine.count_failure(ctx.thread, waiter.registered, line.as_bytes());
                Reply::new(&mut reply, waiter.protocol).error(line);
            } else if let Some(wanted) = Wanted::of_waiter(&waiter, ctx.shared) {
                let copies = wanted.copies(ctx.shared, waiter.awaited_position);
                copies.write(&mut Reply::new(&mut reply, waiter.protocol));
            } else {
                waiter.write_empty(waiter.protocol, &mut reply);
            }
            threads.deliver(waiter.thread, waiter.delivery(reply), &ctx.data.commit.outbox);
        }
        first
    });
    ctx.reply.integer(ended.into());
    Ok(())
}

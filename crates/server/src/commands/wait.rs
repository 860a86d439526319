//! WAIT and WAITAOF: wait until replicas have received a client's writes, or until the writes are
//! synced to disks.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::wait::{EmptyReply, timeout_ms};
use ::commands::{Args, CommandError};
use engine::session::Session;
use engine::wait::{BlockedClient, KeylessWait, deadline_ms};
use resp::Reply;

use crate::config::table::persistence;
use crate::context::{Runner, ServerCtx};
use crate::shared::Shared;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&WAIT, &WAITAOF];

/// The number of copies of its changes that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// WAIT: the number of replicas that must have received the client's changes.
    Replicas(i64),
    /// WAITAOF: the numbers of copies that must be synced to disk, on this server and on replicas.
    Synced {
        /// The number of this server's append-only files to wait for: 0 or 1.
        local: i64,
        /// The number of replicas that must have the changes on disk.
        replicas: i64,
    },
}

/// The number of copies of a client's changes that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// The number of replicas that have acknowledged the client's changes, for WAIT.
    Replicas(i64),
    /// The numbers of copies that are synced to disk, on this server and on replicas, for WAITAOF.
    Synced {
        /// The number of this server's append-only files with the changes: 0 or 1.
        local: i64,
        /// The number of replicas that have synced the client's changes to disk.
        replicas: i64,
    },
}

impl Wanted {
    /// Returns the copies that a blocked client waits for; `None` unless it waits in WAIT or
    /// WAITAOF.
    pub fn of_waiter(waiter: &BlockedClient, shared: &Shared) -> Option<Self> {
        let waits = matches!(waiter.empty, EmptyReply::Zero | EmptyReply::TwoZeros);
        waits.then(|| Self::of(&waiter.args.args(shared.engine.keyspace.hasher())))
    }

    /// Returns the numbers in the arguments of WAIT or WAITAOF. The caller has checked that they
    /// are valid.
    fn of(args: &Args<'_>) -> Self {
        let number = |at| args.integer(at).unwrap_or(0);
        match args.len() {
            3 => Self::Replicas(number(1)),
            _ => Self::Synced { local: number(1), replicas: number(2) },
        }
    }

    /// Returns the log position up to which a client waits for copies. With WAIT it is the position
    /// of the client's last change. With WAITAOF it is that of the last change that the client has
    /// made or may have read.
    fn position(self, session: &Session) -> u64 {
        match self {
            Self::Replicas(_) => session.written_position(),
            Self::Synced { .. } => session.observed_position(),
        }
    }

    /// Returns the present number of copies of all changes up to `position` in the change log.
    pub fn copies(self, shared: &Shared, position: u64) -> Copies {
        match self {
            Self::Replicas(_) => Copies::Replicas(shared.replication.count_acked(position)),
            Self::Synced { .. } => Copies::Synced {
                local: i64::from(shared.append_only.has_synced(&shared.engine.log, position)),
                replicas: shared.replication.count_synced(position),
            },
        }
    }

    /// Returns true if there are at least as many `copies` as the client waits for.
    pub fn has_enough(self, copies: Copies) -> bool {
        match (self, copies) {
            (Self::Replicas(wanted), Copies::Replicas(present)) => present >= wanted,
            (Self::Synced { local, replicas }, Copies::Synced { local: here, replicas: there }) => {
                here >= local && there >= replicas
            }
            _ => false,
        }
    }

    /// Adds a client that begins to wait to the counts of clients that wait for acknowledgements
    /// and for syncs.
    fn count(self, shared: &Shared) {
        shared.replication.waiters.fetch_add(1, Relaxed);
        if matches!(self, Self::Synced { .. }) {
            shared.append_only.waiters.fetch_add(1, Relaxed);
        }
    }

    /// Removes a client whose wait has ended from the counts of clients that wait for
    /// acknowledgements and for syncs.
    pub fn uncount(self, shared: &Shared) {
        shared.replication.waiters.fetch_sub(1, Relaxed);
        if matches!(self, Self::Synced { .. }) {
            shared.append_only.waiters.fetch_sub(1, Relaxed);
        }
    }
}

impl Copies {
    /// Writes the reply of WAIT (one number) or WAITAOF (two numbers).
    pub fn write(self, reply: &mut Reply<'_>) {
        match self {
            Self::Replicas(present) => reply.integer(present),
            Self::Synced { local, replicas } => {
                reply.array(2);
                reply.integer(local);
                reply.integer(replicas);
            }
        }
    }
}

/// The command table's record of WAIT, which waits until replicas have received the client's
/// writes.
static WAIT: Command<Runner> = Command {
    name: "WAIT",
    summary: "Waits until a number of replicas have the client's writes, and returns the number of \
         replicas that have them.",
    history: History::since("3.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::BLOCKING,
    acl: Acl::BLOCKING.union(Acl::CONNECTION),
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    args: &[Arg::integer("numreplicas"), Arg::integer("timeout")],
    run: Runner::Server(wait),
    ..Command::DEFAULT
};
/// Handles WAIT numreplicas timeout: replies with the number of replicas that have acknowledged the
/// client's writes.
fn wait(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.shared.replication.upstream.is_replica() {
        return Err(CommandError::Line(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a \
             replica is configured to be writable (which is not the default) writes to replicas are just \
             local and are not propagated.",
        ));
    }
    let replicas = args.integer(1)?;
    let timeout_ms = timeout_ms(args, 2)?;
    reply_or_wait(ctx, args, (Wanted::Replicas(replicas), timeout_ms));
    Ok(())
}

/// The command table's record of WAITAOF, which waits until the client's writes are synced to
/// disks.
static WAITAOF: Command<Runner> = Command {
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
/// synced the client's writes, else 0; and the number of replicas that have synced them. All
/// changes that the client may have read count as its writes.
fn waitaof(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let local = args.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err(CommandError::Line("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = stdx::number::parse_i64(args.get(2)).filter(|&replicas| replicas >= 0);
    let replicas = replicas.ok_or(CommandError::Line("ERR value is out of range, must be positive"))?;
    let timeout_ms = timeout_ms(args, 3)?;
    if ctx.shared.replication.upstream.is_replica() {
        return Err(CommandError::Line(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas \
             are just local and are not propagated.",
        ));
    }
    if local > 0 && !persistence::APPENDONLY.of(&ctx.shared.config()) {
        return Err(CommandError::Line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    reply_or_wait(ctx, args, (Wanted::Synced { local, replicas }, timeout_ms));
    Ok(())
}

/// Replies if there are enough copies, or if the client may not wait because it is in a
/// transaction. Otherwise blocks the client.
fn reply_or_wait(
    ctx: &mut ServerCtx<'_, '_, '_>,
    args: &Args<'_>,
    (wanted, timeout_ms): (Wanted, Option<u64>),
) {
    let (shared, position) = (ctx.shared, wanted.position(ctx.session));
    // The client is counted before the copies are: an acknowledgement that arrives after the count
    // then makes this thread look again.
    wanted.count(shared);
    let copies = wanted.copies(shared, position);
    if wanted.has_enough(copies) || ctx.session.in_exec {
        wanted.uncount(shared);
        copies.write(&mut ctx.reply);
        return;
    }
    if shared.replication.primary().backlog().is_some() {
        shared.replication.request_ack(position);
    }
    let deadline_ms =
        timeout_ms.map(|timeout_ms| deadline_ms(shared.engine.uptime(Instant::now()), timeout_ms));
    let empty = match wanted {
        Wanted::Replicas(_) => EmptyReply::Zero,
        Wanted::Synced { .. } => EmptyReply::TwoZeros,
    };
    let wait = KeylessWait { registered: ctx.registered, empty, deadline_ms, awaited_position: position };
    shared.engine.blocked.block_without_keys(ctx.session, args, wait);
}

//! BACKUP: online backups, as in Redis 8.10.

use std::sync::Arc;
use std::time::Instant;

use ::commands::table::{Acl, Arity, Command, Flags, Group, History};
use ::commands::wait::EmptyReply;
use ::commands::{Args, CommandError};
use engine::threads::{Delivery, Outbox};
use engine::wait::{BlockedClient, KeylessWait};
use persist::backup::Refusal;
use resp::Reply;
use stdx::ByteQueue;

use crate::context::Runner;
use crate::context::ServerCtx;
use crate::persistence::backup::{self, Uncleaned, Unsealed, Unstarted};
use crate::shared::Shared;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&BACKUP];

/// The command flags of the BACKUP subcommands that change the backup.
const CHANGING: Flags = Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_MULTI);
/// The command flags of the BACKUP subcommands that show the backup.
const SHOWING: Flags = Flags::ADMIN.union(Flags::STALE);
/// The ACL categories of the BACKUP subcommands.
const ACL: Acl = Acl::ADMIN.union(Acl::DANGEROUS);

/// The error of START while a backup is in progress.
const IN_PROGRESS: CommandError = CommandError::Line("ERR A backup is already in progress, ABORT it first");
/// The error of START while a sealed backup exists.
const SEALED: CommandError = CommandError::Line("ERR A sealed backup exists, CLEANUP it first");
/// The error of SEAL in all states but `incrementing`.
const NOT_INCREMENTING: CommandError =
    CommandError::Line("ERR No backup ready to seal (must be in the incrementing state)");
/// The error of ABORT without a backup in progress.
const NOT_IN_PROGRESS: CommandError = CommandError::Line("ERR No backup in progress");
/// The error of CLEANUP while a backup is in progress.
const BUSY: CommandError = CommandError::Line("ERR Backup is in progress");

fn refusal(refusal: Refusal) -> CommandError {
    match refusal {
        Refusal::InProgress => IN_PROGRESS,
        Refusal::Sealed => SEALED,
        Refusal::NotIncrementing => NOT_INCREMENTING,
        Refusal::NotInProgress => NOT_IN_PROGRESS,
    }
}

/// The work of a request on the files of the backup.
type Request = fn(&Arc<Shared>) -> Result<(), CommandError>;

/// Runs a request on a thread of its own, because it waits for the disk and for other threads. The
/// client is blocked until the reply; other clients of its I/O thread continue.
fn run_beside(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>, work: Request) {
    let blocked = &ctx.shared.engine.blocked;
    let wait = KeylessWait {
        registered: ctx.registered,
        empty: EmptyReply::NullArray,
        deadline_ms: None,
        awaited_position: 0,
    };
    blocked.block_without_keys(ctx.session, args, wait);
    let waiter = blocked.of(&ctx.session.info).expect("its own thread has just blocked the client");
    let (shared, thread_waiter) = (Arc::clone(ctx.shared), Arc::clone(&waiter));
    let body = move || {
        let since = Instant::now();
        let result = work(&shared);
        end_wait(&shared, &thread_waiter, (since, result));
    };
    if let Err(error) = std::thread::Builder::new().name("backup".to_owned()).spawn(body) {
        let error = CommandError::Text(format!("ERR A thread cannot be created: {error}"));
        end_wait(ctx.shared, &waiter, (Instant::now(), Err(error)));
    }
}

/// Replies to a client whose request has run since the time `since`, unless its connection was
/// closed meanwhile.
fn end_wait(shared: &Shared, waiter: &BlockedClient, (since, result): (Instant, Result<(), CommandError>)) {
    if !shared.engine.blocked.end(waiter) {
        return;
    }
    let (mut out, outbox) = (ByteQueue::new(), Outbox::default());
    let mut reply = Reply::new(&mut out, waiter.protocol);
    match result {
        Ok(()) => reply.ok(),
        Err(error) => {
            let line = error.line();
            shared.engine.count_failure(waiter.thread, waiter.registered, &line);
            reply.error_bytes(&line);
        }
    }
    let delivery = Delivery { took: since.elapsed(), ..waiter.delivery(out) };
    shared.engine.threads.deliver(waiter.thread, delivery, &outbox);
    shared.wake(&outbox);
}

static BACKUP: Command<Runner> = Command {
    name: "BACKUP",
    summary: "A container for commands that back up the data while the server runs.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::Exactly(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &BACKUP_ABORT,
        &BACKUP_CLEANUP,
        &BACKUP_HELP,
        &BACKUP_LIST,
        &BACKUP_SEAL,
        &BACKUP_START,
        &BACKUP_STATUS,
    ],
    run: Runner::Server(super::container),
    ..Command::DEFAULT
};

static BACKUP_ABORT: Command<Runner> = Command {
    name: "ABORT",
    summary: "Cancels the backup in progress and removes its files.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: CHANGING,
    acl: ACL,
    run: Runner::Server(backup_abort),
    ..Command::DEFAULT
};
/// Handles BACKUP ABORT: removes the files of the backup before the reply.
fn backup_abort(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    run_beside(ctx, args, |shared| backup::abort(shared).map_err(refusal));
    Ok(())
}

static BACKUP_CLEANUP: Command<Runner> = Command {
    name: "CLEANUP",
    summary: "Removes the files of the sealed or failed backup.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: CHANGING,
    acl: ACL,
    run: Runner::Server(backup_cleanup),
    ..Command::DEFAULT
};
/// Handles BACKUP CLEANUP: removes the files of the backup before the reply.
fn backup_cleanup(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    run_beside(ctx, args, |shared| {
        backup::clean_up(shared).map_err(|uncleaned| match uncleaned {
            Uncleaned::Refused(_) => BUSY,
            Uncleaned::Failed(trouble) => {
                CommandError::Text(format!("ERR The files of the backup cannot be removed: {trouble}"))
            }
        })
    });
    Ok(())
}

static BACKUP_HELP: Command<Runner> = Command {
    history: History::since("8.10.0"),
    group: Group::Server,
    run: Runner::Server(backup_help),
    ..Command::HELP
};
/// Handles BACKUP HELP: lists the subcommands with their syntax.
fn backup_help(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    super::help(
        ctx,
        "BACKUP",
        &[
            (
                "START",
                &[
                    "Starts a backup in the directory 'backupdirname'. Its snapshot is written in the background.",
                ],
            ),
            ("SEAL", &["Ends the backup with the present data and completes its files."]),
            ("ABORT", &["Cancels the backup before its seal and removes its files."]),
            ("CLEANUP", &["Removes the files of the sealed or failed backup."]),
            ("STATUS", &["State, error, and Unix times of the start and of the seal."]),
            ("LIST", &["Paths of the files that do not change any more."]),
        ],
    );
    Ok(())
}

static BACKUP_LIST: Command<Runner> = Command {
    name: "LIST",
    summary: "Returns the paths of the backup's files that do not change any more.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: SHOWING,
    acl: ACL,
    run: Runner::Server(backup_list),
    ..Command::DEFAULT
};
/// Handles BACKUP LIST: after the snapshot the path of the base, after the seal also those of the
/// incremental file and of the manifest.
fn backup_list(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let files = ctx.shared.persistence.backup.fixed_files();
    ctx.reply.array(files.len());
    for file in files {
        ctx.reply.bulk(file.as_os_str().as_encoded_bytes());
    }
    Ok(())
}

static BACKUP_SEAL: Command<Runner> = Command {
    name: "SEAL",
    summary: "Ends the backup with the present data and completes its files.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: CHANGING,
    acl: ACL,
    run: Runner::Server(backup_seal),
    ..Command::DEFAULT
};
/// Handles BACKUP SEAL. The backup contains the data of a moment between the request and the reply.
fn backup_seal(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    run_beside(ctx, args, |shared| {
        backup::seal(shared).map_err(|unsealed| match unsealed {
            Unsealed::Refused(reason) => refusal(reason),
            Unsealed::Failed(trouble) => CommandError::Text(format!("ERR The backup has failed: {trouble}")),
        })
    });
    Ok(())
}

static BACKUP_START: Command<Runner> = Command {
    name: "START",
    summary: "Starts a backup in the directory that the option backupdirname names.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: CHANGING,
    acl: ACL,
    run: Runner::Server(backup_start),
    ..Command::DEFAULT
};
/// Handles BACKUP START. Before the reply, the snapshot begins, or must wait for a save, a rewrite
/// or a load.
fn backup_start(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    run_beside(ctx, args, |shared| {
        backup::start(shared).map_err(|unstarted| match unstarted {
            Unstarted::Refused(reason) => refusal(reason),
            Unstarted::NotEmpty(path) => CommandError::quoting(
                "ERR The backup directory ",
                path.as_os_str().as_encoded_bytes(),
                " is not empty",
            ),
            Unstarted::Failed(trouble) => {
                CommandError::Text(format!("ERR The backup directory cannot be used: {trouble}"))
            }
        })
    });
    Ok(())
}

static BACKUP_STATUS: Command<Runner> = Command {
    name: "STATUS",
    summary: "Returns the state of the backup, its error and its times.",
    history: History::since("8.10.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: SHOWING,
    acl: ACL,
    run: Runner::Server(backup_status),
    ..Command::DEFAULT
};
/// Handles BACKUP STATUS.
fn backup_status(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let figures = ctx.shared.persistence.backup.figures();
    ctx.reply.map(4);
    ctx.reply.bulk(b"state");
    ctx.reply.bulk(figures.state.name().as_bytes());
    ctx.reply.bulk(b"error");
    ctx.reply.bulk(figures.error.as_bytes());
    ctx.reply.bulk(b"start_time");
    ctx.reply.integer(figures.started_s);
    ctx.reply.bulk(b"end_time");
    ctx.reply.integer(figures.sealed_s);
    Ok(())
}

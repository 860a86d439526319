//! Commands about the data files: SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::wait::EmptyReply;
use ::commands::{Args, CommandError};
use engine::session::{Flow, ReplyMode};
use engine::wait::KeylessWait;

use crate::context::{Runner, ServerCtx};
use crate::persistence::last_acks::must_wait;
use crate::persistence::shutdown::{Ending, SHUTDOWN_ERROR, last_work, run_request};
use crate::persistence::{self, aof};
use crate::shutdown::ShutdownOptions;
use crate::snapshots::{BeginResult, Cancelled};

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&BGREWRITEAOF, &BGSAVE, &LASTSAVE, &SAVE, &SHUTDOWN];

/// The error of SAVE and BGSAVE while a save is in progress.
const IN_PROGRESS: CommandError = CommandError::Line("ERR Background save already in progress");

static SAVE: Command<Runner> = Command {
    name: "SAVE",
    summary: "Saves a snapshot of all data to a file and replies at its end.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING).union(Flags::NO_MULTI),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(save),
    ..Command::DEFAULT
};
/// Handles SAVE: saves a snapshot before the reply. All clients of this I/O thread wait until the
/// save ends; clients of other threads continue.
fn save(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    if shared.persistence.is_saving() {
        return Err(IN_PROGRESS);
    }
    let saved = ctx.pass.outside(|| persistence::save_as_asked(shared));
    // As in Redis, the reply gives no reason; the log gives it.
    saved.map_err(|_trouble| CommandError::Line("ERR"))?;
    ctx.reply.simple("OK");
    Ok(())
}

static BGSAVE: Command<Runner> = Command {
    name: "BGSAVE",
    summary: "Saves a snapshot of all data to a file in the background.",
    history: History::since("1.0.0")
        .changed(&[("3.2.2", "takes SCHEDULE")])
        .changed_by_valkey(&[("8.1.0", "takes CANCEL")]),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    args: &[Arg::one_of(
        "operation",
        &[Arg::word("schedule", "SCHEDULE").since("3.2.2"), Arg::word("cancel", "CANCEL").since("8.1.0")],
    )
    .optional()],
    run: Runner::Server(bgsave),
    ..Command::DEFAULT
};
/// Handles BGSAVE [SCHEDULE|CANCEL]. The file contains the data at the time of the reply, unless
/// the save is scheduled. In a transaction the save begins after EXEC.
fn bgsave(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    let schedules = match args.len() {
        1 => false,
        2 if args.is(1, "SCHEDULE") => true,
        2 if args.is(1, "CANCEL") => {
            ctx.reply.simple(match shared.persistence.cancel(&shared.engine) {
                Cancelled::InProgress => "Background saving cancelled",
                Cancelled::Scheduled => "Scheduled background saving cancelled",
                Cancelled::Nothing => {
                    return Err(CommandError::Line(
                        "ERR Background saving is currently not in progress or scheduled",
                    ));
                }
            });
            return Ok(());
        }
        _ => return Err(CommandError::Syntax),
    };
    if shared.persistence.is_saving() {
        return Err(IN_PROGRESS);
    }
    if ctx.session.in_exec {
        shared.persistence.schedule();
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    match ctx.pass.outside(|| persistence::begin_as_asked(shared)) {
        BeginResult::Started => ctx.reply.simple("Background saving started"),
        BeginResult::InProgress if schedules => {
            shared.persistence.schedule();
            ctx.reply.simple("Background saving scheduled");
        }
        BeginResult::InProgress => {
            return Err(CommandError::Line(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order \
                 to schedule a BGSAVE whenever possible.",
            ));
        }
    }
    Ok(())
}

static BGREWRITEAOF: Command<Runner> = Command {
    name: "BGREWRITEAOF",
    summary: "Rewrites the append-only file in the background to reduce its size.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    run: Runner::Server(bgrewriteaof),
    ..Command::DEFAULT
};
/// Handles BGREWRITEAOF: rewrites the append-only file in the background. In a transaction the
/// rewrite begins after EXEC.
fn bgrewriteaof(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    let shared = ctx.shared;
    let asked = match ctx.session.in_exec {
        true => aof::schedule_as_asked(shared),
        false => aof::rewrite_as_asked(shared),
    };
    ctx.reply.simple(match asked {
        aof::BeginResult::Started => "Background append only file rewriting started",
        aof::BeginResult::Scheduled => "Background append only file rewriting scheduled",
        aof::BeginResult::InProgress => {
            return Err(CommandError::Line("ERR Background append only file rewriting already in progress"));
        }
    });
    Ok(())
}

static LASTSAVE: Command<Runner> = Command {
    name: "LASTSAVE",
    summary: "Returns the Unix time of the last successful save.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["nondeterministic_output"],
    run: Runner::Server(lastsave),
    ..Command::DEFAULT
};
/// Handles LASTSAVE: replies with the time of the last successful save in Unix seconds, or of the
/// server's start if there was none.
fn lastsave(ctx: &mut ServerCtx<'_, '_, '_>, _args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.integer(ctx.shared.persistence.figures().record.last_save_s);
    Ok(())
}

/// Starts a thread that waits until the replicas have received all changes and then ends the
/// server, and blocks the client until then. If such a shutdown is already pending, only blocks the
/// client. SHUTDOWN ABORT or an error unblocks it.
fn wait_with_request(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>, wish: ShutdownOptions) {
    let shared = ctx.shared;
    let wait = KeylessWait {
        registered: ctx.registered,
        empty: EmptyReply::NullArray,
        deadline_ms: None,
        awaited_position: 0,
    };
    shared.engine.blocked.block_without_keys(ctx.session, args, wait);
    if let Some(request) = shared.shutdown_request.ask_for(ctx.session.id) {
        let (thread_shared, thread_request) = (Arc::clone(shared), request);
        let body = move || run_request(&thread_shared, thread_request, wish);
        if let Err(error) = std::thread::Builder::new().name("shutdown".to_owned()).spawn(body) {
            // The server then ends without the wait.
            tracing::warn!(%error, "Cannot wait for replicas before the shutdown");
            shared.stop();
        }
    }
}

static SHUTDOWN: Command<Runner> = Command {
    name: "SHUTDOWN",
    summary: "Saves the data if configured, and stops the server.",
    history: History::since("1.0.0").changed(&[("7.0.0", "takes NOW, FORCE and ABORT")]),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::AtLeast(1),
    flags: Flags::ADMIN
        .union(Flags::NOSCRIPT)
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::NO_MULTI)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    args: &[
        Arg::one_of("save-selector", &[Arg::word("nosave", "NOSAVE"), Arg::word("save", "SAVE")]).optional(),
        Arg::word("now", "NOW").since("7.0.0").optional(),
        Arg::word("force", "FORCE").since("7.0.0").optional(),
        Arg::word("abort", "ABORT").since("7.0.0").optional(),
    ],
    run: Runner::Server(shutdown),
    ..Command::DEFAULT
};
/// Handles SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]. Only ABORT and errors have a reply;
/// otherwise the connection is closed when the server ends.
fn shutdown(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut wish, mut abort) = (ShutdownOptions::default(), false);
    for option in args.from(1) {
        if option.eq_ignore_ascii_case(b"abort") {
            abort = true;
        } else if !wish.add(option) {
            return Err(CommandError::Syntax);
        }
    }
    if !wish.is_possible() || (abort && args.len() > 2) {
        return Err(CommandError::Syntax);
    }
    if abort {
        if !ctx.shared.shutdown_request.abort() {
            return Err(CommandError::Line("ERR No shutdown in progress."));
        }
        tracing::info!("Shutdown manually aborted.");
        ctx.reply.ok();
        return Ok(());
    }
    let scripts = &ctx.shared.engine.scripts;
    if !wish.forbids_save && scripts.is_any_busy() {
        return Err(scripts.error());
    }
    tracing::info!(client = ctx.session.id, "User requested shutdown...");
    let shared = ctx.shared;
    const FAILED: CommandError = CommandError::Line(SHUTDOWN_ERROR);
    if must_wait(shared, wish) {
        wait_with_request(ctx, args, wish);
        return Ok(());
    }
    let work = last_work(shared, wish).ok_or(FAILED)?;
    if wish.forbids_save && !work.is_nothing() && !ctx.pass.is_inside() {
        // A script is busy, perhaps on this thread, which must continue so that the script can end.
        ctx.session.reply_mode = ReplyMode::Off;
        // Only the first SHUTDOWN of a pipeline starts the thread that ends the server.
        if shared.engine.server_state.is_stopping.swap(true, Relaxed) {
            return Ok(());
        }
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            work.run(&shared, wish, || true);
            shared.stop();
        });
        return Ok(());
    }
    if ctx.pass.outside(|| work.run(shared, wish, || true)) != Ending::Ready {
        return Err(FAILED);
    }
    ctx.session.reply_mode = ReplyMode::Off;
    ctx.session.flow = Flow::Closing;
    shared.stop();
    Ok(())
}

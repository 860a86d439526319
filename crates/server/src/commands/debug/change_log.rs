//! DEBUG CHANGE-LOG: readers of the change log for tests and measurements.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use ::commands::{Args, CommandError};
use engine::log::level::{Level, Released};
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::log::target::LogTarget;
use engine::threads::Outbox;

use crate::context::ServerCtx;
use crate::shared::Shared;

/// A reader of the change log that discards all changes and confirms them at once.
struct Discarding;

impl LogReader for Discarding {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        Released::at(batch.position)
    }
}

/// A reader of the change log that confirms nothing by itself: replies wait for DEBUG CHANGE-LOG
/// CONFIRM.
struct Manual;

impl LogReader for Manual {
    fn append(&mut self, _batch: &LogBatch<'_>) -> Released {
        Released::at(0)
    }
}

/// A reader of the change log that writes the changes to a file. Replies to clients are released
/// after the write, also if it failed.
struct Writing {
    file: File,
    path: PathBuf,
    target: LogTarget,
    /// True after a write to the file has failed; all later changes are then dropped.
    has_failed: bool,
}

impl LogReader for Writing {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        batch.for_each_part(self.target, |part| {
            if !self.has_failed
                && let Err(error) = self.file.write_all(part)
            {
                self.has_failed = true;
                tracing::error!(path = %self.path.display(), %error, "DEBUG CHANGE-LOG FILE stopped: \
                    cannot write to the file");
            }
        });
        Released::at(batch.position)
    }
}

/// Handles DEBUG CHANGE-LOG. DISCARD, FILE path and MANUAL attach a reader of the change log; it
/// gets the changes as for the append-only file, or as for replicas if REPLICAS follows. CONFIRM
/// [WRITTEN] confirms all changes for the attached readers. LEVEL WRITTEN|SYNCED sets the [`Level`]
/// that this client's replies wait for. OFF detaches all readers except those of the append-only
/// file and of a backup.
pub(super) fn change_log(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.session.in_exec {
        return Err(CommandError::Line("ERR DEBUG CHANGE-LOG cannot be part of a transaction"));
    }
    let is = |at: usize, word: &str| at < args.len() && args.is(at, word);
    match args.len() {
        3 if is(2, "CONFIRM") => confirm(ctx, Released::at),
        4 if is(2, "CONFIRM") && is(3, "WRITTEN") => confirm(ctx, |position| Released::new(position, 0)),
        3 if is(2, "OFF") => detach_all(ctx),
        4 if is(2, "LEVEL") && is(3, "WRITTEN") => ctx.session.level = Level::Written,
        4 if is(2, "LEVEL") && is(3, "SYNCED") => ctx.session.level = Level::Synced,
        _ => attach(ctx, args)?,
    }
    ctx.reply.ok();
    Ok(())
}

fn attach(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let is_for_replicas = args.is(args.len() - 1, "REPLICAS");
    let target = if is_for_replicas { LogTarget::Replicas } else { LogTarget::File };
    let reader: Box<dyn LogReader> = match args.len() - usize::from(is_for_replicas) {
        3 if args.is(2, "DISCARD") => Box::new(Discarding),
        3 if args.is(2, "MANUAL") => Box::new(Manual),
        4 if args.is(2, "FILE") => {
            let path = PathBuf::from(String::from_utf8_lossy(args.get(3)).into_owned());
            let file = File::create(&path).map_err(|error| {
                let path = path.display().to_string();
                CommandError::quoting("ERR creating ", path.as_bytes(), &format!(" failed: {error}"))
            })?;
            Box::new(Writing { file, path, target, has_failed: false })
        }
        _ => return Err(CommandError::Syntax),
    };
    let (log, outbox) = (&ctx.shared.engine.log, &ctx.data.commit.outbox);
    match ctx.pass.exclusive(|alone| log.attach(alone, (reader, target), outbox)) {
        Some(_) => Ok(()),
        None => Err(CommandError::Line("ERR the change log has its maximum number of readers")),
    }
}

/// Lists the attached readers except those of the append-only file and of a backup. First passes to
/// all readers the changes that threads have recorded so far.
fn other_readers(shared: &Shared, outbox: &Outbox) -> impl Iterator<Item = ReaderId> {
    let readers = shared.engine.log.readers(outbox);
    let of_file = shared.append_only.state().attached().map(|attached| attached.reader);
    let of_backup = shared.persistence.backup.reader();
    readers.into_iter().filter(move |&reader| Some(reader) != of_file && Some(reader) != of_backup)
}

fn detach_all(ctx: &mut ServerCtx<'_, '_, '_>) {
    let (log, outbox) = (&ctx.shared.engine.log, &ctx.data.commit.outbox);
    ctx.pass.exclusive(|alone| {
        for reader in other_readers(ctx.shared, outbox) {
            log.detach(alone, reader, outbox);
        }
    });
}

/// Confirms all changes so far for all readers except those of the append-only file and of a
/// backup. `released` gets the position of the last change, and returns the confirmation: the
/// changes up to this position are written, or also synced.
fn confirm(ctx: &mut ServerCtx<'_, '_, '_>, released: fn(u64) -> Released) {
    let (log, outbox) = (&ctx.shared.engine.log, &ctx.data.commit.outbox);
    // Every drawn position is in a buffer, and `readers` merges the buffers.
    ctx.pass.exclusive(|_alone| {
        let (readers, confirmed) = (other_readers(ctx.shared, outbox), released(log.drawn()));
        log.confirm(readers.map(|reader| (reader, confirmed)), outbox);
    });
}

//! DEBUG CHANGE-LOG: readers of the change log for tests and measurements.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use ::commands::{Args, CommandError};
use engine::log::merger::{LogBatch, LogReader};

use crate::context::ServerCtx;

/// A reader of the change log that discards all changes and confirms them at once.
struct Discarding;

impl LogReader for Discarding {
    fn append(&mut self, batch: &LogBatch<'_>) -> u64 {
        batch.position
    }
}

/// A reader of the change log that confirms nothing by itself: replies wait for DEBUG CHANGE-LOG
/// CONFIRM.
struct Manual;

impl LogReader for Manual {
    fn append(&mut self, _batch: &LogBatch<'_>) -> u64 {
        0
    }
}

/// A reader of the change log that writes the changes to a file. Replies are released after the
/// write.
struct Writing {
    file: File,
    path: PathBuf,
    /// True after a failed write; all further batches are dropped.
    has_failed: bool,
}

impl LogReader for Writing {
    fn append(&mut self, batch: &LogBatch<'_>) -> u64 {
        if !self.has_failed
            && let Err(error) = batch.text.pieces().try_for_each(|piece| self.file.write_all(piece))
        {
            self.has_failed = true;
            tracing::error!(path = %self.path.display(), %error, "DEBUG CHANGE-LOG FILE stopped: cannot \
                write to the file");
        }
        batch.position
    }
}

/// Handles DEBUG CHANGE-LOG (DISCARD | FILE path | MANUAL | CONFIRM | OFF).
pub(super) fn change_log(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    if ctx.session.in_exec {
        return Err(CommandError::Line("ERR DEBUG CHANGE-LOG cannot be part of a transaction"));
    }
    if args.len() == 3 && args.is(2, "CONFIRM") {
        confirm(ctx);
        return Ok(());
    }
    let reader: Option<Box<dyn LogReader>> = match args.len() {
        3 if args.is(2, "DISCARD") => Some(Box::new(Discarding)),
        3 if args.is(2, "MANUAL") => Some(Box::new(Manual)),
        3 if args.is(2, "OFF") => None,
        4 if args.is(2, "FILE") => {
            let path = PathBuf::from(String::from_utf8_lossy(args.get(3)).into_owned());
            let file = File::create(&path).map_err(|error| {
                let path = path.display().to_string();
                CommandError::quoting("ERR creating ", path.as_bytes(), &format!(" failed: {error}"))
            })?;
            Some(Box::new(Writing { file, path, has_failed: false }))
        }
        _ => return Err(CommandError::Syntax),
    };
    let (log, outbox) = (&ctx.shared.engine.log, &ctx.data.commit.outbox);
    let is_done = ctx.pass.exclusive(|alone| match reader {
        Some(reader) => log.attach(alone, reader, outbox).is_some(),
        None => {
            for reader in log.readers(outbox) {
                log.detach(alone, reader, outbox);
            }
            true
        }
    });
    if !is_done {
        return Err(CommandError::Line("ERR the change log has its maximum number of readers"));
    }
    ctx.reply.ok();
    Ok(())
}

/// Confirms all changes that were appended so far, for all readers.
fn confirm(ctx: &mut ServerCtx<'_, '_, '_>) {
    let (log, outbox) = (&ctx.shared.engine.log, &ctx.data.commit.outbox);
    // Every drawn position is in a buffer, and `readers` merges the buffers.
    ctx.pass.exclusive(|_alone| {
        let (readers, drawn) = (log.readers(outbox), log.drawn());
        log.confirm(readers.into_iter().map(|reader| (reader, drawn)), outbox);
    });
    ctx.reply.ok();
}

//! The replication stream of the primary: the replica applies it, sends it to its own replicas, and
//! acknowledges it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::apply::{Applied, Applier, ApplyError, DiskErrors, Pauses, Progressed, UnknownCommands};
use engine::client::ClientInfo;
use engine::log::level::Level;
use engine::scripting::ScriptEngine;
use persist::load::Unsupported;
use replicate::link::offsets::StreamOffsets;

use super::connection::{Connection, LinkEnd};
use super::courtesy::Courtesy;
use crate::config::choices::OnFailedCommand;
use crate::config::table::replication as options;
use crate::context::{ServerHost, SystemClock, unix_ms};
use crate::shared::Shared;

/// The time between two acknowledgements that a replica sends to its primary.
const ACK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two attempts to apply a request of the replication stream that must wait, for
/// example because a script is busy.
const RETRY: Duration = Duration::from_millis(1);
/// The number of received and unapplied bytes of the replication stream above which receiving stops
/// while no request can be applied.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The time between two log lines about commands applied in spite of disk errors.
const UNWRITABLE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of log lines about failed commands for each link.
const ERRORS_LOGGED_MAX: u64 = 100;
/// The minimum number of missing bytes of an incomplete request of the replication stream for which
/// the input buffer grows to the size of the request at once.
const EXPECTED_LEN_BYTES_MIN: usize = 64 << 10;

/// The receiver of the applied bytes of the replication stream: it appends them to the backlog and
/// counts them for acknowledgements.
struct Receiver<'s> {
    shared: &'s Shared,
    offsets: StreamOffsets,
    /// The offsets in the replication stream before a GETACK of the primary that is not answered
    /// yet; `None` if there is none.
    asked: Option<StreamOffsets>,
    failures: u64,
    /// The time of the last log line about commands applied in spite of disk errors; `None` before
    /// the first one.
    unwritable_logged: Option<Instant>,
}

impl Applied for Receiver<'_> {
    fn take(&mut self, bytes: &[u8], db: usize, position: u64) {
        let replication = &self.shared.replication;
        let mut primary = replication.primary();
        primary.append_applied(bytes, db as u32);
        primary.note_position(position);
        let has_replicas = !primary.has_no_replicas();
        drop(primary);
        self.offsets.note_applied(bytes.len() as u64);
        if has_replicas {
            replication.notify();
        }
    }

    fn ask_ack(&mut self) {
        self.asked = Some(self.offsets);
    }

    fn fail(&mut self, command: &[u8], error: &[u8]) {
        self.failures += 1;
        self.shared.replication.upstream.failed_commands.fetch_add(1, Relaxed);
        if self.failures <= ERRORS_LOGGED_MAX {
            tracing::warn!(
                "== CRITICAL == This replica is sending an error to its master: '{}' after processing the \
                 command '{}'",
                error.escape_ascii(),
                command.escape_ascii()
            );
        }
    }

    fn note_unwritable(&mut self) {
        if self.unwritable_logged.is_none_or(|at| at.elapsed() > UNWRITABLE_LOG_INTERVAL) {
            self.unwritable_logged = Some(Instant::now());
            tracing::warn!("Replica is applying a command even though it is unable to write to disk.");
        }
    }
}

/// Applies the replication stream from the present end of the replication history on, until the
/// link ends. Returns the reason for its end. `info` represents the primary in CLIENT LIST. `epoch`
/// is the epoch of the link. `scripts` runs the scripts that old primaries send.
pub(super) fn follow(
    connection: &mut Connection<'_>,
    host: &ServerHost,
    (info, epoch): (Arc<ClientInfo>, u64),
    scripts: Box<dyn ScriptEngine>,
) -> LinkEnd {
    let shared = Arc::clone(connection.shared);
    // The role does not change meanwhile, so all these values are of one moment.
    let begin = shared.engine.gate.exclusive(|_alone| {
        let primary = shared.replication.primary();
        let db = primary.stream_db().unwrap_or(0) as usize;
        // As in Redis, if the primary has selected a database that this server lacks.
        let db = if db < shared.engine.keyspace.db_count() { db } else { 0 };
        let place = (primary.end(), db);
        let role_epoch = shared.engine.server_state.role.epoch.load(Relaxed);
        (shared.replication.upstream.epoch() == epoch).then_some((place, role_epoch))
    });
    let Some(((start, db), role_epoch)) = begin else { return LinkEnd::Superseded };
    let seed = fastrand::u64(..);
    let mut applier = Applier::new(&shared.engine, (info, db), role_epoch, seed, (SystemClock, host.clone()));
    applier.set_scripts(scripts);
    let receiver = Receiver {
        shared: &shared,
        offsets: StreamOffsets::new(start),
        asked: None,
        failures: 0,
        unwritable_logged: None,
    };
    let mut stream = Stream {
        connection,
        applier,
        receiver,
        next_ack: Instant::now(),
        has_looked: false,
        courtesy: Courtesy::default(),
    };
    stream.run()
}

/// The state of one link while the replication stream of the primary is applied.
struct Stream<'c, 't, 's> {
    connection: &'c mut Connection<'t>,
    applier: Applier<'s, SystemClock, ServerHost>,
    receiver: Receiver<'s>,
    next_ack: Instant,
    /// True if all bytes that had arrived before the requested promotion have been received since
    /// the request.
    has_looked: bool,
    courtesy: Courtesy,
}

/// The next step after all received bytes were applied as far as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextStep {
    /// Wait for more bytes of the replication stream: the next request is incomplete.
    AwaitInput,
    /// Wait for a short time: the next request of the replication stream cannot be applied at
    /// present.
    Retry,
}

impl Stream<'_, '_, '_> {
    fn run(&mut self) -> LinkEnd {
        if let Err(end) = self.serve_blocked() {
            return end;
        }
        loop {
            if let Err(end) = self.apply().and_then(|next| self.wait(next)) {
                return end;
            }
        }
    }

    /// Serves the clients that are blocked on keys which the loaded snapshot contains.
    fn serve_blocked(&mut self) -> Result<(), LinkEnd> {
        loop {
            let served = self.applier.serve_blocked();
            self.receiver.shared.wake(self.applier.outbox());
            match served {
                Ok(true) => return Ok(()),
                Ok(false) => self.connection.hold(RETRY)?,
                Err(_) => return Err(LinkEnd::Superseded),
            }
        }
    }

    /// Applies the received requests of the replication stream, as far as they are complete and can
    /// be applied. Returns the next step.
    fn apply(&mut self) -> Result<NextStep, LinkEnd> {
        let shared = self.receiver.shared;
        self.applier.set_unknown(match options::REPL_UNSUPPORTED_COMMANDS.of(&shared.config()) {
            Unsupported::Refused | Unsupported::Kept => UnknownCommands::Refuse,
            Unsupported::Skipped => UnknownCommands::Skip,
        });
        self.applier.set_disk_errors(match options::REPLICA_IGNORE_DISK_WRITE_ERRORS.of(&shared.config()) {
            true => DiskErrors::Ignore,
            false => DiskErrors::Refuse,
        });
        // A promotion waits until all that has arrived is applied.
        self.applier.set_pauses(match shared.replication.upstream.is_drain_requested() {
            true => Pauses::Ignored,
            false => Pauses::Obeyed,
        });
        let end_at_failure =
            options::PROPAGATION_ERROR_BEHAVIOR.of(&shared.config()) != OnFailedCommand::Ignore;
        self.courtesy.begin_burst(shared);
        loop {
            let now = Instant::now();
            if self.courtesy.is_due(now) {
                std::thread::yield_now();
            }
            if now >= self.next_ack || self.receiver.asked.is_some() {
                self.acknowledge();
            }
            self.note_input();
            let failures = self.receiver.failures;
            let (input, position) = self.connection.input();
            let len_bytes = input.len();
            let progressed = self.applier.apply(input, position, &mut self.receiver);
            shared.wake(self.applier.outbox());
            self.connection.consume(self.applier.take_applied());
            if end_at_failure && self.receiver.failures > failures {
                return Err(LinkEnd::Failed(
                    "A command of the primary has failed, and propagation-error-behavior is not 'ignore'"
                        .to_owned(),
                ));
            }
            match progressed {
                Ok(Progressed::Ran) => {}
                Ok(Progressed::NeedsInput(missing_bytes)) => {
                    if missing_bytes >= EXPECTED_LEN_BYTES_MIN {
                        self.connection.expect_input(self.connection.input().0.len() + missing_bytes);
                    }
                    self.connection.resume();
                    return Ok(NextStep::AwaitInput);
                }
                Ok(Progressed::Waits) => {
                    if len_bytes > WAITING_BYTES_MAX {
                        self.connection.pause();
                        self.connection.restart_timeout();
                    }
                    return Ok(NextStep::Retry);
                }
                Err(ApplyError::Superseded) => return Err(LinkEnd::Superseded),
                Err(error @ ApplyError::Unwritable) => {
                    tracing::error!("{error} The server ends. See replica-ignore-disk-write-errors.");
                    shared.persistence.is_unwritable.store(true, Relaxed);
                    shared.stop();
                    return Err(LinkEnd::Superseded);
                }
                Err(error) => return Err(LinkEnd::Failed(error.to_string())),
            }
        }
    }

    /// Waits for the time or the event that the step `next` requires.
    fn wait(&mut self, next: NextStep) -> Result<(), LinkEnd> {
        self.connection.refresh_timeout();
        if next == NextStep::Retry {
            if self.is_paused() {
                // As in Redis, the link is down at once. What was not applied is asked for again.
                self.connection.require_primary()?;
            }
            return self.connection.hold(RETRY);
        }
        let mut wait = self.next_ack.saturating_duration_since(Instant::now());
        let upstream = &self.receiver.shared.replication.upstream;
        if upstream.is_drain_requested() {
            if std::mem::replace(&mut self.has_looked, true) {
                // All that had arrived before the request is applied.
                upstream.end_drain();
                self.has_looked = false;
            }
            wait = Duration::ZERO;
        }
        if !self.connection.has_arrived()? {
            self.connection.poll(wait)?;
            self.courtesy.note_current(Instant::now());
        }
        Ok(())
    }

    /// Returns true while CLIENT PAUSE prevents the application of the replication stream. Returns
    /// false while a promotion waits, because all received bytes must then be applied.
    fn is_paused(&self) -> bool {
        let shared = self.receiver.shared;
        shared.engine.pause.is_on(unix_ms()) && !shared.replication.upstream.is_drain_requested()
    }

    /// Counts the bytes of the replication stream that were received since the last call. The input
    /// contains exactly the bytes that are not applied.
    fn note_input(&mut self) {
        let offsets = &mut self.receiver.offsets;
        let arrived = offsets.applied() + self.connection.input().0.len() as u64;
        offsets.note_read(arrived.saturating_sub(offsets.read()));
        self.receiver.shared.replication.upstream.read_offset.store(offsets.read(), Relaxed);
    }

    /// Sends an acknowledgement to the primary, with the offset that was applied at the last GETACK
    /// or is applied now.
    fn acknowledge(&mut self) {
        let offsets = self.receiver.asked.take().unwrap_or(self.receiver.offsets);
        self.next_ack = Instant::now() + ACK_INTERVAL;
        let shared = self.receiver.shared;
        let synced = shared.append_only.active().map(|_| {
            let position = shared.engine.log.released(Level::Synced);
            shared.replication.primary().offset_at(position).unwrap_or(0)
        });
        self.connection.send(&offsets.ack(synced));
    }
}

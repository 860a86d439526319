//! The applier: runs the replication stream of a primary on a replica, in order.
//!
//! ```text
//!   bytes ─► requests ─► units ─► Applier, inside the gate ─► keyspace, watchers, caches, events
//!                                        │ after each batch, still inside
//!                                        ▼
//!                                   Applied: the bytes of whole units, verbatim
//! ```
//! The *gate* is the lock that every thread shares while it runs commands; an exclusive owner of
//! the keyspace has it alone. A *unit* is a request outside a transaction, or a transaction from
//! MULTI to EXEC. Each unit runs as the request of a client does: under the locks of its keys, or
//! as the exclusive owner of the keyspace. So every reader sees the data after a whole number of
//! units, and never an older state later. The changes have the same effects as those of a client,
//! on watchers, client-side caches, keyspace events, blocked clients and subscribers. In the change
//! log they are ordinary records.
//!
//! **Applied units are reported before the thread leaves the gate.** An exclusive owner, such as
//! the point of a snapshot, therefore finds data and offset in agreement. A transaction of which
//! only a part has arrived is not reported. Its bytes stay in the input.
//!
//! **The role may change** while the thread is outside the gate. The applier compares the epoch of
//! the role each time it has entered, and applies nothing of a stream that is no longer current.
//! The epoch is also compared when a unit has become the exclusive owner (`crate::alone`).
//!
//! **Nothing expires or is evicted** for the stream: the primary sends the removals. The stream is
//! exempt from limits and refusals for clients: `maxmemory`, `replica-read-only`. While a busy
//! script of a client holds keys of a unit, the unit waits. CLIENT PAUSE delays the units of the
//! stream as it delays the requests of clients, as in Redis. [`DiskErrors`] decides if the stream
//! ends when this server cannot write to its disk.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::Args;
use commands::table::Flags;
use keyspace::gate::SharedPass;
use resp::parse::{Limits, Progress};
use stdx::ByteQueue;
use stdx::number::parse_i64;

use crate::acl::Identity;
use crate::batch::{Batch, Incoming, Source};
use crate::call::Host;
use crate::client::ClientInfo;
use crate::clock::Clock;
use crate::run::Executor;
use crate::scripting::ScriptEngine;
use crate::session::{Flow, Session};
use crate::shared::{GateSlot, Shared};
use crate::table::{KeyPlan, Registered, Runner};
use crate::threads::Outbox;
use crate::turn::{Engine, Outcome};

/// The receiver of the bytes of a replication stream that were applied to the data. It is called
/// inside the gate (the keyspace's shared lock).
pub trait Applied {
    /// Takes the bytes of whole requests and transactions that were applied, in the order of the
    /// stream. `db` is the database that is selected after them. `position` is the log position up
    /// to which the change log has the changes, if they are recorded.
    fn take(&mut self, bytes: &[u8], db: usize, position: u64);

    /// Records that the primary asks for an acknowledgement (`REPLCONF GETACK *`). All bytes before
    /// this request were passed to [`Applied::take`].
    fn ask_ack(&mut self);

    /// Records that a request of the replication stream has failed. `error` is the error line
    /// without the leading `-`.
    fn fail(&mut self, command: &[u8], error: &[u8]);

    /// Records that a write is applied although this server cannot write to its disk.
    fn note_unwritable(&mut self) {}
}

/// The progress of the applier of a replication stream in one call of [`Applier::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progressed {
    /// More bytes of the replication stream are needed. The number is the least that an incomplete
    /// request still lacks; 0 if it is unknown.
    NeedsInput(usize),
    /// A batch of the stream's requests was applied, and there may be more.
    Ran,
    /// No request of the stream can be applied now. Clients are paused, the change log has no room,
    /// the inboxes of subscribers are full, or a busy script holds the keys. The caller tries again
    /// after a short time.
    Waits,
}

/// The reason for which the replication stream of a primary cannot be applied any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The replication stream is not current: the server now follows another primary, or none.
    Superseded,
    /// The bytes of the replication stream are not a request. Contains the error line.
    Broken(String),
    /// The stream has a command that this server does not have.
    Unknown(String),
    /// The replication stream has a write, but this server cannot write to its disk
    /// ([`DiskErrors::Refuse`]).
    Unwritable,
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Superseded => f.write_str("the server does not follow this primary any more"),
            Self::Broken(line) => write!(f, "the stream is damaged: {line}"),
            Self::Unknown(name) => write!(f, "the stream has a command that this server lacks: {name}"),
            Self::Unwritable => f.write_str("Replica was unable to write command to disk."),
        }
    }
}

impl std::error::Error for ApplyError {}

/// The treatment of commands in the replication stream that this server does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownCommands {
    /// The replication stream ends with an error at a command that this server does not have.
    #[default]
    Refuse,
    /// A command that this server does not have is skipped, and reported to [`Applied::fail`].
    Skip,
}

/// The treatment of writes in the replication stream while this server cannot write to its disk:
/// the last save has failed, or the append-only file cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskErrors {
    /// The replication stream ends with [`ApplyError::Unwritable`] before the write.
    #[default]
    Refuse,
    /// Writes of the replication stream are applied, and reported ([`Applied::note_unwritable`]).
    Ignore,
}

/// The effect of CLIENT PAUSE on the replication stream of a primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pauses {
    /// Requests and transactions of the replication stream wait until the pause ends.
    #[default]
    Obeyed,
    /// Requests and transactions are applied during a pause, because the replication stream is
    /// about to end.
    Ignored,
}

/// The applier of one primary's replication stream. Only one exists at a time, and only one thread
/// uses it.
pub struct Applier<'s, C, H> {
    engine: Engine<'s, C, H>,
    session: Session,
    unknown: UnknownCommands,
    disk_errors: DiskErrors,
    pauses: Pauses,
    /// True if the disk could not be written at the time when the present batch of the replication
    /// stream began to run.
    is_unwritable: bool,
    epoch: u64,
    batch: Batch<()>,
    progress: Progress,
    /// The number of bytes at the front of the input whose requests have run or are queued in a
    /// transaction.
    run_bytes: usize,
    /// The number of bytes at the front of the input that are whole requests and transactions that
    /// were applied. They are reported to [`Applied`] before the thread leaves the gate (the
    /// keyspace's shared lock).
    applied_bytes: usize,
    /// The part of `applied_bytes` that was reported to [`Applied`], in bytes.
    reported_bytes: usize,
    /// The database that is selected after the first `applied_bytes` of the input.
    applied_db: usize,
    out: ByteQueue,
}

impl<'s, C: Clock, H: Host> Applier<'s, C, H> {
    /// Creates the applier of a replication stream that begins now, with database `db` selected.
    /// `info` is the client that represents the primary. `epoch` is the epoch of the role at which
    /// the stream began; a later change of the role ends the stream.
    pub fn new(
        shared: &'s Shared,
        (info, db): (Arc<ClientInfo>, usize),
        epoch: u64,
        seed: u64,
        host: (C, H),
    ) -> Self {
        let mut executor = Executor::with_stats(shared, (None, shared.threads.applier_stats()), seed, host);
        executor.commit.become_applier();
        executor.applied_epoch = Some(epoch);
        info.db.store(db as u64, Relaxed);
        let mut session = Session::new(info, Identity::internal());
        session.identity.refresh(&shared.acl.users);
        executor.settings = Arc::new(executor.settings.for_stream());
        Self {
            engine: Engine::new(executor),
            session,
            unknown: UnknownCommands::default(),
            disk_errors: DiskErrors::default(),
            pauses: Pauses::default(),
            is_unwritable: false,
            epoch,
            batch: Batch::default(),
            progress: Progress::default(),
            run_bytes: 0,
            applied_bytes: 0,
            reported_bytes: 0,
            applied_db: db,
            out: ByteQueue::new(),
        }
    }

    /// Sets the engine of scripts and functions. Old primaries send scripts themselves, not the
    /// effects of the scripts.
    pub fn set_scripts(&mut self, scripts: Box<dyn ScriptEngine>) {
        self.engine.executor.scripts = Some(scripts);
    }

    /// Sets the treatment of commands in the replication stream that this server does not have.
    pub fn set_unknown(&mut self, unknown: UnknownCommands) {
        self.unknown = unknown;
    }

    /// Sets the treatment of writes while the disk cannot be written.
    pub fn set_disk_errors(&mut self, disk_errors: DiskErrors) {
        self.disk_errors = disk_errors;
    }

    /// Sets the effect of CLIENT PAUSE on the replication stream.
    pub fn set_pauses(&mut self, pauses: Pauses) {
        self.pauses = pauses;
    }

    /// Returns the threads to wake because applied requests have sent them messages. The driver
    /// wakes them after each call of [`apply`](Self::apply).
    pub fn outbox(&self) -> &Outbox {
        &self.engine.executor.commit.outbox
    }

    /// Returns the number of bytes at the front of the input that were applied since the last call.
    /// The caller must drop them from the input.
    pub fn take_applied(&mut self) -> usize {
        let dropped = std::mem::take(&mut self.reported_bytes);
        self.applied_bytes -= dropped;
        self.run_bytes -= dropped;
        dropped
    }

    /// Serves the clients that are blocked on keys that exist now. A snapshot may have created
    /// these keys when it replaced all data. Called before the first [`apply`](Self::apply),
    /// outside the gate (the keyspace's shared lock). Returns false if a busy script owns the
    /// keyspace: the caller then tries again after a short time. O(keys with blocked clients).
    ///
    /// # Errors
    /// The server does not follow this primary any more.
    pub fn serve_blocked(&mut self) -> Result<bool, ApplyError> {
        let shared = self.engine.shared();
        let pass = shared.enter_gate_unless_busy(GateSlot::Applier);
        if !pass.is_inside() {
            return Ok(false);
        }
        self.begin()?;
        let executor = &mut self.engine.executor;
        executor.commit.ready_all();
        executor.serve(shared.keyspace.lock_none());
        executor.commit.broadcast();
        executor.end_turn();
        drop(pass);
        executor.commit.merge_log();
        Ok(true)
    }

    /// Applies a batch of requests from `input`. The caller is outside the gate (the keyspace's
    /// shared lock) before and after the call. `input` begins where the last input began, without
    /// the bytes that were dropped since. Its first byte has the offset `position` in the
    /// connection. O(batch).
    ///
    /// # Errors
    /// The reason for which the stream cannot be applied any further. The requests before the
    /// failing one are applied and reported, unless the stream is superseded.
    pub fn apply(
        &mut self,
        input: &[u8],
        position: u64,
        applied: &mut impl Applied,
    ) -> Result<Progressed, ApplyError> {
        let shared = self.engine.shared();
        if self.engine.executor.commit.awaits_room() || shared.pubsub.are_subscribers_full() {
            self.engine.executor.commit.await_merge();
            self.engine.executor.commit.merge_log();
            return Ok(Progressed::Waits);
        }
        self.batch.clear();
        let source = Source {
            progress: &mut self.progress,
            db: self.session.db(),
            limits: limits(),
            visit: (),
            position: position + self.run_bytes as u64,
            input: &input[self.run_bytes..],
        };
        if !self.batch.collect(source, shared) {
            let is_partial = self.run_bytes < input.len();
            return Ok(Progressed::NeedsInput(if is_partial { self.batch.missing_bytes() } else { 0 }));
        }
        let mut pass = shared.enter_gate_unless_busy(GateSlot::Applier);
        if !pass.is_inside() {
            return Ok(Progressed::Waits);
        }
        // A unit that ran as the exclusive owner is reported before another owner can run.
        pass.keep_ownership();
        let began = self.engine.executor.clock.now();
        let result = self.run_batch(input, &mut pass, applied);
        self.report(input, applied);
        self.engine.executor.commit.broadcast();
        self.engine.executor.end_turn();
        drop(pass);
        drop(self.engine.freed_replies());
        self.engine.executor.commit.merge_log();
        self.engine.executor.free_displaced_values(|clock| clock.now() - began);
        result
    }

    /// Runs the requests of a batch of the replication stream, inside the gate (the keyspace's
    /// shared lock).
    fn run_batch(
        &mut self,
        input: &[u8],
        pass: &mut SharedPass<'_>,
        applied: &mut impl Applied,
    ) -> Result<Progressed, ApplyError> {
        self.begin()?;
        let batch = std::mem::take(&mut self.batch);
        batch.prefetch(&self.engine.shared().keyspace);
        let base = self.run_bytes;
        let mut result = Ok(Progressed::Ran);
        for parsed in &batch.requests {
            let hasher = self.engine.shared().keyspace.hasher();
            let Some(request) = batch.request(parsed, &input[base..], hasher) else {
                result = Err(ApplyError::Broken(broken_line(&parsed.work)));
                break;
            };
            if pass.is_wanted() || pass.is_staying() {
                self.report(input, applied);
                self.engine.executor.commit.publish_log();
                if !pass.yield_to_owner() {
                    // A busy script owns the keyspace.
                    result = Ok(Progressed::Waits);
                    break;
                }
                if let Err(error) = self.begin() {
                    result = Err(error);
                    break;
                }
            }
            self.run_bytes = base + parsed.start + parsed.len_bytes;
            match self.run(&request, input, pass, applied) {
                Ok(Progressed::Ran) => {}
                other => {
                    result = other;
                    break;
                }
            }
        }
        // Empty lines behind the last request.
        if let (Ok(Progressed::Ran), Some(turn)) = (&result, batch.turns.first()) {
            self.run_bytes = self.run_bytes.max(base + turn.skip_to);
            if self.session.transaction.is_none() {
                self.applied_bytes = self.run_bytes;
            }
        }
        self.batch = batch;
        result
    }

    /// Checks that the server still follows the primary of the stream, and reads the clock and the
    /// settings.
    fn begin(&mut self) -> Result<(), ApplyError> {
        if !self.is_current() {
            return Err(ApplyError::Superseded);
        }
        let now = self.engine.executor.clock.now();
        self.engine.begin(now);
        self.is_unwritable = self.engine.executor.disk_refusal().is_some();
        Ok(())
    }

    /// Returns true if CLIENT PAUSE delays this request of the replication stream. An EXEC always
    /// counts as a write, because the pause may have begun after its writes were queued.
    #[inline]
    fn is_paused(&self, registered: &Registered) -> bool {
        let (pause, now_ms) = (&self.engine.shared().pause, self.engine.executor.now.unix_ms);
        let may_write = || {
            registered.command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE)
                || self.session.transaction.is_some()
        };
        pause.is_on(now_ms) && self.pauses == Pauses::Obeyed && (pause.is_on_for_all(now_ms) || may_write())
    }

    /// Returns true if the server still follows the primary of this stream. Called inside the gate
    /// (the keyspace's shared lock).
    #[inline]
    fn is_current(&self) -> bool {
        self.engine.shared().server_state.role.epoch.load(Relaxed) == self.epoch
    }

    /// Runs a request of the replication stream. `run_bytes` already includes its bytes.
    #[inline]
    fn run(
        &mut self,
        request: &Incoming<'_>,
        input: &[u8],
        pass: &mut SharedPass<'_>,
        applied: &mut impl Applied,
    ) -> Result<Progressed, ApplyError> {
        let Some(registered) = request.registered else {
            return self.skip_unknown(request, applied);
        };
        if self.is_paused(registered) {
            return Ok(self.run_again_later());
        }
        if self.is_unwritable && registered.command.flags.contains(Flags::WRITE) {
            match self.disk_errors {
                DiskErrors::Refuse => return Err(ApplyError::Unwritable),
                DiskErrors::Ignore => applied.note_unwritable(),
            }
        }
        if let Runner::Host(_) = registered.command.run
            && self.session.transaction.is_none()
            && self.run_control(request, input, applied)
        {
            return Ok(Progressed::Ran);
        }
        let may_run_alone = may_run_alone(registered, &request.args);
        if may_run_alone {
            // Other owners may run before it becomes the exclusive owner.
            self.report(input, applied);
        }
        let errors = self.engine.executor.stats().errors.get();
        let outcome = self.engine.run(&mut self.session, request, &mut self.out, pass);
        let flow = std::mem::replace(&mut self.session.flow, Flow::Running);
        if self.engine.executor.stats().errors.get() != errors {
            let waits = self.note_errors(request, applied);
            self.out.truncate(0);
            if waits {
                return Ok(self.run_again_later());
            }
        }
        self.out.truncate(0);
        // The role may have changed while the unit waited to be the exclusive owner. A unit that
        // writes is postponed then. One that does not, such as a transaction of PUBLISH, has run.
        if outcome == Outcome::Postponed || (may_run_alone && !self.is_current()) {
            return Err(ApplyError::Superseded);
        }
        if self.session.transaction.is_none() {
            (self.applied_bytes, self.applied_db) = (self.run_bytes, self.session.db());
        }
        match flow {
            Flow::AwaitingSubscribers => Ok(Progressed::Waits),
            Flow::Blocked => {
                // No primary sends such a command outside a transaction.
                let shared = self.engine.shared();
                shared.blocked.unblock(&shared.keyspace, &self.session.info);
                applied.fail(request.args.get(0), b"ERR a command of the stream would block");
                Ok(Progressed::Ran)
            }
            _ => Ok(Progressed::Ran),
        }
    }

    /// Runs a request of the replication stream that changes no data (PING, REPLCONF and similar
    /// ones), outside a transaction. Returns false, and runs nothing, for any other request.
    fn run_control(&mut self, request: &Incoming<'_>, input: &[u8], applied: &mut impl Applied) -> bool {
        let args = &request.args;
        match request.registered.map(|registered| registered.full_name) {
            Some("select") => {
                let count = self.engine.shared().keyspace.db_count();
                let db = args.try_get(1).and_then(parse_i64).and_then(|db| usize::try_from(db).ok());
                let Some(db) = db.filter(|&db| db < count) else { return false };
                self.session.info.db.store(db as u64, Relaxed);
            }
            Some("ping") => {}
            Some("replconf") => {
                if args.len() > 1 && args.is(1, "GETACK") {
                    // The offset of the acknowledgement is that before the request, as in Redis.
                    self.report(input, applied);
                    applied.ask_ack();
                }
            }
            _ => return false,
        }
        (self.applied_bytes, self.applied_db) = (self.run_bytes, self.session.db());
        true
    }

    /// Reports to `applied` the bytes of the requests and transactions that were applied since the
    /// last report.
    fn report(&mut self, input: &[u8], applied: &mut impl Applied) {
        if self.applied_bytes > self.reported_bytes {
            let bytes = &input[self.reported_bytes..self.applied_bytes];
            applied.take(bytes, self.applied_db, self.engine.shared().log.drawn());
            self.reported_bytes = self.applied_bytes;
        }
    }

    /// Makes the current request or transaction of the replication stream run again later, from its
    /// beginning. It has changed nothing so far.
    fn run_again_later(&mut self) -> Progressed {
        self.session.drop_transaction();
        self.session.info.db.store(self.applied_db as u64, Relaxed);
        self.progress = Progress::default();
        self.run_bytes = self.applied_bytes;
        Progressed::Waits
    }

    /// Reports the errors of a request of the replication stream to `applied`. Returns true if the
    /// request did not run because of a busy script.
    #[cold]
    fn note_errors(&mut self, request: &Incoming<'_>, applied: &mut impl Applied) -> bool {
        // The old value that SET … GET replies with may be a piece of its own.
        let pieces = self.out.io_slices(usize::MAX);
        let reply = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
        let busy: [&[u8]; 2] = [b"-BUSY ", b"-EXECABORT Transaction discarded because of: BUSY "];
        if busy.iter().any(|busy| reply.starts_with(busy)) {
            return true;
        }
        // The reply to EXEC has an error for each command that failed.
        for line in reply.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"-")) {
            applied.fail(request.args.get(0), line[1..].trim_ascii_end());
        }
        false
    }

    #[cold]
    fn skip_unknown(
        &mut self,
        request: &Incoming<'_>,
        applied: &mut impl Applied,
    ) -> Result<Progressed, ApplyError> {
        let name = request.args.get(0).escape_ascii().to_string();
        match self.unknown {
            UnknownCommands::Refuse => Err(ApplyError::Unknown(name)),
            UnknownCommands::Skip => {
                applied.fail(request.args.get(0), b"ERR unknown command");
                if self.session.transaction.is_none() {
                    self.applied_bytes = self.run_bytes;
                }
                Ok(Progressed::Ran)
            }
        }
    }
}

/// Returns true if a request of the replication stream may need to run as the exclusive owner of
/// the keyspace.
#[inline]
fn may_run_alone(registered: &Registered, args: &Args<'_>) -> bool {
    match registered.command.run {
        Runner::Data(_) => registered.key_plan == KeyPlan::None || registered.command.runs_alone(args),
        Runner::Host(_) => false,
        Runner::Walk(_) | Runner::Transaction(_) | Runner::Script(_) => true,
    }
}

/// Returns the limits for requests of a primary: those of the protocol.
fn limits() -> Limits {
    Limits { bulk_len_max: i64::MAX as u64, ..Limits::default() }
}

/// Returns the error line for bytes of the replication stream that are not a request.
fn broken_line(work: &crate::batch::Work) -> String {
    match work {
        crate::batch::Work::Broken(error) => String::from_utf8_lossy(&error.error_line()).into_owned(),
        crate::batch::Work::Run | crate::batch::Work::Inline(_) => String::new(),
    }
}

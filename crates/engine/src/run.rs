//! The single path on which commands run: [`Executor::run_one`] runs a client's request, a queued
//! command, or a blocked client's request.
//!
//! ```text
//!   request ─► shards locked ─► run_one ─► blocked? queued at its keys ─► released
//!                                                  unlocked ◄─ ready keys served ◄┘
//! ```
//! **Serving** a blocked client runs its request by its command's own handler, as one unit of the
//! change log. The reply goes to the client's thread before the writer's own reply is sent. Serving
//! may need more than the writer's keys: BLPOP's other keys, or BLMOVE's destination and the keys
//! of the clients that wait for it. They are found and locked before the writer runs
//! ([`lock_blocked_clients_keys`]), for as many clients as the command adds elements. A write and
//! the serving that it causes are therefore one step for all other clients.
//!
//! More keys are needed in three cases: a key is removed by expiry or eviction; a command adds more
//! elements than it has arguments (RENAME); the request of a blocked client fails, so that the next
//! client gets the element. Then the locks are released, the locks of the key and of the missing
//! keys are taken in ascending order, and serving continues with the queue as it is then. Other
//! clients may see the keys after the write and before this serving, but never within a request.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::table::{Command, Flags};
use commands::{Args, Awaited, BlockingKey, BlockingMode, CommandError, Ctx, Origin, ReadableKeys, Wait};
use keyspace::access::Access;
use keyspace::key::{KeyHash, shard_of};
use keyspace::view::{AccessContext, ExpiredAccess, View};
use keyspace::{Hasher, Key, Locked};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::claim::Claim;
use structures::entry::View as EntryView;

use crate::call::{Call, DataAccess, Host};
use crate::check::Effect;
use crate::client::{ClientInfo, Mode};
use crate::clock::Clock;
use crate::commit::{Commit, Held, ReadyKey, Unit};
use crate::debugging::Debugged;
use crate::expiry_rule::ExpiryRule;
use crate::meter::Meter;
use crate::owned_args::OwnedArgs;
use crate::pass::TurnPass;
use crate::request::Request;
use crate::script_buffers::ScriptBuffers;
use crate::script_refusals::ScriptRefusals;
use crate::scripting::ScriptEngine;
use crate::searches::Searches;
use crate::session::{Flow, Session};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::stats::latency_events::Event;
use crate::stats::{CommandCounters, ThreadStats};
use crate::table::{HostCommand, Registered, Runner};
use crate::threads::Delivery;
use crate::track::TrackingClient;
use crate::wait::{BlockedClient, BlockedKey, DestinationKey, deadline_ms};

/// The hashes of the keys of one request, or of further keys to lock for it.
type Hashes = SmallVec<[KeyHash; 4]>;

/// The maximum number of searches, before a writer runs, for the keys that serving blocked clients
/// may need. Keys that are still missing then are locked when the clients are served.
const LOCK_ATTEMPTS_MAX: usize = 4;

/// The executor of one thread: it runs commands, and has all state except the connections.
pub struct Executor<'s, C, H> {
    /// The [`Commit`], which collects the changes of this thread's commands for other clients.
    pub commit: Commit<'s>,
    /// The host, which runs the commands about the server that the engine does not implement.
    pub host: H,
    /// The source of the current time.
    pub clock: C,
    /// The times and rules that are the same for all requests of a turn (a pass of the event loop).
    pub now: Now,
    /// The server's settings at the start of the turn (pass of the event loop).
    pub settings: Arc<Settings>,
    settings_version: u64,
    /// The searches of this thread that have not ended.
    pub searches: Searches,
    /// The script engine of this thread; `None` on threads that run no scripts.
    pub scripts: Option<Box<dyn ScriptEngine>>,
    /// The buffers that the commands of scripts reuse; `None` while a script has them.
    pub(crate) script_buffers: Option<Box<ScriptBuffers>>,
    /// The origin of the running commands: a client, or its script.
    pub(crate) origin: Origin,
    /// The mode in which scripts run: normally, or debugged.
    pub(crate) debugged: Debugged<'s>,
    /// The counts of refused commands of the running script.
    pub(crate) script_refusals: ScriptRefusals,
    /// True if memory was over its limit when the running script began.
    pub script_lacks_memory: bool,
    /// The random number generator of this thread.
    pub rng: fastrand::Rng,
    /// The counters of commands that only this thread reads.
    pub meter: Meter,
    /// The statistics counters of this thread, which other threads read.
    stats: &'s ThreadStats,
    /// True if the last request was an EXEC that itself dropped replies (CLIENT REPLY).
    pub exec_filtered_replies: bool,
    /// The number of bytes of lazy freed values that this thread must itself help to free.
    pub unfreed_bytes: u64,
    /// True while the thread is inside the gate (the keyspace's shared lock), where shards may be
    /// locked: not while a busy script owns the keyspace.
    pub is_inside: bool,
    /// The epoch of the server's role (the number of its changes) at which the applied replication
    /// stream began. `None` unless this is the executor of the applier.
    pub(crate) applied_epoch: Option<u64>,
    /// True if requests may have to be delayed or refused, as determined by the last call of
    /// [`look_at_refusals`](Self::look_at_refusals).
    pub(crate) may_hold_back: bool,
}

/// The times and rules that are the same for all requests of a turn (a pass of the event loop).
pub struct Now {
    /// Unix time in milliseconds. It is read once per turn, before each script and transaction
    /// (each sees one time), after long work, and before blocked clients are served. A key that
    /// expires during a long command or transaction therefore serves no blocked client.
    pub unix_ms: i64,
    /// The Unix time in microseconds, from the same reading of the clock as `unix_ms`. TIME shows
    /// it to scripts and transactions.
    pub unix_us: i64,
    /// The server's monotonic clock, in milliseconds: one reading per turn.
    pub uptime_ms: u64,
    /// The present time for the access clocks of keys (LRU), with the parameters of LFU if the
    /// policy counts accesses.
    pub access: Access,
    /// The rule by which commands of this turn treat expired keys.
    pub expiry_rule: ExpiryRule,
    /// True if any client uses MONITOR, so that commands are sent to it.
    pub is_monitored: bool,
    /// The epoch of the server's role (the number of its changes) when the requests were checked.
    pub role_epoch: u64,
}

/// The caller of a command: its client, and the modes in which the command accesses keys.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// The id of the client that calls the command.
    pub client: u64,
    /// The client to show to clients that use MONITOR; `None` while a blocked client is served.
    pub shown: Option<&'a ClientInfo>,
    /// The number of the caller's selected database.
    pub db: usize,
    /// The protocol (RESP2 or RESP3) of the reply.
    pub protocol: Protocol,
    /// True if reads update the access clocks of keys; false under CLIENT NO-TOUCH.
    pub touch: bool,
    /// The treatment of expired keys that the command accesses.
    pub expired_access: ExpiredAccess,
    /// The action if the command finds no data: it replies, or it blocks its client or leaves the
    /// client blocked.
    pub on_empty: BlockingMode,
    /// The origin of the command: the client, or its script.
    pub origin: Origin,
    /// The keys that access control permits the client to read.
    pub readable: ReadableKeys,
    /// The client, if it tracks the keys that this command reads (client-side caching).
    pub reader: Option<&'a Arc<TrackingClient>>,
    /// The fieldsets of the client's session. `None` while a blocked client is served.
    pub field_sets: Option<&'a commands::FieldSets>,
}

/// Locks, in addition to `locked`, all keys that serving blocked clients may use: for each of
/// `keys`, the first `served_max` clients blocked on it. `keys` are those of a command that has not
/// run yet. Returns `None`, with nothing locked, if a busy script holds one of the shards. O(keys +
/// visited clients).
#[cold]
pub fn lock_blocked_clients_keys<'k>(
    shared: &'k Shared,
    mut locked: Locked<'k>,
    keys: &[Key<'_>],
    served_max: usize,
) -> Option<Locked<'k>> {
    let Shared { keyspace, blocked, .. } = shared;
    if blocked.blocked_clients().load(Relaxed) == 0 {
        return Some(locked);
    }
    for _ in 0..LOCK_ATTEMPTS_MAX {
        let hashes = blocked.keys_to_lock(keys.iter().copied(), served_max);
        if locked.holds(hashes.iter().copied()) {
            break;
        }
        // Other clients may have become blocked in the meantime, so the search is repeated.
        locked = keyspace.relock_unless_busy(locked, hashes.into_iter())?;
    }
    Some(locked)
}

/// Locks keys as [`lock_blocked_clients_keys`] does for one command, if the command writes.
#[cold]
fn lock_for_command<'k>(shared: &'k Shared, locked: Locked<'k>, request: &Request<'_>) -> Option<Locked<'k>> {
    if !request.registered.command.flags.contains(Flags::WRITE) {
        return Some(locked);
    }
    let keys: SmallVec<[Key<'_>; 4]> = request.named_keys().collect();
    lock_blocked_clients_keys(shared, locked, &keys, served_max_of(request))
}

/// Returns the maximum number of blocked clients that a command may serve at each of its keys. It
/// is the number of arguments after the keys, and at least one (for a moved element).
pub fn served_max_of(request: &Request<'_>) -> usize {
    let key_count = request.keys.as_slice().len();
    request.args.len().saturating_sub(1 + key_count).max(1)
}

/// Returns the tracking client of this session if the command's reads must be tracked.
#[inline]
fn reader_of<'a>(session: &'a Session, registered: &Registered) -> Option<&'a Arc<TrackingClient>> {
    let tracker = session.tracking.as_deref()?;
    if !registered.command.flags.contains(Flags::READONLY) {
        return None;
    }
    let mode = session.info.tracking.mode();
    let given = mode.contains(Mode::CACHING);
    let opted_out = (mode.contains(Mode::OPTIN) && !given) || (mode.contains(Mode::OPTOUT) && given);
    (!mode.contains(Mode::BCAST) && !opted_out).then_some(&tracker.reader)
}

/// Returns the keys on which a request blocks its client, without duplicates, and the other keys
/// that the request names. O(keys).
fn keys_of_wait(
    request: &Request<'_>,
    awaited: Vec<BlockingKey>,
    hasher: &Hasher,
) -> (Vec<BlockedKey>, Vec<DestinationKey>) {
    let mut named: HashSet<&[u8]> = HashSet::with_capacity(awaited.len());
    let is_first: Vec<bool> = awaited.iter().map(|awaited| named.insert(&awaited.key)).collect();
    let mut destinations = Vec::new();
    for Key { bytes, hash } in request.named_keys() {
        if named.insert(bytes) {
            destinations.push(DestinationKey { hash, key: bytes.into() });
        }
    }
    let first = awaited.into_iter().zip(is_first).filter(|(_, is_first)| *is_first);
    let keys = first.map(|(BlockingKey { key, awaited }, _)| BlockedKey {
        hash: hasher.hash_key(&key),
        key,
        awaited,
    });
    (keys.collect(), destinations)
}

/// A ready key whose queue of blocked clients is being served.
struct Serving {
    key: ReadyKey,
    /// The queue position of the first blocked client that has not been visited yet.
    from: u64,
    /// The queue position of the last client to serve. So a change runs a request only once.
    up_to: u64,
}

impl<'s, C: Clock, H: Host> Executor<'s, C, H> {
    /// Creates the executor of I/O thread `thread`, or of the housekeeper for `None`. `seed` is the
    /// seed of the random numbers.
    pub fn new(shared: &'s Shared, thread: Option<usize>, seed: u64, host: (C, H)) -> Self {
        Self::with_stats(shared, (thread, shared.threads.stats(thread)), seed, host)
    }

    /// Creates the executor of a thread that counts in `stats`, not in its I/O thread's counters.
    pub fn with_stats(
        shared: &'s Shared,
        (thread, stats): (Option<usize>, &'s ThreadStats),
        seed: u64,
        (clock, host): (C, H),
    ) -> Self {
        Self {
            commit: Commit::new(shared, thread, seed),
            host,
            now: Now {
                unix_ms: 0,
                unix_us: 0,
                uptime_ms: 0,
                access: Access::Lru { clock_s: 0 },
                expiry_rule: ExpiryRule::Usual,
                is_monitored: false,
                role_epoch: 0,
            },
            settings: shared.settings.get(),
            settings_version: 0,
            searches: Searches::default(),
            scripts: None,
            script_buffers: None,
            origin: Origin::Client,
            debugged: Debugged::Not,
            script_refusals: ScriptRefusals::default(),
            script_lacks_memory: false,
            rng: fastrand::Rng::with_seed(seed),
            meter: Meter::new(shared.table.id_count(), clock.now()),
            stats,
            exec_filtered_replies: false,
            unfreed_bytes: 0,
            is_inside: true,
            applied_epoch: None,
            may_hold_back: false,
            clock,
        }
    }

    /// Returns the state that all threads of the engine share.
    #[inline]
    pub fn shared(&self) -> &'s Shared {
        self.commit.shared
    }

    /// Returns the index of the I/O thread for client requests. A debugged script and the applier
    /// of a primary's replication stream have threads of their own. Their commands get the index of
    /// the first I/O thread.
    #[inline]
    pub fn thread(&self) -> usize {
        match self.debugged {
            Debugged::Not => self.commit.thread.unwrap_or(0),
            Debugged::Alone | Debugged::Apart(_) => 0,
        }
    }

    /// Returns the statistics counters of this thread, which other threads read.
    #[inline]
    pub fn stats(&self) -> &'s ThreadStats {
        self.stats
    }

    /// Returns this thread's statistics counters of a command.
    #[inline]
    pub fn counters(&self, registered: &Registered) -> &'s CommandCounters {
        &self.stats().commands[registered.id]
    }

    /// Returns the treatment of expired keys for this command of this client.
    #[inline]
    pub fn expired_access(&self, client: &ClientInfo, command: &Command<Runner>) -> ExpiredAccess {
        let rule = self.now.expiry_rule;
        let imports = || match rule {
            // As in Valkey, a client of a replica imports nothing.
            ExpiryRule::Replica => self.applied_epoch.is_some(),
            _ => self.settings.import_mode && client.choices.import_source.load(Relaxed),
        };
        if rule == ExpiryRule::Usual { ExpiredAccess::Remove } else { rule.access(command, imports) }
    }

    /// Returns the time, in Unix milliseconds, up to which a watched key's deadline counts as
    /// passed for this client. While `import-mode` is on, no deadline counts as passed for an
    /// importing client.
    #[inline]
    pub fn due_ms(&self, client: &ClientInfo) -> i64 {
        let may_import = self.settings.import_mode && self.now.expiry_rule != ExpiryRule::Replica;
        if may_import && client.choices.import_source.load(Relaxed) {
            i64::MIN
        } else {
            // A key is still live in the millisecond of its deadline.
            self.now.unix_ms - 1
        }
    }

    /// Returns the caller for a request of this client. `mode` is the action if the command finds
    /// no data. Always inlined, because most callers need only some of the fields.
    #[inline(always)]
    pub fn caller<'a>(&self, session: &'a Session, request: &Request<'_>, mode: BlockingMode) -> Caller<'a> {
        Caller {
            client: session.id,
            shown: self.now.is_monitored.then_some(&*session.info),
            db: session.db(),
            protocol: session.protocol(),
            touch: !session.is_no_touch(),
            expired_access: self.expired_access(&session.info, &request.registered.command),
            on_empty: mode,
            origin: self.origin,
            readable: self.readable_keys(session, request),
            reader: reader_of(session, request.registered),
            field_sets: Some(&session.field_sets),
        }
    }

    /// Returns the context of a caller's accesses to keys: the turn's time and the caller's modes.
    pub(crate) fn access_context(&self, caller: &Caller<'_>) -> AccessContext {
        AccessContext {
            now_ms: self.now.unix_ms,
            touch: caller.touch,
            access: self.now.access,
            expired_access: caller.expired_access,
        }
    }

    /// Returns the context in which the keys of an undone script are restored. In it, accesses do
    /// not update the keys' access clocks.
    pub(crate) fn undo_context(&self) -> AccessContext {
        AccessContext {
            now_ms: self.now.unix_ms,
            touch: false,
            access: self.now.access,
            expired_access: ExpiredAccess::Show,
        }
    }

    /// Runs a data command on locked shards: calls its handler, writes its error, and collects the
    /// messages for other clients. The caller records the command in the change log. Returns true
    /// if the command succeeded. Every data command runs through this function.
    #[inline]
    pub fn run_one(
        &mut self,
        locked: &mut Locked<'_>,
        caller: &Caller<'_>,
        handler: commands::Handler,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) -> bool {
        let reply = Reply::new(out, caller.protocol);
        let before = reply.mark();
        let access_context = self.access_context(caller);
        self.commit.begin_record();
        // A scope ends the borrow. A call of `drop` would move the whole context.
        let (result, missed_lock) = {
            let mut ctx = Ctx {
                db: View::new(
                    &self.commit.shared.keyspace,
                    locked,
                    caller.db,
                    access_context,
                    &mut self.commit.access_results,
                ),
                reply,
                effects: &mut self.commit.effects,
                rng: &mut self.rng,
                limits: &self.settings.limits,
                on_empty: caller.on_empty,
                origin: caller.origin,
                readable: caller.readable,
                field_sets: caller.field_sets,
            };
            let result = handler(&mut ctx, &request.args);
            let missed_lock = ctx.db.has_missed_lock();
            if result.is_err() || missed_lock {
                ctx.reply.truncate(before);
            }
            (result, missed_lock)
        };
        if self.commit.has_changes() || caller.reader.is_some() {
            self.collect(locked, caller, request);
        }
        let result = if missed_lock { Err(self.count_undeclared_key(&request.args)) } else { result };
        match result {
            Ok(()) => true,
            Err(error) => {
                self.fail(request.registered, caller.protocol, error, out);
                false
            }
        }
    }

    /// Counts a command that has failed, and replies with its error.
    #[cold]
    pub fn fail(
        &self,
        registered: &Registered,
        protocol: Protocol,
        error: CommandError,
        out: &mut ByteQueue,
    ) {
        self.counters(registered).failed.add(1);
        self.refuse(protocol, error, out);
    }

    /// Replies with an error for a request, and counts it by its error code.
    #[cold]
    pub fn refuse(&self, protocol: Protocol, error: CommandError, out: &mut ByteQueue) {
        let line = error.line();
        self.stats().errors.add(1);
        self.shared().errors.count(&line);
        Reply::new(out, protocol).error_bytes(&line);
    }

    /// Counts a request whose handler used a key that the command table does not declare (a defect
    /// of this server). Logs it if the count is a power of two. Returns the error to reply with.
    #[cold]
    fn count_undeclared_key(&mut self, args: &Args<'_>) -> CommandError {
        self.commit.effects.wait = None;
        self.commit.effects.search = None;
        let count = &self.stats().unexpected_errors;
        count.add(1);
        if count.get().is_power_of_two() {
            tracing::error!(
                command = %args.get(0).escape_ascii(),
                arguments = args.len(),
                "a command used a key that it does not declare: please report this bug of the server"
            );
        }
        CommandError::UndeclaredKey
    }

    /// Collects the changes of a command after it ran, also inside a transaction, and tracks its
    /// reads for the client's cache.
    #[cold]
    fn collect(&mut self, locked: &mut Locked<'_>, caller: &Caller<'_>, request: &Request<'_>) {
        // Expired keys found by a client that stays blocked are not a change by that client.
        let runs_in_vain = caller.on_empty == BlockingMode::StayBlocked && self.commit.effects.wait.is_some();
        let client = if runs_in_vain { 0 } else { caller.client };
        self.commit.collect(&mut Held::Locked(locked), client);
        if let Some(reader) = caller.reader {
            self.track_reads(locked, reader, request);
        }
    }

    /// Records the keys that a command has read in the tracking tables, for its client.
    fn track_reads(&mut self, locked: &mut Locked<'_>, reader: &Arc<TrackingClient>, request: &Request<'_>) {
        let tracking = &self.shared().tracking;
        for key in request.named_keys() {
            if let Some(shard) = locked.shard_of_mut(key.hash) {
                tracking.remember(shard, key, reader);
                if tracking.keys() > self.settings.tracking_keys_max {
                    tracking.forget_another(self.commit.sender(), shard, key, self.rng.u64(..));
                }
            }
        }
    }

    /// Runs a client's data command as one unit of the change log. Returns true if it succeeded.
    #[inline]
    pub fn run_data(
        &mut self,
        session: &mut Session,
        handler: commands::Handler,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let shared = self.shared();
        if request.registered.command.runs_alone(&request.args) {
            return self.run_data_alone(session, handler, request, out, pass);
        }
        let Some(mut locked) = request.keys.lock_unless_busy(&shared.keyspace) else {
            return self.refuse_busy(session, request.registered, out);
        };
        if locked.has_registrations() {
            match lock_for_command(shared, locked, request) {
                Some(all) => locked = all,
                None => return self.refuse_busy(session, request.registered, out),
            }
        }
        self.run_unit(locked, session, handler, request, out)
    }

    /// Runs a command that names keys by patterns, as the exclusive owner with all shards locked.
    #[cold]
    fn run_data_alone(
        &mut self,
        session: &mut Session,
        handler: commands::Handler,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let done = self.alone(pass, Effect::of(request.registered.command.flags), |it, _pass| {
            let locked = it.shared().keyspace.lock_all();
            it.run_unit(locked, session, handler, request, out)
        });
        done.unwrap_or_else(|reason| self.give_up(session, request.registered, reason, out))
    }

    #[inline]
    fn run_unit(
        &mut self,
        mut locked: Locked<'s>,
        session: &mut Session,
        handler: commands::Handler,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) -> bool {
        let caller = self.caller(session, request, BlockingMode::Block);
        let done = self.run_one(&mut locked, &caller, handler, request, out);
        if self.commit.effects.record.is_wanted {
            self.commit.log_command(caller.db, &request.args, &locked);
            session.saw(self.commit.position);
            session.wrote(self.commit.own_position);
        }
        if self.commit.is_pending() || self.commit.effects.leaves_reply() || self.now.is_monitored {
            self.end_unit(locked, session, request, out);
        }
        done
    }

    /// Ends a data command: blocks its client if the command requests it, and sends the messages
    /// about its changes. Then sends the command to monitors, serves clients blocked on changed
    /// keys, and runs the search that the command has left.
    #[cold]
    fn end_unit(
        &mut self,
        mut locked: Locked<'s>,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
    ) {
        if let Some(wait) = self.commit.effects.wait.take() {
            self.block(&mut locked, session, request, wait);
        }
        self.commit.release(session.id);
        if self.now.is_monitored {
            // A client receives a command's events before its MONITOR line, as in Redis.
            self.monitor(&session.info, request.registered, &request.args);
        }
        self.serve(locked);
        if let Some(search) = self.commit.effects.search.take() {
            self.run_search(search, session, request, out);
        }
    }

    /// Runs a command of the host. Returns true if it succeeded. No shard is locked.
    pub fn run_host(
        &mut self,
        session: &mut Session,
        command: HostCommand,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let succeeded = self.run_harmless(session, command, request, out, pass);
        // CONFIG SET takes effect for the next command, which may be in the same turn.
        self.take_settings();
        succeeded
    }

    /// Runs a command of the host as [`Executor::run_host`] does. The command must change no
    /// settings and publish nothing, since it may run in a script that holds locks.
    pub(crate) fn run_harmless(
        &mut self,
        session: &mut Session,
        command: HostCommand,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let protocol = session.protocol();
        let before = out.len_bytes();
        let caller = self.caller(session, request, BlockingMode::Reply);
        let access_context = self.access_context(&caller);
        let (client, thread) = (session.id, self.thread());
        let unit = if session.in_exec { Unit::Transaction } else { Unit::Own };
        if unit == Unit::Own {
            // The command's messages must not be sent before the changes that its client has seen.
            self.commit.position = session.observed_position();
            self.commit.own_position = 0;
        }
        let call = Call {
            settings: &self.settings,
            session: &mut *session,
            registered: request.registered,
            reply: Reply::new(out, protocol),
            thread,
            pass,
            rng: &mut self.rng,
            data: DataAccess {
                commit: &mut self.commit,
                access_context,
                unix_us: self.now.unix_us,
                client,
                unit,
            },
        };
        let result = self.host.run(command, call, &request.args);
        if result.is_err() {
            out.truncate(before);
        }
        session.saw(self.commit.position);
        if unit == Unit::Own {
            session.wrote(self.commit.own_position);
        }
        match result {
            Ok(()) => true,
            Err(error) => {
                self.fail(request.registered, protocol, error, out);
                false
            }
        }
    }

    /// Sends the messages about changes of released shards, and serves blocked clients.
    #[inline]
    pub fn end_unlocked(&mut self, client: u64) {
        if self.commit.has_changes() {
            self.commit.collect(&mut Held::None, client);
        }
        if self.commit.is_pending() {
            self.release_unlocked(client);
        }
    }

    #[cold]
    fn release_unlocked(&mut self, client: u64) {
        self.commit.release(client);
        self.serve(self.shared().keyspace.lock_none());
    }

    /// Blocks a client: puts it into the queues of the keys that it waits for, all of which are
    /// locked. O(keys), one look-up each.
    fn block(&mut self, locked: &mut Locked<'_>, session: &mut Session, request: &Request<'_>, wait: Wait) {
        let Shared { blocked: all, keyspace, .. } = self.shared();
        let registered = request.registered;
        let (keys, destinations) = keys_of_wait(request, wait.wait_for.keys, keyspace.hasher());
        let other_request =
            wait.wait_for.request.map(|words| OwnedArgs::new(words.iter().map(|word| &**word)));
        let args = OwnedArgs::new(request.args.from(0));
        let has_messages = session.subscriptions.is_some() || session.tracking.is_some();
        let ticket = all.next_ticket(locked);
        let blocked = Arc::new(BlockedClient {
            ticket,
            place: ticket.into(),
            client: session.id,
            thread: self.thread(),
            conn: session.conn,
            db: session.db(),
            protocol: session.protocol(),
            touch: !session.is_no_touch(),
            is_import_source: session.info.choices.import_source.load(Relaxed),
            identity: session.identity.clone(),
            registered,
            empty: wait.empty,
            // Uses the current time: the turn may have begun long before.
            deadline_ms: wait
                .timeout_ms
                .map(|timeout_ms| deadline_ms(self.shared().uptime(self.clock.now()), timeout_ms)),
            awaited_position: 0,
            held_bytes: args.len_bytes()
                + other_request.as_ref().map_or(0, OwnedArgs::len_bytes)
                + keys.iter().map(BlockedKey::held_bytes).sum::<usize>(),
            args,
            request: other_request,
            reader: reader_of(session, registered).cloned(),
            listener: (has_messages && !session.is_silenced()).then(|| Arc::clone(&session.info)),
            first_shard_keys: keys
                .iter()
                .take_while(|key| shard_of(key.hash) == shard_of(keys[0].hash))
                .count(),
            keys,
            destinations,
            over: Claim::default(),
        });
        for (index, key) in blocked.keys.iter().enumerate() {
            let shard = locked.shard_of_mut(key.hash).expect("a command waits for keys that it declares");
            all.add_blocked(shard, &blocked, index);
        }
        session.flow = Flow::Blocked;
        all.block(&session.info, blocked);
    }

    /// Serves the clients blocked on ready keys, and those blocked on keys that serving changes;
    /// then releases the locks. Keys for which the held locks suffice are served first, before
    /// other threads can take their elements. If no lock is held, as after a command of the
    /// exclusive owner, keys are served in the order in which they became ready.
    pub fn serve(&mut self, mut locked: Locked<'s>) {
        let shared = self.shared();
        let is_unlocked = locked.numbers().next().is_none();
        let mut ready: VecDeque<Serving> = VecDeque::new();
        let mut later: VecDeque<(Serving, Hashes)> = VecDeque::new();
        loop {
            while later.is_empty() || !is_unlocked {
                // A visit of a queue may have removed its expired key. This is a change, too, but
                // not by the command of a client.
                if self.commit.has_changes() {
                    self.commit.collect(&mut Held::Locked(&mut locked), 0);
                    if self.commit.effects.record.is_wanted {
                        self.commit.record_commands(None);
                        self.commit.log_unit(&locked);
                    }
                    self.commit.release(0);
                }
                let up_to = shared.blocked.last_ticket();
                ready.extend(self.commit.take_ready().into_iter().map(|key| Serving { key, from: 0, up_to }));
                let Some(mut key) = ready.pop_front() else { break };
                self.read_clock();
                if let Some(needed) = self.serve_key(&mut locked, &mut key) {
                    later.push_back((key, needed));
                }
            }
            let Some((key, needed)) = later.pop_front() else { return };
            // Released before others are taken, since locks are taken in ascending order only.
            drop(locked);
            locked = shared.keyspace.lock_all_of(needed.into_iter());
            ready.push_front(key);
        }
    }

    /// Serves the clients blocked on a key, as long as it has elements. Returns the hashes of the
    /// keys to lock if more locks are needed. O(clients that are served, have ended, or stay
    /// blocked).
    fn serve_key(&mut self, locked: &mut Locked<'_>, serving: &mut Serving) -> Option<Hashes> {
        let Serving { key, from, up_to } = serving;
        if !locked.holds(std::iter::once(key.hash)) {
            return Some(Hashes::from_slice(&[key.hash]));
        }
        let all = &self.shared().blocked;
        loop {
            // The types are checked first: clients that cannot be served must not request locks, or
            // two of them could restart the serving forever. A client that stays blocked is
            // requeued behind `up_to`.
            let met = self.available_types(locked, key);
            let met = |awaited| met[awaited as usize];
            let shard = locked.shard_of_mut(key.hash).expect("it is locked: looked at above");
            let (place, blocked, index) =
                all.next_blocked(shard, (key.db, key.key()), *from..=*up_to, met)?;
            *from = place;
            if !blocked.over.is_over() && !locked.holds(blocked.keys_when_served(index)) {
                return Some(blocked.keys_when_served(index).collect());
            }
            *from += 1;
            // A client whose wait has ended may still be in the queue until its thread removes it.
            let is_over = all.end_if(&blocked, || self.reply_for(locked, &blocked)) || blocked.over.is_over();
            if is_over && let Some(shard) = locked.shard_of_mut(key.hash) {
                all.remove_blocked(shard, &blocked, index);
            }
        }
    }

    /// Returns a flag for each type in [`Awaited::ALL`]: true if the key's value can serve clients
    /// that wait for this type. The shard is locked.
    fn available_types(&mut self, locked: &mut Locked<'_>, key: &ReadyKey) -> [bool; Awaited::ALL.len()] {
        let access_context = AccessContext {
            now_ms: self.now.unix_ms,
            touch: false,
            access: self.now.access,
            expired_access: self.now.expiry_rule.access_before_serving(),
        };
        let keyspace = &self.shared().keyspace;
        self.commit.begin_record();
        let mut view = View::new(keyspace, locked, key.db, access_context, &mut self.commit.access_results);
        let entry = view.peek(key.key());
        let object = entry.as_ref().and_then(|entry| match entry.view() {
            EntryView::Object(object) => Some(object),
            EntryView::Bytes(_) | EntryView::Int(_) => None,
        });
        Awaited::ALL.map(|awaited| awaited.is_satisfied_by(object))
    }

    /// Returns the caller for the request of a blocked client.
    pub(crate) fn caller_of<'a>(&self, blocked: &'a BlockedClient, mode: BlockingMode) -> Caller<'a> {
        let is_replica = self.now.expiry_rule == ExpiryRule::Replica;
        let imports = || self.settings.import_mode && !is_replica && blocked.is_import_source;
        Caller {
            client: blocked.client,
            shown: None,
            db: blocked.db,
            protocol: blocked.protocol,
            touch: blocked.touch,
            expired_access: self.now.expiry_rule.access(&blocked.registered.command, imports),
            on_empty: mode,
            origin: Origin::Client,
            readable: ReadableKeys::All,
            reader: blocked.reader.as_ref(),
            field_sets: None,
        }
    }

    /// Runs a blocked client's request as if it had just arrived. Returns true if it was served.
    fn reply_for(&mut self, locked: &mut Locked<'_>, blocked: &Arc<BlockedClient>) -> bool {
        let Runner::Data(handler) = blocked.registered.command.run else { return false };
        let caller = self.caller_of(blocked, BlockingMode::StayBlocked);
        let since = self.clock.now();
        let mut out = ByteQueue::new();
        let args = blocked.request().args(self.shared().keyspace.hasher());
        let request = Request::unhashed(blocked.registered, args);
        // The messages of this client and of the writer must follow their own replies.
        let of_writer = std::mem::take(&mut self.commit.own);
        match self.refusal_of_blocked(blocked, &request) {
            Some(error) => self.refuse(blocked.protocol, error, &mut out),
            None => {
                self.run_one(locked, &caller, handler, &request, &mut out);
                if self.commit.effects.record.is_wanted {
                    self.commit.log_command(blocked.db, &request.args, locked);
                }
            }
        }
        let is_served = self.commit.effects.wait.take().is_none();
        if is_served {
            self.deliver(blocked, out, since);
        } else {
            // Released for no client (0): this one gets no reply that its messages could follow.
            self.commit.release(0);
            self.shared().blocked.requeue(locked, blocked);
        }
        self.commit.own = of_writer;
        is_served
    }

    /// Passes the reply to the thread of a blocked client. Then releases the messages about the
    /// request's changes, which ends the request's unit in the change log.
    fn deliver(&mut self, blocked: &BlockedClient, mut out: ByteQueue, since: Instant) {
        let reply_bytes = out.len_bytes();
        if let Some(listener) = &blocked.listener {
            // The reply is sent through the inbox, before the events of the client's own command.
            self.commit.sender().push_reply(listener, &std::mem::take(&mut out));
        }
        self.commit.release(blocked.client);
        let mut pushes = std::mem::take(&mut self.commit.own.behind);
        if let Some(listener) = &blocked.listener
            && !pushes.is_empty()
        {
            self.commit.sender().push_reply(listener, &std::mem::take(&mut pushes));
        }
        let took = self.clock.now() - since;
        let delivery = Delivery {
            conn: blocked.conn,
            client: blocked.client,
            ticket: blocked.ticket,
            reply: out,
            reply_bytes,
            pushes,
            took,
            position: self.commit.position,
            closes: false,
        };
        self.shared().threads.deliver(blocked.thread, delivery, &self.commit.outbox);
        let sender = self.shared().sender(self.commit.thread, &self.commit.outbox, self.commit.position);
        self.commit.own.redirect(sender);
        self.note_latency(Event::CommandUnblocking, took);
    }

    /// Reads the clocks and loads the current settings, at the start of a turn. `began` is the time
    /// at which the thread had work to do.
    pub fn begin_turn(&mut self, began: Instant) {
        self.read_clock();
        self.now.uptime_ms = self.shared().uptime(began).as_millis() as u64;
        self.take_settings();
    }

    /// Reads the clock for the time that the following commands use. O(1).
    #[inline]
    pub fn read_clock(&mut self) {
        let unix = self.clock.unix_time();
        let unix_us = unix.as_secs() as i64 * 1_000_000 + i64::from(unix.subsec_micros());
        (self.now.unix_us, self.now.unix_ms) = (unix_us, unix_us / 1_000);
        self.commit.now_ms = self.now.unix_ms;
    }

    /// Loads the present settings, which a command on any connection may have changed.
    pub fn take_settings(&mut self) {
        let now_ms = self.now.unix_ms;
        let version = self.shared().settings.version();
        if version != self.settings_version {
            self.settings = self.shared().settings.get();
            if self.applied_epoch.is_some() {
                self.settings = Arc::new(self.settings.for_stream());
            }
            self.settings_version = version;
            self.meter.draw_sample(self.settings.key_sampling, &mut self.rng);
        }
        self.now.access = if self.settings.lfu {
            Access::Lfu {
                clock_minutes: (now_ms / 60_000) as u32,
                log_factor: self.settings.lfu_log_factor,
                decay_minutes: self.settings.lfu_decay_minutes,
            }
        } else {
            Access::Lru { clock_s: (now_ms / 1000) as u32 }
        };
        let shared = self.shared();
        let role = &shared.server_state.role;
        self.now.role_epoch = role.epoch.load(Relaxed);
        self.now.expiry_rule = ExpiryRule::of(&shared.pause, &self.settings, role, now_ms);
        self.now.is_monitored = self.shared().monitors.any();
        self.commit.now_ms = now_ms;
        self.commit.take_notifications(self.settings.notifications);
        self.meter.samples_hot_keys = self.shared().hot_keys.is_active(now_ms);
    }

    /// Adds the turn's counts to the shared statistics, and passes its removed values to the queue
    /// of lazy freed values.
    pub fn end_turn(&mut self) {
        let stats = self.stats();
        self.searches.end_turn();
        self.commit.publish_log();
        let Commit { effects, access_results, .. } = &mut self.commit;
        effects.absorb(access_results);
        let access_results = access_results.take();
        stats.hits.add(access_results.hits);
        stats.misses.add(access_results.misses);
        stats.expired_keys.add(access_results.expired_keys);
        stats.expired_fields.add(access_results.expired_fields);
        stats.changes.add(std::mem::take(&mut effects.changes));
        debug_assert!(
            !self.commit.has_changes() && !self.commit.is_pending(),
            "each unit ends under its locks"
        );
        if !self.commit.effects.lazy_freed.is_empty() {
            let lazy_freed = std::mem::take(&mut self.commit.effects.lazy_freed);
            self.unfreed_bytes += self.shared().freeing.push(lazy_freed);
        }
    }
}

//! From a parsed request to its reply: the checks in Redis' order, the locks, the handler, the effects.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::error::quotable;
use commands::keys::for_each_key;
use commands::table::Flags;
use commands::{Args, CommandError, Effects, EventClass, Patience};
use keyspace::Locked;
use keyspace::gate::SharedPass;
use keyspace::view::{Access, Moment, Tally};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;

use crate::command_table::{KeyPlan, Registered, Runner};
use crate::context::{DataAccess, ServerCtx, ServerHandler};
use crate::end_to_end::TurnClock;
use crate::execute::{Caller, Executor, Standing, lock_reach_of};
use crate::freeing::Ticket;
use crate::memory_limit::{Evicting, MemoryLimit, Verdict};
use crate::notify::Notifier;
use crate::push::push;
use crate::session::{Flow, ReplyMode, Session};
use crate::settings::Settings;
use crate::shared::{Message, Shared};
use crate::spikes::Event as LatencyEvent;
use crate::timing::{Ran, Timing};
use crate::tracking::{Mode, OwnPushes, Place};
use crate::transaction::{self, Verb};
use crate::worker::unix_ms;

/// A thread's part of executing requests: everything but the connections.
pub struct Engine {
    /// The server.
    pub shared: Arc<Shared>,
    /// What is the same for all requests of this turn.
    pub standing: Standing,
    /// The settings of this turn.
    pub settings: Arc<Settings>,
    settings_version: u64,
    /// How long requests of this turn take.
    pub turn: TurnClock,
    /// What commands did to the data.
    pub effects: Effects,
    /// Random numbers.
    pub rng: fastrand::Rng,
    tally: Tally,
    memory: MemoryLimit,
    /// Whether the last request ran a command, rather than being refused or queued.
    pub called: bool,
    /// Whether CLIENT PAUSE may hold something back in this turn.
    paused: bool,
    /// Whether commands are counted for HOTKEYS in this turn, with their time.
    pub(crate) times_keys: bool,
    /// Commands that ran beyond one for each request, in transactions; below zero for requests that ran none.
    pub(crate) calls_beyond: i64,
    /// Commands up to the next whose keys are counted, itself included.
    pub(crate) sample_in: u64,
    /// Messages for the client whose command runs.
    own_pushes: OwnPushes,
    /// The last request was an EXEC that has left out what its client does not want to hear.
    pub(crate) silenced_itself: bool,
    /// Replies that wait until something is freed.
    held: Vec<HeldReply>,
    /// What this thread is to free of what commands displaced.
    owed_bytes: u64,
}

/// A reply that waits until what its request discarded is freed.
pub struct HeldReply {
    /// The connection.
    pub conn: net::ConnId,
    /// Its client.
    pub client: u64,
    ticket: Ticket,
    /// The reply.
    pub reply: ByteQueue,
}

/// One request, ready to run.
pub struct Request<'a> {
    /// Its command; `None` for one that does not exist.
    pub registered: Option<&'static Registered>,
    /// Its arguments.
    pub args: Args<'a>,
}

/// A data command's handler, and what it does that finds nothing to reply with.
struct DataRun {
    handler: commands::Handler,
    patience: Patience,
}

/// What running a request led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A reply, or none by the client's wish.
    Done,
    /// The request waits until clients are no longer paused; it was not run.
    Postponed,
}

impl Engine {
    /// An engine for I/O thread `thread`.
    pub fn new(shared: Arc<Shared>, thread: usize, seed: u64) -> Self {
        let settings = shared.settings.get();
        Self {
            turn: TurnClock::new(shared.table.id_count()),
            standing: Standing {
                thread,
                now_ms: 0,
                uptime_ms: 0,
                access: Access::Lru { clock_s: 0 },
                monitored: false,
                latency_ms: 0,
                notifications: settings.notifications,
                tracking_keys_max: settings.tracking_keys_max,
                import_mode: settings.import_mode,
            },
            settings,
            settings_version: 0,
            effects: Effects::default(),
            rng: fastrand::Rng::with_seed(seed),
            tally: Tally::of_thread(&shared.keyspace, seed),
            shared,
            memory: MemoryLimit::default(),
            called: false,
            paused: false,
            times_keys: false,
            sample_in: u64::MAX,
            calls_beyond: 0,
            own_pushes: OwnPushes::default(),
            silenced_itself: false,
            held: Vec::new(),
            owed_bytes: 0,
        }
    }

    /// Reads the clocks and takes over new settings: at the start of a turn. It began when the thread had
    /// something to do.
    pub fn begin_turn(&mut self, began: Instant) {
        self.standing.now_ms = unix_ms();
        self.standing.uptime_ms = (began - self.shared.started).as_millis() as u64;
        self.take_settings();
        if self.settings.maxmemory_bytes > 0 {
            self.memory.begin_turn(self.settings.maxmemory_bytes, self.shared.threads.len());
        }
    }

    /// Lets who waits to own the keyspace alone have it, between two requests of a turn. What the owner set
    /// (CLIENT PAUSE, say) acts on the next request, which finds the clock read anew.
    #[cold]
    pub fn step_aside(&mut self, pass: &mut SharedPass<'_>, timed: &mut Timing) {
        let since = Instant::now();
        pass.step_aside();
        let now = Instant::now();
        self.note_spike(LatencyEvent::GateWait, now - since);
        timed.skip_to(now);
        self.begin_turn(now);
    }

    /// Takes over what a command of any connection may have set.
    fn take_settings(&mut self) {
        let now_ms = self.standing.now_ms;
        let version = self.shared.settings.version();
        if version != self.settings_version {
            self.settings = self.shared.settings.get();
            self.settings_version = version;
            self.draw_sample();
        }
        self.standing.access = if self.settings.lfu {
            Access::Lfu {
                clock_minutes: (now_ms / 60_000) as u32,
                log_factor: self.settings.lfu_log_factor,
                decay_minutes: self.settings.lfu_decay_minutes,
            }
        } else {
            Access::Lru { clock_s: (now_ms / 1000) as u32 }
        };
        self.paused = self.shared.pause.until_ms.load(Relaxed) > now_ms;
        self.standing.monitored = self.shared.monitors.any();
        self.standing.latency_ms = self.settings.thresholds.latency_ms;
        self.standing.notifications = self.settings.notifications;
        self.standing.tracking_keys_max = self.settings.tracking_keys_max;
        self.standing.import_mode = self.settings.import_mode;
        self.times_keys = self.shared.hot_keys.is_active(now_ms);
        let wanted = self.notifier().wanted();
        self.effects.wanted_events = wanted;
        self.tally.wants_missed = wanted.contains(EventClass::MISSED);
        self.tally.wants_created = wanted.contains(EventClass::NEW);
    }

    /// What publishes this thread's events.
    fn notifier(&self) -> Notifier<'_> {
        let notifications = self.settings.notifications;
        Notifier { shared: &self.shared, thread: Some(self.standing.thread), notifications }
    }

    /// Evicts and forgets what this turn's requests brought over a limit. Before changes are broadcast: what
    /// left is told in the same turn.
    pub fn keep_limits(&mut self) {
        if self.settings.maxmemory_bytes > 0 && !self.memory.allows(0) {
            self.enforce_at_end();
        }
        let keys_max = self.settings.tracking_keys_max;
        if self.shared.tracking.keys() > keys_max {
            self.shared.tracking.forget_beyond(&self.shared, keys_max, || self.rng.u64(..));
        }
    }

    /// Tells clients with caches by prefixes what changed in this turn.
    #[inline]
    pub fn broadcast_changes(&mut self) {
        if !self.own_pushes.changed.is_empty() {
            self.shared.tracking.broadcast(&self.shared, &mut self.own_pushes.changed);
        }
    }

    /// Hands the turn's counts and effects to those who read them.
    pub fn end_turn(&mut self) {
        let stats = &self.shared.threads[self.standing.thread].stats;
        self.effects.absorb(&mut self.tally);
        let tally = self.tally.take();
        stats.hits.add(tally.hits);
        stats.misses.add(tally.misses);
        stats.expired_keys.add(tally.expired_keys);
        stats.expired_fields.add(tally.expired_fields);
        stats.changes.add(std::mem::take(&mut self.effects.changes));
        debug_assert!(self.effects.events.is_empty(), "events are published under the locks of their keys");
        if !self.effects.discarded.is_empty() {
            self.owed_bytes += self.shared.freeing.push(std::mem::take(&mut self.effects.discarded));
        }
    }

    /// Frees what this thread owes, for as long at most as the turn took that began then. The caller is
    /// outside the gate.
    #[inline]
    pub fn free_owed(&mut self, turn_began: Instant) {
        if self.owed_bytes > 0 {
            self.owed_bytes = self.shared.freeing.help(self.owed_bytes, turn_began.elapsed());
        }
    }

    /// Hands over what a command of a transaction displaced that began then. What is owed for it is freed as part
    /// of the transaction, which may have any number of such commands.
    pub(crate) fn free_queued(&mut self, since: Instant) {
        self.effects.absorb_displaced(&mut self.tally);
        if !self.effects.discarded.is_empty() {
            self.owed_bytes += self.shared.freeing.push(std::mem::take(&mut self.effects.discarded));
            self.free_owed(since);
        }
    }

    /// Appends what was published to the output of this thread's subscribers; lists those in `over` whose
    /// output may be over a limit.
    #[inline]
    pub fn deliver_publications(&self, outputs: &mut net::Outputs, over: &mut Vec<net::ConnId>) {
        if self.shared.pubsub.has_messages(self.standing.thread) {
            let limit_bytes = self.settings.notable_output_bytes();
            self.shared.pubsub.deliver(&self.shared, self.standing.thread, outputs, limit_bytes, over);
        }
    }

    /// Runs one request and appends its reply to `out`.
    #[inline]
    pub fn run(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Outcome {
        let reply_from = out.len_bytes();
        let outcome = self.run_checked(session, request, out, pass);
        if session.reply_mode != ReplyMode::On {
            let confirms = session.transaction.is_none() && session.authenticated && confirms(request);
            let keeps = std::mem::take(&mut self.silenced_itself) || confirms;
            silence(session, out, (!keeps).then_some(reply_from));
        }
        if session.tracking.is_some() {
            self.push_to_itself(session, request, out, reply_from);
        }
        if self.effects.freed_before_reply {
            self.hold_reply(session, out, reply_from);
        }
        outcome
    }

    /// Tells a client with a cache what its own command changed, and ends what CLIENT CACHING gave for it.
    #[cold]
    fn push_to_itself(
        &mut self,
        session: &Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        reply_from: usize,
    ) {
        if !self.own_pushes.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.own_pushes.ahead);
            out.insert(reply_from, ahead.as_single().expect("keys are copied into it, not shared"));
        }
        let behind = std::mem::take(&mut self.own_pushes.behind);
        if session.subscriptions.is_some() && !behind.is_empty() {
            // Behind what it published to itself, keyspace events among that: those wait in the inbox.
            let bytes = behind.as_single().expect("keys are copied into it, not shared");
            push(&self.shared, &session.info, &Arc::from(bytes));
        } else {
            out.append(behind);
        }
        self.own_pushes.redirect(&self.shared);
        let about_clients = request.registered.is_some_and(|registered| registered.full_name == "client");
        if session.transaction.is_none() && !about_clients {
            session.info.tracking.remove(Mode::CACHING);
        }
    }

    fn run_checked(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Outcome {
        let args = &request.args;
        let Some(registered) = request.registered else {
            self.calls_beyond -= 1;
            session.info.last_command.store(0, Relaxed);
            self.shared.threads[self.standing.thread].stats.unknown_commands.add(1);
            if is_http(args.get(0)) {
                tracing::warn!(
                    client = session.id,
                    "closed: it speaks HTTP, perhaps for an attacker's web page"
                );
                session.flow = Flow::Closing;
                return Outcome::Done;
            }
            let error = transaction::note_refusal(session, None, unknown_command(args), &self.shared);
            self.refuse(session, out, error);
            return Outcome::Done;
        };
        let (registered, refusal) = self.check(session, registered, args);
        session.info.last_command.store(registered.id as u64 + 1, Relaxed);
        if let Some(error) = refusal {
            self.calls_beyond -= 1;
            self.counters(registered).rejected.add(1);
            let error = transaction::note_refusal(session, Some(registered), error, &self.shared);
            self.refuse(session, out, error);
            return Outcome::Done;
        }
        if self.paused && self.holds_back(session, registered) {
            session.flow = Flow::Postponed;
            return Outcome::Postponed;
        }
        if session.transaction.is_some() && transaction::is_queued(registered) {
            self.calls_beyond -= 1;
            self.queue(session, registered, args, out);
            return Outcome::Done;
        }
        if self.standing.monitored && session.monitoring && uses_keys(registered) {
            self.calls_beyond -= 1;
            self.counters(registered).rejected.add(1);
            let error = CommandError::Line("ERR Replica can't interact with the keyspace");
            self.refuse(session, out, error);
            return Outcome::Done;
        }
        self.counters(registered).calls.add(1);
        self.called = true;
        let result = self.run_command(session, registered, Patience::Waits, request, out, pass);
        if !self.effects.wanted_events.is_empty()
            && self.shared.pubsub.is_crowded()
            && session.flow == Flow::Running
        {
            session.flow = Flow::Crowded;
        }
        if self.standing.monitored {
            self.tell_monitors(session, registered, args);
        }
        if let Err(error) = result {
            self.counters(registered).failed.add(1);
            self.refuse(session, out, error);
        }
        Outcome::Done
    }

    /// The checks before a command may run. Gives the subcommand where there is one.
    #[inline]
    fn check(
        &mut self,
        session: &Session,
        registered: &'static Registered,
        args: &Args<'_>,
    ) -> (&'static Registered, Option<CommandError>) {
        let mut registered = registered;
        if !registered.subcommands.is_empty() && args.len() > 1 {
            match registered.subcommand(args.get(1)) {
                Some(sub) => registered = sub,
                None => {
                    let error =
                        CommandError::UnknownSubcommand(args.get(1).to_vec(), registered.command.name);
                    return (registered, Some(error));
                }
            }
        }
        if !registered.command.accepts(args.len()) {
            return (registered, Some(CommandError::WrongArity(registered.full_name)));
        }
        if !session.authenticated && registered.needs_auth() {
            return (registered, Some(CommandError::Line("NOAUTH Authentication required.")));
        }
        if self.settings.maxmemory_bytes > 0
            && flags_of(session, registered).contains(Flags::DENYOOM)
            && !self.has_memory_for(args)
        {
            let line = "OOM command not allowed when used memory > 'maxmemory'.";
            return (registered, Some(CommandError::Line(line)));
        }
        if session.subscriptions.is_some() && session.protocol == Protocol::Resp2 {
            return (registered, subscriber_refusal(registered));
        }
        (registered, None)
    }

    /// Whether memory permits a command with these arguments; evicts for it.
    fn has_memory_for(&mut self, args: &Args<'_>) -> bool {
        let len_bytes = args.from(0).map(<[u8]>::len).sum();
        self.memory.allows(len_bytes) || self.enforce_memory(len_bytes as u64) != Verdict::Short
    }

    /// Takes a request's reply back until what the request discarded is freed.
    #[cold]
    fn hold_reply(&mut self, session: &mut Session, out: &mut ByteQueue, reply_from: usize) {
        self.effects.freed_before_reply = false;
        self.effects.absorb(&mut self.tally);
        self.shared.freeing.push(std::mem::take(&mut self.effects.discarded));
        let ticket = self.shared.freeing.ticket();
        self.shared.freeing.await_ticket(ticket);
        if session.flow == Flow::Running && !self.shared.freeing.is_done(ticket) {
            session.flow = Flow::Freeing;
            let reply = out.split_off(reply_from);
            self.held.push(HeldReply { conn: session.conn, client: session.id, ticket, reply });
        }
    }

    /// Takes the replies out that wait for nothing any more.
    pub fn freed_replies(&mut self) -> Vec<HeldReply> {
        let Some(first) = self.held.iter().map(|held| held.ticket).min() else { return Vec::new() };
        if self.shared.freeing.is_awaited(first) {
            return Vec::new();
        }
        self.shared.freeing.await_ticket(first);
        self.held.extract_if(.., |held| self.shared.freeing.is_done(held.ticket)).collect()
    }

    /// Frees what this turn's replies and commands took beyond the limit. What its time does not suffice
    /// for is left to the next turn.
    #[cold]
    fn enforce_at_end(&mut self) {
        if self.settings.eviction.is_some() && self.enforce_memory(0) == Verdict::Working {
            // A full mailbox has other messages, which make a turn as well.
            let _ = self.shared.threads[self.standing.thread].mailbox.send(Message::EnforceMemory);
        }
    }

    #[cold]
    fn enforce_memory(&mut self, reserve_bytes: u64) -> Verdict {
        self.effects.absorb(&mut self.tally);
        let mut evicting = Evicting {
            shared: &self.shared,
            thread: self.standing.thread,
            settings: &self.settings,
            effects: &mut self.effects,
            access: self.standing.access,
            rng: &mut self.rng,
            own: &mut self.own_pushes,
        };
        let verdict = self.memory.enforce(&mut evicting, reserve_bytes);
        self.tell_followers_of_gone(0);
        verdict
    }

    /// Whether CLIENT PAUSE holds this command back: all commands, CLIENT UNPAUSE included, or those that write.
    fn holds_back(&self, session: &Session, registered: &Registered) -> bool {
        let writes = || flags_of(session, registered).intersects(Flags::WRITE | Flags::MAY_REPLICATE);
        self.shared.pause.all.load(Relaxed) || writes()
    }

    /// Runs a command that may run, in a transaction (without patience) or by itself.
    #[inline]
    fn run_command(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        patience: Patience,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Result<(), CommandError> {
        let result = match registered.command.run {
            Runner::Data(handler) => {
                let run = DataRun { handler, patience };
                return self.run_data(session, registered, run, request, out, pass);
            }
            Runner::Server(handler) => {
                self.run_server(session, registered, handler, &request.args, out, pass)
            }
            Runner::Transaction(verb) => self.run_transaction(session, verb, &request.args, out, pass),
        };
        if patience == Patience::Waits {
            self.tell_followers_of_gone(session.id);
        }
        result
    }

    #[inline]
    fn run_data(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        DataRun { handler, patience }: DataRun,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Result<(), CommandError> {
        let args = &request.args;
        let caller = Caller {
            db: session.db,
            protocol: session.protocol,
            touch: !session.no_touch,
            overdue: self.standing.overdue(&session.info, &registered.command),
            patience,
        };
        let mut executor = self.executor();
        let keyspace = &executor.shared.keyspace;
        if registered.command.runs_alone(args) {
            let names_patterns = registered.command.flags.contains(Flags::PATTERN_KEYS);
            return pass.exclusive(|_alone| {
                let mut locked = if names_patterns { keyspace.lock_all() } else { keyspace.lock_none() };
                let result = executor.call(&mut locked, caller, handler, args, out);
                let is_async = args.len() > 1 && args.is(1, "ASYNC");
                let ahead = patience == Patience::Waits && !is_async;
                executor.follow_db_changes(session.id, if ahead { Place::Ahead } else { Place::Behind });
                if executor.concerns_others(session) {
                    if patience == Patience::Waits {
                        executor.follow_up(locked, session, registered, args);
                    } else {
                        executor.note(&mut locked, session, registered, args);
                    }
                }
                result
            });
        }
        let mut locked = match registered.key_plan {
            KeyPlan::One(at) => keyspace.lock_one(args.key(at).hash),
            KeyPlan::None => keyspace.lock_none(),
            KeyPlan::Specs => {
                let mut hashes: SmallVec<[u64; 16]> = SmallVec::new();
                for_each_key(registered.command.keys, args, |at, _| hashes.push(args.key(at).hash));
                keyspace.lock_all_of(hashes.into_iter())
            }
        };
        if locked.is_followed() && patience == Patience::Waits {
            locked = lock_reach_of(executor.shared, locked, registered, args);
        }
        let result = executor.call(&mut locked, caller, handler, args, out);
        if executor.concerns_others(session) {
            if patience == Patience::Waits {
                executor.follow_up(locked, session, registered, args);
            } else {
                executor.note(&mut locked, session, registered, args);
            }
        }
        result
    }

    /// Tells monitors a command that is not one on keys: those are told under their locks.
    #[cold]
    fn tell_monitors(&self, session: &Session, registered: &Registered, args: &Args<'_>) {
        if !matches!(registered.command.run, Runner::Data(_)) {
            self.shared.monitors.tell(&self.shared, session, registered, args);
        }
    }

    /// Runs a command of a transaction, which owns the keyspace, and replies; whether it succeeded.
    pub(crate) fn run_queued(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> bool {
        let (since, replied) = (Instant::now(), out.len_bytes());
        self.counters(registered).calls.add(1);
        let discarded_before = self.effects.discarded.len();
        let result = self.run_command(session, registered, Patience::None, request, out, pass);
        if std::mem::take(&mut self.effects.freed_before_reply) {
            // A transaction's reply is not held back: FLUSHALL SYNC frees here, as in Redis.
            self.effects.discarded.truncate(discarded_before);
        }
        let succeeded = result.is_ok();
        if self.standing.monitored {
            self.tell_monitors(session, registered, &request.args);
        }
        if let Err(error) = result {
            self.counters(registered).failed.add(1);
            self.refuse(session, out, error);
        }
        self.free_queued(since);
        let args = &request.args;
        let bytes = [args.from(0).map(<[u8]>::len).sum(), out.len_bytes().saturating_sub(replied)];
        self.note_queued(session, &Ran { registered, args, bytes, calls: 1 }, since);
        succeeded
    }

    /// Tells those who follow what a transaction changed.
    pub(crate) fn tell_followers<'k>(
        &'k mut self,
        shared: &'k Shared,
        locked: Locked<'k>,
        session: &Session,
    ) {
        let mut executor = Executor { shared, ..self.executor() };
        if executor.concerns_others(session) {
            executor.tell_followers(locked, session.id);
        }
    }

    /// Tells those who follow what a command changed, or found gone, under locks that it has given back.
    pub(crate) fn tell_followers_of_gone(&mut self, writer: u64) {
        if !self.effects.touched.is_empty() || !self.effects.gone.is_empty() {
            let shared = Arc::clone(&self.shared);
            let mut executor = Executor { shared: &shared, ..self.executor() };
            executor.tell_followers(shared.keyspace.lock_none(), writer);
        }
    }

    /// What runs data commands for this turn's settings.
    #[inline]
    pub fn executor(&mut self) -> Executor<'_> {
        Executor {
            shared: &self.shared,
            standing: &mut self.standing,
            tally: &mut self.tally,
            effects: &mut self.effects,
            rng: &mut self.rng,
            limits: &self.settings.limits,
            own: &mut self.own_pushes,
        }
    }

    fn run_server(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        handler: ServerHandler,
        args: &Args<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Result<(), CommandError> {
        let reply = Reply::new(out, session.protocol);
        let before = reply.mark();
        let moment = Moment {
            now_ms: self.standing.now_ms,
            touch: !session.no_touch,
            access: self.standing.access,
            overdue: self.standing.overdue(&session.info, &registered.command),
        };
        let notifier = Notifier {
            shared: &self.shared,
            thread: Some(self.standing.thread),
            notifications: self.settings.notifications,
        };
        let mut ctx = ServerCtx {
            shared: &self.shared,
            settings: &self.settings,
            session,
            registered,
            reply,
            thread: self.standing.thread,
            pass,
            now_ms: self.standing.now_ms,
            rng: &mut self.rng,
            data: DataAccess { tally: &mut self.tally, effects: &mut self.effects, moment, notifier },
        };
        let result = handler(&mut ctx, args);
        if result.is_err() {
            ctx.reply.truncate(before);
        }
        // CONFIG SET acts on the next command, which may be in the same turn.
        self.take_settings();
        result
    }

    /// This thread's counters of a command.
    pub fn counters(&self, registered: &Registered) -> &crate::stats::CommandCounters {
        &self.shared.threads[self.standing.thread].stats.commands[registered.id]
    }

    pub(crate) fn refuse(&self, session: &Session, out: &mut ByteQueue, error: CommandError) {
        self.shared.threads[self.standing.thread].stats.errors.add(1);
        let line = error.line();
        self.shared.errors.count(&line);
        Reply::new(out, session.protocol).error_bytes(&line);
    }
}

/// Whether a subscriber that speaks RESP2 may run a command: replies must differ from messages.
#[cold]
fn subscriber_refusal(registered: &Registered) -> Option<CommandError> {
    let allowed = matches!(
        registered.full_name,
        "ping"
            | "quit"
            | "reset"
            | "subscribe"
            | "psubscribe"
            | "ssubscribe"
            | "unsubscribe"
            | "punsubscribe"
            | "sunsubscribe"
    );
    (!allowed).then(|| {
        CommandError::Text(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
             this context",
            registered.full_name
        ))
    })
}

/// A command's flags; for EXEC those of all that it will run.
#[inline]
fn flags_of(session: &Session, registered: &Registered) -> Flags {
    let flags = registered.command.flags;
    match (&session.transaction, registered.command.run) {
        (Some(transaction), Runner::Transaction(Verb::Exec)) => flags | transaction.flags(),
        _ => flags,
    }
}

/// Whether a command reads or writes keys: a monitor may run none of these.
fn uses_keys(registered: &Registered) -> bool {
    registered.command.flags.intersects(Flags::READONLY | Flags::WRITE | Flags::MAY_REPLICATE)
}

/// Whether the reply says that a subscription began or ended: that is a message, which no client silences.
fn confirms(request: &Request<'_>) -> bool {
    request.registered.is_some_and(|it| it.is_subscription() && it.command.accepts(request.args.len()))
}

/// Takes a reply back that the client does not want, and steps its wish forward.
fn silence(session: &mut Session, out: &mut ByteQueue, reply_from: Option<usize>) {
    if let Some(reply_from) = reply_from.filter(|_| session.reply_mode != ReplyMode::On) {
        out.truncate(reply_from);
    }
    match session.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off | ReplyMode::Skip => {
            // Who waits has its reply, which is the one to skip, still before it.
            if session.reply_mode == ReplyMode::Skip && session.flow != Flow::Waiting {
                session.reply_mode = ReplyMode::On;
            }
        }
        ReplyMode::SkipNext => session.reply_mode = ReplyMode::Skip,
    }
}

/// Whether a request is a line of HTTP: a web page can make a browser send such lines with commands
/// behind them. Its connection ends before those run, as in Redis.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// How much of an unknown command's name and arguments its error quotes.
const QUOTED_LEN_MAX: usize = 128;

fn unknown_command(args: &Args<'_>) -> CommandError {
    let mut line = b"ERR unknown command '".to_vec();
    let name = quotable(args.get(0));
    line.extend_from_slice(&name[..name.len().min(QUOTED_LEN_MAX)]);
    line.extend_from_slice(b"', with args beginning with: ");
    let end = line.len() + QUOTED_LEN_MAX;
    for arg in args.from(1) {
        let Some(room) = end.checked_sub(line.len()).filter(|&room| room > 0) else { break };
        let arg = quotable(arg);
        line.push(b'\'');
        line.extend_from_slice(&arg[..arg.len().min(room)]);
        line.extend_from_slice(b"' ");
    }
    CommandError::Bytes(line)
}

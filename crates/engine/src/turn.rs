//! A thread's turn, in which it runs the requests that have arrived: the functions by which a
//! driver lets the engine run requests. A driver is an I/O thread of the server, or a simulator.
//!
//! ```text
//!   begin ─► [ run ]* ─► keep_limits ─► broadcast ─► end          inside the gate
//!              └─► outbox: the driver wakes threads between two requests, when no shard is locked
//! ```

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::table::Flags;
use commands::{Args, CommandError};
use keyspace::gate::SharedPass;
use stdx::{ByteQueue, ConnId};

use crate::acl::Context;
use crate::alone::LOADING;
use crate::batch::Incoming;
use crate::call::Host;
use crate::check::{
    Refused, check, common_flags_of, flags_of, is_http, is_queued, is_subscriber, needs_memory,
    subscriber_refusal, unknown_command, uses_keys, writes,
};
use crate::client::Mode;
use crate::clock::Clock;
use crate::evict::{LimitState, MemoryLimit};
use crate::freeing::Ticket;
use crate::pass::TurnPass;
use crate::publish::Outputs;
use crate::request::Request;
use crate::run::Executor;
use crate::session::{Flow, ReplyMode, Session};
use crate::shared::Shared;
use crate::stats::latency_events::Event;
use crate::table::{Registered, Runner, Verb};
use crate::timing::Timing;
use crate::write_refusal::STALE_REPLICA;

/// The engine of one thread: everything needed to run requests, except the connections.
pub struct Engine<'s, C, H> {
    /// The executor, which runs the commands of this thread.
    pub executor: Executor<'s, C, H>,
    memory: MemoryLimit,
    /// The replies that wait until the values removed by their requests are freed.
    delayed_replies: Vec<DelayedReply>,
}

/// A reply that waits until the values removed by its request are freed (FLUSHALL SYNC).
pub struct DelayedReply {
    /// The connection of the client that waits for the reply.
    pub conn: ConnId,
    /// The id of the client that waits for the reply.
    pub client: u64,
    ticket: Ticket,
    /// The encoded reply, which is sent when the removed values are freed.
    pub reply: ByteQueue,
}

/// The outcome of a request that a client's thread was to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request has run or was refused; its reply, if any, was written.
    Done,
    /// The request did not run. It stays in the input until clients are no longer paused, or writes
    /// may continue.
    Postponed,
}

impl<'s, C: Clock, H: Host> Engine<'s, C, H> {
    /// Creates the engine of an I/O thread, which runs commands with `executor`.
    pub fn new(executor: Executor<'s, C, H>) -> Self {
        Self { executor, memory: MemoryLimit::default(), delayed_replies: Vec::new() }
    }

    /// Returns the state that all threads of the engine share.
    #[inline]
    pub fn shared(&self) -> &'s Shared {
        self.executor.shared()
    }

    /// Begins a turn (a pass of the thread's event loop), inside the gate (the keyspace's shared
    /// lock). `began` is the time at which the thread had work to do.
    pub fn begin(&mut self, began: Instant) {
        let executor = &mut self.executor;
        executor.begin_turn(began);
        let limit = executor.settings.maxmemory_bytes;
        if limit > 0 {
            self.memory.begin_turn(limit, executor.shared().threads.len());
        }
        self.executor.look_at_refusals();
    }

    /// Records whether the thread is inside the gate (the keyspace's shared lock). It is outside
    /// while a busy script owns the keyspace. Requests are still answered then: permitted ones run,
    /// and the others are refused.
    #[inline]
    pub fn note_standing(&mut self, pass: &SharedPass<'_>) {
        if self.executor.is_inside != pass.is_inside() {
            self.executor.is_inside = pass.is_inside();
            self.executor.look_at_refusals();
        }
    }

    /// Yields the keyspace to a waiting exclusive owner, between two requests of a turn (pass of
    /// the event loop). Afterwards the clock and the settings are read again, so a change by the
    /// owner (such as CLIENT PAUSE) affects the next request. If the owner is a busy script, the
    /// turn continues outside the gate (without the keyspace's shared lock), see
    /// [`note_standing`](Self::note_standing).
    #[cold]
    pub fn yield_to_owner(&mut self, pass: &mut SharedPass<'_>, timed: &mut Timing) {
        let since = self.executor.clock.now();
        self.executor.commit.publish_log();
        pass.yield_to_owner();
        let now = self.executor.clock.now();
        self.executor.note_latency(Event::GateWait, now - since);
        timed.skip_to(now);
        self.begin(now);
        self.note_standing(pass);
    }

    /// Evicts keys and removes tracked keys if the requests of this turn (pass of the event loop)
    /// have exceeded a limit. Returns true if another turn must continue this. Must be called
    /// before [`Commit::broadcast`](crate::commit::Commit::broadcast), so that the invalidations of
    /// the removed keys are sent in the same turn.
    pub fn keep_limits(&mut self) -> bool {
        let executor = &mut self.executor;
        let evicts = executor.settings.maxmemory_bytes > 0
            && executor.settings.eviction.is_some()
            && !self.memory.allows(0)
            && !executor.commit.awaits_room();
        let goes_on = evicts && executor.make_room(&mut self.memory, 0) == LimitState::InProgress;
        let keys_max = executor.settings.tracking_keys_max;
        let Shared { tracking, keyspace, .. } = executor.shared();
        if tracking.keys() > keys_max {
            let rng = &mut executor.rng;
            tracking.forget_beyond(executor.commit.sender(), keyspace, keys_max, || rng.u64(..));
        }
        goes_on
    }

    /// Appends published messages to the outputs of this thread's subscribers. Adds connections
    /// whose output may be over a limit to `over`. Returns true if clients that wait to publish may
    /// continue; the driver then wakes all threads.
    #[inline]
    pub fn deliver_publications(&self, outputs: &mut impl Outputs, over: &mut Vec<ConnId>) -> bool {
        self.shared().pubsub.has_messages(self.executor.thread()) && self.deliver(outputs, over)
    }

    /// Does the work of delivering published messages to this thread's subscribers. Not inlined,
    /// because there are mostly no messages.
    #[inline(never)]
    fn deliver(&self, outputs: &mut impl Outputs, over: &mut Vec<ConnId>) -> bool {
        let (pubsub, thread) = (&self.shared().pubsub, self.executor.thread());
        let limit_bytes = self.executor.settings.notable_output_bytes();
        let delivered = pubsub.deliver(thread, outputs, limit_bytes, over);
        self.executor.stats().output_bytes.add(delivered.len_bytes);
        delivered.were_subscribers_full
    }

    /// Runs one request of a client and appends its reply to `out`.
    #[inline]
    pub fn run(
        &mut self,
        session: &mut Session,
        incoming: &Incoming<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Outcome {
        self.run_attended(session, incoming, out, &mut TurnPass::new(pass))
    }

    /// Runs a request as [`run`](Self::run) does. During a busy script of this request, the driver
    /// is called to serve its other connections.
    #[inline]
    pub fn run_attended(
        &mut self,
        session: &mut Session,
        incoming: &Incoming<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Outcome {
        let reply_from = out.len_bytes();
        let outcome = self.run_checked(session, incoming, out, pass);
        if outcome == Outcome::Postponed {
            return outcome;
        }
        if session.reply_mode != ReplyMode::On {
            let confirms =
                session.transaction.is_none() && !session.identity.must_authenticate() && confirms(incoming);
            let keeps = std::mem::take(&mut self.executor.exec_filtered_replies) || confirms;
            silence(session, out, (!keeps).then_some(reply_from));
        }
        if session.tracking.is_some() {
            self.push_own_invalidations(session, incoming, out, reply_from);
        }
        if self.executor.commit.effects.freed_before_reply {
            self.delay_reply(session, out, reply_from);
        }
        outcome
    }

    /// Sends a tracking client the invalidations of its own command, and ends the effect of CLIENT
    /// CACHING.
    #[cold]
    fn push_own_invalidations(
        &mut self,
        session: &Session,
        incoming: &Incoming<'_>,
        out: &mut ByteQueue,
        reply_from: usize,
    ) {
        let commit = &mut self.executor.commit;
        let sender = commit.shared.sender(commit.thread, &commit.outbox, session.observed_position());
        if !commit.own.ahead.is_empty() {
            let ahead = std::mem::take(&mut commit.own.ahead);
            out.insert(reply_from, ahead.as_single().expect("keys are copied into it, not shared"));
        }
        let behind = std::mem::take(&mut commit.own.behind);
        if session.subscriptions.is_some() && !behind.is_empty() {
            // Sent after the messages that the client published to itself, including keyspace
            // events, which are in the inbox.
            let bytes = behind.as_single().expect("keys are copied into it, not shared");
            sender.push(&session.info, &bytes.into());
        } else {
            out.append(behind);
        }
        commit.own.redirect(sender);
        let keeps = |it: &Registered| it.command.flags.contains(Flags::KEEPS_CACHING);
        if session.transaction.is_none() && !incoming.registered.is_some_and(keeps) {
            session.info.tracking.remove(Mode::CACHING);
        }
    }

    fn run_checked(
        &mut self,
        session: &mut Session,
        incoming: &Incoming<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Outcome {
        let args = &incoming.args;
        let Some(registered) = incoming.registered else {
            self.refuse_unknown(session, incoming, out);
            return Outcome::Done;
        };
        let Some(registered) = self.admit(session, registered, args, out) else { return Outcome::Done };
        if self.executor.settings.maxmemory_bytes > 0 && self.lacks_memory(session, registered, args) {
            let error = CommandError::Line("OOM command not allowed when used memory > 'maxmemory'.");
            self.reject(session, Refused { registered, error }, out);
            return Outcome::Done;
        }
        if is_subscriber(session)
            && let Some(error) = subscriber_refusal(registered)
        {
            self.reject(session, Refused { registered, error }, out);
            return Outcome::Done;
        }
        session.info.traffic.last_command.store(registered.id as u64 + 1, Relaxed);
        if self.executor.may_hold_back
            && let Some(outcome) = self.hold_back(session, registered, args, out)
        {
            return outcome;
        }
        if session.transaction.is_some() && is_queued(registered) {
            self.executor.meter.extra_calls -= 1;
            self.executor.queue(session, registered, args, out);
            return Outcome::Done;
        }
        if self.executor.now.is_monitored && session.is_monitor() && uses_keys(registered) {
            self.executor.meter.extra_calls -= 1;
            self.executor.counters(registered).rejected.add(1);
            let error = CommandError::Line("ERR Replica can't interact with the keyspace");
            self.executor.refuse(session.protocol(), error, out);
            return Outcome::Done;
        }
        self.executor.counters(registered).calls.add(1);
        self.executor.meter.called = true;
        let request = Request::new(registered, incoming.args);
        let succeeded = match registered.command.run {
            Runner::Data(handler) => {
                if request.args.len() >= registered.lifetime_words_min {
                    // The turn may have begun before the client sent this request.
                    self.executor.read_clock();
                }
                self.executor.run_data(session, handler, &request, out, pass)
            }
            Runner::Walk(walker) => self.executor.run_walker(session, walker, &request, out, pass),
            _ => self.run_other(session, &request, out, pass),
        };
        if !succeeded && session.flow == Flow::Postponed {
            return Outcome::Postponed;
        }
        if !self.executor.commit.effects.wanted_events.is_empty()
            && self.shared().pubsub.are_subscribers_full()
            && session.flow == Flow::Running
        {
            session.flow = Flow::AwaitingSubscribers;
        }
        Outcome::Done
    }

    /// Returns true if a command must be refused for lack of memory. Always false outside the gate
    /// (the keyspace's shared lock), where nothing can be evicted and where such commands do not
    /// run.
    #[inline]
    fn lacks_memory(&mut self, session: &Session, registered: &Registered, args: &Args<'_>) -> bool {
        needs_memory(session, registered)
            && self.executor.is_inside
            && !self.executor.has_memory_for(&mut self.memory, args)
    }

    /// Determines whether there is memory for the writes of a script or transaction, and evicts
    /// keys if necessary. Sets `script_lacks_memory`.
    fn look_at_memory(&mut self, args: &Args<'_>) {
        self.executor.script_lacks_memory = self.executor.settings.maxmemory_bytes > 0
            && self.executor.is_inside
            && !self.executor.has_memory_for(&mut self.memory, args);
    }

    /// Runs a command that is not a data command (such as one of a transaction, a script or the
    /// server). Returns false if it was postponed.
    fn run_other(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        if let Runner::Script(_) | Runner::Transaction(Verb::Exec) = request.registered.command.run {
            // The time of a script or transaction must not be before what its client has seen.
            self.executor.read_clock();
            self.look_at_memory(&request.args);
        }
        let executor = &mut self.executor;
        let registered = request.registered;
        // The command may leave the gate or become its owner.
        executor.commit.publish_log();
        match registered.command.run {
            Runner::Host(command) => {
                executor.run_host(session, command, request, out, pass);
            }
            Runner::Transaction(verb) => {
                executor.run_transaction(session, verb, request, out, pass);
            }
            Runner::Script(_) => {
                executor.run_script(session, request, out, pass);
            }
            Runner::Data(_) | Runner::Walk(_) => {}
        }
        executor.end_unlocked(session.id);
        if executor.now.is_monitored && session.flow != Flow::Postponed {
            executor.monitor(&session.info, registered, &request.args);
        }
        self.executor.is_inside = pass.is_inside();
        // CLIENT PAUSE affects the next request, even if it was in a transaction.
        self.executor.look_at_refusals();
        session.flow != Flow::Postponed
    }

    /// Returns the command or, if the request names one, its subcommand. If the request is invalid
    /// or its client may not make it, writes the error reply and returns `None`.
    #[inline]
    fn admit(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
        out: &mut ByteQueue,
    ) -> Option<&'static Registered> {
        match check(registered, args) {
            Ok(registered) => {
                let is_free = session.identity.is_free(&self.shared().acl.users);
                (is_free || self.check_rights(session, registered, args, out)).then_some(registered)
            }
            Err(refused) => {
                self.reject(session, refused, out);
                None
            }
        }
    }

    /// Returns true if a client without all rights may make a request. Writes the error reply if it
    /// may not.
    #[inline(never)]
    fn check_rights(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
        out: &mut ByteQueue,
    ) -> bool {
        let in_transaction = session.transaction.is_some();
        if in_transaction && registered.command.flags.contains(Flags::NO_MULTI) {
            // The command is refused in a transaction for every user.
            return true;
        }
        let context = if in_transaction { Context::Multi } else { Context::TopLevel };
        // Before the check, so that ACL LOG and the audit log show the client with the refused
        // command.
        session.info.traffic.last_command.store(registered.id as u64 + 1, Relaxed);
        match self.executor.check_rights(session, registered, args, context) {
            Ok(()) => return true,
            Err(Some(denied)) => {
                let error = denied.error(session, registered);
                self.reject(session, Refused { registered, error }, out);
            }
            // The session has ended, so no client waits for a reply.
            Err(None) => self.executor.meter.extra_calls -= 1,
        }
        false
    }

    /// Replies to a request whose first word is not the name of a command.
    #[cold]
    fn refuse_unknown(&mut self, session: &mut Session, incoming: &Incoming<'_>, out: &mut ByteQueue) {
        let executor = &mut self.executor;
        executor.meter.extra_calls -= 1;
        session.info.traffic.last_command.store(0, Relaxed);
        executor.stats().unknown_commands.add(1);
        if is_http(incoming.args.get(0)) {
            tracing::warn!(
                client = session.id,
                "client closed: it sent an HTTP request, possibly an attack by a web page"
            );
            session.flow = Flow::Closing;
            return;
        }
        let error = executor.note_refusal(session, None, unknown_command(&incoming.args));
        executor.refuse(session.protocol(), error, out);
    }

    /// Replies with the error of a refused request, and counts the refusal.
    #[cold]
    fn reject(&mut self, session: &mut Session, refused: Refused, out: &mut ByteQueue) {
        let Refused { registered, error } = refused;
        let executor = &mut self.executor;
        let names_command = !matches!(error, CommandError::UnknownSubcommand(..));
        let shown = if names_command { registered.id as u64 + 1 } else { 0 };
        session.info.traffic.last_command.store(shown, Relaxed);
        executor.meter.extra_calls -= 1;
        executor.counters(registered).rejected.add(1);
        let error = executor.note_refusal(session, Some(registered.command.run), error);
        executor.refuse(session.protocol(), error, out);
    }

    /// Returns true if this command of a client, and therefore the client, must wait. CLIENT PAUSE
    /// delays all commands, including CLIENT UNPAUSE, or only writes. A full change log delays
    /// writes. The end of the server delays all commands.
    #[cold]
    fn is_held_back(&mut self, session: &mut Session, registered: &Registered, args: &Args<'_>) -> bool {
        let writes = writes(session, registered) && self.executor.may_write(session, registered, args);
        let pause = &self.shared().pause;
        let now_ms = self.executor.now.unix_ms;
        let is_paused = (writes && pause.is_on(now_ms)) || pause.is_on_for_all(now_ms);
        if is_paused || self.shared().server_state.is_stopping.load(Relaxed) {
            session.flow = Flow::Postponed;
        } else if writes && self.executor.commit.awaits_room() {
            session.flow = Flow::AwaitingLog;
        }
        session.flow != Flow::Running
    }

    /// Refuses a command that a busy script, loading, a failed save or a lack of replicas prevents,
    /// and postpones a command that must wait. Returns `None` if the command may run.
    #[cold]
    fn hold_back(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
        out: &mut ByteQueue,
    ) -> Option<Outcome> {
        if self.is_out_of_reach(registered) {
            let error = self.shared().scripts.error();
            self.reject(session, Refused { registered, error }, out);
            return Some(Outcome::Done);
        }
        if let Some(error) = self.standing_refusal(session, registered) {
            self.reject(session, Refused { registered, error }, out);
            return Some(Outcome::Done);
        }
        self.is_held_back(session, registered, args).then_some(Outcome::Postponed)
    }

    /// Returns the error for a request that the state of the server does not permit. The reasons
    /// are checked in the order of Redis: a disk that cannot be written, too few replicas, a write
    /// on a replica, a replica that may not show old data, and loading.
    fn standing_refusal(&self, session: &Session, registered: &Registered) -> Option<CommandError> {
        let command = &registered.command;
        let permitted = common_flags_of(session, registered);
        let flags = flags_of(session, registered);
        let refusal = match flags.contains(Flags::WRITE) {
            true => self.executor.write_refusal(),
            false if command.name == "PING" => self.executor.disk_refusal(),
            false => None,
        };
        refusal.or_else(|| state_refusal(self.shared(), permitted, flags))
    }

    /// Returns true if a busy script prevents this command, as far as this is known before the
    /// command's locks are requested. If the script owns the keyspace, it prevents all commands
    /// except those allowed during busy scripts. If it holds shards, commands that name their keys
    /// can run on other shards.
    fn is_out_of_reach(&self, registered: &Registered) -> bool {
        let names_keys =
            matches!(registered.command.run, Runner::Data(_) | Runner::Transaction(_) | Runner::Script(_));
        let may_run = registered.command.flags.contains(Flags::ALLOW_BUSY)
            || (self.executor.is_inside && (names_keys || !self.shared().scripts.is_any_busy()));
        !may_run
    }

    /// Removes the request's reply from the output until the values that the request removed are
    /// freed.
    #[cold]
    fn delay_reply(&mut self, session: &mut Session, out: &mut ByteQueue, reply_from: usize) {
        let freeing = &self.shared().freeing;
        let commit = &mut self.executor.commit;
        commit.effects.freed_before_reply = false;
        commit.effects.absorb(&mut commit.access_results);
        freeing.push(std::mem::take(&mut commit.effects.lazy_freed));
        let ticket = freeing.ticket();
        freeing.await_ticket(ticket);
        if session.flow == Flow::Running && !freeing.is_done(ticket) {
            session.flow = Flow::AwaitingFree;
            let reply = out.split_off(reply_from);
            self.delayed_replies.push(DelayedReply { conn: session.conn, client: session.id, ticket, reply });
        }
    }

    /// Takes the delayed replies whose requests' removed values are freed, so that the replies can
    /// be sent.
    pub fn freed_replies(&mut self) -> Vec<DelayedReply> {
        let Some(first) = self.delayed_replies.iter().map(|delayed| delayed.ticket).min() else {
            return Vec::new();
        };
        let freeing = &self.executor.commit.shared.freeing;
        if freeing.is_awaited(first) {
            return Vec::new();
        }
        freeing.await_ticket(first);
        self.delayed_replies.extract_if(.., |delayed| freeing.is_done(delayed.ticket)).collect()
    }
}

/// Returns the error for a command while a replica may not show old data, or data is loaded.
/// `permitted` has the flags of all its parts; `flags` those of any.
pub(crate) fn state_refusal(shared: &Shared, permitted: Flags, flags: Flags) -> Option<CommandError> {
    let server_state = &shared.server_state;
    if server_state.role.is_stale() && !permitted.contains(Flags::STALE) {
        return Some(STALE_REPLICA);
    }
    let is_refused = server_state.is_loading.load(Relaxed) && !permitted.contains(Flags::LOADING)
        || server_state.role.is_loading_beside() && flags.contains(Flags::NO_ASYNC_LOADING);
    is_refused.then_some(LOADING)
}

/// Returns true if the reply confirms the beginning or end of a subscription. It is then a message,
/// which CLIENT REPLY does not suppress.
fn confirms(incoming: &Incoming<'_>) -> bool {
    incoming.registered.is_some_and(|it| it.is_subscription() && it.command.accepts(incoming.args.len()))
}

/// Removes a reply that the client does not want (CLIENT REPLY) from the output, and advances the
/// mode of CLIENT REPLY.
fn silence(session: &mut Session, out: &mut ByteQueue, reply_from: Option<usize>) {
    if let Some(reply_from) = reply_from.filter(|_| session.reply_mode != ReplyMode::On) {
        out.truncate(reply_from);
    }
    match session.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off | ReplyMode::Skip => {
            // A blocked client has not yet received the reply to skip.
            if session.reply_mode == ReplyMode::Skip && session.flow != Flow::Blocked {
                session.reply_mode = ReplyMode::On;
            }
        }
        ReplyMode::SkipNext => session.reply_mode = ReplyMode::Skip,
    }
}

//! Transaction commands, and the execution of the queued commands by EXEC.
//!
//! If the arguments of all queued commands name their keys and there is no monitor, EXEC locks all
//! these keys together, once. Otherwise it runs as the exclusive owner of the keyspace. In both
//! cases each command runs like a single request, and their changes are one unit of the change log.

use std::sync::atomic::Ordering::Relaxed;

use commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use commands::{Args, BlockingMode, CommandError};
use keyspace::key::KeyHash;
use keyspace::{Key, Locked};
use resp::Reply;
use smallvec::SmallVec;
use stdx::ByteQueue;

use crate::alone::{LOADING, NotAlone};
use crate::call::Host;
use crate::clock::Clock;
use crate::commit::Unit;
use crate::pass::TurnPass;
use crate::request::Request;
use crate::run::{Executor, lock_blocked_clients_keys, served_max_of};
use crate::session::{Flow, ReplyMode, Session};
use crate::shared::Shared;
use crate::stats::Ran;
use crate::table::{Registered, Runner, Verb};
use crate::transaction::{Transaction, Watch};

/// Returns the transaction commands, to be added to the server's table of all commands.
pub fn commands() -> impl Iterator<Item = Command<Runner>> {
    COMMANDS.iter().map(|command| command.map(Runner::Transaction))
}

/// The command table's entries of the transaction commands.
static COMMANDS: &[&Command<Verb>] = &[&MULTI, &EXEC, &DISCARD, &WATCH, &UNWATCH];

static MULTI: Command<Verb> = Command {
    name: "MULTI",
    summary: "Begins a transaction: the commands that follow are queued.",
    history: History::since("1.2.0"),
    group: Group::Transactions,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::TRANSACTION,
    run: Verb::Multi,
    ..Command::DEFAULT
};

static EXEC: Command<Verb> = Command {
    name: "EXEC",
    summary: "Runs the queued commands, all at once.",
    history: History::since("1.2.0"),
    group: Group::Transactions,
    complexity: "Depends on commands in the transaction",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::SKIP_SLOWLOG),
    acl: Acl::TRANSACTION,
    run: Verb::Exec,
    ..Command::DEFAULT
};

static DISCARD: Command<Verb> = Command {
    name: "DISCARD",
    summary: "Forgets the queued commands and the watched keys.",
    history: History::since("2.0.0"),
    complexity: "O(N), when N is the number of queued commands",
    run: Verb::Discard,
    ..MULTI
};

static WATCH: Command<Verb> = Command {
    name: "WATCH",
    summary: "Makes the next transaction depend on keys: it does not run if one of them changes before.",
    history: History::since("2.2.0"),
    complexity: "O(1) for every key.",
    arity: Arity::AtLeast(2),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO)],
    args: &[Arg::key("key", 0).multiple()],
    run: Verb::Watch,
    ..MULTI
};

static UNWATCH: Command<Verb> = Command {
    name: "UNWATCH",
    summary: "Forgets the watched keys.",
    history: History::since("2.2.0"),
    run: Verb::Unwatch,
    ..MULTI
};

impl<'s, C: Clock, H: Host> Executor<'s, C, H> {
    /// Queues a command in the session's transaction. The queue counts as the client's input. If it
    /// exceeds `client-query-buffer-limit`, the connection is closed.
    pub(crate) fn queue(
        &mut self,
        session: &mut Session,
        registered: &'static Registered,
        args: &Args<'_>,
        out: &mut ByteQueue,
    ) {
        let Some(transaction) = &mut session.transaction else { return };
        if registered.command.flags.contains(Flags::NO_MULTI) {
            transaction.refused = true;
            let error = CommandError::Line("ERR Command not allowed inside a transaction");
            return self.refuse(session.protocol(), error, out);
        }
        let len_bytes = transaction.push(registered, args);
        session.info.queued.store(transaction.queue.len() as u64 + 1, Relaxed);
        session.info.held.queued_bytes.fetch_add(len_bytes as u64, Relaxed);
        let queued_bytes = transaction.query_bytes();
        if queued_bytes as u64 > self.settings.clients.query_buffer_bytes_max {
            self.note_long_query(session.id, queued_bytes);
            self.discard(session);
            session.flow = Flow::Closing;
            return;
        }
        Reply::new(out, session.protocol()).simple("QUEUED");
    }

    /// Counts and logs a client that is closed because of `client-query-buffer-limit`.
    #[cold]
    pub fn note_long_query(&self, client: u64, len_bytes: usize) {
        tracing::warn!(client, len_bytes, "client closed: its input exceeds client-query-buffer-limit");
        self.stats().disconnections.query_limit.add(1);
    }

    /// Runs a transaction command. Returns true if it succeeded.
    pub(crate) fn run_transaction(
        &mut self,
        session: &mut Session,
        verb: Verb,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let done = match verb {
            Verb::Exec => self.exec(session, request.registered, out, pass),
            _ => self.prepare(session, verb, &request.args).inspect(|()| {
                Reply::new(out, session.protocol()).ok();
            }),
        };
        match done {
            Ok(()) => true,
            Err(error) => {
                self.fail(request.registered, session.protocol(), error, out);
                false
            }
        }
    }

    /// Runs a transaction command other than EXEC, such as MULTI or WATCH.
    fn prepare(&mut self, session: &mut Session, verb: Verb, args: &Args<'_>) -> Result<(), CommandError> {
        match verb {
            Verb::Multi if session.transaction.is_some() => {
                return Err(CommandError::Line("ERR MULTI calls can not be nested"));
            }
            Verb::Multi => {
                session.transaction = Some(Box::default());
                session.info.queued.store(1, Relaxed);
            }
            Verb::Discard if session.transaction.is_none() => {
                return Err(CommandError::Line("ERR DISCARD without MULTI"));
            }
            Verb::Discard => self.discard(session),
            Verb::Watch if session.transaction.is_some() => {
                return Err(CommandError::Line("ERR WATCH inside MULTI is not allowed"));
            }
            Verb::Watch => self.watch(session, args),
            Verb::Unwatch => self.unwatch(session),
            Verb::Exec => {}
        }
        Ok(())
    }

    fn watch(&mut self, session: &mut Session, args: &Args<'_>) {
        let Shared { watchers, keyspace, .. } = self.shared();
        if session.watch.is_some() && session.watched().is_none() {
            self.unwatch(session);
        }
        let due_ms = self.due_ms(&session.info);
        let db = session.db();
        let is_inside = self.is_inside;
        let watch = session.watch.get_or_insert_with(|| Box::new(Watch::new(&session.info, watchers)));
        watch.begin();
        for index in 1..args.len() {
            if !(is_inside && watch.add((watchers, keyspace), (db, args.key(index)), due_ms)) {
                watch.fail();
            }
        }
        session.info.watched.store(watch.keys.len() as u64, Relaxed);
    }

    /// Handles EXEC. Sets [`Flow::Postponed`] and keeps the transaction if clients were paused
    /// while the thread waited to own the keyspace exclusively.
    fn exec(
        &mut self,
        session: &mut Session,
        registered: &Registered,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Result<(), CommandError> {
        let Some(transaction) = session.transaction.take() else {
            return Err(CommandError::Line("ERR EXEC without MULTI"));
        };
        let queued = session.info.queued.swap(0, Relaxed);
        let queued_bytes = session.info.held.queued_bytes.swap(0, Relaxed);
        if transaction.refused {
            self.unwatch(session);
            let line = "EXECABORT Transaction discarded because of previous errors.";
            return Err(CommandError::Line(line));
        }
        // Monitors receive each command before the transaction has a position in the change log.
        // So with a monitor it runs as the exclusive owner: no other client receives anything
        // before it is complete.
        let ran = if transaction.has_declared_keys(self.shared().keyspace.hasher()) && !self.now.is_monitored
        {
            self.exec_locked(session, &transaction, out, pass)
        } else {
            let effect = self.effect_of(&transaction);
            let ran = self.alone(pass, effect, |it, pass| it.exec_alone(session, &transaction, out, pass));
            if ran == Err(NotAlone::Paused) {
                session.transaction = Some(transaction);
                session.info.queued.store(queued, Relaxed);
                session.info.held.queued_bytes.store(queued_bytes, Relaxed);
                self.postpone(session, registered);
                return Ok(());
            }
            if ran == Err(NotAlone::Loading) {
                self.unwatch(session);
                return Err(aborted_by(&LOADING));
            }
            ran.ok()
        };
        self.unwatch(session);
        let Some(ran) = ran else {
            return Err(aborted_by(&self.shared().scripts.error()));
        };
        if !ran {
            // The null reply shows that a watched key was changed by an earlier unit.
            session.saw(self.shared().log.drawn());
            Reply::new(out, session.protocol()).null_array();
        }
        Ok(())
    }

    /// Runs a transaction under the locks of all its keys. Returns false if a watched key has
    /// changed, and `None` if a busy script holds one of the shards.
    fn exec_locked(
        &mut self,
        session: &mut Session,
        transaction: &Transaction,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> Option<bool> {
        let shared = self.shared();
        let requests = self.requests(transaction);
        let keys = requests.iter().flat_map(|request| request.keys.as_slice());
        let watched = session.watched().into_iter().flat_map(|watch| watch.keys.iter().map(|key| key.hash));
        let hashes: SmallVec<[KeyHash; 16]> = keys.map(|key| key.hash).chain(watched).collect();
        let mut locked = shared.keyspace.lock_all_of_unless_busy(hashes.into_iter())?;
        if locked.has_registrations() {
            let keys: Vec<Key<'_>> = requests.iter().flat_map(Request::named_keys).collect();
            locked =
                lock_blocked_clients_keys(shared, locked, &keys, requests.iter().map(served_max_of).sum())?;
        }
        let due_ms = self.due_ms(&session.info);
        if session.watched().is_some_and(|watch| watch.has_changed_key(&mut locked, due_ms)) {
            return Some(false);
        }
        Reply::new(out, session.protocol()).array(requests.len());
        for request in &requests {
            if !self.refuses_queued(session, request, out) {
                self.run_queued(session, Some(&mut locked), request, out, pass);
            }
        }
        if self.commit.effects.record.is_wanted {
            self.commit.log_unit(&locked);
            session.saw(self.commit.position);
            session.wrote(self.commit.own_position);
        }
        self.end_transaction(locked, session);
        Some(true)
    }

    /// Runs a transaction as the exclusive owner of the keyspace. Returns false if a watched key
    /// has changed.
    fn exec_alone(
        &mut self,
        session: &mut Session,
        transaction: &Transaction,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let shared = self.shared();
        if let Some(watch) = session.watched() {
            let mut locked = shared.keyspace.lock_all_of(watch.keys.iter().map(|key| key.hash));
            if watch.has_changed_key(&mut locked, self.due_ms(&session.info)) {
                return false;
            }
        }
        let mut reply = Reply::new(out, session.protocol());
        // The transaction may unsubscribe, and messages cannot be inside its reply.
        session.catch_up(&shared.pubsub, &mut reply);
        let begun = (!session.is_silenced()).then(|| reply.begin_array());
        // Each confirmation of a subscription command is an element of its own.
        let mut elements = 0;
        session.in_exec = true;
        self.commit.position = session.observed_position();
        for request in &self.requests(transaction) {
            let replied = out.len_bytes();
            let confirmations =
                session.confirmation_count(request.registered.full_name, request.args.len() - 1);
            let succeeded = !self.refuses_queued(session, request, out)
                && self.run_queued(session, None, request, out, pass);
            // Checked for each command, because CLIENT REPLY may be one of them.
            let confirms = succeeded && request.registered.is_subscription();
            elements += if confirms { confirmations } else { 1 };
            if session.is_silenced() && !confirms {
                out.truncate(replied);
            }
        }
        if let Some(begun) = begun {
            Reply::new(out, session.protocol()).end_array(begun, elements);
        }
        session.in_exec = false;
        self.exec_filtered_replies = session.reply_mode != ReplyMode::On;
        // REPLICAOF in the transaction may have detached the last reader. The client has seen the
        // next position all the same, and waits for it.
        if shared.log.is_attached() || self.commit.has_record() {
            self.commit.log_unit_alone();
            session.saw(self.commit.position);
            session.wrote(self.commit.own_position);
        }
        self.end_transaction(shared.keyspace.lock_none(), session);
        true
    }

    /// Returns the queued commands of a transaction with the positions of their keys. O(keys).
    fn requests<'t>(&self, transaction: &'t Transaction) -> Vec<Request<'t>>
    where
        's: 't,
    {
        let hasher = self.shared().keyspace.hasher();
        let queue = transaction.queue.iter();
        queue.map(|queued| Request::unhashed(queued.registered, queued.args.args(hasher))).collect()
    }

    /// Runs a queued command, or a command of a script, under the locks of its transaction or
    /// script. If `locked` is `None`, the caller owns the keyspace exclusively, and a command on
    /// keys locks them itself. Returns true if the command succeeded.
    pub(crate) fn run_queued(
        &mut self,
        session: &mut Session,
        locked: Option<&mut Locked<'s>>,
        request: &Request<'_>,
        out: &mut ByteQueue,
        pass: &mut TurnPass<'_, '_>,
    ) -> bool {
        let (since, replied) = (self.clock.ticks(), out.len_bytes());
        let registered = request.registered;
        self.counters(registered).calls.add(1);
        let discarded_before = self.commit.effects.lazy_freed.len();
        let succeeded = match registered.command.run {
            Runner::Data(handler) => {
                let caller = self.caller(session, request, BlockingMode::Reply);
                let db = caller.db;
                match locked {
                    Some(locked) => {
                        let succeeded = self.run_one(locked, &caller, handler, request, out);
                        self.commit.record(db, &request.args, Some(locked));
                        succeeded
                    }
                    None => {
                        let keyspace = &self.shared().keyspace;
                        let mut own = if registered.command.runs_alone(&request.args) {
                            keyspace.lock_all()
                        } else {
                            request.keys.lock(keyspace)
                        };
                        let succeeded = self.run_one(&mut own, &caller, handler, request, out);
                        if self.commit.effects.record.is_wanted {
                            self.commit.record(db, &request.args, Some(&own));
                            self.commit.note_change_alone(Some(&own));
                        }
                        succeeded
                    }
                }
            }
            Runner::Walk(walker) => self.walk(session, walker, request, out, Unit::Transaction),
            // A script under locks may be undone, so nothing before this command may be released.
            Runner::Host(command) if locked.is_some() => {
                self.run_harmless(session, command, request, out, pass)
            }
            Runner::Host(command) => {
                // Messages that the command publishes follow the events of the commands before it.
                self.commit.release(session.id);
                self.run_host(session, command, request, out, pass)
            }
            Runner::Transaction(verb) => self.run_transaction(session, verb, request, out, pass),
            Runner::Script(_) => self.run_script(session, request, out, pass),
        };
        if self.now.is_monitored {
            // A monitor receives the events of a command before its line, as in Redis.
            self.commit.release(session.id);
            self.monitor(&session.info, registered, &request.args);
        }
        if std::mem::take(&mut self.commit.effects.freed_before_reply) {
            // A transaction's reply is not delayed: FLUSHALL SYNC frees here, as in Redis.
            self.commit.effects.lazy_freed.truncate(discarded_before);
        }
        self.free_queued(|clock| clock.elapsed(since));
        let bytes = [request.text_bytes(), out.len_bytes().saturating_sub(replied)];
        self.note_queued(session, &Ran { registered, args: &request.args, bytes, calls: 1 }, since);
        succeeded
    }

    /// Ends a transaction under locks: sends its messages to other clients and serves clients
    /// blocked on changed keys.
    fn end_transaction(&mut self, locked: Locked<'s>, session: &Session) {
        if self.commit.is_pending() {
            self.commit.release(session.id);
            self.serve(locked);
        }
    }

    /// Records that a command was refused, so that its transaction will not run. A refused EXEC
    /// ends the transaction. Returns the error to reply with.
    #[cold]
    pub(crate) fn note_refusal(
        &self,
        session: &mut Session,
        runner: Option<Runner>,
        error: CommandError,
    ) -> CommandError {
        if let Some(Runner::Transaction(Verb::Exec)) = runner {
            self.discard(session);
            return aborted_by(&error);
        }
        if let Some(transaction) = &mut session.transaction {
            transaction.refused = true;
        }
        error
    }

    /// Removes all keys that the session watches.
    fn unwatch(&self, session: &mut Session) {
        if self.is_inside {
            session.unwatch(&self.shared().watchers, &self.shared().keyspace);
        } else {
            session.unwatch_later();
        }
    }

    /// Drops the queued commands of the session, and removes all its watched keys.
    fn discard(&self, session: &mut Session) {
        session.drop_transaction();
        self.unwatch(session);
    }
}

/// Returns the EXECABORT error of a transaction that cannot run because of `error`.
#[cold]
fn aborted_by(error: &CommandError) -> CommandError {
    let line = error.line();
    let mut abort = b"EXECABORT Transaction discarded because of: ".to_vec();
    abort.extend_from_slice(line.strip_prefix(b"ERR ").unwrap_or(&line));
    CommandError::Bytes(abort)
}

//! Transactions: MULTI queues, EXEC runs all of it at once, WATCH makes EXEC depend on keys.
//!
//! **EXEC** on data commands that name their keys takes the union of their shards' locks (and those of
//! watched keys) once, and runs them one after another: others work on other shards meanwhile. A
//! transaction with anything else in it (a command about the server, one that visits all keys) runs alone,
//! with the gate closed.
//!
//! **WATCH** notes whether the key exists and lets writers mark the client (`crate::follow`), under the lock
//! of the key's shard. EXEC looks at the mark under the same locks, so a write is before it or after the
//! whole transaction. A key that existed and is gone counts as changed however it went: deleted, expired
//! (noticed or not), evicted, flushed. A key whose time was over when it was watched is none, and its removal
//! changes nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::keys::for_each_key;
use commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use commands::{Args, CommandError, Patience};
use hashbrown::HashTable;
use keyspace::gate::SharedPass;
use keyspace::key::shard_of;
use keyspace::view::Overdue;
use keyspace::{Hasher, Key, Locked};
use resp::Reply;
use smallvec::SmallVec;
use stdx::ByteQueue;

use crate::command_table::{KeyPlan, Registered, Runner};
use crate::dispatch::{Engine, Request};
use crate::execute::{Caller, is_live, lock_reach, served_max_of};
use crate::owned_args::OwnedArgs;
use crate::session::{ClientInfo, Flow, ReplyMode, Session};
use crate::shared::Shared;
use crate::timing::Ran;

/// This group's commands.
pub static COMMANDS: &[&Command<Runner>] = &[&MULTI, &EXEC, &DISCARD, &WATCH, &UNWATCH];

/// What a transaction command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Begins to queue.
    Multi,
    /// Runs what is queued.
    Exec,
    /// Forgets what is queued.
    Discard,
    /// Makes the next EXEC depend on keys.
    Watch,
    /// Forgets the keys.
    Unwatch,
}

static MULTI: Command<Runner> = Command {
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
    run: Runner::Transaction(Verb::Multi),
    ..Command::DEFAULT
};

static EXEC: Command<Runner> = Command {
    name: "EXEC",
    summary: "Runs the queued commands, all at once.",
    history: History::since("1.2.0"),
    group: Group::Transactions,
    complexity: "Depends on commands in the transaction",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::SKIP_SLOWLOG),
    acl: Acl::TRANSACTION,
    run: Runner::Transaction(Verb::Exec),
    ..Command::DEFAULT
};

static DISCARD: Command<Runner> = Command {
    name: "DISCARD",
    summary: "Forgets the queued commands and the watched keys.",
    history: History::since("2.0.0"),
    group: Group::Transactions,
    complexity: "O(N), when N is the number of queued commands",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::TRANSACTION,
    run: Runner::Transaction(Verb::Discard),
    ..Command::DEFAULT
};

static WATCH: Command<Runner> = Command {
    name: "WATCH",
    summary: "Makes the next transaction depend on keys: it does not run if one of them changes before.",
    history: History::since("2.2.0"),
    group: Group::Transactions,
    complexity: "O(1) for every key.",
    arity: Arity::AtLeast(2),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::TRANSACTION,
    keys: &[KeySpec::from(1, 1, KeyFlags::RO)],
    args: &[Arg::key("key", 0).multiple()],
    run: Runner::Transaction(Verb::Watch),
    ..Command::DEFAULT
};

static UNWATCH: Command<Runner> = Command {
    name: "UNWATCH",
    summary: "Forgets the watched keys.",
    history: History::since("2.2.0"),
    group: Group::Transactions,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::ALLOW_BUSY),
    acl: Acl::TRANSACTION,
    run: Runner::Transaction(Verb::Unwatch),
    ..Command::DEFAULT
};

/// A transaction that is being queued. Thread: the client's.
#[derive(Default)]
pub struct Transaction {
    queue: Vec<Queued>,
    /// What counts against `client-query-buffer-limit`, as in Redis: the words, and a pointer for each.
    query_bytes: usize,
    /// A command was refused: EXEC will be, too.
    refused: bool,
    /// All commands' flags together.
    flags: Option<Flags>,
}

/// A queued command.
struct Queued {
    registered: &'static Registered,
    args: OwnedArgs,
}

impl Transaction {
    /// The flags of all queued commands together.
    pub fn flags(&self) -> Flags {
        self.flags.unwrap_or(Flags::empty())
    }

    /// What the queue takes, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.queue.iter().map(|queued| queued.args.len_bytes() + size_of::<Queued>()).sum()
    }

    /// What the queue counts as unread input.
    pub fn query_bytes(&self) -> usize {
        self.query_bytes
    }

    /// Whether all of it names its keys and can run under their locks.
    fn names_its_keys(&self, hasher: &Hasher) -> bool {
        self.queue.iter().all(|queued| {
            let command = &queued.registered.command;
            matches!(command.run, Runner::Data(_))
                && queued.registered.key_plan != KeyPlan::None
                && !command.runs_alone(&queued.args.args(hasher))
        })
    }
}

/// Keys that a client watches. Thread: the client's; whoever changes one of them marks the client
/// ([`ClientInfo::watch_dirty`]).
pub struct Watch {
    client: Arc<ClientInfo>,
    keys: Vec<WatchedKey>,
    /// Places in `keys`, found by the hash of the key.
    places: HashTable<usize>,
}

/// What a watched key takes in the table of followers and as a place found by its hash, beside its name (measured).
const FOLLOWED_BYTES: usize = 320;

struct WatchedKey {
    db: usize,
    key: Box<[u8]>,
    hash: u64,
    existed: bool,
}

/// Whether a command is queued in a transaction rather than run.
pub fn is_queued(registered: &Registered) -> bool {
    let runs_at_once = match registered.command.run {
        Runner::Transaction(verb) => verb != Verb::Unwatch,
        Runner::Data(_) | Runner::Server(_) => matches!(registered.full_name, "quit" | "reset"),
    };
    !runs_at_once
}

/// Notes that a command was refused: the transaction that it was meant for will not run. A refused EXEC ends
/// its transaction. Gives the error to reply with.
#[cold]
pub fn note_refusal(
    session: &mut Session,
    registered: Option<&Registered>,
    error: CommandError,
    shared: &Shared,
) -> CommandError {
    let run = registered.map(|registered| registered.command.run);
    if let Some(Runner::Transaction(Verb::Exec)) = run {
        session.discard(shared);
        let line = error.line();
        let mut abort = b"EXECABORT Transaction discarded because of: ".to_vec();
        abort.extend_from_slice(line.strip_prefix(b"ERR ").unwrap_or(&line));
        return CommandError::Bytes(abort);
    }
    if let Some(transaction) = &mut session.transaction {
        transaction.refused = true;
    }
    error
}

impl Session {
    /// Forgets the watched keys. The caller holds no shard's lock.
    pub fn unwatch(&mut self, shared: &Shared) {
        let Some(watch) = self.watch.take() else { return };
        shared.follows.watching_clients().fetch_sub(1, Relaxed);
        self.info.watched.store(0, Relaxed);
        let named_bytes: usize = watch.keys.iter().map(WatchedKey::len_bytes).sum();
        self.info.named_bytes.fetch_sub(named_bytes as u64, Relaxed);
        for watched in &watch.keys {
            let mut shard = shared.keyspace.lock(shard_of(watched.hash));
            shared.follows.remove_watcher(watched.db, &watched.key, watched.hash, watch.client.id);
            shard.remove_follower();
        }
        // Under the locks of their shards all keys were let go of: nobody marks the client any more.
        self.info.watch_dirty.store(false, Relaxed);
    }

    /// Forgets the transaction and the watched keys. The caller holds no shard's lock.
    pub fn discard(&mut self, shared: &Shared) {
        self.transaction = None;
        self.info.queued.store(0, Relaxed);
        self.info.queued_bytes.store(0, Relaxed);
        self.unwatch(shared);
    }
}

impl Watch {
    fn new(client: &Arc<ClientInfo>) -> Self {
        Self { client: Arc::clone(client), keys: Vec::new(), places: HashTable::new() }
    }

    /// Whether a key of database `db` is watched. O(1).
    fn has(&self, db: usize, key: Key<'_>) -> bool {
        let is_it = |watched: &WatchedKey| watched.db == db && *watched.key == *key.bytes;
        self.places.find(key.hash, |&place| is_it(&self.keys[place])).is_some()
    }

    fn add(&mut self, watched: WatchedKey) {
        let Self { keys, places, .. } = self;
        places.insert_unique(watched.hash, keys.len(), |&place| keys[place].hash);
        keys.push(watched);
    }

    /// Whether a watched key changed. Their shards are locked.
    fn is_stale(&self, locked: &mut Locked<'_>, due_ms: i64) -> bool {
        // Relaxed: set under the locks that are held here.
        self.client.watch_dirty.load(Relaxed)
            || self.keys.iter().any(|key| key.existed && !key.exists(locked, due_ms))
    }
}

impl WatchedKey {
    /// What it takes, in bytes, here and in the table of the key's followers.
    fn len_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.key.len() + FOLLOWED_BYTES
    }

    /// Whether the key exists now; its shard is locked. As in Redis nothing is removed here: who looks whether
    /// a key is there does not end it.
    fn exists(&self, locked: &mut Locked<'_>, now_ms: i64) -> bool {
        let key = Key { bytes: &self.key, hash: self.hash };
        locked.shard_of_mut(self.hash).is_some_and(|shard| is_live(shard, self.db, key, now_ms))
    }
}

impl Engine {
    /// Queues a command in the session's transaction. What is queued counts as the client's input, and closes its
    /// connection when it exceeds `client-query-buffer-limit`.
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
            return self.refuse(session, out, error);
        }
        transaction.flags = Some(transaction.flags() | registered.command.flags);
        transaction.queue.push(Queued { registered, args: OwnedArgs::new(args.from(0)) });
        session.info.queued.store(transaction.queue.len() as u64 + 1, Relaxed);
        let len_bytes =
            size_of::<Queued>() + transaction.queue.last().map_or(0, |last| last.args.len_bytes());
        session.info.queued_bytes.fetch_add(len_bytes as u64, Relaxed);
        transaction.query_bytes += args.from(0).map(|word| word.len() + size_of::<usize>()).sum::<usize>();
        let queued = transaction.query_bytes;
        if queued as u64 > self.settings.query_buffer_bytes_max {
            self.note_long_query(session.id, queued);
            session.discard(&self.shared);
            session.flow = Flow::Closing;
            return;
        }
        Reply::new(out, session.protocol).simple("QUEUED");
    }

    /// Counts and logs a client that is closed because of `client-query-buffer-limit`.
    #[cold]
    pub(crate) fn note_long_query(&self, client: u64, len_bytes: usize) {
        tracing::warn!(client, len_bytes, "client closed: its input exceeds client-query-buffer-limit");
        self.shared.threads[self.standing.thread].stats.query_limit_disconnections.add(1);
    }

    /// Runs a transaction command.
    pub(crate) fn run_transaction(
        &mut self,
        session: &mut Session,
        verb: Verb,
        args: &Args<'_>,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Result<(), CommandError> {
        match verb {
            Verb::Multi if session.transaction.is_some() => {
                return Err(CommandError::Line("ERR MULTI calls can not be nested"));
            }
            Verb::Multi => {
                session.transaction = Some(Box::default());
                session.info.queued.store(1, Relaxed);
            }
            Verb::Exec => return self.exec(session, out, pass),
            Verb::Discard if session.transaction.is_none() => {
                return Err(CommandError::Line("ERR DISCARD without MULTI"));
            }
            Verb::Discard => session.discard(&self.shared),
            Verb::Watch if session.transaction.is_some() => {
                return Err(CommandError::Line("ERR WATCH inside MULTI is not allowed"));
            }
            Verb::Watch => self.watch(session, args),
            Verb::Unwatch => session.unwatch(&self.shared),
        }
        Reply::new(out, session.protocol).ok();
        Ok(())
    }

    fn watch(&mut self, session: &mut Session, args: &Args<'_>) {
        let shared = Arc::clone(&self.shared);
        let watch = session.watch.get_or_insert_with(|| {
            shared.follows.watching_clients().fetch_add(1, Relaxed);
            Box::new(Watch::new(&session.info))
        });
        for index in 1..args.len() {
            let key = args.key(index);
            // Once it is known to fail, no more needs to be watched.
            if watch.client.watch_dirty.load(Relaxed) || watch.has(session.db, key) {
                continue;
            }
            let mut locked = shared.keyspace.lock_one(key.hash);
            let shard = locked.shard_of_mut(key.hash).expect("its shard was locked above");
            let existed = is_live(shard, session.db, key, self.standing.due_ms(&session.info));
            shard.add_follower();
            shared.follows.add_watcher(session.db, key.bytes, key.hash, &watch.client);
            let watched = WatchedKey { db: session.db, key: key.bytes.into(), hash: key.hash, existed };
            session.info.named_bytes.fetch_add(watched.len_bytes() as u64, Relaxed);
            watch.add(watched);
        }
        session.info.watched.store(watch.keys.len() as u64, Relaxed);
    }

    fn exec(
        &mut self,
        session: &mut Session,
        out: &mut ByteQueue,
        pass: &mut SharedPass<'_>,
    ) -> Result<(), CommandError> {
        let Some(transaction) = session.transaction.take() else {
            return Err(CommandError::Line("ERR EXEC without MULTI"));
        };
        session.info.queued.store(0, Relaxed);
        session.info.queued_bytes.store(0, Relaxed);
        let shared = Arc::clone(&self.shared);
        if transaction.refused {
            session.unwatch(&shared);
            let line = "EXECABORT Transaction discarded because of previous errors.";
            return Err(CommandError::Line(line));
        }
        let ran = if transaction.names_its_keys(shared.keyspace.hasher()) {
            self.exec_locked(session, &transaction, out, &shared)
        } else {
            pass.alone(|pass| self.exec_alone(session, &transaction, out, &shared, pass))
        };
        session.unwatch(&shared);
        if !ran {
            Reply::new(out, session.protocol).null_array();
        }
        Ok(())
    }

    /// Runs a transaction under the locks of all its keys; whether it ran.
    fn exec_locked(
        &mut self,
        session: &mut Session,
        transaction: &Transaction,
        out: &mut ByteQueue,
        shared: &Shared,
    ) -> bool {
        let hasher = shared.keyspace.hasher();
        let mut hashes: SmallVec<[u64; 16]> = SmallVec::new();
        for queued in &transaction.queue {
            let args = queued.args.args(hasher);
            for_each_key(queued.registered.command.keys, &args, |at, _| hashes.push(args.key(at).hash));
        }
        hashes.extend(session.watch.iter().flat_map(|watch| watch.keys.iter().map(|key| key.hash)));
        let mut locked = shared.keyspace.lock_all_of(hashes.into_iter());
        if locked.is_followed() {
            locked = Self::lock_reach_of(shared, locked, transaction);
        }
        let due_ms = self.standing.due_ms(&session.info);
        if session.watch.as_ref().is_some_and(|watch| watch.is_stale(&mut locked, due_ms)) {
            return false;
        }
        Reply::new(out, session.protocol).array(transaction.queue.len());
        let caller = Caller {
            db: session.db,
            protocol: session.protocol,
            touch: !session.no_touch,
            overdue: Overdue::Removed,
            patience: Patience::None,
        };
        for queued in &transaction.queue {
            let Runner::Data(handler) = queued.registered.command.run else { continue };
            let overdue = self.standing.overdue(&session.info, &queued.registered.command);
            let caller = Caller { overdue, ..caller };
            let (since, replied) = (Instant::now(), out.len_bytes());
            self.counters(queued.registered).calls.add(1);
            let args = queued.args.args(hasher);
            let mut executor = self.executor();
            let result = executor.call(&mut locked, caller, handler, &args, out);
            if executor.concerns_others(session) {
                executor.note(&mut locked, session, queued.registered, &args);
            }
            if let Err(error) = result {
                self.counters(queued.registered).failed.add(1);
                self.refuse(session, out, error);
            }
            self.free_queued(since);
            let bytes = [queued.args.len_bytes(), out.len_bytes() - replied];
            self.note_queued(
                session,
                &Ran { registered: queued.registered, args: &args, bytes, calls: 1 },
                since,
            );
        }
        self.tell_followers(shared, locked, session);
        true
    }

    /// Locks what serving clients may touch that wait for a transaction's keys. See [`lock_reach`].
    #[cold]
    fn lock_reach_of<'k>(shared: &'k Shared, locked: Locked<'k>, transaction: &Transaction) -> Locked<'k> {
        let hasher = shared.keyspace.hasher();
        let all: Vec<Args<'_>> = transaction.queue.iter().map(|queued| queued.args.args(hasher)).collect();
        let mut keys = Vec::new();
        let mut served_max = 0;
        for (queued, args) in transaction.queue.iter().zip(&all) {
            let keys_before = keys.len();
            for_each_key(queued.registered.command.keys, args, |at, _| keys.push(args.key(at)));
            served_max += served_max_of(args, keys.len() - keys_before);
        }
        lock_reach(shared, locked, &keys, served_max)
    }

    /// Runs a transaction as the exclusive owner of the keyspace; whether it ran.
    fn exec_alone(
        &mut self,
        session: &mut Session,
        transaction: &Transaction,
        out: &mut ByteQueue,
        shared: &Shared,
        pass: &mut SharedPass<'_>,
    ) -> bool {
        if let Some(watch) = &session.watch {
            let hashes = watch.keys.iter().map(|key| key.hash);
            let mut locked = shared.keyspace.lock_all_of(hashes);
            if watch.is_stale(&mut locked, self.standing.due_ms(&session.info)) {
                return false;
            }
        }
        let mut reply = Reply::new(out, session.protocol);
        // In case it unsubscribes: messages have no place within its reply.
        shared.pubsub.catch_up(session, &mut reply);
        if !session.is_silenced() {
            reply.array(transaction.queue.len());
        }
        session.in_exec = true;
        for queued in &transaction.queue {
            let args = queued.args.args(shared.keyspace.hasher());
            let request = Request { registered: Some(queued.registered), args };
            let replied = out.len_bytes();
            let succeeded = self.run_queued(session, queued.registered, &request, out, pass);
            // Command by command: CLIENT REPLY may be one of them.
            let confirms = succeeded && queued.registered.is_subscription();
            if session.is_silenced() && !confirms {
                out.truncate(replied);
            }
        }
        session.in_exec = false;
        self.silenced_itself = session.reply_mode != ReplyMode::On;
        self.tell_followers(shared, shared.keyspace.lock_none(), session);
        true
    }
}

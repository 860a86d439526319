//! The end of every change, independent of its origin: a command, a transaction, expiry, eviction,
//! FLUSHALL or MIGRATE.
//!
//! There are two steps. After each command [`Commit::collect`] takes the effects that the handler
//! has recorded. Still under the locks, it determines the clients to notify:
//! - It marks the watchers of changed keys.
//! - It takes the clients that cache a changed key out of the tracking tables.
//! - It puts keyspace events in order.
//! - It makes changed keys ready keys if clients are blocked on them.
//!
//! At the end of the unit [`Commit::release`] sends all these messages in order, still under the
//! locks: they enter the inboxes of threads. A unit is a command outside a transaction, a
//! transaction, or one expired or evicted key. Then blocked clients are served (`run`), each as a
//! unit of its own.
//!
//! ```text
//!   handler ─► effects ─collect─► notices, ready keys ─release─► inboxes  (under the locks)
//!                                                        └─► outbox ─► threads woken (no locks)
//! ```
//! A client receives the events and invalidations of keys in the order of the changes, then its
//! reply. A blocked client that is served receives its messages after its own reply.
//!
//! With a change log (`crate::log`), each command adds the commands that replicas and files must
//! repeat to the log record of its unit. The unit takes its log position before it is released
//! ([`Commit::log_unit`]). Its messages carry the position.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::ctx::{Audience, ChangedKey, DbChange, Flush};
use commands::{Args, Changes, EventClass, KeyEvent};
use keyspace::key::{KeyHash, shard_of};
use keyspace::view::{AccessResults, Deadline};
use keyspace::{Key, Keyspace, Locked, Shard};

use crate::log::buffer::Chunk;
use crate::log::target::Targets;
use crate::log::text::SHARED_BYTES_MIN;
use crate::log::unit::{UnitRecord, Values};
use crate::publish::SENTINEL_CHANNEL;
use crate::publish::notify::{self, Notifications};
use crate::publish::pubsub::{Kind, Published};
use crate::publish::send::Sender;
use crate::shared::Shared;
use crate::threads::Outbox;
use crate::track::{Changed, OwnMessages, Place, TrackingClient, Writer};

/// The shards that are locked while the effects of a change are collected.
pub enum Held<'a, 'k> {
    /// The shards of a command's keys are locked.
    Locked(&'a mut Locked<'k>),
    /// One shard is locked: its index, and the shard.
    Shard(usize, &'a mut Shard),
    /// No shard is locked: the caller owns the keyspace exclusively, or the keys are not reachable
    /// by other threads.
    None,
}

impl Held<'_, '_> {
    /// Runs `work` on the shard of a changed key, given by `hash`. Locks the shard first if the
    /// caller has locked none.
    fn with_shard<R>(&mut self, keyspace: &Keyspace, hash: KeyHash, work: impl FnOnce(&mut Shard) -> R) -> R {
        let shard = match self {
            Self::Locked(locked) => locked.shard_of_mut(hash),
            Self::Shard(number, shard) => (*number == shard_of(hash)).then_some(&mut **shard),
            Self::None => return work(&mut keyspace.lock(shard_of(hash))),
        };
        work(shard.expect("a change is collected under the lock of its shard"))
    }
}

/// The unit of the change log (the command alone, or a transaction) to which a command, or the
/// removal of a key, belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The command or removal is one unit of the change log by itself.
    Own,
    /// The command or removal is part of a transaction, which ends after it.
    Transaction,
}

/// A message that is sent to other clients when the command or transaction that caused it has
/// ended.
enum Notice {
    /// A keyspace event to publish.
    Event(KeyEvent),
    /// A changed key, and the clients that cache it (client-side caching).
    Invalidation { key: Box<[u8]>, readers: Vec<Arc<TrackingClient>> },
    /// Databases were emptied, so clients must drop all keys that they cache. The [`Place`] states
    /// if the client that flushed receives this message before or after its reply.
    Flushed(Place),
}

/// A key that changed while clients are blocked on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyKey {
    /// The number of the ready key's database.
    pub db: usize,
    /// The hash of the ready key.
    pub hash: KeyHash,
    /// The name of the ready key.
    pub key: Box<[u8]>,
}

impl ReadyKey {
    /// Returns the name of the ready key, with its hash.
    pub fn key(&self) -> Key<'_> {
        Key { bytes: &self.key, hash: self.hash }
    }
}

/// The changes of one thread whose messages are not sent yet. Used by every thread that runs
/// commands, expires or evicts.
pub struct Commit<'s> {
    /// The state that all threads of the engine share.
    pub shared: &'s Shared,
    /// The index of the I/O thread; `None` for other threads.
    pub thread: Option<usize>,
    /// The changes that commands made to the data and that are not yet collected by
    /// [`Commit::collect`].
    pub effects: Changes,
    /// The counts of hits and misses, and the effects of accesses to keys, such as removed expired
    /// keys.
    pub access_results: AccessResults,
    /// The invalidations for the client whose command runs.
    pub own: OwnMessages,
    /// The threads to wake once no shard is locked.
    pub outbox: Outbox,
    /// The present time of the thread's turn (a pass of its event loop), in Unix milliseconds.
    pub now_ms: i64,
    /// The place of the invalidation of a flush without ASYNC for the client that flushes: before
    /// or after its reply.
    pub flush_place: Place,
    /// The log position that the messages of the last ended unit (a command or transaction) carry.
    /// It is the unit's own position. If the unit changed nothing, it is the position of the last
    /// change to the shards that it used.
    pub position: u64,
    /// The log position of the last ended command or transaction if the change log has a record of
    /// it, else 0.
    pub own_position: u64,
    /// True while the changes of this thread are not recorded in the change log, because they are
    /// replayed from a file that already has them.
    pub is_unrecorded: bool,
    /// The targets to which a running script sends its commands (`redis.set_repl`); all targets
    /// otherwise. The removal of expired keys and fields goes to all targets nevertheless.
    pub propagation: Targets,
    /// The targets (the append-only file, replicas) for which changes are recorded at present.
    targets: Targets,
    /// The change log's record of the current command or transaction.
    unit: UnitRecord,
    /// The change log's records of ended commands and transactions that this thread has not
    /// published yet.
    chunk: Chunk,
    /// True if the log buffers of all threads must be merged: this thread has published something
    /// that is not merged, or its clients wait for a merge.
    awaits_merge: bool,
    /// The index of this thread's buffer in the change log.
    log_buffer: usize,
    notifications: Notifications,
    notices: Vec<Notice>,
    ready: Vec<ReadyKey>,
    /// While a script runs that may be undone: the changed keys with watchers or blocked clients.
    /// Their watchers are marked as dirty when the script has ended.
    unmarked: Option<Vec<ReadyKey>>,
    /// The changed keys with a prefix that clients track (BCAST), until the end of the turn (a pass
    /// of the thread's event loop).
    changed: Changed,
    /// The change log position of the last change in `changed`.
    changed_position: u64,
}

impl<'s> Commit<'s> {
    /// Creates the collector of the changes of I/O thread `thread`, or of another thread for
    /// `None`. `seed` is the seed of the random numbers for the access clocks.
    pub fn new(shared: &'s Shared, thread: Option<usize>, seed: u64) -> Self {
        Self {
            shared,
            thread,
            effects: Changes::default(),
            access_results: AccessResults::of_thread(&shared.keyspace, seed),
            own: OwnMessages::default(),
            outbox: Outbox::default(),
            now_ms: 0,
            flush_place: Place::Behind,
            position: 0,
            own_position: 0,
            is_unrecorded: false,
            propagation: Targets::all(),
            targets: Targets::empty(),
            unit: UnitRecord::default(),
            chunk: Chunk::default(),
            awaits_merge: false,
            log_buffer: shared.log.buffer_index(thread),
            notifications: Notifications::default(),
            notices: Vec::new(),
            ready: Vec::new(),
            unmarked: None,
            changed: Changed::default(),
            changed_position: 0,
        }
    }

    /// Makes this thread the applier of a primary's replication stream, whose changes it collects
    /// here.
    pub(crate) fn become_applier(&mut self) {
        self.log_buffer = self.shared.log.applier_buffer_index();
    }

    /// Returns true if this thread's writes must wait. Its buffer of the change log is full, or the
    /// running snapshot holds too many entries that are not written yet.
    #[inline]
    pub fn awaits_room(&self) -> bool {
        self.shared.awaits_room(self.log_buffer)
    }

    /// Begins the change log's record of a command or of the removal of a key, inside the gate (the
    /// keyspace's shared lock). Returns true if changes are recorded.
    #[inline]
    pub fn begin_record(&mut self) -> bool {
        self.targets = if self.is_unrecorded { Targets::empty() } else { self.shared.log.targets() };
        let is_wanted = !self.targets.is_empty();
        self.effects.record.is_wanted = is_wanted;
        self.effects.record.begin(self.effects.changes);
        is_wanted
    }

    /// Returns true if the change log's record of the current command or transaction has any
    /// commands.
    pub fn has_record(&self) -> bool {
        !self.unit.is_empty()
    }

    /// Adds the effect of a command to the change log's record of the current unit (command or
    /// transaction). The caller has already collected the removals of the expired keys that the
    /// command found.
    #[inline]
    pub fn record(&mut self, db: usize, args: &Args<'_>, locked: Option<&Locked<'_>>) {
        if self.effects.record.is_wanted && self.effects.record.command_count() > 0 {
            self.record_commands(locked);
        }
        if self.effects.record.has_request(self.effects.changes) {
            self.record_request(db, args, locked);
        }
    }

    /// Adds a request to the change log's record of the current unit, for the targets that
    /// `redis.set_repl` has chosen.
    fn record_request(&mut self, db: usize, args: &Args<'_>, locked: Option<&Locked<'_>>) {
        let targets = self.targets & self.propagation;
        if !targets.is_empty() {
            let values = Values { locked, hasher: self.shared.keyspace.hasher() };
            self.unit.push_request(db, args, targets, values);
        }
    }

    /// Adds the commands that a handler recorded to the change log's record of the current unit.
    /// They are recorded in addition to the request or instead of it. The caller has already
    /// collected the removals of expired keys. Big values are not copied but shared with the keys
    /// of the `locked` shards.
    #[cold]
    pub fn record_commands(&mut self, locked: Option<&Locked<'_>>) {
        let values = Values { locked, hasher: self.shared.keyspace.hasher() };
        let Self { unit, targets, propagation, .. } = self;
        for command in self.effects.record.expired() {
            unit.push_command(&command, *targets, values);
        }
        let chosen = *targets & *propagation;
        for command in self.effects.record.commands().filter(|_| !chosen.is_empty()) {
            unit.push_command(&command, chosen, values);
        }
    }

    /// Ends a unit of one command in the change log. It has the effect of [`Commit::record`] and
    /// [`Commit::log_unit`] together, but is faster, for a request that is recorded unchanged.
    #[inline]
    pub fn log_command(&mut self, db: usize, args: &Args<'_>, locked: &Locked<'_>) {
        let record = &self.effects.record;
        if record.command_count() > 0 || args.input_len_bytes() >= SHARED_BYTES_MIN {
            self.record(db, args, Some(locked));
            return self.log_unit(locked);
        }
        let log = &self.shared.log;
        self.position = if record.has_request(self.effects.changes) {
            let position = log.append_request(&mut self.chunk, db, args, self.targets);
            log.note_change(locked.numbers(), position);
            self.own_position = position;
            position
        } else {
            self.own_position = 0;
            log.last_change(locked.numbers())
        };
        self.note_changed_position();
    }

    /// Ends a unit (a command or transaction) in the change log, under the locks of these shards
    /// and before its messages are sent. Takes the next log position if the unit has a record. Only
    /// called while changes are recorded.
    #[inline]
    pub fn log_unit(&mut self, locked: &Locked<'_>) {
        self.log_change_of(|| locked.numbers());
    }

    /// Ends a unit (a command or transaction) in the change log as [`Commit::log_unit`] does.
    /// `shards` returns the numbers of the locked shards.
    #[inline]
    pub fn log_change_of<S: Iterator<Item = usize>>(&mut self, shards: impl Fn() -> S) {
        let log = &self.shared.log;
        self.position = if self.unit.is_empty() {
            self.own_position = 0;
            log.last_change(shards())
        } else {
            let position = log.append(&mut self.chunk, &mut self.unit);
            log.note_change(shards(), position);
            self.own_position = position;
            position
        };
        self.note_changed_position();
    }

    /// Ends a unit (a command or transaction) of an exclusive owner of the keyspace in the change
    /// log, as [`Commit::log_unit`] does. The unit has noted its changes
    /// ([`Commit::note_change_alone`]) or has visited all shards. The position that its reply shows
    /// covers all changes so far.
    #[cold]
    pub fn log_unit_alone(&mut self) {
        let log = &self.shared.log;
        self.own_position = 0;
        if !self.unit.is_empty() {
            self.own_position = log.append(&mut self.chunk, &mut self.unit);
        }
        self.position = log.drawn();
        self.note_changed_position();
    }

    /// Publishes the message of PUBLISH or SPUBLISH (`args`) and records the command for replicas:
    /// as a unit of its own, or as part of a transaction or script, whose client owns the keyspace
    /// exclusively. A unit of its own takes its log position under the lock of the channel, so
    /// replicas publish the messages of a channel in the order of this server.
    pub fn publish(&mut self, (db, unit): (usize, Unit), kind: Kind, args: &Args<'_>) -> Published {
        self.begin_record();
        let targets = match args.get(1) {
            SENTINEL_CHANNEL => Targets::empty(),
            _ => self.targets & self.propagation & Targets::REPLICAS,
        };
        let sender = self.shared.sender(self.thread, &self.outbox, self.position);
        let Self { shared, chunk, unit: whole, own_position, .. } = self;
        let record = || match unit {
            Unit::Own => *own_position = shared.log.append_request(chunk, db, args, targets),
            Unit::Transaction => {
                let values = Values { locked: None, hasher: shared.keyspace.hasher() };
                whole.push_request(db, args, targets, values);
            }
        };
        sender.publish(kind, (args.get(1), args.get(2)), (!targets.is_empty()).then_some(record))
    }

    /// Begins a script that may be undone, under its locks. Until [`Commit::mark_watchers`], the
    /// script's changes do not mark the watchers of the changed keys as dirty.
    pub fn begin_script(&mut self) {
        self.unmarked = Some(Vec::new());
    }

    /// Marks the watchers of the keys that a script changed since [`Commit::begin_script`], under
    /// the locks of these keys. O(changes of keys in shards in which clients watch, track or wait
    /// for any key).
    #[inline]
    pub fn mark_watchers(&mut self, locked: &mut Locked<'_>) {
        for ReadyKey { db, hash, key } in self.unmarked.take().into_iter().flatten() {
            let shard = locked.shard_of(hash).expect("a change is made under the lock of its shard");
            self.shared.watchers.mark(shard, (db, Key { bytes: &key, hash }));
        }
    }

    /// Discards the effects of a script that was undone: its record in the change log, its events,
    /// the keys whose watchers were to be marked, and ready keys. Keeps invalidations, because the
    /// clients that cache these keys were already removed from the tables of client-side caching.
    /// `changes` is the number of changes counted before the script.
    #[cold]
    pub fn roll_back(&mut self, changes: u64) {
        self.unmarked = None;
        self.effects.absorb(&mut self.access_results);
        self.access_results.deadlines.clear();
        self.effects.changes = changes;
        self.effects.record.begin(changes);
        self.effects.events.clear();
        self.effects.changed_keys.clear();
        self.effects.wait = None;
        self.effects.search = None;
        self.notices.retain(|notice| matches!(notice, Notice::Invalidation { .. }));
        self.ready.clear();
        self.unit.forget();
    }

    /// Makes this thread's new records of the change log available to the thread that merges the
    /// log. Called after the requests of each connection, and before the thread leaves the gate
    /// (the keyspace's shared lock) or asks for its exclusive lock.
    #[inline]
    pub fn publish_log(&mut self) {
        if !self.chunk.is_empty() {
            self.shared.log.publish(self.log_buffer, &mut self.chunk);
            self.awaits_merge = true;
        }
    }

    /// Requests that this thread merges the threads' buffers of the change log at the end of its
    /// turn (a pass of its event loop). Its clients wait for changes that other threads have
    /// published. Otherwise they would wait until the publishing thread ends its turn.
    #[cold]
    pub fn await_merge(&mut self) {
        self.awaits_merge = true;
    }

    /// Merges the threads' buffers of the change log if this thread has published something, or its
    /// clients wait for a merge. Called at the end of a turn (a pass of the event loop), outside
    /// the gate (the keyspace's shared lock).
    #[inline]
    pub fn merge_log(&mut self) {
        if std::mem::take(&mut self.awaits_merge) {
            self.shared.log.merge(&self.outbox);
        }
    }

    /// Records that the current command or transaction, which owns the keyspace exclusively, has
    /// changed these shards; `None` for all shards. If the change log gets a record of the unit,
    /// the record will have the next log position.
    #[cold]
    pub fn note_change_alone(&mut self, locked: Option<&Locked<'_>>) {
        let log = &self.shared.log;
        self.position = log.drawn();
        if !self.unit.is_empty() {
            self.position += 1;
            match locked {
                Some(locked) => log.note_change(locked.numbers(), self.position),
                None => log.note_change_of_all(self.position),
            }
        }
    }

    #[inline]
    fn note_changed_position(&mut self) {
        if !self.changed.is_empty() {
            self.changed_position = self.changed_position.max(self.position);
        }
    }

    /// Applies `notify-keyspace-events`: sets the classes of events that commands raise. While
    /// there are no subscribers, commands raise none.
    pub fn take_notifications(&mut self, notifications: Notifications) {
        self.notifications = notifications;
        let wanted = notify::wanted(notifications, self.shared.pubsub.client_count());
        self.effects.wanted_events = wanted;
        self.access_results.wants_missed = wanted.contains(EventClass::MISSED);
        self.access_results.wants_created = wanted.contains(EventClass::NEW);
    }

    /// Returns the sender by which this thread sends messages to clients.
    #[inline]
    pub fn sender(&self) -> Sender<'_> {
        self.shared.sender(self.thread, &self.outbox, self.position)
    }

    /// Returns true if the last command has made changes or caused events that [`Commit::collect`]
    /// must process.
    #[inline]
    pub fn has_changes(&self) -> bool {
        // One branch for all five.
        let Changes { changed_keys, events, db_changes, .. } = &self.effects;
        let AccessResults { access_events, deadlines, .. } = &self.access_results;
        (changed_keys.len() | events.len() | db_changes.len() | access_events.len() | deadlines.len()) != 0
    }

    /// Returns true if the current command or transaction has notifications or ready keys for
    /// [`Commit::release`]. Changed keys with a tracked prefix count only if there are many of
    /// them; a few wait for [`Commit::broadcast`].
    #[inline]
    pub fn is_pending(&self) -> bool {
        ((self.notices.len() | self.ready.len()) != 0) | self.changed.is_full()
    }

    /// Collects the messages for other clients about a command's changes. Called after each
    /// command, under the locks of its keys. `client` is the id of the client that made the
    /// changes; 0 for none. O(changed keys).
    #[cold]
    pub fn collect(&mut self, held: &mut Held<'_, '_>, client: u64) {
        if !self.effects.db_changes.is_empty() {
            self.forget_local_deadlines();
        }
        if !self.access_results.deadlines.is_empty() {
            self.take_local_deadlines();
        }
        self.effects.absorb(&mut self.access_results);
        if !self.effects.db_changes.is_empty() {
            self.collect_db_changes();
        }
        let mut events = std::mem::take(&mut self.effects.events);
        let mut changed_keys = std::mem::take(&mut self.effects.changed_keys);
        let mut left = events.drain(..);
        let mut taken = 0;
        for changed_key in changed_keys.drain(..) {
            let ahead = changed_key.events_before.saturating_sub(taken);
            self.notices.extend(left.by_ref().take(ahead).map(Notice::Event));
            taken = taken.max(changed_key.events_before);
            self.collect_key(held, changed_key, client);
        }
        self.notices.extend(left.map(Notice::Event));
        // Keeps the memory of both lists for the next command.
        (self.effects.events, self.effects.changed_keys) = (events, changed_keys);
    }

    /// Makes all keys of the databases `dbs` ready on which clients are blocked. O(these keys).
    pub(crate) fn make_ready(&mut self, dbs: &[usize]) {
        let hasher = self.shared.keyspace.hasher();
        let waited = self.shared.blocked.keys_of(dbs).into_iter();
        self.ready.extend(waited.map(|(db, key)| ReadyKey { db, hash: hasher.hash_key(&key), key }));
    }

    /// Takes the keys to which the command has given a deadline (expiry). Records them on a
    /// replica, except on a server that imports data: the server that sends the data removes its
    /// keys.
    fn take_local_deadlines(&mut self) {
        let role = &self.shared.server_state.role;
        let is_replica = role.is_replica.load(Relaxed);
        for Deadline { key, at_ms } in self.access_results.deadlines.drain(..) {
            if is_replica {
                role.local_deadlines.note((key.db, key.key), at_ms);
            }
        }
    }

    /// Forgets the recorded deadlines of keys in emptied databases. Called before the deadlines
    /// that the same command or transaction has set are recorded, because they may be later than
    /// the emptying.
    fn forget_local_deadlines(&self) {
        let changes = &self.effects.db_changes;
        let is_emptied = |db| {
            changes.iter().any(|change| matches!(change, DbChange::Emptied(emptied, _) if *emptied == db))
        };
        self.shared.server_state.role.local_deadlines.forget(is_emptied);
    }

    /// Collects the effects of one changed key: marks its watchers, removes it from the tables of
    /// client-side caching, and makes it ready if clients are blocked on it.
    fn collect_key(&mut self, held: &mut Held<'_, '_>, changed_key: ChangedKey, client: u64) {
        let ChangedKey { db, hash, key, audience, .. } = changed_key;
        let named = Key { bytes: &key, hash };
        let shared = self.shared;
        let marks = audience == Audience::All;
        if let Some(unmarked) = self.unmarked.as_mut().filter(|_| marks) {
            unmarked.push(ReadyKey { db, hash, key: key.clone() });
        }
        let marks_now = marks && self.unmarked.is_none();
        let (has_blocked_clients, readers) = held.with_shard(&shared.keyspace, hash, |shard| {
            if marks_now {
                shared.watchers.mark(shard, (db, named));
            }
            let has_blocked_clients = shared.blocked.has_blocked_clients(shard, (db, named));
            let is_cached = audience != Audience::BlockedClients && shared.tracking.is_used();
            (has_blocked_clients, is_cached.then(|| shared.tracking.take_readers(shard, named)))
        });
        if let Some(readers) = readers {
            shared.tracking.collect_for_prefixes(&key, client, &mut self.changed);
            if !readers.is_empty() {
                self.notices.push(Notice::Invalidation { key: key.clone(), readers });
            }
        }
        // A key may become ready twice; then its queue is empty the second time.
        if has_blocked_clients && self.ready.last().is_none_or(|last| last.db != db || last.key != key) {
            self.ready.push(ReadyKey { db, hash, key });
        }
    }

    /// Collects the watched keys and those with blocked clients that a command on a whole database
    /// changed. Empties the tracking tables if databases were emptied. The caller owns the keyspace
    /// exclusively. O(watched keys + keys with blocked clients).
    fn collect_db_changes(&mut self) {
        let shared = self.shared;
        let hasher = shared.keyspace.hasher();
        // A key is still live in the millisecond of its deadline.
        let due_ms = self.now_ms - 1;
        let mut was_emptied = None;
        for change in std::mem::take(&mut self.effects.db_changes) {
            match change {
                // EXEC itself finds that a watched key is missing. Clients that are blocked on the
                // group of a stream are served.
                DbChange::Emptied(db, flush) => {
                    was_emptied = Some(flush);
                    shared.hot_keys.windows.forget(db);
                    self.make_ready(&[db]);
                }
                // The watched keys will exist again at once, so their watchers are marked now.
                DbChange::Replaced(db) => {
                    was_emptied = Some(Flush::Awaited);
                    for (db, key) in shared.watchers.keys_of(&[db]) {
                        let key = hasher.key(&key);
                        if shared.keyspace.lock(key.shard()).is_live(db, key, due_ms) {
                            self.effects.touch(db, key);
                        }
                    }
                }
                DbChange::Swapped(a, b) => {
                    let mut keys = shared.watchers.keys_of(&[a, b]);
                    keys.extend(shared.blocked.keys_of(&[a, b]));
                    for (db, key) in keys {
                        let key = hasher.key(&key);
                        let shard = shared.keyspace.lock(key.shard());
                        if shard.is_live(a, key, due_ms) || shard.is_live(b, key, due_ms) {
                            self.effects.touch(db, key);
                        }
                    }
                }
            }
        }
        if let Some(flush) = was_emptied {
            shared.tracking.forget_all(&shared.keyspace);
            let place = if flush == Flush::Async { Place::Behind } else { self.flush_place };
            self.notices.push(Notice::Flushed(place));
        }
    }

    /// Makes all keys ready on which clients are blocked. Called when all data was replaced without
    /// a command, for example by a full synchronisation. O(keys with blocked clients).
    #[cold]
    pub fn ready_all(&mut self) {
        let dbs: Vec<usize> = (0..self.shared.keyspace.db_count()).collect();
        self.make_ready(&dbs);
    }

    /// Ends a command, transaction or removal: sends the collected messages to other clients in
    /// order, under the locks of all changed shards. `client` is the id of the client that made the
    /// changes; 0 for none. O(messages).
    #[cold]
    pub fn release(&mut self, client: u64) {
        let mut notices = std::mem::take(&mut self.notices);
        let sender = self.shared.sender(self.thread, &self.outbox, self.position);
        let tracking = &self.shared.tracking;
        let mut writer = Writer { client, own: &mut self.own };
        for notice in notices.drain(..) {
            match notice {
                Notice::Event(event) => notify::publish(sender, self.notifications, &event),
                Notice::Invalidation { key, readers } => {
                    tracking.invalidate(sender, &key, &readers, &mut writer);
                }
                Notice::Flushed(place) => tracking.invalidate_all(sender, &mut writer, place),
            }
        }
        self.notices = notices;
        if self.changed.is_full() {
            let position = self.position.max(std::mem::take(&mut self.changed_position));
            tracking.broadcast(Sender { position, ..sender }, &mut self.changed);
        }
    }

    /// Takes the keys that became ready, so that the clients blocked on them can be served.
    #[inline]
    pub fn take_ready(&mut self) -> Vec<ReadyKey> {
        std::mem::take(&mut self.ready)
    }

    /// Sends the keys that this thread changed in this turn (a pass of its event loop) to the
    /// clients that track their prefixes.
    #[inline]
    pub fn broadcast(&mut self) {
        if !self.changed.is_empty() {
            let position = std::mem::take(&mut self.changed_position);
            let sender = self.shared.sender(self.thread, &self.outbox, position);
            self.shared.tracking.broadcast(sender, &mut self.changed);
        }
    }
}

//! The one end of a change, whoever made it: a command, a transaction, expiry,
//! eviction, FLUSHALL, MIGRATE.
//!
//! Two levels. After each command [`Commit::collect`] takes what the handler did and finds, under
//! the locks, who must be notified: watchers are marked, readers of changed keys are taken out of
//! the tables of caches, events are put in order, keys that clients are blocked on become ready. At
//! the end of the unit (a command outside a transaction, a transaction, one expired or evicted key)
//! [`Commit::release`] lets all of it go, in order, still under the locks: messages enter the
//! inboxes of threads. Then blocked clients are served (`run`), each as a unit of its own.
//!
//! ```text
//!   handler ─► effects ─collect─► notices, ready keys ─release─► inboxes  (under the locks)
//!                                                        └─► outbox ─► threads woken (no locks)
//! ```
//! The order of what one client receives: an event and the invalidation of the same key in the
//! order of the changes, then the reply; a served client's messages behind its own reply.
//!
//! With a change log (`crate::log`), each command adds its canonical record to its unit's, and the
//! unit draws its position before it is released: [`Commit::log_unit`]. Messages carry the position
//! along.

use std::sync::Arc;

use commands::ctx::{Audience, ChangedKey, DbChange, Flush};
use commands::{Args, Changes, EventClass, KeyEvent};
use keyspace::key::{KeyHash, shard_of};
use keyspace::view::AccessResults;
use keyspace::{Key, Keyspace, Locked, Shard};

use crate::log::buffer::Chunk;
use crate::log::text::SHARED_BYTES_MIN;
use crate::log::unit::{UnitRecord, Values};
use crate::publish::notify::{self, Notifications};
use crate::publish::send::Sender;
use crate::shared::Shared;
use crate::threads::Outbox;
use crate::track::{Changed, OwnMessages, Place, TrackingClient, Writer};

/// The shards that are locked while changes are collected.
pub enum Held<'a, 'k> {
    /// The shards of a command.
    Locked(&'a mut Locked<'k>),
    /// One, by its number.
    Shard(usize, &'a mut Shard),
    /// None: the caller owns the keyspace, or it is about keys that nobody can reach.
    None,
}

impl Held<'_, '_> {
    /// Does `work` on the shard of a changed key, locked for that where nothing is.
    fn with_shard<R>(&mut self, keyspace: &Keyspace, hash: KeyHash, work: impl FnOnce(&mut Shard) -> R) -> R {
        let shard = match self {
            Self::Locked(locked) => locked.shard_of_mut(hash),
            Self::Shard(number, shard) => (*number == shard_of(hash)).then_some(&mut **shard),
            Self::None => return work(&mut keyspace.lock(shard_of(hash))),
        };
        work(shard.expect("a change is collected under the lock of its shard"))
    }
}

/// The unit that a command or a removal is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It is a unit of its own.
    Own,
    /// It is part of a transaction, which ends later.
    Transaction,
}

/// Something that others are sent when the unit is released.
enum Notice {
    /// A keyspace event.
    Event(KeyEvent),
    /// These clients cache a key that changed.
    Invalidation { key: Box<[u8]>, readers: Vec<Arc<TrackingClient>> },
    /// Databases were emptied: whoever caches anything drops all of it.
    Flushed(Place),
}

/// A key that changed while clients are blocked on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyKey {
    /// Its database.
    pub db: usize,
    /// Its hash.
    pub hash: KeyHash,
    /// The key.
    pub key: Box<[u8]>,
}

impl ReadyKey {
    /// Its name and hash.
    pub fn key(&self) -> Key<'_> {
        Key { bytes: &self.key, hash: self.hash }
    }
}

/// The changes of one thread that were not sent to others yet. Thread: any that runs commands,
/// expires or evicts.
pub struct Commit<'s> {
    /// The engine.
    pub shared: &'s Shared,
    /// The I/O thread, if it is one.
    pub thread: Option<usize>,
    /// The effects of commands on the data.
    pub effects: Changes,
    /// The counts and results of access to keys.
    pub access_results: AccessResults,
    /// Messages for the client whose command runs.
    pub own: OwnMessages,
    /// Threads to wake when no shard is locked.
    pub outbox: Outbox,
    /// Now, in Unix milliseconds: one reading per turn.
    pub now_ms: i64,
    /// The place of the invalidation of a flush that is not ASYNC, relative to the reply of the
    /// client that flushes.
    pub flush_place: Place,
    /// The position of the change log that the unit shows which ended last: its own or, where it
    /// changed nothing, that of the last change of what it touched. Messages carry it along.
    pub position: u64,
    /// True while changes of this thread are not recorded in the change log: they are replayed
    /// from a file that has them, or a script wants it so (`redis.set_repl`).
    pub is_unrecorded: bool,
    /// The record of the unit under way.
    unit: UnitRecord,
    /// Records of units that have ended and are not published yet.
    chunk: Chunk,
    /// Something was published and not merged by this thread, or its clients wait for a merge.
    awaits_merge: bool,
    /// This thread's buffer in the change log.
    log_buffer: usize,
    notifications: Notifications,
    notices: Vec<Notice>,
    ready: Vec<ReadyKey>,
    /// While a script runs that may be undone: followed keys that it changed. Their watchers are
    /// marked when it has ended.
    unmarked: Option<Vec<ReadyKey>>,
    /// Changed keys below prefixes that clients track, until the turn ends.
    changed: Changed,
    /// The last position that these show.
    changed_position: u64,
}

impl<'s> Commit<'s> {
    /// Creates the commit of I/O thread `thread`, or of another thread. `seed` feeds the random
    /// numbers of access clocks.
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
            is_unrecorded: false,
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

    /// Returns true if this thread's writes must wait until the readers of its changes have caught
    /// up.
    #[inline]
    pub fn awaits_room(&self) -> bool {
        self.shared.awaits_room(self.log_buffer)
    }

    /// Begins the record of a command or a removal, inside the gate; whether changes are recorded.
    #[inline]
    pub fn begin_record(&mut self) -> bool {
        let is_wanted = self.shared.log.is_attached() && !self.is_unrecorded;
        self.effects.record.is_wanted = is_wanted;
        self.effects.record.begin(self.effects.changes);
        is_wanted
    }

    /// Adds what a command did to the unit's record. What it found expired was collected.
    #[inline]
    pub fn record(&mut self, db: usize, args: &Args<'_>, locked: Option<&Locked<'_>>) {
        if self.effects.record.is_wanted && self.effects.record.command_count() > 0 {
            self.record_commands(locked);
        }
        if self.effects.record.has_request(self.effects.changes) {
            let values = Values { locked, hasher: self.shared.keyspace.hasher() };
            self.unit.push_request(db, args, values);
        }
    }

    /// Adds what was recorded beside a request to the unit's record, or without one. What was found
    /// expired was collected. Big values are shared with the keys of `locked` shards.
    #[cold]
    pub fn record_commands(&mut self, locked: Option<&Locked<'_>>) {
        let values = Values { locked, hasher: self.shared.keyspace.hasher() };
        let commands = self.effects.record.commands();
        commands.for_each(|command| self.unit.push_command(&command, values));
    }

    /// Ends a unit of one command in the change log, as [`Commit::record`] and [`Commit::log_unit`]
    /// do.
    #[inline]
    pub fn log_command(&mut self, db: usize, args: &Args<'_>, locked: &Locked<'_>) {
        let record = &self.effects.record;
        if record.command_count() > 0 || args.input_len_bytes() >= SHARED_BYTES_MIN {
            self.record(db, args, Some(locked));
            return self.log_unit(locked);
        }
        let log = &self.shared.log;
        self.position = if record.has_request(self.effects.changes) {
            let position = log.append_request(&mut self.chunk, db, args);
            log.note_change(locked.numbers(), position);
            position
        } else {
            log.last_change(locked.numbers())
        };
        self.note_changed_position();
    }

    /// Ends a unit in the change log, under the locks of these shards: draws its position if it has
    /// a record. Before it is released. Where changes are recorded only.
    #[inline]
    pub fn log_unit(&mut self, locked: &Locked<'_>) {
        self.log_change_of(|| locked.numbers());
    }

    /// Logs a unit as [`Commit::log_unit`] does, under the locks of the shards that `shards`
    /// gives.
    #[inline]
    pub fn log_change_of<S: Iterator<Item = usize>>(&mut self, shards: impl Fn() -> S) {
        let log = &self.shared.log;
        self.position = if self.unit.is_empty() {
            log.last_change(shards())
        } else {
            let position = log.append(&mut self.chunk, &mut self.unit);
            log.note_change(shards(), position);
            position
        };
        self.note_changed_position();
    }

    /// Logs as [`Commit::log_unit`] does an exclusive owner's unit that noted its changes
    /// ([`Commit::note_change_alone`]), or that visited all shards: it shows all changes so far.
    #[cold]
    pub fn log_unit_alone(&mut self) {
        let log = &self.shared.log;
        if !self.unit.is_empty() {
            log.append(&mut self.chunk, &mut self.unit);
        }
        self.position = log.drawn();
        self.note_changed_position();
    }

    /// Begins a script that may be undone, under its locks: nobody's transaction fails because of
    /// what it changes before [`Commit::mark_watchers`].
    pub fn begin_script(&mut self) {
        self.unmarked = Some(Vec::new());
    }

    /// Ends what [`Commit::begin_script`] began, under the locks of all that the script changed.
    /// O(changes of followed keys).
    #[inline]
    pub fn mark_watchers(&mut self, locked: &mut Locked<'_>) {
        for ReadyKey { db, hash, key } in self.unmarked.take().into_iter().flatten() {
            let shard = locked.shard_of(hash).expect("a change is made under the lock of its shard");
            self.shared.watchers.mark(shard, (db, Key { bytes: &key, hash }));
        }
    }

    /// Forgets what a script did that was undone: its record, events, whose watchers to mark, and
    /// keys that became ready. Invalidations are kept, since their readers are known no more.
    /// `changes` were counted before it.
    #[cold]
    pub fn roll_back(&mut self, changes: u64) {
        self.unmarked = None;
        self.effects.absorb(&mut self.access_results);
        self.effects.changes = changes;
        self.effects.record.begin(changes);
        self.effects.events.clear();
        self.effects.changed_keys.clear();
        self.effects.gone.clear();
        self.effects.wait = None;
        self.notices.retain(|notice| matches!(notice, Notice::Invalidation { .. }));
        self.ready.clear();
        self.unit.forget();
    }

    /// Lets the merger have what was appended to the change log: after each visit of a connection,
    /// and before the thread leaves the gate or asks to own it.
    #[inline]
    pub fn publish_log(&mut self) {
        if !self.chunk.is_empty() {
            self.shared.log.publish(self.log_buffer, &mut self.chunk);
            self.awaits_merge = true;
        }
    }

    /// Has this turn merge what others have published: this thread's clients wait for it, and the
    /// turn of whoever published it may be long.
    #[cold]
    pub fn await_merge(&mut self) {
        self.awaits_merge = true;
    }

    /// Merges the change log if this thread has published something or waits for what others have:
    /// at the end of a turn, outside the gate.
    #[inline]
    pub fn merge_log(&mut self) {
        if std::mem::take(&mut self.awaits_merge) {
            self.shared.log.merge(&self.outbox);
        }
    }

    /// Notes, as the exclusive owner, that the unit under way has changed these shards, `None` for
    /// all: if it has a record, it will draw the next position.
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

    /// Takes over which events are published, none while nobody is subscribed to anything.
    pub fn take_notifications(&mut self, notifications: Notifications) {
        self.notifications = notifications;
        let wanted = notify::wanted(notifications, self.shared.pubsub.client_count());
        self.effects.wanted_events = wanted;
        self.access_results.wants_missed = wanted.contains(EventClass::MISSED);
        self.access_results.wants_created = wanted.contains(EventClass::NEW);
    }

    /// Returns the sender of this thread's messages.
    #[inline]
    pub fn sender(&self) -> Sender<'_> {
        self.shared.sender(self.thread, &self.outbox, self.position)
    }

    /// Returns true if the last command did something that [`Commit::collect`] must handle.
    #[inline]
    pub fn has_changes(&self) -> bool {
        // One branch for all of it.
        let Changes { changed_keys, events, db_changes, .. } = &self.effects;
        (changed_keys.len() | events.len() | db_changes.len() | self.access_results.access_events.len()) != 0
    }

    /// Returns true if the unit has notifications or ready keys for [`Commit::release`] and
    /// serving. Changed keys below prefixes count once they are many; else they wait for
    /// [`Commit::broadcast`].
    #[inline]
    pub fn is_pending(&self) -> bool {
        ((self.notices.len() | self.ready.len()) != 0) | self.changed.is_full()
    }

    /// Collects what others are sent of a command's changes: after each command, under its locks.
    /// `client` made the changes, 0 for none. O(changed keys).
    #[cold]
    pub fn collect(&mut self, held: &mut Held<'_, '_>, client: u64) {
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
        // Their memory is used again.
        (self.effects.events, self.effects.changed_keys) = (events, changed_keys);
    }

    /// Finds who watches, caches or waits for a changed key.
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
        // A key may be listed twice: the second time its queue has no client to serve.
        if has_blocked_clients && self.ready.last().is_none_or(|last| last.db != db || last.key != key) {
            self.ready.push(ReadyKey { db, hash, key });
        }
    }

    /// Collects the followed keys that a command changed with a whole database. The caller owns the
    /// keyspace. O(followed keys).
    fn collect_db_changes(&mut self) {
        let shared = self.shared;
        let hasher = shared.keyspace.hasher();
        // A key lives through the millisecond of its deadline.
        let due_ms = self.now_ms - 1;
        let mut was_emptied = None;
        for change in std::mem::take(&mut self.effects.db_changes) {
            match change {
                // Watchers see for themselves that their keys are missing; clients blocked on a
                // stream's group are served.
                DbChange::Emptied(db, flush) => {
                    was_emptied = Some(flush);
                    shared.hot_keys.windows.forget(db);
                    let waited = shared.blocked.keys_of(&[db]).into_iter();
                    self.ready.extend(waited.map(|(db, key)| ReadyKey {
                        db,
                        hash: hasher.hash_key(&key),
                        key,
                    }));
                }
                // The keys of watchers are there again in a moment: they are marked now.
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

    /// Ends a unit: what was collected is let go of, in order. Under the locks of all that it
    /// changed. `client` made the changes, 0 for none. O(notices).
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

    /// Takes the keys that became ready, to serve the clients that are blocked on them.
    #[inline]
    pub fn take_ready(&mut self) -> Vec<ReadyKey> {
        std::mem::take(&mut self.ready)
    }

    /// Sends clients with caches by prefixes what changed in this turn.
    #[inline]
    pub fn broadcast(&mut self) {
        if !self.changed.is_empty() {
            let position = std::mem::take(&mut self.changed_position);
            let sender = self.shared.sender(self.thread, &self.outbox, position);
            self.shared.tracking.broadcast(sender, &mut self.changed);
        }
    }
}

//! The context of a data command: its locked keys, its reply and its effects. A command can use
//! nothing else.

use bitflags::bitflags;
use keyspace::view::{AccessEvent, AccessResults};
use keyspace::{Key, KeyHash, ListLimits, View};
use resp::Reply;
use structures::table::Table;

use crate::args::Args;
use crate::error::CommandError;
use crate::field_sets::FieldSets;
use crate::record::{ChangeRecord, RecordWriter};
use crate::search::Search;
use crate::wait::{BlockingMode, Wait};

/// The function that runs a data command. It parses the arguments, calls one method of the type and
/// replies.
pub type Handler = fn(&mut Ctx<'_>, &Args<'_>) -> Result<(), CommandError>;

/// The context of a data command: everything that the command can use.
pub struct Ctx<'a> {
    /// The selected database, limited to the command's locked keys.
    pub db: View<'a>,
    /// The encoder to which the command writes its reply.
    pub reply: Reply<'a>,
    /// The changes that the command made to the data, for the engine to publish.
    pub effects: &'a mut Changes,
    /// The random number generator of the thread. Tests seed it, so they are repeatable.
    pub rng: &'a mut fastrand::Rng,
    /// The sizes and encoding thresholds of values, from the configuration.
    pub limits: &'a ValueLimits,
    /// The action of a command that finds no data: to block the client or to reply. See
    /// [`Ctx::block_or_reply_empty`].
    pub on_empty: BlockingMode,
    /// The caller of the command: a client or a script.
    pub origin: Origin,
    /// The keys that access control permits the client to read.
    pub readable: ReadableKeys,
    /// The fieldsets of the client's session (HIMPORT). `None` without a session.
    pub field_sets: Option<&'a FieldSets>,
}

/// The caller of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command comes from a client.
    Client,
    /// The command comes from a client's script.
    Script,
}

/// The keys that the client of a command may read (access control).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadableKeys {
    /// All keys may be read.
    All,
    /// Only the keys that the arguments name may be read.
    Declared,
}

impl Ctx<'_> {
    /// Counts one change of `key` and raises the keyspace event `event`. Call it once per change,
    /// before returning. A command that changed nothing does not call it.
    #[inline]
    pub fn changed(&mut self, class: EventClass, event: &'static str, key: Key<'_>) {
        self.changed_by(1, class, event, key);
    }

    /// Counts changes without a keyspace event and without notification, as Redis does for
    /// acknowledging and claiming stream entries.
    #[inline]
    pub fn changed_silently(&mut self, changes: u64) {
        self.effects.changes += changes;
    }

    /// Counts changes of `key` that raise no keyspace event. Clients that watch, track or wait for
    /// the key are notified.
    pub fn changed_without_event(&mut self, changes: u64, key: Key<'_>) {
        self.effects.changes += changes;
        if !self.effects.wanted_events.is_empty() {
            self.effects.absorb(self.db.access_results());
        }
        if self.db.has_registrations(key) {
            self.effects.touch(self.db.index(), key);
        }
    }

    /// Counts a change of a stream's consumer groups and raises its event. As in Redis, watchers
    /// and tracking clients are not notified.
    pub fn changed_groups(&mut self, event: &'static str, key: Key<'_>) {
        self.effects.changes += 1;
        if !self.effects.wanted_events.is_empty() {
            self.effects.absorb(self.db.access_results());
            self.effects.raise(EventClass::STREAM, event, self.db.index(), key.bytes);
        }
    }

    /// Makes `key` a ready key although it has not changed, so that the clients blocked on it are
    /// served again.
    pub fn mark_ready(&mut self, key: Key<'_>) {
        if self.db.has_registrations(key) {
            self.effects.touch(self.db.index(), key);
            self.effects.changed_keys.last_mut().expect("it was put there").audience =
                Audience::BlockedClients;
        }
    }

    /// Counts `changes` changes of `key` and raises one event. For example, RPUSH counts each
    /// pushed element. `changes` is 0 for a further event whose changes are already counted (`del`
    /// after `lpop`).
    #[inline]
    pub fn changed_by(&mut self, changes: u64, class: EventClass, event: &'static str, key: Key<'_>) {
        self.effects.changes += changes;
        if !self.effects.wanted_events.is_empty() {
            // The events of key accesses (`expired`, `new`) precede the event of the command.
            self.effects.absorb(self.db.access_results());
        }
        if self.db.has_registrations(key) {
            self.effects.touch(self.db.index(), key);
        }
        if !self.effects.wanted_events.is_empty() {
            self.effects.raise(class, event, self.db.index(), key.bytes);
        }
    }

    /// Records other commands in place of the request, for replicas and the append-only file.
    /// Needed if the request's effect depends on more than the data: see [`crate::record`]. `write`
    /// runs only if records are wanted.
    #[inline]
    pub fn record(&mut self, write: impl FnOnce(&mut RecordWriter<'_>)) {
        let db = self.db.index();
        self.effects.record.replace(db, write);
    }

    /// Delays the invalidation of `key`, the last changed key, until the events raised so far are
    /// published. Used by commands for which Redis publishes the events before the invalidation.
    #[inline]
    pub fn invalidate_after_events(&mut self, key: Key<'_>) {
        if !self.effects.wanted_events.is_empty() && !self.effects.changed_keys.is_empty() {
            self.effects.absorb(self.db.access_results());
            let events = self.effects.events.len();
            let of_key = self
                .effects
                .changed_keys
                .iter_mut()
                .rev()
                .take_while(|changed_keys| *changed_keys.key == *key.bytes);
            of_key.for_each(|changed_keys| changed_keys.events_before = events);
        }
    }

    /// Makes the invalidations of all changed keys be sent together, at the time of the first one.
    /// Used by commands (RENAME) for which Redis publishes the events after the invalidations of
    /// all keys.
    #[inline]
    pub fn invalidate_together(&mut self) {
        if let [first, others @ ..] = &mut self.effects.changed_keys[..] {
            others.iter_mut().for_each(|changed_keys| changed_keys.events_before = first.events_before);
        }
    }
}

bitflags! {
    /// Classes of keyspace events; the letters are those of `notify-keyspace-events`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct EventClass: u32 {
        /// `g`: commands on keys of any type, such as DEL, EXPIRE and RENAME.
        const GENERIC = 1 << 0;
        /// `$`: the events of commands on strings.
        const STRING = 1 << 1;
        /// `l`: the events of commands on lists.
        const LIST = 1 << 2;
        /// `s`: the events of commands on sets.
        const SET = 1 << 3;
        /// `h`: the events of commands on hashes.
        const HASH = 1 << 4;
        /// `z`: the events of commands on sorted sets.
        const ZSET = 1 << 5;
        /// `x`: the event that a key expired.
        const EXPIRED = 1 << 6;
        /// `e`: the event that a key was evicted.
        const EVICTED = 1 << 7;
        /// `t`: the events of commands on streams.
        const STREAM = 1 << 8;
        /// `n`: the event that a key was created.
        const NEW = 1 << 9;
        /// `m`: the event that a missing key was read.
        const MISSED = 1 << 10;
        /// `a`: commands on arrays.
        const ARRAY = 1 << 11;
    }
}

/// A keyspace event that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The class of the keyspace event, which clients can select.
    pub class: EventClass,
    /// The name of the keyspace event, such as `set`.
    pub event: &'static str,
    /// The number of the database of the event's key.
    pub db: usize,
    /// The name of the event's key.
    pub key: Box<[u8]>,
}

/// The changes that commands made to the data: changed keys, events and values to free. The engine
/// applies them before it releases the locks. Each I/O thread has one.
#[derive(Default)]
pub struct Changes {
    /// The number of changes so far, which `rdb_changes_since_last_save` counts.
    pub changes: u64,
    /// The commands to record, for replicas and the append-only file, in place of the running one:
    /// see [`crate::record`].
    pub record: ChangeRecord,
    /// The classes of keyspace events to publish.
    pub wanted_events: EventClass,
    /// The keyspace events that commands have raised so far.
    pub events: Vec<KeyEvent>,
    /// The changed keys that may have watchers, blocked or tracking clients.
    pub changed_keys: Vec<ChangedKey>,
    /// The databases that changed as a whole, with the kind of change.
    pub db_changes: Vec<DbChange>,
    /// The keys for which the client waits and its timeout, if the command blocks the client;
    /// `None` if the command replied.
    pub wait: Option<Wait>,
    /// The search that makes the reply of the command. The engine runs it after the locks are
    /// released.
    pub search: Option<Box<dyn Search>>,
    /// Removed values that are too big to free here. A background thread frees them.
    pub lazy_freed: Vec<LazyFreed>,
    /// True while the command's reply waits until the values that it removed are freed (FLUSHALL
    /// SYNC).
    pub freed_before_reply: bool,
}

/// The mode of a command that empties a database. It determines when the client, if it tracks keys,
/// receives the invalidation that it caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// SYNC, or no option: the client's own invalidation is sent before the reply, except in a
    /// transaction. In Redis the client then waits until the memory is freed; here only with SYNC.
    Awaited,
    /// ASYNC: the client does not wait until the memory is freed, and its own invalidation is sent
    /// after the reply.
    Async,
}

/// A change to all keys of one database or of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbChange {
    /// All keys of the database with this number were removed.
    Emptied(usize, Flush),
    /// The databases with these two numbers have exchanged their keys.
    Swapped(usize, usize),
    /// All keys of the database with this number are about to be replaced by the keys of a file.
    Replaced(usize),
}

/// The clients that are notified of a change to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Blocked clients, tracking clients and watchers of the key are notified.
    All,
    /// Blocked and tracking clients are notified, but no watchers: the key was removed because it
    /// had expired. EXEC itself checks if a watched key has expired. A key that had expired before
    /// WATCH counted as missing.
    ExceptWatchers,
    /// Only clients blocked on the key are notified.
    BlockedClients,
}

/// A key that changed, and the clients to notify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The number of the changed key's database.
    pub db: usize,
    /// The hash of the changed key.
    pub hash: KeyHash,
    /// The name of the changed key.
    pub key: Box<[u8]>,
    /// The clients that are notified of the key's change.
    pub audience: Audience,
    /// The number of [`Changes::events`] that are published before the invalidation of this change.
    pub events_before: usize,
}

/// A removed value, or a part of one, that a background thread frees.
pub enum LazyFreed {
    /// A key with its value, which was removed.
    Entry(keyspace::KeyEntry),
    /// A part of a removed value, such as the elements that a trim removed.
    Object(keyspace::Object),
    /// All keys that were removed from a database in one shard.
    Keys(Table<keyspace::KeyEntry>),
}

/// The number of elements from which a removed value is freed on a background thread instead of the
/// present one.
const LAZY_FREE_ELEMENTS_MIN: usize = 64;

impl Changes {
    /// Returns true if the command has not replied yet: its client waits, or a search must run.
    #[inline]
    pub fn leaves_reply(&self) -> bool {
        self.wait.is_some() || self.search.is_some()
    }

    /// Frees a removed value: a small one at once, a big one on a background thread. O(1).
    #[inline]
    pub fn discard(&mut self, entry: keyspace::KeyEntry) {
        use structures::entry::View;
        match entry.view() {
            View::Object(object) if object.element_count() >= LAZY_FREE_ELEMENTS_MIN => {
                self.lazy_freed.push(LazyFreed::Entry(entry));
            }
            _ => drop(entry),
        }
    }

    /// Frees a part of a value, such as trimmed elements: a small one at once, a big one on a
    /// background thread. O(1).
    pub fn lazy_free_object(&mut self, object: keyspace::Object) {
        if object.element_count() >= LAZY_FREE_ELEMENTS_MIN {
            self.lazy_freed.push(LazyFreed::Object(object));
        }
    }

    /// Adds the results of key accesses to these changes: raises their keyspace events, adds the
    /// changed keys and frees the removed values. O(results).
    pub fn absorb(&mut self, access_results: &mut AccessResults) {
        for access_event in access_results.access_events.drain(..) {
            match access_event {
                AccessEvent::Expired(expired) => {
                    let key = expired.entry.key();
                    self.record.key_expired(expired.db, key);
                    self.raise(EventClass::EXPIRED, "expired", expired.db, key);
                    if expired.followed {
                        self.touch(expired.db, Key { bytes: key, hash: expired.hash });
                        self.changed_keys.last_mut().expect("it was put there").audience =
                            Audience::ExceptWatchers;
                    }
                    self.discard(expired.entry);
                }
                AccessEvent::Missed(missed) => {
                    self.raise(EventClass::MISSED, "keymiss", missed.db, &missed.key);
                }
                AccessEvent::Created(created) => self.raise(EventClass::NEW, "new", created.db, &created.key),
            }
        }
        self.absorb_displaced(access_results);
    }

    /// Frees the values that the key accesses removed or replaced, which is the last step of
    /// [`Changes::absorb`]. O(values).
    pub fn absorb_displaced(&mut self, access_results: &mut AccessResults) {
        for entry in access_results.displaced.drain(..) {
            self.discard(entry);
        }
    }

    /// Adds a key to [`Changes::changed_keys`] if it may have watchers, blocked or tracking
    /// clients.
    #[cold]
    pub fn touch(&mut self, db: usize, key: Key<'_>) {
        let (key, hash, events_before) = (key.bytes.into(), key.hash, self.events.len());
        self.changed_keys.push(ChangedKey { db, hash, key, audience: Audience::All, events_before });
    }

    /// Adds a keyspace event to [`Changes::events`] if its class is published.
    pub fn raise(&mut self, class: EventClass, event: &'static str, db: usize, key: &[u8]) {
        if self.wanted_events.intersects(class) {
            self.events.push(KeyEvent { class, event, db, key: key.into() });
        }
    }
}

/// The limits from the configuration that apply to values: sizes and encodings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLimits {
    /// `proto-max-bulk-len`: the length of the longest string, in bytes.
    pub string_len_bytes_max: u64,
    /// `list-max-listpack-size`: the maximum number of entries of a list node. From -1 to -5: the
    /// node's maximum size of 4, 8, 16, 32 or 64 KiB.
    pub list_max_listpack_size: i64,
    /// The length from which a string gets a list node of its own, even if it fits into a node with
    /// others. Set by DEBUG QUICKLIST-PACKED-THRESHOLD; [`u32::MAX`] disables the rule.
    pub list_plain_len_min: u32,
    /// `list-compress-depth`: the number of uncompressed nodes at each end of a list; 0 compresses
    /// no node.
    pub list_compress_depth: i64,
    /// `hash-max-listpack-entries`: the maximum number of fields of a hash stored as a listpack.
    pub hash_max_listpack_entries: usize,
    /// `hash-max-listpack-value`: the maximum length of a field or value of a hash that is stored
    /// as a listpack, in bytes.
    pub hash_max_listpack_value: usize,
    /// `set-max-intset-entries`: the maximum number of members of a set stored as an intset.
    pub set_max_intset_entries: usize,
    /// `set-max-listpack-entries`: the maximum number of members of a set stored as a listpack.
    pub set_max_listpack_entries: usize,
    /// `set-max-listpack-value`: the maximum length of a member of a set stored as a listpack, in
    /// bytes.
    pub set_max_listpack_value: usize,
    /// `zset-max-listpack-entries`: the maximum number of members of a sorted set stored as a
    /// listpack.
    pub zset_max_listpack_entries: usize,
    /// `zset-max-listpack-value`: the maximum length of a member of a sorted set stored as a
    /// listpack, in bytes.
    pub zset_max_listpack_value: usize,
    /// `stream-node-max-bytes`: the size of a stream's node after which a new one begins, in bytes;
    /// 0 is no limit.
    pub stream_node_max_bytes: usize,
    /// `stream-node-max-entries`: the maximum number of entries of a stream's node; 0 is no limit.
    pub stream_node_max_entries: usize,
    /// `hll-sparse-max-bytes`: the maximum size of a sparse HyperLogLog in bytes, its header
    /// included.
    pub hll_sparse_max_bytes: usize,
    /// True if OBJECT REFCOUNT shows small integers as shared. Redis does not share them if each
    /// key needs its own access time or frequency: with `maxmemory` and an LRU or LFU policy.
    pub shares_integers: bool,
    /// `rdbcompression`: true if DUMP compresses strings.
    pub compresses_dumps: bool,
    /// `rdb-version-check relaxed`: true if RESTORE accepts payloads of unknown versions.
    pub takes_unknown_dumps: bool,
    /// True if the checksums of RESTORE's payloads are not checked, for tests of damaged data.
    pub skips_checksums: bool,
    /// True if the commands come from a primary or from an append-only file. Then the handlers also
    /// accept options that other servers record but clients may not use.
    pub takes_recorded_forms: bool,
}

impl ValueLimits {
    /// Returns the limits that apply to the nodes of lists.
    pub const fn list(&self) -> ListLimits {
        ListLimits::from_option(self.list_max_listpack_size)
            .with_plain_from(self.list_plain_len_min)
            .with_compress_depth(self.list_compress_depth)
    }
}

impl Default for ValueLimits {
    fn default() -> Self {
        Self {
            string_len_bytes_max: 512 << 20,
            list_max_listpack_size: -2,
            list_plain_len_min: u32::MAX,
            list_compress_depth: 0,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
            stream_node_max_bytes: 4096,
            stream_node_max_entries: 100,
            hll_sparse_max_bytes: 3000,
            shares_integers: true,
            compresses_dumps: true,
            takes_unknown_dumps: false,
            skips_checksums: false,
            takes_recorded_forms: false,
        }
    }
}

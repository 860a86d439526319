//! What a data command may touch: its locked keys, its reply, its effects. Nothing else.

use bitflags::bitflags;
use keyspace::view::{AccessEvent, AccessResults};
use keyspace::{Key, KeyHash, ListLimits, View};
use resp::Reply;
use structures::table::Table;

use crate::args::Args;
use crate::error::CommandError;
use crate::record::{ChangeRecord, RecordWriter};
use crate::wait::{OnEmpty, Wait};

/// The function that runs a data command. It parses, calls one method of the type, replies.
pub type Handler = fn(&mut Ctx<'_>, &Args<'_>) -> Result<(), CommandError>;

/// A data command's surroundings.
pub struct Ctx<'a> {
    /// The selected database, as far as the command's keys are locked.
    pub db: View<'a>,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// What the command did to the data, for those who follow it.
    pub effects: &'a mut Changes,
    /// Random numbers: seeded once per thread, so tests are repeatable.
    pub rng: &'a mut fastrand::Rng,
    /// Limits from the configuration that shape values.
    pub limits: &'a ValueLimits,
    /// Whether its client may wait: see [`Ctx::nothing_yet`].
    pub on_empty: OnEmpty,
    /// Who runs it.
    pub origin: Origin,
    /// Which keys its client may read.
    pub readable: ReadableKeys,
}

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client.
    Client,
    /// A client's script.
    Script,
}

/// Which keys a command's client may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadableKeys {
    /// All.
    All,
    /// Those that its arguments name.
    Declared,
}

impl Ctx<'_> {
    /// Notes that `key` changed and which keyspace event that raises. Call it once per change,
    /// before returning; a command that changed nothing does not call it.
    #[inline]
    pub fn changed(&mut self, class: EventClass, event: &'static str, key: Key<'_>) {
        self.changed_by(1, class, event, key);
    }

    /// Counts changes without keyspace event and without notification, as in Redis: acknowledging
    /// and claiming a stream's entries.
    #[inline]
    pub fn changed_silently(&mut self, changes: u64) {
        self.effects.changes += changes;
    }

    /// Notes a change of `key` that raises no keyspace event, but is one for
    /// those who follow the key.
    pub fn changed_without_event(&mut self, changes: u64, key: Key<'_>) {
        self.effects.changes += changes;
        if !self.effects.wanted_events.is_empty() {
            self.effects.absorb(self.db.access_results());
        }
        if self.db.is_followed(key) {
            self.effects.touch(self.db.index(), key);
        }
    }

    /// Records a change to a stream's groups. As in Redis it does not count as a change for
    /// watchers and tracking clients.
    pub fn changed_groups(&mut self, event: &'static str, key: Key<'_>) {
        self.effects.changes += 1;
        if !self.effects.wanted_events.is_empty() {
            self.effects.absorb(self.db.access_results());
            self.effects.raise(EventClass::STREAM, event, self.db.index(), key.bytes);
        }
    }

    /// Makes `key` a ready key, although it has not changed: blocked clients are served again.
    pub fn mark_ready(&mut self, key: Key<'_>) {
        if self.db.is_followed(key) {
            self.effects.touch(self.db.index(), key);
            self.effects.changed_keys.last_mut().expect("it was put there").audience =
                Audience::BlockedClients;
        }
    }

    /// Like [`Ctx::changed`] for a command that makes several changes at once and raises one
    /// event: `RPUSH` counts its elements. An event beside one that counted all changes
    /// (`del` behind `lpop`) has 0.
    #[inline]
    pub fn changed_by(&mut self, changes: u64, class: EventClass, event: &'static str, key: Key<'_>) {
        self.effects.changes += changes;
        if !self.effects.wanted_events.is_empty() {
            // Events of the accesses come first.
            self.effects.absorb(self.db.access_results());
        }
        if self.db.is_followed(key) {
            self.effects.touch(self.db.index(), key);
        }
        if !self.effects.wanted_events.is_empty() {
            self.effects.raise(class, event, self.db.index(), key.bytes);
        }
    }

    /// Records other commands in place of the request, whose effect depends on more than the data:
    /// see [`crate::record`]. `write` runs only if records are wanted.
    #[inline]
    pub fn record(&mut self, write: impl FnOnce(&mut RecordWriter<'_>)) {
        let db = self.db.index();
        self.effects.record.replace(db, write);
    }

    /// Sends the invalidation of the last changed key after the events raised so far, where Redis
    /// publishes the events first.
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

    /// Sends the invalidations of all changed keys where the first one would be sent, where Redis
    /// publishes the events of several keys after that.
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
        /// `g`: DEL, EXPIRE, RENAME, …
        const GENERIC = 1 << 0;
        /// `$`
        const STRING = 1 << 1;
        /// `l`
        const LIST = 1 << 2;
        /// `s`
        const SET = 1 << 3;
        /// `h`
        const HASH = 1 << 4;
        /// `z`
        const ZSET = 1 << 5;
        /// `x`: a key expired.
        const EXPIRED = 1 << 6;
        /// `e`: a key was evicted.
        const EVICTED = 1 << 7;
        /// `t`
        const STREAM = 1 << 8;
        /// `n`: a key was created.
        const NEW = 1 << 9;
        /// `m`: a key that is not there was to be read.
        const MISSED = 1 << 10;
    }
}

/// One keyspace event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// Its class.
    pub class: EventClass,
    /// Its name, such as `set`.
    pub event: &'static str,
    /// The database.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
}

/// What commands did to the data: changed keys, events, values to free. Applied before the locks
/// are released. Thread: one per I/O thread.
#[derive(Default)]
pub struct Changes {
    /// Changes so far: what `rdb_changes_since_last_save` counts.
    pub changes: u64,
    /// The canonical record of the command that runs.
    pub record: ChangeRecord,
    /// Keyspace events to publish.
    pub wanted_events: EventClass,
    /// Those that happened.
    pub events: Vec<KeyEvent>,
    /// Changed keys in shards with watchers, blocked clients or tracked keys.
    pub changed_keys: Vec<ChangedKey>,
    /// Ready keys: keys that changed while clients may be blocked on them, and those removed with
    /// their database.
    pub gone: Vec<ChangedKey>,
    /// Databases that changed as a whole.
    pub db_changes: Vec<DbChange>,
    /// What the command waits for instead of replying.
    pub wait: Option<Wait>,
    /// What is on its way out and too big to free here: a background thread drops it.
    pub lazy_freed: Vec<LazyFreed>,
    /// The command's reply is delayed until the values removed so far are freed (FLUSHALL SYNC).
    pub freed_before_reply: bool,
}

/// Whether the client that empties a database waits until the memory is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It does, in Redis: its own invalidation comes ahead of the reply.
    Awaited,
    /// It does not (ASYNC): its own invalidation comes behind the reply.
    Async,
}

/// A change to all keys of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbChange {
    /// All keys were removed.
    Emptied(usize, Flush),
    /// Two databases have exchanged their keys.
    Swapped(usize, usize),
    /// All keys are about to be replaced by those of a file.
    Replaced(usize),
}

/// Who is notified that a key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Those who wait for it, cache it or watch it.
    All,
    /// All except watchers: the key had expired, which EXEC checks itself, and which counted as
    /// missing when WATCH came later.
    ExceptWatchers,
    /// Only blocked clients.
    BlockedClients,
}

/// A key that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// Its database.
    pub db: usize,
    /// Its hash.
    pub hash: KeyHash,
    /// The key.
    pub key: Box<[u8]>,
    /// Who is notified.
    pub audience: Audience,
    /// How many of [`Changes::events`] are published before the invalidation of this change.
    pub events_before: usize,
}

/// A removed value that a background thread frees.
pub enum LazyFreed {
    /// A key with its value.
    Entry(keyspace::KeyEntry),
    /// A part of a value.
    Object(keyspace::Object),
    /// All keys of a database in one shard.
    Keys(Table<keyspace::KeyEntry>),
}

/// Elements from which freeing a value is left to a background thread.
const LAZY_FREE_ELEMENTS_MIN: usize = 64;

impl Changes {
    /// Lets go of a removed value: here when it is small, on a background
    /// thread when it is not. O(1).
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

    /// Lets go of a part of a value as [`Changes::discard`] does of a whole one. O(1).
    pub fn lazy_free_object(&mut self, object: keyspace::Object) {
        if object.element_count() >= LAZY_FREE_ELEMENTS_MIN {
            self.lazy_freed.push(LazyFreed::Object(object));
        }
    }

    /// Takes over what happened to keys while commands looked for them: events and followers' news,
    /// a place to be freed for what left the keyspace. O(entries).
    pub fn absorb(&mut self, access_results: &mut AccessResults) {
        for access_events in access_results.access_events.drain(..) {
            match access_events {
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

    /// The part of [`Changes::absorb`] that gives values up. O(values).
    pub fn absorb_displaced(&mut self, access_results: &mut AccessResults) {
        for entry in access_results.displaced.drain(..) {
            self.discard(entry);
        }
    }

    /// Records the change of a key that may have watchers, blocked or tracking clients.
    #[cold]
    pub fn touch(&mut self, db: usize, key: Key<'_>) {
        let (key, hash, events_before) = (key.bytes.into(), key.hash, self.events.len());
        self.changed_keys.push(ChangedKey { db, hash, key, audience: Audience::All, events_before });
    }

    /// Records a keyspace event if its class is published.
    pub fn raise(&mut self, class: EventClass, event: &'static str, db: usize, key: &[u8]) {
        if self.wanted_events.intersects(class) {
            self.events.push(KeyEvent { class, event, db, key: key.into() });
        }
    }
}

/// Limits from the configuration that shape values: thresholds between encodings, sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLimits {
    /// `proto-max-bulk-len`: the longest string.
    pub string_len_bytes_max: u64,
    /// `list-max-listpack-size`: entries of a list node, or a size class when negative.
    pub list_max_listpack_size: i64,
    /// Strings of this length get a list node of their own even where they are not too long for
    /// others: DEBUG QUICKLIST-PACKED-THRESHOLD, [`u32::MAX`] for none.
    pub list_plain_len_min: u32,
    /// `list-compress-depth`: nodes at each end of a list that are not
    /// compressed; 0 compresses none.
    pub list_compress_depth: i64,
    /// `hash-max-listpack-entries`.
    pub hash_max_listpack_entries: usize,
    /// `hash-max-listpack-value`.
    pub hash_max_listpack_value: usize,
    /// `set-max-intset-entries`.
    pub set_max_intset_entries: usize,
    /// `set-max-listpack-entries`.
    pub set_max_listpack_entries: usize,
    /// `set-max-listpack-value`.
    pub set_max_listpack_value: usize,
    /// `zset-max-listpack-entries`.
    pub zset_max_listpack_entries: usize,
    /// `zset-max-listpack-value`.
    pub zset_max_listpack_value: usize,
    /// `stream-node-max-bytes`.
    pub stream_node_max_bytes: usize,
    /// `stream-node-max-entries`.
    pub stream_node_max_entries: usize,
    /// `hll-sparse-max-bytes`: up to here a HyperLogLog stays sparse, its header included.
    pub hll_sparse_max_bytes: usize,
    /// Whether OBJECT REFCOUNT shows small integers as shared. Redis does not share them where each
    /// key needs a time or frequency of its own: under `maxmemory` with an LRU or LFU policy.
    pub shares_integers: bool,
    /// `rdbcompression`: whether strings are compressed in what DUMP writes.
    pub compresses_dumps: bool,
    /// `rdb-version-check relaxed`: whether RESTORE takes payloads of versions that are not known.
    pub takes_unknown_dumps: bool,
    /// Whether checksums of payloads are left unread, for tests of damaged data.
    pub skips_checksums: bool,
}

impl ValueLimits {
    /// The limits of lists.
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
        }
    }
}

//! A command's view of one database: only the keys whose shards are locked are accessible.
//!
//! Access to another key is a defect of the command's record, which did not declare the key. It
//! ends the request, not the server. Typed accessors return [`AccessError::Undeclared`]. The other
//! methods treat the key as absent, and store nothing. [`View::has_missed_lock`] then returns true:
//! the reply is invalid.
//!
//! Reading removes expired keys, updates the access clock, and counts hits and misses. The typed
//! accessors return WRONGTYPE, so commands need not check types.
//!
//! A view also counts the sizes of keys (`sizes.rs`). Values that are stored or removed are counted
//! at once. When a value is borrowed for changes, the view stores its place and its size. It
//! compares that size with the new one when it next accesses any key, or ends. The stored place is
//! still valid then, because a table changes only through its view.

use std::sync::Arc;

use structures::entry::{Entry, NewValue, View as EntryView};
use structures::table::{Borrowed, BorrowedMut, Occupied, Place, Thin};

use crate::access::Access;
use crate::db::Shard;
pub use crate::expiry::Expiry;
use crate::key::{Key, KeyHash, shard_of};
use crate::keyspace::{Keyspace, Locked, ShardsMut};
use crate::object::{Blob, KeyEntry, Object, ObjectType};
use crate::sizes::{Resize, SizeLane, SizeMark};
use crate::string::{Str, raw, stored};
use crate::value_size::ValueSize;

/// The reason why a key cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The key holds a value of another type than the command accepts.
    WrongType,
    /// The key's shard is not locked, because the command's record in the command table does not
    /// declare the key. See the module's comment.
    Undeclared,
}

use AccessError::WrongType;

/// The counts and results that a thread collects while commands access keys. Removed entries are
/// collected and not dropped: freeing a big value takes time, and the shard is locked. They are
/// moved to the command's changes when the command is done.
#[derive(Default)]
pub struct AccessResults {
    /// The number of reads that found their key.
    pub hits: u64,
    /// The number of reads that did not find their key.
    pub misses: u64,
    /// The number of expired keys that accesses have removed.
    pub expired_keys: u64,
    /// The number of expired hash fields that accesses have removed.
    pub expired_fields: u64,
    /// The events that accesses to keys have caused (expired, missed or created keys), in the order
    /// of the accesses.
    pub access_events: Vec<AccessEvent>,
    /// The deadlines (expiries) that keys got under [`ExpiredAccess::RemoveOnAccess`].
    pub deadlines: Vec<Deadline>,
    /// True if reads that find no key are recorded as events.
    pub wants_missed: bool,
    /// True if the creation of a key is recorded as an event.
    pub wants_created: bool,
    /// The objects that a write replaced, each with a copy of its key, so that they can be dropped
    /// after the shard is unlocked.
    pub displaced: Vec<KeyEntry>,
    /// The state of the random number generator for LFU's counter.
    seed: u64,
    /// The counts of key sizes in which this thread counts keys; `None` for the counts that threads
    /// share.
    lane: Option<Arc<SizeLane>>,
}

/// An event that an access to a key has caused.
pub enum AccessEvent {
    /// The key had expired and was removed on access.
    Expired(Expired),
    /// The key was read, and does not exist or has expired.
    Missed(DbKey),
    /// A key that did not exist was created.
    Created(DbKey),
}

/// A key and the deadline (expiry) that it got.
pub struct Deadline {
    /// The key that has the deadline.
    pub key: DbKey,
    /// The time at which the key expires, in Unix milliseconds.
    pub at_ms: i64,
}

/// The name of a key with its database.
pub struct DbKey {
    /// The number of the key's database.
    pub db: usize,
    /// The name of the key, without its database.
    pub key: Box<[u8]>,
}

/// An expired key that was removed on access.
pub struct Expired {
    /// The number of the removed key's database.
    pub db: usize,
    /// The hash of the removed key.
    pub hash: KeyHash,
    /// True if clients may be blocked on the removed key, or watch or track it.
    pub followed: bool,
    /// The removed key's entry with its value.
    pub entry: KeyEntry,
}

/// The treatment of expired keys and expired hash fields on access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredAccess {
    /// Expired keys are removed on access. A key that gets an expiry in the past is removed at
    /// once.
    Remove,
    /// Expired keys are removed on access, but an expiry in the past is stored like any other. For
    /// writes on a replica, or while data is imported (`import-mode`).
    RemoveOnAccess,
    /// Expired keys are not removed, but count as missing. For reads on a replica, during a pause
    /// of clients, or while data is imported.
    Hide,
    /// Expired keys are not removed, and are visible. For the importing client, and for the
    /// replication stream from a replica's primary.
    Show,
}

/// The settings with which one command accesses keys. They depend on the time, the client and the
/// command.
#[derive(Clone, Copy, Debug)]
pub struct AccessContext {
    /// The present Unix time in milliseconds, the same for all commands of a turn (a pass of the
    /// thread's event loop).
    pub now_ms: i64,
    /// True if reads update the access clocks of keys; false under CLIENT NO-TOUCH.
    pub touch: bool,
    /// The rule of the keys' access clocks (LRU or LFU), with the present time.
    pub access: Access,
    /// The treatment of expired keys and hash fields on access.
    pub expired_access: ExpiredAccess,
}

impl AccessContext {
    /// Returns the latest deadline that has passed: a key or field with this or an earlier deadline
    /// counts as absent. It is the millisecond before [`now_ms`](Self::now_ms), as in Redis. A key
    /// that gets its lifetime in the last microsecond of a millisecond therefore lives at least as
    /// long as requested. Under [`ExpiredAccess::Show`] no deadline has passed.
    #[inline]
    pub fn due_ms(&self) -> i64 {
        if self.expired_access == ExpiredAccess::Show { i64::MIN } else { self.now_ms.saturating_sub(1) }
    }

    /// Returns true if an expired key is removed when a command finds it. Otherwise the key is
    /// kept, hidden or visible.
    #[inline]
    pub fn removes_due(&self) -> bool {
        matches!(self.expired_access, ExpiredAccess::Remove | ExpiredAccess::RemoveOnAccess)
    }

    /// Returns the new access clock of a key whose value is replaced. Under LFU the counter
    /// continues, under LRU the present time is set. `draw` returns a uniform random number.
    #[inline]
    fn overwritten(&self, access: u32, draw: impl FnOnce() -> u32) -> u32 {
        match self.access {
            Access::Lru { .. } => self.access.fresh(),
            Access::Lfu { .. } if self.touch => self.access.touched(access, draw),
            Access::Lfu { .. } => access,
        }
    }
}

/// A view of one database with locked shards. See the module's comment.
pub struct View<'k> {
    keyspace: &'k Keyspace,
    locked: ShardsMut<'k>,
    index: usize,
    access_context: AccessContext,
    access_results: &'k mut AccessResults,
    /// The last value that was borrowed for changes; `None` if its new size is counted already.
    opened: Option<Opened>,
    /// True after an access to a key whose shard is not locked.
    missed_lock: MissedLock,
}

/// A value that was borrowed from the view for changes, with its size before them. See the module's
/// comment.
struct Opened {
    db: usize,
    hash: KeyHash,
    place: Place,
    size: ValueSize,
}

impl<'k> View<'k> {
    /// Creates a view of database `index` on the locked shards.
    #[inline(always)]
    pub fn new(
        keyspace: &'k Keyspace,
        locked: &'k mut Locked<'_>,
        index: usize,
        access_context: AccessContext,
        access_results: &'k mut AccessResults,
    ) -> Self {
        Self {
            keyspace,
            locked: locked.shards_mut(),
            index,
            access_context,
            access_results,
            opened: None,
            missed_lock: MissedLock::default(),
        }
    }

    /// Returns true if clients are blocked on any key of the shard of `key`, or watch or track one.
    #[inline]
    pub fn has_registrations(&self, key: Key<'_>) -> bool {
        self.locked.get(key.shard()).is_some_and(Shard::has_registrations)
    }

    /// Returns true if the command accessed a key that its record in the command table does not
    /// declare. See the module's comment.
    #[inline]
    pub fn has_missed_lock(&self) -> bool {
        self.missed_lock.0
    }

    /// Returns the number of databases of the keyspace.
    pub fn db_count(&self) -> usize {
        self.keyspace.db_count()
    }

    /// Returns the number of the selected database, which the view shows.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Selects another database of the same locked shards (COPY, MOVE). Returns the number of the
    /// database selected before, which the caller must select again afterwards.
    pub fn select(&mut self, index: usize) -> usize {
        std::mem::replace(&mut self.index, index)
    }

    /// Removes `key` from the selected database if it has expired and [`ExpiredAccess`] says that
    /// expired keys are removed on access. The removal is recorded in
    /// [`AccessResults::access_events`]. O(1).
    pub fn remove_due(&mut self, key: Key<'_>) {
        self.found(key, Count::No);
    }

    /// Returns the present time in Unix milliseconds, the same for all commands of a turn (a pass
    /// of the thread's event loop).
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.access_context.now_ms
    }

    /// Returns the latest deadline that has passed, in Unix milliseconds
    /// ([`AccessContext::due_ms`]).
    #[inline]
    pub fn due_ms(&self) -> i64 {
        self.access_context.due_ms()
    }

    /// Returns true if an expired key is removed when a command finds it. Otherwise the key is
    /// kept, hidden or visible.
    #[inline]
    pub fn removes_due(&self) -> bool {
        self.access_context.removes_due()
    }

    /// Returns the latest Unix time in milliseconds that counts as past for a new expiry. A key
    /// that gets such an expiry is removed at once. It is the present time under
    /// [`ExpiredAccess::Remove`], else `i64::MIN`: then no expiry is in the past.
    #[inline]
    pub fn past_ms(&self) -> i64 {
        if self.access_context.expired_access == ExpiredAccess::Remove {
            self.access_context.now_ms
        } else {
            i64::MIN
        }
    }

    /// Returns true if a key or field that gets the expiry `at_ms` is removed at once
    /// ([`View::past_ms`]).
    #[inline]
    pub fn is_past(&self, at_ms: i64) -> bool {
        at_ms <= self.past_ms()
    }

    /// Borrows the counts and results of the thread's accesses to keys: hits, misses, expired keys,
    /// events and replaced objects.
    pub fn access_results(&mut self) -> &mut AccessResults {
        self.access_results
    }

    /// Returns the rule (LRU or LFU) for the keys' access clocks, with the present time.
    pub fn access(&self) -> Access {
        self.access_context.access
    }

    /// Updates the size counts for a key of the selected database whose size mark has changed.
    /// O(1).
    #[inline]
    fn resized(&mut self, hash: KeyHash, old: SizeMark, new: SizeMark) {
        if old != new {
            self.count_resized(hash, old, new);
        }
    }

    #[inline(never)]
    fn count_resized(&mut self, hash: KeyHash, old: SizeMark, new: SizeMark) {
        let resize = Resize { db: self.index, hash, old, new };
        let Some(shard) = self.locked.get_mut(shard_of(hash)) else { return };
        self.keyspace.resized(self.access_results.lane.as_deref(), shard, resize);
    }

    /// Updates the size counts for the value that the view last lent for changes, unless they are
    /// up to date.
    #[inline]
    fn settle(&mut self) {
        if self.opened.is_some() {
            self.settle_opened();
        }
    }

    /// Does the work of [`View::settle`] for a value that was lent for changes. Out of line: before
    /// most accesses no value was lent, and this code would be inlined in all of them.
    #[inline(never)]
    fn settle_opened(&mut self) {
        let Some(Opened { db, hash, place, size: old }) = self.opened.take() else { return };
        let Some(shard) = self.locked.get_mut(shard_of(hash)) else { return };
        let new = ValueSize::of_entry(&shard.db_mut(db).table.at(place));
        if !old.is_marked_alike(new) {
            let resize = Resize { db, hash, old: old.mark(), new: new.mark() };
            self.keyspace.resized(self.access_results.lane.as_deref(), shard, resize);
        }
    }

    /// Finds a key of the selected database that has not expired, and counts a hit or miss as
    /// `count` says. Treats an expired key as [`ExpiredAccess`] says. Returns `None` if the key is
    /// absent.
    #[inline]
    fn find(&mut self, key: Key<'_>, count: Count) -> Result<Option<Found<'_>>, AccessError> {
        self.settle();
        let Some(shard) = self.locked.get_mut(key.shard()) else {
            return Err(self.missed_lock.note());
        };
        let table = &mut shard.db_mut(self.index).table;
        let now_ms = self.access_context.now_ms;
        let is_expired = |entry: &KeyEntry| entry.expiry_ms().is_some_and(|at_ms| at_ms < now_ms);
        let Some((place, expired)) = table.find_and(key.position(), key.bytes, is_expired) else {
            self.access_results.miss(self.index, key, count);
            return Ok(None);
        };
        if expired && self.access_context.expired_access != ExpiredAccess::Show {
            if self.access_context.expired_access != ExpiredAccess::Hide {
                let lane = self.access_results.lane.as_deref();
                let entry = self.keyspace.remove_at(lane, shard, (self.index, key.hash), place);
                let expired =
                    Expired { db: self.index, hash: key.hash, followed: shard.has_registrations(), entry };
                self.access_results.note_expired(expired);
            }
            self.access_results.miss(self.index, key, count);
            return Ok(None);
        }
        let occupied = shard.db_mut(self.index).table.occupied(place);
        self.access_results.hits += count.as_number();
        let (db, opened) = (self.index, &mut self.opened);
        Ok(Some(Found {
            keyspace: self.keyspace,
            occupied,
            db,
            hash: key.hash,
            access_context: &self.access_context,
            access_results: self.access_results,
            opened,
        }))
    }

    /// Finds a key like [`View::find`], but treats a key whose shard is not locked as absent.
    #[inline]
    fn found(&mut self, key: Key<'_>, count: Count) -> Option<Found<'_>> {
        self.find(key, count).unwrap_or(None)
    }

    /// Borrows the key's entry for reading; `None` if the key is absent. Counts a hit or miss, and
    /// updates the key's access clock. O(1).
    #[inline]
    pub fn get(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        self.found(key, Count::Yes).map(Found::touched).map(Found::entry)
    }

    /// Borrows the key's entry; `None` if the key is absent. Counts a hit or miss, but does not
    /// update the access clock. For commands about a key that do not use its value. O(1).
    #[inline]
    pub fn look(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        self.found(key, Count::Yes).map(Found::entry)
    }

    /// Borrows the key's entry like [`View::look`], but records no event (keymiss) for an absent
    /// key. For commands about the encoding of a value. O(1).
    pub fn peek_quietly(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        self.found(key, Count::Quietly).map(Found::entry)
    }

    /// Borrows the key's entry; `None` if the key is absent. Counts no hit or miss, and does not
    /// update the access clock. O(1).
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        self.found(key, Count::No).map(Found::entry)
    }

    /// Borrows the key's entry mutably, and updates its access clock; `None` if the key is absent.
    /// Counts no hit or miss. O(1).
    #[inline]
    pub fn entry_mut(&mut self, key: Key<'_>) -> Option<BorrowedMut<'_, KeyEntry>> {
        let Found { occupied, db, hash, opened, .. } = self.found(key, Count::No)?.touched().preserved();
        let (place, size) = (occupied.place(), ValueSize::of_entry(&occupied.get()));
        *opened = Some(Opened { db, hash, place, size });
        Some(occupied.into_mut())
    }

    /// Replaces the key's value by the integer that `number` computes from its entry. Returns the
    /// integer, or the error of `number`, after which the value is unchanged. Returns `None` if the
    /// key is absent. O(1).
    ///
    /// Counts the new size at once, which costs less than in [`View::entry_mut`], where it is not
    /// known yet.
    #[inline]
    pub fn renumber<E>(
        &mut self,
        key: Key<'_>,
        number: impl FnOnce(&KeyEntry) -> Result<i64, E>,
    ) -> Option<Result<i64, E>> {
        let mut occupied = self.found(key, Count::No)?.touched().preserved().occupied;
        let number = match number(&occupied.get()) {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        let old = SizeMark::of(&occupied.get());
        let value = NewValue::Int(number);
        let new = SizeMark::of_int(number);
        if !occupied.set_in_place(&value) {
            occupied.into_mut().set(value);
        }
        self.resized(key.hash, old, new);
        Some(Ok(number))
    }

    /// Returns true if the key exists. Counts no hit or miss, and does not update its access clock.
    pub fn contains(&mut self, key: Key<'_>) -> bool {
        self.found(key, Count::No).is_some()
    }

    /// Updates the key's access clock and counts a hit or miss (TOUCH), also for clients whose
    /// reads do not update clocks (CLIENT NO-TOUCH). Returns true if the key exists.
    pub fn touch(&mut self, key: Key<'_>) -> bool {
        self.found(key, Count::Yes).map(Found::touched_always).is_some()
    }

    /// Borrows the string at `key`; `None` if the key is absent. Counts a hit or miss, and updates
    /// the key's access clock.
    #[inline]
    pub fn string(&mut self, key: Key<'_>) -> Result<Option<Str<'_>>, AccessError> {
        match self.find(key, Count::Yes)?.map(Found::touched).map(Found::entry) {
            None => Ok(None),
            Some(entry) => Str::of(entry.view()).map(Some).ok_or(WrongType),
        }
    }

    /// Borrows the string at `key` for a command that will replace it; `None` if the key is absent.
    /// Counts no hit or miss, and does not update the key's access clock.
    #[inline]
    pub fn string_to_write(&mut self, key: Key<'_>) -> Result<Option<Str<'_>>, AccessError> {
        match self.find(key, Count::No)?.map(Found::entry) {
            None => Ok(None),
            Some(entry) => Str::of(entry.view()).map(Some).ok_or(WrongType),
        }
    }

    /// Borrows the string at `key` that an earlier [`View::string`] found. Counts no second hit and
    /// does not update the access clock. Strings of several keys can thus be borrowed together,
    /// after a call of `string` for each.
    pub fn reread_string(&self, key: Key<'_>) -> Option<Str<'_>> {
        Str::of(self.live_entry(key)?)
    }

    /// Borrows the object of type `T` at `key`; `None` if the key is absent. Counts a hit or miss,
    /// and updates the key's access clock.
    #[inline]
    pub fn read<T: ObjectType>(&mut self, key: Key<'_>) -> Result<Option<&T>, AccessError> {
        match self.find(key, Count::Yes)?.map(Found::touched).map(Found::entry) {
            None => Ok(None),
            Some(entry) => match entry.view() {
                EntryView::Object(object) => T::of(object).map(Some).ok_or(WrongType),
                EntryView::Bytes(_) | EntryView::Int(_) => Err(WrongType),
            },
        }
    }

    /// Borrows the object of type `T` at `key` that an earlier [`View::read`] found. Counts no
    /// second hit and does not update the access clock. Objects of several keys can thus be
    /// borrowed together, after a call of `read` for each.
    pub fn reread<T: ObjectType>(&self, key: Key<'_>) -> Option<&T> {
        match self.live_entry(key)? {
            EntryView::Object(object) => T::of(object),
            EntryView::Bytes(_) | EntryView::Int(_) => None,
        }
    }

    /// Borrows the value at `key`; `None` if the key is absent or expired. An earlier access may
    /// have kept an expired key ([`ExpiredAccess::Hide`]).
    #[inline]
    fn live_entry(&self, key: Key<'_>) -> Option<EntryView<'_, Object>> {
        let table = &self.locked.get(key.shard())?.db(self.index)?.table;
        let entry = table.get(key.position(), key.bytes)?;
        entry.expiry_ms().is_none_or(|at_ms| at_ms > self.due_ms()).then(|| entry.view())
    }

    /// Borrows the object of type `T` at `key` mutably; `None` if the key is absent. Updates the
    /// key's access clock, but counts no hit or miss.
    #[inline]
    pub fn write<T: ObjectType>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, AccessError> {
        self.change(key, Count::No)
    }

    /// Borrows the object of type `T` at `key` mutably like [`View::write`], but counts a hit or
    /// miss.
    #[inline]
    pub fn read_to_write<T: ObjectType>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, AccessError> {
        self.change(key, Count::Yes)
    }

    #[inline]
    fn change<T: ObjectType>(&mut self, key: Key<'_>, count: Count) -> Result<Option<&mut T>, AccessError> {
        let Some(found) = self.find(key, count)? else { return Ok(None) };
        found.touched().preserved().open().map(Some).ok_or(WrongType)
    }

    /// Borrows the object of type `T` at `key` mutably; creates an empty one if the key is absent.
    /// A command that then adds nothing must call [`View::remove_if_empty`].
    #[inline]
    pub fn write_or_insert<T: ObjectType + Default>(&mut self, key: Key<'_>) -> Result<&mut T, AccessError> {
        let place = match self.find(key, Count::No)? {
            Some(found) => Some(found.touched().preserved().occupied.place()),
            None => {
                let object = NewValue::Object(T::default().into_object());
                self.insert_new(key, Entry::new(key.bytes, object, None, self.access_context.access.fresh()))
            }
        };
        let shard = self.locked.get_mut(key.shard());
        let (Some(place), Some(shard)) = (place, shard) else {
            return Err(self.missed_lock.note());
        };
        let table = &mut shard.db_mut(self.index).table;
        let value = T::of_mut(table.object_mut(place).ok_or(WrongType)?).ok_or(WrongType)?;
        self.opened = Some(Opened { db: self.index, hash: key.hash, place, size: value.size() });
        Ok(value)
    }

    /// Returns true if the hash at `key` may have expired fields that must be removed. Counts no
    /// hit or miss, and does not update the access clock. O(1).
    #[inline]
    pub fn may_have_due_fields(&mut self, key: Key<'_>) -> bool {
        let (due_ms, removes) = (self.due_ms(), self.removes_due());
        removes
            && self
                .peek(key)
                .is_some_and(|entry| entry.part_deadline_ms().is_some_and(|at_ms| at_ms <= due_ms))
    }

    /// Updates the deadlines that the table stores for the hash at `key`, after deadlines of its
    /// fields have changed. O(1).
    pub fn note_field_deadlines(&mut self, key: Key<'_>) {
        if let Some(found) = self.found(key, Count::No) {
            // The table updates its deadlines when the borrow ends.
            drop(found.occupied.into_mut());
        }
    }

    /// Removes the key if it holds an empty collection of type `T`. Returns true if it was removed.
    pub fn remove_if_empty<T: ObjectType>(&mut self, key: Key<'_>) -> bool {
        let empty = matches!(self.write::<T>(key), Ok(Some(collection)) if collection.is_empty());
        if empty {
            drop(self.remove(key));
            // The same command created the key and removes it, so the creation is not reported.
            let never_seen = |access_events: &mut AccessEvent| matches!(access_events, AccessEvent::Created(created) if *created.key == *key.bytes);
            self.access_results.access_events.pop_if(never_seen);
        }
        empty
    }

    /// Stores a string at `key`; replaces a value of any type. O(bytes).
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, bytes: &[u8], expiry: Expiry) {
        self.set_value(key, stored(bytes), expiry);
    }

    /// Stores bytes that a command has composed at `key`; replaces a value of any type. OBJECT
    /// ENCODING calls them `raw`. O(1) for long strings, else O(bytes).
    pub fn set_raw_string(&mut self, key: Key<'_>, bytes: Vec<u8>, expiry: Expiry) {
        self.set_value(key, raw(bytes, &mut Vec::new()), expiry);
        if let Some(found) = self.found(key, Count::No) {
            found.occupied.into_mut().mark();
        }
    }

    /// Stores an integer as a string at `key`; replaces a value of any type. O(1).
    #[inline]
    pub fn set_int(&mut self, key: Key<'_>, number: i64, expiry: Expiry) {
        self.set_value(key, NewValue::Int(number), expiry);
    }

    /// Stores an object at `key`; replaces a value of any type. O(1).
    pub fn set_object(&mut self, key: Key<'_>, object: Object, expiry: Expiry) {
        self.set_value(key, NewValue::Object(object), expiry);
    }

    /// Stores a value at `key`; replaces a value of any type. Moves a replaced object to
    /// [`AccessResults::displaced`]. O(bytes stored inline).
    #[inline]
    pub fn set_value(&mut self, key: Key<'_>, value: NewValue<'_, Object>, expiry: Expiry) {
        if let Expiry::At(at_ms) = expiry {
            self.note_deadline(key, at_ms);
        }
        let Ok(found) = self.find(key, Count::No) else { return };
        let Some(found) = found else {
            let expiry_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
            self.insert_new(key, Entry::new(key.bytes, value, expiry_ms, self.access_context.access.fresh()));
            return;
        };
        let Found { keyspace, mut occupied, access_context, access_results, .. } = found.preserved();
        let entry = occupied.get();
        let old = SizeMark::of(&entry);
        let (had, old_access) = (entry.expiry_ms(), entry.access());
        let expiry_ms = match expiry {
            Expiry::Clear => None,
            Expiry::Keep => had,
            Expiry::At(at_ms) => Some(at_ms),
        };
        let access = access_context.overwritten(old_access, || access_results.draw());
        let new = SizeMark::of_new(&value);
        if had == expiry_ms && occupied.set_in_place(&value) {
            // Most writes of existing keys end here: only the value's bytes change.
            occupied.set_access(access);
            return self.resized(key.hash, old, new);
        }
        let mut entry = occupied.into_mut();
        if entry.object_mut().is_some() {
            let new = Entry::new(key.bytes, value, expiry_ms, access);
            access_results.displaced.push(keyspace.left(std::mem::replace(&mut *entry, new)));
        } else if had.is_some() == expiry_ms.is_some() {
            entry.set(value);
            entry.set_expiry_ms(expiry_ms);
            entry.set_access(access);
        } else {
            *entry = Entry::new(key.bytes, value, expiry_ms, access);
        }
        drop(entry);
        self.resized(key.hash, old, new);
    }

    /// Stores `entry` under its key, or replaces the present entry, which is moved to
    /// [`AccessResults::displaced`]. In both cases records the event that the key was created.
    /// O(1).
    pub fn replace(&mut self, key: Key<'_>, entry: KeyEntry) {
        if let Some(at_ms) = entry.expiry_ms() {
            self.note_deadline(key, at_ms);
        }
        match self.found(key, Count::No) {
            None => {
                self.insert_new(key, entry);
            }
            Some(found) => {
                let found = found.preserved();
                let (keyspace, db) = (found.keyspace, found.db);
                keyspace.on_replaced(db, key.hash, &entry);
                let new_mark = SizeMark::of(&entry);
                let old = std::mem::replace(&mut *found.occupied.into_mut(), entry);
                let old_mark = SizeMark::of(&old);
                found.access_results.displaced.push(keyspace.left(old));
                self.resized(key.hash, old_mark, new_mark);
                self.record_created(key);
            }
        }
    }

    /// Records the creation of a key, if [`AccessResults::wants_created`] is set. For commands that
    /// replace one key by another.
    #[inline]
    pub fn record_created(&mut self, key: Key<'_>) {
        if self.access_results.wants_created {
            self.access_results.record_created(self.index, key);
        }
    }

    /// Borrows the long string at `key` for changes in place; `None` if the key is absent or its
    /// value is not a long string.
    pub fn blob_mut(&mut self, key: Key<'_>) -> Option<&mut Blob> {
        let Found { occupied, db, hash, opened, .. } = self.found(key, Count::No)?.preserved();
        let place = occupied.place();
        let object = occupied.into_object_mut()?;
        let size = object.size();
        let Object::Blob(blob) = object else { return None };
        *opened = Some(Opened { db, hash, place, size });
        Some(blob)
    }

    /// Adds an entry for a key that is absent. Returns the entry's place in the database's table;
    /// `None` if the key's shard is not locked. O(1) amortised.
    #[inline]
    pub fn insert_new(&mut self, key: Key<'_>, entry: KeyEntry) -> Option<Place> {
        self.settle();
        if self.locked.get(key.shard()).is_none() {
            self.missed_lock.note();
            return None;
        }
        self.resized(key.hash, SizeMark::NONE, SizeMark::of(&entry));
        self.record_created(key);
        let shard = self.locked.get_mut(key.shard())?;
        Some(self.keyspace.insert(shard, self.index, key.hash, entry))
    }

    /// Removes the key from the keyspace. Returns its entry; `None` if the key is absent. O(1);
    /// dropping the entry may cost more.
    pub fn remove(&mut self, key: Key<'_>) -> Option<KeyEntry> {
        let keyspace = self.keyspace;
        self.take(key).map(|entry| keyspace.left(entry))
    }

    /// Removes the key from the database and returns its entry; `None` if the key is absent. The
    /// caller must store the entry elsewhere in the keyspace. O(1).
    pub fn take(&mut self, key: Key<'_>) -> Option<KeyEntry> {
        let found = self.found(key, Count::No)?.preserved();
        let entry = found.occupied.remove();
        self.resized(key.hash, SizeMark::of(&entry), SizeMark::NONE);
        Some(entry)
    }

    /// Removes the key like [`View::remove`], but also if it has expired, without an event. For
    /// commands whose empty result deletes the destination key, expired or not. O(1).
    pub fn remove_even_expired(&mut self, key: Key<'_>) -> Option<KeyEntry> {
        self.settle();
        let Some(shard) = self.locked.get_mut(key.shard()) else {
            self.missed_lock.note();
            return None;
        };
        let place = shard.db(self.index)?.table.find(key.position(), key.bytes)?;
        let lane = self.access_results.lane.as_deref();
        Some(self.keyspace.remove_at(lane, shard, (self.index, key.hash), place))
    }

    /// Borrows the key's entry like [`View::peek`], but also finds an expired key and does not
    /// remove it. O(1).
    pub fn peek_even_expired(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        self.settle();
        self.locked.get(key.shard())?.db(self.index)?.table.get(key.position(), key.bytes)
    }

    /// Returns the key's expiry in Unix milliseconds: `None` if the key is absent, `Some(None)` if
    /// it does not expire.
    pub fn expiry_ms(&mut self, key: Key<'_>) -> Option<Option<i64>> {
        self.peek(key).map(|entry| entry.expiry_ms())
    }

    /// Sets (Unix milliseconds) or clears the expiry of a key. Returns true if the key exists.
    pub fn set_expiry_ms(&mut self, key: Key<'_>, expiry_ms: Option<i64>) -> bool {
        let Some(found) = self.found(key, Count::No) else { return false };
        found.preserved().occupied.into_mut().set_expiry_ms(expiry_ms);
        if let Some(at_ms) = expiry_ms {
            self.note_deadline(key, at_ms);
        }
        true
    }

    /// Records that a key got a deadline under [`ExpiredAccess::RemoveOnAccess`]. A replica removes
    /// only those expired keys itself whose deadlines its own clients have set.
    #[inline]
    fn note_deadline(&mut self, key: Key<'_>, at_ms: i64) {
        if self.access_context.expired_access == ExpiredAccess::RemoveOnAccess {
            self.record_deadline(key, at_ms);
        }
    }

    #[cold]
    fn record_deadline(&mut self, key: Key<'_>, at_ms: i64) {
        let key = DbKey { db: self.index, key: key.bytes.into() };
        self.access_results.deadlines.push(Deadline { key, at_ms });
    }
}

impl Drop for View<'_> {
    #[inline]
    fn drop(&mut self) {
        self.settle();
    }
}

/// A flag that becomes true when a command accesses a key whose shard is not locked.
#[derive(Default)]
struct MissedLock(bool);

impl MissedLock {
    /// Records an access to a key whose shard is not locked. Returns the error for the command's
    /// reply.
    #[cold]
    fn note(&mut self) -> AccessError {
        self.0 = true;
        AccessError::Undeclared
    }
}

/// The way in which an access to a key is counted as a hit or miss.
#[derive(Clone, Copy)]
enum Count {
    /// The access is not counted, and a miss causes no event.
    No,
    /// The access is counted, and a miss causes an event.
    Yes,
    /// The access is counted, but a miss causes no event.
    Quietly,
}

impl Count {
    #[inline]
    fn as_number(self) -> u64 {
        u64::from(!matches!(self, Count::No))
    }
}

/// A key that was found in a view and has not expired, with the data for accesses to it.
struct Found<'a> {
    keyspace: &'a Keyspace,
    occupied: Occupied<'a, KeyEntry>,
    db: usize,
    hash: KeyHash,
    access_context: &'a AccessContext,
    access_results: &'a mut AccessResults,
    opened: &'a mut Option<Opened>,
}

impl<'a> Found<'a> {
    /// Prepares the found key's entry for a change or removal: keeps its present state for a
    /// snapshot walk that has not visited it yet.
    #[inline(always)]
    fn preserved(mut self) -> Self {
        if self.keyspace.snapshot().is_preserved_for() {
            self.keyspace.snapshot().keep(&mut self.occupied, self.db, self.hash);
        }
        self
    }

    /// Updates the found key's access clock, unless the client has set CLIENT NO-TOUCH.
    #[inline(always)]
    fn touched(self) -> Self {
        if self.access_context.touch { self.touched_always() } else { self }
    }

    /// Updates the found key's access clock, even under CLIENT NO-TOUCH.
    #[inline(always)]
    fn touched_always(mut self) -> Self {
        let old = self.occupied.get().access();
        let new = self.access_context.access.touched(old, || self.access_results.draw());
        if new != old {
            self.occupied.set_access(new);
        }
        self
    }

    /// Borrows the key's value mutably; `None` if it is not of type `T`. Stores the value's place
    /// and present size in the view, which later counts the new size.
    #[inline]
    fn open<T: ObjectType>(self) -> Option<&'a mut T> {
        let place = self.occupied.place();
        let value = T::of_mut(self.occupied.into_object_mut()?)?;
        *self.opened = Some(Opened { db: self.db, hash: self.hash, place, size: value.size() });
        Some(value)
    }

    #[inline]
    fn entry(self) -> Borrowed<'a, KeyEntry> {
        self.occupied.into_ref()
    }
}

impl AccessResults {
    /// Creates the empty results of a thread that runs commands on a keyspace; its random numbers
    /// depend on `seed`.
    pub fn of_thread(keyspace: &Keyspace, seed: u64) -> Self {
        Self { seed, lane: Some(keyspace.sizes().add_lane()), ..Self::default() }
    }

    /// Returns the counts and results so far and removes them from `self`. The counts start again
    /// from zero; the random numbers continue.
    pub fn take(&mut self) -> Self {
        let (seed, lane) = (self.seed, self.lane.take());
        let (wants_missed, wants_created) = (self.wants_missed, self.wants_created);
        std::mem::replace(self, Self { seed, lane, wants_missed, wants_created, ..Self::default() })
    }

    /// Records an expired key that an access has just removed.
    #[cold]
    fn note_expired(&mut self, expired: Expired) {
        self.expired_keys += 1;
        self.access_events.push(AccessEvent::Expired(expired));
    }

    /// Counts a read of a key that does not exist, and records an event if that is wanted. `count`
    /// can forbid either.
    #[inline]
    fn miss(&mut self, db: usize, key: Key<'_>, count: Count) {
        self.misses += count.as_number();
        if self.wants_missed && matches!(count, Count::Yes) {
            self.record_missed(db, key);
        }
    }

    #[cold]
    fn record_missed(&mut self, db: usize, key: Key<'_>) {
        self.access_events.push(AccessEvent::Missed(DbKey { db, key: key.bytes.into() }));
    }

    #[cold]
    fn record_created(&mut self, db: usize, key: Key<'_>) {
        self.access_events.push(AccessEvent::Created(DbKey { db, key: key.bytes.into() }));
    }

    /// Draws a uniform random number (SplitMix64, one step) for LFU's counter.
    fn draw(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::List;

    #[test]
    fn a_key_that_is_not_locked_is_refused_and_left_as_it_is() {
        let keyspace = Keyspace::new(1, [1, 2, 3, 4]);
        let (mut access_results, access_context) = (
            AccessResults::default(),
            AccessContext {
                now_ms: 0,
                touch: true,
                access: Access::Lru { clock_s: 0 },
                expired_access: ExpiredAccess::Remove,
            },
        );
        let [key, other] = [&b"key"[..], b"other"].map(|name| keyspace.hasher().key(name));
        let mut all = keyspace.lock_all_of([key.hash, other.hash].into_iter());
        View::new(&keyspace, &mut all, 0, access_context, &mut access_results).set_string(
            other,
            b"v",
            Expiry::Clear,
        );
        drop(all);
        type Use = fn(&mut View<'_>, Key<'_>) -> bool;
        let uses: &[Use] = &[
            |view, key| view.string(key).err() == Some(AccessError::Undeclared),
            |view, key| view.string_to_write(key).err() == Some(AccessError::Undeclared),
            |view, key| view.read::<List>(key).err() == Some(AccessError::Undeclared),
            |view, key| view.write::<List>(key).err() == Some(AccessError::Undeclared),
            |view, key| view.write_or_insert::<List>(key).err() == Some(AccessError::Undeclared),
            |view, key| view.get(key).is_none(),
            |view, key| view.entry_mut(key).is_none(),
            |view, key| view.remove(key).is_none(),
            |view, key| view.remove_even_expired(key).is_none(),
            |view, key| !view.contains(key) && !view.set_expiry_ms(key, Some(1)),
            |view, key| {
                view.set_string(key, b"w", Expiry::Clear);
                view.replace(key, Entry::new(key.bytes, NewValue::Int(1), None, 0));
                view.reread_string(key).is_none()
            },
        ];
        for (index, used) in uses.iter().enumerate() {
            let mut locked = keyspace.lock_one(key.hash);
            let mut view = View::new(&keyspace, &mut locked, 0, access_context, &mut access_results);
            assert!(!view.has_missed_lock() && view.get(key).is_none());
            assert!(!view.has_missed_lock(), "a key that is locked and absent");
            assert!(used(&mut view, other) && view.has_missed_lock(), "use {index}");
        }
        let mut locked = keyspace.lock_one(other.hash);
        let mut view = View::new(&keyspace, &mut locked, 0, access_context, &mut access_results);
        assert_eq!(view.string(other).ok().flatten().map(|string| string.len()), Some(1));
        drop(view);
        drop(locked);
        assert_eq!(keyspace.sizes().counts(0), keyspace.sizes_recounted(0));
    }
}

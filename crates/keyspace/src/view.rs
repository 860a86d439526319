//! A command's window on one database: only the keys whose shards are locked can be reached.
//!
//! Reading notices expired keys (and removes them), keeps the access clock and counts hits and misses;
//! the typed accessors answer WRONGTYPE in one place for all commands.

use structures::entry::{Entry, NewValue, View as EntryView};
use structures::table::{Borrowed, Place};

use crate::db::{Db, KeyEntry};
use crate::key::Key;
use crate::keyspace::{Keyspace, Locked};
use crate::object::{Blob, Object, ObjectType};
use crate::string::{Str, stored};

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// What a write does to a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key will not expire.
    Clear,
    /// As it was.
    Keep,
    /// At this Unix time in milliseconds.
    At(i64),
}

/// How accesses are noted in a key's 24-bit access clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The time of the last access: seconds, 24 bits.
    Lru {
        /// Now.
        clock_s: u32,
    },
    /// Redis' LFU field: 16 bits of minutes, 8 bits of a logarithmic counter.
    Lfu {
        /// Now, in minutes, 16 bits.
        clock_minutes: u32,
        /// `lfu-log-factor`.
        log_factor: u32,
        /// `lfu-decay-time`.
        decay_minutes: u32,
    },
}

/// The counter a new key starts with under LFU.
const LFU_INITIAL: u32 = 5;

impl Access {
    /// The access clock of a key created now.
    #[inline]
    pub fn fresh(self) -> u32 {
        match self {
            Access::Lru { clock_s } => clock_s & 0x00FF_FFFF,
            Access::Lfu { clock_minutes, .. } => (clock_minutes & 0xFFFF) << 8 | LFU_INITIAL,
        }
    }

    /// The counter of an LFU clock after the decay of the time since its last access.
    pub fn lfu_counter(self, access: u32) -> u32 {
        let Access::Lfu { clock_minutes, decay_minutes, .. } = self else { return 0 };
        let elapsed = clock_minutes.wrapping_sub(access >> 8) & 0xFFFF;
        let periods = if decay_minutes == 0 { 0 } else { elapsed / decay_minutes };
        (access & 0xFF).saturating_sub(periods)
    }

    /// The access clock after one more access; `draw` is a uniform random number.
    #[inline]
    fn touched(self, access: u32, draw: impl FnOnce() -> u32) -> u32 {
        match self {
            Access::Lru { clock_s } => clock_s & 0x00FF_FFFF,
            Access::Lfu { clock_minutes, log_factor, .. } => {
                let counter = self.lfu_counter(access);
                let base = counter.saturating_sub(LFU_INITIAL);
                let odds = f64::from(base) * f64::from(log_factor) + 1.0;
                let grows = counter < 255 && f64::from(draw()) / f64::from(u32::MAX) < 1.0 / odds;
                (clock_minutes & 0xFFFF) << 8 | (counter + u32::from(grows))
            }
        }
    }
}

/// What a thread counts while commands look at keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because their time was over.
    pub expired_keys: u64,
}

/// What is the same for all of a turn's commands.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Unix time in milliseconds.
    pub now_ms: i64,
    /// How accesses are noted; `None` leaves clocks alone (CLIENT NO-TOUCH).
    pub touch: bool,
    /// The access clock.
    pub access: Access,
}

/// One database, as far as its shards are locked. See the module's comment.
pub struct View<'k> {
    keyspace: &'k Keyspace,
    locked: Locked<'k>,
    index: usize,
    moment: Moment,
    tally: &'k mut Tally,
}

impl<'k> View<'k> {
    /// A view of database `index` on the locked shards.
    #[inline]
    pub fn new(
        keyspace: &'k Keyspace,
        locked: Locked<'k>,
        index: usize,
        moment: Moment,
        tally: &'k mut Tally,
    ) -> Self {
        Self { keyspace, locked, index, moment, tally }
    }

    /// The whole keyspace, for commands that visit shards one by one. A command that has locked keys
    /// must not lock more.
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// The selected database's number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Now, in Unix milliseconds: the same for all of a turn's commands.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.moment.now_ms
    }

    /// How accesses are noted.
    pub fn access(&self) -> Access {
        self.moment.access
    }

    /// Runs `work` on another database of the same locked shards (COPY, MOVE).
    pub fn in_db<T>(&mut self, index: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let own = std::mem::replace(&mut self.index, index);
        let result = work(self);
        self.index = own;
        result
    }

    /// The key's part of the database.
    #[inline]
    fn db(&mut self, key: Key<'_>) -> &mut Db {
        self.locked.shard_mut(key.shard()).db_mut(self.index)
    }

    /// Finds a key that is not expired; an expired one is removed.
    #[inline]
    fn live(&mut self, key: Key<'_>) -> Option<Place> {
        let now_ms = self.moment.now_ms;
        let db = self.db(key);
        let place = db.table.find(key.position(), key.bytes)?;
        if db.table.at(place).expiry_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            drop(db.table.remove(place));
            self.tally.expired_keys += 1;
            return None;
        }
        Some(place)
    }

    /// Finds a key for reading: counts the hit or miss and notes the access.
    #[inline]
    fn read_place(&mut self, key: Key<'_>) -> Option<Place> {
        let place = self.live(key);
        match place {
            Some(place) => {
                self.tally.hits += 1;
                self.note_access(key, place);
            }
            None => self.tally.misses += 1,
        }
        place
    }

    #[inline]
    fn note_access(&mut self, key: Key<'_>, place: Place) {
        if !self.moment.touch {
            return;
        }
        let access = self.moment.access;
        let draw = self.tally.hits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let table = &mut self.db(key).table;
        let old = table.at(place).access();
        let new = access.touched(old, || draw as u32);
        if new != old {
            table.at_mut(place).set_access(new);
        }
    }

    /// The key's entry, for reading; counts a hit or miss, notes the access. O(1).
    #[inline]
    pub fn get(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        let place = self.read_place(key)?;
        Some(self.db(key).table.at(place))
    }

    /// The key's entry without counting or noting anything: for commands about keys rather than values.
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<Borrowed<'_, KeyEntry>> {
        let place = self.live(key)?;
        Some(self.db(key).table.at(place))
    }

    /// Whether the key exists; counts nothing.
    pub fn contains(&mut self, key: Key<'_>) -> bool {
        self.live(key).is_some()
    }

    /// Notes an access without reading (TOUCH); whether the key exists.
    pub fn touch(&mut self, key: Key<'_>) -> bool {
        self.read_place(key).is_some()
    }

    /// The string at `key`, counted as a read.
    #[inline]
    pub fn string(&mut self, key: Key<'_>) -> Result<Option<Str<'_>>, WrongType> {
        match self.get(key) {
            None => Ok(None),
            Some(entry) => Str::of(entry.view()).map(Some).ok_or(WrongType),
        }
    }

    /// The string at `key` for a command that will write it: not counted as a read.
    #[inline]
    pub fn string_to_write(&mut self, key: Key<'_>) -> Result<Option<Str<'_>>, WrongType> {
        match self.peek(key) {
            None => Ok(None),
            Some(entry) => Str::of(entry.view()).map(Some).ok_or(WrongType),
        }
    }

    /// The object of type `T` at `key`, counted as a read.
    #[inline]
    pub fn read<T: ObjectType>(&mut self, key: Key<'_>) -> Result<Option<&T>, WrongType> {
        match self.get(key) {
            None => Ok(None),
            Some(entry) => match entry.view() {
                EntryView::Object(object) => T::of(object).map(Some).ok_or(WrongType),
                EntryView::Bytes(_) | EntryView::Int(_) => Err(WrongType),
            },
        }
    }

    /// The object of type `T` at `key`, to change; `None` where the key is absent.
    #[inline]
    pub fn write<T: ObjectType>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, WrongType> {
        let Some(place) = self.live(key) else { return Ok(None) };
        self.note_access(key, place);
        let object = self.db(key).table.object_mut(place).ok_or(WrongType)?;
        T::of_mut(object).map(Some).ok_or(WrongType)
    }

    /// The object of type `T` at `key`, created empty where the key is absent. A command that then adds
    /// nothing calls [`View::remove_if_empty`].
    #[inline]
    pub fn write_or_insert<T: ObjectType + Default>(&mut self, key: Key<'_>) -> Result<&mut T, WrongType> {
        let place = match self.live(key) {
            Some(place) => {
                self.note_access(key, place);
                place
            }
            None => {
                let object = NewValue::Object(T::default().into_object());
                let entry = Entry::new(key.bytes, object, None, self.moment.access.fresh());
                self.insert_new(key, entry);
                self.db(key)
                    .table
                    .find(key.position(), key.bytes)
                    .expect("the key was inserted in the line above")
            }
        };
        let object = self.db(key).table.object_mut(place).ok_or(WrongType)?;
        T::of_mut(object).ok_or(WrongType)
    }

    /// Removes the key if its collection of type `T` is empty; whether it did.
    pub fn remove_if_empty<T: ObjectType>(&mut self, key: Key<'_>) -> bool {
        let empty = matches!(self.write::<T>(key), Ok(Some(collection)) if collection.is_empty());
        if empty {
            drop(self.remove(key));
        }
        empty
    }

    /// Stores a string, whatever was there. O(bytes).
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, bytes: &[u8], expiry: Expiry) {
        self.set_value(key, stored(bytes), expiry);
    }

    /// Stores an integer as a string, whatever was there. O(1).
    pub fn set_int(&mut self, key: Key<'_>, number: i64, expiry: Expiry) {
        self.set_value(key, NewValue::Int(number), expiry);
    }

    /// Stores an object, whatever was there.
    pub fn set_object(&mut self, key: Key<'_>, object: Object, expiry: Expiry) {
        self.set_value(key, NewValue::Object(object), expiry);
    }

    #[inline]
    fn set_value(&mut self, key: Key<'_>, value: NewValue<'_, Object>, expiry: Expiry) {
        let fresh = self.moment.access.fresh();
        let Some(place) = self.live(key) else {
            let expiry_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
            return self.insert_new(key, Entry::new(key.bytes, value, expiry_ms, fresh));
        };
        let mut entry = self.db(key).table.at_mut(place);
        let expiry_ms = match expiry {
            Expiry::Clear => None,
            Expiry::Keep => entry.expiry_ms(),
            Expiry::At(at_ms) => Some(at_ms),
        };
        if entry.expiry_ms().is_some() == expiry_ms.is_some() {
            entry.set(value);
            entry.set_expiry_ms(expiry_ms);
            entry.set_access(fresh);
        } else {
            *entry = Entry::new(key.bytes, value, expiry_ms, fresh);
        }
    }

    /// The long string at `key`, to change in place; `None` where the key is absent or the string short.
    pub fn blob_mut(&mut self, key: Key<'_>) -> Option<&mut Blob> {
        let place = self.live(key)?;
        match self.db(key).table.object_mut(place) {
            Some(Object::Blob(blob)) => Some(blob),
            _ => None,
        }
    }

    /// Adds an entry for a key that is absent.
    #[inline]
    pub fn insert_new(&mut self, key: Key<'_>, entry: KeyEntry) {
        let keyspace = self.keyspace;
        self.db(key).insert(key.hash, entry, keyspace.hasher());
    }

    /// Takes the key out of the database. O(1); dropping the result may cost more.
    pub fn remove(&mut self, key: Key<'_>) -> Option<KeyEntry> {
        let place = self.live(key)?;
        Some(self.db(key).table.remove(place))
    }

    /// The key's expiry: `None` where the key is absent, `Some(None)` where it does not expire.
    pub fn expiry_ms(&mut self, key: Key<'_>) -> Option<Option<i64>> {
        self.peek(key).map(|entry| entry.expiry_ms())
    }

    /// Sets or clears the expiry of a key; whether the key exists.
    pub fn set_expiry_ms(&mut self, key: Key<'_>, expiry_ms: Option<i64>) -> bool {
        let Some(place) = self.live(key) else { return false };
        self.db(key).table.at_mut(place).set_expiry_ms(expiry_ms);
        true
    }
}

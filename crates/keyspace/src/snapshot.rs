//! The snapshot: a walk over the keyspace in its state at one moment. It takes small steps, while
//! the keyspace continues to change. RDB files and the bases of append-only files are written with
//! it.
//!
//! ```text
//!   exclusive owner        starts a walk from the present state: one walk at a time
//!   walkers, any number    part by part (a database's keys in one shard), in short locked steps:
//!                            visited ── cursor ── ahead, where marked entries are skipped
//!   writers                before they change or remove an unmarked entry ahead: they hand a copy
//!                            over to the walk ([`Snapshot::keep`]); new entries ahead get a mark
//! ```
//! The marks are those of `structures::table::walk`, which explains why they are sufficient. Each
//! shard has a cursor, which is read and moved only under the shard's lock. The cursor is the
//! progress of the walk in the shard: its high bits are the *slot* of a database, its low bits the
//! point within the database's table. Slots number the databases with keys in the order in which
//! they are walked. A slot belongs to the tables: SWAPDB moves it with them. The snapshot therefore
//! has each database under its number at the start, even if SWAPDB has moved it since.
//!
//! **Big values** are not copied. At the first change of such a value, or when the walk reaches it,
//! a walk of its state is started. From then on walkers read the value in pieces (`crate::parts`),
//! even if it moves to another key or database. If the value is removed from the keyspace, the walk
//! becomes its owner. FLUSHDB passes its tables to the walk, which frees each of them (the keys of
//! a database in one shard) after it has visited its keys. FLUSHALL does the same or abandons the
//! walk ([`OnFlush`]).
//!
//! **Bounds.** Copies that were handed over and not yet visited are counted
//! ([`Snapshot::handed_over_len_bytes`]). Above half of [`HANDED_OVER_BYTES_MAX`], walkers visit
//! them first. At the full limit writers wait until there are fewer.
//!
//! **End.** After all parts are walked, writers hand over no more copies, so the remaining work is
//! finite. [`Snapshot::next_work`] returns it, and then [`Work::Done`]. An abandoned walk continues
//! to clear marks, and nothing is handed over to it.
//!
//! Lock order: the locks here come after those of shards, and no two of them are held together.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crossbeam_utils::CachePadded;
use structures::entry::View;
use structures::lock::{Guard, Lock};
use structures::table::{Occupied, Place, Table, WalkPoint};
use structures::walk_state::{PositionOf, WalkState};

use crate::db::{DbSize, Shard};
use crate::freeing::{memory_of, memory_of_keys};
use crate::key::{Hasher, KeyHash, SHARD_COUNT, position_of, shard_of};
use crate::object::{KeyEntry, Object};
use crate::parts::{Head, ValuePart};

/// The bytes of handed-over copies at which writers must wait until the threads that write the
/// snapshot have visited some.
pub const HANDED_OVER_BYTES_MAX: usize = 64 << 20;
/// The bytes of handed-over copies above which the threads that write the snapshot visit these
/// copies first.
const HANDED_OVER_BYTES_MUCH: usize = HANDED_OVER_BYTES_MAX / 2;

/// The snapshot's phase while no walk is in progress.
const IDLE: u32 = 0;
/// The snapshot's phase during a walk for which writers keep copies of changed entries.
const KEEPING: u32 = 1;
/// The snapshot's phase during an abandoned walk, which only clears marks.
const CLEARING: u32 = 2;

/// The slot of a database that had no key at the start of the snapshot's walk, or that was flushed
/// after it.
const NO_SLOT: u32 = u32::MAX;
/// The number of low bits of a shard's cursor that are the snapshot's point in a table. The bits
/// above are the slot: the database's place in the walk.
const POINT_BITS: u32 = 48;
/// The number of lists for the copies of entries that writers hand over to the snapshot. Each has a
/// lock, so that writers rarely contend.
const HAND_OVER_LANES: usize = 16;
/// The most buckets of a table that the snapshot visits under one lock: some ten microseconds if
/// they are empty.
const STEP_BUCKETS_MAX: usize = 256;

/// The effect of a flush of all data (FLUSHALL) on a snapshot walk in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFlush {
    /// The snapshot walk is abandoned: as in Redis, a flush of all data ends a save.
    Abandon,
    /// The snapshot walk becomes the owner of the flushed keys and visits all of them. Then it
    /// frees their memory.
    Continue,
}

/// A walk over the keyspace in its state at one moment, or the state without a walk. See the
/// module's comment.
pub struct Snapshot {
    /// The phase of the walk: [`IDLE`], [`KEEPING`] or [`CLEARING`]. The exclusive owner of the
    /// keyspace sets it at the start of a walk. Later [`abandon`](Self::abandon), a flush and
    /// [`end`](Self::end) change it.
    phase: CachePadded<AtomicU32>,
    /// True if the walk continues after a flush of all data. Only the exclusive owner of the
    /// keyspace writes and reads it.
    continues_after_flush: AtomicBool,
    /// The progress of the snapshot's walk in each shard. Changed under the shard's lock.
    cursors: Box<[AtomicU64]>,
    /// The slot (place in the order of the snapshot's walk) of each database, by its present
    /// number. Only the exclusive owner of the keyspace writes it.
    slot_of_db: Box<[AtomicU32]>,
    /// The present number of the database that has the tables of each slot (place in the order of
    /// the snapshot's walk).
    db_of_slot: Box<[AtomicU32]>,
    /// The number and size, at the start of the snapshot's walk, of the database of each slot
    /// (place in the walk's order).
    dbs: Lock<Vec<(usize, DbSize)>>,
    next_part: AtomicUsize,
    finished_parts: AtomicUsize,
    /// The number of [`Work`] items, except parts, that the threads writing the snapshot have taken
    /// and not finished.
    works: AtomicUsize,
    lanes: Box<[CachePadded<Lock<Vec<HandedOver>>>]>,
    /// The bytes of copies of changed entries, handed over by writers, and of copies made by walks
    /// of big values, that the snapshot has not visited yet.
    handed_over_len_bytes: Arc<AtomicUsize>,
    handed_over_len_bytes_peak: AtomicUsize,
    /// The bytes of values and tables that were removed from the keyspace and are stored only for
    /// the snapshot's walk.
    left_len_bytes: AtomicUsize,
    /// The bytes of the copies and encoded entries that the threads writing the snapshot hold.
    walker_len_bytes: Arc<AtomicUsize>,
    bigs: Lock<Bigs>,
    hasher: Hasher,
    position_of: PositionOf,
    flushed: Lock<Vec<Flushed>>,
    /// True if all databases were flushed since the last call of
    /// [`take_flushed_all`](Self::take_flushed_all).
    flushed_all: AtomicBool,
}

/// The copy of an entry in its state at the start of the snapshot's walk, made before a writer
/// changed the entry.
pub struct HandedOver {
    slot: u32,
    entry: KeyEntry,
    len_bytes: usize,
}

/// A part of the snapshot's walk, visited by one thread at a time: a database's keys in one shard.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    slot: usize,
    shard: usize,
}

impl Part {
    /// Returns the number of the shard that has the part's keys.
    pub fn shard(self) -> usize {
        self.shard
    }
}

/// The keys of a database in one shard that was flushed before the snapshot's walk had visited all
/// of them.
pub struct Flushed {
    slot: u32,
    point: WalkPoint,
    keys: Table<KeyEntry>,
    /// The approximate memory of the flushed keys, in bytes.
    len_bytes: usize,
}

/// The big values of a snapshot's walk that wait to be read or are being read in pieces.
#[derive(Default)]
struct Bigs {
    next_ticket: u32,
    waiting: Vec<BigValue>,
    /// The tickets and places of all big values that wait to be read or are being read for the
    /// snapshot. A ticket identifies a value.
    places: Vec<(u32, BigPlace)>,
}

impl Bigs {
    fn place_mut(&mut self, ticket: u32) -> Option<&mut (u32, BigPlace)> {
        self.places.iter_mut().find(|(number, _)| *number == ticket)
    }
}

/// A big value that a thread reads in pieces for the snapshot.
#[derive(Debug)]
pub struct BigValue {
    ticket: u32,
    slot: u32,
    /// The key's name at the start of the snapshot's walk.
    pub key: Box<[u8]>,
    /// The key's expiry at the start of the snapshot's walk, in Unix milliseconds; `None` if it has
    /// none.
    pub expiry_ms: Option<i64>,
    /// The key's access clock when the snapshot's walk of the value was started.
    pub access: u32,
    /// The description of the big value, to be written to the snapshot before its pieces.
    pub head: Head,
}

/// The place of a key: the number of its database, its hash and its name.
type KeyPlace = (usize, KeyHash, Box<[u8]>);

/// A big value that was removed from the keyspace and is stored only for the snapshot's walk.
struct RemovedObject {
    object: Object,
    /// The bytes of this value that are part of [`Snapshot::left_len_bytes`]. That is the sum for
    /// all values and tables that were removed from the keyspace but are kept for the walk. 0 if
    /// the value is counted with its flushed table.
    len_bytes: usize,
}

/// The place where a big value of the snapshot's walk is stored now.
enum BigPlace {
    /// The big value is in the keyspace, at this key.
    Key(KeyPlace),
    /// The big value is outside the keyspace, owned by the snapshot's walk.
    Owned(RemovedObject),
    /// The big value is outside the keyspace, in use by a thread that writes the snapshot.
    Taken,
}

/// The result of a search for a big value of the snapshot's walk.
enum Sought {
    /// The place in the keyspace where the big value was when it was searched. It may be moved
    /// before the shard is locked, so the caller checks again.
    Key(KeyPlace),
    /// The big value is outside the keyspace, and the caller owns it now.
    Owned(RemovedObject),
    /// The place of the big value is not known, or another thread that writes the snapshot is using
    /// the value.
    Gone,
}

/// The next work of a thread that writes the snapshot.
pub enum Work {
    /// Copies of changed entries, handed over by writers, for the snapshot to visit.
    HandedOver(Vec<HandedOver>),
    /// A big value for the snapshot to visit in pieces. The thread takes no other work before the
    /// last piece.
    Big(BigValue),
    /// Keys of a flushed database in one shard, for the snapshot to visit.
    Flushed(Flushed),
    /// A part of the keyspace (a database's keys in one shard) to visit.
    Part(Part),
    /// No work at present: other threads are visiting the rest of the snapshot.
    Wait,
    /// No work: the snapshot has visited everything.
    Done,
}

/// The outcome of one step of a snapshot's walk in a part or in a big value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// The step was made, and there is more to visit.
    More,
    /// The step was the last one: everything was visited.
    Finished,
    /// No step was made, because a busy script holds the shard. It must be tried again later.
    Busy,
}

impl Snapshot {
    /// Creates the state of the snapshot of a keyspace with `db_count` databases, without a walk.
    pub(crate) fn new(db_count: usize, hasher: &Hasher) -> Self {
        let hasher = hasher.clone();
        let no_slots = || (0..db_count).map(|_| AtomicU32::new(NO_SLOT)).collect();
        Self {
            phase: CachePadded::new(AtomicU32::new(IDLE)),
            continues_after_flush: AtomicBool::new(false),
            cursors: (0..SHARD_COUNT).map(|_| AtomicU64::new(0)).collect(),
            slot_of_db: no_slots(),
            db_of_slot: no_slots(),
            dbs: Lock::new(Vec::new()),
            next_part: AtomicUsize::new(0),
            finished_parts: AtomicUsize::new(0),
            works: AtomicUsize::new(0),
            lanes: (0..HAND_OVER_LANES).map(|_| CachePadded::new(Lock::new(Vec::new()))).collect(),
            handed_over_len_bytes: Arc::default(),
            handed_over_len_bytes_peak: AtomicUsize::new(0),
            left_len_bytes: AtomicUsize::new(0),
            walker_len_bytes: Arc::default(),
            bigs: Lock::new(Bigs::default()),
            hasher: hasher.clone(),
            position_of: Arc::new(move |member| hasher.hash_member(member)),
            flushed: Lock::new(Vec::new()),
            flushed_all: AtomicBool::new(false),
        }
    }

    /// Starts a walk over the keyspace for a snapshot. `sizes` are the present sizes of all
    /// databases, in the order of their numbers. The caller must own the keyspace exclusively.
    pub(crate) fn fix(&self, sizes: Vec<DbSize>, on_flush: OnFlush) {
        let mut dbs = self.dbs.lock();
        dbs.clear();
        for (db, size) in sizes.into_iter().enumerate() {
            let slot = if size.keys > 0 { dbs.len() as u32 } else { NO_SLOT };
            self.slot_of_db[db].store(slot, Relaxed);
            if size.keys > 0 {
                self.db_of_slot[dbs.len()].store(db as u32, Relaxed);
                dbs.push((db, size));
            }
        }
        self.cursors.iter().for_each(|cursor| cursor.store(0, Relaxed));
        for counter in [&self.next_part, &self.finished_parts, &self.works, &self.handed_over_len_bytes_peak]
        {
            counter.store(0, Relaxed);
        }
        self.continues_after_flush.store(on_flush == OnFlush::Continue, Relaxed);
        // Relaxed: the end of the exclusive ownership publishes the phase to every thread that
        // locks a shard later.
        self.phase.store(KEEPING, Relaxed);
    }

    /// Returns true while a snapshot's walk is in progress, even if it was abandoned. Code that
    /// moves an entry to another key or database must then report it, because the walk stores the
    /// places of big values.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.phase.load(Relaxed) != IDLE
    }

    /// Returns true while a snapshot walk is in progress and not abandoned. Writers must then keep
    /// the state of entries for the walk before they change them.
    #[inline]
    pub fn is_preserved_for(&self) -> bool {
        self.phase.load(Relaxed) == KEEPING
    }

    /// Returns the numbers and sizes of the databases that had keys at the start of the snapshot
    /// walk, in the order in which it visits them.
    pub fn dbs(&self) -> Vec<(usize, DbSize)> {
        self.dbs.lock().clone()
    }

    /// Abandons the snapshot's walk, so that its result will be incomplete. From now on writers
    /// hand over no copies of entries, and the threads that write the snapshot only clear the marks
    /// of entries.
    pub fn abandon(&self) {
        // Relaxed: it does no harm if a writer still keeps a copy. If the walk ends at the same
        // time, the exchange fails and the phase remains `IDLE`.
        let _ = self.phase.compare_exchange(KEEPING, CLEARING, Relaxed, Relaxed);
    }

    /// Records that all databases are about to be flushed, and abandons the snapshot's walk unless
    /// [`OnFlush`] says that it continues. The caller must own the keyspace exclusively.
    pub(crate) fn note_flushed_all(&self) {
        self.flushed_all.store(true, Relaxed);
        if !self.continues_after_flush.load(Relaxed) {
            self.abandon();
        }
    }

    /// Returns true if all databases were flushed since the last call of this function.
    pub fn take_flushed_all(&self) -> bool {
        self.flushed_all.load(Relaxed) && self.flushed_all.swap(false, Relaxed)
    }

    /// Returns the memory, in bytes, of copies of entries that writers have handed over to the
    /// snapshot and that it has not visited yet.
    #[inline]
    pub fn handed_over_len_bytes(&self) -> usize {
        self.handed_over_len_bytes.load(Relaxed)
    }

    /// Returns the approximate bytes in memory for the snapshot's walk: copies, encoded keys, and
    /// values and tables that were removed from the keyspace. They do not count towards
    /// `maxmemory`.
    ///
    /// Memory is included from before its allocation until after its release. Otherwise other
    /// threads could evict keys for it.
    pub fn held_len_bytes(&self) -> usize {
        self.handed_over_len_bytes() + self.left_len_bytes.load(Relaxed) + self.walker_len_bytes.load(Relaxed)
    }

    /// Borrows the count of the bytes that the threads writing the snapshot hold. They add to it
    /// with [`CopiedBytes`].
    ///
    /// [`CopiedBytes`]: structures::walk_state::CopiedBytes
    pub fn walker_len_bytes(&self) -> &Arc<AtomicUsize> {
        &self.walker_len_bytes
    }

    /// Returns the highest value of [`handed_over_len_bytes`](Self::handed_over_len_bytes) since
    /// the start of the last walk for a snapshot.
    pub fn handed_over_len_bytes_peak(&self) -> usize {
        self.handed_over_len_bytes_peak.load(Relaxed)
    }

    /// Returns true if writers have handed over so many copies to the snapshot that they must wait.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.is_preserved_for() && self.handed_over_len_bytes() >= HANDED_OVER_BYTES_MAX
    }

    // Functions for writers. They run under the lock of the key's shard.

    /// Keeps the present state of an entry for the snapshot's walk, before the entry is changed or
    /// removed. Does nothing if the walk has passed the entry or its state is kept already. O(1),
    /// or O(bytes) up to a fixed size.
    #[cold]
    pub(crate) fn keep(&self, occupied: &mut Occupied<'_, KeyEntry>, db: usize, hash: KeyHash) {
        let Some((slot, point)) = self.point_at(db, shard_of(hash)) else { return };
        occupied.claim_with(position_of(hash), point, |entry| self.keep_claimed(entry, slot, (db, hash)));
    }

    /// Keeps the state of an entry like [`keep`](Self::keep), for a caller that knows that the
    /// entry has no mark. Returns true if the snapshot's walk has not reached the entry: the caller
    /// must then mark it.
    #[cold]
    pub(crate) fn keep_unmarked(&self, entry: &mut KeyEntry, db: usize, hash: KeyHash) -> bool {
        let Some((slot, point)) = self.point_at(db, shard_of(hash)) else { return false };
        let is_ahead = point.is_before(position_of(hash));
        if is_ahead {
            self.keep_claimed(entry, slot, (db, hash));
        }
        is_ahead
    }

    /// Returns the slot (place in the order of the snapshot's walk) of database `db`, and the
    /// walk's point in its table in this shard. Returns `None` if the walk visits no key there: the
    /// database had none at the start, or was flushed since.
    pub(crate) fn point_at(&self, db: usize, shard: usize) -> Option<(u32, WalkPoint)> {
        let slot = self.slot_of_db[db].load(Relaxed);
        (slot != NO_SLOT).then(|| (slot, point_of(slot, self.cursors[shard].load(Relaxed))))
    }

    fn keep_claimed(&self, entry: &mut KeyEntry, slot: u32, place: (usize, KeyHash)) {
        match self.begin_big(entry) {
            Some(begun) => {
                let at = BigPlace::Key((place.0, place.1, entry.key().into()));
                self.add_big(begun, slot, entry, at);
            }
            None => self.hand_over(slot, entry),
        }
    }

    fn hand_over(&self, slot: u32, entry: &KeyEntry) {
        let len_bytes = memory_of(entry);
        let sum_bytes = self.handed_over_len_bytes.fetch_add(len_bytes, Relaxed) + len_bytes;
        if sum_bytes > self.handed_over_len_bytes_peak.load(Relaxed) {
            self.handed_over_len_bytes_peak.fetch_max(sum_bytes, Relaxed);
        }
        let entry = entry.duplicate(entry.key(), entry.access());
        let lane = entry.key().iter().fold(0, |sum, &byte| sum ^ usize::from(byte)) % HAND_OVER_LANES;
        self.lanes[lane].lock().push(HandedOver { slot, entry, len_bytes });
    }

    /// Starts the snapshot's walk of an entry's value, if the value is big enough to be read in
    /// pieces. Returns the ticket that identifies the value, and its head. Else returns `None`.
    fn begin_big(&self, entry: &mut KeyEntry) -> Option<(u32, Head)> {
        let object = entry.object_mut().filter(|object| object.is_piecewise())?;
        let ticket = {
            let mut bigs = self.bigs.lock();
            bigs.next_ticket = bigs.next_ticket.wrapping_add(1);
            bigs.next_ticket
        };
        let walk_state = WalkState {
            ticket,
            position_of: Arc::clone(&self.position_of),
            copied_len_bytes: Arc::clone(&self.handed_over_len_bytes),
        };
        Some((ticket, object.begin_parts(walk_state)?))
    }

    fn add_big(&self, begun: (u32, Head), slot: u32, entry: &KeyEntry, place: BigPlace) {
        let ((ticket, head), key) = (begun, Box::<[u8]>::from(entry.key()));
        let (expiry_ms, access) = (entry.expiry_ms(), entry.access());
        let mut bigs = self.bigs.lock();
        bigs.places.push((ticket, place));
        bigs.waiting.push(BigValue { ticket, slot, key, expiry_ms, access, head });
    }

    /// Marks an entry that was just inserted, so that the snapshot's walk skips it. Updates the
    /// stored place of a big value that the entry holds.
    #[cold]
    pub(crate) fn inserted(&self, shard: &mut Shard, (db, hash): (usize, KeyHash), place: Place) {
        let table = &mut shard.db_mut(db).table;
        if let Some((_, point)) = self.point_at(db, shard_of(hash))
            && self.is_preserved_for()
        {
            table.mark_added(place, position_of(hash), point);
        }
        self.on_replaced(db, hash, &table.at(place));
    }

    /// Updates the stored place of a big value of the snapshot's walk, if `entry` holds one. The
    /// entry is about to be stored under the key with this hash in database `db`.
    #[cold]
    pub(crate) fn on_replaced(&self, db: usize, hash: KeyHash, entry: &KeyEntry) {
        if let Some(ticket) = ticket_of(entry) {
            let mut bigs = self.bigs.lock();
            if let Some((_, place)) = bigs.place_mut(ticket) {
                *place = BigPlace::Key((db, hash, entry.key().into()));
            }
        }
    }

    /// Moves the object of an entry that was removed from the keyspace to the snapshot's walk, if
    /// it is one of the walk's big values. The entry gets an empty value of the same type.
    #[cold]
    pub(crate) fn left(&self, entry: &mut KeyEntry) {
        let Some(ticket) = ticket_of(entry) else { return };
        let mut bigs = self.bigs.lock();
        if let Some((_, place)) = bigs.place_mut(ticket)
            && let Some(object) = take_object(entry)
        {
            let len_bytes = object.memory_usage();
            self.left_len_bytes.fetch_add(len_bytes, Relaxed);
            *place = BigPlace::Owned(RemovedObject { object, len_bytes });
        }
    }

    /// Exchanges the slots (places in the snapshot's walk) of two databases whose tables were
    /// exchanged (SWAPDB). The caller must own the keyspace exclusively.
    pub(crate) fn swapped(&self, a: usize, b: usize) {
        let slots = [b, a].map(|db| self.slot_of_db[db].load(Relaxed));
        for (db, slot) in [a, b].into_iter().zip(slots) {
            self.slot_of_db[db].store(slot, Relaxed);
            if slot != NO_SLOT {
                self.db_of_slot[slot as usize].store(db as u32, Relaxed);
            }
        }
        for (_, place) in &mut self.bigs.lock().places {
            if let BigPlace::Key((db, ..)) = place {
                *db = if *db == a {
                    b
                } else if *db == b {
                    a
                } else {
                    *db
                };
            }
        }
    }

    /// Returns the places of the snapshot's big values in these databases, so that FLUSHDB can
    /// remove them first. The caller must own the keyspace exclusively.
    pub(crate) fn bigs_within(&self, dbs: &std::ops::Range<usize>) -> Vec<KeyPlace> {
        let bigs = self.bigs.lock();
        let here = bigs.places.iter().filter_map(|(_, place)| match place {
            BigPlace::Key(at) if dbs.contains(&at.0) => Some(at.clone()),
            _ => None,
        });
        here.collect()
    }

    /// Moves the keys that a flush removed from a database in one shard to the snapshot's walk.
    /// Returns the table of keys if the walk needs none of them. The caller must own the keyspace
    /// exclusively.
    pub(crate) fn take_flushed(
        &self,
        db: usize,
        shard: usize,
        keys: Table<KeyEntry>,
    ) -> Option<Table<KeyEntry>> {
        match self.point_at(db, shard) {
            Some((slot, point)) if point != WalkPoint::END => {
                let len_bytes = memory_of_keys(&keys);
                self.left_len_bytes.fetch_add(len_bytes, Relaxed);
                self.flushed.lock().push(Flushed { slot, point, keys, len_bytes });
                None
            }
            _ => Some(keys),
        }
    }

    /// Removes a flushed database from the snapshot's walk, which therefore does not visit keys
    /// that are added later. The caller must own the keyspace exclusively.
    pub(crate) fn forget(&self, db: usize) {
        let slot = self.slot_of_db[db].swap(NO_SLOT, Relaxed);
        if slot != NO_SLOT {
            self.db_of_slot[slot as usize].store(NO_SLOT, Relaxed);
        }
    }

    // Functions for walkers.

    /// Returns the number that the database of `slot` (a place in the snapshot's walk) had at the
    /// start of the walk.
    fn db_at_point(&self, slot: u32) -> usize {
        self.dbs.lock()[slot as usize].0
    }

    /// Returns the next work of a thread that writes the snapshot. The thread must finish this
    /// work. The thread may be inside or outside the keyspace's gate.
    pub fn next_work(&self) -> Work {
        // `works` is raised before the queues are read: an item that a walker has taken from a
        // queue must not be missing in it.
        self.works.fetch_add(1, SeqCst);
        let (work, all_walked) = self.take_work();
        if let Work::HandedOver(_) | Work::Big(_) | Work::Flushed(_) = work {
            return work;
        }
        let others = self.works.fetch_sub(1, SeqCst) - 1;
        if matches!(work, Work::Wait) && all_walked && others == 0 { Work::Done } else { work }
    }

    /// Takes the next work of a thread that writes the snapshot. The second result is true if all
    /// parts of the keyspace had been visited before.
    fn take_work(&self) -> (Work, bool) {
        let parts = self.dbs.lock().len() * SHARD_COUNT;
        // Acquire: makes copies that were handed over before the parts were finished visible below.
        let finished = self.finished_parts.load(Acquire);
        let all_walked = finished == parts;
        if all_walked || self.handed_over_len_bytes() > HANDED_OVER_BYTES_MUCH {
            let handed_over = self.take_handed_over();
            if !handed_over.is_empty() {
                return (Work::HandedOver(handed_over), all_walked);
            }
        }
        if let Some(big) = self.bigs.lock().waiting.pop() {
            return (Work::Big(big), all_walked);
        }
        if let Some(flushed) = self.flushed.lock().pop() {
            return (Work::Flushed(flushed), all_walked);
        }
        loop {
            let next = self.next_part.load(Relaxed);
            // The parts of a slot start when all earlier slots are finished, because a shard has
            // one cursor.
            if next >= parts || finished < next / SHARD_COUNT * SHARD_COUNT {
                return (Work::Wait, all_walked);
            }
            if self.next_part.compare_exchange(next, next + 1, Relaxed, Relaxed).is_ok() {
                let part = Part { slot: next / SHARD_COUNT, shard: next % SHARD_COUNT };
                return (Work::Part(part), all_walked);
            }
        }
    }

    /// Records that an item of [`Work`] other than a part is finished.
    pub fn finished(&self) {
        self.works.fetch_sub(1, Relaxed);
    }

    /// Ends the snapshot's walk, after everything was visited and no mark is left.
    pub fn end(&self) {
        self.bigs.lock().places.clear();
        self.left_len_bytes.store(0, Relaxed);
        self.phase.store(IDLE, Relaxed);
    }

    /// Removes the handed-over copies of entries from all their lists, returns them, and frees the
    /// lists.
    fn take_handed_over(&self) -> Vec<HandedOver> {
        let mut all = Vec::new();
        for lane in &self.lanes {
            let list = std::mem::take(&mut *lane.lock());
            all.extend(list);
        }
        all
    }

    /// Calls `visit` with a handed-over entry and the number that its database had at the start of
    /// the snapshot's walk, unless the walk was abandoned. Drops the entry.
    pub fn show_handed_over(&self, handed_over: HandedOver, visit: impl FnOnce(usize, &KeyEntry)) {
        let HandedOver { slot, entry, len_bytes } = handed_over;
        if self.is_preserved_for() {
            visit(self.db_at_point(slot), &entry);
        }
        drop(entry);
        self.handed_over_len_bytes.fetch_sub(len_bytes, Relaxed);
    }

    /// Visits the next keys of a flushed database in one shard for the snapshot. Returns true if
    /// there are more.
    pub fn walk_flushed(&self, flushed: &mut Flushed, mut visit: impl FnMut(usize, &KeyEntry)) -> bool {
        let (hasher, db) = (&self.hasher, self.db_at_point(flushed.slot));
        let (slot, kept) = (flushed.slot, self.is_preserved_for());
        let position = |key: &[u8]| position_of(hasher.hash_key(key));
        flushed.point = flushed.keys.walk(flushed.point, &position, |entry| {
            match kept.then(|| self.begin_big(entry)).flatten() {
                // The walk owns the object before another walker may search for it.
                Some(begun) => {
                    let object = take_object(entry).expect("what begins to be shown is an object");
                    // The object's bytes are already counted with the flushed table.
                    self.add_big(begun, slot, entry, BigPlace::Owned(RemovedObject { object, len_bytes: 0 }));
                }
                None if kept => visit(db, entry),
                None => {}
            }
        });
        let more = flushed.point != WalkPoint::END;
        if !more {
            drop(std::mem::take(&mut flushed.keys));
            self.left_len_bytes.fetch_sub(std::mem::take(&mut flushed.len_bytes), Relaxed);
        }
        more
    }

    /// Visits the next keys of a part of the keyspace like
    /// [`Keyspace::walk_part`](crate::Keyspace::walk_part), in the part's locked shard.
    pub(crate) fn walk_part(
        &self,
        shard: &mut Shard,
        part: Part,
        entries_max: usize,
        mut visit: impl FnMut(&KeyEntry),
    ) -> Stepped {
        let (slot, cursor) = (part.slot as u32, &self.cursors[part.shard]);
        let db = self.db_of_slot[part.slot].load(Relaxed);
        let mut point = point_of(slot, cursor.load(Relaxed));
        if db == NO_SLOT || shard.db(db as usize).is_none() {
            // The database's keys were passed to the walk by a flush, or it has none in this shard.
            point = WalkPoint::END;
        }
        let (hasher, kept) = (&self.hasher, self.is_preserved_for());
        let position = |key: &[u8]| position_of(hasher.hash_key(key));
        let (mut shown, mut buckets) = (0, 0);
        while point != WalkPoint::END && shown < entries_max && buckets < STEP_BUCKETS_MAX {
            point = shard.db_mut(db as usize).table.walk(point, &position, |entry| {
                shown += 1;
                match kept.then(|| self.begin_big(entry)).flatten() {
                    Some(begun) => {
                        let key = entry.key();
                        let at = BigPlace::Key((db as usize, hasher.hash_key(key), key.into()));
                        self.add_big(begun, slot, entry, at);
                    }
                    None if kept => visit(entry),
                    None => {}
                }
            });
            buckets += 1;
        }
        cursor.store((u64::from(slot) << POINT_BITS) + point.to_bits(), Relaxed);
        if point != WalkPoint::END {
            return Stepped::More;
        }
        // Release: a thread that reads this count also sees the copies that were handed over
        // before.
        self.finished_parts.fetch_add(1, Release);
        Stepped::Finished
    }

    /// Returns the number that the database of a part's keys had at the start of the snapshot's
    /// walk.
    pub fn db_of(&self, part: Part) -> usize {
        self.db_at_point(part.slot as u32)
    }

    /// Returns the number that the database of flushed keys had at the start of the snapshot's
    /// walk.
    pub fn db_of_flushed(&self, flushed: &Flushed) -> usize {
        self.db_at_point(flushed.slot)
    }

    /// Returns the number that the database of a handed-over entry had at the start of the
    /// snapshot's walk.
    pub fn db_of_handed_over(&self, handed_over: &HandedOver) -> usize {
        self.db_at_point(handed_over.slot)
    }

    /// Returns the number that the database of a big value had at the start of the snapshot's walk.
    pub fn db_of_big(&self, big: &BigValue) -> usize {
        self.db_at_point(big.slot)
    }

    /// Calls `visit` with the next pieces of one big value of the snapshot, about `elements_max`
    /// elements. `lock` locks a shard, and returns `None` if a busy script holds it; then nothing
    /// is visited. O(elements), as [`Keyspace::walk_big`](crate::Keyspace::walk_big).
    pub(crate) fn walk_big<'k>(
        &self,
        lock: impl Fn(usize) -> Option<Guard<'k, Shard>>,
        big: &BigValue,
        elements_max: usize,
        visit: &mut dyn FnMut(ValuePart<'_>),
    ) -> Stepped {
        loop {
            let at = match self.seek(big.ticket) {
                Sought::Owned(mut left) => {
                    if left.object.next_parts(elements_max, visit) {
                        return self.put_back(big.ticket, Some(BigPlace::Owned(left)));
                    }
                    let RemovedObject { object, len_bytes } = left;
                    drop(object);
                    self.left_len_bytes.fetch_sub(len_bytes, Relaxed);
                    return self.put_back(big.ticket, None);
                }
                Sought::Key(at) => at,
                Sought::Gone => return self.miss(big.ticket),
            };
            let Some(mut shard) = lock(shard_of(at.1)) else { return Stepped::Busy };
            // The value may have been moved or removed before the shard was locked.
            if !self.is_at(big.ticket, &at) {
                continue;
            }
            let (db, hash, key) = at;
            let table = shard.db(db).is_some().then(|| &mut shard.db_mut(db).table);
            let object = table.and_then(|table| {
                let place = table.find(position_of(hash), &key)?;
                table.object_mut(place).filter(|object| object.parts_ticket() == Some(big.ticket))
            });
            let Some(object) = object else { return self.miss(big.ticket) };
            let had = object.size();
            if object.next_parts(elements_max, visit) {
                return Stepped::More;
            }
            // A list may become a listpack at the end of its walk.
            let (old, new) = (had.mark(), object.size().mark());
            if old.differs_in_class(new) {
                shard.note_big(db, hash, old, new);
            }
            return self.put_back(big.ticket, None);
        }
    }

    /// Handles a big value that the snapshot's walk does not find where it was stored. In an
    /// abandoned walk the value's tables may have been freed. Otherwise its elements are missing
    /// from the snapshot, so the walk is abandoned.
    #[cold]
    fn miss(&self, ticket: u32) -> Stepped {
        debug_assert!(!self.is_preserved_for(), "a big value does not get lost");
        self.abandon();
        self.put_back(ticket, None)
    }

    /// Finds the place of a big value of the snapshot's walk. If the value is outside the keyspace,
    /// passes its ownership to the caller.
    fn seek(&self, ticket: u32) -> Sought {
        let mut bigs = self.bigs.lock();
        let Some((_, place)) = bigs.place_mut(ticket) else { return Sought::Gone };
        match std::mem::replace(place, BigPlace::Taken) {
            BigPlace::Owned(left) => Sought::Owned(left),
            BigPlace::Taken => Sought::Gone,
            BigPlace::Key(at) => {
                *place = BigPlace::Key(at.clone());
                Sought::Key(at)
            }
        }
    }

    fn is_at(&self, ticket: u32, at: &KeyPlace) -> bool {
        let mut bigs = self.bigs.lock();
        matches!(bigs.place_mut(ticket), Some((_, BigPlace::Key(place))) if place == at)
    }

    fn put_back(&self, ticket: u32, place: Option<BigPlace>) -> Stepped {
        let mut bigs = self.bigs.lock();
        let at = bigs.places.iter().position(|(number, _)| *number == ticket);
        match (at, place) {
            (Some(at), Some(place)) => {
                bigs.places[at].1 = place;
                Stepped::More
            }
            (Some(at), None) => {
                bigs.places.swap_remove(at);
                Stepped::Finished
            }
            (None, _) => Stepped::Finished,
        }
    }
}

/// Returns the point of the snapshot's walk in the table of `slot`, from the cursor of the table's
/// shard.
fn point_of(slot: u32, cursor: u64) -> WalkPoint {
    WalkPoint::from_bits(cursor.saturating_sub(u64::from(slot) << POINT_BITS))
}

/// Removes an entry's object and returns it; the entry gets an empty object of the same type.
/// Returns `None` if its value is no object.
fn take_object(entry: &mut KeyEntry) -> Option<Object> {
    let object = entry.object_mut()?;
    let empty = object.empty_of_type();
    Some(std::mem::replace(object, empty))
}

/// Returns the ticket that identifies the big value of an entry in the snapshot; `None` if no walk
/// of its value is in progress.
fn ticket_of(entry: &KeyEntry) -> Option<u32> {
    match entry.view() {
        View::Object(object) => object.parts_ticket(),
        View::Bytes(_) | View::Int(_) => None,
    }
}

//! The change log: one ordered stream of all changes, in the replication format of Redis.
//!
//! ```text
//!   unit, under its locks ─► position drawn ─► record ─► the thread's buffer
//!                                                              │ merged in the order of positions,
//!                                                              ▼ outside gate and locks
//!                            replies leave ◄─ released ◄─ readers (a file, a backlog, a feed)
//! ```
//! **Position.** A counter that each unit raises after its last change, while it still holds all
//! its locks or owns the keyspace. A unit is a command outside a transaction, a transaction, a
//! blocked client's request, or one key that expired or was evicted. Conflicting units exclude each
//! other until then, and the counter has one order for all threads. The order of positions
//! therefore agrees with the history of each key. It also agrees with everything that a client
//! learned from one unit before it started another. Positions are dense and start at 1. A unit
//! without a record draws no position.
//!
//! **Buffers.** Each thread appends its records to a chunk of its own. It puts the chunk into its
//! buffer ([`buffer`]) after each visit of a connection, and always before it leaves the gate
//! ([`ChangeLog::publish`]): one lock for all commands that a client has pipelined. The merging
//! thread takes position n + 1 next from the front of one of the buffers. This needs no timestamps,
//! and no waiting for threads that change nothing. A position that is drawn but not yet in a buffer
//! ends the merge; its thread merges soon.
//!
//! **Targets** ([`target`]). Each command goes to the append-only file, to replicas, or to both. A
//! reader belongs to one target and skips the other records. The databases that SELECT must choose
//! are tracked for each target, because a target may have missed the last change of database. A
//! unit of several commands is enclosed in MULTI and EXEC for all of its targets, as in Redis, even
//! for a target that gets only one of them. A target that gets none gets no MULTI and EXEC either;
//! Redis sends it these two.
//!
//! **Merging** ([`merger`]) is a role that a thread takes at the end of its turn if it is free; no
//! thread waits for it. A thread that finds it taken leaves a request, which the owner of the role
//! finds when it gives the role up. The merger writes SELECT, MULTI and EXEC, and counts the bytes
//! of the stream.
//!
//! **Release of replies.** A reply that shows a change waits until the change's position has
//! reached the [`Level`](level::Level) that the reply requires: [`ChangeLog::released`]. Each shard
//! has the position of its last change, so a reply waits only for the changes of the shards that
//! its request used.
//!
//! **Readers** are attached and detached by the exclusive owner of the keyspace. No unit is in
//! progress then, and all drawn positions are in their buffers, which are merged first. The cut is
//! therefore exact, and every reader's part of the stream begins with its own SELECT. While there
//! is no reader, no position is drawn, and a unit pays one load.
//!
//! **Big values** are shared with the keyspace ([`text`]).
//!
//! **Bounds.** A buffer over its part of [`PENDING_BYTES_MAX`] holds back the writes of its thread
//! ([`ChangeLog::is_full`]), evictions after requests, and expiry. A reader has the same effect if
//! it keeps more bytes than that because its file accepts none at present ([`RetainedBytes`]). A
//! slow replica has it only if an option says so ([`ChangeLog::replica_excess`]).
//! Reads continue. In a turn, the excess over the bound is at most the batch already received.
//!
//! **Locks.** Inside the gate only exclusive owners take the role. The owner of the role takes the
//! buffers' locks, which are leaves; the lock of the confirmed positions is also a leaf.

pub mod buffer;
pub mod level;
pub mod merger;
pub mod target;
pub mod text;
pub mod unit;

use std::sync::atomic::AtomicU64 as PlainU64;

use commands::Args;
use keyspace::gate::Exclusive;
use keyspace::key::SHARD_COUNT;
use stdx::sync::Ordering::Relaxed;
use stdx::sync::{AtomicU8, AtomicU64};
use structures::combiner::Combiner;
use structures::lock::Lock;
use structures::watermark::Watermark;

use self::buffer::{Buffer, Chunk, Header};
use self::level::{Level, Released};
use self::merger::{LogReader, Merger, ReaderId, RetainedBytes};
use self::target::{LogTarget, Targets};
use self::unit::UnitRecord;
use crate::threads::Outbox;

/// The most bytes of records that may wait to be merged before writes wait, for all threads
/// together.
pub const PENDING_BYTES_MAX: usize = 64 << 20;

/// The most readers at a time.
pub const READERS_MAX: usize = 8;

/// The slot of a record whose keys have no cluster slot, or several.
pub const NO_SLOT: u16 = u16::MAX;

/// The position of a shard's last change, on a cache line of its own. Written and read under the
/// shard's lock.
#[derive(Default)]
#[repr(align(64))]
struct ShardPosition(PlainU64);

/// The progress of the merged stream, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The position of the last merged unit.
    pub position: u64,
    /// The length of the stream since the process started, in bytes.
    pub offset_bytes: u64,
}

/// The change log, shared by all threads of an engine.
pub struct ChangeLog {
    /// The [`Targets`] of the readers, as bits. Changes are recorded for these targets. Changed by
    /// exclusive owners only.
    targets: AtomicU8,
    /// The last position that was drawn.
    drawn: crossbeam_utils::CachePadded<AtomicU64>,
    /// The buffers of the I/O threads, then that of the housekeeper, then that of the applier.
    buffers: Box<[Buffer]>,
    shards: Box<[ShardPosition]>,
    /// The position of the last change that was noted for all shards instead of single ones.
    all_shards: PlainU64,
    merger: Combiner<Merger>,
    /// The positions up to which each reader permits the release of replies, by reader index.
    confirmed: Lock<[Released; READERS_MAX]>,
    /// The minimum of `confirmed` for each [`Level`]: replies up to this position may be sent if
    /// they wait for that level. Set under the lock of `confirmed`.
    released: [Watermark; Level::ALL.len()],
    /// The last merged position, for threads that do not have the merger's role.
    merged_position: PlainU64,
    merged_bytes: PlainU64,
    /// The number of bytes that the append-only file's reader holds because the file accepts none
    /// at present.
    kept: RetainedBytes,
    /// The number of bytes that the slowest replica has to read beyond the number at which writes
    /// wait for it.
    replica_excess: RetainedBytes,
}

impl ChangeLog {
    /// Creates a log without readers, for `threads` I/O threads, a housekeeper and an applier.
    pub fn new(threads: usize) -> Self {
        Self {
            targets: AtomicU8::new(Targets::empty().bits()),
            drawn: AtomicU64::new(0).into(),
            buffers: (0..threads + 2).map(|_| Buffer::default()).collect(),
            shards: (0..SHARD_COUNT).map(|_| ShardPosition::default()).collect(),
            all_shards: 0.into(),
            merger: Combiner::new(Merger::new(threads + 2)),
            confirmed: Lock::new([Released::ALL; READERS_MAX]),
            released: Level::ALL.map(|level| Watermark::new(threads, Released::ALL.get(level))),
            merged_position: 0.into(),
            merged_bytes: 0.into(),
            kept: RetainedBytes::default(),
            replica_excess: RetainedBytes::default(),
        }
    }

    /// Returns the targets for which changes are recorded. Called at the start of each unit, inside
    /// the gate or as the exclusive owner. One load.
    #[inline]
    pub fn targets(&self) -> Targets {
        // Relaxed: only exclusive owners change it, and the gate orders them and the units.
        Targets::from_bits_retain(self.targets.load(Relaxed))
    }

    /// Returns true if changes are recorded. Called as [`ChangeLog::targets`] is.
    #[inline]
    pub fn is_attached(&self) -> bool {
        !self.targets().is_empty()
    }

    /// Returns the last drawn position. The current unit of an exclusive owner will get the next
    /// one.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Relaxed)
    }

    /// Returns the buffer index of an I/O thread; `None` stands for the housekeeper.
    pub fn buffer_index(&self, thread: Option<usize>) -> usize {
        thread.unwrap_or(self.buffers.len() - 2)
    }

    /// Returns the buffer index of the applier of a primary's stream.
    pub fn applier_buffer_index(&self) -> usize {
        self.buffers.len() - 1
    }

    /// Draws the position of a unit and appends the unit's record to `chunk`, the thread's own.
    /// Empties the record. The caller holds all locks of the unit. O(bytes).
    pub fn append(&self, chunk: &mut Chunk, unit: &mut UnitRecord) -> u64 {
        let position = self.draw();
        unit.move_to(chunk, position);
        position
    }

    /// Appends a unit as [`ChangeLog::append`] does. The unit is a single request without big words
    /// that is its own record.
    #[inline]
    pub fn append_request(&self, chunk: &mut Chunk, db: usize, args: &Args<'_>, targets: Targets) -> u64 {
        let position = self.draw();
        let header = Header::of_command(position, db as u32, targets);
        chunk.append(header, |text| args.encode(&mut text.bytes));
        position
    }

    /// Moves the records of a thread into its buffer, where the merger finds them. Called inside
    /// the gate or as its owner. Usually one exchange; O(bytes) if the buffer is not empty.
    pub fn publish(&self, buffer: usize, chunk: &mut Chunk) {
        self.buffers[buffer].publish(chunk);
    }

    #[inline]
    fn draw(&self) -> u64 {
        // Relaxed: a later unit on the same key draws its position after it took a lock that this
        // thread releases later. All read-modify-writes of one counter have a single order.
        self.drawn.fetch_add(1, Relaxed) + 1
    }

    /// Records that these shards, which are all locked, were changed at `position`.
    #[inline]
    pub fn note_change(&self, shards: impl Iterator<Item = usize>, position: u64) {
        // Relaxed: the shard's lock orders it.
        shards.for_each(|shard| self.shards[shard].0.store(position, Relaxed));
    }

    /// Records that any shard may have changed at `position`. The caller owns the keyspace.
    pub fn note_change_of_all(&self, position: u64) {
        self.all_shards.store(position, Relaxed);
    }

    /// Returns the position of the last change to these shards, which are all locked. O(shards).
    #[inline]
    pub fn last_change(&self, shards: impl Iterator<Item = usize>) -> u64 {
        let all = self.all_shards.load(Relaxed);
        shards.map(|shard| self.shards[shard].0.load(Relaxed)).fold(all, u64::max)
    }

    /// Returns the position up to which replies and messages may be sent if they wait for this
    /// level.
    #[inline]
    pub fn released(&self, level: Level) -> u64 {
        self.released[level as usize].get()
    }

    /// Returns true if this thread's writes must wait: too many of its records are not merged yet,
    /// or the append-only file's reader holds too many bytes, or a replica is too far behind. Takes
    /// no lock.
    #[inline]
    pub fn is_full(&self, buffer: usize) -> bool {
        self.is_attached()
            && (self.buffers[buffer].len_bytes() > PENDING_BYTES_MAX / self.buffers.len()
                || self.kept.get() > PENDING_BYTES_MAX
                || self.replica_excess.get() > 0)
    }

    /// Returns the number of bytes that the slowest replica has to read beyond the number at which
    /// writes wait for it. The owner of the replicas' connections sets it.
    pub fn replica_excess(&self) -> &RetainedBytes {
        &self.replica_excess
    }

    /// Returns the number of bytes that the append-only file's reader holds because the file
    /// accepts none at present. The reader sets it.
    pub fn kept(&self) -> &RetainedBytes {
        &self.kept
    }

    /// Returns the bytes of records that wait to be merged.
    pub fn pending_bytes(&self) -> usize {
        self.buffers.iter().map(Buffer::len_bytes).sum()
    }

    /// Returns the last merged position and the length of the stream, as the merger has stored
    /// them.
    pub fn progress(&self) -> Progress {
        Progress {
            position: self.merged_position.load(Relaxed),
            offset_bytes: self.merged_bytes.load(Relaxed),
        }
    }

    /// Requests that I/O thread `thread` is woken once `position` is released for this level.
    /// Returns false if it is released already. Called by that thread only, for the lowest position
    /// that it waits for at this level.
    pub fn wait_for_release(&self, level: Level, thread: usize, position: u64) -> bool {
        self.released[level as usize].wait_for(thread, position)
    }

    /// Merges the records of all threads and passes them to the readers. If another thread is
    /// merging, leaves the work to that thread. Called at the end of a turn, outside the gate,
    /// without locks. The threads whose replies are released are woken by `outbox`. O(bytes), and
    /// the work of the readers.
    #[inline]
    pub fn merge(&self, outbox: &Outbox) {
        if self.is_attached() {
            self.merge_attached(outbox);
        }
    }

    fn merge_attached(&self, outbox: &Outbox) {
        self.merger.run(|merger| self.run(merger, outbox));
    }

    /// Merges everything in the buffers, as the owner of the merger's role.
    fn run(&self, merger: &mut Merger, outbox: &Outbox) {
        while let Some(confirmed) = merger.run(&self.buffers) {
            let Progress { position, offset_bytes } = merger.progress();
            self.merged_position.store(position, Relaxed);
            self.merged_bytes.store(offset_bytes, Relaxed);
            self.confirm(confirmed, outbox);
        }
    }

    /// Records the positions up to which readers permit the release of replies, and wakes the
    /// threads that wait for them. Any thread may call it. A reader that confirms later than it
    /// takes bytes calls it at that time. O(threads).
    pub fn confirm(&self, positions: impl IntoIterator<Item = (ReaderId, Released)>, outbox: &Outbox) {
        let mut confirmed = self.confirmed.lock();
        for (ReaderId(reader), positions) in positions {
            confirmed[reader] = confirmed[reader].max(positions);
        }
        self.release(&confirmed, outbox);
    }

    /// Releases the positions that all readers have confirmed. `confirmed` has the positions of
    /// each reader.
    fn release(&self, confirmed: &[Released; READERS_MAX], outbox: &Outbox) {
        let released = confirmed.iter().copied().fold(Released::ALL, Released::min);
        for (level, watermark) in Level::ALL.into_iter().zip(&self.released) {
            // A level that does not advance costs one load.
            if watermark.get() != released.get(level) {
                watermark.set(released.get(level), |thread| outbox.wake(thread));
            }
        }
    }

    /// Attaches a reader at an exact cut: it receives everything that is appended for `target` from
    /// now on. Returns `None` if there are already [`READERS_MAX`]. The caller owns the keyspace.
    pub fn attach(
        &self,
        _alone: &Exclusive,
        (reader, target): (Box<dyn LogReader>, LogTarget),
        outbox: &Outbox,
    ) -> Option<ReaderId> {
        self.with_merger(outbox, |merger| {
            // No thread is inside the gate, so everything drawn is merged.
            let cut = self.drawn();
            let id = merger.attach((reader, target), cut)?;
            self.targets.store(merger.targets().bits(), Relaxed);
            let mut confirmed = self.confirmed.lock();
            confirmed[id.0] = Released::at(cut);
            self.release(&confirmed, outbox);
            Some(id)
        })
    }

    /// Detaches a reader after it has received everything appended so far. The reader's owner must
    /// not confirm positions for it afterwards. The caller owns the keyspace.
    pub fn detach(&self, _alone: &Exclusive, id: ReaderId, outbox: &Outbox) -> Option<Box<dyn LogReader>> {
        self.with_merger(outbox, |merger| {
            let reader = merger.detach(id)?;
            self.targets.store(merger.targets().bits(), Relaxed);
            self.confirm([(id, Released::ALL)], outbox);
            Some(reader)
        })
    }

    /// Passes everything appended so far to the readers. The caller owns the keyspace.
    pub fn pass_on(&self, _alone: &Exclusive, outbox: &Outbox) {
        self.with_merger(outbox, |_merger| ());
    }

    /// Passes everything appended so far to the readers, and begins a new part of the stream of
    /// `target` with its own SELECT. The new part can be read without the part before. The caller
    /// owns the keyspace.
    pub fn begin_part(&self, _alone: &Exclusive, target: LogTarget, outbox: &Outbox) {
        self.with_merger(outbox, |merger| merger.begin_part(target));
    }

    /// Lists the attached readers, after they have received everything published.
    pub fn readers(&self, outbox: &Outbox) -> Vec<ReaderId> {
        self.with_merger(outbox, |merger| merger.readers())
    }

    /// Waits for the merger's role, merges everything in the buffers, and calls `act` with the
    /// merger.
    fn with_merger<R>(&self, outbox: &Outbox, act: impl FnOnce(&mut Merger) -> R) -> R {
        let work = |merger: &mut Merger| self.run(merger, outbox);
        let act = |merger: &mut Merger| {
            self.run(merger, outbox);
            act(merger)
        };
        self.merger.with(act, work)
    }
}

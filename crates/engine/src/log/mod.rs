//! The change log: one ordered stream of all changes, in the replication format of Redis.
//!
//! ```text
//!   unit, under its locks ─► position drawn ─► record ─► the thread's buffer
//!                                                              │ merged in the order of positions,
//!                                                              ▼ outside gate and locks
//!                            replies leave ◄─ released ◄─ readers (a file, a backlog, a feed)
//! ```
//! **Position.** The value of a counter that each unit increases after its last change, while it
//! still holds all its locks or owns the keyspace. A unit is a command outside a transaction, a
//! transaction, a blocked client's request, or one key that expired or was evicted. Units that use
//! the same keys hold the same locks until then, so they get their positions in the order in which
//! they changed these keys. If a client sees the result of one unit before it starts another, the
//! first has the lower position. Positions are consecutive numbers and start at 1. A unit without a
//! record draws no position.
//!
//! **Buffers.** Each thread appends its records to a chunk of its own. It moves the records to its
//! buffer ([`buffer`]) after the requests of each connection, and always before it leaves the gate
//! ([`ChangeLog::publish`]). So it takes one lock for all commands that a client has pipelined.
//! After position n, the merging thread takes the record with position n + 1 from the front of one
//! of the buffers. It never waits for threads that change nothing. If position n + 1 is drawn but
//! not yet in a buffer, the merge ends; the thread of that record merges at the end of its turn.
//!
//! **Targets** ([`target`]). Each command goes to the append-only file, to replicas, or to both. A
//! reader belongs to one target and skips the other records. The selected database is tracked for
//! each target, because a target does not get all records and so may need its own SELECT. A unit of
//! several commands is enclosed in MULTI and EXEC for all of its targets, as in Redis, even for a
//! target that gets only one of them. A target that gets none gets no MULTI and EXEC either; Redis
//! sends it these two.
//!
//! **Merging** ([`merger`]) is done by one thread at a time, which has the merger's role. A thread
//! takes the role at the end of its turn if the role is free; no thread waits for it. If another
//! thread has the role, it leaves a request. The thread in the role then merges once more before it
//! gives the role up. The merger writes SELECT, MULTI and EXEC, and counts the bytes of the stream.
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
//! slow replica has it only if an option says so ([`ChangeLog::replica_excess`]). Reads continue.
//! The bound may be exceeded by the requests of one batch, because they have already been received.
//!
//! **Locks.** Inside the gate, only the exclusive owner of the keyspace takes the merger's role.
//! The owner of the role takes the buffers' locks, which are leaves; the lock of the confirmed
//! positions is also a leaf.

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

/// The maximum length in bytes of all threads' change log records that wait to be merged. Beyond
/// it, writes of clients wait.
pub const PENDING_BYTES_MAX: usize = 64 << 20;

/// The maximum number of change log readers (such as the append-only file and the backlog) attached
/// at the same time.
pub const READERS_MAX: usize = 8;

/// The slot number of a change log record whose keys belong to no cluster slot, or to several.
pub const NO_SLOT: u16 = u16::MAX;

/// The log position of the last change to one shard, on a cache line of its own. Written and read
/// under the shard's lock.
#[derive(Default)]
#[repr(align(64))]
struct ShardPosition(PlainU64);

/// The progress of the merge of the change log, which INFO shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The log position of the last merged command or transaction.
    pub position: u64,
    /// The length of the change log's merged stream since the process started, in bytes.
    pub offset_bytes: u64,
}

/// The change log: the ordered stream of all changes, from which the append-only file and replicas
/// are written. All threads of an engine share it; see the module.
pub struct ChangeLog {
    /// The [`Targets`] for which the change log has readers, as bits. Changes are recorded only for
    /// these targets. Only exclusive owners of the keyspace change it.
    targets: AtomicU8,
    /// The last log position that was given to a command or transaction.
    drawn: crossbeam_utils::CachePadded<AtomicU64>,
    /// The buffers of change log records: one for each I/O thread, then one of the housekeeper,
    /// then one of the applier, which applies a primary's replication stream.
    buffers: Box<[Buffer]>,
    shards: Box<[ShardPosition]>,
    /// The log position of the last change that counts as a change of every shard, such as
    /// FLUSHALL.
    all_shards: PlainU64,
    merger: Combiner<Merger>,
    /// The log positions up to which each reader of the change log permits the release of replies,
    /// by reader index.
    confirmed: Lock<[Released; READERS_MAX]>,
    /// The minimum of `confirmed` over all readers of the change log, for each [`Level`]. Replies
    /// that show changes up to this position may be sent if they wait for that level. Set under the
    /// lock of `confirmed`.
    released: [Watermark; Level::ALL.len()],
    /// The last merged log position, for threads that do not have the merger's role.
    merged_position: PlainU64,
    merged_bytes: PlainU64,
    /// The memory of the merger after its last batch, in bytes.
    merger_memory_bytes: PlainU64,
    /// The number of bytes that the append-only file's reader holds because the file accepts none
    /// at present.
    kept: RetainedBytes,
    /// The number of unsent bytes of the slowest replica beyond the number at which writes wait for
    /// replicas; 0 if writes need not wait.
    replica_excess: RetainedBytes,
}

impl ChangeLog {
    /// Creates a change log that nothing reads yet, with buffers for `threads` I/O threads, the
    /// housekeeper and the applier.
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
            merger_memory_bytes: 0.into(),
            kept: RetainedBytes::default(),
            replica_excess: RetainedBytes::default(),
        }
    }

    /// Returns the targets that have a reader; changes are recorded for these. Called before each
    /// command or transaction runs, inside the gate (the keyspace's shared lock) or as its
    /// exclusive owner. Costs one load.
    #[inline]
    pub fn targets(&self) -> Targets {
        // Relaxed: only exclusive owners change it, and the gate orders them and the units.
        Targets::from_bits_retain(self.targets.load(Relaxed))
    }

    /// Returns true if the change log has a reader, so that changes are recorded. Called as
    /// [`ChangeLog::targets`] is.
    #[inline]
    pub fn is_attached(&self) -> bool {
        !self.targets().is_empty()
    }

    /// Returns the last log position that was given to a command or transaction. If the caller owns
    /// the keyspace exclusively, its current command or transaction will get the next position.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Relaxed)
    }

    /// Returns the index of the change log buffer of I/O thread `thread`; `None` stands for the
    /// housekeeper.
    pub fn buffer_index(&self, thread: Option<usize>) -> usize {
        thread.unwrap_or(self.buffers.len() - 2)
    }

    /// Returns the index of the change log buffer of the applier, which applies a primary's
    /// replication stream.
    pub fn applier_buffer_index(&self) -> usize {
        self.buffers.len() - 1
    }

    /// Takes the next log position for a unit (a command or transaction) and moves its change log
    /// record to the end of `chunk`, the chunk of the calling thread. The caller holds all locks of
    /// the unit. Returns the position. O(bytes).
    pub fn append(&self, chunk: &mut Chunk, unit: &mut UnitRecord) -> u64 {
        let position = self.draw();
        unit.move_to(chunk, position);
        position
    }

    /// Takes the next log position and appends a change log record that consists of one request, as
    /// it was sent. No argument of the request may be long enough to be shared. The caller holds
    /// the locks of all its keys. Returns the position.
    #[inline]
    pub fn append_request(&self, chunk: &mut Chunk, db: usize, args: &Args<'_>, targets: Targets) -> u64 {
        let position = self.draw();
        let header = Header::of_command(position, db as u32, targets);
        chunk.append(header, |text| args.encode(&mut text.bytes));
        position
    }

    /// Moves the change log records in `chunk`, which is the thread's own, to the thread's buffer,
    /// from which the merger takes them. Called inside the gate (the keyspace's shared lock) or as
    /// its exclusive owner. Usually exchanges two chunks; O(bytes) if the buffer is not empty.
    pub fn publish(&self, buffer: usize, chunk: &mut Chunk) {
        self.buffers[buffer].publish(chunk);
    }

    #[inline]
    fn draw(&self) -> u64 {
        // Relaxed: a later unit on the same key draws its position after it took a lock that this
        // thread releases later. All read-modify-writes of one counter have a single order.
        self.drawn.fetch_add(1, Relaxed) + 1
    }

    /// Records that the change at log position `position` is the last one to these shards. The
    /// caller holds the locks of all of them.
    #[inline]
    pub fn note_change(&self, shards: impl Iterator<Item = usize>, position: u64) {
        // Relaxed: the shard's lock orders it.
        shards.for_each(|shard| self.shards[shard].0.store(position, Relaxed));
    }

    /// Records that all shards may have changed at log position `position`. The caller owns the
    /// keyspace exclusively.
    pub fn note_change_of_all(&self, position: u64) {
        self.all_shards.store(position, Relaxed);
    }

    /// Returns the log position of the last change to any of these shards. The caller holds the
    /// locks of all of them. O(shards).
    #[inline]
    pub fn last_change(&self, shards: impl Iterator<Item = usize>) -> u64 {
        let all = self.all_shards.load(Relaxed);
        shards.map(|shard| self.shards[shard].0.load(Relaxed)).fold(all, u64::max)
    }

    /// Returns the log position up to which changes have reached `level`. Replies and messages that
    /// show only such changes may be sent if they wait for that level.
    #[inline]
    pub fn released(&self, level: Level) -> u64 {
        self.released[level as usize].get()
    }

    /// Returns true if writes of this thread's clients must wait. The reasons: too many bytes of
    /// its change log records are not merged, or wait for the append-only file. Or a replica has
    /// too many unsent bytes. Takes no lock.
    #[inline]
    pub fn is_full(&self, buffer: usize) -> bool {
        self.is_attached()
            && (self.buffers[buffer].len_bytes() > PENDING_BYTES_MAX / self.buffers.len()
                || self.kept.get() > PENDING_BYTES_MAX
                || self.replica_excess.get() > 0)
    }

    /// Returns the counter of the unsent bytes of the slowest replica beyond the number at which
    /// writes wait for replicas. The thread `repl`, which owns the replicas' connections, sets it.
    pub fn replica_excess(&self) -> &RetainedBytes {
        &self.replica_excess
    }

    /// Returns the counter of the bytes that the append-only file's reader keeps in memory because
    /// the file cannot be written at present. The reader sets it.
    pub fn kept(&self) -> &RetainedBytes {
        &self.kept
    }

    /// Returns the length in bytes of all threads' change log records that wait to be merged.
    pub fn pending_bytes(&self) -> usize {
        self.buffers.iter().map(Buffer::len_bytes).sum()
    }

    /// Returns the memory of the change log's records, in bytes: of the threads' buffers and of the
    /// merger. Values that the keyspace shares are not included. Takes no lock. O(threads).
    pub fn memory_bytes(&self) -> usize {
        let buffers: usize = self.buffers.iter().map(Buffer::memory_bytes).sum();
        buffers + self.merger_memory_bytes.load(Relaxed) as usize
    }

    /// Returns the last merged log position and the length of the change log's merged stream, as
    /// the merger has stored them.
    pub fn progress(&self) -> Progress {
        Progress {
            position: self.merged_position.load(Relaxed),
            offset_bytes: self.merged_bytes.load(Relaxed),
        }
    }

    /// Requests that I/O thread `thread` is woken once `position` has reached this level of safety.
    /// Returns false if it has reached it already. Called by that thread only, with the lowest
    /// position that it waits for at this level.
    pub fn wait_for_release(&self, level: Level, thread: usize, position: u64) -> bool {
        self.released[level as usize].wait_for(thread, position)
    }

    /// Merges the change log's records of all threads and passes them to the readers. If another
    /// thread is merging, only requests that it merges again. Called at the end of a turn (a pass
    /// of the event loop), outside the gate (the keyspace's shared lock), without locks. `outbox`
    /// wakes the threads whose replies are released. O(bytes), and the work of the readers.
    #[inline]
    pub fn merge(&self, outbox: &Outbox) {
        if self.is_attached() {
            self.merge_attached(outbox);
        }
    }

    fn merge_attached(&self, outbox: &Outbox) {
        self.merger.run(|merger| self.run(merger, outbox));
    }

    /// Merges all change log records in the threads' buffers, and passes them to the readers batch
    /// by batch. The caller has the merger's role.
    fn run(&self, merger: &mut Merger, outbox: &Outbox) {
        while let Some(confirmed) = merger.run(&self.buffers) {
            let Progress { position, offset_bytes } = merger.progress();
            self.merged_position.store(position, Relaxed);
            self.merged_bytes.store(offset_bytes, Relaxed);
            self.merger_memory_bytes.store(merger.memory_bytes() as u64, Relaxed);
            self.confirm(confirmed, outbox);
        }
    }

    /// Records the log positions up to which readers of the change log permit the release of
    /// replies, and wakes the threads that wait for them. Any thread may call it. A reader that
    /// confirms a position later than it took the bytes calls it directly. O(threads).
    pub fn confirm(&self, positions: impl IntoIterator<Item = (ReaderId, Released)>, outbox: &Outbox) {
        let mut confirmed = self.confirmed.lock();
        for (ReaderId(reader), positions) in positions {
            confirmed[reader] = confirmed[reader].max(positions);
        }
        self.release(&confirmed, outbox);
    }

    /// Releases the log positions that all readers have confirmed, and wakes the threads that wait
    /// for them. `confirmed` has the positions of each reader.
    fn release(&self, confirmed: &[Released; READERS_MAX], outbox: &Outbox) {
        let released = confirmed.iter().copied().fold(Released::ALL, Released::min);
        for (level, watermark) in Level::ALL.into_iter().zip(&self.released) {
            // A level that does not advance costs one load.
            if watermark.get() != released.get(level) {
                watermark.set(released.get(level), |thread| outbox.wake(thread));
            }
        }
    }

    /// Attaches a reader of the change log, which receives everything that is appended for `target`
    /// from now on. Returns `None` if there are already [`READERS_MAX`] readers. The caller owns
    /// the keyspace exclusively.
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

    /// Detaches a reader of the change log after it has received everything appended so far, and
    /// returns it. Nobody may confirm positions for it afterwards. The caller owns the keyspace
    /// exclusively.
    pub fn detach(&self, _alone: &Exclusive, id: ReaderId, outbox: &Outbox) -> Option<Box<dyn LogReader>> {
        self.with_merger(outbox, |merger| {
            let reader = merger.detach(id)?;
            self.targets.store(merger.targets().bits(), Relaxed);
            self.confirm([(id, Released::ALL)], outbox);
            Some(reader)
        })
    }

    /// Merges everything appended to the change log so far and passes it to its readers. The caller
    /// owns the keyspace exclusively.
    pub fn pass_on(&self, _alone: &Exclusive, outbox: &Outbox) {
        self.with_merger(outbox, |_merger| ());
    }

    /// Merges everything appended to the change log so far and passes it to its readers. Then
    /// begins a new part of the stream for `target`: its first command is a SELECT, so it can be
    /// read without the earlier stream. The caller owns the keyspace exclusively.
    pub fn begin_part(&self, _alone: &Exclusive, target: LogTarget, outbox: &Outbox) {
        self.with_merger(outbox, |merger| merger.begin_part(target));
    }

    /// Merges everything published to the change log so far and passes it to its readers. Returns
    /// the identifiers of the attached readers.
    pub fn readers(&self, outbox: &Outbox) -> Vec<ReaderId> {
        self.with_merger(outbox, |merger| merger.readers())
    }

    /// Waits for the merger's role, merges all change log records in the threads' buffers, and
    /// calls `act` with the merger. Returns the result of `act`.
    fn with_merger<R>(&self, outbox: &Outbox, act: impl FnOnce(&mut Merger) -> R) -> R {
        let work = |merger: &mut Merger| self.run(merger, outbox);
        let act = |merger: &mut Merger| {
            self.run(merger, outbox);
            act(merger)
        };
        self.merger.with(act, work)
    }
}

//! The merger of the change log: combines the records of all threads into one stream, in the order
//! of their log positions.

use super::buffer::{Buffer, Chunk, Header, UnitPart};
use super::level::Released;
use super::target::{LogTarget, Targets};
use super::text::{Text, TextEnd};
use super::unit::encode_select;
use super::{NO_SLOT, Progress, READERS_MAX};

/// The approximate maximum length in bytes of a batch, the part of the change log's stream that its
/// readers receive at a time.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The identifier of an attached reader of the change log: an index below
/// [`READERS_MAX`](super::READERS_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(pub(super) usize);

/// The maximum number of [`Mark`]s for which the merger keeps memory between batches: about the
/// number of small records in a batch.
const KEPT_MARKS_MAX: usize = 1 << 13;

/// The end of a piece of the change log's stream. A piece is a segment of a thread's record, or a
/// command that the merger wrote. It begins at the end of the piece before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The end in [`LogBatch::text`] of the piece of the change log's stream.
    pub end: TextEnd,
    /// The log position of the unit (a command or transaction) to which the piece belongs. The
    /// pieces of one unit are consecutive and in one batch.
    pub position: u64,
    /// The cluster slot of the keys in this piece of the change log's stream; [`NO_SLOT`] for none
    /// or several, and for a command of the merger.
    pub slot: u16,
    /// The targets of this piece of the stream: append-only file, replicas, or both.
    pub targets: Targets,
    /// True if the piece of the change log's stream is a command that the merger wrote: SELECT,
    /// MULTI or EXEC.
    pub is_framing: bool,
}

/// A batch of the change log: the part of its stream that readers receive at a time.
pub struct LogBatch<'b> {
    /// The commands of the batch for all targets, as complete requests in RESP.
    pub text: &'b Text,
    /// The ends of the pieces of `text`, in order: segments of change log records, and the merger's
    /// own commands.
    pub marks: &'b [Mark],
    /// The number of bytes of the change log's stream, for all targets, before `text`, since the
    /// process started.
    pub offset: u64,
    /// The log position of the last command or transaction in `text`.
    pub position: u64,
}

impl<'b> LogBatch<'b> {
    /// Returns true if the change log's batch has any bytes for `target`. O(1) if the first piece
    /// is for it.
    #[inline]
    pub fn has_bytes_for(&self, target: LogTarget) -> bool {
        self.marks.iter().any(|mark| mark.targets.contains(target.into()))
    }

    /// Calls `take` with all bytes of the change log's batch for `target`, in order, in parts of
    /// any length. O(marks) besides the calls.
    pub fn for_each_part(&self, target: LogTarget, mut take: impl FnMut(&'b [u8])) {
        // Consecutive pieces for the target are passed together.
        let (mut start, mut end) = (TextEnd::default(), TextEnd::default());
        for mark in self.marks {
            if !mark.targets.contains(target.into()) {
                self.text.for_each_part((start, end), &mut take);
                start = mark.end;
            }
            end = mark.end;
        }
        self.text.for_each_part((start, end), take);
    }
}

/// A reader of the change log's stream: the append-only file, the backlog of replicas, or a change
/// feed. The merging thread calls it outside the gate (the keyspace's shared lock), without locks.
pub trait LogReader: Send {
    /// Takes the next batch of the change log's stream; [`LogBatch::for_each_part`] gives the bytes
    /// for one target. Returns the log positions up to which replies may be sent, one for each
    /// [`Level`](super::level::Level). [`Released::ALL`] means that replies never wait for this
    /// reader. The reader may confirm higher positions later with
    /// [`ChangeLog::confirm`](super::ChangeLog::confirm).
    fn append(&mut self, batch: &LogBatch<'_>) -> Released;
}

/// A number of bytes that waits in memory because a reader of the change log cannot pass them on.
/// If it exceeds a bound, writes of clients wait
/// ([`ChangeLog::is_full`](super::ChangeLog::is_full)).
#[derive(Clone, Debug, Default)]
pub struct RetainedBytes(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl RetainedBytes {
    /// Sets the number of bytes that the reader of the change log keeps in memory. Any thread may
    /// call it.
    pub fn set(&self, len_bytes: usize) {
        // Relaxed: the figure only serves a limit.
        self.0.store(len_bytes, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the number of bytes that the reader of the change log keeps in memory, as last
    /// passed to [`set`](Self::set).
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A chunk of change log records that the merger has taken from a thread's buffer.
#[derive(Default)]
struct Taken {
    chunk: Chunk,
    /// The index of the segment to merge next: that of its header in the chunk.
    at: usize,
    /// The position in the chunk's text at which the segment to merge next begins.
    start: TextEnd,
}

impl Taken {
    fn front(&self) -> Option<&Header> {
        self.chunk.headers.get(self.at)
    }
}

/// The database that is selected at the end of the change log's stream for each target. `None` if
/// the next record must be preceded by a SELECT.
#[derive(Clone, Copy, Default)]
struct Selected([Option<u32>; LogTarget::ALL.len()]);

impl Selected {
    /// Returns those of `targets` for which another database than `db` is selected at the end of
    /// the change log's stream.
    #[inline]
    fn others(&self, targets: Targets, db: u32) -> Targets {
        let mut others = Targets::empty();
        for target in LogTarget::ALL {
            others.set(target.into(), self.0[target as usize] != Some(db));
        }
        targets & others
    }

    /// Records that `db` is selected in the streams of `targets`.
    #[inline]
    fn set(&mut self, targets: Targets, db: u32) {
        for target in LogTarget::ALL.into_iter().filter(|&target| targets.contains(target.into())) {
            self.0[target as usize] = Some(db);
        }
    }
}

/// The state of the change log's merger. At any time, only the thread in the merger's role uses it.
pub(super) struct Merger {
    taken: Box<[Taken]>,
    /// The log position of the next command or transaction to merge.
    next: u64,
    selected: Selected,
    readers: [Option<(Box<dyn LogReader>, LogTarget)>; READERS_MAX],
    out: Text,
    marks: Vec<Mark>,
    offset: u64,
}

impl Merger {
    /// Creates a merger of the change log for this number of threads' buffers.
    pub fn new(buffers: usize) -> Self {
        Self {
            taken: (0..buffers).map(|_| Taken::default()).collect(),
            next: 1,
            selected: Selected::default(),
            readers: Default::default(),
            out: Text::default(),
            marks: Vec::new(),
            offset: 0,
        }
    }

    /// Returns the last merged log position and the length of the change log's merged stream.
    pub fn progress(&self) -> Progress {
        Progress { position: self.next - 1, offset_bytes: self.offset }
    }

    /// Returns the memory of the taken chunks and of the last batch, in bytes. O(buffers).
    pub fn memory_bytes(&self) -> usize {
        let taken: usize = self.taken.iter().map(|taken| taken.chunk.memory_bytes()).sum();
        taken + self.out.memory_bytes() + self.marks.capacity() * size_of::<Mark>()
    }

    /// Adds a reader of the change log, which receives everything after the log position `cut`.
    /// Everything up to `cut` must have been merged. Returns `None` if there are too many readers.
    pub fn attach(&mut self, reader: (Box<dyn LogReader>, LogTarget), cut: u64) -> Option<ReaderId> {
        debug_assert_eq!(self.next, cut + 1, "all that was drawn is merged");
        let place = self.readers.iter().position(Option::is_none)?;
        self.begin_part(reader.1);
        self.readers[place] = Some(reader);
        Some(ReaderId(place))
    }

    /// Begins a new part of the change log's stream for a target. The first command of the part is
    /// a SELECT, so it can be read without the earlier stream.
    pub fn begin_part(&mut self, target: LogTarget) {
        self.selected.0[target as usize] = None;
    }

    /// Removes a reader of the change log and returns it; `None` if it is not attached.
    pub fn detach(&mut self, id: ReaderId) -> Option<Box<dyn LogReader>> {
        self.readers[id.0].take().map(|(reader, _)| reader)
    }

    /// Returns the targets (append-only file, replicas) for which the change log has a reader.
    pub fn targets(&self) -> Targets {
        let targets = self.readers.iter().flatten().map(|&(_, target)| target.into());
        targets.fold(Targets::empty(), Targets::union)
    }

    /// Returns the identifiers of all attached readers of the change log.
    pub fn readers(&self) -> Vec<ReaderId> {
        (0..READERS_MAX).filter(|&place| self.readers[place].is_some()).map(ReaderId).collect()
    }

    /// Merges change log records from the threads' buffers, at most about [`BATCH_BYTES_MAX`], and
    /// passes them to the readers as one batch. Returns the log positions that each reader has
    /// confirmed; `None` if there was nothing to merge. O(bytes + records × threads).
    pub fn run(&mut self, buffers: &[Buffer]) -> Option<impl Iterator<Item = (ReaderId, Released)> + use<>> {
        let from = self.next;
        while self.out.len_bytes() < BATCH_BYTES_MAX && self.merge_some(buffers) {}
        if self.next == from {
            return None;
        }
        let (text, marks) = (&self.out, &self.marks[..]);
        let batch = LogBatch { text, marks, offset: self.offset, position: self.next - 1 };
        let mut confirmed = [None; READERS_MAX];
        for (reader, confirmed) in self.readers.iter_mut().zip(&mut confirmed) {
            *confirmed = reader.as_mut().map(|(reader, _)| reader.append(&batch));
        }
        self.offset += self.out.len_bytes() as u64;
        self.out.clear();
        self.marks.clear();
        self.marks.shrink_to(KEPT_MARKS_MAX);
        let confirmed = confirmed.into_iter().enumerate();
        Some(confirmed.filter_map(|(place, positions)| positions.map(|it| (ReaderId(place), it))))
    }

    /// Merges change log records from the one buffer that has the next log position. Continues as
    /// long as the positions in this buffer are consecutive. Returns false if no buffer has the
    /// next position.
    fn merge_some(&mut self, buffers: &[Buffer]) -> bool {
        let next = self.next;
        for (taken, buffer) in self.taken.iter_mut().zip(buffers) {
            if taken.front().is_none() {
                if !buffer.has_records() {
                    continue;
                }
                taken.chunk.clear();
                (taken.at, taken.start) = (0, TextEnd::default());
                buffer.take(&mut taken.chunk);
            }
            if taken.front().is_some_and(|front| front.position == next) {
                let Self { selected, out, marks, .. } = self;
                let mut stream = Stream { selected, out, marks, copied: taken.start, taken_bytes: 0 };
                self.next = stream.take(taken, next);
                buffer.merged(stream.taken_bytes);
                return true;
            }
        }
        false
    }
}

/// The output of a merge of the change log, while the records of one thread's buffer are appended
/// to it.
struct Stream<'m> {
    selected: &'m mut Selected,
    out: &'m mut Text,
    marks: &'m mut Vec<Mark>,
    /// The end of the part of the chunk's text that is already in the merger's output. Consecutive
    /// change log records are copied together if no command of the merger stands between them.
    copied: TextEnd,
    /// The total length of the change log records taken from the buffer so far, in bytes.
    taken_bytes: usize,
}

impl Stream<'_> {
    /// Appends the change log records of `taken` as long as their log positions are consecutive,
    /// from `next` on. Returns the position after the last of them.
    fn take(&mut self, taken: &mut Taken, mut next: u64) -> u64 {
        while let Some(&header) = taken.front()
            && header.position == next
            && self.out.len_bytes() + (taken.start.bytes - self.copied.bytes) < BATCH_BYTES_MAX
        {
            match header.part {
                UnitPart::Whole => self.take_segment(taken, &header),
                UnitPart::Inner | UnitPart::Last => self.take_transaction(taken, &header),
            }
            next += 1;
        }
        self.copy(taken);
        next
    }

    /// Appends a segment of a change log record, preceded by a SELECT for the targets that need
    /// one.
    #[inline]
    fn take_segment(&mut self, taken: &mut Taken, header: &Header) {
        let others = self.selected.others(header.targets, header.first_db);
        if !others.is_empty() {
            self.select(taken, header, others);
        }
        self.selected.set(header.targets, header.last_db);
        (taken.start, taken.at) = (header.end, taken.at + 1);
        let Header { position, slot, targets, .. } = *header;
        let end = self.out.end() + (header.end - self.copied);
        self.marks.push(Mark { end, position, slot, targets, is_framing: false });
    }

    /// Appends all segments of a change log record of several commands, between MULTI and EXEC.
    /// `first` is the header of the first segment.
    #[cold]
    fn take_transaction(&mut self, taken: &mut Taken, first: &Header) {
        self.copy(taken);
        self.frame(first, first.unit_targets, |out| out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n"));
        let mut header = *first;
        loop {
            self.take_segment(taken, &header);
            match taken.front() {
                Some(&next) if header.part == UnitPart::Inner => header = next,
                _ => break,
            }
        }
        self.copy(taken);
        self.frame(first, first.unit_targets, |out| out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n"));
    }

    /// Appends a SELECT of the segment's database for those of `targets` for which another database
    /// is selected at the end of the change log's stream.
    #[cold]
    fn select(&mut self, taken: &Taken, header: &Header, targets: Targets) {
        self.copy(taken);
        self.frame(header, targets, |out| encode_select(header.first_db as usize, out));
    }

    /// Appends a command of the merger (SELECT, MULTI or EXEC), which `write` writes, for
    /// `targets`. The command gets the log position of `header`.
    fn frame(&mut self, header: &Header, targets: Targets, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.out.bytes);
        let (end, position) = (self.out.end(), header.position);
        self.marks.push(Mark { end, position, slot: NO_SLOT, targets, is_framing: true });
    }

    /// Copies to the output the change log records of `taken` that precede `taken.start` and are
    /// not copied yet.
    fn copy(&mut self, taken: &Taken) {
        self.taken_bytes += self.out.extend_from(&taken.chunk.text, self.copied, taken.start);
        self.copied = taken.start;
    }
}

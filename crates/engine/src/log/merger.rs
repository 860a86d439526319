//! The merger: combines the threads' records into one stream, in the order of their positions.

use super::buffer::{Buffer, Chunk, Header};
use super::text::{Text, TextEnd};
use super::unit::encode_select;
use super::{Progress, READERS_MAX};

/// The approximate length in bytes of the part of the stream that readers receive at a time.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The index of an attached reader, below [`READERS_MAX`](super::READERS_MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(pub(super) usize);

/// The bytes of the stream that readers receive at a time.
pub struct LogBatch<'b> {
    /// The commands as complete requests in RESP.
    pub text: &'b Text,
    /// The offset of the first byte of `text` in the stream since the process started, in bytes.
    pub offset: u64,
    /// The position of the last unit in `text`.
    pub position: u64,
}

/// A reader of the stream: a file, a backlog, a feed. The merging thread calls it outside the gate,
/// without locks.
pub trait LogReader: Send {
    /// Takes the next part of the stream. Returns the position up to which this reader permits the
    /// release of replies; [`u64::MAX`] if replies need not wait for it. The reader may confirm
    /// higher positions later ([`ChangeLog::confirm`](super::ChangeLog::confirm)).
    fn append(&mut self, batch: &LogBatch<'_>) -> u64;
}

/// The number of bytes that a reader holds because it cannot pass them on at present. Beyond a
/// bound, writes wait ([`ChangeLog::is_full`](super::ChangeLog::is_full)).
#[derive(Clone, Debug, Default)]
pub struct RetainedBytes(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl RetainedBytes {
    /// Sets the number of bytes. Any thread may call it.
    pub fn set(&self, len_bytes: usize) {
        // Relaxed: the figure only serves a limit.
        self.0.store(len_bytes, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A chunk that is being merged.
#[derive(Default)]
struct Taken {
    chunk: Chunk,
    /// The index of the next header to merge in the chunk.
    at: usize,
    /// The start of the record to merge next.
    start: TextEnd,
}

impl Taken {
    fn front(&self) -> Option<&Header> {
        self.chunk.headers.get(self.at)
    }
}

/// The state of the merger. Owned by one thread at a time.
pub(super) struct Merger {
    taken: Box<[Taken]>,
    /// The next position to merge.
    next: u64,
    /// The database that is selected at the end of the stream; `None` if the next record must begin
    /// with a SELECT.
    selected: Option<u32>,
    readers: [Option<Box<dyn LogReader>>; READERS_MAX],
    out: Text,
    offset: u64,
}

impl Merger {
    /// Creates a merger for this number of buffers.
    pub fn new(buffers: usize) -> Self {
        Self {
            taken: (0..buffers).map(|_| Taken::default()).collect(),
            next: 1,
            selected: None,
            readers: Default::default(),
            out: Text::default(),
            offset: 0,
        }
    }

    /// Returns the last merged position and the length of the stream.
    pub fn progress(&self) -> Progress {
        Progress { position: self.next - 1, offset_bytes: self.offset }
    }

    /// Adds a reader of everything after position `cut`. Everything up to `cut` must be merged.
    /// Returns `None` if there are too many readers.
    pub fn attach(&mut self, reader: Box<dyn LogReader>, cut: u64) -> Option<ReaderId> {
        debug_assert_eq!(self.next, cut + 1, "all that was drawn is merged");
        let place = self.readers.iter().position(Option::is_none)?;
        self.readers[place] = Some(reader);
        self.begin_part();
        Some(ReaderId(place))
    }

    /// Begins a new part of the stream, which can be read without the stream before: its first
    /// command is a SELECT.
    pub fn begin_part(&mut self) {
        self.selected = None;
    }

    /// Removes a reader and returns it.
    pub fn detach(&mut self, id: ReaderId) -> Option<Box<dyn LogReader>> {
        self.readers[id.0].take()
    }

    /// Returns true if there is a reader.
    pub fn has_readers(&self) -> bool {
        self.readers.iter().any(Option::is_some)
    }

    /// Lists the readers.
    pub fn readers(&self) -> Vec<ReaderId> {
        (0..READERS_MAX).filter(|&place| self.readers[place].is_some()).map(ReaderId).collect()
    }

    /// Merges records from the buffers, about [`BATCH_BYTES_MAX`] at most, and passes them to the
    /// readers. Returns the position that each reader confirms; `None` if there was nothing to
    /// merge. O(bytes + records × threads).
    pub fn run(&mut self, buffers: &[Buffer]) -> Option<impl Iterator<Item = (ReaderId, u64)> + use<>> {
        let from = self.next;
        while self.out.len_bytes() < BATCH_BYTES_MAX && self.merge_some(buffers) {}
        if self.next == from {
            return None;
        }
        let batch = LogBatch { text: &self.out, offset: self.offset, position: self.next - 1 };
        let mut confirmed = [None; READERS_MAX];
        for (reader, confirmed) in self.readers.iter_mut().zip(&mut confirmed) {
            *confirmed = reader.as_mut().map(|reader| reader.append(&batch));
        }
        self.offset += self.out.len_bytes() as u64;
        self.out.clear();
        let confirmed = confirmed.into_iter().enumerate();
        Some(confirmed.filter_map(|(place, position)| position.map(|it| (ReaderId(place), it))))
    }

    /// Merges records from one buffer. They begin with the next position, and their positions are
    /// consecutive. Returns false if no buffer has the next position.
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
                let mut stream = Stream { selected: &mut self.selected, out: &mut self.out, taken_bytes: 0 };
                self.next = stream.take(taken, next);
                buffer.merged(stream.taken_bytes);
                return true;
            }
        }
        false
    }
}

/// The end of the stream, while records are appended to it.
struct Stream<'m> {
    selected: &'m mut Option<u32>,
    out: &'m mut Text,
    /// The bytes of records taken from one buffer so far.
    taken_bytes: usize,
}

impl Stream<'_> {
    /// Appends records of `taken` with consecutive positions from `next` on. Returns the position
    /// after the last of them.
    fn take(&mut self, taken: &mut Taken, mut next: u64) -> u64 {
        // Consecutive records without a command between them are copied together.
        let mut copied = taken.start;
        while let Some(&header) = taken.front()
            && header.position == next
            && self.out.len_bytes() + (taken.start.bytes - copied.bytes) < BATCH_BYTES_MAX
        {
            if header.is_transaction || *self.selected != Some(header.first_db) {
                self.copy(taken, &mut copied);
                self.begin(&header);
            }
            *self.selected = Some(header.last_db);
            (taken.start, taken.at, next) = (header.end, taken.at + 1, next + 1);
            if header.is_transaction {
                self.copy(taken, &mut copied);
                self.out.bytes.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
            }
        }
        self.copy(taken, &mut copied);
        next
    }

    /// Copies the records of `taken` from `*copied` up to `taken.start`.
    fn copy(&mut self, taken: &Taken, copied: &mut TextEnd) {
        self.taken_bytes += self.out.extend_from(&taken.chunk.text, *copied, taken.start);
        *copied = taken.start;
    }

    /// Writes the MULTI and SELECT that must precede a record.
    fn begin(&mut self, header: &Header) {
        if header.is_transaction {
            self.out.bytes.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        }
        if *self.selected != Some(header.first_db) {
            encode_select(header.first_db as usize, &mut self.out.bytes);
        }
    }
}

//! The spool of a full sync: a queue for the bytes of one snapshot between its writer and the
//! replicas that receive it.
//!
//! ```text
//!   writer ─► [ block … block ][ block … block ] ─► reader 1, near the end: from memory
//!              └ in files      └ in memory       ─► reader 2, far behind: from the files
//! ```
//! Each reader reads at its own pace, and the slowest never slows the writer. The writer is the
//! walk over the keyspace: writers of keys wait for it, so it must not wait for a socket. The
//! newest blocks are in memory, up to [`Limits::memory_bytes`]: a small part of the data's memory,
//! because no option bounds it. Older ones that a reader still needs are in temporary files without
//! names, in the data folder. Blocks that no reader needs any more are dropped. A file is closed,
//! which frees its space, with its last block. The memory of all blocks is counted from their
//! allocation until they are freed ([`SpoolMemory`]).
//!
//! The lock is a leaf, and no file is written or read while it is held. An error while a file is
//! written ends the spool for all readers, because bytes would be missing. An error while a file is
//! read is returned to its reader. It ends the spool for all readers if the writer has not ended.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use persist::folder::{FileError, Unsaved, temporary_sync_name};
use persist::save::{ChunkSink, Failed};
use stdx::byte_queue::SharedBytes;

/// The sizes at which a spool begins a new block or file, and moves blocks to files.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The number of bytes of a spool in memory above which the oldest blocks are moved to a file.
    memory_bytes: usize,
    /// The maximum length of a block of the spool, in bytes.
    block_bytes: usize,
    /// The length of a spool's temporary file in bytes from which the next file is used.
    file_bytes: u64,
}

impl Limits {
    /// Returns the sizes for the spool of a snapshot whose data takes `data_bytes` bytes in memory.
    fn for_data(data_bytes: usize) -> Self {
        let memory_bytes = (data_bytes / DATA_PARTS).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        Self { memory_bytes, block_bytes: 256 << 10, file_bytes: 256 << 20 }
    }
}

/// The divisor of the data's size in memory that gives the number of bytes which a spool keeps in
/// memory, between its two bounds.
const DATA_PARTS: usize = 64;
/// The lower bound of the number of bytes that a spool keeps in memory.
const MEMORY_BYTES_MIN: usize = 4 << 20;
/// The upper bound of the number of bytes that a spool keeps in memory.
const MEMORY_BYTES_MAX: usize = 32 << 20;

/// The count of the bytes that the blocks of all spools of a server take in memory, including those
/// that are being sent.
pub type SpoolMemory = Arc<AtomicU64>;

/// A function that is called when new bytes of the snapshot, or its end, have arrived for a reader
/// that had found none.
pub type OnProgress = Box<dyn Fn() + Send + Sync>;

/// A function that is called when all readers of a spool are dropped before its writer has ended.
pub type OnAbandoned = Box<dyn Fn() + Send + Sync>;

/// A queue for the bytes of one snapshot, with one writer and a fixed number of readers. Old blocks
/// are in files.
pub struct Spool {
    state: Mutex<State>,
    files: Box<dyn SpoolFiles>,
    limits: Limits,
    memory: SpoolMemory,
    on_progress: OnProgress,
    on_abandoned: OnceLock<OnAbandoned>,
}

/// The result of a read from a spool: bytes of the snapshot, or none at present, or its end.
pub enum Piece {
    /// The next bytes of the snapshot, for this reader.
    Bytes(SharedBytes),
    /// No bytes at present. [`OnProgress`] is called when the writer has written more or has ended.
    Pending,
    /// The reader has read the whole snapshot.
    End,
}

/// A reader of a spool. Dropping it frees the blocks that only this reader needs.
pub struct SpoolReader {
    spool: Arc<Spool>,
    number: usize,
}

/// The state of a spool, which its lock protects. A spool is the queue of a snapshot's bytes
/// between its writer and the replicas that receive it.
struct State {
    /// The blocks that at least one reader still needs, in order and without gaps. Those in files
    /// come first.
    blocks: VecDeque<Block>,
    /// The number of bytes of the snapshot that the writer has written so far.
    len_bytes: u64,
    /// The total number of bytes of the spool's blocks that are in memory.
    memory_bytes: usize,
    /// The progress of each reader; `None` if the reader was dropped.
    cursors: Vec<Option<Cursor>>,
    /// The temporary file to which blocks are moved at present; `None` if no block is in it.
    segment: Option<Segment>,
    /// The result of the snapshot's writer; `None` until it has ended.
    end: Option<Result<(), Unsaved>>,
}

/// A block of a spool: consecutive bytes of the snapshot.
struct Block {
    /// The offset of the block's first byte in the snapshot.
    at: u64,
    len_bytes: usize,
    place: Place,
}

impl Block {
    fn end(&self) -> u64 {
        self.at + self.len_bytes as u64
    }
}

/// The bytes of a block of a spool, in memory.
struct Held {
    bytes: Vec<u8>,
    memory: SpoolMemory,
}

impl Held {
    /// Creates a block with room for `block_bytes`, and counts its memory.
    fn new(block_bytes: usize, memory: &SpoolMemory) -> Self {
        let bytes = Vec::with_capacity(block_bytes);
        // Relaxed, here and below: the count serves limits and statistics.
        memory.fetch_add(bytes.capacity() as u64, Relaxed);
        Self { bytes, memory: Arc::clone(memory) }
    }

    /// Returns the number of bytes for which the block still has room.
    fn room(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.fetch_sub(self.bytes.capacity() as u64, Relaxed);
    }
}

/// The place of a block's bytes: memory or a temporary file.
enum Place {
    Memory(Arc<Held>),
    File {
        file: Arc<dyn SpoolFile>,
        /// The offset of the block in the temporary file, in bytes.
        at: u64,
    },
}

/// The progress of one reader of a spool in the snapshot.
#[derive(Clone, Copy)]
struct Cursor {
    at: u64,
    /// True if the reader has found no more bytes, and [`OnProgress`] was not called since then.
    is_waiting: bool,
}

/// A temporary file of a spool, and its length.
#[derive(Clone)]
struct Segment {
    file: Arc<dyn SpoolFile>,
    len_bytes: u64,
}

/// A temporary file of a spool.
trait SpoolFile: Send + Sync {
    /// Writes all of `bytes` to the file at the offset `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Fills the whole buffer with the bytes of the file from the offset `at` on.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

/// A source of temporary files for a spool.
trait SpoolFiles: Send + Sync {
    /// Creates an empty file, whose space is freed when the returned value is dropped.
    fn create(&self) -> io::Result<Arc<dyn SpoolFile>>;
}

/// A source of temporary files in this folder. The files have no names, so the system frees them
/// even after a crash.
struct UnnamedFiles(PathBuf);

impl SpoolFiles for UnnamedFiles {
    fn create(&self) -> io::Result<Arc<dyn SpoolFile>> {
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        #[cfg(target_os = "linux")]
        {
            let unnamed = rustix::fs::OFlags::TMPFILE.bits() as i32;
            if let Ok(file) = options.clone().custom_flags(unnamed).open(&self.0) {
                return Ok(Arc::new(file));
            }
        }
        // Not all file systems have files without names.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = temporary_sync_name(std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = self.0.join(name);
        let file = options.create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Arc::new(file))
    }
}

impl SpoolFile for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }
}

/// A part of a spool's block whose bytes are in memory.
struct Slice {
    block: Arc<Held>,
    from: usize,
    to: usize,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.block.bytes[self.from..self.to]
    }
}

/// The place of the bytes that a reader of the spool reads next.
enum Found {
    Memory(Slice),
    File { file: Arc<dyn SpoolFile>, at: u64, len_bytes: usize },
    Pending,
    End,
}

impl State {
    fn new(reader_count: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            len_bytes: 0,
            memory_bytes: 0,
            cursors: vec![Some(Cursor { at: 0, is_waiting: false }); reader_count],
            segment: None,
            end: None,
        }
    }

    fn has_readers(&self) -> bool {
        self.cursors.iter().any(Option::is_some)
    }

    /// Appends bytes to the last block of the spool while it has room, and the rest to a new block.
    /// `bytes` has at most `block_bytes` bytes.
    fn push(&mut self, mut bytes: &[u8], (block_bytes, memory): (usize, &SpoolMemory)) {
        self.len_bytes += bytes.len() as u64;
        self.memory_bytes += bytes.len();
        if let Some(last) = self.blocks.back_mut()
            && let Place::Memory(held) = &mut last.place
            // A reader may be sending the block.
            && let Some(held) = Arc::get_mut(held)
        {
            let (here, rest) = bytes.split_at(bytes.len().min(held.room()));
            held.bytes.extend_from_slice(here);
            last.len_bytes += here.len();
            bytes = rest;
        }
        if !bytes.is_empty() {
            let mut held = Held::new(block_bytes, memory);
            held.bytes.extend_from_slice(bytes);
            let (at, len_bytes) = (self.len_bytes - bytes.len() as u64, bytes.len());
            self.blocks.push_back(Block { at, len_bytes, place: Place::Memory(Arc::new(held)) });
        }
    }

    /// Returns true if a reader waits for bytes, and records that no reader waits any more.
    fn take_waiting(&mut self) -> bool {
        let mut is_any = false;
        for cursor in self.cursors.iter_mut().flatten() {
            is_any |= std::mem::take(&mut cursor.is_waiting);
        }
        is_any
    }

    /// Returns the place of the next bytes of reader `number`, at most `bytes_max`. Records that
    /// the reader waits if there are none.
    fn find(&mut self, number: usize, bytes_max: usize) -> Result<Found, Unsaved> {
        if let Some(Err(unsaved)) = &self.end {
            return Err(unsaved.clone());
        }
        let cursor = self.cursors[number].as_mut().expect("the reader exists");
        if cursor.at == self.len_bytes {
            cursor.is_waiting = self.end.is_none();
            return Ok(if cursor.is_waiting { Found::Pending } else { Found::End });
        }
        let block = &self.blocks[self.blocks.partition_point(|block| block.end() <= cursor.at)];
        let from = (cursor.at - block.at) as usize;
        let len_bytes = bytes_max.max(1).min(block.len_bytes - from);
        Ok(match &block.place {
            Place::Memory(held) => {
                Found::Memory(Slice { block: Arc::clone(held), from, to: from + len_bytes })
            }
            Place::File { file, at } => {
                Found::File { file: Arc::clone(file), at: at + from as u64, len_bytes }
            }
        })
    }

    /// Records that reader `number` has read `len_bytes` more bytes. Returns the blocks that no
    /// reader needs any more, which the caller drops after it has released the lock.
    fn advance(&mut self, number: usize, len_bytes: usize) -> Unneeded {
        self.cursors[number].as_mut().expect("the reader exists").at += len_bytes as u64;
        self.take_unneeded()
    }

    /// Removes the blocks that no reader needs, and the file to which blocks are moved if no block
    /// is in it. Returns them.
    fn take_unneeded(&mut self) -> Unneeded {
        let needed_from = self.cursors.iter().flatten().map(|cursor| cursor.at).min();
        let is_failed = matches!(self.end, Some(Err(_)));
        let is_needed = |block: &Block| !is_failed && needed_from.is_some_and(|from| block.end() > from);
        let mut blocks = Vec::new();
        while self.blocks.front().is_some_and(|block| !is_needed(block)) {
            let block = self.blocks.pop_front().expect("there is one");
            if let Place::Memory(_) = block.place {
                self.memory_bytes -= block.len_bytes;
            }
            blocks.push(block);
        }
        // The files' blocks come first, so none is left if the first block is in memory.
        let is_in_file = |block: &Block| matches!(block.place, Place::File { .. });
        let segment = self.segment.take_if(|_| !self.blocks.front().is_some_and(is_in_file));
        Unneeded { _blocks: blocks, _segment: segment }
    }

    /// Returns the oldest block in memory, with the file to which blocks are moved, if there are
    /// too many bytes in memory.
    fn oldest_above(&self, memory_bytes: usize) -> Option<(u64, Arc<Held>, Option<Segment>)> {
        if self.memory_bytes <= memory_bytes {
            return None;
        }
        let oldest = self.blocks.partition_point(|block| matches!(block.place, Place::File { .. }));
        let block = self.blocks.get(oldest)?;
        let Place::Memory(held) = &block.place else { return None };
        Some((block.at, Arc::clone(held), self.segment.clone()))
    }

    /// Records that the block at offset `at` was written to the end of the file `segment`. Returns
    /// the blocks that no reader needs any more, which the caller drops after it has released the
    /// lock.
    fn moved(&mut self, at: u64, segment: Segment) -> Unneeded {
        let place = self.blocks.partition_point(|block| block.at < at);
        if let Some(block) = self.blocks.get_mut(place).filter(|block| block.at == at) {
            let file = Arc::clone(&segment.file);
            block.place = Place::File { file, at: segment.len_bytes };
            let len_bytes = segment.len_bytes + block.len_bytes as u64;
            self.memory_bytes -= block.len_bytes;
            self.segment = Some(Segment { len_bytes, ..segment });
        }
        self.take_unneeded()
    }
}

/// The blocks, and perhaps a file, that no reader needs. Dropping the value frees their memory and
/// disk space.
struct Unneeded {
    _blocks: Vec<Block>,
    _segment: Option<Segment>,
}

/// The resources of a spool: its folder for temporary files, and the count of its memory.
pub struct SpoolResources {
    /// The folder in which files are created when they are needed.
    pub folder: PathBuf,
    /// The size in memory of the data that the snapshot will contain, in bytes.
    pub data_bytes: usize,
    /// The counter to which the spool adds the memory of its blocks.
    pub memory: SpoolMemory,
}

impl Spool {
    /// Creates a spool without bytes, and its readers. `on_progress` is called without a lock, by
    /// the writer's thread.
    pub fn new(
        resources: SpoolResources,
        reader_count: usize,
        on_progress: OnProgress,
    ) -> (Arc<Self>, Vec<SpoolReader>) {
        let SpoolResources { folder, data_bytes, memory } = resources;
        let files = Box::new(UnnamedFiles(folder));
        Self::with_files(files, (Limits::for_data(data_bytes), memory), (reader_count, on_progress))
    }

    fn with_files(
        files: Box<dyn SpoolFiles>,
        (limits, memory): (Limits, SpoolMemory),
        (reader_count, on_progress): (usize, OnProgress),
    ) -> (Arc<Self>, Vec<SpoolReader>) {
        let state = Mutex::new(State::new(reader_count));
        let on_abandoned = OnceLock::new();
        let spool = Arc::new(Self { state, files, limits, memory, on_progress, on_abandoned });
        let reader = |number| SpoolReader { spool: Arc::clone(&spool), number };
        let readers = (0..reader_count).map(reader).collect();
        (spool, readers)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Sets the function that is called once, without holding a lock, when all readers are dropped.
    /// Calls it at once if all are dropped already. Without such a function, only the writer's next
    /// append fails.
    pub fn set_on_abandoned(&self, on_abandoned: OnAbandoned) {
        let set = self.on_abandoned.set(on_abandoned);
        debug_assert!(set.is_ok(), "it is set once");
        self.check_abandoned();
    }

    /// Calls the function for abandoned spools if all readers are dropped and the writer has not
    /// ended.
    fn check_abandoned(&self) {
        let is_abandoned = {
            let state = self.state();
            state.end.is_none() && !state.has_readers()
        };
        if let Some(on_abandoned) = self.on_abandoned.get().filter(|_| is_abandoned) {
            on_abandoned();
        }
    }

    /// Returns true if at least one reader of the spool exists.
    pub fn has_readers(&self) -> bool {
        self.state().has_readers()
    }

    /// Returns the length of the whole snapshot in bytes; `None` until the writer has written all
    /// of it.
    pub fn total_len_bytes(&self) -> Option<u64> {
        let state = self.state();
        matches!(state.end, Some(Ok(()))).then_some(state.len_bytes)
    }

    /// Returns the error that ended the spool; `None` if there was none.
    pub fn failure(&self) -> Option<Unsaved> {
        self.state().end.clone().and_then(Result::err)
    }

    /// Returns the number of bytes of the snapshot that are in memory.
    #[cfg(test)]
    pub fn memory_bytes(&self) -> usize {
        self.state().memory_bytes
    }

    /// Ends the snapshot: successfully, or with an error that every reader gets; an error drops all
    /// bytes. Only the first call has an effect. So the error of a temporary file is not replaced
    /// by an error that follows from it.
    pub fn end(&self, result: Result<(), Unsaved>) {
        let (is_awaited, unneeded) = {
            let mut state = self.state();
            if state.end.is_some() {
                return;
            }
            state.end = Some(result);
            (state.take_waiting(), state.take_unneeded())
        };
        drop(unneeded);
        if is_awaited {
            (self.on_progress)();
        }
    }

    /// Appends `bytes`, at most the length of one block, and calls [`OnProgress`] if a reader waits
    /// for them.
    fn push(&self, bytes: &[u8]) -> Result<(), Failed> {
        let is_awaited = {
            let mut state = self.state();
            if state.end.is_some() || !state.has_readers() {
                return Err(Failed);
            }
            state.push(bytes, (self.limits.block_bytes, &self.memory));
            state.take_waiting()
        };
        if is_awaited {
            (self.on_progress)();
        }
        Ok(())
    }

    /// Moves the oldest blocks to temporary files, until the bytes in memory are within the limit.
    fn spill(&self) -> io::Result<()> {
        loop {
            let oldest = self.state().oldest_above(self.limits.memory_bytes);
            let Some((at, held, segment)) = oldest else { return Ok(()) };
            let segment = match segment.filter(|segment| segment.len_bytes < self.limits.file_bytes) {
                Some(segment) => segment,
                None => Segment { file: self.files.create()?, len_bytes: 0 },
            };
            segment.file.write_at(&held.bytes, segment.len_bytes)?;
            let unneeded = self.state().moved(at, segment);
            drop(unneeded);
        }
    }

    /// Ends the spool with an error because a temporary file could not be written or read. Returns
    /// the error.
    fn fail(&self, action: &str, error: &io::Error) -> Unsaved {
        let unsaved = Unsaved::Failed(FileError(format!(
            "cannot {action} the temporary file of a full sync, in 'dir': {error}"
        )));
        self.end(Err(unsaved.clone()));
        unsaved
    }
}

impl ChunkSink for Spool {
    fn append(&self, bytes: &[u8]) -> Result<(), Failed> {
        for part in bytes.chunks(self.limits.block_bytes) {
            self.push(part)?;
            if let Err(error) = self.spill() {
                self.fail("write", &error);
                return Err(Failed);
            }
        }
        Ok(())
    }
}

impl SpoolReader {
    /// Returns the next bytes of the snapshot, at most `bytes_max`. Never waits for the writer, but
    /// may read a file.
    ///
    /// # Errors
    /// If the snapshot has failed, or a temporary file cannot be read.
    pub fn next(&mut self, bytes_max: usize) -> Result<Piece, Unsaved> {
        let (slice, unneeded) = {
            let mut state = self.spool.state();
            match state.find(self.number, bytes_max)? {
                Found::Pending => return Ok(Piece::Pending),
                Found::End => return Ok(Piece::End),
                Found::File { file, at, len_bytes } => {
                    drop(state);
                    return self.read_back(&*file, at, len_bytes);
                }
                Found::Memory(slice) => {
                    let unneeded = state.advance(self.number, slice.to - slice.from);
                    (slice, unneeded)
                }
            }
        };
        drop(unneeded);
        Ok(Piece::Bytes(Arc::new(slice)))
    }

    fn read_back(&mut self, file: &dyn SpoolFile, at: u64, len_bytes: usize) -> Result<Piece, Unsaved> {
        let mut held = Held::new(len_bytes, &self.spool.memory);
        held.bytes.resize(len_bytes, 0);
        file.read_at(&mut held.bytes, at).map_err(|error| self.spool.fail("read", &error))?;
        let unneeded = self.spool.state().advance(self.number, len_bytes);
        drop(unneeded);
        Ok(Piece::Bytes(Arc::new(Slice { block: Arc::new(held), from: 0, to: len_bytes })))
    }

    /// Returns the number of bytes that this reader has read so far.
    pub fn read_bytes(&self) -> u64 {
        self.spool.state().cursors[self.number].map_or(0, |cursor| cursor.at)
    }

    /// Returns the spool from which this reader reads.
    pub fn spool(&self) -> &Arc<Spool> {
        &self.spool
    }
}

impl Drop for SpoolReader {
    fn drop(&mut self) {
        let unneeded = {
            let mut state = self.spool.state();
            state.cursors[self.number] = None;
            state.take_unneeded()
        };
        drop(unneeded);
        self.spool.check_abandoned();
    }
}

#[cfg(test)]
mod tests;

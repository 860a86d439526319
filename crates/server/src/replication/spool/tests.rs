//! Tests of the spool: temporary files that fail, and random interleavings of the writer and the
//! readers.

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use testkit::Rng;

use super::*;

const SMALL: Limits = Limits { memory_bytes: 256, block_bytes: 64, file_bytes: 512 };

/// A source of temporary files that are in memory and can fail.
#[derive(Default)]
struct TestDisk {
    created: AtomicUsize,
    open: AtomicUsize,
    /// The total number of written bytes above which writes fail; 0 if they never fail.
    bytes_max: AtomicUsize,
    written_bytes: AtomicUsize,
    fails_reads: AtomicBool,
}

struct TestFile {
    disk: Arc<TestDisk>,
    bytes: Mutex<Vec<u8>>,
}

impl Drop for TestFile {
    fn drop(&mut self) {
        self.disk.open.fetch_sub(1, Relaxed);
    }
}

impl SpoolFiles for Arc<TestDisk> {
    fn create(&self) -> io::Result<Arc<dyn SpoolFile>> {
        self.created.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Ok(Arc::new(TestFile { disk: Arc::clone(self), bytes: Mutex::default() }))
    }
}

impl SpoolFile for TestFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let written_bytes = self.disk.written_bytes.fetch_add(bytes.len(), Relaxed) + bytes.len();
        let bytes_max = self.disk.bytes_max.load(Relaxed);
        if bytes_max > 0 && written_bytes > bytes_max {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (mut held, at) = (self.bytes.lock().expect("unlocked"), at as usize);
        let len = held.len().max(at + bytes.len());
        held.resize(len, 0);
        held[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if self.disk.fails_reads.load(Relaxed) {
            return Err(io::Error::other("bad sector"));
        }
        let held = self.bytes.lock().expect("unlocked");
        let here = held.get(at as usize..at as usize + buffer.len());
        buffer.copy_from_slice(here.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A spool on a test disk, with its readers and the number of calls of [`OnProgress`].
struct Tested {
    disk: Arc<TestDisk>,
    calls: Arc<AtomicUsize>,
    memory: SpoolMemory,
    spool: Arc<Spool>,
    readers: Vec<SpoolReader>,
}

fn tested(reader_count: usize) -> Tested {
    let (disk, calls) = (Arc::<TestDisk>::default(), Arc::<AtomicUsize>::default());
    let counted = Arc::clone(&calls);
    let on_progress = Box::new(move || {
        counted.fetch_add(1, Relaxed);
    });
    let memory = SpoolMemory::default();
    let limits = (SMALL, Arc::clone(&memory));
    let (spool, readers) =
        Spool::with_files(Box::new(Arc::clone(&disk)), limits, (reader_count, on_progress));
    Tested { disk, calls, memory, spool, readers }
}

fn bytes_of(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Appends bytes of the spool to `read` until the reader finds no more. Returns true if it has read
/// the whole snapshot.
fn drain(reader: &mut SpoolReader, read: &mut Vec<u8>) -> bool {
    loop {
        match reader.next(50).expect("no failure") {
            Piece::Bytes(bytes) => read.extend_from_slice((*bytes).as_ref()),
            Piece::Pending => return false,
            Piece::End => return true,
        }
    }
}

fn error_of(result: Result<Piece, Unsaved>) -> String {
    match result {
        Err(Unsaved::Failed(trouble)) => trouble.to_string(),
        Err(Unsaved::Cancelled) => "cancelled".to_owned(),
        Ok(_) => "none".to_owned(),
    }
}

#[test]
fn a_slow_reader_gets_from_files_what_a_fast_one_gets_from_memory() {
    let Tested { disk, spool, mut readers, .. } = tested(2);
    let (mut rng, mut all, mut fast) = (Rng::new(1), Vec::new(), Vec::new());
    for _ in 0..100 {
        let bytes = bytes_of(64, &mut rng);
        spool.append(&bytes).expect("no failure");
        all.extend(bytes);
        assert!(!drain(&mut readers[0], &mut fast));
        assert_eq!(fast.len(), all.len());
        assert!(spool.memory_bytes() <= SMALL.memory_bytes);
    }
    assert_eq!(readers[0].read_bytes(), 6400);
    assert_eq!(readers[1].read_bytes(), 0);
    assert_eq!(disk.open.load(Relaxed), (6400 - 256) / 512);
    let mut slow = Vec::new();
    assert!(!drain(&mut readers[1], &mut slow));
    assert!(fast == all && slow == all);
    assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0), "nothing is needed any more");
    // The spool can be used further.
    spool.append(b"more").expect("no failure");
    spool.end(Ok(()));
    for reader in &mut readers {
        let mut rest = Vec::new();
        assert!(drain(reader, &mut rest));
        assert_eq!(rest, b"more");
    }
}

#[test]
fn one_append_may_be_longer_than_the_memory() {
    let Tested { disk, spool, mut readers, .. } = tested(1);
    let bytes = bytes_of(100_000, &mut Rng::new(1));
    spool.append(&bytes).expect("no failure");
    assert!(spool.memory_bytes() <= SMALL.memory_bytes);
    assert_eq!(spool.total_len_bytes(), None);
    spool.end(Ok(()));
    assert_eq!(spool.total_len_bytes(), Some(100_000));
    let (mut read, mut open) = (Vec::new(), disk.open.load(Relaxed));
    while let Piece::Bytes(bytes) = readers[0].next(1000).expect("no failure") {
        read.extend_from_slice((*bytes).as_ref());
        let now_open = disk.open.load(Relaxed);
        assert!(now_open <= open, "files are closed one after another");
        open = now_open;
    }
    assert!(read == bytes);
    assert_eq!(open, 0);
}

#[test]
fn a_piece_stays_valid_after_its_block_was_moved_or_dropped() {
    let Tested { memory, spool, mut readers, .. } = tested(1);
    spool.append(b"first").expect("no failure");
    let Ok(Piece::Bytes(piece)) = readers[0].next(3) else { panic!("bytes") };
    spool.append(&[b'x'; 1000]).expect("no failure");
    assert_eq!((*piece).as_ref(), b"fir");
    readers.clear();
    assert_eq!((*piece).as_ref(), b"fir");
    assert_eq!(
        (spool.memory_bytes(), memory.load(Relaxed)),
        (0, 64),
        "the block is counted until it is freed"
    );
    drop(piece);
    assert_eq!(memory.load(Relaxed), 0);
}

#[test]
fn the_memory_of_a_spool_is_a_small_part_of_that_of_the_data() {
    let memory_bytes = |data_bytes| Limits::for_data(data_bytes).memory_bytes;
    assert_eq!([0, 1 << 20, 256 << 20].map(memory_bytes), [4 << 20; 3]);
    assert_eq!(memory_bytes(1 << 30), 16 << 20);
    assert_eq!([2 << 30, 1 << 40].map(memory_bytes), [32 << 20; 2]);
}

#[test]
fn the_writer_learns_that_no_reader_is_left() {
    let Tested { disk, spool, mut readers, .. } = tested(2);
    spool.append(&[1; 2000]).expect("no failure");
    assert!(disk.open.load(Relaxed) > 0);
    drop(readers.pop());
    assert!(spool.has_readers());
    spool.append(&[1; 2000]).expect("no failure");
    drop(readers.pop());
    assert!(!spool.has_readers());
    assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0));
    assert_eq!(spool.append(b"more"), Err(Failed));
}

#[test]
fn a_writer_without_bytes_learns_that_no_reader_is_left() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = || {
        let calls = Arc::clone(&calls);
        Box::new(move || _ = calls.fetch_add(1, Relaxed))
    };
    let Tested { spool, mut readers, .. } = tested(2);
    spool.set_on_abandoned(counted());
    drop(readers.pop());
    assert_eq!(calls.load(Relaxed), 0, "a reader is left");
    drop(readers.pop());
    assert_eq!(calls.load(Relaxed), 1);
    let Tested { spool, readers, .. } = tested(1);
    drop(readers);
    spool.set_on_abandoned(counted());
    assert_eq!(calls.load(Relaxed), 2, "the reader had left before");
    let Tested { spool, readers, .. } = tested(1);
    spool.set_on_abandoned(counted());
    spool.end(Ok(()));
    drop(readers);
    assert_eq!(calls.load(Relaxed), 2, "the writer had ended");
}

#[test]
fn a_slow_reader_that_leaves_frees_what_only_it_needs() {
    let Tested { disk, spool, mut readers, .. } = tested(2);
    spool.append(&[1; 5000]).expect("no failure");
    assert!(!drain(&mut readers[0], &mut Vec::new()));
    assert!(disk.open.load(Relaxed) > 0);
    drop(readers.pop());
    assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0));
}

#[test]
fn a_reader_that_waits_is_called_once() {
    let Tested { calls, spool, mut readers, .. } = tested(2);
    spool.append(b"1").expect("no failure");
    assert_eq!(calls.load(Relaxed), 0, "nobody waits");
    assert!(!drain(&mut readers[0], &mut Vec::new()));
    assert!(!drain(&mut readers[1], &mut Vec::new()));
    spool.append(b"2").expect("no failure");
    spool.append(b"3").expect("no failure");
    assert_eq!(calls.load(Relaxed), 1);
    assert!(!drain(&mut readers[0], &mut Vec::new()));
    spool.end(Ok(()));
    spool.end(Err(Unsaved::Cancelled));
    assert_eq!(calls.load(Relaxed), 2);
    assert!(drain(&mut readers[0], &mut Vec::new()));
    assert!(drain(&mut readers[1], &mut Vec::new()));
    assert_eq!(calls.load(Relaxed), 2, "the first end counts");
}

#[test]
fn a_full_disk_ends_the_spool_for_all_readers() {
    let Tested { disk, calls, spool, mut readers, .. } = tested(2);
    disk.bytes_max.store(1000, Relaxed);
    assert!(!drain(&mut readers[0], &mut Vec::new()));
    assert_eq!(spool.append(&[1; 5000]), Err(Failed));
    assert!(calls.load(Relaxed) > 0);
    // The save then ends with an error that states no reason.
    spool.end(Err(Unsaved::Cancelled));
    let expected = "cannot write the temporary file of a full sync, in 'dir': no storage space";
    for reader in &mut readers {
        assert_eq!(error_of(reader.next(10)), expected);
    }
    assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0));
    assert_eq!(spool.total_len_bytes(), None);
    assert_eq!(spool.append(b"more"), Err(Failed));
}

#[test]
fn a_file_that_cannot_be_read_or_created_ends_the_spool() {
    let Tested { disk, spool, mut readers, .. } = tested(1);
    spool.append(&[1; 1000]).expect("no failure");
    disk.fails_reads.store(true, Relaxed);
    let expected = "cannot read the temporary file of a full sync, in 'dir': bad sector";
    assert_eq!(error_of(readers[0].next(10)), expected);
    assert_eq!(error_of(readers[0].next(10)), expected);
    assert_eq!(spool.append(b"more"), Err(Failed));
    let files = Box::new(UnnamedFiles(PathBuf::from("/nonexistent")));
    let (spool, mut readers) =
        Spool::with_files(files, (SMALL, SpoolMemory::default()), (1, Box::new(|| ())));
    assert_eq!(spool.append(&[1; 1000]), Err(Failed));
    assert!(error_of(readers[0].next(10)).ends_with("No such file or directory (os error 2)"));
}

#[test]
fn a_cancelled_writer_drops_everything() {
    let Tested { disk, spool, mut readers, .. } = tested(1);
    spool.append(&[1; 1000]).expect("no failure");
    spool.end(Err(Unsaved::Cancelled));
    assert_eq!(error_of(readers[0].next(10)), "cancelled");
    assert_eq!(spool.failure(), Some(Unsaved::Cancelled));
    assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0));
}

/// A reader of a spool, and its progress in the expected bytes.
struct Checked {
    reader: SpoolReader,
    at: usize,
    /// The number of calls of [`OnProgress`] at the time when the reader last found no bytes.
    waits_since: Option<usize>,
}

/// Performs one read of random length and checks the bytes. Returns false at the end of the
/// snapshot.
fn check_step(checked: &mut Checked, all: &[u8], (rng, calls): (&mut Rng, usize)) -> bool {
    match checked.reader.next(rng.below(200)).expect("no failure") {
        Piece::Bytes(bytes) => {
            let bytes = (*bytes).as_ref();
            assert!(!bytes.is_empty());
            assert_eq!(bytes, &all[checked.at..checked.at + bytes.len()]);
            checked.at += bytes.len();
            checked.waits_since = None;
        }
        Piece::Pending => {
            assert_eq!(checked.at, all.len());
            checked.waits_since = Some(calls);
        }
        Piece::End => {
            assert_eq!(checked.at, all.len());
            return false;
        }
    }
    assert_eq!(checked.reader.read_bytes(), checked.at as u64);
    true
}

#[test]
fn any_interleaving_gives_every_reader_all_bytes() {
    let mut created = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let Tested { disk, calls, memory, spool, readers } = tested(1 + rng.below(4));
        let mut readers: Vec<_> =
            readers.into_iter().map(|reader| Checked { reader, at: 0, waits_since: None }).collect();
        let (mut all, mut appends_left) = (Vec::new(), 60);
        let appends_often = 10 + rng.below(60);
        while !readers.is_empty() {
            if rng.percent(appends_often) && appends_left > 0 {
                appends_left -= 1;
                let len = *rng.pick(&[0, 1, 10, 64, 65, 300]);
                let bytes = bytes_of(len, &mut rng);
                spool.append(&bytes).expect("no failure");
                all.extend(bytes);
                if appends_left == 0 {
                    spool.end(Ok(()));
                    assert_eq!(spool.total_len_bytes(), Some(all.len() as u64));
                }
                let called =
                    |checked: &Checked| checked.waits_since.is_none_or(|at| calls.load(Relaxed) > at);
                assert!(len == 0 || readers.iter().all(called), "seed {seed}: a reader that waits is called");
                assert!(spool.memory_bytes() <= SMALL.memory_bytes, "seed {seed}");
                assert!(memory.load(Relaxed) >= spool.memory_bytes() as u64, "seed {seed}");
            } else {
                let at = rng.below(readers.len());
                let goes_on = check_step(&mut readers[at], &all, (&mut rng, calls.load(Relaxed)));
                let leaves = readers.len() > 1 && rng.below(300) == 0;
                if !goes_on || leaves {
                    drop(readers.swap_remove(at));
                }
            }
        }
        created += disk.created.load(Relaxed);
        assert_eq!((spool.memory_bytes(), disk.open.load(Relaxed)), (0, 0), "seed {seed}");
        assert_eq!(memory.load(Relaxed), 0, "seed {seed}");
    }
    assert!(created > 300, "blocks were moved to {created} files");
}

#[test]
fn threads_read_while_the_writer_writes_to_real_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let signal = Arc::new((Mutex::new(0_u64), Condvar::new()));
    let raised = Arc::clone(&signal);
    let on_progress = Box::new(move || {
        *raised.0.lock().expect("unlocked") += 1;
        raised.1.notify_all();
    });
    let files = Box::new(UnnamedFiles(folder.path().to_owned()));
    let (spool, readers) = Spool::with_files(files, (SMALL, SpoolMemory::default()), (3, on_progress));
    let all = bytes_of(300_000, &mut Rng::new(1));
    std::thread::scope(|scope| {
        for (number, mut reader) in readers.into_iter().enumerate() {
            let (all, signal) = (&all, &signal);
            scope.spawn(move || {
                let (mut rng, mut at) = (Rng::new(number as u64), 0);
                loop {
                    let seen = *signal.0.lock().expect("unlocked");
                    match reader.next(1 + rng.below(500)).expect("no failure") {
                        Piece::Bytes(bytes) => {
                            let bytes = (*bytes).as_ref();
                            assert!(bytes == &all[at..at + bytes.len()]);
                            at += bytes.len();
                        }
                        Piece::Pending => {
                            let count = signal.0.lock().expect("unlocked");
                            drop(signal.1.wait_while(count, |count| *count == seen).expect("unlocked"));
                        }
                        Piece::End => break assert_eq!(at, all.len()),
                    }
                }
            });
        }
        let mut rng = Rng::new(9);
        let mut rest = &all[..];
        while !rest.is_empty() {
            let (here, after) = rest.split_at(rest.len().min(1 + rng.below(300)));
            spool.append(here).expect("no failure");
            let names = std::fs::read_dir(folder.path()).expect("readable").count();
            assert_eq!(names, 0, "the files have no names");
            rest = after;
        }
        spool.end(Ok(()));
    });
    assert_eq!(spool.memory_bytes(), 0);
}

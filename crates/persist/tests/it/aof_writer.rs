//! Tests of the append-only file on a disk that fails. The process may be killed, or the power may
//! fail, at any operation. Then the files that the manifest names must have all changes up to some
//! moment, complete and in order, and at least the acknowledged ones.
//!
//! Seeds determine everything: the appended changes, the jobs and the events during them, new files
//! and bases, changes of options, faults, and the crash before the next life of the server. A life
//! is one run of its process. `SAKER_WRITERS=100000` sets the number of seeds; the first seed is
//! that of the property tests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::log::NO_SLOT;
use engine::log::merger::{LogBatch, Mark};
use engine::log::target::Targets;
use engine::log::text::Text;
use persist::aof::files::{Files, Kept, NewBase};
use persist::aof::manifest::BaseKind;
use persist::aof::reader::{End, Next as Part, Reader};
use persist::aof::writer::{Appended, Done, Figures, Job, Moment, Next, SyncPolicy, Syncs, Times, Writer};
use persist::folder::{FileError, Folder, LogFile, Unwritten, create_temporary};
use testkit::Rng;
use testkit::disk::{Fault, Operation, Plan, SimulatedFolder};

/// The number of seeds (random runs of the test) in CI.
const SEEDS: u64 = 60;
const NAME: &str = "a.aof";
/// The number of servers in a test run that use the folder one after the other.
const LIVES: usize = 4;
const POLICIES: [SyncPolicy; 3] = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];

/// All changes that the servers of a test run make, one after the other, as bytes of an append-only
/// file.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The offset in bytes of the end of each change (a request or a transaction), by the change's
    /// number; that of number 0 is 0.
    ends: Vec<usize>,
}

impl Stream {
    /// Adds a random change to the stream of all changes: a request or a transaction.
    fn add(&mut self, rng: &mut Rng) {
        let number = self.ends.len();
        let mut request = |bytes: &mut Vec<u8>| {
            let len = if rng.percent(2) { rng.below(4000) } else { rng.below(20) };
            let value = format!("{number}-{}", "v".repeat(len));
            bytes.extend_from_slice(
                format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len()).as_bytes(),
            );
        };
        if number.is_multiple_of(7) {
            self.bytes.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
            request(&mut self.bytes);
            request(&mut self.bytes);
            self.bytes.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
        } else {
            request(&mut self.bytes);
        }
        self.ends.push(self.bytes.len());
    }

    fn last(&self) -> u64 {
        self.ends.len() as u64 - 1
    }

    fn up_to(&self, position: u64) -> &[u8] {
        &self.bytes[..self.ends[position as usize]]
    }
}

/// The content of the files after a crash: all requests, one after the other, and the length of the
/// complete part of the last file.
struct Loaded {
    bytes: Vec<u8>,
    last_len_bytes: u64,
}

/// A cache of the results of reading append-only files, because the tests read the same files again
/// and again.
type Read = HashMap<Vec<u8>, (Vec<u8>, u64)>;

/// Loads the append-only files after a crash as a start of the server does.
fn load(folder: &SimulatedFolder, known: &mut Read) -> Result<Loaded, String> {
    folder.plan(Plan::Never);
    let files = Files::open(folder, NAME).map_err(|error| error.to_string())?;
    let parts: Vec<String> = files.manifest().parts().map(|part| part.name.clone()).collect();
    let contents = parts.iter().map(|name| folder.file(name).ok_or(format!("{name} is missing")));
    let contents: Vec<Vec<u8>> = contents.collect::<Result<_, String>>()?;
    // A file is empty until the one before it is complete.
    let last = contents.iter().rposition(|bytes| !bytes.is_empty()).unwrap_or(0);
    let mut loaded = Loaded { bytes: Vec::new(), last_len_bytes: 0 };
    for (number, (name, bytes)) in parts.iter().zip(&contents).enumerate() {
        // Sectors that were not written are zeros; for this test they are the end.
        let hole = bytes.iter().position(|&byte| byte == 0);
        let len = hole.filter(|_| number == last).unwrap_or(bytes.len());
        if !known.contains_key(&bytes[..len]) {
            let read = read(&bytes[..len]).map_err(|error| format!("{name}: {error}"))?;
            known.insert(bytes[..len].to_vec(), read);
        }
        let (requests, good_len_bytes) = &known[&bytes[..len]];
        let good_len_bytes = *good_len_bytes;
        loaded.bytes.extend_from_slice(requests);
        if good_len_bytes < bytes.len() as u64 {
            if number != last {
                return Err(format!("{name} is torn, and not the last file"));
            }
            let file = folder.open_log(name, good_len_bytes).map_err(|trouble| trouble.to_string())?;
            file.sync().map_err(|trouble| trouble.to_string())?;
        }
        loaded.last_len_bytes = good_len_bytes;
    }
    Ok(loaded)
}

/// Returns the requests of an append-only file, and the length of its complete part in bytes.
fn read(file: &[u8]) -> Result<(Vec<u8>, u64), String> {
    let (mut reader, mut out) = (Reader::new(file), Vec::new());
    loop {
        match reader.next_batch().map_err(|error| error.to_string())? {
            Part::Batch(batch) => {
                for request in batch.requests() {
                    out.extend_from_slice(&request.bytes[..request.len_bytes()]);
                }
            }
            Part::End(End::Whole) => return Ok((out, file.len() as u64)),
            Part::End(End::TornTail(torn)) => return Ok((out, torn.good_len_bytes)),
        }
    }
}

/// A promise: the changes that must be found after a crash at a given operation of the disk or
/// later.
#[derive(Clone, Copy, Debug)]
struct Promise {
    operations: u64,
    /// The position in the stream of all changes up to which changes must be found if the process
    /// is killed.
    killed: u64,
    /// The position in the stream of all changes up to which changes must be found after a power
    /// failure.
    powerless: u64,
    /// True if a sync has failed and no new base was written since: the content of the disk is
    /// unknown.
    is_damaged: bool,
}

/// The state during one life of the server, a run of its process.
struct Life<'s> {
    seed: u64,
    rng: Rng,
    stream: &'s mut Stream,
    folder: SimulatedFolder,
    files: Files,
    writer: Writer,
    now: Moment,
    policy: SyncPolicy,
    times: Times,
    /// True if the options never change during this life.
    is_steady: bool,
    /// The difference between a position in the stream of all changes and the log position of this
    /// life's writer.
    before: u64,
    running: Option<Result<Done, Job>>,
    /// True if replies may have been sent before the write of their changes, which waits for a
    /// sync.
    lags: bool,
    /// True if an incremental file before the last one may still lack bytes.
    turns: bool,
    /// The highest log position whose replies were sent.
    confirmed: u64,
    /// True if a sync has failed and no new base was written since.
    is_damaged: bool,
    /// The rewrite in progress: the log position of the data that its base holds, and the number
    /// and the file of its first incremental file.
    rewrite: Option<(u64, i64, Arc<dyn LogFile>)>,
    promises: Vec<Promise>,
}

impl Life<'_> {
    fn promise(&mut self, change: impl FnOnce(&mut Promise)) {
        let mut promise = *self.promises.last().expect("there is one");
        promise.operations = self.folder.operations();
        promise.is_damaged = self.is_damaged;
        change(&mut promise);
        if std::env::var("TRACE").is_ok() {
            eprintln!(
                "{promise:?} damaged {} {:?} failed {:?} names {:?}",
                self.is_damaged,
                self.writer.figures(),
                self.folder.failed(),
                self.folder
                    .names()
                    .iter()
                    .map(|n| (n.clone(), self.folder.file(n).map(|f| f.len())))
                    .collect::<Vec<_>>()
            );
        }
        self.promises.push(promise);
    }

    /// Records the log positions that a call of the writer has confirmed.
    fn note(&mut self, appended: Appended) {
        let figures = self.writer.figures();
        let (confirmed, synced) = (appended.confirmed + self.before, figures.synced_position + self.before);
        assert!(confirmed >= self.confirmed && confirmed <= self.stream.last());
        self.confirmed = confirmed;
        if self.is_steady && self.policy == SyncPolicy::Always {
            assert!(confirmed <= synced, "a reply leaves ahead of the sync");
        }
        if self.writer.needs_rewrite() {
            self.is_damaged = true;
            self.rewrite = None;
        }
        // Changes that are pending because of a sync may be visible to clients until they are
        // written.
        let is_written = appended.kept_bytes == 0 && self.running.is_none();
        self.lags = self.turns || !is_written && (self.lags || figures.is_syncing);
        self.lags &= !self.is_steady || self.policy == SyncPolicy::EverySecond;
        let lags = self.lags;
        self.promise(|promise| {
            promise.powerless = promise.powerless.max(synced);
            promise.killed = promise.killed.max(synced);
            if !lags {
                promise.killed = promise.killed.max(confirmed);
            }
        });
    }

    fn append(&mut self) {
        let from = self.stream.bytes.len();
        (0..1 + self.rng.below(4)).for_each(|_| self.stream.add(&mut self.rng));
        let text = Text::of(self.stream.bytes[from..].to_vec());
        let position = self.stream.last() - self.before;
        let appended = append_for(&self.writer, Targets::all(), (&text, position), self.now);
        self.note(appended);
    }

    /// Runs a step of the thread that performs the writer's jobs.
    fn work(&mut self) {
        match self.running.take() {
            None => {
                if let Next::Job(job) = self.writer.next(self.now) {
                    self.running = Some(Err(job));
                    return;
                }
                if self.writer.figures().trouble.is_none() {
                    self.turns = false;
                }
                // This is necessary even without a job: a new base may have replaced changes that
                // were not written.
                let appended = self.writer.appended(self.now);
                self.note(appended);
            }
            Some(Err(job)) => self.running = Some(Ok(job.run())),
            Some(Ok(done)) => {
                let appended = self.writer.done(done, self.now);
                self.note(appended);
            }
        }
    }

    /// Begins a new incremental file for later changes. Returns its number and the file; `None` if
    /// it cannot be created.
    fn turn(&mut self) -> Option<(i64, Arc<dyn LogFile>)> {
        let file = self.files.begin_incr(&self.folder).ok()?;
        self.writer.turn_to(Arc::clone(&file));
        (self.lags, self.turns) = (true, true);
        Some((self.files.last_incr().expect("it was begun"), file))
    }

    /// Begins a rewrite of the append-only file at the present log position: begins a new
    /// incremental file. The base is written later.
    fn begin_rewrite(&mut self) {
        if let Some((seq, file)) = self.turn() {
            self.rewrite = Some((self.stream.last(), seq, file));
        }
    }

    /// Writes the base of the rewrite in progress and puts it in the manifest.
    fn take_base(&mut self) {
        let Some((position, seq, file)) = self.rewrite.take() else { return };
        let kind = BaseKind::Aof;
        let mut write = || {
            let mut file = create_temporary(&self.folder, "temp-base")?;
            file.append(self.stream.up_to(position))?;
            file.sync()?;
            self.folder.rename("temp-base", &self.files.next_base(&self.folder, kind))?;
            self.folder.sync()
        };
        let (kept, now_s) = (Kept::From { seq }, self.now.unix_s);
        let base = NewBase { kind, kept, now_s, restored_until_s: None };
        if write().is_err() || self.files.take_base(&self.folder, base).is_err() {
            return;
        }
        // The base has all changes before its point.
        self.is_damaged = false;
        self.writer.base_is_in(&file);
        self.promise(|promise| {
            promise.killed = promise.killed.max(position);
            promise.powerless = promise.powerless.max(position);
        });
        // Files that cannot be removed now are removed the next time.
        let _ = self.files.remove_history(&self.folder, now_s, 0);
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.append(),
            30..70 => self.work(),
            70..82 => {
                self.now.clock_ms += self.rng.below(700) as u64;
                self.now.unix_s = (self.now.clock_ms / 1000) as i64;
            }
            82..85 if self.rng.percent(60) => self.begin_rewrite(),
            82..85 => drop(self.turn()),
            85..89 => self.take_base(),
            89 if !self.is_steady => {
                self.policy = *self.rng.pick(&POLICIES);
                self.writer.set_up(self.policy, self.times);
            }
            90 if !self.is_steady => {
                self.writer.set_syncs(if self.rng.percent(50) { Syncs::Resting } else { Syncs::Done })
            }
            91 if !self.is_steady => {
                self.times = if self.rng.percent(50) { Times::Written } else { Times::Left };
                self.writer.set_up(self.policy, self.times);
            }
            92 if self.running.is_none() && self.rng.percent(30) => {
                let result = self.writer.finish();
                let position = self.stream.last();
                if result.is_err() {
                    self.is_damaged |= self.writer.needs_rewrite();
                    self.rewrite = self.rewrite.take().filter(|_| !self.is_damaged);
                } else {
                    self.promise(|promise| (promise.killed, promise.powerless) = (position, position));
                    let appended = self.writer.appended(self.now);
                    assert!(appended.confirmed + self.before == position || self.is_damaged);
                    self.note(appended);
                }
            }
            93 if self.rng.percent(20) => {
                let at = self.folder.operations() + self.rng.below(8) as u64;
                let fault = *self.rng.pick(&[Fault::NoSpace, Fault::Io]);
                self.folder.plan(*self.rng.pick(&[Plan::Once(at, fault), Plan::From(at, fault)]));
            }
            94 => self.folder.plan(Plan::Never),
            _ => {}
        }
    }

    /// Ends the faults: from now on the disk works, and everything is completed.
    fn recover(&mut self) {
        self.folder.plan(Plan::Never);
        self.complete();
        if self.writer.figures().is_damaged {
            self.begin_rewrite();
            self.take_base();
            self.complete();
        }
        let Figures { kept_bytes, trouble, is_damaged, .. } = self.writer.figures();
        assert_eq!((kept_bytes, trouble, is_damaged), (0, None, false), "it recovers");
        assert_eq!(self.confirmed, self.stream.last(), "seed {}: all replies have left", self.seed);
    }

    fn complete(&mut self) {
        for _ in 0..40 {
            self.now.clock_ms += 1000;
            self.work();
        }
        if self.running.is_some() {
            (0..2).for_each(|_| self.work());
        }
    }
}

fn check(left: &SimulatedFolder, stream: &Stream, at_least: u64, known: &mut Read) -> Result<u64, String> {
    let Loaded { bytes, .. } = load(left, known)?;
    if !stream.bytes.starts_with(&bytes) {
        let same = bytes.iter().zip(&stream.bytes).take_while(|(left, made)| left == made).count();
        let unit = stream.ends.partition_point(|&end| end <= same);
        return Err(format!("there is a gap or a duplicate behind unit {}", unit as i64 - 1));
    }
    let position =
        stream.ends.binary_search(&bytes.len()).map_err(|_| "half a unit is there".to_owned())? as u64;
    match position >= at_least {
        true => Ok(position),
        false => Err(format!("{position} units are left, {at_least} were promised")),
    }
}

/// Opens the append-only files that the server's previous run has left. In an empty folder, creates
/// the first file.
fn open(folder: &SimulatedFolder, last_len_bytes: u64) -> (Files, Arc<dyn LogFile>, u64) {
    let mut files = Files::open(folder, NAME).expect("a manifest");
    match files.last_incr() {
        Some(_) => {
            let file = files.resume_incr(folder, last_len_bytes).expect("the disk works");
            (files, file, last_len_bytes)
        }
        None => {
            let file = files.begin_incr(folder).expect("the disk works");
            (files, file, 0)
        }
    }
}

fn live(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut stream = Stream { bytes: Vec::new(), ends: vec![0] };
    let mut left = SimulatedFolder::new(seed);
    for life in 0..LIVES {
        let loaded = load(&left, &mut Read::new()).expect("it was checked");
        left = left.fork(Plan::Never);
        left.note_moments();
        let (files, file, len_bytes) = open(&left, loaded.last_len_bytes);
        let before = stream.last();
        let policy = *rng.pick(&POLICIES);
        let writer = Writer::new(file, len_bytes, policy, 0);
        let times = if rng.percent(50) { Times::Written } else { Times::Left };
        writer.set_up(policy, times);
        let first = Promise { operations: 0, killed: before, powerless: 0, is_damaged: false };
        let mut life_of = Life {
            seed,
            rng: Rng::new(rng.next_u64()),
            stream: &mut stream,
            folder: left.clone(),
            files,
            writer,
            now: Moment { clock_ms: 5000, unix_s: 5 },
            policy,
            times,
            is_steady: seed.is_multiple_of(2),
            before,
            running: None,
            lags: false,
            turns: false,
            confirmed: before,
            is_damaged: false,
            rewrite: None,
            promises: vec![first],
        };
        // Everything that the last life left is synced now.
        life_of.promise(|promise| promise.powerless = before);
        (0..150).for_each(|_| life_of.step());
        life_of.recover();
        let promises = std::mem::take(&mut life_of.promises);
        drop(life_of);
        let (crashes, kills) = (left.crashes(&mut rng), left.kills());
        let moments = crashes.len();
        let next = (rng.below(moments), rng.percent(50));
        let (mut goes_on, mut whole) = (None, Read::new());
        for (at, (crash, kill)) in crashes.into_iter().zip(kills).enumerate() {
            let number = promises.partition_point(|promise| promise.operations <= at as u64) - 1;
            let promise = promises[number];
            for (is_kill, folder, at_least) in
                [(true, kill, promise.killed), (false, crash, promise.powerless)]
            {
                if promise.is_damaged && !is_kill {
                    continue;
                }
                let kept_has_failed = folder.failed().contains(&Operation::SyncFile);
                let kept = folder.fork(Plan::Never);
                match check(&folder, &stream, at_least, &mut whole) {
                    // After a failed sync, the next process cannot know which bytes are missing on
                    // the disk.
                    Ok(position)
                        if at <= next.0 && is_kill == next.1 && !promise.is_damaged && !kept_has_failed =>
                    {
                        goes_on = Some((kept, position))
                    }
                    Ok(_) => {}
                    Err(finding) => panic!(
                        "seed {seed}, life {life}, {policy:?}, {} at operation {at} of {moments}: {finding}",
                        if is_kill { "killed" } else { "the power failed" }
                    ),
                }
            }
        }
        let (folder, position) = goes_on.expect("it is one of them");
        left = folder;
        stream.bytes.truncate(stream.ends[position as usize]);
        stream.ends.truncate(position as usize + 1);
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nothing_promised_is_lost_and_nothing_is_half_at_any_crash() {
    let first = number_from("PROPTEST_RNG_SEED").unwrap_or(1).wrapping_mul(1 << 32);
    let seeds = number_from("SAKER_WRITERS").unwrap_or(SEEDS);
    if let Some(seed) = number_from("SEED") {
        return live(seed);
    }
    (0..seeds).for_each(|at| live(first.wrapping_add(at)));
}

/// A file that accepts all bytes, but reports an error at its first append.
#[derive(Default)]
struct LateError(std::sync::atomic::AtomicBool);

impl LogFile for LateError {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        if self.0.swap(true, Relaxed) {
            return Ok(());
        }
        Err(Unwritten { written_bytes: bytes.len(), trouble: FileError("late".to_owned()) })
    }

    fn sync(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn cut(&self, _len_bytes: u64) -> Result<(), FileError> {
        Ok(())
    }
}

/// Appends a batch of one change log record that is for these targets (the append-only file,
/// replicas).
fn append_for(writer: &Writer, targets: Targets, (text, position): (&Text, u64), now: Moment) -> Appended {
    let mark = Mark { end: text.end(), position, slot: NO_SLOT, targets, is_framing: false };
    writer.append(&LogBatch { text, marks: &[mark], offset: 0, position }, now)
}

/// Appends a change whose record is for replicas only, and returns the state of the writer.
fn append_for_replicas(writer: &Writer, position: u64, now: Moment) -> Appended {
    let text = Text::of(b"*1\r\n$4\r\nPING\r\n".to_vec());
    append_for(writer, Targets::REPLICAS, (&text, position), now)
}

/// Appends a change for the append-only file and returns the state of the writer.
fn append_unit(writer: &Writer, now: Moment) -> Appended {
    let text = Text::of(b"*1\r\n$4\r\nPING\r\n".to_vec());
    append_for(writer, Targets::all(), (&text, 1), now)
}

/// Runs the writer's next job, and calls `amid` between its execution and the report of its result.
/// Returns the position up to which replies may be sent.
fn run_job(writer: &Writer, now: Moment, amid: impl FnOnce()) -> u64 {
    let Next::Job(job) = writer.next(now) else { panic!("there is a job") };
    amid();
    writer.done(job.run(), now).confirmed
}

const NOW: Moment = Moment { clock_ms: 100, unix_s: 0 };

#[test]
fn replies_leave_that_waited_for_a_sync_when_the_option_is_changed_back() {
    let folder = SimulatedFolder::new(1);
    let writer = Writer::new(folder.create_log("f").unwrap(), 0, SyncPolicy::Always, 0);
    assert_eq!(append_unit(&writer, NOW).confirmed, 0);
    writer.set_up(SyncPolicy::Never, Times::Left);
    let confirmed = run_job(&writer, NOW, || writer.set_up(SyncPolicy::Always, Times::Left));
    assert_eq!(confirmed, 0, "it is not synced");
    writer.set_up(SyncPolicy::Never, Times::Left);
    assert_eq!(run_job(&writer, NOW, || ()), 1);
    assert!(matches!(writer.next(NOW), Next::Nothing));
}

#[test]
fn replies_leave_after_an_error_at_the_very_end_of_a_write() {
    let writer = Writer::new(Arc::new(LateError::default()), 0, SyncPolicy::Never, 0);
    assert_eq!(append_unit(&writer, NOW).confirmed, 0);
    assert!(writer.figures().trouble.is_some());
    let later = Moment { clock_ms: 5000, unix_s: 5 };
    assert_eq!(run_job(&writer, later, || ()), 1);
    assert_eq!(writer.figures().trouble, None);
}

/// A file with a limited size whose syncs may fail.
#[derive(Default)]
struct Small {
    bytes: std::sync::Mutex<Vec<u8>>,
    room_bytes: std::sync::atomic::AtomicUsize,
    syncs: std::sync::atomic::AtomicBool,
}

impl LogFile for Small {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        let mut held = self.bytes.lock().expect("no panic");
        let written_bytes = self.room_bytes.load(Relaxed).saturating_sub(held.len()).min(bytes.len());
        held.extend_from_slice(&bytes[..written_bytes]);
        let trouble = || FileError("File too large (os error 27)".to_owned());
        if written_bytes < bytes.len() {
            Err(Unwritten { written_bytes, trouble: trouble() })
        } else {
            Ok(())
        }
    }

    fn sync(&self) -> Result<(), FileError> {
        if self.syncs.load(Relaxed) { Ok(()) } else { Err(FileError("Input/output error".to_owned())) }
    }

    fn cut(&self, len_bytes: u64) -> Result<(), FileError> {
        self.bytes.lock().expect("no panic").truncate(len_bytes as usize);
        Ok(())
    }
}

fn append(writer: &Writer, text: &str, position: u64, now: Moment) -> Appended {
    let text = Text::of(text.as_bytes().to_vec());
    append_for(writer, Targets::all(), (&text, position), now)
}

/// Runs all jobs of the writer that are ready.
fn work(writer: &Writer, now: Moment) {
    while let Next::Job(job) = writer.next(now) {
        writer.done(job.run(), now);
    }
}

#[test]
fn a_file_that_cannot_be_written_does_not_matter_once_the_base_is_in() {
    for policy in POLICIES {
        for (room_bytes, syncs) in [(3, true), (100, false)] {
            for is_amid in [false, true] {
                let [old, new] = [(room_bytes, syncs), (100, true)].map(|(room_bytes, syncs)| {
                    Arc::new(Small { room_bytes: room_bytes.into(), syncs: syncs.into(), ..Small::default() })
                });
                let mut now = Moment { clock_ms: 5000, unix_s: 5 };
                let writer = Writer::new(old.clone(), 0, policy, 0);
                append(&writer, "old 1", 1, now);
                work(&writer, now);
                now.clock_ms += 2000;
                append(&writer, "old 2", 2, now);
                work(&writer, now);
                let file: Arc<dyn LogFile> = new.clone();
                writer.turn_to(Arc::clone(&file));
                append(&writer, "new 1", 3, now);
                now.clock_ms += 2000;
                work(&writer, now);
                let what = format!("{policy:?}, room {room_bytes}, syncs {syncs}, amid {is_amid}");
                assert!(writer.figures().trouble.is_some(), "{what}");
                assert_eq!(new.bytes.lock().expect("no panic").len(), 0, "{what}");
                now.clock_ms += 2000;
                let running = match writer.next(now) {
                    Next::Job(job) if is_amid => Some(job),
                    Next::Job(job) => {
                        writer.done(job.run(), now);
                        None
                    }
                    _ => panic!("it is tried again: {what}"),
                };
                writer.base_is_in(&file);
                assert!(writer.appended(now).confirmed >= 2, "what is in the base is safe: {what}");
                if let Some(job) = running {
                    writer.done(job.run(), now);
                }
                work(&writer, now);
                append(&writer, "new 2", 4, now);
                work(&writer, now);
                let figures = writer.figures();
                assert_eq!((figures.trouble, figures.kept_bytes, figures.len_bytes), (None, 0, 10), "{what}");
                assert_eq!(&*new.bytes.lock().expect("no panic"), b"new 1new 2", "{what}");
                assert_eq!(writer.appended(now).confirmed, 4, "{what}");
                assert!(!writer.needs_rewrite(), "{what}");
            }
        }
    }
}

#[test]
fn a_sync_that_fails_delays_replies_with_always_and_asks_for_a_rewrite_otherwise() {
    for (policy, needs_rewrite) in [(SyncPolicy::Always, false), (SyncPolicy::EverySecond, true)] {
        let file = Arc::new(Small { room_bytes: 100.into(), ..Small::default() });
        let mut now = Moment { clock_ms: 5000, unix_s: 5 };
        let writer = Writer::new(file.clone(), 0, policy, 0);
        append(&writer, "one", 1, now);
        work(&writer, now);
        assert!(writer.figures().trouble.is_some(), "{policy:?}");
        assert_eq!(writer.appended(now).confirmed, u64::from(policy != SyncPolicy::Always), "{policy:?}");
        assert_eq!(append(&writer, "two", 2, now).confirmed, u64::from(policy != SyncPolicy::Always));
        file.syncs.store(true, Relaxed);
        assert!(matches!(writer.next(now), Next::At(_)), "{policy:?}");
        now.clock_ms += 1000;
        work(&writer, now);
        assert_eq!((writer.figures().trouble, writer.appended(now).confirmed), (None, 2), "{policy:?}");
        assert_eq!(&*file.bytes.lock().expect("no panic"), b"onetwo", "{policy:?}");
        assert_eq!(writer.needs_rewrite(), needs_rewrite, "{policy:?}");
    }
}

/// Creates a file with a failing sync, a written change that is not synced, and a writer whose sync
/// failed and whose next sync succeeded.
fn damaged_writer(policy: SyncPolicy, now: &mut Moment) -> Writer {
    let file = Arc::new(Small { room_bytes: 100.into(), ..Small::default() });
    let writer = Writer::new(file.clone(), 0, SyncPolicy::Never, 0);
    append(&writer, "one", 1, *now);
    writer.set_up(policy, Times::Left);
    work(&writer, *now);
    assert!(writer.figures().trouble.is_some() && writer.needs_rewrite(), "{policy:?}");
    file.syncs.store(true, Relaxed);
    now.clock_ms += 1000;
    work(&writer, *now);
    writer
}

/// Checks that changes do not count as synced after a failed sync, even if later syncs succeed,
/// until a base with these changes is in place: before or after the old file is complete.
#[test]
fn a_sync_after_a_failed_one_promises_nothing_until_the_base_is_in() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        for is_complete in [true, false] {
            let what = format!("{policy:?}, complete {is_complete}");
            let is_strict = policy == SyncPolicy::Always;
            let mut now = Moment { clock_ms: 5000, unix_s: 5 };
            let writer = damaged_writer(policy, &mut now);
            let check = |position, now| {
                let figures = writer.figures();
                assert_eq!((figures.synced_position, figures.safe_position), (0, 0), "{what}");
                assert_eq!((figures.is_damaged, figures.trouble.is_some()), (true, is_strict), "{what}");
                let Appended { confirmed, safe, .. } = writer.appended(now);
                assert_eq!((confirmed, safe), (if is_strict { 1 } else { position }, 0), "{what}");
            };
            check(1, now);
            append_for_replicas(&writer, 2, now);
            check(2, now);
            append(&writer, "two", 3, now);
            now.clock_ms += 1000;
            work(&writer, now);
            check(3, now);
            for _ in 0..2 {
                writer.finish().expect_err("the sync works, but the first change may be lost");
                check(3, now);
            }
            assert!(matches!(writer.next(now), Next::Nothing), "{what}");
            let new = Arc::new(Small { room_bytes: 100.into(), syncs: true.into(), ..Small::default() });
            let file: Arc<dyn LogFile> = new.clone();
            writer.turn_to(Arc::clone(&file));
            if is_complete {
                work(&writer, now);
                append(&writer, "new", 4, now);
                now.clock_ms += 1000;
                work(&writer, now);
                check(4, now);
            } else {
                append_for_replicas(&writer, 4, now);
            }
            writer.base_is_in(&file);
            let Figures { synced_position, is_damaged, trouble, .. } = writer.figures();
            assert_eq!((synced_position, is_damaged, trouble), (4, false, None), "{what}");
            assert_eq!(writer.appended(now).confirmed, 4, "{what}");
            assert!(!writer.needs_rewrite(), "{what}");
        }
    }
}

/// Checks that damage of an incremental file by a failed sync remains when the base before this
/// file is put in place.
#[test]
fn a_base_does_not_replace_changes_after_its_point_whose_sync_failed() {
    let mut now = Moment { clock_ms: 5000, unix_s: 5 };
    let writer = damaged_writer(SyncPolicy::EverySecond, &mut now);
    let new = Arc::new(Small { room_bytes: 100.into(), syncs: true.into(), ..Small::default() });
    let file: Arc<dyn LogFile> = new.clone();
    writer.turn_to(Arc::clone(&file));
    work(&writer, now);
    append(&writer, "new", 2, now);
    new.syncs.store(false, Relaxed);
    now.clock_ms += 1000;
    work(&writer, now);
    writer.base_is_in(&file);
    let Figures { synced_position, is_damaged, .. } = writer.figures();
    assert_eq!((synced_position, is_damaged), (1, true), "the base has the first change");
    assert!(writer.needs_rewrite());
    new.syncs.store(true, Relaxed);
    now.clock_ms += 1000;
    work(&writer, now);
    assert_eq!((writer.figures().synced_position, writer.figures().trouble), (1, None));
}

/// Checks that an error of a write or sync is cleared without a sync while syncs are suspended.
#[test]
fn nothing_is_synced_after_an_error_while_syncs_rest() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        for fails_sync in [false, true] {
            let room_bytes = if fails_sync { 100 } else { 3 };
            let file = Arc::new(Small { room_bytes: room_bytes.into(), ..Small::default() });
            let mut now = Moment { clock_ms: 5000, unix_s: 5 };
            let writer = Writer::new(file.clone(), 0, policy, 0);
            let syncs = if fails_sync { Syncs::Done } else { Syncs::Resting };
            writer.set_syncs(syncs);
            append(&writer, "change", 1, now);
            work(&writer, now);
            let what = format!("{policy:?}, fails sync {fails_sync}");
            assert!(writer.figures().trouble.is_some(), "{what}");
            writer.set_syncs(Syncs::Resting);
            file.room_bytes.store(100, Relaxed);
            file.syncs.store(true, Relaxed);
            now.clock_ms += 1000;
            work(&writer, now);
            let Figures { synced_position, trouble, .. } = writer.figures();
            assert_eq!((synced_position, trouble), (0, None), "{what}");
            assert_eq!(writer.appended(now).confirmed, 1, "{what}");
            assert_eq!(&*file.bytes.lock().expect("no panic"), b"change", "{what}");
        }
    }
}

/// A file that records the bytes of each write, and fails after some writes.
struct Writes {
    writes: std::sync::Mutex<Vec<Vec<u8>>>,
    writes_max: usize,
}

impl LogFile for Writes {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        let mut writes = self.writes.lock().expect("no panic");
        if writes.len() == self.writes_max {
            return Err(Unwritten { written_bytes: 0, trouble: FileError("full".to_owned()) });
        }
        writes.push(bytes.to_vec());
        Ok(())
    }

    fn sync(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn cut(&self, _len_bytes: u64) -> Result<(), FileError> {
        Ok(())
    }
}

/// Checks that short records are written together if records for replicas separate them. After an
/// error, the records that are not written stay pending in their order.
#[test]
fn records_between_those_for_replicas_are_written_together() {
    let long = "l".repeat(20_000);
    let cases: [(&[&str], &[&str]); 6] = [
        (&["a"], &["a"]),
        (&["a", "b", "c"], &["abc"]),
        (&[&long, "b", "c"], &[&long, "bc"]),
        (&["a", "b", &long, "c"], &["ab", &long, "c"]),
        (&["a", &long, &long], &["a", &long, &long]),
        (&[&long], &[&long]),
    ];
    for (records, writes) in cases {
        for writes_max in 0..=writes.len() {
            let file = Arc::new(Writes { writes: Default::default(), writes_max });
            let writer = Writer::new(file.clone(), 0, SyncPolicy::Never, 0);
            let (mut bytes, mut ends) = (Vec::new(), Vec::new());
            for (at, record) in records.iter().enumerate() {
                for (targets, record) in [(Targets::all(), *record), (Targets::REPLICAS, "replicas")] {
                    bytes.extend_from_slice(record.as_bytes());
                    ends.push((targets, Text::of(bytes.clone()).end(), at as u64 + 1));
                }
            }
            let mark =
                |&(targets, end, position)| Mark { end, position, slot: NO_SLOT, targets, is_framing: false };
            let marks: Vec<Mark> = ends.iter().map(mark).collect();
            let position = records.len() as u64;
            writer.append(&LogBatch { text: &Text::of(bytes), marks: &marks, offset: 0, position }, NOW);
            let what = format!("{} records, {writes_max} writes", records.len());
            assert_eq!(
                *file.writes.lock().expect("no panic"),
                writes[..writes_max].iter().map(|write| write.as_bytes()).collect::<Vec<_>>(),
                "{what}"
            );
            let left: usize = writes[writes_max..].iter().map(|write| write.len()).sum();
            assert_eq!(writer.figures().kept_bytes, left, "{what}");
            assert_eq!(writer.figures().trouble.is_some(), writes_max < writes.len(), "{what}");
            if let Next::Job(job) = writer.next(Moment { clock_ms: 9000, unix_s: 9 }) {
                file.writes.lock().expect("no panic").clear();
                writer.done(job.run(), NOW);
                let written = file.writes.lock().expect("no panic").concat();
                assert!(writes_max == 0 || written == writes[writes_max..].concat().as_bytes(), "{what}");
            }
        }
    }
}

#[test]
fn a_look_whether_a_file_can_be_begun_leaves_what_a_rewrite_writes() {
    let folder = SimulatedFolder::new(1);
    let mut files = Files::open(&folder, NAME).expect("there is none");
    let base = NewBase { kind: BaseKind::Rdb, kept: Kept::Unnamed, now_s: 1, restored_until_s: None };
    files.try_unnamed_incr(&folder).expect("it can be begun");
    let file = files.begin_unnamed_incr(&folder).expect("it can");
    file.append(b"behind the point").expect("there is room");
    // One client turns the file off, and another turns it on again before that is complete.
    files.try_unnamed_incr(&folder).expect("it could be begun");
    folder.create(&files.next_base(&folder, base.kind)).expect("there is room");
    files.take_base(&folder, base).expect("it is there");
    let incr = &files.manifest().incr[0].name;
    assert_eq!(folder.file(incr).as_deref(), Some(&b"behind the point"[..]));
}

#[test]
fn names_are_free_although_files_lie_behind_those_of_a_history_that_is_gone() {
    let folder = SimulatedFolder::new(1);
    let manifest = "file a.aof.1.base.rdb seq 1 type b\n\
                    file a.aof.2.base.rdb seq 2 type h\nfile a.aof.1.incr.aof seq 1 type h\n";
    for (name, bytes) in [
        ("a.aof.manifest", manifest.as_bytes()),
        ("a.aof.1.base.rdb", b""),
        ("a.aof.3.base.rdb", b"whose"),
        ("a.aof.2.incr.aof", b"whose"),
    ] {
        folder.create(name).and_then(|mut file| file.append(bytes)).expect("there is room");
    }
    let mut files = Files::open(&folder, NAME).expect("it can be parsed");
    assert_eq!(files.next_base(&folder, BaseKind::Rdb), "a.aof.4.base.rdb");
    files.begin_incr(&folder).expect("a name is free");
    assert_eq!(files.manifest().incr[0].name, "a.aof.3.incr.aof");
    for name in ["a.aof.3.base.rdb", "a.aof.2.incr.aof"] {
        assert_eq!(folder.file(name).as_deref(), Some(&b"whose"[..]));
    }
}

/// Checks that a record for replicas only, which writes nothing, holds no replies back: with any
/// policy, also if a job of earlier records ends after it.
#[test]
fn records_for_replicas_are_passed_over() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never] {
        let file = Arc::new(Small::default());
        file.syncs.store(true, Relaxed);
        file.room_bytes.store(100, Relaxed);
        let writer = Writer::new(Arc::clone(&file) as Arc<dyn LogFile>, 0, policy, 0);
        let now = Moment { clock_ms: 5_000, unix_s: 5 };
        let replicas_only = |position| append_for_replicas(&writer, position, now);
        let appended = replicas_only(1);
        assert_eq!((appended.confirmed, appended.safe, appended.has_job), (1, 1, false), "{policy:?}");
        append(&writer, "record", 2, now);
        let Next::Job(job) = writer.next(now) else {
            assert_eq!(policy, SyncPolicy::Never);
            assert_eq!(writer.appended(now).safe, 2, "a written change counts as synced");
            continue;
        };
        // The job began before this record.
        let appended = replicas_only(3);
        assert!(appended.safe < 3, "{policy:?}");
        let appended = writer.done(job.run(), now);
        assert_eq!((appended.confirmed, appended.safe), (3, 3), "{policy:?}");
        assert_eq!(*file.bytes.lock().expect("no panic"), b"record");
    }
}

/// Checks that a record for replicas only is passed over in a new file once the base is in place.
/// The base comes before the end of the old file's job, or after a failed one.
#[test]
fn records_for_replicas_are_passed_over_when_a_base_replaces_the_old_file() {
    for policy in [SyncPolicy::Always, SyncPolicy::EverySecond] {
        for is_amid in [true, false] {
            let [old, new, newer] = [is_amid, true, true].map(|syncs| {
                Arc::new(Small { room_bytes: 100.into(), syncs: syncs.into(), ..Small::default() })
            });
            let mut now = Moment { clock_ms: 5_000, unix_s: 5 };
            let writer = Writer::new(old, 0, policy, 0);
            append(&writer, "old", 1, now);
            let file: Arc<dyn LogFile> = new.clone();
            writer.turn_to(Arc::clone(&file));
            let Next::Job(job) = writer.next(now) else { panic!("the old file is synced") };
            append_for_replicas(&writer, 2, now);
            if is_amid {
                writer.base_is_in(&file);
                append_for_replicas(&writer, 3, now);
                writer.done(job.run(), now);
            } else {
                append_for_replicas(&writer, 3, now);
                writer.done(job.run(), now);
                writer.base_is_in(&file);
            }
            let appended = writer.appended(now);
            let what = format!("{policy:?}, amid {is_amid}");
            assert_eq!((appended.confirmed, appended.safe, appended.has_job), (3, 3, false), "{what}");
            // The time of a lag begins again with the next file.
            now.clock_ms += 5_000;
            writer.turn_to(newer.clone());
            append(&writer, "newer", 4, now);
            assert_eq!(writer.figures().delayed, 0, "{what}");
            work(&writer, now);
            assert_eq!(writer.appended(now).confirmed, 4, "{what}");
        }
    }
}

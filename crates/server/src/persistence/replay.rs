//! Replay of append-only files on several threads. One thread reads the file and assigns each
//! request to a lane. A lane is a thread that runs the requests on its part of the keys, in order.
//! The logic is in `persist::aof::reader` and `engine::replay`.
//!
//! ```text
//!   file ─► this thread: Reader, Router ─► a channel for each lane ─► "aof-replay" threads
//!                   ▲                                                        │
//!                   └─────────────── batches to be filled again ◄────────────┘
//! ```

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use commands::Args;
use engine::replay::{Failed, LANES_MAX, Lane, NotRouted, Routed, Router, Slice, Task};
use engine::shared::GateSlot;
use engine::stats::ThreadStats;
use keyspace::gate::ClaimedPass;
use persist::aof::reader::{AofError, Batch, End, Next, Reader, TornTail, starts_with_rdb};
use persist::aof::stream_note::StreamNote;
use persist::folder::FileError;
use persist::save::Way;

use super::loading::{Counted, Duplicates, Expired, FileSource, LoadMode, Report, load_rdb_part};
use crate::config::table::persistence as options;
use crate::context::SystemClock;
use crate::shared::Shared;
use crate::snapshots::library_name;

/// Maximum number of batches of requests that wait for one lane, a thread that runs requests. A
/// batch has about a megabyte, for all lanes together.
const BATCHES_WAITING_MAX: usize = 4;
/// Maximum number of log lines about requests that failed in a replay.
const ERRORS_LOGGED_MAX: u64 = 100;
/// Longest single sleep within a pause of `key-load-delay`, so that a replay notices soon when the
/// pause must end.
const DELAY_STEP: Duration = Duration::from_millis(10);

/// The part of an append-only file to replay, and the way in which the threads use the keyspace.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRange {
    /// The way in which the threads use the keyspace. With [`Way::Gate`], the caller is outside the
    /// gate that guards the keyspace, and the server refuses the requests of clients during the
    /// replay (`RequestPosition::is_loading`).
    pub way: Way,
    /// The offset of the first byte to replay, after the RDB part if there is one.
    pub from_offset: u64,
    /// The point at which the replay stops; `None` for the end of the file.
    pub stop_at: Option<StopAt>,
}

/// A point in an append-only file. A transaction is entirely before the point or entirely after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// The end of the last request or transaction that ends at or before this offset in the file,
    /// in bytes.
    Offset(u64),
    /// The first annotation (a line with the time of the changes after it) whose time is later than
    /// this time, in Unix seconds.
    TimeS(i64),
}

/// The result of replaying an append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayResult {
    /// Number of requests that were run, including MULTI, EXEC and SELECT.
    pub commands: u64,
    /// The number of requests of the file that ended with an error.
    pub errors: u64,
    /// The reason for which the replay ended, and the place in the file.
    pub end: ReplayEnd,
    /// Number of requests that were run before the first annotation with a time in the file, so
    /// that their time is unknown.
    pub untimed: u64,
    /// The time that the last annotation before the end of the replay states, in Unix seconds;
    /// `None` if there is none.
    pub last_time_s: Option<i64>,
    /// The time of the annotation that ended the replay, in Unix seconds; `None` if the replay
    /// ended for another reason.
    pub next_time_s: Option<i64>,
    /// The point in the replication stream that the last line of the file states; `None` if the
    /// file does not end with such a line.
    pub note: Option<StreamNote>,
}

/// The reason for which a replay ended, and the place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// All requests of the file were run; it ends with a complete one.
    Whole,
    /// All complete requests and transactions of the file were run. After them, the file has an
    /// incomplete one.
    Torn(TornTail),
    /// The replay reached [`ReplayRange::stop_at`]. The replayed part ends at this offset, in
    /// bytes.
    Stopped(u64),
    /// The replay ended early because the server stops.
    Abandoned,
}

/// The reason why a file cannot be replayed. Requests before the failure may have been run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// The file cannot be read, or is not a valid append-only file.
    File(AofError),
    /// The file has a request that this server cannot run.
    Request(NotRouted),
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Request(error) => write!(f, "{error} at byte {}", error.offset),
        }
    }
}

impl std::error::Error for ReplayError {}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::File(AofError::Reading(FileError(error.to_string())))
    }
}

/// The state that is shared by all threads that replay one append-only file.
struct Replay<'s> {
    shared: &'s Shared,
    way: Way,
    errors: AtomicU64,
}

/// The tasks that one message passes to a lane, one of the threads that run requests, in order.
type Tasks = Vec<Task<Batch>>;

impl Replay<'_> {
    /// Runs the tasks of a lane (a thread that runs requests) until no more arrive. Returns the
    /// statistics that the lane counted. Returns processed batches to the reading thread through
    /// `spares`, for reuse.
    fn run_lane(&self, number: usize, tasks: &Receiver<Tasks>, spares: &Sender<Batch>) -> Box<ThreadStats> {
        let engine = &self.shared.engine;
        let stats = Box::new(ThreadStats::new(engine.table.id_count()).into_inner());
        let mut lane = Lane::new(engine, &stats, fastrand::u64(..), SystemClock);
        let mut run = |slice: &Slice<Batch>| {
            let mut pass = self.pass(number);
            lane.run(slice, &mut pass, |failed| self.note_failed(&failed));
            drop(pass);
            self.shared.wake(lane.outbox());
        };
        for task in tasks.iter().flatten() {
            match task {
                Task::Run(slice) => {
                    run(&slice);
                    if let Some(batch) = slice.into_batch() {
                        // A send fails only if the reading thread has ended.
                        let _ = spares.send(batch);
                    }
                }
                Task::Meet(meeting) if meeting.arrive() => {
                    run(meeting.slice());
                    meeting.end();
                }
                Task::Meet(meeting) => meeting.wait(),
            }
        }
        drop(lane);
        stats
    }

    fn pass(&self, number: usize) -> ClaimedPass<'_> {
        let (engine, slot) = (&self.shared.engine, GateSlot::Lane(number));
        match self.way {
            Way::Gate => engine.enter_gate(slot),
            Way::Owner => engine.gate.for_owner(engine.gate_index(slot)),
        }
    }

    /// Logs that a request of the file failed, as Redis does.
    fn note_failed(&self, failed: &Failed<'_>) {
        if self.errors.fetch_add(1, Relaxed) < ERRORS_LOGGED_MAX {
            tracing::warn!(
                "== CRITICAL == This server is sending an error to its AOF-loading-client: '-{}' after processing \
                 the command '{}' (at byte {} of the file)",
                failed.error.escape_ascii(),
                failed.command,
                failed.offset,
            );
        }
    }

    /// Pauses for `key-load-delay` after `commands` commands, for tests. A change of the option
    /// applies at once, and a stop of the server ends the pause.
    fn rest(&self, commands: usize) {
        let mut slept = Duration::ZERO;
        while !self.shared.stopping.load(Relaxed) {
            let micros = options::KEY_LOAD_DELAY.of(&self.shared.config());
            let delay = Duration::from_micros(u64::try_from(micros).unwrap_or(0)) * commands as u32;
            let left = delay.saturating_sub(slept);
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(DELAY_STEP));
            slept += DELAY_STEP;
        }
    }

    /// Reads the append-only file, sends its requests to the lanes (the threads that run them), and
    /// returns the result of the replay.
    fn read(
        &self,
        mut reader: Reader<FileSource<'_>>,
        stop_at: Option<StopAt>,
        lanes: &Lanes<'_>,
    ) -> Result<ReplayResult, ReplayError> {
        let figures = &self.shared.persistence.loading;
        let mut router = Router::new(&self.shared.engine, lanes.senders.len());
        let mut report = Report::new(self.shared, Counted::Commands);
        let (mut commands, mut untimed, mut last_time_s, mut next_time_s) = (0, 0, None, None);
        let end = loop {
            if self.shared.stopping.load(Relaxed) {
                break ReplayEnd::Abandoned;
            }
            let batch = match reader.next_batch().map_err(ReplayError::File)? {
                Next::Batch(batch) => Arc::new(batch),
                Next::End(End::Whole) => break ReplayEnd::Whole,
                Next::End(End::TornTail(torn)) => break ReplayEnd::Torn(torn),
            };
            let (count, stopped) =
                stop_at.map_or((batch.len(), None), |stop_at| part_before(&batch, stop_at));
            if last_time_s.is_none() {
                let first = batch.annotations().first().map_or(count, |first| first.requests_before);
                untimed += first.min(count) as u64;
            }
            if let (Some(StopAt::TimeS(until_s)), Some(_)) = (stop_at, stopped) {
                let mut later = batch.annotations().iter().filter(|it| it.time_s > until_s);
                next_time_s = later.next().map(|it| it.time_s);
            }
            let passed = batch.annotations().iter().take_while(|it| it.requests_before <= count);
            let passed = passed.filter(|it| stopped.is_none_or(|at| it.file_offset < at));
            last_time_s = passed.last().map(|it| it.time_s).or(last_time_s);
            commands += count as u64;
            figures.commands.fetch_add(count as u64, Relaxed);
            let routed = router.route(&batch, 0..count, |routed| self.hand_out(routed, lanes));
            routed.map_err(ReplayError::Request)?;
            self.rest(count);
            if let Some(at) = stopped {
                break ReplayEnd::Stopped(at);
            }
            lanes.spares.try_iter().for_each(|batch| reader.recycle(batch));
            report.now_and_then();
        };
        let note = reader.last_note();
        Ok(ReplayResult { commands, errors: 0, end, untimed, last_time_s, next_time_s, note })
    }

    fn hand_out(&self, routed: Routed<'_, Batch>, lanes: &Lanes<'_>) {
        match routed {
            Routed::Tasks(tasks) => {
                for (sender, tasks) in lanes.senders.iter().zip(tasks) {
                    // A send fails only if a thread has panicked.
                    let _ = sender.send(tasks);
                }
            }
            Routed::Function(args) => self.keep_functions(&args),
            Routed::Failed(failed) => self.note_failed(&failed),
        }
    }

    /// Applies a FUNCTION request to the stored sources of libraries. The libraries are loaded when
    /// a client uses one.
    fn keep_functions(&self, args: &Args<'_>) {
        let mut functions = self.shared.persistence.functions();
        let name = |source: &[u8]| library_name(source).map(<[u8]>::to_vec);
        let keep = |functions: &mut Vec<Arc<[u8]>>, source: &[u8]| {
            functions.retain(|kept| name(kept) != name(source));
            functions.push(source.into());
        };
        if args.is(1, "LOAD") && args.len() > 2 {
            keep(&mut functions, args.get(args.len() - 1));
        } else if args.is(1, "RESTORE") && args.len() > 2 {
            let settings = self.shared.engine.settings.get();
            let rules = crate::rules::rules(&settings.limits, args.hasher());
            match persist::dump::restore_functions(args.get(2), &rules) {
                Ok(sources) => {
                    if args.len() > 3 && args.is(3, "FLUSH") {
                        functions.clear();
                    }
                    sources.iter().for_each(|source| keep(&mut functions, source));
                }
                Err(error) => tracing::warn!(%error, "Skipped while loading: FUNCTION RESTORE"),
            }
        } else if args.is(1, "DELETE") && args.len() == 3 {
            functions.retain(|kept| name(kept).as_deref() != Some(args.get(2)));
        } else if args.is(1, "FLUSH") {
            functions.clear();
        } else {
            tracing::warn!(
                "Skipped while loading: a FUNCTION command other than LOAD, RESTORE, DELETE or FLUSH"
            );
        }
    }
}

/// The channels between the thread that reads the file and the lanes, the threads that run its
/// requests.
struct Lanes<'a> {
    senders: Vec<SyncSender<Tasks>>,
    spares: &'a Receiver<Batch>,
}

/// Returns the number of requests of a batch that are before the point `stop_at`, at which the
/// replay must stop. If the batch contains the point, also returns its offset in the file.
fn part_before(batch: &Batch, stop_at: StopAt) -> (usize, Option<u64>) {
    match stop_at {
        StopAt::Offset(offset) => {
            let mut before = (0, batch.file_offset());
            for unit in batch.units() {
                let last = batch.request(unit.end - 1);
                let end = last.file_offset + last.len_bytes() as u64;
                if end > offset {
                    return (before.0, Some(before.1));
                }
                before = (unit.end, end);
            }
            (batch.len(), None)
        }
        StopAt::TimeS(time_s) => {
            let later = batch.annotations().iter().find(|it| it.time_s > time_s);
            // If the point is within a transaction, the whole transaction is after it.
            let whole = |it: usize| batch.units().take_while(|unit| unit.end <= it).last();
            later.map_or((batch.len(), None), |later| {
                let count = whole(later.requests_before).map_or(0, |unit| unit.end);
                let at = if count == later.requests_before {
                    later.file_offset
                } else {
                    batch.request(count).file_offset
                };
                (count, Some(at))
            })
        }
    }
}

/// Runs the requests of an append-only file, or of the part that `how` selects. The caller has
/// added the file to the progress figures with `LoadFigures::begin`. No other replay, load or save
/// is in progress.
///
/// # Errors
/// The reason why the file cannot be replayed. Some of its requests may have been run.
pub fn replay_file(shared: &Shared, path: &Path, how: ReplayRange) -> Result<ReplayResult, ReplayError> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(how.from_offset))?;
    let source = FileSource { file, figures: &shared.persistence.loading };
    let reader = Reader::behind(source, Vec::new(), how.from_offset);
    let replay = Replay { shared, way: how.way, errors: 0.into() };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let replayed = std::thread::scope(|scope| {
        let (spares_sender, spares) = channel();
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for number in 0..cores.clamp(1, LANES_MAX) {
            let (sender, tasks) = sync_channel(BATCHES_WAITING_MAX);
            let (replay, spares) = (&replay, spares_sender.clone());
            let body = move || replay.run_lane(number, &tasks, &spares);
            match std::thread::Builder::new().name("aof-replay".to_owned()).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) if number == 0 => return Err(error.into()),
                Err(_) => break,
            }
            senders.push(sender);
        }
        let replayed = replay.read(reader, how.stop_at, &Lanes { senders, spares: &spares });
        for thread in threads {
            let stats = thread.join().expect("a lane does not panic");
            shared.engine.threads.add_replay(&stats);
        }
        replayed
    })?;
    let errors = replay.errors.into_inner();
    if errors > ERRORS_LOGGED_MAX {
        tracing::warn!("{errors} commands failed: the log shows the first {ERRORS_LOGGED_MAX}");
    }
    Ok(ReplayResult { errors, ..replayed })
}

/// Returns true if a file begins with the magic bytes of an RDB snapshot.
pub(super) fn begins_with_snapshot(path: &Path) -> io::Result<bool> {
    let mut first = Vec::new();
    File::open(path)?.take(9).read_to_end(&mut first)?;
    Ok(starts_with_rdb(&first))
}

/// Loads one of the files that make up an append-only file: its snapshot, if it begins with one,
/// then its requests, up to `stop_at`. Returns the result of the replay.
pub(super) fn replay_part(
    shared: &Shared,
    path: &Path,
    way: Way,
    stop_at: Option<StopAt>,
) -> Result<ReplayResult, FileError> {
    let name = path.display();
    let has_snapshot =
        begins_with_snapshot(path).map_err(|error| FileError(format!("{name} cannot be read: {error}")))?;
    let mut from_offset = 0;
    if has_snapshot {
        let how = LoadMode {
            way,
            duplicates: Duplicates::Refused,
            expired: Expired::Kept,
            stream: None,
            hidden: None,
        };
        from_offset = load_rdb_part(shared, path, how).map_err(|error| {
            tracing::error!("{name}: {error}");
            FileError(format!("Error reading the RDB preamble of the AOF file {name}, AOF loading aborted"))
        })?;
    }
    let how = ReplayRange { way, from_offset, stop_at };
    replay_file(shared, path, how).map_err(|error| {
        FileError(match error {
            ReplayError::Request(not_routed) => format!(
                "{not_routed} reading the append only file {name}, at byte {}: the file may come from a \
                 newer server or a server with modules",
                not_routed.offset
            ),
            ReplayError::File(error) => format!(
                "Bad file format reading the append only file {name}: {error}. Make a backup of your AOF file, then \
                 use saker-check aof --fix <filename.manifest>"
            ),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use keyspace::key::SHARD_COUNT;
    use tempfile::NamedTempFile;

    use super::*;
    use crate::Server;

    const ALL: ReplayRange = ReplayRange { way: Way::Gate, from_offset: 0, stop_at: None };

    /// Creates a temporary append-only file from lines: an annotation, or the words of a request.
    fn file(lines: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("a scratch file");
        for line in lines.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let text = match line.strip_prefix('#') {
                Some(annotation) => format!("#{annotation}\r\n"),
                None => words.iter().fold(format!("*{}\r\n", words.len()), |text, word| {
                    format!("{text}${}\r\n{}\r\n", word.len(), word.replace('_', " "))
                }),
            };
            file.write_all(text.as_bytes()).expect("there is room");
        }
        file
    }

    fn server() -> Server {
        Server::builder().port(0).io_threads(1).start().expect("it starts")
    }

    fn keys(shared: &Shared) -> usize {
        let keyspace = &shared.engine.keyspace;
        let of_shard = |shard| keyspace.lock(shard).dbs().map(|db| db.table().len()).sum::<usize>();
        (0..SHARD_COUNT).map(of_shard).sum()
    }

    /// Replays a part of a file. Returns the result, and the number of keys after it.
    fn check(lines: &str, how: ReplayRange) -> (Result<ReplayResult, String>, usize) {
        let (file, server) = (file(lines), server());
        let shared = server.shared();
        let replayed = replay_file(shared, file.path(), how).map_err(|error| error.to_string());
        (replayed, keys(shared))
    }

    fn whole(commands: u64, errors: u64) -> Result<ReplayResult, String> {
        let (end, untimed) = (ReplayEnd::Whole, commands);
        Ok(ReplayResult { commands, errors, end, untimed, last_time_s: None, next_time_s: None, note: None })
    }

    #[test]
    fn all_of_a_file_is_run() {
        let lines = "SELECT 3\nSET a 1\nMULTI\nSET b 1\nLPUSH c x\nEXEC\nLPUSH a x\nMSET d 1 e 2 f 3";
        assert_eq!(check(lines, ALL), (whole(8, 1), 6));
        assert_eq!(check("SET a 1\nSWAPDB 0 1\nFLUSHDB\nSET b 1", ALL), (whole(4, 0), 2));
        assert_eq!(check("", ALL), (whole(0, 0), 0));
        let unknown = "Unknown command 'NOSUCH' at byte 27".to_owned();
        assert_eq!(check("SET a 1\nNOSUCH", ALL), (Err(unknown), 0));
    }

    #[test]
    fn what_it_did_is_counted() {
        let (file, server) = (file("SET a 1\nDEL a nothing\nHSET h f v g v\nINCR h\nGET h"), server());
        let threads = &server.shared().engine.threads;
        let counted = || {
            let counters = [
                threads.sum(|stats| &stats.changes),
                threads.sum(|stats| &stats.unexpected_errors),
                threads.sum(|stats| &stats.processed),
            ];
            let commands = &server.shared().persistence.loading.commands;
            (counters, commands.load(Relaxed))
        };
        assert_eq!(counted(), ([0, 0, 0], 0));
        replay_file(server.shared(), file.path(), ALL).expect("it can be replayed");
        assert_eq!(counted(), ([4, 2, 0], 5));
    }

    #[test]
    fn the_owner_of_the_keyspace_can_have_a_file_replayed() {
        let (file, server) = (file("SET a 1\nFLUSHALL\nSET b 1\nMSET c 1 d 2\nSWAPDB 0 1"), server());
        let shared = server.shared();
        let how = ReplayRange { way: Way::Owner, ..ALL };
        let replayed = shared.engine.gate.exclusive(|_| replay_file(shared, file.path(), how));
        assert_eq!((replayed.map_err(|error| error.to_string()), keys(shared)), (whole(5, 0), 3));
    }

    #[test]
    fn a_part_of_a_file_can_be_run() {
        let lines = "SET a 1\n#TS:100\nSET b 1\nMULTI\nSET c 1\n#TS:200\nSET d 1\nEXEC\n#TS:300\nSET e 1";
        let stopped = |commands: u64, at, last_time_s, next_time_s| {
            let (end, untimed) = (ReplayEnd::Stopped(at), commands.min(1));
            Ok(ReplayResult { commands, errors: 0, end, untimed, last_time_s, next_time_s, note: None })
        };
        let until = |stop_at| check(lines, ReplayRange { stop_at: Some(stop_at), ..ALL });
        assert_eq!(until(StopAt::TimeS(99)), (stopped(1, 27, None, Some(100)), 1));
        // The annotation of time 200 is within a transaction.
        assert_eq!(until(StopAt::TimeS(100)), (stopped(2, 63, Some(100), Some(200)), 2));
        assert_eq!(until(StopAt::TimeS(299)).1, 4);
        let all = whole(7, 0).map(|all| ReplayResult { untimed: 1, last_time_s: Some(300), ..all });
        assert_eq!(until(StopAt::TimeS(300)), (all, 5));
        assert_eq!(until(StopAt::Offset(63)), (stopped(2, 63, Some(100), None), 2));
        assert_eq!(until(StopAt::Offset(62)), (stopped(1, 27, None, None), 1));
        assert_eq!(until(StopAt::Offset(0)), (stopped(0, 0, None, None), 0));
        let (replayed, keys) = check(lines, ReplayRange { from_offset: 63, ..ALL });
        assert_eq!((replayed.map(|it| it.commands), keys), (Ok(5), 3));
    }

    #[test]
    fn a_transaction_that_is_not_whole_is_torn() {
        let (replayed, keys) = check("SET a 1\nMULTI\nSET b 1", ALL);
        let Ok(ReplayResult { commands: 1, end: ReplayEnd::Torn(torn), .. }) = replayed else {
            panic!("{replayed:?}");
        };
        assert_eq!((torn.good_len_bytes, torn.multi_offset, keys), (27, Some(27), 1));
    }

    #[test]
    fn functions_are_kept() {
        let file = file(
            "FUNCTION LOAD #!lua_name=one\nFUNCTION LOAD #!lua_name=two\nFUNCTION LOAD REPLACE #!lua_name=one\n\
             FUNCTION DELETE two\nFUNCTION LOAD #!lua_name=three",
        );
        let server = server();
        replay_file(server.shared(), file.path(), ALL).expect("it can be replayed");
        let kept = server.shared().persistence.functions().clone();
        assert_eq!(kept, [&b"#!lua name=one"[..], b"#!lua name=three"].map(Arc::from));
    }
}

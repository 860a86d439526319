//! Loads the append-only files of a simulated folder into an engine, as a server does at its start.
//! The base is loaded first. Then the requests run in lanes, each a thread of the simulator.

use std::collections::HashMap;
use std::sync::Arc;

use engine::Shared;
use engine::clock::ManualClock;
use engine::replay::{Lane, Routed, Router, Slice, Task};
use engine::shared::GateSlot;
use engine::stats::ThreadStats;
use keyspace::Access;
use persist::aof::files::Files;
use persist::aof::manifest::ToLoad;
use persist::aof::reader::{Batch, End, Next, Reader, starts_with_rdb};
use persist::folder::{FileError, Folder as _};
use persist::load::{DecodeOptions, Decoded, Part, Splitter, decode_batch};

use crate::contents::{STRICT, rules};
use crate::disk::SimulatedFolder;

/// The name of the append-only file in the simulated folder.
pub(super) const NAME: &str = "a.aof";

/// The contents of a folder's append-only files, without the incomplete command or transaction at
/// the end.
pub(super) struct Found {
    pub files: Files,
    /// The content of the base file; `None` if there is no base.
    pub base: Option<Vec<u8>>,
    /// The contents of the incremental files, in order, without an incomplete command or
    /// transaction at the end.
    pub incr: Vec<Vec<u8>>,
    /// The requests of the incremental files as bytes, without the timestamps.
    pub requests: Vec<u8>,
    /// The name of the file that ends within a command or transaction, if there is one, and the
    /// length in bytes of the whole ones before that.
    torn: Option<(String, u64)>,
}

impl Found {
    /// Cuts off the incomplete end of the last file. A server does this before it appends to the
    /// file.
    pub fn cut_torn(&self, folder: &SimulatedFolder) -> Result<(), FileError> {
        let Some((name, len_bytes)) = &self.torn else { return Ok(()) };
        folder.open_log(name, *len_bytes)?.sync()
    }

    /// Returns the length of the whole commands and transactions in the last incremental file, in
    /// bytes.
    pub fn last_len_bytes(&self) -> u64 {
        self.incr.last().map_or(0, |bytes| bytes.len() as u64)
    }
}

/// The results of parsed incremental files of append-only files, by the bytes of the file, because
/// the same files occur again and again.
#[derive(Default)]
pub(super) struct Readings(HashMap<Vec<u8>, Arc<Reading>>);

struct Reading {
    /// The requests of the incremental file as bytes, without the timestamps.
    requests: Vec<u8>,
    /// The total length of the whole commands and transactions in the file, in bytes.
    whole_len_bytes: usize,
}

impl Readings {
    fn of(&mut self, bytes: &[u8]) -> Result<Arc<Reading>, String> {
        if let Some(reading) = self.0.get(bytes) {
            return Ok(Arc::clone(reading));
        }
        let mut requests = Vec::new();
        let whole_len_bytes = each_batch(bytes, |batch| {
            for request in batch.requests() {
                requests.extend_from_slice(&request.bytes[..request.len_bytes()]);
            }
        })?;
        let reading = Arc::new(Reading { requests, whole_len_bytes });
        self.0.insert(bytes.to_vec(), Arc::clone(&reading));
        Ok(reading)
    }
}

/// Parses an incremental file and calls `each` for every batch of its whole commands and
/// transactions. Returns their total length in bytes.
fn each_batch(bytes: &[u8], mut each: impl FnMut(Batch)) -> Result<usize, String> {
    let mut reader = Reader::new(bytes);
    loop {
        match reader.next_batch().map_err(|error| error.to_string())? {
            Next::Batch(batch) => each(batch),
            Next::End(End::Whole) => return Ok(bytes.len()),
            Next::End(End::TornTail(torn)) => return Ok(torn.good_len_bytes as usize),
        }
    }
}

/// Finds the append-only files of a folder after a crash. Sectors that were not written are zeros.
/// If the last file has such sectors, it is read only up to the first zero byte. An operator would
/// repair it in the same way.
pub(super) fn find(folder: &SimulatedFolder, readings: &mut Readings) -> Result<Found, String> {
    let files = Files::open(folder, NAME).map_err(|error| error.to_string())?;
    let names = files.manifest().parts().map(|part| part.name.clone());
    let contents = names.map(|name| folder.file(&name).ok_or(format!("{name} is missing")));
    let mut contents: Vec<Vec<u8>> = contents.collect::<Result<_, String>>()?;
    let lens_bytes: Vec<u64> = contents.iter().map(|bytes| bytes.len() as u64).collect();
    let (mut base, mut incr, mut requests, mut torn) = (None, Vec::new(), Vec::new(), None);
    for (ToLoad { part, is_base, may_be_torn }, bytes) in
        files.manifest().to_load(&lens_bytes).into_iter().zip(&mut contents)
    {
        let bytes = std::mem::take(bytes);
        if is_base {
            base = Some(bytes);
            continue;
        }
        let hole = bytes.iter().position(|&byte| byte == 0).filter(|_| may_be_torn);
        let readable = &bytes[..hole.unwrap_or(bytes.len())];
        let reading = readings.of(readable).map_err(|error| format!("{}: {error}", part.name))?;
        let whole = reading.whole_len_bytes;
        requests.extend_from_slice(&reading.requests);
        if whole < bytes.len() && !may_be_torn {
            return Err(format!("{} is torn, and files behind it are not empty", part.name));
        }
        if whole < bytes.len() {
            torn = Some((part.name.clone(), whole as u64));
        }
        incr.push(bytes[..whole].to_vec());
    }
    Ok(Found { files, base, incr, requests, torn })
}

/// Loads the append-only files into an engine that has no other user, with `lanes` threads (lanes)
/// that share the requests.
pub(super) fn load(
    engine: &Arc<Shared>,
    clock: &ManualClock,
    found: &Found,
    lanes: usize,
) -> Result<(), String> {
    match &found.base {
        Some(base) if starts_with_rdb(base) => load_snapshot(engine, base)?,
        Some(base) => replay(engine, clock, base, lanes)?,
        None => {}
    }
    found.incr.iter().try_for_each(|bytes| replay(engine, clock, bytes, lanes))
}

fn load_snapshot(engine: &Shared, bytes: &[u8]) -> Result<(), String> {
    let (keyspace, text) = (&engine.keyspace, |error: persist::load::LoadError| error.to_string());
    let rules = rules(keyspace.hasher());
    // Expired keys are loaded too: the later requests were executed before these keys expired.
    let options = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms: i64::MIN };
    let mut splitter = Splitter::open(bytes, STRICT, keyspace.db_count()).map_err(text)?;
    loop {
        match splitter.next_part().map_err(text)? {
            Part::End => return Ok(()),
            Part::Batch(batch) => {
                let mut entries = Vec::new();
                let decoded = decode_batch(&batch, &options, |decoded| {
                    if let Decoded::Key(entry) = decoded {
                        entries.push((keyspace.hasher().hash_key(entry.key()), entry));
                    }
                });
                decoded.map_err(text)?;
                let _pass = engine.enter_gate(GateSlot::Loader(0));
                let added = keyspace.insert_all_absent(batch.db(), entries);
                added.map_err(|key| format!("{} is there twice", key.key().escape_ascii()))?;
            }
            Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
        }
    }
}

/// Replays the requests in `bytes` with `lanes` threads (lanes) that share them.
fn replay(engine: &Arc<Shared>, clock: &ManualClock, bytes: &[u8], lanes: usize) -> Result<(), String> {
    let (mut router, mut failed) = (Router::new(engine, lanes), None);
    let mut tasks: Vec<Vec<Task<Batch>>> = (0..lanes).map(|_| Vec::new()).collect();
    let mut refused = None;
    let len_bytes = each_batch(bytes, |batch| {
        let batch = Arc::new(batch);
        let routed = router.route(&batch, 0..batch.len(), |routed| match routed {
            Routed::Tasks(of_lanes) => {
                tasks.iter_mut().zip(of_lanes).for_each(|(tasks, of_lane)| tasks.extend(of_lane));
            }
            Routed::Function(_) => failed = Some("a function".to_owned()),
            Routed::Failed(request) => failed = Some(described(&request)),
        });
        refused = refused.take().or(routed.err());
    })?;
    assert_eq!(len_bytes, bytes.len(), "what is torn was cut off");
    if let Some(refused) = refused {
        return Err(refused.to_string());
    }
    let found = run_lanes(engine, clock, tasks);
    failed.or(found).map_or(Ok(()), |failed| Err(format!("a request of a file failed: {failed}")))
}

fn described(failed: &engine::replay::Failed<'_>) -> String {
    format!("{} at byte {}: {}", failed.command, failed.offset, failed.error.escape_ascii())
}

/// Runs the tasks of each lane of a replay on a thread of its own. Returns the error text of a
/// request that failed, if there is one.
fn run_lanes(engine: &Arc<Shared>, clock: &ManualClock, tasks: Vec<Vec<Task<Batch>>>) -> Option<String> {
    let threads = tasks.into_iter().enumerate().map(|(number, tasks)| {
        let (engine, clock) = (Arc::clone(engine), clock.clone());
        shuttle::thread::spawn(move || run_lane(&engine, &clock, number, tasks))
    });
    let threads: Vec<_> = threads.collect();
    let ended = threads.into_iter().map(|thread| thread.join().expect("a lane that panics ends the run"));
    ended.fold(None, Option::or)
}

fn run_lane(engine: &Shared, clock: &ManualClock, number: usize, tasks: Vec<Task<Batch>>) -> Option<String> {
    let stats = ThreadStats::new(engine.table.id_count()).into_inner();
    let mut lane = Lane::new(engine, &stats, number as u64, clock.clone());
    let mut failed = None;
    let mut run = |slice: &Slice<Batch>| {
        let mut pass = engine.enter_gate(GateSlot::Lane(number));
        lane.run(slice, &mut pass, |request| failed = failed.take().or(Some(described(&request))));
        drop(pass);
        drop(lane.outbox().take());
    };
    for task in tasks {
        match task {
            Task::Run(slice) => run(&slice),
            Task::Meet(meeting) if meeting.arrive() => {
                run(meeting.slice());
                meeting.end();
            }
            Task::Meet(meeting) => meeting.wait(),
        }
    }
    failed
}

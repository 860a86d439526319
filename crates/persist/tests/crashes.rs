//! Tests of saves on a disk that fails. Whichever operation fails, the folder must hold a complete
//! file: the last one that was reported as saved, or the new one. The next save must work.
//!
//! Seeds determine the saves: their format, their data, the thread of the save (walker) that runs
//! next, changes between two steps, short writes. Each save runs once to record the result of a
//! crash at each of its operations. It then runs once for each operation, which fails in that run.
//! `SAKER_SAVES=2000` sets the number of seeds. The first seed follows from `PROPTEST_RNG_SEED`,
//! which also determines the property tests.

use std::sync::Arc;
use std::time::Instant;

use engine::Shared;
use engine::settings::Settings;
use engine::shared::Start;
use engine::table::CommandTable;
use keyspace::key::shard_of;
use keyspace::snapshot::OnFlush;
use keyspace::{Access, KeyEntry, ListLimits, PackLimits, SetLimits, StreamLimits};
use persist::folder::{
    Folder as _, KnownFiles, Place, Syncing, Target, Unsaved, save_into, temporary_name, writer_pid,
};
use persist::load::{
    ByteSource, DecodeOptions, Decoded, LoadOptions, Part, Splitter, Unsupported, decode_batch,
};
use persist::rdb::{Compression, Rules, Usage, VersionCheck};
use persist::save::{self, ChunkSink, Save, SaveFormat, SaveOptions, Step, Way};
use testkit::Rng;
use testkit::contents::{Contents, difference, of_file, of_keyspace};
use testkit::disk::{Fault, Operation, Plan, SimulatedFolder};
use testkit::replay::{Player, empty_engine};

/// The number of seeds in CI; each needs about eighty saves.
const SEEDS: u64 = 20;
/// The number of databases in which the tests have keys.
const DBS: usize = 3;
const NAME: &str = "dump.rdb";
/// The process ID in the names of temporary files.
const PID: u32 = 77;

/// The engine whose data the tests save, and values of all types to fill it with.
struct Server {
    engine: Shared,
    /// The files that saves of the server may replace.
    known: KnownFiles,
    values: Vec<KeyEntry>,
}

impl Server {
    fn new() -> Self {
        let table = CommandTable::new(engine::exec::commands());
        let (settings, seed, now) = (Settings::default(), [1, 2, 3, 4], Instant::now());
        let engine = Shared::new(Start { threads: 1, databases: 16, table, settings, seed, now });
        let mut values = Vec::new();
        for file in ["redis-8.0.2", "valkey-9.1.2"] {
            let path = format!("{}/tests/files/{file}.rdb", env!("CARGO_MANIFEST_DIR"));
            add_values(&std::fs::read(path).expect("readable"), &engine, &mut values);
        }
        let text = keyspace::string::stored(&[b'x'; 60_000]);
        values.push(KeyEntry::new(b"long", text, None, 0));
        Self { engine, known: KnownFiles::default(), values }
    }

    /// Adds, replaces or removes a random key in one of the databases.
    fn change(&self, rng: &mut Rng) {
        let (db, value) = (rng.below(DBS), rng.pick(&self.values));
        let name = [value.key(), b"-", rng.below(3).to_string().as_bytes()].concat();
        let keyspace = &self.engine.keyspace;
        let mut shard = keyspace.lock(shard_of(keyspace.hasher().hash_key(&name)));
        keyspace.remove(&mut shard, db, &name);
        if rng.percent(60) {
            assert!(keyspace.insert_absent(&mut shard, db, value.duplicate(&name, 0)));
        }
    }

    /// Saves the server's data into a folder. The seed determines the options, the steps, and the
    /// changes between them. Returns the result, and the contents of the engine when the save
    /// began.
    fn save(&self, folder: &SimulatedFolder, seed: u64) -> (Result<(), Unsaved>, Contents) {
        let mut rng = Rng::new(seed);
        let options = SaveOptions {
            format: *rng.pick(&[SaveFormat::Rdb, SaveFormat::Commands { time_s: Some(1) }]),
            contents: save::Contents::all(),
            on_flush: OnFlush::Abandon,
            compression: *rng.pick(&[Compression::None, Compression::Lzf]),
            checksum: true,
            usage: Usage::None,
            version: None,
            facts: vec![("redis-ver", "8.0.2".to_owned())],
        };
        let engine = &self.engine;
        let save = engine
            .gate
            .exclusive(|alone| Save::begin(engine, alone, options, vec![b"#!lua name=lib"[..].into()]))
            .expect("the only one");
        let at_point = of_keyspace(&engine.keyspace);
        let len_bytes = *rng.pick(&[1, 4096, 1 << 20]);
        let syncing = *rng.pick(&[Syncing::AtEnd, Syncing::Every { len_bytes }]);
        let (temporary, name) = (temporary_name(PID), NAME.to_owned());
        let changes = rng.below(20);
        let place = Place::Over { known: &self.known, set_aside: &|name| panic!("{name} was kept aside") };
        let target = Target { folder, temporary, name, place, syncing };
        let result = save_into(target, &save, engine, |out| self.drive(&save, out, &mut rng, changes));
        (result, at_point)
    }

    fn drive(&self, save: &Arc<Save>, out: &dyn ChunkSink, rng: &mut Rng, changes: usize) {
        let mut walkers: Vec<_> =
            (0..1 + rng.below(3)).map(|number| save.walker(number, Way::Gate)).collect();
        while !walkers.is_empty() {
            let at = rng.below(walkers.len());
            if save.step(&self.engine, &mut walkers[at], out) == Step::Done {
                walkers.remove(at);
            }
            if rng.below(2000) < changes {
                self.change(rng);
            }
        }
    }
}

/// Appends the keys of the file in `bytes` to `values`.
fn add_values(bytes: &[u8], engine: &Shared, values: &mut Vec<KeyEntry>) {
    let pack = PackLimits { entries_max: 20, value_len_bytes_max: 64 };
    let rules = Rules {
        hasher: engine.keyspace.hasher(),
        list: ListLimits::from_option(50),
        set: SetLimits { intset_entries_max: 20, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 10 },
        string_len_bytes_max: 1 << 20,
        versions: VersionCheck::Strict,
        skips_checksums: false,
    };
    let options =
        LoadOptions { versions: VersionCheck::Strict, checksum: true, unsupported: Unsupported::Refused };
    let decoding = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms: 0 };
    let mut splitter = Splitter::open(bytes, options, 16).expect("a file");
    loop {
        match splitter.next_part().expect("a whole file") {
            Part::End => return,
            Part::Batch(batch) => {
                let db = batch.db();
                let add = |decoded: Decoded<'_>| {
                    // The second database has the same keys.
                    if let (0, Decoded::Key(entry)) = (db, decoded) {
                        values.push(entry);
                    }
                };
                decode_batch(&batch, &decoding, add).expect("whole keys");
            }
            Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
        }
    }
}

/// A source that returns the bytes of a file in short reads.
struct ShortReads<'b>(&'b [u8], Rng);

impl ByteSource for ShortReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, persist::folder::FileError> {
        let len = buffer.len().min(1 + self.1.below(5000));
        self.0.read(&mut buffer[..len])
    }
}

/// Removes the files that saves of dead processes left, as a restart does. Returns the saved file,
/// if there is one.
fn restart(folder: &SimulatedFolder) -> Option<Vec<u8>> {
    for name in folder.names() {
        if writer_pid(&name).is_some() {
            folder.remove(&name).expect("the disk works again");
        }
    }
    let expected: &[&str] = if folder.file(NAME).is_some() { &[NAME] } else { &[] };
    assert_eq!(folder.names(), expected, "nothing else is left");
    folder.file(NAME)
}

/// Checks that the saved file has the expected content of the keyspace, or that its commands create
/// it.
fn check_file(server: &Server, bytes: &[u8], expected: &Contents, seed: u64) {
    let found = if bytes.starts_with(b"#") {
        let replica = empty_engine(seed);
        Player::new(&replica).replay(bytes).expect("whole commands");
        of_keyspace(&replica.keyspace)
    } else {
        let source = ShortReads(bytes, Rng::new(seed));
        of_file(source, server.engine.keyspace.hasher()).expect("a whole file").keys
    };
    let difference = difference(("the keyspace", expected), ("the file", &found));
    assert_eq!(difference, None, "seed {seed}");
}

/// Saves once, and checks a crash at each of the save's operations. Returns the folder after the
/// save, and the number of operations.
fn crash_everywhere(server: &Server, before: &SimulatedFolder, seed: u64) -> (SimulatedFolder, u64) {
    let mut rng = Rng::new(seed);
    let mut folder = before.fork(Plan::Never);
    folder.note_moments();
    let (result, at_point) = server.save(&folder, seed);
    assert_eq!(result, Ok(()), "seed {seed}");
    let (old, new) = (before.file(NAME), folder.file(NAME));
    check_file(server, new.as_ref().expect("saved"), &at_point, seed);
    for _ in 0..3 {
        let crashes = folder.crashes(&mut rng);
        let operations = crashes.len() - 1;
        for (at, crash) in crashes.iter().enumerate() {
            let left = restart(crash);
            let is_new = left == new;
            assert!(is_new || left == old, "seed {seed}, operation {at} of {operations}: neither, or a mix");
            assert!(is_new || at < operations, "seed {seed}: it was reported, and is lost");
        }
    }
    let operations = folder.operations();
    (folder, operations)
}

/// Saves with one operation that fails, and then without failure. Returns false if the save has
/// fewer operations, so that none failed.
fn fail_at(server: &Server, before: &SimulatedFolder, plan: Plan, seed: u64) -> bool {
    let folder = before.fork(plan);
    before.stamp(NAME).expect("works").into_iter().for_each(|stamp| server.known.add(stamp));
    let (result, _) = server.save(&folder, seed);
    let failed = folder.failed();
    let Some(first) = failed.first() else { return false };
    let what = format!("seed {seed}, {plan:?}, {failed:?} failed");
    assert!(matches!(result, Err(Unsaved::Failed(_))), "{what}: {result:?}");
    let (old, mut rng) = (before.file(NAME), Rng::new(seed));
    // At the last operation the new file is in its place, but a crash may bring the old one back.
    let is_placed = *first == Operation::SyncFolder;
    assert!(is_placed || folder.file(NAME) == old, "{what}: the old file was replaced");
    if !failed.contains(&Operation::Remove) {
        assert!(folder.names().iter().all(|name| name == NAME), "{what}: {:?} are left", folder.names());
    }
    let left = restart(&folder.after_crash(&mut rng));
    assert!(left == old || is_placed && left == folder.file(NAME), "{what}: a crash then leaves neither");
    folder.plan(Plan::Never);
    let (result, at_point) = server.save(&folder, seed ^ 1);
    assert_eq!(result, Ok(()), "{what}: the next save");
    assert_eq!(folder.names(), [NAME], "{what}: the next save");
    let new = folder.file(NAME).expect("saved");
    check_file(server, &new, &at_point, seed);
    let left = restart(&folder.after_crash(&mut rng));
    assert!(left == Some(new), "{what}: the next save was reported, and is lost");
    true
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn a_crash_or_a_fault_at_any_operation_leaves_a_whole_file() {
    let server = Server::new();
    let first = number_from("PROPTEST_RNG_SEED").unwrap_or(1).wrapping_mul(1 << 32);
    let seeds = number_from("SAKER_SAVES").unwrap_or(SEEDS);
    let mut folder = SimulatedFolder::new(first);
    let (mut saves, mut crashes) = (0, 0);
    for seed in (0..seeds).map(|at| first.wrapping_add(2 * at)) {
        let mut rng = Rng::new(seed ^ 0x6368_616e_6765);
        (0..rng.below(60)).for_each(|_| server.change(&mut rng));
        let (after, operations) = crash_everywhere(&server, &folder, seed);
        (saves, crashes) = (saves + 1, crashes + 3 * (operations + 1));
        // The number of operations may differ, because the data has changed since.
        for at in 0.. {
            let fault = *rng.pick(&[Fault::NoSpace, Fault::Io]);
            let plan = *rng.pick(&[Plan::Once(at, fault), Plan::From(at, fault)]);
            saves += 2;
            if !fail_at(&server, &folder, plan, seed) {
                break;
            }
        }
        folder = after;
    }
    println!("{saves} saves, {crashes} crashes");
}

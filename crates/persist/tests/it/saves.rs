//! Tests of saves during which all data is flushed, and of saves whose contents are restricted.

use std::sync::Arc;

use engine::Shared;
use keyspace::snapshot::OnFlush;
use persist::folder::{temporary_received_name, temporary_sync_name, writer_pid};
use persist::load::{Part, Splitter};
use persist::rdb::{Compression, FileVersion, Usage};
use persist::save::{ChunkSink, Contents, Failed, Save, SaveFormat, SaveOptions, Step, Unfit, Walker, Way};
use testkit::Rng;
use testkit::contents::{STRICT, of_file, of_keyspace};
use testkit::replay::{Player, empty_engine};

/// A destination that collects the bytes of a saved file.
#[derive(Default)]
pub struct Bytes(std::sync::Mutex<Vec<u8>>);

impl Bytes {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl ChunkSink for Bytes {
    fn append(&self, bytes: &[u8]) -> Result<(), Failed> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(())
    }
}

fn options(contents: Contents, on_flush: OnFlush) -> SaveOptions {
    SaveOptions {
        format: SaveFormat::Rdb,
        contents,
        on_flush,
        version: None,
        compression: Compression::None,
        checksum: true,
        usage: Usage::None,
        facts: vec![("first", "1".to_owned())],
    }
}

fn begin(engine: &Shared, options: SaveOptions) -> Arc<Save> {
    let functions = vec![b"#!lua name=lib"[..].into()];
    engine.gate.exclusive(|alone| Save::begin(engine, alone, options, functions)).expect("the only one")
}

/// Fills two databases with small keys, and with big values that are written in pieces.
fn fill(engine: &Shared) {
    let mut player = Player::new(engine);
    for db in ["0", "3"] {
        player.run(&["SELECT", db]);
        for number in 0..2000 {
            player.run(&["SET", &format!("key{number}"), "value"]);
        }
        for number in 0..8 {
            for member in 0..3000 {
                player.run(&[
                    "SADD",
                    &format!("set{number}"),
                    &format!("member{member}-{}", "x".repeat(100)),
                ]);
            }
        }
    }
}

/// Lets the threads of a save (walkers) take steps in random order until all are done, at most
/// `steps_max` steps.
fn step(
    save: &Save,
    engine: &Shared,
    (walkers, out): (&mut Vec<Walker>, &Bytes),
    (rng, steps_max): (&mut Rng, usize),
) {
    for _ in 0..steps_max {
        if walkers.is_empty() {
            return;
        }
        let at = rng.below(walkers.len());
        if save.step(engine, &mut walkers[at], out) == Step::Done {
            walkers.remove(at);
        }
    }
}

/// Saves a snapshot, with a flush of all data after `steps` steps. Returns the result, the bytes
/// and the number of keys that were written before the flush.
fn save_with_flush(
    engine: &Shared,
    on_flush: OnFlush,
    (rng, steps): (&mut Rng, usize),
) -> (Result<(), Failed>, Vec<u8>, u64) {
    let save = begin(engine, options(Contents::all(), on_flush));
    let out = Bytes::default();
    save.write_head(engine, &out);
    let mut walkers: Vec<_> = (0..1 + rng.below(3)).map(|number| save.walker(number, Way::Gate)).collect();
    step(&save, engine, (&mut walkers, &out), (rng, steps));
    let before = save.progress().keys_done;
    let mut player = Player::new(engine);
    player.run(&["FLUSHALL"]);
    player.run(&["SET", "later", "value"]);
    step(&save, engine, (&mut walkers, &out), (rng, usize::MAX));
    let result = save.finish(engine, &out).map(|_| ());
    assert_eq!(save.has_failed(), result.is_err());
    (result, out.take(), before)
}

#[test]
fn a_flush_leaves_a_file_complete_or_abandons_it() {
    let engine = empty_engine(1);
    let mut written_before = std::collections::BTreeSet::new();
    for seed in 0..24 {
        fill(&engine);
        let at_point = of_keyspace(&engine.keyspace);
        let mut rng = Rng::new(seed);
        let steps = rng.below(3000);
        let (result, bytes, before) = save_with_flush(&engine, OnFlush::Continue, (&mut rng, steps));
        assert_eq!(result, Ok(()), "seed {seed}");
        let file = of_file(&bytes[..], engine.keyspace.hasher())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(file.keys == at_point, "seed {seed}: {} keys of {}", file.keys.len(), at_point.len());
        written_before.insert(before);
        // A later walk can begin, and the flush leaves no mark.
        let (result, _, _) = save_with_flush(&engine, OnFlush::Abandon, (&mut rng, 10));
        assert_eq!(result, Err(Failed), "seed {seed}");
    }
    assert!(written_before.len() > 12, "the flushes come at different moments: {written_before:?}");
}

#[test]
fn a_flush_in_the_middle_of_a_big_value_leaves_it_complete() {
    let engine = empty_engine(1);
    let mut player = Player::new(&engine);
    for member in 0..20_000 {
        player.run(&["SADD", "big", &format!("member{member}-{}", "x".repeat(100))]);
    }
    let at_point = of_keyspace(&engine.keyspace);
    // The value has about 2 MB, so a part of it is in the file before the flush.
    let mut rng = Rng::new(1);
    let save = begin(&engine, options(Contents::all(), OnFlush::Continue));
    let out = Bytes::default();
    save.write_head(&engine, &out);
    let mut walkers = vec![save.walker(0, Way::Gate), save.walker(1, Way::Gate)];
    while out.0.lock().expect("nobody panicked").len() < 500_000 {
        step(&save, &engine, (&mut walkers, &out), (&mut rng, 1));
    }
    assert_eq!(save.progress().keys_done, 0, "it is not complete");
    player.run(&["FLUSHALL"]);
    player.run(&["SADD", "big", "another"]);
    step(&save, &engine, (&mut walkers, &out), (&mut rng, usize::MAX));
    assert!(save.finish(&engine, &out).is_ok());
    let file = of_file(&out.take()[..], engine.keyspace.hasher()).expect("a whole file");
    assert_eq!(file.keys, at_point);
}

#[test]
fn an_abandoned_save_fails_even_if_a_flush_follows() {
    let engine = empty_engine(1);
    fill(&engine);
    let save = begin(&engine, options(Contents::all(), OnFlush::Continue));
    let (out, mut rng) = (Bytes::default(), Rng::new(1));
    save.write_head(&engine, &out);
    let mut walkers = vec![save.walker(0, Way::Gate)];
    step(&save, &engine, (&mut walkers, &out), (&mut rng, 100));
    Player::new(&engine).run(&["FLUSHALL"]);
    save.abandon(&engine);
    step(&save, &engine, (&mut walkers, &out), (&mut rng, usize::MAX));
    assert_eq!(save.finish(&engine, &out), Err(Failed));
}

/// Checks that the copies and the encoded keys that a save makes in memory do not count towards
/// `maxmemory`. Otherwise keys would be evicted for them.
#[test]
fn issue_33_copies_and_records_of_a_save_are_counted_as_held_by_it() {
    const LEN_BYTES: usize = 1 << 20;
    let engine = empty_engine(1);
    let mut player = Player::new(&engine);
    for key in ["visited", "changed"] {
        player.run(&["SET", key, &"x".repeat(LEN_BYTES)]);
    }
    let save = begin(&engine, options(Contents::all(), OnFlush::Continue));
    player.run(&["APPEND", "changed", "y"]);
    let held_bytes = || engine.keyspace.snapshot().held_len_bytes();
    assert!(held_bytes() >= LEN_BYTES, "the copy that was handed over");
    let (out, mut rng) = (Bytes::default(), Rng::new(1));
    save.write_head(&engine, &out);
    let mut walkers = vec![save.walker(0, Way::Gate)];
    let mut most_bytes = 0;
    while !walkers.is_empty() {
        step(&save, &engine, (&mut walkers, &out), (&mut rng, 1));
        most_bytes = most_bytes.max(held_bytes());
    }
    assert!(most_bytes >= 2 * LEN_BYTES, "beside the copy there is a record: {most_bytes} bytes");
    assert_eq!(held_bytes(), 0, "its walker has ended");
    assert!(save.finish(&engine, &out).is_ok());
}

/// Returns the number of keys and of libraries in the file of a save with these contents.
fn counts_of(engine: &Shared, contents: Contents) -> (usize, usize) {
    let save = begin(engine, options(contents, OnFlush::Continue));
    save.add_facts([("second", "2".to_owned())]);
    let (out, mut rng) = (Bytes::default(), Rng::new(1));
    let mut steps = 0;
    let done = save.write_into(engine, &out, |_| {
        let mut walkers = vec![save.walker(0, Way::Gate)];
        while !walkers.is_empty() {
            step(&save, engine, (&mut walkers, &out), (&mut rng, 1));
            // Writers change keys meanwhile; a save without data keeps no copy of them.
            Player::new(engine).run(&["APPEND", "key1", "x"]);
            steps += 1;
        }
    });
    let bytes = out.take();
    assert_eq!(done.map(|progress| progress.keys_done == progress.keys), Ok(true));
    assert!(contents.contains(Contents::DATA) || steps == 1, "{steps} steps without data");
    let file = of_file(&bytes[..], engine.keyspace.hasher()).expect("a whole file");
    assert_eq!(file.facts.get(&b"first"[..]).map(|value| &value[..]), Some(&b"1"[..]));
    assert_eq!(file.facts.get(&b"second"[..]).map(|value| &value[..]), Some(&b"2"[..]));
    let mut splitter = Splitter::open(&bytes[..], STRICT, 16).expect("a file");
    let mut functions = 0;
    loop {
        match splitter.next_part().expect("a whole file") {
            Part::End => return (file.keys.len(), functions),
            Part::Function(_) => functions += 1,
            _ => {}
        }
    }
}

#[test]
fn a_file_that_a_full_sync_left_names_its_process() {
    assert_eq!(writer_pid(&temporary_sync_name(7, 3)), Some(7));
    assert_eq!(writer_pid(&temporary_received_name(1_700_000_000, 7)), Some(7));
    for name in [
        "temp-x.7.rdb",
        "temp-1.x.rdb",
        "temp-1.7.8.rdb",
        "temp-repl-7.rdb",
        "temp-repl-x-3.rdb",
        "temp-repl-7-x.rdb",
        "repl-7-3.rdb",
    ] {
        assert_eq!(writer_pid(name), None, "{name}");
    }
}

#[test]
fn a_file_has_the_requested_contents() {
    let engine = empty_engine(1);
    fill(&engine);
    let keys = of_keyspace(&engine.keyspace).len();
    assert_eq!(counts_of(&engine, Contents::empty()), (0, 0));
    assert_eq!(counts_of(&engine, Contents::FUNCTIONS), (0, 1));
    assert_eq!(counts_of(&engine, Contents::DATA), (keys, 0));
    assert_eq!(counts_of(&engine, Contents::all()), (keys, 1));
}

#[test]
fn only_the_requested_contents_must_fit_the_version() {
    let engine = empty_engine(1);
    let mut player = Player::new(&engine);
    player.run(&["HSET", "hash", "field", "value"]);
    player.run(&["HPEXPIREAT", "hash", "9000000000000", "FIELDS", "1", "field"]);
    let unfit = |contents, version| {
        let options = SaveOptions { version: Some(version), ..options(contents, OnFlush::Continue) };
        engine.gate.exclusive(|alone| {
            let functions = vec![b"#!lua name=lib"[..].into()];
            let save =
                Save::begin(&engine, alone, options, functions).expect("the earlier ones were taken back");
            save.take_back(&engine, alone);
            assert!(save.has_failed());
            save.unfit()
        })
    };
    let fields = Unfit::FieldDeadlines { hashes: 1, version: 11 };
    assert_eq!(unfit(Contents::all(), FileVersion::Redis7Dot2), Some(fields));
    assert_eq!(unfit(Contents::FUNCTIONS, FileVersion::Redis7Dot2), None);
    assert_eq!(unfit(Contents::FUNCTIONS, FileVersion::Redis5), Some(Unfit::Functions { version: 9 }));
    assert_eq!(unfit(Contents::empty(), FileVersion::Redis5), None);
    // Another walk sees the keyspace as before.
    assert_eq!(counts_of(&engine, Contents::DATA).0, 1);
}

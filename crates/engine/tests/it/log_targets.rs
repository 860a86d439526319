//! Tests of the targets of the change log's records: each target's stream must have exactly the
//! commands for it, in order, in their databases, and whole transactions.

use std::sync::{Arc, Mutex};

use engine::log::buffer::Chunk;
use engine::log::level::{Level, Released};
use engine::log::merger::{LogBatch, LogReader};
use engine::log::target::{LogTarget, Targets};
use engine::log::unit::{UnitRecord, Values};
use engine::log::{ChangeLog, NO_SLOT};
use engine::owned_args::OwnedArgs;
use engine::threads::Outbox;
use keyspace::Hasher;
use keyspace::gate::Gate;

/// A reader of the change log that keeps the lines of the stream for its target. It also keeps the
/// numbers of changes and transactions according to the marks of its batches.
#[derive(Clone)]
struct Lines {
    target: LogTarget,
    text: Arc<Mutex<String>>,
    positions: Arc<Mutex<Vec<u64>>>,
}

impl LogReader for Lines {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut text = self.text.lock().expect("no panic");
        batch.for_each_part(self.target, |part| {
            text.push_str(std::str::from_utf8(part).expect("the words are text"));
        });
        let mut positions = self.positions.lock().expect("no panic");
        for mark in batch.marks.iter().filter(|mark| mark.targets.contains(self.target.into())) {
            assert!(mark.is_framing || mark.slot == NO_SLOT);
            positions.push(mark.position);
        }
        positions.dedup();
        assert_eq!(batch.marks.last().map(|mark| mark.end), Some(batch.text.end()));
        Released::at(batch.position)
    }
}

impl Lines {
    fn attach(log: &ChangeLog, gate: &Gate, target: LogTarget) -> Self {
        let lines = Self { target, text: Arc::default(), positions: Arc::default() };
        let reader = Box::new(lines.clone());
        gate.exclusive(|alone| log.attach(alone, (reader, target), &Outbox::default())).expect("room");
        lines
    }

    fn commands(&self) -> Vec<String> {
        let text = self.text.lock().expect("no panic");
        let commands = text.split('*').filter(|command| !command.is_empty());
        let words = |command: &str| {
            let lines = command.split("\r\n").skip(1).filter(|line| !line.starts_with('$'));
            lines.collect::<Vec<_>>().join(" ").trim_end().to_owned()
        };
        commands.map(words).collect()
    }
}

/// A command of a random change in the tests: its targets, its database, and a value that is
/// different for each command.
type Command = (Targets, usize, usize);

/// A writer that appends changes, each a command or a transaction, to a change log with one thread.
struct Writer {
    log: ChangeLog,
    gate: Gate,
    hasher: Hasher,
    chunk: Chunk,
}

impl Writer {
    fn new() -> Self {
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        Self { log: ChangeLog::new(1), gate: Gate::new(1), hasher, chunk: Chunk::default() }
    }

    fn append(&mut self, unit: &[Command]) {
        let mut record = UnitRecord::default();
        for &(targets, db, value) in unit {
            let value = value.to_string();
            let words = OwnedArgs::new(["INCRBY", "k", &value].into_iter().map(str::as_bytes));
            let args = words.args(&self.hasher);
            record.push_request(db, &args, targets, Values { locked: None, hasher: &self.hasher });
        }
        self.log.append(&mut self.chunk, &mut record);
    }

    fn merge(&mut self) {
        self.log.publish(0, &mut self.chunk);
        self.log.merge(&Outbox::default());
    }
}

const FILE: Targets = Targets::FILE;
const REPLICAS: Targets = Targets::REPLICAS;

#[test]
fn each_target_gets_its_commands_with_its_own_selects() {
    let mut writer = Writer::new();
    let [file, replicas] = LogTarget::ALL.map(|target| Lines::attach(&writer.log, &writer.gate, target));
    let both = Targets::all();
    // The replicas miss the change to database 3.
    for unit in [
        &[(both, 0, 1)][..],
        &[(FILE, 3, 2)],
        &[(both, 0, 3)],
        &[(both, 0, 4), (FILE, 1, 5), (both, 0, 6), (REPLICAS, 0, 7)],
        &[(FILE, 0, 8), (FILE, 2, 9)],
        &[(both, 2, 10)],
    ] {
        writer.append(unit);
    }
    writer.merge();
    let expected = [
        "SELECT 0",
        "INCRBY k 1",
        "SELECT 3",
        "INCRBY k 2",
        "SELECT 0",
        "INCRBY k 3",
        "MULTI",
        "INCRBY k 4",
        "SELECT 1",
        "INCRBY k 5",
        "SELECT 0",
        "INCRBY k 6",
        "EXEC",
        "MULTI",
        "INCRBY k 8",
        "SELECT 2",
        "INCRBY k 9",
        "EXEC",
        "INCRBY k 10",
    ];
    assert_eq!(file.commands(), expected);
    let expected = [
        "SELECT 0",
        "INCRBY k 1",
        "INCRBY k 3",
        "MULTI",
        "INCRBY k 4",
        "INCRBY k 6",
        "INCRBY k 7",
        "EXEC",
        "SELECT 2",
        "INCRBY k 10",
    ];
    assert_eq!(replicas.commands(), expected);
    assert_eq!(*file.positions.lock().expect("no panic"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(*replicas.positions.lock().expect("no panic"), [1, 3, 4, 6]);
    assert_eq!(writer.log.released(Level::Written), 6);
}

#[test]
fn a_new_part_of_one_target_leaves_the_other_as_it_is() {
    let mut writer = Writer::new();
    let file = Lines::attach(&writer.log, &writer.gate, LogTarget::File);
    writer.append(&[(FILE, 0, 1)]);
    writer.merge();
    let replicas = Lines::attach(&writer.log, &writer.gate, LogTarget::Replicas);
    writer.append(&[(Targets::all(), 0, 2)]);
    writer.merge();
    writer.gate.exclusive(|alone| writer.log.begin_part(alone, LogTarget::File, &Outbox::default()));
    writer.append(&[(Targets::all(), 0, 3)]);
    writer.merge();
    assert_eq!(file.commands(), ["SELECT 0", "INCRBY k 1", "INCRBY k 2", "SELECT 0", "INCRBY k 3"]);
    assert_eq!(replicas.commands(), ["SELECT 0", "INCRBY k 2", "INCRBY k 3"]);
}

/// Returns the change log's stream for a target by its definition. For each unit (a command or a
/// transaction) it has the unit's commands for the target. They are between MULTI and EXEC if the
/// unit has several commands for any target. SELECT is inserted where the database changes.
fn defined(units: &[Vec<Command>], target: LogTarget) -> Vec<String> {
    let (mut lines, mut selected) = (Vec::new(), None);
    for unit in units {
        let own: Vec<_> = unit.iter().filter(|(targets, ..)| targets.contains(target.into())).collect();
        let is_framed = unit.len() > 1 && !own.is_empty();
        lines.extend(is_framed.then(|| "MULTI".to_owned()));
        for &(_, db, value) in own {
            if selected.replace(db) != Some(db) {
                lines.push(format!("SELECT {db}"));
            }
            lines.push(format!("INCRBY k {value}"));
        }
        lines.extend(is_framed.then(|| "EXEC".to_owned()));
    }
    lines
}

#[test]
fn any_units_reach_their_targets_as_defined() {
    let mut rng = fastrand::Rng::with_seed(35);
    for _ in 0..300 {
        let mut writer = Writer::new();
        let readers = LogTarget::ALL.map(|target| Lines::attach(&writer.log, &writer.gate, target));
        let mut units = Vec::new();
        for number in 0..rng.usize(1..40) {
            let command = |at: usize, rng: &mut fastrand::Rng| {
                let targets = [Targets::all(), Targets::all(), FILE, REPLICAS][rng.usize(0..4)];
                (targets, rng.usize(0..3), number * 10 + at)
            };
            let len = if rng.bool() { 1 } else { rng.usize(1..6) };
            let unit: Vec<Command> = (0..len).map(|at| command(at, &mut rng)).collect();
            writer.append(&unit);
            units.push(unit);
            if rng.u8(0..4) == 0 {
                writer.merge();
            }
        }
        writer.merge();
        for reader in readers {
            assert_eq!(reader.commands(), defined(&units, reader.target), "{units:?}");
        }
    }
}

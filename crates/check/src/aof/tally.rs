//! Statistics of an append-only file: its commands by name, its keys, and the times of its
//! annotations.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use commands::keys::for_each_key;
use commands::table::KeySpec;
use commands::{Args, Command};
use keyspace::Hasher;
use persist::aof::reader::{Batch, Request, RequestPosition};

use crate::text;

/// The maximum number of command names that are counted separately. A file of arbitrary bytes may
/// contain any number of names.
const NAMES_MAX: usize = 1_000;
/// The name under which the commands beyond the first [`NAMES_MAX`] names are counted.
const OTHER: &[u8] = b"(other)";
/// The number of keys whose counts of commands are kept. At twice this number, the half with the
/// lowest counts is dropped.
const KEYS_MAX: usize = 50_000;

/// The numbers of commands and transactions read so far, and the annotation times of the current
/// file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commands: u64,
    pub(crate) transactions: u64,
    pub(crate) first_time_s: Option<i64>,
    pub(crate) last_time_s: Option<i64>,
}

/// The number and the size of the occurrences of one command.
pub(crate) struct CommandStats {
    pub(crate) name: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) len_bytes: u64,
    keys: &'static [KeySpec],
}

/// The number of commands that name a key, with the key.
pub(crate) struct KeyStats {
    pub(crate) db: u64,
    /// The key as reports show it, with unprintable characters escaped.
    pub(crate) key: String,
    /// The number of times that commands name the key, or less: see [`Tally::uncounted_max`].
    pub(crate) count: u64,
}

/// Statistics of the commands of an append-only file. Their memory is bounded, whatever the
/// commands are.
pub(crate) struct Tally {
    counts: Counts,
    db: u64,
    numbers: HashMap<Vec<u8>, usize>,
    pub(crate) names: Vec<CommandStats>,
    known: HashMap<&'static str, &'static [KeySpec]>,
    random: RandomState,
    /// The counted keys, by a hash of the database and the key.
    keys: HashMap<u64, KeyStats>,
    /// The maximum number by which the count of a key may be too low.
    pub(crate) uncounted_max: u64,
    hasher: Hasher,
}

/// Returns the key positions of a command. For a container, they are those of its first subcommand,
/// because all its subcommands have the same.
fn keys_of(command: &'static Command) -> &'static [KeySpec] {
    let of_first = command.subcommands.first().map(|subcommand| subcommand.keys);
    if command.keys.is_empty() { of_first.unwrap_or_default() } else { command.keys }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            counts: Counts::default(),
            db: 0,
            numbers: HashMap::new(),
            names: Vec::new(),
            known: commands::all().map(|command| (command.name, keys_of(command))).collect(),
            random: RandomState::new(),
            keys: HashMap::new(),
            uncounted_max: 0,
            hasher: Hasher::with_seed([1, 2, 3, 4]),
        }
    }

    /// Prepares for counting the commands of the next file, which begins in database 0.
    pub(crate) fn begin_file(&mut self) {
        self.db = 0;
        (self.counts.first_time_s, self.counts.last_time_s) = (None, None);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the counts of the current file: the present counts less the counts `before` the
    /// file.
    pub(crate) fn counts_since(&self, before: Counts) -> Counts {
        Counts {
            commands: self.counts.commands - before.commands,
            transactions: self.counts.transactions - before.transactions,
            ..self.counts
        }
    }

    pub(crate) fn take(&mut self, batch: &Batch) {
        for annotation in batch.annotations() {
            self.counts.first_time_s.get_or_insert(annotation.time_s);
            self.counts.last_time_s = Some(annotation.time_s);
        }
        for request in batch.requests() {
            self.take_request(&request);
        }
    }

    fn take_request(&mut self, request: &Request<'_>) {
        self.counts.commands += 1;
        self.counts.transactions += u64::from(request.standing == RequestPosition::Exec);
        let name = request.arg(0).unwrap_or_default();
        let number = self.number_of(name);
        let of_name = &mut self.names[number];
        of_name.count += 1;
        of_name.len_bytes += request.len_bytes() as u64;
        let specs = of_name.keys;
        if specs.is_empty() {
            if name.eq_ignore_ascii_case(b"select") {
                let number = request.arg(1).and_then(|text| std::str::from_utf8(text).ok());
                self.db = number.and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            return;
        }
        let args = Args::new(request.bytes, request.args, &self.hasher);
        let (db, random, keys) = (self.db, &self.random, &mut self.keys);
        for_each_key(specs, &args, |at, _| {
            let Some(key) = request.arg(at) else { return };
            let of_key = keys.entry(random.hash_one((db, key)));
            of_key.or_insert_with(|| KeyStats { db, key: text::key(key), count: 0 }).count += 1;
        });
        if self.keys.len() >= 2 * KEYS_MAX {
            self.drop_keys();
        }
    }

    /// Returns the index in `names` of the command called `name`, ignoring case. Adds a new name.
    fn number_of(&mut self, name: &[u8]) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let mut upper = name.to_ascii_uppercase();
        if self.numbers.len() >= NAMES_MAX || upper.len() > 64 {
            upper = OTHER.to_vec();
        }
        let number = self.numbers.get(&upper).copied().unwrap_or_else(|| {
            let known = std::str::from_utf8(&upper).ok().and_then(|name| self.known.get(name));
            let keys = known.copied().unwrap_or_default();
            self.names.push(CommandStats { name: upper.clone(), count: 0, len_bytes: 0, keys });
            self.names.len() - 1
        });
        if self.numbers.len() < NAMES_MAX {
            self.numbers.insert(name.to_vec(), number);
        }
        self.numbers.entry(upper).or_insert(number);
        number
    }

    /// Drops the keys with the lowest counts, about half of all keys. Subtracts the highest dropped
    /// count from the counts of the others, so that none becomes too high. O(keys).
    fn drop_keys(&mut self) {
        let mut counts: Vec<u64> = self.keys.values().map(|of| of.count).collect();
        let at = counts.len() - KEYS_MAX;
        let (_, &mut dropped, _) = counts.select_nth_unstable(at);
        // Each count is reduced by `dropped`. So no count becomes too high, and none becomes too
        // low by more than `dropped`.
        self.keys.retain(|_, of| {
            of.count = of.count.saturating_sub(dropped);
            of.count > 0
        });
        self.uncounted_max += dropped;
    }

    /// Removes all keys, and returns at most `listed_max` of them: those that most commands name,
    /// in descending order of their counts.
    pub(crate) fn keys_touched_most(&mut self, listed_max: usize) -> Vec<KeyStats> {
        let mut keys: Vec<KeyStats> = self.keys.drain().map(|(_, of)| of).collect();
        keys.sort_by(|one, other| {
            other.count.cmp(&one.count).then_with(|| (one.db, &one.key).cmp(&(other.db, &other.key)))
        });
        keys.truncate(listed_max);
        keys
    }
}

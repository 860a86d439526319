//! The phases of a copy.
//!
//! ```text
//!   set up ─► copy ─► follow ─► sweep ─► compare ─► copy and compare what differs ─► set back
//!             └─────── changed keys are copied in all of these phases ─────────┘
//! ```

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use resp::Value;

use crate::by_type::{self, Ask};
use crate::client::Client;
use crate::engine::{Engine, Settings};
use crate::interrupt::Interrupt;
use crate::key::Key;
use crate::lane::{Dialect, Task};
use crate::progress::Progress;
use crate::report::{Comparison, Tally};
use crate::server::Server;
use crate::setup::{self, Notify};
use crate::verdict::Refusal;

/// The maximum number of differing keys that are compared again, one by one.
const SUSPECTS_MAX: usize = 100_000;
/// The maximum number of times that a differing key is copied and compared again.
const ROUNDS: u32 = 5;
/// The pause between two attempts to open a lost connection again.
const REOPEN_EVERY: Duration = Duration::from_millis(100);
/// The maximum time for which the next comparison is delayed until all changed keys are copied.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// The treatment of data that the target has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The copy does not begin if the target has keys.
    Refuse,
    /// The target keeps keys that the source lacks.
    Keep,
    /// Keys that the source lacks are removed from the target.
    Remove,
}

/// The moment at which the copy ends: after one comparison, after Ctrl-C, or when both servers are
/// equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The copy ends after one comparison of all keys.
    Copied,
    /// The copy follows changes until Ctrl-C; then it compares all keys once and ends.
    Interrupted,
    /// The copy follows changes, and ends once both servers are equal and no changed key waits.
    Equal,
}

/// The options of a copy of data between two servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// The databases to copy; empty for all.
    pub databases: Vec<u32>,
    /// The treatment of data that the target has already.
    pub existing: Existing,
    /// The moment at which the copy ends: after one comparison, after Ctrl-C, or when both servers
    /// are equal.
    pub until: Until,
    /// True if keys for which DUMP or RESTORE is refused are copied by the commands of their types.
    pub rewrites: bool,
    /// True if the keys of both servers are compared at the end.
    pub compares: bool,
    /// True if the copy uses keyspace events to follow changes.
    pub has_events: bool,
    /// The number of lanes, each of which handles a share of the keys.
    pub lanes: usize,
    /// The maximum number of keys read from the source per second; `None` for no limit.
    pub keys_per_second: Option<f64>,
    /// The maximum number of payload bytes read from the source per second; `None` for no limit.
    pub bytes_per_second: Option<f64>,
    /// The maximum memory of the queues of changed keys, in bytes.
    pub changed_len_bytes_max: usize,
    /// The time for which a server may be unreachable before the copy fails.
    pub retry_for: Duration,
}

/// The result of a copy that was not interrupted.
pub struct Done {
    /// The counts for the summary of the copy.
    pub tally: Tally,
    /// The comparison of all keys; `None` if keys were not compared.
    pub comparison: Option<Comparison>,
}

/// The reason why a copy of data ended early.
#[derive(Debug)]
pub enum Stop {
    /// A signal (Ctrl-C) interrupted the copy.
    Interrupted,
    /// The copy failed; contains the error.
    Failed(String),
}

impl From<String> for Stop {
    fn from(error: String) -> Self {
        Stop::Failed(error)
    }
}

/// Copies all data from the source to the target. At the end, also after a failure, sets
/// `notify-keyspace-events` of the source back to its former value.
pub fn run(
    source: &Server,
    target: &Server,
    options: &Options,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Done, Stop> {
    let (mut asks_source, mut asks_target) =
        (Client::new(source, options.retry_for)?, Client::new(target, options.retry_for)?);
    check_target(&mut asks_source, &mut asks_target, options)?;
    if let Some(note) = setup::copy_functions(&mut asks_source, &mut asks_target)? {
        progress.note(&note);
    }
    let mut notify = None;
    if options.has_events {
        match Notify::enable(&mut asks_source)? {
            Ok(enabled) => notify = Some(enabled),
            Err(warning) => progress.note(&warning),
        }
    }
    let copied = Copy::new(source, target, options, (asks_source, asks_target, interrupt, progress))
        .map_err(Stop::Failed)
        .and_then(Copy::run);
    progress.finish();
    if let Some(notify) = notify {
        // The connection of before may be closed by now.
        if let Err(error) =
            Client::new(source, options.retry_for).and_then(|mut client| notify.restore(&mut client))
        {
            progress.note(&error);
        }
    }
    copied
}

/// Checks that the target has all databases that are copied, and no keys in them.
fn check_target(source: &mut Client, target: &mut Client, options: &Options) -> Result<(), String> {
    let is_copied = |db: &u32| options.databases.is_empty() || options.databases.contains(db);
    let count = setup::count_databases(target)?;
    let of_source = setup::databases(source)?;
    if let Some((db, _)) = of_source.iter().find(|(db, _)| is_copied(db) && *db >= count) {
        return Err(format!("the target has {count} databases, and the source has keys in database {db}"));
    }
    if options.existing == Existing::Refuse {
        let of_target = setup::databases(target)?;
        if let Some((db, keys)) = of_target.iter().find(|(db, _)| is_copied(db)) {
            return Err(format!(
                "database {db} of the target has {keys} keys: choose --existing keep, or --existing remove \
                 to remove those that the source lacks"
            ));
        }
    }
    Ok(())
}

/// A running copy of data: its options, clients, engine and progress.
struct Copy<'a> {
    engine: Engine,
    source: Client,
    target: Client,
    options: &'a Options,
    dialect: Dialect,
    interrupt: &'a Interrupt,
    progress: &'a mut Progress,
    /// The number of received signals (Ctrl-C) above which the present phase ends.
    signals_allowed: u32,
    /// The keys that the present comparison of both servers has found to differ.
    differing: HashSet<Key>,
    /// True if more keys differ than `differing` may hold ([`SUSPECTS_MAX`]).
    is_overflowing: bool,
    /// The number of keys handled before the present phase. It is subtracted for the phase's
    /// progress bar.
    progress_base: u64,
}

impl<'a> Copy<'a> {
    fn new(
        source: &Server,
        target: &Server,
        options: &'a Options,
        (mut asks_source, mut asks_target, interrupt, progress): (
            Client,
            Client,
            &'a Interrupt,
            &'a mut Progress,
        ),
    ) -> Result<Self, String> {
        let dialect = setup::dialect(&mut asks_source, &mut asks_target)?;
        let settings = Settings {
            lanes: options.lanes,
            databases: options.databases.clone(),
            databases_count: setup::count_databases(&mut asks_target)?,
            keys_per_second: options.keys_per_second,
            bytes_per_second: options.bytes_per_second,
            changed_len_bytes_max: options.changed_len_bytes_max,
            retry_for: options.retry_for,
            has_events: options.has_events,
            dialect,
        };
        Ok(Self {
            engine: Engine::new(source, target, settings)?,
            source: asks_source,
            target: asks_target,
            options,
            dialect,
            interrupt,
            progress,
            signals_allowed: 0,
            differing: HashSet::new(),
            is_overflowing: false,
            progress_base: 0,
        })
    }

    fn run(mut self) -> Result<Done, Stop> {
        if self.options.has_events {
            self.drive(|engine| engine.is_subscribed)?;
        }
        self.copy_all()?;
        if self.options.until == Until::Interrupted {
            self.follow()?;
        }
        let comparison = if self.options.compares { Some(self.compare()?) } else { None };
        if !self.options.compares {
            self.settle()?;
        }
        Ok(Done { tally: self.engine.tally, comparison })
    }

    /// Returns the databases of the source to scan, and their number of keys.
    fn databases(&mut self) -> Result<(Vec<u32>, u64), String> {
        let mut found = setup::databases(&mut self.source)?;
        let chosen = &self.options.databases;
        found.retain(|(db, _)| chosen.is_empty() || chosen.contains(db));
        let keys = found.iter().map(|(_, keys)| keys).sum();
        Ok((found.into_iter().map(|(db, _)| db).collect(), keys))
    }

    /// Runs turns of the engine's event loop until `is_done` returns true.
    fn drive(&mut self, is_done: impl Fn(&Engine) -> bool) -> Result<(), Stop> {
        while !is_done(&self.engine) {
            if self.interrupt.count() > self.signals_allowed {
                return Err(Stop::Interrupted);
            }
            self.engine.turn()?;
            self.handle_refused()?;
            self.handle_different()?;
            let scanned = self.engine.tally.scanned.saturating_sub(self.progress_base);
            self.progress.update(scanned, self.engine.pending().0);
        }
        Ok(())
    }

    fn begin(&mut self, name: &'static str, keys: u64) {
        self.progress_base = self.engine.tally.scanned;
        self.progress.begin(name, keys);
    }

    /// Scans the source and copies its keys. Repeats both if changes were missed during the scan.
    fn copy_all(&mut self) -> Result<(), Stop> {
        loop {
            self.engine.must_rescan = false;
            let (databases, keys) = self.databases()?;
            self.begin("copy", keys);
            self.engine.scan_source(&databases, Task::Copy);
            self.drive(Engine::has_scanned)?;
            self.settle()?;
            if !self.engine.must_rescan {
                return Ok(());
            }
            self.engine.tally.rescans += 1;
        }
    }

    /// Copies changed keys until the first signal (Ctrl-C).
    fn follow(&mut self) -> Result<(), Stop> {
        self.progress.note("all keys are copied; changes are followed until Ctrl-C");
        self.begin("follow", 0);
        loop {
            match self.drive(|engine| engine.must_rescan) {
                Ok(()) => {
                    self.engine.tally.rescans += 1;
                    self.copy_all()?;
                }
                Err(Stop::Interrupted) => {
                    self.signals_allowed = self.interrupt.count();
                    return Ok(());
                }
                failed => return failed,
            }
        }
    }

    /// Waits until all sent requests are answered and all queued keys are handled, but for a
    /// limited time if changes never end.
    fn settle(&mut self) -> Result<(), Stop> {
        let deadline = Instant::now() + SETTLE_WITHIN;
        self.drive(|engine| engine.has_scanned() && (engine.pending() == (0, 0) || Instant::now() > deadline))
    }

    /// Removes keys that the source lacks from the target, and compares all keys. Differing keys
    /// are copied and compared again.
    fn compare(&mut self) -> Result<Comparison, Stop> {
        loop {
            self.settle()?;
            self.engine.must_rescan = false;
            self.compare_all()?;
            let comparison = self.compare_suspects()?;
            let is_final = match self.options.until {
                Until::Equal => {
                    self.settle()?;
                    comparison.is_equal() && self.engine.pending() == (0, 0)
                }
                Until::Copied | Until::Interrupted => true,
            };
            if is_final && !self.engine.must_rescan && !self.is_overflowing {
                return Ok(comparison);
            }
            self.engine.tally.rescans += 1;
        }
    }

    fn compare_all(&mut self) -> Result<(), Stop> {
        let (databases, keys) = self.databases()?;
        if self.options.existing != Existing::Keep {
            self.begin("sweep", keys);
            let mut of_target = setup::databases(&mut self.target)?;
            let chosen = &self.options.databases;
            of_target.retain(|(db, _)| chosen.is_empty() || chosen.contains(db));
            self.engine.scan_target(&of_target.iter().map(|(db, _)| *db).collect::<Vec<_>>());
            self.drive(Engine::has_scanned)?;
            self.settle()?;
        }
        self.begin("compare", keys);
        self.engine.tally.equal = 0;
        self.differing.clear();
        self.is_overflowing = false;
        self.engine.suspects.clear();
        self.engine.scan_source(&databases, Task::Compare);
        self.drive(Engine::has_scanned)?;
        self.settle()
    }

    /// Copies the keys that differ and compares them again, several times if necessary.
    fn compare_suspects(&mut self) -> Result<Comparison, Stop> {
        for round in 0.. {
            let is_last = round + 1 >= ROUNDS && self.options.until != Until::Equal;
            let suspects = std::mem::take(&mut self.differing);
            if suspects.is_empty() || round >= ROUNDS && is_last {
                break;
            }
            self.engine.suspects = suspects.iter().map(|key| (key.clone(), false)).collect();
            for key in &suspects {
                self.engine.push(Task::Copy, key.clone());
            }
            self.settle()?;
            for key in suspects {
                self.engine.push(Task::Compare, key);
            }
            self.settle()?;
            let differing = &self.differing;
            self.engine.suspects.retain(|key, _| differing.contains(key));
            if is_last {
                break;
            }
        }
        Ok(verdict(std::mem::take(&mut self.engine.suspects), &self.differing))
    }

    /// Copies the keys that a server refused by the commands of their types, or reports them.
    fn handle_refused(&mut self) -> Result<(), String> {
        while let Some((key, error)) = self.engine.refused.pop_front() {
            if !self.options.rewrites {
                let hint = match Refusal::of(error.as_bytes()) {
                    Refusal::Format => " (--rewrite copies it by its commands)",
                    _ => "",
                };
                self.engine.refuse(&format!("{key}: {error}{hint}"));
                continue;
            }
            match self.by_type(|source, target| by_type::copy(source, target, &key)) {
                Ok(true) => {
                    self.engine.tally.copied += 1;
                    self.engine.tally.rewritten += 1;
                }
                Ok(false) => {}
                Err(error) => self.engine.refuse(&format!("{key}: {error}")),
            }
        }
        Ok(())
    }

    /// Compares the keys whose digests or payloads differ again, now by the commands of their
    /// types. The formats of two servers may differ although the values are equal.
    fn handle_different(&mut self) -> Result<(), String> {
        while let Some(key) = self.engine.different.pop_front() {
            if self.is_equal(&key).unwrap_or(false) {
                self.engine.tally.equal += 1;
            } else if self.differing.len() < SUSPECTS_MAX {
                self.differing.insert(key);
            } else {
                self.is_overflowing = true;
                self.engine.push(Task::Copy, key);
            }
        }
        Ok(())
    }

    fn is_equal(&mut self, key: &Key) -> Result<bool, String> {
        let form = self.dialect.expiry;
        self.by_type(|source, target| {
            if !by_type::is_equal(source, target, key)? {
                return Ok(false);
            }
            let expiry = [by_type::request(&[form.command(), &key.name])];
            let (a, b) = (source.ask(&expiry)?.pop(), target.ask(&expiry)?.pop());
            Ok(matches!((a, b), (Some(Value::Integer(a)), Some(Value::Integer(b))) if form.agree(a, b)))
        })
    }

    /// Runs `work` on the clients of both servers. Runs it again if a connection was lost
    /// meanwhile.
    fn by_type<T>(
        &mut self,
        mut work: impl FnMut(&mut Client, &mut Client) -> Result<T, String>,
    ) -> Result<T, String> {
        let deadline = Instant::now() + self.options.retry_for;
        loop {
            let is_open = self.source.open().and_then(|()| self.target.open());
            let result = is_open.and_then(|()| work(&mut self.source, &mut self.target));
            let is_lost = self.source.is_lost() || self.target.is_lost();
            if result.is_ok() || !is_lost || Instant::now() > deadline {
                return result;
            }
            std::thread::sleep(REOPEN_EVERY);
        }
    }
}

/// Divides the keys that differ into those that changed during the comparison and the others, whose
/// difference is an error.
fn verdict(suspects: HashMap<Key, bool>, differing: &HashSet<Key>) -> Comparison {
    let has_changed = |key: &&Key| suspects.get(*key) == Some(&true);
    let mut different: Vec<String> =
        differing.iter().filter(|key| !has_changed(key)).map(Key::to_string).collect();
    different.sort();
    let changing = differing.iter().filter(has_changed).count() as u64;
    Comparison { different, changing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_change_all_the_time_are_told_apart() {
        let [a, b] = ["a", "b"].map(|name| Key::new(0, name.as_bytes()));
        let suspects = HashMap::from([(a.clone(), true), (b.clone(), false)]);
        let comparison = verdict(suspects, &HashSet::from([a, b]));
        assert_eq!(comparison, Comparison { different: vec!["\"b\"".to_owned()], changing: 1 });
        assert!(verdict(HashMap::new(), &HashSet::new()).is_equal());
    }
}

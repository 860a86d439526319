//! The grid: every kind of change of a value, combined with every listener. A cell is a pair of
//! both. The change happens on an empty server with one listener, and the listener must be notified
//! as on Redis 8.0.2. The expected values are in `grid/values.txt`. A new row or column does not
//! compile before it is handled, and fails without a value. `SAKER_RECORD_GRID=1` writes the file
//! from the real server, and from Saker for the cells that Redis does not have.

mod changes;
mod listeners;
mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testkit::peer;

use changes::Change;
use listeners::{Cell, Listener, Reason};
use stage::{Rig, Stage, put};

/// The time between the preparation of a cell (a change and a listener) and the expiry of its key
/// in the first attempt, in milliseconds. It doubles for each attempt in which the machine was too
/// slow.
const MARGIN_MS: u64 = 40;

/// Maximum time for which a cell (a change and a listener) waits for its expected value.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum time for which a cell waits for its value once [`WRONG_MANY`] cells are wrong. It is
/// short, so that the test of a broken server does not take an hour.
const PATIENCE_BROKEN: Duration = Duration::from_secs(1);
const WRONG_MANY: usize = 3;

/// The servers of a run: two for cells without an append-only file, and two for cells with one.
struct Servers {
    plain: [Rig; 2],
    logged: [Rig; 2],
    version: (u32, u32),
    is_saker: bool,
}

impl Servers {
    fn saker(back_end: &str) -> Self {
        let start = |appendonly| [(); 2].map(|()| Rig::saker(back_end, appendonly));
        Self { plain: start("no"), logged: start("yes"), version: (8, 0), is_saker: true }
    }

    fn peer() -> Self {
        let start = |appendonly| [(); 2].map(|()| Rig::peer(appendonly));
        let (plain, logged) = (start("no"), start("yes"));
        let version = plain[0].version();
        Self { plain, logged, version, is_saker: false }
    }

    /// Returns the reason why these servers can give no value for a cell (a change and a listener);
    /// `None` if they can.
    fn leaves_out(&self, change: Change, listener: Listener) -> Option<Reason> {
        match listener.cell(change) {
            Cell::Impossible(reason) => Some(reason),
            Cell::OnlyHere(reason) if !self.is_saker => Some(reason),
            Cell::OnlyHere(_) | Cell::Compared if change.row().since > self.version => {
                Some(Reason("the command is newer than the server"))
            }
            Cell::OnlyHere(_) | Cell::Compared if listener.since() > self.version => {
                Some(Reason("the listener is newer than the server"))
            }
            Cell::OnlyHere(_) | Cell::Compared if self.version < (7, 2) => older(change, listener),
            Cell::OnlyHere(_) | Cell::Compared => None,
        }
    }

    /// Runs one cell: makes the change while the listener is attached. Returns the notifications of
    /// the listener as soon as they equal `expected`, or those that it has after `patience`.
    fn fill(&self, change: Change, listener: Listener, expected: Option<&str>, patience: Duration) -> String {
        let needs_log = change == Change::Loading || listener == Listener::ChangeLog;
        let [here, far] = if needs_log { &self.logged } else { &self.plain };
        let mut margin_ms = MARGIN_MS;
        loop {
            let mut stage = Stage::new(here, far);
            stage.margin_ms = margin_ms;
            margin_ms *= 2;
            listener.choose(change, &mut stage);
            let first = listener.attach_first(&mut stage);
            let (holds, large) = (stage.holds, stage.large);
            put(&mut stage.admin, "k", holds, "old", large);
            change.prepare(&mut stage);
            let mut ear = first.unwrap_or_else(|| listener.attach(&mut stage));
            if stage.is_too_late() {
                continue;
            }
            if listener.is_writer() {
                change.happen(&mut stage, ear.writer());
            } else {
                change.happen(&mut stage, &mut here.speaker());
            }
            let deadline = Instant::now() + patience;
            loop {
                let heard = ear.hears(&mut stage);
                if expected.is_none_or(|expected| heard == expected) || Instant::now() > deadline {
                    return heard;
                }
            }
        }
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/grid/values.txt")
}

fn name(change: Change, listener: Listener) -> String {
    format!("{change:?} {listener:?}")
}

/// Returns the recorded values of `grid/values.txt` by the names of their cells (each a change and
/// a listener).
fn values() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path()).expect("the values are part of the sources");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns Saker's value and the reason for a cell in which Saker differs from Redis 8.0.2; `None`
/// for all other cells.
fn differs(change: Change, listener: Listener) -> Option<(&'static str, Reason)> {
    Some(match (change, listener) {
        (Change::ListMove, Listener::KeySizes) => {
            ("db0_lists_items:1=1", Reason("Redis 8.0.2 counts below zero, shown as 2^64 - 1"))
        }
        (Change::FieldExpiryAllLazy, Listener::ChangesSinceSave) => {
            ("1", Reason("a field that a read finds expired, and removes, is a change since the save"))
        }
        (Change::FieldExpiryActiveAll, Listener::ChangeLog) => {
            ("HDEL k b a; loads to the same", Reason("fields that expire at once are one record"))
        }
        (Change::SortStore, Listener::ChangeLog) => (
            "MULTI, DEL k, RPUSH k old, EXEC; loads to the same",
            Reason("a sort is recorded by its result, which every server applies in the same way"),
        ),
        (Change::Loading, Listener::ChangesSinceSave) => {
            ("0", Reason("the RDB file does not hold what DEBUG LOADAOF loads"))
        }
        (Change::DebugReloadNoSave, Listener::BlockedReader) => {
            ("blocked", Reason("DEBUG RELOAD is for tests: readers of a group that it removes stay blocked"))
        }
        _ => return None,
    })
}

/// Returns the reason why a Redis before 7.2 has another value in a cell; `None` if it has the same
/// value.
fn older(change: Change, listener: Listener) -> Option<Reason> {
    match (change, listener) {
        (_, Listener::BlockedReader) => {
            Some(Reason("Redis before 7.2 has other errors for readers of a group that is removed"))
        }
        (Change::ServedInto | Change::ServedFrom, Listener::ChangeLog | Listener::ChangesSinceSave) => {
            Some(Reason("Redis before 7.2 records and counts the request of a served client otherwise"))
        }
        _ => None,
    }
}

/// Compares the values of all cells (pairs of a change and a listener) with the recorded ones;
/// returns a line for each difference.
fn check(servers: &Servers) -> Vec<String> {
    let values = values();
    let (mut wrong, mut left_out) = (Vec::new(), BTreeMap::<_, u32>::new());
    for (change, listener) in cells() {
        if let Some(Reason(reason)) = servers.leaves_out(change, listener) {
            *left_out.entry(reason).or_default() += 1;
            continue;
        }
        let name = name(change, listener);
        let recorded = values.get(&name).map(String::as_str);
        let expected = match differs(change, listener) {
            Some((here, _)) if servers.is_saker => Some(here),
            _ => recorded,
        };
        let patience = if wrong.len() < WRONG_MANY { PATIENCE } else { PATIENCE_BROKEN };
        let heard = servers.fill(change, listener, expected, patience);
        if Some(heard.as_str()) != expected {
            wrong.push(format!("{name}\n  - {}\n  + {heard}", expected.unwrap_or("not recorded")));
        }
    }
    left_out.iter().for_each(|(reason, count)| println!("{count} cells left out: {reason}"));
    wrong
}

fn cells() -> impl Iterator<Item = (Change, Listener)> {
    let row = |&change: &Change| Listener::ALL.iter().map(move |&listener| (change, listener));
    Change::ALL.iter().flat_map(row)
}

#[test]
fn issue_33_every_listener_hears_of_every_change_with_epoll() {
    let wrong = check(&Servers::saker("epoll"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn issue_33_every_listener_hears_of_every_change() {
    let wrong = check(&Servers::saker("auto"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_listener_of_a_real_server_hears_the_same() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let peer = Servers::peer();
    if std::env::var_os("SAKER_RECORD_GRID").is_some() {
        record(&peer);
        return;
    }
    if peer.version != (8, 0) && peer.version != (7, 0) {
        eprintln!("the peer is neither Redis 8.0 nor 7.0: its values are not known");
        return;
    }
    let wrong = check(&peer);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the values of all cells (pairs of a change and a listener) into `grid/values.txt`.
fn record(peer: &Servers) {
    assert_eq!(peer.version, (8, 0), "values are those of Redis 8.0");
    let saker = Servers::saker("auto");
    let mut text = String::from(
        "# What each listener of the grid hears of each change on Redis 8.0.2; BigKeys and\n\
         # SnapshotMarks are Saker's own. See grid.rs.\n",
    );
    for (change, listener) in cells() {
        let servers = match listener.cell(change) {
            Cell::Compared => peer,
            Cell::OnlyHere(_) => &saker,
            Cell::Impossible(_) => continue,
        };
        println!("{}", name(change, listener));
        let heard = servers.fill(change, listener, None, Duration::ZERO);
        text += &format!("{}: {heard}\n", name(change, listener));
    }
    std::fs::write(path(), text).expect("the file can be written");
}

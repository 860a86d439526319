//! Starts with data files in random combinations of states. Every byte that a server did not load
//! must still exist after the server has started, saved, rewritten and ended.
//!
//! `SAKER_STARTS=20000` sets another number of combinations, `SAKER_STARTS_SEED` another seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use testkit::{Client, Rng, ServerProcess, saker};

use crate::append_only::{ON, files_of, folder, kill, ok, requests, start_in};
use crate::support::{BINARY, happens, info};

/// Number of combinations of file states that a run tests by default.
const STARTS: usize = 60;
/// The bytes of a file that no server can read.
const FOREIGN: &[u8] = b"the only copy of something else\n";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
const BASE: &str = "appendonlydir/appendonly.aof.1.base.rdb";
const INCR: &str = "appendonlydir/appendonly.aof.1.incr.aof";
/// A file that only a manifest with history names: a rewrite has replaced the file.
const HISTORY: &str = "appendonlydir/appendonly.aof.9.incr.aof";
/// A file in the folder of the append-only files that no manifest names.
const UNNAMED: &str = "appendonlydir/appendonly.aof.2.base.rdb";
const SNAPSHOT: &str = "dump.rdb";
/// The single append-only file of Redis 6 and earlier.
const SINGLE: &str = "appendonly.aof";
const UNFINISHED: &str = "temp-999999.rdb";

/// The state of one data file before the server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Empty,
    /// The file contains bytes that are not in its format.
    Foreign,
    /// In place of the file there is a folder with its name.
    Directory,
    /// A valid file whose last bytes are missing.
    Torn,
    /// A valid file that was changed before the other files.
    Older,
    /// A valid file that was changed after the other files.
    Newer,
}

impl State {
    fn age_s(self) -> u64 {
        if self == Newer { 0 } else { 3_600 }
    }
}

use State::{Directory, Empty, Foreign, Missing, Newer, Older, Torn};

/// The names of the files, each with the states in which it is tested.
const FILES: &[(&str, &[State])] = &[
    (SNAPSHOT, &[Missing, Empty, Foreign, Directory, Torn, Older, Newer]),
    (MANIFEST, &[Missing, Empty, Foreign, Directory, Older, Newer, Older, Newer]),
    (BASE, &[Missing, Empty, Foreign, Older, Older, Older]),
    (INCR, &[Missing, Empty, Foreign, Torn, Older, Older, Newer]),
    (UNNAMED, &[Missing, Missing, Foreign]),
    (HISTORY, &[Missing, Missing, Foreign]),
    (SINGLE, &[Missing, Missing, Missing, Foreign, Older, Newer]),
    (UNFINISHED, &[Missing, Foreign]),
];

/// Creates the valid contents of each file. Each contains one key, whose name is that of the file.
fn good_files() -> BTreeMap<&'static str, Vec<u8>> {
    let folder = folder();
    let server = start_in(folder.path(), &[ON, &["--appendfsync", "always"]].concat());
    let mut client = server.connect();
    ok(&mut client, &["SET", SNAPSHOT, "precious"]);
    ok(&mut client, &["SAVE"]);
    kill(server);
    let read = |name: &str| fs::read(folder.path().join(name)).expect("the server wrote it");
    let snapshot = read(SNAPSHOT);
    let base = {
        let folder = self::folder();
        let server = start_in(folder.path(), &[]);
        let mut client = server.connect();
        ok(&mut client, &["SET", BASE, "precious"]);
        ok(&mut client, &["SAVE"]);
        kill(server);
        fs::read(folder.path().join(SNAPSHOT)).expect("the server wrote it")
    };
    BTreeMap::from([
        (SNAPSHOT, snapshot),
        (MANIFEST, read(MANIFEST)),
        (BASE, base),
        (INCR, requests(&[&["SELECT", "0"], &["SET", INCR, "precious"], &["SET", "last", "precious"]])),
        (SINGLE, requests(&[&["SELECT", "0"], &["SET", SINGLE, "precious"]])),
    ])
}

/// One combination of states of the data files and options of the server.
struct Case {
    states: Vec<(&'static str, State)>,
    /// True if the manifest names [`HISTORY`] as history.
    has_history: bool,
    appendonly: Option<&'static str>,
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let states = FILES.iter().map(|(name, states)| (*name, *rng.pick(states))).collect();
        let appendonly = *rng.pick(&[Some("yes"), Some("yes"), Some("no"), None]);
        Self { states, has_history: rng.percent(30), appendonly }
    }

    fn state(&self, name: &str) -> State {
        self.states.iter().find(|(file, _)| *file == name).map_or(Missing, |(_, state)| *state)
    }

    fn describe(&self) -> String {
        let mut out = format!("appendonly {:?}, history {}", self.appendonly, self.has_history);
        for (name, state) in &self.states {
            let _ = write!(out, ", {name} {state:?}");
        }
        out
    }

    /// Returns the age of the newest of the files `names`, in seconds; `None` if none of them
    /// exists.
    fn age_s(&self, names: &[&str]) -> Option<u64> {
        let states = names.iter().map(|name| self.state(name)).filter(|state| *state != Missing);
        states.map(State::age_s).min()
    }

    /// Writes the files of this combination into `folder`; `good` has their valid contents.
    fn lay_out(&self, folder: &Path, good: &BTreeMap<&'static str, Vec<u8>>) {
        fs::create_dir(files_of(folder)).expect("a new folder");
        let now = SystemTime::now() - Duration::from_secs(86_400);
        for &(name, state) in &self.states {
            let path = folder.join(name);
            let mut bytes = good.get(name).cloned().unwrap_or_default();
            if name == MANIFEST && self.has_history {
                bytes.extend_from_slice(b"file appendonly.aof.9.incr.aof seq 9 type h\n");
            }
            match state {
                Missing => continue,
                Empty => bytes.clear(),
                Foreign => bytes = [name.as_bytes(), b": ", FOREIGN].concat(),
                Directory => {
                    fs::create_dir(&path).expect("a new folder");
                    fs::write(path.join("within"), FOREIGN).expect("it can be written");
                    continue;
                }
                Torn => bytes.truncate(bytes.len() - 5),
                Older | Newer => {}
            }
            fs::write(&path, bytes).expect("it can be written");
            let age = Duration::from_secs(state.age_s());
            let file = fs::File::options().write(true).open(&path).expect("it is there");
            file.set_modified(now - age).expect("its time can be set");
        }
    }
}

/// Returns all files within `folder`, also in its subfolders, with their bytes.
fn all_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(all_files(&path));
        } else {
            let bytes = fs::read(&path).expect("it can be read");
            found.insert(path, bytes);
        }
    }
    found
}

/// Starts a server, and returns it with the keys that it has loaded; `None` if it refuses to start.
fn start(folder: &Path, case: &Case) -> Option<(ServerProcess, BTreeSet<String>)> {
    let mut options = vec!["--dir", folder.to_str().expect("a name of text"), "--save", ""];
    options.extend(["--io-threads", "1", "--appendfsync", "no"]);
    options.extend(case.appendonly.map(|value| ["--appendonly", value]).into_iter().flatten());
    let server = saker::start_binary(BINARY, &options).ok()?;
    let mut client = Client::connect(&server.address()).ok()?;
    loop {
        let keys = client.request(&["KEYS", "*"]).ok()?;
        match keys {
            testkit::Value::Array(keys) => {
                let keys = keys.iter().map(|key| key.to_string().trim_matches('"').to_owned());
                return Some((server, keys.collect()));
            }
            other => assert!(other.to_string().contains("LOADING"), "{other}"),
        }
    }
}

/// Saves a snapshot and rewrites the append-only file, as far as the files permit it.
fn write_all(server: &ServerProcess, case: &Case) {
    let mut client = server.connect();
    ok(&mut client, &["SET", "new", "value"]);
    // SAVE fails if a directory has the name of the snapshot.
    let saved = client.command(&["SAVE"]).to_string();
    assert!(saved == "OK" || case.state(SNAPSHOT) == Directory, "{saved}");
    // The option is refused beside a manifest that cannot be read.
    let turned_on = client.command(&["CONFIG", "SET", "appendonly", "yes"]).to_string();
    assert!(
        turned_on == "OK" || matches!(case.state(MANIFEST), Directory | Foreign | Empty),
        "{turned_on}; {}\n{}",
        case.describe(),
        server.log()
    );
    client.command(&["BGREWRITEAOF"]);
    let is_idle = |client: &mut Client| {
        ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].iter().all(|field| info(client, field) == 0)
    };
    assert!(happens(|| is_idle(&mut client)), "{}", server.log());
    let _ = client.command(&["SAVE"]);
}

/// Runs one combination and returns its problems, such as lost bytes; empty if there are none.
fn check(case: &Case, good: &BTreeMap<&'static str, Vec<u8>>) -> Vec<String> {
    let folder = folder();
    case.lay_out(folder.path(), good);
    let before = all_files(folder.path());
    let mut problems = Vec::new();
    let Some((mut server, loaded)) = start(folder.path(), case) else {
        // Only the append-only file of Redis 6 may have moved to the folder of later versions.
        let after = all_files(folder.path());
        let is_adopting = matches!(case.state(SINGLE), Older | Newer | Foreign);
        let is_kept = |bytes: &Vec<u8>| bytes.is_empty() || after.values().any(|other| other == bytes);
        if after != before && !(is_adopting && before.values().all(is_kept)) {
            problems.push(format!("a start that failed left {:?}", after.keys()));
        }
        return problems;
    };
    write_all(&server, case);
    let _ = server.connect().request(&["SHUTDOWN", "NOSAVE"]);
    let _ = server.wait(Duration::from_secs(60));
    let log = server.log();
    kill(server);
    let after: BTreeSet<Vec<u8>> = all_files(folder.path()).into_values().collect();
    let is_aof_loaded = [BASE, INCR, SINGLE].iter().any(|name| loaded.contains(*name));
    let aof_age_s = case.age_s(if loaded.contains(SINGLE) { &[SINGLE] } else { &[BASE, INCR] });
    for (path, bytes) in &before {
        let name = path.strip_prefix(folder.path()).expect("it is below").to_string_lossy().into_owned();
        let state = case.state(&name);
        let is_superseded = match &*name {
            _ if bytes.is_empty() || after.contains(bytes) => true,
            _ if loaded.contains(&name) => true,
            // The older kind of data may be replaced beside the newer one that was loaded.
            SNAPSHOT => is_aof_loaded && matches!(state, Older | Torn) && aof_age_s < Some(state.age_s()),
            BASE | INCR => loaded.contains(SNAPSHOT) && case.age_s(&[SNAPSHOT]) < aof_age_s,
            // The manifest was read, so a newer one replaces it, and its history is removed.
            MANIFEST => matches!(state, Older | Newer),
            HISTORY => case.has_history && matches!(case.state(MANIFEST), Older | Newer),
            // The temporary file of a save that will not continue; the data is complete.
            UNFINISHED => !loaded.is_empty(),
            _ => false,
        };
        if !is_superseded {
            problems.push(format!("{name} is gone; loaded: {loaded:?}; log:\n{log}"));
        }
    }
    problems
}

#[test]
fn issue_33_no_combination_of_files_loses_bytes_that_were_not_loaded() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    let starts = number("SAKER_STARTS").unwrap_or(STARTS);
    let mut rng = Rng::new(number("SAKER_STARTS_SEED").unwrap_or(33) as u64);
    let good = good_files();
    let mut found = 0;
    for number in 0..starts {
        let case = Case::random(&mut rng);
        for problem in check(&case, &good) {
            println!("combination {number}: {}\n  {problem}", case.describe());
            found += 1;
        }
    }
    assert_eq!(found, 0, "problems in {starts} combinations");
}

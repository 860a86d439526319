//! Vector sets exchanged with a real server that has them: as payloads, in files, by replication.

use std::collections::BTreeMap;
use std::path::Path;

use testkit::replication::{field, happens, number, run};
use testkit::rng::Rng;
use testkit::{Client, ServerProcess, Value, peer, saker};

use crate::support::BINARY;

/// The number of elements of the largest vector sets.
const ELEMENTS: usize = 120;

/// Returns true, and prints a note, if there is no real server with vector sets.
fn is_without_vectors() -> bool {
    let has = peer::is_available() && {
        let server = peer::start().expect("the peer starts");
        !server.connect().command(&["VADD", "v", "VALUES", "1", "1", "e"]).is_error()
    };
    if !has {
        eprintln!("skipped: no server with vector sets to compare with (Redis 8; SAKER_PEER)");
    }
    !has
}

/// The forms of the vector sets, as options of VADD.
const FORMS: [&[&str]; 5] =
    [&["NOQUANT"], &["Q8", "M", "4"], &["BIN", "M", "5"], &["Q8", "REDUCE"], &["BIN", "REDUCE"]];

/// Creates vector sets of each form; removes some elements.
fn fill(client: &mut Client, rng: &mut Rng) {
    for (at, form) in FORMS.into_iter().enumerate() {
        let key = format!("v{at}");
        for number in 0..ELEMENTS {
            add(client, &key, form, &format!("e{number}"), rng);
        }
        for number in 0..ELEMENTS / 4 {
            run(client, &["VREM", &key, &format!("e{}", number * 3)]);
        }
        run(client, &["VSETATTR", &key, "e2", "{\"year\": 1990}"]);
    }
    run(client, &["VADD", "zero", "VALUES", "3", "0", "0", "0", "origin"]);
    run(client, &["VADD", "single", "VALUES", "1", "-2.5", "12345", "NOQUANT"]);
    run(client, &["PEXPIREAT", "single", "4102444800000"]);
}

/// Gives an element of each set another vector. Redis 8.0.2 does not replicate this.
fn update(client: &mut Client, rng: &mut Rng) {
    for (at, form) in FORMS.into_iter().enumerate() {
        add(client, &format!("v{at}"), form, "e1", rng);
    }
}

fn add(client: &mut Client, key: &str, form: &[&str], name: &str, rng: &mut Rng) {
    const DIM: usize = 70;
    let mut words: Vec<String> = vec!["VADD".into(), key.into()];
    if form.contains(&"REDUCE") {
        words.extend(["REDUCE".to_owned(), "20".to_owned()]);
    }
    words.extend(["VALUES".to_owned(), DIM.to_string()]);
    words.extend((0..DIM).map(|_| format!("{:.2}", rng.below(201) as f64 / 100.0 - 1.0)));
    words.push(name.into());
    words.extend(form.iter().filter(|word| **word != "REDUCE").map(|word| (*word).to_owned()));
    if rng.percent(30) {
        words.extend(["SETATTR".to_owned(), format!("{{\"n\":{}}}", rng.below(9))]);
    }
    run(client, &words.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Describes all vector sets of a server. For each set returns its parameters and size, then for
/// each element its stored vector, attributes and links.
fn told(client: &mut Client) -> BTreeMap<String, Vec<String>> {
    const FACTS: [&str; 6] =
        ["quant-type", "hnsw-m", "vector-dim", "projection-input-dim", "size", "max-level"];
    let Value::Array(keys) = run(client, &["KEYS", "*"]) else { panic!("no list") };
    let mut sets = BTreeMap::new();
    for key in keys.iter().map(text) {
        if text(&run(client, &["TYPE", &key])) != "vectorset" {
            continue;
        }
        let Value::Array(info) = run(client, &["VINFO", &key]) else { panic!("no list") };
        let facts = info.chunks(2).filter(|pair| FACTS.contains(&&*text(&pair[0])));
        let mut lines: Vec<String> = facts.map(|pair| format!("{} {}", text(&pair[0]), pair[1])).collect();
        lines.push(run(client, &["PEXPIRETIME", &key]).to_string());
        for name in
            (0..ELEMENTS).map(|number| format!("e{number}")).chain(["origin".to_owned(), "12345".to_owned()])
        {
            let raw = run(client, &["VEMB", &key, &name, "RAW"]);
            if raw == Value::Null {
                continue;
            }
            let Value::Array(raw) = raw else { panic!("{raw}") };
            let attributes = run(client, &["VGETATTR", &key, &name]);
            let Value::Array(levels) = run(client, &["VLINKS", &key, &name]) else { panic!("no links") };
            let mut links: Vec<Vec<String>> = levels.iter().map(names).collect();
            links.iter_mut().for_each(|level| level.sort_unstable());
            links.sort();
            let raw: Vec<String> = raw.iter().map(ToString::to_string).collect();
            lines.push(format!("{name} {raw:?} {attributes} {links:?}"));
        }
        sets.insert(key, lines);
    }
    sets
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

fn names(level: &Value) -> Vec<String> {
    let Value::Array(names) = level else { panic!("{level}") };
    names.iter().map(text).collect()
}

/// The program of a server: the one under test, or a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Own,
    Peer,
}

/// The two directions of an exchange: the server that has the vector sets, and the server that
/// receives them.
const DIRECTIONS: [[Kind; 2]; 2] = [[Kind::Own, Kind::Peer], [Kind::Peer, Kind::Own]];

/// Starts a server whose files are in `folder`, and waits until it has loaded them.
fn start(kind: Kind, folder: &Path) -> ServerProcess {
    let dir = folder.to_str().expect("a name of text");
    let options = ["--dir", dir, "--repl-diskless-sync-delay", "0"];
    let own = ["--save", "", "--io-threads", "2"];
    let server = match kind {
        Kind::Own => saker::start_binary(BINARY, &[own, options].concat()),
        Kind::Peer => peer::start_with(&options),
    };
    let server = server.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    let mut client = server.connect();
    assert!(happens(|| field(&mut client, "persistence", "loading") == "0"), "{}", server.log());
    server
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

#[test]
fn payloads_of_vector_sets_go_both_ways() {
    if is_without_vectors() {
        return;
    }
    for (seed, kinds) in DIRECTIONS.into_iter().enumerate() {
        let folders = [folder(), folder()];
        let [giver, taker] = [0, 1].map(|at| start(kinds[at], folders[at].path()));
        let (mut giver, mut taker) = (giver.connect(), taker.connect());
        let mut rng = Rng::new(seed as u64);
        fill(&mut giver, &mut rng);
        update(&mut giver, &mut rng);
        let expected = told(&mut giver);
        for key in expected.keys() {
            let payload = run(&mut giver, &["DUMP", key]);
            let Value::Integer(at_ms) = run(&mut giver, &["PEXPIRETIME", key]) else { panic!("no time") };
            let at_ms = at_ms.max(0).to_string();
            let payload = payload.as_bytes().expect("a payload");
            let words = [&b"RESTORE"[..], key.as_bytes(), at_ms.as_bytes(), payload, b"ABSTTL"];
            let reply = taker.command(&words);
            assert!(!reply.is_error(), "{kinds:?} {key}: {reply}");
        }
        assert_eq!(told(&mut taker), expected, "{kinds:?}");
    }
}

#[test]
fn files_with_vector_sets_go_both_ways() {
    if is_without_vectors() {
        return;
    }
    for (seed, kinds) in DIRECTIONS.into_iter().enumerate() {
        let (ours, theirs) = (folder(), folder());
        let giver = start(kinds[0], ours.path());
        let mut client = giver.connect();
        let mut rng = Rng::new(10 + seed as u64);
        fill(&mut client, &mut rng);
        update(&mut client, &mut rng);
        run(&mut client, &["SAVE"]);
        std::fs::copy(ours.path().join("dump.rdb"), theirs.path().join("dump.rdb")).expect("copied");
        let taker = start(kinds[1], theirs.path());
        assert_eq!(told(&mut taker.connect()), told(&mut client), "{kinds:?}");
    }
}

#[test]
fn a_replica_gets_vector_sets_and_their_changes() {
    if is_without_vectors() {
        return;
    }
    for (seed, kinds) in DIRECTIONS.into_iter().enumerate() {
        let folders = [folder(), folder()];
        let [primary, replica] = [0, 1].map(|at| start(kinds[at], folders[at].path()));
        let (mut theirs, mut own) = (primary.connect(), replica.connect());
        let mut rng = Rng::new(20 + seed as u64);
        fill(&mut theirs, &mut rng);
        update(&mut theirs, &mut rng);
        run(&mut own, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        let mut catch_up = || {
            let caught_up = happens(|| {
                field(&mut own, "replication", "master_link_status") == "up"
                    && number(&mut theirs, "replication", "master_repl_offset")
                        == number(&mut own, "replication", "slave_repl_offset")
            });
            assert!(caught_up, "{kinds:?}: {}", replica.log());
        };
        catch_up();
        assert_eq!(told(&mut replica.connect()), told(&mut primary.connect()), "{kinds:?}");
        let mut writer = primary.connect();
        run(&mut writer, &["FLUSHALL"]);
        fill(&mut writer, &mut rng);
        if kinds[0] == Kind::Own {
            update(&mut writer, &mut rng);
        }
        catch_up();
        assert_eq!(elements(&mut replica.connect()), elements(&mut primary.connect()), "{kinds:?}");
    }
}

/// Returns the elements of each set with their attributes. Each server draws the levels of new
/// elements itself and rounds in its own way, so neither links nor vectors are the same.
fn elements(client: &mut Client) -> BTreeMap<String, Vec<String>> {
    let element = |line: &String| line.split_once(" [[").map(|(element, _)| element.to_owned());
    let without_vector = |element: String| {
        let (name, attributes) = (element.split(' ').next(), element.rsplit("] ").next());
        format!("{name:?} {attributes:?}")
    };
    let lines = |lines: Vec<String>| lines.iter().filter_map(element).map(without_vector).collect();
    told(client).into_iter().map(|(key, of_set)| (key, lines(of_set))).collect()
}

#[test]
fn a_replica_without_vector_sets_is_told_why_it_gets_no_snapshot() {
    let is_valkey = peer::is_available() && {
        let server = peer::start().expect("the peer starts");
        !field(&mut server.connect(), "server", "valkey_version").is_empty()
    };
    if !is_valkey {
        eprintln!("skipped: no Valkey to follow this server (SAKER_PEER)");
        return;
    }
    let folders = [folder(), folder()];
    let primary = start(Kind::Own, folders[0].path());
    let replica = start(Kind::Peer, folders[1].path());
    let mut client = primary.connect();
    run(&mut client, &["VADD", "v", "VALUES", "2", "1", "1", "e"]);
    run(&mut replica.connect(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let says = || primary.log().contains("1 key is a vector set, which servers of RDB version");
    assert!(happens(says), "{}", primary.log());
    run(&mut client, &["DEL", "v"]);
    run(&mut client, &["SET", "k", "1"]);
    let mut own = replica.connect();
    assert!(happens(|| own.command(&["GET", "k"]) == Value::Bulk(b"1".to_vec())), "{}", replica.log());
}

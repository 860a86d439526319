//! Readers of a replica see the effect of a beginning of the primary's replication stream with
//! whole transactions, and never an older state after a newer one. This holds over cuts of the
//! link, and on a replica of the replica.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use testkit::replication::{Proxy, happens};
use testkit::{Client, Rng, Value};

use super::{Kind, Node, kinds, runs_all, seed};

/// The counters, in the order in which a round of the writer raises them. Counters of one group are
/// raised by one transaction, script or command.
const GROUPS: [&[&str]; 4] = [&["a", "b", "c"], &["seq"], &["d", "e"], &["f", "g"]];

/// Number of rounds of increments that the writer sends at once.
const ROUNDS: u64 = 40;

/// Number of times that the link to the primary is cut in a test.
const CUTS: u64 = 12;

/// The values of the counters that one read has seen; in the order of [`GROUPS`].
type Seen = Vec<u64>;

/// Returns the names of all counters, the keys that the writer increments.
fn names() -> Vec<&'static str> {
    GROUPS.concat()
}

/// Increments all counters on the primary in rounds, until `stop` is set. Returns the number of
/// rounds.
fn write(mut client: Client, stop: &AtomicBool) -> u64 {
    let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])";
    let mut round = 0;
    while !stop.load(Relaxed) {
        let mut requests: Vec<Vec<String>> = Vec::new();
        let mut push = |words: &[&str]| requests.push(words.iter().map(|&word| word.to_owned()).collect());
        for _ in 0..ROUNDS {
            round += 1;
            let text = round.to_string();
            push(&["MULTI"]);
            push(&["SET", "a", &text]);
            push(&["SELECT", "3"]);
            push(&["SET", "elsewhere", &text]);
            push(&["SELECT", "0"]);
            push(&["SET", "b", &text]);
            push(&["SET", "c", &text]);
            push(&["EXEC"]);
            push(&["INCR", "seq"]);
            push(&["EVAL", script, "2", "d", "e", &text]);
            push(&["MSET", "f", &text, "g", &text]);
        }
        for reply in client.pipeline(&requests).expect("the primary answers") {
            assert!(!reply.is_error(), "{reply}");
        }
    }
    round
}

/// Checks that the values belong to one moment of the replication stream. Counters of a group are
/// equal, no group is ahead of the group before it, and the last is at most one round behind the
/// first.
fn check_moment(seen: &Seen, what: &str) {
    let mut at = 0;
    let mut heads = Vec::new();
    for group in GROUPS {
        let values = &seen[at..at + group.len()];
        assert!(values.iter().all(|value| value == &values[0]), "{what}: half a unit: {seen:?}");
        heads.push(values[0]);
        at += group.len();
    }
    let is_prefix = heads.windows(2).all(|pair| pair[0] >= pair[1]) && heads[0] - heads[3] <= 1;
    assert!(is_prefix, "{what}: not a beginning of the stream: {seen:?}");
}

/// Checks that no counter has a smaller value than in the read before.
fn check_order(before: &Seen, seen: &Seen, what: &str) {
    let is_monotone = before.iter().zip(seen).all(|(before, now)| before <= now);
    assert!(is_monotone, "{what}: {before:?}, then {seen:?}");
}

/// Returns the numbers in an array; 0 for a missing counter.
fn numbers(value: &Value) -> Seen {
    let Value::Array(values) = value else { panic!("no array but {value}") };
    let number = |value: &Value| std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok();
    values.iter().map(|value| number(value).unwrap_or(0)).collect()
}

/// A way in which a client reads all counters.
#[derive(Clone, Copy, Debug)]
enum Way {
    Multi,
    Mget,
    Script,
    /// Each counter is read by its own GET, the last group first.
    Single,
}

/// Reads all counters at one moment, or with [`Way::Single`] one after the other, the last one
/// first.
fn read(client: &mut Client, way: Way) -> Seen {
    let names = names();
    match way {
        Way::Mget => numbers(&client.command(&[&["MGET"], &names[..]].concat())),
        Way::Script => {
            let count = names.len().to_string();
            let script = "local seen = {} for at, key in ipairs(KEYS) do seen[at] = redis.call('GET', key) or '0' \
                          end return seen";
            numbers(&client.command(&[&["EVAL", script, &count], &names[..]].concat()))
        }
        Way::Multi => {
            let mut requests = vec![vec!["MULTI"]];
            requests.extend(names.iter().map(|name| vec!["GET", name]));
            requests.extend([
                vec!["SELECT", "3"],
                vec!["GET", "elsewhere"],
                vec!["SELECT", "0"],
                vec!["EXEC"],
            ]);
            let replies = client.pipeline(&requests).expect("the replica answers");
            let Some(Value::Array(results)) = replies.last() else { panic!("{replies:?}") };
            let mut seen = numbers(&Value::Array(results.clone()));
            assert_eq!(seen[names.len() + 1], seen[0], "the databases differ: {seen:?}");
            seen.truncate(names.len());
            seen
        }
        Way::Single => {
            let requests: Vec<Vec<&str>> = names.iter().rev().map(|name| vec!["GET", name]).collect();
            let mut replies = client.pipeline(&requests).expect("the replica answers");
            replies.reverse();
            numbers(&Value::Array(replies))
        }
    }
}

/// Reads the counters until `stop` is set, and checks each read. Returns the number of reads with a
/// newer state than before.
fn read_on(mut client: Client, way: Way, stop: &AtomicBool, what: &str) -> u64 {
    let mut before = vec![0; names().len()];
    let mut changes = 0;
    while !stop.load(Relaxed) {
        let seen = read(&mut client, way);
        match way {
            Way::Single => {
                // What is raised first is read last.
                let is_ordered = seen.windows(2).all(|pair| pair[0] >= pair[1]);
                assert!(is_ordered, "{what}: {seen:?}");
            }
            Way::Multi | Way::Mget | Way::Script => check_moment(&seen, what),
        }
        check_order(&before, &seen, what);
        changes += u64::from(seen != before);
        before = seen;
    }
    changes
}

/// Runs a client that writes to the primary, and clients that read from its replicas, while the
/// links between the servers are cut.
fn run_readers(kind: Kind, seed: u64) {
    let primary = Node::start(kind, &[]);
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    let replica = Node::start(Kind::Own, &[]);
    replica.follow(proxy.port());
    replica.catch_up(&primary);
    let last = Node::following(&replica, &[]);
    let before = primary.syncs();
    let (stop, mut rng) = (AtomicBool::new(false), Rng::new(seed));
    let cuts = if runs_all() { 20 * CUTS } else { CUTS };
    std::thread::scope(|scope| {
        let stop = &stop;
        let writer = scope.spawn({
            let client = primary.connect();
            move || write(client, stop)
        });
        let mut readers = Vec::new();
        for (node, name) in [(&replica, "the replica"), (&last, "its replica")] {
            for way in [Way::Multi, Way::Mget, Way::Script, Way::Single] {
                let client = node.connect();
                let what = format!("{kind:?}, seed {seed}, {name}, {way:?}");
                readers.push(scope.spawn(move || read_on(client, way, stop, &what)));
            }
        }
        let mut applied = 0;
        let goes_on = (0..cuts).all(|cut| {
            proxy.cut_after(proxy.passed_bytes() + 1 + rng.below(100_000) as u64);
            // All servers apply changes after the cut.
            happens(|| proxy.cuts() > cut && last.offset() > applied && replica.is_up()) && {
                applied = replica.offset();
                happens(|| last.offset() > applied) || readers.iter().any(|reader| reader.is_finished())
            }
        });
        stop.store(true, Relaxed);
        let changes: Vec<u64> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        assert!(goes_on, "{kind:?}, seed {seed}: {}\n{}", replica.state(), last.state());
        assert!(changes.iter().all(|&changes| changes > 0), "{changes:?}");
        assert!(writer.join().expect("it writes") > 0);
    });
    last.wait_for_data_of(&primary, "at the end");
    assert_eq!(primary.syncs_since(before).0, 0, "{kind:?}, seed {seed}: a full sync: {}", replica.state());
}

#[test]
fn readers_see_whole_units_in_order_and_never_go_back() {
    for kind in kinds() {
        run_readers(kind, seed());
    }
}

//! Tests that apply the recorded commands of one keyspace to another keyspace, later, and compare
//! the contents of the two.

use std::collections::BTreeSet;

use keyspace::view::ExpiredAccess;
use resp::Value;

use crate::Command;
use crate::harness::{Harness, Recorded, START_MS};
use crate::table::Flags;

mod cases;
mod random;

/// The delay, in milliseconds, before recorded commands are applied. It reveals relative times in
/// them, because the two keyspaces then differ.
const LATER_MS: i64 = 5_000;

/// Two keyspaces of a test: the source runs requests, the replica gets only the commands that the
/// source records.
struct Twins {
    source: Harness,
    replica: Harness,
}

impl Twins {
    fn new() -> Self {
        let (mut source, mut replica) = (Harness::new(), Harness::with_seed([9, 8, 7, 6]));
        source.effects.record.is_wanted = true;
        source.limits.stream_node_max_entries = 3;
        source.limits.hash_max_listpack_entries = 5;
        source.limits.set_max_listpack_entries = 5;
        source.limits.zset_max_listpack_entries = 5;
        replica.expired_access = ExpiredAccess::Show;
        Self { source, replica }
    }

    /// Runs a request on the source and applies the recorded commands to the replica. Returns the
    /// reply and the recorded commands, one a line.
    fn run(&mut self, words: &[Vec<u8>]) -> (Value, Vec<String>) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = decoded(&self.source.run_bytes(&words));
        self.source.effects.events.clear();
        let recorded = self.source.recorded(&words);
        let lines = self.replay(recorded, &reply);
        (reply, lines)
    }

    /// Applies recorded commands to the replica and returns them, one a line. A recorded command
    /// may fail only if the request itself failed; `request` is its reply.
    fn replay(&mut self, recorded: Recorded, request: &Value) -> Vec<String> {
        self.replica.now_ms = self.source.now_ms + LATER_MS;
        let mut lines = Vec::new();
        for (db, command) in recorded {
            self.replica.db = db;
            let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            let line =
                command.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            let replayed = decoded(&self.replica.run_bytes(&command));
            assert!(!replayed.is_error() || request.is_error(), "{line}: {replayed}");
            lines.push(line);
        }
        lines
    }

    /// Runs a step of a test case. Returns the reply and the recorded commands, one a line. A step
    /// is a request as typed in redis-cli, `+100` to advance the clock by 100 ms, `@2` to select
    /// database 2, or `sweep` for the server's background expiry.
    fn step(&mut self, line: &str) -> (Value, Vec<String>) {
        if let Some(ms) = line.strip_prefix('+') {
            self.source.now_ms += ms.parse::<i64>().expect("milliseconds");
            return (Value::Null, Vec::new());
        }
        if let Some(db) = line.strip_prefix('@') {
            self.source.db = db.parse().expect("a database");
            return (Value::Null, Vec::new());
        }
        if line == "sweep" {
            let recorded = self.source.sweep();
            return (Value::Null, self.replay(recorded, &Value::Null));
        }
        let words = stdx::quoted::split_quoted(line.as_bytes()).expect("quotes are balanced");
        self.run(&words)
    }

    fn check(&mut self, after: &str) {
        let (expected, actual) = (contents(&mut self.source), contents(&mut self.replica));
        let of = |keys: &[String], others: &[String]| {
            keys.iter().filter(|key| !others.contains(key)).cloned().collect::<Vec<_>>().join("\n")
        };
        let (missing, extra) = (of(&expected, &actual), of(&actual, &expected));
        assert!(expected == actual, "after {after}:\nthe source has\n{missing}\nthe replica has\n{extra}");
    }
}

fn decoded(reply: &[u8]) -> Value {
    match resp::decode(reply) {
        Ok(Some((value, len))) if len == reply.len() => value,
        other => panic!("{other:?} is no reply: {}", reply.escape_ascii()),
    }
}

/// Returns all keys of all databases, each with its type, expiry and value, expired keys included.
fn contents(db: &mut Harness) -> Vec<String> {
    let (selected, expired_access) = (db.db, std::mem::replace(&mut db.expired_access, ExpiredAccess::Show));
    let mut keys = Vec::new();
    for number in 0..16 {
        db.db = number;
        let names = crate::harness::words_of(&db.run_bytes(&[b"KEYS", b"*"]));
        let names: BTreeSet<Vec<u8>> = names.into_iter().collect();
        keys.extend(names.iter().map(|name| format!("@{number} {}", content(db, name))));
    }
    (db.db, db.expired_access) = (selected, expired_access);
    keys
}

fn content(db: &mut Harness, key: &[u8]) -> String {
    let kind = decoded(&db.run_bytes(&[b"TYPE", key])).to_string();
    let expiry = decoded(&db.run_bytes(&[b"PEXPIRETIME", key])).to_string();
    let ask = |db: &mut Harness, words: &[&[u8]]| decoded(&db.run_bytes(words));
    let value = match kind.as_str() {
        "string" => ask(db, &[b"GET", key]).to_string(),
        "list" => ask(db, &[b"LRANGE", key, b"0", b"-1"]).to_string(),
        "set" => sorted(ask(db, &[b"SMEMBERS", key]), 1),
        "zset" => ask(db, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]).to_string(),
        "hash" => {
            let all = ask(db, &[b"HGETALL", key]);
            let Value::Array(pairs) = &all else { panic!("{all}") };
            let fields = pairs.iter().step_by(2).map(|field| field.as_bytes().expect("a field"));
            let count = (pairs.len() / 2).to_string();
            let request = [&b"HPEXPIRETIME"[..], key, b"FIELDS", count.as_bytes()].into_iter();
            let times = ask(db, &request.chain(fields).collect::<Vec<_>>());
            let Value::Array(times) = times else { panic!("{times}") };
            let timed =
                pairs.chunks(2).zip(times).flat_map(|(pair, time)| [pair[0].clone(), pair[1].clone(), time]);
            sorted(Value::Array(timed.collect()), 3)
        }
        "array" => {
            let elements = ask(db, &[b"ARSCAN", key, b"0", b"18446744073709551614"]);
            Value::Array(vec![elements, ask(db, &[b"ARNEXT", key])]).to_string()
        }
        "vectorset" => {
            let names = crate::harness::words_of(&db.run_bytes(&[b"VRANGE", key, b"-", b"+"]));
            let mut elements = vec![ask(db, &[b"VDIM", key])];
            for name in &names {
                elements.push(ask(db, &[b"VEMB", key, name, b"RAW"]));
                elements.push(ask(db, &[b"VGETATTR", key, name]));
            }
            Value::Array(elements).to_string()
        }
        "stream" => {
            let mut info = ask(db, &[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]);
            forget_what_is_not_recorded(&mut info);
            info.to_string()
        }
        other => panic!("a {other}"),
    };
    format!("{} {kind} {expiry}: {value}", key.escape_ascii())
}

/// Formats the elements of a reply's array in groups of `size`. The groups are sorted, so that
/// their order does not depend on a hash table.
fn sorted(array: Value, size: usize) -> String {
    let Value::Array(values) = array else { panic!("{array}") };
    let text = |group: &[Value]| group.iter().map(Value::to_string).collect::<Vec<_>>().join(" ");
    let mut groups: Vec<String> = values.chunks(size).map(text).collect();
    groups.sort();
    groups.join(", ")
}

/// Replaces, in replies that describe a stream, values that are not recorded by null: the times at
/// which consumers were seen and active, and the sizes of the stream's tree. Removes the numbers of
/// idempotent IDs: the recorded commands have neither duplicates nor trimmed entries.
fn forget_what_is_not_recorded(info: &mut Value) {
    let Value::Array(values) = info else { return };
    if let Some(at) = values.iter().position(|value| value.as_bytes() == Some(b"idmp-duration")) {
        values.drain(at..at + 2 * 6);
    }
    for at in 0..values.len() {
        forget_what_is_not_recorded(&mut values[at]);
        let name = values[at].as_bytes().unwrap_or_default();
        if [&b"seen-time"[..], b"active-time", b"radix-tree-keys", b"radix-tree-nodes"].contains(&name) {
            values[at + 1] = Value::Null;
        }
    }
}

/// Returns the names of all commands that may be recorded. The name of a subcommand has both words.
fn writers() -> BTreeSet<String> {
    let may_be = |flags: Flags| flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE);
    let records = |command: &&Command| may_be(command.flags);
    let walkers =
        crate::walkers().filter(|walker| may_be(walker.flags)).map(|walker| walker.name.to_string());
    let own = crate::all().filter(records).map(|command| command.name.to_string()).chain(walkers);
    let subs = crate::all().flat_map(|command| {
        command.subcommands.iter().copied().filter(move |sub| records(sub)).map(move |sub| (command, sub))
    });
    own.chain(subs.map(|(command, sub)| format!("{} {}", command.name, sub.name))).collect()
}

/// Returns the name of the command in a typed request, in the form of [`writers`].
fn name_of(line: &str) -> String {
    let words: Vec<String> = line.split(' ').map(str::to_uppercase).collect();
    match words[0].as_str() {
        "HIMPORT" | "XGROUP" => format!("{} {}", words[0], words[1]),
        _ => words[0].clone(),
    }
}

#[test]
fn nothing_is_collected_unless_records_are_wanted() {
    let mut db = Harness::new();
    for line in ["SET k 1 EX 100", "HSET h f 1", "HPEXPIRE h 10 FIELDS 1 f", "SET e 1 PX 10"] {
        db.line(line);
    }
    db.now_ms += 100;
    for line in ["GETDEL e", "HGET h f", "GETDEL k"] {
        db.line(line);
        assert_eq!(db.effects.record.command_count(), 0, "{line}");
        assert!(!db.effects.record.has_request(db.effects.changes), "{line}");
    }
}

#[test]
fn expired_keys_and_fields_come_before_what_the_command_does() {
    let mut twins = Twins::new();
    for line in ["SET k 1 PX 10", "HSET h f 1 g 2", "HPEXPIRE h 10 FIELDS 1 f", "+20"] {
        twins.step(line);
    }
    assert_eq!(START_MS + 20, twins.source.now_ms);
    assert_eq!(twins.step("SET k 2").1, ["DEL k", "SET k 2"]);
    assert_eq!(twins.step("HGET h f").1, ["HDEL h f"]);
    twins.check("expiry");
}

#[test]
fn long_results_are_recorded_in_batches() {
    let mut twins = Twins::new();
    let members: Vec<String> = (0..3_000).map(|number| number.to_string()).collect();
    twins.step(&format!("SADD s {}", members.join(" ")));
    let words = |line: &str| line.split(' ').count();
    let (_, sort) = twins.step("SORT s BY h*->f ALPHA STORE d");
    assert_eq!(sort.iter().map(|line| words(line)).collect::<Vec<_>>(), [1_026, 1_026, 954]);
    let (_, spop) = twins.step("SPOP s 2500");
    assert_eq!(spop.iter().map(|line| words(line)).collect::<Vec<_>>(), [1_026, 1_026, 454]);
    assert_eq!(twins.step("SPOP s 500").1, ["DEL s"]);
    twins.check("all members were taken");
}

#[test]
fn a_sweep_records_each_field_and_each_key() {
    let mut twins = Twins::new();
    for line in ["SET k 1 PX 5", "HSET h f 1 g 2", "HPEXPIRE h 5 FIELDS 2 f g", "@3", "HSET i f 1 g 2"] {
        twins.step(line);
    }
    for line in ["HPEXPIRE i 5 FIELDS 1 g", "SET k 1", "+10"] {
        twins.step(line);
    }
    let mut recorded = twins.step("sweep").1;
    recorded.sort();
    assert_eq!(recorded, ["DEL k", "HDEL h f", "HDEL h g", "HDEL i g"]);
    twins.check("a sweep");
}

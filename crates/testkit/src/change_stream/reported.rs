//! Describes a difference between the data of two servers, for the message of a failed test.

use std::fmt::Write;

use resp::Value;

use super::Change;
use crate::client::Client;
use crate::notation::{command_line, one_line};

/// Number of databases that are read to describe a difference between two servers.
const DATABASES: u32 = 4;

/// Describes the keys that differ between two servers, with their changes in the stream of changes.
pub(crate) fn reported(source: &mut Client, target: &mut Client, changes: &[Change]) -> String {
    let mut out = String::new();
    for db in 0..DATABASES {
        let (ours, theirs) = (content(source, db), content(target, db));
        let mut keys: Vec<_> = ours.iter().chain(&theirs).map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let of = |side: &[(Vec<u8>, String)]| {
                side.iter().find(|(name, _)| *name == key).map(|it| it.1.clone())
            };
            let (ours, theirs) = (of(&ours), of(&theirs));
            if ours == theirs {
                continue;
            }
            let shown = command_line(std::slice::from_ref(&key));
            let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
            line(format!("  database {db}, key {shown}:"));
            line(format!("    source: {}", ours.unwrap_or_else(|| "-".into())));
            line(format!("    replayed: {}", theirs.unwrap_or_else(|| "-".into())));
            let concerns = |change: &&Change| {
                change.words[1..].contains(&key)
                    || matches!(&*change.name(), "SWAPDB" | "FLUSHDB" | "FLUSHALL")
            };
            for change in changes.iter().filter(concerns) {
                line(format!("      {change}"));
            }
        }
    }
    out
}

/// Returns each key of a database, with its expiry, digest and value in one line.
fn content(client: &mut Client, db: u32) -> Vec<(Vec<u8>, String)> {
    client.command(&["SELECT", &db.to_string()]);
    let keys = client.command(&["KEYS", "*"]);
    let Value::Array(keys) = keys else { return Vec::new() };
    let keys = keys.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec);
    keys.map(|key| {
        let mut line = String::new();
        let kind = client.command(&[b"TYPE", &key[..]]);
        let reads: &[&str] = match &kind {
            Value::Simple(kind) if kind == b"string" => &["GET %"],
            Value::Simple(kind) if kind == b"list" => &["LRANGE % 0 -1"],
            Value::Simple(kind) if kind == b"hash" => &["HGETALL %"],
            Value::Simple(kind) if kind == b"set" => &["SORT % ALPHA"],
            Value::Simple(kind) if kind == b"zset" => &["ZRANGE % 0 -1 WITHSCORES"],
            Value::Simple(kind) if kind == b"stream" => &["XINFO STREAM % FULL COUNT 0"],
            _ => &[],
        };
        for read in ["PEXPIRETIME %", "DEBUG DIGEST-VALUE %"].iter().chain(reads) {
            let words: Vec<Vec<u8>> = read
                .split(' ')
                .map(|word| if word == "%" { key.clone() } else { word.as_bytes().to_vec() })
                .collect();
            write!(line, "{} ", one_line(&client.command(&words))).expect("writing to a string cannot fail");
        }
        (key, line)
    })
    .collect()
}

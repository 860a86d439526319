//! Test cases: a few requests for each write command.

use std::collections::{BTreeMap, BTreeSet};

use super::{Twins, name_of, writers};

/// The cases, with a blank line between them. Each runs in an empty keyspace. `|` separates the
/// steps of a case (see [`Twins::step`]). Lines that begin with `#` are titles.
const CASES: &str = include_str!("cases.txt");

#[test]
fn the_records_of_each_write_command_lead_to_the_same_data() {
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for case in CASES.split("\n\n").filter(|case| !case.starts_with('#')) {
        let mut twins = Twins::new();
        for line in case.split('|').map(str::trim) {
            let (_, commands) = twins.step(line);
            *recorded.entry(name_of(line)).or_default() += commands.len();
            twins.check(&format!("{line} recorded as {commands:?}"));
        }
    }
    let recorded: BTreeSet<String> =
        recorded.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
    let missing: Vec<String> = writers().into_iter().filter(|name| !recorded.contains(name)).collect();
    assert!(missing.is_empty(), "write commands without a case in which they change something: {missing:?}");
}

/// Requests with their expected records, all run in one keyspace.
const AS_IN_REDIS: &str = include_str!("redis.txt");

/// Returns a record of [`AS_IN_REDIS`] with each `{n}` replaced by the time `now_ms + n`.
fn with_times(record: &str, now_ms: i64) -> String {
    let mut parts = record.split('{');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (offset_ms, behind) = part.split_once('}').expect("a time ends");
        text += &(now_ms + offset_ms.parse::<i64>().expect("milliseconds")).to_string();
        text += behind;
    }
    text
}

#[test]
fn records_read_as_what_redis_writes() {
    let mut twins = Twins::new();
    let text = AS_IN_REDIS.replace(";\n  ", "; ");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (request, expected) = line.split_once(" =>").expect("a request and its record");
        let expected = with_times(expected.trim(), twins.source.now_ms);
        assert_eq!(twins.step(request).1.join("; "), expected, "{request}");
        twins.check(request);
    }
}

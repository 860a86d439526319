//! Test cases of recorded commands: a few requests for each write command.

use std::collections::{BTreeMap, BTreeSet};

use super::{Twins, name_of, writers};
use crate::Command;

/// The test cases of recorded commands, with a blank line between them. Each runs in an empty
/// keyspace. `|` separates the steps of a case (see [`Twins::step`]). Lines that begin with `#` are
/// titles.
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

/// Requests that change data, each with the commands that Redis also writes to its append-only
/// file for it. All run in one keyspace.
const AS_IN_REDIS: &str = include_str!("redis.txt");

/// Returns the commands `record` that a request in [`AS_IN_REDIS`] must record, with each `{n}`
/// replaced by the time `now_ms + n`.
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

/// Requests that some supported servers do not know, with the commands to record in their place.
/// All run in one keyspace.
const FOR_ALL_PEERS: &str = include_str!("peers.txt");

/// Runs the requests in `text` and compares the commands recorded for them with the expected ones.
fn check_records(text: &str) {
    let mut twins = Twins::new();
    let text = text.replace(";\n  ", "; ");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (request, expected) = line.split_once(" =>").expect("a request and its record");
        let expected = with_times(expected.trim(), twins.source.now_ms);
        assert_eq!(twins.step(request).1.join("; "), expected, "{request}");
        twins.check(request);
    }
}

#[test]
fn records_read_as_what_redis_writes() {
    check_records(AS_IN_REDIS);
}

#[test]
fn records_of_newer_requests_have_forms_that_all_peers_know() {
    check_records(FOR_ALL_PEERS);
}

/// Returns the command forms that are never recorded, each as the command's name and the form's
/// word. A form without a word repeats the name.
fn replaced_forms() -> BTreeSet<(&'static str, &'static str)> {
    let of_command = |command: &'static Command| {
        let forms = command.recorded_forms.iter().filter(|form| form.known.is_none());
        forms.map(|form| (command.name, form.word.unwrap_or(command.name)))
    };
    crate::all().flat_map(of_command).collect()
}

#[test]
fn forms_that_are_replaced_are_requested_and_never_recorded() {
    let has_form = |line: &str, (name, word): &(&str, &str)| {
        let mut words = line.split(' ');
        words.clone().next() == Some(*name) && words.any(|own| own == *word)
    };
    let cases = CASES.split("\n\n").filter(|case| !case.starts_with('#'));
    let steps = cases.flat_map(|case| case.split('|').map(str::trim).chain(["FLUSHALL"]));
    let requests = FOR_ALL_PEERS.lines().filter_map(|line| line.split_once(" =>")).map(|(line, _)| line);
    let (mut twins, replaced) = (Twins::new(), replaced_forms());
    let mut missing = replaced.clone();
    for line in steps.chain(requests) {
        let (_, records) = twins.step(line);
        for record in &records {
            let found: Vec<_> = replaced.iter().filter(|form| has_form(record, form)).collect();
            // A field may have the name of an option.
            assert!(found.is_empty() || record.ends_with(" a DELREF"), "{line}: {record}");
        }
        if !records.is_empty() {
            missing.retain(|form| !has_form(&line.to_uppercase(), form));
        }
    }
    assert!(missing.is_empty(), "no case records a request with these words: {missing:?}");
}

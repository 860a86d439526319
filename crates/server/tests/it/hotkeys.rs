//! HOTKEYS finds the keys with the highest cost on all threads, in transactions and with samples.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use net::BackendChoice;
use testkit::{Client, Value};

use crate::support::{connect, start};

/// Returns the fields in the reply of HOTKEYS GET, by name.
fn report(client: &mut Client) -> BTreeMap<String, Value> {
    let Value::Array(mut rows) = client.command(&["HOTKEYS", "GET"]) else { panic!("an array") };
    let Some(Value::Array(fields)) = rows.pop() else { panic!("with the fields") };
    let pairs = fields.chunks_exact(2);
    pairs.map(|pair| (String::from_utf8(text(&pair[0]).to_vec()).expect("a word"), pair[1].clone())).collect()
}

fn text(value: &Value) -> &[u8] {
    let Value::Bulk(text) = value else { panic!("{value} is no text") };
    text
}

fn number(value: &Value) -> i64 {
    let Value::Integer(number) = value else { panic!("{value} is no number") };
    *number
}

/// Parses an array in which each key is followed by its number.
fn keys(value: &Value) -> Vec<(String, i64)> {
    let Value::Array(items) = value else { panic!("{value} is no array") };
    let name = |value| String::from_utf8_lossy(text(value)).into_owned();
    items.chunks_exact(2).map(|pair| (name(&pair[0]), number(&pair[1]))).collect()
}

/// Sends 999 requests in one pipeline, of which a third writes the key `hot`.
fn work(client: &mut Client) {
    let requests: Vec<Vec<String>> = (0..999)
        .map(|at| match at % 3 {
            0 => vec!["SET".into(), "hot".into(), "value".into()],
            1 => vec!["GET".into(), format!("cold{at}")],
            _ => vec!["PING".into()],
        })
        .collect();
    client.pipeline(&requests).expect("they are answered");
}

#[test]
fn the_key_that_takes_most_is_named_first() {
    let server = start(BackendChoice::Auto);
    let mut clients = [connect(&server), connect(&server)];
    clients.iter_mut().for_each(work);
    let start = ["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "3"];
    assert!(!clients[0].command(&start).is_error());
    clients.iter_mut().for_each(work);
    for command in [&["MULTI"][..], &["MSET", "hot", "x", "second", "y"], &["INCR", "third"], &["EXEC"]] {
        assert!(!clients[1].command(command).is_error());
    }
    let running = report(&mut clients[0]);
    assert_eq!(number(&running["tracking-active"]), 1);
    assert!(!clients[0].command(&["HOTKEYS", "STOP"]).is_error());
    clients.iter_mut().for_each(work);
    let fields = report(&mut clients[1]);
    assert_eq!(number(&fields["tracking-active"]), 0);
    assert_eq!(number(&fields["sample-ratio"]), 1);
    let by_bytes = keys(&fields["by-net-bytes"]);
    // Requests of 33 bytes with replies of 5 bytes, and half of the MSET and its reply.
    let set = 38 * 666;
    assert_eq!(by_bytes[0].0, "hot");
    assert!(by_bytes[0].1 > set && by_bytes[0].1 < set + 100, "{by_bytes:?}");
    assert_eq!(by_bytes.len(), 3);
    let all = number(&fields["net-bytes-all-commands-all-slots"]);
    assert!(all > by_bytes[0].1 && all <= number(&fields["total-net-bytes"]), "PING has no key");
    // A single GET that the kernel interrupts may take more time than all SETs.
    let by_time = keys(&fields["by-cpu-time-us"]);
    assert!(by_time.iter().any(|(key, _)| key == "hot"), "{by_time:?}");
    assert!(by_time.is_sorted_by(|more, less| more.1 >= less.1), "{by_time:?}");
    assert!(number(&fields["all-commands-all-slots-us"]) >= by_time[0].1);
}

#[test]
fn samples_find_the_same_and_a_session_ends_by_itself() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    let start = ["HOTKEYS", "START", "METRICS", "1", "NET", "SAMPLE", "10", "DURATION", "1"];
    assert!(!client.command(&start).is_error());
    let (mut rounds, begin) = (0_u32, Instant::now());
    while number(&report(&mut client)["tracking-active"]) == 1 {
        work(&mut client);
        rounds += 1;
        assert!(begin.elapsed().as_secs() < 30, "a second is over");
    }
    let fields = report(&mut client);
    let by_bytes = keys(&fields["by-net-bytes"]);
    assert_eq!(by_bytes[0].0, "hot");
    assert!(by_bytes[0].1 < i64::from(rounds) * 333 * 38 / 2, "a tenth of {rounds} rounds is counted");
    assert_eq!(number(&fields["collection-duration-ms"]), 1000);
    assert!(!fields.contains_key("by-cpu-time-us"));
    assert!(!client.command(&["HOTKEYS", "RESET"]).is_error());
    assert_eq!(client.command(&["HOTKEYS", "GET"]), Value::Null);
}

/// Returns the rows of HOTKEYS GET: key, database, requests per second.
fn rates(client: &mut Client) -> Vec<(String, i64, i64)> {
    let Value::Array(rows) = client.command(&["HOTKEYS", "GET"]) else { panic!("an array") };
    let row = |row: &Value| {
        let Value::Array(fields) = row else { panic!("{row} is no row") };
        let names: Vec<_> = fields.iter().step_by(2).map(text).collect();
        assert_eq!(names, [b"key".as_slice(), b"db", b"qps"]);
        (String::from_utf8_lossy(text(&fields[1])).into_owned(), number(&fields[3]), number(&fields[5]))
    };
    rows.iter().map(row).collect()
}

/// Sends `requests` until all are counted in one window, and returns the rows of HOTKEYS GET for
/// this window. A machine that stalls for a second loses the window; the requests are then sent
/// again.
fn in_one_window(client: &mut Client, requests: &[Vec<&str>]) -> Vec<(String, i64, i64)> {
    for _ in 0..20 {
        client.pipeline(requests).expect("they are answered");
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_secs(3) {
            let shown = rates(client);
            if !shown.is_empty() {
                return shown;
            }
        }
    }
    panic!("no window is shown");
}

#[test]
fn keys_are_shown_by_requests_per_second_of_the_last_window() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    let set = |client: &mut Client, top: &str| {
        let words = ["CONFIG", "SET", "hotkeys-sampling-percentage", "100", "hotkeys-top-k", top];
        assert!(!client.command(&words).is_error());
    };
    assert_eq!(client.command(&["HOTKEYS", "GET"]), Value::Null);
    set(&mut client, "2");
    assert!(rates(&mut client).is_empty(), "no window is over");
    // One transaction, so one window: missing keys count, OBJECT does not.
    client.command(&["SELECT", "3"]);
    let mut requests = vec![vec!["MULTI"]];
    requests.extend((0..300).map(|_| vec!["GET", "missing"]));
    requests.extend((0..200).map(|_| vec!["MGET", "b", "c"]));
    requests.extend((0..400).map(|_| vec!["OBJECT", "ENCODING", "shape"]));
    requests.extend([vec!["SET", "c", "1"], vec!["EXEC"]]);
    let shown = in_one_window(&mut client, &requests);
    let names: Vec<_> = shown.iter().map(|(key, db, _)| (key.as_str(), *db)).collect();
    assert_eq!(names, [("missing", 3), ("c", 3)], "{shown:?}");
    // The window takes a little over a second, unless the machine stalled.
    assert!((150..=300).contains(&shown[0].2) && (100..=201).contains(&shown[1].2), "{shown:?}");
    let Value::Bulk(info) = client.command(&["INFO", "hotkeys"]) else { panic!("a text") };
    assert!(String::from_utf8_lossy(&info).contains("hotkeys_last_window_samples:701\r\n"));
    // A session started by a client is shown instead, until it is reset.
    assert!(!client.command(&["HOTKEYS", "START", "METRICS", "1", "NET"]).is_error());
    assert_eq!(number(&report(&mut client)["tracking-active"]), 1);
    for word in ["STOP", "RESET"] {
        assert!(!client.command(&["HOTKEYS", word]).is_error());
    }
    assert!(rates(&mut client).is_empty());
    set(&mut client, "0");
    assert_eq!(client.command(&["HOTKEYS", "GET"]), Value::Null);
}

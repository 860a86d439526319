//! INFO compared with the list of Redis' fields, and the meaning of some fields.

use std::collections::BTreeMap;

use server::Server;
use testkit::{Client, Value};

use crate::support::connect;

/// Returns all fields of INFO by name.
fn fields(client: &mut Client) -> BTreeMap<String, String> {
    let text = client.command(&["INFO", "everything"]);
    let text = String::from_utf8_lossy(text.as_bytes().expect("INFO answers text")).into_owned();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn number(client: &mut Client, name: &str) -> f64 {
    let fields = fields(client);
    fields[name].parse().unwrap_or_else(|_| panic!("{name} is {}", fields[name]))
}

#[test]
fn every_field_of_redis_is_there_or_has_a_reason_why_not() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let fields = fields(&mut connect(&server));
    let list =
        include_str!("info_fields.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in list {
        if let Some((name, reason)) = line.split_once(" absent: ") {
            assert!(!fields.contains_key(name), "{name} is there, though {reason}");
        } else if let Some((name, value)) = line.split_once(" = ") {
            let (value, reason) = value.rsplit_once(": ").expect("a reason");
            assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}: {reason}");
        } else {
            assert!(fields.contains_key(line), "{line} is missing");
        }
    }
}

#[test]
fn turns_and_threads_are_timed() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut client = connect(&server);
    for _ in 0..50 {
        client.command(&["PING"]);
    }
    let cycles = number(&mut client, "eventloop_cycles");
    let (turns, running) =
        (number(&mut client, "eventloop_duration_sum"), number(&mut client, "eventloop_duration_cmd_sum"));
    assert!(cycles >= 50.0 && turns > 0.0 && running <= number(&mut client, "eventloop_duration_sum"));
    let (reads, writes) =
        (number(&mut client, "total_reads_processed"), number(&mut client, "total_writes_processed"));
    assert!(reads >= 50.0 && writes >= 50.0, "{reads} {writes}");
    let threads = fields(&mut client);
    for name in ["io_thread_0", "io_thread_1"] {
        let busy = threads[name].split(',').find_map(|part| part.strip_prefix("busy_usec="));
        assert!(
            busy.and_then(|usec| usec.parse::<u64>().ok()).is_some_and(|usec| usec > 0),
            "{}",
            threads[name]
        );
    }
}

#[test]
fn keys_that_clients_wait_for_are_counted_once() {
    let server = Server::builder().port(0).io_threads(2).start().expect("it starts");
    let mut client = connect(&server);
    client.command(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    let mut waiting: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    for (client, request) in
        waiting.iter_mut().zip(["BLPOP a b 0", "BLPOP a 0", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"])
    {
        client.send(format!("{request}\r\n").as_bytes()).expect("it is sent");
    }
    while number(&mut client, "blocked_clients") != 3.0 {
        std::thread::yield_now();
    }
    assert_eq!(number(&mut client, "total_blocking_keys"), 3.0);
    assert_eq!(number(&mut client, "total_blocking_keys_on_nokey"), 1.0);
    client.command(&["RPUSH", "a", "1", "2"]);
    client.command(&["DEL", "s"]);
    while number(&mut client, "blocked_clients") != 0.0 {
        std::thread::yield_now();
    }
    // A served client no longer counts as blocked; its own thread removes it from the queues of
    // its other keys later.
    for field in ["total_blocking_keys", "total_blocking_keys_on_nokey"] {
        while number(&mut client, field) != 0.0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn refused_passwords_are_counted() {
    let server =
        Server::builder().port(0).io_threads(1).option("requirepass", "right").start().expect("it starts");
    let mut client = connect(&server);
    assert!(matches!(client.command(&["AUTH", "wrong"]), Value::Error(_)));
    client.command(&["AUTH", "right"]);
    assert_eq!(number(&mut client, "acl_access_denied_auth"), 1.0);
}

#[test]
fn memory_figures_agree_with_each_other() {
    let server = Server::builder().port(0).io_threads(1).option("enable-debug-command", "yes").start();
    let server = server.expect("it starts");
    let mut client = connect(&server);
    client.command(&["DEBUG", "POPULATE", "20000", "key", "100"]);
    client.command(&["PEXPIRE", "key:1", "100000"]);
    let fields = fields(&mut client);
    let number = |name: &str| fields[name].parse::<f64>().expect("a number");
    assert_eq!(number("used_memory_overhead") + number("used_memory_dataset"), number("used_memory"));
    // Memory is counted for the process, which also runs servers of other tests. Only facts that
    // always hold are checked.
    assert!(number("used_memory_overhead") > 0.0);
    assert!(number("used_memory_rss") > number("allocator_resident"));
    assert!(number("allocator_resident") >= number("allocator_active"));
    let ttl = fields["db0"].split(',').find_map(|part| part.strip_prefix("avg_ttl=")).expect("it is there");
    assert!((1..=100_000).contains(&ttl.parse::<i64>().expect("a number")), "{}", fields["db0"]);
    let Value::Array(stats) = client.command(&["MEMORY", "STATS"]) else { panic!("not an array") };
    let names: Vec<String> = stats
        .iter()
        .step_by(2)
        .map(|name| String::from_utf8_lossy(name.as_bytes().expect("a name")).into_owned())
        .collect();
    let expected = include_str!("memory_stats_fields.txt").lines().filter(|line| !line.starts_with('#'));
    assert_eq!(names, expected.collect::<Vec<_>>());
}

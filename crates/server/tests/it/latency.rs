//! The times of commands that the server records: latency spikes, and commands that were blocked.

use server::Server;
use testkit::{Client, Value};

use crate::support::connect;

fn start() -> Server {
    Server::builder().port(0).io_threads(2).option("enable-debug-command", "yes").start().expect("it starts")
}

/// Returns the text after `name:` in the line of INFO that begins so; empty if there is no such
/// line.
fn info(client: &mut Client, section: &str, name: &str) -> String {
    let text = client.command(&["INFO", section]);
    let text = String::from_utf8_lossy(text.as_bytes().expect("INFO answers text")).into_owned();
    let prefix = format!("{name}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().to_owned()
}

#[test]
fn a_spike_is_in_the_latest_events_its_history_and_the_slow_log() {
    let server = start();
    let mut client = connect(&server);
    client.command(&["CONFIG", "SET", "latency-monitor-threshold", "5"]);
    client.command(&["DEBUG", "SLEEP", "0.006"]);
    client.command(&["CONFIG", "SET", "latency-monitor-threshold", "0"]);
    client.command(&["DEBUG", "SLEEP", "0.006"]);
    let history = client.command(&["LATENCY", "HISTORY", "command"]);
    let Value::Array(samples) = history else { panic!("{history:?}") };
    assert_eq!(samples.len(), 1);
    let Value::Array(latest) = client.command(&["LATENCY", "LATEST"]) else { panic!("not an array") };
    assert_eq!(latest.len(), 1, "no other event: {latest:?}");
    assert_eq!(client.command(&["LATENCY", "RESET"]), Value::Integer(1));
}

#[test]
fn a_spike_is_dated_when_it_ended() {
    let server = start();
    let mut client = connect(&server);
    client.command(&["CONFIG", "SET", "latency-monitor-threshold", "100"]);
    let integer = |value: &Value| match value {
        Value::Integer(number) => *number,
        Value::Bulk(digits) => String::from_utf8_lossy(digits).parse().expect("a number"),
        other => panic!("{other} is no number"),
    };
    let unix_s = |client: &mut Client| match client.command(&["TIME"]) {
        Value::Array(parts) => integer(&parts[0]),
        other => panic!("{other} is no time"),
    };
    let begun_s = unix_s(&mut client);
    client.command(&["DEBUG", "SLEEP", "1.1"]);
    let Value::Array(samples) = client.command(&["LATENCY", "HISTORY", "command"]) else {
        panic!("no array")
    };
    let Value::Array(sample) = &samples[0] else { panic!("no sample") };
    assert!(integer(&sample[0]) > begun_s, "a second has passed");
}

#[test]
fn a_command_that_waited_is_counted_and_logged_when_it_is_answered() {
    let server = start();
    let (mut client, mut waiting) = (connect(&server), connect(&server));
    client.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    waiting.send(b"BLPOP q r 0\r\n").expect("it is sent");
    while info(&mut client, "clients", "blocked_clients") != "1" {
        std::thread::yield_now();
    }
    assert_eq!(info(&mut client, "commandstats", "cmdstat_blpop"), "");
    client.command(&["SLOWLOG", "RESET"]);
    client.command(&["RPUSH", "q", "a"]);
    waiting.read().expect("it is served");
    assert!(info(&mut client, "commandstats", "cmdstat_blpop").starts_with("calls=1,"));
    let log = format!("{:?}", client.command(&["SLOWLOG", "GET", "-1"]));
    let expected = format!(
        "{:?}",
        Value::Array(
            ["BLPOP", "q", "r", "0"].iter().map(|word| Value::Bulk(word.as_bytes().to_vec())).collect()
        )
    );
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn end_to_end_times_count_every_answered_request_and_include_others_of_the_turn() {
    let server = start();
    let mut client = connect(&server);
    client.command(&["CONFIG", "RESETSTAT"]);
    // One turn: the reply to PING leaves when the sleep ends.
    let replies =
        client.pipeline(&[vec!["PING"], vec!["DEBUG", "SLEEP", "0.005"]]).expect("both are answered");
    assert_eq!(replies.len(), 2);
    client.command(&["MULTI"]);
    client.command(&["SET", "k", "v"]);
    client.command(&["EXEC"]);
    let calls = |value: Value| match value {
        Value::Array(parts) => parts.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        calls(client.command(&["LATENCY", "END-TO-END", "ping", "exec", "set"])),
        4,
        "SET was in EXEC"
    );
    assert_eq!(calls(client.command(&["LATENCY", "HISTOGRAM", "ping", "exec", "set"])), 6);
    let slowest = |text: String| -> f64 {
        let (_, last) = text.rsplit_once('=').expect("it has percentiles");
        last.parse().expect("a number")
    };
    let by_itself = slowest(info(&mut client, "latencystats", "latency_percentiles_usec_ping"));
    let end_to_end = slowest(info(&mut client, "latencystats", "latency_end_to_end_usec_ping"));
    assert!(end_to_end >= 5000.0 && by_itself < end_to_end, "{by_itself} {end_to_end}");
    client.command(&["CONFIG", "RESETSTAT"]);
    client.command(&["CONFIG", "SET", "latency-tracking", "no"]);
    client.command(&["PING"]);
    assert_eq!(calls(client.command(&["LATENCY", "END-TO-END", "ping"])), 0);
}

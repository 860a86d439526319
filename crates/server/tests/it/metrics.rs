//! The metrics endpoint beside INFO: what it says, in which form, and that it is off unless asked for.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use server::Server;
use testkit::{Client, Value};

use crate::support::connect;

/// A server with a metrics endpoint, and the endpoint's port. The port was free a moment ago, and somebody
/// else may take it: then another is tried.
fn start() -> (Server, u16) {
    for _ in 0..16 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let builder = Server::builder().port(0).io_threads(2).option("metrics-port", &port.to_string());
        if let Ok(server) = builder.start() {
            return (server, port);
        }
    }
    panic!("no port stays free");
}

fn scrape(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the endpoint listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: saker\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, page) = text.split_once("\r\n\r\n").expect("a head and a page");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    page.to_owned()
}

fn info(client: &mut Client) -> String {
    let info = client.command(&["INFO", "everything"]);
    String::from_utf8_lossy(info.as_bytes().expect("INFO answers text")).into_owned()
}

#[test]
fn a_scrape_has_the_numbers_of_info() {
    let (server, port) = start();
    let mut client = connect(&server);
    assert_eq!(client.command(&["SET", "k", "v"]), Value::Simple(b"OK".to_vec()));
    assert_eq!(client.command(&["GET", "none"]), client.command(&["GET", "none"]));
    assert!(matches!(client.command(&["INCR", "k"]), Value::Error(_)));
    let info = info(&mut client);
    let page = scrape(port);
    for line in [
        "saker_command_calls_total{command=\"get\"} 2",
        "saker_command_end_to_end_seconds_count{command=\"get\"} 2",
        "saker_command_end_to_end_seconds_bucket{command=\"get\",le=\"+Inf\"} 2",
        "saker_command_seconds_count{command=\"get\"} 2",
        "saker_command_failed_calls_total{command=\"incr\"} 1",
        "saker_errors_total{code=\"ERR\"} 1",
        "saker_db_keys{db=\"0\"} 1",
        "saker_keyspace_misses_total 2",
        "saker_connected_clients 1",
        "saker_maxclients ",
        "saker_io_thread_clients{thread=\"1\"}",
        "saker_thread_cpu_seconds_total{thread=\"io-0\"}",
        "saker_info{",
    ] {
        assert!(page.lines().any(|series| series.starts_with(line)), "no {line} in\n{page}");
    }
    // Every plain number of INFO is there, under its name or that of a counter.
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        let is_number =
            value.parse::<i64>().is_ok() && !name.contains("git_sha1") && !name.contains("replid");
        let short = name.strip_prefix("total_").unwrap_or(name);
        let named = [format!("saker_{name}"), format!("saker_{short}_total"), format!("saker_{name}_total")];
        let has = page
            .lines()
            .any(|line| line.split([' ', '{']).next().is_some_and(|name| named.iter().any(|n| n == name)));
        assert!(!is_number || has, "INFO's {name} is not in the page");
    }
}

#[test]
fn a_scrape_is_well_formed() {
    let (server, port) = start();
    let mut client = connect(&server);
    client.command(&["PING"]);
    let page = scrape(port);
    assert!(page.ends_with("\n# EOF\n"), "{page}");
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    let mut family = String::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap_or_default().to_owned();
            assert!(families.insert(family.clone()), "{family} comes twice");
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.starts_with(&format!("{family} ")), "{line} is not below its type");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            assert!(name.starts_with(&family), "{line} is not of {family}");
            assert!(value.parse::<f64>().is_ok(), "{line} has no number");
            assert!(series.insert(name.to_owned()), "{name} comes twice");
        }
    }
}

#[test]
fn a_taken_port_is_an_error_at_the_start() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    assert!(Server::builder().port(0).option("metrics-port", &port).start().is_err());
}

//! The metrics endpoint beside INFO: what it says, in which form, and that it is off unless asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

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

/// A metric family as it is announced.
struct Family {
    name: String,
    kind: String,
    has_help: bool,
}

/// Whether text is the name of a metric or, without a colon, of a label.
fn is_name(text: &str, may_have_colon: bool) -> bool {
    let fits = |at: usize, letter: char| {
        letter.is_ascii_alphabetic()
            || letter == '_'
            || (letter == ':' && may_have_colon)
            || (letter.is_ascii_digit() && at > 0)
    };
    !text.is_empty() && text.chars().enumerate().all(|(at, letter)| fits(at, letter))
}

/// The labels between the braces of a series, undone of their escapes.
fn labels(text: &str) -> Vec<(String, String)> {
    let (mut labels, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("a name and a quoted value");
        assert!(is_name(name, false), "{name} in {text}");
        let (mut plain, mut letters) = (String::new(), value.char_indices());
        let end = loop {
            match letters.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => match letters.next().expect("something is escaped").1 {
                    'n' => plain.push('\n'),
                    letter @ ('"' | '\\') => plain.push(letter),
                    other => panic!("\\{other} in {text}"),
                },
                (_, letter) => plain.push(letter),
            }
        };
        labels.push((name.to_owned(), plain));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let names: BTreeSet<&String> = labels.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), labels.len(), "a label comes twice in {text}");
    labels
}

/// What may stand behind the family's name in the names of its series.
fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "gauge" => &[""],
        "counter" => &["_total"],
        "summary" => &["", "_count", "_sum"],
        "histogram" => &["_bucket", "_count", "_sum"],
        "info" => &["_info"],
        other => panic!("no such type: {other}"),
    }
}

/// Checks a page against OpenMetrics 1.0, as strictly as a scraper may; gives the number of its series.
fn check_page(page: &str) -> usize {
    let body = page.strip_suffix("# EOF\n").expect("the end is marked");
    assert!(body.ends_with('\n') && !body.contains("# EOF"), "and nothing is behind it");
    let (mut families, mut names, mut series) = (Vec::<Family>::new(), BTreeSet::new(), BTreeSet::new());
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(is_name(name, true), "{line}");
            for suffix in suffixes(kind) {
                assert!(names.insert(format!("{name}{suffix}")), "{name}{suffix} comes twice");
            }
            families.push(Family { name: name.to_owned(), kind: kind.to_owned(), has_help: false });
            continue;
        }
        let family = families.last_mut().expect("a family is announced before its series");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert_eq!(rest.split_once(' ').expect("a name and a text").0, family.name);
            assert!(!std::mem::replace(&mut family.has_help, true), "{line} is not the first");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a series and a value");
        let (name, text) = match sample.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').expect("a closing brace")),
            None => (sample, ""),
        };
        let suffix = name.strip_prefix(&*family.name).filter(|end| suffixes(&family.kind).contains(end));
        assert!(family.has_help && suffix.is_some(), "{line} is not of {}", family.name);
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line} has no number"));
        assert!(value.is_finite() && (value >= 0.0 || family.kind == "gauge"), "{line}");
        let mut labels = labels(text);
        labels.sort_unstable();
        assert!(series.insert(format!("{name} {labels:?}")), "{line} comes twice");
        if suffix == Some("_bucket") {
            let at = labels.iter().position(|(name, _)| name == "le").expect("a limit");
            let limit = labels.remove(at).1.parse().expect("a limit is a number");
            buckets.entry(format!("{} {labels:?}", family.name)).or_default().push((limit, value));
        } else if suffix == Some("_count") && family.kind == "histogram" {
            let last = buckets[&format!("{} {labels:?}", family.name)].last().copied();
            assert_eq!(last, Some((f64::INFINITY, value)), "{line}: as many as are in the last bucket");
        }
    }
    for (name, buckets) in buckets {
        let grows = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(grows), "{name}: {buckets:?}");
    }
    series.len()
}

#[test]
fn a_scrape_is_well_formed_whatever_clients_do() {
    let (server, port) = start();
    let mut client = connect(&server);
    client.command(&["CONFIG", "SET", "hotkeys-top-k", "3"]);
    let before = check_page(&scrape(port));
    for words in [
        &["SET", "k", "v"][..],
        &["LPUSH", "k", "v"],
        &["LPUSH", "l", "v"],
        &["CONFIG", "GET", "x"],
        &["no\"such\\command\n", "{le=\"1\"} 5\n# EOF\n"],
        &["CLIENT", "SETNAME", "a\"b\\c"],
        &["SELECT", "3"],
        &["SADD", "s", "m"],
        &["EVAL", "return redis.error_reply('My\"Err\\ x')", "0"],
        &["CONFIG", "SET", "latency-monitor-threshold", "1"],
        &["DEBUG", "SLEEP", "0.002"],
        &["GET", "none"],
    ] {
        client.command(words);
    }
    // A page is given out for a tenth of a second.
    let begun = Instant::now();
    while check_page(&scrape(port)) <= before {
        assert!(begun.elapsed() < Duration::from_secs(10), "what clients did is not in the page");
    }
}

#[test]
fn a_taken_port_is_an_error_at_the_start() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    assert!(Server::builder().port(0).option("metrics-port", &port).start().is_err());
}

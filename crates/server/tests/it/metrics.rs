//! The metrics endpoint compared with INFO: its contents and format; it is off by default.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use commands::table::Arity;
use server::metrics::catalog;
use server::{Builder, Server};
use testkit::{Client, Value};

use crate::support::connect;

/// Starts a server with a metrics endpoint; returns it with the endpoint's port. Tries another port
/// if another process takes the chosen one.
pub fn start() -> (Server, u16) {
    start_with(|builder| builder)
}

/// Starts a server with a metrics endpoint and its data in `folder`; returns it with the endpoint's
/// port.
pub fn start_in(folder: &Path) -> (Server, u16) {
    start_with(|builder| builder.data_folder(folder).option("enable-protected-configs", "yes"))
}

fn start_with(prepare: impl Fn(Builder) -> Builder) -> (Server, u16) {
    for _ in 0..16 {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let builder = Server::builder().port(0).io_threads(2).option("metrics-port", &port.to_string());
        if let Ok(server) = prepare(builder).start() {
            return (server, port);
        }
    }
    panic!("no port stays free");
}

/// The format of a page, the body of the endpoint's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    OpenMetrics,
}

/// Returns the head and the body of the response to a request with these headers.
fn ask(port: u16, headers: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the endpoint listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: saker\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head and a page");
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head is text");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    (head, answer[end + 4..].to_vec())
}

/// Returns the endpoint's page of metrics in the default format.
pub fn scrape(port: u16) -> String {
    String::from_utf8(ask(port, "").1).expect("a page is text")
}

/// Returns the endpoint's page of metrics in `format`.
fn scrape_as(port: u16, format: Format) -> String {
    let (accept, kind) = match format {
        Format::Text => ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        Format::OpenMetrics => (
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    };
    let (head, page) = ask(port, &format!("Accept: {accept}\r\n"));
    assert!(head.contains(&format!("Content-Type: {kind}\r\n")), "{head}");
    String::from_utf8(page).expect("a page is text")
}

/// Requests the page until `is_there` returns true for it, and returns this page. A page is cached
/// for a tenth of a second, so it may be older than the caller's last action.
pub fn scrape_until(port: u16, is_there: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let page = scrape(port);
        if is_there(&page) {
            return page;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "what clients did is not in the page:\n{page}");
    }
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
    let page = scrape(port);
    for line in [
        "saker_command_calls_total{command=\"get\"} 2",
        "saker_request_seconds_count 4",
        "saker_request_seconds_bucket{le=\"0.00001\"} ",
        "saker_request_seconds_bucket{le=\"10.0\"} 4",
        "saker_command_failed_calls_total{command=\"incr\"} 1",
        "saker_errors_total{code=\"ERR\"} 1",
        "saker_db_keys{db=\"0\"} 1",
        "saker_keyspace_misses_total 2",
        "saker_connected_clients 1",
        "saker_maxclients ",
        "saker_start_time_seconds ",
        "saker_open_fds ",
        "saker_io_thread_clients{thread=\"1\"}",
        "saker_thread_cpu_seconds_total{thread=\"io-0\"}",
        "saker_info{",
    ] {
        assert!(page.lines().any(|series| series.starts_with(line)), "no {line} in\n{page}");
    }
}

#[test]
fn every_number_of_info_is_a_metric_or_left_out_for_a_reason() {
    let (server, port) = start();
    let page = scrape(port);
    let names: BTreeSet<&str> = page.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    let left_out: BTreeSet<&str> =
        catalog::LEFT_OUT.iter().flat_map(|(_, fields)| *fields).copied().collect();
    let info = info(&mut connect(&server));
    let fields: Vec<(&str, &str)> = info.lines().filter_map(|line| line.split_once(':')).collect();
    for (field, value) in &fields {
        let known = catalog::FIELDS.iter().find(|known| known.info == *field);
        if let Some(known) = known {
            // A time of -1 means that there is none yet: it has no sample.
            assert!(
                *value == "-1" || names.contains(&*known.metric.query_name()),
                "{} is not in the page",
                known.metric.name
            );
        } else if value.parse::<f64>().is_ok() && !catalog::INFO.labels.contains(field) {
            assert!(left_out.contains(field), "INFO's {field}:{value} is new: add it to metrics/catalog.rs");
        }
    }
    let gone = |field: &&str| !fields.iter().any(|(name, _)| name == field);
    let known = catalog::FIELDS.iter().map(|known| known.info);
    let gone: Vec<&str> = known.chain(left_out.iter().copied()).filter(gone).collect();
    assert_eq!(gone, Vec::<&str>::new(), "the catalog has fields that INFO does not have");
}

#[test]
fn saves_are_seen_in_a_scrape() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (server, port) = start_in(folder.path());
    let mut client = connect(&server);
    let value = |page: &str, name: &str| -> Option<f64> {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("saker_{name} ")));
        line.map(|value| value.parse().expect("a number"))
    };
    let page = scrape(port);
    assert_eq!(value(&page, "rdb_last_bgsave_seconds"), None, "there was no save yet");
    assert_eq!(
        value(&page, "rdb_last_save_time_seconds"),
        value(&page, "start_time_seconds").map(f64::floor)
    );
    for (name, at_first) in [
        ("rdb_saves_total", 0.0),
        ("rdb_last_bgsave_success", 1.0),
        ("rdb_bgsave_in_progress", 0.0),
        ("loading", 0.0),
        ("rdb_last_load_keys_loaded", 0.0),
    ] {
        assert_eq!(value(&page, name), Some(at_first), "{name}");
    }
    assert!(!page.contains("saker_loading_total_bytes"), "nothing is loaded");
    client.command(&["SET", "k", "v"]);
    client.command(&["BGSAVE"]);
    let page = scrape_until(port, |page| value(page, "rdb_last_bgsave_seconds").is_some());
    assert_eq!(value(&page, "rdb_saves_total"), Some(1.0));
    assert_eq!(value(&page, "rdb_changes_since_last_save"), Some(0.0));
    // A folder cannot be replaced by a file.
    std::fs::create_dir(folder.path().join("folder")).expect("created");
    assert_eq!(client.command(&["CONFIG", "SET", "dbfilename", "folder"]).to_string(), "OK");
    client.command(&["BGSAVE"]);
    let page = scrape_until(port, |page| value(page, "rdb_last_bgsave_success") == Some(0.0));
    assert_eq!(value(&page, "rdb_saves_total"), Some(1.0));
}

/// Runs `count` different commands that are safe for a test with any arguments. Commands that fail
/// count too.
fn run_many_commands(client: &mut Client, count: usize) {
    let never = [
        "shutdown",
        "subscribe",
        "psubscribe",
        "ssubscribe",
        "monitor",
        "quit",
        "debug",
        "migrate",
        "auth",
        "sync",
        "psync",
        "replicaof",
        "slaveof",
        "failover",
    ];
    let waits =
        |name: &str| name.starts_with('b') || ["wait", "waitaof", "multi", "reset", "hello"].contains(&name);
    let table = server::commands::table().0;
    let mut names: Vec<&str> = table.iter().map(|command| command.full_name).collect();
    // Always the same commands, SET included.
    names.sort_unstable_by_key(|name| (*name != "set", *name));
    let fit = names.iter().filter(|name| !never.contains(name) && !waits(name) && !name.contains('|'));
    let mut ran = 0;
    for name in fit {
        // The arguments fit the command's arity; they may be meaningless.
        let words: Vec<&str> = std::iter::once(*name).chain(std::iter::repeat_n("1", 8)).collect();
        let arity = table.find(name.as_bytes()).expect("it exists").command.arity;
        let len = match arity {
            Arity::Exactly(len) => usize::from(len),
            Arity::AtLeast(len) => usize::from(len).max(2),
        };
        client.command(&words[..len.min(words.len())]);
        ran += 1;
        if ran == count {
            return;
        }
    }
    panic!("only {ran} commands");
}

#[test]
fn a_page_stays_small_however_many_commands_were_run() {
    // SAVE and BGSAVE are among them.
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (server, port) = start_in(folder.path());
    let mut client = connect(&server);
    run_many_commands(&mut client, 124);
    let samples = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
    let with = |word: &str| format!("saker_{word}{{command=\"set\"");
    let has = |page: &str, word: &str| page.contains(&with(word));
    let calls = "command_calls_total";
    let page = scrape_until(port, |page| page.matches("saker_command_calls_total{").count() >= 124);
    println!("counters: {} samples, {} bytes", samples(&page), page.len());
    assert!(
        samples(&page) < 1500 && page.len() < 120_000,
        "{} samples, {} bytes",
        samples(&page),
        page.len()
    );
    assert!(
        has(&page, calls) && !has(&page, "command_latency_seconds") && !has(&page, "command_seconds_count")
    );
    let packed = ask(port, "Accept-Encoding: gzip\r\n").1;
    println!("counters, gzip: {} bytes", packed.len());
    assert!(packed.len() < 20_000, "{} bytes compressed", packed.len());

    for (value, wanted) in [
        ("histograms", &[calls, "command_seconds_bucket", "command_seconds_count"][..]),
        ("percentiles", &[calls, "command_latency_seconds"]),
        ("no", &[]),
    ] {
        client.command(&["CONFIG", "SET", "metrics-per-command", value]);
        let others = [calls, "command_seconds_bucket", "command_seconds_count", "command_latency_seconds"];
        let fits = |page: &str| others.iter().all(|word| has(page, word) == wanted.contains(word));
        let page = scrape_until(port, fits);
        println!("{value}: {} samples, {} bytes", samples(&page), page.len());
        assert_eq!(page.contains("quantile=\"0.999\""), value == "percentiles");
        check_page(&page, Format::Text);
    }
}

#[test]
fn the_form_is_what_the_scraper_asks_for() {
    let (_server, port) = start();
    let (head, packed) = ask(port, "Accept-Encoding: deflate;q=0.9, gzip;q=0.5\r\n");
    assert!(head.contains("Content-Encoding: gzip\r\n"), "{head}");
    let mut page = String::new();
    flate2::read::GzDecoder::new(&*packed).read_to_string(&mut page).expect("it is gzip");
    check_page(&page, Format::Text);
    let both = "Accept: text/plain;q=0.4, application/openmetrics-text;q=0.5\r\n";
    let (head, page) = ask(port, &format!("{both}Accept-Encoding: gzip;q=0\r\n"));
    assert!(!head.contains("Content-Encoding"), "{head}");
    check_page(std::str::from_utf8(&page).expect("text"), Format::OpenMetrics);
}

/// A metric family, as its TYPE line announces it.
struct Family {
    name: String,
    kind: String,
    has_help: bool,
}

/// Returns true if `text` is a valid name of a metric or, without a colon, of a label.
fn is_name(text: &str, may_have_colon: bool) -> bool {
    let fits = |at: usize, letter: char| {
        letter.is_ascii_alphabetic()
            || letter == '_'
            || (letter == ':' && may_have_colon)
            || (letter.is_ascii_digit() && at > 0)
    };
    !text.is_empty() && text.chars().enumerate().all(|(at, letter)| fits(at, letter))
}

/// Parses the labels between the braces of a series; unescapes their values.
pub fn labels(text: &str) -> Vec<(String, String)> {
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

/// Returns the suffixes that the names of series in a family of this type may have.
fn suffixes(kind: &str, format: Format) -> &'static [&'static str] {
    match (kind, format) {
        ("gauge", _) | ("counter", Format::Text) => &[""],
        ("counter", Format::OpenMetrics) => &["_total"],
        ("summary", _) => &["", "_count", "_sum"],
        ("histogram", _) => &["_bucket", "_count", "_sum"],
        ("info", Format::OpenMetrics) => &["_info"],
        (other, _) => panic!("no such type: {other}"),
    }
}

/// Parses a family's TYPE line. Checks that its name is new and has an ending that fits its type.
fn announced(rest: &str, format: Format, names: &mut BTreeSet<String>) -> Family {
    let (name, kind) = rest.split_once(' ').expect("a name and a type");
    assert!(is_name(name, true), "{rest}");
    for suffix in suffixes(kind, format) {
        assert!(names.insert(format!("{name}{suffix}")), "{name}{suffix} comes twice");
    }
    // A counter's samples end in `_total` in both formats, others do not.
    let is_text_counter = kind == "counter" && format == Format::Text;
    assert_eq!(name.ends_with("_total"), is_text_counter, "{rest}");
    Family { name: name.to_owned(), kind: kind.to_owned(), has_help: false }
}

/// Checks a page against OpenMetrics 1.0 or the text format 0.0.4, as strictly as a scraper may.
/// Returns the number of its series.
fn check_page(page: &str, format: Format) -> usize {
    let body = match format {
        Format::Text => page,
        Format::OpenMetrics => page.strip_suffix("# EOF\n").expect("the end is marked"),
    };
    assert!(body.ends_with('\n') && !body.lines().any(|line| line == "# EOF"), "and nothing is behind it");
    let (mut families, mut names, mut series) = (Vec::<Family>::new(), BTreeSet::new(), BTreeSet::new());
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            families.push(announced(rest, format, &mut names));
            continue;
        }
        let family = families.last_mut().expect("a family is announced before its series");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert_eq!(rest.split_once(' ').expect("a name and a text").0, family.name);
            assert!(!std::mem::replace(&mut family.has_help, true), "{line} is not the first");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a name and a unit");
            assert_eq!((name, format), (&*family.name, Format::OpenMetrics), "{line}");
            assert!(name.ends_with(&format!("_{unit}")) && family.kind != "info", "{line}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a series and a value");
        let (name, text) = match sample.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').expect("a closing brace")),
            None => (sample, ""),
        };
        let suffix =
            name.strip_prefix(&*family.name).filter(|end| suffixes(&family.kind, format).contains(end));
        assert!(family.has_help && suffix.is_some(), "{line} is not of {}", family.name);
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line} has no number"));
        assert!(value.is_finite() && (value >= 0.0 || family.kind == "gauge"), "{line}");
        let mut labels = labels(text);
        labels.sort_unstable();
        assert!(series.insert(format!("{name} {labels:?}")), "{line} comes twice");
        if suffix == Some("_bucket") {
            let at = labels.iter().position(|(name, _)| name == "le").expect("a limit");
            let limit = labels.remove(at).1;
            assert!(limit == "+Inf" || limit.contains('.'), "{line}: OpenMetrics wants a point");
            let limit = limit.parse().expect("a limit is a number");
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
    client.command(&["CONFIG", "SET", "metrics-per-command", "histograms"]);
    let before = check_page(&scrape(port), Format::Text);
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
    scrape_until(port, |page| {
        check_page(page, Format::Text) > before && page.contains("command_seconds_bucket")
    });
    let open_metrics = scrape_as(port, Format::OpenMetrics);
    assert!(check_page(&open_metrics, Format::OpenMetrics) > before);
    client.command(&["CONFIG", "SET", "metrics-per-command", "percentiles"]);
    scrape_until(port, |page| check_page(page, Format::Text) > before && page.contains("quantile="));
    // Both formats have the same samples.
    let samples = |page: &str| -> BTreeSet<String> {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
    };
    let both = [Format::Text, Format::OpenMetrics].map(|format| samples(&scrape_as(port, format)));
    assert_eq!(both[0], both[1]);
    for format in [Format::Text, Format::OpenMetrics] {
        check_page(&scrape_as(port, format), format);
    }
}

#[test]
fn a_taken_port_is_an_error_at_the_start() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = taken.local_addr().expect("bound").port().to_string();
    assert!(Server::builder().port(0).option("metrics-port", &port).start().is_err());
}

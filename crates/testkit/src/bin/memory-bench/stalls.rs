//! Stalls: the longest wait of a client that reads one key, while another makes a value of millions of
//! elements grow and go, for each type and each way to go.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use testkit::{Client, Value};

use crate::{Servers, info, set_option};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Elements of the value.
    #[arg(long, default_value_t = 1_000_000)]
    elements: usize,
    /// Ways to go to try, by their names in the table; all of them if none is given.
    #[arg(long, value_delimiter = ',')]
    ways: Vec<String>,
    /// Types to try.
    #[arg(long, value_delimiter = ',', default_value = "set,hash,zset,list")]
    types: Vec<String>,
}

/// Elements added by one request: its own time is no stall of the server's.
const ELEMENTS_PER_REQUEST: usize = 10;
/// Requests sent together while the value grows.
const BATCH: usize = 10;
/// Elements of each of the small values that are written with as many elements as the big one: what the load
/// alone does.
const SMALL: usize = 1000;
/// How long the reader goes on after a value is gone: freeing it in the background may disturb, too.
const AFTERMATH: Duration = Duration::from_millis(1500);

/// What makes the value go, each with its requests.
const WAYS: &[(&str, &[&[&str]])] = &[
    ("deleted", &[&["DEL", "big"]]),
    ("unlinked", &[&["UNLINK", "big"]]),
    ("expired", &[&["PEXPIRE", "big", "1"]]),
    ("overwritten", &[&["SET", "big", "x"], &["DEL", "big"]]),
    ("renamed over", &[&["SET", "other", "x"], &["RENAME", "other", "big"], &["DEL", "big"]]),
    ("flushed", &[&["FLUSHALL"], &["SET", "small", "value"]]),
    ("evicted", &[]),
];

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let names = options.servers.names();
    let mut rows = Vec::new();
    for kind in &options.types {
        let mut columns = Vec::new();
        for name in &names {
            columns.push(measure(options, name, kind)?);
        }
        for (at, (event, _)) in columns[0].iter().enumerate() {
            let waits = columns.iter().map(|column| format!("{:.2}", column[at].1));
            rows.push(format!("| {kind} | {event} | {} |", waits.collect::<Vec<_>>().join(" | ")));
        }
    }
    println!("| {} elements | while it is | {} |", options.elements, names.join(" | "));
    println!("|---|---|{}", "--:|".repeat(names.len()));
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// The longest waits in milliseconds, by event.
fn measure(options: &Options, name: &str, kind: &str) -> Result<Vec<(String, f64)>, Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut client = server.connect();
    client.set_read_timeout(Duration::from_secs(120));
    client.request(&["SET", "small", "value"])?;
    let (stop, longest_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut reader = server.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let started = Instant::now();
                if reader.request(&["GET", "small"]).is_err() {
                    return;
                }
                longest_ns.fetch_max(started.elapsed().as_nanos() as u64, Relaxed);
            }
        });
        let wanted = |way: &str| options.ways.is_empty() || options.ways.iter().any(|wanted| wanted == way);
        let take = || longest_ns.swap(0, Relaxed) as f64 / 1e6;
        let result = (|| {
            let mut waits: Vec<(String, f64)> = Vec::new();
            std::thread::sleep(AFTERMATH);
            waits.push(("idle".into(), take()));
            fill(&mut client, kind, options.elements, SMALL)?;
            waits.push(("growing as many small ones".into(), take()));
            client.request(&["FLUSHALL"])?;
            client.request(&["SET", "small", "value"])?;
            std::thread::sleep(AFTERMATH);
            for (number, (way, requests)) in WAYS.iter().filter(|(way, _)| wanted(way)).enumerate() {
                take();
                fill(&mut client, kind, options.elements, options.elements)?;
                let grown = take();
                if number == 0 {
                    waits.push(("growing".into(), grown));
                }
                if requests.is_empty() {
                    evict(&mut client)?;
                }
                for request in *requests {
                    let reply = client.request(request)?;
                    if matches!(reply, Value::Error(_)) {
                        return Err(format!("{request:?}: {reply:?}").into());
                    }
                }
                std::thread::sleep(AFTERMATH);
                waits.push(((*way).to_owned(), take()));
            }
            if wanted("shrinking") {
                take();
                fill(&mut client, kind, options.elements, options.elements)?;
                take();
                shrink(&mut client, kind, options.elements)?;
                waits.push(("shrinking".into(), take()));
            }
            Ok(waits)
        })();
        stop.store(true, Relaxed);
        result
    })
}

/// Has the value evicted by lowering the limit below what is used.
fn evict(client: &mut Client) -> Result<(), Box<dyn Error>> {
    client.request(&["PEXPIRE", "big", "100000000"])?;
    let used = info(client, "memory", "used_memory")?;
    set_option(client, "maxmemory-policy", "volatile-ttl")?;
    set_option(client, "maxmemory", &(used - 1_000_000).to_string())?;
    std::thread::sleep(AFTERMATH);
    set_option(client, "maxmemory", "0")
}

/// Writes so many elements, each `per_key` of them to a key of their own: the first is `big`.
fn fill(client: &mut Client, kind: &str, elements: usize, per_key: usize) -> Result<(), Box<dyn Error>> {
    let mut next = 0;
    while next < elements {
        let requests: Vec<Vec<String>> = (0..BATCH)
            .map(|_| {
                let range = next..(next + ELEMENTS_PER_REQUEST).min(elements);
                next = range.end;
                let (verb, with_number, with_value) = match kind {
                    "set" => ("SADD", false, false),
                    "hash" => ("HSET", false, true),
                    "zset" => ("ZADD", true, false),
                    _ => ("RPUSH", false, false),
                };
                let key = match range.start / per_key {
                    0 => "big".to_owned(),
                    number => format!("small:{number}"),
                };
                let mut request = vec![verb.to_owned(), key];
                for n in range {
                    // Scores in no order, as the members' names.
                    let scattered = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
                    request.extend(with_number.then(|| scattered.to_string()));
                    request.push(format!("element:{n}"));
                    request.extend(with_value.then(|| "value".to_owned()));
                }
                request
            })
            .filter(|request| request.len() > 2)
            .collect();
        client.pipeline(&requests)?;
    }
    Ok(())
}

/// Takes the elements away a few at a time.
fn shrink(client: &mut Client, kind: &str, elements: usize) -> Result<(), Box<dyn Error>> {
    let verb = match kind {
        "set" => "SPOP",
        "hash" => "HDEL",
        "zset" => "ZPOPMIN",
        _ => "LPOP",
    };
    let request = |first: usize| -> Vec<String> {
        let mut request = vec![verb.to_owned(), "big".to_owned()];
        match kind {
            "hash" => request.extend((first..first + ELEMENTS_PER_REQUEST).map(|n| format!("element:{n}"))),
            _ => request.push(ELEMENTS_PER_REQUEST.to_string()),
        }
        request
    };
    for batch in 0..elements.div_ceil(BATCH * ELEMENTS_PER_REQUEST) {
        let requests: Vec<_> =
            (0..BATCH).map(|at| request((batch * BATCH + at) * ELEMENTS_PER_REQUEST)).collect();
        client.pipeline(&requests)?;
    }
    Ok(())
}

//! The loads that keep a server busy while the probe measures its latency. A *hog* is a client that
//! sends the same pipeline again and again.

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resp::encode_request;
use testkit::{Client, ServerProcess, Value};

use crate::{Figures, probe};

/// Time for which a load keeps the server busy before the probe's measurement starts.
const WARM_UP: Duration = Duration::from_millis(500);
/// Number of keys of the load `expire`, which all expire within one second.
const EXPIRING: usize = 6_000_000;
/// Maximum time until a server has removed all [`EXPIRING`] keys.
const EXPIRED_WITHIN: Duration = Duration::from_secs(120);
/// Number of clients of the load `trackers`. Each enables client tracking and reads one key.
const MANY: usize = 10_000;

/// Runs the load called `name` against `server`, and measures the latency of the probe meanwhile.
pub fn run(
    name: &str,
    server: &ServerProcess,
    time: Duration,
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let numbers = |range: std::ops::Range<usize>| range.map(|number| number.to_string()).collect::<Vec<_>>();
    let mut control = server.connect();
    control.set_read_timeout(Duration::from_secs(300));
    match name {
        "none" => hogs(server, time, figures, &[]),
        "hog" | "2-hogs" | "4-hogs" => {
            let hogs_count = name.split_once('-').map_or(Ok(1), |(count, _)| count.parse())?;
            let pipelines: Vec<Vec<u8>> = (0..hogs_count).map(sets).collect();
            hogs(server, time, figures, &pipelines);
        }
        "sintercard" => {
            for key in ["{s}a", "{s}b"] {
                fill(&mut control, "SADD", key, &numbers(0..100_000))?;
            }
            hogs(server, time, figures, &[repeated(&["SINTERCARD", "2", "{s}a", "{s}b"], 100)]);
        }
        "keys" => {
            control.command(&["DEBUG", "POPULATE", "2000000"]);
            hogs(server, time, figures, &[repeated(&["KEYS", "nothing"], 20)]);
        }
        "lrange" => {
            fill(&mut control, "RPUSH", "list", &numbers(0..100_000))?;
            hogs(server, time, figures, &[repeated(&["LRANGE", "list", "0", "-1"], 20)]);
        }
        "sunionstore" => {
            fill(&mut control, "SADD", "{s}a", &numbers(0..500_000))?;
            fill(&mut control, "SADD", "{s}b", &numbers(500_000..1_000_000))?;
            hogs(server, time, figures, &[repeated(&["SUNIONSTORE", "{s}c", "{s}a", "{s}b"], 4)]);
        }
        "expire" => expire(server, &mut control, figures)?,
        "trackers" => trackers(server, &mut control, figures)?,
        other => return Err(format!("no load is called {other}").into()),
    }
    Ok(())
}

/// Returns a pipeline of 20,000 SETs for the client (hog) with index `index`. Each such client
/// writes its own keys.
fn sets(index: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..20_000 {
        encode_request(&["SET", &format!("hog:{index}:{}", number % 1000), "value"], &mut bytes);
    }
    bytes
}

fn repeated(words: &[&str], count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|_| encode_request(words, &mut bytes));
    bytes
}

fn fill(control: &mut Client, verb: &str, key: &str, values: &[String]) -> Result<(), Box<dyn Error>> {
    for values in values.chunks(1000) {
        let words: Vec<&str> = [verb, key].into_iter().chain(values.iter().map(String::as_str)).collect();
        control.request(&words)?;
    }
    Ok(())
}

/// Starts one client per pipeline, which sends it again and again and reads all replies. Meanwhile,
/// for `time`, measures the latency of the probe.
fn hogs(server: &ServerProcess, time: Duration, figures: &mut Figures, pipelines: &[Vec<u8>]) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for pipeline in pipelines {
            scope.spawn(|| hog(server, pipeline, &is_over));
        }
        thread::sleep(WARM_UP);
        scope.spawn(|| {
            thread::sleep(time);
            is_over.store(true, Relaxed);
        });
        probe(server, &is_over, figures);
    });
}

/// Sends a pipeline again and again as one client, until `is_over` is set. Reads the replies
/// without checking them.
fn hog(server: &ServerProcess, pipeline: &[u8], is_over: &AtomicBool) {
    let mut writer = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
    let mut reader = writer.try_clone().expect("a descriptor is left");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut replies = vec![0; 1 << 20];
            while reader.read(&mut replies).is_ok_and(|len| len > 0) {}
        });
        while !is_over.load(Relaxed) && writer.write_all(pipeline).is_ok() {}
        // Some servers need a long time to finish the requests already sent. The client does not
        // wait.
        let _ = writer.shutdown(std::net::Shutdown::Both);
    });
}

fn unix_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Sets keys that all expire within the same second. Measures the latency of the probe from the
/// expiry of the first key until all keys are removed, at most for `EXPIRED_WITHIN`.
fn expire(server: &ServerProcess, control: &mut Client, figures: &mut Figures) -> Result<(), Box<dyn Error>> {
    // Every server loads the keys in less than a minute.
    let due_ms = unix_ms() + 60_000;
    for first in (0..EXPIRING).step_by(10_000) {
        let mut bytes = Vec::new();
        for number in first..first + 10_000 {
            let at = (due_ms + (number % 1000) as u128).to_string();
            encode_request(&["SET", &format!("key:{number}"), "value", "PXAT", &at], &mut bytes);
        }
        control.send(&bytes)?;
        control.read_many(10_000)?;
    }
    assert!(unix_ms() < due_ms, "loading took too long");
    thread::sleep(Duration::from_millis((due_ms - unix_ms()) as u64));
    let is_over = AtomicBool::new(false);
    let gone_s = thread::scope(|scope| {
        let waited = scope.spawn(|| {
            let since = Instant::now();
            // One key remains: the key that the probe reads.
            while control.command(&["DBSIZE"]) != Value::Integer(1) && since.elapsed() < EXPIRED_WITHIN {
                thread::sleep(Duration::from_millis(10));
            }
            is_over.store(true, Relaxed);
            since.elapsed().as_secs_f64()
        });
        probe(server, &is_over, figures);
        waited.join().expect("DBSIZE is answered")
    });
    figures.reported.push(format!("gone {:.2} s after the last was due", gone_s - 1.0));
    Ok(())
}

/// Opens clients that enable client tracking and read one key each. Measures a GET of this key
/// while they are connected, and the server's memory after they have disconnected.
fn trackers(
    server: &ServerProcess,
    control: &mut Client,
    figures: &mut Figures,
) -> Result<(), Box<dyn Error>> {
    let memory = |control: &mut Client| {
        let text = control.command(&["INFO", "memory"]).to_string();
        let at = text.find("used_memory:").expect("INFO has it") + "used_memory:".len();
        text[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse::<f64>()
            .expect("a number")
            / 1e6
    };
    let get_us = |reader: &mut Client| {
        let mut times: Vec<u128> = (0..20_000)
            .map(|_| {
                let since = Instant::now();
                reader.command(&["GET", "probe"]);
                since.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1e3
    };
    let mut reader = server.connect();
    reader.command(&["HELLO", "3"]);
    reader.command(&["CLIENT", "TRACKING", "ON"]);
    let (before_mb, alone_us) = (memory(control), get_us(&mut reader));
    let mut clients: Vec<Client> = (0..MANY).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.command(&["CLIENT", "TRACKING", "ON"]);
        client.command(&["GET", "probe"]);
    }
    let beside_us = get_us(&mut reader);
    drop(clients);
    while !control.command(&["INFO", "clients"]).to_string().contains("connected_clients:2") {}
    thread::sleep(Duration::from_secs(1));
    let after_mb = memory(control);
    figures.reported.push(format!(
        "GET {alone_us:.1} µs alone, {beside_us:.1} µs beside {MANY}; {before_mb:.2} MB before, {after_mb:.2} MB after"
    ));
    Ok(())
}

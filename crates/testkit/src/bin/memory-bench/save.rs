//! The measurement of saves and of rewrites of the append-only file: their duration, their memory
//! cost, and the latency of clients meanwhile. Also measured: the load time of the file, and the
//! time until the loading server first answers.
//!
//! Writers send requests at a fixed rate. So a stall shows as requests with a long latency, not as
//! a lower rate. Before each phase with a save there is a phase without one, as the control.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use testkit::client::Address;
use testkit::{Client, ServerProcess, Value};

use crate::{Servers, info, resident_bytes, set_option};

/// Duration of a control phase, in which no save runs.
const CONTROL: Duration = Duration::from_secs(3);
/// Minimum latency of a writer's request that is counted as long.
const LONG: Duration = Duration::from_millis(5);
/// Number of commands in a pipeline while the data is created.
const FILL_BATCH: usize = 1000;
/// Pause between two samples of the memory or of INFO.
pub const LOOK: Duration = Duration::from_millis(5);
/// Number of connections of the writers during a save.
const WRITERS: u64 = 4;

/// The options of the measurement of saves.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    pub servers: Servers,
    /// Number of keys, of 16 bytes with values of 64 bytes.
    #[arg(long, default_value_t = 5_000_000)]
    keys: u64,
    /// Number of keys overwritten per second by of all writers together. With `--elements` it is
    /// always 4,000.
    #[arg(long, default_value_t = 20_000)]
    rate: u64,
    /// Number of elements of a set, a hash, a sorted set and a list, which are measured instead of
    /// the keys.
    #[arg(long, default_value_t = 0)]
    elements: u64,
    /// Enables the append-only file (`everysec`) and measures its rewrite; loading is not measured.
    #[arg(long)]
    rewrite: bool,
}

/// The counters of the writers during one phase: requests, requests with a long latency, and the
/// longest latency.
#[derive(Default)]
pub struct Seen {
    pub requests: AtomicU64,
    pub long: AtomicU64,
    pub longest_ns: AtomicU64,
}

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "| server | data MB | save s | extra RSS MB | extra % | requests/s, with a save | without | over 5 ms, \
         with | without | longest ms, with | without | load s | first answer s |\n|---|{}",
        "--:|".repeat(12)
    );
    for name in options.servers.names() {
        println!("| {name} | {} |", measure(options, &name)?);
    }
    Ok(())
}

fn measure(options: &Options, name: &str) -> Result<String, Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut client = server.connect();
    set_option(&mut client, "save", "")?;
    fill(&mut client, options)?;
    if options.rewrite {
        set_option(&mut client, "auto-aof-rewrite-percentage", "0")?;
        set_option(&mut client, "appendonly", "yes")?;
        wait_while(&mut client, "aof_rewrite_in_progress")?;
    }
    thread::sleep(Duration::from_secs(1));
    let before = resident_bytes(server.pid())?;
    let control = phase(&server, options, |_| {
        thread::sleep(CONTROL);
        Ok(())
    })?;
    let saved = phase(&server, options, |client| {
        let (command, field) = if options.rewrite {
            ("BGREWRITEAOF", "aof_rewrite_in_progress")
        } else {
            ("BGSAVE", "rdb_bgsave_in_progress")
        };
        expect_simple(client.request(&[command])?)?;
        wait_while(client, field)
    })?;
    let extra = saved.rss_peak.saturating_sub(saved.rss_before);
    let loaded = if options.rewrite {
        "| ".to_owned()
    } else {
        let (load_s, answer_s) = load(options, name, &server.dir().join("dump.rdb"))?;
        format!("{load_s:.2} | {answer_s:.3}")
    };
    let rate = |phase: &Phase| phase.seen.requests.load(Relaxed) as f64 / phase.took.as_secs_f64();
    let long = |phase: &Phase| phase.seen.long.load(Relaxed);
    let longest_ms = |phase: &Phase| phase.seen.longest_ns.load(Relaxed) as f64 / 1e6;
    Ok(format!(
        "{:.0} | {:.2} | {:.1} | {:.1} | {:.0} | {:.0} | {} | {} | {:.1} | {:.1} | {loaded}",
        before as f64 / 1e6,
        saved.took.as_secs_f64(),
        extra as f64 / 1e6,
        100.0 * extra as f64 / before as f64,
        rate(&saved),
        rate(&control),
        long(&saved),
        long(&control),
        longest_ms(&saved),
        longest_ms(&control),
    ))
}

/// Waits until `field` in the section `persistence` of INFO, such as `rdb_bgsave_in_progress`, is
/// no longer 1.
pub fn wait_while(client: &mut Client, field: &str) -> Result<(), Box<dyn Error>> {
    while info(client, "persistence", field)? == 1 {
        thread::sleep(LOOK);
    }
    Ok(())
}

pub fn expect_simple(value: Value) -> Result<(), Box<dyn Error>> {
    match value {
        Value::Simple(_) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn key(number: u64) -> String {
    format!("key:{number:012}")
}

pub fn fill(client: &mut Client, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut batch = Vec::new();
    let value = "v".repeat(40);
    let elements = options.elements;
    let count = if elements > 0 { elements } else { options.keys };
    for number in 0..count {
        if elements > 0 {
            let (member, number) = (key(number), number.to_string());
            batch.push(vec!["SADD".to_owned(), "set".to_owned(), member.clone()]);
            batch.push(vec!["HSET".to_owned(), "hash".to_owned(), member.clone(), number.clone()]);
            batch.push(vec!["ZADD".to_owned(), "zset".to_owned(), number, member.clone()]);
            batch.push(vec!["RPUSH".to_owned(), "list".to_owned(), member]);
        } else {
            batch.push(vec!["SET".to_owned(), key(number), format!("{value}{number:024}")]);
        }
        if batch.len() >= FILL_BATCH || number + 1 == count {
            client.pipeline(&batch)?;
            batch.clear();
        }
    }
    Ok(())
}

/// The results of one phase of the measurement, with a save or, as the control, without: the
/// writers' counters, the duration, and the resident memory before it and its maximum.
pub struct Phase {
    pub seen: Arc<Seen>,
    pub took: Duration,
    rss_before: u64,
    rss_peak: u64,
}

/// Runs the writers while `during` (a save, or nothing as the control) runs. Returns their
/// counters, the duration of `during` and the resident memory of the server.
pub fn phase(
    server: &ServerProcess,
    options: &Options,
    during: impl FnOnce(&mut Client) -> Result<(), Box<dyn Error>>,
) -> Result<Phase, Box<dyn Error>> {
    let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let elements = options.elements;
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (seen, stop, address) = (Arc::clone(&seen), Arc::clone(&stop), server.address());
            let (keys, rate) = match elements {
                0 => (options.keys, options.rate / WRITERS),
                elements => (elements, 1000),
            };
            thread::spawn(move || write(&address, (number, keys, elements > 0), rate, (&seen, &stop)))
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    [&seen.requests, &seen.long, &seen.longest_ns].iter().for_each(|counter| counter.store(0, Relaxed));
    let rss_before = resident_bytes(server.pid())?;
    let (pid, peak, ended) = (server.pid(), Arc::new(AtomicU64::new(rss_before)), Arc::clone(&stop));
    let watcher = {
        let peak = Arc::clone(&peak);
        thread::spawn(move || {
            while !ended.load(Relaxed) {
                peak.fetch_max(family_bytes(pid), Relaxed);
                thread::sleep(LOOK);
            }
        })
    };
    let since = Instant::now();
    let result = during(&mut server.connect());
    let took = since.elapsed();
    stop.store(true, Relaxed);
    for thread in writers.into_iter().chain([watcher]) {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    result?;
    Ok(Phase { seen, took, rss_before, rss_peak: peak.load(Relaxed) })
}

/// Returns the resident memory of a server in bytes, plus the private memory of its children: the
/// pages copied after a fork.
fn family_bytes(pid: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let copied: u64 = children
        .split_whitespace()
        .filter_map(|child| std::fs::read_to_string(format!("/proc/{child}/smaps_rollup")).ok())
        .map(|rollup| {
            let dirty = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
            dirty.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
        })
        .sum();
    resident_bytes(pid).unwrap_or(0) + copied
}

/// Overwrites `rate` keys per second. The time at which each request is due is fixed in advance. A
/// request that is already due is sent without a pause.
fn write(
    address: &Address,
    (number, keys, big): (u64, u64, bool),
    rate: u64,
    (seen, stop): (&Seen, &AtomicBool),
) {
    let Ok(mut client) = Client::connect(address) else { return };
    let mut rng = testkit::Rng::new(number + 1);
    let pause = Duration::from_nanos(1_000_000_000 / rate.max(1));
    let mut next = Instant::now();
    let value = "w".repeat(64);
    while !stop.load(Relaxed) {
        let now = Instant::now();
        if now < next {
            thread::sleep(next - now);
        }
        next += pause;
        let drawn = rng.below(keys as usize) as u64;
        let command = if big {
            match number {
                0 if drawn.is_multiple_of(2) => vec!["SREM".to_owned(), "set".to_owned(), key(drawn)],
                0 => vec!["SADD".to_owned(), "set".to_owned(), key(keys + drawn)],
                1 => vec!["HSET".to_owned(), "hash".to_owned(), key(drawn), rng.below(1 << 30).to_string()],
                2 => vec!["ZADD".to_owned(), "zset".to_owned(), rng.below(1 << 30).to_string(), key(drawn)],
                _ => vec!["LSET".to_owned(), "list".to_owned(), drawn.to_string(), key(drawn + 1)],
            }
        } else {
            vec!["SET".to_owned(), key(drawn), value.clone()]
        };
        let since = Instant::now();
        if client.request(&command).is_err() {
            return;
        }
        let took = since.elapsed();
        seen.requests.fetch_add(1, Relaxed);
        seen.long.fetch_add(u64::from(took > LONG), Relaxed);
        seen.longest_ns.fetch_max(took.as_nanos() as u64, Relaxed);
    }
}

/// Starts a server on a copy of the saved file. Returns its load time and the time until it first
/// answers, in seconds.
fn load(options: &Options, name: &str, file: &Path) -> Result<(f64, f64), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::copy(file, folder.path().join("dump.rdb"))?;
    let since = Instant::now();
    let server = options.servers.start_in(name, folder.path())?;
    let answer_s = since.elapsed().as_secs_f64();
    let mut client = server.connect();
    while info(&mut client, "persistence", "loading")? == 1 {
        thread::sleep(Duration::from_millis(1));
    }
    Ok((since.elapsed().as_secs_f64(), answer_s))
}

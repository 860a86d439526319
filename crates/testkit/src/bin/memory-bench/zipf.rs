//! Hit rates of eviction: one client uses the server as a cache. It reads keys by Zipf's
//! distribution and stores those that are missing. Requests are sent at a fixed rate, because LRU
//! clocks tick in seconds and LFU clocks in minutes. At full speed, the whole trace would fall into
//! a few ticks, and the evicted keys would be random.
//!
//! There are two kinds of limits. The first makes the server hold `--keys` keys. It is found by
//! trial during the first half of the run, so that only the choice of evicted keys matters. The
//! second is the same number of bytes for all servers. A server that needs fewer bytes for a key
//! can then hold more keys.

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Args;
use testkit::{Client, Value};

use crate::{Servers, info, set_option};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Eviction policies to compare.
    #[arg(long, value_delimiter = ',', default_value = "allkeys-lru,allkeys-lfu")]
    policies: Vec<String>,
    /// Number of different keys that the client requests.
    #[arg(long, default_value_t = 500_000)]
    universe: usize,
    /// Number of keys that the server holds if `--room` is not given.
    #[arg(long, default_value_t = 50_000)]
    keys: usize,
    /// Memory limit in bytes above the memory of an empty server. If it is not given, the limit is
    /// adjusted so that the server holds `--keys` keys.
    #[arg(long)]
    room: Option<u64>,
    /// The exponent of Zipf's distribution, by which keys are requested.
    #[arg(long, default_value_t = 0.99)]
    exponent: f64,
    /// Number of requests in a run; only hits of the second half count.
    #[arg(long, default_value_t = 4_000_000)]
    requests: usize,
    /// Number of requests that the client sends per second.
    #[arg(long, default_value_t = 200_000)]
    rate: usize,
    /// Number of runs of each server and policy, with different traces.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
}

/// Number of requests that the client sends in one pipeline.
const BATCH: usize = 100;
/// Number of times that the memory limit is adjusted, to reach the wanted number of keys.
const ADJUSTMENTS: usize = 20;

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut below = Vec::with_capacity(options.universe);
    let mut sum = 0.0;
    for rank in 1..=options.universe {
        sum += (rank as f64).powf(-options.exponent);
        below.push(sum);
    }
    println!("| policy | server | hit rate, percent (each run) | keys at the end |\n|---|---|--:|--:|");
    for policy in &options.policies {
        let mut rows: Vec<(String, Vec<String>, usize)> =
            options.servers.names().into_iter().map(|name| (name, Vec::new(), 0)).collect();
        for round in 0..options.rounds {
            for (name, rates, keys) in &mut rows {
                let (rate, held) = measure(options, name, policy, &below, round)?;
                rates.push(format!("{rate:.2}"));
                *keys = held;
            }
        }
        for (name, rates, keys) in rows {
            println!("| {policy} | {name} | {} | {keys} |", rates.join(", "));
        }
    }
    Ok(())
}

fn measure(
    options: &Options,
    name: &str,
    policy: &str,
    below: &[f64],
    seed: u64,
) -> Result<(f64, usize), Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut client = server.connect();
    let empty = info(&mut client, "memory", "used_memory")?;
    set_option(&mut client, "maxmemory-policy", policy)?;
    if options.room.is_none() {
        // Keys that are never requested: they are evicted first.
        for first in (0..options.keys).step_by(BATCH) {
            store(&mut client, (first..first + BATCH).map(|key| options.universe + key))?;
        }
    }
    let filled = info(&mut client, "memory", "used_memory")?;
    let mut limit = empty + options.room.unwrap_or(filled - empty);
    set_option(&mut client, "maxmemory", &limit.to_string())?;
    let adjust_every = options.requests / 2 / ADJUSTMENTS;
    let mut adjust_at = if options.room.is_some() { usize::MAX } else { adjust_every };
    let mut rng = fastrand::Rng::with_seed(seed);
    let total = below.last().copied().unwrap_or(1.0);
    let started = Instant::now();
    let mut hits = 0;
    for first in (0..options.requests).step_by(BATCH) {
        let due = Duration::from_secs_f64(first as f64 / options.rate as f64);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        if first >= adjust_at && first < options.requests / 2 {
            adjust_at += adjust_every;
            // The limit changes by the number of missing or excess keys times the initial memory of
            // a key.
            let key_bytes = (filled - empty) as f64 / options.keys as f64;
            let missing = options.keys as f64 - held_keys(&mut client)? as f64;
            limit = limit.saturating_add_signed((missing * key_bytes) as i64);
            set_option(&mut client, "maxmemory", &limit.to_string())?;
        }
        let mut draw = || {
            let drawn = rng.f64() * total;
            below.partition_point(|&sum| sum < drawn)
        };
        let keys: Vec<usize> = (0..BATCH).map(|_| draw()).collect();
        let requests: Vec<_> = keys.iter().map(|key| ["GET".to_owned(), key_name(*key)].to_vec()).collect();
        let replies = client.pipeline(&requests)?;
        let missing = keys.iter().zip(&replies).filter(|(_, reply)| **reply == Value::Null);
        let missing: Vec<usize> = missing.map(|(key, _)| *key).collect();
        if first >= options.requests / 2 {
            hits += BATCH - missing.len();
        }
        store(&mut client, missing.into_iter())?;
    }
    Ok((100.0 * hits as f64 / (options.requests / 2) as f64, held_keys(&mut client)?))
}

fn held_keys(client: &mut Client) -> Result<usize, Box<dyn Error>> {
    let Value::Integer(keys) = client.request(&["DBSIZE"])? else { return Err("no DBSIZE".into()) };
    Ok(keys as usize)
}

fn key_name(key: usize) -> String {
    format!("key:{key:012}")
}

fn store(client: &mut Client, keys: impl Iterator<Item = usize>) -> Result<(), Box<dyn Error>> {
    let value = "v".repeat(100);
    let requests: Vec<_> =
        keys.map(|key| ["SET".to_owned(), key_name(key), value.clone()].to_vec()).collect();
    for reply in client.pipeline(&requests)? {
        if !matches!(reply, Value::Simple(_)) {
            return Err(format!("SET: {reply:?}").into());
        }
    }
    Ok(())
}

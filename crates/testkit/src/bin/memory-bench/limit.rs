//! The measurement of a memory limit (`maxmemory`) under load. Clients overwrite strings of all
//! sizes and collections of all types, with and without expiry. Used and resident memory are
//! sampled meanwhile.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use testkit::Value;

use crate::{Servers, info, resident_bytes, set_option};

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The memory limit of the server (`maxmemory`), in megabytes.
    #[arg(long, default_value_t = 100)]
    megabytes: u64,
    /// The eviction policy of the server (`maxmemory-policy`).
    #[arg(long, default_value = "allkeys-lru")]
    policy: String,
    /// Duration of the load of writes, in seconds.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Number of clients that write at the same time.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Number of key names for each type.
    #[arg(long, default_value_t = 200_000)]
    keys: usize,
}

/// Pause between two samples of the server's used and resident memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(5);
/// Number of write requests that a client sends in one pipeline.
const BATCH: usize = 20;

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    println!(
        "| server | requests/s | refused | evicted keys | used memory, highest | RSS, highest | RSS, at the end |\n\
         |---|--:|--:|--:|--:|--:|--:|"
    );
    for name in options.servers.names() {
        measure(options, &name)?;
    }
    Ok(())
}

fn measure(options: &Options, name: &str) -> Result<(), Box<dyn Error>> {
    let server = options.servers.start(name)?;
    let mut observer = server.connect();
    let limit = options.megabytes << 20;
    set_option(&mut observer, "maxmemory-policy", &options.policy)?;
    set_option(&mut observer, "maxmemory", &limit.to_string())?;
    let (stop, done, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (mut used_max, mut resident_max) = (0, 0);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for seed in 0..options.clients {
            let mut client = server.connect();
            let (stop, done, refused) = (&stop, &done, &refused);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !stop.load(Relaxed) {
                    let requests: Vec<_> = (0..BATCH).map(|_| request(&mut rng, options.keys)).collect();
                    let Ok(replies) = client.pipeline(&requests) else { return };
                    let errors = replies
                        .iter()
                        .filter(|reply| matches!(reply, Value::Error(line) if line.starts_with(b"OOM")))
                        .count();
                    refused.fetch_add(errors as u64, Relaxed);
                    done.fetch_add(BATCH as u64, Relaxed);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(options.seconds);
        let result = (|| {
            while Instant::now() < until {
                used_max = used_max.max(info(&mut observer, "memory", "used_memory")?);
                resident_max = resident_max.max(resident_bytes(server.pid())?);
                std::thread::sleep(SAMPLE_EVERY);
            }
            Ok(())
        })();
        stop.store(true, Relaxed);
        result
    })?;
    let percent = |bytes: u64| 100.0 * bytes as f64 / limit as f64;
    println!(
        "| {name} | {} | {} | {} | {:.2} % | {:.1} % | {:.1} % |",
        done.load(Relaxed) / options.seconds,
        refused.load(Relaxed),
        info(&mut observer, "stats", "evicted_keys")?,
        percent(used_max),
        percent(resident_max),
        percent(resident_bytes(server.pid())?),
    );
    Ok(())
}

/// Returns a random write request. The name of a key implies its type, so that no request fails
/// with WRONGTYPE.
fn request(rng: &mut fastrand::Rng, keys: usize) -> Vec<String> {
    let key = rng.usize(..keys);
    // Sizes from a few bytes to a hundred kilobytes; most are small.
    let text = |rng: &mut fastrand::Rng| {
        let size = 8.0 * 12_000_f64.powf(rng.f64().powi(4));
        "x".repeat(size as usize)
    };
    let member = |rng: &mut fastrand::Rng| format!("member:{}", rng.usize(..100_000));
    let parts: Vec<String> = match rng.u32(..100) {
        0..50 => vec!["SET".into(), format!("string:{key}"), text(rng)],
        50..60 => vec!["SET".into(), format!("string:{key}"), text(rng), "EX".into(), "60".into()],
        60..65 => vec!["APPEND".into(), format!("string:{key}"), text(rng)],
        65..75 => vec!["HSET".into(), format!("hash:{}", key % 2000), member(rng), text(rng)],
        75..82 => vec!["SADD".into(), format!("set:{}", key % 500), member(rng), member(rng)],
        82..89 => {
            vec!["ZADD".into(), format!("zset:{}", key % 500), rng.u32(..).to_string(), member(rng)]
        }
        89..95 => vec!["RPUSH".into(), format!("list:{}", key % 2000), text(rng), text(rng)],
        95 => vec!["SETRANGE".into(), format!("string:{key}"), rng.u32(..200_000).to_string(), "y".into()],
        96 => vec!["SET".into(), format!("set:{}", key % 500), "no set any more".into()],
        97 => vec!["DEL".into(), format!("hash:{}", key % 2000), format!("set:{}", key % 500)],
        98 => vec!["LTRIM".into(), format!("list:{}", key % 2000), "0".into(), "10".into()],
        _ => vec!["GET".into(), format!("string:{key}")],
    };
    parts
}

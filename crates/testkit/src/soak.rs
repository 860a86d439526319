//! A soak test: well-behaved clients check every reply, while other clients misbehave.
//!
//! [`checker`]s keep a model of their own keys and compare each reply with it. Meanwhile other
//! clients do what clients do by mistake or on purpose ([`misbehavior`]): endless pipelines, long
//! commands, replies that nobody reads, connections that close in the middle of a request. They
//! also create and remove huge values, open hundreds of subscribers and tracking clients, and send
//! garbage, kills and pauses. Thousands of [`workers`] block on shared queues. Keys with a time to
//! live fill the memory up to `maxmemory`, so that eviction and expiry run all the time.
//!
//! Conditions that must hold:
//!
//! 1. Every reply to a checker equals the one of its model. Every element of a queue is served
//!    exactly once.
//! 2. No reply takes longer than the read timeout of [`Client`], and 99 of 100 replies to checkers
//!    take at most [`P99_MAX`].
//! 3. The server never held more than [`Soak::resident_bytes_max`].
//! 4. After all clients have closed, the server holds no state of them: no client, no blocked
//!    client, no subscription, no tracked key. After all keys are deleted, the memory in use is
//!    back to its value at the start.

mod checker;
pub mod crowd;
pub mod encryption;
mod misbehavior;
mod workers;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Address, Client};
use crate::rng::Rng;

/// Memory limit in bytes, in addition to the memory of an idle server. It is far less than the keys
/// with a time to live would need. It is enough for the keys of the checkers and for thousands of
/// clients.
const MEMORY_BYTES: u64 = 32 << 20;
/// Maximum 99th percentile of the latency of checkers' requests. It is far above the value on an
/// idle machine: the clients of the soak use all cores, and other processes may use them too.
pub const P99_MAX: Duration = Duration::from_secs(2);

/// Number of clients of the soak test that check every reply.
const CHECKERS: usize = 4;
/// Number of groups of worker clients, which block on queues.
const WORKER_GROUPS: usize = 2;
/// Maximum time until the server has removed all state of closed clients.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// Maximum growth of the memory in use from start to end, in bytes. A server may keep empty tables
/// and buffers for later use.
const LEFT_BYTES_MAX: u64 = 16 << 20;

/// The settings of a soak test of one server.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The address of the server. The server has no keys and refuses DEBUG.
    pub address: Address,
    /// The process ID of the server under test.
    pub pid: u32,
    /// The duration of the soak test.
    pub time: Duration,
    /// The maximum resident memory that the server may hold, in bytes.
    pub resident_bytes_max: u64,
    /// Names of the kinds of misbehaving clients to run. If empty, all kinds and the workers run.
    pub only: Vec<String>,
    /// The seed of all random choices of the clients.
    pub seed: u64,
}

/// The results of a soak test in which all conditions held.
#[derive(Clone, Debug)]
pub struct Report {
    /// The latencies of the checkers' requests in microseconds.
    latencies_us: Histogram<u64>,
    /// The number of queue elements that worker clients received.
    served: u64,
    /// The number of completed rounds of misbehaving clients.
    misbehaviors: u64,
    /// The maximum resident memory that the server's process held, in bytes.
    resident_bytes: u64,
    /// The number of keys that the server has evicted.
    evicted: u64,
    /// The number of keys that the server has expired.
    expired: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |quantile| self.latencies_us.value_at_quantile(quantile) as f64 / 1e3;
        write!(
            f,
            "{} checked requests, p50 {:.2} ms, p99 {:.2}, p99.9 {:.2}, max {:.1}; {} elements served, {} troubles, \
             {} keys evicted, {} expired, at most {} MB resident",
            self.latencies_us.len(),
            ms(0.5),
            ms(0.99),
            ms(0.999),
            self.latencies_us.max() as f64 / 1e3,
            self.served,
            self.misbehaviors,
            self.evicted,
            self.expired,
            self.resident_bytes >> 20
        )
    }
}

/// The state of a soak test that all its clients share.
struct Run<'s> {
    soak: &'s Soak,
    is_over: AtomicBool,
    served: AtomicU64,
    misbehaviors: AtomicU64,
}

impl Run<'_> {
    /// Opens a connection to the server under test.
    fn connect(&self) -> Client {
        connect(&self.soak.address)
    }

    /// Creates the random number generator of the client with number `index` among those of the
    /// kind `kind`.
    fn rng(&self, kind: &str, index: usize) -> Rng {
        let kind = kind.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Rng::new(self.soak.seed.wrapping_mul(1_000_003) ^ kind.wrapping_mul(977).wrapping_add(index as u64))
    }

    /// Runs the body of a client's thread. A panic in the body ends the soak test, so that the
    /// other clients stop as well.
    fn guarded<T>(&self, body: impl FnOnce() -> T) -> T {
        let _ends = StopsRun(&self.is_over);
        body()
    }

    /// Returns the kinds of misbehaving clients that the settings select.
    fn requested_misbehaviors(&self) -> impl Iterator<Item = &'static misbehavior::Misbehavior> {
        let only = &self.soak.only;
        misbehavior::ALL
            .iter()
            .filter(|misbehavior| only.is_empty() || only.iter().any(|name| name == misbehavior.name))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// A guard that ends the soak test when its thread panics.
struct StopsRun<'r>(&'r AtomicBool);

impl Drop for StopsRun<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// Runs all clients for the requested time, then checks their results, and that nothing of them
/// remains in the server.
///
/// # Panics
/// Panics when a condition of the module's list does not hold; the message names it.
pub fn run(soak: &Soak) -> Report {
    let mut control = connect(&soak.address);
    let used_before = info(&mut control, "used_memory");
    let limit = (used_before + MEMORY_BYTES).to_string();
    for option in [["maxmemory", &limit], ["maxmemory-policy", "volatile-lru"]] {
        assert!(!control.command(&["CONFIG", "SET", option[0], option[1]]).is_error(), "{option:?}");
    }
    let used_before = info(&mut control, "used_memory");
    let run = Run {
        soak,
        is_over: AtomicBool::new(false),
        served: AtomicU64::new(0),
        misbehaviors: AtomicU64::new(0),
    };
    let latencies_us = together(&run);
    check_nothing_is_left(&mut control, used_before);
    let report = Report {
        latencies_us,
        served: run.served.into_inner(),
        misbehaviors: run.misbehaviors.into_inner(),
        resident_bytes: resident_bytes_max(soak.pid),
        evicted: info(&mut control, "evicted_keys"),
        expired: info(&mut control, "expired_keys"),
    };
    assert!(report.resident_bytes <= soak.resident_bytes_max, "too much memory: {report}");
    let p99 = Duration::from_micros(report.latencies_us.value_at_quantile(0.99));
    assert!(p99 <= P99_MAX, "checkers waited too long: {report}");
    report
}

/// Runs each client of the soak test in its own thread until the time has passed. Returns the
/// latencies of the checkers' requests.
fn together(run: &Run<'_>) -> Histogram<u64> {
    let until = Instant::now() + run.soak.time;
    std::thread::scope(|scope| {
        let worker_groups = if run.soak.only.is_empty() { WORKER_GROUPS } else { 0 };
        for index in 0..worker_groups {
            scope.spawn(move || run.guarded(|| workers::run(run, index)));
        }
        for misbehavior in run.requested_misbehaviors() {
            for index in 0..misbehavior.clients {
                scope.spawn(move || run.guarded(|| misbehavior.run(run, index)));
            }
        }
        let checkers: Vec<_> = (0..CHECKERS)
            .map(|index| scope.spawn(move || run.guarded(|| checker::run(run, index))))
            .collect();
        while Instant::now() < until && !run.is_over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        run.is_over.store(true, Relaxed);
        let mut all = checker::times();
        for checker in checkers {
            all.add(checker.join().expect("its panic says why")).expect("all have one range");
        }
        all
    })
}

/// The fields of INFO that must be zero when no key exists and only one client, which asks, is
/// connected.
const ZERO_IN_THE_END: &[&str] = &[
    "blocked_clients",
    "tracking_clients",
    "pubsub_clients",
    "pubsub_channels",
    "pubsub_patterns",
    "tracking_total_keys",
    "tracking_total_prefixes",
    "lazyfree_pending_objects",
];

/// Deletes all keys and waits until the server holds no state of the closed clients. `used_before`
/// is the memory in use at the start, in bytes.
///
/// # Panics
///
/// Panics when something remains after [`GONE_WITHIN`].
fn check_nothing_is_left(control: &mut Client, used_before: u64) {
    control.command(&["FLUSHALL"]);
    let begun = Instant::now();
    loop {
        let text = info_text(control);
        let left: Vec<&str> =
            ZERO_IN_THE_END.iter().copied().filter(|field| number(&text, field) != 0).collect();
        let clients = number(&text, "connected_clients");
        let used = number(&text, "used_memory").saturating_sub(used_before);
        if left.is_empty() && clients == 1 && used <= LEFT_BYTES_MAX {
            return;
        }
        if begun.elapsed() > GONE_WITHIN {
            let list = control.command(&["CLIENT", "LIST"]);
            let list = String::from_utf8_lossy(list.as_bytes().expect("CLIENT LIST is text")).into_owned();
            panic!("left over: {left:?}, {used} bytes of memory, {clients} clients:\n{list}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn connect(address: &Address) -> Client {
    Client::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
}

fn info_text(client: &mut Client) -> String {
    let text = client.command(&["INFO", "everything"]);
    String::from_utf8_lossy(text.as_bytes().expect("INFO is text")).into_owned()
}

fn info(client: &mut Client, field: &str) -> u64 {
    number(&info_text(client), field)
}

/// Returns the number in a field of INFO's text; 0 if the server has no such field.
fn number(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map_or(0, |value| value.trim().parse().unwrap_or_else(|_| panic!("{field} is {value}")))
}

/// Returns the maximum resident memory of a process in bytes, as counted by the kernel.
fn resident_bytes_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

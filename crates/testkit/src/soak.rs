//! A soak: well-behaved clients that check every reply, beside all that misbehaves.
//!
//! [`checker`]s keep a model of their own keys and hold each reply against it. Beside them
//! [`trouble`] does what clients do by mistake or on purpose: pipelines without an end, long
//! commands, replies that nobody reads, connections that vanish in the middle of a request, huge
//! values that come and go, subscribers and trackers that come by the hundred, garbage, kills and
//! pauses. [`workers`] wait by the thousand for elements of shared queues. Keys with a time to live
//! fill the memory up to `maxmemory`, so that eviction and expiry go on all the time.
//!
//! What must hold:
//!
//! 1. Every reply to a checker is the one its model says; every element of a queue
//!    is served exactly once.
//! 2. No reply takes longer than the read timeout of [`Client`], and 99 of 100 replies to checkers
//!    take at most [`P99_MAX`].
//! 3. The server never held more than [`Soak::resident_bytes_max`].
//! 4. When all clients are gone nothing of them is left: no client, no waiting one, no
//!    subscription, no tracked key; when all keys are gone, too, the memory in use is what it was.

mod checker;
pub mod crowd;
pub mod encryption;
mod trouble;
mod workers;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Address, Client};
use crate::rng::Rng;

/// Memory beyond what an idle server takes: far less than the volatile keys would take, and enough
/// for the keys of the checkers and for thousands of clients.
const MEMORY_BYTES: u64 = 32 << 20;
/// See the module. Far above what one sees on an idle machine: the clients here use all cores there
/// are, and who else may.
pub const P99_MAX: Duration = Duration::from_secs(2);

/// Clients that check.
const CHECKERS: usize = 4;
/// Groups of clients that wait for elements.
const WORKER_GROUPS: usize = 2;
/// How long all that clients leave behind may take to go.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// Memory in use may end so far above where it began: tables and buffers that a server
/// keeps for the next ones.
const LEFT_BYTES_MAX: u64 = 16 << 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// The server, without keys; it permits DEBUG to nobody.
    pub address: Address,
    /// Its process.
    pub pid: u32,
    /// For how long.
    pub time: Duration,
    /// What it may hold in memory at the most.
    pub resident_bytes_max: u64,
    /// Kinds of trouble to make, by name; all, and waiting clients, when it is empty.
    pub only: Vec<String>,
    /// Chooses what the clients do.
    pub seed: u64,
}

/// What happened, when nothing was wrong.
#[derive(Clone, Debug)]
pub struct Report {
    /// Times of the checkers' requests in microseconds.
    latencies_us: Histogram<u64>,
    /// Elements that waiting clients got.
    served: u64,
    /// Rounds of trouble.
    troubles: u64,
    /// The most memory that the server's process held.
    resident_bytes: u64,
    /// Keys evicted and expired.
    evicted: u64,
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
            self.troubles,
            self.evicted,
            self.expired,
            self.resident_bytes >> 20
        )
    }
}

/// What all clients know of the run.
struct Run<'s> {
    soak: &'s Soak,
    is_over: AtomicBool,
    served: AtomicU64,
    troubles: AtomicU64,
}

impl Run<'_> {
    /// A connection.
    fn connect(&self) -> Client {
        connect(&self.soak.address)
    }

    /// The random numbers of client `index` of its kind.
    fn rng(&self, kind: &str, index: usize) -> Rng {
        let kind = kind.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Rng::new(self.soak.seed.wrapping_mul(1_000_003) ^ kind.wrapping_mul(977).wrapping_add(index as u64))
    }

    /// Runs the body of a client's thread; a panic in it ends the run, so that
    /// the others do not go on.
    fn guarded<T>(&self, body: impl FnOnce() -> T) -> T {
        let _ends = EndsRun(&self.is_over);
        body()
    }

    /// The kinds of trouble that are asked for.
    fn troubles_asked(&self) -> impl Iterator<Item = &'static trouble::Trouble> {
        let only = &self.soak.only;
        trouble::ALL.iter().filter(|trouble| only.is_empty() || only.iter().any(|name| name == trouble.name))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

/// Ends the run when its thread panics.
struct EndsRun<'r>(&'r AtomicBool);

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// Runs all clients for the time asked and checks what they know and leave.
///
/// # Panics
/// When something does not hold that the module says; the message tells what.
pub fn run(soak: &Soak) -> Report {
    let mut control = connect(&soak.address);
    let used_before = info(&mut control, "used_memory");
    let limit = (used_before + MEMORY_BYTES).to_string();
    for option in [["maxmemory", &limit], ["maxmemory-policy", "volatile-lru"]] {
        assert!(!control.command(&["CONFIG", "SET", option[0], option[1]]).is_error(), "{option:?}");
    }
    let used_before = info(&mut control, "used_memory");
    let run =
        Run { soak, is_over: AtomicBool::new(false), served: AtomicU64::new(0), troubles: AtomicU64::new(0) };
    let latencies_us = together(&run);
    check_nothing_is_left(&mut control, used_before);
    let report = Report {
        latencies_us,
        served: run.served.into_inner(),
        troubles: run.troubles.into_inner(),
        resident_bytes: resident_bytes_max(soak.pid),
        evicted: info(&mut control, "evicted_keys"),
        expired: info(&mut control, "expired_keys"),
    };
    assert!(report.resident_bytes <= soak.resident_bytes_max, "too much memory: {report}");
    let p99 = Duration::from_micros(report.latencies_us.value_at_quantile(0.99));
    assert!(p99 <= P99_MAX, "checkers waited too long: {report}");
    report
}

/// Runs each client in a thread of its own until the time is over; the checkers' times.
fn together(run: &Run<'_>) -> Histogram<u64> {
    let until = Instant::now() + run.soak.time;
    std::thread::scope(|scope| {
        let worker_groups = if run.soak.only.is_empty() { WORKER_GROUPS } else { 0 };
        for index in 0..worker_groups {
            scope.spawn(move || run.guarded(|| workers::run(run, index)));
        }
        for trouble in run.troubles_asked() {
            for index in 0..trouble.clients {
                scope.spawn(move || run.guarded(|| trouble.run(run, index)));
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

/// What must be zero when nobody is connected but the asking client, and no key is there.
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

/// Waits until all that the clients left is gone, and checks that it is.
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

/// The number of a field in INFO's text; 0 where a server has no such field.
fn number(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map_or(0, |value| value.trim().parse().unwrap_or_else(|_| panic!("{field} is {value}")))
}

/// The most that a process has had in memory, as the kernel counts it.
fn resident_bytes_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux counts it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

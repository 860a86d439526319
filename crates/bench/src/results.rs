//! What a run came to, as plain data: what the texts, CSV, JSON and the reports are made of.
//!
//! Times are microseconds in `f64` or `u64` fields named `_us`, wall time is in seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The outcome of one workload against one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Its name as redis-benchmark prints it (`SET`, `LRANGE_100 (first 100 elements)`),
    /// or the command template.
    pub test: String,
    /// The command template, or those of a mix, one a line with their weights.
    pub command: String,
    /// How the load was made.
    pub settings: Settings,
    /// When the measured part began, in milliseconds of Unix time.
    pub started_unix_ms: u64,
    /// Wall time of the measured part: warm-up is not in it.
    pub duration_seconds: f64,
    /// Requests answered in the measured part, errors included.
    pub requests: u64,
    /// `requests / duration_seconds`.
    pub requests_per_second: f64,
    /// Error replies by their first word (`ERR`, `WRONGTYPE`, `OOM`); replies that failed
    /// verification are counted as `VERIFY`.
    pub errors: BTreeMap<String, u64>,
    /// The first error reply, whole.
    pub first_error: Option<String>,
    /// Reads that found something; a read is a GET, HGET, LPOP or another command that replies
    /// null for what is missing.
    pub hits: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// Requests that were due or sent but not answered when the run ended: they have no latency, so
    /// where there are many of them the figures are too good.
    pub unanswered: u64,
    /// Latency of all requests.
    pub latency: LatencySummary,
    /// The same as a histogram: how many requests took at most so long and longer than the entry
    /// before. Ascending; empty buckets are left out; three significant digits. In JSON a string of
    /// `MICROSECONDS:COUNT`, with blanks between.
    #[serde(with = "buckets")]
    pub histogram: Vec<Bucket>,
    /// The course of the run, a second each.
    pub per_second: Vec<Second>,
    /// The load generator's own use of the machine.
    pub client: ClientUse,
    /// The server's, when its process is on this machine and known.
    pub server: Option<ServerUse>,
    /// What the nodes of a cluster did; absent where there is one server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterUse>,
    /// The simulated link to the server, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkUse>,
    /// How the run ended.
    pub ending: Ending,
}

impl RunResult {
    /// Whether the client, not the server, was the limit.
    pub fn is_client_bound(&self) -> bool {
        self.client.bound.is_bound
    }

    /// All error replies.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Why a run that came to its end measured nothing of use: no reply, or nothing but errors.
    pub fn fault(&self) -> Option<String> {
        if self.ending != Ending::Complete {
            return None;
        }
        match self.requests {
            0 => Some(format!("{}: no request was answered", self.test)),
            all if self.error_count() == all => {
                let first = self.first_error.as_deref().unwrap_or("unknown");
                Some(format!("{}: all {all} replies were errors, the first one: {first}", self.test))
            }
            _ => None,
        }
    }

    /// Hits among all reads, from 0 to 1; `None` when nothing was read.
    pub fn hit_rate(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }
}

/// How the load was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where the server is: `127.0.0.1:6379` or the path of a Unix socket.
    pub address: String,
    /// The way to it.
    pub transport: Transport,
    /// 2 or 3.
    pub resp: u8,
    /// The database.
    pub db: u32,
    /// Threads of the load generator.
    pub threads: usize,
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests sent ahead of their replies on one connection.
    pub pipeline: usize,
    /// The size of values: `64`, `10-100`, `32:50,64:50`; empty when the workload has none.
    pub value_bytes: String,
    /// Different keys; 0 when all requests use the same.
    pub keyspace: u64,
    /// Closed or open loop.
    pub loop_mode: LoopMode,
    /// Whether each request had a connection of its own.
    pub reconnect: bool,
    /// Seconds of load before the measured part.
    pub warm_up_seconds: f64,
    /// `io_uring` or `epoll`, the load generator's own event loop.
    pub io_backend: String,
    /// How long it waited for replies to come together, in microseconds at most, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather_us: Option<u32>,
    /// The seed of its random choices; with it and the same settings they are made again. Absent in
    /// results of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// A Unix socket.
    Unix,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoopMode {
    /// As soon as the replies before have come. Latency is measured from the sending.
    Closed,
    /// On a schedule. Latency is measured from when a request was due, so that waiting behind a
    /// slow one is not left out (coordinated omission).
    Open {
        /// Requests per second over all connections.
        requests_per_second: f64,
    },
}

/// Latency in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The shortest.
    pub min_us: f64,
    /// The arithmetic mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 75 of 100 requests took at most so long.
    pub p75_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 95 of 100.
    pub p95_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p99_9_us: f64,
    /// 9,999 of 10,000.
    pub p99_99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Requests of about the same latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The longest latency counted here.
    pub upper_us: f64,
    /// How many.
    pub count: u64,
}

/// Buckets as one string: a list of objects would be ten times as long, and most of results.json.
mod buckets {
    use std::fmt::Write;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Bucket;

    pub(super) fn serialize<S: Serializer>(buckets: &[Bucket], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for bucket in buckets {
            let blank = if text.is_empty() { "" } else { " " };
            write!(text, "{blank}{}:{}", bucket.upper_us, bucket.count).expect("a string takes all");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Bucket>, D::Error> {
        let text = String::deserialize(from)?;
        let bucket = |word: &str| {
            let (upper_us, count) = word.split_once(':')?;
            Some(Bucket { upper_us: upper_us.parse().ok()?, count: count.parse().ok()? })
        };
        text.split(' ')
            .filter(|word| !word.is_empty())
            .map(|word| {
                bucket(word).ok_or_else(|| Error::custom(format!("{word:?} is not MICROSECONDS:COUNT")))
            })
            .collect()
    }
}

/// One second of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// When it ended, in seconds since the measured part began; the last one may be
    /// shorter than a second.
    pub at_seconds: f64,
    /// Requests answered in it, per second.
    pub requests_per_second: f64,
    /// Their median latency.
    pub p50_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
}

/// What the load generator used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientUse {
    /// CPU time of its worker threads in the measured part, user and system.
    pub cpu_seconds: f64,
    /// The same per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Per thread: CPU time over wall time, 0 to 1.
    pub busy: Vec<f64>,
    /// Whether that was the limit.
    pub bound: ClientBound,
}

/// Whether the client was the limit: then the rate says little about the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientBound {
    /// It was.
    pub is_bound: bool,
    /// Why that is thought; empty when it was not.
    pub reason: String,
}

/// What the server's process used in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// CPU time of all its threads, user and system.
    pub cpu_seconds: f64,
    /// The same per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// Resident memory at the end.
    pub rss_bytes: u64,
    /// Times a thread gave the processor up.
    pub context_switches_voluntary: u64,
    /// Times a thread was moved off the processor.
    pub context_switches_involuntary: u64,
}

/// What the nodes of a cluster did in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterUse {
    /// Requests answered, by the node's address.
    pub nodes: BTreeMap<String, u64>,
    /// Redirections to another node for good (MOVED), each followed. A stable cluster gives none.
    pub moved: u64,
    /// Redirections of one request whose slot is on the move (ASK), each followed.
    pub asked: u64,
}

/// How a link is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// By the kernel, between two network namespaces.
    Netem,
    /// By a thread of saker-bench that passes on what it is sent.
    Relay,
}

impl LinkKind {
    /// `netem` or `relay`.
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Netem => "netem",
            LinkKind::Relay => "relay",
        }
    }
}

/// A simulated link in the time of a run, warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// What made it.
    pub kind: LinkKind,
    /// Processor time of the relay over wall time, 0 to 1; absent where the kernel is the link.
    pub busy: Option<f64>,
    /// The same per request, in microseconds. It is neither in the server's nor in the client's.
    pub cpu_us_per_request: Option<f64>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "reason", rename_all = "snake_case")]
pub enum Ending {
    /// All requests or the whole time.
    Complete,
    /// By Ctrl-C: the result is of what was measured until then.
    Interrupted,
    /// The server went away or stopped making sense; the result is of what was measured until then.
    Failed(String),
}

//! The result of a run as plain data. Texts, CSV, JSON and the reports are made from it.
//!
//! Times are in microseconds, in `f64` or `u64` fields named `_us`. Wall time is in seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The result of one run of one workload against one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The name of the test. A default test has redis-benchmark's name (`SET`, `LRANGE_100 (first
    /// 100 elements)`), a single command its template. Other workloads have the name of their file
    /// or mix.
    pub test: String,
    /// The command template of the requests. A mix has one template per line, each with its weight.
    pub command: String,
    /// The settings of the load and of the connections with which the result was measured.
    pub settings: Settings,
    /// The start of the measured part, in milliseconds of Unix time.
    pub started_unix_ms: u64,
    /// The wall time from the start of the measured part to the last reply, in seconds.
    pub duration_seconds: f64,
    /// The number of requests answered in the measured part, including errors.
    pub requests: u64,
    /// The rate of answered requests: `requests / duration_seconds`.
    pub requests_per_second: f64,
    /// The number of error replies of each kind: the first word of the reply (`ERR`, `WRONGTYPE`,
    /// `OOM`). Replies that failed verification have the kind `VERIFY`.
    pub errors: BTreeMap<String, u64>,
    /// The beginning of the first error reply, up to 256 bytes; absent if there was none.
    pub first_error: Option<String>,
    /// The number of reads that found a value. A read is a GET, HGET, LPOP or another command that
    /// replies null for a missing value.
    pub hits: u64,
    /// The number of reads (such as GET) that found no value.
    pub misses: u64,
    /// The number of requests that were due or sent but not answered when the run ended. They have
    /// no latency. If there are many, the latencies are too optimistic.
    pub unanswered: u64,
    /// The latencies of all requests of the measured part.
    pub latency: LatencySummary,
    /// The latency histogram, in ascending order, without empty buckets, with three significant
    /// digits. A bucket counts the requests that took at most `upper_us` and longer than the
    /// previous bucket's `upper_us`. In JSON it is a string of `MICROSECONDS:COUNT` separated by
    /// spaces.
    #[serde(with = "buckets")]
    pub histogram: Vec<Bucket>,
    /// The results of each second of the measured part.
    pub per_second: Vec<Second>,
    /// The resources that the load generator itself used.
    pub client: ClientUse,
    /// The server's resource usage, if its process is on this machine and known.
    pub server: Option<ServerUse>,
    /// The requests of each node of a cluster and the redirections; absent for a single server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterUse>,
    /// The results that concern a vector set; absent for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<VectorUse>,
    /// The simulated link to the server; absent without a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkUse>,
    /// The way in which the run ended: complete, interrupted or failed.
    pub ending: Ending,
}

impl RunResult {
    /// Returns true if the client, not the server, was the bottleneck.
    pub fn is_client_bound(&self) -> bool {
        self.client.bound.is_bound
    }

    /// Returns the number of error replies and failed verifications of the run.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns the reason why a complete run measured nothing useful: no reply, or only errors.
    /// Returns `None` for other runs.
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

    /// Returns the share of reads that found a value, from 0 to 1; `None` if nothing was read.
    pub fn hit_rate(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }
}

/// The settings of the load with which a result was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The address of the server: `127.0.0.1:6379` or the path of a Unix socket.
    pub address: String,
    /// The transport of the connections to the server.
    pub transport: Transport,
    /// The version of RESP on the connections: 2 or 3.
    pub resp: u8,
    /// The number of the database that the connections selected.
    pub db: u32,
    /// The number of threads of the load generator.
    pub threads: usize,
    /// The number of connections of all threads together. In a cluster, it is the number of
    /// clients, each of which has a connection to every node.
    pub connections: usize,
    /// The number of requests that a connection sends before it waits for their replies.
    pub pipeline: usize,
    /// The size of values in bytes: `64`, `10-100` (a range) or `32:50,64:50` (sizes, each with its
    /// weight). Empty if the workload has no values.
    pub value_bytes: String,
    /// The number of different keys; 0 if all requests use the same key, as far as known.
    pub keyspace: u64,
    /// The load model: closed or open loop.
    pub loop_mode: LoopMode,
    /// True if each request had its own connection.
    pub reconnect: bool,
    /// The duration of the load before the measured part, in seconds.
    pub warm_up_seconds: f64,
    /// The backend of the load generator's event loop: `io_uring` or `epoll`.
    pub io_backend: String,
    /// The longest time that the load generator waited for further replies after one had arrived,
    /// in microseconds; absent if it did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gather_us: Option<u32>,
    /// The seed of the random choices. A run with the same seed and settings makes the same
    /// choices. Absent in results of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The transport of the connections between the load generator and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP without TLS, to the server's plain port.
    Tcp,
    /// TLS over TCP, to the server's TLS port.
    Tls,
    /// A Unix socket of the server.
    Unix,
}

/// The load model, closed or open loop, which decides when requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LoopMode {
    /// A client sends its next requests as soon as all its replies have arrived. Latency counts
    /// from the sending.
    Closed,
    /// Requests are sent on a schedule. Latency counts from the time a request was due. It thus
    /// includes the wait behind a slow request, which a closed loop hides (coordinated omission).
    Open {
        /// The planned number of requests per second over all connections.
        requests_per_second: f64,
    },
}

/// A summary of the latencies of a run's requests, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The shortest latency, in microseconds.
    pub min_us: f64,
    /// The arithmetic mean of the latencies, in microseconds.
    pub mean_us: f64,
    /// The median latency in microseconds: half of the requests took at most this long.
    pub p50_us: f64,
    /// The 75th percentile of the latencies, in microseconds.
    pub p75_us: f64,
    /// The 90th percentile of the latencies, in microseconds.
    pub p90_us: f64,
    /// The 95th percentile of the latencies, in microseconds.
    pub p95_us: f64,
    /// The 99th percentile of the latencies, in microseconds.
    pub p99_us: f64,
    /// The 99.9th percentile of the latencies, in microseconds.
    pub p99_9_us: f64,
    /// The 99.99th percentile of the latencies, in microseconds.
    pub p99_99_us: f64,
    /// The longest latency, in microseconds.
    pub max_us: f64,
}

/// A bucket of the latency histogram: requests of about the same latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The longest latency counted in this bucket, in microseconds.
    pub upper_us: f64,
    /// The number of requests whose latency is in this bucket.
    pub count: u64,
}

/// The form of the histogram's buckets in JSON: one string. As a list of objects, they would be ten
/// times as long and the largest part of results.json.
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

/// The results of one second of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// The end of this second, in seconds since the start of the measured part. The last one may be
    /// shorter than a second.
    pub at_seconds: f64,
    /// The rate in this second: requests answered, per second.
    pub requests_per_second: f64,
    /// The median latency of the requests answered in this second, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the latency of the requests answered in this second, in microseconds.
    pub p99_us: f64,
}

/// The resources that the load generator used in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientUse {
    /// The CPU time of the load generator's threads in the measured part, user and system, in
    /// seconds.
    pub cpu_seconds: f64,
    /// The CPU time of the load generator per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// The CPU time of each thread of the load generator divided by the wall time, from 0 to 1.
    pub busy: Vec<f64>,
    /// The decision whether the load generator was the bottleneck.
    pub bound: ClientBound,
}

/// The decision if the client, which is the load generator, was the bottleneck. If it was, the rate
/// says little about the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientBound {
    /// True if the client, the load generator, was the bottleneck.
    pub is_bound: bool,
    /// The observation that shows the client to be the bottleneck; empty if it was not.
    pub reason: String,
}

/// The resources that the server's process used in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The CPU time of all threads of the server, user and system, in seconds.
    pub cpu_seconds: f64,
    /// The CPU time of the server per request, in microseconds.
    pub cpu_us_per_request: f64,
    /// The resident memory of the server at the end of the measured part, in bytes.
    pub rss_bytes: u64,
    /// The number of voluntary context switches of the server's threads.
    pub context_switches_voluntary: u64,
    /// The number of involuntary context switches of the server's threads.
    pub context_switches_involuntary: u64,
}

/// The requests and redirections of a cluster in the measured part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterUse {
    /// The number of requests answered by each node, by the `host:port` of the node.
    pub nodes: BTreeMap<String, u64>,
    /// The number of MOVED redirections that the load generator followed. A stable cluster sends
    /// none.
    pub moved: u64,
    /// The number of ASK redirections that the load generator followed. They occur while a slot is
    /// being migrated.
    pub asked: u64,
}

/// The results of a run with a vector set: its data, the recall of searches and the memory of
/// vectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VectorUse {
    /// The name of the vector set: its data and its quantization.
    pub set: String,
    /// The number of vectors of the data set, without the queries.
    pub rows: u64,
    /// The number of dimensions of each vector.
    pub dimensions: usize,
    /// The EF of the searches, their number of candidates; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ef: Option<u32>,
    /// The number of neighbours that a search should find: the k of recall@k.
    pub neighbours: usize,
    /// The number of searches whose replies were compared with the true neighbours.
    pub searches: u64,
    /// The share of the true neighbours that the searches found, from 0 to 1; absent without
    /// searches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<f64>,
    /// The memory of the server per added vector, in bytes; absent if the run did not add all
    /// vectors or the memory is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_vector: Option<f64>,
    /// The requests that are not searches; absent if all are searches or none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideSearches>,
}

/// The requests of a mix with searches that are not searches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideSearches {
    /// The number of requests that are not searches.
    pub requests: u64,
    /// The latencies of the requests that are not searches.
    pub latency: LatencySummary,
}

/// The simulator of a link with a delay: the kernel's netem or a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// The kernel's netem, between two network namespaces.
    Netem,
    /// A thread of saker-bench that forwards bytes between load generator and server.
    Relay,
}

impl LinkKind {
    /// Returns the name of the simulator of the network link in reports and in JSON: `netem` (the
    /// kernel) or `relay` (a thread of saker-bench).
    pub fn name(self) -> &'static str {
        match self {
            LinkKind::Netem => "netem",
            LinkKind::Relay => "relay",
        }
    }
}

/// The simulated link of a run and the load of its relay, warm-up included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// The simulator of the link: the kernel's netem or a relay.
    pub kind: LinkKind,
    /// The CPU time of the relay divided by the wall time, from 0 to 1; absent if the kernel
    /// simulates the link.
    pub busy: Option<f64>,
    /// The CPU time of the relay per request, in microseconds; absent if the kernel simulates the
    /// link. It is not included in the figures of the server or the client.
    pub cpu_us_per_request: Option<f64>,
}

/// The way in which a run ended: completely, by an interrupt or by a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "reason", rename_all = "snake_case")]
pub enum Ending {
    /// All requests were sent, or the whole duration has passed.
    Complete,
    /// Ctrl-C ended the run. The result covers the time until then.
    Interrupted,
    /// The server closed a connection, did not reply or sent malformed replies. The result covers
    /// the time until then. Holds the reason.
    Failed(String),
}

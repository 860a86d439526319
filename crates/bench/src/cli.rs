//! The arguments of `saker-bench run`. Options of redis-benchmark have the same meaning here. The
//! others follow memtier_benchmark or resp-benchmark where they exist there.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::error::ErrorKind;
use net::BackendChoice;

use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::results::{Ending, RunResult};
use crate::spec::{Endpoint, Limit, Load, RunSpec, Target, Tls, Watch};
use crate::sweep::sweep;
use crate::workload::{
    Content, DefaultTestOptions, KeyPattern, Keys, Memtier, Quantization, Sizes, TemplateOptions, Values,
    VectorPlan, VectorTask, Vectors, Workload, Zipf, fresh_seed,
};
use crate::{BenchError, idle, output, run, set_up};

/// The exit status of a failed run and of invalid arguments.
const FAILED: u8 = 2;
/// The duration of each run under `--rate-sweep` if neither `-n` nor `--duration` is given.
const SWEEP_STEP: Duration = Duration::from_secs(3);
/// The default exponent of `--key-pattern Z`, as in memtier_benchmark.
const KEY_ZIPF_EXPONENT: f64 = 1.0;

/// Sends load to one server and measures it.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct RunArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    load: LoadArguments,
    /// Size of values: 3, 10-100 or 32:50,64:50 (size:weight).
    #[arg(short, long = "data-size", visible_alias = "size", default_value = "3")]
    data_size: String,
    /// Content of values: constant, random (letters and digits), binary or compressible.
    #[arg(long, value_parser = content)]
    content: Option<Content>,
    /// Only open the connections, and keep them until Ctrl-C.
    #[arg(short = 'I')]
    idle: bool,
    /// Append standard input to the command as its last argument.
    #[arg(short = 'x')]
    stdin: bool,
    /// Compare the value that GET returns with the value that SET writes; values then depend on
    /// keys.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    vectors: VectorArguments,
    /// Print one line per test.
    #[arg(short, long)]
    quiet: bool,
    /// Print CSV, with redis-benchmark's columns first.
    #[arg(long)]
    csv: bool,
    /// Also write all results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Event loop backend: auto, io_uring or epoll.
    #[arg(long, default_value = "auto", value_parser = backend)]
    io_backend: BackendChoice,
    /// Longest wait in microseconds for further replies after one has arrived, while many
    /// connections are busy. The replies are then handled together, as slower clients do.
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    gather_us: u32,
    /// Process ID of the server on this machine, to show its CPU time and memory.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Longest time in seconds without any reply before the run fails.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    reply_within: Duration,
    /// Seed of random choices; the same seed repeats them [default: a fresh seed, which the report
    /// shows].
    #[arg(long)]
    seed: Option<u64>,
    /// Decimals of latencies in milliseconds, 4 at most. Only the first three digits of a latency
    /// are exact.
    #[arg(long, value_name = "DECIMALS", default_value_t = output::DECIMALS)]
    precision: usize,
    /// Print error replies of the server, at most one per second.
    #[arg(short = 'e')]
    show_errors: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// The options of `saker-bench run` that name the server and set up its connections.
#[derive(Args, Debug)]
struct ServerArguments {
    /// Host of the server.
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    host: String,
    /// Port of the server.
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Unix socket of the server, in place of host and port.
    #[arg(short, long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Server, user, password and database as one URI, redis://user:password@host:port/db; rediss
    /// is TLS.
    #[arg(short = 'u', long, value_name = "URI")]
    uri: Option<String>,
    /// Password for AUTH.
    #[arg(short = 'a', long, value_name = "PASSWORD")]
    password: Option<String>,
    /// ACL user; needs a password.
    #[arg(long)]
    user: Option<String>,
    #[command(flatten)]
    tls: TlsArguments,
    /// Treat the server as a node of a cluster. Each of the -c clients has a connection to every
    /// node. A request goes to the node that serves its key. {tag} in a key becomes the hash tag of
    /// a random slot.
    #[arg(long)]
    cluster: bool,
    /// Enable server-assisted client-side caching on each connection: CLIENT TRACKING on.
    #[arg(long)]
    enable_tracking: bool,
    /// Speak RESP3.
    #[arg(short = '3', long = "resp3")]
    resp3: bool,
    /// Number of the database.
    #[arg(long, visible_alias = "db", default_value_t = 0)]
    dbnum: u32,
}

/// The options of `saker-bench run` that set the number of connections and the load on the server.
#[derive(Args, Debug)]
struct LoadArguments {
    /// Connections of all threads together; with --cluster, clients with a connection to every
    /// node.
    #[arg(short, long, default_value_t = 50)]
    clients: usize,
    /// Threads of the load generator.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Requests that a connection sends before it waits for their replies.
    #[arg(short = 'P', long, default_value_t = 1)]
    pipeline: usize,
    /// 1 keeps connections open, 0 opens a new connection for each request.
    #[arg(short = 'k', default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    keep_alive: u8,
    /// Total number of requests [default: 100000].
    #[arg(short = 'n', long, conflicts_with = "duration")]
    requests: Option<u64>,
    /// Duration in seconds, in place of a number of requests.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Seconds of load before the measurement.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    warm_up: Duration,
    /// Open loop: requests per second, sent on schedule; latency counts from the scheduled time.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Search for the highest rate whose p99 is at most this many milliseconds, starting at --rate
    /// or 1000 per second.
    #[arg(long, value_name = "P99_MS", num_args = 0..=1, default_missing_value = "1")]
    rate_sweep: Option<f64>,
    /// Repeat the tests until Ctrl-C.
    #[arg(short = 'l')]
    repeat: bool,
}

/// The options of `saker-bench run` for TLS connections.
#[derive(Args, Debug)]
struct TlsArguments {
    /// Speak TLS.
    #[arg(long)]
    tls: bool,
    /// Trusted CA certificate, as PEM.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Folder of trusted CA certificates. Without --cacert and --cacertdir, the system's
    /// certificates are trusted.
    #[arg(long, value_name = "FOLDER")]
    cacertdir: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(long, conflicts_with_all = ["cacert", "cacertdir"])]
    insecure: bool,
    /// Client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the client certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Expected name in the server's certificate.
    #[arg(long, value_name = "HOST")]
    sni: Option<String>,
    /// Cipher suites of TLS 1.2: OpenSSL names joined by colons, the preferred one first.
    #[arg(long, value_name = "LIST")]
    tls_ciphers: Option<String>,
    /// Cipher suites of TLS 1.3: OpenSSL names joined by colons, the preferred one first.
    #[arg(long, value_name = "LIST")]
    tls_ciphersuites: Option<String>,
}

impl TlsArguments {
    /// Returns the TLS settings. They apply even without `--tls` if a URI turns TLS on.
    fn options(&self) -> Tls {
        Tls {
            ca: self.cacert.clone(),
            ca_dir: self.cacertdir.clone(),
            insecure: self.insecure,
            identity: self.cert.clone().zip(self.key.clone()),
            server_name: self.sni.clone(),
            ciphers: self.tls_ciphers.clone(),
            ciphersuites: self.tls_ciphersuites.clone(),
        }
    }
}

/// The options of `saker-bench run` that choose the requests to send. Without them,
/// redis-benchmark's default tests run.
#[derive(Args, Debug)]
struct What {
    /// Default tests, separated by commas: ping_inline, ping_mbulk, set, get, incr, lpush, rpush,
    /// lpop, rpop, sadd, hset, spop, zadd, zpopmin, lrange_100, lrange_300, lrange_500,
    /// lrange_600, mset, xadd.
    #[arg(short, long, value_delimiter = ',', value_name = "TESTS")]
    tests: Vec<String>,
    /// Number of different keys that __rand_int__ chooses from, in tests and commands.
    #[arg(short = 'r', long, value_name = "KEYS")]
    keyspace: Option<u64>,
    /// A command of a mix and its weight, 15:GET {key uniform 100}; may be given several times.
    #[arg(long, value_name = "WEIGHT:COMMAND", conflicts_with_all = ["tests", "ratio", "command"])]
    mix: Vec<String>,
    /// File of commands, one per line, each with WEIGHT: before it if the weight is not 1.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tests", "ratio", "mix", "command"])]
    file: Option<PathBuf>,
    /// memtier's mix of SET and GET, 1:15.
    #[arg(long, value_name = "SET:GET", conflicts_with_all = ["tests", "command"])]
    ratio: Option<String>,
    /// Key patterns of SET and of GET: R random, G Gaussian, Z Zipf, S or P sequential over all
    /// connections.
    #[arg(long, value_name = "SET:GET", default_value = "R:R")]
    key_pattern: String,
    /// Smallest key number of memtier's mix (--ratio); ignored without --ratio.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    key_minimum: u64,
    /// Largest key number of memtier's mix (--ratio); ignored without --ratio.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    key_maximum: u64,
    /// Median of pattern G [default: the middle of the key range].
    #[arg(long, value_name = "NUMBER")]
    key_median: Option<f64>,
    /// Standard deviation of pattern G [default: a sixth of the key range].
    #[arg(long, value_name = "NUMBER")]
    key_stddev: Option<f64>,
    /// Exponent of pattern Z [default: 1].
    #[arg(long, value_name = "NUMBER")]
    key_zipf_exp: Option<f64>,
    /// Prefix of the keys of memtier's mix (--ratio); ignored without --ratio.
    #[arg(long, value_name = "TEXT", default_value = "memtier-")]
    key_prefix: String,
    /// A command with placeholders, as one word or several: SET {key uniform 100000} {value 64}.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl What {
    /// Returns the commands of `--mix` with their weights.
    fn weighted_lines(&self) -> Result<Vec<(u32, &str)>, BenchError> {
        fn split(line: &str) -> Option<(u32, &str)> {
            let (weight, command) = line.split_once(':')?;
            Some((weight.trim().parse().ok()?, command.trim()))
        }
        let lines: Option<Vec<(u32, &str)>> = self.mix.iter().map(String::as_str).map(split).collect();
        lines.ok_or_else(|| BenchError::Usage("--mix takes WEIGHT:COMMAND".to_owned()))
    }

    /// Returns true if the options name no requests, so that redis-benchmark's default tests run.
    fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.mix.is_empty() && self.file.is_none() && self.command.is_empty()
    }
}

/// The options of `saker-bench run` for workloads on vector sets.
#[derive(Args, Debug)]
struct VectorArguments {
    /// Vectors: clustered, uniform, or a file (.npy, .fvecs, or text with a row of numbers per
    /// line). Without a command, adds them by VADD and measures VSIM with its recall. In commands,
    /// {vector} is the next vector, {element} its name and {query} a random query.
    #[arg(long, value_name = "DATA", conflicts_with_all = ["tests", "ratio"])]
    vectors: Option<String>,
    /// Number of vectors to add; of a file, at most this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    vector_count: usize,
    /// Dimensions of generated vectors [default: 128]; of a file, its first columns [default: all].
    #[arg(long, value_name = "NUMBER")]
    vector_dimensions: Option<usize>,
    /// Clusters of clustered vectors [default: one per hundred vectors].
    #[arg(long, value_name = "NUMBER")]
    vector_clusters: Option<usize>,
    /// Distance of clustered vectors from their centre, as a share of the centre's norm.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    vector_spread: f64,
    /// Number of different queries, which are not added.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    vector_queries: usize,
    /// COUNT of VSIM, and the k of recall@k.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    vector_neighbours: usize,
    /// Seed of generated vectors.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    vector_seed: u64,
    /// Quantizations to measure: q8, noquant, bin.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "q8", value_parser = Quantization::parse)]
    vector_quantization: Vec<Quantization>,
    /// Links of an element: M of VADD.
    #[arg(long, value_name = "NUMBER", default_value_t = 16)]
    vector_m: u32,
    /// Candidates while an element is added: EF of VADD.
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    vector_build_ef: u32,
    /// Candidates of a search: EF of VSIM. Each of a list is measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "100")]
    vector_ef: Vec<u32>,
    /// Also measure searches beside GETs: this number of GETs per search.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    vector_reads: u32,
    /// Search the vectors that an earlier run with the same settings added.
    #[arg(long, requires = "vectors")]
    vector_keep: bool,
}

impl VectorArguments {
    /// Returns the settings of vector workloads; `None` without `--vectors`.
    fn plan(&self) -> Option<VectorPlan> {
        Some(VectorPlan {
            data: self.vectors.clone()?,
            count: self.vector_count,
            dimensions: self.vector_dimensions,
            clusters: self.vector_clusters,
            spread: self.vector_spread,
            queries: self.vector_queries,
            neighbours: self.vector_neighbours,
            seed: self.vector_seed,
            quantization: self.vector_quantization.clone(),
            m: self.vector_m,
            build_ef: self.vector_build_ef,
            ef: self.vector_ef.clone(),
            reads_per_search: self.vector_reads,
        })
    }

    /// Returns the workloads of `plan`, without those that add vectors if an earlier run has added
    /// them.
    fn workloads(&self, plan: &VectorPlan) -> Result<Vec<Workload>, BenchError> {
        let mut workloads = plan.workloads("", &plan.vectors()?)?;
        let adds = |workload: &Workload| workload.vectors.as_ref().is_some_and(|task| task.adds_all);
        workloads.retain(|workload| !(self.vector_keep && adds(workload)));
        Ok(workloads)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn content(text: &str) -> Result<Content, String> {
    match text {
        "constant" => Ok(Content::Constant),
        "random" => Ok(Content::Alphanumeric),
        "binary" => Ok(Content::Binary),
        "compressible" => Ok(Content::Compressible),
        _ => Err("use constant, random, binary or compressible".to_owned()),
    }
}

fn backend(text: &str) -> Result<BackendChoice, String> {
    match text {
        "auto" => Ok(BackendChoice::Auto),
        "io_uring" => Ok(BackendChoice::IoUring),
        "epoll" => Ok(BackendChoice::Epoll),
        _ => Err("use auto, io_uring or epoll".to_owned()),
    }
}

impl ServerArguments {
    /// Returns the server and the connection settings that the arguments give. Returns an error for
    /// a malformed URI or a user without a password.
    fn target(&self) -> Result<Target, BenchError> {
        let endpoint = match &self.socket {
            Some(path) => Endpoint::Unix(path.clone()),
            None => Endpoint::Tcp { host: self.host.clone(), port: self.port },
        };
        let mut target = Target {
            endpoint,
            user: self.user.clone(),
            password: self.password.clone(),
            db: self.dbnum,
            resp3: self.resp3,
            tls: self.tls.tls.then(|| self.tls.options()),
            cluster: self.cluster,
            tracking: self.enable_tracking,
        };
        if let Some(uri) = &self.uri {
            target.apply_uri(uri, self.tls.options())?;
        }
        if target.user.is_some() && target.password.is_none() {
            return Err(BenchError::Usage("a user needs a password (-a)".to_owned()));
        }
        Ok(target)
    }
}

impl LoadArguments {
    /// Returns the limit of a run: a duration or a number of requests.
    fn limit(&self) -> Limit {
        match (self.requests, self.duration) {
            (_, Some(duration)) => Limit::Duration(duration),
            (None, None) if self.rate_sweep.is_some() => Limit::Duration(SWEEP_STEP),
            (requests, None) => Limit::Requests(requests.unwrap_or(100_000)),
        }
    }
}

impl RunArguments {
    /// Returns the specification of each workload in the order in which they run.
    fn specs(&self) -> Result<Vec<RunSpec>, BenchError> {
        let target = self.server.target()?;
        let limit = self.load.limit();
        let load = Load {
            threads: self.load.threads,
            connections: self.load.clients,
            pipeline: self.load.pipeline,
            limit,
            warm_up: self.load.warm_up,
            rate: self.load.rate,
            reconnect: self.load.keep_alive == 0,
            verify: self.verify,
            backend: self.io_backend,
            gather_us: self.gather_us,
            reply_within: self.reply_within,
            seed: self.seed.unwrap_or_else(fresh_seed),
        };
        let watch = || Watch {
            server_pid: self.server_pid,
            progress: !self.quiet,
            interrupt: None,
            errors: self.show_errors.then(Arc::default),
        };
        let spec =
            |workload| RunSpec { target: target.clone(), workload, load: load.clone(), watch: watch() };
        Ok(self.workloads()?.into_iter().map(spec).collect())
    }

    fn workloads(&self) -> Result<Vec<Workload>, BenchError> {
        let what = &self.what;
        let sizes = Sizes::parse(&self.data_size)?;
        let values = |content| Values::new(sizes.clone(), self.content.unwrap_or(content));
        if let Some(ratio) = &what.ratio {
            return Ok(vec![what.memtier(ratio, values(Content::Constant))?]);
        }
        let plan = self.vectors.plan();
        if let Some(plan) = plan.as_ref().filter(|_| what.is_empty()) {
            return self.vectors.workloads(plan);
        }
        let vectors = plan.as_ref().map(VectorPlan::vectors).transpose()?;
        let options = TemplateOptions {
            vectors: vectors.clone(),
            rand_int_count: what.keyspace.map(|count| count.max(1)),
            keys: None,
            data: Some(values(Content::Constant)),
            content: self.content.unwrap_or(Content::Alphanumeric),
            tags: self.server.cluster,
        };
        let vectors = vectors.as_ref();
        if let Some(path) = &what.file {
            return Ok(vec![self.finish(Workload::from_file(path, &options)?, &sizes, vectors)]);
        }
        if !what.mix.is_empty() {
            let lines = what.weighted_lines()?;
            return Ok(vec![self.finish(
                Workload::from_templates("mix", &lines, &options)?,
                &sizes,
                vectors,
            )]);
        }
        if let Some(option) = what.command.first().filter(|word| word.starts_with('-')) {
            return Err(BenchError::Usage(format!("unknown option {option:?}; see --help")));
        }
        let mut words: Vec<Vec<u8>> = what.command.iter().map(|word| word.clone().into_bytes()).collect();
        if self.stdin {
            if words.is_empty() {
                return Err(BenchError::Usage(
                    "-x needs a command, to which it appends standard input".to_owned(),
                ));
            }
            let mut last = Vec::new();
            std::io::stdin().read_to_end(&mut last)?;
            words.push(last);
        }
        match &what.command[..] {
            _ if self.stdin => {
                Ok(vec![self.finish(Workload::from_arguments(&words, &options)?, &sizes, vectors)])
            }
            [] => {
                let names: Vec<&str> = what.tests.iter().map(String::as_str).collect();
                let content = self.content.unwrap_or(Content::Constant);
                let keyspace = what.keyspace;
                let cluster = self.server.cluster;
                Workload::default_tests(&names, &DefaultTestOptions { sizes, content, keyspace, cluster })
            }
            [line] => {
                Ok(vec![self.finish(Workload::from_templates("", &[(1, line)], &options)?, &sizes, vectors)])
            }
            _ => Ok(vec![self.finish(Workload::from_arguments(&words, &options)?, &sizes, vectors)]),
        }
    }

    /// Adds values of size `-d` to a workload that writes none, so that `--verify` can check its
    /// reads. Adds the data set `vectors`, with which replies to searches are compared.
    fn finish(&self, mut workload: Workload, sizes: &Sizes, vectors: Option<&Vectors>) -> Workload {
        workload.vectors = vectors.map(|vectors| VectorTask {
            vectors: vectors.clone(),
            label: workload.name.clone(),
            ef: None,
            adds_all: false,
        });
        if self.verify && workload.values.is_none() {
            let content = self.content.unwrap_or(Content::Alphanumeric);
            workload.values = Some(Values::new(sizes.clone(), content));
        }
        workload
    }
}

impl What {
    fn memtier(&self, ratio: &str, values: Values) -> Result<Workload, BenchError> {
        let wrong = || {
            BenchError::Usage(format!(
                "{:?} is not a key pattern: use R:R, S:R, G:G or Z:Z",
                self.key_pattern
            ))
        };
        let (set, get) = self.key_pattern.split_once(':').ok_or_else(wrong)?;
        if self.key_minimum > self.key_maximum {
            return Err(BenchError::Usage("--key-minimum is above --key-maximum".to_owned()));
        }
        let keys = |pattern: &str, counter: usize| -> Result<Keys, BenchError> {
            Ok(Keys {
                min: self.key_minimum,
                max: self.key_maximum,
                pattern: self.pattern(pattern, counter)?.ok_or_else(wrong)?,
            })
        };
        Workload::memtier(&Memtier {
            ratio: Workload::parse_ratio(ratio)?,
            prefix: self.key_prefix.clone(),
            set_keys: keys(set, 0)?,
            get_keys: keys(get, 1)?,
            values,
        })
    }

    /// Returns the key pattern that `name` stands for (`R`, `G`, `Z`, `S` or `P`); `None` for an
    /// unknown name. A sequential pattern uses the counter with index `counter` for its next key.
    /// Returns an error if the options of the pattern are out of range.
    fn pattern(&self, name: &str, counter: usize) -> Result<Option<KeyPattern>, BenchError> {
        let (min, max) = (self.key_minimum as f64, self.key_maximum as f64);
        let count = (self.key_maximum - self.key_minimum).saturating_add(1);
        Ok(Some(match name {
            "R" => KeyPattern::Uniform,
            "S" | "P" => KeyPattern::Sequential(counter),
            "G" => {
                let median = self.key_median.unwrap_or((min + max) / 2.0);
                let deviation = self.key_stddev.unwrap_or((max - min) / 6.0);
                if !((min..=max).contains(&median) && deviation.is_finite() && deviation >= 0.0) {
                    let reason = "--key-median must be between --key-minimum and --key-maximum, and \
                        --key-stddev must not be below 0";
                    return Err(BenchError::Usage(reason.to_owned()));
                }
                KeyPattern::Gaussian { median, deviation }
            }
            "Z" => {
                let exponent = self.key_zipf_exp.unwrap_or(KEY_ZIPF_EXPONENT);
                if !(exponent.is_finite() && exponent > 0.0) {
                    return Err(BenchError::Usage("--key-zipf-exp must be above 0".to_owned()));
                }
                KeyPattern::Zipf(Zipf::new(count, exponent))
            }
            _ => return Ok(None),
        }))
    }
}

/// Runs the workloads of `arguments`, prints their results, and returns the exit status.
pub fn main(arguments: &RunArguments) -> Result<ExitCode, BenchError> {
    let mut specs = arguments.specs()?;
    let interrupt = Interrupt::by_signals()?;
    for spec in &mut specs {
        spec.watch.interrupt = Some(interrupt.flag());
    }
    if arguments.idle {
        return idle_until(&specs[0], &interrupt);
    }
    let mut printer = Printer { arguments, results: Vec::new(), header_printed: false };
    let outcome = run_all(arguments, &specs, &interrupt, &mut printer);
    printer.write_json()?;
    outcome
}

/// Keeps idle connections open until Ctrl-C. Returns the exit status of an interrupted program.
fn idle_until(spec: &RunSpec, interrupt: &Interrupt) -> Result<ExitCode, BenchError> {
    let connections = spec.load.connections;
    idle(spec, || eprintln!("{connections} idle connections, until Ctrl-C"))?;
    debug_assert!(interrupt.is_set(), "nothing else ends it");
    Ok(ExitCode::from(INTERRUPTED))
}

fn run_all(
    arguments: &RunArguments,
    specs: &[RunSpec],
    interrupt: &Interrupt,
    printer: &mut Printer<'_>,
) -> Result<ExitCode, BenchError> {
    // A test that measured nothing useful does not stop the tests after it.
    let mut fault = None;
    for repetition in 0.. {
        for spec in specs {
            let mut spec = spec.clone();
            spec.load.seed = spec.load.seed.wrapping_add(repetition);
            set_up(&spec)?;
            let (useless, last) = if let Some(p99_ms) = arguments.load.rate_sweep {
                sweep_one(&spec, p99_ms, printer)?
            } else {
                let result = run(&spec)?;
                printer.print(&result)?;
                (result.fault(), result.ending)
            };
            fault = fault.or(useless);
            if last == Ending::Interrupted || interrupt.is_set() {
                return Ok(ExitCode::from(INTERRUPTED));
            }
            if let Ending::Failed(reason) = last {
                return Err(BenchError::Ended(reason));
            }
        }
        if !arguments.load.repeat {
            break;
        }
    }
    fault.map_or(Ok(ExitCode::SUCCESS), |reason| Err(BenchError::Useless(reason)))
}

/// Searches for the highest rate of one workload whose p99 is at most `p99_ms` milliseconds, and
/// prints it. Returns the reason if nothing useful was measured, and the ending of the last run.
fn sweep_one(
    spec: &RunSpec,
    p99_ms: f64,
    printer: &mut Printer<'_>,
) -> Result<(Option<String>, Ending), BenchError> {
    if !(p99_ms.is_finite() && p99_ms > 0.0) {
        return Err(BenchError::Usage("the bound of --rate-sweep must be above 0".to_owned()));
    }
    let mut failure = Ok(());
    let swept = sweep(spec, p99_ms * 1e3, |result, held| {
        let printed = printer.print_probe(result, if held { "holds" } else { "misses" });
        if failure.is_ok() {
            failure = printed;
        }
    })?;
    failure?;
    let last = swept.probes.last().map(|(result, _)| result);
    let fault = last.filter(|_| swept.best.is_none()).and_then(RunResult::fault);
    let last = last.map_or(Ending::Complete, |result| result.ending.clone());
    let early = if last == Ending::Complete && fault.is_none() { "" } else { ", the search ended early" };
    let bound = if swept.client_bound { ", client-bound" } else { "" };
    let line = match &swept.best {
        Some(best) => {
            format!(
                "{}: {:.0} requests per second with p99 <= {p99_ms} msec{bound}{early}",
                best.test, best.requests_per_second
            )
        }
        None if !early.is_empty() => format!("{}: no rate was found{early}", spec.workload.name),
        None => {
            format!("{}: p99 is above {p99_ms} msec even at the lowest rate{bound}", spec.workload.name)
        }
    };
    printer.line(&line)?;
    Ok((fault, last))
}

/// A printer of results. It prints each result when it is complete, and collects all for the JSON
/// file.
struct Printer<'a> {
    arguments: &'a RunArguments,
    results: Vec<RunResult>,
    header_printed: bool,
}

impl Printer<'_> {
    fn print(&mut self, result: &RunResult) -> Result<(), BenchError> {
        self.results.push(result.clone());
        if self.arguments.csv {
            self.csv(result)
        } else if self.arguments.quiet {
            self.line(&output::quiet_line(result, self.decimals()))
        } else {
            self.line(&output::report(result, self.decimals()))
        }
    }

    /// Prints one run of a rate search. `verdict` says if the rate held.
    fn print_probe(&mut self, result: &RunResult, verdict: &str) -> Result<(), BenchError> {
        self.results.push(result.clone());
        if self.arguments.csv {
            return self.csv(result);
        }
        let (p99_ms, decimals) = (result.latency.p99_us / 1e3, self.decimals());
        let line = output::quiet_line(result, decimals);
        self.line(&format!("{line}, p99={p99_ms:.decimals$} msec, {verdict}"))
    }

    fn csv(&mut self, result: &RunResult) -> Result<(), BenchError> {
        if !std::mem::replace(&mut self.header_printed, true) {
            self.line(output::CSV_HEADER)?;
        }
        self.line(&output::csv_line(result, self.decimals()))
    }

    /// Returns the number of decimals of latencies. As in redis-benchmark, a number above the
    /// maximum counts as the maximum.
    fn decimals(&self) -> usize {
        self.arguments.precision.min(output::DECIMALS_MAX)
    }

    fn line(&self, line: &str) -> Result<(), BenchError> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    fn write_json(&self) -> Result<(), BenchError> {
        let Some(path) = &self.arguments.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(&self.results).map_err(std::io::Error::other)?;
        let unwritable = |error| BenchError::Usage(format!("cannot write {}: {error}", path.display()));
        std::fs::write(path, text + "\n").map_err(unwritable)
    }
}

/// Prints an error in the arguments as one line. Help and version texts are printed unchanged.
/// Returns the exit status.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A failed write is ignored: there is no other place to report it.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let words: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    exit_code(Err(BenchError::Usage(line.trim_start_matches("error: ").to_owned() + "; see --help")))
}

/// Returns the exit status of `outcome`, and prints an error as one line.
pub fn exit_code(outcome: Result<ExitCode, BenchError>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        let text = error.to_string();
        let line: Vec<&str> = text.lines().collect();
        eprintln!("saker-bench: {}", line.join(" "));
        ExitCode::from(if matches!(error, BenchError::Interrupted) { INTERRUPTED } else { FAILED })
    })
}

//! The specification of a run: the server, the workload and the load.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use net::BackendChoice;

use crate::BenchError;
use crate::workload::Workload;

/// The specification of one run of one workload against one server.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The server and the settings of its connections.
    pub target: Target,
    /// The requests that the run sends, as templates.
    pub workload: Workload,
    /// The amount and the rate of the requests, and the connections that send them.
    pub load: Load,
    /// The observation of the run: the server's process, progress, error replies, interrupts.
    pub watch: Watch,
}

/// The server of a run and the settings of its connections.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address at which the server listens.
    pub endpoint: Endpoint,
    /// The ACL user of the connections; the default user when absent.
    pub user: Option<String>,
    /// The password for AUTH on each connection; when absent, no AUTH is sent.
    pub password: Option<String>,
    /// The number of the database that each connection selects.
    pub db: u32,
    /// True if connections speak RESP3.
    pub resp3: bool,
    /// The TLS settings of the connections; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// True if the endpoint is a node of a cluster. The load generator asks it for the slot map and
    /// sends each request to the node that serves its key.
    pub cluster: bool,
    /// True if connections enable server-assisted client-side caching (CLIENT TRACKING).
    pub tracking: bool,
}

/// The settings of TLS connections.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The file of trusted CA certificates, as PEM.
    pub ca: Option<PathBuf>,
    /// A directory of files with trusted CA certificates.
    pub ca_dir: Option<PathBuf>,
    /// True to accept any certificate of the server, unless `ca` or `ca_dir` is given. Without all
    /// three, the CA certificates of the system are trusted.
    pub insecure: bool,
    /// The client's certificate and its key, as PEM files; `None` for no client certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; when absent, the host of the server.
    pub server_name: Option<String>,
    /// The cipher suites of TLS 1.2: OpenSSL names joined by colons, the preferred one first. All
    /// suites when absent.
    pub ciphers: Option<String>,
    /// The cipher suites of TLS 1.3: OpenSSL names joined by colons, the preferred one first. All
    /// suites when absent.
    pub ciphersuites: Option<String>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The server listens on a TCP address; the host may be a name.
    Tcp {
        /// The host name or IP address of the server.
        host: String,
        /// The TCP port of the server.
        port: u16,
    },
    /// The path of a Unix socket on which the server listens.
    Unix(PathBuf),
}

/// Formats the endpoint as `127.0.0.1:6379`, or as the path of a Unix socket.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Default for Target {
    /// Returns the server at `127.0.0.1:6379` with no password, database 0 and RESP2.
    fn default() -> Self {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 6379 };
        Self {
            endpoint,
            user: None,
            password: None,
            db: 0,
            resp3: false,
            tls: None,
            cluster: false,
            tracking: false,
        }
    }
}

impl Target {
    /// Replaces the settings that a URI such as `redis://user:password@host:port/db` contains.
    /// Every part after the scheme is optional. The schemes `rediss` and `valkeys` turn TLS on with
    /// the settings `tls`. Returns a one-line error if the URI is malformed or the endpoint is a
    /// Unix socket.
    pub fn apply_uri(&mut self, uri: &str, tls: Tls) -> Result<(), BenchError> {
        let wrong = || {
            BenchError::Usage(format!(
                "{uri:?} is not a URI: use the form redis://user:password@host:port/db"
            ))
        };
        let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
        match scheme {
            "redis" | "valkey" => {}
            "rediss" | "valkeys" => self.tls = Some(tls),
            _ => return Err(wrong()),
        }
        let (place, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (account, place) = place.rsplit_once('@').unwrap_or(("", place));
        let decoded = |text: &str| percent_decoded(text).ok_or_else(wrong);
        match account.split_once(':') {
            Some((user, password)) => {
                self.user = Some(decoded(user)?).filter(|user| !user.is_empty());
                self.password = Some(decoded(password)?);
            }
            None if !account.is_empty() => self.password = Some(decoded(account)?),
            None => {}
        }
        let bracketed = place.strip_prefix('[').and_then(|place| place.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        let Endpoint::Tcp { host: host_before, port: port_before } = &mut self.endpoint else {
            return Err(BenchError::Usage(
                "a URI cannot name a Unix socket: give either -u or -s".to_owned(),
            ));
        };
        if !host.is_empty() {
            *host_before = host.to_owned();
        }
        if !port.is_empty() {
            *port_before = port.parse().map_err(|_| wrong())?;
        }
        if !db.is_empty() {
            self.db = db.parse().map_err(|_| wrong())?;
        }
        Ok(())
    }
}

/// Replaces percent-encoded bytes (`%41`) in `text` by the bytes. Returns `None` if an encoding is
/// invalid.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The amount and the rate of requests, and the connections that send them.
#[derive(Clone, Debug)]
pub struct Load {
    /// The number of threads of the load generator. At most one thread per connection is started.
    pub threads: usize,
    /// The number of connections of all threads together. In a cluster, it is the number of
    /// clients, each of which has a connection to every node.
    pub connections: usize,
    /// The number of requests that a connection sends before it waits for their replies.
    pub pipeline: usize,
    /// The limit at which the run ends: a number of requests or a duration of the measured part.
    pub limit: Limit,
    /// The duration of the load before the measured part.
    pub warm_up: Duration,
    /// The planned requests per second of an open loop. With `None` (closed loop), a client sends
    /// its next requests as soon as all its replies have arrived.
    pub rate: Option<f64>,
    /// True to open a new connection for each request.
    pub reconnect: bool,
    /// True to compare the replies to reads with the values that the workload writes.
    pub verify: bool,
    /// The event loop backend (io_uring or epoll) of the load generator.
    pub backend: BackendChoice,
    /// The longest time in microseconds that a thread with many busy connections waits for further
    /// replies after one has arrived. With 0, it handles each reply at once. Only allowed in a
    /// closed loop.
    pub gather_us: u32,
    /// The longest time without any reply while requests wait for replies. After this time the run
    /// fails.
    pub reply_within: Duration,
    /// The seed of all random choices. Workloads with different names derive different choices from
    /// it.
    pub seed: u64,
}

impl Default for Load {
    /// Returns the settings of redis-benchmark: 50 connections, one thread, no pipelining, 100,000
    /// requests.
    fn default() -> Self {
        Self {
            threads: 1,
            connections: 50,
            pipeline: 1,
            limit: Limit::Requests(100_000),
            warm_up: Duration::ZERO,
            rate: None,
            reconnect: false,
            verify: false,
            backend: BackendChoice::Auto,
            gather_us: 0,
            reply_within: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// The limit at which a run ends: a number of requests or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The run ends after this number of requests in the measured part.
    Requests(u64),
    /// The run ends after this duration of the measured part.
    Duration(Duration),
}

/// The observation of a run: the server's process, progress, error replies, interrupts.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The process ID of the server on this machine. Its CPU time and memory are read from /proc.
    pub server_pid: Option<u32>,
    /// True to show a progress line on standard error, if standard error is a terminal.
    pub progress: bool,
    /// The printer of the server's error replies; `None` prints none.
    pub errors: Option<Arc<ErrorLines>>,
    /// A flag that ends the run when it is set, for example by a signal handler. The partial result
    /// is returned.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// A printer of the server's error replies on standard output: at most one per second of a run, in
/// the format of `redis-benchmark -e`. Any thread may call it.
#[derive(Debug, Default)]
pub struct ErrorLines {
    /// The last second of the run in which an error was printed, counted from 1; 0 before the first
    /// error.
    shown_in: AtomicU64,
}

impl ErrorLines {
    /// Prints the error reply `text`, unless another one was printed in the same second. `now_ns`
    /// is the time since the start of the run, in nanoseconds.
    pub fn show(&self, text: &[u8], now_ns: u64) {
        let second = now_ns / 1_000_000_000 + 1;
        // Relaxed: no other data depends on the number. Only the first thread in a second sees it
        // change.
        if self.shown_in.swap(second, Relaxed) != second {
            // A failed write is ignored: nobody reads standard output.
            let _ = writeln!(std::io::stdout(), "Error from server: {}", String::from_utf8_lossy(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_says_what_it_says_and_leaves_the_rest() {
        let check = |uri: &str, expected: (&str, u16, Option<&str>, Option<&str>, u32, bool)| {
            let mut target = Target::default();
            target.apply_uri(uri, Tls::default()).unwrap();
            let Endpoint::Tcp { host, port } = &target.endpoint else { panic!("TCP") };
            let (user, password) = (target.user.as_deref(), target.password.as_deref());
            assert_eq!((host.as_str(), *port, user, password, target.db, target.tls.is_some()), expected);
        };
        check("redis://", ("127.0.0.1", 6379, None, None, 0, false));
        check("redis://example.org", ("example.org", 6379, None, None, 0, false));
        check(
            "rediss://joe:p%40ss:w@example.org:7000/3",
            ("example.org", 7000, Some("joe"), Some("p@ss:w"), 3, true),
        );
        check("valkey://secret@[::1]:7000", ("::1", 7000, None, Some("secret"), 0, false));
        check("redis://:secret@/2", ("127.0.0.1", 6379, None, Some("secret"), 2, false));
        for wrong in
            ["http://a", "localhost:6379", "redis://a:b", "redis://a/x", "redis://%zz@a", "redis://%4@a"]
        {
            assert!(Target::default().apply_uri(wrong, Tls::default()).is_err(), "{wrong}");
        }
    }
}

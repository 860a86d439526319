//! What a run is to do: whom to talk to, what to send, how much and how fast.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use net::BackendChoice;

use crate::BenchError;
use crate::workload::Workload;

/// A whole run of one workload against one server.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The server and how to talk to it.
    pub target: Target,
    /// What to send.
    pub workload: Workload,
    /// How much and how fast.
    pub load: Load,
    /// What to tell while it runs.
    pub watch: Watch,
}

/// The server and how to talk to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is.
    pub endpoint: Endpoint,
    /// The ACL user; the default user when absent.
    pub user: Option<String>,
    /// The password; no AUTH is sent when absent.
    pub password: Option<String>,
    /// The database that each connection selects.
    pub db: u32,
    /// Whether connections speak RESP3.
    pub resp3: bool,
    /// TLS over TCP.
    pub tls: Option<Tls>,
    /// The endpoint is a node of a cluster: its slots map is asked for, and each request goes to
    /// the node that serves its key.
    pub cluster: bool,
    /// Connections ask the server to tell them of changes to what they have read (CLIENT TRACKING).
    pub tracking: bool,
}

/// How to speak TLS.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates of the authorities that the server's may come from, as PEM.
    pub ca: Option<PathBuf>,
    /// A folder of such files.
    pub ca_dir: Option<PathBuf>,
    /// Take any certificate of the server when there is no `ca`. Without all three, the system's
    /// authorities are trusted.
    pub insecure: bool,
    /// The client's certificate and its key, as PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate; the host when absent.
    pub server_name: Option<String>,
    /// Ciphers of TLS 1.2 by OpenSSL's names, joined by colons, the preferred
    /// first; all when absent.
    pub ciphers: Option<String>,
    /// The same for TLS 1.3.
    pub ciphersuites: Option<String>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP; the host may be a name.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// `127.0.0.1:6379`, or the path.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Default for Target {
    /// `127.0.0.1:6379`, no password, database 0, RESP2.
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
    /// Takes what a URI says, `redis://user:password@host:port/db`; all but the scheme may be left
    /// out, and with the scheme `rediss` it is TLS with the settings of `tls`. `Err` is one line.
    pub fn apply_uri(&mut self, uri: &str, tls: Tls) -> Result<(), BenchError> {
        let wrong = || BenchError::Usage(format!("{uri:?} is no URI: redis://user:password@host:port/db is"));
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
            return Err(BenchError::Usage("a URI names no Unix socket: give -u or -s".to_owned()));
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

/// The text with `%41` and its like replaced by the bytes they stand for.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// How much and how fast.
#[derive(Clone, Debug)]
pub struct Load {
    /// Threads of the load generator; at most one per connection is started.
    pub threads: usize,
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests sent ahead of their replies on one connection.
    pub pipeline: usize,
    /// When it ends.
    pub limit: Limit,
    /// Load before the measured part.
    pub warm_up: Duration,
    /// Requests per second on a schedule; `None` sends as soon as replies have come.
    pub rate: Option<f64>,
    /// A new connection for each request.
    pub reconnect: bool,
    /// Whether replies to reads are compared with what the workload writes.
    pub verify: bool,
    /// How the load generator talks to the kernel.
    pub backend: BackendChoice,
    /// How long a thread with many busy connections waits for further replies when one has come, at
    /// most; 0 takes each at once. A closed loop only.
    pub gather_us: u32,
    /// How long the server may be silent while requests wait for it; then the run has failed.
    pub reply_within: Duration,
    /// Seed of all that is drawn at random; workloads of different names draw
    /// different sequences from it.
    pub seed: u64,
}

impl Default for Load {
    /// redis-benchmark's: 50 connections, one thread, no pipelining, 100,000 requests.
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

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After so many requests of the measured part.
    Requests(u64),
    /// After so long.
    Duration(Duration),
}

/// What to look at and show while a run lasts.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The server's process, to read its CPU time and memory from /proc.
    pub server_pid: Option<u32>,
    /// Shows a progress line on standard error, if that is a terminal.
    pub progress: bool,
    /// Prints the server's errors.
    pub errors: Option<Arc<ErrorLines>>,
    /// Ends the run with what was measured once it is set, by a signal handler for example.
    pub interrupt: Option<Arc<AtomicBool>>,
}

/// The server's errors on standard output, at most one a second of a run, as redis-benchmark's `-e`
/// shows them. Any thread.
#[derive(Debug, Default)]
pub struct ErrorLines {
    /// The second of the last one, from 1 on.
    shown_in: AtomicU64,
}

impl ErrorLines {
    /// Prints an error that came so long after the run began, unless one was
    /// printed in the same second.
    pub fn show(&self, text: &[u8], now_ns: u64) {
        let second = now_ns / 1_000_000_000 + 1;
        // Relaxed: nothing else depends on it; one thread alone finds the second changed.
        if self.shown_in.swap(second, Relaxed) != second {
            // Where nobody reads standard output, nobody misses a line.
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

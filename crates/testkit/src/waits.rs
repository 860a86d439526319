//! Measures the lateness of blocking commands: the time from the end of the requested timeout to
//! the reply.
//!
//! Each connection is a thread that sends a command with a random timeout and blocks in its socket.
//! It measures the time from before the sending of the request until the reply is read. No element
//! ever arrives for these commands, so each lasts until its timeout. CLIENT PAUSE is measured, too:
//! it delays the requests of all connections. They are sent after the reply to CLIENT PAUSE, and
//! each counts as one wait, measured from before CLIENT PAUSE is sent.
//!
//! Timeouts in seconds have six digits after the decimal point. A server may round them to
//! milliseconds, but only upwards.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use resp::encode_request;

use crate::client::{Address, Client};
use crate::rng::Rng;

/// The range of timeouts in microseconds. The lowest is the shortest timeout that all commands
/// accept.
const TIMEOUT_US: std::ops::Range<usize> = 1_000..40_000;
/// The read timeout for a reply: many times the usual time on a busy machine.
const REPLY_LIMIT: Duration = Duration::from_secs(300);
/// Number of requests in one pipeline of a client that makes load.
const LOAD_PIPELINE: usize = 64;
/// Number of keys that one client of the background load writes.
const LOAD_KEYS: usize = 10_000;

/// A blocking command that is measured, or a mode of CLIENT PAUSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The name of the command, and of the mode of CLIENT PAUSE.
    pub name: &'static str,
    /// The words of the request; `S` stands for the timeout in seconds, `MS` for milliseconds. For
    /// CLIENT PAUSE they are the words of the request that it delays.
    words: &'static [&'static str],
    /// The mode of CLIENT PAUSE; `None` for a command that blocks by itself.
    pause: Option<&'static str>,
}

const fn command(name: &'static str, words: &'static [&'static str]) -> Kind {
    Kind { name, words, pause: None }
}

/// All blocking commands and modes of CLIENT PAUSE that are measured.
pub const KINDS: &[Kind] = &[
    command("BLPOP", &["BLPOP", "none", "S"]),
    command("BRPOP", &["BRPOP", "none", "none too", "S"]),
    command("BLMOVE", &["BLMOVE", "none", "to", "LEFT", "RIGHT", "S"]),
    command("BRPOPLPUSH", &["BRPOPLPUSH", "none", "to", "S"]),
    command("BLMPOP", &["BLMPOP", "S", "1", "none", "LEFT"]),
    command("BZPOPMIN", &["BZPOPMIN", "none", "S"]),
    command("BZPOPMAX", &["BZPOPMAX", "none", "S"]),
    command("BZMPOP", &["BZMPOP", "S", "1", "none", "MIN"]),
    command("XREAD", &["XREAD", "BLOCK", "MS", "STREAMS", "none", "$"]),
    command("XREADGROUP", &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "MS", "STREAMS", "stream", ">"]),
    command("WAIT", &["WAIT", "1", "MS"]),
    command("WAITAOF", &["WAITAOF", "0", "1", "MS"]),
    Kind { name: "CLIENT PAUSE ALL", words: &["GET", "k"], pause: Some("ALL") },
    Kind { name: "CLIENT PAUSE WRITE", words: &["SET", "k", "v"], pause: Some("WRITE") },
];

impl Kind {
    /// Returns the bytes of a request, and the timeout that it contains. A timeout in milliseconds
    /// is `timeout_us` rounded down.
    fn request(&self, timeout_us: usize) -> (Vec<u8>, Duration) {
        let mut asked = Duration::from_micros(timeout_us as u64);
        let words = self.words.iter().map(|&word| match word {
            "S" => format!("{:.6}", asked.as_secs_f64()),
            "MS" => {
                asked = Duration::from_millis(timeout_us as u64 / 1_000);
                asked.as_millis().to_string()
            }
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        let mut bytes = Vec::new();
        encode_request(&words, &mut bytes);
        (bytes, asked)
    }
}

/// The settings for measuring one kind of blocking command.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The address of the server; none of the keys of blocking commands exist.
    pub address: Address,
    /// The number of connections, each a thread of this process.
    pub connections: usize,
    /// The number of blocking commands that each connection sends.
    pub waits: usize,
    /// The number of clients that send pipelines of writes during the measurement.
    pub load_clients: usize,
    /// The seed from which the timeouts of blocking commands are drawn.
    pub seed: u64,
}

/// The measured waits of one kind of blocking command.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The microseconds by which each blocking command ended later than requested, in ascending
    /// order. Negative for a command that ended early.
    pub late_us: Vec<i64>,
}

impl Report {
    /// Returns the number of blocking commands that ended before their timeout.
    pub fn early(&self) -> usize {
        self.late_us.partition_point(|&late_us| late_us < 0)
    }

    /// Returns a percentile of the lateness in milliseconds: `percent` percent of the blocking
    /// commands are at most this late.
    fn late_ms(&self, percent: f64) -> f64 {
        let last = self.late_us.len().saturating_sub(1);
        let at = (last as f64 * percent / 100.0) as usize;
        self.late_us.get(at).map_or(0.0, |&late_us| late_us as f64 / 1_000.0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [min, median, p99, max] = [0.0, 50.0, 99.0, 100.0].map(|percent| self.late_ms(percent));
        write!(
            f,
            "{} waits, {} early; later than asked for by {min:.3} ms at least, ",
            self.late_us.len(),
            self.early()
        )?;
        write!(f, "{median:.1} (median), {p99:.1} (99 %), {max:.1} at most")
    }
}

/// Measures how late the waits of one blocking command end.
///
/// # Panics
/// Panics when the server closes a connection or answers with an error.
pub fn run(waits: &Waits, kind: &Kind) -> Report {
    let mut admin = connect(&waits.address);
    // The group already exists after the first kind.
    admin.command(&["XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM"]);
    let is_over = AtomicBool::new(false);
    let mut late_us = thread::scope(|scope| {
        for client in 0..waits.load_clients {
            let is_over = &is_over;
            scope.spawn(move || load(&waits.address, client, is_over));
        }
        let late_us = match kind.pause {
            None => wait_by_itself(waits, kind),
            Some(mode) => pause(waits, kind, mode),
        };
        is_over.store(true, Relaxed);
        late_us
    });
    late_us.sort_unstable();
    Report { late_us }
}

/// Opens a connection to the server, with a long read timeout.
fn connect(address: &Address) -> Client {
    let mut client = Client::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    client.set_read_timeout(REPLY_LIMIT);
    client
}

/// Returns the lateness of a blocking command in microseconds, now that its reply has arrived.
/// `since` is its start, `asked` its timeout.
fn late_us(since: Instant, asked: Duration) -> i64 {
    since.elapsed().as_micros() as i64 - asked.as_micros() as i64
}

/// Sends a request and reads its reply, which must not be an error.
fn exchange(client: &mut Client, request: &[u8]) {
    client.send(request).unwrap_or_else(|error| panic!("sending a request: {error}"));
    let reply = client.read().unwrap_or_else(|error| panic!("reading a reply: {error}"));
    assert!(!reply.is_error(), "{reply}");
}

/// Sends blocking commands on all connections. Returns the lateness of each, in microseconds.
fn wait_by_itself(waits: &Waits, kind: &Kind) -> Vec<i64> {
    let connection = |number: usize| {
        let mut rng = Rng::new(waits.seed ^ number as u64);
        let mut client = connect(&waits.address);
        let mut one = || {
            let (request, asked) = kind.request(TIMEOUT_US.start + rng.below(TIMEOUT_US.len()));
            let since = Instant::now();
            exchange(&mut client, &request);
            late_us(since, asked)
        };
        (0..waits.waits).map(|_| one()).collect()
    };
    on_all_connections(waits.connections, connection)
}

/// Pauses all connections by CLIENT PAUSE repeatedly. Returns the lateness of all requests that it
/// delayed, in microseconds.
fn pause(waits: &Waits, kind: &Kind, mode: &str) -> Vec<i64> {
    // All connections begin a round together, and end it together.
    let round = Barrier::new(waits.connections);
    let paused = Mutex::new((Instant::now(), Duration::ZERO));
    let connection = |number: usize| {
        let mut rng = Rng::new(waits.seed);
        let mut client = connect(&waits.address);
        let (request, _) = kind.request(0);
        let mut one = || {
            if number == 0 {
                let ms = (TIMEOUT_US.start + rng.below(TIMEOUT_US.len())) / 1_000;
                let since = Instant::now();
                let reply = client.command(&["CLIENT", "PAUSE", &ms.to_string(), mode]);
                assert!(!reply.is_error(), "{reply}");
                *paused.lock().expect("nobody panicked") = (since, Duration::from_millis(ms as u64));
            }
            round.wait();
            let (since, asked) = *paused.lock().expect("nobody panicked");
            exchange(&mut client, &request);
            let late_us = late_us(since, asked);
            round.wait();
            late_us
        };
        (0..waits.waits).map(|_| one()).collect()
    };
    on_all_connections(waits.connections, connection)
}

/// Runs `work` on one thread for each connection, with the connection's number, and concatenates
/// the results.
fn on_all_connections(connections: usize, work: impl Fn(usize) -> Vec<i64> + Sync) -> Vec<i64> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..connections).map(|number| scope.spawn(move || work(number))).collect();
        running
            .into_iter()
            .flat_map(|thread| thread.join().expect("a connection failed, as said above"))
            .collect()
    })
}

/// Sends pipelines of writes until the measurement is over.
fn load(address: &Address, client: usize, is_over: &AtomicBool) {
    let mut rng = Rng::new(client as u64);
    let mut connection = connect(address);
    while !is_over.load(Relaxed) {
        let commands: Vec<Vec<String>> = (0..LOAD_PIPELINE)
            .map(|_| {
                let key = format!("load:{client}:{}", rng.below(LOAD_KEYS));
                match rng.below(4) {
                    0 => vec!["GET".into(), key],
                    1 => vec!["RPUSH".into(), format!("list:{client}"), key],
                    2 => vec!["LPOP".into(), format!("list:{client}")],
                    _ => vec!["SET".into(), key, "a value".into()],
                }
            })
            .collect();
        connection.pipeline(&commands).unwrap_or_else(|error| panic!("making load: {error}"));
    }
}

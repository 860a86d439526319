//! A crowd: thousands of connections, half of them well-behaved and half misbehaving.
//!
//! The well-behaved clients take turns; half of them use TLS. Each sends SET or GET of its own key
//! and must receive the right reply. The misbehaving half consists of equal parts, one for each of
//! [`KINDS`]:
//!
//! - connect and say nothing,
//! - send a request one byte at a time,
//! - flood the server with requests and read nothing,
//! - authenticate, ask for long replies and read nothing,
//! - close the connection with a reset in the middle of a request,
//! - guess passwords,
//! - send the beginning of a TLS handshake one byte at a time,
//! - begin TLS handshakes for which the server must sign, and do not finish them.
//!
//! The server has a password. Of the misbehaving half, only the connections that ask for long
//! replies use it.
//!
//! The latency of the well-behaved half is measured three times: alone, while the other half
//! attacks another server on this machine, and while it attacks the same server. The difference
//! between the second and the first measurement is caused by the machine: its processors, its
//! scheduler, its kernel. The difference between the third and the second is caused by the server.
//!
//! Conditions that must hold: every reply to the well-behaved half is right. The server never holds
//! more memory than [`Crowd::resident_bytes_max`]. The 99th percentile of the third measurement is
//! within the limit of [`Crowd::p99_factor_max`]. At the end no connection remains.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use resp::encode_request;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::setpriority_process;

use super::encryption::Encryption;
use super::{checker, resident_bytes_max};
use crate::client::{Address, Client};

/// The password that a server under attack must require.
pub const PASSWORD: &str = "of-the-good-half";

/// Number of threads that run the well-behaved clients.
const GOOD_THREADS: usize = 4;
/// Pause of a thread of well-behaved clients between two requests, so that the server is not fully
/// loaded.
const GOOD_PAUSE: Duration = Duration::from_micros(300);
/// Maximum time for which a well-behaved client waits for a reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time added to the limit of the 99th percentile: the scheduler of a busy machine may delay the
/// slowest of 100 requests by this time.
const P99_SLACK: Duration = Duration::from_millis(2);
/// Duration of one round, in which a thread runs each of its misbehaving connections once.
const ROUND: Duration = Duration::from_secs(1);
/// The nice value of the misbehaving threads: the lowest priority.
const LOWEST_PRIORITY: i32 = 19;
/// Maximum time until the server has noticed that all misbehaving connections are closed.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A server without keys whose password is [`PASSWORD`].
#[derive(Debug)]
pub struct Target {
    /// The address on which the server accepts plain TCP.
    pub address: SocketAddr,
    /// The certificate of the server, and the address on which it accepts TLS.
    pub encryption: Encryption,
}

/// The settings of a run of the crowd of connections.
#[derive(Debug)]
pub struct Crowd {
    /// The server whose latency is measured.
    pub server: Target,
    /// Another server with the same settings, which the misbehaving half attacks in the second
    /// measurement.
    pub elsewhere: Target,
    /// The process ID of the measured server.
    pub pid: u32,
    /// The number of connections of both halves together.
    pub connections: usize,
    /// The duration of the third measurement, in which the measured server is attacked. The first
    /// and the second measurement take a third of it each.
    pub time: Duration,
    /// The maximum resident memory that the measured server may hold, in bytes.
    pub resident_bytes_max: u64,
    /// The limit of the 99th percentile of the third measurement is this factor times that of the
    /// second measurement, plus 2 ms. `None` sets no limit.
    pub p99_factor_max: Option<f64>,
}

/// The results of a run of the crowd: latencies and counters.
#[derive(Clone, Debug)]
pub struct Report {
    alone_us: Histogram<u64>,
    elsewhere_us: Histogram<u64>,
    beside_us: Histogram<u64>,
    deeds: u64,
    closed: u64,
    resident_bytes: u64,
}

impl Report {
    /// Returns the 99th percentile of the third measurement, divided by that of the second.
    fn p99_factor(&self) -> f64 {
        let p99 = |times: &Histogram<u64>| times.value_at_quantile(0.99) as f64;
        p99(&self.beside_us) / p99(&self.elsewhere_us).max(1.0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |times: &Histogram<u64>| {
            let ms = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
            let (p50, p99, p999) = (ms(0.5), ms(0.99), ms(0.999));
            format!("p50 {p50:.2} ms, p99 {p99:.2}, p99.9 {p999:.2}")
        };
        write!(
            f,
            "{} requests alone: {}; {} with misdeeds elsewhere: {}; {} beside {} misdeeds: {} (p99 {:.2} times); \
             {} of the others were closed, at most {} MB resident",
            self.alone_us.len(),
            times(&self.alone_us),
            self.elsewhere_us.len(),
            times(&self.elsewhere_us),
            self.beside_us.len(),
            self.deeds,
            times(&self.beside_us),
            self.p99_factor(),
            self.closed,
            self.resident_bytes >> 20
        )
    }
}

/// Runs the three measurements with the crowd, and returns their results.
///
/// # Panics
/// Panics when a condition of the module's list does not hold.
pub fn run(crowd: &Crowd) -> Report {
    let good = crowd.connections / 2 / GOOD_THREADS;
    let mut halves: Vec<Vec<Good>> = (0..GOOD_THREADS)
        .map(|thread| (0..good).map(|at| Good::new(&crowd.server, thread, at)).collect())
        .collect();
    let alone_us = measure(&mut halves, crowd.time / 3);
    let [elsewhere, here] = [BadStats::default(), BadStats::default()];
    let elsewhere_us = beside(&mut halves, crowd, &crowd.elsewhere, crowd.time / 3, &elsewhere);
    let beside_us = beside(&mut halves, crowd, &crowd.server, crowd.time, &here);
    drop(halves);
    check_all_are_gone(crowd);
    let report = Report {
        alone_us,
        elsewhere_us,
        beside_us,
        deeds: here.deeds.into_inner(),
        closed: here.closed.into_inner(),
        resident_bytes: resident_bytes_max(crowd.pid),
    };
    assert!(report.resident_bytes <= crowd.resident_bytes_max, "too much memory: {report}");
    if let Some(factor) = crowd.p99_factor_max {
        let slowest =
            report.elsewhere_us.value_at_quantile(0.99) as f64 * factor + P99_SLACK.as_micros() as f64;
        assert!(report.beside_us.value_at_quantile(0.99) as f64 <= slowest, "the good half wait: {report}");
    }
    report
}

/// The counters of the misbehaving half: its turns, and the connections that the server has closed.
/// Also holds the flag that ends it.
#[derive(Default)]
struct BadStats {
    deeds: AtomicU64,
    closed: AtomicU64,
    is_over: AtomicBool,
}

/// Runs the well-behaved half for `time`. Returns the latency of each request.
fn measure(halves: &mut [Vec<Good>], time: Duration) -> Histogram<u64> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let work = |clients: &mut Vec<Good>| {
            let mut times_us = checker::times();
            for turn in (0..).take_while(|_| Instant::now() < until) {
                let at = turn % clients.len();
                times_us.saturating_record(clients[at].ask().as_micros() as u64);
                std::thread::sleep(GOOD_PAUSE);
            }
            times_us
        };
        let threads: Vec<_> = halves.iter_mut().map(|clients| scope.spawn(move || work(clients))).collect();
        let mut all = checker::times();
        for thread in threads {
            all.add(thread.join().expect("its panic says why")).expect("all have one range");
        }
        all
    })
}

/// Runs the well-behaved half for `time` while the misbehaving half attacks `target`. Returns the
/// latency of each request of the well-behaved half.
fn beside(
    halves: &mut [Vec<Good>],
    crowd: &Crowd,
    target: &Target,
    time: Duration,
    done: &BadStats,
) -> Histogram<u64> {
    std::thread::scope(|scope| {
        for kind in KINDS {
            let others = Others { target, kind, done };
            scope.spawn(move || others.run(crowd.connections / 2 / KINDS.len()));
        }
        let times = measure(halves, time);
        done.is_over.store(true, Relaxed);
        times
    })
}

/// The connection of a well-behaved client: plain TCP or TLS.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A well-behaved client: its connection, its key and its random choices.
struct Good {
    stream: Box<dyn Stream>,
    key: String,
    value: u64,
}

impl Good {
    fn new(server: &Target, thread: usize, at: usize) -> Self {
        let is_encrypted = at % 2 == 1;
        let address = if is_encrypted { server.encryption.address() } else { server.address };
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a socket takes a timeout");
        socket.set_nodelay(true).expect("a socket of TCP");
        let stream: Box<dyn Stream> =
            if is_encrypted { Box::new(server.encryption.over(socket)) } else { Box::new(socket) };
        let mut good = Self { stream, key: format!("good:{thread}:{at}"), value: 0 };
        good.exchange(&["AUTH", PASSWORD], b"+OK\r\n");
        good
    }

    /// Sets the client's own key to the next number, or reads the key and checks it. Returns the
    /// latency.
    fn ask(&mut self) -> Duration {
        let since = Instant::now();
        let key = self.key.clone();
        if self.value.is_multiple_of(2) {
            let text = (self.value + 1).to_string();
            self.exchange(&["SET", &key, &text], b"+OK\r\n");
        } else {
            let text = self.value.to_string();
            self.exchange(&["GET", &key], format!("${}\r\n{text}\r\n", text.len()).as_bytes());
        }
        self.value += 1;
        since.elapsed()
    }

    fn exchange(&mut self, words: &[&str], expected: &[u8]) {
        let mut bytes = Vec::new();
        encode_request(words, &mut bytes);
        self.stream.write_all(&bytes).expect("the good are not closed");
        let mut reply = vec![0; expected.len()];
        self.stream.read_exact(&mut reply).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(reply, expected, "{words:?}");
    }
}

/// The action of a misbehaving connection in each of its turns, on a non-blocking socket. An error
/// other than `WouldBlock` closes the connection.
type BadAction = fn(&mut TcpStream, turn: usize) -> io::Result<()>;

/// A kind of misbehaving connection.
enum Kind {
    /// Keeps its connection, and runs the action on it in each turn.
    Keeps(BadAction),
    /// Opens a connection in each turn, runs the action and closes the connection.
    IsBrief(BadAction),
    /// Sends the beginning of a TLS handshake, one byte a turn, and never its end.
    ShakesSlowly,
    /// Begins a TLS handshake and closes with a reset in the next turn, after the server has
    /// signed.
    ShakesInVain,
}

/// All kinds of misbehaving connections of the crowd.
static KINDS: &[Kind] = &[
    Kind::Keeps(say_nothing),
    Kind::Keeps(drip),
    Kind::Keeps(flood),
    Kind::Keeps(ask_and_not_read),
    Kind::IsBrief(reset),
    Kind::Keeps(guess),
    Kind::ShakesSlowly,
    Kind::ShakesInVain,
];

/// The misbehaving connections of one kind, which one thread runs.
struct Others<'r> {
    target: &'r Target,
    kind: &'static Kind,
    done: &'r BadStats,
}

impl Others<'_> {
    /// Runs `count` misbehaving connections by turns until the run is over. A connection that the
    /// server has closed is opened again in its next turn.
    fn run(&self, count: usize) {
        // Lowers the priority of this thread alone. Misbehaving clients on another machine would
        // not use the processors of the server and of the well-behaved clients. With a low
        // priority, they take little of these processors here, so that well-behaved clients wait
        // mainly for the server.
        setpriority_process(None, LOWEST_PRIORITY).expect("a thread may always give way");
        let mut streams: Vec<Option<(TcpStream, usize)>> = Vec::new();
        streams.resize_with(count, || None);
        let pause = ROUND / count.max(1) as u32;
        while !self.done.is_over.load(Relaxed) {
            for place in &mut streams {
                if self.done.is_over.load(Relaxed) {
                    return;
                }
                std::thread::sleep(pause);
                if place.is_none() {
                    // If the backlog is full or no port is free, the next turn tries again.
                    *place = self.connect().ok().map(|stream| (stream, 0));
                }
                let Some((stream, turn)) = place else { continue };
                let done = self.take_turn(stream, *turn);
                *turn += 1;
                self.done.deeds.fetch_add(1, Relaxed);
                match done {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                        self.done.closed.fetch_add(1, Relaxed);
                        *place = None;
                    }
                    Ok(Next::HangUp) => *place = None,
                    Ok(Next::Stay) | Err(_) => {}
                }
            }
        }
    }

    fn take_turn(&self, stream: &mut TcpStream, turn: usize) -> io::Result<Next> {
        let hello = self.target.encryption.hello();
        match self.kind {
            Kind::Keeps(deed) => deed(stream, turn)?,
            Kind::IsBrief(deed) => {
                deed(stream, turn)?;
                return Ok(Next::HangUp);
            }
            Kind::ShakesSlowly => match hello.get(turn) {
                Some(byte) if turn + 1 < hello.len() => stream.write_all(&[*byte])?,
                _ => look(stream)?,
            },
            Kind::ShakesInVain if turn == 0 => stream.write_all(hello)?,
            Kind::ShakesInVain => {
                set_socket_linger(&*stream, Some(Duration::ZERO))?;
                return Ok(Next::HangUp);
            }
        }
        Ok(Next::Stay)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let address = match self.kind {
            Kind::Keeps(_) | Kind::IsBrief(_) => self.target.address,
            Kind::ShakesSlowly | Kind::ShakesInVain => self.target.encryption.address(),
        };
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// The treatment of a misbehaving connection after its turn: it stays open or is closed.
enum Next {
    Stay,
    HangUp,
}

/// Checks that a connection is open. Returns an error if the server has closed it. Leaves replies
/// unread.
fn look(stream: &TcpStream) -> io::Result<()> {
    match stream.peek(&mut [0]) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        other => other.map(|_| ()),
    }
}

/// Sends nothing; checks only that the connection is open.
fn say_nothing(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    look(stream)
}

/// Sends one byte of a request that is so long that it never becomes complete.
fn drip(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    const REQUEST: &[u8] = b"*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$16000\r\n";
    let byte = REQUEST.get(turn).copied().unwrap_or(b'x');
    stream.write_all(&[byte])
}

/// Sends 200 requests without authentication and reads no reply.
fn flood(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    stream.write_all(&b"*1\r\n$4\r\nPING\r\n".repeat(200))
}

/// Authenticates in its first turn. Sends requests with long replies and reads nothing.
fn ask_and_not_read(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    if turn == 0 {
        encode_request(&["AUTH", PASSWORD], &mut bytes);
        encode_request(&["SET", "long", &"x".repeat(50_000)], &mut bytes);
    }
    (0..5).for_each(|_| encode_request(&["GET", "long"], &mut bytes));
    stream.write_all(&bytes)
}

/// Sends a part of a request, and sets the option by which the socket sends a reset when it is
/// closed.
fn reset(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    stream.write_all(b"*2\r\n$4\r\nAUTH\r\n$8\r\nsec")?;
    Ok(set_socket_linger(&*stream, Some(Duration::ZERO))?)
}

/// Sends AUTH with a wrong password in each turn, and reads the reply.
fn guess(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode_request(&["AUTH", "default", &turn.to_string()], &mut bytes);
    stream.write_all(&bytes)?;
    match stream.read(&mut [0; 4096]) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        other => other.map(|_| ()),
    }
}

/// Waits until the server has closed all connections of the crowd, then deletes all keys.
///
/// # Panics
///
/// Panics when connections remain after [`GONE_WITHIN`].
fn check_all_are_gone(crowd: &Crowd) {
    let mut control = Client::connect(&Address::Tcp(crowd.server.address)).expect("the server listens");
    control.command(&["AUTH", PASSWORD]);
    let begun = Instant::now();
    while super::info(&mut control, "connected_clients") > 1 {
        assert!(begun.elapsed() < GONE_WITHIN, "clients are left: {}", control.command(&["CLIENT", "LIST"]));
        std::thread::sleep(Duration::from_millis(20));
    }
    control.command(&["FLUSHALL"]);
}

//! A crowd: thousands of connections, of which half behave and half do not.
//!
//! The good half take turns, every second one over TLS: each sends SET or GET of a key of its own
//! and must be answered rightly. The other half, in equal parts by [`KINDS`], connect and say
//! nothing, send a request a byte at a time, flood the server and read nothing, ask for much and
//! read nothing, hang up in the middle with a reset, guess passwords; send the beginning of a TLS
//! handshake a byte at a time, or have the server sign for handshakes that they do not end. The
//! server has a password; only the good half know it.
//!
//! The good half are measured three times: alone, while the others do the same to another server on
//! this machine, and beside them. What the second takes longer than the first is the machine's
//! share: its processors, its scheduler, its kernel. What the third takes longer than the second is
//! the server's. What must hold: every answer to the good is right, the server never holds more
//! memory than [`Crowd::resident_bytes_max`], and, where [`Crowd::p99_factor_max`] asks for it, 99
//! of 100 of their requests take at most so many times as long as while the others were busy
//! elsewhere. In the end nothing is left of anybody.

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

/// The password of the server.
pub const PASSWORD: &str = "of-the-good-half";

/// Threads that work for the good half.
const GOOD_THREADS: usize = 4;
/// Between two requests of such a thread: the server is not at its limit.
const GOOD_PAUSE: Duration = Duration::from_micros(300);
/// No answer may take longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Beside the factor, what the scheduler of a busy machine may add to the slowest of 100 requests.
const P99_SLACK: Duration = Duration::from_millis(2);
/// How long a thread of the other half takes for all of its connections once.
const ROUND: Duration = Duration::from_secs(1);
/// The priority of the threads of the other half.
const LOWEST_PRIORITY: i32 = 19;
/// All of the other half gone, the server may take so long to notice.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A server, without keys, with [`PASSWORD`].
#[derive(Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it speaks TLS with.
    pub encryption: Encryption,
}

/// What to run.
#[derive(Debug)]
pub struct Crowd {
    /// The server that is measured.
    pub server: Target,
    /// One like it, to misbehave to.
    pub elsewhere: Target,
    /// The process of the first.
    pub pid: u32,
    /// How many connections.
    pub connections: usize,
    /// How long the good half are measured beside the others; a third of it each, alone and while
    /// the others are elsewhere.
    pub time: Duration,
    /// What the server may hold in memory at the most.
    pub resident_bytes_max: u64,
    /// How many times as long 99 of 100 requests may take; any number of times if `None`.
    pub p99_factor_max: Option<f64>,
}

/// What was measured.
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
    /// The 99th percentile beside the others, as a multiple of that while they were elsewhere.
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

/// Runs the crowd.
///
/// # Panics
/// When something does not hold that the module says.
pub fn run(crowd: &Crowd) -> Report {
    let good = crowd.connections / 2 / GOOD_THREADS;
    let mut halves: Vec<Vec<Good>> = (0..GOOD_THREADS)
        .map(|thread| (0..good).map(|at| Good::new(&crowd.server, thread, at)).collect())
        .collect();
    let alone_us = measure(&mut halves, crowd.time / 3);
    let [elsewhere, here] = [Misdeeds::default(), Misdeeds::default()];
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

/// What the other half have done.
#[derive(Default)]
struct Misdeeds {
    deeds: AtomicU64,
    closed: AtomicU64,
    is_over: AtomicBool,
}

/// Has the good half work for so long; how long each request took.
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

/// The same while the other half do theirs to `target`.
fn beside(
    halves: &mut [Vec<Good>],
    crowd: &Crowd,
    target: &Target,
    time: Duration,
    done: &Misdeeds,
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

/// What the good speak over.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// One of the good half.
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
        socket.set_read_timeout(Some(ANSWER_WITHIN)).expect("a socket takes a timeout");
        socket.set_nodelay(true).expect("a socket of TCP");
        let stream: Box<dyn Stream> =
            if is_encrypted { Box::new(server.encryption.over(socket)) } else { Box::new(socket) };
        let mut good = Self { stream, key: format!("good:{thread}:{at}"), value: 0 };
        good.exchange(&["AUTH", PASSWORD], b"+OK\r\n");
        good
    }

    /// Sets its key to another number, or reads it; how long that took.
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

/// What one of the other half does in its turn, on a socket that does not block; an error ends it.
type Deed = fn(&mut TcpStream, turn: usize) -> io::Result<()>;

/// A kind of the other half.
enum Kind {
    /// Does this in each turn.
    Keeps(Deed),
    /// Does this in its first turn, and the connection is made anew for the next.
    IsBrief(Deed),
    /// Sends the beginning of a TLS handshake a byte a turn, and never its end.
    ShakesSlowly,
    /// Begins a TLS handshake and hangs up in the next turn: the server has signed by then.
    ShakesInVain,
}

/// All kinds.
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

/// The other half of one kind, in a thread.
struct Others<'r> {
    target: &'r Target,
    kind: &'static Kind,
    done: &'r Misdeeds,
}

impl Others<'_> {
    /// Has `count` connections do their deed in turn until the run is over. One that the server
    /// closed comes back in its next turn.
    fn run(&self, count: usize) {
        // Of this thread alone. Elsewhere they would not take the processors of the server and of
        // the good half, and what these wait for shall be the server.
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
                    // A full backlog, or no port that is free: the next turn.
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
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// What comes after a turn.
enum Next {
    Stay,
    HangUp,
}

/// Whether the server has closed the connection, whose replies stay unread.
fn look(stream: &TcpStream) -> io::Result<()> {
    match stream.peek(&mut [0]) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        other => other.map(|_| ()),
    }
}

/// Connects and says nothing.
fn say_nothing(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    look(stream)
}

/// A request a byte at a time, and never its end.
fn drip(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    const REQUEST: &[u8] = b"*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$16000\r\n";
    let byte = REQUEST.get(turn).copied().unwrap_or(b'x');
    stream.write_all(&[byte])
}

/// Requests without an end, and nothing is read, without a password.
fn flood(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    stream.write_all(&b"*1\r\n$4\r\nPING\r\n".repeat(200))
}

/// The same by one that has authenticated, with long replies.
fn ask_and_not_read(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    if turn == 0 {
        encode_request(&["AUTH", PASSWORD], &mut bytes);
        encode_request(&["SET", "long", &"x".repeat(50_000)], &mut bytes);
    }
    (0..5).for_each(|_| encode_request(&["GET", "long"], &mut bytes));
    stream.write_all(&bytes)
}

/// Hangs up in the middle of a request, with a reset.
fn reset(stream: &mut TcpStream, _turn: usize) -> io::Result<()> {
    stream.write_all(b"*2\r\n$4\r\nAUTH\r\n$8\r\nsec")?;
    Ok(set_socket_linger(&*stream, Some(Duration::ZERO))?)
}

/// Guesses the password, and reads what it is told.
fn guess(stream: &mut TcpStream, turn: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    encode_request(&["AUTH", "default", &turn.to_string()], &mut bytes);
    stream.write_all(&bytes)?;
    match stream.read(&mut [0; 4096]) {
        Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
        other => other.map(|_| ()),
    }
}

/// Waits until the server has let go of all.
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

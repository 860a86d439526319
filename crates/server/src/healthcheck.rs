//! `saker-server --healthcheck [FILE] [options]`: checks that a running server replies, for
//! containers and supervisors without a client. `--healthcheck=ready` checks that it also has its
//! data: a replica must follow its primary.
//!
//! The arguments are the file and options of the running server, which contain its addresses. The
//! password comes from the environment variable `REDISCLI_AUTH`, else from `requirepass`. With a
//! password the reply must be PONG. Without one, a server that requires a password counts as
//! healthy too, so that the check needs no secret.
//!
//! A replica that loads a snapshot of its primary, or refuses stale data, is healthy but not ready:
//! a restart would only make it begin again. [`judge`] asks such a server for its role.
//!
//! If the server listens with TLS only, the check presents the client certificate of the options.
//! It accepts only the server certificate that the options name.
//!
//! The addresses are checked in order, loopback first. The check of the next address begins when
//! one fails, or after [`NEXT_AFTER`], in parallel with the checks that have no reply yet. One
//! healthy reply is enough. Each address has its own thread, because connecting to a Unix socket
//! and resolving a name have no time limit. The process ends without waiting for these threads.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use resp::Value;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use server::config::{ConfigStore, apply, table};
use server::tls::settings::TlsSettings;

/// The state of a server for which a health check asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The check asks only for a reply of the server.
    Healthy,
    /// The check asks for a reply, and for the data: a replica must be in sync with its primary.
    Ready,
}

impl Asked {
    /// Returns the check that a flag requests; `None` if `arg` is no such flag. The flag must be
    /// the first argument of the program.
    pub fn of_flag(arg: &[u8]) -> Option<Self> {
        match arg {
            b"--healthcheck" => Some(Self::Healthy),
            b"--healthcheck=ready" => Some(Self::Ready),
            _ => None,
        }
    }
}

/// Maximum duration of the whole health check.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Time without a reply after which the health check also asks the next address.
const NEXT_AFTER: Duration = Duration::from_millis(500);
/// Maximum length of a reply in bytes: a status, an error, or the role.
const REPLY_LEN_BYTES_MAX: usize = 64 * 1024;

/// Checks the server that runs with these options, and prints the result.
pub fn run(store: &ConfigStore, asked: Asked) -> ExitCode {
    let password = std::env::var_os("REDISCLI_AUTH").map(OsStringExt::into_vec);
    let password = password.unwrap_or_else(|| table::security::REQUIREPASS.of(store).to_vec());
    match places(store).and_then(|places| check(places, asked, &password, TIME_MAX)) {
        Ok(()) => super::print(match asked {
            Asked::Healthy => "PONG",
            Asked::Ready => "ready",
        }),
        Err(problem) => {
            let state = match asked {
                Asked::Healthy => "healthy",
                Asked::Ready => "ready",
            };
            super::print_error(&format!("saker-server: not {state}: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// An address on which the checked server may listen.
#[derive(Clone, Debug)]
enum Place {
    /// An address or host name of `bind`, and the TCP port.
    Tcp(Vec<u8>, u16),
    /// An address or host name of `bind`, the TLS port, and the TLS configuration.
    Tls(Vec<u8>, u16, Arc<ClientConfig>),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(word, port) | Place::Tls(word, port, _) => match literal(word) {
                Some(ip) => SocketAddr::new(ip, *port).fmt(f),
                None => write!(f, "{}:{port}", word.escape_ascii()),
            },
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Returns the addresses that the options name, in the order in which they are checked.
fn places(store: &ConfigStore) -> Result<Vec<Place>, String> {
    let (port, tls_port) = (table::network::PORT.of(store), table::tls::PORT.of(store));
    let mut words: Vec<&Vec<u8>> =
        table::network::BIND.of(store).iter().filter(|word| !word.is_empty()).collect();
    words.sort_by_key(|word| !literal(word).is_some_and(|ip| ip.is_loopback()));
    let mut places: Vec<Place> = Vec::new();
    if port != 0 {
        places.extend(words.iter().map(|&word| Place::Tcp(word.clone(), port)));
    } else if tls_port != 0 {
        let config = Arc::new(TlsSettings::of(store).build_check()?);
        places.extend(words.iter().map(|&word| Place::Tls(word.clone(), tls_port, Arc::clone(&config))));
    }
    let socket = table::network::UNIXSOCKET.of(store);
    if !socket.as_os_str().is_empty() {
        places.push(Place::Unix(table::persistence::DIR.of(store).join(socket)));
    }
    Ok(places)
}

/// Returns the IP address to connect to for a word of `bind`; `None` if the word is a host name.
fn literal(word: &[u8]) -> Option<IpAddr> {
    let word = std::str::from_utf8(word.strip_prefix(b"-").unwrap_or(word)).ok()?;
    match word {
        "*" => Some(Ipv4Addr::LOCALHOST.into()),
        "::*" => Some(Ipv6Addr::LOCALHOST.into()),
        word => word.parse().ok().map(reachable),
    }
}

/// Returns the IP address to connect to if a server listens on `ip`: loopback for `0.0.0.0` and
/// `::`.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Checks the server's addresses until one gives a healthy reply, at most for `time_max`. An error
/// contains the problems of all addresses in one line.
fn check(places: Vec<Place>, asked: Asked, password: &[u8], time_max: Duration) -> Result<(), String> {
    if places.is_empty() {
        return Err("the configuration has neither a TCP address nor a Unix socket".into());
    }
    let deadline = Instant::now() + time_max;
    let (sender, answers) = mpsc::channel();
    let (mut to_ask, mut pending, mut problems) = (places.into_iter(), Vec::new(), Vec::new());
    loop {
        match to_ask.next() {
            Some(place) => {
                pending.push(place.clone());
                let (sender, password) = (sender.clone(), password.to_vec());
                let ask = move || {
                    let answer = place.ask(asked, &password);
                    // Sending fails if the check has ended already.
                    let _ = sender.send((place, answer));
                };
                let thread = std::thread::Builder::new().spawn(ask);
                thread.map_err(|error| format!("cannot start a thread: {error}"))?;
            }
            None if pending.is_empty() => return Err(problems.join("; ")),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let on_empty = if to_ask.len() > 0 { left.min(NEXT_AFTER) } else { left };
        match answers.recv_timeout(on_empty) {
            Ok((_, Ok(()))) => return Ok(()),
            Ok((place, Err(problem))) => {
                problems.push(format!("{place}: {problem}"));
                pending.retain(|other| other.to_string() != place.to_string());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(_) => {
                let silent = |place| format!("{place}: no answer within {} s", time_max.as_secs_f32());
                problems.extend(pending.iter().map(silent));
                return Err(problems.join("; "));
            }
        }
    }
}

impl Place {
    /// Checks that the server at this address gives a healthy reply. Waits without a time limit.
    fn ask(&self, asked: Asked, password: &[u8]) -> Result<(), String> {
        let words = |error: io::Error| error.to_string();
        match self {
            Place::Unix(path) => judge(UnixStream::connect(path).map_err(words)?, asked, password),
            Place::Tcp(word, port) => {
                judge(TcpStream::connect(address(word, *port)?).map_err(words)?, asked, password)
            }
            Place::Tls(word, port, config) => {
                let address = address(word, *port)?;
                let tls = ClientConnection::new(Arc::clone(config), address.ip().into());
                let tls = tls.map_err(|error| error.to_string())?;
                let stream = TcpStream::connect(address).map_err(words)?;
                judge(StreamOwned::new(tls, stream), asked, password)
            }
        }
    }
}

/// Returns the socket address to connect to for an address or host name of `bind`.
fn address(word: &Vec<u8>, port: u16) -> Result<SocketAddr, String> {
    let bound = apply::bind_addresses(std::slice::from_ref(word));
    let address = bound.ok().and_then(|bound| bound.first().copied()).ok_or("no such address")?;
    Ok(SocketAddr::new(reachable(address.ip), port))
}

/// Checks a server by its reply to PING and, if that does not decide, by its reply to ROLE. The
/// error text contains no control bytes, so that printing it to a terminal is safe.
fn judge(stream: impl Read + Write, asked: Asked, password: &[u8]) -> Result<(), String> {
    let mut talk = Talk { stream, input: Vec::new() };
    if !password.is_empty() {
        // The reply to AUTH is ignored: the reply to PING shows whether the password was correct.
        talk.request(&[b"AUTH", password])?;
    }
    let pong = talk.request(&[b"PING"])?;
    let is_waiting = match &pong {
        Value::Simple(word) if word == b"PONG" => false,
        Value::Error(line) if line.starts_with(b"LOADING") || line.starts_with(b"MASTERDOWN") => true,
        Value::Error(line) if password.is_empty() && line.starts_with(b"NOAUTH") => {
            return match asked {
                Asked::Healthy => Ok(()),
                Asked::Ready => Err("the server asks for a password, and the check has none".into()),
            };
        }
        _ => return Err(unexpected("PING", &pong)),
    };
    match asked {
        Asked::Healthy if !is_waiting => Ok(()),
        Asked::Healthy => match Role::of(&talk.request(&[b"ROLE"])?)? {
            Role::Primary => Err(unexpected("PING", &pong)),
            Role::Replica { .. } => Ok(()),
        },
        Asked::Ready if is_waiting => Err(unexpected("PING", &pong)),
        Asked::Ready => match Role::of(&talk.request(&[b"ROLE"])?)? {
            Role::Replica { link } if link != b"connected" => {
                Err(format!("the link to the primary is not up ({})", link.escape_ascii()))
            }
            Role::Primary | Role::Replica { .. } => Ok(()),
        },
    }
}

/// The role of the checked server, which its reply to ROLE states.
#[derive(Debug)]
enum Role {
    Primary,
    /// A replica, with the state of its link to the primary.
    Replica {
        link: Vec<u8>,
    },
}

impl Role {
    /// Returns the role that a reply to ROLE states. The error names an unexpected reply.
    fn of(reply: &Value) -> Result<Self, String> {
        let Value::Array(items) = reply else { return Err(unexpected("ROLE", reply)) };
        match (items.first().and_then(Value::as_bytes), items.get(3).and_then(Value::as_bytes)) {
            (Some(b"master"), _) => Ok(Self::Primary),
            (Some(b"slave"), Some(link)) => Ok(Self::Replica { link: link.to_vec() }),
            _ => Err(unexpected("ROLE", reply)),
        }
    }
}

/// Returns the text of a problem: `reply` to `command` is not that of a healthy server.
fn unexpected(command: &str, reply: &Value) -> String {
    match reply {
        Value::Simple(line) => format!("the reply to {command} was +{}", line.escape_ascii()),
        Value::Error(line) => format!("the reply to {command} was -{}", line.escape_ascii()),
        other => format!("the reply to {command} was {}", other.to_string().escape_debug()),
    }
}

/// A connection to the checked server.
struct Talk<S> {
    stream: S,
    /// The received bytes that do not form a complete reply yet.
    input: Vec<u8>,
}

impl<S: Read + Write> Talk<S> {
    /// Sends a request to the checked server, and returns its reply.
    fn request(&mut self, words: &[&[u8]]) -> Result<Value, String> {
        let mut request = Vec::new();
        resp::encode_request(words, &mut request);
        self.stream.write_all(&request).map_err(|error| error.to_string())?;
        let command = words.first().copied().unwrap_or_default().escape_ascii();
        loop {
            match resp::decode(&self.input) {
                Ok(Some((reply, len))) => {
                    self.input.drain(..len);
                    return Ok(reply);
                }
                Ok(None) if self.input.len() < REPLY_LEN_BYTES_MAX => {}
                _ => return Err(format!("the reply to {command} is malformed or too long")),
            }
            let mut part = [0; 512];
            match self.stream.read(&mut part).map_err(|error| error.to_string())? {
                0 => return Err(format!("the server closed the connection before its reply to {command}")),
                len => self.input.extend_from_slice(&part[..len]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A stream that returns the prepared replies of a server and ignores requests.
    struct Replies<'r>(&'r [u8]);

    impl Read for Replies<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            // One byte at a time: replies may arrive in pieces.
            let len = self.0.len().min(1);
            self.0.read(&mut into[..len])
        }
    }

    impl Write for Replies<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn judge_replies(replies: &str, asked: Asked, password: &str) -> Result<(), String> {
        judge(Replies(replies.as_bytes()), asked, password.as_bytes())
    }

    #[test]
    fn a_reply_to_ping_shows_a_healthy_server() {
        let check = |replies: &str, password: &str, expected: Result<(), &str>| {
            let judged = judge_replies(replies, Asked::Healthy, password);
            assert_eq!(judged, expected.map_err(str::to_owned), "{replies}");
        };
        let closed = "the server closed the connection before its reply to PING";
        check("+PONG\r\n", "", Ok(()));
        check("-NOAUTH Authentication required.\r\n", "", Ok(()));
        check("+OK\r\n+PONG\r\n", "a", Ok(()));
        check("-WRONGPASS\r\n-NOAUTH x\r\n", "a", Err("the reply to PING was -NOAUTH x"));
        check("+PONG", "", Err(closed));
        check("-ERR \x1b[31m\r\n", "", Err("the reply to PING was -ERR \\x1b[31m"));
        check("HTTP\r\n", "", Err("the reply to PING is malformed or too long"));
        check("-LOADING x\r\n-NOPERM\r\n", "", Err("the reply to ROLE was -NOPERM"));
    }

    const PRIMARY: &str = "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";

    fn replica(link: &str) -> String {
        format!("*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n${}\r\n{link}\r\n:-1\r\n", link.len())
    }

    #[test]
    fn a_replica_is_ready_in_sync_and_healthy_meanwhile() {
        let check = |pong: &str, role: &str, is_healthy: bool, is_ready: bool| {
            let replies = format!("{pong}\r\n{role}");
            let healthy = judge_replies(&replies, Asked::Healthy, "");
            let ready = judge_replies(&replies, Asked::Ready, "");
            assert_eq!(
                (healthy.is_ok(), ready.is_ok()),
                (is_healthy, is_ready),
                "{pong} {healthy:?} {ready:?}"
            );
        };
        check("+PONG", PRIMARY, true, true);
        check("+PONG", &replica("connected"), true, true);
        check("+PONG", &replica("sync"), true, false);
        check("-LOADING x", &replica("sync"), true, false);
        check("-MASTERDOWN x", &replica("connect"), true, false);
        check("-LOADING x", PRIMARY, false, false);
        check("-NOAUTH x", "", true, false);
        check("+PONG", "-NOPERM x\r\n", true, false);
        check("+PONG", "*1\r\n$8\r\nsentinel\r\n", true, false);
    }

    #[test]
    fn loopback_is_first_and_the_unix_socket_last() {
        let check = |bind: &[&str], port: &str, expected: &[&str]| {
            let mut store = ConfigStore::new(server::commands::is_command);
            let words: Vec<Vec<u8>> = bind.iter().map(|word| word.as_bytes().to_vec()).collect();
            store.load(b"bind", &words).expect("fits");
            for (name, value) in [("port", port), ("unixsocket", "s"), ("dir", "/")] {
                store.load(name.as_bytes(), &[value.into()]).expect("fits");
            }
            assert_eq!(
                places(&store).expect("no TLS").iter().map(Place::to_string).collect::<Vec<_>>(),
                expected
            );
        };
        check(&["10.0.0.1", "h.example", "-::1"], "7", &["[::1]:7", "10.0.0.1:7", "h.example:7", "/s"]);
        check(&["10.0.0.1", "*"], "7", &["127.0.0.1:7", "10.0.0.1:7", "/s"]);
        check(&[""], "7", &["/s"]);
        check(&["*"], "0", &["/s"]);
    }

    /// Starts a server that sends `answer` to each connection and then closes the connection.
    fn answering(answer: &'static [u8]) -> Place {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 64]).and_then(|_| stream.write_all(answer));
            }
        });
        Place::Tcp(b"127.0.0.1".to_vec(), port)
    }

    #[test]
    fn one_healthy_place_is_enough_and_the_whole_check_has_a_limit() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("s");
        // This socket never accepts connections. A connection in the kernel's queue gets no reply;
        // when the queue is full, connecting blocks.
        let _silent = UnixListener::bind(&path).expect("bound");
        let silent = Place::Unix(path.clone());
        let limit = Duration::from_millis(50);
        let (denied, healthy) = (answering(b"-DENIED x\r\n"), answering(b"+PONG\r\n"));
        assert_eq!(check(vec![denied.clone(), healthy.clone()], Asked::Healthy, b"", TIME_MAX), Ok(()));
        assert_eq!(check(vec![silent.clone(), healthy], Asked::Healthy, b"", TIME_MAX), Ok(()));
        let problem =
            check(vec![denied.clone(), silent], Asked::Healthy, b"", limit).expect_err("not healthy");
        let expected =
            format!("{denied}: the reply to PING was -DENIED x; {}: no answer within 0.05 s", path.display());
        assert_eq!(problem, expected);
    }
}

//! `saker-server --healthcheck [FILE] [options]`: checks that a running server replies, for
//! containers and supervisors without a client.
//!
//! The arguments are the file and options of the running server, which contain its addresses. The
//! password comes from the environment variable `REDISCLI_AUTH`, else from `requirepass`. With a
//! password the reply must be PONG. Without one, a server that requires a password counts as
//! healthy too, so that the check needs no secret.
//!
//! If the server listens with TLS only, the check presents the client certificate of the options.
//! It accepts only the server certificate that the options name.
//!
//! The addresses are checked in order, loopback first. The check of the next address begins when
//! one fails, or after [`NEXT_AFTER`], in parallel with the checks that have no reply yet. One
//! healthy reply is enough. Each address has its own thread, because connecting to a Unix socket
//! and resolving a name have no time limit. The process ends without waiting for these threads.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use server::config::{ConfigStore, apply, table};
use server::tls::settings::TlsSettings;

/// The flag, which must be the first argument.
pub const FLAG: &[u8] = b"--healthcheck";

/// Maximum duration of the whole check.
const TIME_MAX: Duration = Duration::from_secs(3);
/// Time after which the next address is checked in parallel.
const NEXT_AFTER: Duration = Duration::from_millis(500);
/// Maximum length of a reply in bytes: a status or an error.
const REPLY_LEN_BYTES_MAX: u64 = 1024;

/// Checks the server that runs with these options, and prints the result.
pub fn run(store: &ConfigStore) -> ExitCode {
    let password = std::env::var_os("REDISCLI_AUTH").map(OsStringExt::into_vec);
    let password = password.unwrap_or_else(|| table::security::REQUIREPASS.of(store).to_vec());
    match places(store).and_then(|places| check(places, &password, TIME_MAX)) {
        Ok(()) => super::print("PONG"),
        Err(problem) => {
            super::print_error(&format!("saker-server: not healthy: {problem}"));
            ExitCode::FAILURE
        }
    }
}

/// An address on which a server may listen.
#[derive(Clone, Debug)]
enum Place {
    /// An address or host name of `bind`, and the port.
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

/// Returns the address to connect to for a word of `bind`; `None` if the word is a host name.
fn literal(word: &[u8]) -> Option<IpAddr> {
    let word = std::str::from_utf8(word.strip_prefix(b"-").unwrap_or(word)).ok()?;
    match word {
        "*" => Some(Ipv4Addr::LOCALHOST.into()),
        "::*" => Some(Ipv6Addr::LOCALHOST.into()),
        word => word.parse().ok().map(reachable),
    }
}

/// Returns the address to connect to if a server listens on `ip`.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Checks the addresses until one is healthy. An error contains all problems in one line.
fn check(places: Vec<Place>, password: &[u8], time_max: Duration) -> Result<(), String> {
    if places.is_empty() {
        return Err("the configuration has neither a TCP address nor a Unix socket".into());
    }
    let deadline = Instant::now() + time_max;
    let (sender, answers) = mpsc::channel();
    let (mut to_ask, mut asked, mut problems) = (places.into_iter(), Vec::new(), Vec::new());
    loop {
        match to_ask.next() {
            Some(place) => {
                asked.push(place.clone());
                let (sender, password) = (sender.clone(), password.to_vec());
                let ask = move || {
                    let answer = place.ask(&password);
                    // Sending fails if the check has ended already.
                    let _ = sender.send((place, answer));
                };
                let thread = std::thread::Builder::new().spawn(ask);
                thread.map_err(|error| format!("cannot start a thread: {error}"))?;
            }
            None if asked.is_empty() => return Err(problems.join("; ")),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let on_empty = if to_ask.len() > 0 { left.min(NEXT_AFTER) } else { left };
        match answers.recv_timeout(on_empty) {
            Ok((_, Ok(()))) => return Ok(()),
            Ok((place, Err(problem))) => {
                problems.push(format!("{place}: {problem}"));
                asked.retain(|other| other.to_string() != place.to_string());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
            Err(_) => {
                let silent = |place| format!("{place}: no answer within {} s", time_max.as_secs_f32());
                problems.extend(asked.iter().map(silent));
                return Err(problems.join("; "));
            }
        }
    }
}

impl Place {
    /// Checks that this address gives a healthy reply. Waits without a time limit.
    fn ask(&self, password: &[u8]) -> Result<(), String> {
        let words = |error: io::Error| error.to_string();
        let reply = match self {
            Place::Unix(path) => UnixStream::connect(path).and_then(|stream| ping(stream, password)),
            Place::Tcp(word, port) => {
                TcpStream::connect(address(word, *port)?).and_then(|stream| ping(stream, password))
            }
            Place::Tls(word, port, config) => {
                let address = address(word, *port)?;
                let tls = ClientConnection::new(Arc::clone(config), address.ip().into());
                let tls = tls.map_err(|error| error.to_string())?;
                TcpStream::connect(address).and_then(|stream| ping(StreamOwned::new(tls, stream), password))
            }
        };
        judge(&reply.map_err(words)?, password)
    }
}

/// Returns the address to connect to for an address or host name of `bind`.
fn address(word: &Vec<u8>, port: u16) -> Result<SocketAddr, String> {
    let bound = apply::bind_addresses(std::slice::from_ref(word));
    let address = bound.ok().and_then(|bound| bound.first().copied()).ok_or("no such address")?;
    Ok(SocketAddr::new(reachable(address.ip), port))
}

/// Sends PING, after AUTH if there is a password; returns the reply to PING.
fn ping(mut stream: impl Read + Write, password: &[u8]) -> io::Result<Vec<u8>> {
    let mut requests = Vec::new();
    if !password.is_empty() {
        resp::encode_request(&[b"AUTH".as_slice(), password], &mut requests);
    }
    resp::encode_request(&[b"PING".as_slice()], &mut requests);
    stream.write_all(&requests)?;
    let mut replies = BufReader::new(stream.take(2 * REPLY_LEN_BYTES_MAX));
    let mut reply = Vec::new();
    if !password.is_empty() {
        // The reply to AUTH is ignored: the reply to PING shows whether the password was correct.
        replies.read_until(b'\n', &mut reply)?;
        reply.clear();
    }
    match replies.read_until(b'\n', &mut reply)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(reply),
    }
}

/// Checks that a line is the reply of a healthy server. The error text contains no control bytes,
/// so that printing it to a terminal is safe.
fn judge(line: &[u8], password: &[u8]) -> Result<(), String> {
    match line.strip_suffix(b"\r\n") {
        Some(b"+PONG") => Ok(()),
        Some(reply) if password.is_empty() && reply.starts_with(b"-NOAUTH") => Ok(()),
        Some(reply) => Err(format!("the reply to PING was {}", reply.escape_ascii())),
        None => Err(format!("the reply to PING was an incomplete line: {}", line.escape_ascii())),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_is_a_whole_line() {
        let check = |line: &[u8], password: &[u8], expected: Result<(), &str>| {
            assert_eq!(judge(line, password), expected.map_err(str::to_owned));
        };
        check(b"+PONG\r\n", b"", Ok(()));
        check(b"-NOAUTH Authentication required.\r\n", b"", Ok(()));
        check(b"-NOAUTH x\r\n", b"a", Err("the reply to PING was -NOAUTH x"));
        check(b"+PONG", b"", Err("the reply to PING was an incomplete line: +PONG"));
        check(b"-ERR \x1b[31m\xff\r\n", b"", Err("the reply to PING was -ERR \\x1b[31m\\xff"));
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

    /// Starts a server that sends `answer` to each connection and closes it.
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
        assert_eq!(check(vec![denied.clone(), healthy.clone()], b"", TIME_MAX), Ok(()));
        assert_eq!(check(vec![silent.clone(), healthy], b"", TIME_MAX), Ok(()));
        let problem = check(vec![denied.clone(), silent], b"", limit).expect_err("not healthy");
        let expected =
            format!("{denied}: the reply to PING was -DENIED x; {}: no answer within 0.05 s", path.display());
        assert_eq!(problem, expected);
    }
}

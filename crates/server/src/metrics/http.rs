//! A small HTTP server for scrapers: it answers one GET or HEAD request per connection, and then
//! closes the connection.
//!
//! One thread serves all connections by polling, so a slow connection does not delay others. A
//! request has at most [`REQUEST_BYTES_MAX`], a connection stays open for at most
//! [`VISIT_TIME_MAX`], and there are at most [`VISITS_MAX`] connections at once. If a further
//! connection arrives, the oldest one that has its answer is closed; if none has, the oldest one.
//! Idle connections therefore cannot keep a scraper out.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::negotiate::{Coding, Form};

/// Maximum length of a scraper's request, its first line and its headers together, in bytes.
const REQUEST_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of headers in a scraper's request.
const HEADERS_MAX: usize = 64;
/// Maximum time from accepting a scraper's connection to closing it.
const VISIT_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of scrapers' connections at once.
const VISITS_MAX: usize = 64;
/// Maximum number of bytes that are read and discarded after the answer was sent. If a connection
/// is closed with unread input, the peer may lose the answer.
const REST_BYTES_MAX: usize = 64 * 1024;
/// Interval at which the thread of the metrics endpoint checks whether the server is stopping.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Pause after an error in accepting or polling connections that would otherwise repeat at once.
const RETRY: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers requests for `/metrics` on the thread of the caller, until `stopping` returns true.
/// `page` returns the page in the requested format and encoding.
pub fn serve(
    listeners: &[TcpListener],
    mut page: impl FnMut(Form) -> Arc<[u8]>,
    stopping: impl Fn() -> bool,
) {
    let mut visits: VecDeque<Visit> = VecDeque::new();
    while !stopping() {
        if let Err(error) = wait(listeners, &visits) {
            tracing::warn!(%error, "the metrics endpoint cannot wait for requests: trying again");
            std::thread::sleep(RETRY);
        }
        // Requests that have arrived are answered first, because accepting a new connection may
        // close theirs.
        visits.retain_mut(|visit| visit.goes_on(&mut page));
        for listener in listeners {
            accept(listener, &mut visits);
        }
        visits.retain_mut(|visit| visit.goes_on(&mut page));
    }
}

/// Waits until a connection arrives, or an open one can continue to read or write. Waits for at
/// most [`POLL_INTERVAL`].
fn wait(listeners: &[TcpListener], visits: &VecDeque<Visit>) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
    fds.extend(visits.iter().map(|visit| PollFd::new(&visit.stream, visit.awaited())));
    match poll(&mut fds, Some(&POLL_INTERVAL)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Accepts at most [`VISITS_MAX`] new connections at once, so that the open ones are served in
/// between.
fn accept(listener: &TcpListener, visits: &mut VecDeque<Visit>) {
    for _ in 0..VISITS_MAX {
        match listener.accept() {
            Ok((stream, _)) => {
                // A blocking stream could delay all others, so it is closed.
                if stream.set_nonblocking(true).is_ok() {
                    make_room(visits);
                    visits.push_back(Visit::new(stream));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                // For example, no file descriptor is free. The connection then stays in the
                // kernel's queue, so without a pause polling would return at once.
                tracing::debug!(%error, "the metrics endpoint cannot accept a connection: trying again");
                std::thread::sleep(RETRY);
                return;
            }
        }
    }
}

/// Makes room for a new connection if there are [`VISITS_MAX`]: closes the oldest one that has its
/// answer or, if none has, the oldest one.
fn make_room(visits: &mut VecDeque<Visit>) {
    if visits.len() >= VISITS_MAX {
        let answered = visits.iter().position(|visit| matches!(visit.stage, Stage::Leaving(_)));
        visits.remove(answered.unwrap_or(0));
    }
}

/// The stage of a scraper's connection: its request arrives, its answer is sent, or its end is
/// awaited.
enum Stage {
    /// The connection's request is incomplete. Contains the bytes received so far.
    Asking(Vec<u8>),
    /// The answer to the connection is being sent. Contains its bytes, and the number of bytes that
    /// were already sent.
    Answering(Vec<u8>, usize),
    /// A connection whose answer is sent and whose further input is discarded, with the number of
    /// bytes discarded so far.
    Leaving(usize),
}

struct Visit {
    stream: TcpStream,
    came: Instant,
    stage: Stage,
}

impl Visit {
    fn new(stream: TcpStream) -> Self {
        Self { stream, came: Instant::now(), stage: Stage::Asking(Vec::new()) }
    }

    fn awaited(&self) -> PollFlags {
        match self.stage {
            Stage::Answering(..) => PollFlags::OUT,
            Stage::Asking(_) | Stage::Leaving(_) => PollFlags::IN,
        }
    }

    /// Reads the request and writes the answer as far as possible without waiting. Returns false if
    /// the connection is to be closed.
    fn goes_on(&mut self, page: &mut impl FnMut(Form) -> Arc<[u8]>) -> bool {
        if self.came.elapsed() > VISIT_TIME_MAX {
            return false;
        }
        match self.step(page) {
            Ok(more) => more,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn step(&mut self, page: &mut impl FnMut(Form) -> Arc<[u8]>) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            match &mut self.stage {
                Stage::Asking(request) => {
                    let len_bytes = self.stream.read(&mut piece)?;
                    if len_bytes == 0 {
                        return Ok(false);
                    }
                    request.extend_from_slice(&piece[..len_bytes]);
                    if let Some(answer) = answer(request, page) {
                        self.stage = Stage::Answering(answer, 0);
                    }
                }
                Stage::Answering(answer, sent) => {
                    if *sent == answer.len() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.stage = Stage::Leaving(0);
                    } else {
                        *sent += self.stream.write(&answer[*sent..])?;
                    }
                }
                Stage::Leaving(thrown_away) => {
                    let len_bytes = self.stream.read(&mut piece)?;
                    *thrown_away += len_bytes;
                    return Ok(len_bytes > 0 && *thrown_away < REST_BYTES_MAX);
                }
            }
        }
    }
}

/// Returns the answer to `request`; `None` while the request is incomplete.
fn answer(request: &[u8], page: &mut impl FnMut(Form) -> Arc<[u8]>) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let refused = |status: &str, headers: &str, text: &str| {
        let headers = format!("Content-Type: {PLAIN}\r\n{headers}");
        Response::new(status, &headers, text.as_bytes())
    };
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(refused("431 Request Header Fields Too Large", "", "too long\n").whole());
        }
        Err(error) => return Some(refused("400 Bad Request", "", &format!("{error}\n")).whole()),
    }
    let path = path_of(parsed.path.unwrap_or_default());
    let method = parsed.method.unwrap_or_default();
    let response = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let accept = values(parsed.headers, "Accept");
            let encoding = values(parsed.headers, "Accept-Encoding");
            let form = Form::asked(accept.as_deref(), encoding.as_deref());
            let coding = match form.coding {
                Coding::Identity => "",
                Coding::Gzip => "Content-Encoding: gzip\r\n",
            };
            let kind = form.format.content_type();
            let headers = format!("Content-Type: {kind}\r\n{coding}Vary: Accept, Accept-Encoding\r\n");
            Response::new("200 OK", &headers, &page(form))
        }
        ("GET" | "HEAD", _) => refused("404 Not Found", "", "metrics are at /metrics\n"),
        _ => refused("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET only\n"),
    };
    Some(if method == "HEAD" { response.head() } else { response.whole() })
}

/// Returns the path of a request's target, which may be absolute, `http://host/path` (RFC 9112,
/// 3.2.2).
fn path_of(target: &str) -> &str {
    let path = match target.split_at_checked("http://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => {
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    path.split('?').next().unwrap_or_default()
}

/// Returns all values of the header `name`, joined with commas; `None` without such a header.
fn values(headers: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let values: Vec<_> = named.map(|header| String::from_utf8_lossy(header.value)).collect();
    (!values.is_empty()).then(|| values.join(","))
}

struct Response {
    /// The bytes of the response: its head, then its body.
    bytes: Vec<u8>,
    head_len_bytes: usize,
}

impl Response {
    /// Creates a response from a status line, header lines and a body.
    fn new(status: &str, headers: &str, body: &[u8]) -> Self {
        let len_bytes = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {len_bytes}\r\n{headers}Connection: close\r\n\r\n");
        Self { head_len_bytes: head.len(), bytes: [head.as_bytes(), body].concat() }
    }

    /// Returns the whole response: its head and its body.
    fn whole(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns only the head of the response, as HEAD requires.
    fn head(mut self) -> Vec<u8> {
        self.bytes.truncate(self.head_len_bytes);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    /// Starts an endpoint that serves `page`, and calls `test` with its address.
    fn with_endpoint(page: &str, test: impl FnOnce(SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&[listener], |_| page.as_bytes().into(), || stop.load(Relaxed)));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(address)));
            stop.store(true, Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        // The endpoint may close the connection before all bytes are sent.
        let _ = stream.write_all(request);
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer and the end");
        text
    }

    #[test]
    fn a_scrape_gets_the_page_and_the_end() {
        with_endpoint("saker_up 1\n", |address| {
            let text = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.contains("Content-Length: 11\r\n"), "{text}");
            assert!(text.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
            assert!(text.ends_with("\r\n\r\nsaker_up 1\n"), "{text}");
            let head = ask(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
            assert!(head.contains("Content-Length: 11\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        });
    }

    #[test]
    fn a_target_may_be_absolute() {
        let check = |target: &str, path: &str| assert_eq!(path_of(target), path, "{target}");
        check("/metrics?a=/b", "/metrics");
        check("http://localhost:9121/metrics", "/metrics");
        check("HTTP://[::1]/metrics?a", "/metrics");
        check("http://localhost", "/");
        check("http://localhost?a", "");
        check("ftp://localhost/metrics", "ftp://localhost/metrics");
        with_endpoint("saker_up 1\n", |address| {
            let text = ask(address, b"GET http://x/metrics HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        });
    }

    #[test]
    fn scrapers_that_come_together_are_all_answered() {
        with_endpoint("saker_up 1\n", |address| {
            let connect = |_| TcpStream::connect(address).expect("it listens");
            let mut streams: Vec<TcpStream> = (0..VISITS_MAX).map(connect).collect();
            // The newest connection comes first. Its answer shows that the endpoint has accepted
            // all connections.
            for stream in streams.iter_mut().rev() {
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is open");
                let mut text = String::new();
                stream.read_to_string(&mut text).expect("an answer and the end");
                assert!(text.ends_with("saker_up 1\n"), "{text}");
            }
        });
    }

    #[test]
    fn answered_connections_are_closed_first() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut clients = Vec::new();
        let mut visits: VecDeque<Visit> = (0..VISITS_MAX)
            .map(|_| {
                clients.push(TcpStream::connect(address).expect("it listens"));
                Visit::new(listener.accept().expect("a client").0)
            })
            .collect();
        let ports = |visits: &VecDeque<Visit>| -> Vec<u16> {
            visits.iter().map(|visit| visit.stream.peer_addr().expect("open").port()).collect()
        };
        let mut expected = ports(&visits);
        visits[7].stage = Stage::Leaving(0);
        make_room(&mut visits);
        expected.remove(7);
        assert_eq!(ports(&visits), expected);
        make_room(&mut visits);
        assert_eq!(ports(&visits), expected);
        visits.push_back(Visit::new(TcpStream::connect(address).expect("it listens")));
        make_room(&mut visits);
        assert_eq!(ports(&visits)[..VISITS_MAX - 2], expected[1..]);
    }

    #[test]
    fn the_headers_say_which_form_it_is() {
        with_endpoint("saker_up 1\n", |address| {
            let request = b"GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.1\r\n\
                ACCEPT: application/openmetrics-text\r\nAccept-Encoding: gzip\r\n\r\n";
            let text = ask(address, request);
            let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
            assert!(text.contains(kind) && text.contains("Content-Encoding: gzip\r\n"), "{text}");
            assert!(text.contains("Vary: Accept, Accept-Encoding\r\n"), "{text}");
            let plain = ask(address, b"GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n");
            assert!(!plain.contains("Content-Encoding"), "{plain}");
        });
    }

    #[test]
    fn a_page_larger_than_the_sockets_buffers_arrives_whole() {
        let page = "x".repeat(20 << 20);
        with_endpoint(&page, |address| {
            let text = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert_eq!(text.split_once("\r\n\r\n").expect("a head").1.len(), page.len());
        });
    }

    #[test]
    fn what_is_no_scrape_is_refused() {
        let long_line = [b"GET /", &[b'a'; 100_000][..]].concat();
        let many = [b"GET /metrics HTTP/1.1\r\n".to_vec(), b"A: b\r\n".repeat(65)].concat();
        with_endpoint("", |address| {
            let check = |request: &[u8], status: &str| {
                let text = ask(address, request);
                assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
            };
            check(b"GET / HTTP/1.1\r\n\r\n", "404");
            check(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405");
            check(b"\x16\x03\x01\x02\x00\x01", "400");
            check(b"*1\r\n$4\r\nPING\r\n", "400");
            check(&long_line, "431");
            check(&many, "431");
        });
    }

    #[test]
    fn who_stands_still_locks_nobody_out() {
        with_endpoint("saker_up 1\n", |address| {
            let idle: Vec<TcpStream> = (0..VISITS_MAX * 3)
                .map(|at| {
                    let mut stream = TcpStream::connect(address).expect("it listens");
                    if at % 2 == 0 {
                        stream.write_all(b"GET /met").expect("it is open");
                    }
                    stream
                })
                .collect();
            assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("saker_up 1\n"));
            drop(idle);
        });
    }

    #[test]
    fn a_visit_that_takes_too_long_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("a client");
        stream.set_nonblocking(true).expect("a socket");
        let mut visit = Visit::new(stream);
        assert!(visit.goes_on(&mut |_| Arc::default()));
        let past = Instant::now().checked_sub(VISIT_TIME_MAX + Duration::from_secs(1));
        visit.came = past.expect("the machine runs for longer");
        assert!(!visit.goes_on(&mut |_| Arc::default()));
        drop(client);
    }
}

//! Measures the least possible cost of a request: a server on one thread that finds the end of each
//! RESP request and answers `+PONG`. The server spends nearly all of its time in the crate `net`.
//!
//! ```text
//! cargo run --release -p net --example echo -- auto|io_uring|epoll 7900 [/path/to.sock]
//! redis-benchmark -p 7900 -t ping_mbulk -c 50 -n 1000000
//! ```

use std::error::Error;
use std::path::Path;

use net::{BackendChoice, Event, EventLoop, Inputs, Listener, LoopOptions, Outputs};

/// The bytes of the PING request that `redis-benchmark -t ping_mbulk` sends.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next().as_deref() {
        Some("auto") => BackendChoice::Auto,
        Some("io_uring") => BackendChoice::IoUring,
        Some("epoll") => BackendChoice::Epoll,
        _ => return Err("usage: echo auto|io_uring|epoll PORT [UNIX-PATH]".into()),
    };
    let port: u16 = arguments.next().ok_or("a port is missing")?.parse()?;
    let mut event_loop = EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() })?;
    event_loop.add_listener(Listener::tcp(([127, 0, 0, 1], port).into(), 1024)?)?;
    if let Some(path) = arguments.next() {
        event_loop.add_listener(Listener::unix(Path::new(&path), None, 1024)?)?;
    }
    println!("serving on port {port} with {}", event_loop.backend().name());
    if let Some(reason) = event_loop.fallback_reason() {
        println!("not io_uring: {reason}");
    }
    let mut events = Vec::new();
    loop {
        event_loop.poll(None, &mut events)?;
        for event in events.drain(..) {
            match event {
                Event::Accepted { socket, .. } => {
                    event_loop.adopt(socket)?;
                }
                Event::Data(conn) => {
                    let (inputs, outputs) = event_loop.split();
                    let consumed = answer(inputs, outputs, conn);
                    event_loop.consume(conn, consumed);
                }
                Event::AcceptFailed { error, pause, .. } => {
                    eprintln!("accepting: {error}; trying again in {pause:?}");
                }
                _ => {}
            }
        }
        event_loop.flush();
    }
}

/// Answers `+PONG` to each complete request in the input of `conn`. Returns the number of bytes of
/// these requests.
fn answer(inputs: &Inputs, outputs: &mut Outputs, conn: net::ConnId) -> usize {
    let bytes = inputs.bytes(conn);
    let mut rest = bytes;
    let replies = outputs.queue(conn).tail_mut();
    loop {
        if let Some(behind) = rest.strip_prefix(PING) {
            rest = behind;
        } else if let Some(len) = request_len(rest) {
            rest = &rest[len..];
        } else {
            return bytes.len() - rest.len();
        }
        replies.extend_from_slice(b"+PONG\r\n");
    }
}

/// Returns the length in bytes of the first request, which is an array of bulk strings. `None` if
/// it has not arrived completely.
fn request_len(bytes: &[u8]) -> Option<usize> {
    let (count, mut at) = number_line(bytes, 0)?;
    for _ in 0..count {
        let (len, content) = number_line(bytes, at)?;
        at = content + len + 2;
    }
    (at <= bytes.len() && at > 0).then_some(at)
}

/// Parses a line such as `*3` or `$4` that begins at index `at`. Returns the number in the line,
/// and the index at which the next line begins.
fn number_line(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at + 1..)?;
    let len = line.windows(2).position(|pair| pair == b"\r\n")?;
    let number = std::str::from_utf8(&line[..len]).ok()?.parse().ok()?;
    Some((number, at + 1 + len + 2))
}

//! Checks for each back end that connections which move, or are opened by the loop, leave no
//! descriptor open. The test runs in a process of its own because it counts all descriptors of the
//! process.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
#![cfg(target_os = "linux")]
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{Address, BackendChoice, ConnId, Event, EventLoop, LoopOptions, Socket, TlsClient};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::pki_types::ServerName;

#[allow(dead_code)] // Only its client is used.
mod identity;

const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: usize = 40;

/// A loop, the peer of its only connection, and that connection.
struct Case {
    event_loop: EventLoop,
    far: UnixStream,
    conn: ConnId,
}

impl Case {
    /// Opens a connection with unsent output and unread input.
    fn new(options: &LoopOptions) -> Self {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        far.write_all(b"unread").unwrap();
        let mut event_loop = EventLoop::new(options).unwrap();
        let conn = event_loop.adopt(near.try_into().unwrap()).unwrap();
        event_loop.output(conn).tail_mut().resize(2 << 20, 7);
        turn(&mut event_loop);
        Self { event_loop, far, conn }
    }

    fn release(&mut self) {
        assert!(self.event_loop.release(self.conn));
    }

    fn released(&mut self) -> Socket {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "it was never released");
            for event in turn(&mut self.event_loop) {
                if let Event::Released(_, socket) = event {
                    return *socket;
                }
            }
        }
    }
}

fn turn(event_loop: &mut EventLoop) -> Vec<Event> {
    let mut events = Vec::new();
    event_loop.flush();
    event_loop.poll(Some(Duration::ZERO), &mut events).unwrap();
    events
}

/// Reads from the peer's socket until the stream ends. At its end, the kernel has closed the loop's
/// socket and completed all requests for it.
fn await_end(mut far: UnixStream) {
    let _ = std::io::copy(&mut far, &mut std::io::sink());
    assert_eq!(far.read(&mut [0]).unwrap_or(0), 0);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The ways in which a connection that moves to another loop can end, as functions that produce
/// each.
const WAYS: [fn(&LoopOptions); 7] = [
    |options| {
        // The peer closes when the release begins.
        let mut case = Case::new(options);
        case.release();
        let Case { far, .. } = case;
        drop(far);
    },
    |options| {
        // The peer closes during the release, and the next loop finds the end.
        let mut case = Case::new(options);
        case.release();
        case.far = UnixStream::pair().unwrap().0;
        let socket = case.released();
        let mut next = EventLoop::new(options).unwrap();
        let conn = next.adopt(socket).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while next.is_open(conn) {
            assert!(Instant::now() < deadline, "the end was not found");
            turn(&mut next);
            let len = next.inputs().len_bytes(conn);
            next.consume(conn, len);
        }
    },
    |options| {
        // The loop ends before the release does.
        let mut case = Case::new(options);
        case.release();
        let Case { far, event_loop, .. } = case;
        drop(event_loop);
        await_end(far);
    },
    |options| {
        // The socket is dropped.
        let mut case = Case::new(options);
        case.release();
        drop(case.released());
        await_end(case.far);
    },
    |options| {
        // The connection is closed during its release.
        let mut case = Case::new(options);
        case.release();
        case.event_loop.close(case.conn);
        turn(&mut case.event_loop);
        await_end(case.far);
    },
    |options| {
        // The next loop ends at once.
        let mut case = Case::new(options);
        case.release();
        let socket = case.released();
        let mut next = EventLoop::new(options).unwrap();
        next.adopt(socket).unwrap();
        drop(next);
        await_end(case.far);
    },
    |options| {
        // The socket outlives its loop and is adopted later.
        let mut case = Case::new(options);
        case.release();
        let socket = case.released();
        let Case { far, event_loop, .. } = case;
        drop(event_loop);
        let mut next = EventLoop::new(options).unwrap();
        let conn = next.adopt(socket).unwrap();
        turn(&mut next);
        assert_eq!(next.inputs().bytes(conn), b"unread");
        next.close(conn);
        turn(&mut next);
        await_end(far);
    },
];

/// Opens outgoing connections that fail, or that the caller closes before they are open.
fn attempts(options: &LoopOptions) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let missing = Address::Unix(Arc::from(Path::new("/nowhere/at/all")));
    let config = identity::Identity::new().client(&ALL_CIPHER_SUITES[..1]);
    let tls = TlsClient::new(config, ServerName::try_from("localhost").unwrap());
    for to in [&address, &missing] {
        for tls in [None, Some(tls.clone())] {
            let mut event_loop = EventLoop::new(options).unwrap();
            event_loop.connect(to, tls.clone(), Instant::now());
            turn(&mut event_loop);
            let conn = event_loop.connect(to, tls.clone(), Instant::now() + PATIENCE);
            event_loop.close(conn);
            turn(&mut event_loop);
            event_loop.connect(to, tls, Instant::now() + PATIENCE);
        }
    }
}

#[test]
fn descriptors_are_closed_whatever_happens_during_a_move_or_an_attempt() {
    for backend in [BackendChoice::Epoll, BackendChoice::IoUring] {
        let options = LoopOptions { backend, turn_input_len_bytes_max: 64 * 1024, ..LoopOptions::default() };
        if let Err(error) = EventLoop::new(&options) {
            println!("skipped: {error}");
            continue;
        }
        let before = open_descriptors();
        for round in 0..ROUNDS {
            for (way, run) in WAYS.iter().enumerate() {
                run(&options);
                assert_eq!(open_descriptors(), before, "{backend:?}, way {way}, round {round}");
            }
            attempts(&options);
            assert_eq!(open_descriptors(), before, "{backend:?}, attempts, round {round}");
        }
    }
}

//! Connections that move between loops, on each back end, with real sockets. If the kernel forbids
//! io_uring, the tests of that back end print so and pass.
//!
//! `SAKER_MOVES=100000 cargo test -p net --test moves under_load -- --nocapture` runs the tests
//! under load with that number of moves.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{
    Address, BackendChoice, CloseReason, ConnId, Event, EventLoop, Listener, LoopOptions, Socket, TlsClient,
    TlsFailure,
};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, SupportedCipherSuite};

#[macro_use]
mod back_ends;
mod identity;
mod load;

use identity::Identity;
use load::{Random, Transport};

on_each_backend! {
    tcp_moves_under_load,
    unix_moves_under_load,
    tls_1_2_moves_under_load,
    tls_1_3_moves_under_load,
    tls_over_unix_moves_under_load,
    a_session_cut_anywhere_moves_whole,
    unread_input_and_the_place_in_the_stream_move,
    unsent_output_moves_in_order,
    a_send_that_waits_for_the_peer_is_taken_back,
    the_end_of_a_tls_session_moves,
    held_output_moves_and_is_released_by_the_next_loop,
    bytes_that_arrive_during_the_release_are_handed_over,
    a_connection_that_is_closed_by_the_peer_moves_to_its_end,
    a_closing_connection_is_closed_by_the_next_loop,
    a_connection_closed_during_its_release_is_not_reported,
    a_release_of_nothing_does_nothing,
    a_dropped_loop_closes_what_it_was_releasing,
    a_dropped_socket_is_closed,
    a_half_closed_connection_moves,
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the preferred cipher suite of a TLS version.
fn suite(version: &rustls::SupportedProtocolVersion) -> SupportedCipherSuite {
    let fits = |suite: &&SupportedCipherSuite| {
        suite.version() == version && !format!("{:?}", suite.suite()).contains("RSA")
    };
    *ALL_CIPHER_SUITES.iter().find(fits).unwrap()
}

fn tls(version: &rustls::SupportedProtocolVersion) -> Option<load::Tls> {
    let identity = Identity::new();
    let client =
        TlsClient::new(identity.client(&[suite(version)]), ServerName::try_from("localhost").unwrap());
    Some(load::Tls { server: identity.server(), client })
}

fn tcp_moves_under_load(backend: BackendChoice) {
    load::run(backend, Transport::Tcp, None);
}

fn unix_moves_under_load(backend: BackendChoice) {
    load::run(backend, Transport::Unix, None);
}

fn tls_1_2_moves_under_load(backend: BackendChoice) {
    load::run(backend, Transport::Tcp, tls(&rustls::version::TLS12));
}

fn tls_1_3_moves_under_load(backend: BackendChoice) {
    load::run(backend, Transport::Tcp, tls(&rustls::version::TLS13));
}

fn tls_over_unix_moves_under_load(backend: BackendChoice) {
    load::run(backend, Transport::Unix, tls(&rustls::version::TLS13));
}

/// Two loops on one thread, and one connection that is in one of them.
struct Pair {
    loops: [EventLoop; 2],
    /// The index of the loop that has the connection at present.
    at: usize,
    conn: ConnId,
}

impl Pair {
    fn new(backend: BackendChoice, socket: Socket) -> Self {
        Self::with(&LoopOptions { backend, ..LoopOptions::default() }, socket)
    }

    fn with(options: &LoopOptions, socket: Socket) -> Self {
        let mut loops = [EventLoop::new(options).unwrap(), EventLoop::new(options).unwrap()];
        let conn = loops[0].adopt(socket).unwrap();
        Self { loops, at: 0, conn }
    }

    /// Creates a pair whose connection is a Unix socket pair. Also returns the peer's socket.
    fn unix(backend: BackendChoice) -> (UnixStream, Self) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        (far, Self::new(backend, near.try_into().unwrap()))
    }

    /// Creates a pair whose connection is TCP. Also returns the peer's socket.
    fn tcp(backend: BackendChoice) -> (TcpStream, Self) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let near = listener.accept().unwrap().0;
        (far, Self::new(backend, near.try_into().unwrap()))
    }

    fn here(&mut self) -> &mut EventLoop {
        &mut self.loops[self.at]
    }

    /// Runs turns of the loop that has the connection until `done` returns true for an event.
    fn turn_until(&mut self, mut done: impl FnMut(&mut EventLoop, &Event) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for event in turn(self.here(), Duration::from_secs(1)) {
                if done(self.here(), &event) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "it never happened");
        }
    }

    /// Runs turns until the connection has at least `len_bytes` unconsumed bytes.
    fn await_input(&mut self, len_bytes: usize) {
        let conn = self.conn;
        self.turn_until(|event_loop, _| event_loop.inputs().len_bytes(conn) >= len_bytes);
    }

    /// Releases the connection from its loop and returns the socket.
    fn release(&mut self) -> Socket {
        let conn = self.conn;
        assert!(self.here().release(conn));
        self.released()
    }

    /// Runs turns until the released socket is reported. No event other than `Drained` may precede
    /// it.
    fn released(&mut self) -> Socket {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "it never happened");
            for event in turn(self.here(), Duration::from_secs(1)) {
                match event {
                    Event::Released(conn, socket) => {
                        assert_eq!(conn, self.conn);
                        assert!(!self.here().is_open(conn));
                        return *socket;
                    }
                    Event::Drained(_) => {}
                    event => panic!("{event:?}"),
                }
            }
        }
    }

    /// Adopts the socket in the loop that did not have it.
    fn adopt(&mut self, socket: Socket) {
        self.at = 1 - self.at;
        self.conn = self.here().adopt(socket).unwrap();
    }

    fn move_over(&mut self) {
        let socket = self.release();
        self.adopt(socket);
    }

    fn append(&mut self, bytes: &[u8]) {
        let conn = self.conn;
        self.here().output(conn).tail_mut().extend_from_slice(bytes);
    }
}

/// Runs one turn of `event_loop`, and returns its events.
fn turn(event_loop: &mut EventLoop, timeout: Duration) -> Vec<Event> {
    event_loop.flush();
    let mut events = Vec::new();
    event_loop.poll(Some(timeout), &mut events).unwrap();
    events
}

/// Runs turns until a client is accepted. Returns its socket.
fn accept(event_loop: &mut EventLoop) -> Socket {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "nobody connected");
        for event in turn(event_loop, Duration::from_secs(1)) {
            if let Event::Accepted { socket, .. } = event {
                return socket;
            }
        }
    }
}

/// Returns `len` bytes, each of which differs from its neighbours.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| load::byte(7, at as u64)).collect()
}

/// Moves an encrypted connection at random bytes of the client's records, including those of the
/// handshake. The server must echo all data.
fn a_session_cut_anywhere_moves_whole(backend: BackendChoice) {
    let identity = Identity::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for seed in 0..30 {
            let config = Arc::new(identity.client(&[suite(version)]));
            let client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
            cut_session(backend, &identity, client, Random(seed + 1));
        }
    }
}

fn cut_session(
    backend: BackendChoice,
    identity: &Identity,
    mut client: ClientConnection,
    mut random: Random,
) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().encrypted(identity.server());
    let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP listener") };
    let options = LoopOptions { backend, ..LoopOptions::default() };
    let mut accepting = EventLoop::new(&options).unwrap();
    accepting.add_listener(listener).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut pair = Pair::new(backend, accept(&mut accepting));
    stream.set_nonblocking(true).unwrap();
    let data = numbered(1 + random.below(40_000));
    let (mut written, mut got, mut to_send) = (0, Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while got.len() < data.len() {
        assert!(Instant::now() < deadline, "{} of {} bytes came back", got.len(), data.len());
        if !client.is_handshaking() && written < data.len() {
            let len = (1 + random.below(9000)).min(data.len() - written);
            client.writer().write_all(&data[written..written + len]).unwrap();
            written += len;
        }
        while client.wants_write() {
            client.write_tls(&mut to_send).unwrap();
        }
        // One piece of the records, short ones often, and then perhaps a move.
        let most = if random.below(2) == 0 { 12 } else { 6000 };
        let cut = (1 + random.below(most)).min(to_send.len());
        stream.write_all(&to_send[..cut]).unwrap();
        to_send.drain(..cut);
        for event in turn(pair.here(), Duration::ZERO) {
            match event {
                Event::Data(conn) => {
                    assert_eq!(conn, pair.conn);
                    let len = pair.here().inputs().len_bytes(conn);
                    let len = len - random.below(2) * random.below(len);
                    let bytes = pair.here().inputs().bytes(conn)[..len].to_vec();
                    pair.here().consume(conn, len);
                    pair.append(&bytes);
                    pair.here().mark_ready(conn);
                }
                Event::Secured(_) | Event::Drained(_) => {}
                event => panic!("{event:?}"),
            }
        }
        if random.below(2) == 0 {
            pair.move_over();
        }
        loop {
            match client.read_tls(&mut stream) {
                Ok(0) => panic!("the connection was closed"),
                Ok(_) => {
                    let state = client.process_new_packets().unwrap();
                    let mut plain = vec![0; state.plaintext_bytes_to_read()];
                    client.reader().read_exact(&mut plain).unwrap();
                    got.extend_from_slice(&plain);
                }
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
    }
    assert!(got == data, "other bytes came back");
}

fn unread_input_and_the_place_in_the_stream_move(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    far.write_all(b"used left").unwrap();
    pair.await_input(9);
    let conn = pair.conn;
    pair.here().consume(conn, 5);
    let socket = pair.release();
    assert_eq!((socket.unread(), socket.unsent_len_bytes()), (&b"left"[..], 0));
    pair.adopt(socket);
    let conn = pair.conn;
    let events = turn(pair.here(), PATIENCE);
    assert!(matches!(events[..], [Event::Data(reported)] if reported == conn), "{events:?}");
    assert_eq!(pair.here().inputs().bytes(conn), b"left");
    assert_eq!(pair.here().inputs().position(conn), 5);
    far.write_all(b" and more").unwrap();
    pair.await_input(13);
    assert_eq!(pair.here().inputs().bytes(conn), b"left and more");
}

fn unsent_output_moves_in_order(backend: BackendChoice) {
    for stays_behind in [false, true] {
        let (mut far, mut pair) = Pair::unix(backend);
        // More than the sockets hold, so that a flush leaves a part unsent.
        let data = numbered(8 << 20);
        let (first, rest) = data.split_at(data.len() / 2);
        let (queued, late) = rest.split_at(rest.len() / 2);
        pair.append(first);
        if stays_behind {
            turn(pair.here(), Duration::ZERO);
        }
        let conn = pair.conn;
        pair.append(&queued[..100]);
        pair.here().output(conn).push_shared(Arc::new(queued[100..].to_vec()));
        assert!(pair.here().release(conn));
        pair.append(late);
        let socket = pair.released();
        assert!(socket.unsent_len_bytes() > rest.len());
        pair.adopt(socket);
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 8 << 20];
            far.read_exact(&mut got).unwrap();
            got
        });
        pair.turn_until(|_, event| matches!(event, Event::Drained(_)));
        assert!(reader.join().unwrap() == data, "other bytes arrived");
    }
}

fn a_send_that_waits_for_the_peer_is_taken_back(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    let (mut appended, conn) = (0, pair.conn);
    socket2::SockRef::from(&pair.here().fd(conn).unwrap()).set_send_buffer_size(4096).unwrap();
    socket2::SockRef::from(&far).set_recv_buffer_size(4096).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Short sends are accepted as a whole or not at all. The last one waits in the kernel.
    while pair.here().split().1.len_bytes(conn) == 0 {
        assert!(Instant::now() < deadline, "the sockets are never full");
        let next: Vec<u8> = (appended..appended + 50).map(|at| load::byte(7, at)).collect();
        appended += 50;
        pair.append(&next);
        turn(pair.here(), Duration::ZERO);
    }
    pair.move_over();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; appended as usize];
        far.read_exact(&mut got).unwrap();
        got
    });
    pair.turn_until(|_, event| matches!(event, Event::Drained(_)));
    assert!(reader.join().unwrap() == numbered(appended as usize), "other bytes arrived");
}

/// Ends TLS sessions by an alert or an invalid record, not by the end of the stream. The alert or
/// record arrives together with data. So the loop has found the end but not reported it when the
/// connection is released.
fn the_end_of_a_tls_session_moves(backend: BackendChoice) {
    let identity = Identity::new();
    for is_broken in [false, true] {
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().encrypted(identity.server());
        let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP listener") };
        let mut accepting = EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() }).unwrap();
        accepting.add_listener(listener).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let mut pair = Pair::new(backend, accept(&mut accepting));
        let config = Arc::new(identity.client(&[suite(&rustls::version::TLS13)]));
        let mut client = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while client.is_handshaking() {
            assert!(Instant::now() < deadline, "no handshake");
            while client.wants_write() {
                client.write_tls(&mut stream).unwrap();
            }
            turn(pair.here(), Duration::from_millis(1));
            if client.read_tls(&mut stream).is_ok() {
                client.process_new_packets().unwrap();
            }
        }
        while client.wants_write() {
            client.write_tls(&mut stream).unwrap();
        }
        pair.turn_until(|_, event| matches!(event, Event::Secured(_)));
        client.writer().write_all(b"last words").unwrap();
        let mut records = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut records).unwrap();
        }
        if is_broken {
            records.extend([23, 3, 3, 0, 20].iter().chain(&[0; 20]));
        } else {
            client.send_close_notify();
            client.write_tls(&mut records).unwrap();
        }
        stream.write_all(&records).unwrap();
        pair.await_input(10);
        pair.move_over();
        let (conn, mut got, mut ending) = (pair.conn, Vec::new(), None);
        pair.turn_until(|event_loop, event| {
            match *event {
                Event::Data(_) => {
                    got = event_loop.inputs().bytes(conn).to_vec();
                    event_loop.consume(conn, got.len());
                }
                Event::Closed(_, reason) => ending = Some(reason),
                ref event => panic!("{event:?}"),
            }
            ending.is_some()
        });
        let expected = if is_broken { CloseReason::Tls(TlsFailure::BadTag) } else { CloseReason::PeerClosed };
        assert_eq!((&got[..], ending), (&b"last words"[..], Some(expected)));
    }
}

fn held_output_moves_and_is_released_by_the_next_loop(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    pair.append(b"free, held, ");
    let conn = pair.conn;
    assert!(pair.here().split().1.hold(conn, 6));
    pair.append(b"behind");
    pair.move_over();
    let conn = pair.conn;
    assert_eq!(pair.here().split().1.held_len_bytes(conn), 6);
    turn(pair.here(), Duration::ZERO);
    let mut got = [0; 6];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"free, ");
    pair.move_over();
    let conn = pair.conn;
    pair.here().split().1.release(conn);
    turn(pair.here(), Duration::ZERO);
    let mut got = [0; 12];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"held, behind");
}

fn bytes_that_arrive_during_the_release_are_handed_over(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    turn(pair.here(), Duration::ZERO);
    let conn = pair.conn;
    // Not received yet when the release begins; the receive of io_uring may take them or not.
    far.write_all(b"just before, ").unwrap();
    assert!(pair.here().release(conn));
    assert!(!pair.here().release(conn), "it already leaves");
    far.write_all(b"just after").unwrap();
    let socket = pair.released();
    pair.adopt(socket);
    pair.await_input(23);
    let conn = pair.conn;
    assert_eq!(pair.here().inputs().bytes(conn), b"just before, just after");
}

/// The time at which the peer closes the connection, relative to its move to another loop.
#[derive(Clone, Copy, Debug)]
enum Closes {
    BeforeItsEndIsReceived,
    AfterItsBytesAreReceived,
    AfterTheReleaseBegan,
    AfterTheRelease,
}

fn a_connection_that_is_closed_by_the_peer_moves_to_its_end(backend: BackendChoice) {
    use Closes::{AfterItsBytesAreReceived, AfterTheRelease, AfterTheReleaseBegan, BeforeItsEndIsReceived};
    for closes in [BeforeItsEndIsReceived, AfterItsBytesAreReceived, AfterTheReleaseBegan, AfterTheRelease] {
        let (mut far, mut pair) = Pair::unix(backend);
        turn(pair.here(), Duration::ZERO);
        far.write_all(b"last words").unwrap();
        let mut far = Some(far);
        match closes {
            // The bytes and the end arrive in one turn; the end is not reported yet.
            BeforeItsEndIsReceived => {
                far = None;
                pair.await_input(10);
            }
            AfterItsBytesAreReceived => {
                pair.await_input(10);
                far = None;
            }
            AfterTheReleaseBegan | AfterTheRelease => {}
        }
        let conn = pair.conn;
        assert!(pair.here().release(conn));
        if matches!(closes, AfterTheReleaseBegan) {
            far = None;
        }
        let socket = pair.released();
        drop(far);
        pair.adopt(socket);
        let (conn, mut got) = (pair.conn, Vec::new());
        pair.turn_until(|event_loop, event| {
            match *event {
                Event::Data(_) => {
                    let bytes = event_loop.inputs().bytes(conn).to_vec();
                    event_loop.consume(conn, bytes.len());
                    got.extend(bytes);
                }
                Event::Closed(closed, CloseReason::PeerClosed) => return closed == conn,
                ref event => panic!("{event:?}"),
            }
            false
        });
        assert_eq!(got, b"last words", "{closes:?}");
    }
}

fn a_closing_connection_is_closed_by_the_next_loop(backend: BackendChoice) {
    for before in [true, false] {
        let (mut far, mut pair) = Pair::tcp(backend);
        far.write_all(b"ignored").unwrap();
        pair.await_input(7);
        pair.append(b"last reply");
        let conn = pair.conn;
        if before {
            pair.here().close_after_flush(conn);
        }
        assert!(pair.here().release(conn));
        if !before {
            pair.here().close_after_flush(conn);
        }
        let socket = pair.released();
        assert_eq!(socket.unread(), b"");
        pair.adopt(socket);
        let conn = pair.conn;
        pair.turn_until(|_, event| matches!(event, Event::Closed(c, CloseReason::Flushed) if *c == conn));
        let mut got = Vec::new();
        let _ = far.read_to_end(&mut got);
        assert_eq!(got, b"last reply");
    }
}

fn a_connection_closed_during_its_release_is_not_reported(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    turn(pair.here(), Duration::ZERO);
    let conn = pair.conn;
    assert!(pair.here().release(conn));
    pair.here().close(conn);
    assert_eq!(far.read(&mut [0]).unwrap_or(0), 0);
    for _ in 0..3 {
        let events = turn(pair.here(), Duration::ZERO);
        assert!(events.is_empty(), "{events:?}");
    }
    assert_eq!(pair.here().open_count(), 0);
}

fn a_release_of_nothing_does_nothing(backend: BackendChoice) {
    let (_far, mut pair) = Pair::tcp(backend);
    let conn = pair.conn;
    pair.here().close(conn);
    assert!(!pair.here().release(conn));
    let events = turn(pair.here(), Duration::ZERO);
    assert!(events.is_empty(), "{events:?}");
}

fn a_dropped_loop_closes_what_it_was_releasing(backend: BackendChoice) {
    for turns in 0..2 {
        let (mut far, mut pair) = Pair::tcp(backend);
        for _ in 0..turns {
            turn(pair.here(), Duration::ZERO);
        }
        let conn = pair.conn;
        assert!(pair.here().release(conn));
        drop(pair);
        assert_eq!(far.read(&mut [0]).unwrap_or(0), 0);
    }
}

fn a_dropped_socket_is_closed(backend: BackendChoice) {
    let (mut far, mut pair) = Pair::tcp(backend);
    pair.append(b"never sent");
    drop(pair.release());
    assert_eq!(far.read(&mut [0]).unwrap_or(0), 0);
}

fn a_half_closed_connection_moves(backend: BackendChoice) {
    let options = LoopOptions { backend, keeps_half_closed: true, ..LoopOptions::default() };
    let (near, mut far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut pair = Pair::with(&options, near.try_into().unwrap());
    far.shutdown(std::net::Shutdown::Write).unwrap();
    for round in 0..3 {
        pair.turn_until(|_, event| matches!(event, Event::PeerFinished(_)));
        pair.append(&[round]);
        pair.move_over();
    }
    turn(pair.here(), Duration::ZERO);
    let mut got = [0; 3];
    far.read_exact(&mut got).unwrap();
    assert_eq!(got, [0, 1, 2]);
}

#[test]
fn a_socket_may_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Socket>();
    assert_send::<Event>();
}

//! The behaviour that both back ends share, tested with real sockets. If the kernel forbids
//! io_uring, the tests of that back end print so and pass.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[macro_use]
mod back_ends;
mod endings;
mod fairness;
mod held;
mod outgoing;

use endings::{
    a_look_for_ends_takes_nothing_from_who_is_there_and_reports_who_is_gone,
    a_peer_that_went_while_it_is_served_is_reported_when_it_is_given_up,
};
use fairness::floods_leave_room_for_others;
use held::{
    closing_waits_for_what_is_held, held_output_leaves_in_order_when_released,
    held_output_lets_nobody_be_reported_drained,
};
use net::{
    Address, Backend, BackendChoice, CloseReason, ConnId, Event, EventLoop, Listener, LoopOptions, Socket,
    UNIX_PATH_LEN_MAX,
};
use outgoing::{
    a_connection_begun_by_the_loop_sends_when_it_is_there, a_connection_that_is_refused_is_reported_closed,
};

on_each_backend! {
    input_cut_at_every_byte_arrives_whole,
    leftover_input_is_not_reported_again_until_more_arrives,
    marked_connections_are_reported_without_new_bytes,
    a_slow_reader_gets_everything_and_is_reported_drained,
    pausing_while_output_waits_is_answered_with_drained,
    a_half_closed_peer_is_served_through_pauses,
    descriptors_used_again_at_once_do_not_mix_connections,
    output_appended_behind_unsent_output_keeps_its_order,
    output_of_a_thousand_pieces_arrives_in_order,
    closing_with_output_unsent_harms_nobody,
    close_after_flush_sends_everything_first,
    held_output_leaves_in_order_when_released,
    held_output_lets_nobody_be_reported_drained,
    closing_waits_for_what_is_held,
    a_half_closed_peer_gets_its_replies_before_closed_is_reported,
    a_half_closed_connection_that_is_kept_takes_output,
    a_vanished_peer_is_reported_once,
    a_vanished_peer_is_reported_while_output_waits,
    a_peer_that_went_while_it_is_served_is_reported_when_it_is_given_up,
    a_look_for_ends_takes_nothing_from_who_is_there_and_reports_who_is_gone,
    two_hundred_connections_are_served_at_once,
    stale_ids_do_nothing,
    an_index_is_not_reused_within_a_turn,
    a_waker_wakes_from_another_thread,
    a_unix_socket_serves_and_has_its_mode,
    paused_connections_are_not_received_from,
    more_input_than_turn_memory_holds_arrives,
    floods_leave_room_for_others,
    an_announced_large_request_arrives_whole,
    a_socket_accepted_on_one_loop_works_on_another,
    submitted_output_leaves_without_a_poll,
    a_connection_begun_by_the_loop_sends_when_it_is_there,
    a_connection_that_is_refused_is_reported_closed,
    random_traffic_is_echoed_exactly,
    poll_returns_at_its_timeout,
    a_removed_listener_refuses_clients,
}

fn submitted_output_leaves_without_a_poll(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    for word in ["now", "and", "now"] {
        served.event_loop.output(conn).tail_mut().extend_from_slice(word.as_bytes());
        served.event_loop.flush();
        served.event_loop.submit();
        let mut got = [0; 3];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, word.as_bytes());
        served.turn(Duration::ZERO);
    }
}

/// A loop with one TCP listener on a free port, for one test.
struct Served {
    event_loop: EventLoop,
    address: std::net::SocketAddr,
    events: Vec<Event>,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Served {
    fn start(backend: BackendChoice) -> Self {
        Self::with(LoopOptions { backend, ..LoopOptions::default() })
    }

    fn with(options: LoopOptions) -> Self {
        let mut event_loop = EventLoop::new(&options).unwrap();
        let expected = match options.backend {
            BackendChoice::IoUring => Backend::IoUring,
            _ => Backend::Epoll,
        };
        assert_eq!(event_loop.backend(), expected);
        let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap();
        let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP listener") };
        event_loop.add_listener(listener).unwrap();
        Self { event_loop, address, events: Vec::new() }
    }

    /// Runs one turn: flushes, polls, adopts new connections. Returns all events except `Accepted`.
    fn turn(&mut self, timeout: Duration) -> Vec<Event> {
        self.event_loop.flush();
        self.events.clear();
        self.event_loop.poll(Some(timeout), &mut self.events).unwrap();
        let mut rest = Vec::new();
        for event in self.events.drain(..) {
            match event {
                Event::Accepted { socket, .. } => {
                    let peer = socket.peer_address().clone();
                    let conn = self.event_loop.adopt(socket).unwrap();
                    assert_eq!(self.event_loop.peer_address(conn), Some(&peer));
                }
                other => rest.push(other),
            }
        }
        rest
    }

    /// Runs turns until `done` returns true for one of their events.
    fn turn_until(&mut self, mut done: impl FnMut(&mut EventLoop, &Event) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for event in self.turn(Duration::from_secs(1)) {
                if done(&mut self.event_loop, &event) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "it never happened");
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects a client that sends one byte, by which the loop's connection is identified. Returns
    /// both; the byte is consumed.
    fn connect_known(&mut self) -> (TcpStream, ConnId) {
        let mut client = self.connect();
        client.write_all(b"!").unwrap();
        let mut known = None;
        self.turn_until(|event_loop, event| {
            let Event::Data(conn) = event else { return false };
            event_loop.consume(*conn, 1);
            known = Some(*conn);
            true
        });
        (client, known.unwrap())
    }

    fn bytes(&self, conn: ConnId) -> Vec<u8> {
        self.event_loop.inputs().bytes(conn).to_vec()
    }

    fn append(&mut self, conn: ConnId, bytes: &[u8]) {
        self.event_loop.output(conn).tail_mut().extend_from_slice(bytes);
    }

    fn unsent(&mut self, conn: ConnId) -> usize {
        self.event_loop.split().1.len_bytes(conn)
    }

    /// Asserts that the loop reports no event for a short time.
    fn assert_quiet(&mut self) {
        let events = self.turn(Duration::from_millis(20));
        assert!(events.is_empty(), "{events:?}");
    }
}

/// Returns bytes that depend on their position and on `seed`.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn input_cut_at_every_byte_arrives_whole(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    let message = b"*1\r\n$4\r\nPING\r\n";
    for cut in 1..message.len() {
        let (first, second) = message.split_at(cut);
        client.write_all(first).unwrap();
        served.turn_until(|_, event| matches!(event, Event::Data(_)));
        assert_eq!(served.bytes(conn), first);
        client.write_all(second).unwrap();
        served.turn_until(|_, event| matches!(event, Event::Data(_)));
        assert_eq!(served.bytes(conn), message);
        // The bytes are consumed in two steps, with a turn between them: the rest is moved.
        served.event_loop.consume(conn, cut);
        assert_eq!(served.bytes(conn), second);
        served.turn(Duration::ZERO);
        assert_eq!(served.bytes(conn), second);
        served.event_loop.consume(conn, second.len());
        assert_eq!(served.bytes(conn), b"");
        assert_eq!(served.event_loop.inputs().capacity_bytes(conn), 0);
    }
}

fn leftover_input_is_not_reported_again_until_more_arrives(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    client.write_all(b"half").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    served.assert_quiet();
    assert_eq!(served.bytes(conn), b"half");
    client.write_all(b" done").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    assert_eq!(served.bytes(conn), b"half done");
}

fn marked_connections_are_reported_without_new_bytes(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    client.write_all(b"abc").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    for left in [b"bc".as_slice(), b"c", b""] {
        served.event_loop.consume(conn, 1);
        served.event_loop.mark_ready(conn);
        served.event_loop.mark_ready(conn);
        let events = served.turn(PATIENCE);
        assert!(matches!(events[..], [Event::Data(c)] if c == conn), "{events:?}");
        assert_eq!(served.bytes(conn), left);
    }
    served.assert_quiet();
}

fn a_slow_reader_gets_everything_and_is_reported_drained(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    let sent = pattern(24 << 20, 1);
    served.append(conn, &sent);
    served.turn(Duration::ZERO);
    assert!(served.unsent(conn) > 0, "the socket took all of it at once");
    served.assert_quiet();
    let reader = thread::spawn(move || {
        let mut got = vec![0; 24 << 20];
        client.read_exact(&mut got).unwrap();
        (client, got)
    });
    served.turn_until(|_, event| matches!(event, Event::Drained(c) if *c == conn));
    assert_eq!(served.unsent(conn), 0);
    let (client, got) = reader.join().unwrap();
    assert!(got == sent);
    served.assert_quiet();
    drop(client);
    served.turn_until(|_, event| matches!(event, Event::Closed(c, CloseReason::PeerClosed) if *c == conn));
}

fn output_appended_behind_unsent_output_keeps_its_order(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    let sent = pattern(16 << 20, 2);
    for part in sent.chunks(1 << 20) {
        served.append(conn, part);
        served.turn(Duration::ZERO);
    }
    let reader = thread::spawn(move || {
        let mut got = vec![0; 16 << 20];
        client.read_exact(&mut got).unwrap();
        got
    });
    served.turn_until(|_, event| matches!(event, Event::Drained(_)));
    assert!(reader.join().unwrap() == sent);
}

fn output_of_a_thousand_pieces_arrives_in_order(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    let mut expected = Vec::new();
    for piece in 0..1000_u64 {
        let shared = pattern(1 + (piece as usize * 37) % 900, piece);
        expected.extend_from_slice(&shared);
        served.event_loop.output(conn).push_shared(Arc::new(shared));
        if piece % 3 == 0 {
            served.append(conn, b"between");
            expected.extend_from_slice(b"between");
        }
    }
    let len = expected.len();
    let reader = thread::spawn(move || {
        let mut got = vec![0; len];
        client.read_exact(&mut got).unwrap();
        got
    });
    let deadline = Instant::now() + PATIENCE;
    while served.unsent(conn) > 0 && Instant::now() < deadline {
        served.turn(Duration::from_millis(10));
    }
    assert!(reader.join().unwrap() == expected);
}

fn closing_with_output_unsent_harms_nobody(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut other, other_conn) = served.connect_known();
    for round in 0..20_u64 {
        let (client, conn) = served.connect_known();
        let big = pattern(4 << 20, round);
        served.event_loop.output(conn).push_shared(Arc::new(big.clone()));
        served.append(conn, &big);
        if round % 2 == 0 {
            served.event_loop.flush();
        }
        if round % 4 < 2 {
            served.turn(Duration::ZERO);
        }
        served.event_loop.close(conn);
        assert!(!served.event_loop.is_open(conn));
        // The peer sees the end, and before it only a prefix of the bytes sent.
        let reader = thread::spawn(move || {
            let mut client = client;
            let mut got = Vec::new();
            let _ = client.read_to_end(&mut got);
            got
        });
        let deadline = Instant::now() + PATIENCE;
        while !reader.is_finished() {
            served.append(other_conn, b"ok");
            served.turn(Duration::from_millis(1));
            other.read_exact(&mut [0; 2]).unwrap();
            assert!(Instant::now() < deadline, "the peer never saw the end");
        }
        let got = reader.join().unwrap();
        let all: Vec<u8> = big.iter().chain(&big).copied().collect();
        assert!(all.starts_with(&got));
    }
}

fn close_after_flush_sends_everything_first(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for len in [0, 5, 8 << 20] {
        let (mut client, conn) = served.connect_known();
        let sent = pattern(len, 3);
        served.append(conn, &sent);
        served.event_loop.close_after_flush(conn);
        let reader = thread::spawn(move || {
            // Input after the decision is ignored.
            let _ = client.write_all(b"more?");
            let mut got = Vec::new();
            let _ = client.read_to_end(&mut got);
            got
        });
        served.turn_until(|_, event| {
            assert!(!matches!(event, Event::Data(_)), "its input is to be ignored");
            matches!(event, Event::Closed(c, CloseReason::Flushed) if *c == conn)
        });
        let got = reader.join().unwrap();
        // If there is unread input at the close, the system may reset the connection. Then only a
        // prefix arrives.
        assert!(sent.starts_with(&got));
        assert!(!served.event_loop.is_open(conn));
    }
}

fn a_half_closed_peer_gets_its_replies_before_closed_is_reported(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for len in [3, 300, 60_000] {
        let mut client = served.connect();
        let request = pattern(len, 4);
        client.write_all(&request).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut echoed = 0;
        served.turn_until(|event_loop, event| match event {
            Event::Data(conn) => {
                // The input is consumed in small steps, as by a caller with a limit per turn.
                let step = event_loop.inputs().len_bytes(*conn).min(7_000);
                let bytes = event_loop.inputs().bytes(*conn)[..step].to_vec();
                event_loop.output(*conn).tail_mut().extend_from_slice(&bytes);
                event_loop.consume(*conn, step);
                if event_loop.inputs().len_bytes(*conn) > 0 {
                    event_loop.mark_ready(*conn);
                }
                echoed += step;
                false
            }
            Event::Closed(_, reason) => {
                assert_eq!(*reason, CloseReason::PeerClosed);
                true
            }
            _ => false,
        });
        assert_eq!(echoed, len);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == request);
    }
}

fn a_half_closed_connection_that_is_kept_takes_output(backend: BackendChoice) {
    let options = LoopOptions { backend, keeps_half_closed: true, ..LoopOptions::default() };
    let mut served = Served::with(options);
    let (mut client, conn) = served.connect_known();
    client.shutdown(Shutdown::Write).unwrap();
    served.turn_until(|_, event| matches!(event, Event::PeerFinished(c) if *c == conn));
    served.assert_quiet();
    let sent = pattern(4 << 20, 8);
    served.append(conn, &sent);
    served.turn(Duration::ZERO);
    served.event_loop.close_after_flush(conn);
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).map(|_| got).unwrap()
    });
    served.turn_until(|_, event| matches!(event, Event::Closed(_, CloseReason::Flushed)));
    assert!(reader.join().unwrap() == sent);
}

fn reset(client: TcpStream) {
    // Closing with a linger of zero sends RST instead of FIN.
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
}

fn a_vanished_peer_is_reported_once(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for round in 0..10 {
        let (mut client, conn) = served.connect_known();
        client.write_all(b"last words").unwrap();
        served.turn_until(|_, event| matches!(event, Event::Data(_)));
        if round % 2 == 0 {
            drop(client)
        } else {
            reset(client)
        }
        served.append(conn, b"too late");
        let mut closed = 0;
        served.turn_until(|_, event| {
            closed += u32::from(matches!(event, Event::Closed(c, _) if *c == conn));
            closed > 0
        });
        assert!(!served.event_loop.is_open(conn));
        served.append(conn, b"far too late");
        served.assert_quiet();
    }
    assert_eq!(served.event_loop.open_count(), 0);
}

fn a_vanished_peer_is_reported_while_output_waits(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for paused in [false, true] {
        let (client, conn) = served.connect_known();
        served.append(conn, &pattern(16 << 20, 5));
        served.turn(Duration::ZERO);
        if paused {
            served.event_loop.pause_input(conn);
        }
        assert!(served.unsent(conn) > 0);
        reset(client);
        served.turn_until(|_, event| matches!(event, Event::Closed(c, _) if *c == conn));
        assert_eq!(served.unsent(conn), 0);
    }
}

fn two_hundred_connections_are_served_at_once(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let mut clients: Vec<TcpStream> = (0..200).map(|_| served.connect()).collect();
    for round in 0..5_u32 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("round {round} client {number:03}\n").as_bytes()).unwrap();
        }
        let mut answered = 0;
        served.turn_until(|event_loop, event| {
            if let Event::Data(conn) = event {
                let (inputs, outputs) = event_loop.split();
                let bytes = inputs.bytes(*conn);
                outputs.queue(*conn).tail_mut().extend_from_slice(bytes);
                let len = bytes.len();
                event_loop.consume(*conn, len);
                answered += 1;
            }
            answered == 200
        });
        served.turn(Duration::ZERO);
        for (number, client) in clients.iter_mut().enumerate() {
            let mut line = [0; 19];
            client.read_exact(&mut line).unwrap();
            assert_eq!(line.as_slice(), format!("round {round} client {number:03}\n").as_bytes());
        }
    }
    drop(clients);
    let mut gone = 0;
    served.turn_until(|_, event| {
        gone += u32::from(matches!(event, Event::Closed(_, CloseReason::PeerClosed)));
        gone == 200
    });
    assert_eq!(served.event_loop.open_count(), 0);
}

fn stale_ids_do_nothing(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (client, old) = served.connect_known();
    served.event_loop.close(old);
    drop(client);
    let (mut client, new) = served.connect_known();
    assert_eq!(old.index(), new.index());
    assert_ne!(old, new);
    client.write_all(b"mine").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(c) if *c == new));
    for stale in [old, ConnId::from_u64(77), ConnId::from_u64(u64::MAX), ConnId::from_u64(0)] {
        let event_loop = &mut served.event_loop;
        event_loop.consume(stale, 3);
        event_loop.mark_ready(stale);
        event_loop.reserve_input(stale, 1 << 30);
        event_loop.pause_input(stale);
        event_loop.resume_input(stale);
        event_loop.output(stale).tail_mut().extend_from_slice(b"nowhere");
        event_loop.flush();
        event_loop.close_after_flush(stale);
        event_loop.close(stale);
        event_loop.set_keepalive(stale, None).unwrap();
        assert_eq!(event_loop.inputs().bytes(stale), b"");
        assert_eq!(event_loop.inputs().len_bytes(stale), 0);
        assert!(event_loop.peer_address(stale).is_none() && event_loop.fd(stale).is_none());
        assert_eq!(event_loop.split().1.len_bytes(stale), 0);
    }
    assert_eq!(served.bytes(new), b"mine");
    served.append(new, b"yours");
    served.turn(Duration::ZERO);
    let mut got = [0; 5];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"yours");
}

fn an_index_is_not_reused_within_a_turn(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (_client, old) = served.connect_known();
    let pair = || UnixStream::pair().unwrap();
    let ((_a, first), (_b, second)) = (pair(), pair());
    served.event_loop.close(old);
    let first = served.event_loop.adopt(Socket::try_from(first).unwrap()).unwrap();
    assert_ne!(first.index(), old.index());
    served.turn(Duration::ZERO);
    let second = served.event_loop.adopt(Socket::try_from(second).unwrap()).unwrap();
    assert_eq!(second.index(), old.index());
    assert_ne!(second.generation(), old.generation());
}

fn a_waker_wakes_from_another_thread(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for _ in 0..100 {
        let waker = served.event_loop.waker();
        let thread = thread::spawn(move || waker.wake().unwrap());
        served.turn_until(|_, event| matches!(event, Event::Woken));
        thread.join().unwrap();
    }
    // Wake-ups before the poll count too; several may be reported as one.
    served.event_loop.waker().wake().unwrap();
    served.event_loop.waker().wake().unwrap();
    served.turn_until(|_, event| matches!(event, Event::Woken));
    let waker = served.event_loop.waker();
    drop(served);
    let _ = waker.wake();
}

fn a_unix_socket_serves_and_has_its_mode(backend: BackendChoice) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut served = Served::start(backend);
    for _ in 0..2 {
        // The second listener replaces the file of the first one, on which no process listens any
        // more.
        let listener = loop {
            match Listener::unix(&path, Some(0o770), 16) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    served.turn(Duration::from_millis(1));
                }
                made => break made.unwrap(),
            }
        };
        let second = Listener::unix(&path, None, 16).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o770);
        let id = served.event_loop.add_listener(listener).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        let mut local = None;
        served.turn_until(|event_loop, event| {
            let Event::Data(conn) = event else { return false };
            local = event_loop.local_address(*conn).cloned();
            event_loop.consume(*conn, 5);
            event_loop.output(*conn).tail_mut().extend_from_slice(b"world");
            true
        });
        assert_eq!(local.unwrap().to_string(), path.display().to_string());
        served.turn(Duration::ZERO);
        let mut got = [0; 5];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"world");
        served.event_loop.remove_listener(id);
    }
    std::fs::write(folder.path().join("file"), "precious").unwrap();
    let refused = |path: &Path| Listener::unix(path, None, 16).unwrap_err().kind();
    assert_eq!(refused(&folder.path().join("file")), ErrorKind::AlreadyExists);
    assert_eq!(refused(Path::new(&"x".repeat(UNIX_PATH_LEN_MAX + 1))), ErrorKind::InvalidInput);
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"precious");
}

fn paused_connections_are_not_received_from(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (client, conn) = served.connect_known();
    let sent = pattern(32 << 20, 6);
    served.event_loop.pause_input(conn);
    let writer = {
        let (sent, mut client) = (sent.clone(), client.try_clone().unwrap());
        thread::spawn(move || client.write_all(&sent).unwrap())
    };
    // Bytes that were on their way may still arrive, but only a limited number.
    let mut quiet = 0;
    while quiet < 3 {
        quiet = if served.turn(Duration::from_millis(20)).is_empty() { quiet + 1 } else { 0 };
    }
    assert!(served.event_loop.inputs().len_bytes(conn) < 16 << 20);
    assert!(!writer.is_finished());
    let mut got = Vec::new();
    let mut resumed = Instant::now();
    served.event_loop.resume_input(conn);
    served.event_loop.mark_ready(conn);
    served.turn_until(|event_loop, event| {
        let Event::Data(conn) = event else { return false };
        got.extend_from_slice(event_loop.inputs().bytes(*conn));
        event_loop.consume(*conn, event_loop.inputs().len_bytes(*conn));
        // The input is paused again and again in the middle of the stream.
        event_loop.pause_input(*conn);
        if resumed.elapsed() > Duration::from_millis(1) {
            event_loop.mark_ready(*conn);
        }
        event_loop.resume_input(*conn);
        resumed = Instant::now();
        got.len() == sent.len()
    });
    assert!(got == sent);
    writer.join().unwrap();
}

fn pausing_while_output_waits_is_answered_with_drained(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    for flushed_before in [false, true] {
        // However fast the output is sent, a caller that pauses until then must get the report.
        served.append(conn, b"reply");
        if flushed_before {
            served.event_loop.flush();
        }
        let unsent = served.unsent(conn) > 0;
        served.event_loop.pause_input(conn);
        assert!(unsent || flushed_before);
        if unsent {
            served.turn_until(|_, event| matches!(event, Event::Drained(c) if *c == conn));
        }
        served.assert_quiet();
        served.event_loop.resume_input(conn);
        client.read_exact(&mut [0; 5]).unwrap();
    }
    served.event_loop.pause_input(conn);
    served.assert_quiet();
    served.event_loop.resume_input(conn);
    client.write_all(b"still here").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(c) if *c == conn));
}

/// Serves a peer that sends requests, closes its side and reads slowly. The caller stops in the
/// middle of the requests until the replies are sent.
fn a_half_closed_peer_is_served_through_pauses(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let mut client = served.connect();
    let request = pattern(10_000, 8);
    client.write_all(&request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    let mut expected = Vec::new();
    served.turn_until(|event_loop, event| match event {
        Event::Data(conn) | Event::Drained(conn) => {
            event_loop.resume_input(*conn);
            let step = event_loop.inputs().len_bytes(*conn).min(1_000);
            let bytes = event_loop.inputs().bytes(*conn)[..step].to_vec();
            event_loop.consume(*conn, step);
            // Each request is answered with a thousand times its length.
            let reply = bytes.repeat(1000);
            event_loop.output(*conn).tail_mut().extend_from_slice(&reply);
            expected.extend_from_slice(&reply);
            if event_loop.inputs().len_bytes(*conn) > 0 {
                event_loop.pause_input(*conn);
            } else {
                event_loop.close_after_flush(*conn);
            }
            false
        }
        Event::Closed(_, reason) => {
            assert_eq!(*reason, CloseReason::Flushed);
            true
        }
        _ => false,
    });
    let got = reader.join().unwrap();
    assert_eq!(got.len(), expected.len());
    assert!(got == expected);
}

/// Checks that connections which open and close quickly do not get each other's bytes. A descriptor
/// number may then name a new socket while requests for its former owner are still queued.
fn descriptors_used_again_at_once_do_not_mix_connections(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let mut random = Random(5);
    let mut peers: Vec<(UnixStream, ConnId, u8)> = Vec::new();
    for round in 0..2_000_u32 {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let conn = served.event_loop.adopt(Socket::try_from(near).unwrap()).unwrap();
        let mark = round as u8;
        served.append(conn, &[mark; 3]);
        peers.push((far, conn, mark));
        if random.next().is_multiple_of(3) {
            served.event_loop.flush();
        }
        if random.next().is_multiple_of(2) {
            let (mut far, conn, mark) = peers.swap_remove(random.next() as usize % peers.len());
            served.event_loop.close(conn);
            if random.next().is_multiple_of(4) {
                served.turn(Duration::ZERO);
                let mut got = Vec::new();
                far.read_to_end(&mut got).unwrap();
                assert!(got.len() <= 3 && got.iter().all(|byte| *byte == mark), "{got:?} is not {mark}");
            }
        }
    }
    served.turn(Duration::ZERO);
    for (far, conn, mark) in &mut peers {
        let mut got = [0; 3];
        far.read_exact(&mut got).unwrap();
        assert_eq!(got, [*mark; 3]);
        far.write_all(&[*mark]).unwrap();
        assert!(served.event_loop.is_open(*conn));
    }
    let marks: HashMap<ConnId, u8> = peers.iter().map(|(_, conn, mark)| (*conn, *mark)).collect();
    let mut heard = 0;
    served.turn_until(|event_loop, event| {
        let Event::Data(conn) = event else { panic!("{event:?}") };
        assert_eq!(event_loop.inputs().bytes(*conn), [marks[conn]]);
        heard += 1;
        heard == marks.len()
    });
}

fn more_input_than_turn_memory_holds_arrives(backend: BackendChoice) {
    let options = LoopOptions { backend, turn_input_len_bytes_max: 64 * 1024, ..LoopOptions::default() };
    let mut served = Served::with(options);
    let each = 400_000;
    let writers: Vec<_> = (0..40_u64)
        .map(|number| {
            let mut client = served.connect();
            thread::spawn(move || {
                client.write_all(&pattern(each, number)).unwrap();
                client
            })
        })
        .collect();
    let mut arrived: HashMap<ConnId, Vec<u8>> = HashMap::new();
    let mut total = 0;
    served.turn_until(|event_loop, event| {
        let Event::Data(conn) = event else { return false };
        // An odd number of bytes is left each time, so that remainders are joined.
        let bytes = event_loop.inputs().bytes(*conn);
        let all = arrived.entry(*conn).or_default();
        let take = if all.len() + bytes.len() < each { bytes.len() - bytes.len() % 13 } else { bytes.len() };
        all.extend_from_slice(&bytes[..take]);
        total += take;
        event_loop.consume(*conn, take);
        total == 40 * each
    });
    let mut got: Vec<Vec<u8>> = arrived.into_values().collect();
    let mut expected: Vec<Vec<u8>> = (0..40).map(|number| pattern(each, number)).collect();
    got.sort();
    expected.sort();
    assert!(got == expected);
    for writer in writers {
        writer.join().unwrap();
    }
}

fn an_announced_large_request_arrives_whole(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (client, conn) = served.connect_known();
    let sent = pattern(12 << 20, 7);
    let writer = {
        let (sent, mut client) = (sent.clone(), client.try_clone().unwrap());
        thread::spawn(move || client.write_all(&sent).unwrap())
    };
    served.turn_until(|event_loop, event| {
        assert!(matches!(event, Event::Data(c) if *c == conn));
        // A gigabyte is announced, but memory grows only with the bytes that arrive.
        event_loop.reserve_input(conn, 1 << 30);
        let inputs = event_loop.inputs();
        assert!(inputs.capacity_bytes(conn) <= (1 << 20) + 4 * inputs.len_bytes(conn));
        inputs.len_bytes(conn) == 12 << 20
    });
    writer.join().unwrap();
    assert!(served.bytes(conn) == sent);
    served.event_loop.consume(conn, 12 << 20);
    assert_eq!(served.event_loop.inputs().capacity_bytes(conn), 0);
}

fn a_socket_accepted_on_one_loop_works_on_another(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let mut client = served.connect();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        let options =
            LoopOptions { backend, keepalive: Some(Duration::from_secs(300)), ..Default::default() };
        let mut event_loop = EventLoop::new(&options).unwrap();
        let socket = receiver.recv().unwrap();
        let adopted = event_loop.adopt(socket).unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            event_loop.poll(Some(PATIENCE), &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Data(c)] if c == adopted));
        assert_eq!(event_loop.inputs().bytes(adopted), b"over there");
        assert!(rustix::net::sockopt::tcp_nodelay(event_loop.fd(adopted).unwrap()).unwrap());
        assert!(rustix::net::sockopt::socket_keepalive(event_loop.fd(adopted).unwrap()).unwrap());
        event_loop.output(adopted).tail_mut().extend_from_slice(b"here");
        event_loop.close_after_flush(adopted);
        event_loop.flush();
        events.clear();
        while events.is_empty() {
            event_loop.poll(Some(PATIENCE), &mut events).unwrap();
        }
        assert!(matches!(events[..], [Event::Closed(c, CloseReason::Flushed)] if c == adopted));
    });
    client.write_all(b"over there").unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        served.event_loop.poll(Some(PATIENCE), &mut events).unwrap();
    }
    match events.pop() {
        Some(Event::Accepted { socket, .. }) => sender.send(socket).unwrap(),
        other => panic!("{other:?}"),
    }
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"here");
    other.join().unwrap();
}

/// Sends `len` bytes in pieces of random length to a server that echoes them, and checks the bytes
/// that come back.
fn echo_client(stream: TcpStream, len: usize, seed: u64) {
    let sent = pattern(len, seed);
    let mut random = Random(seed);
    let (mut reader, mut written) = (stream.try_clone().unwrap(), 0);
    let expected = sent.clone();
    let reading = thread::spawn(move || {
        let mut got = vec![0; expected.len()];
        reader.read_exact(&mut got).unwrap();
        assert!(got == expected);
    });
    let mut stream = stream;
    while written < len {
        let longest = if random.next().is_multiple_of(4) { 50_000 } else { 300 };
        let end = len.min(written + 1 + random.next() as usize % longest);
        stream.write_all(&sent[written..end]).unwrap();
        written = end;
    }
    reading.join().unwrap();
}

fn random_traffic_is_echoed_exactly(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let clients: Vec<_> = (0..12_u64)
        .map(|seed| {
            let stream = served.connect();
            thread::spawn(move || echo_client(stream, 500_000 + 1000 * seed as usize, seed))
        })
        .collect();
    let mut random = Random(99);
    let mut closed = 0;
    served.turn_until(|event_loop, event| match event {
        Event::Data(conn) => {
            let (inputs, outputs) = event_loop.split();
            let bytes = inputs.bytes(*conn);
            let take = if random.next().is_multiple_of(3) { bytes.len() / 2 } else { bytes.len() };
            if random.next().is_multiple_of(5) {
                outputs.queue(*conn).push_shared(Arc::new(bytes[..take].to_vec()));
            } else {
                outputs.queue(*conn).tail_mut().extend_from_slice(&bytes[..take]);
            }
            let rest = bytes.len() - take;
            event_loop.consume(*conn, take);
            if rest > 0 {
                event_loop.mark_ready(*conn);
            }
            false
        }
        Event::Closed(_, reason) => {
            assert_eq!(*reason, CloseReason::PeerClosed);
            closed += 1;
            closed == 12
        }
        _ => false,
    });
    for client in clients {
        client.join().unwrap();
    }
}

fn poll_returns_at_its_timeout(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let begin = Instant::now();
    assert!(served.turn(Duration::from_millis(30)).is_empty());
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(29), "{took:?}");
}

fn a_removed_listener_refuses_clients(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let listener = Listener::tcp("[::1]:0".parse().unwrap(), 16);
    let Ok(listener) = listener else { return println!("skipped: no IPv6 here") };
    let Address::Tcp(address) = *listener.local_address() else { panic!("a TCP listener") };
    let id = served.event_loop.add_listener(listener).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"?").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    served.event_loop.remove_listener(id);
    served.turn(Duration::ZERO);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
            _ => assert!(Instant::now() < deadline, "still accepting"),
        }
        served.turn(Duration::from_millis(1));
    }
    assert_eq!(served.event_loop.open_count(), 1);
}

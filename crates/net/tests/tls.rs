//! Tests of encrypted connections on each back end, with real sockets and rustls' own client. If
//! the kernel forbids io_uring, the tests of that back end print so and pass.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use net::{
    Address, BackendChoice, CloseReason, ConnId, Event, EventLoop, Listener, LoopOptions, Socket, TlsClient,
    TlsFailure, TlsServer, Waker,
};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, SupportedCipherSuite};

#[macro_use]
mod back_ends;
mod identity;

use identity::Identity;

on_each_backend! {
    every_suite_echoes_every_length,
    records_cut_at_any_byte_arrive_whole,
    a_peer_that_speaks_no_tls_is_closed,
    a_changed_record_ends_the_connection_with_an_alert,
    keys_change_at_the_peers_wish_but_not_forever,
    sessions_are_resumed,
    a_slow_handshake_ends_in_time,
    who_speaks_another_protocol_is_told_nothing,
    a_storm_of_handshakes_leaves_room_for_a_served_client,
    a_peer_that_has_finished_still_gets_its_replies,
    the_end_is_said_to_the_peer,
    a_slow_reader_gets_everything,
    a_loop_is_a_client_as_well,
    a_handshake_that_is_too_long_ends,
    plain_and_encrypted_listeners_serve_side_by_side,
    held_output_leaves_sealed_and_in_order,
}

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns one cipher suite of each TLS version, and for TLS 1.2 one of each record layout.
fn suites() -> Vec<SupportedCipherSuite> {
    let by_key = |suite: &&SupportedCipherSuite| !format!("{:?}", suite.suite()).contains("RSA");
    let found: Vec<_> = ALL_CIPHER_SUITES.iter().filter(by_key).copied().collect();
    assert_eq!(found.len(), 6, "three of TLS 1.3, three of TLS 1.2");
    found
}

/// A report from the loop of an [`Echo`] to the test.
#[derive(Debug)]
enum Report {
    Secured { resumed: bool },
    HandshakeFailed(String),
    Closed(CloseReason),
}

/// A loop on its own thread that sends back its input. A connection whose input ends with `bye` is
/// closed once all of it was sent back.
struct Echo {
    address: SocketAddr,
    plain_address: SocketAddr,
    reports: mpsc::Receiver<Report>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<thread::JoinHandle<()>>,
}

impl Echo {
    fn start(backend: BackendChoice, server: TlsServer) -> Self {
        Self::with(LoopOptions { backend, ..LoopOptions::default() }, server)
    }

    fn with(options: LoopOptions, server: TlsServer) -> Self {
        let listener = || Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap();
        let (encrypted, plain) = (listener().encrypted(server), listener());
        let address_of = |listener: &Listener| match *listener.local_address() {
            Address::Tcp(address) => address,
            _ => unreachable!(),
        };
        let (address, plain_address) = (address_of(&encrypted), address_of(&plain));
        let (sender, reports) = mpsc::channel();
        let (waker_sender, waker) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut event_loop = EventLoop::new(&options).unwrap();
            event_loop.add_listener(encrypted).unwrap();
            event_loop.add_listener(plain).unwrap();
            waker_sender.send(event_loop.waker()).unwrap();
            let mut events = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                event_loop.poll(None, &mut events).unwrap();
                for event in events.drain(..) {
                    if let Some(report) = echo(&mut event_loop, event) {
                        let _ = sender.send(report);
                    }
                }
                event_loop.flush();
            }
        });
        let waker = waker.recv().unwrap();
        Self { address, plain_address, reports, stop, waker, thread: Some(thread) }
    }

    fn report(&self) -> Report {
        self.reports.recv_timeout(PATIENCE).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.waker.wake();
        let joined = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || joined.is_some_and(|joined| joined.is_ok()));
    }
}

fn echo(event_loop: &mut EventLoop, event: Event) -> Option<Report> {
    match event {
        Event::Accepted { socket, .. } => {
            event_loop.adopt(socket).unwrap();
        }
        Event::Data(conn) => {
            let (inputs, outputs) = event_loop.split();
            let len = inputs.bytes(conn).len();
            let ends = inputs.bytes(conn).ends_with(b"bye");
            outputs.queue(conn).tail_mut().extend_from_slice(inputs.bytes(conn));
            event_loop.consume(conn, len);
            if ends {
                event_loop.close_after_flush(conn);
            }
        }
        Event::Secured(conn) => {
            let agreed = event_loop.agreed(conn).unwrap();
            return Some(Report::Secured { resumed: agreed.resumed });
        }
        Event::HandshakeFailed(_, reason) => return Some(Report::HandshakeFailed(reason.into())),
        Event::Closed(_, reason) => return Some(Report::Closed(reason)),
        _ => {}
    }
    None
}

/// A client: rustls over a blocking socket. A test may split its bytes or change them.
struct Client {
    tls: ClientConnection,
    stream: TcpStream,
    /// The maximum number of bytes that the client sends at once.
    step: usize,
}

impl Client {
    fn new(echo: &Echo, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self { tls, stream: echo.connect(), step: usize::MAX }
    }

    fn shaken(echo: &Echo, config: &Arc<ClientConfig>) -> Self {
        let mut client = Self::new(echo, config);
        client.shake();
        client
    }

    fn shake(&mut self) {
        while self.tls.is_handshaking() {
            self.send_tls();
            if self.tls.is_handshaking() {
                self.receive_tls().unwrap();
            }
        }
        self.send_tls();
    }

    fn send_tls(&mut self) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        for piece in bytes.chunks(self.step) {
            self.stream.write_all(piece).unwrap();
        }
    }

    /// Receives some TLS bytes and returns their number. An invalid record in them is an error.
    fn receive_tls(&mut self) -> Result<usize, rustls::Error> {
        let got = loop {
            match self.tls.read_tls(&mut self.stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => break got.unwrap(),
            }
        };
        self.tls.process_new_packets()?;
        Ok(got)
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes).unwrap();
            bytes = &bytes[taken..];
            self.send_tls();
        }
    }

    fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut got = vec![0; len];
        let mut at = 0;
        while at < len {
            match self.tls.reader().read(&mut got[at..]) {
                Ok(0) => panic!("the end after {at} of {len} bytes"),
                Ok(read) => at += read,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    assert!(self.receive_tls().unwrap() > 0, "cut off after {at} of {len} bytes");
                }
            }
        }
        got
    }

    /// Returns true if the peer has sent `close_notify`, the end of its TLS stream, behind all
    /// received data.
    fn is_told_the_end(&mut self) -> bool {
        loop {
            match self.tls.reader().read(&mut [0; 1]) {
                Ok(0) => return true,
                Ok(_) => panic!("more"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.receive_tls().unwrap() == 0 {
                        return false;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn noise(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8 | 1).collect()
}

fn every_suite_echoes_every_length(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in suites() {
        let mut client = Client::shaken(&served, &Arc::new(identity.client(&[suite])));
        for len in [1, 2, 15, 16, 17, 100, 16_383, 16_384, 16_385, 40_000, 1 << 20] {
            let sent = noise(len, len);
            let sending = sent.clone();
            client.send(&sending);
            assert!(client.receive(len) == sent, "{suite:?}, {len} bytes");
        }
        for round in 0..300 {
            client.send(&noise(round + 1, round));
        }
        for round in 0..300 {
            assert_eq!(client.receive(round + 1), noise(round + 1, round));
        }
    }
}

fn records_cut_at_any_byte_arrive_whole(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in [suites()[0], suites()[3], suites()[5]] {
        let config = Arc::new(identity.client(&[suite]));
        for step in [1, 3, 7, 1000] {
            let mut client = Client::new(&served, &config);
            client.step = step;
            client.shake();
            for len in [1, 40, 20_000] {
                client.step = if len > 1000 { step.max(97) } else { step };
                let sent = noise(len, step);
                client.send(&sent);
                assert!(client.receive(len) == sent, "{suite:?}, {len} bytes by {step}");
            }
        }
    }
}

fn a_peer_that_speaks_no_tls_is_closed(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for words in
        [&b"*1\r\n$4\r\nPING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], &[22, 3, 1, 0xff, 0xff]]
    {
        let mut stream = served.connect();
        stream.write_all(words).unwrap();
        println!("{words:?}");
        let Report::HandshakeFailed(reason) = served.report() else { panic!("no failure") };
        assert!(!reason.is_empty());
        let Report::Closed(reason) = served.report() else { panic!("not closed") };
        assert_eq!(reason, CloseReason::Tls(TlsFailure::Handshake));
        // The peer gets an alert, then the end.
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(got.is_empty() || got[0] == 21, "{got:?}");
    }
    // This client closes its connection during its handshake.
    drop(served.connect());
    let Report::Closed(reason) = served.report() else { panic!("not closed") };
    assert_eq!(reason, CloseReason::PeerClosed);
}

/// Returns the code of the alert that a peer gets for `failure` (RFC 8446, 6.2).
fn alert_of(failure: TlsFailure) -> u8 {
    match failure {
        TlsFailure::UnexpectedMessage => 10,
        TlsFailure::BadTag => 20,
        TlsFailure::RecordTooLong => 22,
        TlsFailure::Undecodable => 50,
        other => panic!("no alert is sent for {other}"),
    }
}

fn a_changed_record_ends_the_connection_with_an_alert(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in suites() {
        let config = Arc::new(identity.client(&[suite]));
        for change in [0, 1, 3, 5, 12, 30] {
            let mut client = Client::shaken(&served, &config);
            client.send(b"whole");
            client.receive(5);
            assert!(matches!(served.report(), Report::Secured { .. }));
            client.tls.writer().write_all(b"changed on its way").unwrap();
            let mut record = Vec::new();
            client.tls.write_tls(&mut record).unwrap();
            record[change] ^= 0x80;
            client.stream.write_all(&record).unwrap();
            let Report::Closed(CloseReason::Tls(failure)) = served.report() else {
                panic!("{suite:?}: byte {change} was taken");
            };
            let told = loop {
                match client.receive_tls() {
                    Err(rustls::Error::AlertReceived(told)) => break u8::from(told),
                    Err(error) => panic!("{error}"),
                    Ok(got) => assert!(got > 0, "no alert"),
                }
            };
            assert_eq!(told, alert_of(failure), "{suite:?}: byte {change}");
            assert!(change < 5 || failure == TlsFailure::BadTag);
        }
    }
}

fn keys_change_at_the_peers_wish_but_not_forever(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    let mut client = Client::shaken(&served, &Arc::new(identity.client(&suites()[..1])));
    for round in 0..100 {
        client.tls.refresh_traffic_keys().unwrap();
        println!("round {round}");
        client.send(&noise(100, round));
        assert_eq!(client.receive(100), noise(100, round));
    }
    assert!(matches!(served.report(), Report::Secured { .. }));
    for _ in 0..40 {
        client.tls.refresh_traffic_keys().unwrap();
    }
    let mut bytes = Vec::new();
    while client.tls.wants_write() {
        client.tls.write_tls(&mut bytes).unwrap();
    }
    let _ = client.stream.write_all(&bytes);
    let Report::Closed(reason) = served.report() else { panic!("not closed") };
    assert_eq!(reason, CloseReason::Tls(TlsFailure::UnexpectedMessage));
}

fn sessions_are_resumed(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in [suites()[0], suites()[3]] {
        let config = Arc::new(identity.client(&[suite]));
        for round in 0..3 {
            let mut client = Client::shaken(&served, &config);
            client.send(b"hello");
            client.receive(5);
            let kind = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(client.tls.handshake_kind(), Some(kind));
            let Report::Secured { resumed } = served.report() else { panic!("not secured") };
            assert_eq!(resumed, round > 0);
            drop(client);
            assert!(matches!(served.report(), Report::Closed(CloseReason::PeerClosed)));
        }
    }
}

fn who_speaks_another_protocol_is_told_nothing(backend: BackendChoice) {
    let served = Echo::start(backend, Identity::new().server());
    for words in ["PING\r\n", "P", "\u{16}GET / HTTP/1.1\r\n\r\n"] {
        let mut client = served.connect();
        client.write_all(words.as_bytes()).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0, "{words:?}");
        let Report::HandshakeFailed(reason) = served.report() else { panic!("it goes on") };
        assert!(reason.contains("the peer does not speak TLS"), "{reason}");
        assert!(matches!(served.report(), Report::Closed(CloseReason::Tls(TlsFailure::Handshake))));
    }
}

fn a_slow_handshake_ends_in_time(backend: BackendChoice) {
    let identity = Identity::new();
    // On a busy machine, a handshake takes much longer than usual.
    let limit = Duration::from_secs(5);
    let options = LoopOptions { backend, handshake_time_max: limit, ..LoopOptions::default() };
    let served = Echo::with(options, identity.server());
    let config = Arc::new(identity.client(&suites()));
    let mut quick = Client::shaken(&served, &config);
    assert!(matches!(served.report(), Report::Secured { .. }));
    let began = Instant::now();
    let silent = served.connect();
    let mut slow = Client::new(&served, &config);
    let mut hello = Vec::new();
    slow.tls.write_tls(&mut hello).unwrap();
    slow.stream.write_all(&hello[..50]).unwrap();
    for _ in 0..2 {
        let Report::Closed(reason) = served.report() else { panic!("not closed") };
        assert_eq!(reason, CloseReason::Tls(TlsFailure::HandshakeTimedOut));
    }
    assert!((limit..PATIENCE).contains(&began.elapsed()));
    assert_eq!(slow.stream.read(&mut [0; 1]).unwrap_or(0), 0);
    drop(silent);
    quick.send(b"still here");
    quick.receive(10);
}

fn a_storm_of_handshakes_leaves_room_for_a_served_client(backend: BackendChoice) {
    let identity = Identity::new();
    let options = LoopOptions { backend, handshakes_per_turn_max: 1, ..LoopOptions::default() };
    let served = Echo::with(options, identity.server());
    let config = Arc::new(identity.client(&suites()));
    let mut client = Client::shaken(&served, &config);
    let mut storm: Vec<Client> = (0..300).map(|_| Client::new(&served, &config)).collect();
    storm.iter_mut().for_each(Client::send_tls);
    // Each reply takes one turn, which has one handshake. So the reply arrives within the time of a
    // few handshakes.
    for round in 0..20 {
        client.send(&noise(30, round));
        assert_eq!(client.receive(30), noise(30, round));
    }
    let mut answered = 0;
    for waiting in &storm {
        waiting.stream.set_nonblocking(true).unwrap();
        answered += usize::from(waiting.stream.peek(&mut [0; 1]).is_ok());
        waiting.stream.set_nonblocking(false).unwrap();
    }
    println!("{answered} of 300 handshakes were answered beside 20 requests");
    for (round, waiting) in storm.iter_mut().enumerate() {
        waiting.shake();
        waiting.send(&noise(40, round));
    }
    for (round, waiting) in storm.iter_mut().enumerate() {
        assert_eq!(waiting.receive(40), noise(40, round));
    }
}

fn a_peer_that_has_finished_still_gets_its_replies(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in [suites()[0], suites()[3]] {
        let mut client = Client::shaken(&served, &Arc::new(identity.client(&[suite])));
        let sent = noise(300_000, 1);
        client.send(&sent);
        client.tls.send_close_notify();
        client.send_tls();
        assert!(client.receive(sent.len()) == sent);
        assert!(client.is_told_the_end());
        assert!(matches!(served.report(), Report::Secured { .. }));
        let Report::Closed(reason) = served.report() else { panic!("not closed") };
        assert!(matches!(reason, CloseReason::PeerClosed | CloseReason::Flushed), "{reason:?}");
    }
}

fn the_end_is_said_to_the_peer(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in [suites()[0], suites()[3]] {
        let mut client = Client::shaken(&served, &Arc::new(identity.client(&[suite])));
        let mut sent = noise(100_000, 1);
        sent.extend_from_slice(b"bye");
        client.send(&sent);
        let got = client.receive(sent.len());
        assert!(got == sent);
        assert!(client.is_told_the_end());
        assert!(matches!(served.report(), Report::Secured { .. }));
        assert!(matches!(served.report(), Report::Closed(CloseReason::Flushed)));
    }
}

fn a_slow_reader_gets_everything(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    let mut client = Client::shaken(&served, &Arc::new(identity.client(&suites()[..1])));
    client.tls.set_buffer_limit(None);
    let sent = noise(8 << 20, 5);
    let mut writing = Vec::new();
    client.tls.writer().write_all(&sent).unwrap();
    while client.tls.wants_write() {
        client.tls.write_tls(&mut writing).unwrap();
    }
    let mut stream = client.stream.try_clone().unwrap();
    let writer = thread::spawn(move || stream.write_all(&writing).unwrap());
    thread::sleep(Duration::from_millis(100));
    assert!(client.receive(sent.len()) == sent);
    writer.join().unwrap();
}

/// Runs turns of `event_loop` until `done` returns true for an event.
fn turn_until(event_loop: &mut EventLoop, mut done: impl FnMut(&mut EventLoop, &Event) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    loop {
        event_loop.flush();
        event_loop.poll(Some(Duration::from_millis(100)), &mut events).unwrap();
        for event in events.drain(..) {
            if done(event_loop, &event) {
                return;
            }
            if let Event::Accepted { socket, .. } = event {
                event_loop.adopt(socket).unwrap();
            }
        }
        assert!(Instant::now() < deadline, "it never happened");
    }
}

fn a_loop_is_a_client_as_well(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    for suite in suites() {
        let name = ServerName::try_from("localhost").unwrap();
        let client = TlsClient::new(identity.client(&[suite]), name);
        let options = LoopOptions { backend, ..LoopOptions::default() };
        let mut event_loop = EventLoop::new(&options).unwrap();
        for round in 0..2 {
            let socket = Socket::connect(served.address).unwrap().encrypted(client.clone());
            let conn = event_loop.adopt(socket).unwrap();
            // Output queued before the end of the handshake waits for that end.
            let sent = noise(1 << 20, 3);
            event_loop.output(conn).tail_mut().extend_from_slice(&sent);
            turn_until(&mut event_loop, |event_loop, event| {
                matches!(event, Event::Data(_)) && event_loop.inputs().len_bytes(conn) == sent.len()
            });
            assert!(event_loop.inputs().bytes(conn) == sent);
            let agreed = event_loop.agreed(conn).unwrap();
            assert_eq!((agreed.suite, agreed.resumed), (suite, round > 0));
            assert_eq!(agreed.peer_certificate.as_ref(), Some(&identity.chain[0]));
            event_loop.close(conn);
        }
    }
}

fn a_handshake_that_is_too_long_ends(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    let mut stream = served.connect();
    // A ClientHello of 16 MB, as many records as the server takes.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend_from_slice(&[1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 7);
    for _ in 0..1000 {
        if stream.write_all(&record).is_err() {
            break;
        }
    }
    assert!(matches!(served.report(), Report::HandshakeFailed(_)));
    assert!(matches!(served.report(), Report::Closed(CloseReason::Tls(TlsFailure::Handshake))));
}

fn plain_and_encrypted_listeners_serve_side_by_side(backend: BackendChoice) {
    let identity = Identity::new();
    let served = Echo::start(backend, identity.server());
    let mut client = Client::shaken(&served, &Arc::new(identity.client(&suites())));
    let mut plain = TcpStream::connect(served.plain_address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    for round in 0..50 {
        client.send(&noise(100, round));
        plain.write_all(&noise(100, round)).unwrap();
        let mut got = [0; 100];
        plain.read_exact(&mut got).unwrap();
        assert_eq!(got[..], noise(100, round));
        assert_eq!(client.receive(100), noise(100, round));
    }
}

fn held_output_leaves_sealed_and_in_order(backend: BackendChoice) {
    let identity = Identity::new();
    let options = LoopOptions { backend, ..LoopOptions::default() };
    let mut event_loop = EventLoop::new(&options).unwrap();
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 16).unwrap().encrypted(identity.server());
    let Address::Tcp(address) = *listener.local_address() else { unreachable!() };
    event_loop.add_listener(listener).unwrap();
    let config = Arc::new(identity.client(&suites()));
    let client = thread::spawn(move || {
        let tls = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Client { tls, stream, step: usize::MAX };
        client.shake();
        let got = client.receive(15);
        assert!(client.is_told_the_end());
        got
    });
    let mut known: Option<ConnId> = None;
    turn_until(&mut event_loop, |_, event| match event {
        Event::Secured(conn) => {
            known = Some(*conn);
            true
        }
        _ => false,
    });
    let conn = known.unwrap();
    let (_, outputs) = event_loop.split();
    for part in [&b"first"[..], b"secnd", b"third"] {
        outputs.queue(conn).tail_mut().extend_from_slice(part);
        outputs.hold(conn, 5);
    }
    event_loop.flush();
    event_loop.close_after_flush(conn);
    for _ in 0..3 {
        assert!(event_loop.is_open(conn));
        event_loop.split().1.release(conn);
        event_loop.flush();
        event_loop.submit();
    }
    turn_until(&mut event_loop, |_, event| matches!(event, Event::Closed(_, CloseReason::Flushed)));
    assert_eq!(client.join().unwrap(), b"firstsecndthird");
}

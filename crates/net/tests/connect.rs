//! Tests of connections that a loop opens, on each back end, with real sockets. If the kernel
//! forbids io_uring, the tests of that back end print so and pass.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{
    Address, BackendChoice, CloseReason, ConnectError, Event, EventLoop, Listener, LoopOptions, TlsClient,
};
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::pki_types::ServerName;

#[macro_use]
mod back_ends;
mod identity;

use identity::Identity;

on_each_backend! {
    tcp_connects_and_sends_what_was_queued_before,
    a_unix_socket_connects,
    tls_connects_after_its_handshake,
    a_refusal_is_reported,
    a_missing_path_is_reported,
    a_full_unix_backlog_is_reported,
    a_peer_that_does_not_accept_is_given_up_in_time,
    a_silent_handshake_is_given_up_in_time,
    a_peer_that_closes_in_the_handshake_is_reported,
    a_wrong_certificate_is_reported,
    a_peer_that_speaks_no_tls_is_reported,
    an_attempt_that_is_closed_is_not_reported,
    an_attempt_closed_after_its_flush_is_reported_closed,
    an_attempt_cannot_be_released,
    deadlines_out_of_order_are_kept,
}

const PATIENCE: Duration = Duration::from_secs(60);
/// A short time limit, for connection attempts that cannot succeed.
const SHORT: Duration = Duration::from_millis(50);

fn new_loop(backend: BackendChoice) -> EventLoop {
    EventLoop::new(&LoopOptions { backend, ..LoopOptions::default() }).unwrap()
}

fn later() -> Instant {
    Instant::now() + PATIENCE
}

/// Returns the next event other than `Drained`. Fails the test if there is none in time.
fn next_event(event_loop: &mut EventLoop) -> Event {
    let deadline = later();
    loop {
        assert!(Instant::now() < deadline, "nothing happened");
        event_loop.flush();
        let mut events = Vec::new();
        event_loop.poll(Some(PATIENCE), &mut events).unwrap();
        events.retain(|event| !matches!(event, Event::Drained(_)));
        assert!(events.len() < 2, "{events:?}");
        if let Some(event) = events.pop() {
            return event;
        }
    }
}

/// Connects to `to`, which must fail. Returns the error that the loop reported.
fn failure(
    event_loop: &mut EventLoop,
    to: &Address,
    tls: Option<TlsClient>,
    limit: Duration,
) -> ConnectError {
    let conn = event_loop.connect(to, tls, Instant::now() + limit);
    match next_event(event_loop) {
        Event::ConnectFailed(failed, error) => {
            assert_eq!(failed, conn);
            assert!(!event_loop.is_open(conn) && event_loop.open_count() == 0);
            error
        }
        event => panic!("{event:?}"),
    }
}

fn kind(error: &ConnectError) -> ErrorKind {
    let ConnectError::Socket(error) = error else { panic!("{error:?}") };
    error.kind()
}

fn tls_client(identity: &Identity) -> TlsClient {
    let config = identity.client(&ALL_CIPHER_SUITES[..1]);
    TlsClient::new(config, ServerName::try_from("localhost").unwrap())
}

fn listen() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    (listener, address)
}

fn tcp_connects_and_sends_what_was_queued_before(backend: BackendChoice) {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(host) else {
            println!("skipped: {host} cannot be bound");
            continue;
        };
        let mut event_loop = new_loop(backend);
        let address = Address::Tcp(listener.local_addr().unwrap());
        let conn = event_loop.connect(&address, None, later());
        event_loop.output(conn).tail_mut().extend_from_slice(b"first words");
        let event = next_event(&mut event_loop);
        assert!(matches!(event, Event::Connected(connected) if connected == conn), "{event:?}");
        event_loop.flush();
        event_loop.submit();
        let (mut server, peer) = listener.accept().unwrap();
        assert_eq!(event_loop.local_address(conn), Some(&Address::Tcp(peer)));
        assert_eq!(event_loop.peer_address(conn), Some(&address));
        let mut got = [0; 11];
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"first words");
        server.write_all(b"an answer").unwrap();
        let event = next_event(&mut event_loop);
        assert!(matches!(event, Event::Data(reported) if reported == conn), "{event:?}");
        assert_eq!(event_loop.inputs().bytes(conn), b"an answer");
    }
}

fn a_unix_socket_connects(backend: BackendChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut event_loop = new_loop(backend);
    let conn = event_loop.connect(&Address::Unix(Arc::from(&*path)), None, later());
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"hello").unwrap();
    let mut events = Vec::new();
    while event_loop.inputs().len_bytes(conn) == 0 {
        event_loop.poll(Some(PATIENCE), &mut events).unwrap();
    }
    assert!(matches!(events[..], [Event::Connected(one), Event::Data(two)] if one == conn && two == conn));
    event_loop.output(conn).tail_mut().extend_from_slice(b"bye");
    event_loop.close_after_flush(conn);
    let event = next_event(&mut event_loop);
    assert!(matches!(event, Event::Closed(_, CloseReason::Flushed)), "{event:?}");
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"bye");
}

fn tls_connects_after_its_handshake(backend: BackendChoice) {
    let identity = Identity::new();
    let folder = tempfile::tempdir().unwrap();
    let unix = Listener::unix(&folder.path().join("socket"), None, 511).unwrap();
    for listener in [Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap(), unix] {
        let listener = listener.encrypted(identity.server());
        let address = listener.local_address().clone();
        let (mut event_loop, mut serving) = (new_loop(backend), new_loop(backend));
        serving.add_listener(listener).unwrap();
        let conn = event_loop.connect(&address, Some(tls_client(&identity)), later());
        event_loop.output(conn).tail_mut().extend_from_slice(b"sealed words");
        let (mut reported, mut received) = (Vec::new(), Vec::new());
        let deadline = later();
        while received != b"sealed words" {
            assert!(Instant::now() < deadline, "{reported:?}");
            event_loop.flush();
            event_loop.poll(Some(Duration::from_millis(1)), &mut reported).unwrap();
            let mut events = Vec::new();
            serving.flush();
            serving.poll(Some(Duration::from_millis(1)), &mut events).unwrap();
            for event in events {
                match event {
                    Event::Accepted { socket, .. } => drop(serving.adopt(socket).unwrap()),
                    Event::Data(conn) => received = serving.inputs().bytes(conn).to_vec(),
                    _ => {}
                }
            }
        }
        reported.retain(|event| !matches!(event, Event::Drained(_)));
        assert!(matches!(reported[..], [Event::Connected(connected)] if connected == conn), "{reported:?}");
        assert!(event_loop.agreed(conn).unwrap().peer_certificate.is_some());
    }
}

fn a_refusal_is_reported(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    // The socket is bound, so that no other process gets the port, but does not listen.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = Address::Tcp(deaf.local_addr().unwrap().as_socket().unwrap());
    for tls in [None, Some(tls_client(&Identity::new()))] {
        let error = failure(&mut event_loop, &address, tls, PATIENCE);
        assert_eq!(kind(&error), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

fn a_missing_path_is_reported(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = failure(&mut event_loop, &Address::Unix(Arc::from(&*missing)), None, PATIENCE);
    assert_eq!(kind(&error), ErrorKind::NotFound);
    let long = "x".repeat(net::UNIX_PATH_LEN_MAX + 1);
    let error = failure(&mut event_loop, &Address::Unix(Arc::from(Path::new(&long))), None, PATIENCE);
    assert_eq!(kind(&error), ErrorKind::InvalidInput);
}

fn a_full_unix_backlog_is_reported(backend: BackendChoice) {
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut event_loop = new_loop(backend);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = Listener::unix(&path, None, 1).unwrap();
    let mut conns = Vec::new();
    let error = loop {
        conns.push(event_loop.connect(&Address::Unix(Arc::from(&*path)), None, later()));
        assert!(conns.len() < 10, "the backlog is never full");
        match next_event(&mut event_loop) {
            Event::Connected(_) => {}
            Event::ConnectFailed(conn, error) => {
                assert_eq!(conns.last(), Some(&conn));
                break error;
            }
            event => panic!("{event:?}"),
        }
    };
    assert_eq!(kind(&error), ErrorKind::WouldBlock);
}

/// Creates a listener whose backlog is full: further clients get no answer.
fn full_listener() -> (socket2::Socket, Vec<TcpStream>, Address) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let clients = std::iter::from_fn(|| TcpStream::connect_timeout(&address, SHORT).ok());
    let clients: Vec<_> = clients.take(64).collect();
    assert!(clients.len() < 64, "the backlog is never full");
    (listener, clients, Address::Tcp(address))
}

fn a_peer_that_does_not_accept_is_given_up_in_time(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (_listener, _clients, address) = full_listener();
    for tls in [None, Some(tls_client(&Identity::new()))] {
        let error = failure(&mut event_loop, &address, tls, SHORT);
        assert!(matches!(error, ConnectError::TimedOut), "{error:?}");
    }
}

fn a_silent_handshake_is_given_up_in_time(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (_listener, address) = listen();
    let error = failure(&mut event_loop, &address, Some(tls_client(&Identity::new())), SHORT);
    assert!(matches!(error, ConnectError::HandshakeTimedOut), "{error:?}");
}

fn a_peer_that_closes_in_the_handshake_is_reported(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (listener, address) = listen();
    let conn = event_loop.connect(&address, Some(tls_client(&Identity::new())), later());
    let (mut server, _) = listener.accept().unwrap();
    let mut hello = [0; 5];
    let deadline = later();
    server.set_nonblocking(true).unwrap();
    let mut events = Vec::new();
    while server.peek(&mut hello).is_err() {
        assert!(Instant::now() < deadline, "no hello arrived");
        event_loop.flush();
        event_loop.poll(Some(Duration::from_millis(1)), &mut events).unwrap();
    }
    // All of it is read, so that the close does not reset the connection.
    while server.read(&mut [0; 4096]).is_ok() {}
    drop(server);
    assert!(events.iter().all(|event| matches!(event, Event::Drained(_))), "{events:?}");
    match next_event(&mut event_loop) {
        Event::ConnectFailed(failed, ConnectError::Handshake(reason)) => {
            assert_eq!(failed, conn);
            assert!(reason.contains("closed"), "{reason}");
        }
        event => panic!("{event:?}"),
    }
}

fn a_wrong_certificate_is_reported(backend: BackendChoice) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 511).unwrap();
    let listener = listener.encrypted(Identity::new().server());
    let address = listener.local_address().clone();
    let mut event_loop = new_loop(backend);
    event_loop.add_listener(listener).unwrap();
    // The client trusts another server.
    let conn = event_loop.connect(&address, Some(tls_client(&Identity::new())), later());
    let (mut error, mut server_failed) = (None, false);
    let deadline = later();
    while error.is_none() || !server_failed {
        assert!(Instant::now() < deadline, "{error:?}");
        event_loop.flush();
        let mut events = Vec::new();
        event_loop.poll(Some(PATIENCE), &mut events).unwrap();
        for event in events {
            match event {
                Event::Accepted { socket, .. } => drop(event_loop.adopt(socket).unwrap()),
                Event::ConnectFailed(failed, reason) => {
                    assert_eq!(failed, conn);
                    error = Some(reason);
                }
                // The client has sent an alert.
                Event::HandshakeFailed(..) => server_failed = true,
                Event::Closed(..) | Event::Drained(_) => {}
                event => panic!("{event:?}"),
            }
        }
    }
    let Some(ConnectError::Handshake(reason)) = error else { panic!("{error:?}") };
    assert!(reason.contains("certificate"), "{reason}");
}

fn a_peer_that_speaks_no_tls_is_reported(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (listener, address) = listen();
    let conn = event_loop.connect(&address, Some(tls_client(&Identity::new())), later());
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"-ERR unknown command\r\n").unwrap();
    let event = next_event(&mut event_loop);
    let Event::ConnectFailed(failed, ConnectError::Handshake(reason)) = event else { panic!("{event:?}") };
    assert_eq!((failed, &*reason), (conn, "unexpected error: the peer does not speak TLS"));
}

fn an_attempt_that_is_closed_is_not_reported(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (listener, address) = listen();
    let missing = Address::Unix(Arc::from(Path::new("/nowhere/at/all")));
    for (to, polled) in [(&address, false), (&address, true), (&missing, false)] {
        let conn = event_loop.connect(to, Some(tls_client(&Identity::new())), later());
        if polled {
            event_loop.poll(Some(Duration::ZERO), &mut Vec::new()).unwrap();
        }
        event_loop.close(conn);
        let mut events = Vec::new();
        for _ in 0..3 {
            event_loop.flush();
            event_loop.poll(Some(Duration::ZERO), &mut events).unwrap();
        }
        assert!(events.is_empty() && event_loop.open_count() == 0, "{events:?}");
        if to == &address {
            let (mut server, _) = listener.accept().unwrap();
            // The end, or a reset if the hello was not read.
            let _ = server.read_to_end(&mut Vec::new());
        }
    }
}

fn an_attempt_closed_after_its_flush_is_reported_closed(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (_listener, address) = listen();
    let conn = event_loop.connect(&address, None, later());
    event_loop.output(conn).tail_mut().extend_from_slice(b"never sent");
    event_loop.close_after_flush(conn);
    let mut events = Vec::new();
    while !events.iter().any(|event| matches!(event, Event::Closed(..))) {
        event_loop.poll(Some(PATIENCE), &mut events).unwrap();
    }
    assert!(matches!(events.last(), Some(Event::Closed(_, CloseReason::Flushed))), "{events:?}");
}

fn an_attempt_cannot_be_released(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (_listener, address) = listen();
    let conn = event_loop.connect(&address, None, later());
    assert!(!event_loop.release(conn));
    let event = next_event(&mut event_loop);
    assert!(matches!(event, Event::Connected(_)), "{event:?}");
    assert!(event_loop.release(conn));
}

fn deadlines_out_of_order_are_kept(backend: BackendChoice) {
    let mut event_loop = new_loop(backend);
    let (_listener, _clients, address) = full_listener();
    let began = Instant::now();
    let late = event_loop.connect(&address, None, began + 2 * SHORT);
    let early = event_loop.connect(&address, None, began + SHORT);
    let mut failed = Vec::new();
    while failed.len() < 2 {
        let mut events = Vec::new();
        event_loop.poll(Some(PATIENCE), &mut events).unwrap();
        for event in events {
            let Event::ConnectFailed(conn, ConnectError::TimedOut) = event else { panic!("{event:?}") };
            failed.push(conn);
        }
    }
    assert_eq!(failed, [early, late]);
}

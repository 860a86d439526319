//! Tests of connections that the loop itself opens.

use std::time::{Duration, Instant};

use net::{BackendChoice, CloseReason, Event, EventLoop, LoopOptions, Socket};

use super::{PATIENCE, Served};

pub(super) fn a_connection_begun_by_the_loop_sends_when_it_is_there(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let socket = Socket::connect(served.address).unwrap();
    let client = served.event_loop.adopt(socket).unwrap();
    served.event_loop.output(client).tail_mut().extend_from_slice(b"first words");
    let deadline = Instant::now() + PATIENCE;
    let mut server = None;
    loop {
        assert!(Instant::now() < deadline, "nothing arrived");
        served.event_loop.flush();
        let mut events = Vec::new();
        served.event_loop.poll(Some(Duration::from_millis(20)), &mut events).unwrap();
        for event in events {
            match event {
                Event::Accepted { socket, .. } => server = Some(served.event_loop.adopt(socket).unwrap()),
                Event::Closed(conn, reason) => panic!("{conn:?} was closed: {reason:?}"),
                _ => {}
            }
        }
        let arrived = |conn| served.event_loop.inputs().bytes(conn) == b"first words";
        if server.is_some_and(arrived) {
            return;
        }
    }
}

pub(super) fn a_connection_that_is_refused_is_reported_closed(backend: BackendChoice) {
    let options = LoopOptions { backend, ..LoopOptions::default() };
    let mut event_loop = EventLoop::new(&options).unwrap();
    // The socket is bound, so that no other process gets the port, but does not listen.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let Ok(socket) = Socket::connect(deaf.local_addr().unwrap().as_socket().unwrap()) else { return };
    let client = event_loop.adopt(socket).unwrap();
    event_loop.output(client).tail_mut().extend_from_slice(b"nobody hears");
    event_loop.flush();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the refusal was not reported");
        let mut events = Vec::new();
        event_loop.poll(Some(Duration::from_millis(20)), &mut events).unwrap();
        if events
            .iter()
            .any(|event| matches!(event, Event::Closed(conn, CloseReason::Failed(_)) if *conn == client))
        {
            return;
        }
    }
}

//! Tests of output that is held back until the caller releases it.

use std::io::Read;

use net::{BackendChoice, CloseReason, ConnId, Event};

use crate::{PATIENCE, Served, pattern};

/// Appends `part` to the output of `conn` and holds it back.
fn hold(served: &mut Served, conn: ConnId, part: &[u8]) {
    served.append(conn, part);
    served.event_loop.split().1.hold(conn, part.len());
}

fn release(served: &mut Served, conn: ConnId) {
    served.event_loop.split().1.release(conn);
    served.event_loop.flush();
    served.event_loop.submit();
}

fn expect(client: &mut impl Read, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == bytes, "other bytes than expected");
}

/// Checks that held-back output is sent in order when it is released. Some parts are larger than
/// the socket accepts at once.
pub fn held_output_leaves_in_order_when_released(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (client, conn) = served.connect_known();
    client.set_nonblocking(true).unwrap();
    let large = pattern(4 << 20, 7);
    served.append(conn, b"free");
    hold(&mut served, conn, b"first");
    hold(&mut served, conn, &large);
    served.event_loop.flush();
    served.event_loop.submit();
    client.set_nonblocking(false).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = client;
    expect(&mut client, b"free");
    served.assert_quiet();
    client.set_nonblocking(true).unwrap();
    let nothing = client.read(&mut [0; 1]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock));
    client.set_nonblocking(false).unwrap();
    // These bytes are not held themselves, but are queued after held ones.
    served.append(conn, b"behind");
    release(&mut served, conn);
    expect(&mut client, b"first");
    served.assert_quiet();
    assert_eq!(served.unsent(conn), large.len() + b"behind".len());
    release(&mut served, conn);
    hold(&mut served, conn, b"third");
    release(&mut served, conn);
    let wanted = [&large[..], b"behindthird"].concat();
    let reader = std::thread::spawn(move || {
        expect(&mut client, &wanted);
        client
    });
    while served.unsent(conn) > 0 {
        served.turn(std::time::Duration::from_millis(1));
    }
    drop(reader.join().unwrap());
}

pub fn held_output_lets_nobody_be_reported_drained(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    served.append(conn, b"free");
    hold(&mut served, conn, b"held");
    served.event_loop.pause_input(conn);
    served.event_loop.flush();
    served.event_loop.submit();
    expect(&mut client, b"free");
    assert!(served.event_loop.split().1.take_behind().iter().all(|&behind| behind != conn));
    served.assert_quiet();
    release(&mut served, conn);
    served.turn_until(|_, event| matches!(event, Event::Drained(c) if *c == conn));
    expect(&mut client, b"held");
}

pub fn closing_waits_for_what_is_held(backend: BackendChoice) {
    let mut served = Served::start(backend);
    for parts in [1, 3] {
        let (mut client, conn) = served.connect_known();
        served.append(conn, b"free");
        (0..parts).for_each(|_| hold(&mut served, conn, b"held"));
        served.event_loop.close_after_flush(conn);
        served.event_loop.flush();
        served.event_loop.submit();
        expect(&mut client, b"free");
        for _ in 0..parts {
            served.assert_quiet();
            assert!(served.event_loop.is_open(conn));
            release(&mut served, conn);
            expect(&mut client, b"held");
        }
        served.turn_until(|_, event| matches!(event, Event::Closed(c, CloseReason::Flushed) if *c == conn));
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }
    // A connection that is closed at once drops its held output.
    let (mut client, conn) = served.connect_known();
    hold(&mut served, conn, b"held");
    served.event_loop.close(conn);
    release(&mut served, conn);
    served.assert_quiet();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

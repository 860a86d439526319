//! A test of fairness: connections that send faster than the caller processes their input, together
//! with one that rarely sends a byte.

use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

use net::{BackendChoice, ConnId, Event};

use super::{PATIENCE, Served};

/// The number of connections that send fast: more than there are buffers, so that they could use
/// all of them.
const FLOODS: usize = 80;
/// The number of bytes of each fast connection that the caller consumes in one turn.
const TAKEN_LEN_BYTES: usize = 2_000;
/// The maximum number of turns until a byte of the quiet connection is reported. It is received in
/// the first turn, or finds no buffer and is received in the second.
const TURNS_MAX: usize = 2;
/// The maximum number of turns until a byte of the quiet connection is reported, while the number
/// of buffers still doubles in each turn.
const FIRST_TURNS_MAX: usize = 8;
/// The maximum number of unparsed bytes of all fast connections. Added to it is at most one turn's
/// memory, received before the connections were known to be fast.
const HELD_LEN_BYTES_MAX: usize = (1 << 20) + FLOODS * 160 * 1024;
/// The number of rounds of the test; in each, the quiet connection sends a byte.
const ROUNDS: usize = 200;

pub(super) fn floods_leave_room_for_others(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut quiet, quiet_conn) = served.connect_known();
    let mut floods = Vec::new();
    let mut conns = HashSet::new();
    for _ in 0..FLOODS {
        let (client, conn) = served.connect_known();
        client.set_nonblocking(true).unwrap();
        floods.push(client);
        conns.insert(conn);
    }
    let deadline = Instant::now() + PATIENCE;
    for round in 0..ROUNDS {
        assert!(Instant::now() < deadline, "round {round}");
        for flood in &mut floods {
            if let Err(error) = flood.write_all(&[0; 1 << 18]) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "its socket is full");
            }
        }
        quiet.write_all(b"?").unwrap();
        // Loopback hands bytes over within the call that sends them, but for
        // softirqs of a busy machine.
        thread::yield_now();
        let mut turns = 0;
        while !turn(&mut served, &conns, quiet_conn) {
            turns += 1;
            let turns_max = if round == 0 { FIRST_TURNS_MAX } else { TURNS_MAX };
            assert!(turns < turns_max, "round {round}: the byte is kept out");
        }
        let held: usize = conns.iter().map(|&conn| served.event_loop.inputs().len_bytes(conn)).sum();
        assert!(held < HELD_LEN_BYTES_MAX, "{held} bytes wait");
    }
}

/// Runs a turn that consumes a part of each fast connection's input and all of the quiet one's.
/// Returns true if the quiet connection's byte was reported.
fn turn(served: &mut Served, floods: &HashSet<ConnId>, quiet: ConnId) -> bool {
    let mut heard = false;
    for event in served.turn(Duration::from_millis(100)) {
        let Event::Data(conn) = event else { continue };
        let len = served.event_loop.inputs().len_bytes(conn);
        if floods.contains(&conn) {
            served.event_loop.consume(conn, len.min(TAKEN_LEN_BYTES));
            if len > TAKEN_LEN_BYTES {
                served.event_loop.mark_ready(conn);
            }
        } else {
            assert_eq!(conn, quiet);
            served.event_loop.consume(conn, len);
            heard = true;
        }
    }
    heard
}

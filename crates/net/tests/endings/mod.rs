//! Tests of connections that end while they have unsent output or unparsed input, and of ends that
//! the kernel has not reported.

use std::io::Write;
use std::time::{Duration, Instant};

use net::{BackendChoice, CloseReason, Event};

use super::{PATIENCE, Served, reset};

/// Processes the requests of a peer that has closed its side, a part in each turn, as a caller with
/// a limit per turn does. When a reply cannot be sent, the caller stops processing; then the end
/// must be reported.
pub(super) fn a_peer_that_went_while_it_is_served_is_reported_when_it_is_given_up(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    client.write_all(b"several requests").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    // The socket answers the first replies with a reset; the next ones cannot be sent.
    let mut unsent_turns = 0;
    while unsent_turns < 3 {
        assert!(Instant::now() < deadline, "all replies could be sent");
        served.append(conn, b"reply");
        served.event_loop.mark_ready(conn);
        let events = served.turn(Duration::from_millis(5));
        assert!(
            !events.iter().any(|event| matches!(event, Event::Closed(..))),
            "its input is not parsed yet"
        );
        unsent_turns += usize::from(served.unsent(conn) > 0);
    }
    served.append(conn, b"the last reply");
    served.event_loop.close_after_flush(conn);
    served.turn_until(|_, event| matches!(event, Event::Closed(c, CloseReason::Failed(_)) if *c == conn));
    assert!(!served.event_loop.is_open(conn));
}

/// Searches for unreported ends of connections while some have bytes or an end to report. Their
/// bytes and then their end must be reported, each once.
pub(super) fn a_look_for_ends_takes_nothing_from_who_is_there_and_reports_who_is_gone(
    backend: BackendChoice,
) {
    let mut served = Served::start(backend);
    let (mut staying, stays) = served.connect_known();
    for round in 0..20 {
        let (mut leaving, leaves) = served.connect_known();
        leaving.write_all(b"last words").unwrap();
        if round % 2 == 0 {
            reset(leaving);
        } else {
            drop(leaving);
        }
        served.event_loop.find_closed_connections();
        served.event_loop.find_closed_connections();
        let mut reported = Vec::new();
        served.turn_until(|event_loop, event| {
            match *event {
                Event::Data(conn) => {
                    let bytes = event_loop.inputs().bytes(conn).to_vec();
                    event_loop.consume(conn, bytes.len());
                    reported.push((conn, Some(bytes)));
                }
                Event::Closed(conn, _) => reported.push((conn, None)),
                _ => {}
            }
            matches!(event, Event::Closed(..))
        });
        assert_eq!(reported, [(leaves, Some(b"last words".to_vec())), (leaves, None)], "round {round}");
        staying.write_all(b"!").unwrap();
        served.turn_until(|event_loop, event| {
            assert!(matches!(event, Event::Data(conn) if *conn == stays), "{event:?}");
            event_loop.consume(stays, 1);
            true
        });
    }
}

//! Ends of connections with something unsent or unparsed.

use std::io::Write;
use std::time::{Duration, Instant};

use net::{BackendChoice, CloseReason, Event};

use super::{PATIENCE, Served};

/// What the peer sent is worked on in steps after it went, as a caller with a limit per turn does,
/// until a reply cannot be sent. What follows is that the caller wants no more of it.
pub(super) fn a_peer_that_went_while_it_is_served_is_reported_when_it_is_given_up(backend: BackendChoice) {
    let mut served = Served::start(backend);
    let (mut client, conn) = served.connect_known();
    client.write_all(b"several requests").unwrap();
    served.turn_until(|_, event| matches!(event, Event::Data(_)));
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    // The first replies reach a socket that answers with a reset, the next cannot be sent.
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

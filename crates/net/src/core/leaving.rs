//! The move of a connection to another loop, as the former loop performs it.
//!
//! A release stops the flushes, the receives and the reports of a connection, and the back end
//! cancels the requests that the kernel has for it. Bytes that arrive before the end of a cancelled
//! receive join the unconsumed input; the rest of a cancelled send becomes unsent again. Once the
//! kernel has no request left, the slot is freed, and the socket is reported. It carries the input,
//! the output and the TLS state of the connection, with which the other loop continues.
//!
//! If this loop has found that the connection ended but has not reported it, the other loop reports
//! the end, after the input. If this loop has not found the end, the other one finds it, since the
//! end of a stream stays in the socket.

use std::time::Instant;

use super::Core;
use crate::carried::Carried;
use crate::ending::CloseReason;
use crate::slab::{Passage, Receive};
use crate::tls::PeerSide;
use crate::{ConnId, Event, Socket};

impl Core {
    /// Begins to release `conn`: stops its flushes, receives and reports. Returns false for a stale
    /// id, for a connection that is already being released, and for an outgoing one that is not
    /// connected.
    pub(crate) fn begin_release(&mut self, conn: ConnId) -> bool {
        let Some(open) = self.conns.get_mut(conn) else { return false };
        if open.passage != Passage::Settled {
            return false;
        }
        (open.passage, open.input_stopped) = (Passage::Leaving, true);
        self.inputs.stop_reports(conn);
        self.outputs.stop(conn);
        self.leaving.push(conn);
        true
    }

    /// Makes the next poll return at once, to report the release of `conn`, if the kernel has no
    /// request for `conn`. Otherwise the completion of its last request ends the wait of that poll.
    pub(crate) fn hasten_release(&mut self, conn: ConnId) {
        if self.is_quiet(conn) {
            self.ended.push(conn);
        }
    }

    /// Returns true if the kernel has no request for `conn`. Always true with epoll.
    fn is_quiet(&self, conn: ConnId) -> bool {
        let requests = self.conns.get(conn).map(|open| open.requests).unwrap_or_default();
        requests.receive == Receive::Idle && !requests.writable && !self.outputs.in_flight(conn)
    }

    /// Reports each connection that moves to another loop and for which the kernel has no request
    /// left. Frees its slot.
    #[inline]
    pub(crate) fn report_released(&mut self, events: &mut Vec<Event>) {
        if !self.leaving.is_empty() {
            self.release_quiet(events);
        }
    }

    #[cold]
    fn release_quiet(&mut self, events: &mut Vec<Event>) {
        for conn in std::mem::take(&mut self.leaving) {
            if self.is_quiet(conn) {
                // Nothing is reported if the caller has closed it meanwhile.
                events.extend(self.depart(conn).map(|socket| Event::Released(conn, Box::new(socket))));
            } else {
                self.inputs.keep(conn);
                self.leaving.push(conn);
            }
        }
    }

    /// Frees the slot of a connection that moves to another loop. Returns its socket, which carries
    /// the state of the connection. Returns `None` for a stale id.
    fn depart(&mut self, conn: ConnId) -> Option<Socket> {
        let open = self.conns.get_mut(conn)?;
        let is_handshaking = open.is_handshaking();
        let carried = Carried {
            input: self.inputs.take(conn),
            output: self.outputs.take(conn),
            session: open.tls.take(),
            handshake_deadline: is_handshaking.then(|| self.handshakes.deadline_of(conn)).flatten(),
            closing: open.closing,
            ending: open.ending,
        };
        Some(self.conns.release(conn)?.carrying(carried))
    }

    /// Gives the state of a released connection to `conn`, which was opened just now in this loop.
    /// Returns true if a flush of the former loop has left bytes unsent, so that sending continues
    /// with them.
    pub(crate) fn arrive(&mut self, conn: ConnId, carried: Carried) -> bool {
        let Carried { input, output, session, handshake_deadline, closing, ending } = carried;
        let Some(open) = self.conns.get_mut(conn) else { return false };
        open.closing = closing;
        open.tls = session;
        let is_handshaking = open.is_handshaking();
        let is_finished = open.tls.as_ref().is_some_and(|tls| tls.peer_side() == PeerSide::Finished);
        self.inputs.put(conn, input);
        let is_behind = self.outputs.put(conn, output);
        if is_behind {
            self.await_drained(conn);
        }
        if is_handshaking {
            let deadline = handshake_deadline.unwrap_or(Instant::now() + self.options.handshake_time_max);
            self.handshakes.begin(conn, deadline);
            self.make_ready(conn);
        }
        if let Some(reason) = ending.or(is_finished.then_some(CloseReason::PeerClosed)) {
            self.end(conn, reason);
        }
        is_behind
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::LoopOptions;
    use crate::sys::turn_memory::{Arena, TurnMemory};

    fn arrive(core: &mut Core, conn: ConnId, bytes: &[u8], events: &mut Vec<Event>) {
        let arena = core.inputs.memory_mut().arena_mut();
        arena.free_mut(bytes.len()).copy_from_slice(bytes);
        let span = arena.take(bytes.len());
        core.received(conn, span, events);
    }

    #[test]
    fn a_release_waits_for_the_kernel_and_takes_what_arrives_meanwhile() {
        let mut core = Core::new(LoopOptions::default(), TurnMemory::Arena(Arena::new(1024)));
        let (near, _far) = UnixStream::pair().expect("a pair");
        let conn = core.open(near.try_into().expect("a connected socket"));
        let mut events = Vec::new();
        arrive(&mut core, conn, b"used up", &mut events);
        assert!(matches!(events.pop(), Some(Event::Data(_))));
        core.inputs.consume(conn, 7);
        assert!(core.begin_release(conn) && !core.begin_release(conn));
        let request = |core: &mut Core, receive, writable| {
            let requests = &mut core.conns.get_mut(conn).expect("it is open").requests;
            (requests.receive, requests.writable) = (receive, writable);
        };
        core.outputs.queue(conn).tail_mut().extend_from_slice(b"sending");
        let sending = core.outputs.take_single(conn).expect("one piece");
        core.hasten_release(conn);
        assert!(!core.has_work(), "the last completion wakes the loop");
        // At first the kernel has only a send, then only a wait, then only a receive.
        for word in [b"one, ", b"two, "] {
            core.end_turn();
            arrive(&mut core, conn, word, &mut events);
            core.report_released(&mut events);
        }
        core.outputs.queue(conn).tail_mut().extend_from_slice(b" queued");
        core.outputs.sent(conn, sending);
        request(&mut core, Receive::Idle, true);
        core.report_released(&mut events);
        request(&mut core, Receive::Cancelling, false);
        core.end_turn();
        arrive(&mut core, conn, b"three", &mut events);
        core.report_released(&mut events);
        assert!(events.is_empty(), "{events:?}");
        request(&mut core, Receive::Idle, false);
        core.end_turn();
        core.report_released(&mut events);
        let Some(Event::Released(released, socket)) = events.pop() else { panic!("it is quiet") };
        assert!(released == conn && events.is_empty() && core.conns.get(conn).is_none());
        assert_eq!(socket.unread(), b"one, two, three");
        assert_eq!(socket.unsent_len_bytes(), 14);
    }
}

//! The connections of one loop: slots with generation numbers, and the state of each connection
//! that both back ends need.
//!
//! A slot is free, open, or closed in this turn. A slot closed in this turn is not reused before
//! the next `poll`, so the events of one turn never refer to two connections with one index.

use crate::tls::Session;
use crate::{CloseReason, ConnId, Socket};

/// The state of one connection in its slot. Its input and output are in `Inputs` and `Outputs`,
/// under the same index.
pub(crate) struct Conn {
    generation: u32,
    socket: Option<Socket>,
    /// The reason for which the connection has ended; `None` while it is open, and after the end
    /// was reported.
    pub(crate) ending: Option<CloseReason>,
    /// True while the report of the connection's end is postponed because input is paused.
    pub(crate) end_parked: bool,
    /// True if `Drained` is to be reported once all output is sent.
    pub(crate) awaits_drained: bool,
    /// True after `pause_input`: the caller wants no input until `resume_input`.
    pub(crate) paused: bool,
    /// True if `PeerFinished` was reported: no more input will arrive.
    pub(crate) peer_finished: bool,
    /// True if `close_after_flush` was called: input is ignored, and the rest of the output is
    /// still sent.
    pub(crate) closing: bool,
    /// The TLS state of the connection; `None` without encryption.
    pub(crate) tls: Option<Box<Session>>,
    /// True if bytes for the TLS handshake have arrived that the handshake has not processed yet.
    pub(crate) awaits_step: bool,
    /// True while nothing may be received: the TLS handshake waits for a later turn, the connection
    /// is not connected yet, or it moves to another loop.
    pub(crate) input_stopped: bool,
    pub(crate) passage: Passage,
    /// The readiness of the connection's socket, for the epoll back end.
    pub(crate) readiness: Readiness,
    /// The requests of the connection to the kernel, for the io_uring back end.
    pub(crate) requests: Requests,
}

/// The stage of a connection on its way into or out of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Passage {
    /// The connection is an ordinary one of this loop, neither arriving nor leaving.
    #[default]
    Settled,
    /// The connection is outgoing, and the peer has not accepted it yet.
    Connecting,
    /// The connection is outgoing, and its TLS handshake is in progress.
    Shaking,
    /// The connection moves to another loop: it is released once the kernel has no request for it.
    Leaving,
}

/// The requests of a connection to io_uring that the kernel has or that are queued for the kernel.
#[derive(Clone, Copy, Default)]
pub(crate) struct Requests {
    /// The state of the io_uring request that receives from the connection.
    pub(crate) receive: Receive,
    /// True while the kernel has an io_uring request that waits until the socket accepts output.
    pub(crate) writable: bool,
    /// True while the connection has more unparsed input than io_uring allows: nothing is received
    /// until the caller has parsed it.
    pub(crate) throttled: bool,
    /// True from the time at which the connection was throttled, or no buffer was free for it,
    /// until its socket is empty. Only one chunk at a time is received from it.
    pub(crate) floods: bool,
}

/// The state of the io_uring request that receives from a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Receive {
    /// The kernel has no receive request of the loop for this connection.
    #[default]
    Idle,
    /// The kernel has a receive request, and reports all bytes that arrive.
    Armed,
    /// The receive is being cancelled; bytes that arrive before its end are still reported.
    Cancelling,
}

/// The last known readiness of a socket for input and output. epoll reports only changes (edges),
/// so the readiness is stored until a receive or send shows that the socket is not ready any more.
#[derive(Clone, Copy, Default)]
pub(crate) struct Readiness {
    /// True if the socket may have bytes, or the end of the peer's stream, to receive.
    pub(crate) readable: bool,
    /// True if the peer has closed its side. No further event will come, so the loop receives until
    /// it finds the end of the peer's stream.
    pub(crate) peer_closed: bool,
    /// True if the connection is in `Epoll::readable`, the list of connections to receive from.
    pub(crate) queued: bool,
    /// True if the socket is registered not only for input but also for writability.
    pub(crate) awaits_writable: bool,
}

impl Conn {
    #[inline]
    pub(crate) fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("an open slot has its socket until it is released")
    }

    /// Returns true while the TLS handshake of the connection is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns true if the connection moves to another loop.
    #[inline]
    pub(crate) fn is_leaving(&self) -> bool {
        self.passage == Passage::Leaving
    }

    /// Returns true if the connection is outgoing and not reported as connected yet.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.passage, Passage::Connecting | Passage::Shaking)
    }

    /// Returns true if the loop may receive from the connection: it is not paused, stopped, closing
    /// or ended, and the peer has not finished.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        !self.paused && !self.closing && !self.peer_finished && !self.input_stopped && self.ending.is_none()
    }
}

/// The slots of a loop's connections, by index. Every lookup is O(1) and checks the generation, so
/// that an id of an earlier connection finds nothing.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Conn>,
    free: Vec<u32>,
    /// The indexes of the slots that were freed in this turn; they can be reused from the next turn
    /// on.
    released: Vec<u32>,
    open_count: usize,
}

impl Slab {
    /// Stores `socket` in a free slot. Returns the id of the connection.
    pub(crate) fn insert(&mut self, socket: Socket) -> ConnId {
        self.open_count += 1;
        self.take_slot(Some(socket))
    }

    /// Returns an id that never names an open connection, for a connection that could not be
    /// opened.
    pub(crate) fn stale_id(&mut self) -> ConnId {
        let id = self.take_slot(None);
        self.released.push(id.index() as u32);
        id
    }

    fn take_slot(&mut self, socket: Option<Socket>) -> ConnId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            *slot = Conn::open(slot.generation.wrapping_add(1).max(1), socket);
            return ConnId::new(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).expect("descriptors end long before 2^32 slots");
        self.slots.push(Conn::open(1, socket));
        ConnId::new(index, 1)
    }

    /// Returns the open connection with this id; `None` for a stale id.
    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots.get(id.index()).filter(|conn| conn.generation == id.generation() && conn.socket.is_some())
    }

    /// Borrows the open connection with this id mutably; `None` for a stale id.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index());
        slot.filter(|conn| conn.generation == id.generation() && conn.socket.is_some())
    }

    /// Removes an open connection and returns its socket; the id is stale from now on.
    pub(crate) fn release(&mut self, id: ConnId) -> Option<Socket> {
        let socket = self.get_mut(id)?.socket.take();
        self.released.push(id.index() as u32);
        self.open_count -= 1;
        socket
    }

    /// Ends the turn of the loop: the slots released in it can be reused.
    pub(crate) fn end_turn(&mut self) {
        self.free.append(&mut self.released);
    }

    /// Returns the number of open connections of this loop. O(1).
    pub(crate) fn open_count(&self) -> usize {
        self.open_count
    }

    /// Iterates over the open connections in the `count` slots from `*from` on, and advances
    /// `*from`. After the last slot, `*from` is 0 again.
    pub(crate) fn next_open(&self, from: &mut usize, count: usize) -> impl Iterator<Item = (ConnId, &Conn)> {
        let begin = (*from).min(self.slots.len());
        let end = begin.saturating_add(count).min(self.slots.len());
        *from = if end == self.slots.len() { 0 } else { end };
        let slots = (begin..end).zip(&self.slots[begin..end]);
        slots
            .filter(|(_, conn)| conn.socket.is_some())
            .map(|(index, conn)| (ConnId::new(index as u32, conn.generation), conn))
    }
}

impl Conn {
    fn open(generation: u32, socket: Option<Socket>) -> Self {
        Self {
            generation,
            socket,
            ending: None,
            end_parked: false,
            awaits_drained: false,
            paused: false,
            peer_finished: false,
            closing: false,
            tls: None,
            awaits_step: false,
            input_stopped: false,
            passage: Passage::Settled,
            readiness: Readiness::default(),
            requests: Requests::default(),
        }
    }
}

//! The connections of one loop: slots with generations, and what both back ends keep per slot.
//!
//! A slot is free, open, or closed in this turn. The last state exists so that an index keeps its
//! meaning until the next `poll`: events of one turn never name two connections by one index.

use crate::tls::Session;
use crate::{CloseReason, ConnId, Socket};

/// One slot. Bytes in and out live beside it, in `Inputs` and `Outputs`, under the same index.
pub(crate) struct Conn {
    generation: u32,
    socket: Option<Socket>,
    /// Set once: why the connection ends. Reported, then released.
    pub(crate) ending: Option<CloseReason>,
    /// The end is not in the list of ends to report: it waits until input is resumed.
    pub(crate) end_parked: bool,
    /// `Drained` is to be reported once all output is sent.
    pub(crate) awaits_drained: bool,
    /// The caller wants no more input for now.
    pub(crate) paused: bool,
    /// `PeerFinished` was reported: nothing more will come.
    pub(crate) peer_finished: bool,
    /// `close_after_flush` was called: input is ignored, the rest of the output still goes out.
    pub(crate) closing: bool,
    /// Its TLS, if it is encrypted.
    pub(crate) tls: Option<Box<Session>>,
    /// Something was received for its TLS handshake, which waits to go on.
    pub(crate) awaits_step: bool,
    /// It waits beyond the turn, and nothing is received meanwhile.
    pub(crate) awaits_turn: bool,
    /// The readiness of the socket, for the epoll back end.
    pub(crate) readiness: Readiness,
    /// The requests to the kernel, for the io_uring back end.
    pub(crate) requests: Requests,
}

/// Requests of a connection that are in the kernel's hands or queued for it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Requests {
    /// The receive.
    pub(crate) receive: Receive,
    /// A poll for writability.
    pub(crate) writable: bool,
    /// More is unparsed than one turn's worth: not received from until that is done.
    pub(crate) throttled: bool,
    /// It was throttled or found no buffer, and its socket has not been empty since: received
    /// from one chunk at a time.
    pub(crate) floods: bool,
}

/// The state of a connection's receive.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Receive {
    /// None is under way.
    #[default]
    Idle,
    /// The kernel reports whatever arrives.
    Armed,
    /// To be ended; what arrives until then is still reported.
    Cancelling,
}

/// The directions that the socket is ready for (edge-triggered: remembered until used up).
#[derive(Clone, Copy, Default)]
pub(crate) struct Readiness {
    /// Bytes (or the end) may be waiting.
    pub(crate) readable: bool,
    /// The peer has closed its side: receive until the end shows, no edge will come any more.
    pub(crate) peer_closed: bool,
    /// In the list of connections to receive from.
    pub(crate) queued: bool,
    /// Registered for writability too.
    pub(crate) awaits_writable: bool,
}

impl Conn {
    #[inline]
    pub(crate) fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("an open slot has its socket until it is released")
    }

    /// Returns true while its TLS handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns true if input is wanted: the connection is neither paused nor closing nor ended,
    /// and there may be more.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        !self.paused && !self.closing && !self.peer_finished && !self.awaits_turn && self.ending.is_none()
    }
}

/// Slots by index. Every lookup is O(1) and checks the generation.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Conn>,
    free: Vec<u32>,
    /// Released in this turn; free from the next one on.
    released: Vec<u32>,
    open_count: usize,
}

impl Slab {
    /// Puts `socket` into a free slot.
    pub(crate) fn insert(&mut self, socket: Socket) -> ConnId {
        self.open_count += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            *slot = Conn::open(slot.generation.wrapping_add(1).max(1), socket);
            return ConnId::new(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).expect("descriptors end long before 2^32 slots");
        self.slots.push(Conn::open(1, socket));
        ConnId::new(index, 1)
    }

    /// Returns the open connection of that id.
    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots.get(id.index()).filter(|conn| conn.generation == id.generation() && conn.socket.is_some())
    }

    /// Borrows the open connection of that id, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.slots.get_mut(id.index());
        slot.filter(|conn| conn.generation == id.generation() && conn.socket.is_some())
    }

    /// Takes the socket of an open connection out; its id is stale from here on.
    pub(crate) fn release(&mut self, id: ConnId) -> Option<Socket> {
        let socket = self.get_mut(id)?.socket.take();
        self.released.push(id.index() as u32);
        self.open_count -= 1;
        socket
    }

    /// Begins a turn: what was released in the last one may be used again.
    pub(crate) fn end_turn(&mut self) {
        self.free.append(&mut self.released);
    }

    /// Returns the number of open connections. O(1).
    pub(crate) fn open_count(&self) -> usize {
        self.open_count
    }

    /// Returns the open connections in the next `count` slots from `*from` on, and advances
    /// `*from`; after the last slot it is that of the first.
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
    fn open(generation: u32, socket: Socket) -> Self {
        Self {
            generation,
            socket: Some(socket),
            ending: None,
            end_parked: false,
            awaits_drained: false,
            paused: false,
            peer_finished: false,
            closing: false,
            tls: None,
            awaits_step: false,
            awaits_turn: false,
            readiness: Readiness::default(),
            requests: Requests::default(),
        }
    }
}

//! Connections that move from an I/O thread to the thread `repl`, because their clients have sent
//! PSYNC or SYNC.

use net::{ConnId, Socket};

use super::Worker;
use crate::replicas::thread::adopt;
use crate::replication::messages::Arrival;

impl Worker<'_> {
    /// Releases the connections in `leaving` from this thread's event loop, except those with
    /// output that waits for the change log. For each, the event loop returns the socket in
    /// `Event::Released`. Called after the output of the turn was held back or released.
    #[cold]
    pub(super) fn leave_all(&mut self) {
        for conn in std::mem::take(&mut self.leaving) {
            if self.session(conn).is_none() {
                continue;
            }
            if self.net.split().1.held_len_bytes(conn) > 0 {
                self.leaving.push(conn);
            } else if !self.net.release(conn) {
                self.close(conn);
            }
        }
    }

    /// Passes a connection that the event loop has released to the thread `repl`. The client stays
    /// in CLIENT LIST.
    #[cold]
    pub(super) fn left(&mut self, conn: ConnId, socket: Socket) {
        if self.session(conn).is_none() {
            return;
        }
        let Some(client) = self.clients[conn.index()].take() else { return };
        let info = std::sync::Arc::clone(&client.session.info);
        let identity = client.session.identity.clone();
        let request = self.shared.replication.arrivals.take(info.id);
        let engine::Shared { threads, clients, .. } = &self.shared.engine;
        // If the client was killed meanwhile, its socket is closed here.
        let is_replica = request.is_some() && threads.mark_replica(clients, &info);
        self.let_go(*client);
        if let Some(request) = request.filter(|_| is_replica) {
            adopt(self.engine.executor.host.shared(), Arrival { socket, info, identity, request });
        }
    }
}

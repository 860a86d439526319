//! Connections that move to the thread of replication, because their clients asked for the
//! replication stream.

use net::{ConnId, Socket};

use super::Worker;
use crate::replicas::thread::adopt;

impl Worker<'_> {
    /// Lets a connection leave this loop, as soon as no output of it waits for the change log.
    /// `Event::Released` then reports its socket.
    pub(super) fn leave(&mut self, conn: ConnId) {
        if self.net.split().1.held_len_bytes(conn) > 0 {
            self.leaving.push(conn);
        } else if !self.net.release(conn) {
            self.close(conn);
        }
    }

    /// Tries again for the connections that had to wait.
    #[cold]
    pub(super) fn leave_all(&mut self) {
        for conn in std::mem::take(&mut self.leaving) {
            if self.session(conn).is_some() {
                self.leave(conn);
            }
        }
    }

    /// Hands a released connection over to the thread of replication. The client stays in the list
    /// of clients.
    #[cold]
    pub(super) fn left(&mut self, conn: ConnId, socket: Socket) {
        if self.session(conn).is_none() {
            return;
        }
        let Some(client) = self.clients[conn.index()].take() else { return };
        let info = std::sync::Arc::clone(&client.session.info);
        let request = self.shared.replication.arrivals.take(info.id);
        let engine::Shared { threads, clients, .. } = &self.shared.engine;
        // If the client was killed meanwhile, its socket is closed here.
        let is_replica = request.is_some() && threads.mark_replica(clients, &info);
        self.let_go(*client);
        if let Some(request) = request.filter(|_| is_replica) {
            adopt(self.engine.executor.host.shared(), socket, info, request);
        }
    }
}

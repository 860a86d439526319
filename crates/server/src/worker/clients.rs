//! New and closed connections of an I/O thread. A new connection is refused or assigned to a
//! thread. A closed one is removed from all lists. Clients whose requests had to wait are resumed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::acl::Identity;
use engine::client::{ClientInfo, Place};
use engine::searches::is_search;
use engine::session::{Flow, Session};
use net::{Address, CloseReason, ConnId, Socket, TlsFailure};
use resp::parse::Progress;

use super::limits::OverSoftLimit;
use super::{Client, Worker};
use crate::audit::{Login, Outcome};
use crate::config::table::tls as options;
use crate::shared::Message;
use crate::tls::certificate;

/// The error for clients from other machines in protected mode. Its first two sentences are those
/// of Redis, because tools search for them.
const PROTECTED_MODE_LINE: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is \
enabled and no password is set for the default user. In this mode connections are only accepted from the \
loopback interface. To let others in: set a password (requirepass); or, where nobody untrusted can reach the \
port, 'CONFIG SET protected-mode no' from a client on this machine, made permanent by CONFIG REWRITE, or \
'protected-mode no' in the configuration file, or '--protected-mode no' on the command line.\r\n";

impl Worker<'_> {
    /// Assigns a new connection to the I/O thread with the fewest connections, or refuses it. Among
    /// threads with equally few connections, prefers this thread. A thread with a busy script gets
    /// a connection only if every thread has one.
    pub(super) fn place(&mut self, socket: Socket) {
        let shared = self.shared;
        if let Some(refusal) = self.refusal(&socket) {
            shared.rejected_connections.fetch_add(1, Relaxed);
            if !socket.is_encrypted() {
                // The client may have disconnected already; nothing else needs the error.
                let _ = socket.send_once(refusal);
            }
            return;
        }
        let own = self.thread;
        let busy = shared.engine.scripts.busy_threads();
        let loads = shared.engine.threads.iter().enumerate();
        let target =
            loads.min_by_key(|(index, port)| (busy.contains(index), port.load.load(Relaxed), *index != own));
        let (index, port) = target.expect("a server has at least one I/O thread");
        port.load.fetch_add(1, Relaxed);
        if index == own {
            self.adopt(socket);
        } else if let Err(Message::Adopt(socket)) = shared.ports[index].mailbox.send(Message::Adopt(socket)) {
            // Thousands of connections wait in that mailbox: this one stays on this thread.
            port.load.fetch_sub(1, Relaxed);
            shared.engine.threads[own].load.fetch_add(1, Relaxed);
            self.adopt(socket);
        }
    }

    /// Returns the error line for a new connection that must be refused, because of `maxclients` or
    /// protected mode; `None` if it is accepted.
    fn refusal(&self, socket: &Socket) -> Option<&'static [u8]> {
        let settings = &self.engine.executor.settings;
        let open: usize = self.shared.engine.threads.iter().map(|port| port.load.load(Relaxed)).sum();
        let open = open + self.shared.replication.link_count.load(Relaxed);
        if open >= settings.clients.maxclients {
            return Some(b"-ERR max number of clients reached\r\n");
        }
        // An encrypted connection gets this error after its handshake.
        let is_denied = !socket.is_encrypted() && self.is_protected_from(socket.peer_address());
        is_denied.then_some(PROTECTED_MODE_LINE)
    }

    /// Returns true if protected mode refuses a client with the address `peer`.
    fn is_protected_from(&self, peer: &Address) -> bool {
        let settings = &self.engine.executor.settings;
        let is_foreign = matches!(peer, Address::Tcp(peer) if !peer.ip().to_canonical().is_loopback());
        is_foreign
            && settings.clients.protected_mode
            && self.shared.engine.acl.users.default_user().needs_no_password()
    }

    /// Handles the completed TLS handshake of a client: logs the client in as the user in its
    /// certificate, and checks protected mode.
    pub(super) fn secured(&mut self, conn: ConnId) {
        let Some(agreed) = self.net.agreed(conn) else { return };
        let tls = &self.shared.tls;
        let count = if agreed.resumed { &tls.resumed_handshakes } else { &tls.full_handshakes };
        count.fetch_add(1, Relaxed);
        let names = agreed.peer_certificate.as_ref().map(|certificate| {
            let field = options::AUTH_CLIENTS_USER.of(&self.shared.config());
            certificate::user_names(certificate, field)
        });
        self.log_in_by_certificate(conn, names.unwrap_or_default());
        if self.net.peer_address(conn).is_some_and(|peer| self.is_protected_from(peer)) {
            self.shared.rejected_connections.fetch_add(1, Relaxed);
            self.net.output(conn).tail_mut().extend_from_slice(PROTECTED_MODE_LINE);
            self.net.close_after_flush(conn);
        }
    }

    /// Logs the client in as the first user in `names` that exists and is on. If there is none, the
    /// client keeps its present user.
    fn log_in_by_certificate(&mut self, conn: ConnId, names: Vec<Vec<u8>>) {
        let users = &self.shared.engine.acl.users;
        let found = names.into_iter().find_map(|name| {
            let user = users.get(&name).filter(|user| user.is_on())?;
            Some((name, user))
        });
        let (settings, unix_ms) =
            (Arc::clone(&self.engine.executor.settings), self.engine.executor.now.unix_ms);
        let audit = &self.shared.audit;
        if let (Some((name, user)), Some(session)) = (found, self.session(conn)) {
            session.identity.authenticate(user, users);
            session.expires_s = 0;
            let client = &session.info;
            let login = Login { unix_ms, outcome: Outcome::Allowed, user: &name, client, by: "certificate" };
            audit.note_login(&settings.audit, login);
            session.info.names().user = name;
        }
    }

    /// Counts and logs a failed TLS handshake. The event loop closes the connection.
    pub(super) fn handshake_failed(&mut self, conn: ConnId, reason: &str) {
        self.shared.tls.failed_handshakes.fetch_add(1, Relaxed);
        let (peer, local) = (self.net.peer_address(conn), self.net.local_address(conn));
        if let (Some(peer), Some(local)) = (peer, local) {
            tracing::debug!("Error accepting a client connection: {reason} (addr={peer} laddr={local})");
        }
    }

    /// Handles the event that a connection was closed: counts and logs a failure of TLS, and
    /// removes the client.
    pub(super) fn closed(&mut self, conn: ConnId, reason: CloseReason) {
        match reason {
            CloseReason::Tls(TlsFailure::Handshake) | CloseReason::PeerClosed | CloseReason::Flushed => {}
            CloseReason::Tls(failure) => {
                if failure == TlsFailure::HandshakeTimedOut {
                    self.shared.tls.failed_handshakes.fetch_add(1, Relaxed);
                }
                if let Some(session) = self.session(conn) {
                    tracing::debug!("Closing a client: {failure} (addr={})", session.info.peer);
                }
            }
            CloseReason::Failed(_) => {}
        }
        self.forget(conn);
    }

    pub(super) fn adopt(&mut self, socket: Socket) {
        let (peer, local) = (socket.peer_address().clone(), socket.local_address().clone());
        let shared = self.shared;
        let port = &shared.engine.threads[self.thread];
        let keepalive_s = self.engine.executor.settings.clients.tcp_keepalive_s;
        if socket.is_encrypted() {
            let handshakes = shared.tls.handshakes_per_turn.load(Relaxed);
            self.net.set_handshakes_per_turn_max(handshakes as usize);
        }
        self.net.set_default_keepalive((keepalive_s > 0).then(|| Duration::from_secs(keepalive_s)));
        let conn = match self.net.adopt(socket) {
            Ok(conn) => conn,
            Err(error) => {
                port.load.fetch_sub(1, Relaxed);
                tracing::warn!(%error, "cannot serve a new client");
                return;
            }
        };
        let id = shared.engine.clients.next_id();
        let fd = self.net.fd(conn).map_or(-1, |fd| std::os::fd::AsRawFd::as_raw_fd(&fd));
        let now_ms = shared.uptime_ms();
        let place = Place { thread: self.thread, conn, fd };
        let info = Arc::new(ClientInfo::new(id, place, (peer, local), now_ms));
        shared.engine.clients.add(Arc::clone(&info));
        port.stats.connections.add(1);
        port.stats.clients.add(1);
        let identity = Identity::of_connection(&shared.engine.acl.users);
        let client = Client {
            session: Session::new(info, identity),
            progress: Progress::default(),
            over_soft_limit: OverSoftLimit::default(),
            unauthenticated_since_ms: now_ms,
            is_queued: false,
            has_pending_output: false,
        };
        if self.clients.len() <= conn.index() {
            self.clients.resize_with(conn.index() + 1, || None);
        }
        self.clients[conn.index()] = Some(Box::new(client));
    }

    pub(super) fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        let client = self.clients.get_mut(conn.index())?.as_deref_mut();
        client.filter(|client| client.session.conn == conn)
    }

    pub(super) fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.client(conn).map(|client| &mut client.session)
    }

    pub(super) fn close(&mut self, conn: ConnId) {
        self.net.close(conn);
        self.forget(conn);
    }

    /// Closes the connections of clients whose user was removed or has lost the permission for a
    /// channel to which the client subscribes.
    #[cold]
    pub(super) fn close_former_users(&mut self) {
        let users = &self.shared.engine.acl.users;
        let clients = self.clients.iter_mut().flatten();
        let former: Vec<ConnId> = clients
            .filter_map(|client| {
                let session = &mut client.session;
                let was_closing = session.flow == Flow::Closing;
                if session.identity.is_stale(users) {
                    session.refresh_rights(users);
                }
                (!was_closing && session.flow == Flow::Closing).then_some(session.conn)
            })
            .collect();
        former.into_iter().for_each(|conn| self.close(conn));
    }

    /// Removes the client of `conn`, whose connection is closed, from the lists of the thread and
    /// of the server.
    pub(super) fn forget(&mut self, conn: ConnId) {
        if self.session(conn).is_some()
            && let Some(client) = self.clients[conn.index()].take()
        {
            self.let_go(*client);
        }
    }

    /// Removes `client`, whose connection is closed, from the lists of the server. The caller has
    /// removed it from the list of the thread.
    pub(super) fn let_go(&mut self, mut client: Client) {
        let conn = client.session.conn;
        if !self.release.is_empty() {
            self.release.forget(conn, &self.shared.ports[self.thread].reply_waits);
        }
        if !self.debugged.is_empty() {
            self.leave_debugger(conn);
        }
        let session = &mut client.session;
        let engine::Shared { blocked, pubsub, monitors, clients, threads, .. } = &self.shared.engine;
        if let Some(blocked_by) = blocked.of(&session.info) {
            // After this no other thread can serve the client. A reply that is already on its way
            // finds no client.
            blocked.end(&blocked_by);
            self.timeouts.remove(blocked_by.deadline_ms, blocked_by.ticket);
            if is_search(&blocked_by) {
                self.cancelled_searches.push(blocked_by.ticket);
            }
        }
        self.shared.replication.arrivals.forget(session.id);
        session.drop_transaction();
        session.unsubscribe_all(pubsub, None);
        session.stop_monitoring(monitors);
        session.info.state.gone.store(true, Relaxed);
        self.engine.executor.stats().clients.sub(1);
        if !session.info.is_replica() {
            threads.unregister(clients, &session.info);
        }
        self.closed_clients.push(client);
        self.give_up_keys();
    }

    /// Removes the clients in `closed_clients` from the keys that they watched, blocked on or
    /// tracked. Does nothing while a script is busy, or while the thread is outside the gate that
    /// guards the keyspace.
    pub(super) fn give_up_keys(&mut self) {
        let engine::Shared { keyspace, blocked, watchers, tracking, scripts, .. } = &self.shared.engine;
        if !self.engine.executor.is_inside || scripts.is_any_busy() {
            return;
        }
        self.closed_clients.retain_mut(|client| {
            let session = &mut client.session;
            blocked.unblock(keyspace, &session.info);
            session.stop_tracking(tracking, keyspace);
            session.unwatch(watchers, keyspace);
            // `unwatch` keeps the keys if a script has become busy meanwhile.
            session.watch.is_some()
        });
    }

    /// Resumes a client whose requests waited for `reason`, so that its requests are received and
    /// run again. Does nothing if the client waits for another reason, or does not wait.
    pub(super) fn resume(&mut self, conn: ConnId, reason: Flow) {
        let Some(session) = self.session(conn) else { return };
        if session.flow != reason {
            return;
        }
        session.flow = Flow::Running;
        session.info.state.postponed.store(false, Relaxed);
        self.net.resume_input(conn);
        self.make_ready(conn);
    }

    /// Queues a connection, so that its input is parsed and run in this turn or the next.
    #[inline]
    pub(super) fn make_ready(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.push(conn);
        }
    }
}

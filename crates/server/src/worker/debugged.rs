//! Clients of an I/O thread that debug their scripts. Their input is passed to the threads that run
//! the scripts (`debugger`). The output of these threads is sent to the clients.

use std::sync::Arc;

use engine::session::Flow;
use net::ConnId;

use super::figures::note_output;
use super::{Worker, debugger, session_of};

impl Worker<'_> {
    /// Starts the thread that runs a script for a client in the mode of SCRIPT DEBUG.
    pub(super) fn begin_debugging(&mut self, conn: ConnId) {
        let Some(session) = session_of(&self.clients, conn) else { return };
        if let Some(link) = self.shared.debuggers.of(session.id) {
            debugger::begin(&self.engine.executor.host, &link);
            self.debugged.push(link);
        }
        self.pass_to_debugger(conn);
    }

    /// Passes the received input of a client that debugs a script to the thread of the script.
    pub(super) fn pass_to_debugger(&mut self, conn: ConnId) {
        let bytes = self.net.inputs().bytes(conn);
        if let Some(link) = self.debugged.iter().find(|link| link.conn() == conn)
            && !bytes.is_empty()
        {
            link.pass_on(bytes);
            let len = bytes.len();
            self.net.consume(conn, len);
        }
        self.keep_input(conn);
    }

    /// Sends the new output of all debugged scripts to their clients.
    #[cold]
    pub(super) fn send_for_debuggers(&mut self) {
        for link in self.debugged.clone() {
            let (conn, output) = (link.conn(), link.take_output());
            if output.bytes.is_empty() {
                continue;
            }
            let Some(session) = self.session(conn) else { continue };
            if let Some(position) = output.ended {
                session.saw(position);
                session.wrote(position);
                session.flow = Flow::Closing;
            }
            note_output(&self.engine, &link.client, output.bytes.len_bytes());
            let out = self.net.output(conn);
            let before = out.len_bytes();
            out.append(output.bytes);
            self.mark_observed(conn, before);
            if output.ended.is_some() {
                self.debugged.retain(|other| !Arc::ptr_eq(other, &link));
                self.settle(conn);
            } else if self.exceeds_output_limit(conn) {
                self.close(conn);
            }
        }
    }

    /// Notifies the thread of a debugged script that its client, on `conn`, has disconnected.
    pub(super) fn leave_debugger(&mut self, conn: ConnId) {
        self.debugged.retain(|link| {
            let stays = link.conn() != conn;
            if !stays {
                link.leave();
            }
            stays
        });
    }
}

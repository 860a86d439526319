//! Clients that debug their scripts: each has a thread that runs its script (`worker::debugger`),
//! to which the client's I/O thread passes what arrives, and whose output it sends.
//!
//! ```text
//!   client ─► I/O thread ─► Link: input  ─► thread of the script  (waits for it, 100 ms at a time)
//!   client ◄─ I/O thread ◄─ Link: output ◄─ thread of the script  (wakes the I/O thread)
//! ```
//! What they share is a [`Link`], whose lock is a leaf. A client that has left ends the wait of its
//! script, and so does the end of the server.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use commands::{Args, CommandError};
use engine::acl::Identity;
use engine::client::ClientInfo;
use engine::owned_args::OwnedArgs;
use engine::scripting::Debugging;
use engine::session::Session;
use engine::shared::GateSlot;
use net::ConnId;
use script::Received;
use stdx::ByteQueue;

/// How long a script waits for its client before it asks whether the server goes on.
const WAIT: Duration = Duration::from_millis(100);
/// What is kept of a client's input while its script runs; the debugger ends at less.
const INPUT_BYTES_MAX: usize = 2 << 20;

/// The clients that debug, by their places in the gate. Its lock is a leaf.
#[derive(Default)]
pub struct Debuggers {
    links: Mutex<[Option<Arc<Link>>; GateSlot::DEBUGGERS_MAX]>,
}

impl Debuggers {
    fn links(&self) -> MutexGuard<'_, [Option<Arc<Link>>; GateSlot::DEBUGGERS_MAX]> {
        self.links.lock().expect("nothing panics while it is locked")
    }

    /// The link of a client whose script is debugged.
    pub fn of(&self, client: u64) -> Option<Arc<Link>> {
        self.links().iter().flatten().find(|link| link.client.id == client).map(Arc::clone)
    }

    /// Adds a client, with the EVAL that it debugs.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, session: &Session, args: &Args<'_>) -> Result<(), CommandError> {
        let mut links = self.links();
        let Some(slot) = links.iter().position(Option::is_none) else {
            return Err(CommandError::Line("ERR too many scripts are debugged at the moment"));
        };
        links[slot] = Some(Arc::new(Link {
            slot: GateSlot::Debugger(slot),
            mode: session.debugging,
            client: Arc::clone(&session.info),
            identity: session.identity.clone(),
            words: OwnedArgs::new(args.from(0)),
            state: Mutex::default(),
            arrived: Condvar::new(),
        }));
        Ok(())
    }

    /// Does `work` as the only one.
    pub fn one_at_a_time(&self, work: impl FnOnce()) {
        let _links = self.links();
        work();
    }

    /// Removes a client: its script has ended.
    pub fn remove(&self, link: &Link) {
        for place in self.links().iter_mut() {
            if place.as_ref().is_some_and(|other| other.slot == link.slot) {
                *place = None;
            }
        }
    }
}

/// What the thread of a script and the I/O thread of its client share.
pub struct Link {
    /// The place of the script's thread in the gate.
    pub slot: GateSlot,
    /// What becomes of the script's changes.
    pub mode: Debugging,
    /// The client.
    pub client: Arc<ClientInfo>,
    /// Who it is.
    pub identity: Identity,
    /// The command that runs the script.
    pub words: OwnedArgs,
    state: Mutex<LinkState>,
    arrived: Condvar,
}

#[derive(Default)]
struct LinkState {
    input: Vec<u8>,
    output: ByteQueue,
    has_left: bool,
    /// The script has ended, and shows the change log up to here.
    ended: Option<u64>,
}

/// What a script has for its client.
pub struct Output {
    /// To be sent.
    pub bytes: ByteQueue,
    /// With this the session ends: the change log up to here is shown.
    pub ended: Option<u64>,
}

impl Link {
    /// The client's connection.
    pub fn conn(&self) -> ConnId {
        self.client.conn
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Passes on what the client has sent.
    pub fn pass_on(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.input.len() < INPUT_BYTES_MAX {
            state.input.extend_from_slice(bytes);
        }
        self.arrived.notify_one();
    }

    /// The client has left.
    pub fn leave(&self) {
        self.state().has_left = true;
        self.arrived.notify_one();
    }

    /// Waits for some time for what the client sends, and appends it.
    pub fn receive(&self, input: &mut Vec<u8>) -> Received {
        let mut state = self.state();
        if state.input.is_empty() && !state.has_left {
            let waited = self.arrived.wait_timeout(state, WAIT);
            state = waited.expect("nothing panics while it is locked").0;
        }
        if !state.input.is_empty() {
            input.append(&mut state.input);
            Received::Bytes
        } else if state.has_left {
            Received::Gone
        } else {
            Received::Nothing
        }
    }

    /// Leaves output; the caller wakes the I/O thread.
    pub fn send(&self, bytes: &[u8]) {
        self.state().output.tail_mut().extend_from_slice(bytes);
    }

    /// Leaves the script's reply, which shows the change log up to a position; the caller wakes the
    /// I/O thread.
    pub fn end(&self, reply: ByteQueue, position: u64) {
        let mut state = self.state();
        state.output.append(reply);
        state.ended = Some(position);
    }

    /// What is to be sent now.
    pub fn take_output(&self) -> Output {
        let mut state = self.state();
        Output { bytes: std::mem::take(&mut state.output), ended: state.ended.take() }
    }
}

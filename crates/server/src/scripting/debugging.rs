//! Clients that debug their scripts. Each such client has a thread that runs its script
//! (`worker::debugger`). The client's I/O thread passes the client's input to that thread, and
//! sends the script's output to the client.
//!
//! ```text
//!   client ─► I/O thread ─► Link: input  ─► thread of the script  (waits for it, 100 ms at a time)
//!   client ◄─ I/O thread ◄─ Link: output ◄─ thread of the script  (wakes the I/O thread)
//! ```
//! The two threads share a [`Link`], whose lock is a leaf. A script that waits for input stops
//! waiting when the client disconnects or the server stops.

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

/// Maximum time that a debugged script waits for input before it checks if the server is stopping.
const WAIT: Duration = Duration::from_millis(100);
/// Size of a client's unread input, in bytes, at which further input is dropped. The debugger ends
/// the session at a lower limit, so this limit is never reached in practice.
const INPUT_BYTES_MAX: usize = 2 << 20;

/// The clients that debug scripts, indexed by their slots in the gate that guards the keyspace. No
/// other lock is taken under the lock.
#[derive(Default)]
pub struct Debuggers {
    links: Mutex<[Option<Arc<Link>>; GateSlot::DEBUGGERS_MAX]>,
}

impl Debuggers {
    fn links(&self) -> MutexGuard<'_, [Option<Arc<Link>>; GateSlot::DEBUGGERS_MAX]> {
        self.links.lock().expect("nothing panics while it is locked")
    }

    /// Returns the link of a client whose script is being debugged; `None` for any other client.
    pub fn of(&self, client: u64) -> Option<Arc<Link>> {
        self.links().iter().flatten().find(|link| link.client.id == client).map(Arc::clone)
    }

    /// Adds a client and the EVAL request that it debugs.
    ///
    /// # Errors
    /// The maximum number of scripts is being debugged.
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

    /// Runs `work` while the lock of the list of debugging clients is held, so that only one thread
    /// at a time runs such work.
    pub fn one_at_a_time(&self, work: impl FnOnce()) {
        let _links = self.links();
        work();
    }

    /// Removes the client of `link`, whose debugged script has ended.
    pub fn remove(&self, link: &Link) {
        for place in self.links().iter_mut() {
            if place.as_ref().is_some_and(|other| other.slot == link.slot) {
                *place = None;
            }
        }
    }
}

/// The state that the thread of a debugged script and the I/O thread of its client share.
pub struct Link {
    /// The slot that the script's thread occupies in the gate that guards the keyspace.
    pub slot: GateSlot,
    /// The mode of SCRIPT DEBUG, which decides whether the script's changes are kept or undone.
    pub mode: Debugging,
    /// The client that debugs the script.
    pub client: Arc<ClientInfo>,
    /// The user of the debugging client's session, with its rights.
    pub identity: Identity,
    /// The EVAL request that runs the debugged script.
    pub words: OwnedArgs,
    state: Mutex<LinkState>,
    arrived: Condvar,
}

#[derive(Default)]
struct LinkState {
    input: Vec<u8>,
    output: ByteQueue,
    has_left: bool,
    /// The position of the change log up to which the reply shows changes; set when the script has
    /// ended.
    ended: Option<u64>,
}

/// The output of a script that is sent to its client.
pub struct Output {
    /// The bytes of the script's output to send to the client.
    pub bytes: ByteQueue,
    /// The position of the change log up to which the bytes show changes, if the debug session ends
    /// with these bytes.
    pub ended: Option<u64>,
}

impl Link {
    /// Returns the connection of the client that debugs the script.
    pub fn conn(&self) -> ConnId {
        self.client.conn
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Passes input of the client to the script's thread, and wakes that thread. Called by the I/O
    /// thread.
    pub fn pass_on(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.input.len() < INPUT_BYTES_MAX {
            state.input.extend_from_slice(bytes);
        }
        self.arrived.notify_one();
    }

    /// Records that the client has disconnected, and wakes the script's thread. Called by the I/O
    /// thread.
    pub fn leave(&self) {
        self.state().has_left = true;
        self.arrived.notify_one();
    }

    /// Waits for input of the client, at most for [`WAIT`], and appends it to `input`. Called by
    /// the script's thread.
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

    /// Adds output of the script for its client. The script's thread, which calls this, then wakes
    /// the I/O thread.
    pub fn send(&self, bytes: &[u8]) {
        self.state().output.tail_mut().extend_from_slice(bytes);
    }

    /// Adds the script's reply, which shows changes up to the log position `position`. The script's
    /// thread, which calls this, then wakes the I/O thread.
    pub fn end(&self, reply: ByteQueue, position: u64) {
        let mut state = self.state();
        state.output.append(reply);
        state.ended = Some(position);
    }

    /// Removes and returns the output that was added so far. Called by the I/O thread.
    pub fn take_output(&self) -> Output {
        let mut state = self.state();
        Output { bytes: std::mem::take(&mut state.output), ended: state.ended.take() }
    }
}

//! A driver of an engine without sockets, threads or a clock. It does the work of the server's I/O
//! threads in one thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use commands::table::Command;
use commands::{Args, CommandError};
use engine::acl::Identity;
use engine::batch::Incoming;
use engine::call::{Call, Host};
use engine::client::{ClientInfo, Place};
use engine::clock::{Clock, ManualClock};
use engine::expire::ActiveExpiry;
use engine::owned_args::OwnedArgs;
use engine::run::Executor;
use engine::scripting::ScriptEngine;
use engine::searches::{FoundReply, Searches};
use engine::session::{Flow, Session};
use engine::settings::Settings;
use engine::shared::{Shared, Start};
use engine::table::{CommandTable, HostCommand, Runner};
use engine::turn::Engine;
use stdx::{Address, ByteQueue, ConnId};

/// A host whose only server command is SELECT, for tests that need no other.
pub struct NoHost;

impl Host for NoHost {
    fn run(&self, _: HostCommand, mut call: Call<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
        call.session.info.db.store(args.db_index(1, 16)? as u64, Relaxed);
        call.reply.ok();
        Ok(())
    }
}

/// Creates an engine without clients, with a clock that changes only when it is advanced.
pub fn shared(threads: usize, settings: Settings) -> (Shared, ManualClock) {
    shared_with(threads, settings, &[])
}

/// Creates an engine without clients that also has the commands `further`.
pub fn shared_with(threads: usize, settings: Settings, further: &[Command<Runner>]) -> (Shared, ManualClock) {
    let now = Instant::now();
    let table = CommandTable::new(engine::exec::commands().chain(further.iter().copied()));
    let start = Start { threads, databases: 16, table, settings, seed: [1, 2, 3, 4], now };
    (Shared::new(start), ManualClock::new(now, Duration::from_secs(1_000_000)))
}

/// An I/O thread of the engine with its clients, without sockets.
pub struct Thread<'s> {
    shared: &'s Shared,
    index: usize,
    engine: Engine<'s, ManualClock, NoHost>,
    sessions: Vec<Session>,
    clock: ManualClock,
}

impl<'s> Thread<'s> {
    /// Creates the I/O thread with index `index` of the engine `shared`.
    pub fn new(shared: &'s Shared, clock: &ManualClock, index: usize) -> Self {
        let executor = Executor::new(shared, Some(index), index as u64, (clock.clone(), NoHost));
        Self { shared, index, engine: Engine::new(executor), sessions: Vec::new(), clock: clock.clone() }
    }

    /// Returns this thread with a script engine, which runs its scripts.
    pub fn with_scripts(mut self, scripts: Box<dyn ScriptEngine>) -> Self {
        self.engine.executor.scripts = Some(scripts);
        self
    }

    /// Returns this thread with slices, so that its searches may pause.
    pub fn with_slices(mut self) -> Self {
        self.engine.executor.searches.turn_on();
        self
    }

    /// Returns true if no search is left.
    pub fn has_no_searches(&self) -> bool {
        let searches = &self.engine.executor.searches;
        !searches.has_active() && !searches.has_waiting()
    }

    /// Cancels the search of the client whose wait has the number `ticket`.
    pub fn cancel_search(&mut self, ticket: u64) {
        self.engine.executor.searches.cancel(ticket, &self.shared.freeing);
    }

    /// Runs a turn without requests, and the slice after it. Returns the replies of the searches
    /// that have ended, each with the number of its client.
    pub fn run_slice(&mut self) -> Vec<(usize, String)> {
        let pass = self.shared.gate.shared_unless_busy(self.index);
        self.engine.begin(self.clock.now());
        self.engine.note_standing(&pass);
        let mut replies = self.engine.begin_searches();
        self.engine.executor.end_turn();
        drop(pass);
        let searches = &mut self.engine.executor.searches;
        let end = Searches::begin_slice(&self.clock);
        while let Some(found) = searches.run_until(end, &self.clock, self.shared) {
            replies.push(found);
            if self.clock.now() >= end {
                break;
            }
        }
        let mut resume = |found: FoundReply| {
            let client = found.waiter.conn.index();
            let session = &mut self.sessions[client];
            self.shared.blocked.unblock(&self.shared.keyspace, &session.info);
            session.flow = Flow::Running;
            (client, text(&found.reply))
        };
        replies.into_iter().map(&mut resume).collect()
    }

    /// Connects a new client to this thread. Returns its number.
    pub fn connect(&mut self) -> usize {
        let number = self.sessions.len();
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread: self.index, conn: ConnId::new(number as u32, 1), fd: -1 };
        let id = self.shared.clients.next_id();
        let info = Arc::new(ClientInfo::new(id, place, (address(), address()), 0));
        self.shared.clients.add(Arc::clone(&info));
        self.sessions.push(Session::new(info, Identity::internal()));
        number
    }

    /// Borrows the session of the client with number `client`.
    pub fn session(&mut self, client: usize) -> &mut Session {
        &mut self.sessions[client]
    }

    /// Runs a request of a client in a turn (pass of the event loop) of its own. Returns the reply,
    /// and the threads to wake.
    pub fn run(&mut self, client: usize, request: &str) -> (String, Vec<usize>) {
        let (mut replies, woken) = self.run_together(&[(client, request)]);
        (replies.remove(0), woken)
    }

    /// Runs requests in one turn. Returns the replies, and the threads to wake.
    pub fn run_together(&mut self, requests: &[(usize, &str)]) -> (Vec<String>, Vec<usize>) {
        let mut pass = self.shared.gate.shared_unless_busy(self.index);
        self.engine.begin(self.clock.now());
        self.engine.note_standing(&pass);
        let mut replies = Vec::new();
        for (client, request) in requests {
            let owned = OwnedArgs::new(request.split(' ').map(str::as_bytes));
            let args = owned.args(self.shared.keyspace.hasher());
            let incoming = Incoming { registered: self.shared.table.find(args.get(0)), args };
            let mut out = ByteQueue::new();
            self.engine.run(&mut self.sessions[*client], &incoming, &mut out, &mut pass);
            replies.push(text(&out));
        }
        if pass.is_inside() {
            self.engine.keep_limits();
        }
        self.engine.executor.end_turn();
        let mut woken = self.engine.executor.commit.outbox.take().into_vec();
        woken.sort_unstable();
        (replies, woken)
    }

    /// Takes the replies for the thread's blocked clients, each with the number of its connection.
    pub fn deliveries(&mut self) -> Vec<(usize, String)> {
        let inbound = self.shared.threads.take(self.index).unwrap_or_default();
        let delivered = inbound.deliveries.into_iter();
        delivered.map(|delivery| (delivery.conn.index(), text(&delivery.reply))).collect()
    }
}

/// Runs a round of active expiry over the whole keyspace. Returns the threads to wake.
pub fn expire_round(shared: &Shared, clock: &ManualClock) -> Vec<usize> {
    let mut executor = Executor::new(shared, None, 7, (clock.clone(), NoHost));
    let mut expiry = ActiveExpiry::new(Instant::now());
    expiry.begin_round(shared, 100);
    let mut woken = Vec::new();
    while expiry.next_slice().is_some() {
        expiry.slice(&mut executor, |outbox, _| woken.extend(outbox.take()));
    }
    woken
}

/// Removes due keys whose deadlines clients of a replica have set. Returns true if there may be
/// more that can be removed now.
pub fn expire_local_keys(shared: &Shared, clock: &ManualClock) -> bool {
    let mut executor = Executor::new(shared, None, 7, (clock.clone(), NoHost));
    engine::expire::expire_local_keys(&mut executor, |_| ())
}

fn text(out: &ByteQueue) -> String {
    let pieces = out.io_slices(usize::MAX);
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    String::from_utf8_lossy(&bytes).replace("\r\n", "|")
}

//! The thread of a debugged script. With SCRIPT DEBUG SYNC, the script owns the keyspace
//! exclusively. With SCRIPT DEBUG YES, it runs on a separate engine with its own keyspace. Each key
//! is copied there when the script first uses it (`engine::debugging`).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use engine::acl::User;
use engine::debugging::Original;
use engine::request::Request;
use engine::run::Executor;
use engine::scripting::Debugging;
use engine::session::Session;
use engine::shared::{GateSlot, Start};
use engine::stats::ThreadStats;
use resp::Reply;
use script::{DebugClient, Received};
use stdx::ByteQueue;

use super::scripts::ThreadScripts;
use crate::context::{ServerHost, SystemClock};
use crate::scripting::debugging::Link;
use crate::shared::{Message, Shared};

/// Time since the last request for input after which a debugged script counts as endless, if
/// `busy-reply-threshold` sets no time.
const OVERDUE_DEFAULT: Duration = Duration::from_secs(5);

/// The debugger's connection to the client: sends output lines to the client and receives input
/// from it, through the client's I/O thread.
struct DebugConnection {
    shared: Arc<Shared>,
    link: Arc<Link>,
    /// The time at which the debugger last asked the client for input.
    received: Instant,
}

impl DebugClient for DebugConnection {
    fn send(&mut self, bytes: &[u8]) {
        self.link.send(bytes);
        wake(&self.shared, &self.link);
    }

    fn receive(&mut self, input: &mut Vec<u8>) -> Received {
        let received = self.link.receive(input);
        self.received = Instant::now();
        received
    }

    fn is_overdue(&mut self) -> bool {
        let threshold = self.shared.engine.settings.get().busy_threshold.unwrap_or(OVERDUE_DEFAULT);
        self.received.elapsed() >= threshold
    }
}

/// Wakes the client's I/O thread, so that this thread sends the debugger's output.
fn wake(shared: &Shared, link: &Link) {
    // A full mailbox belongs to a thread that is awake: it checks its links in each turn.
    let _ = shared.ports[link.client.thread].mailbox.send(Message::Delivered);
}

/// Starts the thread that runs the script of a debugging client. If the thread cannot be started,
/// sends an error to the client.
pub(super) fn begin(host: &ServerHost, link: &Arc<Link>) {
    let (of_thread, debugged) = (host.clone(), Arc::clone(link));
    let begun = thread::Builder::new().name("debugger".to_owned()).spawn(move || {
        let (reply, position) = run(&of_thread, &debugged);
        end(of_thread.shared(), &debugged, reply, position);
    });
    if let Err(error) = begun {
        tracing::warn!(%error, "cannot start a thread for a debugged script");
        let mut reply = ByteQueue::new();
        Reply::new(&mut reply, link.client.protocol()).error("ERR cannot start a thread for the debugger");
        end(host.shared(), link, reply, 0);
    }
}

fn end(shared: &Shared, link: &Link, reply: ByteQueue, position: u64) {
    // Removed first: a client that has its reply may start another script.
    shared.debuggers.remove(link);
    link.end(reply, position);
    wake(shared, link);
}

/// Runs the debugged script on its own thread. Returns its reply, and the log position up to which
/// the reply shows changes.
fn run(host: &ServerHost, link: &Arc<Link>) -> (ByteQueue, u64) {
    let engine = &host.shared().engine;
    let clock_and_host = (SystemClock, host.clone());
    let seed = fastrand::u64(..);
    if link.mode != Debugging::Discarding {
        tracing::info!("a client debugs a script: other clients wait until the debugging ends");
        let stats = ThreadStats::new(engine.table.id_count());
        let mut executor = Executor::with_stats(engine, (None, &stats), seed, clock_and_host);
        executor.debug(None);
        let done = run_with(&mut executor, host, link, link.slot);
        host.shared().wake(&executor.commit.outbox);
        host.shared().debuggers.one_at_a_time(|| engine.threads.add_debugged(&stats));
        tracing::info!("the debugging of a script has ended");
        return done;
    }
    let apart = engine::Shared::new(Start {
        threads: 1,
        databases: engine.keyspace.db_count(),
        table: engine.table.clone(),
        settings: (*engine.settings.get()).clone(),
        seed: std::array::from_fn(|_| fastrand::u64(..)),
        now: engine.started(),
    });
    // In the separate engine the script's user has the same permissions.
    apart.acl.users.replace_all(engine.acl.users.all().iter().map(|user| User::clone(user)));
    let mut executor = Executor::new(&apart, Some(0), seed, clock_and_host);
    executor.debug(Some(Original::new(engine, link.slot)));
    run_with(&mut executor, host, link, GateSlot::Debugger(0))
}

fn run_with<'s>(
    executor: &mut Executor<'s, SystemClock, ServerHost>,
    host: &ServerHost,
    link: &Arc<Link>,
    slot: GateSlot,
) -> (ByteQueue, u64) {
    let (shared, engine) = (host.shared(), executor.shared());
    let args = link.words.args(engine.keyspace.hasher());
    let mut out = ByteQueue::new();
    let Some(registered) = engine.table.find(args.get(0)) else { return (out, 0) };
    let speaker =
        DebugConnection { shared: Arc::clone(shared), link: Arc::clone(link), received: Instant::now() };
    let scripts = ThreadScripts::debugged(shared, args.get(1), Box::new(speaker));
    executor.scripts = Some(Box::new(scripts));
    executor.begin_turn(Instant::now());
    let mut session = Session::new(Arc::clone(&link.client), link.identity.clone());
    session.identity.refresh(&engine.acl.users);
    let request = Request::unhashed(registered, args);
    let mut pass = engine.gate.shared_unless_busy(engine.gate_index(slot));
    executor.is_inside = pass.is_inside();
    executor.run_debugged(&mut session, &request, &mut out, &mut pass);
    drop(pass);
    executor.commit.merge_log();
    (out, session.observed_position())
}

//! The client of one I/O thread of a simulated node. On a primary it writes and reads; on a replica
//! it only reads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::acl::Identity;
use engine::batch::Incoming;
use engine::client::{ClientInfo, Place};
use engine::clock::{Clock, ManualClock};
use engine::owned_args::OwnedArgs;
use engine::run::Executor;
use engine::session::{Flow, Session};
use engine::turn::{Engine, Outcome};
use resp::Value;
use resp::decode::decode;
use stdx::{Address, ByteQueue, ConnId};

use super::node::{Cluster, Seen};
use crate::Rng;
use crate::simulator::host::SimulatedHost;

/// A transaction that reads counter `t` from its three keys, then the counters `y` and `x`. A
/// writer increments the three keys of `t` together.
const READ: &[&str] = &["MULTI", "MGET t1 t2", "MGET y x", "SELECT 1", "GET t1", "SELECT 0", "EXEC"];
/// A transaction that increments the three keys of `t`, with only their shards locked.
const LOCKED: &[&str] = &["MULTI", "INCR t1", "INCR t2", "SELECT 1", "INCR t1", "SELECT 0", "EXEC"];
/// A transaction that increments the three keys of `t` as the exclusive owner of the keyspace,
/// which SWAPDB requires.
const ALONE: &[&str] =
    &["MULTI", "INCR t1", "INCR t2", "SWAPDB 2 3", "SELECT 1", "INCR t1", "SELECT 0", "EXEC"];

/// Runs `count` reads and writes of one client, on the given I/O thread of a simulated node.
pub(super) fn run(cluster: &Cluster, (node, thread): (usize, usize), count: usize, mut rng: Rng) {
    let mut client = Client::new(cluster, node, thread, rng.next_u64());
    for _ in 0..count {
        if cluster.has_findings() {
            break;
        }
        let is_primary = cluster.with(node, |state| state.follows.is_none());
        let writes = is_primary && !cluster.holds_writes.load(Relaxed) && rng.percent(75);
        match rng.below(10) {
            0 => cluster.nodes[node].engine.gate.exclusive(|alone| cluster.check_data(node, alone)),
            _ if writes => client.write(&mut rng),
            _ => drop(client.read()),
        }
        shuttle::thread::yield_now();
    }
    cluster.clients.fetch_sub(1, Relaxed);
}

/// A simulated client with the engine that runs its requests.
struct Client<'c> {
    cluster: &'c Cluster,
    node: usize,
    thread: usize,
    engine: Engine<'c, ManualClock, SimulatedHost>,
    session: Session,
}

impl<'c> Client<'c> {
    fn new(cluster: &'c Cluster, node: usize, thread: usize, seed: u64) -> Self {
        let of = &cluster.nodes[node];
        let host = SimulatedHost::new(&of.engine, &of.clock);
        let executor = Executor::new(&of.engine, Some(thread), seed, (of.clock.clone(), host));
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread, conn: ConnId::new(0, 1), fd: -1 };
        let info = ClientInfo::new(of.engine.clients.next_id(), place, (address(), address()), 0);
        let session = Session::new(Arc::new(info), Identity::internal());
        Self { cluster, node, thread, engine: Engine::new(executor), session }
    }

    /// Runs one request as a turn of its own. Repeats it until the engine accepts it. Returns the
    /// reply.
    fn run(&mut self, request: &str) -> Value {
        let node = &self.cluster.nodes[self.node];
        let shared = &*node.engine;
        let owned = OwnedArgs::new(request.split(' ').map(str::as_bytes));
        let mut out = ByteQueue::new();
        loop {
            let args = owned.args(shared.keyspace.hasher());
            let incoming = Incoming { registered: shared.table.find(args.get(0)), args };
            let outcome = {
                let mut pass = shared.gate.shared(self.thread);
                self.engine.begin(node.clock.now());
                let outcome = self.engine.run(&mut self.session, &incoming, &mut out, &mut pass);
                self.engine.executor.commit.broadcast();
                self.engine.executor.end_turn();
                outcome
            };
            shared.log.merge(&self.engine.executor.commit.outbox);
            drop(self.engine.executor.commit.outbox.take());
            self.session.flow = Flow::Running;
            if outcome == Outcome::Done {
                break;
            }
            shuttle::thread::yield_now();
        }
        let bytes: Vec<u8> = out.io_slices(usize::MAX).iter().flat_map(|piece| piece.to_vec()).collect();
        decode(&bytes).ok().flatten().expect("each request has a reply").0
    }

    /// Sends one random write request or transaction. It is refused if the node has become a
    /// replica in the meantime.
    fn write(&mut self, rng: &mut Rng) {
        match rng.below(14) {
            0..3 => LOCKED.iter().for_each(|request| drop(self.run(request))),
            3 | 12 | 13 => ALONE.iter().for_each(|request| drop(self.run(request))),
            4..6 if self.thread == 0 => {
                // The only client that writes these: `x` is never behind `y`.
                let mut numbers = Vec::new();
                for request in ["WATCH x y", "GET x", "GET y"] {
                    collect_numbers(&self.run(request), &mut numbers);
                }
                let is_same = numbers[0] == numbers[1];
                for request in ["MULTI", if is_same { "INCR x" } else { "INCR y" }, "EXEC"] {
                    self.run(request);
                }
            }
            6 => {
                let request = format!("SET e {} PX {}", rng.below(100), 1 + rng.below(8));
                self.run(&request);
            }
            7 => drop(self.run("INCR e")),
            8 => drop(self.run(["GET e", "DEL e"][rng.below(2)])),
            9 => {
                for request in ["SELECT 2", "INCR z", "SELECT 0"] {
                    self.run(request);
                }
            }
            10 => drop(self.run(["SWAPDB 2 3", "PUBLISH c m"][rng.below(2)])),
            _ => drop(self.run("INCR z")),
        }
    }

    /// Reads the counters in one transaction. Checks that they show the state between two changes
    /// (commands or transactions), and no older state than earlier reads of this node. Returns the
    /// counters.
    fn read(&mut self) -> Option<Seen> {
        let (before, loads) = self.cluster.with(self.node, |state| (state.seen, state.loads));
        let mut reply = Value::Null;
        for request in READ {
            reply = self.run(request);
        }
        let Value::Array(parts) = reply else { return None };
        let mut numbers = Vec::new();
        parts.iter().for_each(|part| collect_numbers(part, &mut numbers));
        let [t1, t2, y, x, t] = numbers[..] else {
            self.cluster.find(format!("a read got {numbers:?}"));
            return None;
        };
        let node = self.node;
        if t1 != t2 || t1 != t {
            self.cluster.find(format!("node {node} shows a part of a transaction: {t1}, {t2}, {t}"));
        }
        if !(y..=y + 1).contains(&x) {
            self.cluster.find(format!("node {node} shows no prefix: x is {x} and y is {y}"));
        }
        let seen = [t1, x, y];
        self.cluster.with(node, |state| {
            if state.loads == loads {
                state.seen = std::array::from_fn(|at| state.seen[at].max(seen[at]));
            }
        });
        let is_same = self.cluster.with(node, |state| state.loads == loads);
        if is_same && (0..3).any(|at| seen[at] < before[at]) {
            self.cluster.find(format!("node {node} went back from {before:?} to {seen:?}"));
        }
        Some(seen)
    }
}

/// Appends the integers in a reply to `numbers`; a missing key counts as 0.
fn collect_numbers(value: &Value, numbers: &mut Vec<i64>) {
    match value {
        Value::Array(parts) => parts.iter().for_each(|part| collect_numbers(part, numbers)),
        Value::Null => numbers.push(0),
        other => {
            let text = other.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok());
            numbers.extend(text.and_then(|text| text.parse::<i64>().ok()));
        }
    }
}

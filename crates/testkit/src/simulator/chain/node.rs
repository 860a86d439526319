//! The nodes of a scenario of replication, and the state that their threads share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use engine::Shared;
use engine::clock::ManualClock;
use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::log::target::LogTarget;
use engine::settings::Settings;
use engine::threads::Outbox;
use keyspace::Exclusive;
use replicate::history::ReplId;
use replicate::primary::{OutputLimit, Primary};

use super::truth::Truth;
use super::wire::Wire;
use crate::contents::{difference, of_keyspace};

/// The number of I/O threads of a simulated node.
pub(super) const THREADS: usize = 2;
/// The number of bytes of the replication stream that a backlog keeps for replicas that reconnect.
pub(super) const BACKLOG_BYTES: u64 = 3000;
/// Maximum number of bytes of the replication stream that a replica has not read; above it, its
/// link is cut.
pub(super) const OUTPUT_BYTES: u64 = 6000;

/// The values of the counters `t`, `x` and `y` that readers have seen.
pub(super) type Seen = [i64; 3];

/// The replication state of a simulated node. Its lock is a leaf: no other lock is taken under it.
/// A thread of the simulator does not yield at it.
pub(super) struct State {
    pub primary: Primary,
    /// The id of the reader of the change log that appends changes to the replication stream;
    /// `None` on a replica.
    pub reader: Option<ReaderId>,
    /// The number of the node that this node follows; `None` on a primary.
    pub follows: Option<usize>,
    /// The links to the replicas of this node, by the client number that identifies the link.
    pub wires: BTreeMap<u64, Arc<Mutex<Wire>>>,
    /// The highest value of each counter that any read of this node has returned since the last
    /// full load of data.
    pub seen: Seen,
    /// The number of times that a snapshot has replaced the data of this node.
    pub loads: u64,
    next_client: u64,
}

impl State {
    /// Returns a new client number, which identifies one link to a replica.
    pub fn new_client(&mut self) -> u64 {
        self.next_client += 1;
        self.next_client
    }
}

/// A simulated server: its engine, its clock and its replication state.
pub(super) struct Node {
    pub engine: Arc<Shared>,
    pub clock: ManualClock,
    pub state: Arc<Mutex<State>>,
}

/// The reader of a primary's change log: it appends each batch to the replication stream.
struct StreamReader {
    state: Arc<Mutex<State>>,
    truth: Arc<Mutex<Truth>>,
    findings: Arc<Mutex<Vec<String>>>,
}

impl LogReader for StreamReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut state = self.state.lock().expect("nothing panics while it is locked");
        with_state(&mut state, (&self.truth, &self.findings), |state| {
            batch.for_each_part(LogTarget::Replicas, |part| state.primary.append(part));
            state.primary.note_position(batch.position);
        });
        Released::ALL
    }
}

/// All nodes of a run of replication, and the switches and texts of violated checks that their
/// threads share.
pub(super) struct Cluster {
    pub nodes: Vec<Node>,
    pub truth: Arc<Mutex<Truth>>,
    /// True while the links between primaries and replicas may be cut.
    pub cuts: AtomicBool,
    /// True while the clients of primaries must not write.
    pub holds_writes: AtomicBool,
    /// The number of threads of simulated clients that have not ended.
    pub clients: AtomicUsize,
    stops: AtomicBool,
    ids: AtomicU64,
    findings: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub fn new(count: usize, seed: u64) -> Self {
        let node = |number: usize| {
            let seed = seed.wrapping_add(number as u64);
            let (engine, clock) = super::super::world::engine(THREADS, Settings::default(), seed);
            let mut primary = Primary::new(ReplId::of_bits(u64::MAX, number as u64, 0));
            primary.set_output_limit(OutputLimit { hard_bytes: OUTPUT_BYTES, soft_bytes: 0, soft_ms: 0 });
            let state = State {
                primary,
                reader: None,
                follows: None,
                wires: BTreeMap::new(),
                seen: [0; 3],
                loads: 0,
                next_client: 0,
            };
            Node { engine, clock, state: Arc::new(Mutex::new(state)) }
        };
        Self {
            nodes: (0..count).map(node).collect(),
            truth: Arc::default(),
            cuts: true.into(),
            holds_writes: false.into(),
            clients: 0.into(),
            stops: false.into(),
            ids: 0.into(),
            findings: Arc::default(),
        }
    }

    pub fn new_id(&self) -> ReplId {
        ReplId::of_bits(self.ids.fetch_add(1, Relaxed) + 1, 0, 0)
    }

    /// Runs `change` on the replication state of a node. Checks the bytes that it appends to the
    /// replication stream against the recorded history.
    pub fn with<R>(&self, node: usize, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.nodes[node].state.lock().expect("nothing panics while it is locked");
        with_state(&mut state, (&self.truth, &self.findings), change)
    }

    /// Runs `change`, which replaces the replication history of a node, without the check of
    /// appended bytes. The caller owns the node's keyspace, or works in it beside other threads.
    pub fn replace<R>(&self, node: usize, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.nodes[node].state.lock().expect("nothing panics while it is locked"))
    }

    /// Attaches a reader to the change log of a node that is a primary. The reader appends all
    /// changes to the node's replication stream. The caller owns the node's keyspace.
    pub fn attach(&self, node: usize, alone: &Exclusive) {
        let reader = StreamReader {
            state: Arc::clone(&self.nodes[node].state),
            truth: Arc::clone(&self.truth),
            findings: Arc::clone(&self.findings),
        };
        let log = &self.nodes[node].engine.log;
        let id = log.attach(alone, (Box::new(reader), LogTarget::Replicas), &Outbox::default());
        self.with(node, |state| state.reader = Some(id.expect("it is the only reader")));
    }

    /// Describes the replication state of a node, for the text of a violated check.
    pub fn describe(&self, node: usize) -> String {
        self.with(node, |state| {
            let (id, end, follows) = (state.primary.history().id, state.primary.end(), state.follows);
            let replicas: Vec<String> = state
                .primary
                .replicas()
                .map(|(client, replica)| format!("{client} {:?} at {}", replica.phase, replica.cursor))
                .collect();
            let wires: Vec<String> = state
                .wires
                .iter()
                .map(|(client, wire)| {
                    let wire = wire.lock().expect("nothing panics while it is locked");
                    format!("{client} {} bytes, cut {}", wire.down.len(), wire.is_cut)
                })
                .collect();
            let id = id.as_str().trim_end_matches('0');
            format!("{node} has {id} to {end}, follows {follows:?}, replicas {replicas:?}, links {wires:?}")
        })
    }

    pub fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    pub fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    pub fn find(&self, finding: String) {
        self.findings.lock().expect("nothing panics while it is locked").push(finding);
    }

    pub fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut *self.findings.lock().expect("nothing panics while it is locked"))
    }

    pub fn has_findings(&self) -> bool {
        !self.findings.lock().expect("nothing panics while it is locked").is_empty()
    }

    /// Checks that a replica holds exactly the data that belongs to its offset. The caller owns the
    /// node's keyspace. Does nothing on a primary.
    pub fn check_data(&self, node: usize, _alone: &Exclusive) {
        let (id, end, follows) =
            self.with(node, |state| (state.primary.history().id, state.primary.end(), state.follows));
        if follows.is_none() || self.with(node, |state| state.primary.backlog().is_none()) {
            return;
        }
        let found = of_keyspace(&self.nodes[node].engine.keyspace);
        let expected = self.truth.lock().expect("no panic").contents_at(id.as_str(), end);
        let Some(expected) = expected else {
            return self.find(format!("node {node} is at offset {end}, where no unit ends"));
        };
        let names = ("the stream up to its offset", format!("node {node}"));
        if let Some(text) = difference((names.0, &expected), (&names.1, &found)) {
            self.find(format!("at offset {end}, {text}"));
        }
    }
}

fn with_state<R>(
    state: &mut State,
    (truth, findings): (&Mutex<Truth>, &Mutex<Vec<String>>),
    change: impl FnOnce(&mut State) -> R,
) -> R {
    let (id, from) = (state.primary.history().id, state.primary.end());
    let result = change(state);
    let mut truth = truth.lock().expect("nothing panics while it is locked");
    // A full synchronisation or a promotion changes the history.
    if state.primary.history().id == id
        && let Err(finding) = truth.note_appended(&state.primary, from)
    {
        findings.lock().expect("nothing panics while it is locked").push(finding);
    }
    result
}

impl State {
    /// Cuts the links to replicas that follow a history which is no longer this node's.
    pub fn cut_outdated(&mut self) {
        for client in self.primary.outdated() {
            if let Some(wire) = self.wires.get(&client) {
                wire.lock().expect("nothing panics while it is locked").is_cut = true;
            }
        }
    }
}

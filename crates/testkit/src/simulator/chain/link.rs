//! The thread of a simulated replica that follows its primary: handshake, snapshot, then the
//! replication stream.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use engine::apply::{Applied, Applier, ApplyError, Progressed};
use engine::client::{ClientInfo, Place};
use engine::clock::ManualClock;
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Keyspace;
use keyspace::key::SHARD_COUNT;
use replicate::handshake::Handshake;
use replicate::history::ReplId;
use replicate::primary::Resync;
use replicate::replica::{Dialect, Phase, Replica};
use stdx::{Address, ConnId};
use structures::entry::View;

use super::node::{BACKLOG_BYTES, Cluster, State};
use super::wire::Wire;
use crate::Rng;
use crate::simulator::host::SimulatedHost;

/// Maximum number of bytes that a primary has sent and a replica has not received. While a link
/// holds this many, the primary sends nothing more on it.
pub(super) const WIRE_BYTES_MAX: usize = 2000;
/// Maximum number of received bytes that are not applied: while a replica has this many, it
/// receives nothing more.
const INPUT_BYTES_MAX: usize = 2000;
/// Maximum number of bytes that a replica receives from its primary at once.
const RECEIVED_BYTES_MAX: usize = 300;

/// The answer of a primary to a replica's request for synchronisation (PSYNC).
enum Answer {
    Continue(ReplId),
    Full(Snapshot),
}

/// The data of a primary at one offset of its replication stream, as requests that rebuild it.
struct Snapshot {
    id: ReplId,
    offset: u64,
    db: Option<u32>,
    requests: Vec<u8>,
}

/// Runs the thread of a node's link to its primary until the run stops. It opens one connection
/// after another to the node that `node` follows at the time.
pub(super) fn run(cluster: &Cluster, node: usize, mut rng: Rng) {
    while !cluster.stops() {
        let epoch = cluster.nodes[node].engine.server_state.role.epoch.load(Relaxed);
        if let Some(upstream) = cluster.with(node, |state| state.follows) {
            let client = cluster.with(upstream, State::new_client);
            let wire = Arc::new(Mutex::new(Wire::default()));
            let link = Link { cluster, node, upstream, client, epoch, wire };
            link.follow(&mut rng);
            cluster.with(upstream, |state| {
                state.primary.remove(client, 0);
                state.wires.remove(&client);
            });
        }
        shuttle::thread::yield_now();
    }
}

/// One connection of a replica to its primary.
struct Link<'c> {
    cluster: &'c Cluster,
    node: usize,
    upstream: usize,
    client: u64,
    epoch: u64,
    wire: Arc<Mutex<Wire>>,
}

impl<'c> Link<'c> {
    fn follow(&self, rng: &mut Rng) {
        let point = self.cluster.with(self.node, |state| state.primary.resume_point());
        let taken = match self.ask(point) {
            Some(Answer::Continue(id)) => self.go_on_as(id),
            Some(Answer::Full(snapshot)) => self.load(&snapshot, rng),
            None => false,
        };
        if taken {
            self.stream(rng);
        }
    }

    /// Asks the primary to continue the replication stream from `point` (a replication ID and an
    /// offset), else for a snapshot. Returns `None` if the primary has no replication history at
    /// present.
    fn ask(&self, point: Option<(ReplId, u64)>) -> Option<Answer> {
        let id = self.cluster.with(self.upstream, |state| {
            let (id, next) = point?;
            let resync = state.primary.resync(id.as_str().as_bytes(), next as i64);
            let Resync::Continue { from } = resync else { return None };
            self.add(state, from);
            Some(state.primary.history().id)
        });
        match id {
            Some(id) => Some(Answer::Continue(id)),
            None => self.snapshot().map(Answer::Full),
        }
    }

    fn add(&self, state: &mut State, from: u64) {
        let replica = Replica::new(Handshake::default(), Dialect::Psync, String::new(), 0);
        state.primary.add(self.client, replica);
        state.primary.set_phase(self.client, Phase::Online, from);
        state.wires.insert(self.client, Arc::clone(&self.wire));
    }

    /// Takes a snapshot of the primary as the exclusive owner of its keyspace. Registers this
    /// replica to receive the replication stream from the snapshot's offset on.
    fn snapshot(&self) -> Option<Snapshot> {
        let upstream = &self.cluster.nodes[self.upstream];
        upstream.engine.gate.exclusive(|alone| {
            let has_reader = self.cluster.with(self.upstream, |state| state.reader.is_some());
            if has_reader {
                upstream.engine.log.begin_part(alone, LogTarget::Replicas, &Outbox::default());
            }
            let requests = dump(&upstream.engine.keyspace);
            self.cluster.with(self.upstream, |state| {
                state.primary.backlog()?;
                let (id, offset) = (state.primary.history().id, state.primary.end());
                self.add(state, offset);
                Some(Snapshot { id, offset, db: state.primary.stream_db(), requests })
            })
        })
    }

    /// Continues the replication history under the replication ID `id`, which the primary has
    /// named. Returns false, and does nothing, if the role of this node has changed.
    fn go_on_as(&self, id: ReplId) -> bool {
        let node = &self.cluster.nodes[self.node];
        node.engine.gate.exclusive(|_alone| {
            let is_same = node.engine.server_state.role.epoch.load(Relaxed) == self.epoch;
            if is_same {
                self.cluster.with(self.node, |state| {
                    state.primary.continue_as(Some(id));
                    state.cut_outdated();
                });
            }
            is_same
        })
    }

    /// Replaces the data of this node by the snapshot. Returns false if the role of this node has
    /// changed.
    fn load(&self, snapshot: &Snapshot, rng: &mut Rng) -> bool {
        let mut applier = self.applier(0, rng);
        let mut loading = Loading { link: self, snapshot };
        loop {
            match applier.apply(&snapshot.requests, 0, &mut loading) {
                Ok(Progressed::NeedsInput(_)) => return true,
                Ok(_) => shuttle::thread::yield_now(),
                Err(_) => return false,
            }
            drop(applier.outbox().take());
        }
    }

    fn applier(&self, db: usize, rng: &mut Rng) -> Applier<'c, ManualClock, SimulatedHost> {
        let node = &self.cluster.nodes[self.node];
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread: 0, conn: ConnId::new(1000, 1), fd: -1 };
        let id = node.engine.clients.next_id();
        let info = Arc::new(ClientInfo::new(id, place, (address(), address()), 0));
        let host = SimulatedHost::new(&node.engine, &node.clock);
        Applier::new(&node.engine, (info, db), self.epoch, rng.next_u64(), (node.clock.clone(), host))
    }

    /// Receives and applies the replication stream, until the link is cut or the role of this node
    /// changes.
    fn stream(&self, rng: &mut Rng) {
        let (start, db) = self
            .cluster
            .with(self.node, |state| (state.primary.end(), state.primary.stream_db().unwrap_or(0) as usize));
        let mut applier = self.applier(db, rng);
        let mut receiver = Receiver { link: self, offset: start, asked: None };
        let (mut input, mut position) = (Vec::new(), start);
        let role = &self.cluster.nodes[self.node].engine.server_state.role;
        // A server checks this in the poll of its link.
        while !self.cluster.stops() && role.epoch.load(Relaxed) == self.epoch {
            {
                let mut wire = self.wire.lock().expect("nothing panics while it is locked");
                if wire.is_cut {
                    return;
                }
                let most = wire.down.len().min(RECEIVED_BYTES_MAX);
                if input.len() < INPUT_BYTES_MAX {
                    let len = rng.below(most + 1);
                    input.extend(wire.down.drain(..len));
                }
            }
            let progressed = applier.apply(&input, position, &mut receiver);
            drop(applier.outbox().take());
            let dropped = applier.take_applied();
            input.drain(..dropped);
            position += dropped as u64;
            match progressed {
                Ok(Progressed::Ran) => {}
                Ok(_) => shuttle::thread::yield_now(),
                Err(ApplyError::Superseded) => return,
                Err(error) => return self.cluster.find(format!("node {}: {error}", self.node)),
            }
            let acked = receiver.asked.take().or_else(|| rng.percent(10).then_some(receiver.offset));
            if let Some(acked) = acked {
                let mut wire = self.wire.lock().expect("nothing panics while it is locked");
                wire.up.push_back(acked);
            }
        }
    }
}

/// The load of a snapshot into a replica. In one step, it replaces the data and the replication
/// history of the node by those of the snapshot.
struct Loading<'l, 'c> {
    link: &'l Link<'c>,
    snapshot: &'l Snapshot,
}

impl Applied for Loading<'_, '_> {
    fn take(&mut self, _bytes: &[u8], _db: usize, position: u64) {
        let Snapshot { id, offset, db, .. } = *self.snapshot;
        self.link.cluster.replace(self.link.node, |state| {
            state.primary.adopt(id, offset, BACKLOG_BYTES);
            state.primary.set_stream_db(db);
            state.primary.note_position(position);
            (state.seen, state.loads) = ([0; 3], state.loads + 1);
            state.cut_outdated();
        });
    }

    fn ask_ack(&mut self) {}

    fn fail(&mut self, command: &[u8], error: &[u8]) {
        let (command, error) = (command.escape_ascii(), error.escape_ascii());
        self.link.cluster.find(format!("{command} of a snapshot failed: {error}"));
    }
}

/// The receiver of the commands and transactions that a replica has applied. It appends their bytes
/// to the backlog of this node, from which its own replicas are fed.
struct Receiver<'l, 'c> {
    link: &'l Link<'c>,
    offset: u64,
    asked: Option<u64>,
}

impl Applied for Receiver<'_, '_> {
    fn take(&mut self, bytes: &[u8], db: usize, position: u64) {
        self.link.cluster.with(self.link.node, |state| {
            state.primary.append_applied(bytes, db as u32);
            state.primary.note_position(position);
        });
        self.offset += bytes.len() as u64;
    }

    fn ask_ack(&mut self) {
        self.asked = Some(self.offset);
    }

    fn fail(&mut self, command: &[u8], error: &[u8]) {
        let (command, error) = (command.escape_ascii(), error.escape_ascii());
        self.link.cluster.find(format!("{command} of the stream failed: {error}"));
    }
}

/// Returns a transaction whose requests replace all data by the data of `keyspace`.
fn dump(keyspace: &Keyspace) -> Vec<u8> {
    let mut requests = vec![vec!["MULTI".to_owned()], vec!["FLUSHALL".to_owned()]];
    for shard in 0..SHARD_COUNT {
        let guard = keyspace.lock(shard);
        for (db, keys) in guard.dbs().enumerate() {
            for entry in keys.table().iter() {
                let View::Int(value) = entry.view() else { panic!("all values are integers") };
                let key = String::from_utf8(entry.key().to_vec()).expect("the keys are text");
                requests.push(vec!["SELECT".to_owned(), db.to_string()]);
                let mut set = vec!["SET".to_owned(), key, value.to_string()];
                set.extend(entry.expiry_ms().into_iter().flat_map(|at| ["PXAT".to_owned(), at.to_string()]));
                requests.push(set);
            }
        }
    }
    requests.push(vec!["EXEC".to_owned()]);
    let mut bytes = Vec::new();
    for words in requests {
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    bytes
}

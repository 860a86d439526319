//! The clients, their links and the clock: everything that happens around the engine, one random
//! action at a time.
//!
//! A link delays bytes and may be cut. Bytes wait at its end until a random number of them is
//! delivered. The clock sometimes moves a little. It moves to the next timeout when nothing else
//! can happen. If nothing can happen at all, each client that waits for a reply must be blocked on
//! keys that do not exist. Otherwise a wake-up or a reply was lost.

use std::time::Duration;

use engine::clock::Clock;
use engine::log::level::Level;
use engine::settings::Settings;
use engine::shared::GateSlot;
use engine::threads::Outbox;
use keyspace::Policy;
use resp::Value;
use resp::decode::{decode, encode_request};

use super::housekeeper::ROUND_MS;
use super::kernel::{Event, LinkId, Message, Sent};
use super::scenario::{AppendOnly, Kind, Log, Scenario, Step};
use super::scripted_client::{Received, ScriptedClient};
use super::world::World;
use crate::Rng;
use crate::disk::Plan;

/// Number of housekeeper rounds at the end of a run, enough to expire and clean up everything.
const LAST_ROUNDS: usize = 4;

/// A simulated client's connection, with the bytes that are on their way in both directions.
struct Link {
    id: LinkId,
    thread: usize,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    decoding: Vec<u8>,
}

/// A simulated client and its connection.
struct ConnectedClient {
    scripted_client: ScriptedClient,
    link: Link,
}

/// An action of the network, one of which is drawn for each step.
#[derive(Clone, Copy)]
enum Action {
    /// The client with this index sends its next requests.
    Start(usize),
    /// Some bytes of the client with this index reach the server.
    ToServer(usize),
    /// Some bytes from the server reach the client with this index.
    ToClient(usize),
    /// The clock moves forward by 1 to 3 ms.
    Tick,
    /// The change log's disk writes the bytes that it has accepted.
    Write,
    /// The change log's disk syncs the bytes that it has written.
    Sync,
    /// The memory limit is set to one byte, so that all data exceeds it, or the limit is removed.
    /// The eviction policy is drawn anew.
    Limit,
    /// A power failure of the change log's disk is recorded: the bytes that it would leave. The run
    /// continues without it.
    Crash,
    /// The thread that saves (the saver) gets a request to save a snapshot.
    Save,
    /// The save in progress is cancelled.
    CancelSave,
    /// The thread that saves (the saver) gets a request to rewrite the append-only file.
    Rewrite,
    /// An option of the append-only file changes.
    ChangeOptions,
    /// The disk of the append-only file begins to fail, or works again.
    Fault,
    /// The clock jumps by 50 ms to 1.5 s, as if the whole process had been stopped.
    Pause,
    /// A power failure or a kill of the process is recorded as a moment to check later. The run
    /// continues without it. Only in runs with an append-only file.
    AofCrash,
}

/// A recorded power failure of the change log's disk. The run continues; the checks use it later.
pub(super) struct Crash {
    /// The step of the network at which the crash is recorded.
    pub step: u64,
    /// The bytes of the log that the disk holds after the crash.
    pub left: Vec<u8>,
}

/// A recorded crash with an append-only file. The state it leaves is computed later, because the
/// simulated folder records every operation.
pub(super) struct AofCrash {
    /// The step of the network at which the crash is recorded.
    pub step: u64,
    /// The number of operations of the folder's disk before the crash.
    pub operations: u64,
    /// True for a kill of the process, false for a power failure.
    pub is_kill: bool,
}

/// Maximum number of crashes that one run of the simulator records and checks.
const CRASHES_MAX: usize = 4;
/// The odds of [`Action::Crash`]: one of this many actions is a crash of the change log's disk.
const CRASH_RARITY: usize = 192;
/// The odds of a crash right after a client has received a value: one of this many actions. Crashes
/// are likelier here, because one may lose the changes that the client has just seen.
const CRASH_RARITY_AFTER_REPLY: usize = 12;

/// Maximum number of saves that are requested in one run.
const SAVES_MAX: usize = 3;

/// The odds of a sync of the disk, from which each run draws one: one of this many actions syncs.
const SYNC_RARITIES: &[usize] = &[1, 1, 4, 16];

/// Maximum number of rewrites that are requested in one run.
const REWRITES_MAX: usize = 5;

/// Maximum number of simulated seconds, after the disk works again, until the append-only file must
/// hold all changes.
const RECOVERY_MAX_S: usize = 100;

/// Values of `maxmemory-policy` from which one is drawn.
const POLICIES: &[&str] = &["allkeys-lru", "volatile-ttl", "allkeys-random", "noeviction"];

/// The simulated network of a run, which draws one random action after the other: see the module.
pub(super) struct Network<'w> {
    world: &'w World,
    has_disk: bool,
    evicts: bool,
    /// The number of saves that may still be requested.
    saves_left: usize,
    rng: Rng,
    seats: Vec<ConnectedClient>,
    links: LinkId,
    crashes: Vec<Crash>,
    /// True if the last action delivered a reply or message to a client.
    has_received: bool,
    aof_crashes: Vec<AofCrash>,
    rewrites_left: usize,
    recovery_s: usize,
    /// The odds of a sync: one of this many drawn actions may be a sync. Replies wait long for a
    /// disk that syncs rarely.
    sync_rarity: usize,
}

/// The clients, crashes and records that a run leaves for the checks.
#[derive(Default)]
pub(super) struct Outcome {
    pub players: Vec<ScriptedClient>,
    pub crashes: Vec<Crash>,
    pub aof_crashes: Vec<AofCrash>,
}

impl<'w> Network<'w> {
    /// Creates the clients of a scenario and connects them.
    pub fn new(world: &'w World, scenario: &Scenario) -> Self {
        let mut rng = Rng::new(scenario.schedule ^ 0x6e65_7477_6f72_6b00);
        let mut network = Self {
            world,
            has_disk: scenario.log == Log::Disk,
            rewrites_left: REWRITES_MAX,
            recovery_s: 0,
            sync_rarity: *rng.pick(SYNC_RARITIES),
            aof_crashes: Vec::new(),
            saves_left: if scenario.has_saves { SAVES_MAX } else { 0 },
            evicts: scenario.kind == Kind::Everything && scenario.seed.is_multiple_of(3),
            rng,
            seats: Vec::new(),
            links: 0,
            crashes: Vec::new(),
            has_received: false,
        };
        for (number, scripted_client) in scenario.players.iter().enumerate() {
            let link = network.connect(scripted_client.level);
            network.seats.push(ConnectedClient {
                scripted_client: ScriptedClient::new(number, scripted_client),
                link,
            });
        }
        network
    }

    /// Opens a connection to a random I/O thread. The replies sent over it wait until their changes
    /// have reached `level` (written or synced).
    fn connect(&mut self, level: Level) -> Link {
        self.links += 1;
        self.world.set_level(self.links, level);
        let (id, thread) = (self.links, self.rng.below(self.world.threads()));
        self.world.kernel.ports[thread].poll.post(Event::Connected(id));
        Link { id, thread, to_server: Vec::new(), to_client: Vec::new(), decoding: Vec::new() }
    }

    /// Runs actions until all clients are done or nothing happens any more. Then stops the threads.
    pub fn run(mut self) -> Outcome {
        let mut rounds_left = LAST_ROUNDS;
        loop {
            self.take_sent();
            if self.world.kernel.is_quiet() && self.has_unsent_reply() {
                break;
            }
            if let Some(action) = self.choose() {
                self.act(action);
                shuttle::thread::yield_now();
            } else if !self.world.kernel.is_quiet() {
                self.world.kernel.wait();
            } else if self.seats.iter().any(|seat| seat.scripted_client.is_waiting()) && self.pass_time() {
                continue;
            } else if self.is_aof_behind() {
                self.recover_aof();
            } else if rounds_left > 0 {
                // Expired keys are removed, and the clients that cached them receive invalidations.
                rounds_left -= 1;
                self.world.advance(Duration::from_millis(ROUND_MS));
            } else {
                break;
            }
        }
        self.check_blocked_clients();
        self.leave();
        let players = self.seats.into_iter().map(|seat| seat.scripted_client).collect();
        Outcome { players, crashes: self.crashes, aof_crashes: self.aof_crashes }
    }

    /// Moves the bytes that the server's threads have sent to the client's end of each connection.
    fn take_sent(&mut self) {
        for Sent { link, bytes, closed } in self.world.kernel.take_sent() {
            if let Some(seat) = self.seats.iter_mut().find(|seat| seat.link.id == link) {
                seat.link.to_client.extend_from_slice(&bytes);
            }
            if closed {
                self.world.find(format!("connection {link} was closed by the server"));
            }
        }
    }

    /// Chooses one of the possible actions at random; `None` if no action but a move of the clock
    /// is possible.
    fn choose(&mut self) -> Option<Action> {
        let mut possible = Vec::new();
        for (at, ConnectedClient { scripted_client, link }) in self.seats.iter().enumerate() {
            if !link.to_server.is_empty() {
                possible.push(Action::ToServer(at));
            }
            if !link.to_client.is_empty() {
                possible.push(Action::ToClient(at));
            }
            if scripted_client.can_start() {
                possible.push(Action::Start(at));
            }
        }
        let is_behind = self.world.disk.is_behind();
        if is_behind && (possible.is_empty() || self.rng.below(self.sync_rarity) == 0) {
            possible.push(if self.rng.percent(50) { Action::Sync } else { Action::Write });
        }
        if possible.is_empty() {
            return None;
        }
        if self.rng.below(16) == 0 {
            return Some(Action::Tick);
        }
        if self.evicts && self.rng.below(128) == 0 {
            return Some(Action::Limit);
        }
        if is_behind && self.has_disk && self.crashes.len() < CRASHES_MAX {
            let rarity = if self.has_received { CRASH_RARITY_AFTER_REPLY } else { CRASH_RARITY };
            if self.rng.below(rarity) == 0 {
                return Some(Action::Crash);
            }
        }
        if self.saves_left > 0 && self.rng.below(24) == 0 {
            return Some(if self.rng.below(12) == 0 { Action::CancelSave } else { Action::Save });
        }
        if let Some(aof) = &self.world.aof
            && let Some(action) = choose_for_aof(&aof.options, &mut self.rng)
        {
            return Some(action);
        }
        Some(*self.rng.pick(&possible))
    }

    fn is_aof_behind(&self) -> bool {
        self.world.aof.as_ref().is_some_and(|aof| aof.is_behind(&self.world.engine.log))
    }

    /// Stops the failures of the disk and moves the clock by one second. The append-only file can
    /// then write the changes for which clients wait. Called when nothing else happens.
    ///
    /// # Panics
    /// Panics when [`RECOVERY_MAX_S`] calls were not enough.
    fn recover_aof(&mut self) {
        let Some(aof) = &self.world.aof else { return };
        aof.folder.plan(Plan::Never);
        self.recovery_s += 1;
        let is_late = self.recovery_s >= RECOVERY_MAX_S;
        assert!(!is_late, "the append-only file does not recover: {}", aof.described(&self.world.engine.log));
        self.world.advance(Duration::from_secs(1));
        self.world.wake_aof();
    }

    fn send_to_saver(&self, message: Message) {
        let _ = self.world.kernel.ports[self.world.threads() + 1].mailbox.send(message);
    }

    fn act(&mut self, action: Action) {
        self.has_received = false;
        match action {
            Action::Start(at) => self.start(at),
            Action::ToServer(at) => {
                let link = &mut self.seats[at].link;
                let bytes = some_of(&mut link.to_server, &mut self.rng);
                self.world.kernel.ports[link.thread].poll.post(Event::Data(link.id, bytes));
            }
            Action::ToClient(at) => {
                let link = &mut self.seats[at].link;
                let bytes = some_of(&mut link.to_client, &mut self.rng);
                link.decoding.extend_from_slice(&bytes);
                self.receive(at);
            }
            Action::Tick => self.world.advance(Duration::from_millis(1 + self.rng.below(3) as u64)),
            Action::Write => {
                let outbox = Outbox::default();
                self.world.disk.write(&self.world.engine, &outbox);
                self.world.wake(&outbox);
            }
            Action::Sync => {
                let outbox = Outbox::default();
                self.world.disk.sync(&self.world.engine, &outbox);
                self.world.wake(&outbox);
            }
            Action::Limit => {
                let mut settings = Settings::clone(&self.world.engine.settings.get());
                settings.maxmemory_bytes = 1 - settings.maxmemory_bytes;
                let policy: &&str = self.rng.pick(POLICIES);
                settings.eviction = Policy::named(policy);
                self.world.engine.settings.set(settings);
            }
            Action::Save => {
                self.saves_left -= 1;
                self.send_to_saver(Message::Save);
            }
            Action::Rewrite => {
                if self.rewrites_left > 0 {
                    self.rewrites_left -= 1;
                    self.send_to_saver(Message::Rewrite);
                }
            }
            Action::ChangeOptions => self.send_to_saver(Message::ChangeOptions),
            Action::Fault => {
                if let Some(aof) = &self.world.aof {
                    aof.plan_faults(&mut self.rng);
                }
            }
            Action::Pause => self.world.advance(Duration::from_millis(50 + self.rng.below(1500) as u64)),
            Action::AofCrash => self.note_crash(),
            Action::CancelSave => self.world.saves.cancel(&self.world.engine),
            Action::Crash => {
                let left = self.world.disk.after_crash(&mut self.rng);
                self.crashes.push(Crash { step: self.world.step(), left });
            }
        }
    }

    /// Records a possible power failure or kill of the process at this moment, for the checks.
    fn note_crash(&mut self) {
        let Some(aof) = &self.world.aof else { return };
        let is_kill = self.rng.percent(50);
        let survives = if is_kill { aof.survives_kill() } else { aof.survives_power_failure() };
        if self.aof_crashes.len() < CRASHES_MAX && survives {
            let operations = aof.folder.operations();
            self.aof_crashes.push(AofCrash { step: self.world.step(), operations, is_kill });
        }
    }

    /// Begins the next step of client `at`: sends the first requests of the step.
    fn start(&mut self, at: usize) {
        match self.seats[at].scripted_client.next_step() {
            Step::Reconnect => self.reconnect(at),
            Step::Abandon(commands) => {
                let mut bytes = encoded(&commands);
                bytes.truncate(1 + self.rng.below(bytes.len()));
                let link = &self.seats[at].link;
                self.world.kernel.ports[link.thread].poll.post(Event::Data(link.id, bytes));
                shuttle::thread::yield_now();
                self.reconnect(at);
            }
            step => {
                let step_number = self.world.step();
                let requests = self.seats[at].scripted_client.begin(step, step_number);
                self.send(at, &requests);
            }
        }
    }

    fn send(&mut self, at: usize, requests: &[Vec<Vec<u8>>]) {
        self.seats[at].link.to_server.extend_from_slice(&encoded(requests));
    }

    fn reconnect(&mut self, at: usize) {
        let new = self.connect(self.seats[at].scripted_client.level);
        let old = std::mem::replace(&mut self.seats[at].link, new);
        self.world.kernel.ports[old.thread].poll.post(Event::Closed(old.id));
        self.seats[at].scripted_client.reconnected();
    }

    /// Passes the values that client `at` has received completely to the client.
    fn receive(&mut self, at: usize) {
        loop {
            let ConnectedClient { scripted_client, link } = &mut self.seats[at];
            let (value, len_bytes) = match decode(&link.decoding) {
                Ok(Some(decoded)) => decoded,
                Ok(None) => return,
                Err(error) => {
                    self.world
                        .find(format!("client {at} received {}: {error}", link.decoding.escape_ascii()));
                    link.decoding.clear();
                    return;
                }
            };
            link.decoding.drain(..len_bytes);
            self.has_received = true;
            let step = self.world.step();
            let received = if let Value::Push(parts) = value {
                scripted_client.pushed(&parts, step)
            } else {
                let wait = self.world.take_wait(link.id);
                scripted_client.replied(value, step, wait)
            };
            match received {
                Ok(Received::Nothing) => {}
                Ok(Received::Send(requests)) => self.send(at, &requests),
                Err(finding) => self.world.find(format!("client {at}: {finding}")),
            }
        }
    }

    /// Checks for a reply that a lost wake-up has delayed. If there is one, records a violation and
    /// returns true. In this case a blocked client was served, but its thread sleeps. The client
    /// would receive the reply only after a timeout or another event.
    fn has_unsent_reply(&self) -> bool {
        let shared = &self.world.engine;
        let waiting = self.seats.iter().filter(|seat| seat.scripted_client.is_waiting());
        let links: Vec<LinkId> = waiting.map(|seat| seat.link.id).collect();
        for info in shared.clients.all().iter().filter(|info| links.contains(&info.conn.generation())) {
            let Some(blocked) = shared.blocked.of(info) else { continue };
            let mut waits = false;
            shared.blocked.end_if(&blocked, || {
                waits = true;
                false
            });
            if !waits {
                self.world.find(format!("{blocked:?} was served, and its thread sleeps beside the reply"));
                return true;
            }
        }
        false
    }

    /// Moves the clock towards the next timeout of an I/O thread, by at most one interval of the
    /// housekeeper. Returns false if no I/O thread has a timeout.
    fn pass_time(&mut self) -> bool {
        let ports = &self.world.kernel.ports[..self.world.threads()];
        let Some(next_ms) = ports.iter().filter_map(|port| port.poll.deadline_ms()).min() else {
            return false;
        };
        let left_ms = next_ms.saturating_sub(self.world.uptime_ms());
        // The clock moves by at most one round of the housekeeper, sometimes by 1 ms more than to
        // the timeout.
        let late_ms = self.rng.below(2) as u64;
        self.world.advance(Duration::from_millis((left_ms + late_ms).clamp(1, ROUND_MS)));
        true
    }

    /// Checks the clients that wait for a reply when nothing happens any more. Each must be blocked
    /// on keys that do not exist.
    fn check_blocked_clients(&mut self) {
        let shared = &self.world.engine;
        for (at, ConnectedClient { scripted_client, link }) in self.seats.iter().enumerate() {
            if !scripted_client.is_waiting() {
                continue;
            }
            let clients = shared.clients.all();
            let info = clients.iter().find(|info| info.conn.generation() == link.id);
            let Some(blocked) = info.and_then(|info| shared.blocked.of(info)) else {
                self.world.find(format!(
                    "client {at} waits for a reply that never comes: {}",
                    scripted_client.doing()
                ));
                continue;
            };
            let args = &blocked.args;
            let args = args.args(shared.keyspace.hasher());
            let _pass = shared.enter_gate(GateSlot::Metrics);
            let exists = args.from(1).any(|word| {
                let key = shared.keyspace.hasher().key(word);
                let shard = shared.keyspace.lock(keyspace::key::shard_of(key.hash));
                shard.is_live(blocked.db, key, self.world.clock.unix_ms())
            });
            if exists {
                self.world.find(format!(
                    "client {at} is blocked beside what it waits for: {}",
                    scripted_client.doing()
                ));
            }
        }
    }

    /// Disconnects all clients, lets the housekeeper clean up, and stops all threads.
    fn leave(&mut self) {
        let world = self.world;
        let mut settings = Settings::clone(&world.engine.settings.get());
        settings.maxmemory_bytes = 0;
        world.engine.settings.set(settings);
        self.recovery_s = 0;
        self.settle();
        self.seats.iter_mut().for_each(|seat| seat.scripted_client.finish());
        for ConnectedClient { link, .. } in &self.seats {
            world.kernel.ports[link.thread].poll.post(Event::Closed(link.id));
        }
        self.settle();
        for _ in 0..LAST_ROUNDS {
            world.advance(Duration::from_millis(ROUND_MS));
            self.settle();
        }
        world.kernel.broadcast(world.kernel.ports.len(), Message::Stop);
        // A thread with a full mailbox has missed the message.
        while !world.kernel.is_quiet() {
            world.kernel.wait();
        }
    }

    /// Delivers bytes between clients and server until all threads sleep and no bytes are on their
    /// way.
    fn settle(&mut self) {
        loop {
            self.take_sent();
            if self.world.disk.is_behind() {
                self.act(Action::Sync);
            } else if self.world.kernel.is_quiet() && self.is_aof_behind() {
                self.recover_aof();
            } else if self.world.kernel.is_quiet() {
                break;
            } else {
                self.world.kernel.wait();
            }
        }
    }
}

/// Chooses a random action for the append-only file: a rewrite, a change of options, a fault or a
/// crash. Usually returns `None`.
fn choose_for_aof(options: &AppendOnly, rng: &mut Rng) -> Option<Action> {
    match rng.below(192) {
        0..4 => Some(Action::Rewrite),
        4..8 if !options.is_steady => Some(Action::ChangeOptions),
        8..14 if options.has_faults => Some(Action::Fault),
        14..18 => Some(Action::Pause),
        18 | 19 => Some(Action::AofCrash),
        _ => None,
    }
}

fn encoded(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|args| encode_request(args, &mut bytes));
    bytes
}

/// Removes a random number of bytes from the front of `bytes`, often all, and returns them.
fn some_of(bytes: &mut Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    let len_bytes = if rng.percent(60) { bytes.len() } else { 1 + rng.below(bytes.len()) };
    bytes.drain(..len_bytes).collect()
}

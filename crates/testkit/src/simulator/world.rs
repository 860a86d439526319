//! The state that all threads of a run share: the engine, the kernel, the clock, the disk, and the
//! records for the checks.
//!
//! The records are plain memory, and using them is no yield point. This is safe because a run uses
//! only one thread of the operating system.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use engine::Shared;
use engine::clock::{Clock, ManualClock};
use engine::log::level::Level;
use engine::log::merger::{LogReader, ReaderId};
use engine::log::target::LogTarget;
use engine::settings::Settings;
use engine::shared::Start;
use engine::table::CommandTable;
use engine::threads::Outbox;

use super::aof_state::Aof;
use super::disk::Disk;
use super::host::{COMMANDS, PauseCheck, SimulatedHost};
use super::kernel::{Kernel, LinkId, Message};
use super::points::Points;
use super::replica::Replica;
use super::saves::Saves;
use super::scenario::Scenario;
use super::scripts::ScriptFacts;

/// The period during which a simulated client was blocked, in steps of the network.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// The first step at which the engine had recorded the command as blocked.
    pub begun: u64,
    /// The step at which the timeout of the command passed. From this step on it may end without an
    /// element. 0 if the timeout has not passed.
    pub may_end: u64,
}

/// The state shared by all threads of a run: see the module.
pub(super) struct World {
    pub engine: Arc<Shared>,
    pub kernel: Kernel,
    pub clock: ManualClock,
    pub disk: Arc<Disk>,
    pub replica: Replica,
    /// The level, written or synced, that changes must reach before replies over each connection
    /// are sent.
    levels: Mutex<BTreeMap<LinkId, Level>>,
    pub saves: Saves,
    pub aof: Option<Aof>,
    /// The required contents of the bases of append-only files that all runs of the server process
    /// have written.
    pub points: Points,
    pub lessons: ScriptFacts,
    pub pause: Arc<PauseCheck>,
    /// The number of steps of the network so far. It is the time in the histories of clients.
    steps: AtomicU64,
    /// The blocked periods of the blocking commands whose replies have not arrived, by connection.
    waits: Mutex<BTreeMap<LinkId, Wait>>,
    findings: Mutex<Vec<String>>,
}

/// The Unix time at which the clock of every run starts.
pub(super) const START: Duration = Duration::from_secs(1_000_000);

/// Creates an engine without data, with its clock at [`START`].
pub(super) fn engine(threads: usize, settings: Settings, seed: u64) -> (Arc<Shared>, ManualClock) {
    engine_at(START, threads, settings, seed)
}

/// Creates an engine without data, with its clock at Unix time `unix`.
fn engine_at(unix: Duration, threads: usize, settings: Settings, seed: u64) -> (Arc<Shared>, ManualClock) {
    let now = Instant::now();
    static TABLE: OnceLock<CommandTable> = OnceLock::new();
    let new = || {
        let of_engine = engine::exec::commands().chain(engine::eval::commands());
        CommandTable::new(of_engine.chain(COMMANDS.iter().copied()))
    };
    let table = TABLE.get_or_init(new).clone();
    let start = Start { threads, databases: 16, table, settings, seed: [seed, 2, 3, 4], now };
    (Arc::new(Shared::new(start)), ManualClock::new(now, unix))
}

/// The initial state of one life, a run of a server process.
pub(super) struct Life {
    /// The Unix time at which this run of the server process starts.
    pub unix: Duration,
    /// The append-only file of this run of the server process; `None` in a run without one.
    pub aof: Option<Aof>,
    /// The bytes of the tape (the record of all changes): the changes of earlier runs of the server
    /// process.
    pub recorded_stream: Vec<u8>,
    /// The required contents of the bases of append-only files that earlier runs of the server
    /// process have written.
    pub points: Points,
}

impl Default for Life {
    fn default() -> Self {
        Self { unix: START, aof: None, recorded_stream: Vec::new(), points: Points::default() }
    }
}

impl World {
    /// Creates the state that all threads of one life of a scenario share. A life is a run of the
    /// server process.
    pub fn new(scenario: &Scenario, life: Life) -> Self {
        let (threads, seed) = (scenario.threads, scenario.seed);
        let (engine, clock) = engine_at(life.unix, threads, scenario.settings(), seed);
        let others = match (&life.aof, scenario.has_saves) {
            (Some(_), _) => 3,
            (None, has_saves) => 1 + usize::from(has_saves),
        };
        Self {
            engine,
            kernel: Kernel::new(threads + others),
            saves: Saves::new(seed),
            clock,
            disk: Arc::new(if life.aof.is_some() {
                Disk::recorded_stream(life.recorded_stream)
            } else {
                Disk::default()
            }),
            aof: life.aof,
            points: life.points,
            lessons: ScriptFacts::default(),
            pause: Arc::default(),
            replica: Replica::default(),
            levels: Mutex::default(),
            steps: AtomicU64::new(0),
            waits: Mutex::default(),
            findings: Mutex::default(),
        }
    }

    /// Creates the implementation of connection commands (the host) for the engine of one thread.
    pub fn host(&self) -> SimulatedHost {
        let host = SimulatedHost::new(&self.engine, &self.clock);
        SimulatedHost { pause: Arc::clone(&self.pause), ..host }
    }

    /// Returns the end of the present CLIENT PAUSE, in milliseconds of uptime; `None` without a
    /// pause.
    pub fn pause_ends_ms(&self) -> Option<u64> {
        let now_ms = self.clock.unix_time().as_millis() as i64;
        let left_ms = u64::try_from(self.engine.pause.until_ms.load(Relaxed) - now_ms).ok()?;
        (left_ms > 0).then(|| self.uptime_ms() + left_ms + 1)
    }

    /// Attaches `reader` to the change log, for the records of `target`. Returns its id; `None` if
    /// the log has too many readers.
    pub fn attach(&self, reader: Box<dyn LogReader>, target: LogTarget) -> Option<ReaderId> {
        let log = &self.engine.log;
        self.engine.gate.exclusive(|alone| log.attach(alone, (reader, target), &Outbox::default()))
    }

    /// Sets the level, written or synced, that changes must reach before replies over a new
    /// connection are sent.
    pub fn set_level(&self, link: LinkId, level: Level) {
        self.levels.lock().expect("nothing panics while it is locked").insert(link, level);
    }

    /// Returns the level, written or synced, that changes must reach before replies over a
    /// connection are sent.
    pub fn level(&self, link: LinkId) -> Level {
        self.levels.lock().expect("nothing panics while it is locked")[&link]
    }

    /// Returns the number of I/O threads of the engine.
    pub fn threads(&self) -> usize {
        self.engine.threads.len()
    }

    /// Advances the network to its next step and returns the number of the step.
    pub fn step(&self) -> u64 {
        self.steps.fetch_add(1, Relaxed) + 1
    }

    /// Returns the time since the engine's start, in milliseconds.
    pub fn uptime_ms(&self) -> u64 {
        self.engine.uptime(self.clock.now()).as_millis() as u64
    }

    /// Moves the clock forward by `time`, and wakes the threads whose timeout has passed.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
        let uptime_ms = self.uptime_ms();
        self.kernel.ports.iter().for_each(|port| port.poll.expire(uptime_ms));
    }

    /// Wakes the threads that `outbox` lists, because it has put messages into their inboxes. The
    /// caller holds no shard lock.
    pub fn wake(&self, outbox: &Outbox) {
        for thread in outbox.take() {
            let _ = self.kernel.ports[thread].mailbox.send(Message::Delivered);
        }
    }

    /// Makes all I/O threads check again the requests held back by a pause or a full change log.
    pub fn resume_all(&self) {
        self.kernel.broadcast(self.threads(), Message::Resume);
    }

    /// Records that the client of a connection is blocked from the present step on.
    pub fn note_blocked(&self, link: LinkId) {
        let wait = Wait { begun: self.step(), may_end: 0 };
        self.waits.lock().expect("nothing panics while it is locked").insert(link, wait);
    }

    /// Records that the timeout of the blocked client of a connection has passed, before it is
    /// unblocked.
    pub fn note_timeout(&self, link: LinkId) {
        let step = self.step();
        let mut waits = self.waits.lock().expect("nothing panics while it is locked");
        if let Some(wait) = waits.get_mut(&link) {
            wait.may_end = step;
        }
    }

    /// Removes and returns the period during which a connection's client was blocked; `None` if it
    /// was not blocked.
    pub fn take_wait(&self, link: LinkId) -> Option<Wait> {
        self.waits.lock().expect("nothing panics while it is locked").remove(&link)
    }

    /// Records a finding, the text of a violated check.
    pub fn find(&self, finding: String) {
        self.findings.lock().expect("nothing panics while it is locked").push(finding);
    }

    /// Removes and returns the findings, the texts of violated checks.
    pub fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut *self.findings.lock().expect("nothing panics while it is locked"))
    }
}

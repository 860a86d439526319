//! The state that all threads of a run share: the engine, the kernel, the clock, the disk, and the
//! records for the checks.
//!
//! The records are plain memory without yield points: the run uses only one thread of the operating
//! system.

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

/// The time during which a blocking command waited, in steps.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// A step at which the command already waited.
    pub begun: u64,
    /// The first step at which the command may have ended without being served; 0 if its timeout
    /// has not passed.
    pub may_end: u64,
}

/// The shared state of a run: see the module.
pub(super) struct World {
    pub engine: Arc<Shared>,
    pub kernel: Kernel,
    pub clock: ManualClock,
    pub disk: Arc<Disk>,
    pub replica: Replica,
    /// The level that the replies on each link wait for.
    levels: Mutex<BTreeMap<LinkId, Level>>,
    pub saves: Saves,
    pub aof: Option<Aof>,
    /// The points of the bases of all lives.
    pub points: Points,
    pub lessons: ScriptFacts,
    pub pause: Arc<PauseCheck>,
    /// The number of steps so far: the time of histories.
    steps: AtomicU64,
    /// The blocking commands by link whose replies have not arrived.
    waits: Mutex<BTreeMap<LinkId, Wait>>,
    findings: Mutex<Vec<String>>,
}

/// The Unix time at the start of all runs.
pub(super) const START: Duration = Duration::from_secs(1_000_000);

/// Creates an engine without data, with its clock at the start of all runs.
pub(super) fn engine(threads: usize, settings: Settings, seed: u64) -> (Arc<Shared>, ManualClock) {
    engine_at(START, threads, settings, seed)
}

/// Creates an engine without data at this Unix time.
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

/// The initial state of a server's life.
pub(super) struct Life {
    /// The Unix time.
    pub unix: Duration,
    /// The append-only file, if there is one.
    pub aof: Option<Aof>,
    /// The changes of earlier lives.
    pub recorded_stream: Vec<u8>,
    /// The bases of earlier lives.
    pub points: Points,
}

impl Default for Life {
    fn default() -> Self {
        Self { unix: START, aof: None, recorded_stream: Vec::new(), points: Points::default() }
    }
}

impl World {
    /// Creates the world of a scenario, or of one of its lives.
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

    /// Returns the host of one thread's engine.
    pub fn host(&self) -> SimulatedHost {
        let host = SimulatedHost::new(&self.engine, &self.clock);
        SimulatedHost { pause: Arc::clone(&self.pause), ..host }
    }

    /// Returns the end of the present pause of clients, in milliseconds of uptime; `None` without a
    /// pause.
    pub fn pause_ends_ms(&self) -> Option<u64> {
        let now_ms = self.clock.unix_time().as_millis() as i64;
        let left_ms = u64::try_from(self.engine.pause.until_ms.load(Relaxed) - now_ms).ok()?;
        (left_ms > 0).then(|| self.uptime_ms() + left_ms + 1)
    }

    /// Attaches a reader to the change log.
    pub fn attach(&self, reader: Box<dyn LogReader>, target: LogTarget) -> Option<ReaderId> {
        let log = &self.engine.log;
        self.engine.gate.exclusive(|alone| log.attach(alone, (reader, target), &Outbox::default()))
    }

    /// Sets the level that the replies on a new link wait for.
    pub fn set_level(&self, link: LinkId, level: Level) {
        self.levels.lock().expect("nothing panics while it is locked").insert(link, level);
    }

    /// Returns the level that the replies on a link wait for.
    pub fn level(&self, link: LinkId) -> Level {
        self.levels.lock().expect("nothing panics while it is locked")[&link]
    }

    /// Returns the number of I/O threads.
    pub fn threads(&self) -> usize {
        self.engine.threads.len()
    }

    /// Advances to the next step and returns it.
    pub fn step(&self) -> u64 {
        self.steps.fetch_add(1, Relaxed) + 1
    }

    /// Returns the milliseconds since the engine's start.
    pub fn uptime_ms(&self) -> u64 {
        self.engine.uptime(self.clock.now()).as_millis() as u64
    }

    /// Moves the clock, and wakes the threads whose timeout has passed.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
        let uptime_ms = self.uptime_ms();
        self.kernel.ports.iter().for_each(|port| port.poll.expire(uptime_ms));
    }

    /// Wakes the threads whose inboxes have received something, as `outbox` records. The caller
    /// holds no shard lock.
    pub fn wake(&self, outbox: &Outbox) {
        for thread in outbox.take() {
            let _ = self.kernel.ports[thread].mailbox.send(Message::Delivered);
        }
    }

    /// Makes all I/O threads check their held-back requests again.
    pub fn resume_all(&self) {
        self.kernel.broadcast(self.threads(), Message::Resume);
    }

    /// Records that a client is blocked from now on.
    pub fn note_blocked(&self, link: LinkId) {
        let wait = Wait { begun: self.step(), may_end: 0 };
        self.waits.lock().expect("nothing panics while it is locked").insert(link, wait);
    }

    /// Records that a client's timeout has passed while the client is still blocked.
    pub fn note_timeout(&self, link: LinkId) {
        let step = self.step();
        let mut waits = self.waits.lock().expect("nothing panics while it is locked");
        if let Some(wait) = waits.get_mut(&link) {
            wait.may_end = step;
        }
    }

    /// Returns a client's wait, if one began since the last call.
    pub fn take_wait(&self, link: LinkId) -> Option<Wait> {
        self.waits.lock().expect("nothing panics while it is locked").remove(&link)
    }

    /// Records a finding.
    pub fn find(&self, finding: String) {
        self.findings.lock().expect("nothing panics while it is locked").push(finding);
    }

    /// Returns the findings and clears them.
    pub fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut *self.findings.lock().expect("nothing panics while it is locked"))
    }
}

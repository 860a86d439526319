//! The connection commands that a simulated client needs, in their simplest form: SELECT, HELLO,
//! SUBSCRIBE, PSUBSCRIBE, PUBLISH, CLIENT TRACKING, PING, CLIENT PAUSE. The server's own commands
//! are not used, so that the simulator does not depend on the server.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use commands::table::{Acl, Arity, Command, Flags, Group, History};
use commands::{Args, CommandError};
use engine::Shared;
use engine::call::{Call, Host};
use engine::client::Mode;
use engine::clock::{Clock, ManualClock};
use engine::publish::pubsub::{Kind, write_subscription};
use engine::session::Flow;
use engine::table::{HostCommand, Runner};
use engine::track::TrackingOptions;

/// The implementation of the engine's trait `Host` for a simulated server: see the module.
#[derive(Clone)]
pub(super) struct SimulatedHost {
    pub engine: Arc<Shared>,
    pub clock: ManualClock,
    pub pause: Arc<PauseCheck>,
}

impl SimulatedHost {
    /// Creates the host of an engine, with a pause check of its own.
    pub fn new(engine: &Arc<Shared>, clock: &ManualClock) -> Self {
        Self { engine: Arc::clone(engine), clock: clock.clone(), pause: Arc::default() }
    }

    /// Returns the present Unix time in milliseconds.
    fn now_ms(&self) -> i64 {
        self.clock.unix_time().as_millis() as i64
    }
}

/// The check that no change enters the change log during CLIENT PAUSE WRITE.
#[derive(Default)]
pub(super) struct PauseCheck {
    /// The last log position that was drawn before the present pause began.
    drawn: Mutex<u64>,
    /// The text of the violation, if a log position was drawn during a pause.
    finding: Mutex<Option<String>>,
}

impl PauseCheck {
    /// Records the start of a pause, or a new end of the present one. The caller owns the keyspace.
    fn begin(&self, engine: &Shared, now_ms: i64, until_ms: i64) {
        if engine.pause.is_on(now_ms) {
            self.check(engine);
        } else {
            *self.drawn.lock().expect("nothing panics while it is locked") = engine.log.drawn();
        }
        engine.pause.until_ms.fetch_max(until_ms, Relaxed);
    }

    /// Ends a pause, and checks that no log position was drawn during it. The caller owns the
    /// keyspace.
    fn end(&self, engine: &Shared, now_ms: i64) {
        if engine.pause.is_on(now_ms) {
            self.check(engine);
        }
        engine.pause.until_ms.store(0, Relaxed);
    }

    fn check(&self, engine: &Shared) {
        let (before, now) =
            (*self.drawn.lock().expect("nothing panics while it is locked"), engine.log.drawn());
        if before != now {
            let finding = format!("positions {before} to {now} were drawn while clients were paused");
            *self.finding.lock().expect("nothing panics while it is locked") = Some(finding);
        }
    }

    /// Returns the text of the violation; `None` if no log position was drawn during a pause.
    pub fn finding(&self) -> Option<String> {
        self.finding.lock().expect("nothing panics while it is locked").clone()
    }
}

const fn command(name: &'static str, number: u16, arity: Arity, flags: Flags) -> Command<Runner> {
    Command {
        name,
        summary: "",
        history: History::since(""),
        group: Group::Connection,
        complexity: "",
        arity,
        flags,
        acl: Acl::empty(),
        keys: &[],
        tips: &[],
        args: &[],
        recorded_forms: &[],
        subcommands: &[],
        run: Runner::Host(HostCommand(number)),
    }
}

/// The commands of a simulated connection, such as SELECT and HELLO.
pub(super) static COMMANDS: &[Command<Runner>] = &[
    command("PING", 0, Arity::AtLeast(1), Flags::FOR_SUBSCRIBERS),
    command("SELECT", 1, Arity::Exactly(2), Flags::FAST),
    command("HELLO", 2, Arity::Exactly(2), Flags::FAST),
    command("SUBSCRIBE", 3, Arity::AtLeast(2), Flags::PUBSUB.union(Flags::SUBSCRIPTION)),
    command("PSUBSCRIBE", 4, Arity::AtLeast(2), Flags::PUBSUB.union(Flags::SUBSCRIPTION)),
    command("PUBLISH", 5, Arity::Exactly(3), Flags::PUBSUB.union(Flags::MAY_REPLICATE)),
    // Stands for CLIENT TRACKING ON.
    command("TRACKING", 6, Arity::AtLeast(1), Flags::FAST),
    // Stands for CLIENT PAUSE ms WRITE.
    command("PAUSE", 7, Arity::Exactly(2), Flags::NOSCRIPT),
    // Stands for CLIENT UNPAUSE. Threads notice it at the end that the pause would have had.
    command("UNPAUSE", 8, Arity::Exactly(1), Flags::NOSCRIPT),
    // In the stream of a primary only.
    command("REPLCONF", 9, Arity::AtLeast(1), Flags::NOSCRIPT),
];

impl Host for SimulatedHost {
    fn run(
        &self,
        command: HostCommand,
        mut call: Call<'_, '_, '_>,
        args: &Args<'_>,
    ) -> Result<(), CommandError> {
        let shared = &*self.engine;
        match command.0 {
            0 => call.reply.simple("PONG"),
            1 => {
                let db = args.db_index(1, shared.keyspace.db_count())?;
                call.session.info.db.store(db as u64, Relaxed);
                call.reply.ok();
            }
            2 => {
                call.session.info.resp.store(3, Relaxed);
                call.reply.ok();
            }
            3 => subscribe(shared, &mut call, args, (Kind::Channel, "subscribe")),
            4 => subscribe(shared, &mut call, args, (Kind::Pattern, "psubscribe")),
            5 => {
                let unit = (call.session.db(), call.data.unit);
                let published = call.data.commit.publish(unit, Kind::Channel, args);
                if published.subscribers_full && call.session.flow == Flow::Running {
                    call.session.flow = Flow::AwaitingSubscribers;
                }
                call.reply.integer(published.receivers as i64);
            }
            7 => {
                let pause_ms = args.integer(1)?;
                call.pass.exclusive(|_| {
                    let now_ms = self.now_ms();
                    self.pause.begin(shared, now_ms, now_ms + pause_ms);
                });
                call.reply.ok();
            }
            8 => {
                call.pass.exclusive(|_| self.pause.end(shared, self.now_ms()));
                call.reply.ok();
            }
            9 => call.reply.ok(),
            _ => {
                let wish = TrackingOptions { mode: Mode::empty(), redirect: 0, prefixes: Vec::new() };
                let session = &mut *call.session;
                shared.tracking.enable(&shared.keyspace, &mut session.tracking, &session.info, &wish);
                call.reply.ok();
            }
        }
        Ok(())
    }
}

fn subscribe(shared: &Shared, call: &mut Call<'_, '_, '_>, args: &Args<'_>, (kind, word): (Kind, &str)) {
    for name in args.from(1) {
        call.session.subscribe(&shared.pubsub, kind, name);
        write_subscription(&mut call.reply, word, Some(name), call.session.subscription_count(kind));
    }
}

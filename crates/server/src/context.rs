//! What a command about the server or its connection may touch, and how the engine gets to it.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use commands::table::{Command, Run};
use commands::{Args, CommandError};
use engine::call::{Call, DataAccess, Host, RefusedRequest};
use engine::client::ClientInfo;
use engine::clock::Ticks;
use engine::request::keys_of_request;
use engine::session::{Flow, Session};
use engine::settings::Settings;
use engine::table::{HostCommand, Registered};
use keyspace::gate::SharedPass;
use resp::Reply;

use crate::audit::{Event, Outcome};
use crate::client_line::client_line;
use crate::shared::Shared;

/// What runs a command of this crate.
#[derive(Clone, Copy)]
pub enum Runner {
    /// A data command: gets its locked keys.
    Data(commands::Handler),
    /// A command about the server or the connection.
    Server(ServerHandler),
}

impl Run for Runner {
    const UNNAMED: Self = Self::Server(|_, _| Err(CommandError::Line("ERR this command has no handler")));
}

/// The function that runs a server command.
pub type ServerHandler = fn(&mut ServerCtx<'_, '_, '_>, &Args<'_>) -> Result<(), CommandError>;

/// A server command's surroundings.
pub struct ServerCtx<'a, 'g, 's> {
    /// The server.
    pub shared: &'a Arc<Shared>,
    /// The settings of this turn.
    pub settings: &'a Settings,
    /// The client that asks.
    pub session: &'a mut Session,
    /// The command itself.
    pub registered: &'static Registered,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The thread that runs it.
    pub thread: usize,
    /// This turn's pass through the gate: can be made exclusive. No shard is locked.
    pub pass: &'a mut SharedPass<'g>,
    /// Now, in Unix milliseconds.
    pub now_ms: i64,
    /// Random numbers.
    pub rng: &'a mut fastrand::Rng,
    /// For work on keys.
    pub data: DataAccess<'a, 's>,
}

/// Collects the handlers of this crate's commands, by the numbers that the engine knows
/// them by. For start-up.
#[derive(Default)]
pub struct Handlers(RefCell<Vec<ServerHandler>>);

impl Handlers {
    /// All of them, by number.
    pub fn into_shared(self) -> Arc<[ServerHandler]> {
        self.0.into_inner().into()
    }

    /// A command of this crate as the engine's table has it.
    pub fn register(&self, command: &Command<Runner>) -> Command<engine::table::Runner> {
        command.map(|runner| match runner {
            Runner::Data(handler) => engine::table::Runner::Data(handler),
            Runner::Server(handler) => {
                let mut handlers = self.0.borrow_mut();
                handlers.push(handler);
                engine::table::Runner::Host(HostCommand(handlers.len() as u16 - 1))
            }
        })
    }
}

/// The server as its engine sees it.
#[derive(Clone)]
pub struct ServerHost {
    shared: Arc<Shared>,
    /// What runs the commands of this crate, by the number that the engine knows them by.
    handlers: Arc<[ServerHandler]>,
}

impl ServerHost {
    /// For the threads of a server; each takes a clone.
    pub fn new(shared: Arc<Shared>, handlers: Arc<[ServerHandler]>) -> Self {
        Self { shared, handlers }
    }

    /// The server.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Host for ServerHost {
    fn run(&self, command: HostCommand, call: Call<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
        let Call { settings, session, registered, reply, thread, pass, rng, data } = call;
        let mut ctx = ServerCtx {
            shared: &self.shared,
            settings,
            session,
            registered,
            reply,
            thread,
            pass,
            now_ms: data.now_ms(),
            rng,
            data,
        };
        self.handlers[command.0 as usize](&mut ctx, args)
    }

    fn describe_client(&self, client: &ClientInfo) -> Vec<u8> {
        let mut line = client_line(&self.shared, client, &[]).into_bytes();
        line.pop();
        line
    }

    fn debug_script(&self, session: &mut Session, args: &Args<'_>) -> Result<(), CommandError> {
        self.shared.debuggers.add(session, args)?;
        session.flow = Flow::Debugging;
        Ok(())
    }

    fn note_refused(&self, settings: &Settings, unix_ms: i64, refused: RefusedRequest<'_>) {
        let RefusedRequest { client, user, registered, args, reason } = refused;
        let outcome = Outcome::Denied(reason.name());
        let keys = keys_of_request(registered, args);
        let keys = keys.iter().map(|&at| args.get(at));
        let command = registered.full_name;
        let event = Event { unix_ms, kind: "command", outcome, user, client, command, keys };
        self.shared.audit.note(&settings.audit, event);
    }
}

/// The processor's counter of its own steady ticks, or the monotonic clock where it has none. The
/// first use measures it against that clock, which takes about a millisecond on idle processors,
/// tens of them on busy ones, and 200 ms at the most.
static COUNTER: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl SystemClock {
    /// Measures the processor's counter, so that no request waits for that later.
    pub fn calibrate(self) {
        LazyLock::force(&COUNTER);
    }
}

impl engine::Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[inline]
    fn ticks(&self) -> Ticks {
        Ticks(COUNTER.raw())
    }

    #[inline]
    fn elapsed(&self, since: Ticks) -> Duration {
        Duration::from_nanos(COUNTER.delta_as_nanos(since.0, COUNTER.raw()))
    }

    #[inline]
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Unix time in milliseconds.
pub fn unix_ms() -> i64 {
    engine::Clock::unix_ms(&SystemClock)
}

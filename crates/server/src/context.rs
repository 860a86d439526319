//! The context of server commands, and the interface through which the engine runs them. Server
//! commands are those about the server or the connection.

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

/// The function that runs a command of this crate, by the kind of the command.
#[derive(Clone, Copy)]
pub enum Runner {
    /// The handler of a data command, which receives its keys locked.
    Data(commands::Handler),
    /// The handler of a command about the server or the connection.
    Server(ServerHandler),
}

impl Run for Runner {
    const UNNAMED: Self = Self::Server(|_, _| Err(CommandError::Line("ERR this command has no handler")));
}

/// The function that runs a server command, given the command's context and arguments.
pub type ServerHandler = fn(&mut ServerCtx<'_, '_, '_>, &Args<'_>) -> Result<(), CommandError>;

/// The context of a server command: the shared state, the client's session, and the access to keys.
pub struct ServerCtx<'a, 'g, 's> {
    /// The state that the threads of the server share.
    pub shared: &'a Arc<Shared>,
    /// The settings that apply for this turn of the thread's loop.
    pub settings: &'a Settings,
    /// The session of the client that sent the command.
    pub session: &'a mut Session,
    /// The command's record in the command table, such as its name and flags.
    pub registered: &'static Registered,
    /// The writer of the command's reply.
    pub reply: Reply<'a>,
    /// The number of the thread that runs the command.
    pub thread: usize,
    /// The thread's access to the keyspace in this turn of its loop, through the gate that guards
    /// the keyspace. The command may make the access exclusive. No shard is locked when the command
    /// begins.
    pub pass: &'a mut SharedPass<'g>,
    /// The time at which the command runs, in Unix milliseconds.
    pub now_ms: i64,
    /// The random number generator of the thread that runs the command.
    pub rng: &'a mut fastrand::Rng,
    /// The command's access to keys, which locks the shards of the keys.
    pub data: DataAccess<'a, 's>,
}

/// The list of handlers of this crate's commands, filled at the start. The engine's command table
/// refers to a handler by its index in this list (`HostCommand`).
#[derive(Default)]
pub struct Handlers(RefCell<Vec<ServerHandler>>);

impl Handlers {
    /// Returns all handlers, in the order of their registration.
    pub fn into_shared(self) -> Arc<[ServerHandler]> {
        self.0.into_inner().into()
    }

    /// Adds the handler of a command to the list, and returns the command for the engine's table.
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

/// The server's implementation of the engine's interface [`Host`].
#[derive(Clone)]
pub struct ServerHost {
    shared: Arc<Shared>,
    /// The handlers of this crate's commands, in the order of [`Handlers`].
    handlers: Arc<[ServerHandler]>,
}

impl ServerHost {
    /// Creates the server's implementation of the engine's interface [`Host`], of which each thread
    /// of the server takes a clone.
    pub fn new(shared: Arc<Shared>, handlers: Arc<[ServerHandler]>) -> Self {
        Self { shared, handlers }
    }

    /// Returns the state that the threads of the server share.
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

/// The processor's counter of steady ticks, or the monotonic clock on processors without such a
/// counter. The first use calibrates the counter against the monotonic clock. Calibration takes
/// about 1 ms on an idle machine, tens of milliseconds on a busy one, and at most 200 ms.
static COUNTER: LazyLock<quanta::Clock> = LazyLock::new(quanta::Clock::new);

/// The clocks of the system: a steady counter for short times, and the Unix time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl SystemClock {
    /// Calibrates the processor's counter, so that no request waits for it later.
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

/// Returns the present Unix time in milliseconds.
pub fn unix_ms() -> i64 {
    engine::Clock::unix_ms(&SystemClock)
}

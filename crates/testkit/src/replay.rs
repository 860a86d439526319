//! An engine with a single caller: runs commands, or a sequence of commands from an append-only
//! file. The clock of [`Player::new`] stands still in January 1970, so that nothing expires.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use commands::{Args, CommandError};
use engine::Shared;
use engine::acl::Identity;
use engine::batch::Incoming;
use engine::call::{Call, Host};
use engine::client::{ClientInfo, Place};
use engine::clock::{Clock as _, ManualClock};
use engine::owned_args::OwnedArgs;
use engine::run::Executor;
use engine::session::Session;
use engine::settings::Settings;
use engine::shared::Start;
use engine::table::{CommandTable, HostCommand};
use engine::turn::Engine;
use resp::Value;
use resp::decode::decode;
use stdx::{Address, ByteQueue, ConnId};

/// The Unix time at which the clock of a [`Player`] stands still.
const NOW: Duration = Duration::from_secs(1_000_000);

/// Creates an engine without data, whose random choices follow from `seed`.
pub fn empty_engine(seed: u64) -> Shared {
    static TABLE: OnceLock<CommandTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| CommandTable::new(engine::exec::commands())).clone();
    let (settings, now) = (Settings::default(), Instant::now());
    Shared::new(Start { threads: 1, databases: 16, table, settings, seed: [seed, 2, 3, 4], now })
}

/// A host of the engine that knows no commands of a server: only data commands and scripts can run.
pub struct NoHost;

impl Host for NoHost {
    fn run(&self, _: HostCommand, _: Call<'_, '_, '_>, _: &Args<'_>) -> Result<(), CommandError> {
        Err(CommandError::Line("ERR this host has no commands"))
    }
}

/// The only client of an engine. `H` runs the commands about the server (CONFIG, INFO).
pub struct Player<'s, H: Host = NoHost> {
    shared: &'s Shared,
    clock: ManualClock,
    engine: Engine<'s, ManualClock, H>,
    session: Session,
    /// The sources passed to FUNCTION LOAD. They are only stored here, not loaded.
    pub functions: Vec<Vec<u8>>,
}

impl<'s> Player<'s> {
    /// Creates the only client of the engine `shared`, without commands about the server. Its clock
    /// stands still.
    pub fn new(shared: &'s Shared) -> Self {
        Self::with_host(shared, ManualClock::new(Instant::now(), NOW), NoHost)
    }
}

impl<'s, H: Host> Player<'s, H> {
    /// Creates a client of this engine with this clock and host.
    pub fn with_host(shared: &'s Shared, clock: ManualClock, host: H) -> Self {
        let executor = Executor::new(shared, Some(0), 1, (clock.clone(), host));
        let place = Place { thread: 0, conn: ConnId::new(0, 1), fd: -1 };
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let info = Arc::new(ClientInfo::new(u64::MAX, place, (address(), address()), 0));
        let session = Session::new(info, Identity::internal());
        Self { shared, clock, engine: Engine::new(executor), session, functions: Vec::new() }
    }

    /// Runs a command and returns its reply. If the host does not know SELECT, SELECT works outside
    /// of transactions only. FUNCTION LOAD only stores its source.
    pub fn run<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Value {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        match words[..] {
            [b"SELECT", db] if self.shared.table.find(b"SELECT").is_none() => {
                let db = stdx::number::parse_i64(db).expect("a number");
                self.session.info.db.store(db as u64, std::sync::atomic::Ordering::Relaxed);
                return Value::Null;
            }
            [b"FUNCTION", b"LOAD", source] => {
                self.functions.push(source.to_vec());
                return Value::Null;
            }
            _ => {}
        }
        let owned = OwnedArgs::new(words.into_iter());
        let args = owned.args(self.shared.keyspace.hasher());
        let incoming = Incoming { registered: self.shared.table.find(args.get(0)), args };
        let mut out = ByteQueue::new();
        let mut pass = self.shared.gate.shared(0);
        self.engine.begin(self.clock.now());
        self.engine.run(&mut self.session, &incoming, &mut out, &mut pass);
        self.engine.executor.commit.broadcast();
        self.engine.executor.end_turn();
        drop(self.engine.executor.commit.outbox.take());
        let bytes: Vec<u8> = out.io_slices(usize::MAX).iter().flat_map(|piece| piece.to_vec()).collect();
        match decode(&bytes) {
            Ok(Some((value, _))) => value,
            other => Value::Error(format!("no reply: {other:?}").into()),
        }
    }

    /// Runs all commands of an append-only file; lines with timestamps may stand between them.
    ///
    /// # Errors
    ///
    /// A message about bytes that are not a command, or about a command that failed.
    pub fn replay(&mut self, file: &[u8]) -> Result<(), String> {
        let mut rest = file;
        while !rest.is_empty() {
            if rest[0] == b'#' {
                let end = rest.iter().position(|&byte| byte == b'\n').ok_or("a time has no end")?;
                rest = &rest[end + 1..];
                continue;
            }
            let decoded = decode(rest).map_err(|error| format!("not a command: {error}"))?;
            let Some((Value::Array(words), len_bytes)) = decoded else {
                return Err("the last command has no end".to_owned());
            };
            let words: Vec<&[u8]> = words.iter().filter_map(Value::as_bytes).collect();
            let reply = self.run(&words);
            if reply.is_error() {
                let line: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
                return Err(format!("{} failed: {reply}", line.join(" ")));
            }
            rest = &rest[len_bytes..];
        }
        Ok(())
    }
}

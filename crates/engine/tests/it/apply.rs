//! Tests of the applier of a replication stream: the changes that it makes, its reports, and the
//! effects on clients of the replica.

mod busy;
mod clients;
mod expiry;
mod roles;
mod units;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::table::{Acl, Arity, Command, Flags, Group, History};
use commands::{Args, CommandError};
use engine::Shared;
use engine::apply::{Applied, Applier, ApplyError, Progressed};
use engine::call::{Call, Host};
use engine::client::{ClientInfo, Place};
use engine::clock::ManualClock;
use engine::publish::Outputs;
use engine::publish::pubsub::Kind;
use engine::scripting::{
    Known, Lesson, Prepared, ScriptCall, ScriptCommands, ScriptEnd, ScriptEngine, ScriptTraits, Source, Stop,
};
use engine::scripts::ScriptKind;
use engine::session::Flow;
use engine::settings::Settings;
use engine::table::{HostCommand, Runner};
use resp::Protocol;
use stdx::{Address, ByteQueue, ConnId};

use crate::driver::{Thread, shared_with};

/// The host that runs the commands of connections, such as SELECT, for the applier of the
/// replication stream.
struct ReplicaHost<'s>(&'s Shared);

const SELECT: u16 = 0;
const PUBLISH: u16 = 3;
/// The number of a server command in the tests that stands for SAVE by a client. The host of
/// clients runs it as SELECT.
const SAVE: u16 = 5;
/// The number of a server command in the tests that stands for REPLICAOF by a client. It acts when
/// the applier runs it.
const REPLICAOF: u16 = 4;

impl Host for ReplicaHost<'_> {
    fn run(
        &self,
        command: HostCommand,
        mut call: Call<'_, '_, '_>,
        args: &Args<'_>,
    ) -> Result<(), CommandError> {
        match command.0 {
            SELECT => call.session.info.db.store(args.db_index(1, 16)? as u64, Relaxed),
            PUBLISH => {
                let unit = (call.session.db(), call.data.unit);
                if call.data.commit.publish(unit, Kind::Channel, args).subscribers_full {
                    call.session.flow = Flow::AwaitingSubscribers;
                }
            }
            REPLICAOF => {
                self.0.server_state.role.epoch.fetch_add(1, Relaxed);
            }
            _ => panic!("PING and REPLCONF of a stream do not reach the host"),
        }
        call.reply.ok();
        Ok(())
    }
}

const fn command(name: &'static str, number: u16, flags: Flags) -> Command<Runner> {
    Command {
        name,
        summary: "",
        history: History::since(""),
        group: Group::Connection,
        complexity: "",
        arity: Arity::AtLeast(1),
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

static COMMANDS: &[Command<Runner>] = &[
    command("SELECT", SELECT, Flags::FAST.union(Flags::STALE)),
    command("PING", 1, Flags::FAST),
    command("REPLCONF", 2, Flags::STALE),
    command("PUBLISH", PUBLISH, Flags::PUBSUB.union(Flags::MAY_REPLICATE)),
    command("REPLICAOF", REPLICAOF, Flags::ADMIN),
    command("SAVE", SAVE, Flags::ADMIN.union(Flags::NO_ASYNC_LOADING)),
];

/// Creates the shared state and the clock of a read-only replica with these settings.
fn replica(settings: Settings) -> (Shared, ManualClock) {
    let further: Vec<_> = engine::eval::commands().chain(COMMANDS.iter().copied()).collect();
    let (shared, clock) = shared_with(2, settings, &further);
    let role = &shared.server_state.role;
    for is_on in [&role.is_replica, &role.refuses_writes, &role.ignores_memory_limit] {
        is_on.store(true, Relaxed);
    }
    role.epoch.store(1, Relaxed);
    (shared, clock)
}

/// The reports of an applier about the parts of the replication stream that it has applied.
#[derive(Default)]
struct Reports {
    bytes: Vec<u8>,
    /// The selected database and the log position of the applier's last report.
    last: Option<(usize, u64)>,
    /// The number of reported bytes at the time of each request for an acknowledgement.
    asked_at: Vec<usize>,
    failures: Vec<(String, String)>,
    /// The number of writes that were applied although the disk cannot be written.
    unwritable: usize,
}

impl Applied for Reports {
    fn take(&mut self, bytes: &[u8], db: usize, position: u64) {
        assert!(!bytes.is_empty(), "an empty report");
        self.bytes.extend_from_slice(bytes);
        self.last = Some((db, position));
    }

    fn ask_ack(&mut self) {
        self.asked_at.push(self.bytes.len());
    }

    fn fail(&mut self, command: &[u8], error: &[u8]) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.failures.push((text(command), text(error)));
    }

    fn note_unwritable(&mut self) {
        self.unwritable += 1;
    }
}

/// The replication stream of a primary, with the applier that a replica runs on it.
struct Stream<'s> {
    applier: Applier<'s, ManualClock, ReplicaHost<'s>>,
    /// All bytes of the replication stream that have arrived.
    sent: Vec<u8>,
    dropped: usize,
    reports: Reports,
}

impl<'s> Stream<'s> {
    fn new(shared: &'s Shared, clock: &ManualClock) -> Self {
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread: 0, conn: ConnId::new(99, 1), fd: -1 };
        let info = ClientInfo::new(shared.clients.next_id(), place, (address(), address()), 0);
        let epoch = shared.server_state.role.epoch.load(Relaxed);
        let host = (clock.clone(), ReplicaHost(shared));
        let mut applier = Applier::new(shared, (Arc::new(info), 0), epoch, 5, host);
        applier.set_scripts(Box::new(Flagged::default()));
        Self { applier, sent: Vec::new(), dropped: 0, reports: Reports::default() }
    }

    /// Appends bytes to the replication stream, and applies as much of it as possible.
    fn push(&mut self, bytes: &[u8]) -> Result<Progressed, ApplyError> {
        self.sent.extend_from_slice(bytes);
        self.go_on()
    }

    /// Applies as much as possible of the replication stream that has arrived.
    fn go_on(&mut self) -> Result<Progressed, ApplyError> {
        loop {
            let input = &self.sent[self.dropped..];
            let progressed = self.applier.apply(input, 1000 + self.dropped as u64, &mut self.reports);
            self.dropped += self.applier.take_applied();
            assert!(self.sent[..self.dropped] == self.reports.bytes, "what is reported is dropped");
            if progressed != Ok(Progressed::Ran) {
                return progressed;
            }
        }
    }

    /// Applies whole requests, one on a line. Returns the number of bytes of the replication stream
    /// that the applier has reported.
    fn apply(&mut self, requests: &str) -> usize {
        assert_eq!(self.push(&encoded(requests)), Ok(Progressed::NeedsInput(0)), "{requests}");
        self.dropped
    }

    /// Returns true if the applier has reported all bytes of the replication stream that have
    /// arrived.
    fn is_reported(&self) -> bool {
        self.dropped == self.sent.len()
    }
}

/// Encodes requests, one on a line, with spaces between words, as bytes of a replication stream.
fn encoded(requests: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in requests.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        bytes.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    bytes
}

/// A script engine for scripts such as `no-writes,allow-stale!GET,k;SET,k,v`: flags and commands.
/// Without `!` it is a script without flags. The reply is the first error, or that of the last
/// command.
#[derive(Default)]
struct Flagged {
    commands: Vec<Vec<String>>,
}

impl ScriptEngine for Flagged {
    fn prepare(&mut self, source: Source<'_>) -> Result<Prepared, CommandError> {
        let Source::Text(text) = source else { return Err(CommandError::Line("ERR no text")) };
        let text = String::from_utf8_lossy(text).into_owned();
        let (flags, script) = match text.split_once('!') {
            Some((flags, script)) => (Some(flags), script),
            None => (None, &*text),
        };
        let mut traits = if flags.is_none() { ScriptTraits::COMPATIBLE } else { ScriptTraits::empty() };
        for (name, one) in
            [("no-writes", ScriptTraits::NO_WRITES), ("allow-stale", ScriptTraits::ALLOW_STALE)]
        {
            traits.set(one, flags.is_some_and(|flags| flags.contains(name)));
        }
        let words = |command: &str| command.split(',').map(str::to_owned).collect();
        self.commands = script.split(';').map(words).collect();
        let (name, known): (Rc<[u8]>, _) = (b"test".as_slice().into(), Known::Shares);
        Ok(Prepared { kind: ScriptKind::Script, name, traits, known })
    }

    fn run(
        &mut self,
        _: &ScriptCall<'_>,
        commands: &mut dyn ScriptCommands,
        reply: &mut ByteQueue,
    ) -> ScriptEnd {
        let mut last = Vec::new();
        for words in &self.commands {
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            last = match commands.call(&words, Protocol::Resp2) {
                Ok(reply) => reply.to_vec(),
                Err(Stop::Again) => return ScriptEnd::Again,
                Err(Stop::Killed) => panic!("nobody kills it"),
            };
            if last.starts_with(b"-") {
                break;
            }
        }
        reply.append(ByteQueue::of_bytes(last));
        ScriptEnd::Replied
    }

    fn learn(&mut self, _: Lesson) {}
}

/// Creates I/O thread 0 of an engine, with a script engine for tests.
fn thread<'s>(shared: &'s Shared, clock: &ManualClock) -> Thread<'s> {
    Thread::new(shared, clock, 0).with_scripts(Box::new(Flagged::default()))
}

/// The outputs of all connections of a test, in one queue.
#[derive(Default)]
struct Output(ByteQueue);

impl Outputs for Output {
    fn queue(&mut self, _: ConnId) -> &mut ByteQueue {
        &mut self.0
    }

    fn len_bytes(&mut self, _: ConnId) -> usize {
        self.0.len_bytes()
    }

    fn shows(&mut self, _: ConnId, _: usize, _: u64) {}
}

/// Returns the published messages for subscribers on thread 0, with `|` for each line end.
fn published(shared: &Shared) -> String {
    let mut output = Output::default();
    shared.pubsub.deliver(0, &mut output, u64::MAX, &mut Vec::new());
    let pieces = output.0.io_slices(usize::MAX);
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    String::from_utf8_lossy(&bytes).replace("\r\n", "|")
}

//! Append-only files that are replayed in several lanes: threads that share the commands of a file.
//! The data equals that of one lane, and that of the engine that wrote the file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use commands::Args;
use commands::table::Flags;
use engine::acl::Identity;
use engine::batch::Incoming;
use engine::call::{Call, Host};
use engine::client::{ClientInfo, Place};
use engine::clock::{Clock, ManualClock};
use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader};
use engine::log::target::LogTarget;
use engine::owned_args::OwnedArgs;
use engine::replay::{LANES_MAX, Lane, Meeting, NotRouted, Routed, Router, Slice, Task, Unroutable};
use engine::request::RequestKeys;
use engine::run::Executor;
use engine::session::Session;
use engine::settings::Settings;
use engine::shared::{GateSlot, Shared, Start};
use engine::stats::ThreadStats;
use engine::table::{CommandTable, HostCommand, Registered, Runner};
use engine::threads::Outbox;
use engine::turn::Engine;
use persist::aof::reader::{Batch, End, Next, Reader};
use stdx::{Address, ByteQueue, ConnId};
use testkit::Rng;
use testkit::contents::{Contents, of_keyspace};
use testkit::differential::{Grammar, Kind};

/// Number of runs of a test; each depends only on its seed.
const RUNS: u64 = if cfg!(debug_assertions) { 60 } else { 400 };
/// Number of random commands in the append-only file of a run.
const COMMANDS: usize = 1200;

/// The words of a request.
type Words = Vec<Vec<u8>>;

/// A host of the engine that runs SELECT, the only command in an append-only file that the engine
/// passes to its host.
struct SelectHost;

impl Host for SelectHost {
    fn run(
        &self,
        _: HostCommand,
        mut call: Call<'_, '_, '_>,
        args: &Args<'_>,
    ) -> Result<(), commands::CommandError> {
        let db = args.db_index(1, 16)?;
        call.session.info.db.store(db as u64, std::sync::atomic::Ordering::Relaxed);
        call.reply.ok();
        Ok(())
    }
}

static SELECT: commands::table::Command<Runner> = commands::table::Command {
    name: "SELECT",
    summary: "",
    history: commands::table::History::since(""),
    group: commands::table::Group::Connection,
    complexity: "",
    arity: commands::table::Arity::Exactly(2),
    flags: Flags::FAST,
    acl: commands::table::Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    recorded_forms: &[],
    subcommands: &[],
    run: Runner::Host(HostCommand(0)),
};

fn engine() -> (Shared, ManualClock) {
    let now = Instant::now();
    let table = CommandTable::new(engine::exec::commands().chain([SELECT]));
    let settings = Settings::default();
    let start = Start { threads: 1, databases: 16, table, settings, seed: [1, 2, 3, 4], now };
    (Shared::new(start), ManualClock::new(now, Duration::from_secs(1_000_000)))
}

/// A replay of an append-only file in lanes (the threads of a real replay), on one thread: the test
/// decides which lane runs next.
struct Replay<'s> {
    lanes: Vec<Lane<'s, ManualClock>>,
    queues: Vec<VecDeque<Task<Batch>>>,
    waits: Vec<Option<Arc<Meeting<Batch>>>>,
    /// The offsets and texts of errors, in no particular order.
    errors: Vec<(u64, String)>,
}

impl<'s> Replay<'s> {
    fn new(shared: &'s Shared, stats: &'s [Box<ThreadStats>], clock: &ManualClock) -> Self {
        let lanes = stats.iter().map(|stats| Lane::new(shared, stats, 1, clock.clone()));
        let (lanes, count) = (lanes.collect(), stats.len());
        let queues = (0..count).map(|_| VecDeque::new()).collect();
        Self { lanes, queues, waits: vec![None; count], errors: Vec::new() }
    }

    fn take(&mut self, routed: Routed<'_, Batch>) {
        match routed {
            Routed::Tasks(tasks) => {
                self.queues.iter_mut().zip(tasks).for_each(|(queue, tasks)| queue.extend(tasks))
            }
            Routed::Function(args) => panic!("no test has {:?}", args.get(0)),
            Routed::Failed(failed) => {
                self.errors.push((failed.offset, String::from_utf8_lossy(failed.error).into()))
            }
        }
    }

    fn run(&mut self, shared: &Shared, number: usize, slice: &Slice<Batch>) {
        let mut pass = shared.enter_gate(GateSlot::Lane(number));
        let errors = &mut self.errors;
        self.lanes[number].run(slice, &mut pass, |failed| {
            errors.push((failed.offset, failed.error.escape_ascii().to_string()));
        });
    }

    /// Runs the next task of a lane (one of the threads of a replay), unless the lane waits for
    /// other lanes or has no task left.
    fn step(&mut self, shared: &Shared, number: usize) {
        if self.waits[number].take_if(|meeting| meeting.is_over()).is_none() && self.waits[number].is_some() {
            return;
        }
        match self.queues[number].pop_front() {
            Some(Task::Run(slice)) => self.run(shared, number, &slice),
            Some(Task::Meet(meeting)) if meeting.arrive() => {
                self.run(shared, number, meeting.slice());
                meeting.end();
            }
            Some(Task::Meet(meeting)) => self.waits[number] = Some(meeting),
            None => {}
        }
    }

    fn is_done(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }
}

/// Splits a batch of commands at the ends of random units (single commands or transactions). A
/// batch of a file can end only there.
fn pieces(batch: &Batch, rng: &mut Rng) -> Vec<std::ops::Range<usize>> {
    let mut pieces: Vec<std::ops::Range<usize>> = Vec::new();
    let mut units_left = 0;
    for unit in batch.units() {
        match pieces.last_mut() {
            Some(piece) if units_left > 0 => piece.end = unit.end,
            _ => {
                units_left = *rng.pick(&[1, 10, 200, 1000]);
                pieces.push(unit);
            }
        }
        units_left -= 1;
    }
    pieces
}

/// Replays the append-only file `file` in `lanes` lanes, as several threads would, but on one
/// thread: a random lane runs next. Returns the resulting data and the errors.
fn replay(file: &[u8], lanes: usize, rng: &mut Rng) -> (Contents, Vec<(u64, String)>) {
    let (shared, clock) = engine();
    clock.advance(Duration::from_secs(500_000));
    let stats: Vec<_> = (0..lanes).map(|_| stats(&shared)).collect();
    let mut replay = Replay::new(&shared, &stats, &clock);
    let mut router = Router::new(&shared, lanes);
    let mut reader = Reader::new(file);
    loop {
        match reader.next_batch().expect("whole requests") {
            Next::End(End::Whole) => break,
            Next::End(End::TornTail(torn)) => panic!("{torn:?}"),
            Next::Batch(batch) => {
                let batch = Arc::new(batch);
                for piece in pieces(&batch, rng) {
                    router.route(&batch, piece, |routed| replay.take(routed)).expect("commands that exist");
                    for _ in 0..rng.below(30) {
                        replay.step(&shared, rng.below(lanes));
                    }
                }
            }
        }
    }
    while !replay.is_done() {
        replay.step(&shared, rng.below(lanes));
    }
    let mut errors = std::mem::take(&mut replay.errors);
    errors.sort();
    drop(replay);
    (of_keyspace(&shared.keyspace), errors)
}

/// Replays the append-only file `file` in `lanes` lanes, each of them on its own thread. Returns
/// the resulting data.
fn replay_on_threads(file: &[u8], lanes: usize) -> Contents {
    let (shared, clock) = engine();
    clock.advance(Duration::from_secs(500_000));
    let stats: Vec<_> = (0..lanes).map(|_| stats(&shared)).collect();
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        for (number, stats) in stats.iter().enumerate() {
            let (sender, tasks) = std::sync::mpsc::sync_channel::<Vec<Task<Batch>>>(1);
            senders.push(sender);
            let (shared, clock) = (&shared, clock.clone());
            scope.spawn(move || {
                let mut lane = Lane::new(shared, stats, 1, clock);
                let mut run = |slice: &Slice<Batch>| {
                    lane.run(slice, &mut shared.enter_gate(GateSlot::Lane(number)), |_| ());
                };
                for task in tasks.iter().flatten() {
                    match task {
                        Task::Run(slice) => run(&slice),
                        Task::Meet(meeting) if meeting.arrive() => {
                            run(meeting.slice());
                            meeting.end();
                        }
                        Task::Meet(meeting) => meeting.wait(),
                    }
                }
            });
        }
        let mut router = Router::new(&shared, lanes);
        let mut reader = Reader::new(file);
        while let Ok(Next::Batch(batch)) = reader.next_batch() {
            let batch = Arc::new(batch);
            for piece in pieces(&batch, &mut Rng::new(7)) {
                let send = |routed: Routed<'_, Batch>| {
                    let Routed::Tasks(tasks) = routed else { return };
                    senders
                        .iter()
                        .zip(tasks)
                        .for_each(|(sender, tasks)| sender.send(tasks).expect("it runs"));
                };
                router.route(&batch, piece, send).expect("commands that exist");
            }
        }
    });
    of_keyspace(&shared.keyspace)
}

fn stats(shared: &Shared) -> Box<ThreadStats> {
    Box::new(ThreadStats::new(shared.table.id_count()).into_inner())
}

fn encode(file: &mut Vec<u8>, words: &[Vec<u8>]) {
    let owned = OwnedArgs::new(words.iter().map(Vec::as_slice));
    owned.args(&keyspace::Hasher::with_seed([0; 4])).encode(file);
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A generator of random commands as text. They include expiry times and several databases.
struct Commands<'s> {
    shared: &'s Shared,
    grammar: Grammar,
    /// Percentage of commands with several keys, or with none, that the generator keeps. It drops
    /// the others.
    of_many_keys_percent: usize,
    stream_clock: u64,
}

impl Commands<'_> {
    fn next(&mut self, rng: &mut Rng) -> Words {
        let dbs = |rng: &mut Rng| [rng.below(3), rng.below(3)];
        let [a, b] = dbs(rng);
        let key = |rng: &mut Rng| *rng.pick(&["s1", "s2", "l1", "h1", "z1", "e1", "k1", "k2"]);
        match rng.below(1000) {
            0..30 => words(&format!("SELECT {a}")),
            30..32 => words(&format!("SWAPDB {a} {b}")),
            32..34 => words(["FLUSHDB", "FLUSHALL", "FLUSHDB ASYNC"][rng.below(3)]),
            34..60 => words(&format!("MOVE {} {a}", key(rng))),
            60..70 => words(&format!("COPY {} {} DB {a} REPLACE", key(rng), key(rng))),
            70..80 => words(&format!("RENAME {} {}", key(rng), key(rng))),
            80..110 => words(&format!("PEXPIREAT {} {}", key(rng), 1_000_000_000 + rng.below(900_000_000))),
            110..130 => words(&format!("INCRBY k{} {}", rng.below(50), rng.below(9))),
            _ => self.of_grammar(rng),
        }
    }

    fn of_grammar(&mut self, rng: &mut Rng) -> Words {
        loop {
            let words = self.grammar.command(Kind::Data, &mut self.stream_clock, rng);
            let owned = OwnedArgs::new(words.iter().map(Vec::as_slice));
            let args = owned.args(self.shared.keyspace.hasher());
            let Some(registered) = command(self.shared, &args) else { continue };
            let keys = RequestKeys::find(registered, &args).as_slice().len();
            if keys == 1 || rng.percent(self.of_many_keys_percent) {
                return words;
            }
        }
    }
}

/// Returns the command of a request that the router of a replay accepts; `None` for other requests.
fn command(shared: &Shared, args: &Args<'_>) -> Option<&'static Registered> {
    let found = shared.table.find(args.get(0))?;
    let is_container = !found.subcommands.is_empty() && args.len() > 1;
    let registered = if is_container { found.subcommand(args.get(1))? } else { found };
    registered.command.accepts(args.len()).then_some(registered)
}

/// Generates an append-only file of random commands, some of them in transactions.
fn file(seed: u64) -> Vec<u8> {
    let (shared, _) = engine();
    let rng = &mut Rng::new(seed);
    // SPOP has a random result, which would differ between replays. Append-only files do not
    // contain it.
    let is_wanted = |name: &str| name != "SPOP" && shared.table.find(name.as_bytes()).is_some();
    let of_many_keys_percent = *rng.pick(&[1, 5, 100]);
    let grammar = Grammar::new(is_wanted);
    let mut commands = Commands { shared: &shared, grammar, of_many_keys_percent, stream_clock: 1 };
    let mut file = Vec::new();
    for _ in 0..COMMANDS {
        if rng.percent(4) {
            encode(&mut file, &words("MULTI"));
            (0..rng.below(6)).for_each(|_| encode(&mut file, &commands.next(rng)));
            encode(&mut file, &words("EXEC"));
        }
        encode(&mut file, &commands.next(rng));
    }
    file
}

fn first_difference(a: &Contents, b: &Contents) -> String {
    let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let other = keys.into_iter().find(|key| a.get(*key) != b.get(*key)).expect("they differ");
    format!("{:?}: {:?} and {:?}", (other.0, other.1.escape_ascii().to_string()), a.get(other), b.get(other))
}

#[test]
fn any_number_of_lanes_makes_of_a_file_what_one_makes_of_it() {
    let mut keys = 0;
    for seed in 0..RUNS {
        let (file, rng) = (file(seed), &mut Rng::new(seed));
        let lanes = 2 + rng.below(LANES_MAX - 1);
        let (expected, expected_errors) = replay(&file, 1, rng);
        let (contents, errors) = replay(&file, lanes, rng);
        assert!(
            contents == expected,
            "seed {seed}, {lanes} lanes: {}",
            first_difference(&contents, &expected)
        );
        assert_eq!(errors, expected_errors, "seed {seed}, {lanes} lanes");
        let contents = replay_on_threads(&file, lanes);
        assert!(
            contents == expected,
            "seed {seed}, {lanes} threads: {}",
            first_difference(&contents, &expected)
        );
        keys += expected.len();
    }
    assert!(keys > 10 * RUNS as usize, "{keys}");
}

/// A reader of a change log that collects its bytes.
struct Kept(Arc<Mutex<Vec<u8>>>);

impl LogReader for Kept {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut bytes = self.0.lock().expect("no panic");
        batch.for_each_part(LogTarget::File, |part| bytes.extend_from_slice(part));
        Released::at(batch.position)
    }
}

/// Runs random requests on an engine while time advances. Returns its data and the bytes of its
/// change log.
fn logged(seed: u64) -> (Contents, Vec<u8>) {
    let (shared, clock) = engine();
    let rng = &mut Rng::new(seed);
    let bytes = Arc::default();
    let kept = || (Box::new(Kept(Arc::clone(&bytes))) as _, LogTarget::File);
    shared
        .gate
        .exclusive(|alone| shared.log.attach(alone, kept(), &Outbox::default()))
        .expect("there is room");
    let mut engine = Engine::new(Executor::new(&shared, Some(0), seed, (clock.clone(), SelectHost)));
    let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
    let place = Place { thread: 0, conn: ConnId::new(0, 1), fd: -1 };
    let info = Arc::new(ClientInfo::new(1, place, (address(), address()), 0));
    let mut session = Session::new(info, Identity::internal());
    let grammar = Grammar::new(|name| {
        shared.table.find(name.as_bytes()).is_some_and(|it| it.command.flags.contains(Flags::WRITE))
    });
    let of_many_keys_percent = *rng.pick(&[1, 5, 100]);
    let mut commands = Commands { shared: &shared, grammar, of_many_keys_percent, stream_clock: 1 };
    for _ in 0..COMMANDS {
        clock.advance(Duration::from_secs(rng.below(900) as u64));
        let mut requests = vec![commands.next(rng)];
        if rng.percent(10) {
            requests.insert(0, words("MULTI"));
            requests.extend([commands.next(rng), commands.next(rng), words("EXEC")]);
        }
        for words in requests {
            let owned = OwnedArgs::new(words.iter().map(Vec::as_slice));
            let args = owned.args(shared.keyspace.hasher());
            let incoming = Incoming { registered: shared.table.find(args.get(0)), args };
            let mut pass = shared.gate.shared(0);
            engine.begin(clock.now());
            engine.run(&mut session, &incoming, &mut ByteQueue::new(), &mut pass);
            engine.executor.end_turn();
            drop(pass);
            // A client that blocks continues at once, because no other client could serve it.
            session.flow = engine::session::Flow::Running;
        }
    }
    shared.log.merge(&Outbox::default());
    let log = std::mem::take(&mut *bytes.lock().expect("no panic"));
    (of_keyspace(&shared.keyspace), log)
}

#[test]
fn a_replayed_change_log_is_the_keyspace_it_is_of() {
    for seed in 0..RUNS {
        let rng = &mut Rng::new(seed);
        let (expected, log) = logged(seed);
        let lanes = 1 + rng.below(LANES_MAX);
        let (contents, errors) = replay(&log, lanes, rng);
        assert!(
            contents == expected,
            "seed {seed}, {lanes} lanes: {}",
            first_difference(&contents, &expected)
        );
        assert_eq!(errors, [], "seed {seed}, {lanes} lanes");
    }
}

/// Replays the commands in `lines`. Returns the resulting strings and the errors.
fn check(lines: &str) -> (Vec<String>, Vec<String>) {
    let mut file = Vec::new();
    lines.lines().for_each(|line| encode(&mut file, &words(line)));
    let (contents, errors) = replay(&file, 3, &mut Rng::new(1));
    let told =
        |((db, key), value): (&(usize, Vec<u8>), &String)| format!("{db} {} {value}", key.escape_ascii());
    (contents.iter().map(told).collect(), errors.into_iter().map(|(_, error)| error).collect())
}

#[test]
fn what_is_past_its_time_is_kept_and_seen() {
    let lines = "SET a 1 PXAT 1000\nINCR a\nSET b 1\nPEXPIREAT b 1000\nRENAME b c\nRANDOMKEY\nKEYS *";
    let (contents, errors) = check(lines);
    assert_eq!((contents.len(), errors.len()), (2, 0), "{contents:?}");
    assert!(contents.iter().all(|key| key.contains("1000")), "{contents:?}");
    assert!(contents[0].contains('2'), "{contents:?}");
}

#[test]
fn forms_that_only_clients_are_refused_are_accepted() {
    // Redis records the `~` of a trim as `=` and leaves its LIMIT.
    let lines = "XADD s 1-1 f v\nXADD s MAXLEN = 1 LIMIT 5 1-2 f v\nXTRIM s MAXLEN = 0 LIMIT 1\nSET a 1";
    let (contents, errors) = check(lines);
    assert_eq!((contents.len(), errors), (2, Vec::new()), "{contents:?}");
}

#[test]
fn errors_are_reported_and_the_next_command_runs() {
    let (contents, errors) = check("SET a 1\nLPUSH a x\nDISCARD\nSELECT 99\nSELECT 2\nSET b 2");
    assert_eq!(contents.len(), 2, "{contents:?}");
    assert!(contents[1].starts_with("2 b "), "{contents:?}");
    let expected = [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR DISCARD without MULTI",
        "ERR DB index is out of range",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn what_no_server_of_this_kind_wrote_is_refused_with_its_place() {
    let (shared, _) = engine();
    let refused = |line: &str| {
        let mut file = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n".to_vec();
        encode(&mut file, &words(line));
        let Ok(Next::Batch(batch)) = Reader::new(&file[..]).next_batch() else { panic!("requests") };
        let count = batch.len();
        let routed = Router::new(&shared, 2).route(&Arc::new(batch), 0..count, |_| panic!("nothing is run"));
        routed.expect_err("it is refused")
    };
    let expected = |name: &str, why| NotRouted { offset: 27, name: name.into(), why };
    assert_eq!(refused("NOSUCH x"), expected("NOSUCH", Unroutable::UnknownCommand));
    assert_eq!(refused("XGROUP NOSUCH x"), expected("XGROUP", Unroutable::UnknownCommand));
    assert_eq!(refused("set a"), expected("set", Unroutable::WrongArity));
    assert_eq!(refused("NOSUCH x").to_string(), "Unknown command 'NOSUCH'");
}

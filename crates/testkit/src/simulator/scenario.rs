//! Scenarios: the server's settings and the list of steps of each client, all generated from a
//! seed. A failing scenario can be reduced by removing parts of these lists.

use std::fmt;

use engine::log::level::Level;
use engine::publish::notify::Notifications;
use engine::settings::Settings;
use persist::aof::writer::{SyncPolicy, Times};
use resp::Value;

use super::targeted::targeted_script;
use crate::history::scripts::{Reach, length, script};
use crate::history::sessions::{Call, Script};
use crate::history::{Choices, Mix, Recording};
use crate::programs::shown;
use crate::{Address, Rng};

/// A command and its arguments.
pub type Args = Vec<Vec<u8>>;

/// The kind of workload, which determines the commands and the checks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands with one key. Checked: the replies form a linearizable history.
    SingleKey,
    /// Commands with one key, several keys, or whole databases. Checked: the replies form a
    /// linearizable history.
    MultiKey,
    /// Transactions, WATCH and blocking commands. Checked: the replies form a linearizable history,
    /// and blocked clients are served oldest first.
    Sessions,
    /// BLMOVE and similar commands. Checked: the replies form a linearizable history.
    Moves,
    /// Clients that block without a timeout. Checked: every client for which there is an element is
    /// served, oldest first.
    Queue,
    /// Every kind of change: expiry of keys and fields, eviction, FLUSHALL, SWAPDB. Some clients
    /// disconnect before their replies. Checked: the replayed log equals the data.
    Everything,
    /// Listeners: keyspace events, published messages and client-side caches, with concurrent
    /// writers.
    Listeners,
}

impl Kind {
    const ALL: &[Self] = &[
        Self::SingleKey,
        Self::MultiKey,
        Self::Sessions,
        Self::Sessions,
        Self::Moves,
        Self::Queue,
        Self::Everything,
        Self::Everything,
        Self::Listeners,
    ];

    /// Returns true if the replies are checked against the model of Redis (linearizability).
    pub fn is_modelled(self) -> bool {
        !matches!(self, Self::Everything | Self::Listeners)
    }
}

/// One step of a simulated client, such as a pipeline or a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The client sends these commands at once and waits for the replies.
    Pipeline(Vec<Args>),
    /// The client runs these commands as a transaction: MULTI, the commands, EXEC. [`Sending`]
    /// decides when EXEC is sent.
    Transaction(Vec<Args>, Sending),
    /// The client runs a blocking command, which the model treats as two operations: its beginning
    /// and its end.
    Wait(Args),
    /// The client closes its connection and opens another, on any thread.
    Reconnect,
    /// The client sends these commands and disconnects without waiting for the replies. The last
    /// bytes may be missing.
    Abandon(Vec<Args>),
}

/// The time at which the EXEC of a transaction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// EXEC is sent in one piece with the other requests of the transaction.
    Together,
    /// EXEC is sent after the replies to the other requests of the transaction have arrived.
    ExecApart,
}

/// The role of a client in addition to its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A client without another role: it only runs its steps.
    Plain,
    /// A client that subscribes to keyspace events and to a channel. At each event of an increment,
    /// it reads the value of the key.
    Listener,
    /// A client that caches each value that it reads, until the server sends its invalidation.
    Cache,
}

/// A simulated client of a scenario: its steps and its role.
#[derive(Clone, Debug)]
pub struct ScriptedClient {
    /// The role of the client in addition to its steps.
    pub role: Role,
    /// The steps of the client, in the order in which it runs them.
    pub steps: Vec<Step>,
    /// The level, written or synced, that a change must reach before the client's replies to it are
    /// sent. With an append-only file it is always [`Level::Written`], whose meaning depends on
    /// `appendfsync`.
    pub level: Level,
}

impl ScriptedClient {
    fn new(role: Role, steps: Vec<Step>) -> Self {
        Self { role, steps, level: Level::Written }
    }
}

/// The destination of the change log's records in a run of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The change log has no reader: changes are not recorded.
    Nowhere,
    /// A simulated disk that keeps the change log as one sequence of bytes.
    Disk,
    /// The change log is written to an append-only file.
    AppendOnly(AppendOnly),
}

/// The settings of an append-only file in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOnly {
    /// The policy by which the file is synced (`appendfsync`).
    pub policy: SyncPolicy,
    /// The setting for timestamps in the file (`aof-timestamp-enabled`).
    pub times: Times,
    /// True if the run never changes the options of the append-only file.
    pub is_steady: bool,
    /// True if the simulated disk of the append-only file sometimes fails.
    pub has_faults: bool,
    /// The number of lives (runs of the server process). Each life begins with the files that a
    /// crash has left at a moment of the life before.
    pub lives: usize,
}

impl AppendOnly {
    fn new(kind: Kind, rng: &mut Rng) -> Self {
        let policies = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];
        // The model does not know commands that are refused within a transaction.
        let may_fail = matches!(kind, Kind::SingleKey | Kind::MultiKey | Kind::Everything);
        Self {
            policy: *rng.pick(&policies),
            times: *rng.pick(&[Times::Left, Times::Written]),
            is_steady: rng.percent(60),
            has_faults: rng.percent(60) && may_fail,
            lives: 1 + rng.below(4),
        }
    }
}

/// All settings and simulated clients of a run: see the module.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of the random choices of threads and of the clients' values.
    pub seed: u64,
    /// The seed of the order in which threads continue and bytes arrive.
    pub schedule: u64,
    /// The kind of workload, which determines the commands and the checks.
    pub kind: Kind,
    /// The number of I/O threads of the engine.
    pub threads: usize,
    /// The destination of the change log's records: none, a disk or an append-only file.
    pub log: Log,
    /// True if snapshots are saved during the run.
    pub has_saves: bool,
    /// The clients that send requests during the run.
    pub players: Vec<ScriptedClient>,
}

/// Templates of the commands of [`Kind::Everything`]. Placeholders: `k` is any key; `l`, `z`, `h`,
/// `x` are mostly keys of a list, sorted set, hash, stream. `v` is a new value, `d` a small number,
/// `m` a member or field, `p` milliseconds, `t` a timeout in seconds, `b` a database.
const EVERYTHING: &[&str] = &[
    "SET k v",
    "SET k v PX p",
    "SET k v KEEPTTL",
    "GET k",
    "GETEX k PX p",
    "INCR k",
    "APPEND k v",
    "DEL k k",
    "UNLINK k",
    "RENAME k k",
    "COPY k k REPLACE",
    "PEXPIRE k p",
    "PEXPIRE k p NX",
    "PERSIST k",
    "MSET k v k v",
    "LPUSH l v v",
    "RPUSH l v",
    "LPOP l",
    "LMOVE l l LEFT RIGHT",
    "BLPOP l l t",
    "BLMOVE l l LEFT RIGHT t",
    "BZPOPMIN z t",
    "HSET h m v m v",
    "HSET h m v",
    "HPEXPIRE h p FIELDS 1 m",
    "HPEXPIRE h p FIELDS 2 m m",
    "HPERSIST h FIELDS 1 m",
    "HDEL h m",
    "HGETALL h",
    "HINCRBY h m d",
    "SADD k m m",
    "SREM k m",
    "SPOP k",
    "SUNIONSTORE k k k",
    "ZADD z d m d m",
    "ZPOPMAX z",
    "ZUNIONSTORE z 2 z k",
    "XADD x * m v",
    "XADD x MAXLEN ~ 3 * m v",
    "XGROUP CREATE x g $ MKSTREAM",
    "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "SETRANGE k d v",
    "SETBIT k d 1",
    "PFADD k m v",
    "SORT k BY nosort STORE k",
    "KEYS *",
    "SELECT b",
];

/// Templates of commands that are rarely sent; most of them act on whole databases.
const RARE: &[&str] = &["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "WATCH k k", "UNWATCH", "FLUSHALL ASYNC"];

/// Templates for CLIENT PAUSE, which stops the writes of all clients, and CLIENT UNPAUSE.
const PAUSES: &[&str] = &["PAUSE p", "UNPAUSE"];

/// Templates of the writers' commands of [`Kind::Listeners`]. Placeholders: `c` is a counter, which
/// is only incremented; `q` is a key in a client-side cache; `n` is a new message.
const WRITERS: &[&str] =
    &["INCR c", "INCR c", "SET q v", "SET q v PX p", "DEL q", "MSET q v q v", "PUBLISH news n", "GET q"];

/// Templates of the commands that writers run within scripts.
const WRITERS_IN_SCRIPTS: &[&str] =
    &["INCR c", "INCR c", "SET q v", "SET q v PX p", "DEL q", "GET c", "GET q"];

/// Templates of scripts in two parts. The first part changes a key in place, also an expired one.
/// The second part needs keys that the script has not declared.
const CHANGERS: &[[&str; 2]] = &[
    ["GET k", "APPEND k v"],
    ["GET k", "SETBIT k d 1"],
    ["GET k", "PERSIST k"],
    ["HGETALL h", "HSET h m v"],
];
const ENDS: &[&str] = &["KEYS *", "GET k", "HGETALL h", "DEL k k"];

/// Percentages of calls that are scripts, from which each scenario draws one.
const SCRIPTS_PERCENT: &[usize] = &[0, 15, 40, 80];

/// The length of a long word in bytes. One such word makes a collection so big that it is saved in
/// pieces.
const LONG_WORD_BYTES: usize = 66_000;
/// Values of the placeholder `p` in command templates: expiries in milliseconds.
const EXPIRIES: &[&str] = &["1", "3", "10", "40", "150"];
/// Values of the placeholder `t` in command templates: timeouts in seconds.
const TIMEOUTS: &[&str] = &["0.001", "0.005", "0.02", "0.06"];

impl Scenario {
    /// Creates the scenario of a seed with about `operations` operations.
    pub fn new(seed: u64, operations: usize) -> Self {
        let mut rng = Rng::new(seed);
        let kind = *rng.pick(Kind::ALL);
        let threads = 1 + rng.below(3);
        let clients = 2 + rng.below(if kind == Kind::Sessions { 4 } else { 5 });
        let steps = (operations / clients).max(1);
        let keys = 1 + rng.below(if kind == Kind::Everything { 6 } else { 3 });
        let scripts_percent = *rng.pick(SCRIPTS_PERCENT);
        let size = Size { clients, steps, keys, scripts_percent };
        let players = match kind {
            Kind::SingleKey => single_keys(seed, Mix::SingleKey, size, &mut rng),
            Kind::MultiKey => single_keys(seed, Mix::MultiKey, size, &mut rng),
            Kind::Sessions => sessions(seed, Mix::Sessions, size, &mut rng),
            Kind::Moves => sessions(seed, Mix::Moves, size, &mut rng),
            Kind::Queue => queues(size, &mut rng),
            Kind::Everything => everything(size, &mut rng),
            Kind::Listeners => listeners(size, &mut rng),
        };
        let schedule = rng.next_u64();
        let log = match rng.below(10) {
            0..4 => Log::AppendOnly(AppendOnly::new(kind, &mut rng)),
            4..8 => Log::Disk,
            _ => Log::Nowhere,
        };
        let has_saves = rng.percent(if kind == Kind::Everything { 60 } else { 20 });
        let players = match kind {
            Kind::Everything if has_saves => with_long_words(players, &mut rng),
            _ => players,
        };
        let players = match log {
            Log::Disk => with_levels(players, &mut rng),
            _ => players,
        };
        // The files of other scenarios hold no keys of single targets.
        let players = match (kind, log) {
            (Kind::Everything, Log::Disk) if !has_saves => with_targets(players, &mut rng),
            _ => players,
        };
        Self { seed, schedule, kind, threads, log, has_saves, players }
    }

    /// Returns the settings of the engine in this scenario of the simulator.
    pub(super) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        if self.kind == Kind::Listeners || self.seed.is_multiple_of(4) {
            settings.notifications = Notifications::parse(b"AKE");
        }
        settings
    }

    /// Returns a scenario for life (run of the server process) number `life`: each client has only
    /// its share of the steps.
    pub(super) fn life(&self, life: usize) -> Self {
        let Log::AppendOnly(AppendOnly { lives, .. }) = self.log else { return self.clone() };
        let part = |scripted_client: &ScriptedClient| {
            let len = scripted_client.steps.len();
            let steps = scripted_client.steps[life * len / lives..(life + 1) * len / lives].to_vec();
            ScriptedClient { steps, ..*scripted_client }
        };
        let players = self.players.iter().map(part).collect();
        let other = |seed: u64| seed.wrapping_add(life as u64 * 0x9e37_79b9);
        Self { seed: other(self.seed), schedule: other(self.schedule), players, ..self.clone() }
    }

    /// Returns the number of operations of all clients together.
    pub fn operations(&self) -> usize {
        let of = |step: &Step| match step {
            Step::Pipeline(commands) | Step::Abandon(commands) => commands.len(),
            Step::Transaction(..) | Step::Wait(_) => 1,
            Step::Reconnect => 0,
        };
        self.players.iter().flat_map(|scripted_client| &scripted_client.steps).map(of).sum()
    }
}

/// The size of a generated scenario: numbers of clients, steps and keys.
#[derive(Clone, Copy)]
struct Size {
    clients: usize,
    /// The approximate number of steps of each client.
    steps: usize,
    /// The number of keys of each kind that clients use.
    keys: usize,
    /// The approximate percentage of calls that are scripts, see [`SCRIPTS_PERCENT`].
    scripts_percent: usize,
}

fn words(line: &str) -> Args {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn recording(seed: u64, mix: Mix, (keys, scripts_percent): (usize, usize)) -> Recording {
    let (address, without) = (Address::port(0), Vec::new());
    Recording { address, clients: 0, commands_each: 0, keys, mix, without, scripts_percent, seed }
}

/// Inserts a reconnection before 2 % of the steps.
fn with_reconnections(steps: Vec<Step>, rng: &mut Rng) -> Vec<Step> {
    let mut all = Vec::new();
    for step in steps {
        if rng.percent(2) {
            all.push(Step::Reconnect);
        }
        all.push(step);
    }
    all
}

fn single_keys(seed: u64, mix: Mix, size: Size, rng: &mut Rng) -> Vec<ScriptedClient> {
    let Size { clients, steps, keys, scripts_percent } = size;
    let recording = recording(seed, mix, (keys, scripts_percent));
    let scripted_client = |client| {
        let mut choices = Choices::new(&recording, client);
        let mut sent = 0;
        let mut all = Vec::new();
        while sent < steps {
            let commands: Vec<_> = (0..1 + rng.below(4)).map(|_| choices.command()).collect();
            sent += commands.len();
            all.push(Step::Pipeline(commands));
        }
        ScriptedClient::new(Role::Plain, with_reconnections(all, rng))
    };
    (0..clients).map(scripted_client).collect()
}

fn sessions(seed: u64, mix: Mix, size: Size, rng: &mut Rng) -> Vec<ScriptedClient> {
    let Size { clients, steps, keys, scripts_percent } = size;
    let recording = recording(seed, mix, (keys, scripts_percent));
    let scripted_client = |client| {
        let mut script = Script::new(&recording, client);
        // The value from which an increment starts is not known before the run. Any number will do,
        // so each increment starts from a different one.
        let step = |at: usize| match script.next(&Value::Bulk((1000 * client + at).to_string().into())) {
            Call::Command(args) => Step::Pipeline(vec![args]),
            Call::Wait(args) => Step::Wait(args),
            Call::Transaction(commands) => {
                let sending = if rng.percent(50) { Sending::Together } else { Sending::ExecApart };
                Step::Transaction(commands, sending)
            }
        };
        let all = (0..steps).map(step).collect();
        ScriptedClient::new(Role::Plain, with_reconnections(all, rng))
    };
    (0..clients).map(scripted_client).collect()
}

/// Generates clients that block without a timeout, and one client that pushes as many elements as
/// all of them pop.
fn queues(size: Size, rng: &mut Rng) -> Vec<ScriptedClient> {
    let Size { clients, steps, keys, scripts_percent } = size;
    let mut pushes = Vec::new();
    let mut players = Vec::new();
    for _ in 1..clients {
        let mut steps_of_one = Vec::new();
        for _ in 0..steps.div_ceil(2) {
            let keys: Vec<usize> = (0..1 + rng.below(2)).map(|_| rng.below(keys)).collect();
            let names: Vec<String> = keys.iter().map(|key| format!("list:{key}")).collect();
            let verb = rng.pick(&["BLPOP", "BRPOP"]);
            steps_of_one.push(Step::Wait(words(&format!("{verb} {} 0", names.join(" ")))));
            // Each named key receives one element, so that a client that takes from one key leaves
            // enough for the others.
            pushes.extend(keys);
        }
        players.push(ScriptedClient::new(Role::Plain, steps_of_one));
    }
    rng.shuffle(&mut pushes);
    let mut steps_of_pusher = Vec::new();
    for (number, key) in pushes.into_iter().enumerate() {
        let mut push = words(&format!("{} list:{key} v{number}", rng.pick(&["RPUSH", "LPUSH"])));
        if rng.percent(scripts_percent) {
            push = script(vec![push], Reach::Plain, &mut chance(rng));
        }
        steps_of_pusher.push(match rng.below(5) {
            0 => Step::Transaction(vec![push], Sending::Together),
            _ => Step::Pipeline(vec![push]),
        });
    }
    players.push(ScriptedClient::new(Role::Plain, steps_of_pusher));
    players
}

/// Creates a random generator of the type that the shared code for histories expects.
fn chance(rng: &mut Rng) -> fastrand::Rng {
    fastrand::Rng::with_seed(rng.next_u64())
}

/// A generator that replaces the placeholders of command templates by random values.
struct Forms<'r> {
    rng: &'r mut Rng,
    keys: usize,
    client: usize,
    values: usize,
    published: usize,
}

impl Forms<'_> {
    /// Generates a command from a random template in `forms`, or a script of such commands. A
    /// script may also run commands from `further`.
    fn call(&mut self, forms: &[&str], further: &[&str], scripts_percent: usize) -> Args {
        if !self.rng.percent(scripts_percent) {
            return self.command(forms);
        }
        let mut chance = chance(self.rng);
        let mut commands: Vec<Args> = (0..length(&mut chance)).map(|_| self.command(forms)).collect();
        if !further.is_empty() && self.rng.percent(20) {
            commands = self.rng.pick(CHANGERS).map(|form| self.command(&[form])).into();
            commands[1][1] = commands[0][1].clone();
            commands.push(self.command(ENDS));
        } else if !further.is_empty() && self.rng.percent(3) {
            commands.push(self.command(further));
        }
        script(commands, Reach::Among(self.keys), &mut chance)
    }

    fn command(&mut self, forms: &[&str]) -> Args {
        let form = *self.rng.pick(forms);
        form.split(' ').map(|word| self.argument(word).into_bytes()).collect()
    }

    fn argument(&mut self, kind: &str) -> String {
        let Self { rng, keys, client, .. } = self;
        match kind {
            // Sometimes a key is used as another type.
            "l" | "z" | "h" | "x" if rng.percent(85) => format!("{kind}:{}", rng.below(*keys)),
            "k" if rng.percent(50) => format!("{}:{}", rng.pick(&["l", "z", "h", "x"]), rng.below(*keys)),
            "k" | "l" | "z" | "h" | "x" => format!("key:{}", rng.below(*keys)),
            "q" => format!("cached:{}", rng.below(*keys)),
            "c" => format!("counter:{}", rng.below(*keys)),
            "v" => {
                self.values += 1;
                format!("c{client}v{}", self.values)
            }
            "n" => {
                self.published += 1;
                format!("{client}:{}", self.published)
            }
            "d" => rng.below(9).to_string(),
            "m" => format!("m{}", rng.below(5)),
            "b" => rng.below(2).to_string(),
            "p" => (*rng.pick(EXPIRIES)).to_owned(),
            "t" => (*rng.pick(TIMEOUTS)).to_owned(),
            literal => literal.to_owned(),
        }
    }
}

fn everything(size: Size, rng: &mut Rng) -> Vec<ScriptedClient> {
    let Size { clients, steps, keys, scripts_percent } = size;
    let scripted_client = |client| {
        let mut forms = Forms { rng, keys, client, values: 0, published: 0 };
        let mut all = Vec::new();
        for _ in 0..steps {
            let count = 1 + forms.rng.below(3);
            let mut commands: Vec<_> =
                (0..count).map(|_| forms.call(EVERYTHING, RARE, scripts_percent)).collect();
            all.push(match forms.rng.below(100) {
                0 => Step::Abandon(commands),
                1 => Step::Reconnect,
                2..6 => Step::Pipeline(vec![forms.command(RARE)]),
                6..8 => Step::Pipeline(vec![forms.command(PAUSES)]),
                8..20 => {
                    commands.retain(|command| command[0] != b"SELECT");
                    Step::Transaction(commands, Sending::Together)
                }
                20..35 => Step::Pipeline(commands),
                _ => Step::Pipeline(vec![commands.swap_remove(0)]),
            });
        }
        ScriptedClient::new(Role::Plain, all)
    };
    (0..clients).map(scripted_client).collect()
}

/// Replaces some members and values of [`Kind::Everything`] by long words, so that their
/// collections are saved in pieces.
fn with_long_words(mut players: Vec<ScriptedClient>, rng: &mut Rng) -> Vec<ScriptedClient> {
    let mut lengthen = |args: &mut Args| {
        if matches!(&args[0][..], b"HSET" | b"SADD" | b"ZADD") && rng.percent(40) {
            args.last_mut().expect("it has arguments").resize(LONG_WORD_BYTES, b'x');
        }
    };
    for step in players.iter_mut().flat_map(|scripted_client| &mut scripted_client.steps) {
        if let Step::Pipeline(commands) | Step::Transaction(commands, _) = step {
            commands.iter_mut().for_each(&mut lengthen);
        }
    }
    players
}

/// Makes most clients wait for replies until the changes are synced.
fn with_levels(mut players: Vec<ScriptedClient>, rng: &mut Rng) -> Vec<ScriptedClient> {
    for scripted_client in &mut players {
        if rng.percent(70) {
            scripted_client.level = Level::Synced;
        }
    }
    players
}

/// Inserts scripts that write only for chosen targets of the change log (`redis.set_repl`).
fn with_targets(mut players: Vec<ScriptedClient>, rng: &mut Rng) -> Vec<ScriptedClient> {
    for step in players.iter_mut().flat_map(|scripted_client| &mut scripted_client.steps) {
        if let Step::Pipeline(commands) | Step::Transaction(commands, _) = step
            && rng.percent(20)
        {
            commands.insert(rng.below(commands.len() + 1), targeted_script(rng));
        }
    }
    players
}

fn listeners(size: Size, rng: &mut Rng) -> Vec<ScriptedClient> {
    let Size { clients, steps, keys, scripts_percent } = size;
    let scripted_client = |client| {
        let role = [Role::Listener, Role::Cache, Role::Plain][client % 3];
        let mut forms = Forms { rng, keys, client, values: 0, published: 0 };
        let all = (0..steps).map(|_| {
            if role != Role::Listener && forms.rng.percent(15) {
                return Step::Pipeline((0..4).map(|_| forms.command(&["PUBLISH news n"])).collect());
            }
            Step::Pipeline(vec![match role {
                Role::Plain if forms.rng.percent(scripts_percent) => forms.call(WRITERS_IN_SCRIPTS, &[], 100),
                Role::Plain => forms.command(WRITERS),
                Role::Listener => forms.command(&["GET c"]),
                Role::Cache => forms.command(&["GET q", "GET q", "GET q", "SET q v"]),
            }])
        });
        ScriptedClient::new(role, all.collect())
    };
    (0..clients + 1).map(scripted_client).collect()
}

/// Formats a command and its arguments on one line.
fn line(args: &Args) -> String {
    let word = |arg: &[u8]| match arg.len() {
        LONG_WORD_BYTES => format!("{}… ({LONG_WORD_BYTES} bytes)", arg[..8].escape_ascii()),
        _ => arg.escape_ascii().to_string(),
    };
    shown(args).into_iter().map(word).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = |commands: &[Args]| commands.iter().map(line).collect::<Vec<_>>().join("; ");
        match self {
            Self::Pipeline(commands) => write!(f, "{}", lines(commands)),
            Self::Transaction(commands, Sending::Together) => write!(f, "MULTI; {}; EXEC", lines(commands)),
            Self::Transaction(commands, Sending::ExecApart) => {
                write!(f, "MULTI; {} … EXEC", lines(commands))
            }
            Self::Wait(args) => write!(f, "{}", line(args)),
            Self::Reconnect => f.write_str("reconnects"),
            Self::Abandon(commands) => write!(f, "{}; is gone", lines(commands)),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, schedule, kind, threads, log, has_saves, .. } = self;
        let disk = match log {
            Log::Nowhere => "without a disk".to_owned(),
            Log::Disk => "with a disk".to_owned(),
            Log::AppendOnly(options) => format!("with {options:?}"),
        };
        let saves = if *has_saves { ", with saves" } else { "" };
        writeln!(f, "{kind:?}, {threads} threads, {disk}{saves}; seed {seed}, schedule {schedule}")?;
        for (client, scripted_client) in self.players.iter().enumerate() {
            let ScriptedClient { role, level, .. } = scripted_client;
            writeln!(f, "client {client} ({role:?}, {level:?}):")?;
            scripted_client.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))?;
        }
        Ok(())
    }
}

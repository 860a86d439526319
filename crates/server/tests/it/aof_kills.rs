//! Kills of a server that writes an append-only file: acknowledged writes survive the restart, and
//! no transaction is incomplete.
//!
//! Each client writes its own keys in order. So the remaining data must be the result of its last
//! acknowledged write, or of a later write that was not acknowledged yet. `SAKER_KILLS=300` sets
//! another number of kills.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Client, Rng, ServerProcess, Value, saker};

use crate::support::{BINARY, signal};

/// Number of times that the test kills the server in CI.
const KILLS: u64 = 12;
const CLIENTS: usize = 4;
/// Maximum number of writes that a client sends at once.
const PIPELINE_MAX: usize = 20;
/// Maximum time by which replies may precede the write to the file. It applies with `everysec`
/// while a sync blocks the file.
const LAG_MAX: Duration = Duration::from_secs(2);
/// Maximum time until a rewrite of the append-only file has ended.
const WITHIN: Duration = Duration::from_secs(60);
const POLICIES: [&str; 3] = ["always", "everysec", "no"];

/// The options with which a server is started.
#[derive(Clone, Copy, Debug)]
struct Options {
    policy: &'static str,
    preamble: &'static str,
    stamps: &'static str,
    rests: &'static str,
    threads: &'static str,
}

impl Options {
    fn draw(rng: &mut Rng, kill: u64) -> Self {
        let yes_no = |rng: &mut Rng| *rng.pick(&["yes", "no"]);
        Self {
            policy: POLICIES[kill as usize % POLICIES.len()],
            preamble: yes_no(rng),
            stamps: yes_no(rng),
            rests: yes_no(rng),
            threads: *rng.pick(&["1", "2", "3"]),
        }
    }

    fn start(self, folder: &Path) -> ServerProcess {
        let dir = folder.to_str().expect("a name of text");
        let options = [
            ["--dir", dir],
            ["--save", ""],
            ["--appendonly", "yes"],
            ["--appendfsync", self.policy],
            ["--aof-use-rdb-preamble", self.preamble],
            ["--aof-timestamp-enabled", self.stamps],
            ["--no-appendfsync-on-rewrite", self.rests],
            ["--io-threads", self.threads],
            ["--auto-aof-rewrite-min-size", "200kb"],
            ["--enable-debug-command", "yes"],
        ];
        let server = saker::start_binary(BINARY, options.as_flattened())
            .unwrap_or_else(|error| panic!("{self:?}: {error}"));
        server.wait_for_log("Ready to accept connections tcp");
        server
    }
}

/// The numbers of a client's last write that was sent, the last one that was acknowledged, and the
/// last one that must be in the append-only file.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The number of the client's last write that was sent.
    sent: i64,
    /// The number of the client's last write that was acknowledged.
    acknowledged: i64,
    /// The number of the last write that was acknowledged more than [`LAG_MAX`] before the latest
    /// acknowledgement. This write must be in the file even with `everysec`.
    durable: i64,
}

/// Returns the requests of a client's write with this number: a transaction and a single command.
fn requests(client: usize, number: i64) -> Vec<Vec<String>> {
    let (n, big) = (number.to_string(), if number % 40 == 0 { 20_000 } else { 30 });
    let key = |name: &str| format!("{name}{client}");
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    vec![
        words(&["MULTI"]),
        words(&["SELECT", &(client % 2).to_string()]),
        words(&["SET", &key("s"), &n]),
        words(&["SET", &key("big"), &format!("{n}:{}", "x".repeat(big))]),
        words(&["INCR", &key("i")]),
        words(&["RPUSH", &key("l"), &n]),
        words(&["HSET", &key("h"), &format!("f{}", number % 50), &n]),
        words(&["EXEC"]),
        words(&["INCR", &key("alone")]),
    ]
}

/// Writes until the server has ended. Records the acknowledged writes in `known` while `promises`
/// is true; it is false while the append-only file is off.
fn write(
    server: &ServerProcess,
    client: usize,
    known: &Mutex<Known>,
    promises: &AtomicBool,
    stop: &AtomicBool,
) {
    let Ok(mut connection) = Client::connect(&server.address()) else { return };
    let mut rng = Rng::new(client as u64 + 1);
    let mut number = known.lock().expect("no panic").sent;
    let mut recent: Vec<(Instant, i64)> = Vec::new();
    while !stop.load(Relaxed) {
        let (first, count) = (number, 1 + rng.below(PIPELINE_MAX) as i64);
        let holds = promises.load(Relaxed);
        let commands: Vec<_> =
            (first + 1..=first + count).flat_map(|number| requests(client, number)).collect();
        known.lock().expect("no panic").sent = first + count;
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| resp::encode_request(words, &mut bytes));
        if connection.send(&bytes).is_err() {
            return;
        }
        for at in 1..=count {
            let Ok(replies) = connection.read_many(requests(client, 1).len()) else { return };
            if replies.iter().any(Value::is_error) {
                panic!("client {client}: {replies:?}");
            }
            number = first + at;
            let now = Instant::now();
            recent.push((now, number));
            let old = recent.partition_point(|(when, _)| now.duration_since(*when) > LAG_MAX);
            let mut known = known.lock().expect("no panic");
            if holds && promises.load(Relaxed) {
                known.acknowledged = number;
                known.durable = old.checked_sub(1).map_or(known.durable, |last| recent[last].1);
            }
            recent.drain(..old.saturating_sub(1));
        }
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        Value::Bulk(text) => {
            let text = String::from_utf8_lossy(text);
            text.split(':').next().expect("there is always one").parse().expect("a number")
        }
        _ => 0,
    }
}

/// Returns the number of a client's last write in the data. Checks that no transaction is there
/// only partly.
fn found(connection: &mut Client, client: usize) -> Result<i64, String> {
    let mut ask = |words: &[&str]| connection.command(words);
    ask(&["SELECT", &(client % 2).to_string()]);
    let key = |name: &str| format!("{name}{client}");
    let set = number(&ask(&["GET", &key("s")]));
    let numbers = [
        ("big", number(&ask(&["GET", &key("big")]))),
        ("INCR", number(&ask(&["GET", &key("i")]))),
        ("RPUSH", number(&ask(&["LLEN", &key("l")]))),
        ("last element", number(&ask(&["LINDEX", &key("l"), "-1"]))),
        ("HSET", number(&ask(&["HGET", &key("h"), &format!("f{}", set % 50)]))),
    ];
    if numbers.iter().any(|(_, other)| *other != set) {
        let elements = ask(&["LRANGE", &key("l"), "0", "-1"]);
        let elements: Vec<i64> = match &elements {
            Value::Array(all) => &all[..],
            _ => &[],
        }
        .iter()
        .map(number)
        .collect();
        let gaps = elements.windows(2).filter(|pair| pair[1] != pair[0] + 1).map(|pair| (pair[0], pair[1]));
        let gaps: Vec<_> = gaps.collect();
        return Err(format!(
            "half a transaction, a gap or a duplicate: SET {set}, {numbers:?}, gaps {gaps:?}"
        ));
    }
    let alone = number(&ask(&["GET", &key("alone")]));
    match alone == set || alone == set - 1 {
        true => Ok(alone),
        false => Err(format!("out of order: {set} transactions, {alone} commands behind them")),
    }
}

fn field(client: &mut Client, field: &str) -> String {
    let Ok(Value::Bulk(text)) = client.request(&["INFO", "persistence"]) else { return String::new() };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Runs other commands, such as rewrites, while the clients write, until the kill.
fn disturb(server: &ServerProcess, rng: &mut Rng, promises: &AtomicBool) {
    let mut client = server.connect();
    let until = Instant::now() + Duration::from_millis(100 + rng.below(900) as u64);
    while Instant::now() < until {
        let words: &[&str] = match rng.below(8) {
            0 | 1 => &["BGREWRITEAOF"],
            2 => &["BGSAVE"],
            3 => &["CONFIG", "SET", "aof-timestamp-enabled", "yes"],
            4 if rng.percent(30) => {
                promises.store(false, Relaxed);
                client.command(&["CONFIG", "SET", "appendonly", "no"]);
                let reply = client.command(&["CONFIG", "SET", "appendonly", "yes"]);
                assert!(!reply.is_error(), "{reply}");
                if rng.percent(30) {
                    // The kill comes while the first base is written, or shortly after.
                    return std::thread::sleep(Duration::from_millis(rng.below(40) as u64));
                }
                let since = Instant::now();
                let is_on = |client: &mut Client| {
                    field(client, "aof_enabled") == "1"
                        // This is read first: a scheduled rewrite may start between the two.
                        && field(client, "aof_rewrite_scheduled") == "0"
                        && field(client, "aof_rewrite_in_progress") == "0"
                        && field(client, "aof_last_bgrewrite_status") == "ok"
                };
                while !is_on(&mut client) {
                    assert!(since.elapsed() < WITHIN, "the file is turned on: {}", server.log());
                }
                promises.store(true, Relaxed);
                &["PING"]
            }
            _ => &["PING"],
        };
        client.command(words);
        std::thread::sleep(Duration::from_millis(rng.below(60) as u64));
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let number_from = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let kills = number_from("SAKER_KILLS").unwrap_or(KILLS);
    let mut rng = Rng::new(number_from("PROPTEST_RNG_SEED").unwrap_or(7));
    let mut folder = tempfile::tempdir().expect("a scratch folder");
    // Keeps the files of a failed run.
    folder.disable_cleanup(std::env::var_os("SAKER_KILLS").is_some());
    let mut known = [Known::default(); CLIENTS];
    let (mut lagging, mut last_policy, mut writes) = ([0; POLICIES.len()], POLICIES[0], 0);
    for kill in 0..=kills {
        let options = Options::draw(&mut rng, kill);
        let server = options.start(folder.path());
        let mut connection = server.connect();
        let mut lost = 0;
        for (client, known) in known.iter_mut().enumerate() {
            let what =
                format!("kill {kill} under {last_policy}, then {options:?}, client {client}, {known:?}");
            let left = found(&mut connection, client).unwrap_or_else(|finding| panic!("{what}: {finding}"));
            assert!(left <= known.sent, "{what}: {left} is more than was written");
            let promised = if last_policy == "everysec" { known.durable } else { known.acknowledged };
            assert!(left >= promised, "{what}: only {left} are there");
            lost += known.acknowledged.saturating_sub(left).max(0);
            // A transaction without the following command: the client continues with that
            // command.
            connection.command(&["SET", &format!("alone{client}"), &left.to_string()]);
            if number(&connection.command(&["GET", &format!("s{client}")])) > left {
                connection.command(&["INCR", &format!("alone{client}")]);
            }
            let left = found(&mut connection, client).expect("it was checked");
            writes += left - known.durable.min(left);
            *known = Known { sent: left, acknowledged: left, durable: left };
        }
        let policy = POLICIES.iter().position(|policy| *policy == last_policy).expect("one of them");
        lagging[policy] += u64::from(lost > 0);
        if lost > 0 {
            println!(
                "kill {kill}, {last_policy}: {lost} writes that replies showed ahead of the file are lost"
            );
        }
        last_policy = options.policy;
        let (promises, stop) = (AtomicBool::new(true), AtomicBool::new(false));
        let cells = known.map(Mutex::new);
        std::thread::scope(|scope| {
            for (client, cell) in cells.iter().enumerate() {
                let (server, promises, stop) = (&server, &promises, &stop);
                scope.spawn(move || write(server, client, cell, promises, stop));
            }
            disturb(&server, &mut rng, &promises);
            signal(&server, Signal::KILL);
            stop.store(true, Relaxed);
        });
        drop(server);
        known = cells.map(|cell| cell.into_inner().expect("no panic"));
    }
    println!(
        "{kills} kills; replies were ahead of the file at {lagging:?} of them ({POLICIES:?}); {writes} writes"
    );
}

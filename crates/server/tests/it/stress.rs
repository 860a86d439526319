//! Many clients with keys in random order. Transactions are atomic for every reader, and no client
//! waits forever, with commands that take one lock, many locks, or the gate (ownership of the whole
//! keyspace).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, ClientError, Rng, Value};

use crate::support::{connect, on_each_back_end_with};

/// Time after which a request without a reply counts as stuck: the longest blocking timeout is 5
/// ms.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The current requests of each client and the time at which they were sent. They are reported if a
/// client is stuck.
struct Watchdog(Vec<Mutex<(String, Instant)>>);

impl Watchdog {
    fn new(clients: usize) -> Self {
        Self((0..clients).map(|_| Mutex::new((String::new(), Instant::now()))).collect())
    }

    /// Sends the requests `lines` of client `index` at once and reads their replies. Fails if a
    /// reply takes longer than [`STUCK_AFTER`].
    fn ask(&self, index: usize, client: &mut Client, lines: &[String]) -> Vec<Value> {
        *self.0[index].lock().expect("no panic under it") = (lines.join("; "), Instant::now());
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        let replies = client.pipeline(&words);
        *self.0[index].lock().expect("no panic under it") = (String::new(), Instant::now());
        replies.unwrap_or_else(|error| panic!("client {index}: {error}\n{}", self.state(&error)))
    }

    /// Describes the current requests of all clients and the state of the server's threads, after
    /// `error`.
    fn state(&self, error: &ClientError) -> String {
        let mut state = format!("{error}\n");
        for (index, doing) in self.0.iter().enumerate() {
            // The stuck client holds no lock here; another client that panics now may hold one.
            if let Ok(doing) = doing.try_lock() {
                let seconds = doing.1.elapsed().as_secs_f64();
                state += &format!("client {index}, for {seconds:.1} s: {}\n", doing.0);
            }
        }
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            state +=
                &format!("thread {}: {} {}\n", read("comm").trim(), read("wchan"), read("syscall").trim());
        }
        state
    }
}

/// Runs `client` on `clients` threads, each with its own connection. A missing reply makes the test
/// fail.
fn together(server: &Server, clients: usize, client: impl Fn(usize, &mut Client, &Watchdog) + Sync) {
    let watchdog = Watchdog::new(clients);
    std::thread::scope(|scope| {
        for index in 0..clients {
            let (watchdog, client) = (&watchdog, &client);
            scope.spawn(move || {
                let mut connection = connect(server);
                connection.set_read_timeout(STUCK_AFTER);
                client(index, &mut connection, watchdog);
            });
        }
    });
}

const ACCOUNTS: usize = 12;
const START_BALANCE: i64 = 1_000;
const TRANSFERS: usize = 1_500;
const ROUNDS: usize = 1_500;

/// Multiplies `count` by the number in `SAKER_STRESS`, for example 20 for a longer run.
fn times(count: usize) -> usize {
    count * std::env::var("SAKER_STRESS").map_or(1, |times| times.parse().expect("a number"))
}

/// Returns the sum of the numbers in `replies`, the amounts on accounts.
fn sum(replies: &[Value]) -> i64 {
    let balance = |value: &Value| match value {
        Value::Bulk(digits) => stdx::number::parse_i64(digits).expect("a number"),
        other => panic!("a balance is {other}"),
    };
    replies.iter().map(balance).sum()
}

fn array(reply: &Value) -> &[Value] {
    match reply {
        Value::Array(parts) => parts,
        other => panic!("{other} where an array was expected"),
    }
}

fn account(number: usize) -> String {
    format!("account:{number}")
}

/// Tries one transfer between two accounts: with counters in a transaction, or with reads and
/// writes of watched keys. Returns true if the transfer was made.
fn transfer(index: usize, client: &mut Client, watchdog: &Watchdog, rng: &mut Rng) -> bool {
    let (from, to, amount) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), 1 + rng.below(50) as i64);
    if from == to {
        return false;
    }
    let (from, to) = (account(from), account(to));
    if rng.percent(60) {
        let mut lines = vec!["MULTI".to_string()];
        lines.extend([format!("DECRBY {from} {amount}"), format!("INCRBY {to} {amount}")]);
        // A transaction with a command without keys has exclusive access to the keyspace.
        lines.extend(rng.percent(20).then(|| "DBSIZE".to_string()));
        lines.push("EXEC".to_string());
        let replies = watchdog.ask(index, client, &lines);
        assert!(matches!(replies.last(), Some(Value::Array(_))), "{replies:?}");
        return true;
    }
    let lines = [format!("WATCH {from} {to}"), format!("MGET {from} {to}")];
    let replies = watchdog.ask(index, client, &lines);
    let balances = array(&replies[1]);
    let (from_balance, to_balance) = (sum(&balances[..1]) - amount, sum(&balances[1..]) + amount);
    let lines = ["MULTI", &format!("SET {from} {from_balance}"), &format!("SET {to} {to_balance}"), "EXEC"];
    let replies = watchdog.ask(index, client, &lines.map(str::to_string));
    !matches!(replies.last(), Some(Value::NullArray))
}

/// Checks that every reader always sees the same sum of all accounts, by a command with many keys
/// or by a transaction.
fn the_sum_stays(server: &Server) {
    const WRITERS: usize = 4;
    const READERS: usize = 2;
    let mut control = connect(server);
    for number in 0..ACCOUNTS {
        control.command(&["SET", &account(number), &START_BALANCE.to_string()]);
    }
    let expected = START_BALANCE * ACCOUNTS as i64;
    let writing = AtomicUsize::new(WRITERS);
    let done = AtomicUsize::new(0);
    together(server, WRITERS + READERS, |index, client, watchdog| {
        let mut rng = Rng::new(index as u64);
        if index < WRITERS {
            for _ in 0..times(TRANSFERS) {
                done.fetch_add(usize::from(transfer(index, client, watchdog, &mut rng)), Relaxed);
            }
            writing.fetch_sub(1, Relaxed);
            return;
        }
        while writing.load(Relaxed) > 0 {
            let mut numbers: Vec<usize> = (0..ACCOUNTS).collect();
            rng.shuffle(&mut numbers);
            let all: Vec<String> = numbers.into_iter().map(account).collect();
            let replies = watchdog.ask(index, client, &[format!("MGET {}", all.join(" "))]);
            assert_eq!(sum(array(&replies[0])), expected, "by MGET");
            let mut lines = vec!["MULTI".to_string()];
            lines.extend(all.iter().map(|account| format!("GET {account}")));
            lines.push("EXEC".to_string());
            let replies = watchdog.ask(index, client, &lines);
            assert_eq!(sum(array(replies.last().expect("EXEC's reply"))), expected, "by a transaction");
        }
    });
    let done = done.load(Relaxed);
    assert!(done > WRITERS * times(TRANSFERS) / 3, "{done} transfers were done: too few to show anything");
}

/// Requests that take no lock, one lock, several locks in random order, or the gate (ownership of
/// the whole keyspace). `k` stands for any key.
const FORMS: &[&str] = &[
    "RPUSH k v",
    "RPUSH k v",
    "LPOP k",
    "SET k v",
    "MSET k v k v k v",
    "MGET k k k k",
    "DEL k k k",
    "RENAME k k",
    "COPY k k REPLACE",
    "LMOVE k k LEFT RIGHT",
    "SUNIONSTORE k k k",
    "ZUNIONSTORE k 2 k k",
    "SADD k v",
    "BLPOP k k k 0.005",
    "BLMOVE k k LEFT LEFT 0.003",
    "BRPOPLPUSH k k 0.001",
    "BLMPOP 0.002 2 k k LEFT COUNT 2",
    "BZPOPMIN k k 0.001",
    "ZADD k 1 v",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "FLUSHDB",
    "SWAPDB 0 1",
    "SORT k BY w_* GET k",
    "MOVE k 1",
    "OBJECT ENCODING k",
    "PUBLISH k v",
];

/// Generates a request or a transaction, maybe with watched keys.
fn random_requests(rng: &mut Rng) -> Vec<String> {
    let one = |rng: &mut Rng| {
        let word = |word: &str, rng: &mut Rng| match word {
            "k" => format!("key:{}", rng.below(10)),
            word => word.to_string(),
        };
        let words: Vec<String> = rng.pick::<&str>(FORMS).split(' ').map(|part| word(part, rng)).collect();
        words.join(" ")
    };
    if rng.percent(65) {
        return (0..=rng.below(3)).map(|_| one(rng)).collect();
    }
    let mut lines = Vec::new();
    if rng.percent(40) {
        lines.push(format!("WATCH key:{} key:{}", rng.below(10), rng.below(10)));
    }
    lines.push("MULTI".to_string());
    lines.extend((0..rng.below(5)).map(|_| one(rng)));
    lines.push(if rng.percent(90) { "EXEC" } else { "DISCARD" }.to_string());
    lines
}

/// Checks that every request gets its reply within [`STUCK_AFTER`]; otherwise the watchdog reports
/// the requests of all clients.
fn nobody_is_stuck(server: &Server) {
    const CLIENTS: usize = 8;
    together(server, CLIENTS, |index, client, watchdog| {
        let mut rng = Rng::new(100 + index as u64);
        for _ in 0..times(ROUNDS) {
            watchdog.ask(index, client, &random_requests(&mut rng));
        }
    });
    let mut control = connect(server);
    let info = control.command(&["INFO", "clients"]).to_string();
    assert!(info.contains("blocked_clients:0"), "{info}");
}

#[test]
fn transfers_are_whole_on_one_thread() {
    on_each_back_end_with(1, the_sum_stays);
}

#[test]
fn transfers_are_whole_across_threads() {
    on_each_back_end_with(2, the_sum_stays);
}

#[test]
fn transfers_are_whole_across_more_threads_than_cores() {
    on_each_back_end_with(4, the_sum_stays);
}

#[test]
fn nobody_is_stuck_on_one_thread() {
    on_each_back_end_with(1, nobody_is_stuck);
}

#[test]
fn nobody_is_stuck_across_threads() {
    on_each_back_end_with(2, nobody_is_stuck);
}

#[test]
fn nobody_is_stuck_across_more_threads_than_cores() {
    on_each_back_end_with(4, nobody_is_stuck);
}

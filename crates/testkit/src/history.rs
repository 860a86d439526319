//! Recording of concurrent requests from several connections, for `linearizability::check`.
//!
//! Each client is a thread with its own connection. It sends random commands on a few shared keys,
//! some in small pipelines, and records the times of each request and its reply. The commands
//! follow from the seed. Their interleaving depends on the machine, so that a failure may need
//! several runs to occur again; the counterexample contains everything that matters.
//!
//! Every written value is new, so a reply identifies the write that it saw. Numbers are written to
//! keys of several types, so that commands often find a key of another type. Error replies must be
//! explained as well.

pub mod scripts;
pub mod sessions;

use self::scripts::Reach;
use crate::client::{Address, Client};
use crate::linearizability::{History, Operation};
use std::sync::Barrier;
use std::time::Instant;

/// The maximum number of commands in a pipeline.
const PIPELINE_MAX: usize = 4;

/// The settings for recording the concurrent requests of several clients.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The address of the server. Its database 0 must have no keys `key:…`.
    pub address: Address,
    /// The number of connections. With more connections the check is slower: in the worst case, its
    /// time grows exponentially with them.
    pub clients: usize,
    /// The number of commands that each client sends.
    pub commands_each: usize,
    /// The number of keys that all clients share. With fewer keys, more commands conflict.
    pub keys: usize,
    /// The kind of commands that the clients send.
    pub mix: Mix,
    /// Names of commands that are not sent because the server does not have them.
    pub without: Vec<String>,
    /// The approximate percentage of the clients' calls that are scripts (EVAL).
    pub scripts_percent: usize,
    /// The seed of the random commands.
    pub seed: u64,
}

/// The kind of commands that the clients of a recording send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Commands of one key. They are checked key by key, so histories may be long.
    SingleKey,
    /// Also MSET, MGET, DEL, RENAME and similar commands on several keys, and sometimes FLUSHDB or
    /// KEYS. They are checked as one object.
    MultiKey,
    /// Transactions, watched keys, optimistic increments, and blocking commands with timeouts of a
    /// few milliseconds. The order in which blocked clients are served is checked as strictly as
    /// Redis defines it (see `crate::sequential`).
    Sessions,
    /// Blocking commands that move elements from list to list, and transactions that move elements.
    /// The order in which blocked clients are served is not checked.
    Moves,
}

/// Runs the clients and returns the history of all of them, each client's commands in order.
///
/// # Panics
/// Panics when the server cannot be reached or leaves a command unanswered.
pub fn record(recording: &Recording) -> History {
    let start = Instant::now();
    let together = Barrier::new(recording.clients);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..recording.clients)
            .map(|client| {
                let together = &together;
                scope.spawn(move || run_client(recording, client, start, together))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("its panic says why")).collect()
    })
}

/// Runs one client and returns its operations: its part of the recorded history.
fn run_client(recording: &Recording, client: usize, start: Instant, together: &Barrier) -> History {
    let mut choices = Choices::new(recording, client);
    let connected = Client::connect(&recording.address);
    together.wait(); // Before the check below: a failing client must not block the others.
    let mut connection = connected.unwrap_or_else(|error| panic!("client {client}: {error}"));
    let now = || start.elapsed().as_nanos() as u64;
    if matches!(recording.mix, Mix::Sessions | Mix::Moves) {
        return sessions::record(recording, client, &mut connection, now)
            .unwrap_or_else(|error| panic!("client {client}: {error}"));
    }
    let mut history = History::with_capacity(recording.commands_each);
    while history.len() < recording.commands_each {
        let len = (1 + choices.below(PIPELINE_MAX)).min(recording.commands_each - history.len());
        let commands: Vec<Vec<Vec<u8>>> = (0..len).map(|_| choices.command()).collect();
        let mut bytes = Vec::new();
        commands.iter().for_each(|args| resp::encode_request(args, &mut bytes));
        let invoked = now();
        connection.send(&bytes).unwrap_or_else(|error| panic!("client {client}: {error}"));
        for args in commands {
            let reply = connection.read().unwrap_or_else(|error| panic!("client {client}: {error}"));
            history.push(Operation { client, args, reply, invoked, returned: now() });
        }
    }
    history
}

/// The generator of one client's random commands.
pub struct Choices<'r> {
    rng: fastrand::Rng,
    recording: &'r Recording,
    client: usize,
    values_made: usize,
}

/// Templates of commands with one key: the name, then the arguments after the key. Placeholders:
/// `v` is a new value, `n` a small number, `m` one of a few members.
const SINGLE: &[&[&str]] = &[
    &["GET"],
    &["GET"],
    &["SET", "v"],
    &["SET", "n"],
    &["SETNX", "v"],
    &["GETSET", "v"],
    &["GETDEL"],
    &["APPEND", "n"],
    &["STRLEN"],
    &["INCR"],
    &["INCR"],
    &["DECR"],
    &["INCRBY", "n"],
    &["DEL"],
    &["DEL"],
    &["EXISTS"],
    &["TYPE"],
    &["LPUSH", "v", "v"],
    &["RPUSH", "v"],
    &["LPOP"],
    &["RPOP"],
    &["LLEN"],
    &["LRANGE", "0", "-1"],
    &["HSET", "m", "n"],
    &["HINCRBY", "m", "n"],
    &["HGET", "m"],
    &["HDEL", "m"],
    &["SADD", "m", "m"],
    &["SADD", "v"],
    &["SREM", "m"],
    &["SPOP"],
    &["SCARD"],
    &["SISMEMBER", "m"],
    &["SMEMBERS"],
    &["ZADD", "n", "m"],
    &["ZINCRBY", "n", "m"],
    &["ZREM", "m"],
    &["ZCARD"],
    &["ZSCORE", "m"],
    &["ZRANGE", "0", "-1"],
    &["ZPOPMIN"],
    &["ZPOPMAX"],
];

impl<'r> Choices<'r> {
    /// Creates the generator of the random commands of client `client`.
    pub fn new(recording: &'r Recording, client: usize) -> Self {
        let rng =
            fastrand::Rng::with_seed(recording.seed.wrapping_mul(1_000_003).wrapping_add(client as u64));
        Self { rng, recording, client, values_made: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.rng.usize(..end)
    }

    fn key(&mut self) -> String {
        format!("key:{}", self.below(self.recording.keys))
    }

    /// Returns a value that no other write of the history uses.
    fn value(&mut self) -> String {
        self.values_made += 1;
        format!("c{}v{}", self.client, self.values_made)
    }

    fn argument(&mut self, kind: &str) -> String {
        match kind {
            "v" => self.value(),
            "n" => (1 + self.below(9)).to_string(),
            "m" => format!("m{}", self.below(4)),
            literal => literal.to_owned(),
        }
    }

    /// Generates the client's next random command.
    pub fn command(&mut self) -> Vec<Vec<u8>> {
        let percent = self.recording.scripts_percent;
        if percent > 0 && self.below(100) < percent {
            return self.script();
        }
        self.plain_command()
    }

    fn plain_command(&mut self) -> Vec<Vec<u8>> {
        loop {
            let words = match (self.recording.mix, self.below(100)) {
                (Mix::MultiKey, ..1) => vec!["FLUSHDB".to_owned()],
                (Mix::MultiKey, 1..4) => vec!["KEYS".to_owned(), "*".to_owned()],
                (Mix::MultiKey, 4..34) => self.multi_key(),
                _ => self.single_key(),
            };
            if !self.recording.without.contains(&words[0]) {
                return words.into_iter().map(String::into_bytes).collect();
            }
        }
    }

    /// Returns a script call (EVAL) that runs some random commands. With [`Mix::SingleKey`], all of
    /// them use one key.
    fn script(&mut self) -> Vec<Vec<u8>> {
        let mut commands: Vec<_> =
            (0..scripts::length(&mut self.rng)).map(|_| self.plain_command()).collect();
        let mut reach = Reach::Among(self.recording.keys);
        if self.recording.mix == Mix::SingleKey {
            let key = commands[0][1].clone();
            commands.iter_mut().for_each(|command| command[1].clone_from(&key));
            reach = Reach::Named;
        } else if self.below(20) == 0 {
            commands.push(vec![b"DBSIZE".to_vec()]);
        }
        scripts::script(commands, reach, &mut self.rng)
    }

    fn single_key(&mut self) -> Vec<String> {
        let form = SINGLE[self.below(SINGLE.len())];
        let mut words = vec![form[0].to_owned(), self.key()];
        words.extend(form[1..].iter().map(|kind| self.argument(kind)));
        words
    }

    fn multi_key(&mut self) -> Vec<String> {
        let name =
            ["MSET", "MSETNX", "MGET", "MGET", "DEL", "EXISTS", "RENAME", "RENAMENX", "COPY"][self.below(9)];
        let mut words = vec![name.to_owned()];
        let keys = if name.starts_with('M') { 2 + self.below(2) } else { 2 };
        for _ in 0..keys {
            words.push(self.key());
            if name.starts_with("MSET") {
                words.push(self.value());
            }
        }
        // Copying a key onto itself is an error that histories leave out.
        if name == "COPY" && words[1] == words[2] {
            words[2].push_str(":copy");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Choices, Mix, Recording};
    use crate::sequential::{Database, keys_of};
    use resp::Value;

    fn recording(mix: Mix) -> Recording {
        Recording {
            address: Address::port(0),
            clients: 2,
            commands_each: 10,
            keys: 3,
            mix,
            without: vec![],
            scripts_percent: 20,
            seed: 1,
        }
    }

    #[test]
    fn a_seed_and_a_client_determine_the_commands() {
        let recording = recording(Mix::MultiKey);
        let commands = |client| {
            let mut choices = Choices::new(&recording, client);
            (0..50).map(|_| choices.command()).collect::<Vec<_>>()
        };
        assert_eq!(commands(0), commands(0));
        assert_ne!(commands(0), commands(1));
    }

    /// Checks that a real Redis gives a linearizable history: the model's replies to commands and
    /// scripts equal those of Redis.
    #[test]
    fn a_real_server_gives_one_order() {
        if !crate::peer::is_available() {
            eprintln!("no redis-server: not compared");
            return;
        }
        let server = crate::peer::start().expect("it starts");
        let refused = server.connect().command(&["EVAL", "return redis.call('BLPOP', 'none', 0)", "0"]);
        if refused.is_error() {
            eprintln!("older than Redis 7.2: scripts may not run commands that wait elsewhere");
            return;
        }
        for mix in [Mix::SingleKey, Mix::MultiKey, Mix::Sessions, Mix::Moves] {
            server.connect().command(&["FLUSHALL"]);
            let (address, scripts_percent) = (server.address(), 60);
            let recording =
                Recording { address, scripts_percent, clients: 3, commands_each: 200, ..recording(mix) };
            if let Err(counterexample) = crate::linearizability::check(&super::record(&recording)) {
                panic!("{mix:?}: {counterexample}");
            }
        }
    }

    #[test]
    fn what_the_server_lacks_is_not_sent() {
        let mut recording = recording(Mix::MultiKey);
        recording.without = vec!["GET".to_owned(), "MSET".to_owned()];
        let mut choices = Choices::new(&recording, 0);
        assert!((0..1_000).all(|_| !matches!(choices.command()[0].as_slice(), b"GET" | b"MSET")));
    }

    #[test]
    fn the_model_knows_every_command_that_is_recorded() {
        for mix in [Mix::SingleKey, Mix::MultiKey] {
            let recording = recording(mix);
            let mut choices = Choices::new(&recording, 0);
            let mut database = Database::default();
            for _ in 0..5_000 {
                let args = choices.command();
                database.run(0, &args, &Value::Null); // Panics at an unknown command.
                assert!(mix == Mix::MultiKey || keys_of(&args).is_some_and(|keys| keys.len() == 1));
            }
        }
    }
}

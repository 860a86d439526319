//! The calls of a client in a history of sessions: transactions, optimistic increments, blocking
//! commands.
//!
//! Keys have types by their names (`list:0`, `number:1`, `zset:0`), so that most commands find a
//! key of the right type; sometimes a key is used as another type. Elements are new each time. So
//! the check detects an element that is served twice or was never pushed.

use super::scripts::Reach;
use super::{Recording, scripts};
use crate::client::{Client, ClientError};
use crate::linearizability::{History, Operation};
use crate::sequential::SEPARATOR;
use resp::Value;
use std::collections::VecDeque;

/// A command and its arguments.
type Args = Vec<Vec<u8>>;

/// Timeouts of blocking commands in seconds. They are long enough for a client to be served. They
/// are short enough that a timeout sometimes passes at the instant at which the client is served.
const TIMEOUTS: &[&str] = &["0.001", "0.002", "0.005", "0.02"];

/// The maximum number of commands of a random transaction.
const TRANSACTION_COMMANDS_MAX: usize = 4;

/// One call of a client: a command, a transaction or a blocking command.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A command that is answered at once, or that takes effect at one instant before its reply.
    Command(Args),
    /// A transaction: MULTI, these commands, EXEC.
    Transaction(Vec<Args>),
    /// A blocking command, including its timeout.
    Wait(Args),
}

/// The generator of one client's random calls.
pub struct Script<'r> {
    rng: fastrand::Rng,
    recording: &'r Recording,
    client: usize,
    values_made: usize,
    /// The calls already planned, which the client makes before any random one.
    planned: VecDeque<Call>,
    /// The key that the last call has read. The next call writes back its value plus one.
    increments: Option<Vec<u8>>,
}

/// Templates of commands: `l`, `n`, `z` are keys of lists, numbers and sorted sets, `v` a new
/// value, `d` a small number, `m` one of a few members, `t` a timeout.
const PLAIN: &[&str] = &[
    "RPUSH l v",
    "LPUSH l v v",
    "LPOP l",
    "LRANGE l 0 -1",
    "LMOVE l l LEFT RIGHT",
    "DEL l",
    "DEL l l",
    "DEL l z",
    "RENAME l l",
    "GET n",
    "GET n",
    "SET n d",
    "INCR n",
    "INCRBY n d",
    "MGET n n",
    "MSET n d n d",
    "DEL n",
    "EXISTS l n z",
    "ZADD z d m",
    "ZINCRBY z d m",
    "ZPOPMIN z",
    "DEL z",
    "ZREM z m",
    "ZCARD z",
    "TYPE l",
];

/// Templates of the first command of a special script: it reads, then writes if the reply has an
/// odd weight ([`WRITES_IF_ODD`]), then needs keys that it has not declared ([`ENDS`]).
const READS: &[&str] = &["LLEN l", "GET n"];
const WRITES_IF_ODD: &[&str] = &["? INCR n", "? SET n d", "? RPUSH l v", "? DEL l"];
const ENDS: &[&str] = &["KEYS *", "DBSIZE", "KEYS *", "DBSIZE", "EXISTS l", "MGET n n"];

/// Templates of blocking commands, with the letters of [`PLAIN`].
const WAITS: &[&str] =
    &["BLPOP l t", "BLPOP l t", "BLPOP l l t", "BRPOP l t", "BRPOP l l t", "BZPOPMIN z t", "BZPOPMAX z z t"];

/// Templates of the commands of [`Mix::Moves`](super::Mix::Moves).
const MOVES: &[&str] = &[
    "BLMOVE l l LEFT RIGHT t",
    "BLMOVE l l RIGHT LEFT t",
    "BRPOPLPUSH l l t",
    "BLPOP l t",
    "BLPOP l l t",
    "LMOVE l l RIGHT RIGHT",
    "RPOPLPUSH l l",
    "RPUSH l v",
    "LPUSH l v",
    "LPOP l",
    "LRANGE l 0 -1",
    "DEL l",
];

impl<'r> Script<'r> {
    /// Creates the generator of the random calls of client `client`.
    pub fn new(recording: &'r Recording, client: usize) -> Self {
        let seed = recording.seed.wrapping_mul(1_000_003).wrapping_add(client as u64);
        Self {
            rng: fastrand::Rng::with_seed(seed),
            recording,
            client,
            values_made: 0,
            planned: VecDeque::new(),
            increments: None,
        }
    }

    /// Returns the next call. `last` is the reply to the previous call.
    pub fn next(&mut self, last: &Value) -> Call {
        if let Some(key) = self.increments.take() {
            return self.increment(key, last);
        }
        let call = self.planned.pop_front().unwrap_or_else(|| self.draw());
        // The reply to this call brings the value from which an increment starts.
        if let Call::Command(args) = &call
            && self.planned.is_empty()
            && args[0] == b"GET"
            && args.len() == 2
            && self.rng.u8(..4) > 0
        {
            self.increments = Some(args[1].clone());
        }
        call
    }

    fn draw(&mut self) -> Call {
        if self.recording.mix == super::Mix::Moves {
            return match self.rng.u8(..100) {
                0..80 => Call::Command(self.call(MOVES)),
                _ => self.transaction(MOVES),
            };
        }
        match self.rng.u8(..100) {
            0..1 => Call::Command(words("FLUSHDB")),
            1..3 => Call::Command(words("KEYS *")),
            3..28 => Call::Command(self.call(PLAIN)),
            28..33 => self.transaction(WAITS),
            33..45 => self.transaction(PLAIN),
            45..60 => {
                let key = self.key('n');
                self.planned.push_back(Call::Command(vec![b"GET".to_vec(), key.clone()]));
                Call::Command(vec![b"WATCH".to_vec(), key])
            }
            60..70 => {
                if self.rng.bool() {
                    let between = self.call(PLAIN);
                    self.planned.push_back(Call::Command(between));
                }
                let last = if self.rng.u8(..5) == 0 {
                    Call::Command(words("UNWATCH"))
                } else {
                    self.transaction(PLAIN)
                };
                self.planned.push_back(last);
                Call::Command(self.form(&["WATCH l", "WATCH l z", "WATCH n l"]))
            }
            _ => Call::Wait(self.form(WAITS)),
        }
    }

    /// Returns the transaction that writes `value` plus one to the watched key. It must fail if
    /// another client has changed the key since the read.
    fn increment(&mut self, key: Vec<u8>, value: &Value) -> Call {
        let old: Option<i64> = match value {
            Value::Null => Some(0),
            value => value.as_bytes().and_then(stdx::number::parse_i64),
        };
        let Some(old) = old else { return Call::Command(words("UNWATCH")) };
        let mut commands = vec![vec![b"SET".to_vec(), key, (old + 1).to_string().into()]];
        if self.rng.bool() {
            let more = self.call(PLAIN);
            commands.push(more);
        }
        Call::Transaction(commands)
    }

    fn transaction(&mut self, forms: &[&str]) -> Call {
        let len = 1 + self.rng.usize(..TRANSACTION_COMMANDS_MAX);
        Call::Transaction((0..len).map(|_| self.call(forms)).collect())
    }

    /// Returns a random command made from one of the templates `forms`, or a script that runs
    /// several such commands.
    fn call(&mut self, forms: &[&str]) -> Args {
        let percent = self.recording.scripts_percent;
        if percent == 0 || self.rng.usize(..100) >= percent {
            return self.form(forms);
        }
        let mut commands: Vec<Args> = (0..scripts::length(&mut self.rng)).map(|_| self.form(forms)).collect();
        let is_session = self.recording.mix == super::Mix::Sessions;
        if is_session && self.rng.u8(..3) == 0 {
            // The script's next run must not repeat the changes of a run that was undone.
            commands = [READS, WRITES_IF_ODD, ENDS].iter().map(|forms| self.form(forms)).collect();
        } else if is_session && self.rng.u8(..20) == 0 {
            commands.push(words(["KEYS *", "DBSIZE"][self.rng.usize(..2)]));
        }
        scripts::script(commands, Reach::Among(self.recording.keys), &mut self.rng)
    }

    /// Returns a random command made from one of the templates `forms`.
    fn form(&mut self, forms: &[&str]) -> Args {
        let form = forms[self.rng.usize(..forms.len())];
        form.split(' ').map(|word| self.argument(word)).collect()
    }

    fn argument(&mut self, kind: &str) -> Vec<u8> {
        match kind {
            "l" | "n" | "z" => self.key(kind.chars().next().expect("it has one")),
            "v" => {
                self.values_made += 1;
                format!("c{}v{}", self.client, self.values_made).into()
            }
            "d" => (1 + self.rng.u8(..9)).to_string().into(),
            "m" => format!("m{}", self.rng.u8(..4)).into(),
            "t" => TIMEOUTS[self.rng.usize(..TIMEOUTS.len())].into(),
            literal => literal.into(),
        }
    }

    fn key(&mut self, kind: char) -> Vec<u8> {
        let kind = if self.rng.u8(..50) == 0 { self.rng.choice(['l', 'n', 'z']) } else { Some(kind) };
        let name = match kind {
            Some('l') => "list",
            Some('n') => "number",
            _ => "zset",
        };
        format!("{name}:{}", self.rng.usize(..self.recording.keys)).into()
    }
}

fn words(line: &str) -> Args {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns the operations by which a history represents a client's call: one, or two for a blocking
/// command, its begin and its end.
pub fn in_history(call: &Call) -> Vec<Args> {
    match call {
        Call::Command(args) => vec![args.clone()],
        Call::Transaction(commands) => {
            let mut args = vec![b"EXEC".to_vec()];
            args.extend(commands.join(&SEPARATOR.to_vec()));
            vec![args]
        }
        Call::Wait(args) => {
            let with = |word: &str| [&words(word), &args[..args.len() - 1]].concat();
            vec![with("BEGIN"), with("END")]
        }
    }
}

/// Runs one client of random calls and returns its part of the recorded history.
pub(super) fn record(
    recording: &Recording,
    client: usize,
    connection: &mut Client,
    now: impl Fn() -> u64,
) -> Result<History, ClientError> {
    let mut script = Script::new(recording, client);
    let mut observer = Observer::of(connection, recording)?;
    let mut reply = Value::Null;
    let mut history = History::new();
    while history.len() < recording.commands_each {
        let call = script.next(&reply);
        let mut invoked = now();
        let mut seen_waiting = None;
        reply = match &call {
            Call::Command(args) => connection.request(args)?,
            Call::Wait(args) => {
                let mut bytes = Vec::new();
                resp::encode_request(args, &mut bytes);
                connection.send(&bytes)?;
                if history.len().is_multiple_of(2) && observer.sees_it_wait()? {
                    seen_waiting = Some(now());
                }
                connection.read()?
            }
            Call::Transaction(commands) => {
                let mut queued = vec![words("MULTI")];
                queued.extend_from_slice(commands);
                if history.len().is_multiple_of(2) {
                    connection.pipeline(&queued)?;
                    // Nothing has been executed so far.
                    invoked = now();
                    connection.request(&words("EXEC"))?
                } else {
                    queued.push(words("EXEC"));
                    connection.pipeline(&queued)?.pop().expect("a reply for each")
                }
            }
        };
        let returned = now();
        let parts = in_history(&call);
        let last = parts.len() - 1;
        for (at, args) in parts.into_iter().enumerate() {
            let (reply, returned) = match at == last {
                true => (reply.clone(), returned),
                false => (Value::Simple(b"OK".to_vec()), seen_waiting.unwrap_or(returned)),
            };
            history.push(Operation { client, args, reply, invoked, returned });
        }
    }
    Ok(history)
}

/// A second connection that asks the server whether the first one is blocked.
struct Observer {
    connection: Client,
    id: String,
}

impl Observer {
    /// Number of times that the server is asked. If no answer finds the client blocked, the client
    /// has already been served, or the server has not yet run its command.
    const LOOKS: usize = 3;

    fn of(client: &mut Client, recording: &Recording) -> Result<Self, ClientError> {
        let id = match client.request(&["CLIENT", "ID"])? {
            Value::Integer(id) => id.to_string(),
            other => panic!("CLIENT ID answered {other}"),
        };
        Ok(Self { connection: Client::connect(&recording.address)?, id })
    }

    /// Asks the server a few times. Returns true if one answer shows that the observed client is
    /// blocked.
    fn sees_it_wait(&mut self) -> Result<bool, ClientError> {
        for _ in 0..Self::LOOKS {
            let list = self.connection.request(&["CLIENT", "LIST", "ID", &self.id])?;
            let text = String::from_utf8_lossy(list.as_bytes().unwrap_or_default()).into_owned();
            let flags = text.split(" flags=").nth(1).and_then(|rest| rest.split(' ').next());
            if flags.is_some_and(|flags| flags.contains('b')) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, Script, in_history};
    use crate::history::{Mix, Recording};
    use crate::{Address, Value};

    #[test]
    fn an_increment_puts_back_one_more_than_it_read() {
        let recording = Recording {
            address: Address::port(0),
            clients: 1,
            commands_each: 1,
            keys: 1,
            mix: Mix::Sessions,
            without: vec![],
            scripts_percent: 0,
            seed: 1,
        };
        let mut script = Script::new(&recording, 0);
        let mut increments = 0;
        let mut last = Call::Command(vec![b"PING".to_vec()]);
        for _ in 0..2_000 {
            let call = script.next(&Value::Bulk(b"41".to_vec()));
            if let (Call::Command(get), Call::Transaction(commands)) = (&last, &call)
                && get[0] == b"GET"
                && commands[0][0] == b"SET"
                && commands[0][1] == get[1]
            {
                assert_eq!(commands[0][2], b"42");
                increments += 1;
            }
            last = call;
        }
        assert!(increments > 100, "{increments}");
    }

    #[test]
    fn a_wait_begins_and_ends_and_a_transaction_is_one_operation() {
        let args = |line: &str| super::words(line);
        let wait = Call::Wait(args("BLPOP a b 0.1"));
        assert_eq!(in_history(&wait), [args("BEGIN BLPOP a b"), args("END BLPOP a b")]);
        let transaction = Call::Transaction(vec![args("SET a 1"), args("GET a")]);
        assert_eq!(in_history(&transaction), [args("EXEC SET a 1 ; GET a")]);
    }
}

//! A simulated client: its next step, the replies that it waits for, and the messages it has
//! received.

use std::collections::{BTreeMap, VecDeque};

use engine::log::level::Level;
use resp::Value;

use super::scenario::{self, Args, Role, Sending, Step};
use super::world::Wait;
use crate::history::sessions::{Call, in_history};
use crate::linearizability::{History, Operation};

/// The difference between the client numbers of two successive connections of one client in the
/// model. Numbers from this value on belong to connections after a reconnection.
const SESSIONS_MAX: usize = 1_000;

/// A step of a simulated client whose replies have not all arrived.
struct UnderWay {
    step: Step,
    /// The groups of the step's requests that are still to be sent. A group is sent when all
    /// replies to earlier requests have arrived.
    later: VecDeque<Vec<Args>>,
    /// The number of missing replies to the step's requests that were sent.
    awaited: usize,
    replies: Vec<(Value, u64)>,
    invoked: u64,
    wait: Option<Wait>,
}

/// The next action of a simulated client after it has received a value.
pub(super) enum Received {
    /// The client sends nothing.
    Nothing,
    /// The client sends these requests.
    Send(Vec<Args>),
}

/// A simulated client: its next step, the replies that it waits for, and the messages it has
/// received.
pub(super) struct ScriptedClient {
    number: usize,
    role: Role,
    /// The number of times that the simulated client has reconnected so far.
    sessions: usize,
    steps: VecDeque<Step>,
    under_way: Option<UnderWay>,
    /// The completed operations of the client with their replies, for the model.
    pub history: History,
    /// The cached keys and values of a client with [`Role::Cache`].
    pub cache: BTreeMap<Vec<u8>, Value>,
    /// The number of increment events received for each key, for [`Role::Listener`].
    pub increments: BTreeMap<Vec<u8>, i64>,
    /// The step and key of each increment event received, for [`Role::Listener`].
    pub received: Vec<(u64, Vec<u8>)>,
    /// The published messages received, one list for each connection of the client.
    pub messages: Vec<Vec<Vec<u8>>>,
    /// The level, written or synced, that a change must reach before the replies to it are sent.
    pub level: Level,
    /// The number of the last received message of each publisher.
    published: BTreeMap<Vec<u8>, u64>,
}

impl ScriptedClient {
    /// Creates simulated client number `number`, which has not run any of its steps yet.
    pub fn new(number: usize, scripted_client: &scenario::ScriptedClient) -> Self {
        let mut scripted_client = Self {
            number,
            role: scripted_client.role,
            sessions: 0,
            steps: scripted_client.steps.iter().cloned().collect(),
            under_way: None,
            history: Vec::new(),
            cache: BTreeMap::new(),
            increments: BTreeMap::new(),
            received: Vec::new(),
            messages: vec![Vec::new()],
            level: scripted_client.level,
            published: BTreeMap::new(),
        };
        scripted_client.introduce();
        scripted_client
    }

    /// Inserts, before the client's next step, a step with the requests that a new connection sends
    /// first.
    fn introduce(&mut self) {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Args>();
        let lines: &[&str] = match self.role {
            Role::Plain => return,
            Role::Listener => &["HELLO 3", "PSUBSCRIBE __keyevent@0__:*", "SUBSCRIBE news"],
            Role::Cache => &["HELLO 3", "TRACKING"],
        };
        // One request at a time: the confirmation of a subscription is a push, not a reply.
        lines.iter().rev().for_each(|line| self.steps.push_front(Step::Pipeline(vec![words(line)])));
    }

    /// Returns true if the client waits for no reply and has steps left.
    pub fn can_start(&self) -> bool {
        self.under_way.is_none() && !self.steps.is_empty()
    }

    /// Returns true if the client waits for a reply.
    pub fn is_waiting(&self) -> bool {
        self.under_way.is_some()
    }

    /// Describes the client's step in progress, for the text of a violated check.
    pub fn doing(&self) -> String {
        self.under_way.as_ref().map(|under_way| under_way.step.to_string()).unwrap_or_default()
    }

    /// Removes the client's next step from its list and returns it.
    pub fn next_step(&mut self) -> Step {
        self.steps.pop_front().expect("it can start")
    }

    /// Begins a step of the client at step `now` of the network. Returns the requests to send.
    pub fn begin(&mut self, step: Step, now: u64) -> Vec<Args> {
        let word = |word: &str| vec![word.as_bytes().to_vec()];
        let mut parts: VecDeque<Vec<Args>> = match &step {
            Step::Pipeline(commands) => [commands.clone()].into(),
            Step::Wait(args) => [vec![args.clone()]].into(),
            Step::Transaction(commands, sending) => {
                let queued = [&[word("MULTI")], &commands[..]].concat();
                match sending {
                    Sending::Together => [[&queued[..], &[word("EXEC")]].concat()].into(),
                    Sending::ExecApart => [queued, vec![word("EXEC")]].into(),
                }
            }
            Step::Reconnect | Step::Abandon(_) => VecDeque::new(),
        };
        let first = parts.pop_front().unwrap_or_default();
        // Confirmations of subscriptions are pushes.
        let awaited = first.iter().filter(|args| !args[0].ends_with(b"SUBSCRIBE")).count();
        if awaited > 0 {
            let replies = Vec::new();
            self.under_way =
                Some(UnderWay { step, later: parts, awaited, replies, invoked: now, wait: None });
        }
        first
    }

    /// Handles a reply to the client. `wait` is the time during which the server had blocked the
    /// client, if it had. Returns the client's next action.
    ///
    /// # Errors
    ///
    /// The text of a violated check.
    pub fn replied(&mut self, value: Value, now: u64, wait: Option<Wait>) -> Result<Received, String> {
        let Some(under_way) = &mut self.under_way else {
            return Err(format!("received {value} without having asked"));
        };
        under_way.replies.push((value, now));
        under_way.wait = under_way.wait.or(wait);
        under_way.awaited -= 1;
        if under_way.awaited > 0 {
            return Ok(Received::Nothing);
        }
        if let Some(next) = under_way.later.pop_front() {
            // Nothing has been executed so far.
            under_way.invoked = now;
            under_way.awaited = next.len();
            return Ok(Received::Send(next));
        }
        let done = self.under_way.take().expect("it is there");
        self.conclude(done)?;
        Ok(Received::Nothing)
    }

    /// Returns the number by which the model knows the client's present connection.
    fn client(&self) -> usize {
        self.number + SESSIONS_MAX * self.sessions
    }

    /// Records the operations of a completed step in the client's history.
    fn conclude(&mut self, done: UnderWay) -> Result<(), String> {
        let UnderWay { step, mut replies, invoked, wait, .. } = done;
        let client = self.client();
        let call = match step {
            Step::Pipeline(commands) => {
                for (args, (reply, returned)) in commands.into_iter().zip(replies) {
                    // The command was refused because the append-only file cannot be written.
                    if matches!(&reply, Value::Error(line) if line.starts_with(b"MISCONF")) {
                        continue;
                    }
                    self.learn(&args, &reply)?;
                    self.history.push(Operation { client, args, reply, invoked, returned });
                }
                return Ok(());
            }
            Step::Wait(args) => Call::Wait(args),
            Step::Transaction(commands, _) => Call::Transaction(commands),
            Step::Reconnect | Step::Abandon(_) => return Ok(()),
        };
        let (reply, returned) = replies.pop().expect("it is done");
        let mut parts = in_history(&call);
        let args = parts.pop().expect("every call has an operation");
        for args in parts {
            let (reply, returned) = (Value::Simple(b"OK".to_vec()), wait.map_or(returned, |wait| wait.begun));
            self.history.push(Operation { client, args, reply, invoked, returned });
        }
        let invoked = wait.map_or(invoked, |wait| invoked.max(wait.may_end));
        self.history.push(Operation { client, args, reply, invoked, returned });
        Ok(())
    }

    /// Handles the reply to a GET. A client with [`Role::Cache`] caches the value. A
    /// [`Role::Listener`] checks that the value is not less than the number of increment events
    /// received.
    fn learn(&mut self, args: &Args, reply: &Value) -> Result<(), String> {
        if args[0] != b"GET" {
            return Ok(());
        }
        match self.role {
            Role::Cache => {
                self.cache.insert(args[1].clone(), reply.clone());
            }
            Role::Listener => {
                let received = self.increments.get(&args[1]).copied().unwrap_or(0);
                let value = reply.as_bytes().and_then(stdx::number::parse_i64).unwrap_or(0);
                // The value must contain every increment whose event has arrived; it may contain
                // more.
                if received > value {
                    return Err(format!("{} is {value} after {received} events", args[1].escape_ascii()));
                }
            }
            Role::Plain => {}
        }
        Ok(())
    }

    /// Returns true if this client sent the operation, on any of its connections.
    pub fn sent(&self, operation: &Operation) -> bool {
        operation.client % SESSIONS_MAX == self.number
    }

    /// Handles a push message: a keyspace event, a published message or an invalidation. Returns
    /// the client's next action.
    ///
    /// # Errors
    /// The text of a violated check.
    pub fn pushed(&mut self, parts: &[Value], now: u64) -> Result<Received, String> {
        let words: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes().unwrap_or_default()).collect();
        match words[..] {
            [b"invalidate", _] => match &parts[1] {
                Value::Array(keys) => {
                    keys.iter().filter_map(Value::as_bytes).for_each(|key| drop(self.cache.remove(key)));
                }
                _ => self.cache.clear(),
            },
            [b"pmessage", _, channel, key] if channel.ends_with(b":incrby") => {
                *self.increments.entry(key.to_vec()).or_default() += 1;
                self.received.push((now, key.to_vec()));
                if self.under_way.is_none() {
                    // An event comes after its change: a GET that is sent now must see it.
                    self.steps.push_front(Step::Pipeline(vec![vec![b"GET".to_vec(), key.to_vec()]]));
                }
            }
            [b"message", _, message] => {
                self.messages.last_mut().expect("there is a session").push(message.to_vec());
                let text = String::from_utf8_lossy(message);
                let (publisher, number) = text.split_once(':').unwrap_or_default();
                let number = number.parse().unwrap_or(0);
                let last = self.published.insert(publisher.into(), number);
                if last.is_some_and(|last| last + 1 != number) {
                    return Err(format!("message {text} came behind {last:?} of the same publisher"));
                }
            }
            _ => {}
        }
        Ok(Received::Nothing)
    }

    /// Resets the state of the old connection after the client has opened a new one.
    pub fn reconnected(&mut self) {
        self.sessions += 1;
        self.messages.push(Vec::new());
        self.cache.clear();
        self.introduce();
    }

    /// Ends the client, which will receive no more replies. The step in progress is dropped, and is
    /// not added to the history.
    pub fn finish(&mut self) {
        self.under_way = None;
    }
}

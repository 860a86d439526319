//! A test of the checker of histories: it must reject the histories of a simulated server with
//! intended faults.
//!
//! Clients run their scripts against one model in random turns. A call begins, takes effect in one
//! step (or, with a fault, in several), and returns, each in its own turn. Without a fault every
//! history must be accepted: the checker must not raise false alarms. Every fault must be detected.

use super::sessions::parts_of;
use super::{Database, words};
use crate::Address;
use crate::history::sessions::{Call, Script, in_history};
use crate::history::{Mix, Recording};
use crate::linearizability::{History, Operation, check};
use resp::Value;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The server runs commands of other clients between the commands of a transaction.
    TornTransaction,
    /// EXEC ignores changes of watched keys, so that updates are lost.
    BlindToWatch,
    /// EXEC checks the watched keys too early, and runs some time later.
    LooksTooEarly,
    /// EXEC fails although no watched key has changed.
    FailsForNothing,
    /// The element that a blocked client receives stays in the list.
    ServesTwice,
    /// A blocked client times out while it is served: the element is lost.
    LosesAtTimeout,
    /// The client that has been blocked for the shortest time is served first.
    ServesTheLast,
    /// A write that creates a key does not serve the clients that are blocked on it.
    ForgetsToServe,
    /// Elements that a transaction pushes are served to blocked clients before the transaction has
    /// ended.
    ServesWithinTransactions,
}

use Fault::{
    BlindToWatch, FailsForNothing, ForgetsToServe, LooksTooEarly, LosesAtTimeout, ServesTheLast, ServesTwice,
    ServesWithinTransactions, TornTransaction,
};

/// A call of a simulated client that has begun and not returned.
struct UnderWay {
    invoked: u64,
    /// The remaining steps of the client's call, each a command; the last one gives the reply.
    steps: VecDeque<Vec<Vec<u8>>>,
    history: Vec<Vec<Vec<u8>>>,
    /// The replies of the steps so far, if the call is a transaction that is split into steps;
    /// otherwise `None`.
    torn: Option<Vec<Value>>,
    reply: Value,
    /// The time at which a check found the client blocked; `None` if none did.
    seen_waiting: Option<u64>,
    /// The time at which the blocking call timed out; `None` if it has not.
    timed_out: Option<u64>,
}

struct Simulation {
    database: Database,
    fault: Fault,
    rng: fastrand::Rng,
    now: u64,
    history: History,
}

impl Simulation {
    fn chance(&mut self) -> bool {
        self.rng.u8(..4) == 0
    }

    fn begin(&mut self, call: &Call) -> UnderWay {
        let history = in_history(call);
        let mut steps: VecDeque<_> = history.iter().cloned().collect();
        let mut torn = None;
        if let Call::Transaction(commands) = call {
            if self.fault == TornTransaction {
                steps = commands.iter().cloned().collect();
                torn = Some(Vec::new());
            } else if self.fault == LooksTooEarly {
                steps.push_front(words("LOOK"));
            }
        }
        let (invoked, reply) = (self.now, Value::Null);
        UnderWay { invoked, steps, history, torn, reply, seen_waiting: None, timed_out: None }
    }

    /// Runs the next step of a client's call on the simulated server.
    fn step(&mut self, client: usize, call: &mut UnderWay) {
        let Some(args) = call.steps.pop_front() else { return };
        let is_stale = self.database.sessions.watching.get(&client).map(|watch| watch.is_stale);
        if call.torn.is_some() {
            return self.step_of_torn(client, &args, call);
        }
        match (self.fault, &*args[0]) {
            (LooksTooEarly, b"LOOK") => {
                if is_stale == Some(false) {
                    self.database.sessions.watching.remove(&client);
                }
                return;
            }
            (BlindToWatch, b"EXEC") => drop(self.database.sessions.watching.remove(&client)),
            (FailsForNothing, b"EXEC") if is_stale.is_some() && self.chance() => {
                self.database.sessions.watching.remove(&client);
                call.reply = Value::NullArray;
                return;
            }
            (ServesWithinTransactions, b"EXEC") if is_stale.is_none() => {
                let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
                let replies = parts_of(&words[1..]).map(|part| {
                    let part: Vec<Vec<u8>> = part.iter().map(|word| word.to_vec()).collect();
                    self.database.run(client, &part, &Value::Null)
                });
                call.reply = Value::Array(replies.collect());
                return;
            }
            _ => {}
        }
        let mut forgotten = Vec::new();
        let waits = matches!(&*args[0], b"BEGIN" | b"END");
        if self.fault == ForgetsToServe && !waits && self.chance() {
            forgotten = std::mem::take(&mut self.database.sessions.queue);
        }
        call.reply = self.database.run(client, &args, &Value::Null);
        self.database.sessions.queue.extend(forgotten);
        if *args[0] == *b"BEGIN" {
            call.seen_waiting = Some(self.now);
        }
        match (self.fault, &*args[0]) {
            (ServesTheLast, b"BEGIN") => {
                let queue = &mut self.database.sessions.queue;
                if queue.last().is_some_and(|last| last.client == client) {
                    queue.rotate_right(1);
                }
            }
            (ServesTwice, b"END") if self.chance() => {
                if let Value::Array(parts) = &call.reply
                    && parts.len() == 2
                {
                    let again = parts.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec);
                    let again = std::iter::once(b"RPUSH".to_vec()).chain(again).collect::<Vec<_>>();
                    self.database.run(client, &again, &Value::Null);
                }
            }
            (LosesAtTimeout, b"END") if self.chance() && matches!(call.reply, Value::Array(_)) => {
                call.reply = Value::NullArray;
            }
            _ => {}
        }
        if *args[0] == *b"END" && call.reply == Value::NullArray {
            call.timed_out = Some(self.now);
        }
    }

    /// Runs one command of a transaction that [`Fault::TornTransaction`] splits into separate
    /// steps.
    fn step_of_torn(&mut self, client: usize, args: &[Vec<u8>], call: &mut UnderWay) {
        let Some(replies) = &mut call.torn else { return };
        let watch = self.database.sessions.watching.remove(&client);
        call.reply = if watch.is_some_and(|watch| watch.is_stale) {
            call.steps.clear();
            Value::NullArray
        } else {
            replies.push(self.database.run(client, args, &Value::Null));
            Value::Array(replies.clone())
        };
    }

    /// Returns true if the client stays blocked: it has not timed out and has not been served.
    fn still_waits(&mut self, client: usize, call: &UnderWay) -> bool {
        call.steps.front().is_some_and(|args| *args[0] == *b"END")
            && !self.database.sessions.served.contains_key(&client)
            && self.rng.u8(..8) > 0
    }

    fn end(&mut self, client: usize, call: UnderWay) {
        let last = call.history.len() - 1;
        for (at, args) in call.history.into_iter().enumerate() {
            let (reply, returned) = match at == last {
                true => (call.reply.clone(), self.now),
                false => (Value::Simple(b"OK".to_vec()), call.seen_waiting.unwrap_or(self.now)),
            };
            let invoked = if at == last { call.timed_out.unwrap_or(call.invoked) } else { call.invoked };
            self.history.push(Operation { client, args, reply, invoked, returned });
        }
    }
}

/// Returns a history of four simulated clients on a server with this fault.
fn simulate(fault: Fault, mix: Mix, (seed, scripts_percent): (u64, usize)) -> History {
    const CLIENTS: usize = 4;
    const TURNS: u64 = 1_500;
    let recording = Recording {
        address: Address::port(0),
        clients: CLIENTS,
        commands_each: 0,
        keys: 1,
        mix,
        without: vec![],
        scripts_percent,
        seed,
    };
    let mut scripts: Vec<Script<'_>> = (0..CLIENTS).map(|client| Script::new(&recording, client)).collect();
    let mut simulation = Simulation {
        database: Database::default(),
        fault,
        rng: fastrand::Rng::with_seed(seed),
        now: 0,
        history: Vec::new(),
    };
    let mut under_way: [Option<UnderWay>; CLIENTS] = Default::default();
    let mut replies = [const { Value::Null }; CLIENTS];
    while simulation.now < TURNS || under_way.iter().any(Option::is_some) {
        simulation.now += 1;
        let client = simulation.rng.usize(..CLIENTS);
        match under_way[client].take() {
            None if simulation.now < TURNS => {
                let call = scripts[client].next(&replies[client]);
                under_way[client] = Some(simulation.begin(&call));
            }
            None => {}
            Some(call) if call.steps.is_empty() => {
                replies[client] = call.reply.clone();
                simulation.end(client, call);
            }
            Some(call) if simulation.still_waits(client, &call) => under_way[client] = Some(call),
            Some(mut call) => {
                simulation.step(client, &mut call);
                under_way[client] = Some(call);
            }
        }
    }
    simulation.history
}

#[test]
fn histories_without_a_fault_are_accepted() {
    for mix in [Mix::Sessions, Mix::Moves] {
        for seed in 0..20_u64 {
            let scripts_percent = if seed.is_multiple_of(4) { 20 } else { 0 };
            if let Err(counterexample) = check(&simulate(Fault::None, mix, (seed, scripts_percent))) {
                panic!("{mix:?}, seed {seed}: {counterexample}");
            }
        }
    }
}

#[test]
fn every_planted_fault_is_found() {
    for fault in [
        TornTransaction,
        BlindToWatch,
        LooksTooEarly,
        FailsForNothing,
        ServesTwice,
        LosesAtTimeout,
        ServesTheLast,
        ForgetsToServe,
        ServesWithinTransactions,
    ] {
        let found = |scripts_percent| {
            let is_found =
                |&seed: &u64| check(&simulate(fault, Mix::Sessions, (seed, scripts_percent))).is_err();
            (0..8).filter(is_found).count()
        };
        let found = (found(0), found(20));
        assert!(found.0 >= 3 && found.1 >= 3, "{fault:?} is found in {found:?} histories of 8 each");
    }
}

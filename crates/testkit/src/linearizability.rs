//! A check whether some sequential order of commands explains a concurrent history.
//!
//! A history is linearizable when every operation can be given an instant between its call and its
//! reply with this property: if the operations run one by one in the order of these instants, each
//! gives its recorded reply. Operations of one client keep their order (a pipeline promises this),
//! so histories may contain overlapping calls of one connection.
//!
//! Method: Wing and Gong's search as refined by Lowe. Calls and returns are in one doubly linked
//! list in time order. The search takes the first call that may come next, checks its reply against
//! the model, removes its two events from the list and continues. If it reaches the return of an
//! operation that it has not taken, it goes back and tries another call. A configuration is the set
//! of completed operations and the state of the model. Configurations already tried are remembered,
//! because two orders that lead to the same one have the same continuations. The search is
//! exponential in the number of operations in flight at a time, and linear in the length of the
//! history.
//!
//! Linearizability is local: a history is linearizable if and only if it is for each object alone.
//! Keys that one operation names together (MSET, RENAME) are one object here. Other keys are
//! checked separately.
//!
//! A counterexample is cut at the first reply that cannot be explained. Linearizability is closed
//! under prefixes, so bisection finds it. Operations still in flight at the cut may count as
//! completed or not. Sources: Wing, Gong, "Testing and Verifying Concurrent Objects" (1993); Lowe,
//! "Testing for Linearizability" (2017).

use crate::programs::shown;
use crate::sequential::{Database, keys_of};
use resp::Value;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

/// One command with its reply and the time of its execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The number of the connection that sent it. Operations of one connection take effect in the
    /// order of the history.
    pub client: usize,
    /// The name and the arguments of the command.
    pub args: Vec<Vec<u8>>,
    /// The reply of the server to the command.
    pub reply: Value,
    /// A time at or before the sending of the request. All clients use the same clock, of any unit.
    pub invoked: u64,
    /// A time at or after the arrival of the reply, on the same clock.
    pub returned: u64,
}

/// The recorded operations of all clients. Those of one client are in the order of sending.
pub type History = Vec<Operation>;

/// The reason why a history is not linearizable: the first reply that no order explains.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The keys that the operations of the history name.
    pub keys: Vec<Vec<u8>>,
    /// The operation with the first reply that cannot be explained, by the time of the reply. If
    /// several have this time, the last one in the history.
    pub culprit: Operation,
    /// Possible states of the keys before the culprit, each with the reply that it would give; at
    /// most `POSSIBLE_MAX`.
    pub possible: Vec<(Database, Value)>,
    /// The last operations on these keys up to the culprit's reply, in the order of their calls.
    pub recent: Vec<Operation>,
}

/// Maximum number of operations before the unexplained reply in a counterexample.
const RECENT_MAX: usize = 16;
/// Maximum number of possible states of the keys that a counterexample shows.
const POSSIBLE_MAX: usize = 4;

/// Checks that the history is linearizable, starting with empty keys. The module's comment states
/// the cost.
///
/// # Panics
/// Panics when the model does not know a command of the history.
pub fn check(history: &[Operation]) -> Result<(), Box<Counterexample>> {
    for object in objects(history) {
        let search = Search::new(&object, u64::MAX);
        if !search.succeeds() {
            return Err(Box::new(explain(&object)));
        }
    }
    Ok(())
}

/// Checks that the history up to the time `until` is linearizable, starting with empty keys.
/// Operations in flight at that time may have taken effect or not.
///
/// # Panics
/// Panics when the model does not know a command of the history.
pub fn check_prefix(history: &[Operation], until: u64) -> Result<(), Box<Counterexample>> {
    for object in objects(history) {
        if !Search::new(&object, until).succeeds() {
            return Err(Box::new(explain(&object)));
        }
    }
    Ok(())
}

/// Splits the operations by object, in the order of the history. Keys that one operation names
/// together belong to one object. If one operation concerns all keys, there is only one object.
fn objects(history: &[Operation]) -> Vec<Vec<&Operation>> {
    let Some(keys) = history.iter().map(|operation| keys_of(&operation.args)).collect::<Option<Vec<_>>>()
    else {
        return vec![history.iter().collect()];
    };
    // Each key points towards the representative of its object (union-find without ranks: there are
    // few keys).
    let mut parent: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    fn find<'a>(parent: &BTreeMap<&'a [u8], &'a [u8]>, mut key: &'a [u8]) -> &'a [u8] {
        while let Some(&next) = parent.get(key).filter(|&&next| next != key) {
            key = next;
        }
        key
    }
    for keys in &keys {
        for key in keys {
            let (root, first) = (find(&parent, key), find(&parent, &keys[0]));
            parent.insert(root, first);
        }
    }
    let mut by_root: BTreeMap<&[u8], Vec<&Operation>> = BTreeMap::new();
    for (operation, keys) in history.iter().zip(&keys) {
        by_root.entry(find(&parent, &keys[0])).or_default().push(operation);
    }
    by_root.into_values().collect()
}

/// Finds the first reply of the object's history that cannot be explained, with the possible states
/// and the last operations before it.
fn explain(object: &[&Operation]) -> Counterexample {
    let mut returns: Vec<u64> = object.iter().map(|operation| operation.returned).collect();
    returns.sort_unstable();
    returns.dedup();
    // The first prefix, of those up to each return, that is not linearizable.
    let cut = returns[returns.partition_point(|&until| Search::new(object, until).succeeds())];
    let culprits = object.iter().rfind(|operation| operation.returned == cut);
    let culprit = *culprits.expect("the cut is some operation's return");
    let possible = Search::new(object, cut).possible_before(culprit);
    let mut recent: Vec<Operation> = object
        .iter()
        .filter(|operation| operation.invoked <= cut)
        .map(|&operation| operation.clone())
        .collect();
    recent.sort_by_key(|operation| (operation.returned, operation.invoked));
    let until = recent.partition_point(|operation| operation.returned <= cut);
    recent.drain(..until.saturating_sub(RECENT_MAX));
    recent.sort_by_key(|operation| operation.invoked);
    let mut keys: Vec<Vec<u8>> =
        object.iter().filter_map(|operation| keys_of(&operation.args)).flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    Counterexample { keys, culprit: culprit.clone(), possible, recent }
}

/// The index that marks the end of the list of events.
const END: usize = usize::MAX;

/// An event in the search's list: the call or the return of an operation.
struct Event {
    operation: usize,
    is_call: bool,
    before: usize,
    after: usize,
}

/// The search for an order that explains one object's history up to a time.
struct Search<'a> {
    operations: Vec<&'a Operation>,
    /// For each operation, true if it returned by the time up to which the history is checked: the
    /// order must explain its reply. The other operations were in flight and may have had no
    /// effect.
    required: Vec<bool>,
    required_left: usize,
    /// For each operation, the previous operation of the same client, which must come first.
    previous: Vec<Option<usize>>,
    /// A linked list of events in time order, with its head at `events[0]`. The call of an
    /// operation is at index `2 * operation + 1`, its return at `2 * operation + 2`.
    events: Vec<Event>,
    done: Vec<u64>,
    state: Database,
}

impl<'a> Search<'a> {
    fn new(object: &[&'a Operation], until: u64) -> Self {
        let operations: Vec<&Operation> =
            object.iter().copied().filter(|operation| operation.invoked <= until).collect();
        let required: Vec<bool> = operations.iter().map(|operation| operation.returned <= until).collect();
        let mut last_of_client = BTreeMap::new();
        let previous = operations
            .iter()
            .enumerate()
            .map(|(index, operation)| last_of_client.insert(operation.client, index))
            .collect();
        Self {
            required_left: required.iter().filter(|&&required| required).count(),
            previous,
            events: linked(&operations, &required),
            done: vec![0; operations.len().div_ceil(64)],
            state: Database::default(),
            operations,
            required,
        }
    }

    fn succeeds(mut self) -> bool {
        self.run(|_, _| ())
    }

    /// Returns up to [`POSSIBLE_MAX`] states that explain every required reply except that of
    /// `culprit`. Each state comes with the reply that the model gives to the culprit in it.
    fn possible_before(mut self, culprit: &Operation) -> Vec<(Database, Value)> {
        let culprit_index = self
            .operations
            .iter()
            .position(|&operation| std::ptr::eq(operation, culprit) || operation == culprit)
            .expect("the culprit is of this object");
        let mut possible = Vec::new();
        self.run(|search, refused| {
            if refused == culprit_index && search.required_left == 1 && possible.len() < POSSIBLE_MAX {
                let mut state = search.state.clone();
                let expected = state.run(culprit.client, &culprit.args, &culprit.reply);
                let entry = (search.state.clone(), expected);
                if !possible.contains(&entry) {
                    possible.push(entry);
                }
            }
        });
        possible
    }

    /// Runs the search. Returns true if some order explains every required reply. Calls `refused`
    /// with each operation that could not come next when it was tried. Either its reply did not
    /// fit, or its client's previous operation had not run.
    fn run(&mut self, mut refused: impl FnMut(&Self, usize)) -> bool {
        let mut tried: HashSet<(Vec<u64>, Database)> = HashSet::new();
        let mut taken: Vec<(usize, Database)> = Vec::new();
        let mut at = self.events[0].after;
        while self.required_left > 0 {
            if at != END && self.events[at].is_call {
                let operation = self.events[at].operation;
                if let Some(state) = self.after(operation) {
                    self.take(operation);
                    if tried.insert((self.done.clone(), state.clone())) {
                        taken.push((operation, std::mem::replace(&mut self.state, state)));
                        at = self.events[0].after;
                        continue;
                    }
                    self.put_back(operation);
                } else {
                    refused(self, operation);
                }
                at = self.events[at].after;
            } else {
                // At a return whose call is still in the list, or at the end of the list, an
                // earlier choice was wrong.
                let Some((operation, state)) = taken.pop() else {
                    return false;
                };
                self.state = state;
                self.put_back(operation);
                at = self.events[2 * operation + 1].after;
            }
        }
        true
    }

    /// Returns the state of the model after the operation; `None` if the operation may not come
    /// next or its reply does not fit.
    fn after(&self, operation: usize) -> Option<Database> {
        if self.previous[operation].is_some_and(|previous| !self.is_done(previous)) {
            return None;
        }
        let Operation { client, args, reply, .. } = self.operations[operation];
        let mut state = self.state.clone();
        (state.run(*client, args, reply) == *reply).then_some(state)
    }

    fn is_done(&self, operation: usize) -> bool {
        self.done[operation / 64] & 1 << (operation % 64) != 0
    }

    /// Removes the call and the return of `operation` from the list of events.
    fn take(&mut self, operation: usize) {
        self.done[operation / 64] |= 1 << (operation % 64);
        self.required_left -= usize::from(self.required[operation]);
        for event in [2 * operation + 1, 2 * operation + 2] {
            let (before, after) = (self.events[event].before, self.events[event].after);
            self.events[before].after = after;
            if after != END {
                self.events[after].before = before;
            }
        }
    }

    /// Puts the call and the return of `operation` back at their places in the list of events.
    /// Operations must be put back in the reverse order of their removal.
    fn put_back(&mut self, operation: usize) {
        self.done[operation / 64] &= !(1 << (operation % 64));
        self.required_left += usize::from(self.required[operation]);
        for event in [2 * operation + 2, 2 * operation + 1] {
            let (before, after) = (self.events[event].before, self.events[event].after);
            self.events[before].after = event;
            if after != END {
                self.events[after].before = event;
            }
        }
    }
}

/// Returns the events in time order, after the head of the list. At equal times calls come before
/// returns, so that such operations overlap. The returns of operations that are not required come
/// last.
fn linked(operations: &[&Operation], required: &[bool]) -> Vec<Event> {
    let mut order: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * operations.len());
    for (index, operation) in operations.iter().enumerate() {
        let returned = if required[index] { operation.returned } else { u64::MAX };
        order.push((operation.invoked, false, 2 * index + 1));
        order.push((returned, true, 2 * index + 2));
    }
    order.sort_unstable();
    let mut events: Vec<Event> = (0..=2 * operations.len())
        .map(|event| Event {
            operation: event.saturating_sub(1) / 2,
            is_call: event % 2 == 1,
            before: 0,
            after: END,
        })
        .collect();
    let mut last = 0;
    for (_, _, event) in order {
        events[last].after = event;
        events[event].before = last;
        last = event;
    }
    events
}

/// Formats a reply on one line, with `[` and `]` around the parts of an aggregate.
pub(crate) fn compact(reply: &Value) -> String {
    match reply {
        Value::Array(parts) => format!("[{}]", parts.iter().map(compact).collect::<Vec<_>>().join(" ")),
        Value::Integer(value) => value.to_string(),
        other => other.to_string(),
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, args, reply, invoked, returned } = self;
        let words: Vec<_> = shown(args).iter().map(|arg| arg.escape_ascii().to_string()).collect();
        write!(f, "{invoked:>10}..{returned:<10} client {client}: {} -> {}", words.join(" "), compact(reply))
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        writeln!(f, "no order of the commands on {} explains this reply:", keys.join(", "))?;
        writeln!(f, "  {}", self.culprit)?;
        writeln!(f, "All before it can be explained, and then it finds one of")?;
        for (state, reply) in &self.possible {
            writeln!(f, "  {state}, which would answer {}", compact(reply))?;
        }
        writeln!(f, "The last commands on these keys, by the time of their call:")?;
        for operation in &self.recent {
            writeln!(f, "  {operation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, check, objects};
    use resp::Value;

    /// Parses a history in the order written: `client from..to COMMAND… -> reply`.
    fn history(text: &str) -> Vec<Operation> {
        text.trim().lines().map(operation).collect()
    }

    fn operation(line: &str) -> Operation {
        let (call, reply) = line.split_once(" -> ").expect("a reply");
        let words: Vec<&str> = call.split_whitespace().collect();
        let (from, to) = words[1].split_once("..").expect("a span");
        Operation {
            client: words[0].parse().expect("a client"),
            args: words[2..].iter().map(|word| word.as_bytes().to_vec()).collect(),
            reply: value(reply),
            invoked: from.parse().expect("a time"),
            returned: to.parse().expect("a time"),
        }
    }

    fn value(text: &str) -> Value {
        match text.split_at(1) {
            ("+", rest) => Value::Simple(rest.into()),
            (":", rest) => Value::Integer(rest.parse().expect("a number")),
            ("_", _) => Value::Null,
            ("-", _) => Value::NullArray,
            ("[", rest) => Value::Array(rest.trim_end_matches(']').split_whitespace().map(value).collect()),
            _ => Value::Bulk(text.into()),
        }
    }

    fn good(text: &str) {
        if let Err(counterexample) = check(&history(text)) {
            panic!("{counterexample}");
        }
    }

    /// Asserts that the history is not linearizable, and that `culprit` names the first command
    /// whose reply cannot be explained.
    fn bad(text: &str, culprit: &str) {
        let counterexample = check(&history(text)).expect_err("not linearizable");
        assert!(counterexample.culprit.to_string().contains(culprit), "{counterexample}");
        assert!(!counterexample.possible.is_empty(), "{counterexample}");
    }

    #[test]
    fn overlapping_reads_may_see_either_side_of_a_write() {
        good("1 0..9 SET k a -> +OK\n2 1..2 GET k -> _\n2 3..4 GET k -> a");
    }

    #[test]
    fn a_read_after_a_write_must_see_it() {
        bad("1 0..1 SET k a -> +OK\n2 2..3 GET k -> _", "GET k");
    }

    #[test]
    fn time_does_not_run_backwards_between_readers() {
        bad("1 0..9 SET k a -> +OK\n2 1..2 GET k -> a\n3 3..4 GET k -> _", "GET k -> (nil)");
    }

    #[test]
    fn a_lost_increment_is_found() {
        good("1 0..5 INCR n -> :1\n2 0..5 INCR n -> :2\n3 6..7 GET n -> 2");
        bad("1 0..5 INCR n -> :1\n2 0..5 INCR n -> :1\n3 6..7 GET n -> 1", "INCR n");
    }

    #[test]
    fn an_element_is_popped_once() {
        good("1 0..1 RPUSH l a b -> :2\n2 2..9 LPOP l -> a\n3 2..9 LPOP l -> b");
        bad("1 0..1 RPUSH l a b -> :2\n2 2..9 LPOP l -> a\n3 2..9 LPOP l -> a", "LPOP l");
    }

    #[test]
    fn a_random_member_is_any_member_but_one_of_them() {
        good("1 0..1 SADD s a b -> :2\n2 2..9 SPOP s -> b\n3 2..9 SPOP s -> a\n3 10..11 SPOP s -> _");
        bad("1 0..1 SADD s a b -> :2\n2 2..9 SPOP s -> b\n3 2..9 SPOP s -> b", "SPOP s");
        bad("1 0..1 SADD s a b -> :2\n2 2..9 SPOP s -> c", "SPOP s");
    }

    #[test]
    fn several_keys_change_at_once() {
        good("1 0..9 MSET a 1 b 1 -> +OK\n2 1..2 MGET a b -> [_ _]\n2 3..4 MGET a b -> [1 1]");
        bad("1 0..9 MSET a 1 b 1 -> +OK\n2 1..2 MGET a b -> [1 _]", "MGET a b");
        good("1 0..9 MSET a 1 b 1 -> +OK\n2 1..2 KEYS * -> [b a]\n2 3..4 FLUSHDB -> +OK\n2 5..6 GET a -> _");
        bad("1 0..9 MSET a 1 b 1 -> +OK\n2 1..2 KEYS * -> [b]", "KEYS *");
        bad("1 0..1 SET a 1 -> +OK\n1 2..9 RENAME a b -> +OK\n2 3..4 GET a -> _\n2 5..6 GET b -> _", "GET b");
    }

    #[test]
    fn a_transaction_is_not_torn() {
        good("1 0..9 EXEC SET a 1 ; SET b 1 -> [+OK +OK]\n2 1..2 MGET a b -> [1 1]");
        bad("1 0..9 EXEC SET a 1 ; SET b 1 -> [+OK +OK]\n2 1..2 MGET a b -> [1 _]", "MGET a b");
    }

    #[test]
    fn a_lost_optimistic_update_is_found() {
        let read = "1 0..1 WATCH n -> +OK\n1 2..3 GET n -> _\n2 4..5 INCR n -> :1\n";
        good(&format!("{read}1 6..7 EXEC SET n 1 -> -"));
        bad(&format!("{read}1 6..7 EXEC SET n 1 -> [+OK]"), "EXEC SET n 1");
        // Nothing has changed, so EXEC has no reason to fail.
        bad("1 0..1 WATCH n -> +OK\n2 2..3 GET n -> _\n1 4..5 EXEC SET n 1 -> -", "EXEC SET n 1");
    }

    #[test]
    fn who_was_seen_to_wait_is_served_in_that_order_and_at_once() {
        let waiting = "1 0..1 BEGIN BLPOP l -> +OK\n2 2..3 BEGIN BLPOP l -> +OK\n3 4..5 RPUSH l x -> :1\n";
        good(&format!("{waiting}1 0..9 END BLPOP l -> [l x]\n2 2..9 END BLPOP l -> -"));
        let wrong = "2 2..8 END BLPOP l -> [l x]\n3 6..7 RPUSH l y -> :1\n1 0..9 END BLPOP l -> [l y]";
        bad(&format!("{waiting}{wrong}"), "END BLPOP l -> [");
        // A timeout of the first client before the push explains the history. Another client that
        // popped the element does not.
        good(&format!("{waiting}1 0..8 END BLPOP l -> -\n2 2..9 END BLPOP l -> [l x]"));
        bad(&format!("{waiting}3 6..7 LPOP l -> x\n1 0..9 END BLPOP l -> -"), "LPOP l");
    }

    #[test]
    fn one_clients_commands_keep_their_order_even_when_they_overlap() {
        good("1 0..9 SET k a -> +OK\n1 0..9 GET k -> a");
        bad("1 0..9 SET k a -> +OK\n1 0..9 GET k -> _", "GET k");
        good("1 0..9 SET k a -> +OK\n2 0..9 GET k -> _");
    }

    #[test]
    fn the_first_reply_that_is_wrong_is_named_and_later_ones_are_not() {
        bad(
            "1 0..1 SET k a -> +OK\n2 2..3 GET k -> b\n3 4..5 GET k -> c\n1 0..1 SET other a -> +OK",
            "2..3          client 2: GET k",
        );
    }

    #[test]
    fn keys_that_no_command_names_together_are_checked_apart() {
        let history = history(
            "1 0..1 GET a -> _\n1 0..1 GET b -> _\n1 0..1 GET c -> _\n1 0..1 GET d -> _\n2 0..1 MGET b c -> [_ _]\n2 0..1 MGET d c -> [_ _]",
        );
        let mut sizes: Vec<usize> = objects(&history).iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 5]);
    }

    /// Checks long histories with several operations in flight at all times. The set of tried
    /// configurations prevents a search over all orders.
    #[test]
    fn a_long_history_is_checked_quickly() {
        let mut history = Vec::new();
        for round in 0..500 {
            for client in 0..6 {
                history.push(Operation {
                    client,
                    args: vec![b"INCR".to_vec(), b"n".to_vec()],
                    reply: Value::Integer((round * 6 + (client * 5 + round) % 6 + 1) as i64),
                    invoked: round as u64 * 10,
                    returned: round as u64 * 10 + 4 + client as u64,
                });
            }
        }
        check(&history).expect("every order within a round is allowed");
        history[2_898].reply = Value::Integer(7);
        assert_eq!(check(&history).expect_err("7 was long ago").culprit.reply, Value::Integer(7));
    }
}

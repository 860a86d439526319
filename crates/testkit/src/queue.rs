//! A test of lists as queues, under clients that connect and disconnect: no element may be lost or
//! served twice.
//!
//! Clients push elements to a few lists and pop them, in small pipelines, by all commands that pop.
//! Some close their connection without reading the replies. Some are killed or unblocked by others.
//! All of them return with a new connection. Every element is pushed once, by one client, and names
//! its origin: `<client>:<list>:<number>`.
//!
//! At the end, the test knows the place of each element, except for elements of requests whose
//! replies were never read. It checks these conditions:
//!
//! 1. No element is found twice, in replies, in the destination lists of BLMOVE, or in the
//!    remaining lists.
//! 2. Every element that is found was pushed.
//! 3. Every element whose push was answered is found. Exception: as many may be missing as the pops
//!    with unread replies can have taken. A move (BLMOVE) never loses an element, even if its reply
//!    is not read.
//! 4. The elements that one client receives from one pusher and one list arrive in the order of
//!    their pushes: elements are pushed on the right and popped from the left. Pushes without an
//!    answer are left out, because a server may run them after those of the pusher's next
//!    connection.
//! 5. No client is blocked after all connections are closed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use resp::{Value, encode_request};

use crate::client::{Address, Client, ClientError};
use crate::rng::Rng;

/// Number of lists (queues) through which the elements pass.
const LISTS: usize = 3;
/// Maximum number of requests in a pipeline of a client.
const PIPELINE_MAX: usize = 6;
/// Maximum number of elements that one request pushes or pops.
const ELEMENTS_MAX: usize = 4;
/// Timeout of blocking commands in seconds.
const TIMEOUT: &str = "0.01";
/// Number of pipelines in a thousand after which the client closes without reading the replies.
const HANG_UP_PERMILLE: usize = 8;
/// Number of requests in a thousand that kill or unblock another client.
const KILL_PERMILLE: usize = 8;
/// Maximum time until the server has removed all closed connections at the end of the test.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The settings of a run of the queue test.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The address of a server without keys.
    pub address: Address,
    /// The number of simultaneous clients, each a thread of this process.
    pub clients: usize,
    /// The number of elements that all clients push together.
    pub elements: usize,
    /// The seed of the clients' random choices.
    pub seed: u64,
}

/// The results of a run of the queue test in which no element was lost, doubled or out of order.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of elements whose push the server answered.
    pub pushed: usize,
    /// The number of elements that were found although their push was not answered.
    pub pushed_unanswered: usize,
    /// The number of elements that clients received in replies to pops.
    pub popped: usize,
    /// The number of elements that BLMOVE has moved to destination lists.
    pub moved: usize,
    /// The number of elements that are missing because replies with them were not read.
    pub lost: usize,
    /// The number of elements that the unread replies may have contained at most; more losses are
    /// an error.
    pub lost_max: usize,
    /// The number of connections that ended while some of their requests were unanswered.
    pub hung_up: usize,
    /// The part of `hung_up` that the server closed because another client killed the connection.
    pub killed: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} elements pushed, {} more by unanswered pushes; {} popped, {} moved; {} of at most {} went with \
             unread replies of {} connections, {} of which others killed",
            self.pushed,
            self.pushed_unanswered,
            self.popped,
            self.moved,
            self.lost,
            self.lost_max,
            self.hung_up,
            self.killed
        )
    }
}

/// An element: its pusher, its list, and its number among that pusher's elements of the list.
type Element = (usize, usize, usize);

/// A random request in a client's pipeline, with the facts by which the client reads its reply and
/// records the pushed and popped elements.
enum Request {
    /// RPUSH of these elements to the list that they name.
    Push(Vec<Element>),
    /// A command that pops up to `elements_max` elements, such as LPOP with a count in a
    /// transaction. The server sends `replies` replies to it; the last one holds the elements.
    Pop { elements_max: usize, replies: usize },
    /// BLMOVE to the client's own destination list.
    Move,
    /// CLIENT KILL or CLIENT UNBLOCK of another client.
    Kill,
}

/// The elements that one client of the queue test pushed, popped and moved, as known at the end of
/// the run.
#[derive(Default)]
struct Known {
    pushed: Vec<Element>,
    maybe_pushed: Vec<Element>,
    popped: Vec<Element>,
    maybe_popped: usize,
    hung_up: usize,
    killed: usize,
}

/// The state that all clients of a run share.
struct Common {
    /// The id of each client's present connection, by client number.
    ids: Vec<AtomicU64>,
    /// The number of clients that have pushed all their elements to the queues.
    done_pushing: AtomicUsize,
}

/// Runs the clients of the queue test and checks their results. The module lists the conditions.
///
/// # Panics
///
/// Panics when an element is lost, found twice or out of order, or the server does not answer.
pub fn run(queue: &Queue) -> Report {
    let common = Common {
        ids: (0..queue.clients).map(|_| AtomicU64::new(0)).collect(),
        done_pushing: AtomicUsize::new(0),
    };
    let known: Vec<Known> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..queue.clients)
            .map(|index| {
                let common = &common;
                scope.spawn(move || Worker::new(queue, index, common).run())
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("its panic says why")).collect()
    });
    check(queue, &known)
}

/// A client of the queue test: its connection, its random choices and its elements.
struct Worker<'q> {
    queue: &'q Queue,
    index: usize,
    common: &'q Common,
    rng: Rng,
    client: Client,
    /// The number of elements that this client has pushed to each list.
    pushes: [usize; LISTS],
    quota: usize,
    known: Known,
}

impl<'q> Worker<'q> {
    fn new(queue: &'q Queue, index: usize, common: &'q Common) -> Self {
        let seed = queue.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        let quota = (queue.elements + queue.clients - 1 - index) / queue.clients;
        let client = connect(&queue.address);
        let (pushes, known) = ([0; LISTS], Known::default());
        Self { queue, index, common, rng: Rng::new(seed), client, pushes, quota, known }
    }

    fn run(mut self) -> Known {
        self.note_id();
        let mut is_done = false;
        loop {
            if self.quota == 0 && !is_done {
                is_done = true;
                self.common.done_pushing.fetch_add(1, Relaxed);
            }
            let all_are_done = self.common.done_pushing.load(Relaxed) == self.queue.clients;
            let popped = self.known.popped.len();
            if !self.pipeline() {
                self.client = connect(&self.queue.address);
                self.note_id();
            } else if all_are_done && self.known.popped.len() == popped && self.is_empty() {
                return self.known;
            }
        }
    }

    /// Returns true if all lists (queues) are empty. Returns false if no reply arrives, because
    /// another client may have killed the connection.
    fn is_empty(&mut self) -> bool {
        let mut request = vec!["EXISTS".to_string()];
        request.extend((0..LISTS).map(list));
        matches!(self.client.request(&request), Ok(Value::Integer(0)))
    }

    /// Stores the id of the client's connection for others to kill. If the client is killed
    /// meanwhile, its next request fails.
    fn note_id(&mut self) {
        if let Ok(Value::Integer(id)) = self.client.request(&["CLIENT", "ID"]) {
            self.common.ids[self.index].store(id as u64, Relaxed);
        }
    }

    /// Sends a pipeline of random requests and reads the replies. Returns true if the connection is
    /// still open.
    fn pipeline(&mut self) -> bool {
        let mut bytes = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..=self.rng.below(PIPELINE_MAX) {
            let request = self.request(&mut bytes);
            requests.push(request);
        }
        let hangs_up_at = (self.rng.below(1000) < HANG_UP_PERMILLE).then(|| self.rng.below(requests.len()));
        let mut stands = self.client.send(&bytes).map_err(|error| self.note_end(&error)).is_ok();
        for (at, request) in requests.into_iter().enumerate() {
            if stands && hangs_up_at == Some(at) {
                self.known.hung_up += 1;
                stands = false;
            }
            let reply = stands.then(|| self.reply(&request)).flatten();
            stands = reply.is_some();
            self.note(request, reply);
        }
        stands
    }

    /// Reads all replies to a request and returns the last one; `None` if the connection has ended.
    fn reply(&mut self, request: &Request) -> Option<Value> {
        let replies = if let Request::Pop { replies, .. } = request { *replies } else { 1 };
        match self.client.read_many(replies) {
            Ok(mut replies) => replies.pop(),
            Err(error) => {
                self.note_end(&error);
                None
            }
        }
    }

    /// Counts a connection of this client that the server has closed.
    fn note_end(&mut self, error: &ClientError) {
        assert!(matches!(error, ClientError::Closed), "client {}: {error}", self.index);
        self.known.hung_up += 1;
        self.known.killed += 1;
    }

    /// Appends a random request to `bytes` and returns it.
    fn request(&mut self, bytes: &mut Vec<u8>) -> Request {
        let mut send = |line: &str| encode_request(&line.split(' ').collect::<Vec<_>>(), bytes);
        let (a, b) = (list(self.rng.below(LISTS)), list(self.rng.below(LISTS)));
        if self.rng.below(1000) < KILL_PERMILLE {
            let other = self.rng.below(self.queue.clients);
            let id = self.common.ids[other].load(Relaxed);
            // A client does not kill its own connection: `pipeline` hangs up at random.
            match self.rng.below(3) {
                0 if other != self.index => send(&format!("CLIENT KILL ID {id}")),
                1 => send(&format!("CLIENT UNBLOCK {id} ERROR")),
                _ => send(&format!("CLIENT UNBLOCK {id}")),
            }
            return Request::Kill;
        }
        let one = Request::Pop { elements_max: 1, replies: 1 };
        match self.rng.below(100) {
            0..25 if self.quota > 0 => return self.push(bytes),
            0..35 => send(&format!("BLPOP {a} {TIMEOUT}")),
            35..50 => send(&format!("BLPOP {a} {b} {TIMEOUT}")),
            50..60 => send(&format!("LPOP {a}")),
            60..80 => {
                send(&format!("BLMOVE {a} {} LEFT RIGHT {TIMEOUT}", own_list(self.index)));
                return Request::Move;
            }
            80..90 => {
                send(&format!("BLMPOP {TIMEOUT} 2 {a} {b} LEFT COUNT {ELEMENTS_MAX}"));
                return Request::Pop { elements_max: ELEMENTS_MAX, replies: 1 };
            }
            _ => {
                for line in ["MULTI", &format!("LPOP {a}"), &format!("BLPOP {b} {TIMEOUT}"), "EXEC"] {
                    send(line);
                }
                return Request::Pop { elements_max: 2, replies: 4 };
            }
        }
        one
    }

    fn push(&mut self, bytes: &mut Vec<u8>) -> Request {
        let to = self.rng.below(LISTS);
        let count = (1 + self.rng.below(ELEMENTS_MAX)).min(self.quota);
        self.quota -= count;
        let first = self.pushes[to];
        self.pushes[to] += count;
        let elements: Vec<Element> = (first..first + count).map(|number| (self.index, to, number)).collect();
        let mut words = vec!["RPUSH".to_string(), list(to)];
        words.extend(elements.iter().map(|(client, list, number)| format!("{client}:{list}:{number}")));
        encode_request(&words, bytes);
        Request::Push(elements)
    }

    /// Records the elements that a request has pushed, popped or moved. `reply` is `None` if the
    /// reply is missing.
    fn note(&mut self, request: Request, reply: Option<Value>) {
        match (request, reply) {
            (Request::Push(elements), Some(Value::Integer(_))) => self.known.pushed.extend(elements),
            (Request::Push(elements), None) => self.known.maybe_pushed.extend(elements),
            (Request::Push(_), Some(other)) => panic!("client {}: RPUSH answered {other}", self.index),
            (Request::Pop { elements_max, .. }, None) => self.known.maybe_popped += elements_max,
            (Request::Pop { .. }, Some(Value::Error(line))) if line.starts_with(b"UNBLOCKED") => {}
            (Request::Pop { .. }, Some(reply)) => collect(&reply, &mut self.known.popped),
            (Request::Move | Request::Kill, _) => {}
        }
    }
}

fn connect(address: &Address) -> Client {
    Client::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
}

fn list(number: usize) -> String {
    format!("queue:{number}")
}

fn own_list(client: usize) -> String {
    format!("moved:{client}")
}

/// Appends the elements in a reply to `elements`. The other strings of the reply are names of
/// lists.
fn collect(reply: &Value, elements: &mut Vec<Element>) {
    match reply {
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, elements)),
        Value::Bulk(text) if !text.starts_with(b"queue:") => {
            let text = String::from_utf8_lossy(text);
            let mut numbers = text.split(':').map(|number| number.parse().expect("an element"));
            let mut next = || numbers.next().expect("an element has three numbers");
            elements.push((next(), next(), next()));
        }
        Value::Bulk(_) | Value::Null | Value::NullArray => {}
        other => panic!("a pop answered {other}"),
    }
}

/// Compares the elements that the clients pushed and received with each other and with the
/// remaining lists.
fn check(queue: &Queue, known: &[Known]) -> Report {
    let mut control = connect(&queue.address);
    wait_until_no_client_waits(&mut control);
    let mut contents = |list: String| {
        let mut elements = Vec::new();
        collect(&control.command(&["LRANGE", &list, "0", "-1"]), &mut elements);
        elements
    };
    let moved: Vec<_> = (0..queue.clients).map(|index| contents(own_list(index))).collect();
    let left: Vec<_> = (0..LISTS).map(|number| contents(list(number))).collect();
    judge(known, &moved, &left)
}

/// Compares the elements that the clients pushed and received with the lists on the server. `moved`
/// is the destination list of each client, `left` the remaining elements of each queue.
fn judge(known: &[Known], moved: &[Vec<Element>], left: &[Vec<Element>]) -> Report {
    let mut report = Report::default();
    let mut found = BTreeSet::new();
    let maybe: BTreeSet<Element> =
        known.iter().flat_map(|known| known.maybe_pushed.iter().copied()).collect();
    let pushed: BTreeSet<Element> = known.iter().flat_map(|known| known.pushed.iter().copied()).collect();
    let mut find = |elements: &[Element], whose: &str| {
        check_order(elements.iter().filter(|&element| !maybe.contains(element)), whose);
        for element in elements {
            assert!(found.insert(*element), "{element:?} is found twice, the second time: {whose}");
            let is_known = pushed.contains(element) || maybe.contains(element);
            assert!(is_known, "{element:?} was never pushed: {whose}");
        }
    };
    for (index, known) in known.iter().enumerate() {
        find(&known.popped, &format!("popped by client {index}"));
        report.popped += known.popped.len();
        report.hung_up += known.hung_up;
        report.killed += known.killed;
        report.lost_max += known.maybe_popped;
    }
    for (index, moved) in moved.iter().enumerate() {
        find(moved, &format!("moved by client {index}"));
        report.moved += moved.len();
    }
    left.iter().for_each(|left| find(left, "left over"));
    report.pushed = pushed.len();
    report.pushed_unanswered = found.intersection(&maybe).count();
    report.lost = pushed.difference(&found).count();
    assert!(report.lost <= report.lost_max, "more is lost than unread replies explain: {report}");
    report
}

/// Checks that the elements which one client received from one pusher and one list are in the order
/// of their pushes.
fn check_order<'e>(elements: impl Iterator<Item = &'e Element>, whose: &str) {
    let mut last = BTreeMap::new();
    for &(client, list, number) in elements {
        if let Some(before) = last.insert((client, list), number) {
            assert!(before < number, "{client}:{list}:{number} came behind {before}: {whose}");
        }
    }
}

/// Waits until the server has noticed that all connections are closed and no client is blocked.
fn wait_until_no_client_waits(control: &mut Client) {
    let begun = Instant::now();
    loop {
        let info = control.command(&["INFO", "clients"]);
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        if info.contains("blocked_clients:0\r\n") && info.contains("connected_clients:1\r\n") {
            return;
        }
        assert!(begun.elapsed() < GONE_WITHIN, "clients that are gone still wait: {info}");
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::{Element, Known, judge};

    /// Returns the record of a client that pushed and popped these elements.
    fn known(pushed: &[Element], popped: &[Element]) -> Known {
        Known { pushed: pushed.to_vec(), popped: popped.to_vec(), ..Known::default() }
    }

    const A: Element = (0, 0, 0);
    const B: Element = (0, 0, 1);
    const C: Element = (0, 1, 0);

    #[test]
    fn what_is_popped_moved_or_left_is_not_lost() {
        let report = judge(&[known(&[A, B, C], &[A])], &[vec![B]], &[vec![C]]);
        assert_eq!((report.pushed, report.popped, report.moved, report.lost), (3, 1, 1, 0));
    }

    #[test]
    fn an_unread_reply_explains_what_it_may_have_brought() {
        let client = Known { maybe_popped: 1, ..known(&[A, B], &[A]) };
        assert_eq!(judge(&[client], &[], &[]).lost, 1);
    }

    #[test]
    #[should_panic(expected = "more is lost")]
    fn what_nobody_took_is_lost() {
        judge(&[known(&[A, B], &[A])], &[], &[]);
    }

    #[test]
    #[should_panic(expected = "found twice")]
    fn what_two_clients_got_was_served_twice() {
        judge(&[known(&[A], &[A]), known(&[], &[A])], &[], &[]);
    }

    #[test]
    #[should_panic(expected = "found twice")]
    fn what_was_popped_must_not_be_left() {
        judge(&[known(&[A], &[A])], &[], &[vec![A]]);
    }

    #[test]
    #[should_panic(expected = "came behind")]
    fn what_was_pushed_first_comes_first() {
        judge(&[known(&[A, B], &[B, A])], &[], &[]);
    }

    #[test]
    #[should_panic(expected = "never pushed")]
    fn nothing_comes_from_nowhere() {
        judge(&[known(&[A], &[A, C])], &[], &[]);
    }
}

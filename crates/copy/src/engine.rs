//! The event loop of the copy: all connections, the lanes, the scans and the events. A lane copies
//! a share of the keys over one connection to each server.
//!
//! ```text
//!   link 0      scan of the source ──► keys ─┐
//!   link 1      scan of the target ──► keys ─┼─► lanes
//!   link 2      events of the source ─ keys ─┘
//!   link 3, 4   lane 0: source, target          link 5, 6  lane 1 …
//! ```
//! A scan asks for more keys only while the lanes have few. A lane reads from the source only while
//! the target keeps up. So the memory is bounded. After a lost connection the lane starts again
//! with the keys whose requests were not answered, and a scan continues from its cursor. If events
//! were missed, the source is scanned again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use net::{ConnId, Event, EventLoop, LoopOptions};
use resp::{Value, decode, encode_request};

use crate::changes::Pushed;
use crate::client::CONNECT_WITHIN;
use crate::event::{PATTERN, changed_key};
use crate::key::Key;
use crate::lane::{Dialect, Lane, Outcome, Task};
use crate::link::{End, Link, Role, State};
use crate::rate::Budget;
use crate::report::Tally;
use crate::scan::Scan;
use crate::server::Server;
use crate::verdict::Refusal;

/// The maximum number of keys of one lane with unanswered requests.
const WINDOW: usize = 512;
/// The argument COUNT of each SCAN request: about the number of keys in its reply.
const SCAN_COUNT: &[u8] = b"1000";
/// The number of queued keys per lane up to which a scan continues.
const QUEUED_MAX: usize = 2 * WINDOW;
/// The number of unsent bytes to the target of a lane at which the lane stops reading from the
/// source.
const UNSENT_LEN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The shortest time between the change of a key and its copy, in nanoseconds.
const CHANGE_AGE_NS: u64 = 20_000_000;
/// The time without received bytes after which a connection is probed (TCP keepalive). So the loss
/// of the network is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The longest time that one turn of the event loop waits for events.
const TURN_MAX: Duration = Duration::from_millis(10);
/// The number of keys that wait for a copy or comparison by the commands of their types, at which
/// the lanes read no further keys.
const SLOW_MAX: usize = 2000;
/// The minimum length of a value that is received in a buffer of its own, in bytes.
const LARGE_LEN_BYTES: usize = 256 * 1024;
/// The pause of a lane after a server has replied that it is busy, in nanoseconds.
const BUSY_NS: u64 = 200_000_000;

/// The index of the link (connection) that scans the source. The constants after it are the indices
/// of the link that scans the target, of the link for events, and of the first link of a lane.
const SCAN_SOURCE: usize = 0;
const SCAN_TARGET: usize = 1;
const EVENTS: usize = 2;
const LANES: usize = 3;

/// The settings of the engine, the event loop of the copy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of lanes, each of which handles a share of the keys.
    pub lanes: usize,
    /// The databases whose keyspace events lead to copies of keys; empty for all.
    pub databases: Vec<u32>,
    /// The number of databases that the target has.
    pub databases_count: u32,
    /// The maximum number of keys read from the source per second; `None` for no limit.
    pub keys_per_second: Option<f64>,
    /// The maximum number of payload bytes read from the source per second; `None` for no limit.
    pub bytes_per_second: Option<f64>,
    /// The maximum memory of all queues of changed keys together, in bytes.
    pub changed_len_bytes_max: usize,
    /// The time for which a server may be unreachable before the copy fails.
    pub retry_for: Duration,
    /// True if the copy uses the source's keyspace events to follow changes.
    pub has_events: bool,
    /// The commands, known to both servers, by which expiries are read and values are compared.
    pub dialect: Dialect,
}

/// The running copy: its connections, lanes (each with a share of the keys), scans and counts.
pub struct Engine {
    source: Server,
    target: Server,
    settings: Settings,
    net: EventLoop,
    links: Vec<Link>,
    /// For each connection, by its index, the index of the link that uses it; `None` if no link
    /// does.
    link_of: Vec<Option<usize>>,
    lanes: Vec<Lane>,
    budget: Budget,
    epoch: Instant,
    /// The scan of the source, and the task to be done for each key that it returns.
    source_scan: Scan,
    source_task: Task,
    target_scan: Scan,
    busy_until_ns: u64,
    was_subscribed: bool,
    /// True while the connection for keyspace events is subscribed to them.
    pub is_subscribed: bool,
    /// True if changes may have been missed since the last scan began.
    pub must_rescan: bool,
    /// The keys that a server refused, each with its error.
    pub refused: VecDeque<(Key, String)>,
    /// The keys whose digests or payloads differ between the servers.
    pub different: VecDeque<Key>,
    /// The keys whose values differ and that are observed for changes during a comparison. The
    /// value is true if the key has changed.
    pub suspects: std::collections::HashMap<Key, bool>,
    /// The counts for the summary of the copy.
    pub tally: Tally,
}

impl Engine {
    /// Creates the engine of a copy. It opens its connections in its first turns.
    pub fn new(source: &Server, target: &Server, settings: Settings) -> Result<Self, String> {
        let options = LoopOptions {
            gather_us_max: 0,
            keepalive: Some(KEEPALIVE),
            read_chunk_len_bytes: 128 * 1024,
            turn_input_len_bytes_max: 4 * 1024 * 1024,
            ..LoopOptions::default()
        };
        let net = EventLoop::new(&options).map_err(|error| error.to_string())?;
        let mut links = vec![Link::new(End::Source, Role::Scan), Link::new(End::Target, Role::Scan)];
        links.push(Link::new(End::Source, Role::Events));
        if !settings.has_events {
            links[EVENTS].state = State::Down { retry_ns: u64::MAX };
        }
        for lane in 0..settings.lanes {
            links.extend([End::Source, End::Target].map(|end| Link::new(end, Role::Lane(lane))));
        }
        let changed_len_bytes_max = settings.changed_len_bytes_max / settings.lanes;
        let lanes = (0..settings.lanes).map(|_| Lane::new(settings.dialect, changed_len_bytes_max));
        Ok(Self {
            source: source.clone(),
            target: target.clone(),
            net,
            links,
            link_of: Vec::new(),
            lanes: lanes.collect(),
            budget: Budget::new(settings.keys_per_second, settings.bytes_per_second),
            settings,
            epoch: Instant::now(),
            source_scan: Scan::default(),
            source_task: Task::Copy,
            target_scan: Scan::default(),
            busy_until_ns: 0,
            was_subscribed: false,
            is_subscribed: false,
            must_rescan: false,
            refused: VecDeque::new(),
            different: VecDeque::new(),
            suspects: std::collections::HashMap::new(),
            tally: Tally::default(),
        })
    }

    /// Returns the time since the start of the copy, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Begins to scan the source, and queues each key that it returns for `task`.
    pub fn scan_source(&mut self, databases: &[u32], task: Task) {
        self.source_scan = Scan::over(databases);
        self.source_task = task;
    }

    /// Begins to scan the target for keys that the source lacks.
    pub fn scan_target(&mut self, databases: &[u32]) {
        self.target_scan = Scan::over(databases);
    }

    /// Gives `key` to its lane, which then does `task` (copy, compare or remove) for it.
    pub fn push(&mut self, task: Task, key: Key) {
        let lane = key.lane(self.lanes.len());
        self.lanes[lane].push(task, key);
    }

    /// Returns true if the scans are done and the lanes have handled all their keys.
    pub fn has_scanned(&self) -> bool {
        let has_keys = self.lanes.iter().any(|lane| lane.queued() > 0);
        self.source_scan.is_done() && self.target_scan.is_done() && !has_keys
    }

    /// Returns the number of changed keys that wait in queues, and the number of keys with
    /// unanswered requests.
    pub fn pending(&self) -> (usize, usize) {
        let changed = self.lanes.iter().map(|lane| lane.changed.len()).sum();
        (changed, self.lanes.iter().map(Lane::in_flight).sum())
    }

    /// Runs one turn of the event loop: connects, sends the due requests, and handles the received
    /// replies.
    ///
    /// # Errors
    /// A server refuses the copy as a whole, or is unreachable for too long.
    pub fn turn(&mut self) -> Result<(), String> {
        self.connect_due()?;
        self.budget.fill(self.now_ns());
        for lane in 0..self.lanes.len() {
            self.feed(lane);
        }
        self.request_keys(SCAN_SOURCE);
        self.request_keys(SCAN_TARGET);
        self.net.flush();
        let mut events = Vec::new();
        let timeout = if self.budget.is_limited() { TURN_MAX / 5 } else { TURN_MAX };
        self.net.poll(Some(timeout), &mut events).map_err(|error| error.to_string())?;
        for event in events {
            self.handle(event)?;
        }
        Ok(())
    }

    fn server(&self, end: End) -> &Server {
        match end {
            End::Source => &self.source,
            End::Target => &self.target,
        }
    }

    fn connect_due(&mut self) -> Result<(), String> {
        let now_ns = self.now_ns();
        for index in 0..self.links.len() {
            if !matches!(self.links[index].state, State::Down { retry_ns } if retry_ns <= now_ns) {
                continue;
            }
            let server = self.server(self.links[index].end).clone();
            let address = match server.address() {
                Ok(address) => address,
                Err(error) => {
                    self.lose(index, &error)?;
                    continue;
                }
            };
            let conn = self.net.connect(&address, server.tls(), Instant::now() + CONNECT_WITHIN);
            let out = self.net.output(conn).tail_mut();
            let mut replies = server.greet(out);
            if self.links[index].role == Role::Events {
                encode_request(&[&b"PSUBSCRIBE"[..], PATTERN], out);
                replies += 1;
            }
            if self.link_of.len() <= conn.index() {
                self.link_of.resize(conn.index() + 1, None);
            }
            self.link_of[conn.index()] = Some(index);
            self.links[index].conn = Some(conn);
            self.links[index].state = State::Greeting { replies };
        }
        Ok(())
    }

    /// Returns the connections of a lane to source and target; `None` unless both are ready.
    fn ready_lane(&self, lane: usize) -> Option<(ConnId, ConnId)> {
        let [source, target] = [LANES + 2 * lane, LANES + 2 * lane + 1].map(|at| &self.links[at]);
        let is_ready = source.is_ready() && target.is_ready();
        is_ready.then_some(()).and(source.conn.zip(target.conn))
    }

    fn feed(&mut self, lane: usize) {
        let Some((source, target)) = self.ready_lane(lane) else { return };
        let now_ns = self.now_ns();
        let unsent = self.net.split().1.len_bytes(target);
        if unsent < UNSENT_LEN_BYTES_MAX / 2 {
            // Does nothing unless it is paused. What has arrived already is handled, too.
            self.net.resume_input(source);
            if self.net.inputs().len_bytes(source) > 0 {
                self.net.mark_ready(source);
            }
        }
        let is_slow = self.refused.len() + self.different.len() >= SLOW_MAX;
        // Requests are sent in batches: a few at a time would cost a system call each.
        let is_full = self.lanes[lane].in_flight() > WINDOW / 2;
        if is_full || is_slow || now_ns < self.busy_until_ns || unsent > UNSENT_LEN_BYTES_MAX {
            return;
        }
        let (mut to_source, mut to_target) = (Vec::new(), Vec::new());
        let until_ns = now_ns.saturating_sub(CHANGE_AGE_NS);
        self.lanes[lane].feed(WINDOW, until_ns, &mut self.budget, (&mut to_source, &mut to_target));
        for (conn, bytes) in [(source, to_source), (target, to_target)] {
            if !bytes.is_empty() {
                self.net.output(conn).tail_mut().extend_from_slice(&bytes);
            }
        }
    }

    /// Sends the next SCAN over the link (connection) with index `index`, if the lanes have few
    /// keys.
    fn request_keys(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some(conn) = link.conn.filter(|_| link.is_ready()) else { return };
        let queued: usize = self.lanes.iter().map(Lane::queued).sum();
        if queued > QUEUED_MAX * self.lanes.len() {
            return;
        }
        let scan = if index == SCAN_SOURCE { &mut self.source_scan } else { &mut self.target_scan };
        let Some((db, cursor)) = scan.request() else { return };
        let out = self.net.output(conn).tail_mut();
        if link.db != db {
            // Its reply is awaited like one to the greeting.
            encode_request(&[&b"SELECT"[..], db.to_string().as_bytes()], out);
            link.db = db;
            link.state = State::Greeting { replies: 1 };
        }
        encode_request(&[b"SCAN", cursor, b"COUNT", SCAN_COUNT], out);
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let (conn, error) = match event {
            Event::Data(conn) => (conn, None),
            Event::Closed(conn, reason) => (conn, Some(format!("connection lost ({reason:?})"))),
            Event::ConnectFailed(conn, error) => (conn, Some(error.to_string())),
            _ => return Ok(()),
        };
        let Some(index) = self.link_of.get(conn.index()).copied().flatten() else { return Ok(()) };
        if self.links[index].conn != Some(conn) {
            return Ok(());
        }
        match error {
            Some(error) => self.lose(index, &error),
            None => self.receive(index, conn),
        }
    }

    /// Handles the loss of the connection of the link with index `index`. If the link belongs to a
    /// lane, both links of the lane are closed.
    fn lose(&mut self, index: usize, error: &str) -> Result<(), String> {
        let now_ns = self.now_ns();
        self.tally.losses += 1;
        let failing_ns = self.links[index].lost(now_ns);
        if failing_ns > self.settings.retry_for.as_nanos() as u64 {
            return Err(format!("{}: {error}", self.server(self.links[index].end)));
        }
        match self.links[index].role {
            Role::Scan if index == SCAN_SOURCE => self.source_scan.lost(),
            Role::Scan => self.target_scan.lost(),
            Role::Events => {
                self.is_subscribed = false;
                self.must_rescan |= self.was_subscribed;
            }
            Role::Lane(lane) => {
                let other = LANES + 2 * lane + usize::from(index == LANES + 2 * lane);
                if let Some(conn) = self.links[other].conn.take() {
                    self.net.close(conn);
                    self.links[other].state = State::Down { retry_ns: now_ns };
                }
                if let Some(key) = self.lanes[lane].reset() {
                    return Err(format!("{key}: each connection is lost before it is copied ({error})"));
                }
            }
        }
        Ok(())
    }

    /// Handles the bytes received over the link (connection) with index `index`.
    fn receive(&mut self, index: usize, conn: ConnId) -> Result<(), String> {
        let mut replies = Vec::new();
        loop {
            if self.links[index].conn != Some(conn) || self.must_wait(index) {
                return Ok(());
            }
            // A few at a time: each may hold a large value.
            let bytes = self.net.inputs().bytes(conn);
            let mut at = 0;
            while replies.len() < 64 && at < 64 * 1024 {
                match decode(&bytes[at..])
                    .map_err(|error| format!("{error} ({})", self.links[index].end.name()))?
                {
                    Some((reply, len)) => {
                        replies.push(reply);
                        at += len;
                    }
                    None => break,
                }
            }
            let expected = expected_len_bytes(&bytes[at..]);
            self.net.consume(conn, at);
            if replies.is_empty() {
                if let Some(len_bytes) = expected {
                    self.net.reserve_input(conn, len_bytes);
                }
                return Ok(());
            }
            for reply in replies.drain(..) {
                self.take(index, reply)?;
            }
        }
    }

    /// Returns true if the link (connection) with index `index` reads from the source while its
    /// target has too many unsent bytes. The link is then paused.
    fn must_wait(&mut self, index: usize) -> bool {
        let Role::Lane(_) = self.links[index].role else { return false };
        if self.links[index].end == End::Target {
            return false;
        }
        let Some(target) = self.links[index + 1].conn else { return false };
        let is_behind = self.net.split().1.len_bytes(target) > UNSENT_LEN_BYTES_MAX;
        if is_behind && let Some(conn) = self.links[index].conn {
            self.net.pause_input(conn);
        }
        is_behind
    }

    /// Handles one reply received over the link (connection) with index `index`.
    fn take(&mut self, index: usize, reply: Value) -> Result<(), String> {
        if matches!(self.links[index].state, State::Greeting { .. }) {
            return self.greeted(index, &reply);
        }
        match self.links[index].role {
            Role::Events => changed_key(&reply).map_or(Ok(()), |key| self.changed(key)),
            Role::Scan => self.scanned(index, reply),
            Role::Lane(lane) => {
                let outcome = if self.links[index].end == End::Source {
                    if let Value::Bulk(payload) = &reply {
                        self.budget.charge_bytes(payload.len());
                    }
                    let Some(target) = self.links[index + 1].conn else { return Ok(()) };
                    self.lanes[lane].on_source(&reply, self.net.output(target).tail_mut())
                } else {
                    self.lanes[lane].on_target(&reply)
                };
                outcome.map_or(Ok(()), |outcome| self.count(outcome))
            }
        }
    }

    fn greeted(&mut self, index: usize, reply: &Value) -> Result<(), String> {
        if let Value::Error(error) = reply {
            let text = format!("{}: {}", self.server(self.links[index].end), error.escape_ascii());
            if Refusal::of(error) != Refusal::Later {
                return Err(text);
            }
            if let Some(conn) = self.links[index].conn {
                self.net.close(conn);
            }
            return self.lose(index, &text);
        }
        if self.links[index].greeted() && index == EVENTS {
            self.is_subscribed = true;
            self.was_subscribed = true;
        }
        Ok(())
    }

    fn changed(&mut self, key: Key) -> Result<(), String> {
        if !self.settings.databases.is_empty() && !self.settings.databases.contains(&key.db) {
            return Ok(());
        }
        if key.db >= self.settings.databases_count {
            return Err(format!("{key} cannot be copied: the target has no such database"));
        }
        self.tally.events += 1;
        if let Some(has_changed) = self.suspects.get_mut(&key) {
            *has_changed = true;
        }
        let now_ns = self.now_ns();
        let lane = key.lane(self.lanes.len());
        if self.lanes[lane].changed.push(key, now_ns) == Pushed::Full {
            self.must_rescan = true;
        }
        Ok(())
    }

    fn scanned(&mut self, index: usize, reply: Value) -> Result<(), String> {
        let (scan, task) = match index {
            SCAN_SOURCE => (&mut self.source_scan, self.source_task),
            _ => (&mut self.target_scan, Task::Sweep),
        };
        let (db, keys) = scan.reply(reply)?;
        self.tally.scanned += keys.len() as u64;
        for key in &keys {
            self.push(task, Key::new(db, key.as_bytes().unwrap_or_default()));
        }
        Ok(())
    }

    fn count(&mut self, outcome: Outcome) -> Result<(), String> {
        match outcome {
            Outcome::Copied(len_bytes) => {
                self.tally.copied += 1;
                self.tally.copied_len_bytes += len_bytes as u64;
            }
            Outcome::Removed { was_there } => self.tally.removed += u64::from(was_there),
            Outcome::Equal => self.tally.equal += 1,
            Outcome::Kept => {}
            Outcome::Different(key) => self.different.push_back(key),
            Outcome::Refused(key, Refusal::Format | Refusal::Key, error) => {
                self.refused.push_back((key, error))
            }
            Outcome::Refused(key, Refusal::Later, _) => {
                self.busy_until_ns = self.now_ns() + BUSY_NS;
                self.push(Task::Copy, key);
            }
            Outcome::Refused(key, Refusal::Fatal, error) => return Err(format!("{key}: {error}")),
        }
        Ok(())
    }

    /// Counts a key that a server refused, described by `line`, and prints the line if few were
    /// refused before.
    pub fn refuse(&mut self, line: &str) {
        if self.tally.refuse(line) {
            eprintln!("saker-copy: {line}");
        }
    }
}

/// Returns the length of the reply at the start of `bytes`, in bytes, if it is a large bulk string
/// with a complete header.
fn expected_len_bytes(bytes: &[u8]) -> Option<usize> {
    let header = bytes.strip_prefix(b"$")?;
    let end = header.iter().take(24).position(|&byte| byte == b'\r')?;
    let len_bytes = usize::try_from(stdx::number::parse_i64(&header[..end])?).ok()?;
    (len_bytes >= LARGE_LEN_BYTES).then_some(len_bytes + end + 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_values_are_announced() {
        assert_eq!(expected_len_bytes(b"$1000000\r\nabc"), Some(1_000_000 + 12));
        assert_eq!(expected_len_bytes(b"$100\r\n"), None);
        assert_eq!(expected_len_bytes(b"$1000000"), None);
        assert_eq!(expected_len_bytes(b"*2\r\n"), None);
    }
}

//! A simulation of a primary and its replicas over links without sockets; one seed determines a
//! run. Links break after any byte, deliver in pieces of any size, and stall. Replicas connect and
//! disconnect, apply only whole changes, and reconnect with the history and offset that they have.
//!
//! The data of a server is the number of changes (units) that it has applied. A change has a
//! number, which must be one higher than that of the change before it. So a replica that receives a
//! wrong part of the stream notices it at once. The replicas follow the protocol of Redis: they
//! search the mark after a snapshot at the end of the received bytes. They count each byte of the
//! stream, and acknowledge offsets.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use replicate::cohort::{CohortOptions, Transfer, due};
use replicate::framing::Framing;
use replicate::handshake::Handshake;
use replicate::history::ReplId;
use replicate::primary::{AfterSnapshot, OutputLimit, Primary, Resync};
use replicate::replica::{Dialect, Phase, Replica};

const MARK: &str = "mark-mark-mark-mark-mark-mark-mark-mark!";
const PING: &str = "P;";
const STEPS: usize = 4000;
const LIMIT: OutputLimit = OutputLimit { hard_bytes: 5_000, soft_bytes: 0, soft_ms: 0 };

/// A replica in the simulation: its data, its history and its link to the primary.
#[derive(Debug, Default)]
struct Follower {
    /// The number of changes that the replica has applied, which is its data.
    units: u64,
    /// The ID of the replica's history, and the offset up to which it has applied the replication
    /// stream; `None` without data.
    history: Option<(ReplId, u64)>,
    /// The replica's connection to the primary; `None` while it is disconnected.
    link: Option<Link>,
}

#[derive(Debug, Default)]
struct Link {
    client: u64,
    /// The bytes that the simulated primary has sent and the replica has not received.
    down: VecDeque<u8>,
    /// The bytes that the simulated replica has received and not processed.
    received: Vec<u8>,
    /// The offsets that the simulated replica has acknowledged and whose acknowledgements the
    /// primary has not received.
    up: VecDeque<u64>,
    reading: Reading,
    /// The part of the snapshot that the primary has not sent yet, and its framing.
    snapshot: Option<(String, Framing)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Reading {
    /// The replica expects the primary's answer to PSYNC.
    #[default]
    Answer,
    /// The replica expects the line before the snapshot, whose history and offset these are.
    Head((ReplId, u64)),
    /// The replica receives a snapshot that ends with a mark, a random text. The snapshot has this
    /// history and offset.
    Marked((ReplId, u64)),
    /// The replica receives a snapshot of this history and offset, and of this length in bytes.
    Counted((ReplId, u64), usize),
    /// The replica receives the replication stream of the primary.
    Stream,
}

/// The primary in the simulation: its data, its replication state and its counts.
struct Server {
    primary: Primary,
    /// The number of changes in the primary's data.
    units: u64,
    is_recording: bool,
    ids: u64,
    now_ms: u64,
    next_client: u64,
    /// The number of changes at each offset of each history: the data that a replica with this
    /// history and offset must have.
    truth: BTreeMap<(String, u64), u64>,
    /// The counts of events in a run, which show that the run has tested something.
    done: Done,
}

#[derive(Debug, Default)]
struct Done {
    full: u64,
    partial: u64,
    cuts: u64,
    waits: u64,
    closed_backlogs: u64,
    over_limit: u64,
}

impl Server {
    fn new_id(&mut self) -> ReplId {
        self.ids += 1;
        ReplId::of_bits(self.ids, 0, 0)
    }

    fn note_truth(&mut self) {
        let id = self.primary.history().id.to_string();
        self.truth.insert((id, self.primary.end()), self.units);
    }

    /// Appends one change to the primary's data and replication stream, as a client's command does.
    fn write(&mut self) {
        self.units += 1;
        if self.is_recording {
            self.primary.append(format!("U{};", self.units).as_bytes());
            self.primary.note_position(self.units);
            self.note_truth();
        }
    }

    fn connect(&mut self, follower: &mut Follower, capabilities: &[&str]) {
        let mut handshake = Handshake::default();
        for capability in capabilities {
            handshake.set(b"capa", capability.as_bytes()).expect("it is valid");
        }
        let (id, next) = match follower.history {
            Some((id, offset)) => (id.to_string(), offset as i64 + 1),
            None => ("?".to_owned(), -1),
        };
        self.next_client += 1;
        let client = self.next_client;
        let replica = Replica::new(handshake, Dialect::Psync, String::new(), self.now_ms);
        let resync = self.primary.resync(id.as_bytes(), next);
        self.primary.add(client, replica);
        let mut link = Link { client, ..Link::default() };
        if let Resync::Continue { from } = resync {
            self.primary.set_phase(client, Phase::Online, from);
            link.down.extend(b"+CONTINUE\n");
            self.done.partial += 1;
        }
        follower.link = Some(link);
    }

    /// Begins the snapshot for the replicas that share it (a cohort) and whose snapshot is due, if
    /// there are any.
    fn begin_snapshot(&mut self, followers: &mut [Follower], transfer: Transfer) {
        let options = CohortOptions { transfer, delay_ms: 3, replicas_max: 0 };
        let Some(cohort) = due(&self.primary, options, self.now_ms) else { return };
        if !self.is_recording {
            let id = self.new_id();
            self.primary.open_backlog(4000, id);
            self.primary.note_position(self.units);
            self.is_recording = true;
            self.note_truth();
        }
        let (id, offset) = (self.primary.history().id, self.primary.end());
        self.truth.insert((id.to_string(), offset), self.units);
        for (client, framing) in cohort.replicas {
            self.primary.set_phase(client, Phase::ReceivesSnapshot, offset);
            let link = followers.iter_mut().filter_map(|it| it.link.as_mut()).find(|it| it.client == client);
            if let Some(link) = link {
                link.down.extend(format!("+FULLRESYNC {id} {offset}\n").bytes());
                link.snapshot = Some((format!("S{};", self.units), framing));
                self.done.full += 1;
            }
        }
    }

    /// Sends at most `max_bytes` bytes from the primary over a link: a part of its snapshot, or of
    /// the replication stream.
    fn feed(&mut self, link: &mut Link, max_bytes: usize) {
        if let Some((text, framing)) = link.snapshot.take() {
            match framing {
                Framing::EndMark => link.down.extend(format!("$EOF:{MARK}\n{text}{MARK}").bytes()),
                Framing::Length => link.down.extend(format!("${}\n{text}", text.len()).bytes()),
            }
            let next = self.primary.snapshot_sent(link.client, framing, self.now_ms);
            let replica = self.primary.replica(link.client).expect("it is connected");
            assert_eq!(next == AfterSnapshot::Close, replica.phase == Phase::OverLimit);
        }
        for piece in self.primary.take_for(link.client, max_bytes) {
            link.down.extend(piece.as_ref());
        }
        self.primary.free_sent();
    }

    fn disconnect(&mut self, follower: &mut Follower) {
        if let Some(link) = follower.link.take() {
            self.primary.remove(link.client, self.now_ms);
            self.done.cuts += 1;
        }
    }
}

impl Follower {
    /// Processes the bytes that the replica has received, as far as they form complete lines,
    /// snapshots and changes.
    fn use_received(&mut self) {
        while self.use_some() {}
    }

    fn use_some(&mut self) -> bool {
        let Some(link) = &mut self.link else { return false };
        let line_end = |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\n');
        match link.reading {
            Reading::Answer => {
                let Some(end) = line_end(&link.received) else { return false };
                let line = String::from_utf8(link.received.drain(..=end).collect()).expect("it is text");
                let words: Vec<&str> = line.split_whitespace().collect();
                link.reading = match words[..] {
                    ["+CONTINUE"] => Reading::Stream,
                    ["+FULLRESYNC", id, offset] => {
                        let id = ReplId::parse(id.as_bytes()).expect("an id");
                        Reading::Head((id, offset.parse().expect("an offset")))
                    }
                    _ => panic!("the answer to PSYNC: {line:?}"),
                };
            }
            Reading::Head(history) => {
                let Some(end) = line_end(&link.received) else { return false };
                let line = String::from_utf8(link.received.drain(..=end).collect()).expect("it is text");
                link.reading = match line.trim_end().strip_prefix("$EOF:") {
                    Some(mark) => {
                        assert_eq!(mark, MARK);
                        Reading::Marked(history)
                    }
                    None => Reading::Counted(history, line[1..].trim_end().parse().expect("a length")),
                };
            }
            Reading::Marked(history) => {
                // The mark is only searched at the end of what was read.
                let Some(text) = link.received.strip_suffix(MARK.as_bytes()) else {
                    let passed = link.received.windows(MARK.len()).any(|it| it == MARK.as_bytes());
                    assert!(!passed, "bytes follow the mark before the first acknowledgement");
                    return false;
                };
                let text = String::from_utf8(text.to_vec()).expect("it is text");
                link.received.clear();
                self.load(&text, history);
            }
            Reading::Counted(history, len_bytes) => {
                if link.received.len() < len_bytes {
                    return false;
                }
                let text = String::from_utf8(link.received.drain(..len_bytes).collect()).expect("text");
                self.load(&text, history);
            }
            Reading::Stream => {
                let Some(end) = link.received.iter().position(|&byte| byte == b';' || byte == b'\n') else {
                    return false;
                };
                // GETACK is a request of several lines.
                let is_request = link.received[0] == b'*';
                let getack_len = 37;
                let len = if is_request { getack_len } else { end + 1 };
                if link.received.len() < len {
                    return false;
                }
                let command: Vec<u8> = link.received.drain(..len).collect();
                let (_, offset) = self.history.as_mut().expect("it has data");
                if is_request {
                    assert!(command.ends_with(b"*\r\n"), "{command:?}");
                    link.up.push_back(*offset);
                } else if let Some(unit) = command.strip_prefix(b"U") {
                    let unit: u64 = std::str::from_utf8(&unit[..unit.len() - 1])
                        .expect("text")
                        .parse()
                        .expect("a number");
                    assert_eq!(unit, self.units + 1, "the stream continues the data");
                    self.units = unit;
                }
                *offset += len as u64;
            }
        }
        true
    }

    fn load(&mut self, text: &str, history: (ReplId, u64)) {
        let units = text.strip_prefix('S').and_then(|it| it.strip_suffix(';')).expect("a snapshot");
        (self.units, self.history) = (units.parse().expect("a number"), Some(history));
        let link = self.link.as_mut().expect("it came over the link");
        link.reading = Reading::Stream;
        link.up.push_back(history.1);
    }
}

/// Runs a simulation of a primary and replicas with this seed. Returns the counts of its events.
/// `operations` counts the steps.
fn simulate(seed: u64, operations: &Cell<usize>) -> Done {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut server = Server {
        primary: Primary::new(ReplId::NONE),
        units: 0,
        is_recording: false,
        ids: 0,
        now_ms: 0,
        next_client: 0,
        truth: BTreeMap::new(),
        done: Done::default(),
    };
    server.primary.set_output_limit(LIMIT);
    let mut followers: Vec<Follower> = (0..3).map(|_| Follower::default()).collect();
    for _ in 0..STEPS {
        operations.set(operations.get() + 1);
        step(&mut rng, &mut server, &mut followers);
        check(&server, &followers);
    }
    settle(&mut server, &mut followers);
    server.done
}

/// Performs one random step of the simulation: on the primary, a replica or a link.
fn step(rng: &mut fastrand::Rng, server: &mut Server, followers: &mut [Follower]) {
    server.now_ms += rng.u64(0..2);
    let at = rng.usize(..followers.len());
    match rng.u32(..100) {
        0..30 => (0..rng.u32(1..40)).for_each(|_| server.write()),
        30..60 => {
            if let Some(link) = &mut followers[at].link {
                server.feed(link, rng.usize(1..3000));
            }
        }
        60..85 => {
            let follower = &mut followers[at];
            if let Some(link) = &mut follower.link {
                let len = rng.usize(..=link.down.len().min(1500));
                link.received.extend(link.down.drain(..len));
                follower.use_received();
                let (link, history) = (follower.link.as_mut().expect("it was there"), follower.history);
                if link.reading == Reading::Stream && rng.u8(..4) == 0 {
                    link.up.extend(history.map(|(_, offset)| offset));
                }
            }
        }
        85..90 => {
            if let Some(link) = &mut followers[at].link
                && let Some(acked) = link.up.pop_front()
            {
                server.primary.acknowledge(link.client, acked, None, server.now_ms);
            }
        }
        90 => server.primary.append(PING.as_bytes()),
        91 | 92 => {
            if followers[at].link.is_none() {
                let eof: &[&str] = if rng.bool() { &["eof", "psync2"] } else { &[] };
                server.connect(&mut followers[at], eof);
            }
        }
        93..95 => server.begin_snapshot(followers, [Transfer::Diskless, Transfer::Complete][rng.usize(..2)]),
        95 if rng.u8(..4) == 0 => server.disconnect(&mut followers[at]),
        95 | 96 => wait(rng, server, followers),
        97 => close_backlog(rng, server, followers),
        _ => disconnect_over_limit(server, followers),
    }
}

/// Disconnects the replicas that had more unsent bytes than their output limit.
fn disconnect_over_limit(server: &mut Server, followers: &mut [Follower]) {
    for client in server.primary.over_limit(server.now_ms) {
        let is = |it: &&mut Follower| it.link.as_ref().is_some_and(|link| link.client == client);
        if let Some(follower) = followers.iter_mut().find(is) {
            server.done.over_limit += 1;
            server.disconnect(follower);
        }
    }
}

/// Checks WAIT for a client that has written some change: the replicas that are counted must have
/// this change.
fn wait(rng: &mut fastrand::Rng, server: &mut Server, followers: &mut [Follower]) {
    let unit = rng.u64(server.units.saturating_sub(500)..=server.units);
    if server.is_recording {
        server.primary.request_ack(unit);
        server.note_truth();
    }
    let counted = server.primary.count_acked(unit);
    let connected = followers.iter().filter(|it| it.link.is_some() && it.units >= unit).count();
    assert!(counted <= connected, "WAIT counted {counted} replicas for unit {unit}, {connected} have it");
    server.done.waits += counted as u64;
}

/// Disconnects all replicas in one step of thirty. Frees the backlog if there has been no replica
/// for long enough.
fn close_backlog(rng: &mut fastrand::Rng, server: &mut Server, followers: &mut [Follower]) {
    if rng.u8(..30) == 0 {
        for follower in &mut *followers {
            // Some have everything that was counted, which must not be enough later.
            if let Some(link) = follower.link.as_mut().filter(|_| rng.bool()) {
                server.feed(link, usize::MAX);
                link.received.extend(link.down.drain(..));
                follower.use_received();
            }
            server.disconnect(follower);
        }
        server.now_ms += 1000;
    }
    let id = server.new_id();
    if server.is_recording && server.primary.begin_close(500, server.now_ms, id) {
        let id = server.new_id();
        server.primary.close_backlog(id);
        server.is_recording = false;
        server.done.closed_backlogs += 1;
    }
}

/// Checks the conditions on the primary and its replicas that must hold after every step of the
/// simulation.
fn check(server: &Server, followers: &[Follower]) {
    for follower in followers {
        assert!(follower.units <= server.units);
        if let Some((id, offset)) = follower.history {
            // The last unit that ends at or before the offset in that history.
            let id = id.to_string();
            let range = (id.clone(), 0)..=(id, offset);
            let known = server.truth.range(range).next_back();
            assert_eq!(known.map(|(_, units)| *units), Some(follower.units), "offset {offset}");
        }
    }
    let Some(backlog) = server.primary.backlog() else { return };
    let needed = server.primary.replicas().filter(|(_, it)| it.holds_backlog()).map(|(_, it)| it.cursor);
    let needed = needed.min().unwrap_or(u64::MAX).min(backlog.end());
    assert!(backlog.start() <= needed, "a replica's bytes were freed");
    assert!(backlog.behind_bytes() <= LIMIT.hard_bytes, "memory is bounded by the limit");
    let held = backlog.end() - needed.min(backlog.end().saturating_sub(backlog.limit_bytes()));
    let room = backlog.limit_bytes() / 16 * 2 + 2048 + (1 << 18);
    assert!(backlog.memory_bytes() <= held + room, "{} for {held}", backlog.memory_bytes());
}

/// Ends all disturbances of the links and checks that every replica reaches the state of the
/// primary.
fn settle(server: &mut Server, followers: &mut [Follower]) {
    for _ in 0..200 {
        server.now_ms += 10;
        disconnect_over_limit(server, followers);
        server.begin_snapshot(followers, Transfer::Diskless);
        for follower in &mut *followers {
            if follower.link.is_none() {
                server.connect(follower, &["eof"]);
            }
            let link = follower.link.as_mut().expect("it is connected");
            server.feed(link, 100_000);
            link.received.extend(link.down.drain(..));
            follower.use_received();
            let link = follower.link.as_mut().expect("it is connected");
            while let Some(acked) = link.up.pop_front() {
                server.primary.acknowledge(link.client, acked, None, server.now_ms);
            }
        }
    }
    let states: BTreeSet<u64> = followers.iter().map(|follower| follower.units).collect();
    assert_eq!(states, BTreeSet::from([server.units]), "all replicas have all units");
}

#[test]
fn replicas_have_a_prefix_of_the_primary_whatever_the_links_do() {
    let (mut sum, operations) = (Done::default(), Cell::new(0));
    for seed in 0..100 {
        let result = catch_unwind(AssertUnwindSafe(|| simulate(seed, &operations)));
        let done =
            result.unwrap_or_else(|_| panic!("seed {seed} fails, after {} operations", operations.get()));
        sum.full += done.full;
        sum.partial += done.partial;
        sum.cuts += done.cuts;
        sum.waits += done.waits;
        sum.closed_backlogs += done.closed_backlogs;
        sum.over_limit += done.over_limit;
    }
    let Done { full, partial, cuts, waits, closed_backlogs, over_limit } = sum;
    let least = full.min(partial).min(cuts).min(waits).min(closed_backlogs).min(over_limit);
    assert!(least > 50, "the simulation does too little: {sum:?}");
}

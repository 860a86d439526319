//! A simulation of chains of servers over links without sockets; one seed determines a run. Each
//! server is a primary or follows another server, and sends the stream to its own replicas. Servers
//! are promoted and demoted; two of them may be primaries that write at the same time. Links break
//! after any byte, also inside a transaction.
//!
//! A change (unit) has a number, contains the number of the change before it, and has a database
//! that the test knows. So a server that receives a wrong part of a stream notices it at once. The
//! followers are the state machines of `replicate::link`; the streams have a short form of their
//! own:
//!
//! | Text | Command |
//! |---|---|
//! | `S3;` | SELECT 3 |
//! | `U12<10;` | unit 12, which may only follow unit 10 |
//! | `M;` … `E;` | a transaction |
//! | `P;` | PING |
//! | 37 bytes of RESP | REPLCONF GETACK |

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use replicate::cohort::{CohortOptions, Transfer, due};
use replicate::framing::Framing;
use replicate::handshake::Handshake;
use replicate::history::ReplId;
use replicate::link::LINE_LEN_MAX;
use replicate::link::handshake::{ANNOUNCED_VERSION, LinkHandshake, LinkOptions, Next};
use replicate::link::offsets::StreamOffsets;
use replicate::link::transfer::{Payload, SnapshotHeader};
use replicate::primary::{OutputLimit, Primary, Resync};
use replicate::replica::{Dialect, Phase, Replica};

const MARK: &str = "mark-mark-mark-mark-mark-mark-mark-mark!";
const SERVERS: usize = 4;
const STEPS: usize = 10_000;
const BACKLOG_BYTES: u64 = 4000;
const LIMIT: OutputLimit = OutputLimit { hard_bytes: 5_000, soft_bytes: 0, soft_ms: 0 };
const GETACK_LEN: usize = 37;

/// A server in the simulation, with its link if it is a replica.
struct Server {
    primary: Primary,
    /// The number of the last change in the server's data; 0 if it has none.
    last: u64,
    /// The position of the last entry in the server's own change log.
    position: u64,
    /// The position up to which the server's change log is synced, and the number of the last
    /// change at that position.
    synced: (u64, u64),
    /// The database that is selected at the end of a primary's own replication stream.
    selected: Option<u32>,
    /// The latest changes of a primary: the log position and the number of each.
    writes: Vec<(u64, u64)>,
    /// The index of the server that this one follows; `None` on a primary.
    upstream: Option<usize>,
    link: Option<Link>,
}

/// The connection of a replica to its primary, with both of its sides.
struct Link {
    /// The index of the primary. If the replica follows another server now, the link is closed.
    upstream: usize,
    client: u64,
    /// The bytes that the primary has sent and the replica has not received.
    down: VecDeque<u8>,
    /// The bytes that the replica has sent and the primary has not received.
    up: VecDeque<u8>,
    /// The bytes that the replica has received and not processed.
    received: Vec<u8>,
    /// The bytes that the primary has received and not processed.
    requests: Vec<u8>,
    handshake: Handshake,
    reading: Reading,
    /// The part of the snapshot that the primary has not sent yet, and its framing.
    snapshot: Option<(String, Framing)>,
}

/// The part of the replication protocol that a replica expects next on its link (connection).
enum Reading {
    Replies(LinkHandshake),
    Header(ReplId, u64),
    Snapshot { id: ReplId, offset: u64, payload: Payload, text: Vec<u8> },
    Stream(StreamOffsets),
}

/// All servers of the simulation, and the facts that the test knows about their data.
struct World {
    servers: Vec<Server>,
    /// For each change, by number: the number of the change before it, and its database.
    units: Vec<(u64, u32)>,
    /// The number of the last change at each offset of each history: the data that every server
    /// with this history and offset must have.
    truth: BTreeMap<(String, u64), u64>,
    ids: u64,
    clients: u64,
    now_ms: u64,
    done: Done,
}

/// The counts of events in a run, which show that the run has tested something.
#[derive(Debug, Default)]
struct Done {
    full: u64,
    partial: u64,
    other_ids: u64,
    half_transactions: u64,
    refused: u64,
    promotions: u64,
    /// The number of promoted servers that became replicas again before they wrote, and returned to
    /// their previous history.
    returns: u64,
    outdated: u64,
    chained: u64,
    waits: u64,
    synced_waits: u64,
}

/// Returns the length in bytes of the first complete command or transaction in `bytes`; `None` if
/// it is incomplete.
fn unit_len(bytes: &[u8]) -> Option<usize> {
    let command_len = |bytes: &[u8]| match bytes.first()? {
        b'*' => (bytes.len() >= GETACK_LEN).then_some(GETACK_LEN),
        _ => bytes.iter().position(|&byte| byte == b';').map(|end| end + 1),
    };
    let mut len = command_len(bytes)?;
    if bytes.starts_with(b"M;") {
        while !bytes[..len].ends_with(b"E;") {
            len += command_len(&bytes[len..])?;
        }
    }
    Some(len)
}

/// Removes the first request from `bytes` and returns its command name and arguments; `None` if it
/// is incomplete.
fn take_request(bytes: &mut Vec<u8>) -> Option<Vec<String>> {
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n').map(|it| it.strip_suffix(b"\r\n"));
    let text = |line: Option<Option<&[u8]>>| Some(String::from_utf8(line??.to_vec()).expect("text"));
    let count = text(lines.next())?.strip_prefix('*').expect("a request").parse().expect("a number");
    let (mut words, mut len) = (Vec::new(), count_len(count));
    for _ in 0..count {
        let size = text(lines.next())?;
        words.push(text(lines.next())?);
        len += size.len() + words.last().map_or(0, String::len) + 4;
    }
    bytes.drain(..len);
    Some(words)
}

fn count_len(count: usize) -> usize {
    format!("*{count}\r\n").len()
}

fn take_line(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(bytes.drain(..=end).collect())
}

impl Server {
    fn new(id: ReplId) -> Self {
        let mut primary = Primary::new(id);
        primary.set_output_limit(LIMIT);
        Self {
            primary,
            last: 0,
            position: 0,
            synced: (0, 0),
            selected: None,
            writes: Vec::new(),
            upstream: None,
            link: None,
        }
    }

    fn is_streaming(&self) -> bool {
        self.link.as_ref().is_some_and(|link| matches!(link.reading, Reading::Stream(_)))
    }

    /// Processes the bytes that a replica has received, but applies at most `units_max` commands
    /// and transactions. Returns false if the connection to the primary has failed.
    fn use_received(&mut self, link: &mut Link, mut units_max: usize, world: &mut Facts<'_>) -> bool {
        loop {
            match &mut link.reading {
                Reading::Replies(handshake) => {
                    let Some(line) = take_line(&mut link.received) else {
                        assert!(link.received.len() < LINE_LEN_MAX);
                        return true;
                    };
                    match handshake.line(&line) {
                        Next::Send(bytes) => link.up.extend(bytes),
                        Next::Await => {}
                        Next::Full { id, offset } => link.reading = Reading::Header(id, offset),
                        Next::Continue { id } => {
                            world.done.partial += 1;
                            world.done.other_ids += u64::from(self.primary.continue_as(id));
                            let mut offsets = StreamOffsets::new(self.primary.end());
                            offsets.note_read(link.received.len() as u64);
                            link.reading = Reading::Stream(offsets);
                        }
                        Next::Failed(error) => {
                            assert!(error.is_transient, "{error}");
                            world.done.refused += 1;
                            return false;
                        }
                    }
                }
                &mut Reading::Header(id, offset) => {
                    let Some(line) = take_line(&mut link.received) else { return true };
                    let header = SnapshotHeader::parse(&line).expect("a header");
                    if let Some(payload) = Payload::new(header) {
                        link.reading = Reading::Snapshot { id, offset, payload, text: Vec::new() };
                    }
                }
                Reading::Snapshot { id, offset, payload, text } => {
                    let received = std::mem::take(&mut link.received);
                    let parts = payload.feed(&received);
                    text.extend_from_slice(parts.held_back);
                    text.extend_from_slice(parts.payload);
                    let Some(rest) = parts.rest else { return true };
                    let (id, offset, rest) = (*id, *offset, rest.to_vec());
                    let text = String::from_utf8(std::mem::take(text)).expect("text");
                    self.load(&text, id, offset);
                    world.done.full += 1;
                    let mut offsets = StreamOffsets::new(offset);
                    offsets.note_read(rest.len() as u64);
                    link.up.extend(offsets.ack(self.primary.offset_at(self.synced.0)));
                    (link.received, link.reading) = (rest, Reading::Stream(offsets));
                }
                Reading::Stream(offsets) => {
                    let Some(len) = unit_len(&link.received).filter(|_| units_max > 0) else { return true };
                    units_max -= 1;
                    let unit: Vec<u8> = link.received.drain(..len).collect();
                    if unit.starts_with(b"*") {
                        link.up.extend(offsets.ack(self.primary.offset_at(self.synced.0)));
                    }
                    let db = self.apply(&unit, world);
                    offsets.note_applied(len as u64);
                    self.primary.append_applied(&unit, db);
                    self.primary.note_position(self.position);
                    assert_eq!(offsets.applied(), self.primary.end(), "the stream is the primary's");
                }
            }
        }
    }

    /// Loads a snapshot. Its text has the number of the last change, the selected database, and the
    /// first characters of the end mark.
    fn load(&mut self, text: &str, id: ReplId, offset: u64) {
        let words: Vec<&str> = text.split(' ').collect();
        self.primary.adopt(id, offset, BACKLOG_BYTES);
        self.primary.set_stream_db(words[1].parse().ok());
        self.last = words[0].parse().expect("a unit");
        self.position += 1;
        self.primary.note_position(self.position);
        self.synced = (self.position, self.last);
    }

    /// Applies a complete command or transaction of the replication stream. Returns the database
    /// that is selected at its end.
    fn apply(&mut self, unit: &[u8], world: &Facts<'_>) -> u32 {
        let mut db = self.primary.stream_db();
        let text = std::str::from_utf8(unit).expect("text");
        for command in text.split_terminator(';') {
            if let Some(selected) = command.strip_prefix('S') {
                db = Some(selected.parse().expect("a database"));
            } else if let Some((number, before)) = command.strip_prefix('U').and_then(|it| it.split_once('<'))
            {
                let number: u64 = number.parse().expect("a unit");
                assert_eq!(before.parse(), Ok(self.last), "unit {number} continues the data");
                assert_eq!(db, Some(world.units[number as usize].1), "the database of unit {number}");
                self.last = number;
                self.position += 1;
            }
        }
        // Before the first SELECT nothing depends on it.
        db.unwrap_or(0)
    }
}

/// The parts of [`World`] that a single server uses.
struct Facts<'w> {
    units: &'w [(u64, u32)],
    done: &'w mut Done,
}

impl World {
    fn new_id(&mut self) -> ReplId {
        self.ids += 1;
        ReplId::of_bits(self.ids, 0, 0)
    }

    /// Returns true if the data with the last change `last` contains the change `unit`.
    fn contains(&self, mut last: u64, unit: u64) -> bool {
        while last > unit {
            last = self.units[last as usize].0;
        }
        last == unit
    }

    /// Writes `count` changes to a primary as a client does, as a transaction if there are several.
    fn write(&mut self, at: usize, count: u32, db: u32) {
        let server = &mut self.servers[at];
        if server.primary.is_following() {
            return;
        }
        let mut text = String::new();
        for _ in 0..count {
            let number = self.units.len() as u64;
            self.units.push((server.last, db));
            text += &format!("U{number}<{};", server.last);
            server.last = number;
        }
        server.position += 1;
        server.writes.push((server.position, server.last));
        if server.primary.backlog().is_some() {
            if server.selected != Some(db) {
                text = format!("S{db};{text}");
                server.selected = Some(db);
            }
            if count > 1 {
                text = format!("M;{text}E;");
            }
            server.primary.append(text.as_bytes());
            server.primary.note_position(server.position);
        }
    }

    fn connect(&mut self, at: usize) {
        self.clients += 1;
        let server = &mut self.servers[at];
        let Some(upstream) = server.upstream.filter(|_| server.link.is_none()) else { return };
        let handshake = LinkHandshake::new(LinkOptions {
            password: self.clients.is_multiple_of(2).then(|| b"secret".to_vec()),
            version: self.clients.is_multiple_of(3).then_some(ANNOUNCED_VERSION),
            listening_port: at as u16 + 1,
            resume: server.primary.resume_point(),
            ..LinkOptions::default()
        });
        server.link = Some(Link {
            upstream,
            client: self.clients,
            down: VecDeque::new(),
            up: handshake.begin().into(),
            received: Vec::new(),
            requests: Vec::new(),
            handshake: Handshake::default(),
            reading: Reading::Replies(handshake),
            snapshot: None,
        });
    }

    /// Closes the connection of a replica to its primary. Received bytes that are not a complete
    /// command or transaction are lost.
    fn disconnect(&mut self, at: usize) {
        if let Some(link) = self.servers[at].link.take() {
            let is_half = link.received.starts_with(b"M;") && unit_len(&link.received).is_none();
            self.done.half_transactions += u64::from(is_half);
            self.servers[link.upstream].primary.remove(link.client, self.now_ms);
        }
    }

    /// Delivers up to `max_bytes` bytes over a link (connection) to its replica, which applies up
    /// to `units_max` commands and transactions.
    fn receive(&mut self, at: usize, max_bytes: usize, units_max: usize) {
        let server = &mut self.servers[at];
        let Some(mut link) = server.link.take() else { return };
        let len = link.down.len().min(max_bytes);
        if let Reading::Stream(offsets) = &mut link.reading {
            offsets.note_read(len as u64);
        }
        link.received.extend(link.down.drain(..len));
        let mut facts = Facts { units: &self.units, done: &mut self.done };
        let is_open = server.use_received(&mut link, units_max, &mut facts);
        server.link = Some(link);
        if !is_open {
            self.disconnect(at);
        }
    }

    /// Delivers up to `max_bytes` bytes to the primary of a link, which answers them.
    fn serve(&mut self, at: usize, max_bytes: usize) {
        let Some(mut link) = self.servers[at].link.take() else { return };
        let len = link.up.len().min(max_bytes);
        link.requests.extend(link.up.drain(..len));
        while let Some(words) = take_request(&mut link.requests) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.answer(&mut link, &words);
        }
        self.servers[at].link = Some(link);
    }

    fn answer(&mut self, link: &mut Link, words: &[&str]) {
        let upstream = &mut self.servers[link.upstream];
        let reply = match *words {
            ["PING"] => "+PONG\r\n".to_owned(),
            ["AUTH", ..] => "+OK\r\n".to_owned(),
            ["REPLCONF", "ACK", acked, ref rest @ ..] => {
                let synced = rest.get(1).map(|it| it.parse().expect("an offset"));
                let acked = acked.parse().expect("an offset");
                upstream.primary.acknowledge(link.client, acked, synced, self.now_ms);
                return;
            }
            ["REPLCONF", ref options @ ..] => {
                for option in options.chunks(2) {
                    link.handshake.set(option[0].as_bytes(), option[1].as_bytes()).expect("it is valid");
                }
                "+OK\r\n".to_owned()
            }
            ["PSYNC", ..] if upstream.primary.is_following() && !upstream.is_streaming() => {
                "-NOMASTERLINK Can't SYNC while not connected with my master\r\n".to_owned()
            }
            ["PSYNC", id, next] => {
                let resync = upstream.primary.resync(id.as_bytes(), next.parse().expect("an offset"));
                let replica =
                    Replica::new(link.handshake.clone(), Dialect::Psync, String::new(), self.now_ms);
                upstream.primary.add(link.client, replica);
                self.done.chained += u64::from(upstream.primary.is_following());
                match resync {
                    Resync::Continue { from } => {
                        upstream.primary.set_phase(link.client, Phase::Online, from);
                        format!("+CONTINUE {}\r\n", upstream.primary.history().id)
                    }
                    Resync::Full(_) => return,
                }
            }
            _ => panic!("{words:?}"),
        };
        link.down.extend(reply.bytes());
    }

    /// Begins the snapshot for the replicas of this server that share it (a cohort) and whose
    /// snapshot is due, if there are any.
    fn begin_snapshot(&mut self, at: usize, transfer: Transfer) {
        let options = CohortOptions { transfer, delay_ms: 3, replicas_max: 0 };
        let Some(cohort) = due(&self.servers[at].primary, options, self.now_ms) else { return };
        let new_id = self.new_id();
        let server = &mut self.servers[at];
        let is_following = server.primary.is_following();
        if is_following && !server.is_streaming() {
            return;
        }
        if server.primary.backlog().is_none() {
            server.primary.open_backlog(BACKLOG_BYTES, new_id);
            server.primary.note_position(server.position);
        }
        // A primary selects the database again. A replica must not, because it reports the selected
        // database.
        server.selected = None;
        let db = server.primary.stream_db().filter(|_| is_following);
        let db = db.map_or("-".to_owned(), |db| db.to_string());
        let (id, offset, last) = (server.primary.history().id, server.primary.end(), server.last);
        for (client, framing) in cohort.replicas {
            self.servers[at].primary.set_phase(client, Phase::ReceivesSnapshot, offset);
            let links = self.servers.iter_mut().filter_map(|it| it.link.as_mut());
            if let Some(link) = links.into_iter().find(|link| link.client == client) {
                link.down.extend(format!("+FULLRESYNC {id} {offset}\r\n").bytes());
                let begin_of_mark = &MARK[..(last % 40) as usize];
                link.snapshot = Some((format!("{last} {db} {begin_of_mark}"), framing));
            }
        }
    }

    /// Sends bytes over a link, from the primary to the replica: newlines, the snapshot, or at most
    /// `max_bytes` bytes of the replication stream.
    fn feed(&mut self, at: usize, max_bytes: usize) {
        let Some(mut link) = self.servers[at].link.take() else { return };
        let primary = &mut self.servers[link.upstream].primary;
        match primary.replica(link.client).map(|it| it.phase) {
            Some(Phase::AwaitsSnapshot { .. }) => link.down.push_back(b'\n'),
            Some(Phase::ReceivesSnapshot) if max_bytes.is_multiple_of(2) => link.down.push_back(b'\n'),
            Some(Phase::ReceivesSnapshot) => {
                let (text, framing) = link.snapshot.take().expect("it has begun");
                match framing {
                    Framing::EndMark => link.down.extend(format!("$EOF:{MARK}\r\n{text}{MARK}").bytes()),
                    Framing::Length => link.down.extend(format!("${}\r\n{text}", text.len()).bytes()),
                }
                primary.snapshot_sent(link.client, framing, self.now_ms);
            }
            _ => {}
        }
        for piece in primary.take_for(link.client, max_bytes) {
            link.down.extend(piece.as_ref());
        }
        primary.free_sent();
        self.servers[at].link = Some(link);
    }

    /// Disconnects the replicas that this server must disconnect: those with an outdated history,
    /// and those over an output limit.
    fn disconnect_given_up(&mut self, at: usize) {
        let primary = &mut self.servers[at].primary;
        let outdated = primary.outdated();
        self.done.outdated += outdated.len() as u64;
        let clients: BTreeSet<u64> = primary.over_limit(self.now_ms).into_iter().chain(outdated).collect();
        for follower in 0..SERVERS {
            let link = self.servers[follower].link.as_ref();
            if link.is_some_and(|link| clients.contains(&link.client)) {
                self.disconnect(follower);
            }
        }
    }

    fn promote(&mut self, at: usize) {
        if self.servers[at].upstream.is_some() {
            // What was received as a whole is not given up.
            self.receive(at, 0, usize::MAX);
            self.disconnect(at);
            self.servers[at].upstream = None;
            let id = self.new_id();
            let server = &mut self.servers[at];
            server.primary.promote(id, self.now_ms);
            (server.selected, server.writes) = (None, Vec::new());
            self.done.promotions += 1;
        }
    }

    /// Makes a server follow another one, unless that one already follows it, also indirectly.
    fn follow(&mut self, at: usize, upstream: usize) {
        let mut above = Some(upstream);
        while let Some(server) = above {
            if server == at {
                return;
            }
            above = self.servers[server].upstream;
        }
        self.disconnect(at);
        let server = &mut self.servers[at];
        server.upstream = Some(upstream);
        let promoted = server.primary.history().id;
        server.primary.follow();
        server.writes.clear();
        self.done.returns += u64::from(server.primary.history().id != promoted);
    }

    /// Promotes a replica. Its former primary and the other replicas of that primary then follow
    /// it, some later than others. The promoted server may lack the last changes. In some runs the
    /// failover is aborted: the server follows its former primary again.
    fn fail_over(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let Some(former) = self.servers[at].upstream.filter(|_| self.servers[at].is_streaming()) else {
            return;
        };
        if rng.u8(..4) > 0 {
            self.feed(at, usize::MAX);
            self.receive(at, usize::MAX, usize::MAX);
        }
        self.promote(at);
        if rng.u8(..4) == 0 {
            return self.follow(at, former);
        }
        for follower in 0..SERVERS {
            let is_concerned = follower == former || self.servers[follower].upstream == Some(former);
            if is_concerned && rng.u8(..4) > 0 {
                self.follow(follower, at);
            }
        }
    }

    /// Checks WAIT and WAITAOF for a client of a primary: the replicas that are counted must have
    /// its change, and for WAITAOF must have synced it.
    fn wait(&mut self, at: usize, rng: &mut fastrand::Rng) {
        let server = &mut self.servers[at];
        if server.primary.is_following() {
            // A server that follows requests nothing, whoever asks.
            server.primary.request_ack(server.position);
            return;
        }
        let recent = server.writes.len().min(20);
        let Some(&(position, unit)) = server.writes.iter().rev().nth(rng.usize(..recent.max(1))) else {
            return;
        };
        server.primary.request_ack(position);
        let (acked, synced) = (server.primary.count_acked(position), server.primary.count_synced(position));
        let followers: Vec<&Server> =
            self.servers.iter().filter(|it| it.link.as_ref().is_some_and(|it| it.upstream == at)).collect();
        let have = followers.iter().filter(|it| self.contains(it.last, unit)).count();
        assert!(acked <= have, "WAIT counted {acked} replicas for unit {unit}, {have} have it");
        let have = followers.iter().filter(|it| self.contains(it.synced.1, unit)).count();
        assert!(synced <= have, "WAITAOF counted {synced} replicas for unit {unit}, {have} have it");
        self.done.waits += acked as u64;
        self.done.synced_waits += synced as u64;
    }

    /// Checks that servers with the same history and offset have the same data.
    fn check_truth(&mut self) {
        for server in &self.servers {
            if server.primary.backlog().is_some() {
                let key = (server.primary.history().id.to_string(), server.primary.end());
                let known = *self.truth.entry(key.clone()).or_insert(server.last);
                assert_eq!(known, server.last, "the data at {key:?}");
            }
        }
    }

    /// Checks that servers have the same bytes at the same offsets of the same history.
    fn check_bytes(&self) {
        let recording = self.servers.iter().map(|it| &it.primary).filter(|it| it.backlog().is_some());
        let recording: Vec<&Primary> = recording.collect();
        let histories =
            |it: &Primary| [Some((it.history().id, it.end())), it.history().second].into_iter().flatten();
        for (number, one) in recording.iter().enumerate() {
            for other in &recording[..number] {
                for (id, end) in histories(one) {
                    let same = histories(other).filter(|&(it, _)| it == id).map(|(_, end)| end).max();
                    let Some(end) = same.map(|it| it.min(end)) else { continue };
                    let backlogs = [one, other].map(|it| it.backlog().expect("it records"));
                    let start = backlogs.map(replicate::backlog::Backlog::start).into_iter().max();
                    let start = start.expect("there are two");
                    if start < end {
                        let [mine, theirs] = backlogs.map(|it| {
                            let pieces = it.read(start, (end - start) as usize);
                            pieces.iter().flat_map(|piece| piece.as_ref().to_vec()).collect::<Vec<u8>>()
                        });
                        assert!(mine == theirs, "the bytes of {id} from {start} to {end}");
                    }
                }
            }
        }
    }

    /// Performs one random step of the simulation: on a server or a link.
    fn step(&mut self, rng: &mut fastrand::Rng) {
        self.now_ms += rng.u64(0..2);
        let at = rng.usize(..SERVERS);
        match rng.u32(..200) {
            0..20 => {
                for _ in 0..rng.u32(1..8) {
                    let count = if rng.u8(..4) == 0 { rng.u32(2..5) } else { 1 };
                    self.write(at, count, rng.u32(..3));
                }
            }
            20..65 => self.feed(at, rng.usize(1..400)),
            65..115 => self.receive(at, rng.usize(1..300), rng.usize(..20)),
            115..150 => self.serve(at, rng.usize(1..300)),
            150..160 => self.connect(at),
            // On a server that follows another, `append` has no effect.
            160..163 => self.servers[at].primary.append(b"P;"),
            163..168 => {
                let transfer = [Transfer::Diskless, Transfer::Complete][rng.usize(..2)];
                self.begin_snapshot(at, transfer);
            }
            168 if rng.bool() => self.disconnect(at),
            169..180 => {
                let server = &mut self.servers[at];
                if let Some(link) = &mut server.link
                    && let Reading::Stream(offsets) = link.reading
                {
                    link.up.extend(offsets.ack(server.primary.offset_at(server.synced.0)));
                }
            }
            180..188 => self.wait(at, rng),
            188..192 => self.servers[at].synced = (self.servers[at].position, self.servers[at].last),
            192..196 => self.disconnect_given_up(at),
            196 if rng.u8(..8) == 0 => self.promote(at),
            197 if rng.u8(..4) == 0 => self.follow(at, rng.usize(..SERVERS)),
            198 if rng.bool() => self.fail_over(at, rng),
            _ => {}
        }
    }

    /// Ends all disturbances of the links and checks that, in one chain, every server reaches the
    /// state of the first.
    fn settle(&mut self) {
        for at in 0..SERVERS {
            self.promote(at);
        }
        (1..SERVERS).for_each(|at| self.follow(at, at - 1));
        for _ in 0..200 {
            self.now_ms += 10;
            for at in 0..SERVERS {
                self.disconnect_given_up(at);
                self.begin_snapshot(at, Transfer::Diskless);
                self.connect(at);
                self.feed(at, 100_001);
                self.receive(at, usize::MAX, usize::MAX);
                self.serve(at, usize::MAX);
            }
            self.check_truth();
        }
        let state = |it: &Server| (it.last, it.primary.history().id, it.primary.end());
        for server in &self.servers {
            assert_eq!(state(server), state(&self.servers[0]), "all servers of the chain have all units");
        }
    }
}

/// Runs a simulation of chains of servers with this seed. Returns the counts of its events.
/// `operations` counts the steps.
fn simulate(seed: u64, operations: &Cell<usize>) -> Done {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World {
        servers: (0..SERVERS as u32).map(|number| Server::new(ReplId::of_bits(0, 0, number + 1))).collect(),
        units: vec![(0, 0)],
        truth: BTreeMap::new(),
        ids: 0,
        clients: 0,
        now_ms: 0,
        done: Done::default(),
    };
    (1..SERVERS).for_each(|at| world.follow(at, at - 1));
    for step in 0..STEPS {
        operations.set(operations.get() + 1);
        world.step(&mut rng);
        world.check_truth();
        if step.is_multiple_of(20) {
            world.check_bytes();
        }
    }
    world.settle();
    world.check_bytes();
    world.done
}

#[test]
fn servers_of_a_chain_have_equal_bytes_and_data_at_equal_offsets() {
    let (mut sum, operations) = (Done::default(), Cell::new(0));
    for seed in 0..80 {
        let result = catch_unwind(AssertUnwindSafe(|| simulate(seed, &operations)));
        let done =
            result.unwrap_or_else(|_| panic!("seed {seed} fails, after {} operations", operations.get()));
        sum.full += done.full;
        sum.partial += done.partial;
        sum.other_ids += done.other_ids;
        sum.half_transactions += done.half_transactions;
        sum.refused += done.refused;
        sum.promotions += done.promotions;
        sum.returns += done.returns;
        sum.outdated += done.outdated;
        sum.chained += done.chained;
        sum.waits += done.waits;
        sum.synced_waits += done.synced_waits;
    }
    let Done { full, partial, other_ids, half_transactions, refused, .. } = sum;
    let Done { promotions, returns, outdated, chained, waits, synced_waits, .. } = sum;
    let synchronised = full.min(partial).min(other_ids).min(half_transactions).min(refused);
    let roles = promotions.min(returns).min(outdated).min(chained);
    let least = synchronised.min(roles).min(waits).min(synced_waits);
    assert!(least > 50, "the simulation does too little: {sum:?}");
}

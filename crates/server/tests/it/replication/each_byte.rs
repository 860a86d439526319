//! Links of replicas that end after each byte: of the replication stream, of the handshake, and of
//! a snapshot.
//!
//! The test itself acts as the replica, so that each link costs a fraction of a millisecond.
//! `SAKER_CUTS=all` cuts after each byte; otherwise a fraction of the bytes is chosen.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;

use testkit::change_stream::replay::Commands;
use testkit::replication::load::send_random;
use testkit::replication::{Link, Psync, Replica, SyncCounts, WITHIN, happens, info, number, run};
use testkit::{Client, Rng};

use super::cuts::write_snapshot;
use super::protocol::{check_snapshot, full_sync, online};
use super::{Primary, is_without_peer, replicas, seed};

/// The number of bytes at the start of the replication stream after each of which a link may end.
const CUT_MAX: usize = 100_000;

/// Distance in bytes between two cuts in the replication stream, unless each byte is chosen. It is
/// prime, so the cuts fall on different bytes of repeated commands.
const STEP: usize = 7;

/// Distance in bytes between two cuts in a snapshot, unless each byte is chosen.
const SNAPSHOT_STEP: usize = 211;

/// Number of bytes at the start of an answer with a snapshot after each of which a link is cut.
/// They are the lines before the file, and the file's header.
const HEAD_BYTES: usize = 300;

/// A number of bytes above the length of a handshake.
const HANDSHAKE_BYTES: usize = 180;

/// Number of threads that open links to the primary at the same time.
const LANES: usize = 4;

/// Number of bytes by which the replication stream is ahead of the links while clients write. It
/// exceeds [`TAKEN_MAX`].
const AHEAD_BYTES: usize = 8 << 10;

/// Maximum number of bytes of the replication stream that a link reads before it ends.
const TAKEN_MAX: usize = 4 << 10;

/// Maximum length of the values that clients write, in bytes.
const VALUE_BYTES: usize = 3000;

/// Number of links that read the replication stream to its end, after the others were cut.
const WHOLE: usize = 200;

/// Growth of the used memory, in bytes, that does not count as a leak.
const SLACK_BYTES: u64 = 1 << 20;

const CAPABILITIES: &[&str] = &["eof", "psync2"];

/// Returns the distance between two cuts: 1 with `SAKER_CUTS=all`, else `step`.
fn distance(step: usize) -> usize {
    if std::env::var("SAKER_CUTS").as_deref() == Ok("all") { 1 } else { step }
}

/// The bytes of the replication stream, as a link that is not cut receives them.
#[derive(Default)]
struct Reference {
    bytes: Mutex<Vec<u8>>,
    grown: Condvar,
}

impl Reference {
    /// Reads the replication stream from a link up to the command `SET the-end 1`, and adds its
    /// bytes to the reference. Returns the link.
    fn follow(&self, mut link: Link) -> Link {
        let mut last = Vec::new();
        resp::encode_request(&["SET", "the-end", "1"], &mut last);
        loop {
            let some = link.take_some();
            assert!(!some.is_empty(), "the link that is not cut has ended");
            let mut bytes = self.bytes.lock().expect("no panic");
            bytes.extend(some);
            self.grown.notify_all();
            if bytes.ends_with(&last) {
                return link;
            }
        }
    }

    fn len_bytes(&self) -> usize {
        self.bytes.lock().expect("no panic").len()
    }

    /// Returns true if the replication stream has the bytes `found` at offset `from`. Waits until
    /// the stream is that long; returns false if that takes too long.
    fn has(&self, from: usize, found: &[u8]) -> bool {
        let bytes = self.bytes.lock().expect("no panic");
        let is_short = |bytes: &mut Vec<u8>| bytes.len() < from + found.len();
        let (bytes, waited) = self.grown.wait_timeout_while(bytes, WITHIN, is_short).expect("no panic");
        !waited.timed_out() && bytes[from..from + found.len()] == *found
    }
}

/// Writes values of all sizes by commands, a script and a transaction, publishes messages, and
/// sometimes sends random commands.
fn write_some(primary: &Primary, client: &mut Client, commands: &mut Commands, rng: &mut Rng) {
    let value = "v".repeat(1 + rng.below(VALUE_BYTES));
    let (key, db) = (format!("k{}", rng.below(10)), rng.below(4).to_string());
    let script = "for i = 1, 3 do redis.call('RPUSH', KEYS[1], i) end redis.call('SELECT', 5) \
                  redis.call('INCR', KEYS[1] .. 'c') redis.call('LTRIM', KEYS[1], -9, -1)";
    let list = format!("from a script {key}");
    let requests: Vec<Vec<&str>> = vec![
        vec!["SELECT", &db],
        vec!["SET", &key, &value],
        vec!["PUBLISH", "news", &key],
        vec!["SPUBLISH", "shard", &key],
        vec!["EVAL", script, "1", &list],
        vec!["MULTI"],
        vec!["INCR", "counter"],
        vec!["SELECT", "7"],
        vec!["HSET", "fields", &key, &db],
        vec!["PUBLISH", "news", &db],
        vec!["EXEC"],
        vec!["DEL", "fields"],
    ];
    client.pipeline(&requests).expect("the primary answers");
    if rng.percent(20) {
        send_random(&primary.process, commands, 1);
    }
}

/// A replication stream that links ask to continue after any of its bytes.
#[derive(Clone, Copy)]
struct Stream<'s> {
    primary: &'s Primary,
    id: &'s str,
    /// The replication offset before the first byte of the stream.
    first: u64,
    reference: &'s Reference,
}

impl Stream<'_> {
    /// Connects like a replica whose link ended after the byte `from`, and compares the next
    /// `len_bytes` bytes with the reference. Then ends the link without notice.
    fn check(self, from: usize, len_bytes: usize, rng: &mut Rng) {
        let mut link = Link::connect(self.primary.port());
        let next = (self.first + from as u64 + 1) as i64;
        let answer = if rng.percent(5) {
            link.introduce(CAPABILITIES);
            link.psync(self.id, next)
        } else {
            link.psync_at_once(CAPABILITIES, self.id, next)
        };
        assert_eq!(answer, Psync::Continues(Some(self.id.into())), "after byte {from}");
        let found = link.take(len_bytes);
        assert!(self.reference.has(from, &found), "other bytes after byte {from}: {}", found.escape_ascii());
    }
}

/// Returns a random number of bytes that the next link reads: mostly few, so that the link ends
/// within a command.
fn taken(rng: &mut Rng) -> usize {
    match rng.below(20) {
        0..10 => 1,
        10..19 => 1 + rng.below(200),
        _ => 1 + rng.below(TAKEN_MAX),
    }
}

#[test]
fn the_stream_continues_after_each_byte_while_it_is_written() {
    if is_without_peer() {
        return;
    }
    let (seed, step) = (seed(), distance(STEP));
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let replica = super::replica_of(&primary, &[]);
    let mut commands = Commands::for_version(replica.version(), Rng::new(seed));
    let (link, id, first) = online(&primary);
    let before = SyncCounts::of(&mut client);
    let (reference, next) = (Reference::default(), AtomicUsize::new(0));
    let stream = Stream { primary: &primary, id: &id, first, reference: &reference };
    let offsets = CUT_MAX.div_ceil(step);
    thread::scope(|scope| {
        let link = scope.spawn(|| reference.follow(link));
        let lanes: Vec<_> = (0..LANES as u64)
            .map(|lane| {
                let next = &next;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed + lane);
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= offsets {
                            return;
                        }
                        let from = number * step;
                        assert!(stream.reference.has(from, &[]), "the stream reaches byte {from}");
                        stream.check(from, taken(&mut rng), &mut rng);
                    }
                })
            })
            .collect();
        // Writes continue slightly ahead of the links, so that most links are cut near the end of
        // the stream.
        let mut rng = Rng::new(seed);
        let is_behind = || {
            let asked = next.load(Relaxed);
            asked >= offsets || reference.len_bytes() < asked * step + AHEAD_BYTES
        };
        while next.load(Relaxed) < offsets && !lanes.iter().any(|lane| lane.is_finished()) {
            assert!(happens(is_behind), "seed {seed}: no link is opened any more");
            write_some(&primary, &mut client, &mut commands, &mut rng);
        }
        for lane in lanes {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        run(&mut client, &["SET", "the-end", "1"]);
        link.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    // The same check, with links that begin far before the end of the stream.
    let (all, mut rng) = (reference.len_bytes(), Rng::new(seed));
    assert!(all >= CUT_MAX, "only {all} bytes were written");
    for number in 0..WHOLE {
        let from = number * all / WHOLE;
        stream.check(from, all - from, &mut rng);
    }
    assert_eq!(SyncCounts::of(&mut client).since(before), (0, (offsets + WHOLE) as u64), "seed {seed}");
    // A real replica made the same data of these bytes.
    replica.wait_for_data_of(&mut client, &format!("seed {seed}, {all} bytes"));
    assert!(happens(|| replicas(&mut client) == 1), "{}", info(&mut client, "replication"));
}

/// The resources that the primary uses for a link, and must release when the link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    replicas: u64,
    clients: u64,
    files: usize,
}

impl Holdings {
    fn of(primary: &Primary, client: &mut Client) -> Self {
        Self {
            replicas: replicas(client),
            clients: number(client, "clients", "connected_clients"),
            files: open_files(primary),
        }
    }
}

/// Returns the number of files and sockets that the primary has open.
fn open_files(primary: &Primary) -> usize {
    let folder = format!("/proc/{}/fd", primary.process.pid());
    std::fs::read_dir(folder).expect("the process runs").count()
}

/// Makes a first full sync and closes its link. Returns the resources that the primary then still
/// holds, such as the thread `repl`, which the sync has started.
fn after_first_sync(primary: &Primary, client: &mut Client) -> Holdings {
    drop(full_sync(primary));
    let mut now = Holdings::of(primary, client);
    let is_released = happens(|| {
        now = Holdings::of(primary, client);
        now.replicas == 0 && now.clients == 1 && files_without_names(primary) == 0
    });
    assert!(is_released, "{now:?}\n{}", info(client, "replication"));
    now
}

/// Waits until the primary holds only the resources in `before` and, if `memory` is given, until
/// its used memory is back at that number of bytes. Returns the used memory.
fn wait_until_released(primary: &Primary, client: &mut Client, before: Holdings, memory: Option<u64>) -> u64 {
    let (mut now, mut used) = (before, 0);
    let is_released = happens(|| {
        now = Holdings::of(primary, client);
        // The thread that makes a snapshot may free its buffers later than the link.
        used = number(client, "memory", "used_memory");
        now == before && memory.is_none_or(|memory| used <= memory + SLACK_BYTES)
    });
    assert!(
        is_released,
        "{now:?} and not {before:?}, {used} bytes and not {memory:?}\n{}\n{}",
        info(client, "replication"),
        info(client, "memory")
    );
    used
}

/// Opens a link that ends after `sent` bytes of its handshake.
fn cut_handshake(primary: &Primary, sent: usize) {
    let mut link = Link::connect(primary.port());
    let bytes = link.handshake(CAPABILITIES, "?", -1);
    assert!(bytes.len() < HANDSHAKE_BYTES);
    link.send_bytes(&bytes[..sent.min(bytes.len())]);
    // Half of the links wait for an answer, which shows that the primary has read these bytes.
    if sent.is_multiple_of(2) && sent > bytes.len() / 4 {
        link.line();
    }
}

/// Opens a link that ends after it has read `read` bytes of the primary's answer.
fn cut_snapshot(primary: &Primary, read: usize) {
    let mut link = Link::connect(primary.port());
    let bytes = link.handshake(CAPABILITIES, "?", -1);
    link.send_bytes(&bytes);
    link.take(read);
}

/// Calls `act` with each of the numbers, on [`LANES`] threads.
fn on_lanes(numbers: &[usize], act: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for lane in 0..LANES {
            let act = &act;
            scope.spawn(move || numbers.iter().skip(lane).step_by(LANES).for_each(|&number| act(number)));
        }
    });
}

/// Returns a lower bound of the number of bytes that a link receives up to the end of its snapshot.
/// Some numbers in a snapshot may have fewer digits the next time.
fn len_of_snapshot(primary: &Primary) -> usize {
    let mut link = Link::connect(primary.port());
    let answer = link.psync_at_once(CAPABILITIES, "?", -1);
    assert!(matches!(answer, Psync::Full { .. }), "{answer:?}");
    let lines_bytes = "+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC  0\r\n$EOF:\r\n".len() + 2 * 40;
    lines_bytes + link.snapshot().bytes.len() - 20
}

#[test]
fn cuts_in_the_handshake_and_the_snapshot_leave_nothing_behind() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    write_snapshot(&mut client, &mut Rng::new(seed()));
    let before = after_first_sync(&primary, &mut client);
    let len_bytes = len_of_snapshot(&primary);
    let handshake: Vec<usize> = (0..=HANDSHAKE_BYTES).collect();
    let head = HEAD_BYTES.min(len_bytes);
    let snapshot = |step| (0..head).chain((head..len_bytes).step_by(step)).collect::<Vec<usize>>();
    let mut memory = None;
    // The first round brings all buffers to their size.
    for step in [SNAPSHOT_STEP, distance(SNAPSHOT_STEP), SNAPSHOT_STEP] {
        on_lanes(&handshake, |sent| cut_handshake(&primary, sent));
        on_lanes(&snapshot(step), |read| cut_snapshot(&primary, read));
        // Links that end after the mark, before and after their first acknowledgement.
        drop(full_sync(&primary));
        drop(online(&primary));
        let used = wait_until_released(&primary, &mut client, before, memory);
        memory.get_or_insert(used);
    }
    let (_link, _, _) = online(&primary);
    let mut link = Link::connect(primary.port());
    link.psync_at_once(CAPABILITIES, "?", -1);
    check_snapshot(&primary, &link.snapshot().bytes);
    let replica = super::replica_of(&primary, &[]);
    replica.wait_for_data_of(&mut client, "after all cuts");
}

/// Returns the number of unnamed files that the primary has open.
fn files_without_names(primary: &Primary) -> usize {
    let folder = format!("/proc/{}/fd", primary.process.pid());
    let entries = std::fs::read_dir(folder).expect("the process runs");
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().ends_with(" (deleted)")).count()
}

#[test]
fn a_cut_frees_the_files_of_a_snapshot_that_waits() {
    if is_without_peer() || std::env::var_os("SAKER_PRIMARY").is_some() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&["--rdbcompression", "no"]);
    let mut client = primary.connect();
    run(&mut client, &["DEBUG", "POPULATE", "1000", "key", "100000"]);
    let before = after_first_sync(&primary, &mut client);
    let (mut rng, mut memory) = (Rng::new(seed), None);
    for round in 0..6 {
        let diskless = if round % 2 == 0 { "yes" } else { "no" };
        run(&mut client, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        let mut link = Link::connect(primary.port());
        let answer = link.psync_at_once(CAPABILITIES, "?", -1);
        assert!(matches!(answer, Psync::Full { .. }), "{answer:?}");
        // What it does not read waits in memory, and then in files.
        link.take(1 + rng.below(10_000_000));
        assert!(happens(|| files_without_names(&primary) > 0), "{}", info(&mut client, "replication"));
        drop(link);
        assert!(happens(|| files_without_names(&primary) == 0), "seed {seed}, round {round}");
        let used = wait_until_released(&primary, &mut client, before, memory);
        // The first two rounds bring all buffers to their size.
        if round >= 1 {
            memory.get_or_insert(used);
        }
    }
    let replica = Replica::start(&[]).expect("the replica starts");
    replica.follow(primary.port());
    replica.wait_for_data_of(&mut client, "after all cuts");
}

//! Links that are cut, slow or corrupt: after the reconnection both sides have the same data.
//!
//! A primary has a snapshot of some 40 KB and then writes the same 60 KB of commands for each cut.
//! `SAKER_CUTS=all` cuts at each of the first 100,000 bytes, `SAKER_CUTS=500` at 500 of them.

use std::time::Duration;

use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, Replica, SyncCounts, happens, info, number, run};
use testkit::{Client, Rng};

use super::{Primary, is_without_peer, replica_of, seed};

/// The number of bytes from the start of a link among which cuts are chosen.
const CUT_MAX: u64 = 100_000;

/// Number of times that a replica's link is cut in CI.
const CUTS: usize = 60;

/// Number of primaries whose links are cut at the same time, in CI; with `SAKER_CUTS`,
/// [`LANES_OF_LONG_RUNS`]. The test mostly waits for reconnections, so more than one primary saves
/// time.
const LANES: usize = 4;
const LANES_OF_LONG_RUNS: usize = 16;

/// Length in bytes of each of the [`VALUES`] incompressible values in the snapshot.
const VALUE_BYTES: usize = 1000;
const VALUES: usize = 40;

/// Writes the data that a snapshot of the primary will contain.
pub(crate) fn write_snapshot(client: &mut Client, rng: &mut Rng) {
    for number in 0..VALUES {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| b'!' + (rng.next_u64() % 90) as u8).collect();
        let key = format!("base{number}");
        let reply = client.command(&[b"SET", key.as_bytes(), &value]);
        assert!(!reply.is_error(), "{reply}");
    }
    send_lines(
        client,
        ["SELECT 3", "RPUSH l 1 2 3", "HSET h a 1 b 2", "ZADD z 1 a 2 b", "SADD e a b", "SELECT 0"],
    );
}

/// Writes the commands that follow the snapshot in the replication stream, about 70 KB. The data
/// does not grow if they are repeated.
pub(crate) fn write_stream(client: &mut Client) {
    let filler = "v".repeat(300);
    for number in 0..110 {
        let (key, other) = (format!("k{}", number % 10), format!("l{}", number % 7));
        let lines = [
            format!("SET {key} {filler}{number}"),
            "INCR counter".to_owned(),
            "MULTI".to_owned(),
            format!("SELECT {}", number % 4),
            format!("RPUSH {other} a b"),
            "INCR counter".to_owned(),
            format!("LTRIM {other} -5 -1"),
            "EXEC".to_owned(),
            format!("APPEND {key} {number}"),
            format!("EXPIRE {key} 100000"),
            "SELECT 0".to_owned(),
        ];
        send_lines(client, lines.iter().map(String::as_str));
    }
}

/// The numbers of bytes that a primary sends over a link: up to the end of the snapshot, and up to
/// the end of the replication stream after it.
struct Lengths {
    snapshot: u64,
    all: u64,
}

/// Measures the bytes of a link that is not cut.
fn measure(primary: &Primary, replica: &Replica, client: &mut Client) -> Lengths {
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    replica.follow(proxy.port());
    replica.catch_up(client);
    let snapshot = proxy.passed_bytes();
    write_stream(client);
    replica.catch_up(client);
    let all = proxy.passed_bytes();
    replica.leave();
    Lengths { snapshot, all }
}

/// Follows the primary over a link that is cut after `cut` bytes, and checks that the replica
/// reconnects and has the primary's data. Returns true if the cut was in the replication stream
/// after the snapshot.
fn follow_with_cut(primary: &Primary, replica: &Replica, client: &mut Client, cut: u64, what: &str) -> bool {
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    proxy.cut_after(cut);
    let before = SyncCounts::of(client);
    replica.follow(proxy.port());
    let is_ready = happens(|| proxy.cuts() > 0 || replica.is_up());
    assert!(is_ready, "{what}: {}", replica.log());
    // Nothing is sent after the snapshot yet: if the link is up now, the cut comes in the stream.
    let in_stream = proxy.cuts() == 0;
    write_stream(client);
    assert!(happens(|| proxy.cuts() == 1), "{what}: only {} bytes passed", proxy.passed_bytes());
    replica.wait_for_data_of(client, what);
    let syncs = SyncCounts::of(client).since(before);
    let expected: &[(u64, u64)] = match in_stream {
        true => &[(1, 1)],
        // The cut may precede the primary's record that the sync is complete, or directly follow
        // the snapshot.
        false => &[(1, 0), (2, 0), (1, 1)],
    };
    assert!(
        expected.contains(&syncs),
        "{what}: {syncs:?} full and partial syncs, in the stream: {in_stream}"
    );
    assert!(proxy.connections() >= 2, "{what}");
    replica.leave();
    in_stream
}

/// Returns the numbers of bytes after which links are cut.
fn cuts(rng: &mut Rng, lengths: &Lengths) -> Vec<u64> {
    let count = match std::env::var("SAKER_CUTS").as_deref() {
        Ok("all") => return (1..=CUT_MAX).collect(),
        Ok(count) => count.parse().expect("SAKER_CUTS is a number or all"),
        Err(_) => CUTS,
    };
    // Half of them in the stream, which needs no snapshot twice.
    let in_stream = lengths.snapshot + 1..CUT_MAX;
    let span = (in_stream.end - in_stream.start) as usize;
    (0..count)
        .map(|_| match rng.below(4) {
            0 => 1 + rng.below(CUT_MAX as usize) as u64,
            1 => 1 + rng.below(lengths.snapshot as usize) as u64,
            _ => in_stream.start + rng.below(span) as u64,
        })
        .collect()
}

/// Cuts the links of one of `lanes` primaries, one after the other. Returns the number of cuts in
/// the replication stream after a snapshot, and the number of all cuts.
fn run_lane(lane: usize, lanes: usize, seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed + lane as u64);
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    write_snapshot(&mut client, &mut rng);
    let load = if lane.is_multiple_of(2) { "disabled" } else { "swapdb" };
    let replica = Replica::start(&["--repl-diskless-load", load]).expect("the replica starts");
    let lengths = measure(&primary, &replica, &mut client);
    assert!(lengths.snapshot < CUT_MAX / 2 && lengths.all > CUT_MAX, "{} {}", lengths.snapshot, lengths.all);
    let cuts: Vec<u64> = cuts(&mut Rng::new(seed), &lengths).into_iter().skip(lane).step_by(lanes).collect();
    let mut in_stream = 0;
    for (number, cut) in cuts.iter().enumerate() {
        // The length of a snapshot varies by the digits of numbers in it.
        let what = format!(
            "seed {seed}, lane {lane}, cut {number} after byte {cut}, snapshot to about {}",
            lengths.snapshot
        );
        in_stream += usize::from(follow_with_cut(&primary, &replica, &mut client, *cut, &what));
    }
    (in_stream, cuts.len())
}

#[test]
fn a_cut_at_any_byte_gives_the_same_data() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let (mut in_stream, mut cuts) = (0, 0);
    let count = if std::env::var_os("SAKER_CUTS").is_some() { LANES_OF_LONG_RUNS } else { LANES };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..count).map(|lane| scope.spawn(move || run_lane(lane, count, seed))).collect();
        for lane in lanes {
            let (of_lane, all) = lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (in_stream, cuts) = (in_stream + of_lane, cuts + all);
        }
    });
    assert!(in_stream >= cuts / 4, "only {in_stream} of {cuts} cuts were in the stream");
}

#[test]
fn repeated_cuts_under_load_need_one_full_sync() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    let replica = Replica::start(&[]).expect("the replica starts");
    replica.follow(proxy.port());
    replica.catch_up(&mut client);
    let before = SyncCounts::of(&mut client);
    for number in 0..25 {
        proxy.cut_after(proxy.passed_bytes() + 1 + rng.below(40_000) as u64);
        write_stream(&mut client);
        assert!(happens(|| proxy.cuts() > number), "seed {seed}: cut {number} does not come");
        // The link is up again before the next cut, so that each cut costs one sync.
        replica.catch_up(&mut client);
    }
    replica.wait_for_data_of(&mut client, &format!("seed {seed}, many cuts"));
    assert_eq!(SyncCounts::of(&mut client).since(before), (0, 25), "seed {seed}");
}

#[test]
fn a_corrupt_snapshot_is_sent_again() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    write_snapshot(&mut client, &mut Rng::new(seed));
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    // Most bytes of the snapshot belong to values, so that only the checksum shows the change.
    proxy.corrupt(20_000);
    let mut replica = Replica::start(&["--repl-diskless-load", "swapdb"]).expect("the replica starts");
    let before = SyncCounts::of(&mut client);
    replica.follow(proxy.port());
    // Redis ends when the checksum is wrong; a replica could ask for the snapshot again, too.
    let is_refused = happens(|| replica.has_ended() || SyncCounts::of(&mut client).since(before).0 > 1);
    assert!(is_refused, "{}", replica.log());
    if replica.has_ended() {
        replica = Replica::start(&["--repl-diskless-load", "swapdb"]).expect("the replica starts");
        replica.follow(proxy.port());
    }
    replica.wait_for_data_of(&mut client, &format!("seed {seed}, a corrupt snapshot"));
    assert!(!proxy.is_corruption_pending());
    assert_eq!(SyncCounts::of(&mut client).since(before), (2, 0));
}

#[test]
fn a_slow_or_stalled_link_holds_no_client_up() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    write_snapshot(&mut client, &mut Rng::new(seed()));
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    let quick = replica_of(&primary, &[]);
    // The snapshot takes longer than the writes.
    proxy.throttle(Some(20_000));
    let slow = Replica::start(&[]).expect("the replica starts");
    slow.follow(proxy.port());
    assert!(happens(|| proxy.passed_bytes() > 2_000), "{}", slow.log());
    write_stream(&mut client);
    quick.catch_up(&mut client);
    assert!(!slow.is_up(), "the link is faster than it should be");
    proxy.throttle(None);
    slow.wait_for_data_of(&mut client, "a slow link");
    proxy.stall();
    for _ in 0..5 {
        write_stream(&mut client);
    }
    quick.catch_up(&mut client);
    proxy.resume();
    proxy.delay(Duration::from_millis(5));
    slow.wait_for_data_of(&mut client, "a stalled link");
    assert_eq!(number(&mut client, "stats", "sync_full"), 2, "{}", info(&mut client, "stats"));
    run(&mut client, &["PING"]);
}

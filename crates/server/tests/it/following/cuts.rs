//! Links of this server to its primary that are cut, slow, stalled or corrupt.
//!
//! For each cut, a primary sends a snapshot of some 40 KB and then writes some 70 KB of commands.
//! `SAKER_FOLLOWING=all` cuts more often.

use std::time::Duration;

use testkit::change_stream::forms::PeerVersion;
use testkit::replication::load::send_lines;
use testkit::replication::{Proxy, happens, run};
use testkit::{Rng, Value};

use super::data::LOADS;
use super::{Kind, Node, kinds, runs_all, seed};
use crate::replication::cuts::{write_snapshot, write_stream};

/// Number of cuts of the links to one primary. `SAKER_FOLLOWING=all` cuts [`CUTS_OF_LONG_RUNS`]
/// times.
const CUTS: usize = 16;
const CUTS_OF_LONG_RUNS: usize = 1000;

/// Starts a primary with the data that its snapshot will contain.
fn filled_primary(kind: Kind, options: &[&str]) -> Node {
    let primary = Node::start(kind, options);
    write_snapshot(&mut primary.connect(), &mut Rng::new(seed()));
    primary
}

/// Returns true if this primary sends snapshots in the format of Valkey 9 to the server under test.
fn sends_valkey_files(primary: &Node) -> bool {
    let is_new = matches!(primary.version, PeerVersion::Valkey(version) if version.major >= 9);
    is_new && primary.kind != Kind::Own
}

fn proxy_to(node: &Node) -> Proxy {
    Proxy::start(node.port()).expect("a port is free")
}

/// Measures the bytes that the primary sends over a link: up to the end of the snapshot, and up to
/// the end of the replication stream after it.
fn measure(primary: &Node, replica: &Node) -> (u64, u64) {
    let proxy = proxy_to(primary);
    replica.follow(proxy.port());
    replica.catch_up(primary);
    let of_snapshot = proxy.passed_bytes();
    write_stream(&mut primary.connect());
    replica.catch_up(primary);
    let of_all = proxy.passed_bytes();
    replica.leave();
    (of_snapshot, of_all)
}

/// Makes `replica` follow `primary` over a link that is cut after `cut` bytes, and checks that the
/// replica reconnects and has the primary's data.
fn follow_with_cut(primary: &Node, replica: &Node, cut: u64, what: &str) {
    let proxy = proxy_to(primary);
    proxy.cut_after(cut);
    let before = primary.syncs();
    replica.follow(proxy.port());
    let is_ready = happens(|| proxy.cuts() > 0 || replica.is_up());
    assert!(is_ready, "{what}: {}", replica.state());
    // Nothing is sent after the snapshot yet: if the link is up now, the cut comes in the stream.
    let in_stream = proxy.cuts() == 0;
    write_stream(&mut primary.connect());
    assert!(happens(|| proxy.cuts() == 1), "{what}: only {} bytes passed", proxy.passed_bytes());
    replica.wait_for_data_of(primary, what);
    let syncs = primary.syncs_since(before);
    let expected: &[(u64, u64)] = match in_stream {
        true => &[(1, 1)],
        // The cut may precede the primary's record that the sync is complete, or directly follow
        // the snapshot.
        false => &[(1, 0), (2, 0), (1, 1)],
    };
    assert!(expected.contains(&syncs), "{what}: {syncs:?}, in the stream: {in_stream}");
    replica.leave();
}

/// Cuts the links between a primary of this kind and a replica, one after the other. `load` is the
/// replica's `repl-diskless-load`.
fn cut_links(kind: Kind, load: &str, cuts: usize) {
    let seed = seed();
    let mut rng = Rng::new(seed ^ load.len() as u64);
    let primary = filled_primary(kind, &[]);
    let replica = Node::start(Kind::Own, &["--repl-diskless-load", load]);
    let (of_snapshot, of_all) = measure(&primary, &replica);
    for number in 0..cuts {
        let cut = match number % 4 {
            // The handshake is some hundred bytes.
            0 => 1 + rng.below(400) as u64,
            1 => 1 + rng.below(of_snapshot as usize) as u64,
            _ => of_snapshot + rng.below((of_all - of_snapshot) as usize * 9 / 10) as u64,
        };
        let diskless = if rng.percent(50) { "yes" } else { "no" };
        run(&mut primary.connect(), &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        let what = format!("{kind:?}, load {load}, seed {seed}, cut {number} after {cut} of {of_snapshot}");
        follow_with_cut(&primary, &replica, cut, &what);
    }
}

#[test]
fn a_cut_at_any_byte_gives_the_same_data() {
    let cuts = if runs_all() { CUTS_OF_LONG_RUNS } else { CUTS };
    std::thread::scope(|scope| {
        let lanes = kinds().into_iter().flat_map(|kind| ["disabled", "swapdb"].map(|load| (kind, load)));
        let lanes: Vec<_> =
            lanes.map(|(kind, load)| scope.spawn(move || cut_links(kind, load, cuts))).collect();
        for lane in lanes {
            lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

#[test]
fn repeated_cuts_under_load_need_one_full_sync() {
    let mut rng = Rng::new(seed());
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let proxy = proxy_to(&primary);
        let replica = Node::start(Kind::Own, &[]);
        let last = Node::start(Kind::Own, &[]);
        replica.follow(proxy.port());
        replica.catch_up(&primary);
        last.follow(replica.port());
        last.catch_up(&replica);
        let before = (primary.syncs(), replica.syncs());
        for number in 0..15 {
            proxy.cut_after(proxy.passed_bytes() + 1 + rng.below(40_000) as u64);
            write_stream(&mut primary.connect());
            assert!(happens(|| proxy.cuts() > number), "seed {}: cut {number} does not come", seed());
            replica.catch_up(&primary);
        }
        replica.wait_for_data_of(&primary, "many cuts");
        last.wait_for_data_of(&primary, "many cuts of the link above");
        assert_eq!(primary.syncs_since(before.0), (0, 15), "{kind:?}, seed {}", seed());
        // Replicas of the replica notice nothing.
        assert_eq!(replica.syncs_since(before.1), (0, 0), "{kind:?}, seed {}", seed());
        assert_eq!(replica.failed_commands(), "0");
    }
}

#[test]
fn a_snapshot_with_a_wrong_header_leaves_the_old_data() {
    for kind in kinds() {
        let primary = filled_primary(kind, &[]);
        for load in LOADS {
            let proxy = proxy_to(&primary);
            proxy.corrupt_text(if sends_valkey_files(&primary) { b"VALKEY0" } else { b"REDIS00" });
            let replica = Node::start(Kind::Own, &["--repl-diskless-load", load]);
            let mut own = replica.connect();
            send_lines(&mut own, ["SET old 1"]);
            let before = primary.syncs();
            replica.follow(proxy.port());
            assert!(happens(|| !proxy.is_corruption_pending()), "{kind:?}, load {load}");
            let has_failed = happens(|| {
                replica.link("master_link_last_error").contains("no new data was loaded") || replica.is_up()
            });
            assert!(has_failed && !replica.is_up(), "{kind:?}, load {load}: {}", replica.state());
            assert_eq!(own.command(&["GET", "old"]), Value::Bulk(b"1".to_vec()), "{kind:?}, load {load}");
            replica.wait_for_data_of(&primary, &format!("{kind:?}, load {load}"));
            assert_eq!(primary.syncs_since(before), (2, 0), "{kind:?}, load {load}");
        }
    }
}

#[test]
fn a_corrupt_snapshot_is_refused_and_sent_again() {
    for kind in kinds() {
        let primary = filled_primary(kind, &[]);
        for load in LOADS {
            let proxy = proxy_to(&primary);
            // Most bytes of the snapshot belong to values, so that only the checksum shows the
            // change.
            proxy.corrupt(20_000);
            let replica = Node::start(Kind::Own, &["--repl-diskless-load", load]);
            let mut own = replica.connect();
            send_lines(&mut own, ["SET old 1"]);
            let before = primary.syncs();
            replica.follow(proxy.port());
            let has_failed =
                happens(|| replica.link("master_link_last_error").contains("Failed trying to load"));
            assert!(has_failed, "{kind:?}, load {load}: {}", replica.state());
            replica.wait_for_data_of(&primary, &format!("{kind:?}, load {load}"));
            assert!(!proxy.is_corruption_pending());
            assert_eq!(primary.syncs_since(before), (2, 0), "{kind:?}, load {load}");
        }
    }
}

#[test]
fn a_stalled_link_times_out_and_a_slow_one_goes_on() {
    for kind in kinds() {
        let primary = filled_primary(kind, &[]);
        let proxy = proxy_to(&primary);
        let replica = Node::start(Kind::Own, &[]);
        // The snapshot comes slowly.
        proxy.throttle(Some(60_000));
        replica.follow(proxy.port());
        assert!(happens(|| proxy.passed_bytes() > 5_000));
        assert_eq!(replica.link("master_sync_in_progress"), "1", "{}", replica.state());
        write_stream(&mut primary.connect());
        proxy.throttle(None);
        replica.wait_for_data_of(&primary, &format!("{kind:?}, a slow link"));
        let before = primary.syncs();
        proxy.stall();
        write_stream(&mut primary.connect());
        proxy.delay(Duration::from_millis(2));
        // Now, silence is a reason to end the link.
        run(&mut replica.connect(), &["CONFIG", "SET", "repl-timeout", "1"]);
        let is_told = happens(|| replica.link("master_link_last_error").to_lowercase().contains("timeout"));
        assert!(is_told, "{kind:?}: {}", replica.state());
        run(&mut replica.connect(), &["CONFIG", "SET", "repl-timeout", "3600"]);
        proxy.cut();
        proxy.resume();
        replica.wait_for_data_of(&primary, &format!("{kind:?}, a stalled link"));
        assert_eq!(primary.syncs_since(before).0, 0, "{kind:?}: {}", replica.state());
    }
}

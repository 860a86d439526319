//! The loss of a primary, and failovers that an operator requests.

use super::writers::{count_lost, count_missing, with_writers};
use super::*;

#[test]
fn a_killed_primary_is_replaced_and_comes_back_as_a_replica() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(Settings::default());
    let acknowledged = with_writers(&mut set, |set, load| {
        load.wait_for_writes(set, &[0]);
        set.kill(0);
        set.wait_for_other(0);
        load.wait_for_writes(set, &[1, 2]);
        set.restart(0);
        set.wait_until_follows(0);
        load.wait_for_writes(set, &[1, 2]);
    });
    set.wait_until_equal();
    // Replication is asynchronous: the end of what a killed primary acknowledged may be lost.
    let lost = count_lost(&set, &acknowledged);
    println!("{lost} of {} writes were lost", acknowledged.iter().map(Vec::len).sum::<usize>());
    // The files state the roles, also after a restart of all.
    let primary = set.primary();
    for at in 0..COUNT {
        let file = fs::read_to_string(set.file(at)).expect("written");
        let line = format!("replicaof 127.0.0.1 {}\n", set.ports[primary]);
        assert_eq!(file.contains(&line), at != primary, "{at}: {file}");
        assert_eq!(file.matches("replicaof no one\n").count(), usize::from(at == primary), "{at}: {file}");
    }
}

#[test]
fn a_stopped_primary_is_replaced_and_follows_when_it_continues() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(Settings::default());
    let acknowledged = with_writers(&mut set, |set, load| {
        load.wait_for_writes(set, &[0]);
        set.signal(0, Signal::STOP);
        let is_replaced = happens(|| set.primary() != 0);
        // The test does not ask the stopped server: it would not answer.
        assert!(is_replaced, "no other primary");
        load.wait_for_writes(set, &[1, 2]);
        set.signal(0, Signal::CONT);
        set.wait_until_follows(0);
    });
    set.wait_until_equal();
    count_lost(&set, &acknowledged);
}

#[test]
fn a_failover_that_an_operator_asks_for_loses_only_what_a_former_primary_acknowledges() {
    if is_without_peer() {
        return;
    }
    // With this option, the former primary refuses writes once its replicas have left it.
    let mut set = Watched::start(Settings {
        servers: "min-replicas-to-write 1\nmin-replicas-max-lag 10".to_owned(),
        sentinels: PATIENT.to_owned(),
        ..Settings::default()
    });
    let acknowledged = with_writers(&mut set, |set, load| {
        load.wait_for_writes(set, &[0]);
        set.fail_over_from(0);
        load.wait_for_writes(set, &[1, 2]);
        set.wait_until_follows(0);
        load.wait_for_writes(set, &[1, 2]);
    });
    set.wait_until_equal();
    let lost = count_lost(&set, &acknowledged);
    println!("{lost} of {} writes were lost", acknowledged.iter().map(Vec::len).sum::<usize>());
}

/// Returns settings with which the replication stream contains only what clients write.
pub(super) fn quiet() -> Settings {
    let servers = "repl-ping-replica-period 3600".to_owned();
    Settings { servers, sentinels: PATIENT.to_owned(), ..Settings::default() }
}

#[test]
fn a_failover_during_a_pause_of_writes_loses_nothing() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(quiet());
    let acknowledged = with_writers(&mut set, |set, load| {
        load.wait_for_writes(set, &[0]);
        let mut client = set.connect(0);
        run(&mut client, &["CLIENT", "PAUSE", "600000", "WRITE"]);
        let end = number(&mut client, "replication", "master_repl_offset").to_string();
        let has_all = |at: usize| set.field(at, "slave_repl_offset") == end;
        assert!(happens(|| has_all(1) && has_all(2)), "no replica has it all: {}", set.state());
        let new = set.fail_over_from(0);
        run(&mut set.connect(0), &["REPLICAOF", "127.0.0.1", &set.ports[new].to_string()]);
        run(&mut set.connect(0), &["CLIENT", "UNPAUSE"]);
        load.wait_for_writes(set, &[1, 2]);
        set.wait_until_follows(0);
    });
    set.wait_until_equal();
    assert_eq!(count_lost(&set, &acknowledged), 0);
    let full = number(&mut set.connect(set.primary()), "stats", "sync_full");
    assert_eq!(full, 0, "{}", set.state());
}

/// Returns true if a Sentinel accepts the word COORDINATED.
fn knows_coordinated_failovers(set: &Watched) -> bool {
    let reply = set.sentinels[0].connect().command(&["SENTINEL", "FAILOVER", "unknown", "COORDINATED"]);
    reply.to_string().contains("No such")
}

#[test]
fn a_coordinated_failover_loses_nothing() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(quiet());
    if !knows_coordinated_failovers(&set) {
        eprintln!("the peer has no coordinated failover");
        return;
    }
    let full = |set: &Watched, at: usize| number(&mut set.connect(at), "stats", "sync_full");
    let before: Vec<u64> = (0..COUNT).map(|at| full(&set, at)).collect();
    let acknowledged = with_writers(&mut set, |set, load| {
        let mut old = 0;
        for _ in 0..3 {
            load.wait_for_writes(set, &[old]);
            old = set.fail_over_with(old, &["COORDINATED"]);
            set.wait_until_all_follow();
        }
        load.wait_for_writes(set, &[old]);
    });
    set.wait_until_equal();
    assert_eq!(count_missing(&set, &acknowledged), 0, "{}", set.state());
    assert_eq!((0..COUNT).map(|at| full(&set, at)).collect::<Vec<_>>(), before, "{}", set.state());
}

#[test]
fn without_writes_every_failover_continues_by_partial_synchronisation() {
    if is_without_peer() {
        return;
    }
    let set = Watched::start(quiet());
    run(&mut set.connect(0), &["SET", "k", "v"]);
    let full = |at: usize| number(&mut set.connect(at), "stats", "sync_full");
    let before: Vec<u64> = (0..COUNT).map(full).collect();
    let mut old = 0;
    for _ in 0..2 {
        set.wait_until_watched();
        let new = set.fail_over_from(old);
        set.wait_until_equal();
        old = new;
    }
    // The Sentinels' messages are not in the stream, so the former primary has added nothing to its
    // history. A failover that a Sentinel gives up half way may leave two primaries with replicas
    // of their own, which needs a snapshot later.
    if set.times_replaced() == "2" {
        assert_eq!((0..COUNT).map(full).collect::<Vec<_>>(), before, "{}", set.state());
    }
}

/// Checks a failover that a Sentinel gives up after the promotion, as on a busy machine. The
/// Sentinels then make the promoted server a replica again.
#[test]
fn a_replica_whose_promotion_is_taken_back_continues_without_a_snapshot() {
    if is_without_peer() {
        return;
    }
    let set = Watched::start(quiet());
    let full = || (0..COUNT).map(|at| number(&mut set.connect(at), "stats", "sync_full")).sum::<u64>();
    let before = full();
    for at in 1..COUNT {
        run(&mut set.connect(at), &["REPLICAOF", "NO", "ONE"]);
        run(&mut set.connect(0), &["INCR", "n"]);
        set.wait_until_follows(at);
    }
    set.wait_until_equal();
    assert_eq!((full(), set.primary()), (before, 0), "{}", set.state());
}

#[test]
fn priorities_and_announced_addresses_decide_about_the_next_primary() {
    if is_without_peer() {
        return;
    }
    let each = ["", "replica-priority 0", "replica-priority 200\nreplica-announce-ip 127.0.0.1"];
    let mut set = Watched::start(Settings { each: each.map(str::to_owned), ..Settings::default() });
    set.kill(0);
    assert_eq!(set.wait_for_other(0), 2, "{}", set.state());
    set.restart(0);
    set.wait_until_equal();
}

#[test]
fn a_server_without_a_file_states_that_its_role_is_not_kept() {
    if is_without_peer() {
        return;
    }
    let mut set = Watched::start(Settings { has_no_files: true, ..Settings::default() });
    set.kill(0);
    let new = set.wait_for_other(0);
    set.server(new).wait_for_log("CONFIG REWRITE failed: the server has no configuration file");
    set.restart(0);
    set.wait_until_equal();
}

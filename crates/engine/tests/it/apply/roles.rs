//! Tests of the role of a replica: refused requests of clients, and a change of the role while the
//! replication stream is applied.

use std::sync::atomic::Ordering::Relaxed;

use engine::apply::ApplyError;
use engine::settings::Settings;
use engine::shared::Hindrances;

use super::{Stream, encoded, replica, thread};

const STALE: Hindrances = Hindrances { is_stale: true, is_loading_beside: false };
const LOADING_BESIDE: Hindrances = Hindrances { is_stale: false, is_loading_beside: true };
const READONLY: &str = "-READONLY You can't write against a read only replica.|";
const MASTERDOWN: &str = "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.|";

// The texts of Redis 8.0.2.
#[test]
fn clients_cannot_write_to_a_read_only_replica() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("SET k v");
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for (request, reply) in [
        ("SET k x", READONLY),
        ("BLPOP l 0", READONLY),
        ("FLUSHALL", READONLY),
        ("MULTI", "+OK|"),
        ("GET k", "+QUEUED|"),
        ("SET k x", READONLY),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
        ("MULTI", "+OK|"),
        ("GET k", "+QUEUED|"),
        ("EXEC", "*1|$1|v|"),
        ("EVAL GET,k 0", "$1|v|"),
        ("EVAL SET,k,x 0", READONLY),
        ("EVAL SET,k,x 1 k", READONLY),
        ("EVAL write!GET,k 0", READONLY),
        ("EVAL no-writes!GET,k 0", "$1|v|"),
        ("EVAL no-writes!SET,k,x 0", "-ERR Write commands are not allowed from read-only scripts.|"),
        ("GET k", "$1|v|"),
    ] {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
}

#[test]
fn writes_that_were_queued_before_the_role_changed_do_not_run() {
    let (shared, clock) = replica(Settings::default());
    let role = &shared.server_state.role;
    role.refuses_writes.store(false, Relaxed);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for requests in [&["SET k x"][..], &["SET k x", "SWAPDB 1 2"], &["EVAL SET,k,x 0"]] {
        role.refuses_writes.store(false, Relaxed);
        thread.run(client, "MULTI");
        for request in requests {
            assert_eq!(thread.run(client, request).0, "+QUEUED|");
        }
        role.refuses_writes.store(true, Relaxed);
        let reply = thread.run(client, "EXEC").0;
        assert!(reply.contains("READONLY You can't write"), "{reply}");
        assert_eq!(thread.run(client, "GET k").0, "$-1|");
    }
}

#[test]
fn a_replica_without_its_primary_refuses_what_would_show_old_data() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("SET k v");
    let mut thread = thread(&shared, &clock);
    let [client, early] = [0, 1].map(|_| thread.connect());
    thread.run(early, "MULTI");
    thread.run(early, "GET k");
    shared.server_state.role.note(STALE);
    let abort = format!("-EXECABORT Transaction discarded because of: {}", &MASTERDOWN[1..]);
    assert_eq!(thread.run(early, "EXEC").0, abort);
    for (request, reply) in [
        ("GET k", MASTERDOWN),
        ("SET k x", READONLY),
        ("SCAN 0", MASTERDOWN),
        ("PING", MASTERDOWN),
        ("SELECT 0", "+OK|"),
        ("WATCH k", "+OK|"),
        ("MULTI", "+OK|"),
        ("GET k", MASTERDOWN),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.|"),
        ("EVAL GET,k 0", MASTERDOWN),
        ("EVAL no-writes!GET,k 0", MASTERDOWN),
        ("EVAL no-writes,allow-stale!SELECT,0 0", "+OK|"),
        ("EVAL no-writes,allow-stale!GET,k 0", "-ERR Can not execute the command on a stale replica|"),
    ] {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
    // What has arrived is applied in any case.
    stream.apply("SET k 2\nEVAL SET,k,3 0\nMULTI\nINCR k\nEXEC");
    assert!(stream.reports.failures.is_empty(), "{:?}", stream.reports.failures);
    shared.server_state.role.note(Hindrances::default());
    assert_eq!(thread.run(client, "GET k").0, "$1|4|");
}

#[test]
fn a_load_beside_the_data_refuses_few_commands() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("SET k v");
    let mut thread = thread(&shared, &clock);
    let [client, early] = [0, 1].map(|_| thread.connect());
    thread.run(early, "MULTI");
    thread.run(early, "SAVE 0");
    shared.server_state.role.note(LOADING_BESIDE);
    const LOADING: &str = "-LOADING Redis is loading the dataset in memory|";
    let abort = format!("-EXECABORT Transaction discarded because of: {}", &LOADING[1..]);
    assert_eq!(thread.run(early, "EXEC").0, abort);
    for (request, reply) in
        [("GET k", "$1|v|"), ("SET k x", READONLY), ("SAVE 0", LOADING), ("EVAL GET,k 0", "$1|v|")]
    {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
    shared.server_state.role.note(Hindrances { is_stale: true, ..LOADING_BESIDE });
    assert_eq!(thread.run(client, "SAVE 0").0, MASTERDOWN);
    shared.server_state.role.note(Hindrances::default());
    assert_eq!(thread.run(client, "SAVE 0").0, "+OK|");
}

#[test]
fn a_stream_whose_role_is_over_is_not_applied() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let before = stream.apply("SET k 1\nMULTI\nSET k 2\nEXEC");
    shared.server_state.role.epoch.fetch_add(1, Relaxed);
    assert_eq!(stream.push(&encoded("SET k 3\nPING")), Err(ApplyError::Superseded));
    assert_eq!(stream.dropped, before);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    assert_eq!(thread.run(client, "GET k").0, "$1|2|");
}

#[test]
fn a_unit_that_waits_to_own_the_keyspace_compares_the_role_again() {
    for unit in [
        "FLUSHALL",
        "MULTI\nSET k 2\nSWAPDB 0 1\nEXEC",
        "MULTI\nEVAL SET,k,2 0\nEXEC",
        "MULTI\nPUBLISH c m\nEXEC",
        "SORT l BY w_* STORE k",
    ] {
        let (shared, clock) = replica(Settings::default());
        let mut stream = Stream::new(&shared, &clock);
        // The role changes between two units of a batch. In a server, it changes while the thread
        // waits.
        let before = stream.apply("SET k 1\nRPUSH l 1 2");
        let sent = [encoded("REPLICAOF no one"), encoded(unit), encoded("PING")].concat();
        assert_eq!(stream.push(&sent), Err(ApplyError::Superseded), "{unit}");
        assert!(stream.dropped <= before + encoded("REPLICAOF no one").len());
        assert_eq!(stream.reports.failures, [], "{unit}");
        let mut thread = thread(&shared, &clock);
        let client = thread.connect();
        assert_eq!(thread.run(client, "GET k").0, "$1|1|", "{unit}");
    }
}

//! Tests of expired keys on a replica: they stay until the replication stream removes them, and
//! clients do not see them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::Shared;
use engine::clock::ManualClock;
use engine::settings::Settings;

use super::{Stream, replica, thread};
use crate::busy::busy_script;
use crate::driver::{expire_local_keys, expire_round};
use crate::log::Kept;

/// The Unix time that the tests' clock shows at the beginning, in milliseconds.
const START_MS: u64 = 1_000_000_000;

#[test]
fn the_stream_sees_expired_keys_and_clients_do_not() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let at_ms = START_MS + 100;
    stream.apply(&format!(
        "SET n 5 PXAT {at_ms}\nSET k v PXAT {at_ms}\nHSET h f 1 g 2\nHPEXPIREAT h {at_ms} FIELDS 1 f"
    ));
    assert_eq!(thread.run(client, "GET n").0, "$1|5|");
    clock.advance(Duration::from_millis(200));
    let hidden = [("GET n", "$-1|"), ("EXISTS n k", ":0|"), ("TYPE k", "+none|"), ("PTTL k", ":-2|")];
    for (request, reply) in hidden.into_iter().chain([("HGET h f", "$-1|"), ("RANDOMKEY", "$1|h|")]) {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
    // An importing client has no meaning here.
    thread.session(client).info.choices.import_source.store(true, Relaxed);
    assert_eq!(thread.run(client, "GET n").0, "$-1|");
    assert_eq!(expire_round(&shared, &clock), []);
    assert_eq!(thread.run(client, "DBSIZE").0, ":3|", "nothing was removed");
    // The primary had not removed the key when it ran the command.
    stream.apply("INCR n\nPERSIST n\nHINCRBY h f 1\nHPERSIST h FIELDS 1 f");
    assert_eq!(thread.run(client, "GET n").0, "$1|6|");
    assert_eq!(thread.run(client, "HGET h f").0, "$1|2|");
    stream.apply("DEL k");
    assert_eq!(thread.run(client, "DBSIZE").0, ":2|");
    assert_eq!(shared.upkeep.expiry.keys.get() + shared.threads.sum(|stats| &stats.expired_keys), 0);
}

#[test]
fn a_deadline_that_has_passed_here_removes_nothing() {
    let (shared, clock) = replica(Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    // The clock of the primary is behind.
    let past_ms = START_MS - 100;
    stream.apply(&format!(
        "SET a 1 PXAT {past_ms}
         SET b 1\nPEXPIREAT b {past_ms}
         SET c 1\nGETEX c PXAT {past_ms}
         HSET h f 1\nHPEXPIREAT h {past_ms} FIELDS 1 f
         HSETEX i PXAT {past_ms} FIELDS 1 f 1
         MULTI\nSET d 1\nPEXPIREAT d {past_ms}\nEXEC"
    ));
    assert!(stream.reports.failures.is_empty(), "{:?}", stream.reports.failures);
    assert_eq!(thread.run(client, "DBSIZE").0, ":6|");
    assert_eq!(thread.run(client, "MGET a b c d").0, "*4|$-1|$-1|$-1|$-1|");
    stream.apply("PERSIST a\nPERSIST b\nPERSIST c\nPERSIST d\nHPERSIST h FIELDS 1 f\nHPERSIST i FIELDS 1 f");
    assert_eq!(thread.run(client, "MGET a b c d").0, "*4|$1|1|$1|1|$1|1|$1|1|");
    assert_eq!(thread.run(client, "HGET h f").0, "$1|1|");
    assert_eq!(thread.run(client, "HGET i f").0, "$1|1|");
    assert!(kept.commands(&shared).iter().all(|command| !command.starts_with("DEL")));
}

#[test]
fn walks_end_when_all_keys_have_expired() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let requests: String = (0..300).map(|n| format!("SET k{n} v PXAT {}\n", START_MS + 10)).collect();
    stream.apply(&requests);
    clock.advance(Duration::from_millis(20));
    thread.run(client, "RANDOMKEY");
    assert_eq!(thread.run(client, "SCAN 0 COUNT 100000").0, "*2|$1|0|*0|");
    assert_eq!(thread.run(client, "KEYS *").0, "*0|");
    assert_eq!(thread.run(client, "DBSIZE").0, ":300|");
}

#[test]
fn writes_of_clients_remove_expired_keys_of_a_writable_replica() {
    let (shared, clock) = replica(Settings::default());
    shared.server_state.role.refuses_writes.store(false, Relaxed);
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let at_ms = START_MS + 10;
    stream.apply(&format!("SET a 5 PXAT {at_ms}\nSET b 5 PXAT {at_ms}\nSET c 5 PXAT {at_ms}"));
    clock.advance(Duration::from_millis(20));
    assert_eq!(thread.run(client, "INCR a").0, ":1|");
    assert_eq!(thread.run(client, "SET b 1 NX").0, "+OK|");
    assert_eq!(thread.run(client, "DEL c").0, ":0|");
    assert_eq!(thread.run(client, "DBSIZE").0, ":2|");
    assert_eq!(thread.run(client, "PTTL a").0, ":-1|");
}

#[test]
fn a_promoted_server_removes_expired_keys() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    stream.apply(&format!("SET a 5 PXAT {}", START_MS + 10));
    clock.advance(Duration::from_millis(20));
    thread.run(client, "GET a");
    assert_eq!(thread.run(client, "DBSIZE").0, ":1|");
    shared.server_state.role.is_replica.store(false, Relaxed);
    assert_eq!(thread.run(client, "GET a").0, "$-1|");
    assert_eq!(thread.run(client, "DBSIZE").0, ":0|");
}

/// Creates a writable replica with `count` keys whose deadlines clients have set and which are due.
fn writable_replica(count: usize) -> (Shared, ManualClock) {
    let (shared, clock) = replica(Settings::default());
    shared.server_state.role.refuses_writes.store(false, Relaxed);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for number in 0..count {
        thread.run(client, &format!("SET k{number} v PX 10"));
    }
    drop(thread);
    clock.advance(Duration::from_millis(20));
    (shared, clock)
}

#[test]
fn due_keys_wait_for_the_end_of_a_busy_script() {
    let (shared, clock) = writable_replica(600);
    let tracked = || shared.server_state.role.local_deadlines.len();
    let script = busy_script(&shared, &clock);
    shared.gate.shared(1).alone(|pass| {
        pass.mark_busy();
        assert!(!expire_local_keys(&shared, &clock), "no key can be removed at present");
    });
    drop(script);
    assert_eq!(tracked(), 600);
    // The first one was put back with the present time.
    clock.advance(Duration::from_millis(1));
    assert_eq!([(); 3].map(|()| expire_local_keys(&shared, &clock)), [true, true, false]);
    assert_eq!((tracked(), shared.keyspace.reachable_db_size(0).keys), (0, 0));
}

#[test]
fn keys_that_a_busy_script_has_locked_are_looked_at_again_later() {
    let (shared, clock) = writable_replica(1);
    let tracked = || shared.server_state.role.local_deadlines.len();
    let script = busy_script(&shared, &clock);
    let held = shared.keyspace.lock_one(shared.keyspace.hasher().hash_key(b"k0"));
    held.mark_busy();
    let mut pass = shared.gate.shared(1);
    pass.mark_busy();
    assert!(!expire_local_keys(&shared, &clock));
    drop((held, pass, script));
    clock.advance(Duration::from_millis(50));
    assert!(!expire_local_keys(&shared, &clock));
    assert_eq!(tracked(), 1);
    clock.advance(Duration::from_millis(60));
    assert!(!expire_local_keys(&shared, &clock));
    assert_eq!((tracked(), shared.keyspace.reachable_db_size(0).keys), (0, 0));
}

#[test]
fn fields_and_swapped_keys_of_clients_of_a_writable_replica_are_hidden_only() {
    let (shared, clock) = writable_replica(0);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for request in ["HSET h f v g w", "HPEXPIRE h 10 FIELDS 1 f", "SET k v PX 10", "SWAPDB 0 1"] {
        thread.run(client, request);
    }
    clock.advance(Duration::from_millis(20));
    assert!(!expire_local_keys(&shared, &clock));
    assert_eq!(shared.server_state.role.local_deadlines.len(), 0);
    thread.run(client, "SWAPDB 0 1");
    assert_eq!(expire_round(&shared, &clock), []);
    // As in Redis 8.0.2.
    for (request, reply) in [("HGET h f", "$-1|"), ("HLEN h", ":2|"), ("GET k", "$-1|"), ("DBSIZE", ":2|")] {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
    shared.server_state.role.is_replica.store(false, Relaxed);
    expire_round(&shared, &clock);
    for (request, reply) in [("HLEN h", ":1|"), ("DBSIZE", ":1|")] {
        assert_eq!(thread.run(client, request).0, reply, "{request}");
    }
}

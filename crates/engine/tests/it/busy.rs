//! Tests of requests while a script runs for too long. The test plays the script: it registers the
//! script, holds a shard or the gate of the keyspace, and marks these as busy.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::Shared;
use engine::clock::{Clock, ManualClock};
use engine::scripts::{Script, ScriptKind, ScriptName};
use engine::session::Flow;
use engine::settings::Settings;

use crate::driver::{Thread, expire_round, shared};

const BUSY: &str = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.|";
const ABORTED: &str = "-EXECABORT Transaction discarded because of: BUSY Redis is busy running a script. You \
                       can only call SCRIPT KILL or SHUTDOWN NOSAVE.|";

/// The index of the I/O thread that runs the busy script.
const SCRIPT: usize = 1;

/// Creates a script that is busy but has not marked a shard or the gate of the keyspace as busy.
pub fn busy_script<'s>(shared: &'s Shared, clock: &ManualClock) -> Script<'s> {
    let name =
        ScriptName { kind: ScriptKind::Script, name: Box::default(), command: Vec::new(), thread: SCRIPT };
    let script = shared.scripts.begin(name, clock.now());
    clock.advance(Duration::from_secs(6));
    assert!(script.exceeds(shared.settings.get().busy_threshold, clock.now()));
    script
}

#[test]
fn who_needs_a_shard_of_a_busy_script_has_done_nothing_and_others_run() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let [client, blocked] = [0, 1].map(|_| thread.connect());
    thread.run(client, "MSET held 1 free 1");
    // Serving this client, after a push to its second key, needs the shard of its first key.
    thread.run(blocked, "BLPOP held-list list 0");
    for request in ["MULTI", "INCR free", "INCR held"] {
        thread.run(client, request);
    }
    let script = busy_script(&shared, &clock);
    let hashes = [&b"held"[..], b"held-list"].map(|key| shared.keyspace.hasher().hash_key(key));
    let held = shared.keyspace.lock_all_of(hashes.into_iter());
    held.mark_busy();
    assert_eq!(thread.run(client, "EXEC").0, ABORTED);
    for request in
        ["GET held", "MGET free held", "DEL held free", "RPUSH list x", "KEYS *", "SCAN 0", "DBSIZE"]
    {
        assert_eq!(thread.run(client, request).0, BUSY, "{request}");
    }
    assert_eq!(thread.run(client, "GET free").0, "$1|1|");
    assert_eq!(thread.run(client, "LLEN list").0, ":0|");
    drop((held, script));
    assert_eq!(thread.run(client, "GET held").0, "$1|1|");
    assert_eq!(thread.run(client, "RPUSH list x").0, ":1|");
    assert_eq!(thread.deliveries(), [(blocked, "*2|$4|list|$1|x|".to_owned())]);
    let rejected = shared.threads.sum(|stats| &stats.errors);
    assert_eq!(rejected, 8, "each is counted once");
}

#[test]
fn a_scan_and_expiry_pass_no_shard_that_becomes_busy_while_they_want_it() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    thread.run(client, "SET held 1 PX 1");
    thread.run(client, "SET free 1 PX 1");
    clock.advance(Duration::from_millis(2));
    let held = shared.keyspace.lock_one(shared.keyspace.hasher().hash_key(b"held"));
    // Busy, but not in the list of scripts: the engine only finds out when it locks the shard.
    held.mark_busy();
    for request in ["SCAN 0 COUNT 10000", "DBSIZE"] {
        assert_eq!(thread.run(client, request).0, BUSY, "{request}");
    }
    expire_round(&shared, &clock);
    drop(held);
    assert_eq!(thread.run(client, "DBSIZE").0, ":1|", "the held key is left to a later round");
    expire_round(&shared, &clock);
    assert_eq!(thread.run(client, "DBSIZE").0, ":0|");
}

#[test]
fn outside_the_gate_what_is_allowed_runs_and_the_rest_is_refused() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let [client, watching] = [0, 1].map(|_| thread.connect());
    thread.run(client, "SET k 1");
    thread.run(watching, "WATCH k");
    let script = busy_script(&shared, &clock);
    shared.gate.shared(SCRIPT).alone(|pass| {
        pass.mark_busy();
        for (request, reply) in [
            ("GET k", BUSY),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: |"),
            ("MULTI", "+OK|"),
            ("UNWATCH", "+QUEUED|"),
            ("EXEC", ABORTED),
            ("WATCH k", "+OK|"),
            ("MULTI", "+OK|"),
            ("GET k", BUSY),
            ("DISCARD", "+OK|"),
            ("WATCH k", "+OK|"),
        ] {
            assert_eq!(thread.run(client, request).0, reply, "{request}");
        }
        assert_eq!(thread.run(watching, "UNWATCH").0, "+OK|");
    });
    drop(script);
    // The key could not be locked, so it counts as changed. The ended watch was removed.
    for (client, reply) in [(client, "*-1|"), (watching, "*1|:2|"), (client, "*1|:3|")] {
        thread.run(client, "MULTI");
        thread.run(client, "INCR k");
        assert_eq!(thread.run(client, "EXEC").0, reply);
    }
    assert_eq!(shared.watchers.clients().load(Relaxed), 0);
}

#[test]
fn a_watch_that_could_not_be_ended_marks_no_later_transaction() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let [client, writer] = [0, 1].map(|_| thread.connect());
    thread.run(writer, "MSET k 1 other 1");
    thread.run(client, "WATCH k");
    let held = shared.keyspace.lock_one(shared.keyspace.hasher().hash_key(b"k"));
    held.mark_busy();
    assert_eq!(thread.run(client, "UNWATCH").0, "+OK|");
    // While the key cannot be locked, its marks cannot be distinguished from those of another key.
    thread.run(client, "WATCH other");
    thread.run(client, "MULTI");
    assert_eq!(thread.run(client, "GET other").0, "+QUEUED|");
    assert_eq!(thread.run(client, "EXEC").0, ABORTED, "its shards are those of the old watch, too");
    drop(held);
    thread.run(writer, "SET k 2");
    for _ in 0..2 {
        thread.run(client, "WATCH other");
        thread.run(client, "MULTI");
        thread.run(client, "GET other");
        assert_eq!(thread.run(client, "EXEC").0, "*1|$1|1|");
    }
    assert_eq!(shared.watchers.clients().load(Relaxed), 0);
}

#[test]
fn a_wait_that_ends_beside_a_busy_script_leaves_no_client_in_a_queue() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let [client, blocked] = [0, 1].map(|_| thread.connect());
    thread.run(blocked, "BLPOP held free 0");
    assert_eq!(thread.session(blocked).flow, Flow::Blocked);
    let held = shared.keyspace.lock_one(shared.keyspace.hasher().hash_key(b"held"));
    held.mark_busy();
    shared.blocked.unblock(&shared.keyspace, &thread.session(blocked).info);
    assert!(shared.blocked.has_left_behind());
    shared.blocked.remove_left_behind(&shared.keyspace);
    assert!(shared.blocked.has_left_behind(), "it is busy still");
    drop(held);
    shared.blocked.remove_left_behind(&shared.keyspace);
    assert!(!shared.blocked.has_left_behind());
    assert_eq!(shared.blocked.blocking_keys(), 0);
    assert_eq!(thread.run(client, "RPUSH held x").0, ":1|");
    assert_eq!(thread.run(client, "LLEN held").0, ":1|", "nobody takes it");
}

//! Tests of the applier of a replication stream while it has to wait: keys are locked by scripts,
//! clients are paused, or the change log is full.

use std::sync::atomic::Ordering::Relaxed;

use engine::apply::{ApplyError, DiskErrors, Pauses, Progressed};
use engine::settings::Settings;

use super::{Stream, encoded, replica, thread};
use crate::busy::busy_script;
use crate::log::Kept;

#[test]
fn a_unit_waits_for_the_keys_of_a_busy_script_and_runs_once() {
    for unit in
        ["INCR held", "MULTI\nSELECT 0\nINCR free\nINCR held\nEXEC", "MULTI\nINCR held\nSWAPDB 4 5\nEXEC"]
    {
        let (shared, clock) = replica(Settings::default());
        let mut stream = Stream::new(&shared, &clock);
        stream.apply("MSET held 1 free 1");
        let script = busy_script(&shared, &clock);
        let hash = shared.keyspace.hasher().hash_key(b"held");
        let held = shared.keyspace.lock_one(hash);
        held.mark_busy();
        let mut pass = shared.gate.shared(1);
        pass.mark_busy();
        let before = encoded("MSET held 1 free 1\nSET other 1").len();
        let sent = [encoded("SET other 1"), encoded(unit), encoded("INCR free")].concat();
        for bytes in [&sent[..], b"", b""] {
            assert_eq!(stream.push(bytes), Ok(Progressed::Waits), "{unit}");
            assert_eq!(stream.dropped, before, "the unit ahead is reported");
        }
        drop((held, pass, script));
        assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)));
        assert!(stream.is_reported() && stream.reports.failures.is_empty());
        let mut thread = thread(&shared, &clock);
        let client = thread.connect();
        assert_eq!(thread.run(client, "GET held").0, "$1|2|", "{unit}");
    }
}

#[test]
fn the_stream_waits_outside_while_a_busy_script_owns_the_keyspace() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let script = busy_script(&shared, &clock);
    shared.gate.shared(1).alone(|pass| {
        pass.mark_busy();
        assert_eq!(stream.push(&encoded("SET k 1")), Ok(Progressed::Waits));
        assert_eq!(stream.dropped, 0);
    });
    drop(script);
    assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)));
    assert!(stream.is_reported());
}

#[test]
fn a_full_change_log_makes_the_stream_wait() {
    let (shared, clock) = replica(Settings::default());
    // A reader that confirms nothing.
    let kept = Kept::default();
    kept.attach(&shared);
    let mut stream = Stream::new(&shared, &clock);
    shared.log.replica_excess().set(usize::MAX / 2);
    assert_eq!(stream.push(&encoded("SET k 1")), Ok(Progressed::Waits));
    assert_eq!(stream.dropped, 0);
    shared.log.replica_excess().set(0);
    assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)));
    assert!(stream.is_reported());
}

#[test]
fn a_pause_of_clients_holds_the_stream_back() {
    let (shared, clock) = replica(Settings::default());
    shared.server_state.role.refuses_writes.store(false, Relaxed);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    for unit in
        ["SET k 1", "FLUSHALL", "MULTI\nSELECT 0\nSET k 2\nSWAPDB 1 2\nEXEC", "EVAL SET,k,3 0", "PUBLISH a b"]
    {
        let mut stream = Stream::new(&shared, &clock);
        let before = thread.run(client, "GET k").0;
        shared.pause.until_ms.store(i64::MAX, Relaxed);
        let control = stream.apply("PING\nSELECT 0");
        assert_eq!(stream.push(&encoded(unit)), Ok(Progressed::Waits), "{unit}");
        assert_eq!((stream.dropped, stream.go_on()), (control, Ok(Progressed::Waits)), "{unit}");
        shared.pause.until_ms.store(0, Relaxed);
        assert_eq!(thread.run(client, "GET k").0, before, "{unit}");
        assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)), "{unit}");
        assert!(stream.is_reported() && stream.reports.failures.is_empty(), "{unit}");
    }
    assert_eq!(thread.run(client, "GET k").0, "$1|3|");
}

#[test]
fn a_pause_that_begins_within_a_transaction_holds_it_back() {
    let (shared, clock) = replica(Settings::default());
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let mut stream = Stream::new(&shared, &clock);
    assert_eq!(stream.push(&encoded("MULTI\nSET k 1")), Ok(Progressed::NeedsInput(0)));
    shared.pause.until_ms.store(i64::MAX, Relaxed);
    assert_eq!(stream.push(&encoded("EXEC")), Ok(Progressed::Waits));
    assert_eq!((thread.run(client, "GET k").0, stream.dropped), ("$-1|".to_owned(), 0));
    shared.pause.until_ms.store(0, Relaxed);
    assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)));
    assert_eq!(thread.run(client, "GET k").0, "$1|1|");
    assert!(stream.is_reported() && stream.reports.failures.is_empty());
}

#[test]
fn a_pause_for_all_holds_each_request_back_until_the_stream_is_to_end() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    shared.pause.until_ms.store(i64::MAX, Relaxed);
    shared.pause.all.store(true, Relaxed);
    assert_eq!(stream.push(&encoded("PING\nSET k 1")), Ok(Progressed::Waits));
    assert_eq!(stream.dropped, 0);
    stream.applier.set_pauses(Pauses::Ignored);
    assert_eq!(stream.go_on(), Ok(Progressed::NeedsInput(0)));
    assert!(stream.is_reported() && stream.reports.failures.is_empty());
}

#[test]
fn a_stream_ends_before_a_write_if_the_disk_cannot_be_written() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    shared.server_state.log_failed.store(true, Relaxed);
    let control = stream.apply("PING\nPUBLISH a b");
    assert_eq!(stream.push(&encoded("SET k 1")), Err(ApplyError::Unwritable));
    assert_eq!((stream.dropped, stream.reports.unwritable), (control, 0));
    drop(stream);
    let mut stream = Stream::new(&shared, &clock);
    stream.applier.set_disk_errors(DiskErrors::Ignore);
    stream.apply("PING\nSET k 1");
    assert_eq!(stream.reports.unwritable, 1);
}

#[test]
fn the_stream_is_not_refused_for_want_of_memory_or_disk_and_evicts_nothing() {
    let settings = || Settings {
        maxmemory_bytes: 1,
        eviction: keyspace::Policy::named("allkeys-random"),
        ..Settings::default()
    };
    // Also if the limit is set while a batch is applied.
    for ignores in [true, false] {
        let (shared, clock) = replica(settings());
        let state = &shared.server_state;
        state.role.ignores_memory_limit.store(ignores, Relaxed);
        for is_on in [&state.save_failed, &state.log_failed, &state.lacks_replicas] {
            is_on.store(true, Relaxed);
        }
        let mut stream = Stream::new(&shared, &clock);
        stream.applier.set_disk_errors(DiskErrors::Ignore);
        stream.apply(
            "SET a 1\nPUBLISH c m\nSET b 1\nEVAL SET,c,1 0\nEVAL write!SET,d,1 0\nMULTI\nSET e 1\nEXEC",
        );
        shared.settings.set(settings());
        stream.apply("SET f 1\nPUBLISH c m\nSET g 1");
        assert!(stream.reports.failures.is_empty(), "{:?}", stream.reports.failures);
        assert_eq!(shared.threads.sum(|stats| &stats.evicted_keys), 0);
        let mut thread = thread(&shared, &clock);
        let client = thread.connect();
        let size = thread.run(client, "DBSIZE").0;
        if ignores {
            assert_eq!(size, ":7|");
        }
        assert_eq!(shared.threads.sum(|stats| &stats.evicted_keys) == 0, ignores);
    }
}

//! Tests of loads of a primary's snapshot beside the data of the server.

use std::sync::Arc;

use persist::load::ByteSource;
use testkit::replication::happens;

use super::*;
use crate::persistence::aof;
use crate::persistence::primary_snapshot::Incoming;
use crate::persistence::primary_snapshot::tests::{
    AOF, Held, Link, NO_SAVE, Tested, check_restarts, copy, info, primary, replica, run,
};

/// Loads a snapshot. Returns the result, and the steps of the replacement ([`Takeover`]) that were
/// called.
fn load_for<S: ByteSource>(
    shared: &Arc<Shared>,
    mut link: Link,
    source: S,
    old_data: OldData,
) -> (Result<Replaced<S>, NotReplaced>, Vec<String>) {
    let incoming = Incoming { source, len_bytes: Some(77) };
    let replaced = replace_data_when_loaded(shared, incoming, &mut link, old_data);
    (replaced, link.steps)
}

/// Loads a snapshot that is complete, for clients that use the old data.
fn load(tested: &Tested, snapshot: &[u8]) {
    let (replaced, steps) = load_for(tested.shared(), Link::default(), snapshot, OldData::Served);
    assert!(replaced.is_ok());
    assert_eq!(steps, ["end", "emptying", "serving None"]);
}

/// Calls `meanwhile` in the middle of the load of `snapshot`. If `meanwhile` returns false, the
/// source of the snapshot's bytes ends there. Returns the result of the load.
fn load_with(
    tested: &mut Tested,
    snapshot: &[u8],
    old_data: OldData,
    meanwhile: impl FnOnce(&mut Tested) -> bool,
) -> Result<(), NotReplaced> {
    let (source, paused, goes_on) = Held::new(snapshot);
    let shared = Arc::clone(tested.shared());
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, so that the load ends.
        let goes_on = goes_on;
        let load = scope.spawn(move || load_for(&shared, Link::default(), source, old_data).0.map(|_| ()));
        paused.recv().expect("it loads");
        if meanwhile(tested) {
            goes_on.send(()).expect("it waits");
        }
        drop(goes_on);
        load.join().expect("no panic")
    })
}

/// Checks that the server's counts of keys agree with the keys in its tables.
fn check_counts(tested: &Tested) {
    let keyspace = &tested.shared().engine.keyspace;
    for db in 0..keyspace.db_count() {
        assert_eq!(keyspace.sizes().counts(db), keyspace.sizes_recounted(db));
    }
}

#[test]
fn clients_use_the_old_data_until_the_new_is_complete() {
    let (keys, snapshot) = primary();
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    let before = tested.keys();
    let loaded = load_with(&mut tested, &snapshot, OldData::Served, |tested| {
        assert_eq!((tested.run("GET own"), tested.keys() == before), ("\"1\"".to_owned(), true));
        assert_eq!((tested.run("DBSIZE"), tested.run("SET mine 1")), ("(integer) 2".into(), "OK".into()));
        assert!(tested.run("FUNCTION LIST").contains("of_replica"));
        assert_eq!(info(&mut tested.client, "loading"), "0");
        assert_eq!(tested.run("SAVE"), "OK");
        check_counts(tested);
        true
    });
    assert_eq!(loaded, Ok(()));
    assert_eq!(tested.keys(), keys);
    check_counts(&tested);
    let functions = tested.run("FUNCTION LIST");
    assert!(functions.contains("of_primary") && !functions.contains("of_replica"), "{functions}");
    assert_eq!(tested.run("FCALL of_primary 0"), "(integer) 1");
    // The old data is replaced by an empty snapshot, too.
    load(&tested, b"REDIS0011\xff\0\0\0\0\0\0\0\0");
    assert_eq!((tested.keys().len(), tested.run("SAVE")), (0, "OK".to_owned()));
    check_counts(&tested);
}

#[test]
fn clients_get_loading_if_the_old_data_is_withheld() {
    let (keys, snapshot) = primary();
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    let before = tested.keys();
    for is_complete in [false, true] {
        let loaded = load_with(&mut tested, &snapshot, OldData::Withheld, |tested| {
            assert!(tested.run("GET own").contains("LOADING"));
            assert!(tested.run("FLUSHALL").contains("LOADING"));
            assert_eq!(info(&mut tested.client, "loading"), "1");
            assert_eq!(info(&mut tested.client, "loading_total_bytes"), "77");
            let (other, steps) = load_for(tested.shared(), Link::default(), &snapshot[..], OldData::Served);
            assert_eq!(other.err(), Some(NotReplaced::Kept("another load is in progress".to_owned())));
            assert_eq!(steps, [""; 0]);
            is_complete
        });
        assert_eq!(loaded.is_ok(), is_complete);
        assert_eq!(info(&mut tested.client, "loading"), "0");
        assert_eq!(&tested.keys(), if is_complete { &keys } else { &before });
        assert_eq!(tested.run("SAVE"), "OK");
    }
}

#[test]
fn a_failure_costs_nothing() {
    let (keys, snapshot) = primary();
    let (mut tested, _folder) = replica(&AOF);
    let before = tested.keys();
    let mut watching = tested.other_client();
    for command in ["WATCH own", "WATCH key1", "WATCH key2", "CLIENT TRACKING ON", "GET own"] {
        run(&mut watching, command);
    }
    let mut damaged = snapshot.clone();
    // Only the checksum shows the change.
    let at = damaged.len() / 2;
    damaged[at] ^= 1;
    let other_mark = Link { mark: b"mark".to_vec(), ..Link::default() };
    let refused = Link { refusal: Some("another primary".to_owned()), ..Link::default() };
    for (link, snapshot, steps) in [
        (Link::default(), &b"REDIS9999"[..], &[][..]),
        (Link::default(), &snapshot[..snapshot.len() - 100], &[]),
        (Link::default(), &damaged[..], &[]),
        (other_mark, &snapshot[..], &["end"]),
        (refused, &snapshot[..], &["end", "emptying"]),
    ] {
        let (replaced, taken) = load_for(tested.shared(), link, snapshot, OldData::Served);
        assert!(matches!(replaced, Err(NotReplaced::Kept(_))));
        assert_eq!(taken, steps);
        assert_eq!(tested.keys(), before);
        let functions = tested.run("FUNCTION LIST");
        assert!(functions.contains("of_replica") && !functions.contains("of_primary"), "{functions}");
        assert_eq!(info(&mut tested.client, "aof_enabled"), "1");
        check_counts(&tested);
    }
    // No watcher is marked, and no caching client is notified.
    run(&mut watching, "MULTI");
    run(&mut watching, "PING");
    assert_eq!(run(&mut watching, "EXEC"), "1) PONG");
    load(&tested, &snapshot);
    assert_eq!(tested.keys(), keys);
}

#[test]
fn watchers_and_caches_are_told_of_the_exchange() {
    let (_, snapshot) = primary();
    for (key, reply) in
        [("own", "(nil array)"), ("key1", "(nil array)"), ("key2", "(nil array)"), ("nowhere", "1) PONG")]
    {
        let (mut tested, _folder) = replica(&[NO_SAVE]);
        let drawn = tested.shared().engine.log.drawn();
        let mut watching = tested.other_client();
        run(&mut watching, &format!("WATCH {key}"));
        tested.run("HELLO 3");
        tested.run("CLIENT TRACKING ON");
        tested.run("GET own");
        load(&tested, &snapshot);
        run(&mut watching, "MULTI");
        run(&mut watching, "PING");
        assert_eq!(run(&mut watching, "EXEC"), reply, "{key}");
        let message = tested.client.read().expect("a message").to_string();
        assert!(message.contains("invalidate"), "{message}");
        // The exchange is no change of the log.
        assert_eq!(tested.shared().engine.log.drawn(), drawn);
    }
}

#[test]
fn saves_in_progress_end_at_the_exchange_only() {
    let (keys, snapshot) = primary();
    let (mut tested, folder) = replica(&[NO_SAVE]);
    tested.run("CONFIG SET rdb-key-save-delay 100000000");
    for is_complete in [false, true] {
        let loaded = load_with(&mut tested, &snapshot, OldData::Served, |tested| {
            if !is_complete {
                assert!(tested.run("BGSAVE").contains("started"));
            }
            is_complete
        });
        assert_eq!(loaded.is_ok(), is_complete);
        let in_progress = if is_complete { "0" } else { "1" };
        assert_eq!(info(&mut tested.client, "rdb_bgsave_in_progress"), in_progress);
    }
    assert_eq!(tested.keys(), keys);
    assert!(!folder.path().join("dump.rdb").exists());
    assert!(tested.run("BGREWRITEAOF").contains("started"));
    load(&tested, &snapshot);
    assert_eq!(info(&mut tested.client, "aof_rewrite_in_progress"), "0");
}

#[test]
fn the_append_only_file_goes_on_until_the_exchange_and_gets_a_new_base() {
    let (_, snapshot) = primary();
    let (mut tested, folder) = replica(&AOF);
    let crash = tempfile::tempdir().expect("a folder");
    tested.run("CONFIG SET appendfsync always");
    let mut before = tested.keys();
    for is_complete in [false, true] {
        let loaded = load_with(&mut tested, &snapshot, OldData::Served, |tested| {
            assert_eq!(info(&mut tested.client, "aof_enabled"), "1");
            tested.run(&format!("SET meanwhile {is_complete}"));
            before = tested.keys();
            if is_complete {
                copy(folder.path(), crash.path());
            }
            is_complete
        });
        assert_eq!(loaded.is_ok(), is_complete);
        if !is_complete {
            assert_eq!(tested.keys(), before);
        }
    }
    check_restarts(tested, folder.path(), (crash.path(), &before));
}

#[test]
fn the_data_is_complete_again_after_a_load_that_had_emptied_it() {
    let (keys, snapshot) = primary();
    let (mut tested, _folder) = replica(&AOF);
    let (replaced, _) = tested.replace(&snapshot[..snapshot.len() / 2]);
    assert!(replaced.is_err());
    assert!(tested.run("SAVE").contains("ERR"));
    let (replaced, _) = load_for(tested.shared(), Link::default(), &snapshot[..], OldData::Withheld);
    assert!(replaced.is_ok());
    assert_eq!(tested.keys(), keys);
    aof::wait_for_rewrite(tested.shared());
    assert_eq!((info(&mut tested.client, "aof_enabled"), tested.run("SAVE")), ("1".into(), "OK".into()));
}

#[test]
fn a_promotion_serves_the_clients_that_wait_for_keys_of_the_new_data() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut primary = Tested::in_folder(folder.path(), &[NO_SAVE]);
    for command in ["RPUSH list a", "SELECT 3", "XADD stream 1-1 f v", "SAVE"] {
        primary.run(command);
    }
    let snapshot = std::fs::read(folder.path().join("dump.rdb")).expect("saved");
    let beside = |tested: &Tested| load(tested, &snapshot);
    let in_place = |tested: &Tested| assert!(tested.replace(&snapshot[..]).0.is_ok());
    for load in [&beside as &dyn Fn(&Tested), &in_place] {
        let (mut tested, _folder) = replica(&[NO_SAVE, ("replica-read-only", "no")]);
        // Nobody listens there, so no stream begins.
        tested.run("REPLICAOF 127.0.0.1 1");
        let mut waiting = [tested.other_client(), tested.other_client(), tested.other_client()];
        run(&mut waiting[1], "SELECT 3");
        for (client, request) in
            waiting.iter_mut().zip(["BLPOP list 0", "XREAD BLOCK 0 STREAMS stream 0", "BLPOP other 0"])
        {
            let mut bytes = Vec::new();
            resp::encode_request(&request.split(' ').collect::<Vec<_>>(), &mut bytes);
            client.send(&bytes).expect("sent");
        }
        let are_blocked = |tested: &Tested, count: usize| {
            tested.shared().engine.blocked.blocked_clients().load(Relaxed) == count
        };
        assert!(happens(|| are_blocked(&tested, 3)));
        load(&tested);
        assert!(are_blocked(&tested, 3));
        assert_eq!(tested.run("REPLICAOF NO ONE"), "OK");
        for (client, part) in waiting.iter_mut().zip(["list", "stream"]) {
            let reply = client.read().expect("a reply").to_string();
            assert!(reply.contains(part), "{reply}");
        }
        assert!(happens(|| are_blocked(&tested, 1)));
    }
}

//! Tests of the messages that clients of a replica receive because of changes in the replication
//! stream.

use std::sync::atomic::Ordering::Relaxed;

use engine::client::Mode;
use engine::publish::notify::Notifications;
use engine::publish::pubsub::Kind;
use engine::session::Flow;
use engine::settings::Settings;
use engine::track::TrackingOptions;

use super::{Stream, encoded, published, replica, thread};

#[test]
fn blocked_clients_are_served() {
    let (shared, clock) = replica(Settings::default());
    shared.server_state.role.refuses_writes.store(false, Relaxed);
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let [popper, reader] = [0, 1].map(|_| thread.connect());
    thread.run(popper, "BLPOP l 0");
    thread.run(reader, "XREAD BLOCK 0 STREAMS s $");
    assert_eq!(thread.session(reader).flow, Flow::Blocked);
    stream.apply("RPUSH l a b\nMULTI\nXADD s 1-1 f v\nEXEC");
    assert_eq!(stream.applier.outbox().take().into_vec(), [0]);
    let mut deliveries = thread.deliveries();
    deliveries.sort();
    let entry = "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|";
    assert_eq!(deliveries, [(popper, "*2|$1|l|$1|a|".to_owned()), (reader, entry.to_owned())]);
    assert_eq!(thread.run(popper, "LRANGE l 0 -1").0, "*1|$1|b|");
}

#[test]
fn clients_blocked_on_keys_of_a_snapshot_are_served() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let [reader, other] = [0, 1].map(|_| thread.connect());
    thread.run(reader, "XREAD BLOCK 0 STREAMS s 0");
    thread.run(other, "XREAD BLOCK 0 STREAMS nowhere 0");
    // The keyspace gets a stream without a command, as from a snapshot.
    let loaded = shared.keyspace.beside();
    let (loading, loading_clock) = replica(Settings::default());
    Stream::new(&loading, &loading_clock).apply("XADD s 1-1 f v");
    let key = loading.keyspace.hasher().key(b"s");
    let entry = loading
        .keyspace
        .lock(key.shard())
        .db(0)
        .and_then(|db| db.table().iter().next().map(|entry| entry.duplicate(b"s", 0)));
    let shard = shared.keyspace.hasher().key(b"s").shard();
    assert!(loaded.insert_absent(&mut loaded.lock(shard), 0, entry.expect("it was added")));
    shared.gate.exclusive(|alone| shared.keyspace.exchange(&loaded, alone));
    assert_eq!(stream.applier.serve_blocked(), Ok(true));
    assert_eq!(stream.applier.outbox().take().into_vec(), [0]);
    let reply = "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|";
    assert_eq!(thread.deliveries(), [(reader, reply.to_owned())]);
    assert_eq!(thread.session(other).flow, Flow::Blocked);
    stream.apply("XADD nowhere 1-1 f v");
    assert_eq!(thread.deliveries().len(), 1);
}

#[test]
fn transactions_fail_for_watched_keys() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let cases = [
        ("SET o 1", "*1|$-1|"),
        ("SET k 1", "*-1|"),
        ("MULTI\nSET k 2\nSET o 2\nEXEC", "*-1|"),
        ("FLUSHALL", "*-1|"),
    ];
    for (change, reply) in cases {
        thread.run(client, "WATCH k");
        stream.apply(change);
        thread.run(client, "MULTI");
        thread.run(client, "GET k");
        assert_eq!(thread.run(client, "EXEC").0, reply, "{change}");
    }
}

#[test]
fn caches_are_invalidated() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let session = thread.session(client);
    session.info.resp.store(3, Relaxed);
    let wish = TrackingOptions { mode: Mode::empty(), redirect: 0, prefixes: Vec::new() };
    shared.tracking.enable(&shared.keyspace, &mut session.tracking, &session.info, &wish);
    thread.run(client, "GET k");
    stream.apply("SET other 1");
    assert_eq!(published(&shared), "");
    stream.apply("SET k 1");
    assert_eq!(published(&shared), ">2|$10|invalidate|*1|$1|k|");
    thread.run(client, "GET k");
    stream.apply("FLUSHALL");
    assert_eq!(published(&shared), ">2|$10|invalidate|_|");
    // The stream itself must not count as a reader.
    assert_eq!(shared.tracking.keys(), 0);
}

#[test]
fn subscribers_get_messages_and_events_in_the_order_of_the_stream() {
    let notifications = Notifications::parse(b"AE");
    let (shared, clock) = replica(Settings { notifications, ..Settings::default() });
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    thread.session(client).subscribe(&shared.pubsub, Kind::Pattern, b"*");
    stream.apply("PUBLISH c one\nSET k 1\nMULTI\nDEL k\nPUBLISH c two\nEXEC\nPUBLISH c three");
    let text = published(&shared);
    let order: Vec<usize> =
        ["one", "__:set", "__:del", "two", "three"].map(|word| text.find(word).expect(word)).into();
    assert!(order.is_sorted(), "{text}");
}

#[test]
fn slow_subscribers_make_the_stream_wait_after_the_message() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    thread.session(client).subscribe(&shared.pubsub, Kind::Channel, b"c");
    let message = encoded(&format!("PUBLISH c {}", "x".repeat(8 << 20)));
    let mut pushed = 0;
    while !shared.pubsub.are_subscribers_full() {
        let _ = stream.push(&message).expect("it is valid");
        pushed += 1;
        assert!(stream.is_reported() && pushed < 1000);
    }
    let before = stream.dropped;
    assert_eq!(stream.push(&encoded("SET k 1")), Ok(engine::apply::Progressed::Waits));
    assert_eq!(stream.dropped, before);
    published(&shared);
    stream.apply("");
    assert!(stream.is_reported());
}

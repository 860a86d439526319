//! Tests of the engine without sockets, threads and clocks.

mod apply;
mod busy;
mod client_eviction;
mod compact;
mod driver;
mod log;
mod log_targets;
mod memory_limit;
mod scripts;
mod searches;
mod undeclared;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use driver::{Thread, expire_round, shared};
use engine::session::Flow;
use engine::settings::Settings;

/// The allocator that counts used memory, which eviction needs.
#[global_allocator]
static ALLOCATOR: structures::alloc::CountingAllocator = structures::alloc::CountingAllocator;

#[test]
fn a_write_serves_a_blocked_client_of_another_thread_and_names_the_thread_to_wake() {
    let (shared, clock) = shared(2, Settings::default());
    let [mut one, mut two] = [0, 1].map(|index| Thread::new(&shared, &clock, index));
    let (reader, writer) = (one.connect(), two.connect());
    assert_eq!(one.run(reader, "BLPOP jobs 0"), (String::new(), vec![]));
    assert_eq!(one.session(reader).flow, Flow::Blocked);
    assert_eq!(two.run(writer, "RPUSH jobs a b"), (":2|".to_owned(), vec![0]));
    assert_eq!(one.deliveries(), [(reader, "*2|$4|jobs|$1|a|".to_owned())]);
    assert_eq!(two.run(writer, "LRANGE jobs 0 -1").0, "*1|$1|b|");
}

#[test]
fn a_transaction_is_one_unit_for_those_that_wait_for_it() {
    let (shared, clock) = shared(2, Settings::default());
    let [mut one, mut two] = [0, 1].map(|index| Thread::new(&shared, &clock, index));
    let (reader, writer) = (one.connect(), two.connect());
    one.run(reader, "BLPOP jobs 0");
    for request in ["MULTI", "RPUSH jobs a", "LPOP jobs", "RPUSH jobs b"] {
        assert_eq!(two.run(writer, request).1, Vec::<usize>::new());
    }
    assert_eq!(two.run(writer, "EXEC"), ("*3|:1|$1|a|:1|".to_owned(), vec![0]));
    assert_eq!(one.deliveries(), [(reader, "*2|$4|jobs|$1|b|".to_owned())]);
}

#[test]
fn a_watched_key_that_changes_on_another_thread_ends_the_transaction() {
    let (shared, clock) = shared(2, Settings::default());
    let [mut one, mut two] = [0, 1].map(|index| Thread::new(&shared, &clock, index));
    let (watcher, writer) = (one.connect(), two.connect());
    for (write, reply) in [("GET k", "*1|$-1|"), ("SET k v", "*-1|")] {
        one.run(watcher, "WATCH k");
        two.run(writer, write);
        one.run(watcher, "MULTI");
        one.run(watcher, "GET k");
        assert_eq!(one.run(watcher, "EXEC").0, reply, "{write}");
    }
    assert_eq!(shared.watchers.clients().load(Relaxed), 0);
}

#[test]
fn active_expiry_serves_who_waits_for_the_end_of_a_stream() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let [reader, writer] = [0, 1].map(|_| thread.connect());
    thread.run(writer, "XGROUP CREATE s g $ MKSTREAM");
    thread.run(writer, "PEXPIRE s 100");
    thread.run(reader, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert_eq!(thread.session(reader).flow, Flow::Blocked);
    clock.advance(Duration::from_millis(100));
    assert_eq!(expire_round(&shared, &clock), []);
    clock.advance(Duration::from_millis(1));
    assert_eq!(expire_round(&shared, &clock), [0]);
    let [(conn, reply)] = &thread.deliveries()[..] else { panic!("one client is blocked") };
    assert!(*conn == reader && reply.starts_with("-NOGROUP"), "{reply}");
    assert_eq!(shared.upkeep.expiry.keys.get(), 1);
}

#[test]
fn an_evicted_key_ends_the_transaction_that_watches_it() {
    let settings = Settings {
        maxmemory_bytes: 1,
        eviction: keyspace::Policy::named("allkeys-random"),
        ..Settings::default()
    };
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    thread.run(client, "SET k v");
    thread.run(client, "WATCH k");
    shared.settings.set(settings);
    thread.run(client, "GET other");
    shared.settings.set(Settings::default());
    thread.run(client, "MULTI");
    thread.run(client, "GET k");
    assert_eq!(thread.run(client, "EXEC").0, "*-1|");
    assert_eq!(shared.threads.sum(|stats| &stats.evicted_keys), 1);
}

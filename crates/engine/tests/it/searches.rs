//! Tests of long searches, which run in slices. Each reading of the clock takes some time, so the
//! slices are the same in each run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::clock::{Clock, ManualClock};
use engine::session::Flow;
use engine::settings::Settings;
use engine::shared::Shared;

use crate::driver::{Thread, shared};

/// The time that a reading of the clock takes. The clock is read after each step of a search.
const READING: Duration = Duration::from_micros(20);
/// The time that a slice takes at most, with the readings at its ends and that of its turn.
const SLICE_MAX: Duration = Duration::from_micros(620);
/// The number of elements of the set. A search takes some dozens of steps.
const ELEMENTS: usize = 400;
/// A search that compares all elements, and evaluates an expression for each.
const SEARCH: &str = "VSIM v VALUES 2 1 1 TRUTH COUNT 400 FILTER .a==1";

/// Adds the set `v`. From then on, readings of the clock take time.
fn fill(thread: &mut Thread<'_>, clock: &ManualClock) {
    clock.advance_by_readings(Duration::ZERO);
    let writer = thread.connect();
    for number in 0..ELEMENTS {
        let added =
            thread.run(writer, &format!("VADD v VALUES 2 {number} 1 e{number} EF 4 SETATTR {{\"a\":1}}"));
        assert_eq!(added.0, ":1|");
    }
    clock.advance_by_readings(READING);
}

/// Returns the time that has passed since `since`.
fn passed(clock: &ManualClock, since: Instant) -> Duration {
    clock.now() - since
}

/// Runs slices until no search is left. Returns the replies in the order of their clients.
fn run_all(thread: &mut Thread<'_>, clock: &ManualClock) -> Vec<(usize, String)> {
    let mut replies = Vec::new();
    while !thread.has_no_searches() {
        let since = clock.now();
        replies.extend(thread.run_slice());
        assert!(passed(clock, since) <= SLICE_MAX);
    }
    replies.sort_unstable();
    replies
}

/// Returns the number of blocked clients.
fn blocked_clients(shared: &Shared) -> usize {
    shared.blocked.blocked_clients().load(Relaxed)
}

#[test]
fn all_searches_of_a_turn_share_one_slice() {
    let (shared, clock) = shared(2, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let clients: Vec<usize> = (0..50).map(|_| thread.connect()).collect();
    let requests: Vec<(usize, &str)> = clients.iter().map(|client| (*client, SEARCH)).collect();
    let since = clock.now();
    let (replies, _) = thread.run_together(&requests);
    assert!(passed(&clock, since) <= SLICE_MAX + READING * 2);
    assert!(replies.iter().all(String::is_empty) && blocked_clients(&shared) == clients.len());
    // A short search of the next turn does not wait.
    let other = thread.connect();
    assert!(thread.run(other, "VSIM v ELE e3 COUNT 1").0.starts_with("*1|"));
    let mut at_once = Thread::new(&shared, &clock, 1);
    let client = at_once.connect();
    let expected = at_once.run(client, SEARCH).0;
    assert!(expected.starts_with("*400|"));
    let expected: Vec<_> = clients.iter().map(|client| (*client, expected.clone())).collect();
    assert_eq!(run_all(&mut thread, &clock), expected);
    assert_eq!(blocked_clients(&shared), 0);
}

#[test]
fn a_search_answers_from_the_version_with_which_it_began() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    let [client, writer] = [0, 1].map(|_| thread.connect());
    for change in
        ["DEL v", "UNLINK v", "SET v other", "RENAME v w", "VREM v e7", "PEXPIRE v 0", "VSETATTR v e7 {}"]
    {
        thread.run(writer, "DEL v w");
        fill(&mut thread, &clock);
        assert_eq!(thread.run(client, SEARCH).0, "");
        assert_eq!(thread.session(client).flow, Flow::Blocked);
        assert!(!thread.run(writer, change).0.starts_with('-'), "{change}");
        let [(_, reply)] = &run_all(&mut thread, &clock)[..] else { panic!("one search") };
        assert!(reply.starts_with("*400|") && reply.contains("|e7|"), "{change}: {reply}");
    }
}

/// Lets `count` clients search. All of them are then blocked.
fn search_by_many(thread: &mut Thread<'_>, count: usize) -> Vec<usize> {
    let clients: Vec<usize> = (0..count).map(|_| thread.connect()).collect();
    for client in &clients {
        assert_eq!(thread.run(*client, SEARCH).0, "");
    }
    clients
}

#[test]
fn a_search_that_has_waited_looks_its_key_up_when_it_begins() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    let writer = thread.connect();
    let cases: [(&[&str], &str); 6] = [
        (&["DEL v"], "*0|"),
        (&["PEXPIRE v 1"], "*0|"),
        (&["SET v other"], "-WRONGTYPE"),
        (&["VREM v e7"], "*399|"),
        (&["DEL v", "VADD v VALUES 3 1 1 1 other"], "-ERR Vector dimension mismatch"),
        (&["RENAME v w", "VADD v VALUES 2 1 1 other SETATTR {\"a\":1}"], "*1|$5|other|"),
    ];
    for (changes, expected) in cases {
        thread.run(writer, "DEL v w");
        fill(&mut thread, &clock);
        let looked_up =
            || shared.threads.sum(|stats| &stats.hits) + shared.threads.sum(|stats| &stats.misses);
        let before = looked_up();
        let clients = search_by_many(&mut thread, 40);
        assert_eq!(looked_up() - before, clients.len() as u64);
        for change in changes {
            assert!(!thread.run(writer, change).0.starts_with('-'), "{change}");
        }
        clock.advance(Duration::from_millis(2));
        let before = looked_up();
        let replies = run_all(&mut thread, &clock);
        assert_eq!(looked_up(), before);
        let (active, waited) = replies.split_at(16);
        assert_eq!((active.len(), waited.len()), (16, clients.len() - 16));
        assert!(active.iter().all(|(_, reply)| reply.starts_with("*400|")), "{changes:?}");
        assert!(waited.iter().all(|(_, reply)| reply.starts_with(expected)), "{changes:?} {:?}", waited[0]);
        assert_eq!(blocked_clients(&shared), 0);
    }
}

#[test]
fn a_search_that_must_wait_loses_little_time() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let clients = search_by_many(&mut thread, 16);
    let since = clock.now();
    // Its work would be lost, because no further search can become active.
    search_by_many(&mut thread, 1);
    assert!(passed(&clock, since) <= SLICE_MAX / 3, "{:?}", passed(&clock, since));
    assert_eq!(run_all(&mut thread, &clock).len(), clients.len() + 1);
}

#[test]
fn searches_that_wait_keep_no_versions() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let writer = thread.connect();
    let mut search_and_change = |count| {
        let before_bytes = structures::alloc::thread_memory_bytes();
        for _ in 0..count {
            search_by_many(&mut thread, 1);
            assert_eq!(thread.run(writer, "VREM v e7").0, ":1|");
            assert_eq!(thread.run(writer, "VADD v VALUES 2 7 1 e7 EF 4").0, ":1|");
        }
        structures::alloc::thread_memory_bytes() - before_bytes
    };
    let active_bytes = search_and_change(16);
    let waiting_bytes = search_and_change(16 * 20);
    assert!(waiting_bytes < active_bytes * 2, "{active_bytes} {waiting_bytes}");
}

#[test]
fn a_search_ends_with_its_client() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    // More than take turns at once.
    let clients = search_by_many(&mut thread, 40);
    for client in &clients[1..] {
        shared.blocked.end_of(&thread.session(*client).info);
    }
    assert_eq!(blocked_clients(&shared), 1);
    let replies = run_all(&mut thread, &clock);
    assert!(replies.len() == 1 && replies[0].0 == clients[0]);
    assert_eq!(blocked_clients(&shared), 0);
}

#[test]
fn a_cancelled_search_gives_up_its_version_at_once_and_lets_the_next_one_begin() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let clients = search_by_many(&mut thread, 40);
    // From the last one, which has not begun, to the second one, which has.
    for client in clients[1..].iter().rev() {
        let waiter = shared.blocked.of(&thread.session(*client).info).expect("it is blocked");
        assert!(shared.blocked.end(&waiter));
        assert_eq!(Arc::strong_count(&waiter), 3, "this test, the table of waits and the search");
        thread.cancel_search(waiter.ticket);
        assert_eq!(Arc::strong_count(&waiter), 2);
        // There is no such search now.
        thread.cancel_search(waiter.ticket);
    }
    let replies = run_all(&mut thread, &clock);
    assert!(replies.len() == 1 && replies[0].0 == clients[0]);
}

#[test]
fn searches_of_transactions_and_with_nothread_run_to_their_end() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let client = thread.connect();
    assert!(thread.run(client, &format!("{SEARCH} NOTHREAD")).0.starts_with("*400|"));
    thread.run(client, "MULTI");
    thread.run(client, SEARCH);
    assert!(thread.run(client, "EXEC").0.starts_with("*1|*400|"));
    assert!(thread.has_no_searches());
}

#[test]
fn the_memory_of_an_evicted_set_counts_as_free_while_a_search_reads_it() {
    /// The bytes of the set: far more than those of the other tests of this process.
    const SET_LEN_BYTES: usize = 64 << 20;
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let [client, other] = [0, 1].map(|_| thread.connect());
    let text = "x".repeat(SET_LEN_BYTES / 64);
    for number in 0..64 {
        thread.run(other, &format!("VSETATTR v e{number} {{\"a\":1,\"t\":\"{text}\"}}"));
    }
    // The set is the first key to evict.
    thread.run(other, "EXPIRE v 100");
    for number in 0..100 {
        thread.run(other, &format!("SET k{number} v EX 1000"));
    }
    assert_eq!(thread.run(client, SEARCH).0, "");
    let used_bytes = structures::alloc::used_memory_bytes();
    shared.settings.set(Settings {
        maxmemory_bytes: (used_bytes - SET_LEN_BYTES / 2) as u64,
        eviction: keyspace::Policy::named("volatile-ttl"),
        maxmemory_samples: 64,
        ..Settings::default()
    });
    let free_all = || while shared.freeing.free_some(100) {};
    for _ in 0..20 {
        assert_eq!(thread.run(other, "SET k0 v EX 1000").0, "+OK|");
        free_all();
    }
    assert_eq!(shared.threads.sum(|stats| &stats.evicted_keys), 1);
    assert_eq!(thread.run(other, "EXISTS v k99").0, ":1|");
    assert!(keyspace::vector::pinned_len_bytes() > SET_LEN_BYTES as u64);
    assert!(run_all(&mut thread, &clock)[0].1.starts_with("*400|"));
    free_all();
    assert!(keyspace::vector::pinned_len_bytes() < SET_LEN_BYTES as u64 / 2);
    assert!(structures::alloc::used_memory_bytes() < used_bytes - SET_LEN_BYTES / 2);
}

#[test]
fn a_long_reply_is_written_in_slices() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0).with_slices();
    fill(&mut thread, &clock);
    let client = thread.connect();
    for number in 0..ELEMENTS {
        thread.run(client, &format!("VSETATTR v e{number} {}", "x".repeat(8 << 10)));
    }
    // The comparisons take one step.
    let search = "VSIM v VALUES 2 1 1 TRUTH COUNT 400 WITHSCORES WITHATTRIBS";
    let expected = thread.run(client, &format!("{search} NOTHREAD")).0;
    assert_eq!(thread.run(client, search).0, "");
    assert_eq!(thread.run_slice(), []);
    assert_eq!(run_all(&mut thread, &clock), [(client, expected)]);
}

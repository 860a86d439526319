//! The memory and the lifetime of tracking data. A client that has ended is removed from the
//! readers of its tracked keys, and the number of tracked keys obeys its limit. Keys that
//! `maxmemory` evicts at the end of a turn are invalidated in that turn.

use resp::Protocol;
use server::Server;
use testkit::{Client, Value};

use crate::support::{as_process_on_each_back_end, connect, info, on_each_back_end, speaking};

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

/// Returns a RESP3 connection that tracks keys, with these options of CLIENT TRACKING.
fn tracking(server: &Server, options: &[&str]) -> Client {
    let mut client = speaking(server, Protocol::Resp3);
    let words: Vec<&str> = ["CLIENT", "TRACKING", "ON"].iter().chain(options).copied().collect();
    assert_eq!(client.command(&words), simple("OK"));
    client
}

/// Returns the number of the I/O thread that serves a client.
fn thread_of(client: &mut Client) -> String {
    let text = client.command(&["CLIENT", "INFO"]).to_string();
    let word = text.split(' ').find_map(|word| word.strip_prefix("io-thread="));
    word.expect("it names the thread").trim().to_owned()
}

/// Returns the number of keys in an invalidation message.
fn keys_in(message: &Value) -> u64 {
    match message {
        Value::Push(parts) => match &parts[..] {
            [_, Value::Array(keys)] => keys.len() as u64,
            other => panic!("keys, not {other:?}"),
        },
        other => panic!("a message, not {other}"),
    }
}

#[test]
fn readers_leave_the_table_when_they_go_or_stop_tracking() {
    on_each_back_end(|server| {
        let mut observer = connect(server);
        let mut staying = tracking(server, &[]);
        staying.command(&["GET", "hot"]);
        let many: Vec<String> = (0..5000).map(|n| format!("k{n}")).collect();
        let all: Vec<&str> = std::iter::once("MGET").chain(many.iter().map(String::as_str)).collect();
        let mut readers: Vec<Client> = (0..60).map(|_| tracking(server, &[])).collect();
        for (n, reader) in readers.iter_mut().enumerate() {
            reader.command(&["MGET", "hot", &format!("own{n}")]);
        }
        readers[0].command(&all);
        readers[1].command(&all);
        assert_eq!(info(&mut observer, "tracking_total_items"), 1 + 2 * 60 + 2 * 5000);
        assert_eq!(readers[1].command(&["CLIENT", "TRACKING", "OFF"]), simple("OK"));
        assert_eq!(readers[2].command(&["CLIENT", "TRACKING", "OFF"]), simple("OK"));
        assert_eq!(readers[3].command(&["RESET"]), simple("RESET"));
        let (mut stopped, gone) = (readers.drain(1..4).collect::<Vec<_>>(), readers);
        drop(gone);
        // Other threads close connections and remove long lists in their turns.
        while info(&mut observer, "tracking_total_items") > 1 {}
        assert_eq!(info(&mut observer, "tracking_total_keys"), 1);
        assert_eq!(info(&mut observer, "tracking_clients"), 1);
        observer.command(&["SET", "hot", "x"]);
        assert_eq!(keys_in(&staying.read().unwrap()), 1);
        stopped.iter_mut().for_each(|client| assert_eq!(client.command(&["PING"]), simple("PONG")));
        assert_eq!(info(&mut observer, "tracking_total_items"), 0);
    });
}

#[test]
fn a_reader_that_starts_anew_hears_once_of_what_it_read_since() {
    on_each_back_end(|server| {
        let mut writer = connect(server);
        let mut reader = tracking(server, &[]);
        let many: Vec<String> = (0..3000).map(|n| format!("k{n}")).collect();
        let all: Vec<&str> = std::iter::once("MGET").chain(many.iter().map(String::as_str)).collect();
        for _ in 0..5 {
            reader.command(&all);
            assert_eq!(reader.command(&["CLIENT", "TRACKING", "OFF"]), simple("OK"));
            assert_eq!(reader.command(&["CLIENT", "TRACKING", "ON"]), simple("OK"));
            reader.command(&["MGET", "k10", "k2990"]);
            for key in ["k10", "k2990", "k2989"] {
                writer.command(&["SET", key, "x"]);
            }
            assert_eq!((keys_in(&reader.read().unwrap()), keys_in(&reader.read().unwrap())), (1, 1));
            assert_eq!(reader.command(&["PING"]), simple("PONG"));
        }
    });
}

#[test]
fn one_request_does_not_exceed_the_limit_of_the_table() {
    on_each_back_end(|server| {
        let mut writer = connect(server);
        writer.command(&["CONFIG", "SET", "tracking-table-max-keys", "100"]);
        let mut reader = tracking(server, &[]);
        let keys: Vec<String> = (0..20_000).map(|n| format!("k{n}")).collect();
        let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        reader.command(&words);
        assert_eq!(info(&mut writer, "tracking_total_keys"), 100);
        let told: u64 = reader.read_many(19_900).unwrap().iter().map(keys_in).sum();
        assert_eq!(told, 19_900);
        assert_eq!(reader.command(&["PING"]), simple("PONG"));
    });
}

#[test]
fn what_is_evicted_at_the_end_of_a_turn_is_told_in_that_turn() {
    as_process_on_each_back_end(|server| {
        let mut tracker = server.connect();
        tracker.hello(Protocol::Resp3);
        assert_eq!(tracker.command(&["CLIENT", "TRACKING", "ON", "BCAST"]), simple("OK"));
        let thread = thread_of(&mut tracker);
        let mut others: Vec<Client> = (0..8).map(|_| server.connect()).collect();
        let mut find = |is_same: bool| {
            let at = others.iter_mut().position(|client| (thread_of(client) == thread) == is_same);
            others.swap_remove(at.expect("clients are spread over the threads"))
        };
        let (mut observer, mut writer) = (find(true), find(false));
        let value = "x".repeat(1000);
        for n in 0..3000 {
            writer.command(&["SET", &format!("k{n}"), &value]);
            assert_eq!(keys_in(&tracker.read().unwrap()), 1);
        }
        let limit = info(&mut observer, "used_memory") + (1 << 20);
        writer.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
        writer.command(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
        // It allocates much more than its arguments, which is noticed only at the end of the
        // turn.
        assert_eq!(writer.command(&["SETRANGE", "k1", "2500000", "x"]), Value::Integer(2_500_001));
        let (mut evicted, mut told) = (0, 0);
        // The evicting thread is idle from now on.
        while evicted == 0 || info(&mut observer, "evicted_keys") > evicted {
            evicted = info(&mut observer, "evicted_keys");
            while told < evicted {
                told += keys_in(&tracker.read().unwrap());
            }
        }
    });
}

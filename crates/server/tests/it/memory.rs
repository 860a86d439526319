//! Memory at its limit: eviction by each policy, rejected writes, and the accounting of used
//! memory.

use std::time::{Duration, Instant};

use testkit::{Client, Value};

use crate::support::{as_process_on_each_back_end, happens, info};

const OK: &[u8] = b"OK";

fn ok() -> Value {
    Value::Simple(OK.to_vec())
}

fn set_option(client: &mut Client, name: &str, value: &str) {
    assert_eq!(client.command(&["CONFIG", "SET", name, value]), ok(), "{name} {value}");
}

/// Sets `maxmemory` to `room` bytes more than the used memory; returns the limit.
fn limit_to(client: &mut Client, room: u64) -> u64 {
    let limit = info(client, "used_memory") + room;
    set_option(client, "maxmemory", &limit.to_string());
    limit
}

#[test]
fn without_eviction_writes_are_refused_and_reads_are_not() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        limit_to(&mut client, 1 << 20);
        let value = "x".repeat(1000);
        let refused = (0..3000).find_map(|n| match client.command(&["SET", &format!("k{n}"), &value]) {
            Value::Error(line) => Some(String::from_utf8_lossy(&line).into_owned()),
            _ => None,
        });
        let line = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(refused.as_deref(), Some(line));
        assert_eq!(client.command(&["GET", "k0"]), Value::Bulk(value.clone().into_bytes()));
        // The threads together may exceed the limit by 1 %. This frees more memory than that.
        for n in 0..100 {
            assert_eq!(client.command(&["DEL", &format!("k{n}")]), Value::Integer(1));
        }
        assert_eq!(client.command(&["SET", "k0", "short"]), ok());
        assert_eq!(info(&mut client, "evicted_keys"), 0);
    });
}

#[test]
fn each_policy_keeps_memory_at_its_limit() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        // Memory of a save does not count against the limit, and this number of writes would
        // start a save.
        set_option(&mut client, "save", "");
        for policy in [
            "allkeys-lru",
            "allkeys-lfu",
            "allkeys-random",
            "volatile-lru",
            "volatile-lfu",
            "volatile-random",
            "volatile-ttl",
        ] {
            assert_eq!(client.command(&["FLUSHALL"]), ok());
            assert!(happens(|| info(&mut client, "lazyfree_pending_objects") == 0));
            set_option(&mut client, "maxmemory", "0");
            set_option(&mut client, "maxmemory-policy", policy);
            for n in 0..100 {
                assert_eq!(client.command(&["SET", &format!("stays{n}"), "x"]), ok());
            }
            let before = info(&mut client, "evicted_keys");
            let limit = limit_to(&mut client, 1 << 20);
            let value = "x".repeat(500);
            for n in 0..5000 {
                let key = format!("{policy}{n}");
                assert_eq!(client.command(&["SET", &key, &value, "EX", "1000"]), ok());
                if n % 500 == 0 {
                    let used = info(&mut client, "used_memory");
                    assert!(used <= limit + 16 * 1024, "{policy}: {used} of {limit}");
                }
            }
            assert!(info(&mut client, "evicted_keys") > before + 2000, "{policy}");
            if policy.starts_with("volatile") {
                let keys: Vec<String> = (0..100).map(|n| format!("stays{n}")).collect();
                let request: Vec<&str> =
                    std::iter::once("EXISTS").chain(keys.iter().map(String::as_str)).collect();
                assert_eq!(client.command(&request), Value::Integer(100), "{policy}");
            }
        }
    });
}

#[test]
fn with_nothing_to_evict_writes_are_refused() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        for n in 0..1000 {
            assert_eq!(client.command(&["SET", &format!("k{n}"), "x"]), ok());
        }
        set_option(&mut client, "maxmemory-policy", "volatile-lru");
        set_option(&mut client, "maxmemory", "1");
        let Value::Error(line) = client.command(&["SET", "k", "v"]) else { panic!("there is no room") };
        assert!(line.starts_with(b"OOM "));
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(1000));
    });
}

#[test]
fn a_lowered_limit_is_reached_without_requests() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        let value = "x".repeat(10_000);
        for n in 0..2000 {
            assert_eq!(client.command(&["SET", &format!("k{n}"), &value]), ok());
        }
        let limit = info(&mut client, "used_memory") - (10 << 20);
        set_option(&mut client, "maxmemory-policy", "allkeys-random");
        set_option(&mut client, "maxmemory", &limit.to_string());
        // INFO itself does not evict: the server continues to evict in turns that it requests
        // itself. INFO also counts its own reply, which did not exist when the limit was reached.
        let limit = limit + (64 << 10);
        assert!(happens(|| info(&mut client, "used_memory") <= limit));
    });
}

#[test]
fn a_large_value_evicts_as_much_as_it_takes() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        set_option(&mut client, "maxmemory-policy", "allkeys-lru");
        let limit = limit_to(&mut client, 40 << 20);
        let small = "x".repeat(1000);
        for batch in 0..400 {
            let request = |n: usize| vec!["SET".to_owned(), format!("k{batch}-{n}"), small.clone()];
            let replies = client.pipeline(&(0..100).map(request).collect::<Vec<_>>());
            assert_eq!(replies.expect("replies"), vec![ok(); 100]);
        }
        let large = "x".repeat(8 << 20);
        assert_eq!(client.command(&["SET", "large", &large]), ok());
        assert_eq!(client.command(&["STRLEN", "large"]), Value::Integer(8 << 20));
        // Evicted values are freed in steps by another thread.
        let mut used = 0;
        let reached = happens(|| {
            used = info(&mut client, "used_memory");
            used <= limit + limit / 100
        });
        assert!(reached, "{used} of {limit}");
    });
}

#[test]
fn the_largest_clients_go_when_all_hold_too_much() {
    as_process_on_each_back_end(|server| {
        let (mut client, mut protected) = (server.connect(), server.connect());
        assert_eq!(protected.command(&["CLIENT", "NO-EVICT", "ON"]), ok());
        // Unfinished requests stay in the clients' buffers.
        let unfinished = |announced: usize| {
            let head = format!("*2\r\n$3\r\nGET\r\n${announced}\r\n");
            [head.into_bytes(), vec![b'x'; announced - 1000]].concat()
        };
        let mut greedy = server.connect();
        protected.send(&unfinished(8_000_000)).expect("sent");
        greedy.send(&unfinished(6_000_000)).expect("sent");
        set_option(&mut client, "maxmemory-clients", "10mb");
        assert!(happens(|| info(&mut client, "evicted_clients") == 1));
        assert!(greedy.read().is_err());
        let list = client.command(&["CLIENT", "LIST"]);
        let Value::Bulk(list) = list else { panic!("CLIENT LIST is a bulk string") };
        assert_eq!(list.iter().filter(|&&byte| byte == b'\n').count(), 2);
    });
}

#[test]
fn flushing_in_step_replies_when_the_memory_is_freed() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        let before = info(&mut client, "used_memory");
        let value = "x".repeat(1000);
        for batch in 0..200 {
            let request = |n: usize| vec!["SET".to_owned(), format!("k{batch}-{n}"), value.clone()];
            let replies = client.pipeline(&(0..100).map(request).collect::<Vec<_>>());
            assert_eq!(replies.expect("replies"), vec![ok(); 100]);
        }
        assert!(info(&mut client, "used_memory") > before + 20_000_000);
        assert_eq!(client.command(&["FLUSHALL", "SYNC"]), ok());
        assert!(info(&mut client, "used_memory") < before + 2_000_000);
        assert_eq!(info(&mut client, "lazyfree_pending_objects"), 0);
        assert_eq!(info(&mut client, "lazyfreed_objects"), 20_000);
    });
}

#[test]
fn what_waits_to_be_freed_is_bounded_in_bytes_also_within_a_transaction() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        for first in (0..40_000).step_by(1000) {
            let members: Vec<String> = (first..first + 1000).map(|n| format!("{n:0>40}")).collect();
            let words: Vec<&str> =
                ["SADD", "big"].into_iter().chain(members.iter().map(String::as_str)).collect();
            client.command(&words);
        }
        client.command(&["SUNIONSTORE", "d", "big"]);
        let before = info(&mut client, "used_memory");
        let value_bytes = before / 2;
        // The first transaction runs under key locks. The second one has exclusive access to the
        // keyspace, because PING names no key. Each stores 200 MB in all.
        let count = (200 << 20) / value_bytes as usize;
        for more in [vec![], vec![vec!["PING"]]] {
            let stores = std::iter::repeat_n(vec!["SUNIONSTORE", "d", "big"], count);
            let transaction = std::iter::once(vec!["MULTI"]).chain(more).chain(stores);
            let replies = client.pipeline(&transaction.chain([vec!["EXEC"]]).collect::<Vec<_>>());
            let replies = replies.expect("the server answers");
            assert!(matches!(replies.last(), Some(Value::Array(_))), "{:?}", replies.last());
            // Queued commands, memory reserves of threads, and a value in transit are not part of
            // the limit.
            let peak = info(&mut client, "used_memory_peak");
            let bound = before + (64 << 20) + 3 * value_bytes + (8 << 20);
            assert!(peak < bound, "{peak} bytes with values of {value_bytes}, more than {bound}");
        }
        // A value that is being freed at this moment is not counted as pending or as freed.
        let until = Instant::now() + Duration::from_secs(60);
        while info(&mut client, "lazyfreed_objects") < 2 * count as u64 && Instant::now() < until {}
        assert_eq!(info(&mut client, "lazyfreed_objects"), 2 * count as u64);
        assert_eq!(info(&mut client, "lazyfree_pending_objects"), 0);
    });
}

#[test]
fn flushall_sync_in_a_transaction_frees_in_place() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        let fill = |client: &mut Client| {
            let words: Vec<String> =
                ["SADD".into(), "s".into()].into_iter().chain((0..200).map(|n| format!("m{n}"))).collect();
            client.command(&words);
        };
        fill(&mut client);
        client.pipeline(&[vec!["MULTI"], vec!["FLUSHALL", "SYNC"], vec!["EXEC"]]).expect("it answers");
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(0));
        let counts = ["lazyfreed_objects", "lazyfree_pending_objects"].map(|field| info(&mut client, field));
        assert_eq!(counts, [0, 0]);
        fill(&mut client);
        client.command(&["FLUSHALL", "SYNC"]);
        assert_eq!(info(&mut client, "lazyfreed_objects"), 1);
    });
}

//! `maxmemory` edge cases: requests nearly as large as the limit, and changes of the policy.

use testkit::{Client, Value};

use crate::support::as_process_on_each_back_end;

const MB: usize = 1_000_000;

fn says(client: &mut Client, words: &[&str]) -> String {
    client.command(words).to_string()
}

fn fill(client: &mut Client, keys: usize) {
    assert_eq!(says(client, &["FLUSHALL", "SYNC"]), "OK");
    let value = "x".repeat(MB);
    for n in 0..keys {
        assert_eq!(says(client, &["SET", &format!("k{n}"), &value]), "OK");
    }
}

fn keys(client: &mut Client) -> i64 {
    match client.command(&["DBSIZE"]) {
        Value::Integer(count) => count,
        other => panic!("{other}"),
    }
}

/// Checks values of up to half of `maxmemory`. With this limit Redis 8.0.2 accepts values up to
/// 50.3 MB, with and without keys to evict.
#[test]
fn issue_33_values_up_to_half_of_the_limit_fit() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        // Without the save after FLUSHALL: the memory of a save does not count, and is estimated in
        // advance. When it ends, a server near its limit evicts further keys, also the new one.
        for option in [["save", ""], ["maxmemory", "100mb"], ["maxmemory-policy", "allkeys-lru"]] {
            assert_eq!(says(&mut client, &["CONFIG", "SET", option[0], option[1]]), "OK");
        }
        let value = "x".repeat(50 * MB);
        for already in [0, 30] {
            fill(&mut client, already);
            assert_eq!(says(&mut client, &["SET", "big", &value]), "OK", "beside {already} keys");
            assert_eq!(client.command(&["STRLEN", "big"]), Value::Integer(50 * MB as i64));
        }
        fill(&mut client, 60);
        let value = "x".repeat(12 * MB);
        assert_eq!(says(&mut client, &["SET", "big", &value]), "OK");
        assert!(keys(&mut client) >= 50, "no more is evicted than the value needs");
        fill(&mut client, 0);
        let values: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
        let value = "x".repeat(MB);
        let words: Vec<&str> =
            ["MSET"].into_iter().chain(values.iter().flat_map(|key| [key.as_str(), &value])).collect();
        assert_eq!(says(&mut client, &words), "OK");
    });
}

#[test]
fn issue_33_what_cannot_fit_is_refused_before_anything_is_evicted() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        for option in [["save", ""], ["maxmemory", "100mb"], ["maxmemory-policy", "allkeys-lru"]] {
            assert_eq!(says(&mut client, &["CONFIG", "SET", option[0], option[1]]), "OK");
        }
        fill(&mut client, 10);
        let value = "x".repeat(60 * MB);
        for words in [["SET", "big", &value], ["APPEND", "big", &value], ["LPUSH", "big", &value]] {
            assert!(says(&mut client, &words).contains("OOM"), "{}", words[0]);
            assert_eq!(keys(&mut client), 10, "{}", words[0]);
        }
    });
}

#[test]
fn issue_33_existing_keys_count_as_new_after_a_change_to_lfu() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        let mut set = |name: &str, value: &str| {
            assert_eq!(says(&mut client, &["CONFIG", "SET", name, value]), "OK");
        };
        set("lfu-log-factor", "0");
        set("lfu-decay-time", "0");
        let mut client = server.connect();
        for n in 0..100 {
            assert_eq!(says(&mut client, &["SET", &format!("k{n}"), "v"]), "OK");
        }
        assert_eq!(client.command(&["COPY", "k0", "other", "DB", "3"]), Value::Integer(1));
        let policy = |client: &mut Client, policy: &str| {
            assert_eq!(says(client, &["CONFIG", "SET", "maxmemory-policy", policy]), "OK");
        };
        let frequency = |client: &mut Client, key: &str| client.command(&["OBJECT", "FREQ", key]);
        for lru in ["noeviction", "allkeys-lru", "volatile-ttl"] {
            for lfu in ["allkeys-lfu", "volatile-lfu"] {
                policy(&mut client, lru);
                assert_eq!(client.command(&["OBJECT", "IDLETIME", "k99"]), Value::Integer(0), "{lru}");
                policy(&mut client, lfu);
                for n in 0..100 {
                    assert_eq!(frequency(&mut client, &format!("k{n}")), Value::Integer(5), "{lru} {lfu}");
                }
            }
        }
        // A change between two LRU or two LFU policies keeps the values.
        (0..4).for_each(|_| drop(client.command(&["GET", "k0"])));
        policy(&mut client, "allkeys-lfu");
        assert_eq!(frequency(&mut client, "k0"), Value::Integer(9));
        assert_eq!(says(&mut client, &["RENAME", "k0", "renamed"]), "OK");
        assert_eq!(frequency(&mut client, "renamed"), Value::Integer(9));
        assert_eq!(says(&mut client, &["SELECT", "3"]), "OK");
        assert_eq!(frequency(&mut client, "other"), Value::Integer(5));
        // The next request in the pipeline uses the new policy.
        policy(&mut client, "noeviction");
        client
            .send(b"CONFIG SET maxmemory-policy allkeys-lfu\r\nSET p 1\r\nOBJECT FREQ p\r\n")
            .expect("sent");
        assert_eq!(client.read_many(3).expect("replies")[2], Value::Integer(5));
    });
}

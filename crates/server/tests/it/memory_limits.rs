//! `maxmemory` at its edges: requests nearly as large as the limit, and changes of the policy.

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

/// The largest value that Redis 8.0.2 takes under this limit is of 50.3 MB, with and without keys
/// to evict.
#[test]
fn issue_33_values_up_to_half_of_the_limit_fit() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        for option in [["maxmemory", "100mb"], ["maxmemory-policy", "allkeys-lru"]] {
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
        for option in [["maxmemory", "100mb"], ["maxmemory-policy", "allkeys-lru"]] {
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

//! CLIENT PAUSE: while clients are paused, no key is removed and the change log does not grow. The
//! replies are those of Redis 8.0.2.

use std::fs;
use std::time::Duration;

use crate::support::{ask, check, connect, info, on_each_back_end};

/// Time that is longer than the interval of the housekeeper's rounds.
const HOUSEKEEPING: Duration = Duration::from_millis(300);

/// Requests that read keys and fields that have expired: `k`, the only field of `h`, and field `f`
/// of `g`.
const READS: &[(&str, &str)] = &[
    ("GET k", "_"),
    ("MGET k other", "*2 _ \"v\""),
    ("EXISTS k h g", ":2"),
    ("TTL k", ":-2"),
    ("PEXPIRETIME k", ":-2"),
    ("TYPE k", "+none"),
    ("STRLEN k", ":0"),
    ("DUMP k", "_"),
    ("TOUCH k", ":0"),
    ("OBJECT ENCODING k", "_"),
    ("HGET h f", "_"),
    ("HGETALL h", "*0"),
    ("HGETALL g", "*2 \"stays\" \"2\""),
    ("HMGET g f stays", "*2 _ \"2\""),
    ("HEXISTS g f", ":0"),
    ("HPTTL g FIELDS 2 f stays", "*2 :-2 :-1"),
    ("HRANDFIELD g 5", "*1 \"stays\""),
    ("HSCAN g 0", "*2 \"0\" *2 \"stays\" \"2\""),
    ("SORT_RO list BY nosort GET k", "*1 _"),
    ("EVAL_RO return{redis.call('exists','k'),redis.call('hlen','g')} 0", "*2 :0 :2"),
    ("DBSIZE", ":5"),
    ("EXISTS k", ":0"),
];

#[test]
fn nothing_is_removed_while_clients_are_paused() {
    on_each_back_end(|server| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("changes");
        let mut client = connect(server);
        // The log is written before a turn's replies are sent.
        let log_len_bytes = || {
            connect(server).command(&["PING"]);
            fs::metadata(&file).expect("the log is there").len()
        };
        let path = file.to_str().expect("a path of ASCII");
        client.command(&["DEBUG", "CHANGE-LOG", "FILE", path]);
        check(
            &mut client,
            &[
                ("RPUSH list a", ":1"),
                ("SET other v", "+OK"),
                ("HSET h f 1", ":1"),
                ("HSET g f 1 stays 2", ":2"),
                ("HPEXPIRE h 200 FIELDS 1 f", "*1 :1"),
                ("HPEXPIRE g 200 FIELDS 1 f", "*1 :1"),
                ("SET k v PX 200", "+OK"),
                ("CLIENT PAUSE 1000000 WRITE", "+OK"),
            ],
        );
        let before = log_len_bytes();
        while ask(&mut client, "EXISTS k") != ":0" || ask(&mut client, "HEXISTS h f") != ":0" {
            std::thread::sleep(Duration::from_millis(5));
        }
        check(&mut client, READS);
        for line in ["KEYS *", "SCAN 0", "RANDOMKEY"] {
            let reply = ask(&mut client, line);
            assert!(!reply.contains("\"k\""), "{line}: {reply}");
        }
        client.command(&["MULTI"]);
        assert_eq!(ask(&mut client, "GET k"), "+QUEUED");
        assert_eq!(ask(&mut client, "EXEC"), "*1 _");
        // Memory is over its limit, but nothing is evicted.
        check(
            &mut client,
            &[("CONFIG SET maxmemory-policy allkeys-random maxmemory 1", "+OK"), ("GET other", "\"v\"")],
        );
        std::thread::sleep(HOUSEKEEPING);
        check(&mut client, &[("GET other", "\"v\""), ("CONFIG SET maxmemory 0", "+OK"), ("DBSIZE", ":5")]);
        assert_eq!(log_len_bytes(), before, "the log grew during the pause");
        for counter in ["expired_keys", "expired_subkeys", "evicted_keys"] {
            assert_eq!(info(&mut client, counter), 0, "{counter}");
        }
        check(&mut client, &[("CLIENT UNPAUSE", "+OK")]);
        while ask(&mut client, "DBSIZE") != ":3" {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(log_len_bytes() > before, "the removals after the pause are recorded");
    });
}

/// Checks that RANDOMKEY and SCAN end during a pause although all keys have expired.
#[test]
fn commands_that_choose_keys_end_if_all_have_expired_during_a_pause() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for number in 0..100 {
            client.command(&["SET", &format!("k{number}"), "v", "PX", "50"]);
        }
        check(&mut client, &[("CLIENT PAUSE 1000000 WRITE", "+OK")]);
        while (0..100).any(|number| ask(&mut client, &format!("EXISTS k{number}")) != ":0") {
            std::thread::sleep(Duration::from_millis(5));
        }
        check(&mut client, &[("KEYS *", "*0"), ("RANDOMKEY", "_"), ("SCAN 0 COUNT 1000", "*2 \"0\" *0")]);
    });
}

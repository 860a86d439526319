//! `import-mode`: expired keys stay for the importing client and count as missing for all others,
//! as in Valkey 9.1.

use std::time::{Duration, Instant};

use net::BackendChoice;
use testkit::{Client, Value, notation};

use crate::support::{ask, check, connect, info, on_each_back_end, start};

/// Time that is longer than the interval of the housekeeper's rounds.
const COMES_BY: Duration = Duration::from_millis(300);

#[test]
fn keys_past_their_time_are_seen_by_the_import_source_alone() {
    on_each_back_end(|server| {
        let (mut client, mut source) = (connect(server), connect(server));
        check(&mut source, &[("CLIENT IMPORT-SOURCE ON", "-ERR Server is not in import mode")]);
        check(&mut client, &[("CONFIG SET import-mode yes", "+OK")]);
        check(&mut source, &[("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(
            &mut client,
            &[
                ("SET k v PXAT 1000", "+OK"),
                ("SET k2 v", "+OK"),
                ("EXPIRE k2 -1", ":1"),
                ("GETEX k2 PXAT 5", "_"),
                ("SET k2 v", "+OK"),
                ("GETEX k2 PXAT 1000", "\"v\""),
                ("GET k", "_"),
                ("EXISTS k k2", ":0"),
                ("TTL k", ":-2"),
                ("TYPE k", "+none"),
                ("KEYS *", "*0"),
                ("SCAN 0", "*2 \"0\" *0"),
                ("RANDOMKEY", "_"),
                ("DUMP k", "_"),
                ("DBSIZE", ":2"),
            ],
        );
        check(
            &mut source,
            &[
                ("GET k", "\"v\""),
                ("EXISTS k k2", ":2"),
                ("TTL k", ":0"),
                ("PTTL k", ":0"),
                ("PEXPIRETIME k", ":1000"),
                ("TYPE k", "+string"),
                ("APPEND k x", ":2"),
                ("RENAME k k3", "+OK"),
                ("COPY k3 k4", ":1"),
                ("GETEX k3 PXAT 5", "\"vx\""),
                ("EXPIRE k3 -5", ":1"),
                ("GET k3", "\"vx\""),
                ("PERSIST k3", ":1"),
                ("TTL k3", ":-1"),
                ("DEL k3 k4", ":2"),
                ("RANDOMKEY", "\"k2\""),
                ("KEYS *", "*1 \"k2\""),
                ("SCAN 0", "*2 \"0\" *1 \"k2\""),
                ("WATCH k2", "+OK"),
                ("MULTI", "+OK"),
                ("GET k2", "+QUEUED"),
                ("EXEC", "*1 \"v\""),
            ],
        );
        // For writes of other clients, expired keys are missing; such writes remove these keys.
        check(
            &mut client,
            &[
                ("APPEND k2 new", ":3"),
                ("GET k2", "\"new\""),
                ("SET d v PXAT 1000", "+OK"),
                ("SETNX d w", ":1"),
                ("TTL d", ":-1"),
                ("SET d v PXAT 1000", "+OK"),
                ("RENAME d e", "-ERR no such key"),
                ("FLUSHALL", "+OK"),
            ],
        );
    });
}

#[test]
fn reads_of_several_keys_find_no_key_past_its_time() {
    on_each_back_end(|server| {
        let (mut client, mut source) = (connect(server), connect(server));
        check(&mut source, &[("CONFIG SET import-mode yes", "+OK"), ("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(
            &mut client,
            &[
                ("SADD set 1 2 3", ":3"),
                ("SADD live 2 3", ":2"),
                ("ZADD zset 1 a 2 b", ":2"),
                ("ZADD zlive 2 b", ":1"),
                ("PFADD hll a b", ":1"),
                ("PFADD hlive b", ":1"),
                ("SET string abc", "+OK"),
                ("SET slive bcd", "+OK"),
            ],
        );
        for key in ["set", "zset", "hll", "string"] {
            check(&mut client, &[(&format!("PEXPIREAT {key} 1000"), ":1")]);
        }
        let reads = [
            ("SINTER set live", "*0", "*2 \"2\" \"3\""),
            ("SINTERCARD 2 live set", ":0", ":2"),
            ("SUNION set live", "*2 \"2\" \"3\"", "*3 \"1\" \"2\" \"3\""),
            ("SDIFF set live", "*0", "*1 \"1\""),
            ("SDIFF live set", "*2 \"2\" \"3\"", "*0"),
            ("ZINTER 2 zset zlive", "*0", "*1 \"b\""),
            ("ZINTER 2 set live", "*0", "*2 \"2\" \"3\""),
            ("ZINTERCARD 2 zlive zset", ":0", ":1"),
            ("ZUNION 2 zset zlive", "*1 \"b\"", "*2 \"a\" \"b\""),
            ("ZDIFF 2 zset zlive", "*0", "*1 \"a\""),
            ("ZDIFF 2 zlive zset", "*1 \"b\"", "*0"),
            ("PFCOUNT hll hlive", ":1", ":2"),
            ("MGET string slive", "*2 _ \"bcd\"", "*2 \"abc\" \"bcd\""),
            ("LCS string slive", "\"\"", "\"bc\""),
            ("EXISTS set live zset zlive", ":2", ":4"),
            ("TOUCH set live zset zlive", ":2", ":4"),
        ];
        for (line, others, importer) in reads {
            check(&mut client, &[(line, others)]);
            check(&mut source, &[(line, importer)]);
        }
        check(&mut source, &[("EXISTS set zset hll string", ":4")]);
        // Writes remove the expired keys that they find: the results come from the other keys.
        check(
            &mut client,
            &[
                ("SINTERSTORE to set live", ":0"),
                ("ZUNIONSTORE to 2 zset zlive", ":1"),
                ("BITOP OR to string slive", ":3"),
                ("GET to", "\"bcd\""),
            ],
        );
        check(&mut source, &[("EXISTS set zset hll string", ":1")]);
    });
}

#[test]
fn a_client_that_waited_before_the_import_began_leaves_imported_keys() {
    on_each_back_end(|server| {
        let (mut reader, mut source) = (connect(server), connect(server));
        reader.send(b"XREAD BLOCK 0 STREAMS stream $\r\n").expect("sent");
        until_one_waits(&mut source);
        check(&mut source, &[("CONFIG SET import-mode yes", "+OK"), ("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(
            &mut source,
            &[
                ("MULTI", "+OK"),
                ("XADD stream 5-1 f v", "+QUEUED"),
                ("PEXPIREAT stream 1000", "+QUEUED"),
                ("EXEC", "*2 \"5-1\" :1"),
                ("EXISTS stream", ":1"),
                ("PERSIST stream", ":1"),
                ("XADD stream 5-2 f v", "\"5-2\""),
            ],
        );
        // The reader was still blocked: other clients see the stream only now.
        let served = notation::one_line(&reader.read().expect("a reply"));
        assert!(served.starts_with("*1 *2 \"stream\" "), "{served}");
    });
}

/// Waits until INFO shows exactly one blocked client.
fn until_one_waits(client: &mut Client) {
    let since = Instant::now();
    while info(client, "blocked_clients") != 1 {
        assert!(since.elapsed() < Duration::from_secs(60), "a client waits");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_import_source_keeps_keys_past_their_time_when_it_migrates() {
    on_each_back_end(|server| {
        let target = start(BackendChoice::Auto);
        let (mut source, mut there) = (connect(server), connect(&target));
        check(&mut source, &[("CONFIG SET import-mode yes", "+OK"), ("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(&mut source, &[("SET k v", "+OK"), ("SET live v", "+OK"), ("PEXPIREAT k 1000", ":1")]);
        let port = target.port().to_string();
        let mut migrate = |rest: &[&str]| {
            let words = [&["MIGRATE", "127.0.0.1", &port][..], rest].concat();
            notation::one_line(&source.command(&words))
        };
        assert_eq!(migrate(&["k", "0", "5000"]), "+OK");
        assert_eq!(migrate(&["k", "0", "5000", "COPY", "REPLACE"]), "+OK");
        check(&mut there, &[("DBSIZE", ":0")]);
        assert_eq!(migrate(&["", "0", "5000", "KEYS", "k", "live", "none"]), "+OK");
        assert_eq!(migrate(&["none", "0", "5000"]), "+NOKEY");
        check(&mut there, &[("KEYS *", "*1 \"live\"")]);
        check(&mut source, &[("KEYS *", "*1 \"k\""), ("PEXPIRETIME k", ":1000")]);
    });
}

#[test]
fn reset_ends_the_import_of_a_connection() {
    on_each_back_end(|server| {
        let mut source = connect(server);
        check(&mut source, &[("CONFIG SET import-mode yes", "+OK"), ("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(&mut source, &[("SET k v PXAT 1000", "+OK"), ("GET k", "\"v\""), ("RESET", "+RESET")]);
        assert!(ask(&mut source, "CLIENT INFO").contains(" flags=N "));
        check(&mut source, &[("GET k", "_")]);
    });
}

#[test]
fn fields_past_their_time_are_seen_by_the_import_source_alone() {
    on_each_back_end(|server| {
        let (mut client, mut source) = (connect(server), connect(server));
        check(&mut client, &[("CONFIG SET import-mode yes", "+OK")]);
        check(&mut source, &[("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(
            &mut client,
            &[
                ("HSET h a 1 b 2 z 1", ":3"),
                ("HPEXPIREAT h 1000 FIELDS 1 a", "*1 :1"),
                ("HSETEX h PXAT 1000 FIELDS 1 q 1", ":1"),
                ("HGETEX h PXAT 1000 FIELDS 1 b", "*1 \"2\""),
                ("HGET h a", "_"),
                ("HMGET h a b q z", "*4 _ _ _ \"1\""),
                ("HKEYS h", "*1 \"z\""),
                ("HEXISTS h b", ":0"),
                ("HEXPIRETIME h FIELDS 1 a", "*1 :-2"),
                ("HRANDFIELD h -3", "*3 \"z\" \"z\" \"z\""),
                ("HRANDFIELD h 3", "*1 \"z\""),
                ("HSCAN h 0 NOVALUES", "*2 \"0\" *1 \"z\""),
                ("HLEN h", ":4"),
            ],
        );
        check(
            &mut source,
            &[
                ("HMGET h a b q z", "*4 \"1\" \"2\" \"1\" \"1\""),
                ("HTTL h FIELDS 2 a z", "*2 :0 :-1"),
                ("HINCRBY h a 5", ":6"),
                ("HPERSIST h FIELDS 1 a", "*1 :1"),
                ("HGETDEL h FIELDS 1 q", "*1 \"1\""),
                ("HPEXPIREAT h 1000 FIELDS 1 z", "*1 :1"),
                ("HLEN h", ":3"),
            ],
        );
        check(&mut client, &[("HGET h a", "\"6\""), ("HGET h z", "_"), ("DEL h", ":1")]);
        check(&mut source, &[("HSETEX h PXAT 1000 FIELDS 1 a 1", ":1"), ("EXISTS h", ":1")]);
        check(&mut client, &[("HRANDFIELD h", "_"), ("HRANDFIELD h 2", "*0")]);
    });
}

#[test]
fn nothing_expires_or_is_evicted_by_itself_until_the_import_is_over() {
    on_each_back_end(|server| {
        let (mut client, mut source) = (connect(server), connect(server));
        check(&mut client, &[("CONFIG SET import-mode yes", "+OK")]);
        check(&mut source, &[("CLIENT IMPORT-SOURCE ON", "+OK")]);
        for key in 0..20 {
            check(&mut client, &[(&format!("SET key{key} v PXAT 1000"), "+OK")]);
        }
        // There is no event to wait for: a wrong expiry would happen within this time.
        std::thread::sleep(COMES_BY);
        check(&mut client, &[("DBSIZE", ":20"), ("CONFIG SET maxmemory-policy allkeys-lru", "+OK")]);
        check(&mut client, &[("CONFIG SET maxmemory 1", "+OK")]);
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        check(&mut client, &[("SET x 1", refused), ("DBSIZE", ":20")]);
        check(&mut source, &[("SET x 1", refused), ("CONFIG SET maxmemory 0", "+OK"), ("GET key3", "\"v\"")]);
        assert_eq!((info(&mut client, "expired_keys"), info(&mut client, "evicted_keys")), (0, 0));
        check(&mut client, &[("CONFIG SET import-mode no", "+OK")]);
        let since = Instant::now();
        while client.command(&["DBSIZE"]) != Value::Integer(0) {
            assert!(since.elapsed() < Duration::from_secs(60), "the keys expire when the import is over");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The client stays marked as an import source, but the mark has no effect now.
        check(&mut source, &[("SET k v PXAT 1000", "+OK"), ("GET k", "_")]);
        assert!(ask(&mut source, "CLIENT INFO").contains(" flags=I "));
    });
}

#[test]
fn restore_keeps_the_time_that_a_value_comes_with() {
    on_each_back_end(|server| {
        let mut source = connect(server);
        check(&mut source, &[("CONFIG SET import-mode yes", "+OK"), ("CLIENT IMPORT-SOURCE ON", "+OK")]);
        check(&mut source, &[("SET k v", "+OK")]);
        let Value::Bulk(payload) = source.command(&["DUMP", "k"]) else { panic!("a payload") };
        let restore: [&[u8]; 5] = [b"RESTORE", b"old", b"1000", &payload, b"ABSTTL"];
        assert_eq!(notation::one_line(&source.command(&restore)), "+OK");
        check(&mut source, &[("GET old", "\"v\""), ("PEXPIRETIME old", ":1000")]);
    });
}

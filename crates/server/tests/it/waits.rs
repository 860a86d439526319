//! Waits as a client sees them: none ends early. Pauses hold back what writes and nothing else. A
//! script and a transaction see one time.

use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, on_each_back_end};

/// The time that `words` take, from before they are sent to their reply.
fn took(client: &mut Client, words: &[&str]) -> Duration {
    let since = Instant::now();
    client.command(words);
    since.elapsed()
}

/// Blocking commands whose wait of 20 milliseconds ends without an element.
const WAITS: &[&[&str]] = &[
    &["BLPOP", "none", "0.02"],
    &["BRPOP", "none", "none too", "0.02"],
    &["BLMOVE", "none", "to", "LEFT", "RIGHT", "0.02"],
    &["BRPOPLPUSH", "none", "to", "0.02"],
    &["BLMPOP", "0.02", "1", "none", "LEFT"],
    &["BZPOPMIN", "none", "0.02"],
    &["BZPOPMAX", "none", "0.02"],
    &["BZMPOP", "0.02", "1", "none", "MIN"],
    &["XREAD", "BLOCK", "20", "STREAMS", "none", "$"],
    &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "20", "STREAMS", "stream", ">"],
    &["WAIT", "1", "20"],
    &["WAITAOF", "0", "1", "20"],
];

#[test]
fn issue_33_no_wait_ends_early() {
    on_each_back_end(|server: &Server| {
        let mut client = connect(server);
        client.command(&["XGROUP", "CREATE", "stream", "g", "$", "MKSTREAM"]);
        for round in 0..10 {
            for words in WAITS {
                let took = took(&mut client, words);
                assert!(took >= Duration::from_millis(20), "round {round}: {words:?} took {took:?}");
            }
        }
    });
}

#[test]
fn issue_33_no_pause_ends_early() {
    on_each_back_end(|server: &Server| {
        let (mut admin, mut client) = (connect(server), connect(server));
        for (mode, words) in [("ALL", ["GET", "k"].as_slice()), ("WRITE", &["SET", "k", "v"])] {
            for _ in 0..10 {
                let since = Instant::now();
                admin.command(&["CLIENT", "PAUSE", "20", mode]);
                client.command(words);
                assert!(since.elapsed() >= Duration::from_millis(20), "{mode}: {:?}", since.elapsed());
            }
        }
    });
}

#[test]
fn issue_33_no_key_or_field_expires_early() {
    on_each_back_end(|server: &Server| {
        let mut client = connect(server);
        for round in 0..100 {
            let since = Instant::now();
            client.command(&["SET", "k", "v", "PX", "5"]);
            while client.command(&["EXISTS", "k"]) == Value::Integer(1) {}
            assert!(since.elapsed() >= Duration::from_millis(5), "round {round}: {:?}", since.elapsed());
            client.command(&["HSET", "h", "a", "1", "b", "2"]);
            let since = Instant::now();
            client.command(&["HPEXPIRE", "h", "5", "FIELDS", "1", "a"]);
            while client.command(&["HEXISTS", "h", "a"]) == Value::Integer(1) {}
            assert!(since.elapsed() >= Duration::from_millis(5), "round {round}: {:?}", since.elapsed());
        }
    });
}

const NO_WRITES: &str = "#!lua flags=no-writes\nreturn 7";
const LIBRARY: &str = "#!lua name=lib\n\
    redis.register_function{function_name = 'reads', callback = function() return 7 end, flags = {'no-writes'}}\n\
    redis.register_function('writes', function() return 7 end)";

#[test]
fn issue_33_scripts_that_do_not_write_run_while_writes_are_paused() {
    on_each_back_end(|server: &Server| {
        let (mut admin, mut client) = (connect(server), connect(server));
        admin.command(&["FUNCTION", "LOAD", LIBRARY]);
        let Value::Bulk(sha) = admin.command(&["SCRIPT", "LOAD", NO_WRITES]) else { panic!("a digest") };
        let sha = String::from_utf8(sha).expect("it is hexadecimal");
        admin.command(&["CLIENT", "PAUSE", "1000000", "WRITE"]);
        let scripts: [&[&str]; 6] = [
            &["EVAL", NO_WRITES, "0"],
            &["EVALSHA", &sha, "0"],
            &["EVAL_RO", "return 7", "0"],
            &["EVALSHA_RO", &sha, "0"],
            &["FCALL", "reads", "0"],
            &["FCALL_RO", "reads", "0"],
        ];
        for words in scripts {
            assert_eq!(client.command(words), Value::Integer(7), "{words:?}");
        }
        client.command(&["MULTI"]);
        for words in scripts {
            assert_eq!(client.command(words), Value::Simple("QUEUED".into()), "{words:?}");
        }
        assert_eq!(client.command(&["EXEC"]), Value::Array(vec![Value::Integer(7); scripts.len()]));
        // What cannot run does not write.
        assert!(matches!(client.command(&["EVAL", "#!lua flags=nonsense\nreturn 7", "0"]), Value::Error(_)));
        assert!(matches!(client.command(&["FCALL", "none", "0"]), Value::Error(_)));
        // What may write waits, until the pause ends.
        let mut bytes = Vec::new();
        for words in [["EVAL", "return 7", "0"], ["FCALL", "writes", "0"]] {
            resp::encode_request(&words, &mut bytes);
        }
        client.send(&bytes).expect("it is connected");
        while !client_list(&mut admin).contains("cmd=eval ") {
            std::thread::yield_now();
        }
        assert!(!client_list(&mut admin).contains("cmd=fcall "));
        admin.command(&["CLIENT", "UNPAUSE"]);
        assert_eq!(
            [client.read(), client.read()].map(|reply| reply.expect("a reply")),
            [(); 2].map(|()| Value::Integer(7))
        );
    });
}

fn client_list(admin: &mut Client) -> String {
    let list = admin.command(&["CLIENT", "LIST"]);
    String::from_utf8_lossy(list.as_bytes().expect("it is text")).into_owned()
}

/// Sets a key, works for some milliseconds, and returns what has moved meanwhile.
const LOOKS_AT_TIME: &str = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
    local first = now() \
    redis.call('SET', 'k', 'v', 'PX', 5) \
    local begun = os.clock() \
    while os.clock() - begun < 0.02 do end \
    local expires = redis.call('PEXPIRETIME', 'k') \
    return {now() - first, redis.call('PTTL', 'k'), redis.call('EXISTS', 'k'), expires - math.floor(first / 1000)}";

#[test]
fn issue_33_time_stands_still_in_scripts_and_transactions() {
    on_each_back_end(|server: &Server| {
        let mut client = connect(server);
        let still = Value::Array([0, 5, 1, 5].map(Value::Integer).to_vec());
        assert_eq!(client.command(&["EVAL", LOOKS_AT_TIME, "1", "k"]), still);
        assert_eq!(client.command(&["EVAL", LOOKS_AT_TIME, "0"]), still);
        let before = client.command(&["TIME"]);
        client.command(&["MULTI"]);
        for words in [["TIME"].as_slice(), &["EVAL", LOOKS_AT_TIME, "0"], &["TIME"]] {
            client.command(words);
        }
        let Value::Array(replies) = client.command(&["EXEC"]) else { panic!("an array") };
        assert_eq!((&replies[0], &replies[1]), (&replies[2], &still));
        assert_ne!(client.command(&["TIME"]), before);
    });
}

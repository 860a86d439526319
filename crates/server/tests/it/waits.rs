//! Waits as a client observes them: no wait ends too early. Pauses postpone writes and nothing
//! else. Within a script or a transaction, time stands still.

use std::time::{Duration, Instant};

use server::Server;
use testkit::waits::{KINDS, Waits, run};
use testkit::{Address, Client, Value};

use crate::support::{connect, on_each_back_end};

/// Returns the number of waits of each kind that each connection makes. `SAKER_WAITS=10000` sets
/// another number.
fn waits() -> usize {
    const WAITS: usize = 5;
    std::env::var("SAKER_WAITS").map_or(WAITS, |count| count.parse().expect("a number"))
}

#[test]
fn issue_33_no_wait_or_pause_ends_early() {
    on_each_back_end(|server: &Server| {
        let address = Address::port(server.port());
        for load_clients in [0, 2] {
            for kind in KINDS {
                let waits =
                    Waits { address: address.clone(), connections: 8, waits: waits(), load_clients, seed: 1 };
                let report = run(&waits, kind);
                assert_eq!(report.early(), 0, "{}: {report}", kind.name);
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
        // A script that cannot run does not write.
        assert!(matches!(client.command(&["EVAL", "#!lua flags=nonsense\nreturn 7", "0"]), Value::Error(_)));
        assert!(matches!(client.command(&["FCALL", "none", "0"]), Value::Error(_)));
        // A script that may write waits until the pause ends.
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

/// A script that sets a key with an expiry of 5 ms and then runs for 20 ms. Its four results show
/// if time stands still within the script. They are the change of TIME in microseconds, PTTL,
/// EXISTS, and the time from the start to the expiry in milliseconds.
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

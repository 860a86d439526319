//! A script that runs for too long, and the replies to other clients during its run. DEBUG
//! SCRIPT-STANDIN simulates a script, the stand-in, on its own I/O thread.

use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, Value};

use crate::support::{connect_on, info, on_each_back_end};

/// The I/O thread of the client that runs the simulated script (the stand-in).
const SCRIPT: usize = 1;
/// The I/O thread of the clients that send requests while a script is busy.
const OTHERS: usize = 0;

pub const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
pub const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
pub const ABORTED: &str = "EXECABORT Transaction discarded because of: BUSY Redis is busy running a script. You \
                       can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Duration of the simulated script (the stand-in) in milliseconds. No test lasts as long: each
/// test kills the script.
const LONG_MS: &str = "600000";

pub fn send(client: &mut Client, words: &str) {
    client.send(format!("{words}\r\n").as_bytes()).expect("the server reads");
}

pub fn ask(client: &mut Client, words: &str) -> Value {
    client.command(&words.split(' ').collect::<Vec<_>>())
}

#[track_caller]
pub fn expect(client: &mut Client, words: &str, reply: &str) {
    assert_eq!(ask(client, words), simple(reply), "{words}");
}

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

#[track_caller]
pub fn expect_error(client: &mut Client, words: &str, error: &str) {
    assert_eq!(ask(client, words), Value::Error(error.into()), "{words}");
}

/// A simulated script (a stand-in) that is running and counts as busy.
struct Busy {
    script: Client,
}

impl Busy {
    /// Starts a simulated script (a stand-in) with the keys in `kind_and_keys`, or for the whole
    /// keyspace if there are none. Waits until it is busy. `others` is a client on another thread,
    /// and `key` is a key of the stand-in.
    fn start(server: &Server, others: &mut Client, kind_and_keys: &str, key: &str) -> Self {
        ask(others, "CONFIG SET busy-reply-threshold 20");
        let mut script = connect_on(server, SCRIPT);
        send(&mut script, &format!("DEBUG SCRIPT-STANDIN {LONG_MS} {kind_and_keys}"));
        // The stand-in may not have started yet.
        while !matches!(ask(others, &format!("GET {key}")), Value::Error(_)) {
            std::thread::yield_now();
        }
        Self { script }
    }

    /// Kills the simulated script (the stand-in) and waits until it has ended.
    fn kill(mut self, others: &mut Client) {
        expect(others, "SCRIPT KILL", "OK");
        let ended = self.script.read().expect("a reply");
        assert_eq!(ended, Value::Error("ERR Script killed by user with SCRIPT KILL...".into()));
    }
}

/// Checks the replies to other clients while a script owns the keyspace. They are those of Redis
/// 8.0.2.
#[test]
fn what_may_not_run_beside_a_script_that_owns_the_keyspace_is_answered_so() {
    on_each_back_end(|server| {
        let [mut client, mut queued] = [0, 1].map(|_| connect_on(server, OTHERS));
        expect(&mut client, "SET a 1", "OK");
        expect(&mut queued, "MULTI", "OK");
        expect(&mut queued, "SET a 2", "QUEUED");
        let rejected_before = info(&mut client, "total_error_replies");
        let busy = Busy::start(server, &mut client, "SCRIPT", "a");
        expect_answers(&mut client);
        expect_error(&mut queued, "EXEC", ABORTED);
        let mut leaving = queued;
        expect(&mut leaving, "QUIT", "OK");
        busy.kill(&mut client);
        assert_eq!(ask(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
        expect_error(&mut client, "SCRIPT KILL", "NOTBUSY No scripts in execution right now.");
        assert!(info(&mut client, "total_error_replies") > rejected_before + 25);
    });
}

/// Sends requests of all kinds while a script is busy. The replies are those of Redis 8.0.2,
/// except for DEBUG, which is not enabled there.
pub fn expect_answers(client: &mut Client) {
    for words in [
        "PING",
        "GET a",
        "SET a 2",
        "CLIENT ID",
        "CLIENT LIST",
        "INFO",
        "ECHO x",
        "SELECT 1",
        "SUBSCRIBE ch",
        "PUBLISH ch x",
        "UNSUBSCRIBE",
        "KEYS *",
        "SCAN 0",
        "DBSIZE",
        "FLUSHALL",
        "CONFIG GET port",
        "SCRIPT EXISTS a",
        "DEBUG SLEEP 0",
        "BLPOP list 0",
        "RANDOMKEY",
        "SORT a BY b*",
        "CLIENT KILL ID 1",
        "CLIENT TRACKING ON",
        "CONFIG SET lua-time-limit 5",
        "SCRIPT FLUSH",
        "SCRIPT HELP",
        "SCRIPT LOAD x",
        "FUNCTION STATS",
        "FUNCTION KILL",
        "FUNCTION LIST",
        "FUNCTION DUMP",
        "EVAL x 0",
        "EVALSHA x 0",
        "FCALL x 0",
        "TIME",
        "COMMAND COUNT",
        "MONITOR",
        "ACL WHOAMI",
        "SAVE",
        "BGSAVE",
        "SLOWLOG GET",
        "MEMORY USAGE a",
        "SHUTDOWN",
        "SHUTDOWN SAVE",
    ] {
        expect_error(client, words, BUSY);
    }
    for (words, error) in [
        ("NOSUCH x", "ERR unknown command 'NOSUCH', with args beginning with: 'x' "),
        ("GET", "ERR wrong number of arguments for 'get' command"),
        ("SCRIPT", "ERR wrong number of arguments for 'script' command"),
        ("EXEC", ABORTED),
        ("DISCARD", "ERR DISCARD without MULTI"),
        ("SHUTDOWN ABORT", "ERR No shutdown in progress."),
        ("SHUTDOWN x", "ERR syntax error"),
        ("HELLO 9", "NOPROTO unsupported protocol version"),
    ] {
        expect_error(client, words, error);
    }
    for (words, reply) in [
        ("MULTI", "OK"),
        ("AUTH default x", "QUEUED"),
        ("UNWATCH", "QUEUED"),
        ("DISCARD", "OK"),
        ("WATCH a", "OK"),
        ("UNWATCH", "OK"),
        ("AUTH default x", "OK"),
        ("MULTI", "OK"),
        ("SCRIPT KILL", "QUEUED"),
    ] {
        expect(client, words, reply);
    }
    expect_error(client, "WATCH a", "ERR WATCH inside MULTI is not allowed");
    expect_error(client, "GET a", BUSY);
    expect_error(client, "MULTI", "ERR MULTI calls can not be nested");
    expect_error(client, "EXEC", ABORTED);
    expect(client, "RESET", "RESET");
    assert!(matches!(ask(client, "HELLO"), Value::Array(_)));
}

#[test]
fn a_script_that_holds_shards_leaves_the_others_to_commands_that_name_their_keys() {
    on_each_back_end(|server| {
        let [mut client, mut waiting] = [0, 1].map(|_| connect_on(server, OTHERS));
        let busy = Busy::start(server, &mut client, "SCRIPT held", "held");
        for words in ["GET held", "DEL free held", "SET held 1", "BLPOP held 0", "PING", "KEYS *", "DBSIZE"] {
            expect_error(&mut client, words, BUSY);
        }
        expect(&mut client, "SET free 1", "OK");
        assert_eq!(ask(&mut client, "GET free"), Value::Bulk(b"1".to_vec()));
        for (words, reply) in [("WATCH free", "OK"), ("MULTI", "OK"), ("INCR free", "QUEUED")] {
            expect(&mut client, words, reply);
        }
        assert_eq!(ask(&mut client, "EXEC"), Value::Array(vec![Value::Integer(2)]));
        for (words, reply) in [("MULTI", "OK"), ("INCR free", "QUEUED"), ("INCR held", "QUEUED")] {
            expect(&mut client, words, reply);
        }
        expect_error(&mut client, "EXEC", ABORTED);
        assert_eq!(ask(&mut client, "GET free"), Value::Bulk(b"2".to_vec()), "nothing of it was done");
        // A client blocked on a key of another shard is served meanwhile.
        send(&mut waiting, "BLPOP list 0");
        assert_eq!(ask(&mut client, "RPUSH list x"), Value::Integer(1));
        assert!(matches!(waiting.read(), Ok(Value::Array(_))));
        busy.kill(&mut client);
        expect(&mut client, "SET held 1", "OK");
        expect(&mut client, "PING", "PONG");
    });
}

#[test]
fn a_function_is_killed_by_another_command_than_a_script() {
    on_each_back_end(|server| {
        let mut client = connect_on(server, OTHERS);
        ask(&mut client, "CONFIG SET busy-reply-threshold 20");
        let mut script = connect_on(server, SCRIPT);
        send(&mut script, "DEBUG SCRIPT-STANDIN 300 FUNCTION");
        while ask(&mut client, "PING") == simple("PONG") {
            std::thread::yield_now();
        }
        expect_error(&mut client, "SCRIPT KILL", BUSY_FUNCTION);
        assert_eq!(script.read().expect("a reply"), simple("OK"));
        expect(&mut client, "PING", "PONG");
    });
}

#[test]
fn below_the_threshold_and_behind_what_is_no_script_others_wait() {
    on_each_back_end(|server| {
        let mut client = connect_on(server, OTHERS);
        let mut slow = connect_on(server, SCRIPT);
        ask(&mut client, "CONFIG SET lua-time-limit 60000");
        send(&mut slow, "DEBUG SCRIPT-STANDIN 200 SCRIPT");
        await_waiting(&mut client);
        assert_eq!(slow.read().expect("a reply"), simple("OK"));
        ask(&mut client, "CONFIG SET lua-time-limit 1");
        // This transaction has exclusive access to the keyspace while it sleeps, but it is no
        // script.
        send(&mut slow, "MULTI\r\nDEBUG SLEEP 0.2\r\nEXEC");
        await_waiting(&mut client);
        assert_eq!(slow.read_many(3).expect("replies").pop(), Some(Value::Array(vec![simple("OK")])));
        ask(&mut client, "CONFIG SET lua-time-limit 0");
        send(&mut slow, "DEBUG SCRIPT-STANDIN 200 SCRIPT");
        await_waiting(&mut client);
        assert_eq!(slow.read().expect("a reply"), simple("OK"));
    });
}

/// Sends PING until a reply is delayed, because the server waits for the busy script.
fn await_waiting(client: &mut Client) {
    loop {
        let since = Instant::now();
        expect(client, "PING", "PONG");
        if since.elapsed() > Duration::from_millis(100) {
            return;
        }
    }
}

#[test]
fn watches_that_begin_and_end_meanwhile_protect_and_leave_nothing_behind() {
    for held in ["SCRIPT", "SCRIPT k"] {
        on_each_back_end(|server| {
            let [mut admin, mut before, mut during, mut closed] = [0; 4].map(|_| connect_on(server, OTHERS));
            expect(&mut admin, "SET k 0", "OK");
            for client in [&mut before, &mut closed] {
                expect(client, "WATCH k", "OK");
            }
            let busy = Busy::start(server, &mut admin, held, "k");
            expect(&mut before, "UNWATCH", "OK");
            expect(&mut during, "WATCH k", "OK");
            drop(closed);
            busy.kill(&mut admin);
            // WATCH could not check the key while the script held it, so the key counts as changed.
            expect(&mut during, "MULTI", "OK");
            expect(&mut during, "GET k", "QUEUED");
            assert_eq!(ask(&mut during, "EXEC"), Value::NullArray, "{held}");
            // UNWATCH works although the script held the key: later changes have no effect.
            expect(&mut admin, "SET k 1", "OK");
            expect(&mut before, "MULTI", "OK");
            expect(&mut before, "GET k", "QUEUED");
            assert_eq!(ask(&mut before, "EXEC"), Value::Array(vec![Value::Bulk(b"1".to_vec())]), "{held}");
            for client in [&mut before, &mut during] {
                expect(client, "WATCH k", "OK");
                expect(client, "MULTI", "OK");
                expect(client, "INCR k", "QUEUED");
                assert!(matches!(ask(client, "EXEC"), Value::Array(_)), "{held}");
            }
            while info(&mut admin, "watching_clients") > 0 {
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn who_is_blocked_meanwhile_is_served_or_times_out_afterwards() {
    on_each_back_end(|server| {
        let [mut admin, mut served, mut timed_out, mut closed] = [0; 4].map(|_| connect_on(server, OTHERS));
        send(&mut served, "BLPOP first 0");
        send(&mut timed_out, "BLPOP second 0.05");
        send(&mut closed, "BLPOP third 0");
        while info(&mut admin, "blocked_clients") < 3 {
            std::thread::yield_now();
        }
        let busy = Busy::start(server, &mut admin, "SCRIPT", "first");
        drop(closed);
        expect_error(&mut admin, "RPUSH first x", BUSY);
        busy.kill(&mut admin);
        assert_eq!(timed_out.read().expect("a reply"), Value::NullArray);
        while info(&mut admin, "blocked_clients") > 1 {
            std::thread::yield_now();
        }
        assert_eq!(ask(&mut admin, "RPUSH third x"), Value::Integer(1));
        assert_eq!(ask(&mut admin, "LLEN third"), Value::Integer(1), "nobody takes it");
        assert_eq!(ask(&mut admin, "RPUSH first x"), Value::Integer(1));
        assert!(matches!(served.read(), Ok(Value::Array(_))));
    });
}

#[test]
fn an_owner_to_be_does_not_keep_others_from_running_beside_a_script() {
    on_each_back_end(|server| {
        let [mut client, mut owner] = [0, 1].map(|_| connect_on(server, OTHERS));
        ask(&mut client, "CONFIG SET busy-reply-threshold 200");
        let mut script = connect_on(server, SCRIPT);
        send(&mut script, &format!("DEBUG SCRIPT-STANDIN {LONG_MS} SCRIPT held"));
        // FLUSHALL waits for its turn after the script, with the gate closed, until the script is
        // busy.
        send(&mut owner, "FLUSHALL");
        assert!(matches!(owner.read(), Ok(Value::Error(_) | Value::Simple(_))));
        while ask(&mut owner, "FLUSHALL") != Value::Error(BUSY.into()) {
            std::thread::yield_now();
        }
        expect(&mut client, "SET free 1", "OK");
        expect(&mut client, "SCRIPT KILL", "OK");
        assert!(matches!(script.read(), Ok(Value::Error(_))));
        expect(&mut owner, "FLUSHALL", "OK");
    });
}

#[test]
fn shutdown_works_while_a_script_is_busy() {
    on_each_back_end(|server| {
        let mut client = connect_on(server, OTHERS);
        let busy = Busy::start(server, &mut client, "SCRIPT", "a");
        expect_error(&mut client, "SHUTDOWN", BUSY);
        send(&mut client, "SHUTDOWN NOSAVE");
        assert_eq!(client.read_to_end().expect("it is closed"), b"");
        drop(busy);
    });
}

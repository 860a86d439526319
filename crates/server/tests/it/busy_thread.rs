//! A busy script on the only I/O thread. The thread's other clients get replies during the run, and
//! requests that follow the script's request keep their order.

use std::time::Duration;

use server::Server;
use testkit::{Client, Value};

use crate::busy::{ABORTED, BUSY, BUSY_FUNCTION, ask, expect, expect_answers, expect_error, send};
use crate::support::{connect, info, on_each_back_end_with};

const ENDLESS: &str = "while true do end";

/// Runs `test` on each backend with one I/O thread and a low `busy-reply-threshold`.
fn on_one_thread(test: impl Fn(&Server)) {
    on_each_back_end_with(1, |server| {
        ask(&mut connect(server), "CONFIG SET busy-reply-threshold 10");
        test(server);
    });
}

/// Sends DBSIZE until the reply is the error about a busy script.
fn await_busy(client: &mut Client) {
    while matches!(ask(client, "DBSIZE"), Value::Integer(_)) {
        std::thread::yield_now();
    }
}

/// Sends a script and waits until it is busy; returns the client that sent it.
fn start(server: &Server, script: &str, keys: &str) -> Client {
    let mut client = connect(server);
    client.set_read_timeout(Duration::from_secs(60));
    send(&mut client, &format!("EVAL \"{script}\" {keys}"));
    await_busy(&mut connect(server));
    client
}

#[track_caller]
fn expect_killed(reply: &Value) {
    let Value::Error(line) = reply else { panic!("{reply:?}") };
    let line = String::from_utf8_lossy(line.as_ref()).into_owned();
    assert!(line.starts_with("ERR Script killed by user with SCRIPT KILL... script: "), "{line}");
}

#[test]
fn clients_old_and_new_are_answered_as_on_other_threads() {
    on_one_thread(|server| {
        let [mut old, mut queued] = [0; 2].map(|_| connect(server));
        expect(&mut queued, "MULTI", "OK");
        expect(&mut queued, "SET a 2", "QUEUED");
        let mut script = start(server, ENDLESS, "0");
        expect_answers(&mut old);
        expect_error(&mut queued, "EXEC", ABORTED);
        expect(&mut queued, "QUIT", "OK");
        assert_eq!(queued.read_to_end().expect("it is closed"), b"");
        let mut new = connect(server);
        expect_answers(&mut new);
        expect(&mut new, "SCRIPT KILL", "OK");
        expect_killed(&script.read().expect("a reply"));
        expect(&mut old, "PING", "PONG");
        assert_eq!(ask(&mut old, "EXISTS a"), Value::Integer(0));
    });
}

#[test]
fn what_is_pipelined_around_a_script_keeps_its_order() {
    on_one_thread(|server| {
        let mut client = connect(server);
        let mut others = [0; 5].map(|_| connect(server));
        send(&mut client, &format!("SET a 1\r\nEVAL \"{ENDLESS}\" 1 a\r\nINCR a\r\nGET a"));
        // They may arrive with the script, before it is busy, or later.
        others.iter_mut().for_each(|other| send(other, "PING\r\nPING"));
        await_busy(&mut connect(server));
        // More than one connection's share of a batch, which is not read while the script is
        // busy.
        send(&mut client, &"INCR a\r\n".repeat(500));
        for other in &mut others {
            for reply in other.read_many(2).expect("replies") {
                assert!(reply == Value::Simple("PONG".into()) || reply == Value::Error(BUSY.into()));
            }
        }
        assert_eq!(client.read().expect("sent before the script ends"), Value::Simple("OK".into()));
        expect(&mut others[0], "SCRIPT KILL", "OK");
        let replies = client.read_many(503).expect("replies");
        expect_killed(&replies[0]);
        assert_eq!(replies[1..3], [Value::Integer(2), Value::Bulk(b"2".to_vec())]);
        assert_eq!(replies[502], Value::Integer(502));
    });
}

#[test]
fn who_leaves_while_its_script_runs_is_forgotten() {
    on_one_thread(|server| {
        let mut admin = connect(server);
        let clients_before = info(&mut admin, "connected_clients");
        for _ in 0..3 {
            drop(start(server, ENDLESS, "0"));
            // A new client may get the slot of the closed one.
            let mut new = [0; 3].map(|_| connect(server));
            new.iter_mut().for_each(|new| expect_error(new, "PING", BUSY));
            expect(&mut admin, "SCRIPT KILL", "OK");
            new.iter_mut().for_each(|new| while ask(new, "PING") != Value::Simple("PONG".into()) {});
        }
        while info(&mut admin, "connected_clients") > clients_before {
            std::thread::yield_now();
        }
    });
}

#[test]
fn functions_transactions_and_scripts_that_hold_keys_are_busy_alike() {
    on_one_thread(|server| {
        let [mut admin, mut client] = [0; 2].map(|_| connect(server));
        let library = format!("#!lua name=l\nredis.register_function('f', function() {ENDLESS} end)");
        client.command(&["FUNCTION", "LOAD", &library]);
        send(&mut client, "FCALL f 0");
        await_busy(&mut admin);
        expect_error(&mut admin, "GET a", BUSY_FUNCTION);
        expect_error(&mut admin, "SCRIPT KILL", BUSY_FUNCTION);
        assert!(matches!(ask(&mut admin, "FUNCTION STATS"), Value::Array(_)));
        expect(&mut admin, "FUNCTION KILL", "OK");
        expect_killed(&client.read().expect("a reply"));
        send(&mut client, &format!("MULTI\r\nINCR n\r\nEVAL \"{ENDLESS}\" 0\r\nINCR n\r\nEXEC"));
        await_busy(&mut admin);
        expect(&mut admin, "SCRIPT KILL", "OK");
        let replies = client.read_many(5).expect("replies");
        let Value::Array(ran) = &replies[4] else { panic!("{replies:?}") };
        assert_eq!((&ran[0], &ran[2]), (&Value::Integer(1), &Value::Integer(2)));
        expect_killed(&ran[1]);
        let mut writer = start(server, "redis.call('SET', KEYS[1], 1) while true do end", "1 held");
        let unkillable = ask(&mut admin, "SCRIPT KILL");
        assert!(matches!(&unkillable, Value::Error(line) if line.starts_with(b"UNKILLABLE ")));
        expect_error(&mut admin, "GET free", BUSY);
        send(&mut admin, "SHUTDOWN NOSAVE");
        assert_eq!(admin.read_to_end().expect("it is closed"), b"");
        writer.read_to_end().expect("it is closed, perhaps behind a reply");
    });
}

//! Scripts as clients observe them. A script locks its keys or owns the keyspace; it may be undone
//! and run again, or be killed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, info, on_each_back_end, on_each_back_end_with};

fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> Value {
    let count = keys.len().to_string();
    let words = ["EVAL", script, &count].into_iter().chain(keys.iter().copied()).chain(args.iter().copied());
    client.command(&words.collect::<Vec<_>>())
}

fn ask(client: &mut Client, words: &str) -> Value {
    client.command(&words.split(' ').collect::<Vec<_>>())
}

#[track_caller]
fn expect_error(reply: &Value, start: &str) {
    match reply {
        Value::Error(line) => {
            let line = String::from_utf8_lossy(line.as_ref()).into_owned();
            assert!(line.starts_with(start), "{line}");
        }
        other => panic!("{other:?} is no error"),
    }
}

/// Returns the digest of the data and the number of changes since the last save.
fn digest(client: &mut Client) -> (Value, u64) {
    (ask(client, "DEBUG DIGEST"), info(client, "rdb_changes_since_last_save"))
}

/// A script that moves an amount between two keys. The second key is an argument, so it may be
/// undeclared.
const MOVE: &str = "redis.call('DECRBY', KEYS[1], ARGV[2]) redis.call('INCRBY', ARGV[1], ARGV[2]) \
                    return redis.call('GET', KEYS[1])";

#[test]
fn sums_hold_whatever_keys_are_declared() {
    const ACCOUNTS: u64 = 8;
    const MOVES: u64 = 400;
    on_each_back_end_with(3, |server| {
        let mut client = connect(server);
        for account in 0..ACCOUNTS {
            ask(&mut client, &format!("SET account:{account} 1000"));
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let movers: Vec<_> = (0..3)
                .map(|mover| {
                    scope.spawn(move || {
                        let mut client = connect(server);
                        let mut rng = fastrand::Rng::with_seed(mover);
                        for turn in 0..MOVES {
                            let (from, to) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS));
                            let [from, to] = [from, to].map(|account| format!("account:{account}"));
                            // Each text is new, so the server does not know yet that the script
                            // uses undeclared keys.
                            let script = format!("{MOVE} -- {mover} {turn}");
                            let keys = [&*from, &*to];
                            let declared = if rng.bool() { &keys[..] } else { &keys[..1] };
                            let reply = eval(&mut client, &script, declared, &[&to, "7"]);
                            assert!(matches!(reply, Value::Bulk(_)), "{reply:?}");
                        }
                    })
                })
                .collect();
            let reader = scope.spawn(|| {
                let mut client = connect(server);
                let sum = "local sum = 0 for i = 0, 7 do sum = sum + redis.call('GET', 'account:' .. i) end \
                           return sum";
                while !is_over.load(Relaxed) {
                    assert_eq!(eval(&mut client, sum, &[], &[]), Value::Integer(8 * 1000));
                }
            });
            movers.into_iter().for_each(|mover| mover.join().expect("its replies are good"));
            is_over.store(true, Relaxed);
            reader.join().expect("all sums are the same");
        });
        assert!(info(&mut client, "scripts_parallel") > 0);
    });
}

#[test]
fn a_script_waits_for_a_key_that_it_did_not_declare() {
    on_each_back_end(|server| {
        let over = AtomicBool::new(false);
        let (held, added) = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut client = connect(server);
                let hold = "local start = os.clock() while os.clock() - start < 0.002 do end \
                            return redis.call('INCR', KEYS[1])";
                let mut held = 0;
                while !over.load(Relaxed) {
                    eval(&mut client, hold, &["hot"], &[]);
                    held += 1;
                }
                held
            });
            // With several clients, some are on another thread than the holder.
            let mut clients: Vec<_> = (0..8).map(|_| connect(server)).collect();
            let mut added = 0;
            while info(&mut clients[0], "scripts_rerun") == 0 && added < 20_000 {
                for client in &mut clients {
                    eval(client, "return redis.call('INCR', ARGV[1])", &[], &["hot"]);
                    added += 1;
                }
            }
            over.store(true, Relaxed);
            (holder.join().expect("its replies are good"), added)
        });
        let mut client = connect(server);
        assert!(info(&mut client, "scripts_rerun") > 0);
        assert_eq!(ask(&mut client, "GET hot"), Value::Bulk((held + added).to_string().into()));
    });
}

#[test]
fn a_script_that_runs_again_leaves_one_trace() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "RPUSH list a b c");
        ask(&mut client, "SET text old EX 1000");
        ask(&mut client, "ZADD ranks 1 a 2 b");
        let before = digest(&mut client);
        // The script is undone, runs again with exclusive access, and fails at the same place.
        let script = "redis.call('RPUSH', KEYS[1], 'd') redis.call('DEL', KEYS[2]) redis.call('SET', KEYS[4], 1) \
                      redis.call('ZADD', KEYS[3], 3, 'c') \
                      if redis.call('PUBLISH', 'nobody', 'x') == 0 then \
                        redis.call('LTRIM', KEYS[1], 0, 2) redis.call('SET', KEYS[2], 'old', 'EX', 1000) \
                        redis.call('ZREM', KEYS[3], 'c') redis.call('DEL', KEYS[4]) \
                      end return redis.call('LRANGE', KEYS[1], 0, -1)";
        let reply = eval(&mut client, script, &["list", "text", "ranks", "new"], &[]);
        assert_eq!(reply, Value::Array(["a", "b", "c"].map(|text| Value::Bulk(text.into())).into()));
        let after = digest(&mut client);
        assert_eq!(before.0, after.0);
        assert_eq!(after.1 - before.1, 8, "only the second run counts");
        assert_eq!(info(&mut client, "scripts_rerun"), 1);
        eval(&mut client, script, &["list", "text", "ranks", "new"], &[]);
        assert_eq!(info(&mut client, "scripts_rerun"), 1, "it is known now");
    });
}

#[test]
fn what_a_group_was_given_is_taken_back_when_a_script_runs_again() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for words in ["XADD stream 1-1 a 1", "XADD stream 2-1 a 1", "XGROUP CREATE stream group 0"] {
            ask(&mut client, words);
        }
        let script = "local given = redis.call('XREADGROUP', 'GROUP', 'group', 'one', 'COUNT', 1, \
                                               'STREAMS', KEYS[1], '>') \
                      redis.call('PUBLISH', 'nobody', 'x') return given[1][2][1][1]";
        assert_eq!(eval(&mut client, script, &["stream"], &[]), Value::Bulk("1-1".into()));
        assert_eq!(info(&mut client, "scripts_rerun"), 1);
        let pending = ask(&mut client, "XPENDING stream group - + 10");
        assert!(matches!(&pending, Value::Array(entries) if entries.len() == 1), "{pending:?}");
    });
}

#[test]
fn errors_end_scripts_and_what_they_did_stays() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let script = "redis.call('SET', KEYS[1], 'x') return redis.call('LPOP', KEYS[1])";
        let reply = eval(&mut client, script, &["key"], &[]);
        expect_error(&reply, "WRONGTYPE Operation against a key holding the wrong kind of value script: ");
        assert_eq!(ask(&mut client, "GET key"), Value::Bulk("x".into()));
        for (script, start) in [
            ("return redis.call('MULTI')", "ERR This Redis command is not allowed from script script: "),
            (
                "return redis.call('GET')",
                "ERR Wrong number of args calling Redis command from script script: ",
            ),
            ("return redis.call('BAD')", "ERR Unknown Redis command called from script script: "),
            ("return", ""),
            ("retur", "ERR Error compiling script (new function): user_script:1: "),
        ] {
            let reply = eval(&mut client, script, &["key"], &[]);
            if !start.is_empty() {
                expect_error(&reply, start);
            }
        }
        let reply = client.command(&["EVAL", "return 1", "2", "key"]);
        expect_error(&reply, "ERR Number of keys can't be greater than number of args");
        expect_error(&client.command(&["EVAL", "return 1", "-1"]), "ERR Number of keys can't be negative");
        let reply = client.command(&["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", "key"]);
        expect_error(&reply, "ERR Write commands are not allowed from read-only scripts. script: ");
    });
}

#[test]
fn scripts_are_cached_until_they_are_flushed() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let missing = "NOSCRIPT No matching script. Please use EVAL.";
        expect_error(&ask(&mut client, &format!("EVALSHA {sha} 0")), missing);
        assert_eq!(client.command(&["SCRIPT", "LOAD", "return 1"]), Value::Bulk(sha.into()));
        assert_eq!(ask(&mut client, &format!("EVALSHA {} 0", sha.to_uppercase())), Value::Integer(1));
        assert_eq!(ask(&mut client, &format!("SCRIPT SHOW {sha}")), Value::Bulk("return 1".into()));
        let exists = ask(&mut client, &format!("SCRIPT EXISTS {sha} {}", "0".repeat(40)));
        assert_eq!(exists, Value::Array([1, 0].map(Value::Integer).into()));
        assert_eq!(ask(&mut client, "SCRIPT FLUSH"), Value::Simple("OK".into()));
        expect_error(&ask(&mut client, &format!("EVALSHA {sha} 0")), missing);
        // Scripts of EVAL are bounded; loaded scripts stay.
        client.command(&["SCRIPT", "LOAD", "return 1"]);
        for number in 0..600 {
            eval(&mut client, &format!("return {number} -- text"), &[], &[]);
        }
        assert_eq!(info(&mut client, "number_of_cached_scripts"), 501);
        assert_eq!(info(&mut client, "evicted_scripts"), 100);
        assert_eq!(ask(&mut client, &format!("EVALSHA {sha} 0")), Value::Integer(1));
    });
}

/// Starts an endless script and waits until it is busy; returns the client that sent it.
fn start_endless(server: &Server, script: &str, keys: &str) -> Client {
    ask(&mut connect(server), "CONFIG SET busy-reply-threshold 20");
    let mut client = connect(server);
    client.send(format!("EVAL \"{script}\" {keys}\r\n").as_bytes()).expect("the server reads");
    loop {
        let mut probe = connect(server);
        probe.set_read_timeout(Duration::from_millis(200));
        if matches!(probe.request(&["DBSIZE"]), Ok(Value::Error(_))) {
            return client;
        }
    }
}

#[test]
fn an_endless_script_is_killed() {
    for threads in [1, 2] {
        on_each_back_end_with(threads, |server| {
            for script in [
                "while true do end",
                "while true do pcall(function() while true do end end) end",
                "while true do redis.call('GET', 'key') end",
                "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
            ] {
                let mut client = start_endless(server, script, "0");
                let mut other = connect(server);
                expect_error(&ask(&mut other, "GET key"), "BUSY ");
                assert_eq!(ask(&mut other, "SCRIPT KILL"), Value::Simple("OK".into()));
                let reply = client.read().expect("the script was ended");
                expect_error(&reply, "ERR Script killed by user with SCRIPT KILL... script: ");
                assert_eq!(ask(&mut client, "GET key"), Value::Null);
            }
        });
    }
}

#[test]
fn a_script_that_has_written_is_not_killed() {
    on_each_back_end(|server| {
        let script = "redis.call('SET', KEYS[1], 1) while redis.call('GET', KEYS[1]) == '1' do end";
        let _client = start_endless(server, script, "1 key");
        let mut other = connect(server);
        expect_error(&ask(&mut other, "SCRIPT KILL"), "UNKILLABLE Sorry the script already executed write");
        // A shutdown of the server ends it.
    });
}

#[test]
fn transactions_run_scripts() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "MULTI");
        ask(&mut client, "INCR key");
        eval(&mut client, "return redis.call('INCR', KEYS[1])", &["key"], &[]);
        eval(&mut client, "return redis.call('INCR', 'other')", &[], &[]);
        let replies = Value::Array([1, 2, 1].map(Value::Integer).into());
        assert_eq!(ask(&mut client, "EXEC"), replies);
    });
}

#[test]
fn issue_33_scripts_of_others_leave_room_within_the_memory_limit_of_lua() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "CONFIG SET lua-memory-limit 4mb");
        // Compiled, they take several times the limit.
        let body = "if KEYS[1] then return redis.call('GET', KEYS[1]) end ".repeat(400);
        for number in 0..200 {
            let script = format!("{body} return {number}");
            let reply = client.command(&["EVAL", &script, "0"]).to_string();
            assert_eq!(reply, format!("(integer) {number}"));
        }
        assert_eq!(
            client.command(&["EVAL", "return #string.rep('x', 1000000)", "0"]).to_string(),
            "(integer) 1000000"
        );
    });
}

#[test]
fn scripts_do_not_take_more_memory_than_they_may() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "CONFIG SET lua-memory-limit 4mb");
        for script in [
            "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
            "return #string.rep('x', 1e9)",
            "local s = 'x' while true do s = s .. s end",
            "local t = {} for i = 1, 1e9 do t[i] = i end",
            "return #table.concat({('x'):rep(2e6), ('y'):rep(2e6), ('z'):rep(2e6)})",
            "local t = {} while true do t = {t} end",
            "return cjson.encode(string.rep('x', 3e6))",
        ] {
            let reply = eval(&mut client, script, &[], &[]);
            let Value::Error(line) = &reply else { panic!("{script}: {reply:?}") };
            let line = String::from_utf8_lossy(line.as_ref()).into_owned();
            assert!(line.contains("not enough memory"), "{script}: {line}");
            assert_eq!(eval(&mut client, "return 1", &[], &[]), Value::Integer(1));
        }
        assert!(info(&mut client, "used_memory_lua") < 16 << 20);
    });
}

#[test]
fn deep_recursion_ends_in_an_error() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for script in [
            "local function f() return 1 + f() end return f()",
            "local function f() return pcall(f) end return tostring(f())",
            "local function f(s) return (s:gsub('.', f)) end return tostring(pcall(f, 'x'))",
            "local function f() return coroutine.wrap(f)() end return tostring(pcall(f))",
            "local function f() return coroutine.resume(coroutine.create(f)) end return tostring(f())",
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end \
             return tostring(pcall(function() return t.x end))",
            "return loadstring(('('):rep(100000))",
            "return loadstring('return ' .. ('{'):rep(100000))",
            "return tostring(select('#', unpack({}, 1, 7000)))",
            "return {pcall(unpack, {}, 1, 1e8)}",
            "return {pcall(string.rep, 'x', -1)}",
            "table.sort({3, 2, 1, 5, 4}, function() return true end)",
        ] {
            eval(&mut client, script, &[], &[]);
            assert_eq!(eval(&mut client, "return 1", &[], &[]), Value::Integer(1), "{script}");
        }
    });
}

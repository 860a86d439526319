//! SCRIPT DEBUG: the replies of the debugger, and its effects on other clients.
//!
//! `debugger.txt` has sessions of Redis 8.0.2, the same with SYNC and YES. A session begins with
//! the command that runs the script with its keys (`@`), and the script's lines (`|`). Then come
//! the client's commands (`>`), and the lines of each reply (`<`). The script's own reply (`=`)
//! follows the debugger's last reply; then the connection is closed. Bytes are in the form of
//! `escape_ascii`.

use std::time::{Duration, Instant};

use server::Server;
use testkit::{Client, ClientError, Value, saker};

use crate::support::{BINARY, connect, connect_on, info, on_each_back_end, on_each_back_end_with};

fn ask(client: &mut Client, words: &str) -> Value {
    client.command(&words.split(' ').collect::<Vec<_>>())
}

/// Starts a client that debugs a script with the mode `mode` of SCRIPT DEBUG. The script stops at
/// its first line.
fn debug(server: &Server, mode: &str, script: &str, keys: &[&str]) -> Client {
    let mut client = connect(server);
    assert_eq!(ask(&mut client, &format!("SCRIPT DEBUG {mode}")), Value::Simple("OK".into()));
    let count = keys.len().to_string();
    let lines = lines_of(client.command(&[&["EVAL", script, &count][..], keys].concat()));
    assert!(lines[0].starts_with("* Stopped at 1"), "{lines:?}");
    client
}

/// Returns the lines of the debugger's reply `reply`.
#[track_caller]
fn lines_of(reply: Value) -> Vec<String> {
    let Value::Array(lines) = reply else { panic!("{reply:?} is no reply of the debugger") };
    let text = |line| match line {
        Value::Simple(line) => line.escape_ascii().to_string(),
        other => panic!("{other:?} is no line"),
    };
    lines.into_iter().map(text).collect()
}

fn say(client: &mut Client, words: &str) -> Vec<String> {
    lines_of(ask(client, words))
}

/// Lets the script continue to its end and returns its reply. Checks that the connection is then
/// closed.
fn finish(client: &mut Client) -> Value {
    let lines = say(client, "c");
    assert_eq!(lines.last().map(String::as_str), Some("<endsession>"), "{lines:?}");
    let reply = client.read().expect("the script's reply");
    assert_eq!(client.read_to_end().expect("closed"), b"");
    reply
}

/// Formats a reply as in `debugger.txt`.
fn shown(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        _ => "nil".to_owned(),
    }
}

/// Returns the bytes that `escape_ascii` has formatted as `text`.
fn unescape(text: &str) -> Vec<u8> {
    let quoted = format!("\"{}\"", text.replace("\\'", "'"));
    stdx::quoted::split_quoted(quoted.as_bytes()).expect("escaped text").remove(0)
}

/// Runs a session of `debugger.txt` and returns it with the received replies, in the format of that
/// file.
fn replay(server: &Server, mode: &str, expected: &str) -> String {
    let mut client = connect(server);
    ask(&mut client, "FLUSHALL");
    ask(&mut client, "SCRIPT FLUSH");
    assert_eq!(ask(&mut client, &format!("SCRIPT DEBUG {mode}")), Value::Simple("OK".into()));
    let part = |mark| expected.lines().filter_map(move |line| line.strip_prefix(mark));
    let first = part("@ ").next().expect("a command");
    let (name, call) = first.split_once(' ').expect("a number of keys");
    let script: Vec<Vec<u8>> = part("| ").map(unescape).collect();
    let mut request = vec![name.as_bytes().to_vec(), script.join(&b'\n')];
    request.extend(call.split(' ').map(|word| word.as_bytes().to_vec()));
    let mut found = format!("@ {first}\n");
    part("| ").for_each(|line| found += &format!("| {line}\n"));
    let note = |reply: Value, found: &mut String| {
        lines_of(reply).iter().for_each(|line| *found += &format!("< {line}\n"));
    };
    note(client.command(&request), &mut found);
    for command in part("> ") {
        found += &format!("> {command}\n");
        note(ask(&mut client, command), &mut found);
    }
    found += &format!("= {}\n", shown(&client.read().expect("the script's reply")));
    assert_eq!(client.read_to_end().expect("closed"), b"");
    found
}

#[test]
fn sessions_are_as_in_redis() {
    on_each_back_end(|server| {
        for expected in include_str!("debugger.txt").split("\n\n") {
            let expected = format!("{}\n", expected.trim_matches('\n'));
            if expected.trim().is_empty() {
                continue;
            }
            for mode in ["SYNC", "YES"] {
                let found = replay(server, mode, &expected);
                let different: Vec<_> = expected
                    .lines()
                    .zip(found.lines())
                    .filter(|(expected, found)| expected != found)
                    .map(|(expected, found)| format!("redis {expected}\nhere  {found}"))
                    .collect();
                assert!(
                    different.is_empty() && expected.lines().count() == found.lines().count(),
                    "{mode} {expected}\n{}\n{found}",
                    different.join("\n")
                );
            }
        }
    });
}

#[test]
fn with_yes_nobody_notices_the_script_and_nothing_of_it_stays() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "MSET a old b old");
        ask(&mut client, "RPUSH list x y");
        let script = "redis.call('SET', 'a', 'new')\nredis.call('RPUSH', 'list', 'z')\n\
                      return {redis.call('GET', 'a'), redis.call('GET', 'b'), redis.call('DBSIZE'), \
                      redis.call('LRANGE', 'list', 0, -1), redis.call('GET', 'c')}";
        let mut debugging = debug(server, "YES", script, &["a"]);
        say(&mut debugging, "s");
        say(&mut debugging, "s");
        // Other clients read the old value, and write the value that the script reads later.
        assert_eq!(shown(&ask(&mut client, "GET a")), "\"old\"");
        ask(&mut client, "MSET a newer b newer");
        assert_eq!(shown(&finish(&mut debugging)), r#"["new", "newer", :3, ["x", "y", "z"], nil]"#);
        let values = shown(&ask(&mut client, "MGET a b c"));
        assert_eq!(values, r#"["newer", "newer", nil]"#);
        assert_eq!(ask(&mut client, "LLEN list"), Value::Integer(2));
        let script = "redis.call('FLUSHALL')\nreturn redis.call('DBSIZE')";
        assert_eq!(finish(&mut debug(server, "YES", script, &[])), Value::Integer(0));
        assert_eq!(ask(&mut client, "DBSIZE"), Value::Integer(3));
        let script = "redis.call('COPY', 'a', 'a', 'DB', '3')\nredis.call('SELECT', 3)\n\
                      return redis.call('GET', 'a')";
        assert_eq!(shown(&finish(&mut debug(server, "YES", script, &[]))), "\"newer\"");
        assert_eq!(ask(&mut client, "COPY a a DB 3"), Value::Integer(1));
    });
}

#[test]
fn with_sync_the_script_owns_the_keyspace_and_its_changes_stay() {
    on_each_back_end_with(2, |server| {
        let mut others = [0, 1].map(|thread| connect_on(server, thread));
        let mut blocked = connect(server);
        blocked.send(b"BLPOP queue 0\r\n").expect("sent");
        while info(&mut others[0], "blocked_clients") != 1 {
            std::thread::yield_now();
        }
        let script = "redis.call('RPUSH', 'queue', 'x', 'y')\nreturn redis.call('SET', 'a', '1')";
        let mut debugging = debug(server, "SYNC", script, &[]);
        for other in &mut others {
            let reply = ask(other, "GET a");
            assert!(matches!(&reply, Value::Error(line) if line.starts_with(b"BUSY")), "{reply:?}");
            assert_eq!(ask(other, "PING"), reply);
        }
        say(&mut debugging, "s");
        // It has written, so it cannot be killed.
        let reply = ask(&mut others[0], "SCRIPT KILL");
        assert!(matches!(&reply, Value::Error(line) if line.starts_with(b"UNKILLABLE")), "{reply:?}");
        assert_eq!(finish(&mut debugging), Value::Simple("OK".into()));
        assert_eq!(shown(&ask(&mut others[1], "GET a")), "\"1\"");
        assert_eq!(shown(&blocked.read().expect("served")), r#"["queue", "x"]"#);
        assert_eq!(shown(&ask(&mut others[0], "LRANGE queue 0 -1")), r#"["y"]"#);
    });
}

#[test]
fn script_kill_ends_a_script_that_stands_still_and_has_not_written() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        let mut debugging = debug(server, "SYNC", "redis.call('GET', 'a')\nreturn 1", &[]);
        say(&mut debugging, "s");
        assert_eq!(ask(&mut other, "SCRIPT KILL"), Value::Simple("OK".into()));
        assert_eq!(lines_of(debugging.read().expect("the end")), ["<endsession>"]);
        let reply = shown(&debugging.read().expect("the script's reply"));
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL."), "{reply}");
        assert_eq!(ask(&mut other, "GET a"), ask(&mut connect(server), "GET a"));
        // Code sent by the client can be killed, too.
        let mut debugging = debug(server, "SYNC", "return 1", &[]);
        debugging.send(b"*2\r\n$4\r\neval\r\n$17\r\nwhile true do end\r\n").expect("sent");
        while ask(&mut other, "SCRIPT KILL") != Value::Simple("OK".into()) {
            std::thread::yield_now();
        }
        assert_eq!(
            lines_of(debugging.read().expect("the end")).last().map(String::as_str),
            Some("<endsession>")
        );
    });
}

#[test]
fn a_client_that_leaves_lets_its_script_run_to_its_end() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        for mode in ["SYNC", "YES"] {
            let script = "redis.breakpoint()\nredis.call('SET', 'done', ARGV[1] or 'yes')\nreturn 1";
            drop(debug(server, mode, script, &[]));
            // After some time the next session gets the free slot, and the keyspace.
            let since = Instant::now();
            while matches!(ask(&mut other, "GET done"), Value::Error(_)) {
                assert!(since.elapsed() < Duration::from_secs(20), "{mode}");
                std::thread::yield_now();
            }
            assert_eq!(shown(&ask(&mut other, "GET done")), "\"yes\"", "{mode}: only SYNC writes");
        }
        // An endless script is ended.
        ask(&mut other, "CONFIG SET busy-reply-threshold 50");
        drop(debug(server, "SYNC", "while true do end", &[]));
        let since = Instant::now();
        while matches!(ask(&mut other, "GET done"), Value::Error(_)) {
            assert!(since.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_script_that_never_ends_stops_after_a_while() {
    on_each_back_end(|server| {
        ask(&mut connect(server), "CONFIG SET busy-reply-threshold 50");
        for mode in ["SYNC", "YES"] {
            let mut debugging = debug(server, mode, "while true do end", &[]);
            let lines = say(&mut debugging, "c");
            assert_eq!(lines[0], "* Stopped at 1, stop reason = timeout reached, infinite loop?");
            assert_eq!(say(&mut debugging, "a"), ["<endsession>"]);
        }
    });
}

#[test]
fn what_cannot_be_debugged_is_refused() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let error = |text: &str| Value::Error(text.into());
        for words in ["SCRIPT DEBUG MAYBE", "SCRIPT DEBUG on"] {
            assert_eq!(ask(&mut client, words), error("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
        }
        let replies = client.pipeline(&[vec!["PING"], vec!["SCRIPT", "DEBUG", "YES"]]).expect("replies");
        assert_eq!(replies[1], error("ERR SCRIPT DEBUG must be called outside a pipeline"));
        ask(&mut client, "SCRIPT DEBUG SYNC");
        let sha = ["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"];
        assert_eq!(client.command(&sha), error("ERR Please use EVAL instead of EVALSHA for debugging"));
        ask(&mut client, "MULTI");
        client.command(&["EVAL", "return 1", "0"]);
        let refused = error("ERR a script in a transaction cannot be debugged");
        assert_eq!(ask(&mut client, "EXEC"), Value::Array(vec![refused]));
        assert_eq!(ask(&mut client, "FCALL none 0"), error("ERR Function not found"));
        ask(&mut client, "SCRIPT DEBUG NO");
        assert_eq!(client.command(&["EVAL", "return 1", "0"]), Value::Integer(1));
        // Requests after the command that ends the connection are dropped, as in Redis.
        let mut sessions: Vec<Client> = (0..4).map(|_| debug(server, "YES", "return 1", &[])).collect();
        ask(&mut client, "SCRIPT DEBUG YES");
        let reply = client.command(&["EVAL", "return 1", "0"]);
        assert_eq!(reply, error("ERR too many scripts are debugged at the moment"));
        assert_eq!(finish(&mut sessions[2]), Value::Integer(1));
        assert_eq!(lines_of(client.command(&["EVAL", "return 1", "0"])).len(), 2);
        // A client that sends too much, or an invalid command.
        sessions[0].send(b"nonsense\r\n").expect("sent");
        assert_eq!(lines_of(sessions[0].read().expect("the end")), ["<endsession>"]);
        let sent =
            sessions[1].send(&[b"*2\r\n$1\r\ne\r\n$1024\r\n".as_slice(), &vec![b'x'; 2 << 20]].concat());
        let ended: Result<Value, ClientError> = sent.and_then(|()| sessions[1].read());
        assert!(ended.is_err() || lines_of(ended.expect("looked at")) == ["<endsession>"]);
    });
}

#[test]
fn a_debugged_script_has_the_rights_of_its_user() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        ask(&mut client, "SET secret 1");
        ask(&mut client, "ACL SETUSER alice on nopass ~open* +@all");
        ask(&mut client, "AUTH alice any");
        for mode in ["YES", "SYNC"] {
            let mut debugging = connect(server);
            ask(&mut debugging, "AUTH alice any");
            ask(&mut debugging, &format!("SCRIPT DEBUG {mode}"));
            debugging.command(&["EVAL", "return 1", "0"]);
            let lines = say(&mut debugging, "r GET secret");
            assert!(lines[1].contains("NOPERM") || lines[1].contains("access"), "{mode}: {lines:?}");
            assert_eq!(say(&mut debugging, "r GET open")[1], "<reply> NULL");
            assert_eq!(finish(&mut debugging), Value::Integer(1));
        }
    });
}

#[test]
fn the_server_ends_although_a_script_stands_still() {
    for mode in ["SYNC", "YES"] {
        let options = ["--save", "", "--io-threads", "2"];
        let mut server = saker::start_binary(BINARY, &options).expect("starts");
        let mut client = server.connect();
        ask(&mut client, &format!("SCRIPT DEBUG {mode}"));
        client.command(&["EVAL", "redis.call('SET', 'a', '1')\nreturn 1", "0"]);
        say(&mut client, "s");
        server.connect().send(b"SHUTDOWN NOSAVE\r\n").expect("sent");
        assert_eq!(server.wait(Duration::from_secs(60)).expect("ends"), Some(0), "{mode}");
    }
}

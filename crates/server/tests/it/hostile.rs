//! Wrong, huge or unfinished input, and clients that do not read or disappear. The server replies
//! with the error of Redis and closes the connection. Its memory stays bounded, and other clients
//! are not affected.

use server::Server;
use testkit::{Client, Value};

use crate::support::{as_process_on_each_back_end, connect, on_each_back_end};

/// The memory that the tests allow the server to use while clients misbehave, in bytes. A test
/// fails if INFO shows as much or more. It is no setting of the server.
const MEMORY_BYTES_MAX: i64 = 100 << 20;

/// Checks that the server still replies to other clients.
fn assert_unharmed(client: &mut Client) {
    assert_eq!(client.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
}

/// Returns `used_memory` of `INFO memory`.
fn used_memory(client: &mut Client) -> i64 {
    let info = client.command(&["INFO", "memory"]);
    let text = String::from_utf8_lossy(info.as_bytes().expect("INFO answers text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("the field exists").parse().expect("it is a number")
}

fn check_refused(server: &Server, input: &[u8], expected: &str) {
    let mut client = connect(server);
    // The server may close the connection before all bytes are sent.
    let _ = client.send(input);
    let shown = input[..input.len().min(60)].escape_ascii();
    match client.read() {
        Ok(Value::Error(text)) => assert_eq!(String::from_utf8_lossy(&text), expected, "{shown}"),
        other => panic!("{shown} was answered {other:?}"),
    }
    assert!(client.read().is_err(), "still open after {shown}");
}

#[test]
fn the_output_limit_spares_what_is_up_to_16_kb() {
    on_each_back_end(|server| {
        let mut admin = connect(server);
        for (key, len) in [("small", 16_000), ("large", 20_000)] {
            admin.command(&["SET", key, &"x".repeat(len)]);
        }
        admin.command(&["CONFIG", "SET", "client-output-buffer-limit", "normal 1 1 1"]);
        let mut client = connect(server);
        assert_eq!(client.command(&["GET", "small"]), Value::Bulk(vec![b'x'; 16_000]));
        assert!(client.request(&["GET", "large"]).is_err(), "a client over its limit is closed");
        assert_unharmed(&mut admin);
    });
}

#[test]
fn malformed_requests_get_the_error_of_redis_and_the_end() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        check_refused(server, b"*abc\r\n", "ERR Protocol error: invalid multibulk length");
        check_refused(server, b"*1048577000000\r\n", "ERR Protocol error: invalid multibulk length");
        check_refused(server, b"*1\r\nabc\r\n", "ERR Protocol error: expected '$', got 'a'");
        check_refused(server, b"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length");
        check_refused(server, b"*1\r\n$abc\r\n", "ERR Protocol error: invalid bulk length");
        check_refused(server, b"*1\r\n$9999999999999\r\n", "ERR Protocol error: invalid bulk length");
        check_refused(server, b"SET k \"open\r\n", "ERR Protocol error: unbalanced quotes in request");
        check_refused(server, &[b'a'; 70_000], "ERR Protocol error: too big inline request");
        check_refused(
            server,
            &[b"*1", &[b'1'; 70_000][..]].concat(),
            "ERR Protocol error: too big mbulk count string",
        );
        check_refused(
            server,
            &[b"*1\r\n$1", &[b'1'; 70_000][..]].concat(),
            "ERR Protocol error: too big bulk count string",
        );
        assert_unharmed(&mut other);
    });
}

#[test]
fn requests_before_a_malformed_one_are_answered() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        client.send(b"*1\r\n$4\r\nPING\r\n*x\r\n").unwrap();
        assert_eq!(client.read().unwrap(), Value::Simple(b"PONG".to_vec()));
        assert!(client.read().unwrap().is_error());
        assert!(client.read().is_err());
    });
}

#[test]
fn what_is_claimed_and_not_sent_costs_nothing() {
    as_process_on_each_back_end(|server| {
        let mut other = server.connect();
        let mut claimants: Vec<Client> = (0..200).map(|_| server.connect()).collect();
        for client in &mut claimants {
            client.send(b"*1000000\r\n$536870912\r\nabc").unwrap();
        }
        assert_unharmed(&mut other);
        let used = used_memory(&mut other);
        assert!(used < MEMORY_BYTES_MAX, "{used} bytes");
    });
}

#[test]
fn a_client_that_does_not_read_is_held_in_bounded_memory() {
    const VALUE_BYTES: usize = 256 * 1024;
    const REQUESTS: usize = 2_000;
    as_process_on_each_back_end(|server| {
        let mut other = server.connect();
        other.command(&[&b"SET"[..], b"big", &vec![b'v'; VALUE_BYTES][..]]);
        let mut slow = server.connect();
        slow.send(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(REQUESTS)).unwrap();
        for _ in 0..200 {
            assert_unharmed(&mut other);
        }
        let used = used_memory(&mut other);
        assert!(used < MEMORY_BYTES_MAX, "{used} bytes");
        for _ in 0..REQUESTS {
            assert!(matches!(slow.read(), Ok(Value::Bulk(value)) if value.len() == VALUE_BYTES));
        }
    });
}

#[test]
fn clients_that_vanish_in_the_middle_leave_no_trace() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        for cut in 0..200 {
            let mut client = connect(server);
            let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100\r\n".repeat(cut % 3 + 1);
            client.send(&request[..request.len() - cut % 20]).unwrap();
            client.send(&b"*1\r\n$4\r\nPING\r\n".repeat(cut)).ok();
        }
        assert_unharmed(&mut other);
    });
}

#[test]
fn garbage_on_many_connections_harms_nobody() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        let mut rng = testkit::Rng::new(1);
        for _ in 0..300 {
            let mut client = connect(server);
            let garbage: Vec<u8> = (0..rng.below(4_000)).map(|_| rng.next_u64() as u8).collect();
            let _ = client.send(&garbage);
        }
        assert_unharmed(&mut other);
    });
}

#[test]
fn a_browser_is_cut_off_before_the_commands_it_smuggles() {
    on_each_back_end(|server| {
        for line in ["POST / HTTP/1.1\r\n", "host: example.org\r\n"] {
            let mut browser = connect(server);
            browser.send(format!("{line}SET smuggled 1\r\n").as_bytes()).unwrap();
            assert_eq!(browser.read_to_end().unwrap(), b"");
            assert_eq!(connect(server).command(&["EXISTS", "smuggled"]), Value::Integer(0));
        }
    });
}

/// Queues commands in a transaction until the server closes the connection, and returns their
/// number. Each command has one argument of `word_len` bytes.
fn queued_before_the_end(server: &Server, word_len: usize) -> usize {
    let mut client = connect(server);
    client.command(&["MULTI"]);
    let word = vec![b'x'; word_len];
    let mut queued = 0;
    while let Ok(reply) = client.request(&[b"DEL", &word[..]]) {
        assert_eq!(reply, Value::Simple(b"QUEUED".to_vec()));
        queued += 1;
    }
    queued
}

#[test]
fn a_transaction_that_is_queued_counts_as_unread_input() {
    on_each_back_end(|server| {
        let mut other = connect(server);
        other.command(&["CONFIG", "SET", "client-query-buffer-limit", "1mb"]);
        // As in Redis 8.0.2: the words and a pointer for each, plus the input not yet parsed.
        for (word_len, expected) in [(900_000, 1), (500_000, 2), (100_000, 10), (1_000, 1_029)] {
            assert_eq!(queued_before_the_end(server, word_len), expected, "words of {word_len} bytes");
        }
        let info = other.command(&["INFO", "stats"]).to_string();
        assert!(info.contains("client_query_buffer_limit_disconnections:4"), "{info}");
        // Executed and discarded commands no longer count.
        let mut client = connect(server);
        for end in ["EXEC", "DISCARD", "EXEC"] {
            client.command(&["MULTI"]);
            for _ in 0..9 {
                client.command(&["DEL", &"x".repeat(100_000)]);
            }
            assert!(!client.command(&[end]).is_error());
        }
        assert_unharmed(&mut other);
    });
}

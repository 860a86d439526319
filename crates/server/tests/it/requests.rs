//! Requests as clients may send them: split at any byte, pipelined, inline, from many connections
//! at once, over TCP and a Unix socket.

use std::thread;

use server::Server;
use testkit::{Address, Client, Value};

use crate::support::{connect, on_each_back_end};

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

#[test]
fn a_request_may_be_cut_at_any_byte() {
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva\r\nl\r\n";
    on_each_back_end(|server| {
        let mut client = connect(server);
        for at in 1..request.len() {
            client.send(&request[..at]).unwrap();
            // The reply to another connection shows that the server had time to read the first
            // part.
            connect(server).command(&["PING"]);
            client.send(&request[at..]).unwrap();
            assert_eq!(client.read().unwrap(), simple("OK"), "cut at {at}");
        }
        assert_eq!(client.command(&["GET", "k"]), bulk("va\r\nl"));
    });
}

#[test]
fn a_request_may_come_byte_by_byte() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for byte in b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\nPING\r\n" {
            client.send(&[*byte]).unwrap();
        }
        assert_eq!(client.read().unwrap(), bulk("abc"));
        assert_eq!(client.read().unwrap(), simple("PONG"));
    });
}

#[test]
fn a_deep_pipeline_is_answered_in_order() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let commands: Vec<Vec<String>> = (0..20_000)
            .map(|n| match n % 3 {
                0 => vec!["SET".into(), format!("k{}", n % 100), n.to_string()],
                1 => vec!["ECHO".into(), n.to_string()],
                _ => vec!["INCR".into(), "counter".into()],
            })
            .collect();
        let replies = client.pipeline(&commands).unwrap();
        for (n, reply) in replies.into_iter().enumerate() {
            let expected = match n % 3 {
                0 => simple("OK"),
                1 => bulk(&n.to_string()),
                _ => Value::Integer(n as i64 / 3 + 1),
            };
            assert_eq!(reply, expected, "reply {n}");
        }
    });
}

#[test]
fn inline_commands_are_typed_by_people() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        client.send(b"SET  key 'a \"b\"'\r\nget key\nECHO \"\\x41\\n\"\r\n\r\n\r\nPING\r\n").unwrap();
        let expected = [simple("OK"), bulk("a \"b\""), bulk("A\n"), simple("PONG")];
        assert_eq!(client.read_many(4).unwrap(), expected);
    });
}

#[test]
fn values_of_any_size_and_content_come_back() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        for len in [0, 1, 15, 16, 17, 63, 64, 1_000, 16_383, 16_384, 65_537, 3_000_000] {
            let value: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
            assert_eq!(client.command(&[&b"SET"[..], b"k", &value[..]]), simple("OK"));
            assert!(client.command(&["GET", "k"]) == Value::Bulk(value), "{len} bytes");
        }
    });
}

#[test]
fn connections_on_all_threads_count_together() {
    const CONNECTIONS: usize = 16;
    const EACH: usize = 500;
    on_each_back_end(|server| {
        let address = Address::port(server.port());
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    let mut client = Client::connect(&address).unwrap();
                    for _ in 0..EACH {
                        client.command(&["INCR", "n"]);
                    }
                });
            }
        });
        let total = (CONNECTIONS * EACH).to_string();
        assert_eq!(connect(server).command(&["GET", "n"]), bulk(&total));
    });
}

#[test]
fn a_unix_socket_serves_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saker.sock");
    let server = Server::builder().port(0).io_threads(1).unix_socket(&path, Some(0o700)).start().unwrap();
    let mut over_socket = Client::connect(&Address::Unix(path)).unwrap();
    assert_eq!(over_socket.command(&["SET", "k", "v"]), simple("OK"));
    assert_eq!(connect(&server).command(&["GET", "k"]), bulk("v"));
}

#[test]
fn a_stopped_server_closes_its_connections() {
    on_each_back_end(|server| {
        assert_eq!(connect(server).command(&["PING"]), simple("PONG"));
    });
    let server = Server::builder().port(0).io_threads(2).start().unwrap();
    let mut client = connect(&server);
    client.command(&["PING"]);
    let address = Address::port(server.port());
    server.stop();
    assert_eq!(client.read_to_end().unwrap(), b"");
    assert!(Client::connect(&address).is_err());
}

#[test]
fn empty_lines_are_passed_over_however_many() {
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.extend_from_slice(&b"\r\n".repeat(30_000));
        sent.extend_from_slice(format!("ECHO {number}\r\n").as_bytes());
    }
    sent.extend_from_slice(&b"\r\n".repeat(30_000));
    on_each_back_end(|server| {
        let mut client = connect(server);
        client.send(&sent).unwrap();
        (0..4).for_each(|number| assert_eq!(client.read().unwrap(), bulk(&number.to_string())));
        assert_eq!(client.command(&["PING"]), simple("PONG"));
    });
}

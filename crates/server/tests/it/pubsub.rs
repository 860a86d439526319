//! Messages of PUBLISH to subscribers that other I/O threads serve.

use std::thread;

use net::BackendChoice;
use server::Server;
use testkit::{Client, Protocol, Value};

use crate::support::{connect, on_each_back_end, speaking};

const PUBLISHERS: usize = 4;
const MESSAGES: usize = 300;

/// Reads the next message of a subscriber; returns its payload.
fn payload(subscriber: &mut Client) -> String {
    let (Value::Array(items) | Value::Push(items)) = subscriber.read().expect("a message") else {
        panic!("a message is an array or a push")
    };
    match items.last() {
        Some(Value::Bulk(bytes)) => String::from_utf8(bytes.clone()).expect("text"),
        other => panic!("{other:?}"),
    }
}

fn all_see_one_order(server: &Server) {
    let subscribers: Vec<Client> = (0..6)
        .map(|index| {
            let protocol = if index % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
            let mut subscriber = speaking(server, protocol);
            if index < 3 {
                subscriber.command(&["SUBSCRIBE", "news"]);
            } else {
                subscriber.command(&["PSUBSCRIBE", "ne*"]);
            }
            subscriber
        })
        .collect();
    let publishers: Vec<Client> = (0..PUBLISHERS).map(|_| connect(server)).collect();
    let seen: Vec<Vec<String>> = thread::scope(|scope| {
        let readers: Vec<_> = subscribers
            .into_iter()
            .map(|mut subscriber| {
                let read = move || (0..PUBLISHERS * MESSAGES).map(|_| payload(&mut subscriber)).collect();
                scope.spawn(read)
            })
            .collect();
        for (index, mut publisher) in publishers.into_iter().enumerate() {
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    let reply = publisher.command(&["PUBLISH", "news", &format!("{index}:{n}")]);
                    assert_eq!(reply, Value::Integer(6));
                }
            });
        }
        readers.into_iter().map(|reader| reader.join().expect("a reader")).collect()
    });
    for other in &seen[1..] {
        assert_eq!(seen[0], *other);
    }
    for index in 0..PUBLISHERS {
        let of_one: Vec<&String> =
            seen[0].iter().filter(|payload| payload.starts_with(&format!("{index}:"))).collect();
        let expected: Vec<String> = (0..MESSAGES).map(|n| format!("{index}:{n}")).collect();
        assert!(of_one.into_iter().eq(&expected), "publisher {index}");
    }
}

#[test]
fn all_subscribers_see_one_order_and_lose_nothing() {
    for backend in [BackendChoice::Epoll, BackendChoice::Auto] {
        for threads in [1, 2, 4] {
            let server = Server::builder().port(0).io_threads(threads).backend(backend).start();
            all_see_one_order(&server.expect("the server starts"));
        }
    }
}

#[test]
fn what_a_client_publishes_to_itself_comes_behind_the_reply() {
    on_each_back_end(|server| {
        let mut client = speaking(server, Protocol::Resp3);
        client.command(&["SUBSCRIBE", "c"]);
        client.send(b"PUBLISH c hello\r\nECHO x\r\n").expect("sends");
        assert_eq!(client.read().expect("a reply"), Value::Integer(1));
        assert_eq!(payload(&mut client), "hello");
        assert_eq!(client.read().expect("a reply"), Value::Bulk(b"x".to_vec()));
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_others_go_on() {
    on_each_back_end(|server| {
        let mut admin = connect(server);
        admin.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
        let mut slow = connect(server);
        slow.command(&["SUBSCRIBE", "big"]);
        let mut other = connect(server);
        other.command(&["SUBSCRIBE", "small"]);
        let payload_sent = "x".repeat(100_000);
        // Data in the sockets' buffers is not part of the limit.
        let left = (0..1000).find(|_| {
            admin.command(&["PUBLISH", "big", &payload_sent]);
            admin.command(&["PUBSUB", "NUMSUB", "big"]).to_string().contains('0')
        });
        assert!(left.is_some(), "the slow subscriber was closed");
        assert_eq!(admin.command(&["PUBLISH", "small", "hello"]), Value::Integer(1));
        assert_eq!(payload(&mut other), "hello");
    });
}

#[test]
fn a_transaction_that_ends_subscriptions_keeps_what_it_published_to_itself_in_order() {
    on_each_back_end(|server| {
        let mut client = speaking(server, Protocol::Resp3);
        let channels: Vec<String> = (0..50).map(|n| format!("c{n}")).collect();
        let words: Vec<&str> =
            std::iter::once("SUBSCRIBE").chain(channels.iter().map(String::as_str)).collect();
        client.pipeline(&[words]).unwrap();
        client.read_many(channels.len() - 1).unwrap();
        client.pipeline(&[vec!["PSUBSCRIBE", "c1*"], vec!["MULTI"]]).unwrap();
        let published: Vec<usize> = (0..200).map(|n| n * 7 % 50).collect();
        for channel in &published {
            client.command(&["PUBLISH", &channels[*channel], "x"]);
        }
        client.command(&["UNSUBSCRIBE"]);
        client.send(b"EXEC\r\n").unwrap();
        let Value::Array(replies) = client.read().unwrap() else { panic!("the transaction ran") };
        assert_eq!(replies.len(), 200 + channels.len(), "to PUBLISH, and a confirmation for each channel");
        let heard: Vec<Value> = (0..200 + 44).map(|_| client.read().unwrap()).collect();
        let messages = heard.iter().filter_map(|value| match value {
            Value::Push(parts) if parts[0] == Value::Bulk(b"message".to_vec()) => Some(parts[1].clone()),
            _ => None,
        });
        let expected: Vec<Value> =
            published.iter().map(|channel| Value::Bulk(channels[*channel].clone().into_bytes())).collect();
        assert_eq!(messages.collect::<Vec<_>>(), expected);
        assert_eq!(client.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
    });
}

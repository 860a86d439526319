//! Long searches of vector sets beside other clients of the same thread.

use resp::Protocol;
use server::Server;
use testkit::{Client, Value};

use crate::support::{connect, happens, on_each_back_end_with, speaking};

/// The number of elements of the set.
const ELEMENTS: usize = 4000;
/// The length in bytes of the text before the field `a` in the attributes of an element.
const TEXT_LEN_BYTES: usize = 4000;
/// The number of fields of an expression that takes some milliseconds for each element. A search
/// with it takes some hundred times as long as the requests that other clients make meanwhile.
const FIELDS_MANY: usize = 1000;
/// The number of fields of an expression with which a search takes dozens of slices.
const FIELDS_FEW: usize = 8;

/// Starts a server of one thread for `test`, with a client and a set `v`.
fn with_set(test: impl Fn(&Server, Client)) {
    on_each_back_end_with(1, |server| {
        let mut client = connect(server);
        let attributes = format!("{{\"text\":\"{}\",\"a\":0}}", "x".repeat(TEXT_LEN_BYTES));
        let add = |number: usize| {
            let words = ["VADD", "v", "VALUES", "2", &number.to_string(), "1", &format!("e{number}")];
            words.map(str::to_owned).into_iter().chain(["EF", "4", "SETATTR", &attributes].map(str::to_owned))
        };
        for part in (0..ELEMENTS).collect::<Vec<_>>().chunks(100) {
            let adds: Vec<Vec<String>> = part.iter().map(|number| add(*number).collect()).collect();
            client.pipeline(&adds).expect("a connection");
        }
        test(server, client);
    });
}

/// Returns a search whose filter reads the same field `fields` times for each element.
fn search(fields: usize, options: &[&str]) -> Vec<String> {
    let filter = vec![".a == 1"; fields].join(" or ") + " or .a == 0";
    let all = ELEMENTS.to_string();
    let words =
        ["VSIM", "v", "VALUES", "2", "1", "1", "TRUTH", "COUNT", &all, "FILTER", &filter, "WITHSCORES"];
    words.iter().chain(options).map(|word| (*word).to_owned()).collect()
}

fn send(client: &mut Client, words: &[impl AsRef<[u8]>]) {
    let mut bytes = Vec::new();
    resp::encode_request(words, &mut bytes);
    client.send(&bytes).expect("it is connected");
}

/// Returns true if INFO shows `count` blocked clients.
fn are_blocked(admin: &mut Client, count: usize) -> bool {
    let Value::Bulk(info) = admin.command(&["INFO", "clients"]) else { panic!("a text") };
    String::from_utf8_lossy(&info).contains(&format!("blocked_clients:{count}\r\n"))
}

fn await_blocked(admin: &mut Client, count: usize) {
    assert!(happens(|| are_blocked(admin, count)), "INFO does not show {count} blocked clients");
}

/// Returns the number of clients whose last command is `command`.
fn clients_of(admin: &mut Client, command: &str) -> usize {
    let Value::Bulk(list) = admin.command(&["CLIENT", "LIST"]) else { panic!("a text") };
    String::from_utf8_lossy(&list).matches(&format!(" cmd={command} ")).count()
}

#[test]
fn other_clients_of_the_thread_are_served_while_a_search_runs() {
    with_set(|server, mut admin| {
        let mut client = connect(server);
        let Value::Integer(id) = client.command(&["CLIENT", "ID"]) else { panic!("a number") };
        send(&mut client, &search(FIELDS_MANY, &[]));
        await_blocked(&mut admin, 1);
        for number in 0..10 {
            assert_eq!(admin.command(&["PING"]), Value::Simple(b"PONG".to_vec()));
            let added = admin.command(&["VADD", "v", "VALUES", "2", "1", "1", &format!("new{number}")]);
            assert_eq!(added, Value::Integer(1));
        }
        assert_eq!(admin.command(&["DEL", "v"]), Value::Integer(1));
        assert!(are_blocked(&mut admin, 1), "the search has not ended before the requests");
        assert_eq!(admin.command(&["CLIENT", "UNBLOCK", &id.to_string()]), Value::Integer(0));
        assert_eq!(admin.command(&["CLIENT", "KILL", "ID", &id.to_string()]), Value::Integer(1));
        assert_eq!(client.read_to_end().expect("the server closes the connection"), b"");
        await_blocked(&mut admin, 0);
    });
}

#[test]
fn a_long_search_shows_the_set_as_it_was_and_keeps_the_order_of_replies() {
    with_set(|server, mut admin| {
        let expected = admin.command(&search(FIELDS_FEW, &["NOTHREAD"]));
        let mut clients = [connect(server), connect(server)];
        for client in &mut clients {
            send(client, &search(FIELDS_FEW, &[]));
            send(client, &["ECHO", "behind"]);
        }
        let arrived = || clients_of(&mut admin, "vsim") + clients_of(&mut admin, "echo") == 2;
        assert!(happens(arrived), "the searches have not begun");
        for number in 0..ELEMENTS / 8 {
            admin.command(&["VREM", "v", &format!("e{number}")]);
            admin.command(&["VADD", "v", "VALUES", "2", "-1", "3", &format!("n{number}")]);
        }
        for client in &mut clients {
            assert_eq!(client.read().expect("a reply"), expected);
            assert_eq!(client.read().expect("a reply"), Value::Bulk(b"behind".to_vec()));
        }
        await_blocked(&mut admin, 0);
        let Value::Bulk(stats) = admin.command(&["INFO", "commandstats"]) else { panic!("a text") };
        assert!(String::from_utf8_lossy(&stats).contains("cmdstat_vsim:calls=3,"), "{stats:?}");
    });
}

#[test]
fn searches_end_with_their_clients() {
    with_set(|server, mut admin| {
        let mut clients: Vec<Client> = (0..20).map(|_| connect(server)).collect();
        for client in &mut clients {
            send(client, &search(FIELDS_MANY, &[]));
        }
        await_blocked(&mut admin, clients.len());
        admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        await_blocked(&mut admin, 0);
        let mut client = connect(server);
        send(&mut client, &search(FIELDS_MANY, &[]));
        await_blocked(&mut admin, 1);
        drop(client);
        await_blocked(&mut admin, 0);
        assert_eq!(admin.command(&["MULTI"]), Value::Simple(b"OK".to_vec()));
        admin.command(&search(FIELDS_FEW, &["COUNT", "1"]));
        let Value::Array(replies) = admin.command(&["EXEC"]) else { panic!("replies") };
        assert!(matches!(&replies[..], [Value::Array(found)] if found.len() == 2));
    });
}

#[test]
fn a_search_that_has_waited_sees_the_present_key_and_rights() {
    with_set(|server, mut admin| {
        admin.command(&["ACL", "SETUSER", "other", "on", "nopass", "~*", "+@all"]);
        let mut clients: Vec<Client> = (0..20).map(|_| connect(server)).collect();
        let last = clients.len() - 1;
        clients[last].command(&["AUTH", "other", "any"]);
        for (at, client) in clients.iter_mut().enumerate() {
            send(client, &search(FIELDS_MANY, &[]));
            await_blocked(&mut admin, at + 1);
        }
        assert_eq!(admin.command(&["DEL", "v"]), Value::Integer(1));
        admin.command(&["ACL", "SETUSER", "other", "resetkeys"]);
        // The first ones have begun, and read the set that was removed.
        assert!(are_blocked(&mut admin, clients.len()));
        clients.drain(..16);
        let refused = clients.pop().expect("it waits").read().expect("a reply");
        assert!(matches!(&refused, Value::Error(text) if text.starts_with(b"NOPERM")), "{refused:?}");
        for mut client in clients {
            assert_eq!(client.read().expect("a reply"), Value::Array(Vec::new()));
        }
        await_blocked(&mut admin, 0);
    });
}

#[test]
fn the_reply_of_a_search_waits_for_the_log_like_other_replies() {
    with_set(|server, mut admin| {
        assert_eq!(admin.command(&["CONFIG", "SET", "appendonly", "yes"]), Value::Simple(b"OK".to_vec()));
        assert_eq!(admin.command(&["CONFIG", "SET", "appendfsync", "always"]), Value::Simple(b"OK".to_vec()));
        let mut clients = [(); 3].map(|()| connect(server));
        for round in 0..30 {
            for (number, client) in clients.iter_mut().enumerate() {
                let name = format!("new{number}-{round}");
                send(client, &["VADD", "v", "VALUES", "2", "1", "1", &name, "EF", "4"]);
                send(client, &search(FIELDS_FEW, &["COUNT", "1"]));
                send(client, &["PING"]);
            }
            for client in &mut clients {
                assert_eq!(client.read().expect("a reply"), Value::Integer(1));
                let Value::Array(found) = client.read().expect("a reply") else { panic!("the element") };
                assert_eq!(found.len(), 2);
                assert_eq!(client.read().expect("a reply"), Value::Simple(b"PONG".to_vec()));
            }
        }
    });
}

#[test]
fn a_client_that_does_not_read_gets_no_further_search() {
    /// The replies take 16 MB each, and a client may have 64 MB and one reply.
    const SEARCHES: usize = 9;
    const UNREAD_MAX: usize = 5;
    with_set(|server, mut admin| {
        let mut client = connect(server);
        for _ in 0..SEARCHES {
            send(&mut client, &search(FIELDS_FEW, &["WITHATTRIBS"]));
        }
        let ran = |admin: &mut Client| {
            let Value::Bulk(stats) = admin.command(&["INFO", "commandstats"]) else { panic!("a text") };
            let stats = String::from_utf8_lossy(&stats).into_owned();
            let calls = stats.split("cmdstat_vsim:calls=").nth(1).and_then(|rest| rest.split(',').next());
            calls.map_or(0, |calls| calls.parse::<usize>().expect("a number"))
        };
        assert!(happens(|| ran(&mut admin) >= UNREAD_MAX - 1), "most searches do not run");
        // Every request is a turn, with a slice if there is a search.
        for _ in 0..1000 {
            admin.command(&["PING"]);
        }
        assert!(happens(|| are_blocked(&mut admin, 0)));
        assert!(ran(&mut admin) <= UNREAD_MAX + 1, "{} searches ran", ran(&mut admin));
        for _ in 0..SEARCHES {
            let Value::Array(found) = client.read().expect("a reply") else { panic!("elements") };
            assert_eq!(found.len(), 3 * ELEMENTS);
        }
        assert_eq!(ran(&mut admin), SEARCHES);
    });
}

#[test]
fn a_caching_client_gets_the_reply_before_the_invalidation() {
    with_set(|server, mut admin| {
        let mut client = speaking(server, Protocol::Resp3);
        assert_eq!(client.command(&["CLIENT", "TRACKING", "ON"]), Value::Simple(b"OK".to_vec()));
        for number in 0..5 {
            send(&mut client, &search(FIELDS_FEW, &["COUNT", "1"]));
            admin.command(&["VADD", "v", "VALUES", "2", "1", "1", &format!("new{number}")]);
            send(&mut client, &["PING"]);
            let Value::Map(_) = client.read().expect("a reply") else { panic!("a message before the reply") };
            while client.read().expect("a reply") != Value::Simple(b"PONG".to_vec()) {}
        }
    });
}

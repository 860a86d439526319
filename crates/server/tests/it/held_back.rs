//! Requests that follow a request whose client is blocked or paused. Each of them runs once and in
//! order, and nothing else runs, wherever the network splits the bytes. Some of these requests were
//! already parsed when the client was held back.

use server::Server;
use testkit::{Client, Protocol, Rng, Value};

use crate::support::{connect, on_each_back_end};

/// Number of tested sequences of requests per backend, each with another seed.
const STREAMS: u64 = 60;

/// The way in which a client is held back and released.
#[derive(Clone, Copy)]
enum Hold {
    /// The client is blocked in BLPOP until the list has an element.
    Blocked,
    /// CLIENT PAUSE postpones a write of the client until the pause ends.
    Paused,
}

/// Generates the words of a request whose random arguments look like requests themselves.
fn append(rng: &mut Rng) -> Vec<String> {
    let count = rng.below(90) + 1;
    let words = ["FLUSHALL", "v", "$8", "*1", "*1\r\n$8\r\nFLUSHALL", ""];
    let values = (0..count).map(|_| (*rng.pick(&words)).to_owned());
    ["RPUSH".to_owned(), "list".to_owned()].into_iter().chain(values).collect()
}

/// Returns the value after `name=` in a client's line of CLIENT LIST.
fn shown(admin: &mut Client, id: &str, name: &str) -> String {
    let list = admin.command(&["CLIENT", "LIST", "ID", id]);
    let text = String::from_utf8_lossy(list.as_bytes().expect("CLIENT LIST is text")).into_owned();
    let field = text.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    field.unwrap_or_else(|| panic!("{name} in {text}")).to_owned()
}

fn encoded(words: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    resp::encode_request(words, &mut out);
    out
}

fn check(server: &Server, hold: Hold, seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut admin, mut client) = (connect(server), connect(server));
    admin.command(&["FLUSHALL"]);
    let Value::Integer(id) = client.command(&["CLIENT", "ID"]) else { panic!("an id") };
    let id = id.to_string();
    let first = match hold {
        Hold::Blocked => vec!["BLPOP".to_owned(), "queue".to_owned(), "0".to_owned()],
        Hold::Paused => vec!["INCR".to_owned(), "count".to_owned()],
    };
    let behind: Vec<Vec<String>> = (0..rng.below(4) + 1).map(|_| append(&mut rng)).collect();
    let stream: Vec<u8> =
        [encoded(&first)].into_iter().chain(behind.iter().map(|it| encoded(it))).flatten().collect();
    let first_len = encoded(&first).len();
    let cut = first_len + rng.below(stream.len() - first_len);
    if let Hold::Paused = hold {
        admin.command(&["CLIENT", "PAUSE", "1000000", "WRITE"]);
    }
    client.send(&stream[..cut]).expect("the server reads");
    match hold {
        Hold::Blocked => {
            while shown(&mut admin, &id, "flags") != "b" {}
            admin.command(&["RPUSH", "queue", "x"]);
        }
        Hold::Paused => {
            while shown(&mut admin, &id, "qbuf") == "0" {}
            admin.command(&["CLIENT", "UNPAUSE"]);
        }
    }
    // The rest of the stream is sent before or after the reply to the first request is read.
    let answered = match hold {
        Hold::Blocked => Value::Array(vec![Value::Bulk(b"queue".to_vec()), Value::Bulk(b"x".to_vec())]),
        Hold::Paused => Value::Integer(1),
    };
    let waits = rng.percent(50);
    if waits {
        assert_eq!(client.read().expect("a reply"), answered, "seed {seed}");
    }
    client.send(&stream[cut..]).expect("the server reads");
    if !waits {
        assert_eq!(client.read().expect("a reply"), answered, "seed {seed}");
    }
    let mut expected: Vec<&str> = Vec::new();
    for request in &behind {
        expected.extend(request[2..].iter().map(String::as_str));
        assert_eq!(client.read().expect("a reply"), Value::Integer(expected.len() as i64), "seed {seed}");
    }
    let list = admin.command(&["LRANGE", "list", "0", "-1"]);
    let bulks = expected.iter().map(|value| Value::Bulk(value.as_bytes().to_vec())).collect();
    assert_eq!(list, Value::Array(bulks), "seed {seed}");
}

#[test]
fn a_blocked_clients_requests_run_as_they_were_sent() {
    on_each_back_end(|server| (0..STREAMS).for_each(|seed| check(server, Hold::Blocked, seed)));
}

#[test]
fn a_paused_clients_requests_run_as_they_were_sent() {
    on_each_back_end(|server| (0..STREAMS).for_each(|seed| check(server, Hold::Paused, seed)));
}

/// Number of bytes of messages that a client has not read: more than the server buffers before the
/// client's requests must wait.
const UNREAD_BYTES: usize = 90 << 20;

/// Returns a client with [`UNREAD_BYTES`] of messages that it has not read, and another client.
fn with_unread_messages(server: &Server) -> (Client, Client) {
    let (mut admin, mut client) = (connect(server), connect(server));
    client.hello(Protocol::Resp3);
    client.command(&["CLIENT", "TRACKING", "ON", "BCAST"]);
    let padding = "k".repeat(16 * 1024);
    let keys: Vec<String> = (0..UNREAD_BYTES / padding.len()).map(|n| format!("{n}{padding}")).collect();
    for keys in keys.chunks(100) {
        let sets: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SET", key, "v"]).collect();
        admin.pipeline(&sets).expect("the server answers");
    }
    (admin, client)
}

#[test]
fn a_client_with_much_unread_that_blocks_times_out_and_is_answered_in_order() {
    on_each_back_end(|server| {
        let (mut admin, mut client) = with_unread_messages(server);
        client.send(b"BLPOP queue 0.2\r\nECHO second\r\n").expect("the server reads");
        let mut replies = Vec::new();
        while replies.len() < 2 {
            match client.read().expect("a reply or a message") {
                Value::Push(_) => {}
                reply => replies.push(reply),
            }
        }
        assert_eq!(replies, [Value::Null, Value::Bulk(b"second".to_vec())]);
        assert_eq!(admin.command(&["RPUSH", "queue", "element"]), Value::Integer(1));
        assert_eq!(admin.command(&["LLEN", "queue"]), Value::Integer(1), "nobody waits any more");
    });
}

//! CLIENT LIST for clients in each state, and the end of clients that hang up while they are
//! blocked or are idle for too long.

use std::time::{Duration, Instant};

use testkit::{Client, Protocol, Value};

use crate::support::{connect, on_each_back_end, on_each_back_end_with, speaking};

/// Maximum time for background work to take effect.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// Returns the line of CLIENT LIST for the client with this id; empty if there is none.
fn line(control: &mut Client, id: i64) -> String {
    match control.command(&["CLIENT", "LIST", "ID", &id.to_string()]) {
        Value::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
        other => panic!("CLIENT LIST replied {other:?}"),
    }
}

/// Returns the value of the field `name` in a client's line.
fn field(line: &str, name: &str) -> String {
    let start = format!("{name}=");
    let found = line.split_ascii_whitespace().find_map(|word| word.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("no {name} in {line:?}")).to_owned()
}

fn number(line: &str, name: &str) -> u64 {
    field(line, name).parse().expect("a number")
}

fn id(client: &mut Client) -> i64 {
    match client.command(&["CLIENT", "ID"]) {
        Value::Integer(id) => id,
        other => panic!("CLIENT ID replied {other:?}"),
    }
}

/// Waits until `is_so` returns true for the client's line of CLIENT LIST; returns the line.
fn until(control: &mut Client, id: i64, is_so: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let line = line(control, id);
        if is_so(&line) {
            return line;
        }
        assert!(begun.elapsed() < SEEN_WITHIN, "still {line:?}");
    }
}

#[test]
fn a_request_that_arrived_in_part_is_the_clients_input() {
    on_each_back_end(|server| {
        let (mut control, mut client) = (connect(server), connect(server));
        let id = id(&mut client);
        let part = [b"*2\r\n$4\r\nECHO\r\n$100000\r\n".as_slice(), &[b'x'; 90_000]].concat();
        client.send(&part).expect("sent");
        let list = until(&mut control, id, |line| number(line, "qbuf") == part.len() as u64);
        assert!(number(&list, "tot-mem") >= part.len() as u64, "{list}");
        client.send(&[[b'x'; 10_000].as_slice(), b"\r\n"].concat()).expect("sent");
        assert_eq!(client.read().expect("a reply"), Value::Bulk(vec![b'x'; 100_000]));
        assert_eq!(number(&line(&mut control, id), "qbuf"), 0);
    });
}

#[test]
fn replies_that_a_client_does_not_read_are_its_output_until_it_does() {
    on_each_back_end(|server| {
        let (mut control, mut client) = (connect(server), connect(server));
        let id = id(&mut client);
        control.command(&["SETRANGE", "k", "1000000", "x"]);
        let request = b"GET k\r\n".repeat(20);
        client.send(&request).expect("sent");
        let list = until(&mut control, id, |line| number(line, "omem") > 1_000_000);
        assert!(number(&list, "oll") > 0 && number(&list, "tot-mem") > 1_000_000, "{list}");
        assert!(number(&list, "rbp") > 1_000_000 && field(&list, "events") == "rw", "{list}");
        assert_eq!(client.read_many(20).expect("replies").len(), 20);
        let list = until(&mut control, id, |line| number(line, "omem") == 0);
        assert_eq!((number(&list, "oll"), number(&list, "obl")), (0, 0), "{list}");
    });
}

#[test]
fn flags_tell_of_watched_keys_that_changed_and_of_transactions() {
    on_each_back_end(|server| {
        let (mut control, mut client) = (connect(server), connect(server));
        let id = id(&mut client);
        client.command(&["WATCH", "k", "l"]);
        let watching = line(&mut control, id);
        assert_eq!((field(&watching, "flags"), number(&watching, "watch")), ("N".to_owned(), 2));
        control.command(&["SET", "k", "1"]);
        assert_eq!(field(&line(&mut control, id), "flags"), "d");
        client.command(&["MULTI"]);
        client.command(&["SET", "k", "2"]);
        let queueing = line(&mut control, id);
        assert_eq!((field(&queueing, "flags"), field(&queueing, "cmd")), ("xd".to_owned(), "set".to_owned()));
        assert!(number(&queueing, "multi") == 1 && number(&queueing, "multi-mem") > 0, "{queueing}");
        assert_eq!(client.command(&["EXEC"]), Value::NullArray);
        let after = line(&mut control, id);
        assert_eq!((field(&after, "flags"), number(&after, "watch")), ("N".to_owned(), 0));
        assert!(number(&after, "tot-mem") < number(&watching, "tot-mem"), "{after}");
    });
}

#[test]
fn a_waiting_client_with_much_unread_input_is_missed_when_it_hangs_up() {
    on_each_back_end(|server| {
        let (mut control, mut client) = (connect(server), connect(server));
        let id = id(&mut client);
        client.send(b"BLPOP none 0\r\n").expect("sent");
        let waiting = until(&mut control, id, |line| field(line, "flags") == "b");
        assert!(number(&waiting, "argv-mem") > 0, "{waiting}");
        client.send(&b"PING\r\n".repeat(500_000)).expect("sent");
        let waiting = until(&mut control, id, |line| number(line, "qbuf") == 3_000_000);
        assert_eq!(field(&waiting, "flags"), "b");
        drop(client);
        until(&mut control, id, str::is_empty);
    });
}

#[test]
fn idle_clients_end_but_for_those_that_wait_to_be_told_something() {
    on_each_back_end_with(2, |server| {
        let mut control = connect(server);
        let mut spared: Vec<Client> = Vec::new();
        let states: [&[&str]; 6] = [
            &["SUBSCRIBE", "c"],
            &["PSUBSCRIBE", "p*"],
            &["SSUBSCRIBE", "s"],
            &["BLPOP", "none", "0"],
            &["XREAD", "BLOCK", "0", "STREAMS", "x", "$"],
            &["MONITOR"],
        ];
        // Each thread gets some of these clients, and later ordinary clients, which are idle for
        // less time.
        for _ in 0..2 {
            for words in states {
                let mut client = connect(server);
                client.send(format!("{}\r\n", words.join(" ")).as_bytes()).expect("sent");
                spared.push(client);
            }
        }
        let flags = |control: &mut Client, letter: char| {
            let list = control.command(&["CLIENT", "LIST"]).to_string();
            list.matches(&format!(" flags={letter} ")).count()
        };
        let begun = Instant::now();
        while [('P', 6), ('b', 4), ('O', 2)]
            .iter()
            .any(|&(letter, count)| flags(&mut control, letter) < count)
        {
            assert!(begun.elapsed() < SEEN_WITHIN, "{}", control.command(&["CLIENT", "LIST"]));
        }
        let mut idle: Vec<Client> = (0..4).map(|_| connect(server)).collect();
        idle.iter_mut().for_each(|client| assert!(!client.command(&["PING"]).is_error()));
        idle[0].command(&["MULTI"]);
        assert!(!control.command(&["CONFIG", "SET", "timeout", "1"]).is_error());
        for client in &mut idle {
            assert_eq!(client.read_to_end().expect("the end"), b"");
        }
        // The same check covered all clients of a thread, so the spared clients stay open.
        let mut control = connect(server);
        assert!(!control.command(&["CONFIG", "SET", "timeout", "0"]).is_error());
        assert_eq!([('P', 6), ('b', 4), ('O', 2)].map(|(letter, _)| flags(&mut control, letter)), [6, 4, 2]);
        for (channel, receivers) in [("c", 2), ("p1", 2)] {
            assert_eq!(control.command(&["PUBLISH", channel, "m"]), Value::Integer(receivers));
        }
        control.command(&["RPUSH", "none", "a", "b"]);
        control.command(&["XADD", "x", "1-1", "f", "v"]);
        for (client, words) in spared.iter_mut().zip(states.iter().cycle()) {
            // The confirmation comes first, if the command has one.
            let replies = if matches!(words[0], "BLPOP" | "XREAD" | "SSUBSCRIBE") { 1 } else { 2 };
            assert_eq!(client.read_many(replies).expect("it is served").len(), replies, "{words:?}");
        }
    });
}

#[test]
fn commands_are_counted_when_they_run() {
    on_each_back_end(|server| {
        let (mut control, mut client) = (connect(server), connect(server));
        let id = id(&mut client);
        let mut check = |request: &str, tot_cmds: u64, cmd: &str| {
            let words: Vec<&str> = request.split(' ').collect();
            client.command(&words);
            let line = line(&mut control, id);
            assert_eq!((number(&line, "tot-cmds"), field(&line, "cmd")), (tot_cmds, cmd.into()), "{request}");
        };
        // CLIENT ID was the first command.
        check("MULTI", 2, "multi");
        check("SET k 1", 2, "set");
        check("INCR k", 2, "incr");
        check("EXEC", 5, "exec");
        check("NOSUCH command", 5, "NULL");
        check("GET", 5, "get");
        check("LPUSH k x", 6, "lpush");
        client.send(b"BLPOP list 0\r\n").expect("sent");
        let waiting = until(&mut control, id, |line| field(line, "flags") == "b");
        assert_eq!((number(&waiting, "tot-cmds"), number(&waiting, "argv-mem")), (6, 10));
        let before = number(&waiting, "tot-net-out");
        control.command(&["RPUSH", "list", "x"]);
        client.read().expect("it is served");
        let served = line(&mut control, id);
        assert_eq!((number(&served, "tot-cmds"), number(&served, "argv-mem")), (7, 0));
        assert_eq!(number(&served, "tot-net-out"), before + b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n".len() as u64);
    });
}

#[test]
fn a_pause_of_all_holds_back_what_would_end_it_and_what_would_be_queued() {
    const PAUSE: Duration = Duration::from_millis(200);
    on_each_back_end(|server| {
        let (mut pausing, mut queueing) = (connect(server), connect(server));
        let mut waits = |command: &[&str], client: &mut Client, expected: &str| {
            let begun = Instant::now();
            let pause = ["CLIENT", "PAUSE", &PAUSE.as_millis().to_string(), "ALL"];
            assert_eq!(pausing.command(&pause), Value::Simple(b"OK".to_vec()));
            assert_eq!(client.command(command), Value::Simple(expected.into()), "{command:?}");
            // The server's clock counts whole milliseconds.
            let least = PAUSE - Duration::from_millis(2);
            assert!(begun.elapsed() >= least, "{command:?} was answered during the pause");
        };
        waits(&["CLIENT", "UNPAUSE"], &mut connect(server), "OK");
        waits(&["MULTI"], &mut queueing, "OK");
        waits(&["GET", "k"], &mut queueing, "QUEUED");
    });
}

#[test]
fn a_pause_within_a_transaction_holds_back_what_comes_behind_it() {
    const PAUSE: Duration = Duration::from_millis(200);
    on_each_back_end(|server| {
        let mut client = connect(server);
        let begun = Instant::now();
        let pause_ms = PAUSE.as_millis().to_string();
        let requests =
            [vec!["MULTI"], vec!["CLIENT", "PAUSE", &pause_ms, "WRITE"], vec!["EXEC"], vec!["SET", "k", "v"]];
        let replies = client.pipeline(&requests).expect("the server answers");
        assert_eq!(replies[3], Value::Simple(b"OK".to_vec()));
        // The server's clock counts whole milliseconds.
        assert!(begun.elapsed() >= PAUSE - Duration::from_millis(2), "it was answered during the pause");
    });
}

#[test]
fn what_a_client_did_not_ask_for_just_now_counts_as_sent_to_it() {
    on_each_back_end(|server| {
        let (mut control, mut other) = (connect(server), connect(server));
        let mut clients = [speaking(server, Protocol::Resp2), speaking(server, Protocol::Resp3)];
        let ids: Vec<i64> = clients.iter_mut().map(id).collect();
        for (client, id) in clients.iter_mut().zip(ids) {
            client.command(&["SUBSCRIBE", "news"]);
            let before = number(&line(&mut control, id), "tot-net-out");
            other.command(&["PUBLISH", "news", "first"]);
            other.command(&["PUBLISH", "news", &"x".repeat(20_000)]);
            client.read_many(2).expect("the messages");
            let sent = [b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n".len() * 2, "$5\r\nfirst\r\n".len(), 20_010];
            let list = until(&mut control, id, |line| number(line, "tot-net-out") > before + 20_000);
            assert_eq!(number(&list, "tot-net-out"), before + sent.iter().sum::<usize>() as u64);
            client.command(&["UNSUBSCRIBE"]);
        }
        let client = &mut clients[1];
        let id = id(client);
        client.command(&["CLIENT", "TRACKING", "ON"]);
        client.command(&["SUBSCRIBE", "__keyevent@0__:set"]);
        control.command(&["CONFIG", "SET", "notify-keyspace-events", "E$"]);
        client.command(&["GET", "k"]);
        let before = number(&line(&mut control, id), "tot-net-out");
        // Output that the client causes itself: the reply, the event, the invalidation, and a
        // message between two requests.
        client.send(b"SET k 1\r\nPUBLISH __keyevent@0__:set own\r\nPING\r\n").expect("sent");
        client.read_many(6).expect("replies and messages");
        let sent = "+OK\r\n:1\r\n+PONG\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n".len()
            + 2 * ">3\r\n$7\r\nmessage\r\n$18\r\n__keyevent@0__:set\r\n".len()
            + "$1\r\nk\r\n$3\r\nown\r\n".len();
        assert_eq!(number(&line(&mut control, id), "tot-net-out"), before + sent as u64);
        control.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    });
}

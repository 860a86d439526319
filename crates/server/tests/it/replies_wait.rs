//! Replies and messages wait until the readers of the change log have confirmed the writes that
//! they depend on. The reader of these tests confirms on request.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use engine::log::PENDING_BYTES_MAX;
use server::Server;
use testkit::{Client, Protocol, Value};

use crate::support::{IO_THREADS, connect, connect_on, info, on_each_back_end, speaking};

const DEADLINE: Duration = Duration::from_secs(60);

/// The connection that attaches a reader of the change log and controls it.
struct Reader(Client);

impl Reader {
    fn attach(server: &Server) -> Self {
        let mut reader = Self(connect(server));
        reader.debug("MANUAL");
        reader
    }

    fn debug(&mut self, word: &str) {
        assert_eq!(self.0.command(&["DEBUG", "CHANGE-LOG", word]), ok());
    }

    fn confirm(&mut self) {
        self.debug("CONFIRM");
    }

    /// Waits until INFO shows `number` in the field `field`.
    fn wait_for(&mut self, field: &str, number: u64) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let shown = info(&mut self.0, field);
            if shown == number {
                return;
            }
            assert!(Instant::now() < deadline, "{field} is {shown}, not {number}");
        }
    }

    /// Waits until INFO shows that `replies` pieces of output (parts) are held back. A connection
    /// may have several parts.
    fn wait_for_waiting(&mut self, replies: u64) {
        self.wait_for("change_log_waiting_replies", replies);
    }
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn send(client: &mut Client, requests: &[&[&str]]) {
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| resp::encode_request(request, &mut bytes));
    client.send(&bytes).expect("the server reads");
}

fn read(client: &mut Client) -> Value {
    client.read().expect("a reply")
}

/// Returns true if a reply arrives within two milliseconds.
fn has_reply(client: &mut Client) -> bool {
    client.set_read_timeout(Duration::from_millis(2));
    let read = client.read();
    client.set_read_timeout(DEADLINE);
    read.is_ok()
}

#[test]
fn what_shows_an_unconfirmed_write_waits_and_nothing_else() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let (mut writer, mut same) = (connect(server), connect(server));
        send(&mut writer, &[&["SET", "key", "value"]]);
        reader.wait_for_waiting(1);
        send(&mut same, &[&["GET", "key"]]);
        reader.wait_for_waiting(2);
        assert!(!has_reply(&mut writer) && !has_reply(&mut same));
        // One of these keys is in another shard.
        let mut others: Vec<_> = (0..8).map(|_| connect(server)).collect();
        for (at, other) in others.iter_mut().enumerate() {
            send(other, &[&["GET", &format!("other{at}")]]);
        }
        let deadline = Instant::now() + DEADLINE;
        while !others.iter_mut().any(has_reply) {
            assert!(Instant::now() < deadline, "a GET of another key waits");
        }
        assert!(
            info(&mut reader.0, "change_log_position") > info(&mut reader.0, "change_log_released_position")
        );
        reader.confirm();
        assert_eq!((read(&mut writer), read(&mut same)), (ok(), bulk("value")));
        reader.wait_for_waiting(0);
        assert!(info(&mut reader.0, "change_log_reply_wait_usec") > 0);
        assert!(info(&mut reader.0, "change_log_reply_wait_usec_max") > 0);
        assert_eq!(
            info(&mut reader.0, "change_log_position"),
            info(&mut reader.0, "change_log_released_position")
        );
    });
}

#[test]
fn a_reply_waits_for_the_level_that_its_client_requires() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let (mut lax, mut strict) = (connect(server), connect(server));
        assert_eq!(strict.command(&["DEBUG", "CHANGE-LOG", "LEVEL", "SYNCED"]), ok());
        send(&mut lax, &[&["SET", "key", "value"]]);
        reader.wait_for_waiting(1);
        send(&mut strict, &[&["GET", "key"]]);
        reader.wait_for_waiting(2);
        assert_eq!(reader.0.command(&["DEBUG", "CHANGE-LOG", "CONFIRM", "WRITTEN"]), ok());
        assert_eq!(read(&mut lax), ok());
        assert!(!has_reply(&mut strict));
        reader.wait_for_waiting(1);
        assert!(
            info(&mut reader.0, "change_log_synced_position") < info(&mut reader.0, "change_log_position")
        );
        // What follows on the connection keeps its order, though it requires less.
        send(
            &mut strict,
            &[&["DEBUG", "CHANGE-LOG", "LEVEL", "WRITTEN"], &["INCR", "number"], &["ECHO", "behind"]],
        );
        reader.wait_for("change_log_position", 2);
        assert_eq!(reader.0.command(&["DEBUG", "CHANGE-LOG", "CONFIRM", "WRITTEN"]), ok());
        assert!(!has_reply(&mut strict));
        reader.confirm();
        let replies: Vec<Value> = (0..4).map(|_| read(&mut strict)).collect();
        assert_eq!(replies, [bulk("value"), ok(), Value::Integer(1), bulk("behind")]);
        reader.wait_for_waiting(0);
    });
}

#[test]
fn replies_of_a_connection_keep_their_order() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut client = connect(server);
        let mut other = connect(server);
        let shown = |number: i64| [bulk(&number.to_string()), Value::Integer(number + 1)];
        send(&mut client, &[&["SET", "number", "0"], &["GET", "number"], &["INCR", "number"]]);
        // A turn may end between these, so they wait as one part or as two.
        reader.wait_for("change_log_position", 2);
        // More parts than are held individually, mixed with requests that access no key.
        for at in 1..40 {
            send(&mut client, &[&["ECHO", "between"], &["GET", "number"], &["INCR", "number"]]);
            let deadline = Instant::now() + DEADLINE;
            // Another client sees that they ran: the log advances by one position for each.
            while info(&mut reader.0, "change_log_position") < at + 2 {
                assert!(Instant::now() < deadline, "request {at} did not run");
            }
        }
        send(&mut client, &[&["PING"]]);
        send(&mut other, &[&["SET", "last", "1"]]);
        reader.wait_for("change_log_position", 42);
        assert!(!has_reply(&mut client));
        reader.confirm();
        assert_eq!(read(&mut client), ok());
        assert_eq!(client.read_many(2).expect("replies"), shown(0));
        for at in 1..40 {
            assert_eq!(read(&mut client), bulk("between"));
            assert_eq!(client.read_many(2).expect("replies"), shown(at));
        }
        assert_eq!(read(&mut client), Value::Simple("PONG".into()));
        assert_eq!(read(&mut other), ok());
        // After its waiting output is sent, the client continues like any other.
        send(&mut client, &[&["INCR", "number"]]);
        reader.wait_for_waiting(1);
        reader.confirm();
        assert_eq!(read(&mut client), Value::Integer(41));
    });
}

#[test]
fn a_blocked_client_gets_its_reply_when_what_serves_it_is_confirmed() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let (mut blocked, mut writer) = (connect_on(server, 1), connect_on(server, 0));
        send(&mut blocked, &[&["BLPOP", "list", "0"], &["PING"]]);
        reader.wait_for("blocked_clients", 1);
        send(&mut writer, &[&["RPUSH", "list", "x"]]);
        reader.wait_for("blocked_clients", 0);
        reader.wait_for_waiting(2);
        assert!(!has_reply(&mut blocked) && !has_reply(&mut writer));
        reader.confirm();
        assert_eq!(read(&mut blocked), Value::Array(vec![bulk("list"), bulk("x")]));
        assert_eq!(read(&mut blocked), Value::Simple("PONG".into()));
        assert_eq!(read(&mut writer), Value::Integer(1));
    });
}

#[test]
fn messages_about_a_write_wait_with_its_reply() {
    on_each_back_end(|server| {
        let mut admin = connect(server);
        assert_eq!(admin.command(&["CONFIG", "SET", "notify-keyspace-events", "KEA"]), ok());
        let mut subscriber = connect(server);
        subscriber.command(&["SUBSCRIBE", "__keyevent@0__:set"]);
        let mut tracking = speaking(server, Protocol::Resp3);
        tracking.command(&["CLIENT", "TRACKING", "ON"]);
        tracking.command(&["GET", "key"]);
        let mut reader = Reader::attach(server);
        let mut writer = connect(server);
        send(&mut writer, &[&["SET", "key", "value"]]);
        reader.wait_for_waiting(3);
        assert!(!has_reply(&mut writer) && !has_reply(&mut subscriber) && !has_reply(&mut tracking));
        // Output that depends on no write is sent at once, unless it follows output that waits.
        let mut free = connect(server);
        free.command(&["SUBSCRIBE", "channel"]);
        subscriber.send(b"SUBSCRIBE channel\r\n").expect("the server reads");
        reader.wait_for("pubsub_channels", 2);
        while admin.command(&["PUBSUB", "NUMSUB", "channel"])
            != Value::Array(vec![bulk("channel"), Value::Integer(2)])
        {}
        assert_eq!(admin.command(&["PUBLISH", "channel", "hello"]), Value::Integer(2));
        let hello = || Value::Array(vec![bulk("message"), bulk("channel"), bulk("hello")]);
        assert_eq!(read(&mut free), hello());
        assert!(!has_reply(&mut subscriber));
        reader.confirm();
        assert_eq!(read(&mut writer), ok());
        let event = Value::Array(vec![bulk("message"), bulk("__keyevent@0__:set"), bulk("key")]);
        assert_eq!(read(&mut subscriber), event);
        assert!(matches!(read(&mut subscriber), Value::Array(_)), "the second subscription");
        assert_eq!(read(&mut subscriber), hello());
        assert!(matches!(read(&mut tracking), Value::Push(_)));
    });
}

#[test]
fn monitors_see_a_write_when_it_is_confirmed() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut monitor = connect(server);
        assert_eq!(monitor.command(&["MONITOR"]), ok());
        let mut writer = connect(server);
        send(&mut writer, &[&["SET", "key", "value"]]);
        reader.wait_for_waiting(2);
        // The monitor also receives lines for the reader's INFO requests, before the line of SET or
        // after it.
        reader.confirm();
        assert_eq!(read(&mut writer), ok());
        loop {
            let Value::Simple(line) = read(&mut monitor) else { panic!("a line") };
            if String::from_utf8_lossy(line.as_ref()).contains("\"SET\" \"key\" \"value\"") {
                break;
            }
        }
    });
}

#[test]
fn closing_connections_get_what_waits_first() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let (mut quits, mut leaves) = (connect(server), connect(server));
        send(&mut quits, &[&["SET", "key", "value"], &["QUIT"]]);
        send(&mut leaves, &[&["SET", "key", "value"]]);
        reader.wait_for_waiting(2);
        assert!(!has_reply(&mut quits));
        // The end of a client's input alone does not drop its waiting output: it may still read.
        drop(leaves);
        reader.confirm();
        assert_eq!(quits.read_to_end().expect("the end"), b"+OK\r\n+OK\r\n");
        reader.wait_for_waiting(0);
    });
}

#[test]
fn detaching_the_reader_releases_everything() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut clients = [connect_on(server, 0), connect_on(server, 1)];
        clients.iter_mut().for_each(|client| send(client, &[&["INCR", "key"]]));
        reader.wait_for_waiting(2);
        reader.debug("OFF");
        clients.iter_mut().for_each(|client| assert!(matches!(read(client), Value::Integer(1 | 2))));
        assert_eq!(clients[0].command(&["INCR", "key"]), Value::Integer(3));
        reader.wait_for_waiting(0);
    });
}

#[test]
fn clients_of_all_threads_are_woken_by_a_confirmation() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut clients = [connect_on(server, 0), connect_on(server, 1)];
        for round in 1..50 {
            for (client, key) in clients.iter_mut().zip(["one", "two"]) {
                send(client, &[&["INCR", key]]);
            }
            reader.wait_for_waiting(2);
            reader.confirm();
            clients.iter_mut().for_each(|client| assert_eq!(read(client), Value::Integer(round)));
            reader.wait_for_waiting(0);
        }
    });
}

#[test]
fn waiting_output_counts_for_the_output_limit() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let limit = ["CONFIG", "SET", "client-output-buffer-limit", "normal 200000 0 0"];
        assert_eq!(reader.0.command(&limit), ok());
        let (mut client, value) = (connect(server), "v".repeat(150_000));
        send(&mut client, &[&["SET", "key", &value], &["GET", "key"]]);
        reader.wait_for_waiting(1);
        send(&mut client, &[&["GET", "key"]]);
        // The client is closed, and its waiting output is dropped.
        reader.wait_for_waiting(0);
        assert_eq!(info(&mut reader.0, "client_output_buffer_limit_disconnections"), 1);
        assert!(client.read().is_err());
    });
}

/// Checks a client whose held-back output exceeds the limit of unsent output: its requests continue
/// after the output is sent.
#[test]
fn a_client_with_much_waiting_output_goes_on_after_it() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let (mut client, value) = (connect(server), "v".repeat(17 << 20));
        send(&mut client, &[&["SET", "key", &value]]);
        reader.wait_for_waiting(1);
        for _ in 0..6 {
            send(&mut client, &[&["GET", "key"]]);
        }
        send(&mut client, &[&["INCR", "after"]]);
        // The client has so much waiting output that its next request does not start.
        reader.wait_for("keyspace_hits", 4);
        reader.wait_for_waiting(1);
        assert!(!has_reply(&mut client));
        reader.confirm();
        assert_eq!(read(&mut client), ok());
        for _ in 0..4 {
            assert!(read(&mut client) == bulk(&value));
        }
        // Replies pipelined with a write may wait with it.
        reader.wait_for("change_log_position", 2);
        reader.wait_for_waiting(1);
        reader.confirm();
        for _ in 4..6 {
            assert!(read(&mut client) == bulk(&value));
        }
        assert_eq!(read(&mut client), Value::Integer(1));
    });
}

/// Checks writes while a pipe without a reader blocks the thread that merges the change log. The
/// other thread runs writes until its buffer of the log is full, and then still serves reads.
#[test]
fn writes_wait_for_room_in_the_log_and_go_on_when_there_is() {
    on_each_back_end(|server| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        let mut pipe = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
        let (mut first, mut second) = (connect_on(server, 0), connect_on(server, 1));
        let mut reader = Reader(connect_on(server, 1));
        let attached = reader.0.command(&["DEBUG", "CHANGE-LOG", "FILE", path.to_str().expect("a name")]);
        assert_eq!(attached, ok());
        let value = "v".repeat(1 << 20);
        send(&mut first, &[&["SET", "first", &value]]);
        reader.wait_for("change_log_position", 1);
        // A thread may write ahead until its part of the log's limit is full. Each I/O thread, the
        // housekeeper and the applier of a primary's stream have such a part. Requests beyond it
        // fit into the socket's buffers.
        let admitted = PENDING_BYTES_MAX / (IO_THREADS + 2) / value.len() + 1;
        let sent = admitted + 2;
        for _ in 0..sent {
            send(&mut second, &[&["SET", "second", &value]]);
        }
        reader.wait_for("blocked_clients", 1);
        assert!(!has_reply(&mut first) && !has_reply(&mut second));
        let end = b"the end";
        let drained = std::thread::spawn({
            let pipe = pipe.try_clone().expect("a handle");
            move || drain(pipe, end)
        });
        assert_eq!(read(&mut first), ok());
        (0..sent).for_each(|_| assert_eq!(read(&mut second), ok()));
        reader.wait_for("blocked_clients", 0);
        reader.debug("OFF");
        pipe.write_all(end).expect("the pipe is read");
        assert!(drained.join().expect("it reads") > (1 + sent) * value.len());
    });
}

/// Reads the pipe up to the bytes `end`; returns the number of bytes read.
fn drain(mut pipe: File, end: &[u8]) -> usize {
    let (mut got, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    while !got.ends_with(end) {
        let len = pipe.read(&mut chunk).expect("the pipe stays");
        got.extend_from_slice(&chunk[..len]);
    }
    got.len()
}

#[test]
fn replies_ahead_of_a_message_to_oneself_wait_too() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut client = connect(server);
        client.command(&["HELLO", "3"]);
        client.command(&["SUBSCRIBE", "channel"]);
        send(&mut client, &[&["SET", "key", "value"], &["PUBLISH", "channel", "message"], &["PING"]]);
        reader.wait_for_waiting(1);
        assert!(!has_reply(&mut client), "the reply of SET shows an unconfirmed write");
        reader.confirm();
        assert_eq!(read(&mut client), ok());
    });
}

#[test]
fn a_connection_that_quits_ends_behind_its_replies() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut client = connect(server);
        send(&mut client, &[&["SET", "key", "value"], &["QUIT"]]);
        reader.wait_for_waiting(1);
        assert!(!has_reply(&mut client));
        reader.confirm();
        assert_eq!((read(&mut client), read(&mut client)), (ok(), ok()));
        assert!(client.read().is_err(), "closed");
    });
}

#[test]
fn a_read_does_not_wait_for_the_end_of_the_turn_that_wrote() {
    on_each_back_end(|server| {
        let mut admin = connect_on(server, 1);
        assert_eq!(admin.command(&["DEBUG", "CHANGE-LOG", "DISCARD"]), ok());
        let (mut sleeps, mut reads) = (connect_on(server, 0), connect_on(server, 1));
        send(&mut sleeps, &[&["SET", "key", "value"], &["DEBUG", "SLEEP", "2"]]);
        let deadline = Instant::now() + DEADLINE;
        while info(&mut admin, "change_log_position") + info(&mut admin, "change_log_pending_bytes") == 0 {
            assert!(Instant::now() < deadline, "SET did not run");
        }
        let began = Instant::now();
        assert_eq!(reads.command(&["GET", "key"]), bulk("value"));
        assert!(began.elapsed() < Duration::from_secs(1), "waited {:?}", began.elapsed());
    });
}

#[test]
fn a_client_that_sends_no_more_gets_its_replies() {
    on_each_back_end(|server| {
        let mut reader = Reader::attach(server);
        let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
        socket.write_all(b"SET key value\r\n").expect("written");
        socket.shutdown(Shutdown::Write).expect("shut");
        reader.wait_for("change_log_position", 1);
        // Each thread replies only after it has handled the end of the client's input.
        for thread in [0, 1, 0, 1] {
            connect_on(server, thread).command(&["PING"]);
        }
        reader.confirm();
        let mut reply = Vec::new();
        socket.read_to_end(&mut reply).expect("read");
        assert_eq!(reply, b"+OK\r\n");
    });
}

//! Subscribers under load: I/O threads that do not take published messages from their queue,
//! clients that do not read them, and subscriptions that end while other clients publish.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use net::BackendChoice;
use server::Server;
use testkit::{Address, Client, Protocol, Value};

use crate::support::{connect, on_each_back_end_with};

/// Maximum time for background work to take effect.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// Returns the text of a string reply.
fn text(value: Value) -> String {
    let Value::Bulk(bytes) = value else { panic!("{value} is no text") };
    String::from_utf8(bytes).expect("text")
}

/// Connects a client on I/O thread `thread`.
fn on_thread(server: &Server, thread: usize) -> Client {
    let field = format!(" io-thread={thread} ");
    // Connections on the other thread stay open meanwhile, or the next one would be assigned to
    // it as well.
    let mut others = Vec::new();
    loop {
        let mut client = connect(server);
        if text(client.command(&["CLIENT", "INFO"])).contains(&field) {
            return client;
        }
        others.push(client);
    }
}

/// Parses a message of a channel or a pattern: returns its channel and its payload.
fn message(value: Value) -> (String, String) {
    let (Value::Array(mut items) | Value::Push(mut items)) = value else { panic!("{value} is no message") };
    let payload = text(items.pop().expect("a payload"));
    (text(items.pop().expect("a channel")), payload)
}

/// Returns the number of calls of a command, as INFO commandstats shows it.
fn calls(client: &mut Client, command: &str) -> u64 {
    let info = text(client.command(&["INFO", "commandstats"]));
    let start = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&start));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

/// Length of each message in bytes. The queue of an I/O thread is full after four messages, and not
/// after three.
const MESSAGE_BYTES: usize = 300_000;

#[test]
fn who_publishes_faster_than_a_thread_takes_it_is_held_back() {
    on_each_back_end_with(2, |server| {
        let [mut subscriber, mut mover] = [on_thread(server, 1), on_thread(server, 1)];
        let [mut publisher, mut other] = [on_thread(server, 0), on_thread(server, 0)];
        subscriber.command(&["SUBSCRIBE", "c"]);
        // Thread 1 is blocked while it waits for this target of MIGRATE.
        let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = target.local_addr().expect("bound").port();
        mover.command(&["SET", "k", "v"]);
        mover.send(format!("MIGRATE 127.0.0.1 {port} k 0 60000\r\n").as_bytes()).expect("sent");
        let (mut waiting, _) = target.accept().expect("it connects");
        waiting.read_exact(&mut [0; 16]).expect("it has sent and waits");

        let messages: Vec<Vec<String>> = (0..20)
            .map(|n| vec!["PUBLISH".into(), "c".into(), format!("{n} {}", "x".repeat(MESSAGE_BYTES))])
            .collect();
        let held = thread::scope(|scope| {
            let published = scope.spawn(|| publisher.pipeline(&messages).expect("replies"));
            let begun = Instant::now();
            while calls(&mut other, "publish") < 4 {
                assert!(begun.elapsed() < SEEN_WITHIN, "the first messages are published");
            }
            // The publisher's thread continues with turns, but they serve only other clients.
            for _ in 0..200 {
                assert_eq!(calls(&mut other, "publish"), 4);
            }
            assert!(!published.is_finished());
            drop(waiting);
            published.join().expect("no panic")
        });
        assert!(held.iter().all(|reply| *reply == Value::Integer(1)), "{held:?}");
        assert!(mover.read().expect("a reply").is_error(), "the target hung up");
        for n in 0..20 {
            let (_, payload) = message(subscriber.read().expect("a message"));
            assert!(payload.starts_with(&format!("{n} ")) && payload.len() > MESSAGE_BYTES, "message {n}");
        }
        assert_eq!(publisher.command(&["PUBLISH", "c", "last"]), Value::Integer(1));
    });
}

/// Subscribes and unsubscribes repeatedly, directly, in a transaction, and by RESET. Returns the
/// number of received messages.
fn subscribe_repeatedly(
    client: &mut Client,
    protocol: Protocol,
    (p, name): (&str, &str),
    rounds: usize,
) -> u64 {
    let mut received = 0;
    for round in 0..rounds {
        client.hello(protocol);
        client.command(&[&format!("{p}SUBSCRIBE"), name]);
        let mut last: Option<u64> = None;
        let mut take = |value: Value| {
            let (channel, payload) = message(value);
            let number = payload.parse().expect("a number");
            assert_eq!(channel, "numbers");
            assert!(last.is_none_or(|last| last + 1 == number), "{number} after {last:?}");
            last = Some(number);
            received += 1;
        };
        for _ in 0..round % 4 {
            take(client.read().expect("a message"));
        }
        // In RESP2 a subscriber may not begin a transaction.
        let ending = match round % 3 {
            0 if protocol == Protocol::Resp3 => format!("MULTI\r\n{p}UNSUBSCRIBE {name}\r\nEXEC"),
            1 => "RESET".to_owned(),
            _ => format!("{p}UNSUBSCRIBE {name}"),
        };
        client.send(format!("{ending}\r\nECHO end\r\n").as_bytes()).expect("sent");
        let mut confirmed = false;
        loop {
            match client.read().expect("a message or a reply") {
                Value::Bulk(end) if end == b"end" => break,
                // The replies of MULTI, queued commands, EXEC and RESET.
                Value::Simple(_) => confirmed |= ending == "RESET",
                Value::Array(items) if items.len() == 1 => confirmed = true,
                Value::Array(items) | Value::Push(items) if is_unsubscription(&items) => confirmed = true,
                value => {
                    assert!(!confirmed, "{value} behind the end of the subscription");
                    take(value);
                }
            }
        }
        assert!(confirmed);
    }
    received
}

fn is_unsubscription(items: &[Value]) -> bool {
    matches!(items.first(), Some(Value::Bulk(word)) if word.ends_with(b"unsubscribe"))
}

#[test]
fn a_subscription_has_all_messages_up_to_its_end_and_none_behind() {
    const ROUNDS: usize = 300;
    on_each_back_end_with(2, |server| {
        for names in [("", "numbers"), ("P", "num*")] {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let (stop, promised) = (AtomicBool::new(false), AtomicU64::new(0));
                // One subscriber on each thread, so that one is on another thread than the
                // publisher.
                let mut subscribers = [on_thread(server, 0), on_thread(server, 1)];
                let mut publisher = connect(server);
                let received: u64 = thread::scope(|scope| {
                    scope.spawn(|| {
                        for number in 0_u64.. {
                            let reply = publisher.command(&["PUBLISH", "numbers", &number.to_string()]);
                            let Value::Integer(receivers) = reply else { panic!("{reply}") };
                            promised.fetch_add(receivers as u64, Relaxed);
                            if stop.load(Relaxed) {
                                break;
                            }
                        }
                    });
                    let _stop = StopAtEnd(&stop);
                    let threads = subscribers.each_mut().map(|client| {
                        scope.spawn(move || subscribe_repeatedly(client, protocol, names, ROUNDS))
                    });
                    threads.map(|thread| thread.join().expect("no panic")).into_iter().sum()
                });
                assert_eq!(received, promised.load(Relaxed), "{names:?} {protocol:?}");
            }
        }
    });
}

/// A guard that stops another thread when it is dropped, even if its own thread panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the number of subscribers of `channel`.
fn listening(client: &mut Client, channel: &str) -> i64 {
    match client.command(&["PUBSUB", "NUMSUB", channel]) {
        Value::Array(items) => match items.last() {
            Some(Value::Integer(count)) => *count,
            other => panic!("{other:?}"),
        },
        other => panic!("{other}"),
    }
}

/// Returns the number in the field `name` of the section `stats` of INFO.
fn stat(client: &mut Client, name: &str) -> u64 {
    let info = text(client.command(&["INFO", "stats"]));
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("the field").parse().expect("a number")
}

/// Returns the unsent output of the subscriber named `name`, in bytes; `None` if its connection has
/// ended.
fn unsent(control: &mut Client, name: &str) -> Option<u64> {
    let list = text(control.command(&["CLIENT", "LIST", "NAME", name]));
    let unsent = list.split_ascii_whitespace().find_map(|word| word.strip_prefix("omem="));
    unsent.map(|unsent| unsent.parse().expect("a number"))
}

/// Maximum number of bytes that a Unix socket buffers if its reader does not read. Unlike those of
/// TCP, its buffers do not grow.
const SOCKET_BYTES_MAX: usize = 1 << 20;

/// Publishes more bytes than a socket buffers plus the soft limit `soft`. Returns the time at which
/// it began.
fn publish_beyond(control: &mut Client, channel: &str, soft: usize) -> Instant {
    let (payload, first) = ("x".repeat(100_000), Instant::now());
    for _ in 0..(SOCKET_BYTES_MAX + 2 * soft) / payload.len() {
        control.command(&["PUBLISH", channel, &payload]);
    }
    first
}

fn slow_subscriber(path: &Path, channel: &str, name: &str) -> Client {
    let mut slow = Client::speaking(&Address::Unix(path.into()), Protocol::Resp3);
    slow.command(&["CLIENT", "SETNAME", name]);
    slow.command(&["SUBSCRIBE", channel]);
    slow
}

/// Runs `test` on each backend with a client of a server, and the path of its Unix socket.
fn with_socket(test: impl Fn(&mut Client, &Path)) {
    for backend in [BackendChoice::Epoll, BackendChoice::Auto] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("s.sock");
        let builder = Server::builder().port(0).io_threads(2).backend(backend).unix_socket(&path, None);
        let server = builder.start().expect("the server starts");
        test(&mut connect(&server), &path);
    }
}

#[test]
fn a_subscriber_over_its_hard_limit_ends_at_once() {
    with_socket(|control, path| {
        control.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"]);
        let mut slow = slow_subscriber(path, "c", "slow");
        // Nothing is sent of a message over the limit.
        let big = "x".repeat(1_100_000);
        assert_eq!(control.command(&["PUBLISH", "c", &big]), Value::Integer(1));
        assert_eq!(slow.read_to_end().expect("the end"), b"");
        let begun = Instant::now();
        while listening(control, "c") > 0 {
            assert!(begun.elapsed() < SEEN_WITHIN);
        }
        assert_eq!(stat(control, "client_output_buffer_limit_disconnections"), 1);
        // The limit applies to subscribers only: an ordinary client receives as much.
        control.command(&["SET", "k", &big]);
        assert_eq!(text(control.command(&["GET", "k"])).len(), big.len());
    });
}

#[test]
fn a_subscriber_over_its_soft_limit_ends_when_its_time_is_over_though_nothing_more_is_sent() {
    with_socket(|control, path| {
        control.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 200kb 1"]);
        let mut reading = slow_subscriber(path, "c", "reading");
        let _slow = slow_subscriber(path, "c", "slow");
        let first = publish_beyond(control, "c", 200_000);
        let ended = thread::scope(|scope| {
            // It reads everything in time.
            let reader = scope.spawn(|| {
                while message(reading.read().expect("a message")).1 != "last" {}
                &mut reading
            });
            while listening(control, "c") > 1 {
                assert!(first.elapsed() < SEEN_WITHIN, "its second is over");
            }
            let ended = first.elapsed();
            assert_eq!(control.command(&["PUBLISH", "c", "last"]), Value::Integer(1));
            assert_eq!(text(reader.join().expect("no panic").command(&["ECHO", "here"])), "here");
            ended
        });
        assert!(ended > Duration::from_secs(1), "it had a second: {ended:?}");
        assert_eq!(stat(control, "client_output_buffer_limit_disconnections"), 1);
    });
}

#[test]
fn a_subscriber_that_catches_up_has_all_of_the_soft_limits_time_again() {
    with_socket(|control, path| {
        control.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 200kb 2"]);
        let mut slow = slow_subscriber(path, "c", "slow");
        let first = publish_beyond(control, "c", 200_000);
        control.command(&["PUBLISH", "c", "last"]);
        while message(slow.read().expect("a message")).1 != "last" {}
        while unsent(control, "slow") != Some(0) {
            assert!(first.elapsed() < SEEN_WITHIN, "all of it is sent");
        }
        if first.elapsed() > Duration::from_secs(2) {
            // The machine stalled: the result would be meaningless.
            return;
        }
        let again = publish_beyond(control, "c", 200_000);
        while listening(control, "c") > 0 {
            assert!(again.elapsed() < SEEN_WITHIN, "its seconds are over");
        }
        assert!(again.elapsed() > Duration::from_secs(2), "{:?}", again.elapsed());
    });
}

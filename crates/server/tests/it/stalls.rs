//! No stalls: values of many elements grow, shrink and go while others are served.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess, Value};

use crate::support::{as_process_on_each_back_end, info};

/// Elements of a value: to free so many at once takes tens of milliseconds.
const ELEMENTS: usize = 100_000;
/// Far more than any step of ours, and little enough to notice work in proportion to a value of
/// this size that is done many times: the machine that runs this may be busy with other tests.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Tries of which the best counts: a busy machine delays anybody, a stall of ours comes each time.
const TRIES: usize = 2;

/// What makes the value of `big` go.
const WAYS: &[&[&[&str]]] = &[
    &[&["DEL", "big"]],
    &[&["UNLINK", "big"]],
    &[&["PEXPIRE", "big", "1"]],
    &[&["SET", "big", "x"]],
    &[&["SET", "other", "x"], &["RENAME", "other", "big"]],
    &[&["FLUSHALL"]],
];

/// Makes `big` a value of so many elements, a hundred at a time.
fn fill(client: &mut Client, kind: &str) {
    let requests: Vec<Vec<String>> = (0..ELEMENTS / 100)
        .map(|request| {
            let elements = request * 100..(request + 1) * 100;
            let (verb, parts): (_, Vec<String>) = match kind {
                "set" => ("SADD", elements.map(|n| format!("element:{n}")).collect()),
                "hash" => ("HSET", elements.flat_map(|n| [format!("element:{n}"), n.to_string()]).collect()),
                "zset" => ("ZADD", elements.flat_map(|n| [n.to_string(), format!("element:{n}")]).collect()),
                _ => ("RPUSH", elements.map(|n| format!("element:{n}")).collect()),
            };
            [verb.to_owned(), "big".to_owned()].into_iter().chain(parts).collect()
        })
        .collect();
    for batch in requests.chunks(20) {
        client.pipeline(batch).expect("the server answers");
    }
}

/// Stops the reader however the work ends: the scope waits for it.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The longest wait of a client that reads one key while `work` is done.
fn longest_wait(server: &ServerProcess, work: impl FnOnce()) -> Duration {
    let (stop, longest_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut reader = server.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let started = Instant::now();
                reader.command(&["GET", "small"]);
                longest_ns.fetch_max(started.elapsed().as_nanos() as u64, Relaxed);
            }
        });
        let _stop = StopAtEnd(&stop);
        work();
    });
    Duration::from_nanos(longest_ns.load(Relaxed))
}

#[test]
fn big_values_grow_and_go_without_keeping_others_waiting() {
    as_process_on_each_back_end(|server| {
        let mut client = server.connect();
        for kind in ["set", "hash", "zset", "list"] {
            let waits = (0..TRIES).map(|_| {
                longest_wait(server, || {
                    for requests in WAYS {
                        fill(&mut client, kind);
                        for request in *requests {
                            let reply = client.command(request);
                            assert!(!matches!(reply, Value::Error(_)), "{request:?}: {reply:?}");
                        }
                        // Freeing it may not keep anybody waiting either.
                        let deadline = Instant::now() + Duration::from_secs(20);
                        while info(&mut client, "lazyfree_pending_objects") > 0 {
                            assert!(Instant::now() < deadline, "{kind}: {requests:?} frees too slowly");
                        }
                        client.command(&["DEL", "big"]);
                    }
                })
            });
            let best = waits.min().expect("there were some");
            assert!(best < WAIT_MAX, "{kind}: {best:?}");
        }
    });
}

#[test]
fn a_reply_that_waits_for_freeing_comes_in_its_place() {
    as_process_on_each_back_end(|server| {
        let (mut client, mut other) = (server.connect(), server.connect());
        let ok = Value::Simple("OK".into());
        for flush in ["FLUSHALL", "FLUSHDB"] {
            fill(&mut client, "set");
            // One that goes away while it waits leaves nothing behind.
            other.send(format!("{flush} SYNC\r\n").as_bytes()).expect("it is sent");
            drop(std::mem::replace(&mut other, server.connect()));
            fill(&mut client, "zset");
            let replies = client.pipeline(&[vec!["PING"], vec![flush, "SYNC"], vec!["DBSIZE"]]);
            let expected = [Value::Simple("PONG".into()), ok.clone(), Value::Integer(0)];
            assert_eq!(replies.expect("the server answers"), expected);
            assert_eq!(info(&mut client, "lazyfree_pending_objects"), 0);
            fill(&mut client, "hash");
            client.command(&["MULTI"]);
            client.command(&["SET", "a", "b"]);
            client.command(&[flush, "SYNC"]);
            client.command(&["SET", "a", "c"]);
            assert_eq!(client.command(&["EXEC"]), Value::Array(vec![ok.clone(), ok.clone(), ok.clone()]));
            assert_eq!(info(&mut client, "lazyfree_pending_objects"), 0);
            assert_eq!(client.command(&["GET", "a"]), Value::Bulk(b"c".to_vec()));
        }
    });
}

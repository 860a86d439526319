//! No stalls: values with many elements grow, shrink and are removed while other clients are
//! served.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess, Value};

use crate::support::{as_process_on_each_back_end, info};

/// Number of elements of a value. Freeing all of them at once takes tens of milliseconds.
const ELEMENTS: usize = 100_000;
/// Maximum time for which a client waits for a reply. It is far more than any single step, because
/// the machine may be busy with other tests. It is short enough to detect repeated work in
/// proportion to the size of the value.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Number of attempts, of which the fastest counts. A busy machine delays some attempts, a real
/// stall delays each.
const TRIES: usize = 2;

/// Ways to remove the value of the key `big`. Each group of commands is one way.
const WAYS: &[&[&[&str]]] = &[
    &[&["DEL", "big"]],
    &[&["UNLINK", "big"]],
    &[&["PEXPIRE", "big", "1"]],
    &[&["SET", "big", "x"]],
    &[&["SET", "other", "x"], &["RENAME", "other", "big"]],
    &[&["FLUSHALL"]],
];

/// Creates a value with [`ELEMENTS`] elements at `big`, a hundred at a time.
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

/// A guard that stops the reading client when it is dropped, even if `work` panics. The scope waits
/// for the end of that client.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns the longest time for which a client waits that reads one key again and again while
/// `work` runs.
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
                        // Freeing the value must not delay clients either.
                        let deadline = Instant::now() + Duration::from_secs(60);
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
            // A client that disconnects while its reply waits must not affect the others.
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

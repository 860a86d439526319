//! Clients that block by the thousand on two shared queues, like the workers of a job queue.
//!
//! A round: all workers block. Some are killed or unblocked, some time out. Then one element is
//! pushed for each worker. Afterwards every worker has exactly one element, and each element was
//! served to one worker.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use resp::{Value, encode_request};

use super::Run;
use crate::client::{Client, ClientError};
use crate::rng::Rng;

/// Number of worker clients in a group.
const WORKERS: usize = 1_000;
/// Percentage of workers that are killed in a round.
const KILL_PERCENT: usize = 2;
/// Percentage of workers that are unblocked in a round.
const UNBLOCK_PERCENT: usize = 2;
/// Percentage of workers that block with a short timeout in a round.
const SHORT_PERCENT: usize = 5;
/// Maximum number of elements that one request pushes to a queue.
const PUSH_MAX: usize = 8;

/// Maximum time for which the server may refuse pushes for lack of memory, or workers for lack of
/// connections.
const ROOM_WITHIN: Duration = Duration::from_secs(20);

struct Worker {
    client: Client,
    id: i64,
}

/// Blocks the workers of a group and serves them, in rounds, until the soak test is over.
///
/// # Panics
/// Panics when an element is lost, served twice, or not served in time.
pub(super) fn run(run: &Run<'_>, group: usize) {
    let mut rng = run.rng("workers", group);
    let mut control = run.connect();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| hire(run)).collect();
    let queues = [format!("queue:{group}:high"), format!("queue:{group}:low")];
    let mut round = 0;
    while !run.is_over() {
        workers.iter_mut().for_each(|worker| wait(worker, &queues, &mut rng));
        for worker in &mut workers {
            if rng.percent(KILL_PERCENT) {
                let killed = control.command(&["CLIENT", "KILL", "ID", &worker.id.to_string()]);
                assert_eq!(killed, Value::Integer(1), "the worker is connected");
                assert!(matches!(worker.client.read(), Err(ClientError::Closed) | Ok(Value::NullArray)));
                *worker = hire(run);
                wait(worker, &queues, &mut rng);
            } else if rng.percent(UNBLOCK_PERCENT) {
                control.command(&["CLIENT", "UNBLOCK", &worker.id.to_string()]);
            }
        }
        let mut pushed = push(&mut control, &queues, round, &mut rng);
        for worker in &mut workers {
            let element = take(worker, &queues);
            assert!(pushed.remove(&element), "{element} is served twice, or late");
        }
        run.served.fetch_add(WORKERS as u64, Relaxed);
        round += 1;
    }
}

/// Pushes one element for each worker of the group to the queues. Returns the elements.
fn push(control: &mut Client, queues: &[String; 2], round: usize, rng: &mut Rng) -> BTreeSet<String> {
    let since = Instant::now();
    let mut pushed = BTreeSet::new();
    while pushed.len() < WORKERS {
        let count = (1 + rng.below(PUSH_MAX)).min(WORKERS - pushed.len());
        let elements: Vec<String> =
            (pushed.len()..pushed.len() + count).map(|number| format!("{round}:{number}")).collect();
        let mut words = vec!["RPUSH", rng.pick::<String>(queues)];
        words.extend(elements.iter().map(String::as_str));
        match control.command(&words) {
            Value::Integer(_) => pushed.extend(elements),
            // Other clients have filled the memory; the push is tried again.
            refused => assert!(since.elapsed() < ROOM_WITHIN, "no memory for an element: {refused}"),
        }
    }
    pushed
}

/// Connects a worker. The server refuses it while misbehaving clients have all connections; then it
/// connects again.
fn hire(run: &Run<'_>) -> Worker {
    let since = Instant::now();
    loop {
        let mut client = run.connect();
        match client.request(&["CLIENT", "ID"]) {
            Ok(Value::Integer(id)) => return Worker { client, id },
            refused => assert!(since.elapsed() < ROOM_WITHIN, "no connection for a worker: {refused:?}"),
        }
    }
}

fn wait(worker: &mut Worker, queues: &[String; 2], rng: &mut Rng) {
    let timeout = if rng.percent(SHORT_PERCENT) { "0.01" } else { "0" };
    send(worker, &["BLPOP", &queues[0], &queues[1], timeout]);
}

/// Waits until the server serves an element to a worker, and returns it. After an unblocking or a
/// timeout, the worker blocks again.
fn take(worker: &mut Worker, queues: &[String; 2]) -> String {
    loop {
        match worker.client.read() {
            Ok(Value::Array(parts)) => {
                let element = parts[1].as_bytes().expect("an element is text");
                return String::from_utf8_lossy(element).into_owned();
            }
            Ok(Value::NullArray) => send(worker, &["BLPOP", &queues[0], &queues[1], "0"]),
            other => panic!("worker {}: {other:?}", worker.id),
        }
    }
}

fn send(worker: &mut Worker, words: &[&str]) {
    let mut bytes = Vec::new();
    encode_request(words, &mut bytes);
    worker.client.send(&bytes).expect("the worker is connected");
}

//! Tests of copies while clients change the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use testkit::{Address, Client, Rng, ServerProcess, Value, peer};

use crate::tool::{Tool, digest, fill, send, start_saker, url};

/// A client that changes, deletes, renames and expires keys until it is stopped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Writer {
    fn start(server: &ServerProcess, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (Arc::clone(&stop), server.address());
        let thread = thread::spawn(move || write_until(&address, seed, &stopped));
        Self { stop, thread }
    }

    /// Stops the client that changes keys, and returns the number of its writes.
    fn stop(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

fn write_until(address: &Address, seed: u64, stop: &AtomicBool) -> u64 {
    let mut client = Client::connect(address).unwrap();
    let mut rng = Rng::new(seed);
    let mut count = 0;
    while !stop.load(Relaxed) {
        let commands: Vec<Vec<String>> = (0..20).map(|_| write(&mut rng)).collect();
        count += commands.len() as u64;
        // A test may cut its connection.
        if client.pipeline(&commands).is_err() {
            break;
        }
    }
    count
}

/// Draws a random command that changes keys which `fill` has written.
fn write(rng: &mut Rng) -> Vec<String> {
    let [a, b] = [(); 2].map(|()| rng.below(2000));
    let line = match rng.below(9) {
        0 => format!("DEL s:{a}"),
        1 => format!("RENAME s:{a} s:{b}"),
        2 => format!("HSET h:{a} f {b}"),
        3 => format!("RPUSH l:{a} {b}"),
        4 => format!("ZINCRBY z:{a} 1 {b}"),
        5 => format!("PEXPIRE s:{a} 30"),
        6 => format!("SADD set:{a} {b}"),
        _ => format!("SET s:{a} {b}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Copies `from` to `to` while a client changes `from`. Then stops the client, and expects equal
/// data.
fn check_under_load(from: &ServerProcess, to: &ServerProcess) {
    fill(&mut from.connect(), 5000);
    let writers = [1, 2].map(|seed| Writer::start(from, seed));
    let tool = Tool::start(&url(from), &url(to), &["--follow"]);
    tool.wait_for("changes are followed until Ctrl-C");
    let writes: u64 = writers.into_iter().map(Writer::stop).sum();
    tool.interrupt();
    let (status, summary, errors) = tool.wait();
    assert_eq!(status, 0, "after {writes} writes: {summary}{errors}");
    // Keys with a time to live have expired on both sides.
    send(&mut from.connect(), "DEBUG SLEEP 0.05");
    assert_eq!(digest(from), digest(to), "{summary}");
}

#[test]
fn changes_of_a_saker_arrive() {
    check_under_load(&start_saker(), &start_saker());
}

#[test]
fn changes_of_a_peer_arrive() {
    if !peer::is_available() {
        eprintln!("skipped: no redis-server on the PATH and no SAKER_PEER to copy from");
        return;
    }
    check_under_load(&peer::start().unwrap(), &start_saker());
}

#[test]
fn a_copy_ends_once_both_are_equal_although_connections_are_lost() {
    let (from, to) = (start_saker(), start_saker());
    fill(&mut from.connect(), 20_000);
    let writer = Writer::start(&from, 3);
    let tool = Tool::start(&url(&from), &url(&to), &["--until-equal", "--rate", "20000"]);
    let (mut source, mut target) = (from.connect(), to.connect());
    // Cut all its connections while keys are on their way, several times.
    for keys in [2000, 6000, 10_000] {
        while !matches!(send(&mut target, "DBSIZE"), Value::Integer(count) if count >= keys) {
            thread::yield_now();
        }
        send(&mut target, "CLIENT KILL TYPE normal");
        send(&mut source, "CLIENT KILL TYPE pubsub");
    }
    send(&mut source, "CLIENT KILL TYPE normal");
    writer.stop();
    let (status, summary, errors) = tool.wait();
    assert_eq!(status, 0, "{summary}{errors}");
    assert!(summary.contains("connections  lost "), "{summary}");
    assert_eq!(digest(&from), digest(&to), "{summary}");
}

#[test]
fn a_flush_of_the_source_is_noticed() {
    let (from, to) = (start_saker(), start_saker());
    fill(&mut from.connect(), 100);
    let tool = Tool::start(&url(&from), &url(&to), &["--follow"]);
    tool.wait_for("changes are followed until Ctrl-C");
    let mut source = from.connect();
    send(&mut source, "FLUSHALL");
    send(&mut source, "SET only 1");
    tool.interrupt();
    let (status, summary, errors) = tool.wait();
    assert_eq!(status, 0, "{summary}{errors}");
    assert_eq!(digest(&from), digest(&to));
    assert_eq!(send(&mut to.connect(), "DBSIZE"), Value::Integer(1));
}

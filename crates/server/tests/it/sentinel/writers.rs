//! Clients that write to the primary that the Sentinels name, and remember what was acknowledged.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use testkit::{Address, Client, ServerProcess, Value};

use super::{COUNT, Watched, happens, named_by, text};

/// Number of clients that write to the primary during a test.
const WRITERS: usize = 3;

/// The maximum time for a reply. After it, a client asks the Sentinels for the primary again: a
/// stopped server does not reply.
const REPLY_WITHIN: Duration = Duration::from_millis(200);

/// Pause before each write and each attempt to connect, so that the servers get the processor.
const PACE: Duration = Duration::from_millis(1);

/// The beginnings of errors from a server that is no primary or has too few replicas.
const EXPECTED: [&str; 5] = ["READONLY", "LOADING", "UNBLOCKED", "MASTERDOWN", "NOREPLICAS"];

/// The elements that a client has appended to its list, in order, each with the port of the server
/// that acknowledged it.
type Acknowledged = Vec<(u16, String)>;

/// The state that the clients of a test share.
struct Common {
    sentinels: Vec<u16>,
    login: Vec<&'static str>,
    is_stopped: AtomicBool,
    /// The number of writes that each server has acknowledged, by its port.
    counts: [(u16, AtomicU64); COUNT],
}

impl Common {
    /// Connects to the server that the writer's Sentinel names as the primary, and logs in. Returns
    /// its port and the client; `None` if that fails.
    fn connect(&self, writer: usize) -> Option<(u16, Client)> {
        let port = named_by(self.sentinels[writer % self.sentinels.len()]);
        let mut client = Client::connect(&Address::port(port)).ok()?;
        client.set_read_timeout(REPLY_WITHIN);
        if !self.login.is_empty() {
            client.request(&[&["AUTH"], &self.login[..]].concat()).ok()?;
        }
        Some((port, client))
    }

    /// Appends numbers to the writer's list until the test stops it. Returns the acknowledged
    /// numbers.
    fn write(&self, writer: usize) -> Acknowledged {
        let (mut acknowledged, mut connection) = (Acknowledged::new(), None);
        for number in 0_u64.. {
            if self.is_stopped.load(Relaxed) {
                break;
            }
            thread::sleep(PACE);
            let Some((port, mut client)) = connection.take().or_else(|| self.connect(writer)) else {
                continue;
            };
            let element = number.to_string();
            match client.request(&["RPUSH", &list(writer), &element]) {
                Ok(Value::Integer(_)) => {
                    acknowledged.push((port, element));
                    let of_server = self.counts.iter().find(|(known, _)| *known == port);
                    of_server.expect("a known port").1.fetch_add(1, Relaxed);
                    connection = Some((port, client));
                }
                Ok(Value::Error(line)) => {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    assert!(EXPECTED.iter().any(|word| line.starts_with(word)), "{line}");
                }
                Ok(other) => panic!("{other}"),
                // The server has gone, or does not reply.
                Err(_) => {}
            }
        }
        acknowledged
    }
}

/// Returns the key of the list to which client `writer` appends.
fn list(writer: usize) -> String {
    format!("list{writer}")
}

/// A handle of the clients that write while a test acts.
pub struct Load<'l>(&'l Common);

impl Load<'_> {
    /// Waits until the servers with these indexes have together acknowledged 50 further writes.
    ///
    /// # Panics
    /// If they do not in time.
    pub fn wait_for_writes(&self, set: &Watched, servers: &[usize]) {
        let count = || servers.iter().map(|&at| self.0.counts[at].1.load(Relaxed)).sum::<u64>();
        let before = count();
        assert!(happens(|| count() > before + 50), "{servers:?}: no writes: {}", set.state());
    }
}

/// Runs `act` while clients write. Returns the acknowledged writes of each client, in order.
pub fn with_writers(set: &mut Watched, act: impl FnOnce(&mut Watched, &Load<'_>)) -> Vec<Acknowledged> {
    let common = Common {
        sentinels: set.sentinels.iter().map(ServerProcess::port).collect(),
        login: set.settings.login.clone(),
        is_stopped: AtomicBool::new(false),
        counts: set.ports.map(|port| (port, AtomicU64::new(0))),
    };
    thread::scope(|scope| {
        let common = &common;
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || common.write(writer))).collect();
        // The writers end even if it fails.
        let acted = catch_unwind(AssertUnwindSafe(|| act(set, &Load(common))));
        common.is_stopped.store(true, Relaxed);
        let all =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let all = all.collect();
        acted.unwrap_or_else(|panic| resume_unwind(panic));
        all
    })
}

/// Checks the lists of all clients on the primary. No write that this primary has acknowledged may
/// be missing. Of the writes that other servers have acknowledged, only the last ones of a client
/// may be missing. Returns the number of missing writes. If the primary was replaced several times,
/// checks nothing and returns 0.
pub fn count_lost(set: &Watched, acknowledged: &[Acknowledged]) -> usize {
    if set.times_replaced() != "1" {
        eprintln!("the primary was replaced several times: lost writes are not counted");
        return 0;
    }
    let primary = set.primary();
    let mut client = set.connect(primary);
    let mut lost = 0;
    for (writer, of_writer) in acknowledged.iter().enumerate() {
        let reply = client.command(&["LRANGE", &list(writer), "0", "-1"]);
        let Value::Array(elements) = &reply else { panic!("{reply}") };
        let kept: BTreeSet<String> = elements.iter().map(text).collect();
        assert_eq!(kept.len(), elements.len(), "an element is there twice");
        let is_kept = |(_, element): &&(u16, String)| kept.contains(element);
        let (own, others): (Vec<_>, Vec<_>) =
            of_writer.iter().partition(|(port, _)| *port == set.ports[primary]);
        let missing: Vec<_> = own.iter().filter(|pair| !is_kept(pair)).collect();
        assert!(missing.is_empty(), "the primary has lost what it acknowledged: {missing:?}");
        let after_first_lost = others.iter().skip_while(|pair| is_kept(pair));
        let late: Vec<_> = after_first_lost.clone().filter(|pair| is_kept(pair)).collect();
        assert!(late.is_empty(), "earlier writes are lost, and these are not: {late:?}");
        lost += after_first_lost.count();
    }
    lost
}

/// Returns the number of acknowledged writes that the primary does not have. It does not matter
/// which server has acknowledged them.
pub fn count_missing(set: &Watched, acknowledged: &[Acknowledged]) -> usize {
    let mut client = set.connect(set.primary());
    let missing = acknowledged.iter().enumerate().map(|(writer, of_writer)| {
        let reply = client.command(&["LRANGE", &list(writer), "0", "-1"]);
        let Value::Array(elements) = &reply else { panic!("{reply}") };
        let kept: BTreeSet<String> = elements.iter().map(text).collect();
        of_writer.iter().filter(|(_, element)| !kept.contains(element)).count()
    });
    missing.sum()
}

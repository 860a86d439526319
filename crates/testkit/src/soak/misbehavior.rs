//! The kinds of misbehavior of clients, by mistake or on purpose. The server may close the client
//! because of it. Other clients must not notice it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use resp::{Value, encode_request};

use super::Run;
use crate::client::{Client, ClientError};
use crate::rng::Rng;

/// One kind of misbehavior: its name, the number of clients that do it at a time, and the function
/// for one round of it.
pub(super) struct Misbehavior {
    pub(super) name: &'static str,
    pub(super) clients: usize,
    round: fn(&mut Maker<'_>) -> Result<(), ClientError>,
}

/// All kinds of misbehavior of clients.
pub(super) static ALL: &[Misbehavior] = &[
    Misbehavior { name: "hog", clients: 2, round: hog },
    Misbehavior { name: "long commands", clients: 1, round: long_commands },
    Misbehavior { name: "slow reader", clients: 2, round: slow_reader },
    Misbehavior { name: "vanishing", clients: 1, round: vanish },
    Misbehavior { name: "giant keys", clients: 1, round: giant_keys },
    Misbehavior { name: "subscribers", clients: 1, round: subscribers },
    Misbehavior { name: "trackers", clients: 1, round: trackers },
    Misbehavior { name: "garbage", clients: 1, round: garbage },
    Misbehavior { name: "killer", clients: 1, round: killer },
];

/// A misbehaving client: the soak test to which it belongs, and its random choices.
struct Maker<'r> {
    run: &'r Run<'r>,
    rng: Rng,
}

impl Misbehavior {
    /// Runs rounds of one kind of misbehavior until the run is over.
    ///
    /// # Panics
    /// Panics when the server is stuck or sends bytes that are not a reply.
    pub(super) fn run(&self, run: &Run<'_>, index: usize) {
        let mut maker = Maker { run, rng: run.rng(self.name, index) };
        while !run.is_over() {
            match (self.round)(&mut maker) {
                Ok(()) | Err(ClientError::Closed) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
            run.misbehaviors.fetch_add(1, Relaxed);
        }
    }
}

/// Number of requests in one pipeline of a client that floods the server (a hog).
const PIPELINE: usize = 5_000;
/// Number of different keys that the hogs write, with a time to live. All of them together would
/// need many times the memory limit.
const VOLATILE_KEYS: usize = 2_000_000;

/// Sends pipelines of writes, each in full before it reads the first reply.
fn hog(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    for _ in 0..20 {
        let mut bytes = Vec::new();
        for _ in 0..PIPELINE {
            let key = format!("volatile:{}", maker.rng.below(VOLATILE_KEYS));
            let value = "x".repeat(16 + maker.rng.below(400));
            let ttl = (1 + maker.rng.below(3_000)).to_string();
            encode_request(&["SET", &key, &value, "PX", &ttl], &mut bytes);
        }
        client.send(&bytes)?;
        client.read_many(PIPELINE)?;
    }
    Ok(())
}

/// Sends pipelines of commands that read much of the data or need exclusive access to all of it.
fn long_commands(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    let members: Vec<String> = (0..5_000).map(|member| member.to_string()).collect();
    for key in ["long:{a}1", "long:{a}2"] {
        let words: Vec<&str> = ["SADD", key].into_iter().chain(members.iter().map(String::as_str)).collect();
        client.request(&words)?;
        client.request(&["EXPIRE", key, "100"])?;
    }
    let requests: &[&[&str]] = &[
        &["SINTERCARD", "2", "long:{a}1", "long:{a}2"],
        &["SUNION", "long:{a}1", "long:{a}2"],
        &["KEYS", "check:*:nothing"],
        &["SORT", "long:{a}1", "LIMIT", "0", "10"],
        &["DBSIZE"],
        &["SCAN", "0", "COUNT", "1000"],
    ];
    let mut bytes = Vec::new();
    (0..30).for_each(|_| encode_request(maker.rng.pick::<&[&str]>(requests), &mut bytes));
    client.send(&bytes)?;
    client.read_many(30)?;
    Ok(())
}

/// Requests much more data than it reads, then closes the connection.
fn slow_reader(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    client.request(&["SET", "slow", &"x".repeat(200_000), "EX", "100"])?;
    let mut bytes = Vec::new();
    (0..300).for_each(|_| encode_request(&["GET", "slow"], &mut bytes));
    client.send(&bytes)?;
    for _ in 0..maker.rng.below(5) {
        client.read()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Opens many connections that close in the middle of a request, or while they are blocked, in a
/// transaction, or subscribed.
fn vanish(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let requests: &[&[&str]] = &[
        &["BLPOP", "never:1", "never:2", "0"],
        &["XREAD", "BLOCK", "0", "STREAMS", "never:3", "$"],
        &["WATCH", "check:0:string:1", "never:1"],
        &["MULTI"],
        &["SUBSCRIBE", "news", "weather"],
        &["MONITOR"],
        &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "volatile:"],
        &["SET", "volatile:1", "value", "PX", "100"],
        &["GET", "volatile:1"],
    ];
    let mut clients: Vec<Client> = (0..50).map(|_| maker.run.connect()).collect();
    for client in &mut clients {
        let mut bytes = b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n".to_vec();
        (0..=maker.rng.below(3))
            .for_each(|_| encode_request(maker.rng.pick::<&[&str]>(requests), &mut bytes));
        bytes.truncate(1 + maker.rng.below(bytes.len()));
        client.send(&bytes)?;
    }
    Ok(())
}

/// Creates sets, lists and strings of up to 4 MB. Stores a union and a copy of the set over
/// existing keys. Removes each by DEL, UNLINK, expiry, or overwriting.
fn giant_keys(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    let members: Vec<String> = (0..2_000).map(|n| format!("{}:{n}", maker.rng.below(10))).collect();
    let mut words: Vec<&str> = vec!["SADD", "giant:{g}a"];
    words.extend(members.iter().map(String::as_str));
    client.request(&words)?;
    words[0] = "RPUSH";
    words[1] = "giant:{g}list";
    client.request(&words)?;
    client.request(&["SETRANGE", "giant:{g}string", "4000000", "x"])?;
    for _ in 0..10 {
        client.request(&["SUNIONSTORE", "giant:{g}b", "giant:{g}a", "giant:{g}b"])?;
        client.request(&["COPY", "giant:{g}a", "giant:{g}c", "REPLACE"])?;
    }
    client.request(&["LRANGE", "giant:{g}list", "0", "-1"])?;
    let keys = ["giant:{g}a", "giant:{g}b", "giant:{g}c", "giant:{g}list", "giant:{g}string"];
    for key in keys {
        let one: &[&str] = match maker.rng.below(4) {
            0 => &["DEL", key],
            1 => &["UNLINK", key],
            2 => &["PEXPIRE", key, "5"],
            _ => &["SET", key, "small", "PX", "50"],
        };
        client.request(one)?;
    }
    Ok(())
}

/// Opens subscribers that read no published message, publishes, and closes them.
fn subscribers(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut readers: Vec<Client> = (0..100).map(|_| maker.run.connect()).collect();
    for (index, reader) in readers.iter_mut().enumerate() {
        reader.request(&["SUBSCRIBE", "news", &format!("news:{index}")])?;
        reader.request(&["PSUBSCRIBE", "new*", &format!("*{index}")])?;
    }
    let mut publisher = maker.run.connect();
    let message = "x".repeat(1_000);
    for _ in 0..200 {
        publisher.request(&["PUBLISH", "news", &message])?;
    }
    Ok(())
}

/// Opens clients that enable tracking of keys and close before the keys change.
fn trackers(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    for _ in 0..20 {
        let mut client = maker.run.connect();
        client.request(&["HELLO", "3"])?;
        if maker.rng.percent(30) {
            client
                .request(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "check:1:", "PREFIX", "pair:"])?;
        } else {
            client.request(&["CLIENT", "TRACKING", "ON"])?;
        }
        for _ in 0..50 {
            let key = format!("check:{}:string:{}", maker.rng.below(4), maker.rng.below(50));
            // Invalidations arrive between the replies; the reads do not distinguish them.
            client.request(&["GET", &key])?;
        }
        if maker.rng.percent(50) {
            client.request(&["CLIENT", "TRACKING", "OFF"])?;
        }
    }
    Ok(())
}

/// Sends requests that contain random bytes.
fn garbage(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    let mut bytes = Vec::new();
    for _ in 0..10 {
        encode_request(&["SET", "garbage", "some value", "PX", "50"], &mut bytes);
    }
    for _ in 0..maker.rng.below(4) {
        let at = maker.rng.below(bytes.len());
        bytes[at] = maker.rng.next_u64() as u8;
    }
    client.set_read_timeout(Duration::from_millis(20));
    client.send(&bytes)?;
    // A changed length can make the server wait for more bytes than are sent, and a protocol error
    // closes the connection.
    match client.read_many(10) {
        Ok(_) | Err(ClientError::TimedOut(_) | ClientError::Closed) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Kills subscribers, pauses writes for a short time, and requests lists of all clients.
fn killer(maker: &mut Maker<'_>) -> Result<(), ClientError> {
    let mut client = maker.run.connect();
    client.request(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    client.request(&["CLIENT", "LIST"])?;
    client.request(&["INFO", "everything"])?;
    if maker.rng.percent(20) {
        let reply = client.request(&["CLIENT", "PAUSE", "20", "WRITE"])?;
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    }
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}

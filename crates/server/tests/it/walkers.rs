//! SCAN and RANDOMKEY remove the expired keys that they find, as in Redis, and all affected clients
//! are notified. A real Redis runs the same steps, if available.

use std::thread::sleep;
use std::time::Duration;

use testkit::{Address, Client, Protocol, Value, notation, peer};

use crate::support::{check, info, on_each_back_end};

/// Time that is longer than the expiry of the keys in these tests.
const LIVED: Duration = Duration::from_millis(20);

/// Reads the next `count` events, as `event key`. Returns them sorted, because SCAN and RANDOMKEY
/// visit keys in no order.
fn events(listener: &mut Client, count: usize) -> Vec<String> {
    let event = |listener: &mut Client| {
        let Value::Array(items) = listener.read().expect("a message") else {
            panic!("a message is an array")
        };
        let text = |at: usize| String::from_utf8_lossy(items[at].as_bytes().expect("text")).into_owned();
        format!("{} {}", text(2).trim_start_matches("__keyevent@0__:"), text(3))
    };
    let mut events: Vec<String> = (0..count).map(|_| event(listener)).collect();
    events.sort();
    events
}

/// Prepares a server that removes an expired key only if a command finds it. Returns a client, and
/// a subscriber to the events of expired keys.
fn prepare(address: &Address) -> (Client, Client) {
    let mut client = Client::speaking(address, Protocol::Resp2);
    let set_up = [
        ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK"),
        ("FLUSHALL", "+OK"),
        ("CONFIG RESETSTAT", "+OK"),
        ("CONFIG SET notify-keyspace-events Ex", "+OK"),
    ];
    check(&mut client, &set_up);
    let mut listener = Client::speaking(address, Protocol::Resp2);
    listener.command(&["PSUBSCRIBE", "__keyevent@0__:*"]);
    (client, listener)
}

fn expired_keys_are_removed(address: &Address) {
    let (mut client, mut listener) = prepare(address);
    check(&mut client, &[("SET a v PX 1", "+OK"), ("SET b v PX 1", "+OK")]);
    sleep(LIVED);
    check(&mut client, &[("KEYS *", "*0"), ("DBSIZE", ":2"), ("SCAN 0 COUNT 100", "*2 \"0\" *0")]);
    assert_eq!(events(&mut listener, 2), ["expired a", "expired b"]);
    check(&mut client, &[("DBSIZE", ":0"), ("SET c v PX 1", "+OK"), ("SET d v PX 1", "+OK")]);
    sleep(LIVED);
    check(&mut client, &[("RANDOMKEY", "_"), ("DBSIZE", ":0")]);
    assert_eq!(events(&mut listener, 2), ["expired c", "expired d"]);
    // A few keys among many expired ones are found.
    let sets: Vec<Vec<String>> =
        (0..50).map(|key| ["SET", &format!("k{key}"), "v", "PX", "1"].map(str::to_owned).to_vec()).collect();
    client.pipeline(&sets).expect("replies");
    check(&mut client, &[("SET live v", "+OK")]);
    sleep(LIVED);
    check(&mut client, &[("RANDOMKEY", "\"live\""), ("SCAN 0 COUNT 100", "*2 \"0\" *1 \"live\"")]);
    assert_eq!(events(&mut listener, 50).len(), 50);
    check(&mut client, &[("DBSIZE", ":1")]);
    assert_eq!(info(&mut client, "expired_keys"), 54);
}

fn expired_keys_are_removed_in_transactions(address: &Address) {
    let (mut client, mut listener) = prepare(address);
    check(&mut client, &[("SET a v PX 1", "+OK"), ("SET b v PX 1", "+OK")]);
    sleep(LIVED);
    let queued = [
        ("MULTI", "+OK"),
        ("SCAN 0 COUNT 100", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("SET live v", "+QUEUED"),
        ("RANDOMKEY", "+QUEUED"),
        ("EXEC", "*4 *2 \"0\" *0 :0 +OK \"live\""),
    ];
    check(&mut client, &queued);
    assert_eq!(events(&mut listener, 2), ["expired a", "expired b"]);
    check(&mut client, &[("DEL live", ":1"), ("SET c v PX 1", "+OK"), ("SET d v PX 1", "+OK")]);
    sleep(LIVED);
    let queued = [("MULTI", "+OK"), ("RANDOMKEY", "+QUEUED"), ("DBSIZE", "+QUEUED"), ("EXEC", "*2 _ :0")];
    check(&mut client, &queued);
    assert_eq!(events(&mut listener, 2), ["expired c", "expired d"]);
    assert_eq!(info(&mut client, "expired_keys"), 4);
}

/// Checks that a watching, a tracking and a blocked client are notified when the command `walker`
/// removes an expired key.
fn others_hear_of_the_removal_by(address: &Address, walker: &str) {
    let (mut client, _listener) = prepare(address);
    let mut watcher = Client::speaking(address, Protocol::Resp2);
    let mut cache = Client::speaking(address, Protocol::Resp3);
    let mut blocked = Client::speaking(address, Protocol::Resp2);
    check(&mut client, &[("XGROUP CREATE stream group $ MKSTREAM", "+OK")]);
    check(&mut watcher, &[("WATCH stream", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
    check(&mut cache, &[("CLIENT TRACKING ON", "+OK"), ("EXISTS stream", ":1")]);
    let mut request = Vec::new();
    let read = ["XREADGROUP", "GROUP", "group", "consumer", "BLOCK", "0", "STREAMS", "stream", ">"];
    resp::encode_request(&read, &mut request);
    blocked.send(&request).expect("it is sent");
    while info(&mut client, "blocked_clients") != 1 {
        sleep(Duration::from_millis(1));
    }
    check(&mut client, &[("PEXPIRE stream 1", ":1")]);
    let invalidated = |cache: &mut Client| notation::one_line(&cache.read().expect("a push"));
    // PEXPIRE changes the key, so it is no longer tracked until the caching client reads it again.
    assert_eq!(invalidated(&mut cache), ">2 \"invalidate\" *1 \"stream\"");
    sleep(LIVED);
    client.command(&walker.split(' ').collect::<Vec<_>>());
    let unblocked = notation::one_line(&blocked.read().expect("the end of the wait"));
    // Redis 7.0 has another text.
    let is_ended = ["-NOGROUP", "-UNBLOCKED the stream key no longer exists"];
    assert!(is_ended.iter().any(|line| unblocked.starts_with(line)), "{unblocked}");
    check(&mut watcher, &[("EXEC", "*-1")]);
    check(&mut client, &[("DBSIZE", ":0")]);
    // A key that expires while it is cached is removed by the walker, and the caching client is
    // notified.
    check(&mut client, &[("SET cached v PX 300", "+OK")]);
    check(&mut cache, &[("GET cached", "\"v\"")]);
    // Long enough for the cache to read the key on a slow machine.
    sleep(Duration::from_millis(320));
    client.command(&walker.split(' ').collect::<Vec<_>>());
    assert_eq!(invalidated(&mut cache), ">2 \"invalidate\" *1 \"cached\"");
}

fn all_steps(address: &Address) {
    expired_keys_are_removed(address);
    expired_keys_are_removed_in_transactions(address);
    others_hear_of_the_removal_by(address, "SCAN 0 COUNT 100");
    others_hear_of_the_removal_by(address, "RANDOMKEY");
}

#[test]
fn expired_keys_that_walkers_find_are_removed_and_everybody_hears_of_it() {
    on_each_back_end(|server| all_steps(&Address::port(server.port())));
}

#[test]
fn a_real_redis_removes_them_too() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    all_steps(&peer::start().expect("the peer starts").address());
}

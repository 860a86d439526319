//! Values moved between Saker and a real server as DUMP payloads, and damaged payloads.

use net::BackendChoice;
use testkit::rng::Rng;
use testkit::{Client, Value, peer};

use crate::support::{connect, payload_version, start, start_in, version_of};

/// The words of a request.
pub type Command = Vec<Vec<u8>>;

/// Number of values of each type that a run transfers.
const VALUES_PER_TYPE: usize = 12;
/// Maximum number of elements of a generated value.
const ELEMENTS_MAX: usize = 700;
/// The types of values that [`value`] generates.
pub const TYPES: [&str; 8] = ["string", "list", "intset", "set", "hash", "expiring hash", "zset", "stream"];

/// Generates a text: often a number, sometimes long, sometimes compressible.
fn text(rng: &mut Rng) -> Vec<u8> {
    match rng.below(8) {
        0..3 => (rng.next_u64() as i64 >> rng.below(64)).to_string().into_bytes(),
        3..6 => (0..rng.below(20)).map(|_| rng.next_u64() as u8).collect(),
        6 => (0..rng.below(300)).map(|_| rng.next_u64() as u8 & 1).collect(),
        _ => vec![b'x'; rng.below(10_000)],
    }
}

fn score(rng: &mut Rng) -> Vec<u8> {
    let scores: [&[u8]; 8] = [b"0", b"-inf", b"inf", b"1.5", b"-3", b"0.1", b"1e17", b"3.3333333333333335"];
    match rng.below(3) {
        0 => rng.pick(&scores).to_vec(),
        1 => rng.below(100).to_string().into_bytes(),
        _ => format!("{}.{}", rng.below(1000), rng.below(1000)).into_bytes(),
    }
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Generates commands that create a value of one type at `key`.
pub fn value(kind: &str, key: &str, rng: &mut Rng) -> Vec<Command> {
    let count = 1 + if rng.percent(50) { rng.below(6) } else { rng.below(ELEMENTS_MAX) };
    let mut many = |name: &str, element: &dyn Fn(&mut Rng) -> Command| {
        let mut command = words(&[name, key]);
        (0..count).for_each(|_| command.extend(element(rng)));
        vec![command]
    };
    match kind {
        "string" => vec![[words(&["SET", key]), vec![text(rng)]].concat()],
        "list" => many("RPUSH", &|rng| vec![text(rng)]),
        "intset" => many("SADD", &|rng| vec![rng.below(1 << 20).to_string().into_bytes()]),
        "set" => many("SADD", &|rng| vec![text(rng)]),
        "hash" => many("HSET", &|rng| vec![text(rng), text(rng)]),
        "expiring hash" => {
            let mut commands = many("HSET", &|rng| vec![rng.below(1000).to_string().into_bytes(), text(rng)]);
            for _ in 0..1 + rng.below(40) {
                let at = (1_900_000_000_000 + rng.below(1000)).to_string();
                let field = rng.below(1000).to_string();
                commands.push(words(&["HPEXPIREAT", key, &at, "FIELDS", "1", &field]));
            }
            commands
        }
        "zset" => many("ZADD", &|rng| vec![score(rng), text(rng)]),
        "stream" => stream(key, count, rng),
        _ => unreachable!("a type of value"),
    }
}

fn stream(key: &str, count: usize, rng: &mut Rng) -> Vec<Command> {
    let id = |at: usize| format!("{}-{at}", at / 3 + 1);
    let mut commands = Vec::new();
    for at in 1..=count {
        let mut command = words(&["XADD", key, &id(at), "f"]);
        command.push(text(rng));
        if rng.percent(30) {
            command.extend([text(rng), text(rng)]);
        }
        commands.push(command);
    }
    for group in ["g", "h"].into_iter().filter(|_| count.is_multiple_of(2)) {
        commands.push(words(&["XGROUP", "CREATE", key, group, "0"]));
        for consumer in ["alice", "bob"] {
            let count = rng.below(5).max(1).to_string();
            let read = ["XREADGROUP", "GROUP", group, consumer, "COUNT", &count, "STREAMS", key, ">"];
            commands.push(words(&read));
        }
    }
    for _ in 0..rng.below(3) {
        commands.push(words(&["XDEL", key, &id(1 + rng.below(count))]));
    }
    commands
}

fn bulk(reply: Value) -> Vec<u8> {
    if let Value::Bulk(bytes) = reply { bytes } else { panic!("a bulk string was expected, not {reply}") }
}

fn is_ok(reply: &Value) -> bool {
    *reply == Value::Simple(b"OK".to_vec())
}

/// Copies the value of the key `from` on server `source` to the key `to` on server `target`, as a
/// DUMP payload.
fn transfer(source: &mut Client, from: &str, target: &mut Client, to: &str) {
    let payload = bulk(source.command(&["DUMP", from]));
    let reply = target.command(&[b"RESTORE".as_slice(), to.as_bytes(), b"0", &payload, b"REPLACE"]);
    assert!(is_ok(&reply), "the payload of {from} was answered {reply}: {}", payload.escape_ascii());
}

#[test]
fn values_of_each_type_go_to_a_real_server_and_come_back() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to exchange values with");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    let server = start(BackendChoice::Auto);
    let (mut saker, mut redis) = (connect(&server), peer.connect());
    // The peer may lack this option.
    let _ = redis.command(&["CONFIG", "SET", "sanitize-dump-payload", "yes"]);
    let newest = payload_version(&mut redis);
    let mut rng = Rng::new(1);
    let info = bulk(redis.command(&["INFO", "server"]));
    // Valkey has another format for fields that expire, and older Redis versions have none.
    let knows_deadlines = String::from_utf8_lossy(&info).contains("\nredis_version:8.");
    for kind in TYPES.into_iter().filter(|kind| *kind != "expiring hash" || knows_deadlines) {
        for number in 0..VALUES_PER_TYPE {
            let key = format!("{kind}:{number}");
            for command in value(kind, &key, &mut rng) {
                let reply = saker.command(&command);
                assert!(!reply.is_error(), "{reply}");
            }
            if version_of(&bulk(saker.command(&["DUMP", &key]))) > newest {
                // An older server lacks this format: there is nothing to compare.
                continue;
            }
            transfer(&mut saker, &key, &mut redis, &key);
            transfer(&mut redis, &key, &mut saker, "back");
            // Redis 7 formats scores with other digits than Redis 8: values are compared on Saker
            // alone.
            let of = |client: &mut Client, key: &str| client.command(&["DEBUG", "DIGEST-VALUE", key]);
            assert_eq!(of(&mut saker, "back"), of(&mut saker, &key), "{key} came back changed");
            let encodings = [&key, "back"].map(|key| saker.command(&["OBJECT", "ENCODING", key]));
            assert!(!encodings[0].is_error() && !encodings[1].is_error());
            if kind == "stream" {
                let info = |client: &mut Client, key: &str| client.command(&["XINFO", "STREAM", key, "FULL"]);
                let nodes =
                    |info: Value| format!("{info}").split("last-generated-id").last().map(str::to_owned);
                assert_eq!(nodes(info(&mut saker, "back")), nodes(info(&mut saker, &key)));
            }
            if kind != "zset" {
                assert_eq!(of(&mut redis, &key), of(&mut saker, &key), "{key} is another value there");
            }
        }
    }
}

#[test]
fn reloaded_keys_are_what_they_were() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let server = start_in(folder.path());
    let mut client = connect(&server);
    let mut rng = Rng::new(3);
    for kind in TYPES {
        for number in 0..20 {
            for command in value(kind, &format!("{kind}:{number}"), &mut rng) {
                assert!(!client.command(&command).is_error());
            }
        }
    }
    client.command(&["EXPIRE", "hash:1", "1000"]);
    client.command(&["MOVE", "list:1", "5"]);
    let digest = client.command(&["DEBUG", "DIGEST"]);
    assert!(is_ok(&client.command(&["DEBUG", "RELOAD"])));
    assert_eq!(client.command(&["DEBUG", "DIGEST"]), digest);
    client.command(&["SET", "unsaved", "1"]);
    assert!(is_ok(&client.command(&["DEBUG", "RELOAD", "NOSAVE"])));
    assert_eq!(client.command(&["DEBUG", "DIGEST"]), digest);
    assert!(client.command(&["DEBUG", "RELOAD", "SOON"]).is_error());
}

#[test]
fn a_damaged_payload_is_answered_and_the_server_goes_on() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    let mut rng = Rng::new(2);
    for kind in TYPES {
        for command in value(kind, "key", &mut rng) {
            client.command(&command);
        }
        let payload = bulk(client.command(&["DUMP", "key"]));
        for _ in 0..50 {
            let mut damaged = payload.clone();
            let at = rng.below(damaged.len());
            damaged[at] ^= 1 << rng.below(8);
            damaged.truncate(damaged.len() - rng.below(2));
            let reply = client.command(&[b"RESTORE".as_slice(), b"new", b"0", &damaged]);
            let Value::Error(line) = &reply else { panic!("{reply} to {}", damaged.escape_ascii()) };
            assert_eq!(line, b"ERR DUMP payload version or checksum are wrong");
        }
        client.command(&["DEL", "key"]);
    }
}

#[test]
fn strings_are_compressed_as_the_option_says() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    client.command(&["SET", "key", &"v".repeat(1000)]);
    for (option, compressed) in [("yes", true), ("no", false), ("yes", true)] {
        client.command(&["CONFIG", "SET", "rdbcompression", option]);
        let payload = bulk(client.command(&["DUMP", "key"]));
        assert_eq!(payload.len() < 100, compressed);
        let restored = client.command(&[b"RESTORE".as_slice(), b"again", b"0", &payload, b"REPLACE"]);
        assert!(is_ok(&restored));
        assert_eq!(bulk(client.command(&["GET", "again"])), "v".repeat(1000).as_bytes());
    }
}

#[test]
fn issue_33_negative_zero_stays_what_it_is() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let server = start_in(folder.path());
    let mut client = connect(&server);
    // As in Redis 8.0.2, a small set has no negative zero and a big one keeps it.
    for (longest, shown) in [("short", "0"), (&*"long ".repeat(20), "-0")] {
        client.command(&["DEL", "z"]);
        client.command(&["ZADD", "z", "1", longest, "-0", "m", "0", "n"]);
        let payload = bulk(client.command(&["DUMP", "z"]));
        client.command(&[b"RESTORE".as_slice(), b"restored", b"0", &payload, b"REPLACE"]);
        client.command(&["COPY", "z", "copy", "REPLACE"]);
        client.command(&["DEBUG", "RELOAD"]);
        for key in ["z", "restored", "copy"] {
            assert_eq!(bulk(client.command(&["ZSCORE", key, "m"])), shown.as_bytes(), "{longest} {key}");
            assert_eq!(bulk(client.command(&["ZSCORE", key, "n"])), b"0", "{longest} {key}");
        }
    }
}

#[test]
fn issue_33_a_lag_is_never_negative() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    let lag = |client: &mut Client| {
        let groups = client.command(&["XINFO", "GROUPS", "s"]).to_string();
        groups.lines().last().unwrap_or_default().trim().to_owned()
    };
    client.command(&["XADD", "s", "1-1", "f", "v"]);
    for read in ["100", "9223372036854775807"] {
        client.command(&["XGROUP", "CREATE", "s", "g", "$", "ENTRIESREAD", read]);
        let created = lag(&mut client);
        client.command(&["XADD", "s", "*", "f", "v"]);
        client.command(&["XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"]);
        client.command(&["XGROUP", "SETID", "s", "g", "$", "ENTRIESREAD", read]);
        for shown in [created, lag(&mut client)] {
            assert!(shown.ends_with("(integer) 0"), "{read}: {shown}");
        }
        client.command(&["XGROUP", "DESTROY", "s", "g"]);
    }
}

//! Tests of a keyspace written as commands: the commands must be the same as those of Redis, and
//! must create the same keyspace again.

use std::time::{Duration, Instant};

use engine::Shared;
use keyspace::snapshot::OnFlush;
use persist::commands::append_time_annotation;
use persist::rdb::{Compression, Usage};
use persist::save::{ChunkSink, Contents, Failed, Save, SaveFormat, SaveOptions, Step, Way};
use testkit::contents::{difference, of_file, of_keyspace};
use testkit::replay::{Player, empty_engine};
use testkit::{Rng, Value, peer};

/// The time limit for a server to load a file.
const WITHIN: Duration = Duration::from_secs(30);
/// The number of databases in which the tests have keys.
const DBS: usize = 3;

/// A sink that collects the bytes of a saved file.
#[derive(Default)]
struct Bytes(std::sync::Mutex<Vec<u8>>);

impl ChunkSink for Bytes {
    fn append(&self, bytes: &[u8]) -> Result<(), Failed> {
        self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
        Ok(())
    }
}

fn options(time_s: Option<i64>) -> SaveOptions {
    SaveOptions {
        format: SaveFormat::Commands { time_s },
        contents: Contents::all(),
        on_flush: OnFlush::Abandon,
        version: None,
        compression: Compression::Lzf,
        checksum: true,
        usage: Usage::None,
        facts: vec![("none", "of an RDB file".to_owned())],
    }
}

fn begin(engine: &Shared, options: SaveOptions, functions: &[&str]) -> std::sync::Arc<Save> {
    let functions = functions.iter().map(|source| source.as_bytes().into()).collect();
    let save = engine.gate.exclusive(|alone| Save::begin(engine, alone, options, functions));
    let save = save.expect("the only one");
    assert_eq!(save.unfit(), None);
    save
}

/// Returns the bytes of the file of a save whose threads (walkers) take their steps in random
/// order. `between` is called between two steps.
fn file_of(engine: &Shared, save: &Save, rng: &mut Rng, mut between: impl FnMut(&mut Rng)) -> Vec<u8> {
    let out = Bytes::default();
    save.write_head(engine, &out);
    let mut walkers: Vec<_> = (0..1 + rng.below(3)).map(|number| save.walker(number, Way::Gate)).collect();
    while !walkers.is_empty() {
        let at = rng.below(walkers.len());
        if save.step(engine, &mut walkers[at], &out) == Step::Done {
            walkers.remove(at);
        }
        between(rng);
    }
    let progress = save.finish(engine, &out).expect("nothing fails");
    let bytes = out.0.into_inner().expect("nobody panicked");
    assert_eq!(progress.len_bytes, bytes.len() as u64);
    bytes
}

/// Returns the snapshot, written as commands, of the data that these commands create.
fn written(commands: &[&str]) -> Vec<u8> {
    let engine = empty_engine(1);
    let mut player = Player::new(&engine);
    for command in commands {
        let reply = player.run(&command.split(' ').collect::<Vec<_>>());
        assert!(!reply.is_error(), "{command}: {reply}");
    }
    file_of(&engine, &begin(&engine, options(None), &[]), &mut Rng::new(1), |_| ())
}

/// Returns the commands after the SELECT of a snapshot written as commands, one per line.
fn lines(bytes: &[u8]) -> Vec<String> {
    let select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    let rest = bytes.strip_prefix(select).expect("a database is selected first");
    let text = String::from_utf8_lossy(rest);
    let mut parts = text.split("\r\n");
    let mut lines = Vec::new();
    while let Some(count) = parts.next().and_then(|count| count.strip_prefix('*')) {
        let word = |_| {
            let len: usize = parts.next()?.strip_prefix('$')?.parse().ok()?;
            parts.next().filter(|word| word.len() == len)
        };
        let words: Option<Vec<&str>> = (0..count.parse().expect("a number")).map(word).collect();
        lines.push(words.expect("each word has its length").join(" "));
    }
    assert_eq!(parts.next(), None, "nothing stands behind the last command");
    lines
}

/// Checks that these commands create a key that is written as `expected`, which are the lines of
/// Redis 8.0.2 for the same key.
fn check(commands: &[&str], expected: &[&str]) {
    assert_eq!(lines(&written(commands)), expected, "{commands:?}");
}

#[test]
fn a_file_has_its_time_first_then_functions_then_databases() {
    let engine = empty_engine(1);
    let mut player = Player::new(&engine);
    player.run(&["SET", "str", "hello"]);
    player.run(&["SELECT", "11"]);
    player.run(&[&b"SET"[..], b"\r\n", b"\x00\r\n\xff"]);
    let options = options(Some(1_795_461_845));
    let file = file_of(
        &engine,
        &begin(&engine, options, &["#!lua name=a", "#!lua name=b"]),
        &mut Rng::new(1),
        |_| (),
    );
    let expected = b"#TS:1795461845\r\n\
        *3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n$12\r\n#!lua name=a\r\n\
        *3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n$12\r\n#!lua name=b\r\n\
        *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n\
        *3\r\n$3\r\nSET\r\n$3\r\nstr\r\n$5\r\nhello\r\n\
        *2\r\n$6\r\nSELECT\r\n$2\r\n11\r\n\
        *3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$4\r\n\x00\r\n\xff\r\n";
    assert_eq!(file.escape_ascii().to_string(), expected.escape_ascii().to_string());
    assert_eq!(written(&[]), b"");
    let mut line = Vec::new();
    append_time_annotation(0, &mut line);
    assert_eq!(line, b"#TS:0\r\n");
}

#[test]
fn strings_and_expiries_are_written_as_redis_does() {
    check(&["SET k hello"], &["SET k hello"]);
    check(&["SET k "], &["SET k "]);
    check(&["SET k -5"], &["SET k -5"]);
    check(&["SET k v", "PEXPIREAT k 9000000000123"], &["SET k v", "PEXPIREAT k 9000000000123"]);
    let long = "x".repeat(100_000);
    check(&[&format!("SET k {long}")], &[&format!("SET k {long}")]);
}

#[test]
fn lists_sets_hashes_and_sorted_sets_are_written_as_redis_does() {
    check(&["RPUSH k a b 1 -7", "EXPIREAT k 9000000000"], &["RPUSH k a b 1 -7", "PEXPIREAT k 9000000000000"]);
    check(&["SADD k 2 0 1"], &["SADD k 0 1 2"]);
    check(&["HSET k f v g 2"], &["HMSET k f v g 2"]);
    check(
        &["HSET k f v g 2", "HPEXPIREAT k 9000000000456 FIELDS 1 f"],
        &["HMSET k f v", "HPEXPIREAT k 9000000000456 FIELDS 1 f", "HMSET k g 2"],
    );
    check(
        &["ZADD k 1 a 2.5 b 0.1 c inf d -inf e 1e20 f 1e30 g 3.0000000000000001e-7 i 17 5"],
        &["ZADD k -inf e 3e-7 i 0.1 c 1 a 2.5 b 17 5 1e+20 f 1e+30 g inf d"],
    );
}

#[test]
fn no_command_has_more_than_64_items() {
    let words = |numbers: std::ops::Range<usize>, each: &dyn Fn(usize) -> String| {
        numbers.map(each).collect::<Vec<_>>().join(" ")
    };
    let check_split = |made_with: &str, command: &str, each: &dyn Fn(usize) -> String| {
        let expected =
            [0..64, 64..128, 128..130].map(|numbers| format!("{command} k {}", words(numbers, each)));
        let made = format!("{made_with} k {}", words(0..130, each));
        check(&[&made], &expected.each_ref().map(|line| &**line));
        check(&[&format!("{made_with} k {}", words(0..64, each))], &[&expected[0]]);
    };
    check_split("RPUSH", "RPUSH", &|number| format!("e{number}"));
    check_split("RPUSH", "RPUSH", &|number| format!("{number}{}", "y".repeat(300)));
    check_split("SADD", "SADD", &|number| number.to_string());
    // The order of tables is their own.
    for (made_with, command, words_of_item) in
        [("HSET", "HMSET", 2), ("ZADD", "ZADD", 2), ("SADD", "SADD", 1)]
    {
        let word = |number: usize| match words_of_item {
            1 => format!("m{number}{}", "z".repeat(1000)),
            _ => format!("{number} m{number}{}", "z".repeat(1000)),
        };
        let file = written(&[&format!("{made_with} k {}", words(0..130, &word))]);
        let counts: Vec<usize> = lines(&file).iter().map(|line| line.split(' ').count()).collect();
        assert_eq!(counts, [64, 64, 2].map(|items| 2 + items * words_of_item), "{command}");
        assert!(lines(&file).iter().all(|line| line.starts_with(command)));
    }
}

#[test]
fn a_command_of_long_items_ends_early() {
    let words: Vec<String> = (0..10).map(|number| format!("{number}{}", "x".repeat(400_000))).collect();
    let expected = words.chunks(3).map(|words| format!("RPUSH k {}", words.join(" ")));
    let expected: Vec<String> = expected.chain(["PEXPIREAT k 9000000000123".to_owned()]).collect();
    let made = format!("RPUSH k {}", words.join(" "));
    assert!(lines(&written(&[&made, "PEXPIREAT k 9000000000123"])) == expected);
}

#[test]
fn streams_are_written_as_redis_does() {
    check(
        &[
            "XADD k 1-1 f v g w",
            "XADD k 5-1 f v",
            "XDEL k 5-1",
            "XGROUP CREATE k grp 1-0",
            "XGROUP CREATECONSUMER k grp empty",
            "XREADGROUP GROUP grp alice COUNT 1 STREAMS k >",
            "XREADGROUP GROUP grp bob COUNT 1 NOACK STREAMS k >",
            "XCLAIM k grp alice 0 1-1 TIME 999999999 RETRYCOUNT 3",
        ],
        &[
            "XADD k 1-1 f v g w",
            "XSETID k 5-1 ENTRIESADDED 2 MAXDELETEDID 5-1",
            "XGROUP CREATE k grp 1-1 ENTRIESREAD -1",
            "XCLAIM k grp alice 0 1-1 TIME 999999999 RETRYCOUNT 3 JUSTID FORCE",
            "XGROUP CREATECONSUMER k grp bob",
            "XGROUP CREATECONSUMER k grp empty",
        ],
    );
    check(
        &["XGROUP CREATE k g $ MKSTREAM"],
        &[
            "XADD k MAXLEN 0 0-1 x y",
            "XSETID k 0-0 ENTRIESADDED 0 MAXDELETEDID 0-0",
            "XGROUP CREATE k g 0-0 ENTRIESREAD -1",
        ],
    );
    check(
        &["XADD k 7-7 a b", "XDEL k 7-7", "PEXPIREAT k 9000000000123"],
        &[
            "XADD k MAXLEN 0 0-1 x y",
            "XSETID k 7-7 ENTRIESADDED 1 MAXDELETEDID 7-7",
            "PEXPIREAT k 9000000000123",
        ],
    );
    check(&["XADD k 0-1 a b"], &["XADD k 0-1 a b", "XSETID k 0-1 ENTRIESADDED 1 MAXDELETEDID 0-0"]);
}

/// Returns a random command that changes a key. Values are of all types, small or written in
/// pieces.
fn random_change(rng: &mut Rng, has_timed_fields: bool) -> Vec<String> {
    let kinds = ["str", "list", "set", "hash", "zset", "stream", "emptied"];
    let kind = *rng.pick(&kinds);
    let key = format!("{kind}{}", rng.below(3));
    let count = *rng.pick(&[1, 2, 20, 150]);
    let word = |rng: &mut Rng| match rng.below(3) {
        0 => rng.below(1 << 30).to_string(),
        1 => format!("e{}", rng.below(50)),
        _ => format!("e{}{}", rng.below(400), "y".repeat(rng.below(400))),
    };
    let at_ms = (9_000_000_000_000 + rng.below(1000)).to_string();
    let mut command = |head: &[&str], each: &dyn Fn(&mut Rng) -> Vec<String>| {
        let mut words: Vec<String> = head.iter().map(|&word| word.to_owned()).collect();
        (0..count).for_each(|_| words.extend(each(rng)));
        words
    };
    let plain = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let (what, number) = (count % 7, at_ms.as_bytes()[12] - b'0');
    match (kind, number) {
        (_, 0) => plain(&["DEL", &key]),
        (_, 1) => plain(&["PEXPIREAT", &key, &at_ms]),
        ("str", _) if what == 1 => plain(&["SET", &key, &at_ms]),
        ("str", _) => plain(&["SET", &key, &at_ms.repeat(count * 10)]),
        ("list", 2) => plain(&["LPOP", &key, "3"]),
        ("list", 3) => plain(&["LSET", &key, "0", &at_ms]),
        ("list", 4..=5) => command(&["LPUSH", &key], &|rng| vec![word(rng)]),
        ("list", _) => command(&["RPUSH", &key], &|rng| vec![word(rng)]),
        ("set", 2) => plain(&["SPOP", &key, "3"]),
        ("set", _) => command(&["SADD", &key], &|rng| vec![word(rng)]),
        ("hash", 2..=4) if has_timed_fields => {
            let numbers = || (0..50).map(|number| format!("e{number}"));
            let head = ["HPEXPIREAT", &key, &at_ms, "FIELDS", "50"].map(str::to_owned);
            head.into_iter().chain(numbers()).collect()
        }
        ("hash", _) => command(&["HSET", &key], &|rng| vec![word(rng), word(rng)]),
        ("zset", 2) => plain(&["ZPOPMIN", &key, "3"]),
        ("zset", _) => command(&["ZADD", &key], &|rng| {
            let score = [rng.below(9) as f64, -0.5 * rng.below(9) as f64, 1e30, f64::INFINITY];
            vec![rng.pick(&score).to_string(), word(rng)]
        }),
        ("stream", 2) => plain(&["XGROUP", "CREATE", &key, &format!("g{}", count % 3), "0", "MKSTREAM"]),
        ("stream", 3..=4) => {
            let (group, count) = (format!("g{}", what % 3), count.to_string());
            plain(&["XREADGROUP", "GROUP", &group, &count, "COUNT", "7", "STREAMS", &key, ">"])
        }
        ("emptied", 2) => plain(&["XGROUP", "CREATE", &key, "g", "$", "MKSTREAM"]),
        ("emptied", 3) => plain(&["XTRIM", &key, "MAXLEN", "0"]),
        (_, _) => command(&["XADD", &key, "*"], &|rng| vec![word(rng), word(rng)]),
    }
}

/// Makes `changes` random changes of keys in all databases through `player`.
fn change(player: &mut Player<'_>, rng: &mut Rng, (changes, has_timed_fields): (usize, bool)) {
    for _ in 0..changes {
        player.run(&["SELECT", &rng.below(DBS).to_string()]);
        player.run(&random_change(rng, has_timed_fields));
    }
}

#[test]
fn commands_make_the_keyspace_of_their_point_whatever_changes_meanwhile() {
    let mut pieces = 0;
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let engine = empty_engine(seed);
        let mut player = Player::new(&engine);
        change(&mut player, &mut rng, (500, true));
        let save = begin(&engine, options((seed % 2 == 0).then_some(7)), &["#!lua name=a"]);
        let at_point = of_keyspace(&engine.keyspace);
        let file = file_of(&engine, &save, &mut rng, |rng| {
            if rng.percent(10) {
                change(&mut player, rng, (1, true));
            }
        });
        let replica = empty_engine(seed + 1000);
        let mut replayed = Player::new(&replica);
        replayed.replay(&file).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(replayed.functions, [b"#!lua name=a"], "seed {seed}");
        let found = of_keyspace(&replica.keyspace);
        let difference = difference(("the keyspace", &at_point), ("the commands", &found));
        assert_eq!(difference, None, "seed {seed}");
        pieces += at_point.values().filter(|value| value.len() > 100_000).count();
    }
    assert!(pieces > 50, "{pieces} values were big");
}

#[test]
fn a_real_server_loads_the_commands() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let reply = peer::start().expect("it starts").connect().command(&["COMMAND", "INFO", "hpexpireat"]);
    let has_timed_fields = matches!(&reply, Value::Array(found) if found[0] != Value::Null);
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let engine = empty_engine(seed);
        change(&mut Player::new(&engine), &mut rng, (700, has_timed_fields));
        let source = "#!lua name=a\nredis.register_function('f', function() return 1 end)";
        let save = begin(&engine, options(Some(1_700_000_000)), &[source]);
        let file = file_of(&engine, &save, &mut rng, |_| ());
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::write(folder.path().join("appendonly.aof"), file).expect("written");
        let dir = folder.path().to_str().expect("a name of text");
        let server = peer::start_with(&["--dir", dir, "--appendonly", "yes"]).expect("it loads the file");
        let (mut client, since) = (server.connect(), Instant::now());
        while client.command(&["PING"]).is_error() {
            assert!(since.elapsed() < WITHIN, "it loads the file");
        }
        assert_eq!(client.command(&["FCALL", "f", "0"]), Value::Integer(1));
        assert_eq!(client.command(&["SAVE"]).to_string(), "OK");
        let theirs = std::fs::read(folder.path().join("dump.rdb")).expect("saved");
        let found = of_file(&theirs[..], engine.keyspace.hasher()).expect("a whole file").keys;
        let ours = of_keyspace(&engine.keyspace);
        assert_eq!(difference(("the keyspace", &ours), ("the server", &found)), None, "seed {seed}");
    }
}

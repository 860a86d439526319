//! Tests of the commands and transactions (units) of a replication stream: their order, offsets,
//! control requests and errors.

use engine::apply::{ApplyError, Progressed, UnknownCommands};
use engine::settings::Settings;

use super::{Stream, encoded, replica, thread};
use crate::log::Kept;

#[test]
fn units_are_applied_in_order_and_reported_with_the_selected_database() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    stream.apply("SELECT 0\nSET k 1\nINCRBY k 4\nRPUSH l a b");
    assert_eq!(stream.reports.last.map(|(db, _)| db), Some(0));
    stream.apply("SELECT 3\nINCR k\nPING\nREPLCONF GETACK *");
    assert!(stream.is_reported());
    assert_eq!(stream.reports.last.map(|(db, _)| db), Some(3));
    assert_eq!(thread.run(client, "GET k").0, "$1|5|");
    thread.run(client, "SELECT 3");
    assert_eq!(thread.run(client, "GET k").0, "$1|1|");
    // A line without words is part of the stream.
    assert_eq!(stream.push(b"\r\n"), Ok(Progressed::NeedsInput(0)));
    assert!(stream.is_reported());
    assert!(stream.reports.failures.is_empty());
}

#[test]
fn an_acknowledgement_is_asked_for_with_the_offset_before_its_request() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let before = encoded("SET k 1\nPING");
    stream.apply("SET k 1\nPING\nREPLCONF GETACK *\nSET k 2\nREPLCONF GETACK *");
    let second = before.len() + encoded("REPLCONF GETACK *\nSET k 2").len();
    assert_eq!(stream.reports.asked_at, [before.len(), second]);
    assert!(stream.is_reported());
}

#[test]
fn a_part_of_a_transaction_is_neither_applied_nor_reported() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    let whole = encoded("MULTI\nINCR a\nSELECT 2\nINCR a\nSELECT 0\nINCR b\nEXEC");
    let ahead = stream.apply("SET a 10");
    for cut in 0..whole.len() {
        stream.push(&whole[cut..=cut]).expect("it is whole");
        let is_whole = cut + 1 == whole.len();
        assert_eq!(stream.dropped, if is_whole { ahead + whole.len() } else { ahead }, "{cut}");
        assert_eq!(thread.run(client, "GET a").0, if is_whole { "$2|11|" } else { "$2|10|" });
    }
    // The link is cut in a second one, and a new link sends it again from its MULTI.
    stream.push(&whole[..whole.len() - 1]).expect("it is a beginning");
    let mut again = Stream::new(&shared, &clock);
    again.push(&whole).expect("it is whole");
    assert!(again.is_reported());
    assert_eq!(thread.run(client, "MGET a b").0, "*2|$2|12|$1|2|");
    thread.run(client, "SELECT 2");
    assert_eq!(thread.run(client, "GET a").0, "$1|2|");
}

#[test]
fn a_database_that_a_transaction_selects_stays_selected() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    // With and without commands that need the whole keyspace.
    for (number, further) in ["", "\nSWAPDB 4 5"].into_iter().enumerate() {
        stream.apply(&format!("SELECT 1\nMULTI\nSET k {number}\nSELECT 2\nSET k {number}{further}\nEXEC"));
        assert_eq!(stream.reports.last.map(|(db, _)| db), Some(2));
        stream.apply("SET last 1");
        for db in [1, 2] {
            thread.run(client, &format!("SELECT {db}"));
            assert_eq!(thread.run(client, "GET k").0, format!("$1|{number}|"));
        }
    }
    assert_eq!(thread.run(client, "GET last").0, "$1|1|");
    assert!(stream.reports.failures.is_empty());
}

#[test]
fn a_stream_may_be_cut_at_any_byte() {
    let text = "SELECT 1\nMSET a 1 b 2\nMULTI\nINCR a\nFLUSHDB\nSET c 3\nEXEC\nPING\nREPLCONF GETACK *\nRPUSH l 1 2 3";
    let whole = encoded(text);
    let members: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    // Long enough that the parser keeps what it has parsed of it.
    let long = encoded(&format!("SADD s {}", members.join(" ")));
    for (bytes, reply) in [(&whole, ":3|"), (&long, ":100|")] {
        for cut in 0..bytes.len() {
            let (shared, clock) = replica(Settings::default());
            let mut stream = Stream::new(&shared, &clock);
            stream.push(&bytes[..cut]).expect("it is a beginning");
            stream.push(&bytes[cut..]).expect("it is whole");
            assert!(stream.is_reported(), "{cut}");
            let mut thread = thread(&shared, &clock);
            let client = thread.connect();
            if bytes == &whole {
                thread.run(client, "SELECT 1");
                assert_eq!(thread.run(client, "DBSIZE").0, ":2|");
            }
            let request = if bytes == &whole { "LLEN l" } else { "SCARD s" };
            assert_eq!(thread.run(client, request).0, reply);
        }
    }
}

#[test]
fn more_than_a_batch_is_applied_and_each_byte_reported_once() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let requests: String = (0..1000).map(|number| format!("INCR n\nSET k{number} v\n")).collect();
    stream.apply(&requests);
    assert!(stream.is_reported());
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    assert_eq!(thread.run(client, "GET n").0, "$4|1000|");
    assert_eq!(thread.run(client, "DBSIZE").0, ":1001|");
}

#[test]
fn an_unknown_command_ends_the_stream_or_is_skipped() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    let end = stream.push(&encoded("SET k 1\nJSON.SET j $ 1\nSET k 2"));
    assert_eq!(end, Err(ApplyError::Unknown("JSON.SET".to_owned())));
    assert_eq!(stream.dropped, encoded("SET k 1").len(), "what is ahead of it is applied");
    let mut stream = Stream::new(&shared, &clock);
    stream.applier.set_unknown(UnknownCommands::Skip);
    stream.apply("MULTI\nSET a 1\nJSON.SET j $ 1\nSET b 2\nEXEC\nVADD v\nSET k 3");
    assert!(stream.is_reported());
    let names: Vec<&str> = stream.reports.failures.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["JSON.SET", "VADD"]);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    assert_eq!(thread.run(client, "MGET a b k").0, "*3|$1|1|$1|2|$1|3|");
}

#[test]
fn damaged_bytes_end_the_stream_after_what_is_whole() {
    for damaged in ["*x\r\n", "*2\r\n+GET\r\n", "*1\r\n$-5\r\n"] {
        let (shared, clock) = replica(Settings::default());
        let mut stream = Stream::new(&shared, &clock);
        let end = stream.push(&[encoded("SET k 1\nMULTI\nSET k 2"), damaged.into()].concat());
        assert!(matches!(end, Err(ApplyError::Broken(_))), "{end:?}");
        assert_eq!(stream.dropped, encoded("SET k 1").len());
        let mut thread = thread(&shared, &clock);
        let client = thread.connect();
        assert_eq!(thread.run(client, "GET k").0, "$1|1|");
    }
}

#[test]
fn each_failed_command_is_told() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("SET k text\nINCR k\nMULTI\nSET a 1\nLPUSH k x\nINCR k\nEXEC\nSET k");
    assert!(stream.is_reported());
    let failures: Vec<(&str, &str)> =
        stream.reports.failures.iter().map(|(command, error)| (&**command, &**error)).collect();
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let no_integer = "ERR value is not an integer or out of range";
    let words = "ERR wrong number of arguments for 'set' command";
    assert_eq!(failures, [("INCR", no_integer), ("EXEC", wrong_type), ("EXEC", no_integer), ("SET", words)]);
    // Behind a value that is not copied into the reply.
    stream.reports.failures.clear();
    let big = "x".repeat(100_000);
    stream.apply(&format!("SET big {big}\nMULTI\nSET big y GET\nINCR k\nEXEC"));
    assert_eq!(stream.reports.failures, [("EXEC".to_owned(), no_integer.to_owned())]);
}

#[test]
fn a_command_that_would_block_fails() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("BLPOP l 0\nRPUSH l a");
    assert_eq!(stream.reports.failures.len(), 1);
    assert_eq!(shared.blocked.blocked_clients().load(std::sync::atomic::Ordering::Relaxed), 0);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    assert_eq!(thread.run(client, "LLEN l").0, ":1|");
}

#[test]
fn what_is_applied_is_recorded_once_for_the_file() {
    let (shared, clock) = replica(Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut stream = Stream::new(&shared, &clock);
    stream.apply(
        "SELECT 2\nSET k 1\nPING\nREPLCONF GETACK *\nMULTI\nINCR k\nSELECT 1\nSET o 1\nEXEC\nPUBLISH c m\nDEL absent",
    );
    let expected = ["SELECT 2", "SET k 1", "MULTI", "INCR k", "SELECT 1", "SET o 1", "EXEC"];
    assert_eq!(kept.commands(&shared), expected);
    assert_eq!(stream.reports.last, Some((1, shared.log.drawn())));
}

#[test]
fn a_script_of_an_old_primary_runs_once() {
    let (shared, clock) = replica(Settings::default());
    let mut stream = Stream::new(&shared, &clock);
    stream.apply("EVAL INCR,k;INCR,o 1 k\nEVAL write!INCR,k 0\nMULTI\nEVAL INCR,k 0\nEXEC");
    assert!(stream.is_reported());
    assert!(stream.reports.failures.is_empty(), "{:?}", stream.reports.failures);
    let mut thread = thread(&shared, &clock);
    let client = thread.connect();
    assert_eq!(thread.run(client, "MGET k o").0, "*2|$1|3|$1|1|");
}

#[test]
fn a_damaged_stream_cannot_ask_for_a_string_beyond_the_bound() {
    let mut settings = Settings::default();
    settings.limits.string_len_bytes_max = 1 << 20;
    let (shared, clock) = replica(settings);
    let mut stream = Stream::new(&shared, &clock);
    // The primary may permit longer strings than this server.
    stream.apply("SETRANGE k 1048576 x");
    assert!(stream.is_reported() && stream.reports.failures.is_empty());
    assert_eq!(shared.keyspace.reachable_db_size(0).keys, 1);
    // A byte, and a bit, behind 4 GiB.
    for request in ["SETRANGE b 4294967296 x", "SETRANGE b 4294967295 xy", "SETBIT b 34359738368 1"] {
        stream.reports.failures.clear();
        stream.apply(request);
        let [(_, error)] = &stream.reports.failures[..] else { panic!("{request}: one failure") };
        assert!(error.contains("maximum allowed size") || error.contains("not an integer"), "{error}");
    }
    assert_eq!(shared.keyspace.reachable_db_size(0).keys, 1);
}

//! Tests of the replies of commands on vector sets.

use crate::ctx::EventClass;
use crate::harness::{Harness, check};

#[test]
fn elements_come_and_go() {
    check(&[
        ("VCARD v", ":0|"),
        ("VINFO v", "_|"),
        ("VDIM v", "-ERR key does not exist|"),
        ("VADD v VALUES 2 1 x a", "-ERR invalid vector specification|"),
        ("VADD v VALUES 2 1 inf a", "-ERR invalid vector specification|"),
        ("EXISTS v", ":0|"),
        ("VADD v VALUES 1 1", "-ERR wrong number of arguments for 'vadd' command|"),
        ("VADD v FP32 abc a", "-ERR invalid vector specification|"),
        ("VADD v VALUES 9223372036854775807 1 a", "-ERR invalid vector specification|"),
        ("SET s x", "+OK|"),
        ("VADD s VALUES 1 x a", "-ERR invalid vector specification|"),
        ("VADD s VALUES 1 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
    let mut db = Harness::new();
    assert_eq!(db.line("VADD v VALUES 2 1 0 a"), ":1|");
    assert_eq!(db.line("VADD v VALUES 2 1 0 a"), ":0|");
    assert_eq!((db.line("VISMEMBER v a"), db.line("VISMEMBER v b")), (":1|".into(), ":0|".into()));
    assert_eq!((db.line("VREM v b"), db.line("VREM v a")), (":0|".into(), ":1|".into()));
    assert_eq!(db.line("EXISTS v"), ":0|");
    db.protocol = resp::Protocol::Resp3;
    assert_eq!(db.line("VADD v VALUES 2 1 0 a"), "#t|");
    assert_eq!(db.line("VSETATTR v a x"), "#t|");
    assert_eq!(db.line("VREM v b"), "#f|");
    assert_eq!(db.line("VSIM v ELE a WITHSCORES"), "%1|$1|a|,1|");
    assert_eq!(db.line("VSIM v ELE a WITHATTRIBS"), "%1|$1|a|$1|x|");
    assert_eq!(db.line("VSIM v ELE a WITHSCORES WITHATTRIBS"), "%1|$1|a|*2|,1|$1|x|");
    assert_eq!(db.line("VLINKS v a WITHSCORES"), "*1|%0|");
}

#[test]
fn options_must_agree_with_the_set() {
    let mut db = Harness::new();
    assert_eq!(db.line("VADD v VALUES 2 1 0 a NOQUANT M 8"), ":1|");
    for (line, reply) in [
        ("VADD v VALUES 3 1 0 0 a BIN M 9", "-ERR asked quantization mismatch with existing vector set|"),
        ("VADD v VALUES 3 1 0 0 a NOQUANT", "-ERR asked M value mismatch with existing vector set|"),
        ("VADD v VALUES 3 1 0 0 a NOQUANT M 8", "-ERR Vector dimension mismatch - got 3 but set has 2|"),
        (
            "VADD v REDUCE 1 VALUES 2 1 0 a NOQUANT M 8",
            "-ERR cannot add projection to existing set without projection|",
        ),
        ("VADD v VALUES 2 1 0 a M 3", "-ERR invalid M|"),
        ("VADD v VALUES 2 1 0 a EF 1000001", "-ERR invalid EF|"),
        ("VADD v VALUES 2 1 0 a EF", "-ERR invalid option after element|"),
        ("VADD w REDUCE 65536 VALUES 257 x", "-ERR invalid vector specification|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
    let wide = format!("VADD w REDUCE 65536 VALUES 257 {}a", "1 ".repeat(257));
    let refused = "-ERR REDUCE is limited to 16777216 as the product of both numbers of dimensions|";
    assert_eq!(db.line(&wide), refused);
    assert_eq!(db.line("VADD r REDUCE 2 VALUES 3 1 2 3 a"), ":1|");
    for (line, reply) in [
        ("VADD r REDUCE 2 VALUES 3 1 2 3 a", ":0|"),
        ("VADD r VALUES 3 1 2 3 a", "-ERR Vector dimension mismatch - got 3 but set has 2|"),
        ("VADD r VALUES 2 1 2 a", "-ERR Vector dimension mismatch - got 2 but set has 2|"),
        ("VADD r REDUCE 1 VALUES 3 1 2 3 a", "-ERR Vector dimension mismatch - got 3 but set has 2|"),
        (
            "VADD r REDUCE 2 VALUES 4 1 2 3 4 a",
            "-ERR Input dimension mismatch for projection - got 4 but projection expects 3|",
        ),
        (
            "VSIM r VALUES 4 1 2 3 4",
            "-ERR Input dimension mismatch for projection - got 4 but projection expects 3|",
        ),
        ("VSIM r VALUES 3 1 2 3", "*1|$1|a|"),
        ("VSIM r VALUES 2 1 2", "*1|$1|a|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
}

#[test]
fn random_elements_are_bounded() {
    let mut db = Harness::new();
    db.limits.string_len_bytes_max = 10_000;
    (0..100).for_each(|n| assert_eq!(db.line(&format!("VADD v VALUES 2 1 {n} e{n} EF 10")), ":1|"));
    for count in [0, 5, 33, 50, 100] {
        let words =
            crate::harness::words_of(&db.run_bytes(&[b"VRANDMEMBER", b"v", count.to_string().as_bytes()]));
        let different: std::collections::HashSet<_> = words.iter().collect();
        assert_eq!((words.len(), different.len()), (count, count));
    }
    assert!(db.line("VRANDMEMBER v 9223372036854775807").starts_with("*100|"));
    assert!(db.line("VRANDMEMBER v -200").starts_with("*200|"));
    assert_eq!(db.line("VRANDMEMBER v -100000"), "-ERR value is out of range|");
    assert_eq!(db.line("VRANDMEMBER v x"), "-ERR COUNT value is not an integer|");
    assert!(db.line("VSIM v ELE e1 COUNT 9223372036854775807 EF 9223372036854775807").starts_with("*100|"));
    assert!(db.line("VSIM v ELE e1 COUNT 9223372036854775807 TRUTH").starts_with("*100|"));
    assert_eq!(db.line("VRANGE v [e98 + 2"), "*2|$3|e98|$3|e99|");
    assert_eq!(db.line("VRANGE v - (e1"), "*1|$2|e0|");
    assert_eq!(db.line("VRANGE v - + 0"), "*0|");
    assert!(db.line("VRANGE v - + -1").starts_with("*100|$2|e0|$2|e1|$3|e10|"));
    assert_eq!(db.line("VRANGE v e1 +"), "-ERR invalid range item|");
}

#[test]
fn commands_raise_no_events_but_that_of_a_new_key() {
    let mut db = Harness::new();
    db.effects.wanted_events |= EventClass::all() - EventClass::MISSED;
    db.access_results.wants_created = true;
    db.check_events(&[
        ("VADD v VALUES 2 1 0 a", ":1|", "new v@0"),
        ("VADD v VALUES 2 1 0 b SETATTR x", ":1|", ""),
        ("VSETATTR v a y", ":1|", ""),
        ("VREM v a", ":1|", ""),
        ("VREM v b", ":1|", ""),
    ]);
}

#[test]
fn empty_attributes_are_kept_for_a_new_element_only() {
    check(&[("VGETATTR v a", "_|"), ("VSIM v ELE a FILTER (", "*0|")]);
    let mut db = Harness::new();
    for (line, reply) in [
        ("VADD v VALUES 2 1 0 a SETATTR \"\"", ":1|"),
        ("VGETATTR v a", "$0||"),
        ("VADD v VALUES 2 1 0 a SETATTR x", ":0|"),
        ("VADD v VALUES 2 0 1 a", ":0|"),
        ("VGETATTR v a", "$1|x|"),
        ("VADD v VALUES 2 1 0 a SETATTR \"\"", ":0|"),
        ("VGETATTR v a", "$-1|"),
        ("VSETATTR v a y", ":1|"),
        ("VSETATTR v a \"\"", ":1|"),
        ("VGETATTR v a", "$-1|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
}

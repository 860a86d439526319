//! Replies, events and limits of the commands on arrays.

use crate::harness::{Harness, check};

#[test]
fn indexes_are_checked_before_anything_changes() {
    let invalid = "-ERR invalid array index|";
    check(&[
        ("ARSET a -1 x", invalid),
        ("ARSET a 18446744073709551615 x", invalid),
        ("ARSET a 18446744073709551614 x y", "-ERR array index overflow|"),
        ("ARSET a 1.5 x", invalid),
        ("ARMSET a 0 x z y", invalid),
        ("ARMSET a 0 x 1", "-ERR wrong number of arguments for 'armset' command|"),
        ("ARGET a x", invalid),
        ("ARDEL a 0 x", invalid),
        ("ARDELRANGE a 0 x", invalid),
        ("ARDELRANGE a 0 1 2", "-ERR wrong number of arguments for 'ardelrange' command|"),
        ("ARSEEK a 18446744073709551616", invalid),
        ("ARRING a 0 x", "-ERR size must be positive|"),
        ("ARRING a x x", "-ERR invalid size|"),
        ("EXISTS a", ":0|"),
        ("SET s x", "+OK|"),
        ("ARGET s x", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("ARSET s x y", invalid),
        ("ARSET s 0 y", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("ARINSERT s y", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
}

#[test]
fn the_last_indexes_are_shown_as_big_numbers() {
    let mut db = Harness::new();
    for (line, reply) in [
        ("ARSET a 18446744073709551614 z", ":1|"),
        ("ARLEN a", "$20|18446744073709551615|"),
        ("ARSEEK a 18446744073709551614", ":1|"),
        ("ARINSERT a x y", "-ERR insert index overflow|"),
        ("ARINSERT a y", "$20|18446744073709551614|"),
        ("ARNEXT a", "$-1|"),
        ("ARINSERT a z", "-ERR insert index overflow|"),
        ("ARSCAN a 0 18446744073709551614", "*1|*2|$20|18446744073709551614|$1|y|"),
        ("ARGETRANGE a 0 1000000", "-ERR range exceeds maximum of 1000000 items|"),
        ("ARLASTITEMS a 1000001", "-ERR count exceeds maximum of 1000000 items|"),
        ("ARLASTITEMS a 1", "*1|$1|y|"),
        ("AROP a 0 18446744073709551614 USED", ":1|"),
        ("ARDELRANGE a 18446744073709551614 0", ":1|"),
        ("EXISTS a", ":0|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
    db.protocol = resp::Protocol::Resp3;
    assert_eq!(db.line("ARSET a 18446744073709551614 z"), ":1|");
    assert_eq!(db.line("ARLEN a"), "(18446744073709551615|");
}

#[test]
fn numbers_are_computed_as_redis_computes_them() {
    let mut db = Harness::new();
    assert_eq!(db.line("ARSET a 0 10 0.1 0.2 text -3 7.9 1e400 9223372036854775807"), ":8|");
    for (line, reply) in [
        ("AROP a 1 2 SUM", "$3|0.3|"),
        ("AROP a 0 4 SUM", "$3|7.3|"),
        ("AROP a 0 5 MIN", "$2|-3|"),
        ("AROP a 0 5 MAX", "$2|10|"),
        ("AROP a 3 3 SUM", "$-1|"),
        ("AROP a 0 6 MAX", "$6|1e+400|"),
        ("AROP a 7 7 SUM", "$22|9.2233720368547758e+18|"),
        ("AROP a 5 5 AND", ":7|"),
        ("AROP a 0 5 OR", ":-1|"),
        ("AROP a 6 6 XOR", "$-1|"),
        ("AROP a 0 7 MATCH -3", ":1|"),
        ("AROP a 0 7 MATCH", "-ERR MATCH requires a value argument|"),
        ("AROP a 0 7 NOPE", "-ERR unknown operation|"),
        ("AROP a 0 7 SUM x", "-ERR wrong number of arguments for 'arop' command|"),
        ("AROP none 0 7 USED", ":0|"),
        ("AROP none 0 7 SUM", "$-1|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
}

#[test]
fn conditions_of_argrep() {
    let mut db = Harness::new();
    assert_eq!(db.line("ARSET a 3 apple Apricot banana 12 x"), ":5|");
    for (line, reply) in [
        ("ARGREP a - + MATCH ap", "*1|:3|"),
        ("ARGREP a - + MATCH ap NOCASE", "*2|:3|:4|"),
        ("ARGREP a + - MATCH ap NOCASE LIMIT 1", "*1|:4|"),
        ("ARGREP a 0 4 GLOB a* EXACT Apricot", "*2|:3|:4|"),
        ("ARGREP a 0 100 RE ^[a-z]+$ MATCH an AND WITHVALUES", "*1|*2|:5|$6|banana|"),
        ("ARGREP a - + RE ^[0-9]+$ OR EXACT X NOCASE", "*2|:6|:7|"),
        ("ARGREP none - + EXACT x", "*0|"),
        ("ARGREP a - + LIMIT 1", "-ERR syntax error|"),
        ("ARGREP a - + EXACT x LIMIT 0", "-ERR LIMIT must be positive|"),
        ("ARGREP a - + EXACT x FOO", "-ERR syntax error|"),
        ("ARGREP a x + EXACT x", "-ERR invalid array index|"),
        ("ARGREP a - + RE (", "-ERR invalid regular expression: Missing ')'|"),
        ("ARGREP a - + RE (a)\\1", "-ERR regular expression backreferences are not supported|"),
    ] {
        assert_eq!(db.line(line), reply, "{line}");
    }
    assert_eq!(db.line("ARSET cases 0 aaa AAA bbb"), ":3|");
    assert_eq!(db.line("ARGREP cases - + RE ^[^a]+$ NOCASE"), "*1|:2|");
    assert_eq!(db.run(&["ARGREP", "a", "-", "+", "RE", ""]), "-ERR regular expression is empty|");
    let too_many = format!("ARGREP a - + {}", "EXACT x ".repeat(251));
    assert_eq!(db.line(too_many.trim()), "-ERR too many predicates, maximum is 250|");
    let too_long = format!("ARGREP a - + RE {}", "x".repeat(2049));
    assert_eq!(db.line(&too_long), "-ERR regular expression is too long, maximum is 2048 bytes|");
    // Each pattern has 256 instructions, and all share a budget.
    let all = |count| format!("ARGREP a - + {}", "RE z{255} ".repeat(count));
    assert_eq!(db.line(all(32).trim()), "*0|");
    assert_eq!(db.line(all(33).trim()), "-ERR invalid regular expression: Out of memory|");
    let brackets = format!("ARGREP a - + {}", format!("RE [{}] ", "0-9".repeat(600)).repeat(40));
    assert_eq!(db.line(brackets.trim()), "-ERR invalid regular expression: Out of memory|");
}

#[test]
fn each_change_raises_its_event() {
    let mut db = crate::collection::harness_without_new();
    db.check_events(&[
        ("ARSET a 0 x y", ":2|", "arset a@0"),
        ("ARMSET a 5 z", ":1|", "armset a@0"),
        ("ARINSERT a w", ":0|", "arinsert a@0"),
        ("ARSEEK a 3", ":1|", "arseek a@0"),
        ("ARSEEK none 3", ":0|", ""),
        ("ARRING a 6 v", ":3|", "arring a@0"),
        ("ARDEL a 7", ":0|", ""),
        ("ARDEL a 5", ":1|", "ardel a@0"),
        ("ARDELRANGE a 0 9", ":3|", "ardelrange a@0,del a@0"),
    ]);
}

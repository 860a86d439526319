//! The values for `$name` in the rules. There are few keys, so that commands use the same ones.
//! Numbers are near limits, and texts near the sizes at which encodings change. A few values are
//! invalid.

use super::payloads::{PAYLOADS, bytes_of};
use super::programs;
use crate::rng::Rng;

/// Number of different keys of each type that commands use.
const KEYS_PER_TYPE: usize = 3;

/// Percentage of typed keys that are replaced by a key of any type, so that wrong types occur.
const WRONG_TYPE_PERCENT: usize = 4;

/// The first letter of each type's keys, in the order: string, list, hash, set, sorted set, stream,
/// geo.
const TYPE_LETTERS: &[u8] = b"slhezxg";

/// Number of databases that sequences use and whose content is compared at the end.
pub const DATABASES: usize = 3;

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "-10",
    "100",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "9223372036854775806",
    "9223372036854775807",
    "-9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.0",
    "abc",
    "",
    " 1",
    "01",
    "+1",
];

const FLOATS: &[&str] = &[
    "0",
    "1",
    "-1",
    "0.1",
    "0.2",
    "-0.5",
    "1.5",
    "3.0",
    "1e3",
    "1e-5",
    "1e17",
    "1e20",
    "-1e10",
    "100.25",
    "12345.678",
    "3.14159265358979",
    "0.3333333333333333",
    "inf",
    "-inf",
    "nan",
    "abc",
    "",
    "1e400",
    "0x10",
];

const SCORES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "-1",
    "1.5",
    "2.5",
    "0.1",
    "100",
    "1e3",
    "1e17",
    "1e20",
    "inf",
    "-inf",
    "3.3333333333333335",
    "1234567890123",
    "1e-7",
];

const BOUNDS: &[&str] =
    &["-inf", "+inf", "inf", "0", "1", "2", "3", "5", "(1", "(2", "(3", "(5", "(-inf", "100"];

const LEXES: &[&str] = &["-", "+", "[", "(", "[a", "(a", "[b", "(b", "[c", "[m", "(z", "[1", "(10"];

const BY_PATTERNS: &[&str] =
    &["s*", "s*", "s*", "h*->a", "h*->foo", "h*->b", "e*", "nokey*", "s*->", "*", "#", "nosort", "s?"];

const PLACES: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "12", "13"];

const LONGITUDES: &[&str] =
    &["0", "13.361389", "15.087269", "-180", "180", "179.99", "-0.1", "2.35", "-122.4", "200", "1e3"];

const LATITUDES: &[&str] =
    &["0", "38.115556", "37.502669", "85.05112878", "-85.05112878", "67", "81", "48.85", "-33.9", "86"];

const RADIUSES: &[&str] =
    &["0", "1", "10", "100", "200", "500.5", "1000", "5000", "20000", "30000", "1e9", "-1", "abc"];

const WORDS: &[&str] = &["a", "b", "c", "d", "foo", "bar", "Foo", "z", "", "ab", "m1", "m2"];

const PATTERNS: &[&str] = &["*", "s*", "?0", "[a-h]*", "[^s]1", "*1", "m*", "f?o", "\\*", "a", "", "h[01]"];

/// Values that many kinds of arguments of commands do not permit.
const ODDITIES: &[&str] =
    &["", "abc", "-1", "0", "1.5", "nan", "(", "9223372036854775807", "\u{e9}", "*", "-"];

/// Returns a random value for a `$name` of the rules of the kind `class`, or `None` if this kind
/// does not exist. `clock` is the counter from which stream IDs are made.
pub fn value(class: &str, clock: &mut u64, rng: &mut Rng) -> Option<Vec<u8>> {
    Some(match class {
        "string" => key(b's', rng),
        "list" => key(b'l', rng),
        "hash" => key(b'h', rng),
        "set" => key(b'e', rng),
        "zset" => key(b'z', rng),
        "stream" => key(b'x', rng),
        "program" => programs::program(rng),
        // A key that no other rule uses, so that all scores of the sorted set stay equal.
        "lex_zset" => vec![b'y', b'0' + rng.below(KEYS_PER_TYPE) as u8],
        // Few names and few coordinates, so that some distances are equal.
        "geo" => key(b'g', rng),
        "place" => one_of(PLACES, rng),
        "lon" => degrees(LONGITUDES, 180, rng),
        "lat" => degrees(LATITUDES, 85, rng),
        "radius" => one_of(RADIUSES, rng),
        "unit" => one_of(&["m", "km", "KM", "ft", "mi"], rng),
        // Elements that complete a pattern of SORT to the name of a key.
        "digit" => rng.below(12).to_string().into_bytes(),
        "by_pattern" => one_of(BY_PATTERNS, rng),
        "key" => any_key(rng),
        "sort_list" => vec![b'r', b'0' + rng.below(KEYS_PER_TYPE) as u8],
        "value" => text(rng),
        "payload" => bytes_of(rng.pick::<&str>(PAYLOADS)),
        "field" | "member" => member(rng),
        "int" => one_of(INTEGERS, rng),
        "float" => one_of(FLOATS, rng),
        "score" => score(rng),
        "bound" => one_of(BOUNDS, rng),
        "lex" => one_of(LEXES, rng),
        "pattern" => one_of(PATTERNS, rng),
        "index" => rarely_odd(rng.below(16) as i64 - 8, rng),
        "count" => rarely_odd(rng.below(6) as i64 - i64::from(rng.percent(10)), rng),
        "offset" => rarely_odd(rng.below(100) as i64, rng),
        "bit" => rarely_odd(rng.below(300) as i64, rng),
        // Times are far in the future, so that nothing expires during a run, or in the past.
        "seconds" => rarely_odd(1_000 + rng.below(1_000_000) as i64, rng),
        "ms" => rarely_odd(1_000_000 + rng.below(1_000_000_000) as i64, rng),
        "at" => rarely_odd(4_102_444_800 + rng.below(1_000) as i64, rng),
        "at_ms" => rarely_odd(4_102_444_800_000 + rng.below(1_000_000) as i64, rng),
        "db" => rarely_odd(rng.below(DATABASES) as i64, rng),
        "new_id" => new_id(clock, rng),
        "id" => format!("{}-{}", rng.below(*clock as usize + 2), rng.below(3)).into_bytes(),
        "range_id" => range_id(*clock, rng),
        "group" => one_of(&["g", "h"], rng),
        "consumer" => one_of(&["c", "d", "e"], rng),
        // The id at which a group starts to read.
        "from_id" => match rng.below(10) {
            0..2 => b"$".to_vec(),
            2..5 => b"0".to_vec(),
            _ => range_id(*clock, rng),
        },
        // The id from which a consumer reads.
        "read_id" => match rng.below(10) {
            0..6 => b">".to_vec(),
            6..8 => b"0".to_vec(),
            _ => range_id(*clock, rng),
        },
        // Few channels, which match few patterns.
        "channel" => one_of(&["news", "news", "nets"], rng),
        "channel_pattern" => one_of(&["n*", "ne?s", "news"], rng),
        // Short timeouts, because both servers block. Redis 6.2 takes a timeout of at most a
        // millisecond for 0, which has no end.
        "timeout" => one_of(&["0.0011", "0.002", "0.01", ".0011", "1.1e-3", "-1", "x"], rng),
        "timeout_ms" => one_of(&["1", "2", "5", "-1", "1.5"], rng),
        _ => return bits_or_hll(class, rng),
    })
}

/// Returns a random argument for a command on bits or HyperLogLogs, if `class` is the name of such
/// an argument in the rules; `None` for any other class.
fn bits_or_hll(class: &str, rng: &mut Rng) -> Option<Vec<u8>> {
    Some(match class {
        // A key that no other rule uses, because any text can be a run that is cut short: see
        // `is_unspecified`.
        "hll" => vec![b'p', b'0' + rng.below(KEYS_PER_TYPE) as u8],
        "runs" => vec![*rng.pick(&[0, 0x3f, 0x80, 0x83, 0xff]); 1 + rng.below(3)],
        "hll_count" => (0..8).map(|_| rng.next_u64() as u8).collect(),
        // Enough elements that sparse HyperLogLogs have adjacent runs to merge.
        "element" => {
            if rng.percent(80) {
                rng.below(5000).to_string().into_bytes()
            } else {
                text(rng)
            }
        }
        "bit_type" => bit_type(rng),
        "bit_offset" => bit_offset(rng),
        _ => return None,
    })
}

/// Returns a value that is probably invalid for its argument.
pub fn oddity(rng: &mut Rng) -> Vec<u8> {
    one_of(ODDITIES, rng)
}

fn one_of(texts: &[&str], rng: &mut Rng) -> Vec<u8> {
    rng.pick(texts).as_bytes().to_vec()
}

/// Returns `number`, or in a few percent of cases a text that is not a number, or a number beyond
/// any limit.
fn rarely_odd(number: i64, rng: &mut Rng) -> Vec<u8> {
    if rng.percent(4) { oddity(rng) } else { number.to_string().into_bytes() }
}

/// Returns a random one of the `given` degrees, or a random whole number of degrees from `-max` to
/// `max`.
fn degrees(given: &[&str], max: usize, rng: &mut Rng) -> Vec<u8> {
    if rng.percent(60) {
        return one_of(given, rng);
    }
    (rng.below(2 * max + 1) as i64 - max as i64).to_string().into_bytes()
}

fn key(letter: u8, rng: &mut Rng) -> Vec<u8> {
    if rng.percent(WRONG_TYPE_PERCENT) {
        return any_key(rng);
    }
    vec![letter, b'0' + rng.below(KEYS_PER_TYPE) as u8]
}

fn any_key(rng: &mut Rng) -> Vec<u8> {
    vec![*rng.pick(TYPE_LETTERS), b'0' + rng.below(KEYS_PER_TYPE) as u8]
}

fn bit_type(rng: &mut Rng) -> Vec<u8> {
    if rng.percent(3) {
        return oddity(rng);
    }
    format!("{}{}", rng.pick(&['i', 'u']), 1 + rng.below(64)).into_bytes()
}

fn bit_offset(rng: &mut Rng) -> Vec<u8> {
    let offset = rarely_odd(rng.below(200) as i64, rng);
    if rng.percent(30) { [b"#", &offset[..]].concat() } else { offset }
}

fn score(rng: &mut Rng) -> Vec<u8> {
    if rng.percent(2) { oddity(rng) } else { one_of(SCORES, rng) }
}

fn member(rng: &mut Rng) -> Vec<u8> {
    match rng.below(100) {
        0..50 => one_of(WORDS, rng),
        50..80 => rng.below(40).to_string().into_bytes(),
        80..90 => one_of(INTEGERS, rng),
        90..96 => sized(rng),
        _ => binary(rng),
    }
}

fn text(rng: &mut Rng) -> Vec<u8> {
    match rng.below(100) {
        0..30 => one_of(WORDS, rng),
        30..50 => rng.below(1000).to_string().into_bytes(),
        50..62 => one_of(INTEGERS, rng),
        62..72 => one_of(FLOATS, rng),
        72..90 => sized(rng),
        _ => binary(rng),
    }
}

/// Returns a text of a length near 44 or 64 bytes, where encodings change; rarely one of some
/// kilobytes.
fn sized(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0..6 => 40 + rng.below(8),
        6..12 => 60 + rng.below(8),
        12..19 => rng.below(200),
        _ => 2000 + rng.below(10_000),
    };
    vec![b'a' + rng.below(3) as u8; len]
}

fn binary(rng: &mut Rng) -> Vec<u8> {
    (0..rng.below(12)).map(|_| rng.next_u64() as u8).collect()
}

fn new_id(clock: &mut u64, rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0 => b"*".to_vec(),
        1 => oddity(rng),
        2 => format!("{}-{}", rng.below(*clock as usize + 2), rng.below(3)).into_bytes(),
        3 => format!("{clock}").into_bytes(),
        4..7 => format!("{clock}-*").into_bytes(),
        _ => {
            *clock += rng.below(2) as u64 + 1;
            format!("{clock}-{}", rng.below(3)).into_bytes()
        }
    }
}

fn range_id(clock: u64, rng: &mut Rng) -> Vec<u8> {
    let id = format!("{}-{}", rng.below(clock as usize + 2), rng.below(3));
    match rng.below(20) {
        0..6 => b"-".to_vec(),
        6..12 => b"+".to_vec(),
        12..15 => format!("({id}").into_bytes(),
        15 => rng.below(clock as usize + 2).to_string().into_bytes(),
        16 => oddity(rng),
        _ => id.into_bytes(),
    }
}

//! The grammars of options whose values are several words, and the checks of special texts.

use engine::settings::AuditEvents;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::from_utf8;

use stdx::memory_size::parse_memory;
use stdx::number::parse_i64;

use super::Refusal;

/// A value of several words, or the reason why it is refused.
pub type Words = Result<Vec<Vec<u8>>, Refusal>;

/// A function that parses the words of one line. Its arguments are the line's words and the present
/// value of the option.
pub type ParseWords = fn(&[&[u8]], &[Vec<u8>]) -> Words;

/// The rules for parsing and writing an option's value of several words.
#[derive(Debug)]
pub struct WordsKind {
    /// The parser of the new value. It also gets the present value, because a line may set only a
    /// part of the value (`client-output-buffer-limit`).
    pub parse: ParseWords,
    /// The number of words that CONFIG REWRITE writes on one line; 0 writes all words on one line.
    pub line_words: usize,
    /// True if the words of further lines in the configuration file are added to those of the first
    /// line. A line with an empty word replaces the value instead.
    pub accumulates: bool,
    /// The text of an empty value in a configuration file.
    pub none: &'static str,
}

/// The text of an empty value in a configuration file: an empty word in quotes.
const NONE: &str = "\"\"";

/// The grammar of `bind` and `metrics-bind`: a list of addresses.
pub static ADDRESSES: WordsKind =
    WordsKind { parse: addresses, line_words: 0, accumulates: false, none: NONE };
/// The grammar of `audit-log-events`: words of [`AUDIT_EVENT_WORDS`].
pub static AUDIT_EVENTS: WordsKind =
    WordsKind { parse: audit_events, line_words: 0, accumulates: false, none: NONE };
/// The grammar of `audit-log-users` and `oidc-audience`: a list of any words.
pub static NAMES: WordsKind = WordsKind { parse: names, line_words: 0, accumulates: false, none: NONE };
/// The grammar of `save`: pairs of a number of seconds and a number of changes.
pub static SAVE_POINTS: WordsKind =
    WordsKind { parse: save_points, line_words: 2, accumulates: true, none: NONE };
/// The grammar of `client-output-buffer-limit`: class, hard limit in bytes, soft limit in bytes,
/// and the seconds for which a buffer may exceed the soft limit.
pub static OUTPUT_LIMITS: WordsKind =
    WordsKind { parse: output_limits, line_words: 4, accumulates: false, none: NONE };
/// The grammar of `oom-score-adj-values`: three scores from -2000 to 2000.
pub static OOM_SCORES: WordsKind =
    WordsKind { parse: oom_scores, line_words: 0, accumulates: false, none: NONE };
/// The grammar of `latency-tracking-info-percentiles`: numbers from 0 to 100.
pub static PERCENTILES: WordsKind =
    WordsKind { parse: percentiles, line_words: 0, accumulates: false, none: NONE };
/// The grammar of `replicaof`: host and port, or `no one`.
pub static PRIMARY: WordsKind =
    WordsKind { parse: primary, line_words: 0, accumulates: false, none: "no one" };

/// The grammar of `shutdown-on-sigint` and `shutdown-on-sigterm`: `default`, or one or more of
/// `save`, `nosave`, `now`, `force` and `failover`. `save` and `nosave` exclude each other.
pub static SHUTDOWN: WordsKind = WordsKind { parse: shutdown, line_words: 0, accumulates: false, none: NONE };

/// The maximum number of addresses in `bind` or `metrics-bind`.
const ADDRESSES_MAX: usize = 16;

/// Returns true if there are no words or only one empty word. Either means an empty value.
fn is_none(words: &[&[u8]]) -> bool {
    matches!(words, [] | [b""])
}

fn owned(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

/// The words of `audit-log-events`, and the events that each word selects.
pub const AUDIT_EVENT_WORDS: &[(&str, AuditEvents)] = &[
    ("denied", AuditEvents::DENIED),
    ("auth", AuditEvents::AUTH),
    ("admin", AuditEvents::ADMIN),
    ("write", AuditEvents::WRITE),
    ("all", AuditEvents::ALL),
];

fn audit_events(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    if is_none(words) {
        return Ok(Vec::new());
    }
    let is_known = |word: &&[u8]| AUDIT_EVENT_WORDS.iter().any(|(name, _)| name.as_bytes() == *word);
    if !words.iter().all(is_known) {
        return Err(
            "argument(s) must be one or more of the following: denied, auth, admin, write, all".into()
        );
    }
    Ok(owned(words))
}

fn names(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    Ok(if is_none(words) { Vec::new() } else { owned(words) })
}

fn addresses(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    if words.len() > ADDRESSES_MAX {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(if is_none(words) { Vec::new() } else { owned(words) })
}

fn save_points(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    const REFUSAL: &str = "Invalid save parameters";
    if is_none(words) {
        return Ok(Vec::new());
    }
    let (pairs, []) = words.as_chunks::<2>() else { return Err(REFUSAL.into()) };
    for [seconds, changes] in pairs {
        let fits = parse_i64(seconds).is_some_and(|seconds| seconds >= 1)
            && parse_i64(changes).is_some_and(|changes| changes >= 0);
        if !fits {
            return Err(REFUSAL.into());
        }
    }
    Ok(owned(words))
}

fn output_limits(words: &[&[u8]], old: &[Vec<u8>]) -> Words {
    if is_none(words) {
        return Ok(old.to_vec());
    }
    let (limits, []) = words.as_chunks::<4>() else {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    };
    let mut all = match old {
        [] => ["normal", "0", "0", "0", "slave", "0", "0", "0", "pubsub", "0", "0", "0"]
            .map(|word| word.as_bytes().to_vec())
            .to_vec(),
        old => old.to_vec(),
    };
    for [class, hard, soft, seconds] in limits {
        let at = match class.to_ascii_lowercase().as_slice() {
            b"normal" => 0,
            b"slave" | b"replica" => 4,
            b"pubsub" => 8,
            _ => return Err("Invalid client class specified in buffer limit configuration.".into()),
        };
        let numbers = (parse_memory(hard), parse_memory(soft), parse_i64(seconds));
        let (Some(hard), Some(soft), Some(seconds @ 0..)) = numbers else {
            let refusal = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
            return Err(refusal.into());
        };
        for (word, number) in all[at + 1..at + 4].iter_mut().zip([hard, soft, seconds as u64]) {
            *word = number.to_string().into_bytes();
        }
    }
    Ok(all)
}

fn shutdown(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    const WISHES: [&str; 5] = ["save", "nosave", "now", "force", "failover"];
    let has = |wish: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wish.as_bytes()));
    let is_known = |word: &&[u8]| {
        WISHES.iter().chain(&["default"]).any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
    };
    if words.is_empty() || !words.iter().all(is_known) {
        return Err(
            format!("argument(s) must be one of the following: default, {}", WISHES.join(", ")).into()
        );
    }
    if has("save") && has("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    let wishes: Vec<&str> = WISHES.into_iter().filter(|wish| has(wish)).collect();
    let wishes = if wishes.is_empty() { vec!["default"] } else { wishes };
    Ok(wishes.into_iter().map(|wish| wish.as_bytes().to_vec()).collect())
}

fn oom_scores(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let fit = words.iter().all(|word| parse_i64(word).is_some_and(|score| (-2000..=2000).contains(&score)));
    if !fit {
        return Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into());
    }
    Ok(owned(words))
}

fn percentiles(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    if is_none(words) {
        return Ok(Vec::new());
    }
    let shown = words.iter().map(|word| {
        let percentile: f64 = from_utf8(word)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            return Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into());
        }
        Ok(percentile.to_string().into_bytes())
    });
    shown.collect()
}

fn primary(words: &[&[u8]], _: &[Vec<u8>]) -> Words {
    match words {
        [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => Ok(Vec::new()),
        [host, port] => {
            let port = parse_port(port).ok_or("Invalid master port")?;
            Ok(vec![host.to_vec(), port.to_string().into_bytes()])
        }
        _ => Err("wrong number of arguments".into()),
    }
}

/// Parses a port by the rules of `strtol`, as Redis does: blanks, a plus sign and zeros may come
/// first. An empty text counts as 0.
fn parse_port(text: &[u8]) -> Option<u16> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    digits.iter().try_fold(0_u16, |port, digit| {
        let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        port.checked_mul(10)?.checked_add(digit)
    })
}

/// The classes of `notify-keyspace-events` that `A` stands for, in the order in which they are
/// shown.
const EVENT_CLASSES: &[u8] = b"g$lshzxetda";

/// Parses the letters of `notify-keyspace-events`, which may be in any order. Returns them in a
/// fixed order. If they include all classes of keys, `A` replaces these.
pub fn event_letters(letters: &[u8]) -> Result<Vec<u8>, Refusal> {
    const LETTERS: &[u8] = b"Ag$lshzxeKEtmdna";
    if letters.iter().any(|letter| !LETTERS.contains(letter)) {
        return Err("Invalid event class character. Use 'Ag$lshzxeKEtmdna'.".into());
    }
    let has = |letter: u8| letters.contains(&letter);
    let all = has(b'A') || EVENT_CLASSES.iter().all(|&class| has(class));
    let classes = if all { &b"A"[..] } else { EVENT_CLASSES };
    let ordered = classes.iter().chain(b"nKEm").copied();
    Ok(ordered.filter(|&letter| has(letter) || letter == b'A').collect())
}

/// Returns the letters of `notify-keyspace-events` as CONFIG GET shows them. As in Redis, `n` is
/// not shown next to `A`, although it has an effect.
pub fn shown_event_letters(letters: &[u8]) -> Vec<u8> {
    let all = letters.contains(&b'A');
    letters.iter().copied().filter(|letter| !(all && *letter == b'n')).collect()
}

/// Checks that `name` is the name of a file without a path, and returns it unchanged.
pub fn plain_dbfilename(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.contains(&b'/') {
        return Err("dbfilename can't be a path, just a filename".into());
    }
    Ok(name.to_vec())
}

/// Checks that `name` is the name of a file without a path and is not empty, and returns it
/// unchanged.
pub fn plain_appendfilename(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    match name {
        b"" => Err("appendfilename can't be empty".into()),
        name if name.contains(&b'/') => Err("appendfilename can't be a path, just a filename".into()),
        name => Ok(name.to_vec()),
    }
}

/// Checks that `name` is the name of a folder without a path and is not empty, and returns it
/// unchanged.
pub fn plain_appenddirname(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    match name {
        b"" => Err("appenddirname can't be empty".into()),
        name if name.contains(&b'/') => Err("appenddirname can't be a path, just a dirname".into()),
        name => Ok(name.to_vec()),
    }
}

/// Checks that `name` is the name of a folder without a path, and returns it unchanged.
pub fn plain_backupdirname(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    match name {
        b"" => Err("backupdirname can't be empty".into()),
        b"." | b".." => Err("backupdirname can't be a path, just a dirname".into()),
        name if name.contains(&b'/') => Err("backupdirname can't be a path, just a dirname".into()),
        name => Ok(name.to_vec()),
    }
}

/// Checks that `name` is the name of a host, and returns it unchanged.
pub fn host_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.len() >= 256 {
        return Err("Hostnames must be less than 256 characters".into());
    }
    if name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
        return Ok(name.to_vec());
    }
    Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into())
}

/// Checks that `name` is a readable name of a cluster node, and returns it unchanged.
pub fn node_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    const RESERVED: &[u8] = b"!#$%&()*+:;<>?@[]^{|}~";
    if name.iter().any(|byte| RESERVED.contains(byte)) {
        return Err("Announced human node name contained invalid character".into());
    }
    Ok(name.to_vec())
}

/// Checks that `text` is an IPv4 address or empty, and returns it unchanged.
pub fn ipv4_address(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let fits = text.is_empty() || from_utf8(text).is_ok_and(|text| text.parse::<Ipv4Addr>().is_ok());
    if fits { Ok(text.to_vec()) } else { Err("Invalid IPv4 address".into()) }
}

/// Checks that `text` is an IPv6 address or empty, and returns it unchanged.
pub fn ipv6_address(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let fits = text.is_empty() || from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    if fits { Ok(text.to_vec()) } else { Err("Invalid IPv6 address".into()) }
}

/// Accepts only locales that compare strings byte by byte, because the server always compares them
/// so.
pub fn byte_locale(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    match name {
        b"" | b"C" | b"POSIX" | b"C.UTF-8" | b"C.utf8" => Ok(name.to_vec()),
        _ => Err("Invalid locale name".into()),
    }
}

/// Accepts a template of the process title: text with variables in braces.
pub fn title_template(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    const VARIABLES: &[&[u8]] =
        &[b"title", b"listen-addr", b"server-mode", b"port", b"tls-port", b"unixsocket", b"config-file"];
    let mut parts = text.split(|&byte| byte == b'{');
    let plain_first = parts.next().is_some_and(|part| !part.contains(&b'}'));
    let known = parts.all(|part| {
        let mut ends = part.splitn(2, |&byte| byte == b'}');
        let (variable, rest) = (ends.next().unwrap_or_default(), ends.next());
        rest.is_some_and(|rest| VARIABLES.contains(&variable) && !rest.contains(&b'}'))
    });
    if text.is_empty() || !plain_first || !known {
        return Err("template format is invalid or contains unknown variables".into());
    }
    Ok(text.to_vec())
}

/// Accepts an existing folder and returns its absolute path. A relative path would name another
/// folder after the server has changed its working folder.
pub fn folder(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let text = from_utf8(path).map_err(|_| "the path is not UTF-8")?;
    match std::fs::metadata(text) {
        Ok(found) if found.is_dir() => {
            let absolute = std::fs::canonicalize(text).map_err(|error| error.to_string())?;
            Ok(absolute.into_os_string().into_encoded_bytes())
        }
        Ok(_) => Err("Not a directory".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("No such file or directory".into()),
        Err(error) => Err(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::{Kind, Value};
    use super::*;

    fn check(kind: &'static WordsKind, old: &str, words: &str, expected: Result<&str, &str>) {
        let split = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let old = Value::Words(if old.is_empty() { Vec::new() } else { split(old) });
        let words = split(words);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let parsed = Kind::Words(kind).parse(&words, &old);
        let shown = parsed.map(|value| String::from_utf8_lossy(&value.to_text()).into_owned());
        assert_eq!(shown.as_deref().map_err(|refusal| &**refusal), expected);
    }

    #[test]
    fn save_points_come_in_pairs() {
        check(&SAVE_POINTS, "1 1", "900 1 300 10", Ok("900 1 300 10"));
        check(&SAVE_POINTS, "1 1", "", Ok(""));
        check(&SAVE_POINTS, "", "1 0", Ok("1 0"));
        for wrong in ["900", "0 1", "1 -1", "x 1", "1 2 3"] {
            check(&SAVE_POINTS, "", wrong, Err("Invalid save parameters"));
        }
    }

    #[test]
    fn issue_33_a_primary_has_a_host_and_a_port() {
        let wrong = "wrong number of arguments";
        check(&PRIMARY, "", "h 6379", Ok("h 6379"));
        check(&PRIMARY, "h 1", "NO one", Ok(""));
        for words in ["", "h", "h 1 2"] {
            check(&PRIMARY, "h 1", words, Err(wrong));
        }
        let ports =
            [("h 0", "h 0"), ("h 007", "h 7"), ("h +7", "h 7"), ("h ", "h 0"), ("h 65535", "h 65535")];
        for (words, shown) in ports {
            check(&PRIMARY, "", words, Ok(shown));
        }
        for words in ["h -1", "h 65536", "h x", "h 1x", "h 99999999999999999999"] {
            check(&PRIMARY, "", words, Err("Invalid master port"));
        }
    }

    #[test]
    fn output_limits_change_the_classes_they_name() {
        let old = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
        let limits = &OUTPUT_LIMITS;
        let changed = "normal 1048576 1024 5 slave 268435456 67108864 60 pubsub 0 0 0";
        check(limits, old, "normal 1mb 1kb 5 pubsub 0 0 0", Ok(changed));
        check(limits, old, "", Ok(old));
        let replica = "normal 0 0 0 slave 1 2 3 pubsub 33554432 8388608 60";
        check(limits, old, "replica 1 2 3", Ok(replica));
        check(limits, old, "normal", Err("Wrong number of arguments in buffer limit configuration."));
        let class = "Invalid client class specified in buffer limit configuration.";
        check(limits, old, "master 1 1 1", Err(class));
        let number = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        check(limits, old, "normal 1 1 -1", Err(number));
        check(limits, old, "normal x 1 1", Err(number));
    }

    #[test]
    fn scores_and_percentiles_have_ranges() {
        check(&OOM_SCORES, "", "0 200 800", Ok("0 200 800"));
        check(&OOM_SCORES, "", "1 2", Err("wrong number of arguments"));
        let refusal = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        check(&OOM_SCORES, "", "1 2 9999", Err(refusal));
        check(&PERCENTILES, "", "50.0 100 0.001", Ok("50 100 0.001"));
        let range = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        check(&PERCENTILES, "", "50 101", Err(range));
        check(&PERCENTILES, "", "x", Err("Invalid latency-tracking-info-percentiles parameters"));
    }

    #[test]
    fn event_letters_are_shown_in_one_order() {
        let shown = |letters: &str| event_letters(letters.as_bytes()).map(String::from_utf8);
        assert_eq!(shown("KEA"), Ok(Ok("AKE".into())));
        assert_eq!(shown("Elg"), Ok(Ok("glE".into())));
        assert_eq!(shown("g$lshzxetda"), Ok(Ok("A".into())));
        assert_eq!(shown("KKgg"), Ok(Ok("gK".into())));
        assert_eq!(shown("KEmnA"), Ok(Ok("AnKEm".into())));
        assert_eq!(shown_event_letters(b"AnKEm"), b"AKEm");
        assert_eq!(shown_event_letters(b"gnKEm"), b"gnKEm");
        assert_eq!(shown(""), Ok(Ok(String::new())));
        assert!(shown("KAo").is_err());
    }

    #[test]
    fn templates_name_known_variables() {
        assert!(title_template(b"{title} {listen-addr}:x").is_ok());
        for wrong in ["", "{nonsense}", "{title", "title}", "{}"] {
            assert!(title_template(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}

//! Values of options: parsing them from words, and formatting them as text.
//!
//! Values are compared, stored and shown in one canonical form: `1gb` becomes 1073741824, `YES`
//! becomes `yes`. The errors are the messages of Redis.

use stdx::memory_size::parse_memory;
use stdx::number::parse_i64;

use super::Refusal;
use super::words::{self, WordsKind};

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value `yes` (true) or `no` (false).
    Flag(bool),
    /// A value that is a whole number.
    Integer(i64),
    /// Permission bits of a file, written as an octal number.
    Octal(u32),
    /// A value that is an amount of memory, in bytes.
    Memory(u64),
    /// An amount of memory as a percentage of another amount, up to 100.
    Percent(u8),
    /// One of the words that the option permits ([`Kind::Choice`]).
    Choice(&'static str),
    /// A text of any bytes.
    Text(Vec<u8>),
    /// Classes of keyspace events, as their letters.
    EventLetters(Vec<u8>),
    /// A value that consists of several words.
    Words(Vec<Vec<u8>>),
}

/// The kind of values that an option has.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Options whose value is `yes` or `no`.
    Flag,
    /// Options whose value is a whole number from `min` to `max`.
    Integer {
        /// The smallest permitted number.
        min: i64,
        /// The largest permitted number.
        max: i64,
    },
    /// Options whose value is a whole number. A number outside the range from `min` to `max` is
    /// replaced by the nearer bound.
    Clamped {
        /// The lower bound, which replaces smaller numbers.
        min: i64,
        /// The upper bound, which replaces larger numbers.
        max: i64,
    },
    /// Options whose value is the permission bits of a file, in octal.
    Octal,
    /// Options whose value is an amount of memory from `min` to `max` bytes.
    Memory {
        /// The smallest permitted amount of memory, in bytes.
        min: u64,
        /// The largest permitted amount of memory, in bytes.
        max: u64,
    },
    /// Options whose value is an amount of memory, or a percentage of another amount, such as `5%`.
    MemoryOrPercent,
    /// Options whose value is one of the listed words.
    Choice(&'static [&'static str]),
    /// Options whose value is a text of any bytes.
    Text,
    /// Options whose value is a text that the function accepts. The function returns the canonical
    /// form of the text.
    Checked(fn(&[u8]) -> Result<Vec<u8>, Refusal>),
    /// Options whose value is a list of classes of keyspace events.
    EventLetters,
    /// Options whose value consists of several words.
    Words(&'static WordsKind),
}

impl Kind {
    /// Returns an empty value of this kind. When an option is parsed for the first time, the parser
    /// gets it in place of the old value.
    pub fn initial(&self) -> Value {
        match self {
            Kind::Words(_) => Value::Words(Vec::new()),
            _ => Value::Text(Vec::new()),
        }
    }

    /// Parses a value from the words after an option's name. `old` is the present value.
    pub fn parse(&self, words: &[&[u8]], old: &Value) -> Result<Value, Refusal> {
        if let Kind::Words(kind) = self {
            let old = if let Value::Words(old) = old { old.as_slice() } else { &[] };
            return (kind.parse)(words, old).map(Value::Words);
        }
        let [word] = words else { return Err("wrong number of arguments".into()) };
        self.parse_word(word)
    }

    fn parse_word(&self, word: &[u8]) -> Result<Value, Refusal> {
        match *self {
            Kind::Flag => match word.to_ascii_lowercase().as_slice() {
                b"yes" => Ok(Value::Flag(true)),
                b"no" => Ok(Value::Flag(false)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Integer { min, max } => {
                let number = parse_i64(word).ok_or(NOT_AN_INTEGER)?;
                within(number, min, max).map(Value::Integer)
            }
            Kind::Clamped { min, max } => {
                let number = parse_i64(word).ok_or(NOT_AN_INTEGER)?;
                within(number, 0, i32::MAX.into()).map(|number| Value::Integer(number.clamp(min, max)))
            }
            Kind::Octal => {
                let digits = std::str::from_utf8(word).ok().filter(|text| !text.starts_with('+'));
                let bits = match digits {
                    Some("") => Some(0),
                    Some(text) => u32::from_str_radix(text, 8).ok().filter(|&bits| bits <= 0o777),
                    None => None,
                };
                bits.map(Value::Octal).ok_or("argument couldn't be parsed as an octal number".into())
            }
            Kind::Memory { min, max } => {
                let bytes = parse_memory(word).ok_or("argument must be a memory value")?;
                within(bytes, min, max).map(Value::Memory)
            }
            Kind::MemoryOrPercent => memory_or_percent(word),
            Kind::Choice(choices) => {
                let chosen = choices.iter().find(|choice| word.eq_ignore_ascii_case(choice.as_bytes()));
                chosen.map(|choice| Value::Choice(choice)).ok_or_else(|| {
                    format!("argument(s) must be one of the following: {}", choices.join(", ")).into()
                })
            }
            Kind::Text => Ok(Value::Text(word.to_vec())),
            Kind::Checked(check) => check(word).map(Value::Text),
            Kind::EventLetters => words::event_letters(word).map(Value::EventLetters),
            Kind::Words(_) => unreachable!("values of several words are read by `parse`"),
        }
    }

    /// Returns true if values of this kind may consist of more than one word.
    pub fn takes_words(&self) -> bool {
        matches!(self, Kind::Words(_))
    }
}

const NOT_AN_INTEGER: &str = "argument couldn't be parsed into an integer";

fn within<N: PartialOrd + std::fmt::Display>(number: N, min: N, max: N) -> Result<N, Refusal> {
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive").into());
    }
    Ok(number)
}

fn memory_or_percent(word: &[u8]) -> Result<Value, Refusal> {
    const REFUSAL: &str = "argument must be a memory or percent value";
    if let Some(number) = word.strip_suffix(b"%") {
        return match parse_i64(number) {
            Some(percent @ 0..=100) => Ok(Value::Percent(percent as u8)),
            Some(101..) => Err("percentage argument must be less or equal to 100".into()),
            _ => Err(REFUSAL.into()),
        };
    }
    parse_memory(word).map(Value::Memory).ok_or(REFUSAL.into())
}

impl Value {
    /// Returns the value as CONFIG GET shows it. O(length).
    pub fn to_text(&self) -> Vec<u8> {
        match self {
            Value::Flag(true) => b"yes".to_vec(),
            Value::Flag(false) => b"no".to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Octal(bits) => format!("{bits:o}").into_bytes(),
            Value::Memory(bytes) => bytes.to_string().into_bytes(),
            Value::Percent(percent) => format!("{percent}%").into_bytes(),
            Value::Choice(word) => word.as_bytes().to_vec(),
            Value::Text(text) => text.clone(),
            Value::EventLetters(letters) => words::shown_event_letters(letters),
            Value::Words(words) => words.join(&b' '),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, word: &str, expected: Result<&str, &str>) {
        let parsed = kind.parse(&[word.as_bytes()], &kind.initial());
        let shown = parsed.map(|value| String::from_utf8_lossy(&value.to_text()).into_owned());
        assert_eq!(shown.as_deref().map_err(|refusal| &**refusal), expected, "{word:?} as {kind:?}");
    }

    #[test]
    fn values_are_shown_in_one_form() {
        check(Kind::Flag, "YES", Ok("yes"));
        check(Kind::Memory { min: 0, max: u64::MAX }, "1gb", Ok("1073741824"));
        check(Kind::Memory { min: 0, max: u64::MAX }, "99999999999999999999", Ok("18446744073709551615"));
        check(Kind::Octal, "700", Ok("700"));
        check(Kind::Octal, "", Ok("0"));
        check(Kind::Choice(&["no", "allkeys-lru"]), "ALLKEYS-LRU", Ok("allkeys-lru"));
        check(Kind::MemoryOrPercent, "5%", Ok("5%"));
        check(Kind::MemoryOrPercent, "1mb", Ok("1048576"));
        check(Kind::Clamped { min: 1, max: 500 }, "10000", Ok("500"));
        check(Kind::Clamped { min: 1, max: 500 }, "0", Ok("1"));
    }

    #[test]
    fn refusals_are_the_sentences_that_redis_says() {
        let integer = Kind::Integer { min: 0, max: i64::MAX };
        check(integer, "abc", Err("argument couldn't be parsed into an integer"));
        check(integer, "01", Err("argument couldn't be parsed into an integer"));
        check(integer, " 1", Err("argument couldn't be parsed into an integer"));
        check(integer, "-1", Err("argument must be between 0 and 9223372036854775807 inclusive"));
        check(Kind::Flag, "maybe", Err("argument must be 'yes' or 'no'"));
        check(Kind::Memory { min: 0, max: u64::MAX }, "1zb", Err("argument must be a memory value"));
        let at_least = Kind::Memory { min: 1 << 20, max: i64::MAX as u64 };
        check(at_least, "", Err("argument must be between 1048576 and 9223372036854775807 inclusive"));
        check(Kind::Octal, "888", Err("argument couldn't be parsed as an octal number"));
        check(Kind::Octal, "7777", Err("argument couldn't be parsed as an octal number"));
        check(Kind::MemoryOrPercent, "101%", Err("percentage argument must be less or equal to 100"));
        check(Kind::MemoryOrPercent, "-5%", Err("argument must be a memory or percent value"));
        check(Kind::Choice(&["a", "b"]), "c", Err("argument(s) must be one of the following: a, b"));
    }

    #[test]
    fn one_word_is_wanted_where_one_is_meant() {
        let refusal = Kind::Flag.parse(&[b"yes", b"no"], &Value::Flag(true));
        assert_eq!(refusal, Err("wrong number of arguments".into()));
        assert_eq!(Kind::Text.parse(&[], &Value::Flag(true)), Err("wrong number of arguments".into()));
    }
}

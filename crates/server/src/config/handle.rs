//! Handles, through which code reads the values of options.
//!
//! A [`Handle`] consists of an option's record ([`Opt`]) and the Rust type of its values. The
//! compiler checks that the type can hold all values of the record's [`Kind`], so reading cannot
//! fail. Only the configuration file, the command line and CONFIG find options by their names.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::option::Opt;
use super::value::{Kind, Value};

/// An option together with `T`, the Rust type of its values in code. A list named `OPTIONS` in
/// `config/table` must contain the option.
#[derive(Debug)]
pub struct Handle<T: OptionType + ?Sized> {
    /// The option's record: its name, kind, default and documentation.
    pub opt: Opt,
    value: PhantomData<T>,
}

impl Opt {
    /// Creates a handle that reads the option's values as `T`. Compilation fails if `T` cannot hold
    /// all values of the option.
    pub const fn typed<T: OptionType + ?Sized>(self) -> Handle<T> {
        assert!(T::HOLDS.all_of(self.kind), "the handle's type cannot hold all values of the option");
        Handle { opt: self, value: PhantomData }
    }
}

/// The set of values that an [`OptionType`] can hold.
#[derive(Clone, Copy, Debug)]
pub enum ValueRange {
    /// The two values `yes` and `no`.
    Flags,
    /// Whole numbers from `min` to `max`, both included. The range from 0 to `i64::MAX` also holds
    /// amounts of memory.
    Numbers {
        /// The smallest number that the type can hold.
        min: i64,
        /// The largest number that the type can hold.
        max: i64,
    },
    /// The permission bits of a file.
    Bits,
    /// Amounts of memory, in bytes or as percentages of another amount.
    Shares,
    /// The words of a [`Choice`], in the order of [`Choice::WORDS`].
    Choice(&'static [&'static str]),
    /// Texts that may contain any bytes.
    Text,
    /// Values that consist of several words.
    Words,
}

impl ValueRange {
    /// Returns true if this set of values contains all values of the option kind `kind`.
    const fn all_of(self, kind: Kind) -> bool {
        match (self, kind) {
            (ValueRange::Numbers { min, max }, Kind::Integer { min: first, max: last })
            | (ValueRange::Numbers { min, max }, Kind::Clamped { min: first, max: last }) => {
                min <= first && last <= max
            }
            (ValueRange::Numbers { min, max }, Kind::Memory { .. }) => min == 0 && max == i64::MAX,
            // Words cannot be compared at compile time, so a test reads each word.
            (ValueRange::Choice(held), Kind::Choice(words)) => held.len() == words.len(),
            (ValueRange::Flags, Kind::Flag)
            | (ValueRange::Bits, Kind::Octal)
            | (ValueRange::Shares, Kind::MemoryOrPercent)
            | (ValueRange::Text, Kind::Text | Kind::Checked(_) | Kind::EventLetters)
            | (ValueRange::Words, Kind::Words(_)) => true,
            _ => false,
        }
    }
}

/// A Rust type in which code can read the values of options.
pub trait OptionType {
    /// The type that [`OptionType::read`] returns; it may borrow from the store.
    type Read<'s>;

    /// The set of option values that the type can hold.
    const HOLDS: ValueRange;

    /// Reads a value; `None` if the type cannot hold it. O(1); O(words) for a choice.
    fn read(value: &Value) -> Option<Self::Read<'_>>;
}

impl OptionType for bool {
    type Read<'s> = bool;
    const HOLDS: ValueRange = ValueRange::Flags;

    fn read(value: &Value) -> Option<bool> {
        match value {
            Value::Flag(value) => Some(*value),
            _ => None,
        }
    }
}

/// A type of whole numbers, as which code can read the values of options.
pub trait Number: Copy {
    /// Converts the number to the signed 64-bit number that [`Value::Integer`] holds. Larger
    /// numbers, which no option permits, become `i64::MAX`.
    fn to_integer(self) -> i64;
}

/// Implements [`OptionType`] and [`Number`] for integer types: the standard library has no trait
/// with the operations that these implementations need.
macro_rules! numbers {
    ($($type:ty: $min:expr, $max:expr;)*) => {$(
        impl OptionType for $type {
            type Read<'s> = $type;
            const HOLDS: ValueRange = ValueRange::Numbers { min: $min, max: $max };

            fn read(value: &Value) -> Option<$type> {
                match *value {
                    Value::Integer(number) => <$type>::try_from(number).ok(),
                    Value::Memory(bytes) => <$type>::try_from(bytes).ok(),
                    _ => None,
                }
            }
        }

        impl Number for $type {
            fn to_integer(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}

numbers! {
    u16: 0, u16::MAX as i64;
    u32: 0, u32::MAX as i64;
    u64: 0, i64::MAX;
    usize: 0, isize::MAX as i64;
    i64: i64::MIN, i64::MAX;
}

/// The type of options whose values are permission bits of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions;

impl OptionType for Permissions {
    type Read<'s> = u32;
    const HOLDS: ValueRange = ValueRange::Bits;

    fn read(value: &Value) -> Option<u32> {
        match value {
            Value::Octal(bits) => Some(*bits),
            _ => None,
        }
    }
}

/// An amount of memory, given in bytes or as a percentage of another amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// The amount of memory, in bytes.
    Bytes(u64),
    /// The amount of memory as a percentage of another amount, from 0 to 100.
    Percent(u8),
}

impl MemoryShare {
    /// Returns the amount in bytes. A percentage is a share of `whole_bytes`.
    pub fn of_bytes(self, whole_bytes: u64) -> u64 {
        match self {
            MemoryShare::Bytes(bytes) => bytes,
            MemoryShare::Percent(percent) => whole_bytes / 100 * u64::from(percent),
        }
    }
}

impl OptionType for MemoryShare {
    type Read<'s> = MemoryShare;
    const HOLDS: ValueRange = ValueRange::Shares;

    fn read(value: &Value) -> Option<MemoryShare> {
        match *value {
            Value::Memory(bytes) => Some(MemoryShare::Bytes(bytes)),
            Value::Percent(percent) => Some(MemoryShare::Percent(percent)),
            _ => None,
        }
    }
}

/// A type with a fixed set of values. Each value has a word in the configuration.
pub trait Choice: Copy + PartialEq + 'static {
    /// The words that the option permits, in the order in which errors list them.
    const WORDS: &'static [&'static str];
    /// The values of the type, in the order of their words in [`Choice::WORDS`].
    const VALUES: &'static [Self];

    /// Returns the word by which the configuration names this value. O(words).
    fn word(self) -> &'static str {
        let at = Self::VALUES.iter().position(|value| *value == self);
        Self::WORDS[at.expect("VALUES lists every value")]
    }
}

impl<C: Choice> OptionType for C {
    type Read<'s> = C;
    const HOLDS: ValueRange = {
        assert!(C::WORDS.len() == C::VALUES.len(), "each word has one meaning");
        ValueRange::Choice(C::WORDS)
    };

    fn read(value: &Value) -> Option<C> {
        let Value::Choice(word) = value else { return None };
        let at = C::WORDS.iter().position(|known| known == word)?;
        Some(C::VALUES[at])
    }
}

impl OptionType for [u8] {
    type Read<'s> = &'s [u8];
    const HOLDS: ValueRange = ValueRange::Text;

    fn read(value: &Value) -> Option<&[u8]> {
        match value {
            Value::Text(text) | Value::EventLetters(text) => Some(text),
            _ => None,
        }
    }
}

/// An empty path means that the option names no file.
impl OptionType for Path {
    type Read<'s> = &'s Path;
    const HOLDS: ValueRange = ValueRange::Text;

    fn read(value: &Value) -> Option<&Path> {
        <[u8]>::read(value).map(|bytes| Path::new(OsStr::from_bytes(bytes)))
    }
}

impl OptionType for [Vec<u8>] {
    type Read<'s> = &'s [Vec<u8>];
    const HOLDS: ValueRange = ValueRange::Words;

    fn read(value: &Value) -> Option<&[Vec<u8>]> {
        match value {
            Value::Words(words) => Some(words),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigStore;
    use crate::config::table::{clients, diagnostics, memory, network, persistence, process, security};

    /// Checks that each word of the choice can be set and reads as the value for this word.
    fn check_words<C: Choice>(handle: &Handle<C>) {
        let mut store = ConfigStore::new(crate::commands::is_command);
        for word in C::WORDS {
            store.load(handle.opt.name.as_bytes(), &[word.as_bytes().to_vec()]).expect("one of the words");
            assert_eq!(handle.of(&store).word(), *word, "{}", handle.opt.name);
        }
    }

    #[test]
    fn each_word_of_a_choice_has_a_meaning() {
        check_words(&memory::MAXMEMORY_POLICY);
        check_words(&network::METRICS_PER_COMMAND);
        check_words(&network::IO_BACKEND);
        check_words(&persistence::RDB_VERSION_CHECK);
        check_words(&process::LOGLEVEL);
        check_words(&process::LOG_FORMAT);
        check_words(&process::LOG_TIMESTAMP_FORMAT);
        check_words(&process::SUPERVISED);
        check_words(&security::ENABLE_PROTECTED_CONFIGS);
        check_words(&security::ENABLE_DEBUG_COMMAND);
    }

    #[test]
    fn values_are_read_with_their_type() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        let mut load = |name: &str, word: &str| {
            store.load(name.as_bytes(), &[word.as_bytes().to_vec()]).expect("fits");
        };
        load("maxmemory", "1kb");
        load("slowlog-log-slower-than", "-1");
        load("daemonize", "yes");
        load("pidfile", "/run/a.pid");
        load("maxmemory-clients", "5%");
        load("unixsocketperm", "700");
        load("availability-zone", "b");
        assert_eq!(memory::MAXMEMORY.of(&store), 1024);
        assert_eq!(diagnostics::SLOWLOG_LOG_SLOWER_THAN.of(&store), -1);
        assert!(process::DAEMONIZE.of(&store));
        assert_eq!(process::PIDFILE.of(&store), Path::new("/run/a.pid"));
        assert_eq!(process::LOGFILE.of(&store), Path::new(""));
        assert_eq!(clients::MAXMEMORY_CLIENTS.of(&store), MemoryShare::Percent(5));
        assert_eq!(clients::MAXMEMORY_CLIENTS.of(&store).of_bytes(2000), 100);
        assert_eq!(network::UNIXSOCKETPERM.of(&store), 0o700);
        assert_eq!(network::AVAILABILITY_ZONE.of(&store), b"b");
        assert_eq!(diagnostics::LATENCY_TRACKING_INFO_PERCENTILES.of(&store).len(), 3);
        network::PORT.put(&mut store, 7);
        assert_eq!((network::PORT.of(&store), store.shown("port").as_str()), (7, "7"));
    }

    #[test]
    fn the_log_has_the_level_that_the_option_names() {
        let levels: Vec<_> = ["nothing", "warning", "notice", "verbose", "debug"].map(level).to_vec();
        assert!(levels.is_sorted());
    }

    fn level(word: &str) -> tracing_subscriber::filter::LevelFilter {
        let mut store = ConfigStore::new(crate::commands::is_command);
        store.load(b"loglevel", &[word.as_bytes().to_vec()]).expect("a level");
        process::LOGLEVEL.of(&store)
    }
}

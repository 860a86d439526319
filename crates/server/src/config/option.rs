//! What an option is: one record with everything that is known about it.

use super::value::{Kind, Value};

/// When an option may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At any time, with CONFIG SET.
    Live,
    /// In the configuration file or on the command line only.
    AtStart,
    /// With CONFIG SET only where `enable-protected-configs` permits it.
    Protected,
}

/// Whether an option does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    /// It does what it says.
    Now,
    /// It is checked, stored and shown, so that existing configurations work; nothing reads it. The text
    /// says why.
    Accepted(&'static str),
}

/// An option. Built by the `const` functions below, so that a table reads as a list.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Older names of the same option.
    pub aliases: &'static [&'static str],
    /// What its values are.
    pub kind: Kind,
    /// Its value when nothing is said, as it would be written.
    pub default: &'static str,
    /// When it may change.
    pub change: Change,
    /// CONFIG GET shows it only when asked for it by its full name, and docs/options.md not at all.
    pub hidden: bool,
    /// One line for the documentation.
    pub summary: &'static str,
    /// Whether it does something.
    pub acts: Acts,
}

impl Opt {
    /// An option of any kind that acts and may change at any time.
    pub const fn new(name: &'static str, kind: Kind, default: &'static str, summary: &'static str) -> Self {
        Opt {
            name,
            aliases: &[],
            kind,
            default,
            change: Change::Live,
            hidden: false,
            summary,
            acts: Acts::Now,
        }
    }

    /// `yes` or `no`.
    pub const fn flag(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Flag, default, summary)
    }

    /// A whole number within `range` (both ends included).
    pub const fn integer(
        name: &'static str,
        default: &'static str,
        range: (i64, i64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Integer { min: range.0, max: range.1 }, default, summary)
    }

    /// An amount of memory within `range` bytes (both ends included).
    pub const fn memory(
        name: &'static str,
        default: &'static str,
        range: (u64, u64),
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Memory { min: range.0, max: range.1 }, default, summary)
    }

    /// One of some words.
    pub const fn choice(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        summary: &'static str,
    ) -> Self {
        Self::new(name, Kind::Choice(words), default, summary)
    }

    /// Any bytes.
    pub const fn text(name: &'static str, default: &'static str, summary: &'static str) -> Self {
        Self::new(name, Kind::Text, default, summary)
    }

    /// Known by these names too.
    pub const fn also(self, aliases: &'static [&'static str]) -> Self {
        Opt { aliases, ..self }
    }

    /// Cannot change once the server runs.
    pub const fn at_start(self) -> Self {
        Opt { change: Change::AtStart, ..self }
    }

    /// Changes at run time only where that is explicitly permitted.
    pub const fn protected(self) -> Self {
        Opt { change: Change::Protected, ..self }
    }

    /// Does nothing, and why.
    pub const fn accepted(self, why: &'static str) -> Self {
        Opt { acts: Acts::Accepted(why), ..self }
    }

    /// Not shown by CONFIG GET with a pattern.
    pub const fn hidden(self) -> Self {
        Opt { hidden: true, ..self }
    }

    /// The value when nothing is said. O(length).
    ///
    /// # Panics
    /// If the record's default is not a value of its kind: a test looks at every record.
    pub fn default_value(&self) -> Value {
        let words: Vec<&[u8]> = match self.kind {
            Kind::Words(_) => self.default.split_ascii_whitespace().map(str::as_bytes).collect(),
            _ => vec![self.default.as_bytes()],
        };
        let initial = self.kind.initial();
        self.kind.parse(&words, &initial).expect("every record's default is a value of its kind")
    }
}

/// No upper end: what Redis takes for a number without one.
pub const ANY: (i64, i64) = (0, i64::MAX);
/// From 0 to the largest 32-bit number.
pub const INT: (i64, i64) = (0, i32::MAX as i64);
/// From 1 to the largest 32-bit number.
pub const POSITIVE_INT: (i64, i64) = (1, i32::MAX as i64);
/// A TCP port.
pub const PORT: (i64, i64) = (0, 65535);
/// Any amount of memory Redis takes.
pub const BYTES: (u64, u64) = (0, i64::MAX as u64);

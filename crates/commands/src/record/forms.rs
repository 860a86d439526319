//! The forms that records of a command take, and the first servers that can apply them.
//!
//! A record must be applicable by Redis 6.2 and later and by Valkey 7.2 and later
//! ([`KnownSince::ALL`]). Forms newer than that have an entry in
//! [`crate::Command::recorded_forms`]. The entry states that other commands always replace the
//! form, or that the form is recorded because nothing older has the same effect. The sender of a
//! replication stream asks [`crate::Command::known_since`] if the receiver can apply a record. If
//! not, the sender converts or refuses the record.

use std::fmt;

/// A version of Redis or Valkey, without its patch level. Versions are ordered by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// The major version of the server: 7 of 7.2.
    pub major: u8,
    /// The minor version of the server: 2 of 7.2.
    pub minor: u8,
}

impl ServerVersion {
    /// Creates the server version `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }

    /// Parses a server version such as `7.2`, `7.2.4` or `8.0.240`. Parts after the second are
    /// ignored. Returns `None` for any other text. O(bytes).
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some(Self { major: parts.next()??, minor: parts.next()?? })
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The first version of Redis and of Valkey that can apply a recorded command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSince {
    /// The first version of Redis that can apply the recorded command.
    pub redis: ServerVersion,
    /// The first version of Valkey that can apply the recorded command.
    pub valkey: ServerVersion,
}

impl KnownSince {
    /// The first versions that can apply every recorded command without a [`RecordedForm`].
    pub const ALL: Self = Self { redis: ServerVersion::new(6, 2), valkey: ServerVersion::new(7, 2) };
    /// The first versions of Redis and Valkey that know the command forms that Redis 7.0
    /// introduced. Every Valkey knows them.
    pub const REDIS_7: Self = Self { redis: ServerVersion::new(7, 0), ..Self::ALL };
    /// The first versions of Redis and Valkey with hash fields that expire.
    pub const FIELD_EXPIRY: Self = Self { redis: ServerVersion::new(7, 4), valkey: ServerVersion::new(9, 0) };
    /// The first versions of Redis and Valkey with HSETEX.
    pub const HSETEX: Self = Self { redis: ServerVersion::new(8, 0), valkey: ServerVersion::new(9, 0) };

    /// The first versions of Redis and Valkey with vector sets. No version of Valkey has them.
    pub const VECTOR_SETS: Self =
        Self { redis: ServerVersion::new(8, 0), valkey: ServerVersion::new(u8::MAX, u8::MAX) };

    /// The first versions with arrays. No version of Valkey has them.
    pub const ARRAYS: Self = Self { redis: ServerVersion::new(8, 8), ..Self::VECTOR_SETS };

    /// Returns the first versions that know both the forms of `self` and those of `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { redis: self.redis.max(other.redis), valkey: self.valkey.max(other.valkey) }
    }
}

/// A form of a command that Redis 6.2 or Valkey 7.2 does not know. It covers all requests of the
/// command, or those with a certain word.
#[derive(Clone, Copy, Debug)]
pub struct RecordedForm {
    /// The word that only requests of this form have, in capitals. `None` if the form covers all
    /// requests of the command.
    pub word: Option<&'static str>,
    /// The index of the first argument that may be the word. Index 0 is the command's name, for a
    /// subcommand the name of its container.
    pub from: usize,
    /// The first versions of Redis and Valkey that know the form. `None` if the form is never
    /// recorded, because other commands replace it.
    pub known: Option<KnownSince>,
}

impl RecordedForm {
    /// The form that covers all requests of a command and is never recorded: other commands replace
    /// it.
    pub const REPLACED: Self = Self { word: None, from: 0, known: None };

    /// Creates the form that covers all requests of a command and that the servers know since these
    /// versions.
    pub const fn known_since(known: KnownSince) -> Self {
        Self { word: None, from: 0, known: Some(known) }
    }

    /// Creates the form of requests with `word` at argument `from` or later, which the servers know
    /// since these versions.
    pub const fn with_word(word: &'static str, from: usize, known: KnownSince) -> Self {
        Self { word: Some(word), from, known: Some(known) }
    }

    /// Creates the form of requests with `word`, which is never recorded: other commands replace
    /// it.
    pub const fn replaced(word: &'static str) -> Self {
        Self { word: Some(word), ..Self::REPLACED }
    }

    /// Returns true if a recorded command, its name included, has this form. False for forms that
    /// are never recorded. O(words).
    pub fn is_form_of<'w>(&self, words: impl IntoIterator<Item = &'w [u8]>) -> bool {
        self.known.is_some()
            && self.word.is_none_or(|own| {
                words.into_iter().skip(self.from).any(|word| word.eq_ignore_ascii_case(own.as_bytes()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_and_read() {
        let read = |text| ServerVersion::parse(text);
        assert_eq!(read("8.0.240"), Some(ServerVersion::new(8, 0)));
        assert_eq!(read("7.2"), Some(ServerVersion::new(7, 2)));
        assert_eq!((read("7"), read("x.1"), read("7.999")), (None, None, None));
        assert!(read("6.2.14") < read("7.0.0") && read("8.10") > read("8.9"));
        assert_eq!(ServerVersion::new(8, 10).to_string(), "8.10");
    }

    #[test]
    fn two_forms_need_the_later_version_of_each_server() {
        let both = KnownSince::REDIS_7.and(KnownSince::FIELD_EXPIRY).and(KnownSince::ALL);
        assert_eq!(both, KnownSince::FIELD_EXPIRY);
    }

    #[test]
    fn a_word_counts_from_its_first_place_on() {
        let form = RecordedForm::with_word("ENTRIESREAD", 5, KnownSince::REDIS_7);
        let has = |line: &str| form.is_form_of(line.split(' ').map(str::as_bytes));
        assert!(has("XGROUP SETID s g 1-1 entriesread 1"));
        assert!(!has("XGROUP SETID s ENTRIESREAD 1-1"));
        assert!(!RecordedForm::REPLACED.is_form_of([&b"MSETEX"[..]]));
    }
}

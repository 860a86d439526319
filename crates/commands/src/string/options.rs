//! The options of SET, GETEX and similar commands: a condition, an expiry, GET. As in Redis 8.0.2,
//! two different conditions or two different expiry options are an error. If the same option is
//! given twice, the last one counts.

use keyspace::Expiry;

use crate::args::{Args, Upper};
use crate::error::CommandError;

/// The parsed options of a SET, GETEX or similar request.
#[derive(Clone, Copy)]
pub(super) struct Options<'a> {
    pub(super) condition: Condition<'a>,
    pub(super) lifetime: Lifetime<'a>,
    /// True if the option GET is given: the reply is the key's old value.
    pub(super) get: bool,
}

/// The condition under which a command writes or deletes the string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition<'a> {
    None,
    /// NX: the command writes only if the key is missing.
    Absent,
    /// XX: the command writes only if the key exists.
    Present,
    /// IFEQ: the string at the key equals this text.
    Equal(&'a [u8]),
    /// IFNE: the string at the key differs from this text. A missing key differs from every text.
    NotEqual(&'a [u8]),
    /// IFDEQ: the string at the key has this digest, given in hexadecimal.
    DigestEqual(&'a [u8]),
    /// IFDNE: the string at the key does not have this digest. A missing key has no digest.
    DigestNotEqual(&'a [u8]),
}

/// The requested expiry. Numbers are parsed later, at the point where Redis reports their errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lifetime<'a> {
    /// No expiry option was given: the command's own rule applies.
    Default,
    /// KEEPTTL: the key keeps its expiry.
    Keep,
    /// PERSIST: the key's expiry is removed.
    Persist,
    /// EX: the text of a number of seconds from now.
    Seconds(&'a [u8]),
    /// PX: the text of a number of milliseconds from now.
    Milliseconds(&'a [u8]),
    /// EXAT: the text of a Unix time in seconds.
    UnixSeconds(&'a [u8]),
    /// PXAT: the text of a Unix time in milliseconds.
    UnixMilliseconds(&'a [u8]),
}

/// The expiry options and conditions that a command accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedOptions {
    /// The options of SET: all except PERSIST.
    Set,
    /// The options of MSETEX: NX, XX, expiry times and KEEPTTL.
    Msetex,
    /// The options of GETEX and INCREX: expiry times and PERSIST.
    Getex,
}

impl<'a> Options<'a> {
    /// Parses the options of a SET, GETEX or similar request from argument `first` on.
    pub(super) fn parse(args: &Args<'a>, first: usize, takes: AllowedOptions) -> Result<Self, CommandError> {
        let mut options = Options { condition: Condition::None, lifetime: Lifetime::Default, get: false };
        let mut words = args.from(first);
        while let Some(word) = words.next() {
            if takes == AllowedOptions::Set && word.eq_ignore_ascii_case(b"GET") {
                options.get = true;
            } else if takes != AllowedOptions::Getex
                && let Some(condition) = Condition::parse(word, &mut words)
            {
                let compares = !matches!(condition, Condition::Absent | Condition::Present);
                let conflicts = options.condition != Condition::None && options.condition != condition;
                if conflicts || (compares && takes != AllowedOptions::Set) {
                    return Err(CommandError::Syntax);
                }
                options.condition = condition;
            } else {
                let lifetime = Lifetime::parse(word, &mut words, takes).ok_or(CommandError::Syntax)?;
                let kind = std::mem::discriminant(&lifetime);
                let same = std::mem::discriminant(&options.lifetime) == kind;
                if options.lifetime != Lifetime::Default && !same {
                    return Err(CommandError::Syntax);
                }
                options.lifetime = lifetime;
            }
        }
        Ok(options)
    }

    /// Returns the change to the key's expiry that the options request. The error text for an
    /// invalid time names `command`.
    pub(super) fn expiry(&self, command: &'static str, now_ms: i64) -> Result<Expiry, CommandError> {
        self.lifetime.expiry(command, now_ms)
    }
}

impl<'a> Condition<'a> {
    pub(super) fn parse(word: &[u8], rest: &mut impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        Some(match &*Upper::of(word) {
            b"NX" => Condition::Absent,
            b"XX" => Condition::Present,
            b"IFEQ" => Condition::Equal(rest.next()?),
            b"IFNE" => Condition::NotEqual(rest.next()?),
            b"IFDEQ" => Condition::DigestEqual(rest.next()?),
            b"IFDNE" => Condition::DigestNotEqual(rest.next()?),
            _ => return None,
        })
    }

    /// Returns true if the condition compares the string with a text or a digest: IFEQ, IFNE, IFDEQ
    /// and IFDNE.
    pub(super) fn has_text(self) -> bool {
        !matches!(self, Condition::None | Condition::Absent | Condition::Present)
    }
}

impl<'a> Lifetime<'a> {
    pub(super) fn parse(
        word: &[u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
        takes: AllowedOptions,
    ) -> Option<Self> {
        Some(match (&*Upper::of(word), takes) {
            (b"KEEPTTL", AllowedOptions::Set | AllowedOptions::Msetex) => Lifetime::Keep,
            (b"PERSIST", AllowedOptions::Getex) => Lifetime::Persist,
            (b"EX", _) => Lifetime::Seconds(rest.next()?),
            (b"PX", _) => Lifetime::Milliseconds(rest.next()?),
            (b"EXAT", _) => Lifetime::UnixSeconds(rest.next()?),
            (b"PXAT", _) => Lifetime::UnixMilliseconds(rest.next()?),
            _ => return None,
        })
    }

    /// Returns the change to the key's expiry. Checks that times are positive and that the sum with
    /// `now_ms` does not overflow. The error text for an invalid time names `command`.
    pub(super) fn expiry(self, command: &'static str, now_ms: i64) -> Result<Expiry, CommandError> {
        let (text, unit_ms, from_ms) = match self {
            Lifetime::Default | Lifetime::Persist => return Ok(Expiry::Clear),
            Lifetime::Keep => return Ok(Expiry::Keep),
            Lifetime::Seconds(text) => (text, 1000, now_ms),
            Lifetime::Milliseconds(text) => (text, 1, now_ms),
            Lifetime::UnixSeconds(text) => (text, 1000, 0),
            Lifetime::UnixMilliseconds(text) => (text, 1, 0),
        };
        let number = stdx::number::parse_i64(text).ok_or(CommandError::NotAnInteger)?;
        let at_ms = number.checked_mul(unit_ms).filter(|&ms| ms > 0).and_then(|ms| ms.checked_add(from_ms));
        at_ms.map(Expiry::At).ok_or(CommandError::InvalidExpire(command))
    }
}

//! A request's arguments: slices of the bytes it arrived in, with the hash of
//! its first key at hand.

use std::ops::Deref;

use keyspace::{Hasher, Key, KeyHash};
use resp::parse::Span;

use crate::error::{CommandError, quotable};

/// No option of any command is longer.
const OPTION_LEN_MAX: usize = 24;

/// A word in upper case, to be matched with byte strings such as `b"NX"` (by `&*`). One that is
/// longer than every option is empty. Allocates nothing.
pub struct Upper {
    bytes: [u8; OPTION_LEN_MAX],
    len: usize,
}

impl Upper {
    /// The upper case of `word`. O(1).
    pub fn of(word: &[u8]) -> Self {
        let mut bytes = [0; OPTION_LEN_MAX];
        let len = if word.len() <= OPTION_LEN_MAX { word.len() } else { 0 };
        for (upper, byte) in bytes.iter_mut().zip(&word[..len]) {
            *upper = byte.to_ascii_uppercase();
        }
        Self { bytes, len }
    }
}

impl Deref for Upper {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A number as Redis reads weights and the bounds of scores: none at all counts as zero, one out of
/// range as infinite, a NUL ends it. Neither blanks nor hexadecimal digits nor NaN are taken.
pub fn lenient_float(text: &[u8]) -> Option<f64> {
    let number = match quotable(text) {
        [] => Some(0.0),
        number => std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()),
    };
    number.filter(|number: &f64| !number.is_nan())
}

/// Stands for no key whose hash is known: no request has an argument of this index.
const NO_KEY: (usize, KeyHash) = (usize::MAX, KeyHash::first_of_shard(0));

/// Bytes of `*3\r\n` or `$3\r\n` with this count.
#[inline]
fn header_len_bytes(count: usize) -> usize {
    let digits = if count < 100 { 1 + usize::from(count > 9) } else { count.ilog10() as usize + 1 };
    1 + digits + 2
}

/// The arguments of one request. Index 0 is the command's name.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    input: &'a [u8],
    spans: &'a [Span],
    hasher: &'a Hasher,
    /// The index of a key whose hash dispatch computed, and the hash.
    first_key: (usize, KeyHash),
}

impl<'a> Args<'a> {
    /// Arguments `spans` of `input`; keys are hashed with `hasher` when asked for.
    #[inline]
    pub fn new(input: &'a [u8], spans: &'a [Span], hasher: &'a Hasher) -> Self {
        Self { input, spans, hasher, first_key: NO_KEY }
    }

    /// Remembers the hash of the key at argument `index`, which dispatch has computed already.
    #[inline]
    pub fn with_first_key(self, index: usize, hash: KeyHash) -> Self {
        Self { first_key: (index, hash), ..self }
    }

    /// Number of arguments, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none, not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index`.
    ///
    /// # Panics
    /// If there is no such argument: handlers stay within their arity or ask [`Args::len`].
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.input)
    }

    /// Bytes of the request as it was received, or of its words. O(1).
    #[inline]
    pub fn input_len_bytes(&self) -> usize {
        self.input.len()
    }

    /// Appends the request as RESP has it, in its shortest form. O(bytes).
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_canonical() { out.extend_from_slice(self.input) } else { self.encode_anew(out) }
    }

    /// Whether the input is the request in its shortest form. The parser also takes lengths such as
    /// `$03`, which make it longer, and looks at the CR of a line's end only: not at the byte
    /// behind it, nor at the two bytes behind a word.
    #[inline]
    fn is_canonical(&self) -> bool {
        let is_at = |at: usize, byte: u8| self.input.get(at) == Some(&byte);
        let mut len_bytes = header_len_bytes(self.spans.len());
        let mut is_canonical = is_at(0, b'*') && is_at(len_bytes - 1, b'\n');
        for span in self.spans {
            let (start, len) = (span.start as usize, span.len as usize);
            len_bytes += header_len_bytes(len) + len + 2;
            is_canonical &= is_at(start.wrapping_sub(1), b'\n');
            is_canonical &= is_at(start + len, b'\r') & is_at(start + len + 1, b'\n');
        }
        is_canonical && len_bytes == self.input.len()
    }

    #[cold]
    fn encode_anew(&self, out: &mut Vec<u8>) {
        let header = |marker, count: usize, out: &mut Vec<u8>| {
            out.push(marker);
            out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        header(b'*', self.spans.len(), out);
        for word in self.from(0) {
            header(b'$', word.len(), out);
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Argument `index`, if there is one.
    #[inline]
    pub fn try_get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.input))
    }

    /// The arguments from `index` on.
    pub fn from(
        &self,
        index: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let (input, spans) = (self.input, &self.spans[index.min(self.spans.len())..]);
        spans.iter().map(move |span| span.of(input))
    }

    /// The arguments from `index` on as a request of their own: what COMMAND
    /// GETKEYS is asked about.
    pub fn tail(&self, index: usize) -> Args<'a> {
        let spans = &self.spans[index.min(self.spans.len())..];
        Args { spans, first_key: NO_KEY, ..*self }
    }

    /// Argument `index` as a key.
    #[inline(always)]
    pub fn key(&self, index: usize) -> Key<'a> {
        if index == self.first_key.0 {
            return Key { bytes: self.get(index), hash: self.first_key.1 };
        }
        self.hashed(index)
    }

    #[inline(never)]
    fn hashed(&self, index: usize) -> Key<'a> {
        self.hasher.key(self.get(index))
    }

    /// Whether argument `index` is the word `token`, whatever the case.
    #[inline]
    pub fn is(&self, index: usize, token: &str) -> bool {
        self.try_get(index).is_some_and(|bytes| bytes.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Argument `index` as a 64-bit integer.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        stdx::number::parse_i64(self.get(index)).ok_or(CommandError::NotAnInteger)
    }

    /// Argument `index` as the cursor of a scan. As Redis does it: written plainly, a negative
    /// number is refused; written otherwise (blanks or zeros ahead, too large), it is what C's
    /// `strtoull` makes of it.
    pub fn cursor(&self, index: usize) -> Result<u64, CommandError> {
        let bytes = self.get(index);
        let refused = CommandError::Line("ERR invalid cursor");
        if let Some(number) = stdx::number::parse_i64(bytes) {
            return u64::try_from(number).map_err(|_| refused);
        }
        let is_text = |byte: &u8| !byte.is_ascii_whitespace() && *byte != b'\x0b';
        let from = bytes.iter().position(is_text).unwrap_or(bytes.len());
        let (is_negative, digits) = match &bytes[from..] {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] | digits => (false, digits),
        };
        let digits = Some(digits).filter(|digits| digits.first().is_some_and(u8::is_ascii_digit));
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        number.map(|number| if is_negative { number.wrapping_neg() } else { number }).ok_or(refused)
    }

    /// Argument `index` as the number of one of `db_count` databases.
    pub fn db_index(&self, index: usize, db_count: usize) -> Result<usize, CommandError> {
        let number = i32::try_from(self.integer(index)?).map_err(|_| {
            CommandError::Line("ERR value is out of range, value must between -2147483648 and 2147483647")
        })?;
        let db = usize::try_from(number).ok().filter(|&db| db < db_count);
        db.ok_or(CommandError::DbIndexOutOfRange)
    }

    /// Argument `index` as a float.
    pub fn float(&self, index: usize) -> Result<f64, CommandError> {
        stdx::number::parse_f64(self.get(index)).ok_or(CommandError::NotAFloat)
    }

    /// The keyed hash of this process.
    pub fn hasher(&self) -> &'a Hasher {
        self.hasher
    }
}

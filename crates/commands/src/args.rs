//! The arguments of a request: slices of the received bytes, with the hash of one key.

use std::ops::Deref;

use keyspace::{Hasher, Key, KeyHash};
use resp::parse::Span;

use crate::error::{CommandError, quotable};

/// An upper bound on the length of any option of a command, in bytes.
const OPTION_LEN_MAX: usize = 24;

/// A word of a request in upper case, to compare (as `&*upper`) with byte strings such as `b"NX"`.
/// Empty if the word is longer than every option. Does not allocate.
pub struct Upper {
    bytes: [u8; OPTION_LEN_MAX],
    len: usize,
}

impl Upper {
    /// Returns the request's word `word` in upper case, or nothing if it is longer than every
    /// option. O(1).
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

/// Parses a number as Redis parses weights and score bounds. An empty text is 0, and a number out
/// of range is infinite. The text ends at its first NUL. Returns `None` for blanks, hexadecimal
/// digits and NaN.
pub fn lenient_float(text: &[u8]) -> Option<f64> {
    let number = match quotable(text) {
        [] => Some(0.0),
        number => std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()),
    };
    number.filter(|number: &f64| !number.is_nan())
}

/// The value of [`Args::first_key`] while no hash is known: no request has an argument with this
/// index.
const NO_KEY: (usize, KeyHash) = (usize::MAX, KeyHash::first_of_shard(0));

/// Returns the length in bytes of a RESP header such as `*3\r\n` or `$3\r\n` for this count.
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
    /// The argument index and the hash of one key, which the caller of the command has already
    /// computed.
    first_key: (usize, KeyHash),
}

impl<'a> Args<'a> {
    /// Creates the arguments of a request that `spans` mark in `input`. Keys are hashed with
    /// `hasher` on demand.
    #[inline]
    pub fn new(input: &'a [u8], spans: &'a [Span], hasher: &'a Hasher) -> Self {
        Self { input, spans, hasher, first_key: NO_KEY }
    }

    /// Stores the hash of the key at argument `index`, so that it is not computed again.
    #[inline]
    pub fn with_first_key(self, index: usize, hash: KeyHash) -> Self {
        Self { first_key: (index, hash), ..self }
    }

    /// Returns the number of the request's arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns true if the request has no arguments, not even a name.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the request's argument `index`.
    ///
    /// # Panics
    /// If there is no such argument. Handlers stay within their arity or check [`Args::len`].
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.spans[index].of(self.input)
    }

    /// Returns the length of the request in bytes, as received, or of its words alone if they were
    /// stored without headers. O(1).
    #[inline]
    pub fn input_len_bytes(&self) -> usize {
        self.input.len()
    }

    /// Appends the request to `out` as RESP in its shortest encoding. O(bytes).
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_canonical() { out.extend_from_slice(self.input) } else { self.reencode(out) }
    }

    /// Returns true if the request was received in its shortest RESP encoding. The parser also
    /// accepts longer ones with lengths such as `$03`. At the end of a header line it checks only
    /// the CR, not the next byte. It does not check the two bytes after a word.
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
    fn reencode(&self, out: &mut Vec<u8>) {
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

    /// Returns the request's argument `index`, or `None` if there is none.
    #[inline]
    pub fn try_get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.input))
    }

    /// Returns an iterator over the request's arguments from `index` on.
    pub fn from(
        &self,
        index: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let (input, spans) = (self.input, &self.spans[index.min(self.spans.len())..]);
        spans.iter().map(move |span| span.of(input))
    }

    /// Returns the arguments from `index` on as a separate request, for example the request that
    /// COMMAND GETKEYS inspects.
    pub fn tail(&self, index: usize) -> Args<'a> {
        let spans = &self.spans[index.min(self.spans.len())..];
        Args { spans, first_key: NO_KEY, ..*self }
    }

    /// Returns argument `index` as a key with its hash.
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

    /// Returns true if argument `index` is the word `token`, in upper or lower case.
    #[inline]
    pub fn is(&self, index: usize, token: &str) -> bool {
        self.try_get(index).is_some_and(|bytes| bytes.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Parses argument `index` as a 64-bit integer in its only valid form, without leading zeros or
    /// blanks.
    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        stdx::number::parse_i64(self.get(index)).ok_or(CommandError::NotAnInteger)
    }

    /// Parses argument `index` as the cursor of a scan, as Redis does. An integer in its only valid
    /// form must not be negative. Any other text (leading blanks or zeros, or too large for `i64`)
    /// is parsed as C's `strtoull` does.
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

    /// Parses argument `index` as the number of a database, below `db_count`.
    pub fn db_index(&self, index: usize, db_count: usize) -> Result<usize, CommandError> {
        let number = i32::try_from(self.integer(index)?).map_err(|_| {
            CommandError::Line("ERR value is out of range, value must between -2147483648 and 2147483647")
        })?;
        let db = usize::try_from(number).ok().filter(|&db| db < db_count);
        db.ok_or(CommandError::DbIndexOutOfRange)
    }

    /// Parses argument `index` as a floating-point number in the forms that
    /// [`stdx::number::parse_f64`] accepts.
    pub fn float(&self, index: usize) -> Result<f64, CommandError> {
        stdx::number::parse_f64(self.get(index)).ok_or(CommandError::NotAFloat)
    }

    /// Returns the keyed function of this process that computes the hashes of keys.
    pub fn hasher(&self) -> &'a Hasher {
        self.hasher
    }
}

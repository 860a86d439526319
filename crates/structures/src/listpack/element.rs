//! One element of a listpack: its value, its encoding, and functions over a run of elements.
//!
//! An element is stored as `head payload backlen`, all integers little-endian unless drawn as bits:
//!
//! ```text
//!   0xxxxxxx                     integer 0..=127
//!   10llllll payload             string of 0..=63 bytes
//!   110xxxxx xxxxxxxx            integer of 13 bits, two's complement, high bits first
//!   1110llll llllllll payload    string of 64..=4095 bytes, length high bits first
//!   F0 l l l l payload           longer string, 32-bit length
//!   F1 x x   F2 x x x   F3 x*4   F4 x*8        integers of 16, 24, 32 and 64 bits
//! ```
//! `backlen` (the back length) is the length of the element's bytes before it. It has seven bits a
//! byte, most significant first. Every byte but the first has its top bit set. It can be read from
//! its end, so a run can be read backwards. A *run* is a slice of whole elements without header and
//! terminator. Listpacks and quicklist nodes both hold a run.
//!
//! Reading never trusts a length: a malformed element decodes to `None`, never to a panic.
//!
//! Source: the listpack description in the Redis source tree, and dumps of Redis 8.0.2.

/// The length in bytes of the longest text of an `i64`: `-9223372036854775808`.
const INT_TEXT_LEN_MAX: usize = 20;

/// The value of one element of a listpack, borrowed from the bytes that hold it or that will be
/// stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// An element that is a string.
    Bytes(&'a [u8]),
    /// An element that is an integer; users see its decimal text.
    Int(i64),
}

/// A buffer into which the text of an integer element is written.
#[derive(Default)]
pub struct IntText(itoa::Buffer);

impl IntText {
    /// Creates an empty buffer for an integer's text; costs nothing.
    #[inline]
    pub fn new() -> Self {
        Self(itoa::Buffer::new())
    }
}

impl<'a> Element<'a> {
    /// Returns the element's text as users see it. An integer is written into `scratch`. O(digits).
    #[inline]
    pub fn text<'b>(&self, scratch: &'b mut IntText) -> &'b [u8]
    where
        'a: 'b,
    {
        match *self {
            Element::Bytes(bytes) => bytes,
            Element::Int(value) => scratch.0.format(value).as_bytes(),
        }
    }

    /// Appends the text of the element to `out`. O(bytes).
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text(&mut IntText::new()));
    }

    /// Returns the length of the element's text in bytes. O(digits).
    pub fn text_len_bytes(&self) -> usize {
        self.text(&mut IntText::new()).len()
    }

    /// Returns the integer if the element is one, or is a string in an integer's canonical form
    /// ([`parse_canonical_int`]).
    pub fn as_int(&self) -> Option<i64> {
        match *self {
            Element::Bytes(bytes) => parse_canonical_int(bytes),
            Element::Int(value) => Some(value),
        }
    }
}

impl<'a> From<&'a [u8]> for Element<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Element::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Element<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Element::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Element<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Element::Bytes(bytes)
    }
}

impl From<i64> for Element<'_> {
    #[inline]
    fn from(value: i64) -> Self {
        Element::Int(value)
    }
}

/// A value to search for in a listpack, prepared once: comparing it with integer elements needs no
/// text.
#[derive(Clone, Copy, Debug)]
pub struct Needle<'a> {
    bytes: &'a [u8],
    int: Option<i64>,
}

impl<'a> Needle<'a> {
    /// Prepares the search for elements with the text `bytes`. O(digits).
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, int: parse_canonical_int(bytes) }
    }

    /// Returns true if `element` has the text of this needle. O(bytes).
    #[inline]
    pub fn matches(&self, element: Element<'_>) -> bool {
        match element {
            Element::Bytes(bytes) => bytes == self.bytes,
            Element::Int(value) => self.int == Some(value),
        }
    }
}

/// Appends `element` to `out` in the encoding of a listpack, for callers that write a listpack to a
/// file or to another server. A string that reads as an integer is stored as one. The caller limits
/// strings to below 4 GiB. O(bytes).
pub fn append_encoded(element: Element<'_>, out: &mut Vec<u8>) {
    let encoded = Encoded::new(element);
    let at = out.len();
    out.resize(at + encoded.len_bytes(), 0);
    encoded.write(&mut out[at..]);
}

/// Parses an integer in its canonical form: no sign but `-`, no leading zero, within `i64`. Returns
/// `None` for all other texts. A listpack stores such strings as integers. O(digits).
#[inline]
pub fn parse_canonical_int(text: &[u8]) -> Option<i64> {
    // Most strings return here.
    match text {
        [b'0'] => return Some(0),
        [b'1'..=b'9' | b'-', ..] if text.len() <= INT_TEXT_LEN_MAX => {}
        _ => return None,
    }
    let negative = text[0] == b'-';
    let digits = &text[usize::from(negative)..];
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    let mut magnitude = 0_u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// An element ready to be written to a listpack: its head, with the head's length, and its payload.
#[derive(Clone, Copy)]
pub(crate) struct Encoded<'a> {
    head: [u8; 9],
    head_len: u8,
    payload: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// Chooses the encoding of an element in a listpack. A string that reads as an integer is
    /// stored as one. O(digits).
    ///
    /// The caller limits strings to below 4 GiB.
    #[inline]
    pub(crate) fn new(element: Element<'a>) -> Self {
        match element {
            Element::Int(value) => Self::int(value),
            Element::Bytes(bytes) => match parse_canonical_int(bytes) {
                Some(value) => Self::int(value),
                None => Self::string(bytes),
            },
        }
    }

    #[inline]
    fn string(payload: &'a [u8]) -> Self {
        let len = payload.len();
        let mut head = [0; 9];
        let head_len = if len < 64 {
            head[0] = 0x80 | len as u8;
            1
        } else if len < 4096 {
            head[0] = 0xE0 | (len >> 8) as u8;
            head[1] = len as u8;
            2
        } else {
            let len = u32::try_from(len).expect("callers keep strings below 4 GiB");
            head[0] = 0xF0;
            head[1..5].copy_from_slice(&len.to_le_bytes());
            5
        };
        Self { head, head_len, payload }
    }

    fn int(value: i64) -> Self {
        let mut head = [0; 9];
        let head_len = match value {
            0..=127 => {
                head[0] = value as u8;
                1
            }
            -4096..=4095 => {
                head[0] = 0xC0 | ((value >> 8) as u8 & 0x1F);
                head[1] = value as u8;
                2
            }
            _ => {
                let (tag, width) = match value {
                    -0x8000..=0x7FFF => (0xF1, 2),
                    -0x80_0000..=0x7F_FFFF => (0xF2, 3),
                    -0x8000_0000..=0x7FFF_FFFF => (0xF3, 4),
                    _ => (0xF4, 8),
                };
                head[0] = tag;
                head[1..1 + width].copy_from_slice(&value.to_le_bytes()[..width]);
                1 + width
            }
        };
        Self { head, head_len: head_len as u8, payload: &[] }
    }

    /// Returns the length of the encoded element in bytes, back length included.
    #[inline]
    pub(crate) fn len_bytes(&self) -> usize {
        let len = usize::from(self.head_len) + self.payload.len();
        len + backlen_size(len)
    }

    /// Writes the element to `to`, which must be [`len_bytes`](Self::len_bytes) long.
    #[inline]
    pub(crate) fn write(&self, to: &mut [u8]) {
        let head_len = usize::from(self.head_len);
        let len = head_len + self.payload.len();
        if head_len == 1 {
            to[0] = self.head[0];
        } else {
            to[..head_len].copy_from_slice(&self.head[..head_len]);
        }
        to[head_len..len].copy_from_slice(self.payload);
        write_backlen(len, &mut to[len..]);
    }
}

/// Returns the number of bytes that encode the back length of an element of `len` bytes. The format
/// defines the unusual limits.
#[inline]
fn backlen_size(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Writes the back length of an element of `len` bytes to `to`, which must have its exact length.
#[inline]
fn write_backlen(len: usize, to: &mut [u8]) {
    if let [only] = to {
        *only = len as u8;
        return;
    }
    let mut rest = len;
    for byte in to.iter_mut().rev() {
        *byte = 0x80 | (rest & 0x7F) as u8;
        rest >>= 7;
    }
    to[0] &= 0x7F;
}

/// Reads the back length at the end of `run`: the length of the last element without its back
/// length. Returns `None` if the run is empty or the back length is invalid.
#[inline]
fn read_backlen(run: &[u8]) -> Option<usize> {
    let mut len = 0_usize;
    for (position, &byte) in run.iter().rev().take(5).enumerate() {
        len |= usize::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            return Some(len);
        }
    }
    None
}

/// Decodes the first element of `run`, a sequence of listpack elements. Returns the element and the
/// number of bytes it takes. Returns `None` if the run is empty or cut short; the latter only
/// happens to bytes that were not validated. O(1).
#[inline]
pub(crate) fn decode(run: &[u8]) -> Option<(Element<'_>, usize)> {
    let first = *run.first()?;
    if first & 0xC0 == 0x80 {
        let len = usize::from(first & 0x3F);
        Some((Element::Bytes(run.get(1..1 + len)?), len + 2))
    } else if first < 0x80 {
        Some((Element::Int(i64::from(first)), 2))
    } else {
        decode_wide(run, first)
    }
}

/// Calls `visit` with the first `count_max` elements of `run`, a sequence of listpack elements, or
/// with all if there are fewer. Returns the number visited. O(n).
///
/// Each of the two short forms has its own call of `visit`. With a common call, the compiler would
/// build the [`Element`] in memory. Reading it back at once stalls for longer than all the other
/// work takes.
#[inline]
pub(crate) fn visit<'a>(mut run: &'a [u8], count_max: usize, visit: &mut impl FnMut(Element<'a>)) -> usize {
    for visited in 0..count_max {
        let Some(&first) = run.first() else { return visited };
        let len = if first & 0xC0 == 0x80 {
            let len = usize::from(first & 0x3F);
            let Some(bytes) = run.get(1..1 + len) else { return visited };
            visit(Element::Bytes(bytes));
            len + 2
        } else if first < 0x80 {
            visit(Element::Int(i64::from(first)));
            2
        } else {
            let Some((element, len)) = decode_wide(run, first) else { return visited };
            visit(element);
            len
        };
        run = run.get(len..).unwrap_or_default();
    }
    count_max
}

/// Decodes the first element of `run`, a sequence of listpack elements. The element's head has
/// several bytes, of which `first` is the first. Returns `None` if the run is cut short.
fn decode_wide(run: &[u8], first: u8) -> Option<(Element<'_>, usize)> {
    if first & 0xE0 == 0xC0 {
        let bits = u16::from(first & 0x1F) << 8 | u16::from(*run.get(1)?);
        // Shift the 13-bit sign to the top and back.
        let value = ((bits << 3) as i16) >> 3;
        return Some((Element::Int(i64::from(value)), 3));
    }
    if first & 0xF0 == 0xE0 {
        let len = usize::from(first & 0x0F) << 8 | usize::from(*run.get(1)?);
        return Some((Element::Bytes(run.get(2..2 + len)?), 2 + len + backlen_size(2 + len)));
    }
    let width = match first {
        0xF0 => {
            let len = u32::from_le_bytes(*run.get(1..)?.first_chunk()?) as usize;
            return Some((Element::Bytes(run.get(5..5 + len)?), 5 + len + backlen_size(5 + len)));
        }
        0xF1 => 2,
        0xF2 => 3,
        0xF3 => 4,
        0xF4 => 8,
        _ => return None,
    };
    let mut word = [0; 8];
    word[8 - width..].copy_from_slice(run.get(1..1 + width)?);
    // The bytes are at the top of the word, so the shift extends the sign.
    Some((Element::Int(i64::from_le_bytes(word) >> (64 - 8 * width)), width + 2))
}

/// Returns the start of the last element of `run`, a sequence of listpack elements; `None` if the
/// run is empty. O(1).
#[inline]
pub(crate) fn last_start(run: &[u8]) -> Option<usize> {
    let len = read_backlen(run)?;
    run.len().checked_sub(len + backlen_size(len))
}

/// Decodes the last element of `run`, a sequence of listpack elements. Returns the element and its
/// start; `None` if the run is empty. O(1).
#[inline]
pub(crate) fn decode_last(run: &[u8]) -> Option<(Element<'_>, usize)> {
    let start = last_start(run)?;
    let (element, _) = decode(&run[start..])?;
    Some((element, start))
}

/// Checks that `run`, which may be untrusted, consists of whole listpack elements with correct back
/// lengths. Returns the number of elements, or as an error the offset of the first broken one.
/// O(elements).
pub(crate) fn validate(run: &[u8]) -> Result<usize, usize> {
    let mut at = 0;
    let mut count = 0;
    while at < run.len() {
        let (_, len) = decode(&run[at..]).ok_or(at)?;
        let element = run.get(at..at + len).ok_or(at)?;
        // The first byte of a back length has no top bit, so a correct back length is read exactly.
        if last_start(element) != Some(0) {
            return Err(at);
        }
        at += len;
        count += 1;
    }
    Ok(count)
}

/// Counts the elements in `run`, a sequence of listpack elements. O(n).
pub(crate) fn count(run: &[u8]) -> usize {
    let mut rest = run;
    let mut count = 0;
    while let Some((_, len)) = decode(rest) {
        rest = &rest[len..];
        count += 1;
    }
    count
}

/// Returns the start of element `index` in `run`, which has `count` elements. Returns the end of
/// the run if there is no such element. Starts at the nearer end: O(distance).
pub(crate) fn seek(run: &[u8], count: usize, index: usize) -> usize {
    if index >= count {
        return run.len();
    }
    if index <= count / 2 {
        return skip(run, 0, index);
    }
    let mut at = run.len();
    for _ in index..count {
        at = last_start(&run[..at]).expect("the run holds `count` elements");
    }
    at
}

/// Returns the start of the element `n` elements after the one at `at`, or the end of the run if
/// there are fewer. O(n).
#[inline]
pub(crate) fn skip(run: &[u8], mut at: usize, n: usize) -> usize {
    for _ in 0..n {
        match decode(&run[at..]) {
            Some((_, len)) => at += len,
            None => break,
        }
    }
    at
}

/// Finds the start of the first element equal to `needle`. Compares the element at `at` and later
/// ones, and skips `skipped` elements after each comparison. O(n).
pub(crate) fn find(run: &[u8], mut at: usize, needle: Needle<'_>, skipped: usize) -> Option<usize> {
    while let Some((element, len)) = decode(&run[at..]) {
        if needle.matches(element) {
            return Some(at);
        }
        at = skip(run, at + len, skipped);
    }
    None
}

/// Removes elements equal to `needle` from the listpack elements in `run`: keeps the first `passed`
/// of them, and removes at most `removed_max` of the others. Moves the remaining elements to the
/// front, without gaps. Returns their length in bytes and the number removed. One pass, O(bytes).
pub(crate) fn remove_matches(
    run: &mut [u8],
    needle: Needle<'_>,
    mut passed: usize,
    removed_max: usize,
) -> (usize, usize) {
    let (mut read, mut written, mut kept_from, mut removed) = (0, 0, 0, 0);
    while removed < removed_max {
        let Some((element, len)) = decode(&run[read..]) else { break };
        if needle.matches(element) {
            if passed > 0 {
                passed -= 1;
            } else {
                run.copy_within(kept_from..read, written);
                written += read - kept_from;
                kept_from = read + len;
                removed += 1;
            }
        }
        read += len;
    }
    run.copy_within(kept_from.., written);
    (written + run.len() - kept_from, removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(element: Element<'_>) -> Vec<u8> {
        let encoded = Encoded::new(element);
        let mut bytes = vec![0xAA; encoded.len_bytes()];
        encoded.write(&mut bytes);
        bytes
    }

    #[test]
    fn integers_take_the_narrowest_encoding_at_each_boundary() {
        let cases: [(i64, i64, usize); 9] = [
            (0, 127, 2),
            (-4096, -1, 3),
            (128, 4095, 3),
            (-32768, -4097, 4),
            (4096, 32767, 4),
            (-8_388_608, -32769, 5),
            (32768, 8_388_607, 5),
            (-2_147_483_648, -8_388_609, 6),
            (8_388_608, 2_147_483_647, 6),
        ];
        for (low, high, len) in cases {
            for value in [low, high] {
                assert_eq!(encoded(Element::Int(value)).len(), len, "{value}");
            }
        }
        for value in [i64::MIN, -2_147_483_649, 2_147_483_648, i64::MAX] {
            assert_eq!(encoded(Element::Int(value)).len(), 10, "{value}");
        }
    }

    #[test]
    fn every_small_integer_and_every_power_of_two_reads_back() {
        let check = |value: i64| {
            let bytes = encoded(Element::Int(value));
            assert_eq!(decode(&bytes), Some((Element::Int(value), bytes.len())));
            assert_eq!(decode_last(&bytes), Some((Element::Int(value), 0)));
            assert_eq!(encoded(Element::Bytes(value.to_string().as_bytes())), bytes, "text of {value}");
        };
        (-70_000..70_000).for_each(check);
        for shift in 0..63 {
            for near in -2..=2 {
                check((1_i64 << shift) + near);
                check(near - (1_i64 << shift));
            }
        }
        check(i64::MIN);
        check(i64::MAX);
    }

    #[test]
    fn strings_of_every_length_class_read_back_from_both_ends() {
        let near = [0, 62, 63, 64, 125, 126, 127, 128, 4095, 4096, 16_377, 16_378, 16_379, 16_383, 2_097_145];
        for len in (0..300).chain(near).chain([2_097_146, 2_097_150]) {
            let text = vec![b'x'; len];
            let bytes = encoded(Element::Bytes(&text));
            assert_eq!(decode(&bytes), Some((Element::Bytes(&text), bytes.len())), "length {len}");
            assert_eq!(decode_last(&bytes), Some((Element::Bytes(&text), 0)), "length {len}");
            assert_eq!(validate(&bytes), Ok(1), "length {len}");
        }
    }

    #[test]
    fn back_lengths_take_the_bytes_the_format_says() {
        for (len, size) in [(1, 1), (127, 1), (128, 2), (16_382, 2), (16_383, 3), (2_097_150, 3)] {
            assert_eq!(backlen_size(len), size);
            let mut bytes = vec![0; size];
            write_backlen(len, &mut bytes);
            assert_eq!(read_backlen(&bytes), Some(len));
        }
        for (len, size) in [(2_097_151, 4), (268_435_454, 4), (268_435_455, 5), (1 << 30, 5)] {
            assert_eq!(backlen_size(len), size);
            let mut bytes = vec![0; size];
            write_backlen(len, &mut bytes);
            assert_eq!(read_backlen(&bytes), Some(len));
        }
    }

    #[test]
    fn only_canonical_text_is_an_integer() {
        let not = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1.0",
            "1e3",
            "9223372036854775808",
            "a",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "123456789012345678901",
        ];
        for text in not {
            assert_eq!(parse_canonical_int(text.as_bytes()), None, "{text:?}");
        }
        for value in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse_canonical_int(value.to_string().as_bytes()), Some(value));
        }
    }

    #[test]
    fn a_wrong_back_length_is_found_where_it_stands() {
        let mut run = encoded(Element::Bytes(b"hello"));
        let second = run.len();
        run.extend(encoded(Element::Int(1000)));
        assert_eq!(validate(&run), Ok(2));
        *run.last_mut().expect("not empty") += 1;
        assert_eq!(validate(&run), Err(second));
        run.pop();
        assert_eq!(validate(&run), Err(second));
    }

    proptest! {
        #[test]
        fn text_is_an_integer_exactly_when_formatting_gives_it_back(text in "-?[0-9]{0,21}") {
            let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_canonical_int(text.as_bytes()), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(run in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = validate(&run);
            let _ = decode(&run);
            let _ = last_start(&run);
        }
    }
}

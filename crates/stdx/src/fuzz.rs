//! Properties that hold for any bytes, as functions for a fuzzer or a plain loop of random inputs.
//! Each function panics if its property does not hold.

use crate::glob::{glob_match, glob_match_any_case};
use crate::long_double::LongDouble;
use crate::number::{F64_TEXT_LEN_MAX, format_f64, parse_f64, parse_i64};
use crate::quoted::split_quoted;

/// Checks glob matching with a pattern (`data` up to the first NUL) and a text (the rest). Matching
/// must terminate. A text must match the pattern that consists of its own bytes, each after a
/// backslash. A pattern without classes that matches a non-empty text must still match with a star
/// before and after it.
pub fn fuzz_glob(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (pattern, text) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // A star appended to an unfinished class or escape would become a part of it.
    if glob_match(pattern, text) && !text.is_empty() && !pattern.contains(&b'[') && !pattern.ends_with(b"\\")
    {
        assert!(glob_match(&[b"*", pattern, b"*"].concat(), text));
        assert!(glob_match_any_case(pattern, text) || pattern.contains(&b'['));
    }
    let escaped: Vec<u8> = text.iter().flat_map(|&byte| [b'\\', byte]).collect();
    assert!(glob_match(&escaped, text));
}

/// Checks numbers and quoted words. A text that parses as an integer is equal to the printed
/// integer. A printed double parses as the same double. The words of a line are together no longer
/// than the line.
pub fn fuzz_number(data: &[u8]) {
    if let Some(value) = parse_i64(data) {
        assert_eq!(value.to_string().as_bytes(), data);
    }
    let mut text = [0; F64_TEXT_LEN_MAX];
    if let Some(value) = parse_f64(data) {
        assert_eq!(parse_f64(format_f64(value, &mut text).as_bytes()), Some(value));
    }
    if let Some(bits) = data.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) {
        let value = f64::from_bits(bits);
        let read = parse_f64(format_f64(value, &mut text).as_bytes());
        assert_eq!(read, (!value.is_nan()).then_some(value));
    }
    if let Some(value) = LongDouble::parse(data) {
        assert!(!value.to_string().is_empty());
    }
    if let Some(words) = split_quoted(data) {
        assert!(words.iter().map(Vec::len).sum::<usize>() <= data.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_hold_for_many_short_inputs() {
        let alphabet = b"0123456789.eExXpP+-infa*?[]^\\\"' \0\xff";
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..100_000 {
            let data: Vec<u8> = (0..next() % 12).map(|_| alphabet[next() % alphabet.len()]).collect();
            fuzz_glob(&data);
            fuzz_number(&data);
        }
    }
}

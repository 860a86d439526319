//! Patterns of keys and channels. Most patterns are a prefix and a star, which only needs a
//! comparison of bytes. For other patterns, the bytes before the first special character are
//! compared first, then [`glob_match`] matches the whole name. The first eight bytes of a name are
//! read once for all patterns ([`Name`]). So a pattern with a different beginning is rejected by
//! comparing two numbers.

use stdx::bytes::same;
use stdx::glob::glob_match;

/// The number of leading bytes of a name and a pattern that are compared as one number.
const HEAD_LEN: usize = 8;

/// The name of a key or channel that is checked, with its first [`HEAD_LEN`] bytes as a number.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    bytes: &'a [u8],
    head: u64,
}

impl<'a> Name<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, head: head(bytes) }
    }
}

/// Returns the first [`HEAD_LEN`] bytes of a name or pattern as a little-endian number, padded with
/// zeros.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) => u64::from_le_bytes(*first),
        None => bytes.iter().rev().fold(0, |head, &byte| head << 8 | u64::from(byte)),
    }
}

/// A compiled pattern of keys or channels. Its first bytes are stored as a number, which is fast to
/// compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// The leading bytes of the pattern without special characters, at most [`HEAD_LEN`], as a
    /// little-endian number.
    head: u64,
    /// The mask of the bits of `head` that the leading literal bytes occupy. Its other bits are
    /// zero.
    head_mask: u64,
    text: Box<[u8]>,
    /// The number of bytes of the pattern before the first special character.
    literal_len: usize,
    /// The kind of the rest of the pattern, from the first special character on.
    rest: Rest,
}

/// The kind of the rest of a pattern, from its first special character on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The rest is empty: the pattern has no special characters.
    End,
    /// The rest is one or more stars, which match anything.
    Any,
    /// The rest is any other glob, which needs [`glob_match`].
    Glob,
}

impl Pattern {
    pub(super) fn new(text: &[u8]) -> Self {
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let literal_len = text.iter().position(is_special).unwrap_or(text.len());
        let rest = match &text[literal_len..] {
            [] => Rest::End,
            rest if rest.iter().all(|&byte| byte == b'*') => Rest::Any,
            _ => Rest::Glob,
        };
        let head_len = literal_len.min(HEAD_LEN);
        let head_mask = if head_len == HEAD_LEN { u64::MAX } else { (1 << (8 * head_len)) - 1 };
        Self { head: head(&text[..head_len]), head_mask, text: text.into(), literal_len, rest }
    }

    /// Returns the text of the pattern of keys or channels.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns true if the pattern matches all of `name`. O(name); for patterns that are neither
    /// literal nor a prefix and a star, O(pattern × name).
    #[inline]
    pub(super) fn matches(&self, name: Name<'_>) -> bool {
        name.head & self.head_mask == self.head && self.matches_behind_head(name.bytes)
    }

    /// Returns true if the pattern matches `name`, whose first bytes were found equal to `head`.
    #[inline]
    fn matches_behind_head(&self, name: &[u8]) -> bool {
        if self.rest == Rest::Any && self.literal_len <= HEAD_LEN {
            // A star does not match the empty name, as in globs.
            return name.len() >= self.literal_len.max(1);
        }
        let Some((front, behind)) = name.split_at_checked(self.literal_len) else { return false };
        same(front, &self.text[..self.literal_len])
            && match self.rest {
                Rest::End => behind.is_empty(),
                Rest::Any => true,
                Rest::Glob => glob_match(&self.text[self.literal_len..], behind),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_patterns_match_what_globs_match() {
        let patterns =
            ["", "*", "**", "a", "a*", "a**", "a*b", "a?", "a[bc]", "a\\*", "\\a", "[a]*", "ab*c*", "?"];
        let names = ["", "a", "b", "ab", "abc", "a*", "aab", "abcc", "axc", "aba"];
        let long =
            ["abcdefgh", "abcdefgh*", "abcdefghi*", "abcdefghi", "abcdefg*", "abcdefgX*", "a\0*", "a\0"];
        let patterns = patterns.into_iter().chain(long).collect::<Vec<_>>();
        let names = names.into_iter().chain(long).collect::<Vec<_>>();
        for pattern in &patterns {
            for name in &names {
                let expected = glob_match(pattern.as_bytes(), name.as_bytes());
                assert_eq!(
                    Pattern::new(pattern.as_bytes()).matches(Name::new(name.as_bytes())),
                    expected,
                    "{pattern} {name}"
                );
            }
        }
    }
}

//! Patterns of keys and channels. Most are a prefix and a star, which is a comparison of bytes;
//! any other is matched by [`glob_match`] once the bytes before its first special one agree.

use stdx::bytes::same;
use stdx::glob::glob_match;

/// A pattern, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    text: Box<[u8]>,
    /// Bytes in front that stand for themselves.
    literal_len: usize,
    /// What follows these.
    rest: Rest,
}

/// What follows the literal bytes of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing.
    End,
    /// Anything: one star or more.
    Any,
    /// Something to be matched.
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
        Self { text: text.into(), literal_len, rest }
    }

    /// As it was given.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether all of `name` matches. O(name), for odd patterns O(pattern × name).
    #[inline]
    pub(super) fn matches(&self, name: &[u8]) -> bool {
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
        for pattern in patterns {
            for name in names {
                let expected = glob_match(pattern.as_bytes(), name.as_bytes());
                assert_eq!(
                    Pattern::new(pattern.as_bytes()).matches(name.as_bytes()),
                    expected,
                    "{pattern} {name}"
                );
            }
        }
    }
}

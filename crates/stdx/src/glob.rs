//! Glob patterns over bytes, for KEYS, SCAN, PSUBSCRIBE and CONFIG GET. `*` matches any bytes, `?`
//! one byte, `[abc]` `[a-z]` `[^a]` one byte of a class, and `\` makes the next byte literal.
//!
//! The matcher backtracks to the last `*` only. Earlier stars need no second try: the part between
//! two stars is matched at its first possible place, which leaves the most text for the rest. So
//! the time is O(pattern × text) in the worst case, O(text) for the usual `prefix*`, and never
//! exponential. No memory is allocated. As in Redis, a pattern with more than [`STARS_MAX`] stars
//! ahead of other bytes matches nothing.
//!
//! Special cases follow Redis 8.0.2. A class without `]` ends at the end of the pattern. A range
//! may be given backwards. `[^]` matches any byte. A backslash at the end of the pattern is a
//! literal backslash. The empty text matches only the empty pattern, not `*`. Bytes of a range
//! compare unsigned (in Redis that depends on the platform). Existing glob crates are not used:
//! they differ in these cases, match paths (with `/` and hidden files) or UTF-8 text instead of
//! bytes, or first compile the pattern to a regex.

/// The maximum number of stars in a glob pattern. Adjacent stars count as one; stars at the end of
/// the pattern do not count.
pub const STARS_MAX: usize = 1000;

/// Returns true if all of `text` matches the glob `pattern`.
pub fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |byte| byte)
}

/// Returns true if all of `text` matches the glob `pattern`, ignoring the case of ASCII letters.
pub fn glob_match_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, lower)
}

fn lower(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

fn matches(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    // The state to resume with after a mismatch: the pattern after the last star, and the text at
    // which it is tried next.
    let mut retry: Option<(&[u8], &[u8])> = None;
    let (mut p, mut t, mut stars) = (pattern, text, 0);
    loop {
        if let [b'*', rest @ ..] = p {
            if rest.is_empty() {
                return true;
            }
            stars += usize::from(rest[0] != b'*');
            if stars > STARS_MAX {
                return false;
            }
            p = rest;
            retry = Some((p, t));
            continue;
        }
        if p.is_empty() && t.is_empty() {
            return true;
        }
        if let Some((&byte, t_rest)) = t.split_first()
            && let Some(p_rest) = match_one(p, byte, &fold)
        {
            (p, t) = (p_rest, t_rest);
            continue;
        }
        let Some((retry_p, [_, retry_t @ ..])) = retry else {
            return false;
        };
        (p, t) = (retry_p, retry_t);
        retry = Some((p, t));
    }
}

/// Matches `byte` against the first element of the glob pattern `p`. Returns the pattern after that
/// element, or `None` if `byte` does not match.
fn match_one<'p>(p: &'p [u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<&'p [u8]> {
    let (matched, rest) = match p {
        [] => (false, p),
        [b'?', rest @ ..] => (true, rest),
        [b'[', class @ ..] => match_class(class, byte, fold),
        [b'\\', plain, rest @ ..] => (fold(*plain) == fold(byte), rest),
        [plain, rest @ ..] => (fold(*plain) == fold(byte), rest),
    };
    matched.then_some(rest)
}

/// Matches `byte` against a class (`[…]`) of a glob pattern. `class` is the pattern after the `[`.
/// Returns true if `byte` matches, and the pattern after the `]`.
fn match_class<'p>(class: &'p [u8], byte: u8, fold: &impl Fn(u8) -> u8) -> (bool, &'p [u8]) {
    let (negated, mut class) = match class {
        [b'^', class @ ..] => (true, class),
        class => (false, class),
    };
    let mut matched = false;
    loop {
        match class {
            [] => return (matched != negated, class),
            [b']', rest @ ..] => return (matched != negated, rest),
            [b'\\', plain, rest @ ..] => {
                matched |= fold(*plain) == fold(byte);
                class = rest;
            }
            [from, b'-', to, rest @ ..] => {
                let (low, high) = (*from.min(to), *from.max(to));
                matched |= (fold(low)..=fold(high)).contains(&fold(byte));
                class = rest;
            }
            [plain, rest @ ..] => {
                matched |= fold(*plain) == fold(byte);
                class = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        for text in matching {
            assert!(glob_match(pattern.as_bytes(), text.as_bytes()), "{pattern:?} takes {text:?}");
        }
        for text in other {
            assert!(!glob_match(pattern.as_bytes(), text.as_bytes()), "{pattern:?} refuses {text:?}");
        }
    }

    #[test]
    fn stars_and_question_marks() {
        check("*", &["a", "anything"], &[""]);
        check("", &[""], &["a"]);
        check("h?llo", &["hello", "hallo"], &["hllo", "heello"]);
        check("h*llo", &["hllo", "heeello", "hllollo"], &["hell", "xhllo"]);
        check("a*b*c", &["abc", "aXbXc", "abbcc", "abcbc"], &["acb", "abcb"]);
        check("**a**", &["a", "xa", "ax", "xax"], &["", "b"]);
        check("?*?", &["ab", "abc"], &["a", ""]);
    }

    #[test]
    fn classes() {
        check("h[ae]llo", &["hello", "hallo"], &["hillo", "hllo"]);
        check("h[^e]llo", &["hallo", "h]llo"], &["hello"]);
        check("h[a-b]llo", &["hallo", "hbllo"], &["hcllo", "h-llo"]);
        check("[z-a]", &["a", "m", "z"], &["A", "{"]);
        check(r"[\]\-a]", &["]", "-", "a"], &["\\", "b"]);
    }

    #[test]
    fn odd_classes_are_read_as_redis_reads_them() {
        check("[]", &[], &["", "a", "]"]);
        check("[^]", &["a", "]"], &[""]);
        check("[a", &["a"], &["b", "[a"]);
        check("[a-", &["a", "-"], &["b"]);
        check("[a-]", &["a", "]", "`"], &["-", "b"]);
        check("[", &[], &["[", ""]);
        check(r"[\", &["\\"], &["a"]);
    }

    #[test]
    fn a_backslash_makes_the_next_byte_plain() {
        check(r"a\*", &["a*"], &["ab", r"a\*"]);
        check(r"\[a]", &["[a]"], &["a"]);
        check(r"a\", &[r"a\"], &["a"]);
    }

    #[test]
    fn case_is_ignored_on_request() {
        assert!(glob_match_any_case(b"MAX*", b"maxmemory"));
        assert!(glob_match_any_case(b"[A-C]x", b"bX"));
        assert!(!glob_match_any_case(b"[A-C]x", b"dX"));
        assert!(!glob_match(b"MAX*", b"maxmemory"));
    }

    /// Returns true if `t` matches the glob pattern `p`, by the definition of a pattern: tries
    /// every length for each star. Takes exponential time.
    fn twin(p: &[u8], t: &[u8]) -> bool {
        match p {
            [] => t.is_empty(),
            [b'*', rest @ ..] => (0..=t.len()).any(|i| twin(rest, &t[i..])),
            _ => !t.is_empty() && match_one(p, t[0], &|b| b).is_some_and(|rest| twin(rest, &t[1..])),
        }
    }

    #[test]
    fn all_short_patterns_agree_with_the_definition() {
        let pattern_bytes = b"ab*?[]^-\\";
        let mut texts: Vec<Vec<u8>> = vec![vec![]];
        for len in 1..=4 {
            texts.extend((0..1 << len).map(|bits| (0..len).map(|i| b'a' + (bits >> i & 1) as u8).collect()));
        }
        for len in 0..=5 {
            for code in 0..pattern_bytes.len().pow(len) {
                let byte_at = |i: u32| pattern_bytes[code / pattern_bytes.len().pow(i) % pattern_bytes.len()];
                let pattern: Vec<u8> = (0..len).map(byte_at).collect();
                for text in &texts {
                    let expected = twin(&pattern, text) && (pattern.is_empty() || !text.is_empty());
                    assert_eq!(glob_match(&pattern, text), expected, "{}", pattern.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = [b"a*".repeat(STARS_MAX), b"b".to_vec()].concat();
        let text = vec![b'a'; 10_000];
        assert!(!glob_match(&pattern, &text), "with exponential work this line would not be reached");
    }

    #[test]
    fn what_stands_behind_too_many_stars_matches_nothing() {
        let text = vec![b'a'; 50_000];
        let matches =
            |pairs: usize, end: &str| glob_match(&[&b"*?".repeat(pairs), end.as_bytes()].concat(), &text);
        assert!(matches(STARS_MAX, "") && matches(STARS_MAX, "*") && matches(STARS_MAX, "***"));
        assert!(!matches(STARS_MAX + 1, "") && !matches(STARS_MAX, "*a") && !matches(25_000, ""));
        assert!(glob_match(&[&[b'*'; 5_000][..], b"a"].concat(), &text), "a row of stars is one");
    }
}

//! Splitting of a line into words with quotes, as in a terminal or a configuration file.
//!
//! Blanks separate words. Inside double quotes, `\n \r \t \b \a \xHH` are the bytes they stand for,
//! and a backslash makes any other byte literal. Inside single quotes, only `\'` is special. A
//! quote may open in the middle of a word; the word must end directly after the closing quote.

/// Returns true if `byte` is a blank that separates words.
#[inline]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Returns true if a word ends before `byte`. Vertical tab and form feed do not end a word,
/// although they are skipped between words, as in Redis.
#[inline]
pub fn terminates_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Splits `line` into words without their quotes. Returns `None` if a quote is not closed, or if
/// the word goes on after a closing quote. O(bytes).
pub fn split_quoted(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let Some((_, behind)) = rest.split_first().filter(|(byte, _)| is_space(**byte)) {
            rest = behind;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?;
        words.push(word);
    }
}

/// Moves one word from the front of `rest` into `word` and returns the rest of the line. Returns
/// `None` if the quotes of the word are malformed.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, behind)) = rest.split_first() {
        match byte {
            _ if terminates_word(byte) => break,
            b'"' => return take_double_quoted(behind, word),
            b'\'' => return take_single_quoted(behind, word),
            _ => word.push(byte),
        }
        rest = behind;
    }
    Some(rest)
}

fn take_double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'x', high, low, behind @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                (hex(*high)? << 4 | hex(*low)?, behind)
            }
            [b'\\', escaped, behind @ ..] => (unescape(*escaped), behind),
            [b'"', behind @ ..] => return word_end(behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [b'\'', behind @ ..] => return word_end(behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

/// Returns `rest`, the text after a closing quote, if it is empty or starts with a blank; else
/// `None`.
fn word_end(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_space(byte)).then_some(rest)
}

/// Returns the byte for which a backslash and `byte` stand.
fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        plain => plain,
    }
}

/// Returns the value of a hexadecimal digit; `None` for any other byte.
fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &[u8], expected: Option<&[&[u8]]>) {
        let words = split_quoted(line);
        let words: Option<Vec<&[u8]>> = words.as_ref().map(|words| words.iter().map(Vec::as_slice).collect());
        assert_eq!(words.as_deref(), expected, "{}", line.escape_ascii());
    }

    #[test]
    fn words_are_split_at_blanks() {
        check(b"", Some(&[]));
        check(b" \t\r\n\x0b\x0c ", Some(&[]));
        check(b"set  key\tvalue ", Some(&[b"set", b"key", b"value"]));
        check(b"a\x0bb \x0bc", Some(&[b"a\x0bb", b"c"]));
        check(b"a\rb", Some(&[b"a", b"b"]));
    }

    #[test]
    fn double_quotes_know_escapes() {
        check(br#"x "\x41\n\r\t\b\a\q\"\x4" ''"#, Some(&[b"x", b"A\n\r\t\x08\x07q\"x4", b""]));
        check(br#""\xZZ" a"b c""#, Some(&[b"xZZ", b"ab c"]));
        check(br#""\xfF""#, Some(&[b"\xff"]));
    }

    #[test]
    fn single_quotes_know_one_escape() {
        check(br"'a\'b\n' c'd e'", Some(&[br"a'b\n", b"cd e"]));
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [&br#"a "b"#[..], b"'a", br#""a"b"#, b"'a'b", br#""a\"#, br#""a\""#, b"\"", b"'"] {
            check(line, None);
        }
    }
}

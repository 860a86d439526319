//! The parser of the commands that a client sends to the script debugger: arrays of strings. Redis
//! parses them less strictly than requests, and drops the bytes after a command.

/// The maximum number of words in a debugger command, and of bytes in a word.
const LEN_MAX: i64 = 1024;

/// The result of parsing the input of a client that debugs a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The input begins with a whole debugger command. Contains its words.
    Words(Vec<Vec<u8>>),
    /// The input begins with an incomplete debugger command: more input is needed.
    More,
    /// The input is not an array of strings, which ends the script with an error.
    Broken,
}

/// Parses the debugger command at the start of `input`. Skips all bytes before the first `*`.
pub(super) fn parse(input: &[u8]) -> Parsed {
    if input.is_empty() {
        return Parsed::More;
    }
    let Some(start) = input.iter().position(|&byte| byte == b'*') else { return Parsed::Broken };
    let Some((count, mut rest)) = number(&input[start + 1..]) else { return Parsed::More };
    if !(1..=LEN_MAX).contains(&count) {
        return Parsed::Broken;
    }
    let mut words = Vec::new();
    for _ in 0..count {
        match rest.split_first() {
            None => return Parsed::More,
            Some((b'$', behind)) => rest = behind,
            Some(_) => return Parsed::Broken,
        }
        let Some((len, behind)) = number(rest) else { return Parsed::More };
        if !(1..=LEN_MAX).contains(&len) {
            return Parsed::Broken;
        }
        let Some((word, behind)) = behind.split_at_checked(len as usize) else { return Parsed::More };
        match behind {
            [b'\r', b'\n', behind @ ..] => rest = behind,
            [_, _, ..] => return Parsed::Broken,
            _ => return Parsed::More,
        }
        words.push(word.to_vec());
    }
    Parsed::Words(words)
}

/// Reads a number up to the end of its line. Returns the number and the input after the line;
/// `None` if the line is incomplete.
fn number(input: &[u8]) -> Option<(i64, &[u8])> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    Some((leading_integer(&input[..end]), &input[end + 2..]))
}

/// Returns the integer at the start of a text, as C's `atoi` does; 0 if there is none.
pub(super) fn leading_integer(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let number =
        digits.fold(0_i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if is_negative { -number } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_redis_reads_them() {
        let words =
            |words: &[&str]| Parsed::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let check =
            |input: &str, expected: Parsed| assert_eq!(parse(input.as_bytes()), expected, "{input:?}");
        check("*1\r\n$1\r\ns\r\n", words(&["s"]));
        check("*2\r\n$1\r\nb\r\n$2\r\n10\r\n*1\r\n", words(&["b", "10"]));
        check("x*1x\r\n$1\r\ns\r\n", words(&["s"]));
        for end in 0.."*1\r\n$1\r\ns\r\n".len() {
            check(&"*1\r\n$1\r\ns\r\n"[..end], Parsed::More);
        }
        for broken in
            ["s\r\n", "*0\r\n", "*-1\r\n", "*1025\r\n", "*1\r\n$0\r\n\r\n", "*1\r\n:1\r\n", "*1\r\n$1\r\nsxy"]
        {
            check(broken, Parsed::Broken);
        }
    }

    #[test]
    fn integers_are_read_as_far_as_they_go() {
        for (text, number) in
            [("12x", 12), (" -3", -3), ("x", 0), ("", 0), ("+7", 7), ("99999999999999999999", i64::MAX)]
        {
            assert_eq!(leading_integer(text.as_bytes()), number, "{text}");
        }
    }
}

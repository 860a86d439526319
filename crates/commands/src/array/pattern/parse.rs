//! The parser of patterns. See the module above for the syntax.

use super::{Bytes, Case, Condition, PatternError, TOO_BIG, Tree};

/// The maximum count of a repetition.
const REPEAT_MAX: u32 = 255;
/// The maximum depth of groups.
const DEPTH_MAX: usize = 200;

/// Parses a whole pattern.
pub(super) fn parse(pattern: &[u8], case: Case) -> Result<Tree, PatternError> {
    let mut parser = Parser { rest: pattern, case, depth: 0 };
    parser.alternatives()
}

struct Parser<'a> {
    rest: &'a [u8],
    case: Case,
    depth: usize,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Takes `word` if it is next.
    fn takes(&mut self, word: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Returns the set with both cases of its letters, if case is ignored.
    fn folded(&self, bytes: Bytes) -> Bytes {
        if self.case == Case::Ignored { bytes.any_case() } else { bytes }
    }

    /// Parses alternatives up to the end of the group or pattern.
    fn alternatives(&mut self) -> Result<Tree, PatternError> {
        let mut trees = vec![self.sequence()?];
        while self.takes(b"|") {
            trees.push(self.sequence()?);
        }
        Ok(Tree::OneOf(trees))
    }

    fn sequence(&mut self) -> Result<Tree, PatternError> {
        let mut trees = Vec::new();
        while let Some(&next) = self.rest.first() {
            if next == b'|' || (next == b')' && self.depth > 0) {
                break;
            }
            let atom = self.atom()?;
            trees.push(self.repeated(atom)?);
        }
        Ok(Tree::Sequence(trees))
    }

    fn atom(&mut self) -> Result<Tree, PatternError> {
        let bytes = match self.next() {
            Some(b'(') => return self.group(),
            Some(b'[') => self.bracket()?,
            Some(b'.') => Bytes::ALL,
            Some(b'^') => return Ok(Tree::Condition(Condition::TextStart)),
            Some(b'$') => return Ok(Tree::Condition(Condition::TextEnd)),
            Some(b'\\') => return self.escaped(),
            Some(b'*' | b'+' | b'?') => {
                return Err(PatternError::Invalid("Invalid use of repetition operators"));
            }
            Some(byte) => Bytes::one(byte),
            None => Bytes::default(),
        };
        Ok(Tree::Bytes(self.folded(bytes)))
    }

    fn group(&mut self) -> Result<Tree, PatternError> {
        self.takes(b"?:");
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(TOO_BIG);
        }
        let tree = self.alternatives()?;
        self.depth -= 1;
        if self.takes(b")") { Ok(tree) } else { Err(PatternError::Invalid("Missing ')'")) }
    }

    fn escaped(&mut self) -> Result<Tree, PatternError> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_space = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let bytes = match self.next().ok_or(PatternError::Invalid("Trailing backslash"))? {
            b'1'..=b'9' => return Err(PatternError::BackReference),
            b'b' => return Ok(Tree::Condition(Condition::WordEdge)),
            b'B' => return Ok(Tree::Condition(Condition::NoWordEdge)),
            b'<' => return Ok(Tree::Condition(Condition::WordStart)),
            b'>' => return Ok(Tree::Condition(Condition::WordEnd)),
            b'd' => Bytes::of(|byte| byte.is_ascii_digit()),
            b'D' => Bytes::of(|byte| !byte.is_ascii_digit()),
            b'w' => Bytes::of(is_word),
            b'W' => Bytes::of(|byte| !is_word(byte)),
            b's' => Bytes::of(is_space),
            b'S' => Bytes::of(|byte| !is_space(byte)),
            b't' => Bytes::one(b'\t'),
            b'n' => Bytes::one(b'\n'),
            b'r' => Bytes::one(b'\r'),
            b'f' => Bytes::one(0x0C),
            b'a' => Bytes::one(0x07),
            b'e' => Bytes::one(0x1B),
            b'x' => Bytes::one(self.hexadecimal()),
            byte => Bytes::one(byte),
        };
        Ok(Tree::Bytes(self.folded(bytes)))
    }

    /// Parses up to two hexadecimal digits.
    fn hexadecimal(&mut self) -> u8 {
        let mut value = 0;
        for _ in 0..2 {
            let Some(digit) = self.rest.first().and_then(|&digit| char::from(digit).to_digit(16)) else {
                break;
            };
            self.next();
            value = value * 16 + digit as u8;
        }
        value
    }

    /// Parses the repetitions after an atom.
    fn repeated(&mut self, mut tree: Tree) -> Result<Tree, PatternError> {
        let mut levels = 0;
        loop {
            let (min, max) = match self.rest.first() {
                Some(b'*') => (0, None),
                Some(b'+') => (1, None),
                Some(b'?') => (0, Some(1)),
                Some(b'{') => self.counts()?,
                _ => return Ok(tree),
            };
            // The last byte of the operator: counts() leaves the closing brace.
            self.next();
            self.takes(b"?");
            levels += 1;
            if levels > DEPTH_MAX {
                return Err(TOO_BIG);
            }
            tree = Tree::Repeat { tree: Box::new(tree), min, max };
        }
    }

    /// Parses `{min,max}` without the closing brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>), PatternError> {
        let invalid = PatternError::Invalid("Invalid contents of {}");
        let end = self.rest.iter().position(|&byte| byte == b'}');
        let end = end.ok_or(PatternError::Invalid("Missing '}'"))?;
        let inner = std::str::from_utf8(&self.rest[1..end]).map_err(|_| invalid)?;
        self.rest = &self.rest[end..];
        let number = |text: &str| match text.parse() {
            Ok(number @ 0..=REPEAT_MAX) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => Err(invalid),
        };
        let (min, max) = match inner.split_once(',') {
            None => (number(inner)?, Some(number(inner)?)),
            Some(("", "")) => return Err(invalid),
            Some(("", max)) => (0, Some(number(max)?)),
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        };
        if max.is_some_and(|max| max < min) { Err(invalid) } else { Ok((min, max)) }
    }

    /// Parses a bracket expression after its opening bracket.
    fn bracket(&mut self) -> Result<Bytes, PatternError> {
        let missing = PatternError::Invalid("Missing ']'");
        let is_negated = self.takes(b"^");
        let mut bytes = Bytes::default();
        let mut is_first = true;
        loop {
            if self.takes(b"[:") {
                bytes = bytes.union(self.class()?);
            } else if self.rest.starts_with(b"[.") || self.rest.starts_with(b"[=") {
                return Err(PatternError::Invalid("Unknown collating element"));
            } else {
                let low = self.next().ok_or(missing)?;
                if low == b']' && !is_first {
                    break;
                }
                let mut high = low;
                if self.rest.first() == Some(&b'-') && self.rest.get(1).is_some_and(|&byte| byte != b']') {
                    self.next();
                    high = self.next().ok_or(missing)?;
                }
                if high < low {
                    return Err(PatternError::Invalid("Invalid character range"));
                }
                (low..=high).for_each(|byte| bytes.insert(byte));
            }
            is_first = false;
        }
        let bytes = self.folded(bytes);
        Ok(if is_negated { bytes.complement() } else { bytes })
    }

    /// Parses the name of a class of characters after `[:`.
    fn class(&mut self) -> Result<Bytes, PatternError> {
        let unknown = PatternError::Invalid("Unknown character class name");
        let end = self.rest.windows(2).position(|two| two == b":]").ok_or(unknown)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 2..];
        let is_in: fn(&u8) -> bool = match name {
            b"alnum" => u8::is_ascii_alphanumeric,
            b"alpha" => u8::is_ascii_alphabetic,
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"cntrl" => u8::is_ascii_control,
            b"digit" => u8::is_ascii_digit,
            b"graph" => u8::is_ascii_graphic,
            b"lower" => u8::is_ascii_lowercase,
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"punct" => u8::is_ascii_punctuation,
            b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
            b"upper" => u8::is_ascii_uppercase,
            b"xdigit" => u8::is_ascii_hexdigit,
            _ => return Err(unknown),
        };
        Ok(Bytes::of(|byte| is_in(&byte)))
    }
}

//! Matching of Lua 5.1's patterns, without recursion and interruptible.
//!
//! PUC Lua's matcher calls itself for each item that may match in several ways, and for some
//! patterns it would take years. This matcher keeps the untried ways on a stack of its own
//! ([`Backtrack`]), the newest on top. When an item does not match, it goes back to the newest one.
//! It counts its steps, and asks every [`STEPS`] steps if it may continue.
//!
//! Everything else is as in `lstrlib.c`: a pattern ends at its first zero byte, and an error in the
//! pattern is found when the matcher reaches it.
//!
//! Sets (`[…]`) become bitmaps when the matcher first reaches them. Positions are offsets, so that
//! the texts may be read from Lua's stack again between two matches.

/// The maximum number of captures in a pattern.
const CAPTURES_MAX: usize = 32;
/// The maximum number of untried choices on a matcher's stack. PUC Lua would need a frame of the C
/// stack for each.
const CHOICES_MAX: usize = 100_000;
/// The capacity, in choices, above which the matcher's stack is not kept for the next pattern.
const CHOICES_KEPT_MAX: usize = 1024;
/// The number of sets of a pattern whose bitmaps are kept. The bitmaps of further sets are built at
/// each use.
const SETS_MAX: usize = 8;

const LETTER: u8 = 1;
const CONTROL: u8 = 1 << 1;
const DIGIT: u8 = 1 << 2;
const LOWER: u8 = 1 << 3;
const PUNCTUATION: u8 = 1 << 4;
const SPACE: u8 = 1 << 5;
const UPPER: u8 = 1 << 6;
const HEX: u8 = 1 << 7;

/// The kinds (letter, digit, space and so on) of each byte value in the C locale, as bits.
static KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let mut kinds = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        let mut kind = 0;
        if byte.is_ascii_alphabetic() {
            kind |= LETTER;
        }
        if byte.is_ascii_control() {
            kind |= CONTROL;
        }
        if byte.is_ascii_digit() {
            kind |= DIGIT;
        }
        if byte.is_ascii_lowercase() {
            kind |= LOWER;
        }
        if byte.is_ascii_punctuation() {
            kind |= PUNCTUATION;
        }
        // Rust's white space has no vertical tab.
        if byte.is_ascii_whitespace() || byte == 0x0b {
            kind |= SPACE;
        }
        if byte.is_ascii_uppercase() {
            kind |= UPPER;
        }
        if byte.is_ascii_hexdigit() {
            kind |= HEX;
        }
        kinds[byte as usize] = kind;
        byte += 1;
    }
    kinds
}

/// Returns the kinds of bytes that a class such as `%a` matches. Returns `None` for `%z` and for
/// bytes that stand for themselves.
fn class_kinds(class: u8) -> Option<u8> {
    Some(match class.to_ascii_lowercase() {
        b'a' => LETTER,
        b'c' => CONTROL,
        b'd' => DIGIT,
        b'l' => LOWER,
        b'p' => PUNCTUATION,
        b's' => SPACE,
        b'u' => UPPER,
        b'w' => LETTER | DIGIT,
        b'x' => HEX,
        _ => return None,
    })
}

/// Returns true if a byte is in a pattern's class, such as `%a`.
#[inline]
fn is_of_class(byte: u8, class: u8) -> bool {
    let is_of = match class_kinds(class) {
        Some(kinds) => KINDS[usize::from(byte)] & kinds != 0,
        None if class.eq_ignore_ascii_case(&b'z') => byte == 0,
        None => return byte == class,
    };
    is_of == class.is_ascii_lowercase()
}

/// The bytes that a set `[…]` of a pattern matches, as a bitmap.
#[derive(Clone, Copy, Default)]
struct Bytes([u64; 4]);

impl Bytes {
    #[inline]
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    /// Reads a set of the pattern: its `[` is at `at`, its `]` at `end`.
    fn of_set(pattern: &[u8], mut at: usize, end: usize) -> Self {
        let mut bytes = Self::default();
        let is_negated = pattern[at + 1] == b'^';
        at += usize::from(is_negated) + 1;
        while at < end {
            if pattern[at] == b'%' {
                at += 1;
                let class = pattern[at];
                (0..=255).filter(|&byte| is_of_class(byte, class)).for_each(|byte| bytes.add(byte));
            } else if pattern[at + 1] == b'-' && at + 2 < end {
                (pattern[at]..=pattern[at + 2]).for_each(|byte| bytes.add(byte));
                at += 2;
            } else {
                bytes.add(pattern[at]);
            }
            at += 1;
        }
        if is_negated {
            bytes.0 = bytes.0.map(|bits| !bits);
        }
        bytes
    }
}

/// The reason why a search for a pattern ends with an error.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    /// The pattern is wrong; contains the error text.
    Pattern(&'static str),
    /// The caller has stopped the matcher, with the error that [`Ask`] returned.
    Stopped(E),
}

/// A function that returns an error if the matcher may not continue.
pub(crate) type Ask<'a, E> = &'a dyn Fn() -> Result<(), E>;

/// The number of the matcher's steps between two calls of [`Ask`]; they take about 100 µs.
const STEPS: usize = 20_000;

/// A capture of a pattern: the offset of its start in the subject, and its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capture {
    pub(crate) start: usize,
    pub(crate) end: CaptureEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CaptureEnd {
    /// The end is not known: the matcher has not reached the capture's `)` yet.
    #[default]
    Open,
    /// The capture is `()`: its value is a position in the text.
    Position,
    /// The end is known: the offset after the capture's last byte.
    At(usize),
}

/// An entry of the matcher's stack: a choice to change, or a capture to undo, when a later item
/// does not match.
#[derive(Clone, Copy)]
enum Backtrack {
    /// `*`, `+`: the item may match fewer bytes, at most `most` after `from`; then `rest` follows.
    Fewer { from: usize, most: usize, rest: usize },
    /// `-`: the item from `item` to `end` of the pattern may match one more byte, at `from`.
    More { from: usize, item: usize, end: usize },
    /// `?`: the item may match nothing, at `from`; then `rest` follows.
    Without { from: usize, rest: usize },
    /// The start of a capture, which is undone when a later item does not match.
    Opened,
    /// The end of the capture with this index, which is undone when a later item does not match.
    Closed(usize),
}

/// An item of a pattern that matches one byte: a byte, a class or a set.
#[derive(Clone, Copy)]
enum Item {
    Any,
    Byte(u8),
    Class(u8),
    /// The item is a set `[…]`, given as the index of its bitmap.
    Set(usize),
    /// The item is a set `[…]` whose bitmap is not kept in the matcher.
    Uncached(Bytes),
}

/// The subject and the pattern of a search. The pattern ends before its first zero byte, and has no
/// `^` at its start.
#[derive(Clone, Copy)]
pub(crate) struct Texts<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) pattern: &'a [u8],
}

impl Texts<'_> {
    /// Returns the byte of the pattern at offset `place`; 0 after its end.
    #[inline]
    fn at(&self, place: usize) -> u8 {
        self.pattern.get(place).copied().unwrap_or(0)
    }

    /// Returns the offset in the pattern after the item that begins at offset `place` of the
    /// pattern.
    #[inline]
    fn item_end<E>(&self, place: usize) -> Result<usize, Failure<E>> {
        match self.pattern[place] {
            b'%' if place + 1 == self.pattern.len() => {
                Err(Failure::Pattern("malformed pattern (ends with '%')"))
            }
            b'%' => Ok(place + 2),
            b'[' => self.set_end(place),
            _ => Ok(place + 1),
        }
    }

    fn set_end<E>(&self, place: usize) -> Result<usize, Failure<E>> {
        let mut at = place + 1;
        if self.at(at) == b'^' {
            at += 1;
        }
        loop {
            if at >= self.pattern.len() {
                return Err(Failure::Pattern("malformed pattern (missing ']')"));
            }
            at += if self.pattern[at] == b'%' && at + 1 < self.pattern.len() { 2 } else { 1 };
            if self.at(at) == b']' {
                return Ok(at + 1);
            }
        }
    }

    /// Returns the byte with which every match of the pattern from offset `place` on begins. `None`
    /// if there is no such byte.
    #[inline]
    pub(crate) fn first_byte(&self, place: usize) -> Option<u8> {
        let &first = self.pattern.get(place)?;
        let is_plain =
            !matches!(first, b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b')' | b'[' | b'%' | b'-');
        (is_plain && !matches!(self.at(place + 1), b'*' | b'?' | b'-')).then_some(first)
    }
}

/// A matcher of Lua's patterns, with buffers that are reused from search to search.
#[derive(Default)]
pub(crate) struct Matcher {
    /// The output buffer of `gsub`, kept from call to call.
    pub(crate) replaced: Vec<u8>,
    /// The number of steps since the matcher last asked if it may continue.
    steps: usize,
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    choices: Vec<Backtrack>,
    sets: Vec<(usize, Bytes)>,
}

impl Matcher {
    /// Prepares the matcher for another pattern: drops the bitmaps of the last pattern's sets, and
    /// frees a large stack of choices.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.sets.clear();
        if self.choices.capacity() > CHOICES_KEPT_MAX {
            self.choices = Vec::new();
        }
    }

    /// Counts `count` steps of the matcher; after [`STEPS`] steps, asks if the matcher may
    /// continue.
    #[inline]
    pub(crate) fn step<E>(&mut self, count: usize, ask: Ask<'_, E>) -> Result<(), Failure<E>> {
        self.steps += count;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        ask().map_err(Failure::Stopped)
    }

    /// Returns the captures of the pattern's last match.
    pub(crate) fn captures(&self) -> &[Capture] {
        &self.captures[..self.level]
    }

    /// Returns the end of the pattern's match that begins at the offset `start` of the subject;
    /// `None` if there is no match.
    pub(crate) fn match_at<E>(
        &mut self,
        texts: Texts<'_>,
        start: usize,
        ask: Ask<'_, E>,
    ) -> Result<Option<usize>, Failure<E>> {
        self.level = 0;
        self.choices.clear();
        let (mut at, mut place) = (start, 0);
        loop {
            self.step(1, ask)?;
            if place == texts.pattern.len() {
                return Ok(Some(at));
            }
            let next = match texts.pattern[place] {
                b'(' => Some((at, self.open(texts, at, place)?)),
                b')' => {
                    self.close(at)?;
                    Some((at, place + 1))
                }
                b'$' if place + 1 == texts.pattern.len() => {
                    (at == texts.subject.len()).then_some((at, place + 1))
                }
                b'%' if texts.at(place + 1) == b'b' => {
                    let (end, scanned) = balanced(texts, at, place + 2)?;
                    self.step(scanned / 8, ask)?;
                    end.map(|end| (end, place + 4))
                }
                b'%' if texts.at(place + 1) == b'f' => {
                    self.frontier(texts, at, place + 2)?.map(|end| (at, end))
                }
                b'%' if texts.at(place + 1).is_ascii_digit() => {
                    let end = self.same_as_captured(texts, at, texts.at(place + 1))?;
                    self.step(end.map_or(0, |end| (end - at) / 8), ask)?;
                    end.map(|end| (end, place + 2))
                }
                _ => self.match_item(texts, at, place, ask)?,
            };
            (at, place) = match next {
                Some(next) => next,
                None => match self.backtrack(texts, ask)? {
                    Some(next) => next,
                    None => return Ok(None),
                },
            };
        }
    }

    /// Matches an item of the pattern together with the sign after it (`*`, `+`, `-`, `?`). Returns
    /// the next offset in the subject and in the pattern; `None` if there is no match.
    #[inline]
    fn match_item<E>(
        &mut self,
        texts: Texts<'_>,
        at: usize,
        place: usize,
        ask: Ask<'_, E>,
    ) -> Result<Option<(usize, usize)>, Failure<E>> {
        let end = texts.item_end(place)?;
        let item = self.item(texts, place, end);
        let matches = texts.subject.get(at).is_some_and(|&byte| self.matches(item, byte));
        match texts.at(end) {
            b'?' => {
                if matches {
                    self.choose(Backtrack::Without { from: at, rest: end + 1 })?;
                }
                Ok(Some((at + usize::from(matches), end + 1)))
            }
            b'+' if !matches => Ok(None),
            b'*' | b'+' => {
                let from = at + usize::from(texts.at(end) == b'+');
                let count = self.run_of(item, &texts.subject[from..]);
                self.step(count / 8, ask)?;
                if count > 0 && end + 1 < texts.pattern.len() {
                    self.choose(Backtrack::Fewer { from, most: count - 1, rest: end + 1 })?;
                }
                Ok(Some((from + count, end + 1)))
            }
            b'-' => {
                self.choose(Backtrack::More { from: at, item: place, end })?;
                Ok(Some((at, end + 1)))
            }
            _ => Ok(matches.then_some((at + 1, end))),
        }
    }

    /// Backtracks: undoes all captures since the last choice, and changes this choice.
    #[inline]
    fn backtrack<E>(
        &mut self,
        texts: Texts<'_>,
        ask: Ask<'_, E>,
    ) -> Result<Option<(usize, usize)>, Failure<E>> {
        loop {
            self.step(1, ask)?;
            let Some(choice) = self.choices.pop() else { return Ok(None) };
            match choice {
                Backtrack::Fewer { from, mut most, rest } => {
                    if let Some(byte) = texts.first_byte(rest) {
                        // Only at this byte can the rest of the pattern match.
                        let tried = &texts.subject[from..texts.subject.len().min(from + most + 1)];
                        let last = memchr::memrchr(byte, tried);
                        self.step((most - last.unwrap_or(0)) / 8, ask)?;
                        let Some(last) = last else { continue };
                        most = last;
                    }
                    if most > 0 {
                        self.choices.push(Backtrack::Fewer { from, most: most - 1, rest });
                    }
                    return Ok(Some((from + most, rest)));
                }
                Backtrack::More { from, item, end } => {
                    let kind = self.item(texts, item, end);
                    let next = texts.first_byte(end + 1);
                    let count = self.run_until(kind, next, &texts.subject[from..]);
                    self.step(count.unwrap_or(texts.subject.len() - from) / 8, ask)?;
                    if let Some(count) = count {
                        self.choices.push(Backtrack::More { from: from + count, item, end });
                        return Ok(Some((from + count, end + 1)));
                    }
                }
                Backtrack::Without { from, rest } => return Ok(Some((from, rest))),
                Backtrack::Opened => self.level -= 1,
                Backtrack::Closed(index) => self.captures[index].end = CaptureEnd::Open,
            }
        }
    }

    #[inline]
    fn choose<E>(&mut self, choice: Backtrack) -> Result<(), Failure<E>> {
        if self.choices.len() >= CHOICES_MAX {
            return Err(Failure::Pattern("pattern too complex"));
        }
        self.choices.push(choice);
        Ok(())
    }

    /// Begins a capture of the pattern; returns the offset in the pattern at which matching
    /// continues.
    fn open<E>(&mut self, texts: Texts<'_>, at: usize, place: usize) -> Result<usize, Failure<E>> {
        if self.level >= CAPTURES_MAX {
            return Err(Failure::Pattern("too many captures"));
        }
        let is_position = texts.at(place + 1) == b')';
        let end = if is_position { CaptureEnd::Position } else { CaptureEnd::Open };
        self.captures[self.level] = Capture { start: at, end };
        self.level += 1;
        self.choose(Backtrack::Opened)?;
        Ok(place + 1 + usize::from(is_position))
    }

    /// Ends the capture that was opened last, at the offset `at` of the subject.
    fn close<E>(&mut self, at: usize) -> Result<(), Failure<E>> {
        let open = self.captures().iter().rposition(|capture| capture.end == CaptureEnd::Open);
        let index = open.ok_or(Failure::Pattern("invalid pattern capture"))?;
        self.captures[index].end = CaptureEnd::At(at);
        self.choose(Backtrack::Closed(index))
    }

    /// Matches `%1`: returns the end of the repeated text if the subject repeats the captured text
    /// at `at`; else `None`.
    fn same_as_captured<E>(
        &self,
        texts: Texts<'_>,
        at: usize,
        digit: u8,
    ) -> Result<Option<usize>, Failure<E>> {
        let invalid = Failure::Pattern("invalid capture index");
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let Some(Capture { start, end }) = index.and_then(|index| self.captures().get(index)) else {
            return Err(invalid);
        };
        match *end {
            CaptureEnd::Open => Err(invalid),
            CaptureEnd::Position => Ok(None),
            CaptureEnd::At(end) => {
                let comes = texts.subject[at..].starts_with(&texts.subject[*start..end]);
                Ok(comes.then_some(at + end - start))
            }
        }
    }

    /// Matches `%f[…]`: returns the offset in the pattern after the set at `place` if `at` is a
    /// frontier of the set.
    fn frontier<E>(
        &mut self,
        texts: Texts<'_>,
        at: usize,
        place: usize,
    ) -> Result<Option<usize>, Failure<E>> {
        if texts.at(place) != b'[' {
            return Err(Failure::Pattern("missing '[' after '%f' in pattern"));
        }
        let end = texts.item_end(place)?;
        let item = self.item(texts, place, end);
        let before = at.checked_sub(1).map_or(0, |before| texts.subject[before]);
        let here = texts.subject.get(at).copied().unwrap_or(0);
        Ok((!self.matches(item, before) && self.matches(item, here)).then_some(end))
    }

    #[inline]
    fn item(&mut self, texts: Texts<'_>, place: usize, end: usize) -> Item {
        match texts.pattern[place] {
            b'.' => Item::Any,
            b'%' => Item::Class(texts.pattern[place + 1]),
            b'[' => self.set(texts, place, end),
            byte => Item::Byte(byte),
        }
    }

    fn set(&mut self, texts: Texts<'_>, place: usize, end: usize) -> Item {
        if let Some(number) = self.sets.iter().position(|(known, _)| *known == place) {
            return Item::Set(number);
        }
        let bytes = Bytes::of_set(texts.pattern, place, end - 1);
        if self.sets.len() >= SETS_MAX {
            return Item::Uncached(bytes);
        }
        self.sets.push((place, bytes));
        Item::Set(self.sets.len() - 1)
    }

    #[inline]
    fn matches(&self, item: Item, byte: u8) -> bool {
        match item {
            Item::Any => true,
            Item::Byte(wanted) => byte == wanted,
            Item::Class(class) => is_of_class(byte, class),
            Item::Set(number) => self.sets[number].1.has(byte),
            Item::Uncached(bytes) => bytes.has(byte),
        }
    }

    /// Returns the number of further bytes that a pattern's item with `-` matches before the rest
    /// of the pattern is tried again. This is one byte, or, if `next` is given, all bytes before
    /// the next `next`, at least one. Returns `None` if the item does not match all these bytes.
    #[inline]
    fn run_until(&self, item: Item, next: Option<u8>, subject: &[u8]) -> Option<usize> {
        let Some(next) = next else {
            return subject.first().is_some_and(|&byte| self.matches(item, byte)).then_some(1);
        };
        if let Item::Any = item {
            return memchr::memchr(next, subject.get(1..)?).map(|before| before + 1);
        }
        let mut bytes = subject.iter().enumerate();
        let (at, _) = bytes.find(|&(at, &byte)| at > 0 && byte == next || !self.matches(item, byte))?;
        (at > 0 && subject[at] == next).then_some(at)
    }

    /// Returns the number of leading bytes of `subject` that the pattern's item matches.
    #[inline]
    fn run_of(&self, item: Item, subject: &[u8]) -> usize {
        let run = |matches: &dyn Fn(u8) -> bool| subject.iter().position(|&byte| !matches(byte));
        let end = match item {
            Item::Any => None,
            Item::Byte(wanted) => subject.iter().position(|&byte| byte != wanted),
            Item::Class(class) => match class_kinds(class) {
                Some(kinds) => {
                    let is_wanted = class.is_ascii_lowercase();
                    subject.iter().position(|&byte| (KINDS[usize::from(byte)] & kinds != 0) != is_wanted)
                }
                None => run(&|byte| is_of_class(byte, class)),
            },
            Item::Set(number) => {
                let bytes = &self.sets[number].1;
                subject.iter().position(|&byte| !bytes.has(byte))
            }
            Item::Uncached(bytes) => run(&|byte| bytes.has(byte)),
        };
        end.unwrap_or(subject.len())
    }
}

/// Matches `%bxy`, whose `x` is at `place` of the pattern. Returns the end of the balanced text,
/// `None` if there is none, and the number of bytes read.
fn balanced<E>(texts: Texts<'_>, at: usize, place: usize) -> Result<(Option<usize>, usize), Failure<E>> {
    if place + 1 >= texts.pattern.len() {
        return Err(Failure::Pattern("unbalanced pattern"));
    }
    let (begin, end) = (texts.at(place), texts.at(place + 1));
    // C would compare with the zero byte after the subject's end. No pattern contains a zero byte.
    if texts.subject.get(at) != Some(&begin) {
        return Ok((None, 0));
    }
    let mut depth = 1_usize;
    for (offset, &byte) in texts.subject[at + 1..].iter().enumerate() {
        if byte == end {
            depth -= 1;
            if depth == 0 {
                return Ok((Some(at + 2 + offset), offset));
            }
        } else if byte == begin {
            depth += 1;
        }
    }
    Ok((None, texts.subject.len() - at))
}

//! Regular expressions of ARGREP: the extended syntax of POSIX, over bytes.
//!
//! ```text
//!   pattern ─parse─► tree ─compile─► program: bytes, forks, conditions ─► threads, byte by byte
//! ```
//! A text either matches somewhere or not; no positions are needed. So the program runs as a set of
//! threads without copies of each other (Thompson). A match costs O(text × program) in the worst
//! case, and both are limited. Besides POSIX: `\d \w \s` and their complements, `\b \B \< \>`,
//! `\t \n \r \f \a \e \xHH`, `(?:…)`, and a `?` after a repetition, which changes nothing here.
//!
//! Back references have no such program; Redis rejects them in ARGREP, too. Source: POSIX.1-2024,
//! 9.4 "Extended Regular Expressions"; Thompson, "Regular Expression Search Algorithm", 1968.

mod parse;

/// The maximum length of a pattern in bytes, as in Redis.
pub(super) const LEN_BYTES_MAX: usize = 2048;
/// The maximum number of instructions of all programs of a request.
const INSTRUCTIONS_MAX: usize = 8192;
/// The maximum number of bytes of a request's patterns and of visits of their trees.
const STEPS_MAX: usize = 8 * INSTRUCTIONS_MAX;

/// The reason why a pattern is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternError {
    /// The text that Redis gives after `invalid regular expression: `.
    Invalid(&'static str),
    /// The pattern has a back reference.
    BackReference,
}

/// The programs are longer than permitted, or the groups of a pattern are nested too deeply.
const TOO_BIG: PatternError = PatternError::Invalid("Out of memory");

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes([u64; 4]);

impl Bytes {
    const ALL: Self = Self([u64::MAX; 4]);

    fn one(byte: u8) -> Self {
        let mut bytes = Self::default();
        bytes.insert(byte);
        bytes
    }

    fn of(is_in: impl Fn(u8) -> bool) -> Self {
        let mut bytes = Self::default();
        (0..=u8::MAX).filter(|&byte| is_in(byte)).for_each(|byte| bytes.insert(byte));
        bytes
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    fn complement(self) -> Self {
        Self(self.0.map(|part| !part))
    }

    /// Returns the set with both cases of each of its letters.
    fn any_case(self) -> Self {
        // All letters are in one part: the capitals from bit 1 on, the others 32 bits higher.
        let [low, part, others @ ..] = self.0;
        let letters = (part | part >> 32) & 0x07FF_FFFE;
        Self([low, part | letters | letters << 32, others[0], others[1]])
    }
}

/// A condition on a position in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    TextStart,
    TextEnd,
    WordEdge,
    NoWordEdge,
    WordStart,
    WordEnd,
}

impl Condition {
    fn holds(self, text: &[u8], at: usize) -> bool {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let before = at.checked_sub(1).is_some_and(|before| is_word(&text[before]));
        let after = text.get(at).is_some_and(is_word);
        match self {
            Condition::TextStart => at == 0,
            Condition::TextEnd => at == text.len(),
            Condition::WordEdge => before != after,
            Condition::NoWordEdge => before == after,
            Condition::WordStart => !before && after,
            Condition::WordEnd => before && !after,
        }
    }
}

/// The tree of a pattern.
#[derive(Debug)]
enum Tree {
    Bytes(Bytes),
    Condition(Condition),
    Sequence(Vec<Tree>),
    OneOf(Vec<Tree>),
    Repeat { tree: Box<Tree>, min: u32, max: Option<u32> },
}

#[derive(Clone, Debug)]
enum Instruction {
    Bytes(Bytes),
    Condition(Condition),
    /// Continues at both places.
    Fork(usize, usize),
    Goto(usize),
    Found,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    program: Vec<Instruction>,
}

/// The case of letters in a pattern and in texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Significant,
    Ignored,
}

/// The work that is left for compiling the patterns of a request.
#[derive(Debug)]
pub(super) struct Budget {
    instructions: usize,
    steps: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { instructions: INSTRUCTIONS_MAX, steps: STEPS_MAX }
    }

    fn take_instruction(&mut self) -> Result<(), PatternError> {
        self.instructions = self.instructions.checked_sub(1).ok_or(TOO_BIG)?;
        Ok(())
    }

    fn take_steps(&mut self, steps: usize) -> Result<(), PatternError> {
        self.steps = self.steps.checked_sub(steps).ok_or(TOO_BIG)?;
        Ok(())
    }
}

impl Pattern {
    /// Compiles a pattern of at most [`LEN_BYTES_MAX`] bytes with what is left of the budget.
    pub(super) fn new(pattern: &[u8], case: Case, budget: &mut Budget) -> Result<Self, PatternError> {
        budget.take_steps(pattern.len())?;
        let tree = parse::parse(pattern, case)?;
        let mut compiler = Compiler { program: Vec::new(), budget };
        compiler.emit(&tree)?;
        compiler.push(Instruction::Found)?;
        Ok(Self { program: compiler.program })
    }

    /// Returns true if the pattern matches a part of `text`. O(text × program).
    pub(super) fn is_in(&self, text: &[u8], threads: &mut Threads) -> bool {
        threads.prepare(self.program.len());
        for at in 0..=text.len() {
            // A match may begin anywhere.
            if threads.add(&self.program, 0, (text, at)) {
                return true;
            }
            let Some(&byte) = text.get(at) else { break };
            threads.begin_step();
            for at_thread in 0..threads.before.len() {
                let place = threads.before[at_thread];
                let Instruction::Bytes(bytes) = &self.program[place] else { continue };
                if bytes.has(byte) && threads.add(&self.program, place + 1, (text, at + 1)) {
                    return true;
                }
            }
        }
        false
    }
}

/// The threads of a running program: the instructions that wait for the next byte. Kept between
/// matches for its memory.
#[derive(Debug, Default)]
pub(super) struct Threads {
    now: Vec<usize>,
    before: Vec<usize>,
    /// The step in which each instruction was last reached.
    reached: Vec<u64>,
    step: u64,
    stack: Vec<usize>,
}

impl Threads {
    fn prepare(&mut self, program_len: usize) {
        self.step += 1;
        if self.reached.len() < program_len {
            self.reached.resize(program_len, 0);
        }
        self.now.clear();
    }

    fn begin_step(&mut self) {
        self.step += 1;
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
    }

    /// Adds a thread at `place`, and all places that it reaches without a byte. Returns true if one
    /// of them is the end of the program.
    fn add(&mut self, program: &[Instruction], place: usize, (text, at): (&[u8], usize)) -> bool {
        self.stack.push(place);
        while let Some(place) = self.stack.pop() {
            if std::mem::replace(&mut self.reached[place], self.step) == self.step {
                continue;
            }
            match program[place] {
                Instruction::Bytes(_) => self.now.push(place),
                Instruction::Condition(condition) if condition.holds(text, at) => self.stack.push(place + 1),
                Instruction::Condition(_) => {}
                Instruction::Fork(one, other) => self.stack.extend([one, other]),
                Instruction::Goto(place) => self.stack.push(place),
                Instruction::Found => {
                    self.stack.clear();
                    return true;
                }
            }
        }
        false
    }
}

struct Compiler<'a> {
    program: Vec<Instruction>,
    budget: &'a mut Budget,
}

impl Compiler<'_> {
    fn push(&mut self, instruction: Instruction) -> Result<usize, PatternError> {
        self.budget.take_instruction()?;
        self.program.push(instruction);
        Ok(self.program.len() - 1)
    }

    fn emit(&mut self, tree: &Tree) -> Result<(), PatternError> {
        self.budget.take_steps(1)?;
        match tree {
            Tree::Bytes(bytes) => {
                self.push(Instruction::Bytes(*bytes))?;
            }
            Tree::Condition(condition) => {
                self.push(Instruction::Condition(*condition))?;
            }
            Tree::Sequence(trees) => trees.iter().try_for_each(|tree| self.emit(tree))?,
            Tree::OneOf(trees) => self.emit_one_of(trees)?,
            Tree::Repeat { tree, min, max } => self.emit_repeat(tree, *min, *max)?,
        }
        Ok(())
    }

    fn emit_one_of(&mut self, trees: &[Tree]) -> Result<(), PatternError> {
        let Some((last, others)) = trees.split_last() else { return Ok(()) };
        let mut ends = Vec::new();
        for tree in others {
            let fork = self.push(Instruction::Fork(0, 0))?;
            self.emit(tree)?;
            ends.push(self.push(Instruction::Goto(0))?);
            self.program[fork] = Instruction::Fork(fork + 1, self.program.len());
        }
        self.emit(last)?;
        let end = self.program.len();
        ends.into_iter().for_each(|place| self.program[place] = Instruction::Goto(end));
        Ok(())
    }

    fn emit_repeat(&mut self, tree: &Tree, min: u32, max: Option<u32>) -> Result<(), PatternError> {
        (0..min).try_for_each(|_| self.emit(tree))?;
        let Some(max) = max else {
            let fork = self.push(Instruction::Fork(0, 0))?;
            self.emit(tree)?;
            self.push(Instruction::Goto(fork))?;
            self.program[fork] = Instruction::Fork(fork + 1, self.program.len());
            return Ok(());
        };
        let mut forks = Vec::new();
        for _ in min..max {
            forks.push(self.push(Instruction::Fork(0, 0))?);
            self.emit(tree)?;
        }
        let end = self.program.len();
        forks.into_iter().for_each(|fork| self.program[fork] = Instruction::Fork(fork + 1, end));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(pattern: &str, case: Case) -> Result<Pattern, PatternError> {
        Pattern::new(pattern.as_bytes(), case, &mut Budget::new())
    }

    fn matches(pattern: &str, text: &str) -> bool {
        let pattern = compile(pattern, Case::Significant).expect(pattern);
        pattern.is_in(text.as_bytes(), &mut Threads::default())
    }

    #[test]
    fn patterns_match_as_posix_says() {
        for (pattern, good, bad) in [
            ("abc", &["abc", "xabcx"][..], &["ab", "acb", ""][..]),
            ("^a.c$", &["abc", "a\nc"], &["xabc", "abcx", "ac"]),
            ("a|bc|", &["a", "", "zzz"], &[]),
            ("^(a|bc)+$", &["a", "abca", "bcbc"], &["", "ab", "acb"]),
            ("^a*b?c+$", &["c", "aaabcc", "bc"], &["", "abbc"]),
            ("^a{2,3}$", &["aa", "aaa"], &["a", "aaaa"]),
            ("^a{2}b{0,}c{,1}$", &["aa", "aabbb", "aac"], &["a", "aacc"]),
            ("^[a-c]+[^0-9]$", &["abx", "cc"], &["ab1", "x"]),
            ("^[]x-]+$", &["]", "x-]"], &["a", ""]),
            ("[[:digit:]]{3}", &["ab123"], &["12"]),
            ("^\\d+\\.\\d+$", &["1.5", "10.25"], &["1", "a.b", "1x5"]),
            ("\\bfoo\\b", &["a foo b", "foo"], &["afoo", "food"]),
            ("\\<a\\w*z\\>", &["an abz", "az"], &["xaz", "azx"]),
            ("^(?:ab)+?$", &["ab", "abab"], &["aba"]),
            ("\\x41\\t", &["A\t"], &["A"]),
            ("a)", &["a)"], &["a"]),
            ("^(a*)*$", &["", "aaa"], &["b"]),
            ("()", &["", "x"], &[]),
        ] {
            good.iter().for_each(|text| assert!(matches(pattern, text), "{pattern} in {text:?}"));
            bad.iter().for_each(|text| assert!(!matches(pattern, text), "{pattern} in {text:?}"));
        }
    }

    #[test]
    fn both_cases_of_a_letter_are_in_a_set_before_it_is_negated() {
        for (pattern, good, bad) in [
            ("^[a-c]X$", &["Bx", "aX"][..], &["dx", "b"][..]),
            ("^[^a]$", &["b", "B", "@", "!"], &["a", "A"]),
            ("^[^[:upper:]@]$", &["1", "["], &["a", "A", "@"]),
            ("^\\x41[z-{]\\W$", &["az ", "A{-"], &["a[ ", "azb", "az_"]),
            ("^[`-{]$", &["`", "a", "Z", "{"], &["@", "["]),
        ] {
            let any_case = compile(pattern, Case::Ignored).expect(pattern);
            let matches = |text: &str| any_case.is_in(text.as_bytes(), &mut Threads::default());
            good.iter().for_each(|text| assert!(matches(text), "{pattern} in {text:?}"));
            bad.iter().for_each(|text| assert!(!matches(text), "{pattern} in {text:?}"));
        }
    }

    #[test]
    fn broken_and_oversized_patterns_are_rejected() {
        let error = |pattern: &str| match compile(pattern, Case::Significant) {
            Err(PatternError::Invalid(text)) => text,
            Err(PatternError::BackReference) => "back reference",
            Ok(_) => "none",
        };
        for (pattern, text) in [
            ("(a", "Missing ')'"),
            ("[a", "Missing ']'"),
            ("[[:nope:]]", "Unknown character class name"),
            ("[b-a]", "Invalid character range"),
            ("a{2", "Missing '}'"),
            ("a{3,2}", "Invalid contents of {}"),
            ("a{x}", "Invalid contents of {}"),
            ("a{256}", "Invalid contents of {}"),
            ("*a", "Invalid use of repetition operators"),
            ("a\\", "Trailing backslash"),
            ("(a)\\1", "back reference"),
            ("((a{255}){255}){255}", "Out of memory"),
            ("(((){255}){255}){255}", "Out of memory"),
        ] {
            assert_eq!(error(pattern), text, "{pattern}");
        }
        assert_eq!(error(&"(".repeat(LEN_BYTES_MAX)), "Out of memory");
        assert_eq!(error(&format!("{}{}", "(".repeat(100), ")".repeat(100))), "none");
    }

    #[test]
    fn threads_keep_their_memory_between_matches_of_all_patterns() {
        let mut threads = Threads::default();
        let new = |pattern| compile(pattern, Case::Significant).unwrap();
        let (long, short) = (new("^(a|b|c|d)+(e|f)$"), new("x"));
        assert!(long.is_in(b"abcde", &mut threads) && !short.is_in(b"abcde", &mut threads));
        let memory = |threads: &Threads| {
            let mut lists = [threads.now.as_ptr(), threads.before.as_ptr()];
            lists.sort_unstable();
            (lists, threads.stack.as_ptr(), threads.reached.as_ptr(), threads.reached.len())
        };
        let first = memory(&threads);
        for _ in 0..3 {
            assert!(long.is_in(b"dcbaf", &mut threads) && !short.is_in(b"abc", &mut threads));
            assert_eq!(memory(&threads), first);
        }
    }

    #[test]
    fn a_match_takes_time_in_proportion_to_the_text() {
        let text = "a".repeat(5000);
        assert!(!matches("^(a|aa)+(a*)*(a*)*b$", &text));
        assert!(matches("(a|aa)+(a*)*(a*)*$", &text));
    }
}

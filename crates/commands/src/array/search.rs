//! ARGREP.

use keyspace::Array;
use stdx::glob::{glob_match, glob_match_any_case};
use structures::listpack::element::IntText;

use super::pattern::{self, Budget, Case, Pattern, PatternError, Threads};
use super::{READS, index, limit, unsigned};
use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Arg, Arity, Command, Flags};

/// The maximum number of conditions, as in Redis.
const CONDITIONS_MAX: usize = 250;

pub(super) static ARGREP: Command = Command {
    name: "ARGREP",
    summary: "Returns the indexes of the elements in a range of an array that match conditions.",
    complexity: "O(N * C) with N being the number of existing elements in the range and C being the cost of the \
         conditions for an element",
    arity: Arity::AtLeast(6),
    flags: Flags::READONLY,
    args: &[
        Arg::key("key", 0),
        Arg::string("start"),
        Arg::string("end"),
        Arg::one_of(
            "predicate",
            &[
                Arg::string("string").token("EXACT"),
                Arg::string("string").token("MATCH"),
                Arg::string("pattern").token("GLOB"),
                Arg::string("pattern").token("RE"),
            ],
        )
        .multiple(),
        Arg::one_of(
            "options",
            &[
                Arg::word("and", "AND"),
                Arg::word("or", "OR"),
                Arg::integer("limit").token("LIMIT"),
                Arg::word("withvalues", "WITHVALUES"),
                Arg::word("nocase", "NOCASE"),
            ],
        )
        .optional()
        .multiple(),
    ],
    run: argrep,
    ..READS
};
/// Handles ARGREP: replies with the indexes, or with pairs of index and element. The bounds `-` and
/// `+` are the first and the last index of the array. The order is descending if the start is the
/// higher index.
fn argrep(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (Bound::parse(args, 2)?, Bound::parse(args, 3)?);
    let mut search = Search::parse(args)?;
    let Some(array) = ctx.db.read::<Array>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let begun = ctx.reply.begin_array();
    let (mut found, mut text) = (0, IntText::new());
    let last = array.len().saturating_sub(1);
    for (index, element) in array.elements().scan(start.index(last), end.index(last)) {
        if found as u64 == search.limit {
            break;
        }
        if !search.accepts(element.text(&mut text)) {
            continue;
        }
        if search.with_values {
            ctx.reply.array(2);
        }
        unsigned(&mut ctx.reply, index);
        if search.with_values {
            bulk(&mut ctx.reply, element);
        }
        found += 1;
    }
    ctx.reply.end_array(begun, found);
    Ok(())
}

/// A bound of the range.
#[derive(Clone, Copy)]
enum Bound {
    First,
    Last,
    Index(u64),
}

impl Bound {
    fn parse(args: &Args<'_>, at: usize) -> Result<Self, CommandError> {
        Ok(match args.get(at) {
            b"-" => Bound::First,
            b"+" => Bound::Last,
            _ => Bound::Index(index(args, at)?),
        })
    }

    /// Returns the index of the bound in an array whose highest index is `last`.
    fn index(self, last: u64) -> u64 {
        match self {
            Bound::First => 0,
            Bound::Last => last,
            Bound::Index(index) => index,
        }
    }
}

/// A condition on the text of an element.
enum Condition<'a> {
    Exact(&'a [u8]),
    Part(&'a [u8]),
    Glob(&'a [u8]),
    Pattern(Pattern),
}

/// A parsed request.
struct Search<'a> {
    conditions: Vec<Condition<'a>>,
    /// True if an element must meet all conditions; otherwise it must meet one of them.
    needs_all: bool,
    limit: u64,
    with_values: bool,
    case: Case,
    threads: Threads,
}

impl<'a> Search<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let mut search = Self {
            conditions: Vec::new(),
            needs_all: false,
            limit: u64::MAX,
            with_values: false,
            case: Case::Significant,
            threads: Threads::default(),
        };
        let mut patterns = Vec::new();
        let mut at = 4;
        while at < args.len() {
            at += search.parse_option(args, at, &mut patterns)?;
        }
        // Patterns are compiled last, because NOCASE may follow them.
        let mut budget = Budget::new();
        for pattern in patterns {
            let pattern = compile(pattern, search.case, &mut budget)?;
            search.conditions.push(Condition::Pattern(pattern));
        }
        if search.conditions.is_empty() { Err(CommandError::Syntax) } else { Ok(search) }
    }

    /// Parses the option or condition at argument `at`. Returns the number of its words.
    fn parse_option(
        &mut self,
        args: &Args<'a>,
        at: usize,
        patterns: &mut Vec<&'a [u8]>,
    ) -> Result<usize, CommandError> {
        match () {
            () if args.is(at, "AND") => self.needs_all = true,
            () if args.is(at, "OR") => self.needs_all = false,
            () if args.is(at, "WITHVALUES") => self.with_values = true,
            () if args.is(at, "NOCASE") => self.case = Case::Ignored,
            () if args.is(at, "LIMIT") && at + 1 < args.len() => {
                self.limit = limit(args, at + 1)?;
                return Ok(2);
            }
            () => {
                self.parse_condition(args, at, patterns)?;
                return Ok(2);
            }
        }
        Ok(1)
    }

    fn parse_condition(
        &mut self,
        args: &Args<'a>,
        at: usize,
        patterns: &mut Vec<&'a [u8]>,
    ) -> Result<(), CommandError> {
        let is_known = ["EXACT", "MATCH", "GLOB", "RE"].iter().any(|word| args.is(at, word));
        let text = args.try_get(at + 1).filter(|_| is_known).ok_or(CommandError::Syntax)?;
        if self.conditions.len() + patterns.len() == CONDITIONS_MAX {
            return Err(CommandError::Line("ERR too many predicates, maximum is 250"));
        }
        match () {
            () if args.is(at, "EXACT") => self.conditions.push(Condition::Exact(text)),
            () if args.is(at, "MATCH") => self.conditions.push(Condition::Part(text)),
            () if args.is(at, "GLOB") => self.conditions.push(Condition::Glob(text)),
            () if text.len() > pattern::LEN_BYTES_MAX => {
                return Err(CommandError::Line("ERR regular expression is too long, maximum is 2048 bytes"));
            }
            () => patterns.push(text),
        }
        Ok(())
    }

    /// Returns true if the conditions accept `text`. O(bytes × conditions), and O(bytes × program)
    /// for a regular expression.
    fn accepts(&mut self, text: &[u8]) -> bool {
        let (case, threads) = (self.case, &mut self.threads);
        let mut holds = |condition: &Condition<'_>| match condition {
            Condition::Exact(exact) if case == Case::Ignored => text.eq_ignore_ascii_case(exact),
            Condition::Exact(exact) => text == *exact,
            Condition::Part(part) => contains(text, part, case),
            Condition::Glob(glob) if case == Case::Ignored => glob_match_any_case(glob, text),
            Condition::Glob(glob) => glob_match(glob, text),
            Condition::Pattern(pattern) => pattern.is_in(text, threads),
        };
        if self.needs_all {
            self.conditions.iter().all(holds)
        } else {
            self.conditions.iter().any(&mut holds)
        }
    }
}

/// Returns true if `text` contains `part`. O(text × part).
fn contains(text: &[u8], part: &[u8], case: Case) -> bool {
    if part.is_empty() {
        return true;
    }
    match case {
        Case::Significant => text.windows(part.len()).any(|window| window == part),
        Case::Ignored => text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part)),
    }
}

fn compile(pattern: &[u8], case: Case, budget: &mut Budget) -> Result<Pattern, CommandError> {
    if pattern.is_empty() {
        return Err(CommandError::Line("ERR regular expression is empty"));
    }
    Pattern::new(pattern, case, budget).map_err(|error| match error {
        PatternError::Invalid(text) => CommandError::Text(format!("ERR invalid regular expression: {text}")),
        PatternError::BackReference => {
            CommandError::Line("ERR regular expression backreferences are not supported")
        }
    })
}

//! AROP.

use keyspace::Array;
use keyspace::array::stored_double;
use stdx::long_double::LongDouble;
use stdx::number::parse_i64;
use structures::listpack::element::{Element, IntText};

use super::{READS, index, unsigned};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Arg, Arity, Command, Flags};

pub(super) static AROP: Command = Command {
    name: "AROP",
    summary: "Computes a sum, a minimum, a count or another aggregate of the elements in a range of an array.",
    complexity: "O(N) with N being the number of existing elements in the range",
    arity: Arity::AtLeast(5),
    flags: Flags::READONLY,
    args: &[
        Arg::key("key", 0),
        Arg::integer("start"),
        Arg::integer("end"),
        Arg::one_of(
            "operation",
            &[
                Arg::word("sum", "SUM"),
                Arg::word("min", "MIN"),
                Arg::word("max", "MAX"),
                Arg::word("and", "AND"),
                Arg::word("or", "OR"),
                Arg::word("xor", "XOR"),
                Arg::string("value").token("MATCH"),
                Arg::word("used", "USED"),
            ],
        ),
    ],
    run: arop,
    ..READS
};
/// Handles AROP: replies with a number; null if no element has a number to compute with. Counts and
/// results of bits are integers, other results are texts.
fn arop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (index(args, 2)?, index(args, 3)?);
    const WORDS: [(&str, Operation); 8] = [
        ("SUM", Operation::Sum),
        ("MIN", Operation::Min),
        ("MAX", Operation::Max),
        ("AND", Operation::Bits(|a, b| a & b)),
        ("OR", Operation::Bits(|a, b| a | b)),
        ("XOR", Operation::Bits(|a, b| a ^ b)),
        ("MATCH", Operation::Match),
        ("USED", Operation::Used),
    ];
    let known = WORDS.into_iter().find(|(word, _)| args.is(4, word));
    let (_, operation) = known.ok_or(CommandError::Line("ERR unknown operation"))?;
    match (&operation, args.len()) {
        (Operation::Match, 6) => {}
        (Operation::Match, _) => return Err(CommandError::Line("ERR MATCH requires a value argument")),
        (_, 5) => {}
        _ => return Err(CommandError::WrongArity("arop")),
    }
    let array = ctx.db.read::<Array>(args.key(1))?;
    let elements = array.into_iter().flat_map(|array| array.elements().scan(start, end)).map(|(_, it)| it);
    match operation {
        Operation::Used => unsigned(&mut ctx.reply, elements.count() as u64),
        Operation::Match => {
            let wanted = args.get(5);
            let mut text = IntText::new();
            let count = elements.filter(|element| element.text(&mut text) == wanted).count();
            unsigned(&mut ctx.reply, count as u64);
        }
        Operation::Bits(combine) => {
            match elements.filter_map(Number::of).filter_map(Number::bits).reduce(combine) {
                Some(bits) => ctx.reply.integer(bits),
                None => ctx.reply.null(),
            }
        }
        Operation::Sum => number_or_null(&mut ctx.reply, sum(elements.filter_map(Number::of))),
        Operation::Min => number_or_null(&mut ctx.reply, extreme(elements, |number, least| number < least)),
        Operation::Max => {
            number_or_null(&mut ctx.reply, extreme(elements, |number, greatest| number > greatest))
        }
    }
    Ok(())
}

/// An aggregate.
enum Operation {
    Sum,
    Min,
    Max,
    /// A combination of the bits of integers.
    Bits(fn(i64, i64) -> i64),
    Match,
    Used,
}

/// The number of an element.
#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Other(LongDouble),
}

impl Number {
    /// Returns the number of an element; `None` if its text is not one. Texts that Redis stores as
    /// doubles have the value of the double.
    fn of(element: Element<'_>) -> Option<Self> {
        let text = match element {
            Element::Int(number) => return Some(Number::Int(number)),
            Element::Bytes(text) => text,
        };
        if let Some(number) = parse_i64(text) {
            return Some(Number::Int(number));
        }
        let double = stored_double(text).map(LongDouble::from_f64);
        double.or_else(|| LongDouble::parse(text)).map(Number::Other)
    }

    /// Returns the integer part; `None` if it exceeds 64 bits.
    fn bits(self) -> Option<i64> {
        match self {
            Number::Int(number) => Some(number),
            Number::Other(number) => number.to_string().split('.').next()?.parse().ok(),
        }
    }

    fn to_long_double(self) -> LongDouble {
        match self {
            Number::Int(number) => long_double(number.into()),
            Number::Other(number) => number,
        }
    }
}

/// Converts an integer to the nearest 80-bit number.
fn long_double(number: i128) -> LongDouble {
    LongDouble::parse(number.to_string().as_bytes()).expect("it is in the range")
}

/// Adds up numbers: the integers exactly, the others in their order, then both. Returns the text of
/// the sum, or `None` if there are no numbers.
fn sum(numbers: impl Iterator<Item = Number>) -> Option<String> {
    let (mut ints, mut others, mut is_any) = (0_i128, LongDouble::ZERO, false);
    let (mut above, mut below) = (false, false);
    for number in numbers {
        is_any = true;
        match number {
            Number::Int(number) => ints += i128::from(number),
            Number::Other(number) => match others.checked_add(number) {
                Some(sum) => others = sum,
                // Infinite, or so large that the sum is.
                None if number > LongDouble::ZERO => above = true,
                None => below = true,
            },
        }
    }
    let sum = match (above, below) {
        (true, true) => "nan".to_owned(),
        (true, false) => "inf".to_owned(),
        (false, true) => "-inf".to_owned(),
        (false, false) => {
            others.checked_add(long_double(ints)).map_or("inf".to_owned(), LongDouble::text_of_17_digits)
        }
    };
    is_any.then_some(sum)
}

/// Finds the number before which no other comes by `is_before`. Returns its text; `None` if there
/// are no numbers.
fn extreme<'a>(
    elements: impl Iterator<Item = Element<'a>>,
    is_before: fn(LongDouble, LongDouble) -> bool,
) -> Option<String> {
    let numbers = elements.filter_map(Number::of).map(Number::to_long_double);
    let found = numbers.reduce(|found, number| if is_before(number, found) { number } else { found });
    found.map(LongDouble::text_of_17_digits)
}

fn number_or_null(reply: &mut resp::Reply<'_>, text: Option<String>) {
    match text {
        Some(text) => reply.bulk(text.as_bytes()),
        None => reply.null(),
    }
}

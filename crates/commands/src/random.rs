//! HRANDFIELD, SRANDMEMBER and ZRANDMEMBER: one parser and one reply for all three commands.

use keyspace::object::ObjectType;
use keyspace::{AccessError, Key, Set, Zset};
use resp::Reply;
use structures::listpack::element::Element;

use crate::args::Args;
use crate::collection::{begin_pair, begin_pairs, bulk};
use crate::ctx::Ctx;
use crate::error::CommandError;

/// A collection from which random elements can be drawn. The implementation for hashes is in
/// [`crate::hash`]; it removes expired fields first.
pub(crate) trait RandomElements: ObjectType {
    /// The data beside an element: the value of a hash's field, or the score of a sorted set's
    /// member.
    type Companion<'a>;
    /// The option (WITHVALUES, WITHSCORES) that adds the value or score of each element to the
    /// reply; `None` for sets.
    const OPTION: Option<&'static str>;

    /// Removes the expired elements of the collection at `key`, if elements can expire.
    fn prepare(_ctx: &mut Ctx<'_>, _key: Key<'_>) -> Result<(), AccessError> {
        Ok(())
    }
    /// Returns a copy of the collection without the elements that are expired at `due_ms`, or
    /// `None` if no element is expired. Used for the expired elements that [`Self::prepare`] left
    /// because the server must not remove them.
    fn without_expired(&self, _due_ms: i64) -> Option<Self> {
        None
    }
    /// Returns the number of elements of the collection, expired ones included.
    fn element_count(&self) -> usize;
    /// Returns an element of the collection chosen uniformly, or `None` if the collection is empty.
    fn draw_one(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, Self::Companion<'_>)>;
    /// Visits `count` different elements of the collection chosen uniformly, or all elements if
    /// there are fewer.
    fn draw_distinct(
        &self,
        count: usize,
        draw: impl FnMut() -> u64,
        visit: impl FnMut(Element<'_>, Self::Companion<'_>),
    );
    /// Writes the data that belongs to an element: the value of a hash's field, the score of a
    /// member.
    fn reply_companion(reply: &mut Reply<'_>, beside: Self::Companion<'_>);
}

impl RandomElements for Set {
    type Companion<'a> = ();
    const OPTION: Option<&'static str> = None;

    fn element_count(&self) -> usize {
        self.len()
    }
    fn draw_one(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, ())> {
        self.random(draw).map(|member| (member, ()))
    }
    fn draw_distinct(&self, count: usize, draw: impl FnMut() -> u64, mut visit: impl FnMut(Element<'_>, ())) {
        self.sample(count, draw, |member| visit(member, ()));
    }
    fn reply_companion(_reply: &mut Reply<'_>, (): ()) {}
}

impl RandomElements for Zset {
    type Companion<'a> = f64;
    const OPTION: Option<&'static str> = Some("WITHSCORES");

    fn element_count(&self) -> usize {
        self.len()
    }
    fn draw_one(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, f64)> {
        self.random(draw)
    }
    fn draw_distinct(&self, count: usize, draw: impl FnMut() -> u64, visit: impl FnMut(Element<'_>, f64)) {
        self.sample(count, draw, visit);
    }
    fn reply_companion(reply: &mut Reply<'_>, score: f64) {
        reply.double(score);
    }
}

/// The number of random elements that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RandomCount {
    /// A number of different random elements, or all if there are fewer.
    Distinct(usize),
    /// Exactly this number of random elements, with repetitions.
    Repeating(usize),
}

/// The largest number of random elements with repetitions in one request. Without this limit, a
/// short request could ask for a reply of any size.
const REPEATING_MAX: usize = 1 << 24;

impl RandomCount {
    /// Parses argument `index` as the number of requested elements. A negative number requests
    /// repetitions.
    pub(crate) fn parse(args: &Args<'_>, index: usize) -> Result<Self, CommandError> {
        match args.integer(index)? {
            i64::MIN => Err(CommandError::Line(
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            )),
            count if count >= 0 => Ok(RandomCount::Distinct(count as usize)),
            count if count.unsigned_abs() <= REPEATING_MAX as u64 => {
                Ok(RandomCount::Repeating(count.unsigned_abs() as usize))
            }
            _ => Err(CommandError::OutOfRange("value")),
        }
    }
}

/// A parsed request of HRANDFIELD, SRANDMEMBER or ZRANDMEMBER.
enum Request {
    /// One random element, not in an array; null if the key is missing.
    One,
    /// An array of random elements, perhaps with their values or scores.
    Many {
        count: RandomCount,
        /// True if the reply holds each element's value or score, too.
        in_pairs: bool,
    },
}

impl Request {
    fn parse(args: &Args<'_>, option: Option<&str>) -> Result<Self, CommandError> {
        if args.len() == 2 {
            return Ok(Request::One);
        }
        let Some(option) = option else {
            // Redis reports too many arguments before it parses the count.
            let fits = args.len() == 3;
            let count = if fits { RandomCount::parse(args, 2)? } else { return Err(CommandError::Syntax) };
            return Ok(Request::Many { count, in_pairs: false });
        };
        let count = RandomCount::parse(args, 2)?;
        let in_pairs = args.len() > 3;
        if args.len() > 4 || (in_pairs && !args.is(3, option)) {
            return Err(CommandError::Syntax);
        }
        match count {
            // RESP2 replies with two elements per pair. That number must fit into 64 bits.
            RandomCount::Distinct(count) if in_pairs && count > i64::MAX as usize / 2 => {
                Err(CommandError::OutOfRange("value"))
            }
            count => Ok(Request::Many { count, in_pairs }),
        }
    }
}

/// Replies to `COMMAND key [count [option]]`. Without a count the reply is one element, or null.
/// With a count it is an array of at most `count` different elements. A negative count requests
/// exactly `-count` elements, with repetitions. The option adds the elements' values or scores.
/// Rejects repetitions that would take more than `proto-max-bulk-len` bytes.
pub(crate) fn random_elements<T: RandomElements>(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
) -> Result<(), CommandError> {
    let request = Request::parse(args, T::OPTION)?;
    T::prepare(ctx, args.key(1))?;
    let (reply, rng) = (&mut ctx.reply, &mut *ctx.rng);
    let mut draw = || rng.u64(..);
    let due_ms = ctx.db.due_ms();
    let found = ctx.db.read::<T>(args.key(1))?;
    let copy = found.and_then(|collection| collection.without_expired(due_ms));
    let found = copy.as_ref().or(found).filter(|collection| collection.element_count() > 0);
    let (collection, (count, in_pairs)) = match (found, request) {
        (None, Request::One) => {
            reply.null();
            return Ok(());
        }
        (None, Request::Many { .. }) => {
            reply.empty_array();
            return Ok(());
        }
        (Some(collection), Request::One) => {
            let (element, _) = collection.draw_one(draw).expect("a collection at a key is not empty");
            bulk(reply, element);
            return Ok(());
        }
        (Some(collection), Request::Many { count, in_pairs }) => (collection, (count, in_pairs)),
    };
    let len = match count {
        RandomCount::Distinct(count) => count.min(collection.element_count()),
        RandomCount::Repeating(count) => count,
    };
    let before = reply.mark();
    if in_pairs {
        begin_pairs(reply, len);
    } else {
        reply.array(len);
    }
    let write = |reply: &mut Reply<'_>, element: Element<'_>, beside: T::Companion<'_>| {
        if in_pairs {
            begin_pair(reply);
        }
        bulk(reply, element);
        if in_pairs {
            T::reply_companion(reply, beside);
        }
    };
    match count {
        RandomCount::Distinct(count) => {
            collection.draw_distinct(count, draw, |element, beside| write(reply, element, beside));
        }
        RandomCount::Repeating(count) => {
            for _ in 0..count {
                let drawn = collection.draw_one(&mut draw);
                let (element, beside) = drawn.expect("a collection at a key is not empty");
                write(reply, element, beside);
                if reply.len_since(&before) as u64 > ctx.limits.string_len_bytes_max {
                    return Err(CommandError::OutOfRange("value"));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::Harness;

    #[test]
    fn repetitions_end_where_their_bytes_would_be_too_many() {
        let mut db = Harness::new();
        db.limits.string_len_bytes_max = 10_000;
        let long = "m".repeat(100);
        db.run(&["SADD", "s", &long]);
        db.run(&["HSET", "h", &long, &long]);
        db.run(&["ZADD", "z", "1", &long]);
        let refused = "-ERR value is out of range|";
        assert!(db.line("SRANDMEMBER s -90").starts_with("*90|$100|m"));
        assert_eq!(db.line("SRANDMEMBER s -100"), refused);
        assert_eq!(db.line("SRANDMEMBER s -16777216"), refused);
        assert!(db.line("HRANDFIELD h -45 WITHVALUES").starts_with("*90|"));
        assert_eq!(db.line("HRANDFIELD h -50 WITHVALUES"), refused);
        assert_eq!(db.line("ZRANDMEMBER z -16777216 WITHSCORES"), refused);
    }
}

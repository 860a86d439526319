//! SORT: the elements of a list, set or sorted set, ordered by themselves or by values of other
//! keys.
//!
//! The argument of BY or GET is a pattern. A pattern with its first `*` replaced by an element is
//! the name of another key. The text after `->` is a field of the hash at that key. No argument
//! names these keys. So a request with such a pattern runs as the exclusive owner of the keyspace,
//! with all shards locked ([`Flags::PATTERN_KEYS`]). Any other request runs under the locks of its
//! own keys. All compared texts are copied into one buffer, the arena. So no text is borrowed from
//! the database during the next lookup, and comparisons need no lookups.

use std::cmp::Ordering;
use std::ops::Range;

use keyspace::{Hash, Key, List, ListEnd, Object, View, Zset};
use stdx::partial_sort::partial_sort;
use structures::entry::View as EntryView;
use structures::listpack::element::{Element, IntText};

use crate::args::{Args, lenient_float};
use crate::collection::{StoreEvents, store_result};
use crate::ctx::{Ctx, EventClass, Origin, ReadableKeys};
use crate::error::{CommandError, quotable};
use crate::list;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

const PATTERN_NOTES: &str = "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort";
const STORE_NOTES: &str = "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array";

/// An argument of BY or GET: the rule that finds a value for each element.
enum Pattern<'a> {
    /// The pattern `#`, which stands for the element itself.
    Element,
    /// A pattern without `*`, which names no key and finds no value for the element.
    Nothing,
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a [u8]) -> Self {
        // As in Redis, the search for `*` and `->` ends at the first NUL.
        let text = quotable(pattern);
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|&byte| byte == b'*') else { return Pattern::Nothing };
        let arrow = text[star + 1..].windows(2).position(|two| two == b"->").map(|at| star + 1 + at);
        let arrow = arrow.filter(|at| text.len() > at + 2);
        let end = arrow.unwrap_or(pattern.len());
        let field = arrow.map(|at| &pattern[at + 2..]);
        Pattern::Key { before: &pattern[..star], behind: &pattern[star + 1..end], field }
    }

    /// Calls `visit` with the string or the field value that the pattern finds for `element`. Calls
    /// it with `None` if there is no such value.
    fn look_up<T>(
        &self,
        db: &mut View<'_>,
        args: &Args<'_>,
        element: &[u8],
        visit: impl FnOnce(Option<&[u8]>) -> T,
    ) -> T {
        let (before, behind, field) = match self {
            Pattern::Element => return visit(Some(element)),
            Pattern::Nothing => return visit(None),
            Pattern::Key { before, behind, field } => (before, behind, field),
        };
        let name = [*before, element, *behind].concat();
        let (key, mut scratch) = (args.hasher().key(&name), IntText::new());
        if let Some(field) = field {
            let due_ms = db.due_ms();
            let hash = db.read::<Hash>(key).ok().flatten();
            let value = hash.and_then(|hash| hash.look_up(field, due_ms, args.hasher()).live());
            return visit(value.map(|value| value.text(&mut scratch)));
        }
        let mut scratch = keyspace::string::IntText::new();
        visit(db.string(key).ok().flatten().map(|string| string.bytes(&mut scratch)))
    }
}

/// Finds the key that SORT stores to: the argument after the last STORE that is not the value of
/// another option.
fn find_destination(args: &Args<'_>, visit: &mut dyn FnMut(usize)) {
    let (mut at, mut found) = (2, None);
    while at < args.len() {
        if args.is(at, "STORE") && at + 1 < args.len() {
            found = Some(at + 1);
        }
        at += match () {
            () if args.is(at, "LIMIT") => 3,
            () if ["BY", "GET", "STORE"].iter().any(|word| args.is(at, word)) => 2,
            () => 1,
        };
    }
    found.into_iter().for_each(visit);
}

/// A parsed request of SORT or SORT_RO.
struct Request<'a> {
    /// The pattern of the option BY; `None` without BY.
    by: Option<Pattern<'a>>,
    /// True if the pattern of BY has no `*`: the elements then keep their order.
    unsorted: bool,
    descending: bool,
    alphabetic: bool,
    /// The option LIMIT: the index of the first requested element, and the number of elements (all
    /// if negative).
    limit: (i64, i64),
    get: Vec<Pattern<'a>>,
    /// The index of the argument that is the destination key of STORE; `None` without STORE.
    store_at: Option<usize>,
}

impl<'a> Request<'a> {
    fn parse(args: &Args<'a>, stores: bool, readable: ReadableKeys) -> Result<Self, CommandError> {
        let mut request = Request {
            by: None,
            unsorted: false,
            descending: false,
            alphabetic: false,
            limit: (0, -1),
            get: Vec::new(),
            store_at: None,
        };
        let mut at = 2;
        while at < args.len() {
            let behind = args.len() - at - 1;
            if args.is(at, "ASC") || args.is(at, "DESC") {
                request.descending = args.is(at, "DESC");
            } else if args.is(at, "ALPHA") {
                request.alphabetic = true;
            } else if behind >= 2 && args.is(at, "LIMIT") {
                request.limit = (args.integer(at + 1)?, args.integer(at + 2)?);
                at += 2;
            } else if stores && behind >= 1 && args.is(at, "STORE") {
                at += 1;
            } else if behind >= 1 && args.is(at, "BY") {
                // Any BY without `*` turns sorting off, even if a later BY has a `*`.
                let names_keys = quotable(args.get(at + 1)).contains(&b'*');
                if names_keys && readable == ReadableKeys::Declared {
                    let line = "ERR BY option of SORT denied due to insufficient ACL permissions.";
                    return Err(CommandError::Line(line));
                }
                request.unsorted |= !names_keys;
                request.by = Some(Pattern::parse(args.get(at + 1)));
                at += 1;
            } else if behind >= 1 && args.is(at, "GET") && readable == ReadableKeys::Declared {
                // As in Redis, this also rejects `GET #`, which reads only the element itself.
                let line = "ERR GET option of SORT denied due to insufficient ACL permissions.";
                return Err(CommandError::Line(line));
            } else if behind >= 1 && args.is(at, "GET") {
                request.get.push(Pattern::parse(args.get(at + 1)));
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if stores {
            find_destination(args, &mut |at| request.store_at = Some(at));
        }
        Ok(request)
    }

    /// Returns the indexes of the requested elements among `len` sorted elements.
    fn range(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.limit.0).unwrap_or(0).min(len);
        let count = usize::try_from(self.limit.1).unwrap_or(len);
        start..start.saturating_add(count).min(len)
    }
}

/// The maximum number of elements that one recorded RPUSH pushes.
const RECORDED_ELEMENTS_MAX: usize = 1024;

/// Records `sorted` as the new value of `key`, in place of the request SORT with STORE. The same
/// request may give another result on a replica or another server:
///
/// - Servers accept different texts as weights: Redis sorts `1e400`, Valkey refuses it.
/// - A replica may still have an expired field that a pattern names.
/// - Members of a set whose weights are equal keep the order of their hash table.
fn record_stored(ctx: &mut Ctx<'_>, key: Key<'_>, sorted: &List) {
    let replaced = ctx.db.peek_even_expired(key).is_some();
    ctx.record(|record| {
        if replaced {
            record.command("DEL").word(key.bytes);
        }
        let mut pushed = 0;
        sorted.visit(|element| {
            if pushed % RECORDED_ELEMENTS_MAX == 0 {
                record.command("RPUSH").word(key.bytes);
            }
            record.word(element.text(&mut IntText::new()));
            pushed += 1;
        });
    });
}

/// The weight by which SORT orders an element: a number or a text.
enum Weight {
    Score(f64),
    /// The range in the arena of the text to compare; `None` if the pattern finds no value.
    Text(Option<Range<usize>>),
}

struct Item {
    text: Range<usize>,
    weight: Weight,
}

/// The elements that SORT orders and the texts that it compares, as ranges of bytes in the arena.
#[derive(Default)]
struct Items {
    arena: Vec<u8>,
    items: Vec<Item>,
}

impl Items {
    fn keep(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(text);
        start..self.arena.len()
    }

    fn push(&mut self, element: Element<'_>) {
        let text = self.keep(element.text(&mut IntText::new()));
        self.items.push(Item { text, weight: Weight::Text(None) });
    }

    /// Looks up the weight of each element. Fails if a weight that must be a number is not one.
    fn weigh(
        &mut self,
        db: &mut View<'_>,
        args: &Args<'_>,
        request: &Request<'_>,
    ) -> Result<(), CommandError> {
        let by = request.by.as_ref().unwrap_or(&Pattern::Element);
        let mut all_numbers = true;
        for index in 0..self.items.len() {
            let text = self.items[index].text.clone();
            self.items[index].weight = if !request.alphabetic {
                // Missing keys count as zero. All keys are looked up, even after a weight that is
                // not a number.
                Weight::Score(by.look_up(db, args, &self.arena[text], |weight| {
                    let score = weight.map_or(Some(0.0), lenient_float);
                    all_numbers &= score.is_some();
                    score.unwrap_or(0.0)
                }))
            } else if let Pattern::Element = by {
                Weight::Text(Some(text))
            } else {
                let found = by.look_up(db, args, &self.arena[text], |weight| weight.map(<[u8]>::to_vec));
                Weight::Text(found.map(|text| self.keep(&text)))
            };
        }
        if all_numbers {
            return Ok(());
        }
        Err(CommandError::Line("ERR One or more scores can't be converted into double"))
    }

    /// Sorts SORT's elements so that those at the indexes in `range` are in their final places. The
    /// others may be in any order.
    fn sort(&mut self, request: &Request<'_>, range: Range<usize>) {
        let arena = &self.arena;
        // A stored result compares whole texts. A reply compares up to the first NUL, like C's
        // strcoll.
        let shown = |text: &Range<usize>| match &arena[text.clone()] {
            text if request.store_at.is_some() => text,
            text => quotable(text),
        };
        let compare = |a: &Item, b: &Item| {
            let ordering = match (&a.weight, &b.weight) {
                (Weight::Score(x), Weight::Score(y)) => {
                    let by_text = || arena[a.text.clone()].cmp(&arena[b.text.clone()]);
                    x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(by_text)
                }
                (Weight::Text(x), Weight::Text(y)) => x.as_ref().map(shown).cmp(&y.as_ref().map(shown)),
                _ => unreachable!("all are weighed the same way"),
            };
            if request.descending { ordering.reverse() } else { ordering }
        };
        if request.by.is_some() && range != (0..self.items.len()) && !range.is_empty() {
            partial_sort(&mut self.items, range.start..=range.end - 1, compare);
        } else {
            self.items.sort_by(compare);
        }
    }
}

/// Loads the elements that SORT orders from the key and returns the range of the requested ones. If
/// the result keeps the order of a list or sorted set, only the requested elements are loaded.
fn load(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    request: &mut Request<'_>,
) -> Result<(Items, Range<usize>), CommandError> {
    let (key, mut items) = (args.key(1), Items::default());
    let Some(entry) = ctx.db.get(key) else { return Ok((items, 0..0)) };
    let EntryView::Object(object) = entry.view() else { return Err(CommandError::WrongType) };
    let range = request.range(object.element_count());
    match object {
        Object::List(list) if request.unsorted => match request.descending {
            true => {
                let end = list.len().saturating_sub(range.start);
                list.visit_range_rev(end.saturating_sub(range.len())..end, |element| items.push(element));
            }
            false => list.visit_range(range.clone(), |element| items.push(element)),
        },
        Object::Zset(zset) if request.unsorted => {
            let members = zset.iter().map(|(member, _)| member);
            match request.descending {
                true => {
                    members.rev().skip(range.start).take(range.len()).for_each(|member| items.push(member))
                }
                false => zset.range(range.clone()).for_each(|(member, _)| items.push(member)),
            }
        }
        Object::List(list) => list.visit(|element| items.push(element)),
        Object::Zset(zset) => zset.iter().for_each(|(member, _)| items.push(member)),
        Object::Set(set) => {
            set.iter().for_each(|member| items.push(member));
            // If the result is stored, or may be stored by a script, an unsorted set is sorted by
            // its texts. So the order does not depend on the set's hash table.
            if request.unsorted && (request.store_at.is_some() || ctx.origin == Origin::Script) {
                (request.unsorted, request.alphabetic, request.by) = (false, true, None);
            }
            return Ok((items, range));
        }
        _ => return Err(CommandError::WrongType),
    }
    if let Ok(Some(zset)) = ctx.db.write::<Zset>(key) {
        // After SORT, Redis keeps the sorted set as a skiplist, which OBJECT ENCODING shows.
        zset.spread(args.hasher());
    }
    let range = if request.unsorted { 0..items.items.len() } else { range };
    Ok((items, range))
}

fn sort_elements(ctx: &mut Ctx<'_>, args: &Args<'_>, stores: bool) -> Result<(), CommandError> {
    let mut request = Request::parse(args, stores, ctx.readable)?;
    let (mut items, range) = load(ctx, args, &mut request)?;
    if !request.unsorted {
        items.weigh(&mut ctx.db, args, &request)?;
        items.sort(&request, range.clone());
    }
    let Items { arena, items } = items;
    let wanted = items[range].iter().map(|item| &arena[item.text.clone()]);
    let Some(store_at) = request.store_at else {
        ctx.reply.array(wanted.len() * request.get.len().max(1));
        for element in wanted {
            if request.get.is_empty() {
                ctx.reply.bulk(element);
            }
            for pattern in &request.get {
                pattern.look_up(&mut ctx.db, args, element, |value| match value {
                    Some(value) => ctx.reply.bulk(value),
                    None => ctx.reply.null(),
                });
            }
        }
        return Ok(());
    };
    let (mut sorted, limits) = (List::new(), list::limits(ctx));
    if request.get.is_empty() {
        sorted.push(ListEnd::Back, wanted, limits);
    } else {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for element in wanted {
            for pattern in &request.get {
                // A missing value is stored as an empty string.
                let value = pattern.look_up(&mut ctx.db, args, element, |value| value.map(<[u8]>::to_vec));
                values.push(value.unwrap_or_default());
            }
        }
        sorted.push(ListEnd::Back, values.iter().map(Vec::as_slice), limits);
    }
    record_stored(ctx, args.key(store_at), &sorted);
    let changes = sorted.len() as u64;
    let stored = StoreEvents { class: EventClass::LIST, event: "sortstore", changes };
    store_result(ctx, args.key(store_at), Object::List(sorted), stored);
    Ok(())
}

const BY: Arg = Arg::pattern("by-pattern").shown_as("pattern").of_key_spec(1).token("BY").optional();
const GET: Arg =
    Arg::pattern("get-pattern").shown_as("pattern").of_key_spec(1).token("GET").optional().multiple_token();

pub(super) static SORT: Command = Command {
    name: "SORT",
    summary: "Sorts the elements of a list, a set or a sorted set, and returns or stores them.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(N+M*log(M)), N elements, M of them returned",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::PATTERN_KEYS),
    acl: Acl::WRITE.union(Acl::SET).union(Acl::SORTEDSET).union(Acl::LIST).union(Acl::DANGEROUS),
    keys: &[
        KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        KeySpec::unknown(KeyFlags::RO.union(KeyFlags::ACCESS)).noting(PATTERN_NOTES),
        KeySpec::unknown(KeyFlags::OW.union(KeyFlags::UPDATE)).noting(STORE_NOTES).found_by(find_destination),
    ],
    args: &[
        Arg::key("key", 0),
        BY,
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
        GET,
        Arg::one_of("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional(),
        Arg::word("sorting", "ALPHA").optional(),
        Arg::key("destination", 2).token("STORE").optional(),
    ],
    run: sort,
    ..Command::DEFAULT
};
/// Handles SORT: replies with the elements, or with the values that GET finds for them. With STORE
/// the reply is the number of stored elements.
fn sort(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    sort_elements(ctx, args, true)
}

pub(super) static SORT_RO: Command = Command {
    name: "SORT_RO",
    summary: "Sorts the elements of a list, a set or a sorted set, and returns them.",
    history: History::since("7.0.0"),
    group: Group::Generic,
    complexity: "O(N+M*log(M)), N elements, M of them returned",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::PATTERN_KEYS),
    acl: Acl::READ.union(Acl::SET).union(Acl::SORTEDSET).union(Acl::LIST).union(Acl::DANGEROUS),
    keys: &[
        KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        KeySpec::unknown(KeyFlags::RO.union(KeyFlags::ACCESS)).noting(PATTERN_NOTES),
    ],
    args: &[
        Arg::key("key", 0),
        BY,
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
        GET,
        Arg::one_of("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional(),
        Arg::word("sorting", "ALPHA").optional(),
    ],
    run: sort_ro,
    ..Command::DEFAULT
};
/// Handles SORT_RO: like SORT without STORE.
fn sort_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    sort_elements(ctx, args, false)
}

#[cfg(test)]
mod tests {
    use crate::ctx::Origin;
    use crate::harness::{Harness, check};

    #[test]
    fn elements_are_sorted_as_numbers_or_as_texts() {
        check(&[
            ("RPUSH l 10 9 1.5 -3 10", ":5|"),
            ("SORT l", "*5|$2|-3|$3|1.5|$1|9|$2|10|$2|10|"),
            ("SORT l DESC LIMIT 1 2", "*2|$2|10|$1|9|"),
            ("SORT l ALPHA", "*5|$2|-3|$3|1.5|$2|10|$2|10|$1|9|"),
            ("SORT l BY nosort DESC LIMIT 0 2", "*2|$2|10|$2|-3|"),
            ("SORT l BY nosort LIMIT 1 2", "*2|$1|9|$3|1.5|"),
            ("SORT l LIMIT 9 2", "*0|"),
            ("SORT l LIMIT -1 -5", "*5|$2|-3|$3|1.5|$1|9|$2|10|$2|10|"),
            ("SORT_RO nokey", "*0|"),
            ("RPUSH l x", ":6|"),
            ("SORT l", "-ERR One or more scores can't be converted into double|"),
            ("SET s x", "+OK|"),
            ("SORT s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("SORT_RO l STORE d", "-ERR syntax error|"),
            ("SORT l LIMIT 1", "-ERR syntax error|"),
            ("SORT l LIMIT a 1", "-ERR value is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn patterns_lead_to_strings_and_fields() {
        check(&[
            ("RPUSH l a b c", ":3|"),
            ("MSET w_a 3 w_b 1 n_a one n_c three", "+OK|"),
            ("HSET h_b f 7 g seven", ":2|"),
            ("SORT l BY w_* ALPHA", "*3|$1|c|$1|b|$1|a|"),
            (
                "SORT l BY w_* DESC GET # GET n_* GET h_*->g",
                "*9|$1|a|$3|one|_|$1|b|_|$5|seven|$1|c|$5|three|_|",
            ),
            ("SORT l BY h_*->f LIMIT 1 2 GET #", "*2|$1|c|$1|b|"),
            ("SORT l BY w_* GET n_* STORE d", ":3|"),
            ("LRANGE d 0 -1", "*3|$5|three|$0||$3|one|"),
            ("SORT l BY w_*", "*3|$1|c|$1|b|$1|a|"),
        ]);
    }

    #[test]
    fn sorted_sets_keep_their_order_where_nothing_is_sorted() {
        check(&[
            ("ZADD z 3 a 2 b 1 c", ":3|"),
            ("SORT z BY nosort", "*3|$1|c|$1|b|$1|a|"),
            ("SORT z BY nosort DESC LIMIT 1 1", "*1|$1|b|"),
            ("SORT z ALPHA DESC", "*3|$1|c|$1|b|$1|a|"),
            ("OBJECT ENCODING z", "$8|skiplist|"),
            ("SORT z BY nosort STORE z", ":3|"),
            ("LRANGE z 0 -1", "*3|$1|c|$1|b|$1|a|"),
        ]);
    }

    #[test]
    fn a_script_gets_a_set_in_order_where_nothing_is_sorted() {
        let mut db = Harness::new();
        db.line("SADD s a b c d e f g h i j k l");
        db.line("ZADD z 3 a 2 b 1 c");
        db.origin = Origin::Script;
        assert_eq!(db.line("SORT s BY nosort LIMIT 0 3"), "*3|$1|a|$1|b|$1|c|");
        assert_eq!(db.line("SORT s BY nosort DESC LIMIT 0 3"), "*3|$1|l|$1|k|$1|j|");
        assert_eq!(db.line("SORT_RO s BY nosort LIMIT 0 3"), "*3|$1|a|$1|b|$1|c|");
        assert_eq!(db.line("SORT z BY nosort"), "*3|$1|c|$1|b|$1|a|");
    }

    #[test]
    fn a_stored_result_is_an_event() {
        Harness::new().check_events(&[
            ("SADD s 2 1", ":2|", "sadd s@0"),
            ("SORT s BY nosort STORE d", ":2|", "sortstore d@0"),
            ("SORT nokey STORE d", ":0|", "del d@0"),
        ]);
    }
}

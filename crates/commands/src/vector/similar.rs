//! VSIM, and its searches.
//!
//! A search runs on a pinned version of the set. So a client's search needs
//! the lock of the key only until it begins: the handler leaves it in
//! [`Changes::search`](crate::Changes::search), and the engine runs it, in slices if it is long. In
//! a transaction or script, and with NOTHREAD, the handler runs it.

use keyspace::{Leftover, PinnedSet, VectorSet};
use resp::{Protocol, Reply};
use structures::vector::{Limits, PausableSearch, Query, Slot, VectorIndex};

use super::filter::Filter;
use super::input::{INVALID_VECTOR, InputVector, wrong_dimension, wrong_input_dimension};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::search::Search;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::wait::BlockingMode;

/// The number of elements in the reply of VSIM without the option COUNT.
const COUNT_DEFAULT: usize = 10;

/// The least number of candidates of a search of VSIM without the option EF.
const EF_DEFAULT: usize = 100;

/// The number of nodes that a search with a filter inspects for each wanted element, without the
/// option FILTER-EF.
const FILTER_EFFORT_PER_ELEMENT: usize = 100;

pub(super) static VSIM: Command = Command {
    name: "VSIM",
    summary: "Returns the elements of a vector set that are most similar to a vector or an element.",
    history: History::since("8.0.0").changed(&[("8.2.0", "takes WITHATTRIBS and EPSILON")]),
    group: Group::VectorSet,
    complexity: "O(log(N)) with N being the number of elements; O(N) with TRUTH",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ,
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "query",
            &[
                Arg::string("element").token("ELE"),
                Arg::string("blob").token("FP32"),
                Arg::block("values", &[Arg::integer("num").token("VALUES"), Arg::double("value").multiple()]),
            ],
        ),
        Arg::word("withscores", "WITHSCORES").optional(),
        Arg::word("withattribs", "WITHATTRIBS").since("8.2.0").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::double("delta").token("EPSILON").since("8.2.0").optional(),
        Arg::integer("search-exploration-factor").token("EF").optional(),
        Arg::string("expression").token("FILTER").optional(),
        Arg::integer("max-filtering-effort").token("FILTER-EF").optional(),
        Arg::word("truth", "TRUTH").optional(),
        Arg::word("nothread", "NOTHREAD").optional(),
    ],
    run: vsim,
    ..Command::DEFAULT
};
/// Handles VSIM: replies with the elements, the most similar first, with their scores and
/// attributes if wanted. A missing key gives an empty array.
fn vsim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let Some(set) = ctx.db.read::<VectorSet>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let (query, next) = query(set, args)?;
    let options = Options::parse(args, next)?;
    let is_left_to_engine = ctx.on_empty == BlockingMode::Block && !options.is_inline;
    let mut search = VectorSearch::new(set.pin(), query, options);
    if is_left_to_engine {
        ctx.effects.search = Some(Box::new(search));
    } else {
        search.run(&mut ctx.reply, &mut || false);
    }
    Ok(())
}

/// Parses the vector or element to search for at argument 2 of VSIM. Also returns the index of the
/// argument after it.
fn query(set: &VectorSet, args: &Args<'_>) -> Result<(Query, usize), CommandError> {
    if args.is(2, "ELE") {
        let slot = set.index().find(args.get(3));
        let slot = slot.ok_or(CommandError::Line("ERR element not found in set"))?;
        // As in Redis, the shown vector of the element is the query. The loss of its quantization
        // counts twice, so an element has not always the score 1 for itself.
        let index = set.index();
        let query = index.query(&index.vector(slot)).unwrap_or_else(|_| index.query_of(slot));
        return Ok((query, 4));
    }
    let InputVector { values, next } = InputVector::parse(args, 2)?;
    let input_dim = set.projection().map(|projection| projection.from());
    if values.len() != set.dim() && Some(values.len()) != input_dim {
        return Err(match input_dim {
            Some(expected) => wrong_input_dimension(values.len(), expected),
            None => wrong_dimension(values.len(), set.dim()),
        });
    }
    Ok((set.query(&values).map_err(|_| INVALID_VECTOR)?, next))
}

/// The options of a VSIM request.
struct Options {
    count: usize,
    /// The number of candidates of the search (EF); `None` if the client named none.
    ef: Option<usize>,
    /// The largest distance of an element in the reply, as `1 - score`.
    epsilon: Option<f64>,
    filter: Option<Filter>,
    /// The number of nodes that a search with a filter may inspect (FILTER-EF); `None` if the
    /// client named none.
    filter_effort: Option<usize>,
    with_scores: bool,
    with_attributes: bool,
    /// True if the query is compared with all elements instead of a search in the graph (TRUTH).
    exact: bool,
    /// True if the handler runs the search (NOTHREAD).
    is_inline: bool,
}

impl Options {
    fn parse(args: &Args<'_>, from: usize) -> Result<Self, CommandError> {
        let mut options = Self {
            count: COUNT_DEFAULT,
            ef: None,
            epsilon: None,
            filter: None,
            filter_effort: None,
            with_scores: false,
            with_attributes: false,
            exact: false,
            is_inline: false,
        };
        let mut at = from;
        while at < args.len() {
            at += options.parse_option(args, at)?;
        }
        Ok(options)
    }

    /// Parses the option of VSIM at argument `at`. Returns the number of the option's words.
    fn parse_option(&mut self, args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
        if args.is(at, "WITHSCORES") {
            self.with_scores = true;
            return Ok(1);
        } else if args.is(at, "WITHATTRIBS") {
            self.with_attributes = true;
            return Ok(1);
        } else if args.is(at, "TRUTH") {
            self.exact = true;
            return Ok(1);
        } else if args.is(at, "NOTHREAD") {
            self.is_inline = true;
            return Ok(1);
        }
        let syntax = CommandError::Line("ERR syntax error in VSIM command");
        if at + 1 >= args.len() {
            return Err(syntax);
        }
        let positive = |error: &'static str| {
            let number = args.integer(at + 1).ok().filter(|&number| number > 0);
            number.map(|number| number as usize).ok_or(CommandError::Line(error))
        };
        if args.is(at, "COUNT") {
            self.count = positive("ERR invalid COUNT")?;
        } else if args.is(at, "EF") {
            self.ef = Some(positive("ERR invalid EF")?);
        } else if args.is(at, "FILTER-EF") {
            self.filter_effort = Some(positive("ERR invalid FILTER-EF")?);
        } else if args.is(at, "EPSILON") {
            let delta = args.float(at + 1).ok().filter(|&delta| delta > 0.0);
            self.epsilon = Some(delta.ok_or(CommandError::Line("ERR invalid EPSILON"))?);
        } else if args.is(at, "FILTER") {
            self.filter = Some(Filter::parse(args.get(at + 1))?);
        } else {
            return Err(syntax);
        }
        Ok(2)
    }
}

/// The work of a step of a search, in bytes of compared vectors: some dozens of microseconds.
const STEP_LEN_BYTES: usize = 256 << 10;
/// The same for a search that evaluates a filter: eight evaluations.
const FILTER_STEP_LEN_BYTES: usize = 8 << 10;
/// The bytes of names and attributes that are written to the reply in a step.
const REPLY_STEP_LEN_BYTES: usize = 32 << 10;
/// The work of writing an element besides its name and attributes, in bytes.
const ELEMENT_LEN_BYTES: usize = 128;
/// The number of operands and operators above which each evaluation of a filter is a step.
const SHORT_FILTER_LEN_MAX: usize = 16;

/// A search of VSIM on a version of its set. It shares the memory of the set; what changes in the
/// set meanwhile is kept for the search.
struct VectorSearch {
    set: PinnedSet,
    query: Query,
    options: Options,
    search: PausableSearch,
    /// The state of the reply; `None` until the search has ended.
    reply: Option<ReplyState>,
}

/// A reply that is being written.
struct ReplyState {
    /// The number of elements in the reply.
    len: usize,
    /// The number of elements that are written.
    written: usize,
}

impl VectorSearch {
    /// Creates a search on a version of a set. No list is longer than the set.
    fn new(set: PinnedSet, query: Query, options: Options) -> Self {
        let (index, len) = (set.version().index(), set.version().len());
        let count = options.count.min(len);
        let search = if options.exact {
            index.begin_scan(count)
        } else {
            let default = || count.saturating_mul(FILTER_EFFORT_PER_ELEMENT);
            let effort = options.filter_effort.unwrap_or_else(default);
            let limits = Limits {
                count,
                ef: options.ef.unwrap_or(EF_DEFAULT).max(count).min(len),
                effort_max: options.filter.is_some().then_some(effort),
            };
            index.begin_search(&query, limits)
        };
        Self { set, query, options, search, reply: None }
    }

    /// Continues the search. Returns true if it has ended. A step evaluates the filter at least
    /// once, so it takes longer with a long expression or long attributes.
    fn find(&mut self, pauses: &mut dyn FnMut() -> bool) -> bool {
        let index = self.set.version().index();
        let filter = self.options.filter.as_ref();
        let step_len_bytes = match filter {
            None => STEP_LEN_BYTES,
            Some(filter) if filter.len() <= SHORT_FILTER_LEN_MAX => FILTER_STEP_LEN_BYTES,
            Some(_) => 1,
        };
        let accept = |slot: Slot| match filter {
            None => true,
            Some(filter) => index.attributes(slot).is_some_and(|attributes| filter.holds(attributes)),
        };
        while !index.advance(&mut self.search, &self.query, step_len_bytes, accept) {
            if pauses() {
                return false;
            }
        }
        true
    }

    /// Begins the reply. The search has ended.
    fn begin_reply(&self, reply: &mut Reply<'_>) -> ReplyState {
        let epsilon = self.options.epsilon;
        let len = self.search.found_len(|score| epsilon.is_none_or(|epsilon| 1.0 - score <= epsilon));
        self.options.write_len(reply, len);
        ReplyState { len, written: 0 }
    }

    /// Continues the reply. Returns true if it is complete.
    fn write_on(
        &self,
        state: &mut ReplyState,
        reply: &mut Reply<'_>,
        pauses: &mut dyn FnMut() -> bool,
    ) -> bool {
        let index = self.set.version().index();
        let mut step_len_bytes = 0;
        for found in self.search.found_at(state.written..state.len) {
            if step_len_bytes >= REPLY_STEP_LEN_BYTES {
                step_len_bytes = 0;
                if pauses() {
                    return false;
                }
            }
            step_len_bytes += self.options.write_element(reply, index, found) + ELEMENT_LEN_BYTES;
            state.written += 1;
        }
        true
    }
}

impl Search for VectorSearch {
    fn run(&mut self, reply: &mut Reply<'_>, pauses: &mut dyn FnMut() -> bool) -> bool {
        let mut state = match self.reply.take() {
            Some(state) => state,
            None if self.find(pauses) => self.begin_reply(reply),
            None => return false,
        };
        let is_complete = self.write_on(&mut state, reply, pauses);
        self.reply = Some(state);
        is_complete
    }

    fn end(self: Box<Self>) -> Option<Leftover> {
        self.set.release()
    }
}

impl Options {
    /// Returns true if each element has an array of its score and attributes.
    fn is_nested(&self, protocol: Protocol) -> bool {
        self.with_scores && self.with_attributes && protocol == Protocol::Resp3
    }

    /// Writes the number of elements of the reply.
    fn write_len(&self, reply: &mut Reply<'_>, len: usize) {
        match (self.with_scores, self.with_attributes) {
            (false, false) => reply.array(len),
            (true, true) if !self.is_nested(reply.protocol()) => reply.array(3 * len),
            _ => reply.map(len),
        }
    }

    /// Writes an element of the reply. Returns the bytes of its name and attributes.
    fn write_element(&self, reply: &mut Reply<'_>, index: &VectorIndex, (slot, score): (Slot, f64)) -> usize {
        let name = index.name(slot);
        reply.bulk(name);
        if self.is_nested(reply.protocol()) {
            reply.array(2);
        }
        if self.with_scores {
            reply.double(score);
        }
        if !self.with_attributes {
            return name.len();
        }
        let attributes = index.attributes(slot);
        match attributes {
            Some(attributes) => reply.bulk(attributes),
            None => reply.null(),
        }
        name.len() + attributes.map_or(0, <[u8]>::len)
    }
}

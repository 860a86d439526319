//! Commands that change streams.

use keyspace::{
    Keep, NewId, ObjectType, References, Stream, StreamId, StreamLimits, StreamTrimmed, TrimEffort,
};

use super::idempotent::{self, IdempotentId};
use super::record::RemovedEntries;
use super::remove::references_word;
use super::{IdArgument, parse_id, reply_id};
use crate::args::Args;
use crate::ctx::{Changes, Ctx, EventClass, ValueLimits};
use crate::error::CommandError;
use crate::record::RecordWriter;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XADD: Command = Command {
    name: "XADD",
    summary: "Appends an entry to a stream. Creates the stream if it does not exist.",
    history: History::since("5.0.0").changed(&[
        ("6.2.0", "takes NOMKSTREAM, MINID and LIMIT"),
        ("7.0.0", "takes IDs with an automatic sequence number (5-*)"),
        ("8.2.0", "takes KEEPREF, DELREF and ACKED"),
        ("8.6.0", "takes IDMP and IDMPAUTO"),
    ]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))
        .noting("UPDATE instead of INSERT because of the optional trimming feature")],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::word("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
        REFERENCES,
        Arg::one_of(
            "idempotency",
            &[
                Arg::string("producer-id").token("IDMPAUTO"),
                Arg::block("idmp", &[Arg::string("producer-id"), Arg::string("idempotent-id")]).token("IDMP"),
            ],
        )
        .since("8.6.0")
        .optional(),
        Arg::block(
            "trim",
            &[
                Arg::one_of(
                    "strategy",
                    &[Arg::word("maxlen", "MAXLEN"), Arg::word("minid", "MINID").since("6.2.0")],
                ),
                Arg::one_of("operator", &[Arg::word("equal", "="), Arg::word("approximately", "~")])
                    .optional(),
                Arg::string("threshold"),
                Arg::integer("count").token("LIMIT").since("6.2.0").optional(),
            ],
        )
        .optional(),
        Arg::one_of("id-selector", &[Arg::word("auto-id", "*"), Arg::string("id")]),
        Arg::block("data", &[Arg::string("field"), Arg::string("value")]).multiple(),
    ],
    recorded_forms: &[
        RecordedForm::replaced("KEEPREF"),
        RecordedForm::replaced("DELREF"),
        RecordedForm::replaced("ACKED"),
        RecordedForm::replaced("IDMP"),
        RecordedForm::replaced("IDMPAUTO"),
    ],
    run: xadd,
    ..Command::DEFAULT
};
/// Handles XADD: replies with the new entry's ID, or null if there is no stream and NOMKSTREAM is
/// given.
fn xadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let limits = limits(ctx);
    let request = AddRequest::parse(args, ctx.limits)?;
    let key = args.key(1);
    if request.no_create && ctx.db.write::<Stream>(key)?.is_none() {
        ctx.reply.null();
        return Ok(());
    }
    let (now_ms, db) = (u64::try_from(ctx.db.now_ms()).unwrap_or(0), ctx.db.index());
    let message = request.idempotent.as_ref().map(IdempotentId::message);
    let stream = ctx.db.write_or_insert::<Stream>(key)?;
    if let Some(id) = message.and_then(|message| idempotent::duplicate_of(stream, message, now_ms)) {
        reply_id(&mut ctx.reply, id);
        ctx.effects.record.replace(db, |_| {});
        return Ok(());
    }
    if stream.last_id() == StreamId::MAX {
        return Err(CommandError::Line(EXHAUSTED));
    }
    let id = stream.new_id(request.id, now_ms).ok_or(CommandError::Line(NOT_ASCENDING))?;
    // As in Redis, a stream created for an entry that is too large remains.
    let appended = stream.append(id, args.from(request.fields_at), limits);
    appended.map_err(|_| CommandError::Line("ERR Elements are too large to be stored"))?;
    reply_id(&mut ctx.reply, id);
    if let Some(message) = message {
        stream.idempotence_mut().add(message, id, now_ms);
    }
    let trimmed = request.trim.map(|trim| trim_stream(stream, trim, ctx.effects));
    if !request.is_exact() {
        ctx.effects.record.replace(db, |record| {
            request.record(record, args, stream, id, &trimmed);
            if let Some(message) = message {
                idempotent::record_message(record, key.bytes, message, id);
            }
        });
    }
    ctx.changed(EventClass::STREAM, "xadd", key);
    if trimmed.is_some_and(|trimmed| trimmed.removed > 0) {
        ctx.changed_by(0, EventClass::STREAM, "xtrim", key);
    }
    ctx.invalidate_after_events(key);
    Ok(())
}

const EXHAUSTED: &str = "ERR The stream has exhausted the last possible ID, unable to add more items";
const NOT_ASCENDING: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";

pub(super) static XTRIM: Command = Command {
    name: "XTRIM",
    summary: "Removes the oldest entries of a stream.",
    history: History::since("5.0.0")
        .changed(&[("6.2.0", "takes MINID and LIMIT"), ("8.2.0", "takes KEEPREF, DELREF and ACKED")]),
    group: Group::Stream,
    complexity: "O(N)",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "trim",
            &[
                Arg::one_of(
                    "strategy",
                    &[Arg::word("maxlen", "MAXLEN"), Arg::word("minid", "MINID").since("6.2.0")],
                ),
                Arg::one_of("operator", &[Arg::word("equal", "="), Arg::word("approximately", "~")])
                    .optional(),
                Arg::string("threshold"),
                Arg::integer("count").token("LIMIT").since("6.2.0").optional(),
                REFERENCES,
            ],
        ),
    ],
    recorded_forms: REFERENCE_FORMS,
    run: xtrim,
    ..Command::DEFAULT
};
/// Handles XTRIM: replies with the number of removed entries.
fn xtrim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let mut options = TrimOptions::default();
    let mut at = 2;
    while at < args.len() {
        at = options.parse_at(args, at)?.ok_or(CommandError::Syntax)?;
    }
    let no_strategy = CommandError::Line("ERR syntax error, XTRIM must be called with a trimming strategy");
    if options.keep.is_none() && options.limit.is_none_or(|limit| limit == 0) {
        return Err(no_strategy);
    }
    let trim = options.finish(ctx.limits)?.expect("a strategy was given, or finish complained");
    let (key, db) = (args.key(1), ctx.db.index());
    let removed = match ctx.db.write::<Stream>(key)? {
        Some(stream) => {
            let trimmed = trim_stream(stream, trim, ctx.effects);
            let removed = trimmed.removed;
            if removed > 0 && (trim.is_approximate() || options.references.is_some()) {
                ctx.effects.record.replace(db, |record| {
                    if trimmed.removed > trimmed.removed_behind_kept.len() {
                        record.command("XTRIM").word(key.bytes);
                        trim.record(record, stream, &trimmed);
                    }
                    record_references(record, key.bytes, stream, &trimmed);
                });
            }
            removed
        }
        None => 0,
    };
    ctx.reply.integer(removed as i64);
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::STREAM, "xtrim", key);
        ctx.invalidate_after_events(key);
    }
    Ok(())
}

pub(super) static XSETID: Command = Command {
    name: "XSETID",
    summary: "Sets the last ID of a stream, its count of added entries and its largest deleted ID.",
    history: History::since("5.0.0").changed(&[("7.0.0", "takes ENTRIESADDED and MAXDELETEDID")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::string("last-id"),
        Arg::integer("entries-added").token("ENTRIESADDED").since("7.0.0").optional(),
        Arg::string("max-deleted-id").token("MAXDELETEDID").since("7.0.0").optional(),
    ],
    recorded_forms: &[
        RecordedForm::with_word("ENTRIESADDED", 3, KnownSince::REDIS_7),
        RecordedForm::with_word("MAXDELETEDID", 3, KnownSince::REDIS_7),
    ],
    run: xsetid,
    ..Command::DEFAULT
};
/// Handles XSETID: replies with OK.
fn xsetid(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let past = StreamHistory::parse(args)?;
    let key = args.key(1);
    let stream = ctx.db.write::<Stream>(key)?.ok_or(CommandError::NoSuchKey)?;
    past.apply(stream)?;
    ctx.reply.ok();
    ctx.changed_groups("xsetid", key);
    Ok(())
}

/// The last ID, the number of entries ever added and the highest deleted ID that XSETID sets.
struct StreamHistory {
    last_id: StreamId,
    entries_added: Option<u64>,
    /// The new highest deleted ID; `0-0` leaves it unchanged.
    max_deleted_id: StreamId,
}

impl StreamHistory {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let last_id = parse_id(args.get(2), 0)?;
        let mut past = Self { last_id, entries_added: None, max_deleted_id: StreamId::MIN };
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if has_value && args.is(at, "ENTRIESADDED") {
                let count = u64::try_from(args.integer(at + 1)?);
                let negative = CommandError::MustBePositive("entries_added");
                past.entries_added = Some(count.map_err(|_| negative)?);
            } else if has_value && args.is(at, "MAXDELETEDID") {
                past.max_deleted_id = parse_id(args.get(at + 1), 0)?;
                if past.last_id < past.max_deleted_id {
                    return Err(CommandError::Line(BELOW_PROVIDED_DELETED));
                }
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(past)
    }

    fn apply(&self, stream: &mut Stream) -> Result<(), CommandError> {
        if self.last_id < stream.max_deleted_id() {
            return Err(CommandError::Line(BELOW_DELETED));
        }
        if self.last_id < stream.last_entry_id() {
            return Err(CommandError::Line(BELOW_TOP_ITEM));
        }
        if self.entries_added.is_some_and(|count| count < stream.len() as u64) {
            return Err(CommandError::Line(FEWER_ADDED_THAN_PRESENT));
        }
        stream.set_last_id(self.last_id);
        if let Some(count) = self.entries_added {
            stream.set_entries_added(count);
        }
        if self.max_deleted_id != StreamId::MIN {
            stream.set_max_deleted_id(self.max_deleted_id);
        }
        Ok(())
    }
}

const BELOW_PROVIDED_DELETED: &str =
    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
const BELOW_DELETED: &str = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
const BELOW_TOP_ITEM: &str = "ERR The ID specified in XSETID is smaller than the target stream top item";
const FEWER_ADDED_THAN_PRESENT: &str =
    "ERR The entries_added specified in XSETID is smaller than the target stream length";

/// Returns the limits of a stream's nodes (entries, bytes) from the configuration.
#[inline]
fn limits(ctx: &Ctx<'_>) -> StreamLimits {
    StreamLimits {
        node_bytes_max: ctx.limits.stream_node_max_bytes,
        node_entries_max: ctx.limits.stream_node_max_entries,
    }
}

/// Trims the stream and returns the removed entries. Many removed entries are lazy freed.
fn trim_stream(stream: &mut Stream, trim: Trim, effects: &mut Changes) -> StreamTrimmed {
    let mut trimmed = stream.trim(trim.keep, trim.effort, trim.references);
    if let Some(leftovers) = trimmed.leftovers.take() {
        effects.lazy_free_object(leftovers.into_object());
    }
    trimmed
}

/// Records the changes that a trim with DELREF or ACKED makes in addition to a plain trim.
fn record_references(record: &mut RecordWriter<'_>, key: &[u8], stream: &Stream, trimmed: &StreamTrimmed) {
    let (acknowledged, removed) = (trimmed.acknowledged.clone(), trimmed.removed_behind_kept.clone());
    RemovedEntries { acknowledged, removed }.record(record, stream, key);
}

/// A parsed request of XADD.
struct AddRequest<'a> {
    id: NewId,
    idempotent: Option<IdempotentId<'a>>,
    no_create: bool,
    trim: Option<Trim>,
    /// True if KEEPREF, DELREF or ACKED is given, with or without a trim.
    names_references: bool,
    /// The index of the argument that is the first field of the new entry.
    fields_at: usize,
}

impl<'a> AddRequest<'a> {
    /// Returns true if the XADD request leads to the same entry and the same trim on every copy of
    /// the stream.
    fn is_exact(&self) -> bool {
        matches!(self.id, NewId::Given(_))
            && !self.names_references
            && !self.trim.is_some_and(|trim| trim.is_approximate())
    }

    /// Records the XADD request with the ID of its entry, and with an exact trim in place of an
    /// approximate one.
    fn record(
        &self,
        record: &mut RecordWriter<'_>,
        args: &Args<'_>,
        stream: &Stream,
        id: StreamId,
        trimmed: &Option<StreamTrimmed>,
    ) {
        let xadd = record.command("XADD").word(args.get(1));
        if self.no_create {
            xadd.word(b"NOMKSTREAM");
        }
        if let (Some(trim), Some(trimmed)) = (self.trim, trimmed) {
            trim.record(xadd, stream, trimmed);
        }
        xadd.id(id).words(args.from(self.fields_at));
        if let Some(trimmed) = trimmed {
            record_references(record, args.get(1), stream, trimmed);
        }
    }

    #[inline]
    fn parse(args: &Args<'a>, limits: &ValueLimits) -> Result<Self, CommandError> {
        let (mut options, mut no_create, mut id) = (TrimOptions::default(), false, None);
        let mut idempotent = None;
        let mut at = 2;
        while id.is_none() && at < args.len() {
            if args.get(at) == b"*" {
                id = Some(NewId::Auto);
                at += 1;
            } else if let Some(next) = options.parse_at(args, at)? {
                at = next;
            } else if args.is(at, "NOMKSTREAM") {
                no_create = true;
                at += 1;
            } else if let Some(next) = IdempotentId::parse_at(&mut idempotent, args, at)? {
                at = next;
            } else {
                id = Some(match IdArgument::parse(args.get(at))? {
                    IdArgument::Ms(ms) => NewId::Given(StreamId { ms, seq: 0 }),
                    IdArgument::Full(id) => NewId::Given(id),
                    IdArgument::AutoSeq(ms) => NewId::AutoSeq(ms),
                });
                at += 1;
            }
        }
        let trim = options.finish(limits)?;
        let words = args.len() - at;
        let Some(id) = id.filter(|_| words >= 2 && words.is_multiple_of(2)) else {
            return Err(CommandError::WrongArity("xadd"));
        };
        if idempotent.is_some() && id != NewId::Auto {
            let given = "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs";
            return Err(CommandError::Line(given));
        }
        if id == NewId::Given(StreamId::MIN) {
            return Err(CommandError::Line("ERR The ID specified in XADD must be greater than 0-0"));
        }
        if let Some(idempotent) = &mut idempotent {
            idempotent.complete(args.from(at));
        }
        let names_references = options.references.is_some();
        Ok(Self { id, idempotent, no_create, trim, names_references, fields_at: at })
    }
}

/// The argument KEEPREF, DELREF or ACKED: the treatment of trimmed entries that consumer groups
/// still reference.
const REFERENCES: Arg = Arg::one_of(
    "condition",
    &[
        Arg::word("keepref", "KEEPREF").since("8.2.0"),
        Arg::word("delref", "DELREF").since("8.2.0"),
        Arg::word("acked", "ACKED").since("8.2.0"),
    ],
)
.optional();

/// The command forms with KEEPREF, DELREF or ACKED. Trims are recorded without these words.
const REFERENCE_FORMS: &[RecordedForm] =
    &[RecordedForm::replaced("KEEPREF"), RecordedForm::replaced("DELREF"), RecordedForm::replaced("ACKED")];

/// A trim that a request of XADD or XTRIM asks for.
#[derive(Clone, Copy)]
struct Trim {
    keep: Keep,
    effort: TrimEffort,
    references: References,
}

impl Trim {
    /// Returns true if the trim removes only whole nodes of the stream (`~`), so that its result
    /// depends on their sizes.
    fn is_approximate(&self) -> bool {
        matches!(self.effort, TrimEffort::WholeNodes { .. })
    }

    /// Returns true if the result of the trim depends on the stream's nodes or on its consumer
    /// groups.
    fn depends_on_stream(&self) -> bool {
        self.is_approximate() || self.references == References::Acknowledged
    }

    /// Records the options of an exact trim, without regard to references, that leaves the same
    /// entries as this trim did. The recorded trim also leaves the entries that this trim removed
    /// after an entry that it kept.
    fn record(&self, record: &mut RecordWriter<'_>, stream: &Stream, trimmed: &StreamTrimmed) {
        match (self.keep, self.references) {
            (_, References::Acknowledged) | (Keep::Last(_), _) if self.depends_on_stream() => {
                let len = stream.len() + trimmed.removed_behind_kept.len();
                record.words([&b"MAXLEN"[..], b"="]).integer(len);
            }
            (Keep::Last(count), _) => _ = record.words([&b"MAXLEN"[..], b"="]).integer(count),
            (Keep::From(id), _) if !self.is_approximate() => {
                record.words([&b"MINID"[..], b"="]).id(id);
            }
            (Keep::From(_), _) => {
                let first = if stream.is_empty() { StreamId::MAX } else { stream.first_entry_id() };
                record.words([&b"MINID"[..], b"="]).id(first);
            }
        }
    }
}

/// The trimming options of XADD and XTRIM while they are parsed.
#[derive(Default)]
struct TrimOptions {
    keep: Option<Keep>,
    approximate: bool,
    limit: Option<usize>,
    references: Option<References>,
}

/// The maximum number of full nodes whose entries an approximate trim without LIMIT removes.
const NODES_TRIMMED_MAX: usize = 100;
/// The maximum number of entries that an approximate trim without LIMIT removes, if the number of
/// entries per node is unlimited.
const ENTRIES_TRIMMED_DEFAULT: usize = 10_000;
/// The maximum number of entries that any approximate trim without LIMIT removes.
const ENTRIES_TRIMMED_MAX: usize = 1_000_000;

impl TrimOptions {
    /// Parses the trimming option (MAXLEN, MINID, LIMIT) at argument `at`, if there is one, and
    /// returns the index after it.
    fn parse_at(&mut self, args: &Args<'_>, at: usize) -> Result<Option<usize>, CommandError> {
        let has_value = at + 1 < args.len();
        if has_value && args.is(at, "MAXLEN") {
            let value_at = self.parse_operator(args, at + 1)?;
            let count = u64::try_from(args.integer(value_at)?);
            self.keep = Some(Keep::Last(
                count.map_err(|_| CommandError::Line("ERR The MAXLEN argument must be >= 0."))?,
            ));
            Ok(Some(value_at + 1))
        } else if has_value && args.is(at, "MINID") {
            let value_at = self.parse_operator(args, at + 1)?;
            self.keep = Some(Keep::From(parse_id(args.get(value_at), 0)?));
            Ok(Some(value_at + 1))
        } else if has_value && args.is(at, "LIMIT") {
            let limit = usize::try_from(args.integer(at + 1)?);
            self.limit = Some(limit.map_err(|_| CommandError::Line("ERR The LIMIT argument must be >= 0."))?);
            Ok(Some(at + 2))
        } else if self.references.is_none() {
            self.references = references_word(args, at);
            Ok(self.references.map(|_| at + 1))
        } else {
            Ok(None)
        }
    }

    /// Parses `=` or `~` of MAXLEN or MINID at argument `at`, if present, and returns the index of
    /// the threshold that follows.
    fn parse_operator(&mut self, args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
        if self.keep.is_some() {
            let both = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
            return Err(CommandError::Line(both));
        }
        self.approximate = args.get(at) == b"~" && at + 1 < args.len();
        let is_operator = self.approximate || args.get(at) == b"=" && at + 1 < args.len();
        Ok(at + usize::from(is_operator))
    }

    /// Returns the trim that the options request, or `None` if they request none.
    #[inline]
    fn finish(&self, limits: &ValueLimits) -> Result<Option<Trim>, CommandError> {
        if self.keep.is_none() && self.limit.is_some_and(|limit| limit > 0) {
            let no_strategy = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
            return Err(CommandError::Line(no_strategy));
        }
        let effort = match (self.approximate, self.limit) {
            (false, None) => TrimEffort::Exact,
            // Redis records `~` as `=` with the threshold that the trim reached, but does not
            // remove LIMIT.
            (false, Some(_)) if limits.takes_recorded_forms => TrimEffort::Exact,
            (false, Some(_)) => {
                let exact = "ERR syntax error, LIMIT cannot be used without the special ~ option";
                return Err(CommandError::Line(exact));
            }
            (true, Some(entries_max)) => TrimEffort::WholeNodes { entries_max },
            (true, None) => {
                let entries_max = match limits.stream_node_max_entries.saturating_mul(NODES_TRIMMED_MAX) {
                    0 => ENTRIES_TRIMMED_DEFAULT,
                    max => max.min(ENTRIES_TRIMMED_MAX),
                };
                TrimEffort::WholeNodes { entries_max }
            }
        };
        let references = self.references.unwrap_or_default();
        Ok(self.keep.map(|keep| Trim { keep, effort, references }))
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument|";
    const TOP_ITEM: &str =
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item|";

    #[test]
    fn ids_are_given_or_made_from_the_clock() {
        let id = |seq: u32| format!("$15|{START_MS}-{seq}|");
        let (first, second) = (id(0), id(1));
        check(&[
            ("XADD s 5-3 a b", "$3|5-3|"),
            ("XADD s 5-* a b", "$3|5-4|"),
            ("XADD s 5-4 a b", TOP_ITEM),
            ("XADD s 4-* a b", TOP_ITEM),
            ("XADD s 6 a b", "$3|6-0|"),
            ("XADD s * a b", &first),
            ("XADD s * a b", &second),
            ("XLEN s", ":5|"),
            ("XADD s 0-0 a b", "-ERR The ID specified in XADD must be greater than 0-0|"),
            ("XADD s x a b", INVALID_ID),
            ("XADD s * a b c", "-ERR wrong number of arguments for 'xadd' command|"),
            ("XADD s MAXLEN 5 9-9", "-ERR wrong number of arguments for 'xadd' command|"),
            ("XADD none NOMKSTREAM * a b", "_|"),
            ("XLEN none", ":0|"),
            (
                "XADD s 18446744073709551615-18446744073709551615 a b",
                "$41|18446744073709551615-18446744073709551615|",
            ),
            ("XADD s * a b", "-ERR The stream has exhausted the last possible ID, unable to add more items|"),
            ("SET str v", "+OK|"),
            ("XADD str * a b", WRONG_TYPE),
        ]);
    }

    #[test]
    fn adding_trims_exactly_or_by_whole_nodes() {
        let mut db = Harness::new();
        db.limits.stream_node_max_entries = 2;
        for ms in 1..=6 {
            db.run(&["XADD", "s", &ms.to_string(), "a", "b"]);
        }
        let mut check = |line: &str, reply: &str, len: &str| {
            assert_eq!(db.line(line), reply, "{line}");
            assert_eq!(db.line("XLEN s"), len, "{line}");
        };
        check("XADD s MAXLEN ~ 6 7 a b", "$3|7-0|", ":7|");
        check("XADD s MAXLEN ~ 6 8 a b", "$3|8-0|", ":6|");
        check("XADD s MAXLEN = 5 9 a b", "$3|9-0|", ":5|");
        check("XADD s MINID 7 10 a b", "$4|10-0|", ":4|");
        check("XTRIM s MINID ~ 8", ":0|", ":4|");
        check("XTRIM s MAXLEN ~ 0 LIMIT 1", ":0|", ":4|");
        check("XTRIM s MAXLEN ~ 0 LIMIT 2", ":2|", ":2|");
        check("XTRIM s MAXLEN 0", ":2|", ":0|");
    }

    #[test]
    fn the_limit_of_a_recorded_exact_trim_is_ignored() {
        let mut db = Harness::new();
        db.limits.takes_recorded_forms = true;
        for ms in 1..=6 {
            db.run(&["XADD", "s", &ms.to_string(), "a", "b"]);
        }
        assert_eq!(db.line("XTRIM s MAXLEN = 5 LIMIT 3"), ":1|");
        assert_eq!(db.line("XADD s MAXLEN = 2 LIMIT 1 7 a b"), "$3|7-0|");
        assert_eq!(db.line("XADD s MINID = 7 LIMIT 0 8 a b"), "$3|8-0|");
        assert_eq!(db.line("XLEN s"), ":2|");
    }

    #[test]
    fn bad_trimming_options_are_told_apart() {
        let both = "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible|";
        let no_tilde = "-ERR syntax error, LIMIT cannot be used without the special ~ option|";
        let no_strategy = "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy|";
        check(&[
            ("XADD s MAXLEN -1 * a b", "-ERR The MAXLEN argument must be >= 0.|"),
            ("XADD s MAXLEN x * a b", "-ERR value is not an integer or out of range|"),
            ("XADD s MAXLEN 5 MINID 5 * a b", both),
            ("XADD s LIMIT 5 * a b", no_strategy),
            ("XADD s LIMIT 0 * a b", no_tilde),
            ("XADD s MAXLEN 5 LIMIT 5 * a b", no_tilde),
            ("XADD s MAXLEN ~ 5 LIMIT -5 * a b", "-ERR The LIMIT argument must be >= 0.|"),
            ("XTRIM s LIMIT 3", no_strategy),
            ("XTRIM s LIMIT 0", "-ERR syntax error, XTRIM must be called with a trimming strategy|"),
            ("XTRIM s MAXLEN 5 3", "-ERR syntax error|"),
            ("XTRIM s FOO 5", "-ERR syntax error|"),
            ("XTRIM none MAXLEN 5", ":0|"),
            ("SET str v", "+OK|"),
            ("XTRIM str MAXLEN 5", WRONG_TYPE),
        ]);
    }

    #[test]
    fn trims_heed_what_groups_have_pending() {
        let mut db = Harness::new();
        for ms in 1..=5 {
            db.run(&["XADD", "s", &ms.to_string(), "a", "b"]);
        }
        db.line("XGROUP CREATE s g 0");
        db.line("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        db.line("XACK s g 2");
        for (line, reply) in [
            ("XADD s MAXLEN 2 ACKED 6 a b", "$3|6-0|"),
            ("XLEN s", ":5|"),
            ("XTRIM s MINID 3 KEEPREF", ":1|"),
            ("XTRIM s delref MAXLEN 3", ":1|"),
            ("XPENDING s g - + 9", "*1|*4|$3|1-0|$1|c|:0|:1|"),
            ("XTRIM s MAXLEN 3 ACKED DELREF", "-ERR syntax error|"),
            ("XADD s KEEPREF DELREF 7 a b", INVALID_ID),
            ("XADD s DELREF 7 ACKED b", "$3|7-0|"),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
    }

    #[test]
    fn history_is_set_within_what_the_entries_allow() {
        let too_small = |what: &str| format!("-ERR The ID specified in XSETID is smaller than {what}|");
        let deleted = too_small("current max_deleted_entry_id");
        let provided = too_small("the provided max_deleted_entry_id");
        let top = too_small("the target stream top item");
        let length = "-ERR The entries_added specified in XSETID is smaller than the target stream length|";
        check(&[
            ("XADD s 5-3 a b", "$3|5-3|"),
            ("XADD s 5-4 a b", "$3|5-4|"),
            ("XSETID s 5-2", &top),
            ("XDEL s 5-4", ":1|"),
            ("XSETID s 5-3", &deleted),
            ("XSETID none 1", "-ERR no such key|"),
            ("XSETID s 9 ENTRIESADDED -1", "-ERR entries_added must be positive|"),
            ("XSETID s 9 MAXDELETEDID 10", &provided),
            ("XSETID s 9 ENTRIESADDED 0", length),
            ("XSETID s 9 ENTRIESADDED 5 MAXDELETEDID 8", "+OK|"),
            ("XSETID s 7", &deleted),
            ("XSETID s x", INVALID_ID),
            ("XSETID s 9 HUH", "-ERR syntax error|"),
            ("XADD s 9-* a b", "$3|9-1|"),
        ]);
    }

    #[test]
    fn events_tell_additions_from_trims() {
        let mut db = Harness::new();
        db.check_events(&[
            ("XADD s 1 a b", "$3|1-0|", "xadd s@0"),
            ("XADD s MAXLEN 1 2 a b", "$3|2-0|", "xadd s@0,xtrim s@0"),
            ("XADD s MAXLEN 9 3 a b", "$3|3-0|", "xadd s@0"),
            ("XTRIM s MAXLEN 9", ":0|", ""),
            ("XTRIM s MAXLEN 1", ":1|", "xtrim s@0"),
            ("XDEL s 1", ":0|", ""),
            ("XDEL s 3", ":1|", "xdel s@0"),
            ("XSETID s 9", "+OK|", "xsetid s@0"),
        ]);
        assert_eq!(db.effects.changes, 3 + 1 + 1 + 1);
    }
}

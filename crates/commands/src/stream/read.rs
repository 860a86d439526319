//! Commands that read streams.

use keyspace::stream::{Acknowledgement, Delivery, IdText};
use keyspace::{Stream, StreamId};
use resp::{Protocol, Reply};

use super::group::named_consumer;
use super::record::{GroupChanges, GroupNames};
use super::{named_or_id, no_key_or_group, parse_id, reply_entries, reply_entry, reply_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::wait::{Awaited, BlockFor, BlockingKey, EmptyReply, timeout_ms};

pub(super) static XLEN: Command = Command {
    name: "XLEN",
    summary: "Returns the number of entries in a stream.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: xlen,
    ..Command::DEFAULT
};
/// Handles XLEN: replies with the number of entries, 0 if there is no stream.
fn xlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let stream = ctx.db.read::<Stream>(args.key(1))?;
    ctx.reply.integer(stream.map_or(0, Stream::len) as i64);
    Ok(())
}

pub(super) static XRANGE: Command = Command {
    name: "XRANGE",
    summary: "Returns the entries of a stream with IDs in a range.",
    history: History::since("5.0.0").changed(&[("6.2.0", "takes exclusive bounds")]),
    group: Group::Stream,
    complexity: "O(N)",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("start"),
        Arg::string("end"),
        Arg::integer("count").token("COUNT").optional(),
    ],
    run: xrange,
    ..Command::DEFAULT
};
/// Handles XRANGE: replies with the entries from `start` to `end`, both included.
fn xrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (range_start(args.get(2))?, range_end(args.get(3))?);
    let count = count_option(args)?;
    match (ctx.db.read::<Stream>(args.key(1))?, count) {
        (None, _) => ctx.reply.empty_array(),
        (Some(_), 0) => ctx.reply.null_array(),
        (Some(stream), _) => reply_entries(&mut ctx.reply, stream.range(start, end).take(count)),
    }
    Ok(())
}

pub(super) static XREVRANGE: Command = Command {
    name: "XREVRANGE",
    summary: "Returns the entries of a stream with IDs in a range, in reverse order.",
    history: History::since("5.0.0").changed(&[("6.2.0", "takes exclusive bounds")]),
    group: Group::Stream,
    complexity: "O(N)",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("end"),
        Arg::string("start"),
        Arg::integer("count").token("COUNT").optional(),
    ],
    run: xrevrange,
    ..Command::DEFAULT
};
/// Handles XREVRANGE: replies with the entries from `start` to `end`, both included, last first.
fn xrevrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (range_start(args.get(3))?, range_end(args.get(2))?);
    let count = count_option(args)?;
    match (ctx.db.read::<Stream>(args.key(1))?, count) {
        (None, _) => ctx.reply.empty_array(),
        (Some(_), 0) => ctx.reply.null_array(),
        (Some(stream), _) => reply_entries(&mut ctx.reply, stream.range_rev(start, end).take(count)),
    }
    Ok(())
}

/// Parses the lower end of a range of stream entries: an ID, or `-` for the lowest. An ID without
/// sequence number means the first one of that millisecond. After `(` the ID itself is excluded.
pub(super) fn range_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let invalid = CommandError::Line("ERR invalid start ID for the interval");
            parse_id(id, 0)?.next().ok_or(invalid)
        }
        _ => named_or_id(text, 0),
    }
}

/// Parses the upper end of a range of stream entries: an ID, or `+` for the highest. An ID without
/// sequence number means the last one of that millisecond. After `(` the ID itself is excluded.
pub(super) fn range_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let invalid = CommandError::Line("ERR invalid end ID for the interval");
            parse_id(id, u64::MAX)?.previous().ok_or(invalid)
        }
        _ => named_or_id(text, u64::MAX),
    }
}

/// Parses the option COUNT of XRANGE and XREVRANGE. A negative count counts as 0; without COUNT
/// there is no limit.
fn count_option(args: &Args<'_>) -> Result<usize, CommandError> {
    let mut count = usize::MAX;
    let mut at = 4;
    while at < args.len() {
        if !args.is(at, "COUNT") || at + 1 == args.len() {
            return Err(CommandError::Syntax);
        }
        count = usize::try_from(args.integer(at + 1)?).unwrap_or(0);
        at += 2;
    }
    Ok(count)
}

pub(super) static XREAD: Command = Command {
    name: "XREAD",
    summary: "Returns the entries of one or several streams after given IDs. Can block until there are \
         any.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY.union(Flags::BLOCKING),
    acl: Acl::READ.union(Acl::STREAM).union(Acl::BLOCKING),
    keys: &[
        KeySpec::keyword("STREAMS", 1, -1, 2, KeyFlags::RO.union(KeyFlags::ACCESS)).found_by(find_streams)
    ],
    args: &[
        Arg::integer("count").token("COUNT").optional(),
        Arg::integer("milliseconds").token("BLOCK").optional(),
        Arg::block("streams", &[Arg::key("key", 0).multiple(), Arg::string("id").multiple()])
            .token("STREAMS"),
    ],
    run: xread,
    ..Command::DEFAULT
};
/// Handles XREAD: replies with the key and the entries of each stream that has entries above its ID
/// argument. Replies with null if no stream has such entries. `$` stands for the stream's last ID,
/// `+` for the ID before that of its last entry. With BLOCK the client waits for an entry above one
/// of the IDs; `$` and `+` are then resolved before the wait.
fn xread(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = ReadRequest::parse(ctx, args, Reader::Anyone)?;
    let mut after = Vec::with_capacity(request.stream_count);
    for (key_at, id_at) in request.streams() {
        let stream = ctx.db.read::<Stream>(args.key(key_at))?;
        after.push(id_to_read_after(stream, args.get(id_at))?);
    }
    let mut served = ServedStreams::begin(&mut ctx.reply);
    for ((key_at, _), &after) in request.streams().zip(&after) {
        let key = args.key(key_at);
        let Some(stream) = ctx.db.read::<Stream>(key)? else { continue };
        let Some(start) = after.next().filter(|_| stream.has_entries_after(after)) else { continue };
        served.next(&mut ctx.reply, key.bytes);
        reply_entries(&mut ctx.reply, stream.range(start, StreamId::MAX).take(request.count));
    }
    served.end(ctx, &request, || {
        // `$` and `+` are replaced by their present IDs.
        let mut words: Vec<Box<[u8]>> = args.from(0).map(Into::into).collect();
        for ((_, id_at), after) in request.streams().zip(&after) {
            words[id_at] = after.text(&mut IdText::new()).into();
        }
        BlockFor { keys: request.awaited(args, Awaited::Stream), request: Some(words) }
    });
    Ok(())
}

/// The reply of XREAD and XREADGROUP: pairs of a key and the stream's entries, a map in RESP3. The
/// reply is null if no stream has entries.
struct ServedStreams {
    mark: resp::Mark,
    begun: resp::Deferred,
    count: usize,
}

impl ServedStreams {
    fn begin(reply: &mut Reply<'_>) -> Self {
        Self { mark: reply.mark(), begun: reply.begin_array(), count: 0 }
    }

    /// Begins the next stream in the reply and writes its key. The caller must then write the
    /// stream's entries.
    fn next(&mut self, reply: &mut Reply<'_>, key: &[u8]) {
        self.count += 1;
        if reply.protocol() == Protocol::Resp2 {
            reply.array(2);
        }
        reply.bulk(key);
    }

    /// Ends the reply of XREAD or XREADGROUP. If it has no stream, a request with BLOCK waits for
    /// the keys that `awaited` returns.
    fn end(self, ctx: &mut Ctx<'_>, request: &ReadRequest<'_>, awaited: impl FnOnce() -> BlockFor) {
        let reply = &mut ctx.reply;
        match (self.count, reply.protocol()) {
            (0, _) => {
                reply.truncate(self.mark);
                match request.block {
                    None => reply.null_array(),
                    Some(timeout_ms) => ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, awaited),
                }
            }
            (count, Protocol::Resp2) => reply.end_array(self.begun, count),
            (count, Protocol::Resp3) => reply.end_map(self.begun, count),
        }
    }
}

pub(super) static XREADGROUP: Command = Command {
    name: "XREADGROUP",
    summary: "Delivers entries of one or several streams to a consumer of a group. Can block until there \
         are any.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(M) for each stream, M entries delivered",
    arity: Arity::AtLeast(7),
    flags: Flags::WRITE.union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::STREAM).union(Acl::BLOCKING),
    keys: &[
        KeySpec::keyword("STREAMS", 4, -1, 2, KeyFlags::RO.union(KeyFlags::ACCESS)).found_by(find_streams)
    ],
    args: &[
        Arg::block("group-block", &[Arg::string("group"), Arg::string("consumer")]).token("GROUP"),
        Arg::integer("count").token("COUNT").optional(),
        Arg::integer("milliseconds").token("BLOCK").optional(),
        Arg::word("noack", "NOACK").optional(),
        Arg::block("streams", &[Arg::key("key", 0).multiple(), Arg::string("id").multiple()])
            .token("STREAMS"),
    ],
    run: xreadgroup,
    ..Command::DEFAULT
};
/// Handles XREADGROUP: replies with the key and the entries of each stream, or null without
/// entries. `>` selects entries that the group has not read yet. An ID selects the consumer's
/// pending entries above it; such a stream is in the reply even without entries. With BLOCK the
/// client waits for new entries; the removal of the key or the group is an error.
fn xreadgroup(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = ReadRequest::parse(ctx, args, Reader::Group)?;
    let Some(GroupOption { group, consumer }) = request.group else {
        return Err(CommandError::Line("ERR Missing GROUP option for XREADGROUP"));
    };
    let mut wanted = Vec::with_capacity(request.stream_count);
    for (key_at, id_at) in request.streams() {
        let key = args.key(key_at);
        let stream = ctx.db.read::<Stream>(key)?;
        if stream.is_none_or(|stream| stream.group(group).is_none()) {
            return Err(no_key_or_group(key.bytes, group, " in XREADGROUP with GROUP option"));
        }
        wanted.push(Wanted::parse(args.get(id_at))?);
    }
    let mut served = ServedStreams::begin(&mut ctx.reply);
    for ((key_at, _), wanted) in request.streams().zip(wanted) {
        let key = args.key(key_at);
        let names = GroupNames { key: key.bytes, group, consumer };
        let Some(consumer) = named_consumer(ctx, key, group, consumer)? else { continue };
        let delivery = Delivery {
            consumer: consumer.index,
            count_max: request.count,
            now_ms: ctx.db.now_ms(),
            acknowledgement: request.acknowledgement,
        };
        let db = ctx.db.index();
        let mut changes = GroupChanges { new_consumer: consumer.is_new, ..GroupChanges::default() };
        let Some(stream) = ctx.db.write::<Stream>(key)? else { continue };
        let delivered_to = stream.group(group).map_or(StreamId::MAX, |group| group.last_delivered());
        if wanted == Wanted::New && !stream.has_entries_after(delivered_to) {
            ctx.effects.record.replace(db, |record| changes.record(record, stream, &names));
            continue;
        }
        let becomes_pending = wanted != Wanted::New || delivery.acknowledgement == Acknowledgement::Awaited;
        let is_recorded = ctx.effects.record.is_wanted && becomes_pending;
        let reply = &mut ctx.reply;
        served.next(reply, key.bytes);
        let begun = reply.begin_array();
        let count = match wanted {
            Wanted::New => stream.deliver(group, &delivery, |entry| {
                changes.claimed.extend(is_recorded.then_some(entry.id));
                reply_entry(reply, entry);
            }),
            Wanted::PendingAfter(id) => stream.deliver_again(group, id, &delivery, |id, entry| match entry {
                Some(entry) => {
                    changes.claimed.extend(is_recorded.then_some(id));
                    reply_entry(reply, entry);
                }
                None => {
                    reply.array(2);
                    reply_id(reply, id);
                    reply.null_array();
                }
            }),
        };
        reply.end_array(begun, count);
        changes.moved = wanted == Wanted::New;
        ctx.effects.record.replace(db, |record| changes.record(record, stream, &names));
        if wanted == Wanted::New {
            ctx.changed_silently(1);
        }
    }
    // Streams with a request for pending entries are already in the reply. So blocked clients
    // always wait for new entries.
    served.end(ctx, &request, || request.awaited(args, Awaited::Group).into());
    Ok(())
}

/// The entries of a stream that a consumer requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// `>`: entries that were not yet delivered to the consumer group.
    New,
    /// The entries above this ID that are pending for the consumer.
    PendingAfter(StreamId),
}

impl Wanted {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        match text {
            b"$" => Err(CommandError::Line(DOLLAR_IS_EMPTY)),
            b"+" => Err(CommandError::Line(PLUS_IS_EMPTY)),
            b">" => Ok(Self::New),
            // As in Redis, the highest possible ID means `>`.
            _ => Ok(match parse_id(text, 0)? {
                StreamId::MAX => Self::New,
                id => Self::PendingAfter(id),
            }),
        }
    }
}

const DOLLAR_IS_EMPTY: &str = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                               history of this consumer by specifying a proper ID, or use the > ID to get new \
                               messages. The $ ID would just return an empty result set.";
const PLUS_IS_EMPTY: &str = "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the \
                             history of this consumer by specifying a proper ID, or use the > ID to get new \
                             messages. The + ID would just return an empty result set.";

/// Returns the ID above which XREAD reads, for the ID argument `text`: an ID, `$` or `+`.
fn id_to_read_after(stream: Option<&Stream>, text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        b"$" => Ok(stream.map_or(StreamId::MIN, Stream::last_id)),
        b"+" => Ok(match stream {
            Some(stream) if !stream.is_empty() => stream.last_entry_id().previous().unwrap_or(StreamId::MIN),
            Some(stream) => stream.last_id(),
            None => StreamId::MIN,
        }),
        b">" => Err(CommandError::Line(ONLY_IN_GROUPS)),
        _ => parse_id(text, 0),
    }
}

const ONLY_IN_GROUPS: &str = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                              <group> <consumer> option.";

/// The reading command, XREAD or XREADGROUP, which determines the allowed options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// The command XREAD, which reads without a consumer group.
    Anyone,
    /// The command XREADGROUP, which reads for a consumer of a group.
    Group,
}

/// The option GROUP of XREADGROUP with the names of the group and the consumer.
#[derive(Clone, Copy)]
struct GroupOption<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
}

/// An option before the keys of XREAD and XREADGROUP. The handlers and the function that finds
/// their keys both parse the arguments with this type only. So they agree on a value that looks
/// like an option, such as a group called STREAMS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadOption {
    Block,
    Count,
    Group,
    NoAck,
    /// The word STREAMS: the other arguments are keys and, after them, their IDs.
    Streams,
    Unknown,
}

impl ReadOption {
    /// Returns the option of XREAD or XREADGROUP at argument `at`, and the index after the option
    /// and its values.
    fn at(args: &Args<'_>, at: usize) -> (Self, usize) {
        let has_value = at + 1 < args.len();
        match () {
            () if has_value && args.is(at, "BLOCK") => (Self::Block, at + 2),
            () if has_value && args.is(at, "COUNT") => (Self::Count, at + 2),
            () if has_value && args.is(at, "STREAMS") => (Self::Streams, at + 1),
            () if at + 2 < args.len() && args.is(at, "GROUP") => (Self::Group, at + 3),
            () if args.is(at, "NOACK") => (Self::NoAck, at + 1),
            () => (Self::Unknown, args.len()),
        }
    }
}

/// Finds the keys of XREAD and XREADGROUP: the first half of the arguments after STREAMS.
fn find_streams(args: &Args<'_>, visit: &mut dyn FnMut(usize)) {
    let mut at = 1;
    while at < args.len() {
        let (option, next) = ReadOption::at(args, at);
        if option == ReadOption::Streams {
            return (next..next + (args.len() - next) / 2).for_each(visit);
        }
        at = next;
    }
}

/// A parsed request of XREAD or XREADGROUP.
struct ReadRequest<'a> {
    /// The maximum number of entries to read from each stream (COUNT).
    count: usize,
    /// The index of the argument that is the first key, after STREAMS.
    keys_at: usize,
    stream_count: usize,
    group: Option<GroupOption<'a>>,
    acknowledgement: Acknowledgement,
    /// The timeout of BLOCK in milliseconds. The outer `None` means no BLOCK, the inner `None`
    /// BLOCK without a timeout.
    block: Option<Option<u64>>,
}

impl<'a> ReadRequest<'a> {
    fn parse(ctx: &Ctx<'_>, args: &Args<'a>, reader: Reader) -> Result<Self, CommandError> {
        let acknowledgement = Acknowledgement::Awaited;
        let mut request =
            Self { count: 0, keys_at: 0, stream_count: 0, group: None, acknowledgement, block: None };
        let mut at = 1;
        while at < args.len() {
            let (option, next) = ReadOption::at(args, at);
            match (option, reader) {
                (ReadOption::Block, _) => request.block = Some(block_timeout(ctx, args, at + 1)?),
                (ReadOption::Count, _) => {
                    request.count = usize::try_from(args.integer(at + 1)?).unwrap_or(0);
                }
                (ReadOption::Streams, _) => return request.finish(args, next, reader),
                (ReadOption::Group, Reader::Group) => {
                    request.group = Some(GroupOption { group: args.get(at + 1), consumer: args.get(at + 2) });
                }
                (ReadOption::NoAck, Reader::Group) => request.acknowledgement = Acknowledgement::NotNeeded,
                (ReadOption::Group, Reader::Anyone) => return Err(CommandError::Line(GROUP_IN_XREAD)),
                (ReadOption::NoAck, Reader::Anyone) => return Err(CommandError::Line(NOACK_IN_XREAD)),
                (ReadOption::Unknown, _) => return Err(CommandError::Syntax),
            }
            at = next;
        }
        Err(CommandError::Syntax)
    }

    /// Completes the request with the index of the first key and the number of streams. Fails if
    /// the number of arguments from `keys_at` on is odd, because each key needs an ID.
    fn finish(self, args: &Args<'_>, keys_at: usize, reader: Reader) -> Result<Self, CommandError> {
        let words = args.len() - keys_at;
        if !words.is_multiple_of(2) {
            return Err(CommandError::Line(match reader {
                Reader::Anyone => UNBALANCED,
                Reader::Group => UNBALANCED_IN_GROUP,
            }));
        }
        let count = if self.count == 0 { usize::MAX } else { self.count };
        Ok(Self { count, keys_at, stream_count: words / 2, ..self })
    }

    /// Returns the argument indexes of each requested stream's key and ID.
    fn streams(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (keys_at, count) = (self.keys_at, self.stream_count);
        (keys_at..keys_at + count).map(move |key_at| (key_at, key_at + count))
    }

    /// Returns the keys of the requested streams, each with the type of change that the blocked
    /// client waits for.
    fn awaited(&self, args: &Args<'_>, awaited: Awaited) -> Vec<BlockingKey> {
        self.streams().map(|(key_at, _)| BlockingKey::new(args.key(key_at), awaited)).collect()
    }
}

const UNBALANCED: &str = "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must \
                          be specified.";
const UNBALANCED_IN_GROUP: &str = "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' \
                                   must be specified.";
const GROUP_IN_XREAD: &str =
    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.";
const NOACK_IN_XREAD: &str =
    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.";

/// Returns the timeout of the option BLOCK in milliseconds; `None` is no timeout.
fn block_timeout(ctx: &Ctx<'_>, args: &Args<'_>, index: usize) -> Result<Option<u64>, CommandError> {
    let timeout = timeout_ms(args, index)?;
    let now_ms = ctx.db.now_ms();
    match timeout.is_none_or(|timeout| now_ms.checked_add_unsigned(timeout).is_some()) {
        true => Ok(timeout),
        false => Err(CommandError::OutOfRange("timeout")),
    }
}

#[cfg(test)]
mod tests {
    use resp::Protocol;

    use crate::harness::{Harness, check};

    const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument|";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    #[test]
    fn ranges_of_ids_include_their_ends_unless_told_otherwise() {
        let entry = |id: &str| format!("*2|$3|{id}|*2|$1|n|$2|17|");
        let (a, b, c) = (entry("1-1"), entry("1-2"), entry("2-0"));
        let all = format!("*3|{a}{b}{c}");
        let back = format!("*3|{c}{b}{a}");
        let (first, last) = (format!("*1|{a}"), format!("*1|{c}"));
        let (two, high_two) = (format!("*2|{a}{b}"), format!("*2|{c}{b}"));
        check(&[
            ("XADD s 1-1 n 17", "$3|1-1|"),
            ("XADD s 1-2 n 17", "$3|1-2|"),
            ("XADD s 2-0 n 17", "$3|2-0|"),
            ("XRANGE s - +", &all),
            ("XREVRANGE s + -", &back),
            ("XRANGE s 1 1", &two),
            ("XRANGE s - (1-2", &first),
            ("XRANGE s (1-2 2", &last),
            ("XRANGE s - + COUNT 1", &first),
            ("XREVRANGE s + - COUNT 2", &high_two),
            ("XREVRANGE s - +", "*0|"),
            ("XRANGE s 3 +", "*0|"),
            ("XRANGE s - + COUNT -5", "_|"),
            ("XRANGE none - + COUNT 0", "*0|"),
            (
                "XRANGE s (18446744073709551615-18446744073709551615 +",
                "-ERR invalid start ID for the interval|",
            ),
            ("XRANGE s - (0-0", "-ERR invalid end ID for the interval|"),
            ("XRANGE s (- +", INVALID_ID),
            ("XRANGE s x +", INVALID_ID),
            ("XRANGE s - + COUNT", "-ERR syntax error|"),
            ("XRANGE s - + COUNT x", "-ERR value is not an integer or out of range|"),
            ("SET str v", "+OK|"),
            ("XRANGE str - +", WRONG_TYPE),
            ("XLEN str", WRONG_TYPE),
        ]);
    }

    #[test]
    fn streams_are_read_behind_an_id_each() {
        let mut db = Harness::new();
        for (key, id) in [("a", "1-1"), ("a", "2-2"), ("b", "3-3")] {
            db.run(&["XADD", key, id, "f", "v"]);
        }
        let entry = |id: &str| format!("*2|$3|{id}|*2|$1|f|$1|v|");
        let (a1, a2, b3) = (entry("1-1"), entry("2-2"), entry("3-3"));
        assert_eq!(db.line("XREAD STREAMS a 0"), format!("*1|*2|$1|a|*2|{a1}{a2}"));
        let both = format!("*2|*2|$1|a|*1|{a2}*2|$1|b|*1|{b3}");
        assert_eq!(db.line("XREAD COUNT 1 STREAMS a b none 1-1 3 0"), both);
        assert_eq!(db.line("XREAD COUNT 0 STREAMS a b 1-1 $"), format!("*1|*2|$1|a|*1|{a2}"));
        assert_eq!(db.line("XREAD STREAMS a +"), format!("*1|*2|$1|a|*1|{a2}"));
        assert_eq!(db.line("XREAD BLOCK 5 STREAMS a b $ $"), "*-1|");
        db.line("XDEL a 2-2");
        assert_eq!(db.line("XREAD STREAMS a +"), format!("*1|*2|$1|a|*1|{a1}"));
        assert_eq!(db.line("XREAD STREAMS a 1-1"), "*-1|");
        db.protocol = Protocol::Resp3;
        assert_eq!(db.line("XREAD STREAMS a b 0 0"), format!("%2|$1|a|*1|{a1}$1|b|*1|{b3}"));
        assert_eq!(db.line("XREAD STREAMS none 0"), "_|");
    }

    #[test]
    fn a_group_is_delivered_each_entry_once() {
        let mut db = Harness::new();
        for ms in 1..=4 {
            db.run(&["XADD", "s", &ms.to_string(), "f", "v"]);
        }
        db.line("XGROUP CREATE s g 1");
        let entry = |id: &str| format!("*2|$3|{id}|*2|$1|f|$1|v|");
        let (two, three, four) = (entry("2-0"), entry("3-0"), entry("4-0"));
        let nothing = "*1|*2|$1|s|*0|".to_string();
        for (line, reply) in [
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", format!("*1|*2|$1|s|*1|{two}")),
            ("XREADGROUP GROUP g d NOACK COUNT 1 STREAMS s >", format!("*1|*2|$1|s|*1|{three}")),
            ("XREADGROUP GROUP g c STREAMS s >", format!("*1|*2|$1|s|*1|{four}")),
            ("XREADGROUP GROUP g c BLOCK 1 STREAMS s >", "*-1|".to_string()),
            ("XREADGROUP GROUP g c COUNT -3 STREAMS s 0", format!("*1|*2|$1|s|*2|{two}{four}")),
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s 2", format!("*1|*2|$1|s|*1|{four}")),
            ("XREADGROUP GROUP g d STREAMS s 0", nothing.clone()),
            ("XDEL s 2", ":1|".to_string()),
            ("XREADGROUP GROUP g c STREAMS s 0", format!("*1|*2|$1|s|*2|*2|$3|2-0|*-1|{four}")),
            ("XPENDING s g - + 9", "*2|*4|$3|2-0|$1|c|:0|:2|*4|$3|4-0|$1|c|:0|:4|".to_string()),
            ("XGROUP SETID s g 2", "+OK|".to_string()),
            (
                "XREADGROUP GROUP g d COUNT 2 STREAMS s s > 3",
                format!("*2|*2|$1|s|*2|{three}{four}*2|$1|s|*1|{four}"),
            ),
            ("XPENDING s g - + 9 c", "*1|*4|$3|2-0|$1|c|:0|:2|".to_string()),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
        db.protocol = Protocol::Resp3;
        assert_eq!(db.line("XREADGROUP GROUP g d STREAMS s 5"), "%1|$1|s|*0|");
    }

    #[test]
    fn bad_group_reads_are_refused() {
        let (dollar, plus) = (format!("-{}|", super::DOLLAR_IS_EMPTY), format!("-{}|", super::PLUS_IS_EMPTY));
        let no_group = |key| {
            format!("-NOGROUP No such key '{key}' or consumer group 'h' in XREADGROUP with GROUP option|")
        };
        let (no_group, no_key) = (no_group("s"), no_group("none"));
        let unbalanced = format!("-{}|", super::UNBALANCED_IN_GROUP);
        check(&[
            ("XGROUP CREATE s g 0 MKSTREAM", "+OK|"),
            ("XREADGROUP GROUP g c STREAMS s $", &dollar),
            ("XREADGROUP GROUP g c STREAMS s +", &plus),
            ("XREADGROUP GROUP g c STREAMS s x", INVALID_ID),
            ("XREADGROUP GROUP h c STREAMS s x", &no_group),
            ("XREADGROUP GROUP h c STREAMS none >", &no_key),
            ("XREADGROUP GROUP g c STREAMS s s >", &unbalanced),
            ("XREADGROUP COUNT 1 NOACK STREAMS s >", "-ERR Missing GROUP option for XREADGROUP|"),
            ("XREADGROUP GROUP g c HUH STREAMS s >", "-ERR syntax error|"),
            ("SET str v", "+OK|"),
            ("XREADGROUP GROUP g c STREAMS str >", WRONG_TYPE),
        ]);
    }

    #[test]
    fn bad_reads_are_refused() {
        let unbalanced = format!("-{}|", super::UNBALANCED);
        let (group, noack) = (format!("-{}|", super::GROUP_IN_XREAD), format!("-{}|", super::NOACK_IN_XREAD));
        let only_in_groups = format!("-{}|", super::ONLY_IN_GROUPS);
        check(&[
            ("XREAD STREAMS a b 0", &unbalanced),
            ("XREAD COUNT 1 COUNT 1", "-ERR syntax error|"),
            ("XREAD COUNT 1 BLOCK 1 STREAMS", "-ERR syntax error|"),
            ("XREAD COUNT x STREAMS a 0", "-ERR value is not an integer or out of range|"),
            ("XREAD BLOCK x STREAMS a 0", "-ERR timeout is not an integer or out of range|"),
            ("XREAD BLOCK -1 STREAMS a 0", "-ERR timeout is negative|"),
            ("XREAD BLOCK 9223372036854775807 STREAMS a 0", "-ERR timeout is out of range|"),
            ("XREAD GROUP g c STREAMS a 0", &group),
            ("XREAD NOACK STREAMS a 0", &noack),
            ("XREAD STREAMS a >", &only_in_groups),
            ("XREAD STREAMS a x", INVALID_ID),
            ("SET str v", "+OK|"),
            ("XREAD STREAMS str x", WRONG_TYPE),
        ]);
    }
}

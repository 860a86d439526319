//! Commands on the pending entries of consumer groups: acknowledging, listing, claiming.

use keyspace::stream::{
    Claim, Claimed, ConsumerIndex, Deliveries, Group as ConsumerGroup, Pending, Release, ReleasedDeliveries,
};
use keyspace::{Stream, StreamId};
use resp::Reply;

use super::group::named_consumer;
use super::idempotent;
use super::nack::release_entries;
use super::read::{range_end, range_start};
use super::record::{GroupChanges, GroupNames};
use super::{no_key_or_group, parse_id, reply_entry, reply_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XACK: Command = Command {
    name: "XACK",
    summary: "Acknowledges entries that were delivered to a consumer group.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("group"), Arg::string("id").multiple()],
    run: xack,
    ..Command::DEFAULT
};
/// Handles XACK: replies with the number of entries that were pending and are acknowledged now.
fn xack(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if idempotent::apply_note(ctx, args)? {
        return Ok(());
    }
    let stream = ctx.db.read_to_write::<Stream>(args.key(1))?;
    let Some(group) = stream.and_then(|stream| stream.group_mut(args.get(2))) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    // All IDs are parsed before one is acknowledged: an invalid ID leaves the group unchanged.
    let ids = args.from(3).map(|text| parse_id(text, 0));
    let ids = ids.collect::<Result<Vec<StreamId>, _>>()?;
    let acknowledged = ids.into_iter().filter(|&id| group.acknowledge(id)).count();
    ctx.reply.integer(acknowledged as i64);
    ctx.changed_silently(acknowledged as u64);
    Ok(())
}

pub(super) static XPENDING: Command = Command {
    name: "XPENDING",
    summary: "Returns the entries that a consumer group has received and not acknowledged.",
    history: History::since("5.0.0").changed(&[("6.2.0", "takes IDLE and exclusive bounds")]),
    group: Group::Stream,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::block(
            "filters",
            &[
                Arg::integer("min-idle-time").token("IDLE").since("6.2.0").optional(),
                Arg::string("start"),
                Arg::string("end"),
                Arg::integer("count"),
                Arg::string("consumer").optional(),
            ],
        )
        .optional(),
    ],
    run: xpending,
    ..Command::DEFAULT
};
/// Handles XPENDING. The short form replies with the number of entries, the first and the last ID,
/// and the number of entries of each consumer. The long form replies for each entry with the ID,
/// the consumer, the milliseconds since its delivery, and the number of deliveries.
fn xpending(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let query = PendingQuery::parse(args)?;
    let now_ms = ctx.db.now_ms();
    let stream = ctx.db.read::<Stream>(args.key(1))?;
    let group = stream.and_then(|stream| stream.group(args.get(2)));
    let group = group.ok_or_else(|| no_key_or_group(args.get(1), args.get(2), ""))?;
    let reply = &mut ctx.reply;
    let Some(query) = query else {
        reply_pending_summary(reply, group);
        return Ok(());
    };
    match query.consumer.map(|name| group.find_consumer(name)) {
        None => reply_pending(reply, group, &query, now_ms, group.pending_from(query.start)),
        Some(None) => reply.empty_array(),
        Some(Some(consumer)) if group.consumer(consumer).is_holder() => reply.empty_array(),
        Some(Some(consumer)) => {
            let own = group.consumer(consumer).pending_from(query.start);
            let record = |id| group.pending(id).expect("what a consumer has pending, its group has");
            reply_pending(reply, group, &query, now_ms, own.map(|id| (id, record(id))));
        }
    }
    Ok(())
}

/// A parsed request of the long form of XPENDING.
struct PendingQuery<'a> {
    min_idle_ms: i64,
    start: StreamId,
    end: StreamId,
    count_max: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingQuery<'a> {
    /// Parses the arguments of XPENDING. Returns `None` for the short form.
    fn parse(args: &Args<'a>) -> Result<Option<Self>, CommandError> {
        match args.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(CommandError::Syntax),
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if args.is(3, "IDLE") {
            min_idle_ms = args.integer(4)?;
            at = 5;
            if args.len() < at + 3 {
                return Err(CommandError::Syntax);
            }
        }
        let count_max = usize::try_from(args.integer(at + 2)?).unwrap_or(0);
        let (start, end) = (range_start(args.get(at))?, range_end(args.get(at + 1))?);
        Ok(Some(Self { min_idle_ms, start, end, count_max, consumer: args.try_get(at + 3) }))
    }
}

fn reply_pending_summary(reply: &mut Reply<'_>, group: &ConsumerGroup) {
    reply.array(4);
    reply.integer(group.pending_len() as i64);
    let Some((first, last)) = group.pending_bounds() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let busy = group.known_consumers().filter(|consumer| consumer.pending_len() > 0);
    reply.array(busy.clone().count());
    for consumer in busy {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
    }
}

/// Replies with the pending entries that the XPENDING query selects. `pending` must begin at the
/// first ID of the query.
fn reply_pending<'p>(
    reply: &mut Reply<'_>,
    group: &ConsumerGroup,
    query: &PendingQuery<'_>,
    now_ms: i64,
    pending: impl Iterator<Item = (StreamId, &'p Pending)>,
) {
    let pending = pending.take_while(|(id, _)| *id <= query.end);
    let idle_enough =
        |pending: &Pending| query.min_idle_ms <= 0 || pending.idle_ms(now_ms) >= query.min_idle_ms;
    let begun = reply.begin_array();
    let mut count = 0;
    for (id, pending) in pending.filter(|(_, pending)| idle_enough(pending)).take(query.count_max) {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        // As in Redis, an entry that belongs to no consumer shows the time -1.
        reply.integer(if group.is_released(pending) { -1 } else { pending.idle_ms(now_ms).max(0) });
        reply.integer(pending.deliveries as i64);
        count += 1;
    }
    reply.end_array(begun, count);
}

pub(super) static XCLAIM: Command = Command {
    name: "XCLAIM",
    summary: "Transfers pending entries of a consumer group to a consumer.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(log N)",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::string("consumer"),
        Arg::string("min-idle-time"),
        Arg::string("id").multiple(),
        Arg::integer("ms").token("IDLE").optional(),
        Arg::unix_time("unix-time-milliseconds").token("TIME").optional(),
        Arg::integer("count").token("RETRYCOUNT").optional(),
        Arg::word("force", "FORCE").optional(),
        Arg::word("justid", "JUSTID").optional(),
        Arg::string("lastid").token("LASTID").optional(),
    ],
    run: xclaim,
    ..Command::DEFAULT
};
/// Handles XCLAIM: replies with the entries that now belong to the consumer, or with their IDs.
fn xclaim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let (group, now_ms) = (args.get(2), ctx.db.now_ms());
    let stream = ctx.db.read_to_write::<Stream>(key)?;
    if stream.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_key_or_group(args.get(1), args.get(2), ""));
    }
    let request = ClaimRequest::parse(args, now_ms)?;
    if request.is_release(args) {
        return release_again(ctx, args, &request);
    }
    let Some(consumer) = named_consumer(ctx, key, group, args.get(3))? else { return Ok(()) };
    let (db, names) = (ctx.db.index(), GroupNames { key: key.bytes, group, consumer: args.get(3) });
    let mut changes = GroupChanges { new_consumer: consumer.is_new, ..GroupChanges::default() };
    let Some(stream) = ctx.db.write::<Stream>(key)? else { return Ok(()) };
    // As in Redis, the group's counter of entries read stays, although it may not match the new
    // last ID.
    if let Some(group) = stream.group_mut(group)
        && request.last_id > group.last_delivered()
    {
        group.set_last_delivered(request.last_id);
        changes.moved = true;
    }
    let claim = request.claim(consumer.index, now_ms);
    let begun = ctx.reply.begin_array();
    let (mut claimed, mut gone, is_recorded) = (0, 0, ctx.effects.record.is_wanted);
    for id in request.ids {
        match stream.claim(group, id, &claim) {
            Claimed::Yes => {
                request.reply.write(&mut ctx.reply, stream, id);
                changes.claimed.extend(is_recorded.then_some(id));
                claimed += 1;
            }
            Claimed::Gone => {
                changes.gone.extend(is_recorded.then_some(id));
                gone += 1;
            }
            Claimed::No => {}
        }
    }
    ctx.reply.end_array(begun, claimed);
    // The record of a claim includes the last ID.
    changes.moved &= claimed == 0;
    ctx.effects.record.replace(db, |record| changes.record(record, stream, &names));
    ctx.changed_silently((claimed + gone) as u64);
    Ok(())
}

/// Releases the entries of an XCLAIM that was recorded in place of XNACK. Replies with their IDs.
fn release_again(ctx: &mut Ctx<'_>, args: &Args<'_>, request: &ClaimRequest) -> Result<(), CommandError> {
    let deliveries = ReleasedDeliveries::Set(request.deliveries.unwrap_or(0));
    let release = Release { deliveries, force: request.force };
    let released = release_entries(ctx, args.key(1), args.get(2), &request.ids, &release)?;
    ctx.reply.array(released.len());
    released.into_iter().for_each(|id| reply_id(&mut ctx.reply, id));
    Ok(())
}

/// The content of the reply of XCLAIM and XAUTOCLAIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimReply {
    /// The reply has the claimed entries with their fields and values.
    Entries,
    /// The reply has only the IDs of the claimed entries: JUSTID.
    Ids,
}

impl ClaimReply {
    /// Writes a claimed entry to the reply, or only its ID with JUSTID. The entry must exist.
    fn write(self, reply: &mut Reply<'_>, stream: &Stream, id: StreamId) {
        match stream.entry(id).filter(|_| self == Self::Entries) {
            Some(entry) => reply_entry(reply, entry),
            None => reply_id(reply, id),
        }
    }

    /// Returns the effect of the claim on an entry's count of deliveries: a claim with JUSTID
    /// leaves the count unchanged.
    fn deliveries(self) -> Deliveries {
        match self {
            Self::Entries => Deliveries::Increment,
            Self::Ids => Deliveries::Keep,
        }
    }
}

/// A parsed request of XCLAIM.
struct ClaimRequest {
    min_idle_ms: i64,
    ids: Vec<StreamId>,
    delivered_ms: i64,
    /// True if the option TIME has set `delivered_ms`.
    has_time: bool,
    deliveries: Option<u64>,
    force: bool,
    reply: ClaimReply,
    /// The new last delivered ID of the group; `0-0` leaves it unchanged.
    last_id: StreamId,
}

impl ClaimRequest {
    fn parse(args: &Args<'_>, now_ms: i64) -> Result<Self, CommandError> {
        let number = |at, line| args.integer(at).map_err(|_| CommandError::Line(line));
        let mut request = Self {
            min_idle_ms: number(4, "ERR Invalid min-idle-time argument for XCLAIM")?,
            // IDs end at the first word that is not an ID; options follow.
            ids: args.from(5).map_while(|text| parse_id(text, 0).ok()).collect(),
            delivered_ms: now_ms,
            has_time: false,
            deliveries: None,
            force: false,
            reply: ClaimReply::Entries,
            last_id: StreamId::MIN,
        };
        let mut at = 5 + request.ids.len();
        while at < args.len() {
            let has_value = at + 1 < args.len();
            let words = if args.is(at, "FORCE") {
                request.force = true;
                1
            } else if args.is(at, "JUSTID") {
                request.reply = ClaimReply::Ids;
                1
            } else if has_value && args.is(at, "IDLE") {
                let idle_ms = number(at + 1, "ERR Invalid IDLE option argument for XCLAIM")?;
                (request.delivered_ms, request.has_time) = (now_ms.wrapping_sub(idle_ms), false);
                2
            } else if has_value && args.is(at, "TIME") {
                let time_ms = number(at + 1, "ERR Invalid TIME option argument for XCLAIM")?;
                (request.delivered_ms, request.has_time) = (time_ms, true);
                2
            } else if has_value && args.is(at, "RETRYCOUNT") {
                let count = number(at + 1, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                request.deliveries = u64::try_from(count).ok();
                2
            } else if has_value && args.is(at, "LASTID") {
                request.last_id = parse_id(args.get(at + 1), 0)?;
                2
            } else {
                return Err(CommandError::quoting("ERR Unrecognized XCLAIM option '", args.get(at), "'"));
            };
            at += words;
        }
        // A negative time and a time in the future count as the present time.
        if !(0..=now_ms).contains(&request.delivered_ms) {
            request.delivered_ms = now_ms;
        }
        Ok(request)
    }

    /// Returns true if the XCLAIM was recorded in place of XNACK: it is for the consumer with the
    /// empty name, with TIME 0.
    fn is_release(&self, args: &Args<'_>) -> bool {
        let is_for_nobody = args.get(3).is_empty() && self.has_time && self.delivered_ms == 0;
        is_for_nobody && self.force && self.reply == ClaimReply::Ids && self.deliveries.is_some()
    }

    fn claim(&self, consumer: ConsumerIndex, now_ms: i64) -> Claim {
        let deliveries = match self.deliveries {
            Some(count) => Deliveries::Set(count),
            None => self.reply.deliveries(),
        };
        let Self { min_idle_ms, delivered_ms, force, .. } = *self;
        Claim { consumer, now_ms, min_idle_ms, delivered_ms, deliveries, force }
    }
}

pub(super) static XAUTOCLAIM: Command = Command {
    name: "XAUTOCLAIM",
    summary: "Transfers idle pending entries of a consumer group to a consumer, with a cursor.",
    history: History::since("6.2.0")
        .changed(&[("7.0.0", "returns the IDs of deleted entries that it removed from the pending entries")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::string("consumer"),
        Arg::string("min-idle-time"),
        Arg::string("start"),
        Arg::integer("count").token("COUNT").optional(),
        Arg::word("justid", "JUSTID").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xautoclaim,
    ..Command::DEFAULT
};
/// Handles XAUTOCLAIM: replies with the next start, the entries that now belong to the consumer or
/// their IDs, and the IDs of pending entries that had been deleted.
fn xautoclaim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = AutoclaimRequest::parse(args)?;
    let key = args.key(1);
    let (group, now_ms) = (args.get(2), ctx.db.now_ms());
    // The lookup counts as a read of the key.
    let _ = ctx.db.look(key);
    let consumer = named_consumer(ctx, key, group, args.get(3))?;
    let consumer = consumer.ok_or_else(|| no_key_or_group(args.get(1), args.get(2), ""))?;
    let (db, names) = (ctx.db.index(), GroupNames { key: key.bytes, group, consumer: args.get(3) });
    let claim = Claim {
        consumer: consumer.index,
        now_ms,
        min_idle_ms: request.min_idle_ms,
        delivered_ms: now_ms,
        deliveries: request.reply.deliveries(),
        force: false,
    };
    let Some(stream) = ctx.db.write::<Stream>(key)? else { return Ok(()) };
    let done = stream.autoclaim(group, request.start, request.count_max, &claim);
    ctx.reply.array(3);
    reply_id(&mut ctx.reply, done.cursor);
    ctx.reply.array(done.claimed.len());
    for &id in &done.claimed {
        request.reply.write(&mut ctx.reply, stream, id);
    }
    ctx.reply.array(done.gone.len());
    done.gone.iter().for_each(|&id| reply_id(&mut ctx.reply, id));
    let changes = done.claimed.len() + done.gone.len();
    ctx.effects.record.replace(db, |record| {
        let new_consumer = consumer.is_new;
        let changes = GroupChanges { new_consumer, claimed: done.claimed, gone: done.gone, moved: false };
        changes.record(record, stream, &names);
    });
    ctx.changed_silently(changes as u64);
    Ok(())
}

/// A parsed request of XAUTOCLAIM.
struct AutoclaimRequest {
    min_idle_ms: i64,
    start: StreamId,
    count_max: usize,
    reply: ClaimReply,
}

/// The maximum number of pending entries that XAUTOCLAIM claims without COUNT.
const AUTOCLAIM_COUNT_DEFAULT: usize = 100;
/// The largest accepted COUNT of XAUTOCLAIM. As in Redis, COUNT times the size of an ID in bytes
/// must fit into a signed 64-bit number.
const AUTOCLAIM_COUNT_MAX: i64 = i64::MAX / size_of::<StreamId>() as i64;

impl AutoclaimRequest {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let bad_idle = CommandError::Line("ERR Invalid min-idle-time argument for XAUTOCLAIM");
        let mut request = Self {
            min_idle_ms: args.integer(4).map_err(|_| bad_idle)?,
            start: range_start(args.get(5))?,
            count_max: AUTOCLAIM_COUNT_DEFAULT,
            reply: ClaimReply::Entries,
        };
        let mut at = 6;
        while at < args.len() {
            if args.is(at, "COUNT") && at + 1 < args.len() {
                let count = args.integer(at + 1).ok();
                let count = count.filter(|count| (1..=AUTOCLAIM_COUNT_MAX).contains(count));
                let count = count.ok_or(CommandError::Line("ERR COUNT must be > 0"))?;
                request.count_max = usize::try_from(count).unwrap_or(usize::MAX);
                at += 2;
            } else if args.is(at, "JUSTID") {
                request.reply = ClaimReply::Ids;
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    /// Creates a stream with entries 1-0 to 5-0; consumer `c` of group `g` has read three.
    fn harness() -> Harness {
        let mut db = Harness::new();
        for ms in 1..=5 {
            db.run(&["XADD", "s", &ms.to_string(), "f", "v"]);
        }
        db.line("XGROUP CREATE s g 0");
        db.line("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        db.events();
        db
    }

    fn entry(id: &str) -> String {
        format!("*2|$3|{id}|*2|$1|f|$1|v|")
    }

    fn row(id: &str, consumer: &str, idle: u32, deliveries: u32) -> String {
        format!("*4|$3|{id}|$1|{consumer}|:{idle}|:{deliveries}|")
    }

    fn check_on(db: &mut Harness, steps: &[(&str, String)]) {
        for (line, reply) in steps {
            assert_eq!(db.line(line), *reply, "{line}");
        }
    }

    #[test]
    fn pending_entries_are_summed_up_or_listed() {
        let mut db = harness();
        db.now_ms += 10;
        db.line("XCLAIM s g d 0 2 JUSTID");
        db.now_ms += 5;
        let (one, two, three) = (row("1-0", "c", 15, 1), row("2-0", "d", 5, 1), row("3-0", "c", 15, 1));
        check_on(
            &mut db,
            &[
                ("XPENDING s g", "*4|:3|$3|1-0|$3|3-0|*2|*2|$1|c|$1|2|*2|$1|d|$1|1|".to_string()),
                ("XPENDING s g - + 10", format!("*3|{one}{two}{three}")),
                ("XPENDING s g - + 2", format!("*2|{one}{two}")),
                ("XPENDING s g (1 2 10", format!("*1|{two}")),
                ("XPENDING s g IDLE 6 - + 10", format!("*2|{one}{three}")),
                ("XPENDING s g - + 10 c", format!("*2|{one}{three}")),
                ("XPENDING s g IDLE 6 - + 1 c", format!("*1|{one}")),
                ("XPENDING s g - + 10 nobody", "*0|".to_string()),
                ("XPENDING s g - + -1", "*0|".to_string()),
                ("XACK s g 1 2 2 9", ":2|".to_string()),
                ("XACK s g 3", ":1|".to_string()),
                ("XPENDING s g", "*4|:0|$-1|$-1|*-1|".to_string()),
            ],
        );
    }

    #[test]
    fn claims_move_entries_and_count_deliveries() {
        let mut db = harness();
        db.now_ms += 100;
        check_on(
            &mut db,
            &[
                ("XCLAIM s g d 101 1", "*0|".to_string()),
                ("XCLAIM s g d 100 1 5", format!("*1|{}", entry("1-0"))),
                ("XCLAIM s g d 0 2 IDLE 40 RETRYCOUNT 9", format!("*1|{}", entry("2-0"))),
                ("XCLAIM s g d 0 5 FORCE JUSTID", "*1|$3|5-0|".to_string()),
                ("XDEL s 3", ":1|".to_string()),
                ("XCLAIM s g d 0 3 LASTID 4", "*0|".to_string()),
                (
                    "XPENDING s g - + 9",
                    format!(
                        "*3|{}{}{}",
                        row("1-0", "d", 0, 2),
                        row("2-0", "d", 40, 9),
                        row("5-0", "d", 0, 1)
                    ),
                ),
                ("XREADGROUP GROUP g d STREAMS s >", format!("*1|*2|$1|s|*1|{}", entry("5-0"))),
            ],
        );
        assert_eq!(db.events(), "xgroup-createconsumer s@0,xdel s@0");
    }

    #[test]
    fn autoclaim_walks_in_steps_and_tells_what_is_gone() {
        let mut db = harness();
        db.line("XDEL s 2");
        let (one, three) = (entry("1-0"), entry("3-0"));
        check_on(
            &mut db,
            &[
                ("XAUTOCLAIM s g d 0 0 COUNT 1", format!("*3|$3|2-0|*1|{one}*0|")),
                ("XAUTOCLAIM s g d 0 2 COUNT 1", "*3|$3|3-0|*0|*1|$3|2-0|".to_string()),
                ("XAUTOCLAIM s g d 0 (2 COUNT 1", format!("*3|$3|0-0|*1|{three}*0|")),
                ("XAUTOCLAIM s g d 0 - JUSTID", "*3|$3|0-0|*2|$3|1-0|$3|3-0|*0|".to_string()),
                ("XAUTOCLAIM s g d 1 -", "*3|$3|0-0|*0|*0|".to_string()),
            ],
        );
    }

    #[test]
    fn bad_requests_are_refused() {
        let no_group = "-NOGROUP No such key 's' or consumer group 'h'|";
        let invalid_id = "-ERR Invalid stream ID specified as stream command argument|";
        check(&[
            ("XPENDING s h", "-NOGROUP No such key 's' or consumer group 'h'|"),
            ("XGROUP CREATE s g 0 MKSTREAM", "+OK|"),
            ("XPENDING s g - +", "-ERR syntax error|"),
            ("XPENDING s g IDLE 3 - +", "-ERR syntax error|"),
            ("XPENDING s g x + y", "-ERR value is not an integer or out of range|"),
            ("XPENDING s g x + 1", invalid_id),
            ("XPENDING s h - + 1", no_group),
            ("XACK s g x", invalid_id),
            ("XACK s h x", ":0|"),
            ("XCLAIM s h c x 0", no_group),
            ("XCLAIM s g c x 0", "-ERR Invalid min-idle-time argument for XCLAIM|"),
            ("XCLAIM s g c 0 0 IDLE x", "-ERR Invalid IDLE option argument for XCLAIM|"),
            ("XCLAIM s g c 0 0 TIME x", "-ERR Invalid TIME option argument for XCLAIM|"),
            ("XCLAIM s g c 0 0 RETRYCOUNT x", "-ERR Invalid RETRYCOUNT option argument for XCLAIM|"),
            ("XCLAIM s g c 0 0 LASTID", "-ERR Unrecognized XCLAIM option 'LASTID'|"),
            ("XCLAIM s g c 0 0 LASTID x", invalid_id),
            ("XAUTOCLAIM s h c 0 0", no_group),
            ("XAUTOCLAIM s g c x 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM|"),
            ("XAUTOCLAIM s g c 0 x", invalid_id),
            ("XAUTOCLAIM s g c 0 0 COUNT 0", "-ERR COUNT must be > 0|"),
            ("XAUTOCLAIM s g c 0 0 COUNT", "-ERR syntax error|"),
            ("XINFO CONSUMERS s g", "*0|"),
        ]);
    }
}

//! Commands that remove entries by ID, and their references in consumer groups.

use keyspace::stream::Removal;
use keyspace::{References, Stream, StreamId};

use super::parse_id;
use super::record::RemovedEntries;
use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XDEL: Command = Command {
    name: "XDEL",
    summary: "Removes entries from a stream by their IDs.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("id").multiple()],
    run: xdel,
    ..Command::DEFAULT
};
/// Handles XDEL: replies with the number of removed entries.
fn xdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let Some(stream) = ctx.db.write::<Stream>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    // All IDs are parsed before an entry is removed: an invalid ID leaves the stream unchanged.
    let ids = args.from(2).map(|text| parse_id(text, 0));
    let ids = ids.collect::<Result<Vec<StreamId>, _>>()?;
    let removed = ids.into_iter().filter(|&id| stream.remove(id)).count();
    ctx.reply.integer(removed as i64);
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::STREAM, "xdel", key);
    }
    Ok(())
}

pub(super) static XDELEX: Command = Command {
    name: "XDELEX",
    summary: "Removes entries from a stream by their IDs, and controls their references in consumer \
         groups.",
    history: History::since("8.2.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), CONDITION, IDS],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xdelex,
    ..Command::DEFAULT
};
/// Handles XDELEX: replies for each ID with 1 if its entry was removed, -1 if there was none, 2 if
/// a consumer group still needs it.
fn xdelex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let exists = ctx.db.write::<Stream>(key)?.is_some();
    let request = RemoveRequest::parse(args, 2)?;
    if !exists {
        request.reply_missing(ctx);
        return Ok(());
    }
    let ids = request.ids(args)?;
    ctx.reply.array(ids.len());
    let db = ctx.db.index();
    let Some(stream) = ctx.db.write::<Stream>(key)? else { return Ok(()) };
    let mut gone = RemovedEntries::default();
    for id in ids {
        if request.references == References::Delete {
            // Entries deleted earlier may still be pending.
            gone.note_pending(stream, id);
        }
        let removal = stream.remove_with(id, request.references);
        if removal == Removal::Removed {
            gone.removed.push(id);
        }
        ctx.reply.integer(code(removal));
    }
    ctx.effects.record.replace(db, |record| gone.record(record, stream, key.bytes));
    if !gone.removed.is_empty() {
        ctx.changed_by(gone.removed.len() as u64, EventClass::STREAM, "xdel", key);
    }
    Ok(())
}

pub(super) static XACKDEL: Command = Command {
    name: "XACKDEL",
    summary: "Acknowledges entries of a consumer group and removes them, and controls their references in \
         other groups.",
    history: History::since("8.2.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("group"), CONDITION, IDS],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xackdel,
    ..Command::DEFAULT
};
/// Handles XACKDEL: replies for each ID with -1 if its entry was not pending in the group.
/// Otherwise replies with 2 if another consumer group still needs the entry, else with 1.
fn xackdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let group = args.get(2);
    let exists = ctx.db.write::<Stream>(key)?.is_some_and(|stream| stream.group(group).is_some());
    let request = RemoveRequest::parse(args, 3)?;
    if !exists {
        request.reply_missing(ctx);
        return Ok(());
    }
    let ids = request.ids(args)?;
    ctx.reply.array(ids.len());
    let db = ctx.db.index();
    let Some(stream) = ctx.db.write::<Stream>(key)? else { return Ok(()) };
    let number = stream.groups().position(|of| of.name() == group).unwrap_or_default();
    let (mut acknowledged, mut gone) = (0, RemovedEntries::default());
    for id in ids {
        if !stream.group_mut(group).is_some_and(|group| group.acknowledge(id)) {
            ctx.reply.integer(code(Removal::Missing));
            continue;
        }
        acknowledged += 1;
        gone.acknowledged.push((number, id));
        if request.references == References::Delete {
            gone.note_pending(stream, id);
        }
        let removal = stream.remove_with(id, request.references);
        if removal == Removal::Removed {
            gone.removed.push(id);
        }
        // Pending entries that were already deleted from the stream count as removed.
        let is_kept = removal == Removal::Referenced;
        ctx.reply.integer(code(if is_kept { removal } else { Removal::Removed }));
    }
    ctx.effects.record.replace(db, |record| gone.record(record, stream, key.bytes));
    ctx.changed_silently(acknowledged);
    if !gone.removed.is_empty() {
        ctx.changed_by(gone.removed.len() as u64, EventClass::STREAM, "xdel", key);
    }
    Ok(())
}

const CONDITION: Arg = Arg::one_of(
    "condition",
    &[Arg::word("keepref", "KEEPREF"), Arg::word("delref", "DELREF"), Arg::word("acked", "ACKED")],
)
.optional();

const IDS: Arg = Arg::block("ids", &[Arg::integer("numids"), Arg::string("id").multiple()]).token("IDS");

/// Returns the reply of XDELEX and XACKDEL for one ID: 1 if its entry was removed, -1 if there was
/// none, 2 if a group still needs it.
fn code(removal: Removal) -> i64 {
    match removal {
        Removal::Removed => 1,
        Removal::Missing => -1,
        Removal::Referenced => 2,
    }
}

/// Returns the meaning of KEEPREF, DELREF or ACKED at argument `at`, or `None` for any other word.
pub(super) fn references_word(args: &Args<'_>, at: usize) -> Option<References> {
    let words =
        [("KEEPREF", References::Keep), ("DELREF", References::Delete), ("ACKED", References::Acknowledged)];
    words.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, references)| references)
}

/// The options of XDELEX and XACKDEL.
struct RemoveRequest {
    references: References,
    /// The index of the argument that is the first ID.
    ids_at: usize,
    id_count: usize,
}

impl RemoveRequest {
    fn parse(args: &Args<'_>, mut at: usize) -> Result<Self, CommandError> {
        let (mut references, mut ids) = (None, None);
        while at < args.len() {
            let word = references_word(args, at).filter(|_| references.is_none());
            if word.is_some() {
                references = word;
                at += 1;
            } else if ids.is_none() && args.is(at, "IDS") && at + 1 < args.len() {
                let count = args.integer(at + 1).ok().and_then(|count| usize::try_from(count).ok());
                let not_positive = CommandError::Line("ERR Number of IDs must be a positive integer");
                let count = count.filter(|&count| count > 0).ok_or(not_positive)?;
                at += 2;
                if count > args.len() - at {
                    let line = "ERR The `numids` parameter must match the number of arguments";
                    return Err(CommandError::Line(line));
                }
                ids = Some((at, count));
                at += count;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let (ids_at, id_count) = ids.ok_or(CommandError::Syntax)?;
        Ok(Self { references: references.unwrap_or_default(), ids_at, id_count })
    }

    /// Parses all IDs of the request before an entry is removed, so that an invalid ID leaves the
    /// stream unchanged.
    fn ids(&self, args: &Args<'_>) -> Result<Vec<StreamId>, CommandError> {
        args.from(self.ids_at).take(self.id_count).map(|text| parse_id(text, 0)).collect()
    }

    fn reply_missing(&self, ctx: &mut Ctx<'_>) {
        ctx.reply.array(self.id_count);
        (0..self.id_count).for_each(|_| ctx.reply.integer(code(Removal::Missing)));
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    const INVALID_ID: &str = "-ERR Invalid stream ID specified as stream command argument|";

    #[test]
    fn entries_are_removed_by_id_all_or_none() {
        check(&[
            ("XADD s 1 a b", "$3|1-0|"),
            ("XADD s 2 a b", "$3|2-0|"),
            ("XDEL s 1 x", INVALID_ID),
            ("XDEL s 1 3 1-0", ":1|"),
            ("XRANGE s - +", "*1|*2|$3|2-0|*2|$1|a|$1|b|"),
            ("XDEL s 2", ":1|"),
            ("XLEN s", ":0|"),
            (
                "XADD s 2 a b",
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item|",
            ),
            ("XDEL none x", ":0|"),
            ("SET str v", "+OK|"),
            ("XDEL str x", WRONG_TYPE),
        ]);
    }

    /// Creates a stream with three entries; the consumer group `g` has read two of them and `h`
    /// one.
    fn harness() -> Harness {
        let mut db = Harness::new();
        for line in [
            "XADD s 1 a b",
            "XADD s 2 a b",
            "XADD s 3 a b",
            "XGROUP CREATE s g 0",
            "XGROUP CREATE s h 0",
            "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
            "XREADGROUP GROUP h c COUNT 1 STREAMS s >",
        ] {
            db.line(line);
        }
        db.events();
        db
    }

    #[test]
    fn entries_go_as_groups_allow() {
        let mut db = harness();
        db.check_events(&[
            ("XDELEX s ACKED IDS 4 1 2 3 4", "*4|:2|:2|:2|:2|", ""),
            ("XACKDEL s g ACKED IDS 2 1 3", "*2|:2|:-1|", ""),
            ("XACKDEL s h acked IDS 1 1", "*1|:1|", "xdel s@0"),
            ("XDELEX s IDS 1 1", "*1|:-1|", ""),
            ("XDELEX s DELREF IDS 1 2", "*1|:1|", "xdel s@0"),
            ("XACK s g 2", ":0|", ""),
            ("XDELEX s IDS 2 3 3 KEEPREF", "*2|:1|:-1|", "xdel s@0"),
        ]);
    }

    #[test]
    fn what_is_pending_and_gone_is_acknowledged() {
        let mut db = harness();
        db.check_events(&[
            ("XDEL s 1", ":1|", "xdel s@0"),
            ("XACKDEL s g IDS 1 1", "*1|:1|", ""),
            ("XACKDEL s g IDS 1 1", "*1|:-1|", ""),
            ("XACKDEL s none IDS 2 1 2", "*2|:-1|:-1|", ""),
        ]);
    }

    #[test]
    fn bad_ids_are_refused() {
        let mismatch = "-ERR The `numids` parameter must match the number of arguments|";
        let not_positive = "-ERR Number of IDs must be a positive integer|";
        check(&[
            ("XADD s 1 a b", "$3|1-0|"),
            ("XDELEX s IDS 0 1", not_positive),
            ("XDELEX s IDS x 1", not_positive),
            ("XDELEX s IDS 2 1", mismatch),
            ("XDELEX s IDS 1 1 2", "-ERR syntax error|"),
            ("XDELEX s KEEPREF DELREF IDS 1 1", "-ERR syntax error|"),
            ("XDELEX s KEEPREF DELREF ACKED", "-ERR syntax error|"),
            ("XDELEX s IDS 1 x", INVALID_ID),
            ("XDELEX none IDS 2 x x", "*2|:-1|:-1|"),
            ("SET str v", "+OK|"),
            ("XDELEX str IDS 0 x", WRONG_TYPE),
            ("XACKDEL str g IDS 0 x", WRONG_TYPE),
        ]);
    }
}

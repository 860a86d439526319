//! XNACK: releases pending entries, which then belong to no consumer.
//!
//! Older servers have no such command. Its record is XCLAIM for the consumer with the empty name,
//! as of the time 0. This server applies that record as a release. Others create such a consumer,
//! from which the entries can be claimed as well.

use keyspace::stream::{Claimed, Release, ReleasedDeliveries};
use keyspace::{Key, Stream, StreamId};

use super::record::{GroupChanges, GroupNames};
use super::{no_key_or_group, parse_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XNACK: Command = Command {
    name: "XNACK",
    summary: "Releases pending entries of a consumer group, so that other consumers can claim them at once.",
    history: History::since("8.8.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(7),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::one_of(
            "mode",
            &[Arg::word("silent", "SILENT"), Arg::word("fail", "FAIL"), Arg::word("fatal", "FATAL")],
        ),
        Arg::block("ids", &[Arg::integer("numids"), Arg::string("id").multiple()]).token("IDS"),
        Arg::integer("count").token("RETRYCOUNT").optional(),
        Arg::word("force", "FORCE").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xnack,
    ..Command::DEFAULT
};
/// Handles XNACK: replies with the number of released entries.
fn xnack(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, group) = (args.key(1), args.get(2));
    let stream = ctx.db.read_to_write::<Stream>(key)?;
    if stream.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_key_or_group(args.get(1), args.get(2), ""));
    }
    let request = ReleaseRequest::parse(args)?;
    let released = release_entries(ctx, key, group, &request.ids, &request.release)?;
    ctx.reply.integer(released.len() as i64);
    Ok(())
}

/// Releases pending entries of a consumer group, and counts and records the changes. Returns the
/// IDs of the released entries, in the order of `ids`.
pub(super) fn release_entries(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    group: &[u8],
    ids: &[StreamId],
    release: &Release,
) -> Result<Vec<StreamId>, CommandError> {
    let db = ctx.db.index();
    let Some(stream) = ctx.db.write::<Stream>(key)? else { return Ok(Vec::new()) };
    let mut changes = GroupChanges::default();
    for &id in ids {
        match stream.release(group, id, release) {
            Claimed::Yes => changes.claimed.push(id),
            Claimed::Gone => changes.gone.push(id),
            Claimed::No => {}
        }
    }
    let released = changes.claimed.clone();
    // An ID that is named twice has one record.
    changes.claimed.sort_unstable();
    changes.claimed.dedup();
    let names = GroupNames { key: key.bytes, group, consumer: b"" };
    ctx.effects.record.replace(db, |record| changes.record(record, stream, &names));
    ctx.changed_silently((released.len() + changes.gone.len()) as u64);
    Ok(released)
}

/// A parsed request of XNACK.
struct ReleaseRequest {
    ids: Vec<StreamId>,
    release: Release,
}

/// The number of deliveries that XNACK sets for an entry that no consumer can process.
const FATAL_DELIVERIES: u64 = i64::MAX as u64;

impl ReleaseRequest {
    /// Parses the arguments of XNACK after the group. All IDs are parsed before an entry is
    /// released.
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let modes = [
            ("SILENT", ReleasedDeliveries::Decrement),
            ("FAIL", ReleasedDeliveries::Keep),
            ("FATAL", ReleasedDeliveries::Set(FATAL_DELIVERIES)),
        ];
        let mode = modes.into_iter().find(|(word, _)| args.is(3, word));
        let mut deliveries = mode.ok_or(CommandError::Syntax)?.1;
        if !args.is(4, "IDS") {
            return Err(CommandError::Syntax);
        }
        let count = args.integer(5).ok().and_then(|count| usize::try_from(count).ok());
        let not_positive = CommandError::Line("ERR Number of IDs must be a positive integer");
        let count = count.filter(|&count| count > 0).ok_or(not_positive)?;
        if count > args.len() - 6 {
            return Err(CommandError::Line("ERR The `numids` parameter must match the number of arguments"));
        }
        let (mut at, mut force) = (6 + count, false);
        while at < args.len() {
            if args.is(at, "FORCE") {
                force = true;
                at += 1;
            } else if args.is(at, "RETRYCOUNT") && at + 1 < args.len() {
                let negative = CommandError::Line("ERR Invalid RETRYCOUNT value, must be >= 0");
                deliveries =
                    ReleasedDeliveries::Set(u64::try_from(args.integer(at + 1)?).map_err(|_| negative)?);
                at += 2;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let ids = args.from(6).take(count).map(|text| parse_id(text, 0));
        Ok(Self { ids: ids.collect::<Result<_, _>>()?, release: Release { deliveries, force } })
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    /// Creates a stream with entries 1-0 to 4-0; consumer `c` of group `g` has read three.
    fn harness() -> Harness {
        let mut db = Harness::new();
        for ms in 1..=4 {
            db.run(&["XADD", "s", &ms.to_string(), "f", "v"]);
        }
        db.line("XGROUP CREATE s g 0");
        db.line("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        db.events();
        db
    }

    fn row(id: &str, deliveries: u64) -> String {
        format!("*4|$3|{id}|$0||:-1|:{deliveries}|")
    }

    fn check_on(db: &mut Harness, steps: &[(&str, String)]) {
        for (line, reply) in steps {
            assert_eq!(db.line(line), *reply, "{line}");
        }
    }

    #[test]
    fn modes_change_the_count_of_deliveries() {
        let mut db = harness();
        let max = i64::MAX as u64;
        check_on(
            &mut db,
            &[
                ("XNACK s g FAIL IDS 1 1", ":1|".into()),
                ("XNACK s g SILENT IDS 2 2-0 9-0", ":1|".into()),
                ("XNACK s g fatal ids 1 3-0", ":1|".into()),
                ("XPENDING s g - + 9", format!("*3|{}{}{}", row("1-0", 1), row("2-0", 0), row("3-0", max))),
                ("XNACK s g SILENT IDS 1 2", ":1|".into()),
                ("XNACK s g FAIL IDS 1 3 RETRYCOUNT 5", ":1|".into()),
                ("XPENDING s g - + 9", format!("*3|{}{}{}", row("1-0", 1), row("2-0", 0), row("3-0", 5))),
                ("XPENDING s g", "*4|:3|$3|1-0|$3|3-0|*0|".into()),
                ("XPENDING s g - + 9 c", "*0|".into()),
            ],
        );
        assert_eq!(db.events(), "", "there is no event");
    }

    #[test]
    fn force_makes_entries_pending() {
        let mut db = harness();
        check_on(
            &mut db,
            &[
                ("XNACK s g FAIL IDS 1 4", ":0|".into()),
                ("XNACK s g FAIL IDS 2 4 9 FORCE", ":1|".into()),
                ("XPENDING s g 4 4 9", format!("*1|{}", row("4-0", 0))),
                ("XNACK s g FAIL IDS 1 4 RETRYCOUNT 3 FORCE", ":1|".into()),
                ("XPENDING s g 4 4 9", format!("*1|{}", row("4-0", 3))),
            ],
        );
    }

    #[test]
    fn released_entries_are_claimed_at_once() {
        let mut db = harness();
        let entry = |id: &str| format!("*2|$3|{id}|*2|$1|f|$1|v|");
        check_on(
            &mut db,
            &[
                ("XNACK s g FAIL IDS 3 1 2 3", ":3|".into()),
                ("XINFO GROUPS s", db_groups(1, 3)),
                ("XCLAIM s g d 1000000 1", format!("*1|{}", entry("1-0"))),
                ("XAUTOCLAIM s g d 1000000 0 COUNT 1", format!("*3|$3|3-0|*1|{}*0|", entry("2-0"))),
                ("XDEL s 3", ":1|".into()),
                ("XNACK s g FAIL IDS 1 3", ":0|".into()),
                ("XACK s g 1 2 3", ":2|".into()),
                ("XGROUP DELCONSUMER s g \"\"", ":0|".into()),
                ("XINFO GROUPS s", db_groups(2, 0)),
            ],
        );
    }

    fn db_groups(consumers: usize, pending: usize) -> String {
        format!(
            "*1|*12|$4|name|$1|g|$9|consumers|:{consumers}|$7|pending|:{pending}|\
             $17|last-delivered-id|$3|3-0|$12|entries-read|:3|$3|lag|{}",
            if consumers == 1 { ":1|" } else { "$-1|" }
        )
    }

    #[test]
    fn bad_requests_are_refused() {
        let no_group = "-NOGROUP No such key 's' or consumer group 'h'|";
        let count = "-ERR Number of IDs must be a positive integer|";
        check(&[
            ("XNACK s h FAIL IDS 1 1", no_group),
            ("XGROUP CREATE s g 0 MKSTREAM", "+OK|"),
            ("XNACK s h FAIL IDS 1 1", no_group),
            ("XNACK s g OTHER IDS 1 1", "-ERR syntax error|"),
            ("XNACK s g FAIL ID 1 1", "-ERR syntax error|"),
            ("XNACK s g FAIL IDS 0 1", count),
            ("XNACK s g FAIL IDS x 1", count),
            ("XNACK s g FAIL IDS 2 1", "-ERR The `numids` parameter must match the number of arguments|"),
            ("XNACK s g FAIL IDS 1 x", "-ERR Invalid stream ID specified as stream command argument|"),
            ("XNACK s g FAIL IDS 1 1 RETRYCOUNT", "-ERR syntax error|"),
            ("XNACK s g FAIL IDS 1 1 RETRYCOUNT x", "-ERR value is not an integer or out of range|"),
            ("XNACK s g FAIL IDS 1 1 RETRYCOUNT -1", "-ERR Invalid RETRYCOUNT value, must be >= 0|"),
            ("XNACK s g FAIL IDS 1 1 OTHER", "-ERR syntax error|"),
            ("SET t x", "+OK|"),
            ("XNACK t g FAIL IDS 1 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}

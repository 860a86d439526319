//! XINFO: descriptions of a stream, its groups and consumers.

use keyspace::stream::Group as ConsumerGroup;
use keyspace::{Stream, StreamId};
use resp::Reply;

use super::idempotent;
use super::{no_group_of_key, reply_entries, reply_entry, reply_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XINFO: Command = Command {
    name: "XINFO",
    summary: "A container for commands that describe streams.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&XINFO_STREAM, &XINFO_GROUPS, &XINFO_CONSUMERS, &XINFO_HELP],
    run: xinfo,
    ..Command::DEFAULT
};
/// Handles an unknown subcommand of XINFO: replies with an error.
fn xinfo(_: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::UnknownSubcommand(args.get(1).to_vec(), "XINFO"))
}

static XINFO_STREAM: Command = Command {
    name: "STREAM",
    summary: "Describes a stream.",
    history: History::since("5.0.0").changed(&[
        ("6.0.0", "takes FULL"),
        (
            "7.0.0",
            "returns max-deleted-entry-id, recorded-first-entry-id, entries-added, entries-read and lag",
        ),
        ("7.2.0", "returns active-time; seen-time counts attempts without an entry, too"),
    ]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "full-block",
            &[Arg::word("full", "FULL"), Arg::integer("count").token("COUNT").optional()],
        )
        .optional(),
    ],
    run: xinfo_stream,
    ..Command::DEFAULT
};
/// Handles XINFO STREAM: replies with a map. Streams are not stored in a radix tree as in Redis. So
/// `radix-tree-keys` is the number of the stream's nodes and `radix-tree-nodes` that number plus
/// one.
fn xinfo_stream(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let stream = ctx.db.read::<Stream>(args.key(2))?.ok_or(CommandError::NoSuchKey)?;
    let full = FullOption::parse(args)?;
    let reply = &mut ctx.reply;
    let idempotence_facts = if stream.idempotence().is_some() { 6 } else { 0 };
    reply.map(idempotence_facts + if full.is_some() { 9 } else { 10 });
    reply_facts(reply, stream);
    if let Some(FullOption { count_max }) = full {
        reply.bulk(b"entries");
        reply_entries(reply, stream.range(StreamId::MIN, StreamId::MAX).take(count_max));
        reply.bulk(b"groups");
        reply.array(stream.groups().len());
        for group in stream.groups() {
            reply_group_in_full(reply, stream, group, count_max);
        }
        return Ok(());
    }
    reply.bulk(b"groups");
    reply.integer(stream.groups().len() as i64);
    reply.bulk(b"first-entry");
    match stream.range(StreamId::MIN, StreamId::MAX).next() {
        Some(entry) => reply_entry(reply, entry),
        None => reply.null(),
    }
    reply.bulk(b"last-entry");
    match stream.range_rev(StreamId::MIN, StreamId::MAX).next() {
        Some(entry) => reply_entry(reply, entry),
        None => reply.null(),
    }
    Ok(())
}

/// Writes the names and values with which both forms of XINFO STREAM begin, with and without FULL:
/// seven, and six more for a stream that has or had idempotent IDs.
fn reply_facts(reply: &mut Reply<'_>, stream: &Stream) {
    let nodes = stream.node_count() as i64;
    reply.bulk(b"length");
    reply.integer(stream.len() as i64);
    reply.bulk(b"radix-tree-keys");
    reply.integer(nodes);
    reply.bulk(b"radix-tree-nodes");
    reply.integer(nodes + 1);
    reply.bulk(b"last-generated-id");
    reply_id(reply, stream.last_id());
    reply.bulk(b"max-deleted-entry-id");
    reply_id(reply, stream.max_deleted_id());
    reply.bulk(b"entries-added");
    reply.integer(stream.entries_added() as i64);
    reply.bulk(b"recorded-first-entry-id");
    reply_id(reply, stream.first_entry_id());
    if let Some(all) = stream.idempotence() {
        idempotent::reply_facts(reply, all);
    }
}

/// Writes a consumer group for XINFO STREAM FULL, with at most `count_max` of its pending entries,
/// and at most `count_max` of each consumer.
fn reply_group_in_full(reply: &mut Reply<'_>, stream: &Stream, group: &ConsumerGroup, count_max: usize) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(group.name());
    reply_progress(reply, stream, group);
    reply.bulk(b"pel-count");
    reply.integer(group.pending_len() as i64);
    reply.bulk(b"pending");
    let pending = group.pending_from(StreamId::MIN).take(count_max);
    reply.array(group.pending_len().min(count_max));
    for (id, pending) in pending {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.integer(pending.delivered_ms);
        reply.integer(pending.deliveries as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.known_consumer_count());
    for consumer in group.known_consumers() {
        reply.map(5);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        reply.bulk(b"seen-time");
        reply.integer(consumer.seen_ms());
        reply.bulk(b"active-time");
        reply.integer(consumer.active_ms().unwrap_or(-1));
        reply.bulk(b"pel-count");
        reply.integer(consumer.pending_len() as i64);
        reply.bulk(b"pending");
        reply.array(consumer.pending_len().min(count_max));
        for id in consumer.pending_from(StreamId::MIN).take(count_max) {
            let pending = group.pending(id).expect("what a consumer has pending, its group has");
            reply.array(3);
            reply_id(reply, id);
            reply.integer(pending.delivered_ms);
            reply.integer(pending.deliveries as i64);
        }
    }
}

/// Writes the progress of a consumer group: the names and values of its last delivered ID, entries
/// read and lag.
fn reply_progress(reply: &mut Reply<'_>, stream: &Stream, group: &ConsumerGroup) {
    let reply_number = |reply: &mut Reply<'_>, number: Option<i64>| match number {
        Some(number) => reply.integer(number),
        None => reply.null(),
    };
    reply.bulk(b"last-delivered-id");
    reply_id(reply, group.last_delivered());
    reply.bulk(b"entries-read");
    reply_number(reply, group.entries_read());
    reply.bulk(b"lag");
    reply_number(reply, stream.lag(group));
}

/// The option FULL of XINFO STREAM, with the maximum number of entries that it shows.
struct FullOption {
    count_max: usize,
}

/// The maximum number of entries that XINFO STREAM FULL shows without COUNT.
const FULL_COUNT_DEFAULT: usize = 10;

impl FullOption {
    fn parse(args: &Args<'_>) -> Result<Option<Self>, CommandError> {
        let count_max = match args.len() {
            3 => return Ok(None),
            4 if args.is(3, "FULL") => FULL_COUNT_DEFAULT,
            6 if args.is(3, "FULL") && args.is(4, "COUNT") => match args.integer(5)? {
                0 => usize::MAX,
                count => usize::try_from(count).unwrap_or(FULL_COUNT_DEFAULT),
            },
            _ => {
                let before = "ERR unknown subcommand or wrong number of arguments for '";
                return Err(CommandError::quoting(before, args.get(1), "'. Try XINFO HELP."));
            }
        };
        Ok(Some(Self { count_max }))
    }
}

static XINFO_GROUPS: Command = Command {
    name: "GROUPS",
    summary: "Describes the consumer groups of a stream.",
    history: History::since("5.0.0").changed(&[("7.0.0", "returns entries-read and lag")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0)],
    run: xinfo_groups,
    ..Command::DEFAULT
};
/// Handles XINFO GROUPS: replies with a map for each group, in the order of their names.
fn xinfo_groups(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let stream = ctx.db.read::<Stream>(args.key(2))?.ok_or(CommandError::NoSuchKey)?;
    let reply = &mut ctx.reply;
    reply.array(stream.groups().len());
    for group in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(group.name());
        reply.bulk(b"consumers");
        reply.integer(group.known_consumer_count() as i64);
        reply.bulk(b"pending");
        reply.integer(group.pending_len() as i64);
        reply_progress(reply, stream, group);
    }
    Ok(())
}

static XINFO_CONSUMERS: Command = Command {
    name: "CONSUMERS",
    summary: "Describes the consumers of a consumer group.",
    history: History::since("5.0.0")
        .changed(&[("7.2.0", "returns inactive; attempts without an entry reset idle, too")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::string("group")],
    run: xinfo_consumers,
    ..Command::DEFAULT
};
/// Handles XINFO CONSUMERS: replies with a map for each consumer, in the order of their names.
fn xinfo_consumers(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    let stream = ctx.db.read::<Stream>(args.key(2))?.ok_or(CommandError::NoSuchKey)?;
    let group = stream.group(args.get(3)).ok_or_else(|| no_group_of_key(args, 3, 2))?;
    let since = |then_ms: i64| now_ms.saturating_sub(then_ms).max(0);
    let reply = &mut ctx.reply;
    reply.array(group.known_consumer_count());
    for consumer in group.known_consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        reply.bulk(b"pending");
        reply.integer(consumer.pending_len() as i64);
        reply.bulk(b"idle");
        reply.integer(since(consumer.seen_ms()));
        reply.bulk(b"inactive");
        reply.integer(consumer.active_ms().map_or(-1, since));
    }
    Ok(())
}

static XINFO_HELP: Command =
    Command { group: Group::Stream, acl: Acl::STREAM, run: xinfo_help, ..Command::HELP };
/// Handles XINFO HELP: replies with the syntax and meaning of the subcommands.
fn xinfo_help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> Result<(), CommandError> {
    let lines = [
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
        "HELP",
        "    Print this help.",
    ];
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
    Ok(())
}

#[cfg(test)]
mod tests {
    use resp::Protocol;

    use crate::harness::{Harness, check};

    #[test]
    fn a_stream_is_described_in_short_or_in_full() {
        let mut db = Harness::new();
        db.protocol = Protocol::Resp3;
        db.line("XADD s 1-1 f v");
        db.line("XADD s 2-2 f v");
        db.line("XDEL s 2-2");
        let facts = "$6|length|:1|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|\
                     $17|last-generated-id|$3|2-2|$20|max-deleted-entry-id|$3|2-2|\
                     $13|entries-added|:2|$23|recorded-first-entry-id|$3|1-1|";
        let entry = "*2|$3|1-1|*2|$1|f|$1|v|";
        let short = format!("%10|{facts}$6|groups|:0|$11|first-entry|{entry}$10|last-entry|{entry}");
        assert_eq!(db.line("XINFO STREAM s"), short);
        let full = format!("%9|{facts}$7|entries|*1|{entry}$6|groups|*0|");
        assert_eq!(db.line("XINFO STREAM s FULL"), full);
        assert_eq!(db.line("XINFO STREAM s full count 0"), full);
        db.line("XDEL s 1-1");
        assert!(db.line("XINFO STREAM s").ends_with("$11|first-entry|_|$10|last-entry|_|"));
    }

    #[test]
    fn groups_and_consumers_are_described() {
        let mut db = Harness::new();
        db.protocol = Protocol::Resp3;
        for line in [
            "XADD s 1 f v",
            "XADD s 2 f v",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
            "XGROUP CREATECONSUMER s g d",
        ] {
            db.line(line);
        }
        db.now_ms += 7;
        let progress = "$17|last-delivered-id|$3|1-0|$12|entries-read|:1|$3|lag|:1|";
        assert_eq!(
            db.line("XINFO GROUPS s"),
            format!("*1|%6|$4|name|$1|g|$9|consumers|:2|$7|pending|:1|{progress}")
        );
        assert_eq!(
            db.line("XINFO CONSUMERS s g"),
            "*2|%4|$4|name|$1|c|$7|pending|:1|$4|idle|:7|$8|inactive|:7|\
             %4|$4|name|$1|d|$7|pending|:0|$4|idle|:7|$8|inactive|:-1|"
        );
        let start = crate::harness::START_MS;
        let full = format!(
            "*1|%7|$4|name|$1|g|{progress}$9|pel-count|:1|$7|pending|*1|*4|$3|1-0|$1|c|:{start}|:1|\
             $9|consumers|*2|%5|$4|name|$1|c|$9|seen-time|:{start}|$11|active-time|:{start}|\
             $9|pel-count|:1|$7|pending|*1|*3|$3|1-0|:{start}|:1|\
             %5|$4|name|$1|d|$9|seen-time|:{start}|$11|active-time|:-1|$9|pel-count|:0|$7|pending|*0|"
        );
        assert!(db.line("XINFO STREAM s FULL").ends_with(&full));
        assert_eq!(db.line("XINFO CONSUMERS s h"), "-NOGROUP No such consumer group 'h' for key name 's'|");
    }

    #[test]
    fn the_key_is_looked_up_before_the_options_are_read() {
        let bad = "-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.|";
        check(&[
            ("XINFO STREAM none FOO", "-ERR no such key|"),
            ("SET str v", "+OK|"),
            ("XINFO STREAM str FOO", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("XADD s 1 f v", "$3|1-0|"),
            ("XINFO STREAM s FOO", bad),
            ("XINFO STREAM s FULL COUNT", bad),
            ("XINFO STREAM s FULL FOO 1", bad),
            ("XINFO STREAM s FULL COUNT x", "-ERR value is not an integer or out of range|"),
            ("XINFO FOO", "-ERR unknown subcommand 'FOO'. Try XINFO HELP.|"),
        ]);
    }
}

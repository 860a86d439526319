//! XINFO: what a stream is made of.

use keyspace::{Stream, StreamId};
use resp::Reply;

use super::{reply_entries, reply_entry, reply_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, KeyFlags, KeySpec};

pub(super) static XINFO: Command = Command {
    name: "XINFO",
    summary: "A container for commands that describe streams.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "",
    deprecated: None,
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[&XINFO_STREAM, &XINFO_HELP],
    run: xinfo,
};
/// XINFO with a subcommand that there is not.
fn xinfo(_: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::UnknownSubcommand(args.get(1).to_vec(), "XINFO"))
}

static XINFO_STREAM: Command = Command {
    name: "STREAM",
    summary: "Describes a stream.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &[],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "full-block",
            &[Arg::word("full", "FULL"), Arg::integer("count").token("COUNT").optional()],
        )
        .optional(),
    ],
    subcommands: &[],
    run: xinfo_stream,
};
/// XINFO STREAM key \[FULL \[COUNT count\]\]: a map. Redis keeps nodes in a radix tree and tells its size;
/// here that many nodes and their ring are told.
fn xinfo_stream(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let stream = ctx.db.read::<Stream>(args.key(2))?.ok_or(CommandError::NoSuchKey)?;
    let full = FullOption::parse(args)?;
    let reply = &mut ctx.reply;
    reply.map(if full.is_some() { 9 } else { 10 });
    reply_facts(reply, stream);
    if let Some(FullOption { count_max }) = full {
        reply.bulk(b"entries");
        reply_entries(reply, stream.range(StreamId::MIN, StreamId::MAX).take(count_max));
        reply.bulk(b"groups");
        reply.empty_array();
        return Ok(());
    }
    reply.bulk(b"groups");
    reply.integer(0);
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

/// The seven numbers and IDs that both forms begin with.
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
}

/// FULL, and how many entries it shows.
struct FullOption {
    count_max: usize,
}

/// Entries that FULL shows where no COUNT says otherwise.
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

static XINFO_HELP: Command = Command {
    name: "HELP",
    summary: "Returns a help text about the subcommands.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::LOADING.union(Flags::STALE),
    acl: Acl::STREAM,
    keys: &[],
    tips: &[],
    args: &[],
    subcommands: &[],
    run: xinfo_help,
};
/// XINFO HELP.
fn xinfo_help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> Result<(), CommandError> {
    let lines = [
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
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

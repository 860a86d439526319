//! XGROUP: creates, moves and removes consumer groups and their consumers.

use keyspace::stream::{ConsumerIndex, Group as ConsumerGroup};
use keyspace::{Key, ObjectType, Stream, StreamId};

use super::{named_or_id, no_group_of_key, parse_id};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static XGROUP: Command = Command {
    name: "XGROUP",
    summary: "A container for commands that manage the consumer groups of streams.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[
        &XGROUP_CREATE,
        &XGROUP_SETID,
        &XGROUP_DESTROY,
        &XGROUP_CREATECONSUMER,
        &XGROUP_DELCONSUMER,
        &XGROUP_HELP,
    ],
    run: xgroup,
    ..Command::DEFAULT
};
/// Handles an unknown subcommand of XGROUP: replies with an error.
fn xgroup(_: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::UnknownSubcommand(args.get(1).to_vec(), "XGROUP"))
}

/// The form of XGROUP CREATE and XGROUP SETID with ENTRIESREAD, which Redis 7.0 introduced.
const ENTRIES_READ: &[RecordedForm] = &[RecordedForm::with_word("ENTRIESREAD", 5, KnownSince::REDIS_7)];

static XGROUP_CREATE: Command = Command {
    name: "CREATE",
    summary: "Creates a consumer group.",
    history: History::since("5.0.0").changed(&[("7.0.0", "takes ENTRIESREAD")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::one_of("id-selector", &[Arg::string("id"), Arg::word("new-id", "$")]),
        Arg::word("mkstream", "MKSTREAM").optional(),
        Arg::integer("entriesread").shown_as("entries-read").token("ENTRIESREAD").optional(),
    ],
    recorded_forms: ENTRIES_READ,
    run: xgroup_create,
    ..Command::DEFAULT
};
/// Handles XGROUP CREATE: replies with OK.
fn xgroup_create(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let options = GroupOptions::parse(args)?;
    let key = args.key(2);
    let stream = ctx.db.write::<Stream>(key)?;
    if stream.is_none() && !options.make_stream {
        return Err(CommandError::Line(KEY_REQUIRED));
    }
    if args.len() > CREATE_ARGS_MAX {
        return Err(unknown_or_wrong_arity(args));
    }
    let makes_stream = stream.is_none();
    let id = match args.get(4) {
        b"$" => stream.map_or(StreamId::MIN, |stream| stream.last_id()),
        text => parse_id(text, 0)?,
    };
    let stream = ctx.db.write_or_insert::<Stream>(key)?;
    if stream.create_group(args.get(3), id, options.entries_read).is_none() {
        return Err(CommandError::Line("BUSYGROUP Consumer Group name already exists"));
    }
    ctx.reply.ok();
    if makes_stream {
        ctx.changed_without_event(0, key);
    }
    ctx.changed_groups("xgroup-create", key);
    Ok(())
}

static XGROUP_SETID: Command = Command {
    name: "SETID",
    summary: "Sets the last delivered ID of a consumer group.",
    history: History::since("5.0.0").changed(&[("7.0.0", "takes ENTRIESREAD")]),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::string("group"),
        Arg::one_of("id-selector", &[Arg::string("id"), Arg::word("new-id", "$")]),
        Arg::integer("entriesread").shown_as("entries-read").token("ENTRIESREAD").optional(),
    ],
    recorded_forms: ENTRIES_READ,
    run: xgroup_setid,
    ..Command::DEFAULT
};
/// Handles XGROUP SETID: replies with OK.
fn xgroup_setid(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let options = GroupOptions::parse(args)?;
    let key = args.key(2);
    let stream = ctx.db.write::<Stream>(key)?.ok_or(CommandError::Line(KEY_REQUIRED))?;
    let last_id = stream.last_id();
    stream.group(args.get(3)).ok_or_else(|| no_group_of_key(args, 3, 2))?;
    if args.len() > SETID_ARGS_MAX {
        return Err(unknown_or_wrong_arity(args));
    }
    let id = match args.get(4) {
        b"$" => last_id,
        text => named_or_id(text, 0)?,
    };
    stream.set_group_progress(args.get(3), id, options.entries_read);
    ctx.reply.ok();
    ctx.changed_groups("xgroup-setid", key);
    Ok(())
}

static XGROUP_DESTROY: Command = Command {
    name: "DESTROY",
    summary: "Removes a consumer group.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("group")],
    run: xgroup_destroy,
    ..Command::DEFAULT
};
/// Handles XGROUP DESTROY: replies with the number of removed groups.
fn xgroup_destroy(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(2);
    let stream = ctx.db.write::<Stream>(key)?.ok_or(CommandError::Line(KEY_REQUIRED))?;
    let removed = stream.remove_group(args.get(3));
    ctx.reply.integer(removed.is_some().into());
    if let Some(removed) = removed {
        ctx.effects.lazy_free_object(removed.into_object());
        ctx.changed_groups("xgroup-destroy", key);
        // Clients blocked on that group get an error reply.
        ctx.mark_ready(key);
    }
    Ok(())
}

static XGROUP_CREATECONSUMER: Command = Command {
    name: "CREATECONSUMER",
    summary: "Creates a consumer in a consumer group.",
    history: History::since("6.2.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("group"), Arg::string("consumer")],
    run: xgroup_createconsumer,
    ..Command::DEFAULT
};
/// Handles XGROUP CREATECONSUMER: replies with 1 if the consumer is new.
fn xgroup_createconsumer(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    let created = group_to_change(ctx, args)?.create_known_consumer(args.get(4), now_ms).is_some();
    ctx.reply.integer(created.into());
    if created {
        ctx.changed_groups(CREATE_CONSUMER_EVENT, args.key(2));
    }
    Ok(())
}

static XGROUP_DELCONSUMER: Command = Command {
    name: "DELCONSUMER",
    summary: "Removes a consumer from a consumer group.",
    history: History::since("5.0.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(5),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("group"), Arg::string("consumer")],
    run: xgroup_delconsumer,
    ..Command::DEFAULT
};
/// Handles XGROUP DELCONSUMER: replies with the number of entries that were pending for the
/// consumer.
fn xgroup_delconsumer(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let removed = group_to_change(ctx, args)?.remove_consumer(args.get(4));
    ctx.reply.integer(removed.unwrap_or(0) as i64);
    if removed.is_some() {
        ctx.changed_groups("xgroup-delconsumer", args.key(2));
    }
    Ok(())
}

static XGROUP_HELP: Command =
    Command { group: Group::Stream, acl: Acl::STREAM, run: xgroup_help, ..Command::HELP };
/// Handles XGROUP HELP: replies with the syntax and meaning of the subcommands.
fn xgroup_help(ctx: &mut Ctx<'_>, _: &Args<'_>) -> Result<(), CommandError> {
    let lines = [
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
        "HELP",
        "    Print this help.",
    ];
    ctx.reply.array(lines.len());
    lines.iter().for_each(|line| ctx.reply.simple(line));
    Ok(())
}

const KEY_REQUIRED: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
                            want to use the MKSTREAM option to create an empty stream automatically.";

/// The keyspace event that any command raises when it creates a consumer of a group.
const CREATE_CONSUMER_EVENT: &str = "xgroup-createconsumer";

/// Returns the consumer group that argument 3 names, of the stream at the key in argument 2.
fn group_to_change<'c>(ctx: &'c mut Ctx<'_>, args: &Args<'_>) -> Result<&'c mut ConsumerGroup, CommandError> {
    let stream = ctx.db.write::<Stream>(args.key(2))?.ok_or(CommandError::Line(KEY_REQUIRED))?;
    stream.group_mut(args.get(3)).ok_or_else(|| no_group_of_key(args, 3, 2))
}

/// The consumer of a group that a command names.
pub(super) struct NamedConsumer {
    pub(super) index: ConsumerIndex,
    /// True if the command created the consumer, or the holder of released entries became it.
    pub(super) is_new: bool,
}

/// Returns the consumer of a group that a command names, and sets the time at which it was last
/// seen to now. Creates a missing consumer, which raises an event. Returns `None` if there is no
/// such group.
pub(super) fn named_consumer(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    group: &[u8],
    name: &[u8],
) -> Result<Option<NamedConsumer>, CommandError> {
    let now_ms = ctx.db.now_ms();
    let stream = ctx.db.write::<Stream>(key)?;
    let Some(group) = stream.and_then(|stream| stream.group_mut(group)) else { return Ok(None) };
    let known = group.find_consumer(name).filter(|&index| !group.consumer(index).is_holder());
    if let Some(index) = known {
        group.see(index, now_ms);
        return Ok(Some(NamedConsumer { index, is_new: false }));
    }
    let consumer = group.create_known_consumer(name, now_ms);
    ctx.changed_groups(CREATE_CONSUMER_EVENT, key);
    Ok(consumer.map(|index| NamedConsumer { index, is_new: true }))
}

/// The options of XGROUP CREATE and XGROUP SETID.
struct GroupOptions {
    make_stream: bool,
    entries_read: Option<i64>,
}

impl GroupOptions {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self { make_stream: false, entries_read: None };
        let mut at = 5;
        while at < args.len() {
            if args.is(1, "CREATE") && args.is(at, "MKSTREAM") {
                options.make_stream = true;
                at += 1;
            } else if args.is(at, "ENTRIESREAD") && at + 1 < args.len() {
                options.entries_read = match args.integer(at + 1)? {
                    -1 => None,
                    count if count >= 0 => Some(count),
                    _ => {
                        let line = "ERR value for ENTRIESREAD must be positive or -1";
                        return Err(CommandError::Line(line));
                    }
                };
                at += 2;
            } else {
                return Err(unknown_or_wrong_arity(args));
            }
        }
        Ok(options)
    }
}

/// The maximum number of arguments of XGROUP CREATE if each option is given once. The parser alone
/// would accept an option twice.
const CREATE_ARGS_MAX: usize = 8;
/// The maximum number of arguments of XGROUP SETID if its option is given once.
const SETID_ARGS_MAX: usize = 7;

fn unknown_or_wrong_arity(args: &Args<'_>) -> CommandError {
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    CommandError::quoting(before, args.get(1), "'. Try XGROUP HELP.")
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn groups_begin_where_they_are_told() {
        let facts = |name: &str, id: &str, read: &str, lag: &str| {
            format!(
                "*12|$4|name|$1|{name}|$9|consumers|:0|$7|pending|:0|$17|last-delivered-id|$3|{id}|\
                 $12|entries-read|{read}|$3|lag|{lag}|"
            )
        };
        let (a, b) = (facts("a", "1-0", ":2", ":0"), facts("b", "2-0", "$-1|", ":0"));
        let groups = format!("*2|{}{}", a, b.replace("$-1||", "$-1|"));
        let mut db = Harness::new();
        for (line, reply) in [
            ("XADD s 1 f v", "$3|1-0|"),
            ("XADD s 2 f v", "$3|2-0|"),
            ("XGROUP CREATE s b $", "+OK|"),
            ("XGROUP CREATE s a 0", "+OK|"),
            ("XGROUP SETID s a 1 ENTRIESREAD 7", "+OK|"),
            ("XINFO GROUPS s", &groups),
            ("XGROUP DESTROY s b", ":1|"),
            ("XGROUP DESTROY s b", ":0|"),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
    }

    /// Checks `entries-read` and `lag` of the first consumer group of the stream `s` after each
    /// command line.
    fn check_lags(steps: &[(&str, &str, &str)]) {
        let mut db = Harness::new();
        for (line, read, lag) in steps {
            db.line(line);
            let groups = db.line("XINFO GROUPS s");
            let expected = format!("$12|entries-read|{read}|$3|lag|{lag}|");
            assert!(groups.contains(&expected), "{line}: {groups}");
        }
    }

    #[test]
    fn issue_33_negative_lags_of_counters_that_users_set() {
        // The counter is set above the number of entries ever added: on creation, later, and for a
        // stream without entries.
        check_lags(&[("XGROUP CREATE s g $ MKSTREAM ENTRIESREAD 100", ":0", ":0")]);
        check_lags(&[("XGROUP CREATE s g 0 MKSTREAM", "$-1", ":0"), ("XADD s 1 f v", "$-1", ":1")]);
        check_lags(&[
            ("XGROUP CREATE s g $ MKSTREAM", "$-1", ":0"),
            ("XADD s 1 f v", "$-1", ":1"),
            ("XADD s 2 f v", "$-1", ":2"),
            ("XADD s 3 f v", "$-1", ":3"),
            ("XGROUP SETID s g 1 ENTRIESREAD 9223372036854775807", ":3", ":0"),
            // The counter grows as the group reads, up to the number of entries added.
            ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", ":3", ":0"),
            ("XADD s 4 f v", ":3", ":1"),
            ("XGROUP SETID s g 4 ENTRIESREAD 4", ":4", ":0"),
            ("XTRIM s MAXLEN 1", ":4", ":0"),
            // XSETID sets the count of entries added below the count of entries read.
            ("XSETID s 9-1 ENTRIESADDED 2", ":2", ":0"),
            ("XADD s 9-2 f v", ":2", ":1"),
            ("XSETID s 9-2 ENTRIESADDED 9223372036854775807", ":2", ":9223372036854775805"),
            ("XADD s 9-3 f v", ":2", ":9223372036854775805"),
            ("XREADGROUP GROUP g c STREAMS s >", ":4", ":9223372036854775803"),
        ]);
    }

    #[test]
    fn what_is_missing_is_told_in_redis_order() {
        let key_required = format!("-{}|", super::KEY_REQUIRED);
        let bad_syntax =
            "-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.|";
        check(&[
            ("XGROUP CREATE none g x", &key_required),
            ("XGROUP CREATE none g x HUH", bad_syntax),
            ("XGROUP CREATE none g 0 ENTRIESREAD -2", "-ERR value for ENTRIESREAD must be positive or -1|"),
            ("XGROUP CREATE s g 0 MKSTREAM", "+OK|"),
            ("XGROUP CREATE s g 0 MKSTREAM", "-BUSYGROUP Consumer Group name already exists|"),
            ("XGROUP CREATE s i 0 MKSTREAM MKSTREAM ENTRIESREAD 1", bad_syntax),
            ("XGROUP SETID s h 0", "-NOGROUP No such consumer group 'h' for key name 's'|"),
            ("XGROUP CREATECONSUMER s g c", ":1|"),
            ("XGROUP CREATECONSUMER s g c", ":0|"),
            ("XGROUP DELCONSUMER s g c", ":0|"),
            ("XGROUP DELCONSUMER none g c", &key_required),
            ("SET str v", "+OK|"),
            (
                "XGROUP CREATE str g 0 MKSTREAM",
                "-WRONGTYPE Operation against a key holding the wrong kind of value|",
            ),
        ]);
    }

    #[test]
    fn groups_and_consumers_raise_events() {
        let mut db = Harness::new();
        db.check_events(&[
            ("XGROUP CREATE s g 0 MKSTREAM", "+OK|", "xgroup-create s@0"),
            ("XGROUP SETID s g 5", "+OK|", "xgroup-setid s@0"),
            ("XGROUP CREATECONSUMER s g c", ":1|", "xgroup-createconsumer s@0"),
            ("XGROUP CREATECONSUMER s g c", ":0|", ""),
            ("XREADGROUP GROUP g d STREAMS s >", "*-1|", "xgroup-createconsumer s@0"),
            ("XGROUP DELCONSUMER s g c", ":0|", "xgroup-delconsumer s@0"),
            ("XGROUP DELCONSUMER s g c", ":0|", ""),
            ("XGROUP DESTROY s g", ":1|", "xgroup-destroy s@0"),
        ]);
        assert_eq!(db.effects.changes, 6);
    }
}

//! Commands that inspect a value's encoding, last use and memory.

use keyspace::string::encoding_name;
use keyspace::{Access, KeyEntry};
use structures::entry::View as EntryView;

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::help::reply_help;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The limit below which Redis shares one object per integer among all keys. OBJECT REFCOUNT shows
/// such integers as shared.
const SHARED_INTEGERS: i64 = 10_000;
/// The reference count that OBJECT REFCOUNT shows for a shared integer.
const SHARED_REFCOUNT: i64 = i32::MAX as i64;
/// The average number of bytes that a key takes in its hash table, explained in the documentation
/// of the module `structures::table`.
const TABLE_BYTES_PER_KEY: usize = 12;

pub(super) static OBJECT: Command = Command {
    name: "OBJECT",
    summary: "A container for commands that show how values are stored.",
    history: History::since("2.2.3"),
    group: Group::Generic,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::empty(),
    subcommands: &[&OBJECT_ENCODING, &OBJECT_FREQ, &OBJECT_HELP, &OBJECT_IDLETIME, &OBJECT_REFCOUNT],
    run: object,
    ..Command::DEFAULT
};
/// Handles an unknown subcommand of OBJECT: replies with an error.
fn object(_ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::UnknownSubcommand(args.get(1).to_vec(), "OBJECT"))
}

static OBJECT_ENCODING: Command = Command {
    name: "ENCODING",
    summary: "Returns the encoding of the value stored at a key.",
    history: History::since("2.2.3"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::SHORT).union(Flags::INSPECTS_KEYS),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_encoding,
    ..Command::DEFAULT
};
/// Handles OBJECT ENCODING: replies with the encoding's name, or null if the key is missing.
fn object_encoding(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    match ctx.db.peek_quietly(args.key(2)).map(|entry| encoding_name(&entry)) {
        Some(name) => ctx.reply.bulk(name.as_bytes()),
        None => ctx.reply.null(),
    }
    Ok(())
}

static OBJECT_REFCOUNT: Command = Command {
    name: "REFCOUNT",
    summary: "Returns the reference count of the value stored at a key.",
    history: History::since("2.2.3"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::SHORT).union(Flags::INSPECTS_KEYS),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_refcount,
    ..Command::DEFAULT
};
/// Handles OBJECT REFCOUNT: replies with null if the key is missing. The reply is the largest
/// signed 32-bit number for an integer from 0 to 9,999 if Redis would share it, else 1.
fn object_refcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shares = ctx.limits.shares_integers;
    let count = ctx.db.peek_quietly(args.key(2)).map(|entry| match entry.view() {
        EntryView::Int(0..SHARED_INTEGERS) if shares => SHARED_REFCOUNT,
        _ => 1,
    });
    reply_number(ctx, count);
    Ok(())
}

static OBJECT_IDLETIME: Command = Command {
    name: "IDLETIME",
    summary: "Returns the seconds since the last access to a key.",
    history: History::since("2.2.3"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::SHORT).union(Flags::INSPECTS_KEYS),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_idletime,
    ..Command::DEFAULT
};
/// Handles OBJECT IDLETIME: replies with seconds, or null if the key is missing. Fails under an LFU
/// policy.
fn object_idletime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let access = ctx.db.access();
    let idle_s = match (ctx.db.peek_quietly(args.key(2)).map(|entry| entry.access()), access) {
        (None, _) => None,
        (Some(at_s), Access::Lru { clock_s }) => Some(i64::from(clock_s.wrapping_sub(at_s) & 0x00FF_FFFF)),
        (Some(_), Access::Lfu { .. }) => {
            return Err(CommandError::Line(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                 switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ));
        }
    };
    reply_number(ctx, idle_s);
    Ok(())
}

static OBJECT_FREQ: Command = Command {
    name: "FREQ",
    summary: "Returns the access frequency counter (LFU) of a key.",
    history: History::since("4.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::SHORT).union(Flags::INSPECTS_KEYS),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: object_freq,
    ..Command::DEFAULT
};
/// Handles OBJECT FREQ: replies with LFU's logarithmic counter, or null if the key is missing.
/// Fails without an LFU policy.
fn object_freq(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let access = ctx.db.access();
    let counter = match (ctx.db.peek_quietly(args.key(2)).map(|entry| entry.access()), access) {
        (None, _) => None,
        (Some(clock), Access::Lfu { .. }) => Some(access.lfu_counter(clock).into()),
        (Some(_), Access::Lru { .. }) => {
            return Err(CommandError::Line(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                 that when switching between policies at runtime LRU and LFU data will take some time to \
                 adjust.",
            ));
        }
    };
    reply_number(ctx, counter);
    Ok(())
}

fn reply_number(ctx: &mut Ctx<'_>, number: Option<i64>) {
    match number {
        Some(number) => ctx.reply.integer(number),
        None => ctx.reply.null(),
    }
}

static OBJECT_HELP: Command = Command {
    name: "HELP",
    summary: "Lists the subcommands.",
    history: History::since("6.2.0"),
    group: Group::Generic,
    acl: Acl::KEYSPACE,
    run: object_help,
    ..Command::HELP
};
/// Handles OBJECT HELP: replies with the syntax and meaning of the subcommands.
fn object_help(ctx: &mut Ctx<'_>, _args: &Args<'_>) -> Result<(), CommandError> {
    reply_help(
        &mut ctx.reply,
        "OBJECT",
        &[
            ("ENCODING <key>", &["The encoding of the value of <key>."]),
            ("FREQ <key>", &["The logarithmic access counter of <key>, which exists under LFU policies."]),
            ("IDLETIME <key>", &["Seconds since the last access to <key>."]),
            ("REFCOUNT <key>", &["The reference count of the value of <key>."]),
        ],
    );
    Ok(())
}

/// The command table's record of MEMORY USAGE. Its container MEMORY is a server command.
pub static MEMORY_USAGE: Command = Command {
    name: "USAGE",
    summary: "Estimates the memory of a key and its value in bytes.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::INSPECTS_KEYS),
    acl: Acl::READ,
    keys: &[KeySpec::at(2, KeyFlags::RO)],
    args: &[Arg::key("key", 0), Arg::integer("count").token("SAMPLES").optional()],
    run: memory_usage,
    ..Command::DEFAULT
};
/// Handles MEMORY USAGE: replies with bytes, or null if the key is missing. The memory of a value
/// with up to about a thousand nodes is exact; that of a larger value is an estimate from about a
/// thousand nodes. SAMPLES has no effect.
fn memory_usage(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    for at in (3..args.len()).step_by(2) {
        if !args.is(at, "SAMPLES") || at + 1 == args.len() || args.integer(at + 1)? < 0 {
            return Err(CommandError::Syntax);
        }
    }
    let bytes = ctx.db.peek_even_expired(args.key(2)).map(|entry| memory_of(&entry) as i64);
    reply_number(ctx, bytes);
    Ok(())
}

/// Returns the memory in bytes of a key: its block, the object's other allocations and the key's
/// share of the hash table. O(nodes), up to about a thousand nodes.
fn memory_of(entry: &KeyEntry) -> usize {
    let object = match entry.view() {
        EntryView::Object(object) => object.memory_usage(),
        EntryView::Bytes(_) | EntryView::Int(_) => 0,
    };
    entry.block_len_bytes() + object + TABLE_BYTES_PER_KEY
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};
    use keyspace::Access;

    #[test]
    fn encodings_have_the_names_redis_gives() {
        let (short, long) = ("x".repeat(44), "x".repeat(45));
        let mut db = Harness::new();
        for (line, encoding) in [
            ("SET a 123", "$3|int|"),
            ("SET a 9223372036854775807", "$3|int|"),
            ("SET a 9223372036854775808", "$6|embstr|"),
            ("SET a 01", "$6|embstr|"),
            ("SET a \"\"", "$6|embstr|"),
            (&format!("SET a {short}"), "$6|embstr|"),
            (&format!("SET a {long}"), "$3|raw|"),
            ("SET a 1", "$3|int|"),
            ("APPEND a 2", "$3|raw|"),
            ("INCR a", "$3|int|"),
            ("INCRBYFLOAT a 1", "$6|embstr|"),
            ("SETRANGE a 0 1", "$3|raw|"),
            ("EXPIRE a 100", "$3|raw|"),
            ("COPY a b REPLACE", "$3|raw|"),
            ("RENAME b a", "$3|raw|"),
            ("GETSET a b", "$6|embstr|"),
            ("DEL a", "$-1|"),
            ("APPEND a 12", "$3|int|"),
            ("DEL a", "$-1|"),
            ("SETRANGE a 0 1", "$3|raw|"),
            ("MSET a 1", "$3|int|"),
            ("SETRANGE a 5000 1", "$3|raw|"),
        ] {
            db.line(line);
            assert_eq!(db.line("OBJECT ENCODING a"), encoding, "after {line}");
        }
    }

    #[test]
    fn small_integers_look_shared() {
        check(&[
            ("OBJECT REFCOUNT a", "_|"),
            ("SET a 9999", "+OK|"),
            ("OBJECT REFCOUNT a", ":2147483647|"),
            ("INCR a", ":10000|"),
            ("OBJECT REFCOUNT a", ":1|"),
            ("SET a -1", "+OK|"),
            ("OBJECT REFCOUNT a", ":1|"),
            ("OBJECT ENCODE a", "-ERR unknown subcommand 'ENCODE'. Try OBJECT HELP.|"),
        ]);
        let mut db = Harness::new();
        db.limits.shares_integers = false;
        db.line("SET a 9999");
        assert_eq!(db.line("OBJECT REFCOUNT a"), ":1|");
    }

    #[test]
    fn idle_time_starts_again_with_each_use() {
        let mut db = Harness::new();
        db.line("SET a 1");
        db.access = Access::Lru { clock_s: 7 };
        assert_eq!(db.line("OBJECT IDLETIME a"), ":7|");
        assert_eq!(db.line("OBJECT IDLETIME nokey"), "$-1|");
        db.line("TTL a");
        assert_eq!(db.line("OBJECT IDLETIME a"), ":7|");
        db.line("TOUCH a");
        assert_eq!(db.line("OBJECT IDLETIME a"), ":0|");
        assert!(db.line("OBJECT FREQ a").starts_with("-ERR An LFU maxmemory policy is not selected"));
        assert_eq!(db.line("OBJECT FREQ nokey"), "$-1|");
    }

    #[test]
    fn use_is_counted_under_lfu() {
        let mut db = Harness::new();
        db.access = Access::Lfu { clock_minutes: 5, log_factor: 0, decay_minutes: 1 };
        db.line("SET a 1");
        assert_eq!(db.line("OBJECT FREQ a"), ":5|");
        db.line("GET a");
        db.line("SET a 2");
        assert_eq!(db.line("OBJECT FREQ a"), ":7|");
        db.access = Access::Lfu { clock_minutes: 8, log_factor: 0, decay_minutes: 1 };
        assert_eq!(db.line("OBJECT FREQ a"), ":4|");
        assert!(db.line("OBJECT IDLETIME a").starts_with("-ERR An LFU maxmemory policy is selected"));
    }

    #[test]
    fn help_lists_the_subcommands() {
        assert!(Harness::new().line("OBJECT HELP").starts_with("*11|+OBJECT <subcommand>"));
    }
}

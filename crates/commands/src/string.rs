//! Commands on strings.

use keyspace::Expiry;
use keyspace::string::IntText;

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, KeyFlags, KeySpec};

/// This group's commands.
pub static COMMANDS: &[&Command] = &[&GET, &SET];

static GET: Command = Command {
    name: "GET",
    summary: "Returns the string stored at a key.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &[],
    args: &[Arg::key("key", 0)],
    subcommands: &[],
    run: get,
};
/// GET key: the string, null when the key is absent.
fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    match ctx.db.string(args.key(1))? {
        Some(string) => ctx.reply.bulk(string.bytes(&mut IntText::new())),
        None => ctx.reply.null(),
    }
    Ok(())
}

static SET: Command = Command {
    name: "SET",
    summary: "Stores a string at a key, whatever the key held before.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    tips: &[],
    args: &[Arg::key("key", 0), Arg::string("value")],
    subcommands: &[],
    run: set,
};
/// SET key value.
fn set(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    ctx.db.set_string(key, args.get(2), Expiry::Clear);
    ctx.changed(EventClass::STRING, "set", key);
    ctx.reply.ok();
    Ok(())
}

//! BIGKEYS: the biggest keys, from an index that every write keeps up to date.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use ::commands::{Args, CommandError};
use keyspace::{Measure, SizedType};

use crate::context::Runner;
use crate::context::ServerCtx;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&BIGKEYS];

/// Default number of keys in the reply of BIGKEYS.
const SHOWN: usize = 10;
/// Maximum number of keys in the reply of BIGKEYS.
const SHOWN_MAX: i64 = 1000;

/// The types that TYPE selects in a request, by their names in the replies of the command TYPE.
const TYPES: [(&str, SizedType); 8] = [
    ("string", SizedType::String),
    ("list", SizedType::List),
    ("set", SizedType::Set),
    ("zset", SizedType::Zset),
    ("hash", SizedType::Hash),
    ("stream", SizedType::Stream),
    ("vectorset", SizedType::Vector),
    ("array", SizedType::Array),
];

static BIGKEYS: Command<Runner> = Command {
    name: "BIGKEYS",
    summary: "Returns the biggest keys of all databases by bytes or by elements. The server maintains this \
         list, so it scans no keys.",
    history: History::only_here(),
    group: Group::Server,
    complexity: "O(N log N) with N being the number of keys returned, whatever the number of keys there are",
    arity: Arity::AtLeast(1),
    flags: Flags::ADMIN.union(Flags::NOSCRIPT),
    acl: Acl::ADMIN.union(Acl::DANGEROUS),
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    args: &[
        Arg::one_of("measure", &[Arg::word("bytes", "BYTES"), Arg::word("elements", "ELEMENTS")]).optional(),
        Arg::string("type").token("TYPE").optional(),
        Arg::integer("count").token("COUNT").optional(),
    ],
    run: Runner::Server(bigkeys),
    ..Command::DEFAULT
};
/// Handles BIGKEYS [BYTES | ELEMENTS] [TYPE type] [COUNT count]: replies with a map.
///
/// - `keys`: the biggest keys first, each a map of its key, database, type, bytes and elements. The
///   elements of a string are 0.
/// - `exact`: 1 if `keys` are the biggest keys; 0 if a bigger key may be missing. In that case each
///   key has at least four fifths of the size of the correct key at its place.
/// - `known`: the number of big keys, which have at least 8 KiB or 1,024 elements. Smaller keys are
///   not in the index.
fn bigkeys(ctx: &mut ServerCtx<'_, '_, '_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut measure, mut kind, mut count) = (Measure::Bytes, None, SHOWN);
    let mut at = 1;
    while at < args.len() {
        let value = at + 1 < args.len();
        if args.is(at, "BYTES") {
            measure = Measure::Bytes;
        } else if args.is(at, "ELEMENTS") {
            measure = Measure::Elements;
        } else if args.is(at, "TYPE") && value {
            at += 1;
            let known = TYPES.iter().find(|(name, _)| args.is(at, name));
            let (_, asked) = known.ok_or(CommandError::Line("ERR unknown type name"))?;
            kind = Some(*asked);
        } else if args.is(at, "COUNT") && value {
            at += 1;
            let asked = args.integer(at).ok().filter(|count| (1..=SHOWN_MAX).contains(count));
            count = asked.ok_or(CommandError::Line("ERR COUNT must be between 1 and 1000"))? as usize;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let found = ctx.shared.engine.keyspace.big_keys(measure, kind, count, ctx.now_ms);
    let reply = &mut ctx.reply;
    reply.map(3);
    reply.bulk(b"exact");
    reply.integer(i64::from(found.exact));
    reply.bulk(b"known");
    reply.integer(found.known as i64);
    reply.bulk(b"keys");
    reply.array(found.keys.len());
    for big in found.keys {
        let (name, _) = TYPES[big.size.kind as usize - 1];
        reply.map(5);
        reply.bulk(b"key");
        reply.bulk(&big.key);
        reply.bulk(b"db");
        reply.integer(big.db as i64);
        reply.bulk(b"type");
        reply.bulk(name.as_bytes());
        reply.bulk(b"bytes");
        reply.integer(big.size.bytes as i64);
        reply.bulk(b"elements");
        reply.integer(big.size.counted() as i64);
    }
    Ok(())
}

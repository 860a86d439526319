//! Commands that compare a string with a text or a digest, and act if the condition holds. Clients
//! use them to compare-and-swap a value or to release a lock without a script.
//!
//! A digest is the text's XXH3 hash of 64 bits, as sixteen hexadecimal digits. Source: Redis
//! 8.4; DELIFEQ is Valkey's.

use keyspace::Key;
use keyspace::string::IntText;
use xxhash_rust::xxh3::xxh3_64;

use super::delete;
use super::options::Condition;
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The number of hexadecimal digits of a string's digest.
const DIGEST_LEN: usize = 16;

/// Returns true if `condition` (IFEQ or another) holds for the value at `key`.
pub(super) fn condition_holds(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    condition: Condition<'_>,
) -> Result<bool, CommandError> {
    Ok(match condition {
        Condition::None => true,
        Condition::Absent => !ctx.db.contains(key),
        Condition::Present => ctx.db.contains(key),
        Condition::Equal(text) => has_text(ctx, key, text)?.is_some_and(|equal| equal),
        Condition::NotEqual(text) => has_text(ctx, key, text)?.is_none_or(|equal| !equal),
        Condition::DigestEqual(digest) => has_digest(ctx, key, digest)?.is_some_and(|equal| equal),
        Condition::DigestNotEqual(digest) => has_digest(ctx, key, digest)?.is_none_or(|equal| !equal),
    })
}

/// Returns true if the string at `key` equals `text`. Returns `None` if the key is missing.
fn has_text(ctx: &mut Ctx<'_>, key: Key<'_>, text: &[u8]) -> Result<Option<bool>, CommandError> {
    let string = ctx.db.string_to_write(key)?;
    Ok(string.map(|string| string.bytes(&mut IntText::new()) == text))
}

/// Returns true if the string at `key` has the digest `digest`. Returns `None` if the key is
/// missing; the digest is then not checked.
fn has_digest(ctx: &mut Ctx<'_>, key: Key<'_>, digest: &[u8]) -> Result<Option<bool>, CommandError> {
    let Some(string) = ctx.db.string_to_write(key)? else { return Ok(None) };
    // Only the length is checked: a text with other characters equals no digest.
    if digest.len() != DIGEST_LEN {
        return Err(CommandError::Line("ERR must be exactly 16 hexadecimal characters"));
    }
    let text = digest_text(string.bytes(&mut IntText::new()));
    Ok(Some(digest.eq_ignore_ascii_case(text.as_bytes())))
}

fn digest_text(text: &[u8]) -> String {
    format!("{:016x}", xxh3_64(text))
}

pub(super) static DIGEST: Command = Command {
    name: "DIGEST",
    summary: "Returns the digest of the string stored at a key.",
    history: History::since("8.4.0"),
    group: Group::String,
    complexity: "O(N), N bytes of the string",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: digest,
    ..Command::DEFAULT
};
/// Handles DIGEST: replies with the string's digest of sixteen hexadecimal digits, or null if the
/// key is missing.
fn digest(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    match ctx.db.string(args.key(1))? {
        Some(string) => {
            let text = digest_text(string.bytes(&mut IntText::new()));
            ctx.reply.bulk(text.as_bytes());
        }
        None => ctx.reply.null(),
    }
    Ok(())
}

pub(super) static DELEX: Command = Command {
    name: "DELEX",
    summary: "Deletes a key if a condition on its string holds.",
    history: History::since("8.4.0"),
    group: Group::String,
    complexity: "O(1), O(N) for a digest of N bytes",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE).union(KeyFlags::VARIABLE_FLAGS))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "condition",
            &[
                Arg::string("ifeq-value").token("IFEQ"),
                Arg::string("ifne-value").token("IFNE"),
                Arg::string("ifdeq-digest").token("IFDEQ"),
                Arg::string("ifdne-digest").token("IFDNE"),
            ],
        )
        .optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: delex,
    ..Command::DEFAULT
};
/// Handles DELEX: replies with 1 if the key was deleted, 0 if the key is missing or the condition
/// does not hold. Without a condition it deletes keys of all types.
fn delex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let condition = match args.len() {
        2 => Condition::None,
        4 => Condition::parse(args.get(2), &mut args.from(3)).unwrap_or(Condition::Absent),
        _ => return Err(CommandError::WrongArity("delex")),
    };
    if !ctx.db.contains(key) {
        ctx.reply.integer(0);
        return Ok(());
    }
    if condition != Condition::None && ctx.db.string_to_write(key).is_err() {
        return Err(CommandError::Line("ERR Key should be of string type if conditions are specified"));
    }
    if matches!(condition, Condition::Absent | Condition::Present) {
        return Err(CommandError::Line("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"));
    }
    delete_if(ctx, key, condition)
}

pub(super) static DELIFEQ: Command = Command {
    name: "DELIFEQ",
    summary: "Deletes a key if its value equals a string.",
    history: History::since_valkey("9.0.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RM.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("value")],
    recorded_forms: &[RecordedForm::REPLACED],
    run: delifeq,
    ..Command::DEFAULT
};
/// Handles DELIFEQ: replies with 1 if the key was deleted, 0 if the key is missing or holds another
/// string.
fn delifeq(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    delete_if(ctx, args.key(1), Condition::Equal(args.get(2)))
}

fn delete_if(ctx: &mut Ctx<'_>, key: Key<'_>, condition: Condition<'_>) -> Result<(), CommandError> {
    let deletes = condition_holds(ctx, key, condition)?;
    if deletes {
        delete(ctx, key);
    }
    ctx.reply.integer(deletes.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn digests_are_those_of_redis() {
        let zeros =
            "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd";
        let mut db = Harness::new();
        db.run(&["SET", "a", zeros]);
        assert_eq!(db.line("DIGEST a"), "$16|00006c38adf31777|");
        assert_eq!(db.line("SET a 1 IFDEQ 00006C38ADF31777"), "+OK|");
        assert_eq!(db.line("SET a 2 IFDNE 00006c38adf31777 GET"), "$1|1|");
        assert_eq!(db.line("SET a 3 IFDEQ 6c38adf31777"), "-ERR must be exactly 16 hexadecimal characters|");
        assert_eq!(db.line("SET new 3 IFDNE x"), "+OK|");
        assert_eq!(db.line("DIGEST nokey"), "$-1|");
    }

    #[test]
    fn keys_are_deleted_that_hold_what_is_expected() {
        check(&[
            ("MSET a 1 b 2 c 3 d 4", "+OK|"),
            ("DELEX a IFEQ 2", ":0|"),
            ("DELEX a IFEQ 1", ":1|"),
            ("DELEX a IFNE 1", ":0|"),
            ("DELEX b IFNE 1", ":1|"),
            ("DELIFEQ c 4", ":0|"),
            ("DELIFEQ c 3", ":1|"),
            ("DELEX d NX 4", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE|"),
            ("DELEX d IFEQ", "-ERR wrong number of arguments for 'delex' command|"),
            ("RPUSH l 1", ":1|"),
            ("DELEX l IFEQ 1", "-ERR Key should be of string type if conditions are specified|"),
            ("DELIFEQ l 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("DELEX l", ":1|"),
            ("DELEX l", ":0|"),
        ]);
    }

    #[test]
    fn several_strings_are_stored_if_none_or_all_exist() {
        check(&[
            ("MSETEX 2 a 1 b 2 NX EX 100", ":1|"),
            ("TTL b", ":100|"),
            ("MSETEX 2 a 3 c 4 NX", ":0|"),
            ("MSETEX 2 a 3 c 4 XX", ":0|"),
            ("MSETEX 2 a 3 b 4 KEEPTTL XX", ":1|"),
            ("TTL a", ":100|"),
            ("MSETEX 1 a 5", ":1|"),
            ("TTL a", ":-1|"),
            ("MSETEX 0 a 1", "-ERR invalid numkeys value|"),
            ("MSETEX 2 a 1 b", "-ERR wrong number of key-value pairs|"),
            ("MSETEX 1 a 1 IFEQ 1", "-ERR syntax error|"),
            ("MSETEX 1 a 1 NX XX", "-ERR syntax error|"),
            ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command|"),
        ]);
    }
}

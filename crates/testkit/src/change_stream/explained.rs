//! The table of intended differences between the streams of changes of Saker and of Redis 8.0.

use super::{Change, Difference};

/// An intended difference between two streams of changes: changes that only one of them has, or
/// that differ between them.
struct Explained {
    /// The name of the script to which the intended difference applies; empty for all scripts.
    script: &'static str,
    /// The text with which the differing changes begin, the command name in capitals. If empty, all
    /// differing changes of the script are intended.
    start: &'static str,
    /// The reason for the intended difference, for the reader of the table.
    reason: &'static str,
}

const fn because(reason: &'static str, script: &'static str, start: &'static str) -> Explained {
    Explained { script, start, reason }
}

const NEWER: &str = "Redis 8.0 does not know the command or the option, and its group stands elsewhere";
const FOR_ALL: &str =
    "all peers know our form: Redis records a newer one, or a result that depends on the server";
const DATABASES: &str = "rights to databases are of Valkey: Redis permits the command";
const OURS: &str = "record.rs of the crate commands says how it differs";

const EXPLAINED: &[Explained] = &[
    because(NEWER, "set", "SET d "),
    because(NEWER, "set", "SET nodigest"),
    because(NEWER, "bitop", "SET d "),
    because(NEWER, "delex", ""),
    because(NEWER, "delifeq", ""),
    because(NEWER, "digest", ""),
    because(NEWER, "increx", ""),
    because(NEWER, "msetex", ""),
    because(NEWER, "xackdel", ""),
    because(NEWER, "xdelex", ""),
    because(FOR_ALL, "acl", "RPUSH a2"),
    because(FOR_ALL, "acl", "SORT a1"),
    because(FOR_ALL, "expire", "PEXPIREAT "),
    because(FOR_ALL, "expireat", "PEXPIREAT "),
    because(FOR_ALL, "georadius", "DEL "),
    because(FOR_ALL, "georadius", "GEORADIUS "),
    because(FOR_ALL, "georadius", "ZADD "),
    because(FOR_ALL, "georadiusbymember", "DEL "),
    because(FOR_ALL, "georadiusbymember", "GEORADIUSBYMEMBER "),
    because(FOR_ALL, "georadiusbymember", "ZADD "),
    because(FOR_ALL, "geosearch", "DEL "),
    because(FOR_ALL, "geosearch", "GEOSEARCHSTORE "),
    because(FOR_ALL, "geosearch", "ZADD "),
    because(FOR_ALL, "geosearchstore", "DEL "),
    because(FOR_ALL, "geosearchstore", "GEOSEARCHSTORE "),
    because(FOR_ALL, "geosearchstore", "ZADD "),
    because(FOR_ALL, "hsetex", "HSET "),
    because(FOR_ALL, "pexpire", "PEXPIREAT "),
    because(FOR_ALL, "pexpireat", "PEXPIREAT "),
    because(FOR_ALL, "restore", "DEL "),
    because(FOR_ALL, "restore", "HPEXPIREAT "),
    because(FOR_ALL, "restore", "HSET "),
    because(FOR_ALL, "restore", "RESTORE "),
    because(FOR_ALL, "restore", "XGROUP SETID"),
    because(FOR_ALL, "restore", "XSETID "),
    because(FOR_ALL, "restore-asking", "RESTORE"),
    because(FOR_ALL, "sort", "DEL "),
    because(FOR_ALL, "sort", "RPUSH "),
    because(FOR_ALL, "sort", "SORT "),
    because(FOR_ALL, "zadd", "ZADD "),
    because(FOR_ALL, "zincrby", "ZINCRBY "),
    because("import-mode is of Valkey: Redis lets the key expire", "client", "DEL session:1"),
    because(DATABASES, "acl", "FLUSHALL"),
    because(DATABASES, "acl", "SWAPDB 0 1"),
    because("NX and XX are of Valkey; PXAT stands where the request has it", "hsetex", "HSETEX "),
    because("what SPOP takes is a random choice", "spop", "SREM "),
    because("a SET that overflows creates the key in both, and Redis forgets it", "bitfield", "BITFIELD new"),
    because(OURS, "xadd", "XADD m MAXLEN = 2"),
    because(OURS, "xtrim", "XTRIM k MAXLEN = 0"),
    because(OURS, "", "XGROUP CREATECONSUMER"),
    because(OURS, "xautoclaim", "XACK k g"),
    because(OURS, "xautoclaim", "XCLAIM k g"),
    because(OURS, "xclaim", "XACK k g"),
    because(OURS, "xclaim", "XCLAIM k g"),
    because(OURS, "xreadgroup", "XCLAIM "),
];

/// Returns the reason for a difference in the stream of changes of `script` (`set` for set.resp).
/// Returns `None` if the table does not explain all of the difference.
pub fn reason(script: &str, difference: &Difference) -> Option<&'static str> {
    let known = |change: &Change| {
        let text = change.to_string();
        let line = text.split_once("> ").map_or("", |(_, line)| line);
        let fits =
            |it: &&Explained| (it.script.is_empty() || it.script == script) && line.starts_with(it.start);
        EXPLAINED.iter().find(fits).map(|it| it.reason)
    };
    let reasons: Option<Vec<_>> = difference.ours.iter().chain(&difference.theirs).map(known).collect();
    reasons?.first().copied()
}

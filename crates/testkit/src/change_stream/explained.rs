//! Intended differences between the streams of Saker and of Redis 8.0.

use super::{Change, Difference};

/// An intended difference: changes that only one of the two streams has, or that differ between
/// them.
struct Explained {
    /// The name of the script; empty for all scripts.
    script: &'static str,
    /// The text with which the changes begin, the name in capitals. If empty, all changes of the
    /// script are meant.
    start: &'static str,
    /// The reason for the difference.
    reason: &'static str,
}

const fn because(reason: &'static str, script: &'static str, start: &'static str) -> Explained {
    Explained { script, start, reason }
}

const NEWER: &str = "Redis 8.0 does not know the command or the option, and its group stands elsewhere";
const OURS: &str = "record.rs of the crate commands says how it differs";

const EXPLAINED: &[Explained] = &[
    because(NEWER, "set", "SET d "),
    because(NEWER, "set", "SET nodigest"),
    because(NEWER, "bitop", "BITOP "),
    because(NEWER, "delex", ""),
    because(NEWER, "delifeq", ""),
    because(NEWER, "digest", ""),
    because(NEWER, "increx", ""),
    because(NEWER, "msetex", ""),
    because(NEWER, "xackdel", ""),
    because(NEWER, "xdelex", ""),
    because(NEWER, "geosearch", "GEOSEARCHSTORE d p BYPOLYGON"),
    because(NEWER, "restore", "RESTORE version"),
    because("import-mode is of Valkey: Redis lets the key expire", "client", "DEL session:1"),
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

/// Returns the reason for a difference in the stream of `script` (`set` for set.resp). Returns
/// `None` if a part of the difference is not explained.
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

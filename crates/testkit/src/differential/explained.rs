//! The table of known and accepted differences between servers.
//!
//! No entry concerns Saker and the Redis version that it follows: these two must not differ. The
//! entries serve comparisons of two real servers, which show that the runner finds differences.
//! They also serve comparisons of Saker with an older Redis, if the machine has no newer one.

use resp::Value;
use stdx::glob::glob_match;

use super::compare::name;
use crate::notation::one_line;

/// An accepted difference between the replies of two servers to one command.
#[derive(Debug)]
pub struct Explained {
    /// A text that `INFO server` of one of the two servers contains, for example its version.
    info: &'static str,
    /// A glob for the name, in capitals, of the command whose replies may differ.
    command: &'static str,
    /// The part of the command's reply that may differ.
    accepted: Accepted,
    /// The reason for the difference, for the reader of the table.
    #[expect(dead_code, reason = "a reason is for people")]
    reason: &'static str,
}

/// The part of a command's reply that may differ between two servers.
#[derive(Debug)]
enum Accepted {
    /// The whole replies may differ. The first glob must match the one-line form of one reply, the
    /// second that of the other.
    Replies(&'static str, &'static str),
    /// The notation of numbers may differ: their values must be equal.
    NumbersAsText,
    /// The digits of numbers after the 16th decimal place may differ: one server cuts them off.
    NumbersToDecimals,
}

use Accepted::{NumbersAsText, NumbersToDecimals, Replies};

/// The table of accepted differences between two servers. Entries for older servers come later.
const EXPLAINED: &[Explained] = &[
    Explained {
        info: "valkey_version",
        command: "XREAD",
        accepted: Replies("-ERR Unbalanced*", "-ERR Unbalanced*"),
        reason: "Redis 7.4 brought the id '+', and names it in this error",
    },
    Explained {
        info: "valkey_version",
        command: "BITCOUNT",
        accepted: Replies("*", "*"),
        reason: "Valkey 8.1 takes a start without an end",
    },
    Explained {
        info: "valkey_version",
        command: "OBJECT",
        accepted: Replies("\"*\"", "\"*\""),
        reason: "Valkey embeds keys in values, which moves the limit of embstr, and converts others earlier",
    },
    Explained {
        info: "valkey_version",
        command: "Z*",
        accepted: NumbersAsText,
        reason: "scores print differently per encoding, and Valkey converts for a member it does not add",
    },
    Explained {
        info: "valkey_version",
        command: "ZSCAN",
        accepted: Replies("\\*2*", "\\*2*"),
        reason: "so does their order",
    },
    Explained {
        info: "valkey_version",
        command: "SCAN",
        accepted: Replies("*", "-ERR unknown type name*"),
        reason: "Valkey refuses a TYPE that does not exist",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "Z*",
        accepted: NumbersAsText,
        reason: "7.2 prints the shortest digits of a score, 7.0 seventeen",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "OBJECT",
        accepted: Replies("\"listpack\"", "*"),
        reason: "7.2 brought lists and sets as listpacks",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "Z*RANK",
        accepted: Replies("*", "-ERR wrong number of arguments*"),
        reason: "7.2 brought WITHSCORE",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "HSCAN",
        accepted: Replies("*", "-ERR syntax error"),
        reason: "7.4 brought NOVALUES",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "*SCAN",
        accepted: Replies("-ERR invalid cursor", "*"),
        reason: "8.0 refuses cursors that are no numbers",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "BIT*",
        accepted: Replies("-ERR *", "*"),
        reason: "8.0 looks at all arguments before it looks at the key",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "XREAD*",
        accepted: Replies("-ERR Unbalanced*", "-ERR Unbalanced*"),
        reason: "7.4 brought the id '+', and names it in this error",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "Z*RANGE*",
        accepted: Replies("\\*0", "*"),
        reason: "with a negative offset 7.0 gives nothing, 8.0 members of large sorted sets",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "GEO*",
        accepted: NumbersToDecimals,
        reason: "7.0 prints coordinates with 17 decimals",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "XSETID",
        accepted: Replies("-ERR The ID specified in XSETID is smaller*", "*"),
        reason: "8.0 remembers the greatest deleted id here",
    },
    Explained {
        info: "redis_version:7.0.",
        command: "LREM",
        accepted: Replies("-ERR value is out of range*", "*"),
        reason: "8.0 refuses the count that has no opposite",
    },
];

/// Commands whose effects, not only replies, differ between Redis 7.0 and later versions. They
/// differ in consumers that tried to read but got nothing, in consumers' times, and in a group's
/// entries-read counter. SORT differs in the numbers that it can parse.
const OTHER_IN_7_0: &[&str] =
    &["SORT", "SORT_RO", "XREADGROUP", "XGROUP", "XCLAIM", "XAUTOCLAIM", "XPENDING", "XACK", "XINFO"];

/// Session commands, which are not compared if one server is Redis 7.0. Redis 7.0 serves blocked
/// clients by the ready key; 7.2 and later run their request again.
const SESSIONS: &[&str] = &[
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "PUBLISH",
    "SPUBLISH",
    "PUBSUB",
    "RESET",
];

/// Script commands, which are not compared if one server is a Redis 7. It differs from Redis 8 in
/// RESP3 numbers, in checks of a script's flags and in many error texts.
const SCRIPTS: &[&str] = &["EVAL", "EVAL_RO"];

/// Returns true if a command has different effects on two servers. `info` holds the `INFO server`
/// of each.
pub fn is_other(info: &[String; 2], name: &str) -> bool {
    let is_other = OTHER_IN_7_0.contains(&name) || SESSIONS.contains(&name);
    let is_one = |text: &str| info.iter().any(|info| info.contains(text));
    is_one("redis_version:7.0.") && is_other || is_one("redis_version:7.") && SCRIPTS.contains(&name)
}

/// Returns the accepted differences between two servers. `info` holds the `INFO server` of each.
pub fn between(info: &[String; 2]) -> Vec<&'static Explained> {
    EXPLAINED.iter().filter(|known| info.iter().any(|info| info.contains(known.info))).collect()
}

impl Explained {
    /// Returns true if this entry accepts the difference between the replies `a` and `b` to the
    /// command `args`.
    pub fn explains(&self, args: &[Vec<u8>], a: &Value, b: &Value) -> bool {
        if !glob_match(self.command.as_bytes(), name(args).as_bytes()) {
            return false;
        }
        let (a, b) = (one_line(a), one_line(b));
        let fits = |glob: &str, text: &str| glob_match(glob.as_bytes(), text.as_bytes());
        match self.accepted {
            Replies(one, other) => fits(one, &a) && fits(other, &b) || fits(one, &b) && fits(other, &a),
            NumbersAsText => same_numbers(&a, &b, 0.0),
            NumbersToDecimals => same_numbers(&a, &b, 1e-16),
        }
    }
}

/// Returns true if two replies in one-line form are equal word for word, except that numbers may
/// differ by at most `least`.
fn same_numbers(a: &str, b: &str, least: f64) -> bool {
    let number = |word: &str| word.trim_matches(['"', ',']).parse::<f64>().ok();
    let same = |(a, b): (&str, &str)| {
        a == b || number(a).zip(number(b)).is_some_and(|(a, b)| (a - b).abs() <= least)
    };
    a.split(' ').count() == b.split(' ').count() && a.split(' ').zip(b.split(' ')).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_fits_its_servers_command_and_replies_only() {
        let info = ["redis_version:8.0.2".to_string(), "redis_version:7.0.15".to_string()];
        let known = between(&info);
        assert!(between(&[info[0].clone(), info[0].clone()]).is_empty());
        let check = |command: &str, a: &str, b: &str, expected: bool| {
            let args: Vec<_> = command.split(' ').map(|arg| arg.as_bytes().to_vec()).collect();
            let [a, b] = [a, b].map(|text| Value::Bulk(text.as_bytes().to_vec()));
            let explained = known.iter().any(|known| known.explains(&args, &a, &b));
            assert_eq!(explained, expected, "{command} {a} {b}");
        };
        check("zscore z m", "0.1", "0.10000000000000001", true);
        check("zscore z m", "0.1", "0.2", false);
        check("GET k", "0.1", "0.10000000000000001", false);
        check("OBJECT ENCODING k", "listpack", "quicklist", true);
        check("OBJECT ENCODING k", "quicklist", "listpack", true);
        check("OBJECT ENCODING k", "raw", "embstr", false);
    }
}

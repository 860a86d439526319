//! Comparison of two replies to one command.
//!
//! Most replies must be equal byte for byte. Some are unordered (the fields of a hash), some depend
//! on the time (TTL) and some on chance (SPOP). In such replies, only the parts that must agree are
//! compared. A command with a random effect is followed by a DEL of its key, so that both servers
//! have the same content again. Known differences between two servers are listed in
//! [`super::explained`].

use std::mem::discriminant;

use resp::{Protocol, Value};

use crate::matching::Order;
use crate::notation::one_line;

/// The parts in which the replies of two servers to one command must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    /// All bytes of the replies must be equal.
    Exactly,
    /// Everything must be equal except the order of the elements of arrays.
    Unordered,
    /// Everything but the order of an array's pairs (elements 1 and 2, 3 and 4, and so on).
    UnorderedPairs,
    /// Everything except the values of integers, alone or in arrays, which may differ by at most
    /// this much.
    Within(i64),
    /// Everything except the times of a stream's consumers and the data about the stream's memory
    /// layout.
    ButTimes,
    /// The kind of value; for arrays and sets also the length and the kinds of the elements. If the
    /// replies are errors, they must be equal.
    Shape,
    /// The kind of value. If the replies are errors, they must be equal.
    Kind,
}

/// Returns the key whose value may differ between two servers after `args`, so that it must be
/// deleted. This is so if the effect depends on chance, on the time, or on the server's version.
pub fn diverging_key(args: &[Vec<u8>]) -> Option<&[u8]> {
    let key = args.get(1)?;
    match name(args).as_str() {
        "SPOP" => Some(key),
        // Older servers accept ids here that newer ones refuse.
        "XSETID" => Some(key),
        // The id is made from the clock.
        "XADD" if args.iter().any(|arg| arg == b"*") => Some(key),
        _ => None,
    }
}

/// Returns true if `a` and `b` agree as replies to `args` in `protocol`.
pub fn agree(args: &[Vec<u8>], a: &Value, b: &Value, protocol: Protocol) -> bool {
    a == b || agree_loosely(args, a, b, protocol)
}

/// Returns the name of the command `args` in capitals.
pub fn name(args: &[Vec<u8>]) -> String {
    String::from_utf8_lossy(&args[0]).to_ascii_uppercase()
}

fn compared(args: &[Vec<u8>], protocol: Protocol) -> Compared {
    let from_start = |cursor_at: usize| args.get(cursor_at).is_some_and(|cursor| cursor == b"0");
    match name(args).as_str() {
        // The position of a cursor other than 0 depends on the server.
        "SCAN" if !from_start(1) => Compared::Kind,
        "HSCAN" | "SSCAN" | "ZSCAN" if !from_start(2) => Compared::Kind,
        "HGETALL" if protocol == Protocol::Resp2 => Compared::UnorderedPairs,
        "KEYS" | "SCAN" | "SSCAN" | "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS"
        | "HGETALL" => Compared::Unordered,
        // The reply contains flat pairs. Only their elements are compared, not the order within a
        // pair.
        "HSCAN" | "ZSCAN" => Compared::Unordered,
        // The tolerance is large: sequences set times of a thousand seconds and more, and a busy
        // machine may run one server much later than the other.
        "TTL" | "EXPIRETIME" | "HTTL" | "HEXPIRETIME" => Compared::Within(100),
        "PTTL" | "PEXPIRETIME" | "HPTTL" | "HPEXPIRETIME" => Compared::Within(100_000),
        "SPOP" | "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER" | "RANDOMKEY" => Compared::Shape,
        "XADD" if diverging_key(args).is_some() => Compared::Shape,
        "PUBSUB" => Compared::Unordered,
        "XPENDING" | "XINFO" => Compared::ButTimes,
        // One value has many serialized forms. RESTORE checks that the form is valid.
        "DUMP" => Compared::Kind,
        _ => Compared::Exactly,
    }
}

fn agree_loosely(args: &[Vec<u8>], a: &Value, b: &Value, protocol: Protocol) -> bool {
    match (compared(args, protocol), a, b) {
        (_, Value::Error(_), _) | (_, _, Value::Error(_)) => false,
        (Compared::Exactly, ..) => sorted(a, Order::Kept) == sorted(b, Order::Kept),
        (Compared::Unordered, ..) => sorted(a, Order::Any) == sorted(b, Order::Any),
        (Compared::UnorderedPairs, Value::Array(a), Value::Array(b)) => {
            let pairs = |values: &[Value]| {
                let mut pairs: Vec<_> =
                    values.chunks(2).map(|pair| pair.iter().map(one_line).collect::<Vec<_>>()).collect();
                pairs.sort();
                pairs
            };
            pairs(a) == pairs(b)
        }
        (Compared::ButTimes, ..) => {
            sorted(&without_times(a), Order::Kept) == sorted(&without_times(b), Order::Kept)
        }
        // -1 and -2 are not times.
        (Compared::Within(tolerance), Value::Integer(a), Value::Integer(b)) => {
            a == b || *a >= 0 && *b >= 0 && a.abs_diff(*b) <= tolerance as u64
        }
        (Compared::Within(_), Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree_loosely(args, a, b, protocol))
        }
        (Compared::Shape, ..) => same_shape(a, b),
        (Compared::Kind, ..) => discriminant(a) == discriminant(b),
        _ => false,
    }
}

/// Fields of XINFO that are times, or depend on the layout of a stream in the server.
const TIMES: &[&[u8]] =
    &[b"idle", b"inactive", b"seen-time", b"active-time", b"radix-tree-keys", b"radix-tree-nodes"];

/// Returns the reply `value` with the fields of [`TIMES`] and the times of pending entries set to
/// 0. A field of -1 means no time and is unchanged.
fn without_times(value: &Value) -> Value {
    let is_time = |name: &Value| matches!(name, Value::Bulk(name) if TIMES.contains(&&name[..]));
    let timeless = |name: Option<&Value>, value: &Value| match value {
        Value::Integer(0..) if name.is_some_and(is_time) => Value::Integer(0),
        value => without_times(value),
    };
    match value {
        Value::Map(pairs) => {
            let pair = |(name, value): &(Value, Value)| (name.clone(), timeless(Some(name), value));
            Value::Map(pairs.iter().map(pair).collect())
        }
        Value::Array(values) => Value::Array(match &values[..] {
            // A pending entry: ID, consumer (unless given outside), time, number of deliveries.
            [
                id @ Value::Bulk(_),
                consumer @ Value::Bulk(_),
                Value::Integer(_),
                count @ Value::Integer(_),
            ] => {
                vec![id.clone(), consumer.clone(), Value::Integer(0), count.clone()]
            }
            [id @ Value::Bulk(_), Value::Integer(_), count @ Value::Integer(_)] => {
                vec![id.clone(), Value::Integer(0), count.clone()]
            }
            _ => (0..values.len())
                .map(|at| timeless(at.checked_sub(1).map(|before| &values[before]), &values[at]))
                .collect(),
        }),
        other => other.clone(),
    }
}

/// Returns the one-line form of the reply `value`, with maps and sets in a fixed order. If `arrays`
/// ignores the order of arrays, they are sorted, too.
fn sorted(value: &Value, arrays: Order) -> String {
    let all = |values: &[Value]| values.iter().map(|value| sorted(value, arrays)).collect::<Vec<_>>();
    let (sign, mut parts, has_order) = match value {
        Value::Array(values) => ('*', all(values), arrays == Order::Kept),
        Value::Push(values) => ('>', all(values), true),
        Value::Set(values) => ('~', all(values), false),
        Value::Map(pairs) => {
            let pair =
                |(key, value): &(Value, Value)| format!("{} {}", sorted(key, arrays), sorted(value, arrays));
            ('%', pairs.iter().map(pair).collect(), false)
        }
        scalar => return one_line(scalar),
    };
    if !has_order {
        parts.sort();
    }
    format!("{sign}{} {}", parts.len(), parts.join(" "))
}

fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) | (Value::Set(a), Value::Set(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        _ => discriminant(a) == discriminant(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn check(command: &str, a: Value, b: Value, expected: bool) {
        let args: Vec<_> = command.split(' ').map(|arg| arg.as_bytes().to_vec()).collect();
        assert_eq!(agree(&args, &a, &b, Protocol::Resp2), expected, "{command}: {a} and {b}");
    }

    fn array(texts: &[&str]) -> Value {
        Value::Array(texts.iter().map(|text| bulk(text)).collect())
    }

    #[test]
    fn order_counts_where_there_is_one() {
        check("LRANGE l 0 -1", array(&["a", "b"]), array(&["b", "a"]), false);
        check("smembers s", array(&["a", "b"]), array(&["b", "a"]), true);
        check("SMEMBERS s", array(&["a", "b"]), array(&["b", "b"]), false);
        check("HGETALL h", array(&["a", "1", "b", "2"]), array(&["b", "2", "a", "1"]), true);
        check("HGETALL h", array(&["a", "1", "b", "2"]), array(&["a", "2", "b", "1"]), false);
    }

    #[test]
    fn the_times_of_consumers_are_not_compared() {
        let pending = |id: &str, idle, count| {
            Value::Array(vec![bulk(id), bulk("c"), Value::Integer(idle), Value::Integer(count)])
        };
        let rows = |row| Value::Array(vec![row]);
        check("XPENDING x g - + 9", rows(pending("1-1", 3, 1)), rows(pending("1-1", 9, 1)), true);
        check("XPENDING x g - + 9", rows(pending("1-1", 3, 1)), rows(pending("1-1", 3, 2)), false);
        check("XPENDING x g - + 9", rows(pending("1-1", 3, 1)), rows(pending("1-2", 3, 1)), false);
        let facts = |inactive, pending| {
            let facts =
                [bulk("pending"), Value::Integer(pending), bulk("inactive"), Value::Integer(inactive)];
            Value::Array(vec![Value::Array(facts.to_vec())])
        };
        check("XINFO CONSUMERS x g", facts(7, 1), facts(0, 1), true);
        check("XINFO CONSUMERS x g", facts(7, 1), facts(-1, 1), false);
        check("XINFO CONSUMERS x g", facts(7, 1), facts(7, 2), false);
    }

    #[test]
    fn times_may_be_apart_and_chance_keeps_its_shape() {
        check("TTL k", Value::Integer(1000), Value::Integer(999), true);
        check("TTL k", Value::Integer(1000), Value::Integer(2000), false);
        check("TTL k", Value::Integer(1), Value::Integer(-1), false);
        check("SPOP s", bulk("a"), bulk("b"), true);
        check("SPOP s", bulk("a"), Value::Null, false);
        check("SPOP s 2", array(&["a"]), array(&["b", "c"]), false);
        check("GET k", Value::Error(b"ERR a".to_vec()), Value::Error(b"ERR b".to_vec()), false);
        check("XADD x * f v", bulk("1-1"), bulk("2-2"), true);
        check("XADD x 1-1 f v", bulk("1-1"), bulk("2-2"), false);
    }
}

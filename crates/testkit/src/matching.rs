//! Comparison of a reply with the expected one, for both protocols and for unordered parts.
//!
//! A script states the RESP3 form. In RESP2 a map is an array of its keys and values; a set and a
//! push are arrays. A double, a big number and a verbatim string are bulk strings, and a boolean is
//! an integer. The two nulls of RESP2 (`_` the null bulk, `*-1` the null array) are one null in
//! RESP3. Maps and sets are unordered; arrays are ordered unless the caller says otherwise.
//! Unordered lists are matched greedily, O(n²): scripts are small.

use resp::{Protocol, Value};
use stdx::glob::glob_match;

use crate::notation::{Expected, one_line};

/// The rule for the order in which the parts of an aggregate reply (array, push) must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each part must be at its stated position.
    Kept,
    /// The stated parts may be at any positions.
    Any,
}

/// Returns true if `actual`, received in `protocol`, matches `expected`. `arrays` applies to arrays
/// and pushes at every level.
pub fn matches(expected: &Expected, actual: &Value, protocol: Protocol, arrays: Order) -> bool {
    let one = |expected: &Expected, actual: &Value| matches(expected, actual, protocol, arrays);
    let resp3 = protocol == Protocol::Resp3;
    match (expected, actual) {
        (Expected::Glob(pattern), _) => glob_match(pattern, one_line(actual).as_bytes()),
        (Expected::Scalar(expected), _) => scalar_matches(expected, actual, protocol),
        (Expected::Array(expected), Value::Array(actual)) => list_matches(expected, actual, arrays, one),
        (Expected::Set(expected), Value::Set(actual)) if resp3 => {
            list_matches(expected, actual, Order::Any, one)
        }
        (Expected::Set(expected), Value::Array(actual)) if !resp3 => {
            list_matches(expected, actual, Order::Any, one)
        }
        (Expected::Push(expected), Value::Push(actual)) if resp3 => {
            list_matches(expected, actual, arrays, one)
        }
        (Expected::Push(expected), Value::Array(actual)) if !resp3 => {
            list_matches(expected, actual, arrays, one)
        }
        (Expected::Map(expected), Value::Map(actual)) if resp3 => {
            list_matches(expected, actual, Order::Any, |e, a| one(&e.0, &a.0) && one(&e.1, &a.1))
        }
        (Expected::Map(expected), Value::Array(actual)) if !resp3 => {
            let pairs: Vec<_> = actual.chunks(2).collect();
            list_matches(expected, &pairs, Order::Any, |e, a| {
                a.len() == 2 && one(&e.0, &a[0]) && one(&e.1, &a[1])
            })
        }
        _ => false,
    }
}

fn scalar_matches(expected: &Value, actual: &Value, protocol: Protocol) -> bool {
    let resp3 = protocol == Protocol::Resp3;
    match (expected, actual) {
        (Value::NullArray, _) => *actual == if resp3 { Value::Null } else { Value::NullArray },
        (Value::Boolean(expected), Value::Integer(actual)) if !resp3 => i64::from(*expected) == *actual,
        (
            Value::Double(expected)
            | Value::BigNumber(expected)
            | Value::BulkError(expected)
            | Value::Verbatim { text: expected, .. },
            Value::Bulk(actual),
        ) if !resp3 => expected == actual,
        _ => expected == actual,
    }
}

/// Returns true if each of `expected` matches a different element of `actual`: at the same
/// position, or, if `order` permits, at any position.
fn list_matches<E, A>(expected: &[E], actual: &[A], order: Order, one: impl Fn(&E, &A) -> bool) -> bool {
    if expected.len() != actual.len() {
        return false;
    }
    if order == Order::Kept {
        return expected.iter().zip(actual).all(|(expected, actual)| one(expected, actual));
    }
    let mut left: Vec<&A> = actual.iter().collect();
    expected.iter().all(|expected| {
        let found = left.iter().position(|actual| one(expected, actual));
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

/// Returns true if the parts of the reply `actual` have the same kinds as those of `expected`;
/// values are ignored. A RESP3 map must have at least the expected names. An array, set or push may
/// be longer or shorter: only the common positions are compared. False if `expected` contains
/// patterns.
pub fn same_kinds(expected: &Expected, actual: &Value, protocol: Protocol) -> bool {
    as_sent(expected, protocol).is_some_and(|expected| alike(&expected, actual))
}

fn alike(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Array(expected), Value::Array(actual))
        | (Value::Set(expected), Value::Set(actual))
        | (Value::Push(expected), Value::Push(actual)) => {
            expected.iter().zip(actual).all(|(expected, actual)| alike(expected, actual))
        }
        (Value::Map(expected), Value::Map(actual)) => expected.iter().all(|(key, value)| {
            let same =
                |known: &Value| if let Value::Bulk(_) = key { known == key } else { alike(key, known) };
            actual.iter().any(|(known, actual)| same(known) && alike(value, actual))
        }),
        _ => std::mem::discriminant(expected) == std::mem::discriminant(actual),
    }
}

/// Converts the stated reply `expected` to the value that a server sends in `protocol`; `None` if
/// it contains patterns.
pub fn as_sent(expected: &Expected, protocol: Protocol) -> Option<Value> {
    let all =
        |parts: &[Expected]| parts.iter().map(|part| as_sent(part, protocol)).collect::<Option<Vec<_>>>();
    let resp3 = protocol == Protocol::Resp3;
    Some(match expected {
        Expected::Glob(_) => return None,
        Expected::Scalar(value) => scalar_as_sent(value, protocol),
        Expected::Set(parts) if resp3 => Value::Set(all(parts)?),
        Expected::Push(parts) if resp3 => Value::Push(all(parts)?),
        Expected::Array(parts) | Expected::Set(parts) | Expected::Push(parts) => Value::Array(all(parts)?),
        Expected::Map(pairs) => {
            let pair = |(key, value): &(_, _)| Some((as_sent(key, protocol)?, as_sent(value, protocol)?));
            let pairs: Vec<_> = pairs.iter().map(pair).collect::<Option<_>>()?;
            if resp3 {
                Value::Map(pairs)
            } else {
                Value::Array(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
            }
        }
    })
}

fn scalar_as_sent(value: &Value, protocol: Protocol) -> Value {
    let resp3 = protocol == Protocol::Resp3;
    match value {
        Value::NullArray if resp3 => Value::Null,
        Value::Boolean(value) if !resp3 => Value::Integer(i64::from(*value)),
        Value::Double(text)
        | Value::BigNumber(text)
        | Value::BulkError(text)
        | Value::Verbatim { text, .. }
            if !resp3 =>
        {
            Value::Bulk(text.clone())
        }
        _ => value.clone(),
    }
}

/// Returns a stated reply that only `value` matches.
pub fn exactly(value: &Value) -> Expected {
    match value {
        Value::Array(values) => Expected::Array(values.iter().map(exactly).collect()),
        Value::Set(values) => Expected::Set(values.iter().map(exactly).collect()),
        Value::Push(values) => Expected::Push(values.iter().map(exactly).collect()),
        Value::Map(pairs) => {
            Expected::Map(pairs.iter().map(|(key, value)| (exactly(key), exactly(value))).collect())
        }
        Value::Attributed { value, .. } => exactly(value),
        scalar => Expected::Scalar(scalar.clone()),
    }
}

/// Returns the one RESP3 form that the RESP2 reply and the RESP3 reply of a command both match, if
/// there is one. Nulls have the notation of RESP2.
pub fn merge(resp2: &Value, resp3: &Value, arrays: Order) -> Option<Value> {
    let merged = with_nulls_of(resp2, resp3);
    let expected = exactly(&merged);
    let holds = matches(&expected, resp2, Protocol::Resp2, arrays)
        && matches(&expected, resp3, Protocol::Resp3, arrays);
    holds.then_some(merged)
}

/// Returns the reply `resp3` with `*-1` (the null array of RESP2) at each place where `resp2` has
/// it.
fn with_nulls_of(resp2: &Value, resp3: &Value) -> Value {
    match (resp2, resp3) {
        (Value::NullArray, Value::Null) => Value::NullArray,
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            Value::Array(a.iter().zip(b).map(|(a, b)| with_nulls_of(a, b)).collect())
        }
        (Value::Array(a), Value::Map(b)) if a.len() == b.len() * 2 => {
            let value = |(pair, (key, value)): (&[Value], &(Value, Value))| {
                (key.clone(), with_nulls_of(&pair[1], value))
            };
            Value::Map(a.chunks_exact(2).zip(b).map(value).collect())
        }
        _ => resp3.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::parse;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn check(lines: &[&str], actual: Value, protocol: Protocol, holds: bool) {
        let (expected, _) = parse(lines).unwrap();
        assert_eq!(matches(&expected, &actual, protocol, Order::Kept), holds, "{lines:?} {actual:?}");
    }

    #[test]
    fn the_resp3_form_is_known_in_resp2() {
        use Protocol::{Resp2, Resp3};
        let map = &["%2", "\"a\"", ",1", "\"b\"", "#t"];
        let pairs = vec![(bulk("b"), Value::Boolean(true)), (bulk("a"), Value::Double(b"1".to_vec()))];
        check(map, Value::Map(pairs), Resp3, true);
        let flat = vec![bulk("b"), Value::Integer(1), bulk("a"), bulk("1")];
        check(map, Value::Array(flat.clone()), Resp2, true);
        check(map, Value::Array(flat), Resp3, false);
        check(&["~2", ":1", ":2"], Value::Array(vec![Value::Integer(2), Value::Integer(1)]), Resp2, true);
        check(&["*2", ":1", ":2"], Value::Array(vec![Value::Integer(2), Value::Integer(1)]), Resp2, false);
        check(&["*-1"], Value::NullArray, Resp2, true);
        check(&["*-1"], Value::Null, Resp2, false);
        check(&["*-1"], Value::Null, Resp3, true);
        check(&["=txt:\"a\""], bulk("a"), Resp2, true);
        check(&["?:*1"], Value::Integer(-11), Resp2, true);
        check(&["*1", "?\"*\""], Value::Array(vec![Value::Integer(1)]), Resp2, false);
    }

    #[test]
    fn kinds_are_compared_without_values() {
        let (expected, _) = parse(&["%2", "\"id\"", ":3", "\"modules\"", "*0"]).unwrap();
        let pairs = |id| vec![(bulk("modules"), Value::Array(vec![bulk("m")])), (bulk("id"), id)];
        assert!(same_kinds(&expected, &Value::Map(pairs(Value::Integer(7))), Protocol::Resp3));
        assert!(!same_kinds(&expected, &Value::Map(pairs(bulk("7"))), Protocol::Resp3));
        let flat = vec![bulk("id"), Value::Integer(9), bulk("modules"), Value::Array(Vec::new())];
        assert!(same_kinds(&expected, &Value::Array(flat), Protocol::Resp2));
    }

    #[test]
    fn each_expected_element_takes_one_of_its_own() {
        let (expected, _) = parse(&["~2", ":1", ":1"]).unwrap();
        let actual = Value::Set(vec![Value::Integer(1), Value::Integer(2)]);
        assert!(!matches(&expected, &actual, Protocol::Resp3, Order::Kept));
    }

    #[test]
    fn two_protocols_merge_into_one_statement() {
        let resp2 = Value::Array(vec![bulk("f"), Value::NullArray]);
        let resp3 = Value::Map(vec![(bulk("f"), Value::Null)]);
        let merged = Value::Map(vec![(bulk("f"), Value::NullArray)]);
        assert_eq!(merge(&resp2, &resp3, Order::Kept), Some(merged));
        assert_eq!(merge(&Value::Integer(1), &bulk("1"), Order::Kept), None);
    }
}

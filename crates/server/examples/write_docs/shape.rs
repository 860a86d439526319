//! The type of a reply in words: `Array of bulk strings and nulls`.

use testkit::Value;

/// Maximum depth of nested replies whose elements are described.
const DEPTH_MAX: usize = 3;
/// Maximum number of elements of a reply whose types are listed one by one.
const NAMED_PARTS_MAX: usize = 4;
/// Maximum number of element types that are named if the elements are not listed one by one. Nulls
/// are not counted.
const KINDS_MAX: usize = 2;

/// Describes the reply's type in RESP3, and in RESP2 if it differs: `Double (RESP2: bulk
/// string)`.
pub fn of_both(resp2: &Value, resp3: &Value) -> String {
    let newer = of(resp3, DEPTH_MAX);
    let older = match (resp2, resp3) {
        (Value::Null, _) => "null bulk string".into(),
        (Value::Array(flat), Value::Map(pairs)) if flat.len() == pairs.len() * 2 && kinds(flat).len() > 1 => {
            "array of keys and values".into()
        }
        _ => of(resp2, DEPTH_MAX),
    };
    let mut text = newer[..1].to_ascii_uppercase() + &newer[1..];
    if let Value::Simple(word) = resp3
        && word.iter().all(u8::is_ascii_uppercase)
    {
        text += &format!(" `{}`", String::from_utf8_lossy(word));
    }
    let parts_of = |words: &str| words.trim_start_matches(char::is_alphabetic).to_owned();
    if older.starts_with("array") && older != newer && parts_of(&older) == parts_of(&newer) {
        text += " (RESP2: array)";
    } else if older != newer {
        text += &format!(" (RESP2: {older})");
    }
    text
}

/// Describes the type of one value, without an article.
fn of(value: &Value, depth: usize) -> String {
    match parts(value) {
        Some(parts) if depth > 0 => name(value).to_owned() + &of_parts(parts, depth - 1),
        _ => name(value).into(),
    }
}

/// Describes the elements of a reply: ` of integers` if they have one type, ` (integer, double)`
/// for a few different types. Empty if no short description exists.
fn of_parts(parts: &[Value], depth: usize) -> String {
    let mut kinds = kinds(parts);
    let nulls = kinds.iter().any(|kind| is_null(kind));
    kinds.retain(|kind| !is_null(kind));
    let alternating = parts.len() > 2
        && parts.chunks(2).all(|pair| kinds.iter().map(|kind| name(kind)).eq(pair.iter().map(name)));
    if kinds.len() > 1 && parts.len() <= NAMED_PARTS_MAX && !nulls && !alternating {
        let words: Vec<String> = parts.iter().map(|part| of(part, depth)).collect();
        return format!(" ({})", words.join(", "));
    }
    if kinds.len() > KINDS_MAX {
        return String::new();
    }
    let mut words: Vec<String> = kinds.iter().map(|kind| plural(&of(kind, depth))).collect();
    words.extend(nulls.then(|| "nulls".to_owned()));
    let Some(last) = words.pop() else { return String::new() };
    if words.is_empty() { format!(" of {last}") } else { format!(" of {} and {last}", words.join(", ")) }
}

/// Returns one element of each type. Of several elements of a type, returns the one with the most
/// elements of its own, because its description is the most specific.
fn kinds(parts: &[Value]) -> Vec<&Value> {
    let mut kinds: Vec<&Value> = Vec::new();
    for part in parts {
        match kinds.iter_mut().find(|kind| name(kind) == name(part)) {
            Some(kind) if len(kind) < len(part) => *kind = part,
            Some(_) => {}
            None => kinds.push(part),
        }
    }
    kinds
}

fn is_null(value: &Value) -> bool {
    matches!(value, Value::Null | Value::NullArray)
}

fn parts(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(parts) | Value::Set(parts) | Value::Push(parts) => Some(parts),
        _ => None,
    }
}

fn len(value: &Value) -> usize {
    parts(value).map_or(0, <[Value]>::len)
}

fn name(value: &Value) -> &'static str {
    match value {
        Value::Simple(_) => "simple string",
        Value::Error(_) => "error",
        Value::Integer(_) => "integer",
        Value::Bulk(_) => "bulk string",
        Value::Array(_) => "array",
        Value::Null => "null",
        Value::NullArray => "null array",
        Value::Boolean(_) => "boolean",
        Value::Double(_) => "double",
        Value::BigNumber(_) => "big number",
        Value::BulkError(_) => "bulk error",
        Value::Verbatim { .. } => "verbatim string",
        Value::Map(_) => "map",
        Value::Set(_) => "set",
        Value::Push(_) => "push",
        Value::Attributed { value, .. } => name(value),
    }
}

/// Returns the plural: `arrays of …` for `array of …`.
fn plural(words: &str) -> String {
    let end = [" of ", " ("].iter().filter_map(|mark| words.find(mark)).min().unwrap_or(words.len());
    format!("{}s{}", &words[..end], &words[end..])
}

#[cfg(test)]
mod tests {
    use testkit::Protocol;
    use testkit::matching::as_sent;
    use testkit::notation;

    use super::*;

    /// Checks the description of a reply that is given in the script notation `lines`.
    fn check(lines: &[&str], expected: &str) {
        let (reply, _) = notation::parse(lines).expect("the lines state a reply");
        let in_protocol = |protocol| as_sent(&reply, protocol).expect("there is no pattern");
        assert_eq!(of_both(&in_protocol(Protocol::Resp2), &in_protocol(Protocol::Resp3)), expected);
    }

    #[test]
    fn a_kind_is_said_with_its_parts() {
        check(&["+OK"], "Simple string `OK`");
        check(&["+list"], "Simple string");
        check(&[":1"], "Integer");
        check(&["_"], "Null (RESP2: null bulk string)");
        check(&["*-1"], "Null (RESP2: null array)");
        check(&[",1.5"], "Double (RESP2: bulk string)");
        check(&["*2", "\"a\"", "_"], "Array of bulk strings and nulls");
        check(&["*0"], "Array");
        check(&["~1", "\"a\""], "Set of bulk strings (RESP2: array)");
        check(&["*2", "\"0\"", "*1", "\"a\""], "Array (bulk string, array of bulk strings)");
        check(&["*4", "\"a\"", ":1", "\"b\"", ":2"], "Array of bulk strings and integers");
        check(
            &["*1", "*2", "\"a\"", ",1"],
            "Array of arrays (bulk string, double) (RESP2: array of arrays of bulk strings)",
        );
        check(&["%1", "\"f\"", "\"v\""], "Map (RESP2: array of bulk strings)");
        check(&["%1", "\"f\"", ":1"], "Map (RESP2: array of keys and values)");
        check(&["*5", ":1", "\"a\"", "+b", "*0", ":1"], "Array");
    }
}

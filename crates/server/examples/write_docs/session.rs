//! An example as a session of redis-cli, with the replies of RESP2 and RESP3 side by side where
//! they differ.

use testkit::Value;
use testkit::notation::{command_line, quote};
use testkit::script::{Answer, Example, Exchange};

/// Maximum number of lines of a reply; longer replies are cut.
const LINES_MAX: usize = 26;
/// Maximum width, in characters, of a RESP2 reply next to the RESP3 reply. A wider one is placed
/// above the RESP3 reply.
const LEFT_COLUMN_MAX: usize = 60;

/// Formats the lines of a session.
pub fn text(example: &Example<'_>) -> String {
    let mut lines = Vec::new();
    for exchange in &example.exchanges {
        if !exchange.args.is_empty() {
            lines.push(format!("{}> {}", exchange.client, typed(exchange.args)));
        }
        lines.extend(cut(answer(exchange)));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Formats a request as a user types it. Words of letters and digits are not escaped, even if they
/// are not ASCII.
fn typed(args: &[Vec<u8>]) -> String {
    let word = |arg: &Vec<u8>| match str::from_utf8(arg) {
        Ok(text) if !text.is_ascii() && text.chars().all(char::is_alphanumeric) => text.to_owned(),
        _ => command_line(std::slice::from_ref(arg)),
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn answer(exchange: &Exchange<'_>) -> Vec<String> {
    let mut lines = match (&exchange.resp2, &exchange.resp3) {
        // A verbatim string is a bulk string in RESP2. redis-cli shows it as plain text in both.
        (Answer::Reply(Value::Bulk(_)), Answer::Reply(resp3 @ Value::Verbatim { .. })) => shown(resp3),
        (Answer::Reply(resp2), Answer::Reply(resp3)) => both(&shown(resp2), &shown(resp3)),
        (Answer::Closed, _) | (_, Answer::Closed) => vec!["(the connection is closed)".into()],
        _ => Vec::new(),
    };
    // Output that another connection receives meanwhile is marked with that connection's name.
    if exchange.args.is_empty()
        && let Some(first) = lines.first_mut()
    {
        let waits = format!("{}< ", exchange.client);
        *first = waits.clone() + first;
        lines[1..].iter_mut().for_each(|line| *line = " ".repeat(waits.len()) + line);
    }
    lines
}

/// Formats the RESP2 and RESP3 replies side by side or below each other; only one if both look the
/// same.
fn both(resp2: &[String], resp3: &[String]) -> Vec<String> {
    if resp2 == resp3 {
        return resp3.to_vec();
    }
    if let ([older], [newer]) = (resp2, resp3) {
        return vec![format!("{older}    RESP3: {newer}")];
    }
    let width = resp2.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    if width > LEFT_COLUMN_MAX {
        let header = |name: &str| vec![format!("{name}:")];
        return [header("RESP2"), resp2.to_vec(), header("RESP3"), resp3.to_vec()].concat();
    }
    let width = width.max("RESP2".len()) + 4;
    let line = |left: &str, right: &str| format!("{left:width$}{right}");
    let at = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    let rows = (0..resp2.len().max(resp3.len())).map(|row| line(&at(resp2, row), &at(resp3, row)));
    std::iter::once(line("RESP2", "RESP3")).chain(rows).collect()
}

fn cut(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES_MAX {
        let left_out = lines.len() - (LINES_MAX - 1);
        lines.truncate(LINES_MAX - 1);
        lines.push(format!("... {left_out} more lines"));
    }
    lines
}

/// Formats a reply as redis-cli shows it.
fn shown(value: &Value) -> Vec<String> {
    match value {
        Value::Simple(text) => vec![String::from_utf8_lossy(text).into_owned()],
        Value::Error(text) | Value::BulkError(text) => {
            vec![format!("(error) {}", String::from_utf8_lossy(text))]
        }
        Value::Integer(number) => vec![format!("(integer) {number}")],
        Value::Bulk(text) => vec![quote(text)],
        Value::Verbatim { text, .. } => plain(text),
        Value::Null | Value::NullArray => vec!["(nil)".into()],
        Value::Boolean(value) => vec![format!("({value})")],
        Value::Double(text) => vec![format!("(double) {}", String::from_utf8_lossy(text))],
        Value::BigNumber(text) => vec![format!("(big number) {}", String::from_utf8_lossy(text))],
        Value::Array(parts) => numbered(parts, ")", "(empty array)"),
        Value::Set(parts) => numbered(parts, "~", "(empty set)"),
        Value::Push(parts) => numbered(parts, ">", "(empty push)"),
        Value::Map(pairs) => map(pairs),
        Value::Attributed { value, .. } => shown(value),
    }
}

fn plain(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Formats the elements of a reply as numbered, aligned lines: `1) first`. `mark` follows the
/// number; `empty` is the text for a reply without elements.
fn numbered(parts: &[Value], mark: &str, empty: &str) -> Vec<String> {
    if parts.is_empty() {
        return vec![empty.into()];
    }
    let width = parts.len().to_string().len();
    let mut lines = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let number = format!("{:>width$}{mark} ", at + 1);
        for (row, line) in shown(part).into_iter().enumerate() {
            let indentation = if row == 0 { number.clone() } else { " ".repeat(number.len()) };
            lines.push(indentation + &line);
        }
    }
    lines
}

/// Formats pairs as `1# key => value`; a value of several lines is placed below its key.
fn map(pairs: &[(Value, Value)]) -> Vec<String> {
    if pairs.is_empty() {
        return vec!["(empty hash)".into()];
    }
    let width = pairs.len().to_string().len();
    let mut lines = Vec::new();
    for (at, (key, value)) in pairs.iter().enumerate() {
        let head = format!("{:>width$}# {} =>", at + 1, shown(key).join(" "));
        match &shown(value)[..] {
            [line] => lines.push(format!("{head} {line}")),
            below => {
                lines.push(head);
                lines.extend(below.iter().map(|line| format!("{:indent$}{line}", "", indent = width + 2)));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use testkit::Protocol;
    use testkit::matching::as_sent;
    use testkit::notation;

    use super::*;

    /// Checks that a reply, given in the script notation `lines`, is shown as `expected`.
    fn check(lines: &[&str], expected: &[&str]) {
        let (reply, _) = notation::parse(lines).expect("the lines state a reply");
        let in_protocol = |protocol| Answer::Reply(as_sent(&reply, protocol).expect("there is no pattern"));
        let args = [b"GET".to_vec()];
        let (resp2, resp3) = (in_protocol(Protocol::Resp2), in_protocol(Protocol::Resp3));
        let exchange = Exchange { client: "", args: &args, note: None, resp2, resp3 };
        assert_eq!(answer(&exchange), expected);
    }

    #[test]
    fn replies_look_as_in_redis_cli() {
        check(&["+OK"], &["OK"]);
        check(&["-ERR no"], &["(error) ERR no"]);
        check(&[":3"], &["(integer) 3"]);
        check(&["\"a\\nb\""], &["\"a\\nb\""]);
        check(&["=txt:\"a\\r\\nb\\r\\n\""], &["a", "b"]);
        check(&["*-1"], &["(nil)"]);
        check(&["*0"], &["(empty array)"]);
        check(&["*2", "*2", ":1", ":2", "\"b\""], &["1) 1) (integer) 1", "   2) (integer) 2", "2) \"b\""]);
    }

    #[test]
    fn both_protocols_stand_side_by_side_where_they_differ() {
        check(&[",1.5"], &["\"1.5\"    RESP3: (double) 1.5"]);
        let columns = ["RESP2     RESP3", "1) \"f\"    1# \"f\" => (double) 1", "2) \"1\"    "];
        check(&["%1", "\"f\"", ",1"], &columns);
    }
}

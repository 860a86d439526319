//! Recording of a script's replies from a real server.
//!
//! The script's commands run in all variants. A stated reply that the server gives in each variant
//! stays unchanged. Any other reply is replaced by the server's, in as few statements as the
//! variants need. A pattern that does not match is not changed: its author must correct it, because
//! only the author knows its purpose.

use std::fs;
use std::path::Path;

use resp::{Protocol, Value};

use super::run::{Connections, prepare, restart, restore};
use super::{Encodings, Script, ScriptError, Selector, Step, Variant, Wanted};
use crate::client::Client;
use crate::matching::{Order, exactly, matches, merge, same_kinds};
use crate::notation;

/// The result of recording the replies of a `.resp` script.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The number of replies that were filled in or replaced.
    pub replies: usize,
    /// `file:line` and the server's reply, for each pattern in the script that does not match it.
    pub untrue_patterns: Vec<String>,
}

/// Runs the script at `path` and rewrites it where its replies are missing or wrong.
pub fn record(path: &Path, connect: &dyn Fn(Protocol) -> Client) -> Result<Recorded, ScriptError> {
    let script = Script::load(path)?;
    let fail = |line, what: String| ScriptError { path: path.into(), line, what };
    // One list of replies per step: one for each variant, in the order of the variants.
    let mut replies: Vec<Vec<(Variant, Value)>> = vec![Vec::new(); script.steps.len()];
    for variant in script.variants() {
        let mut control = connect(Protocol::Resp2);
        let saved = prepare(&script, variant, &mut control).map_err(|what| fail(0, what))?;
        let mut connections = Connections::new(connect, variant.protocol);
        for (at, (step, replies)) in script.steps.iter().zip(&mut replies).enumerate() {
            if script.skips(at, variant.protocol) {
                continue;
            }
            if script.begins_example(at) {
                restart(&mut connections).map_err(|what| fail(step.line, what))?;
            }
            if let Some(value) = ask(step, &mut connections).map_err(|what| fail(step.line, what))? {
                replies.push((variant, value));
            }
        }
        restore(saved, &mut control);
    }
    let mut recorded = Recorded::default();
    let mut text = String::new();
    let mut copied = 0;
    for (step, replies) in script.steps.iter().zip(&replies) {
        if holds(step, replies) {
            continue;
        }
        if has_pattern(step) {
            let got: Vec<_> = replies.iter().map(|(_, value)| notation::one_line(value)).collect();
            let place = format!("{}:{}", path.display(), step.line + 1);
            recorded.untrue_patterns.push(format!("{place}: {}", got.join("\n    ")));
            continue;
        }
        recorded.replies += 1;
        push_lines(&mut text, &script.lines[copied..step.reply_lines.start]);
        push_lines(
            &mut text,
            &if step.varies { loose_statement(replies) } else { statement(replies, step.order) },
        );
        copied = step.reply_lines.end;
    }
    push_lines(&mut text, &script.lines[copied..]);
    if recorded.replies > 0 {
        fs::write(path, text).map_err(|error| fail(0, error.to_string()))?;
    }
    Ok(recorded)
}

fn push_lines(text: &mut String, lines: &[String]) {
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
}

/// Returns the reply to the command of `step`; `None` if the step expects none.
fn ask(step: &Step, connections: &mut Connections<'_>) -> Result<Option<Value>, String> {
    let client = connections.get(&step.client);
    match step.wanted {
        Wanted::NoReply => {
            let mut bytes = Vec::new();
            resp::encode_request(&step.args, &mut bytes);
            client.send(&bytes).map_err(|error| error.to_string())?;
            Ok(None)
        }
        Wanted::Closed => {
            let reply = client.request(&step.args);
            connections.forget(&step.client);
            reply.map_or(Ok(None), |reply| Err(format!("not closed, but answered {reply}")))
        }
        _ if step.args.is_empty() => client.read().map(Some).map_err(|error| error.to_string()),
        _ => client.request(&step.args).map(Some).map_err(|error| error.to_string()),
    }
}

/// Returns true if the stated reply matches the server's replies in all variants.
fn holds(step: &Step, replies: &[(Variant, Value)]) -> bool {
    let Wanted::Replies(stated) = &step.wanted else {
        return step.wanted != Wanted::Unrecorded;
    };
    replies.iter().all(|(variant, actual)| {
        let fitting = stated.iter().find(|(selector, _)| selector.holds_in(*variant));
        fitting.is_some_and(|(_, expected)| step.accepts(expected, actual, variant.protocol))
    })
}

fn has_pattern(step: &Step) -> bool {
    matches!(&step.wanted, Wanted::Replies(stated) if stated.iter().any(|(_, expected)| expected.has_glob()))
}

/// Returns the lines of a script that state a reply whose values vary (`@varies`). They are one
/// value if the replies of all variants have the same kinds of parts, otherwise one value per
/// protocol.
fn loose_statement(replies: &[(Variant, Value)]) -> Vec<String> {
    let first =
        |wanted| replies.iter().find(|(variant, _)| variant.protocol == wanted).map(|(_, value)| value);
    let Some(resp3) = first(Protocol::Resp3) else { return Vec::new() };
    let Some(resp2) = first(Protocol::Resp2) else { return notation::lines(resp3) };
    if same_kinds(&exactly(resp3), resp2, Protocol::Resp2) {
        return notation::lines(resp3);
    }
    [vec!["@resp2".into()], notation::lines(resp2), vec!["@resp3".into()], notation::lines(resp3)].concat()
}

/// Returns the lines of a script that state `replies`: one value if it holds in all variants, else
/// one per encoding, else one per protocol, else one for each variant.
fn statement(replies: &[(Variant, Value)], arrays: Order) -> Vec<String> {
    let of = |protocol: Option<Protocol>, encodings: Option<Encodings>| -> Option<(Selector, Value)> {
        let selector = Selector { protocol, encodings };
        let fitting: Vec<_> = replies.iter().filter(|(variant, _)| selector.holds_in(*variant)).collect();
        let first = |wanted| fitting.iter().find(|(variant, _)| variant.protocol == wanted).map(|(_, v)| v);
        let value = match (first(Protocol::Resp2), first(Protocol::Resp3)) {
            (Some(resp2), Some(resp3)) => merge(resp2, resp3, arrays)?,
            (Some(only), None) | (None, Some(only)) => only.clone(),
            (None, None) => return None,
        };
        let expected = exactly(&value);
        let all = fitting.iter().all(|(v, actual)| matches(&expected, actual, v.protocol, arrays));
        all.then_some((selector, value))
    };
    let protocols = [Protocol::Resp2, Protocol::Resp3];
    let encodings = [Encodings::Small, Encodings::Large];
    if let Some((_, value)) = of(None, None) {
        return notation::lines(&value);
    }
    let by_encoding: Vec<_> = encodings.iter().filter_map(|&e| of(None, Some(e))).collect();
    let by_protocol: Vec<_> = protocols.iter().filter_map(|&p| of(Some(p), None)).collect();
    let stated = if by_encoding.len() == 2 {
        by_encoding
    } else if by_protocol.len() == 2 {
        by_protocol
    } else {
        let each = |&p: &Protocol| encodings.iter().filter_map(move |&e| of(Some(p), Some(e)));
        protocols.iter().flat_map(each).collect()
    };
    stated
        .iter()
        .flat_map(|(selector, value)| [vec![selector.to_string()], notation::lines(value)].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(protocol: Protocol, encodings: Encodings) -> Variant {
        Variant { protocol, encodings }
    }

    #[test]
    fn replies_are_stated_in_as_few_ways_as_they_need() {
        use Encodings::{Large, Small};
        use Protocol::{Resp2, Resp3};
        let int = Value::Integer;
        let check = |values: [Value; 4], expected: &[&str]| {
            let variants =
                [variant(Resp2, Small), variant(Resp3, Small), variant(Resp2, Large), variant(Resp3, Large)];
            let replies: Vec<_> = variants.into_iter().zip(values).collect();
            assert_eq!(statement(&replies, Order::Kept), expected);
        };
        check([int(1), int(1), int(1), int(1)], &[":1"]);
        check([Value::NullArray, Value::Null, Value::NullArray, Value::Null], &["*-1"]);
        check([int(1), int(1), int(2), int(2)], &["@small", ":1", "@large", ":2"]);
        check([int(1), int(2), int(1), int(2)], &["@resp2", ":1", "@resp3", ":2"]);
        check(
            [int(1), int(2), int(3), int(4)],
            &["@resp2 @small", ":1", "@resp2 @large", ":3", "@resp3 @small", ":2", "@resp3 @large", ":4"],
        );
    }
}

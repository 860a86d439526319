//! The examples of scripts, in the form that the documentation shows.

use resp::{Protocol, Value};

use super::{Encodings, Script, Step, Variant, Wanted};
use crate::matching::as_sent;
use crate::notation::{Expected, expected_lines};

/// One example of a script: commands with their replies.
#[derive(Debug)]
pub struct Example<'s> {
    /// The title of the example, a few words.
    pub title: &'s str,
    /// True if the example is for RESP3 only; then the answers for RESP2 repeat those for RESP3.
    pub resp3_only: bool,
    /// The commands of the example with their replies, in order.
    pub exchanges: Vec<Exchange<'s>>,
}

/// A command of an example and its answers in both protocols.
#[derive(Debug)]
pub struct Exchange<'s> {
    /// The name of the connection that sends the command; empty for the main connection.
    pub client: &'s str,
    /// The words of the command. Empty if the connection waits for the next value sent to it.
    pub args: &'s [Vec<u8>],
    /// The meaning of the reply, if the script describes it. Empty if the reply needs no
    /// description.
    pub note: Option<&'s str>,
    /// The answer to the command in RESP2.
    pub resp2: Answer,
    /// The answer to the command in RESP3.
    pub resp3: Answer,
}

/// The answer of the server to a command of an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// No reply to the command, or no reply yet.
    Nothing,
    /// The server closes the connection instead of a reply.
    Closed,
    /// A reply to the command.
    Reply(Value),
}

impl Script {
    /// Returns the examples of the script.
    ///
    /// # Errors
    /// `file:line` and a message, for a reply that is not recorded or that is a pattern.
    pub fn examples(&self) -> Result<Vec<Example<'_>>, String> {
        let ends = self.examples.iter().skip(1).map(|example| example.first).chain([self.steps.len()]);
        let mut examples = Vec::new();
        for (start, end) in self.examples.iter().zip(ends) {
            // The protocol of the answer that is shown for RESP2.
            let resp2 = if start.resp3_only { Protocol::Resp3 } else { Protocol::Resp2 };
            let exchanges = self.steps[start.first..end].iter().map(|step| self.exchange(step, resp2));
            let exchanges = exchanges.collect::<Result<_, _>>()?;
            examples.push(Example { title: &start.title, resp3_only: start.resp3_only, exchanges });
        }
        Ok(examples)
    }

    /// Returns each command of the script with the kind of each of its RESP3 replies. The kind is
    /// the character that marks it in the notation of scripts; `_` is any null. Left out are
    /// errors, replies to queued commands (`+QUEUED`), and patterns that allow several kinds.
    pub fn reply_kinds(&self) -> Vec<(&[Vec<u8>], char)> {
        let mut kinds = Vec::new();
        for step in &self.steps {
            let Wanted::Replies(replies) = &step.wanted else { continue };
            for (selector, expected) in replies {
                if selector.protocol != Some(Protocol::Resp2) {
                    kinds.extend(kind(expected).map(|kind| (&step.args[..], kind)));
                }
            }
        }
        kinds
    }

    /// Converts `step` to an exchange. Its answer for RESP2 is that of protocol `resp2`, which is
    /// RESP3 in an example for RESP3 only.
    fn exchange<'s>(&self, step: &'s Step, resp2: Protocol) -> Result<Exchange<'s>, String> {
        let place = format!("{}:{}", self.path.display(), step.line + 1);
        let answer = |protocol| {
            answer(step, protocol).ok_or_else(|| {
                format!("{place}: an example states its replies, without patterns (see @varies)")
            })
        };
        if step.note.is_some() && matches!(answer(Protocol::Resp3)?, Answer::Reply(Value::Error(_))) {
            return Err(format!("{place}: an error says by itself what it means: no @reply"));
        }
        Ok(Exchange {
            client: &step.client,
            args: &step.args,
            note: step.note.as_deref(),
            resp2: answer(resp2)?,
            resp3: answer(Protocol::Resp3)?,
        })
    }
}

/// Returns the character that marks replies of this kind in the notation of scripts. `None` for
/// errors, for `+QUEUED`, and for a pattern that allows several kinds.
fn kind(expected: &Expected) -> Option<char> {
    let line = match expected {
        Expected::Glob(pattern) => match pattern[..] {
            [b'\\', kind, ..] => char::from(kind).to_string(),
            [b'*' | b'?' | b'[', ..] => return None,
            _ => String::from_utf8_lossy(pattern).into_owned(),
        },
        _ => expected_lines(expected).swap_remove(0),
    };
    match &line[..] {
        "*-1" => Some('_'),
        "+QUEUED" => None,
        _ => line.chars().next().filter(|kind| !matches!(kind, '-' | '!')),
    }
}

/// Returns the answer to `step` in `protocol`; `None` if the script does not state it exactly.
fn answer(step: &Step, protocol: Protocol) -> Option<Answer> {
    let variant = Variant { protocol, encodings: Encodings::Small };
    match &step.wanted {
        Wanted::Unrecorded => None,
        Wanted::NoReply => Some(Answer::Nothing),
        Wanted::Closed => Some(Answer::Closed),
        Wanted::Replies(replies) => {
            let (_, expected) = replies.iter().find(|(selector, _)| selector.holds_in(variant))?;
            as_sent(expected, protocol).map(Answer::Reply)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Script {
        Script::parse(Path::new("x.resp"), text).unwrap()
    }

    #[test]
    fn examples_stand_behind_the_commands() {
        let script = parse(
            "> PING\n?*\n@example A map\n> HGETALL h\n@unordered\n@reply the fields\n%1\n  \"f\"\n  ,1\n\
             @example Waiting\nb> BLPOP q 0\n@none\nb<\n*-1\n",
        );
        assert_eq!(script.body().len(), 1);
        let [map, waiting] = &script.examples().unwrap()[..] else { panic!() };
        assert_eq!((map.title, waiting.title), ("A map", "Waiting"));
        let [hgetall] = &map.exchanges[..] else { panic!() };
        assert_eq!(hgetall.note, Some("the fields"));
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        assert_eq!(hgetall.resp2, Answer::Reply(Value::Array(vec![bulk("f"), bulk("1")])));
        let double = Value::Double(b"1".to_vec());
        assert_eq!(hgetall.resp3, Answer::Reply(Value::Map(vec![(bulk("f"), double)])));
        let [blpop, later] = &waiting.exchanges[..] else { panic!() };
        assert_eq!((blpop.client, &blpop.resp2), ("b", &Answer::Nothing));
        assert!(later.args.is_empty());
        assert_eq!(later.resp2, Answer::Reply(Value::NullArray));
        assert_eq!(later.resp3, Answer::Reply(Value::Null));
    }

    #[test]
    fn an_example_of_resp3_alone_is_left_out_in_resp2() {
        let script =
            parse("@example Push\n@resp3\n> PING\n+PONG\n<\n>1\n  :1\n\n@example Ping\n> PING\n+PONG\n");
        let skipped = |protocol| (0..3).map(|at| script.skips(at, protocol)).collect::<Vec<_>>();
        assert_eq!(skipped(Protocol::Resp2), [true, true, false]);
        assert_eq!(skipped(Protocol::Resp3), [false, false, false]);
        let examples = script.examples().unwrap();
        assert!(examples[0].resp3_only && !examples[1].resp3_only);
        assert!(matches!(examples[0].exchanges[1].resp2, Answer::Reply(Value::Push(_))));
    }

    #[test]
    fn kinds_of_replies_are_those_of_resp3() {
        let script = parse(
            "> A\n@resp2\n*0\n@resp3\n%0\n> B\n?:[0-9]*\n> C\n?\\*2 *\n> D\n?*\n> E\n-ERR no\n> F\n*-1\n> G\n\
             +QUEUED\n",
        );
        let kinds: Vec<_> = script.reply_kinds().into_iter().map(|(args, kind)| (args[0][0], kind)).collect();
        assert_eq!(kinds, [(b'A', '%'), (b'B', ':'), (b'C', '*'), (b'F', '_')]);
    }

    #[test]
    fn an_example_is_exact() {
        let error = parse("@example Error\n> TIME\n@reply what is wrong\n-ERR no\n").examples().unwrap_err();
        assert!(error.starts_with("x.resp:2: an error says by itself"), "{error}");
        let error = parse("@example Time\n> TIME\n?*\n").examples().unwrap_err();
        assert!(error.starts_with("x.resp:2: "), "{error}");
        assert!(parse("@example Time\n> TIME\n").examples().is_err());
    }
}

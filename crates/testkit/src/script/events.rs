//! The keyspace events of a script's commands.
//!
//! A script runs once, without its examples, while a listener is subscribed to all channels of
//! events. After each command, the test publishes a message that marks the end of its events.
//! Replies are not compared. The result is text:
//!
//! ```text
//! > RPUSH k a b
//! new k@0, rpush k@0
//! ```
//! Each event arrives twice, on the channel of its key and then on that of its name, and appears
//! here once. An event that arrives only once is shown as its channel and message. Commands without
//! events are left out. The text ends early if a server refuses a command that must succeed
//! according to the script: the server is too old for the rest.

use std::path::Path;

use resp::{Protocol, Value};

use super::run::{Connections, prepare, restore};
use super::{Encodings, Script, Step, Variant, Wanted};
use crate::client::Client;
use crate::notation::{command_line, quote};

/// The channel of the messages that mark the end of a command's events.
const MARK: &str = "end of a command";

/// Maximum length of a command in bytes; longer ones are cut.
const COMMAND_LEN_MAX: usize = 100;

/// Runs the script at `path` on RESP2. Returns the events of its commands as text, in the script's
/// order, or `None` if the server does not know the script's command. `connect` opens a connection.
///
/// # Errors
/// A message about the failure, as a sentence.
pub fn events_of(path: &Path, connect: &dyn Fn(Protocol) -> Client) -> Result<Option<String>, String> {
    let script = Script::load(path).map_err(|error| error.to_string())?;
    let variant = Variant { protocol: Protocol::Resp2, encodings: Encodings::Small };
    let mut control = connect(Protocol::Resp2);
    let command = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if matches!(control.command(&["COMMAND", "INFO", command]), Value::Array(found) if found == [Value::Null])
    {
        return Ok(None);
    }
    // Due keys expire when a command accesses them, not at another time.
    control.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    control.command(&["CONFIG", "SET", "notify-keyspace-events", "KEAnm"]);
    let mut listener = connect(Protocol::Resp2);
    for subscribe in [["PSUBSCRIBE", "__key*"], ["SUBSCRIBE", MARK]] {
        listener.command(&subscribe);
    }
    let saved = prepare(&script, variant, &mut control)?;
    let mut connections = Connections::new(connect, variant.protocol);
    let mut text = String::new();
    let mut sent = String::new();
    for step in script.body() {
        let mut line = command_line(&step.args);
        if line.len() > COMMAND_LEN_MAX {
            line.truncate((0..=COMMAND_LEN_MAX).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0));
            line.push('…');
        }
        let sending = send(step, &mut connections);
        if sending == Sending::TooNew {
            break;
        }
        sent = if sent.is_empty() { line } else { format!("{sent}\n> {line}") };
        if sending == Sending::Unanswered {
            // The time at which it runs is unknown: its events are shown with the next command's.
            continue;
        }
        control.command(&["PUBLISH", MARK, ""]);
        let events = take_events(&mut listener).map_err(|error| format!("> {sent}: {error}"))?;
        if !events.is_empty() {
            text.push_str(&format!("> {sent}\n{}\n", events.join(", ")));
        }
        sent.clear();
    }
    restore(saved, &mut control);
    Ok(Some(text))
}

/// The result of sending one command of the script.
#[derive(PartialEq)]
enum Sending {
    Answered,
    Unanswered,
    /// The server refuses a command that must succeed according to the script: the server is too
    /// old.
    TooNew,
}

fn send(step: &Step, connections: &mut Connections<'_>) -> Sending {
    let client = connections.get(&step.client);
    if step.wanted == Wanted::NoReply {
        let mut bytes = Vec::new();
        resp::encode_request(&step.args, &mut bytes);
        // A closed connection is detected at its next command.
        let _ = client.send(&bytes);
        return Sending::Unanswered;
    }
    match client.request(&step.args) {
        Ok(Value::Error(_)) if !step.may_fail() => return Sending::TooNew,
        Ok(_) => {}
        Err(_) => connections.forget(&step.client),
    }
    Sending::Answered
}

/// Reads the keyspace notifications that one command caused, up to the message that marks their
/// end.
fn take_events(listener: &mut Client) -> Result<Vec<String>, String> {
    let mut events: Vec<String> = Vec::new();
    let mut of_key: Option<(Vec<u8>, Vec<u8>)> = None;
    let alone = |(channel, message): (Vec<u8>, Vec<u8>)| format!("{} {}", quote(&channel), quote(&message));
    loop {
        let items = match listener.read().map_err(|error| error.to_string())? {
            Value::Array(items) => items,
            other => return Err(format!("not a message: {other}")),
        };
        let words: Vec<Vec<u8>> =
            items.iter().filter_map(|item| item.as_bytes().map(<[u8]>::to_vec)).collect();
        let [.., channel, message] = &words[..] else { return Err("not a message".into()) };
        if channel == MARK.as_bytes() {
            events.extend(of_key.take().map(alone));
            return Ok(events);
        }
        let (channel, message) = (channel.clone(), message.clone());
        match of_key.take() {
            Some((key_channel, event)) => match paired(&key_channel, &event, &channel, &message) {
                Some(text) => events.push(text),
                None => {
                    events.push(alone((key_channel, event)));
                    of_key = Some((channel, message));
                }
            },
            None => of_key = Some((channel, message)),
        }
    }
}

/// Combines the two messages of one keyspace event (on the key's and on the event's channel) to one
/// text. `None` if they belong to different events.
fn paired(key_channel: &[u8], event: &[u8], event_channel: &[u8], key: &[u8]) -> Option<String> {
    let text = key_channel.strip_prefix(b"__keyspace@")?;
    let at = text.iter().position(|byte| *byte == b'_')?;
    let db = String::from_utf8_lossy(&text[..at]);
    let expected_event = [b"__keyevent@", &text[..at], b"__:", event].concat();
    let pair = text[at..].strip_prefix(b"__:")? == key && event_channel == expected_event;
    let plain =
        key.iter().all(|byte| byte.is_ascii_graphic() && !b"\"'\\,".contains(byte)) && !key.is_empty();
    let key = if plain { String::from_utf8_lossy(key).into_owned() } else { quote(key) };
    pair.then(|| format!("{} {key}@{db}", String::from_utf8_lossy(event)))
}

#[cfg(test)]
mod tests {
    use super::paired;

    #[test]
    fn two_messages_make_an_event() {
        let check = |[key_channel, event, event_channel, key]: [&str; 4], expected: Option<&str>| {
            let [a, b, c, d] = [key_channel, event, event_channel, key].map(str::as_bytes);
            assert_eq!(paired(a, b, c, d).as_deref(), expected);
        };
        check(["__keyspace@3__:a", "set", "__keyevent@3__:set", "a"], Some("set a@3"));
        check(["__keyspace@0__:", "del", "__keyevent@0__:del", ""], Some("del \"\"@0"));
        check(["__keyspace@3__:a", "set", "__keyevent@2__:set", "a"], None);
        check(["__keyspace@3__:a", "set", "__keyevent@3__:set", "b"], None);
        check(["__keyevent@3__:set", "a", "__keyspace@3__:a", "set"], None);
    }
}

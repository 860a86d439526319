//! Keyspace events: the messages that name changed keys.

use resp::Value;

use crate::key::Key;

/// The pattern of the channels with the events of all databases.
pub const PATTERN: &[u8] = b"__keyevent@*__:*";

/// The names of events that report no change of the key's value: a read of a missing key, a new key
/// (another event follows), an overwritten value and its changed type.
const IDLE: [&[u8]; 4] = [b"keymiss", b"new", b"overwritten", b"type_changed"];

/// Returns the key of a keyspace event that reports a change; `None` for other messages.
pub fn changed_key(message: &Value) -> Option<Key> {
    let (Value::Array(parts) | Value::Push(parts)) = message else { return None };
    let [kind, _pattern, channel, name] = &parts[..] else { return None };
    if kind.as_bytes()? != b"pmessage" {
        return None;
    }
    let rest = channel.as_bytes()?.strip_prefix(b"__keyevent@")?;
    let end = rest.windows(3).position(|bytes| bytes == b"__:")?;
    let db = stdx::number::parse_i64(&rest[..end])?;
    if IDLE.contains(&&rest[end + 3..]) {
        return None;
    }
    Some(Key::new(u32::try_from(db).ok()?, name.as_bytes()?))
}

/// Returns the value of `notify-keyspace-events` that adds the needed events to `present`; `None`
/// if `present` has them.
pub fn with_events(present: &str) -> Option<String> {
    let has = |letter| present.contains(letter);
    let has_all = has('A') || "g$lshztxed".chars().all(has);
    (!has('E') || !has_all).then(|| format!("{present}AE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &str, name: &[u8]) -> Value {
        let parts = [b"pmessage", PATTERN, channel.as_bytes(), name];
        Value::Array(parts.map(|part| Value::Bulk(part.to_vec())).to_vec())
    }

    #[test]
    fn an_event_names_a_database_and_a_key() {
        assert_eq!(changed_key(&message("__keyevent@12__:del", b"a\r\nb")), Some(Key::new(12, b"a\r\nb")));
        assert_eq!(changed_key(&message("__keyevent@0__:keymiss", b"a")), None);
        assert_eq!(changed_key(&message("__keyevent@x__:set", b"a")), None);
        assert_eq!(changed_key(&message("other", b"a")), None);
        let subscribed = ["psubscribe", "x", "1"].map(|part| Value::Bulk(part.into()));
        assert_eq!(changed_key(&Value::Array(subscribed.to_vec())), None);
    }

    #[test]
    fn events_are_added_to_those_in_use() {
        assert_eq!(with_events(""), Some("AE".to_owned()));
        assert_eq!(with_events("K$"), Some("K$AE".to_owned()));
        assert_eq!(with_events("AKE"), None);
        assert_eq!(with_events("g$lshztxedE"), None);
        assert_eq!(with_events("AK"), Some("AKAE".to_owned()));
    }
}

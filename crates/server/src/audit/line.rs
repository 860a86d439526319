//! The format of an audit log line: a JSON object without line breaks.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use engine::client::ClientInfo;
use stdx::utc::utc;

/// Maximum number of keys that a line of the audit log names. If there are more, the line also
/// contains the number of the unnamed keys.
const KEYS_MAX: usize = 32;
/// Maximum length of a text in a line of the audit log, such as a key or a user name, in bytes.
const NAME_LEN_BYTES_MAX: usize = 128;

/// The outcome of an event of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command of the event ran, or the login succeeded.
    Allowed,
    /// The command of the event was queued in a transaction and waits for EXEC.
    Queued,
    /// The command or login was rejected, for the reason that this word names.
    Denied(&'static str),
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Queued => "queued",
            Self::Denied(_) => "denied",
        }
    }
}

/// An event of the audit log, without values and secrets.
pub struct Event<'a, K> {
    /// The time of the event, in Unix milliseconds.
    pub unix_ms: i64,
    /// The kind of the event: `auth` (a login attempt) or `command`.
    pub kind: &'static str,
    /// The outcome of the event.
    pub outcome: Outcome,
    /// The user of the session, or the name that a failed login gave.
    pub user: &'a [u8],
    /// The client that sent the command or tried to log in.
    pub client: &'a ClientInfo,
    /// The full name of the command, such as `config|set`; `certificate` for a login by
    /// certificate.
    pub command: &'a str,
    /// The keys among the arguments of the command.
    pub keys: K,
}

/// Appends the audit log's line of an event to `out`, with its line break.
pub fn append<'k>(out: &mut Vec<u8>, event: Event<'_, impl Iterator<Item = &'k [u8]>>) {
    let Event { unix_ms, kind, outcome, user, client, command, keys } = event;
    put(out, format_args!("{{\"time\":\"{}\",\"event\":\"{kind}\"", time(unix_ms)));
    put(out, format_args!(",\"result\":\"{}\"", outcome.word()));
    if let Outcome::Denied(reason) = outcome {
        put(out, format_args!(",\"reason\":\"{reason}\""));
    }
    out.extend_from_slice(b",\"user\":");
    string(out, user);
    put(out, format_args!(",\"client\":{},\"addr\":", client.id));
    string(out, client.peer.to_string().as_bytes());
    out.extend_from_slice(b",\"laddr\":");
    string(out, client.local.to_string().as_bytes());
    let name = client.names().name.clone();
    if !name.is_empty() {
        out.extend_from_slice(b",\"name\":");
        string(out, &name);
    }
    put(out, format_args!(",\"db\":{},\"command\":", client.db.load(Relaxed)));
    string(out, command.as_bytes());
    let (mut shown, mut left_out) = (0, 0);
    for key in keys {
        if shown == KEYS_MAX {
            left_out += 1;
            continue;
        }
        out.extend_from_slice(if shown == 0 { b",\"keys\":[" } else { b"," });
        string(out, key);
        shown += 1;
    }
    if shown > 0 {
        out.push(b']');
    }
    if left_out > 0 {
        put(out, format_args!(",\"more_keys\":{left_out}"));
    }
    out.extend_from_slice(b"}\n");
}

/// Formats a time in Unix milliseconds in ISO 8601: `2026-11-23T09:40:18.007Z`.
pub fn time(unix_ms: i64) -> String {
    let (seconds, millis) = (unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000));
    let text = utc(seconds).replacen(' ', "T", 1);
    let text = text.trim_end_matches(" UTC");
    format!("{text}.{millis:03}Z")
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

/// Appends the bytes to `out` as a JSON string. Bytes that are not UTF-8 become U+0080 to U+00FF. A
/// text longer than [`NAME_LEN_BYTES_MAX`] is cut and ends with `…`.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let cut = &bytes[..bytes.len().min(NAME_LEN_BYTES_MAX)];
    for chunk in cut.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                // Unicode's line ends are escaped too: a reader may take them for the end of a
                // line.
                '\0'..='\x1f' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                    put(out, format_args!("\\u{:04x}", u32::from(letter)));
                }
                _ => put(out, format_args!("{letter}")),
            }
        }
        for byte in chunk.invalid() {
            put(out, format_args!("\\u00{byte:02x}"));
        }
    }
    if cut.len() < bytes.len() {
        out.extend_from_slice("…".as_bytes());
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use engine::client::Place;
    use net::{Address, ConnId};

    use super::*;

    fn line(outcome: Outcome, user: &[u8], keys: &[&[u8]]) -> String {
        let address = |port: u16| Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
        let place = Place { thread: 0, conn: ConnId::new(0, 0), fd: 1 };
        let client = ClientInfo::new(7, place, (address(5000), address(6379)), 0);
        let mut out = Vec::new();
        let keys = keys.iter().copied();
        let command = "config|set";
        append(
            &mut out,
            Event {
                unix_ms: 1_763_906_700_007,
                kind: "command",
                outcome,
                user,
                client: &client,
                command,
                keys,
            },
        );
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn a_line_is_an_object_of_json() {
        let expected = "{\"time\":\"2025-11-23T14:05:00.007Z\",\"event\":\"command\",\"result\":\"denied\",\"reason\":\"key\",\
                        \"user\":\"alice\",\"client\":7,\"addr\":\"127.0.0.1:5000\",\"laddr\":\"127.0.0.1:6379\",\"db\":0,\
                        \"command\":\"config|set\",\"keys\":[\"a\",\"b\"]}\n";
        assert_eq!(line(Outcome::Denied("key"), b"alice", &[b"a", b"b"]), expected);
        assert!(
            line(Outcome::Allowed, b"", &[]).contains("\"result\":\"allowed\",\"user\":\"\",\"client\":7")
        );
    }

    #[test]
    fn no_byte_breaks_a_line() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in all.chunks(100) {
            let line = line(Outcome::Allowed, bytes, &[bytes]);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            let text: String = String::from_utf8(bytes.to_vec())
                .unwrap_or_else(|_| bytes.iter().map(|&byte| char::from(byte)).collect());
            assert_eq!(read["user"], text.as_str());
            assert_eq!(read["keys"][0], text.as_str());
        }
    }

    #[test]
    fn long_names_and_many_keys_are_cut() {
        let (long, keys) = (vec![b'x'; 1_000], vec![&b"k"[..]; 100]);
        let line = line(Outcome::Queued, &long, &keys);
        assert!(line.contains("x…\"") && line.contains(",\"more_keys\":68}") && line.len() < 700, "{line}");
    }
}

//! The comparison of a key on both servers, and the meaning of their error replies.

use std::hash::{DefaultHasher, Hash, Hasher};

use resp::Value;

/// The bytes at the end of a DUMP payload: two of the RDB version, eight of the checksum.
const FOOTER_LEN_BYTES: usize = 10;
/// The maximum difference of two times to live that count as equal, in milliseconds. The two are
/// read at slightly different times.
const TTL_TOLERANCE_MS: i64 = 2000;

/// The way in which the values of a key on both servers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The values are compared by the digests that DEBUG DIGEST-VALUE computes.
    Digest,
    /// The values are compared by DUMP, without the version and the checksum.
    Payload,
}

/// The form in which both servers report the expiry of a key: a time or a time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryForm {
    /// The Unix time of expiry in milliseconds, by PEXPIRETIME.
    Absolute,
    /// The time to live, by PTTL, for servers before Redis 7.
    Relative,
}

impl ExpiryForm {
    /// Returns the name of the command that reads the expiry in this form.
    pub fn command(self) -> &'static [u8] {
        match self {
            ExpiryForm::Absolute => b"PEXPIRETIME",
            ExpiryForm::Relative => b"PTTL",
        }
    }

    /// Returns true if the expiries `a` and `b` of one key are equal, up to the time between the
    /// two requests.
    pub fn agree(self, a: i64, b: i64) -> bool {
        match self {
            ExpiryForm::Absolute => a == b,
            ExpiryForm::Relative => a == b || (a >= 0 && b >= 0 && (a - b).abs() <= TTL_TOLERANCE_MS),
        }
    }
}

/// The state of a key on one server, as a comparison reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// The key does not exist on the server.
    Missing,
    /// The key exists on the server.
    Present {
        /// The expiry of the key in the form of [`ExpiryForm`], in milliseconds; -1 for none.
        expiry: i64,
        /// The hash of the reply (digest or payload), and its length in bytes.
        content: (u64, usize),
    },
    /// The server replied with an error when the key was read; contains its text.
    Refused(String),
}

impl Facts {
    /// Derives the state of a key on one server from `expiry`, the reply to the command that reads
    /// the expiry, and `content`, the reply to the command of `method`.
    pub fn of(method: Method, expiry: i64, content: &Value) -> Self {
        let bytes = match (method, content) {
            (_, Value::Error(error)) => return Facts::Refused(error.escape_ascii().to_string()),
            (_, Value::Null) => return Facts::Missing,
            (Method::Digest, Value::Array(digests)) => digests.first().and_then(Value::as_bytes),
            (Method::Payload, Value::Bulk(payload)) => Some(body(payload)),
            _ => None,
        };
        let Some(bytes) = bytes else { return Facts::Refused("an unexpected reply".to_owned()) };
        if method == Method::Digest && bytes.iter().all(|&digit| digit == b'0') {
            return Facts::Missing;
        }
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Facts::Present { expiry, content: (hasher.finish(), bytes.len()) }
    }

    /// Returns true if the two servers have the same value and expiry for the key, given the result
    /// of reading it on each.
    pub fn agree(&self, other: &Facts, form: ExpiryForm) -> bool {
        match (self, other) {
            (Facts::Missing, Facts::Missing) => true,
            (
                Facts::Present { expiry, content },
                Facts::Present { expiry: other_expiry, content: other_content },
            ) => content == other_content && form.agree(*expiry, *other_expiry),
            _ => false,
        }
    }
}

/// Returns a DUMP payload without its RDB version and checksum.
pub fn body(payload: &[u8]) -> &[u8] {
    &payload[..payload.len().saturating_sub(FOOTER_LEN_BYTES)]
}

/// The meaning of an error reply for the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server does not support this format of the value. It may still accept the value by the
    /// commands of its type.
    Format,
    /// The server is busy for now. The key is tried again.
    Later,
    /// The server accepts no writes at all, so the copy must end.
    Fatal,
    /// The server refuses this key only; the copy continues with the others.
    Key,
}

impl Refusal {
    /// Classifies `error`, the text of a server's error reply, by its meaning for the copy.
    pub fn of(error: &[u8]) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| error.starts_with(prefix.as_bytes()));
        if starts(&["ERR DUMP payload version", "ERR Bad data format"]) {
            Refusal::Format
        } else if starts(&["LOADING", "BUSY ", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"]) {
            Refusal::Later
        } else if starts(&["OOM", "READONLY", "MISCONF", "NOAUTH", "NOREPLICAS"]) {
            Refusal::Fatal
        } else {
            Refusal::Key
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(body: &str, version: u8) -> Value {
        let mut bytes = body.as_bytes().to_vec();
        bytes.extend([version, 0, 1, 2, 3, 4, 5, 6, 7, version]);
        Value::Bulk(bytes)
    }

    #[test]
    fn payloads_are_compared_without_version_and_checksum() {
        let facts = |body, version, expiry| Facts::of(Method::Payload, expiry, &payload(body, version));
        let agree = |a: &Facts, b: &Facts| a.agree(b, ExpiryForm::Absolute);
        assert!(agree(&facts("a", 11, -1), &facts("a", 12, -1)));
        assert!(!agree(&facts("a", 11, -1), &facts("b", 11, -1)));
        assert!(!agree(&facts("a", 11, -1), &facts("a", 11, 7)));
        assert!(!agree(&facts("a", 11, -1), &Facts::Missing));
        assert_eq!(Facts::of(Method::Payload, -2, &Value::Null), Facts::Missing);
        assert_eq!(body(b"short"), b"");
        let refused = Facts::of(Method::Payload, -1, &Value::Error(b"NOPERM x".to_vec()));
        assert!(!agree(&refused, &refused.clone()), "nothing is known about the key");
    }

    #[test]
    fn a_digest_of_zeros_is_a_missing_key() {
        let digest = |text: &str| Value::Array(vec![Value::Simple(text.into())]);
        assert_eq!(Facts::of(Method::Digest, -2, &digest("0000")), Facts::Missing);
        let one = Facts::of(Method::Digest, -1, &digest("1000"));
        assert!(one.agree(&one.clone(), ExpiryForm::Absolute));
    }

    #[test]
    fn times_to_live_agree_up_to_the_time_between_two_requests() {
        assert!(ExpiryForm::Relative.agree(5000, 4900));
        assert!(!ExpiryForm::Relative.agree(50_000, 4900));
        assert!(!ExpiryForm::Relative.agree(1, -1));
        assert!(!ExpiryForm::Absolute.agree(5000, 4900));
    }

    #[test]
    fn errors_have_a_meaning() {
        let checks: [(&str, Refusal); 5] = [
            ("ERR DUMP payload version or checksum are wrong", Refusal::Format),
            ("ERR Bad data format", Refusal::Format),
            ("LOADING Redis is loading the dataset in memory", Refusal::Later),
            ("OOM command not allowed when used memory > 'maxmemory'.", Refusal::Fatal),
            ("NOPERM No permissions to access a key", Refusal::Key),
        ];
        for (error, meaning) in checks {
            assert_eq!(Refusal::of(error.as_bytes()), meaning, "{error}");
        }
    }
}

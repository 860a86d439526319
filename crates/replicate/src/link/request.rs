//! The text of requests to a primary, and the errors that end the connection to it.

use std::fmt;

/// The error that ends the connection to a primary during the handshake. The caller connects again
/// after a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// The error message for the log and for INFO.
    pub text: String,
    /// True if the same requests are expected to succeed later without a change by an operator.
    pub is_transient: bool,
}

impl LinkError {
    pub(crate) fn new(text: String) -> Self {
        Self { text, is_transient: false }
    }

    /// Creates the error for an error reply of the primary in the handshake. `text` is the complete
    /// message, which contains the reply.
    pub(crate) fn of_reply(reply: &[u8], text: String) -> Self {
        let transient = [&b"-LOADING"[..], b"-NOMASTERLINK", b"-MASTERDOWN"];
        Self { text, is_transient: transient.iter().any(|code| reply.starts_with(code)) }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LinkError {}

/// Appends to `out` a request to the primary that consists of these words, in RESP.
pub(crate) fn push_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns a line of the primary without its line end.
pub(crate) fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns a line of the primary as text for the log; control characters become `?`.
pub(crate) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).replace(char::is_control, "?")
}

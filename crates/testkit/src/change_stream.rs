//! A server's stream of changes (write commands) in a form that can be compared. The stream of
//! Redis is its append-only file; that of Saker is its change log.
//!
//! [`parse`] decodes the bytes to commands. It replaces SELECT by the number of the database in
//! each command. Commands between MULTI and EXEC carry the number of their transaction. The lines
//! `#TS:` of append-only files are skipped. [`compare`] aligns two streams and returns the changes
//! that only one of them has. Two words are equal if their bytes are equal, or if both are times of
//! nearly the same moment.

use std::fmt;

use resp::{Value, decode};

use crate::notation;

mod align;
pub mod explained;
#[cfg(any(shuttle, feature = "saves"))]
pub mod forms;
#[cfg(any(shuttle, feature = "saves"))]
pub mod peers;
pub mod recorded;
#[cfg(any(shuttle, feature = "saves"))]
pub mod replay;
#[cfg(any(shuttle, feature = "saves"))]
pub(crate) mod reported;

pub use align::{Difference, compare};

/// One command of a stream of changes, with its database and transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The database that the command changes.
    pub db: u32,
    /// The number of the transaction, from 1: all its commands have the same number. 0 for a
    /// command outside of transactions.
    pub transaction: u32,
    /// The name and the arguments of the command.
    pub words: Vec<Vec<u8>>,
}

impl Change {
    /// Returns the name of the command in capitals.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.words[0]).to_ascii_uppercase()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.transaction > 0 { "*" } else { "" };
        write!(f, "{}{mark}> {}", self.db, notation::command_line(&self.words))
    }
}

/// The reason why bytes are not a stream of changes.
#[derive(Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The position of the error in the stream of changes, in bytes from its start.
    pub at: usize,
    /// A description of the error in the stream of changes.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {} of the stream: {}", self.at, self.what)
    }
}

impl std::error::Error for ParseError {}

/// Parses the commands of a whole stream of changes, which begins in database `db`. O(bytes).
///
/// # Errors
/// The stream is malformed, or it ends inside of a command or a transaction.
pub fn parse(stream: &[u8], db: u32) -> Result<Vec<Change>, ParseError> {
    let mut changes = Vec::new();
    let (mut at, mut db, mut transactions, mut in_transaction) = (0, db, 0, false);
    while at < stream.len() {
        let fail = |what: &str| ParseError { at, what: what.into() };
        if stream[at] == b'#' {
            let line = stream[at..].iter().position(|&byte| byte == b'\n');
            at += 1 + line.ok_or_else(|| fail("a comment without an end"))?;
            continue;
        }
        let (words, len) = words_of(&stream[at..]).map_err(|what| fail(&what))?;
        match &words[0].to_ascii_uppercase()[..] {
            b"SELECT" => db = db_of(&words).ok_or_else(|| fail("SELECT of no database"))?,
            b"MULTI" if in_transaction => return Err(fail("MULTI within a transaction")),
            b"MULTI" => (in_transaction, transactions) = (true, transactions + 1),
            b"EXEC" if !in_transaction => return Err(fail("EXEC without MULTI")),
            b"EXEC" => in_transaction = false,
            _ => {
                let transaction = if in_transaction { transactions } else { 0 };
                changes.push(Change { db, transaction, words });
            }
        }
        at += len;
    }
    if in_transaction {
        return Err(ParseError { at, what: "the stream ends inside of a transaction".into() });
    }
    Ok(changes)
}

/// Parses the command at the beginning of `stream`, a stream of changes. Returns its name and
/// arguments, and its length in bytes.
fn words_of(stream: &[u8]) -> Result<(Vec<Vec<u8>>, usize), String> {
    let (value, len) = match decode(stream) {
        Ok(Some(found)) => found,
        Ok(None) => return Err("the stream ends inside of a command".into()),
        Err(error) => return Err(error.to_string()),
    };
    let words = match &value {
        Value::Array(parts) => parts.iter().map(|part| part.as_bytes().map(<[u8]>::to_vec)).collect(),
        _ => None,
    };
    let words: Option<Vec<Vec<u8>>> = words;
    match words.filter(|words| !words.is_empty()) {
        Some(words) => Ok((words, len)),
        None => Err(format!("no command: {}", notation::one_line(&value))),
    }
}

fn db_of(words: &[Vec<u8>]) -> Option<u32> {
    std::str::from_utf8(words.get(1)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            if line.starts_with('#') {
                bytes.extend_from_slice(format!("{line}\r\n").as_bytes());
            } else {
                resp::encode_request(&line.split(' ').collect::<Vec<_>>(), &mut bytes);
            }
        }
        bytes
    }

    #[test]
    fn databases_and_transactions_are_those_of_each_command() {
        let bytes = stream(&[
            "SELECT 0",
            "SET a 1",
            "#TS:1700000000",
            "MULTI",
            "INCR a",
            "select 9",
            "INCR b",
            "EXEC",
            "DEL b",
            "MULTI",
            "DEL c",
            "EXEC",
        ]);
        let shown: Vec<_> = parse(&bytes, 7).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0> SET a 1", "0*> INCR a", "9*> INCR b", "9> DEL b", "9*> DEL c"]);
        let numbers: Vec<_> = parse(&bytes, 7).unwrap().iter().map(|change| change.transaction).collect();
        assert_eq!(numbers, [0, 1, 1, 0, 2]);
    }

    #[test]
    fn a_stream_goes_on_in_the_database_it_is_given() {
        assert_eq!(parse(&stream(&["DEL a"]), 3).unwrap()[0].db, 3);
    }

    #[test]
    fn what_is_no_stream_is_told_with_its_place() {
        let good = stream(&["DEL a"]);
        let after = |lines: &[&str]| [good.clone(), stream(lines)].concat();
        let refused: [(Vec<u8>, usize, &str); 5] = [
            ([&good[..], b"*2\r\n$3\r\nDEL"].concat(), good.len(), "ends inside of a command"),
            (after(&["MULTI"]), after(&["MULTI"]).len(), "ends inside of a transaction"),
            (after(&["EXEC"]), good.len(), "EXEC without MULTI"),
            (after(&["SELECT one"]), good.len(), "SELECT of no database"),
            ([&good[..], b":1\r\n"].concat(), good.len(), "no command"),
        ];
        for (bytes, at, what) in refused {
            let error = parse(&bytes, 0).unwrap_err();
            assert!(error.at == at && error.what.contains(what), "{error}");
        }
    }
}

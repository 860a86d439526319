//! The reference for the checks of replication: the bytes of each history, and the data after each
//! command and transaction.

use std::collections::BTreeMap;

use replicate::primary::Primary;
use resp::Value;
use resp::decode::decode;

use crate::contents::Contents;

/// The data that results from the requests of a replication stream: keys with their integer values
/// and expiries.
#[derive(Clone, Debug, Default)]
struct Data {
    keys: BTreeMap<(usize, Vec<u8>), (i64, Option<i64>)>,
    db: usize,
}

impl Data {
    /// Changes the data as a request of the replication stream does.
    fn apply(&mut self, words: &[&[u8]]) {
        let text = |at: usize| std::str::from_utf8(words[at]).expect("the words are text");
        let number = |at: usize| text(at).parse::<i64>().expect("a number");
        let key = |at: usize| (self.db, words[at].to_vec());
        match text(0) {
            "SELECT" => self.db = number(1) as usize,
            "SET" => {
                let expiry = (words.len() == 5).then(|| number(4));
                self.keys.insert(key(1), (number(2), expiry));
            }
            "INCR" => {
                let key = key(1);
                self.keys.entry(key).or_insert((0, None)).0 += 1;
            }
            "DEL" | "UNLINK" => {
                for at in 1..words.len() {
                    let key = key(at);
                    self.keys.remove(&key);
                }
            }
            "SWAPDB" => {
                let (one, other) = (number(1) as usize, number(2) as usize);
                let swapped = |db| {
                    if db == one {
                        other
                    } else if db == other {
                        one
                    } else {
                        db
                    }
                };
                let keys = std::mem::take(&mut self.keys).into_iter();
                self.keys = keys.map(|((db, key), value)| ((swapped(db), key), value)).collect();
            }
            "MULTI" | "EXEC" | "PING" | "REPLCONF" | "PUBLISH" => {}
            other => panic!("the stream has {other}"),
        }
    }

    fn contents(&self) -> Contents {
        let text = |(value, expiry): &(i64, Option<i64>)| format!("string {value}, expires {expiry:?}");
        self.keys.iter().map(|(key, value)| (key.clone(), text(value))).collect()
    }
}

/// The bytes of one replication history, and the data after each of its commands and transactions.
#[derive(Clone, Debug, Default)]
struct History {
    bytes: Vec<u8>,
    /// The data after each command outside of transactions and each transaction, by the offset at
    /// which it ends.
    states: BTreeMap<u64, Data>,
}

impl History {
    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let (&from, data) = self.states.last_key_value().expect("it has a beginning");
        let (mut at, mut data, mut is_within) = (from as usize, data.clone(), false);
        while let Some((request, len_bytes)) = decode(&self.bytes[at..]).expect("the stream can be read") {
            at += len_bytes;
            let Value::Array(words) = request else { panic!("not a request: {request}") };
            let words: Vec<&[u8]> = words.iter().filter_map(Value::as_bytes).collect();
            data.apply(&words);
            match words[0] {
                b"MULTI" => is_within = true,
                b"EXEC" => is_within = false,
                _ => {}
            }
            if !is_within {
                self.states.insert(at as u64, data.clone());
            }
        }
    }
}

/// The recorded replication histories of a run, by replication ID.
#[derive(Debug, Default)]
pub(super) struct Truth(BTreeMap<String, History>);

impl Truth {
    /// Begins the record of a replication history at offset 0, without data.
    pub fn begin(&mut self, id: &str) {
        let states = BTreeMap::from([(0, Data::default())]);
        self.0.insert(id.to_owned(), History { bytes: Vec::new(), states });
    }

    /// Begins the record of history `next` at a promotion: a copy of history `former` up to offset
    /// `end`.
    ///
    /// # Panics
    ///
    /// Panics if no command or transaction ends at this offset.
    pub fn fork(&mut self, former: &str, next: &str, end: u64) {
        let mut history = self.0[former].clone();
        history.bytes.truncate(end as usize);
        history.states.retain(|&offset, _| offset <= end);
        assert!(history.states.contains_key(&end), "a server is promoted within a unit");
        self.0.insert(next.to_owned(), history);
    }

    /// Records the bytes from offset `from` on that a node has appended to its replication stream.
    /// The bytes of a primary extend the recorded history. The bytes of a replica must equal the
    /// recorded ones.
    ///
    /// # Errors
    /// A text that describes the difference.
    pub fn note_appended(&mut self, primary: &Primary, from: u64) -> Result<(), String> {
        let (id, end) = (primary.history().id.to_string(), primary.end());
        if end == from {
            return Ok(());
        }
        let Some(backlog) = primary.backlog() else { return Ok(()) };
        let pieces = backlog.read(from, usize::MAX);
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_ref().to_vec()).collect();
        let history = self.0.get_mut(&id).ok_or("a history without a beginning")?;
        if !primary.is_following() {
            if history.bytes.len() as u64 != from {
                return Err(format!("offset {from} of a primary is not the end of its history"));
            }
            history.extend(&bytes);
            return Ok(());
        }
        if history.bytes.get(from as usize..end as usize) != Some(&bytes) {
            let text = bytes.escape_ascii();
            return Err(format!(
                "a replica's stream is not that of its primary from offset {from} on: {text}"
            ));
        }
        if !history.states.contains_key(&end) {
            return Err(format!("a replica's stream ends within a unit, at offset {end}"));
        }
        Ok(())
    }

    /// Returns the data at offset `offset` of the replication history `id`; `None` if no command or
    /// transaction ends there.
    pub fn contents_at(&self, id: &str, offset: u64) -> Option<Contents> {
        Some(self.0.get(id)?.states.get(&offset)?.contents())
    }
}

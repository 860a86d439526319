//! Counts the units (commands outside of transactions, and transactions) in a part of the change
//! log's stream: by the bytes of the stream, or by the marks of a batch.

use engine::log::merger::LogBatch;
use engine::log::target::LogTarget;
use resp::Value;
use resp::decode::decode;

/// Returns the end of each command outside of transactions and of each transaction in `bytes`. They
/// are a part of the change log's stream that begins at offset `from`. Ends are offsets in the
/// stream.
pub(super) fn ends_of_units(bytes: &[u8], from: usize) -> Vec<usize> {
    let (mut at, mut is_within, mut ends) = (0, false, Vec::new());
    while let Some((request, len_bytes)) = decode(&bytes[at..]).expect("the log's text can be read") {
        at += len_bytes;
        let Value::Array(words) = request else { panic!("not a request: {request}") };
        match words.first().and_then(Value::as_bytes) {
            Some(b"MULTI") => is_within = true,
            Some(b"EXEC") => is_within = false,
            // A SELECT belongs to the unit after it.
            Some(b"SELECT") => continue,
            _ => {}
        }
        if !is_within {
            ends.push(from + at);
        }
    }
    ends
}

/// Returns the number of changes in a batch that have a record for the target; a transaction counts
/// as one change.
pub(super) fn units_for(batch: &LogBatch<'_>, target: LogTarget) -> usize {
    let marks = batch.marks.iter().filter(|mark| mark.targets.contains(target.into()));
    let mut positions: Vec<u64> = marks.filter(|mark| !mark.is_framing).map(|mark| mark.position).collect();
    positions.dedup();
    positions.len()
}

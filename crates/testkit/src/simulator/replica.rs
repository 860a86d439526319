//! A reader of the change log that keeps the replication stream which replicas would receive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader};
use engine::log::target::LogTarget;
use resp::Value;
use resp::decode::decode;

use super::units::{ends_of_units, units_for};

/// The replication stream received so far. Its lock is a leaf: no other lock is taken under it. A
/// thread of the simulator does not yield at it.
#[derive(Clone, Default)]
pub(super) struct Replica(Arc<Mutex<Vec<u8>>>);

impl LogReader for Replica {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut stream = self.0.lock().expect("nothing panics while it is locked");
        let from = stream.len();
        batch.for_each_part(LogTarget::Replicas, |part| stream.extend_from_slice(part));
        assert_eq!(
            ends_of_units(&stream[from..], from).len(),
            units_for(batch, LogTarget::Replicas),
            "each position for replicas is a unit"
        );
        Released::ALL
    }
}

impl Replica {
    /// Returns the bytes of the replication stream received so far.
    pub fn stream(&self) -> Vec<u8> {
        self.0.lock().expect("nothing panics while it is locked").clone()
    }

    /// Returns the published messages in the replication stream, in their order.
    pub fn published(&self) -> Vec<Vec<u8>> {
        let (stream, mut at, mut published) = (self.stream(), 0, Vec::new());
        while let Ok(Some((request, len_bytes))) = decode(&stream[at..]) {
            at += len_bytes;
            if let Value::Array(words) = request
                && let [command, _, message] = &words[..]
                && command.as_bytes() == Some(b"PUBLISH")
            {
                published.extend(message.as_bytes().map(<[u8]>::to_vec));
            }
        }
        published
    }
}

/// Checks that the messages `received` by one session of a listener have the same order in the
/// stream of replicas, `published`.
///
/// # Errors
/// A text that names a message out of order, or one missing from the stream of replicas.
pub(super) fn check_order(published: &[Vec<u8>], received: &[Vec<u8>]) -> Result<(), String> {
    let places: BTreeMap<&[u8], usize> =
        published.iter().enumerate().map(|(place, message)| (&message[..], place)).collect();
    let mut last = None;
    for message in received {
        let Some(&place) = places.get(&message[..]) else {
            return Err(format!("message {} is not in the replicas' stream", message.escape_ascii()));
        };
        if last.is_some_and(|last| last >= place) {
            return Err(format!(
                "message {} has another place in the replicas' stream",
                message.escape_ascii()
            ));
        }
        last = Some(place);
    }
    Ok(())
}

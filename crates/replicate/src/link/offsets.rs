//! The offsets of a replica in the replication stream of its primary.
//!
//! *Read* is the offset after the last byte received. *Applied* is the offset after the last
//! complete unit whose changes are in the data. Other servers get only the applied offset: it is
//! the end of this server's backlog, and it is used in acknowledgements, in snapshots, and in
//! PSYNC. A unit is a command, or a transaction from MULTI to EXEC: the applied offset never lies
//! inside one. All offsets here are 0-based: the number of bytes of the stream before that point.

use crate::link::request::push_request;

/// The offsets in the primary's replication stream up to which bytes were received (read), and up
/// to which their changes are in the data (applied). If the link ends, bytes that were read and not
/// applied are lost: the next link requests them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOffsets {
    read: u64,
    applied: u64,
}

impl StreamOffsets {
    /// Creates the offsets of a connection to the primary on which the first byte of the
    /// replication stream has the offset `at`.
    pub fn new(at: u64) -> Self {
        Self { read: at, applied: at }
    }

    /// Returns the offset in the replication stream after the last byte received, which INFO shows.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Returns the offset in the replication stream after the last unit (command or transaction)
    /// whose changes are in the data.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Adds the number of received bytes of the replication stream to the read offset.
    pub fn note_read(&mut self, len_bytes: u64) {
        self.read += len_bytes;
    }

    /// Adds the length of complete commands and transactions, whose changes are in the data now, to
    /// the applied offset.
    ///
    /// # Panics
    /// If the applied offset would exceed the read offset.
    pub fn note_applied(&mut self, len_bytes: u64) {
        self.applied += len_bytes;
        assert!(self.applied <= self.read, "more was applied than received");
    }

    /// Returns the request REPLCONF ACK, which acknowledges the replication stream up to the
    /// applied offset. `synced` is the offset up to which all changes are synced in the append-only
    /// file; `None` without such a file. See [`crate::primary::Primary::offset_at`].
    ///
    /// The reply to GETACK does not include the bytes of GETACK itself, as in Redis.
    pub fn ack(&self, synced: Option<u64>) -> Vec<u8> {
        let acked = self.applied.to_string();
        let synced = synced.map(|synced| synced.min(self.applied).to_string());
        let mut words: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", acked.as_bytes()];
        if let Some(synced) = &synced {
            words.extend([b"FACK", synced.as_bytes()]);
        }
        let mut out = Vec::new();
        push_request(&mut out, &words);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_applied_bytes_are_acknowledged() {
        let mut offsets = StreamOffsets::new(100);
        offsets.note_read(50);
        offsets.note_applied(20);
        assert_eq!((offsets.read(), offsets.applied()), (150, 120));
        assert_eq!(offsets.ack(None), b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$3\r\n120\r\n");
        let ack = b"*5\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$3\r\n120\r\n$4\r\nFACK\r\n$2\r\n99\r\n";
        assert_eq!(offsets.ack(Some(99)), ack);
        assert!(offsets.ack(Some(130)).ends_with(b"FACK\r\n$3\r\n120\r\n"));
    }

    #[test]
    #[should_panic(expected = "more was applied than received")]
    fn no_bytes_are_applied_before_they_are_received() {
        StreamOffsets::new(0).note_applied(1);
    }
}

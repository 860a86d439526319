//! The snapshot on the link to the primary, as a source from which the loader reads.

use std::sync::Arc;

use persist::folder::FileError;
use persist::load::ByteSource;
use replicate::link::transfer::{Payload, SnapshotHeader};

use super::connection::{Connection, LinkEnd, TICK};
use crate::replication::upstream::TransferProgress;
use crate::shared::Shared;

/// A snapshot that is being received. A read of this source receives from the connection if
/// necessary.
pub(super) struct Transfer<'c, 't> {
    connection: &'c mut Connection<'t>,
    payload: Payload,
    /// A received part of the snapshot. The bytes from `ready_from` on are not read yet.
    ready: Vec<u8>,
    ready_from: usize,
    /// True if the whole snapshot of the primary has been received.
    is_complete: bool,
}

impl<'c, 't> Transfer<'c, 't> {
    /// Waits for the header of the snapshot. The primary may send newlines before it to keep the
    /// connection alive.
    ///
    /// # Errors
    /// The reason for which the link must end.
    pub fn begin(connection: &'c mut Connection<'t>) -> Result<Self, LinkEnd> {
        let header = loop {
            match SnapshotHeader::parse(&connection.line()?)? {
                SnapshotHeader::Alive => {}
                header => break header,
            }
        };
        let total_bytes = match header {
            SnapshotHeader::Length(len_bytes) => Some(len_bytes),
            SnapshotHeader::Alive | SnapshotHeader::EndMark(_) => None,
        };
        let last_io_ms = connection.shared.uptime_ms();
        connection
            .update(|link| link.transfer = Some(TransferProgress { total_bytes, read_bytes: 0, last_io_ms }));
        let payload = Payload::new(header).expect("the loop ends with a header");
        Ok(Self {
            connection,
            payload,
            ready: Vec::new(),
            ready_from: 0,
            is_complete: total_bytes == Some(0),
        })
    }

    /// Returns the number of bytes of the snapshot that are still to be received; `None` if the
    /// primary has not sent its length.
    pub fn total_bytes(&self) -> Option<u64> {
        match self.payload {
            Payload::Length(left) => Some(left),
            Payload::EndMark(_) => None,
        }
    }

    /// Waits for the next bytes of the snapshot, and returns them; `None` at the end of the
    /// snapshot.
    ///
    /// # Errors
    /// The reason for which the link to the primary must end.
    pub fn next_part(&mut self) -> Result<Option<&[u8]>, LinkEnd> {
        self.ready.clear();
        self.ready_from = 0;
        while self.ready.is_empty() {
            if self.is_complete {
                return Ok(None);
            }
            self.connection.keep_alive()?;
            if self.connection.input().0.is_empty() {
                self.connection.poll(TICK)?;
            }
            let (input, _) = self.connection.input();
            let parts = self.payload.feed(input);
            self.ready.extend_from_slice(parts.held_back);
            self.ready.extend_from_slice(parts.payload);
            let used_bytes = input.len() - parts.rest.map_or(0, <[u8]>::len);
            self.is_complete = parts.rest.is_some();
            self.connection.consume(used_bytes);
        }
        let (now_ms, len_bytes) = (self.connection.shared.uptime_ms(), self.ready.len() as u64);
        self.connection.update(|link| {
            if let Some(transfer) = &mut link.transfer {
                transfer.read_bytes += len_bytes;
                transfer.last_io_ms = now_ms;
            }
        });
        Ok(Some(&self.ready))
    }

    /// Receives and drops the rest of the snapshot that the loader has not read.
    ///
    /// # Errors
    /// The reason for which the link to the primary must end.
    pub fn skip_rest(&mut self) -> Result<(), LinkEnd> {
        while self.next_part()?.is_some() {}
        Ok(())
    }

    /// Returns the state that all threads of the server share.
    pub fn shared(&self) -> &'t Arc<Shared> {
        self.connection.shared
    }
}

impl ByteSource for Transfer<'_, '_> {
    fn is_dry(&mut self) -> bool {
        self.ready_from == self.ready.len() && !self.is_complete && self.connection.input().0.is_empty()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        if self.ready_from == self.ready.len() {
            match self.next_part() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(0),
                Err(end) => return Err(FileError(end.to_string())),
            }
        }
        let rest = &self.ready[self.ready_from..];
        let len_bytes = rest.len().min(buffer.len());
        buffer[..len_bytes].copy_from_slice(&rest[..len_bytes]);
        self.ready_from += len_bytes;
        Ok(len_bytes)
    }
}

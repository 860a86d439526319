//! Reading and writing of the IDs of stream entries in the two forms of the RDB format: 16 bytes,
//! and two lengths.

use keyspace::StreamId;

use super::error::FormatError;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};

/// Decodes a stream entry's ID of 16 bytes: milliseconds and sequence number, both big-endian.
pub(super) fn from_raw(bytes: &[u8; 16]) -> StreamId {
    let id = u128::from_be_bytes(*bytes);
    StreamId { ms: (id >> 64) as u64, seq: id as u64 }
}

/// Encodes a stream entry's ID as 16 bytes; see [`from_raw`].
pub(super) fn raw_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.seq)).to_be_bytes()
}

/// Reads a stream entry's ID in the form of two lengths.
pub(super) fn read_id<S: Source>(reader: &mut Reader<S>) -> Result<StreamId, FormatError> {
    Ok(StreamId { ms: reader.length()?, seq: reader.length()? })
}

/// Writes a stream entry's ID in the form of two lengths.
pub(super) fn write_id<S: Sink>(writer: &mut Writer<S>, id: StreamId) {
    writer.length(id.ms);
    writer.length(id.seq);
}

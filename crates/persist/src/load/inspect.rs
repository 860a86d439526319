//! Inspection of an RDB file, for tools: lists every key of a batch, even keys that a server would
//! reject.

use std::borrow::Cow;

use keyspace::KeyEntry;

use super::{Batch, DecodeOptions, MODULE, ModuleId, decode_key, module_id, skip_attributes, skip_key};
use crate::rdb::{FormatError, Reader, Skipper, ValueType};

/// A key of a batch with its location in the RDB file.
pub struct Record<'b> {
    /// The number of the database that contains the key.
    pub db: usize,
    /// The offset in the file at which the key begins, with its attributes, in bytes.
    pub file_offset: u64,
    /// The length of the key in the file, with attributes and value, in bytes.
    pub len_bytes: u64,
    /// The name of the key; `None` if it could not be read.
    pub name: Option<Cow<'b, [u8]>>,
    /// The type of the value in the file; `None` if it is unknown.
    pub kind: Option<ValueType>,
    /// The decoded value, or the error that was found in it.
    pub value: Result<Inspected, FormatError>,
}

/// The value of a key in an RDB file, as tools show it.
pub enum Inspected {
    /// A value that a server would load from the RDB file.
    Entry(KeyEntry),
    /// A collection without elements; the key would not exist.
    Empty,
    /// A collection without elements; a server would not create the key.
    Module(ModuleId),
}

/// Calls `each` with every key of a batch, even expired or broken ones. O(bytes), O(n log n) for
/// packed values.
pub fn inspect_batch(batch: &Batch, options: &DecodeOptions<'_>, mut each: impl FnMut(Record<'_>)) {
    let mut skipper = Skipper::new(&batch.bytes, 0);
    loop {
        let start = skipper.position();
        // A batch has only complete keys.
        let Ok(number) = skip_key(&mut skipper, batch.version, &batch.templates) else { return };
        let bytes = &batch.bytes[start..skipper.position()];
        let file_offset = batch.file_offset + start as u64;
        let mut name = None;
        let value = if number == MODULE && module_id(bytes, batch.version) != ModuleId::VECTOR_SET {
            inspect_module(bytes, batch.version, &mut name)
        } else {
            let mut reader = Reader::new(bytes, file_offset, options.rules.string_len_bytes_max);
            decode_key(&mut reader, batch, options, &mut name)
                .map(|entry| entry.map_or(Inspected::Empty, Inspected::Entry))
        };
        let kind = ValueType::from_number(number, batch.version);
        each(Record { db: batch.db, file_offset, len_bytes: bytes.len() as u64, name, kind, value });
    }
}

/// Calls `each` with a key of the RDB file whose value belongs to a module.
fn inspect_module(
    bytes: &[u8],
    version: u16,
    name: &mut Option<Cow<'_, [u8]>>,
) -> Result<Inspected, FormatError> {
    *name = key_name(bytes, version).map(Cow::Owned);
    Ok(Inspected::Module(module_id(bytes, version)))
}

/// Returns the name of the key that is encoded at the start of `bytes`, in this version of the
/// format. `None` if the encoding is broken or incomplete. O(name).
pub fn key_name(bytes: &[u8], version: u16) -> Option<Vec<u8>> {
    /// A bound greater than any possible ratio of uncompressed to compressed length.
    const EXPANSION_MAX: u64 = 1024;
    let mut skipper = Skipper::new(bytes, 0);
    skip_attributes(&mut skipper, version).ok()?;
    let start = skipper.position();
    skipper.string().ok()?;
    let name = bytes.get(start..skipper.position())?;
    Reader::new(name, 0, name.len() as u64 * EXPANSION_MAX).string().ok()
}

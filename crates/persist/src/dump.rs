//! DUMP payloads: one value with a version and a checksum.
//!
//! ```text
//!   type u8 | value | version u16 | CRC-64 u64 of all before
//! ```
//! Numbers are little-endian. The version is that of the RDB format ([`crate::rdb`]). A server
//! rejects payloads with a version above its own, so we write the lowest one that has the value's
//! type. Source: dumps of Redis 8.0.2, Valkey 8.1 and 9.1; the CRC is CRC-64/REDIS of the Rocksoft
//! catalogue.

use std::fmt;

use crc::{CRC_64_REDIS, Crc, Table};
use keyspace::Object;
use structures::entry::View;

use crate::rdb::{
    Compression, FileVersion, FormatError, FormatErrorKind, Reader, Rules, VALKEY_VERSION, Value, ValueType,
    Writer, opcode, read_value, write_value,
};

/// The length of the version and the checksum at the end of a DUMP payload, in bytes.
const FOOTER_LEN_BYTES: usize = 10;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The reason why RESTORE rejects a DUMP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// The payload of DUMP is too short, has an unsupported version, or has a wrong checksum.
    Footer,
    /// The checksum of the payload is right, but its bytes are not a value.
    Format(FormatError),
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PayloadError::Footer => f.write_str("unknown version or wrong checksum"),
            PayloadError::Format(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PayloadError {}

/// Returns the DUMP payload for a value. O(bytes).
pub fn dump(value: &View<'_, Object>, compression: Compression) -> Vec<u8> {
    let kind = FileVersion::Redis7Dot4.type_of(value);
    let mut writer = Writer::new(vec![kind.number()], compression);
    write_value(kind, &mut writer, value).expect("only types of before Redis 7 have a limit");
    sealed(writer.into_sink(), kind.version())
}

/// Returns the payload for a value in version 9 of the format, which Redis 5 and all later servers
/// read. Returns `None` if that version cannot hold the value: fields that expire, or an element of
/// several GiB. A stream loses what Redis 7 has added: the number of added entries, the largest
/// deleted ID, and the numbers of entries that groups have read. O(bytes).
pub fn dump_oldest(value: &View<'_, Object>, compression: Compression) -> Option<Vec<u8>> {
    let kind = FileVersion::Redis5.type_of(value);
    if kind.version() > FileVersion::Redis5.number() {
        return None;
    }
    let mut writer = Writer::new(vec![kind.number()], compression);
    write_value(kind, &mut writer, value).ok()?;
    Some(sealed(writer.into_sink(), FileVersion::Redis5.number()))
}

/// Returns the version of the format in the footer of a payload, or `None` if the payload is too
/// short. O(1).
pub fn version(payload: &[u8]) -> Option<u16> {
    let footer = payload.last_chunk::<FOOTER_LEN_BYTES>()?;
    footer.first_chunk().map(|version| u16::from_le_bytes(*version))
}

/// Appends a DUMP payload's version `version` and checksum to `value`, whose first byte is its
/// type. Returns the complete payload.
pub fn sealed(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.extend_from_slice(&version.to_le_bytes());
    let crc = CRC.checksum(&value);
    value.extend_from_slice(&crc.to_le_bytes());
    value
}

/// Checks the version and the checksum of a DUMP payload. Returns the bytes of the value and the
/// version. O(bytes).
///
/// # Errors
/// [`PayloadError::Footer`] if the payload is too short, or its version or checksum is wrong.
pub fn verify<'p>(payload: &'p [u8], rules: &Rules<'_>) -> Result<(&'p [u8], u16), PayloadError> {
    let (rest, crc) = payload.split_last_chunk::<8>().ok_or(PayloadError::Footer)?;
    let (value, version) = rest.split_last_chunk::<2>().ok_or(PayloadError::Footer)?;
    let version = u16::from_le_bytes(*version);
    // A checksum of 0 is compared too: payloads always have one.
    let is_intact = rules.skips_checksums || CRC.checksum(rest) == u64::from_le_bytes(*crc);
    if !rules.versions.admits(version) || !is_intact {
        return Err(PayloadError::Footer);
    }
    debug_assert_eq!(payload.len(), value.len() + FOOTER_LEN_BYTES);
    Ok((value, version))
}

/// Parses the value of a DUMP payload for RESTORE. O(bytes), O(n log n) for packed values.
///
/// # Errors
/// If the bytes are not a payload, or are not exactly one valid value.
pub fn restore(payload: &[u8], rules: &Rules<'_>) -> Result<Value, PayloadError> {
    let (value, version) = verify(payload, rules)?;
    read_typed(value, version, rules).map_err(PayloadError::Format)
}

/// Returns the payload for libraries of functions (FUNCTION DUMP). O(bytes).
pub fn dump_functions<'s>(sources: impl Iterator<Item = &'s [u8]>, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), compression);
    for source in sources {
        writer.raw(&[opcode::FUNCTION]);
        writer.string(source);
    }
    sealed(writer.into_sink(), FileVersion::Redis7.number())
}

/// Parses the libraries of functions in a payload (FUNCTION RESTORE). O(bytes).
///
/// # Errors
/// If the bytes are not a payload, or contain anything else.
pub fn restore_functions(payload: &[u8], rules: &Rules<'_>) -> Result<Vec<Vec<u8>>, PayloadError> {
    let (bytes, _) = verify(payload, rules)?;
    let mut reader = Reader::new(bytes, 0, rules.string_len_bytes_max);
    let mut sources = Vec::new();
    while !reader.is_at_end() {
        let kind = reader.byte().map_err(PayloadError::Format)?;
        if kind != opcode::FUNCTION {
            let error = reader.error(FormatErrorKind::UnknownType(kind));
            return Err(PayloadError::Format(error));
        }
        sources.push(reader.string().map_err(PayloadError::Format)?);
    }
    Ok(sources)
}

/// Parses the value in `bytes`: one byte with its type, then the value in version `version` of the
/// RDB format.
pub(crate) fn read_typed(bytes: &[u8], version: u16, rules: &Rules<'_>) -> Result<Value, FormatError> {
    let mut reader = Reader::new(bytes, 0, rules.string_len_bytes_max);
    let mut number = reader.byte()?;
    if number == opcode::KEY_META && version < VALKEY_VERSION {
        reader.skip_with(|skipper| skipper.key_metadata())?;
        number = reader.byte()?;
    }
    let kind =
        ValueType::from_number(number, version).ok_or(reader.error(FormatErrorKind::UnknownType(number)))?;
    let value = read_value(kind, &mut reader, rules)?;
    let behind = reader.error(FormatErrorKind::TrailingBytes);
    if reader.into_source().is_empty() { Ok(value) } else { Err(behind) }
}

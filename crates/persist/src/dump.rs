//! DUMP payloads: one value with what proves that it arrived whole.
//!
//! ```text
//!   type u8 | value | version u16 | CRC-64 u64 of all before
//! ```
//! Numbers have their lowest byte first. The version is that of the RDB format
//! ([`crate::rdb`]); a server refuses payloads of versions above its own, so we write the
//! lowest that has the value's type.
//! Source: dumps of Redis 8.0.2, Valkey 8.1 and 9.1; the CRC is CRC-64/REDIS of
//! the Rocksoft catalogue.

use std::fmt;

use crc::{CRC_64_REDIS, Crc, Table};
use keyspace::Object;
use structures::entry::View;

use crate::rdb::{
    Compression, FileVersion, FormatError, FormatErrorKind, Reader, Rules, VALKEY_VERSION, Value, ValueType,
    Writer, opcode, read_value, write_value,
};

/// Version and checksum.
const FOOTER_LEN_BYTES: usize = 10;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Why a payload is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// It is too short, of a version that is not read, or not what was written:
    /// its checksum is wrong.
    Footer,
    /// It is what was written, but no value.
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

/// Returns the payload of a value. O(bytes).
pub fn dump(value: &View<'_, Object>, compression: Compression) -> Vec<u8> {
    let kind = FileVersion::Redis7Dot4.type_of(value);
    let mut writer = Writer::new(vec![kind.number()], compression);
    write_value(kind, &mut writer, value).expect("only types of before Redis 7 have a limit");
    sealed(writer.into_sink(), kind.version())
}

/// Returns `value`, which begins with its type, as a payload of this version.
pub fn sealed(mut value: Vec<u8>, version: u16) -> Vec<u8> {
    value.extend_from_slice(&version.to_le_bytes());
    let crc = CRC.checksum(&value);
    value.extend_from_slice(&crc.to_le_bytes());
    value
}

/// Checks a payload's version and checksum. O(bytes). Gives the value's bytes and the version.
///
/// # Errors
/// [`PayloadError::Footer`]
pub fn verify<'p>(payload: &'p [u8], rules: &Rules<'_>) -> Result<(&'p [u8], u16), PayloadError> {
    let (rest, crc) = payload.split_last_chunk::<8>().ok_or(PayloadError::Footer)?;
    let (value, version) = rest.split_last_chunk::<2>().ok_or(PayloadError::Footer)?;
    let version = u16::from_le_bytes(*version);
    // A checksum of 0 is no exception: payloads always have one.
    let is_intact = rules.skips_checksums || CRC.checksum(rest) == u64::from_le_bytes(*crc);
    if !rules.versions.admits(version) || !is_intact {
        return Err(PayloadError::Footer);
    }
    debug_assert_eq!(payload.len(), value.len() + FOOTER_LEN_BYTES);
    Ok((value, version))
}

/// Reads the value of a payload. O(bytes), O(n log n) for packed values.
///
/// # Errors
/// Bytes that are no payload, or do not hold one valid value and nothing else.
pub fn restore(payload: &[u8], rules: &Rules<'_>) -> Result<Value, PayloadError> {
    let (value, version) = verify(payload, rules)?;
    read_typed(value, version, rules).map_err(PayloadError::Format)
}

/// Returns the payload of libraries of functions (FUNCTION DUMP). O(bytes).
pub fn dump_functions<'s>(sources: impl Iterator<Item = &'s [u8]>, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), compression);
    for source in sources {
        writer.raw(&[opcode::FUNCTION]);
        writer.string(source);
    }
    sealed(writer.into_sink(), FileVersion::Redis7.number())
}

/// Reads the libraries of functions in a payload (FUNCTION RESTORE). O(bytes).
///
/// # Errors
/// Bytes that are no payload, or hold something else.
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

/// Reads the value in `bytes`, which begin with its type and end with it.
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

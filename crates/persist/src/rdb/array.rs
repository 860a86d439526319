//! Reading and writing of arrays in the RDB format of Redis 8.8.
//!
//! ```text
//!   array     count | 0, or 1 and the index of the last insertion | count elements, indexes ascend
//!   element   index | kind | value
//!   value     kind 0: string   1: integer, 8 bytes   2: double, 8 bytes   3: up to 7 bytes
//! ```
//! Redis keeps the kind in memory: a text is stored as a number that has exactly this text.
//! All kinds are read as texts here. They are written as Redis would store them.

use keyspace::Array;
use keyspace::array::{double_text, stored_double};
use structures::array::{Array as Elements, INDEX_MAX};
use structures::listpack::element::{Element, IntText};

use super::error::{FormatError, FormatErrorKind};
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};

const KIND_STRING: u64 = 0;
const KIND_INT: u64 = 1;
const KIND_DOUBLE: u64 = 2;
const KIND_SHORT: u64 = 3;

/// The maximum length of a text of [`KIND_SHORT`].
const SHORT_LEN_BYTES_MAX: usize = 7;
/// The integers that are written as [`KIND_INT`]: those of 62 bits, as in Redis.
const INTS: std::ops::Range<i64> = -(1 << 61)..1 << 61;

/// Reads an array.
pub(super) fn read<S: Source>(reader: &mut Reader<S>) -> Result<Array, FormatError> {
    let broken = |reader: &Reader<S>| reader.error(FormatErrorKind::BrokenArray);
    let count = reader.length()?;
    let last_insert = match reader.length()? {
        0 => None,
        1 => match reader.length()? {
            index @ 0..=INDEX_MAX => Some(index),
            _ => return Err(broken(reader)),
        },
        _ => return Err(broken(reader)),
    };
    let (mut elements, mut text) = (Elements::new(), IntText::new());
    for _ in 0..count {
        let index = reader.length()?;
        if index > INDEX_MAX {
            return Err(broken(reader));
        }
        let is_new = match reader.length()? {
            KIND_STRING | KIND_SHORT => elements.set(index, &reader.string()?),
            KIND_INT => {
                let number = Element::Int(i64::from_le_bytes(reader.array()?));
                elements.set(index, number.text(&mut text))
            }
            KIND_DOUBLE => elements.set(index, double_text(f64::from_le_bytes(reader.array()?)).as_bytes()),
            _ => return Err(broken(reader)),
        };
        if !is_new {
            return Err(reader.error(FormatErrorKind::Duplicate));
        }
    }
    Ok(Array::from_parts(elements, last_insert))
}

/// Writes an array.
pub(super) fn write<S: Sink>(writer: &mut Writer<S>, array: &Array) {
    writer.length(array.count());
    writer.length(array.last_insert().is_some().into());
    if let Some(index) = array.last_insert() {
        writer.length(index);
    }
    for (index, element) in array.elements().scan(0, INDEX_MAX) {
        writer.length(index);
        match element {
            Element::Int(number) if INTS.contains(&number) => {
                writer.length(KIND_INT);
                writer.raw(&number.to_le_bytes());
            }
            element => write_text(writer, element.text(&mut IntText::new())),
        }
    }
}

fn write_text<S: Sink>(writer: &mut Writer<S>, text: &[u8]) {
    if let Some(number) = stored_double(text) {
        writer.length(KIND_DOUBLE);
        writer.raw(&number.to_le_bytes());
        return;
    }
    writer.length(if text.len() <= SHORT_LEN_BYTES_MAX { KIND_SHORT } else { KIND_STRING });
    writer.string(text);
}

//! The encoder of a save's walker (a thread that writes the snapshot): it encodes keys in the RDB
//! format or as commands.

use keyspace::KeyEntry;
use keyspace::db::DbSize;
use keyspace::parts::ValuePart;
use keyspace::snapshot::BigValue;

use crate::commands::CommandEncoder;
use crate::rdb::{Encoder, TooLong};

/// An encoder that writes keys into a buffer, in the RDB format or as commands.
pub(super) enum Records {
    Rdb(Encoder),
    Commands(CommandEncoder),
}

impl Records {
    /// Borrows the encoded bytes, which the caller may remove from the buffer.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        match self {
            Records::Rdb(encoder) => encoder.buffer(),
            Records::Commands(encoder) => encoder.buffer(),
        }
    }

    /// Returns the memory of the buffer and of the compressor, in bytes. O(1).
    pub fn memory_usage(&mut self) -> usize {
        match self {
            Records::Rdb(encoder) => encoder.memory_usage(),
            Records::Commands(encoder) => encoder.buffer().capacity(),
        }
    }

    /// Returns the error if a value did not fit the format.
    pub fn too_long(&self) -> Option<TooLong> {
        match self {
            Records::Rdb(encoder) => encoder.too_long(),
            Records::Commands(_) => None,
        }
    }

    /// Encodes a library of functions of the snapshot.
    pub fn function(&mut self, source: &[u8]) {
        match self {
            Records::Rdb(encoder) => encoder.function(source),
            Records::Commands(encoder) => encoder.function(source),
        }
    }

    /// Writes the number of the database to which the following keys belong.
    pub fn select_db(&mut self, db: usize) {
        match self {
            Records::Rdb(encoder) => encoder.select_db(db),
            Records::Commands(encoder) => encoder.select_db(db),
        }
    }

    /// Writes the number of keys of the selected database (RDB only).
    pub fn db_size(&mut self, size: DbSize) {
        match self {
            Records::Rdb(encoder) => encoder.resize_db(size.keys, size.expires),
            Records::Commands(_) => {}
        }
    }

    /// Encodes a key of the snapshot with its value. O(bytes).
    #[inline]
    pub fn entry(&mut self, entry: &KeyEntry) {
        match self {
            Records::Rdb(encoder) => encoder.entry(entry),
            Records::Commands(encoder) => encoder.entry(entry),
        }
    }

    /// Writes the beginning of a key with a big value. The caller then writes the value's pieces
    /// with [`big_part`](Self::big_part).
    pub fn big_head(&mut self, big: &BigValue) {
        match self {
            Records::Rdb(encoder) => encoder.big_head(&big.key, big.expiry_ms, big.access, &big.head),
            Records::Commands(encoder) => encoder.big_head(&big.key, big.expiry_ms),
        }
    }

    /// Writes the next piece of the big value that `big_head` began.
    pub fn big_part(&mut self, piece: &ValuePart<'_>) {
        match self {
            Records::Rdb(encoder) => encoder.big_part(piece),
            Records::Commands(encoder) => encoder.big_part(piece),
        }
    }

    /// Ends the big value that `big_head` began, after its last piece.
    pub fn big_end(&mut self) {
        match self {
            Records::Rdb(_) => {}
            Records::Commands(encoder) => encoder.big_end(),
        }
    }
}

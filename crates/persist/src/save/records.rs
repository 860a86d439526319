//! What a walker encodes with: one of two formats.

use keyspace::KeyEntry;
use keyspace::db::DbSize;
use keyspace::pieces::Piece;
use keyspace::snapshot::BigValue;

use crate::commands::CommandEncoder;
use crate::rdb::{Encoder, TooLong};

/// Writes keys into a buffer.
pub(super) enum Records {
    Rdb(Encoder),
    Commands(CommandEncoder),
}

impl Records {
    /// What was written and not taken yet.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        match self {
            Records::Rdb(encoder) => encoder.buffer(),
            Records::Commands(encoder) => encoder.buffer(),
        }
    }

    /// Whether a value did not go into the format.
    pub fn too_long(&self) -> Option<TooLong> {
        match self {
            Records::Rdb(encoder) => encoder.too_long(),
            Records::Commands(_) => None,
        }
    }

    /// A library of functions.
    pub fn function(&mut self, source: &[u8]) {
        match self {
            Records::Rdb(encoder) => encoder.function(source),
            Records::Commands(encoder) => encoder.function(source),
        }
    }

    /// The keys that follow belong to this database.
    pub fn select_db(&mut self, db: usize) {
        match self {
            Records::Rdb(encoder) => encoder.select_db(db),
            Records::Commands(encoder) => encoder.select_db(db),
        }
    }

    /// How big the selected database is.
    pub fn db_size(&mut self, size: DbSize) {
        match self {
            Records::Rdb(encoder) => encoder.resize_db(size.keys, size.expires),
            Records::Commands(_) => {}
        }
    }

    /// A key with its value. O(bytes).
    #[inline]
    pub fn entry(&mut self, entry: &KeyEntry) {
        match self {
            Records::Rdb(encoder) => encoder.entry(entry),
            Records::Commands(encoder) => encoder.entry(entry),
        }
    }

    /// A key whose value follows in pieces.
    pub fn big_head(&mut self, big: &BigValue) {
        match self {
            Records::Rdb(encoder) => encoder.big_head(&big.key, big.expiry_ms, big.access, &big.head),
            Records::Commands(encoder) => encoder.big_head(&big.key, big.expiry_ms),
        }
    }

    /// A piece of it.
    pub fn big_piece(&mut self, piece: &Piece<'_>) {
        match self {
            Records::Rdb(encoder) => encoder.big_piece(piece),
            Records::Commands(encoder) => encoder.big_piece(piece),
        }
    }

    /// All its pieces were written.
    pub fn big_end(&mut self) {
        match self {
            Records::Rdb(_) => {}
            Records::Commands(encoder) => encoder.big_end(),
        }
    }
}

//! Values as bytes: Redis' RDB format and what is built on it; changes as bytes: the append-only file.
//!
//! Pure: bytes in, bytes out. Whoever has a file, a socket or a request brings its bytes as
//! a [`rdb::Source`] and takes them from a [`rdb::Sink`]. Nothing that is read is trusted: a
//! damaged value is a [`rdb::FormatError`], never a panic, and never memory for more than
//! the bytes really there.
#![forbid(unsafe_code)]

pub mod aof;
pub mod commands;
pub mod dump;
pub mod folder;
pub mod fuzz;
pub mod load;
pub mod rdb;
pub mod save;
pub mod schedule;

//! Persistence without I/O: values as bytes in Redis' RDB format, and changes as bytes in the
//! append-only file.
//!
//! The crate does no I/O. A caller with a file, a socket or a request passes its bytes as a
//! [`rdb::Source`] and takes bytes from a [`rdb::Sink`]. No input is trusted: a damaged value is a
//! [`rdb::FormatError`], never a panic, and memory is allocated only for bytes that have arrived.
#![forbid(unsafe_code)]

pub mod aof;
pub mod backup;
pub mod commands;
pub mod dump;
pub mod folder;
pub mod fuzz;
pub mod load;
pub mod rdb;
pub mod save;
pub mod schedule;

//! The append-only file in the form of Redis 7 and later: several files in a folder of their own,
//! and a manifest that names them.
//!
//! ```text
//!   appendonlydir/NAME.manifest          manifest::Manifest
//!                 NAME.2.base.rdb        load::Splitter, if reader::starts_with_rdb returns true
//!                 NAME.2.incr.aof        reader::Reader
//! ```
//! Up to Redis 6 it is one file, which may begin with an RDB part. [`load::Splitter`] reads that
//! part, and a [`reader::Reader`] reads the rest of the file.
//!
//! [`load::Splitter`]: crate::load::Splitter

mod batch;
mod ends;
pub mod files;
pub mod manifest;
pub mod reader;
pub mod stream_note;
pub mod writer;

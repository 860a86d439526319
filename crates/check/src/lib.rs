//! saker-check: reports the contents and the problems of a data file.
//!
//! ```text
//!   program ─► rdb::check ─► keys decoded one by one, counted ─► Report ─► text │ JSON
//!           └► aof::check ─► rdb::check of the base, commands counted ─► Report ─► text │ JSON
//! ```
//! A check reads values exactly as a server that loads the file ([`persist`]). So a server can load
//! each file that a check reports as good. A check never changes a file. Only `--fix` and
//! `--truncate-to-timestamp` do: they cut off the end of an append-only file. To find duplicate
//! keys, a check uses 16 bytes for each key.
#![forbid(unsafe_code)]

pub mod aof;
pub mod program;
pub mod rdb;

mod progress;
mod text;

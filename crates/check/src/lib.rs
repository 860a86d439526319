//! saker-check: says what is in a data file, and what is wrong with it.
//!
//! ```text
//!   program ─► rdb::check ─► keys decoded one by one, counted ─► Report ─► text │ JSON
//!           └► aof::check ─► rdb::check of the base, commands counted ─► Report ─► text │ JSON
//! ```
//! A check reads values exactly as a server does that loads the file ([`persist`]), so what it
//! calls good loads. It never writes to a file, unless it is told to cut the broken end of an
//! append-only file off. 16 bytes for each key serve to find keys that are there twice.
#![forbid(unsafe_code)]

pub mod aof;
pub mod program;
pub mod rdb;

mod progress;
mod text;

//! saker-check: says what is in a data file, and what is wrong with it.
//!
//! ```text
//!   program ─► rdb::check ─► keys decoded one by one, counted ─► Report ─► text │ JSON
//! ```
//! A check reads values exactly as a server does that loads the file ([`persist`]), so what it
//! calls good loads. It never writes to the file. 16 bytes for each key serve to find keys that are
//! there twice.
#![forbid(unsafe_code)]

pub mod program;
pub mod rdb;

mod progress;
mod text;

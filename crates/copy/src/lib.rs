//! `saker-copy`: copies all data live between two servers of the Redis protocol, for sources that
//! refuse replication.
//!
//! ```text
//!   program ─► run ─┬─► setup ─► client          questions, events, functions
//!                   ├─► engine ─┬─► lane         order of reads and writes of keys
//!                   │           ├─► scan         cursors
//!                   │           ├─► event        changed keys ─► changes
//!                   │           └─► rate
//!                   └─► by_type ─► client        keys that need more than DUMP and RESTORE
//! ```
//! `engine`, `client` and `server` do I/O. The modules that make decisions do none: `lane`, `scan`,
//! `changes`, `rate`, `verdict`, `event`, `by_type`, `report`.
#![forbid(unsafe_code)]

mod by_type;
mod changes;
mod client;
mod engine;
mod event;
mod interrupt;
mod key;
mod lane;
mod link;
pub mod program;
mod progress;
mod rate;
mod report;
mod run;
mod scan;
mod server;
mod setup;
mod url;
mod verdict;

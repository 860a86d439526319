//! Append-only files: the change log on disk, as Redis 7 divides it.
//!
//! ```text
//!   appendonlydir/appendonly.aof.manifest        which files, in which order
//!                 appendonly.aof.1.base.rdb      a snapshot (or commands)
//!                 appendonly.aof.1.incr.aof      all changes since
//! ```

pub mod files;
pub mod manifest;
pub mod writer;

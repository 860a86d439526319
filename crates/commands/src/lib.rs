//! Data commands: one file per group. A file has one section per command: the command's record in
//! the command table, then its handler. A handler is pure: it gets data and returns a reply and
//! changes of the data.
#![forbid(unsafe_code)]

pub mod args;
pub mod array;
pub mod bitmap;
mod block_or_reply_empty;
mod collection;
pub mod ctx;
pub mod error;
pub mod field_sets;
pub mod generic;
pub mod geo;
#[cfg(test)]
mod harness;
pub mod hash;
pub mod help;
pub mod hyperloglog;
pub mod keys;
pub mod list;
mod random;
pub mod record;
mod search;
pub mod set;
pub mod stream;
pub mod string;
pub mod table;
pub mod vector;
pub mod wait;
pub mod walk;
pub mod zset;

pub use args::Args;
pub use ctx::{Changes, Ctx, EventClass, Handler, KeyEvent, LazyFreed, Origin, ReadableKeys, ValueLimits};
pub use error::CommandError;
pub use field_sets::FieldSets;
pub use record::{ChangeRecord, RecordWriter, RecordedCommand};
pub use search::Search;
pub use table::Command;
pub use wait::{Awaited, BlockFor, BlockingKey, BlockingMode, EmptyReply, Wait};
pub use walk::{WalkCtx, Walked, Walker};

/// Returns the data commands that work on keys.
pub fn all() -> impl Iterator<Item = &'static Command> {
    let groups = [
        string::COMMANDS,
        generic::COMMANDS,
        list::COMMANDS,
        hash::COMMANDS,
        set::COMMANDS,
        zset::COMMANDS,
        stream::COMMANDS,
        geo::COMMANDS,
        bitmap::COMMANDS,
        hyperloglog::COMMANDS,
        vector::COMMANDS,
        array::COMMANDS,
    ];
    groups.into_iter().flatten().copied()
}

/// Returns the data commands that work on whole databases.
pub fn walkers() -> impl Iterator<Item = &'static Command<Walker>> {
    generic::WALKERS.iter().copied()
}

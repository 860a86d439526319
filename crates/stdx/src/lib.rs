//! Additions to the standard library that every crate may use. They know nothing of Redis and do no
//! I/O.
#![forbid(unsafe_code)]

pub mod address;
pub mod byte_queue;
pub mod bytes;
pub mod conn_id;
pub mod futex;
#[doc(hidden)]
pub mod fuzz;
pub mod glob;
mod grisu;
pub mod heavy_hitters;
pub mod long_double;
pub mod mailbox;
pub mod memory_size;
pub mod number;
pub mod partial_sort;
pub mod quoted;
pub mod sync;
pub mod utc;

pub use address::Address;
pub use byte_queue::{ByteQueue, SharedBytes};
pub use conn_id::ConnId;
pub use mailbox::Mailbox;

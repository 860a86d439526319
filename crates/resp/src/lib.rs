//! RESP2 and RESP3 over byte slices: replies encoded into a byte queue, requests parsed in place,
//! replies decoded for tools and tests. No I/O, no unsafe; the words of a command are not known here.
#![forbid(unsafe_code)]

pub mod reply;

pub use reply::{Deferred, Mark, Protocol, Reply};

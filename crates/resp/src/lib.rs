//! RESP2 and RESP3 over byte slices: replies encoded into a byte queue, requests parsed in place,
//! replies decoded for tools and tests. No I/O, no unsafe code. This crate does not know the
//! meaning of any command.
#![forbid(unsafe_code)]

pub mod decode;
#[doc(hidden)]
pub mod fuzz;
pub mod parse;
pub mod reply;

pub use decode::{DecodeError, Value, decode, encode_request};
pub use parse::{Limits, Parsed, Progress, ProtocolError, Span, parse_request};
pub use reply::{Deferred, Mark, Protocol, Reply};

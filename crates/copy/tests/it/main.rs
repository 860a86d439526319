//! Tests of saker-copy between real servers, while clients change the source.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.

mod copies;
mod live;
mod tool;

//! Tests that run saker-check as users run it.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.

mod aof;
mod file;
mod rdb;

//! Tests of saker-bench against servers with known behaviour.

#![allow(clippy::unwrap_used)] // A test that cannot go on may panic.

mod bad_input;
mod cluster;
mod endings;
mod engine_process;
mod reconnect;
mod reports;
mod slow_server;
mod studies;
mod truth;
mod vectors;

//! Tests with programs whose replies must equal those of a real Redis 8.0.2, byte for byte, and
//! tests that scripts do not affect each other.

mod debugger;
mod depths;
mod endless;
mod extremes;
mod lists;
mod mends;
mod programs;
mod server;

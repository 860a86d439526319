//! Tests of the format from outside.

mod aof;
mod files;
mod payloads;

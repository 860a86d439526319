//! Tests of the format from outside.

mod files;
mod payloads;

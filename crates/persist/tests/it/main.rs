//! Tests of the format from outside.

mod commands;
mod files;
mod payloads;

//! Tests of the format from outside.

mod aof;
mod commands;
mod files;
mod payloads;

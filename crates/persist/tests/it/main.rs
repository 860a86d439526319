//! Tests of the format from outside.

mod aof;
mod aof_writer;
mod commands;
mod files;
mod payloads;

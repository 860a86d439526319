//! Tests of the format from outside.

mod aof_writer;
mod commands;
mod files;
mod payloads;

//! Tests of the format through the public interface.

mod aof;
mod aof_writer;
mod commands;
mod files;
mod payloads;
mod saves;

//! The integration tests of the crate persist: they use the formats through the public interface
//! only.

mod aof;
mod aof_writer;
mod arrays;
mod commands;
mod files;
mod payloads;
mod saves;
mod vectors;

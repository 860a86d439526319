//! The integration tests of this crate: they use the formats through the public interface only.

mod aof;
mod aof_writer;
mod commands;
mod files;
mod payloads;
mod saves;
mod vectors;

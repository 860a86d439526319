//! The vector index: operations beside a twin, and nodes from an untrusted source.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_vectors(data));

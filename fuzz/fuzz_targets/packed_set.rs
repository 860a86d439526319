//! Packed sets stay what a set is, through growth, removals, walks and copies.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_packed_set(data));

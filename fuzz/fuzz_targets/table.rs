//! Tables of pairs stay what a map is, through growth, sweeps and copies.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_table(data));

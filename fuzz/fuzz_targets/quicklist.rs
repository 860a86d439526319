//! Quicklists, from foreign nodes or none, stay what a vector is through edits.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_quicklist(data));

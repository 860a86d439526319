//! Listpacks of any bytes are refused or valid, and stay what a vector is through edits.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_listpack(data));

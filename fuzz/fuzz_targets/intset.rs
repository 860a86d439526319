//! Intsets of any bytes are refused or valid, and stay what a tree set is through edits.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_intset(data));

//! The sparse array: operations beside a twin.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_arrays(data));

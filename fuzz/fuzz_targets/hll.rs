//! Any bytes end in an answer or an error as a HyperLogLog.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::hll::fuzz::fuzz_hll(data));

//! Entries keep key, value, expiry, access clock and mark through every change.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_entry(data));

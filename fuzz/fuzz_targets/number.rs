//! Numbers and quoted words read, print and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stdx::fuzz::fuzz_number(data));

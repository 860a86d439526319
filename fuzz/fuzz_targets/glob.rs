//! Glob patterns end and agree with themselves.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stdx::fuzz::fuzz_glob(data));

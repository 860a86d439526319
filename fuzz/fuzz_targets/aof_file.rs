//! An append-only file is cut into units or refused, whatever its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| persist::fuzz::fuzz_aof(data));

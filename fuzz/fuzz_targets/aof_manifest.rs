//! A manifest of an append-only file is read or refused, whatever its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| persist::fuzz::fuzz_manifest(data));

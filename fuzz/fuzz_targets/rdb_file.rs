//! An RDB file is refused or loaded, whatever its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| persist::fuzz::fuzz_file(data));

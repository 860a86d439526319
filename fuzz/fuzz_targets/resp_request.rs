//! Request streams mean the same however they are cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| resp::fuzz::fuzz_request(data));

//! Any bytes are refused as a DUMP payload, or are a value that is written and read again the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| persist::fuzz::fuzz_dump_payload(data));

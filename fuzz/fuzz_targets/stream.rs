//! A stream with its consumer groups from a dump is refused or is a stream, whatever its bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| persist::fuzz::fuzz_stream(data));

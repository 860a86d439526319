//! Any bytes decode or are refused; what the encoder writes decodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| resp::fuzz::fuzz_reply(data));

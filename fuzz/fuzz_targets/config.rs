//! Configuration files parse or are refused; what they say survives CONFIG REWRITE.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::config::fuzz::fuzz_config(data));

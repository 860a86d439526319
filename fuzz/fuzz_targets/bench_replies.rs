//! saker-bench finds the ends of the same replies however they are cut, and as the decoder does.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bench::fuzz::fuzz_replies(data));

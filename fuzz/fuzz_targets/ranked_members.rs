//! Ranked members stay what a sorted map is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| structures::fuzz::fuzz_ranked_members(data));

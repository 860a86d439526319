//! Patterns of scripts match as those of PUC Lua, error texts included.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| script::fuzz_patterns(data));

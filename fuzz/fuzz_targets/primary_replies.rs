//! The bytes of a primary before the stream, in pieces of any length, give the same snapshot or an
//! error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| replicate::link::fuzz::check_link(data));

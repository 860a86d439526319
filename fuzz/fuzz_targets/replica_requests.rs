//! The bytes of a replica, in pieces of any length, give the same acknowledgements or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::replicas::link::fuzz_requests(data));

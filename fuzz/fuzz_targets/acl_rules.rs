//! Rules of users are taken or refused; what describes a user makes the same user again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::acl_fuzz::fuzz_rules(data));

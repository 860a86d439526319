//! A server in this process answers any session, before and after authentication, and serves others
//! afterwards.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::session_fuzz::fuzz_session(data));

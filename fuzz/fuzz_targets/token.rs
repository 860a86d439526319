//! Any password that looks like a token is refused or genuine, and never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::oidc::fuzz_token(data));

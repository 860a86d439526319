//! The TLS cipher suites, and the amount of data that one key of each may encrypt.

use std::sync::LazyLock;

use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls12CipherSuite};

/// The maximum number of 16-byte blocks encrypted with one key: RFC 8446 (5.5) permits 2^24.5
/// records of 2^10 blocks.
const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// The list that [`cipher_suites`] returns, built at its first call.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| ALL_CIPHER_SUITES.iter().copied().map(without_limit_of_records).collect());

/// Returns all cipher suites, in rustls' order of preference.
///
/// rustls' own suites of TLS 1.2 end a connection after 2^24 records, assuming that each record is
/// full: a client with small replies would lose its connection within minutes. The suites returned
/// here have no such limit; the session counts blocks instead.
pub fn cipher_suites() -> &'static [SupportedCipherSuite] {
    &SUITES
}

fn without_limit_of_records(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    // TLS 1.3 can change its keys.
    let SupportedCipherSuite::Tls12(known) = suite else { return suite };
    let common = CipherSuiteCommon {
        suite: known.common.suite,
        hash_provider: known.common.hash_provider,
        confidentiality_limit: u64::MAX,
    };
    // Once for each suite of the process.
    let suite: &'static Tls12CipherSuite = Box::leak(Box::new(Tls12CipherSuite {
        common,
        prf_provider: known.prf_provider,
        kx: known.kx,
        sign: known.sign,
        aead_alg: known.aead_alg,
    }));
    SupportedCipherSuite::Tls12(suite)
}

/// Returns the maximum number of 16-byte blocks that a key of `suite` may encrypt; `u64::MAX` if
/// rustls changes the key or there is no limit.
pub(super) fn blocks_max(suite: SupportedCipherSuite) -> u64 {
    match ALL_CIPHER_SUITES.iter().find(|known| **known == suite) {
        Some(SupportedCipherSuite::Tls12(known)) if known.common.confidentiality_limit < u64::MAX => {
            BLOCKS_PER_KEY_MAX
        }
        _ => u64::MAX,
    }
}

/// Returns the number of 16-byte blocks of a TLS record of `len_bytes`, including its header and
/// its tag.
pub(super) fn blocks_of(len_bytes: usize) -> u64 {
    len_bytes.div_ceil(16) as u64 + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_those_of_rustls_and_blocks_limit_gcm_of_tls_1_2() {
        assert_eq!(cipher_suites(), ALL_CIPHER_SUITES);
        for &suite in cipher_suites() {
            let name = format!("{:?}", suite.suite());
            let SupportedCipherSuite::Tls12(tls12) = suite else {
                assert_eq!(blocks_max(suite), u64::MAX, "{name}");
                continue;
            };
            assert_eq!(tls12.common.confidentiality_limit, u64::MAX, "{name}");
            assert_eq!(blocks_max(suite) == BLOCKS_PER_KEY_MAX, name.contains("GCM"), "{name}");
        }
    }
}

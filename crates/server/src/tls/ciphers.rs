//! The protocol versions and cipher suites of TLS, by the OpenSSL names that Redis' options use.

use net::cipher_suites;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Parses `tls-protocols`: the permitted versions of TLS. An empty option permits all. TLS 1.0 and
/// 1.1 may be named, as in Redis, but are not offered.
pub fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let (mut with_12, mut with_13) = (false, false);
    let mut words = words.split(' ').filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        (with_12, with_13) = (true, true);
    }
    for word in words {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => with_13 = true,
            "tlsv1.2" => with_12 = true,
            "tlsv1" | "tlsv1.1" => tracing::warn!("{word} of tls-protocols is not offered: it is not secure"),
            _ => {
                return Err("Invalid tls-protocols specified. Use a combination of 'TLSv1', 'TLSv1.1', \
                            'TLSv1.2' and 'TLSv1.3'."
                    .to_owned());
            }
        }
    }
    let versions: Vec<_> = [(with_13, &TLS13), (with_12, &TLS12)]
        .into_iter()
        .filter_map(|(wanted, version)| wanted.then_some(version))
        .collect();
    if versions.is_empty() {
        return Err("No TLS version of tls-protocols is offered: name 'TLSv1.2' or 'TLSv1.3'.".to_owned());
    }
    Ok(versions)
}

/// Parses `tls-ciphersuites`: the permitted cipher suites of TLS 1.3, the preferred one first. An
/// empty option permits all.
pub fn suites_13(names: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    if names.is_empty() {
        return Ok(known(&TLS13));
    }
    let mut suites: Vec<SupportedCipherSuite> = Vec::new();
    for name in names.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        let found = known(&TLS13).into_iter().find(|suite| openssl_name(suite) == name);
        let suite = found.ok_or_else(|| {
            format!("Failed to configure ciphersuites: {names}: {name:?} is not one of {}", listed(&TLS13))
        })?;
        if !suites.contains(&suite) {
            suites.push(suite);
        }
    }
    Ok(suites)
}

/// Parses `tls-ciphers`: the permitted cipher suites of TLS 1.2, as a list in OpenSSL's notation.
/// An empty list permits all. As in OpenSSL, unknown names are ignored as long as a suite remains.
pub fn suites_12(list: &str) -> Result<Vec<SupportedCipherSuite>, String> {
    if list.is_empty() {
        return Ok(known(&TLS12));
    }
    let (mut chosen, mut banned): (Vec<SupportedCipherSuite>, Vec<SupportedCipherSuite>) = Default::default();
    let mut unknown = Vec::new();
    for item in list.split([':', ',', ' ', ';']).filter(|item| !item.is_empty() && !item.starts_with('@')) {
        let (operator, pattern) = match item.as_bytes()[0] {
            operator @ (b'!' | b'-' | b'+') => (operator, &item[1..]),
            _ => (b' ', item),
        };
        let matching: Vec<_> = known(&TLS12).into_iter().filter(|suite| matches(suite, pattern)).collect();
        if operator == b' ' && matching.is_empty() {
            unknown.push(item);
        }
        match operator {
            b'!' => {
                chosen.retain(|suite| !matching.contains(suite));
                banned.extend(matching);
            }
            b'-' => chosen.retain(|suite| !matching.contains(suite)),
            b'+' => {
                let (last, first): (Vec<_>, Vec<_>) =
                    chosen.iter().copied().partition(|suite| matching.contains(suite));
                chosen = [first, last].concat();
            }
            _ => {
                let new = matching.into_iter().filter(|suite| !banned.contains(suite));
                let new: Vec<_> = new.filter(|suite| !chosen.contains(suite)).collect();
                chosen.extend(new);
            }
        }
    }
    if chosen.is_empty() {
        return Err(format!(
            "Failed to configure ciphers: {list}: it selects no suite. The known suites are {}",
            listed(&TLS12)
        ));
    }
    if !unknown.is_empty() {
        tracing::warn!(
            "tls-ciphers: ignoring the unknown suites {}. The known suites are {}",
            unknown.join(" "),
            listed(&TLS12)
        );
    }
    Ok(chosen)
}

fn known(version: &'static SupportedProtocolVersion) -> Vec<SupportedCipherSuite> {
    cipher_suites().iter().copied().filter(|suite| suite.version() == version).collect()
}

fn listed(version: &'static SupportedProtocolVersion) -> String {
    known(version).iter().map(openssl_name).collect::<Vec<_>>().join(" ")
}

/// Returns the OpenSSL name of a suite, such as `TLS_AES_128_GCM_SHA256` for TLS 1.3 or
/// `ECDHE-RSA-AES128-GCM-SHA256` for TLS 1.2.
pub fn openssl_name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    if suite.tls13().is_some() {
        return name.replace("TLS13_", "TLS_");
    }
    let name = name.trim_start_matches("TLS_").replace("WITH_", "").replace("AES_", "AES").replace('_', "-");
    name.replace("POLY1305-SHA256", "POLY1305")
}

/// Returns true if OpenSSL's `pattern` selects the TLS 1.2 suite. A pattern is a name, or several
/// words joined by `+`, all of which must apply.
fn matches(suite: &SupportedCipherSuite, pattern: &str) -> bool {
    let name = openssl_name(suite);
    let iana = format!("{:?}", suite.suite());
    if pattern == name || pattern == iana {
        return true;
    }
    pattern.split('+').all(|word| match word {
        "ALL" | "DEFAULT" | "HIGH" | "TLSv1.2" | "ECDHE" | "EECDH" | "kECDHE" | "kEECDH" | "ECDH"
        | "FIPS" => true,
        "ECDSA" | "aECDSA" => name.contains("ECDSA"),
        "RSA" | "aRSA" => name.contains("-RSA-"),
        "AES" => name.contains("AES"),
        "AES128" => name.contains("AES128"),
        "AES256" => name.contains("AES256"),
        "AESGCM" => name.contains("GCM"),
        "CHACHA20" => name.contains("CHACHA20"),
        "SHA256" => name.ends_with("SHA256"),
        "SHA384" => name.ends_with("SHA384"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_12(list: &str, expected: Result<&[&str], &str>) {
        let found = suites_12(list);
        match (found, expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.iter().map(openssl_name).collect::<Vec<_>>(), expected, "{list}");
            }
            (Err(problem), Err(words)) => assert!(problem.contains(words), "{list}: {problem}"),
            (found, _) => panic!("{list}: {found:?}"),
        }
    }

    #[test]
    fn lists_of_ciphers_are_read_as_openssl_reads_them() {
        let all = suites_12("").expect("all").len();
        assert_eq!(all, 6);
        for list in ["ALL", "DEFAULT", "DEFAULT:!MEDIUM", "HIGH:!aNULL:!MD5", "HIGH:@STRENGTH", "ECDHE"] {
            assert_eq!(suites_12(list).expect("all").len(), all, "{list}");
        }
        check_12("ECDHE-RSA-AES256-GCM-SHA384", Ok(&["ECDHE-RSA-AES256-GCM-SHA384"]));
        check_12(
            "DHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256",
            Ok(&["ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"]),
        );
        check_12("AESGCM+RSA:!AES128", Ok(&["ECDHE-RSA-AES256-GCM-SHA384"]));
        check_12(
            "ECDSA:-CHACHA20:+AES256",
            Ok(&["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"]),
        );
        check_12("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Ok(&["ECDHE-RSA-AES128-GCM-SHA256"]));
        check_12(
            "RC4-MD5",
            Err("Failed to configure ciphers: RC4-MD5: it selects no suite. The known suites are ECDHE-"),
        );
        check_12("ALL:!ECDHE", Err("it selects no suite"));
    }

    #[test]
    fn suites_of_tls_13_have_exact_names() {
        let found = suites_13("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256").expect("known");
        assert_eq!(
            found.iter().map(openssl_name).collect::<Vec<_>>(),
            ["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
        );
        assert_eq!(suites_13("").expect("all").len(), 3);
        let problem = suites_13("TLS_AES_128_CCM_SHA256").expect_err("not offered");
        assert!(problem.contains("is not one of TLS_AES_256_GCM_SHA384"), "{problem}");
    }

    #[test]
    fn versions_are_those_named_and_not_insecure() {
        assert_eq!(versions("").expect("all").len(), 2);
        assert_eq!(versions("TLSv1.2").expect("one"), [&TLS12]);
        assert_eq!(versions("TLSv1.1 tlsv1.3").expect("one"), [&TLS13]);
        assert!(versions("TLSv1 TLSv1.1").is_err());
        assert!(versions("SSLv3").expect_err("none").starts_with("Invalid tls-protocols"));
    }
}

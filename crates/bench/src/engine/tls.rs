//! The TLS configuration of connections. The event loop encrypts them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::TlsClient;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedCipherSuite,
};

use crate::BenchError;
use crate::spec::Tls;

/// The files in which systems keep their trusted CA certificates; the first that exists is used.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The configuration that all TLS connections of a run share.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The TLS configuration `config` in the form that the event loop needs.
    side: TlsClient,
    /// True if the user gave the name that the server's certificate must have. Otherwise the host
    /// of each cluster node is the expected name.
    named: bool,
}

impl Connector {
    /// Reads the keys and certificates. `host` is the expected name in the server's certificate,
    /// unless `options` contain another name.
    pub(super) fn new(options: &Tls, host: &str) -> Result<Self, BenchError> {
        let wrong = |reason: String| BenchError::Usage(format!("TLS: {reason}"));
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites = chosen_suites(provider.cipher_suites, options)?;
        let provider = Arc::new(provider);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let builder = if options.insecure && options.ca.is_none() && options.ca_dir.is_none() {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        } else {
            builder.with_root_certificates(roots(options)?)
        };
        let config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let unreadable = |path: &Path, error: String| wrong(format!("{}: {error}", path.display()));
                let chain = certificates(certificate)?;
                let key =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error.to_string()))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| wrong(error.to_string()))?
            }
        };
        let name = server_name(options.server_name.as_deref().unwrap_or(host))?;
        let side = TlsClient::new(config.clone(), name.clone());
        Ok(Self { config: Arc::new(config), name, side, named: options.server_name.is_some() })
    }

    /// Returns the configuration for the cluster node `host`. Its certificate must have the name
    /// `host`, unless the user gave another name.
    pub(super) fn for_node(&self, host: &str) -> Result<Self, BenchError> {
        if self.named {
            return Ok(self.clone());
        }
        let name = server_name(host)?;
        let side = self.side.for_name(name.clone());
        Ok(Self { config: Arc::clone(&self.config), name, side, named: false })
    }

    /// Returns the client configuration for a connection of the event loop.
    pub(super) fn side(&self) -> TlsClient {
        self.side.clone()
    }

    /// Creates the TLS client of a blocking connection, such as the one that asks for the slot map.
    pub(super) fn connection(&self) -> Result<ClientConnection, BenchError> {
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        tls.map_err(|error| BenchError::Usage(format!("TLS: {error}")))
    }
}

/// Parses the host name or IP address that the server's certificate must contain.
fn server_name(name: &str) -> Result<ServerName<'static>, BenchError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(address.into()));
    }
    let wrong = |error| BenchError::Usage(format!("TLS: {name:?}: {error}"));
    ServerName::try_from(name.to_owned()).map_err(wrong)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BenchError> {
    let wrong = |error: String| BenchError::Usage(format!("TLS: {}: {error}", path.display()));
    let entries = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    entries.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))
}

/// Reads the CA certificates that `options` name. If `options` name none, reads those of the
/// system.
fn roots(options: &Tls) -> Result<RootCertStore, BenchError> {
    let mut files: Vec<PathBuf> = options.ca.iter().cloned().collect();
    if let Some(dir) = &options.ca_dir {
        let unreadable = |error| BenchError::Usage(format!("TLS: {}: {error}", dir.display()));
        let entries = fs::read_dir(dir).map_err(unreadable)?;
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    if options.ca.is_none() && options.ca_dir.is_none() {
        files.extend(SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.is_file()));
    }
    let mut roots = RootCertStore::empty();
    for file in &files {
        match certificates(file) {
            // Other files in a directory of certificates are ignored.
            Err(error) if options.ca.as_ref() == Some(file) => return Err(error),
            read => _ = roots.add_parsable_certificates(read.unwrap_or_default()),
        }
    }
    if roots.is_empty() {
        let reason =
            "there is no certificate of an authority: give one (--cacert), or skip the check (--insecure)";
        return Err(BenchError::Usage(format!("TLS: {reason}")));
    }
    Ok(roots)
}

/// Returns those of `all` cipher suites that `options` name. If `options` have no list for a
/// version of TLS, all suites of that version are included.
fn chosen_suites(
    all: Vec<SupportedCipherSuite>,
    options: &Tls,
) -> Result<Vec<SupportedCipherSuite>, BenchError> {
    let mut chosen = Vec::new();
    for (is_13, names) in [(true, &options.ciphersuites), (false, &options.ciphers)] {
        let of_version = || all.iter().filter(|suite| suite.tls13().is_some() == is_13);
        let Some(names) = names else {
            chosen.extend(of_version());
            continue;
        };
        for name in names.split(':') {
            let suite = of_version().find(|suite| openssl_name(suite) == name).ok_or_else(|| {
                let known: Vec<String> = of_version().map(openssl_name).collect();
                BenchError::Usage(format!(
                    "TLS: there is no cipher {name:?}; the known ones are {}",
                    known.join(" ")
                ))
            })?;
            chosen.push(*suite);
        }
    }
    Ok(chosen)
}

/// Returns the OpenSSL name of a suite: `TLS_AES_128_GCM_SHA256` in TLS 1.3,
/// `ECDHE-RSA-AES128-GCM-SHA256` in TLS 1.2.
fn openssl_name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    if suite.tls13().is_some() {
        return name.replace("TLS13_", "TLS_");
    }
    let name = name.trim_start_matches("TLS_").replace("WITH_", "").replace("AES_", "AES").replace('_', "-");
    name.replace("POLY1305-SHA256", "POLY1305")
}

/// A certificate verifier that accepts any certificate. It still checks that the server has the
/// private key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_are_chosen_by_their_names_for_each_version() {
        let all = aws_lc_rs::default_provider().cipher_suites;
        let names = |options: &Tls| -> Result<Vec<String>, String> {
            let chosen = chosen_suites(all.clone(), options).map_err(|error| error.to_string())?;
            Ok(chosen.iter().map(openssl_name).collect())
        };
        assert_eq!(names(&Tls::default()).unwrap().len(), all.len());
        let options = Tls {
            ciphersuites: Some("TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256".to_owned()),
            ciphers: Some("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305".to_owned()),
            ..Tls::default()
        };
        assert_eq!(
            names(&options).unwrap(),
            [
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_AES_128_GCM_SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
            ]
        );
        let unknown = Tls { ciphers: Some("RC4-MD5".to_owned()), ..Tls::default() };
        let error = names(&unknown).unwrap_err();
        assert!(error.contains("\"RC4-MD5\"; the known ones are ECDHE-"), "{error}");
    }
}

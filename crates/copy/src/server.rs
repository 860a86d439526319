//! A server to connect to: its address, its TLS settings, and the greeting of each connection.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use net::{Address, TlsClient};
use resp::encode_request;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::url::{Endpoint, Place};

/// The files in which systems keep their trusted CA certificates.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The TLS settings of the command line, which apply to both servers.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// The file of a CA certificate that is trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// True if the client accepts any certificate of the servers.
    pub is_insecure: bool,
    /// The files of the client's certificate and key; `None` for no client certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A server that is copied from or to: its address, account and TLS settings.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address of the server and the account to use there.
    pub endpoint: Endpoint,
    tls: Option<TlsClient>,
}

impl Server {
    /// Creates the server at `endpoint`, and reads the certificates of `options` if its connections
    /// use TLS.
    pub fn new(endpoint: Endpoint, options: &TlsOptions) -> Result<Self, String> {
        let tls = endpoint.is_tls.then(|| tls_client(options, endpoint.host())).transpose()?;
        Ok(Self { endpoint, tls })
    }

    /// Resolves the address. Each connection resolves it anew, because the address of a managed
    /// service may change.
    pub fn address(&self) -> Result<Address, String> {
        match &self.endpoint.place {
            Place::Unix(path) => Ok(Address::Unix(path.as_path().into())),
            Place::Tcp(host, port) => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let first = found.map_err(|error| format!("{host}: {error}"))?.next();
                first.map(Address::Tcp).ok_or_else(|| format!("{host} has no address"))
            }
        }
    }

    /// Returns the TLS settings for a new connection; `None` if the server is used without TLS.
    pub fn tls(&self) -> Option<TlsClient> {
        self.tls.clone()
    }

    /// Appends the first requests of a connection (such as AUTH) to `out`. Returns the number of
    /// replies to await.
    pub fn greet(&self, out: &mut Vec<u8>) -> u32 {
        let Endpoint { user, password, .. } = &self.endpoint;
        match (user, password) {
            (Some(user), Some(password)) => encode_request(&["AUTH", user, password], out),
            (None, Some(password)) => encode_request(&["AUTH", password], out),
            (_, None) => {}
        }
        encode_request(&["PING"], out);
        1 + u32::from(password.is_some())
    }
}

/// Formats the address of the server, without user and password.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.endpoint.fmt(f)
    }
}

fn tls_client(options: &TlsOptions, host: &str) -> Result<TlsClient, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let builder = if options.is_insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else {
        builder.with_root_certificates(roots(options)?)
    };
    let config = match &options.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("TLS: {}: {error}", key.display()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("TLS: {error}"))?
        }
    };
    let name = match host.parse::<IpAddr>() {
        Ok(address) => ServerName::IpAddress(address.into()),
        Err(_) => ServerName::try_from(host.to_owned()).map_err(|error| format!("TLS: {host}: {error}"))?,
    };
    Ok(TlsClient::new(config, name))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| format!("TLS: {}: {error}", path.display());
    CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)
}

/// Reads the trusted CA certificates: those of the system, and the one of `options`.
fn roots(options: &TlsOptions) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for file in SYSTEM_ROOTS.iter().map(Path::new).filter(|path| fs::exists(path).unwrap_or(false)).take(1) {
        roots.add_parsable_certificates(certificates(file).unwrap_or_default());
    }
    if let Some(file) = &options.ca {
        roots.add_parsable_certificates(certificates(file)?);
    }
    if roots.is_empty() {
        return Err("TLS: there is no certificate of an authority: give one (--cacert), or skip the check \
                    (--insecure)"
            .to_owned());
    }
    Ok(roots)
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

//! TLS over a connection of the event loop: bytes of the socket in, bytes of the protocol out, and back.
//!
//! rustls does no I/O of its own: what a socket received is given to it, and what it wants to send is
//! appended to the connection's output. Requests of one batch are sealed together, so that they share
//! records.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::BenchError;
use crate::spec::Tls;

/// What all TLS connections of a run share.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// Whether the name was given; else each node of a cluster goes by its own.
    named: bool,
}

impl Connector {
    /// Reads keys and certificates. `host` is the name that the server's certificate must have unless
    /// `options` give another.
    pub(super) fn new(options: &Tls, host: &str) -> Result<Self, BenchError> {
        let wrong = |reason: String| BenchError::Usage(format!("TLS: {reason}"));
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let builder = match &options.ca {
            Some(path) => builder.with_root_certificates(roots(path)?),
            None if options.insecure => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
            }
            None => {
                let reason =
                    "give the certificate of the authority (--cacert), or skip the check (--insecure)";
                return Err(wrong(reason.to_owned()));
            }
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
        Ok(Self { config: Arc::new(config), name, named: options.server_name.is_some() })
    }

    /// The same for a node of a cluster that is called `host`.
    pub(super) fn for_node(&self, host: &str) -> Result<Self, BenchError> {
        let name = if self.named { self.name.clone() } else { server_name(host)? };
        Ok(Self { name, ..self.clone() })
    }

    /// A connection's side of it.
    pub(super) fn connection(&self) -> Result<ClientConnection, BenchError> {
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        tls.map_err(|error| BenchError::Usage(format!("TLS: {error}")))
    }

    /// The same for a connection of the event loop.
    pub(super) fn session(&self) -> Result<Session, BenchError> {
        let mut tls = self.connection()?;
        // What a batch may hold is bounded by the pipeline's depth already.
        tls.set_buffer_limit(None);
        Ok(Session { tls, outgoing: Vec::new(), incoming: Vec::new() })
    }
}

/// The name, or the address, that a certificate must be for.
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

fn roots(path: &Path) -> Result<RootCertStore, BenchError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(BenchError::Usage(format!("TLS: {} holds no certificate", path.display())));
    }
    Ok(roots)
}

/// One connection's TLS.
#[derive(Debug)]
pub(super) struct Session {
    tls: ClientConnection,
    /// Requests not sealed yet.
    pub(super) outgoing: Vec<u8>,
    /// Opened bytes that no reply was read from yet.
    pub(super) incoming: Vec<u8>,
}

impl Session {
    /// Seals what is outgoing and appends it to `out`, with what the handshake has to say.
    pub(super) fn seal(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.tls.writer().write_all(&self.outgoing)?;
        self.outgoing.clear();
        while self.tls.wants_write() {
            self.tls.write_tls(out)?;
        }
        Ok(())
    }

    /// Opens all of `input`.
    pub(super) fn open(&mut self, mut input: &[u8]) -> Result<(), String> {
        while !input.is_empty() {
            self.tls.read_tls(&mut input).map_err(|error| error.to_string())?;
            let state = self.tls.process_new_packets().map_err(|error| error.to_string())?;
            let start = self.incoming.len();
            self.incoming.resize(start + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.incoming[start..]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Takes any certificate; that the server has its key is checked all the same.
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

//! Keys and certificates for tests of encrypted connections.

use std::sync::Arc;

use net::TlsServer;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

/// A key and a certificate for `localhost`, and the configurations of both sides with them.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    /// Creates a new key and a certificate for it.
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self { chain: vec![made.cert.der().clone()], key: made.signing_key.serialize_der().into() }
    }

    /// Returns the server's TLS configuration, which accepts all versions.
    pub(crate) fn server(&self) -> TlsServer {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), PrivateKeyDer::Pkcs8(self.key.clone_key()))
            .unwrap();
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        TlsServer::new(config)
    }

    /// Returns the TLS configuration of a client that offers the cipher suites `suites`.
    pub(crate) fn client(&self, suites: &[SupportedCipherSuite]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.chain[0].clone()).unwrap();
        let mut provider = default_provider();
        provider.cipher_suites = suites.to_vec();
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[suites[0].version()])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

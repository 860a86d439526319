//! TLS between a soak's clients and its server.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::process::free_port;

/// The host name in the server's certificate.
const NAME: &str = "localhost";

/// A certificate for a server, and the port on which the server accepts TLS.
#[derive(Debug)]
pub struct Encryption {
    folder: TempDir,
    config: Arc<ClientConfig>,
    port: u16,
    hello: Vec<u8>,
}

impl Encryption {
    /// Creates a server certificate, and picks a free port for TLS.
    ///
    /// # Errors
    /// The certificate's files cannot be written, or no port is free.
    ///
    /// # Panics
    /// Panics if the certificate cannot be created or is not accepted as a root.
    pub fn new() -> io::Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("certificate"), cert.pem())?;
        fs::write(folder.path().join("key"), signing_key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions that the provider knows")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut encryption = Self { folder, config: Arc::new(config), port: free_port()?, hello: Vec::new() };
        let mut hello = Vec::new();
        encryption.client().write_tls(&mut hello)?;
        encryption.hello = hello;
        Ok(encryption)
    }

    /// Returns the server's command line options for TLS.
    pub fn options(&self) -> Vec<String> {
        let file = |name| self.folder.path().join(name).display().to_string();
        let options = [
            ("--tls-port", self.port.to_string()),
            ("--tls-cert-file", file("certificate")),
            ("--tls-key-file", file("key")),
            ("--tls-auth-clients", "no".to_owned()),
        ];
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Returns the address on which the server accepts TLS.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the bytes that a client sends first (ClientHello).
    pub fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Wraps a connection to [`Encryption::address`] in TLS.
    pub fn over(&self, stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
        StreamOwned::new(self.client(), stream)
    }

    fn client(&self) -> ClientConnection {
        let name = ServerName::try_from(NAME).expect("a name");
        ClientConnection::new(Arc::clone(&self.config), name).expect("a configuration that has been checked")
    }
}

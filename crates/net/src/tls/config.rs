//! The configurations of the server's and the client's side of encrypted connections.

use std::fmt;
use std::sync::{Arc, Mutex};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

/// The server's side of encrypted connections: certificates, and rules for clients' certificates.
/// Clones share one configuration. A new configuration applies to all handshakes that begin after
/// its replacement.
#[derive(Clone)]
pub struct TlsServer(Arc<Mutex<Arc<ServerConfig>>>);

impl TlsServer {
    /// Creates the server's side of encrypted connections with this configuration.
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(config))))
    }

    /// Replaces the configuration for handshakes that begin from now on.
    pub fn replace(&self, config: ServerConfig) {
        *self.0.lock().expect("nothing panics while it is locked") = Arc::new(config);
    }

    /// Returns the current configuration for handshakes on the server's side.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.lock().expect("nothing panics while it is locked"))
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsServer")
    }
}

/// The client's side of encrypted connections to one server. Clones share the TLS sessions that
/// later connections can resume.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Creates the client's side for a server whose certificate must be for `name`.
    pub fn new(config: ClientConfig, name: ServerName<'static>) -> Self {
        Self { config: Arc::new(config), name }
    }

    /// Returns the client's side of encrypted connections with the same configuration for a server
    /// with another name.
    pub fn for_name(&self, name: ServerName<'static>) -> Self {
        Self { config: Arc::clone(&self.config), name }
    }

    pub(super) fn parts(&self) -> (Arc<ClientConfig>, ServerName<'static>) {
        (Arc::clone(&self.config), self.name.clone())
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsClient({:?})", self.name)
    }
}

/// The side of TLS, server or client, that a socket's connection takes once a loop has adopted the
/// socket, with the configuration.
#[derive(Clone, Debug)]
pub(crate) enum TlsSide {
    Server(TlsServer),
    Client(TlsClient),
}

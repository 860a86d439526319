//! Connections to other servers that stay open between two commands, because MIGRATE is called in
//! series.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Where a connection goes, and where from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// `bind-source-addr`.
    pub source: Vec<u8>,
    /// Whether it is encrypted.
    pub encryption: Encryption,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// It is not.
    None,
    /// By TLS, as `tls-cluster` says.
    Tls,
}

/// A connection that waits for its bytes.
#[derive(Debug)]
pub enum Stream {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted, behind its handshake.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Shakes hands over `socket` with the server that is called `host`; fails when it is not
    /// trusted, or takes longer than the socket's timeouts.
    pub fn encrypted(mut socket: TcpStream, config: Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buf),
            Stream::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(buf),
            Stream::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// Connections that are kept, in all.
const KEPT_MAX: usize = 64;
/// How long a connection is kept after its last use.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// Connections to targets that are not in use, each for some seconds. Guarded by a lock of its
/// own, a leaf, never held across a system call.
#[derive(Debug, Default)]
pub struct ConnectionPool {
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    target: Target,
    stream: Stream,
    db: Option<i64>,
    used: Instant,
}

impl ConnectionPool {
    /// Takes a connection to `target` out, with the database that it has selected, if
    /// known. O(connections).
    pub fn take(&self, target: &Target) -> Option<(Stream, Option<i64>)> {
        let mut kept = self.lock();
        let at = kept.iter().position(|kept| kept.target == *target && kept.used.elapsed() < KEPT_FOR)?;
        let found = kept.swap_remove(at);
        Some((found.stream, found.db))
    }

    /// Keeps a connection that has no answer outstanding. Closes another one
    /// when there are too many.
    pub fn keep(&self, target: Target, stream: Stream, db: Option<i64>) {
        let mut kept = self.lock();
        let displaced = if kept.len() >= KEPT_MAX { Some(kept.swap_remove(0)) } else { None };
        kept.push(Kept { target, stream, db, used: Instant::now() });
        drop(kept);
        // Closed here, after the lock.
        drop(displaced);
    }

    /// Closes what was not used for a while.
    pub fn close_idle(&self) {
        let idle: Vec<Kept> = self.lock().extract_if(.., |kept| kept.used.elapsed() >= KEPT_FOR).collect();
        drop(idle);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().expect("nothing panics while the connections are locked")
    }
}

//! Connections to other servers for MIGRATE. They stay open between two commands, because MIGRATE
//! is often called many times in a row.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The destination of a connection to another server, and its source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host name or the address of the other server.
    pub host: String,
    /// The TCP port of the other server.
    pub port: u16,
    /// The source address of the connection, as `bind-source-addr` states it.
    pub source: Vec<u8>,
    /// The encryption of the connection to the other server.
    pub encryption: Encryption,
}

/// The encryption of a connection to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// The connection is not encrypted.
    None,
    /// The connection uses TLS, with the certificates of the TLS options.
    Tls,
}

/// A connection to another server, whose reads and writes block.
#[derive(Debug)]
pub enum Stream {
    /// A TCP connection without encryption.
    Plain(TcpStream),
    /// A connection that is encrypted with TLS, after its handshake.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Performs the TLS handshake over `socket` with the server named `host`. Fails if that
    /// server's certificate is not trusted, or if the socket's timeouts expire.
    pub fn encrypted(mut socket: TcpStream, config: Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }

    /// Returns the TCP socket of the connection.
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

/// Maximum number of idle connections in the pool, to all targets together.
const KEPT_MAX: usize = 64;
/// Time after which an idle connection in the pool is closed.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// The pool of idle connections. Each stays open for [`KEPT_FOR`] after its last use. No other lock
/// is taken under the pool's lock, and it is never held during a system call.
#[derive(Debug, Default)]
pub struct ConnectionPool {
    kept: Mutex<Vec<PooledConnection>>,
}

#[derive(Debug)]
struct PooledConnection {
    target: Target,
    stream: Stream,
    db: Option<i64>,
    used: Instant,
}

impl ConnectionPool {
    /// Removes and returns a connection to `target`, with its selected database if it is known.
    /// Returns `None` if the pool has no such connection. O(connections).
    pub fn take(&self, target: &Target) -> Option<(Stream, Option<i64>)> {
        let mut kept = self.lock();
        let at = kept.iter().position(|kept| kept.target == *target && kept.used.elapsed() < KEPT_FOR)?;
        let found = kept.swap_remove(at);
        Some((found.stream, found.db))
    }

    /// Adds a connection that awaits no reply; `db` is its selected database. If the pool is full,
    /// closes another connection.
    pub fn keep(&self, target: Target, stream: Stream, db: Option<i64>) {
        let mut kept = self.lock();
        let displaced = if kept.len() >= KEPT_MAX { Some(kept.swap_remove(0)) } else { None };
        kept.push(PooledConnection { target, stream, db, used: Instant::now() });
        drop(kept);
        // Closed here, after the lock is released.
        drop(displaced);
    }

    /// Closes connections that have been idle in the pool for [`KEPT_FOR`].
    pub fn close_idle(&self) {
        let idle: Vec<PooledConnection> =
            self.lock().extract_if(.., |kept| kept.used.elapsed() >= KEPT_FOR).collect();
        drop(idle);
    }

    /// Returns the number of idle connections in the pool.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PooledConnection>> {
        self.kept.lock().expect("nothing panics while the connections are locked")
    }
}

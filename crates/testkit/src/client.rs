//! A blocking client for tests: one connection, over TCP or a Unix socket.
//!
//! A read waits at most for the read timeout, so that a server that does not answer fails a test
//! instead of hanging it. Nothing sleeps. Bytes after a reply stay buffered for the next read. So a
//! pipeline is sent first, and its replies are read afterwards.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use resp::{DecodeError, Protocol, Value, decode, encode_request};

/// The time without a reply after which a read of the test client fails. It is long because test
/// machines are shared.
const READ_TIMEOUT: Duration = Duration::from_secs(240);

/// Number of bytes requested from the socket at a time.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// The address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The IP address and port of a TCP socket.
    Tcp(SocketAddr),
    /// The path of a Unix socket on which the server listens.
    Unix(PathBuf),
}

impl Address {
    /// Returns the address of `port` on the IPv4 loopback.
    pub fn port(port: u16) -> Self {
        Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The reason why a client received no reply.
#[derive(Debug)]
pub enum ClientError {
    /// The server closed the connection.
    Closed,
    /// No reply, or only a part of it, within the read timeout. Holds the received bytes.
    TimedOut(Vec<u8>),
    /// The received bytes are not a reply. Holds these bytes.
    Malformed(DecodeError, Vec<u8>),
    /// Any other failure of the client's socket.
    Io(io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::TimedOut(partial) if partial.is_empty() => f.write_str("no reply within the read timeout"),
            Self::TimedOut(partial) => {
                write!(f, "half a reply within the read timeout: {}", partial.escape_ascii())
            }
            Self::Malformed(error, input) => write!(f, "{error} of {}", input.escape_ascii()),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A connected stream socket: TCP or Unix.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects to `address`. A TCP connection sends small writes without delay (TCP_NODELAY).
    pub(crate) fn connect(address: &Address) -> io::Result<Self> {
        Ok(match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
            Address::Unix(path) => Self::Unix(UnixStream::connect(path)?),
        })
    }

    /// Waits for at least one byte and reads the available ones into `into`. Returns their number;
    /// 0 if the peer has closed the connection.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    /// Sends all of `bytes` to the peer. Waits until the kernel has accepted them.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Sets the maximum time of a read; `None` for no limit.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

/// A blocking connection to a server, with the received bytes that no reply has used yet.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// The received bytes. Those from `consumed` on have not been returned to the caller.
    input: Vec<u8>,
    consumed: usize,
    scratch: Vec<u8>,
}

impl Client {
    /// Connects to the server at `address`. The connection uses RESP2, like every new connection.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let stream = Stream::connect(address)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream, input: Vec::new(), consumed: 0, scratch: vec![0; READ_CHUNK_BYTES] })
    }

    /// Connects to `port` on the loopback.
    ///
    /// # Panics
    /// Panics when nothing listens on the port.
    pub fn to_port(port: u16) -> Self {
        Self::connect(&Address::port(port))
            .unwrap_or_else(|error| panic!("connecting to port {port}: {error}"))
    }

    /// Connects to `address` and switches to `protocol`.
    ///
    /// # Panics
    /// Panics when nothing listens on the address, or the server refuses the protocol.
    pub fn speaking(address: &Address, protocol: Protocol) -> Self {
        let mut client =
            Self::connect(address).unwrap_or_else(|error| panic!("connecting to {address}: {error}"));
        client.hello(protocol);
        client
    }

    /// Switches to `protocol`: sends `HELLO 3` for RESP3. For RESP2, the protocol of a new
    /// connection, nothing is sent, so that the server need not know HELLO.
    ///
    /// # Panics
    /// Panics when the server answers with an error or not at all.
    pub fn hello(&mut self, protocol: Protocol) {
        if protocol == Protocol::Resp3 {
            let reply = self.command(&["HELLO", "3"]);
            assert!(!reply.is_error(), "HELLO 3 answered {reply}");
        }
    }

    /// Sets the time for which this client waits for each later reply.
    pub fn set_read_timeout(&mut self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).expect("the timeout is not zero");
    }

    /// Sends one command and returns its reply.
    ///
    /// # Panics
    /// Panics when there is no reply; the message names the command.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.request(args).unwrap_or_else(|error| {
            let words: Vec<_> = args.iter().map(|arg| arg.as_ref().escape_ascii().to_string()).collect();
            panic!("{}: {error}", words.join(" "))
        })
    }

    /// Sends one command. Returns its reply, or the reason why no reply was received.
    pub fn request<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, ClientError> {
        let mut bytes = Vec::new();
        encode_request(args, &mut bytes);
        self.send(&bytes)?;
        self.read()
    }

    /// Sends all `commands` at once, then reads one reply for each.
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Result<Vec<Value>, ClientError> {
        let mut replies = Vec::with_capacity(commands.len());
        self.pipeline_each(commands, |reply| replies.push(reply))?;
        Ok(replies)
    }

    /// Sends all requests, then calls `reply` with each reply as it arrives. On an error, the
    /// caller thus has all replies before it.
    pub fn pipeline_each<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
        mut reply: impl FnMut(Value),
    ) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        for args in commands {
            encode_request(args, &mut bytes);
        }
        self.send(&bytes)?;
        for _ in commands {
            reply(self.read()?);
        }
        Ok(())
    }

    /// Sends `bytes` to the server as they are, for example an incomplete request.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Waits for the next reply of the server and returns it.
    pub fn read(&mut self) -> Result<Value, ClientError> {
        loop {
            match decode(&self.input[self.consumed..]) {
                Ok(Some((value, len))) => {
                    self.consumed += len;
                    return Ok(value);
                }
                Ok(None) => self.receive()?,
                Err(error) => {
                    return Err(ClientError::Malformed(error, self.input[self.consumed..].to_vec()));
                }
            }
        }
    }

    /// Waits for the next `count` replies and returns them in order.
    pub fn read_many(&mut self, count: usize) -> Result<Vec<Value>, ClientError> {
        (0..count).map(|_| self.read()).collect()
    }

    /// Reads until the server closes the connection. Returns the bytes received before.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ClientError> {
        loop {
            match self.receive() {
                Ok(()) => {}
                Err(ClientError::Closed) => return Ok(self.input.split_off(self.consumed)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for at least one byte of the socket and appends the available ones to the input.
    fn receive(&mut self) -> Result<(), ClientError> {
        self.input.drain(..self.consumed);
        self.consumed = 0;
        match self.stream.read(&mut self.scratch) {
            Ok(0) => Err(ClientError::Closed),
            Ok(len) => {
                self.input.extend_from_slice(&self.scratch[..len]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err(ClientError::TimedOut(self.input.clone()))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns a client whose server has sent `bytes` and has closed the connection.
    fn client_of(bytes: &[u8]) -> Client {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = Client::to_port(listener.local_addr().unwrap().port());
        listener.accept().unwrap().0.write_all(bytes).unwrap();
        client
    }

    #[test]
    fn replies_are_read_one_by_one_and_the_end_is_seen() {
        let mut client = client_of(b"+OK\r\n:1\r\n");
        assert_eq!(client.read().unwrap(), Value::Simple(b"OK".to_vec()));
        assert_eq!(client.read().unwrap(), Value::Integer(1));
        assert!(matches!(client.read(), Err(ClientError::Closed)));
    }

    #[test]
    fn what_is_no_reply_is_shown() {
        let error = client_of(b"HTTP/1.1\r\n").read().unwrap_err();
        assert!(error.to_string().contains("HTTP/1.1"), "{error}");
    }

    #[test]
    fn silence_ends_in_a_timeout_that_shows_what_came() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = Client::to_port(listener.local_addr().unwrap().port());
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"$5\r\nhe").unwrap();
        client.set_read_timeout(Duration::from_millis(20));
        assert!(matches!(client.read(), Err(ClientError::TimedOut(partial)) if partial == b"$5\r\nhe"));
    }

    #[test]
    fn the_rest_of_a_connection_is_given_as_bytes() {
        let mut client = client_of(b"+OK\r\n-ERR Protocol error\r\n");
        client.read().unwrap();
        assert_eq!(client.read_to_end().unwrap(), b"-ERR Protocol error\r\n");
    }
}

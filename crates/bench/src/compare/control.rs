//! A control connection to an engine, for PING, INFO, CONFIG GET and similar commands. Blocking,
//! one request at a time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use resp::{Value, decode, encode_request};

use crate::spec::{Endpoint, Target};

/// The longest wait for a reply, unless [`Control::wait_at_most`] changes it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest wait for a TCP connection to one address. A host name may have several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of bytes of one read from a control connection.
const READ_LEN_BYTES: usize = 16 * 1024;

/// A blocking connection to an engine for PING, INFO, CONFIG GET and similar commands.
pub struct Control {
    stream: Stream,
    received: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Control {
    /// Connects to `target`, and authenticates if `target` has a password.
    pub fn connect(target: &Target) -> io::Result<Self> {
        let stream = match &target.endpoint {
            Endpoint::Tcp { host, port } => Stream::Tcp(connect_tcp(host, *port)?),
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        stream.set_timeouts(ANSWER_TIMEOUT)?;
        let mut control = Self { stream, received: Vec::new() };
        if let Some(password) = &target.password {
            let user = target.user.iter().map(String::as_str);
            let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            if let Value::Error(reason) = control.ask(&words)? {
                return Err(io::Error::other(String::from_utf8_lossy(&reason).into_owned()));
            }
        }
        Ok(control)
    }

    /// Sets the longest wait for each later read and write.
    pub fn wait_at_most(&self, within: Duration) -> io::Result<()> {
        self.stream.set_timeouts(within)
    }

    /// Sends a request on the control connection and waits for its reply.
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let mut request = Vec::new();
        encode_request(words, &mut request);
        self.stream.write_all(&request)?;
        let mut buffer = [0; READ_LEN_BYTES];
        loop {
            match decode(&self.received) {
                Ok(Some((value, used))) => {
                    self.received.drain(..used);
                    return Ok(value);
                }
                Ok(None) => {}
                Err(error) => return Err(io::Error::other(format!("the reply is invalid: {error:?}"))),
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Sends a request and returns the text of the reply; `None` for an error or a reply without
    /// text.
    pub fn ask_text(&mut self, words: &[&str]) -> io::Result<Option<String>> {
        let text = |bytes: Vec<u8>| Some(String::from_utf8_lossy(&bytes).into_owned());
        Ok(match self.ask(words)? {
            Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => text(bytes),
            _ => None,
        })
    }

    /// Sends a request and returns its integer reply; `None` for any other reply.
    pub fn ask_integer(&mut self, words: &[&str]) -> io::Result<Option<i64>> {
        Ok(match self.ask(words)? {
            Value::Integer(number) => Some(number),
            _ => None,
        })
    }

    /// Returns the value of the option `name` (CONFIG GET); `None` if the engine replies with an
    /// error or does not know the option.
    pub fn config(&mut self, name: &str) -> io::Result<Option<String>> {
        let text = |value: &Value| match value {
            Value::Bulk(bytes) | Value::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        Ok(match self.ask(&["CONFIG", "GET", name])? {
            Value::Array(items) => items.get(1).and_then(text),
            Value::Map(pairs) => pairs.first().and_then(|(_, value)| text(value)),
            _ => None,
        })
    }
}

/// Returns the value of `field` in the text of an INFO reply; `None` if the field is missing.
pub fn info_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other(format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Stream {
    fn set_timeouts(&self, within: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))
            }
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match self {
                Stream::Tcp(stream) => stream.read(buffer),
                Stream::Unix(stream) => stream.read(buffer),
            };
            // A signal interrupted the read. Linux does not restart a read that has a timeout.
            if !matches!(&received, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
                return received;
            }
        }
    }
}

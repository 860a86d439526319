//! A connection on which a test plays the role of a replica, request by request.

use std::io;
use std::time::Duration;

use resp::{Value, decode, encode_request};

use crate::client::{Address, Stream};
use crate::process::free_port;

/// Maximum time for which a read waits for bytes from the primary.
const READ_TIMEOUT: Duration = Duration::from_secs(240);

/// Length in bytes of the random text (mark) that ends a snapshot which is sent without its length.
const MARK_BYTES: usize = 40;

/// The answer of a primary to PSYNC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Psync {
    /// The primary answered `FULLRESYNC`: a snapshot follows.
    Full {
        /// The replication ID of the primary.
        id: String,
        /// The offset of the replication stream at which the snapshot was taken.
        offset: u64,
    },
    /// The primary answered `CONTINUE`: the replication stream continues at the requested offset.
    /// The field is the new replication ID, which only connections with the capability PSYNC2 get.
    Continues(Option<String>),
    /// The primary sent any other answer line, such as an error reply.
    Other(String),
}

impl Psync {
    /// Parses the line with which a primary answers PSYNC.
    fn of(line: String) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["+FULLRESYNC", id, offset] if id.len() == MARK_BYTES => match offset.parse() {
                Ok(offset) => Self::Full { id: id.into(), offset },
                Err(_) => Self::Other(line),
            },
            ["+CONTINUE"] => Self::Continues(None),
            ["+CONTINUE", id] => Self::Continues(Some(id.into())),
            _ => Self::Other(line),
        }
    }
}

/// A snapshot received from a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// True if the snapshot ended with a mark (a random text), false if its length preceded it.
    pub has_mark: bool,
    /// The bytes of the RDB file, the snapshot.
    pub bytes: Vec<u8>,
}

/// A connection to a primary in the role of a replica.
#[derive(Debug)]
pub struct Link {
    stream: Stream,
    /// The listening port that the connection announces to the primary, as replicas do.
    port: u16,
    /// The bytes received from the primary that are not returned yet.
    input: Vec<u8>,
    /// The number of empty lines received from the primary before its last answer. Primaries send
    /// them as signs of life.
    empty_lines: usize,
    /// The bytes of all commands of the replication stream that were returned so far.
    streamed: Vec<u8>,
}

impl Link {
    /// Connects to the primary at `port` on the loopback.
    ///
    /// # Panics
    /// Panics when nothing listens.
    pub fn connect(port: u16) -> Self {
        Self::connect_to(&Address::port(port))
    }

    /// Connects to the primary at `address`, over TCP or a Unix socket.
    ///
    /// # Panics
    /// Panics when nothing listens.
    pub fn connect_to(address: &Address) -> Self {
        let stream = Stream::connect(address).expect("the primary listens");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("the timeout is not zero");
        let port = match &stream {
            Stream::Tcp(stream) => stream.local_addr().expect("it is a socket").port(),
            Stream::Unix(_) => free_port().expect("a port is free"),
        };
        Self { stream, port, input: Vec::new(), empty_lines: 0, streamed: Vec::new() }
    }

    /// Returns the listening port that the connection announces, so that INFO of the primary names
    /// it. It is the local port of the connection; for a Unix socket, any number.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a request to the primary.
    ///
    /// # Panics
    /// Panics when the connection is closed.
    pub fn send(&mut self, words: &[&str]) {
        let mut bytes = Vec::new();
        encode_request(words, &mut bytes);
        self.send_bytes(&bytes);
    }

    /// Sends bytes to the primary unchanged.
    ///
    /// # Panics
    /// Panics when the connection is closed.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the connection is open");
    }

    /// Sends a request to the primary and returns the line of its answer.
    pub fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.line()
    }

    /// Sends the first part of the handshake as Redis does: PING, REPLCONF with the listening port,
    /// and REPLCONF with `capabilities`.
    ///
    /// # Panics
    /// Panics when a request is not accepted.
    pub fn introduce(&mut self, capabilities: &[&str]) {
        assert_eq!(self.ask(&["PING"]), "+PONG");
        let port = self.port.to_string();
        assert_eq!(self.ask(&["REPLCONF", "listening-port", &port]), "+OK");
        if !capabilities.is_empty() {
            let mut words = vec!["REPLCONF"];
            capabilities.iter().for_each(|capability| words.extend(["capa", capability]));
            assert_eq!(self.ask(&words), "+OK");
        }
    }

    /// Sends PSYNC with a replication ID and an offset, and returns the primary's answer.
    pub fn psync(&mut self, id: &str, offset: i64) -> Psync {
        let line = self.ask(&["PSYNC", id, &offset.to_string()]);
        Psync::of(line)
    }

    /// Returns the requests of [`Self::introduce`] (PING and REPLCONF) and a PSYNC as bytes.
    pub fn handshake(&self, capabilities: &[&str], id: &str, offset: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_request(&["PING"], &mut bytes);
        encode_request(&["REPLCONF", "listening-port", &self.port.to_string()], &mut bytes);
        let mut words = vec!["REPLCONF"];
        capabilities.iter().for_each(|capability| words.extend(["capa", capability]));
        encode_request(&words, &mut bytes);
        encode_request(&["PSYNC", id, &offset.to_string()], &mut bytes);
        bytes
    }

    /// Sends the first requests of the handshake and PSYNC, all in one piece. Returns the answer to
    /// PSYNC.
    ///
    /// # Panics
    /// Panics when a request before PSYNC is not accepted.
    pub fn psync_at_once(&mut self, capabilities: &[&str], id: &str, offset: i64) -> Psync {
        let bytes = self.handshake(capabilities, id, offset);
        self.send_bytes(&bytes);
        assert_eq!([self.line(), self.line(), self.line()], ["+PONG", "+OK", "+OK"]);
        Psync::of(self.line())
    }

    /// Waits for the next line that is not empty, and returns it without its line end. Primaries
    /// send empty lines while a snapshot is made.
    pub fn line(&mut self) -> String {
        self.empty_lines = 0;
        loop {
            let end = loop {
                match self.input.iter().position(|&byte| byte == b'\n') {
                    Some(end) => break end,
                    None => self.receive().unwrap_or_else(|error| panic!("no line: {error}")),
                }
            };
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.is_empty() {
                return line;
            }
            self.empty_lines += 1;
        }
    }

    /// Returns the number of empty lines (signs of life) that the primary sent right before its
    /// last line.
    pub fn empty_lines(&self) -> usize {
        self.empty_lines
    }

    /// Reads the snapshot that a primary sends for a full synchronisation, with its length or with
    /// its end mark.
    ///
    /// # Panics
    /// Panics when the primary sends anything else.
    pub fn snapshot(&mut self) -> Snapshot {
        let line = self.line();
        let start = line.strip_prefix('$').unwrap_or_else(|| panic!("no snapshot but {line:?}"));
        let Some(mark) = start.strip_prefix("EOF:") else {
            let len_bytes: usize = start.parse().expect("the length of the snapshot");
            return Snapshot { has_mark: false, bytes: self.take(len_bytes) };
        };
        assert_eq!(mark.len(), MARK_BYTES, "{line}");
        let mut searched = 0;
        loop {
            let found = self.input[searched..].windows(MARK_BYTES).position(|part| part == mark.as_bytes());
            if let Some(at) = found {
                let bytes = self.take(searched + at);
                self.take(MARK_BYTES);
                return Snapshot { has_mark: true, bytes };
            }
            searched = self.input.len().saturating_sub(MARK_BYTES);
            self.receive().expect("the mark comes");
        }
    }

    /// Acknowledges the replication stream up to `offset` (REPLCONF ACK).
    pub fn acknowledge(&mut self, offset: u64) {
        self.send(&["REPLCONF", "ACK", &offset.to_string()]);
    }

    /// Returns the words of the next command of the replication stream, as text.
    ///
    /// # Panics
    /// Panics when the connection ends, or no command comes.
    pub fn command(&mut self) -> Vec<String> {
        loop {
            if let Some((value, len_bytes)) = decode(&self.input).expect("the stream is well formed") {
                self.streamed.extend(self.input.drain(..len_bytes));
                let Value::Array(words) = value else { panic!("no command but {value}") };
                let text =
                    |word: &Value| String::from_utf8_lossy(word.as_bytes().expect("a word")).into_owned();
                return words.iter().map(text).collect();
            }
            self.receive().expect("the stream goes on");
        }
    }

    /// Returns the next commands of the replication stream up to the one with the words `last`,
    /// each as one line. PINGs are left out, because a primary sends them at any time.
    pub fn commands_up_to(&mut self, last: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let command = self.command();
            if command.len() == 1 && command[0].eq_ignore_ascii_case("ping") {
                continue;
            }
            lines.push(command.join(" "));
            if command == last {
                return lines;
            }
        }
    }

    /// Returns the bytes of all commands of the replication stream that were returned so far.
    pub fn streamed(&self) -> &[u8] {
        &self.streamed
    }

    /// Waits for the next `len_bytes` bytes from the primary and returns them.
    ///
    /// # Panics
    /// Panics when they do not arrive in time.
    pub fn take(&mut self, len_bytes: usize) -> Vec<u8> {
        while self.input.len() < len_bytes {
            self.receive().expect("the bytes come");
        }
        self.input.drain(..len_bytes).collect()
    }

    /// Returns the bytes that have arrived from the primary; waits for at least one. Returns
    /// nothing if the primary has closed the connection.
    pub fn take_some(&mut self) -> Vec<u8> {
        if self.input.is_empty() {
            // The end of the connection leaves nothing to return.
            let _ = self.receive();
        }
        std::mem::take(&mut self.input)
    }

    /// Returns true if no byte arrives from the primary within `time`. Used to check that it sends
    /// nothing.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("the timeout is not zero");
        let received = self.receive();
        self.stream.set_read_timeout(Some(READ_TIMEOUT)).expect("the timeout is not zero");
        self.input.is_empty() && received.is_err()
    }

    /// Reads until the primary closes the connection. Returns the bytes received before.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.receive().is_ok() {}
        std::mem::take(&mut self.input)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        let len_bytes = self.stream.read(&mut chunk)?;
        if len_bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.input.extend_from_slice(&chunk[..len_bytes]);
        Ok(())
    }
}

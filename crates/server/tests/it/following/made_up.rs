//! A primary that the test simulates (made up): it sends one snapshot, then a replication stream
//! that the test writes. It can send data that no real server sends.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The replication ID of the primary that the test simulates.
const ID: &str = "0123456789012345678901234567890123456789";

/// A primary that exists only in the test, as threads that serve its replicas.
pub struct MadeUpPrimary {
    port: u16,
    shared: Arc<Shared>,
}

/// The state that all connections of the simulated primary share.
struct Shared {
    snapshot: Vec<u8>,
    written: Mutex<Written>,
    grows: Condvar,
}

#[derive(Default)]
struct Written {
    /// The whole replication stream, from the offset of the snapshot on.
    stream: Vec<u8>,
    full_syncs: u64,
}

impl MadeUpPrimary {
    /// Starts a primary with an RDB file that contains the keys of these RDB records in database 0.
    pub fn start(records: &[u8]) -> Self {
        let snapshot = [b"REDIS0012\xfe\0", records, b"\xff\0\0\0\0\0\0\0\0"].concat();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("no thread panicked");
        let port = listener.local_addr().expect("no thread panicked").port();
        let written = Mutex::default();
        let shared = Arc::new(Shared { snapshot, written, grows: Condvar::new() });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(connection));
            }
        });
        let primary = Self { port, shared };
        primary.send(&["SELECT 0"]);
        primary
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Appends commands, one on each line, to the replication stream.
    pub fn send(&self, lines: &[&str]) {
        let mut written = self.shared.written.lock().expect("no thread panicked");
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            resp::encode_request(&words, &mut written.stream);
        }
        self.shared.grows.notify_all();
    }

    /// Returns the number of full synchronisations that replicas have requested.
    pub fn full_syncs(&self) -> u64 {
        self.shared.written.lock().expect("no thread panicked").full_syncs
    }
}

impl Shared {
    /// Answers the handshake of a replica, then sends the replication stream until the replica
    /// disconnects.
    fn serve(&self, mut connection: TcpStream) -> Option<()> {
        let mut requests = BufReader::new(connection.try_clone().ok()?);
        loop {
            let words = request(&mut requests)?;
            let answer = match words.first()?.to_ascii_uppercase().as_str() {
                "PING" => "+PONG\r\n",
                "PSYNC" => return self.stream(connection, &words),
                _ => "+OK\r\n",
            };
            connection.write_all(answer.as_bytes()).ok()?;
        }
    }

    fn stream(&self, mut connection: TcpStream, psync: &[String]) -> Option<()> {
        let mut at = match (psync.get(1)?.as_str(), psync.get(2)?.parse::<usize>()) {
            (ID, Ok(offset)) => {
                connection.write_all(b"+CONTINUE\r\n").ok()?;
                offset - 1
            }
            _ => {
                self.written.lock().expect("no thread panicked").full_syncs += 1;
                let head = format!("+FULLRESYNC {ID} 0\r\n${}\r\n", self.snapshot.len());
                connection.write_all(head.as_bytes()).ok()?;
                connection.write_all(&self.snapshot).ok()?;
                0
            }
        };
        loop {
            let written = self.written.lock().expect("no thread panicked");
            let written = self
                .grows
                .wait_while(written, |written| written.stream.len() == at)
                .expect("no thread panicked");
            let bytes = written.stream[at..].to_vec();
            drop(written);
            at += bytes.len();
            connection.write_all(&bytes).ok()?;
        }
    }
}

/// Reads the words of a request; `None` at the end of the connection.
fn request(from: &mut impl BufRead) -> Option<Vec<String>> {
    let count = number(from)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(from)? + 2];
            from.read_exact(&mut word).ok()?;
            String::from_utf8(word[..word.len() - 2].to_vec()).ok()
        })
        .collect()
}

/// Reads a line of a request: a type byte (`*` or `$`), then a number. Returns the number; `None`
/// if the line has none.
fn number(from: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    line.trim().get(1..)?.parse().ok()
}

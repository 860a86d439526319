//! A server with deliberately odd behaviour. It delays, stalls, loses replies, returns errors and
//! closes connections as configured, so that a test knows the expected figures. It has a thread per
//! connection. SET and GET work on one map. VADD and VSIM with FP32 work on vectors, by exact
//! search. Any other request is answered with `+OK`.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bench::spec::{Endpoint, Limit, Load, RunSpec, Target, Watch};
use bench::workload::{TemplateOptions, Workload};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The odd behaviour of the server. Requests are counted over all connections, without PING, AUTH,
/// HELLO, SELECT, CLIENT, COMMAND and CLUSTER SLOTS.
#[derive(Clone, Debug, Default)]
pub struct Oddities {
    /// The delay of each reply of the server.
    pub delay: Duration,
    /// The interval of requests that are delayed in addition (every n-th), and this delay.
    pub slow_every: Option<(u64, Duration)>,
    /// A single stall: the number of the request at which it begins, and its duration. During the
    /// stall no request is answered.
    pub stall: Option<(u64, Duration)>,
    /// The interval of requests that get an error reply: every n-th request.
    pub error_every: Option<u64>,
    /// The number of the request at which all connections are closed.
    pub vanish_at: Option<u64>,
    /// The number of the first request that gets no reply; later counted requests get none either.
    pub silent_from: Option<u64>,
    /// True if the server rejects AUTH.
    pub refuses_auth: bool,
    /// True if GET returns another value than SET wrote, and VSIM another element than the nearest.
    pub forges: bool,
}

/// Returns the path of a PEM file in `tests/tls`.
pub fn pem(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// The vectors of a set by the names of their elements.
type VectorSet = BTreeMap<Vec<u8>, Vec<f32>>;

/// A running server with odd behaviour. Its threads end with their connections.
pub struct SlowServer {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    oddities: Oddities,
    requests: AtomicU64,
    connections: AtomicU64,
    stalled_until: Mutex<Option<Instant>>,
    map: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// The vector sets that VADD has filled, by their keys.
    vectors: Mutex<HashMap<Vec<u8>, VectorSet>>,
    sockets: Mutex<Vec<TcpStream>>,
    /// The encoded reply that the server gives to CLUSTER SLOTS.
    slots: Mutex<Vec<u8>>,
    /// The commands received before the first counted request, up to and including the first PING.
    first_words: Mutex<Vec<String>>,
}

impl SlowServer {
    pub fn start(oddities: Oddities) -> Self {
        Self::start_with(oddities, None, 0)
    }

    /// Starts a server with the given odd behaviour at port `port`.
    pub fn start_at(port: u16, oddities: Oddities) -> Self {
        Self::start_with(oddities, None, port)
    }

    /// Starts a server that speaks TLS, with the certificate in `tests/tls`.
    pub fn start_tls(oddities: Oddities) -> Self {
        let chain = CertificateDer::pem_file_iter(pem("cert.pem")).unwrap();
        let chain = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(pem("key.pem")).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
        Self::start_with(oddities, Some(Arc::new(config)), 0)
    }

    fn start_with(oddities: Oddities, tls: Option<Arc<ServerConfig>>, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { oddities, ..State::default() });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                state.connections.fetch_add(1, SeqCst);
                if state.oddities.vanish_at.is_some() {
                    state.sockets.lock().unwrap().push(socket.try_clone().unwrap());
                }
                socket.set_nodelay(true).unwrap();
                let tls = tls.clone();
                thread::spawn(move || match tls {
                    None => state.serve(socket),
                    Some(config) => {
                        let tls = ServerConnection::new(config).unwrap();
                        state.serve(StreamOwned::new(tls, socket));
                    }
                });
            }
        });
        Self { address, state }
    }

    /// Starts a server without odd behaviour at a Unix socket.
    pub fn start_unix(path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let state = Arc::new(State::default());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                thread::spawn(move || state.serve(socket));
            }
        });
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the server's reply to CLUSTER SLOTS: the servers at `ports` serve equal parts of the
    /// slots.
    pub fn serve_slots_with(&self, ports: [u16; 2]) {
        let mut reply = b"*2\r\n".to_vec();
        for (port, (first, last)) in ports.into_iter().zip([(0, 8191), (8192, 16383)]) {
            reply
                .extend(format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n").bytes());
        }
        *self.state.slots.lock().unwrap() = reply;
    }

    /// Returns the number of counted requests received. The commands excepted in [`Oddities`] are
    /// not counted.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(SeqCst)
    }

    /// Returns the commands received before the first counted request, up to and including the
    /// first PING.
    pub fn first_words(&self) -> Vec<String> {
        self.state.first_words.lock().unwrap().clone()
    }

    /// Returns the value that SET last wrote to `key`; `None` if the key does not exist.
    pub fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.state.map.lock().unwrap().get(key).cloned()
    }

    /// Returns the number of elements of each vector set, by key.
    pub fn vector_counts(&self) -> BTreeMap<String, usize> {
        let sets = self.state.vectors.lock().unwrap();
        sets.iter().map(|(key, set)| (String::from_utf8_lossy(key).into_owned(), set.len())).collect()
    }

    /// Returns the number of connections that the server has accepted.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(SeqCst)
    }

    /// Creates the specification of a run against this server: the command template `line` over
    /// `connections` connections until `limit`.
    pub fn spec(&self, line: &str, connections: usize, limit: Limit) -> RunSpec {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: self.port() };
        RunSpec {
            target: Target { endpoint, ..Target::default() },
            workload: Workload::from_templates("", &[(1, line)], &TemplateOptions::default()).unwrap(),
            load: Load { connections, limit, ..Load::default() },
            watch: Watch::default(),
        }
    }
}

/// Starts a server that costs as little as possible: it only counts bytes, and replies to PING
/// only. Returns its port.
pub fn start_instant() -> u16 {
    const REQUEST_LEN: usize = b"*1\r\n$4\r\nPING\r\n".len();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                let replies = b"+PONG\r\n".repeat(10_000);
                let (mut chunk, mut waiting) = (vec![0; 9_000 * REQUEST_LEN], 0);
                while let Ok(received @ 1..) = socket.read(&mut chunk) {
                    waiting += received;
                    let answered = waiting / REQUEST_LEN;
                    waiting %= REQUEST_LEN;
                    if socket.write_all(&replies[..answered * b"+PONG\r\n".len()]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Decodes the little-endian 32-bit floats of a vector.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

impl State {
    /// Serves one connection with the server's odd behaviour until it is closed.
    fn serve(&self, mut socket: impl Read + Write) {
        let (mut input, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            let received = socket.read(&mut chunk).unwrap_or(0);
            if received == 0 {
                return;
            }
            input.extend_from_slice(&chunk[..received]);
            let mut at = 0;
            while let Ok(Some((request, len))) = resp::decode(&input[at..]) {
                at += len;
                let resp::Value::Array(arguments) = request else { return };
                let arguments: Vec<&[u8]> = arguments.iter().filter_map(resp::Value::as_bytes).collect();
                let Some(reply) = self.reply(&arguments) else { continue };
                if socket.write_all(&reply).is_err() {
                    return;
                }
            }
            input.drain(..at);
        }
    }

    /// Returns the encoded reply to a request, after the configured delay; `None` if the request
    /// gets no reply.
    fn reply(&self, arguments: &[&[u8]]) -> Option<Vec<u8>> {
        let odd = &self.oddities;
        if self.requests.load(SeqCst) == 0 {
            self.hear(arguments);
        }
        match arguments {
            [b"CLUSTER", b"SLOTS"] => return Some(self.slots.lock().unwrap().clone()),
            [b"COMMAND", ..] => return Some(b"-ERR unknown command\r\n".to_vec()),
            [b"PING"] => return Some(b"+PONG\r\n".to_vec()),
            [b"AUTH", ..] if odd.refuses_auth => return Some(b"-WRONGPASS invalid password\r\n".to_vec()),
            [b"AUTH" | b"HELLO" | b"SELECT" | b"CLIENT", ..] => return Some(b"+OK\r\n".to_vec()),
            _ => {}
        }
        let number = self.requests.fetch_add(1, SeqCst) + 1;
        if odd.vanish_at.is_some_and(|at| number >= at) {
            for socket in self.sockets.lock().unwrap().drain(..) {
                let _ = socket.shutdown(Shutdown::Both);
            }
            return None;
        }
        if odd.silent_from.is_some_and(|from| number >= from) {
            return None;
        }
        thread::sleep(odd.delay);
        if let Some((every, delay)) = odd.slow_every
            && number.is_multiple_of(every)
        {
            thread::sleep(delay);
        }
        self.stall(number);
        if odd.error_every.is_some_and(|every| number.is_multiple_of(every)) {
            return Some(b"-OOPS this one failed\r\n".to_vec());
        }
        Some(self.answer(arguments))
    }

    /// Records a command that arrives before the first counted request, up to the first PING.
    fn hear(&self, arguments: &[&[u8]]) {
        let mut words = self.first_words.lock().unwrap();
        if words.last().is_none_or(|last| last != "PING") {
            words.push(
                arguments.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "),
            );
        }
    }

    /// Starts the configured stall if it begins at request `number`, and sleeps until the stall
    /// ends.
    fn stall(&self, number: u64) {
        let mut until = self.stalled_until.lock().unwrap();
        if let Some((at, length)) = self.oddities.stall
            && number == at
        {
            *until = Some(Instant::now() + length);
        }
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        drop(until);
        thread::sleep(left);
    }

    /// Returns the reply to VSIM: the names of the `count` elements of `set` that are nearest to
    /// `query`.
    fn similar(&self, set: &[u8], query: &[u8], count: &[u8]) -> Vec<u8> {
        let count: usize = String::from_utf8_lossy(count).parse().unwrap();
        let query = floats(query);
        let sets = self.vectors.lock().unwrap();
        let cosine = |vector: &Vec<f32>| -> f32 { vector.iter().zip(&query).map(|(a, b)| a * b).sum() };
        let mut all: Vec<(f32, &Vec<u8>)> =
            sets.get(set).into_iter().flatten().map(|(name, vector)| (cosine(vector), name)).collect();
        all.sort_by(|one, other| other.0.total_cmp(&one.0));
        all.drain(..usize::from(self.oddities.forges));
        let mut reply = format!("*{count}\r\n").into_bytes();
        for (_, name) in &all[..count] {
            reply.extend_from_slice(format!("${}\r\n", name.len()).as_bytes());
            reply.extend_from_slice(&[name, &b"\r\n"[..]].concat());
        }
        reply
    }

    fn answer(&self, arguments: &[&[u8]]) -> Vec<u8> {
        match arguments {
            [b"DEL", set] => {
                self.vectors.lock().unwrap().remove(*set);
            }
            [b"VADD", set, b"FP32", vector, element, ..] => {
                let mut sets = self.vectors.lock().unwrap();
                sets.entry(set.to_vec()).or_default().insert(element.to_vec(), floats(vector));
            }
            [b"VSIM", set, b"FP32", query, b"COUNT", count, ..] => return self.similar(set, query, count),
            _ => {}
        }
        let mut map = self.map.lock().unwrap();
        match arguments {
            [b"SET", key, value] => {
                map.insert(key.to_vec(), value.to_vec());
                b"+OK\r\n".to_vec()
            }
            [b"GET", key] => match map.get(*key) {
                None => b"$-1\r\n".to_vec(),
                Some(value) => {
                    let mut reply = format!("${}\r\n", value.len()).into_bytes();
                    reply.extend_from_slice(value);
                    if self.oddities.forges {
                        *reply.last_mut().unwrap() ^= 1;
                    }
                    reply.extend_from_slice(b"\r\n");
                    reply
                }
            },
            _ => b"+OK\r\n".to_vec(),
        }
    }
}

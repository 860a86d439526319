//! The server of a run: how connections to it are opened, and the commands that each connection
//! sends before its first request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use net::Socket;
use resp::{Value, encode_request};
use rustls::StreamOwned;

use super::cluster::{ClusterMap, Node, SLOTS_REPLY_LEN_BYTES_MAX, key_at};
use super::tls::Connector;
use crate::BenchError;
use crate::spec::{Endpoint, RunSpec, Target};
use crate::workload::{Draw, Sequences, Workload};

/// The longest wait for a server to accept a connection. Also the longest wait for each read of a
/// cluster node's reply about slots or key positions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server of a run, with its name resolved, and the commands that each connection to it sends
/// first.
#[derive(Clone, Debug)]
pub(super) struct Server {
    place: Place,
    tls: Option<Connector>,
    pub(super) cluster: Option<ClusterMap>,
    /// The encoded commands that a connection sends before the run: HELLO or AUTH, SELECT and
    /// CLIENT TRACKING as needed, then PING.
    pub(super) greeting: Vec<u8>,
    /// The number of replies that the commands in `greeting` get.
    pub(super) greeting_replies: u32,
    /// The commands of `greeting` without the PING, for connections that are opened during a run.
    pub(super) reconnect_commands: Vec<u8>,
    /// The number of replies that the commands in `reconnect_commands` get.
    pub(super) greeting_again_replies: u32,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Server {
    /// Resolves the name of the server and chooses its first address that accepts a connection. Of
    /// a cluster, also requests the slot map. Returns an error if no address accepts.
    pub(super) fn find(spec: &RunSpec) -> Result<Self, BenchError> {
        let target = &spec.target;
        let tls = match (&target.tls, &target.endpoint) {
            (Some(options), Endpoint::Tcp { host, .. }) => Some(Connector::new(options, host)?),
            _ => None,
        };
        let address = target.endpoint.to_string();
        let refused = |error| BenchError::Connect { address: address.clone(), error };
        let place = match &target.endpoint {
            Endpoint::Unix(path) => {
                UnixStream::connect(path).map_err(refused)?;
                Place::Unix(path.clone())
            }
            Endpoint::Tcp { host, port } => {
                let mut outcome = Err(io::Error::other("the host name has no address"));
                for address in (host.as_str(), *port).to_socket_addrs().map_err(refused)? {
                    outcome = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map(|_| address);
                    if outcome.is_ok() {
                        break;
                    }
                }
                Place::Tcp(outcome.map_err(refused)?)
            }
        };
        let (reconnect_commands, greeting_again_replies) = greeting(target);
        let mut greeting = reconnect_commands.clone();
        encode_request(&["PING"], &mut greeting);
        let greeting_replies = greeting_again_replies + 1;
        let mut server = Self {
            place,
            tls,
            cluster: None,
            greeting,
            greeting_replies,
            reconnect_commands,
            greeting_again_replies,
        };
        if let (Place::Tcp(seed), true) = (&server.place, target.cluster) {
            server.cluster = Some(server.ask_for_map(*seed, &spec.workload)?);
        }
        Ok(server)
    }

    /// Returns the number of servers: the number of nodes of a cluster, otherwise 1.
    pub(super) fn node_count(&self) -> usize {
        self.cluster.as_ref().map_or(1, |map| map.nodes.len())
    }

    /// Adds TLS to `socket` if TLS is configured. `socket` leads to `node` of a cluster, or to the
    /// single server if `node` is `None`.
    fn secured(&self, socket: Socket, node: Option<&Node>) -> io::Result<Socket> {
        let Some(tls) = &self.tls else { return Ok(socket) };
        let side = match node {
            None => tls.side(),
            Some(node) => tls.for_node(&node.host).map_err(io::Error::other)?.side(),
        };
        Ok(socket.encrypted(side))
    }

    /// Opens a connection to `node` of a cluster, or to the single server, and waits until it is
    /// established.
    pub(super) fn connect(&self, node: Option<&Node>) -> io::Result<Socket> {
        let socket = match (node, &self.place) {
            (Some(Node { address, .. }), _) | (None, Place::Tcp(address)) => {
                TcpStream::connect_timeout(address, CONNECT_TIMEOUT)?.try_into()?
            }
            (None, Place::Unix(path)) => UnixStream::connect(path)?.try_into()?,
        };
        self.secured(socket, node)
    }

    /// Starts a connection to `node` of a cluster, or to the single server, without waiting for
    /// TCP. A connection to a Unix socket is established at once, because it takes no round trip.
    pub(super) fn begin_to_connect(&self, node: Option<&Node>) -> io::Result<Socket> {
        let socket = match (node, &self.place) {
            (Some(Node { address, .. }), _) | (None, Place::Tcp(address)) => Socket::connect(*address)?,
            (None, Place::Unix(path)) => UnixStream::connect(path)?.try_into()?,
        };
        self.secured(socket, node)
    }

    /// Requests the slot map of the cluster and the key positions of the requests of `workload`
    /// from the node at `seed`.
    fn ask_for_map(&self, seed: SocketAddr, workload: &Workload) -> Result<ClusterMap, BenchError> {
        let refused = |error| BenchError::Connect { address: seed.to_string(), error };
        let socket = TcpStream::connect_timeout(&seed, CONNECT_TIMEOUT).map_err(refused)?;
        socket.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(refused)?;
        let mut stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(socket),
            Some(tls) => Box::new(StreamOwned::new(tls.connection()?, socket)),
        };
        // The example requests use their own counters, so that the sequences of the run start at 0.
        let mut draw = Draw::new(0, Sequences::new(workload.sequences));
        let render = |request: &crate::workload::Weighted| {
            let mut bytes = Vec::new();
            request.template.render(&mut bytes, &mut draw);
            bytes
        };
        let examples: Vec<Vec<u8>> = workload.requests.iter().map(render).collect();
        let mut questions = self.reconnect_commands.clone();
        encode_request(&["CLUSTER", "SLOTS"], &mut questions);
        examples.iter().for_each(|example| push_getkeys(example, &mut questions));
        stream.write_all(&questions).map_err(refused)?;
        let mut input = Vec::new();
        let mut next = || next_reply(&mut *stream, &mut input, seed);
        for _ in 0..self.greeting_again_replies {
            let reply = next()?;
            if reply.is_error() {
                return Err(BenchError::Refused(reply.to_string()));
            }
        }
        let mut map = ClusterMap::parse(&next()?, seed).map_err(BenchError::Refused)?;
        let keys = examples.iter().map(|example| Ok(key_at(example, &next()?)));
        map.set_keys(keys.collect::<Result<_, BenchError>>()?);
        Ok(map)
    }
}

/// A blocking connection to a cluster node, with or without TLS.
trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Appends COMMAND GETKEYS with the words of the encoded `request` to `out`. For an inline PING,
/// which is not a RESP array, it has no arguments, and the server replies with an error.
fn push_getkeys(request: &[u8], out: &mut Vec<u8>) {
    let mut words: Vec<&[u8]> = vec![b"COMMAND", b"GETKEYS"];
    let decoded = resp::decode(request);
    if let Ok(Some((Value::Array(arguments), _))) = &decoded {
        words.extend(arguments.iter().filter_map(Value::as_bytes));
    }
    encode_request(&words, out);
}

/// Waits for the next reply from the node at `seed`. `input` holds the bytes that were received but
/// not decoded yet.
fn next_reply(stream: &mut dyn Stream, input: &mut Vec<u8>, seed: SocketAddr) -> Result<Value, BenchError> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let decoded = resp::decode(input).map_err(|error| BenchError::Refused(error.to_string()))?;
        if let Some((reply, len)) = decoded {
            input.drain(..len);
            return Ok(reply);
        }
        let received = match stream.read(&mut chunk) {
            Ok(received) => received,
            // A signal interrupted the read; the signal thread handles the signal. Linux does not
            // restart a read that has a timeout.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let silent_s = CONNECT_TIMEOUT.as_secs();
                return Err(BenchError::Refused(format!("no reply to CLUSTER SLOTS for {silent_s} s")));
            }
            Err(error) => return Err(BenchError::Connect { address: seed.to_string(), error }),
        };
        if received == 0 || input.len() > SLOTS_REPLY_LEN_BYTES_MAX {
            return Err(BenchError::Refused("incomplete reply to CLUSTER SLOTS".to_owned()));
        }
        input.extend_from_slice(&chunk[..received]);
    }
}

/// Encodes the commands that a connection sends first, and returns them with the number of their
/// replies. They do not include the final PING, which checks that the server accepts requests.
fn greeting(target: &Target) -> (Vec<u8>, u32) {
    let mut out = Vec::new();
    let mut replies = 0;
    let mut say = |words: &[&str]| {
        encode_request(words, &mut out);
        replies += 1;
    };
    let user = target.user.as_deref().unwrap_or("default");
    match (&target.password, target.resp3) {
        (Some(password), true) => say(&["HELLO", "3", "AUTH", user, password]),
        (Some(password), false) if target.user.is_some() => say(&["AUTH", user, password]),
        (Some(password), false) => say(&["AUTH", password]),
        (None, true) => say(&["HELLO", "3"]),
        (None, false) => {}
    }
    if target.db != 0 {
        say(&["SELECT", &target.db.to_string()]);
    }
    if target.tracking {
        say(&["CLIENT", "TRACKING", "on"]);
    }
    (out, replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_opens_with_what_its_target_asks_for() {
        let check = |target: Target, expected: &str| {
            let (bytes, replies) = greeting(&target);
            let mut lines = Vec::new();
            let mut at = 0;
            while let Some((value, len)) = resp::decode(&bytes[at..]).unwrap() {
                let Value::Array(words) = value else { panic!("{value}") };
                let words: Vec<_> =
                    words.iter().map(|word| String::from_utf8_lossy(word.as_bytes().unwrap())).collect();
                lines.push(words.join(" "));
                at += len;
            }
            assert_eq!((lines.join(", ").as_str(), lines.len()), (expected, replies as usize));
        };
        let password = Some("pw".to_owned());
        check(Target::default(), "");
        check(Target { password: password.clone(), db: 3, ..Target::default() }, "AUTH pw, SELECT 3");
        let user = Some("joe".to_owned());
        check(Target { user, password: password.clone(), ..Target::default() }, "AUTH joe pw");
        check(Target { password, resp3: true, ..Target::default() }, "HELLO 3 AUTH default pw");
    }
}

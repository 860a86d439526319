//! Where connections go and what each says before its first request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use net::Socket;
use resp::encode_request;

use super::cluster::{ClusterMap, SLOTS_REPLY_LEN_BYTES_MAX};
use super::tls::{Connector, Session};
use crate::BenchError;
use crate::spec::{Endpoint, Target};

/// How long a server may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A server whose name was looked up, and the words that open a connection to it.
#[derive(Clone, Debug)]
pub(super) struct Server {
    place: Place,
    tls: Option<Connector>,
    pub(super) cluster: Option<ClusterMap>,
    /// HELLO, AUTH, SELECT and a PING, encoded.
    pub(super) greeting: Vec<u8>,
    /// How many replies that gets.
    pub(super) greeting_replies: u32,
    /// The same without the PING: what opens a connection in the middle of a run.
    pub(super) greeting_again: Vec<u8>,
    /// How many replies that gets.
    pub(super) greeting_again_replies: u32,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Server {
    /// Looks the name up. The first address that accepts a connection is taken.
    pub(super) fn find(target: &Target) -> Result<Self, BenchError> {
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
                let mut outcome = Err(io::Error::other("the name has no address"));
                for address in (host.as_str(), *port).to_socket_addrs().map_err(refused)? {
                    outcome = TcpStream::connect_timeout(&address, CONNECT_WITHIN).map(|_| address);
                    if outcome.is_ok() {
                        break;
                    }
                }
                Place::Tcp(outcome.map_err(refused)?)
            }
        };
        let (greeting_again, greeting_again_replies) = greeting(target);
        let mut greeting = greeting_again.clone();
        encode_request(&["PING"], &mut greeting);
        let greeting_replies = greeting_again_replies + 1;
        let cluster = match (&place, target.cluster) {
            (Place::Tcp(seed), true) => Some(cluster_map(*seed, &greeting_again, greeting_again_replies)?),
            _ => None,
        };
        Ok(Self { place, tls, cluster, greeting, greeting_replies, greeting_again, greeting_again_replies })
    }

    /// The TLS of a new connection, where there is TLS.
    pub(super) fn session(&self) -> Result<Option<Box<Session>>, BenchError> {
        self.tls.as_ref().map(|tls| tls.session().map(Box::new)).transpose()
    }

    /// How many servers there are: 1 unless it is a cluster.
    pub(super) fn node_count(&self) -> usize {
        self.cluster.as_ref().map_or(1, |map| map.nodes.len())
    }

    /// A connection to server `node` that is there, waiting for it.
    pub(super) fn connect(&self, node: usize) -> io::Result<Socket> {
        if let Some(map) = &self.cluster {
            return TcpStream::connect_timeout(&map.nodes[node], CONNECT_WITHIN)?.try_into();
        }
        match &self.place {
            Place::Tcp(address) => TcpStream::connect_timeout(address, CONNECT_WITHIN)?.try_into(),
            Place::Unix(path) => UnixStream::connect(path)?.try_into(),
        }
    }

    /// A connection that may not be there yet. One to a Unix socket is: it takes no round trip.
    pub(super) fn begin_to_connect(&self) -> io::Result<Socket> {
        match &self.place {
            Place::Tcp(address) => Socket::connect(*address),
            Place::Unix(path) => UnixStream::connect(path)?.try_into(),
        }
    }
}

/// Asks the node at `seed` for the cluster's map.
fn cluster_map(seed: SocketAddr, greeting: &[u8], greeting_replies: u32) -> Result<ClusterMap, BenchError> {
    let refused = |error| BenchError::Connect { address: seed.to_string(), error };
    let mut socket = TcpStream::connect_timeout(&seed, CONNECT_WITHIN).map_err(refused)?;
    socket.set_read_timeout(Some(CONNECT_WITHIN)).map_err(refused)?;
    let mut request = greeting.to_vec();
    encode_request(&["CLUSTER", "SLOTS"], &mut request);
    socket.write_all(&request).map_err(refused)?;
    let (mut input, mut chunk, mut left) = (Vec::new(), vec![0; 64 * 1024], greeting_replies);
    loop {
        let decoded = resp::decode(&input).map_err(|error| BenchError::Refused(error.to_string()))?;
        if let Some((reply, len)) = decoded {
            if left == 0 {
                return ClusterMap::parse(&reply, seed).map_err(BenchError::Refused);
            }
            if reply.is_error() {
                return Err(BenchError::Refused(reply.to_string()));
            }
            left -= 1;
            input.drain(..len);
            continue;
        }
        let received = socket.read(&mut chunk).map_err(refused)?;
        if received == 0 || input.len() > SLOTS_REPLY_LEN_BYTES_MAX {
            return Err(BenchError::Refused("CLUSTER SLOTS got no whole reply".to_owned()));
        }
        input.extend_from_slice(&chunk[..received]);
    }
}

/// What opens a connection. A PING behind it makes sure that the server has taken the connection in, and
/// that it wants no password.
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
                let resp::Value::Array(words) = value else { panic!("{value}") };
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

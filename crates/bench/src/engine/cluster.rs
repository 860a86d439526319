//! The slot map of a cluster: the node that serves each key.
//!
//! The slot map is read once (CLUSTER SLOTS) and updated by each MOVED. A node that only a
//! redirection names is added. Each thread has its own map. The server also gives the position of
//! the key (COMMAND GETKEYS), once for each request of the workload. Source: the cluster
//! specification, redis.io/docs.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use resp::Value;

use crate::workload::{SLOTS, slot};

/// The longest reply about a cluster that is accepted, in bytes; CLUSTER SLOTS has the longest.
pub(super) const SLOTS_REPLY_LEN_BYTES_MAX: usize = 16 << 20;
/// The largest number of nodes in a map: the maximum that the cluster specification recommends.
const NODES_MAX: usize = 1000;

/// A node of a cluster: its host and port, and its socket address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The IP address or host name by which the cluster calls the node.
    pub(super) host: String,
    pub(super) address: SocketAddr,
}

impl Node {
    /// Returns the name of the node for messages: `host:port`.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.address.port())
    }
}

/// The nodes of a cluster and the slots that each serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterMap {
    pub(super) nodes: Vec<Node>,
    /// The index in `nodes` of the node that serves each slot.
    slots: Vec<u16>,
    /// The position of the key among the words of each request of the workload; the command has
    /// position 0. `None` for a request without a key.
    key_at: Vec<Option<usize>>,
    /// The index of the node that received the last request without a key; such requests go to all
    /// nodes by turns.
    turn: usize,
}

/// A redirection that a node of a cluster sent instead of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// MOVED: another node serves the slot from now on. Holds the index of that node.
    Moved(usize),
    /// ASK: the slot is being migrated, and the first node does not have the key. Only this request
    /// goes to the other node, after ASKING. Holds the index of the other node.
    Ask(usize),
}

impl ClusterMap {
    /// Parses the reply of the node at `seed` to CLUSTER SLOTS. The IP address of `seed` replaces
    /// empty node names. Returns a one-line error if the reply is malformed or a slot has no node.
    pub(super) fn parse(reply: &Value, seed: SocketAddr) -> Result<Self, String> {
        let Value::Array(ranges) = reply else {
            return Err(format!("unexpected reply to CLUSTER SLOTS: {reply}"));
        };
        let mut map = Self { nodes: Vec::new(), slots: vec![u16::MAX; SLOTS], key_at: Vec::new(), turn: 0 };
        for range in ranges {
            let wrong = || "invalid range in the reply to CLUSTER SLOTS".to_owned();
            let Value::Array(fields) = range else { return Err(wrong()) };
            let [Value::Integer(first), Value::Integer(last), Value::Array(primary), ..] = &fields[..] else {
                return Err(wrong());
            };
            let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else {
                return Err(wrong());
            };
            let [host, Value::Integer(port), ..] = &primary[..] else { return Err(wrong()) };
            let port = u16::try_from(*port).map_err(|_| wrong())?;
            let host = host.as_bytes().and_then(|host| std::str::from_utf8(host).ok()).unwrap_or("");
            if first > last || last >= SLOTS {
                return Err(wrong());
            }
            let node = map.node(host, port, seed.ip());
            let node = node.ok_or_else(|| format!("the cluster's node {host}:{port} has no address"))?;
            map.slots[first..=last].fill(node as u16);
        }
        if map.slots.contains(&u16::MAX) {
            return Err("the cluster does not serve all slots".to_owned());
        }
        Ok(map)
    }

    /// Sets the position of the key in each request of the workload; `None` for a request without a
    /// key.
    pub(super) fn set_keys(&mut self, key_at: Vec<Option<usize>>) {
        self.key_at = key_at;
    }

    /// Returns the index of the node `host:port` in the map; adds the node if it is unknown. An
    /// empty host or `?` means the address `here`. Returns `None` if the host has no address or the
    /// map is full.
    fn node(&mut self, host: &str, port: u16, here: IpAddr) -> Option<usize> {
        let host = if matches!(host, "" | "?") { here.to_string() } else { host.to_owned() };
        let known = |node: &Node| node.host == host && node.address.port() == port;
        if let Some(index) = self.nodes.iter().position(known) {
            return Some(index);
        }
        let address = match host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port),
            Err(_) => (host.as_str(), port).to_socket_addrs().ok()?.next()?,
        };
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        self.nodes.push(Node { host, address });
        Some(self.nodes.len() - 1)
    }

    /// Returns the index of the node that serves request number `request` of the workload. `bytes`
    /// is the encoded request. Requests without a key go to all nodes in turn.
    pub(super) fn node_of(&mut self, request: usize, bytes: &[u8]) -> usize {
        let at = self.key_at.get(request).copied().flatten();
        match at.and_then(|at| argument(bytes, at)) {
            Some(key) => usize::from(self.slots[usize::from(slot(key))]),
            None => {
                self.turn = (self.turn + 1) % self.nodes.len();
                self.turn
            }
        }
    }

    /// Parses the error reply of node `from` as a redirection: `MOVED 3999 127.0.0.1:6381` or `ASK
    /// 3999 127.0.0.1:6381`. Returns `None` for any other error. MOVED updates the map.
    pub(super) fn redirect(&mut self, error: &[u8], from: usize) -> Option<Redirect> {
        let text = std::str::from_utf8(error).ok()?;
        let mut words = text.split(' ');
        let kind = words.next().filter(|kind| matches!(*kind, "MOVED" | "ASK"))?;
        let slot = words.next()?.parse::<usize>().ok().filter(|&slot| slot < SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let here = self.nodes[from].address.ip();
        let node = self.node(host, port.parse().ok()?, here)?;
        if kind == "ASK" {
            return Some(Redirect::Ask(node));
        }
        self.slots[slot] = node as u16;
        Some(Redirect::Moved(node))
    }
}

/// Returns the word at position `at` of an encoded request; the command has position 0. Returns
/// `None` if the request is not a RESP array or is shorter.
fn argument(request: &[u8], at: usize) -> Option<&[u8]> {
    let line_len = |bytes: &[u8]| bytes.iter().position(|&byte| byte == b'\r');
    let mut rest = request.strip_prefix(b"*")?;
    rest = rest.get(line_len(rest)? + 2..)?;
    let mut before = at;
    loop {
        let header_len = line_len(rest)?;
        let len = std::str::from_utf8(rest[..header_len].strip_prefix(b"$")?).ok()?.parse::<usize>().ok()?;
        let text = rest.get(header_len + 2..)?;
        if before == 0 {
            return text.get(..len);
        }
        rest = text.get(len + 2..)?;
        before -= 1;
    }
}

/// Returns the position of the key in the encoded `request`, from the `reply` to COMMAND GETKEYS;
/// `None` for a command without keys. If the server replies with another error, the first argument
/// counts as the key.
pub(super) fn key_at(request: &[u8], reply: &Value) -> Option<usize> {
    let Ok(Some((Value::Array(arguments), _))) = resp::decode(request) else { return None };
    let first = (arguments.len() > 1).then_some(1);
    match reply {
        Value::Array(keys) => {
            let key = keys.first()?;
            arguments
                .iter()
                .skip(1)
                .position(|argument| argument.as_bytes() == key.as_bytes())
                .map(|at| at + 1)
        }
        Value::Error(text) if String::from_utf8_lossy(text).contains("no key arguments") => None,
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ClusterMap {
        let node = |port| Value::Array(vec![Value::Bulk(b"127.0.0.1".to_vec()), Value::Integer(port)]);
        let range =
            |first, last, port| Value::Array(vec![Value::Integer(first), Value::Integer(last), node(port)]);
        let reply = Value::Array(vec![range(0, 8191, 7001), range(8192, 16383, 7002)]);
        ClusterMap::parse(&reply, "127.0.0.1:7001".parse().unwrap()).unwrap()
    }

    fn encoded(words: &[&str]) -> Vec<u8> {
        let mut request = Vec::new();
        resp::encode_request(words, &mut request);
        request
    }

    #[test]
    fn requests_go_where_their_key_is_and_those_without_one_go_round() {
        let mut map = map();
        map.set_keys(vec![Some(1), Some(3), None]);
        assert_eq!(map.node_of(0, &encoded(&["GET", "foo"])), 1);
        assert_eq!(map.node_of(1, &encoded(&["EVAL", "return 1", "1", "foo"])), 1);
        assert_eq!(map.node_of(1, &encoded(&["EVAL", "return 1", "1", "bar"])), 0);
        let ping = encoded(&["PING"]);
        let nodes: Vec<usize> = (0..4).map(|_| map.node_of(2, &ping)).collect();
        assert_eq!(nodes, [1, 0, 1, 0]);
        map.node_of(2, b"PING\r\n");
    }

    #[test]
    fn redirections_are_understood_and_moved_corrects_the_map() {
        let mut map = map();
        map.set_keys(vec![Some(1)]);
        let foo = encoded(&["GET", "foo"]);
        assert_eq!(map.redirect(b"ASK 12182 127.0.0.1:7001", 1), Some(Redirect::Ask(0)));
        assert_eq!(map.node_of(0, &foo), 1);
        assert_eq!(map.redirect(b"MOVED 12182 127.0.0.1:7001", 1), Some(Redirect::Moved(0)));
        assert_eq!(map.node_of(0, &foo), 0);
        // First an unknown node, then one without a name. The latter has the address of the node
        // that replied.
        assert_eq!(map.redirect(b"MOVED 12182 127.0.0.2:7001", 0), Some(Redirect::Moved(2)));
        assert_eq!(map.redirect(b"MOVED 12182 :7003", 2), Some(Redirect::Moved(3)));
        assert_eq!(map.nodes[3].name(), "127.0.0.2:7003");
        for nonsense in
            ["MOVED", "MOVED 99999 127.0.0.1:7001", "MOVED 1 nowhere", "ASK 1 127.0.0.1:x", "ERR 1"]
        {
            let before = map.clone();
            assert_eq!(map.redirect(nonsense.as_bytes(), 0), None);
            assert_eq!(map, before);
        }
    }

    #[test]
    fn redirections_to_ever_more_nodes_end() {
        let mut map = map();
        let to = |port: u16| format!("MOVED 1 127.0.0.1:{port}");
        assert!((8000..8998).all(|port| map.redirect(to(port).as_bytes(), 0).is_some()));
        assert_eq!(map.redirect(to(9000).as_bytes(), 0), None);
    }

    #[test]
    fn a_key_is_found_where_the_server_says_it_is() {
        let keys = |keys: &[&str]| {
            Value::Array(keys.iter().map(|key| Value::Bulk(key.as_bytes().to_vec())).collect())
        };
        let eval = encoded(&["EVAL", "return 1", "2", "a", "b"]);
        assert_eq!(key_at(&eval, &keys(&["a", "b"])), Some(3));
        let none = Value::Error(b"ERR The command has no key arguments".to_vec());
        assert_eq!(key_at(&encoded(&["ECHO", "a"]), &none), None);
        let unknown = Value::Error(b"ERR Unknown subcommand".to_vec());
        assert_eq!(key_at(&encoded(&["GET", "a"]), &unknown), Some(1));
        assert_eq!(key_at(&encoded(&["PING"]), &unknown), None);
        assert_eq!(key_at(b"PING\r\n", &unknown), None);
    }

    #[test]
    fn what_is_no_map_is_told() {
        let seed: SocketAddr = "127.0.0.1:7001".parse().unwrap();
        let parse = |reply: &Value| ClusterMap::parse(reply, seed).unwrap_err();
        assert!(
            parse(&Value::Error(b"ERR This instance has cluster support disabled".to_vec()))
                .contains("disabled")
        );
        assert!(parse(&Value::Array(vec![])).contains("does not serve all slots"));
        assert!(parse(&Value::Array(vec![Value::Array(vec![Value::Integer(-1)])])).contains("invalid range"));
    }
}

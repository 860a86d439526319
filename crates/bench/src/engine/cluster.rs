//! A cluster: which node serves which key.
//!
//! The map is asked for once (CLUSTER SLOTS) and corrected by MOVED. A key's slot is CRC16 of it, or of
//! what stands between its first `{` and the next `}`, modulo 16,384. The key of a request is taken to be
//! its first argument, as it is for all commands that this program makes up itself.
//! Source: the cluster specification, redis.io/docs.

use std::net::SocketAddr;

use crc::{CRC_16_XMODEM, Crc, Table};
use resp::Value;

const SLOTS: usize = 16_384;
const CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);
/// Bytes of a reply to CLUSTER SLOTS that are read at most.
pub(super) const SLOTS_REPLY_LEN_BYTES_MAX: usize = 16 << 20;

/// The nodes of a cluster and what each serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterMap {
    pub(super) nodes: Vec<SocketAddr>,
    /// By slot: the index of its node.
    slots: Vec<u16>,
}

impl ClusterMap {
    /// Reads the reply to CLUSTER SLOTS that `seed` gave; `seed` itself stands in for nodes without a name.
    /// The error is a line for a person.
    pub(super) fn parse(reply: &Value, seed: SocketAddr) -> Result<Self, String> {
        let Value::Array(ranges) = reply else { return Err(format!("CLUSTER SLOTS got {reply}")) };
        let mut map = Self { nodes: Vec::new(), slots: vec![u16::MAX; SLOTS] };
        for range in ranges {
            let wrong = || "CLUSTER SLOTS got a range that makes no sense".to_owned();
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
            let ip = if host.is_empty() { seed.ip() } else { host.parse().map_err(|_| wrong())? };
            if first > last || last >= SLOTS {
                return Err(wrong());
            }
            let node = map.node(SocketAddr::new(ip, port));
            map.slots[first..=last].fill(node);
        }
        if map.slots.contains(&u16::MAX) {
            return Err("the cluster does not serve all slots".to_owned());
        }
        Ok(map)
    }

    /// The index of `address`, new or known.
    fn node(&mut self, address: SocketAddr) -> u16 {
        let known = self.nodes.iter().position(|node| *node == address);
        let index = known.unwrap_or_else(|| {
            self.nodes.push(address);
            self.nodes.len() - 1
        });
        // There are fewer ranges than slots, so fewer nodes than 65,536.
        index as u16
    }

    /// The node that serves the encoded `request`; the first one where it has no key.
    pub(super) fn node_of(&self, request: &[u8]) -> usize {
        key(request).map_or(0, |key| usize::from(self.slots[usize::from(slot(key))]))
    }

    /// Corrects the map by the text of a MOVED error (`MOVED 3999 127.0.0.1:6381`), if the node is known.
    pub(super) fn correct(&mut self, error: &[u8]) {
        let text = String::from_utf8_lossy(error);
        let mut words = text.split(' ').skip(1);
        let slot = words.next().and_then(|slot| slot.parse::<usize>().ok()).filter(|&slot| slot < SLOTS);
        let address = words.next().and_then(|address| address.parse::<SocketAddr>().ok());
        if let (Some(slot), Some(address)) = (slot, address)
            && let Some(node) = self.nodes.iter().position(|node| *node == address)
        {
            self.slots[slot] = node as u16;
        }
    }
}

/// The slot of `key`.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let len = rest.iter().position(|&byte| byte == b'}')?;
        (len > 0).then_some(&rest[..len])
    });
    CRC16.checksum(tag.unwrap_or(key)) % SLOTS as u16
}

/// The first argument behind the command of an encoded request.
fn key(request: &[u8]) -> Option<&[u8]> {
    let mut rest = request;
    let mut line = || -> Option<&[u8]> {
        let len = rest.iter().position(|&byte| byte == b'\r')?;
        let line = &rest[..len];
        rest = rest.get(len + 2..)?;
        Some(line)
    };
    // The count, the command's header and text, the key's header: neither holds a line end.
    let (_, _, _, header) = (line()?, line()?, line()?, line()?);
    let len = std::str::from_utf8(header.strip_prefix(b"$")?).ok()?.parse::<usize>().ok()?;
    rest.get(..len)
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

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}.bar"), 12182);
        assert_eq!(slot(b"x{foo}{bar}"), 12182);
        assert_ne!(slot(b"{}foo"), 12182);
    }

    #[test]
    fn requests_go_where_their_key_is_and_follow_moved() {
        let mut map = map();
        let mut request = Vec::new();
        resp::encode_request(&["GET", "foo"], &mut request);
        assert_eq!(map.node_of(&request), 1);
        assert_eq!(map.node_of(b"*1\r\n$4\r\nPING\r\n"), 0);
        assert_eq!(map.node_of(b"PING\r\n"), 0);
        map.correct(b"MOVED 12182 127.0.0.1:7001");
        assert_eq!(map.node_of(&request), 0);
        for nonsense in ["MOVED", "MOVED 99999 127.0.0.1:7001", "MOVED 1 nowhere", "MOVED 1 127.0.0.1:1"] {
            let before = map.clone();
            map.correct(nonsense.as_bytes());
            assert_eq!(map, before);
        }
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
        assert!(parse(&Value::Array(vec![Value::Array(vec![Value::Integer(-1)])])).contains("no sense"));
    }
}

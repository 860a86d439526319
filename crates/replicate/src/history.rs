//! Replication IDs. A replication ID names a history of the data: two servers with the same ID and
//! the same offset have the same data.
//!
//! A server has up to two IDs: that of its present history, and that of the previous history, which
//! the present one continues. The second ID is valid up to the offset at which the present history
//! began. So after the promotion of a replica, the other replicas of the former primary can
//! continue with the promoted server.

use std::fmt;

/// The number of characters of a replication ID.
pub const REPL_ID_LEN: usize = 40;

/// A replication ID: 40 characters, hex digits in those that servers create.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplId([u8; REPL_ID_LEN]);

impl ReplId {
    /// The replication ID that INFO shows in place of a missing one.
    pub const NONE: Self = Self([b'0'; REPL_ID_LEN]);

    /// Returns `text` as a replication ID in lower case; `None` unless `text` has 40 printable
    /// ASCII characters.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits: [u8; REPL_ID_LEN] = text.to_ascii_lowercase().try_into().ok()?;
        digits.iter().all(u8::is_ascii_graphic).then_some(Self(digits))
    }

    /// Creates a replication ID from 160 random bits.
    pub fn of_bits(high: u64, middle: u64, low: u32) -> Self {
        let text = format!("{high:016x}{middle:016x}{low:08x}");
        Self::parse(text.as_bytes()).expect("these are 40 hex digits")
    }

    /// Returns the 40 characters of the replication ID.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the digits are ASCII")
    }
}

impl fmt::Display for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The replication IDs of a server: that of its present history, and that of the previous history,
/// which the present one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// The replication ID of the server's present history.
    pub id: ReplId,
    /// The replication ID of the previous history, and the offset at which the present one began.
    /// `None` if the present history continues no other.
    pub second: Option<(ReplId, u64)>,
}

impl History {
    /// Creates a replication history with this ID that continues no other history.
    pub fn new(id: ReplId) -> Self {
        Self { id, second: None }
    }

    /// Creates a replication history with the ID `id` that continues the history `former` from
    /// `offset` on.
    pub fn continuing((former, offset): (ReplId, u64), id: ReplId) -> Self {
        Self { id, second: Some((former, offset)) }
    }

    /// Returns true if a server with history `id` up to `offset` has the beginning of this history,
    /// so that it needs only the rest. For the present ID, it does not check that the replication
    /// stream is already as long as `offset`.
    pub fn continues(&self, id: ReplId, offset: u64) -> bool {
        id == self.id || self.second.is_some_and(|(second, end)| id == second && offset <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forty_characters() {
        let id = ReplId::of_bits(1, u64::MAX, 7);
        assert_eq!(id.to_string(), "0000000000000001ffffffffffffffff00000007");
        assert_eq!(ReplId::parse(id.as_str().as_bytes()), Some(id));
        for wrong in [&b"?"[..], &[b'a'; 39], &[b'a'; 41], &[b' '; 40], &[0xFF; 40]] {
            assert_eq!(ReplId::parse(wrong), None);
        }
    }

    #[test]
    fn the_second_id_is_valid_up_to_its_end() {
        let [own, former, other] = [1, 2, 3].map(|number| ReplId::of_bits(number, 0, 0));
        let history = History { id: own, second: Some((former, 100)) };
        assert!(history.continues(own, 1_000_000) && history.continues(former, 100));
        assert!(!history.continues(former, 101) && !history.continues(other, 0));
        assert!(!History::new(own).continues(former, 0));
        assert_eq!(History::continuing((former, 100), own), history);
    }
}

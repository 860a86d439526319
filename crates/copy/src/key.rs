//! A key in a database, and the lane that copies it.

use std::fmt;

/// A key of one database: the number of the database, and the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The number of the database that contains the key.
    pub db: u32,
    /// The name of the key; any bytes.
    pub name: Box<[u8]>,
}

impl Key {
    /// Creates the key `name` of database `db`.
    pub fn new(db: u32, name: &[u8]) -> Self {
        Self { db, name: name.into() }
    }

    /// Returns the index of the lane, out of `lanes`, that handles this key. A key always has the
    /// same lane, so that its copies arrive in the order in which they were read.
    pub fn lane(&self, lanes: usize) -> usize {
        // FNV-1a: short, and spread well enough over a few lanes.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = self.name.iter().fold(0xcbf2_9ce4_8422_2325 ^ u64::from(self.db), step);
        // The last bytes reach the high bits by one more product.
        ((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % lanes as u64) as usize
    }
}

/// Formats the key as `"name"`, with its database if that is not 0.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.name.escape_ascii())?;
        if self.db != 0 {
            write!(f, " of database {}", self.db)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_the_lanes() {
        let mut counts = [0; 4];
        for number in 0..4000 {
            counts[Key::new(0, format!("key:{number}").as_bytes()).lane(4)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_key_is_printed_with_its_database() {
        assert_eq!(Key::new(0, b"a b\n").to_string(), "\"a b\\n\"");
        assert_eq!(Key::new(3, b"k").to_string(), "\"k\" of database 3");
    }
}

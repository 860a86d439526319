//! The slots of a cluster, and a hash tag for each slot.
//!
//! A key's slot is the CRC16 of the key modulo 16,384. If the key contains `{`, then a non-empty
//! text, then `}`, only this text is hashed. Source: the cluster specification, redis.io/docs.

use std::sync::OnceLock;

use crc::{CRC_16_XMODEM, Crc, Table};

/// The number of slots of a cluster.
pub const SLOTS: usize = 16_384;
/// The number of characters of a hash tag without its braces. Three are enough for every slot.
const TAG_LEN: usize = 3;
const TAG_CHARS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);

/// Returns the slot of `key`. O(length of the key).
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let len = rest.iter().position(|&byte| byte == b'}')?;
        (len > 0).then_some(&rest[..len])
    });
    CRC16.checksum(tag.unwrap_or(key)) % SLOTS as u16
}

/// Returns the hash tag of a slot: the first text of three letters and digits whose slot is `slot`.
/// O(1); the first call builds the table. Panics if `slot` is not below [`SLOTS`].
pub fn tag(slot: usize) -> [u8; TAG_LEN] {
    static TAGS: OnceLock<Vec<[u8; TAG_LEN]>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let mut tags = vec![[0; TAG_LEN]; SLOTS];
        for &first in TAG_CHARS {
            for &second in TAG_CHARS {
                for &third in TAG_CHARS {
                    let text = [first, second, third];
                    let tag = &mut tags[usize::from(self::slot(&text))];
                    if *tag == [0; TAG_LEN] {
                        *tag = text;
                    }
                }
            }
        }
        tags
    })[slot]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"{foo}.bar"), 12182);
        assert_eq!(slot(b"x{foo}{bar}"), 12182);
        assert_ne!(slot(b"{}foo"), 12182);
    }

    #[test]
    fn every_slot_has_a_tag_that_lies_in_it() {
        for expected in 0..SLOTS {
            let key = [b"key:{", &tag(expected)[..], b"}:000000000001"].concat();
            assert_eq!(usize::from(slot(&key)), expected);
        }
    }
}

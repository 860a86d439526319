//! The RDB files of real servers for the tests, and functions that build RDB files byte by byte.

use crc::{CRC_64_REDIS, Crc};

/// RDB files that real servers wrote. All contain the same keys, except for types that a server
/// does not have. They contain each type in its small and its large encoding, hashes with expiring
/// fields, and keys that expire later or have expired.
pub const OF_SERVERS: &[(&str, &[u8])] = &[
    ("Saker", include_bytes!("../files/saker.rdb")),
    ("Redis 8.0.2", include_bytes!("../files/redis-8.0.rdb")),
    ("Valkey 8.1.1", include_bytes!("../files/valkey-8.1.rdb")),
    ("Valkey 9.1.2", include_bytes!("../files/valkey-9.1.rdb")),
];

/// An RDB file without problems, which Redis 8.0.2 wrote, for the tests.
pub const GOOD: &[u8] = OF_SERVERS[1].1;

/// Builds a whole RDB file with these encoded records.
pub fn with(records: &[&[u8]]) -> Vec<u8> {
    sealed([b"REDIS0011".to_vec(), records.concat()].concat())
}

/// Appends the end mark and the checksum to the bytes of an RDB file.
pub fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(0xFF);
    let checksum = Crc::<u64>::new(&CRC_64_REDIS).checksum(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Encodes the selection of database `db`, below 64, as an RDB file contains it.
pub fn select(db: u8) -> [u8; 2] {
    [0xFE, db]
}

/// Encodes a short string as an RDB file contains it.
pub fn string(text: &[u8]) -> Vec<u8> {
    assert!(text.len() < 64);
    [&[text.len() as u8], text].concat()
}

/// Encodes the record of a key with a string value.
pub fn key(name: &str, value: &str) -> Vec<u8> {
    [&[0], &*string(name.as_bytes()), &*string(value.as_bytes())].concat()
}

/// Encodes the record of a key with a set in a listpack whose header gives too large a length.
pub fn broken_set(name: &str) -> Vec<u8> {
    let pack = [0x0B, 0, 0, 0, 1, 0, 0x81, b'a', 2, 0xFF];
    [&[20], &*string(name.as_bytes()), &*string(&pack)].concat()
}

/// Encodes the ID of a module type `made-up-t`, version 0, as a length.
pub fn made_up_module() -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = |letter| LETTERS.iter().position(|&there| there == letter).unwrap() as u64;
    let number = b"made-up-t".iter().fold(0, |number, &letter| number << 6 | place(letter));
    [&[0x81], &(number << 10).to_be_bytes()[..]].concat()
}

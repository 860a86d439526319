//! The properties that a replica announces with REPLCONF before it synchronises.

use bitflags::bitflags;
use stdx::number::parse_i64;

/// The maximum length of the address that a replica announces with REPLCONF, in bytes, as in Redis.
const ADDRESS_LEN_MAX: usize = 255;

bitflags! {
    /// The capabilities that a replica announces with `REPLCONF capa`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Capabilities: u8 {
        /// `eof`: the replica can find the end of a snapshot by a mark, without knowing its length.
        const EOF = 1 << 0;
        /// `psync2`: the replica accepts a new replication ID in the reply `+CONTINUE`.
        const PSYNC2 = 1 << 1;
        /// `saker`: the replica is a Saker, which reads every snapshot of its primary. Other
        /// servers ignore this capability.
        const SAKER = 1 << 2;
    }
}

bitflags! {
    /// The contents that the snapshot for a replica must have (`REPLCONF rdb-filter-only`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct SnapshotContents: u8 {
        /// The snapshot for the replica must have the keys with their values.
        const DATA = 1 << 0;
        /// The snapshot for the replica must have the libraries of functions.
        const FUNCTIONS = 1 << 1;
    }
}

/// A version of Valkey: major, minor and patch number. Redis servers announce no version.
pub type Version = (u32, u32, u32);

/// The properties that a replica has announced with REPLCONF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The port on which the replica listens; 0 if it is not announced.
    pub listening_port: u16,
    /// The address at which other servers can reach the replica; empty if it is that of the
    /// connection.
    pub ip_address: Vec<u8>,
    /// The capabilities that the replica has announced.
    pub capabilities: Capabilities,
    /// The version of the replica's server; `None` if it is not announced.
    pub version: Option<Version>,
    /// The purpose of the replica's connection: the replication stream, or only a snapshot.
    pub purpose: Purpose,
    /// The contents of the snapshot that the replica wants.
    pub contents: SnapshotContents,
}

/// The purpose for which a replica has connected: to follow, or for a snapshot only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The replica receives a snapshot if necessary, and then the replication stream.
    #[default]
    Follow,
    /// The replica receives only a snapshot, as `redis-cli --rdb` does.
    SnapshotOnly,
}

impl Default for Handshake {
    fn default() -> Self {
        Self {
            listening_port: 0,
            ip_address: Vec::new(),
            capabilities: Capabilities::empty(),
            version: None,
            purpose: Purpose::Follow,
            contents: SnapshotContents::all(),
        }
    }
}

/// The error of an invalid REPLCONF option or value. The error texts are those of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// There is no option of REPLCONF with this name.
    Unrecognized(Vec<u8>),
    /// The value of a REPLCONF option is not an integer, but the option requires one.
    NotAnInteger,
    /// The value of a REPLCONF option is an integer outside the option's range.
    OutOfRange,
    /// The value of a REPLCONF option is an integer, but neither 0 nor 1.
    NotASwitch,
    /// The address that the replica announces is too long.
    AddressTooLong {
        /// The length of the address that the replica announces, in bytes.
        len_bytes: usize,
    },
    /// The value of `rdb-filter-only` contains this word, which is not known.
    UnsupportedFilter(Vec<u8>),
    /// The announced version of the replica is not of the form major.minor.patch.
    InvalidVersion,
}

impl HandshakeError {
    /// Returns the error reply to REPLCONF, without the initial `-` and the line end. Unprintable
    /// bytes in it are not escaped.
    pub fn reply(&self) -> Vec<u8> {
        let with = |text: &[u8], value: &[u8]| [text, value].concat();
        match self {
            Self::Unrecognized(option) => with(b"ERR Unrecognized REPLCONF option: ", option),
            Self::NotAnInteger => b"ERR value is not an integer or out of range".to_vec(),
            Self::OutOfRange => b"ERR value is out of range".to_vec(),
            Self::NotASwitch => b"ERR value is out of range, value must between 0 and 1".to_vec(),
            Self::AddressTooLong { len_bytes } => {
                format!("ERR REPLCONF ip-address provided by replica instance is too long: {len_bytes} bytes")
                    .into_bytes()
            }
            Self::UnsupportedFilter(filter) => with(b"ERR Unsupported rdb-filter-only option: ", filter),
            Self::InvalidVersion => b"ERR Unrecognized version format".to_vec(),
        }
    }
}

fn integer(value: &[u8]) -> Result<i64, HandshakeError> {
    parse_i64(value).ok_or(HandshakeError::NotAnInteger)
}

impl Handshake {
    /// Sets the property that REPLCONF `option` announces. Unknown capabilities are ignored.
    ///
    /// # Errors
    /// If the option or its value is invalid; then no property changes.
    pub fn set(&mut self, option: &[u8], value: &[u8]) -> Result<(), HandshakeError> {
        match option.to_ascii_lowercase().as_slice() {
            b"listening-port" => {
                self.listening_port =
                    u16::try_from(integer(value)?).map_err(|_| HandshakeError::OutOfRange)?;
            }
            b"ip-address" if value.len() > ADDRESS_LEN_MAX => {
                return Err(HandshakeError::AddressTooLong { len_bytes: value.len() });
            }
            b"ip-address" => self.ip_address = value.to_vec(),
            b"capa" => match value.to_ascii_lowercase().as_slice() {
                b"eof" => self.capabilities |= Capabilities::EOF,
                b"psync2" => self.capabilities |= Capabilities::PSYNC2,
                b"saker" => self.capabilities |= Capabilities::SAKER,
                _ => {}
            },
            b"rdb-only" => match integer(value)? {
                0 => self.purpose = Purpose::Follow,
                1 => self.purpose = Purpose::SnapshotOnly,
                _ => return Err(HandshakeError::NotASwitch),
            },
            b"rdb-filter-only" => self.contents = contents(value)?,
            b"version" => self.version = Some(version(value).ok_or(HandshakeError::InvalidVersion)?),
            _ => return Err(HandshakeError::Unrecognized(option.to_vec())),
        }
        Ok(())
    }
}

/// Parses the value of `rdb-filter-only`: the word `data`, the word `functions`, or both.
fn contents(words: &[u8]) -> Result<SnapshotContents, HandshakeError> {
    let mut contents = SnapshotContents::empty();
    for word in words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_slice() {
            b"functions" => contents |= SnapshotContents::FUNCTIONS,
            _ => return Err(HandshakeError::UnsupportedFilter(word.to_vec())),
        }
    }
    Ok(contents)
}

fn version(text: &[u8]) -> Option<Version> {
    let text = std::str::from_utf8(text).ok()?;
    let mut parts = text.split('.').map(str::parse);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some((major, minor, patch)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pairs: &[(&str, &str)]) -> Result<Handshake, HandshakeError> {
        let mut handshake = Handshake::default();
        for (option, value) in pairs {
            handshake.set(option.as_bytes(), value.as_bytes())?;
        }
        Ok(handshake)
    }

    #[test]
    fn a_valkey_replica_announces_itself() {
        let replica = after(&[
            ("listening-port", "6380"),
            ("capa", "eof"),
            ("capa", "saker"),
            ("CAPA", "psync2"),
            ("capa", "dual-channel"),
            ("version", "9.1.2"),
        ]);
        let replica = replica.expect("all are valid");
        assert_eq!((replica.listening_port, replica.version), (6380, Some((9, 1, 2))));
        assert_eq!((replica.capabilities, replica.purpose), (Capabilities::all(), Purpose::Follow));
        assert_eq!(replica.contents, SnapshotContents::all());
    }

    #[test]
    fn a_client_may_ask_for_functions_only() {
        let tool = after(&[("rdb-only", "1"), ("rdb-filter-only", "functions")]).expect("valid");
        assert_eq!((tool.purpose, tool.contents), (Purpose::SnapshotOnly, SnapshotContents::FUNCTIONS));
        let none = after(&[("rdb-filter-only", "")]).expect("valid");
        assert_eq!(none.contents, SnapshotContents::empty());
    }

    #[test]
    fn invalid_properties_are_errors() {
        let long = "a".repeat(256);
        for (option, value, reply) in [
            ("listening-port", "x", "ERR value is not an integer or out of range"),
            ("listening-port", "65536", "ERR value is out of range"),
            ("rdb-only", "2", "ERR value is out of range, value must between 0 and 1"),
            ("rdb-filter-only", "functions keys", "ERR Unsupported rdb-filter-only option: keys"),
            ("version", "9.1", "ERR Unrecognized version format"),
            ("nothing", "1", "ERR Unrecognized REPLCONF option: nothing"),
            (
                "ip-address",
                &long,
                "ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes",
            ),
        ] {
            let error = after(&[(option, value)]).expect_err("it is invalid");
            assert_eq!(String::from_utf8_lossy(&error.reply()), reply);
        }
    }
}

//! The name of a script: the SHA-1 of its text in lowercase hexadecimal digits.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use sha1::{Digest, Sha1};

/// The name of a script: 40 hexadecimal digits, the SHA-1 of its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sha([u8; 40]);

/// A map from the names of scripts to values. The digits of a name are those of a digest. So the
/// hash distributes them well without a secret key.
pub type ShaMap<T> = HashMap<Sha, T, BuildHasherDefault<ahash::AHasher>>;

/// Hashes the first 16 digits of the name only: they distinguish scripts as well as all 40 do.
impl Hash for Sha {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0[..16]);
    }
}

impl Sha {
    /// Returns the name of the script with the text `body`. O(bytes).
    pub fn of(body: &[u8]) -> Self {
        let mut hex = [0; 40];
        for (at, byte) in Sha1::digest(body).iter().enumerate() {
            hex[2 * at] = b"0123456789abcdef"[usize::from(byte >> 4)];
            hex[2 * at + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        Self(hex)
    }

    /// Reads a name as clients send it, in capital or small letters. Returns `None` if it does not
    /// have 40 bytes; does not check that they are hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut hex: [u8; 40] = text.try_into().ok()?;
        hex.make_ascii_lowercase();
        Some(Self(hex))
    }

    /// Returns the 40 hexadecimal digits of the script's name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

//! The names of the value types that Redis modules define, as RDB files encode them in 64 bits.

use std::fmt;

/// The characters of module type names, indexed by the six bits that encode each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name of a module's type in a file: nine characters of an alphabet of 64, and a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// The module type of vector sets in Redis 8, in version 0.
    pub const VECTOR_SET: Self = Self::new(b"vectorset");

    /// Returns the id of the module type with this name, in version 0.
    ///
    /// # Panics
    /// If a character is not in the alphabet.
    const fn new(name: &[u8; 9]) -> Self {
        let (mut number, mut at) = (0, 0);
        while at < name.len() {
            let mut letter = 0;
            while LETTERS[letter] != name[at] {
                letter += 1;
            }
            number = number << 6 | letter as u64;
            at += 1;
        }
        Self(number << 10)
    }

    /// Returns the version of the module's own format, which the id of the type contains.
    pub fn version(self) -> u16 {
        (self.0 & 0x3FF) as u16
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = (0..9).rev().map(|at| LETTERS[(self.0 >> (10 + 6 * at) & 0x3F) as usize]);
        letters.map(char::from).try_for_each(|letter| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_nine_letters_of_six_bits() {
        // From a DUMP of Redis 8.0.2.
        assert_eq!(ModuleId::VECTOR_SET, ModuleId(0xBDE7_2DA2_BB1E_B400));
        assert_eq!(ModuleId::VECTOR_SET.to_string(), "vectorset");
        assert_eq!(ModuleId(ModuleId::VECTOR_SET.0 | 3).version(), 3);
    }
}

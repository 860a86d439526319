//! Properties that hold for any bytes, as functions that a fuzzer or a plain loop of random inputs
//! calls. Each function panics if its property does not hold.
//!
//! The bytes are used twice: as a structure from an untrusted source, if they are a valid one, and
//! as a [`Script`] of operations. The operations are applied to the structure and to a naive twin.

mod arrays;
mod packed_sets;
mod packs;
mod tables;
mod vectors;

pub use arrays::fuzz_arrays;
#[cfg(test)]
pub(crate) use arrays::{ArrayTwin, check_array};
pub use packed_sets::fuzz_packed_set;
pub use packs::{fuzz_intset, fuzz_listpack, fuzz_quicklist};
pub use tables::{fuzz_entry, fuzz_ranked_members, fuzz_table};
pub use vectors::fuzz_vectors;

/// A script of operations for a fuzz test, read from arbitrary bytes. After the last byte, all
/// reads return zero.
struct Script<'a>(&'a [u8]);

/// The maximum number of operations of one fuzz script. Longer scripts find no additional bugs.
const OPS_MAX: usize = 100;

impl Script<'_> {
    /// Returns the code of the next operation and adds one to `done`. Returns `None` at the end of
    /// the script or after [`OPS_MAX`] operations. The operation reads its arguments from the next
    /// bytes.
    fn next_op(&mut self, done: &mut usize) -> Option<u8> {
        *done += 1;
        (!self.0.is_empty() && *done <= OPS_MAX).then(|| self.byte())
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    fn int(&mut self) -> i64 {
        let bytes = self.bytes(8);
        i64::from_le_bytes(bytes.try_into().expect("eight were asked for"))
    }

    /// Reads a number below `end` from the script; `end` must not be zero.
    fn below(&mut self, end: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % end
    }

    /// Reads a text from the script: often a small number or a few bytes, sometimes any 64-bit
    /// number or thousands of bytes.
    fn text(&mut self) -> Vec<u8> {
        match self.byte() {
            kind @ 0..=99 => kind.to_string().into_bytes(),
            kind @ 100..=199 => self.bytes(usize::from(kind % 32)),
            200..=229 => self.int().to_string().into_bytes(),
            kind => vec![kind; usize::from(self.byte()) * 37],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intset::Intset;
    use crate::listpack::Listpack;
    use proptest::prelude::*;

    fn all(data: &[u8]) {
        fuzz_arrays(data);
        fuzz_listpack(data);
        fuzz_intset(data);
        fuzz_quicklist(data);
        fuzz_table(data);
        fuzz_packed_set(data);
        fuzz_ranked_members(data);
        fuzz_entry(data);
        fuzz_vectors(data);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn properties_hold_for_random_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
            all(&data);
        }

        #[test]
        fn properties_hold_for_valid_packs_with_some_bytes_changed(
            texts in prop::collection::vec("[0-9]{1,5}|[a-z]{0,80}", 0..20),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let (mut pack, mut ints) = (Listpack::new(), Intset::new());
            for text in &texts {
                pack.push_back(text.as_bytes()).expect("small");
                ints.insert(text.len() as i64 * 1000).expect("small");
            }
            for mut bytes in [pack.into_bytes(), ints.into_bytes()] {
                for (at, byte) in &changes {
                    bytes[at.index(bytes.len())] = *byte;
                }
                all(&bytes);
            }
        }
    }
}

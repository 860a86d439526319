//! The big keys of one database in one shard, grouped by type and size class (see `big_keys.rs`).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher as StdHasher};

use crate::key::{KeyHash, SHARD_BITS};
use crate::sizes::SizeMark;
use crate::value_size::{Measure, SizedType};

/// The measure (bytes or elements), the type and the size class that a set of big keys have in
/// common. Groups are ordered by measure, then type, then class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(u16);

impl Group {
    fn new(measure: Measure, kind: SizedType, class: u8) -> Self {
        Self((measure as u16) << 12 | (kind as u16) << 8 | u16::from(class))
    }

    /// Returns the size class of the keys in this group of big keys, from 1 to 255.
    pub(crate) fn class(self) -> usize {
        usize::from(self.0 & 0xFF)
    }

    /// Returns true if this group of big keys has keys of type `kind` that are big by `measure`.
    /// `None` stands for any type.
    pub(crate) fn is_of(self, measure: Measure, kind: Option<SizedType>) -> bool {
        self.0 >> 12 == measure as u16 && kind.is_none_or(|kind| self.0 >> 8 & 0xF == kind as u16)
    }
}

/// A hasher of the sets of key hashes. It rotates these well-mixed hashes. Their top bits select
/// the shard and are therefore the same for all keys of the index.
#[derive(Default)]
pub(crate) struct Rotated(u64);

impl StdHasher for Rotated {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only hashes are hashed");
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(SHARD_BITS);
    }
}

/// A set of the hashes of the big keys in one group.
pub(crate) type Hashes = HashSet<KeyHash, BuildHasherDefault<Rotated>>;

/// The big keys of one database in one shard. Guarded by the shard's lock.
#[derive(Default)]
pub(crate) struct BigIndex {
    /// The groups of big keys that have at least one key, sorted: a few hundred at most.
    groups: Vec<(Group, Hashes)>,
}

impl BigIndex {
    /// Moves a key's hash from the groups of its old size to those of its new one, after its size
    /// mark has changed from `old` to `new`. [`SizeMark::NONE`] stands for a key that does not
    /// exist. O(1) amortised.
    pub(crate) fn note(&mut self, hash: KeyHash, old: SizeMark, new: SizeMark) {
        for measure in [Measure::Bytes, Measure::Elements] {
            let group = |mark: SizeMark| {
                let class = mark.class(measure);
                mark.kind().filter(|_| class > 0).map(|kind| Group::new(measure, kind, class))
            };
            let (from, to) = (group(old), group(new));
            if from == to {
                continue;
            }
            if let Some(Ok(at)) = from.map(|from| self.find(from)) {
                self.groups[at].1.remove(&hash);
                if self.groups[at].1.is_empty() {
                    self.groups.remove(at);
                }
            }
            if let Some(to) = to {
                let at = self.find(to).unwrap_or_else(|at| {
                    self.groups.insert(at, (to, Hashes::default()));
                    at
                });
                self.groups[at].1.insert(hash);
            }
        }
    }

    /// Returns the groups of big keys that have at least one key, each with the hashes of its keys,
    /// in the order of [`Group`].
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &Hashes)> {
        self.groups.iter().map(|(group, hashes)| (*group, hashes))
    }

    fn find(&self, group: Group) -> Result<usize, usize> {
        self.groups.binary_search_by_key(&group, |(group, _)| *group)
    }
}

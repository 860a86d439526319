//! The content of files that Saker does not support: types of modules, and types of newer servers.

use std::collections::BTreeMap;
use std::fmt;

/// The treatment of unsupported content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The file is refused.
    Refused,
    /// It is passed over and counted.
    Skipped,
    /// It is given out: keys in batches, where [`inspect_batch`](super::inspect_batch) shows them
    /// and [`decode_batch`](super::decode_batch) refuses them; what modules keep beside keys as
    /// [`Part::Module`](super::Part::Module). What cannot be given out is refused.
    Kept,
}

/// The name of a module's type in a file: nine letters of 64, and a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// Returns the version of the module's own format.
    pub fn version(self) -> u16 {
        (self.0 & 0x3FF) as u16
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let letters = (0..9).rev().map(|at| LETTERS[(self.0 >> (10 + 6 * at) & 0x3F) as usize]);
        letters.map(char::from).try_for_each(|letter| write!(f, "{letter}"))
    }
}

/// Something of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A module's value.
    Module(ModuleId),
    /// The data of a module beside keys.
    ModuleData(ModuleId),
    /// An array.
    Array,
    /// A hash with paths.
    PathHash,
    /// A command that changed what stands ahead of it, in a file that was saved without fork.
    Update,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Feature::Module(id) => write!(f, "a value of the module type '{id}'"),
            Feature::ModuleData(id) => write!(f, "data of the module type '{id}' beside its keys"),
            Feature::Array => f.write_str("an array of Redis 8.8 (type 28)"),
            Feature::PathHash => f.write_str("a path hash of Valkey 9.2 (type 23)"),
            Feature::Update => {
                f.write_str("a command among the keys, as a save without fork of Valkey 9.2 adds it")
            }
        }
    }
}

/// The skipped features with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Feature, u64>);

impl Skipped {
    pub(super) fn add(&mut self, feature: Feature) {
        *self.0.entry(feature).or_default() += 1;
    }

    /// Walks the features with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Feature, u64)> {
        self.0.iter().map(|(&feature, &count)| (feature, count))
    }
}

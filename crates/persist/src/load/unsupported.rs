//! Unsupported content of RDB files: types of modules, and types of newer servers.

use std::collections::BTreeMap;
use std::fmt;

use crate::rdb::ModuleId;

/// The treatment of unsupported content in an RDB file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The RDB file is rejected at its first unsupported content.
    Refused,
    /// The unsupported content of the RDB file is skipped and counted.
    Skipped,
    /// The unsupported content of the RDB file is returned. Its keys are in batches:
    /// [`inspect_batch`](super::inspect_batch) returns them, but
    /// [`decode_batch`](super::decode_batch) rejects them. Data of modules outside keys is
    /// [`Part::Module`](super::Part::Module). The file is rejected if it has other unsupported
    /// content.
    Kept,
}

/// A kind of content of an RDB file that this server does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// A value whose type is defined by a module.
    Module(ModuleId),
    /// Data that a module stores outside the values of keys.
    ModuleData(ModuleId),
    /// A hash with paths, of a newer Valkey.
    PathHash,
    /// A command among the keys, which changes an earlier key of the file. Valkey writes it in a
    /// file saved without a fork.
    Update,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Feature::Module(id) => write!(f, "a value of the module type '{id}'"),
            Feature::ModuleData(id) => write!(f, "data of the module type '{id}' beside its keys"),
            Feature::PathHash => f.write_str("a path hash of Valkey 9.2 (type 23)"),
            Feature::Update => {
                f.write_str("a command between the keys, written by Valkey 9.2 in a save without fork")
            }
        }
    }
}

/// The number of skipped items of an RDB file for each kind of unsupported content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped(BTreeMap<Feature, u64>);

impl Skipped {
    pub(super) fn add(&mut self, feature: Feature) {
        *self.0.entry(feature).or_default() += 1;
    }

    /// Lists the kinds of unsupported content with the numbers of skipped items.
    pub fn iter(&self) -> impl Iterator<Item = (Feature, u64)> {
        self.0.iter().map(|(&feature, &count)| (feature, count))
    }
}

//! The facts that a check of an RDB file collects of each key: counts by type and by database, the
//! biggest keys, and findings. Each decoding thread has its own [`Facts`]; they are added up at the
//! end.

use std::collections::BTreeMap;

use persist::load::ModuleId;
use serde::Serialize;

/// The facts about one key of the RDB file: its name, form, size and expiry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyFacts<'a> {
    /// The number of the database that contains the key.
    pub db: u64,
    /// The name of the key.
    pub name: &'a [u8],
    /// The type and the encoding of the value in the file.
    pub form: Form,
    /// The offset of the key's record in the RDB file.
    pub file_offset: u64,
    /// The size of the key's record in bytes: expiry, name and value.
    pub len_bytes: u64,
    /// The number of elements of the value; 1 for a string.
    pub elements: u64,
    /// The expiry of the key, compared with the time of the check.
    pub expiry: KeyExpiry,
}

/// The expiry of a key, relative to the time of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyExpiry {
    /// The key has no expiry.
    Never,
    /// The key expires after the time of the check.
    Later,
    /// The key has expired: a server that loads the file drops it.
    Expired,
}

/// The form of a value in the RDB file: its type and its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Form {
    /// The name of the type in the reply to TYPE, such as `set`.
    pub kind: &'static str,
    /// The name of the encoding in the file, such as `listpack`.
    pub encoding: &'static str,
}

/// Counts of the keys in a group, such as a database or a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Count {
    /// The number of keys in the group.
    pub keys: u64,
    /// The number of keys with an expiry, including expired keys.
    pub expiring: u64,
    /// The number of expired keys in the group.
    pub expired: u64,
    /// The number of elements of all values in the group.
    pub elements: u64,
    /// The size of the keys' records in the file, in bytes.
    pub len_bytes: u64,
}

impl Count {
    fn add_key(&mut self, key: &KeyFacts<'_>) {
        self.add(Count {
            keys: 1,
            expiring: u64::from(key.expiry != KeyExpiry::Never),
            expired: u64::from(key.expiry == KeyExpiry::Expired),
            elements: key.elements,
            len_bytes: key.len_bytes,
        });
    }

    /// Adds the counts of another group of keys to these.
    pub(crate) fn add(&mut self, other: Count) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.expired += other.expired;
        self.elements += other.elements;
        self.len_bytes += other.len_bytes;
    }
}

/// A key in a list of the biggest keys, and its measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BigKey {
    /// The measure by which the list is ordered: bytes or elements.
    pub measure: u64,
    /// The offset of the key's record. Of keys of equal size, the first in the file is listed.
    pub file_offset: u64,
    pub db: u64,
    pub name: Vec<u8>,
    pub form: Form,
    pub len_bytes: u64,
    pub elements: u64,
}

/// A list of the biggest keys by one measure, the biggest first. It has at most `keys_max` keys.
#[derive(Clone, Debug)]
pub(crate) struct Biggest {
    keys_max: usize,
    keys: Vec<BigKey>,
}

impl Biggest {
    fn new(keys_max: usize) -> Self {
        Self { keys_max, keys: Vec::new() }
    }

    /// Returns the keys in the list of the biggest keys, the biggest first.
    pub(crate) fn keys(&self) -> &[BigKey] {
        &self.keys
    }

    /// Adds the biggest keys that another decoding thread found. O(`keys_max`²).
    fn merge(&mut self, other: Biggest) {
        other.keys.into_iter().for_each(|key| self.insert(key));
    }

    /// Adds a key to the list of the biggest keys if `measure` is big enough. O(1) if it is not,
    /// otherwise O(`keys_max`).
    fn offer(&mut self, key: &KeyFacts<'_>, measure: u64) {
        let is_full = self.keys.len() >= self.keys_max;
        let least = self.keys.last().map_or(0, |key| key.measure);
        if is_full && (measure < least || self.keys_max == 0) {
            return;
        }
        let KeyFacts { db, form, file_offset, len_bytes, elements, .. } = *key;
        let name = key.name.to_vec();
        self.insert(BigKey { measure, file_offset, db, name, form, len_bytes, elements });
    }

    fn insert(&mut self, key: BigKey) {
        let rank = |key: &BigKey| (u64::MAX - key.measure, key.file_offset);
        let at = self.keys.partition_point(|there| rank(there) <= rank(&key));
        self.keys.insert(at, key);
        self.keys.truncate(self.keys_max);
    }
}

/// A problem that a check found, with its place in the RDB file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The offset at which the problem was noticed, in bytes from the start of the file.
    pub file_offset: u64,
    /// The offset of the record that contains the problem, in bytes from the start of the file.
    pub record_offset: u64,
    /// The database of the keys that were being read; `None` if the problem concerns no database.
    pub db: Option<u64>,
    /// The key that was being read; characters that are not printable are escaped. `None` if
    /// unknown.
    pub key: Option<String>,
    /// The type and the encoding of the key's value in words, such as `set, listpack`; `None` if
    /// unknown.
    pub form: Option<String>,
    /// A description of the problem, for people.
    pub what: String,
    /// The number of good keys before the problem in the file.
    pub good_keys_before: u64,
}

impl Finding {
    /// Returns the sort key of a finding: its place in the file, then its description. The order
    /// therefore does not depend on the threads.
    fn rank(&self) -> (u64, u64, &str) {
        (self.record_offset, self.file_offset, &self.what)
    }
}

/// The amount of a module's data in an RDB file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleCount {
    /// The number of keys whose values belong to the module.
    pub keys: u64,
    /// The size of the records of these keys and of the module's data outside of keys, in bytes.
    pub len_bytes: u64,
}

/// The maximum lengths of the lists that a check of an RDB file collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The maximum number of biggest keys that are listed by each measure.
    pub big_keys_max: usize,
    /// The maximum number of listed findings; more are only counted.
    pub findings_max: usize,
}

/// The counts, lists and findings that one thread has collected about the keys of an RDB file.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    limits: Limits,
    pub databases: BTreeMap<u64, Count>,
    pub types: BTreeMap<Form, Count>,
    pub modules: BTreeMap<ModuleId, ModuleCount>,
    pub by_len_bytes: Biggest,
    pub by_elements: Biggest,
    /// The listed findings: those that are first in the order of the file.
    pub findings: Vec<Finding>,
    pub finding_count: u64,
    /// The number of good keys whose values are collections without elements.
    pub empty_count: u64,
    /// For each good key, a hash of its database and name, and the offset of its record.
    pub names: Vec<(u64, u64)>,
}

impl Facts {
    /// Creates counts and lists without any key. `limits` bounds the lists.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            databases: BTreeMap::new(),
            types: BTreeMap::new(),
            modules: BTreeMap::new(),
            by_len_bytes: Biggest::new(limits.big_keys_max),
            by_elements: Biggest::new(limits.big_keys_max),
            findings: Vec::new(),
            finding_count: 0,
            empty_count: 0,
            names: Vec::new(),
        }
    }

    /// Adds a good key to the counts and to the biggest keys; `name_hash` is a hash of its database
    /// and name.
    pub(crate) fn add_key(&mut self, key: &KeyFacts<'_>, name_hash: u64) {
        self.databases.entry(key.db).or_default().add_key(key);
        self.types.entry(key.form).or_default().add_key(key);
        self.by_len_bytes.offer(key, key.len_bytes);
        self.by_elements.offer(key, key.elements);
        self.names.push((name_hash, key.file_offset));
    }

    /// Adds `count` to the counts of the module `id`.
    pub(crate) fn add_module(&mut self, id: ModuleId, count: ModuleCount) {
        let sum = self.modules.entry(id).or_default();
        sum.keys += count.keys;
        sum.len_bytes += count.len_bytes;
    }

    /// Counts a finding, and lists it if it is among the first [`Limits::findings_max`] of the
    /// file.
    pub(crate) fn add_finding(&mut self, finding: Finding) {
        self.finding_count += 1;
        self.list(finding);
    }

    /// Returns true if a new finding in the record at `record_offset` would be listed. That is the
    /// case if the list is not full, or its last finding is in a later record and would be removed.
    pub(crate) fn has_room_for(&self, record_offset: u64) -> bool {
        let is_full = self.findings.len() >= self.limits.findings_max;
        !is_full || self.findings.last().is_some_and(|last| record_offset < last.record_offset)
    }

    fn list(&mut self, finding: Finding) {
        let at = self.findings.partition_point(|there| there.rank() <= finding.rank());
        self.findings.insert(at, finding);
        self.findings.truncate(self.limits.findings_max);
    }

    /// Adds the counts, lists and findings that another thread has collected. The result does not
    /// depend on the division of work, except for the order of `names`.
    pub(crate) fn merge(&mut self, other: Facts) {
        other.databases.into_iter().for_each(|(db, count)| self.databases.entry(db).or_default().add(count));
        other.types.into_iter().for_each(|(form, count)| self.types.entry(form).or_default().add(count));
        other.modules.into_iter().for_each(|(id, count)| self.add_module(id, count));
        self.by_len_bytes.merge(other.by_len_bytes);
        self.by_elements.merge(other.by_elements);
        other.findings.into_iter().for_each(|finding| self.list(finding));
        self.finding_count += other.finding_count;
        self.empty_count += other.empty_count;
        if self.names.is_empty() {
            self.names = other.names;
        } else {
            self.names.extend(other.names);
        }
    }

    /// Sets the number of good keys before each listed finding. O(keys × log findings).
    pub(crate) fn count_good_keys_before(&mut self) {
        let mut between = vec![0; self.findings.len() + 1];
        for &(_, offset) in &self.names {
            between[self.findings.partition_point(|finding| finding.record_offset <= offset)] += 1;
        }
        let mut before = 0;
        for (finding, keys) in self.findings.iter_mut().zip(between) {
            before += keys;
            finding.good_keys_before = before;
        }
    }

    /// Returns the counts of all good keys of the file together.
    pub(crate) fn total(&self) -> Count {
        let mut total = Count::default();
        self.databases.values().for_each(|count| total.add(*count));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { big_keys_max: 3, findings_max: 100 };

    fn key(name: &'static str, file_offset: u64, elements: u64) -> KeyFacts<'static> {
        KeyFacts {
            db: 0,
            name: name.as_bytes(),
            form: Form { kind: "list", encoding: "quicklist" },
            file_offset,
            len_bytes: 100 - elements,
            elements,
            expiry: KeyExpiry::Never,
        }
    }

    fn finding(offset: u64) -> Finding {
        Finding {
            file_offset: offset,
            record_offset: offset,
            db: None,
            key: None,
            form: None,
            what: String::new(),
            good_keys_before: 0,
        }
    }

    fn names(biggest: &Biggest) -> Vec<&str> {
        biggest.keys().iter().map(|key| str::from_utf8(&key.name).unwrap()).collect()
    }

    #[test]
    fn the_biggest_keys_do_not_depend_on_who_read_them() {
        let keys = [key("a", 10, 3), key("b", 20, 9), key("c", 30, 3), key("d", 40, 5), key("e", 50, 1)];
        for split in 0..keys.len() {
            let (mut facts, mut others) = (Facts::new(LIMITS), Facts::new(LIMITS));
            keys[split..].iter().for_each(|key| facts.add_key(key, 1));
            keys[..split].iter().for_each(|key| others.add_key(key, 1));
            facts.merge(others);
            assert_eq!(names(&facts.by_elements), ["b", "d", "a"]);
            assert_eq!(names(&facts.by_len_bytes), ["e", "a", "c"]);
            assert_eq!((facts.total().keys, facts.total().elements), (5, 21));
        }
    }

    #[test]
    fn many_findings_are_counted_and_the_first_are_listed() {
        let (mut facts, mut others) = (Facts::new(LIMITS), Facts::new(LIMITS));
        (0..300).rev().step_by(2).for_each(|at| facts.add_finding(finding(at)));
        (0..300).step_by(2).for_each(|at| others.add_finding(finding(at)));
        facts.merge(others);
        assert_eq!((facts.finding_count, facts.findings.len()), (300, LIMITS.findings_max));
        assert!(facts.findings.iter().map(|finding| finding.file_offset).eq(0..100));
    }

    #[test]
    fn good_keys_before_a_finding_are_counted() {
        let mut facts = Facts::new(LIMITS);
        [15, 40, 5].into_iter().for_each(|at| facts.add_finding(finding(at)));
        [30, 10, 20, 50].into_iter().for_each(|at| facts.add_key(&key("k", at, 1), 1));
        facts.count_good_keys_before();
        assert!(facts.findings.iter().map(|finding| finding.good_keys_before).eq([0, 1, 3]));
    }
}

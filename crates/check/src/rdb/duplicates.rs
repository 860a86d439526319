//! A search for keys that an RDB file contains twice. Servers refuse such a file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use persist::load::key_name;

use super::facts::{Facts, Finding};
use crate::text;

/// The maximum number of bytes of a record that are read to find its key's name.
const NAME_BYTES_MAX: usize = 64 * 1024;

/// Adds a finding for each key that the file contains twice. `databases` has pairs of an offset and
/// the database of the keys from there on. Pairs of keys with equal hashes are found first. Before
/// such a pair is listed, both names are read again, so that two different names are not a finding.
/// O(keys × log keys).
pub(crate) fn find(facts: &mut Facts, databases: &[(u64, u64)], file: &File, version: u16) {
    facts.names.sort_unstable();
    let pairs = facts.names.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let mut pairs: Vec<(u64, u64)> = pairs.map(|pair| (pair[1].1, pair[0].1)).collect();
    pairs.sort_unstable();
    for (second, first) in pairs {
        // A finding that is counted but not listed needs no name.
        let is_listed = facts.has_room_for(second);
        let names =
            if is_listed { [first, second].map(|at| name_at(file, at, version)) } else { [None, None] };
        if let [Some(one), Some(other)] = &names
            && one != other
        {
            continue;
        }
        let [_, name] = names;
        let db = databases.partition_point(|&(from, _)| from <= second).checked_sub(1);
        facts.add_finding(Finding {
            file_offset: second,
            record_offset: second,
            db: db.map(|at| databases[at].1),
            key: name.as_deref().map(text::key),
            form: None,
            what: format!("a duplicate key: its first record is at byte {first}"),
            good_keys_before: 0,
        });
    }
}

/// Reads the name of the key whose record begins at the offset `at`. Returns `None` for a long
/// name, and for a file that cannot be read twice, such as a pipe.
fn name_at(file: &File, at: u64, version: u16) -> Option<Vec<u8>> {
    let mut bytes = vec![0; NAME_BYTES_MAX];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) | Err(_) => break,
            Ok(len) => filled += len,
        }
    }
    key_name(&bytes[..filled], version)
}

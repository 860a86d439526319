//! DEBUG RELOAD: every key is written out and read in again, as a restart from
//! a snapshot would do it.
//!
//! In memory, one shard after the other, by the code that snapshots and DUMP have their values
//! from. The caller is alone in the gate. A key that is over goes, as when a snapshot is loaded.

use keyspace::key::SHARD_COUNT;
use keyspace::string::stored;
use keyspace::{KeyEntry, Keyspace};
use persist::dump::{self, PayloadError};
use persist::rdb::{Compression, Rules, Value};
use structures::entry::NewValue;

/// Reloads all keys. O(all data). A key that cannot be read again stays as it is.
///
/// # Errors
/// The first key that could not be read again, which is a bug.
pub fn reload(keyspace: &Keyspace, rules: &Rules<'_>, now_ms: i64) -> Result<(), PayloadError> {
    let mut result = Ok(());
    for shard in 0..SHARD_COUNT {
        let mut guard = keyspace.lock(shard);
        for db in 0..keyspace.db_count() {
            keyspace.map_keys(&mut guard, db, |entry| {
                if entry.expiry_ms().is_some_and(|at_ms| at_ms <= now_ms) {
                    return None;
                }
                Some(again(entry, rules).unwrap_or_else(|error| {
                    if result.is_ok() {
                        result = Err(error);
                    }
                    entry.duplicate(entry.key(), entry.access())
                }))
            });
        }
    }
    result
}

/// The entry as it is after it was written out and read in.
fn again(entry: &KeyEntry, rules: &Rules<'_>) -> Result<KeyEntry, PayloadError> {
    let value = match dump::restore(&dump::dump(&entry.view(), Compression::None), rules)? {
        Value::Short(bytes) => {
            return Ok(KeyEntry::new(entry.key(), stored(&bytes), entry.expiry_ms(), entry.access()));
        }
        Value::Object(object) => NewValue::Object(object),
    };
    Ok(KeyEntry::new(entry.key(), value, entry.expiry_ms(), entry.access()))
}

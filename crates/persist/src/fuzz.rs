//! What must hold for any bytes, as functions that a fuzzer or a plain loop of random inputs calls.
//! Each panics when its property is broken.

use keyspace::{Hasher, KeyEntry, ListLimits, PackLimits, SetLimits, StreamLimits};
use structures::entry::NewValue;

use crate::dump::{dump, read_typed, restore};
use crate::rdb::{REDIS_VERSION_MAX, Rules, VALKEY_VERSION, Value, ValueType};

/// Small limits, so that short inputs are on both sides of them.
fn rules(hasher: &Hasher) -> Rules<'_> {
    let pack = PackLimits { entries_max: 4, value_len_bytes_max: 8 };
    Rules {
        hasher,
        list: ListLimits::from_option(5),
        set: SetLimits { intset_entries_max: 4, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 100, node_entries_max: 3 },
        string_len_bytes_max: 1 << 20,
    }
}

/// Any bytes are refused as a value, or are one that is written and read again the same. The first byte
/// chooses the version of the format, the second is the type.
pub fn fuzz_dump_payload(data: &[u8]) {
    let hasher = Hasher::with_seed([1, 2, 3, 4]);
    let rules = rules(&hasher);
    // As it comes, the checksum is practically always wrong.
    let _ = restore(data, &rules);
    let Some((&choice, bytes)) = data.split_first() else { return };
    let version = if choice.is_multiple_of(2) { REDIS_VERSION_MAX } else { VALKEY_VERSION };
    let Ok(value) = read_typed(bytes, version, &rules) else { return };
    let entry = entry_of(value);
    for compress in [false, true] {
        let payload = dump(&entry.view(), compress);
        let again = entry_of(restore(&payload, &rules).expect("what was written is a value"));
        assert_eq!(dump(&again.view(), compress), payload, "a value changed on its way");
    }
}

/// The same for the newest type of streams alone: nodes, figures, consumer groups.
pub fn fuzz_stream(data: &[u8]) {
    fuzz_dump_payload(&[&[0, ValueType::StreamListpacks3.number()], data].concat());
}

/// A key that holds `value`.
fn entry_of(value: Value) -> KeyEntry {
    let value = match &value {
        Value::Short(bytes) => keyspace::string::stored(bytes),
        Value::Object(object) => NewValue::Object(object.clone()),
    };
    KeyEntry::new(b"key", value, None, 0)
}

//! What must hold for any bytes, as functions that a fuzzer or a plain loop of random inputs calls.
//! Each panics when its property is broken.

use keyspace::{Hasher, KeyEntry, ListLimits, Object, PackLimits, SetLimits, StreamLimits};
use structures::entry::{NewValue, View};

use crate::dump::{dump, read_typed, restore};
use crate::rdb::{Compression, REDIS_VERSION_MAX, Rules, VALKEY_VERSION, Value, ValueType, VersionCheck};

/// Small limits, so that short inputs are on both sides of them.
fn rules(hasher: &Hasher) -> Rules<'_> {
    let pack = PackLimits { entries_max: 4, value_len_bytes_max: 8 };
    Rules {
        hasher,
        list: ListLimits::from_option(5).with_compress_depth(1),
        set: SetLimits { intset_entries_max: 4, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 100, node_entries_max: 3 },
        string_len_bytes_max: 1 << 20,
        versions: VersionCheck::Strict,
    }
}

/// Any bytes are refused as a value, or are one that is written and read again the same. The first
/// byte chooses the version of the format, the second is the type.
pub fn fuzz_dump_payload(data: &[u8]) {
    let hasher = Hasher::with_seed([1, 2, 3, 4]);
    let rules = rules(&hasher);
    // As it comes, the checksum is practically always wrong.
    let _ = restore(data, &rules);
    let Some((&choice, bytes)) = data.split_first() else { return };
    let version = if choice.is_multiple_of(2) { REDIS_VERSION_MAX } else { VALKEY_VERSION };
    let Ok(value) = read_typed(bytes, version, &rules) else { return };
    let entry = entry_of(value);
    for compression in [Compression::None, Compression::Lzf] {
        let payload = dump(&entry.view(), compression);
        let again = entry_of(restore(&payload, &rules).expect("what was written is a value"));
        match (elements(&entry), elements(&again)) {
            (None, None) => {
                assert_eq!(dump(&again.view(), compression), payload, "a value changed on its way")
            }
            (one, other) => assert_eq!(one, other, "a value changed on its way"),
        }
    }
}

/// The same for the newest type of streams alone: nodes, figures, consumer groups.
pub fn fuzz_stream(data: &[u8]) {
    fuzz_dump_payload(&[&[0, ValueType::StreamListpacks3.number()], data].concat());
}

/// What is compared instead of the bytes: the elements of a table, whose order depends
/// on that in which they were added, and of a sorted set, whose zeros may lose their
/// sign; `None` for the rest.
fn elements(entry: &KeyEntry) -> Option<Vec<String>> {
    let View::Object(object) = entry.view() else { return None };
    let mut elements: Vec<String> = match object {
        Object::Set(set) if set.encoding_name() == "hashtable" => {
            set.iter().map(|member| format!("{member:?}")).collect()
        }
        Object::Hash(hash) if hash.encoding_name() == "hashtable" => {
            hash.fields().map(|field| format!("{field:?}")).collect()
        }
        // Packed, a score of -0 is 0, as in Redis.
        Object::Zset(zset) => {
            zset.iter().map(|(member, score)| format!("{member:?} {}", score + 0.0)).collect()
        }
        _ => return None,
    };
    elements.sort_unstable();
    Some(elements)
}

/// A key that holds `value`.
fn entry_of(value: Value) -> KeyEntry {
    let value = match &value {
        Value::Short(bytes) => keyspace::string::stored(bytes),
        Value::Object(object) => NewValue::Object(object.clone()),
    };
    KeyEntry::new(b"key", value, None, 0)
}

#[cfg(test)]
mod tests {
    use super::fuzz_dump_payload;

    /// Found by fuzzing.
    #[test]
    fn a_zero_score_may_lose_its_sign() {
        let value = b"\0\x05\x02\0\0\0\0\0\0\0\0\x80\xc2\x06\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xc2";
        fuzz_dump_payload(value);
    }

    /// Found by fuzzing: a table gives its elements in another order when they
    /// were added in another.
    #[test]
    fn a_table_may_come_back_in_another_order() {
        let value = b"\x16\x16\x04\x01\x04\0\x01\x02\x02\x03\x01\x04\xba\x01\x03\x07\x07\x07\x07\x07\x07\x01\x01\x04\x01\0\
            \x40\x51\0\0\0\x0a\x40\0\0\x02\0\x01\x95\0\x7e\0\0";
        fuzz_dump_payload(value);
    }
}

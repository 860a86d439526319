//! What must hold for any bytes, as functions that a fuzzer or a plain loop of random inputs calls.
//! Each panics when its property is broken.

use keyspace::{Access, Hasher, KeyEntry, ListLimits, Object, PackLimits, SetLimits, StreamLimits};
use structures::entry::{NewValue, View};

use crate::dump::{dump, read_typed, restore};
use crate::load::{DecodeOptions, LoadOptions, Part, Splitter, Unsupported, decode_batch};
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
        skips_checksums: false,
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

/// Envelope and header of a compressed file: blocks of up to 64 KiB that refer to each other.
const COMPRESSED: &[u8] = b"VCS\x01\x01\0\x01\x04\x22\x4d\x18\x40\x40\xc0";
/// Bytes that one byte of a compressed file can stand for at most.
const EXPANSION_MAX: usize = 255;

/// Any bytes are refused as a file, or are cut into batches that hold no more bytes than the file
/// does, and decoding those does not panic. What begins with a magic is a whole file, such as those
/// that servers wrote; otherwise the first byte chooses the magic and the options.
pub fn fuzz_file(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let is_whole = [&b"REDIS"[..], b"VALKEY", b"VCS"].iter().any(|magic| data.starts_with(magic));
    let (choice, magic, rest): (u8, &[u8], _) = match first % 6 {
        _ if is_whole => (0, b"", data),
        0 => (first, b"REDIS0012", rest),
        1 => (first, b"VALKEY080", rest),
        2 => (first, b"REDIS0015", rest),
        3 => (first, b"VALKEY081", rest),
        4 => (first, COMPRESSED, rest),
        _ => (first, b"", rest),
    };
    let bytes = [magic, rest].concat();
    let hasher = Hasher::with_seed([1, 2, 3, 4]);
    let rules = rules(&hasher);
    let options = LoadOptions {
        versions: VersionCheck::Strict,
        checksum: choice >= 0x80,
        unsupported: if choice & 0x40 == 0 { Unsupported::Kept } else { Unsupported::Skipped },
    };
    let Ok(mut splitter) = Splitter::open(&bytes[..], options, 16) else { return };
    let decode = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 1_000_000 }, now_ms: 1 };
    let plain_len_bytes = match bytes.starts_with(b"VCS") {
        true => bytes.len() * EXPANSION_MAX,
        false => bytes.len(),
    };
    let mut given_len_bytes = 0;
    while let Ok(part) = splitter.next_part() {
        match part {
            Part::End => break,
            Part::Batch(batch) => {
                given_len_bytes += batch.len_bytes();
                assert!(given_len_bytes <= plain_len_bytes, "a batch that is not in the file");
                // A broken value ends a load; here the rest is looked at as well.
                let _ = decode_batch(&batch, &decode, |_| ());
            }
            Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
        }
        assert!(splitter.file_offset() <= plain_len_bytes as u64, "beyond the end of the file");
    }
}

/// As [`fuzz_dump_payload`], for the newest type of streams alone: nodes, figures, consumer groups.
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
    use super::{fuzz_dump_payload, fuzz_file};

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

    /// Names that hashes share and such hashes, an array, a module's value; the same stored in a
    /// frame, for the choice of a compressed file.
    #[test]
    fn changed_files_of_newer_servers_are_refused_or_loaded_within_their_bytes() {
        let records = b"\xf2\x05\x02\x01a\x02bb\x1e\x01k\x0f\x0f\0\0\0\x03\0\x05\x01\x81x\x02\x81y\x02\xff\
            \x20\x01l\x05\x01x\x01y\x1c\x01m\x01\0\0\x01\x2a\0\0\0\0\0\0\0\
            \x07\x01n\x81\x11\x11\x11\x11\x11\x11\x11\x11\x05\x01v\0\xff\0\0\0\0\0\0\0\0";
        change(records);
        let plain = [&b"REDIS0015"[..], records].concat();
        change(&[&(plain.len() as u32 | 1 << 31).to_le_bytes(), &plain[..], &[0; 4]].concat());
        change(b"\xf2*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n\x17\x01p\x01\x01a\x01\x01f\x01v\xff\0\0\0\0\0\0\0\0");
    }

    /// A small file of several types.
    #[test]
    fn changed_files_are_refused_or_loaded_within_their_bytes() {
        change(b"\xfa\x09redis-ver\x058.0.2\xfe\0\xfb\x05\x01\xfc\xff\xff\0\0\0\0\0\0\xf8\x05\0\x01a\xc0\x05\
            \x02\x01b\x02\x01x\x01y\x05\x01c\x01\x01m\0\0\0\0\0\0\xf0\x3f\
            \x04\x01d\x01\x01f\x01v\x12\x01e\x01\x01\x03abc\x0b\x01g\x0a\x02\0\0\0\x01\0\0\0\x07\0\
            \x18\x01h\xe8\x03\0\0\0\0\0\0\x01\x01\x01f\x01v\x15\x01i\0\0\0\0\0\0\0\0\0\0\0\xff\0\0\0\0\0\0\0\0");
    }

    /// Pieces of the file are overwritten, cut out and doubled.
    fn change(file: &[u8]) {
        let mut state = 1_u64;
        let mut next = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let mut bytes = [&[next(256) as u8][..], file].concat();
            for _ in 0..next(4) {
                let at = 1 + next(bytes.len() - 1);
                match next(4) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes[at] ^= 1 << next(8),
                    2 => drop(bytes.drain(at..(at + 1 + next(4)).min(bytes.len()))),
                    _ => bytes.splice(at..at, [0x81, 0xff, 0xff, 0xff]).for_each(drop),
                }
                if bytes.len() < 2 {
                    break;
                }
            }
            fuzz_file(&bytes);
        }
    }
}

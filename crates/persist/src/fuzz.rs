//! Properties that must hold for any input bytes, as functions for a fuzzer or for a loop of random
//! inputs. Each function panics if its property does not hold.

use keyspace::{Access, Hasher, KeyEntry, ListLimits, Object, PackLimits, SetLimits, StreamLimits};
use structures::entry::{NewValue, View};

use crate::aof::manifest::{BaseKind, KeptIncrs, Manifest};
use crate::aof::reader::{AofError, End, Next, Reader as AofReader};
use crate::dump::{dump, read_typed, restore};
use crate::folder::FileError;
use crate::load::{ByteSource, DecodeOptions, LoadOptions, Part, Splitter, Unsupported, decode_batch};
use crate::rdb::{Compression, REDIS_VERSION_MAX, Rules, VALKEY_VERSION, Value, ValueType, VersionCheck};

/// Returns small limits for the packed forms of values, so that some short inputs exceed them.
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

/// Checks that any bytes are either rejected as a value in RDB format, or are decoded as a value
/// that stays the same when it is written and read again. The first byte of `data` chooses the
/// version of the format; the second is the type.
pub fn fuzz_dump_payload(data: &[u8]) {
    let hasher = Hasher::with_seed([1, 2, 3, 4]);
    let rules = rules(&hasher);
    // Unchanged input practically always has a wrong checksum.
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

/// The envelope and header of a compressed file with blocks of up to 64 KiB that refer to each
/// other.
const COMPRESSED: &[u8] = b"VCS\x01\x01\0\x01\x04\x22\x4d\x18\x40\x40\xc0";
/// The maximum number of bytes to which one byte of a compressed file expands.
const EXPANSION_MAX: usize = 255;

/// Checks that any bytes are rejected as an RDB file, or are split into batches that have no more
/// bytes than the file. Decoding these must not panic. Bytes that begin with the magic of an RDB
/// file are a whole file. For other bytes, the first one chooses the magic and the options.
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
                // A broken value ends a load; here the rest is decoded as well.
                let _ = decode_batch(&batch, &decode, |_| ());
            }
            Part::Fact { .. } | Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
        }
        assert!(splitter.file_offset() <= plain_len_bytes as u64, "beyond the end of the file");
    }
}

/// Checks the property of [`fuzz_dump_payload`] for streams, in the newest type that is written:
/// nodes, counters, consumer groups.
pub fn fuzz_stream(data: &[u8]) {
    fuzz_dump_payload(&[&[0, ValueType::StreamListpacks3.number()], data].concat());
}

/// Checks that any bytes are a manifest of an append-only file or are rejected as one. A manifest
/// stays the same when it is written and read again, even after a change.
pub fn fuzz_manifest(data: &[u8]) {
    let Ok(mut manifest) = Manifest::parse(data) else { return };
    let same = |manifest: &Manifest| {
        let text = manifest.to_text();
        // Quotes can make a name longer, so that a line is too long.
        if !text.is_empty() && text.lines().all(|line| line.len() < 1024) {
            assert_eq!(Manifest::parse(text.as_bytes()).as_ref(), Ok(manifest), "read again");
        }
    };
    let of_file = |manifest: &Manifest| {
        Manifest::parse(manifest.to_text().as_bytes()).unwrap_or_else(|_| manifest.clone())
    };
    same(&of_file(&manifest));
    let generations = manifest.generations();
    assert!(generations.iter().all(|of| of.base.is_some() || !of.incr.is_empty()));
    let first = manifest.add_incr("a b.aof").seq;
    let seq = manifest.add_incr("a b.aof").seq;
    assert!(first < seq && manifest.incr.is_sorted_by(|one, other| one.seq < other.seq));
    manifest.replace_base("a b.aof", BaseKind::Rdb, KeptIncrs::From { seq });
    assert_eq!(manifest.incr.len(), 1);
    same(&manifest);
    manifest.date_history(9);
    let replaced = manifest.parts().count();
    manifest.replace_base("a b.aof", BaseKind::Rdb, KeptIncrs::None);
    manifest.note_restore(7, replaced);
    // If no incremental file is named, the number of the last one is not written.
    manifest = of_file(&manifest);
    same(&manifest);
    assert!(manifest.was_restored(7) && manifest.generations().len() >= 2);
    manifest.take_expired(i64::MAX, 0, |_| false);
    assert!(manifest.history.is_empty());
    // Above, a line of the history may have been too long to be read again.
    same(&of_file(&manifest));
}

/// A source of a file's bytes that returns at most this number of bytes per read.
struct Pieces<'b>(&'b [u8], usize);

impl ByteSource for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let len = buffer.len().min(self.1);
        self.0.read(&mut buffer[..len])
    }
}

/// Checks that an append-only file of any bytes, read in pieces of any length, is split into
/// batches that together are its complete part. Bytes that begin as an append-only file does are a
/// whole file. For other bytes, the first one chooses the length of reads.
pub fn fuzz_aof(data: &[u8]) {
    let Some((&piece, rest)) = data.split_first() else { return };
    let file = if matches!(piece, b'*' | b'#') { data } else { rest };
    let whole = read_aof(AofReader::new(Pieces(file, usize::MAX)).with_batch_len_bytes(4096));
    let pieces = Pieces(file, usize::from(piece) + 1);
    let (batches, end) = read_aof(AofReader::new(pieces).with_batch_len_bytes(64));
    assert_eq!((&batches, &end), (&whole.0, &whole.1), "read in pieces it is another");
    let (good, end) = match end {
        Ok(End::Whole) => (file.len() as u64, file.len() as u64),
        Ok(End::TornTail(torn)) => {
            assert_eq!(torn.file_len_bytes, file.len() as u64);
            assert!(
                torn.request_within.is_none_or(|at| at > torn.good_len_bytes && at < torn.file_len_bytes)
            );
            (torn.good_len_bytes, torn.multi_offset.unwrap_or(torn.good_len_bytes))
        }
        Err(AofError::Broken(broken)) => (broken.good_len_bytes, broken.offset),
        Err(AofError::Reading(trouble)) => panic!("nothing fails here: {trouble}"),
    };
    assert!(good <= end && end <= file.len() as u64);
    assert_eq!(batches, file[..good as usize], "other bytes than those of the file");
}

/// Returns the bytes of an append-only file's batches, and the end of the file.
fn read_aof(mut reader: AofReader<Pieces<'_>>) -> (Vec<u8>, Result<End, AofError>) {
    let mut bytes = Vec::new();
    loop {
        let batch = match reader.next_batch() {
            Ok(Next::Batch(batch)) => batch,
            Ok(Next::End(end)) => return (bytes, Ok(end)),
            Err(error) => return (bytes, Err(error)),
        };
        assert_eq!(batch.file_offset(), bytes.len() as u64);
        assert_eq!(batch.units().map(|unit| unit.len()).sum::<usize>(), batch.len());
        for request in batch.requests() {
            let args: Vec<&[u8]> = request.args.iter().map(|arg| arg.of(request.bytes)).collect();
            let mut again = Vec::new();
            resp::encode_request(&args, &mut again);
            assert_eq!(again, request.bytes[..request.len_bytes()], "another request");
        }
        for time_s in [i64::MIN, 0, 1_700_000_000] {
            let cut = batch.cut_behind_time(time_s);
            assert!(cut.is_none_or(|cut| cut.len_bytes <= batch.len_bytes() && cut.requests <= batch.len()));
        }
        let cut = batch.cut_at_offset(batch.file_offset() + batch.len_bytes() as u64 / 2);
        assert!(cut.len_bytes <= batch.len_bytes() / 2);
        bytes.extend_from_slice(batch.bytes());
        reader.recycle(batch);
    }
}

/// Returns the elements of a value that cannot be compared by its bytes; `None` for other values.
/// Such values are tables, whose order depends on the order of insertion, and sorted sets, in which
/// a zero score may lose its sign.
fn elements(entry: &KeyEntry) -> Option<Vec<String>> {
    let View::Object(object) = entry.view() else { return None };
    let mut elements: Vec<String> = match object {
        Object::Set(set) if set.encoding_name() == "hashtable" => {
            set.iter().map(|member| format!("{member:?}")).collect()
        }
        Object::Hash(hash) if hash.encoding_name() == "hashtable" => {
            hash.fields().map(|field| format!("{field:?}")).collect()
        }
        // In a packed sorted set, a score of -0 becomes 0, as in Redis.
        Object::Zset(zset) => {
            zset.iter().map(|(member, score)| format!("{member:?} {}", score + 0.0)).collect()
        }
        _ => return None,
    };
    elements.sort_unstable();
    Some(elements)
}

/// Creates an entry of an RDB file: a key that holds `value`.
fn entry_of(value: Value) -> KeyEntry {
    let value = match &value {
        Value::Short(bytes) => keyspace::string::stored(bytes),
        Value::Object(object) => NewValue::Object(object.clone()),
    };
    KeyEntry::new(b"key", value, None, 0)
}

#[cfg(test)]
mod tests {
    use super::{fuzz_aof, fuzz_dump_payload, fuzz_file, fuzz_manifest};

    /// Checks a case found by fuzzing: a sorted set whose zero score changes its sign.
    #[test]
    fn a_zero_score_may_lose_its_sign() {
        let value = b"\0\x05\x02\0\0\0\0\0\0\0\0\x80\xc2\x06\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\xc2";
        fuzz_dump_payload(value);
    }

    /// Checks a case found by fuzzing: a table lists its elements in another order if they were
    /// added in another order.
    #[test]
    fn a_table_may_come_back_in_another_order() {
        let value = b"\x16\x16\x04\x01\x04\0\x01\x02\x02\x03\x01\x04\xba\x01\x03\x07\x07\x07\x07\x07\x07\x01\x01\x04\x01\0\
            \x40\x51\0\0\0\x0a\x40\0\0\x02\0\x01\x95\0\x7e\0\0";
        fuzz_dump_payload(value);
    }

    /// Checks random changes of RDB files with shared field names and hashes that use them, with an
    /// array, and with a module's value, both plain and inside a compressed frame.
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

    /// Checks random changes of a small RDB file with values of several types.
    #[test]
    fn changed_files_are_refused_or_loaded_within_their_bytes() {
        change(b"\xfa\x09redis-ver\x058.0.2\xfe\0\xfb\x05\x01\xfc\xff\xff\0\0\0\0\0\0\xf8\x05\0\x01a\xc0\x05\
            \x02\x01b\x02\x01x\x01y\x05\x01c\x01\x01m\0\0\0\0\0\0\xf0\x3f\
            \x04\x01d\x01\x01f\x01v\x12\x01e\x01\x01\x03abc\x0b\x01g\x0a\x02\0\0\0\x01\0\0\0\x07\0\
            \x18\x01h\xe8\x03\0\0\0\0\0\0\x01\x01\x01f\x01v\x15\x01i\0\0\0\0\0\0\0\0\0\0\0\xff\0\0\0\0\0\0\0\0");
    }

    /// Checks random changes of append-only files that real servers wrote.
    #[test]
    fn changed_append_only_files_are_cut_into_units_or_refused() {
        for file in [
            &include_bytes!("../tests/files/aof/redis-8.0.6/appendonly.aof.2.incr.aof")[..],
            include_bytes!("../tests/files/aof/valkey-9.1.2/appendonly.aof.2.incr.aof"),
            b"#TS:1\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n",
        ] {
            change_for(file, b"\r\n*99999999\r\n$7\r\n", fuzz_aof);
        }
    }

    /// Checks random changes of the manifest of a real server, and of one with unusual names.
    #[test]
    fn changed_manifests_are_read_or_refused() {
        let manifest = &include_bytes!("../tests/files/aof/redis-8.0.6/appendonly.aof.manifest")[..];
        let odd =
            b"file \"a b\\xc3\\xa9\" seq 1 type b\n# x\nfile 'a\"' seq 7 type h\nfile a seq 9 type i x y\n";
        change_for(manifest, b" 9999999999999999\n", |bytes| fuzz_manifest(&bytes[1..]));
        change_for(odd, b"\nfile", |bytes| fuzz_manifest(&bytes[1..]));
    }

    fn change(file: &[u8]) {
        change_for(file, &[0x81, 0xff, 0xff, 0xff], fuzz_file);
    }

    /// Calls `fuzz` with variants of the file: bytes overwritten, bits flipped, parts removed, or
    /// `strange` inserted. Each variant has one additional byte before the file.
    fn change_for(file: &[u8], strange: &[u8], fuzz: impl Fn(&[u8])) {
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
                    _ => bytes.splice(at..at, strange.iter().copied()).for_each(drop),
                }
                if bytes.len() < 2 {
                    break;
                }
            }
            fuzz(&bytes);
        }
    }
}

//! Tests of whole RDB files: files of each version that is written, and handmade files as other
//! servers write them.

use std::io::Write as _;

use keyspace::parts::{Head, ValuePart};
use keyspace::{Access, HashField, KeyEntry};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use persist::dump::restore;
use persist::load::{
    DecodeOptions, Decoded, FileChecksum, LoadError, LoadErrorKind, LoadOptions, Part, Splitter, Unsupported,
    decode_batch, inspect_batch,
};
use persist::rdb::{Compression, Encoder, FileVersion, FormatErrorKind, Usage, VersionCheck};
use structures::listpack::Listpack;
use structures::listpack::element::Element;
use structures::quicklist::NodeView;

use crate::payloads::{WRITTEN_BY_SERVERS, bytes_of, entry_of, hasher, rules, told};

const VERSIONS: [FileVersion; 5] = [
    FileVersion::Redis5,
    FileVersion::Redis7,
    FileVersion::Redis7Dot2,
    FileVersion::Redis7Dot4,
    FileVersion::Valkey9,
];

/// The result of reading an RDB file: its keys and its other contents.
struct Read {
    /// The keys of the file: name, type in the file, and value.
    keys: Vec<(String, u8, String)>,
    skipped: Vec<String>,
    checksum: FileChecksum,
}

impl Read {
    fn values(&self) -> Vec<&str> {
        self.keys.iter().map(|(_, _, value)| &**value).collect()
    }
}

fn read(bytes: &[u8], unsupported: Unsupported) -> Result<Read, LoadError> {
    let hasher = hasher();
    let rules = rules(&hasher);
    let options = LoadOptions { versions: VersionCheck::Strict, checksum: true, unsupported };
    let decode = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms: 0 };
    let mut splitter = Splitter::open(bytes, options, 16)?;
    let mut keys = Vec::new();
    loop {
        match splitter.next_part()? {
            Part::Batch(batch) => {
                let mut kinds = Vec::new();
                inspect_batch(&batch, &decode, |record| {
                    kinds.push(record.kind.expect("a type that is there").number());
                });
                let mut kinds = kinds.into_iter();
                decode_batch(&batch, &decode, |decoded| {
                    let Decoded::Key(entry) = decoded else { return };
                    let name = String::from_utf8_lossy(entry.key()).into_owned();
                    keys.push((name, kinds.next().expect("as many"), told(&entry)));
                })?;
            }
            Part::End => break,
            _ => {}
        }
    }
    let skipped = splitter.skipped().iter().map(|(feature, count)| format!("{count} {feature}")).collect();
    Ok(Read { keys, skipped, checksum: splitter.checksum() })
}

/// Returns an RDB file without checksum, of this magic and these records.
fn file(magic: &str, records: &[&[u8]]) -> Vec<u8> {
    [magic.as_bytes(), &records.concat(), &[0xFF], &[0; 8]].concat()
}

fn written(version: FileVersion, write: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut encoder = Encoder::new(version, Compression::Lzf, Usage::None);
    encoder.magic();
    write(&mut encoder);
    encoder.end();
    assert_eq!(encoder.too_long(), None);
    [&encoder.buffer()[..], &[0; 8]].concat()
}

fn entries() -> Vec<KeyEntry> {
    let hasher = hasher();
    let restored = |(payload, _): &(&str, &str)| {
        entry_of(restore(&bytes_of(payload), &rules(&hasher)).expect("a real server wrote it"))
    };
    WRITTEN_BY_SERVERS.iter().map(restored).collect()
}

#[test]
fn each_version_has_types_that_its_servers_know_and_all_that_these_can_hold() {
    for version in VERSIONS {
        let known: &[u8] = match version {
            FileVersion::Redis5 => &[0, 2, 4, 5, 11, 14, 15],
            FileVersion::Redis7 => &[0, 2, 4, 5, 11, 16, 17, 18, 19],
            FileVersion::Redis7Dot2 => &[0, 2, 4, 5, 11, 16, 17, 18, 20, 21],
            FileVersion::Redis7Dot4 => &[0, 2, 4, 5, 11, 16, 17, 18, 20, 21, 24, 25],
            FileVersion::Valkey9 => &[0, 2, 4, 5, 11, 16, 17, 18, 20, 21, 22],
        };
        let mut seen = std::collections::BTreeSet::new();
        for entry in entries() {
            let expected = told(&entry);
            if expected.contains("hash") && expected.contains('@') && !version.has_field_deadlines() {
                continue;
            }
            let read = read(&written(version, |encoder| encoder.entry(&entry)), Unsupported::Refused);
            let read = read.unwrap_or_else(|error| panic!("{version:?} {expected}: {error}"));
            let (_, kind, value) = &read.keys[0];
            assert!(known.contains(kind), "{version:?}: type {kind} for {expected}");
            seen.insert(*kind);
            if expected.starts_with("stream") && version < FileVersion::Redis7Dot2 {
                continue;
            }
            // Fields with the same deadline may be in any order.
            let words =
                |value: &str| std::collections::BTreeSet::from_iter(value.split(' ').map(str::to_owned));
            assert_eq!(words(value), words(&expected), "{version:?}");
        }
        let unseen: Vec<_> = known.iter().filter(|kind| !seen.contains(*kind)).collect();
        // These are the types of values that are too big for a listpack.
        assert!(
            unseen.iter().all(|kind| [2, 4, 5].contains(*kind)),
            "{version:?}: types {unseen:?} are not written"
        );
    }
}

#[test]
fn old_versions_keep_of_streams_what_their_servers_know() {
    let stream = entries().into_iter().find(|entry| told(entry).contains("group")).expect("one with groups");
    let in_version = |version| {
        let file = written(version, |encoder| encoder.entry(&stream));
        read(&file, Unsupported::Refused).expect("good").keys[0].2.clone()
    };
    assert_eq!(in_version(FileVersion::Redis7Dot2), told(&stream));
    // This version does not store that a consumer was never active.
    let in_7 = told(&stream).replace(" (inactive)", "");
    assert_eq!(in_version(FileVersion::Redis7), in_7);
    // The number of entries that a group has read is computed during the load.
    assert_eq!(in_version(FileVersion::Redis5), in_7.replace("b 1-3 read None", "b 1-3 read Some(3)"));
}

#[test]
fn values_in_pieces_are_written_in_each_version() {
    let pack = |words: &[&str]| {
        let mut pack = Listpack::new();
        words.iter().for_each(|word| pack.push_back(word.as_bytes()).expect("short"));
        pack
    };
    let long = "x".repeat(70_000);
    for version in VERSIONS {
        let file = written(version, |encoder| {
            encoder.big_head(b"list", Some(5_000), 0, &Head::List { nodes: 3 });
            let packs = [pack(&["a", "-5", "12", "127", "-129", "40000", "9000000"]), pack(&["b"])];
            for pack in &packs {
                let run = &pack.as_bytes()[6..pack.len_bytes() - 1];
                encoder.big_part(&ValuePart::Node(NodeView::Packed { run, count: pack.len() }));
            }
            encoder.big_part(&ValuePart::Node(NodeView::Plain(long.as_bytes())));
            let field = |name: &'static str, deadline_ms| HashField {
                name: Element::Bytes(name.as_bytes()),
                value: Element::Int(1),
                deadline_ms,
            };
            let timed = version.has_field_deadlines();
            let deadline_min_ms = timed.then_some(1_000);
            encoder.big_head(b"hash", None, 0, &Head::Hash { fields: 2, deadline_min_ms });
            encoder.big_part(&ValuePart::Field(field("f", timed.then_some(1_800_000_000_000))));
            encoder.big_part(&ValuePart::Field(field("g", None)));
        });
        let read = read(&file, Unsupported::Refused).expect("good");
        let expected = format!("quicklist list a -5 12 127 -129 40000 9000000 b {long}");
        assert_eq!(read.keys[0].2, expected, "{version:?}");
        let expected = if version.has_field_deadlines() {
            "listpackex hash f=1@1800000000000 g=1"
        } else {
            "listpack hash f=1 g=1"
        };
        assert_eq!(read.keys[1].2, expected, "{version:?}");
    }
}

/// Returns a listpack of a number and strings, as a string of the RDB format.
fn packed(number: i64, words: &[&str]) -> Vec<u8> {
    let mut pack = Listpack::new();
    pack.push_back(Element::Int(number)).expect("short");
    words.iter().for_each(|word| pack.push_back(word.as_bytes()).expect("short"));
    [&[pack.len_bytes() as u8], pack.as_bytes()].concat()
}

const NAMES: &[u8] = b"\xf2\x07\x02\x01b\x02aa";

#[test]
fn hashes_that_share_their_field_names_get_names_of_their_own() {
    let in_listpack = [&b"\x1e\x01k"[..], &packed(7, &["1", "x"])].concat();
    let in_array = b"\x20\x01l\x07\xc0\x05\x01y";
    let read = |records: &[&[u8]]| read(&file("REDIS0015", records), Unsupported::Refused);
    let good = read(&[NAMES, &in_listpack, b"\xf2\x40\x50\x01\0", in_array, b"\x20\x01m\x40\x50\xc0\x09"]);
    let good = good.map(|read| read.keys).expect("good");
    let key = |name: &str, kind, value: &str| (name.to_owned(), kind, value.to_owned());
    assert_eq!(
        good,
        [
            key("k", 30, "listpack hash b=1 aa=x"),
            key("l", 32, "listpack hash b=5 aa=y"),
            key("m", 32, "listpack hash =9")
        ]
    );
    let error = |records: &[&[u8]]| read(records).map(|read| read.keys).expect_err("broken").kind;
    let kinds = [
        (error(&[&in_listpack]), FormatErrorKind::UnknownFieldNames(7)),
        (error(&[in_array]), FormatErrorKind::UnknownFieldNames(7)),
        // The names are after the key.
        (error(&[&in_listpack, NAMES]), FormatErrorKind::UnknownFieldNames(7)),
        (error(&[NAMES, NAMES]), FormatErrorKind::BrokenFieldNames),
        (error(&[b"\xf2\x07\0"]), FormatErrorKind::BrokenFieldNames),
        (error(&[b"\xf2\x07\x02\x01b\x01b"]), FormatErrorKind::BrokenFieldNames),
        (error(&[b"\xf2\x07\x02\x02aa\x01b"]), FormatErrorKind::BrokenFieldNames),
        (
            error(&[b"\xf2\x07\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a\x01b\x82"]),
            FormatErrorKind::BrokenLength,
        ),
        (error(&[NAMES, b"\x1e\x01k", &packed(7, &["1"])]), FormatErrorKind::BrokenTemplate),
        (error(&[NAMES, b"\x1e\x01k", &packed(7, &["1", "2", "3"])]), FormatErrorKind::BrokenTemplate),
    ];
    for (at, (kind, expected)) in kinds.into_iter().enumerate() {
        assert_eq!(kind, LoadErrorKind::Format(expected), "{at}");
    }
}

/// Returns a record of an RDB file: a value or data of the module type `ReJSON-RL`, version 3.
fn module(first: u8, key: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |letter| LETTERS.iter().position(|&it| it == letter).expect("a letter") as u64;
    let id = b"ReJSON-RL".iter().fold(0, |id, &letter| id << 6 | digit(letter)) << 10 | 3;
    [&[first], key, &[0x81], &id.to_be_bytes(), b"\x05\x02{}\x02\x01\0"].concat()
}

#[test]
fn types_that_are_not_there_are_refused_with_the_key_or_left_out() {
    let path_hash = b"\x17\x01p\x01\x03a/b\x01\x01f\x01v";
    let update = b"\xf2*3\r\n$3\r\nSET\r\n$1\r\nu\r\n$1\r\nv\r\n";
    let string = b"\0\x01s\x01v";
    let module = module(7, b"\x01m");
    let data = self::module(0xF7, b"");
    // Each entry is a magic, a record, the key in the error, and the text of the error.
    type Case<'a> = (&'a str, &'a [u8], Option<&'a [u8]>, &'a str);
    let cases: [Case<'_>; 4] = [
        ("REDIS0012", &module, Some(b"m"), "a value of the module type 'ReJSON-RL'"),
        ("REDIS0012", &data, None, "data of the module type 'ReJSON-RL' beside its keys"),
        ("VALKEY081", path_hash, Some(b"p"), "a path hash of Valkey 9.2 (type 23)"),
        (
            "VALKEY081",
            update,
            Some(b"u"),
            "a command between the keys, written by Valkey 9.2 in a save without fork",
        ),
    ];
    for (magic, record, key, what) in cases {
        let file = file(magic, &[b"\0\x01r\x01v", record, string, record]);
        let error = read(&file, Unsupported::Refused).map(|read| read.keys).expect_err(what);
        assert_eq!(error.key.as_deref(), key, "{what}");
        assert!(error.to_string().contains(what), "{error}");
        let read = read(&file, Unsupported::Skipped).expect("the rest is good");
        assert_eq!(read.values(), ["string v", "string v"]);
        assert_eq!(read.skipped, [format!("2 {what}")]);
    }
    let error = read(&file("REDIS0014", &[b"\x21\x01g\0"]), Unsupported::Skipped).map(|read| read.keys);
    let error = error.expect_err("nobody knows where it ends");
    assert_eq!(
        (error.key.as_deref(), error.kind),
        (Some(&b"g"[..]), LoadErrorKind::Format(FormatErrorKind::UnknownType(33)))
    );
    for broken in [&b"\xf2*1\r\n$3\r\nSETx\n"[..], b"\xf2*1\r\n:3\r\n", b"\xf2*99999999999999999999\r\n"] {
        let error = read(&file("VALKEY081", &[broken]), Unsupported::Skipped).map(|read| read.keys);
        assert_eq!(error.expect_err("broken").kind, LoadErrorKind::Format(FormatErrorKind::BrokenCommand));
    }
}

#[test]
fn numbers_that_redis_and_valkey_use_twice_are_told_apart_by_the_magic() {
    let early = b"\x16\x01h\x01\0\x01f\x01v";
    let valkey = b"\x16\x01h\x01\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff";
    let metadata = b"\xf3\x01abcd\x02\x05\0\0\x01s\x01v";
    let mut import = b"\xf3\x28".to_vec();
    import.extend_from_slice(&[b'j'; 40]);
    import.extend_from_slice(b"\x01\0\x40\x64");
    let values =
        |magic, record: &[u8]| read(&file(magic, &[record]), Unsupported::Refused).map(|read| read.keys);
    for (magic, record) in [("REDIS0012", &early[..]), ("VALKEY080", valkey)] {
        assert_eq!(values(magic, record).expect("good")[0].2, "listpack hash f=v");
    }
    assert!(values("VALKEY080", early).is_err() && values("REDIS0012", valkey).is_err());
    assert_eq!(values("REDIS0013", metadata).expect("good")[0].2, "string v");
    assert!(values("VALKEY080", metadata).is_err());
    assert_eq!(values("VALKEY080", &import).expect("good"), []);
    assert!(values("REDIS0013", &import).is_err());
    assert!(values("VALKEY081", NAMES).is_err());
    // In release candidates of Redis 7.4 this number is a hash in a listpack.
    let early_pack = b"\x17\x01h\x0f\x0f\0\0\0\x03\0\x81f\x02\x81v\x02\0\x01\xff";
    assert_eq!(values("REDIS0012", early_pack).expect("good")[0].2, "listpackex hash f=v");
    assert!(values("VALKEY081", early_pack).is_err());
}

/// Returns an RDB file with keys of several megabytes.
fn long_file() -> Vec<u8> {
    let mut words = Vec::new();
    let mut state = 1_u64;
    while words.len() < 5_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words.extend_from_slice(format!("{} element ", state >> (40 + state % 20)).as_bytes());
    }
    let strings = words
        .chunks(70_000)
        .flat_map(|text| [&b"\0\x01k\x80"[..], &(text.len() as u32).to_be_bytes(), text].concat());
    let strings: Vec<u8> = strings.collect();
    file("VALKEY081", &[&strings])
}

fn compressed(bytes: &[u8], info: FrameInfo) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, b"VCS\x01\x01\0\x01".to_vec());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

#[test]
fn compressed_files_are_read_in_every_form_of_the_frame() {
    let plain = long_file();
    let expected = read(&plain, Unsupported::Refused).expect("good").keys;
    for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB] {
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            for has_checksums in [false, true] {
                let info = FrameInfo::new().block_size(size).block_mode(mode);
                let info = info.block_checksums(has_checksums).content_checksum(has_checksums);
                let info = if has_checksums { info.content_size(Some(plain.len() as u64)) } else { info };
                let file = compressed(&plain, info);
                assert!(file.len() < plain.len() / 2);
                let read = read(&file, Unsupported::Refused).unwrap_or_else(|error| panic!("{error}"));
                assert!(read.keys == expected, "{size:?} {mode:?}");
                assert_eq!(read.checksum, FileChecksum::NotWritten);
            }
        }
    }
}

#[test]
fn damaged_compressed_files_are_refused() {
    let plain = file("VALKEY081", &[&b"\0\x01s\x05hello".repeat(3000)]);
    let info = FrameInfo::new().content_checksum(true);
    let whole = compressed(&plain, info.clone());
    let kind =
        |bytes: &[u8]| read(bytes, Unsupported::Refused).map(|read| read.keys).expect_err("damaged").kind;
    for len in [8, 12, 20, whole.len() / 2, whole.len() - 1] {
        assert_eq!(kind(&whole[..len]), LoadErrorKind::Format(FormatErrorKind::EndOfInput), "{len}");
    }
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("not empty") ^= 1;
    assert_eq!(kind(&flipped), LoadErrorKind::Checksum);
    let block_checked = compressed(&plain, info.block_checksums(true));
    let mut flipped = block_checked.clone();
    flipped[40] ^= 1;
    assert_eq!(kind(&flipped), LoadErrorKind::Checksum);
    for (at, byte) in [(3, 2), (4, 2), (5, 1), (6, 2), (7, 5), (11, 0x80), (12, 0x30), (13, 0)] {
        let mut broken = whole.clone();
        broken[at] = byte;
        assert!(matches!(kind(&broken), LoadErrorKind::Frame(_)), "byte {at}");
    }
}

#[test]
fn a_frame_takes_no_more_memory_than_its_bytes_can_stand_for() {
    // The frame has blocks of 4 MiB, 2^60 bytes of content, and a block of 4 MiB that ends after
    // three bytes.
    let mut described = vec![0b0100_1000_u8, 0x70];
    described.extend_from_slice(&(1_u64 << 60).to_le_bytes());
    let check = (xxhash_rust::xxh32::xxh32(&described, 0) >> 8) as u8;
    let mut file = b"VCS\x01\x01\0\x01\x04\x22\x4d\x18".to_vec();
    file.extend_from_slice(&described);
    file.push(check);
    file.extend_from_slice(&[0, 0, 0x40, 0, b'a', b'b', b'c']);
    let error = read(&file, Unsupported::Refused).map(|read| read.keys).expect_err("it ends early");
    assert_eq!(error.kind, LoadErrorKind::Format(FormatErrorKind::EndOfInput));
}

//! Tests of DUMP payloads: those that real servers wrote with the expected values, and those that
//! must be rejected.

use keyspace::stream::Group;
use keyspace::string::stored;
use keyspace::{Hasher, KeyEntry, ListLimits, Object, PackLimits, SetLimits, Str, StreamId, StreamLimits};
use persist::dump::{PayloadError, dump, restore, sealed};
use persist::fuzz::{fuzz_dump_payload, fuzz_stream};
use persist::rdb::{Compression, FormatErrorKind, Rules, Value, VersionCheck};
use proptest::prelude::*;
use structures::entry::{NewValue, View};
use structures::listpack::element::Element;

/// DUMP payloads of real servers in hexadecimal digits, with their expected contents.
pub const WRITTEN_BY_SERVERS: &[(&str, &str)] = &[
    // Redis 8.0.2.
    ("00c118fc0c008d74019e8a08c4d9", "string -1000"),
    ("00c3091e017878e011000178780c003b110b1fda2b75dc", "string xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ("000b31323334353637383930310c00fb386617dd3dfb59", "string 12345678901"),
    ("12010210100000000300816102c3e802dffb02ff0c0041b1ec4d3701aa5d", "listpack list a 1000 -5"),
    (
        "1203020d0d0000000200816102816202ff020b0b000000020001010201ff020a0a0000000100816302ff0c002de69bc7\
         5af77044",
        "quicklist list a b 1 2 c",
    ),
    ("0b140400000003000000010000002c010000701101000c00798bd8b5abab28f3", "intset set 1 300 70000"),
    ("140c0c00000002008161020501ff0c003a9df2ee7e38dc5c", "listpack set a 5"),
    ("0202016101620c00351215e51129a344", "listpack set a b"),
    ("1012120000000400816602817602816e020701ff0c00735cea68ba5564e1", "listpack hash f=v n=7"),
    ("040201660176016ec0070c00a95b332049214ba5", "listpack hash f=v n=7"),
    (
        "111d1d0000000600816102842d696e6605816202010181630283322e3504ff0c00bf74011234e5c3d5",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "0503016300000000000004400162000000000000f03f0161000000000000f0ff0c0076b784f0063e1048",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "15011000000000000000010000000000000001404a4a0000001d00030101010101816602000102010001000181760204\
         01030100010101817702040100010401dfff0202018167020101816802817802080102010501dfff02817a020401ff03\
         06000101010204000c001c88be1e114cb3dc",
        "stream 1-1(f=v) 5-0(g=1 h=x) 6-0(f=z) last 6-0 deleted 1-2 added 4",
    ),
    (
        "15011000000000000000010000000000000001c3293311330000001400030100010101816602000102200a0500018176\
         0204600a2015c00a0002600a0101ff03010301010000030201610103030300000000000000010000000000000001e803\
         000000000000412c00000000000000010000000000000002d00700000000000002000000000000000100000000000000\
         03b80b000000000000020201633d1c5afca10100003d1c5afca101000001000000000000000100000000000000020164\
         3e1c5afca10100003e1c5afca10100000200000000000000010000000000000001000000000000000100000000000000\
         030162010381ffffffffffffffff0001056e65766572401c5afca1010000ffffffffffffffff000c008437d414021f5d\
         bd",
        "stream 1-1(f=v) 1-2(f=v) 1-3(f=v) last 1-3 deleted 0-0 added 3 \
         group a 1-3 read Some(3) [c: 1-2@2000*2] [d: 1-1@1000*300 1-3@3000*2] group b 1-3 read None [never (inactive):]",
    ),
    // Valkey 8.1.1.
    ("00c118fc0b002fdd882d8dbdb319", "string -1000"),
    ("00c3091e017878e011000178780b0099b882acdd9e021c", "string xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ("000b31323334353637383930310b005991efa4da888c99", "string 12345678901"),
    ("12010210100000000300816102c3e802dffb02ff0b00e31865fe30b4dd9d", "listpack list a 1000 -5"),
    (
        "1203020d0d0000000200816102816202ff020b0b000000020001010201ff020a0a0000000100816302ff0b008f4f1274\
         5d420784",
        "quicklist list a b 1 2 c",
    ),
    ("0b140400000003000000010000002c010000701101000b00db225106ac1e5f33", "intset set 1 300 70000"),
    ("140c0c00000002008161020501ff0b0098347b5d798dab9c", "listpack set a 5"),
    ("0202016101620b0097bb9c56169cd484", "listpack set a b"),
    ("1012120000000400816602817602816e020701ff0b00d1f563dbbde01321", "listpack hash f=v n=7"),
    ("040201660176016ec0070b000bf2ba934e943c65", "listpack hash f=v n=7"),
    (
        "111d1d0000000600816102842d696e6605816202010181630283322e3504ff0b001ddd88a13350b415",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "0503016300000000000004400162000000000000f03f0161000000000000f0ff0b00d41e0d43018b6788",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "15011000000000000000010000000000000001404a4a0000001d00030101010101816602000102010001000181760204\
         01030100010101817702040100010401dfff0202018167020101816802817802080102010501dfff02817a020401ff03\
         06000101010204000b00be2137ad16f9c41c",
        "stream 1-1(f=v) 5-0(g=1 h=x) 6-0(f=z) last 6-0 deleted 1-2 added 4",
    ),
    // Valkey 9.1.2.
    ("00c118fc50008928fccfee703d64", "string -1000"),
    ("00c3091e017878e0110001787850003f4df64ebe538c61", "string xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ("000b31323334353637383930315000ff649b46b94502e4", "string 12345678901"),
    ("12010210100000000300816102c3e802dffb02ff500045ed111c537953e0", "listpack list a 1000 -5"),
    (
        "1203020d0d0000000200816102816202ff020b0b000000020001010201ff020a0a0000000100816302ff500029ba6696\
         3e8f89f9",
        "quicklist list a b 1 2 c",
    ),
    ("0b140400000003000000010000002c0100007011010050007dd725e4cfd3d14e", "intset set 1 300 70000"),
    ("140c0c00000002008161020501ff50003ec10fbf1a4025e1", "listpack set a 5"),
    ("0202016101625000314ee8b475515af9", "listpack set a b"),
    ("1012120000000400816602817602816e020701ff500077001739de2d9d5c", "listpack hash f=v n=7"),
    ("040201660176016ec0075000ad07ce712d59b218", "listpack hash f=v n=7"),
    (
        "111d1d0000000600816102842d696e6605816202010181630283322e3504ff5000bb28fc43509d3a68",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "0503016300000000000004400162000000000000f03f0161000000000000f0ff500072eb79a16246e9f5",
        "listpack zset a=-inf b=1 c=2.5",
    ),
    (
        "15011000000000000000010000000000000001404a4a0000001d00030101010101816602000102010001000181760204\
         01030100010101817702040100010401dfff0202018167020101816802817802080102010501dfff02817a020401ff03\
         0600010101020400500018d4434f75344a61",
        "stream 1-1(f=v) 5-0(g=1 h=x) 6-0(f=z) last 6-0 deleted 1-2 added 4",
    ),
    // Redis 8.0.2: fields that expire.
    (
        "190038d360ba010000c3282f122f0000000900816b02817502f40038d360ba012010048166028176e0030f0767028177020001ff0c00561b3d39b257c591",
        "listpackex hash k=u@1900000000000 f=v@1900000000000 g=w",
    ),
    (
        "180038d360ba010000020101670177000166c3094064017676e057000176760c004e6b23848dbebaf1",
        "hashtable hash f=vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv g=w@1900000000000",
    ),
    // Valkey 9.1.2: the same.
    (
        "1603016601760038d360ba01000001670177ffffffffffffffff016b01750038d360ba01000050002e41c20d5a1ef414",
        "listpackex hash k=u@1900000000000 f=v@1900000000000 g=w",
    ),
    (
        "16020166c3094064017676e05700017676ffffffffffffffff016701770038d360ba0100005000e3a411695a2c3970",
        "hashtable hash f=vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv g=w@1900000000000",
    ),
    // An early Redis: a list in a ziplist, from the documentation of RESTORE.
    ("0a171700000012000000030000c0010004c0020004c00300ff040075233cc03b2ee9dd", "listpack list 1 2 3"),
];

/// Handmade values of old RDB types: type and value in hexadecimal digits, version of the format,
/// expected content.
const OLD_TYPES: &[(&str, u16, &str)] = &[
    ("01020161c005", 6, "listpack list a 5"),
    ("03030161ff016203312e350163fe", 6, "listpack zset a=-inf b=1.5 c=inf"),
    ("091a0203666f6f0300626172056172676831050268656c6c6f0000ff", 6, "listpack hash foo=bar argh1=hello"),
    ("0d161600000012000000040000016603f8020167030178ff", 6, "listpack hash f=7 g=x"),
    (
        "0c22220000001e000000060000016103042d696e660601620303322e3505016303fe64ff",
        6,
        "listpack zset a=-inf b=2.5 c=100",
    ),
    (
        "0e020e0e0000000a0000000100000161ff12120000000d000000020000016203c0e803ff",
        9,
        "quicklist list a b 1000",
    ),
    ("0a13130000000d000000020000016103f0701101ff", 6, "listpack list a 70000"),
    (
        "0f0110000000000000000100000000000000011d1d0000000a0001010001010181660200010201000100018176020401ff01010100",
        9,
        "stream 1-1(f=v) last 1-1 deleted 0-0 added 1",
    ),
    (
        "130110000000000000000100000000000000011d1d0000000a0001010001010181660200010201000100018176020401ff010101010101000500",
        10,
        "stream 1-1(f=v) last 1-1 deleted 1-0 added 5",
    ),
];

pub fn rules(hasher: &Hasher) -> Rules<'_> {
    let pack = PackLimits { entries_max: 128, value_len_bytes_max: 64 };
    Rules {
        hasher,
        list: ListLimits::from_option(-2),
        set: SetLimits { intset_entries_max: 512, pack },
        hash: pack,
        zset: pack,
        stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 100 },
        string_len_bytes_max: 512 << 20,
        versions: VersionCheck::Strict,
        skips_checksums: false,
    }
}

pub fn hasher() -> Hasher {
    Hasher::with_seed([1, 2, 3, 4])
}

pub fn bytes_of(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

pub fn entry_of(value: Value) -> KeyEntry {
    let value = match &value {
        Value::Short(bytes) => stored(bytes),
        Value::Object(object) => NewValue::Object(object.clone()),
    };
    KeyEntry::new(b"key", value, None, 0)
}

fn text(element: Element<'_>) -> String {
    let mut out = Vec::new();
    element.append_to(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Formats a key's value in one line: its encoding and all its content. Elements of hash tables are
/// sorted by their text.
pub fn told(entry: &KeyEntry) -> String {
    let View::Object(object) = entry.view() else {
        let string = Str::of(entry.view()).expect("no object is a string");
        let mut scratch = keyspace::string::IntText::new();
        return format!("string {}", String::from_utf8_lossy(string.bytes(&mut scratch)));
    };
    let pair = |name: Element<'_>, value: String| format!("{}={value}", text(name));
    let mut words: Vec<String> = match object {
        Object::Blob(bytes) => vec![String::from_utf8_lossy(bytes).into_owned()],
        Object::List(list) => {
            let mut words = Vec::new();
            list.visit(|element| words.push(text(element)));
            words
        }
        Object::Set(set) => set.iter().map(text).collect(),
        Object::Hash(hash) => hash
            .fields()
            .map(|field| {
                let deadline = field.deadline_ms.map_or(String::new(), |at_ms| format!("@{at_ms}"));
                pair(field.name, text(field.value) + &deadline)
            })
            .collect(),
        Object::Zset(zset) => zset.iter().map(|(member, score)| pair(member, score.to_string())).collect(),
        Object::Vector(set) => vec![crate::vectors::told(set)],
        Object::Array(array) => vec![crate::arrays::told(array)],
        Object::Stream(stream) => {
            let id = |id: StreamId| format!("{}-{}", id.ms, id.seq);
            let entries = stream.range(StreamId::MIN, StreamId::MAX).map(|entry| {
                let pairs = entry.pairs.map(|(field, value)| pair(Element::Bytes(field), text(value)));
                format!("{}({})", id(entry.id), pairs.collect::<Vec<_>>().join(" "))
            });
            let figures = format!(
                "last {} deleted {} added {}",
                id(stream.last_id()),
                id(stream.max_deleted_id()),
                stream.entries_added()
            );
            entries.chain([figures]).chain(stream.groups().flat_map(told_group)).collect()
        }
    };
    let encoding = object.encoding_name();
    if encoding == "hashtable" {
        words.sort_unstable();
    }
    let kind = object.type_name();
    let name = if encoding == kind { kind.into() } else { format!("{encoding} {kind}") };
    format!("{name} {}", words.join(" "))
}

/// Formats a consumer group: its counters, and in brackets the pending entries of each consumer.
/// `@` precedes the time of delivery and `*` the number of deliveries. A consumer that was never
/// active is marked as inactive.
fn told_group(group: &Group) -> Vec<String> {
    let id = |id: StreamId| format!("{}-{}", id.ms, id.seq);
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let mut words = vec![format!(
        "group {} {} read {:?}",
        name(group.name()),
        id(group.last_delivered()),
        group.entries_read()
    )];
    for consumer in group.consumers() {
        assert!(consumer.seen_ms() > 1_700_000_000_000);
        let pending = consumer.pending_from(StreamId::MIN).map(|at| {
            let record = group.pending(at).expect("a group has what its consumers have");
            format!(" {}@{}*{}", id(at), record.delivered_ms, record.deliveries)
        });
        let inactive = if consumer.active_ms().is_none() { " (inactive)" } else { "" };
        words.push(format!("[{}{inactive}:{}]", name(consumer.name()), pending.collect::<String>()));
    }
    words
}

#[test]
fn payloads_of_real_servers_become_their_values() {
    let hasher = hasher();
    for (digits, expected) in WRITTEN_BY_SERVERS {
        let value =
            restore(&bytes_of(digits), &rules(&hasher)).unwrap_or_else(|error| panic!("{expected}: {error}"));
        let entry = entry_of(value);
        assert_eq!(told(&entry), *expected);
        for compression in [Compression::None, Compression::Lzf] {
            let again =
                restore(&dump(&entry.view(), compression), &rules(&hasher)).expect("it was written here");
            assert_eq!(told(&entry_of(again)), *expected);
        }
    }
}

/// The type numbers of RDB values that are written exactly as they were read: strings, intset,
/// listpacks.
const WRITTEN_AS_READ: [u8; 5] = [0, 11, 16, 17, 20];

#[test]
fn packed_values_are_written_as_redis_writes_them() {
    let hasher = hasher();
    for (digits, told) in WRITTEN_BY_SERVERS {
        let payload = bytes_of(digits);
        // The same bytes can be compressed in many ways.
        if WRITTEN_AS_READ.contains(&payload[0]) && payload[1] != 0xC3 {
            let entry = entry_of(restore(&payload, &rules(&hasher)).expect("a server wrote it"));
            let written = dump(&entry.view(), Compression::Lzf);
            // Everything but the version is the same; the version here is the lowest that has the
            // type.
            assert_eq!(written[..written.len() - 10], payload[..payload.len() - 10], "{told}");
        }
    }
}

#[test]
fn values_of_old_types_are_read() {
    let hasher = hasher();
    for (digits, version, expected) in OLD_TYPES {
        let payload = sealed(bytes_of(digits), *version);
        let value = restore(&payload, &rules(&hasher)).unwrap_or_else(|error| panic!("{expected}: {error}"));
        assert_eq!(told(&entry_of(value)), *expected);
    }
}

#[test]
fn a_damaged_payload_is_refused() {
    let hasher = hasher();
    for (digits, _) in WRITTEN_BY_SERVERS {
        let payload = bytes_of(digits);
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= 0x10;
            assert_eq!(restore(&damaged, &rules(&hasher)).err(), Some(PayloadError::Footer));
            assert_eq!(restore(&payload[..at], &rules(&hasher)).err(), Some(PayloadError::Footer));
        }
    }
}

#[test]
fn unknown_versions_are_read_where_the_check_is_relaxed() {
    let hasher = hasher();
    let relaxed = Rules { versions: VersionCheck::Relaxed, ..rules(&hasher) };
    let string = bytes_of("00c06400");
    for version in [0, 1, 12, 13, 79, 80, 81, 65_535] {
        let payload = sealed(string[..3].to_vec(), version);
        let is_known = version <= 12 || version == 80;
        let strict = restore(&payload, &rules(&hasher)).map(drop);
        assert_eq!(strict, if is_known { Ok(()) } else { Err(PayloadError::Footer) }, "version {version}");
        assert!(restore(&payload, &relaxed).is_ok(), "version {version}");
    }
    // Unknown types and damaged payloads are still rejected.
    let unknown = sealed(bytes_of("ff"), 90);
    assert!(matches!(restore(&unknown, &relaxed), Err(PayloadError::Format(_))));
    let mut damaged = sealed(string, 90);
    damaged[1] ^= 1;
    assert_eq!(restore(&damaged, &relaxed).err(), Some(PayloadError::Footer));
}

#[test]
fn damage_under_a_right_checksum_is_refused_or_harmless() {
    for (digits, _) in WRITTEN_BY_SERVERS {
        let payload = bytes_of(digits);
        let value = &payload[..payload.len() - 10];
        for at in 0..value.len() {
            for change in [1, 0x10, 0x80, 0xFF] {
                let mut damaged = value.to_vec();
                damaged[at] ^= change;
                damaged.insert(0, 0);
                fuzz_dump_payload(&damaged);
            }
            fuzz_dump_payload(&[&[1], &value[..at]].concat());
        }
    }
}

#[test]
fn what_values_must_not_be_is_refused() {
    use FormatErrorKind::*;
    let hasher = hasher();
    let kind = |digits: &str| match restore(&sealed(bytes_of(digits), 12), &rules(&hasher)) {
        Err(PayloadError::Format(error)) => error.kind,
        other => panic!("{digits}: {other:?}"),
    };
    assert_eq!(kind(""), EndOfInput);
    assert_eq!(kind("ff"), UnknownType(255));
    assert_eq!(kind("06"), UnknownType(6));
    assert_eq!(kind("0001"), EndOfInput);
    assert_eq!(kind("00c06400"), TrailingBytes);
    assert_eq!(kind("0200"), Empty);
    assert_eq!(kind("1200"), Empty);
    assert_eq!(kind("02020161"), EndOfInput);
    assert_eq!(kind("020201610161"), Duplicate);
    assert_eq!(kind("0402016101310161 0132"), Duplicate);
    assert_eq!(kind("03010161fd"), Score);
    assert_eq!(kind("18ffffffffffffff7f010201610131"), FieldExpiry);
    assert_eq!(kind("180000000000000000010101610131"), FieldExpiry);
    assert_eq!(kind("1717170000000300816102813102f4ffffffffffffff7f09ff"), FieldExpiry);
    assert_eq!(kind("05010161000000000000f87f"), Score);
    assert_eq!(kind("120103"), UnknownNode);
    // The payloads claim 16 exabytes: of members, in a string, and in a listpack.
    assert_eq!(kind("0281ffffffffffffffff"), EndOfInput);
    assert_eq!(kind("0081ffffffffffffffff61"), StringTooLong);
    assert_eq!(kind("0080100000006161"), EndOfInput);
    assert_eq!(kind("00c301801000000061"), BrokenCompression);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_refused_or_a_value(kind in 0..26_u8, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        fuzz_dump_payload(&[&[kind & 1, kind], &bytes[..]].concat());
        fuzz_stream(&bytes);
    }
}

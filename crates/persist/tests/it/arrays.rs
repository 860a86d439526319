//! Tests of arrays: the layout of Redis 8.8, round trips, commands of a rewritten file, and bytes
//! that must be rejected.

use keyspace::key::shard_of;
use keyspace::snapshot::OnFlush;
use keyspace::{Array, Object};
use persist::commands::CommandEncoder;
use persist::dump::{PayloadError, dump, restore, sealed};
use persist::rdb::{Compression, FileVersion, FormatErrorKind, Usage, Value};
use persist::save::{Contents, Save, SaveFormat, SaveOptions, Step, Unfit, Way};
use structures::entry::View;
use structures::listpack::element::IntText;
use testkit::contents::{difference, of_file, of_keyspace};
use testkit::replay::empty_engine;

use crate::payloads::{entry_of, hasher, rules};
use crate::saves::Bytes;

/// An array of all kinds of elements, with a cursor, and its value in the layout of Redis.
const LAYOUT: &[u8] = b"\x1c\x05\x01\x05\
    \x00\x01\x2a\0\0\0\0\0\0\0\
    \x03\x02\0\0\0\0\0\0\xf8\x3f\
    \x05\x03\x01v\
    \x44\x00\0\x08A string\
    \x81\xff\xff\xff\xff\xff\xff\xff\xfe\x01\xf9\xff\xff\xff\xff\xff\xff\xff";

fn array_of(payload: &[u8]) -> Result<Box<Array>, PayloadError> {
    let hasher = hasher();
    match restore(payload, &rules(&hasher))? {
        Value::Object(Object::Array(array)) => Ok(array),
        other => panic!("no array: {other:?}"),
    }
}

/// Describes an array: its elements and its cursor.
pub fn told(array: &Array) -> String {
    let elements = array.elements().scan(0, u64::MAX);
    let parts = elements
        .map(|(index, element)| format!("{index}={}", element.text(&mut IntText::new()).escape_ascii()));
    format!("{} next {:?}", parts.collect::<Vec<_>>().join(" "), array.next_insert())
}

fn dumped(array: &Array, compression: Compression) -> Vec<u8> {
    dump(&View::Object(&Object::Array(Box::new(array.clone()))), compression)
}

#[test]
fn values_in_the_layout_of_redis_are_read_and_written_the_same() {
    let payload = sealed(LAYOUT.to_vec(), 12);
    let array = array_of(&payload).expect("it is valid");
    let mut expected = Array::new();
    for (index, text) in [(0, "42"), (3, "1.5"), (5, "v"), (1024, "A string"), (u64::MAX - 1, "-7")] {
        expected.set(index, text.as_bytes());
    }
    expected.seek(6);
    assert_eq!(told(&array), told(&expected));
    assert_eq!(dumped(&array, Compression::None), payload);
}

#[test]
fn big_and_scattered_arrays_survive_a_round_trip() {
    let mut array = Array::new();
    for number in 0..20_000_u64 {
        let text = match number % 5 {
            0 => number.to_string(),
            1 => format!("{number}.25"),
            2 => format!("v{}", number % 100),
            3 => i64::MIN.to_string(),
            _ => "a longer text ".repeat(3),
        };
        array.set(number * number * 7, text.as_bytes());
    }
    for seek in [None, Some(1), Some(u64::MAX)] {
        array.seek(seek.unwrap_or(0));
        for compression in [Compression::None, Compression::Lzf] {
            let back = array_of(&dumped(&array, compression)).expect("it was just written");
            assert_eq!(told(&back), told(&array));
        }
    }
}

#[test]
fn broken_arrays_are_rejected() {
    let error = |value: &[u8]| match array_of(&sealed(value.to_vec(), 12)) {
        Err(PayloadError::Format(error)) => error.kind,
        other => panic!("{other:?}"),
    };
    for at in 1..LAYOUT.len() {
        assert!(array_of(&sealed(LAYOUT[..at].to_vec(), 12)).is_err(), "{at}");
    }
    assert_eq!(error(b"\x1c\0\0"), FormatErrorKind::Empty);
    assert_eq!(error(b"\x1c\x01\x02\0\x03\x01v"), FormatErrorKind::BrokenArray);
    assert_eq!(error(b"\x1c\x01\0\0\x04\x01v"), FormatErrorKind::BrokenArray);
    assert_eq!(error(b"\x1c\x02\0\x01\x03\x01v\x01\x03\x01w"), FormatErrorKind::Duplicate);
    let end = [0xFF; 8];
    assert_eq!(error(&[b"\x1c\x01\0\x81", &end[..], b"\x03\x01v"].concat()), FormatErrorKind::BrokenArray);
    assert_eq!(
        error(&[b"\x1c\x01\x01\x81", &end[..], b"\0\x03\x01v"].concat()),
        FormatErrorKind::BrokenArray
    );
}

#[test]
fn commands_of_a_rewritten_file_restore_elements_and_cursor() {
    let mut array = Array::new();
    for (index, text) in [(0, "x"), (u64::MAX - 1, "12")] {
        array.set(index, text.as_bytes());
    }
    array.seek(9);
    let mut encoder = CommandEncoder::default();
    encoder.entry(&entry_of(Value::Object(Object::Array(Box::new(array)))));
    let commands = String::from_utf8_lossy(encoder.buffer()).replace("\r\n", "|");
    let index = "$20|18446744073709551614|";
    let set = format!("*6|$6|ARMSET|$3|key|$1|0|$1|x|{index}$2|12|");
    assert_eq!(commands, format!("{set}*3|$6|ARSEEK|$3|key|$1|9|"));
}

#[test]
fn a_file_with_arrays_has_the_version_of_their_servers() {
    let engine = empty_engine(1);
    let keyspace = &engine.keyspace;
    let entry =
        entry_of(restore(&sealed(LAYOUT.to_vec(), 12), &rules(keyspace.hasher())).expect("it is valid"));
    let mut shard = keyspace.lock(shard_of(keyspace.hasher().hash_key(b"one")));
    assert!(keyspace.insert_absent(&mut shard, 2, entry.duplicate(b"one", 0)));
    drop(shard);
    let begin = |version| {
        let options = SaveOptions {
            format: SaveFormat::Rdb,
            contents: Contents::all(),
            on_flush: OnFlush::Abandon,
            version,
            compression: Compression::Lzf,
            checksum: true,
            usage: Usage::None,
            facts: Vec::new(),
        };
        engine.gate.exclusive(|alone| {
            let save = Save::begin(&engine, alone, options, Vec::new()).expect("the only one");
            if save.unfit().is_some() {
                save.take_back(&engine, alone);
            }
            save
        })
    };
    for version in [FileVersion::Redis5, FileVersion::Redis7, FileVersion::Redis7Dot2, FileVersion::Valkey9] {
        let unfit = begin(Some(version)).unfit().expect("its servers have no arrays");
        assert_eq!(unfit, Unfit::Arrays { arrays: 1, version: version.number() });
        assert!(unfit.to_string().starts_with("1 key is an array"), "{unfit}");
    }
    let save = begin(None);
    assert_eq!(save.unfit(), None);
    let out = Bytes::default();
    let done = save.write_into(&engine, &out, |out| {
        let mut walker = save.walker(0, Way::Gate);
        while save.step(&engine, &mut walker, out) != Step::Done {}
    });
    assert!(done.is_ok());
    let file = out.take();
    assert!(file.starts_with(b"REDIS0012"));
    let read = of_file(&file[..], keyspace.hasher()).expect("a whole file");
    let (left, kept) = (("keyspace", &of_keyspace(keyspace)), ("file", &read.keys));
    assert_eq!(difference(left, kept), None);
}

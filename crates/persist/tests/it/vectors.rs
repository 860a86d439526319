//! Tests of vector sets: DUMP payloads of real servers with the expected contents, round trips, and
//! bytes that must be rejected or repaired.

use keyspace::key::shard_of;
use keyspace::snapshot::OnFlush;
use keyspace::{Object, VectorSet};
use persist::commands::CommandEncoder;
use persist::dump::{PayloadError, dump, dump_oldest, restore, sealed};
use persist::fuzz::fuzz_dump_payload;
use persist::rdb::{Compression, FileVersion, FormatErrorKind, ModuleId, Usage, Value};
use persist::save::{Contents, Save, SaveFormat, SaveOptions, Step, Unfit, Way};
use proptest::prelude::*;
use structures::entry::View;
use structures::vector::Quantization;

use testkit::contents::{difference, of_file, of_keyspace};
use testkit::replay::empty_engine;

use crate::payloads::{bytes_of, entry_of, hasher, rules};
use crate::saves::Bytes;

/// Payloads in hexadecimal digits with their expected contents: form, dimensions, M, the matrix.
/// Then each element: its number, attributes, vector, range, norm, and linked numbers per level.
const WRITTEN_BY_SERVERS: &[(&str, &str)] = &[
    // Redis 8.0.2.
    (
        "0781bde72da2bb1eb400020302050244000202050265350500050c5de82f3f4e96083faf7afc3e020702060200020202\
         080204020202813f65bfa13f9e566e0502653405077b226e223a347d050c5c160ebfd7b02cbf0833f9be020702050200\
         020202080201020402813f3949fd3f95e6f4050265330500050c199d46bf199dc63dab991fbf02090204020002040208\
         020202050206020102803f38c81a0502653105077b226e223a317d050ccf8e1cbf276645bf308435be020e0202020302\
         03020802010204020602000204020002040200020402813f58cfef3f906b40050265300500050c4e450bbf9d974fbf21\
         bb5cbe020802010200020302080202020502040281356502053f796653000c00a59e6983ad71201c",
        "f32 3 m 4 | e0#1 4e450bbf9d974fbf21bb5cbe norm 3f796653 [2, 4, 5] | e1#2 {\"n\":1} \
         cf8e1cbf276645bf308435be norm 3f906b40 [1, 4, 6] [] [] [] | e3#4 199d46bf199dc63dab991fbf norm \
         3f38c81a [1, 2, 5, 6] | e4#5 {\"n\":4} 5c160ebfd7b02cbf0833f9be norm 3f95e6f4 [1, 4] | e5#6 \
         5de82f3f4e96083faf7afc3e norm 3f9e566e [2, 4]",
    ),
    (
        "0781bde72da2bb1eb40002030205024401020205026535050005037f11ba020c02060201020302080204020102020202\
         02040201020202813f5ee72f3f56a0d10502653405077b226e223a347d0503f9887f0208020502000203020802020201\
         020402813f3a21763f99297c050265330500050343028102090204020002040208020102020206020502813f620e5c3f\
         398ae90502653105077b226e223a317d05032d527f020d02020201020402080201020402050206020202040201020602\
         813f4e0a613f61d50105026530050005037d81b102110201020302040208020202040206020502020204020202060200\
         02040200020402813f26cc953f6fabd7000c00887d173309a1e7cc",
        "int8 3 m 4 | e0#1 7d81b1 range 3f26cc95 norm 3f6fabd7 [2, 4, 5, 6] [2, 6] [] [] | e1#2 \
         {\"n\":1} 2d527f range 3f4e0a61 norm 3f61d501 [1, 4, 5, 6] [1, 6] | e3#4 430281 range 3f620e5c \
         norm 3f398ae9 [1, 2, 5, 6] | e4#5 {\"n\":4} f9887f range 3f3a2176 norm 3f99297c [1, 2, 4] | \
         e5#6 7f11ba range 3f5ee72f norm 3f56a0d1 [1, 2, 4] [1, 2]",
    ),
    (
        "0781bde72da2bb1eb4000240420205024402020205026535050005107f91a1acbedbb5fd030000000000000002090206\
         020002040208020502020201020402813f4e0a6140980ab10502653405077b226e223a347d0510afe3849b87a317e803\
         0000000000000002090205020002040208020102020204020602813f4e0a6140a0a0a905026533050005109ca2af4e51\
         a5f0f50200000000000000020d02040202020402080202020102050206020002040200020402813f5ee72f4096f03205\
         02653105077b226e223a317d051041688181dce3fe760100000000000000020902020200020402080201020402050206\
         02813f620e5c40a8e8a505026530050005105fa4441a83cf0e4200000000000000000209020102000204020802020204\
         0205020602813f3949fd409b149e000c00ebc0b23bc7c1a874",
        "bin 66 m 4 | e0#1 5fa4441a83cf0e420000000000000000 norm 409b149e [2, 4, 5, 6] | e1#2 {\"n\":1} \
         41688181dce3fe760100000000000000 norm 40a8e8a5 [1, 4, 5, 6] | e3#4 \
         9ca2af4e51a5f0f50200000000000000 norm 4096f032 [1, 2, 5, 6] [] [] | e4#5 {\"n\":4} \
         afe3849b87a317e80300000000000000 norm 40a0a0a9 [1, 2, 4, 6] | e5#6 \
         7f91a1acbedbb5fd0300000000000000 norm 40980ab1 [1, 2, 4, 5]",
    ),
    (
        "0781bde72da2bb1eb400020202020250010201020305c30f18043acd133f3ae0050300bf200f003f05016205024c8102\
         060202020002010220020102813f5b84a83fd774c305c00705027f3602060201020002010220020202813f6b4d16408c\
         b3f8000c00e11f5e2c9d925489",
        "int8 2 m 16 from 3 matrix 3acd133f3acd133f3acd133f3acd133f3acd13bf3acd133f | 7#1 7f36 range \
         3f6b4d16 norm 408cb3f8 [2] | b#2 4c81 range 3f5b84a8 norm 3fd774c3 [1]",
    ),
    (
        "0781bde72da2bb1eb40002020201025000020005017a050800000000000000000205020102000200022002813f3a2176\
         3f800000000c000a9aec40d762f767",
        "f32 2 m 16 | z#1 0000000000000000 norm 3f800000 []",
    ),
    // Redis 8.0.6.
    (
        "0781bde72da2bb1eb400020302050244000202050265350500050c5de82f3f4e96083faf7afc3e020c02060280010000\
         01020202080204020202813ff5a3440000000102010204020202813ff5a3440000000002813f38ab9c3f9e566e050265\
         3405077b226e223a347d050c5c160ebfd7b02cbf0833f9be02080205028001000000020202080201020402813ea9a970\
         0000000102813f4e9ade3f95e6f4050265330500050c199d46bf199dc63dab991fbf020a020402800100000002040208\
         020202050206020102813fe4f7450000000202813f3232253f38c81a0502653105077b226e223a317d050ccf8e1cbf27\
         6645bf308435be021002020280010000020203020802010204020602813ff5a3440000000202010204020602813ff5a3\
         440000000002000204020002813f3ec4933f906b40050265300500050c4e450bbf9d974fbf21bb5cbe02090201028001\
         0000000203020802020205020402813f05ad950000000202813f3fd01f3f796653000c0036133c509f6da147",
        "f32 3 m 4 | e0#1 4e450bbf9d974fbf21bb5cbe norm 3f796653 [2, 4, 5] | e1#2 {\"n\":1} \
         cf8e1cbf276645bf308435be norm 3f906b40 [1, 4, 6] [6] [] | e3#4 199d46bf199dc63dab991fbf norm \
         3f38c81a [1, 2, 5, 6] | e4#5 {\"n\":4} 5c160ebfd7b02cbf0833f9be norm 3f95e6f4 [1, 4] | e5#6 \
         5de82f3f4e96083faf7afc3e norm 3f9e566e [2, 4] [2]",
    ),
    (
        "0781bde72da2bb1eb40002030205024401020205026535050005037f11ba020d02060280010000010203020802040201\
         020202813f89e7af0000000202010204020402813e2d06540000000002813f5ee72f3f56a0d10502653405077b226e22\
         3a347d0503f9887f020902050280010000000203020802020201020402813fd5cac80000000202813f3a21763f99297c\
         0502653305000503430281020e020402800100000102040208020102020206020502813fd5cac8000000030201020402\
         0602813e2d06540000000002813f620e5c3f398ae90502653105077b226e223a317d05032d527f020a02020280010000\
         0002040208020102040205020602813fc90a430000000102813f4e0a613f61d50105026530050005037d81b1020a0201\
         02800100000002040208020202040206020502813fbdaf3a0000000002813f26cc953f6fabd7000c00bf2ac9f9e62b4a\
         3e",
        "int8 3 m 4 | e0#1 7d81b1 range 3f26cc95 norm 3f6fabd7 [2, 4, 5, 6] | e1#2 {\"n\":1} 2d527f \
         range 3f4e0a61 norm 3f61d501 [1, 4, 5, 6] | e3#4 430281 range 3f620e5c norm 3f398ae9 [1, 2, 5, \
         6] [6] | e4#5 {\"n\":4} f9887f range 3f3a2176 norm 3f99297c [1, 2, 4] | e5#6 7f11ba range \
         3f5ee72f norm 3f56a0d1 [1, 2, 4] [4]",
    ),
    (
        "0781bde72da2bb1eb4000240420205024402020205026535050005107f91a1acbedbb5fd0300000000000000020a0206\
         02800100000002040208020502020201020402813f8f83e100000002028040980ab10502653405077b226e223a347d05\
         10afe3849b87a317e803000000000000000210020502800100000202040208020102020204020602813f800000000000\
         02020002040200020002040200028040a0a0a905026533050005109ca2af4e51a5f0f50200000000000000020a020402\
         800100000002040208020202010205020602813f8f83e10000000102804096f0320502653105077b226e223a317d0510\
         41688181dce3fe760100000000000000020a020202800100000002040208020102040205020602813f87c1f000000001\
         028040a8e8a505026530050005105fa4441a83cf0e420000000000000000020a02010280010000000204020802020204\
         0205020602813f8f83e10000000102813f399a26409b149e000c001a4db387c43653c2",
        "bin 66 m 4 | e0#1 5fa4441a83cf0e420000000000000000 norm 409b149e [2, 4, 5, 6] | e1#2 {\"n\":1} \
         41688181dce3fe760100000000000000 norm 40a8e8a5 [1, 4, 5, 6] | e3#4 \
         9ca2af4e51a5f0f50200000000000000 norm 4096f032 [1, 2, 5, 6] | e4#5 {\"n\":4} \
         afe3849b87a317e80300000000000000 norm 40a0a0a9 [1, 2, 4, 6] [] [] | e5#6 \
         7f91a1acbedbb5fd0300000000000000 norm 40980ab1 [1, 2, 4, 5]",
    ),
    (
        "0781bde72da2bb1eb400020202020250010201020305c30f18043acd133f3ae0050300bf200f003f05016205024c8102\
         07020202800100000002010220020102813f5d0c420000000002813f5b84a83fd774c305c00705027f36020702010280\
         0100000002010220020202813f5d0c420000000002813f6b4d16408cb3f8000c00bf629df0f77e5267",
        "int8 2 m 16 from 3 matrix 3acd133f3acd133f3acd133f3acd133f3acd13bf3acd133f | 7#1 7f36 range \
         3f6b4d16 norm 408cb3f8 [2] | b#2 4c81 range 3f5b84a8 norm 3fd774c3 [1]",
    ),
    (
        "0781bde72da2bb1eb40002020201025000020005017a0508000000000000000002060201028001000000020002200200\
         02803f800000000c00f796484197c42a0c",
        "f32 2 m 16 | z#1 0000000000000000 norm 3f800000 []",
    ),
];

/// Returns the vector set that is decoded from a DUMP payload.
fn set_of(payload: &[u8]) -> Result<Box<VectorSet>, PayloadError> {
    let hasher = hasher();
    match restore(payload, &rules(&hasher))? {
        Value::Object(Object::Vector(set)) => Ok(set),
        other => panic!("no vector set: {other:?}"),
    }
}

fn dumped(set: &VectorSet, compression: Compression) -> Vec<u8> {
    dump(&View::Object(&Object::Vector(Box::new(set.clone()))), compression)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes a vector set as text, its elements in the order of their numbers.
pub fn told(set: &VectorSet) -> String {
    let index = set.index();
    let config = index.config();
    let form = match config.quantization {
        Quantization::F32 => "f32",
        Quantization::Q8 => "int8",
        Quantization::Binary => "bin",
    };
    let mut text = format!("{form} {} m {}", config.dim, config.m);
    if let Some(projection) = set.projection() {
        let matrix: Vec<u8> = projection.matrix().iter().flat_map(|value| value.to_le_bytes()).collect();
        text += &format!(" from {} matrix {}", projection.from(), digits(&matrix));
    }
    let mut images: Vec<_> = index.slots().map(|slot| index.image(slot)).collect();
    images.sort_by_key(|image| image.uid);
    for image in images {
        text += &format!(" | {}#{}", String::from_utf8_lossy(image.name), image.uid);
        if let Some(attributes) = image.attributes {
            text += &format!(" {}", String::from_utf8_lossy(attributes));
        }
        text += &format!(" {}", digits(image.vector));
        if config.quantization == Quantization::Q8 {
            text += &format!(" range {:08x}", image.range.to_bits());
        }
        text += &format!(" norm {:08x}", image.norm.to_bits());
        for mut links in image.links {
            links.sort_unstable();
            text += &format!(" {links:?}");
        }
    }
    text
}

#[test]
fn values_of_real_servers_are_read_with_their_graph() {
    for (payload, expected) in WRITTEN_BY_SERVERS {
        let set = set_of(&bytes_of(payload)).expect("a real server wrote it");
        assert_eq!(told(&set), *expected);
    }
}

#[test]
fn a_value_that_is_written_is_read_again_the_same() {
    for (payload, expected) in WRITTEN_BY_SERVERS {
        let set = set_of(&bytes_of(payload)).expect("a real server wrote it");
        for compression in [Compression::None, Compression::Lzf] {
            let again = dumped(&set, compression);
            assert!(again.ends_with(&sealed(again[..again.len() - 10].to_vec(), 12)[again.len() - 10..]));
            let read = set_of(&again).expect("we wrote it");
            assert_eq!(told(&read), *expected);
            assert_eq!(digits(&dumped(&read, compression)), digits(&again));
        }
        let object = Object::Vector(set);
        assert_eq!(dump_oldest(&View::Object(&object), Compression::None), None, "Redis 5 has none");
    }
}

#[test]
fn a_command_restores_the_value_with_its_graph() {
    for (payload, expected) in WRITTEN_BY_SERVERS {
        let hasher = hasher();
        let entry = entry_of(restore(&bytes_of(payload), &rules(&hasher)).expect("a real server wrote it"));
        let mut encoder = CommandEncoder::default();
        encoder.entry(&entry);
        let command = encoder.buffer().clone();
        let begin = b"*4\r\n$7\r\nRESTORE\r\n$3\r\nkey\r\n$1\r\n0\r\n$";
        let rest = command.strip_prefix(begin).expect("a RESTORE");
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let payload = &rest[digits + 2..rest.len() - 2];
        assert_eq!(String::from_utf8_lossy(&rest[..digits]), payload.len().to_string());
        assert_eq!(told(&set_of(payload).expect("we wrote it")), *expected);
    }
}

#[test]
fn a_file_with_vector_sets_has_the_version_of_their_servers() {
    let engine = empty_engine(1);
    let keyspace = &engine.keyspace;
    let payload = bytes_of(WRITTEN_BY_SERVERS[0].0);
    let entry = entry_of(restore(&payload, &rules(keyspace.hasher())).expect("a real server wrote it"));
    for name in [b"one", b"two"] {
        let mut shard = keyspace.lock(shard_of(keyspace.hasher().hash_key(name)));
        assert!(keyspace.insert_absent(&mut shard, 2, entry.duplicate(name, 0)));
    }
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
        let unfit = begin(Some(version)).unfit().expect("its servers have no vector sets");
        assert_eq!(unfit, Unfit::VectorSets { sets: 2, version: version.number() });
        assert!(unfit.to_string().starts_with("2 keys are vector sets"), "{unfit}");
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

/// The items of a vector set in the RDB format: numbers and strings.
enum Item<'a> {
    Number(u64),
    Text(&'a [u8]),
}

use Item::{Number, Text};

/// Encodes a length of the RDB format in its longest encoding.
fn length(number: u64) -> Vec<u8> {
    [&[0x81][..], &number.to_be_bytes()].concat()
}

/// Builds a DUMP payload of these items of a module's value.
fn payload(module: u64, items: &[Item<'_>]) -> Vec<u8> {
    let mut bytes = [&[7][..], &length(module)].concat();
    for item in items {
        match item {
            Number(number) => bytes.extend([&[2][..], &length(*number)].concat()),
            Text(text) => bytes.extend([&[5][..], &length(text.len() as u64), text].concat()),
        }
    }
    bytes.push(0);
    sealed(bytes, 12)
}

fn set_of_items(items: &[Item<'_>]) -> Result<String, FormatErrorKind> {
    match set_of(&payload(ModuleId::VECTOR_SET.0, items)) {
        Ok(set) => Ok(told(&set)),
        Err(PayloadError::Format(error)) => Err(error.kind),
        Err(PayloadError::Footer) => panic!("the footer is right"),
    }
}

/// The head of a stored vector set: two nodes of two floats each, M 16.
const HEAD: [Item<'static>; 4] = [Number(2), Number(2), Number(16 << 8), Number(0)];
const ONE: [u8; 8] = [0, 0, 0x80, 0x3f, 0, 0, 0, 0];
const NORM: Item<'static> = Number(0x3f80_0000);

/// Returns the items of a node of `HEAD`'s vector set with links on level 0.
fn node<'a>(name: &'a str, uid: u64, links: &[u64]) -> Vec<Item<'a>> {
    let count = 5 + links.len() as u64;
    let parameters = [count, uid, 0, links.len() as u64, 32].into_iter().chain(links.iter().copied());
    let mut items = vec![Text(name.as_bytes()), Text(&ONE)];
    items.extend(parameters.map(Number));
    items.push(NORM);
    items
}

fn two(one: Vec<Item<'_>>, other: Vec<Item<'_>>) -> Result<String, FormatErrorKind> {
    let items: Vec<_> = HEAD.into_iter().chain(one).chain(other).collect();
    set_of_items(&items)
}

#[test]
fn damaged_links_are_made_anew() {
    let whole = two(node("a", 1, &[2]), node("b", 2, &[1])).expect("it is whole");
    for (one, other) in [
        (node("a", 1, &[2]), node("b", 2, &[])),
        (node("a", 1, &[2, 2]), node("b", 2, &[1, 1])),
        (node("a", 1, &[1, 2]), node("b", 2, &[1])),
        (node("a", 1, &[3, 2]), node("b", 2, &[1])),
        (node("a", 1, &[]), node("b", 2, &[])),
    ] {
        let read = two(one, other).expect("the vectors are whole");
        let links = |text: &str| text.replace(" []", "");
        assert_eq!(links(&read), links(&whole));
    }
    // A level above all that Redis draws.
    let mut high = vec![Text(b"a"), Text(&ONE), Number(3 + 18 * 2), Number(1), Number(17)];
    high.extend((0..36).map(|_| Number(0)));
    high.push(NORM);
    let read = two(high, node("b", 2, &[])).expect("the vectors are whole");
    assert!(read.contains("a#1 0000803f00000000 norm 3f800000 [2]"), "{read}");
}

#[test]
fn what_is_not_finite_becomes_zeros() {
    let infinite = [0, 0, 0x80, 0x7f, 0, 0, 0, 0];
    let mut items = node("a", 1, &[]);
    items[1] = Text(&infinite);
    *items.last_mut().expect("the norm") = Number(0x7fc0_0000_7f80_0000);
    let read = two(items, node("b", 2, &[])).expect("Redis stores such vectors");
    assert!(read.contains("a#1 0000000000000000 norm 7f7fffff"), "{read}");
}

#[test]
fn values_that_are_not_whole_are_refused() {
    let two_of = |one, other| two(one, other).expect_err("it is broken");
    let broken = FormatErrorKind::BrokenVectorSet;
    assert_eq!(two_of(node("a", 1, &[]), node("a", 2, &[])), FormatErrorKind::Duplicate);
    for uid in [0, 1, u64::MAX] {
        let kind = two_of(node("a", 1, &[]), node("b", uid, &[]));
        assert!(matches!(kind, FormatErrorKind::BrokenVector(_)), "{uid}: {kind:?}");
    }
    let head = |at: usize, number| {
        let mut items: Vec<_> = HEAD.into_iter().chain(node("a", 1, &[])).chain(node("b", 2, &[])).collect();
        items[at] = Number(number);
        set_of_items(&items).expect_err("it is broken")
    };
    assert_eq!(head(0, 0), broken);
    assert_eq!(head(0, 1 << 40), broken);
    assert!(matches!(head(0, 3), FormatErrorKind::BrokenVector(_)));
    assert_eq!(head(1, 1), broken);
    assert_eq!(head(1, 1 << 60), broken);
    assert_eq!(head(2, 3), broken);
    // A matrix, and attributes, of which there are none.
    assert_eq!(head(3, 1), broken);
    assert_eq!(head(3, 2), broken);
    // Version 2 of a node, and counts of parameters.
    assert_eq!(head(8, 2 << 24), broken);
    for count in [0, 1, 4] {
        assert_eq!(head(6, count), broken, "{count}");
    }
    let empty = [Number(2), Number(0), Number(16 << 8), Number(0)];
    assert_eq!(set_of_items(&empty), Err(FormatErrorKind::Empty));
    for module in [ModuleId(ModuleId::VECTOR_SET.0 | 1), ModuleId(7)] {
        let Err(PayloadError::Format(error)) = set_of(&payload(module.0, &empty)) else { panic!("{module}") };
        assert_eq!(error.kind, FormatErrorKind::UnknownModule(module));
        assert!(error.to_string().contains(&format!("module type '{module}'")), "{error}");
    }
}

#[test]
fn a_number_that_only_claims_takes_no_memory() {
    let one = || node("a", 1, &[]);
    for huge in [1 << 32, 1 << 60, u64::MAX] {
        for at in 0..13 {
            let mut items: Vec<_> = HEAD.into_iter().chain(one()).collect();
            items.insert(at.min(items.len()), Number(huge));
            let bytes = payload(ModuleId::VECTOR_SET.0, &items);
            _ = set_of(&bytes);
            let mut items: Vec<_> = HEAD.into_iter().chain(one()).collect();
            if let Some(item) = items.get_mut(at) {
                *item = Number(huge);
            }
            _ = set_of(&payload(ModuleId::VECTOR_SET.0, &items));
        }
    }
    // A string that claims to be long.
    let mut bytes = payload(ModuleId::VECTOR_SET.0, &HEAD);
    bytes.truncate(bytes.len() - 11);
    bytes.extend([&[5][..], &length(1 << 39)].concat());
    assert!(set_of(&sealed(bytes, 12)).is_err());
}

#[test]
fn cut_values_are_refused() {
    for (payload, _) in WRITTEN_BY_SERVERS {
        let bytes = bytes_of(payload);
        let value = &bytes[..bytes.len() - 10];
        for len in 1..value.len() {
            let cut = set_of(&sealed(value[..len].to_vec(), 12));
            assert!(matches!(cut, Err(PayloadError::Format(_))), "{len} bytes of {payload}");
        }
    }
}

#[test]
fn flipped_bits_are_refused_or_make_another_value() {
    for (payload, _) in WRITTEN_BY_SERVERS {
        let bytes = bytes_of(payload);
        for at in 0..bytes.len() - 10 {
            for bit in 0..8 {
                let mut changed = [&[0][..], &bytes[..bytes.len() - 10]].concat();
                changed[at + 1] ^= 1 << bit;
                fuzz_dump_payload(&changed);
            }
        }
    }
}

proptest! {
    #[test]
    fn changed_values_are_refused_or_are_values(
        which in 0..WRITTEN_BY_SERVERS.len(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let bytes = bytes_of(WRITTEN_BY_SERVERS[which].0);
        let mut changed = [&[0][..], &bytes[..bytes.len() - 10]].concat();
        for (at, byte) in changes {
            let at = 1 + at.index(changed.len() - 1);
            changed[at] = byte;
        }
        fuzz_dump_payload(&changed);
    }
}

//! The contents of a keyspace or an RDB file as text. Equal data has equal text, whatever its
//! encoding.

use std::collections::BTreeMap;

use keyspace::key::SHARD_COUNT;
use keyspace::{
    Access, Hasher, KeyEntry, Keyspace, ListLimits, Object, PackLimits, SetLimits, Stream, StreamId,
    StreamLimits,
};
use persist::load::{
    ByteSource, DecodeOptions, Decoded, LoadOptions, Part, Splitter, Unsupported, decode_batch,
};
use persist::rdb::{Rules, VersionCheck};
use structures::entry::View;
use structures::listpack::element::{Element, IntText};

/// The value and expiry of each key as text, by database number and key.
pub type Contents = BTreeMap<(usize, Vec<u8>), String>;

/// Returns everything that a keyspace holds, including expired keys. The caller must ensure that no
/// other thread changes the keyspace during the call.
pub fn of_keyspace(keyspace: &Keyspace) -> Contents {
    let mut contents = Contents::new();
    for shard in 0..SHARD_COUNT {
        let guard = keyspace.lock(shard);
        for (db, keys) in guard.dbs().enumerate() {
            for entry in keys.table().iter() {
                contents.insert((db, entry.key().to_vec()), describe(&entry));
            }
        }
    }
    contents
}

/// Strict options of loading: any error in the file makes the load fail.
pub const STRICT: LoadOptions =
    LoadOptions { versions: VersionCheck::Strict, checksum: true, unsupported: Unsupported::Refused };

/// Returns the rules by which the values of an RDB file are decoded.
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

/// The contents of an RDB file: its keys and its AUX fields.
pub struct FileContents {
    /// The value and expiry of each key in the RDB file, as text.
    pub keys: Contents,
    /// The values of the AUX fields of the RDB file, by name.
    pub facts: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Returns everything that an RDB file holds, including expired keys.
///
/// # Errors
/// The reason why the file cannot be loaded, as text.
pub fn of_file(source: impl ByteSource, hasher: &Hasher) -> Result<FileContents, String> {
    let rules = rules(hasher);
    let decoding = DecodeOptions { rules: &rules, access: Access::Lru { clock_s: 0 }, now_ms: i64::MIN };
    let mut found = FileContents { keys: Contents::new(), facts: BTreeMap::new() };
    let mut splitter = Splitter::open(source, STRICT, 16).map_err(|error| error.to_string())?;
    loop {
        match splitter.next_part().map_err(|error| error.to_string())? {
            Part::End => return Ok(found),
            Part::Batch(batch) => {
                let mut twice = None;
                let db = batch.db();
                let add = |decoded: Decoded<'_>| {
                    let Decoded::Key(entry) = decoded else { return };
                    let before = found.keys.insert((db, entry.key().to_vec()), describe(&entry));
                    twice = twice.take().or(before.map(|_| entry.key().escape_ascii().to_string()));
                };
                decode_batch(&batch, &decoding, add).map_err(|error| error.to_string())?;
                twice.map_or(Ok(()), |key| Err(format!("{key} is there twice")))?;
            }
            Part::Fact { name, value } => drop(found.facts.insert(name, value)),
            Part::Function(_) | Part::DbSize { .. } | Part::Module { .. } => {}
        }
    }
}

/// Describes the first difference between the contents of two keyspaces or files; `None` if they
/// are equal. Each content comes with its name for the message.
pub fn difference(expected: (&str, &Contents), other: (&str, &Contents)) -> Option<String> {
    let mut keys: Vec<_> = expected.1.keys().chain(other.1.keys()).collect();
    keys.sort_unstable();
    let key = keys.into_iter().find(|key| expected.1.get(key) != other.1.get(key))?;
    let [ours, theirs] =
        [expected, other].map(|(_, contents)| contents.get(key).map_or("nothing", String::as_str));
    let same = ours.chars().zip(theirs.chars()).take_while(|(one, other)| one == other).count();
    let show = |(what, _): (&str, &Contents), text: &str| {
        let part: String = text.chars().skip(same.saturating_sub(60)).take(160).collect();
        format!("{what} holds …{part}")
    };
    let (ours, theirs) = (show(expected, ours), show(other, theirs));
    Some(format!("{} of database {}: {ours}, {theirs}", key.1.escape_ascii(), key.0))
}

/// Describes a value with its expiry as text, which is equal for equal values.
fn describe(entry: &KeyEntry) -> String {
    let value = match entry.view() {
        View::Int(number) => format!("string {number}"),
        View::Bytes(bytes) => format!("string {}", bytes.escape_ascii()),
        View::Object(object) => describe_object(object),
    };
    format!("{value}, expires {:?}", entry.expiry_ms())
}

fn describe_object(object: &Object) -> String {
    let mut parts = Vec::new();
    let kind = match object {
        Object::Blob(bytes) => return format!("string {}", bytes.escape_ascii()),
        Object::List(list) => {
            list.visit(|element| parts.push(text(element)));
            return format!("list {}", parts.join(" "));
        }
        Object::Set(set) => {
            set.iter().for_each(|member| parts.push(text(member)));
            "set"
        }
        Object::Hash(hash) => {
            hash.fields().for_each(|field| {
                parts.push(format!("{}={} {:?}", text(field.name), text(field.value), field.deadline_ms));
            });
            "hash"
        }
        Object::Zset(zset) => {
            zset.iter().for_each(|(member, score)| parts.push(format!("{}={}", text(member), score + 0.0)));
            "zset"
        }
        Object::Stream(stream) => return describe_stream(stream),
        Object::Array(array) => {
            for (index, element) in array.elements().scan(0, u64::MAX) {
                parts.push(format!("{index:020}={}", text(element)));
            }
            parts.push(format!("last insertion {:?}", array.last_insert()));
            "array"
        }
        Object::Vector(set) => {
            let index = set.index();
            for slot in index.slots() {
                let (name, attributes) = (index.name(slot).escape_ascii(), index.attributes(slot));
                let (raw, level) = (index.raw(slot), index.links(slot).count() - 1);
                parts
                    .push(format!("{name} {:?} level {level} {raw:?}", attributes.map(<[u8]>::escape_ascii)));
            }
            parts.push(format!("{:?} {:?}", index.config(), set.projection()));
            "vectorset"
        }
    };
    parts.sort_unstable();
    format!("{kind} {}", parts.join(" "))
}

/// Describes the entries and groups of a stream. Leaves out the times of consumers and deliveries,
/// because a replay of the change log uses another clock.
fn describe_stream(stream: &Stream) -> String {
    let mut parts = vec![format!(
        "stream {:?} {:?} {}",
        stream.last_id(),
        stream.max_deleted_id(),
        stream.entries_added()
    )];
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        parts.push(format!("{:?} {:?}", entry.id, entry.pairs.clone().collect::<Vec<_>>()));
    }
    for group in stream.groups() {
        let (name, delivered, read) = (group.name(), group.last_delivered(), group.entries_read());
        parts.push(format!("group {} {delivered:?} {read:?}", name.escape_ascii()));
        for (id, pending) in group.pending_from(StreamId::MIN) {
            let consumer = group.consumer(pending.consumer).name().escape_ascii();
            parts.push(format!("{id:?} for {consumer}, {} times", pending.deliveries));
        }
    }
    parts.join(", ")
}

fn text(element: Element<'_>) -> String {
    element.text(&mut IntText::new()).escape_ascii().to_string()
}

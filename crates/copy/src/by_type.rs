//! Copying and comparing of keys by the commands of their types, in parts of bounded size. This is
//! slower than DUMP and RESTORE, but independent of the formats of the servers.
//!
//! A key is written in parts, so clients of the target may see it incomplete for a moment.

use resp::Value;

use crate::key::Key;

/// The number of elements in one part of a value, when a key is copied or compared by the commands
/// of its type.
const PART_COUNT: usize = 500;
/// The number of bytes in one part of a string that is copied by APPEND.
const PART_LEN_BYTES: usize = 1024 * 1024;

/// A request to a server: the name of the command and its arguments.
pub type Request = Vec<Vec<u8>>;

/// A connection on which requests are answered one after the other.
pub trait Ask {
    /// Sends `requests` and returns their replies in the same order, including error replies.
    /// Returns an error if the connection fails.
    fn ask(&mut self, requests: &[Request]) -> Result<Vec<Value>, String>;
}

/// Creates a request from the name of a command and its arguments.
pub fn request(words: &[&[u8]]) -> Request {
    words.iter().map(|word| word.to_vec()).collect()
}

fn ask_one(server: &mut dyn Ask, words: &[&[u8]]) -> Result<Value, String> {
    let mut replies = server.ask(&[request(words)])?;
    let reply = replies.pop().ok_or("no reply")?;
    if let Value::Error(error) = &reply {
        return Err(format!("{}: {}", words[0].escape_ascii(), error.escape_ascii()));
    }
    Ok(reply)
}

/// Sends `requests` to `server`. Returns the first error reply as an error, and ignores all other
/// replies.
fn tell(server: &mut dyn Ask, requests: &[Request]) -> Result<(), String> {
    if requests.is_empty() {
        return Ok(());
    }
    let replies = server.ask(requests)?;
    let failed = replies.iter().zip(requests).find(|(reply, _)| reply.is_error());
    match failed {
        Some((error, request)) => {
            let text = error.as_bytes().unwrap_or_default().escape_ascii().to_string();
            Err(format!("{}: {text}", request[0].escape_ascii()))
        }
        None => Ok(()),
    }
}

/// Selects the database of `key` on both servers.
fn select(source: &mut dyn Ask, target: &mut dyn Ask, key: &Key) -> Result<(), String> {
    let db = key.db.to_string();
    ask_one(source, &[b"SELECT", db.as_bytes()])?;
    ask_one(target, &[b"SELECT", db.as_bytes()])?;
    Ok(())
}

/// Copies `key` from `source` to `target` by the commands of its type. If the source does not have
/// the key, removes it from the target and returns false.
pub fn copy(source: &mut dyn Ask, target: &mut dyn Ask, key: &Key) -> Result<bool, String> {
    select(source, target, key)?;
    let name = &key.name[..];
    let kind = ask_one(source, &[b"TYPE", name])?;
    ask_one(target, &[b"DEL", name])?;
    match kind.as_bytes().unwrap_or_default() {
        b"none" => return Ok(false),
        b"string" => copy_string(source, target, name)?,
        b"stream" => copy_stream(source, target, name)?,
        kind => {
            let Some(kind) = Kind::of(kind) else {
                return Err(format!("there are no commands for type {}", kind.escape_ascii()));
            };
            for_parts(source, name, kind, |source, elements| {
                tell(target, &[prefixed(&kind.write_words(name), kind.to_write(elements))])?;
                if kind == Kind::Hash {
                    copy_field_expiries(source, target, name, elements)
                } else {
                    Ok(true)
                }
            })?;
        }
    }
    let Value::Integer(ttl_ms) = ask_one(source, &[b"PTTL", name])? else { return Ok(true) };
    if ttl_ms > 0 {
        ask_one(target, &[b"PEXPIRE", name, ttl_ms.to_string().as_bytes()])?;
    }
    Ok(true)
}

/// Returns true if the values of `key` are the same on both servers, as far as the commands of its
/// type show them.
pub fn is_equal(source: &mut dyn Ask, target: &mut dyn Ask, key: &Key) -> Result<bool, String> {
    select(source, target, key)?;
    let name = &key.name[..];
    let kind = ask_one(source, &[b"TYPE", name])?;
    if kind != ask_one(target, &[b"TYPE", name])? {
        return Ok(false);
    }
    match kind.as_bytes().unwrap_or_default() {
        b"none" => Ok(true),
        b"string" => equal_strings(source, target, name),
        b"stream" => equal_streams(source, target, name),
        b"vectorset" => equal_vector_sets(source, target, name),
        b"array" => equal_arrays(source, target, name),
        kind => {
            let Some(kind) = Kind::of(kind) else { return Ok(false) };
            let count = [kind.count_word(), name];
            if ask_one(source, &count)? != ask_one(target, &count)? {
                return Ok(false);
            }
            let mut index = 0;
            for_parts(source, name, kind, |source, elements| {
                let is_same = kind.has_part(target, name, elements, index)?;
                index += elements.len();
                let has_expiries = is_same && kind == Kind::Hash;
                Ok(is_same && (!has_expiries || equal_field_expiries(source, target, name, elements)?))
            })
        }
    }
}

/// The types of values that consist of elements: they are copied and compared in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    List,
    Set,
    Hash,
    Zset,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"list" => Kind::List,
            b"set" => Kind::Set,
            b"hash" => Kind::Hash,
            b"zset" => Kind::Zset,
            _ => return None,
        })
    }

    fn scan_word(self) -> &'static [u8] {
        match self {
            Kind::List => b"LRANGE",
            Kind::Set => b"SSCAN",
            Kind::Hash => b"HSCAN",
            Kind::Zset => b"ZSCAN",
        }
    }

    fn count_word(self) -> &'static [u8] {
        match self {
            Kind::List => b"LLEN",
            Kind::Set => b"SCARD",
            Kind::Hash => b"HLEN",
            Kind::Zset => b"ZCARD",
        }
    }

    fn write_words(self, name: &[u8]) -> Request {
        let word: &[u8] = match self {
            Kind::List => b"RPUSH",
            Kind::Set => b"SADD",
            Kind::Hash => b"HSET",
            Kind::Zset => b"ZADD",
        };
        request(&[word, name])
    }

    /// Orders the elements of a part of a value as the command that writes them requires. For
    /// example, ZADD has each score before its member.
    fn to_write(self, elements: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut words = elements.to_vec();
        if self == Kind::Zset {
            words.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
        }
        words
    }

    /// Returns true if the target has the elements of one part of a value. `index` is the number of
    /// elements of the parts before it.
    fn has_part(
        self,
        target: &mut dyn Ask,
        name: &[u8],
        elements: &[Vec<u8>],
        index: usize,
    ) -> Result<bool, String> {
        let firsts = || elements.iter().step_by(2).cloned();
        let seconds = elements.iter().skip(1).step_by(2);
        let mut values = |words: Request| -> Result<Vec<Value>, String> {
            match target.ask(&[words])?.pop() {
                Some(Value::Array(values)) => Ok(values),
                Some(other) => Err(format!("an unexpected reply: {other}")),
                None => Err("no reply".to_owned()),
            }
        };
        let is_bytes = |value: &Value, bytes: &Vec<u8>| value.as_bytes() == Some(&bytes[..]);
        Ok(match self {
            Kind::List => {
                let (first, last) = (index.to_string(), (index + elements.len() - 1).to_string());
                let words = request(&[b"LRANGE", name, first.as_bytes(), last.as_bytes()]);
                let values = values(words)?;
                values.len() == elements.len() && values.iter().zip(elements).all(|(v, e)| is_bytes(v, e))
            }
            Kind::Set => values(prefixed(&request(&[b"SMISMEMBER", name]), elements.to_vec()))?
                .iter()
                .all(|value| *value == Value::Integer(1)),
            Kind::Hash => values(prefixed(&request(&[b"HMGET", name]), firsts().collect()))?
                .iter()
                .zip(seconds)
                .all(|(value, wanted)| is_bytes(value, wanted)),
            Kind::Zset => {
                let score = |text: &[u8]| stdx::number::parse_f64(text);
                values(prefixed(&request(&[b"ZMSCORE", name]), firsts().collect()))?.iter().zip(seconds).all(
                    |(value, wanted)| value.as_bytes().is_some_and(|value| score(value) == score(wanted)),
                )
            }
        })
    }
}

fn prefixed(words: &[Vec<u8>], more: Vec<Vec<u8>>) -> Request {
    words.iter().cloned().chain(more).collect()
}

/// Reads a value in parts from a server, and calls `part` with the elements of each: members,
/// fields with values, members with scores. Ends early when `part` returns false, and returns its
/// last result.
fn for_parts(
    source: &mut dyn Ask,
    name: &[u8],
    kind: Kind,
    mut part: impl FnMut(&mut dyn Ask, &[Vec<u8>]) -> Result<bool, String>,
) -> Result<bool, String> {
    let count = PART_COUNT.to_string();
    let mut cursor = b"0".to_vec();
    let mut index = 0;
    loop {
        let elements = if kind == Kind::List {
            let (first, last) = (index.to_string(), (index + PART_COUNT - 1).to_string());
            let reply = ask_one(source, &[b"LRANGE", name, first.as_bytes(), last.as_bytes()])?;
            index += PART_COUNT;
            byte_strings(&reply)
        } else {
            let reply = ask_one(source, &[kind.scan_word(), name, &cursor, b"COUNT", count.as_bytes()])?;
            let Value::Array(parts) = &reply else { return Err(format!("an unexpected reply: {reply}")) };
            let [next, elements] = &parts[..] else { return Err("an unexpected reply".to_owned()) };
            cursor = next.as_bytes().unwrap_or(b"0").to_vec();
            byte_strings(elements)
        };
        if !elements.is_empty() && !part(source, &elements)? {
            return Ok(false);
        }
        let is_last = if kind == Kind::List { elements.len() < PART_COUNT } else { cursor == b"0" };
        if is_last {
            return Ok(true);
        }
    }
}

fn byte_strings(reply: &Value) -> Vec<Vec<u8>> {
    let Value::Array(values) = reply else { return Vec::new() };
    values.iter().filter_map(|value| value.as_bytes().map(<[u8]>::to_vec)).collect()
}

fn copy_string(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<(), String> {
    for_string_parts(source, name, |_, offset, bytes| {
        let word: &[u8] = if offset == 0 { b"SET" } else { b"APPEND" };
        tell(target, &[request(&[word, name, bytes])])?;
        Ok(true)
    })
    .map(|_| ())
}

fn equal_strings(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<bool, String> {
    if ask_one(source, &[b"STRLEN", name])? != ask_one(target, &[b"STRLEN", name])? {
        return Ok(false);
    }
    for_string_parts(source, name, |_, offset, bytes| {
        Ok(string_part(target, name, offset)?.as_bytes() == Some(bytes))
    })
}

fn string_part(server: &mut dyn Ask, name: &[u8], offset: usize) -> Result<Value, String> {
    let last = (offset + PART_LEN_BYTES - 1).to_string();
    ask_one(server, &[b"GETRANGE", name, offset.to_string().as_bytes(), last.as_bytes()])
}

fn for_string_parts(
    source: &mut dyn Ask,
    name: &[u8],
    mut part: impl FnMut(&mut dyn Ask, usize, &[u8]) -> Result<bool, String>,
) -> Result<bool, String> {
    let mut offset = 0;
    loop {
        let reply = string_part(source, name, offset)?;
        let bytes = reply.as_bytes().unwrap_or_default();
        // An empty string is a part, too.
        if (!bytes.is_empty() || offset == 0) && !part(source, offset, bytes)? {
            return Ok(false);
        }
        if bytes.len() < PART_LEN_BYTES {
            return Ok(true);
        }
        offset += bytes.len();
    }
}

/// Reads the times at which the hash fields in `pairs` (of field and value) expire. Returns `None`
/// if the server does not know expiries of fields.
fn field_expiries(server: &mut dyn Ask, name: &[u8], pairs: &[Vec<u8>]) -> Result<Option<Value>, String> {
    let count = pairs.len().div_ceil(2).to_string();
    let words = request(&[b"HPEXPIRETIME", name, b"FIELDS", count.as_bytes()]);
    let fields = pairs.iter().step_by(2).cloned().collect();
    let reply = server.ask(&[prefixed(&words, fields)])?.pop();
    Ok(reply.filter(|reply| !reply.is_error()))
}

fn copy_field_expiries(
    source: &mut dyn Ask,
    target: &mut dyn Ask,
    name: &[u8],
    pairs: &[Vec<u8>],
) -> Result<bool, String> {
    let Some(Value::Array(times)) = field_expiries(source, name, pairs)? else { return Ok(true) };
    let mut requests = Vec::new();
    for (field, time) in pairs.iter().step_by(2).zip(times) {
        if let Value::Integer(time @ 1..) = time {
            let time = time.to_string();
            requests.push(request(&[b"HPEXPIREAT", name, time.as_bytes(), b"FIELDS", b"1", field]));
        }
    }
    tell(target, &requests)?;
    Ok(true)
}

fn equal_field_expiries(
    source: &mut dyn Ask,
    target: &mut dyn Ask,
    name: &[u8],
    pairs: &[Vec<u8>],
) -> Result<bool, String> {
    let of_source = field_expiries(source, name, pairs)?;
    Ok(of_source.is_none() || of_source == field_expiries(target, name, pairs)?)
}

/// Reads a stream in parts from a server, and calls `part` with the entries of each.
fn for_stream_parts(
    source: &mut dyn Ask,
    name: &[u8],
    mut part: impl FnMut(&[u8], &[Value]) -> Result<bool, String>,
) -> Result<bool, String> {
    let count = PART_COUNT.to_string();
    let mut start = b"-".to_vec();
    loop {
        let reply = ask_one(source, &[b"XRANGE", name, &start, b"+", b"COUNT", count.as_bytes()])?;
        let Value::Array(entries) = &reply else { return Err(format!("an unexpected reply: {reply}")) };
        if !entries.is_empty() && !part(&start, entries)? {
            return Ok(false);
        }
        let last = entries.last().and_then(entry_id);
        match last {
            Some(id) if entries.len() == PART_COUNT => start = [b"(", id].concat(),
            _ => return Ok(true),
        }
    }
}

fn entry_id(entry: &Value) -> Option<&[u8]> {
    let Value::Array(parts) = entry else { return None };
    parts.first()?.as_bytes()
}

fn equal_streams(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<bool, String> {
    if ask_one(source, &[b"XLEN", name])? != ask_one(target, &[b"XLEN", name])? {
        return Ok(false);
    }
    let count = PART_COUNT.to_string();
    let are_equal = for_stream_parts(source, name, |start, entries| {
        let other = ask_one(target, &[b"XRANGE", name, start, b"+", b"COUNT", count.as_bytes()])?;
        Ok(matches!(other, Value::Array(others) if others == entries))
    })?;
    let groups = |server: &mut dyn Ask| -> Result<Vec<[Option<Value>; 4]>, String> {
        let reply = ask_one(server, &[b"XINFO", b"GROUPS", name])?;
        let facts = ["name", "consumers", "pending", "last-delivered-id"];
        Ok(array(&reply).iter().map(|group| facts.map(|fact| field(group, fact))).collect())
    };
    Ok(are_equal && groups(source)? == groups(target)?)
}

/// Returns true if the arrays of `name` have the same elements and the same cursor.
fn equal_arrays(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<bool, String> {
    for fact in [&b"ARCOUNT"[..], b"ARNEXT"] {
        if ask_one(source, &[fact, name])? != ask_one(target, &[fact, name])? {
            return Ok(false);
        }
    }
    let (mut start, count) = (b"0".to_vec(), PART_COUNT.to_string());
    loop {
        let scan = [b"ARSCAN", name, &start, b"18446744073709551614", b"LIMIT", count.as_bytes()];
        let part = ask_one(source, &scan)?;
        if part != ask_one(target, &scan)? {
            return Ok(false);
        }
        let last = array(&part).last().and_then(|pair| array(pair).first()).map(|index| match index {
            Value::Integer(index) => index.to_string(),
            index => String::from_utf8_lossy(index.as_bytes().unwrap_or_default()).into_owned(),
        });
        let next = last.and_then(|last| last.parse::<u64>().ok()?.checked_add(1));
        match next {
            Some(next) if array(&part).len() == PART_COUNT && next < u64::MAX => {
                start = next.to_string().into()
            }
            _ => return Ok(true),
        }
    }
}

/// Compares the stored vectors and the attributes of all elements of a vector set on both servers.
/// Does not compare the links between elements, which each server chooses itself.
fn equal_vector_sets(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<bool, String> {
    let facts = |server: &mut dyn Ask| -> Result<[Option<Value>; 4], String> {
        let info = ask_one(server, &[b"VINFO", name])?;
        Ok(["size", "quant-type", "vector-dim", "projection-input-dim"].map(|fact| field(&info, fact)))
    };
    let of_source = facts(source)?;
    if of_source != facts(target)? {
        return Ok(false);
    }
    let [size, ..] = of_source;
    let names = ask_one(source, &[b"VRANDMEMBER", name, &text(size)])?;
    for part in array(&names).chunks(PART_COUNT) {
        let elements = part.iter().map(|element| element.as_bytes().unwrap_or_default());
        let of_element = |element: &[u8]| {
            [request(&[b"VEMB", name, element, b"RAW"]), request(&[b"VGETATTR", name, element])]
        };
        let requests: Vec<Request> = elements.flat_map(of_element).collect();
        if source.ask(&requests)? != target.ask(&requests)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn array(value: &Value) -> &[Value] {
    if let Value::Array(values) = value { values } else { &[] }
}

/// Returns the value after `name` in a flat list of names and values; `None` if the list does not
/// have the name.
fn field(list: &Value, name: &str) -> Option<Value> {
    let pair = array(list).chunks(2).find(|pair| pair[0].as_bytes() == Some(name.as_bytes()))?;
    pair.get(1).cloned()
}

/// Returns the text of `value`: bytes as they are, an integer in decimal; empty for `None` and
/// other values.
fn text(value: Option<Value>) -> Vec<u8> {
    match value {
        Some(Value::Integer(number)) => number.to_string().into_bytes(),
        other => other.as_ref().and_then(Value::as_bytes).unwrap_or_default().to_vec(),
    }
}

fn copy_stream(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8]) -> Result<(), String> {
    let mut is_empty = true;
    for_stream_parts(source, name, |_, entries| {
        is_empty = false;
        let add = |entry: &Value| {
            let fields = array(entry).get(1).map(byte_strings).unwrap_or_default();
            prefixed(&request(&[b"XADD", name, entry_id(entry).unwrap_or_default()]), fields)
        };
        let requests: Vec<Request> = entries.iter().map(add).collect();
        tell(target, &requests)?;
        Ok(true)
    })?;
    let info = ask_one(source, &[b"XINFO", b"STREAM", name])?;
    let last = text(field(&info, "last-generated-id"));
    if is_empty {
        // XADD creates it, and removes the entry at once. An ID of zero cannot be added.
        let id: &[u8] = if last == b"0-0" { b"0-1" } else { &last };
        tell(target, &[request(&[b"XADD", name, b"MAXLEN", b"0", id, b"x", b"y"])])?;
    }
    let mut set = request(&[b"XSETID", name, &last]);
    if let (Some(added), Some(deleted)) =
        (field(&info, "entries-added"), field(&info, "max-deleted-entry-id"))
    {
        set.extend([b"ENTRIESADDED".to_vec(), text(Some(added)), b"MAXDELETEDID".to_vec()]);
        set.push(text(Some(deleted)));
    }
    tell(target, &[set])?;
    let groups = ask_one(source, &[b"XINFO", b"GROUPS", name])?;
    array(&groups).iter().try_for_each(|group| copy_group(source, target, name, group))
}

fn copy_group(source: &mut dyn Ask, target: &mut dyn Ask, name: &[u8], group: &Value) -> Result<(), String> {
    let group_name = text(field(group, "name"));
    let last = text(field(group, "last-delivered-id"));
    let mut create = request(&[b"XGROUP", b"CREATE", name, &group_name, &last]);
    if let Some(read) = field(group, "entries-read").filter(|read| *read != Value::Null) {
        create.extend([b"ENTRIESREAD".to_vec(), text(Some(read))]);
    }
    tell(target, &[create])?;
    let consumers = ask_one(source, &[b"XINFO", b"CONSUMERS", name, &group_name])?;
    for consumer in array(&consumers) {
        let consumer = text(field(consumer, "name"));
        tell(target, &[request(&[b"XGROUP", b"CREATECONSUMER", name, &group_name, &consumer])])?;
    }
    let count = PART_COUNT.to_string();
    let mut start = b"-".to_vec();
    loop {
        let words: [&[u8]; 6] = [b"XPENDING", name, &group_name, &start, b"+", count.as_bytes()];
        let reply = ask_one(source, &words)?;
        let entries = array(&reply);
        let claims: Vec<Request> =
            entries.iter().filter_map(|entry| claim(name, &group_name, entry)).collect();
        tell(target, &claims)?;
        match entries.last().and_then(entry_id) {
            Some(id) if entries.len() == PART_COUNT => start = [b"(", id].concat(),
            _ => return Ok(()),
        }
    }
}

/// Returns the request (XCLAIM) that makes an entry pending again, from an entry of XPENDING's
/// reply.
fn claim(name: &[u8], group: &[u8], entry: &Value) -> Option<Request> {
    let [id, consumer, idle_ms, count] = array(entry) else { return None };
    let words: [&[u8]; 6] = [b"XCLAIM", name, group, consumer.as_bytes()?, b"0", id.as_bytes()?];
    let (idle_ms, count) = (text(Some(idle_ms.clone())), text(Some(count.clone())));
    let more: [&[u8]; 6] = [b"IDLE", &idle_ms, b"RETRYCOUNT", &count, b"FORCE", b"JUSTID"];
    Some(request(&[&words[..], &more].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server for tests: its replies are written in advance, and it keeps the requests.
    struct Scripted(Vec<Value>, Vec<String>);

    impl Ask for Scripted {
        fn ask(&mut self, requests: &[Request]) -> Result<Vec<Value>, String> {
            let line = |request: &Request| {
                let words: Vec<_> = request.iter().map(|word| word.escape_ascii().to_string()).collect();
                words.join(" ")
            };
            self.1.extend(requests.iter().map(line));
            Ok(requests.iter().map(|_| self.0.remove(0)).collect())
        }
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn ok() -> Value {
        Value::Simple(b"OK".to_vec())
    }

    #[test]
    fn a_sorted_set_is_copied_with_scores_before_members() {
        let part = Value::Array(vec![bulk("0"), Value::Array(["a", "1", "b", "2.5"].map(bulk).to_vec())]);
        let mut source = Scripted(vec![ok(), bulk("zset"), part, Value::Integer(900)], Vec::new());
        let mut target =
            Scripted(vec![ok(), Value::Integer(0), Value::Integer(2), Value::Integer(1)], Vec::new());
        assert_eq!(copy(&mut source, &mut target, &Key::new(1, b"z")), Ok(true));
        assert_eq!(target.1, ["SELECT 1", "DEL z", "ZADD z 1 a 2.5 b", "PEXPIRE z 900"]);
    }

    #[test]
    fn vector_sets_are_equal_if_their_elements_are() {
        let info = |size| {
            let facts = [bulk("quant-type"), bulk("f32"), bulk("size"), Value::Integer(size)];
            Value::Array(facts.to_vec())
        };
        let raw = |text: &str| Value::Array(vec![bulk("f32"), bulk(text), bulk("1")]);
        let names = Value::Array(vec![bulk("a"), bulk("b")]);
        let elements = [raw("x"), Value::Null, raw("y"), bulk("{}")];
        let begin = [ok(), bulk("vectorset"), info(2)];
        for (other, is_same) in [(elements[2].clone(), true), (raw("z"), false)] {
            let mut source =
                Scripted([&begin[..], std::slice::from_ref(&names), &elements].concat(), Vec::new());
            let mut theirs = elements.to_vec();
            theirs[2] = other;
            let mut target = Scripted([&begin[..], &theirs].concat(), Vec::new());
            assert_eq!(is_equal(&mut source, &mut target, &Key::new(0, b"v")), Ok(is_same));
            assert_eq!(source.1[3..5], ["VRANDMEMBER v 2", "VEMB v a RAW"]);
        }
        let mut source = Scripted(begin.to_vec(), Vec::new());
        let mut target = Scripted(vec![ok(), bulk("vectorset"), info(3)], Vec::new());
        assert_eq!(is_equal(&mut source, &mut target, &Key::new(0, b"v")), Ok(false));
    }

    #[test]
    fn a_refused_write_is_an_error_with_the_command() {
        let mut source = Scripted(vec![ok(), bulk("list"), Value::Array(vec![bulk("x")])], Vec::new());
        let refused = Value::Error(b"OOM no".to_vec());
        let mut target = Scripted(vec![ok(), Value::Integer(0), refused], Vec::new());
        let copied = copy(&mut source, &mut target, &Key::new(0, b"l"));
        assert_eq!(copied, Err("RPUSH: OOM no".to_owned()));
    }

    #[test]
    fn sets_are_equal_if_the_target_has_as_many_and_each_member() {
        let check = |has: [i64; 2]| {
            let part = Value::Array(vec![bulk("0"), Value::Array(["a", "b"].map(bulk).to_vec())]);
            let mut source = Scripted(vec![ok(), bulk("set"), Value::Integer(2), part], Vec::new());
            let members = Value::Array(has.map(Value::Integer).to_vec());
            let mut target = Scripted(vec![ok(), bulk("set"), Value::Integer(2), members], Vec::new());
            is_equal(&mut source, &mut target, &Key::new(0, b"s")).unwrap()
        };
        assert!(check([1, 1]));
        assert!(!check([1, 0]));
    }
}

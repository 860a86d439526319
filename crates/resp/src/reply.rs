//! The reply encoder: the only code that knows the encoding of replies.
//!
//! A command handler calls a method for each type of reply (`bulk`, `map`, `null`, …), and the
//! encoder writes it in the client's protocol. RESP3 has types for maps, sets, doubles, booleans
//! and null; in RESP2 they become arrays, bulk strings, integers and the null bulk. Everything is
//! appended to the tail of the connection's [`ByteQueue`]; a big value is queued by reference
//! instead of being copied.
//!
//! An aggregate whose length is known only at its end is written with `begin_array` … `end_array`:
//! its elements are written first, and `end_array` inserts the header before them with one
//! `memmove`. No bytes of the queue may be sent between `new` and the last call, because marks
//! count the unsent bytes. Complexity: every method is O(bytes written); `end_*` moves the
//! aggregate's bytes once. Source: the RESP specification, redis.io/docs; compared with a running
//! Redis 8.0.2.

use stdx::{ByteQueue, SharedBytes, bytes, number};

/// The protocol version of a client, chosen with HELLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2, the protocol with which every connection starts.
    #[default]
    Resp2,
    /// RESP3, the protocol after `HELLO 3`.
    Resp3,
}

/// A place in a reply, to which [`Reply::truncate`] can cut the reply back. It is stored as the
/// number of unsent bytes in the queue before that place.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// The start of an aggregate of unknown length. The `end_*` method of the aggregate's type takes
/// it.
#[derive(Debug)]
#[must_use = "an aggregate that is begun must be ended"]
pub struct Deferred(usize);

/// The encoder of replies for one connection, in the protocol of that connection. An encoder exists
/// while one request is executed.
pub struct Reply<'a> {
    out: &'a mut ByteQueue,
    protocol: Protocol,
    start_len_bytes: usize,
}

impl<'a> Reply<'a> {
    /// Creates an encoder that appends replies in `protocol` to `out`.
    #[inline]
    pub fn new(out: &'a mut ByteQueue, protocol: Protocol) -> Self {
        let start_len_bytes = out.len_bytes();
        Self { out, protocol, start_len_bytes }
    }

    /// Returns the protocol in which this encoder writes replies.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Switches the protocol of the following replies (HELLO replies in the protocol that it
    /// selects).
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns the number of bytes written since this encoder was created.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.out.len_bytes() - self.start_len_bytes
    }

    /// Returns the number of unsent bytes of earlier replies at the creation of this encoder.
    pub fn len_bytes_ahead(&self) -> usize {
        self.start_len_bytes
    }

    /// Returns the current end of the reply, for [`Reply::truncate`].
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark(self.out.len_bytes())
    }

    /// Returns the number of bytes of the reply written since `mark` was taken.
    pub fn len_since(&self, mark: &Mark) -> usize {
        self.out.len_bytes().saturating_sub(mark.0)
    }

    /// Drops all bytes of the reply written since `mark` was taken, for example if a command fails
    /// half way.
    pub fn truncate(&mut self, mark: Mark) {
        self.out.truncate(mark.0);
    }

    /// Writes the simple string `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// Writes a simple string, such as `+OK`. `text` holds no CR or LF.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a simple string is one line");
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error line given without its `-`, such as `ERR syntax error`. CR and LF become
    /// spaces: the line may quote a client's bytes, which must not end the reply early.
    pub fn error(&mut self, line: &str) {
        self.error_bytes(line.as_bytes());
    }

    /// Writes an error line as [`Reply::error`] does; `line` may contain bytes that are not UTF-8.
    pub fn error_bytes(&mut self, line: &[u8]) {
        let tail = self.out.tail_mut();
        tail.reserve(line.len() + 3);
        tail.push(b'-');
        tail.extend(line.iter().map(|&byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
        tail.extend_from_slice(b"\r\n");
    }

    /// Writes an integer reply, such as `:1`.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// Writes a bulk string with a copy of `bytes`.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes::word(bytes) {
            return self.bulk_word(word, bytes.len());
        }
        self.out.tail_mut().reserve(bytes.len() + HEADER_LEN_MAX + 2);
        self.header(b'$', bytes.len() as i64);
        let tail = self.out.tail_mut();
        tail.extend_from_slice(bytes);
        tail.extend_from_slice(b"\r\n");
    }

    /// Writes a bulk string of the first `len` bytes of `word`, at most six. The other bytes must
    /// be zero. The whole string is assembled in registers and written with one store. This speeds
    /// up replies of many small elements, such as ranges.
    #[inline]
    fn bulk_word(&mut self, word: u64, len: usize) {
        let header = u64::from(u32::from_le_bytes([b'$', b'0' + len as u8, b'\r', b'\n']));
        let line = word | u64::from(u16::from_le_bytes(*b"\r\n")) << (8 * len);
        let reply = u128::from(header | line << 32) | u128::from(line >> 32) << 64;
        let tail = self.out.tail_mut();
        let at = tail.len();
        tail.extend_from_slice(&reply.to_le_bytes());
        tail.truncate(at + 4 + len + 2);
    }

    /// Writes an integer as the text of a bulk string, as GET does for a string that is stored as
    /// an integer.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Queues a bulk string by reference, without a copy of its bytes. That is faster than a copy
    /// from about 16 KiB on.
    pub fn bulk_shared(&mut self, bytes: SharedBytes) {
        self.header(b'$', (*bytes).as_ref().len() as i64);
        self.out.push_shared(bytes);
        self.raw(b"\r\n");
    }

    /// Writes a null: `_` in RESP3, the null bulk `$-1` in RESP2.
    #[inline]
    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"$-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Writes a null array: `_` in RESP3, `*-1` in RESP2.
    #[inline]
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"*-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Writes the header of an array; `len` replies must follow.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Writes an array without elements.
    #[inline]
    pub fn empty_array(&mut self) {
        self.raw(b"*0\r\n");
    }

    /// Writes the header of a map (RESP2: an array twice as long); `pairs` pairs of a key and a
    /// value must follow.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * pairs as i64),
            Protocol::Resp3 => self.header(b'%', pairs as i64),
        }
    }

    /// Writes the header of a set (RESP2: an array); `len` replies must follow.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.aggregate(b'~', len);
    }

    /// Writes the header of an out-of-band message (RESP2: an array); `len` replies must follow.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.aggregate(b'>', len);
    }

    /// Writes the header of `pairs` attributes, which describe the reply after them. `pairs` pairs
    /// of a name and a value must follow.
    ///
    /// # Panics
    /// If the protocol is RESP2, which has no attributes: check [`Reply::protocol`] first.
    pub fn attribute(&mut self, pairs: usize) {
        assert!(self.protocol == Protocol::Resp3, "RESP2 has no attributes");
        self.header(b'|', pairs as i64);
    }

    /// Begins an array reply whose length is not known yet.
    #[inline]
    pub fn begin_array(&mut self) -> Deferred {
        Deferred(self.out.len_bytes())
    }

    /// Ends an array of `len` replies. O(bytes written since it began).
    pub fn end_array(&mut self, begun: Deferred, len: usize) {
        self.insert_header(&begun, b'*', len);
    }

    /// Begins a map reply whose length is not known yet.
    #[inline]
    pub fn begin_map(&mut self) -> Deferred {
        self.begin_array()
    }

    /// Ends a map of `pairs` pairs of a key and a value. O(bytes written since it began).
    pub fn end_map(&mut self, begun: Deferred, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.insert_header(&begun, b'*', 2 * pairs),
            Protocol::Resp3 => self.insert_header(&begun, b'%', pairs),
        }
    }

    /// Begins a set reply whose length is not known yet.
    #[inline]
    pub fn begin_set(&mut self) -> Deferred {
        self.begin_array()
    }

    /// Ends a set of `len` replies. O(bytes written since it began).
    pub fn end_set(&mut self, begun: Deferred, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.insert_header(&begun, b'*', len),
            Protocol::Resp3 => self.insert_header(&begun, b'~', len),
        }
    }

    /// Writes a boolean: `#t` or `#f` in RESP3, `:1` or `:0` in RESP2.
    pub fn boolean(&mut self, value: bool) {
        self.raw(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// Writes a double (RESP2: a bulk string) in the text of [`number::format_f64`].
    pub fn double(&mut self, value: f64) {
        self.double_text(number::format_f64(value, &mut [0; number::F64_TEXT_LEN_MAX]));
    }

    /// Writes a double given as its text (RESP2: a bulk string), for texts that differ from that of
    /// [`Reply::double`].
    pub fn double_text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Writes an integer beyond 64 bits, given as its digits (RESP2: a bulk string).
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Writes a verbatim string, a text for people, with its three-letter format `txt` or `mkd`. In
    /// RESP2 it is a bulk string.
    pub fn verbatim(&mut self, format: [u8; 3], bytes: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(bytes),
            Protocol::Resp3 => {
                self.header(b'=', bytes.len() as i64 + 4);
                let tail = self.out.tail_mut();
                tail.extend_from_slice(&format);
                tail.push(b':');
                tail.extend_from_slice(bytes);
                tail.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends bytes that are already encoded in this encoder's protocol to the reply.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.out.tail_mut().extend_from_slice(encoded);
    }

    #[inline]
    fn aggregate(&mut self, resp3_kind: u8, len: usize) {
        let kind = match self.protocol {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => resp3_kind,
        };
        self.header(kind, len as i64);
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        write_header(self.out.tail_mut(), kind, value);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        let tail = self.out.tail_mut();
        tail.reserve(text.len() + 3);
        tail.push(kind);
        tail.extend_from_slice(text);
        tail.extend_from_slice(b"\r\n");
    }

    fn insert_header(&mut self, begun: &Deferred, kind: u8, len: usize) {
        let mut header = Vec::with_capacity(HEADER_LEN_MAX);
        write_header(&mut header, kind, len as i64);
        self.out.insert(begun.0, &header);
    }
}

/// The maximum length of the header of an aggregate or bulk string, in bytes: a type byte, the
/// longest integer, CR LF.
const HEADER_LEN_MAX: usize = 1 + 20 + 2;

/// Appends a header of a reply to `out`: the type byte `kind`, `value` in decimal, and CR LF.
#[inline]
fn write_header(out: &mut Vec<u8>, kind: u8, value: i64) {
    if (0..10).contains(&value) {
        // Most numbers have one digit: such a header is one store of four bytes.
        out.extend_from_slice(&[kind, b'0' + value as u8, b'\r', b'\n']);
        return;
    }
    if (10..100).contains(&value) {
        let (tens, ones) = (value as u8 / 10, value as u8 % 10);
        out.extend_from_slice(&[kind, b'0' + tens, b'0' + ones, b'\r', b'\n']);
        return;
    }
    out.reserve(HEADER_LEN_MAX);
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut queue = ByteQueue::new();
        queue.tail_mut().extend_from_slice(b"before ");
        let mut reply = Reply::new(&mut queue, protocol);
        write(&mut reply);
        let len_bytes = reply.len_bytes();
        let all: Vec<u8> = queue.io_slices(100).iter().flat_map(|slice| slice.to_vec()).collect();
        let text = all.strip_prefix(b"before ").expect("earlier bytes stay").to_vec();
        assert_eq!(text.len(), len_bytes);
        String::from_utf8_lossy(&text).replace("\r\n", "|")
    }

    /// Checks the output of the same encoder calls in both protocols.
    fn check(write: impl Fn(&mut Reply<'_>), resp2: &str, resp3: &str) {
        assert_eq!(written(Protocol::Resp2, &write), resp2);
        assert_eq!(written(Protocol::Resp3, &write), resp3);
    }

    #[test]
    fn scalars_are_written_in_the_clients_protocol() {
        check(|r| r.ok(), "+OK|", "+OK|");
        check(|r| r.simple("PONG"), "+PONG|", "+PONG|");
        check(|r| r.integer(-7), ":-7|", ":-7|");
        check(|r| r.integer(i64::MIN), ":-9223372036854775808|", ":-9223372036854775808|");
        check(|r| r.bulk(b""), "$0||", "$0||");
        check(|r| r.bulk(b"0123456789"), "$10|0123456789|", "$10|0123456789|");
        check(|r| r.bulk_integer(-12), "$3|-12|", "$3|-12|");
        check(|r| r.null(), "$-1|", "_|");
        check(|r| r.null_array(), "*-1|", "_|");
        check(|r| r.boolean(true), ":1|", "#t|");
        check(|r| r.boolean(false), ":0|", "#f|");
        check(|r| r.double(3.25), "$4|3.25|", ",3.25|");
        check(|r| r.double(f64::INFINITY), "$3|inf|", ",inf|");
        check(|r| r.big_number("123"), "$3|123|", "(123|");
        check(|r| r.verbatim(*b"txt", b"hi"), "$2|hi|", "=6|txt:hi|");
    }

    #[test]
    fn bulk_strings_of_every_small_length_are_whole() {
        for len in 0..130 {
            let text: String = ('!'..='z').cycle().take(len).collect();
            let expected = format!("${len}|{text}|$1|x|");
            let write = |r: &mut Reply<'_>| {
                r.bulk(text.as_bytes());
                r.bulk(b"x");
            };
            check(write, &expected, &expected);
        }
        check(|r| r.bulk_integer(-12345), "$6|-12345|", "$6|-12345|");
    }

    #[test]
    fn aggregates_of_resp3_become_arrays_in_resp2() {
        check(|r| r.array(3), "*3|", "*3|");
        check(|r| r.empty_array(), "*0|", "*0|");
        check(|r| r.map(6), "*12|", "%6|");
        check(|r| r.set(2), "*2|", "~2|");
        check(|r| r.push(2), "*2|", ">2|");
        assert_eq!(written(Protocol::Resp3, |r| r.attribute(1)), "|1|");
    }

    #[test]
    fn a_line_break_cannot_end_an_error_early() {
        check(|r| r.error("ERR unknown '\r\n+OK\r\n'"), "-ERR unknown '  +OK  '|", "-ERR unknown '  +OK  '|");
    }

    #[test]
    fn a_deferred_aggregate_gets_its_header_at_its_end() {
        let nested = |r: &mut Reply<'_>| {
            let outer = r.begin_map();
            r.bulk(b"k");
            let inner = r.begin_array();
            for i in 0..11 {
                r.integer(i % 2);
            }
            r.end_array(inner, 11);
            r.end_map(outer, 1);
            let set = r.begin_set();
            r.end_set(set, 0);
        };
        let inside = "$1|k|*11|:0|:1|:0|:1|:0|:1|:0|:1|:0|:1|:0|";
        check(nested, &format!("*2|{inside}*0|"), &format!("%1|{inside}~0|"));
    }

    #[test]
    fn a_deferred_header_finds_its_place_before_a_shared_value() {
        let write = |r: &mut Reply<'_>| {
            r.ok();
            let begun = r.begin_array();
            r.bulk_shared(Arc::new(b"big".to_vec()));
            r.bulk(b"x");
            r.end_array(begun, 2);
        };
        check(write, "+OK|*2|$3|big|$1|x|", "+OK|*2|$3|big|$1|x|");
    }

    #[test]
    fn truncating_drops_what_was_written_since_the_mark() {
        let write = |r: &mut Reply<'_>| {
            r.ok();
            let mark = r.mark();
            r.array(2);
            r.bulk_shared(Arc::new(b"big".to_vec()));
            r.bulk(b"x");
            r.truncate(mark);
            r.error("ERR no");
        };
        check(write, "+OK|-ERR no|", "+OK|-ERR no|");
    }
}

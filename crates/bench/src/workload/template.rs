//! Requests as templates: text with placeholders that are filled for each request.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{key uniform N}`, `{key sequence N}` | `key_` and ten digits, below N |
//! | `{key zipfian N [S]}`, `{key gaussian N [MEDIAN DEVIATION]}` | the same |
//! | `{value SIZE}` | a value; SIZE is `64`, `10-100` or `32:50,64:50` (size:weight) |
//! | `{rand N}` | a number below N |
//! | `{range N W}` | two arguments: a number below N, and that number plus W, at most N - 1 |
//! | `{tag}` | the hash tag of a random slot of a cluster, such as `{06S}` (redis-benchmark's) |
//! | `{vector}` | the next row of the data set, if one is given; rows follow each other |
//! | `{element}` | the name of that row's element: its number, with eight digits |
//! | `{query}` | a random query of the data set |
//! | `__rand_int__` | twelve digits below the keyspace, if one is given (redis-benchmark's) |
//! | `__key__`, `__data__` | a key and a value of the run's settings (memtier's) |
//!
//! ```text
//!   SET {key uniform 100} {value 64}
//!   Bytes(*3 $3 SET $14 key_)  Digits(uniform, 10)  Bytes($64)  Value  Bytes(crlf)
//! ```
//! A template is encoded when it is parsed. All parts of fixed length, headers included, are bytes
//! ready to be sent. Rendering copies them and fills the gaps. Only an argument of variable length
//! (`{rand 1000}`, `{value 10-100}`) is built separately, to know its length.

use stdx::quoted::split_quoted;

use super::distribution::{KeyPattern, Keys, Zipf};
use super::draw::Draw;
use super::slot::{SLOTS, tag};
use super::value::{Content, Sizes, Values};
use super::vectors::{ELEMENT_DIGITS, Vectors};
use crate::BenchError;

/// The number of digits of `__rand_int__`.
const RAND_INT_DIGITS: usize = 12;
/// The placeholder of a hash tag. It has the same length as the hash tag with its braces.
const TAG: &[u8] = b"{tag}";
/// The number of digits of the number in a key of `{key …}`.
const KEY_DIGITS: usize = 10;
/// The default exponent of `{key zipfian N}`.
const ZIPF_EXPONENT: f64 = 1.03;
/// The byte that replaces a space within a placeholder while a line is split at spaces.
const HELD_BLANK: u8 = 0x01;

/// The commands that reply null for a missing value.
const READS: &[&str] = &[
    "GET",
    "HGET",
    "GETEX",
    "GETDEL",
    "LINDEX",
    "LPOP",
    "RPOP",
    "SPOP",
    "ZSCORE",
    "SRANDMEMBER",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "JSON.GET",
];

/// The values of the placeholders that have no parameters, and the content of values.
#[derive(Clone, Debug)]
pub struct TemplateOptions {
    /// The number of different values of `__rand_int__`; when absent, the text `__rand_int__` is
    /// sent unchanged.
    pub rand_int_count: Option<u64>,
    /// The key prefix and the key numbers of `__key__`; when absent, the text `__key__` is sent
    /// unchanged.
    pub keys: Option<(String, Keys)>,
    /// The values of `__data__`; when absent, the text `__data__` is sent unchanged.
    pub data: Option<Values>,
    /// The kind of content of the values of `{value …}`.
    pub content: Content,
    /// True if `{tag}` is replaced by a hash tag, as for a cluster; otherwise it is sent unchanged.
    pub tags: bool,
    /// The data set of `{vector}`, `{element}` and `{query}`; when absent, they are sent unchanged.
    pub vectors: Option<Vectors>,
}

impl Default for TemplateOptions {
    fn default() -> Self {
        Self {
            rand_int_count: None,
            keys: None,
            data: None,
            content: Content::Alphanumeric,
            tags: false,
            vectors: None,
        }
    }
}

/// A request with placeholders, encoded so that it can be rendered repeatedly.
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    pieces: Vec<Segment>,
    reads: bool,
    gets: bool,
    keyspace: u64,
    values: Option<Values>,
    has_tags: bool,
    searches: bool,
}

/// A segment of an encoded request template: fixed bytes, or a placeholder to fill. The segments
/// are in the order of the bytes.
#[derive(Clone, Debug)]
enum Segment {
    /// The segment consists of encoded bytes that are the same in each request.
    Bytes(Vec<u8>),
    /// A number that is chosen for each request and has a fixed number of digits.
    Digits { number: Number, digits: usize },
    /// A value that is chosen for each request and has a fixed length.
    Value(Values),
    /// The segment is a hash tag with its braces, chosen for each request.
    Tag,
    /// The segment is a complete argument of variable length, including its header.
    Argument(Vec<Part>),
}

/// A piece of an argument before it is encoded: bytes or a placeholder.
#[derive(Clone, Debug)]
enum Part {
    Bytes(Vec<u8>),
    Number {
        number: Number,
        digits: Option<usize>,
    },
    Value(Values),
    Tag,
    /// The next row of a data set. Holds the index of its counter in
    /// [`Sequences`](super::Sequences).
    Row(Vectors, usize),
    Query(Vectors),
}

/// A number in a request that is chosen for each request.
#[derive(Clone, Debug)]
enum Number {
    Key(Keys),
    Other(Keys),
    RangeEnd { max: u64, width: u64 },
    Row,
}

impl Number {
    #[inline]
    fn next(&self, draw: &mut Draw) -> u64 {
        match self {
            Number::Key(keys) => {
                draw.key = keys.next(draw);
                draw.key
            }
            Number::Other(keys) => {
                draw.range_start = keys.next(draw);
                draw.range_start
            }
            Number::Row => draw.row,
            Number::RangeEnd { max, width } => draw.range_start.saturating_add(*width).min(*max),
        }
    }
}

impl Template {
    /// Parses a command line: words with redis-cli's quoting and placeholders. Adds to `sequences`
    /// the number of counters that its sequential keys need.
    pub fn parse(line: &str, options: &TemplateOptions, sequences: &mut usize) -> Result<Self, BenchError> {
        let words = split_quoted(&hold_blanks(line.as_bytes()))
            .ok_or_else(|| BenchError::Usage(format!("unbalanced quotes in {line:?}")))?;
        Self::from_words(&words, line, options, sequences)
    }

    /// Parses arguments that are already split, as by a shell. Each may contain placeholders. Adds
    /// to `sequences` the number of counters that its sequential keys need.
    pub fn from_arguments(
        arguments: &[Vec<u8>],
        options: &TemplateOptions,
        sequences: &mut usize,
    ) -> Result<Self, BenchError> {
        let words: Vec<Vec<u8>> = arguments.iter().map(|word| hold_blanks(word)).collect();
        // The text appears in results, so it must be a single line.
        let text = String::from_utf8_lossy(&arguments.join(&b' ')).replace(char::is_control, " ");
        Self::from_words(&words, &text, options, sequences)
    }

    /// Creates a request of fixed bytes, which need not be RESP, such as redis-benchmark's inline
    /// PING. `text` is its form in results.
    pub fn raw(text: &str, bytes: &[u8]) -> Self {
        let pieces = vec![Segment::Bytes(bytes.to_vec())];
        let text = text.to_owned();
        let (keyspace, values) = (0, None);
        let (reads, gets, has_tags, searches) = Default::default();
        Self { text, pieces, reads, gets, keyspace, values, has_tags, searches }
    }

    fn from_words(
        words: &[Vec<u8>],
        text: &str,
        options: &TemplateOptions,
        sequences: &mut usize,
    ) -> Result<Self, BenchError> {
        let mut arguments = Vec::new();
        for word in words {
            Parser { options, sequences: &mut *sequences, text }.argument(word, &mut arguments)?;
        }
        let Some(command) = words.first().filter(|word| !word.is_empty()) else {
            return Err(BenchError::Usage("an empty command".to_owned()));
        };
        let command = String::from_utf8_lossy(command).to_ascii_uppercase();
        let parts = || arguments.iter().flatten();
        let keyspaces = parts().filter_map(|part| match part {
            Part::Number { number: Number::Key(keys), .. } => Some(keys.count()),
            _ => None,
        });
        let values =
            parts().find_map(|part| if let Part::Value(values) = part { Some(values.clone()) } else { None });
        Ok(Self {
            text: text.to_owned(),
            reads: READS.contains(&command.as_str()),
            gets: command == "GET",
            keyspace: keyspaces.max().unwrap_or(0),
            values,
            has_tags: parts().any(|part| matches!(part, Part::Tag)),
            searches: parts().any(|part| matches!(part, Part::Query(_))) && !has_more_than_names(words),
            pieces: encode(arguments),
        })
    }

    /// Returns the command line of the template, as results show it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the command is a read: a null reply means that the value is missing.
    pub fn reads(&self) -> bool {
        self.reads
    }

    /// Returns true for GET, whose reply can be compared with the value that was written.
    pub fn gets(&self) -> bool {
        self.gets
    }

    /// Returns true if the reply is the names of the elements that are nearest to a query, so that
    /// its recall can be computed.
    pub fn searches(&self) -> bool {
        self.searches
    }

    /// Returns the number of different keys that the template chooses from; 0 if its keys are
    /// fixed.
    pub fn keyspace(&self) -> u64 {
        self.keyspace
    }

    /// Returns the values of the template's first value placeholder; `None` if it has none.
    pub fn values(&self) -> Option<&Values> {
        self.values.as_ref()
    }

    /// Appends the next encoded request to `out`. O(length of the request).
    #[inline]
    pub fn render(&self, out: &mut Vec<u8>, draw: &mut Draw) {
        if self.has_tags {
            // One tag for all keys of a request, because they must be in one slot.
            draw.tag = tag(draw.rng.usize(..SLOTS));
        }
        for piece in &self.pieces {
            match piece {
                Segment::Bytes(bytes) => out.extend_from_slice(bytes),
                Segment::Digits { number, digits } => push_digits(number.next(draw), *digits, out),
                Segment::Value(values) => out.extend_from_slice(values.next(draw)),
                Segment::Tag => push_tag(out, draw),
                Segment::Argument(parts) => push_argument(parts, out, draw),
            }
        }
    }
}

/// Encodes the arguments of a request as segments. All parts of fixed content are encoded,
/// including the headers of arguments.
fn encode(arguments: Vec<Vec<Part>>) -> Vec<Segment> {
    let mut pieces = Vec::new();
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for parts in arguments {
        let Some(len) = parts.iter().map(fixed_len).sum::<Option<usize>>() else {
            pieces.push(Segment::Bytes(std::mem::take(&mut bytes)));
            pieces.push(Segment::Argument(parts));
            continue;
        };
        bytes.extend_from_slice(format!("${len}\r\n").as_bytes());
        for part in parts {
            let piece = match part {
                Part::Bytes(part) => {
                    bytes.extend_from_slice(&part);
                    continue;
                }
                Part::Number { number, digits } => Segment::Digits { number, digits: digits.unwrap_or(0) },
                Part::Value(values) => Segment::Value(values),
                Part::Tag => Segment::Tag,
                Part::Row(..) | Part::Query(_) => continue,
            };
            pieces.push(Segment::Bytes(std::mem::take(&mut bytes)));
            pieces.push(piece);
        }
        bytes.extend_from_slice(b"\r\n");
    }
    pieces.push(Segment::Bytes(bytes));
    pieces.retain(|piece| !matches!(piece, Segment::Bytes(bytes) if bytes.is_empty()));
    pieces
}

fn fixed_len(part: &Part) -> Option<usize> {
    match part {
        Part::Bytes(bytes) => Some(bytes.len()),
        Part::Number { digits, .. } => *digits,
        Part::Value(values) => values.fixed_len(),
        Part::Tag => Some(TAG.len()),
        // The number of dimensions is not known until the data set is loaded.
        Part::Row(..) | Part::Query(_) => None,
    }
}

/// Returns true if the reply to a search (VSIM) with these words has more than the names of
/// elements, such as scores.
fn has_more_than_names(words: &[Vec<u8>]) -> bool {
    let more = |word: &Vec<u8>| {
        [&b"WITHSCORES"[..], b"WITHATTRIBS"].iter().any(|option| word.eq_ignore_ascii_case(option))
    };
    words.iter().any(more)
}

fn push_argument(parts: &[Part], out: &mut Vec<u8>, draw: &mut Draw) {
    let mut scratch = std::mem::take(&mut draw.scratch);
    scratch.clear();
    for part in parts {
        match part {
            Part::Bytes(bytes) => scratch.extend_from_slice(bytes),
            Part::Number { number, digits: Some(digits) } => {
                push_digits(number.next(draw), *digits, &mut scratch);
            }
            Part::Number { number, digits: None } => {
                scratch.extend_from_slice(itoa::Buffer::new().format(number.next(draw)).as_bytes());
            }
            Part::Value(values) => scratch.extend_from_slice(values.next(draw)),
            Part::Tag => push_tag(&mut scratch, draw),
            Part::Row(vectors, counter) => {
                if let Some(data) = vectors.loaded() {
                    draw.row = draw.next_of(*counter) % data.rows() as u64;
                    scratch.extend_from_slice(data.row(draw.row));
                }
            }
            Part::Query(vectors) => {
                if let Some(data) = vectors.loaded() {
                    draw.key = draw.rng.u64(..data.queries() as u64);
                    scratch.extend_from_slice(data.query(draw.key));
                }
            }
        }
    }
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(scratch.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&scratch);
    out.extend_from_slice(b"\r\n");
    draw.scratch = scratch;
}

fn push_tag(out: &mut Vec<u8>, draw: &Draw) {
    out.push(b'{');
    out.extend_from_slice(&draw.tag);
    out.push(b'}');
}

/// Appends `number` with exactly `digits` digits. Of a longer number the highest digits are
/// dropped.
#[inline]
fn push_digits(mut number: u64, digits: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + digits, b'0');
    for digit in out[start..].iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Returns the content, without braces, of a `{key …}`, `{value …}`, `{rand …}` or `{range …}` at
/// the start of `text`.
fn placeholder(text: &[u8]) -> Option<&[u8]> {
    const NAMES: [&[u8]; 4] = [b"key", b"value", b"rand", b"range"];
    let inner = text.strip_prefix(b"{")?;
    let inner = &inner[..inner.iter().position(|&byte| byte == b'}')?];
    let name = inner.split(|&byte| byte == b' ' || byte == HELD_BLANK).next()?;
    (NAMES.contains(&name) && name.len() < inner.len()).then_some(inner)
}

/// Replaces the spaces within placeholders by [`HELD_BLANK`], so that each placeholder stays in one
/// word.
fn hold_blanks(line: &[u8]) -> Vec<u8> {
    let mut held = line.to_vec();
    for at in 0..held.len() {
        if let Some(len) = placeholder(&held[at..]).map(<[u8]>::len) {
            for byte in &mut held[at..at + len + 1] {
                if *byte == b' ' {
                    *byte = HELD_BLANK;
                }
            }
        }
    }
    held
}

/// A parser that splits words into arguments and placeholders.
struct Parser<'a> {
    options: &'a TemplateOptions,
    sequences: &'a mut usize,
    text: &'a str,
}

impl Parser<'_> {
    /// Appends the argument of `word` to `arguments`; a `{range}` is two arguments.
    fn argument(&mut self, word: &[u8], arguments: &mut Vec<Vec<Part>>) -> Result<(), BenchError> {
        let mut parts = Vec::new();
        let mut bytes = Vec::new();
        let mut rest = word;
        while let Some(&first) = rest.first() {
            if let Some((taken, found)) = self.part(rest)? {
                parts.push(Part::Bytes(std::mem::take(&mut bytes)));
                rest = &rest[taken..];
                let mut is_range = false;
                for part in found {
                    if matches!(part, Part::Number { number: Number::RangeEnd { .. }, .. }) {
                        is_range = true;
                        arguments.push(std::mem::take(&mut parts));
                    }
                    parts.push(part);
                }
                if is_range && !rest.is_empty() {
                    return Err(self.wrong("{range N W} makes two arguments and cannot be a part of another"));
                }
            } else {
                bytes.push(first);
                rest = &rest[1..];
            }
        }
        parts.push(Part::Bytes(bytes));
        parts.retain(|part| !matches!(part, Part::Bytes(bytes) if bytes.is_empty()));
        arguments.push(parts);
        Ok(())
    }

    /// Parses the placeholder at the start of `text`. Returns its length in bytes and its parts;
    /// `None` if `text` does not start with a placeholder.
    fn part(&mut self, text: &[u8]) -> Result<Option<(usize, Vec<Part>)>, BenchError> {
        if let Some(inner) = placeholder(text) {
            let inner_text = String::from_utf8_lossy(inner).replace(char::from(HELD_BLANK), " ");
            return Ok(Some((inner.len() + 2, self.braced(&inner_text)?)));
        }
        if text.starts_with(b"__rand_int__")
            && let Some(count) = self.options.rand_int_count
        {
            let number = Number::Key(up_to(count, KeyPattern::Uniform));
            return Ok(Some((12, vec![Part::Number { number, digits: Some(RAND_INT_DIGITS) }])));
        }
        if text.starts_with(TAG) && self.options.tags {
            return Ok(Some((TAG.len(), vec![Part::Tag])));
        }
        if let Some(vectors) = &self.options.vectors
            && let Some(found) = vector_part(text, vectors, self.sequences)
        {
            return Ok(Some(found));
        }
        if text.starts_with(b"__key__")
            && let Some((prefix, keys)) = &self.options.keys
        {
            let number = Number::Key(keys.clone());
            let prefix = Part::Bytes(prefix.clone().into_bytes());
            return Ok(Some((7, vec![prefix, Part::Number { number, digits: None }])));
        }
        if text.starts_with(b"__data__")
            && let Some(values) = &self.options.data
        {
            return Ok(Some((8, vec![Part::Value(values.clone())])));
        }
        Ok(None)
    }

    fn braced(&mut self, inner: &str) -> Result<Vec<Part>, BenchError> {
        let words: Vec<&str> = inner.split_whitespace().collect();
        match words[..] {
            ["key", kind, count, ref more @ ..] => {
                let count = self.count(count)?;
                let keys = up_to(count, self.pattern(kind, count, more)?);
                let digits = Some(KEY_DIGITS);
                Ok(vec![Part::Bytes(b"key_".to_vec()), Part::Number { number: Number::Key(keys), digits }])
            }
            ["value", size] => Ok(vec![Part::Value(Values::new(Sizes::parse(size)?, self.options.content))]),
            ["rand", count] => {
                let number = Number::Other(up_to(self.count(count)?, KeyPattern::Uniform));
                Ok(vec![Part::Number { number, digits: None }])
            }
            ["range", count, width] => {
                let count = self.count(count)?;
                let start = Number::Other(up_to(count, KeyPattern::Uniform));
                let width = width.parse().map_err(|_| self.wrong(&format!("{width:?} is not a width")))?;
                let end = Number::RangeEnd { max: count - 1, width };
                Ok([start, end].map(|number| Part::Number { number, digits: None }).into())
            }
            _ => Err(self.wrong(&format!("{{{inner}}} is not a placeholder"))),
        }
    }

    fn pattern(&mut self, kind: &str, count: u64, more: &[&str]) -> Result<KeyPattern, BenchError> {
        let float = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        match (kind, more) {
            ("uniform", []) => Ok(KeyPattern::Uniform),
            ("sequence", []) => {
                *self.sequences += 1;
                Ok(KeyPattern::Sequential(*self.sequences - 1))
            }
            ("zipfian", []) => Ok(KeyPattern::Zipf(Zipf::new(count, ZIPF_EXPONENT))),
            ("zipfian", [exponent]) => match float(exponent).filter(|&exponent| exponent > 0.0) {
                Some(exponent) => Ok(KeyPattern::Zipf(Zipf::new(count, exponent))),
                None => Err(self.wrong(&format!("{exponent:?} is not an exponent above 0"))),
            },
            ("gaussian", []) => Ok(KeyPattern::Gaussian {
                median: (count - 1) as f64 / 2.0,
                deviation: (count - 1) as f64 / 6.0,
            }),
            ("gaussian", [median, deviation]) => match (float(median), float(deviation)) {
                (Some(median), Some(deviation)) if deviation >= 0.0 => {
                    Ok(KeyPattern::Gaussian { median, deviation })
                }
                _ => Err(self.wrong("a Gaussian needs a median and a deviation")),
            },
            _ => Err(self.wrong(&format!(
                "{kind:?} is not a distribution: use uniform, sequence, zipfian or gaussian"
            ))),
        }
    }

    fn count(&self, text: &str) -> Result<u64, BenchError> {
        let count = text.parse().ok().filter(|&count| count > 0);
        count.ok_or_else(|| self.wrong(&format!("{text:?} is not a count above 0")))
    }

    fn wrong(&self, reason: &str) -> BenchError {
        BenchError::Usage(format!("{:?}: {reason}", self.text))
    }
}

/// Parses a placeholder of the data set `vectors` at the start of `text`. Returns its length in
/// bytes and its part; `None` if there is none. A row needs one more counter in `sequences`.
fn vector_part(text: &[u8], vectors: &Vectors, sequences: &mut usize) -> Option<(usize, Vec<Part>)> {
    let len = text.iter().position(|&byte| byte == b'}')? + 1;
    let part = match &text[..len] {
        b"{vector}" => {
            *sequences += 1;
            Part::Row(vectors.clone(), *sequences - 1)
        }
        b"{element}" => Part::Number { number: Number::Row, digits: Some(ELEMENT_DIGITS) },
        b"{query}" => Part::Query(vectors.clone()),
        _ => return None,
    };
    Some((len, vec![part]))
}

/// Returns the key numbers from 0 to `count - 1` with the pattern `pattern`. `count` must be above
/// 0.
pub(super) fn up_to(count: u64, pattern: KeyPattern) -> Keys {
    Keys { min: 0, max: count - 1, pattern }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Sequences;

    fn rendered(line: &str, options: &TemplateOptions, times: usize) -> Vec<String> {
        let mut sequences = 0;
        let template = Template::parse(line, options, &mut sequences).unwrap();
        let mut draw = Draw::new(1, Sequences::new(sequences));
        let render = |_| {
            let mut out = Vec::new();
            template.render(&mut out, &mut draw);
            decoded(&out)
        };
        (0..times).map(render).collect()
    }

    /// Decodes the request and joins its arguments with spaces. Panics if `request` is not exactly
    /// one request.
    fn decoded(request: &[u8]) -> String {
        let (value, len) = resp::decode(request).unwrap().unwrap();
        assert_eq!(len, request.len());
        let resp::Value::Array(arguments) = value else { panic!("{value}") };
        let text = |value: &resp::Value| String::from_utf8(value.as_bytes().unwrap().to_vec()).unwrap();
        arguments.iter().map(text).collect::<Vec<_>>().join(" ")
    }

    fn refused(line: &str) -> String {
        Template::parse(line, &TemplateOptions::default(), &mut 0).unwrap_err().to_string()
    }

    #[test]
    fn a_command_without_placeholders_is_sent_as_it_is() {
        let options = TemplateOptions::default();
        assert_eq!(
            rendered("EVAL 'return 1' 0 '{\"a\": 1}' {b}", &options, 1),
            ["EVAL return 1 0 {\"a\": 1} {b}"]
        );
        assert_eq!(rendered("SET k __rand_int__ __data__", &options, 1), ["SET k __rand_int__ __data__"]);
    }

    #[test]
    fn vectors_elements_and_queries_come_from_the_data_set() {
        use crate::workload::{Definition, Source};
        let vectors = Vectors::new(Definition {
            source: Source::Uniform,
            rows: 3,
            dimensions: Some(2),
            queries: 2,
            neighbours: 1,
            seed: 1,
        });
        let data = vectors.load().unwrap();
        let options = TemplateOptions { vectors: Some(vectors.clone()), ..TemplateOptions::default() };
        let mut sequences = 0;
        let add = Template::parse("VADD s FP32 {vector} {element} Q8", &options, &mut sequences).unwrap();
        let search = Template::parse("VSIM s FP32 {query} COUNT 1", &options, &mut sequences).unwrap();
        let scores = Template::parse("VSIM s FP32 {query} withscores", &options, &mut sequences).unwrap();
        assert_eq!((add.searches(), search.searches(), scores.searches()), (false, true, false));
        let mut draw = Draw::new(1, Sequences::new(sequences));
        let rendered = |template: &Template, draw: &mut Draw| {
            let mut out = Vec::new();
            template.render(&mut out, draw);
            out
        };
        let request = |row: u64| {
            let head = b"*6\r\n$4\r\nVADD\r\n$1\r\ns\r\n$4\r\nFP32\r\n$8\r\n";
            let name = format!("\r\n$8\r\n{row:08}\r\n$2\r\nQ8\r\n");
            [&head[..], data.row(row), name.as_bytes()].concat()
        };
        for row in [0, 1, 2, 0] {
            assert_eq!(rendered(&add, &mut draw), request(row));
        }
        let search = rendered(&search, &mut draw);
        assert!(search.windows(8).any(|bytes| bytes == data.query(draw.key())));
    }

    #[test]
    fn keys_and_values_have_the_form_of_resp_benchmark() {
        let options = TemplateOptions::default();
        let line = "SET {key sequence 3} {value 8}";
        for (index, request) in rendered(line, &options, 7).into_iter().enumerate() {
            let value = request.strip_prefix(&format!("SET key_{:010} ", index % 3)).unwrap();
            assert!(value.len() == 8 && value.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{value}");
        }
        assert!(rendered("GET a{key uniform 1}b", &options, 1)[0] == "GET akey_0000000000b");
    }

    #[test]
    fn commands_written_for_resp_benchmark_are_understood() {
        // Commands from the documentation of resp-benchmark, each with the form of its requests: k
        // is a key, v a value of 64 bytes, n a number.
        for (line, form) in [
            ("SET {key uniform 1000000} {value 64}", "SET k v"),
            ("GET {key zipfian 1000000}", "GET k"),
            ("INCR {key uniform 100000}", "INCR k"),
            ("LPUSH {key sequence 1000} {value 64}", "LPUSH k v"),
            ("LINDEX {key uniform 1000} {rand 1000}", "LINDEX k n"),
            ("LRANGE {key uniform 1000} {range 1000 10}", "LRANGE k n n"),
            ("SADD {key sequence 1000} {key sequence 1000}", "SADD k k"),
            ("SISMEMBER {key uniform 1000} {value 64}", "SISMEMBER k v"),
            ("ZADD {key uniform 1000} {rand 1000} {value 64}", "ZADD k n v"),
            ("ZRANGEBYSCORE {key uniform 1000} {range 10000 100}", "ZRANGEBYSCORE k n n"),
            ("HSET {key uniform 1000} {key uniform 100} {value 64}", "HSET k k v"),
            ("EVALSHA d8f2 1 {key uniform 100000} {value 64}", "EVALSHA d8f2 1 k v"),
        ] {
            for request in rendered(line, &TemplateOptions::default(), 20) {
                let words = request.split(' ').enumerate().map(|(at, word)| match word {
                    _ if word.len() == 14 && word.starts_with("key_") => "k",
                    _ if word.len() == 64 => "v",
                    _ if at > 1 && word != "1" && word.parse::<u64>().is_ok() => "n",
                    "1" if !line.contains(" 1 ") => "n",
                    _ => word,
                });
                assert_eq!(words.collect::<Vec<_>>().join(" "), form, "{line}");
            }
        }
    }

    #[test]
    fn numbers_and_ranges_stay_below_their_bounds() {
        for request in rendered("X {rand 12} {range 100 10}", &TemplateOptions::default(), 500) {
            let numbers: Vec<u64> = request[2..].split(' ').map(|number| number.parse().unwrap()).collect();
            assert!(numbers[0] < 12 && numbers[2] == (numbers[1] + 10).min(99), "{request}");
        }
    }

    #[test]
    fn values_of_varying_length_get_their_header() {
        for request in rendered("SET k x{value 0-30}", &TemplateOptions::default(), 200) {
            assert!((7..=37).contains(&request.len()), "{request}");
        }
    }

    #[test]
    fn placeholders_of_other_tools_take_the_settings() {
        let options = TemplateOptions {
            rand_int_count: Some(5),
            keys: Some(("memtier-".to_owned(), up_to(1, KeyPattern::Uniform))),
            data: Some(Values::new(Sizes::Fixed(3), Content::Constant)),
            ..TemplateOptions::default()
        };
        let request = rendered("SET __key__ __data__ r:__rand_int__", &options, 1).remove(0);
        assert!(request.starts_with("SET memtier-0 "), "{request}");
        let (_, number) = request.split_once("r:").unwrap();
        assert!(number.len() == 12 && number.parse::<u64>().unwrap() < 5, "{request}");
    }

    #[test]
    fn tags_of_a_cluster_are_one_for_all_keys_of_a_request_and_reach_all_slots() {
        let options = TemplateOptions { tags: true, ..TemplateOptions::default() };
        let mut slots = [false; SLOTS];
        for request in rendered("MSET a:{tag}:1 x b{tag} y{rand 9}{tag}", &options, 200_000) {
            let slot = |word: &str| usize::from(crate::workload::slot(word.as_bytes()));
            let words: Vec<&str> = request.split(' ').collect();
            assert_eq!((words[1].len(), slot(words[1]), slot(words[4])), (9, slot(words[3]), slot(words[1])));
            slots[slot(words[1])] = true;
        }
        assert!(slots.iter().filter(|&&reached| reached).count() > SLOTS * 999 / 1000);
        assert_eq!(rendered("GET {tag}", &TemplateOptions::default(), 1), ["GET {tag}"]);
    }

    #[test]
    fn what_is_no_template_is_told_in_one_line() {
        for (line, part) in [
            ("", "empty command"),
            ("SET 'k", "unbalanced quotes"),
            ("GET {key uniform 0}", "not a count above 0"),
            ("GET {key normal 5}", "not a distribution"),
            ("GET {key zipfian 5 -1}", "not an exponent"),
            ("SET k {value x}", "not a size"),
            ("GET {key uniform}", "not a placeholder"),
            ("X {range 5 1}x", "makes two arguments"),
        ] {
            let error = refused(line);
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_template_knows_its_keys_values_and_whether_it_reads() {
        let parse = |line| Template::parse(line, &TemplateOptions::default(), &mut 0).unwrap();
        let set = parse("SET {key uniform 77} {value 5}");
        assert!((set.keyspace(), set.reads(), set.values().is_some()) == (77, false, true));
        let get = parse("get {key uniform 7}");
        assert!(get.reads() && get.gets() && get.values().is_none());
    }
}

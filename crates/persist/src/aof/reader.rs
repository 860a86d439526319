//! Splits an append-only file into batches of complete requests, which any number of threads can
//! run.
//!
//! ```text
//!   #TS:1700000000\r\n                           annotation: later requests ran at or after it
//!   *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n    a request, a unit by itself
//!   *1\r\n$5\r\nMULTI\r\n … *1\r\n$4\r\nEXEC\r\n a unit, too
//!   #REPL:…\r\n                                  annotation: a StreamNote, which counts at the end
//! ```
//! A batch has the bytes of a part of the file and the positions of the requests and arguments in
//! it. Only the beginning of a unit that ends in the next batch is copied. A batch holds about 1
//! MiB of complete units; a bigger unit is a batch of its own.
//!
//! Memory: at most twice the bytes read of one unit, 8 bytes for each argument, and 24 for each
//! request. A length in the file allocates nothing until its bytes are read.
//!
//! A file that ends inside a unit was torn by a crash. [`End::TornTail`] has the length of its
//! complete part, to which Redis truncates it. Zeros from a position inside a unit to the end of
//! the file count as the same: the file system may have made the file longer before the power
//! failed, without writing its bytes. Other bytes that are not a request are an error. The lines of
//! requests must end with CR LF, as redis-check-aof requires; Redis itself checks few of them at
//! start. A damaged length that is too large looks like a torn tail; complete requests after it
//! make damage likely ([`TornTail::request_within`]).

use resp::{Limits, Parsed, Progress, Span, parse_request};
use stdx::number::parse_i64;

use super::batch::Place;
pub use super::batch::{Annotation, Batch, Cut, Request, RequestPosition};
pub use super::ends::{AofError, Broken, End, TornTail, What};
use super::stream_note::StreamNote;
use crate::load::ByteSource;

/// The length of a batch in bytes, if no unit (request or transaction) is longer.
pub const BATCH_LEN_BYTES: usize = 1 << 20;
/// The minimum length of a read from an append-only file, in bytes.
const READ_LEN_BYTES_MIN: usize = 64 * 1024;
/// The maximum number of batches whose memory is kept for reuse.
const SPARE_BATCHES_MAX: usize = 8;
/// The maximum length of a line that begins with `#`, in bytes, as in Redis.
const ANNOTATION_LEN_BYTES_MAX: usize = 1024;
/// The limits of a request in an append-only file. The width of spans rejects any argument that is
/// too large for a file.
const LIMITS: Limits = Limits {
    bulk_len_max: u32::MAX as u64,
    multibulk_len_max: i32::MAX as i64,
    inline_len_max: 64,
    unauthenticated: false,
};

/// Returns true if a file that begins with these bytes has an RDB part, which
/// [`Splitter`](crate::load::Splitter) reads. `bytes` must have at least eight bytes, or be the
/// whole file.
pub fn starts_with_rdb(bytes: &[u8]) -> bool {
    [&b"REDIS"[..], b"VALKEY", b"VCS"].iter().any(|magic| bytes.starts_with(magic))
}

/// The result of [`Reader::next_batch`]: a batch of requests, or the end of the file.
#[derive(Debug)]
pub enum Next {
    /// A batch of complete requests and transactions.
    Batch(Batch),
    /// The end of the append-only file.
    End(End),
}

/// The extent of the complete requests and transactions at the start of the batch being built: the
/// numbers of bytes, requests, spans and annotations.
#[derive(Clone, Copy, Default)]
struct Whole {
    len_bytes: usize,
    places: usize,
    spans: usize,
    annotations: usize,
}

/// The reason why a reader of an append-only file has stopped: the end of the file, or an error.
enum Stop {
    End(End),
    Error(AofError),
}

/// The kind of content that was parsed: a request or an annotation.
enum Found {
    Request,
    Annotation,
    /// An incomplete request or annotation, of which at least this number of bytes is missing.
    Short(usize),
}

/// A reader that splits an append-only file into batches of complete requests. See the module.
pub struct Reader<S> {
    source: S,
    /// The size of a batch in bytes, which differs from [`BATCH_LEN_BYTES`] in tests only.
    batch_len_bytes: usize,
    /// The batch of requests being built. Its `len_bytes` counts the parsed bytes; `bytes` has the
    /// length of its whole memory, including unused parts.
    batch: Batch,
    /// The number of bytes of the batch's memory that were read from the file.
    filled: usize,
    whole: Whole,
    /// The offset of the MULTI whose EXEC was not read yet; `None` outside a transaction.
    multi_offset: Option<u64>,
    /// The time of the last annotation, in Unix seconds; `None` before the first one.
    time_s: Option<i64>,
    /// The last note about the replication stream ([`StreamNote`]) in the file, and the offset of
    /// the note's end in the file; `None` before the first one.
    note: Option<(StreamNote, u64)>,
    progress: Progress,
    stop: Option<Stop>,
    spares: Vec<Batch>,
}

impl<S: ByteSource> Reader<S> {
    /// Creates a reader that starts at the beginning of an append-only file.
    pub fn new(source: S) -> Self {
        Self::behind(source, Vec::new(), 0)
    }

    /// Creates a reader of an append-only file that starts at `file_offset`. `ahead` holds bytes
    /// from that offset on that the caller has already read from the source.
    pub fn behind(source: S, ahead: Vec<u8>, file_offset: u64) -> Self {
        Self {
            source,
            batch_len_bytes: BATCH_LEN_BYTES,
            filled: ahead.len(),
            batch: Batch { bytes: ahead, file_offset, ..Batch::default() },
            whole: Whole::default(),
            multi_offset: None,
            time_s: None,
            note: None,
            progress: Progress::default(),
            stop: None,
            spares: Vec::new(),
        }
    }

    /// Sets another size of the batches, for tests: a short file is then split into several
    /// batches.
    pub(crate) fn with_batch_len_bytes(self, batch_len_bytes: usize) -> Self {
        Self { batch_len_bytes, ..self }
    }

    /// Keeps the memory of a processed `batch` and reuses it for a later batch.
    pub fn recycle(&mut self, batch: Batch) {
        if self.spares.len() < SPARE_BATCHES_MAX && batch.bytes.len() <= 2 * self.batch_len_bytes {
            self.spares.push(batch);
        }
    }

    /// Returns the next batch, or the end of the append-only file. After the end or an error, each
    /// call returns the same again.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read. All complete requests and transactions before the
    /// error were already returned.
    pub fn next_batch(&mut self) -> Result<Next, AofError> {
        while self.stop.is_none() {
            match self.parse() {
                Ok(Found::Request | Found::Annotation) => {}
                Ok(Found::Short(missing)) => {
                    if self.whole.len_bytes > 0 && self.filled >= self.batch_len_bytes {
                        return Ok(Next::Batch(self.take_batch()));
                    }
                    self.stop = self.read_more(missing);
                }
                Err(what) => {
                    self.stop = Some(self.stop_at(what));
                }
            }
        }
        if self.whole.len_bytes > 0 {
            return Ok(Next::Batch(self.take_batch()));
        }
        match &self.stop {
            Some(Stop::Error(error)) => Err(error.clone()),
            Some(Stop::End(end)) => Ok(Next::End(*end)),
            None => Ok(Next::End(End::Whole)),
        }
    }

    /// Returns the note about the replication stream that is the last line of the file. Returns
    /// `None` if the last line is something else, or if the end was not read yet.
    pub fn last_note(&self) -> Option<StreamNote> {
        let is_whole = matches!(self.stop, Some(Stop::End(End::Whole)));
        let file_len_bytes = self.batch.file_offset + self.filled as u64;
        self.note.filter(|&(_, end)| is_whole && end == file_len_bytes).map(|(note, _)| note)
    }

    fn good_len_bytes(&self) -> u64 {
        self.batch.file_offset + self.whole.len_bytes as u64
    }

    /// Parses the next request or annotation of the append-only file after those already in the
    /// batch.
    #[inline]
    fn parse(&mut self) -> Result<Found, What> {
        let Batch { bytes, len_bytes, file_offset, spans, places, .. } = &mut self.batch;
        let (start, spans_start) = (*len_bytes, spans.len());
        let input = &bytes[start..self.filled];
        match input.first() {
            Some(b'*') => {}
            Some(b'#') => return self.parse_annotation(),
            Some(&byte) => return Err(What::FirstByte(byte)),
            None => return Ok(Found::Short(1)),
        }
        let parsed = parse_request(input, *file_offset + start as u64, &LIMITS, &mut self.progress, spans);
        let parsed_len = match parsed {
            Ok(Parsed::Request { len_bytes }) => len_bytes,
            Ok(Parsed::Incomplete { missing_bytes }) => return Ok(Found::Short(missing_bytes)),
            Ok(Parsed::Empty { .. } | Parsed::Inline { .. }) => return Err(What::NoArguments),
            Err(error) => return Err(What::Protocol(error)),
        };
        let args = &spans[spans_start..];
        let standing = match lines_end(input, args).then(|| standing(input, args, self.multi_offset)) {
            Some(Ok(standing)) => standing,
            wrong => {
                spans.truncate(spans_start);
                return Err(wrong.and_then(Result::err).unwrap_or(What::LineEnd));
            }
        };
        places.push(Place { start, spans_start, standing });
        *len_bytes = start + parsed_len;
        match standing {
            RequestPosition::Alone => self.set_whole(),
            RequestPosition::Multi => self.multi_offset = Some(*file_offset + start as u64),
            RequestPosition::Queued => {}
            RequestPosition::Exec => {
                self.multi_offset = None;
                self.set_whole();
            }
        }
        Ok(Found::Request)
    }

    /// Records that everything parsed so far in the batch is complete requests and transactions.
    #[inline]
    fn set_whole(&mut self) {
        let Batch { len_bytes, places, spans, annotations, .. } = &self.batch;
        self.whole = Whole {
            len_bytes: *len_bytes,
            places: places.len(),
            spans: spans.len(),
            annotations: annotations.len(),
        };
    }

    #[cold]
    fn parse_annotation(&mut self) -> Result<Found, What> {
        let start = self.batch.len_bytes;
        let input = &self.batch.bytes[start..self.filled];
        let line = &input[..input.len().min(ANNOTATION_LEN_BYTES_MAX)];
        let Some(newline) = line.iter().position(|&byte| byte == b'\n') else {
            let is_long = line.len() == ANNOTATION_LEN_BYTES_MAX;
            return if is_long { Err(What::LongAnnotation) } else { Ok(Found::Short(1)) };
        };
        let line = &line[..newline];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(note) = StreamNote::parse(line) {
            self.note = Some((note, self.batch.file_offset + (start + newline + 1) as u64));
        }
        if let Some(time_s) = line.strip_prefix(b"#TS:").and_then(parse_i64) {
            let file_offset = self.batch.file_offset + start as u64;
            let requests_before = self.batch.places.len();
            self.batch.annotations.push(Annotation { time_s, file_offset, requests_before });
            self.time_s = Some(time_s);
        }
        self.batch.len_bytes = start + newline + 1;
        if self.multi_offset.is_none() {
            self.set_whole();
        }
        Ok(Found::Annotation)
    }

    /// Reads more bytes of the file into the batch's memory. `missing` is the least number of bytes
    /// that the incomplete request lacks. Returns the reason to stop if no bytes could be read.
    fn read_more(&mut self, missing: usize) -> Option<Stop> {
        let bytes = &mut self.batch.bytes;
        if self.filled == bytes.len() {
            // A length in the file may be wrong, so the buffer at most doubles.
            let least = READ_LEN_BYTES_MIN.min(self.batch_len_bytes);
            let more = missing.clamp(least, self.filled.max(least));
            bytes.resize((self.filled + more).max(self.batch_len_bytes), 0);
        }
        match self.source.read(&mut bytes[self.filled..]) {
            Ok(0) => Some(Stop::End(self.end())),
            Ok(len) => {
                self.filled += len;
                None
            }
            Err(trouble) => Some(Stop::Error(AofError::Reading(trouble))),
        }
    }

    /// Returns the reason to stop at a request that cannot be parsed: an error, or a torn tail if
    /// the rest of the file is zeros.
    #[cold]
    fn stop_at(&mut self, what: What) -> Stop {
        let offset = self.batch.file_offset + self.batch.len_bytes as u64;
        let good_len_bytes = self.good_len_bytes();
        let broken = Stop::Error(AofError::Broken(Broken { offset, good_len_bytes, what }));
        let found = &self.batch.bytes[self.batch.len_bytes..self.filled];
        let written_len = found.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        // The error is in the bytes before the zeros, or no zeros end the bytes read so far.
        if written_len == found.len() || !begins_request(&found[..written_len]) {
            return broken;
        }
        let mut rest = vec![0; READ_LEN_BYTES_MIN];
        let mut rest_len_bytes = 0;
        loop {
            match self.source.read(&mut rest) {
                Ok(0) => break,
                Ok(len) if rest[..len].iter().all(|&byte| byte == 0) => rest_len_bytes += len as u64,
                Ok(_) => return broken,
                Err(trouble) => return Stop::Error(AofError::Reading(trouble)),
            }
        }
        Stop::End(End::TornTail(TornTail {
            good_len_bytes,
            file_len_bytes: self.batch.file_offset + self.filled as u64 + rest_len_bytes,
            multi_offset: self.multi_offset,
            request_within: request_within(&found[..written_len]).map(|at| offset + at as u64),
            zeros_offset: Some(offset + written_len as u64),
        }))
    }

    /// Returns the way in which the append-only file ends, after all of it was read.
    fn end(&self) -> End {
        if self.batch.len_bytes == self.filled && self.multi_offset.is_none() {
            return End::Whole;
        }
        let torn = &self.batch.bytes[self.batch.len_bytes..self.filled];
        let torn_offset = self.batch.file_offset + self.batch.len_bytes as u64;
        End::TornTail(TornTail {
            good_len_bytes: self.good_len_bytes(),
            file_len_bytes: self.batch.file_offset + self.filled as u64,
            multi_offset: self.multi_offset,
            request_within: request_within(torn).map(|at| torn_offset + at as u64),
            zeros_offset: None,
        })
    }

    /// Returns the complete requests and transactions as a batch. The bytes after them begin the
    /// next batch.
    fn take_batch(&mut self) -> Batch {
        let Whole { len_bytes, places, spans, annotations } = std::mem::take(&mut self.whole);
        let mut next = self.spares.pop().unwrap_or_default();
        next.bytes.resize(next.bytes.len().max(self.batch_len_bytes).max(self.filled - len_bytes), 0);
        next.bytes[..self.filled - len_bytes].copy_from_slice(&self.batch.bytes[len_bytes..self.filled]);
        next.len_bytes = self.batch.len_bytes - len_bytes;
        next.file_offset = self.batch.file_offset + len_bytes as u64;
        next.places.clear();
        let moved = self.batch.places.drain(places..);
        next.places.extend(moved.map(|place| Place {
            start: place.start - len_bytes,
            spans_start: place.spans_start - spans,
            ..place
        }));
        next.spans.clear();
        next.spans.extend(self.batch.spans.drain(spans..));
        next.annotations.clear();
        let moved = self.batch.annotations.drain(annotations..);
        next.annotations.extend(moved.map(|annotation| Annotation {
            requests_before: annotation.requests_before - places,
            ..annotation
        }));
        let last = self.batch.annotations.last().map(|annotation| annotation.time_s);
        next.time_before_s = last.or(self.batch.time_before_s);
        self.filled -= len_bytes;
        let mut batch = std::mem::replace(&mut self.batch, next);
        batch.len_bytes = len_bytes;
        batch
    }
}

/// Returns true if each line and each argument of the first request in `input` ends with CR LF.
#[inline]
fn lines_end(input: &[u8], args: &[Span]) -> bool {
    let ends = |at: usize| input.get(at..at + 2) == Some(b"\r\n");
    let mut behind = 0;
    args.iter().enumerate().all(|(number, arg)| {
        // `$` and the length of the argument are before it, the count of arguments before that.
        let start = arg.start as usize;
        let count_ends = number > 0 || {
            let head = &input[..start - 2];
            let dollar = head.iter().rposition(|&byte| byte == b'$').unwrap_or(0);
            dollar >= 2 && ends(dollar - 2)
        };
        behind = start + arg.len as usize;
        count_ends && ends(start - 2) && ends(behind)
    })
}

/// Returns the position of a request with respect to transactions, from its name.
#[inline]
fn standing(input: &[u8], args: &[Span], multi_offset: Option<u64>) -> Result<RequestPosition, What> {
    let name = args.first().map_or(&b""[..], |name| name.of(input));
    let is_multi = name.len() == 5 && name.eq_ignore_ascii_case(b"multi");
    let is_exec = name.len() == 4 && name.eq_ignore_ascii_case(b"exec");
    match multi_offset {
        None if is_multi => Ok(RequestPosition::Multi),
        None if is_exec => Err(What::ExecWithoutMulti),
        None => Ok(RequestPosition::Alone),
        Some(_) if is_multi => Err(What::NestedMulti),
        Some(_) if is_exec => Ok(RequestPosition::Exec),
        Some(_) => Ok(RequestPosition::Queued),
    }
}

/// The maximum number of positions in an incomplete request at which a complete request is
/// searched.
const WITHIN_TRIES_MAX: usize = 1000;
/// The maximum length, in bytes, of a complete request that is found inside a torn request.
const WITHIN_LEN_BYTES_MAX: usize = 4096;

/// Searches damaged data for bytes after a line end that look like a complete request of up to 4
/// KiB. Returns the index of the first such byte. O(bytes); checks at most a thousand positions.
pub fn request_within(torn: &[u8]) -> Option<usize> {
    let is_start = |&at: &usize| torn[at..].starts_with(b"\r\n*");
    let starts = (0..torn.len()).filter(is_start).map(|at| at + 2).take(WITHIN_TRIES_MAX);
    starts.into_iter().find(|&at| {
        let input = &torn[at..torn.len().min(at + WITHIN_LEN_BYTES_MAX)];
        let mut spans = Vec::new();
        let parsed = parse_request(input, 0, &LIMITS, &mut Progress::default(), &mut spans);
        matches!(parsed, Ok(Parsed::Request { .. })) && lines_end(input, &spans)
    })
}

/// Returns true if `input` may be the beginning of a request or annotation whose rest is missing.
fn begins_request(input: &[u8]) -> bool {
    match input.first() {
        None => true,
        Some(b'#') => !input.contains(&b'\n') && input.len() < ANNOTATION_LEN_BYTES_MAX,
        Some(b'*') => {
            let parsed = parse_request(input, 0, &LIMITS, &mut Progress::default(), &mut Vec::new());
            matches!(parsed, Ok(Parsed::Incomplete { .. }))
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::FileError;
    use proptest::prelude::*;
    use resp::ProtocolError;

    /// The parsed content of an append-only file, for the tests: (offset, position, arguments) of
    /// each request, (time, offset, requests before) of each annotation, and the end of the file.
    type Meaning = (Vec<(u64, RequestPosition, Vec<Vec<u8>>)>, Vec<(i64, u64, usize)>, Result<End, AofError>);

    /// A source of a file's bytes for tests that returns at most this number of bytes per read.
    struct Pieces<'b>(&'b [u8], usize);

    impl ByteSource for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
            let len = buffer.len().min(self.1);
            self.0.read(&mut buffer[..len])
        }
    }

    /// Returns the stream note at the end of `file`, read in batches of `batch_len_bytes` bytes.
    fn last_note(file: &[u8], batch_len_bytes: usize) -> Option<StreamNote> {
        let mut reader = Reader::new(Pieces(file, 7)).with_batch_len_bytes(batch_len_bytes);
        while let Ok(Next::Batch(batch)) = reader.next_batch() {
            reader.recycle(batch);
        }
        reader.last_note()
    }

    #[test]
    fn a_note_counts_only_at_the_end_of_the_file() {
        let notes = [7, 8].map(|offset_bytes| StreamNote { id: [b'a'; 40], offset_bytes, stream_db: 3 });
        let [first, second] = notes.map(|note| note.line());
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        // A value may look like a note.
        let value = [&b"\n"[..], first.strip_suffix(b"\r\n").expect("a line end")].concat();
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len());
        let like_a_note = [head.as_bytes(), &value, b"\r\n"].concat();
        for batch_len_bytes in [1, 40, BATCH_LEN_BYTES] {
            let check = |parts: &[&[u8]]| last_note(&parts.concat(), batch_len_bytes);
            assert_eq!(check(&[set, &first]), Some(notes[0]));
            assert_eq!(check(&[&first]), Some(notes[0]));
            assert_eq!(check(&[set, &first, set, &second]), Some(notes[1]));
            assert_eq!(check(&[set, &first, set]), None);
            assert_eq!(check(&[set, &first, b"#TS:5\r\n"]), None);
            assert_eq!(check(&[set, &first, &set[..9]]), None);
            assert_eq!(check(&[set, &first, b"\0\0"]), None);
            assert_eq!(check(&[set, &first[..first.len() - 1]]), None);
            assert_eq!(check(&[&like_a_note]), None);
            assert_eq!(check(&[b"*1\r\n$5\r\nMULTI\r\n", &first]), None);
        }
    }

    fn read(mut reader: Reader<impl ByteSource>) -> Meaning {
        let (mut requests, mut annotations, mut time_s) = (Vec::new(), Vec::new(), None);
        let mut offset = reader.batch.file_offset;
        let end = loop {
            let batch = match reader.next_batch() {
                Ok(Next::Batch(batch)) => batch,
                Ok(Next::End(end)) => break Ok(end),
                Err(error) => break Err(error),
            };
            assert_eq!(batch.file_offset(), offset, "batches follow each other");
            assert_eq!(batch.time_before_s(), time_s);
            assert_eq!(batch.units().flatten().collect::<Vec<_>>(), (0..batch.len()).collect::<Vec<_>>());
            assert_eq!(batch.is_empty(), batch.requests().next().is_none());
            offset += batch.len_bytes() as u64;
            for annotation in batch.annotations() {
                let before = requests.len() + annotation.requests_before;
                annotations.push((annotation.time_s, annotation.file_offset, before));
                time_s = Some(annotation.time_s);
            }
            for request in batch.requests() {
                let args = (0..request.args.len()).filter_map(|at| request.arg(at)).map(<[u8]>::to_vec);
                requests.push((request.file_offset, request.standing, args.collect()));
                assert!(request.file_offset + request.len_bytes() as u64 <= offset);
            }
            reader.recycle(batch);
        };
        let again = match reader.next_batch() {
            Ok(Next::Batch(_)) => panic!("a batch behind the end"),
            Ok(Next::End(end)) => Ok(end),
            Err(error) => Err(error),
        };
        assert_eq!(again, end);
        let good = match &end {
            Ok(End::Whole) => offset,
            Ok(End::TornTail(torn)) => torn.good_len_bytes,
            Err(AofError::Broken(broken)) => broken.good_len_bytes,
            Err(AofError::Reading(_)) => offset,
        };
        assert_eq!(good, offset, "what is whole was given out");
        (requests, annotations, end)
    }

    /// Parses an append-only file by the simplest possible code, as a reference for the reader:
    /// (requests, annotations, end).
    fn twin(file: &[u8]) -> Meaning {
        let (mut requests, mut annotations) = (Vec::new(), Vec::new());
        let (mut at, mut good, mut multi) = (0, (0, 0, 0), None);
        let end = loop {
            if multi.is_none() {
                good = (at, requests.len(), annotations.len());
            }
            let broken = |what| {
                let (offset, good_len_bytes) = (at as u64, good.0 as u64);
                let zeros = file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1).max(at);
                let written = &file[at..zeros];
                let is_begun = match written.first() {
                    None => true,
                    Some(b'#') => !written.contains(&b'\n') && written.len() < 1024,
                    Some(b'*') => twin_request(written) == Ok(None),
                    Some(_) => false,
                };
                if zeros < file.len() && is_begun {
                    return Ok(End::TornTail(TornTail {
                        good_len_bytes,
                        file_len_bytes: file.len() as u64,
                        multi_offset: multi,
                        request_within: request_within(written).map(|within| (at + within) as u64),
                        zeros_offset: Some(zeros as u64),
                    }));
                }
                Err(AofError::Broken(Broken { offset, good_len_bytes, what }))
            };
            let torn = || {
                Ok(End::TornTail(TornTail {
                    good_len_bytes: good.0 as u64,
                    file_len_bytes: file.len() as u64,
                    multi_offset: multi,
                    request_within: request_within(&file[at..]).map(|within| (at + within) as u64),
                    zeros_offset: None,
                }))
            };
            let rest = &file[at..];
            match rest.first() {
                None if multi.is_none() => break Ok(End::Whole),
                None => break torn(),
                Some(b'#') => {
                    let Some(newline) = rest.iter().take(1024).position(|&byte| byte == b'\n') else {
                        break if rest.len() >= 1024 { broken(What::LongAnnotation) } else { torn() };
                    };
                    let line = &rest[..newline];
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    if let Some(time) = line.strip_prefix(b"#TS:").and_then(parse_i64) {
                        annotations.push((time, at as u64, requests.len()));
                    }
                    at += newline + 1;
                }
                Some(b'*') => match twin_request(rest) {
                    Err(what) => break broken(what),
                    Ok(None) => break torn(),
                    Ok(Some((args, len))) => {
                        let name = args[0].to_ascii_lowercase();
                        let standing = match (&name[..], multi) {
                            (b"multi", Some(_)) => break broken(What::NestedMulti),
                            (b"exec", None) => break broken(What::ExecWithoutMulti),
                            (b"multi", None) => RequestPosition::Multi,
                            (b"exec", Some(_)) => RequestPosition::Exec,
                            (_, Some(_)) => RequestPosition::Queued,
                            (_, None) => RequestPosition::Alone,
                        };
                        match standing {
                            RequestPosition::Multi => multi = Some(at as u64),
                            RequestPosition::Exec => multi = None,
                            _ => {}
                        }
                        requests.push((at as u64, standing, args));
                        at += len;
                    }
                },
                Some(&byte) => break broken(What::FirstByte(byte)),
            }
        };
        requests.truncate(good.1);
        annotations.truncate(good.2);
        (requests, annotations, end)
    }

    type Args = Vec<Vec<u8>>;

    fn twin_request(file: &[u8]) -> Result<Option<(Args, usize)>, What> {
        let mut at = 0;
        let mut broken_line = false;
        let mut number = |at: &mut usize| -> Result<Option<i64>, ()> {
            let rest = &file[*at..];
            let Some(cr) = rest.iter().position(|&byte| byte == b'\r') else {
                return if rest.len() > 64 { Err(()) } else { Ok(None) };
            };
            if cr > 64 {
                return Err(());
            }
            if cr + 2 > rest.len() {
                return Ok(None);
            }
            broken_line |= rest[cr + 1] != b'\n';
            let value = rest.get(1..cr).and_then(parse_i64).ok_or(());
            *at += cr + 2;
            value.map(Some)
        };
        let invalid = What::Protocol(ProtocolError::InvalidMultibulkLength);
        let count = match number(&mut at) {
            Ok(Some(count)) if count > i64::from(i32::MAX) => return Err(invalid),
            Ok(Some(count)) if count <= 0 => return Err(What::NoArguments),
            Ok(Some(count)) => count,
            Ok(None) => return Ok(None),
            Err(()) if file.iter().take(65).all(|&byte| byte != b'\r') => {
                return Err(What::Protocol(ProtocolError::TooBigMultibulkCount));
            }
            Err(()) => return Err(invalid),
        };
        let mut args = Vec::new();
        let mut broken_end = false;
        for _ in 0..count {
            let begin = at;
            let len = number(&mut at);
            let is_long = file[begin..].iter().take(65).filter(|&&byte| byte != b'\r').count() == 65;
            let is_dollar = file.get(begin) == Some(&b'$');
            let len = match len {
                Ok(None) => return Ok(None),
                _ if is_long => return Err(What::Protocol(ProtocolError::TooBigBulkCount)),
                _ if !is_dollar => return Err(What::Protocol(ProtocolError::ExpectedDollar(file[begin]))),
                Ok(Some(len)) if len >= 0 && at as u64 + len as u64 + 2 <= u64::from(u32::MAX) => {
                    len as usize
                }
                _ => return Err(What::Protocol(ProtocolError::InvalidBulkLength)),
            };
            let Some(bytes) = file.get(at..at + len + 2) else { return Ok(None) };
            args.push(bytes[..len].to_vec());
            broken_end |= &bytes[len..] != b"\r\n";
            at += len + 2;
        }
        if broken_line || broken_end { Err(What::LineEnd) } else { Ok(Some((args, at))) }
    }

    fn encode(requests: &[&[&str]]) -> Vec<u8> {
        let mut file = Vec::new();
        requests.iter().for_each(|args| resp::encode_request(args, &mut file));
        file
    }

    fn check(file: &[u8]) -> Meaning {
        let meaning = twin(file);
        assert_eq!(read(Reader::new(file)), meaning, "{}", file.escape_ascii());
        for len in [1, 2, 7] {
            assert_eq!(read(Reader::new(Pieces(file, len))), meaning, "{}", file.escape_ascii());
        }
        meaning
    }

    fn what(file: &[u8]) -> (u64, u64, What) {
        match check(file).2 {
            Err(AofError::Broken(Broken { offset, good_len_bytes, what })) => (offset, good_len_bytes, what),
            other => panic!("{other:?}"),
        }
    }

    fn torn(file: &[u8]) -> TornTail {
        match check(file).2 {
            Ok(End::TornTail(torn)) => torn,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_is_its_requests_with_their_places() {
        let file = encode(&[&["SELECT", "0"], &["SET", "k", ""], &["multi"], &["DEL", "k"], &["eXec"]]);
        let (requests, annotations, end) = check(&file);
        assert_eq!(end, Ok(End::Whole));
        assert!(annotations.is_empty());
        let standings: Vec<_> = requests.iter().map(|(_, standing, _)| *standing).collect();
        use RequestPosition::*;
        assert_eq!(standings, [Alone, Alone, Multi, Queued, Exec]);
        assert_eq!(requests[1].0, 23);
        assert_eq!(requests[1].2, [&b"SET"[..], b"k", b""]);
        assert_eq!(check(b"").2, Ok(End::Whole));
    }

    #[test]
    fn annotations_give_the_time_of_what_follows() {
        let set = encode(&[&["SET", "k", "v"]]);
        let file = [b"#TS:17\r\n", &set[..], b"# other\r\n#TS:x\r\n#TS:18\r\n", &set, b"#TS:19\n"].concat();
        let (requests, annotations, end) = check(&file);
        assert_eq!((requests.len(), end), (2, Ok(End::Whole)));
        assert_eq!(annotations, [(17, 0, 0), (18, 51, 1), (19, 86, 2)]);
    }

    #[test]
    fn a_batch_is_cut_between_units() {
        let set = encode(&[&["SET", "k", "v"]]);
        let (multi, exec) = (encode(&[&["MULTI"]]), encode(&[&["EXEC"]]));
        let file = [&set[..], b"#TS:17\r\n", &set, &multi, &set, b"#TS:18\r\n", &set, &exec, &set].concat();
        let Ok(Next::Batch(batch)) = Reader::new(&file[..]).next_batch() else { panic!("there is one") };
        assert_eq!(batch.bytes(), file);
        let by_time: Vec<_> = [16, 17, 18].map(|time_s| batch.cut_behind_time(time_s)).into();
        let cut = |len_bytes, requests| Cut { len_bytes, requests };
        assert_eq!(by_time, [Some(cut(27, 1)), Some(cut(62, 2)), None]);
        for (offset, expected) in [(0, (0, 0)), (26, (0, 0)), (27, (27, 1)), (61, (27, 1)), (62, (62, 2))]
            .into_iter()
            .chain([(152, (62, 2)), (153, (153, 6)), (180, (180, 7)), (1000, (180, 7))])
        {
            assert_eq!(batch.cut_at_offset(offset), cut(expected.0, expected.1), "{offset}");
        }
    }

    #[test]
    fn a_torn_tail_ends_behind_the_last_whole_unit() {
        let first = encode(&[&["SELECT", "0"]]);
        let file = encode(&[&["SELECT", "0"], &["MULTI"], &["SET", "k", "v"], &["EXEC"], &["DEL", "k"]]);
        let behind_exec = file.len() - encode(&[&["DEL", "k"]]).len();
        for len in 0..file.len() {
            if [0, first.len(), behind_exec].contains(&len) {
                assert_eq!(check(&file[..len]).2, Ok(End::Whole));
                continue;
            }
            let torn = torn(&file[..len]);
            let good = [0, first.len(), behind_exec].into_iter().rfind(|&good| good <= len);
            assert_eq!(torn.good_len_bytes, good.unwrap() as u64, "{len}");
            assert_eq!(torn.file_len_bytes, len as u64);
            let in_multi = (first.len() + 15..behind_exec).contains(&len);
            assert_eq!(torn.multi_offset, in_multi.then_some(first.len() as u64), "{len}");
            assert_eq!(torn.request_within, None);
        }
        assert_eq!(torn(b"#TS:1").good_len_bytes, 0);
        assert_eq!(torn(&[&first[..], b"#TS:1\r"].concat()).good_len_bytes, first.len() as u64);
    }

    #[test]
    fn zeros_up_to_the_end_are_a_torn_tail() {
        let good = encode(&[&["SET", "k", "v"]]);
        let begun = encode(&[&["MULTI"], &["SET", "k", &"v".repeat(300)]]);
        for (len, zeros) in (0..begun.len()).flat_map(|len| [1, 2, 70, 2000].map(|zeros| (len, zeros))) {
            let file = [&good[..], &begun[..len], &vec![0; zeros]].concat();
            let torn = torn(&file);
            assert_eq!(torn.good_len_bytes, good.len() as u64, "{len} {zeros}");
            assert_eq!(torn.file_len_bytes, file.len() as u64);
            let zeros_offset = (good.len() + len) as u64;
            assert!(torn.zeros_offset.is_none_or(|offset| offset == zeros_offset), "{torn:?}");
            assert!(torn.zeros_offset.is_some() || zeros < 2000, "{torn:?}");
        }
        let torn = torn(&[&good[..], &[0; 100_000]].concat());
        assert_eq!(
            torn.to_string(),
            "the last 100000 bytes, from byte 27 on, are zeros, as usual after a power failure"
        );
        for behind in ["#TS:1", "*", "*3\r", "*3\r\n$3\r\nSE"] {
            let file = [&good[..], behind.as_bytes(), &[0; 3000]].concat();
            assert_eq!(self::torn(&file).zeros_offset, Some((good.len() + behind.len()) as u64), "{behind}");
        }
        for behind in ["*3\r\n:1\r\n", "x", "*x\r\n"] {
            what(&[&good[..], behind.as_bytes(), &[0; 3000]].concat());
        }
    }

    #[test]
    fn a_damaged_length_looks_torn_but_for_the_requests_behind_it() {
        let mut file = encode(&[&["SET", "k", "v"], &["SET", "k", "v"], &["SET", "k", "w"]]);
        let second = file.len() / 3;
        file[second + 21] = b'8';
        assert_eq!(&file[second + 20..second + 24], b"$8\r\n", "the length of v");
        assert_eq!(what(&file).0, second as u64, "8 bytes are there");
        file.splice(second + 21..second + 22, *b"98");
        let torn = torn(&file);
        assert_eq!(torn.good_len_bytes, second as u64);
        assert_eq!(torn.request_within, Some(second as u64 * 2 + 1));
    }

    #[test]
    fn bytes_that_are_no_request_are_an_error_with_its_place() {
        let good = encode(&[&["SET", "k", "v"]]);
        let len = good.len() as u64;
        let behind = |bytes: &[u8]| what(&[&good, bytes].concat());
        assert_eq!(behind(b"PING\r\n"), (len, len, What::FirstByte(b'P')));
        assert_eq!(behind(&[&[0; 4096][..], b"*"].concat()), (len, len, What::FirstByte(0)));
        assert_eq!(behind(b"*0\r\n"), (len, len, What::NoArguments));
        assert_eq!(behind(b"*-1\r\n"), (len, len, What::NoArguments));
        let protocol = |error| (len, len, What::Protocol(error));
        assert_eq!(behind(b"*x\r\n"), protocol(ProtocolError::InvalidMultibulkLength));
        assert_eq!(behind(b"*1\r\n$x\r\n"), protocol(ProtocolError::InvalidBulkLength));
        assert_eq!(behind(b"*1\r\n$4294967295\r\n"), protocol(ProtocolError::InvalidBulkLength));
        assert_eq!(behind(b"*1\r\n:1\r\n"), protocol(ProtocolError::ExpectedDollar(b':')));
        assert_eq!(behind(b"*2\r\n$3\r\nDEL\n\r$1\r\nx\r\n"), (len, len, What::LineEnd));
        assert_eq!(behind(b"*2\r\n$3\r\nDEL\r\n$1\rzx\r\n"), (len, len, What::LineEnd));
        assert_eq!(behind(b"*1\r\r$3\r\nDEL\r\n"), (len, len, What::LineEnd));
        assert_eq!(behind(b"*1\r\n$3\r\nDELxx"), (len, len, What::LineEnd));
        assert_eq!(behind(&[b'#'; 1024]), (len, len, What::LongAnnotation));
        assert_eq!(behind(&encode(&[&["EXEC"]])), (len, len, What::ExecWithoutMulti));
        assert_eq!(behind(&encode(&[&["MULTI"], &["MULTI"]])), (len + 15, len, What::NestedMulti));
        assert_eq!(
            behind(&[&encode(&[&["MULTI"]])[..], b"\0", &good].concat()),
            (len + 15, len, What::FirstByte(0))
        );
    }

    #[test]
    fn batches_hold_whole_units_of_about_their_size() {
        let mut file = Vec::new();
        for number in 0..60_000 {
            let number = number.to_string();
            let set = ["SET", "key", &number];
            match number.len() {
                4 => file.extend(encode(&[&["MULTI"], &set, &["EXEC"]])),
                _ => file.extend(encode(&[&set])),
            }
            if number.ends_with("999") {
                file.extend_from_slice(format!("#TS:{number}\r\n").as_bytes());
            }
        }
        let value = "x".repeat(5 << 20);
        file.extend(encode(&[&["SET", "big", &value], &["DEL", "big"]]));
        assert_eq!(read(Reader::new(&file[..])), twin(&file));
        assert_eq!(read(Reader::new(Pieces(&file, 100_000))), twin(&file));
        let mut reader = Reader::new(&file[..]);
        let mut sizes = Vec::new();
        while let Ok(Next::Batch(batch)) = reader.next_batch() {
            sizes.push(batch.len_bytes());
            assert!(batch.bytes.len() <= 2 * batch.len_bytes().max(BATCH_LEN_BYTES));
        }
        assert!(sizes.len() >= 4 && sizes[0] > BATCH_LEN_BYTES - 100, "{sizes:?}");
    }

    #[test]
    fn reading_goes_on_behind_the_rdb_part_of_a_file() {
        let rdb = [&b"REDIS0012\xff"[..], &[0; 8]].concat();
        let set = encode(&[&["SET", "k", "v"]]);
        let file = [&rdb[..], &set].concat();
        assert!(starts_with_rdb(&file) && !starts_with_rdb(&set) && !starts_with_rdb(b""));
        for len in [1, 5, 100] {
            use crate::load::{LoadOptions, Part, Splitter, Unsupported};
            use crate::rdb::VersionCheck;
            let options = LoadOptions {
                versions: VersionCheck::Strict,
                checksum: true,
                unsupported: Unsupported::Refused,
            };
            let mut splitter = Splitter::open(Pieces(&file, len), options, 16).unwrap();
            assert!(matches!(splitter.next_part(), Ok(Part::End)));
            let behind = splitter.into_behind().unwrap();
            assert_eq!(behind.file_offset, rdb.len() as u64);
            let (requests, _, end) = read(Reader::behind(behind.source, behind.ahead, behind.file_offset));
            assert_eq!((requests.len(), requests[0].0, end), (1, rdb.len() as u64, Ok(End::Whole)));
        }
    }

    #[test]
    fn what_a_length_claims_is_not_allocated() {
        for claim in ["*1\r\n$4000000000\r\n", "*2147483647\r\n"] {
            let mut reader = Reader::new(claim.as_bytes());
            assert!(matches!(reader.next_batch(), Ok(Next::End(End::TornTail(_)))));
            assert!(reader.batch.bytes.len() <= BATCH_LEN_BYTES);
            assert!(reader.batch.spans.capacity() == 0);
        }
    }

    #[test]
    fn a_source_that_fails_is_an_error_behind_what_was_read() {
        struct Failing<'b>(&'b [u8]);
        impl ByteSource for Failing<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
                match self.0.read(buffer)? {
                    0 => Err(FileError("EIO".to_owned())),
                    len => Ok(len),
                }
            }
        }
        let file = encode(&[&["SET", "k", "v"]]);
        let (requests, _, end) = read(Reader::new(Failing(&file)));
        assert_eq!((requests.len(), end), (1, Err(AofError::Reading(FileError("EIO".to_owned())))));
    }

    /// Generates append-only files that are mostly valid requests, some of them damaged.
    fn files() -> impl Strategy<Value = Vec<u8>> {
        let arg = proptest::collection::vec(any::<u8>(), 0..12);
        let request = proptest::collection::vec(arg, 1..40).prop_map(|args| {
            let mut out = Vec::new();
            resp::encode_request(&args, &mut out);
            out
        });
        let odd = proptest::string::bytes_regex("[*$#TS:0-9a \r\n-]{0,12}(\r\n)?").expect("a valid regex");
        let piece = prop_oneof![
            6 => request,
            2 => Just(encode(&[&["MULTI"], &["SET", "a", "b"], &["EXEC"]])),
            1 => Just(encode(&[&["MULTI"]])),
            1 => Just(encode(&[&["EXEC"]])),
            2 => (0..100_i64).prop_map(|time| format!("#TS:{time}\r\n").into_bytes()),
            1 => odd,
        ];
        let zeros = prop_oneof![3 => Just(0), 1 => 1..100_usize, 1 => Just(1500)];
        let damage = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
        let cut = any::<prop::sample::Index>();
        (proptest::collection::vec(piece, 0..8), damage, cut, zeros).prop_map(
            |(pieces, damage, cut, zeros)| {
                let mut file = pieces.concat();
                for (index, byte) in damage {
                    if !file.is_empty() {
                        let at = index.index(file.len());
                        file[at] = byte;
                    }
                }
                file.truncate(file.len() - cut.index(file.len() + 1) / 2);
                file.resize(file.len() + zeros, 0);
                file
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn a_file_means_the_same_however_it_is_read(file in files(), len in 1..50_usize) {
            let expected = twin(&file);
            prop_assert_eq!(read(Reader::new(&file[..])), expected.clone());
            prop_assert_eq!(read(Reader::new(Pieces(&file, len))), expected.clone());
            let of_small_batches = Reader::new(Pieces(&file, 1000)).with_batch_len_bytes(len);
            prop_assert_eq!(read(of_small_batches), expected);
        }
    }
}

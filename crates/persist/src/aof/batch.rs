//! The batches of complete units (requests and transactions) of an append-only file;
//! [`reader`](super::reader) creates them.

use std::ops::Range;

use resp::Span;

/// The position of a request with respect to transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPosition {
    /// The request of the append-only file is outside a transaction.
    Alone,
    /// The request is the MULTI that begins a transaction.
    Multi,
    /// The request is inside a transaction.
    Queued,
    /// The request is the EXEC that ends a transaction.
    Exec,
}

/// A time annotation of an append-only file: the requests after it ran at this time or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The Unix time that the annotation states, in seconds.
    pub time_s: i64,
    /// The start of the annotation in the file, in bytes.
    pub file_offset: u64,
    /// The number of requests of the batch before the annotation.
    pub requests_before: usize,
}

/// The location of a request in a batch of an append-only file: its bytes, its arguments and its
/// offset in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) spans_start: usize,
    pub(super) standing: RequestPosition,
}

/// A batch of complete units of an append-only file, in the order of the file.
#[derive(Debug, Default)]
pub struct Batch {
    /// The memory of the batch, with bytes of the append-only file; only its first `len_bytes`
    /// bytes are used.
    pub(super) bytes: Vec<u8>,
    pub(super) len_bytes: usize,
    pub(super) file_offset: u64,
    pub(super) places: Vec<Place>,
    pub(super) spans: Vec<Span>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) time_before_s: Option<i64>,
}

/// A request of an append-only file, in a batch that was read from it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'b> {
    /// Bytes of the batch that begin with the request. The spans of `args` are relative to the
    /// start of these bytes.
    pub bytes: &'b [u8],
    /// The name of the request's command and its arguments, one or more strings.
    pub args: &'b [Span],
    /// The start of the request in the file, in bytes.
    pub file_offset: u64,
    /// The position of the request with respect to transactions.
    pub standing: RequestPosition,
}

impl<'b> Request<'b> {
    /// Returns the argument with index `at`. The argument 0, the command's name, always exists.
    pub fn arg(&self, at: usize) -> Option<&'b [u8]> {
        Some(self.args.get(at)?.of(self.bytes))
    }

    /// Returns the length of this request in the append-only file, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.args.last().map_or(0, |last| end_of(*last))
    }
}

impl Batch {
    /// Returns the length of the batch in the append-only file, in bytes, including its time
    /// annotations.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the start of the batch in the append-only file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// Returns the number of requests in the batch of an append-only file: 0 if it has only time
    /// annotations.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if the batch has no request, only time annotations.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the Unix time, in seconds, of the last time annotation in the file before this
    /// batch; `None` if there was none.
    pub fn time_before_s(&self) -> Option<i64> {
        self.time_before_s
    }

    /// Returns the time annotations of the batch, in the order of the append-only file.
    pub fn annotations(&self) -> &[Annotation] {
        &self.annotations
    }

    /// Returns the request with this number, which is counted from 0 and must be below
    /// [`len`](Self::len). O(1).
    #[inline]
    pub fn request(&self, number: usize) -> Request<'_> {
        let place = self.places[number];
        let spans_end = self.places.get(number + 1).map_or(self.spans.len(), |next| next.spans_start);
        Request {
            bytes: &self.bytes[place.start..self.len_bytes],
            args: &self.spans[place.spans_start..spans_end],
            file_offset: self.file_offset + place.start as u64,
            standing: place.standing,
        }
    }

    /// Returns the requests of the batch in the order of the file.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<'_>> {
        (0..self.len()).map(|number| self.request(number))
    }

    /// Returns the units (requests outside transactions, and transactions) of the batch, each as
    /// the range of its requests' numbers: one request, or a transaction from MULTI to EXEC.
    pub fn units(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        (0..self.len()).filter_map(move |number| match self.places[number].standing {
            RequestPosition::Alone | RequestPosition::Exec => {
                Some(std::mem::replace(&mut start, number + 1)..number + 1)
            }
            RequestPosition::Multi | RequestPosition::Queued => None,
        })
    }
}

impl engine::replay::Requests for Batch {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn request(&self, index: usize) -> (&[u8], &[Span]) {
        let request = Self::request(self, index);
        (request.bytes, request.args)
    }

    fn offset(&self, index: usize) -> u64 {
        Self::request(self, index).file_offset
    }
}

/// A position in a batch between two units (requests or transactions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of bytes of the batch before the cut.
    pub len_bytes: usize,
    /// The number of requests of the batch before the cut.
    pub requests: usize,
}

impl Batch {
    /// Borrows the bytes of the batch as they are in the append-only file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Returns the position before the first unit (request or transaction) that may have run after
    /// the Unix time `time_s`, in seconds. Returns `None` if all units ran at or before that time.
    /// The position is before the time annotation with the later time, or before the transaction
    /// that contains this annotation.
    pub fn cut_behind_time(&self, time_s: i64) -> Option<Cut> {
        let later = self.annotations.iter().find(|annotation| annotation.time_s > time_s)?;
        let before = &self.places[..later.requests_before];
        let outside =
            |place: &Place| matches!(place.standing, RequestPosition::Alone | RequestPosition::Exec);
        let requests = before.iter().rposition(outside).map_or(0, |last| last + 1);
        let in_unit = before.get(requests).map(|multi| multi.start);
        let len_bytes = in_unit.unwrap_or((later.file_offset - self.file_offset) as usize);
        Some(Cut { len_bytes, requests })
    }

    /// Returns the position in the batch after the last unit (request or transaction) that ends at
    /// or before the byte `file_offset` of the file.
    pub fn cut_at_offset(&self, file_offset: u64) -> Cut {
        let ends = self.units().map(|unit| {
            let last = self.request(unit.end - 1);
            let end = last.file_offset + last.len_bytes() as u64 - self.file_offset;
            Cut { len_bytes: end as usize, requests: unit.end }
        });
        let within = ends.take_while(|cut| self.file_offset + cut.len_bytes as u64 <= file_offset);
        within.last().unwrap_or(Cut { len_bytes: 0, requests: 0 })
    }
}

/// Returns the offset of the end of a request of an append-only file, after its last line end.
/// `last` is its last argument.
fn end_of(last: Span) -> usize {
    last.start as usize + last.len as usize + 2
}

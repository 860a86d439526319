//! Whole units of an append-only file, as [`reader`](super::reader) cuts them out.

use std::ops::Range;

use resp::Span;

/// The place of a request among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Outside a transaction.
    Alone,
    /// The MULTI that begins one.
    Multi,
    /// Within one.
    Queued,
    /// The EXEC that ends one.
    Exec,
}

/// A line that says when what follows it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Seconds since 1970.
    pub time_s: i64,
    /// Its start in the file, in bytes.
    pub file_offset: u64,
    /// The number of requests of the batch before it.
    pub requests_before: usize,
}

/// A request in its batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) spans_start: usize,
    pub(super) standing: Standing,
}

/// Whole units of the file, in their order.
#[derive(Debug, Default)]
pub struct Batch {
    /// At least as long as what is in use of it.
    pub(super) bytes: Vec<u8>,
    pub(super) len_bytes: usize,
    pub(super) file_offset: u64,
    pub(super) places: Vec<Place>,
    pub(super) spans: Vec<Span>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) time_before_s: Option<i64>,
}

/// A request of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Request<'b> {
    /// Begins with the request; what the spans count from.
    pub bytes: &'b [u8],
    /// Its arguments, one or more.
    pub args: &'b [Span],
    /// Its start in the file, in bytes.
    pub file_offset: u64,
    /// Its place among others.
    pub standing: Standing,
}

impl<'b> Request<'b> {
    /// Returns an argument; there is always one at 0, the command's name.
    pub fn arg(&self, at: usize) -> Option<&'b [u8]> {
        Some(self.args.get(at)?.of(self.bytes))
    }

    /// Returns its length in the file, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.args.last().map_or(0, |last| end_of(*last))
    }
}

impl Batch {
    /// Returns its length in the file, in bytes, annotations included.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns its start in the file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// Returns the number of its requests. It may have only annotations.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if it has no request.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the time of the last annotation before the batch.
    pub fn time_before_s(&self) -> Option<i64> {
        self.time_before_s
    }

    /// Returns the annotations in it.
    pub fn annotations(&self) -> &[Annotation] {
        &self.annotations
    }

    /// Returns the request with this number, from 0; below [`len`](Self::len). O(1).
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

    /// Its requests.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<'_>> {
        (0..self.len()).map(|number| self.request(number))
    }

    /// Walks the units, each as the numbers of its requests: one that stands alone, or MULTI to
    /// EXEC.
    pub fn units(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        (0..self.len()).filter_map(move |number| match self.places[number].standing {
            Standing::Alone | Standing::Exec => Some(std::mem::replace(&mut start, number + 1)..number + 1),
            Standing::Multi | Standing::Queued => None,
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

/// A place in a batch, between two units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of bytes of the batch before it.
    pub len_bytes: usize,
    /// The number of requests before it.
    pub requests: usize,
}

impl Batch {
    /// Borrows its bytes as they stand in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Returns the cut before the first content later than `time_s`: its annotation, or the
    /// transaction that it is in. `None` if nothing in the batch is later.
    pub fn cut_behind_time(&self, time_s: i64) -> Option<Cut> {
        let later = self.annotations.iter().find(|annotation| annotation.time_s > time_s)?;
        let before = &self.places[..later.requests_before];
        let outside = |place: &Place| matches!(place.standing, Standing::Alone | Standing::Exec);
        let requests = before.iter().rposition(outside).map_or(0, |last| last + 1);
        let in_unit = before.get(requests).map(|multi| multi.start);
        let len_bytes = in_unit.unwrap_or((later.file_offset - self.file_offset) as usize);
        Some(Cut { len_bytes, requests })
    }

    /// Returns the cut behind the last unit that ends at or before this place of the file.
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

/// Returns the end of a request: behind its last argument and that one's line end.
fn end_of(last: Span) -> usize {
    last.start as usize + last.len as usize + 2
}

//! A batch of parsed requests from all ready connections, and the memory that they will touch.
//!
//! Requests are parsed in place: their arguments are spans of the connection's input, which does
//! not move until the batch has run. Memory that the requests will touch is loaded before they run,
//! so that the loads overlap: first the shard headers, then the buckets, then the entries (memory
//! access amortisation). A command that looks up a member of a big set, hash or sorted set has two
//! more loads: the bucket in the collection's own table, and the member. These are prefetched too.

use std::ops::Range;

use commands::Args;
use keyspace::{Hasher, Keyspace};
use resp::parse::{Limits, Parsed, Progress, ProtocolError, Span, parse_request};

use crate::fetch::{self, Lookup, Sought};
use crate::owned_args::OwnedArgs;
use crate::shared::Shared;
use crate::table::{KeyPlan, Registered};

/// The most requests of one batch; the rest runs in the next batch of the same turn (pass of the
/// event loop). The cache lines that a batch prefetches (two or three for each request) fit into
/// the first-level cache.
const BATCH_REQUESTS_MAX: usize = 128;
/// The number of empty lines that count as one request towards [`BATCH_REQUESTS_MAX`], because
/// skipping them takes as long.
const EMPTY_LINES_PER_REQUEST: usize = 64;

/// The way in which a batch of requests handles one request or invalid bytes.
pub enum Work {
    /// The request runs. Its arguments are spans of the input.
    Run,
    /// The request runs. It was an inline command, so its arguments are unescaped copies.
    Inline(OwnedArgs),
    /// The bytes are not a request: the reply is this error, and the connection is closed.
    Broken(ProtocolError),
}

/// One parsed request of a batch, or bytes that are not a request.
pub struct ParsedRequest {
    /// The command of the request; `None` if no command has this name.
    pub registered: Option<&'static Registered>,
    /// The way to handle the request: to run it, or to reply with an error and close the
    /// connection.
    pub work: Work,
    /// The key and member that are prefetched for the request. The database is the one selected
    /// when the request was parsed.
    lookup: Lookup,
    /// The offset of the request's first byte in the connection's unconsumed input, in bytes.
    pub start: usize,
    /// The length of the request, in bytes.
    pub len_bytes: usize,
    spans: Range<usize>,
}

impl AsRef<Lookup> for ParsedRequest {
    #[inline]
    fn as_ref(&self) -> &Lookup {
        &self.lookup
    }
}

/// A parsed request of a client before any check.
pub struct Incoming<'a> {
    /// The command of the request; `None` if it does not exist.
    pub registered: Option<&'static Registered>,
    /// The words of the request: the command's name and its arguments.
    pub args: Args<'a>,
}

/// The requests of a batch that come from one connection. `V` is the type by which the driver (an
/// I/O thread or a simulator) identifies the connection.
pub struct ConnTurn<V> {
    /// The driver's identification of the connection, such as its index.
    pub visit: V,
    /// The range of this connection's requests in [`Batch::requests`].
    pub requests: Range<usize>,
    /// The number of bytes of the connection's input that the batch has parsed, including the empty
    /// lines after the last request.
    pub skip_to: usize,
    /// True if the rest of the connection's input may contain complete requests that did not fit
    /// into the batch.
    pub has_more: bool,
}

/// The unconsumed input of a connection, to be parsed.
pub struct Source<'a, V> {
    /// The state of parsing the connection's incomplete request.
    pub progress: &'a mut Progress,
    /// The number of the client's selected database.
    pub db: usize,
    /// The limits of the parser for requests of this connection.
    pub limits: Limits,
    /// The driver's identification of the connection, such as its index.
    pub visit: V,
    /// The position of the first byte of `input` in the byte stream of the connection.
    pub position: u64,
    /// The unconsumed bytes of the connection's input.
    pub input: &'a [u8],
}

/// The requests to run next, and the connections from which they came.
pub struct Batch<V> {
    /// All requests of the batch, grouped by connection.
    pub requests: Vec<ParsedRequest>,
    /// The connections that have requests in the batch, in the order of their requests.
    pub turns: Vec<ConnTurn<V>>,
    spans: Vec<Span>,
    /// The minimum number of bytes that the last incomplete request still lacks.
    missing_bytes: usize,
    /// The number of empty lines of the inputs that this batch skipped.
    empty_lines: usize,
    /// The kinds of memory look-ups that must be prefetched for the requests of the batch.
    sought: Sought,
}

impl<V> Default for Batch<V> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            turns: Vec::new(),
            spans: Vec::new(),
            missing_bytes: 0,
            empty_lines: 0,
            sought: Sought::Keys,
        }
    }
}

impl<V> Batch<V> {
    /// Removes all requests from the batch and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.turns.clear();
        self.spans.clear();
        self.empty_lines = 0;
        self.sought = Sought::Keys;
    }

    /// Returns true if the batch accepts no more requests.
    pub fn is_full(&self) -> bool {
        self.requests.len() + self.empty_lines / EMPTY_LINES_PER_REQUEST >= BATCH_REQUESTS_MAX
    }

    /// Returns the minimum number of bytes that the incomplete request lacks. Valid after
    /// [`Batch::collect`] has found no complete request in an input that is not empty.
    pub fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }

    /// Parses requests from the start of a connection's input, until the input ends or the batch is
    /// full. Returns true if it parsed any request or empty line, and has added the connection to
    /// [`Batch::turns`].
    pub fn collect(&mut self, source: Source<'_, V>, shared: &Shared) -> bool {
        let Source { progress, db, limits, visit, position, input } = source;
        let first = self.requests.len();
        let mut at = 0;
        let has_more = loop {
            if at == input.len() {
                break false;
            }
            if self.is_full() || (limits.unauthenticated && self.requests.len() > first) {
                // The request before may authenticate, which changes the limits of the following
                // ones.
                break true;
            }
            let spans_from = self.spans.len();
            let position = position + at as u64;
            let parsed = parse_request(&input[at..], position, &limits, progress, &mut self.spans);
            let (work, len_bytes) = match parsed {
                Ok(Parsed::Request { len_bytes }) => (Work::Run, len_bytes),
                Ok(Parsed::Inline { len_bytes, args }) => {
                    (Work::Inline(OwnedArgs::new(args.iter().map(Vec::as_slice))), len_bytes)
                }
                Ok(Parsed::Empty { len_bytes }) => {
                    at += len_bytes;
                    self.empty_lines += 1;
                    continue;
                }
                Ok(Parsed::Incomplete { missing_bytes }) => {
                    self.missing_bytes = missing_bytes;
                    break false;
                }
                Err(error) => (Work::Broken(error), input.len() - at),
            };
            let broken = matches!(work, Work::Broken(_));
            let range = at..at + len_bytes;
            self.push(work, (input, range), spans_from, db, shared);
            at += len_bytes;
            if broken {
                break false;
            }
        };
        if at > 0 {
            let requests = first..self.requests.len();
            self.turns.push(ConnTurn { visit, requests, skip_to: at, has_more });
        }
        at > 0
    }

    #[inline(always)]
    fn push(
        &mut self,
        work: Work,
        (input, range): (&[u8], Range<usize>),
        spans_from: usize,
        db: usize,
        shared: &Shared,
    ) {
        let hasher = shared.keyspace.hasher();
        let args = match &work {
            Work::Run => Args::new(&input[range.clone()], &self.spans[spans_from..], hasher),
            Work::Inline(inline) => inline.args(hasher),
            Work::Broken(_) => Args::new(&[], &[], hasher),
        };
        let registered = match args.try_get(0) {
            Some(name) => self.command(name, shared),
            None => None,
        };
        let lookup = registered.map_or(Lookup::none(db), |it| Lookup::of(it, &args, db, shared));
        self.sought = self.sought.with(&lookup);
        self.requests.push(ParsedRequest {
            registered,
            work,
            lookup,
            start: range.start,
            len_bytes: range.len(),
            spans: spans_from..self.spans.len(),
        });
    }

    /// Finds the command called `name` for a request of the batch. First compares the name with
    /// that of the previous request's command, because successive requests often have the same
    /// command.
    #[inline]
    fn command(&self, name: &[u8], shared: &Shared) -> Option<&'static Registered> {
        if let Some(ParsedRequest { registered: Some(last), .. }) = self.requests.last()
            && stdx::bytes::same(last.command.name.as_bytes(), name)
        {
            return Some(last);
        }
        shared.table.find(name)
    }

    /// Starts loading the memory that the batch will touch into the cache: all buckets, then all
    /// entries, then the buckets and entries of members.
    pub fn prefetch(&self, keyspace: &Keyspace) {
        fetch::ahead(&self.requests, self.sought, keyspace);
    }

    /// Returns a parsed request of the batch with its arguments; `None` if its bytes are not a
    /// request. `input` is the input of its connection.
    #[inline]
    pub fn request<'a>(
        &'a self,
        parsed: &'a ParsedRequest,
        input: &'a [u8],
        hasher: &'a Hasher,
    ) -> Option<Incoming<'a>> {
        self.request_of(parsed, &input[parsed.start..][..parsed.len_bytes], hasher)
    }

    /// Returns a parsed request of the batch as [`request`](Self::request) does. `bytes` are the
    /// bytes of the request only.
    #[inline]
    pub fn request_of<'a>(
        &'a self,
        parsed: &'a ParsedRequest,
        bytes: &'a [u8],
        hasher: &'a Hasher,
    ) -> Option<Incoming<'a>> {
        let registered = parsed.registered;
        match &parsed.work {
            Work::Run => {}
            Work::Inline(inline) => return Some(Incoming { registered, args: inline.args(hasher) }),
            Work::Broken(_) => return None,
        }
        let args = Args::new(bytes, &self.spans[parsed.spans.clone()], hasher);
        let args = match (registered, parsed.lookup.key_hash()) {
            (Some(Registered { key_plan: KeyPlan::One(at), .. }), Some(hash)) => {
                args.with_first_key(*at, hash)
            }
            _ => args,
        };
        Some(Incoming { registered, args })
    }
}

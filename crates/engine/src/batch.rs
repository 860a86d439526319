//! A batch of parsed requests from all ready connections, and the memory they will touch.
//!
//! Requests are parsed in place: arguments are spans of the connection's input, which stays where
//! it is until the batch has run. While one request would wait for memory, the processor fetches
//! for the others: first the shard headers, then the buckets, then the entries (memory access
//! amortisation). A command that looks for a member of a big set, hash or sorted set waits twice
//! more, for the bucket of the collection's own table and for the member; these are fetched too.

use std::ops::Range;

use commands::Args;
use keyspace::{Hasher, Keyspace};
use resp::parse::{Limits, Parsed, Progress, ProtocolError, Span, parse_request};

use crate::fetch::{self, Lookup, Sought};
use crate::owned_args::OwnedArgs;
use crate::shared::Shared;
use crate::table::{KeyPlan, Registered};

/// Requests of one batch; what does not fit runs in the next batch of the same turn. The lines a
/// batch fetches (two or three a request) fit the first-level cache.
const BATCH_REQUESTS_MAX: usize = 128;
/// Empty lines that take as long to pass over as a request takes.
const EMPTY_LINES_PER_REQUEST: usize = 64;

/// The work for a request.
pub enum Work {
    /// Run it; its arguments are spans of the input.
    Run,
    /// Run it; its arguments were unescaped.
    Inline(OwnedArgs),
    /// Its bytes are no request: answer so and close.
    Broken(ProtocolError),
}

/// One parsed request.
pub struct ParsedRequest {
    /// Its command, if there is one of that name.
    pub registered: Option<&'static Registered>,
    /// The work.
    pub work: Work,
    /// Its lookups, in the database selected when it was parsed.
    lookup: Lookup,
    /// First byte within the connection's input.
    pub start: usize,
    /// Length in bytes.
    pub len_bytes: usize,
    spans: Range<usize>,
}

impl AsRef<Lookup> for ParsedRequest {
    #[inline]
    fn as_ref(&self) -> &Lookup {
        &self.lookup
    }
}

/// A parsed request as it came: nothing is checked yet.
pub struct Incoming<'a> {
    /// Its command; `None` for one that does not exist.
    pub registered: Option<&'static Registered>,
    /// Its arguments.
    pub args: Args<'a>,
}

/// A connection's part of the batch. `V` is what the driver knows the connection by.
pub struct ConnTurn<V> {
    /// The connection.
    pub visit: V,
    /// Its requests in [`Batch::requests`].
    pub requests: Range<usize>,
    /// Input up to here needs no reply once all its requests ran (empty lines behind them).
    pub skip_to: usize,
    /// More of its input may be complete than the batch has room for.
    pub has_more: bool,
}

/// The input of a connection.
pub struct Source<'a, V> {
    /// The parsed part of an incomplete request.
    pub progress: &'a mut Progress,
    /// Its client's selected database.
    pub db: usize,
    /// The limits of its requests.
    pub limits: Limits,
    /// The connection.
    pub visit: V,
    /// Position of the first unconsumed byte in its stream.
    pub position: u64,
    /// The unconsumed bytes.
    pub input: &'a [u8],
}

/// See the module.
pub struct Batch<V> {
    /// All requests, connection after connection.
    pub requests: Vec<ParsedRequest>,
    /// The connections, in order.
    pub turns: Vec<ConnTurn<V>>,
    spans: Vec<Span>,
    /// The least number of bytes that the last incomplete request still lacks.
    missing_bytes: usize,
    /// Empty lines around the requests.
    empty_lines: usize,
    /// The lookups of its requests.
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
    /// Forgets the last batch, keeping its memory.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.turns.clear();
        self.spans.clear();
        self.empty_lines = 0;
        self.sought = Sought::Keys;
    }

    /// Returns true if no more fits.
    pub fn is_full(&self) -> bool {
        self.requests.len() + self.empty_lines / EMPTY_LINES_PER_REQUEST >= BATCH_REQUESTS_MAX
    }

    /// Returns the number of bytes that are missing at least, after [`Batch::collect`] found no
    /// whole request in bytes that are not empty.
    pub fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }

    /// Parses requests from the start of a connection's input until it ends or the batch is full.
    /// What is whole becomes one of [`Batch::turns`]; whether something is.
    pub fn collect(&mut self, source: Source<'_, V>, shared: &Shared) -> bool {
        let Source { progress, db, limits, visit, position, input } = source;
        let first = self.requests.len();
        let mut at = 0;
        let has_more = loop {
            if at == input.len() {
                break false;
            }
            if self.is_full() || (limits.unauthenticated && self.requests.len() > first) {
                // The request before may authenticate, which changes the limits of the next.
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

    /// Finds the command called `name`: most often the one of the request before.
    #[inline]
    fn command(&self, name: &[u8], shared: &Shared) -> Option<&'static Registered> {
        if let Some(ParsedRequest { registered: Some(last), .. }) = self.requests.last()
            && stdx::bytes::same(last.command.name.as_bytes(), name)
        {
            return Some(last);
        }
        shared.table.find(name)
    }

    /// Starts loading what the batch will touch: all buckets, then all entries,
    /// then the same of members.
    pub fn prefetch(&self, keyspace: &Keyspace) {
        fetch::ahead(&self.requests, self.sought, keyspace);
    }

    /// Returns a request, ready to run; `None` if its bytes are no request. `input` is the input
    /// of its connection.
    #[inline]
    pub fn request<'a>(
        &'a self,
        parsed: &'a ParsedRequest,
        input: &'a [u8],
        hasher: &'a Hasher,
    ) -> Option<Incoming<'a>> {
        self.request_of(parsed, &input[parsed.start..][..parsed.len_bytes], hasher)
    }

    /// Returns a request as [`request`](Self::request) does, of its own bytes.
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

//! Code that commands on hashes, sets and sorted sets share: replies of elements, scans, and the
//! removal of collections that became empty.

use keyspace::{Expiry, Key, Object, PackLimits, SetLimits};
use resp::{Protocol, Reply};
use stdx::glob::glob_match;
use stdx::number;
use structures::listpack::element::{Element, IntText};

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;

/// Writes an element of a collection as a bulk string.
#[inline]
pub(crate) fn bulk(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(value) => reply.bulk_integer(value),
    }
}

/// Writes the header of a reply of `pairs` pairs (an element and its value or score): RESP3 clients
/// get arrays of two, RESP2 clients one flat array. Each pair then begins with [`begin_pair`].
pub(crate) fn begin_pairs(reply: &mut Reply<'_>, pairs: usize) {
    match reply.protocol() {
        Protocol::Resp2 => reply.array(2 * pairs),
        Protocol::Resp3 => reply.array(pairs),
    }
}

/// Writes the header of one pair after [`begin_pairs`]: an array of two in RESP3, nothing in RESP2.
#[inline]
pub(crate) fn begin_pair(reply: &mut Reply<'_>) {
    if reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
}

/// Removes the emptied collection at `key` and raises the event `del`, without counting another
/// change.
pub(crate) fn remove_emptied(ctx: &mut Ctx<'_>, key: Key<'_>) {
    if let Some(entry) = ctx.db.remove(key) {
        ctx.effects.discard(entry);
        ctx.changed_by(0, EventClass::GENERIC, "del", key);
    }
}

/// Records DEL of `key` in place of the request, for replicas and the append-only file (see
/// [`crate::record`]).
pub(crate) fn record_del(ctx: &mut Ctx<'_>, key: Key<'_>) {
    ctx.record(|record| {
        record.command("DEL").word(key.bytes);
    });
}

/// The keyspace event of a command that stores a collection, and its number of changes.
#[derive(Clone, Copy)]
pub(crate) struct StoreEvents {
    pub(crate) class: EventClass,
    pub(crate) event: &'static str,
    /// The number by which the command increases the count of changes since the last save.
    pub(crate) changes: u64,
}

impl StoreEvents {
    /// Returns the event, and a count of one change, of a command that counts one change, whatever
    /// the number of stored elements.
    pub(crate) fn one(class: EventClass, event: &'static str) -> Self {
        Self { class, event, changes: 1 }
    }
}

/// Stores a collection at `key` in place of any old value, and replies with its length. If the
/// collection is empty, removes the key instead. All commands that store a result end with this
/// function.
pub(crate) fn store_result(ctx: &mut Ctx<'_>, key: Key<'_>, collection: Object, stored: StoreEvents) {
    let len = collection.element_count();
    ctx.reply.integer(len as i64);
    if len > 0 {
        ctx.db.set_object(key, collection, Expiry::Clear);
        ctx.changed_by(stored.changes, stored.class, stored.event, key);
    } else if let Some(entry) = ctx.db.remove_even_expired(key) {
        ctx.effects.discard(entry);
        ctx.changed(EventClass::GENERIC, "del", key);
    }
}

/// Returns the thresholds between the encodings of hashes, from the configuration.
pub(crate) fn hash_limits(ctx: &Ctx<'_>) -> PackLimits {
    PackLimits {
        entries_max: ctx.limits.hash_max_listpack_entries,
        value_len_bytes_max: ctx.limits.hash_max_listpack_value,
    }
}

/// Returns the thresholds between the encodings of sets, from the configuration.
pub(crate) fn set_limits(ctx: &Ctx<'_>) -> SetLimits {
    SetLimits {
        intset_entries_max: ctx.limits.set_max_intset_entries,
        pack: PackLimits {
            entries_max: ctx.limits.set_max_listpack_entries,
            value_len_bytes_max: ctx.limits.set_max_listpack_value,
        },
    }
}

/// Returns the thresholds between the encodings of sorted sets, from the configuration.
pub(crate) fn zset_limits(ctx: &Ctx<'_>) -> PackLimits {
    PackLimits {
        entries_max: ctx.limits.zset_max_listpack_entries,
        value_len_bytes_max: ctx.limits.zset_max_listpack_value,
    }
}

/// Parses argument `index` as a count of 0 or more.
pub(crate) fn not_negative(args: &Args<'_>, index: usize) -> Result<usize, CommandError> {
    let count = number::parse_i64(args.get(index)).and_then(|count| usize::try_from(count).ok());
    count.ok_or(CommandError::Line("ERR value is out of range, must be positive"))
}

/// The type of the collection that HSCAN, SSCAN or ZSCAN scans. Some options of a scan depend on
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scanned {
    Hash,
    Set,
    Zset,
}

/// The parsed options of an HSCAN, SSCAN or ZSCAN request.
pub(crate) struct ScanRequest<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: u64,
    /// True if the reply has no values or scores: HSCAN with NOVALUES, or ZSCAN with NOSCORES.
    pub(crate) names_only: bool,
}

/// The maximum number of steps of a scan per requested element. A scan of a sparse table that
/// reaches this limit replies with fewer elements.
const BUCKETS_PER_COUNT: u64 = 10;

impl<'a> ScanRequest<'a> {
    /// Parses the options of a scan after the cursor: COUNT, MATCH, NOVALUES and NOSCORES.
    pub(crate) fn parse(args: &Args<'a>, cursor: u64, of: Scanned) -> Result<Self, CommandError> {
        let mut request = ScanRequest { cursor, pattern: None, count: 10, names_only: false };
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if has_value && args.is(at, "COUNT") {
                let count = args.integer(at + 1)?;
                request.count = u64::try_from(count).ok().filter(|&n| n > 0).ok_or(CommandError::Syntax)?;
                at += 2;
            } else if has_value && args.is(at, "MATCH") {
                request.pattern = Some(args.get(at + 1)).filter(|pattern| *pattern != b"*");
                at += 2;
            } else if args.is(at, "NOVALUES") {
                if of != Scanned::Hash {
                    return Err(CommandError::Line("ERR NOVALUES option can only be used in HSCAN"));
                }
                request.names_only = true;
                at += 1;
            } else if of == Scanned::Zset && args.is(at, "NOSCORES") {
                request.names_only = true;
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(request)
    }

    /// Returns true if the element matches the scan's pattern, or if there is no pattern.
    pub(crate) fn matches(&self, element: Element<'_>) -> bool {
        let lets_through = |pattern| glob_match(pattern, element.text(&mut IntText::new()));
        self.pattern.is_none_or(lets_through)
    }

    /// Replies with the next cursor and the elements found. `step` visits the elements at a cursor.
    /// If it is given a reply, it also writes the matching elements. The scan runs twice, because
    /// the next cursor precedes the elements in the reply.
    pub(crate) fn run(
        &self,
        reply: &mut Reply<'_>,
        mut step: impl FnMut(u64, Option<&mut Reply<'_>>) -> ScanStep,
    ) {
        let (mut cursor, mut visited, mut steps) = (self.cursor, 0, 0);
        loop {
            let done = step(cursor, None);
            (cursor, visited, steps) = (done.next, visited + done.visited, steps + 1);
            if cursor == 0 || visited >= self.count || steps >= self.count.saturating_mul(BUCKETS_PER_COUNT) {
                break;
            }
        }
        reply.array(2);
        reply.bulk(cursor.to_string().as_bytes());
        let elements = reply.begin_array();
        let (mut at, mut written) = (self.cursor, 0);
        for _ in 0..steps {
            let done = step(at, Some(reply));
            at = done.next;
            written += done.written;
        }
        reply.end_array(elements, written);
    }

    /// Writes the reply of a scan that finds nothing: cursor 0 and an empty array.
    pub(crate) fn nothing(reply: &mut Reply<'_>) {
        reply.array(2);
        reply.bulk(b"0");
        reply.empty_array();
    }
}

/// The result of one step of HSCAN, SSCAN or ZSCAN, with the next cursor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanStep {
    pub(crate) next: u64,
    /// The number of elements that the scan's step visited.
    pub(crate) visited: u64,
    /// The number of replies written: two per element if the elements are pairs.
    pub(crate) written: usize,
}

/// Creates a test harness that does not report `new` events, for tests of the events that
/// collections raise.
#[cfg(test)]
pub(crate) fn harness_without_new() -> crate::harness::Harness {
    let mut db = crate::harness::Harness::new();
    db.effects.wanted_events.remove(EventClass::NEW);
    db
}

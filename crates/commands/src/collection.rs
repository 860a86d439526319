//! What commands on hashes, sets and sorted sets share: elements as replies, scans, and
//! the end of a collection that lost its last element.

use keyspace::{Expiry, Key, Object, PackLimits, SetLimits};
use resp::{Protocol, Reply};
use stdx::glob::glob_match;
use stdx::number;
use structures::listpack::element::{Element, IntText};

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;

/// An element as a bulk string.
#[inline]
pub(crate) fn bulk(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        Element::Int(value) => reply.bulk_integer(value),
    }
}

/// The header of `pairs` pairs that RESP3 clients get as arrays of two, RESP2 clients one after
/// another. Each pair then begins with [`begin_pair`].
pub(crate) fn begin_pairs(reply: &mut Reply<'_>, pairs: usize) {
    match reply.protocol() {
        Protocol::Resp2 => reply.array(2 * pairs),
        Protocol::Resp3 => reply.array(pairs),
    }
}

/// What stands before each pair of [`begin_pairs`].
#[inline]
pub(crate) fn begin_pair(reply: &mut Reply<'_>) {
    if reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
}

/// Removes an empty collection and raises the event `del`.
pub(crate) fn remove_emptied(ctx: &mut Ctx<'_>, key: Key<'_>) {
    if let Some(entry) = ctx.db.remove(key) {
        ctx.effects.discard(entry);
        ctx.changed_by(0, EventClass::GENERIC, "del", key);
    }
}

/// Records that a key was deleted, in place of the request.
pub(crate) fn record_del(ctx: &mut Ctx<'_>, key: Key<'_>) {
    ctx.record(|record| {
        record.command("DEL").word(key.bytes);
    });
}

/// The keyspace events of a command that stores a collection.
#[derive(Clone, Copy)]
pub(crate) struct StoreEvents {
    pub(crate) class: EventClass,
    pub(crate) event: &'static str,
    /// What the server's count of changes grows by.
    pub(crate) changes: u64,
}

impl StoreEvents {
    /// One change, whatever is stored.
    pub(crate) fn one(class: EventClass, event: &'static str) -> Self {
        Self { class, event, changes: 1 }
    }
}

/// Puts a collection where `key` is, whatever was there, or removes the key if the collection is
/// empty; replies with its length. The end of all commands that store a result.
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

/// The thresholds of hashes.
pub(crate) fn hash_limits(ctx: &Ctx<'_>) -> PackLimits {
    PackLimits {
        entries_max: ctx.limits.hash_max_listpack_entries,
        value_len_bytes_max: ctx.limits.hash_max_listpack_value,
    }
}

/// The thresholds of sets.
pub(crate) fn set_limits(ctx: &Ctx<'_>) -> SetLimits {
    SetLimits {
        intset_entries_max: ctx.limits.set_max_intset_entries,
        pack: PackLimits {
            entries_max: ctx.limits.set_max_listpack_entries,
            value_len_bytes_max: ctx.limits.set_max_listpack_value,
        },
    }
}

/// The thresholds of sorted sets.
pub(crate) fn zset_limits(ctx: &Ctx<'_>) -> PackLimits {
    PackLimits {
        entries_max: ctx.limits.zset_max_listpack_entries,
        value_len_bytes_max: ctx.limits.zset_max_listpack_value,
    }
}

/// An argument that is a count from 0 on.
pub(crate) fn not_negative(args: &Args<'_>, index: usize) -> Result<usize, CommandError> {
    let count = number::parse_i64(args.get(index)).and_then(|count| usize::try_from(count).ok());
    count.ok_or(CommandError::Line("ERR value is out of range, must be positive"))
}

/// What a scan goes through, on which some of its options depend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scanned {
    Hash,
    Set,
    Zset,
}

/// The options of HSCAN, SSCAN and ZSCAN.
pub(crate) struct ScanRequest<'a> {
    cursor: u64,
    pattern: Option<&'a [u8]>,
    count: u64,
    /// HSCAN's NOVALUES or ZSCAN's NOSCORES.
    pub(crate) names_only: bool,
}

/// Buckets looked at per element asked for, before a scan of a sparse table answers with less.
const BUCKETS_PER_COUNT: u64 = 10;

impl<'a> ScanRequest<'a> {
    /// Reads the options behind the cursor.
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

    /// Whether the pattern lets an element through.
    pub(crate) fn matches(&self, element: Element<'_>) -> bool {
        let lets_through = |pattern| glob_match(pattern, element.text(&mut IntText::new()));
        self.pattern.is_none_or(lets_through)
    }

    /// Replies with the next cursor and what the scan finds up to it. `step` visits the elements at
    /// a cursor, writing those that match if it is given a reply, and gives the next cursor and how
    /// many elements it visited and wrote. The way is walked twice, because the cursor comes first.
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

    /// The reply of a scan that finds nothing.
    pub(crate) fn nothing(reply: &mut Reply<'_>) {
        reply.array(2);
        reply.bulk(b"0");
        reply.empty_array();
    }
}

/// What one step of a scan did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScanStep {
    pub(crate) next: u64,
    /// Elements at the cursor.
    pub(crate) visited: u64,
    /// Replies written, which is twice the elements where they are pairs.
    pub(crate) written: usize,
}

/// A harness that does not tell of new keys, for tests of the events that collections raise.
#[cfg(test)]
pub(crate) fn harness_without_new() -> crate::harness::Harness {
    let mut db = crate::harness::Harness::new();
    db.effects.wanted_events.remove(EventClass::NEW);
    db
}

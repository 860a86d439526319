//! The keys and members that requests look up, and their prefetching into the cache: see
//! [`batch`](crate::batch).

use commands::Args;
use keyspace::key::{KeyHash, position_of, shard_of};
use keyspace::{Db, Keyspace, Object};

use crate::shared::Shared;
use crate::table::{KeyPlan, Registered, Runner};

/// The minimum number of requests in a batch for which prefetching saves more time than it costs.
const REQUESTS_MIN: usize = 2;

/// A key or member to prefetch, given by its hash, and that hash.
#[derive(Clone, Copy, PartialEq, Eq)]
struct LookupKey<H> {
    hash: H,
    len_bytes: usize,
}

/// The key and the member that one request looks up, to be prefetched.
#[derive(Clone, Copy)]
pub struct Lookup {
    /// The key that the request looks up, if it has exactly one; for a script, its first declared
    /// key.
    key: Option<LookupKey<KeyHash>>,
    /// The member that is looked up in the value of the key; `None` if there is none.
    member: Option<LookupKey<u64>>,
    /// The number of the database of the key.
    db: usize,
}

impl Lookup {
    /// Creates the lookup of a request that has no key and no member to prefetch.
    #[inline]
    pub fn none(db: usize) -> Self {
        Self { key: None, member: None, db }
    }

    /// Creates the lookup of a request in database `db`, and starts loading the shard header of the
    /// key. The number of arguments has not been checked. O(bytes).
    #[inline(always)]
    pub fn of(registered: &Registered, args: &Args<'_>, db: usize, shared: &Shared) -> Self {
        match registered.key_plan {
            KeyPlan::One(at) if at < args.len() => {
                let hash = shared.keyspace.hasher().hash_key(args.get(at));
                Self::of_key((registered, at), hash, args, db, shared)
            }
            KeyPlan::Specs if matches!(registered.command.run, Runner::Script(_)) => {
                Self::of_script(args, db, shared)
            }
            _ => Self::none(db),
        }
    }

    /// Creates the lookup of the first key that a script declares.
    fn of_script(args: &Args<'_>, db: usize, shared: &Shared) -> Self {
        let (Some(count), Some(key)) = (args.try_get(2), args.try_get(3)) else { return Self::none(db) };
        if count == b"0" {
            return Self::none(db);
        }
        let hash = shared.keyspace.hasher().hash_key(key);
        shared.keyspace.prefetch_shard(hash);
        Self { key: Some(LookupKey { hash, len_bytes: key.len() }), member: None, db }
    }

    /// Creates the lookup of a request with exactly one key, as [`of`](Self::of) does. `at` is the
    /// index of the key's argument, and `hash` its hash.
    #[inline(always)]
    pub fn of_key(
        (registered, at): (&Registered, usize),
        hash: KeyHash,
        args: &Args<'_>,
        db: usize,
        shared: &Shared,
    ) -> Self {
        let hasher = shared.keyspace.hasher();
        shared.keyspace.prefetch_shard(hash);
        let member = registered.member_plan.place(args.len()).map(|at| {
            let bytes = args.get(at);
            LookupKey { hash: hasher.hash_member(bytes), len_bytes: bytes.len() }
        });
        Self { key: Some(LookupKey { hash, len_bytes: args.get(at).len() }), member, db }
    }

    /// Returns the hash of the key to look up: the only key of a request, or a script's first
    /// declared key.
    #[inline]
    pub fn key_hash(&self) -> Option<KeyHash> {
        self.key.map(|key| key.hash)
    }
}

/// The kinds of lookups (keys, members) that several requests need, to be prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The requests need only look-ups of keys, not of members.
    Keys,
    /// The requests need lookups of keys, and of members of some of the keys' values.
    Members,
}

impl Sought {
    /// Combines these kinds of lookups with the kinds that `lookup` needs.
    #[inline]
    pub fn with(self, lookup: &Lookup) -> Self {
        if lookup.member.is_some() { Self::Members } else { self }
    }
}

/// Starts loading the memory that these requests will touch into the cache: all buckets, then all
/// entries. If `sought` includes members, then also the buckets and entries of the members.
pub fn ahead<T: AsRef<Lookup>>(requests: &[T], sought: Sought, keyspace: &Keyspace) {
    if requests.len() < REQUESTS_MIN {
        return;
    }
    each_key(requests, keyspace, |db, key, _| db.table().prefetch_bucket(position_of(key.hash)));
    each_key(requests, keyspace, |db, key, _| {
        db.table().prefetch_element(position_of(key.hash), key.len_bytes);
    });
    if sought == Sought::Keys {
        return;
    }
    each_member(requests, keyspace, |object, member| object.prefetch_member_bucket(member.hash));
    each_member(requests, keyspace, |object, member| object.prefetch_member(member.hash, member.len_bytes));
}

/// Calls `fetch` once for each sequence of consecutive requests with the same key. Skips a key
/// whose shard is locked by another thread.
#[inline]
fn each_key<T: AsRef<Lookup>>(
    requests: &[T],
    keyspace: &Keyspace,
    fetch: impl Fn(&Db, LookupKey<KeyHash>, &[T]),
) {
    let is_same = |a: &Lookup, b: &Lookup| a.key == b.key && a.db == b.db;
    for requests in requests.chunk_by(|a, b| is_same(a.as_ref(), b.as_ref())) {
        let lookup = requests[0].as_ref();
        if let Some(key) = lookup.key
            && let Some(shard) = keyspace.try_lock(shard_of(key.hash))
            && let Some(db) = shard.db(lookup.db)
        {
            fetch(db, key, requests);
        }
    }
}

/// Calls `fetch` for each member that a request looks up in the value of its key.
fn each_member<T: AsRef<Lookup>>(
    requests: &[T],
    keyspace: &Keyspace,
    fetch: impl Fn(&Object, LookupKey<u64>),
) {
    each_key(requests, keyspace, |db, key, requests| {
        db.with_likely_object(key.hash, |object| {
            let members = requests.iter().filter_map(|request| request.as_ref().member);
            members.for_each(|member| fetch(object, member));
        });
    });
}

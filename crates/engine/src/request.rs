//! A request whose command was found: the command's entry in the table, the arguments, and the
//! positions of the keys.

use commands::Args;
use commands::keys::for_each_key;
use commands::table::KeyFlags;
use keyspace::key::KeyHash;
use keyspace::{Key, Keyspace, Locked};

use crate::table::{KeyPlan, Registered};

/// A key of a request, with its hash and the command's access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// The index of the argument that contains the key.
    pub at: u32,
    /// The hash of the request's key.
    pub hash: KeyHash,
    /// The kind of access (read, write) of the command to the key.
    pub access: KeyFlags,
}

/// The keys of a request, in the order of the command's key specifications. Most requests have
/// exactly one key.
pub enum RequestKeys {
    /// The request has no keys.
    None,
    /// The request has exactly one key, the most frequent case.
    One(RequestKey),
    /// The request has any number of keys. A vector, because an inline array would make each
    /// request big and moving one expensive.
    Many(Vec<RequestKey>),
}

impl RequestKeys {
    /// Finds the keys of a request with a valid number of arguments. O(keys).
    #[inline(always)]
    pub fn find(registered: &Registered, args: &Args<'_>) -> Self {
        match registered.key_plan {
            KeyPlan::None => Self::None,
            KeyPlan::One(at) => {
                let access = registered.command.keys[0].flags;
                Self::One(RequestKey { at: at as u32, hash: args.key(at).hash, access })
            }
            KeyPlan::Specs => Self::find_by_specs(registered, args),
        }
    }

    /// Finds the keys of a request by the key specifications of its command. Not inlined, so that
    /// it adds no cost to requests with at most one key.
    #[inline(never)]
    fn find_by_specs(registered: &Registered, args: &Args<'_>) -> Self {
        let mut keys = Self::None;
        for_each_key(registered.command.keys, args, |at, spec| {
            let key = RequestKey { at: at as u32, hash: args.key(at).hash, access: spec.flags };
            match &mut keys {
                Self::None => keys = Self::One(key),
                Self::One(first) => {
                    let mut many = Vec::with_capacity(args.len());
                    many.extend([*first, key]);
                    keys = Self::Many(many);
                }
                Self::Many(many) => many.push(key),
            }
        });
        keys
    }

    /// Returns all keys of the request.
    #[inline]
    pub fn as_slice(&self) -> &[RequestKey] {
        match self {
            Self::None => &[],
            Self::One(key) => std::slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }

    /// Locks the shards of the request's keys. O(n log n).
    #[inline(always)]
    pub fn lock<'k>(&self, keyspace: &'k Keyspace) -> Locked<'k> {
        match self {
            Self::None => keyspace.lock_none(),
            Self::One(key) => keyspace.lock_one(key.hash),
            Self::Many(keys) => lock_many(keyspace, keys),
        }
    }

    /// Locks the shards of the request's keys as [`lock`](Self::lock) does. Returns `None`, with
    /// nothing locked, if a busy script holds one of the shards.
    #[inline(always)]
    pub fn lock_unless_busy<'k>(&self, keyspace: &'k Keyspace) -> Option<Locked<'k>> {
        match self {
            Self::None => Some(keyspace.lock_none()),
            Self::One(key) => keyspace.lock_one_unless_busy(key.hash),
            Self::Many(keys) => lock_many_unless_busy(keyspace, keys),
        }
    }
}

#[inline(never)]
fn lock_many_unless_busy<'k>(keyspace: &'k Keyspace, keys: &[RequestKey]) -> Option<Locked<'k>> {
    keyspace.lock_all_of_unless_busy(keys.iter().map(|key| key.hash))
}

#[inline(never)]
fn lock_many<'k>(keyspace: &'k Keyspace, keys: &[RequestKey]) -> Locked<'k> {
    keyspace.lock_all_of(keys.iter().map(|key| key.hash))
}

/// Returns the argument indexes of a request's keys. Allocates; meant for logs.
pub fn keys_of_request(registered: &'static Registered, args: &Args<'_>) -> Vec<usize> {
    if !registered.command.accepts(args.len()) {
        return Vec::new();
    }
    RequestKeys::find(registered, args).as_slice().iter().map(|key| key.at as usize).collect()
}

/// A request that is ready to run: its command was found, and its keys are hashed.
pub struct Request<'a> {
    /// The command table's entry of the request's command.
    pub registered: &'static Registered,
    /// The words of the request: the command's name and its arguments.
    pub args: Args<'a>,
    /// The indexes of the words that are keys, with the hashes of the keys.
    pub keys: RequestKeys,
}

impl<'a> Request<'a> {
    /// Creates a request, whose number of arguments was checked, and finds its keys. O(keys).
    #[inline]
    pub fn new(registered: &'static Registered, args: Args<'a>) -> Self {
        Self { registered, args, keys: RequestKeys::find(registered, &args) }
    }

    /// Creates a request whose key was not hashed at parse time. The arguments keep the hash, so
    /// that the handler need not compute it again. O(keys).
    pub fn unhashed(registered: &'static Registered, args: Args<'a>) -> Self {
        let request = Self::new(registered, args);
        match request.keys {
            RequestKeys::One(key) => Self { args: args.with_first_key(key.at as usize, key.hash), ..request },
            RequestKeys::None | RequestKeys::Many(_) => request,
        }
    }

    /// Returns the name and the hash of each key of the request.
    pub fn named_keys(&self) -> impl Iterator<Item = Key<'a>> {
        self.keys.as_slice().iter().map(|key| Key { bytes: self.args.get(key.at as usize), hash: key.hash })
    }

    /// Returns the total length of the request's words, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.args.from(0).map(<[u8]>::len).sum()
    }
}

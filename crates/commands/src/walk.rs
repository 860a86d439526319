//! Walkers: commands that visit a whole database (SCAN, KEYS, DBSIZE), draw from it (RANDOMKEY) or
//! change it as a whole (FLUSHDB, SWAPDB).
//!
//! A walker names no keys, so no shard is locked for it. It gets the keyspace itself, which locks
//! one shard at a time. A [`Handler`](crate::Handler) gets a [`View`](keyspace::View) of its locked
//! keys instead, and cannot visit other keys. A walker with the flag EXCLUSIVE runs as the
//! exclusive owner of the keyspace. Any other walker runs in parallel with the commands of other
//! threads.
//!
//! A walker does not remove the keys that it finds expired. A removal is a change like any other:
//! watchers, blocked clients, client caches and keyspace events depend on it, under the lock of the
//! key's shard. The walker passes the key to [`WalkCtx::expired`], and the engine removes it after
//! the walker has returned.

use keyspace::Keyspace;
use keyspace::view::AccessContext;
use resp::Reply;

use crate::args::Args;
use crate::ctx::Changes;
use crate::error::CommandError;

/// The function that runs a walker, a command on whole databases.
///
/// # Errors
/// The error reply for the client. The engine then drops the reply written so far.
pub type Walker = fn(&mut WalkCtx<'_>, &Args<'_>) -> Result<Walked, CommandError>;

/// The outcome of one call of a walker, a command on whole databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The walker (a command on whole databases) has replied.
    Done,
    /// The walker has not replied. The engine calls it again when the keys that it found expired
    /// are removed.
    Again,
}

/// The context of a walker: everything that the walker can use.
pub struct WalkCtx<'a> {
    /// The keyspace with all databases. No shard of it is locked.
    pub keyspace: &'a Keyspace,
    /// The number of the client's selected database.
    pub db: usize,
    /// The current time, and the treatment of expired keys.
    pub access_context: AccessContext,
    /// The encoder to which the walker writes its reply.
    pub reply: Reply<'a>,
    /// The changes that the walker made to the data: to whole databases, not to single keys.
    pub effects: &'a mut Changes,
    /// The random number generator of the thread. Tests seed it, so they are repeatable.
    pub rng: &'a mut fastrand::Rng,
    /// The number of earlier calls of the walker for the same request.
    pub calls_before: usize,
    /// The keys of the selected database that the walker found expired. The engine removes those
    /// that are still expired after the walker has returned: see [`WalkCtx::expired`].
    pub due: Vec<Box<[u8]>>,
}

impl WalkCtx<'_> {
    /// Asks the engine to remove a key of the selected database that the walker found expired. Does
    /// nothing if expired keys stay ([`AccessContext::removes_due`]).
    pub fn expired(&mut self, key: Box<[u8]>) {
        if self.access_context.removes_due() {
            self.due.push(key);
        }
    }
}

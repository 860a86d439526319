//! Walkers: commands that visit a whole database (SCAN, KEYS, DBSIZE), draw from it (RANDOMKEY) or
//! change it as a whole (FLUSHDB, SWAPDB).
//!
//! A walker names no keys, so nothing is locked for it. It has the keyspace itself, which locks one
//! shard at a time, where a [`Handler`](crate::Handler) has a [`View`](keyspace::View) on its
//! locked keys: neither can do what the other does. A walker with the flag EXCLUSIVE runs as the
//! exclusive owner of the keyspace, any other beside what other threads do.
//!
//! A walker removes no key that it finds expired, because that is a change like any other:
//! watchers, blocked clients, client caches and keyspace events depend on it, under the lock of
//! the key's shard. It hands the key to [`WalkCtx::expired`], and the engine removes it when
//! the walker has returned.

use keyspace::Keyspace;
use keyspace::view::AccessContext;
use resp::Reply;

use crate::args::Args;
use crate::ctx::Changes;
use crate::error::CommandError;

/// The function that runs a walker.
///
/// # Errors
/// What the client is replied; what was written to the reply is taken back then.
pub type Walker = fn(&mut WalkCtx<'_>, &Args<'_>) -> Result<Walked, CommandError>;

/// What a walker came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// It has replied.
    Done,
    /// It has not replied: it is to be called again when the keys that it
    /// found expired are removed.
    Again,
}

/// A walker's surroundings.
pub struct WalkCtx<'a> {
    /// All databases. No shard is locked.
    pub keyspace: &'a Keyspace,
    /// The number of the selected database.
    pub db: usize,
    /// The time, and what becomes of expired keys.
    pub access_context: AccessContext,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// What the command did to the data: to whole databases, not to single keys.
    pub effects: &'a mut Changes,
    /// Random numbers: seeded once per thread, so tests are repeatable.
    pub rng: &'a mut fastrand::Rng,
    /// How often the walker was called for this request before.
    pub calls_before: usize,
    /// Keys of the selected database to remove, if they are still expired then:
    /// see [`WalkCtx::expired`].
    pub due: Vec<Box<[u8]>>,
}

impl WalkCtx<'_> {
    /// Has the engine remove a key of the selected database that the walker found expired, unless
    /// expired keys stay ([`AccessContext::removes_due`]).
    pub fn expired(&mut self, key: Box<[u8]>) {
        if self.access_context.removes_due() {
            self.due.push(key);
        }
    }
}

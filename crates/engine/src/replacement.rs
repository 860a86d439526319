//! The notices to clients when all data is replaced by other code than commands, for example by the
//! load of a primary's snapshot.

use keyspace::Exclusive;

use crate::shared::Shared;
use crate::threads::Outbox;
use crate::track::{OwnMessages, Place, Writer};

impl Shared {
    /// Marks the watchers of all keys that exist, expired or not, so that their transactions fail.
    /// The caller owns the keyspace exclusively and has changed or is about to change all keys.
    /// O(watched keys).
    pub fn mark_all_watchers(&self, _alone: &Exclusive) {
        let dbs: Vec<usize> = (0..self.keyspace.db_count()).collect();
        for (db, key) in self.watchers.keys_of(&dbs) {
            let key = self.keyspace.hasher().key(&key);
            let shard = self.keyspace.lock(key.shard());
            if shard.is_live(db, key, i64::MIN) {
                self.watchers.mark(&shard, (db, key));
            }
        }
    }

    /// Sends an invalidation of all keys to all tracking clients, and empties the tracking tables.
    /// The caller owns the keyspace exclusively and is about to remove all keys. O(shards + tracked
    /// keys).
    pub fn invalidate_all_caches(&self, _alone: &Exclusive, outbox: &Outbox) {
        self.tracking.forget_all(&self.keyspace);
        let mut own = OwnMessages::default();
        let sender = self.sender(None, outbox, self.log.drawn());
        self.tracking.invalidate_all(sender, &mut Writer { client: 0, own: &mut own }, Place::Behind);
    }
}

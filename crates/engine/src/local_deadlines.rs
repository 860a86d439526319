//! The keys to which clients of a writable replica have given a deadline.
//!
//! The primary removes the expired keys of a replica, but it does not know of the deadlines that
//! clients of the replica have set. So the replica removes these keys itself, as Redis does. Their
//! names are kept until the deadline has passed, or until all data is replaced or the role changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use structures::lock::Lock;

/// The name of a key, with the number of its database.
pub type Named = (usize, Box<[u8]>);

/// The keys with deadlines set by clients of this replica; see the module. No other lock is taken
/// under the lock of this set.
pub struct LocalDeadlines {
    keys: Lock<Keys>,
    count: AtomicUsize,
}

#[derive(Default)]
struct Keys {
    /// The last recorded deadline of each key, in Unix milliseconds.
    deadlines: HashMap<Named, i64>,
    /// The keys of `deadlines` with their deadlines, the earliest deadline first.
    queue: BTreeSet<(i64, Named)>,
}

impl Default for LocalDeadlines {
    fn default() -> Self {
        Self { keys: Lock::new(Keys::default()), count: AtomicUsize::new(0) }
    }
}

impl LocalDeadlines {
    /// Records that a key has the deadline `at_ms`, in Unix milliseconds. O(log keys).
    pub fn note(&self, key: Named, at_ms: i64) {
        let mut keys = self.keys.lock();
        match keys.deadlines.insert(key.clone(), at_ms) {
            Some(former_ms) if former_ms == at_ms => return,
            Some(former_ms) => _ = keys.queue.remove(&(former_ms, key.clone())),
            None => {}
        }
        keys.queue.insert((at_ms, key));
        self.count.store(keys.queue.len(), Relaxed);
    }

    /// Removes and returns a key whose recorded deadline is at or before `due_ms`. The key itself
    /// may have another deadline by now, or none. O(log keys).
    pub fn take_due(&self, due_ms: i64) -> Option<Named> {
        if self.is_empty() {
            return None;
        }
        let mut keys = self.keys.lock();
        let is_due = keys.queue.first().is_some_and(|(at_ms, _)| *at_ms <= due_ms);
        let (_, key) = if is_due { keys.queue.pop_first()? } else { return None };
        keys.deadlines.remove(&key);
        self.count.store(keys.queue.len(), Relaxed);
        Some(key)
    }

    /// Removes from the set the keys of the databases for which `is_emptied` returns true. O(keys).
    pub fn forget(&self, is_emptied: impl Fn(usize) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut keys = self.keys.lock();
        keys.deadlines.retain(|key, _| !is_emptied(key.0));
        keys.queue.retain(|(_, key)| !is_emptied(key.0));
        self.count.store(keys.queue.len(), Relaxed);
    }

    /// Removes all keys from the set, because the data was replaced or the role has changed.
    pub fn clear(&self) {
        let keys = std::mem::take(&mut *self.keys.lock());
        self.count.store(0, Relaxed);
        drop(keys);
    }

    /// Returns the number of keys with deadlines that clients of this replica have set.
    pub fn len(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns true if no key has a deadline that a client of this replica has set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Named {
        (0, name.as_bytes().into())
    }

    #[test]
    fn keys_are_taken_once_their_last_deadline_has_passed() {
        let deadlines = LocalDeadlines::default();
        deadlines.note(key("a"), 30);
        deadlines.note(key("b"), 10);
        deadlines.note(key("b"), 20);
        deadlines.note(key("b"), 20);
        assert_eq!((deadlines.len(), deadlines.take_due(19)), (2, None));
        assert_eq!((deadlines.take_due(20), deadlines.take_due(20)), (Some(key("b")), None));
        deadlines.note((5, b"a"[..].into()), 25);
        assert_eq!(deadlines.take_due(99), Some((5, b"a"[..].into())));
        assert_eq!(deadlines.len(), 1);
        deadlines.note((5, b"b"[..].into()), 40);
        deadlines.forget(|db| db == 5);
        assert_eq!((deadlines.len(), deadlines.take_due(99)), (1, Some(key("a"))));
        deadlines.note(key("a"), 30);
        deadlines.clear();
        assert_eq!((deadlines.take_due(99), deadlines.is_empty()), (None, true));
    }
}

//! The queue of keys that have changed, or may have changed, after they were copied.
//!
//! A key is in the queue once, however often it changes. It stays there for a while before it is
//! copied: so a key that changes all the time is copied a few times per second, not for each
//! change. The memory is bounded: a full queue refuses keys, and the caller then copies everything
//! again.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use crate::key::Key;

/// The bytes that a queued key uses besides its name, as an estimate.
const OVERHEAD_BYTES: usize = 112;

/// The result of adding a changed key to the queue ([`ChangedKeys::push`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The key was not in the queue and was added.
    Added,
    /// The key was in the queue already; nothing was added.
    Known,
    /// The queue is full of changed keys, and the key was not added.
    Full,
}

/// The changed keys of one lane that wait to be copied. A lane copies a share of all keys. The
/// oldest change comes first.
#[derive(Debug)]
pub struct ChangedKeys {
    waiting: VecDeque<(u64, Rc<Key>)>,
    known: HashSet<Rc<Key>>,
    len_bytes: usize,
    len_bytes_max: usize,
}

impl ChangedKeys {
    /// Creates an empty queue that uses at most about `len_bytes_max` bytes.
    pub fn new(len_bytes_max: usize) -> Self {
        Self { waiting: VecDeque::new(), known: HashSet::new(), len_bytes: 0, len_bytes_max }
    }

    /// Adds `key`, which changed at `now_ns` (nanoseconds), to the queue unless it is there
    /// already.
    pub fn push(&mut self, key: Key, now_ns: u64) -> Pushed {
        if self.known.contains(&key) {
            return Pushed::Known;
        }
        let cost = key.name.len() + OVERHEAD_BYTES;
        if self.len_bytes + cost > self.len_bytes_max {
            return Pushed::Full;
        }
        self.len_bytes += cost;
        let key = Rc::new(key);
        self.known.insert(Rc::clone(&key));
        self.waiting.push_back((now_ns, key));
        Pushed::Added
    }

    /// Removes and returns the key that was added first, if it was added at `until_ns` or before;
    /// otherwise returns `None`.
    pub fn pop(&mut self, until_ns: u64) -> Option<Key> {
        if self.waiting.front()?.0 > until_ns {
            return None;
        }
        let (_, key) = self.waiting.pop_front()?;
        self.known.remove(&key);
        self.len_bytes -= key.name.len() + OVERHEAD_BYTES;
        Some(Rc::unwrap_or_clone(key))
    }

    /// Returns the number of changed keys in the queue.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if the queue holds no changed key.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(0, name.as_bytes())
    }

    #[test]
    fn a_key_is_queued_once_until_it_is_taken() {
        let mut changed = ChangedKeys::new(10_000);
        assert_eq!(changed.push(key("a"), 1), Pushed::Added);
        assert_eq!(changed.push(key("a"), 2), Pushed::Known);
        assert_eq!(changed.push(Key::new(1, b"a"), 3), Pushed::Added);
        assert_eq!(changed.pop(0), None, "it is too young");
        assert_eq!(changed.pop(1), Some(key("a")));
        assert_eq!(changed.push(key("a"), 4), Pushed::Added);
        assert_eq!(changed.pop(9), Some(Key::new(1, b"a")));
        assert_eq!(changed.pop(9), Some(key("a")));
        assert_eq!(changed.pop(9), None);
        assert_eq!(changed.len_bytes, 0);
    }

    #[test]
    fn a_full_queue_refuses_keys_and_has_room_again_later() {
        let mut changed = ChangedKeys::new(2 * (OVERHEAD_BYTES + 1));
        assert_eq!(changed.push(key("a"), 1), Pushed::Added);
        assert_eq!(changed.push(key("b"), 1), Pushed::Added);
        assert_eq!(changed.push(key("c"), 1), Pushed::Full);
        assert_eq!(changed.push(key("a"), 1), Pushed::Known);
        assert!(changed.pop(1).is_some());
        assert_eq!(changed.push(key("c"), 1), Pushed::Added);
        assert_eq!(changed.len(), 2);
    }
}

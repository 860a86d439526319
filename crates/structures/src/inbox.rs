//! A list behind a lock: other threads append to it and one thread takes all items at once. A flag
//! makes the owner check the list, and shows other senders that the owner was notified.
//!
//! ```text
//!   sender                                   owner, each turn
//!   lock, append, unlock                     filled? ─no─▶ nothing
//!   swap filled to true                      swap filled to false
//!   it was false ─▶ notify the owner         lock, take all, unlock
//! ```
//! A sender notifies the owner (by a message that wakes it) only if that sender raised the flag.
//! The owner clears the flag before it takes the items. An item that is appended after that raises
//! the flag again: the owner is notified once more and may then find nothing. An item that was
//! appended before is among the taken ones: the append precedes the sender's swap, which precedes
//! the owner's swap. So no item stays without a notification. If the notification fails because the
//! owner's mailbox is full, the owner is awake. It checks the flag in the turn that empties the
//! mailbox.
//!
//! Proven under loom, with the mailbox and a sleeping owner: tests/loom_waiting.rs. O(1) to put and
//! to take. There is no limit: the number of items must be bounded elsewhere.

use crate::lock::Lock;
use crossbeam_utils::CachePadded;
use stdx::sync::AtomicBool;
use stdx::sync::Ordering::{Acquire, SeqCst};

/// A list to which many threads append items and from which one thread, the owner, takes them. `C`
/// is the collection of items.
pub struct Inbox<C> {
    items: Lock<C>,
    is_filled: CachePadded<AtomicBool>,
}

impl<C: Default> Default for Inbox<C> {
    fn default() -> Self {
        Self { items: Lock::new(C::default()), is_filled: CachePadded::new(AtomicBool::new(false)) }
    }
}

impl<C: Default> Inbox<C> {
    /// Appends an item to the inbox: calls `put` with the locked list. Any thread may call it.
    /// Returns true if the caller must notify the owner; false if another sender does so.
    #[must_use = "the owner may sleep for ever beside what is left for it"]
    pub fn leave(&self, put: impl FnOnce(&mut C)) -> bool {
        put(&mut self.items.lock());
        // SeqCst: its release pairs with the owner's swap. It also orders the flag before the
        // sender's check of the state "the owner sleeps".
        !self.is_filled.swap(true, SeqCst)
    }

    /// Removes all items from the inbox and returns them. Returns `None` if no sender has raised
    /// the flag since the last call. Only the owner may call it.
    pub fn take(&self) -> Option<C> {
        // The plain load comes first: while nothing arrives, it leaves the cache line shared.
        if !self.is_filled.load(Acquire) || !self.is_filled.swap(false, SeqCst) {
            return None;
        }
        Some(std::mem::take(&mut *self.items.lock()))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Inbox;

    #[test]
    fn the_owner_is_told_once_until_it_takes_all() {
        let inbox: Inbox<Vec<u32>> = Inbox::default();
        assert_eq!(inbox.take(), None);
        assert!(inbox.leave(|list| list.push(1)));
        assert!(!inbox.leave(|list| list.push(2)));
        assert_eq!(inbox.take(), Some(vec![1, 2]));
        assert_eq!(inbox.take(), None);
        assert!(inbox.leave(|list| list.push(3)));
    }
}

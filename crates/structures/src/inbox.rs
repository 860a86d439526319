//! A list behind a lock that other threads append to and one thread takes all at once. A flag
//! makes the owner look, and shows other senders that it was notified.
//!
//! ```text
//!   sender                                   owner, each turn
//!   lock, append, unlock                     filled? ─no─▶ nothing
//!   swap filled to true                      swap filled to false
//!   it was false ─▶ notify the owner         lock, take all, unlock
//! ```
//! A sender notifies the owner (by a message that wakes it) only if it is the one that raised the
//! flag. The owner clears the flag before it takes. An item appended behind that raises the flag
//! anew: the owner is notified once more, at worst to find nothing. An item appended before is
//! among those it takes, because the append is before the sender's swap, which is before the
//! owner's. So no item stays without a notification. If the notification fails because the owner's
//! mailbox is full, the owner is awake and checks the flag in the turn that empties the mailbox.
//!
//! Proven under loom, with the mailbox and a sleeping owner: tests/loom_waiting.rs. O(1) to put
//! and to take. There is no limit: the kind of items must be bounded.

use crate::lock::Lock;
use crossbeam_utils::CachePadded;
use stdx::sync::AtomicBool;
use stdx::sync::Ordering::{Acquire, SeqCst};

/// Left by many threads, taken by one. `C` holds what they leave.
pub struct Inbox<C> {
    contents: Lock<C>,
    is_filled: CachePadded<AtomicBool>,
}

impl<C: Default> Default for Inbox<C> {
    fn default() -> Self {
        Self { contents: Lock::new(C::default()), is_filled: CachePadded::new(AtomicBool::new(false)) }
    }
}

impl<C: Default> Inbox<C> {
    /// Appends something by `put`, from any thread. Returns true if the caller must notify the
    /// owner; nobody else will.
    #[must_use = "the owner may sleep for ever beside what is left for it"]
    pub fn leave(&self, put: impl FnOnce(&mut C)) -> bool {
        put(&mut self.contents.lock());
        // SeqCst: its release pairs with the owner's swap, and puts the flag before the sender's
        // look at whether the owner sleeps.
        !self.is_filled.swap(true, SeqCst)
    }

    /// Takes all items, `None` if there is nothing new; for the owner.
    pub fn take(&self) -> Option<C> {
        // The plain look first: where nothing comes, the line stays shared.
        if !self.is_filled.load(Acquire) || !self.is_filled.swap(false, SeqCst) {
            return None;
        }
        Some(std::mem::take(&mut *self.contents.lock()))
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

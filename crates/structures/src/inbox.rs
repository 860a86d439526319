//! What other threads leave for one thread, to be taken all at once: a list behind a lock, and a
//! flag that tells its owner to look and others that it was told.
//!
//! ```text
//!   sender                                   owner, each turn
//!   lock, append, unlock                     filled? ─no─▶ nothing
//!   swap filled to true                      swap filled to false
//!   it was false ─▶ tell the owner           lock, take all, unlock
//! ```
//! A sender tells the owner (by a message that wakes it) only when it is the one that raised the
//! flag. The owner lowers the flag before it takes: what is appended behind that raises it anew,
//! and the owner is told once more, at worst to find nothing. What is appended before is among what
//! it takes, as the appending is before the sender's swap, which is before the owner's. So nothing
//! stays that the owner is not told of. If the telling fails because the owner's mailbox is full,
//! the owner is awake and looks at the flag in the turn that empties the mailbox.
//! Proven under loom, with the mailbox and a sleeping owner: tests/loom_waiting.rs.
//! O(1) to put and to take. No limit of its own: what is put in must be bounded by its kind.

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
    /// Any thread: leaves something by `put`. True: the caller must tell the owner to
    /// look, nobody else will.
    #[must_use = "the owner may sleep for ever beside what is left for it"]
    pub fn leave(&self, put: impl FnOnce(&mut C)) -> bool {
        put(&mut self.contents.lock());
        // SeqCst: its release pairs with the owner's swap, and puts the flag before the sender's
        // look at whether the owner sleeps.
        !self.is_filled.swap(true, SeqCst)
    }

    /// Owner: takes all that was left, `None` when there is nothing new.
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

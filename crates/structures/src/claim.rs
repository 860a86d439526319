//! A state that several threads try to end, and that exactly one of them ends. An example is a
//! blocked client: a writer serves it, its own thread ends the wait on timeout, or another thread
//! cancels the wait.
//!
//! It is one lock around one bool. The thread that ends the claim does so under the lock, together
//! with the work that may be done only once (taking the element, sending the reply). That work is
//! therefore finished when another thread finds the claim ended. Invariant: an ended claim stays
//! ended. O(1); the longest work under the lock is the closure of [`Claim::end_if`]. Checked with
//! loom, together with the inbox that carries the reply: tests/loom_waiting.rs.

use crate::lock::Lock;

/// A state that ends once, ended by exactly one of several threads, such as the wait of a blocked
/// client. See the module's comment.
pub struct Claim(Lock<bool>);

impl Default for Claim {
    fn default() -> Self {
        Self(Lock::new(false))
    }
}

impl Claim {
    /// Returns true if the claim has ended. If it has not, another thread may end it at any moment.
    pub fn is_over(&self) -> bool {
        *self.0.lock()
    }

    /// Ends the claim. Returns true if this call ended it.
    pub fn end(&self) -> bool {
        !std::mem::replace(&mut *self.0.lock(), true)
    }

    /// Runs `act` under the lock unless the claim has ended, and ends the claim if `act` returns
    /// true. Other threads that use the claim wait meanwhile. Returns true if this call ended the
    /// claim.
    pub fn end_if(&self, act: impl FnOnce() -> bool) -> bool {
        let mut over = self.0.lock();
        if *over {
            return false;
        }
        *over = act();
        *over
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Claim;

    #[test]
    fn it_ends_once() {
        let claim = Claim::default();
        assert!(!claim.end_if(|| false) && !claim.is_over());
        assert!(claim.end_if(|| true) && claim.is_over());
        assert!(!claim.end() && !claim.end_if(|| panic!("it has ended")));
    }
}

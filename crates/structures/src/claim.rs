//! Something that several threads want to end and one may: the wait of a client, which a writer
//! serves, its own thread gives up when time is over, or somebody cancels.
//!
//! One lock around one bool. Who ends it does so under the lock, so whatever belongs to the end
//! (taking the element, handing over the reply) has happened when others find it ended, and none of
//! it twice. Invariant: it never goes back. O(1); the longest work under the lock is the closure of
//! [`Claim::end_if`]. Proven under loom together with the inbox that the reply goes through:
//! tests/loom_waiting.rs.

use crate::lock::Lock;

/// Ended once, by one of several threads.
pub struct Claim(Lock<bool>);

impl Default for Claim {
    fn default() -> Self {
        Self(Lock::new(false))
    }
}

impl Claim {
    /// Returns true if the claim has ended. It may end at any moment.
    pub fn is_over(&self) -> bool {
        *self.0.lock()
    }

    /// Ends it; whether it was this call that did.
    pub fn end(&self) -> bool {
        !std::mem::replace(&mut *self.0.lock(), true)
    }

    /// Ends it if `act` says so, which runs unless it has ended, with all others waiting; whether
    /// it was this call that did.
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

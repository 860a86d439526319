//! The failover of this server, as its threads share it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use replicate::failover::Failover;

/// The failover of this server, or none. It changes from one server to another under the exclusive
/// ownership of the keyspace only.
#[derive(Default)]
pub struct SharedFailover {
    failover: Mutex<Failover>,
    /// True while the thread of a failover checks the replicas or waits for acknowledgements.
    is_awaited: AtomicBool,
    /// Notified when a replica acknowledges, and at the end of a failover.
    news: Condvar,
}

impl SharedFailover {
    /// Locks the failover. Meanwhile only the table of replicas may be locked.
    pub fn lock(&self) -> MutexGuard<'_, Failover> {
        self.failover.lock().expect("nothing panics while the failover is locked")
    }

    /// Returns true if a failover has begun and has not ended.
    pub fn is_on(&self) -> bool {
        self.lock().is_on()
    }

    /// Locks the failover to check the replicas. Afterwards the caller may
    /// [`wait`](Self::wait).
    pub fn lock_to_wait(&self) -> MutexGuard<'_, Failover> {
        // Relaxed: the lock of the table of replicas orders it. Who acknowledges after the caller's
        // look at the table sees it.
        self.is_awaited.store(true, Relaxed);
        self.lock()
    }

    /// Waits for an acknowledgement or the end of the failover, at most for `time_ms` milliseconds.
    /// `failover` is the lock under which the caller has found nothing to do.
    pub fn wait(&self, failover: MutexGuard<'_, Failover>, time_ms: u64) {
        let waited = self.news.wait_timeout(failover, Duration::from_millis(time_ms));
        drop(waited.expect("nothing panics while the failover is locked"));
        self.is_awaited.store(false, Relaxed);
    }

    /// Wakes the thread of a failover to check the replicas. Costs one load without a failover.
    pub fn notify(&self) {
        // Relaxed: see `lock_to_wait`. If another thread has just stopped to wait, the next one
        // looks again after its time.
        if self.is_awaited.load(Relaxed) {
            // The waiter has the lock from its look at the replicas until it sleeps.
            drop(self.lock());
            self.news.notify_all();
        }
    }
}

//! The state of this server's failover, shared by its threads.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use replicate::failover::Failover;

/// The state of this server's failover, and the means to wait for acknowledgements during it. The
/// role of the server changes under the exclusive ownership of the keyspace only.
#[derive(Default)]
pub struct SharedFailover {
    failover: Mutex<Failover>,
    /// True while the thread `failover` checks the replicas or waits for acknowledgements.
    is_awaited: AtomicBool,
    /// The condition variable on which the thread `failover` waits. Notified when a replica
    /// acknowledges, and at the end of a failover.
    news: Condvar,
}

impl SharedFailover {
    /// Locks the state of the failover. While it is locked, the caller may only lock the table of
    /// replicas.
    pub fn lock(&self) -> MutexGuard<'_, Failover> {
        self.failover.lock().expect("nothing panics while the failover is locked")
    }

    /// Returns true if a failover has begun and has not ended.
    pub fn is_on(&self) -> bool {
        self.lock().is_on()
    }

    /// Locks the state of the failover, for a caller that then checks the replicas and may
    /// [`wait`](Self::wait).
    pub fn lock_to_wait(&self) -> MutexGuard<'_, Failover> {
        // Relaxed: the lock of the table of replicas orders it. A thread that records an
        // acknowledgement after the caller's check of the table sees the flag.
        self.is_awaited.store(true, Relaxed);
        self.lock()
    }

    /// Waits for an acknowledgement or the end of the failover, at most for `time_ms` milliseconds.
    /// `failover` is the lock from [`lock_to_wait`](Self::lock_to_wait).
    pub fn wait(&self, failover: MutexGuard<'_, Failover>, time_ms: u64) {
        let waited = self.news.wait_timeout(failover, Duration::from_millis(time_ms));
        drop(waited.expect("nothing panics while the failover is locked"));
        self.is_awaited.store(false, Relaxed);
    }

    /// Wakes the thread `failover`, which then checks the replicas. Costs one atomic load if it
    /// does not wait.
    pub fn notify(&self) {
        // Relaxed: see `lock_to_wait`. A thread that ends its wait clears the flag. Another waiting
        // thread may then miss this call; it checks again after its time limit.
        if self.is_awaited.load(Relaxed) {
            // The waiting thread holds the lock from its check of the replicas until it sleeps.
            drop(self.lock());
            self.news.notify_all();
        }
    }
}

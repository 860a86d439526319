//! Requests of other threads to the thread that owns the connections of replicas.

use std::sync::{Mutex, OnceLock};

use net::Waker;

use super::Replication;

/// The requests that wait for the thread.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The clients to disconnect. The lock is a leaf.
    kills: Mutex<Vec<u64>>,
    /// The waker of the thread's event loop, once the thread runs.
    waker: OnceLock<Waker>,
}

impl Replication {
    /// Sets the waker of the thread that owns the connections of replicas. Only the first call has
    /// an effect.
    pub fn set_waker(&self, waker: Waker) {
        let _ = self.requests.waker.set(waker);
    }

    /// Wakes the thread that owns the connections of replicas, if it runs. It then takes the
    /// requests, and sends what was appended to the stream.
    pub fn wake(&self) {
        if let Some(waker) = self.requests.waker.get()
            && let Err(error) = waker.wake()
        {
            tracing::error!(%error, "cannot wake the thread of the replicas");
        }
    }

    /// Requests that a replica is disconnected. Its client is no longer registered.
    pub fn kill(&self, client: u64) {
        self.kills().push(client);
        self.wake();
    }

    /// Takes the clients to disconnect.
    pub fn take_kills(&self) -> Vec<u64> {
        std::mem::take(&mut *self.kills())
    }

    fn kills(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.requests.kills.lock().expect("nothing panics while the kills are locked")
    }
}

#[cfg(test)]
mod tests {
    use replicate::history::ReplId;

    use super::*;

    #[test]
    fn each_kill_is_taken_once() {
        let replication = Replication::new(ReplId::NONE);
        replication.kill(3);
        replication.kill(5);
        assert_eq!((replication.take_kills(), replication.take_kills()), (vec![3, 5], vec![]));
    }
}

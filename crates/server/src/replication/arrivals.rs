//! The handshakes and synchronisation requests of replicas whose connections still belong to I/O
//! threads.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};

use replicate::handshake::Handshake;
use replicate::replica::Dialect;

/// A request of a replica for synchronisation, by PSYNC or SYNC.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The properties that the replica has announced with REPLCONF.
    pub handshake: Handshake,
    /// The command by which the replica requested the data: PSYNC or SYNC.
    pub dialect: Dialect,
    /// The replication ID in the PSYNC; `?` if the replica has no data.
    pub id: Vec<u8>,
    /// The 1-based offset in the PSYNC of the next byte that the replica needs; -1 if it has no
    /// data.
    pub next: i64,
}

/// The announced properties of one connection, and its synchronisation request if it has sent one.
#[derive(Debug, Default)]
struct Entry {
    handshake: Handshake,
    request: Option<(Dialect, Vec<u8>, i64)>,
}

/// The handshakes and synchronisation requests of connections that are about to become replicas, by
/// the ids of their clients. No other lock is taken under the lock.
#[derive(Debug, Default)]
pub struct Arrivals {
    entries: Mutex<HashMap<u64, Entry>>,
    /// The number of connections with a handshake or a synchronisation request. While it is 0,
    /// [`forget`](Self::forget) costs only one atomic load.
    count: AtomicUsize,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().expect("nothing panics while arrivals are locked")
    }

    /// Calls `change` with the announced properties of a client. Returns its result.
    pub fn with_handshake<R>(&self, client: u64, change: impl FnOnce(&mut Handshake) -> R) -> R {
        let mut entries = self.lock();
        let result = change(&mut entries.entry(client).or_default().handshake);
        self.count.store(entries.len(), Relaxed);
        result
    }

    /// Records the PSYNC or SYNC of a client. The connection then moves to the thread `repl`.
    pub fn ask(&self, client: u64, dialect: Dialect, (id, next): (Vec<u8>, i64)) {
        let mut entries = self.lock();
        entries.entry(client).or_default().request = Some((dialect, id, next));
        self.count.store(entries.len(), Relaxed);
    }

    /// Removes the synchronisation request of a client, whose connection has left its I/O thread's
    /// loop, and returns it. `None` if there is none.
    pub fn take(&self, client: u64) -> Option<SyncRequest> {
        let Entry { handshake, request } = self.remove(client)?;
        request.map(|(dialect, id, next)| SyncRequest { handshake, dialect, id, next })
    }

    /// Removes the handshake of a client that has disconnected. Costs one atomic load if no
    /// connection has a handshake.
    pub fn forget(&self, client: u64) {
        if self.count.load(Relaxed) > 0 {
            self.remove(client);
        }
    }

    fn remove(&self, client: u64) -> Option<Entry> {
        let mut entries = self.lock();
        let entry = entries.remove(&client);
        self.count.store(entries.len(), Relaxed);
        entry
    }
}

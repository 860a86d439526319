//! The registry of the connected clients. While `maxmemory-clients` is set, the registry also keeps
//! the memory of each client and the sum over all clients.
//!
//! One lock guards both, so every removal of a client also subtracts its memory from the sum.
//! Whenever the lock is free, the sum is exact for the last counted sizes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::client::ClientInfo;

/// All clients of all threads. No other lock is taken under their lock. It is taken when a client
/// connects, disconnects or is killed, and by CLIENT LIST and similar commands. While the memory of
/// clients is limited, it is also taken when the memory of a client has changed, or the sum is
/// above the limit.
#[derive(Debug, Default)]
pub struct Clients {
    registry: Mutex<Registry>,
    last_id: AtomicU64,
    /// The memory of the counted clients, in bytes. Written under the lock.
    memory_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Registry {
    by_id: BTreeMap<u64, Arc<ClientInfo>>,
    /// The clients that may be evicted and whose memory is counted, ordered by the [`size_class`]
    /// of their counted size. Within one class the oldest client comes last.
    by_size: BTreeSet<SizeKey>,
}

type SizeKey = (u32, Reverse<u64>);

/// Returns the class of a client's memory size. Each power of two has eight classes, so the sizes
/// in a class differ by an eighth at most. A larger size has the same class or a higher one.
fn size_class(bytes: u64) -> u32 {
    let bytes = bytes.max(8);
    let log = bytes.ilog2();
    (log << 3) | (bytes >> (log - 3)) as u32 & 7
}

/// Returns the key of a client in `by_size`; `None` if the client's memory is not counted or the
/// client is protected. The state that the key depends on changes only under the registry's lock.
fn size_key(client: &ClientInfo) -> Option<SizeKey> {
    let counted_bytes = client.held.counted_bytes.load(Relaxed);
    let is_in_order = counted_bytes > 0 && !client.choices.no_evict.load(Relaxed);
    is_in_order.then(|| (size_class(counted_bytes), Reverse(client.id)))
}

impl Registry {
    fn set_key(&mut self, old: Option<SizeKey>, new: Option<SizeKey>) {
        if old != new {
            old.map(|key| self.by_size.remove(&key));
            new.map(|key| self.by_size.insert(key));
        }
    }
}

impl Clients {
    /// Returns the id for the next client. The first id is 1.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Adds a client that has connected to the registry. O(log n).
    pub fn add(&self, info: Arc<ClientInfo>) {
        self.lock().by_id.insert(info.id, info);
    }

    /// Removes a client from the registry, and returns it if it was registered. O(log n).
    pub fn remove(&self, id: u64) -> Option<Arc<ClientInfo>> {
        let mut registry = self.lock();
        let client = registry.by_id.remove(&id)?;
        self.set_counted(&mut registry, &client, 0);
        Some(client)
    }

    /// Marks a client as a replica. Returns false if the client is not registered any more, because
    /// it was killed. The memory of replicas is not counted, and they are not evicted. O(log n).
    pub(crate) fn mark_replica(&self, client: &ClientInfo) -> bool {
        let mut registry = self.lock();
        let is_registered = registry.by_id.contains_key(&client.id);
        if is_registered {
            self.set_counted(&mut registry, client, 0);
            client.state.replica.store(true, Relaxed);
        }
        is_registered
    }

    /// Returns the connected client with this id; `None` if there is none. O(log n).
    pub fn get(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.lock().by_id.get(&id).cloned()
    }

    /// Returns all connected clients, ordered by id. O(n).
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Returns the number of connected clients, including replicas.
    pub fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Returns the memory of all clients whose memory is counted, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    /// Counts the memory that a client makes the server hold now, unless it was removed or is a
    /// replica. Any thread may call this. O(1) and without the lock if nothing has changed, else
    /// O(log n). If several threads count one client at the same time, an older value may remain
    /// until the next count.
    pub fn count_memory(&self, client: &ClientInfo) {
        if client.memory_bytes() == client.held.counted_bytes.load(Relaxed) {
            return;
        }
        let mut registry = self.lock();
        if registry.by_id.contains_key(&client.id) && !client.is_link() {
            self.set_counted(&mut registry, client, client.memory_bytes());
        }
    }

    /// Stops counting the memory of all clients. O(n), or O(1) if none was counted.
    pub fn forget_memory(&self) {
        let mut registry = self.lock();
        if self.memory_bytes() > 0 {
            registry.by_size.clear();
            registry.by_id.values().for_each(|client| client.held.counted_bytes.store(0, Relaxed));
            self.memory_bytes.store(0, Relaxed);
        }
    }

    /// Protects a client from eviction, for CLIENT NO-EVICT ON. The client's memory is still
    /// counted. O(log n).
    pub fn protect(&self, client: &ClientInfo) {
        let mut registry = self.lock();
        registry.set_key(size_key(client), None);
        client.choices.no_evict.store(true, Relaxed);
    }

    /// Allows the eviction of a client again, for CLIENT NO-EVICT OFF. No effect on a client that
    /// is not protected. O(log n).
    pub fn unprotect(&self, client: &ClientInfo) {
        let mut registry = self.lock();
        client.choices.no_evict.store(false, Relaxed);
        registry.set_key(None, size_key(client));
    }

    /// Removes and returns the client to evict next, with its counted bytes, if the counted clients
    /// hold more than `limit_bytes`. It is the oldest unprotected client in the highest size class.
    /// Returns `None` if all clients fit or the remaining ones are protected. O(log n).
    pub fn take_largest_over(&self, limit_bytes: u64) -> Option<(Arc<ClientInfo>, u64)> {
        let mut registry = self.lock();
        if self.memory_bytes() <= limit_bytes {
            return None;
        }
        let (_, Reverse(id)) = *registry.by_size.last()?;
        let client = registry.by_id.remove(&id).expect("who is counted is registered");
        let counted_bytes = client.held.counted_bytes.load(Relaxed);
        self.set_counted(&mut registry, &client, 0);
        Some((client, counted_bytes))
    }

    /// Sets the counted memory of a client, and updates the sum and `by_size`; 0 removes the client
    /// from both.
    fn set_counted(&self, registry: &mut Registry, client: &ClientInfo, bytes: u64) {
        let old = size_key(client);
        let before = client.held.counted_bytes.swap(bytes, Relaxed);
        self.memory_bytes.store(self.memory_bytes() - before + bytes, Relaxed);
        registry.set_key(old, size_key(client));
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().expect("nothing panics while the registry is locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_one_class_differ_by_an_eighth_at_most() {
        for bytes in (8..4096).chain([1 << 40, (1 << 60) - 1]) {
            assert!(size_class(bytes) <= size_class(bytes + 1), "{bytes}");
            assert!(size_class(bytes) < size_class(bytes + bytes.div_ceil(8)), "{bytes}");
        }
    }
}

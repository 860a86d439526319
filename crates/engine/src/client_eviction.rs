//! `maxmemory-clients`: limits the memory that all clients together make the server hold.
//!
//! While there is a limit, [`Clients`] keeps the sum of the memory of its clients. Each thread
//! counts the memory of its clients again after input, after a command, and after a flush that
//! leaves pending output. A thread that finds the sum above the limit evicts the largest clients
//! until the rest fits. It does not evict clients that CLIENT NO-EVICT protects. An evicted client
//! is removed from the registry and from the sum at once; the client's own thread closes the
//! connection. When the limit is set, all clients are counted.
//!
//! An ordered set gives the largest client without reading the others, so many evictions do not
//! sort all clients each time. The check of the limit and the removal are one step under the lock,
//! so threads never evict more clients than necessary.
//!
//! Cost without a limit: one branch per connection and turn. Cost with a limit: a few loads of the
//! client's own counters. In addition the lock of the registry, if they have changed or the sum is
//! above the limit.
//!
//! [`Clients`]: crate::clients::Clients

use crate::client::ClientInfo;
use crate::shared::Shared;
use crate::threads::Outbox;

/// Counts the memory of a client again. Returns true if all clients together hold more than
/// `limit_bytes` (`maxmemory-clients`), which is not 0. O(log n) in clients if the client's memory
/// has changed, else O(1).
pub fn count(shared: &Shared, client: &ClientInfo, limit_bytes: u64) -> bool {
    shared.clients.count_memory(client);
    shared.clients.memory_bytes() > limit_bytes
}

/// Evicts clients until the memory of the rest fits into `limit_bytes`, which is not 0. `thread` is
/// the calling I/O thread. O(log n) in clients for each evicted client.
#[cold]
pub fn evict(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    let Shared { threads, clients, blocked, .. } = shared;
    while let Some((client, bytes)) = threads.evict_one(clients, limit_bytes, outbox) {
        blocked.end_of(&client);
        tracing::warn!(
            client = client.id,
            bytes,
            "client evicted: the memory of all clients exceeds maxmemory-clients"
        );
        threads[thread].stats.evicted_clients.add(1);
    }
}

/// Applies a new `maxmemory-clients`: counts the memory of all clients and evicts those that exceed
/// the limit. A limit of 0 means no limit and stops the counting. O(n log n) in clients.
#[cold]
pub fn set_limit(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    if limit_bytes == 0 {
        return shared.clients.forget_memory();
    }
    for client in shared.clients.all() {
        shared.clients.count_memory(&client);
    }
    evict(shared, thread, outbox, limit_bytes);
}

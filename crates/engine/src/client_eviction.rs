//! `maxmemory-clients`: limits the memory that all clients together make the server hold.
//!
//! While there is a limit, [`Clients`] keeps the sum of what its clients hold. A client's thread
//! counts it again when the client sent something, ran something or has pending output after a
//! flush. A thread that finds the sum above the limit evicts the largest clients until the rest
//! fits, except those that CLIENT NO-EVICT protects. An evicted client leaves the registry and the
//! sum at once; its thread closes it. When the limit is set, all clients are counted.
//!
//! The largest client is found without a look at the others: a peer that causes one eviction after
//! another must not cause a sort of ten thousand clients each time. Whether one has to go is
//! decided in the step that removes it, so no thread evicts one client too many.
//!
//! Cost without a limit: one branch per connection and turn. With one: a handful of loads of the
//! client's own figures, and the lock of the registry where they have changed or the sum is above
//! the limit.
//!
//! [`Clients`]: crate::clients::Clients

use crate::client::ClientInfo;
use crate::shared::Shared;
use crate::threads::Outbox;

/// Counts a client again; whether all clients together hold more than `limit_bytes`, which is not
/// 0. O(log n) in clients where it has grown or shrunk, else O(1).
pub fn count(shared: &Shared, client: &ClientInfo, limit_bytes: u64) -> bool {
    shared.clients.count_memory(client);
    shared.clients.memory_bytes() > limit_bytes
}

/// Evicts clients until the rest fits into `limit_bytes`, which is not 0. `thread` is the I/O
/// thread that calls. O(log n) for each evicted client.
#[cold]
pub fn evict(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    let Shared { threads, clients, blocked, .. } = shared;
    while let Some((client, bytes)) = threads.evict_one(clients, limit_bytes, outbox) {
        blocked.end_of(&client);
        tracing::warn!(client = client.id, bytes, "client evicted: clients hold more than maxmemory-clients");
        threads[thread].stats.evicted_clients.add(1);
    }
}

/// Applies a limit that was just set: counts all clients and evicts, or stops counting if the limit
/// is 0, which means none. O(n log n) in clients.
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

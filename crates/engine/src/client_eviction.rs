//! `maxmemory-clients`: what all clients together make the server hold.
//!
//! Each thread keeps the sum over its own clients ([`ThreadStats::client_bytes`]) while there is a
//! limit: it counts a client anew when the client sent something, ran something or has output left
//! after a flush. Whoever finds the sum over all threads above the limit evicts: the largest
//! clients first, until the rest fits, except those that CLIENT NO-EVICT protects. An evicted
//! client is out of the registry at once, so nobody evicts or lists it twice; its thread closes it.
//! Where a limit is set anew, threads count all their clients.
//!
//! Cost without a limit: one branch per connection and turn. With one: a handful of loads of the
//! client's own figures, and one load per thread.
//!
//! [`ThreadStats::client_bytes`]: crate::stats::ThreadStats::client_bytes

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::client::ClientInfo;
use crate::shared::Shared;
use crate::threads::Outbox;

/// Counts a client of the calling thread anew; whether all clients together are over `limit_bytes`,
/// which is not 0. O(threads).
pub fn count(shared: &Shared, client: &ClientInfo, limit_bytes: u64) -> bool {
    let (now, before) = (client.memory_bytes(), client.held.counted_bytes.load(Relaxed));
    client.held.counted_bytes.store(now, Relaxed);
    shared.threads[client.thread].stats.client_bytes.add(now.wrapping_sub(before));
    shared.threads.sum(|stats| &stats.client_bytes) > limit_bytes
}

/// Takes a client of the calling thread that disconnects out of the sum.
pub fn uncount(shared: &Shared, client: &ClientInfo) {
    shared.threads[client.thread].stats.client_bytes.sub(client.held.counted_bytes.swap(0, Relaxed));
}

/// Evicts clients until the rest fits into `limit_bytes`; 0 for no limit. `thread` is the I/O
/// thread that calls. O(n log n) in clients.
#[cold]
pub fn evict(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    if limit_bytes == 0 {
        return;
    }
    for (client, bytes) in chosen(shared.clients.all(), limit_bytes) {
        if !shared.threads.kill(&shared.clients, &client, outbox) {
            continue;
        }
        shared.blocked.end_of(&client);
        tracing::warn!(client = client.id, bytes, "client evicted: clients hold more than maxmemory-clients");
        shared.threads[thread].stats.evicted_clients.add(1);
    }
}

/// The clients to close for the others to fit into `limit_bytes`, with their memory.
fn chosen(clients: Vec<Arc<ClientInfo>>, limit_bytes: u64) -> Vec<(Arc<ClientInfo>, u64)> {
    // Their figures change under way: each is read once.
    let mut clients: Vec<_> = clients.into_iter().map(|client| (client.memory_bytes(), client)).collect();
    let mut sum: u64 = clients.iter().map(|(bytes, _)| bytes).sum();
    clients.retain(|(_, client)| !client.choices.no_evict.load(Relaxed));
    clients.sort_by_key(|(bytes, client)| (Reverse(*bytes), client.id));
    let over = clients.into_iter().take_while(|(bytes, _)| {
        let over = sum > limit_bytes;
        sum -= bytes;
        over
    });
    over.map(|(bytes, client)| (client, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use stdx::{Address, ConnId};

    use super::*;
    use crate::client::Place;

    fn client(id: u64, input_bytes: u64) -> Arc<ClientInfo> {
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread: 0, conn: ConnId::from_u64(id), fd: 0 };
        let client = ClientInfo::new(id, place, (address(), address()), 0);
        client.held.pending_input_bytes.store(input_bytes, Relaxed);
        Arc::new(client)
    }

    #[test]
    fn the_largest_go_until_the_rest_fits() {
        let clients = vec![client(1, 100), client(2, 900), client(3, 500), client(4, 900)];
        clients[1].choices.no_evict.store(true, Relaxed);
        let own = client(9, 0).memory_bytes();
        let check = |limit: u64, expected: &[u64]| {
            let chosen: Vec<u64> =
                chosen(clients.clone(), limit).iter().map(|(client, _)| client.id).collect();
            assert_eq!(chosen, expected, "within {limit} bytes");
        };
        check(4 * own + 2400, &[]);
        check(4 * own + 2399, &[4]);
        check(3 * own + 1500, &[4]);
        check(3 * own + 1499, &[4, 3]);
    }
}

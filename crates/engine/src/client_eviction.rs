//! `maxmemory-clients`: what all clients together make the server hold.
//!
//! The sum over all clients is kept ([`ThreadStats::client_bytes`], in parts: each thread adds to
//! its own part what it finds changed, and only the sum of the parts means something) while there
//! is a limit: a client's thread counts it anew when the client sent something, ran something or
//! has output left after a flush. Whoever finds the sum above the limit evicts: the largest clients
//! first, until the rest fits, except those that CLIENT NO-EVICT protects. An evicted client is out
//! of the sum and of the registry at once, so nobody evicts or lists it twice, and nobody evicts
//! another in its place; its thread closes it. Where a limit is set anew, all clients are counted.
//!
//! [`ClientSizes`] finds the largest without a look at the others: one that makes the server evict
//! a client at a time, again and again, is not to make it sort ten thousand each time.
//!
//! Cost without a limit: one branch per connection and turn. With one: a handful of loads of the
//! client's own figures, one load per thread, and a place in an ordered map for each eighth that a
//! client grows or shrinks by.
//!
//! [`ThreadStats::client_bytes`]: crate::stats::ThreadStats::client_bytes
//! [`ClientSizes`]: crate::client_sizes::ClientSizes

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::client::ClientInfo;
use crate::client_sizes::size_class;
use crate::shared::Shared;
use crate::threads::Outbox;

/// Counts a client anew in the part of the sum that belongs to the calling `thread`; whether all
/// clients together are over `limit_bytes`, which is not 0. O(threads), and O(log n) in clients
/// where it has grown or shrunk by an eighth.
pub fn count(shared: &Shared, thread: usize, client: &Arc<ClientInfo>, limit_bytes: u64) -> bool {
    let now = client.memory_bytes();
    replace(shared, thread, client, now);
    if is_out(client) {
        // Who takes it out says so first: either that exchange finds this one, or this one that.
        replace(shared, thread, client, 0);
        return is_over(shared, limit_bytes);
    }
    let class = if client.choices.no_evict.load(Relaxed) { 0 } else { size_class(now) };
    if client.held.size_class.load(Relaxed) != class {
        shared.client_sizes.place(client, class);
    }
    is_over(shared, limit_bytes)
}

/// Takes a client that disconnects, and says so already, out of the sum, on its own thread.
pub fn uncount(shared: &Shared, client: &Arc<ClientInfo>) {
    replace(shared, client.thread, client, 0);
    shared.client_sizes.place(client, 0);
}

/// Whether a client has been taken out of the sum for good, or is about to be.
fn is_out(client: &ClientInfo) -> bool {
    client.state.kill_requested.load(Relaxed) || client.state.gone.load(Relaxed)
}

/// Has the sum contain `bytes` of a client; what it contained of it before. Any thread, through
/// its own part.
fn replace(shared: &Shared, thread: usize, client: &ClientInfo, bytes: u64) -> u64 {
    let before = client.held.counted_bytes.swap(bytes, AcqRel);
    shared.threads[thread].stats.client_bytes.add(bytes.wrapping_sub(before));
    before
}

fn is_over(shared: &Shared, limit_bytes: u64) -> bool {
    shared.threads.sum(|stats| &stats.client_bytes) > limit_bytes
}

/// Evicts clients until the rest fits into `limit_bytes`, which is not 0. `thread` is the I/O
/// thread that calls. O(log n) in clients for each that goes.
#[cold]
pub fn evict(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    while let Some((client, bytes)) = evict_largest(shared, thread, outbox, limit_bytes) {
        shared.blocked.end_of(&client);
        tracing::warn!(client = client.id, bytes, "client evicted: clients hold more than maxmemory-clients");
        shared.threads[thread].stats.evicted_clients.add(1);
    }
}

/// Kills the largest client that may be evicted, or the oldest of those of about its size: it, with
/// what was counted of it; `None` if all fit, or nobody is left.
fn evict_largest(
    shared: &Shared,
    thread: usize,
    outbox: &Outbox,
    limit_bytes: u64,
) -> Option<(Arc<ClientInfo>, u64)> {
    // Under one lock, or two threads that find the sum too high evict one client too many.
    let mut sizes = shared.client_sizes.lock();
    while is_over(shared, limit_bytes) {
        let client = sizes.take_largest()?;
        if client.choices.no_evict.load(Relaxed) {
            // Since it was counted.
            continue;
        }
        let is_first = shared.threads.kill(&shared.clients, &client, outbox);
        let bytes = replace(shared, thread, &client, 0);
        if is_first {
            return Some((client, bytes));
        }
    }
    None
}

/// Follows a limit that was set anew: counts all clients and evicts; nothing of it stays where
/// there is no limit any more, which 0 stands for. O(n log n) in clients.
#[cold]
pub fn set_limit(shared: &Shared, thread: usize, outbox: &Outbox, limit_bytes: u64) {
    if limit_bytes == 0 {
        let mut sizes = shared.client_sizes.lock();
        while sizes.take_largest().is_some() {}
        return;
    }
    for client in shared.clients.all() {
        count(shared, thread, &client, limit_bytes);
    }
    evict(shared, thread, outbox, limit_bytes);
}

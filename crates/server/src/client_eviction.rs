//! `maxmemory-clients`: what all clients together make the server hold.
//!
//! Each thread knows the buffers of its own clients only. Where there is a limit, the housekeeper asks all
//! threads each round; each brings its clients' figures up to date, then all make the same choice (the
//! largest clients first, until the rest fits) and each closes those that are its own.

use std::cmp::Reverse;

use crate::session::ClientInfo;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The clients to close for the others to fit into `limit`: the largest, except those that CLIENT NO-EVICT
/// protects. O(n log n).
pub fn chosen(mut clients: Vec<Arc<ClientInfo>>, limit: u64) -> Vec<Arc<ClientInfo>> {
    let mut sum: u64 = clients.iter().map(|client| client.memory_bytes()).sum();
    clients.retain(|client| !client.no_evict.load(Relaxed));
    // By id where they are equal, so that all threads agree.
    clients.sort_by_key(|client| (Reverse(client.memory_bytes()), client.id));
    clients
        .into_iter()
        .take_while(|client| {
            let over = sum > limit;
            sum -= client.memory_bytes();
            over
        })
        .collect()
}

//! Clients in the order of what they hold, for the largest to be found at once.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::client::ClientInfo;

/// Clients that may be evicted. Its lock stands above those of the registry of clients and of the
/// threads' inboxes in the lock order, and below all others.
#[derive(Debug, Default)]
pub struct ClientSizes(Mutex<BySize>);

/// What [`ClientSizes`] guards: clients by [`size_class`] and id. Which class a client stands under
/// is in its [`HeldBytes`](crate::client::HeldBytes), and changes under the lock only.
#[derive(Debug, Default)]
pub(crate) struct BySize(BTreeMap<(u16, u64), Arc<ClientInfo>>);

/// The logarithm of a size to the base of the eighth root of 2, roughly: sizes of one class differ
/// by an eighth at most. Above 0.
pub(crate) fn size_class(bytes: u64) -> u16 {
    let bytes = bytes.max(8);
    let log = bytes.ilog2();
    (log << 3 | (bytes >> (log - 3)) as u32 & 7) as u16
}

impl ClientSizes {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BySize> {
        self.0.lock().expect("nothing panics while the sizes are locked")
    }

    /// Puts a client under a class, or nowhere if that is 0. O(log n).
    pub(crate) fn place(&self, client: &Arc<ClientInfo>, class: u16) {
        let mut sizes = self.lock();
        let before = client.held.size_class.swap(class, Relaxed);
        sizes.0.remove(&(before, client.id));
        // One that is gone was taken out under this lock.
        if class > 0 && !client.state.gone.load(Relaxed) {
            sizes.0.insert((class, client.id), Arc::clone(client));
        }
    }
}

impl BySize {
    /// Takes the largest client out, or the oldest of those of about its size. O(log n).
    pub(crate) fn take_largest(&mut self) -> Option<Arc<ClientInfo>> {
        let (&(class, _), _) = self.0.last_key_value()?;
        let (&oldest, _) = self.0.range((class, 0)..).next()?;
        let client = self.0.remove(&oldest)?;
        client.held.size_class.store(0, Relaxed);
        Some(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_one_class_differ_by_an_eighth_at_most() {
        assert!(size_class(0) > 0);
        for bytes in (8..4096).chain([1 << 40, (1 << 60) - 1]) {
            assert!(size_class(bytes) <= size_class(bytes + 1), "{bytes}");
            assert!(size_class(bytes) < size_class(bytes + bytes.div_ceil(8)), "{bytes}");
        }
    }
}

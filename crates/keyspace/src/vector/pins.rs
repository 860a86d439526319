//! Pinned versions of vector sets, and the memory that they keep after the removal of their set.
//!
//! ```text
//!   set ──┬── account ──┬── pinned version   (shares the index until the set changes)
//!         │             └── pinned version
//!         └─ removed: its memory stays until the last pinned version is released
//! ```
//! A removed set frees nothing that a search still reads. This memory is not in use either: no key
//! has it, and it is freed soon without another removal. So `maxmemory` must not count it, or other
//! keys would be evicted in its place. [`pinned_len_bytes`] estimates it.
//!
//! A copy of a set (COPY) has an account of its own: it is a value that stays.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::VectorSet;
use crate::freeing::FreeingSteps;

/// The estimated bytes of all removed sets of this process that pinned versions still have.
static PINNED_LEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the estimated bytes of removed vector sets that searches still read. O(1).
pub fn pinned_len_bytes() -> u64 {
    PINNED_LEN_BYTES.load(Relaxed)
}

/// The pins of a set. A clone of the set has none.
#[derive(Debug, Default)]
pub(super) struct Pins(OnceLock<Arc<Account>>);

impl Clone for Pins {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The state that a set shares with its pinned versions.
#[derive(Debug, Default)]
struct Account {
    /// The number of pinned versions.
    pins: AtomicUsize,
    /// The largest size of a pinned version in bytes.
    version_len_bytes_max: AtomicU64,
    /// The bytes that the removed set has left to pinned versions, counted in
    /// [`PINNED_LEN_BYTES`].
    left_len_bytes: AtomicU64,
}

impl Account {
    /// Takes over the count of the bytes that the removed set has left.
    fn take_left(&self) -> LeftBytes {
        LeftBytes(self.left_len_bytes.swap(0, Relaxed))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        drop(self.take_left());
    }
}

/// A number of bytes that are counted in [`PINNED_LEN_BYTES`] until it is dropped.
#[derive(Debug)]
struct LeftBytes(u64);

impl Drop for LeftBytes {
    fn drop(&mut self) {
        PINNED_LEN_BYTES.fetch_sub(self.0, Relaxed);
    }
}

impl Pins {
    /// Records the removal of a set of `len_bytes`: its pinned versions keep the memory. The caller
    /// has not yet given up the index.
    pub(super) fn note_removal(self, len_bytes: usize) {
        if let Some(account) = self.0.into_inner()
            && account.pins.load(Relaxed) > 0
        {
            // What was added after the last pin is freed with the set.
            let kept = account.version_len_bytes_max.load(Relaxed).min(len_bytes as u64);
            PINNED_LEN_BYTES.fetch_add(kept, Relaxed);
            account.left_len_bytes.fetch_add(kept, Relaxed);
        }
    }
}

/// A version of a vector set that a search reads without the lock of the key.
#[derive(Debug)]
pub struct PinnedSet {
    version: VectorSet,
    pin: Pin,
}

/// A pin, counted in the account of its set.
#[derive(Debug)]
struct Pin(Arc<Account>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Relaxed);
    }
}

/// The parts of a released version that no set and no other version has, to be freed.
pub struct Leftover {
    /// The steps that free the parts.
    pub pieces: FreeingSteps,
    left: LeftBytes,
}

impl Leftover {
    /// Creates parts to free that belong to no removed set.
    pub fn new(pieces: FreeingSteps) -> Self {
        Self { pieces, left: LeftBytes(0) }
    }

    /// Returns the part of [`pinned_len_bytes`] that these parts are. 0 if their set still exists,
    /// or other versions of it are pinned.
    pub fn pinned_len_bytes(&self) -> u64 {
        self.left.0
    }
}

impl VectorSet {
    /// Pins the present version of the set. O(1).
    pub fn pin(&self) -> PinnedSet {
        let account = self.pins.0.get_or_init(Arc::default);
        account.pins.fetch_add(1, Relaxed);
        account.version_len_bytes_max.fetch_max(self.len_bytes() as u64, Relaxed);
        PinnedSet { version: self.clone(), pin: Pin(Arc::clone(account)) }
    }
}

impl PinnedSet {
    /// Returns the pinned version of the set.
    pub fn version(&self) -> &VectorSet {
        &self.version
    }

    /// Releases the version. Returns what only it had; `None` if the set or another pinned version
    /// has the same index. O(1).
    pub fn release(self) -> Option<Leftover> {
        let Self { version, pin } = self;
        let account = Arc::clone(&pin.0);
        // Before the index is given up: the one that gets the index then sees no pin, and takes
        // over the count of bytes.
        drop(pin);
        let index = Arc::into_inner(version.index)?;
        let left = match account.pins.load(Relaxed) {
            0 => account.take_left(),
            _ => LeftBytes(0),
        };
        Some(Leftover { pieces: Box::new(index.into_freed()), left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewAttributes;
    use structures::vector::{Config, Quantization};

    /// The bytes that the sets of this test have at least; other tests pin less.
    const TEXT_LEN_BYTES: usize = 32 << 20;

    fn big_set() -> VectorSet {
        let config = Config { dim: 2, quantization: Quantization::F32, m: 4 };
        let mut set = VectorSet::new(config, None, 1);
        let text = vec![b'x'; TEXT_LEN_BYTES / 4];
        for name in [b"a", b"b", b"c", b"d"] {
            set.insert(name, &[1.0, 2.0], 4, NewAttributes::Set(&text)).unwrap();
        }
        set
    }

    fn are_left() -> bool {
        pinned_len_bytes() >= TEXT_LEN_BYTES as u64
    }

    #[test]
    fn a_removed_set_is_left_to_its_last_pinned_version() {
        let set = big_set();
        let (first, second) = (set.pin(), set.pin());
        assert!(!are_left());
        assert_eq!(set.into_freed().count(), 0);
        assert!(are_left());
        assert!(first.release().is_none() && are_left());
        let leftover = second.release().expect("it is the last one");
        assert!(leftover.pinned_len_bytes() >= TEXT_LEN_BYTES as u64 && are_left());
        drop(leftover);
        assert!(!are_left());

        // A pinned version of a set that changed, and one that is dropped without being released.
        let mut set = big_set();
        let (first, second) = (set.pin(), set.pin());
        set.remove(b"a");
        let third = set.pin();
        set.remove(b"b");
        assert!(first.release().is_none());
        let changed = second.release().expect("the set has changed");
        assert_eq!(changed.pinned_len_bytes(), 0);
        set.into_freed().for_each(drop);
        assert!(pinned_len_bytes() >= TEXT_LEN_BYTES as u64 / 2);
        drop(third);
        assert!(pinned_len_bytes() < TEXT_LEN_BYTES as u64 / 4);

        // A copy is not removed with its original, and a set is not left to versions that ended.
        let set = big_set();
        let copy = set.clone();
        drop(set.pin());
        let pinned = copy.pin();
        set.into_freed().for_each(drop);
        assert!(!are_left());
        copy.into_freed().for_each(drop);
        assert!(are_left());
        assert!(pinned.release().is_some_and(|left| left.pieces.count() > 0) && !are_left());
    }
}

//! A bucket of a packed set: about eight members back to back in one block.
//!
//! ```text
//!   [tags: 8, 16, 24 …][sizes: as many][bytes of the members back to back][unused]
//!    7 bits of hash | mark       size | 128 if the bytes are the address of a long member
//! ```
//! Tags and sizes have room for a multiple of eight members, so that a search reads them a word at
//! a time; unused places are 0. A member's bytes begin at the sum of the sizes before it. Members
//! above [`INLINE_LEN_BYTES_MAX`] have a block of their own ([`Member`]), whose address the bucket
//! stores and which it owns. Members are in the order of their addition.
//!
//! The block's length is a multiple of [`STEP_BYTES`], the allocator's smallest step between size
//! classes. Every change is O(bytes of the block).

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::lanes::{LANES, equal_lanes, first_lanes, sum_of_lanes, word_at};
use super::store::Store;
use crate::alloc::counted_bytes;
use crate::member::Member;
use crate::prefetch::prefetch_read;
use crate::table::Thin;

/// The length in bytes up to which a member is stored in its bucket.
pub(super) const INLINE_LEN_BYTES_MAX: usize = 64;
/// The unit of a block's length in bytes.
const STEP_BYTES: usize = 16;
/// The number of unused bytes above which a removal moves the bucket to a smaller block.
const UNUSED_BYTES_MAX: usize = 64;
/// The number of bytes of a block that a prefetch loads at most.
const FETCHED_BYTES_MAX: usize = 384;
const CACHE_LINE_BYTES: usize = 64;

/// The bit of a tag that belongs to the walk of a snapshot.
pub(super) const MARK: u8 = 1;
/// The bits of a tag that are bits of the member's position.
const TAG: u8 = !MARK;
/// The bit of a size which says that the bytes are the address of a long member.
const LONG: u8 = 0x80;
/// The size of a long member: its bytes in the bucket are an address.
const LONG_SIZE: u8 = LONG | size_of::<u64>() as u8;

/// Derives a member's tag from its position.
#[inline]
pub(super) fn tag_of(position: u64) -> u8 {
    (position >> 56) as u8 & TAG
}

/// Converts the address of a long member to the bytes that the bucket stores.
fn bytes_of_address(address: NonNull<u8>) -> [u8; size_of::<u64>()] {
    (address.as_ptr().expose_provenance() as u64).to_ne_bytes()
}

/// A bucket of a packed set. See the module's comment.
#[derive(Default)]
pub(super) struct Bucket {
    store: Store,
}

/// The bytes of one member as they are stored, with its tag and size.
#[derive(Clone, Copy)]
struct Stored<'a> {
    tag: u8,
    size: u8,
    bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    /// Returns the address in the bytes of a long member.
    fn address(self) -> NonNull<u8> {
        let bytes = self.bytes.try_into().expect("an address has the bytes of a word");
        let address = usize::try_from(u64::from_ne_bytes(bytes)).expect("it was an address");
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).expect("members have addresses")
    }

    /// Borrows the member's bytes.
    #[inline]
    fn member(self) -> &'a [u8] {
        if self.size & LONG == 0 {
            return self.bytes;
        }
        // SAFETY: a long member's bytes are the address of a member that the bucket owns and does
        // not free while it is borrowed.
        unsafe { Member::<()>::bytes_of(self.address()) }
    }

    /// Returns the long member behind the address, `None` if the bytes are the member's own. The
    /// bucket stays its owner.
    fn long(self) -> Option<ManuallyDrop<Member<()>>> {
        // SAFETY: as in `member`; the bucket stays the owner.
        (self.size & LONG != 0).then(|| ManuallyDrop::new(unsafe { Member::from_raw(self.address()) }))
    }
}

impl Bucket {
    /// Returns the number of members. O(1).
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.store.count as usize
    }

    /// Returns the bytes of the block as the allocator counts them, without those of long members.
    /// O(1).
    #[inline]
    pub(super) fn block_len_bytes(&self) -> usize {
        let len_bytes = self.store.bytes().len();
        if len_bytes == 0 { 0 } else { counted_bytes(len_bytes) }
    }

    /// Starts loading the block. O(1).
    #[inline]
    pub(super) fn prefetch(&self) {
        let block = self.store.bytes();
        for line in (0..block.len().min(FETCHED_BYTES_MAX)).step_by(CACHE_LINE_BYTES) {
            prefetch_read(block.as_ptr().wrapping_add(line));
        }
    }

    /// Returns the number of places for tags.
    #[inline]
    fn places(&self) -> usize {
        self.count().next_multiple_of(LANES)
    }

    #[inline]
    fn tags(&self) -> &[u8] {
        &self.store.bytes()[..self.places()]
    }

    #[inline]
    fn sizes(&self) -> &[u8] {
        &self.store.bytes()[self.places()..2 * self.places()]
    }

    /// Returns the offset in the block of the bytes of the member at `index`.
    #[inline]
    fn offset(&self, index: usize) -> usize {
        let sizes = self.sizes();
        let whole = index / LANES * LANES;
        let mut sum = 2 * sizes.len();
        for at in (0..whole).step_by(LANES) {
            sum += sum_of_lanes(word_at(sizes, at));
        }
        if index > whole {
            sum += sum_of_lanes(word_at(sizes, whole) & first_lanes(index - whole));
        }
        sum
    }

    #[inline]
    fn stored(&self, index: usize) -> Stored<'_> {
        self.stored_at(index, self.offset(index))
    }

    /// Returns the member at `index`, whose bytes begin at `from`.
    #[inline]
    fn stored_at(&self, index: usize, from: usize) -> Stored<'_> {
        let (tag, size) = (self.tags()[index], self.sizes()[index]);
        Stored { tag, size, bytes: &self.store.bytes()[from..from + usize::from(size & !LONG)] }
    }

    /// Borrows the member at `index`. O(count / 8).
    #[inline]
    pub(super) fn member(&self, index: usize) -> &[u8] {
        self.stored(index).member()
    }

    fn all_stored(&self) -> impl Iterator<Item = Stored<'_>> {
        let mut from = 2 * self.places();
        self.tags()[..self.count()].iter().zip(self.sizes()).map(move |(&tag, &size)| {
            let until = from + usize::from(size & !LONG);
            let bytes = &self.store.bytes()[from..until];
            from = until;
            Stored { tag, size, bytes }
        })
    }

    /// Returns an iterator over the members.
    #[inline]
    pub(super) fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.all_stored().map(Stored::member)
    }

    /// Returns the index of a member; `None` if it is absent. O(count / 8).
    #[inline]
    pub(super) fn find(&self, tag: u8, member: &[u8]) -> Option<usize> {
        let tags = self.tags();
        let size = if member.len() <= INLINE_LEN_BYTES_MAX { member.len() as u8 } else { LONG_SIZE };
        for from in (0..tags.len()).step_by(LANES) {
            let mut equal = equal_lanes(word_at(tags, from), tag, TAG) & first_lanes(self.count() - from);
            while equal != 0 {
                let index = from + equal.trailing_zeros() as usize / 8;
                if self.sizes()[index] == size && stdx::bytes::same(self.member(index), member) {
                    return Some(index);
                }
                equal &= equal - 1;
            }
        }
        None
    }

    /// Returns true if the member at `index` is marked. O(1).
    pub(super) fn is_marked(&self, index: usize) -> bool {
        self.tags()[index] & MARK != 0
    }

    /// Removes the marks of the members that satisfy `clears`, and calls `visit` with those of them
    /// that were not marked.
    pub(super) fn visit_and_clear(&mut self, clears: impl Fn(&[u8]) -> bool, mut visit: impl FnMut(&[u8])) {
        for index in 0..self.count() {
            let stored = self.stored(index);
            if !clears(stored.member()) {
                continue;
            }
            if stored.tag & MARK == 0 {
                visit(stored.member());
            }
            self.store.bytes_mut()[index] &= TAG;
        }
    }

    /// Moves the members to a block with room for tags of `count` members and for `data_len_bytes`
    /// bytes of members. The number of members stays.
    fn rebuild(&mut self, count: usize, data_len_bytes: usize) {
        let (places, places_new) = (self.places(), count.next_multiple_of(LANES));
        let len_bytes = (2 * places_new + data_len_bytes).next_multiple_of(STEP_BYTES);
        let mut new = Store::zeroed(len_bytes, self.store.count);
        let (old, block) = (self.store.bytes(), new.bytes_mut());
        let kept = places.min(places_new);
        block[..kept].copy_from_slice(&old[..kept]);
        block[places_new..places_new + kept].copy_from_slice(&old[places..places + kept]);
        let data_len_bytes = data_len_bytes.min(old.len() - 2 * places);
        let data = &old[2 * places..2 * places + data_len_bytes];
        block[2 * places_new..2 * places_new + data_len_bytes].copy_from_slice(data);
        self.store = new;
    }

    fn push(&mut self, stored: Stored<'_>) {
        let (count, data_len) = (self.count(), self.data_len());
        let until = 2 * self.places() + data_len + stored.bytes.len();
        if count.is_multiple_of(LANES) || until > self.store.bytes().len() {
            self.rebuild(count + 1, data_len + stored.bytes.len());
        }
        self.store.count += 1;
        let places = self.places();
        let at = 2 * places + data_len;
        let block = self.store.bytes_mut();
        block[at..at + stored.bytes.len()].copy_from_slice(stored.bytes);
        block[count] = stored.tag;
        block[places + count] = stored.size;
    }

    /// Adds a member that is not in the bucket. Returns the bytes of its own block, 0 if it has
    /// none.
    pub(super) fn add(&mut self, tag: u8, member: &[u8]) -> usize {
        if member.len() <= INLINE_LEN_BYTES_MAX {
            self.push(Stored { tag, size: member.len() as u8, bytes: member });
            return 0;
        }
        let long = Member::new(member, ());
        let len_bytes = long.block_len_bytes();
        self.push(Stored { tag, size: LONG_SIZE, bytes: &bytes_of_address(long.into_raw()) });
        len_bytes
    }

    /// Removes the member at `index`. Returns the bytes of its own block, 0 if it has none.
    pub(super) fn remove(&mut self, index: usize) -> usize {
        let (places, count) = (self.places(), self.count());
        let (from, end) = (self.offset(index), self.offset(count));
        let stored = self.stored_at(index, from);
        let len_bytes = stored.bytes.len();
        // Freed at the end of this function, when its address is not in the block any more.
        let long = stored.long().map(ManuallyDrop::into_inner);
        let block = self.store.bytes_mut();
        block.copy_within(from + len_bytes..end, from);
        for of_kind in [0, places] {
            block.copy_within(of_kind + index + 1..of_kind + count, of_kind + index);
            block[of_kind + count - 1] = 0;
        }
        let unused = block.len() - (end - len_bytes);
        if count == 1 {
            self.store = Store::default();
        } else {
            if count % LANES == 1 || unused > UNUSED_BYTES_MAX {
                self.rebuild(count - 1, end - len_bytes - 2 * places);
            }
            self.store.count -= 1;
        }
        long.map_or(0, |long| long.block_len_bytes())
    }

    /// Moves the members that satisfy `moves` to a new bucket, which is returned.
    pub(super) fn split(&mut self, moves: impl Fn(&[u8]) -> bool) -> Bucket {
        let mut sizes = [(0, 0); 2];
        let choose = |stored: Stored<'_>| {
            let moves = moves(stored.member());
            let (count, data_len_bytes) = &mut sizes[usize::from(moves)];
            *count += 1;
            *data_len_bytes += stored.bytes.len();
            moves
        };
        let moving: Vec<bool> = self.all_stored().map(choose).collect();
        let mut halves = sizes.map(|(count, data_len_bytes)| Filling::new(count, data_len_bytes));
        for (stored, &moves) in self.all_stored().zip(&moving) {
            halves[usize::from(moves)].push(stored);
        }
        let [stays, moved] = halves.map(|half| half.bucket);
        self.give_up();
        *self = stays;
        moved
    }

    /// Moves the members of `other` to this bucket.
    pub(super) fn absorb(&mut self, mut other: Bucket) {
        let mut both = Filling::new(self.count() + other.count(), self.data_len() + other.data_len());
        self.all_stored().chain(other.all_stored()).for_each(|stored| both.push(stored));
        self.give_up();
        other.give_up();
        *self = both.bucket;
    }

    /// Returns the sum of the sizes of all members.
    fn data_len(&self) -> usize {
        self.offset(self.count()) - 2 * self.places()
    }

    /// Empties the bucket, whose members are in another bucket now.
    fn give_up(&mut self) {
        self.store = Store::default();
    }
}

/// A bucket under construction whose block already has its final length. Until it is complete, its
/// long members belong to the bucket that they come from, too: nothing may panic before that bucket
/// gives them up.
struct Filling {
    bucket: Bucket,
    /// The number of members that were added.
    added: usize,
    /// The offset in the block of the next member's bytes.
    next: usize,
}

impl Filling {
    /// Creates the bucket of `count` members whose sizes have the sum `data_len`.
    fn new(count: usize, data_len: usize) -> Self {
        let mut bucket = Bucket::default();
        if count > 0 {
            bucket.rebuild(count, data_len);
        }
        // Sizes are 0 until members are added, so the bucket has no long members yet.
        bucket.store.count = count as u32;
        let next = 2 * bucket.places();
        Self { bucket, added: 0, next }
    }

    #[inline]
    fn push(&mut self, stored: Stored<'_>) {
        let (places, index) = (self.bucket.places(), self.added);
        let until = self.next + stored.bytes.len();
        let block = self.bucket.store.bytes_mut();
        block[self.next..until].copy_from_slice(stored.bytes);
        block[index] = stored.tag;
        block[places + index] = stored.size;
        (self.added, self.next) = (index + 1, until);
    }
}

impl Clone for Bucket {
    /// Copies the members, without marks.
    fn clone(&self) -> Self {
        let mut store = self.store.clone();
        let block = store.bytes_mut();
        for (index, stored) in self.all_stored().enumerate() {
            block[index] &= TAG;
            if let Some(long) = stored.long() {
                let from = self.offset(index);
                let address = bytes_of_address(Member::clone(&long).into_raw());
                block[from..from + address.len()].copy_from_slice(&address);
            }
        }
        // Only now, so that a panic above frees no long member of the original.
        Bucket { store }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if self.sizes().iter().all(|size| size & LONG == 0) {
            return;
        }
        for stored in self.all_stored() {
            drop(stored.long().map(ManuallyDrop::into_inner));
        }
    }
}

#[cfg(test)]
impl Bucket {
    /// Checks the invariants of the module's header. Returns the bytes of the long members' blocks
    /// and the number of members.
    pub(super) fn check(&self, tag_of: impl Fn(&[u8]) -> u8) -> (usize, usize) {
        let (places, count) = (self.places(), self.count());
        assert!(self.tags()[count..].iter().chain(&self.sizes()[count..]).all(|&byte| byte == 0));
        assert_eq!(self.store.bytes().is_empty(), count == 0);
        let unused = self.store.bytes().len() - self.offset(count);
        assert!(unused <= UNUSED_BYTES_MAX && 2 * places <= self.store.bytes().len());
        let mut longs = 0;
        for stored in self.all_stored() {
            assert_eq!(stored.tag & TAG, tag_of(stored.member()));
            assert_eq!(stored.size & LONG != 0, stored.member().len() > INLINE_LEN_BYTES_MAX);
            longs += stored.long().map_or(0, |long| long.block_len_bytes());
            assert_eq!(
                self.find(stored.tag, stored.member()).map(|at| self.member(at)),
                Some(stored.member())
            );
        }
        (longs, count)
    }

    pub(super) fn has_marks(&self) -> bool {
        self.tags().iter().any(|tag| tag & MARK != 0)
    }
}

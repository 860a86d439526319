//! A hash set of byte strings that takes about five bytes per member more than the strings.
//!
//! ```text
//!   chunks            256 buckets each                  bucket: about 8 members in one block
//!   [chunk][chunk] ─► [block, count][block, count] … ─► [tags][sizes][bytes, back to back]
//! ```
//! A bucket has the members whose positions (64 bits of hash) have the same lowest bits. The number
//! of buckets follows the number of members, one bucket at a time (linear hashing):
//! - With `2^b + k` buckets, the first `k` and the last `k` of them differ in bit `b` of the
//!   position; the others have members with either bit. Bucket `2^b + k` is made of the members of
//!   bucket `k` that have the bit.
//! - An insertion splits at most one bucket, and a removal merges at most two. The directory grows
//!   by chunks. So no operation does more work than one bucket needs.
//!
//! **Scans.** Read with its bits in reverse order, a position is a point of a space in which each
//! bucket has one interval, and a split divides an interval in two. A cursor is such a point. All
//! members below it were visited, even if buckets were split or merged since: SCAN's guarantee.
//!
//! **Random members** are drawn uniformly: a bucket, then a place below a bound of all buckets'
//! counts; the draw is repeated if the bucket has fewer members. If most of many draws fail, a few
//! buckets have most members, or had: members added or removed in the order of a scan crowd there.
//! Then the counts are added up, which gives the exact member of a random rank and a new bound.
//!
//! Memory: two bytes per member for tag and size; per bucket 16 bytes, and 15 bytes of its block
//! that are unused on average. Sources: Litwin, "Linear Hashing" (1980); the order of cursors is
//! that of Redis' dict. Rejected: a pointer per member, as in `table`, which takes 11 bytes with
//! its share of empty slots, and 8 to 15 more for the size class of a small block.

mod bucket;
mod lanes;
mod store;
mod walk;

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::prefetch::prefetch_read;
use bucket::{Bucket, MARK, tag_of};
use walk::Walk;

/// The mean number of members per bucket above which a bucket is split.
const MEAN_COUNT_MAX: usize = 8;
/// The mean number of members per bucket up to which the members get one bucket less.
const MEAN_COUNT_MIN: usize = 5;
/// The base-2 logarithm of the number of buckets of a whole chunk.
const CHUNK_BITS: u32 = 8;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;
/// The number of bits of a point of the space of positions in reverse order.
const POINT_BITS: u32 = 48;
/// The point after all positions.
const POINT_END: u64 = 1 << POINT_BITS;
/// The number of buckets by which an iteration prefetches ahead.
const FETCHED_AHEAD_BUCKETS: usize = 4;
/// The number of buckets by which a scan prefetches the block of a bucket; the bucket itself is
/// prefetched twice as early.
const SCANNED_AHEAD_BUCKETS: u64 = 2;
/// The number of misses after which a random choice searches in order.
const RANDOM_TRIES_MAX: usize = 128;

/// The place of a member in a packed set; valid until the set next changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PackedPlace {
    bucket: usize,
    index: usize,
}

/// A hash set of byte strings. See the module's comment.
///
/// The caller computes positions: 64 well-mixed bits derived from the member, always the same for
/// the same member. Only the thread that holds the lock around the set uses it.
#[derive(Default)]
pub struct PackedSet {
    /// The buckets in chunks. All chunks but the last have [`CHUNK_LEN`] buckets.
    chunks: Vec<Vec<Bucket>>,
    bucket_count: usize,
    /// The number of buckets rounded up to a power of two, less one.
    mask: usize,
    len: usize,
    /// The bytes of all blocks of buckets and of long members.
    blocks_len_bytes: usize,
    /// An upper bound of the buckets' counts. Random draws, which only read the set, lower it.
    count_max: AtomicUsize,
    walk: Option<Box<Walk>>,
}

/// Returns the point at which a scan passes the member with this position.
#[inline]
fn point_of(position: u64) -> u64 {
    position.reverse_bits() >> (u64::BITS - POINT_BITS)
}

/// Returns the lowest bits of the positions at `point`, which are enough to select a bucket.
#[inline]
fn position_at(point: u64) -> u64 {
    (point << (u64::BITS - POINT_BITS)).reverse_bits()
}

impl PackedSet {
    /// Creates an empty set; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of members. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the set is empty. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that the set takes from the allocator, without the value itself. O(1).
    #[inline]
    pub fn memory_usage(&self) -> usize {
        let last = self.chunks.last().map_or(0, Vec::capacity);
        let buckets = self.chunks.len().saturating_sub(1) * CHUNK_LEN + last;
        let directory = self.chunks.capacity() * size_of::<Vec<Bucket>>();
        self.blocks_len_bytes + buckets * size_of::<Bucket>() + directory
    }

    #[inline]
    fn bucket(&self, at: usize) -> &Bucket {
        &self.chunks[at >> CHUNK_BITS][at % CHUNK_LEN]
    }

    #[inline]
    fn bucket_mut(&mut self, at: usize) -> &mut Bucket {
        &mut self.chunks[at >> CHUNK_BITS][at % CHUNK_LEN]
    }

    /// Returns the index of the bucket of `position` and the number of the position's lowest bits
    /// that select it.
    #[inline]
    fn bucket_and_depth(&self, position: u64) -> (usize, u32) {
        let (at, half) = (position as usize & self.mask, self.mask.div_ceil(2));
        let depth = self.mask.count_ones();
        // The bucket was split to the full depth if it has a sibling with the highest bit.
        if at | half < self.bucket_count { (at, depth) } else { (at & !half, depth.saturating_sub(1)) }
    }

    #[inline]
    fn bucket_of(&self, position: u64) -> usize {
        let at = position as usize & self.mask;
        if at < self.bucket_count { at } else { at & self.mask >> 1 }
    }

    /// Starts loading the descriptor of the bucket of `position` into the cache. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, position: u64) {
        if self.bucket_count > 0 {
            prefetch_read(self.bucket(self.bucket_of(position)));
        }
    }

    /// Starts loading the block of the bucket of `position`, of which it reads the descriptor.
    /// O(1).
    #[inline]
    pub fn prefetch_block(&self, position: u64) {
        if self.bucket_count > 0 {
            self.bucket(self.bucket_of(position)).prefetch();
        }
    }

    /// Returns the place of a member; `None` if it is absent. O(1).
    #[inline]
    pub fn find(&self, position: u64, member: &[u8]) -> Option<PackedPlace> {
        if self.bucket_count == 0 {
            return None;
        }
        let bucket = self.bucket_of(position);
        let index = self.bucket(bucket).find(tag_of(position), member)?;
        Some(PackedPlace { bucket, index })
    }

    /// Borrows the member at `place`. O(1).
    #[inline]
    pub fn at(&self, place: PackedPlace) -> &[u8] {
        self.bucket(place.bucket).member(place.index)
    }

    /// Adds a member. Returns false if it was already in the set. `position_of` computes the
    /// position of any member; it is used when a bucket is split. O(1).
    pub fn insert(&mut self, position: u64, member: &[u8], position_of: &impl Fn(&[u8]) -> u64) -> bool {
        if self.bucket_count == 0 {
            self.push_bucket(Bucket::default());
        }
        let at = self.bucket_of(position);
        let mark = match &self.walk {
            Some(walk) if walk.is_ahead(position) => MARK,
            _ => 0,
        };
        let tag = tag_of(position);
        let bucket = self.bucket_mut(at);
        if bucket.find(tag, member).is_some() {
            return false;
        }
        let before = bucket.block_len_bytes();
        let long_len_bytes = bucket.add(tag | mark, member);
        let (after, count) = (bucket.block_len_bytes(), bucket.count());
        self.blocks_len_bytes += after + long_len_bytes;
        self.blocks_len_bytes -= before;
        self.raise_count_max(count);
        self.len += 1;
        if self.len > self.bucket_count * MEAN_COUNT_MAX {
            self.split(position_of);
        }
        true
    }

    /// Removes the member at `place`. A copy is kept for a walk in progress that has not visited
    /// the member yet. O(1).
    pub fn remove(&mut self, place: PackedPlace) {
        self.keep_for_walk(place);
        let bucket = self.bucket_mut(place.bucket);
        let before = bucket.block_len_bytes();
        let long_len_bytes = bucket.remove(place.index);
        let after = bucket.block_len_bytes();
        self.blocks_len_bytes += after;
        self.blocks_len_bytes -= before + long_len_bytes;
        self.len -= 1;
        if self.len == 0 {
            (self.chunks, self.bucket_count, self.mask) = (Vec::new(), 0, 0);
            self.count_max = AtomicUsize::new(0);
        } else if self.len <= (self.bucket_count - 1) * MEAN_COUNT_MIN {
            self.merge();
        }
    }

    fn raise_count_max(&mut self, count: usize) {
        let count_max = self.count_max.get_mut();
        *count_max = (*count_max).max(count);
    }

    fn push_bucket(&mut self, bucket: Bucket) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK_LEN => {
                if last.len() == last.capacity() {
                    let room = (last.len() / 2).max(2).min(CHUNK_LEN - last.len());
                    last.reserve_exact(room);
                }
                last.push(bucket);
            }
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                chunk.push(bucket);
                self.chunks.push(chunk);
            }
            // A small set has one chunk, so the directory begins without room for more.
            None => self.chunks = vec![vec![bucket]],
        }
        self.bucket_count += 1;
        self.mask = self.bucket_count.next_power_of_two() - 1;
    }

    /// Adds a bucket with the members of the next bucket in turn that belong there. O(bucket).
    fn split(&mut self, position_of: &impl Fn(&[u8]) -> u64) {
        let new = self.bucket_count;
        let mask = (new + 1).next_power_of_two() - 1;
        let source = self.bucket_mut(new & mask >> 1);
        let before = source.block_len_bytes();
        let upper = source.split(|member| position_of(member) as usize & mask == new);
        let after = source.block_len_bytes() + upper.block_len_bytes();
        self.blocks_len_bytes += after;
        self.blocks_len_bytes -= before;
        self.push_bucket(upper);
    }

    /// Removes the last bucket; its members move to the bucket that it was split from. O(bucket).
    fn merge(&mut self) {
        let last = self.bucket_count - 1;
        let Some(upper) = self.chunks.last_mut().and_then(Vec::pop) else { return };
        if self.chunks.last().is_some_and(Vec::is_empty) {
            self.chunks.pop();
        }
        let target = self.bucket_mut(last & self.mask >> 1);
        let before = target.block_len_bytes() + upper.block_len_bytes();
        target.absorb(upper);
        let (after, count) = (target.block_len_bytes(), target.count());
        self.blocks_len_bytes += after;
        self.blocks_len_bytes -= before;
        self.raise_count_max(count);
        self.bucket_count = last;
        self.mask = last.next_power_of_two() - 1;
    }

    /// Visits all members of one bucket: the bucket at the point `cursor` of a 48-bit space.
    /// Returns the next cursor, 0 at the end.
    ///
    /// Members that are in the set from the first call to the last are visited, some twice.
    /// O(bucket).
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&[u8])) -> u64 {
        if self.bucket_count == 0 {
            return 0;
        }
        let (at, interval) = self.bucket_at(cursor & (POINT_END - 1));
        let width = interval.end - interval.start;
        let position_ahead = |buckets| position_at(interval.start.wrapping_add(buckets * width));
        self.prefetch_bucket(position_ahead(2 * SCANNED_AHEAD_BUCKETS));
        self.prefetch_block(position_ahead(SCANNED_AHEAD_BUCKETS));
        self.bucket(at).members().for_each(visit);
        if interval.end == POINT_END { 0 } else { interval.end }
    }

    /// Returns the index of the bucket whose interval contains `point`, and the interval.
    fn bucket_at(&self, point: u64) -> (usize, Range<u64>) {
        let (at, depth) = self.bucket_and_depth(position_at(point));
        let free = POINT_BITS - depth;
        let number = point >> free;
        (at, number << free..(number + 1) << free)
    }

    /// Returns an iterator over all members, bucket by bucket. O(n).
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().flat_map(|chunk| {
            chunk.iter().enumerate().flat_map(|(at, bucket)| {
                if let Some(ahead) = chunk.get(at + FETCHED_AHEAD_BUCKETS) {
                    ahead.prefetch();
                }
                bucket.members()
            })
        })
    }

    /// Converts the set to an iterator that frees one bucket in each step. O(1).
    pub fn into_freed(self) -> impl Iterator<Item = ()> {
        self.chunks.into_iter().flatten().map(drop)
    }

    /// Draws a member's place uniformly; `None` if the set is empty. Expected O(1), or O(buckets)
    /// if a few buckets have most of the members.
    pub fn random(&self, mut draw: impl FnMut() -> u64) -> Option<PackedPlace> {
        if self.len == 0 {
            return None;
        }
        let below = |half: u64, end: usize| (half as usize * end) >> 32;
        // Relaxed: only the thread with the lock around the set uses the bound.
        let count_max = self.count_max.load(Relaxed);
        for _ in 0..RANDOM_TRIES_MAX {
            let drawn = draw();
            let bucket = below(drawn >> 32, self.bucket_count);
            let index = below(drawn & 0xFFFF_FFFF, count_max);
            if index < self.bucket(bucket).count() {
                return Some(PackedPlace { bucket, index });
            }
        }
        self.place_of_rank(((u128::from(draw()) * self.len as u128) >> 64) as usize)
    }

    /// Returns the place of member number `rank` in the order of the buckets. Computes the bound of
    /// the buckets' counts anew, which was far above most of them. O(buckets).
    fn place_of_rank(&self, rank: usize) -> Option<PackedPlace> {
        let (mut ahead, mut count_max, mut found) = (rank, 0, None);
        for (bucket, count) in self.chunks.iter().flatten().map(Bucket::count).enumerate() {
            count_max = count_max.max(count);
            if found.is_none() && ahead < count {
                found = Some(PackedPlace { bucket, index: ahead });
            }
            ahead = ahead.saturating_sub(count);
        }
        self.count_max.store(count_max, Relaxed);
        found
    }
}

impl Clone for PackedSet {
    /// Copies the members, without a walk in progress. O(n).
    fn clone(&self) -> Self {
        let chunks = self.chunks.iter().map(|chunk| {
            let mut copy = Vec::with_capacity(if self.chunks.len() > 1 { CHUNK_LEN } else { chunk.len() });
            copy.extend(chunk.iter().cloned());
            copy
        });
        Self {
            chunks: chunks.collect(),
            bucket_count: self.bucket_count,
            mask: self.mask,
            len: self.len,
            blocks_len_bytes: self.blocks_len_bytes,
            count_max: AtomicUsize::new(self.count_max.load(Relaxed)),
            walk: None,
        }
    }
}

// A shard's keys point to sets by one address; a set of three long members is a set, too.
const _: () = assert!(size_of::<PackedSet>() <= 80);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk_state::WalkState;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn mixed(number: u64) -> u64 {
        let x = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    fn position(member: &[u8]) -> u64 {
        mixed(member.iter().fold(7, |hash, &byte| mixed(hash ^ u64::from(byte))))
    }

    /// Returns positions whose last five bits are zero: all members are in few buckets.
    fn crowded(member: &[u8]) -> u64 {
        position(member) << 5
    }

    type Hash = fn(&[u8]) -> u64;
    const HASHES: [Hash; 2] = [position, crowded];

    /// Returns a member of a length that depends on its number: short, long or empty.
    fn member(number: u64) -> Vec<u8> {
        match number % 50 {
            0 if number == 0 => Vec::new(),
            0 => format!("{number:0100}").into_bytes(),
            1 => format!("{number:064}").into_bytes(),
            2 => format!("{number:065}").into_bytes(),
            3 => format!("{number:0300}").into_bytes(),
            _ => number.to_string().into_bytes(),
        }
    }

    fn draws(seed: u64) -> impl FnMut() -> u64 {
        let mut next = mixed(seed);
        move || {
            next = next.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mixed(next)
        }
    }

    fn remove(set: &mut PackedSet, hash: Hash, member: &[u8]) -> bool {
        let place = set.find(hash(member), member);
        if let Some(place) = place {
            assert_eq!(set.at(place), member);
            set.remove(place);
        }
        place.is_some()
    }

    /// Checks the invariants of the module's header, and that the members are those of `twin`.
    fn check(set: &PackedSet, hash: Hash, twin: &BTreeSet<Vec<u8>>) {
        assert_eq!(set.len(), twin.len());
        assert_eq!(set.is_empty(), set.bucket_count == 0);
        assert!(set.iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>() == *twin);
        assert_eq!(set.iter().count(), twin.len());
        let (mut at, mut blocks) = (0, 0);
        for chunk in &set.chunks {
            assert!(!chunk.is_empty() && (chunk.len() == CHUNK_LEN || at + chunk.len() == set.bucket_count));
            for bucket in chunk {
                let (longs, count) = bucket.check(|member| {
                    assert_eq!(set.bucket_of(hash(member)), at);
                    assert_eq!(set.bucket_and_depth(hash(member)).0, at);
                    tag_of(hash(member))
                });
                assert!(count <= set.count_max.load(Relaxed));
                blocks += longs + bucket.block_len_bytes();
                at += 1;
            }
        }
        assert_eq!((at, blocks), (set.bucket_count, set.blocks_len_bytes));
        assert!(set.len <= at * MEAN_COUNT_MAX && (at <= 1 || set.len > (at - 1) * MEAN_COUNT_MIN));
        let mut cursor = 0;
        let mut scanned = Vec::new();
        loop {
            let next = set.scan(cursor, |member| scanned.push(member.to_vec()));
            assert!(next == 0 || next > cursor);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(scanned.len(), twin.len(), "a scan without changes returns each member once");
    }

    #[test]
    fn any_changes_leave_what_a_naive_set_holds() {
        for seed in 0..if cfg!(miri) { 2 } else { 60 } {
            let hash = HASHES[seed as usize % 2];
            let mut draw = draws(seed);
            let range = if cfg!(miri) { 120 } else { 1 + draw() % 5_000 };
            let (mut set, mut twin) = (PackedSet::new(), BTreeSet::new());
            for round in 0..8 {
                // The number of removals among ten changes.
                let removals = [2, 5, 8, 1, 10, 3, 9, 10][round];
                for _ in 0..range {
                    let member = member(draw() % range);
                    if draw() % 10 < removals {
                        assert_eq!(remove(&mut set, hash, &member), twin.remove(&member));
                    } else {
                        let added = set.insert(hash(&member), &member, &hash);
                        assert_eq!(added, twin.insert(member));
                    }
                }
                check(&set, hash, &twin);
                check(&set.clone(), hash, &twin);
            }
            for member in std::mem::take(&mut twin) {
                assert!(remove(&mut set, hash, &member));
            }
            check(&set, hash, &twin);
            assert_eq!(set.memory_usage(), 0);
        }
    }

    #[test]
    fn a_scan_returns_what_stays_while_the_set_grows_and_shrinks() {
        for seed in 0..if cfg!(miri) { 2 } else { 100 } {
            let hash = HASHES[seed as usize % 2];
            let mut draw = draws(seed);
            let mut set = PackedSet::new();
            let stays: BTreeSet<_> = (0..40 * (seed % 7)).map(member).collect();
            for member in &stays {
                set.insert(hash(member), member, &hash);
            }
            let (mut cursor, mut seen) = (0, BTreeSet::new());
            // The others grow from none to many, or shrink from many to none, during the scan.
            let others = if cfg!(miri) { 200 } else { 4_000 };
            let grows = seed % 3 == 0;
            let other = |number: u64| format!("other-{number}").into_bytes();
            if !grows {
                (0..others).map(other).for_each(|other| {
                    set.insert(hash(&other), &other, &hash);
                });
            }
            let mut changed = 0;
            loop {
                for _ in 0..draw() % 60 {
                    if changed < others {
                        let other = other(changed);
                        if grows {
                            set.insert(hash(&other), &other, &hash);
                        } else {
                            remove(&mut set, hash, &other);
                        }
                        changed += 1;
                    }
                }
                cursor = set.scan(cursor, |member| {
                    seen.insert(member.to_vec());
                });
                if cursor == 0 {
                    break;
                }
            }
            assert!(stays.is_subset(&seen), "seed {seed}");
        }
    }

    /// Checks that random draws choose each member about equally often.
    fn check_uniform(set: &PackedSet) {
        let mut draw = draws(5);
        let mut chosen = std::collections::BTreeMap::<&[u8], u32>::new();
        for _ in 0..if cfg!(miri) { 100 } else { set.len() * 1000 } {
            let place = set.random(&mut draw).expect("not empty");
            *chosen.entry(set.at(place)).or_default() += 1;
        }
        // The mean is 1,000; six standard deviations are 190.
        let is_fair = |count: &u32| (810..=1190).contains(count);
        assert!(cfg!(miri) || chosen.len() == set.len() && chosen.values().all(is_fair), "{chosen:?}");
    }

    fn insert(set: &mut PackedSet, number: u64) {
        let member = number.to_string().into_bytes();
        set.insert(position(&member), &member, &position);
    }

    #[test]
    fn random_members_are_uniform() {
        // 100 members in 13 buckets, of which some were split and some were not.
        let mut set = PackedSet::new();
        (0..100).for_each(|number| insert(&mut set, number));
        check_uniform(&set);
    }

    #[test]
    fn random_members_are_uniform_after_removals_in_the_order_of_a_scan() {
        let mut set = PackedSet::new();
        (0..if cfg!(miri) { 500 } else { 20_000 }).for_each(|number| insert(&mut set, number));
        let (mut cursor, mut members) = (0, Vec::new());
        loop {
            cursor = set.scan(cursor, |member| members.push(member.to_vec()));
            if cursor == 0 {
                break;
            }
        }
        let bound = set.count_max.load(Relaxed);
        for member in &members[..members.len() - 100] {
            let place = set.find(position(member), member).expect("it was not removed");
            set.remove(place);
        }
        assert!(set.count_max.load(Relaxed) > bound, "the last members share a few buckets");
        check_uniform(&set);
        (0..300).for_each(|number| insert(&mut set, 1_000_000 + number));
        check_uniform(&set);
    }

    fn walk_state(common: &Arc<AtomicUsize>, hash: Hash) -> WalkState {
        WalkState { ticket: 3, position_of: Arc::new(hash), copied_len_bytes: Arc::clone(common) }
    }

    #[test]
    fn a_walk_shows_each_member_of_its_start_once_and_leaves_no_mark() {
        for seed in 0..if cfg!(miri) { 2 } else { 200 } {
            let hash = HASHES[seed as usize % 2];
            let mut draw = draws(seed);
            let (mut set, mut twin) = (PackedSet::new(), BTreeSet::new());
            let common = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let range = 1 + draw() % if cfg!(miri) { 100 } else { 4_000 };
                let (per_step, removals) = (1 + draw() % 40, draw() % 10);
                let (at_start, mut shown) = (twin.clone(), Vec::new());
                set.begin(walk_state(&common, hash));
                assert_eq!(set.ticket(), Some(3));
                loop {
                    for _ in 0..draw() % (2 * per_step) {
                        let member = member(draw() % range);
                        if draw() % 10 < removals {
                            assert_eq!(remove(&mut set, hash, &member), twin.remove(&member));
                        } else {
                            set.insert(hash(&member), &member, &hash);
                            twin.insert(member);
                        }
                    }
                    if !set.walk_next(1 + draw() as usize % 30, |member| shown.push(member.to_vec())) {
                        break;
                    }
                }
                assert_eq!(set.ticket(), None);
                assert_eq!(common.load(Relaxed), 0);
                assert_eq!(shown.len(), at_start.len(), "seed {seed}: each once");
                assert!(shown.into_iter().collect::<BTreeSet<_>>() == at_start, "seed {seed}");
                check(&set, hash, &twin);
                assert!(set.chunks.iter().flatten().all(|bucket| !bucket.has_marks()));
            }
        }
    }

    #[test]
    fn a_copy_has_no_marks_and_a_freed_set_frees_all_buckets() {
        let mut set = PackedSet::new();
        set.begin(walk_state(&Arc::default(), position));
        for number in 0..500 {
            let member = member(number);
            set.insert(position(&member), &member, &position);
        }
        assert!(set.chunks.iter().flatten().any(Bucket::has_marks));
        assert!(!set.clone().chunks.iter().flatten().any(Bucket::has_marks));
        let buckets = set.bucket_count;
        let mut steps = set.clone().into_freed();
        assert_eq!(steps.by_ref().take(10).count(), 10);
        drop(steps);
        assert_eq!(set.into_freed().count(), buckets);
    }

    #[test]
    fn a_member_of_16_bytes_takes_at_most_22() {
        for count in [10_000_u64, 100_000, 130_000, 160_000] {
            let mut set = PackedSet::new();
            for number in 0..if cfg!(miri) { 200 } else { count } {
                let member = format!("member:{number:09}").into_bytes();
                set.insert(position(&member), &member, &position);
            }
            let each = set.memory_usage() as f64 / set.len() as f64;
            assert!(cfg!(miri) || each <= 22.0, "{count} members: {each}");
        }
    }
}

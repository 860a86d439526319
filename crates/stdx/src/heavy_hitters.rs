//! The heaviest items of a stream of weighted items, in bounded memory: the space-saving
//! algorithm.
//!
//! ```text
//!  counters: [key, count, error] × capacity       index: key ──► counter
//!  heap of counters, the smallest count on top
//! ```
//! If an item has a counter, its weight is added to the counter. If all counters are in use, a new
//! item takes over the counter with the smallest count. That count becomes the error of the item,
//! and the item's weight is added to the count. So the count of an item is never below its true
//! weight. Its certain weight, the count minus the error, is never above its true weight. With a
//! total weight of `W`, no error is above `W / capacity`, and every item whose weight is above that
//! has a counter.
//!
//! Adding is O(log capacity). Memory: one key and about 80 bytes per counter. Source: Metwally,
//! Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams"
//! (2005), with weights.

use std::collections::HashMap;
use std::sync::Arc;

/// The counters of the heaviest items of one stream of weighted items.
#[derive(Debug)]
pub struct HeavyHitters {
    capacity: usize,
    counters: Vec<Counter>,
    /// The indexes of the counters, as a binary heap with the smallest count first.
    heap: Vec<usize>,
    index: HashMap<Arc<[u8]>, usize>,
}

#[derive(Debug)]
struct Counter {
    key: Arc<[u8]>,
    count: u64,
    error: u64,
    /// The position of the counter in the heap of counters.
    heap_at: usize,
}

/// An item of the stream, and the bounds of its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hitter {
    /// The name of the item in the stream.
    pub key: Arc<[u8]>,
    /// The lower bound of the item's weight: the count minus the error.
    pub certain: u64,
    /// The upper bound of the item's weight: the count of its counter.
    pub count: u64,
}

impl HeavyHitters {
    /// Creates the counters for one stream of items: none in use, at most `capacity`.
    ///
    /// # Panics
    ///
    /// If the capacity is zero.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "somebody has to be counted");
        Self { capacity, counters: Vec::new(), heap: Vec::new(), index: HashMap::new() }
    }

    /// Adds `weight` to the weight of the item `key`. O(log capacity).
    pub fn add(&mut self, key: &[u8], weight: u64) {
        let at = match self.index.get(key) {
            Some(&at) => at,
            None if self.counters.len() < self.capacity => self.add_counter(key),
            None => self.take_smallest(key),
        };
        self.counters[at].count += weight;
        self.sink(self.counters[at].heap_at);
    }

    fn add_counter(&mut self, key: &[u8]) -> usize {
        let (at, key) = (self.counters.len(), Arc::<[u8]>::from(key));
        self.counters.push(Counter { key: Arc::clone(&key), count: 0, error: 0, heap_at: at });
        self.index.insert(key, at);
        self.heap.push(at);
        // No count is below zero: the new counter moves to the top.
        let mut child = at;
        while child > 0 {
            let parent = (child - 1) / 2;
            self.swap(child, parent);
            child = parent;
        }
        at
    }

    fn take_smallest(&mut self, key: &[u8]) -> usize {
        let (at, key) = (self.heap[0], Arc::<[u8]>::from(key));
        let counter = &mut self.counters[at];
        counter.error = counter.count;
        let old = std::mem::replace(&mut counter.key, Arc::clone(&key));
        self.index.remove(&old);
        self.index.insert(key, at);
        at
    }

    /// Moves the counter at heap position `parent` down the heap after its count has grown.
    fn sink(&mut self, mut parent: usize) {
        let count = |this: &Self, at: usize| this.counters[this.heap[at]].count;
        loop {
            let children =
                [2 * parent + 1, 2 * parent + 2].into_iter().filter(|&child| child < self.heap.len());
            let Some(smallest) = children.min_by_key(|&child| count(self, child)) else { return };
            if count(self, parent) <= count(self, smallest) {
                return;
            }
            self.swap(parent, smallest);
            parent = smallest;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.counters[self.heap[a]].heap_at = a;
        self.counters[self.heap[b]].heap_at = b;
    }

    /// Removes the counters of the items for which `keep` returns false. O(counters log counters).
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.counters.retain(|counter| keep(&counter.key));
        self.heap = (0..self.counters.len()).collect();
        // A sorted array is a valid heap.
        self.heap.sort_unstable_by_key(|&at| self.counters[at].count);
        for (heap_at, &at) in self.heap.iter().enumerate() {
            self.counters[at].heap_at = heap_at;
        }
        let places = self.counters.iter().enumerate();
        self.index = places.map(|(at, counter)| (Arc::clone(&counter.key), at)).collect();
    }

    /// Lists all items that have a counter, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Hitter> + '_ {
        self.counters.iter().map(|counter| Hitter {
            key: Arc::clone(&counter.key),
            certain: counter.count - counter.error,
            count: counter.count,
        })
    }

    /// Returns the `count` heaviest items of several streams, ordered by certain weight, heaviest
    /// first. The bounds of an item are summed over the streams. O(counters log counters).
    pub fn top<'h>(streams: impl Iterator<Item = &'h HeavyHitters>, count: usize) -> Vec<Hitter> {
        let mut sums: HashMap<Arc<[u8]>, Hitter> = HashMap::new();
        for hitter in streams.flat_map(HeavyHitters::iter) {
            let none = Hitter { key: Arc::clone(&hitter.key), certain: 0, count: 0 };
            let sum = sums.entry(Arc::clone(&hitter.key)).or_insert(none);
            sum.certain += hitter.certain;
            sum.count += hitter.count;
        }
        let mut top: Vec<Hitter> = sums.into_values().collect();
        top.sort_unstable_by(|a, b| b.certain.cmp(&a.certain).then_with(|| a.key.cmp(&b.key)));
        top.truncate(count);
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws a pseudo-random number below `bound` for the tests, and advances `state`.
    fn draw(state: &mut u64, bound: u64) -> u64 {
        *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (*state >> 33) % bound
    }

    #[test]
    fn weights_are_between_what_is_certain_and_what_is_counted() {
        for (capacity, keys) in [(1, 3), (8, 8), (16, 300), (64, 1000)] {
            let mut hitters = HeavyHitters::new(capacity);
            let (mut twin, mut total, mut state) = (HashMap::<Vec<u8>, u64>::new(), 0, 7 + keys);
            for _ in 0..20_000 {
                // A few keys get most of the weight.
                let key = draw(&mut state, keys).min(draw(&mut state, keys)).min(draw(&mut state, keys));
                let (key, weight) = (key.to_string().into_bytes(), draw(&mut state, 50));
                hitters.add(&key, weight);
                *twin.entry(key).or_default() += weight;
                total += weight;
            }
            let found: HashMap<_, _> = hitters.iter().map(|hitter| (hitter.key.to_vec(), hitter)).collect();
            assert!(found.len() <= capacity && hitters.heap.len() == found.len());
            assert_eq!(found.values().map(|hitter| hitter.count).sum::<u64>(), total);
            for (key, &weight) in &twin {
                match found.get(key) {
                    Some(hitter) => {
                        assert!(hitter.certain <= weight && weight <= hitter.count);
                        assert!(hitter.count - hitter.certain <= total / capacity as u64);
                    }
                    None => assert!(weight <= total / capacity as u64, "who has much has a counter"),
                }
            }
        }
    }

    #[test]
    fn what_is_not_kept_is_forgotten_and_counting_goes_on() {
        let mut hitters = HeavyHitters::new(4);
        for (key, weight) in [("a", 5), ("b", 1), ("c", 7), ("d", 3)] {
            hitters.add(key.as_bytes(), weight);
        }
        hitters.retain(|key| key != b"a");
        // The first new item gets the free counter. The second takes over the counter with the
        // smallest count.
        for (key, weight) in [("e", 4), ("f", 1), ("c", 1)] {
            hitters.add(key.as_bytes(), weight);
        }
        let mut left: Vec<_> = hitters.iter().map(|hitter| (hitter.key.to_vec(), hitter.count)).collect();
        left.sort_unstable();
        assert_eq!(left, [("c", 8), ("d", 3), ("e", 4), ("f", 2)].map(|(key, count)| (key.into(), count)));
    }

    #[test]
    fn several_streams_add_up() {
        let mut streams = [HeavyHitters::new(4), HeavyHitters::new(4)];
        for (stream, key, weight) in [(0, "a", 5), (1, "a", 6), (0, "b", 9), (1, "c", 1), (1, "d", 1)] {
            streams[stream].add(key.as_bytes(), weight);
        }
        let top = HeavyHitters::top(streams.iter(), 3);
        let shown: Vec<_> = top.iter().map(|hitter| (&*hitter.key, hitter.certain)).collect();
        assert_eq!(shown, [(b"a".as_slice(), 11), (b"b", 9), (b"c", 1)]);
    }
}

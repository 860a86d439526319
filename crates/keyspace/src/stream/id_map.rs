//! A map from entry IDs to small values: pending entries in the order of their IDs.
//!
//! ```text
//!   runs   [base | ids … | values …][base | ids … | values …] …      ascending, in a ring
//! ```
//! IDs mostly arrive in ascending order and are removed from the front. The map is therefore a ring
//! of runs. Each run has up to [`RUN_LEN_MAX`] IDs side by side with their values. A run is found
//! by binary search over the bases, and an ID by binary search within its run. If an ID comes after
//! a full last run, a new run is added, so that runs filled in order stay full. A full run that
//! gets an ID in its middle is split.
//!
//! Invariants: no run is empty. IDs ascend within a run. A run's base is not above its first ID and
//! is above all IDs of the run before. A base stays the same when its ID is removed.
//!
//! Complexity: finding, adding and removing are O(log n + moving half a run); stepping is O(1).
//! Adding or removing a run moves the handles of at most half of them.
//!
//! Memory: 16 bytes and the value for each ID, plus 64 bytes a run. Runs are full if IDs only came
//! in order, and at least a quarter full if they were also removed at random.
//!
//! Rejected: the standard library's B-tree, whose nodes stay half empty when IDs ascend. Also
//! Redis' layout, one radix tree per list with shared records: it costs a pointer and tree nodes
//! for every ID.

use std::collections::VecDeque;

use structures::size_class::size_class;

use super::StreamId;

/// The most IDs of a run. Moving half of them costs no more than finding the run.
const RUN_LEN_MAX: usize = 128;
/// The number of IDs below which a run is joined with a neighbour, if that has room.
const RUN_LEN_MIN: usize = RUN_LEN_MAX / 4;
/// The most IDs of two joined runs, so that the next few additions do not split them again.
const JOINED_LEN_MAX: usize = RUN_LEN_MAX * 3 / 4;

/// A map from entry IDs to values. See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct IdMap<V> {
    runs: VecDeque<Run<V>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Run<V> {
    base: StreamId,
    ids: Vec<StreamId>,
    values: Vec<V>,
}

/// The position of an ID: the index of a run, and the index in the run of the ID (`Ok`) or at which
/// the ID must be inserted (`Err`).
struct Place {
    run: usize,
    at: Result<usize, usize>,
}

impl<V> Default for IdMap<V> {
    fn default() -> Self {
        Self { runs: VecDeque::new(), len: 0 }
    }
}

impl<V> IdMap<V> {
    /// Returns the number of stream IDs in the map. O(1).
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of memory that the map owns. O(runs).
    pub(super) fn memory_usage(&self) -> usize {
        let block = |bytes: usize| if bytes == 0 { 0 } else { size_class(bytes) };
        let run = |run: &Run<V>| {
            block(run.ids.capacity() * size_of::<StreamId>()) + block(run.values.capacity() * size_of::<V>())
        };
        block(self.runs.capacity() * size_of::<Run<V>>()) + self.runs.iter().map(run).sum::<usize>()
    }

    /// Converts the map to an iterator that frees one run in each step. O(1).
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send
    where
        V: Send,
    {
        self.runs.into_iter().map(drop)
    }

    /// Returns true if the stream ID is in the map.
    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    /// Returns the value of the ID; `None` if the ID is not in the map.
    pub(super) fn get(&self, id: StreamId) -> Option<&V> {
        let place = self.find(id)?;
        Some(&self.runs[place.run].values[place.at.ok()?])
    }

    /// Returns the lowest stream ID in the map; `None` if the map is empty. O(1).
    pub(super) fn first(&self) -> Option<StreamId> {
        self.runs.front()?.ids.first().copied()
    }

    /// Returns the highest stream ID in the map; `None` if the map is empty. O(1).
    pub(super) fn last(&self) -> Option<StreamId> {
        self.runs.back()?.ids.last().copied()
    }

    /// Returns the map's IDs at or above `start` with their values, ascending. O(log n + a run) to
    /// begin, then O(1) for each ID.
    pub(super) fn from(&self, start: StreamId) -> impl Iterator<Item = (StreamId, &V)> + Clone {
        let first = self.run_of(start).unwrap_or(0);
        let all = self.runs.range(first..).flat_map(|run| run.ids.iter().copied().zip(&run.values));
        all.skip_while(move |(id, _)| *id < start)
    }

    /// Sets the ID's value. Returns the former value; `None` if the ID is new.
    pub(super) fn insert(&mut self, id: StreamId, value: V) -> Option<V> {
        let Some(place) = self.find(id) else {
            self.runs.push_back(Run::of(id, value));
            self.len = 1;
            return None;
        };
        let at = match place.at {
            Ok(at) => return Some(std::mem::replace(&mut self.runs[place.run].values[at], value)),
            Err(at) => at,
        };
        self.len += 1;
        let run = &mut self.runs[place.run];
        if run.ids.len() < RUN_LEN_MAX {
            run.insert(at, id, value);
        } else if at == RUN_LEN_MAX {
            self.runs.insert(place.run + 1, Run::of(id, value));
        } else {
            let mut upper = run.split();
            match at.checked_sub(run.ids.len()) {
                Some(at) => upper.insert(at, id, value),
                None => run.insert(at, id, value),
            }
            self.runs.insert(place.run + 1, upper);
        }
        None
    }

    /// Removes the ID and returns its value; `None` if the ID was not in the map.
    pub(super) fn remove(&mut self, id: StreamId) -> Option<V> {
        let place = self.find(id)?;
        let at = place.at.ok()?;
        self.len -= 1;
        let run = &mut self.runs[place.run];
        run.ids.remove(at);
        let value = run.values.remove(at);
        match run.ids.len() {
            0 => drop(self.runs.remove(place.run)),
            len if len < RUN_LEN_MIN => self.join_or_shrink(place.run),
            _ => {}
        }
        Some(value)
    }

    /// Joins the run at index `short` with a neighbour that has room, or else frees its unused
    /// memory.
    fn join_or_shrink(&mut self, short: usize) {
        let len = |run: usize| self.runs.get(run).map_or(RUN_LEN_MAX, |run| run.ids.len());
        let lower = match short.checked_sub(1) {
            Some(before) if len(before) + len(short) <= JOINED_LEN_MAX => before,
            _ if len(short) + len(short + 1) <= JOINED_LEN_MAX => short,
            _ => return self.runs[short].shrink(),
        };
        let upper = self.runs.remove(lower + 1).expect("the lower of two runs has one behind it");
        self.runs[lower].ids.extend(upper.ids);
        self.runs[lower].values.extend(upper.values);
    }

    /// Returns the index of the last run (block of IDs) whose base, its lower bound, is at or below
    /// `id`; 0 if no base is. Returns `None` if there are no runs.
    fn run_of(&self, id: StreamId) -> Option<usize> {
        // New IDs are usually above all others.
        if self.runs.back()?.base <= id {
            return Some(self.runs.len() - 1);
        }
        Some(self.runs.partition_point(|run| run.base <= id).saturating_sub(1))
    }

    fn find(&self, id: StreamId) -> Option<Place> {
        let run = self.run_of(id)?;
        Some(Place { run, at: self.runs[run].ids.binary_search(&id) })
    }
}

impl<V> Run<V> {
    fn of(id: StreamId, value: V) -> Self {
        Self { base: id, ids: vec![id], values: vec![value] }
    }

    fn insert(&mut self, at: usize, id: StreamId, value: V) {
        self.ids.insert(at, id);
        self.values.insert(at, value);
        self.base = self.base.min(id);
    }

    /// Removes the upper half of the run's IDs with their values, and returns them as a new run.
    fn split(&mut self) -> Self {
        let half = self.ids.len() / 2;
        let (ids, values) = (self.ids.split_off(half), self.values.split_off(half));
        Self { base: ids[0], ids, values }
    }

    /// Frees unused memory of the run if at most a quarter of it is used.
    fn shrink(&mut self) {
        if self.ids.len() * 4 <= self.ids.capacity() {
            self.ids.shrink_to(self.ids.len() * 2);
            self.values.shrink_to(self.values.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    fn check_invariants(map: &IdMap<u32>) {
        assert_eq!(map.runs.iter().map(|run| run.ids.len()).sum::<usize>(), map.len);
        let mut behind = None;
        for run in &map.runs {
            assert!(!run.ids.is_empty() && run.ids.len() <= RUN_LEN_MAX);
            assert_eq!(run.ids.len(), run.values.len());
            assert!(behind < Some(run.base) && run.base <= run.ids[0]);
            assert!(run.ids.is_sorted_by(|a, b| a < b));
            behind = run.ids.last().copied();
        }
    }

    #[test]
    fn ids_in_order_fill_their_runs() {
        let mut map = IdMap::default();
        for ms in 0..1280 {
            map.insert(id(ms), 7_u32);
        }
        assert_eq!(map.runs.len(), 10);
        let per_id = map.memory_usage() / 1280;
        assert!(per_id <= 16 + 4 + 2, "{per_id}");
    }

    #[test]
    fn a_map_that_lost_most_of_its_ids_is_small_again() {
        let mut map = IdMap::default();
        for ms in 0..12_800 {
            map.insert(id(ms), 7_u32);
        }
        (0..12_800).filter(|ms| ms % 100 != 0).for_each(|ms| assert!(map.remove(id(ms)).is_some()));
        check_invariants(&map);
        assert_eq!(map.len(), 128);
        assert!(map.runs.len() <= 5, "{}", map.runs.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn does_what_a_tree_does(
            ops in proptest::collection::vec((0_u8..8, 0_u64..2000), 0..1500),
            start in 0_u64..2000,
        ) {
            let (mut map, mut twin, mut next) = (IdMap::default(), BTreeMap::new(), 0);
            for (number, (op, ms)) in ops.into_iter().enumerate() {
                let value = number as u32;
                match op {
                    0..3 => {
                        next += ms % 5 + 1;
                        prop_assert_eq!(map.insert(id(next), value), twin.insert(id(next), value));
                    }
                    3 => prop_assert_eq!(map.insert(id(ms), value), twin.insert(id(ms), value)),
                    4 => {
                        let first = twin.keys().next().copied().unwrap_or_default();
                        prop_assert_eq!(map.remove(first), twin.remove(&first));
                    }
                    _ => prop_assert_eq!(map.remove(id(ms)), twin.remove(&id(ms))),
                }
                prop_assert_eq!(map.get(id(ms)), twin.get(&id(ms)));
            }
            check_invariants(&map);
            prop_assert_eq!(map.first(), twin.keys().next().copied());
            prop_assert_eq!(map.last(), twin.keys().next_back().copied());
            let expected: Vec<_> = twin.range(id(start)..).map(|(&id, value)| (id, value)).collect();
            prop_assert_eq!(map.from(id(start)).collect::<Vec<_>>(), expected);
        }
    }
}

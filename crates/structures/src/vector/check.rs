//! The check of a vector index's invariants, for tests and fuzzing.

use super::{LEVEL_MAX, NONE, VectorIndex};
use std::collections::HashSet;

impl VectorIndex {
    /// Checks all invariants of the index, O(n × links²).
    ///
    /// # Panics
    /// If one does not hold.
    #[doc(hidden)]
    pub fn check(&self) {
        let slots: Vec<u32> = self.slots().map(|slot| slot.0).collect();
        assert_eq!(slots.len(), self.len);
        assert_eq!(self.nodes.free_len() + self.len, self.nodes.len());
        let names: Vec<&[u8]> = self.slots_by_name(|_| false).map(|slot| self.name(slot)).collect();
        assert_eq!(names.len(), self.len);
        assert!(names.is_sorted_by(|a, b| a < b));
        let mut uid_before = 0;
        let mut level_counts = [0; LEVEL_MAX + 1];
        let mut upper_len_bytes = 0;
        for slot in &slots {
            let node = self.live(*slot);
            assert!(node.uid > uid_before && node.uid < self.uid_next);
            uid_before = node.uid;
            assert_eq!(self.find(node.name()).map(|found| found.0), Some(*slot));
            level_counts[node.level()] += 1;
            upper_len_bytes += node.upper.as_ref().map_or(0, |upper| upper.memory_usage());
            for level in 0..=node.level() {
                self.check_links(level, *slot);
            }
        }
        assert_eq!(level_counts, self.level_counts);
        assert_eq!(upper_len_bytes, self.upper_len_bytes);
        assert_eq!(self.texts_len_bytes, slots.iter().map(|slot| self.live(*slot).text.len()).sum());
        assert_eq!(
            self.attributes_count,
            slots.iter().filter(|slot| self.live(**slot).has_attributes).count()
        );
        match slots.is_empty() {
            true => assert_eq!(self.entry, NONE),
            false => assert_eq!(
                Some(self.live(self.entry).level()),
                level_counts.iter().rposition(|count| *count > 0)
            ),
        }
    }

    fn check_links(&self, level: usize, slot: u32) {
        let links = self.links_at(level, slot);
        assert!(links.len() <= self.config.m * if level == 0 { 2 } else { 1 });
        assert_eq!(links.iter().collect::<HashSet<_>>().len(), links.len());
        for link in links {
            assert_ne!(*link, slot);
            assert!(self.live(*link).level() >= level);
            assert!(self.links_at(level, *link).contains(&slot));
        }
    }

    /// Returns the number of elements that can be reached on level 0 from the entry by following
    /// links.
    #[doc(hidden)]
    pub fn reachable(&self) -> usize {
        let mut seen: HashSet<u32> = (self.entry != NONE).then_some(self.entry).into_iter().collect();
        let mut open: Vec<u32> = seen.iter().copied().collect();
        while let Some(slot) = open.pop() {
            open.extend(self.links_at(0, slot).iter().copied().filter(|link| seen.insert(*link)));
        }
        seen.len()
    }
}

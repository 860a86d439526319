//! The links of the graph: those of a new node, and those that replace the links of a removed
//! one.
//!
//! A new node gets up to `m` links per level, by the heuristic of Malkov and Yashunin. First come
//! candidates that are closer to it than to each other, so that links lead in different
//! directions; then the closest of the rest. A neighbour without room gives up a link that
//! another of its links makes redundant. Both ends lose it, so it takes none from a node that has
//! few.
//!
//! When a node is removed, its neighbours are linked with each other, the closest pairs first. A
//! node that is left with too few links searches for new ones.

use super::near::Near;
use super::search::{Scratch, Walk, with_scratch};
use super::{NONE, VectorIndex};

/// The number of candidates of the search for new links of a node that has lost links.
const EF_RELINK: usize = 100;
/// The number of neighbours of a removed node that are paired with each other at the same time.
const PAIRED_MAX: usize = 64;

impl VectorIndex {
    /// Returns the largest number of links that a node may have on a level.
    pub(super) fn limit(&self, level: usize) -> usize {
        if level == 0 { self.config.m * 2 } else { self.config.m }
    }

    /// Returns the number of links from which on a node on this level may lose a link to a newer
    /// node.
    fn spare(&self, level: usize) -> usize {
        self.limit(level) / 4 + 1
    }

    /// Returns the links of a node on one of its levels.
    #[inline]
    pub(super) fn links_at(&self, level: usize, slot: u32) -> &[u32] {
        match level {
            0 => self.lists.get(slot),
            _ => &self.live(slot).upper()[level - 1],
        }
    }

    /// Links two nodes on a level with each other; both have room for a link.
    pub(super) fn add_link(&mut self, level: usize, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            match level {
                0 => self.lists.add(from, to),
                _ => {
                    let links = &mut self.nodes.get_mut(from).upper_mut()[level - 1];
                    let before = links.capacity();
                    links.push(to);
                    self.upper_len_bytes += (links.capacity() - before) * size_of::<u32>();
                }
            }
        }
    }

    /// Removes the link from one node to another, but not the link in the other direction.
    fn remove_link_of(&mut self, level: usize, from: u32, to: u32) {
        match level {
            0 => self.lists.remove(from, to),
            _ => {
                let links = &mut self.nodes.get_mut(from).upper_mut()[level - 1];
                let at = links.iter().position(|link| *link == to).expect("links are symmetric");
                links.swap_remove(at);
            }
        }
    }

    /// Links a new node, which has no links yet, on all its levels.
    pub(super) fn link(&mut self, slot: u32, ef: usize) {
        let level = self.live(slot).level();
        self.level_counts[level] += 1;
        if self.entry == NONE {
            self.entry = slot;
            return;
        }
        let top = self.max_level();
        with_scratch(|scratch| {
            let row = self.rows.get(slot).to_vec();
            scratch.found.clear();
            scratch.found.push(self.descend(&row, level.min(top)));
            for level in (0..=level.min(top)).rev() {
                self.link_at(level, slot, &row, ef, scratch);
            }
        });
        if level > top {
            self.entry = slot;
        }
    }

    /// Links a node on one level to the best candidates that a walk from the nodes in
    /// `scratch.found` finds.
    fn link_at(&mut self, level: usize, slot: u32, row: &[u8], ef: usize, scratch: &mut Scratch) {
        self.walk(Walk { row, level, ef: ef.max(1), effort_max: usize::MAX }, scratch, |near| near != slot);
        let chosen = self.choose(&scratch.found, self.config.m);
        for near in &chosen {
            if self.links_at(level, slot).len() < self.limit(level) {
                self.connect(level, slot, *near);
            }
        }
        if let (Some(first), true) = (chosen.first(), self.links_at(level, slot).is_empty()) {
            self.connect_by_force(level, slot, first.slot());
        }
    }

    /// Chooses up to `count` of the candidates, which are sorted by distance, as links of a node:
    /// those in different directions, then the closest of the others.
    fn choose(&self, candidates: &[Near], count: usize) -> Vec<Near> {
        let mut chosen: Vec<Near> = Vec::with_capacity(count);
        let mut others = Vec::new();
        for near in candidates {
            if chosen.len() == count {
                return chosen;
            }
            match chosen.iter().any(|other| self.makes_redundant(*other, *near)) {
                true => others.push(*near),
                false => chosen.push(*near),
            }
        }
        others.truncate(count - chosen.len());
        chosen.append(&mut others);
        chosen
    }

    /// Returns true if a node with a link to `other` needs none to `near`: they are closer to each
    /// other, or equal.
    #[inline]
    fn makes_redundant(&self, other: Near, near: Near) -> bool {
        let (a, b) = (self.rows.get(other.slot()), self.rows.get(near.slot()));
        let distance = self.form.distance(a, b);
        distance < near.distance() || distance == near.distance() && a == b
    }

    /// Links a node that has room on the level to `near`, unless `near` already has better links.
    fn connect(&mut self, level: usize, slot: u32, near: Near) {
        let other = near.slot();
        if self.links_at(level, other).len() == self.limit(level) {
            let dropped = self.dispensable(level, other, Near::new(near.distance(), slot));
            if dropped == slot {
                return;
            }
            self.remove_link_of(level, other, dropped);
            self.remove_link_of(level, dropped, other);
        }
        self.add_link(level, slot, other);
    }

    /// Returns the link that a node gives up for `new`, which may be `new` itself: the farthest
    /// that is redundant, or the farthest if none is.
    fn dispensable(&self, level: usize, slot: u32, new: Near) -> u32 {
        let row = self.rows.get(slot);
        let mut links: Vec<Near> =
            self.links_at(level, slot).iter().map(|link| self.near(row, *link)).collect();
        links.push(new);
        links.sort_unstable();
        let may_go =
            |near: &Near| *near == new || self.links_at(level, near.slot()).len() > self.spare(level);
        let redundant = (1..links.len()).rev().find(|at| {
            may_go(&links[*at]) && links[..*at].iter().any(|closer| self.makes_redundant(*closer, links[*at]))
        });
        let farthest = || links.iter().rev().find(|near| may_go(near));
        redundant.map(|at| &links[at]).or_else(farthest).map_or(new.slot(), |near| near.slot())
    }

    /// Links a node that has no links to `other`. If that is full, the node enters one of its
    /// links: both ends of the old link become neighbours of the node, so nothing is cut off.
    fn connect_by_force(&mut self, level: usize, slot: u32, other: u32) {
        if self.links_at(level, other).len() == self.limit(level) {
            let row = self.rows.get(slot);
            let links = self.links_at(level, other).iter();
            let entered = links.map(|link| self.near(row, *link)).min().expect("a full list").slot();
            self.remove_link_of(level, other, entered);
            self.remove_link_of(level, entered, other);
            self.add_link(level, slot, entered);
        }
        self.add_link(level, slot, other);
    }

    /// Removes a node from the graph and links its neighbours with each other.
    pub(super) fn unlink(&mut self, slot: u32) {
        let level = self.live(slot).level();
        self.level_counts[level] -= 1;
        let mut neighbours: Vec<Vec<u32>> = Vec::with_capacity(level + 1);
        for level in 0..=level {
            let links = self.links_at(level, slot).to_vec();
            for link in &links {
                self.remove_link_of(level, *link, slot);
            }
            neighbours.push(links);
        }
        self.lists.clear(slot);
        if let Some(upper) = self.nodes.get_mut(slot).upper.take() {
            self.upper_len_bytes -= upper.memory_usage();
        }
        if self.entry == slot {
            self.entry = self.next_entry(slot, &neighbours);
        }
        for (level, links) in neighbours.iter().enumerate() {
            self.pair(level, slot, links);
        }
    }

    /// Finds a node of the highest remaining level as the new entry: among the neighbours of the
    /// old entry, or else among all.
    fn next_entry(&self, old: u32, neighbours: &[Vec<u32>]) -> u32 {
        let Some(top) = self.level_counts.iter().rposition(|count| *count > 0) else { return NONE };
        let is_top =
            |slot: &u32| *slot != old && self.nodes.get(*slot).is_some_and(|node| node.level() == top);
        let near = neighbours.get(top).and_then(|links| links.iter().copied().find(is_top));
        near.or_else(|| (0..self.nodes.len() as u32).find(is_top)).unwrap_or(NONE)
    }

    /// Links the former neighbours of the removed node `slot` with each other.
    fn pair(&mut self, level: usize, slot: u32, neighbours: &[u32]) {
        let row = self.rows.get(slot).to_vec();
        let mut sorted: Vec<Near> = neighbours.iter().map(|link| self.near(&row, *link)).collect();
        sorted.sort_unstable();
        for group in sorted.chunks(PAIRED_MAX) {
            self.pair_group(level, group);
        }
        for near in sorted {
            if self.links_at(level, near.slot()).len() < self.spare(level).min(self.len / 2) {
                self.relink(level, near.slot());
            }
        }
    }

    /// Gives each node of a group one more link to a node of the group, beginning with the closest
    /// pairs.
    fn pair_group(&mut self, level: usize, group: &[Near]) {
        let mut pairs: Vec<(Near, u32)> = Vec::with_capacity(group.len() * group.len() / 2);
        for (at, a) in group.iter().enumerate() {
            let links = self.links_at(level, a.slot());
            let row = self.rows.get(a.slot());
            let others = group[at + 1..].iter().filter(|b| !links.contains(&b.slot()));
            pairs.extend(others.map(|b| (self.near(row, b.slot()), a.slot())));
        }
        pairs.sort_unstable();
        let mut lacking: Vec<u32> = group.iter().map(|near| near.slot()).collect();
        for (near, other) in pairs {
            let at = |slot: u32, lacking: &[u32]| lacking.iter().position(|lacks| *lacks == slot);
            if let (Some(_), Some(_)) = (at(near.slot(), &lacking), at(other, &lacking)) {
                self.add_link(level, near.slot(), other);
                lacking.retain(|slot| *slot != other && *slot != near.slot());
            }
        }
    }

    /// Searches for new links of a node that has too few links on a level.
    pub(super) fn relink(&mut self, level: usize, slot: u32) {
        with_scratch(|scratch| {
            let row = self.rows.get(slot).to_vec();
            scratch.found.clear();
            scratch.found.push(self.descend(&row, level));
            self.walk(Walk { row: &row, level, ef: EF_RELINK, effort_max: usize::MAX }, scratch, |near| {
                near != slot
            });
            let links = self.links_at(level, slot);
            scratch.found.retain(|near| !links.contains(&near.slot()));
            let wanted = self.config.m.saturating_sub(links.len());
            let chosen = self.choose(&scratch.found, wanted);
            for near in &chosen {
                self.connect(level, slot, *near);
            }
            if let (Some(first), true) = (chosen.first(), self.links_at(level, slot).is_empty()) {
                self.connect_by_force(level, slot, first.slot());
            }
        });
    }

    /// Removes all links of the graph and links all nodes again, in the order of their insertion.
    pub(super) fn rebuild(&mut self, ef: usize) {
        let slots: Vec<u32> = self.slots().map(|slot| slot.0).collect();
        self.entry = NONE;
        self.level_counts = Default::default();
        self.upper_len_bytes = 0;
        for slot in &slots {
            self.lists.clear(*slot);
            let upper = self.draw_levels(self.live(*slot).uid);
            self.upper_len_bytes += upper.as_ref().map_or(0, |upper| upper.memory_usage());
            self.nodes.get_mut(*slot).upper = upper;
        }
        for slot in slots {
            self.link(slot, ef);
        }
    }
}

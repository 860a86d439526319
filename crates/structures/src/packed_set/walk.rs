//! A snapshot's walk over a packed set in its state at one moment, while the set continues to
//! change.
//!
//! The walk visits members in the order of their points. As in `table::walk`, a member that is
//! added ahead of the walk is marked, and the walk skips it; a member that is removed ahead of the
//! walk is kept as a copy unless it is marked. The walk clears marks, so no member is marked after
//! it.
//! Splits and merges move members with their marks and do not change their points. If a bucket lies
//! on both sides of the walk's point, the walk compares points.

use std::sync::Arc;

use super::{CHUNK_BITS, CHUNK_LEN, POINT_END, PackedPlace, PackedSet, point_of};
use crate::member::Member;
use crate::walk_state::{CopiedBytes, MemorySize, PositionOf, WalkState};

/// The state of a walk.
pub(super) struct Walk {
    ticket: u32,
    position_of: PositionOf,
    /// The point that the walk has reached: members at lower points were visited or skipped.
    point: u64,
    /// Copies of members that have left the set since the start, and that are not visited yet.
    copied: Vec<Member<()>>,
    copied_len_bytes: CopiedBytes,
}

impl Walk {
    /// Returns true if the walk has not reached the member with this position yet. O(1).
    pub(super) fn is_ahead(&self, position: u64) -> bool {
        point_of(position) >= self.point
    }
}

impl PackedSet {
    /// Starts a snapshot's walk of the set's present state, whose members [`PackedSet::walk_next`]
    /// visits. Drops a walk in progress. O(1).
    pub fn begin(&mut self, walk_state: WalkState) {
        self.walk = Some(Box::new(Walk {
            ticket: walk_state.ticket,
            position_of: walk_state.position_of,
            point: 0,
            copied: Vec::new(),
            copied_len_bytes: CopiedBytes::new(walk_state.copied_len_bytes),
        }));
    }

    /// Returns the ticket ([`WalkState::ticket`]) of the snapshot's walk in progress; `None` if
    /// there is none. O(1).
    pub fn ticket(&self) -> Option<u32> {
        Some(self.walk.as_ref()?.ticket)
    }

    /// Keeps a copy of the member at `place`, which is about to be removed, unless a walk has
    /// visited it or must not visit it.
    #[inline]
    pub(super) fn keep_for_walk(&mut self, place: PackedPlace) {
        if self.walk.is_some() {
            self.keep_copy(place);
        }
    }

    #[cold]
    fn keep_copy(&mut self, place: PackedPlace) {
        let bucket = &self.chunks[place.bucket >> CHUNK_BITS][place.bucket % CHUNK_LEN];
        let member = bucket.member(place.index);
        if let Some(walk) = &mut self.walk
            && walk.is_ahead((walk.position_of)(member))
            && !bucket.is_marked(place.index)
        {
            let copy = Member::new(member, ());
            walk.copied_len_bytes.add(copy.weight_bytes());
            walk.copied.push(copy);
        }
    }

    /// Visits about the next `members_max` members of the snapshot's walk, in any order. Returns
    /// true if there are more.
    pub fn walk_next(&mut self, members_max: usize, mut visit: impl FnMut(&[u8])) -> bool {
        let mut shown = 0;
        while shown < members_max {
            let Some(walk) = &mut self.walk else { return false };
            if let Some(copy) = walk.copied.pop() {
                walk.copied_len_bytes.sub(copy.weight_bytes());
                visit(copy.bytes());
                shown += 1;
                continue;
            }
            let point = walk.point;
            if point == POINT_END {
                self.walk = None;
                return false;
            }
            // An empty bucket counts as one member, so that a step over empty buckets is bounded.
            shown += 1;
            if self.bucket_count == 0 {
                walk.point = POINT_END;
                continue;
            }
            let position_of = Arc::clone(&walk.position_of);
            let (at, interval) = self.bucket_at(point);
            let is_ahead = |member: &[u8]| interval.start >= point || point_of(position_of(member)) >= point;
            self.bucket_mut(at).visit_and_clear(is_ahead, |member| {
                visit(member);
                shown += 1;
            });
            if let Some(walk) = &mut self.walk {
                walk.point = interval.end;
            }
        }
        true
    }
}

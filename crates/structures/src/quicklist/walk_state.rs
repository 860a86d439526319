//! Walks of a quicklist for snapshots (see `walk_state`). A walk visits the nodes in order, in
//! their state at its start.

use super::{NodeView, Quicklist};
use crate::walk_state::WalkState;

impl Quicklist {
    /// Starts a snapshot's walk, which reads the list's present state while the list changes;
    /// [`Quicklist::walk_next`] visits its nodes. O(1).
    pub fn begin_walk(&mut self, walk_state: &WalkState) {
        self.nodes.begin(walk_state, ());
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the list;
    /// `None` if there is none. O(1).
    #[inline]
    pub fn ticket(&self) -> Option<u32> {
        self.nodes.ticket()
    }

    /// Visits the next nodes of the snapshot's walk, in order, until they hold at least
    /// `elements_min` elements. Returns true if there are more nodes. O(bytes of the visited
    /// nodes).
    pub fn walk_next(&mut self, elements_min: usize, mut visit: impl FnMut(NodeView<'_>)) -> bool {
        let (mut scratch, mut shown) = (Vec::new(), 0);
        while shown < elements_min {
            let more = self.nodes.walk_next(|node| {
                visit(node.view(&mut scratch));
                shown += node.count();
            });
            if !more {
                self.nodes.end();
                return false;
            }
        }
        true
    }
}

//! Showing a quicklist node by node, as it was at one moment, while it goes on changing.

use super::{NodeView, Quicklist};
use crate::showing::Showing;

impl Quicklist {
    /// Fixes the state: until [`Quicklist::show`] says that all was shown, it shows the nodes as
    /// they are now. O(1).
    pub fn begin_showing(&mut self, showing: &Showing) {
        self.nodes.begin(showing, ());
    }

    /// Returns the ticket of the showing in progress. O(1).
    #[inline]
    pub fn ticket(&self) -> Option<u32> {
        self.nodes.ticket()
    }

    /// Shows the next nodes, in order, until they hold `elements_min` elements or more; whether
    /// there are more. O(bytes of those).
    pub fn show(&mut self, elements_min: usize, mut visit: impl FnMut(NodeView<'_>)) -> bool {
        let (mut scratch, mut shown) = (Vec::new(), 0);
        while shown < elements_min {
            let more = self.nodes.show(|node| {
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

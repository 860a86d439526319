//! Reading a quicklist, node by node.
//!
//! Elements are passed to a closure, not returned. The elements of a compressed node are in a
//! scratch buffer during the call, and the node itself stays compressed. Reading therefore changes
//! nothing, and needs at most the bytes of one node besides the list.

use std::ops::ControlFlow;

use super::{NodeView, Quicklist};
use crate::listpack::element::{self, Element};

impl Quicklist {
    /// Calls `with` with the list's element at `index`. Returns its result, or `None` if there is
    /// no such element. O(nodes + elements of one node), from the nearer end.
    pub fn with<R>(&self, index: usize, with: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let (at, inner) = self.locate(index)?;
        match self.nodes[at].view(&mut Vec::new()) {
            NodeView::Plain(bytes) => Some(with(Element::Bytes(bytes))),
            NodeView::Packed { run, count } => {
                let (element, _) = element::decode(&run[element::seek(run, count, inner)..])?;
                Some(with(element))
            }
        }
    }

    /// Calls `visit` with `count` elements of the list, beginning with the one at `index`, or with
    /// all if there are fewer. O(nodes) to begin, then O(1) for each element.
    #[inline]
    pub fn visit(&self, index: usize, mut count: usize, mut visit: impl FnMut(Element<'_>)) {
        let Some((at, mut inner)) = self.locate(index) else { return };
        let mut scratch = Vec::new();
        for node in self.nodes.range(at..) {
            if count == 0 {
                return;
            }
            count -= match node.view(&mut scratch) {
                NodeView::Plain(bytes) => {
                    visit(Element::Bytes(bytes));
                    1
                }
                NodeView::Packed { run, count: len } => {
                    element::visit(&run[element::seek(run, len, inner)..], count, &mut visit)
                }
            };
            inner = 0;
        }
    }

    /// Calls `visit` with all elements of the list, first to last, until it returns `Break`. O(n).
    pub fn try_visit<B>(&self, mut visit: impl FnMut(Element<'_>) -> ControlFlow<B>) -> ControlFlow<B> {
        let mut scratch = Vec::new();
        for node in &self.nodes {
            match node.view(&mut scratch) {
                NodeView::Plain(bytes) => visit(Element::Bytes(bytes))?,
                NodeView::Packed { mut run, .. } => {
                    while let Some((element, len)) = element::decode(run) {
                        visit(element)?;
                        run = &run[len..];
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Calls `visit` with the list's element at `index`, then with those before it, backwards,
    /// until it returns `Break`. O(nodes) to begin, then O(1) for each element.
    pub fn try_visit_rev<B>(
        &self,
        index: usize,
        mut visit: impl FnMut(Element<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some((at, inner)) = self.locate(index) else { return ControlFlow::Continue(()) };
        let (mut scratch, mut wanted) = (Vec::new(), inner + 1);
        for node in self.nodes.range(..=at).rev() {
            match node.view(&mut scratch) {
                NodeView::Plain(bytes) => visit(Element::Bytes(bytes))?,
                NodeView::Packed { run, count } => {
                    let mut run = &run[..element::seek(run, count, wanted)];
                    while let Some((element, start)) = element::decode_last(run) {
                        visit(element)?;
                        run = &run[..start];
                    }
                }
            }
            wanted = usize::MAX;
        }
        ControlFlow::Continue(())
    }

    /// Calls `visit` with the content of each node of the list, first to last. O(nodes + bytes of
    /// compressed nodes).
    pub fn visit_nodes(&self, mut visit: impl FnMut(NodeView<'_>)) {
        let mut scratch = Vec::new();
        self.nodes.iter().for_each(|node| visit(node.view(&mut scratch)));
    }
}

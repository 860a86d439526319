//! Walking over a quicklist, node by node.

use std::collections::vec_deque;

use super::node::Node;
use crate::listpack;
use crate::listpack::element::{self, Element};

/// Elements of a quicklist, forwards; or of a listpack, so that an owner of either has one type.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    /// What is left of the current node.
    pub(super) run: &'a [u8],
    pub(super) nodes: vec_deque::Iter<'a, Node>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.run.is_empty() {
            let node = self.nodes.next()?;
            if let Some(bytes) = node.as_plain() {
                return Some(Element::Bytes(bytes));
            }
            self.run = node.run();
        }
        let (element, len) = element::decode(self.run)?;
        self.run = &self.run[len..];
        Some(element)
    }
}

impl<'a> Iter<'a> {
    /// Calls `visit` with the next `count` elements, or as many as there are: what long ranges are read with, for
    /// less than `next` costs (docs/performance.md). O(count).
    #[inline]
    pub fn visit(mut self, mut count: usize, mut visit: impl FnMut(Element<'a>)) {
        count -= element::visit(self.run, count, &mut visit);
        while count > 0
            && let Some(node) = self.nodes.next()
        {
            count -= match node.as_plain() {
                Some(bytes) => {
                    visit(Element::Bytes(bytes));
                    1
                }
                None => element::visit(node.run(), count, &mut visit),
            };
        }
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

impl<'a> From<listpack::Iter<'a>> for Iter<'a> {
    fn from(elements: listpack::Iter<'a>) -> Self {
        Self { run: elements.run(), nodes: vec_deque::Iter::default() }
    }
}

/// Elements of a quicklist (or of a listpack), backwards.
#[derive(Clone, Debug)]
pub struct RevIter<'a> {
    /// What is left of the current node.
    pub(super) run: &'a [u8],
    pub(super) nodes: vec_deque::Iter<'a, Node>,
}

impl<'a> Iterator for RevIter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.run.is_empty() {
            let node = self.nodes.next_back()?;
            if let Some(bytes) = node.as_plain() {
                return Some(Element::Bytes(bytes));
            }
            self.run = node.run();
        }
        let (element, start) = element::decode_last(self.run)?;
        self.run = &self.run[..start];
        Some(element)
    }
}

impl std::iter::FusedIterator for RevIter<'_> {}

impl<'a> From<listpack::Iter<'a>> for RevIter<'a> {
    fn from(elements: listpack::Iter<'a>) -> Self {
        Self { run: elements.run(), nodes: vec_deque::Iter::default() }
    }
}

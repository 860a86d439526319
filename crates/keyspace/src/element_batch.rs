//! A sequence of strings in one buffer: the elements that a command moves between lists.

use structures::listpack::element::Element;

/// A sequence of strings that follow one another in one buffer.
#[derive(Clone, Debug, Default)]
pub struct ElementBatch {
    bytes: Vec<u8>,
    /// The index in `bytes` after the end of each string.
    ends: Vec<usize>,
}

impl ElementBatch {
    /// Appends the text of `element` as the next string. Amortised O(bytes).
    pub fn push(&mut self, element: Element<'_>) {
        element.append_to(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of strings in the batch. O(1).
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the batch has no strings. O(1).
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns an iterator over the strings of the batch, in the order of their insertion.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.ends.len()).map(|at| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start..self.ends[at]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_forwards_and_backwards() {
        let mut batch = ElementBatch::default();
        assert!(batch.is_empty());
        for element in [Element::Bytes(b"a"), Element::Bytes(b""), Element::Int(-7)] {
            batch.push(element);
        }
        assert_eq!((batch.len(), batch.is_empty()), (3, false));
        assert_eq!(batch.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"-7"]);
        assert_eq!(batch.iter().rev().collect::<Vec<_>>(), [&b"-7"[..], b"", b"a"]);
    }
}

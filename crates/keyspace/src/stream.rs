//! The stream type.

/// The stream type.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    elements: Box<Vec<Box<[u8]>>>,
}

impl Stream {
    /// Number of elements. O(1).
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding_name(&self) -> &'static str {
        "stream"
    }

    /// Bytes owned outside the key's block.
    pub fn memory_usage(&self) -> usize {
        self.elements.capacity()
    }
}

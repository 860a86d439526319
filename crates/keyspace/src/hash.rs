//! The hash type.

/// The hash type.
#[derive(Clone, Debug, Default)]
pub struct Hash {
    elements: Box<Vec<Box<[u8]>>>,
}

impl Hash {
    /// Number of elements. O(1).
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding_name(&self) -> &'static str {
        "listpack"
    }

    /// Bytes owned outside the key's block.
    pub fn memory_usage(&self) -> usize {
        self.elements.capacity()
    }
}

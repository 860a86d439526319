//! Arguments of a request that outlive the input buffer: of an inline command, of a command queued
//! in a transaction, or of a blocked client's request.

use commands::Args;
use keyspace::Hasher;
use resp::parse::Span;

/// The arguments of one request, stored one after the other in memory of their own.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgs {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    /// Copies the words of a request, in two allocations. O(bytes). Not inlined, because parsing a
    /// batch rarely calls it.
    #[inline(never)]
    pub fn new<'w>(words: impl Iterator<Item = &'w [u8]> + Clone) -> Self {
        let (count, len_bytes) =
            words.clone().fold((0, 0), |(count, len), word| (count + 1, len + word.len()));
        let (mut bytes, mut spans) = (Vec::with_capacity(len_bytes), Vec::with_capacity(count));
        for word in words {
            spans.push(Span { start: bytes.len() as u32, len: word.len() as u32 });
            bytes.extend_from_slice(word);
        }
        Self { bytes: bytes.into_boxed_slice(), spans: spans.into_boxed_slice() }
    }

    /// Borrows the stored words as the arguments of a request.
    pub fn args<'a>(&'a self, hasher: &'a Hasher) -> Args<'a> {
        Args::new(&self.bytes, &self.spans, hasher)
    }

    /// Returns the length of all stored words together, in bytes.
    pub fn text_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the memory allocated for the arguments, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }
}

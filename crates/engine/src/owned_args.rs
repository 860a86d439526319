//! Arguments of a request that outlive the bytes it arrived in: of a command typed inline, queued
//! in a transaction, or waiting for a key.

use commands::Args;
use keyspace::Hasher;
use resp::parse::Span;

/// The arguments of one request, one behind the other in memory of their own.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgs {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    /// Copies these words, in two allocations. O(bytes). Out of line: it is rare where a batch is
    /// parsed.
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

    /// Borrows the arguments.
    pub fn args<'a>(&'a self, hasher: &'a Hasher) -> Args<'a> {
        Args::new(&self.bytes, &self.spans, hasher)
    }

    /// Returns the length of the words, without anything around them.
    pub fn text_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length of their memory, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }
}

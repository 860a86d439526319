//! Memory for the input of one turn: many connections' bytes side by side, all of it free again
//! when the next turn begins.
//!
//! ```text
//!   arena  [conn 4: 37 bytes][conn 9: 512 bytes][conn 2: …            ] free …
//! ```
//! A [`Span`] names a piece. Only `sys` makes spans, and a span carries the turn it belongs
//! to: using one after its turn panics instead of showing another connection's bytes.

#[cfg(target_os = "linux")]
use super::buffers::ProvidedBuffers;
use super::span::Span;

/// The memory of one turn's input.
pub(crate) enum TurnMemory {
    /// Filled front to back by ordinary receives.
    Arena(Arena),
    /// Filled by the kernel.
    #[cfg(target_os = "linux")]
    Buffers(ProvidedBuffers),
}

impl TurnMemory {
    /// Borrows the bytes of `span`.
    ///
    /// # Panics
    /// Its turn is over.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        match self {
            TurnMemory::Arena(arena) => arena.bytes(span),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.bytes(span),
        }
    }

    /// Borrows the bytes of `span`, to change them.
    ///
    /// # Panics
    /// Its turn is over.
    pub(crate) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        match self {
            TurnMemory::Arena(arena) => arena.bytes_mut(span),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.bytes_mut(span),
        }
    }

    /// Ends the turn: every span made so far becomes invalid, all memory free.
    pub(crate) fn end_turn(&mut self) {
        match self {
            TurnMemory::Arena(arena) => arena.end_turn(),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.end_turn(),
        }
    }

    /// Borrows the arena, for the back end that receives into one.
    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        match self {
            TurnMemory::Arena(arena) => arena,
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(_) => unreachable!("the epoll back end was built with an arena"),
        }
    }

    /// Borrows the provided buffers, for the back end whose kernel fills them.
    #[cfg(target_os = "linux")]
    pub(crate) fn buffers_mut(&mut self) -> &mut ProvidedBuffers {
        match self {
            TurnMemory::Buffers(buffers) => buffers,
            TurnMemory::Arena(_) => unreachable!("the io_uring back end was built with buffers"),
        }
    }
}

/// One block, filled front to back within a turn and reused from its start in the next, so that
/// light load stays within the first, cached pages. Untouched pages cost no memory.
pub(crate) struct Arena {
    bytes: Vec<u8>,
    filled: usize,
    turn: u32,
}

impl Arena {
    /// Creates an arena of `len_bytes`, at most 4 GiB.
    pub(crate) fn new(len_bytes: usize) -> Self {
        assert!(u32::try_from(len_bytes).is_ok(), "spans count in 32 bits");
        Self { bytes: vec![0; len_bytes], filled: 0, turn: 1 }
    }

    /// Borrows the next `len_max` free bytes to receive into, fewer near the end.
    pub(crate) fn free_mut(&mut self, len_max: usize) -> &mut [u8] {
        let end = self.bytes.len().min(self.filled + len_max);
        &mut self.bytes[self.filled..end]
    }

    /// Returns true if `len_bytes` more fit into this turn.
    pub(crate) fn has_room(&self, len_bytes: usize) -> bool {
        self.bytes.len() - self.filled >= len_bytes
    }

    /// Claims the first `len` of the free bytes as received.
    pub(crate) fn take(&mut self, len: usize) -> Span {
        assert!(self.has_room(len), "more claimed than was free");
        let span = Span::new(self.filled as u32, len as u32, self.turn);
        self.filled += len;
        span
    }

    #[inline]
    fn bytes(&self, span: Span) -> &[u8] {
        if span.len() == 0 {
            return &[];
        }
        assert_eq!(span.turn(), self.turn, "input of a past turn");
        &self.bytes[span.start()..][..span.len()]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        if span.len() == 0 {
            return &mut [];
        }
        assert_eq!(span.turn(), self.turn, "input of a past turn");
        &mut self.bytes[span.start()..][..span.len()]
    }

    fn end_turn(&mut self) {
        self.filled = 0;
        // Wraps after 4 billion turns; no span outlives the start of the next one.
        self.turn = self.turn.wrapping_add(1);
    }
}

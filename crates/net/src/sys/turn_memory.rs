//! The memory for the input of one turn: the bytes of many connections, one after another. The
//! whole memory is reused when the next turn begins.
//!
//! ```text
//!   arena  [conn 4: 37 bytes][conn 9: 512 bytes][conn 2: …            ] free …
//! ```
//! A [`Span`] refers to a part of this memory. Only `sys` creates spans, and a span contains the
//! turn to which it belongs. Use of a span after its turn panics, so it never shows the bytes of
//! another connection.

#[cfg(target_os = "linux")]
use super::buffers::ProvidedBuffers;
use super::span::Span;

/// The memory for the bytes received in one turn.
pub(crate) enum TurnMemory {
    /// An arena that the receive calls of the epoll back end fill from front to back.
    Arena(Arena),
    /// Buffers provided to the kernel, for the io_uring back end.
    #[cfg(target_os = "linux")]
    Buffers(ProvidedBuffers),
}

impl TurnMemory {
    /// Borrows the bytes of `span`.
    ///
    /// # Panics
    /// If the turn of the span has ended.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        match self {
            TurnMemory::Arena(arena) => arena.bytes(span),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.bytes(span),
        }
    }

    /// Borrows the bytes of `span` mutably.
    ///
    /// # Panics
    /// If the turn of the span has ended.
    pub(crate) fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        match self {
            TurnMemory::Arena(arena) => arena.bytes_mut(span),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.bytes_mut(span),
        }
    }

    /// Ends the turn: all spans become invalid and all memory is free.
    pub(crate) fn end_turn(&mut self) {
        match self {
            TurnMemory::Arena(arena) => arena.end_turn(),
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(buffers) => buffers.end_turn(),
        }
    }

    /// Borrows the arena, into which the epoll back end receives. Only for that back end.
    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        match self {
            TurnMemory::Arena(arena) => arena,
            #[cfg(target_os = "linux")]
            TurnMemory::Buffers(_) => unreachable!("the epoll back end was built with an arena"),
        }
    }

    /// Borrows the buffers provided to the kernel. Only for the io_uring back end.
    #[cfg(target_os = "linux")]
    pub(crate) fn buffers_mut(&mut self) -> &mut ProvidedBuffers {
        match self {
            TurnMemory::Buffers(buffers) => buffers,
            TurnMemory::Arena(_) => unreachable!("the io_uring back end was built with buffers"),
        }
    }
}

/// A block of memory that is filled from front to back within a turn, and again from its start in
/// the next turn. So a light load uses only the first pages, which stay in the cache. Pages that
/// were never used take no memory.
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

    /// Borrows the next free bytes of the arena, so that a receive can fill them: `len_max`, or
    /// fewer near its end.
    pub(crate) fn free_mut(&mut self, len_max: usize) -> &mut [u8] {
        let end = self.bytes.len().min(self.filled + len_max);
        &mut self.bytes[self.filled..end]
    }

    /// Returns true if at least `len_bytes` bytes of the arena are free in this turn.
    pub(crate) fn has_room(&self, len_bytes: usize) -> bool {
        self.bytes.len() - self.filled >= len_bytes
    }

    /// Marks the first `len` free bytes as received. Returns their span.
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

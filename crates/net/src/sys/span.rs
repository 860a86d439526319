//! References to parts of the memory that holds the bytes received in one turn.

/// A reference to a part of the memory of a turn, valid only in that turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    len: u32,
    turn: u32,
}

impl Span {
    /// The span without bytes, which is valid in every turn.
    pub(crate) const EMPTY: Span = Span { start: 0, len: 0, turn: 0 };

    /// Creates a span of bytes received in the turn `turn`.
    pub(super) fn new(start: u32, len: u32, turn: u32) -> Self {
        Self { start, len, turn }
    }

    /// Returns the offset of the span's first byte in the memory of the turn.
    #[inline]
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    /// Returns the number of the turn in which the span is valid.
    #[inline]
    pub(super) fn turn(self) -> u32 {
        self.turn
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// Shortens the span by its first `n` bytes.
    ///
    /// # Panics
    /// If `n` is more than `len()`.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "more consumed than was received");
        self.start += n as u32;
        self.len -= n as u32;
    }

    /// Returns the part of the span that begins at index `from` and has `len` bytes.
    pub(crate) fn part(self, from: usize, len: usize) -> Span {
        assert!(from + len <= self.len(), "a part beyond what was received");
        Span { start: self.start + from as u32, len: len as u32, turn: self.turn }
    }

    /// Extends this span by `next` if `next` begins where this span ends. Returns true if it was
    /// extended.
    #[inline]
    pub(crate) fn join(&mut self, next: Span) -> bool {
        let adjacent = self.turn == next.turn && self.start + self.len == next.start;
        if adjacent {
            self.len += next.len;
        }
        adjacent
    }
}

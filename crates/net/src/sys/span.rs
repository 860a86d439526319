//! Names of pieces of turn memory, see `turn_memory`.

/// A piece of turn memory, valid in the turn it was made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    len: u32,
    turn: u32,
}

impl Span {
    /// A piece of nothing, valid always.
    pub(crate) const EMPTY: Span = Span { start: 0, len: 0, turn: 0 };

    /// Creates a piece that holds received bytes of the turn `turn`.
    pub(super) fn new(start: u32, len: u32, turn: u32) -> Self {
        Self { start, len, turn }
    }

    /// Returns the offset of its start in its memory, in bytes.
    #[inline]
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    /// Returns the turn that it is valid in.
    #[inline]
    pub(super) fn turn(self) -> u32 {
        self.turn
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// Drops the first `n` bytes. `n <= len()`.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "more consumed than was received");
        self.start += n as u32;
        self.len -= n as u32;
    }

    /// Returns the piece of it that begins `from` bytes behind its start and has `len` bytes.
    pub(crate) fn part(self, from: usize, len: usize) -> Span {
        assert!(from + len <= self.len(), "a part beyond what was received");
        Span { start: self.start + from as u32, len: len as u32, turn: self.turn }
    }

    /// Makes this span cover `next` too, when that begins where this one ends.
    #[inline]
    pub(crate) fn join(&mut self, next: Span) -> bool {
        let adjacent = self.turn == next.turn && self.start + self.len == next.start;
        if adjacent {
            self.len += next.len;
        }
        adjacent
    }
}

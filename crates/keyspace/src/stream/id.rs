//! IDs of stream entries: milliseconds and a sequence number, written `ms-seq`.

/// The ID of a stream's entry. IDs are ordered by time, then by sequence number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// The Unix time in milliseconds, or any number that the user chose.
    pub ms: u64,
    /// The sequence number, which distinguishes entries with the same `ms`.
    pub seq: u64,
}

/// A buffer into which the text of a stream ID is written.
pub struct IdText([u8; IdText::LEN_MAX]);

impl IdText {
    /// The greatest length of an ID's text in bytes: two 64-bit numbers and a `-`.
    const LEN_MAX: usize = 20 + 1 + 20;

    /// Creates an empty buffer for the text of a stream ID.
    #[inline]
    pub fn new() -> Self {
        Self([0; Self::LEN_MAX])
    }
}

impl Default for IdText {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamId {
    /// The stream ID `0-0`, which is below every entry: no entry can have it.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The greatest possible stream ID, which an entry may have.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Returns the stream ID right after this one; `None` for [`StreamId::MAX`].
    #[inline]
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// Returns the stream ID right before this one; `None` for `0-0`.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Formats the stream ID as users see it into `scratch`, and returns the text. O(digits).
    #[inline]
    pub fn text(self, scratch: &mut IdText) -> &[u8] {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (ms, seq) = (ms.format(self.ms).as_bytes(), seq.format(self.seq).as_bytes());
        let len = ms.len() + 1 + seq.len();
        scratch.0[..ms.len()].copy_from_slice(ms);
        scratch.0[ms.len()] = b'-';
        scratch.0[ms.len() + 1..len].copy_from_slice(seq);
        &scratch.0[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_carry_into_the_milliseconds() {
        let id = |ms, seq| StreamId { ms, seq };
        assert_eq!(id(5, 3).next(), Some(id(5, 4)));
        assert_eq!(id(5, u64::MAX).next(), Some(id(6, 0)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(id(5, 3).previous(), Some(id(5, 2)));
        assert_eq!(id(5, 0).previous(), Some(id(4, u64::MAX)));
        assert_eq!(StreamId::MIN.previous(), None);
    }

    #[test]
    fn text_is_both_numbers() {
        let text = |id: StreamId| String::from_utf8_lossy(id.text(&mut IdText::new())).into_owned();
        assert_eq!(text(StreamId { ms: 1_700_000_000_000, seq: 0 }), "1700000000000-0");
        assert_eq!(text(StreamId::MAX), "18446744073709551615-18446744073709551615");
    }
}

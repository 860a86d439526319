//! Levels of release: the degrees to which a change can be safe in the append-only file. A reply
//! can wait until the changes that it shows have reached a level.

/// A degree to which a change is safe in the append-only file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The append-only file has the change as the option `appendfsync` demands: synced with
    /// `always`, otherwise written.
    #[default]
    Written,
    /// The change is synced to the disk. With `appendfsync no`, a written change counts as synced,
    /// as in Redis.
    Synced,
}

impl Level {
    /// All levels of release in ascending order of safety: written, then synced.
    pub const ALL: [Self; 2] = [Self::Written, Self::Synced];
}

/// A log position for each level of safety: all changes up to it have reached the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released([u64; Level::ALL.len()]);

impl Released {
    /// The positions of a reader of the change log that never delays replies: the largest position
    /// for each level.
    pub const ALL: Self = Self::at(u64::MAX);

    /// Returns a value that has the log position `position` for each level.
    pub const fn at(position: u64) -> Self {
        Self([position; Level::ALL.len()])
    }

    /// Creates the log positions of both levels: `written` and `synced`. A synced change is also
    /// written, so the position of [`Level::Written`] becomes at least `synced`.
    pub fn new(written: u64, synced: u64) -> Self {
        Self([written.max(synced), synced])
    }

    /// Returns the log position up to which changes have reached `level`.
    #[inline]
    pub fn get(&self, level: Level) -> u64 {
        self.0[level as usize]
    }

    /// Raises the log position of `level` to at least `position`.
    pub fn raise(&mut self, level: Level, position: u64) {
        self.0[level as usize] = self.0[level as usize].max(position);
    }

    /// Returns for each level the larger one of the log positions in `self` and `other`.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|level| self.0[level].max(other.0[level])))
    }

    /// Returns for each level the smaller one of the log positions in `self` and `other`.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(std::array::from_fn(|level| self.0[level].min(other.0[level])))
    }
}

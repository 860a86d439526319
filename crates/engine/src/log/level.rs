//! Levels of release: the degrees of safety that a change can have reached, and that a reply can
//! wait for.

/// A degree of safety of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The append-only file has the change as `appendfsync` demands: synced with `always`,
    /// otherwise written.
    #[default]
    Written,
    /// The change is synced to the disk. With `appendfsync no`, a written change counts as synced,
    /// as in Redis.
    Synced,
}

impl Level {
    /// All levels, each safer than the one before.
    pub const ALL: [Self; 2] = [Self::Written, Self::Synced];
}

/// A log position for each level: everything up to it has reached the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released([u64; Level::ALL.len()]);

impl Released {
    /// The positions of a reader for which no reply waits.
    pub const ALL: Self = Self::at(u64::MAX);

    /// Returns the same position for all levels.
    pub const fn at(position: u64) -> Self {
        Self([position; Level::ALL.len()])
    }

    /// Returns these positions. A change that is synced is also written, so `written` counts as at
    /// least `synced`.
    pub fn new(written: u64, synced: u64) -> Self {
        Self([written.max(synced), synced])
    }

    /// Returns the position of a level.
    #[inline]
    pub fn get(&self, level: Level) -> u64 {
        self.0[level as usize]
    }

    /// Raises the position of a level to at least `position`.
    pub fn raise(&mut self, level: Level, position: u64) {
        self.0[level as usize] = self.0[level as usize].max(position);
    }

    /// Returns the larger position of both for each level.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|level| self.0[level].max(other.0[level])))
    }

    /// Returns the smaller position of both for each level.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(std::array::from_fn(|level| self.0[level].min(other.0[level])))
    }
}

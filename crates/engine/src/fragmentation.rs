//! Fragmentation: memory that the allocator holds although it is not used. Also the options of
//! compaction.

use std::time::Duration;

/// The options of compaction (`activedefrag`), which moves keys in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// `activedefrag`: true if compaction is on.
    pub is_on: bool,
    /// The option `active-defrag-ignore-bytes`: the excess memory, in bytes, up to which compaction
    /// does nothing.
    pub ignored_bytes: u64,
    /// `active-defrag-threshold-lower` and `-upper`: the excess memory in percent of used memory at
    /// which compaction begins, and at which it uses the most CPU time.
    pub threshold_percent: (u64, u64),
    /// `active-defrag-cycle-min` and `-max`: the shares of a core at these thresholds, in percent.
    pub share_percent: (u64, u64),
    /// The option `active-defrag-cycle-us`: the longest time for which compaction runs without a
    /// pause.
    pub slice: Duration,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            is_on: false,
            ignored_bytes: 100 << 20,
            threshold_percent: (10, 100),
            share_percent: (1, 25),
            slice: Duration::from_micros(500),
        }
    }
}

/// The used memory, and the memory that the allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// The bytes of memory that are allocated and in use.
    pub used_bytes: u64,
    /// The resident bytes of memory that the allocator holds.
    pub held_bytes: u64,
}

impl HeldMemory {
    /// Returns the bytes that the allocator holds although they are not used.
    pub fn excess_bytes(self) -> u64 {
        self.held_bytes.saturating_sub(self.used_bytes)
    }
}

impl CompactionSettings {
    /// Returns the share of a core that compaction should use, in percent; `None` if it is not
    /// needed.
    pub fn share(&self, memory: HeldMemory) -> Option<u64> {
        let excess_bytes = memory.excess_bytes();
        let excess_percent = excess_bytes.saturating_mul(100) / memory.used_bytes.max(1);
        let (lower, upper) = self.threshold_percent;
        if !self.is_on || excess_bytes < self.ignored_bytes || excess_percent < lower {
            return None;
        }
        let (least, most) = self.share_percent;
        let range = upper.saturating_sub(lower);
        let added = match most.saturating_sub(least) {
            all if excess_percent >= upper => all,
            all => all * (excess_percent - lower) / range.max(1),
        };
        Some((least + added).clamp(1, 99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_core_grows_with_the_excess() {
        let settings = CompactionSettings { is_on: true, ..CompactionSettings::default() };
        let share = |used_mib: u64, held_mib: u64| {
            settings.share(HeldMemory { used_bytes: used_mib << 20, held_bytes: held_mib << 20 })
        };
        assert_eq!(share(1000, 1099), None, "less than a tenth");
        assert_eq!(share(100, 199), None, "less than 100 MiB");
        assert_eq!(share(1000, 1100), Some(1));
        assert_eq!(share(1000, 1550), Some(13));
        assert_eq!(share(1000, 2000), Some(25));
        assert_eq!(share(0, 9000), Some(25));
        assert_eq!(share(1000, 900), None, "memory that is not resident");
        let off = CompactionSettings { is_on: false, ..settings };
        assert_eq!(off.share(HeldMemory { used_bytes: 1, held_bytes: 1 << 40 }), None);
        let odd = CompactionSettings { threshold_percent: (50, 50), share_percent: (30, 20), ..settings };
        assert_eq!(odd.share(HeldMemory { used_bytes: 1, held_bytes: 1 << 40 }), Some(30));
        for threshold_percent in [(50, 50), (50, 10)] {
            let no_range = CompactionSettings { threshold_percent, ..settings };
            assert_eq!(no_range.share(HeldMemory { used_bytes: 1, held_bytes: 1 << 40 }), Some(25));
        }
    }
}

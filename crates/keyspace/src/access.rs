//! The two meanings of a key's access clock, for eviction by LRU and by LFU.

/// The rule by which accesses are recorded in a key's 24-bit access clock, with the present time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The time of the last access: 24 bits of seconds.
    Lru {
        /// The present Unix time in seconds, of which the clock has the lower 24 bits.
        clock_s: u32,
    },
    /// Redis' LFU field: 16 bits of minutes, and 8 bits of a logarithmic counter.
    Lfu {
        /// The present Unix time in minutes, of which the clock has the lower 16 bits.
        clock_minutes: u32,
        /// The value of the option `lfu-log-factor`: the greater it is, the more slowly counters
        /// grow.
        log_factor: u32,
        /// The value of the option `lfu-decay-time`: the minutes without access after which a
        /// counter drops by one.
        decay_minutes: u32,
    },
}

/// The access counter of a new key under LFU.
pub(crate) const LFU_INITIAL: u32 = 5;

impl Access {
    /// Returns the 24-bit access clock (LRU or LFU) of a key that is created now.
    #[inline]
    pub fn fresh(self) -> u32 {
        match self {
            Access::Lru { clock_s } => clock_s & 0x00FF_FFFF,
            Access::Lfu { clock_minutes, .. } => (clock_minutes & 0xFFFF) << 8 | LFU_INITIAL,
        }
    }

    /// Returns the access counter in the access clock `access` under LFU, less the decay since the
    /// last access. Returns 0 under LRU.
    pub fn lfu_counter(self, access: u32) -> u32 {
        let Access::Lfu { clock_minutes, decay_minutes, .. } = self else { return 0 };
        let elapsed = clock_minutes.wrapping_sub(access >> 8) & 0xFFFF;
        let periods = elapsed.checked_div(decay_minutes).unwrap_or(0);
        (access & 0xFF).saturating_sub(periods)
    }

    /// Returns a key's access clock after one more access at the present time. Under LRU it is the
    /// time of the access; under LFU it also has a counter of accesses. `access` is the clock
    /// before the access. `draw` returns a uniform random number, which decides if the LFU counter
    /// grows.
    #[inline]
    pub(crate) fn touched(self, access: u32, draw: impl FnOnce() -> u32) -> u32 {
        match self {
            Access::Lru { clock_s } => clock_s & 0x00FF_FFFF,
            Access::Lfu { clock_minutes, log_factor, .. } => {
                let counter = self.lfu_counter(access);
                let base = counter.saturating_sub(LFU_INITIAL);
                let odds = f64::from(base) * f64::from(log_factor) + 1.0;
                let grows = counter < 255 && f64::from(draw()) / f64::from(u32::MAX) < 1.0 / odds;
                (clock_minutes & 0xFFFF) << 8 | (counter + u32::from(grows))
            }
        }
    }
}

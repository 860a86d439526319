//! Shared calculations of `maxmemory`: what a limit permits, and the time during which memory was
//! over the limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The highest memory limit under which the server keeps resident memory close to used memory, in
/// bytes. The difference between the two (regions per size class and thread, huge pages) does not
/// grow with the data, so it matters less under a higher limit.
const TIGHT_LIMIT_BYTES_MAX: u64 = 4 << 30;

/// The memory limit divided by this number is the maximum of free large blocks, in bytes, that the
/// allocator may keep.
const BLOCK_CACHE_PART: u64 = 40;

/// Returns true if resident memory is kept close to used memory under a `maxmemory` of `limit`
/// bytes; 0 means no limit.
pub fn is_tight(limit: u64) -> bool {
    (1..=TIGHT_LIMIT_BYTES_MAX).contains(&limit)
}

/// Returns the maximum of free large blocks, in bytes, that the allocator may keep for reuse.
/// Returns `None` if resident memory is not kept close to used memory.
pub fn block_cache_bytes_max(limit: u64) -> Option<usize> {
    is_tight(limit).then_some((limit / BLOCK_CACHE_PART) as usize)
}

/// Returns the number of bytes by which used memory may exceed the limit `maxmemory` for a short
/// time. The excess is memory that waits to be freed, or the arguments of a large command.
pub fn slack(limit: u64) -> u64 {
    limit / 128
}

/// Returns the maximum time of one round of eviction for a value of `maxmemory-eviction-tenacity`;
/// `None` for no limit.
pub fn time_limit(tenacity: u32) -> Option<Duration> {
    match tenacity {
        0..=10 => Some(Duration::from_micros(50) * tenacity),
        11..=99 => Some(Duration::from_secs_f64(500e-6 * 1.15_f64.powi(tenacity as i32 - 10))),
        _ => None,
    }
}

/// The time during which memory was over the limit `maxmemory`, because no key could be evicted or
/// the time for evictions had passed. INFO shows it as `total_eviction_exceeded_time` and
/// `current_eviction_exceeded_time`.
#[derive(Debug, Default)]
pub struct OverLimit {
    /// 0 while memory is within its limit. Otherwise the start of the present period over the
    /// limit, in microseconds since the server's start, plus one.
    since_usec: AtomicU64,
    total_usec: AtomicU64,
}

impl OverLimit {
    /// Records that memory is over its limit at `uptime` after the server's start. Any thread may
    /// call this and [`OverLimit::note_within`]; of two calls at the same time, one has effect.
    pub fn note_over(&self, uptime: Duration) {
        // Relaxed, here and below: the figures are only for display.
        if self.since_usec.load(Relaxed) == 0 {
            self.since_usec.store(uptime.as_micros() as u64 + 1, Relaxed);
        }
    }

    /// Records that memory is within its limit at `uptime` after the server's start.
    pub fn note_within(&self, uptime: Duration) {
        if self.since_usec.load(Relaxed) == 0 {
            return;
        }
        let since_usec = self.since_usec.swap(0, Relaxed);
        if since_usec > 0 {
            let now_usec = uptime.as_micros() as u64 + 1;
            self.total_usec.fetch_add(now_usec.saturating_sub(since_usec), Relaxed);
        }
    }

    /// Returns the total time of all ended periods over the memory limit, and the time of the
    /// current one up to `uptime`.
    pub fn times(&self, uptime: Duration) -> (Duration, Duration) {
        let since_usec = self.since_usec.load(Relaxed);
        let now_usec = uptime.as_micros() as u64 + 1;
        let current_usec = if since_usec == 0 { 0 } else { now_usec.saturating_sub(since_usec) };
        (Duration::from_micros(self.total_usec.load(Relaxed)), Duration::from_micros(current_usec))
    }

    /// Resets the times over the memory limit, for CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.since_usec.store(0, Relaxed);
        self.total_usec.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_over_the_limit_is_summed() {
        let (over, ms) = (OverLimit::default(), Duration::from_millis);
        over.note_within(ms(1));
        assert_eq!(over.times(ms(2)), (Duration::ZERO, Duration::ZERO));
        over.note_over(ms(3));
        assert_eq!(over.times(ms(5)), (Duration::ZERO, ms(2)));
        over.note_over(ms(6));
        over.note_within(ms(7));
        assert_eq!(over.times(ms(9)), (ms(4), Duration::ZERO));
    }

    #[test]
    fn tenacity_is_a_time() {
        assert_eq!(time_limit(0), Some(Duration::ZERO));
        assert_eq!(time_limit(10), Some(Duration::from_micros(500)));
        assert!(time_limit(99).is_some_and(|time| time > Duration::from_secs(100)));
        assert_eq!(time_limit(100), None);
    }
}

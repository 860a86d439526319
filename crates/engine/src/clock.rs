//! Time, as a parameter: the server's clock is the system's, a simulator's stands
//! still until it is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The clock that the engine reads time from. It is a type parameter of the code that runs
/// requests, so the server's costs no indirection.
pub trait Clock: Clone + Send + 'static {
    /// Reads the monotonic clock.
    fn now(&self) -> Instant;

    /// Takes a reading for [`elapsed`](Self::elapsed), comparable to nothing else. Meant to be
    /// cheaper than [`now`](Self::now).
    fn ticks(&self) -> Ticks;

    /// Returns the time since then, exact enough for statistics.
    fn elapsed(&self, since: Ticks) -> Duration;

    /// Reads the Unix time.
    fn unix_time(&self) -> Duration;

    /// Returns the Unix time in milliseconds.
    #[inline]
    fn unix_ms(&self) -> i64 {
        self.unix_time().as_millis() as i64
    }
}

/// A reading of a clock, in units of its own.
#[derive(Clone, Copy, Debug)]
pub struct Ticks(pub u64);

/// A clock that stands still until it is moved: for tests and simulations.
#[derive(Clone, Debug)]
pub struct ManualClock {
    start: Instant,
    start_unix: Duration,
    elapsed_nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that shows `start` and `start_unix`. Only the time between `start` and
    /// later readings matters.
    pub fn new(start: Instant, start_unix: Duration) -> Self {
        Self { start, start_unix, elapsed_nanos: Arc::default() }
    }

    /// Moves all copies of the clock forward.
    pub fn advance(&self, time: Duration) {
        // Relaxed: whoever moves a clock orders its readers by other means.
        self.elapsed_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    fn moved(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos.load(Relaxed))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.start + self.moved()
    }

    fn ticks(&self) -> Ticks {
        Ticks(self.elapsed_nanos.load(Relaxed))
    }

    fn elapsed(&self, since: Ticks) -> Duration {
        self.moved() - Duration::from_nanos(since.0)
    }

    fn unix_time(&self) -> Duration {
        self.start_unix + self.moved()
    }
}

//! The clock as a type parameter. The server uses the system's clock; a simulator uses a clock that
//! changes only when it is advanced.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The clock of the engine. Code that runs requests has the clock as a type parameter, so that a
/// call of the server's clock is a direct call.
pub trait Clock: Clone + Send + 'static {
    /// Reads the monotonic time from the clock.
    fn now(&self) -> Instant;

    /// Returns a reading of the clock, used only as an argument of [`elapsed`](Self::elapsed).
    /// Should be cheaper than [`now`](Self::now).
    fn ticks(&self) -> Ticks;

    /// Returns the time since the reading `since`. The precision is enough for statistics.
    fn elapsed(&self, since: Ticks) -> Duration;

    /// Reads the Unix time from the clock.
    fn unix_time(&self) -> Duration;

    /// Returns the Unix time of the clock in milliseconds.
    #[inline]
    fn unix_ms(&self) -> i64 {
        self.unix_time().as_millis() as i64
    }
}

/// A reading of a clock, in a unit that depends on the clock.
#[derive(Clone, Copy, Debug)]
pub struct Ticks(pub u64);

/// A clock that changes only when it is advanced, for tests and simulations. A test may let its
/// readings advance it.
#[derive(Clone, Debug)]
pub struct ManualClock {
    start: Instant,
    start_unix: Duration,
    elapsed_nanos: Arc<AtomicU64>,
    /// The time by which each reading of the monotonic clock advances it, in nanoseconds.
    reading_nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that shows `start` as its monotonic time and `start_unix` as its Unix time.
    /// `start` may be any instant: only differences to it are used.
    pub fn new(start: Instant, start_unix: Duration) -> Self {
        Self { start, start_unix, elapsed_nanos: Arc::default(), reading_nanos: Arc::default() }
    }

    /// Advances this clock and all its clones by `time`.
    pub fn advance(&self, time: Duration) {
        // Relaxed: the caller synchronizes with the readers by other means.
        self.elapsed_nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Lets each following reading of the monotonic clock advance it by `time`, as work does.
    pub fn advance_by_readings(&self, time: Duration) {
        self.reading_nanos.store(time.as_nanos() as u64, Relaxed);
    }

    fn moved(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos.load(Relaxed))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.advance(Duration::from_nanos(self.reading_nanos.load(Relaxed)));
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

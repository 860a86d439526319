//! The frequency of keys in time windows: HOTKEYS GET shows it if `hotkeys-top-k` is set.
//!
//! Each I/O thread counts a sample of its commands, on average `hotkeys-sampling-percentage` of
//! 100, with all keys that these commands name. At the end of a window the counts of all threads
//! are summed. The `hotkeys-top-k` most frequent keys become the last window, and counting begins
//! again. A window that took twice its time or more (the server was stopped for a while) is
//! discarded.
//!
//! ```text
//!   command ─► sampled? ─► live part of its thread ─(window over)─► last window ─► HOTKEYS, INFO
//! ```
//! Each command decrements a number, also while counting is off. A sampled command draws the number
//! of commands until the next sample. It also takes its thread's lock, a leaf, which otherwise only
//! the end of a window takes. The work at the end of a window is done without a thread's lock,
//! except for replacing its counters.
//!
//! Source: Valkey's topic "hot keys" and its test suite, as of version 9.2.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use stdx::heavy_hitters::HeavyHitters;
use structures::lock::Lock;

/// The number of counters per thread for each key that `hotkeys-top-k` shows. More counters reduce
/// the error.
const COUNTERS_PER_SHOWN: usize = 8;

/// The number of bytes of a database's number, which precedes the key's name in the counters.
const DB_BYTES: usize = 4;

/// The options of the counting of frequent keys for `hotkeys-top-k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// `hotkeys-top-k`: the number of keys to show; 0 turns counting off.
    pub shown: usize,
    /// `hotkeys-sampling-percentage`: the percentage of commands that are counted, 1 to 100.
    pub percent: u32,
    /// `hotkeys-window-seconds`: the length of a time window in which keys are counted.
    pub window: Duration,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { shown: 0, percent: 1, window: Duration::from_secs(1) }
    }
}

/// A key and the frequency of its use, as HOTKEYS GET shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The name of the frequent key.
    pub key: Vec<u8>,
    /// The number of the key's database.
    pub db: u32,
    /// The estimated number of requests with the key per second.
    pub per_second: u64,
}

/// The result of a time window that has ended: the most frequent keys and the number of samples.
#[derive(Debug, Default)]
struct Finished {
    rates: Vec<Rate>,
    samples: u64,
    took: Duration,
}

/// The counters of key frequencies of one thread in the current time window.
struct Part {
    accesses: HeavyHitters,
    samples: u64,
    /// The sampling percentage of these counts. A thread whose settings are older or newer may
    /// sample with another percentage; its samples are not counted.
    percent: u32,
}

struct State {
    sampling: Sampling,
    since: Instant,
    last: Finished,
}

/// The key frequencies in the current time window and in the last one.
pub struct Windows {
    /// The options, the start of the current window, and the last window. The lock is taken before
    /// the locks of `parts`.
    state: Mutex<State>,
    parts: Box<[Lock<Option<Part>>]>,
}

impl Windows {
    /// Creates empty counters of key frequencies for this number of threads.
    pub fn new(threads: usize, now: Instant) -> Self {
        let parts = (0..threads).map(|_| Lock::new(None)).collect();
        let state = State { sampling: Sampling::default(), since: now, last: Finished::default() };
        Self { state: Mutex::new(state), parts }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the windows are locked")
    }

    /// Starts a time window of the frequencies of keys at `now`. Returns the counts of the previous
    /// one.
    fn begin(&self, state: &mut State, now: Instant) -> Vec<Part> {
        state.since = now;
        let Sampling { shown, percent, .. } = state.sampling;
        let new = || Part { accesses: HeavyHitters::new(shown * COUNTERS_PER_SHOWN), samples: 0, percent };
        let swap = |part: &Lock<Option<Part>>| {
            let new = (shown > 0).then(new);
            std::mem::replace(&mut *part.lock(), new)
        };
        self.parts.iter().filter_map(swap).collect()
    }

    /// Applies new options for the counting of key frequencies. The counts of the current time
    /// window are lost; the last window is kept unless counting is turned off.
    pub fn configure(&self, sampling: Sampling, now: Instant) {
        let mut state = self.state();
        if state.sampling == sampling {
            return;
        }
        state.sampling = sampling;
        state.last.rates.truncate(sampling.shown);
        if sampling.shown == 0 {
            state.last = Finished::default();
        }
        self.begin(&mut state, now);
    }

    /// Removes the key counts of the current and the last time window, and starts a window at
    /// `now`.
    pub fn reset(&self, now: Instant) {
        let mut state = self.state();
        state.last = Finished::default();
        self.begin(&mut state, now);
    }

    /// Removes the keys of a database from the key counts of the current and the last time window.
    /// O(counters log counters) if keys of other databases remain.
    pub fn forget(&self, db: usize) {
        let mut state = self.state();
        if state.sampling.shown == 0 {
            return;
        }
        state.last.rates.retain(|rate| rate.db as usize != db);
        for part in &self.parts {
            if let Some(part) = part.lock().as_mut() {
                part.accesses.retain(|item| item[..DB_BYTES] != (db as u32).to_le_bytes());
            }
        }
    }

    /// Ends the current time window of the key counts and begins the next one, if the duration of a
    /// window has passed.
    pub fn turn(&self, now: Instant) {
        let mut state = self.state();
        let (took, window) = (now.saturating_duration_since(state.since), state.sampling.window);
        if state.sampling.shown == 0 || took < window {
            return;
        }
        let parts = self.begin(&mut state, now);
        state.last =
            if took < 2 * window { Finished::new(&parts, state.sampling, took) } else { Finished::default() };
    }

    /// Returns the keys of the last time window, the most frequent first; `None` if key frequencies
    /// are not counted.
    pub fn report(&self, now: Instant) -> Option<Vec<Rate>> {
        self.turn(now);
        let state = self.state();
        (state.sampling.shown > 0).then(|| state.last.rates.clone())
    }

    /// Returns the number of sampled accesses to keys in the last time window, and the window's
    /// length; zeros before the first window has ended.
    pub fn last(&self) -> (u64, Duration) {
        let state = self.state();
        (state.last.samples, state.last.took)
    }

    /// Counts the keys of a sampled command of a thread in the current time window. `percent` is
    /// the percentage of commands that are sampled.
    pub fn note<'k>(&self, thread: usize, percent: u32, db: usize, keys: impl Iterator<Item = &'k [u8]>) {
        let mut locked = self.parts[thread].lock();
        let Some(part) = locked.as_mut().filter(|part| part.percent == percent) else { return };
        let mut item = Vec::new();
        for key in keys {
            item.clear();
            item.extend_from_slice(&(db as u32).to_le_bytes());
            item.extend_from_slice(key);
            part.accesses.add(&item, 1);
            part.samples += 1;
        }
    }
}

impl Finished {
    fn new(parts: &[Part], sampling: Sampling, took: Duration) -> Self {
        let found = HeavyHitters::top(parts.iter().map(|part| &part.accesses), usize::MAX);
        let mut rates: Vec<Rate> = found
            .iter()
            .map(|hitter| {
                let (db, key) = hitter.key.split_at(DB_BYTES);
                // The middle between the certain and the possible count.
                let sampled_twice = u128::from(hitter.certain) + u128::from(hitter.count);
                let all = sampled_twice * 100 * 1_000_000_000;
                let over = 2 * u128::from(sampling.percent) * took.as_nanos().max(1);
                Rate {
                    key: key.to_vec(),
                    db: u32::from_le_bytes(db.try_into().expect("it was split there")),
                    per_second: ((all + over / 2) / over) as u64,
                }
            })
            .collect();
        rates.sort_by_key(|rate| std::cmp::Reverse(rate.per_second));
        rates.truncate(sampling.shown);
        Self { rates, samples: parts.iter().map(|part| part.samples).sum(), took }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Counts the keys of `requests` on the threads in windows of one second, with 50 percent
    /// sampled.
    fn counting(requests: &[(usize, usize, &str, usize)]) -> (Windows, Instant) {
        let now = Instant::now();
        let windows = Windows::new(2, now);
        windows.configure(Sampling { shown: 2, percent: 50, window: SECOND }, now);
        count(&windows, requests);
        (windows, now)
    }

    fn count(windows: &Windows, requests: &[(usize, usize, &str, usize)]) {
        for &(thread, db, key, times) in requests {
            (0..times).for_each(|_| windows.note(thread, 50, db, std::iter::once(key.as_bytes())));
        }
    }

    fn shown(windows: &Windows, now: Instant) -> Vec<(String, u32, u64)> {
        let rates = windows.report(now).expect("something is counted");
        let text = |rate: &Rate| String::from_utf8_lossy(&rate.key).into_owned();
        rates.iter().map(|rate| (text(rate), rate.db, rate.per_second)).collect()
    }

    #[test]
    fn a_window_is_shown_when_it_is_over_as_long_as_it_was() {
        let requests = [(0, 0, "a", 30), (1, 0, "a", 20), (0, 3, "a", 70), (1, 0, "b", 1)];
        let (windows, begin) = counting(&requests);
        assert!(shown(&windows, begin + SECOND / 2).is_empty());
        // Each sample stands for two requests, in a window of 1.25 seconds.
        let expected = [("a".to_owned(), 3, 112), ("a".to_owned(), 0, 80)];
        let end = begin + SECOND * 5 / 4;
        assert_eq!(shown(&windows, end), expected);
        assert_eq!(windows.last(), (121, SECOND * 5 / 4));
        assert_eq!(shown(&windows, end + SECOND / 2), expected);
        assert!(shown(&windows, end + SECOND).is_empty(), "nobody asked for anything meanwhile");
    }

    #[test]
    fn a_window_that_went_on_for_too_long_is_no_window() {
        let (windows, begin) = counting(&[(0, 0, "a", 30)]);
        assert!(shown(&windows, begin + 2 * SECOND).is_empty());
        assert_eq!(windows.last(), (0, Duration::ZERO));
    }

    #[test]
    fn other_options_end_the_window_and_keep_the_last() {
        let (windows, begin) = counting(&[(0, 0, "a", 5), (0, 0, "b", 9)]);
        windows.turn(begin + SECOND);
        count(&windows, &[(0, 0, "c", 7)]);
        windows.configure(Sampling { shown: 1, percent: 100, window: SECOND }, begin + SECOND);
        assert_eq!(shown(&windows, begin + SECOND), [("b".to_owned(), 0, 18)]);
        windows.note(0, 50, 0, std::iter::once(b"d".as_slice()));
        assert!(shown(&windows, begin + 2 * SECOND).is_empty(), "sampled by what holds no more");
        windows.configure(Sampling::default(), begin);
        assert_eq!(windows.report(begin + 9 * SECOND), None);
    }

    #[test]
    fn an_emptied_database_is_forgotten() {
        let (windows, begin) = counting(&[(0, 0, "a", 5), (1, 4, "b", 9)]);
        windows.turn(begin + SECOND);
        count(&windows, &[(0, 0, "a", 5), (1, 4, "b", 9)]);
        windows.forget(4);
        assert_eq!(shown(&windows, begin + SECOND), [("a".to_owned(), 0, 10)]);
        assert_eq!(shown(&windows, begin + 2 * SECOND), [("a".to_owned(), 0, 10)]);
        windows.reset(begin + 2 * SECOND);
        assert!(shown(&windows, begin + 2 * SECOND).is_empty());
    }
}

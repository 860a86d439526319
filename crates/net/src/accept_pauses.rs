//! Pauses of listeners that could not accept a connection because the process lacks descriptors or
//! memory, and the times of their next attempts.
//!
//! The pause starts short and doubles with each failure. It is reset only when all waiting clients
//! are accepted: at the limit of descriptors, each freed descriptor allows only one accept. A
//! failure is reported only if its pause is longer than the one before, so a long shortage does not
//! fill the log. Linux needs a free descriptor before it looks for a waiting client. So a paused
//! listener may have no client waiting.

use std::io;
use std::time::{Duration, Instant};

use crate::{Event, ListenerId};

/// The pause of a listener after its first failure to accept.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause of a listener. It is also the longest delay of an accept after descriptors
/// have become free.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The listeners that could not accept and are paused, each at most once.
#[derive(Default)]
pub(crate) struct AcceptPauses(Vec<Paused>);

struct Paused {
    listener: ListenerId,
    pause: Duration,
    due: Instant,
}

impl AcceptPauses {
    /// Records that `listener` failed at `now`, and pauses it for twice as long as the last time,
    /// at most [`ACCEPT_PAUSE_MAX`]. Reports the failure unless the pause was already the longest.
    pub(crate) fn failed(
        &mut self,
        listener: ListenerId,
        error: io::Error,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        let last = self.0.iter_mut().find(|paused| paused.listener == listener);
        let had = last.as_ref().map_or(Duration::ZERO, |paused| paused.pause);
        let pause = (had * 2).clamp(ACCEPT_PAUSE_MIN, ACCEPT_PAUSE_MAX);
        let paused = Paused { listener, pause, due: now + pause };
        match last {
            Some(last) => *last = paused,
            None => self.0.push(paused),
        }
        if pause > had {
            events.push(Event::AcceptFailed { listener, error, pause });
        }
    }

    /// Ends the pause of `listener`, which has accepted all waiting clients or is removed.
    pub(crate) fn end(&mut self, listener: ListenerId) {
        self.0.retain(|paused| paused.listener != listener);
    }

    /// Returns true if `listener` is paused. Only the listeners that [`due`](Self::due) returns may
    /// be tried.
    pub(crate) fn holds(&self, listener: ListenerId) -> bool {
        self.0.iter().any(|paused| paused.listener == listener)
    }

    /// Returns the listeners whose pause has ended at `now`, so that the caller tries to accept
    /// again. A returned listener stays paused until [`failed`](Self::failed) pauses it again or
    /// [`end`](Self::end) removes it.
    pub(crate) fn due(&self, now: Instant) -> Vec<ListenerId> {
        self.0.iter().filter(|paused| paused.due <= now).map(|paused| paused.listener).collect()
    }

    /// Returns true if no listener is paused, which is the usual case.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `timeout`, or the time until the first pause ends, if that is shorter.
    #[inline]
    pub(crate) fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.is_empty() || timeout == Some(Duration::ZERO) {
            return timeout;
        }
        let now = Instant::now();
        let left = self.0.iter().map(|paused| paused.due.saturating_duration_since(now));
        left.chain(timeout).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: ListenerId = ListenerId(3);

    fn emfile() -> io::Error {
        io::Error::from_raw_os_error(24)
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_each_step_is_reported_once() {
        let (mut pauses, mut events, mut now) = (AcceptPauses::default(), Vec::new(), Instant::now());
        for _ in 0..20 {
            pauses.failed(LISTENER, emfile(), now, &mut events);
            assert!(pauses.holds(LISTENER) && pauses.due(now).is_empty());
            now += ACCEPT_PAUSE_MAX;
            assert_eq!(pauses.due(now), [LISTENER]);
        }
        let reported = events.iter().map(|event| match event {
            Event::AcceptFailed { listener: LISTENER, pause, .. } => pause.as_millis(),
            other => panic!("{other:?}"),
        });
        assert_eq!(reported.collect::<Vec<_>>(), [10, 20, 40, 80, 160, 320, 640, 1000]);
        pauses.end(LISTENER);
        assert!(pauses.is_empty());
        events.clear();
        pauses.failed(LISTENER, emfile(), now, &mut events);
        assert_eq!(pauses.due(now + ACCEPT_PAUSE_MIN), [LISTENER], "it begins anew");
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn a_sleep_ends_when_a_listener_is_due() {
        let mut pauses = AcceptPauses::default();
        assert_eq!(pauses.shorten(None), None);
        pauses.failed(LISTENER, emfile(), Instant::now(), &mut Vec::new());
        assert!(pauses.shorten(None).is_some_and(|timeout| timeout <= ACCEPT_PAUSE_MIN));
        assert_eq!(pauses.shorten(Some(Duration::ZERO)), Some(Duration::ZERO));
        let past = Instant::now() - ACCEPT_PAUSE_MAX;
        pauses.end(LISTENER);
        pauses.failed(LISTENER, emfile(), past, &mut Vec::new());
        assert_eq!(pauses.shorten(None), Some(Duration::ZERO));
    }
}

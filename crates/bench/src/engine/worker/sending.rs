//! The cost of sending. It gives each request of a batch its own time stamp.

use crate::usage::thread_cpu_ns;

/// The number of batches at the start of a run that are all measured.
const FIRST_MEASURED: u32 = 32;
/// Later, one batch of this number is measured: reading a thread's CPU time is a system call.
const MEASURED_EVERY: u32 = 32;

/// The least CPU time in a run that the requests of one connection took to send.
///
/// CPU time is used because a thread may lose its processor while it sends. This pause says nothing
/// about the requests that were already sent. Time stamps with a share of the pause would make
/// these requests seem faster than they were.
#[derive(Default)]
pub(super) struct Sending {
    batches: u32,
    least_ns: Option<u64>,
}

/// A batch that is being measured.
pub(super) struct Measured {
    began_cpu_ns: u64,
}

impl Sending {
    /// Starts a batch for `connections` connections. Returns a value if the batch is to be
    /// measured.
    pub(super) fn begin(&mut self, connections: usize) -> Option<Measured> {
        if connections < 2 {
            return None;
        }
        self.batches = self.batches.wrapping_add(1);
        let measured = self.batches <= FIRST_MEASURED || self.batches.is_multiple_of(MEASURED_EVERY);
        measured.then(|| Measured { began_cpu_ns: thread_cpu_ns() })
    }

    /// Ends the batch that [`Sending::begin`] started.
    pub(super) fn end(&mut self, measured: Option<Measured>, connections: usize) {
        if let Some(Measured { began_cpu_ns }) = measured {
            self.note(thread_cpu_ns() - began_cpu_ns, connections);
        }
    }

    fn note(&mut self, cpu_ns: u64, connections: usize) {
        let each_ns = cpu_ns / connections as u64;
        self.least_ns = Some(self.least_ns.map_or(each_ns, |least_ns| least_ns.min(each_ns)));
    }

    /// Returns the minimum time between the first request of a batch and the request after `ahead`
    /// connections, in nanoseconds.
    pub(super) fn after_ns(&self, ahead: usize) -> u64 {
        self.least_ns.unwrap_or(0) * ahead as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_batch_counts() {
        let mut sending = Sending::default();
        assert_eq!(sending.after_ns(9), 0);
        sending.note(30_000, 10);
        assert_eq!(sending.after_ns(9), 27_000);
        sending.note(8_000, 4);
        sending.note(90_000, 10);
        assert_eq!((sending.after_ns(0), sending.after_ns(9)), (0, 18_000));
    }

    #[test]
    fn one_connection_needs_no_measuring_and_many_batches_little() {
        let mut sending = Sending::default();
        assert!(sending.begin(1).is_none());
        let measured = (0..32 * 33).filter(|_| sending.begin(5).is_some()).count();
        assert_eq!(measured, 32 + 32);
    }
}

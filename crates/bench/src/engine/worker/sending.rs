//! The minimum CPU time that sending requests takes per connection. From it, each request of a
//! batch gets its own time stamp.

use crate::usage::thread_cpu_ns;

/// The number of batches at the start of a run whose CPU time is measured without exception. A
/// batch is the requests that one flush sends.
const FIRST_MEASURED: u32 = 32;
/// The interval of measured batches after the first [`FIRST_MEASURED`]: every 32nd batch. Reading
/// the CPU time of a thread is a system call, so not every batch is measured.
const MEASURED_EVERY: u32 = 32;

/// The least CPU time per connection that a batch of this run took to send, in nanoseconds.
///
/// CPU time is used instead of wall time, because a thread may lose its processor while it sends.
/// Such a pause does not delay the requests that were already sent. If their time stamps included a
/// share of the pause, these requests would seem faster than they were.
#[derive(Default)]
pub(super) struct Sending {
    batches: u32,
    least_ns: Option<u64>,
}

/// The start of a batch whose CPU time is being measured.
pub(super) struct Measured {
    began_cpu_ns: u64,
}

impl Sending {
    /// Starts a batch for `connections` connections. Returns `None` if the batch is not measured; a
    /// batch for a single connection never is.
    pub(super) fn begin(&mut self, connections: usize) -> Option<Measured> {
        if connections < 2 {
            return None;
        }
        self.batches = self.batches.wrapping_add(1);
        let measured = self.batches <= FIRST_MEASURED || self.batches.is_multiple_of(MEASURED_EVERY);
        measured.then(|| Measured { began_cpu_ns: thread_cpu_ns() })
    }

    /// Ends the batch that [`Sending::begin`] started, and if its CPU time was measured, lowers the
    /// minimum to it where it is less.
    pub(super) fn end(&mut self, measured: Option<Measured>, connections: usize) {
        if let Some(Measured { began_cpu_ns }) = measured {
            self.note(thread_cpu_ns() - began_cpu_ns, connections);
        }
    }

    fn note(&mut self, cpu_ns: u64, connections: usize) {
        let each_ns = cpu_ns / connections as u64;
        self.least_ns = Some(self.least_ns.map_or(each_ns, |least_ns| least_ns.min(each_ns)));
    }

    /// Returns the minimum time in nanoseconds from the start of a batch until the requests of a
    /// connection are sent. `ahead` other connections precede it in the batch.
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

//! How far apart two cores of this machine are: what it takes to move a cache line
//! from one to the other.
//!
//! On a virtual machine that is not fixed. The host may run its two cores beside each other under
//! one cache and, seconds later, on two chips; whatever two threads share, a socket's queue for
//! one, then costs several times as much. Figures of a server and its client compare only where the
//! distance was the same.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Round trips of one try: a millisecond at most, unless it is interrupted.
const TRIPS: u32 = 2000;
/// Tries, of which the best counts: the others met an interruption.
const TRIES: usize = 20;

/// A cache line of its own, and the one beside it that is fetched along.
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds that a cache line takes from the first of the cores that this thread may use to the
/// last and back: the least of several tries, some ten milliseconds in all. `None` where there is
/// but one core, or the system does not let threads choose.
pub fn round_trip_ns() -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let (&here, &there) = (cores.first()?, cores.last()?);
    if here == there {
        return None;
    }
    let (line, done) = (&Line(AtomicU32::new(0)), &AtomicBool::new(false));
    thread::scope(|scope| {
        let far = scope.spawn(move || {
            let pinned = pin(there);
            // Odd numbers are answered with the next even one.
            while pinned && !done.load(Relaxed) {
                let number = line.0.load(Relaxed);
                if number % 2 == 1 {
                    line.0.store(number.wrapping_add(1), Relaxed);
                }
            }
        });
        let near = scope.spawn(move || {
            let pinned = pin(here);
            let tries = (0..TRIES).map_while(|_| one_try_ns(line, || far.is_finished()).filter(|_| pinned));
            let least_ns = tries.reduce(f64::min);
            done.store(true, Relaxed);
            least_ns
        });
        near.join().ok()?
    })
}

/// The mean round trip of one try; nothing if the other side is gone.
fn one_try_ns(line: &Line, is_gone: impl Fn() -> bool) -> Option<f64> {
    let begin = Instant::now();
    for _ in 0..TRIPS {
        let number = line.0.load(Relaxed).wrapping_add(1);
        line.0.store(number, Relaxed);
        let mut spins = 0_u32;
        while line.0.load(Relaxed) == number {
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(1 << 20) && is_gone() {
                return None;
            }
        }
    }
    Some(begin.elapsed().as_secs_f64() * 1e9 / f64::from(TRIPS))
}

fn pin(core: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_some_time_from_core_to_core() {
        // Nothing where there is one core; longer than any wire is long where the machine is busy.
        assert!(round_trip_ns().is_none_or(|ns| ns > 1.0), "{:?}", round_trip_ns());
    }
}

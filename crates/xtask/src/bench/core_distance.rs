//! The distance between two cores of this machine: the time to move a cache line from one to the
//! other and back.
//!
//! On a virtual machine this time is not fixed. The hypervisor may run the two virtual cores beside
//! each other under one cache and, seconds later, on two chips. Data that two threads share, for
//! example the queue of a socket, then costs several times as much. Results of a server and its
//! client can be compared only if the distance was the same.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The number of round trips of the cache line in one try of the measurement. They take at most a
/// millisecond, unless they are interrupted.
const TRIPS: u32 = 2000;
/// The number of tries of the measurement. Only the fastest try counts, because interruptions slow
/// down a try.
const TRIES: usize = 20;

/// A number that shares its cache line, and the neighbor line that processors fetch with it, with
/// no other data.
#[repr(align(128))]
struct Line(AtomicU32);

/// Returns the time in nanoseconds that a cache line takes from the first core that this thread may
/// use to the last one and back. It is the shortest mean of several tries, which take about ten
/// milliseconds in all. Returns `None` if there is only one core, or if the system does not allow
/// threads to choose cores.
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
            // The far thread answers an odd number with the next even number.
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

/// Returns the mean time of a round trip of the cache line in one try, in nanoseconds. Returns
/// `None` if the thread on the other core has ended.
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
        // `None` with a single core. There is no upper limit, because a busy machine may take any
        // time.
        assert!(round_trip_ns().is_none_or(|ns| ns > 1.0), "{:?}", round_trip_ns());
    }
}

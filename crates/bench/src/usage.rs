//! What threads and processes use of the machine, as the kernel counts it.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A thread's time so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTime {
    /// On a processor, in nanoseconds.
    pub cpu_ns: u64,
    /// Ready to run but waiting for a processor, in nanoseconds; 0 where the kernel does not tell.
    pub waiting_ns: u64,
}

impl ThreadTime {
    /// The calling thread's.
    pub(crate) fn now() -> Self {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waiting = schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Self { cpu_ns: thread_cpu_ns(), waiting_ns: waiting.unwrap_or(0) }
    }

    /// From `earlier` until this.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waiting_ns: self.waiting_ns.saturating_sub(earlier.waiting_ns),
        }
    }
}

/// How long the calling thread has been on a processor, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// CPU time of all its threads, user and system.
    pub cpu: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Times its threads gave the processor up, those that have ended left out.
    pub context_switches_voluntary: u64,
    /// Times they were moved off it.
    pub context_switches_involuntary: u64,
}

impl ProcessUse {
    /// Process `pid`'s; `None` when it is gone, another user's, or the system has no /proc.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; user and system time are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mut on_processor_ns = 0;
        let mut process = Self {
            cpu: Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64),
            rss_bytes: field(&status, "VmRSS:").unwrap_or(0) * 1024,
            ..Self::default()
        };
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            // A thread that ends meanwhile has no file any more.
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let ns = schedstat.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
            on_processor_ns += ns.unwrap_or(0);
            process.context_switches_voluntary += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            process.context_switches_involuntary +=
                field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        // Ticks are hundredths of a second, which a short run has few of; the threads' own counts
        // are exact, but those of threads that have ended are gone with them.
        process.cpu = process.cpu.max(Duration::from_nanos(on_processor_ns));
        Some(process)
    }
}

/// The number behind `name` at the start of a line.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_uses_the_processor() {
        let start = ThreadTime::now();
        let mut sum = 0_u64;
        while ThreadTime::now().since(start).cpu_ns < 5_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_has_memory_and_one_that_is_not_there_has_nothing() {
        let own = ProcessUse::of(std::process::id()).unwrap();
        assert!(own.rss_bytes > 100_000);
        assert_eq!(ProcessUse::of(u32::MAX), None);
    }
}

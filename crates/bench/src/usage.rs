//! CPU time, memory and context switches of threads and processes, as counted by the kernel.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that a thread has used so far, and its wait for a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadTime {
    /// The time that the thread ran on a processor, in nanoseconds.
    pub cpu_ns: u64,
    /// The time that the thread was ready to run but waited for a processor, in nanoseconds; 0
    /// where the kernel does not report it.
    pub waiting_ns: u64,
}

impl ThreadTime {
    /// Reads the CPU time and the waiting time of the calling thread since its start.
    pub(crate) fn now() -> Self {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waiting = schedstat.split_whitespace().nth(1).and_then(|field| field.parse().ok());
        Self { cpu_ns: thread_cpu_ns(), waiting_ns: waiting.unwrap_or(0) }
    }

    /// Returns the CPU time and the waiting time between the reading `earlier` and this one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waiting_ns: self.waiting_ns.saturating_sub(earlier.waiting_ns),
        }
    }
}

/// Returns the time that the calling thread has spent on a processor, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64
}

/// The resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// The CPU time of all threads of the process, user and system.
    pub cpu: Duration,
    /// The resident memory of the process, in bytes.
    pub rss_bytes: u64,
    /// The number of voluntary context switches of the process' threads. Threads that have ended
    /// are not counted.
    pub context_switches_voluntary: u64,
    /// The number of involuntary context switches of the process' threads. Threads that have ended
    /// are not counted.
    pub context_switches_involuntary: u64,
}

impl ProcessUse {
    /// Reads the resources of process `pid`. Returns `None` if the process does not exist or is
    /// hidden from this user, or if the system has no /proc.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the process is in parentheses and may contain any byte. User and system time
        // are fields 14 and 15 of the file.
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
            // The files of a thread that has just ended are missing.
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let ns = schedstat.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
            on_processor_ns += ns.unwrap_or(0);
            process.context_switches_voluntary += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            process.context_switches_involuntary +=
                field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        // Ticks are usually hundredths of a second, too coarse for a short run. The counts of the
        // threads are exact but do not include threads that have ended. The larger of both is used.
        process.cpu = process.cpu.max(Duration::from_nanos(on_processor_ns));
        Some(process)
    }
}

/// Returns the number in the line of `status` that begins with `name`, as in /proc/PID/status.
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

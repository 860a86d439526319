//! What the kernel knows of this process and machine. Linux tells it in /proc; elsewhere the figures are
//! zero.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Clock ticks per second in /proc: fixed by the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a page of memory.
fn page_len_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// User and system CPU time of the process so far.
pub fn cpu_time() -> (Duration, Duration) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the program's name in parentheses, may hold spaces: count from its end.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let seconds = |ticks: f64| Duration::from_secs_f64(ticks / TICKS_PER_SECOND);
    (seconds(ticks(11)), seconds(ticks(12)))
}

/// How much processor time threads had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a core.
    pub running: Duration,
    /// Ready to run, waiting for one.
    pub ready: Duration,
}

/// The time of this process's threads so far, by their names; those of one name together.
pub fn thread_times() -> BTreeMap<String, ThreadTime> {
    let mut times: BTreeMap<String, ThreadTime> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        // A thread may end meanwhile: its files are empty then.
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, schedstat) = (read("comm"), read("schedstat"));
        let mut nanos = schedstat.split_whitespace().map(|field| field.parse().unwrap_or(0));
        let mut next = || Duration::from_nanos(nanos.next().unwrap_or(0));
        let time = times.entry(name.trim_end().to_owned()).or_default();
        time.running += next();
        time.ready += next();
    }
    times
}

/// Resident memory of the process, in bytes.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    pages.unwrap_or(0) * page_len_bytes()
}

/// Lets the kernel back this process with huge pages, or keeps it from that. Linux only; elsewhere and in
/// containers that forbid it nothing changes.
pub fn allow_huge_pages(allowed: bool) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(!allowed) {
        tracing::debug!(%error, "the use of huge pages cannot be chosen");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = allowed;
}

/// Memory of the machine, in bytes.
pub fn system_memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_something_plausible() {
        assert!(resident_bytes() > 100_000);
        assert!(system_memory_bytes() > resident_bytes());
        assert!(cpu_time().0 < Duration::from_secs(3600));
    }

    #[test]
    fn threads_are_timed_by_name() {
        let body = || {
            while thread_times().get("busy").is_none_or(|time| time.running.is_zero()) {
                std::hint::spin_loop();
            }
        };
        std::thread::Builder::new()
            .name("busy".to_owned())
            .spawn(body)
            .expect("a thread")
            .join()
            .expect("ends");
    }
}

//! The kernel's statistics of this process and machine. Linux provides them in /proc; on other
//! systems the figures are zero.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Clock ticks per second in /proc: fixed by the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;
/// Returns the size of a memory page in bytes.
fn page_len_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns the user and system CPU time of the process so far.
pub fn cpu_time() -> (Duration, Duration) {
    cpu_time_of("/proc/self/stat".as_ref())
}

/// Returns the user and system CPU time of a thread of this process so far.
pub fn thread_cpu_time(tid: i32) -> (Duration, Duration) {
    cpu_time_of(format!("/proc/self/task/{tid}/stat").as_ref())
}

fn cpu_time_of(stat: &Path) -> (Duration, Duration) {
    let stat = fs::read_to_string(stat).unwrap_or_default();
    // The second field, the program's name in parentheses, may hold spaces: count from its end.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let seconds = |ticks: f64| Duration::from_secs_f64(ticks / TICKS_PER_SECOND);
    (seconds(ticks(11)), seconds(ticks(12)))
}

/// The times of threads that the kernel measures: on a core, and waiting for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// The time for which the threads ran on a core.
    pub running: Duration,
    /// The time for which the threads were ready to run and waited for a core.
    pub ready: Duration,
}

/// Returns the times of this process's threads so far, summed by thread name.
pub fn thread_times() -> BTreeMap<String, ThreadTime> {
    let mut times: BTreeMap<String, ThreadTime> = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let time = times.entry(name.trim_end().to_owned()).or_default();
        let of_task = time_of_task(&task.path());
        time.running += of_task.running;
        time.ready += of_task.ready;
    }
    times
}

/// Returns the times of the thread `tid` of this process so far.
pub fn thread_time(tid: i32) -> ThreadTime {
    time_of_task(format!("/proc/self/task/{tid}").as_ref())
}

/// Reads the times of a thread from its folder in /proc. They are zero if the thread has ended.
fn time_of_task(task: &Path) -> ThreadTime {
    let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut nanos = schedstat.split_whitespace().map(|field| field.parse().unwrap_or(0));
    let mut next = || Duration::from_nanos(nanos.next().unwrap_or(0));
    ThreadTime { running: next(), ready: next() }
}

/// Returns the memory that the allocator holds, in bytes: the used and the free parts of its
/// committed pages. Committed pages that were never written are not resident, so at most
/// `heap_rss` bytes are counted, the resident memory of the heap.
pub fn held_bytes(heap_rss: u64) -> u64 {
    (structures::alloc::committed_bytes() as u64).min(heap_rss)
}

/// Returns the resident memory of the process, in bytes: the total, and the part without
/// file-backed pages such as the program's code.
pub fn resident_bytes() -> (u64, u64) {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split_whitespace().skip(1);
    let mut next =
        || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0) * page_len_bytes();
    let (all, of_files) = (next(), next());
    (all, all.saturating_sub(of_files))
}

/// The permission for the kernel to use huge pages for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// The kernel may use huge pages for the process.
    Allowed,
    /// The kernel may not use huge pages for the process.
    Forbidden,
}

/// Allows or forbids huge pages for memory that the process touches later. Has no effect on systems
/// other than Linux, and in containers that forbid this choice.
pub fn set_huge_pages(huge_pages: HugePages) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(huge_pages == HugePages::Forbidden) {
        tracing::debug!(%error, "cannot set the use of huge pages");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = huge_pages;
}

/// Loads the program's code into memory, so that the first request of a kind does not wait for page
/// faults. Reads the code through /proc/self/mem, which maps its pages. Has no effect on systems
/// other than Linux or without /proc: code is then loaded on demand. Takes one or two milliseconds.
pub fn load_code() {
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Ok(memory) = fs::File::open("/proc/self/mem") else { return };
    let mut page = vec![0; page_len_bytes() as usize];
    for (from, to) in maps.lines().filter_map(|line| code_range(line, &program)) {
        for at in (from..to).step_by(page.len()) {
            if memory.read_at(&mut page[..1], at).is_err() {
                return;
            }
        }
    }
}

/// Returns the address range in a line of /proc/self/maps; `None` if the line does not describe
/// code of `program`.
fn code_range(line: &str, program: &Path) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    if !rights.contains('x') || Path::new(fields.nth(3)?) != program {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

/// Returns the number of open file descriptors; `None` where the kernel does not report it.
/// O(descriptors).
pub fn open_fds() -> Option<usize> {
    // Reading the folder opens one descriptor itself.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1))
}

/// Returns the limit of open file descriptors; `None` without a limit.
pub fn max_fds() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Returns the total memory of the machine in bytes.
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
        let (all, anonymous) = resident_bytes();
        assert!(anonymous > 100_000 && all > anonymous);
        assert!(system_memory_bytes() > all);
        assert!(cpu_time().0 < Duration::from_secs(3600));
        assert!(open_fds() >= Some(3) && open_fds().map(|open| open as u64) < max_fds().or(Some(u64::MAX)));
    }

    #[test]
    fn only_the_program_s_own_code_is_loaded() {
        let range = |line| code_range(line, Path::new("/bin/saker"));
        assert_eq!(range("1000-3000 r-xp 0 00:00 1 /bin/saker"), Some((0x1000, 0x3000)));
        assert_eq!(range("1000-3000 r--p 0 00:00 1 /bin/saker"), None);
        assert_eq!(range("1000-3000 r-xp 0 00:00 1 /lib/libc.so.6"), None);
        assert_eq!(range("1000-3000 r-xp 0 00:00 0"), None);
        load_code();
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

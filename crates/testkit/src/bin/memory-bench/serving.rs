//! The threads of a server that serve requests, and their CPU time. /proc counts it in nanoseconds,
//! so other programs on the machine do not influence it. Linux only.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Names (or their beginnings) of threads that serve no clients: their work delays no request by
/// itself.
const BACKGROUND: &[&str] = &["housekeeper", "metrics", "bio_", "jemalloc", "log"];

/// The total times of a thread in the scheduler since its start, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// The time that the thread ran on a core.
    pub running_ns: u64,
    /// The time that the thread was ready to run but waited for a core.
    pub ready_ns: u64,
}

impl CpuTime {
    /// Returns the times that the thread has spent since the reading `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            ready_ns: self.ready_ns.saturating_sub(earlier.ready_ns),
        }
    }
}

/// A source of one thread's [`CpuTime`]: an open file of /proc.
pub struct ThreadClock {
    schedstat: File,
    stat: File,
}

impl ThreadClock {
    fn open(task: &Path) -> io::Result<Self> {
        Ok(Self { schedstat: File::open(task.join("schedstat"))?, stat: File::open(task.join("stat"))? })
    }

    /// Opens the files in /proc that show the CPU time of the calling thread.
    pub fn own() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self"))
    }

    /// Reads the CPU time of the thread from /proc. For a thread that runs on a core, it returns
    /// the times of the scheduler's last update.
    pub fn read(&self) -> io::Result<CpuTime> {
        let mut text = [0; 96];
        let len = self.schedstat.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..len]);
        let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Ok(CpuTime { running_ns: next(), ready_ns: next() })
    }

    /// Returns true if the thread sleeps: it neither runs nor waits for a core. Then the CPU time
    /// that /proc shows is exact.
    pub fn is_asleep(&self) -> io::Result<bool> {
        // The state follows the name in parentheses.
        let mut text = [0; 64];
        let len = self.stat.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..len]);
        Ok(text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['S', 'D'])))
    }
}

/// Opens the CPU clocks of the threads of process `pid` that serve requests.
pub fn serving_threads(pid: u32) -> io::Result<Vec<ThreadClock>> {
    let mut clocks = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        if !is_background(&path)? {
            clocks.push(ThreadClock::open(&path)?);
        }
    }
    Ok(clocks)
}

fn is_background(task: &Path) -> io::Result<bool> {
    let name = fs::read_to_string(task.join("comm"))?;
    Ok(BACKGROUND.iter().any(|start| name.starts_with(start)))
}

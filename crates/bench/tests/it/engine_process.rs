//! An odd server as a process of its own: this test program, started anew
//! with the name of one test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::slow_server::{Oddities, SlowServer};

/// The folder in which engines tell of themselves.
const FOLDER: &str = "SAKER_BENCH_TEST_ENGINES";
/// Requests after which an engine says that it is at work.
const BUSY_REQUESTS: u64 = 50;
/// How long anything may take that is waited for.
const SOON: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// Ends with this value.
pub struct EngineProcess(Child);

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command line of an engine called `name` for a study, `{port}` included. `slow` in its name
/// delays its replies, `stubborn` ignores SIGTERM.
pub fn start_line(name: &str) -> String {
    let program = env::current_exe().unwrap();
    let test = "engine_process::serves_when_it_is_told_a_port";
    format!("{} --exact {test} --nocapture {name} {{port}}", program.display())
}

/// Starts an engine called `name` at `port`, which tells of itself in `folder`.
pub fn spawn(name: &str, port: u16, folder: &Path) -> EngineProcess {
    let line = start_line(name).replace("{port}", &port.to_string());
    let mut words = line.split(' ').map(OsString::from);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    wait_until(|| folder.join(name).exists());
    EngineProcess(child)
}

/// A command whose engines tell of themselves in `folder`.
pub fn told_in(mut command: Command, folder: &Path) -> Command {
    command.env(FOLDER, folder);
    command
}

/// The process of engine `name` once it is at work.
pub fn busy(folder: &Path, name: &str) -> Pid {
    let file = folder.join(format!("{name}.busy"));
    wait_until(|| file.exists());
    process(folder, name)
}

/// The process of engine `name`, which has started.
pub fn process(folder: &Path, name: &str) -> Pid {
    Pid::from_raw(fs::read_to_string(folder.join(name)).unwrap().parse().unwrap()).unwrap()
}

/// Whether the process has ended, be it that nobody asked how.
pub fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

pub fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

pub fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        thread::sleep(POLL);
    }
}

/// No test unless it is started as an engine: then it serves until it is ended.
#[test]
fn serves_when_it_is_told_a_port() {
    let arguments: Vec<String> = env::args().collect();
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
    let [.., name, port] = &arguments[..] else { return };
    let Ok(port) = port.parse() else { return };
    let delay = Duration::from_millis(u64::from(name.contains("slow")));
    if name.contains("stubborn") {
        signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false))).unwrap();
    }
    let server = SlowServer::start_at(port, Oddities { delay, ..Oddities::default() });
    let tell = |file: String| {
        let unfinished = folder.join(format!("{file}.new"));
        fs::write(&unfinished, std::process::id().to_string()).unwrap();
        fs::rename(unfinished, folder.join(file)).unwrap();
    };
    tell(name.clone());
    while server.requests() < BUSY_REQUESTS {
        thread::sleep(POLL);
    }
    tell(format!("{name}.busy"));
    // An engine whose study has ended it is killed; one that was forgotten ends by itself.
    thread::sleep(2 * SOON);
}

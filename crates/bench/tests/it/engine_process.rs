//! A server with odd behaviour as a separate process: this test program, started again with the
//! name of one test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::slow_server::{Oddities, SlowServer};

/// The environment variable with the directory in which engines write their process IDs.
const FOLDER: &str = "SAKER_BENCH_TEST_ENGINES";
/// The number of requests after which an engine process counts as busy and reports it.
const BUSY_REQUESTS: u64 = 50;
/// The longest wait for an event of an engine process, such as its start.
const SOON: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// A running engine process. Dropping this value kills it.
pub struct EngineProcess(Child);

impl Drop for EngineProcess {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the command line that starts an engine called `name`, for a study, with `{port}`. An
/// engine whose name contains `slow` delays replies. One whose name contains `stubborn` ignores
/// SIGTERM.
pub fn start_line(name: &str) -> String {
    let program = env::current_exe().unwrap();
    let test = "engine_process::serves_when_it_is_told_a_port";
    format!("{} --exact {test} --nocapture {name} {{port}}", program.display())
}

/// Starts an engine called `name` at `port`. It writes its process ID to `folder`.
pub fn spawn(name: &str, port: u16, folder: &Path) -> EngineProcess {
    let line = start_line(name).replace("{port}", &port.to_string());
    let mut words = line.split(' ').map(OsString::from);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    wait_until(|| folder.join(name).exists());
    EngineProcess(child)
}

/// Returns `command` with the environment variable that names the directory `folder`. The engines
/// that it starts write their process IDs there.
pub fn told_in(mut command: Command, folder: &Path) -> Command {
    command.env(FOLDER, folder);
    command
}

/// Waits until engine `name` has received [`BUSY_REQUESTS`] requests, and returns its process ID.
pub fn busy(folder: &Path, name: &str) -> Pid {
    let file = folder.join(format!("{name}.busy"));
    wait_until(|| file.exists());
    process(folder, name)
}

/// Returns the process ID of engine `name`, which it wrote to `folder` when it started.
pub fn process(folder: &Path, name: &str) -> Pid {
    Pid::from_raw(fs::read_to_string(folder.join(name)).unwrap().parse().unwrap()).unwrap()
}

/// Returns true if the process has ended; a zombie counts as ended.
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

/// Serves as an engine if the test program was started as one. It serves until it is killed, or for
/// a minute after it is busy. Otherwise the test does nothing.
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
    // Usually the study kills the engine. An engine that is never killed ends after a minute.
    thread::sleep(2 * SOON);
}

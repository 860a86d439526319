//! Other programs: finds them, runs them with a time limit, and installs them where that is
//! allowed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::progress::Session;

/// The maximum number of lines of a failed command's output that are repeated on the terminal.
const TAIL_LINES_MAX: usize = 60;
/// The maximum number of characters of a command line that messages show; longer ones are
/// shortened.
const SHOWN_CHARS_MAX: usize = 160;
/// The interval between two checks whether a running command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The way in which a command with a time limit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The watched command ended with the exit status 0.
    Succeeded,
    /// The watched command ended with another exit status, or by a signal.
    Failed,
    /// The watched command ran longer than its limit and was killed.
    Killed,
}

/// Returns the path of program `name` if it is on PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns a `cargo` command that runs at the repository's root.
pub fn cargo(session: &Session) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(&session.root);
    command
}

/// Runs `command` with its output on the terminal. Returns an error if it does not succeed.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    check(command, status)
}

/// Runs `command` with its output on the terminal and passes each line of its standard output to
/// `look`. After `limit`, kills it with the processes that it started and returns
/// [`Ended::Killed`].
pub fn run_watched(command: &mut Command, limit: Duration, mut look: impl FnMut(&str)) -> Result<Ended> {
    // A group of its own, to which the processes belong that it starts.
    command.stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
    let output = child.stdout.take().context("its standard output")?;
    let (sender, lines) = mpsc::channel();
    // A process that the child left behind may keep the pipe open: nobody waits for this thread.
    thread::spawn(move || {
        // A test may print any bytes. A line that is not UTF-8 is skipped: the rest of the output
        // matters more.
        for line in BufReader::new(output).lines().filter(|line| !invalid(line)) {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + limit;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                look(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                kill_process_group(Pid::from_child(&child), Signal::KILL)?;
                child.wait()?;
                return Ok(Ended::Killed);
            }
        }
    }
    Ok(if child.wait()?.success() { Ended::Succeeded } else { Ended::Failed })
}

/// Returns true if `line` could not be read because it is not UTF-8.
fn invalid(line: &io::Result<String>) -> bool {
    line.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// Runs `command` with its output appended to the log of step `name`. Returns all that the step has
/// logged so far. On failure or after `limit`, prints the end of the log and returns an error.
pub fn run_logged(session: &Session, name: &str, command: &mut Command, limit: Duration) -> Result<String> {
    let path = session.log_path(name);
    let mut log = open_log(&path)?;
    writeln!(log, "$ {}", shown(command))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let ended = wait(command, limit).and_then(|status| check(command, status));
    let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    if let Err(error) = ended {
        let lines: Vec<_> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(TAIL_LINES_MAX)).for_each(|line| println!("    {line}"));
        return Err(error.context(format!("the whole log is {}", path.display())));
    }
    Ok(text)
}

/// Runs `command` and returns its standard output. Returns an error with its error output if it
/// does not succeed.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if `command` starts and succeeds; its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the path of `program`. If it is not on PATH, installs Debian's `package` first, if this
/// process has the right to do so. `Err` holds one line that says what is missing.
pub fn ensure(session: &Session, program: &str, package: &str) -> Result<PathBuf, String> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    install(session, package).map_err(|missing| format!("{program} is missing: {missing}"))?;
    find(program).ok_or_else(|| format!("{program} is missing though the package {package} is installed"))
}

/// Installs Debian's `package` if this process has the right to do so. `Err` holds one line that
/// says what is missing.
pub fn install(session: &Session, package: &str) -> Result<(), String> {
    if find("apt-get").is_none() || !is_root() {
        return Err(format!("install the package {package}"));
    }
    // One installation at a time: apt-get takes a lock, and fails if another process holds it.
    static INSTALLATION: Mutex<()> = Mutex::new(());
    let _alone = INSTALLATION.lock().unwrap_or_else(PoisonError::into_inner);
    println!("        installing the package {package}");
    let limit = Duration::from_secs(720);
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        run_logged(session, "apt", &mut command, limit).is_ok()
    };
    let arguments = ["install", "-y", "-qq", "--no-install-recommends", package];
    // The package lists of a fresh container are empty or old: refresh them if the first try fails.
    if apt(&arguments) || (apt(&["update", "-qq"]) && apt(&arguments)) {
        return Ok(());
    }
    Err(format!("apt-get could not install the package {package}"))
}

/// Returns true if this process runs as root and may install packages.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Removes the logs that the steps of an earlier run wrote.
pub fn clear_logs(session: &Session) {
    // If there is no such folder yet, nothing needs to be removed.
    let _ = fs::remove_dir_all(session.target.join("xtask"));
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Starts `command` and waits for its end. After `limit`, kills it and returns an error.
fn wait(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{} was still running after {} s", shown(command), limit.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Returns the command line for messages. The middle of a long line is cut out.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= SHOWN_CHARS_MAX {
        return line;
    }
    let (begin, end) = (SHOWN_CHARS_MAX * 3 / 4, SHOWN_CHARS_MAX / 4);
    let piece = |range: &[char]| range.iter().collect::<String>();
    format!("{} … {}", piece(&chars[..begin]), piece(&chars[chars.len() - end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_on_the_path_and_nothing_else() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn output_is_what_was_printed_and_failure_is_an_error() {
        assert_eq!(output(Command::new("sh").args(["-c", "echo hi"])).unwrap(), "hi\n");
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn a_long_command_line_is_shown_by_its_ends() {
        let line = shown(Command::new("run").args(vec!["word"; 1_000]).arg("last"));
        assert!(line.starts_with("run word") && line.ends_with("last") && line.contains('…'), "{line}");
        assert!(line.chars().count() < 200);
    }

    #[test]
    fn a_watched_command_reports_its_lines_and_its_end() {
        let run = |script: &str, limit: Duration| {
            let mut lines = Vec::new();
            let look = |line: &str| lines.push(line.to_owned());
            let ended = run_watched(Command::new("sh").args(["-c", script]), limit, look).unwrap();
            (ended, lines.join(" "))
        };
        let long = Duration::from_secs(100);
        assert_eq!(run("echo a; printf '\\377\\n'; echo b", long), (Ended::Succeeded, "a b".into()));
        assert_eq!(run("echo a; exit 3", long), (Ended::Failed, "a".into()));
        // The process in the background keeps the pipe open.
        let stuck = run("echo a; sleep 100 & wait", Duration::from_secs(10));
        assert_eq!(stuck, (Ended::Killed, "a".into()));
    }

    #[test]
    fn a_command_over_its_limit_is_ended() {
        let error = wait(Command::new("sleep").arg("100"), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
    }
}

//! The saker-copy under test as a process, and the data that the tests copy.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Client, ServerProcess, Value, saker};

/// The longest wait for saker-copy to print a line or to end.
const SOON: Duration = Duration::from_secs(60);

/// Starts a saker-server that accepts DEBUG, whose digests the tests compare.
pub fn start_saker() -> ServerProcess {
    saker::start(&["--enable-debug-command", "yes", "--save", ""]).unwrap()
}

/// A running saker-copy. It is killed when this value is dropped.
pub struct Tool {
    child: Child,
    errors: mpsc::Receiver<String>,
}

impl Drop for Tool {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tool {
    /// Starts saker-copy with the servers `from` and `to` and further `options`.
    pub fn start(from: &str, to: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_saker-copy"))
            .args([from, to])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, errors) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, errors }
    }

    /// Waits until saker-copy has printed a line that contains `text` on standard error.
    pub fn wait_for(&self, text: &str) {
        loop {
            let line = self.errors.recv_timeout(SOON).unwrap_or_else(|error| panic!("{text}: {error}"));
            if line.contains(text) {
                return;
            }
        }
    }

    /// Sends the signal of Ctrl-C (SIGINT) to saker-copy.
    pub fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits until saker-copy has ended. Returns the exit status, the summary, and the rest of
    /// standard error.
    pub fn wait(mut self) -> (i32, String, String) {
        let mut summary = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut summary).unwrap();
        let status = self.child.wait().unwrap().code().unwrap();
        (status, summary, self.errors.iter().collect::<Vec<_>>().join("\n"))
    }
}

/// Runs saker-copy to its end and expects success. Returns its summary.
pub fn copy(from: &ServerProcess, to: &ServerProcess, options: &[&str]) -> String {
    let (status, summary, errors) = Tool::start(&url(from), &url(to), options).wait();
    assert_eq!(status, 0, "{summary}\n{errors}");
    summary
}

/// Returns the URL (redis://) by which saker-copy reaches `server`.
pub fn url(server: &ServerProcess) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

/// Sends a command of words separated by blanks, and expects that it succeeds.
pub fn send(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    let reply = client.command(&words);
    assert!(!reply.is_error(), "{line}: {reply}");
    reply
}

/// Writes keys of all types to two databases.
pub fn fill(client: &mut Client, count: usize) {
    let mut commands = Vec::new();
    for number in 0..count {
        commands.push(format!("SET s:{number} value-{number}"));
        if number % 10 == 0 {
            commands.push(format!("RPUSH l:{number} a b {number}"));
            commands.push(format!("HSET h:{number} f {number} g 2"));
            commands.push(format!("SADD set:{number} a b {number}"));
            commands.push(format!("ZADD z:{number} 1 a 2.5 {number}"));
            commands.push(format!("XADD x:{number} {}-1 f v", number + 1));
            commands.push(format!("SET e:{number} v PX 100000000"));
        }
    }
    for member in 0..1500 {
        commands.push(format!("ZADD big:z {member}.5 m{member}"));
        commands.push(format!("HSET big:h f{member} {member}"));
        commands.push(format!("SADD big:s m{member}"));
        commands.push(format!("RPUSH big:l e{member}"));
    }
    commands.push("XGROUP CREATE x:0 g 0".to_owned());
    commands.push("XREADGROUP GROUP g c COUNT 1 STREAMS x:0 >".to_owned());
    commands.push("SELECT 3".to_owned());
    commands.push("SET other 1".to_owned());
    commands.push("SELECT 0".to_owned());
    let commands: Vec<Vec<&str>> = commands.iter().map(|line| line.split(' ').collect()).collect();
    let replies = client.pipeline(&commands).unwrap();
    assert!(replies.iter().all(|reply| !reply.is_error()));
}

/// Returns the digest of all data on `server` (DEBUG DIGEST).
pub fn digest(server: &ServerProcess) -> Value {
    send(&mut server.connect(), "DEBUG DIGEST")
}

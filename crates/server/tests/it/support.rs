//! Servers for the tests: embedded in the test's process or in their own, and their clients.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use net::{Backend, BackendChoice};
use rustix::process::{Pid, Signal, kill_process};
use server::Server;
use tempfile::TempDir;
use testkit::{Address, Client, Protocol, ServerProcess, Value, notation, saker};

/// The path of the program saker-server that is tested.
pub const BINARY: &str = env!("CARGO_BIN_EXE_saker-server");

/// Runs saker-server with the arguments `args` to its end; `input` is its standard input. It runs
/// in an empty folder of its own: two servers in one folder refuse each other.
pub fn run(args: &[&str], input: &str) -> Output {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut child = Command::new(BINARY)
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // It may have ended before it read the input.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("ends")
}

/// Maximum time until all threads of a process that gets SIGSTOP are stopped.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// Sends a signal to a server. After [`Signal::STOP`], returns only when all its threads are
/// stopped: the kernel stops a thread only when it next runs.
pub fn signal(server: &ServerProcess, signal: Signal) {
    kill_process(pid(server.pid()), signal).expect("the server runs");
    let deadline = Instant::now() + STOPPED_WITHIN;
    while signal == Signal::STOP && !is_stopped(server.pid()) {
        assert!(Instant::now() < deadline, "the server does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process exists");
    threads.flatten().all(|thread| {
        // The state follows the name, which is in parentheses. A thread without a file has ended.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with(['T', 'Z', 'X']))
    })
}

/// Converts a process id to the type that system calls take.
pub fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().expect("a process id")).expect("not zero")
}

/// Returns the format version of the payloads of a server's DUMP. Its RESTORE accepts at least this
/// version.
pub fn payload_version(client: &mut Client) -> u16 {
    client.command(&["SET", "probe", "1"]);
    let Value::Bulk(payload) = client.command(&["DUMP", "probe"]) else { panic!("a payload") };
    client.command(&["DEL", "probe"]);
    version_of(&payload)
}

/// Returns the format version of a DUMP payload, which is in the two bytes before the checksum.
pub fn version_of(payload: &[u8]) -> u16 {
    let at = payload.len() - 10;
    u16::from_le_bytes([payload[at], payload[at + 1]])
}

/// Runs `test` with a server on each backend that the kernel permits.
pub fn on_each_back_end(test: impl Fn(&Server)) {
    on_each_back_end_with(IO_THREADS, test);
}

/// Runs `test` with a server of `io_threads` I/O threads on each backend that the kernel permits.
pub fn on_each_back_end_with(io_threads: usize, test: impl Fn(&Server)) {
    // Files that they save stay out of the repository.
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a scratch folder"));
    let start = |backend, folder: &TempDir| {
        let builder = Server::builder().port(0).io_threads(io_threads).backend(backend);
        let builder = builder.data_folder(folder.path()).option("enable-debug-command", "yes");
        builder.start().expect("the server starts")
    };
    test(&start(BackendChoice::Epoll, &folders[0]));
    // Containers often forbid io_uring. Then epoll is used instead, which was tested above.
    let server = start(BackendChoice::Auto, &folders[1]);
    if server.backend() == Backend::IoUring {
        test(&server);
    }
}

/// Runs `test` with a server in a separate process, which has its own memory, on each backend that
/// the kernel permits.
pub fn as_process_on_each_back_end(test: impl Fn(&ServerProcess)) {
    for backend in ["epoll", "auto"] {
        let options = ["--io-backend", backend, "--io-threads", "2"];
        let server = saker::start_binary(BINARY, &options);
        test(&server.unwrap_or_else(|error| panic!("{error}")));
    }
}

/// The default number of I/O threads of a test server.
pub const IO_THREADS: usize = 2;

/// Starts a server with two I/O threads on a free port.
pub fn start(backend: BackendChoice) -> Server {
    let builder = Server::builder().port(0).io_threads(IO_THREADS).backend(backend);
    builder.option("enable-debug-command", "yes").start().expect("the server starts")
}

/// Starts a server with two I/O threads on a free port, with its data in `folder`.
pub fn start_in(folder: &Path) -> Server {
    let builder = Server::builder().port(0).io_threads(IO_THREADS).data_folder(folder);
    builder.option("enable-debug-command", "yes").start().expect("the server starts")
}

/// Connects a client to `server` over TCP.
pub fn connect(server: &Server) -> Client {
    Client::to_port(server.port())
}

/// Connects a client to `server` that uses `protocol`.
pub fn speaking(server: &Server, protocol: Protocol) -> Client {
    Client::speaking(&Address::port(server.port()), protocol)
}

/// Returns true if `is_so` returns true within a minute.
pub fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Returns the number that INFO shows for `field`.
pub fn info(client: &mut Client, field: &str) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]) else { panic!("INFO is a bulk string") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("INFO has {field} as a number"))
}

/// Sends a command whose words are separated by spaces. Returns the reply on one line, in the
/// notation of the scripts in tests/cmd.
pub fn ask(client: &mut Client, line: &str) -> String {
    notation::one_line(&client.command(&line.split(' ').collect::<Vec<_>>()))
}

/// Sends commands one after the other and compares their replies with the expected ones, in the
/// notation of the scripts in tests/cmd.
pub fn check(client: &mut Client, steps: &[(&str, &str)]) {
    for (line, expected) in steps {
        assert_eq!(ask(client, line), *expected, "{line}");
    }
}

/// Connects a client that I/O thread `thread` serves.
pub fn connect_on(server: &Server, thread: usize) -> Client {
    // New connections are assigned to the thread with the fewest. Connections on other threads
    // stay open until the wanted thread gets one.
    let mut others = Vec::new();
    loop {
        let mut client = connect(server);
        let info = client.command(&["CLIENT", "INFO"]);
        let text = String::from_utf8_lossy(info.as_bytes().expect("CLIENT INFO is text")).into_owned();
        if text.contains(&format!(" io-thread={thread} ")) {
            return client;
        }
        others.push(client);
    }
}

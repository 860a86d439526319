//! Embedded servers for the tests.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use net::{Backend, BackendChoice};
use rustix::process::{Pid, Signal, kill_process};
use server::Server;
use tempfile::TempDir;
use testkit::{Address, Client, Protocol, ServerProcess, Value, saker};

/// The program.
pub const BINARY: &str = env!("CARGO_BIN_EXE_saker-server");

/// Runs the program to its end; `input` is its standard input.
pub fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(BINARY)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // It may have ended before it read this.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("ends")
}

/// Sends a signal to a server.
pub fn signal(server: &ServerProcess, signal: Signal) {
    kill_process(pid(server.pid()), signal).expect("the server runs");
}

/// A process's id, as the system's calls take it.
pub fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().expect("a process id")).expect("not zero")
}

/// The version of the payloads that a server's DUMP makes, and at least that its RESTORE takes.
pub fn payload_version(client: &mut Client) -> u16 {
    client.command(&["SET", "probe", "1"]);
    let Value::Bulk(payload) = client.command(&["DUMP", "probe"]) else { panic!("a payload") };
    client.command(&["DEL", "probe"]);
    version_of(&payload)
}

/// The version that a payload says: two bytes in front of the checksum.
pub fn version_of(payload: &[u8]) -> u16 {
    let at = payload.len() - 10;
    u16::from_le_bytes([payload[at], payload[at + 1]])
}

/// Does `test` with a server on each back end that the kernel permits.
pub fn on_each_back_end(test: impl Fn(&Server)) {
    on_each_back_end_with(IO_THREADS, test);
}

/// Does `test` with a server of so many I/O threads on each back end that the kernel permits.
pub fn on_each_back_end_with(io_threads: usize, test: impl Fn(&Server)) {
    // Whatever they save stays out of the repository.
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a scratch folder"));
    let start = |backend, folder: &TempDir| {
        let builder = Server::builder().port(0).io_threads(io_threads).backend(backend);
        let builder = builder.data_folder(folder.path()).option("enable-debug-command", "yes");
        builder.start().expect("the server starts")
    };
    test(&start(BackendChoice::Epoll, &folders[0]));
    // Containers often forbid io_uring: then epoll is served instead, and was tested above.
    let server = start(BackendChoice::Auto, &folders[1]);
    if server.backend() == Backend::IoUring {
        test(&server);
    }
}

/// Does `test` with a server in a process of its own, whose memory is its own
/// too, on each back end.
pub fn as_process_on_each_back_end(test: impl Fn(&ServerProcess)) {
    for backend in ["epoll", "auto"] {
        let options = ["--io-backend", backend, "--io-threads", "2"];
        let server = saker::start_binary(BINARY, &options);
        test(&server.unwrap_or_else(|error| panic!("{error}")));
    }
}

/// I/O threads of a server where a test does not say.
pub const IO_THREADS: usize = 2;

/// A server with two I/O threads on a free port.
pub fn start(backend: BackendChoice) -> Server {
    let builder = Server::builder().port(0).io_threads(IO_THREADS).backend(backend);
    builder.option("enable-debug-command", "yes").start().expect("the server starts")
}

/// The same, with its data in this folder.
pub fn start_in(folder: &Path) -> Server {
    let builder = Server::builder().port(0).io_threads(IO_THREADS).data_folder(folder);
    builder.option("enable-debug-command", "yes").start().expect("the server starts")
}

/// A connection.
pub fn connect(server: &Server) -> Client {
    Client::to_port(server.port())
}

/// A connection that speaks `protocol`.
pub fn speaking(server: &Server, protocol: Protocol) -> Client {
    Client::speaking(&Address::port(server.port()), protocol)
}

/// Whether something is so within ten seconds.
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

/// The number that INFO shows for `field`.
pub fn info(client: &mut Client, field: &str) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]) else { panic!("INFO is a bulk string") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("INFO has {field} as a number"))
}

/// A connection on thread `thread`.
pub fn connect_on(server: &Server, thread: usize) -> Client {
    // A new one goes to the thread with the fewest: those on others stay until the
    // right one has its turn.
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

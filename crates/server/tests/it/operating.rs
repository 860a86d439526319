//! Server operation: the log and its rotation, supervisors, failed starts, the shutdown.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, prlimit};
use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
use testkit::process::free_port;
use testkit::{Client, ServerProcess, Value, saker};

use crate::support::{BINARY, happens, info, pid, run, signal};

const WITHIN: Duration = Duration::from_secs(60);

/// Waits until `condition` returns true; `what` names it in the failure.
fn until(what: &str, condition: impl Fn() -> bool) {
    assert!(happens(condition), "not in time: {what}");
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The line that SAVE writes to the log.
const SAVED: &str = "DB saved on disk";

/// Makes the server write a line to its log.
fn log_a_line(client: &mut Client) {
    assert_eq!(client.command(&["SAVE"]).to_string(), "OK");
}

#[test]
fn a_rotated_log_goes_on_under_its_name() {
    let server = saker::start_binary(BINARY, &["--logfile", "d.log"]).expect("starts");
    let (log, old) = (server.dir().join("d.log"), server.dir().join("d.log.1"));
    until("the start", || text(&log).contains("Ready to accept connections tcp"));
    fs::rename(&log, &old).expect("rotated");
    let before = text(&old);
    log_a_line(&mut server.connect());
    assert!(text(&log).contains(SAVED));
    fs::rename(&log, server.dir().join("d.log.2")).expect("rotated");
    signal(&server, Signal::HUP);
    until("the file is opened by the signal", || text(&log).contains("Received SIGHUP: log file reopened"));
    assert_eq!(text(&old), before);
}

#[test]
fn a_log_without_a_folder_does_not_end_the_server() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).expect("made");
    let file = logs.join("d.log");
    let options = ["--logfile", file.to_str().expect("UTF-8")];
    let mut server = saker::start_binary(BINARY, &options).expect("starts");
    fs::remove_dir_all(&logs).expect("removed");
    let mut client = server.connect();
    log_a_line(&mut client);
    log_a_line(&mut client);
    signal(&server, Signal::HUP);
    assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    fs::create_dir(&logs).expect("made");
    log_a_line(&mut client);
    let logged = text(&file);
    assert!(logged.contains("Log lines that could not be written and are lost: "), "{logged}");
    signal(&server, Signal::TERM);
    assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
}

/// Checks that a line after a partly written one begins on a new line. With a limit on the file
/// size, `write` writes only what fits and then fails, as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_line_behind_a_torn_one_begins_anew() {
    let line = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\"", BINARY].map(OsString::from);
    let options = ["--logfile", "d.log"].map(str::to_owned);
    let server = ServerProcess::start(&line, &options).expect("starts");
    let log = server.dir().join("d.log");
    until("the start", || text(&log).contains("Ready to accept connections tcp"));
    let limit = |bytes: Option<u64>| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(pid(server.pid())), Resource::Fsize, limit).expect("the limit is set");
    };
    let mut client = server.connect();
    limit(Some(text(&log).len() as u64 + 10));
    log_a_line(&mut client);
    log_a_line(&mut client);
    limit(None);
    log_a_line(&mut client);
    let logged = text(&log);
    assert!(logged.contains("Log lines that could not be written and are lost: "), "{logged}");
    let begin = format!("{}:M ", server.pid());
    let torn: Vec<&str> = logged.lines().filter(|line| line.len() < 20).collect();
    assert_eq!(torn.len(), 1, "{logged}");
    let whole = |line: &str| line.starts_with(&begin) && line.matches(&begin).count() == 1;
    assert!(logged.lines().filter(|line| line.len() >= 20).all(whole), "{logged}");
}

#[test]
fn a_relative_log_file_lies_in_the_working_folder_of_the_configuration() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let options = ["--dir", folder.path().to_str().expect("UTF-8"), "--logfile", "d.log"];
    let _server = saker::start_binary(BINARY, &options).expect("starts");
    assert!(text(&folder.path().join("d.log")).contains("just started"));
}

#[test]
fn a_terminal_that_goes_away_does_not_end_the_server() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let port = free_port().expect("a port").to_string();
    let mut child = Command::new(BINARY)
        .args(["--port", &port])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("read").contains("Ready to accept connections tcp")));
    drop((lines, child.stderr.take()));
    kill_process(pid(child.id()), Signal::HUP).expect("runs");
    let mut client = Client::to_port(port.parse().expect("a port"));
    log_a_line(&mut client);
    assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    kill_process(pid(child.id()), Signal::TERM).expect("runs");
    assert!(child.wait().expect("ends").success());
}

/// Starts a server with `socket` in the environment variable `NOTIFY_SOCKET`.
fn supervised(socket: &str, options: &[&str]) -> ServerProcess {
    let line = ["env", &format!("NOTIFY_SOCKET={socket}"), BINARY].map(OsString::from);
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    ServerProcess::start(&line, &options).expect("starts")
}

fn received(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    socket.set_read_timeout(Some(WITHIN)).expect("set");
    let len = socket.recv(&mut bytes).expect("a notification");
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Checks the notifications that systemd receives from the start of `server` to its end, which
/// `end` causes.
fn check_notifications(socket: &UnixDatagram, mut server: ServerProcess, end: impl FnOnce(&ServerProcess)) {
    let ready = format!("READY=1\nSTATUS=Ready to accept connections\nMAINPID={}\n", server.pid());
    assert_eq!(received(socket), "STATUS=Saker is loading...\n");
    assert_eq!(received(socket), ready);
    let Value::Bulk(server_info) = server.connect().command(&["INFO", "server"]) else { panic!("INFO") };
    assert!(String::from_utf8_lossy(&server_info).contains("process_supervised:systemd"));
    signal(&server, Signal::HUP);
    let reloading = received(socket);
    let usec =
        reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.strip_suffix('\n'));
    assert!(usec.is_some_and(|usec| usec.parse::<u64>().is_ok_and(|usec| usec > 0)), "{reloading}");
    assert_eq!(received(socket), ready);
    end(&server);
    assert_eq!(received(socket), "STOPPING=1\nSTATUS=Saker is shutting down...\n");
    assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
}

#[test]
fn systemd_is_notified_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("bound");
    let path = path.to_str().expect("UTF-8");
    let stop_by_signal = |server: &ServerProcess| signal(server, Signal::TERM);
    // It stays in the foreground, where systemd waits for it.
    let server = supervised(path, &["--supervised", "systemd", "--daemonize", "yes"]);
    check_notifications(&socket, server, stop_by_signal);
    let by_request = |server: &ServerProcess| server.connect().send(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    check_notifications(&socket, supervised(path, &["--supervised", "auto"]), by_request);
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_is_notified_at_an_abstract_name() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let name = format!("saker-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("bound");
    let server = supervised(&format!("@{name}"), &["--supervised", "systemd"]);
    check_notifications(&socket, server, |server| signal(server, Signal::TERM));
}

#[test]
fn a_supervisor_that_is_not_there_is_missed_and_no_more() {
    let line = ["env", "-u", "NOTIFY_SOCKET", BINARY, "--supervised", "systemd"].map(OsString::from);
    let server = ServerProcess::start(&line, &[]).expect("starts");
    server.wait_for_log("systemd supervision error: NOTIFY_SOCKET not found!");
    let server = supervised("/no/such/socket", &["--supervised", "systemd"]);
    server.wait_for_log("cannot notify systemd");
}

#[test]
fn upstart_sees_the_process_stop_itself() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let port = free_port().expect("a port").to_string();
    let mut child = Command::new(BINARY)
        .args(["--port", &port, "--supervised", "upstart"])
        .current_dir(folder.path())
        .env("UPSTART_JOB", "saker")
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let id = pid(child.id());
    let (_, status) = waitpid(Some(id), WaitOptions::UNTRACED).expect("waits").expect("a change");
    assert!(status.stopped());
    kill_process(id, Signal::CONT).expect("runs");
    until("it serves", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    kill_process(id, Signal::TERM).expect("runs");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn a_start_names_options_that_have_no_effect_yet() {
    let server = saker::start_binary(BINARY, &["--sanitize-dump-payload", "yes"]).expect("starts");
    server.wait_for_log("Ready to accept connections tcp");
    let log = server.log();
    assert!(log.contains("Option 'sanitize-dump-payload' is set but has no effect"), "{log}");
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let check = |args: &[&str], code: i32, says: &str| {
        let output = run(&[&["--check-config"], args].concat(), "");
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.code() == Some(code) && printed.contains(says), "{args:?}: {printed}");
    };
    check(&[], 0, "The configuration is good.");
    check(&["--sanitize-dump-payload", "yes"], 0, "Option 'sanitize-dump-payload' has no effect");
    check(&["--save", "1"], 1, "Invalid save parameters");
    check(&["--dir", "/there/is/no/such/folder"], 1, "/there/is/no/such/folder");
    check(&["--bind", "no such host"], 1, "bind");
    check(&["--port", "0"], 1, "nothing to listen on");
    check(
        &["--logfile", "/there/is/no/log"],
        1,
        "the folder of '/there/is/no/log' does not exist (option 'logfile')",
    );
    check(&["--unixsocket", "/there/is/no/s"], 1, "(option 'unixsocket')");
    check(&["--maxmemroy", "1gb"], 1, "did you mean 'maxmemory'?");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let dir = folder.path().to_str().expect("UTF-8");
    check(&["--logfile", dir], 1, "is a folder (option 'logfile')");
    // All problems are reported.
    check(
        &["--port", "0", "--logfile", "/there/is/no/log"],
        1,
        "'unixsocket' is not set\nsaker-server: the folder of",
    );
    let files = folder.path().join("appendonlydir");
    fs::create_dir(&files).expect("created");
    check(&["--dir", dir, "--appendonly", "yes"], 0, "The configuration is good.");
    fs::write(files.join("appendonly.aof.manifest"), "file a\n").expect("written");
    check(&["--dir", dir, "--appendonly", "yes"], 1, "Invalid AOF manifest file format, at line 1: 'file a'");
    let [conf, inner] = ["saker.conf", "inner.conf"].map(|name| folder.path().join(name));
    fs::write(&conf, format!("port 0\nunixsocket {dir}/s\ninclude {}\n", inner.display())).expect("written");
    let conf = conf.to_str().expect("UTF-8");
    check(&[conf], 1, "can't open config file");
    fs::write(&inner, "timeout 5\nmaxmemory many\n").expect("written");
    check(
        &[conf],
        1,
        &format!("at line 2 of {}\n>>> 'maxmemory many'\nargument must be a memory", inner.display()),
    );
    fs::write(&inner, "maxmemory 1gb\n").expect("written");
    check(&[conf], 0, "The configuration is good.");
    assert!(
        !folder.path().join("s").exists() && !folder.path().join("dump.rdb").exists(),
        "nothing was started"
    );
}

#[test]
fn a_shutdown_that_cannot_save_is_refused_unless_it_is_forced() {
    let start = || {
        let server = saker::start_binary(BINARY, &[]).expect("starts");
        // A folder cannot be replaced by a file.
        fs::create_dir(server.dir().join("dump.rdb")).expect("created");
        server
    };
    for refused in [&["SHUTDOWN"][..], &["SHUTDOWN", "SAVE"], &["SHUTDOWN", "SAVE", "NOW"]] {
        let server = start();
        let mut client = server.connect();
        let reply = client.command(refused).to_string();
        assert!(reply.contains("ERR Errors trying to SHUTDOWN. Check logs."), "{reply}");
        server.wait_for_log("Error trying to save the DB, can't exit.");
        assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    }
    for request in [" NOSAVE", " FORCE", " SAVE FORCE", " NOSAVE NOW FORCE"] {
        let mut server = start();
        server.connect().send(format!("SHUTDOWN{request}\r\n").as_bytes()).expect("sent");
        assert_eq!(server.wait(WITHIN).expect("ends"), Some(0), "{request}");
    }
}

/// Checks that a shutdown does not happen after it was aborted. The shutdown waits for DEBUG
/// PAUSE-CRON, which ends right after the abort.
#[test]
fn an_aborted_end_does_not_come() {
    let server = saker::start_binary(BINARY, &["--enable-debug-command", "yes"]).expect("starts");
    let mut client = server.connect();
    for _ in 0..10 {
        assert_eq!(client.command(&["DEBUG", "PAUSE-CRON", "1"]).to_string(), "OK");
        signal(&server, Signal::TERM);
        while client.command(&["SHUTDOWN", "ABORT"]).to_string().contains("No shutdown in progress") {}
        assert_eq!(client.command(&["DEBUG", "PAUSE-CRON", "0"]).to_string(), "OK");
        // Longer than a waiting shutdown may sleep. A wrong shutdown would close the client.
        std::thread::sleep(Duration::from_millis(12));
        assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    }
}

/// Checks that a second signal ends the server, after a first shutdown could not save the data.
#[test]
fn a_signal_ends_the_server_once_the_data_can_be_saved() {
    let mut server = saker::start_binary(BINARY, &["--save", "3600 1"]).expect("starts");
    let dump = server.dir().join("dump.rdb");
    fs::create_dir(&dump).expect("created");
    let mut client = server.connect();
    assert_eq!(client.command(&["SET", "k", "v"]).to_string(), "OK");
    signal(&server, Signal::TERM);
    server.wait_for_log("Errors trying to shut down the server.");
    fs::remove_dir(&dump).expect("removed");
    assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    signal(&server, Signal::TERM);
    assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
    assert!(dump.exists());
}

/// Runs the program with arguments with which it must fail; returns its output.
fn failure(args: &[&str]) -> String {
    let output = run(args, "");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {printed}");
    printed
}

#[test]
fn a_taken_port_is_said_once_with_its_option() {
    let server = saker::start_binary(BINARY, &["--logfile", "d.log"]).expect("starts");
    let (port, other) = (server.port().to_string(), free_port().expect("a port").to_string());
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = folder.path().join("d.log");
    let logfile = ["--logfile", log.to_str().expect("UTF-8")];
    let printed = failure(&["--port", &port]);
    assert_eq!(printed.matches("Failed listening on port").count(), 1, "{printed}");
    assert!(printed.contains("is in use, trying again for a second"), "{printed}");
    assert!(printed.contains(&format!("127.0.0.1:{port}: Address already in use.")), "{printed}");
    assert!(printed.contains("another port with --port."), "{printed}");
    let printed = failure(&[&["--port", &other, "--metrics-port", &port], &logfile[..]].concat());
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.contains("another port with --metrics-port."), "{printed}");
    assert!(
        text(&log).contains(printed.trim().strip_prefix("saker-server: ").expect("says who")),
        "{printed}"
    );
    // The process in the foreground waits for the one in the background.
    let printed = failure(&["--port", &port, "--daemonize", "yes"]);
    assert!(printed.contains("another port with --port."), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

#[test]
fn a_daemon_serves_when_its_start_has_ended() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (dir, port) = (folder.path().to_str().expect("UTF-8"), free_port().expect("a port"));
    let options = ["--daemonize", "yes", "--dir", dir, "--pidfile", "s.pid", "--logfile", "d.log"];
    let output = run(&[&["--port", &port.to_string()], &options[..]].concat(), "");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let mut client = Client::to_port(port);
    assert_eq!(client.command(&["PING"]).to_string(), "PONG");
    let id = text(&folder.path().join("s.pid"));
    assert_eq!(id.trim(), info(&mut client, "process_id").to_string());
    // A daemon has no terminal: SIGHUP is for its log only.
    kill_process(pid(id.trim().parse().expect("a number")), Signal::HUP).expect("runs");
    until("SIGHUP is logged", || text(&folder.path().join("d.log")).contains("Received SIGHUP"));
    client.send(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    until("it ends", || !folder.path().join("s.pid").exists());
}

#[test]
fn a_daemon_needs_a_configuration_that_can_be_read_twice() {
    let port = free_port().expect("a port");
    let config = format!("port {port}\ndaemonize yes\n");
    let check = |args: &[&str], input: &str, name: &str| {
        let output = run(args, input);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), printed.lines().count()), (Some(1), 1), "{args:?}: {printed}");
        assert!(
            printed
                .contains(&format!("cannot daemonize: the process in the background must read {name} again")),
            "{printed}"
        );
    };
    check(&["/dev/stdin"], &config, "/dev/stdin");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("a.conf");
    fs::write(&file, "include /dev/stdin").expect("written");
    check(&[file.to_str().expect("UTF-8")], &config, "/dev/stdin");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("runs").success());
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&fifo, &config).expect("somebody reads"));
        let fifo = fifo.to_str().expect("UTF-8");
        check(&[fifo], "", fifo);
    });
    std::net::TcpStream::connect(("127.0.0.1", port)).expect_err("no server was started");
}

#[test]
fn a_pid_file_that_cannot_be_written_is_not_removed() {
    let mut server = saker::start_binary(BINARY, &["--pidfile", "/no/such/folder/s.pid"]).expect("starts");
    server.wait_for_log("Failed to write PID file /no/such/folder/s.pid");
    server.connect().send(b"SHUTDOWN\r\n").expect("sent");
    assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
    assert!(!server.log().contains("Removing the pid file"), "{}", server.log());
}

#[test]
fn a_unix_socket_belongs_to_the_server_that_listens_on_it() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("s.sock");
    let socket = ["--unixsocket", path.to_str().expect("UTF-8")];
    // The socket file of a killed server is replaced.
    drop(UnixListener::bind(&path).expect("bound"));
    let mut server = saker::start_binary(BINARY, &socket).expect("starts");
    server.wait_for_log("Ready to accept connections unix");
    let port = free_port().expect("a port").to_string();
    let printed = failure(&[&["--port", &port], &socket[..]].concat());
    assert!(printed.contains("A running process listens there"), "{printed}");
    UnixStream::connect(&path).expect("the first server still has it");
    // Another process's socket with this name stays.
    fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("bound");
    signal(&server, Signal::TERM);
    assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
    assert!(!server.log().contains("Removing the unix socket file"), "{}", server.log());
    UnixStream::connect(&path).expect("still there");
    // A start that fails later removes the socket that it created.
    let (own, taken) = (folder.path().join("own.sock"), free_port().expect("a port"));
    let _taken = std::net::TcpListener::bind(("127.0.0.1", taken)).expect("bound");
    let own_socket = ["--unixsocket", own.to_str().expect("UTF-8")];
    let taken = ["--port", "0", "--metrics-port", &taken.to_string()].map(str::to_owned);
    let printed = failure(&[&taken.each_ref().map(String::as_str), &own_socket[..]].concat());
    assert!(printed.contains("--metrics-port") && !own.exists(), "{printed}");
    let long = "x".repeat(120);
    let printed = failure(&["--port", &port, "--unixsocket", &long]);
    assert!(printed.contains("the path has 120 bytes, at most 107 are possible"), "{printed}");
}

#[test]
fn a_killed_server_can_be_replaced_at_once() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let port = free_port().expect("a port");
    let start = || {
        let mut child = Command::new(BINARY)
            .args(["--port", &port.to_string(), "--io-threads", "2"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("Ready to accept connections tcp") {
            line.clear();
            assert_ne!(lines.read_line(&mut line).expect("read"), 0, "the server ends");
        }
        (child, lines)
    };
    for _ in 0..3 {
        let (mut child, mut lines) = start();
        let mut client = Client::to_port(port);
        assert_eq!(client.command(&["PING"]).to_string(), "PONG");
        child.kill().expect("killed");
        child.wait().expect("ends");
        // Read to the end, so that the pipe does not block the process.
        let _ = lines.read_to_end(&mut Vec::new());
    }
    let (mut child, _lines) = start();
    child.kill().expect("killed");
    child.wait().expect("ends");
}

//! Contents of the package and the image: the annotated configuration file, the health check, the
//! entrypoint.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use server::config::{ConfigStore, Loaded, load, parse_config, table};
use testkit::ServerProcess;
use testkit::process::free_port;
use testkit::replication::happens;

const BINARY: &str = env!("CARGO_BIN_EXE_saker-server");
/// Options whose values the package sets to other values than the defaults.
const PACKAGED: &[&str] = &["dir", "logfile", "pidfile"];
/// Options for which the packaged configuration file shows an example instead of the default.
const EXAMPLES: &[&str] = &[
    "io-threads",
    "unixsocket",
    "unixsocketperm",
    "tls-cert-file",
    "tls-key-file",
    "tls-ca-cert-file",
    "tls-protocols",
    "tls-ciphers",
    "tls-ciphersuites",
];

/// Returns the packaged configuration file with `folder` as its data folder, which must exist.
fn conf(folder: &Path) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/saker.conf");
    let text = fs::read_to_string(file).expect("packaging/saker.conf");
    assert!(text.contains("\ndir /var/lib/saker\n"));
    text.replace("/var/lib/saker", folder.to_str().expect("UTF-8"))
}

/// Writes `text` to a file in `folder` and returns its path.
fn written(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("saker.conf");
    fs::write(&file, text).expect("written");
    file
}

fn loaded(file: PathBuf) -> ConfigStore {
    match load::load(&[file.into_os_string().into_vec()], &mut std::io::empty(), server::commands::is_command)
    {
        Ok(Loaded::Run(store)) => *store,
        other => panic!("{other:?}"),
    }
}

/// Returns the options of `store` that differ from their defaults.
fn changed(store: &ConfigStore) -> Vec<&'static str> {
    let differs = table::all().filter(|&(id, _)| store.value(id) != store.default_of(id));
    differs.map(|(_, option)| option.name).collect()
}

#[test]
fn the_packaged_configuration_sets_only_what_the_package_needs() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut changed = changed(&loaded(written(folder.path(), &conf(folder.path()))));
    changed.sort_unstable();
    assert_eq!(changed, PACKAGED);
}

#[test]
fn every_default_of_the_packaged_configuration_can_be_uncommented() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase()) => setting.to_owned(),
        _ => line.to_owned(),
    };
    let text: Vec<String> = conf(folder.path()).lines().map(uncommented).collect();
    let text = text.join("\n");
    let mut changed = changed(&loaded(written(folder.path(), &text)));
    changed.retain(|name| !PACKAGED.contains(name) && !EXAMPLES.contains(name));
    assert_eq!(changed, Vec::<&str>::new());
    let directives = parse_config(text.as_bytes()).expect("well formed");
    for (_, option) in table::all().filter(|(_, option)| !option.hidden) {
        assert!(directives.iter().any(|line| line.name == option.name.as_bytes()), "{}", option.name);
    }
}

#[test]
fn a_server_starts_with_the_packaged_configuration() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = written(folder.path(), &conf(folder.path()));
    let options = ["--logfile", "", "--pidfile", ""].map(str::to_owned);
    let server = ServerProcess::start(&[BINARY.into(), file.into()], &options).expect("starts");
    assert_eq!(server.connect().command(&["PING"]).to_string(), "PONG");
    let log = server.log();
    assert!(!log.contains("has no effect"), "{log}");
}

fn healthcheck(arguments: &[&str], password: Option<&str>) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("--healthcheck").args(arguments).env_remove("REDISCLI_AUTH");
    command.envs(password.map(|password| ("REDISCLI_AUTH", password)));
    command.output().expect("runs")
}

fn is_healthy(arguments: &[&str], password: Option<&str>) -> bool {
    let output = healthcheck(arguments, password);
    assert_eq!(output.status.success(), output.stdout == b"PONG\n", "{output:?}");
    output.status.success()
}

#[test]
fn a_health_check_tells_a_server_that_answers_from_one_that_does_not() {
    let server = ServerProcess::start(&[BINARY.into()], &[]).expect("starts");
    let port = server.port().to_string();
    assert!(is_healthy(&["--port", &port], None));
    assert!(is_healthy(&["--port", &port, "--bind", "*"], None));
    let free = free_port().expect("a port").to_string();
    let refused = healthcheck(&["--port", &free, "--bind", "127.0.0.1"], None);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains(&format!("127.0.0.1:{free}: Connection refused")),
        "{error}"
    );
    assert!(!is_healthy(&["--port", "0"], None));
}

#[test]
fn a_health_check_uses_the_password_that_it_has() {
    let options = ["--requirepass", "a b"].map(str::to_owned);
    let server = ServerProcess::start(&[BINARY.into()], &options).expect("starts");
    let port = server.port().to_string();
    assert!(is_healthy(&["--port", &port], None), "a server that asks for a password answers");
    assert!(is_healthy(&["--port", &port], Some("a b")));
    assert!(is_healthy(&["--port", &port, "--requirepass", "a b"], None));
    assert!(!is_healthy(&["--port", &port], Some("wrong")));
    assert!(!is_healthy(&["--port", &port, "--requirepass", "wrong"], None));
}

#[test]
fn a_readiness_check_tells_a_replica_in_sync_from_one_without_its_primary() {
    let check = |flag: &str, port: u16| {
        let output = Command::new(BINARY)
            .args([flag, "--port", &port.to_string()])
            .env_remove("REDISCLI_AUTH")
            .output()
            .expect("runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), error.is_empty(), "{output:?}");
        (output.status.success(), error)
    };
    let primary = ServerProcess::start(&[BINARY.into()], &[]).expect("starts");
    // A check may take too long on a loaded machine.
    assert!(happens(|| check("--healthcheck=ready", primary.port()).0), "{}", primary.log());
    let port = primary.port().to_string();
    let options = ["--replicaof", "127.0.0.1", &port, "--replica-serve-stale-data", "no"].map(str::to_owned);
    let replica = ServerProcess::start(&[BINARY.into()], &options).expect("starts");
    assert!(happens(|| check("--healthcheck=ready", replica.port()).0), "{}", replica.log());
    drop(primary);
    assert!(happens(|| !check("--healthcheck=ready", replica.port()).0), "{}", replica.log());
    assert!(happens(|| check("--healthcheck", replica.port()).0), "{}", replica.log());
    replica.connect().command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
    let reason = "the link to the primary is not up (";
    assert!(happens(|| check("--healthcheck=ready", replica.port()).1.contains(reason)), "{}", replica.log());
}

#[test]
fn a_health_check_takes_the_unix_socket_where_there_is_no_port() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    let options = ["--unixsocket", "s.sock", "--dir", &path].map(str::to_owned);
    let server = ServerProcess::start(&[BINARY.into()], &options).expect("starts");
    assert!(is_healthy(&["--port", "0", "--unixsocket", "s.sock", "--dir", &path], None));
    drop(server);
    // A listener that accepts and never replies, and a file that is not a socket.
    let silent = UnixListener::bind(folder.path().join("silent.sock")).expect("listens");
    let closes = std::thread::spawn(move || drop(silent.accept()));
    assert!(!is_healthy(&["--port", "0", "--unixsocket", "silent.sock", "--dir", &path], None));
    closes.join().expect("ends");
    // With an empty `bind` there is no TCP listener, so the port is ignored. Later the check fails
    // while its error text cannot be written.
    let server = ServerProcess::start(&[BINARY.into()], &options).expect("starts");
    let socket = ["--unixsocket", "s.sock", "--dir", &path];
    assert!(is_healthy(&[&["--bind", ""], &socket[..]].concat(), None));
    drop(server);
    let full = File::options().write(true).open("/dev/full").expect("there");
    let mut command = Command::new(BINARY);
    let status = command.args(["--healthcheck", "--port", "0"]).stderr(full).status().expect("runs");
    assert_eq!(status.code(), Some(1));
    File::create(folder.path().join("file")).expect("made");
    assert!(!is_healthy(&["--port", "0", "--unixsocket", "file", "--dir", &path], None));
}

/// Returns `bind`, `protected-mode` and `port` of the server that the container's entrypoint
/// starts with `arguments` and `input`.
fn in_container(arguments: &[&str], input: &str) -> String {
    let entrypoint = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/container-entrypoint.sh");
    let folder = tempfile::tempdir().expect("a scratch folder");
    // Prints its arguments and its standard input.
    let program = folder.path().join("saker-server");
    fs::write(&program, "#!/bin/sh\nprintf '%s\\0' \"$@\"\nprintf '\\0'\ncat\n").expect("written");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("made executable");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut command = Command::new("sh");
    command.arg(entrypoint).args(arguments).env("PATH", path);
    let mut started =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    started.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    let output = started.wait_with_output().expect("ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let (options, input) = text.split_once("\0\0").expect("arguments, then standard input");
    let options: Vec<Vec<u8>> = options.split('\0').map(|option| option.as_bytes().to_vec()).collect();
    match load::load(&options, &mut input.as_bytes(), server::commands::is_command) {
        Ok(Loaded::Run(store)) => {
            let names: [&[u8]; 3] = [b"bind", b"protected-mode", b"port"];
            let shown = store.matching(&names).into_iter().map(|(_, value)| value);
            String::from_utf8_lossy(&shown.collect::<Vec<_>>().join(&b", "[..])).into_owned()
        }
        other => panic!("{options:?}: {other:?}"),
    }
}

#[test]
fn in_a_container_the_defaults_lose_to_options_standard_input_and_the_file() {
    assert_eq!(in_container(&["--port", "7"], ""), "* -::*, no, 7");
    assert_eq!(in_container(&["saker-server", "--bind", "::1", "--port", "7"], ""), "::1, no, 7");
    assert_eq!(in_container(&["-"], "port 7"), "* -::*, no, 7");
    assert_eq!(in_container(&["-", "--port", "8"], "bind ::1\nport 7"), "::1, no, 8");
    assert_eq!(in_container(&["--port", "8", "-"], "protected-mode yes\nport 7"), "* -::*, yes, 8");
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = written(folder.path(), "bind ::1\nport 7\n");
    let file = file.to_str().expect("UTF-8");
    assert_eq!(in_container(&[file], ""), "::1, no, 7");
    assert_eq!(in_container(&[file, "-", "--port", "9"], "port 8"), "::1, no, 9");
    assert_eq!(in_container(&[file, "-"], "bind ::2\nprotected-mode yes"), "::2, yes, 7");
}

#[test]
fn only_the_owner_may_write_to_the_log() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let log = folder.path().join("server.log");
    // The systemd unit's umask, with which the group could write to a new file.
    let line = ["sh", "-c", "umask 0007; exec \"$@\"", "sh", BINARY].map(Into::into);
    let options = ["--logfile", log.to_str().expect("UTF-8")].map(str::to_owned);
    let server = ServerProcess::start(&line, &options).expect("starts");
    assert_eq!(fs::metadata(&log).expect("the log").permissions().mode() & 0o777, 0o640);
    drop(server);
}

//! Tests of servers that reject or close connections, and of invalid arguments. Each must give one
//! clear line, exit code 2 and the results measured up to then.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bench::results::Ending;
use bench::spec::{Endpoint, Limit};
use bench::{BenchError, run};

use crate::slow_server::{Oddities, SlowServer, pem};

/// Runs `saker-bench run` with `arguments`.
fn saker_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_saker-bench")).arg("run").args(arguments).output().unwrap()
}

/// Runs `saker-bench run` with `arguments`. Checks for exit code 2 and one line on standard error
/// that contains `part`. Returns standard output.
fn fails(arguments: &[&str], part: &str) -> String {
    let output = saker_bench(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(part) && error.trim_end().lines().count() == 1, "{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_makes_no_sense_is_told_in_one_line() {
    fails(&["-t", "set,gett"], "unknown test \"gett\"");
    fails(&["-d", "big"], "\"big\" is not a size");
    fails(&["GET", "{key normal 5}"], "not a distribution");
    fails(&["--ratio", "1"], "\"1\" is not a ratio");
    fails(&["--ratio", "1:1", "--key-pattern", "X:R"], "not a key pattern");
    fails(&["-c", "0"], "at least 1");
    fails(&["--duration", "0"], "requests and duration must be above 0");
    fails(&["-n", "0"], "requests and duration must be above 0");
    fails(&["--rate", "1000", "--gather-us", "50"], "only in a closed loop");
    fails(&["--file", "/nowhere/at/all"], "cannot read /nowhere/at/all");
    fails(&["--verify", "-t", "set"], "nothing to verify");
    fails(&["--no-such-option"], "unknown option \"--no-such-option\"");
    fails(&["-c", "many"], "invalid value 'many'");
    fails(&["-k", "2"], "2 is not in 0..=1");
    fails(&["-n"], "a value is required for '--requests");
    fails(&["-u", "http://localhost"], "is not a URI");
    fails(&["--user", "joe"], "a user needs a password");
    fails(&["-x"], "-x needs a command");
    fails(&["--cluster", "-s", "/nowhere"], "does not work over a Unix socket");
}

#[test]
fn flags_that_name_the_server_and_its_user_mean_what_they_mean_to_redis_benchmark() {
    let server = SlowServer::start(Oddities::default());
    let uri = format!("redis://joe:secret@127.0.0.1:{}/3", server.port());
    let flags = ["-u", &uri, "-3", "--enable-tracking", "-n", "10", "-c", "1", "-q", "-t", "set"];
    assert_eq!(saker_bench(&flags).status.code(), Some(0));
    assert_eq!(
        server.first_words(),
        ["HELLO 3 AUTH joe secret", "SELECT 3", "CLIENT TRACKING on", "PING"].map(str::to_owned)
    );
}

#[test]
fn a_test_that_gets_nothing_but_errors_has_failed() {
    let server = SlowServer::start(Oddities { error_every: Some(1), ..Oddities::default() });
    let port = server.port().to_string();
    // The tests after it are run, and all figures are printed.
    let flags = ["-p", &port, "-n", "100", "-c", "2", "-q", "-t", "set,get"];
    let printed = fails(&flags, "SET: all 100 replies were errors, the first one: ");
    assert_eq!(printed.lines().count(), 2, "{printed}");
    let sweep = ["-p", &port, "--rate-sweep", "1", "-n", "20", "-q", "-t", "set"];
    let printed = fails(&sweep, "SET: all 20 replies were errors");
    assert!(printed.contains("no rate was found, the search ended early"), "{printed}");
}

#[test]
fn the_last_argument_comes_from_standard_input() {
    let server = SlowServer::start(Oddities::default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    command.args(["run", "-p", &server.port().to_string(), "-n", "1", "-c", "1", "-q", "-x", "SET", "key"]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"two\nlines \xff").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
    assert_eq!(server.value(b"key").as_deref(), Some(&b"two\nlines \xff"[..]));
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let port = testkit::process::free_port().unwrap().to_string();
    fails(&["-p", &port, "-t", "ping"], &format!("cannot connect to 127.0.0.1:{port}"));
    fails(&["-s", "/nowhere/saker.sock", "-t", "ping"], "cannot connect to /nowhere/saker.sock");
    let server = SlowServer::start(Oddities::default());
    let mut spec = server.spec("DO it", 1, Limit::Requests(1));
    spec.target.endpoint = Endpoint::Tcp { host: "no.such.host.invalid".to_owned(), port: 1 };
    assert!(matches!(run(&spec), Err(BenchError::Connect { .. })));
}

#[test]
fn a_wrong_password_is_told_in_the_servers_words() {
    let server = SlowServer::start(Oddities { refuses_auth: true, ..Oddities::default() });
    let port = server.port().to_string();
    fails(&["-p", &port, "-a", "wrong", "-t", "set"], "WRONGPASS invalid password");
}

#[test]
fn a_certificate_that_cannot_be_trusted_is_told() {
    let server = SlowServer::start_tls(Oddities::default());
    let port = server.port().to_string();
    let ca = pem("ca.pem");
    let ca = ca.to_str().unwrap();
    // The system does not trust this certificate, even if it trusts other authorities.
    fails(&["-p", &port, "--tls", "-t", "set"], "TLS: ");
    fails(&["-p", &port, "--tls", "--cacertdir", "/nowhere", "-t", "set"], "TLS: /nowhere");
    fails(
        &["-p", &port, "--tls", "--insecure", "--tls-ciphers", "RC4-MD5", "-t", "set"],
        "there is no cipher",
    );
    fails(&["-p", &port, "--tls", "--cacert", "/nowhere", "-t", "set"], "TLS: /nowhere");
    fails(
        &["-p", &port, "--tls", "--cacert", ca, "--sni", "other.example", "-t", "set"],
        "TLS: invalid peer certificate",
    );
    // A server without TLS, and a server with TLS only.
    let plain = SlowServer::start(Oddities::default()).port().to_string();
    let output = saker_bench(&["-p", &plain, "--tls", "--insecure", "-t", "set", "--reply-within", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(saker_bench(&["-p", &port, "-t", "set", "--reply-within", "1"]).status.code(), Some(2));
    fails(&["-s", "/nowhere", "--tls", "--insecure", "-t", "set"], "does not work over a Unix socket");
}

#[test]
fn a_server_that_vanishes_leaves_what_was_measured() {
    let server = SlowServer::start(Oddities { vanish_at: Some(500), ..Oddities::default() });
    let port = server.port().to_string();
    let printed = fails(&["-p", &port, "-t", "set,get", "--csv"], "the run ended early");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.len() == 2 && lines[0] == bench::output::CSV_HEADER, "{printed}");
    assert!(lines[1].starts_with("\"SET\",\"") && !lines[1].starts_with("\"SET\",\"0.00\""), "{printed}");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = SlowServer::start(Oddities { silent_from: Some(100), ..Oddities::default() });
    let mut spec = server.spec("DO it", 2, Limit::Requests(1000));
    // A busy machine must not delay the first replies for as long.
    spec.load.reply_within = Duration::from_secs(3);
    let result = run(&spec).unwrap();
    assert!(matches!(&result.ending, Ending::Failed(reason) if reason.contains("no reply")), "{result:?}");
    assert!((1..100).contains(&result.requests) && result.unanswered >= 1, "{}", result.requests);
}

#[test]
fn a_run_prints_the_same_lines_as_redis_benchmark() {
    let server = SlowServer::start(Oddities::default());
    let port = server.port().to_string();
    let output = saker_bench(&["-p", &port, "-t", "set,ping_mbulk", "-n", "500", "-c", "5", "-q"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("PING_MBULK: ") && lines[1].starts_with("SET: "),
        "{text}"
    );
    assert!(lines.iter().all(|line| line.contains(" requests per second, p50=")), "{text}");
}

#[test]
fn results_are_written_as_json() {
    let server = SlowServer::start(Oddities::default());
    let dir = tempfile::tempdir().unwrap();
    let (port, path) = (server.port().to_string(), dir.path().join("results.json"));
    let output = saker_bench(&[
        "-p",
        &port,
        "-n",
        "100",
        "-q",
        "--json",
        path.to_str().unwrap(),
        "SET {key uniform 9} a",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let text = std::fs::read_to_string(path).unwrap();
    let results: Vec<bench::results::RunResult> = serde_json::from_str(&text).unwrap();
    assert_eq!((results.len(), results[0].requests, results[0].settings.keyspace), (1, 100, 9));
}

#[test]
fn precision_gives_the_decimals_of_latencies_wherever_they_are_printed() {
    let server = SlowServer::start(Oddities::default());
    let port = server.port().to_string();
    let p50 = |flags: &[&str], digits: usize| {
        let load = ["-p", port.as_str(), "-n", "10", "-c", "1", "-t", "ping_mbulk"];
        let output = saker_bench(&[&load, flags].concat());
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        let decimals = |number: &str| number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let number = if flags.contains(&"--csv") {
            text.lines().last().and_then(|line| line.split(',').nth(2)).map(|field| field.trim_matches('"'))
        } else {
            text.split("p50=").nth(1).and_then(|rest| rest.split(' ').next())
        };
        assert_eq!(number.map(decimals), Some(digits), "{flags:?}: {text}");
    };
    p50(&["-q"], 3);
    p50(&["-q", "--precision", "0"], 0);
    p50(&["-q", "--precision", "9"], 4);
    p50(&["--csv", "--precision", "1"], 1);
}

#[test]
fn errors_are_printed_as_they_come_where_that_is_asked_for() {
    let server = SlowServer::start(Oddities { error_every: Some(2), ..Oddities::default() });
    let port = server.port().to_string();
    let lines = |flags: &[&str]| {
        let load = ["-p", port.as_str(), "-n", "100", "-c", "1", "-q", "-t", "set"];
        let output = saker_bench(&[&load, flags].concat());
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| line.starts_with("Error from server: ")).count()
    };
    assert_eq!(lines(&[]), 0);
    // At most one per second: on a slow machine the run may reach the next second.
    assert!((1..50).contains(&lines(&["-e"])));
}

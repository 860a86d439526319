//! Tests of studies that fail: they must give one clear line, exit code 2, and reports of the
//! measured part.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::slow_server::{Oddities, SlowServer};

/// Runs `study` and writes its reports into `dir`.
fn compare(dir: &Path, study: &str) -> Output {
    let path = dir.join("study.toml");
    fs::write(&path, study).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    command.arg("compare").arg(&path).arg("--out").arg(dir.join("out"));
    command.output().unwrap()
}

/// Returns the exit code and the last line of standard error.
fn ending(output: &Output) -> (Option<i32>, String) {
    let error = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), error.lines().last().unwrap_or_default().to_owned())
}

/// The beginning of a study file whose first engine is not installed.
const ABSENT: &str =
    "title = 'x'\nrounds = 1\n[[engine]]\nname = 'none'\nstart = 'no-such-server --port {port}'\n";

/// Returns the entry of a study file for an engine called `name`: the running `server`.
fn running(name: &str, server: &SlowServer) -> String {
    format!("[[engine]]\nname = '{name}'\naddress = '127.0.0.1:{}'\n", server.port())
}

const WORKLOAD: &str =
    "[load]\nrequests = 200\nconnections = [2]\n[[workload]]\ntests = ['ping_mbulk', 'get']\n";

#[test]
fn a_malformed_study_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let engine = "[[engine]]\nname = 'a'\naddress = 'h:1'\n";
    for (study, reported) in [
        ("title = 'x'\nruonds = 3\n".to_owned(), "study.toml:2:1: unknown field `ruonds`"),
        (
            format!("title = 'x'\n{engine}[[workload]]\ntests = ['gett']\n"),
            "study.toml:6:10: unknown test \"gett\"",
        ),
        (format!("title = 'x'\n{engine}{engine}{WORKLOAD}"), "study.toml:6:8: two engines are called \"a\""),
        (format!("title = 'x'\n{engine}"), "study.toml: no [[workload]]"),
    ] {
        let output = compare(dir.path(), &study);
        let (code, line) = ending(&output);
        assert_eq!(
            (code, output.stderr.iter().filter(|byte| **byte == b'\n').count()),
            (Some(2), 1),
            "{line}"
        );
        assert!(line.contains(reported), "{line}");
    }
}

#[test]
fn engines_of_the_command_line_must_be_the_studys() {
    let dir = tempfile::tempdir().unwrap();
    let study = format!("title = 'x'\n[[engine]]\nname = 'a'\naddress = 'h:1'\n{WORKLOAD}");
    for (options, reported) in [
        (["--engines", "b"], "the study has no engine \"b\""),
        (["--program", "b=x"], "the study has no engine \"b\""),
        (["--program", "a"], "\"a\" is not NAME=PROGRAM"),
        (["--root", "a"], "\"a\" is not NAME=FOLDER"),
        (["--rounds", "0"], "rounds is 0"),
        (["--seconds", "0"], "seconds is 0"),
    ] {
        let path = dir.path().join("study.toml");
        fs::write(&path, &study).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
        let output = command.arg("compare").arg(&path).args(options).output().unwrap();
        let (code, line) = ending(&output);
        assert!(code == Some(2) && line.contains(reported), "{options:?}: {line}");
    }
}

#[test]
fn engines_that_are_not_installed_are_left_out_with_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [SlowServer::start(Oddities::default()), SlowServer::start(Oddities::default())];
    let study = format!("{ABSENT}{}{}{WORKLOAD}", running("a", &servers[0]), running("b", &servers[1]));
    let output = compare(dir.path(), &study);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("none: no-such-server is not installed: skipped"), "{error}");
    let csv = fs::read_to_string(dir.path().join("out/results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 5, "{csv}");
}

#[test]
fn a_comparison_needs_its_baseline_and_two_engines() {
    let dir = tempfile::tempdir().unwrap();
    let servers = [SlowServer::start(Oddities::default()), SlowServer::start(Oddities::default())];
    let (a, b) = (running("a", &servers[0]), running("b", &servers[1]));
    let reported = |study: &str| {
        let (code, line) = ending(&compare(dir.path(), study));
        assert_eq!(code, Some(2), "{line}");
        assert_eq!(servers.iter().map(SlowServer::requests).sum::<u64>(), 0, "told before anything is sent");
        line
    };
    let line = reported(&format!("{ABSENT}{a}{WORKLOAD}"));
    assert!(
        line.contains(
            "there is no engine to compare a with: none is skipped (no-such-server is not installed)"
        ),
        "{line}"
    );
    let line = reported(&format!("baseline = 'none'\n{ABSENT}{a}{b}{WORKLOAD}"));
    assert!(line.contains("the baseline none is skipped (no-such-server is not installed)"), "{line}");
    assert!(line.ends_with("to measure without it, use --engines a,b"), "{line}");
}

#[test]
fn an_engine_that_replies_with_errors_only_has_no_figures() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = SlowServer::start(Oddities { error_every: Some(1), ..Oddities::default() });
    let right = SlowServer::start(Oddities::default());
    let workload = WORKLOAD.replace("'ping_mbulk', ", "");
    let study = format!(
        "baseline = 'a'\ntitle = 'x'\nrounds = 1\n{}{}{workload}",
        running("a", &wrong),
        running("b", &right)
    );
    let output = compare(dir.path(), &study);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("all 200 replies were errors"), "{error}");
    assert!(
        error.contains("the baseline a was not measured: differences are relative to b instead"),
        "{error}"
    );
    let csv = fs::read_to_string(dir.path().join("out/results.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.contains("\"failed\"")).count(), 1, "{csv}");
}

#[test]
fn what_the_command_line_shortened_is_in_the_reports() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let path = dir.path().join("study.toml");
    let workload = WORKLOAD.replace("requests = 200", "requests = 1000000000");
    fs::write(&path, format!("title = 'x'\nrounds = 3\n{}{workload}", running("a", &server))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    command.args(["compare", "--rounds", "2", "--seconds", "0.05", "--out"]).arg(dir.path()).arg(&path);
    assert!(command.output().unwrap().status.success());
    for report in ["summary.md", "report.html"] {
        let text = fs::read_to_string(dir.path().join(report)).unwrap();
        assert!(text.contains("Shortened on the command line: 2 rounds instead of 3, runs of "), "{text}");
        assert!(text.contains(" requests or more instead of 1000000000."), "{text}");
    }
}

#[test]
fn an_engine_that_does_not_start_leaves_the_others_their_results() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let study = format!(
        "title = 'x'\nrounds = 1\n[[engine]]\nname = 'broken'\nstart = \"sh -c 'echo no luck; exit 3' {{port}}\"\n\
         [[engine]]\nname = 'there'\naddress = '127.0.0.1:{}'\n{WORKLOAD}",
        server.port()
    );
    let (code, line) = ending(&compare(dir.path(), &study));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("broken: exited during its start (exit status: 3): no luck"), "{line}");
    assert!(dir.path().join("out/report.html").exists());
}

#[test]
fn nothing_to_measure_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let study = format!("title = 'x'\n[[engine]]\nname = 'a'\nstart = 'no-such-server {{port}}'\n{WORKLOAD}");
    let (code, line) = ending(&compare(dir.path(), &study));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("nothing was measured"), "{line}");
}

#[test]
fn an_unreachable_address_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let study = format!("title = 'x'\n[[engine]]\nname = 'a'\naddress = '127.0.0.1:1'\n{WORKLOAD}");
    let (code, line) = ending(&compare(dir.path(), &study));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("a: does not reply"), "{line}");
}

#[test]
fn an_engine_that_never_opens_its_port_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let engine = "[[engine]]\nname = 'mute'\nready_within_seconds = 0.2\nstart = \"sh -c 'echo warming up; exec sleep 60' {port}\"\n";
    let (code, line) = ending(&compare(dir.path(), &format!("title = 'x'\n{engine}{WORKLOAD}")));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("mute: does not reply: ") && line.ends_with("warming up"), "{line}");
}

#[test]
fn a_port_that_is_taken_is_told_in_the_engines_words() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo 'bind: Address already in use' >&2; exit 1";
    let engine = format!("[[engine]]\nname = 'late'\nstart = \"sh -c \\\"{script}\\\" {{port}}\"\n");
    let (code, line) = ending(&compare(dir.path(), &format!("title = 'x'\n{engine}{WORKLOAD}")));
    assert_eq!(code, Some(2), "{line}");
    assert!(
        line.contains("late: exited during its start (exit status: 1): bind: Address already in use"),
        "{line}"
    );
}

#[test]
fn a_wrong_password_is_told_in_the_servers_words() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities { refuses_auth: true, ..Oddities::default() });
    let engine = format!("[[engine]]\nname = 'a'\naddress = '127.0.0.1:{}'\n", server.port());
    let workload = WORKLOAD.replace("[load]", "[load]\npassword = 'wrong'");
    let (code, line) = ending(&compare(dir.path(), &format!("title = 'x'\n{engine}{workload}")));
    assert_eq!(code, Some(2), "{line}");
    assert!(line.contains("a: does not reply: WRONGPASS"), "{line}");
}

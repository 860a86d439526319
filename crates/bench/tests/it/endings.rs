//! Tests of runs and studies that end early: by Ctrl-C, or because a server closes its connections
//! or stops replying.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bench::results::{Ending, RunResult};
use bench::spec::Limit;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::engine_process::{self, busy, is_gone, process, signal, spawn, start_line, wait_until};
use crate::slow_server::{Oddities, SlowServer};

const BENCH: &str = env!("CARGO_BIN_EXE_saker-bench");

/// Starts saker-bench. Its engines write their process IDs to `folder`.
fn start(arguments: &[&str], folder: &Path) -> Child {
    let mut command = engine_process::told_in(Command::new(BENCH), folder);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    command.spawn().unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Waits for the end of `child`. Returns its exit code, standard output and standard error.
fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Starts a study with the given `[load]` settings and engines, two tests and one round.
fn start_study(dir: &TempDir, load: &str, engines: &str) -> Child {
    let path = dir.path().join("study.toml");
    let text =
        format!("title = 'x'\nrounds = 1\n[load]\n{load}\n{engines}[[workload]]\ntests = ['get', 'set']\n");
    fs::write(&path, text).unwrap();
    let out = dir.path().join("out");
    start(&["compare", path.to_str().unwrap(), "--out", out.to_str().unwrap()], dir.path())
}

fn started(name: &str) -> String {
    format!("[[engine]]\nname = '{name}'\nstart = '{}'\n", start_line(name))
}

/// Returns the lines of the study's results.csv that contain `part`.
fn csv_lines(dir: &TempDir, part: &str) -> Vec<String> {
    let csv = fs::read_to_string(dir.path().join("out/results.csv")).unwrap();
    csv.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_measured() {
    for way in [Signal::INT, Signal::TERM, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let server = SlowServer::start(Oddities::default());
        let (port, json) = (server.port().to_string(), dir.path().join("results.json"));
        let json = json.to_str().unwrap();
        let run = start(
            &["run", "-p", &port, "--duration", "60", "--csv", "--json", json, "-t", "set,get"],
            dir.path(),
        );
        wait_until(|| server.requests() > 100);
        signal(pid(&run), way);
        let (code, printed, errors) = ended(run);
        assert_eq!((code, errors.as_str()), (Some(130), ""));
        let lines: Vec<&str> = printed.lines().collect();
        assert!(
            lines.len() == 2 && lines[1].starts_with("\"SET\""),
            "the second test does not begin: {printed}"
        );
        assert!(lines[1].ends_with("\"interrupted\""), "{printed}");
        let results: Vec<RunResult> = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert!(results[0].ending == Ending::Interrupted && results[0].requests > 0);
    }
}

#[test]
fn ctrl_c_ends_the_search_of_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let port = server.port().to_string();
    let arguments =
        ["run", "-p", &port, "--rate", "500", "--rate-sweep", "60000", "--duration", "60", "-t", "get,set"];
    let run = start(&arguments, dir.path());
    wait_until(|| server.requests() > 20);
    signal(pid(&run), Signal::INT);
    let (code, printed, errors) = ended(run);
    assert_eq!((code, errors.as_str()), (Some(130), ""));
    assert!(printed.lines().last().unwrap().ends_with("the search ended early"), "{printed}");
}

#[test]
fn ctrl_c_ends_a_run_that_has_not_begun() {
    // A server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let run = start(&["run", "-p", &port, "-c", "3", "-t", "set"], dir.path());
    let accepted = [silent.accept().unwrap(), silent.accept().unwrap(), silent.accept().unwrap()];
    signal(pid(&run), Signal::INT);
    let (code, printed, errors) = ended(run);
    assert_eq!((code, printed.as_str(), errors.trim_end()), (Some(130), "", "saker-bench: interrupted"));
    drop(accepted);
}

#[test]
fn idle_connections_are_kept_until_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let server = SlowServer::start(Oddities::default());
    let mut run = start(&["run", "-p", &server.port().to_string(), "-I", "-c", "7"], dir.path());
    let mut said = String::new();
    BufReader::new(run.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "7 idle connections, until Ctrl-C\n");
    // One more connection is opened at first, to check that the server exists.
    assert_eq!((server.connections(), server.requests()), (8, 0));
    signal(pid(&run), Signal::INT);
    assert_eq!(ended(run), (Some(130), String::new(), String::new()));
}

#[test]
fn a_second_ctrl_c_ends_a_run_at_once() {
    // A client that waits for the slot map of a cluster cannot be interrupted for some seconds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let run = start(&["run", "-p", &port, "--cluster", "-t", "set"], dir.path());
    let accepted = [silent.accept().unwrap(), silent.accept().unwrap()];
    // Two different signals, because two equal pending signals may be delivered as one.
    signal(pid(&run), Signal::INT);
    signal(pid(&run), Signal::TERM);
    let (code, printed, errors) = ended(run);
    assert_eq!((code, printed.as_str(), errors.as_str()), (Some(130), "", ""));
    drop(accepted);
}

#[test]
fn ctrl_c_ends_a_study_and_the_engines_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let other = SlowServer::start(Oddities::default());
    let address = format!("[[engine]]\nname = 'other'\naddress = '127.0.0.1:{}'\n", other.port());
    let study = start_study(&dir, "seconds = 60\nconnections = [2]", &(started("quick") + &address));
    let engine = busy(dir.path(), "quick");
    signal(pid(&study), Signal::INT);
    let (code, _, errors) = ended(study);
    assert_eq!((code, errors.lines().last()), (Some(130), Some("saker-bench: interrupted")), "{errors}");
    assert!(is_gone(engine), "an engine that the study started");
    assert!(dir.path().join("out/report.html").exists());
    let [quick] = &csv_lines(&dir, "\"quick\"")[..] else { panic!("one line of what was measured") };
    assert!(quick.ends_with("\"partial\",\"interrupted\""), "{quick}");
    let spec = other.spec("DO it", 1, Limit::Requests(1));
    assert_eq!(bench::run(&spec).unwrap().requests, 1, "an engine that it did not start");
}

#[test]
fn a_second_ctrl_c_ends_a_study_at_once_and_its_engines_too() {
    // A busy machine may be slow once, a study that waits for its engine is slow each time.
    let is_quick = (0..5).any(|_| {
        let dir = tempfile::tempdir().unwrap();
        let study = start_study(&dir, "seconds = 60\nconnections = [2]", &started("stubborn"));
        let engine = busy(dir.path(), "stubborn");
        signal(pid(&study), Signal::INT);
        // The results are saved. The engine gets SIGTERM, which it ignores.
        wait_until(|| dir.path().join("out/results.json").exists());
        let begin = Instant::now();
        signal(pid(&study), Signal::INT);
        let (code, ..) = ended(study);
        let took = begin.elapsed();
        assert_eq!(code, Some(130));
        wait_until(|| is_gone(engine));
        took < Duration::from_secs(8)
    });
    assert!(is_quick, "it waited for the engine");
}

#[test]
fn a_server_that_is_killed_or_stopped_ends_a_run() {
    // A busy machine must not delay replies for as long.
    for (way, reason, reply_within) in
        [(Signal::KILL, "connection", "60"), (Signal::STOP, "sent no reply for 3 s", "3")]
    {
        let dir = tempfile::tempdir().unwrap();
        let port = testkit::process::free_port().unwrap();
        let _engine = spawn("slow", port, dir.path());
        let port = port.to_string();
        let arguments = [
            "run",
            "-p",
            &port,
            "-n",
            "1000000",
            "-c",
            "4",
            "-t",
            "set,get",
            "--csv",
            "--reply-within",
            reply_within,
        ];
        let run = start(&arguments, dir.path());
        signal(busy(dir.path(), "slow"), way);
        let (code, printed, errors) = ended(run);
        assert_eq!((code, errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(
            errors.starts_with("saker-bench: the run ended early: ") && errors.contains(reason),
            "{errors}"
        );
        assert!(printed.lines().count() == 2 && printed.trim_end().ends_with("\"ended early\""), "{printed}");
    }
}

#[test]
fn an_engine_that_is_killed_or_stopped_leaves_a_study_its_others() {
    for (way, reason) in
        [(Signal::KILL, "the engine has exited: "), (Signal::STOP, "the engine no longer replies: ")]
    {
        let dir = tempfile::tempdir().unwrap();
        let engines = started("slow") + &started("quick");
        // Long enough for the other engine to reply also on a busy machine.
        let load = "requests = 2000\nconnections = [2]\nreply_within_seconds = 10";
        let study = start_study(&dir, load, &engines);
        let engine = busy(dir.path(), "slow");
        signal(engine, way);
        let (code, _, errors) = ended(study);
        assert_eq!(code, Some(2), "{errors}");
        let reported: Vec<&str> = errors.lines().filter(|line| line.contains(reason)).collect();
        assert_eq!(reported.len(), 2, "once when it happens and once at the end: {errors}");
        assert!(errors.lines().last().unwrap().starts_with("saker-bench: slow, GET"), "{errors}");
        let slow = csv_lines(&dir, "\"slow\"");
        let status = [",\"partial\",\"", ",\"failed\",\"the engine had exited or stopped replying\""];
        assert!(slow.len() == 2 && status.iter().all(|status| slow.concat().contains(status)), "{slow:?}");
        let quick = csv_lines(&dir, "\"quick\"");
        let lost = |line: &String| line.contains("\"partial\"") || line.contains("\"failed\"");
        assert!(quick.len() == 2 && !quick.iter().any(lost), "{quick:?}");
        assert!(is_gone(engine) && is_gone(process(dir.path(), "quick")));
    }
}

//! A step of CI: the checks of Prometheus' tool promtool. It checks a server's metrics, the alert
//! rules and their tests, and the dashboard's expressions.
//!
//! A test of the server (tests/it/monitoring.rs) checks that the rules and the dashboard name only
//! metrics that exist.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::process::free_port;

use crate::progress::{Outcome, Session};
use crate::{release, server, shell};

/// The name of the step in `cargo xtask test`.
const STEP: &str = "prometheus";
/// The time limit of each command; one of the commands downloads 20 MB.
const LIMIT: Duration = Duration::from_secs(480);

/// Runs the step: the checks of metrics, alert rules and dashboard with promtool.
pub fn step(session: &Session) -> Result<Outcome> {
    let promtool = match promtool(session) {
        Ok(promtool) => promtool,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let run = |arguments: &[&str], folder: &Path| {
        let mut command = Command::new(&promtool);
        shell::run_logged(session, STEP, command.args(arguments).current_dir(folder), LIMIT)
    };
    let rules = session.root.join("packaging/prometheus");
    run(&["check", "rules", "alerts.yml"], &rules)?;
    run(&["test", "rules", "alerts_test.yml"], &rules)?;
    let folder = session.target.join("xtask");
    fs::create_dir_all(&folder)?;
    let dashboard = fs::read_to_string(session.root.join("packaging/grafana/saker.json"))?;
    fs::write(folder.join("dashboard.yml"), recording_rules(&dashboard)?)?;
    run(&["check", "rules", "dashboard.yml"], &folder)?;
    let samples = check_metrics(session, &promtool)?;
    Ok(Outcome::Passed(format!("{samples} samples")))
}

/// Returns the path of promtool: from PATH, or from Debian's package. The package is unpacked and
/// not installed, because it would start a service. The error is one line that says what is
/// missing.
fn promtool(session: &Session) -> Result<PathBuf, String> {
    if let Some(path) = shell::find("promtool") {
        return Ok(path);
    }
    let folder = session.target.join("tools/prometheus");
    let program = folder.join("usr/bin/promtool");
    if program.is_file() {
        return Ok(program);
    }
    let missing = || "promtool is missing: install the package prometheus".to_owned();
    fs::create_dir_all(&folder).map_err(|_| missing())?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&folder);
        shell::run_logged(session, STEP, &mut command, LIMIT).is_ok()
    };
    if shell::find("apt-get").is_none() || !run("apt-get", &["download", "-q", "prometheus"]) {
        return Err(missing());
    }
    let unpacked = run("sh", &["-c", "dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb"]);
    if unpacked && program.is_file() { Ok(program) } else { Err(missing()) }
}

/// Converts the dashboard's expressions to recording rules, which promtool reads. Replaces
/// Grafana's variables by values.
fn recording_rules(dashboard: &str) -> Result<String> {
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).context("the dashboard")?;
    let panels = dashboard["panels"].as_array().context("the dashboard's panels")?;
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut count = 0;
    for target in targets {
        let expr = target["expr"].as_str().context("a target's expression")?;
        let expr = expr.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
        ensure!(!expr.contains('$'), "an unknown variable in {expr}");
        // Every JSON string is a YAML string.
        writeln!(rules, "  - record: dashboard:{count}\n    expr: {}", serde_json::to_string(&expr)?)?;
        count += 1;
    }
    ensure!(count > 0, "the dashboard has no expressions");
    Ok(rules)
}

/// Passes a server's metrics to promtool, once for each value of `metrics-per-command`. Returns the
/// number of samples of the longest page.
fn check_metrics(session: &Session, promtool: &Path) -> Result<usize> {
    let program = release::build(session)?.server;
    let port = free_port()?;
    let server = server::start(&program, &["--metrics-port", &port.to_string()])?;
    let mut client = server.connect();
    let mut samples_max = 0;
    for value in ["no", "counters", "percentiles", "histograms"] {
        for words in [
            &["CONFIG", "SET", "metrics-per-command", value][..],
            &["SET", "key", "value", "EX", "1000"],
            &["LPUSH", "key", "value"],
        ] {
            client.request(words).with_context(|| words.join(" "))?;
        }
        // The server may send the same page again for a tenth of a second.
        std::thread::sleep(Duration::from_millis(150));
        let page = scrape(port)?;
        samples_max = samples_max.max(page.lines().filter(|line| !line.starts_with('#')).count());
        let mut child = Command::new(promtool)
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("promtool")?;
        child.stdin.take().context("its input")?.write_all(page.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(output.status.success(), "promtool check metrics ({value}): {}", said.trim());
    }
    drop(client);
    server::stop(server)?;
    Ok(samples_max)
}

fn scrape(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("the metrics endpoint")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, page) = answer.split_once("\r\n\r\n").context("an answer of the metrics endpoint")?;
    Ok(page.to_owned())
}

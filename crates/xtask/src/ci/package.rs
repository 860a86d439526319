//! A step of CI: the Debian package as users get it. lintian must report nothing. The server must
//! start with the packaged configuration and pass its own health check. Manual pages and
//! completions must be well formed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::ServerProcess;

use crate::progress::{Outcome, Session};
use crate::{package, server, shell};

/// The time limit of each program that checks the package; it takes seconds.
const LIMIT: Duration = Duration::from_secs(480);
/// The longest time from the start of the server until it logs that it is ready.
const READY_LIMIT: Duration = Duration::from_secs(40);
/// The interval between two reads of the packaged server's log.
const READY_POLL: Duration = Duration::from_millis(5);

/// Runs the step of CI: builds the Debian package and checks it.
pub fn step(session: &Session) -> Result<Outcome> {
    let deb = package::build(session)?;
    let root = session.target.join("package/installed");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    logged(session, Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
    serve(session, &root)?;
    let mut missing = Vec::new();
    for check in [lint, manual_pages, completions, unit] {
        if let Err(why) = check(session, &deb, &root)? {
            missing.push(why);
        }
    }
    if missing.is_empty() {
        return Ok(Outcome::Passed(String::new()));
    }
    Ok(Outcome::Passed(format!("not checked: {}", missing.join("; "))))
}

/// The result of a check of the Debian package. The inner error names the program that is missing
/// for the check.
type Checked = Result<Result<(), String>>;

fn logged(session: &Session, command: &mut Command) -> Result<String> {
    shell::run_logged(session, "package", command, LIMIT)
}

/// Starts the packaged server with the packaged configuration and checks its health. Scratch
/// folders below `root` replace the folders of the configuration.
fn serve(session: &Session, root: &Path) -> Result<()> {
    let program = root.join("usr/bin/saker-server");
    // The installation of the package creates its folders. Here they are created in the scratch
    // root.
    let conf = fs::read_to_string(root.join("etc/saker/saker.conf"))?;
    let folder = root.join("var/lib/saker");
    fs::create_dir_all(&folder)?;
    let mut here = conf.clone();
    for path in ["/var/lib/saker", "/var/log/saker", "/run/saker"] {
        ensure!(conf.contains(path), "saker.conf does not name {path}");
        fs::create_dir_all(root.join(&path[1..]))?;
        here = here.replace(path, &root.join(&path[1..]).to_string_lossy());
    }
    let file = folder.join("saker.conf");
    fs::write(&file, here)?;
    // The options of the systemd unit.
    let options = ["--supervised", "systemd", "--daemonize", "no"].map(str::to_owned);
    let running = ServerProcess::start(&[program.clone().into(), file.into()], &options)?;
    // The server accepts clients before it writes the pidfile, and writes the pidfile before this
    // line of the log.
    let since = Instant::now();
    let log = loop {
        let log = fs::read_to_string(root.join("var/log/saker/saker-server.log"))?;
        if log.contains("Ready to accept connections") || since.elapsed() > READY_LIMIT {
            break log;
        }
        std::thread::sleep(READY_POLL);
    };
    ensure!(log.contains("just started"), "the packaged configuration's log says {log:?}");
    let pidfile = fs::read_to_string(root.join("run/saker/saker-server.pid")).context("the pidfile")?;
    ensure!(pidfile.trim() == running.pid().to_string(), "the pidfile says {pidfile:?}");
    let port = running.port().to_string();
    let asked = logged(session, Command::new(&program).args(["--healthcheck", "--port", &port]))?;
    ensure!(asked.lines().any(|line| line == "PONG"), "the health check printed no PONG");
    let bench = root.join("usr/bin/saker-bench");
    logged(session, Command::new(bench).args(["run", "-p", &port, "-n", "1000", "-t", "set"]))?;
    server::stop(running)?;
    // The default save rules make the server save its data when it stops.
    let check = root.join("usr/bin/saker-check");
    let report = logged(session, Command::new(check).arg("rdb").arg(folder.join("dump.rdb")))?;
    ensure!(report.contains("The file is good: "), "its report about its own file is {report:?}");
    let refused = Command::new(&program).args(["--healthcheck", "--port", &port]).output()?;
    ensure!(!refused.status.success(), "the health check of a stopped server succeeded");
    Ok(())
}

/// Checks that lintian finds no error and no warning. lintian-overrides has the exceptions, each
/// with its reason.
fn lint(session: &Session, deb: &Path, _root: &Path) -> Checked {
    let lintian = match shell::ensure(session, "lintian", "lintian") {
        Ok(lintian) => lintian,
        Err(missing) => return Ok(Err(missing)),
    };
    logged(session, Command::new(lintian).args(["--fail-on", "error,warning"]).arg(deb))?;
    Ok(Ok(()))
}

/// Checks that mandoc accepts every manual page without a warning.
fn manual_pages(session: &Session, _deb: &Path, root: &Path) -> Checked {
    let mandoc = match shell::ensure(session, "mandoc", "mandoc") {
        Ok(mandoc) => mandoc,
        Err(missing) => return Ok(Err(missing)),
    };
    let mut count = 0;
    for section in ["man1", "man5"] {
        for page in fs::read_dir(root.join("usr/share/man").join(section))? {
            let linted = Command::new(&mandoc).args(["-Tlint", "-Wwarning"]).arg(page?.path()).output()?;
            let findings = String::from_utf8_lossy(&linted.stdout).into_owned();
            // The pages have a version in the place of a date.
            let finding = findings.lines().find(|line| !line.ends_with(": TH") && !line.contains(" date, "));
            ensure!(finding.is_none(), "{}", finding.unwrap_or_default());
            count += 1;
        }
    }
    ensure!(count > 0, "the package has no manual page");
    Ok(Ok(()))
}

/// Checks that bash completes an option of each program, and that zsh and fish parse their
/// completion files.
fn completions(session: &Session, _deb: &Path, root: &Path) -> Checked {
    let bash = root.join("usr/share/bash-completion/completions");
    for (program, begun, wanted) in [
        ("saker-server", "--maxmem", "--maxmemory-policy"),
        ("saker-bench", "comp", "compare"),
        ("saker-check", "rd", "rdb"),
        ("saker-copy", "--until", "--until-equal"),
    ] {
        // As readline does: set the words of the line, then call the function that the file
        // registered.
        let script = format!(
            "source {} && COMP_WORDS=({program} {begun}) COMP_CWORD=1 && f=$(complete -p {program} | \
             sed 's/.*-F \\([^ ]*\\).*/\\1/') && $f {program} {begun} {program} && echo \"${{COMPREPLY[@]}}\"",
            bash.join(program).display()
        );
        let offered = shell::output(Command::new("bash").args(["-ec", &script]))?;
        ensure!(offered.contains(wanted), "bash offers {:?} for {begun}", offered.trim());
    }
    let mut missing = Vec::new();
    for (shell, folder) in [("zsh", "zsh/vendor-completions"), ("fish", "fish/vendor_completions.d")] {
        let program = match shell::ensure(session, shell, shell) {
            Ok(program) => program,
            Err(why) => {
                missing.push(why);
                continue;
            }
        };
        for file in fs::read_dir(root.join("usr/share").join(folder))? {
            logged(session, Command::new(&program).arg("-n").arg(file?.path()))?;
        }
    }
    Ok(if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) })
}

/// Checks that systemd knows every setting of the service's unit file, and that the service's
/// sandbox does not get weaker.
fn unit(session: &Session, _deb: &Path, root: &Path) -> Checked {
    /// The highest exposure allowed, from 0 (best) to 100: ten times the number that
    /// `systemd-analyze security` shows.
    const EXPOSURE_MAX: &str = "20";
    let Some(analyze) = shell::find("systemd-analyze") else {
        return Ok(Err("systemd-analyze is missing: install the package systemd".into()));
    };
    let unit = root.join("usr/lib/systemd/system/saker-server.service");
    // The path of the program in the unit is replaced by its path in the scratch root.
    let text = fs::read_to_string(&unit)?;
    let program = root.join("usr/bin/saker-server");
    let here = session.target.join("package/saker-server.service");
    let program = program.to_str().context("a path in UTF-8")?;
    let text = text.replace("ExecStart=/usr/bin/saker-server", &format!("ExecStart={program}"));
    fs::write(
        &here,
        text.lines()
            .filter(|line| !line.starts_with("Documentation="))
            .fold(String::new(), |text, line| text + line + "\n"),
    )?;
    logged(session, Command::new(&analyze).args(["verify", "--man=no"]).arg(&here))?;
    let mut security = Command::new(&analyze);
    security.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX]);
    logged(session, security.arg(&here))?;
    Ok(Ok(()))
}

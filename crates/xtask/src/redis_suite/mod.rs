//! Redis' own test suite, which is written in Tcl, run against Saker.
//!
//! The suite comes from Debian's source package of redis. Each of its units runs separately, with a
//! server of its own. It runs in the suite's external-server mode, or, if the unit does not support
//! that mode, with Saker in the place of the suite's `src/redis-server`. Units about TLS use TLS.
//!
//! `tests/redis-suite/skip.toml` lists the units to run and the tests to leave out, each with its
//! reason. If an entry names a test that does not exist, the run fails. Some tests expect that
//! requests of several connections run in the order in which they were sent, or that almost no
//! memory is used. These tests run separately, with one I/O thread.

mod outcome;
mod skip;
mod source;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::progress::{Outcome, Repeat, Session, seconds};
use crate::{peer, release, server, shell};
use outcome::UnitOutcome;
use skip::{Mode, SkipList};

/// The time limit of a run of all units of Redis' suite. A unit that has not ended by then counts
/// as failed.
const LIMIT: Duration = Duration::from_secs(3600);
/// The time in seconds without a finished test after which the suite gives up a unit. The longest
/// test (unit/obuf-limits) fills a socket's buffers by thousands of requests one after the other.
/// It takes about 25 s, and over a minute if the cores are far from each other or busy.
const UNIT_STALL_S: u32 = 300;
/// The interval between two checks whether a running unit of the suite has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of ports reserved for a unit of the suite: for the suite's own processes and for the
/// servers that it starts.
const PORTS_PER_UNIT: u16 = 100;
/// The first port that runs of the suite use. It is below the kernel's range of ports for clients.
/// Each of up to [`RUNS_AT_ONCE`] simultaneous runs has [`PORTS_PER_RUN`] ports of its own; the
/// process ID chooses them.
const PORTS_FROM: u16 = 10_000;
const PORTS_PER_RUN: u16 = 3_500;
const RUNS_AT_ONCE: u32 = 6;
/// The server options that encode sets as in Redis 7.0, which had no listpack encoding of small
/// sets of strings. The suite checks encodings.
const SETS_OF_7_0: &[&str] = &["--set-max-listpack-entries", "0"];
/// The server options for the tests that skip.toml lists under `one-thread`. Like Redis, a single
/// thread runs all requests that have arrived before it sends a reply. The long budget of a turn
/// ensures this even if the machine takes the processor away meanwhile.
const ONE_THREAD: &[&str] = &["--io-threads", "1", "--turn-budget-us", "1000000"];
/// The server options for units whose replicas are of the Redis that peer.rs finds: Debian's is as
/// old as the suite.
const FOR_REDIS_REPLICAS: &[&str] = &["--rdb-version", "10"];
/// The settings of the suite's own `default.conf`, as options for a server that is not started with
/// that file.
const SETTINGS: &[&str] = &[
    "--databases",
    "16",
    "--enable-debug-command",
    "yes",
    "--enable-protected-configs",
    "yes",
    "--notify-keyspace-events",
    "KEA",
    "--latency-monitor-threshold",
    "1",
];

/// The options of `cargo xtask redis-suite`.
#[derive(Args, Default)]
pub struct SuiteArguments {
    /// Run only these units, such as unit/type/string.
    #[arg(long, value_name = "UNIT", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only this test; a name that begins with / is a regular expression.
    #[arg(long, value_name = "TEST")]
    single: Option<String>,
    /// Also run the tests that the skip list leaves out for this reason (the reason's name in
    /// skip.toml).
    #[arg(long, value_name = "REASON", value_delimiter = ',')]
    unskip: Vec<String>,
    /// Test another server in Saker's place, such as a debug build or a redis-server.
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
}

/// Runs the step of CI: all units of the suite, as skip.toml lists them.
pub fn step(session: &Session) -> Result<Outcome> {
    match prepare(session)? {
        Err(missing) => Ok(Outcome::Skipped(missing)),
        Ok(suite) => {
            let sum = run_units(session, &suite, &SuiteArguments::default())?;
            if sum.is_good() {
                return Ok(Outcome::Passed(sum.to_string()));
            }
            Ok(Outcome::Failed(sum.failed_units.iter().cloned().map(repeat).collect()))
        }
    }
}

/// Returns the way to repeat one unit of the suite that failed.
fn repeat(unit: String) -> Repeat {
    let arguments = SuiteArguments { only: vec![unit.clone()], ..SuiteArguments::default() };
    let run = Box::new(move |session: &Session| {
        ensure!(run(session, &arguments)?, "its failures are shown above");
        Ok(())
    });
    Repeat { name: unit, run }
}

/// Handles `cargo xtask redis-suite`. The last line printed has the counts of tests. Returns true
/// if no test failed.
pub fn run(session: &Session, arguments: &SuiteArguments) -> Result<bool> {
    let sum = match prepare(session)? {
        Err(missing) => bail!("{missing}"),
        Ok(suite) => run_units(session, &suite, arguments)?,
    };
    println!("{sum}");
    Ok(sum.is_good())
}

/// The files and programs that a run of Redis' suite needs besides the server.
struct Suite {
    /// The folder of the sources of Redis' suite.
    source: PathBuf,
    tclsh: PathBuf,
    /// The command line of the Redis that is the replica or the primary of Saker.
    peer: String,
    /// The programs that the suite calls in its folder `src`, each with its name there and its
    /// path.
    tools: Vec<(&'static str, PathBuf)>,
}

/// Finds or fetches the suite and its requirements. The inner error says what is missing.
fn prepare(session: &Session) -> Result<Result<Suite, String>> {
    let mut tools = Vec::new();
    for tool in ["redis-cli", "redis-benchmark", "redis-check-aof"] {
        match shell::ensure(session, tool, "redis-tools") {
            Ok(path) => tools.push((tool, path)),
            Err(missing) => return Ok(Err(missing)),
        }
    }
    let tclsh = match shell::ensure(session, "tclsh", "tcl") {
        Ok(tclsh) => tclsh,
        Err(missing) => return Ok(Err(missing)),
    };
    let peer = match peer::find(session)? {
        Ok(peer) => peer,
        Err(missing) => return Ok(Err(missing)),
    };
    let source = match source::fetch(session)? {
        Ok(source) => source,
        Err(missing) => return Ok(Err(missing)),
    };
    Ok(prepare_tls(session, &source, &tclsh)?.map(|()| Suite { source, tclsh, peer, tools }))
}

/// Prepares the requirements of units that use TLS: Tcl's TLS package and the suite's certificates.
/// The inner error says what is missing.
fn prepare_tls(session: &Session, source: &Path, tclsh: &Path) -> Result<Result<(), String>> {
    let probe = session.target.join("redis-suite/tls.tcl");
    fs::write(&probe, "package require tls\n")?;
    let knows_tls = || Command::new(tclsh).arg(&probe).output().is_ok_and(|output| output.status.success());
    if !knows_tls()
        && let Err(missing) = shell::install(session, "tcl-tls")
    {
        return Ok(Err(missing));
    }
    if let Err(missing) = shell::ensure(session, "openssl", "openssl") {
        return Ok(Err(missing));
    }
    if !source.join("tests/tls/redis.crt").exists() {
        let mut script = Command::new("bash");
        script.arg("utils/gen-test-certs.sh").current_dir(source);
        shell::run_logged(session, "redis-suite", &mut script, LIMIT)?;
    }
    Ok(Ok(()))
}

/// Runs the chosen units of the suite, as many in parallel as there are cores, and prints a line
/// for each.
fn run_units(session: &Session, suite: &Suite, arguments: &SuiteArguments) -> Result<UnitOutcome> {
    let list = SkipList::read(&session.root.join("tests/redis-suite/skip.toml"))?;
    list.check_reasons(&arguments.unskip)?;
    let units = list.units(&arguments.only)?;
    let program = match &arguments.server {
        Some(program) => fs::canonicalize(program).with_context(|| format!("{}", program.display()))?,
        None => release::build(session)?.server,
    };
    let begun = Instant::now();
    let run = Run { session, suite, arguments, list: &list, program: &program, end: begun + LIMIT };
    // The longest units come first in the list, so that the last unit to end is a short one.
    let queue = Mutex::new(units.into_iter().enumerate());
    let sum = Mutex::new(UnitOutcome::default());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((at, (unit, mode))) = next else { break };
                    let unit_begun = Instant::now();
                    let mut outcome = run.unit(at, unit, mode).unwrap_or_else(|error| {
                        UnitOutcome::failure(unit, format!("the unit did not run: {error:#}"))
                    });
                    if !outcome.is_good() {
                        outcome.failed_units.push(unit.to_owned());
                    }
                    println!("        {unit}: {outcome} in {}", seconds(unit_begun.elapsed()));
                    outcome.failures.iter().for_each(|failure| println!("            {failure}"));
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                }
            });
        }
    });
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The state that the units of one run of the suite share.
struct Run<'a> {
    session: &'a Session,
    suite: &'a Suite,
    arguments: &'a SuiteArguments,
    list: &'a SkipList,
    program: &'a Path,
    /// The time at which the whole run of the suite must have ended.
    end: Instant,
}

/// The tests of one unit of the suite that run together on a server with the same options.
struct Pass<'a> {
    /// The folder, laid out like the suite's own, in which the tests run.
    folder: &'a Path,
    /// The names of the suite's tests that are left out.
    skipped: &'a [String],
    /// The names of the only tests that run; if empty, all tests run that are not in `skipped`.
    only: &'a [String],
    /// The additional options of the tested server.
    options: &'a [&'a str],
}

/// The maximum length of the name of a unit's folder, in bytes. The servers of a unit have a Unix
/// socket below the folder, and the path of a Unix socket may have at most 107 bytes.
const FOLDER_NAME_LEN_MAX: usize = 24;

/// Returns the name of the folder in which a unit runs: the unit's name, cut at the front if it is
/// long. A unit that runs in several modes has several folders.
fn folder_name(unit: &str, mode: Mode) -> String {
    let name = unit.replace('/', "-")
        + match mode {
            Mode::RedisReplicas => ".rr",
            Mode::RedisPrimaries => ".rp",
            Mode::External | Mode::Spawned | Mode::Encrypted => "",
        };
    let cut = name.len().saturating_sub(FOLDER_NAME_LEN_MAX);
    name[cut..].trim_start_matches('-').to_owned()
}

impl Run<'_> {
    /// Runs the unit of the suite that has index `at` in the run. Most of its tests run with the
    /// usual number of threads; the tests that need one thread run separately.
    fn unit(&self, at: usize, unit: &str, mode: Mode) -> Result<UnitOutcome> {
        let skipped = self.list.tests(unit, &self.arguments.unskip);
        let one_thread = self.list.one_thread_tests(unit);
        let folder = self.session.target.join("redis-suite/run").join(folder_name(unit, mode));
        let single = self.arguments.single.as_slice();
        let options = match mode {
            Mode::RedisReplicas => [SETS_OF_7_0, FOR_REDIS_REPLICAS].concat(),
            _ => SETS_OF_7_0.to_vec(),
        };
        let first = Pass {
            folder: &folder,
            skipped: &[&skipped[..], one_thread].concat(),
            only: single,
            options: &options,
        };
        let mut outcome = self.pass(at, unit, mode, &first)?;
        let only = match single {
            [] => one_thread,
            // The test was left out of the first pass. A regular expression may match tests of both
            // passes.
            [test] if test.starts_with('/') || outcome.skipped.contains(test) => single,
            _ => &[],
        };
        if !only.is_empty() && !one_thread.is_empty() {
            let folder = folder.with_extension("one-thread");
            let options = [&options, ONE_THREAD].concat();
            let second = Pass { folder: &folder, skipped: &skipped, only, options: &options };
            outcome.add_second_run(self.pass(at, unit, mode, &second)?);
        }
        Ok(outcome)
    }

    /// Runs the tests in `pass` of the unit that has index `at` in the run, and returns their
    /// results. The index determines the ports.
    fn pass(&self, at: usize, unit: &str, mode: Mode, pass: &Pass<'_>) -> Result<UnitOutcome> {
        let Pass { folder, skipped, only, options } = pass;
        self.lay_out(folder, mode, options)?;
        let skip_file = folder.join("skip.txt");
        fs::write(&skip_file, skipped.iter().map(|test| format!("{test}\n")).collect::<String>())?;
        let run = u16::try_from(std::process::id() % RUNS_AT_ONCE).context("a small number")?;
        let unit_ports = u16::try_from(at).context("so many units")? * PORTS_PER_UNIT;
        let ports_from = PORTS_FROM + run * PORTS_PER_RUN + unit_ports;

        let mut command = Command::new(&self.suite.tclsh);
        command.current_dir(folder).arg("tests/test_helper.tcl").args(["--single", unit]);
        command.args(["--durable", "--no-latency", "--clients", "1", "--tags", "-cluster -saker:skip"]);
        command.args(["--timeout", &UNIT_STALL_S.to_string()]);
        command.args(["--baseport", &ports_from.to_string()]);
        command.args(["--portcount", &(PORTS_PER_UNIT / 2).to_string()]);
        command.arg("--skipfile").arg(&skip_file);
        command.args(only.iter().flat_map(|test| ["--only", test.as_str()]));
        let server = match mode {
            Mode::Spawned | Mode::RedisReplicas | Mode::RedisPrimaries => None,
            Mode::Encrypted => {
                command.arg("--tls");
                None
            }
            Mode::External => {
                let server = server::start(self.program, &[SETTINGS, options].concat())?;
                command.args(["--host", "127.0.0.1", "--port", &server.port().to_string()]);
                Some(server)
            }
        };
        let log = folder.join("log");
        let ended = self.wait(&mut command, &log);
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let mut outcome = UnitOutcome::parse(unit, &text);
        if let Err(error) = ended {
            outcome.failures.push(format!("{error:#}; the whole log is {}", log.display()));
        }
        if let Some(server) = server
            && let Err(error) = server::stop(server)
        {
            outcome.failures.push(format!("the server did not stop as asked: {error:#}"));
        }
        if only.is_empty() {
            let met: BTreeSet<&str> = outcome.skipped.iter().map(String::as_str).collect();
            let idle = skipped.iter().filter(|test| !test.starts_with('/') && !met.contains(test.as_str()));
            let idle = idle.map(|test| format!("skip.toml names a test that {unit} does not have: {test}"));
            let idle: Vec<String> = idle.collect();
            outcome.failures.extend(idle);
        }
        Ok(outcome)
    }

    /// Creates `folder` with the layout of the suite's own folder and with links to the suite's
    /// files. Its `src/redis-server` starts the tested server with `options`, or the peer if that
    /// has the server's role in `mode`. Files that the tests write stay in `folder`.
    fn lay_out(&self, folder: &Path, mode: Mode, options: &[&str]) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder.join("tests/tmp"))?;
        fs::create_dir_all(folder.join("src"))?;
        for entry in fs::read_dir(self.suite.source.join("tests"))? {
            let entry = entry?;
            if entry.file_name() != "tmp" {
                symlink(entry.path(), folder.join("tests").join(entry.file_name()))?;
            }
        }
        for (name, path) in &self.suite.tools {
            symlink(path, folder.join("src").join(name))?;
        }
        let (peer, program) = (&self.suite.peer, self.program.display());
        let start_peer = format!("exec {peer} \"$@\"");
        let (replica, primary) = match mode {
            Mode::RedisReplicas => (start_peer.as_str(), ""),
            Mode::RedisPrimaries => ("", start_peer.as_str()),
            Mode::External | Mode::Spawned | Mode::Encrypted => ("", ""),
        };
        // Redis prints its process id when it starts, and the suite waits for that line. A
        // configuration file, if any, must be the first argument.
        let options = options.join(" ");
        let script = format!(
            "#!/bin/sh\nif [ \"$2\" = replica ]; then\nset -- \"$1\"\n{replica}\nelse :\n{primary}\nfi\n\
             echo \" PID: $$\"\ncase \"$1\" in\n--*) exec '{program}' {options} \"$@\" ;;\n\
             *) exec '{program}' \"$@\" {options} ;;\nesac\n",
        );
        let server = folder.join("src/redis-server");
        fs::write(&server, script)?;
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Runs `command` until it ends or the run's deadline passes, then kills all processes that it
    /// started. Returns an error if the deadline passed or the suite itself failed.
    fn wait(&self, command: &mut Command, log: &Path) -> Result<()> {
        let log = File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let mut child = command.spawn().context("cannot start tclsh")?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("its process id")?;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if Instant::now() > self.end => break None,
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        // Kills processes that the suite started and did not end. Usually none of the group
        // remains.
        let _ = kill_process_group(group, Signal::KILL);
        match status {
            None => {
                child.wait()?;
                bail!("the suite ran longer than {} s", LIMIT.as_secs())
            }
            // Failed tests are counted from the log; they make the status 1.
            Some(status) if matches!(status.code(), Some(0 | 1)) => Ok(()),
            Some(status) => bail!("the suite ended with {status}"),
        }
    }
}

//! A test of job frameworks: the server and a worker are killed together by SIGKILL in the middle
//! of jobs.
//!
//! The server syncs its append-only file before it replies. One process sends the jobs one at a
//! time, and sends a job again if the server did not reply. Other processes, the workers, do the
//! jobs. For each job, a worker appends a line to a file, the *ledger*: the job's number, and the
//! times in milliseconds at which it was sent and done. So the ledger does not depend on the
//! server. At moments drawn from the seed, the server and a worker are killed at once, and both
//! start again. A worker that ends by itself, because it lost the server, is also started again, as
//! a supervisor would do.
//!
//! The programs of `tests/clients` take `send PORT LEDGER JOBS` and `work PORT LEDGER`. For
//! comparison, `--server redis-server` makes the same runs with another server.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use testkit::{Address, Client, Rng};

use super::languages;
use crate::progress::Session;
use crate::release;

/// The time limit of each wait for jobs of one framework: many times the duration of the slowest
/// run.
const RUN_LIMIT: Duration = Duration::from_secs(900);
/// The interval between two reads of the ledger, in which workers record the jobs that they did.
const POLL: Duration = Duration::from_millis(10);
/// The number of worker processes of each framework.
const WORKERS: usize = 3;
/// The maximum number of attempts to start the server. An attempt may fail because another process
/// still has the port.
const STARTS_MAX: usize = 100;

/// The options of `cargo xtask crashes`.
#[derive(Args)]
pub struct CrashArguments {
    /// The server's command line, split at blanks. Default: the release server.
    #[arg(long)]
    server: Option<String>,
    /// Run only these frameworks, such as celery.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The number of jobs for each framework.
    #[arg(long, default_value_t = 1_500)]
    jobs: usize,
    /// The number of times that the server and a worker are killed.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// The seed of the moments at which processes are killed.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// The words of the command that starts a program, or the description of a missing requirement.
type Words = Result<Vec<String>, String>;

/// A job framework under test: the command that starts its program, and the losses it is allowed.
struct Framework {
    name: &'static str,
    /// A function that returns the words of the command that starts the framework's program. The
    /// inner error describes a missing requirement.
    words: fn(&Session) -> Result<Words>,
    /// The maximum number of jobs that the framework may lose at one kill. It is above 0 for
    /// frameworks that remove a job from the server before they do or record the job.
    lost_per_kill_max: usize,
    /// The time without a newly finished job after which the framework's run ends. Used only for
    /// frameworks that may lose jobs.
    quiet: Duration,
}

const FRAMEWORKS: &[Framework] = &[
    Framework {
        name: "celery",
        words: |session| python(session, "celery_crashes.py"),
        // Each worker may have popped one message that it has not recorded yet.
        lost_per_kill_max: WORKERS,
        // Unacknowledged messages are delivered again within 12 seconds after their timeout.
        quiet: Duration::from_secs(40),
    },
    Framework {
        name: "bullmq",
        words: |session| {
            let words = |folder: PathBuf| vec!["node".into(), shown(&folder.join("bullmq_crashes.mjs"))];
            Ok(languages::node(session)?.map(words))
        },
        lost_per_kill_max: 0,
        quiet: Duration::ZERO,
    },
    Framework {
        name: "asynq",
        words: |session| Ok(languages::go(session, "asynq")?.map(|program| vec![shown(&program)])),
        lost_per_kill_max: 0,
        quiet: Duration::ZERO,
    },
    Framework {
        name: "sidekiq",
        words: |session| {
            let script = session.root.join("tests/clients/ruby/sidekiq_crashes.rb");
            Ok(languages::ruby(session).map(|ruby| vec![shown(&ruby), shown(&script)]))
        },
        // Each process has two threads. Each thread may have one job, and another on the way from
        // the server.
        lost_per_kill_max: 2 * 2 * WORKERS,
        quiet: Duration::from_secs(20),
    },
    Framework {
        name: "redis-py",
        words: |session| python(session, "list_crashes.py"),
        lost_per_kill_max: 0,
        quiet: Duration::ZERO,
    },
    Framework {
        name: "lettuce",
        words: |session| {
            let words = |classes| vec!["java".into(), "-cp".into(), classes, "ListCrashes".into()];
            Ok(languages::java(session)?.map(words))
        },
        lost_per_kill_max: 0,
        quiet: Duration::ZERO,
    },
];

fn python(session: &Session, file: &str) -> Result<Words> {
    let script = session.root.join("tests/clients/python").join(file);
    Ok(languages::python(session)?.map(|python| vec![shown(&python), shown(&script)]))
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs the frameworks one after the other. Returns false if one lost more jobs than it may.
pub fn run(session: &Session, arguments: &CrashArguments) -> Result<bool> {
    let server: Vec<String> = match &arguments.server {
        Some(line) => line.split_whitespace().map(str::to_owned).collect(),
        None => vec![shown(&release::build(session)?.server)],
    };
    println!("seed {}", session.seed);
    let mut all_done = true;
    for framework in FRAMEWORKS {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == framework.name) {
            continue;
        }
        match (framework.words)(session)? {
            Err(missing) => println!("{}: SKIPPED: {missing}", framework.name),
            Ok(words) => {
                let mut crashes = Crashes::new(session, &server, words, framework.name)?;
                let report = crashes.run(framework, arguments).with_context(|| framework.name)?;
                println!("{}: {}", framework.name, report.text(arguments));
                all_done &= report.lost.len() <= framework.lost_per_kill_max * arguments.kills;
            }
        }
    }
    Ok(all_done)
}

/// The results of one framework's run: lost and repeated jobs, and times.
struct Report {
    /// The numbers of the jobs that no worker ever did.
    lost: Vec<usize>,
    /// The number of times that a worker did a job that had been done before.
    again: usize,
    /// The longest time from the sending of a job until it was first done.
    latest: Duration,
    /// The time from the start of the first worker until the last job was done.
    took: Duration,
    /// The number of times that a worker ended by itself.
    worker_exits: usize,
}

impl Report {
    fn text(&self, arguments: &CrashArguments) -> String {
        format!(
            "{} jobs, {} kills: {} lost {:?}, {} done again, the latest {:.1} s after it was sent, all in {:.1} s; {} workers ended by themselves",
            arguments.jobs,
            arguments.kills,
            self.lost.len(),
            self.lost,
            self.again,
            self.latest.as_secs_f64(),
            self.took.as_secs_f64(),
            self.worker_exits,
        )
    }
}

/// A process in a process group of its own. Dropping this value kills the process and its children.
struct Group(Child);

impl Group {
    fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self(child))
    }

    fn signal_kill(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The call fails only if all processes of the group have already ended.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal_kill();
        let _ = self.0.wait();
    }
}

/// The run of one framework on one server, in which both are killed: their processes and files.
struct Crashes<'a> {
    server_words: &'a [String],
    words: Vec<String>,
    folder: PathBuf,
    port: u16,
    server: Option<Group>,
    workers: Vec<Group>,
    worker_exits: usize,
}

impl<'a> Crashes<'a> {
    fn new(session: &Session, server_words: &'a [String], words: Vec<String>, name: &str) -> Result<Self> {
        let folder = session.target.join("crashes").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let port = testkit::process::free_port()?;
        Ok(Self { server_words, words, folder, port, server: None, workers: Vec::new(), worker_exits: 0 })
    }

    fn run(&mut self, framework: &Framework, arguments: &CrashArguments) -> Result<Report> {
        let mut rng = Rng::new(arguments.seed.unwrap_or_default());
        let mut moments: Vec<usize> =
            (0..arguments.kills).map(|_| arguments.jobs / 10 + rng.below(arguments.jobs * 7 / 10)).collect();
        moments.sort_unstable();
        self.start_server()?;
        fs::write(self.ledger(), "")?;
        let begun = Instant::now();
        self.workers = (0..WORKERS).map(|_| self.start_worker()).collect::<Result<_>>()?;
        let mut sender =
            Group::start(&mut self.program("send", &[arguments.jobs]), &self.folder.join("sender.log"))?;
        for moment in moments {
            self.wait(|done| done >= moment)?;
            self.crash(rng.below(WORKERS))?;
        }
        let status = sender.0.wait()?;
        ensure!(status.success(), "the sender ended with {status}; see {}", self.folder.display());
        let mut last = (0, Instant::now());
        self.wait(|done| {
            if done > last.0 {
                last = (done, Instant::now());
            }
            let is_quiet = framework.lost_per_kill_max > 0 && last.1.elapsed() > framework.quiet;
            done == arguments.jobs || is_quiet
        })?;
        let mut report = self.report(arguments.jobs)?;
        report.took = last.1.duration_since(begun);
        Ok(report)
    }

    /// Kills the server and the worker with index `worker` at the same moment, and starts both
    /// again.
    fn crash(&mut self, worker: usize) -> Result<()> {
        let server = self.server.take().context("a server runs")?;
        server.signal_kill();
        self.workers[worker].signal_kill();
        drop(server);
        self.start_server()?;
        // Dropping the old worker waits for its end.
        self.workers[worker] = self.start_worker()?;
        Ok(())
    }

    fn start_server(&mut self) -> Result<()> {
        let (program, words) = self.server_words.split_first().context("the server's command line")?;
        for _ in 0..STARTS_MAX {
            let mut command = Command::new(program);
            command.args(words).args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--dir", &shown(&self.folder), "--save", ""]);
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
            let mut server = Group::start(&mut command, &self.folder.join("server.log"))?;
            while server.0.try_wait()?.is_none() {
                if let Ok(mut client) = Client::connect(&Address::port(self.port))
                    && client.request(&["PING"]).is_ok_and(|reply| !reply.is_error())
                {
                    self.server = Some(server);
                    return Ok(());
                }
                thread::sleep(POLL);
            }
            thread::sleep(POLL);
        }
        bail!("the server does not start; see {}", self.folder.display())
    }

    fn start_worker(&self) -> Result<Group> {
        Group::start(&mut self.program("work", &[]), &self.folder.join("workers.log"))
    }

    fn program(&self, task: &str, numbers: &[usize]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args([task, &self.port.to_string(), &shown(&self.ledger())]);
        command.args(numbers.iter().map(ToString::to_string)).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    /// Waits until `is_enough` returns true for the number of different jobs done. Restarts workers
    /// that have ended.
    fn wait(&mut self, mut is_enough: impl FnMut(usize) -> bool) -> Result<()> {
        let deadline = Instant::now() + RUN_LIMIT;
        while !is_enough(self.first_times()?.0.len()) {
            ensure!(Instant::now() < deadline, "not within {RUN_LIMIT:?}; see {}", self.folder.display());
            for at in 0..self.workers.len() {
                if self.workers[at].0.try_wait()?.is_some() {
                    self.worker_exits += 1;
                    self.workers[at] = self.start_worker()?;
                }
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Reads the ledger, to which workers append a line whenever they do a job. Returns, for each
    /// job, the milliseconds from its sending until it was first done. Also returns the number of
    /// times that a job was done again.
    fn first_times(&self) -> Result<(HashMap<usize, u64>, usize)> {
        let (mut first, mut again) = (HashMap::new(), 0);
        for line in fs::read_to_string(self.ledger())?.split_inclusive('\n') {
            let Some(line) = line.strip_suffix('\n') else { continue };
            let numbers: Vec<u64> =
                line.split(' ').map(str::parse).collect::<Result<_, _>>().context("the ledger")?;
            let [job, sent_ms, done_ms] = numbers[..] else { bail!("the ledger has a line {line:?}") };
            let late_ms = done_ms.saturating_sub(sent_ms);
            if let Some(earlier_ms) = first.insert(job as usize, late_ms) {
                first.insert(job as usize, earlier_ms.min(late_ms));
                again += 1;
            }
        }
        Ok((first, again))
    }

    fn report(&self, jobs: usize) -> Result<Report> {
        let (first, again) = self.first_times()?;
        let lost = (0..jobs).filter(|job| !first.contains_key(job)).collect();
        let latest = Duration::from_millis(first.values().copied().max().unwrap_or_default());
        Ok(Report { lost, again, latest, took: Duration::ZERO, worker_exits: self.worker_exits })
    }
}

//! Steps of CI: frameworks on top of client libraries, tested end to end. They are job queues,
//! schedulers, a channel layer, locks and rate limiters. Each program of `tests/clients` runs a
//! thousand jobs on the release server while its workers are killed at random. Then it checks, in a
//! list of the jobs done, that its framework kept its promises. The programs of one language run in
//! parallel on one server, each in a database of its own, on each backend of the event loop.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::clients::on_each_back_end;
use super::languages;
use crate::progress::{Outcome, Session};
use crate::shell;

/// The time limit of one run of a framework's test program: forty times its duration when nothing
/// else runs.
const RUN_LIMIT: Duration = Duration::from_secs(1200);
/// The number of different seeds for the test programs. Each seed fits the integer types of all
/// languages.
const SEEDS: u64 = 1 << 31;

/// A test program for a framework. It takes the server's port, a database and a seed as arguments.
struct Program {
    /// The name of the program, which is also the name of its log file.
    name: &'static str,
    words: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

/// Runs the Python programs: huey and rq with their schedulers, dramatiq, Celery in two versions,
/// kombu after consumers die, the default layer of channels_redis, and the rate limiters of limits.
pub fn python(session: &Session) -> Result<Outcome> {
    let python = match languages::python(session)? {
        Ok(python) => python,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let folder = session.root.join("tests/clients/python");
    let program = |name, file: &str| Program {
        name,
        words: vec![shown(&python), shown(&folder.join(file))],
        environment: vec![("PYTHONDONTWRITEBYTECODE", "1".into())],
    };
    let mut celery_old = program("celery-old", "celery_jobs.py");
    celery_old.environment.push(("PYTHONPATH", shown(&languages::celery_old(session))));
    let programs = [
        program("celery", "celery_jobs.py"),
        celery_old,
        program("kombu", "kombu_restore.py"),
        program("rq", "rq_jobs.py"),
        program("huey", "huey_jobs.py"),
        program("dramatiq", "dramatiq_jobs.py"),
        program("channels", "channels_jobs.py"),
        program("limits", "limits_jobs.py"),
    ];
    side_by_side(session, &programs)
}

/// Runs the Go program, which tests the job queue asynq.
pub fn go(session: &Session) -> Result<Outcome> {
    match languages::go(session, "asynq")? {
        Ok(program) => side_by_side(
            session,
            &[Program { name: "asynq", words: vec![shown(&program)], environment: vec![] }],
        ),
        Err(missing) => Ok(Outcome::Skipped(missing)),
    }
}

/// Runs the Node programs: BullMQ and the limiters of rate-limiter-flexible.
pub fn node(session: &Session) -> Result<Outcome> {
    let folder = match languages::node(session)? {
        Ok(folder) => folder,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let program = |name, file: &str| Program {
        name,
        words: vec!["node".into(), shown(&folder.join(file))],
        environment: vec![],
    };
    side_by_side(session, &[program("bullmq", "bullmq.mjs"), program("limiter", "limiter.mjs")])
}

/// Runs the Java program, which tests Redisson's locks.
pub fn java(session: &Session) -> Result<Outcome> {
    let class_path = match languages::java(session)? {
        Ok(class_path) => class_path,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let words = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", &class_path, "Locks"];
    let words = words.map(str::to_owned).to_vec();
    side_by_side(session, &[Program { name: "redisson", words, environment: vec![] }])
}

/// Runs the Ruby program, which tests the job queue Sidekiq.
pub fn ruby(session: &Session) -> Result<Outcome> {
    let ruby = match languages::ruby(session) {
        Ok(ruby) => ruby,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let script = session.root.join("tests/clients/ruby/sidekiq_jobs.rb");
    let words = vec![shown(&ruby), shown(&script)];
    side_by_side(session, &[Program { name: "sidekiq", words, environment: vec![] }])
}

/// Runs all test programs in parallel on one server, once on each backend of the server's event
/// loop.
fn side_by_side(session: &Session, programs: &[Program]) -> Result<Outcome> {
    let seed = session.seed % SEEDS;
    on_each_back_end(session, |server| {
        let port = server.port().to_string();
        let run = |program: &Program, database: usize| {
            let (name, arguments) = program.words.split_first().context("a program's name")?;
            let mut command = Command::new(name);
            command.args(arguments).args([&port, &database.to_string(), &seed.to_string()]);
            command.envs(program.environment.iter().map(|(name, value)| (name, value)));
            shell::run_logged(session, program.name, &mut command, RUN_LIMIT)
        };
        thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (programs.iter().zip(1..))
                .map(|(program, database)| scope.spawn(move || run(program, database)))
                .collect();
            // Waits for all programs, then returns the first error.
            let ended: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
            ended.into_iter().try_for_each(|result| match result {
                Ok(log) => log.map(drop),
                Err(_) => Err(anyhow!("a thread of this step panicked")),
            })
        })
    })
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

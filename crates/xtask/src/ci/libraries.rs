//! Client libraries of other languages. For each, a program of `tests/clients` does a round over
//! the data types, against the release server on each backend of its event loop. If a library is
//! not available, the step is skipped. If its program does not compile or pass, the step fails.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::clients::{on_each_back_end, over_tls};
use super::languages;
use crate::progress::{Outcome, Session};
use crate::shell;

/// The time limit of one run of a client library's test program.
const RUN_LIMIT: Duration = Duration::from_secs(480);

/// Runs the test program of the Go library go-redis.
pub fn go_redis(session: &Session) -> Result<Outcome> {
    match languages::go(session, "go")? {
        Ok(program) => drive(session, "go-redis", &program, &[]),
        Err(missing) => Ok(Outcome::Skipped(missing)),
    }
}

/// Runs the test program of the Node library ioredis.
pub fn ioredis(session: &Session) -> Result<Outcome> {
    match languages::node(session)? {
        Ok(folder) => {
            drive(session, "ioredis", Path::new("node"), &[&folder.join("round.mjs").to_string_lossy()])
        }
        Err(missing) => Ok(Outcome::Skipped(missing)),
    }
}

/// Runs the test program of the Java library Jedis.
pub fn jedis(session: &Session) -> Result<Outcome> {
    match languages::java(session)? {
        Ok(class_path) => drive(session, "jedis", Path::new("java"), &["-cp", &class_path, "Round"]),
        Err(missing) => Ok(Outcome::Skipped(missing)),
    }
}

/// Runs the test program `program` with `arguments` and the server's port, on each backend of the
/// server's event loop and over TLS. `log` is the name of the log.
fn drive(session: &Session, log: &str, program: &Path, arguments: &[&str]) -> Result<Outcome> {
    let run = |more: &[&str]| {
        let mut command = Command::new(program);
        shell::run_logged(session, log, command.args(arguments).args(more), RUN_LIMIT).map(drop)
    };
    let outcome = on_each_back_end(session, |server| run(&[&server.port().to_string()]))?;
    over_tls(session, |port, files| run(&[&[port], files].concat()))?;
    Ok(outcome)
}
